"""Sites that share no rows: what they count adds up to the pooled log, and small cells stay home."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dprl
from conftest import random_episodes, to_log
from dprl._core.exact import COUNT
from dprl.evidence.counts import FIRST, LATER, evidence
from dprl.evidence.sites import evidence as _site_bins
from dprl.evidence.sites.cells import left_out, rest_of
from dprl.evidence.sites.evidence import ARCHIVE, from_parts

ROW = st.tuples(st.integers(0, 4), st.integers(0, 2), st.floats(-100, 100, width=32))
EPISODES = st.lists(st.lists(ROW, min_size=1, max_size=8), min_size=2, max_size=30)
RANGE = (-1000.0, 1000.0)


def split(log, n, seed):
    """The log in up to n parts by group; a part without a group is left out."""
    home = np.random.default_rng(seed).integers(0, n, len(log.groups))[log.group]
    return [log.take(np.flatnonzero(home == i)) for i in range(n) if (home == i).any()]


def counted(log, n=3, seed=0, k=1, **schema):
    schema = dprl.SiteSchema.of(log, **{"gamma": 0.9, "value_range": RANGE, **schema})
    return [
        dprl.site_evidence(part, schema, k=k, site=f"site {i}")
        for i, part in enumerate(split(log, n, seed))
    ]


def assert_same_policy(ours, pooled, besides=("provenance",)):
    for field in fields(pooled):
        a, b = getattr(ours, field.name), getattr(pooled, field.name)
        if field.name in besides:
            continue
        if isinstance(b, np.ndarray):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), field.name
        else:
            assert dict(a) == dict(b) if hasattr(b, "keys") else a == b, field.name


@settings(max_examples=15)
@given(EPISODES, st.integers(1, 5), st.integers(0, 9), st.sampled_from([0.3, 0.9, 1.0]))
def test_the_policy_of_the_sites_is_that_of_the_pooled_log(episodes, n, seed, gamma):
    log = to_log(episodes)
    learner = dprl.DPRLDiscrete(n_min=2, gamma=gamma, plan=False)
    merged = dprl.merge_evidence(*counted(log, n, seed, gamma=gamma))
    assert_same_policy(learner.fit(merged), learner.fit(log))
    whole = evidence(log, gamma)
    assert merged.evidence.words[:, :, :-1].tobytes() == whole.words.tobytes()
    assert merged.evidence.n_episodes == log.n_episodes


@pytest.mark.parametrize("seed", range(4))
def test_groups_menus_and_cut_episodes_are_treated_as_in_the_pooled_log(seed):
    episodes = random_episodes(seed)
    rng = np.random.default_rng(seed)
    cut = (rng.random(len(episodes)) < 0.3).tolist()
    log = to_log(
        episodes,
        cut=cut,
        group=np.repeat(rng.integers(0, 12, len(episodes)), list(map(len, episodes))),
    )
    menus = np.ones((2, log.n_actions), bool)
    menus[1, -1] = False
    log = replace(log, available=rng.integers(0, 2, log.n_steps) * (log.action < log.n_actions - 1),
                  menus=menus)  # fmt: skip
    for treatment in ("terminal", "drop-unrelated"):
        learner = dprl.DPRLDiscrete(n_min=2, gamma=0.9, plan=False, cut=treatment)
        merged = dprl.merge_evidence(*counted(log, 3, seed, cut=treatment))
        pooled = learner.fit(log)
        assert_same_policy(learner.fit(merged), pooled)
        for name in ("episodes", "groups", "steps", "cut_episodes", "episodes_used"):
            if (name, treatment) != ("steps", "drop-unrelated"):  # rows of dropped episodes
                assert learner.fit(merged).provenance[name] == pooled.provenance[name]


def test_the_order_and_the_tree_of_merges_do_not_show():
    parts = counted(to_log(random_episodes(3)), 4, 1)
    whole = dprl.merge_evidence(*parts).to_bytes()
    for order in itertools.permutations(parts):
        assert dprl.merge_evidence(*order).to_bytes() == whole
    a, b, c, d = parts
    left = dprl.merge_evidence(dprl.merge_evidence(dprl.merge_evidence(a, b), c), d)
    right = dprl.merge_evidence(a, dprl.merge_evidence(b, dprl.merge_evidence(c, d)))
    assert left.to_bytes() == right.to_bytes() == whole


def test_the_certificate_of_the_sites_is_that_of_the_pooled_log():
    log = dprl.envs.care_pathway().sample(4000, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False)
    merged = dprl.merge_evidence(*counted(log, 3, 0, gamma=1.0, value_range=(0, 1)))
    pooled = dprl.gate(
        learner, log, mode="in-sample", markov=False, states=log.states, value_range=(0, 1)
    )
    for proposal in (learner, learner.fit(merged)):
        ours = dprl.gate(proposal, merged, mode="in-sample", markov=False)
        assert pooled.certificate.rows
        for field in fields(pooled.certificate):
            if field.name not in ("log", "notes"):
                a, b = (getattr(p.certificate, field.name) for p in (ours, pooled))
                assert a == b, field.name
        assert_same_policy(ours, pooled, ("provenance", "certificate"))
        assert any("3 sites" in note for note in ours.certificate.notes)


# -- small cells stay home -----------------------------------------------------------------------


@given(EPISODES, st.integers(2, 6), st.booleans())
def test_nothing_rests_on_fewer_than_k_groups_and_no_difference_does(episodes, k, grouped):
    group = np.repeat(np.arange(len(episodes)) // (2 if grouped else 1), list(map(len, episodes)))
    log = to_log(episodes, group=group)
    schema = dprl.SiteSchema.of(log, gamma=0.9, value_range=RANGE)
    if len(log.groups) < k:
        with pytest.raises(dprl.LogError, match="nothing of fewer than k"):
            dprl.site_evidence(log, schema, k=k)
        return
    ours = dprl.site_evidence(log, schema, k=k)
    n = ours.evidence.words[..., COUNT]
    true = evidence(log, 0.9).words[..., COUNT]
    assert ((n == 0) | (n >= k)).all()
    assert (ours.bins[:, 3] >= k).all()
    total = n[FIRST].sum(axis=1)
    assert ((total == true[FIRST].sum(axis=1)) | (total == 0)).all()
    for s in range(len(total)):
        if n[FIRST, s, -1]:  # the whole state less what is given away is the rest
            put_together = (true[FIRST, s] > 0) & (n[FIRST, s, :-1] == 0)
            assert put_together.sum() >= 2 or (true[FIRST, s][put_together] >= k).all()
            assert true[FIRST, s][put_together].sum() == n[FIRST, s, -1] >= k
        else:
            assert (n[FIRST, s, :-1] == true[FIRST, s]).all() or not total[s]
    given_away = n[:, :, :-1]
    # a pair is given away whole: what is shown of it is all that there is
    shown = given_away[FIRST] > 0
    assert (given_away[LATER][shown] == true[LATER][shown]).all()
    if true[FIRST].sum() == len(log.groups):  # every group in one state
        left = len(log.groups) - total.sum()
        assert left == 0 or left >= k
    assert ((given_away == true) | (given_away == 0)).all()
    assert not n[LATER, :, -1].any()
    assert (n[LATER, :, :-1][n[FIRST, :, :-1] == 0] == 0)[
        (true[FIRST] > 0)[n[FIRST, :, :-1] == 0]
    ].all()


@given(st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=1, max_size=6),
       st.integers(1, 12), st.lists(st.booleans(), min_size=3, max_size=3))  # fmt: skip
def test_the_rest_is_of_two_actions_and_k_groups(m, k, also):
    m, also = np.array(m), np.array(also)
    n = m.sum(axis=1)
    gone = left_out(n, k, alone=False)
    rest = rest_of(m, k, gone, (m > 0) & also[None, :])
    assert ((n < k) & (n > 0) == gone).all()
    assert not rest[gone].any()
    assert rest[(m > 0) & also & ~gone[:, None]].all()
    shown = ~rest & ~gone[:, None]
    assert ((m[shown] == 0) | (m[shown] >= k)).all()
    for s in np.flatnonzero(rest.any(axis=1)):
        assert rest[s].sum() >= 2 or (m[s][rest[s]] >= k).all()
        assert m[s][rest[s]].sum() >= k
        assert (m[s][rest[s]] > 0).all()
    assert k > 1 or also.any() or not (rest.any() or gone.any())
    # all groups less those of the states that are given away are none, or k and more
    alone = left_out(n, k, alone=True)
    assert (alone | ~gone).all()
    assert n[alone].sum() == 0 or n[alone].sum() >= min(k, n.sum())


@given(st.lists(st.integers(0, _site_bins.LAST), min_size=8, max_size=60), st.integers(1, 8),
       st.booleans())  # fmt: skip
def test_bins_of_k_groups_hold_every_return(bins, k, few):
    bins = np.array(bins) * (0 if few else 1) + (np.array(bins) % 3 * 4000 if few else 0)
    one = np.ones_like(bins)
    rows = _site_bins.coarse(np.column_stack([0 * one, bins, bins, one]), k)
    assert (rows[:, 3] >= k).all()
    assert rows[:, 3].sum() == len(bins)
    for low in np.unique(rows[:, 1]):  # no bin says that more lie below, or above, than do
        assert rows[rows[:, 1] >= low][:, 3].sum() <= (bins >= low).sum()
    for high in np.unique(rows[:, 2]):
        assert rows[rows[:, 2] <= high][:, 3].sum() <= (bins <= high).sum()
    if k == 1:
        assert (rows[:, 1] == rows[:, 2]).all()


@pytest.mark.slow
def test_what_a_rare_patient_does_changes_the_rest_alone():
    episodes = [[("s", "abc"[i % 2 if i < 40 else 2], float(i % 3))] for i in range(43)]
    other = [*episodes[:-1], [("s", "c", 77.0)]]
    logs = [to_log(e) for e in (episodes, other)]
    schema = dprl.SiteSchema.of(logs[0], gamma=1.0, value_range=(0, 100))
    one, two = (dprl.site_evidence(log, schema, k=5) for log in logs)
    assert one.suppressed == two.suppressed == 2  # 'c' with three groups, and 'a' or 'b' beside it
    changed = (one.evidence.words != two.evidence.words).any(axis=-1)
    assert np.argwhere(changed).tolist() == [[FIRST, 0, 3]]


def test_a_certificate_from_coarse_bins_claims_no_more_than_the_pooled_one():
    log = dprl.envs.care_pathway().sample(3000, seed=1)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.97, plan=False)
    pooled = dprl.gate(
        learner, log, mode="in-sample", markov=False, states=log.states, value_range=(0, 1)
    )
    merged = dprl.merge_evidence(*counted(log, 2, 0, k=5, gamma=0.97, value_range=(0, 1)))
    assert (merged.bins[:, 1] < merged.bins[:, 2]).any()
    ours = dprl.gate(learner, merged, mode="in-sample", markov=False)
    whole = {row["state"]: row for row in pooled.certificate.rows}
    assert ours.certificate.rows
    for row in ours.certificate.rows:
        assert row["log10_e"] <= whole[row["state"]]["log10_e"] + 1e-9
        assert row["gamma_star"] <= whole[row["state"]]["gamma_star"]
    assert any("less power" in note for note in ours.certificate.notes)


def test_the_policy_says_what_was_suppressed():
    merged = dprl.merge_evidence(*counted(to_log(random_episodes(2)), 2, 0, k=3))
    assert merged.suppressed
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9, plan=False).fit(merged)
    assert "Cells of fewer than k groups were suppressed (k = 3)" in str(policy)
    assert [site["site"] for site in policy.provenance["sites"]] == ["site 0", "site 1"]
    assert "A group that was at two sites counts twice" in str(policy)
    assert "not differential privacy" in merged.explain()


# -- what is refused -----------------------------------------------------------------------------


def lines(error):
    return str(error.value).splitlines()


@pytest.mark.thin(1)
@pytest.mark.parametrize(
    "other",
    [{"gamma": 0.8}, {"value_range": (-999, 1000)}, {"cut": "terminal"}, {"value_range": None}],
)
def test_evidence_with_another_schema_is_not_merged(other):
    log = to_log(random_episodes(0))
    one, two = counted(log, 2)[0], counted(log, 2, **other)[1]
    with pytest.raises(dprl.EvidenceError, match=f"different {next(iter(other))}") as error:
        dprl.merge_evidence(one, two)
    assert len(lines(error)) == 3


def test_a_site_counts_once():
    one, two = counted(to_log(random_episodes(0)), 2)
    both = dprl.merge_evidence(one, two)
    for parts in ((one, one), (both, two), (both, both)):
        with pytest.raises(dprl.EvidenceError, match="would count twice") as error:
            dprl.merge_evidence(*parts)
        assert len(lines(error)) == 3
    with pytest.raises(dprl.ParameterError, match="at least one"):
        dprl.merge_evidence()


def test_a_site_counts_once_under_another_k_or_name():
    log = dprl.envs.care_pathway().sample(600, seed=0)
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 1))
    here, there = log.split(0.5, seed=0)
    one, two = (dprl.site_evidence(x, schema, k=10, site=n) for x, n in ((here, "a"), (there, "b")))
    both = dprl.merge_evidence(one, two)
    named = replace(
        here,
        episodes=tuple(f"x{i}" for i in range(here.n_episodes)),
        groups=tuple(f"x{i}" for i in range(here.n_episodes)),
    )
    unmarked = [
        replace(part, sites=({k: v for k, v in part.sites[0].items() if k != "log"},))
        for part in (one, dprl.site_evidence(here, schema, k=4, site="c"))
    ]
    for parts in (
        (one, dprl.site_evidence(here, schema, k=10, site="c")),
        (one, dprl.site_evidence(here, schema, k=3, site="a")),
        (both, dprl.site_evidence(here, schema, k=3, site="c")),
        (two, one, dprl.site_evidence(named, schema, k=5, site="c")),  # ids written otherwise
        unmarked,  # files of older versions
    ):
        with pytest.raises(dprl.EvidenceError, match="would count twice"):
            dprl.merge_evidence(*parts)


def test_small_sites_that_are_alike_by_chance_are_merged():
    """Two small sites may have the same counts; 40 of them nearly always have such a pair."""
    rng = np.random.default_rng(0)
    sites = []
    for i in range(60):
        n = 40
        log = dprl.from_arrays(
            episode=[f"{i}-{j}" for j in range(n)], state=["ill"] * n, better="higher",
            action=rng.choice(["drug", "wait"], n), reward=rng.integers(0, 2, n),
        )  # fmt: skip
        schema = dprl.SiteSchema(states=["ill"], actions=["drug", "wait"], gamma=1.0)
        sites.append(dprl.site_evidence(log, schema, k=5, site=f"site {i}"))
    assert any(_same_numbers(one, two) for one, two in itertools.combinations(sites, 2))
    assert dprl.merge_evidence(*sites).groups == 60 * 40


def _same_numbers(one, two):
    return np.array_equal(one.evidence.words, two.evidence.words)


def shock(n, seed):
    """Who is treated at the first visit is healthier than who is at a later one."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(n):
        waits = rng.random() < 0.5
        late = waits and rng.random() < 0.03
        rows = [("shock", "wait", 0.0)] if waits else []
        rows.append(
            (
                "shock",
                "pressor" if late or (not waits and rng.random() < 0.6) else "abx",
                float(rng.random() < (0.2 if waits else 0.6)),
            )
        )
        episodes.append(rows)
    return episodes


