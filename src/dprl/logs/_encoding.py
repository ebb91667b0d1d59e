"""How the columns of a state become what a learner takes; kept with the log and with its policy.

A state may be made of numbers and categories. Learners over labels take one label, so categories
are *joined*: "sex=f · ward=a". Learners over distances take numbers, so a category becomes
*indicators*, one column of 0 and 1 per label ("ward=a", "ward=b"). Gaps are filled as was declared
when the log was read (`dprl.logs._gaps`): the learner's log says by what, and later logs are filled
by the same. How it was done is kept in `log.columns["encoding"]`, and from there in the policy, so
that later logs and single states, as they come (`{"sex": "f", "ward": "a"}`), are treated in the
same way.

A label that the training log did not have has no indicator of its own. Its indicators are set FAR
away, so that nothing is near such a state and a policy over distances defers there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import api, either, option, worded
from dprl.errors import LogError
from dprl.logs._categories import TRUTH, Levels
from dprl.logs._doses import BETWEEN
from dprl.logs._feature_input import place_of
from dprl.logs._gaps import GONE, fitted_fills, gap_counts
from dprl.logs._raw_states import FAR, Encoding, How, encoding_of, flag_of
from dprl.logs._text import fold
from dprl.logs.log import Log

__all__ = [
    "FAR", "Encoding", "encoded_by", "encoded_like", "encoding_of", "filled", "joined", "labelled",
    "with_indicators",
]  # fmt: skip


def encoded_like(log: Log, columns: Mapping[str, Any]) -> Log:
    """A log in which the state is made as the `columns` of another log, or of a policy, say."""
    wanted = encoding_of(columns)
    return log if wanted is None else encoded_by(log, wanted)


def encoded_by(log: Log, wanted: Encoding | None) -> Log:
    """A log in which the state is made as `wanted`; the log itself where it is so already."""
    if wanted is None or log.features is None or encoding_of(log.columns) is not None:
        _refuse_own_fills(log, wanted)
        _refuse_other_days(log, {} if wanted is None else wanted.days)
        return log
    if log.feature_names == wanted.features != tuple(wanted.columns):
        return log  # of indicators that were written to a file
    log = _folded(log, wanted.fold)
    if wanted.how == "joined":
        return joined(log, wanted)
    return filled(log, wanted) if wanted.how == "plain" else with_indicators(log, wanted)


def _refuse_own_fills(log: Log, wanted: Encoding | None) -> None:
    """Refuse a log whose gaps were filled by other numbers than the policy's."""
    own = encoding_of(log.columns)
    theirs = {} if wanted is None else dict(wanted.fills)
    if own is None or own.fills == theirs:
        return
    name = next(n for n in (*own.fills, *theirs) if own.fills.get(n) != theirs.get(n))
    values = [f.value if f else None for f in (own.fills.get(name), theirs.get(name))]
    raise LogError(
        "the gaps of this log are filled by its own numbers, not by those of the policy.",
        f"{name!r}: {values[0]} here, {values[1]} in the policy",
        worded(
            "Hand over the log as it was read{choice}: the policy fills it.",
            choice=either(" (before log.indicators() or log.joined())", ""),
        ),
    )


def _folded(log: Log, how: str) -> Log:
    """The log with the labels of its categories written alike, where a policy writes them so."""
    if not how or not log.levels or log.columns.get("labels") == how:
        return log
    features, levels = np.array(log.features), list(log.levels)
    for j, own in enumerate(levels):
        words = [fold(label, how) for label in own or ()]
        if own is None or words == list(own):
            continue
        merged = tuple(sorted({word for word in words if word}))
        table = np.array([*(merged.index(w) if w else np.nan for w in words), np.nan])
        gone = np.isnan(features[:, j])
        places = np.where(gone, len(words), np.nan_to_num(features[:, j])).astype(np.int64)
        features[:, j], levels[j] = table[places], merged
    return replace(log, features=features, levels=tuple(levels))


def _refuse_other_days(log: Log, days: Mapping[str, str]) -> None:
    """Refuse a log in which a feature is a date and is none to the policy, or the other way."""
    here = _dated(log)
    for j, name in enumerate(log.feature_names):
        if (name in here) != (name in days) and log.missing[j] < log.n_steps:
            kinds = ("dates", "numbers") if name in here else ("numbers", "dates")
            raise LogError(
                f"{name!r} holds {kinds[0]} here, and held {kinds[1]} in the training log.",
                do=worded(
                    "Read the log as the training log was read ({dates}).", dates=option("dates")
                ),
            )


