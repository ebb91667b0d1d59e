r"""Evidence of sites that share no rows: what they counted, to be added up and fitted elsewhere.

A hospital counts its own log over the labels of a `SiteSchema` and gives away sums: for every state
and action how many groups, the exact sum of their returns and of the squares (see
`dprl.evidence._evidence`), and how many groups had a return in which bin
(`dprl.evidence._site_bins`). Sums of several sites add up to those of the pooled log, bit for bit,
in any order.

**k.** Nothing that a site gives away about a state rests on fewer than k groups. In a state with
cells of fewer than k groups these cells, and the next larger ones until the cells are at least two
and their groups at least k, are put together as the *rest*: first visits that took one of several
actions, nobody says which. So what is known of a whole state less what is given away of its
actions is the rest again. A state with fewer than k groups is left out. `_site_cells` does this.

The rest counts in V̂(s), which is that of the union. A pair in the rest is not counted at this
site: n(s,a) becomes smaller, and Q̂(s,a) is that of the other sites. The rest does not count as
having done otherwise where n_min of these are asked for (`contrast`), since some may have taken the
very action. A certificate stays valid (`dprl.certificate._sites` says why).
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dprl._core.archive import Archive, Arrays
from dprl._core.exact import SQUARES, SUMS
from dprl._core.plural import many
from dprl._core.version import __version__
from dprl._core.words import api, option, say, worded
from dprl.errors import EvidenceError, ParameterError
from dprl.evidence import _site_bins
from dprl.evidence._evidence import Evidence
from dprl.evidence._site_rules import check_parts
from dprl.evidence._site_schema import SiteSchema
from dprl.evidence._site_words import described, notes_of
from dprl.evidence.counts import Counted, Counts
from dprl.logs.source import LogFacts, Share, Statistic

__all__ = ["ARCHIVE", "REST", "SiteEvidence", "from_parts", "merge_evidence", "unpacked"]

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

Summed = TypeVar("Summed")
"""What can be merged: evidence, or second counts."""
T = TypeVar("T")

ARCHIVE = Archive(
    "dprl-evidence", 1, "evidence", EvidenceError,
    "Copy it again from where it was made, or ask the site to count again.",
)  # fmt: skip
LARGEST = 4 << 30
"""Bytes an evidence file may unpack to."""
REST = "(several actions)"
"""What stands in the place of an action for groups of which nobody says which action they took."""


@dataclass(frozen=True, eq=False, repr=False)
class SiteEvidence:
    """What one site or several counted; immutable. `dprl.site_evidence` makes it.

    Attributes:
        schema: States (S of them), actions (A), discount and range that were fixed beforehand.
        evidence: Exact sums over S states and A + 1 actions. The last one is the rest: first visits
            of groups of which it is not said which action they took.
        steps: int64 (S,), rows in each state.
        bins: int64 (n, 4): s·(A + 1) + a, first bin, last bin, number of groups; the returns at
            first visits in units of 1/4000 of the range. None without a range.
        available: bool (S, A), actions that were available on every visit; None where the logs do
            not say.
        sites: For each site its facts: name, k, numbers of episodes and groups, and how much was
            suppressed.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
        >>> one = dprl.site_evidence(log.take(range(200)), schema, k=1, site="north")
        >>> two = dprl.site_evidence(log.take(range(200, 500)), schema, k=1, site="south")
        >>> both = dprl.merge_evidence(one, two)
        >>> both
        <SiteEvidence: 2 sites, 500 groups, 8 states, 4 actions; nothing suppressed>
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False).fit(both)
        >>> policy.act(["fever", "stable"])
        ['antibiotics', DEFER]
    """

    schema: SiteSchema
    evidence: Evidence
    steps: Ints
    bins: Ints | None
    available: Bools | None
    sites: tuple[Mapping[str, Any], ...]

    def __post_init__(self) -> None:
        check_parts(self)
        object.__setattr__(self, "evidence", replace(self.evidence, rest=True))

    # -- as a source (`dprl.logs.source`) -----------------------------------------------------

    @functools.cached_property
    def facts(self) -> LogFacts:
        """What the sites' logs say about themselves together, as far as it was given away."""
        n_episodes, n_cut = (
            sum(site[name] for site in self.sites) for name in ("episodes", "cut_episodes")
        )
        follow_up = self.schema.follow_up
        return LogFacts(
            actions=self.schema.actions,
            states=self.schema.states,
            n_episodes=n_episodes,
            n_groups=self.groups,
            n_steps=self.n_steps,
            longest=0,
            ended=np.array([n_episodes - n_cut, 0, n_cut]),
            grouped=any(site["grouped"] for site in self.sites),
            columns={"follow_up": follow_up} if follow_up else {},
        )

    @property
    def room(self) -> int | None:
        """Nothing of a row may be held: None, since there is nothing to hold."""
        return None

    @property
    def sealed(self) -> str:
        """Why rows cannot be looked at again."""
        return say("the rows of the sites are not here")

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings of a learner that the sites did not count with.

        Args:
            settings: The settings of `dprl.DPRLDiscrete`.

        Raises:
            ParameterError: The settings are not what the sites agreed on.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0, plan=False)
            >>> counted.check_settings(learner.settings())
        """
        ours = {"gamma": self.schema.gamma, "cut": self.schema.cut, "visits": "first"}
        for name, agreed in ours.items():
            asked = settings.get(name, agreed)
            if asked != agreed:
                raise ParameterError(
                    f"the sites counted with {name} = {agreed!r}; got {asked!r}.",
                    f"schema {self.schema.digest()[:12]}",
                    f"Say {name}={agreed!r}, or let all sites count again with another schema.",
                )
        if settings.get("plan"):
            raise ParameterError(
                "a plan needs to know what lies between decision points, and the sites have "
                "counted returns alone.",
                worded("{plan}, {sites:,} sites", plan=option("plan", True), sites=len(self.sites)),
                worded(
                    "Say {plan} for the best single decisions, or let the sites count a second "
                    "time (dprl evidence --points).",
                    plan=option("plan", False),
                ),
            )

    def reduce(self, statistic: Statistic[T], progress: Share | None = None) -> T:
        """What the sites counted, if that is what is asked for.

        Args:
            statistic: What is asked for: `dprl.evidence.counts.Counts` of all groups.
            progress: Not used: it is counted already.

        Returns:
            What was counted.

        Raises:
            ParameterError: If the sites did not count it.

        Example:
            >>> import dprl
            >>> from dprl.evidence.counts import Counts
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> sites = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> sites.reduce(Counts(gamma=1.0)).evidence is sites.evidence
            True
        """
        if isinstance(statistic, Counts) and statistic.groups is None:
            how: Counts = statistic
            self.check_settings({"gamma": how.gamma, "cut": how.cut, "visits": how.visits})
            counted: Any = Counted(
                how, self.evidence, self.steps, 0, {}, None, offered=self.available
            )
            return cast("T", counted)
        raise ParameterError(
            f"what was asked for cannot be told from what sites counted: {self.sealed}.",
            repr(self),
            worded(
                "{learner} can be fitted to it; anything else needs a log.",
                learner=api("DPRLDiscrete"),
            ),
        )

    def origin(self) -> dict[str, Any]:
        """Where a policy comes from that is made of it: no log, but what sites counted of theirs.

        Returns:
            The provenance of the policy.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0)).origin()["n_sites"]
            1
        """
        facts = self.facts
        return {
            "made_by": f"dprl {__version__}",
            "log": hashlib.sha256(f"dprl-evidence|{self.digest()}".encode()).hexdigest(),
            "episodes": facts.n_episodes,
            "groups": facts.n_groups,
            "steps": facts.n_steps,
            "cut_episodes": facts.n_cut,
            "episodes_used": self.evidence.n_episodes,
            "columns": dict(facts.columns),
            "luck": {"skipped": self.sealed},
            "schema": self.schema.digest(),
            "n_sites": len(self.sites),
            "sites": [dict(site) for site in self.sites],
            "notes": list(self.notes()),
        }

    @property
    def groups(self) -> int:
        """Number of groups (episodes, where no group was given) at all sites together."""
        return sum(site["groups"] for site in self.sites)

    @property
    def suppressed(self) -> int:
        """Number of pairs that some site did not give away: in the rest, or in small states."""
        return sum(site["pairs"] + site["later"] for site in self.sites)

    @property
    def n_steps(self) -> int:
        """Number of rows that were given away."""
        return int(self.steps.sum())

    @functools.cached_property
    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file holds: words, and arrays by name."""
        words = {
            "made_by": f"dprl {__version__}",
            "schema": self.schema.to_dict(),
            "episodes": self.evidence.n_episodes,
            "sites": [dict(site) for site in self.sites],
        }
        arrays: dict[str, NDArray[Any]] = {
            "words": self.evidence.words, "top": self.evidence.top.astype(np.int32),
            "bottom": self.evidence.bottom.astype(np.int32), "span": self.evidence.span,
            "steps": self.steps,
        }  # fmt: skip
        if self.bins is not None:
            arrays["bins"] = self.bins
        if self.available is not None:
            arrays["available"] = self.available
        return words, arrays

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: wholly, or not at all. Equal evidence gives equal bytes.

        Args:
            path: The file.

        Raises:
            EvidenceError: The folder does not exist.

        Example:
            >>> import dprl, pathlib, tempfile
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     counted.save(pathlib.Path(folder, "north.evidence"))
            ...     dprl.SiteEvidence.load(pathlib.Path(folder, "north.evidence")).groups
            500
        """
        ARCHIVE.pack(path, "round-1", *self.parts)

    def to_bytes(self) -> bytes:
        """The bytes of the file, for a pipe.

        Returns:
            The bytes that `save` would write.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0)).to_bytes()[:2]
            b'PK'
        """
        return ARCHIVE.to_bytes("round-1", *self.parts)

    def digest(self) -> str:
        """SHA-256 of everything that it holds.

        Returns:
            64 hexadecimal digits; equal evidence has equal digests.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> len(dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0)).digest())
            64
        """
        digest: str = ARCHIVE.document("round-1", *self.parts)[0]["digest"]
        return digest

    @classmethod
    def load(cls, source: str | os.PathLike[str] | IO[bytes]) -> SiteEvidence:
        """Read it from a file. No code from the file is run.

        Args:
            source: The path, "-" for standard input, or a stream of bytes.

        Returns:
            The evidence.

        Raises:
            EvidenceError: There is no such file, it is damaged, or its parts contradict each other.

        Example:
            >>> import dprl, io
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> dprl.SiteEvidence.load(io.BytesIO(counted.to_bytes())).digest() == counted.digest()
            True
        """
        name, _, words, arrays = unpacked(source, "round-1")
        return from_parts(name, words, arrays)

    def explain(self) -> str:
        """What is in it, line by line: all that leaves a site with the file.

        Returns:
            The text.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> counted = dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0))
            >>> print(counted.explain().splitlines()[0])
            Evidence of 1 site: 500 groups, 500 episodes.
        """
        return described(self)

    def notes(self) -> tuple[str, ...]:
        """Sentences on where it comes from, for a policy that is made of it.

        Returns:
            The sentences.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> dprl.site_evidence(log, dprl.SiteSchema.of(log, gamma=1.0), k=1).notes()[-1]
            'Nothing was suppressed (k = 1): the policy is that of the pooled log.'
        """
        return notes_of(self)

    def __repr__(self) -> str:
        n = len(self.sites)
        lost = f"{self.suppressed:,} pairs suppressed" if self.suppressed else "nothing suppressed"
        return (
            f"<SiteEvidence: {many(n, 'site')}, {self.groups:,} groups, "
            f"{len(self.schema.states):,} states, {len(self.schema.actions):,} actions; {lost}>"
        )


def merge_evidence(*parts: Summed) -> Summed:
    """The evidence of several sites together, whatever the order.

    Args:
        *parts: Evidence with one schema, or second counts for a plan (`dprl.site_plan`); each site
            counts once. A group (a patient) that was at two
            sites counts at both: nobody can see that without rows.

    Returns:
        The merged evidence. Where nothing was suppressed it is that of the pooled log, bit for bit.

    Raises:
        ParameterError: There is nothing to merge.
        EvidenceError: The schemas differ, or the evidence of one site is there twice.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
        >>> parts = [dprl.site_evidence(half, schema) for half in log.split(0.5, seed=0)]
        >>> dprl.merge_evidence(*parts).groups
        500
    """
    together = getattr(parts[0], "together", None) if parts else None
    if together is not None:  # second counts
        merged: Summed = together(parts[1:])
        return merged
    if not parts or not all(isinstance(part, SiteEvidence) for part in parts):
        raise ParameterError(
            "merge_evidence takes evidence of sites, at least one.",
            do=worded(
                "Make it with {command}, or dprl.SiteEvidence.load(path).",
                command=api("dprl.site_evidence"),
            ),
        )
    return cast("Summed", _merged(cast("Sequence[SiteEvidence]", parts)))


def _merged(parts: Sequence[SiteEvidence]) -> SiteEvidence:
    _refuse_mixed(parts)
    return add_parts(parts, in_order([site for part in parts for site in part.sites]))


def add_parts(parts: Sequence[SiteEvidence], sites: Sequence[Mapping[str, Any]]) -> SiteEvidence:
    """The sums of parts with one schema; `sites` are the facts of their sites."""
    first = parts[0]
    evidence, bins, available = first.evidence, first.bins, first.available
    for other in parts[1:]:
        evidence = evidence.merge(other.evidence)
        if available is not None and other.available is not None:
            available = available & other.available
    if bins is not None:
        bins = _site_bins.add_up(np.concatenate([p.bins for p in parts if p.bins is not None]))
    steps = np.sum([part.steps for part in parts], axis=0)
    return SiteEvidence(first.schema, evidence, steps, bins, available, tuple(sites))


def in_order(sites: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The facts of sites in an order that does not depend on how they came together."""
    return tuple(
        sorted(sites, key=lambda one: (one["site"], json.dumps(dict(one), sort_keys=True)))
    )


