"""Policy files: whole, exact, and harmless whatever is put in front of the reader."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile

import numpy as np
import pytest

import dprl
from conftest import random_episodes, to_log
from dprl.policies.base import VERSION


@pytest.fixture(scope="module")
def policy():
    return dprl.DPRLDiscrete(n_min=2, gamma=0.9).fit(to_log(random_episodes(7)))


@pytest.fixture
def path(policy, tmp_path):
    policy.save(tmp_path / "p.dprl")
    return tmp_path / "p.dprl"


def members(path):
    with zipfile.ZipFile(path) as z:
        return {name: z.read(name) for name in z.namelist()}


def rewrite(path, **changed):
    """The file with members replaced (bytes), removed (None) or added."""
    content = {**members(path), **{k.replace("__", "."): v for k, v in changed.items()}}
    with zipfile.ZipFile(path, "w") as z:
        for name, data in content.items():
            if data is not None:
                z.writestr(name, data)
    return path


def with_head(path, **changed):
    head = {**json.loads(members(path)["policy.json"]), **changed}
    return rewrite(path, policy__json=json.dumps(head).encode())


def test_round_trip(policy, path):
    again = dprl.load(path)
    assert again.digest() == policy.digest()
    assert again.states == policy.states
    assert np.array_equal(again.planned, policy.planned, equal_nan=True)
    assert str(again.changes()) == str(policy.changes())
    assert dict(again.parameters) == dict(policy.parameters)
    assert again.act(list(policy.states)) == policy.act(list(policy.states))


def test_equal_policies_give_equal_bytes(policy, path, tmp_path):
    policy.save(tmp_path / "q.dprl")
    assert path.read_bytes() == (tmp_path / "q.dprl").read_bytes()
    dprl.load(path).save(tmp_path / "r.dprl")
    assert path.read_bytes() == (tmp_path / "r.dprl").read_bytes()


def test_nothing_in_the_file_is_a_pickle(path):
    for name, data in members(path).items():
        assert name == "policy.json" or data.startswith(b"\x93NUMPY")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.999])
def test_truncated(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(dprl.PolicyError, match="not a usable policy file"):
        dprl.load(path)


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bits_never_pass_and_never_crash(path, policy, seed):
    rng = np.random.default_rng(seed)
    data = bytearray(path.read_bytes())
    for place in rng.integers(len(data), size=1 + seed % 3):
        data[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(data))
    try:
        again = dprl.load(path)
    except dprl.PolicyError:
        return
    assert again.digest() == policy.digest()  # a bit of zip bookkeeping that carries nothing


class Boom:
    def __reduce__(self):
        return (pytest.fail, ("code from a policy file was run",))


def objects_npy():
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([Boom()], dtype=object), allow_pickle=True)
    return stream.getvalue()


HOSTILE = {
    "not a zip": lambda p: p.write_bytes(b"hello"),
    "a pickle": lambda p: p.write_bytes(pickle.dumps(Boom())),
    "no policy.json": lambda p: rewrite(p, policy__json=None),
    "not JSON": lambda p: rewrite(p, policy__json=b"{"),
    "not UTF-8": lambda p: rewrite(p, policy__json=b"\xff\xfe\x00"),
    "deep JSON": lambda p: rewrite(p, policy__json=b"[" * 200_000),
    "JSON is a list": lambda p: rewrite(p, policy__json=b"[]"),
    "another format": lambda p: with_head(p, format="zip"),
    "version a word": lambda p: with_head(p, version="one"),
    "version zero": lambda p: with_head(p, version=0),
    "another kind": lambda p: with_head(p, kind="neural"),
    "kind a number": lambda p: with_head(p, kind=3),
    "no arrays": lambda p: with_head(p, arrays=None),
    "array specs odd": lambda p: with_head(p, arrays={"choice": 3}),
    "array of objects": lambda p: rewrite(p, choice__npy=objects_npy()),
    "array dtype object": lambda p: with_head(
        p, arrays={**json.loads(members(p)["policy.json"])["arrays"],
                   "choice": {"dtype": "|O", "shape": [1]}}),
    "array enormous": lambda p: with_head(
        p, arrays={**json.loads(members(p)["policy.json"])["arrays"],
                   "choice": {"dtype": "<i4", "shape": [10**12]}}),
    "array negative": lambda p: with_head(
        p, arrays={**json.loads(members(p)["policy.json"])["arrays"],
                   "choice": {"dtype": "<i4", "shape": [-1]}}),
    "array member missing": lambda p: rewrite(p, choice__npy=None),
    "array garbage": lambda p: rewrite(p, choice__npy=b"\x93NUMPY\x01\x00garbage" * 9),
    "a member too many": lambda p: rewrite(p, evil__py=b"print(1)"),
    "labels odd": lambda p: with_head(p, states=[[1]]),
    "labels a word": lambda p: with_head(p, states="abc"),
    "a part missing": lambda p: with_head(p, parameters=None),
    "content changed": lambda p: with_head(p, actions=["z"] * 9),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, path):
    HOSTILE[name](path)
    with pytest.raises(dprl.PolicyError) as caught:
        dprl.load(path)
    assert 1 < len(str(caught.value).splitlines()) <= 3


def test_two_members_of_one_name(path):
    with zipfile.ZipFile(path, "a") as z, pytest.warns(UserWarning, match="Duplicate"):
        z.writestr("policy.json", b"{}")
    with pytest.raises(dprl.PolicyError, match="two members of one name"):
        dprl.load(path)


def test_a_bomb_is_refused_before_it_unpacks(path, monkeypatch):
    monkeypatch.setattr("dprl.policies.base.LARGEST", 1000)
    with pytest.raises(dprl.PolicyError, match="would unpack to"):
        dprl.load(path)


def test_a_newer_file_says_so(path):
    with_head(path, version=VERSION + 1, made_by="dprl 9.0")
    with pytest.raises(
        dprl.PolicyError,
        match=rf"written by a newer dprl: format {VERSION + 1}.*\n.*9.0\n.*Upgrade",
    ):
        dprl.load(path)


def test_no_file(tmp_path):
    with pytest.raises(dprl.PolicyError, match="there is no policy file"):
        dprl.load(tmp_path / "none.dprl")
    with pytest.raises(dprl.PolicyError, match="there is no policy file"):
        dprl.load(tmp_path)


def test_a_failed_save_leaves_the_old_file(policy, path, tmp_path, monkeypatch):
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="disk full"):
        policy.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["p.dprl"]


def test_saving_where_there_is_no_folder(policy, tmp_path):
    with pytest.raises(dprl.PolicyError, match="its folder does not exist"):
        policy.save(tmp_path / "no" / "p.dprl")


def test_saved_files_can_be_read_by_others(policy, path):
    assert path.stat().st_mode & 0o777 == 0o644 or path.stat().st_mode & 0o400
    copy = path.with_name("copy.dprl")
    shutil.copy(path, copy)
    assert dprl.load(copy).digest() == policy.digest()