def test_values_of_sites_are_about_the_people_of_the_pooled_log():
    """Later takers of an action, fewer than k, were left out of Q alone: other people, another Q."""
    log = to_log(shock(400, 0))
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 1))
    true = evidence(log, 1.0).words[..., COUNT]
    pressor = log.actions.index("pressor")
    assert true[FIRST, 0, pressor] > 50
    assert 0 < true[LATER, 0, pressor] < 10
    ours = dprl.site_evidence(log, schema, k=10)
    shown = ours.evidence.words[..., COUNT]
    assert shown[FIRST, 0, pressor] == shown[LATER, 0, pressor] == 0  # whole, or not at all
    assert any("was suppressed whole" in note for note in ours.notes())
    abx = log.actions.index("abx")
    assert shown[FIRST, 0, abx] in (0, true[FIRST, 0, abx])


def test_the_number_of_groups_gives_no_small_state_away():
    """With one decision a group, all groups less those of the states shown were the hidden ones."""
    episodes = [
        [("abc"[0 if i < 40 else 1 if i < 97 else 2], "xy"[i % 2], float(i % 3))]
        for i in range(100)
    ]
    log = to_log(episodes)
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 100))
    ours = dprl.site_evidence(log, schema, k=10)
    shown = int(ours.evidence.words[FIRST, ..., COUNT].sum())
    assert ours.groups == 100
    assert ours.groups - shown == 43  # 'c' with three, and 'a' beside it
    assert int(ours.steps.sum()) == shown


