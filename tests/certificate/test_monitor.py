"""Monitoring: what was promised holds, more is certified, or it is contradicted, at any time."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.certificate.eprocesses import against, below
from dprl.certificate.monitor import candidates, log_drift, marks_of

GAMMA = 1.0
LEARNER = dprl.DPRLDiscrete(n_min=20, gamma=GAMMA)


def ward(n, seed, *, drug=0.7, wait=0.4, share=0.5, first=0, state="ill", rest=0.1):
    """One decision a patient: drug or wait; then a second state in which nothing matters."""
    rng = np.random.default_rng(seed)
    took = rng.random(n) < share
    cured = rng.random(n) < np.where(took, drug, wait)
    other = rng.random(n) < rest
    ids = np.arange(first, first + n)
    return dprl.from_arrays(
        episode=np.repeat(ids, 2), state=np.tile([state, "ward"], n),
        action=np.stack([np.where(took, "drug", "wait"), np.where(other, "move", "stay")], 1).ravel(),
        reward=np.stack([cured.astype(float), np.zeros(n)], 1).ravel(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def policy():
    gated = dprl.gate(LEARNER, ward(600, 0), delta=0.05, value_range=(0, 1))
    assert gated.certificate.issued == {"ill": "drug"}
    return gated


def test_the_same_world_leaves_it_certified_and_nothing_drifts(policy):
    monitor = dprl.Monitor(policy)
    for week in range(5):
        looked = monitor.add(ward(100, 10 + week, first=1_000 * (week + 1)))
        assert looked.status == "still certified"
    assert looked.groups == monitor.groups == 500
    (row,) = looked.suggestions.to_dicts()
    assert row["verdict"] == "holds"
    assert row["took"] + row["others"] == 500
    assert row["difference"] == pytest.approx(0.3, abs=0.15)
    assert not len(looked.drift)


def test_a_drug_that_became_harmful_is_contradicted(policy):
    monitor = dprl.Monitor(policy)
    monitor.add(ward(100, 1, first=1_000))
    looked = monitor.add(ward(600, 2, drug=0.3, wait=0.6, first=2_000))
    assert looked.status == "what was promised is contradicted"
    assert looked.suggestions["verdict"] == ["worse than usual"]
    assert "contradicted" in str(looked)


def test_a_drug_that_does_nothing_any_more_brings_less_than_promised(policy):
    looked = dprl.Monitor(policy).add(ward(3_000, 2, drug=0.5, wait=0.5, first=2_000))
    assert policy.certificate.rows[0]["low"] > 0.05
    assert looked.suggestions["verdict"] == ["less than promised"]


def test_what_was_too_little_to_certify_is_certified_with_more():
    few = dprl.gate(LEARNER, ward(80, 3, drug=0.6), delta=0.05, value_range=(0, 1))
    assert few.certificate.issued == {}
    assert len(candidates(few, 20)) >= 1
    monitor = dprl.Monitor(few)
    assert monitor.add(ward(50, 4, drug=0.6, first=500)).status == "still certified"
    looked = monitor.add(ward(1_500, 5, drug=0.6, first=1_000))
    assert looked.status == "more is certified now"
    assert ("ill", "drug") in zip(looked.more["state"], looked.more["suggested"], strict=True)


def test_practice_that_changes_where_the_policy_defers_is_named(policy):
    looked = dprl.Monitor(policy).add(ward(400, 6, rest=0.6, first=1_000))
    (row,) = looked.drift.to_dicts()
    assert (row["state"], row["action"]) in (("ward", "move"), ("ward", "stay"))
    assert abs(row["now"] - row["then"]) > 0.3
    # at a state with a suggestion practice is expected to change: it is followed
    followed = dprl.Monitor(policy).add(ward(400, 7, share=1.0, first=1_000))
    assert not len(followed.drift)


# -- full adoption, a benefit that is gone, recorded chances --------------------------------------


def test_where_everybody_follows_it_cannot_be_tested_any_more(policy):
    monitor = dprl.Monitor(policy)
    assert monitor.look().status == "not tested yet"
    assert monitor.add(ward(20, 6, share=1.0, first=500)).suggestions["verdict"] == ["cannot say"]
    assert monitor.add(ward(200, 5, first=1_000)).status == "still certified"
    looked = monitor.add(ward(400, 7, share=1.0, first=2_000))
    assert looked.status == "cannot be tested any more"
    assert looked.suggestions["verdict"] == ["cannot be tested any more"]
    size = looked.suggestions["holdout"][0]
    assert f"by lot, one in ten say, until about {size:,} did otherwise" in " ".join(looked.notes)
    # some do otherwise again: it can
    assert monitor.add(ward(200, 8, share=0.8, first=3_000)).status == "still certified"


def test_followers_who_fare_worse_than_promised_are_seen_without_others(policy):
    (row,) = policy.certificate.rows
    usual = policy.others_mean[0, policy.actions.index("drug")]
    monitor = dprl.Monitor(policy)
    worse = monitor.add(ward(800, 7, drug=usual + row["low"] - 0.15, share=1.0, first=2_000))
    assert worse.suggestions["verdict"] == ["followers below the promise"]
    assert worse.status == "what was promised is contradicted"
    between = dprl.Monitor(policy).add(ward(800, 7, drug=0.55, share=1.0, first=2_000))
    assert between.suggestions["verdict"] == ["followers below the estimate"]
    assert between.status == "cannot be tested any more"  # nothing was compared
    assert "partly luck" in " ".join(between.notes)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_benefit_that_went_to_nothing_is_seen(policy, share):
    looked = dprl.Monitor(policy).add(ward(1_200, 3, drug=0.5, wait=0.5, share=share, first=2_000))
    assert looked.status == "less than was estimated"
    (row,) = looked.suggestions.to_dicts()
    assert row["promised"] < row["at_most"] < row["estimated"]


def test_a_suggestion_that_is_taken_up_keeps_its_promise(policy):
    """The advantage over practice falls as practice follows; what the drug brings does not."""
    monitor = dprl.Monitor(policy)
    for k, share in enumerate((0.6, 0.8, 0.9, 0.95, 0.97)):
        looked = monitor.add(ward(1_500, [9, k], share=share, first=10_000 * (k + 1)))
    assert looked.status == "still certified"


@pytest.mark.slow
def test_a_holdout_of_the_size_told_sees_that_a_benefit_is_gone():
    policy = dprl.gate(LEARNER, ward(2_000, 0, drug=0.6), delta=0.05, value_range=(0, 1))
    seen = 0
    for seed in range(50_000, 50_040):
        monitor = dprl.Monitor(policy)
        size = monitor.add(ward(500, seed, drug=0.6, share=1.0, first=5_000)).suggestions["holdout"]
        log = ward(10 * size[0], seed + 1_000, drug=0.6, wait=0.6, share=0.9, first=10_000)
        seen += monitor.add(log).suggestions["at_most"][0] is not None
    assert seen >= 24  # of 40; .8 is aimed at


def test_chances_that_differ_from_row_to_row_are_not_compared(policy):
    log = ward(2_000, 4, drug=0.2, wait=0.6, first=5_000)
    rows = np.arange(log.n_steps)
    by_lot = replace(log, propensity=np.where(rows % 2, 1.0, 0.5))
    assert dprl.Monitor(policy).add(by_lot).status == "what was promised is contradicted"
    chosen = replace(log, propensity=np.where(rows % 2, 1.0, np.where(rows % 4, 0.4, 0.6)))
    monitor = dprl.Monitor(policy)
    looked = monitor.add(chosen)
    assert looked.status == "not tested yet"
    assert "the recorded chances differ" in " ".join(looked.notes)
    assert monitor.groups == 2_000


def test_chances_that_differ_between_additions_are_compared_each_within_itself(policy):
    """First few are given the drug, later, when all fare worse, nearly all: it is as good as ever."""

    def months(recorded):
        monitor = dprl.Monitor(policy)
        for k in range(6):
            share, worse = ((0.2, 0.0), (0.9, 0.35))[k // 3]
            log = ward(400, 70 + k, drug=0.7 - worse, wait=0.4 - worse, share=share,
                       first=1_000 * (k + 1), rest=0.5)  # fmt: skip
            p = np.select([log.action == log.actions.index(a) for a in ("drug", "wait")],
                          [share, 1 - share], 0.5)  # fmt: skip
            looked = monitor.add(replace(log, propensity=p) if recorded else log)
        return monitor, looked

    (row,) = months(recorded=False)[1].suggestions.to_dicts()
    assert row["verdict"] == "less than estimated"  # nothing says that more were chosen later
    monitor, looked = months(recorded=True)
    (row,) = looked.suggestions.to_dicts()
    assert looked.status == "still certified"
    assert row["difference"] == pytest.approx(0.3, abs=0.06)
    assert row["took"] + row["others"] == 2_400
    assert "differ between additions" in " ".join(looked.notes)
    assert monitor.look().to_dict() == looked.to_dict()


@pytest.mark.slow
def test_two_processes_that_add_at_once_lose_nothing(policy, tmp_path):
    policy.save(tmp_path / "p.dprl")
    for k in range(4):
        dprl.write(ward(30, k, first=1_000 * (k + 1)), tmp_path / f"{k}.parquet")
    code = (
        "import sys, dprl; p = dprl.load('p.dprl'); m = dprl.Monitor(p, 'p.monitor');"
        "print('ready', flush=True); sys.stdin.readline();"
        "[m.add(dprl.read(f, episode='episode', state='state', action='action', reward='reward'))"
        " for f in sys.argv[1:]]"
    )
    adding = [
        subprocess.Popen(
            [sys.executable, "-c", code, *files], cwd=tmp_path, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )
        for files in (("0.parquet", "1.parquet"), ("2.parquet", "3.parquet"))
    ]  # fmt: skip
    for one in adding:  # both have begun before the first adds
        assert one.stdout.readline() == "ready\n"
    for one in adding:
        one.stdin.write("\n")
        one.stdin.flush()
    for one in adding:
        one.communicate()
        assert one.returncode == 0
    both = dprl.Monitor(policy, tmp_path / "p.monitor")
    assert both.groups == 120
    assert both.look().groups == 120


@pytest.mark.parametrize(("level", "size"), [(0.3, 50), (0.7, 20)])
def test_the_evidence_against_a_level_is_its_definition(policy, level, size):
    from dprl.certificate.eprocesses import BETS
    from dprl.certificate.evalues import FRACTIONS

    log = ward(size, 11, drug=0.4, first=1_000)
    seen, _ = dprl.Monitor(policy)._visits(log.gathered())
    cured, drug = log.reward[::2], np.array(log.actions)[log.action[::2]] == "drug"
    pair = policy.states.index("ill") * 5 + policy.actions.index("drug")
    factors = 1 + FRACTIONS[:, None] * ((1 - cured[drug]) / (1 - level) - 1)
    expected = math.log(BETS @ np.prod(factors, axis=1))
    assert below(seen, pair, level) == pytest.approx(expected, abs=1e-6)


def test_unknown_states_and_actions_are_counted_and_do_no_harm(policy):
    looked = dprl.Monitor(policy).add(ward(100, 8, state="new", first=1_000))
    assert any("50.0% of the new steps" in note for note in looked.notes)
    log = ward(100, 9, first=1_000)
    renamed = replace(log, actions=tuple("surgery" if a == "wait" else a for a in log.actions))
    row = dprl.Monitor(policy).add(renamed).suggestions.to_dicts()[0]
    assert row["took"] + row["others"] == 100


# -- the statements, one by one ------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5])
def test_the_e_value_of_drift_is_at_most_one_on_average(p):
    """Over all sequences of 5 old and up to 6 new decisions, whatever the share."""
    o, n = 5, 6
    total = 0.0
    for old, new in itertools.product(range(o + 1), range(n + 1)):
        chance = math.comb(o, old) * math.comb(n, new) * p ** (old + new)
        chance *= (1 - p) ** (o + n - old - new)
        total += chance * math.exp(log_drift([[old, o - old]], [[new, n - new]])[0])
    assert total <= 1


def test_drift_is_found_and_does_not_depend_on_the_order_of_actions():
    one = log_drift([[80, 20, 0]], [[30, 70, 0]])[0]
    assert one == pytest.approx(log_drift([[0, 20, 80]], [[0, 70, 30]])[0])
    assert one > math.log(1e6)
    assert log_drift([[80, 20]], [[0, 0]])[0] <= 0
    assert log_drift([[400, 100]], [[320, 80]])[0] < 0


def slow_against(took, others, c, odds):
    """Its definition, with 4,000 cells one by one and no lazy refinement; rewards at the end."""
    from dprl.certificate.eprocesses import COARSE, PRIOR, ROOM
    from dprl.certificate.evalues import FRACTIONS

    cell = np.arange(4_000)[:, None, None]
    u = np.clip((cell + 1) / 4_000 - c * odds, 0, 1) + ROOM
    rest = 1 - np.clip(cell / 4_000 + c, 0, 1) + ROOM
    f = FRACTIONS[None, :, None]
    X = np.prod(1 + f * (others / u - 1), axis=2)
    Y = np.prod(1 + f * ((1 - took) / rest - 1), axis=2)
    weight = PRIOR[np.arange(4_000) * COARSE // 4_000]
    return math.log(np.einsum("cij,ci,cj->c", weight, X, Y).min())


@pytest.mark.parametrize(("c", "odds"), [(0.0, 0.0), (0.1, 0.5)])
def test_the_evidence_against_a_promise_is_its_definition(policy, c, odds):
    monitor = dprl.Monitor(policy)
    log = ward(40, 11, drug=0.3, wait=0.7, first=1_000)
    seen, _ = monitor._visits(log.gathered())
    cured, drug = log.reward[::2], np.array(log.actions)[log.action[::2]] == "drug"
    pair = policy.states.index("ill") * 5 + policy.actions.index("drug")
    assert len(seen.actions) == 5
    assert against(seen, pair, c, odds) == pytest.approx(
        slow_against(cured[drug], cured[~drug], c, odds), abs=1e-6
    )


def _contradicted(runs, looks, each):
    """How often a promise that just holds is contradicted at one of several looks."""
    policy = dprl.gate(LEARNER, ward(600, 0), delta=0.2, value_range=(0, 1))
    low = policy.certificate.rows[0]["low"]
    false = 0
    for run in range(runs):
        monitor = dprl.Monitor(policy)
        for look in range(looks):
            # drug - wait is exactly the bound that was certified, while more and more take it up
            log = ward(each, [run, look], drug=(1 + low) / 2, wait=(1 - low) / 2,
                       share=0.5 + look / 15, first=10_000 * (look + 1))  # fmt: skip
            if monitor.add(log).status.endswith("contradicted"):
                false += 1
                break
    return false


def test_a_promise_that_just_holds_is_seldom_contradicted():
    assert _contradicted(runs=10, looks=3, each=60) <= 3


@pytest.mark.slow
def test_a_promise_that_just_holds_is_contradicted_in_at_most_delta_of_100_monitors():
    """If a third were contradicted instead, this would see it 99 times in 100."""
    assert _contradicted(runs=100, looks=6, each=80) <= 0.2 * 100


# -- the file -------------------------------------------------------------------------------------


def test_a_file_goes_on_where_it_was(policy, tmp_path):
    path = tmp_path / "policy.monitor"
    whole = dprl.Monitor(policy)
    for week in range(3):
        log = ward(60, 20 + week, first=1_000 * (week + 1))
        one = dprl.Monitor(policy, path).add(log)
        size = path.read_bytes()
        assert whole.add(log).to_dict() == one.to_dict()
    assert dprl.Monitor(policy, path).look().to_dict() == whole.look().to_dict()
    assert path.read_bytes() == size
    assert len(size.splitlines()) == 4
    told = re.sub(rb'"[0-9a-f]{16}"', b"", size.splitlines()[1].split(b'"visits"')[0])
    assert b"1000" not in told  # no labels; a hash may hold these digits by chance


def test_a_group_counts_once_and_the_same_file_twice_changes_nothing(policy, tmp_path):
    path = tmp_path / "m"
    monitor = dprl.Monitor(policy, path)
    monitor.add(ward(50, 1, first=1_000))
    before = path.read_bytes()
    with pytest.raises(dprl.LogError, match="all 50 groups of this log were added before"):
        monitor.add(ward(50, 1, first=1_000))
    assert path.read_bytes() == before
    assert monitor.add(ward(50, 2, first=1_025)).groups == 75
    assert monitor.record.additions[-1]["left_out"] == 25


def test_a_group_counts_once_whether_its_label_is_text_or_a_number(policy, tmp_path):
    new = ward(500, 1, first=1_000)
    again = replace(
        new, episodes=tuple(f"{e}.0" for e in new.episodes), groups=tuple(map(str, new.groups))
    )
    monitor = dprl.Monitor(policy)
    monitor.add(new)
    with pytest.raises(dprl.LogError, match="all 500 groups of this log were added before"):
        monitor.add(again)
    salt = monitor.record.head["salt"]  # files that were begun when text and numbers differed
    older = dprl.Monitor(policy)
    older.record.additions.append(
        {"groups": marks_of(again.groups, older.record.head["salt"], as_stored=True)}
    )
    assert (
        marks_of(again.groups, salt)
        == marks_of(new.groups, salt)
        != marks_of(again.groups, salt, as_stored=True)
    )
    with pytest.raises(dprl.LogError, match="all 500 groups of this log were added before"):
        older.add(again)


def test_other_labels_do_not_make_other_groups(tmp_path):
    """What happened tells that episodes come again; chance does not look like it."""
    care = dprl.envs.care_pathway()
    policy = dprl.gate(LEARNER, care.sample(4_000, seed=0), value_range=(0, 1))

    def named(seed, name, n=150):
        log = care.sample(n, seed=seed)
        labels = tuple(f"{name}{e}" for e in log.episodes)
        return replace(log, episodes=labels, groups=labels)

    monitor = dprl.Monitor(policy, tmp_path / "m")
    copy = dprl.Monitor(policy)
    copy.record.head = monitor.record.head
    for week in range(6):
        monitor.add(named(10 + week, f"{week}-"))
    for again in (named(13, "x"), named(13, "y", 600).take(np.arange(100))):
        with pytest.raises(dprl.LogError, match=r"in the same way, under other labels"):
            monitor.add(again)
    assert monitor.groups == 6 * 150
    copy.add(named(13, "z"))
    with pytest.raises(dprl.LogError, match=r"in the same way, under other labels"):
        monitor.merge(copy)
    for entry in monitor.record.additions:
        del entry["beginnings"]  # as in files from before
    assert monitor.merge(copy).groups == 7 * 150


def test_a_line_that_was_not_finished_is_left_out(policy, tmp_path):
    path = tmp_path / "m"
    monitor = dprl.Monitor(policy, path)
    monitor.add(ward(50, 1, first=1_000))
    whole = path.read_bytes()
    monitor.add(ward(50, 2, first=2_000))
    path.write_bytes(path.read_bytes()[:-30])
    again = dprl.Monitor(policy, path)
    assert again.groups == 50
    again.add(ward(50, 2, first=2_000))
    assert path.read_bytes().startswith(whole)
    assert dprl.Monitor(policy, path).groups == 100


@pytest.mark.parametrize("line", [0, 1])
def test_a_file_that_was_changed_is_refused(policy, tmp_path, line):
    path = tmp_path / "m"
    dprl.Monitor(policy, path).add(ward(50, 1, first=1_000))
    lines = path.read_text().splitlines(keepends=True)
    entry = json.loads(lines[line])
    entry["when" if line else "delta"] = "never" if line else 0.5
    lines[line] = json.dumps(entry) + "\n"
    path.write_text("".join(lines))
    with pytest.raises(dprl.PolicyError, match=f"changed or is damaged, at line {line + 1}"):
        dprl.Monitor(policy, path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(dprl.PolicyError, match="damaged, at line 1"):
        dprl.Monitor(policy, path)


def test_monitors_of_two_sites_together_are_the_one_of_both(policy, tmp_path):
    path, copy = tmp_path / "a", tmp_path / "b"
    one = dprl.Monitor(policy, path)
    one.add(ward(50, 1, first=1_000), when="2026-01-01")
    copy.write_bytes(path.read_bytes().splitlines(keepends=True)[0])  # what came to it alone
    north, south = dprl.Monitor(policy, path), dprl.Monitor(policy, copy)
    north.add(ward(70, 2, first=2_000), when="2026-01-02")
    south.add(ward(90, 3, first=3_000), when="2026-01-03")
    both = dprl.Monitor(policy)
    for n, seed, first in ((50, 1, 1_000), (70, 2, 2_000), (90, 3, 3_000)):
        whole = both.add(ward(n, seed, first=first))
    merged = north.merge(south)
    assert merged.look().to_dict() == south.merge(north).look().to_dict() == whole.to_dict()
    assert merged.history()["groups"] == [50, 120, 210]
    with pytest.raises(dprl.PolicyError, match="groups are in both"):
        north.merge(dprl.Monitor(policy, path))
    with pytest.raises(dprl.PolicyError, match="did not begin from the same file"):
        north.merge(dprl.Monitor(policy))


def test_a_figure_over_time_with_its_rows(policy, tmp_path):
    monitor = dprl.Monitor(policy)
    for week in range(3):
        monitor.add(ward(60, 30 + week, first=1_000 * (week + 1)))
    monitor.plot(tmp_path / "evidence.png")
    assert (tmp_path / "evidence.png").stat().st_size > 5_000
    assert (tmp_path / "evidence.parquet").exists()


# -- bad input ------------------------------------------------------------------------------------


def test_what_cannot_be_monitored_is_refused(policy, tmp_path):
    with pytest.raises(
        dprl.PolicyError, match=r"needs a certificate over labelled.*\n.*\n  Gate the"
    ):
        dprl.Monitor(LEARNER.fit(ward(100, 0)))
    points = dprl.envs.PointMass().sample(20, seed=0)  # a gate of features would not help
    walker = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=0.97, cut="terminal").fit(points)
    with pytest.raises(dprl.PolicyError, match="Judge suggestions over features on new episodes"):
        dprl.Monitor(walker)
    path = tmp_path / "m"
    dprl.Monitor(policy, path).add(ward(50, 1, first=1_000))
    with pytest.raises(dprl.ParameterError, match="began with delta"):
        dprl.Monitor(policy, path, delta=0.5)
    other = dprl.gate(LEARNER, ward(500, 5), delta=0.05, value_range=(0, 1))
    with pytest.raises(dprl.PolicyError, match="belongs to another policy"):
        dprl.Monitor(other, path)
    with pytest.raises(dprl.PolicyError, match="the log the policy was learned from"):
        dprl.Monitor(policy).add(ward(600, 0))
    large = dprl.gate(LEARNER, ward(500, 5), grade="large-sample")
    with pytest.raises(dprl.PolicyError, match="this one is large-sample"):
        dprl.Monitor(large)
    by_lot = replace(ward(500, 5), propensity=np.full(ward(500, 5).n_steps, 0.5))
    whole = dprl.gate(LEARNER, by_lot, mode="policy", value_range=(0, 1))
    assert whole.certificate.grade == "proved"
    with pytest.raises(dprl.PolicyError, match="about the policy as a whole"):
        dprl.Monitor(whole)
    far = ward(20, 1, first=1_000)
    with pytest.raises(dprl.LogError, match="range"):
        dprl.Monitor(policy).add(replace(far, reward=far.reward * 9))


def test_the_command_line(policy, tmp_path, capsys, monkeypatch):
    from dprl.apps.cli.main import _run

    monkeypatch.chdir(tmp_path)
    policy.save(tmp_path / "p.dprl")
    dprl.write(ward(50, 1, first=1_000), tmp_path / "week1.parquet")
    dprl.write(ward(900, 2, drug=0.2, wait=0.7, first=2_000), tmp_path / "week2.parquet")
    assert _run(["monitor", "p.dprl", "week1.parquet", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["status"], first["groups"]) == ("still certified", 50)
    command = ["monitor", "p.dprl", "week2.parquet", "--strict", "--figure", "e.png"]
    assert _run(command) == 3
    assert "What was promised is contradicted (950 new groups)" in capsys.readouterr().out
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert "p.dprl.monitor" in before
    assert _run(command) == 1
    assert "were added before" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert _run(["monitor", "p.dprl"]) == 0
    assert "contradicted" in capsys.readouterr().out
    elsewhere = ["monitor", "p.dprl", "week1.parquet", "--record", "other.monitor", "--json"]
    assert _run(elsewhere) == 0
    assert json.loads(capsys.readouterr().out)["record"] == "other.monitor"


def test_what_comes_first_in_a_group_is_told_by_time_not_by_the_order_of_rows(policy):
    def visits(*which):
        labels = {"first": 1, "second": 0}  # the second episode of a patient stands first
        logs = [(name, ward(100, 1, drug=0.9 if name == "first" else 0.0)) for name in which]
        return dprl.from_arrays(**{
            role: np.concatenate([column(log, labels[name]) for name, log in logs])
            for role, column in {
                "episode": lambda log, k: np.repeat(np.arange(100), 2) * 2 + k,
                "group": lambda log, k: np.repeat(np.arange(100), 2),
                "time": lambda log, k: np.tile([0, 1], 100) + 10 * (1 - k),
                "state": lambda log, k: np.array(log.states)[log.state],
                "action": lambda log, k: np.array(log.actions)[log.action],
                "reward": lambda log, k: log.reward,
            }.items()
        })  # fmt: skip

    found = dprl.Monitor(policy).add(visits("first", "second")).suggestions
    assert found.columns == dprl.Monitor(policy).add(visits("first")).suggestions.columns
    assert found.columns != dprl.Monitor(policy).add(visits("second")).suggestions.columns
