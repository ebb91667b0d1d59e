"""Reports and certificates say whether actions were randomised, as far as the log records it."""

import io
from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.evidence import count_batches, from_batches
from dprl.logs.source import chances_words, parts_of


def trial(known, seed=0, n=400):
    """Two arms, one to one; the probability is recorded on a share of rows."""
    random = np.random.default_rng(seed)
    action = np.array(["new", "old"])[random.integers(2, size=n)]
    reward = (random.random(n) < np.where(action == "new", 0.8, 0.3)).astype(float)
    p = np.where(np.arange(n) < known * n, 0.5, np.nan)
    chance = {} if known is None or known < 0 else {"propensity": p}
    return dprl.from_arrays(
        episode=[f"{seed}-{i}" for i in range(n)], state=["s"] * n, action=action, reward=reward,
        **chance,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("known", "word"), [(1.0, "Randomised: "), (0.5, "Mixed: "), (-1, "Not randomised as far")]
)
def test_reports_and_certificates_say_it(known, word, tmp_path):
    train, test = trial(known), trial(known, seed=1)
    assert chances_words(train).startswith(word)
    policy = dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), train, value_range=(0, 1))
    lines = " ".join(policy.certificate.assumptions)
    assert (word in lines) is (known > 0)
    assert ("Within a state they are the same for all" in lines) is (known > 0)
    whole = dprl.gate(
        dprl.DPRLDiscrete(n_min=20, gamma=1.0), train, mode="policy", grade="large-sample"
    )
    assert (word in " ".join(whole.certificate.assumptions)) is (known > 0)
    dprl.report(policy, test, tmp_path / "r.html", draws=20)
    assert word in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("known", [1.0, 0.5, 0.0, -1])
def test_a_log_in_parts_says_it_in_the_same_bytes(known, tmp_path):
    log = trial(known)
    dprl.write(log, tmp_path / "log.parquet")
    columns = {"episode": "episode", "state": "state", "action": "action", "reward": "reward",
               **({} if known < 0 else {"propensity": "propensity"})}  # fmt: skip
    log = dprl.read(tmp_path / "log.parquet", **columns)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    files = []
    with dprl.scan(tmp_path / "log.parquet", **columns, rows=150, folder=tmp_path) as scanned:
        assert len(scanned) > 2
        for source in (log, parts_of(log, 90), scanned):
            gated = dprl.gate(learner, source, value_range=(0, 1), markov=False)
            gated.save(tmp_path / "policy.dprl")
            files.append((tmp_path / "policy.dprl").read_bytes())
    assert files[0] == files[1] == files[2]
    lines = " ".join(gated.certificate.assumptions)
    assert ("with which probabilit" in lines) is (known >= 0)


def certified(*logs, k=1):
    """The assumptions of a certificate from the evidence of sites, which are saved and loaded."""
    schema = dprl.SiteSchema.of(logs[0], gamma=1.0, value_range=(0, 1))
    counted = [dprl.site_evidence(log, schema, k=k, site=f"s{i}") for i, log in enumerate(logs)]
    sent = [dprl.SiteEvidence.load(io.BytesIO(one.to_bytes())) for one in counted]
    both = dprl.merge_evidence(*sent)
    assert dprl.SiteEvidence.load(io.BytesIO(both.to_bytes())).digest() == both.digest()
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False)
    policy = dprl.gate(learner, both, mode="in-sample", markov=False, value_range=(0, 1))
    return both, " ".join(policy.certificate.assumptions)


@pytest.mark.parametrize(
    ("known", "words"),
    [((1.0,), "Randomised: the log of the site records on all rows"),
     ((1.0, 1.0), "Randomised: the logs of all 2 sites record on all rows"),
     ((1.0, 0.5), "Mixed: the probability of the action taken is on record on all rows of 1 of 2 "
                  "sites, on some rows of 1, and on none of 0."),
     ((1.0, -1), "on all rows of 1 of 2 sites, on some rows of 0, and on none of 1."),
     ((0.0, -1), "Not randomised as far as the sites say"),
     ((-1, -1), "")],
)  # fmt: skip
def test_certificates_of_sites_say_it(known, words):
    both, lines = certified(*(trial(share, seed=i) for i, share in enumerate(known)))
    assert words in lines
    assert ("within a state they are the same for all" in lines) is bool(words)
    assert ("probabilities of actions on" in both.explain()) is bool(words)


def test_evidence_of_a_log_without_probabilities_is_as_before():
    log = trial(1.0)
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 1))
    bare = dprl.site_evidence(replace(log, propensity=None), schema)
    counted = dprl.site_evidence(log, schema)
    assert "chances" not in bare.sites[0]
    assert {**bare.sites[0], "chances": "all"} == counted.sites[0]
    with pytest.raises(dprl.EvidenceError, match="twice"):  # one site, read in two ways
        dprl.merge_evidence(bare, counted)
    with pytest.raises(dprl.EvidenceError, match="'chances' of a site is 'most'"):
        replace(counted, sites=({**counted.sites[0], "chances": "most"},))


@pytest.mark.parametrize(("known", "word"), [(1.0, "all"), (0.5, "some"), (0.0, "none")])
def test_partitions_of_a_table_say_it(known, word):
    pa = pytest.importorskip("pyarrow", reason="partitions are Arrow batches")
    log = trial(known)
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 1))
    rows = pa.table({
        "who": list(log.episodes), "day": [0] * log.n_steps, "s": ["s"] * log.n_steps,
        "a": [log.actions[a] for a in log.action], "r": log.reward,
        "p": pa.array(log.propensity, mask=np.isnan(log.propensity)),
    })  # fmt: skip
    count = count_batches(
        schema, episode="who", time="day", state="s", action="a", reward="r", propensity="p"
    )
    parts = [part for i in (0, 200) for part in count(rows.slice(i, 200).to_batches())]
    assert from_batches(parts).sites[0]["chances"] == word
