"""The contestants of the Atari study: its learners, their settings, and their names."""

from __future__ import annotations

from dprl_studies.harness import Setting

__all__ = ["COUNTS", "DPRL", "LEARNERS", "PAPER_RADII", "contestants", "family", "label"]

N_MIN, PAPER_RADII = (5, 10, 30), (1e-3, 1e-4)
DPRL = tuple(f"DPRL {rule}{plan}" for rule in ("paper", "contrast", "gate")
             for plan in ("", " planned"))  # fmt: skip
"""The six variants of DPRL: the rule for decision points, with and without planning."""

COUNTS = ("count only", "count only by game")
"""Controls that count how often an action was taken nearby and ignore the returns."""

LEARNERS = (
    "behaviour", "expert", "medium", *DPRL, *COUNTS, "SPIBB", "PQI", "CQL", "BC",
    "Rules",
)  # fmt: skip


def contestants(learner: str, quick: bool, by_rule: bool = True) -> list[Setting]:
    """The settings with which a learner takes part.

    Args:
        learner: One of `LEARNERS`.
        quick: Whether to take one setting only.
        by_rule: Whether to take the settings with the radius of `dprl.atari.choose_radius` (or
            without radius). Default True; False takes those with the paper's radii.

    Returns:
        The settings, each a dict of the learner's arguments; radius "rule" is replaced by a number
        later. Empty if the learner has no settings of this kind.

    Example:
        >>> contestants("SPIBB", quick=True)
        [{'n_min': 5, 'radius': 'rule'}]
        >>> contestants("SPIBB", quick=True, by_rule=False)
        []
    """
    n_min, radii = ((5,) if quick else N_MIN), (("rule",) if by_rule else PAPER_RADII)
    if learner in DPRL or learner in COUNTS:
        return [{"n_min": n, "radius": r} for r in radii for n in n_min]
    if not by_rule:
        return []
    if learner == "SPIBB":
        return [{"n_min": n, "radius": "rule"} for n in n_min]
    if learner == "PQI":
        return [{"b": b, "radius": "rule"} for b in ((1e-3,) if quick else (1e-4, 1e-3, 1e-2))]
    if learner == "CQL":
        return [{"alpha": a} for a in ((1e-2,) if quick else (1e-4, 1e-2, 1e-1))]
    return [{}]


def label(learner: str, options: Setting) -> str:
    """The name of a contestant in tables and figures.

    Args:
        learner: One of `LEARNERS`.
        options: One of the settings of `contestants`.

    Returns:
        The learner and its settings; the radius is named only if it is the paper's.

    Example:
        >>> label("SPIBB", {"n_min": 5, "radius": "rule"})
        'SPIBB, n_min 5'
    """
    parts = [learner, *(f"{k} {options[k]:g}" for k in ("n_min", "b", "alpha") if k in options)]
    if options.get("radius", "rule") != "rule":
        parts.append(f"r {options['radius']:g}")
    return ", ".join(parts)


def family(contestant: str) -> str:
    """The learner that a label names.

    Args:
        contestant: A label that `label` made.

    Returns:
        One of `LEARNERS`.

    Example:
        >>> family("SPIBB, n_min 5")
        'SPIBB'
    """
    return contestant.partition(",")[0]
