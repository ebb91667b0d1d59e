"""Nuisances: what usual practice does and what it brings, from other groups than a row's own.

Comparing an action with usual practice at the rows of a region needs two things that are not of
interest themselves:

    V(s_t)      the value of usual practice there, a baseline for `dprl.evidence.excursions`
    b(a | s_t)  the probability that usual practice takes action a there

Both are *cross-fitted by group*: a row of a group is answered for by models that were fitted on
other groups only (`dprl.evidence.models`). Only the weights of the mixture of b, one number per
model, see all rows. Whoever must not look at some groups at all passes a log without them.

**b decides whether a claim is valid.** Where b is wrong in a way that goes with the features, so
is every comparison, for λ = 1 too; a forest alone, smooth and biased to the middle, made actions
that do nothing look better in a fifth to a third of simulated logs. So models of several shapes are
fitted and mixed by held-out log-loss (`dprl.evidence.models`); the losses are part of the answer.
Where actions were assigned by a rule or a lottery, pass the `propensity`, or read it with the log
(`dprl.evidence.propensity`): nothing is better.

V may be wrong: with λ = 1 and the right b it only costs precision. V is fitted to the returns G, so
it is the value of usual practice as logged. Where b is estimated both matter: what is wrong with a
comparison is the product of what is wrong with each, so V has models of the same shapes as b.

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
`dprl.evidence.models`. The number of training rows of one fit is limited (20,000; 8,000
where there are many products), in whole groups, and the notes say so. In large logs models that are
hardly heard in the mixture of the first fold are not fitted on the others (`contest`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import check_flag, check_gamma, check_seed, check_threads, check_whole
from dprl._core.table import Table
from dprl._core.words import either, say, sentences, worded
from dprl.errors import LogError, ParameterError
from dprl.evidence.excursions import check_settled
from dprl.evidence.models import (
    FLOOR,
    NUISANCES,
    Columns,
    Fit,
    Inputs,
    Model,
    blended,
    closer_values,
    floored,
    gathered,
    in_threads,
    log_loss,
    misplaced,
    plan_fits,
    predicted,
    probabilities,
    sharpened,
    stack_weights,
    usual_behavior_models,
    usual_value_models,
)
from dprl.evidence.propensity import Known, source_note
from dprl.evidence.propensity import Origin as Source
from dprl.evidence.score_test import LEVEL, ScoreTest, Shapes, score_test, values_of
from dprl.logs.encoding.features import refuse_categories
from dprl.logs.log import Log, check_log
from dprl.logs.returns import returns

# --- Several models of what people do on the same folds; in large logs only the good ones on all
#
# Where the first fold holds at least `ENOUGH` rows, all models answer for it, and those to which
# the mixture of that fold gives a weight below `SMALL` go no further: they would hardly be heard,
# and most of the time goes into fitting them. In smaller logs every model answers for every fold.

ENOUGH = 2_500
"""Held-out rows of a fold from which on a weight is told well enough to drop a model by it."""
SMALL = 0.1
"""The weight in the mixture below which a model goes no further."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What a model says of actions at rows of groups that it has not seen.

    Attributes:
        name: The name of the model.
        rows: int64 (n,), the rows it answers for: all N of the log, or those of the first fold.
        b: float64 (n, A), its probabilities.
        last: Whether it answers for all rows, so that it may be mixed.
    """

    name: str
    rows: Ints
    b: Floats
    last: bool


def contest(
    models: Sequence[Model], x: Floats, action: NDArray[Any], A: int, fits: Sequence[Fit],
    menu: Bools | None, *, threads: int | None = None,
) -> list[Answers]:  # fmt: skip
    """The answers of all models, cross-fitted.

    Args:
        models: The models of what people do.
        x: float64 (N, d), the features of all rows.
        action: (N,), codes of the actions.
        A: The number of actions.
        fits: The rounds of fitting.
        menu: bool (N, A), the actions that were available; None for all.
        threads: How many fits run at a time; the answer does not depend on it. Default None: as
            many as there are cores.

    Returns:
        One entry per model, in order.
    """
    race = len(models) > 1 and len(fits[0].held) >= ENOUGH
    now, later = (fits[:1], fits[1:]) if race else (fits, [])

    def tasks(some: Sequence[Model], rounds: Sequence[Fit]) -> list[Callable[[], Floats]]:
        return [
            partial(probabilities, model, x, action, A, fit) for model in some for fit in rounds
        ]

    spent: dict[int, float] = {}

    def timed(place: int, task: Callable[[], Floats]) -> Floats:
        begun = time.perf_counter()
        result = task()
        spent[place] = time.perf_counter() - begun
        return result

    first = in_threads(
        [partial(timed, i // len(now), task) for i, task in enumerate(tasks(models, now))], threads
    )
    answers = {m: first[m * len(now) : (m + 1) * len(now)] for m in range(len(models))}
    going_on = list(range(len(models)))
    if race:
        held = fits[0].held
        offered = None if menu is None else menu[held]
        taken = [floored(a, offered)[np.arange(len(held)), action[held]] for a in first]
        weights = stack_weights(np.column_stack(taken))
        going_on = [m for m in going_on if weights[m] >= SMALL or weights[m] == weights.max()]
        longest_first = sorted(going_on, key=lambda m: -spent[m])  # no core waits for the last one
        more = in_threads(tasks([models[m] for m in longest_first], later), threads)
        for place, m in enumerate(longest_first):
            answers[m] += more[place * len(later) : (place + 1) * len(later)]
    every = np.arange(len(x))
    contested = []
    for m, model in enumerate(models):
        last = m in going_on
        b = gathered(fits, answers[m]) if last else answers[m][0]
        rows = every if last else fits[0].held
        offered = None if menu is None else menu[rows]
        contested.append(Answers(model.name, rows, floored(b, offered), last))
    return contested


# --- What a reader should know of fitted nuisances, in sentences

OVERLAP = 0.02
"""The least probability at which an action can be compared with the others."""
BARELY = 0.01
"""Nats per row by which a model has to be better than the shares of actions alone."""
MISPLACED = 0.05
"""Misplaced probability from which on the probabilities are called badly calibrated."""
NAMED = 5


def _names(log: Log, codes: Ints) -> str:
    names = ", ".join(repr(log.actions[a]) for a in codes[:NAMED])
    return names + (", …" if len(codes) > NAMED else "")


def fit_notes(
    log: Log, fits: list[Fit], regressors: list[Model], models: Sequence[Model] = ()
) -> list[str]:
    """About the fits: rows left out to save time, actions that models of behaviour never saw.

    Args:
        log: The log.
        fits: The rounds of fitting.
        regressors: The models of values.
        models: Those of what people do. Default: none, they are given.
    """
    notes = []
    rows = max(len(fit.train()) for fit in fits)
    every = [*regressors, *models]
    for most in sorted({model.most for model in every if model.most < rows}):
        names = ", ".join(model.name for model in every if model.most == most)
        notes.append(
            say(
                "Fitted on a random part of the training groups, at most {a:,} rows of up to "
                "{b:,} (whole groups): {names}.",
                a=most,
                b=rows,
                names=names,
            )
        )
    unseen = np.zeros((len(fits), log.n_actions), bool)
    taken = _taken(log, np.arange(log.n_steps))
    for most in {model.most for model in models}:
        unseen |= [taken & ~_taken(log, fit.train(most)) for fit in fits]
    if unseen.any():
        notes.append(
            f"Some actions were never taken in the training rows of {unseen.any(axis=1).sum()} of "
            f"{len(fits)} fits; the models give them a probability of about {FLOOR} there: "
            f"{_names(log, np.flatnonzero(unseen.any(axis=0)))}."
        )
    return notes


def _taken(log: Log, rows: Ints) -> Bools:
    """Which actions were taken in these rows, bool (A,)."""
    return np.bincount(log.action[rows], minlength=log.n_actions) > 0


def quality_notes(log: Log, losses: Table, b: Floats, *, given: bool = False) -> list[str]:
    """About the probabilities: do features tell anything, are they calibrated, is there a choice.

    Args:
        log: The log.
        losses: The table of `Nuisances`; the last line is the shares alone, the one before it b.
        b: float64 (N, A), the probabilities.
        given: Whether they are known: then features need not tell them. Default False.
    """
    notes = []
    loss, alone = losses["log-loss"][-2:]
    if alone - loss < BARELY and not given:
        notes.append(
            sentences(
                say(
                    "The features hardly tell which action is taken: the held-out log-loss is "
                    "{a:.3f} with them and {b:.3f} without.",
                    a=loss,
                    b=alone,
                ),
                say(
                    "Either actions were nearly random, or what people went by is not in the "
                    "features."
                ),
            )
        )
    wrong = losses["misplaced"][-2]
    if wrong > MISPLACED:
        notes.append(
            f"The probabilities of actions are badly calibrated: {wrong:.1%} of the probability is "
            "in the wrong place. Comparisons of actions lean on them."
            + (" Known ones must be of the action that was taken, not of one action." * given)
        )
    possible = b >= OVERLAP
    settled = float((possible.sum(axis=1) < 2).mean())
    if settled >= 0.1:
        notes.append(
            f"Poor overlap: on {settled:.0%} of the rows only one action has a probability of at "
            f"least {OVERLAP}. Nothing can be compared there."
        )
    taken = _taken(log, np.arange(log.n_steps))
    rare = np.flatnonzero(taken & (possible.mean(axis=0) < 0.1))
    if len(rare):
        notes.append(
            f"Poor overlap: {len(rare)} of {int(taken.sum())} actions have a probability of at "
            f"least {OVERLAP} on fewer than 10 % of the rows, and can be suggested there at most: "
            f"{_names(log, rare)}."
        )
    return notes


def doubt_notes(log: Log, doubt: ScoreTest | None) -> list[str]:
    """That b is refuted, and by what; nothing where it is not.

    Args:
        log: The log.
        doubt: The test of b.
    """
    if doubt is None or not doubt.refuted:
        return []
    return [
        say(
            "Who was treated depends on more than our model of it: who got {action} still goes "
            "with the features (|z| = {z:.1f}; chance gives up to {q:.1f}).",
            action=str(log.actions[doubt.action]),
            z=doubt.statistic,
            q=doubt.quantile,
        )
    ]


# --- What `fit_nuisances` is given, checked: nothing is fitted before all of it is in order


def _place(log: Log, row: int) -> str:
    """Where a row is, for messages."""
    episode = int(np.searchsorted(log.starts, row, "right")) - 1
    return f"episode {log.episodes[episode]!r}, step {row - int(log.starts[episode])}"


def check_features(log: Log, categories: bool = False) -> None:
    """Refuse a log without features, with cut episodes, or in which only one action was taken.

    Categories are refused too unless `categories` says that they are welcome.
    """
    check_log(log)
    if log.features is None:
        raise LogError(
            f"this log's states are {log.n_states:,} labels, not numeric features.",
            f"states {', '.join(map(repr, log.states[:4]))}",
            worded(
                "Models of features need numbers: pass {choice} when reading.",
                choice=either("state=['age', 'pressure', …]", "--state age --state pressure"),
            ),
        )
    if not categories:
        refuse_categories(log)
    check_settled(log)
    taken = np.unique(log.action)
    if len(taken) < 2:
        raise LogError(
            f"only one action was ever taken, on all {log.n_steps:,} rows.",
            f"action {log.actions[taken[0]]!r}",
            "There is nothing to compare it with; read a log in which people decided differently.",
        )
    menu = menu_of(log)
    if menu is not None and not menu[np.arange(log.n_steps), log.action].all():
        row = int(np.argmin(menu[np.arange(log.n_steps), log.action]))
        raise LogError(
            "an action was taken that was not available.",
            f"{_place(log, row)}, action {log.actions[log.action[row]]!r}",
            "Mend the available column, or leave it out.",
        )


def check_folds(log: Log, folds: int, otherwise: str = "") -> int:
    """The number of groups of a log: at least one for each fold; `otherwise` is more advice."""
    G = len(log.groups)
    if folds > G:
        raise LogError(
            f"{folds} folds need at least {folds} groups; got {G:,}.",
            do=f"Read more groups (or episodes), or lower folds (at least 2).{otherwise}",
        )
    return G


def check_models(
    models: Sequence[tuple[str, Any]] | None, usual: list[Model], columns: Inputs
) -> list[Model]:
    """The models of what people do: those given, or else the `usual` ones."""
    if models is None:
        return usual
    wanted = "behavior_models must be pairs of a name and a classifier with fit and predict_proba"
    do = "For example [('logistic', LogisticRegression())]; each name once."
    usual_ones = {model.name: model for model in usual}
    try:
        if len(models) and all(isinstance(n, str) and n in usual_ones for n in models):
            return [usual_ones[str(name)] for name in dict.fromkeys(models)]
        pairs = [(name, model) for name, model in models]
    except (TypeError, ValueError):
        raise ParameterError(f"{wanted}; got {models!r}.", do=do) from None
    if not pairs:
        raise ParameterError(f"{wanted}; got none.", do=do)
    for i, (name, model) in enumerate(pairs):
        if not isinstance(name, str) or not _can(model, "fit", "predict_proba"):
            raise ParameterError(f"{wanted}; got {name!r}, {model!r}.", f"entry {i}", do)
        if name in [other for other, _ in pairs[:i]]:
            raise ParameterError(f"two of behavior_models have the name {name!r}.", do=do)
    return [Model(name, columns.of_user(model)) for name, model in pairs]


def check_regressor(model: Any, columns: Inputs) -> list[Model]:
    """The models of what follows: the one given, or else the usual ones."""
    if model is None:
        return usual_value_models(columns)
    if isinstance(model, str) and model in NUISANCES and NUISANCES[model].of == "values":
        return [NUISANCES[model].model(columns)]
    if not _can(model, "fit", "predict"):
        raise ParameterError(
            f"value_model must be a regressor with fit and predict; got {model!r}.",
            do="For example sklearn.ensemble.ExtraTreesRegressor(min_samples_leaf=10).",
        )
    return [Model("value_model", columns.of_user(model))]


def _can(model: Any, *methods: str) -> bool:
    """Whether it is an object (not a class) that has these methods and can be copied."""
    wanted = (*methods, "get_params", "set_params")
    return not isinstance(model, type) and all(callable(getattr(model, m, None)) for m in wanted)


def check_propensity(log: Log, propensity: Any) -> Floats:
    """Known probabilities, a copy (N, A): rows add up to 1, above 0 where the action was taken."""
    shape = (log.n_steps, log.n_actions)
    try:
        b = np.array(propensity, np.float64)
    except (TypeError, ValueError):
        b = np.empty(0)
    if b.shape != shape:
        raise ParameterError(
            f"propensity must be probabilities of shape {shape}; got {np.shape(propensity)}.",
            do="One row per row of the log, one column per action, in the order of log.actions.",
        )
    bad = ~((b >= 0).all(axis=1) & (np.abs(b.sum(axis=1) - 1) <= 1e-9))
    if bad.any():
        row = int(np.argmax(bad))
        raise ParameterError(
            f"propensity is no distribution over actions on {int(bad.sum()):,} of "
            f"{log.n_steps:,} rows: probabilities are at least 0 and add up to 1.",
            f"{_place(log, row)}: {b[row].tolist()}, sum {b[row].sum():.9g}",
            "Mend these rows; where only digits were lost, divide each row by its sum.",
        )
    never = b[np.arange(len(b)), log.action] <= 0
    if never.any():
        row = int(np.argmax(never))
        raise ParameterError(
            f"{int(never.sum()):,} of {log.n_steps:,} rows took an action whose propensity is 0.",
            f"{_place(log, row)}, action {log.actions[log.action[row]]!r}",
            "Known probabilities must allow what was done; or let them be estimated.",
        )
    return b


def inputs(log: Log, step: bool, marks: Bools | None = None, more: Floats | None = None) -> Floats:
    """The features of the models (N, d), the number of the step if wanted, `marks`, then `more`."""
    parts = [np.asarray(log.features)]
    if step:
        parts.append(np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths))
    if marks is not None:
        parts.append(marks)
    if more is not None:
        parts.append(more)
    return parts[0] if len(parts) == 1 else np.column_stack(parts).astype(np.float64)


def columns_of(log: Log, step: bool, marked: bool = False, more: Floats | None = None) -> Inputs:
    """What the columns of `inputs` are; `marked`: whether marks are the last before `more`."""
    labels = tuple(0 if own is None else len(own) for own in log.levels)
    numbers = tuple(0 for _ in log.feature_names)
    missing = bool(log.missing.any())
    plain = 0 if more is None else more.shape[1]
    return Inputs(missing, (labels or numbers) + (0,) * (step + marked), plain)


def menu_of(log: Log) -> Bools | None:
    """The actions that were available at each row, bool (N, A); None where the log has no menus."""
    if log.available is None or log.menus is None:
        return None
    return np.asarray(log.menus[log.available])


# --- Nuisances: what usual practice does and what it brings, from other groups than a row's own


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
        doubt: What the errors of b say of it, after mending; None where all are known.
        more: float64 (N, k), functions of the features that were put into the models.
        practice: The models of what people do, for tests of b at some rows.
        returns: float64 (N,), the returns that V foretells.

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
        ['logistic', 'products', 'splines', 'functions', 'boosting', 'stack', 'shares alone']
    """

    V: Floats
    b: Floats
    losses: Table
    notes: tuple[str, ...]
    source: Source = "estimated"
    doubt: ScoreTest | None = None
    more: Floats | None = None
    practice: Practice | None = None
    returns: Floats | None = None

    @functools.cached_property
    def aims(self) -> tuple[Floats, Floats]:
        """What outcomes go with, from other groups: V, and a model that follows them closer."""
        assert self.practice is not None
        assert self.returns is not None
        return self.V, self.practice.closer(self.returns)

    def doubt_at(self, rows: Ints, action: int, level: float) -> ScoreTest | None:
        """What the errors of b at some rows say of it, against what outcomes go with, too.

        None where all is known.

        Args:
            rows: int64, the rows.
            action: The code of the action whose probability is tested.
            level: The chance that a sound model is refuted.
        """
        if self.doubt is None or self.practice is None:
            return None
        return self.practice.doubt(self.b, rows, action, level, np.column_stack(self.aims))


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
    more: Floats | None = None,
    halved: bool = False,
    threads: int | None = None,
) -> Nuisances:
    """Values and probabilities of actions of usual practice, cross-fitted by group.

    Args:
        log: A log whose states are features, with N rows, A actions and G groups, without cut
            episodes (treat them first).
        gamma: Discount of the returns, in (0, 1].
        folds: Number of folds, at least 2 and at most G. Default 4.
        seed: Seed of folds and models; it decides everything. Default 0.
        propensity: float64 (N, A), the probabilities of the actions where they are known; used as
            they are, whatever the log says. Default None: what the log knows (`Log.propensity`) is
            used, and the rest is estimated.
        value_model: A regressor with the methods of scikit-learn, or the name of a registered one
            (`dprl.evidence.models`), instead of those of this package.
        behavior_models: (name, classifier) of each model of what people do, instead of those
            of this package; classifiers have the methods of scikit-learn. Or the names of some that
            are registered.
        step: Whether the number of the step (0 for the first of an episode) is a feature of the
            models, after those of the log. Default true.
        categories: Whether features may be categories; false refuses them, for callers that would
            take the codes of labels for numbers. Models of users get a column of 0 and 1 for each
            label, and one for "missing", after the numbers. Default False.
        more: float64 (N, k), further columns of our models: whether a row is in a region without
            takers of an action, say, where a smooth model would be wrong on both sides of the
            border. Default None.
        halved: Whether models see half of the groups that they could, to tell what they still
            learn. Default False.
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
    check_features(log, categories)
    gamma, seed, threads = check_gamma(gamma), check_seed(seed), check_threads(threads)
    folds = check_whole("folds", folds, 2)
    check_flag("step", step)
    check_folds(log, folds)
    if propensity is not None and behavior_models is not None:
        raise ParameterError(
            "propensity and behavior_models were both given.",
            do="Probabilities are either known (propensity) or estimated (behavior_models).",
        )
    menu = menu_of(log)
    logged = Known.of(log, menu) if propensity is None else None
    marks = None if logged is None or logged.at.all() else logged.at
    estimated = propensity is None and (
        logged is None or logged.source == "mixed" or behavior_models is not None
    )
    regressors = check_regressor(value_model, columns_of(log, step, marks is not None))
    practice = Practice(log, folds, seed, step, marks, menu, threads)
    if halved:
        practice.fits = [fit.halved() for fit in practice.fits]
    if more is not None and practice.ours(behavior_models) and value_model is None:
        practice.more = more
    models = practice.models(behavior_models) if estimated else []
    known_b = None if propensity is None else check_propensity(log, propensity)
    models, b, losses, doubt = practice.mended(models, behavior_models, known_b, logged)
    fits, G = practice.fits, returns(log, gamma)
    regressors = check_regressor(value_model, practice.columns)
    V = blended(regressors, practice.x, G, fits, threads)
    for array in (V, b):
        array.setflags(write=False)
    source: Source = "known" if known_b is not None else "estimated"
    source = source if logged is None else logged.source
    notes = [
        source_note(source, logged, log),
        *fit_notes(log, fits, regressors, models),
        *quality_notes(log, losses, b, given=source == "known"),
        *doubt_notes(log, doubt),
    ]
    return Nuisances(V, b, losses, tuple(notes), source, doubt, practice.more, practice, G)


def usual_values(
    log: Log,
    gamma: float,
    *,
    folds: int = 4,
    seed: int = 0,
    value_model: Any = None,
    more: Floats | None = None,
    threads: int | None = None,
) -> tuple[Floats, tuple[str, ...]]:
    """The value of usual practice at every row, cross-fitted by group, as in `fit_nuisances`.

    Args:
        log: A log whose states are features, with N rows, without cut episodes (treat them first).
        gamma: Discount of the returns, in (0, 1].
        folds: Number of folds of groups, at least 2. Default 4.
        seed: Seed of folds and models; it decides everything. Default 0.
        value_model: A regressor with the methods of scikit-learn, instead of those of this package.
        more: float64 (N, k), further columns of the models. Default None.
        threads: How many fits run at a time; the answer does not depend on it. Default None: as
            many as there are cores.

    Returns:
        float64 (N,), the values in the unit of the rewards, and notes in sentences.

    Raises:
        LogError: If states are labels, episodes were cut, or there are fewer groups than folds.
        ParameterError: If a parameter is out of range, or the model cannot be fitted.
    """
    check_log(log)
    if log.features is None:
        raise LogError(
            f"this log's states are {log.n_states:,} labels, not numeric features.",
            do=worded(
                "A model of values needs numbers: pass {choice} when reading.",
                choice=either("state=['age', 'pressure', …]", "--state age --state pressure"),
            ),
        )
    check_settled(log)
    gamma, seed, threads = check_gamma(gamma), check_seed(seed), check_threads(threads)
    folds = check_whole("folds", folds, 2)
    groups = check_folds(log, folds, " Or leave lam out: plain returns need no model of values.")
    x, columns = inputs(log, step=True, more=more), columns_of(log, step=True, more=more)
    G = returns(log, gamma)
    regressors = check_regressor(value_model, columns)
    group = np.repeat(log.group, log.lengths).astype(np.int64)
    fits = plan_fits(group, groups, folds, seed)
    return blended(regressors, x, G, fits, threads), tuple(fit_notes(log, fits, regressors))


def fit_behavior(
    log: Log, folds: int, seed: int, threads: int | None = None
) -> tuple[Floats, ScoreTest | None, Floats]:
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
        float64 (N, A), the test of them as in `Nuisances`, and float64 (N,), what returns are
        foretold to be, from other groups, for a test against what outcomes go with.
    """
    menu = menu_of(log)
    if menu is not None:
        menu = menu.copy()
        menu[np.arange(log.n_steps), log.action] = True
    practice = Practice(log, folds, seed, True, None, menu, threads)
    _, b, _, doubt = practice.mended(practice.models(None), None, None, None)
    return b, doubt, practice.closer(returns(log, 1.0))


