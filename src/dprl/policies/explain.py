"""Why a policy answers as it does, in words and numbers a reviewer can check."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import DIVIDED, Bools, Codes, Floats, Ints
from dprl._core.inference import LEVEL, breakdown_of_moments, contrast
from dprl._core.table import Table, many, printable, to_json_value
from dprl._core.words import duration, joined, say, say_many, sentences, word, worded
from dprl.errors import PolicyError
from dprl.evidence.decision_points import TOLERANCE
from dprl.logs.called import NOBODY
from dprl.logs.log import Label
from dprl.logs.source import UNRELATED, WEIGHED, unseen_words
from dprl.policies.protocol import PAIRS, STATES, Avoid, Decisions, Kind


class Doing(NamedTuple):
    """What is known of those who do something in some states, and of those who do otherwise.

    Attributes:
        n: Trajectories that ever do it there.
        value: Their mean return.
        took: Trajectories that do it at their first visit.
        mean: Their mean return.
        sd: Its standard deviation.
        others: Trajectories that do otherwise at their first visit.
        others_mean: Their mean return.
        others_sd: Its standard deviation.
        low: The smallest return at a first visit.
        high: The largest.
        planned: Value of doing it now and following the plan after.
    """

    n: Any
    value: Any
    took: Any
    mean: Any
    sd: Any
    others: Any
    others_mean: Any
    others_sd: Any
    low: Any
    high: Any
    planned: Any

    def interval(self) -> tuple[Any, Any]:
        """Interval of its advantage E x - V = (1 - p)(E x - E y), p the share that does it."""
        low, high = contrast(
            self.took, self.mean, self.sd, self.others, self.others_mean, self.others_sd, self.low,
            self.high,
        )  # fmt: skip
        with np.errstate(invalid="ignore"):
            weight = self.others / (self.took + self.others)
        return weight * low, weight * high


def doing(here: Decisions, s: Any, a: Any, avoid: Any = False) -> Doing:
    """What is known of doing a in the states s, or of anything but a where that is to be avoided.

    Args:
        here: The decisions.
        s: Numbers of states, (k,), or one.
        a: Codes of actions, (k,), or one.
        avoid: Whether it is doing anything but a, (k,), or one truth value. The sides are then
            exchanged; nobody plans with it, and only first visits are told apart.
    """
    took, others = here.m[s, a], here.m[s].sum(axis=-1) - here.m[s, a]
    x, y = here.took_mean[s, a], here.others_mean[s, a]
    x_sd, y_sd = here.took_sd[s, a], here.others_sd[s, a]
    n, value, planned = here.n[s, a], here.Q[s, a], here.planned[s, a]

    def swapped(one: Any, other: Any) -> Any:
        return np.where(avoid, other, one)

    return Doing(
        swapped(n, others), swapped(value, y), swapped(took, others), swapped(x, y),
        swapped(x_sd, y_sd), swapped(others, took), swapped(y, x), swapped(y_sd, x_sd),
        here.lowest[s], here.highest[s], swapped(planned, y),
    )  # fmt: skip


def following(here: Decisions, s: Any) -> Doing:
    """What is known of doing as the policy says in the states s, and of doing otherwise."""
    return doing(here, s, here.named[s], here.avoid[s] >= 0)


def advantage_interval(here: Decisions, s: Any, a: Any) -> tuple[Any, Any]:
    """Interval of A(s,a) = E x - V = (1 - p)(E x - E y), p the share of first visits taking a."""
    return doing(here, s, a).interval()


def change_words(here: Decisions) -> list[tuple[Label, Label] | None]:
    """What each state's change is: (usual, suggested), None where there is none."""
    return [
        (usual_words(here, s), suggested_words(here, s)) if change else None
        for s, change in enumerate(here.changes.tolist())
    ]