def test_labels_outside_the_schema_are_refused():
    log = to_log([[("s", "a", 0.0)], [("t", "b", 1.0)]])
    for name, labels in (("states", ["s", "u"]), ("actions", ["a"])):
        schema = dprl.SiteSchema(
            **{"states": ["s", "t"], "actions": ["a", "b"], "gamma": 1.0, name: labels}
        )
        with pytest.raises(dprl.LogError, match=f"1 of 2 {name} of the log are not in") as error:
            dprl.site_evidence(log, schema, k=1)
        assert len(lines(error)) == 3
    schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 0.5))
    with pytest.raises(dprl.LogError, match="outside value_range"):
        dprl.site_evidence(log, schema, k=1)
    with pytest.raises(dprl.ParameterError, match="a schema is needed"):
        dprl.site_evidence(log, {"gamma": 1.0})


def test_numbers_and_the_same_numbers_as_text_are_one_label():
    """A CSV file keeps labels as text, a Parquet file may keep them as numbers."""
    schema = dprl.SiteSchema(states=[7, 8], actions=["a"], gamma=1.0)
    one, two = (to_log([[(7, "a", 1.0)], [("8" if text else 8, "a", 2.0)]][text:])
                for text in (False, True))  # fmt: skip
    parts = [dprl.site_evidence(log, schema, k=1) for log in (one, two)]
    assert dprl.merge_evidence(*parts).evidence.state.n.tolist() == [1, 2]
    with pytest.raises(dprl.LogError, match="not in the schema"):
        dprl.site_evidence(to_log([[("007", "a", 1.0)]]), schema, k=1)


