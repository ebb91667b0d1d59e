"""Experiments: resumable, the same rows whatever the workers, and files people can open."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import pickle
import resource
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from waiting import until

import dprl
from dprl._core import plot
from dprl._core.cluster import source_digest
from dprl._core.table import Table
from dprl.evaluation import stats
from dprl.logs.reading.tables import read_rows, write_rows
from dprl_studies.harness import Experiment, reproduce
from dprl_studies.paper import EXPERIMENTS, experiment, names, power
from dprl_studies.paper.contest import (
    MOST,
    against_n,
    blocks,
    compete,
    label,
    made_of,
    summarise,
)


def toy_settings(quick, seed):
    return [{"task": i, "seed": seed} for i in range(3 if quick else 6)]


def toy_run(setting):
    rng = np.random.default_rng([setting["seed"], setting["task"]])
    return [
        {"task": setting["task"], "word": f"w{i}", "value": float(rng.random())} for i in range(4)
    ]


def toy_summary(rows):
    return Table(
        {"tasks": [len(set(rows["task"].tolist()))], "mean": [float(rows["value"].mean())]}
    )


def toy_figure(rows):
    figure, axes = plot.grid(1, 1)
    axes[0, 0].plot(rows["value"])
    return figure


TOY = Experiment("toy", "Does it add up?", toy_settings, toy_run, toy_summary, toy_figure)


def broken_run(setting):
    if setting["task"] == 3:
        raise OSError("the power went out")
    return toy_run(setting)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_files_and_rows(tmp_path):
    result = reproduce(TOY, tmp_path / "a", workers=1)
    assert result.rows == 24
    assert sorted(contents(tmp_path / "a")) == [
        "figure.png", "figure.svg", "rows.parquet", "settings.json", "summary.csv", "summary.md",
    ]  # fmt: skip
    rows = read_rows([tmp_path / "a" / "rows.parquet"])
    assert rows["task"].tolist() == [t for t in range(6) for _ in range(4)]
    facts = json.loads((tmp_path / "a" / "settings.json").read_text())
    assert facts["dprl"] == dprl.__version__
    assert facts["tasks"] == toy_settings(False, 0)
    assert facts["code"] == source_digest()
    assert set(rows["code"].tolist()) == {source_digest()[:16]}
    assert (tmp_path / "a" / "summary.csv").read_text().startswith("tasks,mean\n6,")


@pytest.mark.slow
def test_workers_do_not_matter(tmp_path):
    paged = replace(TOY, page=lambda rows, facts: "a closure, which workers are not sent")
    reproduce(paged, tmp_path / "one", workers=1)
    reproduce(paged, tmp_path / "two", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_killed_run_goes_on_where_it_was(tmp_path):

    reproduce(TOY, tmp_path / "whole", workers=1)
    with pytest.raises(OSError, match="power"):
        reproduce(replace(TOY, run=broken_run), tmp_path / "part", workers=1)
    done = {p: p.stat().st_mtime_ns for p in (tmp_path / "part" / "parts").iterdir()}
    assert len(done) == 3
    assert not contents(tmp_path / "part")
    shares = []
    reproduce(TOY, tmp_path / "part", workers=1, progress=lambda stage, share: shares.append(share))
    assert shares[0] == pytest.approx(0.5)
    assert shares[-1] == 1.0
    assert contents(tmp_path / "part") == contents(tmp_path / "whole")
    assert {p: p.stat().st_mtime_ns for p in done} == done


def test_seed_and_quick_make_other_tasks(tmp_path):
    one = reproduce(TOY, tmp_path, quick=True, workers=1)
    assert one.rows == 12
    two = reproduce(TOY, tmp_path, quick=True, seed=1, workers=1)
    assert two.summary["mean"] != one.summary["mean"]
    with pytest.raises(dprl.ParameterError, match="workers must be a whole number, at least 1"):
        reproduce(TOY, tmp_path, workers=0)


def test_rows_round_trip(tmp_path):
    rows = [{"a": 1, "b": "x", "c": 0.5}, {"a": 2, "b": "ü", "c": float("nan")}]
    write_rows(rows, tmp_path / "r.parquet")
    again = read_rows([tmp_path / "r.parquet"])
    assert again["a"].tolist() == [1, 2]
    assert again["b"].tolist() == ["x", "ü"]
    assert np.isnan(again["c"][1])


def test_blocks_cover_all_datasets_once():
    tasks = blocks({"n": 10}, 60, seed=5)
    found = [d for t in tasks for d in range(t["first"], t["last"])]
    assert found == list(range(60))
    assert {t["seed"] for t in tasks} == {5}


def test_labels():
    assert label({"learner": "DPRL", "n_min": 5, "contrast": True}) == "DPRL contrast, n_min 5"
    assert label({"learner": "DPRL", "n_min": 5, "contrast": False}) == "DPRL paper, n_min 5"
    assert label({"learner": "CQL", "alpha": 0.1}) == "CQL, alpha 0.1"
    assert label({"learner": "BC"}) == "BC"
    known = {"learner": "SPIBB", "n_min": 5, "behavior": "true"}
    assert label(known) == "SPIBB, n_min 5, behavior true"


def test_unknown_experiment():
    with pytest.raises(dprl.ParameterError, match="there is no experiment 'fourest'"):
        experiment("fourest")


@pytest.mark.parametrize("name", names())
def test_settings_are_data(name):
    one = experiment(name)
    for quick in (True, False):
        tasks = list(one.settings(quick, 3))
        assert json.loads(json.dumps(tasks)) == tasks
        assert len({json.dumps(t, sort_keys=True) for t in tasks}) == len(tasks)
    assert one.question.endswith("?")
    assert one.name == name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_table_names_what_there_is(name):
    """The module, and for experiments that are made: the function and its arguments."""
    entry = EXPERIMENTS[name]
    assert entry.shows.endswith(".")
    module = importlib.import_module(f"dprl_studies.paper.{entry.module}")
    made = getattr(module, entry.maker)
    assert callable(made) or not entry.needs
    if callable(made):
        parameters = inspect.signature(made).parameters
        required = {key for key, p in parameters.items() if p.default is p.empty}
        assert required <= set(entry.options) <= set(parameters)
    if entry.review:
        assert callable(module.reviewed)


def summary_of(name, tmp_path, tasks):
    """An experiment's table from some of its own tasks."""
    one = experiment(name)
    result = reproduce(replace(one, settings=Some(tuple(tasks))), tmp_path, workers=1)
    return {(r["n"], r["contestant"]): r for r in result.summary}


