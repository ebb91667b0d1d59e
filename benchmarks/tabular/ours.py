"""dprl's own way, through the functions `fit` calls."""

from __future__ import annotations

from synthetic import Result

from dprl.evidence import COUNT, FIRST, LATER, SQUARE, SUM
from dprl.log import Log
from dprl.points import allowed
from dprl.smdp import elevate
from dprl.tabular import tally


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
    known, occurrences = tally(log, gamma)
    pairs = allowed(known, n_min)
    semi = elevate(log, known, occurrences, pairs)
    first, units = known.words[FIRST], known.units
    both = first + known.words[LATER]
    sums = [
        words[..., word] * unit
        for words in (both, first)
        for word, unit in ((SUM, units.sum), (SQUARE, units.square))
    ]
    return Result(both[..., COUNT], first[..., COUNT], *sums, semi.R, semi.D)
