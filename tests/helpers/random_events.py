"""Random events and random specs, for tests of the builder."""

from __future__ import annotations

import csv

import duckdb
from slow_events import HOUR, Event

from dprl.logs.events import (
    Action,
    Choice,
    Clock,
    End,
    Episodes,
    Feature,
    Interval,
    Part,
    Reward,
    Source,
    Spec,
    SpecError,
)

CODES = (
    "A",
    "LONG",
    "B",
    "C//1",
    "C//2",
    "DRUG//x",
    "DRUG//y",
    "IN",
    "OUT",
    "DEAD",
    "START",
    "STOP",
)
HALF = HOUR // 2


def random_events(rng, n_subjects=4, n=60):
    events = []
    for who in range(n_subjects):
        for _ in range(rng.randint(3, n)):
            code = rng.choice(CODES)
            time = rng.randint(0, 60) * HALF if rng.random() > 0.08 else None
            value = None if rng.random() < 0.1 else rng.choice([0.0, 0.1, 1.5, 2.0, -3.25, 7.0])
            end = known = None
            if time is not None:
                if code.startswith("DRUG") or code == "LONG":
                    end = time + rng.choice([0, 1, 3, 9]) * HALF
                known = time + rng.choice([0, 0, 0, 1, 4]) * HALF if rng.random() > 0.1 else None
            events.append(Event(f"p{who}", time, code, value, end, known))
    events += rng.sample(events, min(5, len(events)))  # equal rows
    rng.shuffle(events)
    return events


def random_spec(rng):
    known = rng.choice(["", "known"])
    source = Source(end="end", known=known, value="value", subject="subject", time_unit="h")
    by = rng.choice(["code", "gap", "table"])
    episodes = {
        "code": lambda: Episodes(by="code", start="IN"),
        "gap": lambda: Episodes(by="gap", gap=rng.choice(["1 h", "3.5 h"]), ended="terminal",
                                codes=rng.choice(["*", ("A", "C//*", "IN")])),
        "table": lambda: Episodes(by="table", table="stays.csv", subject="subject"),
    }[by]()  # fmt: skip
    clock = rng.choice([
        lambda: Clock(every=rng.choice(["1 h", "1.5 h", "4 h"]), partial=rng.choice(["keep", "drop"]),
                      horizon=rng.choice(["", "8 h", "6.5 h"])),
        lambda: Clock(on=rng.choice(["A", ("B", "C//*")]), horizon=rng.choice(["", "10 h"])),
    ])()  # fmt: skip
    features = []
    for i in range(rng.randint(1, 7)):
        take = rng.choice(["last", "mean", "min", "max", "count", "sum", "slope", "age", "ever", "dose",
                           "elapsed", "step"])  # fmt: skip
        if take in ("elapsed", "step"):
            features.append(Feature(name=f"x{i}", take=take, times=rng.choice([1, 0.5])))
            continue
        within = rng.choice(["1 h", "2.5 h", "7 h", "episode", "history"])
        if take == "slope":
            within = rng.choice(["2 h", "9 h"])
        if take == "dose":
            within = rng.choice(["2 h", "5.5 h", "episode"])
        static = take in ("last", "count", "ever") and rng.random() < 0.15
        codes = rng.choice(["A", ("B", "A"), "C//*", ("C//2", "C//*"), ("A", "B", "C//1"), "LONG"])
        if take == "dose":
            codes = rng.choice(["DRUG//x", "DRUG//*", "ON"])
        features.append(Feature(
            name=f"x{i}", take=take, codes=codes, within="" if static else within,
            until="before" if take == "dose" or static else rng.choice(["before", "at"]),
            known_after="" if static else rng.choice(["", "", "0.5 h"]), static=static,
            valid=rng.choice([None, None, (-1, 5)]), times=rng.choice([1, 0.5]),
            fill=rng.choice([None, 9.0]),
        ))  # fmt: skip
    parts = []
    for i in range(rng.randint(1, 3)):
        take = rng.choice(
            ["any", "count", "sum", "mean", "max", "last", "dose", "amount", "choices"]
        )
        codes = rng.choice(["DRUG//x", "DRUG//*", ("DRUG//y", "DRUG//x"), "ON"])
        if take == "choices":
            parts.append(Part(name=f"part{i}", absent=rng.choice(["", "no"]), choices=[
                Choice(name="y", codes="DRUG//y"), Choice(name="all", codes="DRUG//*")]))  # fmt: skip
            continue
        edges = () if take == "any" else rng.choice([(0,), (0, 1.25), (-1, 0.1, 2)])
        parts.append(Part(
            name=f"part{i}", codes=codes, take=take, edges=edges,
            absent="absent" if take in ("mean", "max", "last") else "",
            levels=rng.choice([(), tuple("abcd"[: len(edges) + 1 if edges else 2])]),
            valid=rng.choice([None, None, (-1, 5)]),
        ))  # fmt: skip
    rewards = []
    for _ in range(rng.randint(1, 3)):
        take = rng.choice(["sum", "count", "any", "last", "mean", "min", "max"])
        at = rng.choice(["window", "window", "end"])
        missing = rng.choice([0.0, -2.0]) if take in ("last", "mean", "min", "max") else None
        rewards.append(Reward(
            take=take, codes=rng.choice(["OUT", "DEAD", ("DEAD", "OUT")]), at=at,
            side=rng.choice(["start", "finish"]) if at == "window" else "start",
            times=rng.choice([1, -0.5]), plus=rng.choice([0, 0.25]), missing=missing,
            ended=rng.choice([(), "terminal", "died"]) if at == "end" else (),
            valid=rng.choice([None, (-1, 5)]),
        ))  # fmt: skip
    rewards.append(Reward(at="end", ended="died", times=-1))
    return Spec(
        source=source, episodes=episodes, clock=clock, features=features, rewards=rewards,
        action=Action(parts=parts, combine=rng.choice(["first", "joint"])),
        ends=[End(codes="DEAD", ended="died"), End(codes="OUT", ended=rng.choice(["terminal", "cut"]))],
        intervals=[Interval(name="ON", start="START", stop="STOP", longest="6 h")],
    )  # fmt: skip


