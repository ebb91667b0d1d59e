"""Decisions from events in plain Python: an independent, slow reading of what a spec means.

Nothing of dprl is used but the spec's own words. Times are whole microseconds.
"""

from __future__ import annotations

import fnmatch
import math
import re
from dataclasses import dataclass

HOUR = 3_600_000_000
UNITS = {"s": 1_000_000, "min": 60_000_000, "h": HOUR, "days": 24 * HOUR}


@dataclass(frozen=True)
class Event:
    subject: str
    time: int | None
    code: str
    value: float | None = None
    end: int | None = None
    known: int | None = None  # None: at once (or at its end, if it has one)


def span(text):
    number, unit = re.fullmatch(r"([\d.]+) (\w+)", text).groups()
    return int(float(number) * UNITS[unit])


def rank_of(code, codes):
    """Place of the first pattern that a code matches; None if there is none."""
    for i, pattern in enumerate(codes):
        if fnmatch.fnmatchcase(code, pattern):
            return i
    return None


def with_intervals(events, spec):
    made = list(events)
    for interval in spec.intervals:
        longest = span(interval.longest)
        for who in {e.subject for e in events}:
            mine = [e for e in events if e.subject == who and e.time is not None]
            starts = [e for e in mine if rank_of(e.code, interval.start) is not None]
            marks = sorted(
                {
                    e.time
                    for e in mine
                    if rank_of(e.code, (*interval.start, *interval.stop)) is not None
                }
            )
            for t in sorted({e.time for e in starts}):
                first = max(
                    (e for e in starts if e.time == t),
                    key=lambda e: (
                        e.value is not None,
                        -1
                        if e.known is None and spec.source.known
                        else max(t, e.known or 0)
                        if spec.source.known
                        else t,
                        -rank_of(e.code, interval.start),
                        -(e.value or 0),
                    ),
                )
                later = [m for m in marks if m > t]
                end = min([t + longest, *later[:1]])
                made.append(Event(who, t, interval.name, first.value, end, first.known))
    return made


def episodes_of(events, spec, table):
    """(name, subject, start, finish, closed, ended) of every episode."""
    rows = []
    by = spec.episodes.by
    subjects = sorted({e.subject for e in events})
    last = {
        who: max((e.time for e in events if e.subject == who and e.time is not None), default=None)
        for who in subjects
    }
    if by == "table":
        for name, who, start, finish in table:
            word = spec.episodes.ended or "terminal"
            open_end = finish is None
            stop = max(start, last.get(who) or start) if open_end else finish
            follows = any(
                other[1] == who and other[0] != name and other[2] == stop
                and (other[2], other[3] or stop) > (start, stop)
                for other in table
            )  # fmt: skip
            rows.append([name, who, start, stop, not follows, "cut" if open_end else word])
    for who in subjects if by != "table" else ():
        mine = [e for e in events if e.subject == who and e.time is not None]
        if by == "code":
            starts = sorted(
                {e.time for e in mine if rank_of(e.code, spec.episodes.start) is not None}
            )
            for i, start in enumerate(starts):
                more = starts[i + 1 : i + 2]
                finish = more[0] if more else max(start, last[who])
                rows.append([f"{who}#{i + 1}", who, start, finish, not more, "cut"])
        else:
            times = sorted(
                {e.time for e in mine if rank_of(e.code, spec.episodes.codes) is not None}
            )
            runs = []
            for t in times:
                if runs and t - runs[-1][-1] <= span(spec.episodes.gap):
                    runs[-1].append(t)
                else:
                    runs.append([t])
            for i, run in enumerate(runs):
                rows.append([f"{who}#{i + 1}", who, run[0], run[-1], True, spec.episodes.ended])
    for row in rows:
        ends = sorted(
            (e.time, i)
            for e in events
            for i, end in enumerate(spec.ends)
            if e.subject == row[1] and e.time is not None and rank_of(e.code, end.codes) is not None
            and row[2] < e.time <= row[3]
        )  # fmt: skip
        if ends:
            row[4] = row[4] or ends[0][0] < row[3]  # the next may begin there
            row[3], row[5] = ends[0][0], spec.ends[ends[0][1]].ended
        if spec.clock.horizon and row[3] - row[2] > span(spec.clock.horizon):
            row[3], row[4], row[5] = row[2] + span(spec.clock.horizon), False, "cut"
    return rows


