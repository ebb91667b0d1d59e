"""Policy files that somebody made to harm: refused by a PolicyError, before they cost anything."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile

import fuzz_policies
import numpy as np
import pytest

import dprl
from dprl._core import archive
from dprl.policies import base as _file
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.rules.rule import Rule


@pytest.fixture(scope="module")
def log():
    return dprl.envs.care_pathway().sample(4000, seed=0)


@pytest.fixture(scope="module")
def parts(log):
    """Words and arrays of a gated policy."""
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    policy = dprl.gate(learner, log, delta=0.05, value_range=(0, 1))
    assert len(policy.certificate.rows) == 2
    return policy._parts()


def written(path, parts, change):
    """A file of these parts after a change, with a digest that fits."""
    words = json.loads(json.dumps(parts[0]))
    arrays = {name: a.copy() for name, a in parts[1].items()}
    change(words, arrays)
    head = {"format": "dprl-policy", "version": _file.VERSION, "kind": "tabular", **words}
    head["arrays"] = {n: {"dtype": a.dtype.str, "shape": list(a.shape)} for n, a in arrays.items()}
    head["digest"] = archive._digest(head, arrays)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("policy.json", json.dumps(head))
        for name, a in arrays.items():
            stream = io.BytesIO()
            np.lib.format.write_array(stream, a, allow_pickle=False)
            z.writestr(f"{name}.npy", stream.getvalue())
    return path


def test_mutated_files_open_or_are_refused(tmp_path):
    result = fuzz_policies.main(50, 11, tmp_path, fresh=False)
    assert not result["failures"]
    assert result["counts"]["opened"] > 5


@pytest.mark.slow
def test_more_mutated_files(tmp_path):
    result = fuzz_policies.main(400, 12, tmp_path)
    assert not result["failures"]


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "change",
    [
        lambda w, a: w["parameters"].update(n_min=10**400),
        lambda w, a: w["parameters"].update(n_min=4.995),
        lambda w, a: w["certificate"].update(groups=10**400),
        lambda w, a: w["provenance"].update(more=nested(600)),
        lambda w, a: w["parameters"].update(more=nested(600)),
        lambda w, a: w["certificate"]["rows"][0].update(low=1e308),
        lambda w, a: w["certificate"].update(margin=1e308),
        lambda w, a: a["Q"].__setitem__(0, 1e308),
        lambda w, a: a["took_sd"].__setitem__(0, 1e308),
        lambda w, a: w["provenance"].update(columns={"encoding": {"how": "joined"}}),
        lambda w, a: (w["provenance"].update(cut_episodes=[1]), w["parameters"].update(cut="drop")),
    ],
)
def test_odd_values_with_a_digest_that_fits(parts, tmp_path, change):
    path = written(tmp_path / "p.dprl", parts, change)
    with pytest.raises(dprl.PolicyError) as caught:
        fuzz_policies.use(path)
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w, a: a.update(n=np.zeros_like(a["n"])), "n = 0, and its n_min is 20"),
        (lambda w, a: a.update(V=a["V"] + 1), "is below the average"),
        (lambda w, a: a.update(Q=np.full_like(a["Q"], np.nan)), "without a value"),
        (lambda w, a: w["certificate"]["rows"][0].update(log10_e=0.1), "needs at least"),
        (lambda w, a: w["certificate"].update(delta=1e-30), "needs at least"),
        (lambda w, a: w["certificate"]["rows"][0].update(n=0), "n = 0"),
        (lambda w, a: w["certificate"]["rows"][0].update(low=7.0), "low = 7"),
        (lambda w, a: w["certificate"]["rows"][0].update(advantage_low=0.99), "advantage_low"),
        (lambda w, a: w["certificate"].update(margin=0.9), "margin"),
    ],
)
def test_numbers_that_contradict_their_own_rule_are_refused(parts, tmp_path, change, words):
    path = written(tmp_path / "p.dprl", parts, change)
    with pytest.raises(dprl.PolicyError, match=words):
        dprl.load(path)


def test_a_large_sample_certificate_follows_from_its_p_values(log):
    gated = dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, grade="large-sample")
    facts = gated.certificate.to_dict()
    facts["rows"][0]["p"] = 0.06
    with pytest.raises(dprl.PolicyError, match="does not follow"):
        dprl.Certificate.from_dict(facts)


def test_a_rule_that_nobody_followed_does_not_speak(tmp_path):
    rule = Rule((), "a", {"groups": 10, "groups_took": 0})
    policy = RulePolicy((), ("a", "b"), {}, {}, feature_names=("x",), rules=(rule,))
    with pytest.raises(dprl.PolicyError, match="groups_took = 0"):
        policy.save(tmp_path / "p.dprl")
    assert not list(tmp_path.iterdir())
    archive_words, arrays = policy._parts()
    _file.pack(tmp_path / "p.dprl", policy.KIND, archive_words, arrays)
    with pytest.raises(dprl.PolicyError, match="groups_took = 0"):
        dprl.load(tmp_path / "p.dprl")


def test_features_have_names_that_are_text(tmp_path):
    kind, words, arrays = _file.unpack(fuzz_policies.GOLDEN / "network.dprl")
    words["feature_names"] = list(range(len(words["feature_names"])))
    _file.pack(tmp_path / "p.dprl", kind, words, arrays)
    with pytest.raises(dprl.PolicyError):
        dprl.load(tmp_path / "p.dprl")


# -- bombs ---------------------------------------------------------------------------------------


def bomb(path, states, actions, n):
    """A small file whose arrays of zeros unpack to about 8 n bytes."""
    array = np.zeros((states, actions))
    shape = {"dtype": "<f8", "shape": [n // actions, actions]}
    head = {"format": "dprl-policy", "version": 2, "kind": "stochastic", "arrays": {"pi": shape},
            "states": list(range(states)), "actions": list(range(actions)),
            "digest": "0" * 64}  # fmt: skip
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array) | {"shape": (n // actions, actions)})  # fmt: skip
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("policy.json", json.dumps(head))
        with z.open("pi.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            left, block = 8 * n, bytes(1 << 22)
            while left > 0:
                member.write(block[: min(left, len(block))])
                left -= len(block)
    return path


def test_a_bomb_is_refused_by_its_ratio(tmp_path):
    path = bomb(tmp_path / "p.dprl", 100_000, 100, 10_000_000)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(dprl.PolicyError, match="would unpack to 80,"):
        dprl.load(path)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_arrays_larger_than_the_words_can_need_are_refused(tmp_path):
    path = bomb(tmp_path / "p.dprl", 10, 10, 100_000)  # small enough for its ratio
    with pytest.raises(dprl.PolicyError, match=r"its words need S = 10"):
        dprl.load(path)


def test_arrays_of_another_kind_are_not_read(parts, tmp_path):
    path = written(tmp_path / "p.dprl", parts, lambda w, a: a.update(pi=np.zeros((3, 3))))
    with pytest.raises(dprl.PolicyError, match="'pi' does not belong to a policy of kind"):
        dprl.load(path)


def test_words_that_would_take_much_memory_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    noise = bytes(rng.integers(48, 122, 60_000, dtype=np.uint8)).replace(b"\\", b"-")
    text = (
        b'{"format": "dprl-policy", "noise": "' + noise + b'", "x": [' + b"[]," * 1_200_000 + b"1]}"
    )
    with zipfile.ZipFile(tmp_path / "p.dprl", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("policy.json", text)
    with pytest.raises(dprl.PolicyError, match=r"would take .* of memory, which no policy does"):
        dprl.load(tmp_path / "p.dprl")


def test_what_dprl_writes_is_never_taken_for_a_bomb(tmp_path, monkeypatch):
    """An honest table that is nearly empty shrinks a thousandfold; it is stored in part then."""
    monkeypatch.setattr(archive, "SMALL", 1000)
    monkeypatch.setattr(archive, "RATIO", 20)
    pi = np.zeros((3000, 50))
    pi[:, 0] = 1.0
    policy = dprl.StochasticPolicy(tuple(range(3000)), tuple(range(50)), {}, {}, pi=pi)
    policy.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.digest() == policy.digest()
    assert dprl.load(tmp_path / "p.dprl").pi[:, 0].all()
