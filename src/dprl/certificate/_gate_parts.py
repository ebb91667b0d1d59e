"""The gate over a log in parts: swap-split, by first visits (markov=False), as in memory.

Evidence and counted visits of each half are merged exactly. What Γ* needs, the outcomes of first
visits of the proposed states, is gathered part by part and put in the order of the log; it takes 16
bytes for each of these visits. All visits of an episode (markov=True) and the gain of what is
issued need the whole log in memory.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut
from dprl._core.words import api, either, option, worded
from dprl.certificate._assumptions import Counting
from dprl.certificate._confounding import Hidden, outcomes_of
from dprl.certificate._gate_labels import PARTS, certify_visits
from dprl.certificate._gate_steps import Asked, at_gamma_of, fair_pairs, finish, propose
from dprl.certificate._visits import Visits, visits_of
from dprl.errors import LogError, ParameterError
from dprl.evidence._evidence import Evidence
from dprl.evidence._lots import Chances
from dprl.evidence._parts_evidence import count_parts
from dprl.evidence.decision_points import allowed
from dprl.evidence.tabular import always_available, evidence, menus_seen
from dprl.learners._parts_discrete import check_table, choose_parts
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs._parts_cut import settled_part
from dprl.logs._parts_overlap import sketch_of_parts
from dprl.logs._probability_words import recorded_words
from dprl.logs.log import Label, Log
from dprl.logs.parts import LogInParts
from dprl.logs.returns import outside_error, outside_range, returns
from dprl.policies._base import provenance_of_parts
from dprl.policies.table import TablePolicy

__all__ = ["PartsAsLog", "check_gate_of_parts", "gate_parts"]

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Half: TypeAlias = tuple[Evidence, "Bools | None", Visits]
Listed: TypeAlias = dict[Label, tuple[NDArray[np.int32], NDArray[np.int32], Floats]]


@dataclass(frozen=True)
class _Labels:
    """The labels of episodes or groups, of which only their number and one are needed."""

    n: int
    first: Label | None
    kind: str

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Label | None:
        return self.first


@dataclass(frozen=True, eq=False)
class PartsAsLog:
    """What a certificate says about a log, of a log in parts.

    Attributes:
        parts: The log in parts.
        cut: What was done with cut episodes.
        n_groups: The number of groups that are left; that of the log before cut ones are treated.
    """

    parts: LogInParts
    cut: Cut | None
    n_groups: int

    @property
    def n_actions(self) -> int:
        return self.parts.n_actions

    @property
    def n_episodes(self) -> int:
        return self.parts.n_episodes

    @property
    def episodes(self) -> _Labels:
        return _Labels(self.parts.n_episodes, self.parts.first_cut, "episode")

    @property
    def groups(self) -> _Labels:
        kind = "group" if self.parts.grouped else "episode"
        return _Labels(self.n_groups, self.parts.first_cut, kind)

    @property
    def cut_episodes(self) -> range:
        return range(self.parts.n_cut)

    @property
    def follow_up(self) -> str | None:
        return self.parts.follow_up

    @property
    def time(self) -> Any:
        return self.parts.part(0).time

    @property
    def recorded(self) -> str:
        """What the log records of the probabilities of actions; "" where it has no such column."""
        if not self.parts.has_propensity:
            return ""
        return recorded_words(self.parts.reduce(known_of_part, operator.add), self.parts.n_steps)

    def digest(self) -> str:
        return self.parts.digest()

    def most_met(self, policy: Any) -> int:
        """The most suggestions of a policy that one episode meets."""
        return int(self.parts.reduce(most_of_part, max, self.cut, policy.choice))


def check_gate_of_parts(
    proposal: Any, *, mode: str, grade: str, markov: bool, split: Any
) -> DPRLDiscrete:
    """Refuse what cannot be certified of a log in parts; the learner that can be."""
    wrong = {
        f"mode={mode!r}": mode != "swap-split", f"grade={grade!r}": grade != "proved",
        f"markov={markov!r}": markov is not False, "split": split is not None,
        f"a {type(proposal).__name__}": not isinstance(proposal, DPRLDiscrete),
    }  # fmt: skip
    for name in (name for name, given in wrong.items() if given):
        raise ParameterError(
            "a certificate of a log in parts needs the log in memory, except by first visits and "
            "halves.",
            name,
            worded(
                "Give a {learner}, say {markov}, and leave out mode, grade and split; or {choice}.",
                learner=api("DPRLDiscrete"),
                markov=option("markov", False),
                choice=either("read the log with dprl.read", "leave out --out-of-core"),
            ),
        )
    return cast("DPRLDiscrete", proposal)


def gate_parts(
    learner: DPRLDiscrete, parts: LogInParts, asked: Asked, sides: Bools, notes: tuple[str, ...]
) -> TablePolicy:
    """The certified policy of a learner over a log in parts.

    Args:
        learner: The learner whose rule proposes and chooses.
        parts: The log in parts.
        asked: delta, value_range, margin and confounding.
        sides: bool (groups,), true for the groups of the half that proposes first.
        notes: Sentences for the certificate.
    """
    check_table(parts)
    gamma, cut = learner.gamma, learner.cut
    counted, whole, offered = count_parts(parts, gamma, cut)
    pairs = allowed(whole, learner.n_min, contrast=learner.contrast, available=offered)
    chances: Chances | None = None
    if parts.has_propensity:
        chances = parts.reduce(chances_of_part, Chances.merge, cut)
    pairs = fair_pairs(pairs, chances, asked)
    total, before = 0, {}
    sizes: dict[Label, int] = parts.reduce(groups_of_part, _join)
    for key in sorted(sizes):
        before[key] = total
        total += sizes[key]
    halves = [_half(parts, learner, asked, sides == side, before) for side in (True, False)]
    proofs = []
    for one, other in ((0, 1), (1, 0)):
        own, menus, seen = halves[one]
        available = None
        if menus is not None and parts.menus is not None:
            available = always_available(menus, parts.menus)
        wanted = fair_pairs(propose(own, learner, available), chances, asked)
        tested = int(wanted.sum())
        proof = certify_visits(
            halves[other][2], halves[other][0], wanted, asked, tested, 0.5, seen, chances=chances
        )
        hidden = None
        if wanted.any():
            certifies, proposed = (
                _listed(parts, learner, wanted, sides == side, before)
                for side in ((False, True) if one == 0 else (True, False))
            )
            hidden = Hidden.of_outcomes(
                certifies, proposed, np.nonzero(wanted), asked.known_range
            )  # fmt: skip
        alpha = PARTS[False][0] * asked.delta * 0.5 / max(tested, 1)
        proofs.append(at_gamma_of(proof, hidden, wanted, asked, alpha))
    pairs &= np.logical_or.reduce([proof.pairs for proof in proofs])
    choice, planned = choose_parts(parts, whole, cut, pairs, counted.longest, learner.plan)
    policy = TablePolicy.of(
        whole,
        choice=choice,
        allowed=pairs,
        planned=planned,
        steps=counted.steps,
        parameters=learner.settings(),
        provenance=provenance_of_parts(parts, whole.n_episodes, sketch_of_parts(parts)),
    )
    log = cast("Log", PartsAsLog(parts, cut, parts.n_groups))
    settled = cast("Log", PartsAsLog(parts, cut, sum(counted.groups.values())))
    return finish(
        policy, proofs, learner, log, settled, asked, "swap-split", None, notes,
        counting=Counting(False, None),
    )  # fmt: skip


def _half(
    parts: LogInParts,
    learner: DPRLDiscrete,
    asked: Asked,
    inside: Bools,
    before: Mapping[Label, int],
) -> Half:
    """Evidence, menus and counted visits of some groups of the log."""
    shared = (learner.gamma, learner.cut, inside, before, asked.known_range)
    try:
        half: Half | None = parts.reduce(count_half, _merge_halves, *shared)
    except LogError:
        facts = parts.reduce(outside_of_part, _join, *shared)
        n, rows = (sum(fact[i] for fact in facts.values()) for i in (0, 1))
        where = next((facts[key][2] for key in sorted(facts) if facts[key][0]), "")
        if n:
            raise outside_error(n, rows, asked.known_range, where) from None
        raise
    if half is None:
        raise LogError(
            "no episode is left on one side of the split.", do="Read more, or drop fewer."
        )
    return half


def _some_groups(
    log: Log, cut: Cut | None, inside: Bools, before: Mapping[Label, int]
) -> Log | None:
    """The episodes of a part, settled, whose group is inside; None if there are none."""
    settled = settled_part(log, cut)
    if settled is None:
        return None
    number = {label: before[log.groups[0]] + i for i, label in enumerate(log.groups)}
    own = inside[[number[label] for label in settled.groups]]
    episodes = np.flatnonzero(own[settled.group])
    return settled.take(episodes) if len(episodes) else None


def known_of_part(log: Log) -> int:
    """The number of rows of a part on which the probability of the action taken is known."""
    return 0 if log.propensity is None else int((~np.isnan(log.propensity)).sum())


def chances_of_part(log: Log, cut: Cut | None) -> Chances | None:
    """The recorded probabilities of actions in one part; None where nothing of it is left."""
    settled = settled_part(log, cut)
    return None if settled is None else Chances.of(settled)


def groups_of_part(log: Log) -> dict[Label, int]:
    """First group of a part → the number of its groups."""
    return {log.groups[0]: len(log.groups)}


def _join(one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    return one | other


def most_of_part(log: Log, cut: Cut | None, choice: NDArray[np.int32]) -> int | None:
    """The most rows of an episode of one part at which a choice is made."""
    settled = settled_part(log, cut)
    if settled is None:
        return None
    speaks = (choice[settled.codes()] >= 0).astype(np.int64)
    return int(np.add.reduceat(speaks, settled.starts[:-1]).max())


def count_half(
    log: Log,
    gamma: float,
    cut: Cut | None,
    inside: Bools,
    before: Mapping[Label, int],
    ends: tuple[float, float],
) -> Half | None:
    """Evidence, menus and counted visits of some groups of one part."""
    half = _some_groups(log, cut, inside, before)
    if half is None:
        return None
    visits = visits_of(half, gamma, ends, markov=False)
    return evidence(half, gamma), menus_seen(half), visits


def _merge_halves(one: Half, other: Half) -> Half:
    menus = None if one[1] is None or other[1] is None else one[1] | other[1]
    return one[0].merge(other[0]), menus, one[2].merge(other[2])


def outside_of_part(
    log: Log,
    gamma: float,
    cut: Cut | None,
    inside: Bools,
    before: Mapping[Label, int],
    ends: tuple[float, float],
) -> dict[Label, tuple[int, int, str]] | None:
    """How many returns of some groups of one part lie outside a range, of how many, and where."""
    half = _some_groups(log, cut, inside, before)
    if half is None:
        return None
    n, where = outside_range(half, returns(half, gamma), ends)
    return {log.groups[0]: (n, half.n_steps, where)}


def list_half(
    log: Log,
    gamma: float,
    cut: Cut | None,
    inside: Bools,
    before: Mapping[Label, int],
    wanted: Bools,
) -> Listed | None:
    """States, actions and returns of first visits of wanted states, by state, of one part."""
    half = _some_groups(log, cut, inside, before)
    if half is None:
        return None
    state, action, G = outcomes_of(half, gamma)
    keep = wanted[state]
    return {log.groups[0]: (state[keep], action[keep], G[keep])}


def _listed(
    parts: LogInParts,
    learner: DPRLDiscrete,
    wanted: Bools,
    inside: Bools,
    before: Mapping[Label, int],
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """The same of all parts, by state and then in the order of the log."""
    listed: Listed = parts.reduce(
        list_half, _join, learner.gamma, learner.cut, inside, before, wanted.any(axis=1)
    )
    columns = [np.concatenate([listed[key][i] for key in sorted(listed)]) for i in range(3)]
    order = np.argsort(columns[0], kind="stable")
    state, action, G = (column[order] for column in columns)
    return state, action, G
