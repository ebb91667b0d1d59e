r"""The gate for sites that share no rows: in-sample, by first visits.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dprl._core.exact import COUNT
from dprl._core.words import api, argument, option, worded
from dprl.certificate._assumptions import Counting
from dprl.certificate._confounding import Hidden
from dprl.certificate._gate_checks import same_pairs
from dprl.certificate._gate_labels import PARTS, certify_visits
from dprl.certificate._gate_steps import Asked, Learner, Proven, at_gamma_of, finish
from dprl.certificate._visits import Visits, counted
from dprl.errors import LogError, ParameterError
from dprl.evidence._evidence import FIRST
from dprl.evidence._site_bins import UNITS
from dprl.evidence._site_evidence import SiteEvidence
from dprl.evidence._site_words import chances_of
from dprl.evidence.decision_points import best_choice
from dprl.learners._sites import check_agreed, policy_of, provenance_of_sites
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs._censoring import check_claim
from dprl.logs.log import Label, Log
from dprl.planning._site_plan import allowed_pairs
from dprl.policies.table import TablePolicy

__all__ = ["gate_sites"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _AsLog:
    """What a certificate says about a log, of logs that are not here.

    Attributes:
        sites: What was counted of them.
    """

    sites: SiteEvidence

    @property
    def states(self) -> tuple[Label, ...]:
        return self.sites.schema.states

    @property
    def actions(self) -> tuple[Label, ...]:
        return self.sites.schema.actions

    @property
    def n_states(self) -> int:
        return len(self.states)

    @property
    def n_actions(self) -> int:
        return len(self.actions)

    @property
    def n_episodes(self) -> int:
        return sum(site["episodes"] for site in self.sites.sites)

    @property
    def episodes(self) -> range:
        return range(self.n_episodes)

    @property
    def groups(self) -> range:
        """As many numbers as there are groups; those of the episodes if these are the groups."""
        first = int(any(site["grouped"] for site in self.sites.sites))
        return range(first, first + self.sites.groups)

    @property
    def cut_episodes(self) -> range:
        return range(sum(site["cut_episodes"] for site in self.sites.sites))

    @property
    def follow_up(self) -> str | None:
        return self.sites.schema.follow_up

    @property
    def time(self) -> bool | None:
        return True if all(site["timed"] for site in self.sites.sites) else None

    @property
    def recorded(self) -> str:
        """What the sites' logs record of the probabilities of actions; "" where none says."""
        return chances_of(self.sites)

    def digest(self) -> str:
        return str(provenance_of_sites(self.sites)["log"])


def gate_sites(
    learner: Learner,
    proposal: Any,
    sites: SiteEvidence,
    *,
    mode: str,
    grade: str,
    states: Sequence[Label] | None,
    markov: bool,
    split: Any,
    asked: Asked,
) -> TablePolicy:
    """The certified part of what sites' counts suggest.

    Args:
        learner: The learner whose rule proposes and chooses.
        proposal: The learner, or the policy that is gated.
        sites: What the sites counted, merged.
        mode: Must be "in-sample".
        grade: Must be "proved".
        states: Must be left out, or be the schema's.
        markov: Must be False.
        split: Must be None.
        asked: delta, value_range, margin and confounding.
    """
    if not isinstance(learner, DPRLDiscrete):
        raise ParameterError(
            "sites count labelled states, and this learner is for features.",
            do=worded("Use {learner}.", learner=api("dprl.DPRLDiscrete")),
        )
    _check(sites, mode, grade, states, markov, split, asked)
    settings = learner.settings()
    check_agreed(sites, settings)
    as_log = cast("Log", _AsLog(sites))
    _check_cuts(sites)
    if learner.plan:
        raise ParameterError(
            "a certificate from sites without rows is for best single decisions.",
            "plan=True",
            worded("Say {plan} when learning.", plan=option("plan", False)),
        )
    pairs = allowed_pairs(sites, learner.n_min, learner.contrast)
    if not isinstance(proposal, DPRLDiscrete):
        pairs &= same_pairs(proposal, as_log)
    wanted = np.column_stack([pairs, np.zeros(len(pairs), bool)])
    tested = pairs.size
    proof = _certify(sites, wanted, asked, tested)
    alpha = PARTS[False][0] * asked.delta / max(tested, 1)
    proof = at_gamma_of(proof, _hidden(sites, wanted, asked), wanted, asked, alpha)
    pairs = pairs & proof.pairs[:, :-1]
    Q = sites.evidence.pair.mean[:, :-1]
    policy = policy_of(
        sites, settings, pairs, best_choice(Q, pairs), np.where(pairs, Q, np.nan)
    )  # fmt: skip
    facts = {k: v for k, v in policy.provenance.items() if k != "luck"}
    return finish(
        replace(policy, provenance=facts), [proof], learner, as_log, as_log, asked, "in-sample",
        None, sites.notes(), counting=Counting(False, len(sites.schema.states)),
    )  # fmt: skip


