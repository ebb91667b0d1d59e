"""Random mixed tables: rows as they come become what the same rows of a log become."""

import csv
import datetime
import random

import numpy as np
import pytest

import dprl
from dprl.logs.encoding.encoder import encoded_by, encoding_of, filled, joined, with_indicators
from dprl.policies.spaces import FeatureSpace, LabelSpace

FORMS = {"iso": "%Y-%m-%d", "day-first": "%d/%m/%Y"}
DRAWN = {
    "number": lambda draw: round(draw.gauss(0, 2), 2),
    "category": lambda draw: draw.choice(["A", "b ", "c", "true", "no"]),
    "truth": lambda draw: draw.random() < 0.5,
    "date": lambda draw: datetime.date(2024, 1, 1) + datetime.timedelta(draw.randrange(90)),
}


def rows_of(draw, kinds, n, gaps, tag):
    for i in range(n):
        row = {name: None if draw.random() < gaps[name] else DRAWN[kind](draw)
               for name, kind in kinds.items()}  # fmt: skip
        yield {"id": f"{tag}{i}", **row, "a": draw.choice("xy"), "r": round(draw.gauss(0, 1), 2)}


def write(path, rows, form):
    def cell(value):
        if isinstance(value, datetime.date):
            return value.strftime(form)
        return "" if value is None else value

    with open(path, "w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(rows[0])
        lines.writerows([map(cell, row.values()) for row in rows])
    return path


def compare(seed, folder):
    """One random training table, and another whose rows must become the same in both ways."""
    draw = random.Random(seed)
    names = draw.sample(["lactate", "age", "ward", "icu", "day", "x y"], draw.randint(1, 5))
    how = draw.choice([joined, with_indicators, filled])
    possible = ["category", "truth"] if how is joined else list(DRAWN)
    kinds = {name: draw.choice(possible) for name in names}
    words = {
        name: "flag" if kind in ("category", "truth") else draw.choice(["flag", "median"])
        for name, kind in kinds.items()
    }
    dates = draw.choice(list(FORMS))
    tables = [
        list(rows_of(draw, kinds, n, {name: draw.choice([0, 0.2]) for name in names}, tag))
        for n, tag in ((60, "a"), (40, "b"))
    ]
    files = [write(folder / f"{i}.csv", rows, FORMS[dates]) for i, rows in enumerate(tables)]
    given = {"episode": "id", "state": names, "action": "a", "reward": "r", "missing": words,
             "dates": dates, "also": ()}  # fmt: skip
    labels = draw.choice(["", "trim,casefold"])
    train = dprl.read(files[0], labels=labels, **given)
    test = dprl.read(files[1], labels=draw.choice([labels, ""]), **given,
                     categorical=[n for n in names if kinds[n] == "category"])  # fmt: skip
    made = how(train)
    encoding = encoding_of(made.columns)
    if encoding is None:  # nothing had to be done
        return
    columns = {name: [row[name] for row in tables[1]] for name in names}
    single = [{name: row[name] for name in names} for row in tables[1]]
    if how is joined:
        space = LabelSpace(made.states, encoding)
        states, place = space.of_log(test)
        by_log = {e: states[i] for e, i in zip(test.episodes, place.tolist(), strict=True)}
        wanted = [by_log[row["id"]] for row in tables[1]]
        assert space.read(columns)[0] == wanted
        assert [space.read(one)[0][0] for one in single] == wanted
        return
    ones = np.ones(len(made.feature_names))
    levels = tuple(train.levels) if how is filled else None
    space = FeatureSpace(made.feature_names, ones, ones, levels, encoding)
    encoded = encoded_by(test, encoding)
    x = np.asarray(space.of_log(test)[0] if how is filled else encoded.features)
    place = {label: i for i, label in enumerate(test.episodes)}
    wanted = x[[place[row["id"]] for row in tables[1]]]
    for rows in (columns, [list(one.values()) for one in single]):
        assert np.array_equal(np.asarray(space.read(rows)[0]), wanted, equal_nan=True)
    alone = [np.asarray(space.read(one)[0])[0] for one in single]
    assert np.array_equal(np.array(alone), wanted, equal_nan=True)
    assert how is filled or not np.isnan(wanted).any()


@pytest.mark.parametrize("seed", range(3))
def test_rows_become_what_the_log_becomes(seed, tmp_path):
    compare(seed, tmp_path)


@pytest.mark.slow
def test_rows_become_what_the_log_becomes_in_many_tables(tmp_path):
    for seed in range(100, 120):
        compare(seed, tmp_path)
