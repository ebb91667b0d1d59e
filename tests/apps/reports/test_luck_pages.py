"""What is said of luck: the policy, its file, the command line, the report, the review, notebooks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

import dprl
from conftest import options
from dprl.apps.reports.changes import describe_changes
from dprl.apps.review.app import review_app
from dprl.apps.review.verdicts import Verdicts
from dprl.apps.serve.answers import Answers
from dprl.policies.explain import luck_words

COLUMNS = {"episode": "patient", "state": "stage", "action": "drug", "reward": "score"}
GOLDEN = Path(__file__).parents[2] / "policies" / "golden"
LINE = re.compile(
    r"^([\d,]+) changes?; if no action mattered, luck alone would make about [\d.,]+; "
    r"[\d,]+ survives? a false-discovery rate of 10 %\.( Luck may explain most of them: .*)?$"
)


def noisy(seed=0, patients=600, stages=30):
    random = np.random.default_rng(seed)
    n = 5 * patients
    return pd.DataFrame({
        "patient": np.repeat(np.arange(patients), 5), "stage": random.integers(0, stages, n),
        "drug": random.choice(["a", "b", "c"], n, p=[0.6, 0.2, 0.2]),
        "score": random.normal(size=n),
    })  # fmt: skip


@pytest.fixture(scope="module")
def lucky():
    return dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(dprl.from_frame(noisy(), **COLUMNS))


@pytest.fixture(scope="module")
def sound():
    log = dprl.envs.care_pathway().sample(2_000, seed=0)
    return dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)


def flat(text):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", text)))


def warned(text, words):
    """Whether a page shows these words as a warning; they must be there once."""
    notices = re.findall(r'<p class="notice([^"]*)">(.*?)</p>', text, re.DOTALL)
    (kind,) = [kind for kind, inner in notices if words in flat(inner)]
    return "warning" in kind


def test_the_policy_says_it(lucky, sound):
    for policy, wary in ((lucky, True), (sound, False)):
        line = str(policy).splitlines()[2]
        match = LINE.match(line)
        assert match is not None
        assert int(match[1]) == policy.summary()["changes"]
        assert bool(match[2]) == wary == bool(policy.luck.caution)
        assert line == policy.luck.words
        assert "\n" not in repr(policy)
    assert lucky.provenance["luck"]["survive"] == 0
    assert sound.provenance["luck"]["survive"] == 2


def test_words():
    facts = {"changes": 4417, "expected": 4380.2, "survive": 0, "rate": 0.1, "draws": 3}
    assert luck_words(facts).sentence == (
        "4,417 changes; if no action mattered, luck alone would make about 4,380; 0 survive a "
        "false-discovery rate of 10 %."
    )
    one = luck_words({**facts, "changes": 1, "expected": 0.42, "survive": 1})
    assert one.words == (
        "1 change; if no action mattered, luck alone would make about 0.4; 1 survives a "
        "false-discovery rate of 10 %."
    )
    assert luck_words({**facts, "changes": 0}) is None
    # half of the changes that survive, or luck that explains at most half of them: no caution
    assert not luck_words({**facts, "changes": 2, "expected": 1.9, "survive": 1}).caution
    assert not luck_words({**facts, "changes": 10, "expected": 5.0}).caution
    assert luck_words({**facts, "changes": 10, "expected": 5.1, "survive": 4}).caution


def test_notebooks_warn(lucky, sound):
    assert warned(lucky._repr_html_(), lucky.luck.words)
    assert not warned(sound._repr_html_(), sound.luck.words)


def test_the_report_and_the_review_warn(lucky, sound, tmp_path):
    held = dprl.from_frame(noisy(1), **COLUMNS)
    pathway = dprl.envs.care_pathway().sample(500, seed=1)
    for policy, log, wary in ((lucky, held, True), (sound, pathway, False)):
        written = dprl.report(policy, log, tmp_path / "r.html", draws=50, values=False)
        assert warned(written.path.read_text(), policy.luck.words) == wary
        described = describe_changes(policy, log)
        keys = [change.key for change in described.changes]
        verdicts = Verdicts(tmp_path / f"{wary}.sqlite", policy.digest(), keys)
        app = review_app(described, verdicts, tmp_path / "a.dprl", token="t" * 30)
        page = TestClient(app, base_url="http://127.0.0.1:9").get(f"/{'t' * 30}/").text
        assert warned(page, policy.luck.words) == wary


def test_the_command_line(run):
    noisy().to_csv("noise.csv", index=False)
    fit = ["fit", "noise.csv", *options(COLUMNS), "--n-min", 5, "--gamma", 1]
    code, out, err = run(*fit)
    assert code == 0
    policy = dprl.load("policy.dprl")
    assert f"\n{policy.luck.words}\n" in out
    assert f"warning: {policy.luck.words}" in err
    code, out, _ = run(*fit, "--json")
    facts = json.loads(out)
    assert facts["luck"] == {**policy.provenance["luck"], "words": policy.luck.words}
    assert policy.luck.words in facts["warnings"]
    code, out, _ = run("changes", "policy.dprl", "--json")
    assert json.loads(out)["luck"] == facts["luck"]
    code, out, _ = run("changes", "policy.dprl")
    assert policy.luck.words in out


def test_the_file_keeps_it(lucky, tmp_path):
    lucky.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.digest() == lucky.digest()
    assert again.luck == lucky.luck
    public = dprl.public_copy(lucky)
    assert public.luck == lucky.luck
    assert Answers(lucky).about()["provenance"]["luck"] == dict(lucky.provenance["luck"])


def test_files_from_before_say_nothing_of_it():
    for file in (GOLDEN / "0.1.0").glob("*.dprl"):
        policy = dprl.load(file)
        assert policy.luck is None
        assert "luck" not in str(policy)


@pytest.mark.parametrize(
    "facts", [3, {}, {"skipped": 4}, {"changes": "two"}, {"changes": -1}, {"changes": True}]
)
def test_a_file_with_no_numbers_of_luck_is_refused(lucky, facts):
    if isinstance(facts, dict) and "changes" in facts:
        facts = {**lucky.provenance["luck"], **facts}
    with pytest.raises(dprl.PolicyError, match="luck"):
        replace(lucky, provenance={**lucky.provenance, "luck": facts})


def test_nobody_is_told_of_other_changes_than_there_are(lucky):
    """Where somebody chose otherwise after the fit, the numbers are about another policy."""
    silent = np.full(len(lucky.states), -1, np.int32)
    assert replace(lucky, choice=silent).luck is None
    some = np.where(np.arange(len(silent)) < 10, lucky.choice, -1).astype(np.int32)
    fewer = replace(lucky, choice=some)
    assert 0 < fewer.summary()["changes"] < lucky.summary()["changes"]
    assert fewer.luck is None


def test_a_part_of_a_policy_says_what_it_was_taken_from(lucky):
    log = dprl.from_frame(noisy(1), **COLUMNS)
    part = lucky.limited_to(lucky.situations(log)[:3], by="a physician")
    assert part.summary()["changes"] == 3
    changes = lucky.summary()["changes"]
    assert part.luck.sentence.startswith(f"The policy it was taken from makes {changes} changes; ")


def test_certified_and_other_policies_have_claims_of_their_own(sound):
    log = dprl.envs.care_pathway().sample(8_000, seed=5)
    gated = dprl.gate(sound, log, delta=0.05, value_range=(0, 1))
    assert gated.summary()["changes"] >= 1
    assert gated.luck is None
    assert "if no action mattered" not in str(gated) + gated._repr_html_()
    confident = dprl.Confident(gamma=1.0, check=False).fit(log)
    assert confident.luck is None
    assert "if no action mattered" not in str(confident)


@pytest.mark.slow
def test_over_features_it_speaks_of_training_points(tmp_path, monkeypatch):
    log = dprl.envs.PointMass().sample(100, seed=0)
    learner = dprl.DPRLContinuous(n_min=10, radius=0.5, gamma=0.97, cut="drop-unrelated")
    policy = learner.fit(log)
    facts = policy.provenance["luck"]
    line = str(policy).splitlines()[2]  # after the verdict and the counts
    assert line == policy.luck.words
    assert line.startswith(
        f"At 400 of {len(policy.z):,} training points it makes {facts['changes']} changes; if no "
    )
    assert warned(policy._repr_html_(), line) == bool(policy.luck.caution)
    written = dprl.report(policy, log, tmp_path / "r.html", draws=50, values=False)
    assert warned(written.path.read_text(), line) == bool(policy.luck.caution)
    policy.save(tmp_path / "p.dprl")
    assert dprl.load(tmp_path / "p.dprl").luck == policy.luck
    part = policy.limited_to(policy.situations(log)[:1])
    assert "training points the policy it was taken from makes" in part.luck.sentence

    monkeypatch.setattr("dprl.learners.continuous.LARGEST", 50)
    words = str(learner.fit(log)).splitlines()[2]
    assert words.startswith("How many of its changes are luck was not counted: ")
    assert words.endswith(" training points are too many to shuffle.")