def suggested_words(here: Decisions, s: int) -> Label:
    """What it suggests in state number `s`: the label of an action, or "not" such a label."""
    label: Label = here.actions[here.named[s]]
    return label if here.choice[s] >= 0 else str(Avoid(label))


def apart(feature: str, taken: Container[str]) -> str:
    """What a feature's column is called beside columns of ours: one may be called 'value' too."""
    return f"{feature} (feature)" if feature in taken else feature


def surest_first(here: Decisions, rows: Ints) -> Ints:
    """The decision points `rows` by the lower end of their interval, the highest first.

    Those without an interval come last, by their difference to usual practice.
    """
    chosen, follow = here.named[rows], following(here, rows)
    low, _ = follow.interval()
    difference = follow.value - here.V[rows]
    if here.estimates is not None:
        difference = here.estimates.advantage[rows, chosen]
        low = here.estimates.interval(here.n, LEVEL)[0][rows, chosen]
    return np.asarray(rows[np.lexsort((rows, -difference, -low))])


def change_rows(here: Decisions, rows: Ints, what: str) -> Table:
    """The table of the decision points `rows`, in the order of `surest_first`."""
    rows = surest_first(here, rows)
    chosen, follow = here.named[rows], following(here, rows)
    usual = here.usual[rows]
    total = here.m[rows].sum(axis=1)
    low, high = follow.interval()
    table = Table(
        {
            "state": [here.states[s] for s in rows],
            "usual": [usual_words(here, s) for s in rows],
            "usual_share": (here.m[rows, usual] / total).tolist(),
            "suggested": [suggested_words(here, s) for s in rows],
            **sure_columns(here, rows, chosen),
            here.terms.counted: follow.n.tolist(),
            "others": follow.others.tolist(),
            "value": follow.value.tolist(),
            "value_usual": here.V[rows].tolist(),
            "rule_difference": (follow.value - here.V[rows]).tolist(),
            "advantage": (follow.mean - here.V[rows]).tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
            "gamma_point": hidden_point(follow).tolist(),
            "planned": follow.planned.tolist(),
        },
        caption=many(rows, what),
        note=in_direction(here, _note(here, rows, chosen)) if len(rows) else "",
        identifiers=frozenset({"state", "usual", "suggested"}),
        first=("state", "suggested", "usual", *SURE, here.terms.counted, "others", "advantage",
               "low", "high"),
        in_short=IN_SHORT,
        called=here.terms.called,
    )  # fmt: skip
    return here.terms.measured.table(table)


def in_direction(here: Decisions, note: str) -> str:
    """A note about columns, where less of the outcome is better: their ends change places."""
    if not here.terms.measured.falls:
        return note
    for before, after in TURNED:
        note = note.replace(before, after)
    return note


IN_SHORT = (
    f"advantage: over usual practice at first visits; low, high: approximate {100 * LEVEL:.0f} % "
    "of each row alone, not\ncorrected for having picked it."
)
"""What stands below the columns of changes that are printed."""
SURE = ("sure_advantage", "sure_low", "sure_high")
"""What comes first of a learner that asks how sure it is."""
TURNED = (
    ("The highest lower end", "The lowest upper end"),
    ("The highest sure_low", "The lowest sure_high"),
    ("sure_low the lower end", "sure_high the upper end"),
    ("planned may lie below", "planned may lie above"),
)  # fmt: skip
"""What notes say of ends, and what they say where the sign changes."""