MENDS = 3
"""How often refuting functions are put into the models."""


class Practice:
    """Models of what people do in one log, their test, and what is put into them after it.

    Args:
        log: A log whose states are features.
        folds: Number of folds.
        seed: Seed of folds, models and tests.
        step: Whether the number of the step is a feature.
        marks: bool (N,), a further feature. None: there is none.
        menu: bool (N, A), the actions that were available. None: all.
        threads: How many fits run at a time. None: as many as there are cores.
    """

    def __init__(
        self, log: Log, folds: int, seed: int, step: bool, marks: Bools | None,
        menu: Bools | None, threads: int | None,
    ) -> None:  # fmt: skip
        self.log, self.seed, self.step, self.marks = log, seed, step, marks
        self.menu, self.threads = menu, threads
        self.group = np.repeat(log.group, log.lengths).astype(np.int64)
        self.fits = plan_fits(self.group, len(log.groups), folds, seed)
        self.more = np.empty((log.n_steps, 0))

    @property
    def columns(self) -> Inputs:
        """What the columns of `x` are."""
        return columns_of(self.log, self.step, self.marks is not None, self.more)

    @property
    def x(self) -> Floats:
        """float64 (N, d), what models get."""
        return inputs(self.log, self.step, self.marks, self.more)

    def models(self, given: Any) -> list[Model]:
        """The models: those given, by name or themselves, or else the usual ones."""
        return check_models(given, usual_behavior_models(self.columns), self.columns)

    def ours(self, given: Any) -> bool:
        """Whether the models are of this package, so that they may get more columns."""
        return given is None or all(isinstance(name, str) for name in given)

    def fitted(
        self, models: list[Model], known_b: Floats | None, logged: Known | None
    ) -> tuple[Floats, Table]:
        """The probabilities (N, A), mixed from the models or as given, and how well each does."""
        log, fits = self.log, self.fits
        answers = contest(
            models, self.x, log.action, log.n_actions, fits, self.menu, threads=self.threads
        )
        shares = floored(_shares(log, fits), self.menu)
        return _weighed(log, answers, known_b, shares, logged)

    def mended(
        self, models: list[Model], asked: Any, known_b: Floats | None, logged: Known | None
    ) -> tuple[list[Model], Floats, Table, ScoreTest | None]:
        """The models, their probabilities, losses and test, after what refuted them was put in."""
        b, losses = self.fitted(models, known_b, logged)
        if not models:
            return models, b, losses, None
        doubt = self.doubt(b)
        for _ in range(MENDS if self.ours(asked) else 0):
            if not doubt.refuted or not self.mend(doubt):
                break
            models = self.models(asked)
            b, losses = self.fitted(models, known_b, logged)
            doubt = self.doubt(b)
        return models, b, losses, doubt

    def doubt(
        self, b: Floats, rows: Ints | None = None, action: int | None = None, level: float = LEVEL,
        aimed: Floats | None = None,
    ) -> ScoreTest:  # fmt: skip
        """Whether probabilities are refuted, at some rows and for one action or everywhere."""
        return score_test(
            *self._shapes, b, self.log.action, self.group, rows=rows,
            actions=None if action is None else [action], level=level, aimed=aimed, seed=self.seed,
        )  # fmt: skip

    def closer(self, G: Floats) -> Floats:
        """float64 (N,), returns as a model foretells them that follows other groups closely."""
        model = closer_values(self.columns)
        return gathered(
            self.fits,
            in_threads([partial(predicted, model, self.x, G, fit) for fit in self.fits],
                       self.threads),
        )  # fmt: skip

    @functools.cached_property
    def _shapes(self) -> tuple[Shapes, Floats]:
        x = inputs(self.log, self.step)
        base, z = Columns(columns_of(self.log, self.step), x, x[:, :1]).parts(x)
        return Shapes(base, z.shape[1]), base

    def mend(self, doubt: ScoreTest) -> bool:
        """Put the functions that refute the models into them; False where there are none."""
        keys = [key for _, key in doubt.worst if key[0] != "practice"]
        if keys:
            self.more = np.column_stack([self.more, values_of(keys, self._shapes[1])])
        return bool(keys)


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
        b = sharpened(b, log.action)
    every = np.arange(log.n_steps)
    lines: list[tuple[str, Floats, float, Ints]] = [
        (one.name, one.b, weights[one.name], one.rows) for one in answers
    ]
    if answers or known_b is not None:
        lines.append(("stack" if known_b is None else "given", b, 1.0, every))
    judged = every  # of several other actions it is not on record which were as likely as said
    if logged is not None:
        b, judged = logged.used_in(b, log), np.flatnonzero(~logged.at | logged.settled)
        lines.append((logged.words, b, 1.0, every))
    lines.append(("shares alone", shares, 0.0, every))
    table = Table(
        {
            "model": [name for name, _, _, _ in lines],
            "weight": [float(w) for _, _, w, _ in lines],
            "log-loss": [log_loss(p, log.action[rows]) for _, p, _, rows in lines],
            "misplaced": [
                misplaced(b[judged], log.action[judged])
                if p is b
                else misplaced(p, log.action[rows])
                for _, p, _, rows in lines
            ],
        },
        "Probabilities of actions, judged on groups that the models have not seen",
        "log-loss in nats per row; misplaced: 0 perfect, 1 all wrong."
        + " Models of weight 0 may have answered for the first fold only."
        * (len(mixed) < len(answers)),
    )
    return b, table
