"""The second round of sites that share no rows: what lies between decision points.

Which states are decision points is known when all sites have been added up, so a plan needs a
second count. Each site gets the merged evidence of round one, finds the decision points as a
learner would (n_min, contrast), and counts the segments of the elevated semi-MDP
(`dprl.planning.semi_mdp`) that begin in its rows: of each allowed pair the exact sums of rewards
until the next decision point and, apart, until the end of the episode, and for each decision point
s' where segments end how many do, and the sum of γ^k as whole numbers. Sums of all sites give R̃ and
D of the pooled log.

**k.** Only pairs that the site gave away in round one have segments. Where fewer than k groups go
from a pair to s', this end is not given away: these segments count as ending with the episode, and
bring their whole return, so that what follows them is usual practice and not the plan. If the
segments of a pair that end with the episode, together with these, are fewer than k, the smallest
other ends join them.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import IO, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import check_flag, check_n_min, check_whole
from dprl._core.exact import COUNT, NOTHING, SQUARES, SUMS, digits_of, window_of
from dprl._core.words import worded
from dprl.errors import EvidenceError, ParameterError
from dprl.evidence.counts import FIRST, LATER, Counts, Evidence
from dprl.evidence.decision_points import allowed
from dprl.evidence.sites.cells import USUAL_K, counted_rows, in_schema, site_evidence
from dprl.evidence.sites.evidence import (
    ARCHIVE,
    EMPTY,
    SiteEvidence,
    SiteSchema,
    check_sums,
    from_parts,
    refuse_parts,
    unpacked,
)
from dprl.logs.censoring import treat_cut
from dprl.logs.log import Log
from dprl.logs.source import LogFacts, Share, Statistic
from dprl.planning.semi_mdp import (
    ENDED,
    ONWARD,
    Segments,
    SegmentsOf,
    SemiMDP,
    build_semi_mdp,
    discounts,
    segments_of,
)

# --- Segments between decision points as sums that sites can give away (see `_site_plan`)


def bits_of(evidence: SiteEvidence, pairs: Bools) -> int:
    """How fine γ^k can be counted, so that no sum of all sites is too large."""
    return discounts(1.0, 0, evidence.evidence.n_pair[:, :-1][pairs])[1]


def hidden_ends(row: Ints, end: Ints, n_rows: int, k: int) -> Bools:
    """Which segments must not say where they end; row and end (n,), -1 for END."""
    hidden = np.zeros(len(row), bool)
    order = np.argsort(row, kind="stable")
    begin = np.searchsorted(row[order], np.arange(n_rows + 1))
    for r in range(n_rows):
        at = order[begin[r] : begin[r + 1]]
        ends, place, n = np.unique(end[at], return_inverse=True, return_counts=True)
        out = ends < 0
        away = int(n[out].sum())
        for i in np.argsort(n, kind="stable"):
            if not out[i] and (n[i] < k or 0 < away < k):
                out[i] = True
                away += int(n[i])
        hidden[at] = out[place] & (end[at] >= 0)
    return hidden


def summed(
    schema: SiteSchema, code: Ints, begin: Ints, rewards: Floats, ended: Bools, episodes: int
) -> Evidence:
    """The exact sums of rewards (n,), those of begin[i]:begin[i + 1] to the pair code[i].

    ended (n,): whether a segment reaches END; its sums are apart, in the place of LATER.
    """
    sums = no_rewards(schema)
    A = len(schema.actions)
    words, top, bottom = sums.words.copy(), sums.top.copy(), sums.bottom.copy()
    for side, (i, pair) in product((ONWARD, ENDED), enumerate(code.tolist())):
        some = slice(begin[i], begin[i + 1])
        values = rewards[some][ended[some] == (side == ENDED)]
        at = (side, pair // A, pair % A)
        words[at][COUNT] = len(values)
        window = window_of(values, SUMS)._replace(sums=SUMS, squares=SQUARES)
        if window.top != NOTHING:
            words[at][1:] = digits_of(values, window).sum(axis=0)
            top[at], bottom[at] = window.top, window.bottom
    return replace(sums, words=words, top=top, bottom=bottom, n_episodes=episodes)


def no_rewards(schema: SiteSchema) -> Evidence:
    """Empty sums over the schema's pairs."""
    shape = (2, len(schema.states), len(schema.actions))
    return Evidence(
        np.zeros((*shape, 1 + SUMS + SQUARES), np.int64), np.full(shape, NOTHING, np.int16),
        np.full(shape, EMPTY, np.int16), np.full((shape[1], 2), np.nan), schema.states,
        schema.actions, schema.gamma, "first", 0,
    )  # fmt: skip


