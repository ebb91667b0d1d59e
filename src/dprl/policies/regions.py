"""Region: a part of the feature space in words and numbers, and one change made in it.

A query x lies in a region if low <= x_i < high for every feature the region names. Ranges are half
open, so that two regions that share an edge share no point. A policy that is limited to regions
(see `dprl.policies.table`) keeps a suggestion only where a region holds the state *and* names
the same usual and suggested action: whatever it says, the policy it came from says too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.words import joined, say
from dprl.errors import PolicyError
from dprl.logs.encoding.categories import TRUTH
from dprl.logs.encoding.encoder import Encoding, flag_of
from dprl.logs.log import Label
from dprl.policies.explain import change_words, surest_first
from dprl.policies.protocol import Decisions, Kind
from dprl.policies.rules.rule import day_words, label_words
from dprl.policies.spaces import FeatureSpace

# --- Region: a part of the feature space in words and numbers, and one change made in it


class Range(NamedTuple):
    """low <= feature < high."""

    feature: str
    low: float
    high: float


def range_words(
    ranges: Sequence[Range], whole: Mapping[str, bool], encoding: Encoding | None = None
) -> str:
    """Ranges as people say them: labels, gaps and dates as the log had them.

    Args:
        ranges: The ranges.
        whole: Feature → whether it is whole numbers.
        encoding: How the columns of the log became features. Default None: they are its columns.
    """
    sources = {} if encoding is None else _sources(encoding)

    def one(r: Range) -> str:
        if r.feature in sources:
            return sources[r.feature](r)
        if whole[r.feature] and r.high - r.low == 1:
            return say("{feature} = {x:.12g}", feature=r.feature, x=r.low)
        return say(
            "{feature} {low:.12g} to under {high:.12g}", feature=r.feature, low=r.low, high=r.high
        )

    return joined(" · ", (one(r) for r in ranges)) or say("anywhere")


def _sources(encoding: Encoding) -> dict[str, Callable[[Range], str]]:
    """Feature → how a range of it is told, for those that are not columns of the log as they are.

    An indicator, a flag or a truth value is 0 or 1, so a range holds one of them, or both.
    """

    def told(yes: str, no: str) -> Callable[[Range], str]:
        return lambda r: (
            say("{yes} or not", yes=yes)
            if r.low <= 0 and r.high > 1
            else yes
            if r.low <= 1 < r.high
            else no
        )

    ways: dict[str, Callable[[Range], str]] = {}
    for name, labels in encoding.columns.items():
        if name in encoding.days:
            ways[name] = lambda r: say(
                "{feature} {first} to under {last}",
                feature=r.feature,
                first=day_words(r.low),
                last=day_words(r.high),
            )
        if labels is None:
            ways[flag_of(name)] = told(
                say("{feature} missing", feature=name), say("{feature} known", feature=name)
            )
        elif labels == TRUTH:
            ways[name] = told(
                *(say("{feature} is {labels}", feature=name, labels=x) for x in ("true", "false"))
            )
        else:
            for label in labels:
                word = label_words(label)
                ways[f"{name}={label}"] = told(
                    say("{feature} is {labels}", feature=name, labels=word),
                    say("{feature} is not {label}", feature=name, label=word),
                )
    return ways


@dataclass(frozen=True)
class Region:
    """Where one change is made.

    Attributes:
        usual: The usual action there, in words ("a or b" where two share the first place).
        suggested: The action suggested in its place.
        ranges: What a state must satisfy; features not named may be anything.
    """

    usual: Label
    suggested: Label
    ranges: tuple[Range, ...]

    def holds(self, x: Floats, names: Sequence[str]) -> Bools:
        """bool (k,): which states x (k, d) lie inside."""
        inside = np.ones(len(x), bool)
        for feature, low, high in self.ranges:
            column = x[:, list(names).index(feature)]
            inside &= (column >= low) & (column < high)
        return inside

    def to_dict(self) -> dict[str, Any]:
        """As a policy file keeps it."""
        return {
            "usual": self.usual,
            "suggested": self.suggested,
            "ranges": [[r.feature, r.low, r.high] for r in self.ranges],
        }

    @classmethod
    def from_dict(cls, given: Any, features: Sequence[str], actions: Sequence[Label]) -> Region:
        """The region a policy file holds; a PolicyError if it is none."""
        try:
            ranges = tuple(
                Range(str(f), float(low), float(high)) for f, low, high in given["ranges"]
            )
            region = cls(given["usual"], given["suggested"], ranges)
        except (TypeError, KeyError, ValueError) as error:
            raise _odd(given) from error
        named = [r.feature for r in ranges]
        good = (
            isinstance(region.usual, str | int)
            and region.suggested in actions
            and len(set(named)) == len(named)
            and set(named) <= set(features)
            and all(math.isfinite(r.low) and r.low < r.high < math.inf for r in ranges)
        )
        if not good:
            raise _odd(given)
        return region


def _odd(given: Any) -> PolicyError:
    return PolicyError("a policy cannot be limited to this region.", repr(given)[:200])


def read_layers(
    given: Any, features: Sequence[str], actions: Sequence[Label]
) -> tuple[tuple[Region, ...], ...]:
    """The regions a policy is limited to: it speaks only inside some region of every layer."""
    if given is None:
        return ()
    if not isinstance(given, list | tuple) or not all(isinstance(x, list | tuple) for x in given):
        raise _odd(given)
    return tuple(tuple(Region.from_dict(r, features, actions) for r in layer) for layer in given)


# --- Regions: what a policy changes, told as a few ranges of features that are mostly true
#
# The rule, for the steps of a log and the change that a policy makes at each of them (from this
# usual action to that suggestion; none where it is silent or confirms):
#
# 1. *Fit* a tree of depth DEPTH to what the policy does (`dprl.planning.tree`): its leaves hold as
#    many steps of one change as they can, beyond half of the steps in them. Cuts are round numbers
#    between two values of the log, at quantiles. With many features the tree is searched over few
#    cuts first, and then over many cuts of the features that it uses; at last over cuts close to
#    those that it has.
# 2. *Describe* the steps of a leaf that make its change by ranges: the ranges of the cuts, drawn
#    close around these steps. Then take the feature whose range over these steps shuts out the most
#    other steps, until nine in ten steps inside make the change, no feature shuts out a tenth of
#    what is left, or FEATURES are named. Every one of these steps stays inside.
# 3. If fewer than TRUE (two in three) of the steps inside make the change, fit a tree of depth 2 in
#    the leaf, with leaves beyond two in three, and describe its leaves.
# 4. Keep what is *true*: at least two in three steps inside make the change, and they are at least
#    LEAST and a hundredth of all changed steps (or all the steps of this change). Of these, the
#    REGIONS with the most steps. Changes at other steps are in no region: nobody can tell them in
#    so few words.
#
# So no step is in two regions. *Purity* is the share of the log's steps inside that make the
# change. All steps inside are counted; a tree is fitted to at most SEARCHED of them. Ties go to the
# first feature and the lowest threshold: equal input, equal regions.
#
# Ranges are rounded outwards in units of about a hundredth of the feature's spread from the 5th to
# the 95th percentile (in whole numbers where it has no others).

REGIONS = 12
"""Largest number of regions, and of different changes that a tree is fitted to."""
TRUE = 2 / 3
"""Least share of the steps inside a region that make its change."""
DEPTH, LEAST, FEATURES, PURE = 3, 10, 4, 0.9
DOUBT = 2.0
"""Standard errors by which a leaf must lie above the share asked of it: small ones owe it to
luck."""
FEW, COARSE, FINE = 8, 16, 64
"""Number of features that are searched over FINE cuts at once; more are searched over COARSE cuts
first."""
WORTH = 0.1
"""Share of the steps still inside that a further feature must shut out."""
SEARCHED, MOST = 10_000, 20_000
"""Steps that a tree is fitted to, and other steps that ranges are chosen by where there is no tree;
purity counts all steps."""

Bounds: TypeAlias = dict[int, tuple[float, float]]
Edges: TypeAlias = dict[int, Floats]
"""Feature → its cuts, ascending: x < cut is below."""
Cuts: TypeAlias = list[tuple[int, float, bool]]
"""(feature, cut, whether below it), from the root of a tree to a leaf."""
Made: TypeAlias = tuple[Label, Label]


class Group(NamedTuple):
    """A region and the log's steps behind it.

    Attributes:
        region: Where, from what, to what.
        inside: The steps inside, ascending.
        rows: Those of them that make the change.
        purity: Their share of all steps inside.
    """

    region: Region
    inside: Ints
    rows: Ints
    purity: float


def group(
    x: Floats,
    names: Sequence[str],
    changes: Sequence[Made | None],
    usable: Sequence[int] | None = None,
) -> list[Group]:
    """The regions of all changes, those with the most steps first.

    Args:
        x: float64 (N, d), the steps' features.
        names: The d features.
        changes: (usual, suggested) at each step, None where nothing changes.
        usable: Which features may describe a region; all by default.
    """
    steps = Counter(c for c in changes if c is not None)
    kinds = sorted(steps, key=lambda c: (-steps[c], str(c[0]), str(c[1])))[:REGIONS]
    number = {c: i for i, c in enumerate(kinds)}
    made = np.array([-1 if c is None else number.get(c, -1) for c in changes], np.int32)
    usable = list(range(x.shape[1]) if usable is None else usable)
    search = _Search(x, made, len(kinds), usable)
    groups = []
    for kind, bounds in search.regions() if kinds else ():
        region = Region(*kinds[kind], tuple(Range(names[j], *bounds[j]) for j in bounds))
        inside = region.holds(x, names)
        rows = np.flatnonzero(inside & (made == kind))
        purity = len(rows) / int(inside.sum())
        least = min(max(LEAST, steps.total() / 100), steps[kinds[kind]])
        if purity >= TRUE and len(rows) >= least:
            groups.append(Group(region, np.flatnonzero(inside), rows, purity))
    groups.sort(key=lambda g: -len(g.rows))
    return groups[:REGIONS]


def ranges_of(
    x: Floats, names: Sequence[str], rows: Ints, usable: Sequence[int]
) -> tuple[Range, ...]:
    """Ranges that hold the steps `rows` (ascending) and shut out others, by the second rule above.

    They tell where these steps are; other steps may lie inside too.
    """
    others = np.delete(np.arange(len(x)), rows)
    if len(others) > MOST:
        others = others[np.linspace(0, len(others) - 1, MOST).astype(np.int64)]
    bounds, _ = _describe(x, {j: _Grid.of(x[:, j]) for j in usable}, rows, others, {})
    return tuple(Range(names[j], *bounds[j]) for j in bounds)


class _Search:
    """Ranges in which a policy makes mostly one change; made (N,): its number, -1 for none."""

    def __init__(self, x: Floats, made: Codes, kinds: int, usable: list[int]) -> None:
        self.x, self.made, self.kinds, self.usable = x, made, kinds, usable
        self.grids = {j: _Grid.of(x[:, j]) for j in usable}

    def regions(self) -> Iterator[tuple[int, Bounds]]:
        """The change and the ranges of each region: steps 1 to 3."""
        every = np.arange(len(self.x))
        for path in self._tree(every, DEPTH, 1 / 2, {}):
            rows = self._within(every, path)
            kind, bounds, purity = self._told(rows, path)
            if purity >= TRUE:
                yield kind, bounds
            elif kind >= 0:
                for deeper in self._tree(rows, 2, TRUE, path):
                    kind, bounds, purity = self._told(self._within(rows, deeper), deeper)
                    if purity >= TRUE:
                        yield kind, bounds

    def _within(self, rows: Ints, path: Bounds) -> Ints:
        """The steps `rows` that lie in the ranges of `path`."""
        for j, (low, high) in path.items():
            rows = rows[(self.x[rows, j] >= low) & (self.x[rows, j] < high)]
        return rows

    def _told(self, rows: Ints, path: Bounds) -> tuple[int, Bounds, float]:
        """The change most often made at `rows`, its ranges within `path`, and their purity."""
        counts = np.bincount(self.made[rows] + 1, minlength=self.kinds + 1)[1:]
        kind = int(counts.argmax())
        if not counts[kind]:
            return -1, {}, 0.0
        mine = self.made[rows] == kind
        bounds, others = _describe(self.x, self.grids, rows[mine], rows[~mine], path)
        return kind, bounds, int(mine.sum()) / (int(mine.sum()) + len(others))

    def _tree(self, rows: Ints, depth: int, share: float, path: Bounds) -> list[Bounds]:
        """The leaves of a tree over the steps `rows`, as ranges within `path`."""
        if len(rows) > SEARCHED:
            rows = rows[np.linspace(0, len(rows) - 1, SEARCHED).astype(np.int64)]
        features = self.usable
        if len(features) > FEW:
            features = _used(self._leaves(rows, self._edges(rows, features, COARSE), depth, share))
        edges = self._edges(rows, features, FINE)
        tree = self._leaves(rows, edges, depth, share)
        edges = self._edges_near(rows, tree, edges)
        tree = self._leaves(rows, edges, depth, share)
        return [_narrowed(path, leaf) for leaf in tree]

    def _edges(self, rows: Ints, features: list[int], most: int) -> Edges:
        """At most `most` cuts of each of these features, at quantiles."""
        return {j: _edges(self.x[rows, j], most, self.grids[j].whole) for j in features}

    def _edges_near(self, rows: Ints, tree: list[Cuts], edges: Edges) -> Edges:
        """The cuts of a tree and others near them: no farther than the next of the old cuts."""
        near = {}
        for j in _used(tree):
            column = self.x[rows, j]
            cuts = np.unique([cut for leaf in tree for f, cut, _ in leaf if f == j])
            old = np.concatenate(([-math.inf], edges[j], [math.inf]))
            at = np.searchsorted(old, cuts)
            beside = np.zeros(len(column), bool)
            for low, high in zip(old[at - 1], old[at + 1], strict=True):
                beside |= (column >= low) & (column < high)
            close = _edges(column[beside], FINE, self.grids[j].whole)
            near[j] = np.unique(np.concatenate((cuts, close)))
        return near

    def _leaves(self, rows: Ints, edges: Edges, depth: int, share: float) -> list[Cuts]:
        """The cuts that lead to each leaf of the best tree over these cuts of features."""
        if not edges:
            return [[]]
        features, made = list(edges), self.made[rows]
        codes = [np.searchsorted(edges[j], self.x[rows, j], "right") for j in features]
        from dprl.planning.tree import Bins, best_tree, leaves  # needs a compiler

        tree = best_tree(
            Bins(tuple(edges.values()), np.stack(codes, axis=1).astype(np.uint8)),
            made[:, None] == np.arange(self.kinds), made, depth=depth,
            kappa=np.full(self.kinds, DOUBT), least=0, margin=share,
        )  # fmt: skip
        return [[(features[f], cut, below) for f, cut, below in path] for path, _ in leaves(tree)]


def _used(tree: list[Cuts]) -> list[int]:
    """The features that the cuts of a tree are of, ascending."""
    return sorted({j for leaf in tree for j, _, _ in leaf})


def _narrowed(path: Bounds, leaf: Cuts) -> Bounds:
    """The ranges of `path`, narrowed by the cuts that lead to a leaf."""
    narrowed = dict(path)
    for j, cut, below in leaf:
        low, high = narrowed.get(j, (-math.inf, math.inf))
        narrowed[j] = (low, min(high, cut)) if below else (max(low, cut), high)
    return narrowed


def _edges(column: Floats, most: int, whole: bool) -> Floats:
    """At most `most` round numbers between two values of `column`, at its quantiles."""
    levels = np.unique(column)
    shares = np.arange(1, most + 1) / (most + 1)
    below = np.unique(np.quantile(column, shares, method="inverted_cdf"))
    below = below[below < levels[-1]]
    above = levels[np.searchsorted(levels, below, "right")]
    return np.array([_between(a, b, whole) for a, b in zip(below, above, strict=True)])


def _between(a: float, b: float, whole: bool) -> float:
    """A number t with a < t <= b that has few digits; a whole one where `whole`."""
    if whole:
        return float(a) + 1
    for digits in range(1, 17):
        t = float(f"{(a + b) / 2:.{digits}g}")
        if a < t <= b:
            return t
    return float(b)


def _describe(
    x: Floats, grids: dict[int, _Grid], rows: Ints, others: Ints, path: Bounds
) -> tuple[Bounds, Ints]:
    """The ranges of step 2, and the other steps that lie inside."""

    def tight(j: int) -> tuple[float, float]:
        low, high = path.get(j, (-math.inf, math.inf))
        down, up = grids[j].around(float(x[rows, j].min()), float(x[rows, j].max()))
        return max(low, down), min(high, up)

    def outside(j: int, inside: Ints) -> Bools:
        low, high = tight(j)
        return np.asarray((x[inside, j] < low) | (x[inside, j] >= high))

    bounds: Bounds = {}
    inside = others
    for j in path:
        bounds[j], inside = tight(j), inside[~outside(j, inside)]
    while len(rows) < PURE * (len(rows) + len(inside)) and len(bounds) < FEATURES:
        lost = {j: int(outside(j, inside).sum()) for j in grids if j not in bounds}
        best = max(lost, key=lambda j: lost[j], default=-1)  # the first of equals
        if best < 0 or lost[best] < max(1.0, WORTH * len(inside)):
            break
        bounds[best], inside = tight(best), inside[~outside(best, inside)]
    return bounds, inside


class _Grid(NamedTuple):
    """The round numbers of a feature: multiples of 10^-digits."""

    digits: int
    whole: bool

    @classmethod
    def of(cls, column: Floats) -> _Grid:
        whole = bool((column == np.floor(column)).all()) and bool((np.abs(column) < 1e15).all())
        low, high = np.quantile(column, [0.05, 0.95])  # a few far out must not make it coarse
        spread = float(high - low) or float(np.ptp(column)) or float(np.abs(column).max()) or 1.0
        return cls(0 if whole else 2 - math.floor(math.log10(spread)), whole)

    def around(self, low: float, high: float) -> tuple[float, float]:
        """Round numbers with down <= low and high < up."""
        for digits in range(self.digits, self.digits + 20):
            unit = 10.0**-digits
            down = round(math.floor(low / unit) * unit, digits)
            up = round((math.floor(high / unit) + 1) * unit, digits)
            if down <= low and high < up:
                return down, up
        return low, math.nextafter(high, math.inf)


# --- Situation: where a policy makes one change, and the steps of a log that lie there
#
# Labels, cells and rules give one situation per state, cell or rule. Other features give regions:
# ranges of features in which the change is made at most of the log's steps
# (`dprl.policies.regions`). Changes at other steps are in no situation.


@dataclass(frozen=True, eq=False)
class Situation:
    """One change of a policy and the steps of a log it is about.

    Attributes:
        words: Where, in words.
        state: The state's label, the cell's number, or the words of a rule; None where it is a
            region.
        region: The region; None where it is a state.
        typical: (name, value) of a typical state; empty for labels.
        rows: int64, the log's steps in the situation.
        made: int64, those at which the policy makes the change.
        purity: Share of `rows` at which it does.
        here: Decisions, of which number `s` tells the numbers of the change.
        s: That number.
        confirmed: Share of `rows` at which it confirms the usual action.
        deferred: Share of `rows` at which it is silent.
    """

    words: str
    state: Label | None
    region: Region | None
    typical: tuple[tuple[str, float | str], ...]
    rows: Ints
    made: Ints
    purity: float
    here: Decisions
    s: int
    confirmed: float = 0.0
    deferred: float = 0.0


def at_states(
    here: Decisions,
    codes: Ints,
    words: Callable[[int, Ints], str],
    typical: Callable[[int], tuple[tuple[str, float | str], ...]] = lambda s: (),
) -> list[Situation]:
    """One situation per changed state, the surest first; codes (N,): the state of each step."""
    situations = []
    for s in surest_first(here, np.flatnonzero(here.changes)).tolist():
        rows = np.flatnonzero(codes == s)
        situations.append(
            Situation(words(s, rows), here.states[s], None, typical(s), rows, rows, 1.0, here, s)
        )
    return situations


def in_regions(
    here: Decisions, space: FeatureSpace, x: Floats, z: Floats | None = None
) -> list[Situation]:
    """One situation per region of the changes `here` made at states x (N, d), at coordinates z.

    The numbers of a region are those of the step nearest to the median of its steps.
    """
    z = space.coordinates(x) if z is None else z
    names, whole, situations = space.feature_names, whole_numbers(space, x), []
    for one in group(x, names, change_words(here), space.used):
        typical = int(one.rows[_from_median(z[one.rows]).argmin()])
        state = space.shown(x[typical], range(len(names)))
        kinds = here.kind[one.inside]
        situations.append(
            Situation(
                range_words(one.region.ranges, whole, space.encoding), None, one.region, state,
                one.inside,
                one.rows, one.purity, here, typical,
                confirmed=float((kinds == Kind.CONFIRM).mean()),
                deferred=float((kinds == Kind.DEFER).mean()),
            )
        )  # fmt: skip
    return situations


def whole_numbers(space: FeatureSpace, x: Floats) -> dict[str, bool]:
    """Which of the features that count are whole numbers at all states x (N, d)."""
    return {space.feature_names[j]: bool((x[:, j] == np.floor(x[:, j])).all()) for j in space.used}


def _from_median(z: Floats) -> Floats:
    """float64 (k,): squared distances of coordinates z (k, d') from their median."""
    return np.asarray(((z - np.median(z, axis=0)) ** 2).sum(axis=1))
