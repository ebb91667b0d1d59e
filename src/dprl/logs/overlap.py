r"""Has this log been seen before, in part? A small sample of a log, kept with a policy.

A digest tells equal logs from different ones, but the usual mistake is a different one: a policy
learned from half of a log is evaluated on all of it, or on the same patients under other names, or
on other stays of them. So a policy keeps three small samples of its training log. Labels count in
one form throughout (`label_key`): 7, "7", "7.0" and "007" are one.

**Groups** (`kept`): a *bottom sketch* (Cohen & Kaplan 2007). The label of a group, together with
the beginning of one of its episodes, gives one number, a **mark**, and the 256 smallest marks are
kept. A log that contains the training groups contains these marks; if a log is part of the training
log, its smallest marks are among these. Labels alone say little (simulated logs all count 0, 1, 2,
…) and content alone says little (short episodes repeat themselves). What counts is therefore
agreement beyond chance, as in Cohen's κ:

    m  share of the sample found in the other log, label and content
    c  share expected if labels meant nothing: √(a b), where a and b are the chances that two groups
       of one log begin alike. For logs of one kind a = b = c, else c is at most that (Cauchy and
       Schwarz), so logs of different kinds are not taken for one another
    κ  (m - c) / (1 - c),  and 0 unless m is four standard errors of chance above c

**Episodes** (`episodes`): how often each of some hundred beginnings occurs, without any label, so
that new names do not help. If two logs of n and m episodes were drawn from one world, a beginning
that occurs twice in both together has one occurrence in each with probability
q = 2nm / ((n + m)(n + m - 1)), whatever the world: all ways of dealing the episodes to the two are
alike. Copies make more such pairs, and the share beyond q is what is reported. Where beginnings are
of few kinds, none occurs twice only. Then the one log has of the N occurrences of each about
p = n / (n + m), give or take d with E d² = N p(1 - p); copies are in both, and make d too small.
What is missing in Σ d² is 2 p(1 - p) for each copy. Designs in which actions are dealt out evenly
do the same in part, so this counts from a share of `MOST` on, or where all counts are equal and
chance would do that less than once in a million.

**Names** (`names`), where groups were declared: one bit for each of some thousand groups, in a map
of bits of which half are set. A group that is not in the log has its bit set with probability 1/2,
so nobody can be recognised; of hundreds of groups it can be told how many are in both.

What the samples reveal. A mark is BLAKE2b, keyed with a hash of the log's own digest.

* Someone who has only the marks can test nobody: the key is missing. The marks of two policies
  cannot be compared with each other either, to find patients in both: each log has its own key.
* Someone who has the *policy file* also has the digest, which is stored beside the sample, and can
  do what dprl does: test whether a story is in the sample. For this a person's first steps must be
  known, rewards included; a list of identifiers is not enough, unless episodes are so short and of
  so few kinds that all of them can be tried. This cannot be avoided: whatever lets dprl recognise a
  patient lets everybody who has the same file do so. `dprl.public_copy` leaves out samples and
  digest, and `dprl serve` sends neither.

A random key would be stored in the same file, would protect no better, and would make two fits of
one log two different files; derived from the digest, equal logs give equal bytes.

Marks of 64 bits make no false match that matters (256 marks against 10 million groups: about one in
10¹⁰), and equal labels with equal beginnings always match. Files before this version hold groups
alone, with labels as they were stored (7 is not "7"); still older ones two plain 32-bit hashes per
group, of label and of content, against which anybody can try all labels. Both still work; plain
hashes are *sealed* (made into marks with the key) before they are compared, and when the policy is
saved again.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from dprl._core.labels import Labels
from dprl._core.words import say, word
from dprl.errors import PolicyError
from dprl.logs.log import Label, Log, label_key
from dprl.logs.source import Both, Chunk, Share, Source

Hashes = NDArray[np.uint64]

KEPT, STEPS, ENOUGH = 256, 8, 8
"""Marks kept, steps of an episode used, and the smallest sample that is compared at all."""

TOO_MUCH = 0.05
"""The largest share of groups that two logs may have in common, beyond chance."""

WITHHELD = "withheld"
"""The word that replaces the digest in a public copy."""

HALF = np.uint64(32)
PLAIN, KEYED, THREE = 1, 2, 3
"""Versions of a sample: marks of older files' plain hashes, marks of groups, all three samples."""
AT_MOST = 512, 5_000
"""Beginnings of episodes that are kept at most, and groups that have a bit."""
MOST = 0.75
"""The least share of episodes that counts where their beginnings are of few kinds."""
ONCE_IN = 3e-5
"""How often chance alone may show episodes in common, of all pairs of logs that are looked at."""


