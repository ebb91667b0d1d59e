"""The suite: every world and every learner works, rows can be made again, and the page is honest."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.apps.contest import METRICS, _best
from dprl.logs.reading.tables import read_rows, write_rows
from dprl_studies import bench
from dprl_studies.harness import reproduce

SMALL = {"world": "care pathway", "number": 0, "n": 60, "seed": 0, "logs": 2, "own": "", "code": "",
         "hindsight": False, "names": ["BC", "LCB", "Confident, no promise"]}  # fmt: skip


def columns(rows):
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@pytest.fixture
def few(monkeypatch):
    """A suite of two small problems and three learners."""
    names = ("care pathway", "nothing to gain, chain")
    worlds = {name: replace(bench.WORLDS[name], sizes=(60,)) for name in names}
    learners = {name: bench.LEARNERS[name] for name in ("BC", "LCB", "DPRL")}
    monkeypatch.setattr(bench, "WORLDS", worlds)
    monkeypatch.setattr(bench, "LEARNERS", learners)


@pytest.mark.parametrize("name", [name for name, world in bench.WORLDS.items() if not world.large])
def test_every_world_knows_its_truth(name):
    world = bench.WORLDS[name].make(3)
    log = world.sample(5, seed=0)
    usual = dprl.baselines.BC().fit(log)
    assert log.state is not None
    assert math.isfinite(world.value())
    assert math.isfinite(world.value(usual))
    if not bench.WORLDS[name].punishes:
        assert world.value() < _best(world)


def test_every_learner_learns():
    found = bench.run_task({**SMALL, "logs": 1, "names": list(bench.LEARNERS), "hindsight": True})
    assert {row["learner"].split(", ")[0] for row in found} >= set(bench.OTHERS)
    assert not [row for row in found if row["failed"]]
    rivals = {row["learner"]: row["value"] for row in found}
    assert rivals["LCB, c 0.5"] != rivals["LCB"] or rivals["LCB, c 0.02"] != rivals["LCB"]


def test_a_world_that_is_checked_is_another_one():
    ours, kept = (
        bench.experiment(check=check).settings(True, 0) for check in (False, True)
    )  # fmt: skip
    of = [{(t["world"], t["number"], t["seed"]) for t in tasks} for tasks in (ours, kept)]
    assert not of[0] & of[1]
    assert {world for world, _, _ in of[0]} == {world for world, _, _ in of[1]}
    full = bench.experiment().settings(False, 0)
    assert {t["world"] for t in full} == set(bench.WORLDS)


def test_rows_page_and_a_contributed_file(few, tmp_path):
    made = reproduce(bench.experiment(), tmp_path / "one", quick=True, workers=1)
    again = [row for task in bench.experiment().settings(True, 0) for row in bench.run_task(task)]
    rows = read_rows([tmp_path / "one" / "rows.parquet"])
    assert rows["value"].tolist() == [row["value"] for row in again]
    assert set(rows) >= {"settings", "version", "machine", "log_seed", "number", "promised"}
    text = (tmp_path / "one" / "page.md").read_text()
    assert text.index("## Where ours loses") < text.index("## All learners")
    assert 'class="bench"' in text
    assert made.summary["learner"] == ["BC", "LCB", "DPRL"]
    assert bench.verify(tmp_path / "one" / "rows.parquet", sample=4) == []
    better = [{**row, "value": row["value"] + 0.01} for row in again]
    write_rows(better, tmp_path / "better.parquet")
    assert len(bench.verify(tmp_path / "better.parquet", sample=3)) == 3


def test_the_summary_is_that_of_the_rows():
    rows = [
        {"problem": problem, "n": 10, "number": 0, "dataset": i, "learner": name,
         "punishes": "all" * (problem == "trap"), "value": value, "practice": 1.0, "best": 2.0,
         "promised": promised, "changed": 0.5, "seconds": 0.0, "failed": ""}
        for problem, name, values, promised in (
            ("maze", "Confident", (1.2, 1.4), math.nan), ("maze", "LCB", (1.6, 1.8), math.nan),
            ("trap", "Confident", (1.0, 1.0), math.nan), ("trap", "LCB", (0.9, 1.1), 0.05),
        )
        for i, value in enumerate(values)
    ]  # fmt: skip
    table = bench.summarise(columns(rows))
    ours, rival = table.to_dicts()
    assert (ours["mean"], rival["mean"]) == pytest.approx((0.3, 0.7))
    assert rival["to Confident"] == pytest.approx(0.4)
    assert rival["low"] == pytest.approx(0.4)  # the same logs: the difference does not vary
    assert (rival["below"], rival["below where punished"], rival["worst cell"]) == (0.0, 0.5, 0.5)
    assert (rival["promises"], rival["broken where punished"]) == (0.5, 0.5)
    assert math.isnan(rival["broken"])
    (lost,) = bench.losses(columns(rows))
    assert lost.startswith("maze, 10 episodes: LCB reaches 0.70")
    assert METRICS["below"](rows) > 0


MINE = """
from dataclasses import dataclass
import dprl

@dataclass(frozen=True, kw_only=True)
class Mine:
    gamma: float
    def fit(self, log):
        return dprl.baselines.LCB(gamma=self.gamma).fit(log)
"""


def test_a_learner_from_outside_on_the_command_line(few, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("their_learner.py").write_text(MINE)
    code, out, err = run(
        "bench", "--learner", "their_learner:Mine", "--rivals", "LCB", "--workers", 1, "--json"
    )
    assert code == 0, err
    facts = json.loads(out)
    rival, theirs = facts["summary"]
    assert theirs["learner"] == "their_learner:Mine"
    assert theirs["mean"] == rival["mean"] > 0
    rows = Path(facts["folder"], "rows.parquet")
    code, out, err = run("bench", "--verify", rows)
    assert (code, err) == (0, "")
    code, _, err = run("bench", "--rivals", "XYZ")
    assert code == 1
    assert "no rival 'XYZ'" in err
    code, _, err = run("bench", "--learner", "nobody_here:Mine")
    assert code == 1


PUBLISHED = Path(__file__).parents[2] / "docs" / "suite"


def test_the_published_page_follows_from_its_rows_and_some_are_made_again():
    rows = read_rows([PUBLISHED / "rows.parquet"])
    facts = json.loads((PUBLISHED / "settings.json").read_text())
    page = PUBLISHED.with_suffix(".md").read_text(encoding="utf-8")
    assert bench.page(rows, facts) == page
    steady = [row for row in bench.records(rows) if row["learner"] in ("LCB", "SPIBB", "RL")]
    for row in steady[:: len(steady) // 4]:
        world = bench.WORLDS[row["problem"]].make(row["number"])
        again = dprl.contest(
            {row["problem"]: world}, {row["learner"]: bench.LEARNERS[row["learner"]]},
            sizes=[row["n"]], datasets=[row["dataset"]], seed=row["seed"],
        ).rows[0]  # fmt: skip
        assert again["log_seed"] == row["log_seed"]
        assert again["value"] == pytest.approx(row["value"], rel=1e-9)