def _note(here: Decisions, rows: Ints, chosen: Codes) -> str:
    """What must be known to read the table of these rows."""
    named = here.choice[rows] >= 0
    rows, chosen, every = rows[named], chosen[named], rows
    short = here.V[rows] - here.planned[rows, chosen]
    below = bool((short > rounding(here, rows)[:, 0]).any())
    mixture = [MIXTURE] if here.divided[every].any() else []
    mixture += [str(OTHERWISE)] if len(rows) < len(every) else []
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
        kind: "change", "confirmation", "avoid" or "defer".
        suggested: The suggested action, "not" an action where it says what to avoid, or None where
            it defers.
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
        from dprl._core.table import in_notebook

        head = str(self).splitlines()[0]
        return in_notebook(head, [self.reason], (self.actions, self.similar))

    def __str__(self) -> str:
        called = self.actions.called or NOBODY
        named = "" if self.suggested is None else called.act(self.suggested)
        answer = "DEFER" if self.suggested is None else f"suggests {named} ({self.kind})"
        state = called.said(self.state, "state")
        lines = [printable(f"{state}: {answer}"), printable(called.said(self.reason))]
        for table in (self.actions, self.similar):
            if len(table):
                lines += ["", str(table)]
        return "\n".join(lines)


def _verdict(here: Decisions, s: int, a: int) -> str:
    """Suggested, allowed, not approved, or the first condition of the rule that (s, a) fails."""
    if a == here.avoid[s]:
        return "to be avoided"
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
    kind = Kind(here.kind[s]).word
    seen = [a for a in range(len(here.actions)) if here.n[s, a] > 0]
    total = int(here.m[s].sum())
    low, high = advantage_interval(here, s, seen)
    shown = here.terms.measured
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
        + f" {shown.shown(here.V[s]):.3f}"
        + ("" if here.terms.credit is None else " in credit"),
        note=in_direction(here, _note_of_one(here, s, seen)),
        identifiers=frozenset({"action"}),
        called=here.terms.called,
    )
    return Explanation(
        state=state,
        kind=kind,
        suggested=suggested_words(here, s) if here.speaks[s] else None,
        reason=reason(here, s),
        episodes=total,
        value=float(shown.shown(here.V[s])),
        actions=shown.table(rows),
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


NONE_YET: Final[Mapping[int, str]] = MappingProxyType({})


def reason(here: Decisions, s: int, silent: Mapping[int, str] = NONE_YET) -> str:
    """Why the policy answers as it does in its state number `s`, in one sentence.

    `silent` is `silent_words(here)`, where many states are asked about.
    """
    chosen, kind = int(here.choice[s]), Kind(here.kind[s]).word
    if here.reasons is not None:
        return str(here.reasons[s])
    if here.avoid[s] >= 0:
        return warned_words(here, s)
    if chosen < 0:
        return silent.get(s) or silent_words(here, np.array([s]))[s]
    shown = here.terms.measured.shown
    in_credit = "" if here.terms.credit is None else f" in credit (λ = {here.terms.credit:g})"
    did = (
        sure_words(here, s, chosen)
        if here.estimates is not None
        else f"{_named(here, chosen)} was taken in {many(here.n[s, chosen], here.terms.counted)} "
        f"that came here and ended {shown(here.Q[s, chosen] - here.V[s]):+.3f} against "
        f"{compared_with(here, s)}{in_credit} ({two_sides(here, s, chosen)})"
    )
    if kind == "confirmation":
        return f"{did}; it is what is usually done."
    if here.divided[s]:
        return f"{did}; {divided_words(shares_at(here, s))}."
    share = here.m[s].max() / here.m[s].sum()
    usual = here.terms.called.act(usual_words(here, s))
    return f"{did}; usually done is {usual} ({100 * share:.0f} %)."


def silent_words(here: Decisions, rows: Ints) -> dict[int, str]:
    """Why the policy is silent in each of the states `rows`, where it is."""
    words = silences(here)
    codes = why_silent(here, rows).tolist()
    return {s: words[code] for s, code in zip(rows.tolist(), codes, strict=True)}


def alike(here: Decisions) -> Ints:
    """int64 (k,): the number of the first state with the same answer and evidence throughout."""
    sure = here.estimates
    columns = [here.choice, here.avoid, *(getattr(here, name) for name in (*PAIRS, *STATES))]
    columns += [] if sure is None else [sure.advantage, sure.se]
    k = len(here)
    rows = np.column_stack([np.reshape(c, (k, -1)) for c in columns]).astype(np.float64)
    said = [None] * k if here.reasons is None else here.reasons.tolist()
    first: dict[Any, int] = {}
    keys = zip((row.tobytes() for row in rows), said, strict=True)
    return np.array([first.setdefault(key, s) for s, key in enumerate(keys)], np.int64)


def _named(here: Decisions, a: int) -> str:
    """An action as people call it."""
    return str(here.terms.called.act(here.actions[a]))


# -- what is to be avoided -------------------------------------------------------------------------

OTHERWISE = say(
    "not an action: anything else, in the proportions in which usual practice does the rest."
)


def warned_words(here: Decisions, s: int) -> str:
    """Why the policy warns of an action in its state number `s`, in one sentence."""
    follow, action = following(here, s), _named(here, int(here.avoid[s]))
    ended = here.terms.measured.shown(float(follow.others_mean - follow.mean))
    return (
        f"{action} was taken by {int(follow.others):,} of "
        f"{many(int(follow.took + follow.others), here.terms.counted)} at their first visit and "
        f"ended {ended:+.3f} against whatever else was done; no "
        "single one of the others is surely the best."
    )


# -- what is usually done in a state, in words; or that practice is divided there ------------------

MIXTURE = (
    f"{DIVIDED}: no action has half of the share there, so there is no usual one. value_usual is "
    "what all\nactions together got, each by its share (the mixture), and whatever is suggested "
    "there is a change."
)
SHOWN = 4
"""Number of actions that are named where practice is divided."""


def usual_words(here: Decisions, s: int) -> Label:
    """The usual action of a state: 'a or b' where both have half, DIVIDED where none has."""
    if here.divided[s]:
        return DIVIDED
    first = np.flatnonzero(here.m[s] == here.m[s].max())
    if len(first) == 1:
        label: Label = here.actions[first[0]]
        return label
    return joined(say(" or "), (str(here.actions[a]) for a in first))


def compared_with(here: Decisions, s: int) -> str:
    """With what a suggestion in state number `s` is compared."""
    return "all that was done there together" if here.divided[s] else "usual practice"


def shares_at(here: Decisions, s: int) -> list[tuple[Label, float]]:
    """The actions of state number `s` and their shares at first visits, the largest first."""
    order = np.argsort(-here.m[s], kind="stable").tolist()
    total = int(here.m[s].sum())
    return [(here.actions[a], int(here.m[s, a]) / total) for a in order if here.m[s, a]]


def divided_words(shares: Sequence[tuple[Any, float]]) -> str:
    """That practice is divided, and how; `shares` are (action, share), the largest first."""
    named = [
        say("{action} {share:.0f} %", action=str(action), share=100 * share)
        for action, share in shares[:SHOWN]
    ]
    more = len(shares) - SHOWN
    if more > 0:
        rest = 100 * sum(s for _, s in shares[SHOWN:])
        named.append(say("{n:,} more {share:.0f} %", n=more, share=rest))
    return joined(": ", (DIVIDED, joined(", ", named)))


def two_sides(here: Decisions, s: int, a: int) -> str:
    """How many took action `a` in state `s` and how many did otherwise, both of the same visits.

    Those who ever took it are more than those who took it at their first visit: only the latter
    can be put beside those who did otherwise then.
    """
    took, others = int(here.m[s, a]), int(here.m[s].sum() - here.m[s, a])
    which = "of all visits" if here.terms.counted == "visits" else "at their first visit"
    return f"{which} {took:,} took it and {others:,} did otherwise"


# -- what a learner that asks how sure it is says of its suggestions, in columns and in words ------


def sure_columns(here: Decisions, rows: Any, actions: Any) -> dict[str, list[float]]:
    """The columns of a learner that asks how sure it is; none for others."""
    if here.estimates is None:
        return {}
    low, _ = here.estimates.interval(here.n, LEVEL)
    return {
        "sure_advantage": here.estimates.advantage[rows, actions].tolist(),
        "sure_se": here.estimates.se[rows, actions].tolist(),
        "sure_low": low[rows, actions].tolist(),
    }


def sure_note(here: Decisions) -> str:
    """How to read the columns of a learner that asks how sure it is."""
    return (
        f"sure_advantage: what the action brings over usual practice here, in {here.terms.sure};\n"
        f"sure_se its standard error, sure_low the lower end of its {100 * LEVEL:.0f} % interval "
        "(this row alone,\nnot corrected for having picked it). The highest sure_low comes first."
    )


def sure_words(here: Decisions, s: int, a: int) -> str:
    """What a learner that asks how sure it is says of a suggestion."""
    assert here.estimates is not None
    low, _ = here.estimates.interval(here.n, LEVEL)
    outcome = here.terms.measured
    advantage, end = map(outcome.shown, (here.estimates.advantage[s, a], low[s, a]))
    return (
        f"{_named(here, a)} was taken in {here.n[s, a]:,} {here.terms.counted} that came here; in "
        f"{here.terms.sure} it brings {advantage:+.3f} over "
        f"{compared_with(here, s)} (standard error {here.estimates.se[s, a]:.3f}, "
        f"{100 * LEVEL:.0f} % {'upper' if outcome.falls else 'lower'} end {end:+.3f})"
    )


# -- how strong an unrecorded cause must be to undo a change ---------------------------------------

HIDDEN = (
    "gamma_point (Γ*, as estimated, without allowance for chance): an unrecorded cause that moves "
    "the odds of the\nsuggestion by a larger factor, the state being equal, could make the "
    "advantage disappear; 20 means 20 or more."
)


def hidden_point(do: Doing) -> Any:
    """Γ* of an advantage as estimated: exact for outcomes in two values, else the least that it is.

    `dprl._core.inference` has the reasons.
    """
    return breakdown_of_moments(do.mean, do.sd, do.others_mean, do.low, do.high)


# -- what is said of credit in place of returns (`dprl.evidence.excursions`)
# ---------------------------


def credit_assumes(lam: float) -> str:
    """What a comparison of credit with this λ assumes, in words."""
    if lam == 1:
        return say(
            "λ = 1 takes the foretold value of the state off the whole return: it assumes no more "
            "than returns do, also where the model is wrong."
        )
    ahead = (
        say("counts the reward of one step and trusts the model for all that comes after")
        if lam == 0
        else say(
            "counts a surprise k steps later {lam:g}^k times, so an effect that shows later than "
            "about {lam2:.3g} steps is seen only if the model sees it coming",
            lam=lam,
            lam2=1 / (1 - lam),
        )
    )
    return sentences(
        say(
            "λ = {lam:g} {ahead}: it assumes that the model of values is right, and that the "
            "features tell all that matters for what comes next (the Markov property).",
            lam=lam,
            ahead=ahead,
        ),
        say(
            "Where that fails, comparisons are wrong however long the log is; λ = 1 does not need "
            "it."
        ),
    )


def credit_stated(lam: float) -> tuple[str, ...]:
    """What must be known about a policy that was learned with credit, in sentences."""
    return (
        sentences(
            say(
                "It compares credit (λ = {lam:g}), not returns: how much better things went than "
                "a model of usual practice, fitted on others, foretold there.",
                lam=lam,
            ),
            say(
                "Values are advantages over that model, about 0 where things go as usual; "
                "differences are in the unit of returns."
            ),
        ),
        credit_assumes(lam),
    )


def credit_note(lam: float) -> str:
    """How to read the values of a table of such a policy."""
    return (
        f"value, value_usual and planned are credits (λ = {lam:g}), not returns: how much better "
        "things went than\na model of usual practice foretold, about 0 where they go as usual. "
        "Differences are in the unit of returns."
    )


# -- how to read the tables of changes: notes that stand below them --------------------------------

NOTE = (
    "rule_difference = value - value_usual: what the rule looked at, over all that ever did it "
    "there (the first\ncolumn of counts). advantage: the same comparison at first visits of the "
    "state only, so the two may differ,\neven in sign; with an approximate "
    f"{100 * LEVEL:.0f} % interval low..high of each row alone, not corrected for having\n"
    "picked these rows. The highest lower end comes first."
)
LOOK = (
    "The other columns are another look, at returns. rule_difference = value - value_usual: over "
    "all that ever did\nit there; a rule of DPRL would look at this, here it decided nothing. "
    "advantage: the same comparison at first\nvisits of the state only; with an approximate "
    f"{100 * LEVEL:.0f} % interval low..high of each row alone, not corrected for\nhaving picked "
    "these rows."
)
BELOW = (
    "planned may lie below value_usual: a plan values what comes next by all that followed it "
    "there, not only by\nthose that did this here. If these did better later than the others, the "
    "plan does not count on it."
)
BEYOND = (
    "planned lies beyond every return that was seen from there: a plan joins parts of several "
    "episodes, and goes on\nwhere they ended, since it does not know how long an episode may last. "
    "It ranks actions; do not read it as a forecast."
)


def plan_beyond(here: Decisions, rows: Any, chosen: Any) -> Bools:
    """bool (k,): whether `planned` of these pairs lies beyond all returns seen from their state.

    A plan joins parts of several episodes. Where a state comes again and again it also goes on
    longer than any episode did: with episodes of 20 steps that earn 1 a step and gamma .99, a plan
    that stays in one state is worth 100, and no return is above 18.2.
    """
    planned, low, high = here.planned[rows, chosen], here.lowest[rows], here.highest[rows]
    by_plan = planned != here.Q[rows, chosen]  # without a plan it is the mean return
    with np.errstate(invalid="ignore"):  # a range without an end: nothing lies beyond it
        slack = TOLERANCE * np.maximum(np.abs(low), np.abs(high))
        return np.asarray(by_plan & ((planned > high + slack) | (planned < low - slack)))


# -- why a policy is silent in a state -------------------------------------------------------------


def rounding(here: Decisions, rows: Ints) -> Floats:
    """float64 (k, 1): differences in the states `rows` up to which values count as equal."""
    m, mean, sd = here.m[rows], here.took_mean[rows], here.took_sd[rows]
    with np.errstate(invalid="ignore"):
        share = m / m.sum(axis=1, keepdims=True)
        size = np.hypot(np.nan_to_num(mean), np.nan_to_num(sd))
        scale = size.max(axis=1, keepdims=True, initial=0.0)
        within = np.where(scale > 0, size / scale, 0.0)
        size = scale * np.sqrt((share * within**2).sum(axis=1, keepdims=True))
    return np.asarray(TOLERANCE * np.nan_to_num(size))


def not_worse(here: Decisions, rows: Ints) -> Bools:
    """bool (k, A): Q̂ >= V̂ in the states `rows`, but for rounding (see `Evidence.not_worse`)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(here.V[rows, None] - here.Q[rows] <= rounding(here, rows))


def silences(here: Decisions) -> tuple[str, ...]:
    """Why a policy may be silent, in the order of the codes of `why_silent`."""
    n_min, unit = f"{here.terms.n_min:,.0f}", here.terms.counted
    delta = here.terms.delta
    return (
        here.terms.elsewhere,
        say("What the evidence would allow here is not among the changes that were approved."),
        say("No action was taken here in at least n_min = {n} {unit}.", n=n_min, unit=word(unit)),
        say(
            "Fewer than n_min = {n} {unit} did anything but the usual here: there is nothing to "
            "compare with.",
            n=n_min,
            unit=word(unit),
        ),
        (
            say("What did better here was not always available.")
            if delta is None
            else say(
                "What did better here is not certified to be better at δ = {d:g}, or the "
                "certificate leaves it out.",
                d=delta,
            )
        ),
        (
            say("No action with enough evidence did better here than usual practice.")
            if here.estimates is None
            else say(
                "No action that may be suggested is surely better here than usual practice, in "
                "{where}.",
                where=word(here.terms.sure),
            )
        ),
    )


def why_silent(here: Decisions, rows: Ints) -> NDArray[np.int8]:
    """int8: which of `silences` holds in each of the states `rows`, were the policy silent there.

    The first of them that does: not seen, not approved, too few took any action, too few did
    otherwise, what did better may not be suggested; else nothing did better.
    """
    m, n = here.m[rows], here.n[rows]
    enough = n >= here.terms.n_min
    compared = enough
    if here.terms.contrast:
        compared = enough & (m.sum(axis=1, keepdims=True) - m >= here.terms.n_min)
    better = compared & not_worse(here, rows)
    if here.estimates is not None:
        better = np.zeros_like(better)  # silent because nothing was sure, whatever first visits did
    barred = here.terms.approved & here.allowed[rows].any(axis=1)
    holds = [
        ~m.any(axis=1), barred, ~enough.any(axis=1), ~compared.any(axis=1), better.any(axis=1),
    ]  # fmt: skip
    return np.select(holds, range(len(holds)), len(holds)).astype(np.int8)


# -- what is said of a policy that keeps no evidence: what it does, and no more --------------------


def explain_without_evidence(here: Decisions, s: int, state: Label, learner: str) -> Explanation:
    """Explain decision number `s` of a policy that keeps no evidence."""
    chosen = int(here.choice[s])
    kind = Kind(here.kind[s]).word
    if chosen < 0:
        return Explanation(state, kind, None, f"{learner} names no action here.", 0, None, NONE)
    action, chance = here.actions[chosen], here.pi[s, chosen]
    why = (
        f"{learner} takes {action} here with probability {chance:.3f}. It keeps no record of what "
        "was usually done, or of what came of it."
    )
    rows = Table(
        {"action": list(here.actions), "probability": here.pi[s].tolist()},
        caption=f"What {learner} does here",
        called=here.terms.called,
        identifiers=frozenset({"action"}),
    )
    return Explanation(state, kind, action, why, 0, None, rows)


def no_record(learner: str) -> PolicyError:
    """Why a policy that keeps no evidence lists no changes."""
    return PolicyError(
        f"a policy of {learner} keeps no record of usual practice: it cannot say what it changes.",
        do=worded("Only DPRL's policies list changes; judge this one with {dprl.evaluate}."),
    )


# -- what the values of a policy are of: the time that counts, cut episodes, sites -----------------


def window_words(window: str | None) -> str:
    """What a fixed follow-up means for every value; '' without one."""
    if not window:
        return ""
    return say(
        "Values are of the first {window} of an episode: what comes later does not count.",
        window=duration(window),
    )


def conditions_of(parameters: Mapping[str, Any], provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """The sentences about a policy's training log that say what its values are of.

    Args:
        parameters: The learner and its settings.
        provenance: Where the policy comes from.
    """
    words = [window_words(provenance.get("columns", {}).get("follow_up"))]
    n = int(provenance.get("cut_episodes") or 0)
    cut = {
        "drop-unrelated": say_many(
            "{n:,} cut episode was left out: {unrelated} (declared by the user).",
            "{n:,} cut episodes were left out: {unrelated} (declared by the user).",
            n,
            unrelated=UNRELATED,
        ),
        "drop": say_many(
            "{n:,} cut episode was left out: nothing is claimed about what is left.",
            "{n:,} cut episodes were left out: nothing is claimed about what is left.",
            n,
        ),
        "ipcw": say_many(
            "{n:,} episode was cut: {weighed}", "{n:,} episodes were cut: {weighed}", n,
            weighed=WEIGHED,
        ),
    }  # fmt: skip
    unseen = unseen_words(provenance.get("columns", {}))
    words.append(unseen or (cut.get(str(parameters.get("cut")), "") if n else ""))
    circling = int(provenance.get("circles") or 0)
    if circling:
        words.append(
            say_many(
                "In {n:,} state the policy defers because, without discount, what would be "
                "suggested there never comes to an end; a gamma below 1 (0.999, say) gives it a "
                "value.",
                "In {n:,} states the policy defers because, without discount, what would be "
                "suggested there never comes to an end; a gamma below 1 (0.999, say) gives it a "
                "value.",
                circling,
            )
        )
    if "n_sites" in provenance:
        words += [note for note in provenance.get("notes", ()) if isinstance(note, str)]
    return tuple(sentence for sentence in words if sentence)


# -- what is said of the changes that luck alone would make (`dprl.planning.luck`) -----------------

MORE = ("points",)
"""Numbers that only some have."""
NUMBERS = ("changes", "expected", "survive", "rate", "draws", "states")
"""The numbers that are kept of it."""
WARY = say("Luck may explain most of them: the gate keeps only what a log proves.")
"""What is added where most changes may be luck."""


@dataclass(frozen=True)
class Luck:
    """How far luck explains the changes of a policy, in words.

    Attributes:
        sentence: How many changes there are, how many luck alone would make, how many survive.
        caution: What to beware of, if luck may explain more than half of the changes; else ''.
    """

    sentence: str
    caution: str = ""

    @property
    def words(self) -> str:
        """The sentence, with the caution if there is one."""
        return sentences(self.sentence, self.caution)


def luck_words(facts: Mapping[str, Any] | None, *, part: bool = False) -> Luck | None:
    """What to say of luck; None where nothing is recorded, or nothing would change.

    Args:
        facts: What `dprl.planning.luck.luck_of` returned.
        part: Whether the policy is only a part of the one that this is about.
    """
    if facts is None:
        return None
    if "skipped" in facts:
        return Luck(
            say(
                "How many of its changes are luck was not counted: {why}.",
                why=word(facts["skipped"]),
            )
        )
    changes, expected, survive = facts["changes"], facts["expected"], facts["survive"]
    if not changes:
        return None
    about = (
        say("{expected:,.0f}", expected=expected)
        if expected >= 9.95
        else say("{expected:.1f}", expected=expected)
    )
    made = say_many("{n:,} change", "{n:,} changes", changes)
    if "points" in facts and part:
        made = say(
            "At {states:,} of {points:,} training points the policy it was taken from makes "
            "{changes}",
            states=facts["states"],
            points=facts["points"],
            changes=made,
        )
    elif "points" in facts:
        made = say(
            "At {states:,} of {points:,} training points it makes {changes}",
            states=facts["states"],
            points=facts["points"],
            changes=made,
        )
    elif part:
        made = say("The policy it was taken from makes {changes}", changes=made)
    sentence = say_many(
        "{made}; if no action mattered, luck alone would make about {about}; {n:,} survives a "
        "false-discovery rate of {rate:g} %.",
        "{made}; if no action mattered, luck alone would make about {about}; {n:,} survive a "
        "false-discovery rate of {rate:g} %.",
        survive,
        made=made,
        about=about,
        rate=100 * facts["rate"],
    )
    wary = 2 * expected > changes > 2 * survive
    return Luck(sentence, WARY if wary else "")


def wrong_luck(facts: Any) -> str:
    """What is wrong with what a file records of luck, in words; '' if nothing is."""
    if not isinstance(facts, Mapping):
        return f"what it records of luck is {facts!r}"
    if "skipped" in facts:
        return "" if isinstance(facts["skipped"], str) else "luck was skipped for no reason"
    for name in (*NUMBERS, *(more for more in MORE if more in facts)):
        value: Any = facts.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= value < math.inf):
            return f"{name!r} of its luck is {value!r}"
    return ""
