"""Why a policy answers as it does, in words and numbers a reviewer can check."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.intervals import LEVEL, contrast
from dprl._core.table import Table, to_json_value
from dprl.evidence.decision_points import TOLERANCE
from dprl.logs.log import Label

if TYPE_CHECKING:
    from dprl.policies.table import Policy

__all__ = [
    "NONE",
    "Explanation",
    "advantage_interval",
    "apart",
    "change_rows",
    "change_words",
    "counted",
    "explain_state",
    "reason",
    "silences",
    "surest_first",
    "unit",
    "why_silent",
]

KINDS = ("defer", "confirmation", "change")
NOTE = (
    "rule_difference = value - value_usual: what the rule looked at, over all that ever did it "
    "there (the first\ncolumn of counts). advantage: the same comparison at first visits of the "
    "state only, so the two may differ,\neven in sign; with an approximate "
    f"{100 * LEVEL:.0f} % interval low..high of each row alone, not corrected for having\n"
    "picked these rows. The highest lower end comes first."
)
BELOW = (
    "planned may lie below value_usual: a plan values what comes next by all that followed it "
    "there, not only by\nthose that did this here. If these did better later than the others, the "
    "plan does not count on it."
)


def advantage_interval(policy: Policy, s: Any, a: Any) -> tuple[Any, Any]:
    """Interval of A(s,a) = E x - V = (1 - p)(E x - E y), p the share of first visits taking a."""
    total = policy.m[s].sum(axis=-1)
    others = total - policy.m[s, a]
    low, high = contrast(
        policy.m[s, a],
        policy.took_mean[s, a],
        policy.took_sd[s, a],
        others,
        policy.others_mean[s, a],
        policy.others_sd[s, a],
        policy.lowest[s],
        policy.highest[s],
    )
    with np.errstate(invalid="ignore"):
        weight = others / total
    return weight * low, weight * high


def usual_words(policy: Policy, s: int) -> Label:
    """The usual action of a state; 'a or b' where several share the first place."""
    first = np.flatnonzero(policy.m[s] == policy.m[s].max())
    if len(first) == 1:
        label: Label = policy.actions[first[0]]
        return label
    return " or ".join(str(policy.actions[a]) for a in first)


def change_words(policy: Policy) -> list[tuple[Label, Label] | None]:
    """What each state's change is: (usual, suggested), None where there is none."""
    return [
        (usual_words(policy, s), policy.actions[policy.choice[s]]) if k == 2 else None
        for s, k in enumerate(policy.kind.tolist())
    ]


def counted(policy: Policy) -> str:
    """What the counts are counts of."""
    if policy.parameters.get("visits") == "all":
        return "visits"
    return f"{unit(policy)}s"


def unit(policy: Any) -> str:
    """Whose labels training points carry: an episode's, or its group's where it has one."""
    facts = policy.provenance
    return "episode" if facts.get("groups") == facts.get("episodes") else "group"


def apart(feature: str, taken: Container[str]) -> str:
    """What a feature's column is called beside columns of ours: one may be called 'value' too."""
    return f"{feature} (feature)" if feature in taken else feature


