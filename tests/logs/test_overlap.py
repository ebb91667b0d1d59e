"""Who is who: the same people and the same rows are recognised under other labels."""

from __future__ import annotations

import base64
import json

import numpy as np
import polars as pl
import pytest

import dprl
from dprl.errors import PolicyError
from dprl.logs.log import label_key
from dprl.logs.overlap import _every, seen, shared, shares, sketch
from dprl.logs.source import parts_of


def noise(names, *, seed=0, states=3, group=None, digits=6):
    """One decision per name, with rewards that depend on nothing."""
    rng = np.random.default_rng(seed)
    n = len(names)
    return dprl.from_arrays(
        episode=names, state=rng.integers(states, size=n), action=rng.integers(2, size=n),
        reward=np.round(rng.random(n), digits), group=group,
    )  # fmt: skip


def policy_of(log):
    return dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(log)


def test_one_form_of_a_label():
    for same in (7, "7", "7.0", "007", " 7 ", "+7", "7.", np.int64(7)):
        assert label_key(same) == 7
        assert isinstance(label_key(same), int)
    for other in ("7.5", "7a", "A7", "7e0", "٧", "7-0", ""):
        assert isinstance(label_key(other), str)
    assert label_key("9" * 30) == "9" * 30
    assert label_key("-0") == label_key(0) == 0


TURNED = {
    "text": str,
    "gap": lambda i: f"{i}.0",
    "padded": lambda i: f"{i:05}",
    "named anew": lambda i: f"patient {i * 7919 % 100_003}",
}


@pytest.mark.parametrize("turned", TURNED)
def test_the_training_log_is_known_however_its_ids_are_written(turned):
    ids = list(range(1_000, 1_800))
    policy = policy_of(noise(ids))
    again = noise([TURNED[turned](i) for i in ids])
    with pytest.raises(PolicyError, match="the log the policy was learned from"):
        dprl.evaluate(policy, again, draws=10, values=False)
    with pytest.raises(PolicyError, match="the log the policy was learned from"):
        dprl.gate(policy, again, mode="policy", grade="large-sample", value_range=(0, 1))
    assert not seen(policy.provenance, noise([TURNED[turned](i) for i in ids], seed=1))


def test_a_superset_with_one_odd_id_is_known(tmp_path):
    """One id "A17" makes a column of numbers text; few kinds of rows, so that ids must tell."""
    ids = list(range(600))
    log = noise(ids, digits=0)
    policy = policy_of(log)
    dprl.write(log, tmp_path / "log.csv")
    rows = (tmp_path / "log.csv").read_text().splitlines()
    (tmp_path / "log.csv").write_text("\n".join([*rows, rows[1].replace("0,", "A17,", 1), ""]))
    names = {name: name for name in ("episode", "state", "action", "reward")}
    more = dprl.read(tmp_path / "log.csv", **names)
    assert "A17" in more.episodes
    assert "0" in more.episodes
    assert "of a sample of groups is also in the log" in seen(policy.provenance, more)


def test_actions_that_became_text_do_not_hide_a_log():
    log = noise(range(500))
    named = dprl.from_arrays(
        episode=[f"x{i}" for i in range(500)], state=log.state, reward=log.reward,
        action=[str(a) for a in log.action],
    )  # fmt: skip
    assert shares(sketch(log), log.digest(), named)["episodes"] > 0.95


@pytest.mark.slow
def test_renamed_episodes_are_told_from_chance():
    """Logs of few and of many kinds of episodes: never without copies, always with enough."""
    for digits, states in ((6, 3), (3, 3), (2, 3), (1, 3), (0, 2)):
        for seed in range(20):
            one = noise(range(700), seed=2 * seed, digits=digits, states=states)
            other = noise(range(1_000, 1_400), seed=2 * seed + 1, digits=digits, states=states)
            assert shares(sketch(one), one.digest(), other)["episodes"] == 0
            assert shares(sketch(other), other.digest(), one)["episodes"] == 0
        if digits >= 3:
            renamed = noise([f"r{i}" for i in range(700)], seed=0, digits=digits, states=states)
            one = noise(range(700), seed=0, digits=digits, states=states)
            part = renamed.take(np.arange(350))
            assert shared(sketch(one), one.digest(), renamed) > 0.8
            assert shared(sketch(one), one.digest(), part) > 0.8


