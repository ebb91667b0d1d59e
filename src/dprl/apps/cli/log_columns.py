"""Which columns a command reads for a policy: those given as options, or else the policy's own.

Column names in dprl.toml are for learning. For a policy that stores the columns it was fitted on,
those are used instead, and one line says so where they differ; for a policy that stores none, the
names in dprl.toml are used.
"""

from __future__ import annotations

import fnmatch
from typing import Any

from dprl.apps.cli.console import complain
from dprl.apps.cli.options import SETTINGS, OtherColumns, columns_in_settings
from dprl.apps.cli.ranges import words_of

__all__ = ["columns_for"]


def columns_for(policy: Any, asked: OtherColumns | None, command: str) -> dict[str, Any]:
    """Columns by part, as `dprl.policies._load.read_like` takes them; None: the policy's own."""
    from dprl.policies._load import own_columns

    result: dict[str, Any] = dict(vars(asked or OtherColumns()))
    result["missing"] = words_of(result["missing"])
    in_settings = {k: v for k, v in columns_in_settings(command).items() if result.get(k) is None}
    own = own_columns(policy)
    if not own:
        return {**result, **in_settings}
    features = list(policy.space.feature_names)
    used = {**own, "state": features} if features else own
    others = [
        f"{part} = {_shown(name)}, used is {_shown(used.get(part))} (--{part} overrides)"
        for part, name in in_settings.items()
        if not _same(used.get(part), name) and not _same(own.get(part), name)  # categories, gaps
    ]
    if others:
        complain(f"{SETTINGS} differs from the policy's own columns: {'; '.join(others)}.")
    return result


def _names(name: Any) -> list[str]:
    return [] if name is None else [name] if isinstance(name, str) else [str(n) for n in name]


def _shown(name: Any) -> str:
    names = _names(name)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(repr, names[:3])) + more if names else "none"


def _same(own: Any, in_settings: Any) -> bool:
    """Whether the names, which may be patterns such as 'x_*', mean these columns."""
    ours, patterns = _names(own), _names(in_settings)
    return all(any(fnmatch.fnmatchcase(n, p) for p in patterns) for n in ours) and all(
        any(fnmatch.fnmatchcase(n, p) for n in ours) for p in patterns
    )
