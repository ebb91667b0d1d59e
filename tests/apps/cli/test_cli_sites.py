"""The way of several sites through the command line: schema, evidence, merge, fit and gate."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.apps.cli.main import main

pytestmark = pytest.mark.slow  # whole commands, whole studies

NAMES = {"episode": "episode", "time": "time", "state": "state", "action": "action",
         "reward": "reward"}  # fmt: skip
COLUMNS = [word for name in NAMES for word in (f"--{name}", name)]


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Three hospitals' tables, and one of all their rows."""
    monkeypatch.chdir(tmp_path)
    log = dprl.envs.care_pathway().sample(900, seed=0)
    home = np.random.default_rng(0).integers(0, 3, 900)
    logs = {f"site{i}": log.take(np.flatnonzero(home == i)) for i in range(3)} | {"all": log}
    for name, part in logs.items():
        dprl.write(part, tmp_path / f"{name}.csv")
    return dprl.read("all.csv", **NAMES)


@pytest.fixture
def run(capsysbinary):
    def call(*tokens):
        with pytest.raises(SystemExit) as end:
            main([str(token) for token in tokens])
        out, err = capsysbinary.readouterr()
        return end.value.code, out, err.decode()

    return call


def count_all(run, *more):
    assert run("evidence", "all.csv", *COLUMNS, "--make-schema", "schema.json", "--gamma", 1,
               "--lowest", 0, "--highest", 1)[0] == 0  # fmt: skip
    for i in range(3):
        code, _, err = run("evidence", f"site{i}.csv", *COLUMNS, "--schema", "schema.json",
                             "--site", f"ward {i}", "--out", f"site{i}.evidence", *more)  # fmt: skip
        assert (code, err) == (0, "")


def test_three_hospitals_learn_what_the_pooled_table_teaches(run, sites):
    count_all(run, "--k", 1)
    files = [f"site{i}.evidence" for i in range(3)]
    assert run("merge", *files, "--out", "all.evidence")[0] == 0
    code, out, err = run("fit", "all.evidence", "--n-min", 20, "--no-plan", "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    pooled = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False).fit(sites)
    ours = dprl.load("policy.dprl")
    assert facts["changes"] == pooled.summary()["changes"] > 0
    for name in ("choice", "n", "Q", "V", "took_sd", "lowest"):
        assert getattr(ours, name).tobytes() == getattr(pooled, name).tobytes()
    code, out, err = run("gate", "policy.dprl", "all.evidence", "--mode", "in-sample",
                         "--no-markov", "--json")  # fmt: skip
    assert (code, err) == (0, "")
    gated = dprl.gate(pooled, sites, mode="in-sample", markov=False, states=sites.states,
                      value_range=(0, 1))  # fmt: skip
    assert json.loads(out)["certificate"]["tested"] == gated.certificate.to_dict()["tested"]
    assert json.loads(out)["certificate"]["rows"] == gated.certificate.to_dict()["rows"]
    text = run("fit", "all.evidence", "--n-min", 20, "--no-plan")[1].decode()
    assert "Learned from counts of 3 sites ('ward 0', 'ward 1', 'ward 2')" in text


def test_through_a_pipe(run, sites, monkeypatch):
    count_all(run, "--k", 1)
    code, data, _ = run("merge", *(f"site{i}.evidence" for i in range(3)))
    assert code == 0
    fit = ("fit", "-", "--n-min", 20, "--no-plan", "--json")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    code, out, _ = run(*fit)
    assert (code, json.loads(out)["policy"]) == (0, "policy.dprl")
    assert dprl.load("policy.dprl").provenance["groups"] == 900
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data[:-40])))
    code, _, err = run(*fit)
    assert (code, "not a usable evidence file" in err) == (1, True)


