"""What one gate was asked for, and settings that do not go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl._core.arrays import Bools
from dprl._core.checks import (
    check_choice,
    check_delta,
    check_flag,
    check_number,
    check_range,
    check_seed,
    check_whole,
)
from dprl._core.inference import MOST
from dprl._core.words import either, option, say, worded
from dprl.errors import LogError, ParameterError
from dprl.logs.encoding.encoder import encoding_of, filled
from dprl.logs.log import Label, Log, check_log
from dprl.logs.source import LogFacts, Source, check_claim, needs_rows, unseen_words

GRADES = ("proved", "large-sample")

HONEST = worded(
    "Follow every episode for a fixed time, before which none was cut ({follow_up=}), or say "
    "{cut='terminal'} or {cut='drop-unrelated'} when learning; the certificate says which, and "
    "what it assumes."
)
"""What to do about cut episodes where something is to be proved."""
TIMED = worded(
    "Where the table has a time and a status, read it with {survival='days,status'}: nothing is "
    "seen of what came after a cut of the only row."
)
"""The same where every episode has one row."""


@dataclass(frozen=True, eq=False)
class GateSettings:
    """The settings of one call of `gate`, which documents them.

    Attributes:
        delta: Probability with which the claim may fail.
        value_range: (lowest, highest) return there can be, known beforehand; None where the grade
            does not need it and nobody stated it.
        margin: The advantage that a suggestion must exceed, in units of returns.
        horizon: The largest number of steps a group can have; None where that is not known.
        confounding: Γ, at least 1: by how much an unrecorded cause may move the odds of treatment.
        grade: "proved" or "large-sample".
        mode: The kind of certificate.
        states: The states that were fixed beforehand; None where none were declared.
        markov: Whether the Markov property is claimed.
        split: bool (episodes,), true for the half that proposes first; None to draw it.
        seed: Seed of the split.
        avoid: Whether it may also be said what to avoid.
    """

    delta: float
    value_range: tuple[float, float] | None
    margin: float = 0.0
    horizon: int | None = None
    confounding: float = 1.0
    grade: str = "proved"
    mode: str = "swap-split"
    states: Sequence[Label] | None = None
    markov: bool = True
    split: Sequence[bool] | Bools | None = None
    seed: int = 0
    avoid: bool = True

    def __post_init__(self) -> None:
        check_choice("grade", self.grade, GRADES)
        check_flag("markov", self.markov)
        check_flag("avoid", self.avoid)
        if self.value_range is not None or self.grade == "proved":
            object.__setattr__(self, "value_range", check_range(self.value_range))
        check_delta(self.delta)
        check_number("margin", self.margin, "[0, infinity)")
        check_number("confounding", self.confounding, f"[1, {MOST:g}]")
        if self.horizon is not None:
            check_whole("horizon", self.horizon, 1)
        for name in ("delta", "margin", "confounding"):
            object.__setattr__(self, name, float(getattr(self, name)))
        policy, large = option("mode", "policy"), option("grade", "large-sample")
        if self.confounding > 1 and (self.mode == "policy" or self.grade != "proved"):
            raise ParameterError(
                "what an unrecorded cause could do is tested by proofs of single suggestions only.",
                worded(
                    "{where}, {confounding}",
                    where=policy if self.mode == "policy" else large,
                    confounding=option("confounding", _short(self.confounding)),
                ),
                worded(
                    "Leave confounding out, or leave out {mode} and {grade}; {dprl.sensitivity} "
                    "bounds the gain of a whole policy at each Γ.",
                    mode=policy,
                    grade=large,
                ),
            )
        object.__setattr__(self, "seed", check_seed(self.seed))

    @property
    def known_range(self) -> tuple[float, float]:
        """The range of returns, where a grade needs it, so that it was stated."""
        assert self.value_range is not None  # the grade has asked for it
        return self.value_range

    @property
    def by_all_visits(self) -> bool:
        """Whether all visits of an episode count as evidence, or a group's first visits alone."""
        return self.markov and self.confounding == 1 and self.grade == "proved"

    @property
    def split_note(self) -> str:
        """How the groups were split, in a sentence."""
        if self.split is not None:
            return say("The split of the groups was given.")
        return say("Groups were split in two with seed {n}.", n=self.seed)

    def sides(self, source: Source | Log) -> Bools:
        """bool (groups,): true for the groups of the half that proposes first."""
        n = source.facts.n_groups
        if self.split is not None:
            return self._given_sides(source)
        if n < 2:
            raise LogError(
                f"a log of {n} group cannot propose with one half and certify with the other.",
                do="Read more of them.",
            )
        sides = np.zeros(n, bool)
        sides[np.random.default_rng(self.seed).permutation(n)[: n // 2]] = True
        return sides

    def _given_sides(self, source: Source | Log) -> Bools:
        log = needs_rows(source, "a split that is given by episode")
        n, given = len(log.groups), np.asarray(self.split)
        if given.dtype != bool or given.shape != (log.n_episodes,):
            raise ParameterError(
                f"split needs true or false for each of {log.n_episodes:,} episodes; "
                f"got {given.dtype}{given.shape}."
            )
        halves = np.zeros((n, 2), np.int64)
        np.add.at(halves, (log.group, given.astype(np.int64)), 1)
        torn = np.flatnonzero((halves > 0).all(axis=1))
        if len(torn):
            raise ParameterError(
                f"{len(torn):,} of {n:,} groups straddle the split.",
                f"group {log.groups[torn[0]]!r}",
                "What proposes and what certifies must be independent: keep groups whole.",
            )
        if given.all() or not given.any():
            raise ParameterError("split puts every episode on one side.")
        return np.asarray(halves[:, 1] > 0)

    # -- what goes together ----------------------------------------------------------------------

    def check_states(self) -> None:
        """Refuse settings that a gate over labelled states, or over cells, cannot take together."""
        in_sample, swap_split = option("mode", "in-sample"), option("mode", "swap-split")
        if self.mode == "in-sample" and self.states is None:
            raise ParameterError(
                worded("{mode} certifies with the returns that proposed.", mode=in_sample),
                do=worded(
                    "Only if the list of states, gamma, {n_min} and {value_range} were fixed "
                    "without looking at returns: name the states, {choice}. Otherwise use {mode}.",
                    choice=either("states=[...]", "--states"),
                    mode=swap_split,
                ),
            )
        if self.mode == "swap-split" and self.states is not None:
            raise ParameterError(
                worded("{mode} takes no list of states.", mode=swap_split),
                do=worded(
                    "Leave states out, or choose {mode} if they were fixed beforehand.",
                    mode=in_sample,
                ),
            )
        if self.mode == "in-sample" and self.split is not None:
            raise ParameterError(
                worded("{mode} has no split.", mode=in_sample), do="Leave split out."
            )

    def check_cells(self) -> None:
        """Refuse settings that a gate over features has no use for."""
        if self.mode == "in-sample":
            raise ParameterError(
                "cells of features are made from the data: there is no in-sample certificate.",
                do=worded("Use {mode='swap-split'}."),
            )
        if not self.markov:
            raise ParameterError(
                "a gate over features claims the Markov property for its cells.",
                do="Leave markov out; for first visits alone use labelled states.",
            )

    def check_rules(self) -> None:
        """Refuse settings that rules have no use for."""
        if self.mode == "in-sample" or self.states is not None:
            raise ParameterError(
                "rules are made from the data: there is no in-sample certificate.",
                do="Leave out mode and states.",
            )
        for name in self._given("markov", "split", "horizon"):
            raise ParameterError(
                f"a gate over rules takes no {name}.",
                do="Rules keep the halves they were made in, and count first visits; leave it out.",
            )

    def check_policy(self, learner: bool) -> None:
        """Refuse settings that a gate for the whole policy has no use for.

        Args:
            learner: Whether a learner is gated, which is fitted to one half.
        """
        for name in self._given("states", "markov", "horizon", *([] if learner else ["split"])):
            raise ParameterError(
                worded(
                    "{mode='policy'} {x}takes no {name}.",
                    x="of a policy " if name == "split" else "",
                    name=name,
                ),
                do="Leave it out.",
            )

    def _given(self, *names: str) -> list[str]:
        """Which of these settings are not left as they are by default."""
        given = {
            "states": self.states is not None, "markov": not self.markov,
            "split": self.split is not None, "horizon": self.horizon is not None,
        }  # fmt: skip
        return [name for name in names if given[name]]


def _short(number: float) -> float:
    """A number without a zero behind its point: 2 for 2.0."""
    return int(number) if number.is_integer() else number


def in_memory(log: Any, what: str) -> Log:
    """The log, for what needs all rows at once; refuses one that is elsewhere, or empty, or none.

    Args:
        log: The log, wherever its rows are.
        what: What needs them, as the beginning of a sentence.
    """
    elsewhere = not isinstance(log, Log) and hasattr(type(log), "reduce")
    log = needs_rows(log, what) if elsewhere else log
    check_log(log)
    own: Log = log
    return own


def check_cut(treatment: str | None, source: Source | Log) -> None:
    """Refuse to certify a log whose cut episodes are not treated in a way that can be claimed."""
    facts: LogFacts = source.facts
    how = {
        None: "and no treatment is stated.",
        "bootstrap": "and bootstrapped: their returns share estimates and are not independent.",
        "ipcw": "and weighted: weights are estimates, and no range of weighted returns is known "
        "beforehand, so nothing can be proved from them.",
    }
    if treatment == "ipcw" and unseen_words(facts.columns):
        return  # of a time to event; a proof is refused elsewhere
    if facts.n_cut and treatment in how:
        raise LogError(
            f"{facts.n_cut:,} of {facts.n_episodes:,} episodes were cut"
            f"{',' if treatment is None else ''} {how[treatment]}",
            f"episode {facts.first_cut!r}",
            HONEST if facts.longest > 1 else TIMED,
        )
    check_claim(treatment, source, "a certificate")


def refuse_own_medians(proposal: Any, log: Any) -> None:
    """Refuse a proof on a log whose own medians fill its gaps: they depend on what certifies.

    Args:
        proposal: A learner, or a policy.
        log: The log to certify with, encoded as the proposal takes it.
    """
    if not isinstance(log, Log):
        return
    learns = hasattr(proposal, "fit")
    if not learns and getattr(proposal, "provenance", {}).get("log") != log.digest():
        return
    encoding = encoding_of((filled(log) if learns else log).columns)
    fills = {} if encoding is None else encoding.fills
    own = [name for name, fill in fills.items() if fill.value is not None and fill.share > 0]
    if own:
        raise LogError(
            f"{own[0]!r} is missing on {fills[own[0]].share:.1%} of the rows and filled by the "
            "median of this log, so the rows that certify help to make the states.",
            f"columns that are filled: {', '.join(map(repr, own[:8]))}",
            worded(
                "Gate a policy that was fitted to another log (it brings its own medians), or say "
                "{grade='large-sample'}."
            ),
        )