def usable_spec(rng):
    """A random spec that no rule refuses: rows without a time must not be what happens later."""
    while True:
        try:
            return random_spec(rng)
        except SpecError as error:
            assert error.what.startswith("static feature")


def hours(time):
    return "" if time is None else repr(time / HOUR)


def write_events(path, events):
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["subject", "time", "end", "known", "code", "value"])
        for e in events:
            value = "" if e.value is None else repr(e.value)
            writer.writerow([e.subject, hours(e.time), hours(e.end), hours(e.known), e.code, value])


FOREVER = float("inf")


def random_table(rng, path):
    table, over = [], {}  # stays of one subject may touch, and do not overlap
    for i in range(rng.randint(2, 9)):
        who = f"p{rng.randint(0, 5) if i else 0}"
        start = max(rng.randint(0, 40) * HALF, over.get(who, 0))
        finish = None if rng.random() < 0.2 else start + rng.randint(0, 30) * HALF
        if over.get(who, 0) is not FOREVER:
            over[who] = FOREVER if finish is None else finish
            table.append((f"stay{i}", who, start, finish))
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["episode", "subject", "start", "end"])
        writer.writerows([a, b, hours(c), hours(d)] for a, b, c, d in table)
    return table


def rows_of(path):
    with duckdb.connect() as con:
        result = con.execute(f"FROM '{path}' ORDER BY episode, step")
        names = [column[0] for column in result.description]
        return names, result.fetchall()


def with_table(spec, path):
    from dataclasses import replace

    return replace(spec, episodes=replace(spec.episodes, table=str(path)))
