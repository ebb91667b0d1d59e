"""A kind of certificate that is declared here, and nowhere else, works from end to end."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import dprl
from conftest import options
from dprl.certificate import _gate
from dprl.certificate.assumptions import LogRecord, as_in_the_state, resting_on
from dprl.evidence.counts import evidence
from dprl.policies import certificate as kinds
from dprl.policies.explain import usual_words
from dprl.policies.protocol import Kind

HOEFFDING = kinds.CertificateKind(
    name="hoeffding",
    columns=lambda grade: (*kinds.ALONE, "low", "room"),
    note=lambda grade: "room: what Hoeffding's inequality takes off the difference.",
    claim=lambda certificate, sure: f"{sure}, {len(certificate.rows)} differences are above 0.",
    wrong=lambda row, certificate: "" if row["low"] > 0 else f"low = {row['low']:g}",
)


def by_hoeffding(proposal, log, settings):
    """Certify changes whose difference at first visits is above 0, by Hoeffding's inequality."""
    policy = proposal.fit(log) if hasattr(proposal, "fit") else proposal
    counted, here = evidence(log, policy.parameters["gamma"]), policy.decisions
    width = settings.known_range[1] - settings.known_range[0]
    n, others = counted.took.n, counted.others.n
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = math.log(n.size / settings.delta)
        room = width * np.sqrt((1 / n + 1 / others) * nats / 2)
        low = counted.took.mean - counted.others.mean - room
    rows, choice = [], policy.choice.copy()
    for s in np.flatnonzero(policy.choice >= 0):
        at = s, policy.choice[s]
        if not low[at] > 0:
            choice[s] = -1
            continue
        rows.append({
            "state": policy.states[s], "kind": Kind(here.kind[s]).word,
            "usual": usual_words(here, int(s)), "suggested": policy.actions[at[1]],
            "n": int(n[at]), "others": int(others[at]), "low": float(low[at]),
            "difference": float(low[at] + room[at]), "room": float(room[at]),
        })  # fmt: skip
    record = LogRecord.of(log, None)
    certificate = dprl.Certificate(
        mode="hoeffding", delta=settings.delta, margin=0.0, value_range=settings.value_range,
        gamma=policy.parameters["gamma"], groups=record.facts.n_groups, tested=(n.size,),
        rows=tuple(rows), gain=None, bounds={}, log=record.log, markov=False,
        assumptions=resting_on(
            record, None, settings, decisions=[as_in_the_state(1.0)], practice="Nothing changes.",
            chosen=[], ordered="a state counts.",
        ),
    )  # fmt: skip
    return replace(policy, choice=choice, certificate=certificate)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(_gate, "GATES", dict(_gate.GATES))
    monkeypatch.setitem(kinds.KINDS, "hoeffding", HOEFFDING)
    _gate.register(HOEFFDING, by_hoeffding)


@pytest.fixture
def log():
    return dprl.envs.care_pathway().sample(4_000, seed=0)


def test_it_is_not_known_before():
    with pytest.raises(dprl.ParameterError, match="mode must be 'swap-split', 'in-sample' or"):
        dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), None, mode="hoeffding")


def test_gate_file_table_and_report(registered, log, tmp_path):
    gated = dprl.gate(
        dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, mode="hoeffding", value_range=(0, 1)
    )
    proved = gated.certificate
    assert proved.kind is HOEFFDING
    assert proved.issued["fever"] == "antibiotics"
    gated.save(tmp_path / "gated.dprl")
    loaded = dprl.load(tmp_path / "gated.dprl")
    assert loaded.certificate.to_dict() == proved.to_dict()
    table = proved.table()
    assert set(table.to_dicts()[0]) == {*kinds.ALONE, "low", "room"}
    assert proved.claim.endswith("differences are above 0.")
    dprl.report(gated, log, tmp_path / "page.html", draws=20, values=False)
    page = (tmp_path / "page.html").read_text()
    assert "room" in page
    assert "differences are above 0." in page


def test_a_row_that_contradicts_the_kind_is_refused(registered, log):
    gated = dprl.gate(
        dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, mode="hoeffding", value_range=(0, 1)
    )
    facts = gated.certificate.to_dict()
    facts["rows"][0]["low"] = -1.0
    with pytest.raises(dprl.PolicyError, match="does not follow from the numbers"):
        dprl.Certificate.from_dict(facts)


def test_the_command_line_knows_it(registered, run, visits):
    path, columns = visits
    fit = ["fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9, "--out", "p.dprl"]
    assert run(*fit)[0] == 0
    asked = ["gate", "p.dprl", path, "--lowest", 0, "--highest", 3, "--delta", 0.2]
    code, out, err = run(*asked, "--mode", "hoeffding", "--details")
    assert (code, err) == (0, "")
    assert "Certificate (proved, hoeffding, δ = 0.2)" in out
    code, _, err = run(*asked, "--mode", "nothing")
    assert code == 1
    assert "'policy' or 'hoeffding'; got 'nothing'" in err