def _check(
    sites: SiteEvidence, mode: str, grade: str, states: Any, markov: bool, split: Any, asked: Asked
) -> None:
    """Refuse what cannot be certified without rows."""
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
    if asked.value_range != schema.value_range:
        raise ParameterError(
            worded(
                "the sites counted with {value_range} = {value_range2}; got {value_range3}.",
                value_range=argument("value_range"),
                value_range2=schema.value_range,
                value_range3=asked.value_range,
            ),
            f"schema {schema.digest()[:12]}",
            worded(
                "Leave {value_range} out, or let all sites count again with another schema.",
                value_range=argument("value_range"),
            ),
        )
    if states is not None and set(states) != set(schema.states):
        raise ParameterError(
            "the states that were fixed beforehand are those of the schema; got others.",
            f"{len(schema.states):,} states in the schema",
            "Leave states out.",
        )
    wrong = {
        f"mode={mode!r}": mode != "in-sample", f"grade={grade!r}": grade != "proved",
        f"markov={markov!r}": markov is not False, "split": split is not None,
        "horizon": asked.horizon is not None,
    }  # fmt: skip
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


def _check_cuts(sites: SiteEvidence) -> None:
    """Refuse to claim something where cut episodes were treated without a declaration."""
    n = sum(site["cut_episodes"] for site in sites.sites)
    if n and sites.schema.cut is None:
        raise LogError(
            f"{n:,} episodes were cut, and the schema states no treatment.",
            do="State cut in the schema ('terminal' or 'drop-unrelated') and count again; the "
            "certificate says which, and what it assumes.",
        )
    if n and sites.schema.cut == "drop":
        check_claim("drop", cast("Log", _AsLog(sites)), "a certificate")


def _certify(sites: SiteEvidence, wanted: Bools, asked: Asked, tested: int) -> Proven:
    """Test the wanted pairs (S, A + 1) by what bins say of first visits."""
    assert sites.bins is not None  # there is a range
    pair, first, last, count = sites.bins.T
    rest = sites.evidence.words[FIRST, :, -1, COUNT]

    def test(bins: Ints, pairs: Bools) -> Proven:
        visits = _visits(sites, pair, bins, count)
        return certify_visits(
            visits, sites.evidence, pairs, asked, tested, 1.0, unstated=rest
        )  # fmt: skip

    if (first == last).all():
        return test(first, wanted)
    A, proof = wanted.shape[1], None
    for a in np.flatnonzero(wanted.any(axis=0)):
        ends = np.where(pair % A == a, first & ~1, (last + 1) & ~1)
        only = wanted & (np.arange(A) == a)
        own = test(ends, only)
        proof = own if proof is None else _joined(proof, own, only)
    if proof is None:
        return test(first, wanted)
    return replace(proof, difference=None)  # that of the exact sums


def _joined(proof: Proven, own: Proven, only: Bools) -> Proven:
    """The proof with what another one says of these pairs."""
    names = ("pairs", "low", "advantage", "log_e", "p_high")
    return replace(
        proof, **{n: np.where(only, getattr(own, n), getattr(proof, n)) for n in names}
    )  # fmt: skip


def _visits(sites: SiteEvidence, pair: Ints, bins: Ints, count: Ints) -> Visits:
    columns = counted(pair, np.zeros(len(pair), np.int64), bins, count)
    ends = sites.schema.value_range
    assert ends is not None
    return Visits(
        *columns, sites.schema.states, sites.evidence.actions, sites.schema.gamma, ends, False,
        sites.groups,
    )  # fmt: skip


def _hidden(sites: SiteEvidence, wanted: Bools, asked: Asked) -> Hidden | None:
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
    low, high = asked.known_range
    nothing = tuple(np.empty(0) for _ in took)
    return Hidden(tuple(took), tuple(others), nothing, high - low)
