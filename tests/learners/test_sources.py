"""What is learned from a log is the same, byte for byte, wherever its rows are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sources import KINDS, WAYS, bytes_of, read, ward_log, wards

import dprl
from dprl.logs.source import parts_of


def treatments(kind, *, dropped=True):
    if kind != "cut":
        return (None,)
    return ("terminal", "drop-unrelated", "drop") if dropped else ("terminal", "drop-unrelated")


SETTINGS = (
    {}, {"segments": "end"}, {"segments": "text"}, {"segments": "printed"},
    {"plan": False, "visits": "all"},
)  # fmt: skip


@pytest.mark.parametrize("rest", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_dprl(kind, rest, held, request, tmp_path):
    """Every kind of log meets every place, and both meet every setting; slow: all three at once."""
    log = ward_log(kind)
    source = held(log)
    assert source.digest() == log.digest()
    first = [*KINDS].index(kind) + [*WAYS].index(request.node.callspec.params["held"])
    for i, settings in enumerate(SETTINGS):
        if ((i - first) % len(SETTINGS) > 1) != rest:
            continue
        for cut in treatments(kind):
            learner = dprl.DPRLDiscrete(n_min=4, gamma=0.9, cut=cut, **settings)
            one = learner.fit(log)
            assert one.allowed.any()
            assert bytes_of(one, tmp_path / "a") == bytes_of(learner.fit(source), tmp_path / "b")


def test_a_grid_of_settings(held, tmp_path):
    log = ward_log("cut", episodes=60)
    grid = [{"n_min": 3}, {"n_min": 6}]
    learner = dprl.DPRLDiscrete(n_min=4, gamma=0.9, cut="terminal")
    here, there = learner.fit_each(log, grid), learner.fit_each(held(log), grid)
    for one, other in zip(here, there, strict=True):
        assert bytes_of(one, tmp_path / "a") == bytes_of(other, tmp_path / "b")


@pytest.mark.parametrize("evidence", ["model", "returns"])
@pytest.mark.parametrize("kind", KINDS)
def test_confident(kind, evidence, held, tmp_path):
    log = ward_log(kind, episodes=60)
    source = held(log)
    spoke = 0
    for cut in treatments(kind, dropped=False):
        learner = dprl.Confident(
            gamma=0.9, risk=0.4, promise=cut != "terminal", worst=-1e3 if cut is None else None,
            check=False, cut=cut, evidence=evidence, splits=2,
        )  # fmt: skip
        policy = learner.fit(log)
        spoke += policy.gain is not None or "withheld" in policy.provenance
        one = bytes_of(policy, tmp_path / "a")
        assert one == bytes_of(learner.fit(source), tmp_path / "b")
    assert (spoke > 0) == (evidence == "model")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "cut"])
@pytest.mark.parametrize("plan", [True, False])
def test_sites_that_suppress_nothing(kind, plan):
    """Their policy has other words on where it comes from, and the same numbers to the last bit."""
    log = ward_log(kind)
    schema = dprl.SiteSchema.of(log, gamma=0.9)
    halves = dict(zip(("north", "south"), log.split(0.5, seed=0), strict=True))
    counted = dprl.merge_evidence(
        *(dprl.site_evidence(half, schema, k=1, site=name) for name, half in halves.items())
    )
    if plan:
        counted = dprl.merge_evidence(
            *(dprl.site_plan(half, counted, n_min=4, k=1, site=n) for n, half in halves.items())
        )
    learner = dprl.DPRLDiscrete(n_min=4, gamma=0.9, plan=plan)
    here, there = learner.fit(log), learner.fit(counted)
    assert here.actions == tuple(int(a) for a in there.actions)
    names = ("choice", "allowed", "planned", "steps", "n", "m", "Q", "V", "took_mean", "others_sd")
    for name in names:
        assert getattr(here, name).tobytes() == getattr(there, name).tobytes(), name
    assert there.provenance["luck"] == {"skipped": "the rows of the sites are not here"}
    if plan:
        to_end = replace(learner, segments="end")
        assert to_end.fit(log).planned.tobytes() == to_end.fit(counted).planned.tobytes()
        with pytest.raises(dprl.ParameterError, match="the sites counted for segments"):
            dprl.DPRLDiscrete(n_min=4, gamma=0.9, segments="printed").fit(counted)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("seed", range(8))
def test_many_logs_in_parts(seed, rows, tmp_path):
    rng = np.random.default_rng(seed)
    flags = {name: bool(rng.integers(2)) for name in ("groups", "cut", "menus", "times", "text")}
    log = read(wards(seed, int(rng.integers(2, 90)), **flags))
    for learner in (
        dprl.DPRLDiscrete(n_min=2, gamma=0.95, cut="terminal"),
        dprl.Confident(gamma=0.95, risk=0.3, check=False, cut="terminal"),
    ):
        one = bytes_of(learner.fit(log), tmp_path / "a")
        assert one == bytes_of(learner.fit(parts_of(log, rows)), tmp_path / "b")


def test_what_needs_the_whole_log_is_refused():
    parts = parts_of(ward_log("cut"), 50)
    for cut, plan in (("bootstrap", True), ("ipcw", False)):
        with pytest.raises(dprl.ParameterError, match=f"cut='{cut}' needs the whole log") as error:
            dprl.DPRLDiscrete(n_min=4, gamma=0.9, cut=cut, plan=plan).fit(parts)
        assert len(str(error.value).splitlines()) == 3
    with pytest.raises(dprl.ParameterError, match="needs the whole log in memory"):
        dprl.Confident(gamma=0.9, cut="terminal").fit(parts)
    with pytest.raises(dprl.ParameterError, match="needs the whole log in memory"):
        dprl.Confident(gamma=0.9, cut="terminal", check=False, evidence="excursions").fit(parts)
    with pytest.raises(
        dprl.LogError, match="a confident policy would be about those that are left"
    ):
        dprl.Confident(gamma=0.9, cut="drop", check=False).fit(parts)


def test_sites_say_what_they_cannot_tell():
    log = ward_log("plain")
    counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=0.9), k=1)
    learner = dprl.Confident(gamma=0.9, check=False)
    with pytest.raises(dprl.ParameterError, match="the rows of the sites are not here"):
        learner.fit(counted)
    with pytest.raises(dprl.ParameterError, match="between decision points"):
        dprl.DPRLDiscrete(n_min=4, gamma=0.9).fit(counted)
    with pytest.raises(dprl.ParameterError, match=r"the sites counted with gamma = 0\.9"):
        dprl.DPRLDiscrete(n_min=4, gamma=0.8, plan=False).fit(counted)


def test_cut_episodes_are_told_of_once(held):
    log = ward_log("cut")
    with pytest.warns(dprl.CutWarning) as in_memory:
        dprl.DPRLDiscrete(n_min=4, gamma=0.9).fit(log)
    with pytest.warns(dprl.CutWarning) as there:
        dprl.DPRLDiscrete(n_min=4, gamma=0.9).fit(held(log))
    assert [str(w.message) for w in there] == [str(w.message) for w in in_memory]


def test_chosen_takers_are_told_of_wherever_rows_are(held):
    data = wards()
    rng = np.random.default_rng(0)
    log = read({**data, "propensity": rng.uniform(0.1, 0.9, len(data["reward"]))})
    with pytest.warns(dprl.BalanceWarning) as in_memory:
        dprl.DPRLDiscrete(n_min=4, gamma=0.9).fit(log)
    with pytest.warns(dprl.BalanceWarning) as there:
        dprl.DPRLDiscrete(n_min=4, gamma=0.9).fit(held(log))
    assert [str(w.message) for w in there] == [str(w.message) for w in in_memory]


def test_all_episodes_cut_leaves_none(held):
    data = wards(cut=True)
    data["ended"] = ["cut"] * len(data["reward"])
    log = read(data)
    errors = []
    for source in (log, held(log)):
        with pytest.raises(dprl.LogError) as error:
            dprl.DPRLDiscrete(n_min=4, gamma=0.9, cut="drop").fit(source)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_luck_reaches_the_plan(held, monkeypatch):
    from dprl.planning import luck

    calls = []
    build = luck.build_semi_mdp
    monkeypatch.setattr(luck, "build_semi_mdp", lambda *given: calls.append(given) or build(*given))
    dprl.DPRLDiscrete(n_min=4, gamma=0.9).fit(held(ward_log("groups")))
    assert calls