def _refuse_mixed(parts: Sequence[SiteEvidence]) -> None:
    """Refuse parts that cannot be added up, or that hold one site twice."""
    first = parts[0]
    for i, part in enumerate(parts):
        for name, ours in first.schema.to_dict().items():
            theirs = part.schema.to_dict()[name]
            if ours != theirs:
                raise EvidenceError(
                    f"evidence with different {name} cannot be merged.",
                    f"{_names(first)} and {_names(part)} (part {i + 1} of {len(parts)}): "
                    f"{str(ours)[:40]} and {str(theirs)[:40]}",
                    "All sites must count with one schema file, fixed beforehand.",
                )
        if (part.available is None) != (first.available is None):
            raise EvidenceError(
                "some sites say which actions were available, and others do not.",
                f"{_names(first)} and {_names(part)}",
                worded(
                    "Name the column ({available}) at all sites or at none.",
                    available=option("available"),
                ),
            )
    seen: dict[str, str] = {}
    for site in (site for part in parts for site in part.sites):
        if site["part"] in seen:
            raise EvidenceError(
                "the evidence of one site is there twice, and would count twice.",
                f"site {site['site']!r}, part {site['part'][:12]}",
                "Merge each site's file once. (Sites with the same counts must have names.)",
            )
        seen[site["part"]] = site["site"]


