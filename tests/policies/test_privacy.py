"""What an attacker can read: policy files, public copies, and every answer over HTTP.

The attacker knows how everything is computed, tries all 5-digit identifiers, and looks for the
labels themselves.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import threading
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.errors import PolicyError
from dprl.learners.baselines import BC
from dprl.logs import overlap
from dprl.logs.overlap import seen, shared, sketch
from dprl.policies import base as archive
from dprl.policies.base import provenance_of
from dprl.policies.stochastic import NetworkPolicy

ALL = range(10_000, 100_000)
"""Every identifier there can be."""


@functools.cache
def labelled(n=600, seed=0, first=0):
    """A log of patients with random 5-digit identifiers whose states are labels."""
    rng = np.random.default_rng(seed)
    patients = np.random.default_rng(99).permutation(np.array(ALL))[first : first + n]
    lengths = rng.integers(1, 6, n)
    steps = int(lengths.sum())
    state, drug = (
        rng.choice(["mild", "severe"], steps),
        rng.choice(["new", "old"], steps, p=[0.4, 0.6]),
    )
    good = rng.random(steps) < np.where((drug == "new") == (state == "mild"), 0.8, 0.3)
    return dprl.from_arrays(
        episode=np.repeat(patients, lengths), state=state, action=drug, reward=good.astype(float)
    )


@functools.cache
def measured(n=300, seed=0, first=0):
    """The same over features."""
    rng = np.random.default_rng(seed)
    patients = np.random.default_rng(98).permutation(np.array(ALL))[first : first + n]
    x = np.round(rng.uniform(0, 10, (2 * n, 2)), 3)
    drug = rng.choice(["fluids", "wait"], 2 * n)
    reward = np.round(((x[:, 0] < 5) == (drug == "fluids")) * 0.6 + 0.2 * rng.random(2 * n), 3)
    return dprl.from_arrays(
        episode=np.repeat(patients, 2), state=x, action=drug, reward=reward,
        feature_names=["pressure", "lactate"],
    )  # fmt: skip


def network(log):
    """A network with the provenance a fitted one has, without needing torch."""
    rng = np.random.default_rng(0)
    return NetworkPolicy(
        states=(), actions=log.actions, parameters={"learner": "DeepCQL", "gamma": 1.0},
        provenance=provenance_of(log, steps_used=600, notes=[], ranges=[[0.0, 10.0]] * 2),
        feature_names=log.feature_names, scale=np.ones(2), weight=np.ones(2),
        centre=np.full(2, 5.0), W1=rng.normal(size=(2, 4)), b1=rng.normal(size=4),
        W2=rng.normal(size=(4, 2)), b2=rng.normal(size=2),
    )  # fmt: skip


LEARNER = dprl.DPRLContinuous(n_min=5, radius=0.6, gamma=1.0)
KINDS = {
    "tabular": lambda: dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(labelled()),
    "gated": lambda: dprl.gate(
        dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(labelled(first=700, seed=1)),
        labelled(), value_range=(0, 6),
    ),
    "picked": lambda: dprl.sweep(
        dprl.DPRLDiscrete(n_min=20, gamma=1.0), labelled(), labelled(first=700, seed=1),
        n_min=[10, 20], draws=50, values=False,
    ).pick(lambda rows: 0),
    "stochastic": lambda: BC().fit(labelled()),
    "neighbors": lambda: LEARNER.fit(measured()),
    "compressed": lambda: dprl.compress(LEARNER.fit(measured()), 0.2).policy,
    "cells": lambda: dprl.gate(LEARNER, measured(), value_range=(0, 2)),
    "network": lambda: network(measured()),
}  # fmt: skip
LABELLED = ("tabular", "gated", "picked", "stochastic")


@functools.cache
def policy_of(kind):
    return KINDS[kind]()


@pytest.fixture(params=KINDS)
def policy(request):
    return request.param, policy_of(request.param)


def logs_of(kind):
    if kind in LABELLED:
        return [labelled(), labelled(first=700, seed=1)]
    return [measured()]


def texts_of(path):
    """Everything a policy file holds: its own bytes, its JSON, and every number in its arrays."""
    with zipfile.ZipFile(path) as z:
        words = z.read("policy.json").decode()
        arrays = {n: np.load(z.open(n)) for n in z.namelist() if n.endswith(".npy")}
    return words, arrays


def hashes_of(digests):
    """What all identifiers hash to, without a key and with every key an attacker may try."""
    found = set(label_hashes())
    for salt in ("", *digests):
        for patient in ALL:
            text = f"{salt}{patient}".encode()
            found.add(hashlib.sha256(text).hexdigest()[:16])
            found.add(hashlib.md5(text).hexdigest()[:16])
    return found


@functools.cache
def guesses():
    return hashes_of(())


@functools.cache
def label_hashes():
    """What all identifiers hash to without a key, as files once held it."""
    return {f"{a:08x}" for a in overlap._labels(list(ALL), as_stored=True).tolist()}


@functools.lru_cache(maxsize=1)
def marks(log):
    """The marks of all identifiers alone, in every shape, with the key of a log's digest."""
    key, shapes = overlap._key(log), ("{}", "number {}", "number {}|", "text {}|")
    return {overlap._mark(key, shape.format(p).encode()) for shape in shapes for p in ALL}


