"""SQL of what was done and gained: the action and the reward of every window.

The window of a decision is from t until before t'; the last one reaches to the end of the episode,
a row at that very moment included unless the episode was cut there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dprl.logs.events._database import number, text
from dprl.logs.events._episodes import placed
from dprl.logs.events._fields import HOUR
from dprl.logs.events._rules import NEED_ROW
from dprl.logs.events._state import DECIMAL

if TYPE_CHECKING:
    from dprl.logs.events.spec import Part, Reward, Spec

__all__ = ["action_rows", "labels", "make_action", "make_reward", "reward_rows"]

SPREAD = ("any", "dose", "amount")
"""What takes rows with an end in every window in which they run."""
VALUED = ("sum", "mean", "min", "max", "last", "dose", "amount")
INSIDE = "(x.t < e.span OR (e.span_closed AND x.t = e.span))"


def _roles(spec: Spec) -> list[tuple[str, Part]]:
    """The roles of actions, and the part each belongs to."""
    rows = []
    for i, part in enumerate(spec.action.parts):
        rows += [(f"a{i}c{j}", part) for j in range(len(part.choices))] or [(f"a{i}", part)]
    return rows


def action_rows(spec: Spec) -> str:
    """SQL of the rows that actions take: episode, k, role, rank, t, u, v, and us of overlap."""
    parameters = []
    for role, part in _roles(spec):
        low, high = map(number, part.valid or (None, None))
        parameters.append(
            f"({text(role)}, {part.take in SPREAD}, {part.take in VALUED}, {low}, {high})"
        )
    rows = (
        "SELECT e.episode, e.start, e.n, p.role, r.rank, x.t, x.u, x.v, x.id, p.spread, "
        "CASE WHEN p.spread AND x.u > x.t THEN x.u - 1 ELSE x.t END AS stop "
        f"FROM ev AS x JOIN roles AS r USING (id) JOIN (VALUES {', '.join(parameters)}) AS p"
        "(role, spread, valued, low, high) ON r.role = p.role "
        "JOIN episodes AS e ON x.subject = e.subject "
        "WHERE (x.v IS NOT NULL OR NOT p.valued) "
        "AND (p.low IS NULL OR x.v BETWEEN p.low AND p.high) "
        f"AND {INSIDE} AND coalesce(greatest(x.u, x.t), x.t) >= e.start"
    )
    dealt = placed(rows, spec, {"begins": ("t", "<="), "stops": ("stop", "<=")})
    return (
        "SELECT y.* EXCLUDE (begins, stops, spread, stop), greatest(0, least(coalesce(y.u, "
        "y.t), d.w) - "
        "greatest(y.t, d.t)) AS us FROM (SELECT *, unnest(range("
        "CASE WHEN spread AND u > t THEN greatest(begins - 1, 0) ELSE begins - 1 END, stops)) AS k "
        f"FROM ({dealt})) AS y JOIN decisions AS d ON y.episode = d.episode AND y.k = d.k "
        "WHERE y.k >= 0"
    )


def _measure(role: str, take: str) -> str:
    """SQL of a number from the rows of one window; NULL where there are none."""
    only = f"FILTER (WHERE role = {text(role)})"
    total = f"CAST(sum(CAST(v AS {DECIMAL})) {only} AS DOUBLE)"
    hours = f"CAST(sum(CAST(v * us / {HOUR}.0 AS {DECIMAL})) {only} AS DOUBLE)"
    share = "CASE WHEN u > t THEN v * us / (u - t) ELSE v END"
    return {
        "any": f"CASE WHEN count(*) {only} > 0 THEN 1 END",
        "count": f"nullif(count(*) {only}, 0)",
        "sum": total,
        "mean": f"{total} / nullif(count(*) {only}, 0)",
        "min": f"min(v) {only}",
        "max": f"max(v) {only}",
        "last": f"-(max({{'t': t, 'r': -rank, 'v': -v}}) {only}).v",
        "dose": hours,
        "amount": f"CAST(sum(CAST({share} AS {DECIMAL})) {only} AS DOUBLE)",
    }[take]


def levels(part: Part) -> list[str]:
    """Names of the levels of a part, level 0 first; `absent` is not among them."""
    if part.choices:
        return [part.absent or "0", *(choice.name for choice in part.choices)]
    return list(part.levels) or [str(i) for i in range(len(part.edges) + 1 if part.edges else 2)]


def labels(spec: Spec) -> list[str]:
    """Every label that an action of this spec can have."""
    action = spec.action
    if action.combine == "first":
        every = [action.none]
        for part in action.parts:
            every += [_named(part, level) for level in levels(part)[1:]]
            if part.absent and part.take in NEED_ROW:
                every.append(_named(part, levels(part)[0]))
        return every
    joint = [""]
    for part in action.parts:
        names = levels(part)
        if part.absent and part.absent not in names:
            names = [part.absent, *names]
        joint = [f"{a}{', ' if a else ''}{part.name} {name}" for a in joint for name in names]
    return joint


def _named(part: Part, level: str) -> str:
    """The label of a part alone: its name, and its level if it has several."""
    if part.choices or part.edges or part.levels:
        return f"{part.name} {level}"
    return part.name


def _level(i: int, part: Part) -> str:
    """SQL of the number of the level of a part; -1 where it is absent."""
    if part.choices:
        whens = " ".join(
            f"WHEN a{i}c{j} IS NOT NULL THEN {j + 1}" for j in range(len(part.choices))
        )
        return f"CASE {whens} ELSE 0 END"
    missing = -1 if part.absent else 0
    if not part.edges:
        return f"CASE WHEN a{i} IS NULL THEN {missing} ELSE 1 END"
    whens = " ".join(f"WHEN a{i} <= {number(edge)} THEN {j}" for j, edge in enumerate(part.edges))
    return f"CASE WHEN a{i} IS NULL THEN {missing} {whens} ELSE {len(part.edges)} END"


def make_action(con: Any, spec: Spec) -> None:
    """Make the table `acted`: episode, k, action, and the measure of each part."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE action_rows AS {action_rows(spec)}")
    measures = ", ".join(f"{_measure(role, part.take)} AS {role}" for role, part in _roles(spec))
    parts = spec.action.parts
    if spec.action.combine == "first":
        whens = []
        for i, part in enumerate(parts):
            lowest = -1 if part.absent and part.take in NEED_ROW else 0
            whens += [
                f"WHEN ({_level(i, part)}) = {j} THEN {text(_named(part, level))}"
                for j, level in enumerate(levels(part))
                if j > lowest
            ]
        label = f"CASE {' '.join(whens)} ELSE {text(spec.action.none)} END"
    else:
        pieces = []
        for i, part in enumerate(parts):
            whens = [
                f"WHEN {j} THEN {text(f'{part.name} {name}')}"
                for j, name in enumerate(levels(part))
            ]
            whens.append(f"WHEN -1 THEN {text(f'{part.name} {part.absent}')}")
            pieces.append(f"CASE {_level(i, part)} {' '.join(whens)} END")
        label = " || ', ' || ".join(pieces)
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE acted AS SELECT d.episode, d.k, {label} AS action FROM "
        "decisions "
        f"AS d LEFT JOIN (SELECT episode, k, {measures} FROM action_rows GROUP BY episode, k) AS a "
        "ON d.episode = a.episode AND d.k = a.k"
    )