class Some:
    def __init__(self, tasks):
        self.tasks = tasks

    def __call__(self, quick, seed):
        return self.tasks


@pytest.mark.slow
def test_forest_claims(tmp_path):
    """PQI with b = .02 stays at its floor at any n; DPRL gets to .679 once eps·n >> n_min."""
    found = summary_of("forest", tmp_path, [{"n": n, "first": 0, "last": 6} for n in (50, 1000)])
    assert found[50, "PQI, b 0.02"]["mean"] == pytest.approx(0.99**3 * 0.55)
    assert found[1000, "PQI, b 0.02"]["mean"] == pytest.approx(0.99**3 * 0.55)
    for rule in ("contrast", "paper"):
        assert found[1000, f"DPRL {rule}, n_min 20"]["cvar"] == pytest.approx(0.99**3 * 0.7)
    assert found[50, "DPRL contrast, n_min 20"]["below"] == 0


@pytest.mark.slow
def test_risky_arms_claims(tmp_path):
    """CQL and small thresholds fall below the behaviour in CVaR; n_min = 50 does not."""
    found = summary_of("risky-arms", tmp_path, [{"n": 200, "first": 0, "last": 60}])
    behavior = found[200, "RL"]["behavior"]
    for name in ("CQL, alpha 0.01", "DPRL contrast, n_min 1", "RL"):
        assert found[200, name]["cvar"] < behavior - 0.02
    assert found[200, "DPRL contrast, n_min 50"]["cvar"] >= behavior - 1e-9


