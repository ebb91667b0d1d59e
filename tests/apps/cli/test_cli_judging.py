"""The command line: keeping episodes aside, and judging by them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import dprl
from conftest import options
from dprl.logs.log import deal


@pytest.fixture
def parts(tmp_path):
    """Three files of the care pathway, and their columns."""
    log = dprl.envs.care_pathway().sample(2_000, seed=0)
    train, rest = log.split(0.4, seed=0)
    valid, test = rest.split(0.5, seed=0)
    for name, part in (("train", train), ("valid", valid), ("test", test)):
        dprl.write(part, tmp_path / f"{name}.csv")
    return {k: k for k in ("episode", "time", "state", "action", "reward", "ended")}


def test_evaluate(run, parts):
    flags = [*options(parts), "--n-min", 20, "--gamma", 1]
    assert run("fit", "train.csv", *flags)[0] == 0
    code, out, err = run("evaluate", "policy.dprl", "test.csv", *options(parts))
    assert (code, err) == (0, "")
    assert len(out.splitlines()) <= 9
    code, out, err = run("evaluate", "policy.dprl", "test.csv", *options(parts), "--details")
    assert "usual practice gets" in out
    assert "where it matters" in out
    code, out, _ = run(
        "evaluate", "policy.dprl", "test.csv", *options(parts), "--json", "--draws", 50
    )
    facts = json.loads(out)
    found = dprl.evaluate(dprl.load("policy.dprl"), dprl.read("test.csv", **parts), draws=50)
    assert facts == json.loads(found.to_json())
    code, out, err = run("evaluate", "policy.dprl", "train.csv", *options(parts))
    assert (code, out) == (1, "")
    assert "the log the policy was learned from" in err
    code, out, _ = run(
        "evaluate", "policy.dprl", "train.csv", *options(parts), "--allow-seen", "--no-values"
    )
    assert code == 0
    assert "flatters it" in out
    assert run("evaluate", "policy.dprl", "test.csv", *options(parts), "--level", 3)[0] == 1
    assert run("evaluate", "policy.dprl")[0] == 2
    ends = ["evaluate", "policy.dprl", "test.csv", *options(parts), "--no-values", "--draws", 20]
    facts = json.loads(run(*ends, "--lowest", 0, "--highest", 0.1, "--json")[1])
    assert {row["outside"] for row in facts["estimates"][:4]} == {"value"}
    assert facts["facts"]["range"] == "declared"
    assert any("0 to 0.1, as declared" in line for line in facts["warnings"])
    code, out, err = run(*ends, "--lowest", 0)
    assert (code, out) == (1, "")
    assert "come together" in err


@pytest.mark.slow
def test_evaluate_a_policy_over_features(run, tmp_path):
    world = dprl.envs.PointMass()
    names = {"episode": "episode", "time": "time", "action": "action", "reward": "reward"}
    for seed, name in enumerate(("train", "test")):
        dprl.write(world.sample(60, seed=seed), tmp_path / f"{name}.csv")
    header = (tmp_path / "train.csv").read_text().splitlines()[0]
    assert header == "episode,time,x,y,action,reward,ended"
    columns = [*options(names), "--ended", "ended", "--state", "x", "--state", "y"]
    fit = ["--n-min", 5, "--gamma", 0.97, "--radius", 0.1, "--scale", "none", "--cut", "terminal"]
    assert run("fit", "train.csv", *columns, *fit)[0] == 0
    code, out, err = run("evaluate", "policy.dprl", "test.csv", *columns, "--no-values", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["facts"]["episodes"] == 60
    grid = ["--gamma", 0.97, "--n-min", 5, 10, "--radius", 0.05, 0.1, "--scale", "none",
            "--cut", "terminal", "--no-values", "--draws", 20]  # fmt: skip
    code, out, _ = run("sweep", "train.csv", "--valid", "test.csv", *columns, *grid, "--json")
    assert code == 0
    assert [r["radius"] for r in json.loads(out)["settings"]] == [0.05, 0.05, 0.1, 0.1]
    no_radius = [x for x in grid if x not in ("--radius", 0.05, 0.1, "--scale", "none")]
    code, _, err = run("sweep", "train.csv", *columns, *no_radius)
    assert code == 1
    assert "no radius is given" in err


def test_sweep(run, parts, tmp_path):
    flags = [*options(parts), "--gamma", 1, "--n-min", 20, 50, 400, "--draws", 200]
    code, out, err = run(
        "sweep", "train.csv", "--valid", "valid.csv", *flags, "--rule", "cautious",
        "--figure", "s.png", "--out", "p.dprl", "--details",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "3 settings, judged on 600 held-out episodes" in out
    assert "Picked cautious: the largest n_min" in out
    assert (tmp_path / "s.parquet").exists()
    code, _, err = run("evaluate", "p.dprl", "valid.csv", *options(parts))
    assert code == 1
    assert "picked on, out of 3" in err
    assert run("evaluate", "p.dprl", "test.csv", *options(parts))[0] == 0
    code, out, _ = run("sweep", "train.csv", *flags, "--json")
    facts = json.loads(out)
    train, valid = dprl.read("train.csv", **parts).split(0.5, seed=0)
    assert (facts["train"], facts["valid"]) == (train.digest(), valid.digest())
    assert facts["picked"] is None
    before = sorted(p.name for p in tmp_path.iterdir())
    for more in (["--figure", "no/x.png"], ["--out", "no/p.dprl"], ["--n-min", 20]):
        assert run("sweep", "train.csv", *flags, *more)[0] == 1
    assert run("sweep", "train.csv", *flags, "--rule", "best")[0] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_sweep_varies_any_setting(run, parts):
    flags = ["sweep", "train.csv", *options(parts), "--gamma", 1, "--draws", 20, "--no-values"]
    code, out, _ = run(*flags, "--n-min", 20, 50, "--vary", "contrast=true,false", "--json")
    assert code == 0
    rows = json.loads(out)["settings"]
    assert [(r["contrast"], r["n_min"]) for r in rows] == [
        (True, 20), (True, 50), (False, 20), (False, 50)
    ]  # fmt: skip
    sure = ["--learner", "confident", "--no-promise", "--splits", 0, "--vary", "risk=0.01,0.3"]
    code, out, _ = run(*flags, *sure, "--json")
    assert code == 0
    assert [r["risk"] for r in json.loads(out)["settings"]] == [0.01, 0.3]
    for more, words in (
        ([], "nothing to vary"),
        (["--vary", "contrast=true"], "needs --n-min"),
        (["--n-min", 20, "--vary", "contrast"], "NAME=VALUE,VALUE"),
        (["--n-min", 20, "--vary", "risk=0.1"], "has no risk to vary"),
        (["--n-min", 20, "--vary", "n-min=10"], "options of their own"),
        (["--n-min", 20, "--vary", "gamma=0.9"], "gamma cannot be varied"),
    ):
        code, _, err = run(*flags, *more)
        assert (code, words in err) == (1, True), err


def test_sweep_settings_from_a_file(run, parts, tmp_path):
    lines = ["[log]", *(f"{k} = {[v] if k == 'state' else v!r}" for k, v in parts.items())]
    lines += ["[sweep]", "gamma = 0.9", "n_min = [10, 20]", "draws = 20"]
    (tmp_path / "dprl.toml").write_text("\n".join(lines))
    code, out, _ = run("sweep", "train.csv", "--json")
    assert code == 0
    assert [r["n_min"] for r in json.loads(out)["settings"]] == [10, 20]
    (tmp_path / "dprl.toml").write_text("\n".join(lines).replace("[10, 20]", "[]"))
    code, _, err = run("sweep", "train.csv")
    assert code in (1, 2)
    assert "Traceback" not in err


# -- keeping some aside --------------------------------------------------------------------------


def stays_of(path, n=40):
    rng = np.random.default_rng(0)
    rows = [
        (f"p{i // 2:02}", f"{i:03}", t, f"s{rng.integers(3)}", "ab"[rng.integers(2)],
         float(rng.integers(2)), "NA" if t else 'says "hm", twice')
        for i in rng.permutation(n) for t in range(3)
    ]  # fmt: skip
    names = ["patient", "stay", "t", "s", "a", "r", "note"]
    frame = pd.DataFrame(rows, columns=names)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return frame


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_split_as_a_log_is_split(run, tmp_path, ending):
    frame = stays_of(tmp_path / f"v{ending}")
    asked = ["split", tmp_path / f"v{ending}", "--by", "patient", "--seed", 3, "--fraction", 0.7]
    code, out, _ = run(*asked, "--out", tmp_path / "parts", "--json")
    assert code == 0
    found = json.loads(out)
    log = dprl.from_frame(
        frame, episode="stay", group="patient", time="t", state="s", action="a", reward="r"
    )
    read = {"dtype": str, "keep_default_na": False}
    for side, wanted in zip(("train", "test"), log.split(0.7, seed=3), strict=True):
        path = tmp_path / "parts" / f"{side}{ending}"
        rows = pd.read_csv(path, **read) if ending == ".csv" else pd.read_parquet(path)
        assert set(rows["stay"]) == set(wanted.episodes)
        before = frame[frame["stay"].isin(wanted.episodes)]
        assert list(rows.columns) == list(frame.columns)
        assert rows["note"].tolist() == before["note"].tolist()  # in their order, NA as NA
        assert found[side] == {
            "file": str(path), "kept": len(set(before["patient"])), "rows": len(before)
        }  # fmt: skip
    code, out, _ = run(*asked, "--out", tmp_path / "again")
    assert code == 0
    assert "of 'patient'" in out
    for side in ("train", "test"):
        first, second = (tmp_path / f / f"{side}{ending}" for f in ("parts", "again"))
        assert first.read_bytes() == second.read_bytes()


def test_neither_side_is_empty():
    for fraction, first in ((0.001, 1), (0.5, 2), (0.999, 2)):
        assert deal(3, fraction, seed=0).sum() == first


def test_splits_that_cannot_be(run, tmp_path):
    frame = stays_of(tmp_path / "train.csv")
    before = (tmp_path / "train.csv").read_bytes()
    out = ["--out", tmp_path / "x"]
    for asked, words in (
        (["--by", "doctor", *out], "no column 'doctor' for by"),
        (["--by", "patient", "--fraction", "1", *out], "fraction must be"),
        (["--by", "patient", "--out", tmp_path], "would be overwritten"),
    ):
        code, _, err = run("split", tmp_path / "train.csv", *asked)
        assert code == 1
        assert words in err
    frame.loc[5, "patient"] = None
    frame.to_csv(tmp_path / "gap.csv", index=False)
    code, _, err = run("split", tmp_path / "gap.csv", "--by", "patient", *out)
    assert code == 1
    assert "'patient' is missing on 1 of 120 rows" in err
    assert "row 6" in err
    code, _, err = run("split", tmp_path / "gap.csv", tmp_path / "none.csv", "--by", "stay", *out)
    assert code == 1
    (tmp_path / "less.csv").write_text("stay,t\n900,1\n")
    both = ["split", tmp_path / "gap.csv", tmp_path / "less.csv", "--by", "stay", *out]
    code, _, err = run(*both)
    assert code == 1
    assert "'less.csv' has no column" in err
    assert not (tmp_path / "x").exists()
    assert (tmp_path / "train.csv").read_bytes() == before
