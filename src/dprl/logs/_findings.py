"""Finding and CheckResult: the result of checking a log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from dprl.errors import LogError
from dprl.logs._gaps import gap_counts
from dprl.logs.log import Log

__all__ = ["CheckResult", "Finding"]

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing about a log.

    Attributes:
        level: "error" (the log cannot be used like this), "warning" (it can, but look at it) or
            "note".
        rule: The name of the rule that found it.
        what: What was found, with numbers.
        where: The first place where it was found; may be empty.
        do: What to do about it; may be empty.
    """

    level: Level
    rule: str
    what: str
    where: str = ""
    do: str = ""

    def error(self) -> LogError:
        """This finding as an exception that can be raised."""
        return LogError(self.what, self.where, self.do)

    def __str__(self) -> str:
        first = f"first: {self.where}" if self.where else ""
        return "\n  ".join(x for x in (f"{self.level}: {self.what}", first, self.do) if x)


@dataclass(frozen=True)
class CheckResult:
    """The result of `dprl.check`.

    Attributes:
        findings: Errors first, then warnings, then notes.
        log: The log, if one could be made (rows with errors left out), else None.

    Example:
        >>> import dprl
        >>> result = dprl.check(dprl.envs.risky_arms().sample(50, seed=0))
        >>> result.ok, result.findings[0].level
        (True, 'note')
    """

    findings: tuple[Finding, ...]
    log: Log | None

    @property
    def ok(self) -> bool:
        """Whether the log can be read as it is: no finding is an error."""
        return not any(f.level == "error" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The size of the log and all findings.

        Returns:
            Values that JSON can hold: "ok", "log" (None where none could be made) and "findings".

        Example:
            >>> import dprl
            >>> result = dprl.check(dprl.envs.risky_arms().sample(50, seed=0))
            >>> result.to_dict()["log"]["episodes"]
            50
        """
        log = self.log
        size = (
            None
            if log is None
            else {
                "episodes": log.n_episodes,
                "groups": len(log.groups),
                "steps": log.n_steps,
                "states": log.n_states,
                "features": len(log.feature_names),
                "actions": log.n_actions,
                "categories": {name: list(own) for name, own in log.categories.items()},
                "missing": {
                    name: int(n)
                    for name, n in zip(log.feature_names, log.missing.tolist(), strict=True)
                    if n
                },
                "missing_by_action": gap_counts(log),
                "digest": log.digest(),
            }
        )
        return {"ok": self.ok, "log": size, "findings": [vars(f) for f in self.findings]}

    def to_json(self) -> str:
        """The same as `to_dict`, as text.

        Returns:
            JSON text.

        Example:
            >>> import dprl
            >>> result = dprl.check(dprl.envs.risky_arms().sample(50, seed=0))
            >>> result.to_json()[:12]
            '{"ok": true,'
        """
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def _repr_html_(self) -> str:
        from dprl._core.notebook import in_notebook

        head, counts, *_ = str(self).splitlines()
        return in_notebook(head, [counts, *map(str, self.findings)])

    def __str__(self) -> str:
        head = repr(self.log) if self.log is not None else "No log could be read."
        count = {k: sum(f.level == k for f in self.findings) for k in ("error", "warning", "note")}
        counts = " · ".join(f"{n} {k}{'s' * (n != 1)}" for k, n in count.items())
        return "\n".join([head, counts, *map(str, self.findings)])
