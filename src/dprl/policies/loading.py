"""Reading a policy file, whatever kind of policy it holds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from dprl.errors import ParameterError, PolicyError
from dprl.logs.encoding.encoder import encoding_of
from dprl.logs.outcome import KEPT
from dprl.logs.roles import NAMES, REQUIRED
from dprl.policies.base import kind_of, unpack
from dprl.policies.cells import CellPolicy
from dprl.policies.confident import ConfidentPolicy  # noqa: F401  (a kind that files hold)
from dprl.policies.familiar import like_policy
from dprl.policies.neighbors import NeighborPolicy
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.stochastic import NetworkPolicy, StochasticPolicy
from dprl.policies.table import TablePolicy

if TYPE_CHECKING:
    from dprl.logs.log import Log
    from dprl.logs.reading.files import Progress


Deferring: TypeAlias = TablePolicy | CellPolicy | NeighborPolicy | RulePolicy
"""What type checkers know of a policy from a file: one of dprl's own kinds."""
Loaded: TypeAlias = Deferring | StochasticPolicy | NetworkPolicy


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a policy file, whatever kind of policy it holds. No code from it is run.

    Args:
        path: The file that a policy's `save` wrote.

    Returns:
        The policy, of the class that was saved.

    Raises:
        PolicyError: The file is no policy file, is damaged, or is of a kind this version cannot
            read.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "care.policy")
        ...     policy.save(path)
        ...     load(path).act("fever")
        'antibiotics'
    """
    return _opened(path)


def _opened(path: str | os.PathLike[str]) -> Loaded:
    kind, words, arrays = unpack(path)
    home = kind_of(kind) or TablePolicy  # which refuses a kind it does not know
    return cast("Loaded", home._opened(path, kind, words, arrays))


def deferring(path: str | os.PathLike[str]) -> Deferring:
    """A policy of DPRL's from a file; the rivals' have no changes to list.

    Args:
        path: The file.
    """
    fitted = _opened(path)
    if not fitted.knows_practice:
        raise PolicyError(
            f"{os.fspath(path)!r} holds a policy of "
            f"{fitted.parameters.get('learner', 'another kind')}.",
            do="Only DPRL's policies defer, explain and list changes.",
        )
    return cast("Deferring", fitted)  # these are the kinds that know usual practice


def own_columns(policy: Any) -> dict[str, Any]:
    """The columns a policy was fitted on, by part; empty where it does not say."""
    return {k: v for k, v in policy.provenance.get("columns", {}).items() if k in NAMES and v}


def own_reading(policy: Any) -> dict[str, Any]:
    """What else a log must be read with to be like the policy's: events, a window, ranges, gaps."""
    columns = policy.provenance.get("columns", {})
    kept = (
        "events",
        "follow_up",
        "action_bins",
        "missing",
        "dates",
        "labels",
        "called",
        *KEPT,
        "survival",
        "horizon",
        "target",
        "guard",
        "costs",
    )
    return {k: columns[k] for k in kept if columns.get(k)}


def read_like(
    policy: Any, files: list[str], progress: Progress, *, mixed: bool = True, **named: Any
) -> Log:
    """A log from files that have the columns the policy was fitted on, or these where `named`.

    `mixed`: as for `like_policy`.
    """
    from dprl.logs._io import read  # acting on a policy needs no reader of logs

    log = read(files, **reading_like(policy, files, **named), progress=progress)
    return like_policy(policy, log, mixed=mixed)


def reading_like(policy: Any, files: list[str], **named: Any) -> dict[str, Any]:
    """How to read files as the log of a policy was read: the arguments of `dprl.read`."""
    columns = own_columns(policy)
    features = list(policy.space.feature_names)
    if features:
        columns["state"] = features
        levels = getattr(policy.space, "levels", None) or ()
        columns["categorical"] = [n for n, own in zip(features, levels, strict=False) if own]
    encoding = encoding_of(policy.provenance.get("columns", {}))
    if encoding is not None:
        columns["state"] = list(encoding.columns)
        columns["categorical"] = [name for name, own in encoding.columns.items() if own]
    if "propensity" in columns:  # which nobody needs who reads a log for a policy
        from dprl.logs.reading.files import Files
        from dprl.logs.reading.text import Text

        text = Text(encoding=named.get("encoding") or "utf-8")
        types = Files(files, None, partitions=bool(named.get("partitions")), text=text).types
        if columns["propensity"] not in types:
            del columns["propensity"]
    columns |= own_reading(policy)
    columns |= {k: v for k, v in named.items() if v is not None}
    if named.get("missing") is None and "missing" in columns:  # of columns that it still has
        have = {n for k in NAMES for n in _listed(columns.get(k))}
        columns["missing"] = {n: word for n, word in columns["missing"].items() if n in have}
    if (
        isinstance(columns.get("state"), list)
        and len(columns["state"]) == 1
        and not features
        and encoding is None
    ):
        columns["state"] = columns["state"][0]
    several = columns.get("action")
    if isinstance(several, list) and len(several) == 1:
        columns["action"] = several[0]
    columns = _renamed_ranges(columns, own_columns(policy).get("action"))
    alone = [k for k in REQUIRED if k not in ("state", "action")]
    missing = [k for k in alone if not isinstance(columns.get(k), str)]
    missing += [] if columns.get("action") else ["action"]
    if missing or "state" not in columns:
        raise ParameterError(
            "the policy does not say which columns it was fitted on.",
            do="Name them (--episode, --state, --action, --reward), or fit it on a log read from a "
            "file or a dataframe.",
        )
    return columns


def _listed(name: Any) -> list[str]:
    return [] if name is None else [name] if isinstance(name, str) else list(name)


def _renamed_ranges(columns: dict[str, Any], own: Any) -> dict[str, Any]:
    """The same columns, with the policy's edges under the names the action columns have now."""
    edges, now = columns.get("action_bins"), columns.get("action")
    if not edges or now is None or own is None:
        return columns
    before, after = ([x] if isinstance(x, str) else list(x) for x in (own, now))
    if len(before) != len(after):
        raise ParameterError(
            f"the policy's actions are made of {len(before)} columns; {len(after)} are named.",
            ", ".join(map(repr, before)),
            "Name as many, in the same order (--action).",
        )
    names = dict(zip(before, after, strict=True))
    return {**columns, "action_bins": {names[name]: cuts for name, cuts in edges.items()}}