def _names(part: SiteEvidence) -> str:
    return " and ".join(repr(site["site"]) for site in part.sites[:3])


def sealed(part: SiteEvidence) -> SiteEvidence:
    """The evidence of one site with a mark of what was counted: it cannot be merged twice.

    Whether probabilities of actions were read beside it does not matter for that.
    """
    words, arrays = part.parts
    counted = [{k: v for k, v in site.items() if k != "chances"} for site in words["sites"]]
    total = hashlib.sha256(json.dumps(counted, sort_keys=True).encode())
    for name in sorted(arrays):
        total.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    facts = {**part.sites[0], "part": total.hexdigest()}
    return replace(part, sites=(facts,))


def unpacked(
    source: str | os.PathLike[str] | IO[bytes], *kinds: str
) -> tuple[str, str, dict[str, Any], Arrays]:
    """What messages call a file, its kind, and its parts; it must be of one of these kinds."""
    stream, name = _opened(source)
    _, kind, words, arrays = ARCHIVE.unpack(stream, name, LARGEST)
    if kind not in kinds:
        needed = " or ".join(map(repr, kinds))
        raise ARCHIVE.broken(name, f"it holds {kind!r}, and {needed} is needed")
    return name, kind, words, arrays


def _opened(source: str | os.PathLike[str] | IO[bytes]) -> tuple[Path | IO[bytes], str]:
    """A file or a stream that can seek, and what messages call it; "-" is standard input."""
    if isinstance(source, str) and source == "-":
        data = sys.stdin.buffer.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise ARCHIVE.broken("standard input", f"it has more than {LARGEST:,} bytes")
        return io.BytesIO(data), "standard input"
    if not isinstance(source, str | os.PathLike):
        return io.BytesIO(source.read(LARGEST + 1)), "the stream"
    path = Path(source)
    if not path.is_file():
        raise EvidenceError(f"there is no evidence file {str(path)!r}.", do="Check the path.")
    return path, path.name