def decisions_of(events, spec, who, start, finish):
    """The moments of the decisions of an episode, and the end of its last window."""
    if spec.clock.on:
        times = {
            e.time
            for e in events
            if e.subject == who and e.time is not None and start <= e.time < finish
            and rank_of(e.code, spec.clock.on) is not None
        }  # fmt: skip
        return sorted(times), finish
    w = span(spec.clock.every)
    times, t = [], start
    while t < finish and (spec.clock.partial == "keep" or t + w <= finish):
        times.append(t)
        t += w
    return times, min(finish, t)


def is_valid(value, valid):
    return valid is None or (value is not None and valid[0] <= value <= valid[1])


def last_of(rows, codes):
    """The row at the latest time; ties: known last, code named first, lowest value."""
    return max(rows, key=lambda x: (x[0].time, x[1], -rank_of(x[0].code, codes), -x[0].value))[0]


def measure(take, rows, codes, share=None):
    """A number from (event, known) pairs; None where there are none."""
    if not rows:
        return None
    values = [e.value for e, _ in rows]
    if take == "any":
        return 1.0
    if take == "count":
        return float(len(rows))
    if take == "last":
        return last_of(rows, codes).value
    if take in ("dose", "amount"):
        return math.fsum(share)
    return {
        "sum": math.fsum, "min": min, "max": max, "mean": lambda v: math.fsum(v) / len(v)
    }[take](values)  # fmt: skip


def feature_at(feature, events, spec, who, start, t, k):
    if feature.take == "elapsed":
        result = (t - start) / HOUR
    elif feature.take == "step":
        result = float(k)
    else:
        result = _from_rows(feature, events, spec, who, start, t)
    if result is not None:
        result *= feature.times
    return feature.fill if result is None else result


def _from_rows(feature, events, spec, who, start, t):
    take, counted = feature.take, feature.take in ("count", "ever", "age")
    mine = [
        e for e in events
        if e.subject == who and rank_of(e.code, feature.codes) is not None
        and (e.value is not None or counted or (feature.static and take != "last"))
        and is_valid(e.value, feature.valid)
    ]  # fmt: skip
    if feature.static:
        mine = [e for e in mine if e.time is None]
        if take == "last":
            best = sorted((rank_of(e.code, feature.codes), e.value) for e in mine)
            return best[0][1] if best else None
        return float(len(mine)) if take == "count" else float(bool(mine))
    delay = span(feature.known_after) if feature.known_after else 0
    limited = feature.within not in ("episode", "history")
    begin = (
        t - span(feature.within) if limited else start if feature.within == "episode" else -math.inf
    )
    rows = []
    for e in mine:
        if e.time is None:
            continue
        if spec.source.known:
            known = None if e.known is None else max(e.known, e.time)
        else:
            begun = take == "dose" or (counted and feature.valid is None)
            known = e.time if begun or e.end is None else max(e.time, e.end)
        if known is None:
            continue
        known += delay
        if known < t or (known == t and feature.until == "at"):
            rows.append((e, known))
    if take == "dose":
        parts = [
            e.value * max(0, min(e.end, t - delay) - max(e.time, begin)) / HOUR
            for e, _ in rows if e.end is not None and e.end > e.time
        ]  # fmt: skip
        return math.fsum(parts)
    rows = [(e, known) for e, known in rows if e.time >= begin]
    if take == "ever":
        return float(bool(rows))
    if take == "age":
        return (t - max(e.time for e, _ in rows)) / HOUR if rows else None
    if take in ("count", "sum") and not rows:
        return 0.0
    if take == "slope":
        if len({e.time for e, _ in rows}) < 2:
            return None
        x = [(e.time - t) / HOUR for e, _ in rows]
        y = [e.value for e, _ in rows]
        mx, my = math.fsum(x) / len(x), math.fsum(y) / len(y)
        return math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / math.fsum(
            (a - mx) ** 2 for a in x
        )
    return measure(take, rows, feature.codes)


def action_of(spec, events, who, t, w, is_last, closed):
    labels = []
    for part in spec.action.parts:
        level, name = _level(part, events, who, t, w, is_last and closed)
        labels.append((part, level, name))
    if spec.action.combine == "joint":
        return ", ".join(f"{part.name} {name}" for part, _, name in labels)
    for part, level, name in labels:
        least = -1 if part.take in ("last", "mean", "max") else 0
        if level > least:
            several = part.choices or part.edges or part.levels
            return f"{part.name} {name}" if several else part.name
    return spec.action.none