@pytest.mark.parametrize(
    "settings", [{"gamma": 0.8}, {"cut": "terminal"}, {"visits": "all"}, {"plan": True}]
)
def test_a_learner_must_fit_what_was_counted(settings):
    merged = dprl.merge_evidence(*counted(to_log(random_episodes(0)), 2))
    learner = dprl.DPRLDiscrete(**{"n_min": 2, "gamma": 0.9, "plan": False, **settings})
    with pytest.raises(dprl.ParameterError) as error:
        learner.fit(merged)
    assert len(lines(error)) == 3


@pytest.mark.parametrize(
    "asked",
    [{"mode": "swap-split"}, {"markov": True}, {"grade": "large-sample"}, {"horizon": 3},
     {"value_range": (0, 1)}, {"states": [1]}, {"split": [True]}],
)  # fmt: skip
def test_a_gate_that_needs_rows_is_refused(asked):
    merged = dprl.merge_evidence(*counted(to_log(random_episodes(0)), 2))
    learner = dprl.DPRLDiscrete(n_min=2, gamma=0.9, plan=False)
    with pytest.raises(dprl.ParameterError) as error:
        dprl.gate(learner, merged, **{"mode": "in-sample", "markov": False, **asked})
    assert len(lines(error)) == 3


def test_a_follow_up_is_that_of_the_schema():
    log = to_log([[("s", "a", 1.0)] * 3, [("s", "b", 2.0)] * 4])
    schema = dprl.SiteSchema.of(log.followed(2), gamma=1.0)
    ours = dprl.site_evidence(log, schema, k=1)
    assert ours.digest() == dprl.site_evidence(log.followed(2), schema, k=1).digest()
    policy = dprl.DPRLDiscrete(n_min=1, gamma=1.0, plan=False).fit(ours)
    assert "first 2 steps" in str(policy)
    with pytest.raises(dprl.LogError, match="different times"):
        dprl.site_evidence(log.followed(1), schema, k=1)
    with pytest.raises(dprl.LogError, match="different times"):
        dprl.site_evidence(log.followed(2), dprl.SiteSchema.of(log, gamma=1.0), k=1)