def test_through_a_pipe_of_the_shell(run, sites):
    count_all(run, "--k", 1)
    dprl_ = f"{sys.executable} -m dprl"
    line = f"{dprl_} merge site0.evidence site1.evidence | {dprl_} fit - --n-min 20 --no-plan"
    subprocess.run(["bash", "-euo", "pipefail", "-c", line], check=True, capture_output=True)
    assert dprl.load("policy.dprl").provenance["n_sites"] == 2


def test_what_leaves_the_hospital_is_said(run, sites):
    count_all(run)
    code, out, _ = run("evidence", "site0.evidence", "--explain")
    text = out.decode()
    assert code == 0
    assert "'ward 0': k = 10" in text
    for word in ("first visits", "later", "several", "steps", "span", "bins", "not protected"):
        assert word in text
    facts = json.loads(run("evidence", "site0.evidence", "--explain", "--json")[1])
    assert facts[0]["sites"][0]["k"] == 10


def test_a_site_counts_its_table_as_it_is_written(run, sites, tmp_path):
    """Decimal commas, letters of Windows, dates with the day first, labels in two spellings."""
    rows = ["Fall;Tag;Zustand;Mittel;Wert"]
    for i in range(40):
        rows.append(f"{i};01.02.2024;Müde{' ' * (i % 2)};{'A' if i % 3 else 'a'};0,5")
        rows.append(f"{i};01.10.2023;müde;B;0,25")
    (tmp_path / "german.csv").write_text("\n".join(rows), encoding="cp1252")
    columns = [
        "--episode",
        "Fall",
        "--time",
        "Tag",
        "--state",
        "Zustand",
        "--action",
        "Mittel",
        "--reward",
        "Wert",
    ]
    written = [
        "--decimal",
        ",",
        "--encoding",
        "cp1252",
        "--dates",
        "day-first",
        "--labels",
        "trim,casefold",
    ]
    code, _, err = run(
        "evidence", "german.csv", *columns, *written, "--make-schema", "g.json", "--gamma", 1
    )
    assert (code, err) == (0, "")
    schema = dprl.SiteSchema.load("g.json")
    assert (schema.states, schema.actions) == (("müde",), ("a", "b"))
    lines = [
        f'{name.removeprefix("--")} = "{value}"'
        for name, value in zip(written[::2], written[1::2], strict=True)
    ]
    (tmp_path / "dprl.toml").write_text("\n".join(["[log]", *lines]), encoding="utf-8")
    code, _, err = run(
        "evidence", "german.csv", *columns, "--schema", "g.json", "--out", "g.evidence"
    )
    assert (code, err) == (0, "")
    assert dprl.SiteEvidence.load("g.evidence").sites[0]["groups"] == 40
    code, _, err = run("evidence", "--sql", "--schema", "g.json", "--table", "t", *columns)
    assert (code, "--labels is not for the query" in err) == (1, True)


def test_a_schema_from_lists(run, sites, tmp_path):
    (tmp_path / "s.txt").write_text("fever\nstable\n\n")
    (tmp_path / "a.txt").write_text("1\n2\n-3\n")
    assert run("evidence", "--make-schema", "x.json", "--states", "s.txt", "--actions", "a.txt",
               "--gamma", 0.9)[0] == 0  # fmt: skip
    schema = dprl.SiteSchema.load("x.json")
    assert (schema.states, schema.actions) == (("fever", "stable"), (1, 2, -3))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["evidence"], "--schema is missing"),
        (["evidence", "all.csv", "--schema", "none.json", "--out", "x"], "no schema file"),
        (["evidence", "all.csv", "--make-schema", "y.json", *COLUMNS], "needs --gamma"),
        (
            ["evidence", "all.csv", "--make-schema", "y.json", "--gamma", "1"],
            "--episode is missing",
        ),
        (["evidence", "all.csv", "--schema", "s.json", "--gamma", "1"], "--gamma is part of a"),
        (["evidence", "--make-schema", "y.json", "--gamma", "1"], "made of a log, or of"),
        (["evidence", "--explain"], "needs an evidence file"),
        (["evidence", "all.csv", "--explain"], "not a usable evidence file"),
        (["merge", "all.csv", "--out", "x"], "not a usable evidence file"),
        (["merge", "a", "--json"], "--out is missing"),
        (["merge", "all.csv", "--out", "all.csv"], "would be overwritten"),
    ],
)
def test_refusals(run, sites, tokens, words, tmp_path):
    before = sorted(p.name for p in tmp_path.iterdir())
    code, _, err = run(*tokens)
    assert (code, words in err) == (1, True), err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_log_may_be_fitted_over_an_old_evidence_file_s_name(run, sites):
    """Only a file that is read is looked at; one that is written is not."""
    count_all(run)
    code, _, err = run("fit", "all.csv", *COLUMNS, "--gamma", 1, "--n-min", 20, "--out",
                       "site0.evidence")  # fmt: skip
    assert (code, err) == (0, "")
    assert dprl.load("site0.evidence").provenance["episodes"] == 900
    assert run("fit", "--n-min", 20, "--no-plan", "site1.evidence")[0] == 0