def running():
    """Process → its parent, where /proc tells; one that only waits to be buried does not run."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                found[int(path.parent.name)] = int(parent)
    return found


@pytest.mark.slow
def test_a_run_killed_by_force_gives_the_same_rows(tmp_path):
    program = Path(sys.executable).parent / "dprl"

    def command(out):
        return [program, "reproduce", "bounds", "--quick", "--out", tmp_path / out]

    process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL)
    parts = tmp_path / "killed" / "bounds-quick" / "parts"
    while len(list(parts.glob("*.parquet"))) < 2:
        assert process.poll() in (None, 0)
        time.sleep(0.05)
    workers = {pid for pid, parent in running().items() if parent == process.pid}
    assert workers or sys.platform != "linux"
    process.kill()
    process.wait()
    until(lambda: not workers & set(running()))  # they notice, and go
    if len(done := sorted(parts.glob("*.parquet"))) == 12:
        done[0].unlink()  # it was faster than this process
    for out in ("killed", "whole"):
        subprocess.run([*command(out), "--workers", "1"], stdout=subprocess.DEVNULL, check=True)
    rows = [
        (tmp_path / o / "bounds-quick" / "rows.parquet").read_bytes() for o in ("killed", "whole")
    ]
    assert rows[0] == rows[1]


def processor_seconds():
    """Seconds that this process and those it waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_quick_versions_are_quick_and_draw(name, tmp_path):
    if name == "icu-sepsis" and find_spec("icu_sepsis") is None:
        pytest.skip("icu-sepsis is not installed (pip install 'dprl[bench]')")
    start = processor_seconds()
    result = reproduce(experiment(name), tmp_path, quick=True, workers=1)
    assert processor_seconds() - start < 240  # about 20 on a core that nothing else uses
    sizes = {path.name: path.stat().st_size for path in result.files}
    assert min(sizes.values()) > 100
    assert sizes["figure.png"] > 20_000
    assert len(str(experiment(name).brief(result.summary)).splitlines()) < 90
    if name == "rules":  # each part with those that it compares
        found = dict.fromkeys(result.summary["study"], frozenset())
        for row in result.summary:
            found[row["study"]] |= {row["method"]}
        assert found.pop("point mass") == {"Rules", "Rules, depth 4", "DPRL-C planned"}
        assert found.pop("intensive care") >= {
            "Rules", "DPRL-C", "gate over cells", "SPIBB", "best constant treatment",
        }  # fmt: skip
        assert set(found) == {"nothing works: linear", "nothing works: steps"}
        assert np.isfinite(result.summary["value"]).sum() >= 3 + 5


def test_lines_of_the_rule_panel_can_be_told_apart():
    from dprl_studies.paper.gridworld import N_MIN, _draw_rule

    rules = ("DPRL contrast", "DPRL paper", "PQI")
    names = [f"{rule}, n_min {n}" for rule in rules for n in N_MIN]
    rows = {
        "problem": np.array(["rooms"] * len(names)), "n": np.full(len(names), 50),
        "contestant": np.array(names), "careless_found": np.ones(len(names)),
        "chose_better": np.ones(len(names)),
    }  # fmt: skip
    with plot.look():
        _, axes = plot.grid(1, 1)
        _draw_rule(axes[0, 0], rows, "rooms", 50)
    lines = axes[0, 0].lines
    assert len(lines) == 6
    looks = [(line.get_color(), line._dash_pattern, line.get_marker()) for line in lines]
    assert len({str(look[:2]) for look in looks}) == 6
    assert len({marker for *_, marker in looks}) == 6
    places = [tuple(line.get_xdata()) for line in lines]  # equal values do not hide each other
    assert len(set(places)) == 6


CONTESTS = ("forest", "risky-arms", "gridworld", "icu-sepsis", "random-mdps")


