"""ICU-Sepsis: a ward of 716 states and 25 treatments, estimated from MIMIC-III (an optional extra).

Choudhary, Gupta, Thomas: *ICU-Sepsis: A Benchmark MDP Built from Real Medical Data*, RLC 2024. Its
dynamics come in the package `icu-sepsis`. They are read from its data file and the package is not
imported: its import would load the retired `gym` beside gymnasium.

States keep the package's numbers: 0..712 a patient in care, 713 death, 714 survival, 715 the state
after both. The package pays 1 on the way into survival. Here a reward belongs to (s, a), so the
outcome is a row of its own: survival is entered and left again, which pays 1 (leaving death pays
0) and ends the episode. Returns are 0 or 1 and values are the package's; episodes are one row
longer, and 715 is never entered. In the outcome rows the behaviour always "takes" action 0.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy import sparse

from dprl._core.optional import missing
from dprl.errors import ParameterError
from dprl.planning.finite_mdp import FiniteMDP

DEATH, SURVIVAL, AFTER = 713, 714, 715
ARRAYS = ("tx_mat", "r_mat", "d_0", "expert_policy")


def icu_sepsis() -> FiniteMDP:
    """The sepsis ward, γ = 1; the behaviour is the clinicians' policy (needs `icu-sepsis`).

    Actions are 0..24: five levels of fluids times five levels of vasopressors. An action that was
    too rare to be estimated in a state (not "admissible") acts there as the mean of the others,
    which is the default of the package.

    Returns:
        The problem, with 716 states and 25 actions.

    Raises:
        PackageError: If the package icu-sepsis is not installed.
        ParameterError: If it holds other data than version 2.0 does.

    Example:
        >>> from dprl.envs import icu_sepsis
        >>> icu_sepsis().sample(5, seed=0)  # doctest: +SKIP
        Log: 5 episodes · ... steps · 716 states · 25 actions
    """
    path = _data_file()
    with np.load(path) as data:
        moves, pays, start, expert = (data[name] for name in ARRAYS)
    S, A = expert.shape
    if S != AFTER + 1 or not (pays[:DEATH] == (np.arange(S) == SURVIVAL)).all():
        raise ParameterError(
            f"icu-sepsis holds {S:,} states, or pays otherwise than 1 for survival.",
            str(path),
            "This reads its version 2.0: pip install 'dprl[bench]'.",
        )
    P = sparse.csr_array(moves.reshape(S * A, S))
    inside = np.repeat(np.arange(S) < DEATH, A)
    P = (sparse.diags_array(inside / P.sum(axis=1)) @ P).tocsr()
    P.eliminate_zeros()
    reward = np.zeros((S, A))
    reward[SURVIVAL] = 1.0
    behavior = expert.copy()
    behavior[DEATH:] = np.arange(A) == 0
    return FiniteMDP(
        name="icu sepsis",
        states=tuple(range(S)),
        actions=tuple(range(A)),
        P=P,
        low=reward,
        high=reward,
        start=start / start.sum(),
        behavior=behavior / behavior.sum(axis=1, keepdims=True),
        gamma=1.0,
        max_steps=501,  # the package's 500, and the outcome's row
        notes={"death": DEATH, "survival": SURVIVAL},
    )


def _data_file() -> Path:
    """The file in which the installed package keeps its dynamics."""
    package = find_spec("icu_sepsis")
    for folder in (package.submodule_search_locations or ()) if package else ():
        path = Path(folder) / "envs" / "assets" / "dynamics.npz"
        if path.is_file():
            return path
    where = "icu_sepsis/envs/assets/dynamics.npz"
    raise missing("the sepsis ward", "icu-sepsis", where, "dprl[bench]")