def joined(log: Log, wanted: Encoding | None = None) -> Log:
    """The log whose states are labels, one for each combination of its categories that occurs."""
    if log.features is None:
        return log
    own = _columns(log, wanted)
    for name, labels in zip(log.feature_names, own.levels, strict=True):
        if labels is None:
            raise LogError(
                f"{name!r} holds numbers, and only categories can be joined into one label.",
                f"features: {', '.join(log.feature_names[:8])}",
                worded(
                    "Cut it into named ranges, say that its numbers are labels ({choice}), leave "
                    "it out, or use {learner} or a radius, which take numbers.",
                    choice=either(f"categorical=[{name!r}]", f"--categorical {name}"),
                    learner=api("dprl.Rules"),
                ),
            )
    codes_of = np.empty((log.n_steps, len(own.columns)), np.int64)
    texts_of: list[tuple[str, ...]] = []
    for j, name in enumerate(log.feature_names):
        if log.missing[j] and not own.flagged(name):
            raise _gap(
                log,
                j,
                worded(
                    "Fill it first, give it a label of its own ({missing}), or leave such "
                    "episodes out ({missing2}).",
                    missing=option("missing", "flag"),
                    missing2=option("missing", "drop-episodes"),
                ),
            )
        codes_of[:, j], labels = _with_gone(log, j)
        texts_of.append(labels)
    rows, codes = np.unique(codes_of, axis=0, return_inverse=True)
    texts = [
        own.label([labels[code] for labels, code in zip(texts_of, row, strict=True)])
        for row in rows.tolist()
    ]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise LogError(
            "two combinations of labels would get the same name.",
            repr(twice),
            f"Rename a label that holds {BETWEEN!r} or '='.",
        )
    order = np.argsort(np.array(texts, object), kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return replace(
        log,
        state=place[codes.reshape(-1)],
        states=tuple(texts[i] for i in order.tolist()),
        features=None,
        feature_names=(),
        levels=(),
        columns=_on_record(log, own),
    )


def _on_record(log: Log, own: Encoding) -> dict[str, Any]:
    """The columns of a log with its encoding, and where it had gaps before they were filled."""
    gaps = gap_counts(log)
    more = {"gaps": gaps} if gaps is not None and own.fills else {}
    return {**log.columns, "state": list(own.columns), "encoding": own.to_dict(), **more}


def _gap(log: Log, j: int, do: str) -> LogError:
    """The error that a feature is missing somewhere."""
    gone = np.isnan(np.asarray(log.features)[:, j])
    return LogError(
        f"feature {log.feature_names[j]!r} is missing on {log.missing[j]:,} of {log.n_steps:,} "
        "rows.",
        place_of(log, int(np.argmax(gone))),
        do,
    )


def _with_gone(log: Log, j: int) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The codes (N,) of a category, and its labels, of which the last stands for missing ones."""
    labels = log.levels[j] if log.levels else None
    column = np.asarray(log.features)[:, j]
    texts = (*(labels or ()), GONE)
    return np.where(np.isnan(column), len(texts) - 1, np.nan_to_num(column)).astype(np.int64), texts


def labelled(log: Log) -> Log:
    """The log with joined labels where its features are categories, all of them; else the log."""
    numeric = log.features is None or not log.levels or any(own is None for own in log.levels)
    return log if numeric else joined(log)


def with_indicators(log: Log, wanted: Encoding | None = None, medians_of: Log | None = None) -> Log:
    """The log of numbers alone, without the gaps that are declared to be filled.

    Every category is a column of 0 and 1 per label; truth values stay.

    Args:
        log: The log.
        wanted: How it is to be done. Default None: as its own labels and gaps need it.
        medians_of: The log whose medians fill the gaps, where nothing is `wanted`. Default None:
            this one.
    """
    if log.features is None or encoding_of(log.columns) is not None:
        return log
    if wanted is None and not _has_labels(log.levels) and not _declared(log) and not _dated(log):
        return log
    own = _columns(log, wanted, "indicators", medians_of)
    columns: list[NDArray[np.float64]] = []
    names: list[str] = []
    levels: list[tuple[str, ...] | None] = []
    for j, (name, labels) in enumerate(own.columns.items()):
        x = log.features[:, j]
        names += own.indicators(name)
        if labels is None:
            columns += _filled(x, own, name)
            levels += [None] * len(own.indicators(name))
            continue
        if labels == TRUTH:
            strange = np.isnan(x) if own.flagged(name) else np.zeros(len(x), bool)
            columns.append(np.where(strange, FAR, x))
            levels.append(None if strange.any() else labels)  # FAR is neither true nor false
            continue
        if log.missing[j] and not own.flagged(name):
            raise _gap(
                log,
                j,
                worded(
                    "Fill it first ({missing}), leave such episodes out ({missing2}), or use "
                    "{learner}, which gives missing values a side of their own.",
                    missing=option("missing", "flag"),
                    missing2=option("missing", "drop-episodes"),
                    learner=api("dprl.Rules"),
                ),
            )
        place = {label: code for code, label in enumerate(labels)}
        codes, texts = _with_gone(log, j)
        code_of = np.array([place.get(label, -1) for label in texts], np.int64)
        codes = code_of[codes]
        other = np.where(codes < 0, FAR, 0.0)
        columns += [np.where(codes == code, 1.0, other) for code in range(len(labels))]
        levels += [None] * len(labels)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise LogError(
            f"two features would be called {twice[0]!r}.", do="Rename one of the columns."
        )
    return replace(
        log,
        features=np.column_stack(columns),
        feature_names=tuple(names),
        levels=tuple(levels),
        columns=_on_record(log, own),
    )


def _filled(x: NDArray[np.float64], own: Encoding, name: str) -> list[NDArray[np.float64]]:
    """A column of numbers with its gaps filled, and its flag where it has one."""
    value, gone = own.filling(name), np.isnan(x)
    if value is None:
        return [x]
    full = np.where(gone, value, x) if gone.any() else x
    return [full] if len(own.indicators(name)) == 1 else [full, gone.astype(np.float64)]


def filled(log: Log, wanted: Encoding | None = None) -> Log:
    """The log with its numbers filled where the median was asked for, and otherwise as it is.

    A gap that is flagged stays a gap: this is for learners that give gaps a side of their own.
    """
    if log.features is None or encoding_of(log.columns) is not None:
        return log
    needed = "median" in _declared(log).values() or bool(_dated(log))
    if wanted is None and not needed and not (log.levels and log.columns.get("labels")):
        return log
    own = _columns(log, wanted, "plain")
    columns = [_filled(log.features[:, j], own, name)[0] for j, name in enumerate(own.columns)]
    return replace(log, features=np.column_stack(columns), columns=_on_record(log, own))


def _declared(log: Log) -> dict[str, str]:
    """The features whose gaps are to be filled or flagged."""
    words: Mapping[str, str] = log.columns.get("missing", {})
    return {n: words[n] for n in log.feature_names if words.get(n) in ("flag", "median")}


def _dated(log: Log) -> dict[str, str]:
    """The features that are dates → how they were written."""
    return {n: own for n, own in log.columns.get("days", {}).items() if n in log.feature_names}


def _has_labels(levels: Levels) -> bool:
    return any(own is not None and own != TRUTH for own in levels)


def _columns(
    log: Log, wanted: Encoding | None, how: How = "joined", medians_of: Log | None = None
) -> Encoding:
    """How this log is encoded; refused where it has other columns than are `wanted`."""
    theirs = log.levels or (None,) * len(log.feature_names)
    if wanted is None:
        return _own_encoding(log, how, medians_of)
    if tuple(wanted.columns) != log.feature_names:
        raise LogError(
            "this log has other states than the policy was fitted to.",
            f"{', '.join(log.feature_names[:4])} and not {', '.join(list(wanted.columns)[:4])}",
            "Read the columns that the training log had, in the same order.",
        )
    _refuse_other_days(log, wanted.days)
    for j, (name, own, other) in enumerate(
        zip(log.feature_names, wanted.levels, theirs, strict=True)
    ):
        if (own is None) != (other is None) and log.missing[j] < log.n_steps:
            words = ["numbers" if labels is None else "labels" for labels in (own, other)]
            raise LogError(
                f"{name!r} holds {words[1]} here, and held {words[0]} in the training log.",
                do=worded(
                    "Where its numbers are labels, say so: {choice}.",
                    choice=either(f"categorical=[{name!r}]", "--categorical"),
                ),
            )
    return wanted


def _own_encoding(log: Log, how: How, medians_of: Log | None) -> Encoding:
    """How this log is encoded by itself: its own labels, and what fills its own gaps."""
    theirs = log.levels or (None,) * len(log.feature_names)
    fills = fitted_fills(log if medians_of is None else medians_of)
    levels = dict(zip(log.feature_names, theirs, strict=True))
    for j, (name, labels) in enumerate(levels.items()):
        if labels is None or name not in fills or not log.missing[j] or how == "plain":
            continue
        if GONE in labels:
            raise LogError(
                f"{name!r} has a label {GONE!r} and gaps, which would get the same label.",
                place_of(log, int(np.argmax(np.isnan(np.asarray(log.features)[:, j])))),
                "Rename the label, or leave its cells empty.",
            )
        levels[name] = (*labels, GONE)
    for name, fill in fills.items():
        if fill.marks and how == "indicators" and flag_of(name) in log.feature_names:
            raise LogError(
                f"{name!r} is flagged by a feature {flag_of(name)!r}, and the log has one already.",
                do="Rename it, or leave it out: the flag says the same.",
            )
    return Encoding(how, levels, fills, _dated(log), str(log.columns.get("labels", "")))
