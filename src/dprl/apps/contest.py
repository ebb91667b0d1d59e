"""A contest: any learners on many logs of any problems, by the true values of their policies.

For every problem, size and data set a log is drawn; every learner learns from the same log, and the
problem says what its policy is truly worth. The seed of a log depends on the seed of the contest,
the size and the number of the data set, and on nothing else, so learners are paired.
"""

from __future__ import annotations

import inspect
import reprlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol

import numpy as np

from dprl._core import __version__, plot
from dprl._core.checks import check_seed, check_whole
from dprl._core.table import Result, Table
from dprl.errors import DprlError, ParameterError
from dprl.evaluation import stats
from dprl.logs.censoring import treat_cut
from dprl.logs.log import Log
from dprl.policies.protocol import check_learned

Row = dict[str, Any]
Metric = Callable[[Sequence[Row]], float]


class Problem(Protocol):
    """What learners compete on: whatever samples logs and knows what a policy is worth."""

    @property
    def gamma(self) -> float:
        """Discount in (0, 1]."""

    def sample(self, n: int, *, seed: int) -> Log:
        """A log of n episodes (groups); the same seed gives the same log."""

    def value(self, policy: Any = None) -> float:
        """What a policy is truly worth; of None: what usual practice is."""


def log_seed(seed: int, n: int, dataset: int) -> int:
    """The seed of one log; all learners share it.

    Args:
        seed: Seed of the contest.
        n: Number of episodes.
        dataset: Number of the data set.

    Returns:
        The seed.

    Example:
        >>> log_seed(0, 50, 1) == log_seed(0, 50, 1) != log_seed(0, 50, 2)
        True
    """
    return int(np.random.SeedSequence([dataset, n, seed]).generate_state(1)[0])


def gains(rows: Sequence[Row]) -> list[float]:
    """What each policy truly gains over usual practice, in shares of what the best policy gains.

    Args:
        rows: Rows of one learner.

    Returns:
        One number per row; in units of returns where the best policy is not known.

    Example:
        >>> gains([{"value": 0.6, "practice": 0.5, "best": 0.7}])
        [0.5]
    """
    found = []
    for row in rows:
        room = row["best"] - row["practice"]
        found.append((row["value"] - row["practice"]) / (room if room > 1e-9 else 1.0))
    return [float(round(x, 12)) for x in found]


METRICS: dict[str, Metric] = {
    "mean": lambda rows: float(stats.mean(gains(rows))),
    "cvar 5 %": lambda rows: float(stats.cvar(gains(rows))),
    "cvar 1 %": lambda rows: float(stats.cvar(gains(rows), 0.01)),
    "below": lambda rows: float(np.mean([row["value"] < row["practice"] - 1e-9 for row in rows])),
    "changed": lambda rows: float(np.mean([row["changed"] for row in rows])),
    "promised": lambda rows: float(np.mean([row["promised"] is not None for row in rows])),
    "broken": lambda rows: float(np.mean([_broken(row) for row in rows])),
    "seconds": lambda rows: float(np.mean([row["seconds"] for row in rows])),
}
"""Metric → from the rows of a learner in a problem of one size to a number: mean and CVaR of the
gain in shares of the best, share of logs below practice, share of steps changed, share of logs with
a promise, share in which the promise is above the truth, and processor seconds."""


def _broken(row: Row) -> bool:
    return row["promised"] is not None and row["promised"] > row["value"] - row["practice"] + 1e-9