# -- files ---------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "site.evidence"
    counted(to_log(random_episodes(0)), 1)[0].save(path)
    return path


def test_a_file_gives_back_what_was_saved(file, tmp_path):
    ours = dprl.SiteEvidence.load(file)
    assert ours.to_bytes() == file.read_bytes()
    ours.save(tmp_path / "again.evidence")
    assert (tmp_path / "again.evidence").read_bytes() == file.read_bytes()
    with zipfile.ZipFile(file) as z:
        assert set(z.namelist()) >= {"evidence.json", "words.npy", "steps.npy", "bins.npy"}


def test_every_shorter_file_and_every_flipped_byte_is_refused(file):
    data = file.read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(data), 60):
        with pytest.raises(dprl.EvidenceError):
            dprl.SiteEvidence.load(io.BytesIO(data[:at]))
        broken = bytearray(data)
        broken[at] ^= 0x55
        try:
            loaded = dprl.SiteEvidence.load(io.BytesIO(bytes(broken)))
        except dprl.EvidenceError as error:
            assert len(str(error).splitlines()) == 3
        else:  # a byte that nobody reads, such as a date
            assert loaded.to_bytes() == data


def put(**at):
    def change(words, arrays):
        for name, (place, value) in at.items():
            arrays[name] = arrays[name].copy()
            arrays[name][place] = value

    return change


