r"""Behavior: the probability of each action at every step of a log, estimated or given.

    labels     π̂_b(a|s) = (n(s,a) + 1/A) / (n(s) + 1)     n: visits in the other folds
    features   logistic regression on lines, products, splines and few functions, and boosting, each
               fitted to the other folds, and mixed by weights with the smallest held-out log-loss
               (`dprl.evidence.nuisances`); the number of the step is a feature, too

Estimates are cross-fitted by group: a fold is a random part of the groups, and the estimate at a
step uses groups in other folds only. If a step helped to estimate its own probability, that
probability would come out too high, and its importance weight too low. One extra visit, spread
evenly over the actions (`1/A` and `1` above), keeps a state seen once from looking certain. Over
features the least probability is about .001.

No model of features is fitted to more than 20,000 steps. So there are as few folds, from 2 to 5, as
leave a fit this many: more folds would take longer, and no fit would see more steps.

Calibration is part of the answer: of the actions that were given a probability of about p, did a
share p happen? `misplaced` adds up the differences over ten equal bins of p,

    ∑_bins | times it happened - ∑ p | / (2 N)              (0 perfect, 1 all wrong)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Codes, Floats, Ints
from dprl._core.checks import check_threads, check_whole
from dprl._core.table import Table, many
from dprl._core.words import say
from dprl.errors import LogError, ParameterError
from dprl.evidence.models import MOST_ROWS, NUISANCES
from dprl.evidence.nuisances import fit_behavior
from dprl.evidence.score_test import ScoreTest, Shapes, score_test
from dprl.logs.log import Log, check_log

BINS = 10
FOLDS = 5
"""Folds of labels, and the most folds of features."""
SURE = 0.02
"""The chance that a sound estimate is refuted where actions are suggested."""


REPEATS, REPEATED = 5, 20_000
"""How often folds are made where states are features, and up to how many steps."""


def repeats_of(log: Log, seed: int) -> list[int]:
    """The seeds of the folds of models: several of features, so that no answer hangs on one.

    Over labels models are counts, which hardly depend on the folds; large logs hardly do either.

    Args:
        log: The log.
        seed: The first of the seeds.
    """
    if log.state is not None or log.n_steps > REPEATED:
        return [seed]
    more = [np.random.SeedSequence((seed, r)).generate_state(1) for r in range(1, REPEATS)]
    return [seed, *(int(one[0]) for one in more)]


def folds_of(log: Log, folds: int, seed: int) -> Ints:
    """int64 (E,): the fold of every episode; groups stay whole, folds have about equal sizes."""
    n = len(log.groups)
    folds = check_whole("folds", folds, 2)
    if n < 2:
        raise LogError(
            f"a log of {many(n, 'group')} cannot be cross-fitted, nor resampled.",
            do="Groups (or episodes) are never torn apart; read more of them.",
        )
    fold = np.empty(n, np.int64)
    fold[np.random.default_rng(seed).permutation(n)] = np.arange(n) % min(int(folds), n)
    return fold[log.group]


@dataclass(frozen=True, eq=False)
class Behavior:
    """π_b(a|s), the probability of each action at every step of one log.

    Made by `Behavior.fit` or `Behavior.given`.

    Attributes:
        table: float64 (M, A), distributions over actions; columns follow the log's actions.
        row: int64 (N,), the row of `table` that belongs to each step.
        action: int32 (N,), code of the action that was taken at each step.
        how: Where the numbers come from, in words.
        estimated: True where they were estimated, False where they were given.
        log: Digest of the log.
        doubt: Over features, whether the record refutes the estimate (`dprl.evidence.score_test`).
            Default None: it was not tested.
        foretold: Over features, float64 (N,), the return that is foretold at each step from other
            groups, for `doubt_at`. Default None: it was not fitted.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> behavior = Behavior.fit(log)
        >>> behavior.how
        'counts, 5 folds by group'
    """

    table: Floats
    row: Ints
    action: Codes
    how: str
    estimated: bool
    log: str
    doubt: ScoreTest | None = None
    foretold: Floats | None = None

    def __post_init__(self) -> None:
        for name in ("table", "row", "action"):
            column: NDArray[Any] = getattr(self, name).view()
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    @classmethod
    def fit(
        cls, log: Log, *, folds: int | None = None, seed: int = 0, threads: int | None = None
    ) -> Behavior:
        """Estimate the behaviour from the log itself, each fold of groups from the other folds.

        Args:
            log: The log; counts are used for labelled states, a mixture of models for features.
            folds: Number of folds, at least 2; at most as many are used as there are groups.
                Default None: 5; for features from 2 (from 40,000 steps on) to 5 (below 26,667).
            seed: Seed of the folds and the models. Default 0.
            threads: How many models are fitted at a time; the numbers do not depend on it. Default
                None: as many as there are cores.

        Returns:
            The estimated behaviour.

        Raises:
            ParameterError: `folds` is not a whole number from 2.
            LogError: The log has fewer than two groups.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> Behavior.fit(log, folds=2).estimated
            True
        """
        check_log(log)
        threads = check_threads(threads)
        wanted = _usual_folds(log) if folds is None else folds
        fold = np.repeat(folds_of(log, wanted, seed), log.lengths)
        K, doubt, foretold = int(fold.max()) + 1, None, None
        if log.state is None:
            table, doubt, foretold = fit_behavior(log, K, seed, threads)
            models = sum(one.of == "actions" for one in NUISANCES.values())
            how = say("{n} models weighed, {k} folds by group", n=models, k=K)
            if models == 5:
                how = say("five models weighed, {k} folds by group", k=K)
            row = np.arange(log.n_steps)
        else:
            table, how = _by_counts(log, fold, K), say("counts, {k} folds by group", k=K)
            row = fold * log.n_states + log.codes()
        return cls(
            table, row.astype(np.int64), log.action, how, True, log.digest(), doubt, foretold
        )

    @classmethod
    def given(cls, log: Log, pi: Any) -> Behavior:
        """Use known probabilities.

        Args:
            log: The log they belong to.
            pi: float64 (S, A), one row for each of `log.states`, or (N, A), one row for each step;
                columns follow `log.actions`, and every row adds up to 1.

        Returns:
            The behaviour with these probabilities.

        Raises:
            ParameterError: `pi` has another shape, or its rows are not distributions.
            LogError: A step of the log took an action whose given probability is 0.

        Example:
            >>> import dprl
            >>> world = dprl.envs.dense_chain()  # its behaviour is known
            >>> log = world.sample(100, seed=0)
            >>> order = [world.actions.index(action) for action in log.actions]
            >>> Behavior.given(log, world.behavior[:, order]).how
            'given'
        """
        table = np.array(pi, np.float64)
        shapes = [(log.n_steps, log.n_actions)]
        row = np.arange(log.n_steps)
        if log.state is not None:
            shapes.insert(0, (log.n_states, log.n_actions))
            row = log.codes().astype(np.int64) if table.shape == shapes[0] else row
        good = table.shape in shapes and bool(
            (table >= 0).all() and (np.abs(table.sum(axis=1) - 1) <= 1e-9).all()
        )
        if not good:
            raise ParameterError(
                f"behavior must be distributions of shape {' or '.join(map(str, shapes))}; "
                f"got {table.shape}.",
                do="Rows follow log.states (or the steps), columns log.actions.",
            )
        never = np.flatnonzero(table[row, log.action] == 0)
        if len(never):
            e = int(np.searchsorted(log.starts, never[0], side="right")) - 1
            raise LogError(
                f"{len(never):,} of {log.n_steps:,} steps took an action that the behaviour given "
                "never takes there.",
                f"episode {log.episodes[e]!r}, step {never[0] - log.starts[e]}, "
                f"action {log.actions[log.action[never[0]]]!r}",
                "A behaviour that is known must be able to do what was done; or let it be "
                "estimated.",
            )
        return cls(table, row, log.action, "given", False, log.digest())

    @classmethod
    def mean(cls, several: Sequence[Behavior]) -> Behavior:
        """The mean of several estimates of one log, each from other folds.

        Args:
            several: The estimates, with one row per step where they are more than one.

        Returns:
            One estimate; it is refuted where most of them are.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> behavior = Behavior.fit(log)
            >>> Behavior.mean([behavior]) is behavior
            True
        """
        first = several[0]
        if len(several) == 1:
            return first
        doubts = [one.doubt for one in several if one.doubt is not None]
        order = sorted(doubts, key=lambda doubt: doubt.statistic - doubt.quantile)
        foretold = [one.foretold for one in several if one.foretold is not None]
        return replace(
            first, table=np.mean([one.table for one in several], axis=0),
            doubt=order[len(order) // 2] if order else None,
            foretold=np.mean(foretold, axis=0) if len(foretold) == len(several) else None,
        )  # fmt: skip

    def doubt_at(self, group: Ints, suggested: Ints, seed: int = 0) -> ScoreTest | None:
        """What the record says of the estimate where actions are suggested.

        Beside the test of all steps, the errors at steps where an action is suggested are tested
        against what outcomes go with there (`dprl.evidence.score_test`).

        Args:
            group: int64 (N,), the group of each step.
            suggested: int64 (N,), the code of the suggested action at each step, -1 for none.
            seed: Seed of the test. Default 0.

        Returns:
            The test that refutes it, or that of all steps; None where nothing was tested.

        Example:
            >>> import dprl, numpy as np
            >>> rng = np.random.default_rng(0)
            >>> log = dprl.from_arrays(
            ...     episode=range(300), state=rng.normal(size=(300, 1)),
            ...     action=rng.choice(["a", "b"], 300), reward=rng.normal(size=300),
            ... )
            >>> Behavior.fit(log).doubt_at(np.arange(300), np.zeros(300, int)).refuted
            False
        """
        if self.doubt is None or self.foretold is None or self.doubt.refuted:
            return self.doubt
        codes = np.unique(suggested[(suggested >= 0) & (suggested < self.table.shape[1])])
        base, b, aimed = np.zeros((len(self.row), 0)), self.table[self.row], self.foretold[:, None]
        for a in codes.tolist():
            found = score_test(
                Shapes(base, 0), base, b, self.action, group, rows=np.flatnonzero(suggested == a),
                actions=[a], aimed=aimed, level=0.0, aimed_level=SURE / len(codes), seed=seed,
            )  # fmt: skip
            if found.refuted:
                return found
        return self.doubt

    def took(self) -> Floats:
        """The probability of the action that was taken, at each step.

        Returns:
            float64 (N,).

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> Behavior.fit(log).took().shape == (log.n_steps,)
            True
        """
        return np.asarray(self.table[self.row, self.action])

    @functools.cached_property
    def _tallies(self) -> tuple[Ints, Ints]:
        """Steps of each row of `table` (M,), and how often each action was taken (M, A)."""
        M, A = self.table.shape
        taken = np.bincount(self.row * A + self.action, minlength=M * A).reshape(M, A)
        return taken.sum(axis=1), taken

    @property
    def log_loss(self) -> float:
        """Mean of -ln of the probability of the action that was taken; smaller is better.

        Returns:
            A number from 0, in nats per step.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> 0 < Behavior.fit(log).log_loss < 0.5
            True
        """
        loss = -np.log(np.maximum(self.table, np.finfo(float).tiny))
        return float((self._tallies[1] * loss).sum() / len(self.row))

    @property
    def misplaced(self) -> float:
        """Calibration error: the mean probability per step that was given to wrong actions.

        Returns:
            A number in [0, 1]: 0 is perfect, 1 is all wrong.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> Behavior.fit(log).misplaced < 0.05
            True
        """
        bins = self.calibration()
        off = np.abs(np.array(bins["happened"]) - np.array(bins["expected"])).sum()
        return float(off / (2 * len(self.row)))

    def calibration(self) -> Table:
        """How often actions were expected and how often they happened, in bins of probability.

        Each action at each step is one case; the cases are sorted by their probability p into ten
        equal bins.

        Returns:
            A table with one row per bin that is not empty: chance (the bin), times (cases),
            expected (sum of p) and happened (cases in which the action was taken).

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> list(Behavior.fit(log).calibration().columns)
            ['chance', 'times', 'expected', 'happened']
        """
        steps, taken = self._tallies
        place = np.minimum((self.table * BINS).astype(np.int64), BINS - 1).ravel()
        count = np.broadcast_to(steps[:, None], self.table.shape).ravel()
        n = np.bincount(place, weights=count, minlength=BINS)
        expected = np.bincount(place, weights=count * self.table.ravel(), minlength=BINS)
        happened = np.bincount(place, weights=taken.ravel(), minlength=BINS)
        used = np.flatnonzero(n)
        return Table(
            {
                "chance": [f"{b / BINS:.1f} to {(b + 1) / BINS:.1f}" for b in used],
                "times": n[used].astype(np.int64).tolist(),
                "expected": expected[used].tolist(),
                "happened": happened[used].astype(np.int64).tolist(),
            },
            f"Calibration of the behaviour ({self.how})",
        )

    def _repr_html_(self) -> str:
        from dprl._core.table import in_notebook

        return in_notebook(repr(self).strip("<>"), tables=[self.calibration()])

    def __repr__(self) -> str:
        return (
            f"<Behavior: {self.how} · {len(self.row):,} steps · misplaced {self.misplaced:.3f} · "
            f"log loss {self.log_loss:.3f}>"
        )


def _by_counts(log: Log, fold: Ints, K: int) -> Floats:
    """π̂_b (K·S, A): row k·S + s is for state s in fold k, counted in the other folds."""
    S, A = log.n_states, log.n_actions
    own = np.bincount((fold * S + log.codes()) * A + log.action, minlength=K * S * A)
    own = own.reshape(K, S, A)
    others = own.sum(axis=0) - own
    pi = (others + 1 / A) / (others.sum(axis=2, keepdims=True) + 1)
    return np.asarray(pi.reshape(K * S, A))


def _usual_folds(log: Log) -> int:
    """As few folds as leave a fit the steps that it takes, from 2 to `FOLDS`; see above."""
    if log.state is not None:
        return FOLDS
    enough = (K for K in range(2, FOLDS) if log.n_steps * (K - 1) >= MOST_ROWS * K)
    return next(enough, FOLDS)
