"""Certificate: what is proved about a policy, in words and numbers; it travels with the policy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from dprl._core.plural import many
from dprl._core.table import Table, to_json_value
from dprl._core.words import joined, say, say_many, sentences, word
from dprl.errors import PolicyError
from dprl.logs.log import Facts, Label
from dprl.policies._certificate_kinds import (
    KINDS,
    LOWER,
    CertificateKind,
    approximation_words,
    are_cells,
    are_numbers,
    cell_lines,
    down,
    hidden_words,
    is_approximation,
    is_row,
    is_whole,
    shown,
    whole_lines,
    wrong_certificate,
)

__all__ = ["Certificate", "down"]


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A claim about every suggestion of a policy, its assumptions, and what the policy gains.

    `dprl.gate` makes it, and it is saved with the policy.

    Attributes:
        mode: "swap-split", "split" or "in-sample": which part of the log proposed suggestions and
            which part certified them; "policy": the claim is about the policy as a whole, and
            nothing is claimed about any one suggestion.
        delta: Probability with which the claim may fail, in (0, 1).
        margin: The advantage that each suggestion had to exceed, in units of returns; in mode
            "policy", what the gain of the whole had to exceed.
        value_range: (lowest, highest) return there can be, stated beforehand; None where the grade
            is "large-sample" and nobody stated it.
        gamma: Discount of the returns, per step.
        groups: Number of independent groups (episodes, where no group was given) in the log.
        tested: Number of pairs that the level was divided among, for each part that certified.
        rows: One row per issued suggestion, with the keys state, kind ("change" or
            "confirmation"), usual, suggested, n and others (trajectories of the certifying part
            that took the suggestion at their first visit, and that did not), difference (E x - E y
            as estimated there), low (its lower bound), advantage_low (lower bound of the
            advantage), log10_e (logarithm, base 10, of the e-value of "no benefit"), gamma_star
            (Γ*: up to this factor an unrecorded cause may move the odds of the suggestion, the
            state being equal, and the row is still proved) and gamma_point (the same as estimated,
            without allowance for chance); both from 1 to 20, and 20 means "or more". For large
            samples p, the adjusted p-value, in place of log10_e, and no Γ. In mode "policy" only
            the first seven: a row has no bound of its own.
        gain: Certified lower bound on ρ(π) - ρ(b), in units of returns; None where it was not
            computed.
        bounds: What other bounds would say: name → lower bound (None: minus infinity).
        assumptions: The assumptions of the claim, one sentence each.
        log: Digest of the log.
        notes: Further sentences that a reader must know.
        cells: For numeric features: radius, centres, eps_star, refuted, sensitivity; for rules
            "rules", how many were tested; empty for labelled states.
        visits: Which visits of a state counted as evidence: "all" of an episode, or a group's
            "first".
        markov: Whether the claim rests on the Markov property: what follows a visit depends on the
            past through the state alone. Without it, the claim is about first visits, and nothing
            is claimed of the policy as a whole. (Only mode "policy" claims that without it.)
        confounding: Γ, at least 1: only what remains proved at this strength of an unrecorded cause
            was issued; low, advantage_low and log10_e are for this Γ. Default 1.
        grade: "proved" (exact for samples of any size) or "large-sample" (an approximation).
            Default "proved".
        approximation: For large samples: measured_from, the sample from which on the error of the
            approximation was measured, and smallest, the smallest sample behind this claim. Empty
            for what is proved.
        whole: In mode "policy": how the whole policy was bounded, as name → number or words. Empty
            otherwise.

    Raises:
        PolicyError: The parts do not make a certificate.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> certificate = dprl.gate(learner, log, delta=0.05, value_range=(0, 1)).certificate
        >>> certificate.issued
        {'fever': 'antibiotics', 'worse': 'fluids'}
    """

    mode: str
    delta: float
    margin: float
    value_range: tuple[float, float] | None
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
    visits: str = "first"
    markov: bool = True
    confounding: float = 1.0
    grade: str = "proved"
    approximation: Mapping[str, Any] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        ends = () if self.value_range is None else self.value_range
        ok = (
            self.mode in KINDS
            and self.grade in ("proved", "large-sample")
            and are_numbers(self.delta, self.margin, self.gamma, *ends)
            and 0 < self.delta < 1
            and self.margin >= 0
            and 0 < self.gamma <= 1
            and (len(ends) == 2 and ends[0] < ends[1] if ends else self.grade != "proved")
            and are_numbers(self.groups, *self.tested)
            and all(is_row(row, self.kind.columns(self.grade)) for row in self.rows)
            and is_approximation(self.approximation, self.grade)
            and is_whole(self.whole, self.kind.whole)
            and (not self.kind.whole or not self.rows or self.gain is not None)
            and len({row["state"] for row in self.rows}) == len(self.rows)
            and (self.gain is None or (are_numbers(self.gain) and 0 <= self.gain <= -self.trivial))
            and all(v is None or are_numbers(v) for v in self.bounds.values())
            and all(isinstance(x, tuple) for x in (self.rows, self.assumptions, self.notes))
            and bool(self.assumptions)
            and all(isinstance(w, str) for w in (*self.assumptions, *self.notes, self.log))
            and are_cells(self.cells)
            and self.visits in ("all", "first")
            and isinstance(self.markov, bool)
            and (self.markov or self.visits == "first")
            and (self.markov or self.gain is None or self.kind.whole)
            and (self.grade == "proved" or self.visits == "first")
            and (self.grade == "proved" or self.confounding == 1)
            and (not self.kind.whole or self.confounding == 1)
            and are_numbers(self.confounding)
            and self.confounding >= 1
        )
        if not ok:
            raise PolicyError("a certificate cannot be made of these parts.")
        if wrong := wrong_certificate(self):
            raise PolicyError(
                "a certificate does not follow from the numbers stored with it.",
                wrong,
                "Gate the policy again: nothing is proved by this one.",
            )
        put("rows", tuple(Facts(row) for row in self.rows))
        put("bounds", Facts(self.bounds))
        put("cells", Facts(self.cells))
        put("approximation", Facts(self.approximation))
        put("whole", Facts(self.whole))

    @property
    def kind(self) -> CertificateKind:
        """The kind of certificate it is.

        Returns:
            What the kind declares: the columns of its rows, and how its claim is told.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.kind.columns("proved")[-3:]
            ('low', 'advantage_low', 'log10_e')
        """
        return KINDS[self.mode]

    @property
    def trivial(self) -> float:
        """The bound that needs no data: no policy is worse than another by more than this.

        Returns:
            lowest - highest return, a number below 0; minus infinity where no range was stated.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.trivial
            -1.0
        """
        return -math.inf if self.value_range is None else self.value_range[0] - self.value_range[1]

    @property
    def vacuous(self) -> bool:
        """Whether nothing is claimed, because no suggestion could be certified.

        Returns:
            True where the certificate has no rows.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.vacuous
            False
        """
        return not self.rows

    @property
    def issued(self) -> dict[Label, Label]:
        """The certified suggestions.

        Returns:
            State → suggested action.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.issued["fever"]
            'antibiotics'
        """
        return {row["state"]: row["suggested"] for row in self.rows}

    @property
    def claim(self) -> str:
        """The claim in one or two sentences.

        Returns:
            English text; it begins with VACUOUS where nothing is claimed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> print(certificate.claim)  # doctest: +ELLIPSIS
            With probability at least 95 %, all 2 suggestions below are true improvements on ...
        """
        whole = self.kind.whole
        if self.vacuous:
            return (
                (
                    sentences(
                        say(
                            "VACUOUS: the policy as a whole is not certified, so no suggestion is "
                            "made."
                        ),
                        say("The policy is usual practice itself."),
                    )
                    if whole
                    else sentences(
                        say("VACUOUS: no suggestion is certified, so none is made."),
                        say("The policy is usual practice itself."),
                    )
                )
                if self.grade == "proved"
                else (
                    sentences(
                        say(
                            "VACUOUS (large-sample): the policy as a whole is not certified, so "
                            "no suggestion is made."
                        ),
                        say("The policy is usual practice itself."),
                    )
                    if whole
                    else sentences(
                        say("VACUOUS (large-sample): no suggestion is certified, so none is made."),
                        say("The policy is usual practice itself."),
                    )
                )
            )
        with_words = say("With probability at least {sure}", sure=self.sure)
        if self.grade != "proved":
            with_words = say(
                "Large-sample, not proved: with confidence of about {sure}", sure=self.sure
            )
        about = approximation_words(self.approximation, whole)
        hidden = "" if whole else hidden_words(self.rows, self.confounding)
        return sentences(self.kind.claim(self, with_words), about, hidden)

    @property
    def sure(self) -> str:
        """The probability 1 - δ as text, rounded down.

        Returns:
            A percentage such as "95 %", or "1 - δ" for a very small δ.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.sure
            '95 %'
        """
        if self.delta < 1e-4:
            return say("1 - {delta:g}", delta=self.delta)
        return say("{p:g} %", p=math.floor(1e6 * (1 - self.delta) + 1e-6) / 1e4)

    def restricted(self, states: Iterable[Label]) -> Certificate | None:
        """The certificate of the policy that keeps only its suggestions in these states.

        The claim holds for all suggestions at once, so it holds for fewer of them. The gain was
        certified for all of them together; for fewer it is only known to be at least 0. A claim
        about the whole policy (mode "policy") says nothing of a part of it.

        Args:
            states: The state labels (or cell numbers) to keep; others that it has are left out.

        Returns:
            The restricted certificate; the same object where nothing is left out; None where the
            claim is about the whole policy and something is left out.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.restricted(["fever"]).issued
            {'fever': 'antibiotics'}
        """
        keep = set(states)
        rows = tuple(row for row in self.rows if row["state"] in keep)
        if len(rows) == len(self.rows):
            return self
        if self.kind.whole:
            return None
        k, n = len(rows), len(self.rows)
        note = say("Restated for {k:,} of {n:,} certified suggestions.", k=k, n=n)
        if self.gain is not None:
            note = say(
                "Restated for {k:,} of {n:,} certified suggestions; the gain of fewer is at least "
                "0, and was not bounded again.",
                k=k,
                n=n,
            )
        gone = {"sensitivity"} if rows else {"sensitivity", "eps_star", "refuted"}
        return replace(
            self,
            rows=rows,
            gain=0.0 if rows and self.gain is not None else None,
            notes=(*self.notes, note),
            bounds={},  # they were about all suggestions together
            cells={k: v for k, v in self.cells.items() if k not in gone},
        )

    # -- for people and files ------------------------------------------------------------------

    def table(self) -> Table:
        """The certified suggestions, those with the largest lower bound first.

        Returns:
            A table with one row per suggestion; its columns are the keys of `rows`.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.table()["suggested"]
            ['fluids', 'antibiotics']
        """
        whole = self.kind.whole
        first = "low" if "low" in self.kind.columns(self.grade) else "difference"
        rows = sorted(self.rows, key=lambda r: -(r[first] or 0.0))
        columns, note = shown(rows, self.kind, self.grade)
        return Table(
            {n: [down(row[n]) if n in LOWER else row[n] for row in rows] for n in columns},
            caption=(
                say_many(
                    "{n:,} suggestion, certified only together",
                    "{n:,} suggestions, certified only together",
                    rows,
                )
                if whole
                else say_many("{n:,} certified suggestion", "{n:,} certified suggestions", rows)
            ),
            note=note,
            identifiers=frozenset({"state", "usual", "suggested"}),
        )

    def comparison(self) -> Table:
        """The certified gain beside the values of other bounds.

        Returns:
            A table with the columns bound, value (in units of returns) and vacuous.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.comparison()["bound"]
            ['this certificate', 'Theorem 1, as published', 'Theorem 1, sound']
        """
        names, values = [word(name) for name in self.bounds], list(self.bounds.values())
        if self.gain is not None:
            names, values = [say("this certificate"), *names], [self.gain, *values]
        return Table(
            {
                "bound": names,
                "value": [None if v is None else down(v) for v in values],
                "vacuous": [v is None or v <= self.trivial for v in values],
            },
            caption=say("Lower bounds on what the policy gains, ρ(π) - ρ(b)"),
            note=(
                ""
                if self.value_range is None
                else say("The trivial bound, which needs no data, is {b:g}.", b=self.trivial)
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry; `from_dict` reads them back.

        Returns:
            Attribute name → value, and the claim, vacuous and trivial.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> Certificate.from_dict(certificate.to_dict()).issued == certificate.issued
            True
        """
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        result: dict[str, Any] = to_json_value(facts)
        trivial = self.trivial if math.isfinite(self.trivial) else None
        return {**result, "claim": self.claim, "vacuous": self.vacuous, "trivial": trivial}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """A certificate from the result of `to_dict`.

        Args:
            facts: Attribute name → value; other names are ignored.

        Returns:
            The certificate.

        Raises:
            PolicyError: The values do not make a certificate.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> Certificate.from_dict(certificate.to_dict()).delta
            0.05
        """
        names = {f.name for f in fields(cls)}
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in facts.items() if k in names
        }
        try:
            return cls(**given)
        except PolicyError:
            raise
        except (TypeError, AttributeError, KeyError, ValueError, OverflowError):
            raise PolicyError("a certificate cannot be made of these parts.") from None

    def cell_lines(self) -> list[str]:
        """Sentences that only a certificate over cells of numeric features, or over rules, has.

        Returns:
            The sentences; an empty list for labelled states.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> certificate = dprl.gate(learner, log, value_range=(0, 1)).certificate
            >>> certificate.cell_lines()
            []
        """
        return cell_lines(self.cells, self.grade) if self.cells else []

    def whole_lines(self) -> list[str]:
        """Sentences that only a certificate of a whole policy has: how it was bounded.

        Returns:
            The sentences; an empty list where suggestions were certified one by one.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> gated = dprl.gate(learner, log, mode="policy", grade="large-sample")
            >>> len(gated.certificate.whole_lines())
            1
        """
        return whole_lines(self.whole) if self.whole else []

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        return pages.snippet("certificate", certificate=self)

    def __str__(self) -> str:
        lines = [f"Certificate ({self.grade}, {self.mode}, δ = {self.delta:g})", self.claim]
        if self.rows:
            lines += ["", str(self.table())]
        if "rules" not in self.cells and (self.bounds or self.gain is not None):
            lines += ["", str(self.comparison())]
        if self.whole:
            lines += ["", *self.whole_lines()]
        if self.cells:
            lines += ["", *self.cell_lines()]
        lines += ["", "It rests on:", *(joined("", ("  - ", a)) for a in self.assumptions)]
        lines += [f"Note: {note}" for note in self.notes]
        return joined("\n", lines)

    def __repr__(self) -> str:
        grade = "" if self.grade == "proved" else ", large-sample"
        together = " together" if self.kind.whole else ""
        return (
            f"<Certificate: {many(self.rows, 'suggestion')}{together}, δ = {self.delta:g}{grade}>"
        )
