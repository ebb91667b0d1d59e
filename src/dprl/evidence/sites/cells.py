r"""What a site counts, and what it does not give away.

Let m(s,a) be the groups that took a at their first visit of s, and n(s) their sum over actions.

* n(s) < k: nothing is given away about s. Where every group visits one state, the number of groups
  less those of all other states would give n(s) away: then the next smaller states are left out
  too, until k groups are.
* Else the cells 0 < m(s,a) < k make the *rest*. If they are a single cell, or fewer than k groups
  together, the smallest other cells join until they are two cells and k groups. The rest is given
  away as one: its count, its sums, its bins.
* The later occurrences of a pair are given away if they are of at least k groups, and the pair is
  not in the rest. A pair is given away whole or not at all: Q̂(s,a) is about the first visits and
  the later ones, who differ, and without the later ones it would be about other people. So a pair
  whose later occurrences are of some groups, and fewer than k, is in the rest.

So n(s) less all cells of s that are given away is 0 or the rest, which is of at least k groups, and
of two actions where one of them is a small cell: nobody gets a small cell as a difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.checks import check_whole
from dprl._core.exact import COUNT, NOTHING
from dprl.errors import LogError, ParameterError
from dprl.evidence.counts import FIRST, LATER, Evidence, availability, count
from dprl.evidence.sites import evidence as _site_bins
from dprl.evidence.sites.evidence import EMPTY, REST, SiteEvidence, SiteSchema, add_parts, sealed
from dprl.logs.censoring import treat_cut
from dprl.logs.follow_up import window_of
from dprl.logs.log import Label, Log, check_log
from dprl.logs.overlap import log_mark
from dprl.logs.returns import first_of, first_visits, refuse_outside, returns
from dprl.logs.source import refuse_completed

USUAL_K = 10
"""The fewest groups of a cell, where a site does not say."""


def site_evidence(
    log: Log, schema: SiteSchema, *, k: int = USUAL_K, site: str = ""
) -> SiteEvidence:
    """What a site gives away about its log: sums over the schema's labels, no rows.

    Args:
        log: The site's log, with labelled states.
        schema: States, actions, discount and range that all sites agreed on beforehand.
        k: The fewest groups of anything that is given away about a state: a whole number >= 1.
            Smaller cells are suppressed. Default 10; 1 suppresses nothing.
        site: A name for the site, for people. Default "".

    Returns:
        The evidence, to be saved, sent and merged.

    Raises:
        LogError: The log has labels that are not in the schema, a return lies outside the range, or
            the log has fewer than k groups.
        ParameterError: k is no whole number, or schema no schema.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0, value_range=(0, 1))
        >>> dprl.site_evidence(log, schema, k=20, site="north")
        <SiteEvidence: 1 site, 500 groups, 8 states, 4 actions; 19 pairs suppressed>
    """
    if not isinstance(schema, SiteSchema):
        raise ParameterError(
            f"a schema is needed; got an object of type {type(schema).__name__}.",
            do="Make one with dprl.SiteSchema(...), or read it with dprl.SiteSchema.load(path).",
        )
    k = check_whole("k", k, 1)
    if not isinstance(site, str) or len(site) > 200:
        raise ParameterError("site must be a name of at most 200 characters.")
    return as_site([whole_evidence(log, schema)], k=k, site=site)


def whole_evidence(log: Log, schema: SiteSchema) -> SiteEvidence:
    """All that a log says, with nothing suppressed, before it is that of a site."""
    if log.facts.outcome.falls:
        raise ParameterError(
            "sites count outcomes of which more is better, and in this log less is.",
            log.facts.outcome.words(),
            "Give every site a column with the sign changed, and read the logs without better.",
        )
    log = in_schema(log, schema)
    settled = treat_cut(log, schema.gamma, schema.cut, reads="returns").gathered()
    whole, _ = count(settled, schema.gamma)
    nothing = np.zeros(whole.n_pair.shape, bool)
    facts = {
        "site": "", "part": "", "k": 1, "episodes": log.n_episodes, "groups": len(log.groups),
        "cut_episodes": len(log.cut_episodes), "pairs": 0, "later": 0, "states": 0, "visits": 0,
        "grouped": log.groups != log.episodes, "timed": log.time is not None,
        "log": f"{log_mark(log):016x}",
    }  # fmt: skip
    if log.propensity is not None:
        at = ~np.isnan(log.propensity)
        facts["chances"] = "all" if at.all() else "some" if at.any() else "none"
    return SiteEvidence(
        schema,
        _with_rest(whole, nothing, nothing[:, 0], nothing),
        np.bincount(settled.codes(), minlength=len(schema.states)).astype(np.int64),
        _bins(settled, schema),
        availability(log),
        (facts,),
    )


def added(parts: Sequence[SiteEvidence]) -> SiteEvidence:
    """Parts of one log, of which no group is in two, as one: as `whole_evidence` of it all."""
    facts = [part.sites[0] for part in parts]
    total = {n: sum(f[n] for f in facts) for n in ("episodes", "groups", "cut_episodes")}
    own = {
        **facts[0], **total, "grouped": any(f["grouped"] for f in facts),
        "timed": all(f["timed"] for f in facts),
    }  # fmt: skip
    if "log" in own:
        own["log"] = f"{sum(int(f['log'], 16) for f in facts) % (1 << 64):016x}"
    chances = {f.get("chances", "none") for f in facts}
    if any("chances" in f for f in facts):
        own["chances"] = chances.pop() if len(chances) == 1 else "some"
    return add_parts(parts, [own])


def as_site(parts: Sequence[SiteEvidence], *, k: int, site: str) -> SiteEvidence:
    """What a site gives away of parts of its log, of which no group is in two.

    Args:
        parts: What `whole_evidence` said of each part, at least one, with one schema.
        k: The fewest groups of anything that is given away.
        site: A name for the site.
    """
    whole = added(parts)
    if whole.groups < k:
        raise LogError(
            f"the log has {whole.groups:,} groups, and nothing of fewer than k = {k} is given "
            "away.",
            do="Wait until there are more of them, or choose a smaller k.",
        )
    own = {**whole.sites[0], "site": site, "k": k}
    if "log" in own:  # whether two files are of one log can be told; the log cannot be told from it
        mark = int(own["log"], 16)
        own["log"] = hashlib.sha256(f"dprl-site|{mark}".encode()).hexdigest()[:32]
    return sealed(_suppressed(replace(whole, sites=(own,)), k))


def _suppressed(whole: SiteEvidence, k: int) -> SiteEvidence:
    """The evidence of one site without what rests on fewer than k groups."""
    if k == 1:
        return whole
    A = len(whole.schema.actions)
    n = whole.evidence.words[:, :, :A, COUNT]
    first, later = n[FIRST], n[LATER]
    alone = first.sum() == whole.groups  # every group in one state: all of them less the others
    gone = left_out(first.sum(axis=1), k, alone)
    rest = rest_of(first, k, gone, (first > 0) & (later > 0) & (later < k))
    lost_later = (later > 0) & ((later < k) | rest | gone[:, None])
    narrow = replace(
        whole.evidence, actions=whole.schema.actions,
        **{name: getattr(whole.evidence, name)[:, :, :A] for name in ("words", "top", "bottom")},
    )  # fmt: skip
    cells = _with_rest(narrow, rest, gone, lost_later)
    bins = whole.bins
    if bins is not None:
        state, action = bins[:, 0] // (A + 1), bins[:, 0] % (A + 1)
        action = np.where(rest[state, action], A, action)
        moved = np.column_stack([state * (A + 1) + action, bins[:, 1:]])
        bins = _site_bins.coarse(moved[~gone[state]], k)
    counted = cells.words[..., COUNT].sum(axis=(0, 2))
    hidden = rest | (gone[:, None] & (first > 0))
    visits = int(first[hidden].sum())
    facts = {
        **whole.sites[0], "pairs": int(hidden.sum()), "states": int(gone.sum()),
        "later": int((lost_later & ~hidden).sum()),
        "visits": visits if visits >= k or not visits else None,
    }  # fmt: skip
    return replace(
        whole,
        evidence=replace(cells, span=_outer_ends(bins, whole.schema)),
        steps=np.where(lost_later.any(axis=1) | gone, counted, whole.steps),
        bins=bins,
        sites=(facts,),
    )


def in_schema(log: Log, schema: SiteSchema) -> Log:
    """The log with the schema's labels and follow-up, or a LogError."""
    check_log(log)
    refuse_completed(log, "Sites count outcomes that were all seen: read the log in one place.")
    log.codes()
    if schema.follow_up is not None and log.follow_up is None:
        log = log.followed(schema.follow_up)
    windows = [None if x is None else window_of(x) for x in (log.follow_up, schema.follow_up)]
    if windows[0] != windows[1]:
        raise LogError(
            "the log and the schema follow episodes for different times.",
            f"{log.follow_up or 'no limit'} and {schema.follow_up or 'no limit'}",
            "Leave out follow_up (--follow-up): the schema's is used.",
        )
    state = _codes("states", log.states, schema.states, np.bincount(log.codes()))
    action = _codes("actions", log.actions, schema.actions, np.bincount(log.action))
    menus = None
    if log.menus is not None:
        menus = np.zeros((len(log.menus), len(schema.actions)), bool)
        menus[:, action[action >= 0]] = log.menus[:, action >= 0]
    return replace(
        log, state=state[log.codes()], states=schema.states, action=action[log.action],
        actions=schema.actions, menus=menus,
    )  # fmt: skip


