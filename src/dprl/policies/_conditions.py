"""What the values of a policy are of: the time that counts, cut episodes, sites without rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dprl._core.words import duration, say, say_many
from dprl.logs._cut_words import UNRELATED, WEIGHED

__all__ = ["conditions_of", "window_words"]


def window_words(window: str | None) -> str:
    """What a fixed follow-up means for every value; '' without one."""
    if not window:
        return ""
    return say(
        "Values are of the first {window} of an episode: what comes later does not count.",
        window=duration(window),
    )


def conditions_of(parameters: Mapping[str, Any], provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """The sentences about a policy's training log that say what its values are of.

    Args:
        parameters: The learner and its settings.
        provenance: Where the policy comes from.
    """
    words = [window_words(provenance.get("columns", {}).get("follow_up"))]
    n = int(provenance.get("cut_episodes") or 0)
    cut = {
        "drop-unrelated": say_many(
            "{n:,} cut episode was left out: {unrelated} (declared by the user).",
            "{n:,} cut episodes were left out: {unrelated} (declared by the user).",
            n,
            unrelated=UNRELATED,
        ),
        "drop": say_many(
            "{n:,} cut episode was left out: nothing is claimed about what is left.",
            "{n:,} cut episodes were left out: nothing is claimed about what is left.",
            n,
        ),
        "ipcw": say_many(
            "{n:,} episode was cut: {weighed}", "{n:,} episodes were cut: {weighed}", n,
            weighed=WEIGHED,
        ),
    }  # fmt: skip
    words.append(cut.get(str(parameters.get("cut")), "") if n else "")
    if "n_sites" in provenance:
        words += [note for note in provenance.get("notes", ()) if isinstance(note, str)]
    return tuple(sentence for sentence in words if sentence)