def test_a_plan_needs_a_second_round(run, sites):
    count_all(run)
    code, _, err = run("fit", "site0.evidence", "--n-min", 20)
    assert (code, "second time" in err) == (1, True)
    code, _, err = run("fit", "site0.evidence")
    assert (code, "--n-min is missing" in err) == (1, True)
    code, _, err = run("merge", "site0.evidence", "site0.evidence", "--out", "x.evidence")
    assert (code, "would count twice" in err) == (1, True)


def test_the_second_round_gives_the_plan_of_the_pooled_table(run, sites):
    count_all(run, "--k", 1)
    files = [f"site{i}.evidence" for i in range(3)]
    assert run("merge", *files, "--out", "all.evidence")[0] == 0
    for i in range(3):
        code, out, err = run(
            "evidence", f"site{i}.csv", *COLUMNS, "--points", "all.evidence", "--n-min", 20,
            "--k", 1, "--site", f"ward {i}", "--out", f"site{i}.plan",
        )  # fmt: skip
        assert (code, err, b"Second count" in out) == (0, "", True)
    plans = [f"site{i}.plan" for i in range(3)]
    assert run("merge", *plans, "--out", "all.plan")[0] == 0
    assert run("fit", "all.plan", "--n-min", 20)[0] == 0
    pooled = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(sites)
    assert dprl.load("policy.dprl").planned.tobytes() == pooled.planned.tobytes()
    assert b"Second count, of 3 of 3 sites" in run("evidence", "all.plan", "--explain")[1]
    code, _, err = run("fit", "site0.plan", "--n-min", 20)
    assert (code, "2 of 3 sites have not counted" in err) == (1, True)
    code, _, err = run("evidence", "site0.csv", *COLUMNS, "--points", "all.evidence", "--out", "x")
    assert (code, "--n-min is missing" in err) == (1, True)


def test_a_warehouse_counts_with_the_query(run, sites, tmp_path):
    import duckdb

    count_all(run, "--k", 5)
    code, query, err = run("evidence", "--sql", "--schema", "schema.json", "--table",
                           "'site0.csv'", "--dialect", "duckdb", *COLUMNS)  # fmt: skip
    assert (code, err) == (0, "")
    with duckdb.connect() as con:
        con.execute(f"COPY ({query.decode().rstrip()}) TO 'result.csv' (HEADER)")
    code, out, err = run("evidence", "--rows", "result.csv", "--schema", "schema.json", "--k", 5,
                         "--site", "ward 0", "--out", "query.evidence", "--json")  # fmt: skip
    assert (code, err) == (0, "")
    facts = json.loads(out)
    ours, pooled = (dprl.SiteEvidence.load(f) for f in ("query.evidence", "site0.evidence"))
    assert facts["groups"] == ours.groups == pooled.groups
    assert ours.bins.tolist() == pooled.bins.tolist()
    assert ours.evidence.pair.mean.tobytes() == pooled.evidence.pair.mean.tobytes()


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["--sql"], "--schema is missing"),
        (["--sql", "--schema", "s.json", "--table", "t"], "--episode is missing"),
        (["--sql", "--schema", "s.json", "--table", "t", *COLUMNS, "--ended", "e"], "not for the"),
        (["--sql", "--schema", "s.json", "--table", "t", "--episode", "e", "--state", "s",
          "--action", "a", "--reward", "r"], "--time is missing"),
        (["--table", "t"], "--table is for a query"),
        (["--rows", "x.csv"], "--schema is missing"),
        (["--rows", "x.csv", "--schema", "s.json", "--out", "x.csv"], "would be overwritten"),
    ],
)  # fmt: skip
def test_refusals_of_queries(run, sites, tokens, words):
    code, _, err = run("evidence", *tokens)
    assert (code, words in err) == (1, True), err


