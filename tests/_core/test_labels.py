"""Labels as arrays say what the same labels say as a tuple, and codes are those of a dict."""

from __future__ import annotations

import hashlib
import json
import pickle
import random

import numpy as np
import pytest

import dprl
from dprl._core import labels as arrays
from dprl._core import letters
from dprl._core.labels import Labels, Words, labels_at
from dprl.logs import overlap
from dprl.logs.checking.labels import one_number
from dprl.logs.log import label_key

LETTERS = ["a", "b", "\0", "0", "1", "9", "-", "+", ".", "e", " ", "\t", "\x1c", "\\", '"', "\x7f"]
ODD = [
    "007", "7", "7.0", " 7", "+7", "-0", "0", "1.", ".0", "\x1c7", "7\x1d", str(2**63), str(-(2**63)),
    str(2**63 - 1), str(1 - 2**63), "1" * 40, "1" * 41, "0" * 39 + "5", "y" * 119, "y" * 120, "y" * 247,
    "y" * 248,
]  # fmt: skip


def words_of(seed, more=()):
    rng = random.Random(seed)
    drawn = ["".join(rng.choices(LETTERS, k=rng.choice([1, 2, 3, 7, 8, 22]))) for _ in range(600)]
    return list(dict.fromkeys([*drawn, *ODD, *more]))


def columns(rows):
    """Rows of text as Arrow holds them."""
    words = [row.encode() for row in rows]
    ends = np.cumsum([0, *map(len, words)]).astype(np.int32)
    return ends, np.frombuffer(b"".join(words), np.uint8)


@pytest.mark.parametrize("more", [(), ("é", "日本", "\U0001f600", "e\u0301")])
def test_labels_are_the_sequence_that_they_hold(more):
    words = words_of(0, more)
    held = Labels.of(words)
    assert tuple(held) == tuple(words) == held[:]
    assert held == tuple(words)
    assert held != tuple(words[::-1])
    assert held == Labels.of(words)
    assert [held[i] for i in (0, 5, -1)] == [words[i] for i in (0, 5, -1)]
    assert pickle.loads(pickle.dumps(held)) == held
    order = held.order()
    assert [words[i] for i in order] == sorted(words)
    in_order = held.at(order)
    assert in_order.rising
    assert not held.rising
    assert in_order == tuple(sorted(words))
    assert b"".join(in_order.as_json()).decode() == json.dumps(sorted(words))
    assert labels_at(tuple(words), np.array([3, 0])) == tuple(held.at(np.array([3, 0])))
    assert np.array(held, object).tolist() == words


def test_whole_numbers_are_labels_too():
    held = Labels.of([5, -3, 2**63 - 1])
    assert tuple(held) == (5, -3, 2**63 - 1)
    assert not held.rising
    assert b"".join(held.as_json()) == b"[5, -3, 9223372036854775807]"
    assert Labels.of([1, "a"]) is None
    assert Labels.of([True]) is None
    assert Labels.of([2**63]) is None


def test_keys_hashes_and_marks_of_labels_are_those_of_python(monkeypatch):
    words = words_of(1)
    held = Labels.of(words)
    kinds, values = held.meanings()
    for word, kind, value in zip(words, kinds, values, strict=True):
        key = label_key(word)
        assert isinstance(key, int) == bool(kind)
        assert not kind or (key == value and (kind == 1) == (str(key) == word))
    content = np.random.default_rng(0).integers(2**63, size=len(words)).astype(np.uint64)
    for groups in (words, list(range(-7, len(words) - 7))):
        with monkeypatch.context() as patch:
            slow = overlap.keyed_marks(groups, content, "abc"), overlap._labels(groups)
            patch.setattr(arrays, "MANY", 1)
            fast = overlap.keyed_marks(groups, content, "abc"), overlap._labels(groups)
        np.testing.assert_array_equal(slow, fast)
    key = overlap._key("abc")
    by_hand = hashlib.blake2b(
        b"-7|" + int(content[0]).to_bytes(8, "little"), key=key, digest_size=8
    )
    assert int.from_bytes(by_hand.digest(), "big") == fast[0][0]


def test_two_forms_of_one_number_are_found_in_arrays(monkeypatch):
    for words in (["7", "8", "x"], ["007", "8", "7", "x"], [" 8", "9", "08"], ["07", "06", "x"]):
        few = one_number(words)
        monkeypatch.setattr(arrays, "MANY", 1)
        assert one_number(words) == few
        monkeypatch.undo()