def add_ends(rows: Ints) -> Ints:
    """Rows of ends (n, 4), sorted, with equal pairs and ends added up."""
    keys, place = np.unique(rows[:, :2], axis=0, return_inverse=True)
    total = np.zeros((len(keys), 2), np.int64)
    np.add.at(total, place.ravel(), rows[:, 2:])
    return np.column_stack([keys, total]).reshape(-1, 4).astype(np.int64)


# --- What the parts of a second count must be to belong together; a file may hold anything


def check_plan(plan: SitePlan) -> None:
    """Refuse parts that contradict each other."""
    S, A = plan.pairs.shape
    words = plan.rewards.words
    check_sums(words, plan.rewards.top, plan.rewards.bottom)
    n = plan.n
    if (n > plan.evidence.evidence.n_pair[:, :-1]).any() or n[~plan.pairs].any():
        refuse_parts("segments of pairs that have none")
    ends = plan.ends
    if ends.ndim != 2 or ends.shape[1] != 4 or ends.dtype != np.int64:
        refuse_parts(f"'ends' is {ends.dtype}{ends.shape}")
    points = np.asarray(plan.pairs.any(axis=1))
    pair, end, count, total = ends.T
    if not ((pair >= 0) & (pair < S * A) & (end >= 0) & (end < S)).all() or not (
        points[end].all() and plan.pairs.ravel()[pair].all()
    ):
        refuse_parts("segments between states that are no decision points")
    most = np.zeros(S * A, np.int64)
    if not ((count > 0) & (count < 1 << 31)).all():
        refuse_parts("an end without segments")
    np.add.at(most, pair, count)
    if (most > words[ONWARD, ..., COUNT].ravel()).any() or not (
        (total >= 0) & (total <= count << plan.bits)
    ).all():
        refuse_parts("more ends than segments, or a discount above 1")
    if len(set(plan.parts)) < len(plan.parts) or not set(plan.parts) <= {
        site["part"] for site in plan.evidence.sites
    }:
        refuse_parts("a site twice, or one that did not count the first time")
    first = plan.evidence.evidence.n_pair[:, :-1]
    if plan.complete and (n[plan.pairs] != first[plan.pairs]).any():
        refuse_parts("fewer segments than the first count has episodes")


# --- The second round of sites that share no rows: what lies between decision points

T = TypeVar("T")


def allowed_pairs(sites: SiteEvidence, n_min: float, contrast: bool) -> Bools:
    """bool (S, A): the pairs that a policy may choose (Eq. 1), by what all sites counted."""
    pairs = allowed(sites.evidence, n_min, contrast=contrast, available=sites.available)
    return np.ascontiguousarray(pairs[:, :-1])