def named(text, patients):
    """The identifiers that stand in a text as they are."""
    return {p for p in patients if p in text}


def found_in(words, log):
    """Training patients an attacker finds in a text, and digests of the log."""
    patients = {str(e) for e in log.episodes}
    here = named(words, patients)
    # a number such as 0.81234 may hold five digits that are somebody's: not a label of its own
    here = {p for p in here if f'"{p}"' in words or f"[{p}," in words or f" {p}," in words
            or f" {p}]" in words or f",{p}," in words or f",{p}]" in words}  # fmt: skip
    # a digest of a whole file says nothing of one patient, and holds eight letters of any guess
    # in one file of two hundred
    plain = re.sub(r"[0-9a-f]{64}", "", words)
    strings = {plain[i : i + 8] for i in range(len(plain) - 7)}
    strings |= {plain[i : i + 16] for i in range(len(plain) - 15)}
    return here | (strings & guesses()) | ({log.digest()} if log.digest()[:16] in words else set())


def test_an_attacker_without_the_log_recovers_nobody_from_a_policy_file(policy, tmp_path):
    """256 of 256 identifiers could be read out of the plain hashes that files once held."""
    _, fitted = policy
    fitted.save(tmp_path / "p.dprl")
    words, _ = texts_of(tmp_path / "p.dprl")
    strings = {words[i : i + 8] for i in range(len(words) - 7)}
    assert not strings & label_hashes()
    origin = json.loads(words)["provenance"]
    kept = set(origin["sample"]["kept"])
    assert len(kept) == 256
    # With the key, but without what happened to them, a list of all identifiers is not enough.
    assert not kept & marks(origin["log"])


def test_samples_of_two_logs_have_no_mark_in_common():
    """Else the patients of two policies could be compared."""
    log = labelled()
    other = log.take(range(log.n_episodes - 1))
    assert len(set(log.episodes) & set(other.episodes)) == 599
    assert not set(sketch(log)["kept"]) & set(sketch(other)["kept"])


def test_equal_logs_give_equal_files(tmp_path):
    for name in ("one", "two"):
        log = labelled.__wrapped__()  # made anew
        dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


# -- public copies -------------------------------------------------------------------------------