@pytest.mark.parametrize("n", [1_500, 20_000])
def test_renamed_episodes_of_few_kinds_are_known(n):
    """Forty states, two actions, 0 or 1 as the outcome: every beginning occurs many times."""
    one = noise(range(n), seed=0, digits=0, states=40)
    renamed = noise([f"r{i}" for i in range(n)], seed=0, digits=0, states=40)
    kept = sketch(one)
    assert shares(kept, one.digest(), renamed)["episodes"] > 0.98
    assert shares(kept, one.digest(), renamed.take(np.arange(n // 2)))["episodes"] > 0.75
    for seed in range(1, 21):
        other = noise(range(n, n + n // seed), seed=seed, digits=0, states=40)
        assert shares(kept, one.digest(), other)["episodes"] == 0


def numeric(columns, *, name="{}", dtype=float):
    rng = np.random.default_rng(0)
    x = {column: rng.normal(size=300).astype(dtype) for column in "abc"}
    return dprl.from_frame(
        pl.DataFrame({"id": [name.format(i) for i in range(300)], "do": rng.integers(2, size=300),
                      "gain": rng.normal(size=300).astype(dtype), **x}),
        episode="id", action="do", reward="gain", state=list(columns),
    )  # fmt: skip


OTHERWISE = {
    "order": {"columns": "ba"},
    "more": {"columns": "abc"},
    "more and renamed": {"columns": "cab", "name": "r{}"},
    "32 bits and renamed": {"columns": "ab", "name": "r{}", "dtype": np.float32},
}


@pytest.mark.parametrize("how", OTHERWISE)
def test_other_columns_and_types_of_features_do_not_hide_a_log(how):
    policy = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=1.0).fit(numeric("ab"))
    with pytest.raises(PolicyError, match="the policy was learned from"):
        dprl.evaluate(policy, numeric(**OTHERWISE[how]), draws=10, values=False)


def stays(first, *, seed, patients=800, shift=0):
    """One stay of each patient, of several steps."""
    rng = np.random.default_rng(seed)
    n = 3 * patients
    return dprl.from_arrays(
        episode=np.repeat(np.arange(first, first + patients), 3),
        group=np.repeat(np.arange(patients) * 13 + shift, 3), state=rng.integers(4, size=n),
        action=rng.integers(2, size=n), reward=rng.integers(2, size=n).astype(float),
    )  # fmt: skip


def test_other_stays_of_the_same_patients_are_refused():
    train, judged = stays(0, seed=1), stays(10_000, seed=2)
    policy = policy_of(train)
    with pytest.raises(PolicyError, match=r"of the groups by 'group' are also in the log"):
        dprl.evaluate(policy, judged, draws=10, values=False)
    found = shares(sketch(train), train.digest(), judged)
    assert found["names"] > 0.85
    strangers = stays(10_000, seed=2, shift=5)
    assert shared(sketch(train), train.digest(), strangers) == 0
    half = judged.take(np.arange(400))
    assert shares(sketch(train), train.digest(), half)["names"] > 0.8
    several = stays(20_000, seed=3, patients=8_000)  # 800 of 8,000 are known
    assert shares(sketch(train), train.digest(), several)["names"] > 0.5


def chance_of_names():
    """Of the patients of other logs, the share whose bit is set."""
    train = stays(0, seed=1)
    kept = sketch(train)["names"]
    assert kept["size"] == round(800 / np.log(2))
    bits = np.unpackbits(np.frombuffer(base64.b64decode(kept["bits"]), np.uint8))
    return bits[: kept["size"]].mean()


def test_names_recognise_nobody():
    """Half of all strangers have their bit set, and nothing else of a name is in the file."""
    assert 0.44 < chance_of_names() < 0.56
    words = json.dumps(sketch(stays(0, seed=1)))
    assert "group" not in words
    assert len(words) < 16_000


def test_samples_stay_small():
    for n in (1, 511, 512, 513, 5_000, 10**7):
        assert n / _every(n, 512) <= 512
        assert _every(n, 512) == 1 or n / _every(n, 512) > 255
    assert len(sketch(noise(range(5_000)))["episodes"]["kept"]) <= 512
    assert len(json.dumps(sketch(noise(range(50_000), group=range(50_000))))) < 20_000


def test_samples_do_not_depend_on_the_order_of_stays():
    """With groups of several episodes, text sorts "10" before "9"."""
    rng = np.random.default_rng(3)
    rewards, group = rng.random(300), np.repeat(np.arange(100), 3)
    made = {
        "state": np.zeros(300, int),
        "action": np.zeros(300, int),
        "reward": rewards,
        "group": group,
    }
    one = dprl.from_arrays(episode=np.arange(300), **made)
    other = dprl.from_arrays(episode=[str(i) for i in range(300)], **made)
    assert sketch(one)["kept"] != sketch(other)["kept"]  # keyed by the digest, which differs
    assert shares(sketch(one), one.digest(), other)["groups"] == 1


# -- one table, several ways to write a label ----------------------------------------------------

HEAD = "id,t,patient,s,a,r\n"
NAMES = {
    "episode": "id",
    "time": "t",
    "group": "patient",
    "state": "s",
    "action": "a",
    "reward": "r",
}


def test_a_number_with_and_without_its_point_is_one_label(tmp_path):
    """pandas writes 1.0 in a file with a gap and 1 in the next."""
    (tmp_path / "a.csv").write_text(HEAD + "1,0,1,1,0,0\n2,0,2,2,1,0\n")
    (tmp_path / "b.csv").write_text(HEAD + "1.0,1,1.0,2.0,1.0,1\n3.0,1,2.0,1.0,0.0,1\n")
    log = dprl.read([tmp_path / "a.csv", tmp_path / "b.csv"], **NAMES)
    assert (log.episodes, log.groups, log.states, log.actions) == (
        (1, 2, 3),
        (1, 2),
        (1, 2),
        (0, 1),
    )
    (tmp_path / "c.csv").write_text(HEAD + "A17,1,A17,x,y,1\n")
    more = dprl.read([tmp_path / f"{x}.csv" for x in "abc"], **NAMES)
    assert more.episodes == ("1", "2", "3.0", "A17")  # 3.0 is written in one way alone
    assert (more.groups, more.states, more.actions) == (("1", "2", "A17"), ("1", "2", "x"), ("0", "1", "y"))  # fmt: skip


@pytest.mark.parametrize("odd", ["train", "test"])
def test_a_rare_label_stops_nothing(tmp_path, run, odd):
    """'4x' among 1, 2, 3 makes the labels of one side text, and those of the other stay numbers."""
    rng = np.random.default_rng(0)
    for side, first in (("train", 0), ("test", 1_000)):
        s, a = rng.integers(1, 4, 600), rng.integers(1, 4, 600)
        r = rng.random(600) < 0.2 + 0.2 * a
        rows = [f"{first + i},0,{first + i},{s[i]},{a[i]},{r[i]:d}\n" for i in range(600)]
        if side == odd:
            rows[5] = f"{first + 5},0,{first + 5},9z,4x,1\n"
        (tmp_path / f"{side}.csv").write_text(HEAD + "".join(rows))
    train, test = (dprl.read(tmp_path / f"{side}.csv", **NAMES) for side in ("train", "test"))
    assert {type(log.actions[0]) for log in (train, test)} == {int, str}
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    judged = dprl.evaluate(policy, test, draws=50, values=False)
    # what it would be if labels had been text, or numbers, on both sides
    plain = {"episode": test.episodes, "reward": test.reward}
    names = {
        n: [str(getattr(test, f"{n}s")[c]) for c in getattr(test, n)] for n in ("state", "action")
    }
    alike = dprl.from_arrays(**plain, **names)
    both = {
        n: [str(getattr(train, f"{n}s")[c]) for c in getattr(train, n)] for n in ("state", "action")
    }
    text = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(
        dprl.from_arrays(episode=train.episodes, reward=train.reward, **both)
    )
    again = dprl.evaluate(text, alike, draws=50, values=False)
    assert judged["WIS"] == again["WIS"]
    assert seen(policy.provenance, dprl.read(tmp_path / "train.csv", **NAMES))
    policy.save(tmp_path / "p.dprl")
    assert run("gate", "p.dprl", "test.csv", "--mode", "policy", "--grade", "large-sample")[0] == 0
    assert run("gate", "p.dprl", "test.csv", "--lowest", "0", "--highest", "1")[0] == 0
    told = [str(a) for a in dprl.gate(text, alike, grade="large-sample").act(["1", "2", "3"])]
    assert "3" in told
    for log in (test, parts_of(test, 200)):
        gated = dprl.gate(policy, log, grade="large-sample")
        assert [str(a) for a in gated.act(list(gated.states[:3]))] == told
    assert run("sensitivity", "p.dprl", "test.csv")[0] == 0
    assert run("report", "p.dprl", "test.csv", "--out", "r.html")[0] == 0
    if odd == "train":  # a policy of text acts on numbers
        code, out, _ = run("act", "p.dprl", "test.csv")
        assert code == 0
        assert [line.split(",")[-1] for line in out.splitlines()[1:4]] == ["3", "3", "3"]


def test_a_policy_refuses_what_is_none_of_its_labels():
    policy = policy_of(noise(range(100)))
    assert policy.act([1, "x"]) == [*policy.act([1]), dprl.DEFER]
    for wrong in ("x", "1"):
        with pytest.raises(PolicyError, match=f"states are whole numbers; got '{wrong}'"):
            policy.act([wrong])
    with pytest.raises(PolicyError, match=r"states are whole numbers; got 1\.5"):
        policy.act([1, 1.5])


def test_padded_numbers_are_said_to_be_counted_apart(tmp_path):
    (tmp_path / "a.csv").write_text(
        HEAD + "1,0,1,1,0,0\n01,0,2,2,1,0\n7,0,2,2,1,0\n007,0,1,1,0,1\n"
    )
    found = {f.rule: f for f in dprl.check(tmp_path / "a.csv", **NAMES).findings}
    assert found["numbers_twice"].level == "warning"
    assert "2 labels that are the number of another" in found["numbers_twice"].what


def test_one_number_in_two_forms_is_said_of_every_column_and_when_read(tmp_path):
    more = {"a": ["x", "y"], "r": [0.0, 1.0]}
    pl.DataFrame({"id": [1, 2], "s": ["1", "2"], **more}).write_parquet(tmp_path / "a.parquet")
    other = pl.DataFrame({"id": ["1.0", "3.0"], "s": ["1.0", "2"], **more})
    other.write_parquet(tmp_path / "b.parquet")
    for reader in (dprl.read, dprl.scan):  # in parts, too, where episodes are not held
        with pytest.warns(dprl.LabelWarning, match="'id' has 1 label and 's' has 1 label that are"):
            reader(
                sorted(tmp_path.glob("*.parquet")), episode="id", state="s", action="a", reward="r"
            )


def test_a_split_that_divides_patients_is_refused(tmp_path, run):
    rows = [f"{i},0,{i // 2},1,{i % 2},0\n" for i in range(40)]
    (tmp_path / "v.csv").write_text(HEAD + "".join(rows))
    code, _, err = run("split", "v.csv", "--by", "id", "--group", "patient", "--out", "parts")
    assert code == 1
    assert "of 20 of 'patient' on both sides" in err
    assert "--by patient" in err
    assert not (tmp_path / "parts").exists()
    (tmp_path / "dprl.toml").write_text('[log]\nepisode = "id"\ngroup = "patient"\n')
    assert run("split", "v.csv", "--by", "id", "--out", "parts")[0] == 1
    assert run("split", "v.csv", "--by", "patient", "--out", "parts")[0] == 0


def test_a_log_that_names_no_groups_is_warned_of_where_the_policy_had_some():
    def log(first, group=True):
        log = dprl.envs.care_pathway().sample(400, seed=first)
        rows = np.repeat(np.arange(log.n_episodes), log.lengths)
        table = {"episode": rows + 1_000 * first, "patient": rows // 2, "reward": log.reward}
        table |= {
            n: [getattr(log, f"{n}s")[c] for c in getattr(log, n)] for n in ("state", "action")
        }
        named = {n: n for n in ("episode", "state", "action", "reward")}
        return dprl.from_frame(
            pl.DataFrame(table), **named, **({"group": "patient"} if group else {})
        )

    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log(0))
    with pytest.raises(PolicyError, match="of the groups by 'patient' are also in the log"):
        dprl.evaluate(policy, log(1), draws=20)
    judged = dprl.evaluate(policy, log(1, group=False), draws=20)
    assert any("groups by 'patient', and this one names none" in w for w in judged.warnings)
