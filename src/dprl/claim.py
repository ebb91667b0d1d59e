"""Certificate: what is proved about a policy, in words and numbers; it travels with the policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from dprl.errors import PolicyError
from dprl.log import Facts, Label
from dprl.table import Table, plain

__all__ = ["Certificate"]


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A claim about every suggestion of a policy, what it rests on, and what it is worth.

    Attributes:
        mode: "swap-split", "split" or "in-sample": which returns proposed and which certified.
        delta: The claim may fail with at most this probability.
        margin: What an advantage had to exceed, in units of returns.
        value_range: Lowest and highest return there can be, stated beforehand.
        gamma: Discount of the returns.
        groups: Independent groups (episodes, where no group was given) in the log.
        tested: Pairs the level was shared among (in each half, for a split).
        rows: One an issued suggestion: state, kind, usual, suggested, n, others (trajectories of
            the certifying part at first visits), difference (E x - E y, estimated there), low (its
            lower bound), advantage_low (lower bound of the advantage), log10_e (of the e-value of
            "no benefit").
        gain: Certified lower bound on ρ(π) - ρ(b); None where it was not computed.
        bounds: What other bounds would say: name → lower bound (None: minus infinity).
        assumptions: What the claim rests on.
        log: Digest of the log.
        notes: What a reader must know besides.
        cells: For numeric features: radius, eps_star, refuted, sensitivity; empty for labels.
    """

    mode: str
    delta: float
    margin: float
    value_range: tuple[float, float]
    gamma: float
    groups: int
    tested: tuple[int, ...]
    rows: tuple[Mapping[str, Any], ...]
    gain: float | None
    bounds: Mapping[str, float | None]
    assumptions: tuple[str, ...]
    log: str
    notes: tuple[str, ...] = ()
    cells: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        number = (int, float)
        ok = (
            self.mode in ("swap-split", "split", "in-sample")
            and all(isinstance(getattr(self, n), number) for n in ("delta", "margin", "gamma"))
            and 0 < self.delta < 1
            and len(self.value_range) == 2
            and all(isinstance(v, number) for v in self.value_range)
            and self.value_range[0] < self.value_range[1]
            and all(isinstance(row, Mapping) and set(row) >= ROW for row in self.rows)
            and (self.gain is None or isinstance(self.gain, number))
            and all(v is None or isinstance(v, number) for v in self.bounds.values())
            and all(isinstance(w, str) for w in (*self.assumptions, *self.notes))
        )
        if not ok:
            raise PolicyError("a certificate cannot be made of these parts.")
        put("rows", tuple(Facts(row) for row in self.rows))
        put("bounds", Facts(self.bounds))
        put("cells", Facts(self.cells))

    @property
    def trivial(self) -> float:
        """The bound that needs no data: no policy is worse than another by more."""
        return self.value_range[0] - self.value_range[1]

    @property
    def vacuous(self) -> bool:
        """Whether nothing is claimed: no suggestion could be certified."""
        return not self.rows

    @property
    def issued(self) -> dict[Label, Label]:
        """State → suggested action, of everything it covers."""
        return {row["state"]: row["suggested"] for row in self.rows}

    @property
    def claim(self) -> str:
        """The claim in one or two sentences."""
        sure = f"{100 * (1 - self.delta):.6g} %"
        if self.vacuous:
            return (
                "VACUOUS: nothing could be certified from this log, so nothing is suggested. The "
                "policy is usual practice itself."
            )
        n = len(self.rows)
        every = "the one suggestion below is a" if n == 1 else f"all {n:,} suggestions below are"
        better = f" by more than {self.margin:g}" if self.margin > 0 else ""
        words = (
            f"With probability at least {sure}, {every} true improvement{'s' * (n != 1)} on usual "
            f"practice{better}, and so is the policy as a whole."
        )
        if self.gain:
            words += f" Its value exceeds usual practice by at least {self.gain:.4g}."
        return words

    def restricted(self, states: Iterable[Label]) -> Certificate:
        """The certificate of the policy that keeps only its suggestions in these states.

        The claim holds for all suggestions at once, so it holds for fewer. The gain was certified
        for all of them together; for fewer it is only known to be at least 0.
        """
        keep = set(states)
        rows = tuple(row for row in self.rows if row["state"] in keep)
        if len(rows) == len(self.rows):
            return self
        said = (
            f"Restated for {len(rows):,} of {len(self.rows):,} certified suggestions; the gain of "
            "fewer is at least 0, and was not bounded again."
        )
        return replace(self, rows=rows, gain=0.0 if rows else None, notes=(*self.notes, said))

    # -- for people and files ------------------------------------------------------------------

    def table(self) -> Table:
        """The certified suggestions, the largest bound first."""
        rows = sorted(self.rows, key=lambda r: -r["low"])
        return Table(
            {name: [row[name] for row in rows] for name in ORDER},
            caption=f"{len(rows):,} certified suggestion{'s' * (len(rows) != 1)}",
            note=NOTE if rows else "",
            identifiers=frozenset({"state", "usual", "suggested"}),
        )

    def comparison(self) -> Table:
        """The certified gain beside what other bounds would say."""
        names, values = list(self.bounds), list(self.bounds.values())
        if self.gain is not None:
            names, values = ["this certificate", *names], [self.gain, *values]
        return Table(
            {
                "bound": names,
                "value": values,
                "vacuous": [v is None or v <= self.trivial for v in values],
            },
            caption="Lower bounds on what the policy gains, ρ(π) - ρ(b)",
            note=f"The trivial bound, which needs no data, is {self.trivial:g}.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values; `from_dict` reads it back."""
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        result: dict[str, Any] = plain(facts)
        return {**result, "claim": self.claim, "vacuous": self.vacuous, "trivial": self.trivial}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """A certificate from its plain values; anything odd is a PolicyError."""
        names = {f.name for f in fields(cls)}
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in facts.items() if k in names
        }
        try:
            return cls(**given)
        except (TypeError, AttributeError, KeyError):
            raise PolicyError("a certificate cannot be made of these parts.") from None

    def cell_lines(self) -> list[str]:
        """What a certificate over cells of features says besides; nothing for labels."""
        return _cell_lines(self.cells) if self.cells else []

    def _repr_html_(self) -> str:
        from dprl import pages

        return pages.snippet("certificate", certificate=self)

    def __str__(self) -> str:
        lines = [f"Certificate ({self.mode}, δ = {self.delta:g})", self.claim]
        if self.rows:
            lines += ["", str(self.table())]
        lines += ["", str(self.comparison())]
        if self.cells:
            lines += ["", *self.cell_lines()]
        lines += ["", "It rests on:", *(f"  - {a}" for a in self.assumptions)]
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Certificate: {len(self.rows):,} suggestions, δ = {self.delta:g}>"