HOSTILE = {
    "a count below 0": put(words=((0, 0, 0, 0), -1)),
    "a count too large": put(words=((0, 0, 0, 0), 1 << 31)),
    "a digit too large": put(words=((0, 0, 0, 2), 1 << 61)),
    "an exponent of no float": put(top=((0, 0, 0), 5000)),
    "an exponent below": put(top=((0, 0, 0), -3000)),
    "a bottom above the top": put(bottom=((0, 0, 0), 900)),
    "a bin that is not there": put(bins=((0, 1), -4)),
    "a pair that is not there": put(bins=((0, 0), 10**6)),
    "bins that do not add up": put(bins=((0, 3), 99)),
    "infinite ends": put(span=((0, 0), -np.inf)),
    "negative steps": put(steps=((0,), -1)),
    "a negative number of episodes": lambda w, a: w.update(episodes=-1),
    "text for episodes": lambda w, a: w.update(episodes="many"),
    "no sites": lambda w, a: w.update(sites=[]),
    "one site twice": lambda w, a: w.update(sites=w["sites"] * 2),
    "odd facts": lambda w, a: w["sites"][0].update(k="ten"),
    "facts that are no facts": lambda w, a: w.update(sites=[7]),
    "another gamma": lambda w, a: w["schema"].update(gamma=7),
    "no states": lambda w, a: w["schema"].update(states=[]),
    "states that are lists": lambda w, a: w["schema"].update(states=[[1]]),
    "one state more": lambda w, a: w["schema"]["states"].append(99_999),
    "a range of text": lambda w, a: w["schema"].update(value_range="wide"),
    "no range": lambda w, a: w["schema"].update(value_range=None),
    "no schema": lambda w, a: w.pop("schema"),
    "no words": lambda w, a: a.pop("words"),
    "an array more": lambda w, a: a.update(more=np.zeros(3)),
    "words of another width": lambda w, a: a.update(words=a["words"][..., :-1]),
    "bins of another shape": lambda w, a: a.update(bins=a["bins"][:, :3]),
    "steps of floats": lambda w, a: a.update(steps=a["steps"].astype(float)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, tmp_path):
    words, arrays = counted(to_log(random_episodes(0)), 1)[0].parts
    words, arrays = json.loads(json.dumps(words)), dict(arrays)
    HOSTILE[name](words, arrays)
    ARCHIVE.pack(tmp_path / "bad.evidence", "round-1", words, arrays)
    with pytest.raises(dprl.EvidenceError) as error:
        dprl.SiteEvidence.load(tmp_path / "bad.evidence")
    assert len(lines(error)) == 3


def test_a_policy_file_is_no_evidence_and_a_missing_file_is_named(tmp_path):
    log = to_log(random_episodes(0))
    dprl.DPRLDiscrete(n_min=2, gamma=0.9).fit(log).save(tmp_path / "p.dprl")
    with pytest.raises(dprl.EvidenceError, match="not a usable evidence file"):
        dprl.SiteEvidence.load(tmp_path / "p.dprl")
    with pytest.raises(dprl.EvidenceError, match="no evidence file"):
        dprl.SiteEvidence.load(tmp_path / "none.evidence")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"format": "dprl-schema"}', '{"format": "dprl-schema", "version": 1}',
     '{"format": "dprl-schema", "version": 1, "states": [1, "a"], "actions": [1], "gamma": 1, '
     '"value_range": null, "cut": null, "follow_up": null}',
     '{"format": "dprl-schema", "version": 1, "states": [1, 1], "actions": [1], "gamma": 1, '
     '"value_range": [0, 1], "cut": "ipcw", "follow_up": null}'],
)  # fmt: skip
def test_files_that_are_no_schema(text, tmp_path):
    (tmp_path / "schema.json").write_text(text)
    with pytest.raises(dprl.EvidenceError, match="no schema of evidence") as error:
        dprl.SiteSchema.load(tmp_path / "schema.json")
    assert len(lines(error)) == 3