def _in_window(e, t, w, closed, spread):
    begins = t <= e.time < w or (closed and e.time == w)
    if not spread or e.end is None or e.end <= e.time:
        return begins
    return begins or (e.time < w and e.end > t)


def _level(part, events, who, t, w, closed):
    spread = part.take in ("any", "dose", "amount")
    valued = part.take not in ("any", "count")

    def rows_of(codes):
        return [
            e for e in events
            if e.subject == who and e.time is not None and rank_of(e.code, codes) is not None
            and (e.value is not None or not valued) and is_valid(e.value, part.valid)
            and _in_window(e, t, w, closed, spread)
        ]  # fmt: skip

    if part.choices:
        for j, choice in enumerate(part.choices):
            if rows_of(choice.codes):
                return j + 1, choice.name
        return 0, part.absent or "0"
    rows = rows_of(part.codes)
    share = []
    for e in rows:
        inside = max(0, min(e.end if e.end is not None else e.time, w) - max(e.time, t))
        if part.take == "dose":
            share.append(e.value * inside / HOUR)
        elif part.take == "amount":
            lasts = e.end is not None and e.end > e.time
            share.append(e.value * inside / (e.end - e.time) if lasts else e.value)
    x = measure(part.take, [(e, 0) for e in rows], part.codes, share)
    names = list(part.levels) or [str(i) for i in range(len(part.edges) + 1 if part.edges else 2)]
    if x is None:
        return (-1, part.absent) if part.absent else (0, names[0])
    if not part.edges:
        return 1, names[1]
    level = sum(x > edge for edge in part.edges)
    return level, names[level]


def reward_of(spec, events, who, t, w, is_last, closed, finish, finish_closed, ended):
    total = 0.0
    for term in spec.rewards:
        if term.at == "end" and not (is_last and (not term.ended or ended in term.ended)):
            continue
        x = 1.0
        if term.codes:
            valued = term.take not in ("any", "count")
            rows = []
            for e in events:
                if e.subject != who or e.time is None or rank_of(e.code, term.codes) is None:
                    continue
                if (e.value is None and valued) or not is_valid(e.value, term.valid):
                    continue
                if term.at == "end":
                    inside = t <= e.time < finish or (finish_closed and e.time == finish)
                elif term.side == "finish":
                    inside = t < e.time <= w
                else:
                    inside = t <= e.time < w or (is_last and closed and e.time == w)
                if inside:
                    rows.append((e, 0))
            x = measure(term.take, rows, term.codes)
            if x is None and term.take in ("any", "count", "sum"):
                x = 0.0
        total += term.missing if x is None else term.times * x + term.plus
    return total


def slow_log(events, spec, table=()):
    """The rows of the log: episode, subject, step, t, features, action, reward, ended."""
    events = with_intervals(events, spec)
    log = []
    for name, who, start, finish, closed, ended in episodes_of(events, spec, table):
        times, window_end = decisions_of(events, spec, who, start, finish)
        for k, t in enumerate(times):
            is_last = k == len(times) - 1
            w = window_end if is_last else times[k + 1]
            in_last = closed and window_end == finish
            state = [feature_at(f, events, spec, who, start, t, k) for f in spec.features]
            action = action_of(spec, events, who, t, w, is_last, in_last)
            reward = reward_of(
                spec, events, who, t, w, is_last, in_last, finish, closed, ended
            )  # fmt: skip
            log.append((name, who, k, t, state, action, reward, ended))
    return log


def same(a, b):
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def assert_same_rows(names, rows, expected, spec, moment, label):
    """The rows of a log against those of `slow_log`; `moment` writes a time as the log does.

    Both are sorted by episode and step. Returns the number of rows.
    """
    got = [dict(zip(names, row, strict=True)) for row in rows]
    assert [(r["episode"], r["step"]) for r in got] == [(e[0], e[2]) for e in expected], label
    for row, (name, who, k, t, state, action, reward, ended) in zip(got, expected, strict=True):
        where = (label, name, k)
        assert (row["subject"], row["time"], row["ended"]) == (who, moment(t), ended), where
        for feature, value in zip(spec.features, state, strict=True):
            assert same(row[feature.name], value), (*where, feature, row[feature.name], value)
        assert row["action"] == action, (*where, spec.action)
        assert same(row["reward"], reward), (*where, spec.rewards)
    return len(got)
