"""Figures of how a policy is judged: sweep, sensitivity, calibration, balance."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.arrays import Floats, Ints
from dprl._core.checks import check_whole
from dprl._core.table import Table, first_few, many, to_json_value
from dprl.errors import ParameterError
from dprl.evaluation._budget import Budget
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation._sensitivity import Sensitivity
from dprl.evaluation._sweep import Sweep
from dprl.evaluation.result import Evaluation
from dprl.evidence.balance import LARGE, Balance
from dprl.evidence.behavior import Behavior
from dprl.logs.log import Log
from dprl.logs.reading.tables import write_rows
from dprl.policies.base import beside_of, forest_of, suggestions_of
from dprl.policies.explain import suggested_words
from dprl.policies.protocol import Kind, Policy, as_policy
from dprl.policies.rules.text import shown as shown_facts

# --- Figure: a picture together with the rows it is drawn from

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"
COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def colour(place: int) -> str:
    """The colour of the action, column or line at this place; safe for colour-blind readers."""
    return COLOURS[place % len(COLOURS)]


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure that shows itself in a notebook, with the rows behind it.

    Attributes:
        kind: What it shows, in one or two words: the name of the function that made it.
        table: The rows it is drawn from; every mark of the picture is one of them.
        words: What it shows, in a sentence; read aloud where the picture cannot be seen.
        painter: Called without arguments, draws it and returns the figure of matplotlib.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
        >>> figure = dprl.figures.forest(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
        >>> figure
        <Figure: forest, 2 rows>
        >>> list(figure.to_frame()["suggested"])
        ['antibiotics', 'fluids']
    """

    kind: str
    table: Table
    words: str
    painter: Callable[[], Any] = field(repr=False)

    def draw(self) -> Any:
        """The figure, drawn anew.

        Returns:
            A `matplotlib.figure.Figure`, to be changed at will.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)
            >>> len(dprl.figures.forest(policy).draw().axes)
            1
        """
        with plot.look():
            return self.painter()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure, and its rows beside it.

        Args:
            path: The file of the picture, .png, .svg or .pdf. The rows go to a file of the same
                name that ends in .parquet.

        Raises:
            ParameterError: It has no rows, or the name ends otherwise.
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
            >>> figure = dprl.figures.forest(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
            >>> figure.save("changes.svg")  # doctest: +SKIP
        """
        if not len(self.table):
            raise ParameterError(
                f"the figure ({self.kind}) has no rows, so there is nothing to write.",
                do="Look at its words: they say why.",
            )
        file = Path(path)
        with plot.look():
            plot.save(self.painter(), file)
        write_rows(to_json_value(self.table.to_dicts()), file.with_suffix(".parquet"))

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows behind the figure as a dataframe.

        Args:
            backend: The library: "pandas" (the default), "polars" or "pyarrow".

        Returns:
            A dataframe of that library.

        Raises:
            ParameterError: If the library is not one of the three.
            PackageError: If it is not installed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
            >>> figure = dprl.figures.forest(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
            >>> figure.to_frame().shape[0]
            2
        """
        return self.table.to_frame(backend)

    def _repr_html_(self) -> str:
        shown = plot.embedded(self.draw, self.words)
        return f"{shown}<p>{html.escape(self.words)}</p>" if shown else self.table._repr_html_()

    def __str__(self) -> str:
        return f"{self.words}\n\n{self.table}"

    def __repr__(self) -> str:
        n = len(self.table)
        return f"<Figure: {self.kind}, {many(n, 'row')}>"


# --- A map of a policy: where it makes suggestions, beside usual practice, and where it defers

SHOWN = 25
"""States of a map at most: more cannot be read."""


def policy_map(
    policy: Any,
    log: Log | None = None,
    *,
    features: Sequence[str] | None = None,
    steps: int = 40,
) -> Figure:
    """Where a policy makes suggestions, and where it defers.

    For labels: one row of the picture per state, with the share of each action in usual practice
    and the suggestion. For features: a grid over two of them; the others are held at their median
    in the log (their most frequent value, where they are categories).

    Args:
        policy: A policy with the usual interface (`dprl.Policy`).
        log: For features: the log whose range and medians are used. For labels: the log in which
            usual practice is counted, for a policy that keeps no record of it (the rivals,
            `dprl.CallablePolicy`); others show their training log's. Default None: no log.
        features: The two features to lay out, by name. Default None: the first two.
        steps: Points of the grid in each direction, from 2 to 400. Default 40.

    Returns:
        A figure with rows state, action, share (in usual practice, at first visits; None in a state
        that nobody visited), probability (the policy's, of the action; None where it defers), kind
        ("change", "confirmation", "avoid" or "defer"; "suggestion" for a policy that keeps no
        record of usual practice) and suggested (its most probable action); or, for features, a row
        per point of the grid with the two features, kind and suggested (None where it defers).

    Raises:
        ParameterError: There is no log where one is needed, or it has features in place of labels
            or the other way; or not two features of the policy.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
        >>> figure = dprl.figures.policy_map(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
        >>> sorted(set(figure.table["kind"]))
        ['change', 'defer']
    """
    policy = as_policy(policy)
    if policy.space.feature_names or _open_to_features(policy, log):
        return _over_features(policy, log, features, steps)
    states, visits, episodes = _practice(policy, log)
    here = policy.at(states)
    rows, pi = [], here.probabilities()
    order = np.argsort(-visits.sum(axis=1), kind="stable")
    for s in order:
        total = int(visits[s].sum())
        suggested = suggested_words(here, s) if here.speaks[s] else None
        rows += [
            {
                "state": states[s],
                "action": action,
                "share": int(visits[s, a]) / total if total else None,
                "probability": float(pi[s, a]) if here.speaks[s] else None,
                "kind": _word(int(here.kind[s])),
                "suggested": suggested,
            }
            for a, action in enumerate(here.actions)
        ]
    names = ("state", "action", "share", "probability", "kind", "suggested")
    table = Table({name: [row[name] for row in rows] for name in names})
    spoken = int(here.speaks.sum())
    words = f"Suggestions in {spoken:,} of {len(states):,} states; the policy defers in the others."
    if spoken == len(states):
        words = f"Suggestions in all {spoken:,} states: the policy never defers."
    if episodes:
        words += f" Usual practice is counted in the log given ({episodes:,} episodes)."
    return Figure("policy_map", table, words, lambda: _over_labels(table, list(here.actions)))


def _open_to_features(policy: Any, log: Log | None) -> bool:
    """Whether the policy takes whatever a log holds, and this log holds features."""
    return not policy.space.states and log is not None and log.state is None


def _practice(policy: Policy, log: Log | None) -> tuple[list[Any], Ints, int]:
    """The states of a map and first visits (S, A + 1) that took each action, or one it has not.

    The last number is that of the log's episodes where they were counted in it, 0 where the policy
    keeps them itself.
    """
    states = list(policy.space.states)
    if policy.knows_practice:
        taken = policy.at(states).m
        return states, np.column_stack([taken, np.zeros(len(taken), np.int64)]), 0
    if log is None:
        raise ParameterError(
            "a map shows usual practice, and this policy keeps no record of it.",
            where=str(policy.parameters.get("learner", type(policy).__name__)),
            do="Pass a log to count it in: dprl.figures.policy_map(policy, log).",
        )
    in_log, codes = policy.space.of_log(log)
    states = states or list(in_log)
    episode = np.repeat(np.arange(log.n_episodes), log.lengths)
    first = np.unique(episode * len(in_log) + codes, return_index=True)[1]
    place = {label: i for i, label in enumerate(states)}
    column = {label: i for i, label in enumerate(policy.actions)}
    s = np.array([place.get(label, -1) for label in in_log], np.int64)[codes[first]]
    a = np.array([column.get(label, len(column)) for label in log.actions], np.int64)
    visits = np.zeros((len(states), len(column) + 1), np.int64)
    np.add.at(visits, (s[s >= 0], a[log.action[first]][s >= 0]), 1)
    return states, visits, log.n_episodes


def _word(kind: int) -> str:
    return "suggestion" if kind == Kind.UNKNOWN else Kind(kind).word


def _over_labels(table: Table, actions: Sequence[Any]) -> Any:
    rows = table.to_dicts()
    states = list(dict.fromkeys(row["state"] for row in rows))[:SHOWN]
    figure, axes = plot.grid(1, 1, width=7.0, height=max(1.8, 1.0 + 0.34 * len(states)))
    axis = axes[0, 0]
    left = dict.fromkeys(states, 0.0)
    for row in rows:
        if row["state"] not in left:
            continue
        y, place = -states.index(row["state"]), list(actions).index(row["action"])
        named = row["suggested"] == row["action"] and row["kind"] != "defer"
        share = row["share"] or 0.0
        axis.barh(y, share, left=left[row["state"]], height=0.7, color=colour(place),
                  alpha=1 if named else 0.32, edgecolor="white")  # fmt: skip
        left[row["state"]] += share
        if row["action"] == actions[-1]:
            silent = row["kind"] == "defer"
            words = "DEFER" if silent else f"{row['kind']}: {_named(rows, row)}"
            axis.text(1.02, y, words, va="center", fontsize=8.5, color=GREY if silent else "black")
    for place, action in enumerate(actions):
        axis.bar(0, 0, color=colour(place), label=str(action))
    axis.set_yticks([-y for y in range(len(states))], [str(s) for s in states])
    axis.set(xlim=(0, 1.45), xlabel="usual practice; full colour: what is suggested")
    axis.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axis.grid(visible=False)
    figure.legend(loc="outside upper left", ncols=min(len(actions), 5), fontsize=8)
    return figure


def _named(rows: Sequence[dict[str, Any]], row: dict[str, Any]) -> str:
    """The suggestion of a state, with the chances of all that a policy mixes there."""
    chances = [
        (r["probability"], r["action"])
        for r in rows
        if r["state"] == row["state"] and (r["probability"] or 0) >= 0.005
    ]
    if len(chances) < 2:
        return str(row["suggested"])
    largest = sorted(chances, key=lambda pair: -pair[0])
    return first_few((f"{action} {100 * p:.0f} %" for p, action in largest), 3, ", …")


def _over_features(
    policy: Any, log: Log | None, features: Sequence[str] | None, steps: int
) -> Figure:
    steps = check_whole("steps", steps, 2, 400)
    names = policy.space.feature_names or (() if log is None else log.feature_names)
    if log is None:
        raise ParameterError(
            "a map over features needs a log: its range and its medians.",
            do="dprl.figures.policy_map(policy, log)",
        )
    chosen = tuple(names[:2] if features is None else features)
    if len(chosen) != 2 or not set(chosen) <= set(names):
        raise ParameterError(
            f"a map needs two features of the policy; got {', '.join(map(str, chosen))}.",
            do=f"features=[...], two of: {', '.join(names)}.",
        )
    X = np.asarray(policy.space.of_log(log)[0], np.float64)
    i, j = (list(names).index(name) for name in chosen)
    ends = np.nanquantile(X[:, [i, j]], (0.005, 0.995), axis=0)
    x, y = (np.linspace(ends[0, k], ends[1, k], steps) for k in (0, 1))
    at = np.tile(_typical(X, policy.space), (steps * steps, 1))
    at[:, i], at[:, j] = (v.ravel() for v in np.meshgrid(x, y))
    here = policy.at(at)
    table = Table(
        {
            chosen[0]: at[:, i].tolist(), chosen[1]: at[:, j].tolist(),
            "kind": [_word(int(k)) for k in here.kind],
            "suggested": [
                suggested_words(here, s) if speaks else None for s, speaks in enumerate(here.speaks)
            ],
        }
    )  # fmt: skip
    share = float(here.speaks.mean())
    places = " and ".join(chosen)
    words = f"What is suggested over {places}; on {100 * share:.0f} % of the map."
    if len(names) > 2:
        words += " The other features are held at their median."
    return Figure("policy_map", table, words, lambda: _drawn_map(table, chosen, here.actions))


def _typical(X: Floats, space: Any) -> Floats:
    """float64 (d,): the median of each feature, the most frequent code of a category."""
    typical = np.nanmedian(X, axis=0)
    for place, labels in enumerate(getattr(space, "levels", None) or ()):
        if labels:
            codes = X[:, place]
            codes = codes[np.isfinite(codes)].astype(np.int64)
            typical[place] = np.bincount(codes[codes >= 0]).argmax() if len(codes) else np.nan
    return typical


def _drawn_map(table: Table, chosen: tuple[str, ...], actions: Sequence[Any]) -> Any:
    figure, axes = plot.grid(1, 1, width=5.6, height=4.4)
    axis = axes[0, 0]
    x, y = (np.asarray(table[name], np.float64) for name in chosen)
    kind, suggested = np.array(table["kind"]), table["suggested"]
    silent = kind == "defer"
    axis.plot(x[silent], y[silent], ".", ms=1.6, color="#bbbbbb", label="DEFER")
    for place, action in enumerate(actions):
        mine = np.array([s == action for s in suggested])
        for word, full in (("change", True), ("confirmation", False), ("suggestion", True)):
            at = mine & (kind == word)
            if at.any():
                axis.plot(
                    x[at], y[at], plot.MARKERS[place % len(plot.MARKERS)], ms=4,
                    color=colour(place), mfc=colour(place) if full else "white", mew=0.7,
                    label=f"{action} ({word})",
                )  # fmt: skip
    axis.set(xlabel=chosen[0], ylabel=chosen[1])
    axis.grid(visible=False)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


# --- Figures of what a policy suggests: the changes as a forest plot, rules as a tree


def forest(policy: Any, most: int = SHOWN) -> Figure:
    """What each suggestion brings, with its interval: a forest plot.

    The advantage is over usual practice; for rules, over doing otherwise.

    Changes are drawn full, confirmations hollow. Where a certificate proves a bound on the
    advantage, a mark shows it.

    Args:
        policy: A policy that lists its changes with their intervals: of `dprl.DPRLDiscrete`,
            `Confident`, `DPRLContinuous` or `Rules`, gated or not.
        most: Number of rows at most; those with the highest lower end stay. Default 25.

    Returns:
        A figure with one row per suggestion: where, kind ("change" or "confirmation"), usual,
        suggested, advantage, low, high, and proved (the bound of the certificate, in units of
        returns; None without one).

    Raises:
        ParameterError: `most` is no whole number above 0, or the policy keeps no intervals.
        PolicyError: The policy keeps no record of usual practice, so it has no changes to list.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)
        >>> dprl.figures.forest(policy).table["where"]
        ['fever', 'worse']
    """
    most = check_whole("most", most, 1)
    rows = suggestions_of(policy)
    left = max(len(rows) - most, 0)
    rows = rows[:most]
    names = ("where", "kind", "usual", "suggested", "advantage", "low", "high", "proved")
    table = Table({name: [row[name] for row in rows] for name in names})
    words = f"What each suggestion brings over {beside_of(policy)}, with its interval of 95 %."
    if not rows:
        words = "The policy suggests nothing for which it keeps an interval."
    elif left:
        words += f" {left:,} more suggestions are not shown."
    return Figure("forest", table, words, lambda: forest_of(policy, rows, left))


def rule_tree(policy: Any) -> Figure:
    """Rules as a tree of questions, or one band each where they do not come from a tree.

    Args:
        policy: A policy of rules, from `dprl.Rules`.

    Returns:
        A figure with one row per rule: rule, where, kind, suggested, advantage, low, high (None
        where nothing is stated).

    Raises:
        ParameterError: The policy has no rules.

    Example:
        >>> import dprl
        >>> policy = dprl.RulePolicy(
        ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
        ...     feature_names=("pressure",),
        ...     rules=({
        ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
        ...         "suggested": "fluids",
        ...     },),
        ... )
        >>> dprl.figures.rule_tree(policy).table["where"]
        ['pressure at most 62']
    """
    rules = getattr(policy, "rules", None)
    if not rules:
        raise ParameterError(
            "a tree needs rules, and this policy has none.",
            where=type(policy).__name__,
            do="Fit dprl.Rules; for other policies: policy_map or forest.",
        )
    rows = [
        {
            "rule": r + 1,
            "where": " and ".join(c.words for c in rule.conditions),
            "suggested": None if rule.silent else rule.says,
            **{name: facts.get(name) for name in ("advantage", "low", "high")},
        }
        for r, rule in enumerate(rules)
        for facts in [shown_facts(policy, rule)]
    ]
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    words = " ".join(policy.sentences())
    return Figure("rule_tree", table, words, lambda: policy.draw().figure)


# --- What a learner makes of logs of growing size


def value_by_size(
    learner: Any,
    train: Log,
    test: Log | None = None,
    *,
    sizes: Sequence[int],
    repeats: int = 5,
    seed: int = 0,
    value: Callable[[Any], float] | None = None,
    estimator: str = "WDR",
) -> Figure:
    """What a policy would be worth if the log were smaller: value against sample size.

    For each size the learner is fitted on that many groups of `train`, drawn anew for each repeat.

    Args:
        learner: Anything with `fit(log)` that returns a policy.
        train: The log to draw groups from.
        test: Episodes that are used by no fit; the difference to usual practice is estimated on
            them. Default None: `value` says what a policy is worth.
        sizes: Numbers of groups, each at most the number of groups in `train`.
        repeats: Fits per size, with other groups. Default 5.
        seed: Seed of who is drawn. Default 0.
        value: Takes a policy and returns its value, where the truth can be computed (`world.value`,
            say). Default None: estimated on `test`.
        estimator: Which estimate of `dprl.evaluate` counts. Default "WDR".

    Returns:
        A figure with one row per fit: size, repeat, value (the difference to usual practice, or
        what `value` returned) and deferred (share of the test steps, or of the training
        steps, at which it defers).

    Raises:
        ParameterError: Neither `test` nor `value` is given, or both; or a size is out of range.

    Example:
        >>> import dprl
        >>> world = dprl.envs.care_pathway()
        >>> figure = dprl.figures.value_by_size(
        ...     dprl.DPRLDiscrete(n_min=20, gamma=1.0), world.sample(800, seed=0),
        ...     sizes=[100, 800], repeats=2, value=world.value,
        ... )
        >>> figure.table["size"]
        [100, 100, 800, 800]
    """
    if (test is None) == (value is None):
        raise ParameterError(
            "say either on which log policies are judged, or how their value is computed.",
            do="test=..., or value=...",
        )
    groups = len(train.groups)
    counts = [check_whole("sizes", size, 1, groups) for size in sizes]
    repeats = check_whole("repeats", repeats, 1)
    group = np.asarray(train.group)
    rows = []
    for size in counts:
        for repeat in range(repeats):
            rng = np.random.default_rng((seed, size, repeat))
            drawn = np.zeros(groups, bool)
            drawn[rng.choice(groups, size, replace=False)] = True
            part = train.take(np.flatnonzero(drawn[group]))
            policy = learner.fit(part)
            spoken, worth = (
                _estimated(policy, test, estimator, seed)
                if test is not None
                else (_spoken(policy, part), float(value(policy)))  # type: ignore[misc]
            )
            rows.append({"size": size, "repeat": repeat, "value": worth, "deferred": 1 - spoken})
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    truth = value is not None
    words = f"{'Value' if truth else 'Estimated gain'} of policies from logs of growing size."
    return Figure("value_by_size", table, words, lambda: _drawn(rows, truth))


def _spoken(policy: Any, log: Log) -> float:
    """The share of the steps of a log at which a policy names an action."""
    states, row = policy.space.of_log(log)
    return float(policy.at(states).speaks[row].mean())


def _estimated(policy: Any, test: Log, estimator: str, seed: int) -> tuple[float, float]:
    """The share of steps at which a policy speaks, and its difference to usual practice."""
    result = evaluate(policy, test, draws=50, seed=seed)
    if estimator not in result.rows:
        raise ParameterError(
            f"there is no estimate {estimator!r}.", do=f"Estimates: {', '.join(result.rows)}."
        )
    return float(result.facts["spoken"]), float(result[estimator]["difference"])


def _drawn(rows: Sequence[dict[str, Any]], truth: bool) -> Any:
    sizes = sorted({row["size"] for row in rows})
    figure, axes = plot.grid(1, 2, width=4.0, height=3.2)
    for axis, name in zip(axes[0], ("value", "deferred"), strict=True):
        factor = 100 if name == "deferred" else 1
        parts = [[factor * r[name] for r in rows if r["size"] == size] for size in sizes]
        for size, part in zip(sizes, parts, strict=True):
            axis.plot([size] * len(part), part, "o", ms=4, color=BLUE, alpha=0.45, mew=0)
        axis.plot(sizes, [float(np.mean(part)) for part in parts], color=BLUE, lw=1.6)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("groups in the log")
    axes[0, 0].set_title("value of the policy" if truth else "difference to usual practice")
    axes[0, 1].set_title("steps deferred, %")
    axes[0, 1].set_ylim(-3, 103)
    if not truth:
        plot.reference(axes[0, 0], 0.0, "usual practice")
    return figure


# --- Figures of how a policy is judged: sweep, sensitivity, calibration, balance


def sweep(swept: Sweep) -> Figure:
    """What each setting of a sweep gains, how often it defers, and on how many it rests.

    Args:
        swept: The result of `dprl.sweep`.

    Returns:
        A figure with one row per setting, those of `swept.table()`.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> dprl.figures.sweep(dprl.sweep(learner, train, test, n_min=[20, 50]))
        <Figure: sweep, 2 rows>
    """
    words = "What each setting gains over usual practice, how often it defers, and its sample."
    return Figure("sweep", swept.table(), words, swept.plot)


def sensitivity(result: Sensitivity) -> Figure:
    """What is left of a gain by the strength Γ of an unrecorded cause.

    Args:
        result: The result of `dprl.sensitivity`.

    Returns:
        A figure with one row per Γ, those of `result.table()`.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> dprl.figures.sensitivity(dprl.sensitivity(policy, test, gamma=[1, 2], draws=100))
        <Figure: sensitivity, 2 rows>
    """
    return Figure("sensitivity", result.table(), " ".join(result.lines()), result.plot)


def curves(log: Log) -> Figure:
    """Who had no event yet, or the risk of one, over time and by the action of first decisions.

    Args:
        log: A log that was read with `survival`.

    Returns:
        A figure with one row per action and time, those of `Log.curves`.

    Example:
        >>> import dprl, pandas
        >>> frame = pandas.DataFrame({"id": [1, 2, 3, 4], "sex": ["f", "m", "f", "m"],
        ...     "arm": ["a", "a", "b", "b"], "days": [9, 3, 8, 2], "died": [0, 1, 1, 1]})
        >>> log = dprl.from_frame(frame, episode="id", state="sex", action="arm",
        ...                       survival=("days", "died"), horizon=5)
        >>> dprl.figures.curves(log)
        <Figure: curves, 202 rows>
    """
    horizon = float(log.columns.get("horizon", 0.0))
    table = log.curves(np.linspace(0.0, horizon, 101).tolist())
    words = f"{log.outcome.name} and before, by action, with 95 % intervals."
    return Figure("curves", table, words, lambda: _curves(table, log))


def _curves(table: Table, log: Log) -> Any:
    with plot.look():
        figure, axes = plot.grid(1, 1, 5.5, 3.6)
        axis, rows = axes.flat[0], table.to_dicts()
        for place, label in enumerate(dict.fromkeys(row["action"] for row in rows)):
            own = [row for row in rows if row["action"] == label]
            time, share, low, high = ([r[k] for r in own] for k in ("time", "share", "low", "high"))
            axis.step(time, share, where="post", color=colour(place), label=str(label))
            axis.fill_between(time, low, high, step="post", color=colour(place), alpha=0.15)
        axis.set_xlabel(str(log.columns["survival"][0]))
        axis.set_ylabel("risk" if log.columns["target"] == "risk" else "event-free")
        axis.legend()
    return figure


def tradeoff(paid: Budget) -> Figure:
    """What each further change spends and gains, in the order in which a budget pays for them.

    Args:
        paid: The result of `dprl.evaluation.budget`.

    Returns:
        A figure with one row per change that gains or is kept: where, suggested, spent and gained
        by all so far, per episode, and kept; the first is usual practice.

    Example:
        >>> import dprl
        >>> from dprl.evaluation import budget
        >>> train, test = dprl.envs.care_pathway().sample(2000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(train)
        >>> dprl.figures.tradeoff(budget(policy, test, most=0.3, costs={"antibiotics": 1}))
        <Figure: tradeoff, 3 rows>
    """
    rows = [{"where": "", "suggested": "usual practice", "spent": paid.usual, "gained": 0.0,
             "kept": True}]  # fmt: skip
    for row in paid.rows:
        if row["kept"] or paid.outcome.shown(row["gain"]) > 0:
            so_far = {"spent": rows[-1]["spent"] + row["spent"],
                      "gained": rows[-1]["gained"] + row["gain"]}  # fmt: skip
            rows.append({**{k: row[k] for k in ("where", "suggested", "kept")}, **so_far})
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    words = "What all changes so far spend and gain per episode; filled ones are within the budget."
    return Figure("tradeoff", table, words, lambda: _tradeoff(rows, paid))


def _tradeoff(rows: Sequence[dict[str, Any]], paid: Budget) -> Any:
    with plot.look():
        figure, axes = plot.grid(1, 1, 5.5, 3.6)
        axis = axes.flat[0]
        spent, gained = ([row[name] for row in rows] for name in ("spent", "gained"))
        axis.plot(spent, gained, color=BLUE, linewidth=1)
        face = [BLUE if row["kept"] else "white" for row in rows]
        axis.scatter(spent, gained, color=face, edgecolor=BLUE, zorder=3)
        axis.axvline(paid.most, color=GREY, linestyle=":")
        for row in rows[1:]:
            axis.annotate(f"{row['where']}: {row['suggested']}", (row["spent"], row["gained"]),
                          fontsize=7.5, xytext=(3, -9), textcoords="offset points")  # fmt: skip
        axis.set_xlabel("spent per episode")
        axis.set_ylabel(f"gained per episode{paid.outcome.measured}")
    return figure


def calibration(behavior: Behavior) -> Figure:
    """Whether what usual practice was expected to do is what it did.

    Args:
        behavior: A model of usual practice, from `dprl.Behavior.fit`.

    Returns:
        A figure with one row per bin of probability: chance, times, expected and happened (as
        shares of the cases in the bin), low and high (Wilson's interval of 95 % of happened).

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> figure = dprl.figures.calibration(dprl.Behavior.fit(log))
        >>> list(figure.table.columns)
        ['chance', 'times', 'expected', 'happened', 'low', 'high']
    """
    rows = []
    for row in behavior.calibration().to_dicts():
        times, share = row["times"], row["happened"] / row["times"]
        low, high = _wilson(share, times)
        rows.append(
            {"chance": row["chance"], "times": times, "expected": row["expected"] / times,
             "happened": share, "low": low, "high": high}
        )  # fmt: skip
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    words = (
        "How often actions were expected and how often they happened; on the line, the model of "
        "usual practice is right."
    )
    return Figure("calibration", table, words, lambda: _calibration(rows))


def _wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share of n cases."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _calibration(rows: Sequence[dict[str, Any]]) -> Any:
    figure, axes = plot.grid(1, 1, width=4.4, height=4.0)
    axis = axes[0, 0]
    axis.plot([0, 1], [0, 1], color="#333333", lw=1, ls=(0, (4, 3)), label="as expected")
    x, y = (np.array([row[name] for row in rows]) for name in ("expected", "happened"))
    reach = np.abs([y - [row["low"] for row in rows], [row["high"] for row in rows] - y])
    axis.errorbar(x, y, yerr=reach, fmt="o", color=BLUE, ms=5, capsize=3, label="usual practice")
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axis.set(xlabel="expected share of an action", ylabel="share in which it happened")
    axis.legend(loc="upper left")
    return figure


def balance(result: Evaluation | Balance, most: int = 15) -> Figure:
    """In what those who took the suggestions differ from the others, before and after weighting.

    Args:
        result: An evaluation (`dprl.evaluate`) of a log with columns that are not in the state, or
            its `balance`.
        most: Columns at most, the largest differences first. Default 15.

    Returns:
        A figure with one row per column: column, before and after (difference in standard
        deviations; after is None where nothing was weighted), error (standard error of the last).

    Raises:
        ParameterError: There is nothing to compare.

    Example:
        >>> import dprl, pandas as pd
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> rows = pd.DataFrame({
        ...     "patient": range(400), "state": "ill", "action": rng.choice(["drug", "wait"], 400),
        ...     "age": rng.normal(70, 9, 400),
        ... })
        >>> rows["reward"] = (rows.action == "drug") * 1.0
        >>> log = dprl.from_frame(rows, episode="patient", state="state", action="action",
        ...                       reward="reward", also=["age"])
        >>> train, test = log.split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> dprl.figures.balance(dprl.evaluate(policy, test, draws=100)).table["column"]
        ['age']
    """
    compared = result.balance if isinstance(result, Evaluation) else result
    if compared is None or not compared.rows:
        raise ParameterError(
            "there is nothing to compare: the log has no columns beside the state, or too few "
            "took the suggestions.",
            do="Name further columns with also=[...] when the log is read.",
        )
    rows = [
        {"column": row.column, "before": row.before, "after": row.after, "error": row.error}
        for row in compared.rows[:most]
    ]
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    words = (
        "Differences between those who took the suggestions and the others, in standard "
        f"deviations; above {LARGE:g} they are large by custom."
    )
    return Figure("balance", table, words, lambda: _balance(rows))


def _balance(rows: Sequence[dict[str, Any]]) -> Any:
    figure, axes = plot.grid(1, 1, width=5.8, height=max(1.8, 1.1 + 0.3 * len(rows)))
    axis = axes[0, 0]
    axis.axvspan(-LARGE, LARGE, color="#e9edf0", lw=0, zorder=0)
    axis.axvline(0, color="#333333", lw=1)
    for y, row in enumerate(rows):
        axis.plot(row["before"], 0.18 - y, "D", color=ORANGE, mfc="white", ms=6)
        if row["after"] is not None:
            axis.errorbar(
                row["after"], -y - 0.12, xerr=2 * row["error"], fmt="o", color=BLUE, capsize=3
            )
    axis.plot([], [], "D", color=ORANGE, mfc="white", label="before weighting")
    if any(row["after"] is not None for row in rows):
        axis.plot([], [], "o", color=BLUE, label="after, ± 2 standard errors")
    axis.set_yticks([-y for y in range(len(rows))], [row["column"] for row in rows])
    axis.set(xlabel=f"difference in standard deviations (grey: below {LARGE:g})")
    axis.set_ylim(-len(rows) + 0.4, 0.6)
    figure.legend(loc="outside upper left", ncols=2, fontsize=8)
    return figure