def _codes(name: str, ours: tuple[Label, ...], fixed: tuple[Label, ...], n: Ints) -> Codes:
    """The schema's code of each label of the log, as it is written; -1 for labels without a row.

    One site may keep the label 7 as a number and another as text.
    """
    code = {str(label): i for i, label in enumerate(fixed)}
    used = np.zeros(len(ours), bool)
    used[: len(n)] = n > 0
    codes = np.array([code.get(str(label), -1) for label in ours], np.int32)
    strange = np.flatnonzero(used & (codes < 0))
    if len(strange):
        raise LogError(
            f"{len(strange):,} of {int(used.sum()):,} {name} of the log are not in the schema.",
            f"{ours[strange[0]]!r}; the schema has {fixed[0]!r}",
            "Agree on a schema with all labels before anybody counts, or leave these rows' "
            "episodes out.",
        )
    return codes


def left_out(n: Ints, k: int, alone: bool) -> Bools:
    """Which states (S,) are left out.

    Args:
        n: int64 (S,), groups by state.
        k: The fewest groups.
        alone: Whether no group visits two states.
    """
    gone = (n > 0) & (n < k)
    for s in np.argsort(n, kind="stable"):
        if not alone or not 0 < n[gone].sum() < k:
            break
        gone[s] = n[s] > 0
    return np.asarray(gone)