def reward_rows(spec: Spec) -> str:
    """SQL of the rows that rewards take: episode, k, role, rank, t, v."""
    parameters = []
    for i, reward in enumerate(spec.rewards):
        if reward.codes:
            low, high = map(number, reward.valid or (None, None))
            parameters.append(
                f"({text(f'r{i}')}, {1 if reward.side == 'finish' else 0}, {reward.at == 'end'}, "
                f"{reward.take in VALUED}, {low}, {high})"
            )
    if not parameters:
        parameters = [f"('', 0, false, false, {number(None)}, {number(None)})"]
    rows = (
        "SELECT e.episode, e.start, e.n, p.role, r.rank, x.t, x.u, x.v, x.id, p.at_end, "
        "x.t - p.late AS edge FROM ev AS x JOIN roles AS r USING (id) "
        f"JOIN (VALUES {', '.join(parameters)}) AS p(role, late, at_end, valued, low, high) "
        "ON r.role = p.role JOIN episodes AS e ON x.subject = e.subject "
        "WHERE (x.v IS NOT NULL OR NOT p.valued) AND (p.low IS NULL OR x.v BETWEEN p.low AND "
        "p.high) "
        "AND x.t >= e.start AND CASE WHEN p.at_end "
        "THEN (x.t < e.finish OR (e.closed AND x.t = e.finish)) "
        f"WHEN p.late = 1 THEN x.t <= e.span ELSE {INSIDE} END"
    )
    dealt = placed(rows, spec, {"upto": ("edge", "<=")})
    return (
        "SELECT * EXCLUDE (upto, edge), upto - 1 AS k "
        f"FROM ({dealt}) WHERE upto > 0 AND (NOT at_end OR upto = n)"
    )


def make_reward(con: Any, spec: Spec) -> None:
    """Make the table `gained`: episode, k, and the terms r0, r1, … of the reward."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE reward_rows AS {reward_rows(spec)}")
    measures = [
        f"{_measure(f'r{i}', reward.take)} AS x{i}"
        for i, reward in enumerate(spec.rewards)
        if reward.codes
    ]
    terms = ", ".join(f"{_term(i, reward)} AS r{i}" for i, reward in enumerate(spec.rewards))
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE gained AS SELECT d.episode, d.k, {terms} FROM decisions "
        "AS d "
        "JOIN episodes AS e ON d.episode = e.episode LEFT JOIN (SELECT "
        f"{', '.join(['episode, k', *measures])} "
        "FROM reward_rows GROUP BY episode, k) AS a ON d.episode = a.episode AND d.k = a.k"
    )


def _term(i: int, reward: Reward) -> str:
    x = f"x{i}" if reward.codes else "1"
    if reward.codes and reward.take not in NEED_ROW:
        x = f"coalesce(x{i}, 0)"
    value = f"{number(reward.times)} * CAST({x} AS DOUBLE) + {number(reward.plus)}"
    if reward.missing is not None:
        value = f"coalesce({value}, {number(reward.missing)})"
    if reward.at == "window":
        return value
    which = ""
    if reward.ended:
        which = f" AND e.ended IN ({', '.join(map(text, reward.ended))})"
    return f"CASE WHEN d.k = e.n - 1{which} THEN {value} ELSE 0.0 END"