def test_a_schema_is_read_as_it_was_written(tmp_path):
    for labels in (["é", "b"], [3, 1]):
        schema = dprl.SiteSchema(states=labels, actions=labels, gamma=0.5, value_range=(0, 2),
                                 cut="drop-unrelated", follow_up="3 steps")  # fmt: skip
        schema.save(tmp_path / "schema.json")
        again = dprl.SiteSchema.load(tmp_path / "schema.json")
        assert (again, again.digest()) == (schema, schema.digest())


# -- groups of which nobody says what they did -----------------------------------------------------


def hidden_at_one_site():
    """Site 1 shows that 50 took b and 40 did not; site 2 hides 45 who took b among 48."""
    one = [[("s", "b", 1.0)]] * 50 + [[("s", "a", 0.0)]] * 40
    two = [[("s", "b", 1.0)]] * 45 + [[("s", "a", 0.0)]] * 3
    schema = dprl.SiteSchema(states=["s"], actions=["a", "b"], gamma=1.0, value_range=(0, 1))
    return dprl.merge_evidence(
        *(dprl.site_evidence(to_log(e), schema, k=k, site=str(k)) for e, k in ((one, 1), (two, 10)))
    )


def test_the_rest_does_not_count_as_having_done_otherwise():
    merged = hidden_at_one_site()
    assert merged.evidence.words[FIRST, 0, :, COUNT].tolist() == [40, 50, 48]
    assert (merged.evidence.others.n[0, 1], merged.evidence.n_others[0, 1]) == (88, 40)
    for n_min, speaks in ((40, True), (41, False)):
        policy = dprl.DPRLDiscrete(n_min=n_min, gamma=1.0, plan=False).fit(merged)
        assert (policy.act("s") == "b") is speaks


def test_the_advantage_is_bounded_as_if_all_of_the_rest_had_taken_the_action():
    from dprl.certificate.eprocesses import Visits, advantages

    def visits(took, others):
        pair, count = np.array([0, 1]), np.array([others, took])
        return Visits(pair, 0 * pair, np.array([0, 8000]), count, ("s",), ("a", "b"), 1.0, (0, 1),
                      False, took + others)  # fmt: skip

    plain = advantages(visits(50, 88), [1], 3.0, 3.0)
    none = advantages(visits(50, 88), [1], 3.0, 3.0, unstated=np.array([0]))
    careful = advantages(visits(50, 88), [1], 3.0, 3.0, unstated=np.array([48]))
    most = advantages(visits(98, 40), [1], 3.0, 3.0)
    assert plain.p_high == none.p_high
    assert (careful.p_high, careful.p_low, careful.log_e) == (most.p_high, plain.p_low, plain.log_e)
    assert 0 <= careful.low[0] < plain.low[0]
    assert advantages(visits(50, 88), [1], 3.0, 3.0, unstated=np.array([88])).p_high == 1
    merged = hidden_at_one_site()
    learner = dprl.DPRLDiscrete(n_min=10, gamma=1.0, plan=False)
    row = dprl.gate(learner, merged, mode="in-sample", markov=False).certificate.rows[0]
    assert row["advantage_low"] <= 40 / 138  # (1 - p)·1, p as large as the rest allows


