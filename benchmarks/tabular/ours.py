"""dprl's own way, through the functions `fit` calls."""

from __future__ import annotations

from synthetic import Result

from dprl.evidence._evidence import COUNT, FIRST, LATER, SQUARE, SUM
from dprl.evidence.decision_points import allowed
from dprl.evidence.tabular import count
from dprl.logs.log import Log
from dprl.planning.semi_mdp import elevate


def prepare(data: dict) -> Log:
    return Log(
        starts=data["starts"],
        state=data["state"],
        action=data["action"],
        reward=data["reward"],
        states=tuple(range(data["n_states"])),
        actions=tuple(range(data["n_actions"])),
    )


def run(log: Log, gamma: float, n_min: int) -> Result:
    known, occurrences = count(log, gamma)
    pairs = allowed(known, n_min)
    semi = elevate(log, known, occurrences, pairs)
    first, units = known.words[FIRST], known.units
    both = first + known.words[LATER]

    def sums(words):  # the others keep plain sums of squares; ours are about a centre
        n, total = words[..., COUNT], words[..., SUM] * units.sum
        about = words[..., SQUARE] * units.square
        return total, about + units.centre * (2 * total - n * units.centre)

    return Result(both[..., COUNT], first[..., COUNT], *sums(both), *sums(first), semi.R, semi.D)
