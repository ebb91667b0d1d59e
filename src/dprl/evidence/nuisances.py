r"""Nuisances: what usual practice does and what it brings, from other groups than a row's own.

Comparing an action with usual practice at the rows of a region needs two things that are not of
interest themselves:

    V(s_t)      the value of usual practice there, a baseline for `dprl.evidence.credit`
    b(a | s_t)  the probability that usual practice takes action a there

Both are *cross-fitted by group*: a row of a group is answered for by models that were fitted on
other groups only (`dprl.evidence._cross_fit`). Only the weights of the stack, one number per model,
see all rows. Whoever must not look at some groups at all passes a log without them.

**b decides whether a claim is valid.** Where b is wrong in a way that goes with the features, so
is every comparison, for λ = 1 too; a forest alone, smooth and biased to the middle, made actions
that do nothing look better in a fifth to a third of simulated logs. So several kinds of models are
fitted and mixed by held-out log-loss (`dprl.evidence._stack`); the losses are part of the answer.
Where actions were assigned by a rule or a lottery, pass the `propensity`, or read it with the log
(`dprl.evidence._known_probabilities`): nothing is better.

V may be wrong: with λ = 1 it only costs precision. V is fitted to the returns G, so it is the value
of usual practice as logged.

**The number of the step is a feature** of all models, after the features of the log (`step=False`
leaves it out): where usual practice changes during an episode and so do the returns to go, the
step is a cause of both. Measured in worlds of 400 groups, 20 steps and actions that do nothing
(means of six logs):

| world | | mean square of G - V | log-loss of b | t of an action over all rows, λ = .9 |
|---|---|---|---|---|
| one action grows likelier with the step, | with step | 26.3 | 1.023 | 0.0 |
| every step earns 1 more | without | 53.0 | 1.036 | -6.2 |
| nothing depends on the step | with step | 25.1 | 1.031 | 0.1 |
| | without | 25.6 | 1.030 | 0.0 |

Leaving it out can make a false claim out of nothing; having it costs .001 nats.

Missing numbers, actions that a model never saw, and actions that were not available: see
`dprl.evidence._nuisance_models`. The number of training rows of one fit is limited (20,000; 8,000
for our forests), in whole groups, and the notes say so. In large logs models that are hardly heard
in the mixture of the first fold are not fitted on the others (`dprl.evidence._contest`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_flag, check_gamma, check_seed, check_threads, check_whole
from dprl._core.table import Table
from dprl.errors import ParameterError
from dprl.evidence import _nuisance_input as given_input
from dprl.evidence._contest import Answers, contest
from dprl.evidence._cross_fit import Fit, gathered, plan_fits
from dprl.evidence._known_probabilities import Known, Source, source_note
from dprl.evidence._nuisance_models import (
    Floats,
    Model,
    predicted,
    usual_behavior_models,
    usual_value_model,
)
from dprl.evidence._nuisance_notes import OVERLAP, fit_notes, quality_notes
from dprl.evidence._stack import floored, log_loss, misplaced, stack_weights
from dprl.logs.log import Log
from dprl.logs.returns import returns

Ints = NDArray[np.int64]

__all__ = ["OVERLAP", "Nuisances", "fit_behavior", "fit_nuisances"]


@dataclass(frozen=True, eq=False)
class Nuisances:
    """What usual practice does and brings at every row, from other groups than the row's own.

    Attributes:
        V: float64 (N,), value of usual practice at each row, in the unit of the rewards.
        b: float64 (N, A), probability of each action at each row; rows add up to 1.
        losses: One line per model, then the mixture ("stack", or "given"), where the log knows
            probabilities what is used ("known on 40 % of rows"), and the shares of actions
            whatever the features ("shares alone"): weight in the mixture, held-out log-loss in
            nats per row, and misplaced probability (0 perfect, 1 all wrong).
        notes: What a reader should know of these numbers, in sentences.
        source: Whether probabilities are "known" at every row, "estimated", or "mixed".

    Example:
        >>> import numpy as np
        >>> import dprl
        >>> from dprl.evidence.nuisances import fit_nuisances
        >>> random = np.random.default_rng(0)
        >>> log = dprl.from_arrays(
        ...     episode=np.repeat(np.arange(40), 5), state=random.normal(size=(200, 2)),
        ...     action=random.integers(2, size=200), reward=random.normal(size=200),
        ... )
        >>> nuisances = fit_nuisances(log, 1.0)
        >>> nuisances.losses["model"]
        ['logistic', 'extra trees', 'boosting', 'stack', 'shares alone']
    """

    V: Floats
    b: Floats
    losses: Table
    notes: tuple[str, ...]
    source: Source = "estimated"


def fit_nuisances(
    log: Log,
    gamma: float,
    *,
    folds: int = 4,
    seed: int = 0,
    propensity: Any = None,
    value_model: Any = None,
    behavior_models: Sequence[tuple[str, Any]] | None = None,
    step: bool = True,
    categories: bool = False,
    threads: int | None = None,
) -> Nuisances:
    """Values and probabilities of actions of usual practice, cross-fitted by group.

    Args:
        log: A log whose states are features, with N rows, A actions and G groups, without cut
            episodes (settle them first).
        gamma: Discount of the returns, in (0, 1].
        folds: Number of folds, at least 2 and at most G. Default 4.
        seed: Seed of folds and models; it decides everything. Default 0.
        propensity: float64 (N, A), the probabilities of the actions where they are known; used as
            they are, whatever the log says. Default None: what the log knows (`Log.propensity`) is
            used, and the rest is estimated.
        value_model: A regressor with the methods of scikit-learn, or the name of a registered one
            (`dprl.evidence._nuisance_models`), instead of extra trees.
        behavior_models: (name, classifier) of each model of what people do, instead of the three
            of this package; classifiers have the methods of scikit-learn. Or the names of some that
            are registered.
        step: Whether the number of the step (0 for the first of an episode) is a feature of the
            models, after those of the log. Default true.
        categories: Whether features may be categories; false refuses them, for callers that would
            take the codes of labels for numbers. Models of users get a column of 0 and 1 for each
            label, and one for "missing", after the numbers. Default False.
        threads: How many fits run at a time; the answer does not depend on it. Default None: as
            many as there are cores.

    Returns:
        Values, probabilities, the losses of the models, and notes.

    Raises:
        LogError: If states are labels, episodes were cut, only one action was ever taken, or there
            are too few groups.
        ParameterError: If a parameter is out of range, `propensity` does not fit the log, or a
            model cannot be fitted.

    Example:
        >>> import numpy as np
        >>> import dprl
        >>> from dprl.evidence.nuisances import fit_nuisances
        >>> random = np.random.default_rng(0)
        >>> log = dprl.from_arrays(
        ...     episode=np.repeat(np.arange(40), 5), state=random.normal(size=(200, 2)),
        ...     action=random.integers(2, size=200), reward=random.normal(size=200),
        ... )
        >>> lottery = np.full((200, 2), 0.5)
        >>> fit_nuisances(log, 1.0, propensity=lottery).b[0].tolist()
        [0.5, 0.5]
    """
    check_flag("categories", categories)
    given_input.check_features(log, categories)
    gamma, seed, threads = check_gamma(gamma), check_seed(seed), check_threads(threads)
    folds = check_whole("folds", folds, 2)
    check_flag("step", step)
    groups = given_input.check_folds(log, folds)
    if propensity is not None and behavior_models is not None:
        raise ParameterError(
            "propensity and behavior_models were both given.",
            do="Probabilities are either known (propensity) or estimated (behavior_models).",
        )
    menu = given_input.menu_of(log)
    logged = Known.of(log, menu) if propensity is None else None
    marks = None if logged is None or logged.at.all() else logged.at
    columns = given_input.columns_of(log, step, marks is not None)
    regressor = given_input.check_regressor(value_model, usual_value_model(columns), columns)
    models: list[Model] = []
    known_b = None
    if propensity is None and (
        logged is None or logged.source == "mixed" or behavior_models is not None
    ):
        models = given_input.check_models(behavior_models, usual_behavior_models(columns), columns)
    elif propensity is not None:
        known_b = given_input.check_propensity(log, propensity)

    group = np.repeat(log.group, log.lengths).astype(np.int64)
    x = given_input.inputs(log, step, marks)
    G = returns(log, gamma)
    fits = plan_fits(group, groups, folds, seed)
    answers, of_values = contest(
        models, x, log.action, log.n_actions, fits, menu,
        beside=[partial(predicted, regressor, x, G, fit) for fit in fits], threads=threads,
    )  # fmt: skip
    V = gathered(fits, of_values)
    shares = floored(_shares(log, fits), menu)
    b, losses = _weighed(log, answers, known_b, shares, logged)
    for array in (V, b):
        array.setflags(write=False)
    source: Source = "known" if known_b is not None else "estimated"
    source = source if logged is None else logged.source
    notes = [
        source_note(source, logged, log),
        *fit_notes(log, fits, [regressor, *models]),
        *quality_notes(log, losses, b, given=source == "known"),
    ]
    return Nuisances(V, b, losses, tuple(notes), source)


def fit_behavior(
    log: Log, folds: int, seed: int, threads: int | None = None
) -> tuple[Floats, Table]:
    """Probabilities of actions of usual practice, cross-fitted by group, as in `fit_nuisances`.

    Episodes may be cut, and where only one action was ever taken it is the answer. An action that
    was taken counts as available, whatever the menu says.

    Args:
        log: A log whose states are features, with at least `folds` groups.
        folds: Number of folds, at least 2.
        seed: Seed of folds and models; it decides everything.
        threads: How many fits run at a time; the answer does not depend on it. Default None: as
            many as there are cores.

    Returns:
        float64 (N, A), and the losses of the models as in `Nuisances`.
    """
    columns, x = given_input.columns_of(log, step=True), given_input.inputs(log, step=True)
    group = np.repeat(log.group, log.lengths).astype(np.int64)
    fits = plan_fits(group, len(log.groups), folds, seed)
    menu = given_input.menu_of(log)
    if menu is not None:
        menu = menu.copy()
        menu[np.arange(log.n_steps), log.action] = True
    models = usual_behavior_models(columns)
    answers, _ = contest(models, x, log.action, log.n_actions, fits, menu, threads=threads)
    return _weighed(log, answers, None, floored(_shares(log, fits), menu), None)


def _shares(log: Log, fits: list[Fit]) -> Floats:
    """The shares of actions in the training rows of every row's fit, (N, A)."""
    counts = [np.bincount(log.action[fit.train()], minlength=log.n_actions) for fit in fits]
    return gathered(
        fits, [np.tile(n / n.sum(), (len(f.held), 1)) for n, f in zip(counts, fits, strict=True)]
    )


