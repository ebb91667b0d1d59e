"""Why a policy answers as it does, in words and numbers a reviewer can check."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.intervals import LEVEL, contrast
from dprl._core.plural import many
from dprl._core.practice import DIVIDED
from dprl._core.table import Table, printable, to_json_value
from dprl.logs.log import Label
from dprl.policies._credit_words import credit_note
from dprl.policies._decisions import Decisions, Kind
from dprl.policies._hidden_words import HIDDEN, hidden_point
from dprl.policies._practice_words import (
    MIXTURE,
    compared_with,
    divided_words,
    shares_at,
    two_sides,
    usual_words,
)
from dprl.policies._silence import not_worse, rounding, silences, why_silent
from dprl.policies._sure_words import sure_columns, sure_note, sure_words
from dprl.policies._table_notes import BELOW, BEYOND, LOOK, NOTE, plan_beyond

__all__ = [
    "NONE",
    "Explanation",
    "advantage_interval",
    "apart",
    "change_rows",
    "change_words",
    "explain_at",
    "reason",
    "surest_first",
    "usual_words",
]


def advantage_interval(here: Decisions, s: Any, a: Any) -> tuple[Any, Any]:
    """Interval of A(s,a) = E x - V = (1 - p)(E x - E y), p the share of first visits taking a."""
    total = here.m[s].sum(axis=-1)
    others = total - here.m[s, a]
    low, high = contrast(
        here.m[s, a],
        here.took_mean[s, a],
        here.took_sd[s, a],
        others,
        here.others_mean[s, a],
        here.others_sd[s, a],
        here.lowest[s],
        here.highest[s],
    )
    with np.errstate(invalid="ignore"):
        weight = others / total
    return weight * low, weight * high


def change_words(here: Decisions) -> list[tuple[Label, Label] | None]:
    """What each state's change is: (usual, suggested), None where there is none."""
    return [
        (usual_words(here, s), here.actions[here.choice[s]]) if k == Kind.CHANGE else None
        for s, k in enumerate(here.kind.tolist())
    ]


def apart(feature: str, taken: Container[str]) -> str:
    """What a feature's column is called beside columns of ours: one may be called 'value' too."""
    return f"{feature} (feature)" if feature in taken else feature