@pytest.mark.parametrize("name", CONTESTS)
def test_rivals_enter_every_contest_with_both_behaviours(name):
    """Who defers gets the true behaviour when it is judged; SPIBB gets it, too."""
    from dprl_studies.paper import contests, gridworld

    entered = {
        "forest": contests.IN_FOREST, "risky-arms": contests.IN_FOREST,
        "gridworld": gridworld.CONTESTANTS, "icu-sepsis": contests.IN_SEPSIS,
        "random-mdps": contests.ANYWHERE,
    }[name]  # fmt: skip
    run = experiment(name).run
    assert getattr(run, "keywords", {"contestants": contests.ANYWHERE})["contestants"] == entered
    labels = [label(c) for c in entered]
    assert len(set(labels)) == len(labels)
    rivals = [x for x in labels if "SPIBB" in x]
    plain = {x for x in rivals if not x.endswith(", behavior true")}
    assert {f"{x}, behavior true" for x in plain} == set(rivals) - plain
    assert len([x for x in plain if x.startswith("Soft-SPIBB")]) == 3


def test_what_each_rival_is_given():
    """The true behaviour, or an estimate; and PQI's threshold as a number of visits."""
    from dprl.learners.baselines import PQI, SPIBB, SoftSPIBB

    mdp = dprl.envs.risky_arms()
    log = mdp.sample(300, seed=4)
    entered = [
        {"learner": "SPIBB", "n_min": 9}, {"learner": "SPIBB", "n_min": 9, "behavior": "true"},
        {"learner": "Soft-SPIBB", "epsilon": 0.5, "behavior": "true"},
        {"learner": "PQI", "n_min": 9},
    ]  # fmt: skip
    answers = compete(mdp, log, entered)
    learners = [
        SPIBB(n_min=9, gamma=0.99), SPIBB(n_min=9, gamma=0.99, behavior=mdp.behavior),
        SoftSPIBB(epsilon=0.5, gamma=0.99, behavior=mdp.behavior),
        PQI(b=9 / log.n_steps, gamma=0.99),
    ]  # fmt: skip
    for (pi, _), learner in zip(answers, learners, strict=True):
        assert pi == pytest.approx(mdp._matrix(learner.fit(log)))
    assert not np.allclose(answers[0][0], answers[1][0])
    notes, n = answers[3][1], np.zeros((len(mdp.states), len(mdp.actions)))
    np.add.at(n, (log.codes(), log.action), 1)
    assert (notes["pairs"] == (n >= 9)).all()
    assert ((notes["choice"] < 0) == ~(n >= 9).any(axis=1)).all()


def contest_rows(n_logs, contestants, seed=7):
    """Rows of contestants on one problem whose values are drawn; the best policy is worth .7."""
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((len(contestants), n_logs)) < 0.1, 0.3, 0.7)
    shape = len(contestants) * n_logs
    return {
        "problem": np.array(["forest"] * shape), "n": np.full(shape, 50),
        "seed": np.full(shape, seed), "contestant": np.repeat(contestants, n_logs),
        "value": values.ravel(), "behavior": np.full(shape, 0.5), "best": np.full(shape, 0.7),
    }  # fmt: skip


def test_bands_are_intervals_over_logs_and_stay_below_the_best_policy():
    """Two standard errors of a CVaR reached beyond what any policy can be worth."""
    rows = contest_rows(100, ["BC"])
    [line] = summarise(rows, "Forest", seed=3)
    for name, statistic in (("mean", stats.mean), ("cvar", stats.cvar)):
        ends = stats.interval(rows["value"], statistic, seed=3, repeats=400)
        assert (line[f"{name}_low"], line[f"{name}_high"]) == ends
        assert 0.3 <= line[f"{name}_low"] <= line[name] <= line[f"{name}_high"] <= line["best"]