@pytest.mark.slow
def test_no_false_suggestion_although_sites_hide_actions():
    """Where no action matters, what is issued from suppressed counts is wrong at most δ often.

    If it were wrong in a third of all cases, this would show 99 times in 100.
    """
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(100):
        sites = []
        schema = dprl.SiteSchema(states=[0, 1], actions=[0, 1, 2], gamma=1.0, value_range=(0, 1))
        for i in range(4):
            n = int(rng.integers(30, 80))
            action = rng.choice(3, n, p=[0.6, 0.3, 0.1])
            state, won = rng.integers(0, 2, n), (rng.random(n) < 0.5).astype(float)
            log = dprl.from_arrays(episode=np.arange(n), state=state, action=action, reward=won)
            sites.append(dprl.site_evidence(log, schema, k=5, site=str(i)))
        learner = dprl.DPRLDiscrete(n_min=5, gamma=1.0, plan=False)
        gated = dprl.gate(learner, dprl.merge_evidence(*sites), mode="in-sample", markov=False,
                          delta=0.2)  # fmt: skip
        wrong += bool(gated.certificate.rows)
    assert wrong <= 100 * 0.2


def test_a_policy_of_sites_says_that_it_may_have_seen_a_log(tmp_path):
    log = dprl.envs.care_pathway().sample(400, seed=0)
    merged = dprl.merge_evidence(*counted(log, 2, 0, gamma=1.0, value_range=(0, 1)))
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False).fit(merged)
    policy.save(tmp_path / "policy.dprl")
    loaded = dprl.load(tmp_path / "policy.dprl")
    public = dprl.public_copy(loaded)
    for one in (policy, loaded, public):
        words = str(dprl.evaluate(one, log, draws=20))
        assert "cannot be told" in words
        assert "Learned from counts of 2 sites" in str(one)
    assert "sites" not in public.provenance
    other = dprl.envs.care_pathway().sample(400, seed=1)
    gated = dprl.gate(loaded, other, value_range=(0, 1))
    assert "cannot be told" in str(dprl.evaluate(gated, log, draws=20))
    whole = dprl.gate(loaded, other, mode="policy", grade="large-sample", value_range=(0, 1))
    assert any("cannot be told" in note for note in whole.certificate.notes)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9, 0.5])
def test_exponents_that_are_none_are_refused(value):
    """Without a warning of numpy, which would be the first line that people see."""
    ours = counted(to_log(random_episodes(0)), 1)[0]
    whole = ours.evidence
    arrays = {
        "words": whole.words, "top": whole.top.astype(np.float64), "bottom": whole.bottom,
        "span": whole.span, "steps": ours.steps,
    }  # fmt: skip
    arrays["top"][0, 0, 0] = value
    words = {
        "sites": list(ours.sites),
        "episodes": whole.n_episodes,
        "schema": ours.schema.to_dict(),
    }
    with pytest.raises(dprl.EvidenceError, match="no exponents"):
        from_parts("x.evidence", words, arrays)


def test_days_of_one_site_are_not_merged_like_sites():
    log = dprl.envs.care_pathway().sample(200, seed=0)
    schema = dprl.SiteSchema.of(log, gamma=1.0)
    days = [dprl.site_evidence(part, schema, k=1, site="north") for part in split(log, 2, 0)]
    with pytest.raises(dprl.EvidenceError, match="two files are of one site, 'north'") as error:
        dprl.merge_evidence(*days)
    assert "EvidenceFolder" in str(error.value)
    unnamed = [dprl.site_evidence(part, schema, k=1) for part in split(log, 2, 0)]
    assert dprl.merge_evidence(*unnamed).groups == 200