@pytest.mark.thin(1)
def test_a_public_copy_names_nobody_and_answers_the_same(policy, tmp_path):
    kind, fitted = policy
    copy = dprl.public_copy(fitted, points=True)
    copy.save(tmp_path / "public.dprl")
    words, arrays = texts_of(tmp_path / "public.dprl")
    raw = (tmp_path / "public.dprl").read_bytes().decode("latin-1")
    for log in logs_of(kind):
        assert not found_in(words, log)
        assert log.digest() not in words + raw
        for values in arrays.values():
            if values.dtype.kind == "i":
                assert not set(values.ravel().tolist()) & set(log.episodes)
    for word in ('"sample"', '"kept"', '"sweep": {"train"', '"valid"', '"audit"', '"proposed"'):
        assert word not in words
    assert not {m for m in sketch(logs_of(kind)[0])["kept"] if m in words}
    again = dprl.load(tmp_path / "public.dprl")
    assert again.digest() == copy.digest() != fitted.digest()
    if kind in LABELLED:
        states = [*fitted.states, "unheard of"]
        assert again.act(states) == fitted.act(states)
        assert np.array_equal(again.probabilities(), fitted.probabilities(), equal_nan=True)
    else:
        x = np.random.default_rng(5).uniform(-1, 11, (2_000, 2))
        x = np.concatenate([x, measured().features])
        assert again.act(x) == fitted.act(x)
        assert np.array_equal(again.probabilities(x), fitted.probabilities(x), equal_nan=True)
        if hasattr(fitted, "explain"):
            assert again.explain(x[0]).to_dict() == fitted.explain(x[0]).to_dict()
    if fitted.certificate is not None:
        assert again.certificate.claim == fitted.certificate.claim
    found = dprl.evaluate(again, logs_of(kind)[0], gamma=1.0, draws=10, values=False)
    assert "whether it has seen this log cannot be told" in found.warnings[0]


def test_points_are_public_only_where_that_is_said(tmp_path):
    for kind, what in (("neighbors", "600 training points"), ("cells", "cell centres")):
        with pytest.raises(PolicyError, match=f"{what}: states of single people"):
            dprl.public_copy(policy_of(kind))


def test_numbers_of_public_points_do_not_follow_the_log():
    fitted, log = policy_of("neighbors"), measured()
    one = dprl.public_copy(fitted, points=True)
    order = np.random.default_rng(1).permutation(log.n_episodes)
    other = dprl.public_copy(LEARNER.fit(log.take(order)), points=True)
    assert one.digest() == other.digest()  # whoever has the copy cannot tell one order of the log
    assert one.episodes == tuple(range(300))
    assert not np.array_equal(one.z, fitted.z)


def test_a_public_copy_that_is_gated_again_still_cannot_tell():
    copy = dprl.public_copy(policy_of("tabular"))
    gated = dprl.gate(copy, labelled(first=700, seed=1), value_range=(0, 6))
    found = dprl.evaluate(gated, labelled(first=1_500, seed=3), draws=10, values=False)
    assert "cannot be told" in found.warnings[0]
    with pytest.raises(PolicyError, match="this is the log"):
        dprl.evaluate(gated, labelled(first=700, seed=1))


def test_a_report_on_a_public_copy_does_not_say_the_log_is_new(tmp_path):
    copy = dprl.public_copy(policy_of("tabular"))
    dprl.report(copy, labelled(), tmp_path / "r.html", draws=10, values=False)
    text = (tmp_path / "r.html").read_text()
    assert "it has not seen" not in text
    assert "whether it has seen this log cannot be told" in text


def test_forests_cannot_be_copied():
    pytest.importorskip("sklearn")
    forest = dprl.learners.baselines.ForestBC(trees=2).fit(measured())
    with pytest.raises(PolicyError, match="cannot be saved without pickle"):
        dprl.public_copy(forest)


def test_export_on_the_command_line(run, tmp_path):
    policy_of("neighbors").save(tmp_path / "p.dprl")
    code, out, err = run("export", "p.dprl", "--public", "--out", "public.dprl")
    assert (code, out) == (1, "")
    assert "600 training points" in err
    assert "--points" in err
    assert not (tmp_path / "public.dprl").exists()
    code, out, _ = run("export", "p.dprl", "--public", "--points", "--out", "public.dprl")
    assert (code, "public.dprl" in out) == (0, True)
    assert dprl.load(tmp_path / "public.dprl").provenance["public"]
    code, out, _ = run("export", "p.dprl", "--out", "copy.dprl", "--json")
    assert json.loads(out)["digest"] == dprl.load(tmp_path / "p.dprl").digest()
    assert (tmp_path / "copy.dprl").read_bytes() == (tmp_path / "p.dprl").read_bytes()
    code, _, err = run("export", "p.dprl", "--public", "--points", "--out", "p.dprl")
    assert (code, "would be overwritten" in err) == (1, True)