def rest_of(m: Ints, k: int, gone: Bools, also: Bools) -> Bools:
    """Which pairs (S, A) are put together as the rest.

    Args:
        m: int64 (S, A), groups by state and action at first visits.
        k: The fewest groups.
        gone: bool (S,), the states that are left out.
        also: bool (S, A), pairs that must be in the rest, with m above 0.
    """
    rest = (((m > 0) & (m < k)) | also) & ~gone[:, None]
    small = (rest & (m < k)).any(axis=1)
    short = small & ((rest.sum(axis=1) < 2) | (np.where(rest, m, 0).sum(axis=1) < k))
    for s in np.flatnonzero(short):
        for a in np.argsort(m[s], kind="stable"):
            if rest[s].sum() >= 2 and m[s][rest[s]].sum() >= k:
                break
            rest[s, a] |= m[s, a] > 0
    return np.asarray(rest)


def _with_rest(whole: Evidence, rest: Bools, gone: Bools, lost_later: Bools) -> Evidence:
    """The sums that are given away, with the rest as one more action."""
    hidden = np.stack([rest | gone[:, None], lost_later | rest | gone[:, None]])
    kept = _emptied(whole, hidden)
    words, top, bottom = _emptied(whole, np.stack([~rest, np.ones_like(rest)]))._state
    S, A = rest.shape
    wide = np.zeros((2, S, A + 1, words.shape[1]), np.int64)
    tops = np.full((2, S, A + 1), NOTHING, np.int16)
    bottoms = np.full((2, S, A + 1), EMPTY, np.int16)
    wide[:, :, :A], wide[FIRST, :, A] = kept.words, words
    tops[:, :, :A], tops[FIRST, :, A] = kept.top, top
    bottoms[:, :, :A], bottoms[FIRST, :, A] = kept.bottom, bottom
    return replace(
        whole, words=wide, top=tops, bottom=bottoms, actions=(*whole.actions, REST)
    )  # fmt: skip


def _emptied(whole: Evidence, hidden: Bools) -> Evidence:
    """The evidence with these accumulators (2, S, A) empty."""
    return replace(
        whole,
        words=np.where(hidden[..., None], 0, whole.words),
        top=np.where(hidden, NOTHING, whole.top).astype(np.int16),
        bottom=np.where(hidden, EMPTY, whole.bottom).astype(np.int16),
    )


def _bins(log: Log, schema: SiteSchema) -> Ints | None:
    """The bins of returns at first visits; None without a range."""
    if schema.value_range is None:
        return None
    low, high = schema.value_range
    G = returns(log, schema.gamma)
    refuse_outside(log, G, schema.value_range)
    rows = np.flatnonzero(first_visits(log))
    pair = log.codes()[rows].astype(np.int64) * (len(schema.actions) + 1) + log.action[rows]
    bins = _site_bins.unit_bins((G[rows] - low) / (high - low))
    return _site_bins.add_up(np.column_stack([pair, bins, bins, np.ones_like(pair)]))


def counted_rows(log: Log, first: Bools, later: Bools) -> Bools:
    """bool (N,): the rows of a gathered log behind the cells that are given away.

    Args:
        log: The settled log, over the schema's labels.
        first: bool (S, A), pairs whose first visits are given away.
        later: bool (S, A), pairs whose later occurrences are given away.
    """
    state = log.codes().astype(np.int64)
    pair = state * log.n_actions + log.action
    shown = np.where(first_visits(log), first.ravel()[pair], later.ravel()[pair])
    return np.asarray(first_of(log, pair, first.size) & shown)


def _outer_ends(bins: Ints | None, schema: SiteSchema) -> Floats:
    """(S, 2): the outer ends of the bins of each state, in units of returns; NaN without bins."""
    span = np.full((len(schema.states), 2), np.nan)
    if bins is None or schema.value_range is None:
        return span
    low, high = schema.value_range
    unit = (high - low) / _site_bins.UNITS
    state = bins[:, 0] // (len(schema.actions) + 1)
    np.fmin.at(span[:, 0], state, low + (bins[:, 1] >> 1) * unit)
    np.fmax.at(span[:, 1], state, low + ((bins[:, 2] + 1) >> 1) * unit)
    return span
