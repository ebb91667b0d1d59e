"""Cut episodes of a log in parts, treated part by part as `dprl.logs._censoring.settle` would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dprl._core.checks import Cut, check_cut
from dprl._core.words import either, option, worded
from dprl.errors import LogError, ParameterError
from dprl.logs._censoring import from_cut_on, none_is_left, warn_as_terminal
from dprl.logs._cut_words import DROPS, UNRELATED
from dprl.logs.log import CUT, TERMINAL, Log

if TYPE_CHECKING:
    from dprl.logs.parts import LogInParts

__all__ = ["check_claim_of_parts", "check_treatment", "refuse_if_none", "settled_part"]


def check_treatment(parts: LogInParts, cut: Cut | None) -> None:
    """Refuse a treatment of cut episodes that needs the whole log at once; warn where none is set.

    Args:
        parts: The log in parts.
        cut: The treatment, or None for "terminal" with a warning.

    Raises:
        ParameterError: If episodes were cut and the treatment is "ipcw" or "bootstrap".
    """
    check_cut(cut)
    if not parts.n_cut:
        return
    if cut in ("ipcw", "bootstrap"):
        raise ParameterError(
            worded(
                "{n_cut:,} of {n_episodes:,} episodes were cut, and {cut} needs the whole log in "
                "memory.",
                n_cut=parts.n_cut,
                n_episodes=parts.n_episodes,
                cut=option("cut", cut),
            ),
            f"episode {parts.first_cut!r}",
            worded(
                "{choice}, follow all for a fixed time ({follow_up}), or choose {choice2}.",
                choice=either(
                    "Read the log with dprl.read (without --out-of-core)", "Leave out --out-of-core"
                ),
                follow_up=option("follow_up"),
                choice2=either(
                    "cut='terminal' or 'drop-unrelated'", "--cut terminal or drop-unrelated"
                ),
            ),
        )
    if cut is None:
        warn_as_terminal(parts.n_cut, parts.n_episodes, parts.cut_steps, parts.n_steps)


def check_claim_of_parts(cut: Cut | str | None, parts: LogInParts, what: str) -> None:
    """Refuse to claim something where cut episodes are dropped without a declaration.

    Arguments are those of `dprl.logs._censoring.check_claim`.
    """
    if cut != "drop" or not parts.n_cut:
        return
    raise LogError(
        f"{parts.n_cut:,} of {parts.n_episodes:,} episodes were cut and would be left out: {what} "
        "would be about those that are left, and the longer an episode, the likelier it was cut.",
        f"episode {parts.first_cut!r}",
        worded(
            "Declare it if {unrelated}: {cut}. Otherwise follow every episode for a fixed time "
            "({follow_up}), or use {cut2} where it is offered.",
            unrelated=UNRELATED,
            cut=option("cut", "drop-unrelated"),
            follow_up=option("follow_up"),
            cut2=option("cut", "ipcw"),
        ),
    )


def settled_part(log: Log, cut: Cut | None) -> Log | None:
    """A part with its cut episodes treated, gathered; None if no episode of it is left.

    Args:
        log: The part. Its groups are whole, so what comes after a cut episode is in it too.
        cut: A treatment that `check_treatment` let pass.
    """
    if len(log.cut_episodes):
        if cut in DROPS:
            keep = np.setdiff1d(np.arange(log.n_episodes), from_cut_on(log))
            if not len(keep):
                return None
            log = log.take(keep)
        else:
            log = replace(log, ended=np.where(log.ended == CUT, TERMINAL, log.ended))
    return log.gathered()


def refuse_if_none(parts: LogInParts, result: object | None) -> None:
    """Refuse a log of which no part has an episode left."""
    if result is None:
        raise none_is_left(parts.n_episodes)