def surest_first(policy: Policy, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The decision points `rows` by the lower end of their interval, the highest first.

    Those without an interval come last, by their difference to usual practice.
    """
    chosen = policy.choice[rows]
    low, _ = advantage_interval(policy, rows, chosen)
    difference = policy.Q[rows, chosen] - policy.V[rows]
    return np.asarray(rows[np.lexsort((rows, -difference, -low))])


def change_rows(policy: Policy, rows: NDArray[np.int64], what: str) -> Table:
    """The table of the decision points `rows`, in the order of `surest_first`."""
    rows = surest_first(policy, rows)
    chosen = policy.choice[rows]
    difference = policy.Q[rows, chosen] - policy.V[rows]
    usual = policy.usual[rows]
    total = policy.m[rows].sum(axis=1)
    advantage = policy.took_mean[rows, chosen] - policy.V[rows]
    low, high = advantage_interval(policy, rows, chosen)
    return Table(
        {
            "state": [policy.states[s] for s in rows],
            "usual": [usual_words(policy, s) for s in rows],
            "usual_share": (policy.m[rows, usual] / total).tolist(),
            "suggested": [policy.actions[a] for a in chosen],
            counted(policy): policy.n[rows, chosen].tolist(),
            "others": (total - policy.m[rows, chosen]).tolist(),
            "value": policy.Q[rows, chosen].tolist(),
            "value_usual": policy.V[rows].tolist(),
            "rule_difference": difference.tolist(),
            "advantage": advantage.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "planned": policy.planned[rows, chosen].tolist(),
        },
        caption=f"{len(rows):,} {what}",
        note=_note(policy, rows, chosen) if len(rows) else "",
        identifiers=frozenset({"state", "usual", "suggested"}),
    )


def _note(policy: Policy, rows: NDArray[np.int64], chosen: NDArray[np.int32]) -> str:
    """What must be known to read the table of these rows."""
    short = policy.V[rows] - policy.planned[rows, chosen]
    below = bool((short > _rounding(policy, rows)[:, 0]).any())
    return f"{NOTE}\n{BELOW}" if below else NOTE


NONE = Table({})


@dataclass(frozen=True)
class Explanation:
    """One state's answer and the evidence for it.

    Attributes:
        state: The state asked about.
        kind: "change", "confirmation" or "defer".
        suggested: The suggested action, or None where it defers.
        reason: One sentence.
        episodes: n(s), training trajectories that visited the state.
        value: V̂(s), or None where it was never visited.
        actions: One row an action seen there: counts, values, whether allowed, and why not.
        similar: The most similar episodes, where states are features and cases were asked for;
            empty otherwise.
    """

    state: Label
    kind: str
    suggested: Label | None
    reason: str
    episodes: int
    value: float | None
    actions: Table
    similar: Table = NONE

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        tables = {k: v.to_dicts() for k, v in vars(self).items() if isinstance(v, Table)}
        result: dict[str, Any] = to_json_value({**vars(self), **tables})
        return result

    def __str__(self) -> str:
        answer = "DEFER" if self.suggested is None else f"suggests {self.suggested}"
        lines = [f"{self.state}: {answer} ({self.kind})" if self.suggested is not None else
                 f"{self.state}: {answer}", self.reason]  # fmt: skip
        for table in (self.actions, self.similar):
            if len(table):
                lines += ["", str(table)]
        return "\n".join(lines)


def _verdict(policy: Policy, s: int, a: int) -> str:
    """Suggested, allowed, or the first condition of the rule that (s, a) fails."""
    if policy.allowed[s, a]:
        return "suggested" if a == policy.choice[s] else "allowed"
    n_min = policy.n_min
    others = int(policy.m[s].sum() - policy.m[s, a])
    if policy.n[s, a] < n_min:
        return f"taken in {policy.n[s, a]:,}, fewer than n_min = {n_min:,.0f}"
    if policy.parameters.get("contrast") and others < n_min:
        return f"only {others:,} did otherwise, fewer than n_min = {n_min:,.0f}"
    if not _not_worse(policy, np.array([s]))[0, a]:
        return "worse than usual practice here"
    if policy.certificate is not None:
        return "not certified to be better, or not always available"
    return "not always available here"


def _rounding(policy: Policy, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64 (k, 1): differences in the states `rows` up to which values count as equal."""
    m, mean, sd = policy.m[rows], policy.took_mean[rows], policy.took_sd[rows]
    with np.errstate(invalid="ignore"):
        share = m / m.sum(axis=1, keepdims=True)
        size = np.hypot(np.nan_to_num(mean), np.nan_to_num(sd))
        scale = size.max(axis=1, keepdims=True, initial=0.0)
        within = np.where(scale > 0, size / scale, 0.0)
        size = scale * np.sqrt((share * within**2).sum(axis=1, keepdims=True))
    return np.asarray(TOLERANCE * np.nan_to_num(size))


def _not_worse(policy: Policy, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool (k, A): Q̂ >= V̂ in the states `rows`, but for rounding (see `Evidence.not_worse`)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(policy.V[rows, None] - policy.Q[rows] <= _rounding(policy, rows))


def explain_state(policy: Policy, state: Label, s: int) -> Explanation:
    """Explain code `s` of `policy` (-1 for a state it never saw)."""
    if s < 0 or not policy.m[s].any():
        return Explanation(
            state,
            "defer",
            None,
            "This state was never seen in the training log.",
            0,
            None,
            Table({}),
        )
    chosen, kind = int(policy.choice[s]), KINDS[policy.kind[s]]
    seen = [a for a in range(len(policy.actions)) if policy.n[s, a] > 0]
    total = int(policy.m[s].sum())
    low, high = advantage_interval(policy, s, seen)
    rows = Table(
        {
            "action": [policy.actions[a] for a in seen],
            "share": (policy.m[s, seen] / total).tolist(),
            counted(policy): policy.n[s, seen].tolist(),
            "others": (total - policy.m[s, seen]).tolist(),
            "value": policy.Q[s, seen].tolist(),
            "rule_difference": (policy.Q[s, seen] - policy.V[s]).tolist(),
            "advantage": (policy.took_mean[s, seen] - policy.V[s]).tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "planned": policy.planned[s, seen].tolist(),
            "verdict": [_verdict(policy, s, a) for a in seen],
        },
        caption=f"{total:,} {counted(policy)} came here; usual practice brings {policy.V[s]:.3f}",
        note=BELOW.replace("value_usual", "usual practice")
        if (policy.V[s] - policy.planned[s, seen] > _rounding(policy, np.array([s]))[0]).any()
        else "",
        identifiers=frozenset({"action"}),
    )
    return Explanation(
        state=state,
        kind=kind,
        suggested=policy.actions[chosen] if chosen >= 0 else None,
        reason=reason(policy, s),
        episodes=total,
        value=float(policy.V[s]),
        actions=rows,
    )


def reason(policy: Policy, s: int) -> str:
    """Why the policy answers as it does in its state number `s`, in one sentence."""
    chosen, kind = int(policy.choice[s]), KINDS[policy.kind[s]]
    if chosen < 0:
        return silences(policy)[int(why_silent(policy, np.array([s]))[0])]
    unit, others = counted(policy), policy.m[s].sum() - policy.m[s]
    did = (
        f"{policy.actions[chosen]} was taken in {policy.n[s, chosen]:,} {unit} that came here and "
        f"ended {policy.Q[s, chosen] - policy.V[s]:+.3f} against usual practice "
        f"({others[chosen]:,} did otherwise)"
    )
    if kind == "confirmation":
        return f"{did}; it is what is usually done."
    share = policy.m[s].max() / policy.m[s].sum()
    return f"{did}; usually done is {usual_words(policy, s)} ({100 * share:.0f} %)."


def silences(policy: Policy) -> tuple[str, ...]:
    """Why a policy may be silent, in the order of the codes of `why_silent`."""
    n_min, unit = f"{policy.n_min:,.0f}", counted(policy)
    proved = policy.certificate
    return (
        "This state was never seen in the training log.",
        "What the evidence would allow here is not among the changes that were approved.",
        f"No action was taken here in at least n_min = {n_min} {unit}.",
        f"Fewer than n_min = {n_min} {unit} did anything but the usual here: there is nothing to "
        "compare with.",
        "What did better here was not always available."
        if proved is None
        else f"What did better here is not certified to be better at δ = {proved.delta:g}.",
        "No action with enough evidence did better here than usual practice.",
    )


def why_silent(policy: Policy, rows: NDArray[np.int64]) -> NDArray[np.int8]:
    """int8: which of `silences` holds in each of the states `rows`, were the policy silent there.

    The first of them that does: not seen, not approved, too few took any action, too few did
    otherwise, what did better may not be suggested; else nothing did better.
    """
    m, n = policy.m[rows], policy.n[rows]
    enough = n >= policy.n_min
    compared = enough
    if policy.parameters.get("contrast"):
        compared = enough & (m.sum(axis=1, keepdims=True) - m >= policy.n_min)
    better = compared & _not_worse(policy, rows)
    barred = bool(policy.provenance.get("approved")) & policy.allowed[rows].any(axis=1)
    holds = [
        ~m.any(axis=1), barred, ~enough.any(axis=1), ~compared.any(axis=1), better.any(axis=1),
    ]  # fmt: skip
    return np.select(holds, range(len(holds)), len(holds)).astype(np.int8)
