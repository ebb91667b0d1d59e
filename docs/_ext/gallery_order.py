"""The order of the gallery: from a first look to more special questions."""

FIRST = (
    "release", "insurance", "hormones",
    "trial", "survival", "budget", "stroke", "icu_rules", "hypotension", "gridworld", "forest",
    "point_mass", "sweep", "certificate_size", "sensitivity", "sites",
)  # fmt: skip


class Order:
    """Sorts the examples of a folder; those that are not named come last."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __call__(self, filename: str) -> tuple[int, str]:
        name = filename.removeprefix("plot_").removesuffix(".py")
        return (FIRST.index(name) if name in FIRST else len(FIRST), name)

    def __repr__(self) -> str:
        return "<the order of the gallery>"
