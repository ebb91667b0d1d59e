"""The Atari study's grid: who takes part, with which settings, and what each is called."""

from __future__ import annotations

from dprl.studies.harness import Setting

__all__ = ["COUNTS", "DPRL", "LEARNERS", "PAPER_RADII", "contestants", "family", "label"]

N_MIN, PAPER_RADII = (5, 10, 30), (1e-3, 1e-4)
DPRL = tuple(f"DPRL {rule}{plan}" for rule in ("paper", "contrast", "gate")
             for plan in ("", " planned"))  # fmt: skip
COUNTS = ("count only", "count only by game")
LEARNERS = (
    "behaviour", "expert", "medium", *DPRL, *COUNTS, "SPIBB", "PQI", "CQL", "BC",
)  # fmt: skip


def contestants(learner: str, quick: bool, by_rule: bool = True) -> list[Setting]:
    """The grid of a learner.

    Args:
        learner: One of `LEARNERS`.
        quick: One setting only.
        by_rule: With radius "rule" (`dprl.studies.atari.choose_radius`) or none; else with the
            paper's.
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


def label(learner: str, one: Setting) -> str:
    """What a contestant is called."""
    words = [learner, *(f"{k} {one[k]:g}" for k in ("n_min", "b", "alpha") if k in one)]
    if one.get("radius", "rule") != "rule":
        words.append(f"r {one['radius']:g}")
    return ", ".join(words)


def family(contestant: str) -> str:
    """The learner of a label."""
    return contestant.partition(",")[0]