def from_parts(
    name: str, words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> SiteEvidence:
    """The evidence of a file's parts, or an EvidenceError."""
    needed = {"words", "top", "bottom", "span", "steps"}
    odd = (needed - set(arrays)) | (set(arrays) - needed - {"bins", "available"})
    sites, episodes = words.get("sites"), words.get("episodes")
    if odd or not isinstance(sites, list) or type(episodes) is not int:
        raise ARCHIVE.broken(name, f"{(*sorted(odd), 'sites')[0]!r} is missing or not as it was")
    schema = SiteSchema.from_dict(words.get("schema"), name)
    shape = (2, len(schema.states), len(schema.actions) + 1)
    shapes = {"words": (*shape, 1 + SUMS + SQUARES), "top": shape, "bottom": shape}
    for part, right in shapes.items():
        if arrays[part].shape != right:
            raise ARCHIVE.broken(name, f"{part!r} has shape {arrays[part].shape}, not {right}")
    exponents = {}
    for part in ("top", "bottom"):
        with np.errstate(invalid="ignore"):  # what is no number is no exponent: told below
            exponents[part] = arrays[part].astype(np.int16)
        if (exponents[part] != arrays[part]).any():
            raise ARCHIVE.broken(name, f"{part!r} holds numbers that are no exponents")
    evidence = Evidence(
        arrays["words"], exponents["top"], exponents["bottom"], arrays["span"], schema.states,
        (*schema.actions, REST), schema.gamma, "first", episodes,
    )  # fmt: skip
    try:
        return SiteEvidence(
            schema, evidence, arrays["steps"], arrays.get("bins"), arrays.get("available"),
            tuple(sites),
        )  # fmt: skip
    except EvidenceError as error:
        raise ARCHIVE.broken(name, error.what) from error