def test_a_day_takes_its_columns_from_the_settings_of_the_folder(run, sites):
    assert run("evidence", "all.csv", *COLUMNS, "--make-schema", "schema.json", "--gamma", 1,
               "--lowest", 0, "--highest", 1)[0] == 0  # fmt: skip
    lines = "\n".join(f"{role} = {json.dumps(name)}" for role, name in NAMES.items())
    Path("dprl.toml").write_text(f"[log]\n{lines}\n")
    code, out, err = run("evidence", "add", "site0.csv", "--schema", "schema.json")
    assert (code, err, b"Added " in out) == (0, "", True)
    assert (
        run("evidence", "site1.csv", "--schema", "schema.json", "--site", "b", "--out", "b")[0] == 0
    )


def test_evidence_grows_in_a_folder_from_day_to_day(run, sites):
    assert run("evidence", "all.csv", *COLUMNS, "--make-schema", "schema.json", "--gamma", 1,
               "--lowest", 0, "--highest", 1)[0] == 0  # fmt: skip
    code, _, err = run("evidence", "add", "site0.csv", *COLUMNS)
    assert (code, "--schema is missing" in err) == (1, True)
    first = ("--schema", "schema.json", "--keep-rows")
    code, out, err = run("evidence", "add", "site0.csv", *COLUMNS, *first)
    assert (code, err) == (0, "")
    assert b"Added " in out
    code, _, err = run("evidence", "add", "site1.csv", *COLUMNS, *first)
    assert (code, "is for a new folder" in err) == (1, True)
    for i in (1, 2):
        code, out, err = run("evidence", "add", f"site{i}.csv", *COLUMNS, "--json")
        assert (code, err, json.loads(out)["reopened"]) == (0, "", 0)
    assert json.loads(out)["groups"] == 900
    code, _, err = run("evidence", "add", "all.csv", *COLUMNS)
    assert (code, "900 of 900 groups were counted before" in err, "--reopen" in err) == (1, 1, 1)
    assert run("fit", "counted", "--n-min", 20, "--no-plan")[0] == 0
    log = dprl.read("all.csv", **NAMES)
    pooled = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False).fit(log)
    assert dprl.load("policy.dprl").act(log.states) == pooled.act(log.states)
    assert run("gate", "policy.dprl", "counted", "--mode", "in-sample", "--no-markov")[0] == 0
    code, _, err = run("merge", "counted", "--out", "x.evidence")
    assert (code, "small cells" in err) == (1, True)
    assert run("evidence", "counted", "--site", "north", "--out", "north.evidence")[0] == 0
    agreed = dprl.SiteSchema.load("schema.json")
    whole = dprl.site_evidence(log, agreed, site="north")
    assert dprl.SiteEvidence.load("north.evidence").to_bytes() == whole.to_bytes()
    schema = json.loads(Path("schema.json").read_text())
    Path("other.json").write_text(json.dumps({**schema, "states": schema["states"][1:]}))
    code, _, err = run("evidence", "add", "all.csv", *COLUMNS, "--folder", "new", "--schema",
                       "other.json")  # fmt: skip
    assert (code, "are not in the schema" in err, os.path.exists("new")) == (1, True, False)