def surest_first(here: Decisions, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The decision points `rows` by the lower end of their interval, the highest first.

    Those without an interval come last, by their difference to usual practice.
    """
    chosen = here.choice[rows]
    low, _ = advantage_interval(here, rows, chosen)
    difference = here.Q[rows, chosen] - here.V[rows]
    if here.estimates is not None:
        difference = here.estimates.advantage[rows, chosen]
        low = here.estimates.interval(here.n, LEVEL)[0][rows, chosen]
    return np.asarray(rows[np.lexsort((rows, -difference, -low))])


def change_rows(here: Decisions, rows: NDArray[np.int64], what: str) -> Table:
    """The table of the decision points `rows`, in the order of `surest_first`."""
    rows = surest_first(here, rows)
    chosen = here.choice[rows]
    difference = here.Q[rows, chosen] - here.V[rows]
    usual = here.usual[rows]
    total = here.m[rows].sum(axis=1)
    advantage = here.took_mean[rows, chosen] - here.V[rows]
    low, high = advantage_interval(here, rows, chosen)
    return Table(
        {
            "state": [here.states[s] for s in rows],
            "usual": [usual_words(here, s) for s in rows],
            "usual_share": (here.m[rows, usual] / total).tolist(),
            "suggested": [here.actions[a] for a in chosen],
            **sure_columns(here, rows, chosen),
            here.terms.counted: here.n[rows, chosen].tolist(),
            "others": (total - here.m[rows, chosen]).tolist(),
            "value": here.Q[rows, chosen].tolist(),
            "value_usual": here.V[rows].tolist(),
            "rule_difference": difference.tolist(),
            "advantage": advantage.tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "gamma_point": hidden_point(here, rows, chosen).tolist(),
            "planned": here.planned[rows, chosen].tolist(),
        },
        caption=many(rows, what),
        note=_note(here, rows, chosen) if len(rows) else "",
        identifiers=frozenset({"state", "usual", "suggested"}),
    )


def _note(here: Decisions, rows: NDArray[np.int64], chosen: NDArray[np.int32]) -> str:
    """What must be known to read the table of these rows."""
    short = here.V[rows] - here.planned[rows, chosen]
    below = bool((short > rounding(here, rows)[:, 0]).any())
    mixture = [MIXTURE] if here.divided[rows].any() else []
    if here.estimates is not None:
        return "\n".join([*mixture, sure_note(here), LOOK, HIDDEN])
    credited = [] if here.terms.credit is None else [credit_note(here.terms.credit)]
    beyond = bool(plan_beyond(here, rows, chosen).any())
    plan = [*([BELOW] if below else []), *([BEYOND] if beyond else [])]
    return "\n".join([*mixture, *credited, NOTE, HIDDEN, *plan])


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
        actions: One row an action seen there: counts, values, whether allowed, and why not; what
            the evidence allows and people did not approve is called so.
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

    def _repr_html_(self) -> str:
        from dprl._core.notebook import in_notebook

        head = str(self).splitlines()[0]
        return in_notebook(head, [self.reason], (self.actions, self.similar))

    def __str__(self) -> str:
        answer = "DEFER" if self.suggested is None else f"suggests {self.suggested}"
        kind = "" if self.suggested is None else f" ({self.kind})"
        lines = [printable(f"{self.state}: {answer}{kind}"), printable(self.reason)]
        for table in (self.actions, self.similar):
            if len(table):
                lines += ["", str(table)]
        return "\n".join(lines)


def _verdict(here: Decisions, s: int, a: int) -> str:
    """Suggested, allowed, not approved, or the first condition of the rule that (s, a) fails."""
    if here.allowed[s, a]:
        if here.terms.approved and here.choice[s] < 0:
            return "allowed by the evidence, not approved"
        return "suggested" if a == here.choice[s] else "allowed"
    n_min = here.terms.n_min
    others = int(here.m[s].sum() - here.m[s, a])
    if here.n[s, a] < n_min:
        return f"taken in {here.n[s, a]:,}, fewer than n_min = {n_min:,.0f}"
    if here.estimates is not None:
        better = here.estimates.advantage[s, a] > 0
        words = "not surely better, or it may not be suggested"
        return words if better else "not better than usual practice here"
    if here.terms.contrast and others < n_min:
        first = "" if here.terms.counted == "visits" else " at their first visit"
        return f"only {others:,} did otherwise{first}, fewer than n_min = {n_min:,.0f}"
    if not not_worse(here, np.array([s]))[0, a]:
        return "worse than usual practice here"
    if here.terms.delta is not None:
        return "not certified to be better, left out by the certificate, or not always available"
    return "not always available here"


def explain_at(here: Decisions, s: int, state: Label) -> Explanation:
    """Explain decision number `s`; `state` is what the state is called."""
    if not here.seen[s]:
        return Explanation(state, "defer", None, here.terms.unseen, 0, None, NONE)
    chosen, kind = int(here.choice[s]), Kind(here.kind[s]).word
    seen = [a for a in range(len(here.actions)) if here.n[s, a] > 0]
    total = int(here.m[s].sum())
    low, high = advantage_interval(here, s, seen)
    rows = Table(
        {
            "action": [here.actions[a] for a in seen],
            "share": (here.m[s, seen] / total).tolist(),
            **sure_columns(here, s, seen),
            here.terms.counted: here.n[s, seen].tolist(),
            "others": (total - here.m[s, seen]).tolist(),
            "value": here.Q[s, seen].tolist(),
            "rule_difference": (here.Q[s, seen] - here.V[s]).tolist(),
            "advantage": (here.took_mean[s, seen] - here.V[s]).tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "planned": here.planned[s, seen].tolist(),
            "verdict": [_verdict(here, s, a) for a in seen],
        },
        caption=f"{many(total, here.terms.counted)} came here; "
        + (
            f"{DIVIDED}, and all actions together bring"
            if here.divided[s]
            else "usual practice brings"
        )
        + f" {here.V[s]:.3f}"
        + ("" if here.terms.credit is None else " in credit"),
        note=_note_of_one(here, s, seen),
        identifiers=frozenset({"action"}),
    )
    return Explanation(
        state=state,
        kind=kind,
        suggested=here.actions[chosen] if chosen >= 0 else None,
        reason=reason(here, s),
        episodes=total,
        value=float(here.V[s]),
        actions=rows,
    )


def _note_of_one(here: Decisions, s: int, seen: list[int]) -> str:
    """What must be known to read the table of the actions `seen` in state number `s`."""
    if here.estimates is not None:
        return sure_note(here)
    lines = [] if here.terms.credit is None else [credit_note(here.terms.credit)]
    if (here.V[s] - here.planned[s, seen] > rounding(here, np.array([s]))[0]).any():
        lines.append(BELOW)
    if plan_beyond(here, np.full(len(seen), s), seen).any():
        lines.append(BEYOND.replace("from there", "from here"))
    return "\n".join(lines).replace("value_usual", "usual practice")


def reason(here: Decisions, s: int) -> str:
    """Why the policy answers as it does in its state number `s`, in one sentence."""
    chosen, kind = int(here.choice[s]), Kind(here.kind[s]).word
    if here.reasons is not None:
        return str(here.reasons[s])
    if chosen < 0:
        return silences(here)[int(why_silent(here, np.array([s]))[0])]
    in_credit = "" if here.terms.credit is None else f" in credit (λ = {here.terms.credit:g})"
    did = (
        sure_words(here, s, chosen)
        if here.estimates is not None
        else f"{here.actions[chosen]} was taken in {many(here.n[s, chosen], here.terms.counted)} "
        f"that came here and ended {here.Q[s, chosen] - here.V[s]:+.3f} against "
        f"{compared_with(here, s)}{in_credit} ({two_sides(here, s, chosen)})"
    )
    if kind == "confirmation":
        return f"{did}; it is what is usually done."
    if here.divided[s]:
        return f"{did}; {divided_words(shares_at(here, s))}."
    share = here.m[s].max() / here.m[s].sum()
    return f"{did}; usually done is {usual_words(here, s)} ({100 * share:.0f} %)."