@dataclass(frozen=True)
class MarksOf:
    """The smallest marks of the groups of a log, ascending; a statistic of it.

    Attributes:
        digest: That of the whole log.
    """

    digest: str

    def of(self, chunk: Chunk) -> list[str]:
        """Those of one chunk."""
        marks = keyed_marks(chunk.log.groups, _groups_of(chunk), self.digest)
        if len(marks) > KEPT:
            marks = np.partition(marks, KEPT)[:KEPT]
        return _shown(np.sort(marks).tolist())

    def merge(self, one: list[str], other: list[str]) -> list[str]:
        """Those of two chunks together."""
        return heapq.nsmallest(KEPT, [*one, *other])


Beginnings = tuple[Hashes, NDArray[np.int64]]
"""How groups begin, ascending, and how many groups begin so."""


@dataclass(frozen=True)
class BeginningsOf:
    """How the groups of a log begin, and how many so; a statistic of it.

    Attributes:
        low: The lowest beginning that is looked at.
        high: The highest.
    """

    low: int = 0
    high: int = (1 << 64) - 1

    def of(self, chunk: Chunk) -> Beginnings:
        """Those of one chunk."""
        content = _groups_of(chunk)
        if self != BeginningsOf():
            inside = (content >= np.uint64(self.low)) & (content <= np.uint64(self.high))
            content = content[inside]
        values, counts = np.unique(content, return_counts=True)
        return values, counts.astype(np.int64)

    def merge(self, one: Beginnings, other: Beginnings) -> Beginnings:
        """Those of two chunks together."""
        values, place = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
        counts = np.zeros(len(values), np.int64)
        np.add.at(counts, place, np.concatenate([one[1], other[1]]))
        return values, counts


@dataclass(frozen=True)
class EpisodesOf:
    """How often some beginnings of episodes occur, one out of `every`; a statistic of a log.

    Attributes:
        digest: That of the whole log.
    """

    digest: str

    def of(self, chunk: Chunk) -> tuple[int, Beginnings]:
        """Those of one chunk."""
        return _thinned(1, self.all_of(chunk))

    def merge(
        self, one: tuple[int, Beginnings], other: tuple[int, Beginnings]
    ) -> tuple[int, Beginnings]:
        """Those of two chunks together."""
        every = max(one[0], other[0])
        return _thinned(every, BeginningsOf().merge(_some(every, one[1]), _some(every, other[1])))

    def all_of(self, chunk: Chunk) -> Beginnings:
        """All beginnings of a chunk, keyed, and how often each occurs."""
        key = np.uint64(int.from_bytes(_key(self.digest)[:8], "little"))
        values, counts = np.unique(_mixed(_episodes_of(chunk), key), return_counts=True)
        return values, counts.astype(np.int64)

    def marked(self, some: Beginnings) -> dict[str, int]:
        """Beginnings as they are kept."""
        key, pairs = _key(self.digest), zip(some[0].tolist(), some[1].tolist(), strict=True)
        return {_mark(key, b"episode %d" % value)[:10]: n for value, n in pairs}


def _some(every: int, beginnings: Beginnings) -> Beginnings:
    """One out of `every`, a power of two."""
    chosen = beginnings[0] % np.uint64(every) == 0
    return beginnings[0][chosen], beginnings[1][chosen]


def _thinned(every: int, beginnings: Beginnings) -> tuple[int, Beginnings]:
    """Beginnings of which one out of `every` is there, so few that they can be kept."""
    while len(beginnings[0]) > AT_MOST[0]:
        every *= 2
        beginnings = _some(every, beginnings)
    return every, beginnings


