"""Monitor: does what was certified still hold, while new groups come in?"""

from __future__ import annotations

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core import plot
from dprl._core.checks import check_delta
from dprl._core.table import Table, to_json_value
from dprl._core.words import either, option, worded
from dprl.certificate._record import FORMAT, Record, marks_of, together
from dprl.certificate._visits import COLUMNS, Visits, counted, visits_of
from dprl.certificate._watch import Watch, watch
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.logs._censoring import settle
from dprl.logs._overlap import seen as seen_before
from dprl.logs._parquet import write_rows
from dprl.logs.log import Log, check_log
from dprl.logs.visits import first_visits

__all__ = ["Monitor"]

Ints = NDArray[np.int64]


class Monitor:
    """What new groups say of a certified policy; it may be asked at any time, as often as wanted.

    Groups are added as they come, and each counts once. What is kept is a small file of counts
    (`dprl.certificate._record`), so the logs themselves need not be kept.

    Attributes:
        policy: The policy.
        delta: How often each kind of statement may be false.
        record: What was added so far.

    Example:
        >>> import dprl
        >>> world = dprl.envs.care_pathway()
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
        >>> monitor = dprl.Monitor(policy)
        >>> monitor.add(world.sample(500, seed=1)).status
        'still certified'
        >>> monitor.groups
        500
    """

    def __init__(
        self, policy: Any, path: str | os.PathLike[str] | None = None, *, delta: float | None = None
    ) -> None:
        """Begin, or go on from a file.

        Args:
            policy: A policy that went through `dprl.gate`, over labelled states.
            path: The file of the monitor. It is made at the first addition where there is none.
                Default None: nothing is written.
            delta: How often each kind of statement may be false, in (0, 1). Default None: that of
                the certificate; a file keeps the one it began with.

        Raises:
            PolicyError: The policy has no certificate over labelled states, or the file belongs to
                another policy, or is damaged.
            ParameterError: `delta` is out of range, or not the one that the file began with.
        """
        certificate = getattr(policy, "certificate", None)
        if certificate is None or getattr(policy, "changes_by", "") != "state":
            raise PolicyError(
                "a monitor needs a certificate over labelled states to hold new groups against.",
                repr(policy),
                worded(
                    "Gate the policy first: {command}.",
                    command=either("dprl.gate(policy, log, ...)", "dprl gate"),
                ),
            )
        if getattr(certificate, "grade", "proved") != "proved":
            raise PolicyError(
                "a monitor continues a proved certificate; this one is large-sample.",
                do=worded("Gate the policy with {grade}.", grade=option("grade", "proved")),
            )
        if certificate.kind.whole:
            raise PolicyError(
                "a monitor watches single suggestions; this certificate is about the policy as a "
                "whole and claims nothing about any one of them.",
                do=worded(
                    "Gate the policy with {mode} or {mode2}.",
                    mode=option("mode", "swap-split"),
                    mode2=option("mode", "in-sample"),
                ),
            )
        self.policy = policy
        self.delta = check_delta(certificate.delta if delta is None else delta)
        head = {
            "format": FORMAT, "policy": policy.digest(), "delta": self.delta,
            "gamma": certificate.gamma, "range": list(certificate.value_range),
            "markov": getattr(certificate, "visits", "first") == "all",
            "salt": secrets.token_hex(16),
        }  # fmt: skip
        self.record = Record(None if path is None else Path(path), head)
        if path is not None and Path(path).exists():
            self.record = Record.read(Path(path))
            self._check_head(head, asked=delta)

    def _check_head(self, head: dict[str, Any], asked: float | None) -> None:
        """Refuse a file of another policy, or with another δ than asked for."""
        mine = self.record.head
        if mine.get("policy") != head["policy"]:
            raise PolicyError(
                "the file of the monitor belongs to another policy, "
                f"{str(mine.get('policy'))[:12]}; this is {head['policy'][:12]}.",
                str(self.record.path),
                "Name another file (--record): each policy has its own.",
            )
        if asked is not None and asked != mine["delta"]:
            raise ParameterError(
                f"the file of the monitor began with delta = {mine['delta']:g}; got {asked:g}.",
                str(self.record.path),
                "Leave delta out: it cannot be changed after looking.",
            )
        self.delta = float(mine["delta"])

    @property
    def groups(self) -> int:
        """The number of new groups so far."""
        return sum(len(entry["groups"]) for entry in self.record.additions)

    def add(self, log: Log, *, when: str | None = None) -> Watch:
        """Add the groups of a log that were not added before, and look.

        Args:
            log: New episodes; groups that were added before are left out.
            when: When they were added, for the history. Default None: now.

        Returns:
            How the claims stand with them.

        Raises:
            LogError: States are not labels, no group is new, or a return is outside the range.
            PolicyError: The log is one that the policy was made from.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> dprl.Monitor(policy).add(world.sample(500, seed=1)).groups
            500
        """
        check_log(log)
        if log.state is None:
            raise LogError(
                "the policy is over labelled states; this log's states are features.",
                do="Read the column of labels as the state.",
            )
        what = seen_before(self.policy.provenance, log)
        if what:
            raise PolicyError(
                f"{what}: it cannot speak for the policy again.",
                f"log {log.digest()[:12]}",
                "Add groups that came after the policy was made.",
            )
        marks = marks_of(log.groups, self.record.head["salt"])
        before = self.record.marks()
        new = np.array([mark not in before for mark in marks], bool)
        if not new.any():
            raise LogError(
                f"all {len(marks):,} groups of this log were added before.",
                do="Nothing was changed. Add logs of new groups.",
            )
        log = log.take(np.flatnonzero(new[log.group]))
        settled = settle(log, self.record.head["gamma"], self.policy.parameters.get("cut"))
        visits, strange = self._visits(settled.gathered())
        entry: dict[str, Any] = {
            "when": when or datetime.now(UTC).isoformat(timespec="seconds"),
            "groups": [mark for mark, fresh in zip(marks, new, strict=True) if fresh],
            "left_out": int((~new).sum()), "steps": settled.n_steps, "strange": strange,
            "visits": {name: getattr(visits, name).tolist() for name in COLUMNS},
            "first": _sparse(self._first(settled.gathered())),
        }  # fmt: skip
        looked = self._look([*self.record.additions, entry])
        entry["look"] = looked.to_dict()
        self.record.add(entry)
        return looked

    def look(self) -> Watch:
        """How the claims stand now.

        Returns:
            The same as the last addition returned.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> dprl.Monitor(policy).look().status
            'still certified'
        """
        return self._look(self.record.additions)

    def merge(self, other: Monitor) -> Monitor:
        """The additions of two monitors of one policy together, as if all had gone to one.

        Args:
            other: A monitor of the same policy that began from a copy of the same file, so that
                groups are recognised; no group may be in both.

        Returns:
            A new monitor, without a file.

        Raises:
            PolicyError: They are of different policies or did not begin from one file, or a group
                is in both.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> here = dprl.Monitor(policy)
            >>> here.merge(here).groups
            0
        """
        if other.record.head != self.record.head:
            raise PolicyError(
                "these monitors did not begin from the same file.",
                do="Begin one, copy its file to every site, and add there.",
            )
        both = self.record.marks() & other.record.marks()
        if both and other is not self:
            raise PolicyError(
                f"{len(both):,} groups are in both monitors.", do="Each group may count once."
            )
        merged = Monitor(self.policy, delta=self.delta)
        merged.record = Record(None, self.record.head)
        for entry in together(self.record, other.record):
            merged.record.additions.append({k: v for k, v in entry.items() if k != "look"})
            looked = merged._look(merged.record.additions)
            merged.record.additions[-1]["look"] = looked.to_dict()
        return merged

    def history(self) -> Table:
        """How the evidence grew: one row per addition and suggestion.

        Returns:
            Columns when, groups, state, suggested, difference, log10_e_less, log10_e_worse,
            verdict.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> monitor = dprl.Monitor(policy)
            >>> _ = monitor.add(world.sample(100, seed=1))
            >>> monitor.history()["groups"]
            [100, 100]
        """
        names = ("state", "suggested", "difference", "log10_e_less", "log10_e_worse", "verdict")
        columns: dict[str, list[Any]] = {name: [] for name in ("when", "groups", *names)}
        for entry in self.record.additions:
            for row in entry["look"]["suggestions"]:
                columns["when"].append(entry["when"])
                columns["groups"].append(entry["look"]["groups"])
                for name in names:
                    columns[name].append(row[name])
        return Table(columns, "Evidence against what was promised, addition by addition")

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """The evidence against each suggestion over time, with the line at which it decides.

        Args:
            path: A file to save to (.png, .svg or .pdf); the rows go beside it as .parquet. Default
                None: nothing is written.

        Returns:
            The matplotlib figure.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> world = dprl.envs.care_pathway()
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> policy = dprl.gate(learner, world.sample(4000, seed=0), value_range=(0, 1))
            >>> figure = dprl.Monitor(policy).plot()
        """
        rows = self.history().to_dicts()
        line = np.log10(4 * max(len(self.policy.certificate.rows), 1) / self.delta)
        with plot.look():
            figure, axes = plot.grid(1, 1, width=6.4, height=3.8)
            axis = axes[0, 0]
            labels = list(dict.fromkeys((r["state"], r["suggested"]) for r in rows))
            last = {}
            for state, suggested in labels:
                mine = [r for r in rows if (r["state"], r["suggested"]) == (state, suggested)]
                last[state, suggested] = mine[-1]["log10_e_less"]
            loudest = sorted(labels, key=lambda label: -last[label])[:8]
            for label in labels:
                mine = [r for r in rows if (r["state"], r["suggested"]) == label]
                x, y = [r["groups"] for r in mine], [r["log10_e_less"] for r in mine]
                words = f"{label[0]}: {label[1]}"
                loud = label in loudest
                look = {"lw": 1.6, "label": words} if loud else {"lw": 0.8, "color": "#bbbbbb"}
                axis.plot(x, y, marker="o", ms=3, **look)
            plot.reference(axis, float(line), "contradicted above this line")
            axis.set(xlabel="new groups", ylabel="evidence against the promise (powers of ten)")
            if labels:
                figure.legend(*axis.get_legend_handles_labels(), loc="outside right center",
                              fontsize=8)  # fmt: skip
            if path is not None:
                plot.save(figure, Path(path))
                write_rows(to_json_value(rows), Path(path).with_suffix(".parquet"))
        return figure

    def _visits(self, log: Log) -> tuple[Visits, float]:
        """Visits in the labels of the policy, and the share of steps in states it does not know."""
        head = self.record.head
        low, high = head["range"]
        own = visits_of(log, head["gamma"], (low, high), markov=head["markov"])
        A, state, action = len(self.policy.actions), *self._codes(log)
        s, a = state[own.pair // log.n_actions], action[own.pair % log.n_actions]
        fine = s >= 0
        columns = [c[fine] for c in (s * (A + 1) + a, own.gap, own.bin, own.count)]
        strange = float((state[log.codes()] < 0).mean()) if log.n_steps else 0.0
        return self._counted(columns, own.n_groups), strange

    def _counted(self, columns: list[Ints], groups: int) -> Visits:
        """Visits of these columns (pair, gap, bin, count); equal entries are added up."""
        head, policy = self.record.head, self.policy
        pair, gap, bins, count = counted(*columns)
        low, high = head["range"]
        return Visits(
            pair, gap, bins, count, policy.states, (*policy.actions, "another action"),
            head["gamma"], (low, high), head["markov"], groups,
        )  # fmt: skip

    def _codes(self, log: Log) -> tuple[Ints, Ints]:
        """The policy's code of each state of a log (-1: unknown), and of each action (A: other)."""
        A = len(self.policy.actions)
        states = {label: s for s, label in enumerate(self.policy.states)}
        actions = {label: a for a, label in enumerate(self.policy.actions)}
        return (
            np.array([states.get(label, -1) for label in log.states], np.int64),
            np.array([actions.get(label, A) for label in log.actions], np.int64),
        )

    def _first(self, log: Log) -> Ints:
        """int64 (S, A + 1): groups that took each action at their first visit of each state."""
        state, action = self._codes(log)
        rows = np.flatnonzero(first_visits(log))
        s, a = state[log.codes()[rows]], action[log.action[rows]]
        S, A = len(self.policy.states), len(self.policy.actions) + 1
        fine = s >= 0
        return np.bincount(s[fine] * A + a[fine], minlength=S * A).reshape(S, A)

    def _look(self, additions: list[dict[str, Any]]) -> Watch:
        parts = [[np.array(e["visits"][c], np.int64) for e in additions] for c in COLUMNS]
        columns = [np.concatenate([np.zeros(0, np.int64), *part]) for part in parts]
        groups = sum(len(e["groups"]) for e in additions)
        S, A = len(self.policy.states), len(self.policy.actions) + 1
        since = np.zeros(S * A, np.int64)
        for entry in additions:
            since[np.array(entry["first"]["pair"], np.int64)] += entry["first"]["count"]
        steps = sum(e["steps"] for e in additions)
        strange = sum(e["strange"] * e["steps"] for e in additions) / max(steps, 1)
        return watch(
            self.policy, self._counted(columns, groups), since.reshape(S, A), delta=self.delta,
            n_min=float(self.policy.parameters.get("n_min") or 1), strange=strange,
        )  # fmt: skip


def _sparse(counts: Ints) -> dict[str, list[int]]:
    flat = counts.ravel()
    at = np.flatnonzero(flat)
    return {"pair": at.tolist(), "count": flat[at].tolist()}
