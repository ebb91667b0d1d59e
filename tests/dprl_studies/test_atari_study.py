"""`dprl reproduce atari`: its tasks, its table, its quick version."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from dprl._core import plot
from dprl.apps.cli.main import _run
from dprl.errors import ParameterError
from dprl.logs.reading.tables import read_rows
from dprl_studies.paper import atari
from dprl_studies.paper.atari import DPRL, LEARNERS, brief, contestants, figure, label, summary

needs = pytest.mark.skipif(
    find_spec("ale_py") is None or find_spec("torch") is None,
    reason="ale-py or torch is not installed (dprl[atari])",
)
ABOUT = [
    {"game": g, "folder": "x", "digest": "0", "expert_steps": 9, "medium_steps": 1}
    for g in ("pong", "qbert")
]


def test_the_papers_grids():
    found = {n: [c for by in (True, False) for c in contestants(n, False, by)] for n in LEARNERS}
    for name in DPRL:
        assert {c["n_min"] for c in found[name]} == {5, 10, 30}
        assert {c["radius"] for c in found[name]} == {"rule", 1e-3, 1e-4}
        assert len(found[name]) == 9
    assert [c["b"] for c in found["PQI"]] == [1e-4, 1e-3, 1e-2]
    assert [c["n_min"] for c in found["SPIBB"]] == [5, 10, 30]
    assert [c["alpha"] for c in found["CQL"]] == [1e-4, 1e-2, 1e-1]
    for name in ("behaviour", "expert", "medium", "BC", "Rules"):
        assert found[name] == [{}]
    labels = [label(n, c) for n, cs in found.items() for c in cs]
    assert len(set(labels)) == len(labels) == 86


def test_tasks_are_data():
    for quick in (True, False):
        tasks = atari.settings(quick, 3, about=ABOUT)
        assert json.loads(json.dumps(tasks)) == tasks
        named = {(t["game"], t["learner"], t["by_rule"]) for t in tasks}
        assert len(named) == len(tasks) == 2 * (len(LEARNERS) + (0 if quick else 8))
        assert [t["by_rule"] for t in tasks] == sorted((t["by_rule"] for t in tasks), reverse=True)
        assert {t["episodes"] for t in tasks} == {2 if quick else 20}
        assert {t["samples"] for t in tasks} == {5_000 if quick else 100_000}


def rows_of(expert_steps, rewarded=99):
    """Scores that are known: the behaviour gets 10 + i, DPRL paper 3 more, others 1 less."""
    rows = []
    for learner in LEARNERS:
        for one in contestants(learner, True):
            for i in range(4):
                plus = {"behaviour": 0, "DPRL paper": 3}.get(learner, -1)
                rows.append({
                    "game": "pong", "learner": learner, "contestant": label(learner, one),
                    "radius": 0.25, "by_rule": "radius" in one, "near": 4.0, "episode": i,
                    "score": 10.0 + i + plus, "deferred": 0.5 * (i > 0), "cut": i == 0, "samples": 77,
                    "steps": 100 if i else 700,
                    "rewarded": rewarded, "games_learned": 5, "expert_steps": expert_steps, "medium_steps": expert_steps,
                    "quick": True,
                })  # fmt: skip
    return {k: np.array([r[k] for r in rows]) for k in rows[0]}


def test_table_and_figure():
    table = summary(rows_of(1_000))
    found = {r["contestant"]: r for r in table}
    assert found["behaviour"]["score"] == 11.5
    paper = found["DPRL paper, n_min 5"]
    assert (paper["difference"], paper["difference_low"], paper["difference_high"]) == (3, 3, 3)
    assert paper["low"] < 14.5 < paper["high"]
    assert found["BC"]["difference"] == -1
    assert paper["deferred"] == pytest.approx(0.15)  # 150 of 1,000 steps, in games of any length
    assert "radius by rule 0.25" in table.note
    assert "1,000 steps" in table.note
    assert "QUICK" in table.note
    assert "UNTRAINED" in summary(rows_of(0)).note
    assert "IN THE LOG" not in table.note
    assert "NO REWARD IN THE LOG" in summary(rows_of(9, rewarded=0)).note
    assert "REWARDS: 2 IN THE LOG" in summary(rows_of(9, rewarded=2)).note
    with plot.look():
        drawn = figure(rows_of(1_000))
    assert len(drawn.axes) == 1
    assert [t.get_text() for t in drawn.axes[0].get_yticklabels()] == list(LEARNERS[::-1])
    assert set(brief(table).columns) < set(table.columns)


@needs
def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(ParameterError, match="needs a folder of trained networks"):
        atari.on_games((), None, tmp_path / "out")
    with pytest.raises(ParameterError, match="holds no expert network of pong"):
        atari.on_games(("pong",), tmp_path, tmp_path / "out")
    with pytest.raises(ParameterError, match="there is no game 'chess'"):
        atari.on_games(("chess",), None, tmp_path / "out", quick=True)
    for seed in (-1, 1 << 20):
        with pytest.raises(ParameterError, match="seed must be a whole number"):
            atari.on_games(("pong",), None, tmp_path / "out", quick=True, seed=seed)
    assert not (tmp_path / "out").exists()


@needs
def test_networks_of_another_game_are_refused(tmp_path):
    from dprl_studies.atari import QNetwork

    for name in ("expert", "medium"):  # Pong and Qbert have six actions each
        QNetwork.random(6, 1, game="pong").save(tmp_path / f"qbert_{name}.npz")
    with pytest.raises(ParameterError, match="network of another game") as caught:
        atari.on_games(("qbert",), tmp_path, tmp_path / "out")
    assert "pong, wanted qbert" in str(caught.value)
    assert not (tmp_path / "out").exists()


SMALL = {"samples": 120, "epochs": 1}


@pytest.fixture
def bars(monkeypatch):
    """The study on the stand-in game; the number of encoders fitted."""
    pytest.importorskip("torch")
    import functools

    from bars import Bars

    from dprl_studies.atari import QNetwork, collecting

    fits = []

    def encode(*args, **how):
        fits.append(how["games"])
        return atari.encoding.encode(*args, batch=16, **how)

    monkeypatch.setattr(atari, "encode", encode)
    monkeypatch.setattr(
        atari, "collect", functools.partial(collecting.collect, copies=2, make=Bars)
    )
    pixels = collecting.Collection.frames
    monkeypatch.setattr(
        collecting.Collection, "frames", lambda self, progress=None: pixels(self, Bars)
    )
    return (QNetwork.random(3, 1), QNetwork.random(3, 2)), fits


def test_points_are_those_of_their_question_and_encoder(tmp_path, monkeypatch, bars):
    pair, fits = bars
    asked = ("bars", tmp_path, pair, SMALL, 0, None)
    first = atari.prepare(*asked)
    assert atari.prepare(*asked) == first
    assert len(fits) == 1
    # Another encoder in its place, as a run that was stopped between two writings leaves it.
    encoder = atari.Encoder.load(tmp_path / "bars" / "encoder.npz")
    moved = {**encoder.weights, "mean": encoder.weights["mean"] + 1}
    atari.Encoder(moved, encoder.about).save(tmp_path / "bars" / "encoder.npz")
    assert atari.prepare(*asked) == first
    assert atari.Encoder.load(tmp_path / "bars" / "encoder.npz").digest() == encoder.digest()
    assert len(fits) == 2
    # Other games teach: the learners' must not be among those the old encoder saw.
    monkeypatch.setattr(atari, "TAUGHT", 0.6)
    assert atari.prepare(*asked)["digest"] != first["digest"]
    assert len(fits) == 3
    assert fits[2].sum() > fits[0].sum()


def test_refused_networks_change_nothing(tmp_path, bars):
    from dprl.errors import LogError

    pair, _ = bars
    atari.prepare("bars", tmp_path, pair, SMALL, 0, None)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(LogError, match="another question"):
        atari.prepare("bars", tmp_path, pair[::-1], SMALL, 0, None)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_remembered_behaviour_is_of_this_code(tmp_path, monkeypatch, bars):
    from bars import Bars

    pair, _ = bars
    one = atari.prepare("bars", tmp_path, pair, SMALL, 0, None)
    monkeypatch.setattr(atari, "Games", lambda game, n, longest: Bars(game, n))
    size = {"episodes": 3, "longest": 9, "trees": 2, "backups": 1, "steps": 1, "samples": 120}
    task = {**one, **size, "learner": "behaviour", "by_rule": True, "quick": True, "seed": 0}
    rows = atari.run(task)
    kept = tmp_path / "bars" / "behaviour.npz"
    arrays, about = atari.read_arrays(kept)
    # What is remembered is taken as long as the code is the same, and by no other code.
    atari.write_arrays(kept, {**arrays, "score": arrays["score"] + 9}, about)
    assert [r["score"] for r in atari.run(task)] == [r["score"] + 9 for r in rows]
    monkeypatch.setattr(atari, "_code", lambda *modules: "other")
    assert atari.run(task) == rows


@needs
@pytest.mark.slow
def test_quick_version_runs_and_goes_on(tmp_path, capsys):
    command = ["reproduce", "atari", "--quick", "--games", "pong", "--out", str(tmp_path), "--json"]
    assert _run(command) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert {r["contestant"].split(",")[0] for r in said["summary"]} == set(LEARNERS)
    place = tmp_path / "atari-quick"
    rows = read_rows([place / "rows.parquet"])
    assert len(rows["score"]) == 2 * len(LEARNERS)
    silent = {n: rows["score"][rows["learner"] == n].tolist() for n in ("behaviour", "DPRL gate")}
    if (rows["deferred"][rows["learner"] == "DPRL gate"] == 1).all():
        assert silent["behaviour"] == silent["DPRL gate"]
    assert "UNTRAINED" in (place / "summary.md").read_text()
    before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
    made = [p.stat().st_mtime_ns for d in ("parts", "pong") for p in sorted((place / d).iterdir())]
    assert len(made) > len(LEARNERS)
    assert _run(command) == 0
    assert made == [  # nothing is played again
        p.stat().st_mtime_ns for d in ("parts", "pong") for p in sorted((place / d).iterdir())
    ]
    assert {p: p.read_bytes() for p in place.rglob("*") if p.is_file()} == before