def _weighed(
    log: Log, answers: list[Answers], known_b: Floats | None, shares: Floats, logged: Known | None
) -> tuple[Floats, Table]:
    """The probabilities (N, A), mixed from the models or as given, and how well each does."""
    b = shares if known_b is None else known_b
    weights = dict.fromkeys((one.name for one in answers), 0.0)
    mixed = [one for one in answers if one.last]
    if mixed:
        taken = np.column_stack([one.b[np.arange(len(one.b)), log.action] for one in mixed])
        asked = np.ones(len(taken), bool) if logged is None else ~logged.settled
        best = stack_weights(taken[asked] if asked.any() else taken)
        weights |= {one.name: float(w) for one, w in zip(mixed, best, strict=True)}
        b = np.zeros_like(shares)
        for one in mixed:
            b += weights[one.name] * one.b
    every = np.arange(log.n_steps)
    lines: list[tuple[str, Floats, float, Ints]] = [
        (one.name, one.b, weights[one.name], one.rows) for one in answers
    ]
    if answers or known_b is not None:
        lines.append(("stack" if known_b is None else "given", b, 1.0, every))
    if logged is not None:
        b = logged.used_in(b, log)
        lines.append((logged.words, b, 1.0, every))
    lines.append(("shares alone", shares, 0.0, every))
    table = Table(
        {
            "model": [name for name, _, _, _ in lines],
            "weight": [float(w) for _, _, w, _ in lines],
            "log-loss": [log_loss(p, log.action[rows]) for _, p, _, rows in lines],
            "misplaced": [misplaced(p, log.action[rows]) for _, p, _, rows in lines],
        },
        "Probabilities of actions, judged on groups that the models have not seen",
        "log-loss in nats per row; misplaced: 0 perfect, 1 all wrong."
        + " Models of weight 0 may have answered for the first fold only."
        * (len(mixed) < len(answers)),
    )
    return b, table
