r"""Tests from what sites counted that share no rows: in-sample, by first visits.

The schema fixed states, gamma and the range before anybody counted: it is the declaration that an
in-sample certificate needs. The e-value of first visits (`dprl.certificate._eprocess`, with
markov=False) needs, of each pair, how many groups had a return in which bin, and that is what sites
count. Where bins are single, the certificate is that of the pooled log. Where k put bins together,
returns of those who took the action count at the lower end of their bin, returns of the others at
the upper end: it is valid, and has less power.

Groups in the rest of a state, of which it is not said which action they took, count among y. Let
the e-value's factors have means X for those known to have taken a, A for those who took it and are
in the rest, B for others. If a is no improvement, then X <= 1, B <= 1 and pA + (1 - p)B <= 1 (the
mean of the last is V(s)). Who is in the rest depends on actions alone, so the product over the n
groups of a site has mean at most (p max(A, X) + (1 - p) B)^n <= 1. The bounds of advantages need an
upper bound of p: for it everybody in the rest counts as having taken a.

Halves of the groups, all visits of an episode and the gain of what is issued need rows, and are not
offered. Γ* is computed from bins in the same cautious way: at most that of the pooled log.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.exact import COUNT
from dprl._core.words import api, argument, option, worded
from dprl.certificate._assumptions import LogRecord
from dprl.certificate._confounding import UnmeasuredCause
from dprl.certificate._pair_tests import DELTA_SHARES, PairTests, at_gamma, by_visits
from dprl.certificate._settings import GateSettings
from dprl.certificate._visits import Visits, counted
from dprl.errors import LogError, ParameterError
from dprl.evidence._evidence import FIRST
from dprl.evidence._site_bins import UNITS
from dprl.evidence._site_evidence import SiteEvidence
from dprl.evidence._site_words import chances_of
from dprl.logs._censoring import check_claim

__all__ = ["check_sites", "record_of_sites", "tests_of_sites"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def check_sites(sites: SiteEvidence, learner: Any, settings: GateSettings) -> GateSettings:
    """Refuse what cannot be certified without rows; the settings, with the states of the schema.

    Args:
        sites: What the sites counted, merged.
        learner: The learner, `dprl.DPRLDiscrete` or another one.
        settings: The settings of the gate.
    """
    if getattr(learner, "radius", None) is not None:
        raise ParameterError(
            "sites count labelled states, and this learner is for features.",
            do=worded("Use {learner}.", learner=api("dprl.DPRLDiscrete")),
        )
    schema = sites.schema
    if schema.value_range is None:
        raise ParameterError(
            "the sites counted without a range of returns: there is nothing to certify with.",
            f"schema {schema.digest()[:12]}",
            worded(
                "State {value_range} in the schema, from what rewards can be, and count again.",
                value_range=argument("value_range"),
            ),
        )
    if settings.value_range != schema.value_range:
        raise ParameterError(
            worded(
                "the sites counted with {value_range} = {value_range2}; got {value_range3}.",
                value_range=argument("value_range"),
                value_range2=schema.value_range,
                value_range3=settings.value_range,
            ),
            f"schema {schema.digest()[:12]}",
            worded(
                "Leave {value_range} out, or let all sites count again with another schema.",
                value_range=argument("value_range"),
            ),
        )
    if settings.states is not None and set(settings.states) != set(schema.states):
        raise ParameterError(
            "the states that were fixed beforehand are those of the schema; got others.",
            f"{len(schema.states):,} states in the schema",
            "Leave states out.",
        )
    wrong = {
        f"mode={settings.mode!r}": settings.mode != "in-sample",
        f"grade={settings.grade!r}": settings.grade != "proved",
        f"markov={settings.markov!r}": settings.markov is not False,
        "split": settings.split is not None,
        "horizon": settings.horizon is not None,
    }
    for name in (name for name, given in wrong.items() if given):
        raise ParameterError(
            "what sites counted can be certified in one way only: in-sample and by first visits.",
            name,
            worded(
                "Say {mode} and {markov}, and leave out grade, split and horizon; anything else "
                "needs rows.",
                mode=option("mode", "in-sample"),
                markov=option("markov", False),
            ),
        )
    sites.check_settings({**learner.settings(), "plan": False})
    _check_cuts(sites)
    if learner.plan:
        raise ParameterError(
            "a certificate from sites without rows is for best single decisions.",
            "plan=True",
            worded("Say {plan} when learning.", plan=option("plan", False)),
        )
    return replace(settings, states=schema.states)


def _check_cuts(sites: SiteEvidence) -> None:
    """Refuse to claim something where cut episodes were treated without a declaration."""
    n = sites.facts.n_cut
    if n and sites.schema.cut is None:
        raise LogError(
            f"{n:,} episodes were cut, and the schema states no treatment.",
            do="State cut in the schema ('terminal' or 'drop-unrelated') and count again; the "
            "certificate says which, and what it assumes.",
        )
    check_claim(sites.schema.cut, sites, "a certificate")


def record_of_sites(sites: SiteEvidence) -> LogRecord:
    """What a certificate says of logs that are not here."""
    timed = all(site["timed"] for site in sites.sites)
    return LogRecord(sites.facts, str(sites.origin()["log"]), timed, chances_of(sites))


def tests_of_sites(
    sites: SiteEvidence, wanted: Bools, settings: GateSettings, tested: int
) -> PairTests:
    """Test the wanted pairs (S, A + 1) by what bins say of first visits, with Γ* of each."""
    alpha = DELTA_SHARES[False][0] * settings.delta / max(tested, 1)
    tests = _certify(sites, wanted, settings, tested)
    return at_gamma(tests, _outcomes(sites, wanted, settings), wanted, settings, alpha)


def _certify(sites: SiteEvidence, wanted: Bools, settings: GateSettings, tested: int) -> PairTests:
    """Test the wanted pairs (S, A + 1) by what bins say of first visits."""
    assert sites.bins is not None  # there is a range
    pair, first, last, count = sites.bins.T
    rest = sites.evidence.words[FIRST, :, -1, COUNT]

    def test(bins: Ints, pairs: Bools) -> PairTests:
        visits = _visits(sites, pair, bins, count)
        return by_visits(
            visits, sites.evidence, pairs, settings, tested, 1.0, unstated=rest
        )  # fmt: skip

    if (first == last).all():
        return test(first, wanted)
    A, tests = wanted.shape[1], None
    for a in np.flatnonzero(wanted.any(axis=0)):
        ends = np.where(pair % A == a, first & ~1, (last + 1) & ~1)
        only = wanted & (np.arange(A) == a)
        own = test(ends, only)
        tests = own if tests is None else _joined(tests, own, only)
    if tests is None:
        return test(first, wanted)
    return replace(tests, difference=None)  # that of the exact sums


def _joined(tests: PairTests, own: PairTests, only: Bools) -> PairTests:
    """The tests with what another one says of these pairs."""
    names = ("pairs", "low", "advantage", "log_e", "p_high")
    return replace(
        tests, **{n: np.where(only, getattr(own, n), getattr(tests, n)) for n in names}
    )  # fmt: skip


def _visits(sites: SiteEvidence, pair: Ints, bins: Ints, count: Ints) -> Visits:
    columns = counted(pair, np.zeros(len(pair), np.int64), bins, count)
    ends = sites.schema.value_range
    assert ends is not None
    return Visits(
        *columns, sites.schema.states, sites.evidence.actions, sites.schema.gamma, ends, False,
        sites.groups,
    )  # fmt: skip


def _outcomes(sites: SiteEvidence, wanted: Bools, settings: GateSettings) -> UnmeasuredCause | None:
    """The outcomes of the wanted pairs, rounded against the claim; None where there is none."""
    at = np.nonzero(wanted)
    if not len(at[0]) or sites.bins is None:
        return None
    pair, first, last, count = sites.bins.T
    A = wanted.shape[1]
    begin = np.searchsorted(pair, np.arange(len(wanted) + 1) * A)
    took, others = [], []
    for s, a in zip(*at, strict=True):
        here = slice(begin[s], begin[s + 1])
        own = pair[here] == s * A + a
        down, up = (first[here] >> 1) / UNITS, ((last[here] + 1) >> 1) / UNITS
        took.append(np.repeat(down[own], count[here][own]))
        others.append(np.repeat(up[~own], count[here][~own]))
    low, high = settings.known_range
    nothing = tuple(np.empty(0) for _ in took)
    return UnmeasuredCause(tuple(took), tuple(others), nothing, high - low)
