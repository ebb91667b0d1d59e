"""What a build says in words: the dictionary, the flow of counts, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dprl._core.table import Table

if TYPE_CHECKING:
    from dprl.logs._findings import Finding
    from dprl.logs.events.spec import Feature, Reward, Spec

__all__ = ["dictionary", "flow", "missing"]


def _listed(codes: Sequence[str], most: int = 4) -> str:
    more = f" and {len(codes) - most} more" if len(codes) > most else ""
    return ", ".join(codes[:most]) + more


def _feature(feature: Feature) -> str:
    """What a feature is, in a sentence."""
    if feature.take == "elapsed":
        return "Hours since the episode began."
    if feature.take == "step":
        return "Number of decisions before this one."
    what = {
        "last": "Last value", "mean": "Mean", "min": "Lowest value", "max": "Highest value",
        "count": "Number of rows", "sum": "Sum", "slope": "Slope per hour",
        "age": "Hours since the last row", "ever": "Whether there was a row (1) or none (0)",
        "dose": "Value times hours",
    }[feature.take]  # fmt: skip
    codes = f"{what} of {_listed(feature.codes)}"
    if feature.static:
        rows = "rows without a time"
    else:
        close = "]" if feature.until == "at" else ")"
        begin = {"episode": "[beginning of the episode", "history": "(all history"}.get(
            feature.within, f"[t − {feature.within}"
        )
        rows = f"{begin}, t{close}"
    extra = [f"known {feature.known_after} after its time"] if feature.known_after else []
    if feature.valid:
        extra.append(f"values from {feature.valid[0]:g} to {feature.valid[1]:g}")
    if feature.times != 1:
        extra.append(f"times {feature.times:g}")
    extra.append(
        "missing where there is none"
        if feature.fill is None and feature.take in ("last", "mean", "min", "max", "slope", "age")
        else ""
    )
    if feature.fill is not None:
        extra.append(f"{feature.fill:g} where there is none")
    return "; ".join([f"{codes} in {rows}", *(x for x in extra if x)]) + "."


def _reward(reward: Reward) -> str:
    """What a term of the reward is, in words."""
    window = (
        "until the end"
        if reward.at == "end"
        else "before t'"
        if reward.side == "start"
        else "up to t'"
    )
    since = "after t" if reward.side == "finish" else "from t"
    of = f"{reward.take} of {_listed(reward.codes)} {since} {window}" if reward.codes else "1"
    where = f", if it ended with {' or '.join(reward.ended)}" if reward.ended else ""
    last = "at the last decision: " if reward.at == "end" else ""
    plus = f" + {reward.plus:g}" if reward.plus else ""
    gone = f" ({reward.missing:g} where there is none)" if reward.missing is not None else ""
    return f"{last}{reward.times:g} × {of}{plus}{where}{gone}"


def dictionary(spec: Spec, findings: Sequence[Finding] = ()) -> Table:
    """The meaning of each column of the log, and what to know about its codes."""
    clock = f"every {spec.clock.every}" if spec.clock.every else f"on {_listed(spec.clock.on)}"
    parts = "; ".join(
        f"{part.name}: {part.take} of "
        + _listed(part.codes or [code for choice in part.choices for code in choice.codes])
        + (f", levels up to {', '.join(f'{x:g}' for x in part.edges)}" if part.edges else "")
        for part in spec.action.parts
    )
    how = "the first that applies" if spec.action.combine == "first" else "all together"
    time = "UTC where it had a time zone" if not spec.source.time_unit else spec.source.time_unit
    rows = [
        ("episode", "episode", "", f"The episode, by {spec.episodes.by}."),
        ("subject", "", "", "Who it is about."),
        ("group", "group", "", f"What stays together in splits: the {spec.episodes.group}."),
        ("step", "", "", "Number of the decision in its episode, from 0."),
        ("time", "time", "", f"The moment t of the decision ({clock}); {time}."),
        *((f.name, "feature", f.unit, _feature(f)) for f in spec.features),
        (
            "action",
            "action",
            "",
            f"What was done from t until before the next t' ({how}): {parts}.",
        ),
        ("reward", "reward", "", f"Sum of: {'; '.join(map(_reward, spec.rewards))}."),
        ("ended", "end", "", "How the episode ended."),
    ]
    names, roles, units, words = (list(column) for column in zip(*rows, strict=True))
    return Table(
        {"column": names, "part": roles, "unit": units, "meaning": words},
        "Columns of the log, one decision a row",
        " ".join(
            [
                "A feature holds only what was known before the decision (at the decision, where "
                "its bracket is closed).",
                *map(_sentence, findings),
            ]
        ),
    )


def flow(
    counts: Mapping[str, int],
    ended: Mapping[str, int],
    open_counts: Mapping[str, Mapping[str, Any]],
    findings: Sequence[Finding],
) -> Table:
    """The number of subjects, episodes, decisions and rows after each step, and what to look at."""
    open_words = {
        "next": "no end event, until the next begins",
        "last": "no end event, to the last row",
        "horizon": "no end event, to the horizon",
    }
    steps = [
        ("rows of events", None, None, None, counts["events"]),
        ("without a time (static)", None, None, None, counts["static"]),
        ("of codes that the spec names", None, None, None, counts["used"]),
        ("subjects with a row", counts["subjects"], None, None, None),
        ("with an episode", counts["with_episode"], counts["spans"], None, None),
        ("with a decision", counts["with_decision"], counts["episodes"], counts["decisions"], None),
        *((f"ended: {word}", None, n, None, None) for word, n in sorted(ended.items())),
        *(
            (words, sums["subjects"], sums["episodes"], sums["decisions"], None)
            for why, words in open_words.items()
            if (sums := open_counts.get(why))
        ),
    ]
    names = ("step", "subjects", "episodes", "decisions", "rows")
    columns: dict[str, list[Any]] = {
        name: list(column) for name, column in zip(names, zip(*steps, strict=True), strict=True)
    }
    return Table(
        columns,
        "From all subjects to decisions",
        " ".join(["An episode without a decision ended when it began.", *map(_sentence, findings)]),
    )


def _sentence(finding: Finding) -> str:
    """A finding on one line."""
    first = f" First: {finding.where}." if finding.where else ""
    return f"{finding.level.capitalize()}: {finding.what}{first} {finding.do}"


def missing(features: Sequence[str], gone: Sequence[int], n: int) -> Table:
    """How often each feature is missing."""
    return Table(
        {"feature": list(features), "missing": list(gone), "share": [x / n for x in gone]},
        f"Missing values at {n:,} decisions",
    )
