"""A role and a rule are each declared once: here, from a test, and used from end to end."""

from __future__ import annotations

import json

import duckdb
import numpy as np
import pytest

import dprl
from dprl.apps.cli.main import main
from dprl.logs.checking.findings import Finding
from dprl.logs.checking.labels import LABEL_RULES, label_rule
from dprl.logs.checking.rows import ROW_RULES, row_rule
from dprl.logs.checking.whole_log import LOG_RULES, log_rule
from dprl.logs.reading.columns import Columns
from dprl.logs.roles import ROLES, Role

COLUMNS = {"episode": "id", "time": "t", "state": "s", "action": "a", "reward": "r"}


@pytest.fixture
def rows(tmp_path):
    """A table of 40 rows as Parquet and CSV files, in no order."""
    n = 40
    data = {
        "id": np.arange(n) // 4, "t": np.arange(n) % 4,
        "s": np.array([f"ward {x}" for x in np.arange(n) % 3], object),
        "a": np.arange(n) % 2, "r": np.arange(n) / 10, "cost": np.arange(n) * 2.5,
    }  # fmt: skip
    order = np.random.default_rng(0).permutation(n)
    with duckdb.connect() as con:
        con.register("rows", {name: values[order] for name, values in data.items()})
        for kind in ("parquet", "csv"):
            con.execute(f"COPY (FROM rows) TO '{tmp_path / f'log.{kind}'}'")
    return tmp_path


@pytest.fixture
def extensions():
    """What a test adds to the registries is taken away again."""
    before = {id(table): list(table) for table in (ROLES, ROW_RULES, LABEL_RULES, LOG_RULES)}
    yield
    for table in (ROLES, ROW_RULES, LABEL_RULES, LOG_RULES):
        table[:] = before[id(table)]


# -- rules -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["error", "note"])
def test_a_rule_about_rows_is_one_function(rows, extensions, level):
    @row_rule("unlucky", level)
    def unlucky(c: Columns):
        what = "{name!r} is above 3 on {rows:,} of {n:,} rows, in {touched}."
        return c.found(c.reward > 3, what, do="Look.", name=c.names["reward"])

    source = str(rows / "log.parquet")
    reports = [
        dprl.check(source, **COLUMNS, also=()),
        dprl.check(source, **COLUMNS, rows=10, folder=rows),
    ]
    own = [next(f for f in report.findings if f.rule == "unlucky") for report in reports]
    assert own[0] == own[1]
    assert own[0].what == "'r' is above 3 on 9 of 40 rows, in 3 episodes."
    assert [report.ok for report in reports] == [level != "error"] * 2
    if level == "error":
        words = []
        for reader in (dprl.read, dprl.scan):
            with pytest.raises(dprl.LogError) as error:
                reader(source, **COLUMNS)
            words.append(str(error.value))
        assert words[0] == words[1] == str(own[0].error())
    else:
        dprl.scan(source, **COLUMNS, folder=rows).close()
    for report in reports[1:]:
        if report.log is not None:
            report.log.close()
    assert not list(rows.glob("dprl-parts-*"))


def test_rules_about_labels_and_logs_are_one_function_each(rows, extensions):
    @label_rule
    def long_labels(words):
        longest = max((label for own in words.decided() for label in own.labels), key=len)
        return Finding("warning", "long_labels", f"{longest!r} is long.")

    @log_rule
    def short(sums):
        return Finding("note", "short", f"only {sums.facts.n_steps} rows.")

    for more in ({"also": ()}, {"rows": 10, "folder": rows}):
        report = dprl.check(str(rows / "log.parquet"), **COLUMNS, **more)
        words = {f.rule: f.what for f in report.findings}
        assert words["long_labels"] == "'ward 0' is long."
        assert words["short"] == "only 40 rows."


# -- roles -----------------------------------------------------------------------------------------


@pytest.fixture
def cost(extensions):
    """A new role, of numbers."""
    ROLES.append(
        Role(
            "cost",
            "numbers",
            "Column of what the action cost.",
            "what it cost.",
            stored="f8",
            further=True,
        )
    )


