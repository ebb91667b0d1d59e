"""The pages of what we found: their sentences follow from the rows, and rows can be made again."""

from __future__ import annotations

import csv
import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.evaluation import stats
from dprl.logs.reading.tables import read_rows
from dprl_studies.harness import by
from dprl_studies.paper import entry, experiment, power, wards
from dprl_studies.paper.contest import label, rows_of
from dprl_studies.paper.told import NEAR, sentences, short

FOUND = Path(__file__).parents[2] / "docs" / "findings"
TEXT = (FOUND.parent / "findings.md").read_text(encoding="utf-8")
PLAIN = " ".join(TEXT.split())
PAGES = [
    pytest.param(path.stem, marks=pytest.mark.slow) if "gridworld" in path.stem else path.stem
    for path in sorted(FOUND.glob("*.md"))
]
CONTESTS = ("gridworld-33", "forest-33", "risky-arms-33", "random-mdps-33", "icu-sepsis-33")


@pytest.fixture(scope="module")
def cells():
    """(problem, episodes) → contestant → mean, CVaR and usual practice."""
    found = {}
    for name in CONTESTS:
        rows = read_rows([FOUND / f"{name}-rows.parquet"])
        for (problem, n, contestant), part in by(rows, "problem", "n", "contestant"):
            value = part["value"]
            line = (float(stats.mean(value)), float(stats.cvar(value)), part["behavior"][0])
            found.setdefault((problem, n), {})[contestant] = line
    return found


def test_there_are_pages():
    assert PAGES


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_what_their_rows_say(name):
    rows = read_rows([FOUND / f"{name}-rows.parquet"])
    facts = json.loads((FOUND / f"{name}-settings.json").read_text())
    assert set(rows["code"].tolist()) == {facts["code"][:16]}
    module = importlib.import_module(f"dprl_studies.paper.{entry(facts['experiment']).module}")
    one = module if entry(facts["experiment"]).needs else experiment(facts["experiment"])
    assert one.page(rows, facts) == (FOUND / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "make", "contestant"),
    [
        ("gridworld", dprl.envs.soft, {"learner": "DPRL", "n_min": 2, "contrast": True}),
        ("gridworld", dprl.envs.soft, {"learner": "DPRL", "n_min": 5, "contrast": False}),
        ("gridworld", dprl.envs.soft, {"learner": "SPIBB", "n_min": 5, "behavior": "true"}),
        ("gridworld", dprl.envs.soft, {"learner": "PQI", "n_min": 10}),
        ("forest", dprl.envs.forest, {"learner": "Soft-SPIBB", "epsilon": 0.5, "behavior": "true"}),
        ("risky-arms", dprl.envs.risky_arms, {"learner": "Soft-SPIBB", "epsilon": 0.1}),
        ("forest", dprl.envs.forest, {"learner": "Confident", "risk": 0.01}),
    ],
)
def test_a_sample_of_rows_is_made_again(name, make, contestant):
    rows = read_rows([FOUND / f"{name}-33-rows.parquet"])
    mdp = make()
    fresh = rows_of(mdp, {"n": 100, "first": 0, "last": 4, "seed": 33}, [contestant])
    kept = (rows["problem"] == mdp.name) & (rows["n"] == 100) & (rows["dataset"] < 4)
    kept &= rows["contestant"] == label(contestant)
    assert rows["value"][kept].tolist() == [row["value"] for row in fresh]


def test_every_page_is_in_the_docs():
    text = "".join(p.read_text(encoding="utf-8") for p in FOUND.parent.glob("*.md"))
    for path in FOUND.glob("*.md"):
        assert f"```{{include}} findings/{path.name}\n" in text, path.name
    for path in FOUND.glob("*.png"):
        assert f"](findings/{path.name})" in text, path.name


