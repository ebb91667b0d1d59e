"""The contests: who learns the best policy, and who is misled, where the true values are known.

* *forest*: one choice, then long chains, in which each state is visited rarely. Claim of the paper:
  PQI stays at its lowest value for any number n of episodes, since it drops pairs with a small
  n(s,a)/|D| all along the chains; DPRL reaches the value .679 once eps·n is well above n_min, where
  eps is the probability of the rare first choice.
* *risky arms*: K rare arms can look good by luck, and one rare arm is good. Claim of the paper: in
  the worst 5 % of the logs (CVaR), CQL and methods with a small n_min choose policies worse than
  usual practice; DPRL does not.
* *ICU-Sepsis*: 716 states, 25 actions, and an expert who is hard to beat. Needs the package
  `icu-sepsis` (extra `bench`), which knows the exact value of every policy. Without discount the
  value is the probability to survive. CQL plans with γ = .99, since without discount its values
  need not exist.
* *random MDPs*: twenty random problems and the care pathway, which nobody chose because they suit a
  method. The problems are `dprl.envs.random_mdp(1_000 * seed)` and the next nineteen, so that
  another seed has other problems; the rule by which they are drawn is in that module. Each is
  scaled so that usual practice is worth 0 and the best policy 1, so that they can be averaged: a
  value below 0 is worse than usual practice.

In every contest SPIBB and Soft-SPIBB stand twice: with the behaviour estimated from the log, as in
practice, and with the true one (*behavior true*), which their guarantees need, and which acts where
DPRL defers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from dprl.envs import care_pathway, forest, icu_sepsis, random_mdp, risky_arms
from dprl.logs.reading.tables import Row
from dprl.planning.finite_mdp import FiniteMDP
from dprl_studies.harness import Setting
from dprl_studies.paper.contest import SURE, blocks, contest, rows_of

LAST: tuple[Setting, ...] = ({"learner": "BC"}, {"learner": "RL"})
GRID = (1, 2, 5, 10, 20, 30)
"""Thresholds on counts, of DPRL and of its rivals: one to thirty."""

EPSILON = (0.1, 0.5, 2.0)
"""Budgets of Soft-SPIBB."""


def dprl(n_min: Sequence[int], contrast: Sequence[bool] = (True, False)) -> tuple[Setting, ...]:
    """DPRL with these thresholds, with and without contrast."""
    return tuple({"learner": "DPRL", "n_min": n, "contrast": c} for c in contrast for n in n_min)


TO_THE_END: tuple[Setting, ...] = tuple(
    {"learner": "DPRL", "n_min": n, "contrast": c, "segments": "end"}
    for c in (True, False) for n in (5, 20)
)  # fmt: skip
"""DPRL with segments that end in END as in the log, beside the default, which pools endings."""


def rivals(
    spibb: Sequence[int], pqi: Sequence[float], cql: Sequence[float], counts: Sequence[int] = ()
) -> tuple[Setting, ...]:
    """The other learners that are compared: SPIBB's n_min, PQI's b and CQL's alpha.

    counts: PQI's threshold as a number of visits, b = n_min / |D|.
    """
    known: tuple[Setting, ...] = ({}, {"behavior": "true"})
    return (
        *({"learner": "SPIBB", "n_min": n, **b} for b in known for n in spibb),
        *({"learner": "Soft-SPIBB", "epsilon": e, **b} for b in known for e in EPSILON),
        *({"learner": "PQI", "b": b} for b in pqi),
        *({"learner": "PQI", "n_min": n} for n in counts),
        *({"learner": "CQL", "alpha": a} for a in cql),
    )


IN_FOREST: tuple[Setting, ...] = (
    *SURE,
    *dprl((*GRID, 50)),
    *({"learner": "gate", "n_min": 20, "mode": m} for m in ("swap-split", "in-sample")),
    *rivals((5, 20), (0.02, 0.002), (0.01, 0.05, 0.1), GRID),
    *LAST,
)
SIZES = ((50, 100, 200, 500, 1_000, 2_000), (50, 200, 1_000))

FOREST = contest(
    "forest", "Who finds the better first choice, and who is misled on the way?",
    "Forest (K = 10, depth 3, eps = .1)", {"forest": forest}, IN_FOREST,
    sizes=SIZES, datasets=(500, 10), title="Forest",
)  # fmt: skip

RISKY_ARMS = contest(
    "risky-arms", "Who is fooled by arms that only look good by luck?",
    "Risky arms (K = 8, eps = .1)", {"risky_arms": risky_arms}, IN_FOREST,
    sizes=SIZES, datasets=(500, 10), title="Risky arms",
)  # fmt: skip

IN_SEPSIS: tuple[Setting, ...] = (
    *SURE, *dprl((20, 100)), *rivals((20, 100), (0.001, 0.0001), ()),
    *({"learner": "CQL", "alpha": a, "gamma": 0.99} for a in (0.01, 0.1)), *LAST,
)  # fmt: skip

ICU_SEPSIS = contest(
    "icu-sepsis", "Can anybody beat an expert who is nearly as good as the data allow?",
    "ICU-Sepsis: chance to survive", {"icu sepsis": icu_sepsis}, IN_SEPSIS,
    sizes=((1_000, 5_000, 20_000), (1_000,)), datasets=(20, 2), block=1, title="ICU-Sepsis",
)  # fmt: skip

CARE, RANDOM = "care pathway", "random MDPs"
ANYWHERE = (
    *SURE, *dprl(GRID), *TO_THE_END, *rivals((5, 20), (0.002,), (0.01, 0.1), GRID), *LAST,
)  # fmt: skip


def _random_tasks(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per problem, log size and block of data sets; `quick` takes fewer of each."""
    problems, sizes, datasets = (3, (20, 100), 4) if quick else (20, (20, 50, 100, 200, 500), 25)
    tasks = [
        task
        for number in range(1_000 * seed, 1_000 * seed + problems)
        for n in sizes
        for task in blocks({"number": number, "n": n}, datasets, seed, 5)
    ]
    care = (100,) if quick else (50, 100, 200, 500, 1_000)
    tasks += [
        task for n in care for task in blocks({"number": -1, "n": n}, 10 if quick else 500, seed)
    ]
    return sorted(tasks, key=lambda task: int(task["first"]))


def _problem(number: int) -> FiniteMDP:
    """Random problem `number`, or the care pathway for -1.

    The care pathway has γ = .999: without discount some learners' plans never end in it.
    """
    return replace(care_pathway(), gamma=0.999) if number < 0 else random_mdp(number)


def _random_run(setting: Setting) -> list[Row]:
    """The rows of one task; random problems are scaled to 0 (usual practice) .. 1 (the best)."""
    mdp, number = _problem(setting["number"]), setting["number"]
    rows = rows_of(replace(mdp, name=CARE if number < 0 else RANDOM), setting, ANYWHERE)
    usual = mdp.value()
    best = mdp.value(np.eye(len(mdp.actions))[mdp.optimal[1]])
    for row in rows:
        row["number"] = number
        if number >= 0:
            row["value"] = (row["value"] - usual) / (best - usual)
            row["behavior"], row["best"] = 0.0, 1.0
    return rows


RANDOM_MDPS = contest(
    "random-mdps", "Who improves on an expert in problems that nobody chose?",
    "Random MDPs (usual practice 0, best 1) and the care pathway",
    {RANDOM: partial(random_mdp, 0), CARE: care_pathway}, ANYWHERE,
    settings=_random_tasks, run=_random_run,
)  # fmt: skip