@dataclass(frozen=True, eq=False)
class Contest(Result):
    """What a contest found: a row per problem, size, data set and learner.

    Attributes:
        rows: The rows, in the order of the contest. `value`, `practice` and `best` are true values;
            `promised` is the lower end of the gain that the policy or its certificate states, None
            where it states none; `changed` the share of steps at which the policy does otherwise
            than the log; `seconds` processor time; `failed` what went wrong, '' where nothing did:
            usual practice then goes on.
        metrics: Metric → what it makes of the rows of a learner.

    Example:
        >>> import dprl
        >>> worlds = {"arms": dprl.envs.risky_arms()}
        >>> learners = {"LCB": dprl.baselines.LCB(gamma=1.0), "RL": dprl.baselines.RL(gamma=1.0)}
        >>> found = dprl.contest(worlds, learners, sizes=[200], datasets=3)
        >>> found.table()["learner"]
        ['LCB', 'RL']
    """

    rows: tuple[Row, ...]
    metrics: Mapping[str, Metric]

    HEAD = "A contest of learners"

    def groups(self) -> Iterator[tuple[tuple[str, int, str], list[Row]]]:
        """The rows of each problem, size and learner, in the order of the contest.

        Yields:
            (problem, size, learner), and its rows.

        Example:
            >>> import dprl
            >>> learners = {"BC": dprl.baselines.BC()}
            >>> worlds = {"arms": dprl.envs.risky_arms()}
            >>> found = dprl.contest(worlds, learners, sizes=[50], datasets=2)
            >>> [(key, len(rows)) for key, rows in found.groups()]
            [(('arms', 50, 'BC'), 2)]
        """
        together: dict[tuple[str, int, str], list[Row]] = {}
        for row in self.rows:
            together.setdefault((row["problem"], row["n"], row["learner"]), []).append(row)
        yield from together.items()

    def table(self) -> Table:
        """One row per problem, size and learner, with every metric.

        Returns:
            The table.

        Example:
            >>> import dprl
            >>> learners = {"BC": dprl.baselines.BC()}
            >>> worlds = {"arms": dprl.envs.risky_arms()}
            >>> dprl.contest(worlds, learners, sizes=[50], datasets=2).table()["below"]
            [0.5]
        """
        lines = [
            {"problem": key[0], "n": key[1], "learner": key[2], "logs": len(rows),
             **{name: metric(rows) for name, metric in self.metrics.items()}}
            for key, rows in self.groups()
        ]  # fmt: skip
        columns = {name: [line[name] for line in lines] for name in lines[0]}
        return Table(
            columns,
            self.HEAD,
            "mean, cvar: of the true gain over usual practice, in shares of what the best policy "
            "gains; below: share of logs whose policy is worse than usual practice; changed: share "
            "of steps; promised: share of logs with a stated gain; broken: where that is above the "
            "truth; seconds of a processor",
        )

    def to_dict(self) -> dict[str, Any]:
        """The rows as values that JSON can carry.

        Returns:
            The rows under "rows".

        Example:
            >>> import dprl
            >>> worlds = {"arms": dprl.envs.risky_arms()}
            >>> found = dprl.contest(worlds, {"BC": dprl.baselines.BC()}, sizes=[50], datasets=2)
            >>> len(found.to_dict()["rows"])
            2
        """
        return {"rows": [dict(row) for row in self.rows]}

    def plot(self, metric: str = "mean") -> Any:
        """A panel per problem: a metric against the number of episodes, a line per learner.

        Args:
            metric: One of `metrics`. Default "mean".

        Returns:
            A matplotlib figure.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> worlds = {"arms": dprl.envs.risky_arms()}
            >>> found = dprl.contest(worlds, {"BC": dprl.baselines.BC()}, sizes=[50], datasets=2)
            >>> len(found.plot().axes)
            1
        """
        table = self.table()
        problems, names = (list(dict.fromkeys(table[k])) for k in ("problem", "learner"))
        figure, axes = plot.grid(1, len(problems))
        looks = plot.style(names)
        for axis, problem in zip(axes[0], problems, strict=True):
            for name in names:
                mine = [r for r in table if (r["problem"], r["learner"]) == (problem, name)]
                x, y = [r["n"] for r in mine], [r[metric] for r in mine]
                plot.curve(axis, x, y, y, y, name, looks[name])
            axis.set_title(problem)
            axis.set_xlabel("episodes in the log")
        axes[0, 0].set_ylabel(metric)
        axes[0, 0].legend()
        return figure