def test_the_papers_rule_in_hypotension_is_told_from_its_rows():
    rows = read_rows([FOUND / "hypotension-33-rows.parquet"])
    at = {name: i for i, name in enumerate(rows["contestant"].tolist())}
    text = " ".join((FOUND.parent / "hypotension.md").read_text(encoding="utf-8").split())
    for rule, words in (
        ("DPRL paper", "It defers at {}, {} and {} of the test decisions"),
        ("DPRL", "DPRL defers at {}, {} and {}."),
    ):
        shares = [rows["deferred"][at[f"{rule}, n_min {n}"]] for n in (10, 30, 50)]
        said = [f"{share:.2f}".replace("0.", ".", 1) for share in shares]
        assert words.format(*said) in text
    values = [
        f"{rows['true_value'][at[f'{rule}, n_min {n}']]:.2f}"
        for rule in ("DPRL paper", "DPRL")
        for n in (10, 30, 50)
    ]
    words = "True values are {}, {} and {} for the paper's rule and {}, {} and {} for ours"
    assert words.format(*values) in text
    usual = rows["true_value"][at["behaviour"]]
    learners = [name for name in at if name not in ("behaviour", "best treatment")]
    below = sum(rows["true_value"][at[name]] < usual - 1e-9 for name in learners)
    assert f"In truth {below} of {len(learners)} learners are below usual practice" in text


def test_errors_over_wards_are_told_from_their_rows():
    rows = read_rows([FOUND / "wards-33-rows.parquet"])
    text = " ".join((FOUND.parent / "hypotension.md").read_text(encoding="utf-8").split())
    assert f"Done are {len(set(rows['ward'].tolist()))} of twenty wards" in text
    lines = {(line["contestant"], line["estimator"]): line for line in wards.summary(rows)}
    for estimator, words in (
        ("DR", "error of DR is {}, {} and {} for the paper's rule with n_min 10, 30 and 50"),
        ("WDR", "That of WDR is {}, {} and {},"),
        ("DM", "that of the model alone (DM) {}, {} and {}."),
    ):
        errors = [lines[f"DPRL paper, n_min {n}", estimator]["error"] for n in (10, 30, 50)]
        assert words.format(*(short(e) if e < 1 else f"{e:.1f}" for e in errors)) in text
    for n in (10, 30, 50):
        line = lines[f"DPRL paper, n_min {n}", "DR"]
        assert line["error"] > abs(line["gain"])


def test_every_row_file_says_which_code_made_it():
    """The table at the head: file, version, digest of the code."""
    told = dict(
        re.findall(r"^\| `([\w-]+)` \| [\d.]+ \| `?([0-9a-f]{8}|–)`? \|", TEXT, re.MULTILINE)
    )
    there = {path.name.removesuffix("-rows.parquet") for path in FOUND.glob("*-rows.parquet")}
    assert set(told) == there
    for name, code in told.items():
        settings = FOUND / f"{name}-settings.json"
        facts = json.loads(settings.read_text()) if settings.is_file() else {}
        assert facts.get("code", "–")[:8] == code, name


def test_what_was_not_made_again_has_its_commit_at_its_head():
    lines = re.findall(r"^\| `([\w-]+)` \| [\d.]+ \| \S+ \| ([0-9a-f]{8}) of", TEXT, re.MULTILINE)
    pages = [TEXT.replace("|", " "), *(
        (FOUND.parent / f"{name}.md").read_text(encoding="utf-8") for name in ("atari", "hypotension")
    )]  # fmt: skip
    assert len(lines) > 10
    for name, commit in lines:
        told = sum(page.count(commit) for page in pages)
        alike = sum(other == commit for _, other in lines)
        assert name.endswith("-33") or told > alike, name