# -- files of older versions ---------------------------------------------------------------------


def plain_sample(log):
    """The sample as files once held it: two plain hashes a group."""
    label = overlap._labels(log.groups, as_stored=True)
    content = overlap._first_contents(log) >> np.uint64(32)
    chosen = np.argsort(label, kind="stable")[:256]
    return [f"{a:08x}{b:08x}" for a, b in zip(label[chosen], content[chosen], strict=True)]


def old(policy, log):
    return replace(policy, provenance={**policy.provenance, "sample": plain_sample(log)})


def write_old(policy, path):
    archive.pack(path, policy.KIND, *policy._parts())


@pytest.mark.parametrize("kind", ["tabular", "neighbors"])
def test_older_files_still_know_their_logs_and_lose_plain_hashes_when_saved(kind, tmp_path):
    log = logs_of(kind)[0]
    write_old(old(policy_of(kind), log), tmp_path / "old.dprl")
    assert found_in(texts_of(tmp_path / "old.dprl")[0], log)  # the attack works on them
    loaded = dprl.load(tmp_path / "old.dprl")
    part = log.take(range(0, log.n_episodes, 2))
    loaded.save(tmp_path / "new.dprl")
    again = dprl.load(tmp_path / "new.dprl")
    words, _ = texts_of(tmp_path / "new.dprl")
    plain = set(plain_sample(log))
    assert not any(p in words or p[:8] in words for p in plain)
    for known in (loaded, again):
        assert "this is the log" in seen(known.provenance, log)
        assert "is also in the log the policy was learned from" in seen(known.provenance, part)
    assert loaded.digest() == json.loads(texts_of(tmp_path / "old.dprl")[0])["digest"]
    public = dprl.public_copy(loaded, points=True)
    assert "sample" not in public.provenance


def test_older_samples_are_sealed_wherever_they_stand():
    log, other = labelled(), labelled(first=700, seed=1)
    sweep = {"valid": other.digest(), "sample": plain_sample(other), "settings": 3}
    origin = {
        "log": "x",
        "proposed": {"log": log.digest(), "sample": plain_sample(log), "sweep": sweep},
    }
    words = json.dumps(overlap.sealed_origin(origin))
    assert not any(p[:8] in words for p in (*plain_sample(log), *plain_sample(other)))
    sealed = overlap.sealed_origin(origin)
    for one in (log, other):
        assert seen(sealed, one)
        assert seen(sealed, one.take(range(0, 600, 2)))
    assert not seen(sealed, labelled(first=1_500, seed=3))


def test_overlap_is_found_in_large_logs():
    """A sample of 256 of many: half of the log, a part with others, and strangers."""
    log = labelled(20_000, seed=4)
    assert shared(sketch(log), log.digest(), log.take(range(10_000))) > 0.9
    half = log.take(range(10_000))
    assert 0.3 < shared(sketch(half), half.digest(), log) <= 1
    other = labelled(20_000, seed=5, first=20_000)
    assert shared(sketch(log), log.digest(), other) == 0
    same_labels = labelled(20_000, seed=6)  # the same identifiers, other stories
    assert shared(sketch(log), log.digest(), same_labels) < 0.05


