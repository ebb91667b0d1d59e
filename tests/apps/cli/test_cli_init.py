"""`dprl init` proposes columns and writes dprl.toml; `dprl fit` then works without options."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import dprl
from dprl.logs.proposal import ColumnFacts, TableFacts, look, propose


@pytest.fixture
def stays(tmp_path):
    """Stays of patients, hour by hour, as a hospital might export them."""
    rng = np.random.default_rng(0)
    stay, hour = np.repeat(np.arange(120), 4), np.tile(np.arange(4), 120)
    drug = rng.integers(0, 2, 480)
    frame = pl.DataFrame({
        "PatientID": stay // 2, "icustay_id": 1000 + stay, "charttime": hour,
        "lactate": rng.normal(2, 1, 480), "ward": np.array(["a", "b"])[rng.integers(0, 2, 480)],
        "Treatment": np.array(["none", "drug"])[drug], "reward": rng.normal(size=480) + drug,
        "died_later": rng.integers(0, 2, 480), "note": [f"note {i}" for i in range(480)],
        "unit": ["mmHg"] * 480,
    })  # fmt: skip
    frame.write_csv(tmp_path / "stays.csv")
    return tmp_path / "stays.csv"


def test_a_proposal_with_reasons(run, stays):
    code, out, err = run("init", "stays.csv")
    assert (code, err) == (0, "")
    settings = tomllib.loads(Path("dprl.toml").read_text())
    assert settings["log"] == {
        "files": ["stays.csv"], "episode": "icustay_id", "time": "charttime",
        "state": ["lactate", "ward"], "action": "Treatment", "reward": "reward",
        "group": "PatientID",
    }  # fmt: skip
    assert settings["fit"] == {"gamma": 0.99, "learner": "rules"}
    text = Path("dprl.toml").read_text()
    assert text in out
    assert 'episode = "icustay_id"  # 120 values, 4.0 rows each, its rows lie together' in text
    assert '# left out: "died_later": its name is one of what is known afterwards' in text
    assert '# left out: "note": free text or an identifier' in text
    assert '# left out: "unit": it has one value only' in text


def test_then_commands_need_no_options(run, tmp_path):
    dprl.write(dprl.envs.care_pathway().sample(2_000, seed=7), "visits.parquet")
    assert run("init", "visits.parquet")[0] == 0
    assert run("check")[0] == 0
    code, out, _ = run("fit")
    assert (code, "Saved as policy.dprl." in out) == (0, True)
    few = json.loads(run("fit", "--json")[1])["changed"]
    none = json.loads(run("fit", "--n-min", 10**6, "visits.parquet", "--json")[1])["changed"]
    assert (len(few), none) == (4, [])  # what is said on the line wins
    assert run("fit", "other.parquet")[0] == 1  # a file that is named is the one that is read


def test_one_numeric_feature_is_checked_as_it_is_fitted(run, stays):
    pl.read_csv(stays).drop("ward").write_csv("one.csv")
    assert run("init", "one.csv")[0] == 0
    assert tomllib.loads(Path("dprl.toml").read_text())["log"]["state"] == ["lactate"]
    code, out, err = run("check")
    assert (code, err) == (0, ""), out
    assert "1 feature" in out


@pytest.mark.parametrize("kind", ["number", "date", "date by another name"])
def test_rows_that_stand_newest_first_have_a_time(run, stays, kind):
    frame = pl.read_csv(stays).sort("icustay_id", "charttime", descending=[False, True])
    if kind != "number":
        days = pl.lit("2024-01-0") + (pl.col("charttime") + 1).cast(pl.String)
        frame = frame.with_columns(days.alias("charttime"))
    name = "recorded" if "another" in kind else "charttime"
    frame.rename({"charttime": name}).write_csv("newest.csv")
    assert run("init", "newest.csv")[0] == 0
    text = Path("dprl.toml").read_text()
    assert (
        f'time = "{name}"  # falls from row to row within every icustay_id: the rows stand newest first'
        in text
    )
    Path("dprl.toml").write_text(text.replace("time = ", "# time = "))
    if name == "charttime":  # without a time, the last row would count as the first
        code, out, _ = run("check")
        assert code == 0
        assert f"'{name}' falls from row to row within an episode at 100% of rows" in out
        assert "--time charttime" in out


def test_what_no_name_says_is_asked(run, tmp_path, monkeypatch):
    frame = pl.DataFrame(
        {"patient": [1, 1, 2, 2], "x": [1, 2, 1, 2], "b": list("uvuv"), "r": [0.5] * 4}
    )
    frame.write_csv(tmp_path / "t.csv")
    code, out, err = run("init", "t.csv")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "ParameterError: no name says which column is the action or the reward.",
        "  first: action: could be 'x', 'b'",
        "  --action COLUMN --reward COLUMN: say it. Column of action labels; repeat it where "
        "several columns together are the action.",
    ]
    assert not Path("dprl.toml").exists()

    answers = iter(["9\n", "2\n", "r\n"])

    class Terminal:
        def isatty(self):
            return True

        def readline(self):
            return next(answers)

    monkeypatch.setattr(sys, "stdin", Terminal())
    code, out, err = run("init", "t.csv")
    assert code == 0
    assert "There is no column '9'." in err
    log = tomllib.loads(Path("dprl.toml").read_text())["log"]
    assert (log["action"], log["reward"], log["state"]) == ("b", "r", ["x"])


def test_what_is_given_is_taken(run, stays):
    code, out, _ = run(
        "init", stays.name, "--reward", "lactate", "--action", "ward", "--action", "Treatment",
        "--state", "unit", "--json",
    )  # fmt: skip
    columns = json.loads(out)["columns"]
    assert code == 0
    assert columns["action"] == ["ward", "Treatment"]
    assert (columns["reward"], columns["state"]) == ("lactate", "unit")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["missing.csv"], "LogError: there is no file 'missing.csv'."),
        (["stays.csv", "--action", "drog"], "ParameterError: --action: there is no column 'drog'."),
        (["stays.csv", "--state", "lactate", "--state", "?"],
         "ParameterError: --state: there is no column '?'."),
    ],
)  # fmt: skip
def test_refused_and_nothing_written(run, stays, arguments, what):
    code, out, err = run("init", *arguments)
    assert (code, out, err.splitlines()[0]) == (1, "", what)
    assert not Path("dprl.toml").exists()


def test_settings_that_exist_stay(run, stays):
    Path("dprl.toml").write_text("[log]\nepisode = 'e'\n")
    code, _, err = run("init", "stays.csv")
    assert (code, err.splitlines()[0]) == (1, "ParameterError: dprl.toml exists here.")
    assert Path("dprl.toml").read_text() == "[log]\nepisode = 'e'\n"
    assert run("init", "stays.csv", "--force")[0] == 0
    assert "icustay_id" in Path("dprl.toml").read_text()


def test_hostile_names_stay_names(run, tmp_path):
    name = 'a"b\n[fit]\ngamma = 0\x1b[2J'
    pl.DataFrame({
        "id": [1, 1, 2, 2], name: list("xyxy"), "action": list("uvuv"), "reward": [1.0, 2, 3, 4],
    }).write_parquet(tmp_path / "t.parquet")  # fmt: skip
    assert run("init", "t.parquet")[0] == 0
    settings = tomllib.loads(Path("dprl.toml").read_text())
    assert settings["log"]["state"] == name  # the only one left, of text: labels
    assert "\x1b" not in Path("dprl.toml").read_text()


def facts(rows, *columns, within=None, nested=()):
    return TableFacts(rows, columns, within or {}, frozenset(nested))


def test_a_row_id_is_no_episode_where_patients_have_several_rows():
    table = facts(
        100,
        ColumnFacts("visit_id", "whole", 100, 0.0, 1, 100, 100),
        ColumnFacts("patient", "whole", 20, 0.0, 1, 20, 20),
        ColumnFacts("x", "number", 90, 0.0, 0, 1, 99),
        ColumnFacts("drug", "text", 3, 0.0, turns=50),
        ColumnFacts("outcome", "number", 2, 0.0, 0, 1, 50),
    )
    proposal = propose(table)
    assert proposal.columns["episode"] == "patient"
    assert not proposal.single


def test_two_rewards_by_name_are_not_decided_for_the_user():
    table = facts(
        10,
        ColumnFacts("id", "whole", 10, 0.0, 1, 10, 10),
        ColumnFacts("score", "number", 9, 0.0, 0, 1, 9),
        ColumnFacts("outcome", "number", 9, 0.0, 0, 1, 9),
        ColumnFacts("arm", "text", 2, 0.0, turns=5),
    )
    proposal = propose(table)
    assert proposal.open == {"reward": ["score", "outcome"]}
    assert proposal.single


@pytest.mark.parametrize("place", ["hospital_id", "HOSPNUM", "site"])
def test_a_place_is_no_trajectory_and_no_group_of_patients(place):
    table = facts(
        10,
        ColumnFacts(place, "whole", 2, 0.0, 1, 2, 2),
        ColumnFacts("patient", "whole", 10, 0.0, 1, 10, 10),
        ColumnFacts("reward", "number", 9, 0.0, 0, 1, 9),
        ColumnFacts("action", "text", 2, 0.0, turns=5),
        ColumnFacts("age", "number", 9, 0.0, 20, 90, 9),
        nested=[("patient", place)],
    )
    columns = propose(table).columns
    assert (columns["episode"], columns.get("group")) == ("patient", None)
    assert columns["state"] == ["age"]


def test_what_tells_the_outcome_is_known_afterwards(tmp_path):
    """Names say nothing here: a code of what came of it, early deaths, and days until death."""
    rng = np.random.default_rng(0)
    n = 4_000
    age, low = rng.integers(20, 95, n), rng.random(n) < 0.3
    poor = rng.random(n) < 0.08 + 0.003 * (age - 20) + 0.2 * low
    early = poor & (rng.random(n) < 0.4)
    table = pl.DataFrame({
        "patient": np.arange(n), "age": age, "awake": np.where(low, "no", "yes"),
        "arm": rng.choice(["a", "b"], n), "poor": poor.astype(int),
        "code": np.where(poor, rng.integers(1, 3, n), rng.integers(3, 5, n)),
        "x14": early.astype(int), "td": np.where(poor, rng.integers(0, 150, n), 180),
    })  # fmt: skip
    table.write_parquet(tmp_path / "t.parquet")
    found = propose(look([str(tmp_path / "t.parquet")]), {"reward": "poor", "action": "arm"})
    assert found.columns["state"] == ["age", "awake"]
    assert all("tells 'poor'" in found.left_out[name] for name in ("code", "x14", "td"))


def test_later_measurements_of_the_outcome_are_no_state():
    table = facts(
        10,
        *(ColumnFacts(name, "number", 10, 0.0, 0, 9, 9)
          for name in ("patient_id", "age", "cd4_0", "cd4_20", "cd8_20", "cd4_96")),
        ColumnFacts("arm", "text", 2, 0.0, turns=5),
    )  # fmt: skip
    found = propose(table, {"reward": "cd4_20", "episode": "patient_id"})
    assert found.columns["state"] == ["age", "cd4_0"]


def test_what_is_seen_of_a_table(stays):
    table = look(stays)
    by_name = {c.name: c for c in table.columns}
    assert table.rows == 480
    assert [c.kind for c in table.columns] == [
        "whole", "whole", "whole", "number", "text", "text", "number", "whole", "text", "text",
    ]  # fmt: skip
    assert (by_name["icustay_id"].values, by_name["icustay_id"].turns) == (120, 120)
    assert by_name["PatientID"].words == ["patient", "id"]
    assert ("icustay_id", "PatientID") in table.nested
    assert table.within["charttime", "icustay_id"] == 1.0
    assert table.within["charttime", "PatientID"] < 1.0


def test_a_table_as_a_european_hospital_writes_it(run, tmp_path):
    lines = [";patient;zeit;laktat;treatment;reward"]
    for i in range(60):
        hour = i % 12
        lines.append(
            f"{i};{i // 12};05.03.2024 {hour:02d}:30;{1 + i / 7:.2f};{'gab'[i % 3]};{i % 2}".replace(
                ".", ","
            )
        )
    text = "\n".join(lines).replace("05,03,2024", "05.03.2024").replace("laktat", "Wärme")
    (tmp_path / "t.csv").write_bytes(text.encode("cp1252"))
    code, out, err = run(
        "init", "t.csv", "--encoding", "cp1252", "--decimal", ",", "--dates", "day-first",
        "--time", "zeit", "--labels", "trim",
    )  # fmt: skip
    assert (code, err) == (0, "")
    log = tomllib.loads(Path("dprl.toml").read_text())["log"]
    assert log["state"] == ["Wärme"]
    assert (log["dates"], log["labels"]) == ("day-first", "trim")
    assert "it has no name: often the number of the row" in out
    assert run("check")[0] == 0


def test_times_of_text_rise_as_numbers_do(tmp_path):
    pl.DataFrame({
        "patient": ["a"] * 12, "hour": range(12), "action": ["u", "v"] * 6, "reward": [1.0] * 12,
        "x": [1.0, 2.0] * 6,
    }).write_csv(tmp_path / "t.csv")  # fmt: skip
    table = look(tmp_path / "t.csv")
    assert table.within == {}  # one patient is no column of episodes
    pl.DataFrame({
        "patient": ["a"] * 12 + ["b"] * 12, "hour": [*range(12)] * 2, "action": ["u", "v"] * 12,
        "reward": [1.0] * 24, "x": [1.0, 2.0] * 12,
    }).write_csv(tmp_path / "t.csv")  # fmt: skip
    table = look(tmp_path / "t.csv")
    assert table.within["hour", "patient"] == 1.0
    assert propose(table).columns["time"] == "hour"


@pytest.fixture
def german(tmp_path):
    """Cases of three days in German, with an outcome on the last day and the dose that was given."""
    rng = np.random.default_rng(0)
    days = np.tile(np.arange(3), 200)
    dose = np.where(rng.random(600) < 0.5, 0.0, rng.gamma(2.0, 1.0, 600))
    frame = pl.DataFrame({
        "Patientennummer": np.repeat(np.arange(200), 3) // 2, "Fallnummer": np.repeat(np.arange(200), 3) + 1,
        "Zeit": days, "Blutdruck": rng.normal(90, 10, 600), "Laktat": rng.gamma(2.0, 1.0, 600), "Menge_mg": dose,
        "Behandlung": np.where(dose > 0, "Noradrenalin", "keine"),
        "Ergebnis": [float(x) if day == 2 else None for x, day in zip(rng.integers(0, 2, 600), days, strict=True)],
    })  # fmt: skip
    frame.write_csv(tmp_path / "stays.csv")
    return tmp_path / "stays.csv"


def test_a_german_table_with_an_outcome_and_a_dose(run, german):
    code, out, err = run("init", "stays.csv")
    assert code == 0
    settings = tomllib.loads(Path("dprl.toml").read_text())
    assert settings["log"] == {
        "files": ["stays.csv"], "episode": "Fallnummer", "time": "Zeit", "state": ["Blutdruck", "Laktat"],
        "action": "Behandlung", "reward": "Ergebnis", "group": "Patientennummer", "missing": ["Ergebnis=zero"],
    }  # fmt: skip
    assert settings["fit"]["gamma"] == 1.0
    assert "# one outcome at the end of short episodes" in out
    assert '# episode could also be: "Patientennummer"' in out
    assert '# reward could also be: "Blutdruck", "Laktat", "Menge_mg"' in out
    assert '# left out: "Menge_mg": it tells the action on 100.0% of rows' in out
    assert "warning: 'Menge_mg' tells the action on 100.0% of rows" in err
    code, out, _ = run("check")
    assert code == 0
    assert "a column fixes the action 'Behandlung': 'Menge_mg'" in out


def test_a_dose_that_is_asked_for_stays_and_is_named(run, german):
    asked = ("init", "stays.csv", "--state", "Blutdruck", "--state", "Menge_mg", "--json")
    facts = json.loads(run(*asked)[1])
    assert facts["columns"]["state"] == ["Blutdruck", "Menge_mg"]
    assert "It is in the state as you said" in facts["warnings"][0]
    assert facts["candidates"]["episode"] == ["Patientennummer"]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("Zeitpunkt", "time"), ("Fall-Nr", "episode"), ("PatientenID", "group"), ("Maßnahme", "action"),
        ("Medikament", "action"), ("Belohnung", "reward"), ("Beendet", "ended"), ("Zustand", "state"),
        ("séjour", "episode"), ("Traitement", "action"), ("récompense", "reward"), ("Fecha", "time"),
        ("paciente_id", "group"), ("Fármaco", "action"), ("Resultado", "reward"), ("Behandlungsart", "action"),
        ("Uhrzeit", "time"), ("état", "state"), ("Krankenhaus", "group"),
    ],
)  # fmt: skip
def test_words_of_other_languages_are_known(name, role):
    assert ColumnFacts(name, "text", 9, 0.0).named(role)


def test_what_only_begins_like_a_word_is_not_one():
    assert not ColumnFacts("patientage", "whole", 60, 0.0).named("group")
    assert not ColumnFacts("fall", "whole", 2, 0.0).named("episode")  # whether the patient fell
    assert ColumnFacts("fall", "whole", 90, 0.0).named("episode")


def test_rewards_of_every_step_keep_a_discount(run, stays):
    assert run("init", "stays.csv")[0] == 0
    assert tomllib.loads(Path("dprl.toml").read_text())["fit"]["gamma"] == 0.99


def test_what_is_known_only_afterwards_is_no_state(tmp_path):
    """A cohort with follow-up, one row a patient: times, endings and places are left out."""
    rng = np.random.default_rng(0)
    n = 200
    columns = {
        "patient": np.arange(n), "drug": rng.integers(0, 2, n), "outcome": rng.normal(size=n),
        "age": rng.integers(20, 90, n), "menostat": rng.integers(0, 2, n),
        "months_from_diagnosis": rng.integers(1, 60, n), "TVnews": rng.integers(0, 8, n),
        "week": rng.integers(1, 53, n), "days_followed": rng.integers(1, 900, n),
        "T": rng.exponential(size=n), "cens": rng.integers(0, 2, n),
        "status": rng.integers(0, 2, n), "dropout": rng.integers(0, 2, n),
        "inst": rng.integers(0, 9, n), "endtime": rng.integers(0, 99, n),
        "yrdth": rng.integers(71, 92, n), "modth": rng.integers(1, 13, n),
    }  # fmt: skip
    pl.DataFrame(columns).write_csv(tmp_path / "cohort.csv")
    found = propose(look([tmp_path / "cohort.csv"]))
    assert found.columns["state"] == ["age", "menostat", "months_from_diagnosis", "TVnews"]
    assert found.columns["episode"] == "patient"  # and no place
    assert "how long it was followed" in found.left_out["days_followed"]


def test_counting_process_rows_have_one_time(tmp_path):
    """Rows (start, stop] of patients: the start orders them, the stop is known only at its end."""
    start = np.tile([0, 10, 25], 40)
    columns = {
        "id": np.repeat(np.arange(40), 3), "start": start, "stop": start + 9, "time1": start + 9,
        "age": np.repeat(np.arange(40) + 30, 3), "arm": np.tile([0, 1, 0], 40),
        "event": np.tile([0, 0, 1], 40), "score": np.arange(120) % 7,
    }  # fmt: skip
    pl.DataFrame(columns).write_csv(tmp_path / "rows.csv")
    found = propose(look([tmp_path / "rows.csv"]), {"reward": "score"})
    assert (found.columns["time"], found.columns["state"]) == ("start", ["age"])


def test_one_of_several_stages_is_no_state_by_itself(tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, 2, 90) for name in ("Stage_II", "Stage_III", "drug")}
    columns |= {"patient": np.arange(90), "reward": rng.normal(size=90)}
    pl.DataFrame(columns).write_csv(tmp_path / "stages.csv")
    assert propose(look([tmp_path / "stages.csv"])).columns["state"] == ["Stage_II", "Stage_III"]


def test_a_table_of_tickets(run, tmp_path):
    """A column that counts the rows names them; baseline is before; a name may look like a sum."""
    n = 60
    table = pl.DataFrame({
        "ticket": range(n), "baseline_days": [i % 7 + 0.5 for i in range(n)],
        "routed": ["senior", "junior"] * (n // 2), "cost (EUR)": [float(i % 11) for i in range(n)],
    })  # fmt: skip
    table.write_csv(tmp_path / "t.csv")
    asked = ("--action", "routed", "--reward", "cost (EUR)")
    assert run("init", "t.csv", *asked)[0] == 0
    log = tomllib.loads(Path("dprl.toml").read_text())["log"]
    assert (log["episode"], log["state"]) == ("ticket", ["baseline_days"])
    code, out = run("study", "t.csv", *asked, "--better", "lower", "--out", "s", "--draws", "20")[
        :2
    ]
    assert (code, "Nothing to change is sure" in out) == (0, True)


def test_which_way_is_better_can_be_said(run, stays):
    assert run("init", "stays.csv", "--better", "upwards")[0] == 1
    assert not Path("dprl.toml").exists()
    assert run("init", "stays.csv", "--better", "lower")[0] == 0
    assert 'better = "lower"  # as you said' in Path("dprl.toml").read_text()
    assert "lower is better" in run("check")[1]


def test_decimal_commas_that_nobody_declared_are_pointed_out(run, tmp_path):
    rows = [
        f"{i};{1 + i / 7:.1f};{50 + i % 9};{'ab'[i % 2]};{i / 3:.1f};{i % 5}" for i in range(60)
    ]
    text = "patient;laktat;alter;arm;wert;grad\n" + "\n".join(rows).replace(".", ",")
    (tmp_path / "t.csv").write_text(text)
    code, _, err = run("init", "t.csv")
    assert (code, Path("dprl.toml").exists()) == (1, False)
    assert "2 columns of text are numbers if a comma is the decimal mark: 'laktat', 'wert'." in err
    assert "first: laktat = '1,0'" in err
    assert "say --decimal ," in err
    code, _, err = run("init", "t.csv", "--reward", "alter")
    assert (code, "say --decimal ," in err) == (0, True)  # it stands, and is said
    for decimal in (",", "."):
        err = run("init", "t.csv", "--reward", "alter", "--force", "--decimal", decimal)[2]
        assert err == ""


def test_a_german_trial_in_three_centres(run, tmp_path):
    """The centre holds no patient's rows together; the arm is known by the end of its name."""
    rng = np.random.default_rng(0)
    pl.DataFrame({
        "Patientennr": [f"P{i}" for i in range(90)], "Zentrum": ["Jena", "Gera", "Suhl"] * 30,
        "Blutdruck": rng.normal(150, 10, 90), "Therapiearm": rng.choice(["alt", "neu"], 90),
        "Ergebnis": rng.normal(size=90),
    }).write_csv(tmp_path / "t.csv")  # fmt: skip
    assert run("init", "t.csv")[0] == 0
    text = Path("dprl.toml").read_text()
    by_lot = '# if the action was given by lot, as in a trial: design = "randomised"'
    assert by_lot in text.partition("\n[fit]")[0]
    Path("dprl.toml").write_text(text.replace(by_lot, 'design = "randomised"'))
    assert run("check")[0] == 0
    log = tomllib.loads(text)["log"]
    assert log == {
        "files": ["t.csv"], "episode": "Patientennr", "state": ["Blutdruck"],
        "action": "Therapiearm", "reward": "Ergebnis",
    }  # fmt: skip


def test_how_episodes_ended_may_stand_on_their_last_rows_alone(tmp_path):
    pl.DataFrame({
        "Fallnummer": np.repeat(range(30), 2), "Tag": [0, 1] * 30, "Zustand": ["a", "b"] * 30,
        "Behandlung": ["u", "v", "v"] * 20, "Ergebnis": [0.5] * 60, "Ende": [None, "terminal"] * 30,
    }).write_csv(tmp_path / "t.csv")  # fmt: skip
    assert propose(look(tmp_path / "t.csv")).columns["ended"] == "Ende"
