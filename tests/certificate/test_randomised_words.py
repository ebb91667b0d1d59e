"""Reports and certificates say whether actions were randomised, as far as the log records it."""

import numpy as np
import pytest

import dprl
from dprl.logs._probability_words import chances_words


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
    assert ("within a state they are the same for all" in lines) is (known > 0)
    whole = dprl.gate(
        dprl.DPRLDiscrete(n_min=20, gamma=1.0), train, mode="policy", grade="large-sample"
    )
    assert (word in " ".join(whole.certificate.assumptions)) is (known > 0)
    dprl.report(policy, test, tmp_path / "r.html", draws=20)
    assert word in (tmp_path / "r.html").read_text(encoding="utf-8")