# -- over HTTP, and for people -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tabular", "gated", "picked", "neighbors", "cells", "old"])
def test_nothing_sent_over_http_names_anybody(kind, tmp_path):
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from dprl.apps.serve.app import serve_app

    fitted = old(policy_of("tabular"), labelled()) if kind == "old" else policy_of(kind)
    logs = logs_of("tabular" if kind == "old" else kind)
    featured = kind in ("neighbors", "cells")
    good = {"pressure": 3.0, "lactate": 5.0} if featured else "mild"
    with TestClient(serve_app(fitted, token=None), base_url="http://127.0.0.1:9") as client:
        client.headers["X-Request-ID"] = "asked"  # one made at random may hold any eight letters
        while client.get("/healthz").status_code != 200:
            threading.Event().wait(0.01)
        sent = [client.get(p) for p in ("/policy", "/healthz", "/metrics", "/openapi.json", "/x")]
        for state in (good, None, 3, {"pressure": 1}, {"pressure": 99.0, "lactate": 1.0}, "zz"):
            sent.append(client.post("/act", json={"states": [state]}))
            sent.append(client.post("/explain", json={"state": state}))
        sent += [client.post("/act", content=b"{"), client.get("/act")]
        sent.append(client.get("/policy", headers={"Host": "other"}))
    assert {r.status_code for r in sent} >= {200, 404, 405, 415, 421, 422}
    for response in sent:
        words = response.text + json.dumps(dict(response.headers))
        for log in logs:
            assert not found_in(words, log), response.request.url
            assert not {m for m in sketch(log)["kept"] if m in words}
        for word in ("sample", "kept", '"log"', "audit", '"valid"'):
            assert word not in words


def test_past_cases_are_shown_where_they_are_asked_for(run, tmp_path):
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from dprl.apps.serve.app import serve_app

    fitted, log = policy_of("neighbors"), measured()
    state = {"pressure": 3.0, "lactate": 5.0}
    assert not len(fitted.explain(state).similar)
    named = fitted.explain(state, cases=True).similar["episode"]
    assert set(named) <= set(log.episodes)
    assert len(named) == 8
    assert "episode" not in fitted.changes().columns
    assert set(fitted.changes(cases=True)["episode"]) <= set(log.episodes)
    for cases in (False, True):
        app = serve_app(fitted, token=None, cases=cases)
        with TestClient(app, base_url="http://127.0.0.1:9") as client:
            while client.get("/healthz").status_code != 200:
                threading.Event().wait(0.01)
            said = client.post("/explain", json={"state": state}).json()
        assert [row["episode"] for row in said["similar"]] == (named if cases else [])
    fitted.save(tmp_path / "p.dprl")
    words = "pressure=3,lactate=5"
    code, out, _ = run("explain", "p.dprl", words)
    assert (code, str(named[0]) in out) == (0, False)
    code, out, _ = run("explain", "p.dprl", words, "--cases")
    assert (code, str(named[0]) in out) == (0, True)
    assert "episode" not in json.loads(run("changes", "p.dprl", "--json")[1])["rows"][0]
    assert "episode" in json.loads(run("changes", "p.dprl", "--cases", "--json")[1])["rows"][0]


@pytest.mark.parametrize("kind", ["tabular", "gated", "picked", "neighbors", "cells"])
def test_a_report_holds_no_sample(kind, tmp_path):
    """A policy gated on another log remembers both; the page once printed that record."""
    fitted, log = policy_of(kind), logs_of(kind)[0]
    dprl.report(fitted, log, tmp_path / "r.html", draws=10, values=False)
    text = (tmp_path / "r.html").read_text()
    assert "kept" not in text
    assert not {m for one in logs_of(kind) for m in sketch(one)["kept"] if m in text}


def test_a_report_names_nobody_unless_asked(tmp_path):
    fitted, held = policy_of("tabular"), labelled(first=700, seed=1)
    held = replace(held, episodes=tuple(f"PATIENT-{e}" for e in held.episodes))
    for cases, there in ((None, False), (2, True)):
        options = {} if cases is None else {"cases": cases}
        dprl.report(fitted, held, tmp_path / "r.html", draws=10, values=False, **options)
        assert ("PATIENT-" in (tmp_path / "r.html").read_text()) == there