@dataclass(frozen=True)
class NamesOf:
    """A map of bits that the groups of a log set; a statistic of it.

    Attributes:
        digest: That of the whole log.
        every: One group out of so many is looked at.
        size: Number of bits; 0 where groups were not declared, and names say nothing.
    """

    digest: str
    every: int
    size: int

    def of(self, chunk: Chunk) -> NDArray[np.bool_]:
        """That of one chunk."""
        bits = np.zeros(self.size, bool)
        if self.size:
            bits[self.places(chunk.log)] = True
        return bits

    def merge(self, one: NDArray[np.bool_], other: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """That of two chunks together."""
        return one | other

    def places(self, log: Log) -> NDArray[np.int64]:
        """The bit of each group that is looked at."""
        key = np.uint64(int.from_bytes(_key(self.digest)[8:16], "little"))
        keyed = _mixed(_labels(log.groups), key)
        chosen = keyed[keyed % np.uint64(self.every) == 0]
        return np.asarray(_scramble(chosen) % np.uint64(self.size), np.int64)


def _episodes_of(chunk: Chunk) -> Hashes:
    return chunk.once(lambda: contents(chunk.log), "contents")


def _groups_of(chunk: Chunk) -> Hashes:
    """64 bits per group: the beginning of that of its episodes whose beginning is the least."""
    group, begun = chunk.log.group, _episodes_of(chunk)
    if len(group) == len(chunk.log.groups) and (group[1:] > group[:-1]).all():
        return begun  # every episode is a group
    content = np.full(len(chunk.log.groups), np.iinfo(np.uint64).max)
    np.minimum.at(content, group, begun)
    return content


def _every(n: int, most: int) -> int:
    """One of so many, a power of two, so that about `most` at most are left of n."""
    return int(1 << max(0, -(-n // most) - 1).bit_length())


def sketch(log: Source | Log, progress: Share | None = None) -> dict[str, Any]:
    """The samples of a log: marks of groups, how often two begin alike, episodes, names.

    Beginnings of groups are 64 bits that look random: they are compared range by range, so that no
    more of them are held at once than there is room for.
    """
    source = Chunk(log) if isinstance(log, Log) else log
    facts, room, digest = source.facts, source.room, source.digest()
    n = facts.n_groups
    passes = 1 if room is None else max(1, -(-2 * n // room))
    edges = [(1 << 64) * i // passes for i in range(passes + 1)]
    ranges = [BeginningsOf(low, above - 1) for low, above in itertools.pairwise(edges)]
    episodes = EpisodesOf(digest)
    every = _every(n, AT_MOST[1])
    size = round(n / every / np.log(2)) if facts.columns.get("group") else 0
    names = NamesOf(digest, every, size)
    (marks, first), ((seldom, kinds), bits) = source.reduce(
        Both(Both(MarksOf(digest), ranges[0]), Both(episodes, names)), progress
    )
    pairs = 0
    for some in itertools.chain([first], map(source.reduce, ranges[1:])):
        counts = some[1]
        pairs += int((counts * (counts - 1)).sum())
    begun = dict(sorted(episodes.marked(kinds).items()))
    kept = {"version": THREE, "alike": alike_of(n, pairs), "kept": marks}
    kept["episodes"] = {"of": facts.n_episodes, "every": seldom, "kept": begun}
    if size:
        packed = base64.b64encode(np.packbits(bits).tobytes()).decode()
        kept["names"] = {"of": n, "every": every, "size": size, "bits": packed}
    return kept


def seal(sample: Any, key: str) -> Any:
    """Marks made from the plain hashes that older files hold; any other sample stays as it is.

    `top`, the limit below which all label hashes are known, is rounded up so that it is not a hash.
    """
    if isinstance(sample, Mapping) or not sample:
        return sample
    label, content = (np.array([int(k[i : i + 8], 16) for k in sample], np.uint64) for i in (0, 8))
    top = (int(label.max()) >> 16) + 1
    marks = sorted(_mark(_key(key), k.encode()) for k in sample)
    return {"version": PLAIN, "alike": _alike(content), "top": top << 16, "kept": marks}


def sealed_origin(origin: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's provenance without plain hashes: every sample in it is sealed."""
    result = dict(origin)
    try:
        if "sample" in result:
            result["sample"] = seal(result["sample"], str(result.get("log")))
        sweep = result.get("sweep")
        if isinstance(sweep, Mapping) and "sample" in sweep:
            sample = seal(sweep["sample"], str(sweep.get("valid")))
            result["sweep"] = {**sweep, "sample": sample}
        for name in ("proposed", "certified"):
            if isinstance(result.get(name), Mapping):
                result[name] = sealed_origin(result[name])
    except (TypeError, ValueError, RecursionError) as error:
        raise _damaged() from error
    return result


def shared(sample: Any, key: str, log: Log) -> float:
    """The largest share of `log`, or of the log that the sample is of, which both seem to hold.

    `key` is the digest of the log the sample was taken from.
    """
    return max(shares(sample, key, log).values(), default=0.0)


def shares(sample: Any, key: str, log: Log) -> dict[str, float]:
    """What `log` has in common with a sampled one: groups, names and episodes, each as a share."""
    sample = seal(sample, key)
    if not sample or not sample["kept"] or not log.n_episodes:
        return {}
    if sample["version"] not in (PLAIN, KEYED, THREE):
        raise ValueError("a sample of another version")
    sampled, chunk = set(sample["kept"]), Chunk(log)
    # The sample holds all groups of its log up to its largest mark: so far, both can be compared.
    if sample["version"] == PLAIN:
        whole = _first_contents(log)
        content, label = whole >> HALF, _labels(log.groups, as_stored=True)
        marks = _plain_marks(label, content, key)
        known = label < np.uint64(sample["top"])
        near = [mark for mark, is_known in zip(marks, known, strict=True) if is_known]
    else:
        as_stored = sample["version"] == KEYED
        content = _first_contents(log) if as_stored else _groups_of(chunk)
        all_marks, top = keyed_marks(log.groups, content, key, as_stored), int(max(sampled), 16)
        marks = near = _shown(all_marks[all_marks <= np.uint64(top)].tolist())
    chance = float(np.sqrt(float(sample["alike"]) * _alike(content)))
    in_log, in_sample = len(sampled & set(marks)), sum(mark in sampled for mark in near)
    found = max(_kappa(in_log, len(sampled), chance), _kappa(in_sample, len(near), chance))
    result = {"groups": found}
    if "names" in sample and log.columns.get("group"):
        result["names"] = _same_names(sample["names"], key, log)
    if "episodes" in sample:
        result["episodes"] = _same_episodes(sample["episodes"], key, chunk)
    return result


def _same_names(names: Mapping[str, Any], key: str, log: Log) -> float:
    """The share of groups that are in both logs by their names; 0 unless chance cannot do it."""
    own = NamesOf(key, int(names["every"]), int(names["size"]))
    packed = np.frombuffer(base64.b64decode(names["bits"]), np.uint8)
    bits = np.unpackbits(packed, count=own.size).astype(bool)
    if len(bits) != own.size or own.every < 1:
        raise ValueError("a map of bits of another size")
    places = own.places(log)
    found = _kappa(int(bits[places].sum()), len(places), float(bits.mean()))
    return min(1.0, found * max(1.0, len(log.groups) / int(names["of"])))


def _same_episodes(episodes: Mapping[str, Any], key: str, chunk: Chunk) -> float:
    """The share of episodes in both logs by what happened; 0 unless chance cannot do it."""
    own, every = EpisodesOf(key), int(episodes["every"])
    now = own.marked(_some(every, own.all_of(chunk)))
    return _alike_episodes(episodes["kept"], now, int(episodes["of"]), chunk.log.n_episodes, every)


def beginnings_of(log: Log, key: str) -> dict[str, Any]:
    """How the episodes of a log begin, so that two logs can be compared later, with one `key`.

    Unlike those of a policy, which ones are kept is decided by their marks alone.
    """
    own = EpisodesOf(key)
    kept, every = own.marked(own.all_of(Chunk(log))), 1
    while len(kept) > AT_MOST[0]:
        every *= 2
        kept = _some_marks(every, kept)
    return {"of": log.n_episodes, "every": every, "kept": dict(sorted(kept.items()))}


def in_both(one: Mapping[str, Any], other: Mapping[str, Any], among: int) -> float:
    """The share of episodes that two logs have in common, by `beginnings_of` with one key.

    `among` is the number of such pairs of logs that are looked at: chance has as many chances.
    """
    every = max(int(one["every"]), int(other["every"]))
    before, now = (_some_marks(every, sample["kept"]) for sample in (one, other))
    return _alike_episodes(before, now, int(one["of"]), int(other["of"]), every, among)


def _some_marks(every: int, kept: Mapping[str, int]) -> dict[str, int]:
    return {mark: n for mark, n in kept.items() if int(mark, 16) % every == 0}


def _alike_episodes(
    before: Mapping[str, int], now: Mapping[str, int], n: int, m: int, every: int, among: int = 1
) -> float:
    """The share of n and m episodes that are in both logs, by how often beginnings occur in each.

    Of beginnings that occur twice in both logs together, d in all, so many as `apart` have one
    occurrence in each; chance would do that with probability q.
    """
    if not before and not now:
        return 0.0
    marks = {**before, **now}
    b, w = (np.array([log.get(mark, 0) for mark in marks]) for log in (before, now))
    N, p = b + w, n / (n + m)
    d, apart, q = int((N == 2).sum()), int((b * w == 1).sum()), 2 * n * m / ((n + m) * (n + m - 1))
    sigma = np.sqrt(16 + 2 * np.log(among))
    by_luck = among > 1 and bdtrc(apart - 1, d, q) * among > ONCE_IN
    if apart > q * d + sigma * np.sqrt(max(d * q * (1 - q), 1.0)) and not by_luck:
        once = min(int((counts == 1).sum()) for counts in (b, w))
        return float(min(1.0, (apart - q * d) / (1 - q) / once))
    off, spread, pairs = b - N * p, p * (1 - p), float((N * (N - 1.0)).sum())
    lacks = float((N * spread + (1 - 2 * p) * off - off**2).sum()) - pairs * spread / (n + m - 1)
    copies, error = lacks / (2 * spread), np.sqrt(pairs / 2)
    share = float(min(1.0, copies / max(1, min(b.sum(), w.sum()))))
    # Equal in every count: of logs drawn apart about one in ∏ √(2π N p (1 - p)), one kind left out.
    by_chance = -0.5 * float(np.log(2 * np.pi * np.sort(N)[:-1] * spread).sum())
    if every == 1 and n == m and not off.any() and by_chance < np.log(1e-6):
        return 1.0
    return share if copies > sigma * error and share > MOST else 0.0


def seen(origin: Mapping[str, Any], log: Log) -> str:
    """What `log` shares with the logs behind a policy with this provenance; '' if nothing."""
    try:
        sweep: Mapping[str, Any] = origin.get("sweep") or {}
        certified: Mapping[str, Any] = origin.get("certified") or {}
        log = _with_columns(log, origin.get("columns", {}).get("state"))
        digest = log.digest()
        for digest_before, sample, which in (
            (origin.get("log"), origin.get("sample"), say("the policy was learned from")),
            (sweep.get("train"), None, say("the policy was learned from")),
            (sweep.get("valid"), sweep.get("sample"),
             say("the policy was picked on, out of {n}", n=sweep.get('settings'))),
            (certified.get("log"), certified.get("sample"), say("the policy was certified on")),
        ):  # fmt: skip
            if digest == digest_before:
                return say("this is the log {which}", which=word(which))
            found = shares(sample or (), str(digest_before), log)
            how = max(found, key=found.__getitem__, default="")
            if how and found[how] > TOO_MUCH:
                return _in_both(how, 100 * found[how], str(log.columns.get("group")), which)
        before = origin.get("proposed")  # what was learned from one log and gated on another
        logs = (*origin.get("others", ()), *(() if before is None else (before,)))
        return next((what for facts in logs if (what := seen(facts, log))), "")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged() from error


def _with_columns(log: Log, names: Any) -> Log:
    """A log with these features alone, in this order, if it has them."""
    have = log.feature_names
    if not isinstance(names, list | tuple) or have == tuple(names):
        return log
    if log.features is None or not set(names) <= set(have):
        return log
    at = [have.index(name) for name in names]
    levels = tuple(log.levels[j] for j in at) if log.levels else ()
    named = tuple(have[j] for j in at)
    return replace(log, features=log.features[:, at], feature_names=named, levels=levels)


def _in_both(how: str, p: float, group: str, which: Any) -> str:
    """What two logs have in common, in words."""
    if how == "names":
        return say(
            "about {p:.0f} % of the groups by {group!r} are also in the log {which}, with other "
            "episodes (groups that are not the same need other labels)",
            p=p, group=group, which=word(which),
        )  # fmt: skip
    if how == "episodes":
        return say(
            "about {p:.0f} % of a sample of episodes happened in the same way, perhaps under other "
            "labels, in the log {which}",
            p=p, which=word(which),
        )  # fmt: skip
    return say(
        "about {p:.0f} % of a sample of groups is also in the log {which}", p=p, which=word(which)
    )


def cannot_tell(origin: Mapping[str, Any]) -> str:
    """Why it cannot be known which logs the policy has seen; '' where it is on record."""
    before = origin.get("proposed")
    for facts in (origin, before if isinstance(before, Mapping) else {}):
        if facts.get("public"):
            return PUBLIC
        if facts.get("n_sites"):
            return COUNTED
    return ""


PUBLIC = say(
    "the policy is a public copy, without a record of the logs it comes from: whether it has seen "
    "this log cannot be told"
)
COUNTED = say(
    "the policy was learned from counts of sites that shared no rows: whether it has seen this "
    "log cannot be told"
)


UNRECORDED = say(
    "the policy has no record of the log it was learned from (dprl.CallablePolicy and "
    "dprl.StochasticPolicy take it: trained_on=log): whether it has seen this log cannot be told"
)


def ungrouped(origin: Mapping[str, Any], log: Log) -> str:
    """Why groups in both logs would not be noticed: this one names none; '' where it does."""
    group = origin.get("columns", {}).get("group")
    if not group or log.columns.get("group"):
        return ""
    return say(
        "the log the policy was learned from has groups by {group!r}, and this one names none: "
        "whether it has seen them cannot be told",
        group=str(group),
    )


def _damaged() -> PolicyError:
    return PolicyError(
        "the policy's record of the logs it comes from is damaged.", do="Fit it again."
    )


def _alike(content: Hashes) -> float:
    """The chance that two groups, drawn without replacement, begin alike."""
    return alike_of(len(content), twins(content))


def twins(content: Hashes) -> int:
    """How many ordered pairs of different groups begin alike."""
    counts = np.unique(content, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1)).sum())


def alike_of(n: int, pairs: int) -> float:
    """The chance that two of n groups begin alike, if `pairs` ordered pairs of them do."""
    return pairs / (n * (n - 1)) if n > 1 else 1.0


def _kappa(matches: int, n: int, c: float) -> float:
    """Agreement beyond chance c, if `matches` of n agree."""
    if n < ENOUGH or c >= 1:
        return 0.0
    m = matches / n
    error = np.sqrt(max(c * (1 - c), 1 / n) / n)
    return (m - c) / (1 - c) if m > c + 4 * error else 0.0


# -- hashing ----------------------------------------------------------------------------------


def _key(digest: str) -> bytes:
    return hashlib.blake2b(digest.encode(), digest_size=32, person=b"dprl sample").digest()


def _mark(key: bytes, what: bytes) -> str:
    return hashlib.blake2b(what, key=key, digest_size=8).hexdigest()


def keyed_marks(
    groups: Sequence[Label], content: Hashes, digest: str, as_stored: bool = False
) -> Hashes:
    """One mark per group, from its label and its content; `as_stored`: text is not a number."""
    many = None if as_stored else Labels.of(groups)
    if many is not None and many.ascii:
        from dprl._core import letters

        result = np.empty(len(many), np.uint64)
        h = letters.keyed(_key(digest))
        letters.keyed_marks(many.ends, many.data, many.numbers, content, h, result)
        return result
    text = groups and isinstance(groups[0], str)
    kind = b"text " if as_stored and text else b"number " if as_stored else b""
    begun = hashlib.blake2b(kind, key=_key(digest), digest_size=8)  # the same for all groups
    begins = content.astype("<u8").tobytes()
    marks = []
    for group, place in zip(groups, range(0, len(begins), 8), strict=True):
        word = str((group if text else int(group)) if as_stored else label_key(group))
        mark = begun.copy()
        mark.update(word.encode("utf-8", "surrogatepass") + b"|" + begins[place : place + 8])
        marks.append(int.from_bytes(mark.digest(), "big"))
    return np.array(marks, np.uint64)


def _shown(marks: Iterable[int]) -> list[str]:
    """Marks as they are kept; they sort as the numbers do."""
    return [f"{mark:016x}" for mark in marks]


def _plain_marks(label: Hashes, content: Hashes, digest: str) -> list[str]:
    key = _key(digest)
    return [
        _mark(key, f"{a:08x}{b:08x}".encode())
        for a, b in zip(label.tolist(), content.tolist(), strict=True)
    ]


def contents(log: Log, as_stored: bool = False) -> Hashes:
    """64 bits per episode: how it began, and how long it was; `as_stored`: labels by their kind."""
    from dprl._core.letters import mix_in

    content = _scramble(log.lengths.astype(np.uint64))
    actions, states = _labels(log.actions, as_stored), _labels(log.states, as_stored)
    for t in range(STEPS):
        long_enough = np.flatnonzero(log.lengths > t)
        row = log.starts[long_enough] + t
        columns = [_bits(log.reward[row], as_stored), actions[log.action[row]]]
        if log.state is not None:
            columns.append(states[log.state[row]])
        elif log.features is not None:
            columns += [_feature(log, row, i, as_stored) for i in range(log.features.shape[1])]
        for column in columns:
            mix_in(content, long_enough, column)
    return content


def log_mark(log: Log) -> int:
    """64 bits of a log, whatever its order and the types of its labels; those of parts add up."""
    return int(_mixed(contents(log), _labels(log.episodes)).sum(dtype=np.uint64))


def _first_contents(log: Log) -> Hashes:
    """64 bits per group, as files before version 3 have them: of its first episode."""
    return contents(log, as_stored=True)[np.unique(log.group, return_index=True)[1]]


def _feature(log: Log, row: NDArray[np.int64], i: int, as_stored: bool) -> Hashes:
    """64 bits per row of feature i: a number by its bits, a label by its characters."""
    assert log.features is not None
    column, labels = log.features[row, i], log.levels[i] if log.levels else None
    if labels is None:
        return _bits(column, as_stored)
    gone = np.isnan(column)
    codes = np.where(gone, len(labels), np.nan_to_num(column)).astype(np.int64)
    return np.append(_labels(labels, as_stored), _bits(np.array([np.nan])))[codes]


def _labels(labels: Sequence[Label], as_stored: bool = False) -> Hashes:
    """32 bits per label: whole numbers by value, text by its characters.

    Text that is a whole number counts as that number, unless it is to be taken `as_stored`.
    """
    many = Labels.of(labels)
    if many is not None and many.is_text and many.ascii:
        from dprl._core.letters import label_hashes

        hashes = np.empty(len(many), np.uint64)
        label_hashes(many.ends, many.data, as_stored, hashes)
        return hashes >> HALF
    if many is not None and not many.is_text:
        return _scramble(many.numbers.view(np.uint64)) >> HALF
    if str not in set(map(type, labels)):
        return _scramble(np.array(labels, np.int64).view(np.uint64)) >> HALF
    if not as_stored:
        keys = [label_key(label) for label in labels]
        numbers = np.array([isinstance(key, int) for key in keys])
        result = np.empty(len(keys), np.uint64)
        result[numbers] = _labels([key for key in keys if isinstance(key, int)])
        result[~numbers] = _labels([key for key in keys if isinstance(key, str)], as_stored=True)
        return result
    text = np.array(labels, np.str_)
    letters = text.view(np.uint32).reshape(len(text), -1)
    total = np.zeros(len(text), np.uint64)
    for i in range(letters.shape[1]):
        column = letters[:, i].astype(np.uint64)
        total = np.where(column > 0, _mixed(total, column), total)  # not how long others are
    return _scramble(total) >> HALF


def _bits(numbers: NDArray[np.float64], as_stored: bool = True) -> Hashes:
    """The bits of numbers; else of what is left of them in a file of 32 bits."""
    if not as_stored:
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)
    return np.ascontiguousarray(numbers + 0.0).view(np.uint64)


def _mixed(a: Hashes, b: Hashes | np.uint64) -> Hashes:
    return _scramble(_scramble(a) + b)


def _scramble(x: Hashes) -> Hashes:
    """The finaliser of SplitMix64: a permutation that leaves no pattern."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
