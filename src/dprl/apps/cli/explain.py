"""`dprl explain`: why a policy answers as it does in one state."""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from typing import Any

from dprl.apps.cli._app import command
from dprl.apps.cli.console import show
from dprl.apps.cli.options import Cases, Json, numbers, whole
from dprl.errors import ParameterError

__all__ = ["explain"]


HOW = "a state is written NAME=VALUE,NAME=VALUE"


@command
def explain(policy: str, state: list[str], /, *, cases: Cases = False, json: Json = False) -> int:
    """Say why a policy answers as it does in one state.

    Examples: `dprl explain policy.dprl mild`, `dprl explain policy.dprl stage=mild` or, where
    states are features, `dprl explain policy.dprl pressure=58 lactate=2.1 'ward=ICU, north'`

    Args:
        policy: A policy file.
        state: A state's label, or its column and the label (stage=mild); or its features, a
            NAME=VALUE each ('pressure=58,lactate=2.1' in one word, too). A category is its label,
            and nothing stands for a missing value: pressure=58 ward=ICU lactate=
    """
    from dprl.policies._load import deferring

    fitted = deferring(policy)
    names = fitted.space.feature_names
    encoding = getattr(fitted.space, "encoding", None)
    word = " ".join(state)
    if encoding is not None and word not in fitted.states:
        names = tuple(encoding.columns)
    label: Any
    if names:
        levels = getattr(fitted.space, "levels", None) if encoding is None else encoding.levels
        label = (
            numbers(_pairs(state), HOW)
            if levels is None
            else _mixed(_pairs(state), names, levels, () if encoding is None else encoding.days)
        )
        for name in label:
            if name not in names:
                raise ParameterError(
                    f"{name!r} is no feature of this policy.",
                    do=f"Features: {', '.join(names)}.",
                )
    else:
        label = _label(fitted, state)
    explanation = fitted.explain(label, cases=cases)
    show(explanation.to_dict() if json else str(explanation), json)
    return 0


def _pairs(words: Sequence[str]) -> list[str]:
    """NAME=VALUE pairs: a word each, or several in one word with commas between them.

    A comma that no name follows belongs to a label where each word is a pair.
    """
    if len(words) == 1:
        return next(csv.reader([words[0]], skipinitialspace=True), [])
    pairs: list[str] = []
    for word in words:
        parts = next(csv.reader([word.rstrip(",")], skipinitialspace=True), [])
        pairs += parts if all("=" in part for part in parts) else [word]
    return pairs


def _label(fitted: Any, words: Sequence[str]) -> Any:
    """The label of a state, from the label or from its column and the label."""
    word = " ".join(words)
    column = fitted.provenance.get("columns", {}).get("state") or "state"
    column = column[0] if isinstance(column, list) and len(column) == 1 else column
    name, equals, value = word.partition("=")
    if equals and name.strip() == column and word not in map(str, fitted.states):
        word = value
    if not fitted.states or isinstance(fitted.states[0], str):
        return word  # the policy folds it as it folded the labels of its log
    by_text = {str(s).lower(): s for s in fitted.states}
    word = word.strip()
    try:
        return by_text[word.lower()] if word.lower() in by_text else whole(word)
    except ValueError:
        what = "true or false" if isinstance(fitted.states[0], bool) else "whole numbers"
        raise ParameterError(
            f"this policy's states are {what}; got {word!r}.",
            do=f"Its states look like {', '.join(map(str, fitted.states[:3]))}.",
        ) from None


def _mixed(
    pairs: Sequence[str], names: Sequence[str], levels: Sequence[Any], days: Collection[str]
) -> dict[str, Any]:
    """A state as written: text for categories and dates, None where nothing is given."""
    categories = {name for name, own in zip(names, levels, strict=False) if own is not None}
    categories |= set(days)
    by_name: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals:
            raise ParameterError(f"{HOW}; got {pair!r}.", do="ward=ICU,lactate=2.1")
        if name in by_name:
            raise ParameterError(f"{name!r} is given twice.")
        if not value.strip():
            by_name[name] = None
        elif name in categories:
            by_name[name] = value
        else:
            by_name |= numbers([pair], HOW)
    return by_name
