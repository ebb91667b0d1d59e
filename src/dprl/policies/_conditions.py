"""What the values of a policy are of: the time that counts, cut episodes, sites without rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dprl._core.plural import form, many
from dprl.logs._cut_words import UNRELATED, WEIGHED

__all__ = ["conditions_of", "window_words"]


def window_words(window: str | None) -> str:
    """What a fixed follow-up means for every value; '' without one."""
    if not window:
        return ""
    return f"Values are of the first {window} of an episode: what comes later does not count."


def conditions_of(parameters: Mapping[str, Any], provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """The sentences about a policy's training log that say what its values are of.

    Args:
        parameters: The learner and its settings.
        provenance: Where the policy comes from.
    """
    words = [window_words(provenance.get("columns", {}).get("follow_up"))]
    n = int(provenance.get("cut_episodes") or 0)
    were = form(n, "was", "were")
    cut = {
        "drop-unrelated": f"{many(n, 'cut episode')} {were} left out: {UNRELATED} (declared by the "
        "user).",
        "drop": f"{many(n, 'cut episode')} {were} left out: nothing is claimed about what is left.",
        "ipcw": f"{many(n, 'episode')} {were} cut: {WEIGHED}",
    }
    words.append(cut.get(str(parameters.get("cut")), "") if n else "")
    if "n_sites" in provenance:
        words += [note for note in provenance.get("notes", ()) if isinstance(note, str)]
    return tuple(sentence for sentence in words if sentence)