def contest(
    worlds: Mapping[str, Problem | Callable[[], Problem]],
    learners: Mapping[str, Any],
    *,
    sizes: int | Sequence[int] = (100,),
    datasets: int | Sequence[int] = 20,
    seed: int = 0,
    metrics: Mapping[str, Metric] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> Contest:
    """Let learners compete on logs of problems whose true values are known.

    Args:
        worlds: Name → a problem (`dprl.envs`, or your own with `sample`, `value` and `gamma`), or a
            function that makes it.
        learners: Name → a learner, an object with `fit(log)`; or a function of the problem that
            makes one, for what depends on it: `lambda world: LCB(gamma=world.gamma)`.
        sizes: Numbers of episodes in a log, one or several. Default 100.
        datasets: How many logs of each size, or the numbers of those that are wanted. Default 20.
        seed: Seed of the logs, a whole number from 0. Default 0.
        metrics: Name → a function from the rows of a learner to a number, shown beside the others.
            Default none.
        progress: Called with the name of a problem and the share that is done. Default None.

    Returns:
        The rows, a table of them and a figure. Cut episodes count as ended. A learner that fails on
        a log leaves usual practice as it is there, and its row says so.

    Raises:
        ParameterError: A size or the number of data sets is no whole number above 0, or something
            is no problem, no learner, or no policy.

    Example:
        >>> import dprl
        >>> learners = {"LCB": lambda world: dprl.baselines.LCB(gamma=world.gamma)}
        >>> found = contest({"random": dprl.envs.random_mdp(0)}, learners, sizes=[50], datasets=2)
        >>> found.rows[0]["value"] > found.rows[0]["practice"]
        True
    """
    seed = check_seed(seed)
    sizes = [sizes] if isinstance(sizes, int) else sizes
    for n in sizes:
        check_whole("sizes", n, 1)
    for what, named in (("worlds", worlds), ("learners", learners)):
        if not isinstance(named, Mapping) or not named:
            raise ParameterError(
                f"{what} must be named, and at least one; got {reprlib.repr(named)}.",
                do=f"Say {what}={{'a name': ...}}.",
                argument=what,
            )
    numbers = range(check_whole("datasets", datasets, 1)) if isinstance(datasets, int) else datasets
    rows: list[Row] = []
    total = max(len(worlds) * len(sizes) * len(numbers), 1)
    for name, given in worlds.items():
        world: Any = given() if callable(given) else given
        if not hasattr(world, "sample") or not hasattr(world, "value"):
            raise ParameterError(
                f"{name!r} is no problem: it lacks sample(n, seed=...) or value(policy)."
            )
        made = {label: _made(label, learner, world) for label, learner in learners.items()}
        practice, best = world.value(), _best(world)
        for n in sizes:
            for dataset in numbers:
                own = log_seed(seed, n, dataset)
                log = treat_cut(world.sample(n, seed=own), world.gamma, "terminal")
                for label, learner in made.items():
                    rows.append({
                        "problem": name, "n": int(n), "dataset": int(dataset), "seed": seed,
                        "log_seed": own, "learner": label, "settings": _settings(learner),
                        "practice": practice, "best": best, "version": __version__,
                        **_competes(world, log, learner, practice),
                    })  # fmt: skip
                if progress is not None:
                    progress(name, len(rows) / max(len(made), 1) / total)
    return Contest(tuple(rows), {**METRICS, **(metrics or {})})


def _made(label: str, learner: Any, world: Problem) -> Any:
    """A learner, made for a problem where a function is given."""
    made = learner if hasattr(learner, "fit") and not inspect.isclass(learner) else learner(world)
    if not hasattr(made, "fit"):
        raise ParameterError(f"{label!r} is no learner: a {type(made).__name__} has no fit(log).")
    return made


def _best(world: Any) -> float:
    """The value of the best policy; NaN where a problem does not know it."""
    if hasattr(world, "optimal"):
        return float(world.start @ world.optimal[0])
    return float(getattr(world, "best", np.nan)) + float(world.value())


def _settings(learner: Any) -> str:
    """The settings of a learner, as text."""
    if not is_dataclass(learner):
        return ""
    shown = {f.name: getattr(learner, f.name) for f in fields(learner)}
    return ", ".join(
        f"{name}={'given' if isinstance(value, np.ndarray) else value!r}"
        for name, value in shown.items()
    )


def _competes(world: Problem, log: Log, learner: Any, practice: float) -> Row:
    """What one learner makes of one log."""
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            policy = learner.fit(log)
    except (DprlError, ArithmeticError, ValueError) as error:
        spent = time.process_time() - began
        return {"value": practice, "promised": None, "changed": 0.0, "seconds": spent,
                "failed": f"{type(error).__name__}: {error}".partition("\n")[0]}  # fmt: skip
    spent = time.process_time() - began
    check_learned(policy, type(learner).__name__)
    return {
        "value": float(world.value(policy)),
        "promised": _promised(policy),
        "changed": _changed(policy, log),
        "seconds": spent,
        "failed": "",
    }


def _promised(policy: Any) -> float | None:
    """The lower end of the gain that a policy states; None where it states none."""
    certificate = getattr(policy, "certificate", None)
    gain = getattr(policy, "gain", None) or {}
    low = gain.get("low") if certificate is None else certificate.gain
    return float(low) if low is not None and np.isfinite(low) and low > 0 else None


def _changed(policy: Any, log: Log) -> float:
    """The share of the log's steps at which a policy does otherwise, of labelled states."""
    if log.state is None:
        return float("nan")
    n = np.zeros((log.n_states, log.n_actions))
    np.add.at(n, (log.codes(), log.action), 1)
    b = n / np.maximum(n.sum(axis=1, keepdims=True), 1)
    column = [log.actions.index(label) for label in policy.actions]
    pi = np.zeros_like(b)
    pi[:, column] = policy.probabilities(log.states, behavior=b[:, column])
    return float((np.maximum(b - pi, 0).sum(axis=1) * n.sum(axis=1)).sum() / n.sum())