@pytest.mark.parametrize("rows", ["shuffled", "sorted", "sorted at first"])
def test_words_are_coded_as_a_dict_does(rows):
    rng = random.Random(2)
    drawn = rng.choices([*words_of(3, ["ä", "ßü"]), ""], k=4000)
    told = {"shuffled": drawn, "sorted": sorted(drawn), "sorted at first": sorted(drawn) + drawn}[
        rows
    ]
    gone = np.array([word == "b" for word in told])
    ends, data = columns(told)
    coder, codes = Words(len(told)), np.empty(len(told), np.int32)
    for first in range(0, len(told), 1000):
        part = slice(first, first + 1000)
        coder.add(ends[first : first + 1001], data, gone[part], codes[part])
    index: dict[str, int] = {}
    expected = [-1 if not w or w == "b" else index.setdefault(w, len(index)) for w in told]
    assert codes.tolist() == expected
    assert tuple(coder.labels()) == tuple(index)


def test_words_with_one_hash_are_told_apart():
    told = [f"{i * 2654435761 % 2**32:x}" for i in range(150_000)]
    ends, data = columns(told)
    hashes = np.array(
        [letters._hash_of(data, ends[i], ends[i + 1] - ends[i]) for i in range(150_000)]
    )
    assert len(np.unique(hashes)) < 150_000  # some do have one
    coder, codes = Words(150_000), np.empty(150_000, np.int32)
    coder.add(ends, data, None, codes)
    assert (codes == np.arange(150_000)).all()
    assert tuple(coder.labels()) == tuple(told)


def test_a_log_with_labels_as_arrays_is_the_same_log(monkeypatch):
    names = [f"p{i}" for i in range(40)]
    rows = {"episode": np.repeat(np.arange(40), 2), "state": ["x", "y"] * 40, "action": ["u"] * 80}
    log = dprl.from_arrays(**rows, reward=np.arange(80.0))
    from dataclasses import replace

    plain = replace(log, episodes=tuple(names), groups=tuple(names))
    held = replace(log, episodes=Labels.of(names), groups=Labels.of(names))
    assert not Labels.of(names).rising
    order, some = np.random.default_rng(0).permutation(40), np.array([3, 17, 30])
    for one, two in (
        (plain, held), (plain.take(some), held.take(some)),
        (plain.in_order(order), held.in_order(order)), (plain.split(seed=1)[0], held.split(seed=1)[0]),
    ):  # fmt: skip
        assert one.digest() == two.digest()
        assert two.episodes == one.episodes
        assert two.groups == one.groups
    monkeypatch.setattr(arrays, "MANY", 1)
    assert overlap.sketch(plain) == overlap.sketch(held)
    with pytest.raises(dprl.errors.LogError, match="repeats a label"):
        replace(log, episodes=Labels.of([*names[:39], "p0"]))


@pytest.mark.slow
def test_what_is_learned_and_judged_from_arrays_is_the_same(monkeypatch, tmp_path):
    from dprl.logs.reading import columns as rows

    path = str(tmp_path / "log.csv")
    rng, n = np.random.default_rng(0), 600
    lines = [
        f"p{i // 3},{i % 3},{rng.choice(list('xyz'))},{rng.choice(list('uv'))},{rng.normal():.3f},"
        f"g{i // 6},{'' if i % 3 < 2 else 'cut' if i % 9 == 2 else 'terminal'}"
        for i in range(n)
    ]
    (tmp_path / "log.csv").write_text("e,t,s,a,r,g,end\n" + "\n".join(lines) + "\n")
    roles = {"episode": "e", "time": "t", "state": "s", "action": "a", "reward": "r"}

    def told(**more):
        log = dprl.read(path, **roles, **more)
        learned, judged = log.split(seed=1)
        policy = dprl.DPRLDiscrete(n_min=3, gamma=0.9, cut="drop-unrelated").fit(learned)
        policy.save(tmp_path / "a.policy")
        yield (tmp_path / "a.policy").read_bytes()
        yield str(dprl.evaluate(policy, judged, draws=20))
        yield log.gathered().digest(), judged.digest(), tuple(log.episodes), tuple(log.groups)
        with pytest.raises(dprl.errors.PolicyError) as error:
            dprl.evaluate(policy, learned, draws=5)
        yield str(error.value)

    for more in ({}, {"group": "g"}, {"group": "g", "ended": "end"}):
        few = list(told(**more))
        with monkeypatch.context() as patch:
            patch.setattr(arrays, "MANY", 1)
            patch.setattr(rows, "LARGE", 1)
            assert list(told(**more)) == few