@dataclass(frozen=True, eq=False, repr=False)
class SitePlan:
    """What sites counted between decision points; immutable. `dprl.site_plan` makes it.

    Attributes:
        evidence: What all sites counted in round one.
        n_min: The least number of episodes that decision points were found with.
        contrast: Whether so many must have done otherwise, too.
        rewards: Exact sums of the rewards of segments, by state and action of their first row:
            those that reach a decision point, and those that reach the end of the episode. (Counts
            of 0.2.0 have all in the first place, and so do plans with segments="end" alone.)
        ends: int64 (n, 4): s·A + a, the state where segments end, how many do, and the sum of γ^k
            in units of 2^-bits.
        parts: The marks of the sites that have counted, sorted.
        hidden: How many pairs and ends were not given away, because of k.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
        >>> halves = dict(zip(["north", "south"], log.split(0.5, seed=0)))
        >>> both = dprl.merge_evidence(
        ...     *(dprl.site_evidence(half, schema, k=1, site=name)
        ...       for name, half in halves.items())
        ... )
        >>> plan = dprl.merge_evidence(
        ...     *(dprl.site_plan(half, both, n_min=20, k=1, site=name)
        ...       for name, half in halves.items())
        ... )
        >>> plan
        <SitePlan: 2 of 2 sites, n_min 20, 2 decision points>
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(plan)
        >>> policy.act("fever")
        'antibiotics'
    """

    evidence: SiteEvidence
    n_min: float
    contrast: bool
    rewards: Evidence
    ends: Ints
    parts: tuple[str, ...]
    hidden: int = 0

    def __post_init__(self) -> None:
        check_plan(self)

    @functools.cached_property
    def pairs(self) -> Bools:
        """bool (S, A): the pairs that may be chosen."""
        return allowed_pairs(self.evidence, self.n_min, self.contrast)

    @functools.cached_property
    def bits(self) -> int:
        """How fine γ^k is counted: in units of 2^-bits."""
        return bits_of(self.evidence, self.pairs)

    @property
    def n(self) -> Ints:
        """int64 (S, A): the segments of each pair."""
        return np.asarray(self.rewards.words[..., COUNT].sum(axis=0))

    @property
    def divided(self) -> bool:
        """Whether those that reach the end of the episode are apart; in old counts they are not."""
        return int(self.rewards.words[ONWARD, ..., COUNT].sum()) == int(self.ends[:, 2].sum())

    @property
    def complete(self) -> bool:
        """Whether every site of round one has counted."""
        return set(self.parts) == {site["part"] for site in self.evidence.sites}

    def __repr__(self) -> str:
        points = int(self.pairs.any(axis=1).sum())
        return (
            f"<SitePlan: {len(self.parts):,} of {len(self.evidence.sites):,} sites, n_min "
            f"{self.n_min:g}, {points:,} decision points>"
        )

    def notes(self) -> tuple[str, ...]:
        """Sentences on where it comes from, for a policy that is made of it.

        Returns:
            The sentences.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> len(dprl.site_plan(log, counted, n_min=20, k=1).notes())
            2
        """
        notes = self.evidence.notes()
        if not self.hidden:
            return notes
        return (
            *notes,
            f"{self.hidden:,} times, counted by site, fewer than k groups went from a decision to "
            "the next decision point (or joined such groups): there the plan reckons with usual "
            "practice in place of its own next suggestion.",
        )

    def semi_mdp(self) -> SemiMDP:
        """The elevated semi-MDP of all sites together.

        Returns:
            The semi-MDP over the decision points.

        Raises:
            EvidenceError: Some sites have not counted yet.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> dprl.site_plan(log, counted, n_min=20, k=1).semi_mdp().labels
            ('fever', 'worse')
        """
        how = Counts(self.evidence.schema.gamma, cut=self.evidence.schema.cut)
        pairs = np.column_stack([self.pairs, np.zeros(len(self.pairs), bool)])
        return build_semi_mdp(self, self.reduce(how), pairs)

    # -- as a source (`dprl.logs.source`) -----------------------------------------------------

    @property
    def facts(self) -> LogFacts:
        """What the sites' logs say about themselves together."""
        return self.evidence.facts

    @property
    def room(self) -> int | None:
        """As of the first round."""
        return self.evidence.room

    @property
    def sealed(self) -> str:
        """Why rows cannot be looked at again."""
        return self.evidence.sealed

    def digest(self) -> str:
        """SHA-256 of what all sites counted the first time.

        Returns:
            64 hexadecimal digits.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> dprl.site_plan(log, counted, n_min=20, k=1).digest() == counted.digest()
            True
        """
        return self.evidence.digest()

    def origin(self) -> dict[str, Any]:
        """Where a policy comes from that is made of it.

        Returns:
            The provenance of the policy.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> len(dprl.site_plan(log, counted, n_min=20, k=1).origin()["notes"])
            2
        """
        return {**self.evidence.origin(), "notes": list(self.notes())}

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings of a learner that the sites did not count with.

        Args:
            settings: The settings of `dprl.DPRLDiscrete`.

        Raises:
            ParameterError: The settings are not what the sites agreed on.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> plan = dprl.site_plan(log, counted, n_min=20, k=1)
            >>> plan.check_settings(dprl.DPRLDiscrete(n_min=20, gamma=1.0).settings())
        """
        self.evidence.check_settings({**settings, "plan": False})
        n_min = None if math.isinf(self.n_min) else self.n_min
        known = ("end", "pooled") if self.divided else ("end",)
        if settings.get("segments", "end") not in known:
            raise ParameterError(
                f"the sites counted for segments = {' or '.join(known)}; got "
                f"{settings['segments']}.",
                f"{self!r}",
                worded("Say {segments='end'}."),
            )
        ours = {"plan": True, "n_min": n_min, "contrast": self.contrast}
        for name, agreed in ours.items():
            asked = settings.get(name, agreed)
            if asked != agreed:
                raise ParameterError(
                    f"the sites counted for a plan with {name} = {_number(agreed)}; got "
                    f"{_number(asked)}.",
                    f"{self!r}",
                    f"Say {name}={_number(agreed)}, or let the sites count a second time for "
                    "another plan.",
                )

    def reduce(self, statistic: Statistic[T], progress: Share | None = None) -> T:
        """What the sites counted, if that is what is asked for.

        Args:
            statistic: What is asked for: what `SiteEvidence.reduce` gives, or
                `dprl.planning.semi_mdp.SegmentsOf` the pairs that the sites counted for.
            progress: Not used: it is counted already.

        Returns:
            What was counted.

        Raises:
            ParameterError: If the sites did not count it.

        Example:
            >>> import dprl
            >>> from dprl.evidence.counts import Counts
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> plan = dprl.site_plan(log, counted, n_min=20, k=1)
            >>> plan.reduce(Counts(gamma=1.0)).evidence is counted.evidence
            True
        """
        if not isinstance(statistic, SegmentsOf) or statistic.moved is not None:
            return self.evidence.reduce(statistic, progress)
        if (statistic.allowed[:, :-1] != self.pairs).any():
            raise ParameterError(
                "the sites counted between other decision points than those that are asked for.",
                repr(self),
                "Let the sites count a second time for these.",
            )
        return cast("T", self._segments())

    def _segments(self) -> Segments:
        """What all sites counted between decision points; it must be complete."""
        if not self.complete:
            missing = [s for s in self.evidence.sites if s["part"] not in self.parts]
            raise EvidenceError(
                f"{len(missing):,} of {len(self.evidence.sites):,} sites have not counted a second "
                "time.",
                f"site {missing[0]['site']!r}",
                "A plan needs the second count of every site that took part in the first.",
            )
        points, pairs = np.flatnonzero(self.pairs.any(axis=1)), np.flatnonzero(self.pairs)
        row = np.searchsorted(pairs, self.ends[:, 0])
        column = np.searchsorted(points, self.ends[:, 1])
        words = self.rewards.words[:, self.pairs][..., : 1 + SUMS]
        return Segments(
            np.ascontiguousarray(words),
            self.rewards.top[:, self.pairs],
            row * len(points) + column,
            self.ends[:, 3],
        )

    def together(self, others: Sequence[SitePlan]) -> SitePlan:
        """The counts of several sites together; what `dprl.merge_evidence` does.

        Args:
            others: The plans of other sites.

        Returns:
            The merged plan.

        Raises:
            EvidenceError: They are not about the same evidence and decision points, or a site is
                there twice.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> dprl.site_plan(log, counted, n_min=20, k=1).together([]).complete
            True
        """
        merged = self
        for other in others:
            if not isinstance(other, SitePlan) or (
                (other.evidence.digest(), other.n_min, other.contrast)
                != (self.evidence.digest(), self.n_min, self.contrast)
            ):
                raise EvidenceError(
                    "second counts of different decision points cannot be merged.",
                    f"{self!r} and {other!r}",
                    worded(
                        "All sites must count between the points of one merged file, with one "
                        "{n_min}."
                    ),
                )
            twice = set(merged.parts) & set(other.parts)
            if twice:
                raise EvidenceError(
                    "the second count of one site is there twice, and would count twice.",
                    f"part {min(twice)[:12]}",
                    "Merge each site's file once.",
                )
            merged = replace(
                merged, rewards=merged.rewards.merge(other.rewards),
                ends=add_ends(np.concatenate((merged.ends, other.ends))),
                parts=tuple(sorted((*merged.parts, *other.parts))),
                hidden=merged.hidden + other.hidden,
            )  # fmt: skip
        return merged

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        words, arrays = self.evidence.parts
        n_min = None if math.isinf(self.n_min) else int(self.n_min)
        sums: dict[str, NDArray[Any]] = {
            "plan_words": self.rewards.words, "plan_ends": self.ends,
            "plan_top": self.rewards.top.astype(np.int32),
            "plan_bottom": self.rewards.bottom.astype(np.int32),
        }  # fmt: skip
        plan = {"n_min": n_min, "contrast": self.contrast, "parts": list(self.parts),
                "hidden": self.hidden}  # fmt: skip
        return {**words, "plan": plan}, {**arrays, **sums}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: wholly, or not at all. Equal counts give equal bytes.

        Args:
            path: The file.

        Example:
            >>> import dprl, pathlib, tempfile
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> plan = dprl.site_plan(log, counted, n_min=20, k=1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     plan.save(pathlib.Path(folder, "north.plan"))
            ...     dprl.SitePlan.load(pathlib.Path(folder, "north.plan"))
            <SitePlan: 1 of 1 sites, n_min 20, 2 decision points>
        """
        ARCHIVE.pack(path, "round-2", *self._file_parts())

    def to_bytes(self) -> bytes:
        """The bytes of the file, for a pipe.

        Returns:
            The bytes that `save` would write.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> dprl.site_plan(log, counted, n_min=20, k=1).to_bytes()[:2]
            b'PK'
        """
        return ARCHIVE.to_bytes("round-2", *self._file_parts())

    @classmethod
    def load(cls, source: str | os.PathLike[str] | IO[bytes]) -> SitePlan:
        """Read it from a file. No code from the file is run.

        Args:
            source: The path, "-" for standard input, or a stream of bytes.

        Returns:
            The plan.

        Raises:
            EvidenceError: There is no such file, it is damaged, or its parts contradict each other.

        Example:
            >>> import dprl, io
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> plan = dprl.site_plan(log, counted, n_min=20, k=1)
            >>> dprl.SitePlan.load(io.BytesIO(plan.to_bytes())).complete
            True
        """
        name, _, words, arrays = unpacked(source, "round-2")
        return _of_file(name, words, arrays)

    def explain(self) -> str:
        """What is in it: all that leaves a site with the file.

        Returns:
            The text.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1)
            >>> print(dprl.site_plan(log, counted, n_min=20, k=1).explain().splitlines()[0])
            Second count, of 1 of 1 sites, between 2 decision points (n_min 20).
        """
        rows = int((self.n > 0).sum())
        return "\n".join([
            f"Second count, of {len(self.parts):,} of {len(self.evidence.sites):,} sites, between "
            f"{int(self.pairs.any(axis=1).sum()):,} decision points (n_min {self.n_min:g}).",
            f"  rewards        {rows:,} pairs: how many groups, and the exact sum (and squares) of "
            "their rewards from the pair to the next decision point, and of those that met none",
            f"  ends           {len(self.ends):,} pairs and next decision points: how many groups "
            "went from one to the other, at least k of a site, and the sum of gamma^steps; "
            f"{self.hidden:,} more are not given away",
            "",
            "It also holds what all sites counted the first time:",
            self.evidence.explain(),
        ])  # fmt: skip


