"""What is in the evidence of sites, in words: for a hospital that asks what leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl._core.exact import COUNT
from dprl._core.plural import many
from dprl._core.words import say
from dprl.evidence._evidence import FIRST, LATER

if TYPE_CHECKING:
    from dprl.evidence._site_evidence import SiteEvidence

__all__ = ["chances_of", "described", "notes_of"]

NOT_PROTECTED = (
    "What is not protected: this is suppression of small cells, not differential privacy. Sums are "
    "exact, and who knows all groups of a cell but one can work out the return of that one.",
    "Two files of one site from before and after a patient was added differ by that patient. Count "
    "once, or after many patients.",
    "Where states follow each other in a fixed way, what is known of one state tells something "
    "about the next: a state that is left out can sometimes be worked out from those around it.",
    "A patient who was at two sites counts at both; without rows nobody can see that.",
)
"""What suppression does not do."""


def described(of: SiteEvidence) -> str:
    """What is in it, line by line."""
    schema, n = of.schema, of.evidence.words[..., COUNT]
    sites = len(of.sites)
    lines = [
        f"Evidence of {many(sites, 'site')}: {of.groups:,} groups, "
        f"{sum(site['episodes'] for site in of.sites):,} episodes.",
        "",
        "What was fixed beforehand, by the schema:",
        f"  states         {len(schema.states):,} labels: {_some(schema.states)}",
        f"  actions        {len(schema.actions):,} labels: {_some(schema.actions)}",
        f"  gamma          {schema.gamma:g}",
        f"  value_range    {_range(schema.value_range)}",
        f"  cut            {schema.cut or 'not said (cut episodes count as ended)'}",
        f"  follow_up      {schema.follow_up or 'none'}",
        "",
        "What each site says about itself:",
        *(f"  {_site(site)}" for site in of.sites),
        "",
        "What was counted (every number is of at least k groups of a site, or 0):",
        f"  first visits   {int((n[FIRST, :, :-1] > 0).sum()):,} pairs of a state and an action: "
        "how many groups took the action at their first visit of the state, the exact sum of their "
        "returns and of the squares, and the powers of two that their digits lie between",
        f"  later          {int((n[LATER] > 0).sum()):,} pairs: the same of groups that took the "
        "action for the first time at a later visit",
        f"  several        {int((n[FIRST, :, -1] > 0).sum()):,} states: the same of first visits "
        "with one of several rare actions, and not which one",
        f"  steps          {int((of.steps > 0).sum()):,} states: the number of rows",
        f"  span           {int((~np.isnan(of.evidence.span[:, 0])).sum()):,} states: "
        + (
            "the smallest and the largest return, each of which is one group's (k = 1)"
            if any(site["k"] == 1 for site in of.sites)
            else "the outer ends of the bins below"
        ),
    ]
    if of.bins is not None:
        lines.append(
            f"  bins           {len(of.bins):,} intervals of 1/4000 of the range or more: how many "
            "groups of a pair had a return in it at their first visit"
        )
    if of.available is not None:
        lines.append(
            f"  available      {int((~of.available).sum()):,} pairs that were not on offer at some "
            "visit (of one group or more: an action that may be missing must not be suggested)"
        )
    lines += [
        "",
        "No row, no label of a patient, no date, and no link between states of one patient is in "
        "it.",
        *NOT_PROTECTED,
    ]
    return "\n".join(lines)


def notes_of(of: SiteEvidence) -> tuple[str, ...]:
    """Sentences for a policy that is made of it."""
    n = len(of.sites)
    names = ", ".join(repr(site["site"]) for site in of.sites if site["site"])
    notes = [
        f"Learned from counts of {many(n, 'site')}{f' ({names})' if names else ''} that "
        "shared no rows. A group that was at two sites counts twice; nobody can see that."
    ]
    k = sorted({site["k"] for site in of.sites})
    words = f"k = {k[0]}" if len(k) == 1 else f"k from {k[0]} to {k[-1]}"
    if not of.suppressed:
        notes.append(f"Nothing was suppressed ({words}): the policy is that of the pooled log.")
        return (*notes, *_ends(of, k[-1]))
    pairs, later, states = (
        sum(site[name] for site in of.sites) for name in ("pairs", "later", "states")
    )
    visits = [site["visits"] for site in of.sites]
    first = "an unstated number of" if None in visits else f"{sum(visits):,}"
    notes.append(
        f"Cells of fewer than k groups were suppressed ({words}), counted by site: {pairs:,} pairs "
        f"at first visits ({first} first visits), {states:,} states as a whole, and {later:,} "
        "pairs at later visits only. These pairs have fewer episodes here than in a pooled log, "
        "and values of the other sites alone, so that the policy may differ from that of the "
        "pooled log, mostly by deferring; which action is usual may differ, too."
    )
    return (*notes, *_ends(of, k[-1]))


def chances_of(of: SiteEvidence) -> str:
    """What the sites' logs record of the probabilities of actions; "" where none has a column."""
    said_by = [site.get("chances") for site in of.sites]
    if not any(said_by):
        return ""
    n = len(said_by)
    whole = said_by.count("all")
    if whole == n:
        who = (
            say("the log of the site records")
            if n == 1
            else say("the logs of all {n:,} sites record", n=n)
        )
        return say(
            "Randomised: {who} on all rows with which probability the action was taken.", who=who
        )
    if not whole and "some" not in said_by:
        return say(
            "Not randomised as far as the sites say: their logs do not record with which "
            "probabilities actions were taken."
        )
    partly = said_by.count("some")
    return say(
        "Mixed: the probability of the action taken is on record on all rows of {a:,} of {n:,} "
        "sites, on some rows of {b:,}, and on none of {c:,}.",
        a=whole,
        n=n,
        b=partly,
        c=n - whole - partly,
    )


def _ends(of: SiteEvidence, k: int) -> list[str]:
    """What k does to single returns: the ends of their range, and the bins of a certificate."""
    if k == 1:
        return []
    if of.bins is None:
        return ["The smallest and the largest return of a state are not given away."]
    return [
        "Returns were put into bins of at least k groups: a certificate has less power than that "
        "of a pooled log, and the smallest and largest return of a state are ends of bins."
    ]


def _some(labels: tuple[Any, ...]) -> str:
    return ", ".join(map(str, labels[:6])) + (", …" if len(labels) > 6 else "")


def _range(ends: tuple[float, float] | None) -> str:
    return "none (no bins, no certificate)" if ends is None else f"{ends[0]:g} to {ends[1]:g}"


def _site(site: Mapping[str, Any]) -> str:
    visits = "a number not stated of" if site["visits"] is None else f"{site['visits']:,}"
    lost = (
        f"suppressed {site['pairs']:,} pairs ({visits} first visits), {site['states']:,} states, "
        f"{site['later']:,} pairs at later visits"
        if site["pairs"] or site["later"]
        else "nothing suppressed"
    )
    name = repr(site["site"]) if site["site"] else "(no name)"
    chances = f"; probabilities of actions on {site['chances']} rows" if "chances" in site else ""
    return (
        f"{name}: k = {site['k']}, {site['groups']:,} groups, "
        f"{site['episodes']:,} episodes, {site['cut_episodes']:,} of them cut; {lost}{chances}; "
        f"mark {site['part'][:12]}"
    )