def test_a_role_is_read_from_files_and_frames(rows, cost):
    log = dprl.read(rows / "log.csv", **COLUMNS, cost="cost")
    assert np.array_equal(log.more["cost"], np.arange(40) * 2.5)
    assert log.columns["cost"] == "cost"
    same = dprl.read(rows / "log.parquet", **COLUMNS, cost="cost")
    with duckdb.connect() as con:
        frame = dprl.from_frame(
            con.sql(f"FROM '{rows / 'log.parquet'}'"), **COLUMNS, cost="cost"
        )  # fmt: skip
    assert same.digest() == frame.digest() == log.digest()
    without = dprl.read(rows / "log.csv", **COLUMNS, also=())
    assert without.digest() != log.digest()
    assert not without.more


def test_a_role_goes_with_the_rows_of_a_log(rows, cost):
    log = dprl.read(rows / "log.csv", **COLUMNS, cost="cost", group=None)
    assert log.take([1, 2]).more["cost"].tolist() == (np.arange(4, 12) * 2.5).tolist()
    train, test = log.split(0.5, seed=0)
    assert len(train.more["cost"]) + len(test.more["cost"]) == 40
    assert log.followed(2).more["cost"].tolist()[:4] == [0.0, 2.5, 10.0, 12.5]
    dprl.write(log, rows / "again.parquet")
    names = dict(COLUMNS, cost="cost")
    assert dprl.read(rows / "again.parquet", **names, also=()).digest() == log.digest()


def test_a_role_is_stored_in_parts(rows, cost):
    log = dprl.read(rows / "log.parquet", **COLUMNS, cost="cost")
    with dprl.scan(rows / "log.parquet", **COLUMNS, cost="cost", rows=10, folder=rows) as parts:
        assert parts.digest() == log.digest()
        assert parts.part(1).more["cost"][0] == log.more["cost"][parts.part(0).n_steps]


def test_a_policy_remembers_the_column_of_a_role(rows, cost):
    log = dprl.read(rows / "log.parquet", **COLUMNS, cost="cost")
    dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log).save(rows / "p.dprl")
    assert dprl.load(rows / "p.dprl").provenance["columns"]["cost"] == "cost"


@pytest.mark.slow
def test_a_role_is_an_option_of_the_command_line(rows, cost, tmp_path):
    """In another process, whose roles are there before its options are made."""
    import subprocess
    import sys

    code = (
        "import sys; from dprl.logs.roles import ROLES, Role\n"
        "ROLES.append(Role('cost', 'numbers', 'What it cost.', 'x', stored='f8', further=True))\n"
        "from dprl.apps.cli.main import main; main(sys.argv[1:])"
    )
    words = [w for role, name in COLUMNS.items() for w in (f"--{role}", name)]
    done = subprocess.run(
        [sys.executable, "-c", code, "check", str(rows / "log.parquet"), *words, "--cost", "cost",
         "--json"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    log = dprl.read(rows / "log.parquet", **COLUMNS, cost="cost")
    assert json.loads(done.stdout)["log"]["digest"] == log.digest(), done.stderr


def test_an_argument_that_is_no_role_is_refused(rows):
    with pytest.raises(TypeError, match="cost"):
        dprl.read(rows / "log.csv", **COLUMNS, cost="cost")
    with pytest.raises(dprl.ParameterError, match="Did you mean 'reward'"):
        dprl.check(rows / "log.csv", **{**COLUMNS, "rewards": "r"})


# -- the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["check", "fit", "evaluate", "gate", "evidence"])
def test_options_about_the_log_are_folded(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    out = capsys.readouterr().out
    assert out.strip().splitlines()[-1].strip().endswith("see dprl help log.")
    assert "--propensity" not in out
    assert "--encoding" not in out


def test_one_page_shows_all_of_them(capsys):
    with pytest.raises(SystemExit) as left:
        main(["help", "log"])
    out = capsys.readouterr().out
    assert left.value.code == 0
    for role in ROLES:
        assert f"--{role.name}" in out
    assert "--action-bins" in out
    with pytest.raises(SystemExit) as left:
        main(["help", "nothing"])
    assert left.value.code == 1
    with pytest.raises(SystemExit):
        main(["help", "fit"])
    assert "--n-min" in capsys.readouterr().out
