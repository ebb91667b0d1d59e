"""RulePolicy: an ordered list of rules over features; the first that holds speaks.

Where no rule holds the policy says DEFER. A rule is a region that people can read: each feature at
most or above a number, one of some labels, missing, or known (`dprl.policies.rules.rule`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints
from dprl._core.table import SHORT, Table, in_short, many, to_json_value
from dprl._core.words import say
from dprl.errors import ParameterError
from dprl.logs.encoding.categories import Levels
from dprl.logs.log import Log
from dprl.logs.overlap import sealed_origin
from dprl.policies.base import Stored
from dprl.policies.explain import Explanation
from dprl.policies.protocol import DEFER, Decisions, Kind, Terms
from dprl.policies.regions import Situation
from dprl.policies.rules import export
from dprl.policies.rules import text as rule_words
from dprl.policies.rules.rule import (
    WITH_LABELS,
    WITH_NUMBER,
    Condition,
    Rule,
    Sum,
    features_of,
    groups_by,
    inside,
    labels_in,
    read_rules,
    with_dates,
)
from dprl.policies.rules.text import claim, facts_of_rules, stated, words_of_rules
from dprl.policies.spaces import FeatureSpace, single_state
from dprl.policies.table import Approved, steps_of, summary_of

if TYPE_CHECKING:
    from dprl.policies.certificate import Certificate
    from dprl.policies.rules.matching import FlatRules


@dataclass(frozen=True, eq=False, repr=False)
class RulePolicy(Stored):
    """A deferring policy made of rules; immutable.

    Rules are asked in their order, and the first that holds gives the answer. A missing feature
    (NaN) satisfies a condition "missing" and no other; an infinite one satisfies none, and neither
    does a label that training did not have.

    Attributes:
        states: Empty: states are features here.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        feature_names: The d features a state needs, in order.
        rules: The rules in their order, each with its conditions, its suggestion and what is on
            record about it. What `Rule.to_dict` gives is taken too, and made into a rule.
        levels: For each feature its labels where it is a category, None where it is a number.
            Default (): all features are numbers.
        certificate: What is proved about its rules, where it went through `dprl.gate`.

    Example:
        >>> import dprl
        >>> policy = dprl.RulePolicy(
        ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
        ...     feature_names=("pressure",),
        ...     rules=({
        ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
        ...         "suggested": "fluids",
        ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
        ...     },),
        ... )
        >>> policy.act([[60.0], [70.0]])
        ['fluids', DEFER]
    """

    KIND: ClassVar[str] = "rules"
    changes_by: ClassVar[Literal["state", "cell", "region", "rule"]] = "rule"
    knows_practice: ClassVar[bool] = True

    feature_names: tuple[str, ...]
    rules: tuple[Rule, ...]
    levels: Levels = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rules", with_dates(self, read_rules(self.rules)))
        names = self.feature_names
        if not names or len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
            self._refuse("its features have no names of their own")
        if self.states:
            self._refuse("its states are features, and it has labels")
        object.__setattr__(self, "levels", self._checked_levels())
        for rule in self.rules:
            for condition in (c for region in (rule.conditions, *rule.unless) for c in region):
                if not isinstance(condition, Sum):
                    self.check_condition(condition)
                elif not set(features_of((condition,))) <= self._numbers:
                    self._refuse(f"a rule adds up what are no numbers of it: {condition.words}")
            unknown = [a for a in (rule.action, *labels_in(rule.facts)) if a not in self.actions]
            if unknown:
                self._refuse(f"a rule speaks of {unknown[0]!r}, which is no action of it")
        words = [rule.words for rule in self.rules]
        twice = [w for i, w in enumerate(words) if w in words[:i]]
        if twice:
            self._refuse(f"two rules are about the same states: {twice[0]}")
        if self.certificate is not None:
            self._check_certificate(self.certificate)

    def _check_certificate(self, proved: Certificate) -> None:
        """Refuse a certificate that is not about exactly the rules that speak, and their log."""
        speaking = {rule.words: rule for rule in self.rules if not rule.silent}
        if {words: rule.suggested for words, rule in speaking.items()} != proved.issued:
            self._refuse("its certificate is about other suggestions")
        took = {}
        for words, rule in speaking.items():
            groups = dict(zip(self.actions, groups_by(rule.facts, self.actions), strict=True))
            own = groups[rule.action]
            took[words] = sum(groups.values()) - own if rule.avoids else own
        if (
            proved.log != self.provenance.get("log")
            or proved.gamma != self.parameters.get("gamma")
            or any(row["n"] > took[row["state"]] for row in proved.rows)
        ):
            self._refuse("its certificate is about another log")

    def _checked_levels(self) -> Levels:
        """The labels of the categories, () where there are none; refused if they are no labels."""
        given = self.levels
        if not isinstance(given, list | tuple) or len(given) not in (0, len(self.feature_names)):
            self._refuse("its levels are not one entry per feature")
        for own in given:
            texts = isinstance(own, list | tuple) and all(isinstance(x, str) for x in own)
            if own is not None and (not texts or not own or list(own) != sorted(set(own))):
                self._refuse("the labels of a category are not sorted text, each once")
        levels = tuple(None if own is None else tuple(own) for own in given)
        return levels if any(own is not None for own in levels) else ()

    def check_condition(self, condition: Condition) -> None:
        """Refuse a condition on what this policy does not have.

        Args:
            condition: A condition.

        Raises:
            PolicyError: It asks for another feature or label, for a number of a category, or for a
                label of a number.

        Example:
            >>> import dprl
            >>> from dprl.policies.rules.rule import Condition
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids",), parameters={}, provenance={},
            ...     feature_names=("pressure",), rules=(),
            ... )
            >>> policy.check_condition(Condition("pressure", "at most", 62.0))
        """
        if condition.feature not in self.feature_names:
            self._refuse(f"a rule asks for {condition.feature!r}, which is no feature of it")
        own = self.levels_of(condition.feature)
        if condition.kind in WITH_NUMBER and own is not None:
            self._refuse(f"a rule asks for a number of {condition.feature!r}, a category")
        if condition.kind in WITH_LABELS:
            strange = [x for x in condition.labels if own is None or x not in own]
            if strange:
                self._refuse(f"a rule asks for {strange[0]!r}, no label of {condition.feature!r}")
            if condition.kind == "not in" and own is not None and set(own) <= set(condition.labels):
                self._refuse(f"no label of {condition.feature!r} satisfies a rule")

    def levels_of(self, feature: str) -> tuple[str, ...] | None:
        """The labels of a feature that is a category.

        Args:
            feature: The name of the feature.

        Returns:
            Its labels, sorted; None where it is a number.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("ward",), levels=(("HDU", "ICU"),),
            ...     rules=({
            ...         "conditions": [{"feature": "ward", "kind": "in", "labels": ["ICU"]}],
            ...         "suggested": "fluids",
            ...     },),
            ... )
            >>> policy.levels_of("ward"), policy.act([["ICU"], ["HDU"], ["another"]])
            (('HDU', 'ICU'), ['fluids', DEFER, DEFER])
        """
        return self.levels[self.feature_names.index(feature)] if self.levels else None

    @property
    def _numbers(self) -> set[str]:
        """The features that are numbers."""
        return set(self.feature_names) - set(self._categories)

    @property
    def _categories(self) -> dict[str, tuple[str, ...]]:
        """Every feature that is a category, and its labels."""
        own = zip(self.feature_names, self.levels, strict=True) if self.levels else ()
        return {name: labels for name, labels in own if labels is not None}

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        words, arrays = super()._parts()
        if not self.levels:
            del words["levels"]
        return {**words, "rules": to_json_value([r.to_dict() for r in self.rules])}, arrays

    def _contradiction(self) -> str:
        """Which rule speaks although nobody took its suggestion, in words; '' if none does."""
        for rule in self.rules:
            for name in ("groups", "groups_took"):
                if not rule.silent and rule.facts.get(name) == 0:
                    return f"a rule speaks ({rule.words}) with {name} = 0"
        return ""

    @classmethod
    def _from_parts(
        cls,
        path: str | os.PathLike[str],
        kind: str,
        words: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
    ) -> Self:
        return super()._from_parts(path, kind, {"levels": [], **words}, arrays)

    # -- what it answers ---------------------------------------------------------------------

    @functools.cached_property
    def space(self) -> FeatureSpace:
        """The features a state needs; distances count those that rules name, by their range."""
        named = {f for r in self.rules for g in (r.conditions, *r.unless) for f in features_of(g)}
        weight = np.array([float(name in named or not named) for name in self.feature_names])
        scale, ranges = np.ones(len(weight)), self.provenance.get("ranges")
        try:
            width = np.ptp(np.array(ranges, np.float64).reshape(len(weight), 2), axis=1)
            scale = np.where(np.isfinite(width) & (width > 0), width, 1.0)
        except (TypeError, ValueError):
            pass  # the ranges of the training log are not on record
        return FeatureSpace(self.feature_names, scale, weight, self.levels, self.encoding)

    @functools.cached_property
    def terms(self) -> Terms:
        """On which terms it decides."""
        return Terms.of(
            self.parameters, self.provenance, self.certificate,
            unseen="No rule holds in this state.", elsewhere=say("No rule holds there."),
        )  # fmt: skip

    @property
    def may_change(self) -> bool:  # type: ignore[override]
        """Whether some rule changes usual practice."""
        return bool(self.decisions.changes.any())

    @property
    def stated(self) -> tuple[str, ...]:
        """What its learner states about all of its rules at once; nothing without a `delta`."""
        return stated(self)

    @property
    def claim(self) -> str:
        """The first of these sentences: what holds for all rules at once; '' if nothing does."""
        return claim(self)

    @property
    def records(self) -> dict[str, str]:
        """Words of a rule → what is on record about it, in words."""
        return {rule.words: rule_words.record(self, rule) for rule in self.rules}

    @functools.cached_property
    def _flat(self) -> FlatRules:
        from dprl.policies.rules.matching import FlatRules

        return FlatRules.of(self.rules, self.feature_names, self.levels)

    @functools.cached_property
    def _answers(self) -> list[Any]:
        """What each rule answers, and DEFER at the end, where -1 finds it."""
        return [*(DEFER if r.silent else r.suggested for r in self.rules), DEFER]

    @functools.cached_property
    def decisions(self) -> Decisions:
        """Its decisions in the regions of its rules, in their order."""
        return rule_words.decisions_of(self)

    def rule_of(self, states: Any) -> Ints:
        """The first rule that holds in each state.

        Args:
            states: (k, d) values in the order and the units of `feature_names`, or a table with
                these columns; or one state, as a sequence of d values or a mapping from name to
                value. A category is a label, all else numbers; what is missing is NaN or None.

        Returns:
            int64 (k,), the number of the rule, from 0; -1 where none holds.

        Raises:
            ParameterError: The states have another number of features.
            PolicyError: A feature is not named, or a value is no number or label.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.rule_of([[60.0], [70.0]]).tolist()
            [0, -1]
        """
        return self._first(states)[0]

    def _first(self, states: Any) -> tuple[Ints, bool]:
        """The first rule of each state, and whether a single state was passed."""
        names = self.feature_names
        if type(states) is dict and all(type(states.get(name)) in (float, int) for name in names):
            states = [states[name] for name in names]  # the quick way of the usual question
        x, single = self.space.read(states)
        d = len(names)
        if x.ndim != 2 or x.shape[1] != d:
            raise ParameterError(
                f"a state has {d} features; got {' x '.join(map(str, x.shape))} numbers.",
                do=f"Features: {', '.join(self.feature_names)}.",
            )
        return self._flat.first(x), single

    def at(self, states: Any) -> Decisions:
        """What it answers at these states, and what is on record about the rules that hold there.

        Args:
            states: (k, d) values in the order and the units of `feature_names`, or a table with
                these columns; or one state, as a sequence of d values or a mapping from name to
                value. A category is a label, all else numbers; what is missing is NaN or None.

        Returns:
            The k decisions, with counts of groups by action; where only shares are on record, they
            are the shares of the groups, rounded. Returns are not on record (NaN).

        Raises:
            ParameterError: The states have another number of features.
            PolicyError: A feature is not named, or a value is no number or label.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.at([[60.0], [70.0]]).answers()
            ['fluids', DEFER]
        """
        rule = self.rule_of(states)
        return self.decisions.at(rule, range(len(rule)))

    def act(self, states: Any) -> Any:
        """The action for each state, or DEFER.

        Args:
            states: (k, d) values in the order and the units of `feature_names`, or a table with
                these columns; or one state, as a sequence of d values or a mapping from name to
                value. A category is a label, all else numbers; what is missing is NaN or None.

        Returns:
            A list of k action labels or DEFER; for a single state, a single answer.

        Raises:
            ParameterError: The states have another number of features.
            PolicyError: A feature is not named, or a value is no number or label.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.act({"pressure": 60})
            'fluids'
        """
        rule, single = self._first(states)
        answers = self._answers
        return answers[rule[0]] if single else [answers[r] for r in rule.tolist()]

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why the policy answers as it does at one state.

        Args:
            state: One state, as a sequence of d values or a mapping from name to value.
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            The answer, the rule behind it in words with what is on record about it, and a table of
            what is usually done where the rule holds.

        Raises:
            PolicyError: More than one state is given, or a feature is not named.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.explain([60.0]).reason.partition(";")[0]
            'Rule 1: pressure at most 62. Usually done there is wait (70 %)'
        """
        x = single_state(self.space, state)
        r, words = int(self.rule_of(x)[0]), self.space.words(x[0])
        return rule_words.explanation(self, r, words, self._excepted(x) if r < 0 else -1)

    def _excepted(self, x: Floats) -> int:
        """The first rule of which one state x (1, d) is an exception; -1 where there is none."""
        for r, rule in enumerate(self.rules):
            if inside(rule.conditions, x, self.feature_names, self.levels)[0]:
                return r if rule.unless else -1
        return -1

    # -- what it would change ----------------------------------------------------------------

    def changes(self, *, cases: bool = False) -> Table:
        """The rules whose suggestion differs from the usual action, in the order they are asked.

        Args:
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            A table with one line for each of these rules: its number, where it holds, the usual and
            the suggested action, and what is on record about it.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.changes()["where"]
            ['pressure at most 62']
        """
        return rule_words.rule_table(self, self.decisions.changes, "changes")

    def confirmations(self, *, cases: bool = False) -> Table:
        """The rules whose suggestion is the usual action already.

        Args:
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            A table with the columns of `changes`.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> len(policy.confirmations())
            0
        """
        return rule_words.rule_table(self, self.decisions.kind == Kind.CONFIRM, "confirmations")

    def worth(self) -> Table:
        """What the rules bring, against the share of decisions that they change.

        Returns:
            A table with one line for each rule that speaks, in their order: where it holds, what it
            suggests, the share of all steps where it holds (of the half that certified), the share
            of all steps that would change, what it brings per change over usual practice, and the
            running sums of the share that would change and of what is brought per step of the log.
            All is one change at a time, while everything else stays as usual. Numbers that are not
            on record are None.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share": 0.2, "changed": 0.15, "gain": 0.3},
            ...     },),
            ... )
            >>> line = policy.worth().to_dicts()[0]
            >>> line["share"], line["per change"], round(line["brings in all"], 3)
            (0.2, 0.4, 0.06)
        """
        return rule_words.worth(self)

    def situations(self, log: Log) -> list[Situation]:
        """Its changes, one per rule, and the steps of a log in each.

        Args:
            log: A log with the features of this policy.

        Returns:
            One situation for each rule that changes usual practice, with the steps of the log in
            which it is the first to hold.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> log = dprl.from_arrays(
            ...     episode=range(2), state=[[60.0], [70.0]], action=["wait", "wait"],
            ...     reward=[0, 1], feature_names=["pressure"],
            ... )
            >>> [(one.words, one.rows.tolist()) for one in policy.situations(log)]
            [('pressure at most 62', [0])]
        """
        x, _ = self.space.of_log(log)
        here, rule = self.decisions, self.rule_of(x)
        situations = []
        for r in np.flatnonzero(here.changes).tolist():
            rows, words = np.flatnonzero(rule == r), rule_words.where(self, r)
            typical = self._typical(x[rows])
            situations.append(
                Situation(words, here.states[r], None, typical, rows, rows, 1.0, here, r)
            )
        return situations

    def _typical(self, x: Floats) -> tuple[tuple[str, float | str], ...]:
        """The features that rules name, in the step nearest to the median of states x (k, d)."""
        if not len(x):
            return ()
        nearest = x[self.space.from_median(x, x).argmin()]
        return self.space.shown(np.asarray(nearest), self.space.used)

    def limited_to(self, approved: Sequence[Approved], **noted: Any) -> RulePolicy:
        """The policy with these of its changes alone; elsewhere it defers.

        A rule that is not kept stays in its place and is silent, so that no rule after it speaks
        where it holds: what the limited policy says, the whole policy says too.

        Args:
            approved: The changes to keep, each with a `state` (the words of its rule), such as what
                `situations` returns. An empty list leaves a policy that makes no change.
            noted: Facts to add to the provenance, such as who approved.

        Returns:
            The limited policy; its certificate, if it has one, is restated.

        Raises:
            ParameterError: No rule of this policy that changes usual practice has these words.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.limited_to([]).act([60.0])
            DEFER
        """
        kept, here = {c.state for c in approved if c.state is not None}, self.decisions
        changing = {here.states[r] for r in np.flatnonzero(here.changes).tolist()}
        strange = sorted(map(str, kept - changing))
        if strange:
            raise ParameterError(
                f"the policy changes nothing in {strange[0]!r}.",
                do="Name changes of this policy, as its situations() tells them.",
            )
        origin = {**sealed_origin(self.provenance), "approved": {"policy": self.digest(), **noted}}
        rules = tuple(replace(r, silent=r.words not in kept) for r in self.rules)
        proved = None if self.certificate is None else self.certificate.restricted(kept)
        return replace(self, rules=rules, provenance=origin, certificate=proved)

    def narrowed(
        self, rule: int, conditions: Iterable[Any], facts: Mapping[str, Any]
    ) -> RulePolicy:
        """The policy with one rule narrowed to a part of its states; it defers in the rest.

        `dprl.narrow` finds the facts in the log that the policy was fitted on.

        Args:
            rule: The number of the rule, from 1, as sentences and tables count.
            conditions: All that the narrower rule asks, each with "feature", "kind" and "value" or
                "labels". It must hold only where the rule held.
            facts: What is on record about the narrower rule, in the place of what is on record
                about the rule.

        Returns:
            The policy. Its sentences say that the rule was narrowed after looking, and what is
            stated of all rules at once does not cover it.

        Raises:
            ParameterError: There is no such rule, this is not narrower, or a later rule would speak
                where the rule did.
            PolicyError: A condition or the facts are not what they should be.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...     },),
            ... )
            >>> lower = {"feature": "pressure", "kind": "at most", "value": 58.0}
            >>> narrow = policy.narrowed(1, [lower], {"advantage": 0.4})
            >>> narrow.act([[57.0], [60.0]])
            ['fluids', DEFER]
            >>> narrow.sentences()[0].partition(";")[0]
            '1. If pressure is at most 58: fluids [narrowed after looking]'
        """
        from dprl.policies.rules.rule import narrower, with_facts

        new = narrower(self, rule, conditions)
        rules = list(self.rules)
        rules[rule - 1] = with_facts(rules[rule - 1], new, facts)
        origin = {**sealed_origin(self.provenance)}
        step = {"policy": self.digest(), "rule": rule}
        origin["narrowed"] = [*(origin.get("narrowed") or ()), step]
        return replace(self, rules=tuple(rules), provenance=origin)

    def summary(self) -> dict[str, Any]:
        """The counts that describe it, as plain numbers.

        Returns:
            Name → number of rules, features, actions, decision points, changes and confirmations,
            and shares of the training log's steps, from 0 to 1.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.summary()["rules"]
            1
        """
        inside = np.array([rule.facts.get("steps") or 0 for rule in self.rules], np.int64)
        total = self.provenance.get("steps")
        total = total if isinstance(total, int) else 0
        steps = np.append(inside, max(total - int(inside.sum()), 0))
        rows = np.append(np.arange(len(self.rules)), -1)
        s = summary_of(self.decisions.at(rows, [*self.decisions.states, ""]), steps)
        s["rules"] = s.pop("states") - 1
        return {**s, "features": len(self.feature_names)}

    def learned(self) -> dict[str, Any]:
        """What `dprl fit` says of it: the rules, what they bring, and how they came about.

        Returns:
            Name → fact; what is on record alone.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.learned()
            {}
        """
        return {**super().learned(), **(facts_of_rules(self) if self._on_record else {})}

    def learned_words(self, changes: str) -> str:
        """What `dprl fit` prints of it: the rules, what they bring, and the models behind them.

        Args:
            changes: Has no effect where a record of the learning says more.

        Returns:
            The rules as sentences, and tables.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> policy.learned_words("1 change").splitlines()[-1]
            '1 change'
        """
        return words_of_rules(self) if self._on_record else super().learned_words(changes)

    @property
    def _on_record(self) -> bool:
        return "models" in (self.provenance.get("rules") or ())

    # -- in other languages ------------------------------------------------------------------

    @property
    def exports(self) -> Mapping[str, Callable[..., str]]:
        """What `dprl export --to` can write of it: language → what writes it."""
        return {
            "sql": lambda **named: f"{self.to_sql(**named)}\n",
            "json": lambda: f"{self.to_json_rules()}\n",
            "python": self.to_python,
        }

    def to_sql(
        self,
        table: str | Sequence[str] = "stays",
        column: str = "suggested",
        dialect: Literal["duckdb", "standard"] = "duckdb",
    ) -> str:
        """The policy as a query, which asks it of every row of a table.

        Args:
            table: The name of the table, or its parts (("schema", "table")). Default "stays".
            column: The name of the new column; NULL there stands for DEFER. Default "suggested".
            dialect: "standard" is for PostgreSQL and others too: columns must be of double
                precision, or of text. Default "duckdb".

        Returns:
            A SELECT of all columns and the new one. Features are columns of the same names, and
            categories are text; NULL, NaN and '' stand for a missing feature.

        Raises:
            PolicyError: A name cannot be written in SQL, the new column is called like a feature,
                or standard SQL cannot read dates or labels as the policy does.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> print(policy.to_sql("visits").splitlines()[-1])
            FROM "visits"
        """
        for name in self.feature_names:
            export.apart([name, column])
        return export.to_sql(
            self.rules, self.actions, table, column, self.digest(), self._categories,
            self.encoding, dialect,
        )  # fmt: skip

    def to_json_rules(self) -> str:
        """The policy as JSON that people and other programs can read.

        Returns:
            JSON text: the features, the labels of categories, the actions, how to read the rules,
            and the rules in their order, each with its conditions, its suggestion (null: DEFER),
            its words and its facts.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> import json
            >>> json.loads(policy.to_json_rules())["rules"][0]["then"]
            'fluids'
        """
        return export.to_json(
            self.rules, self.actions, self.feature_names, self.digest(), self._categories,
            self.encoding,
        )  # fmt: skip

    def to_python(self) -> str:
        """The policy as Python source that needs nothing but Python.

        Returns:
            The source of a function `suggest(row)`: it takes a mapping from the name of a feature
            to its number or label (NaN or None where it is missing) and returns an action, or None
            for DEFER.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> names = {}
            >>> exec(policy.to_python(), names)
            >>> names["suggest"]({"pressure": 60})
            'fluids'
        """
        return export.to_python(
            self.rules, self.actions, self.digest(), self._categories, self.encoding
        )

    def draw(self, axis: Any = None) -> Any:
        """Draw the rules as a tree, or one band each where they do not come from a tree.

        The tree has a box for each question and a leaf for each rule, coloured by its suggestion,
        with what it brought; leaves that defer are grey. A band has the words of its rule, and what
        it brought with its interval.

        Args:
            axis: The axes of matplotlib to draw on. Default None: those of a new figure.

        Returns:
            The axes; `axis.figure` is the figure.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...         "facts": {"share_usual": [["wait", 0.7], ["fluids", 0.3]], "groups": 90},
            ...     },),
            ... )
            >>> axis = policy.draw()
            >>> sorted(text.get_text() for text in axis.texts)
            ['1. fluids', 'DEFER', 'no', 'pressure at most 62?', 'yes']
        """
        from dprl.policies.rules.tree import draw_rules

        return draw_rules(self, axis)

    def _repr_html_(self) -> str:
        from dprl._core import html as pages
        from dprl.policies.rules.tree import picture_of

        return pages.snippet(
            "rules",
            bands=rule_words.bands(self),
            tree=picture_of(self, numbers=False) if self.rules else None,
            steps=steps_of(self.summary()),
            stated=self.stated,
        )

    def sentences(self) -> list[str]:
        """Its rules as sentences, in their order, and what it says elsewhere.

        Returns:
            One sentence for each rule, with what it brought, and a last one.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",),
            ...     rules=({
            ...         "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}],
            ...         "suggested": "fluids",
            ...     },),
            ... )
            >>> policy.sentences()
            ['1. If pressure is at most 62: fluids.', 'Elsewhere: DEFER.']
        """
        return [
            *(rule_words.rule_sentence(self, r) for r in range(len(self.rules))),
            say("Elsewhere: DEFER."),
        ]

    def __str__(self) -> str:
        *rules, elsewhere = self.sentences()
        if len(rules) + 1 + len(self.stated) <= SHORT:
            return self.details()
        more = [f"and {many(len(rules) - 4, 'more rule')}"] if len(rules) > 4 else []
        return "\n".join(in_short([*rules[:4], *more, elsewhere, *self.stated], "policy"))

    def details(self) -> str:
        """All rules as sentences, and everything that is stated of them, as text.

        Returns:
            The text.

        Example:
            >>> import dprl
            >>> policy = dprl.RulePolicy(
            ...     states=(), actions=("fluids", "wait"), parameters={}, provenance={},
            ...     feature_names=("pressure",), rules=({"conditions": [], "suggested": "fluids"},),
            ... )
            >>> policy.details().splitlines()[0]
            '1. Everywhere: fluids.'
        """
        return "\n".join((*self.sentences(), *self.stated))

    def __repr__(self) -> str:
        spoken = sum(not rule.silent for rule in self.rules)
        silent = f", {len(self.rules) - spoken} silent" if spoken < len(self.rules) else ""
        return (
            f"<RulePolicy: {many(self.rules, 'rule')}{silent}, {len(self.feature_names)} features>"
        )
