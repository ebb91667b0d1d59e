"""`dprl sensitivity` and `dprl gate --confounding` from the command line."""

from __future__ import annotations

import json

import pytest

import dprl
from dprl.apps.cli.main import main
from helpers.hidden_cause import HiddenCause


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sensitivity")
    train, test = HiddenCause(gamma=1.5, effect=0.1).sample(6_000, seed=0).split(0.5, seed=0)
    for name, log in (("train", train), ("test", test)):
        dprl.write(log, folder / f"{name}.parquet")
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(dprl.read(
        folder / "train.parquet", episode="episode", state="state", action="action",
        reward="reward"))  # fmt: skip
    policy.save(folder / "policy.dprl")
    return folder


def run(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    out = capsys.readouterr()
    return left.value.code or 0, out.out, out.err


def test_bounds_are_printed_and_drawn(files, capsys, tmp_path):
    figure = tmp_path / "bounds.svg"
    code, out, _ = run(capsys, "sensitivity", files / "policy.dprl", files / "test.parquet",
                       "--gamma", 1, 1.5, "--draws", 50, "--figure", figure)  # fmt: skip
    assert code == 0
    assert "Γ* =" in out
    assert "To compare: hiding state alone would be Γ" in out
    assert figure.exists()
    assert figure.with_suffix(".parquet").exists()


def test_json_has_all_of_it(files, capsys):
    code, out, _ = run(capsys, "sensitivity", files / "policy.dprl", files / "test.parquet",
                       "--draws", 20, "--json", "--no-yardstick")  # fmt: skip
    facts = json.loads(out)
    assert code == 0
    assert [row["gamma"] for row in facts["rows"]] == [1, 1.5, 2, 3]
    assert facts["gamma_star"] > 1
    assert facts["yardstick"] == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--gamma", 0.99), "The discount is called discount"),
        (("--lowest", 0), "come together"),
        (("--figure", "nowhere/x.png"), "does not exist"),
    ],
)
def test_what_is_refused(files, capsys, more, words):
    code, _, err = run(capsys, "sensitivity", files / "policy.dprl", files / "test.parquet", *more)
    assert code == 1
    assert words in " ".join(err.split())


def test_a_figure_never_replaces_the_log_or_the_policy(files, capsys):
    before = (files / "test.parquet").read_bytes()
    code, _, _ = run(capsys, "sensitivity", files / "policy.dprl", files / "test.parquet",
                     "--figure", files / "test.png")  # fmt: skip
    assert code == 1
    assert (files / "test.parquet").read_bytes() == before
    assert not (files / "test.png").exists()


def test_the_gate_takes_gamma(files, capsys, tmp_path):
    words = ("gate", files / "policy.dprl", files / "train.parquet", "--lowest", 0, "--highest", 1)
    out = tmp_path / "gated.dprl"
    code, text, _ = run(capsys, *words, "--confounding", 1.1, "--out", out)
    assert code == 0
    assert "up to Γ = 1.1" in text
    assert dprl.load(out).certificate.confounding == 1.1
    strict = tmp_path / "strict.dprl"
    _, text, _ = run(capsys, *words, "--confounding", 5, "--out", strict)
    assert "VACUOUS" in text
    code, _, err = run(capsys, *words, "--confounding", 0.5, "--out", tmp_path / "no.dprl")
    assert code == 1
    assert "confounding must be" in err
    assert not (tmp_path / "no.dprl").exists()