def _number(value: Any) -> Any:
    """A setting in words: None stands for an infinite number."""
    return math.inf if value is None else value


def load_counts(source: str | os.PathLike[str] | IO[bytes]) -> SiteEvidence | SitePlan:
    """What an evidence file holds, of the first or of the second round.

    Args:
        source: The path, "-" for standard input, or a stream of bytes.
    """
    name, kind, words, arrays = unpacked(source, "round-1", "round-2")
    return (from_parts if kind == "round-1" else _of_file)(name, words, arrays)


def site_plan(
    log: Log,
    evidence: SiteEvidence,
    *,
    n_min: float,
    contrast: bool = True,
    k: int = USUAL_K,
    site: str = "",
) -> SitePlan:
    """What a site counts the second time, for a plan: what lies between decision points.

    Args:
        log: The site's log, the same as the first time.
        evidence: What all sites counted the first time, merged.
        n_min: The least number of episodes an action needs, as the learner will have it.
        contrast: Whether so many must have done otherwise. Default True.
        k: The fewest groups of anything that is given away, as the first time. Default 10.
        site: The name of the site, as the first time.

    Returns:
        The counts, to be saved, sent and merged.

    Raises:
        EvidenceError: This log, with this k and name, was not counted the first time.
        ParameterError: A setting is outside its range.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(2_000, seed=0)
        >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
        >>> dprl.site_plan(log, counted, n_min=20)
        <SitePlan: 1 of 1 sites, n_min 20, 1 decision points>
    """
    if not isinstance(evidence, SiteEvidence):
        raise ParameterError(
            f"evidence of sites is needed; got an object of type {type(evidence).__name__}.",
            do=worded("Merge what the sites counted first: {dprl.merge_evidence}."),
        )
    n_min, schema = check_n_min(n_min), evidence.schema
    check_flag("contrast", contrast)
    own = site_evidence(log, schema, k=k, site=site)
    mark = own.sites[0]["part"]
    if mark not in {one["part"] for one in evidence.sites}:
        raise EvidenceError(
            "this log was not counted the first time, with this k and this name.",
            f"site {site!r}, k = {k}; counted were "
            + ", ".join(f"{one['site']!r} (k = {one['k']})" for one in evidence.sites[:3]),
            "Count the same log again, with the same k and site (--k, --site) as the first time.",
        )
    pairs = allowed_pairs(evidence, n_min, contrast)
    treated = treat_cut(in_schema(log, schema), schema.gamma, schema.cut, reads="returns")
    settled = treated.gathered()
    n = own.evidence.words[..., COUNT][:, :, :-1]
    shown = n > 0
    counted = counted_rows(settled, shown[FIRST], shown[LATER])
    segments, rewards, begin = segments_of(settled, schema.gamma, counted, pairs)
    _, whole, _ = segments_of(settled, schema.gamma, counted, pairs, np.zeros_like(pairs))
    row = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    end = segments[:, 0].astype(np.int64)
    hidden = hidden_ends(row, end, len(begin) - 1, k)
    rewards, end = np.where(hidden, whole, rewards), np.where(hidden, -1, end)
    n_pair = evidence.evidence.n_pair[:, :-1][pairs]
    fixed, _ = discounts(schema.gamma, int(settled.lengths.max(initial=0)), n_pair)
    code, points = np.flatnonzero(pairs), np.flatnonzero(pairs.any(axis=1))
    some = end >= 0
    columns = [code[row], points[end] if len(points) else end, np.ones(len(end), np.int64),
               fixed[segments[:, 1]]]  # fmt: skip
    return SitePlan(
        evidence, n_min, contrast,
        rewards=summed(schema, code, begin, rewards, end < 0, settled.n_episodes),
        ends=add_ends(np.stack(columns, axis=1)[some].astype(np.int64)),
        parts=(mark,),
        hidden=len(np.unique(np.stack([row, segments[:, 0]], axis=1)[hidden], axis=0)),
    )  # fmt: skip


