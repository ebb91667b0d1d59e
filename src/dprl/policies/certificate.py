"""Certificate: what is proved about a policy, in words and numbers; it travels with the policy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

from dprl._core.table import Table, plain
from dprl.errors import PolicyError
from dprl.logs.log import Facts, Label
from dprl.policies._decisions import Kind

__all__ = ["Certificate", "down"]


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

        ok = (
            self.mode in ("swap-split", "split", "in-sample")
            and _numbers(self.delta, self.margin, self.gamma, *self.value_range)
            and 0 < self.delta < 1
            and self.margin >= 0
            and 0 < self.gamma <= 1
            and len(self.value_range) == 2
            and self.value_range[0] < self.value_range[1]
            and _numbers(self.groups, *self.tested)
            and all(_is_row(row) for row in self.rows)
            and len({row["state"] for row in self.rows}) == len(self.rows)
            and (self.gain is None or (_numbers(self.gain) and 0 <= self.gain <= -self.trivial))
            and all(v is None or _numbers(v) for v in self.bounds.values())
            and all(isinstance(x, tuple) for x in (self.rows, self.assumptions, self.notes))
            and bool(self.assumptions)
            and all(isinstance(w, str) for w in (*self.assumptions, *self.notes, self.log))
            and _are_cells(self.cells)
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
        if self.vacuous:
            return (
                "VACUOUS: no suggestion is certified, so none is made. The policy is usual "
                "practice itself."
            )
        n = len(self.rows)
        every = "the one suggestion below is a" if n == 1 else f"all {n:,} suggestions below are"
        better = f" by more than {self.margin:g} each" if self.margin > 0 else ""
        words = (
            f"With probability at least {self.sure}, {every} true improvement{'s' * (n != 1)} "
            f"on usual practice{better}, so the policy as a whole is no worse than it."
        )
        if self.gain:
            words += f" Its value exceeds usual practice by at least {down(self.gain):.4g}."
        return words

    @property
    def sure(self) -> str:
        """1 - δ in words, never more than it is."""
        if self.delta < 1e-4:
            return f"1 - {self.delta:g}"
        return f"{math.floor(1e6 * (1 - self.delta) + 1e-6) / 1e4:g} %"

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
        gone = {"sensitivity"} if rows else {"sensitivity", "eps_star", "refuted"}
        return replace(
            self,
            rows=rows,
            gain=0.0 if rows else None,
            notes=(*self.notes, said),
            bounds={},  # they were about all of them
            cells={k: v for k, v in self.cells.items() if k not in gone},
        )

    # -- for people and files ------------------------------------------------------------------

    def table(self) -> Table:
        """The certified suggestions, the largest bound first."""
        rows = sorted(self.rows, key=lambda r: -r["low"])
        return Table(
            {n: [down(row[n]) if n in LOWER else row[n] for row in rows] for n in ORDER},
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
                "value": [None if v is None else down(v) for v in values],
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
        except (TypeError, AttributeError, KeyError, ValueError):
            raise PolicyError("a certificate cannot be made of these parts.") from None

    def cell_lines(self) -> list[str]:
        """What a certificate over cells of features says besides; nothing for labels."""
        return _cell_lines(self.cells) if self.cells else []

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

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


KINDS: Final = {kind.word for kind in (Kind.DEFER, Kind.CONFIRM, Kind.CHANGE)}
ORDER = ("state", "kind", "usual", "suggested", "n", "others", "difference", "low",
         "advantage_low", "log10_e")  # fmt: skip
ROW = set(ORDER)
LOWER = ("low", "advantage_low")
NOTE = (
    "difference (to doing otherwise): mean return of taking the suggestion less that of all who "
    "did not, on the\npart of the log that certified it; low: its lower bound, for all rows at "
    "once. log10_e: the evidence against\n'no benefit', in powers of ten."
)


def down(value: float) -> float:
    """A lower bound as it is printed: rounded down, to thousandths or to four digits."""
    if not value:
        return 0.0
    digits: int = 3 if abs(value) >= 1e-3 else 3 - math.floor(math.log10(abs(value)))
    return float(math.floor(value * 10.0**digits + 1e-9) / 10.0**digits)


def _numbers(*values: Any) -> bool:
    """Whether all are finite numbers."""
    return all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values
    )


def _is_row(row: Any) -> bool:
    """Whether this is one certified suggestion."""
    if not (isinstance(row, Mapping) and set(row) >= ROW and row["kind"] in KINDS):
        return False
    labels = (row["state"], row["usual"], row["suggested"])
    counts = (row["n"], row["others"])
    return (
        all(isinstance(label, str | int) for label in labels)
        and all(isinstance(n, int) and n >= 0 for n in counts)
        and _numbers(*(row[name] for name in ("difference", "low", "advantage_low", "log10_e")))
    )


def _are_cells(cells: Any) -> bool:
    """Whether these are facts about cells, or none."""
    if not isinstance(cells, Mapping):
        return False
    if not cells:
        return True
    more = cells.get("sensitivity", ())
    return (
        _numbers(*(cells.get(k, -1) for k in ("radius", "centres", "eps_star", "refuted")))
        and isinstance(more, list | tuple)
        and all(
            isinstance(m, Mapping)
            and _numbers(m.get("radius"), m.get("suggestions"))
            and (m.get("gain") is None or _numbers(m.get("gain")))
            for m in more
        )
    )


def _cell_lines(cells: Mapping[str, Any]) -> list[str]:
    """What a certificate over cells of features says besides."""
    lines = [
        f"States are cells of radius {cells['radius']:g} around {cells['centres']:,} centres; "
        "farther from all of them it defers.",
    ]
    if cells.get("eps_star") is not None:
        shown = (
            f"the data prove differences of {down(cells['refuted']):.4g} (at a level δ of its own)"
            if cells.get("refuted")
            else "the data prove no difference there"
        )
        lines.append(
            "Suggestions improve everywhere in their cells while E x and E y differ within a cell "
            f"by less than eps* = {down(cells['eps_star']):.4g}; {shown}. The gain is for no "
            "difference at all."
        )
    for row in cells.get("sensitivity", ()):
        gain = "–" if row["gain"] is None else f"{down(row['gain']):.4g}"
        lines.append(
            f"  with radius {row['radius']:g}: {row['suggestions']:,} suggestions, gain >= {gain}"
        )
    if cells.get("sensitivity"):
        lines.append("  (each at its own δ: not to choose the radius by)")
    return lines
