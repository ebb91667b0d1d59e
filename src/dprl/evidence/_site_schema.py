"""What several sites agree on before any of them counts: the schema of their evidence.

States, actions, the discount and the range of returns are fixed beforehand, so that what the sites
count can be added up, and so that a certificate may treat the list of states as declared. A schema
holds no count and no row; it is a JSON file that people can read and edit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl._core.checks import Cut, check_choice, check_gamma, check_range
from dprl._core.disk import replacing
from dprl._core.words import either, worded
from dprl.errors import DprlError, EvidenceError, ParameterError
from dprl.evidence.tabular import LARGEST_TABLE
from dprl.logs._follow_up import window_of
from dprl.logs.log import Label, Log, check_log

__all__ = ["SiteSchema"]

FORMAT, VERSION = "dprl-schema", 1
LARGEST_FILE = 256 << 20
"""Bytes a schema file may have."""
TREATMENTS = ("drop", "drop-unrelated", "terminal")
"""Treatments of cut episodes that a site can carry out alone."""


@dataclass(frozen=True, kw_only=True)
class SiteSchema:
    """What sites agree on before they count; immutable.

    Attributes:
        states: All state labels that may occur, in any order; the order breaks no tie.
        actions: All action labels. Where two actions are equally good, the earlier label wins, so
            keep them sorted to get what a pooled log gives.
        gamma: Discount per step, in (0, 1].
        value_range: (lowest, highest) return there can be, known beforehand. Default None: no
            histograms are counted, and no certificate can be made.
        cut: Treatment of cut episodes: "drop", "drop-unrelated" or "terminal" (see
            `dprl.DPRLDiscrete`). Default None: as "terminal", with a CutWarning.
        follow_up: The time for which every episode is followed, such as "30 days". Default None.

    Raises:
        ParameterError: A part is not what it must be.

    Example:
        >>> import dprl
        >>> schema = dprl.SiteSchema(states=["ill", "well"], actions=["drug", "wait"], gamma=1.0)
        >>> schema
        <SiteSchema: 2 states, 2 actions, gamma 1, no range of returns>
    """

    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    gamma: float
    value_range: tuple[float, float] | None = None
    cut: Cut | None = None
    follow_up: str | None = None

    def __post_init__(self) -> None:
        for name in ("states", "actions"):
            object.__setattr__(self, name, _labels(name, getattr(self, name)))
        pairs = len(self.states) * len(self.actions)
        if pairs > LARGEST_TABLE:
            raise ParameterError(
                f"{len(self.states):,} states x {len(self.actions):,} actions are too many for one "
                "table.",
                do="Merge states that are never told apart in practice.",
            )
        object.__setattr__(self, "gamma", check_gamma(self.gamma))
        if self.value_range is not None:
            object.__setattr__(self, "value_range", check_range(self.value_range))
        if self.cut is not None:
            check_choice(
                "cut", self.cut, TREATMENTS,
                "Other treatments estimate from all rows together, which no site has.",
            )  # fmt: skip
        if self.follow_up is not None:
            window_of(self.follow_up)

    def __repr__(self) -> str:
        values = "no range of returns"
        if self.value_range is not None:
            values = f"returns {self.value_range[0]:g} to {self.value_range[1]:g}"
        return (
            f"<SiteSchema: {len(self.states):,} states, {len(self.actions):,} actions, gamma "
            f"{self.gamma:g}, {values}>"
        )

    @classmethod
    def of(
        cls,
        log: Log,
        *,
        gamma: float,
        value_range: tuple[float, float] | None = None,
        cut: Cut | None = None,
    ) -> SiteSchema:
        """The schema with the labels of a log, and no count of it.

        Args:
            log: A log with labelled states. Its labels go into the schema, rare ones too: read
                them before you pass the schema on.
            gamma: Discount per step, in (0, 1].
            value_range: (lowest, highest) return there can be, never taken from the log. Default
                None.
            cut: Treatment of cut episodes. Default None.

        Returns:
            The schema; its follow_up is that of the log.

        Raises:
            LogError: The states of the log are features.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(50, seed=0)
            >>> dprl.SiteSchema.of(log, gamma=1.0).actions
            ('antibiotics', 'discharge', 'fluids', 'watch')
        """
        check_log(log)
        log.codes()
        return cls(
            states=log.states, actions=log.actions, gamma=gamma, value_range=value_range, cut=cut,
            follow_up=log.follow_up,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The schema as values JSON can hold.

        Returns:
            Name → value; lists in place of tuples.

        Example:
            >>> import dprl
            >>> dprl.SiteSchema(states=[1, 2], actions=["a"], gamma=0.9).to_dict()["states"]
            [1, 2]
        """
        ends = self.value_range
        return {
            "states": list(self.states), "actions": list(self.actions), "gamma": self.gamma,
            "value_range": None if ends is None else list(ends), "cut": self.cut,
            "follow_up": self.follow_up,
        }  # fmt: skip

    def digest(self) -> str:
        """SHA-256 of the schema.

        Returns:
            64 hexadecimal digits; equal schemas have equal digests.

        Example:
            >>> import dprl
            >>> len(dprl.SiteSchema(states=[1], actions=["a"], gamma=0.9).digest())
            64
        """
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema to a JSON file: wholly, or not at all.

        Args:
            path: The file.

        Example:
            >>> import dprl, pathlib, tempfile
            >>> schema = dprl.SiteSchema(states=["ill"], actions=["drug"], gamma=1.0)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     schema.save(pathlib.Path(folder, "schema.json"))
            ...     dprl.SiteSchema.load(pathlib.Path(folder, "schema.json")) == schema
            True
        """
        words = {"format": FORMAT, "version": VERSION, **self.to_dict()}
        with replacing(path) as part:
            part.write_text(json.dumps(words, indent=1, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SiteSchema:
        """Read a schema from a JSON file.

        Args:
            path: The file that `save` wrote, or that somebody wrote in its form.

        Returns:
            The schema.

        Raises:
            EvidenceError: There is no such file, or it holds no schema.

        Example:
            >>> import dprl, pathlib, tempfile
            >>> schema = dprl.SiteSchema(states=["ill"], actions=["drug"], gamma=1.0)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     schema.save(pathlib.Path(folder, "schema.json"))
            ...     dprl.SiteSchema.load(pathlib.Path(folder, "schema.json"))
            <SiteSchema: 1 states, 1 actions, gamma 1, no range of returns>
        """
        source = Path(path)
        if not source.is_file():
            raise EvidenceError(f"there is no schema file {str(path)!r}.", do="Check the path.")
        try:
            if source.stat().st_size > LARGEST_FILE:
                raise ValueError(f"it has {source.stat().st_size:,} bytes")
            words = json.loads(source.read_text("utf-8-sig"))
            if not isinstance(words, dict) or words.pop("format", None) != FORMAT:
                raise ValueError(f"it does not say format {FORMAT!r}")
            if words.pop("version", None) != VERSION:
                raise ValueError(f"this dprl reads version {VERSION}")
        except (ValueError, RecursionError) as error:
            raise _no_schema(source.name, str(error)) from error
        return cls.from_dict(words, source.name)

    @classmethod
    def from_dict(cls, words: Any, name: str = "schema") -> SiteSchema:
        """The schema of what `to_dict` gave.

        Args:
            words: Name → value.
            name: What messages call it. Default "schema".

        Returns:
            The schema.

        Raises:
            EvidenceError: The values are not those of a schema.

        Example:
            >>> import dprl
            >>> schema = dprl.SiteSchema(states=[1], actions=["a"], gamma=0.9)
            >>> dprl.SiteSchema.from_dict(schema.to_dict()) == schema
            True
        """
        own = set(cls.__dataclass_fields__)
        if not isinstance(words, dict) or set(words) != own:
            odd = sorted(set(words) ^ own)[:1] if isinstance(words, dict) else ["everything"]
            raise _no_schema(name, f"{odd[0]!r} is missing or does not belong there")
        ends = words["value_range"]
        try:
            return cls(**{**words, "value_range": None if ends is None else tuple(ends)})
        except (DprlError, TypeError) as error:
            raise _no_schema(name, str(getattr(error, "what", error))) from error


def _no_schema(name: str, why: str) -> EvidenceError:
    return EvidenceError(
        f"{name!r} is no schema of evidence.",
        why,
        worded(
            "Make one with {command}.",
            command=either("dprl.SiteSchema(...).save(path)", "dprl evidence --make-schema"),
        ),
    )


def _labels(name: str, given: Sequence[Label]) -> tuple[Label, ...]:
    """The labels as a tuple, if they are labels of one type and all different."""
    listed = isinstance(given, list | tuple)
    labels = tuple(given) if listed else ()
    kinds = {isinstance(label, str) for label in labels}
    if not labels or not all(isinstance(x, str | int) for x in labels) or len(kinds) > 1:
        raise ParameterError(
            f"{name} must be a list of labels, all text or all whole numbers.",
            f"got {given!r}"[:80],
            "Name them as the logs do.",
        )
    if len(set(labels)) < len(labels):
        twice = Counter(labels).most_common(1)[0][0]
        raise ParameterError(
            f"{len(labels) - len(set(labels)):,} of {len(labels):,} {name} are named more than "
            "once.",
            repr(twice),
            "Name each once.",
        )
    return labels