def test_figures_say_what_they_show_and_have_few_lines():
    names = [f"{a}, n_min {n}" for a in ("DPRL contrast", "SPIBB") for n in (1, 5, 20)]
    names += [f"{a}, n_min 20" for a in "ABCDEFGH"]
    rows = contest_rows(60, names)
    figure = against_n(rows, partial(summarise, caption="Forest"), {"forest": "Forest"})
    large, small = figure.axes[:2], figure.axes[2:]
    drawn = [[line.get_label() for line in axis.get_lines() if line.get_marker() != "None"]
             for axis in figure.axes]  # fmt: skip
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == MOST
    assert {"DPRL contrast, n_min 20", "SPIBB, n_min 20"} <= set(drawn[0])
    assert sorted(name for axis in drawn[2:] for name in axis) == sorted(
        names
    )  # nobody is left out below
    for axis in [*large, *(axis for axis in small if axis.get_visible())]:
        across = {line.get_ydata()[0] for line in axis.get_lines() if line.get_marker() == "None"}
        assert across == {0.5, 0.7}
    caption = " ".join(figure.get_supxlabel().split())
    assert "percentile intervals" in caption
    assert "60 logs a point, seed 7" in caption
    assert "the mean of the worst 3 logs. A quick look" in caption
    assert "quick" not in made_of(contest_rows(500, ["BC"]))
    sizes = np.repeat([0, 1], [100, 500])
    rows = dict.fromkeys(("problem", "n", "contestant"), sizes) | {"seed": sizes * 0 + 33}
    assert (
        "over 100 to 500 logs a point, seed 33. CVaR 5 %: the mean of the worst 5 to 25 logs"
        in (made_of(rows))
    )


def test_tasks_come_in_an_order_in_which_a_part_of_them_is_of_all_sizes():
    tasks = experiment("gridworld").settings(False, 33)
    part = tasks[: len(tasks) // 20]
    assert {(t["grid"], t["n"]) for t in part} == {(t["grid"], t["n"]) for t in tasks}
    assert {t["first"] for t in part} == {0}
    problems = {t["number"] for t in experiment("random-mdps").settings(False, 33)}
    assert problems == {-1, *range(33_000, 33_020)}  # another seed has other problems


def test_power_is_counted_from_true_values():
    """Two logs: one where 0.1 of a possible 0.2 is gained, one where practice goes on, or a loss."""
    rows = [
        {"problem": "p", "n": 50, "dataset": i, "learner": name, "value": 0.5 + gain,
         "practice": 0.5, "best": 0.7, "changed": 1.0, "failed": ""}
        for name, gains in (("gate", (0.1, 0.0)), ("HCPI", (0.1, -0.02))) for i, gain in enumerate(gains)
    ]  # fmt: skip
    table = power.summary({key: np.array([row[key] for row in rows]) for key in rows[0]})
    assert [(r["issued"], r["gain"], r["below"]) for r in table] == [
        (0.5, pytest.approx(0.25), 0.0), (1.0, pytest.approx(0.2), 0.5),
    ]  # fmt: skip
    assert power.brief(table)["50"] == pytest.approx([0.25, 0.2])


def test_power_has_the_gate_of_another_learner_and_practice_goes_on_where_hcpi_falls_back():
    rows = power.run({"world": "risky arms", "n": 500, "seed": 1, "first": 0, "last": 2})
    value = {(row["learner"], row["dataset"]): row["value"] for row in rows}
    assert {name for name, _ in value} == set(power.LEARNERS)
    usual = dprl.envs.risky_arms().value()
    assert [value["HCPI, proved", i] for i in (0, 1)] == [usual, usual]
    log = dprl.envs.risky_arms().sample(500, seed=dprl.apps.contest.log_seed(1, 500, 1))
    rival = dprl.baselines.SPIBB(gamma=0.99, n_min=10)
    gated = dprl.gate(rival, log, value_range=(0.0, 1.0))
    assert dprl.envs.risky_arms().value(gated) == value["gate, proved", 1]


@pytest.mark.parametrize("name", names())
def test_what_workers_are_sent_of_an_experiment_can_be_sent(name):
    one = experiment(name, logs=3)
    assert pickle.loads(pickle.dumps(one.run)) is not None
    assert len(one.settings(False, 33)) <= len(experiment(name).settings(False, 33))


def test_methods_that_the_palette_does_not_know_can_be_told_apart():
    looks = plot.style(["Confident", "gate", "gate, proved", "HCPI", "mine"])
    color = {name: look["color"] for name, look in looks.items()}
    assert len({color[name] for name in ("Confident", "gate", "HCPI", "mine")}) == 4
    assert color["gate, proved"] == color["gate"]
    assert looks["gate, proved"]["linestyle"] != looks["gate"]["linestyle"]