def test_the_table_of_bounds_is_of_its_rows():
    known = {}
    text = (FOUND / "bounds-33-summary.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        where = line["states"] if line["problem"] == "forest" else f"{line['problem']}, 100"
        known.setdefault((line["n_min"], where), []).append(float(line["median"]))
    table = TEXT[TEXT.index("| n_min | states |") :].split("\n\n")[0].splitlines()
    assert len(table) == 14
    for line in table[2:]:
        n_min, where, *found, _ = (cell.strip() for cell in line.split("|")[1:-1])
        medians = known[n_min, where]
        assert found == [f"{x / 1e6:.1f}e6" if x < -1e6 else f"{x:,.0f}" for x in medians]
        first, next_best = sorted(medians, reverse=True)[:2]
        if "," in where and n_min == "1":
            assert first == medians[0]
            assert f"{first:,.0f}" in PLAIN[PLAIN.index("medians of 10 logs:") :][:200]
            assert f"{next_best:,.0f}" in PLAIN[PLAIN.index("medians of 10 logs:") :][:200]


def test_the_table_of_contrasts_is_of_its_rows():
    known = {}
    text = (FOUND / "contrasts-33-summary.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        known[line["returns"], line["others"], line["n"]] = line
    table = TEXT[TEXT.index("| returns | others |") :].split("\n\n")[0].splitlines()
    assert len(table) == 12
    for line in table[2:]:
        returns, others, *found = (cell.strip() for cell in line.split("|")[1:-1])
        cells = [known[returns, others, n] for n in ("5", "10", "20", "50")]
        assert found == [short(float(c[key])) for key in ("coverage", "welch") for c in cells]
    least = min(float(c["coverage"]) for c in known.values() if c["others"] == "as many")
    assert f"all cells are {short(least)} or more" in PLAIN


def test_claims_are_of_their_rows(cells):
    """The numbers of the table of claims, each from its cell: mean and CVaR."""

    def at(problem, n, name):
        mean, tail, _ = cells[problem, n][name]
        return short(mean), short(tail)

    both = "{} / {}".format
    for words in (
        f"the same as RL: {both(*at('forest', 100, 'PQI, b 0.002'))}",
        f"at 200 episodes has a CVaR of {at('forest', 200, 'DPRL contrast, n_min 20')[1]}",
        f"falls to {both(*at('rooms', 10, 'DPRL paper, n_min 10'))} (rooms, 10",
        f"{both(*at('rooms', 25, 'DPRL paper, n_min 20'))} (rooms, 25",
        f"RL has {both(*at('rooms', 10, 'RL'))}, SPIBB with n_min 5 "
        f"{both(*at('rooms', 10, 'SPIBB, n_min 5'))} and CQL with α .01 "
        f"{both(*at('rooms', 10, 'CQL, alpha 0.01'))}",
        f"n_min 20 to {at('risky_arms', 100, 'DPRL contrast, n_min 20')[1]} at 100, 200",
        f"n_min 50 falls to {at('risky_arms', 500, 'DPRL contrast, n_min 50')[1]} at 500",
        "with n_min 10 only on open with 100 episodes "
        f"({at('open', 100, 'DPRL contrast, n_min 10')[1]}; the behaviour has",
        f"DPRL gets {both(*at('rooms', 10, 'DPRL contrast, n_min 5'))} at its best n_min",
        "the CVaR is {} and {} with contrast, {} and {} with the paper's rule".format(
            *(at("soft", n, f"DPRL {rule}, n_min 20")[1] for rule in ("contrast", "paper")
              for n in (50, 100))
        ),
    ):  # fmt: skip
        assert words in PLAIN, words
    assert at("forest", 100, "PQI, b 0.002") == at("forest", 100, "RL")
    for n in (200, 500, 1_000, 2_000):
        assert at("forest", n, "PQI, b 0.002") == at("forest", n, "PQI, b 0.02")
    for problem, name in [
        *(("risky_arms", name) for name in cells["risky_arms", 50]),
        *((grid, f"DPRL contrast, n_min {n}") for grid in ("rooms", "open") for n in (10, 20, 30)),
    ]:
        lines = {n: row[name] for (p, n), row in cells.items() if p == problem}
        below = [n for n, (_, tail, usual) in lines.items() if tail < usual - 1e-9]
        if problem != "risky_arms":
            assert below == ([100] if (problem, name[-2:]) == ("open", "10") else []), name
            continue
        ends = f"up to {below[-1]:,} episodes" if below else ""
        if len(below) == len(lines):
            ends = "at every n"
        elif below != list(lines)[: len(below)]:
            ends = ""
        said = re.sub(r"(alpha|b) 0\.", lambda m: f"{m[1].replace('alpha', 'α')} .", name)
        said = said.replace("DPRL contrast", "DPRL")
        if ends and name.startswith(("CQL", "SPIBB", "PQI, b", "RL", "DPRL contrast")):
            assert f"{said} {ends}" in PLAIN or "segments" in name, name
        if "gate" in name:
            assert not below


def test_near_the_best_is_counted(cells):
    mine = "Confident, risk 0.01"
    near = 0
    for lines in cells.values():
        usual = lines[mine][2]
        rivals = [line for name, line in lines.items() if not name.startswith("Confident")]
        near += all(
            lines[mine][i] - usual >= NEAR * (max(line[i] for line in rivals) - usual) - 1e-9
            for i in (0, 1)
        )
    words = f"within 5 % of the best gain of any rival in mean *and* in CVaR in {near} of"
    assert f"{words} {len(cells)} cells" in PLAIN


def test_who_falls_below_usual_practice(cells):
    names = {
        "risky_arms": "risky arms",
        "icu sepsis": "ICU-Sepsis",
        "care pathway": "the care pathway",
    }
    for rival in ("RL", "SPIBB, n_min 5", "SPIBB, n_min 20"):
        below = [p for (p, _), lines in cells.items() if rival in lines
                 for _, tail, usual in [lines[rival]] if tail < usual - 1e-9]  # fmt: skip
        where = ", ".join(names.get(problem, problem) for problem in dict.fromkeys(below))
        assert f"{rival.replace(', ', ' with ')} on {where}" in PLAIN
    for rule in ("contrast", "paper"):
        entered = [
            lines[name] for lines in cells.values() if (name := f"DPRL {rule}, n_min 20") in lines
        ]
        below = sum(tail < usual - 1e-9 for _, tail, usual in entered)
        assert f"in {below} of {len(entered)} cells ({rule})" in PLAIN


def test_a_higher_mean_and_which_tail(cells):
    worse, better = 0, 0
    for (problem, _), lines in cells.items():
        mean, tail, _ = lines["Confident, risk 0.01"]
        for name, line in lines.items():
            rival = name == "SPIBB, n_min 5" or name.startswith("CQL")
            if (
                problem in ("forest", "risky_arms", "care pathway")
                and rival
                and line[0] > mean + 1e-9
            ):
                worse += line[1] < tail - 1e-9
                better += line[1] >= tail - 1e-9
    assert f"have a higher mean {worse + better} times" in PLAIN
    assert f"with a worse tail in {worse} of them and a better one in {better}" in PLAIN


def test_how_often_the_confident_learner_is_below_practice(cells):
    for risk, words in (("0.01", "in {} of {} cells at risk .01"), ("0.002", "in {} at risk .002")):
        lines = [row[f"Confident, risk {risk}"] for row in cells.values()]
        below = sum(tail < usual - 1e-9 for _, tail, usual in lines)
        assert words.format(below, len(lines)) in PLAIN
    rows = read_rows([FOUND / "risky-arms-33-rows.parquet"])
    below = {
        (n, contestant): int((part["value"] < part["behavior"] - 1e-9).sum())
        for (n, contestant), part in by(rows, "n", "contestant")
    }
    few, more = (below[n, "Confident, risk 0.01"] for n in (100, 200))
    assert f"{few} of 100 logs with 100 episodes and {more} of 100 with 200 are below" in PLAIN
    rest = sum(below[n, "Confident, risk 0.002"] for n in (50, 100, 200, 500, 1_000, 2_000))
    assert f"{rest} of all logs at risk .002" in PLAIN


def test_more_data_in_one_place(cells):
    for problem in ("forest", "risky_arms"):
        tails = [cells[problem, n]["DPRL contrast, n_min 20"][1] for n in (200, 500)]
        assert f"from {short(tails[0])} at 200 episodes to {short(tails[1])} at 500" in PLAIN


def test_what_the_true_behaviour_does_to_spibb(cells):
    known = "SPIBB, n_min {}, behavior true".format
    for name, words in (("SPIBB, n_min 5", "estimated"), (known(5), "true")):
        mean, tail, _ = cells["forest", 100][name]
        assert f"{short(mean)} / {short(tail)} with the {words} behaviour" in PLAIN
    for problem, n, n_min in (("rooms", 10, 20), ("open", 10, 5)):
        lines = cells[problem, n]
        change = lines[known(n_min)][1] - lines[f"SPIBB, n_min {n_min}"][1]
        assert f"{problem} with {n} episodes, n_min {n_min}, {short(change, True)}" in PLAIN


def test_sentences_are_of_their_cells():
    def line(mean, tail):
        return {"mean": mean, "cvar": tail, "behavior": 0.5}

    cells = {
        ("PQI, n_min 1", 10): line(0.7, 0.4), ("PQI, n_min 1", 50): line(0.8, 0.8),
        ("PQI, n_min 20", 10): line(0.6, 0.6), ("PQI, n_min 20", 50): line(0.8, 0.7),
        ("PQI, n_min 30", 10): line(0.5, 0.5), ("PQI, n_min 30", 50): line(0.8, 0.8),
    }  # fmt: skip
    names = list(dict.fromkeys(name for name, _ in cells))
    below, near, swept = sentences(cells, names, [10, 50])
    assert below == ("CVaR below usual practice: in 1 of 2: PQI, n_min 1. Never: PQI, n_min 20/30.")
    assert near.endswith("in mean and in CVaR: in 1 of 2: PQI, n_min 1/30.")
    assert swept == (
        "PQI, from n_min 1 to n_min 30: the mean is lower in 1 and the CVaR higher in 1 of 2 sizes; "
        "n_min 20 has the family's best mean in 1 and its best CVaR in 1."
    )


@pytest.mark.parametrize("grid", ["rooms", "open"])
def test_theorem_1_is_the_tightest_bound_on_grids_and_says_nothing(grid):
    bounds = experiment("bounds")
    [task] = [t for t in bounds.settings(True, 33) if t.get("grid") == grid and t["n_min"] == 1]
    rows = bounds.run({**task, "last": task["first"] + 1})
    best = max(rows, key=lambda row: row["value"])
    assert best["bound"] == "DPRL Theorem 1"
    assert all(row["vacuous"] for row in rows)
    assert {row["trivial"] for row in rows} == {-1.5}


def test_what_a_larger_threshold_does():
    rows = read_rows([FOUND / "gridworld-33-rows.parquet"])
    at = {
        key: (float(stats.mean(part["value"])), float(stats.cvar(part["value"])))
        for key, part in by(rows, "problem", "n", "contestant")
    }
    places = {(problem, n) for problem, n, _ in at}
    for family, words in {
        "DPRL contrast": "{} has a lower mean in {} and a higher CVaR in {} of {}",
        "DPRL paper": "{} a lower mean in {} and a higher CVaR in {} of {}",
        "PQI": "{} with the same thresholds a lower mean in {} and a higher CVaR in {} of {}",
    }.items():
        ends = [
            (at[*place, f"{family}, n_min 1"], at[*place, f"{family}, n_min 30"])
            for place in places
        ]
        lower = sum(large[0] < small[0] - 1e-9 for small, large in ends)
        higher = sum(large[1] > small[1] + 1e-9 for small, large in ends)
        assert words.format(family, lower, higher, len(places)) in PLAIN
    tails = [short(at["rooms", 25, f"DPRL paper, n_min {n}"][1]) for n in (10, 20, 30)]
    assert "has a CVaR of {} at n_min 10, {} at 20 and {} at 30".format(*tails) in PLAIN


def test_what_pooled_endings_change(cells):
    text = " ".join((FOUND.parent / "paper.md").read_text(encoding="utf-8").split())
    for i, words in (
        (
            0,
            "is higher than that of *end* in {} of {} comparisons, by up to {}, and lower in {}, by {} at most",
        ),
        (1, "CVaR is higher in {}, by up to {}, and lower in {}, by {} at most"),
    ):
        moved = [
            lines[name.removesuffix(", segments end")][i] - lines[name][i]
            for lines in cells.values()
            for name in lines
            if name.endswith(", segments end")
        ]
        higher, lower = ([m for m in moved if sign * m > 1e-9] for sign in (1, -1))
        counts = [len(higher), *[len(moved)] * (i == 0), short(max(moved)), len(lower)]
        assert words.format(*counts, short(-min(moved))) in text


def test_bias_and_variance_are_of_their_rows():
    rows = read_rows([FOUND / "gridworld-33-rows.parquet"])
    at = (rows["problem"] == "open") & (rows["n"] == 25)

    def share(column, rule, n_min):
        values = rows[column][at & (rows["contestant"] == f"DPRL {rule}, n_min {n_min}")]
        return f"{np.nanmean(values):.2f}".replace("0.", ".", 1)

    few, more = (share("careless_found", "contrast", n) for n in (1, 10))
    assert f"cells found falls from {few} at n_min 1 to {more} at n_min 10" in PLAIN
    good = [share("chose_better", rule, n) for rule in ("contrast", "paper") for n in (1, 10)]
    words = "{} of the cells at n_min 1 and {} at n_min 10 with contrast, in {} and {} with"
    assert words.format(*good) in PLAIN


@pytest.mark.parametrize("problem", ["risky arms", "care pathway"])
def test_a_log_of_power_is_made_again(problem):
    rows = read_rows([FOUND / "power-33-rows.parquet"])
    mine = (rows["problem"] == problem) & (rows["n"] == 200) & (rows["dataset"] == 1)
    fresh = power.run({"world": problem, "n": 200, "seed": 33, "first": 1, "last": 2})
    kept = dict(zip(rows["learner"][mine].tolist(), rows["value"][mine].tolist(), strict=True))
    assert {row["learner"]: row["value"] for row in fresh} == pytest.approx(kept, rel=1e-12)
