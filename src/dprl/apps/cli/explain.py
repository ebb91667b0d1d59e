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


@command
def explain(policy: str, state: str, /, *, cases: Cases = False, json: Json = False) -> int:
    """Say why a policy answers as it does in one state.

    Args:
        policy: A policy file.
        state: A state's label; or its features, as in 'pressure=58,lactate=2.1'. For rules a
            category is its label, and nothing stands for a missing value:
            'pressure=58,ward=ICU,lactate='. A label with a comma: '"ward=ICU, north",pressure=58'.
    """
    from dprl.policies._load import deferring

    fitted = deferring(policy)
    label: Any = state
    names = fitted.space.feature_names
    encoding = getattr(fitted.space, "encoding", None)
    if encoding is not None and state not in fitted.states:
        names = tuple(encoding.columns)
    if names:
        levels = getattr(fitted.space, "levels", None) if encoding is None else encoding.levels
        label = (
            numbers(state.split(","), "a state is written NAME=VALUE,NAME=VALUE")
            if levels is None
            else _mixed(state, names, levels, () if encoding is None else encoding.days)
        )
        for name in label:
            if name not in names:
                raise ParameterError(
                    f"{name!r} is no feature of this policy.",
                    do=f"Features: {', '.join(names)}.",
                )
    elif fitted.states and not isinstance(fitted.states[0], str):
        by_text = {str(s).lower(): s for s in fitted.states}
        try:
            label = by_text[state.lower()] if state.lower() in by_text else whole(state)
        except ValueError:
            what = "true or false" if isinstance(fitted.states[0], bool) else "whole numbers"
            raise ParameterError(
                f"this policy's states are {what}; got {state!r}.",
                do=f"Its states look like {', '.join(map(str, fitted.states[:3]))}.",
            ) from None
    explanation = fitted.explain(label, cases=cases)
    show(explanation.to_dict() if json else str(explanation), json)
    return 0


def _mixed(
    state: str, names: Sequence[str], levels: Sequence[Any], days: Collection[str]
) -> dict[str, Any]:
    """A state as written: text for categories and dates, None where nothing is given."""
    categories = {name for name, own in zip(names, levels, strict=False) if own is not None}
    categories |= set(days)
    how = "a state is written NAME=VALUE,NAME=VALUE"
    by_name: dict[str, Any] = {}
    for pair in next(csv.reader([state], skipinitialspace=True), []):
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals:
            raise ParameterError(f"{how}; got {pair!r}.", do="ward=ICU,lactate=2.1")
        if name in by_name:
            raise ParameterError(f"{name!r} is given twice.")
        if not value.strip():
            by_name[name] = None
        elif name in categories:
            by_name[name] = value
        else:
            by_name |= numbers([pair], how)
    return by_name