ORDER = ("state", "kind", "usual", "suggested", "n", "others", "difference", "low",
         "advantage_low", "log10_e")  # fmt: skip
ROW = set(ORDER)
NOTE = (
    "difference: mean return of taking the suggestion less that of doing otherwise, on the part "
    "of the log\nthat certified it; low: its lower bound, for all rows at once. log10_e: the "
    "evidence against 'no benefit',\nin powers of ten."
)


def _cell_lines(cells: Mapping[str, Any]) -> list[str]:
    """What a certificate over cells of features says besides."""
    lines = [
        f"States are cells of radius {cells['radius']:g} around {cells['centres']:,} centres; "
        "farther from all of them it defers.",
    ]
    if cells.get("eps_star") is not None:
        lines.append(
            f"The claim holds while values within a cell differ by less than eps* = "
            f"{cells['eps_star']:.4g}"
            + (
                f"; the data refute differences of at most {cells['refuted']:.4g}."
                if cells.get("refuted")
                else "; the data refute no such difference."
            )
        )
        if cells.get("refuted") and cells["refuted"] >= cells["eps_star"]:
            lines.append(
                "WARNING: cells are too large: the data show more difference within a cell than "
                "the claim bears. Use a smaller radius."
            )
    for row in cells.get("sensitivity", ()):
        gain = "–" if row["gain"] is None else f"{row['gain']:.4g}"
        lines.append(
            f"  with radius {row['radius']:g}: {row['suggestions']:,} suggestions, gain >= {gain}"
        )
    return lines
