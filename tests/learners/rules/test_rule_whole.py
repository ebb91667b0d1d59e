"""The whole of a rule policy: judged against a slow second way, and worlds in which true rules do harm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dprl
from dprl.learners.rules import search
from dprl.learners.rules import whole as module
from dprl.learners.rules.search import _sets
from dprl.learners.rules.whole import Steps, folds_of, with_past
from dprl.logs.returns import returns

QUICK = {
    "behavior_models": [("logistic", LogisticRegression())],
    "value_model": LinearRegression(),
}


def doses(seed, n=400, steps=3, third=-3.2):
    """Every dose brings 1; the third one costs; the features do not tell how many there were."""
    rng = np.random.default_rng([21, seed])
    x, count = rng.normal(size=(n, 2)), np.zeros(n)
    states, actions, rewards = [], [], []
    for _ in range(steps):
        dose = rng.random(n) < 0.5
        count += dose
        states.append(x)
        actions.append(dose)
        rewards.append(dose + third * (dose & (count == 3)) + rng.normal(0, 0.3, n))
        x = 0.7 * x + 0.7 * rng.normal(size=x.shape)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(n), steps), state=np.stack(states, 1).reshape(-1, 2),
        action=np.where(np.stack(actions, 1).ravel(), "dose", "wait"),
        reward=np.stack(rewards, 1).ravel(),
    )  # fmt: skip


def late_harm(seed, n=300, steps=12):
    """The drug brings .5 at once and takes .8 at the noisy end; the features never tell."""
    rng = np.random.default_rng([22, seed])
    x, count = rng.normal(size=(n, 2)), np.zeros(n)
    states, actions, rewards = [], [], []
    for step in range(steps):
        drug = rng.random(n) < 1 / (1 + np.exp(0.4 - 0.5 * x[:, 0]))
        count += drug
        reward = 0.5 * drug + 0.3 * x[:, 1] + rng.normal(0, 0.3, n)
        if step == steps - 1:
            reward += rng.normal(0, 2, n) - 0.8 * count
        states.append(x)
        actions.append(drug)
        rewards.append(reward)
        x = 0.8 * x + 0.6 * rng.normal(size=x.shape)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(n), steps), state=np.stack(states, 1).reshape(-1, 2),
        action=np.where(np.stack(actions, 1).ravel(), "drug", "wait"),
        reward=np.stack(rewards, 1).ravel(),
    )  # fmt: skip


def trial(seed, n=602, z=2.83):
    """Two arms by lot, outcomes 0 and 1, drawn until the plain z is as asked; who is who is noise."""
    rng = np.random.default_rng([23, seed])
    while True:
        new, x = rng.random(n) < 0.5, rng.normal(size=(n, 3))
        lived = rng.random(n) < 0.55 + 0.11 * new
        one, other = lived[new], lived[~new]
        error = np.sqrt(one.var() / len(one) + other.var() / len(other))
        if abs((one.mean() - other.mean()) / error - z) < 0.05:
            return dprl.from_arrays(
                episode=range(n), state=x, action=np.where(new, "new", "old"), reward=1.0 * lived
            )


def slow_judged(steps, suggested, fold, *, exact):
    """Scores of episodes, with loops and with the equations as they are in the text."""
    log, gamma = steps.log, steps.gamma
    past = []
    for e in range(log.n_episodes):
        for t in range(log.starts[e], log.starts[e + 1]):
            before = log.action[log.starts[e] : t]
            past.append([np.sum(before == a) for a in np.unique(suggested[suggested >= 0])])
    past, step = np.array(past, float), np.tile(np.arange(5), log.n_episodes)
    columns = []
    for own in past.T:
        columns += [own] if own.max() > 0 else []
        for k in range(1, min(int(own.max()), 4)):
            columns += [1.0 * (own >= k), (own >= k) * step / 4]
    columns += [1.0 * (suggested == a) for a in np.unique(suggested[suggested >= 0])]
    columns = [c / np.sqrt((c**2).mean()) for c in columns]
    phi = np.column_stack([steps.columns, *columns])
    p, own_p = phi.shape[1], steps.columns.shape[1]
    own, other = (0.75 * k / len(log.groups) + 1e-9 for k in (own_p, p - own_p))
    shrink = np.array([1e-9] + [own] * (own_p - 1) + [other] * (p - own_p))
    G = returns(log, gamma)
    likely = steps.b[np.arange(log.n_steps), np.maximum(suggested, 0)]
    likely = np.where(suggested < 0, 1.0, np.maximum(likely, 0.05))
    ratio = ((suggested < 0) | (suggested == log.action)) / likely
    score = np.full(log.n_episodes, np.nan)
    for k in set(fold.tolist()) - {-1}:
        A, r, squares, start = np.zeros((p, p)), np.zeros(p), np.zeros(p), np.zeros(p)
        for e in range(log.n_episodes):
            if fold[log.group[e]] == k:
                continue
            start += phi[log.starts[e]]
            for t in range(log.starts[e], log.starts[e + 1]):
                if ratio[t] > 0:
                    last = t + 1 == log.starts[e + 1]
                    after = np.zeros(p) if last else phi[t + 1]
                    V_next = 0.0 if last else steps.V[t + 1]
                    A += ratio[t] * np.outer(phi[t], phi[t] - gamma * after)
                    r += ratio[t] * phi[t] * (log.reward[t] + gamma * V_next - steps.V[t])
                    squares += ratio[t] * phi[t] ** 2
        R = np.diag(shrink * squares.mean())
        theta, nu = np.linalg.solve(A + R, r), np.linalg.solve((A + R).T, start)
        for e in np.flatnonzero(fold[log.group] == k):
            rows = range(log.starts[e], log.starts[e + 1])
            D = {
                t: np.clip(phi[t] @ theta, G.min() - steps.V[t], G.max() - steps.V[t]) for t in rows
            }
            total, product = D[rows[0]], 1.0
            for t in rows:
                discount = gamma ** (t - rows[0])
                product *= ratio[t]
                w = min(max(phi[t] @ nu, 0.0) * ratio[t], 20 * discount)
                w = discount * product if exact else w
                V_next = steps.V[t + 1] if t + 1 in D else 0.0
                delta = log.reward[t] + gamma * V_next - steps.V[t]
                total += w * (delta + gamma * D.get(t + 1, 0.0) - D[t]) - discount * delta
            score[e] = total
    return score


@pytest.mark.parametrize("exact", [True, False])
def test_scores_are_those_of_a_slow_second_way(exact, monkeypatch):
    monkeypatch.setattr(module, "ENOUGH", 0.0 if exact else np.inf)
    monkeypatch.setattr(module, "WIDER", np.inf)
    log = late_harm(0, n=40, steps=5)
    rng = np.random.default_rng(0)
    V, likely = rng.normal(size=log.n_steps), rng.uniform(0.02, 0.98, log.n_steps)
    steps = Steps(log, V, np.column_stack([likely, 1 - likely]), 0.9)
    x = np.asarray(log.features)
    suggested = np.where(x[:, 0] > 0.5, 0, np.where(x[:, 1] > 0.5, 1, -1))
    fold = folds_of(40, np.arange(40) < 15, 3)
    found = steps.judged(suggested, fold)
    slow = slow_judged(steps, suggested, fold, exact=exact)
    assert found.exact == exact
    np.testing.assert_allclose(found.score, slow, rtol=1e-6, atol=1e-9)
    assert np.isnan(found.score).sum() == 15


def test_nothing_suggested_brings_nothing():
    log = late_harm(1, n=60, steps=4)
    b = np.full((log.n_steps, 2), 0.5)
    found = Steps(log, np.zeros(log.n_steps), b, 1.0).judged(
        np.full(log.n_steps, -1), folds_of(60, None, 0)
    )
    assert found.exact
    np.testing.assert_allclose(found.score, 0.0, atol=1e-9)


def test_what_nobody_does_cannot_be_judged():
    log = late_harm(2, n=200, steps=12)
    b = np.full((log.n_steps, 2), [0.01, 0.99])  # as if the drug were hardly ever given
    found = Steps(log, np.zeros(log.n_steps), b, 1.0).judged(
        np.zeros(log.n_steps, int), folds_of(200, None, 0)
    )
    assert not found.sound


@pytest.mark.parametrize("steps", [3, 5])
def test_the_whole_of_doses_is_near_the_truth(steps):
    """Always a dose: one more each step, and the third one costs."""
    third = 1 - (1 + steps + steps * (steps - 1) / 2) / 2**steps  # how often there is a third one
    truth = steps - 3.2 - (steps / 2 - 3.2 * third)
    log = doses(5, n=1_200, steps=steps)
    V = np.repeat(returns(log, 1.0).reshape(-1, steps).mean(axis=0)[None], 1_200, 0).ravel()
    b = np.full((log.n_steps, 2), 0.5)
    found = Steps(log, V, b, 1.0).judged(
        np.full(log.n_steps, log.actions.index("dose")), folds_of(1_200, None, 0)
    )
    error = found.score.std() / np.sqrt(1_200)
    assert abs(found.score.mean() - truth) < 4 * error
    assert error < 0.25


@pytest.mark.slow
def test_true_rules_that_do_harm_together_are_not_issued():
    for seed in range(3):
        assert not dprl.Rules(gamma=1.0).fit(doses(seed), **QUICK).rules


def test_rules_that_pass_alone_are_shown_as_not_issued():
    policy = dprl.Rules(gamma=1.0, splits=1, lam=1.0, seed=1).fit(doses(1, n=1_500), **QUICK)
    assert not policy.rules
    table = dprl.policies.rules.text.not_issued(policy)
    assert "not surely better followed at every decision, with the others" in table["why"]
    assert any("None is issued" in note for note in policy.provenance["notes"])


def test_a_whole_that_passes_without_a_lower_end_above_0_is_not_issued(monkeypatch):
    """Stepping down says more than the ends that hold at once: what is issued has the end that is told."""
    rng = np.random.default_rng(0)
    x, drug = rng.normal(size=(600, 2)), rng.random(600) < 0.5
    log = dprl.from_arrays(
        episode=range(600), state=x, action=np.where(drug, "drug", "wait"),
        reward=drug + rng.normal(size=600), propensity=np.full(600, 0.5),
    )  # fmt: skip
    learner = dprl.Rules(gamma=1.0, splits=1, margin=0.2, depth=1)
    assert learner.fit(log, value_model=LinearRegression()).provenance["rules"]["whole"]["low"] > 0

    def stepped(*given, null=0.0, **more):
        test = max_t(*given, null=null, **more)
        return replace(test, low=np.minimum(test.low, null - 0.01))

    max_t = search.max_t
    monkeypatch.setattr(search, "max_t", stepped)
    policy = learner.fit(log, value_model=LinearRegression())
    assert not policy.rules
    assert policy.provenance["rules"]["whole"]["low"] < 0
    assert any("None is issued" in note for note in policy.provenance["notes"])


@pytest.mark.parametrize("exact", [True, False])
def test_what_is_cut_counts_by_the_chance_that_it_was_seen(exact, monkeypatch):
    """The first dose brings 1, the second takes 1.6: what half of them show counts twice."""
    monkeypatch.setattr(module, "ENOUGH", 0.0 if exact else np.inf)
    monkeypatch.setattr(module, "WIDER", np.inf)
    rng = np.random.default_rng([24, 0])
    n, truth = 4_000, 0.5 * (1 - 1.6)
    x, dose, seen = rng.normal(size=n), rng.random((n, 2)) < 0.5, rng.random(n) < 0.5
    kept = np.column_stack((np.ones(n, bool), seen)).ravel()
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(n), 2)[kept], state=np.repeat(x, 2)[kept, None],
        action=np.where(dose, "dose", "wait").ravel()[kept],
        reward=(0.3 * x[:, None] + dose * [1, -1.6] + rng.normal(0, 0.3, (n, 2))).ravel()[kept],
        ended=np.repeat(np.where(seen, "terminal", "cut"), 2)[kept],
    )  # fmt: skip
    work = dprl.Rules(gamma=1.0, lam=1, cut="ipcw").work(log).log
    half = np.full((work.n_steps, 2), 0.5)
    found = Steps(work, rng.normal(size=work.n_steps), half, 1.0).judged(
        np.full(work.n_steps, work.actions.index("dose")), folds_of(n, None, 0)
    )
    error = found.score.std() / np.sqrt(n)
    assert found.exact == exact
    assert abs(found.score.mean() - truth) < 4 * error < 0.2
    both = (dose.all(axis=1) & seen).sum()
    assert not exact or found.effective == pytest.approx(both, rel=0.05)


def test_values_that_know_what_was_done_see_late_harm():
    """λ = .8 with values of the features alone says that the drug helps; it harms by .3."""
    from dprl.learners.rules.search import Scores

    log = late_harm(3, n=800)
    x, drug = np.asarray(log.features), log.actions.index("drug")
    likely = 1 / (1 + np.exp(0.4 - 0.5 * x[:, 0]))
    b = np.column_stack([likely, 1 - likely][:: 1 if drug == 0 else -1])
    G = returns(log, 1.0)
    step = np.tile(np.arange(12), 800)
    V = np.array([G[step == s].mean() for s in range(12)])[step] + 0.0 * G
    mended = with_past(log, V, 1.0, 0)
    (before, _), (after, parts) = (
        Scores.of(log, values, b, 1.0, 0.8).contrast(drug) for values in (V, mended)
    )
    assert before > 0.05
    assert abs(after + 0.3) < 4 * np.sqrt((parts**2).sum())
    assert ((G - mended) ** 2).mean() < ((G - V) ** 2).mean()


def test_values_stay_where_the_past_tells_nothing():
    rng = np.random.default_rng(0)
    log = dprl.from_arrays(
        episode=range(50), state=rng.normal(size=(50, 2)), action=rng.choice(["a", "b"], 50),
        reward=rng.normal(size=50),
    )  # fmt: skip
    V = rng.normal(size=50)
    assert with_past(log, V, 1.0, 0) is V  # one step: nothing was done before


@pytest.mark.slow
def test_late_harm_is_not_issued():
    for seed in range(100, 106):
        policy = dprl.Rules(gamma=1.0).fit(late_harm(seed, n=400), **QUICK)
        assert {rule.suggested for rule in policy.rules} <= {"wait"}


@pytest.mark.slow
def test_the_main_effect_of_a_trial_is_found_and_told():
    found = []
    for seed in range(6):
        log = trial(seed)
        known = np.full((602, 2), 0.5)
        policy = dprl.Rules(gamma=1.0).fit(log, propensity=known, value_model=LinearRegression())
        found.append(bool(policy.rules))
        if policy.provenance["rules"]["division"] == -1 and policy.rules:
            (rule,) = policy.rules
            assert (rule.words, rule.suggested) == ("everywhere", "new")
            assert rule.facts["groups"] == 602
            assert rule.facts["groups_proposed"] == 0
            assert "all groups certified it" in policy.provenance["notes"][0]
            half = dprl.learners.HeldOut.of(
                policy, log, propensity=known, value_model=LinearRegression()
            )
            low = {"feature": "x0", "kind": "at most", "value": 0.5}
            assert half.facts(1, [low])["groups"] < 602
            gated = dprl.gate(policy, log, value_range=(0, 1))
            assert gated.certificate.tested[0] == 1
    assert sum(found) >= 4


def test_rules_of_one_action_are_one_claim_first():
    """The drug helps a little everywhere, in two regions by turns: together it is certain."""
    assert _sets(1) == [(0,)]
    assert set(_sets(3)) == {(0,), (1,), (2,), (0, 1), (0, 1, 2), (1, 2), (0, 2)}
    rng = np.random.default_rng(3)
    n = 900
    x, drug = rng.normal(size=(n, 2)), rng.random(n) < 0.5
    helps = np.where(x[:, 0] > 0.6, 1.2, np.where(x[:, 0] < -0.6, 0.9, -1.0))
    log = dprl.from_arrays(
        episode=range(n), state=x, action=np.where(drug, "drug", "wait"),
        reward=drug * helps + rng.normal(0, 1.5, n), feature_names=["pressure", "age"],
    )  # fmt: skip
    policy = dprl.Rules(gamma=1.0, splits=1, seed=2).fit(
        log, propensity=np.full((n, 2), 0.5), value_model=LinearRegression()
    )
    same = [rule for rule in policy.rules if rule.suggested == "drug"]
    assert len(same) == 2
    together = same[0].facts["together"]
    assert together == same[1].facts["together"]
    mean, low, _, p = together
    assert low > max(rule.facts["low"] for rule in same) or p <= 0.05
    assert min(r.facts["advantage"] for r in same) < mean < max(r.facts["advantage"] for r in same)


def test_everyone_wins_unless_a_split_earns_its_place():
    """The drug helps all alike: no rule that leaves a few out is the answer; where it harms some
    of them, the rules are."""
    rng = np.random.default_rng(0)
    x, drug = rng.normal(size=(1_000, 2)), rng.random(1_000) < 0.5
    for harmed, rules in ((0.0, 1), (4.0, 2)):
        effect = 1.0 - harmed * (x[:, 0] > 0.8)
        log = dprl.from_arrays(
            episode=range(1_000), state=x, action=np.where(drug, "drug", "wait"),
            reward=drug * effect + rng.normal(size=1_000), propensity=np.full(1_000, 0.5),
        )  # fmt: skip
        policy = dprl.Rules(gamma=1.0, splits=1).fit(log)
        assert len(policy.rules) == rules
        assert (policy.rules[0].conditions == ()) == (rules == 1)
        shares = [division["same"] for division in policy.provenance["rules"]["divisions"]]
        assert max(shares) == 1.0


def test_the_error_of_the_whole_is_that_of_the_regression_behind_it():
    """Always the drug, where its first use alone helps: the weights that say how surely what
    follows is known must not be cut off for its error (half of such intervals missed the truth)."""
    z = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n, steps = 2_000, 5
        drug = rng.random((n, steps)) < 0.3
        reward = rng.normal(0, 0.1, (n, steps))
        reward[:, -1] += drug.any(axis=1)
        log = dprl.from_arrays(
            episode=np.repeat(np.arange(n), steps), state=rng.normal(size=(n * steps, 1)),
            action=np.where(drug, "drug", "wait").ravel(), reward=reward.ravel(),
        )  # fmt: skip
        work = Steps(log, np.full(n * steps, 0.8), np.full((n * steps, 2), [0.3, 0.7]), 1.0)
        judged = work.judged(np.zeros(n * steps, np.int64), folds_of(n, None, seed))
        assert not judged.exact
        z.append((judged.score.mean() - 0.7**5) / (judged.score.std() / np.sqrt(n)))
    assert np.sqrt(np.mean(np.square(z))) < 1.5


def test_rules_that_few_follow_are_not_judged_too_low():
    """Above 1 the drug is given one time in 14 and brings 1; elsewhere it is not suggested."""
    z = []
    for seed in range(6):
        rng = np.random.default_rng([24, seed])
        n, steps = 600, 6
        x = rng.normal(size=(n, steps, 2))
        drug = rng.random((n, steps)) < 0.07
        reward = rng.normal(0, 0.5, (n, steps)) + drug * (x[:, :, 0] > 1)
        log = dprl.from_arrays(
            episode=np.repeat(np.arange(n), steps), state=x.reshape(-1, 2),
            action=np.where(drug, "drug", "wait").ravel(), reward=reward.ravel(),
        )  # fmt: skip
        above = np.asarray(log.features)[:, 0] > 1
        V = 0.07 * 0.1587 * (steps - np.tile(np.arange(steps), n)) + 0.07 * (above - 0.1587)
        work = Steps(log, V, np.full((n * steps, 2), [0.07, 0.93]), 1.0)
        judged = work.judged(np.where(above, 0, -1), folds_of(n, None, seed))
        assert not judged.exact
        z.append((judged.score.mean() - 0.93 * 0.1587 * steps) / judged.score.std() * np.sqrt(n))
    assert np.sqrt(np.mean(np.square(z))) < 1.6
    assert abs(np.mean(z)) < 1.2