def _of_file(name: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SitePlan:
    """The plan of a file's parts, or an EvidenceError."""
    mine = {n: a for n, a in arrays.items() if n.startswith("plan_")}
    sites = from_parts(
        name,
        {n: v for n, v in words.items() if n != "plan"},
        {n: a for n, a in arrays.items() if n not in mine},
    )
    plan = words.get("plan")
    empty = no_rewards(sites.schema)
    if (
        not isinstance(plan, dict)
        or set(plan) != {"n_min", "contrast", "parts", "hidden"}
        or set(mine) != {"plan_words", "plan_top", "plan_bottom", "plan_ends"}
    ):
        raise ARCHIVE.broken(name, "its second count is not whole")
    parts = plan["parts"]
    try:
        if not isinstance(parts, list) or not all(isinstance(p, str) for p in parts):
            refuse_parts("no sites that have counted")
        check_flag("contrast", plan["contrast"])
        hidden = check_whole("hidden", plan["hidden"], 0, 1 << 53)
        n_min = math.inf if plan["n_min"] is None else check_n_min(plan["n_min"])
        sums: dict[str, Any] = {}
        for which in ("words", "top", "bottom"):
            sums[which], given = getattr(empty, which).copy(), mine[f"plan_{which}"]
            place: Any = ... if given.ndim == sums[which].ndim else ONWARD  # of 0.2.0
            if given.shape != sums[which][place].shape:
                refuse_parts(f"{which!r} is {given.shape}")
            sums[which][place] = given
            if (sums[which][place] != given).any():
                refuse_parts(f"{which!r} that cannot be")
        n_episodes = sites.evidence.n_episodes if len(parts) == len(sites.sites) else 0
        rewards = replace(empty, **sums, n_episodes=n_episodes)
        return SitePlan(
            sites, n_min, plan["contrast"], rewards, mine["plan_ends"], tuple(parts), hidden
        )  # fmt: skip
    except (EvidenceError, ParameterError) as error:
        raise ARCHIVE.broken(name, error.what) from error
