"""What most policies share: frozen parts, a file, and a copy of it that may leave the house."""

from __future__ import annotations

import functools
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core import __version__, plot
from dprl._core.archive import Archive, Arrays
from dprl._core.arrays import Floats
from dprl._core.optional import Registry
from dprl._core.table import Table, first_few, to_json_value
from dprl._core.words import worded
from dprl.errors import ParameterError, PolicyError
from dprl.logs.called import Called
from dprl.logs.encoding.encoder import Encoding, encoding_of
from dprl.logs.encoding.gaps import GONE
from dprl.logs.log import DEFERRAL, Facts, Label, Log
from dprl.logs.outcome import Outcome
from dprl.logs.overlap import WITHHELD, sealed_origin, sketch
from dprl.logs.reading.tables import write_rows
from dprl.logs.reading.text import check_labels
from dprl.logs.source import stage
from dprl.policies.certificate import Certificate
from dprl.policies.explain import (
    Explanation,
    Luck,
    conditions_of,
    explain_without_evidence,
    luck_words,
    no_record,
    wrong_luck,
)
from dprl.policies.spaces import single_state

if TYPE_CHECKING:
    from dprl.logs.censoring import Near
    from dprl.logs.source import Source
    from dprl.policies.protocol import Decisions
    from dprl.policies.spaces import Space


# --- The policy file: a zip of one JSON document and plain npy arrays. Reading one runs no code
#
# ``policy.json`` says what the file is, its format version, the kind of policy, everything that is
# not an array, the dtype and shape of each array, and a SHA-256 over all of it. Equal content gives
# equal bytes: no time stamps (see `dprl._core.archive`).

VERSION = 2
REQUIRED_KEYS = "DPRL_REQUIRE_SIGNED"
"""Environment variable: the public key of minisign that every policy must be signed with."""
LARGEST = 4 << 30
"""Bytes a policy file may unpack to; more is refused before anything is unpacked."""
ARCHIVE = Archive(
    "dprl-policy", VERSION, "policy", PolicyError,
    "Copy it again from where it was made, or fit the policy again.",
)  # fmt: skip

document, pack = ARCHIVE.document, ARCHIVE.pack

KINDS: Registry[type[Stored]] = Registry("dprl.policies", "kind of policy")
"""What a file calls a kind of policy → its class, which says what its file holds (`Stored`)."""


def kind_of(name: str) -> type[Stored] | None:
    """The class of a kind of policy, of dprl's or of a package; None where nobody knows it."""
    import dprl.policies.loading  # noqa: F401  (dprl's own kinds are declared when it is imported)

    return KINDS.find(name)


def fits(head: Mapping[str, Any]) -> str:
    """What is wrong with the arrays that a document announces; '' if its words can need them."""
    kind = kind_of(head["kind"])
    if kind is None:
        return f"it is of kind {head['kind']!r}, which this version cannot read"
    shapes = {name: spec.rpartition(" ")[2] for name, spec in kind.file_arrays().items()}
    size = {
        letter: len(head[name])
        for letter, name in (("S", "states"), ("A", "actions"), ("d", "feature_names"))
        if isinstance(head.get(name), list)
    }
    for name, spec in head["arrays"].items():
        shape = spec.get("shape") if isinstance(spec, Mapping) else None
        letters = shapes.get(name)
        if letters is None:
            return f"array {name!r} does not belong to a policy of kind {head['kind']!r}"
        if not isinstance(shape, list) or len(shape) != len(letters):
            return f"array {name!r} has another number of dimensions than it needs"
        for letter, n in zip(letters, shape, strict=True):
            if size.setdefault(letter, n) != n:
                return f"array {name!r} is {shape}, and its words need {letter} = {size[letter]!r}"
    for small, large in (("w", "d"), ("M", "N")):
        if size.get(small, 0) > max(size.get(large, 0), 1):
            return f"its arrays are larger than what it says can need ({small} > {large})"
    return ""


def unpack(path: str | os.PathLike[str]) -> tuple[str, dict[str, Any], Arrays]:
    """Kind, words and arrays of a policy file, or a PolicyError that says what is wrong with it.

    Where the environment variable DPRL_REQUIRE_SIGNED holds a key, what is unpacked is exactly what
    was found to be signed with it.
    """
    source = Path(path)
    if not source.is_file():
        raise PolicyError(f"there is no policy file {str(path)!r}.", do="Check the path.")
    content: Path | io.BytesIO = source
    key = os.environ.get(REQUIRED_KEYS, "").strip()
    if key:
        from dprl.policies.signature import LINE, PublicKey, verify

        if not LINE.fullmatch(key) and not os.path.isabs(key):
            raise PolicyError(
                f"{REQUIRED_KEYS} must be a key, or the whole path of its file.",
                repr(key),
                "A file in the folder in which a command runs may be anybody's.",
            )
        try:
            content = io.BytesIO(source.read_bytes())
        except OSError as error:
            raise ARCHIVE.broken(source.name, str(error)) from error
        verify(source, PublicKey.read(key), content.getvalue())
    version, kind, words, arrays = ARCHIVE.unpack(content, source.name, LARGEST, fits)
    home = kind_of(kind)
    if home is not None:
        for older in range(version, VERSION):
            home.migrate(older, words, arrays)
    return kind, words, arrays


# --- Where a policy comes from, and the frozen parts that most have


def provenance_of(
    log: Source | Log,
    used: Log | int | None = None,
    *,
    progress: Callable[[str, float], None] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Where a policy comes from: the log it was fitted to, what was left of it, and by whom.

    Args:
        log: The log, wherever its rows are.
        used: What was left of it, or the number of episodes that were. Default None: all of it.
        progress: Called with the name of the stage and the share of it that is done. Default None.
        **more: Further facts.
    """
    origin = getattr(log, "origin", None)
    if origin is not None:  # no log, but what sites counted of theirs
        return {**origin(), **more}
    facts = log.facts
    n_used = facts.n_episodes if used is None else getattr(used, "n_episodes", used)
    return {
        "made_by": f"dprl {__version__}",
        "log": log.digest(),
        "episodes": facts.n_episodes,
        "groups": facts.n_groups,
        "steps": facts.n_steps,
        "cut_episodes": facts.n_cut,
        "episodes_used": n_used,
        "columns": {name: own for name, own in facts.columns.items() if name != "gaps"},
        "sample": sketch(log, stage(progress, "a sample of the groups")),
    } | more


def origin_of_training(logs: Log | Sequence[Log]) -> dict[str, Any]:
    """Where a policy that somebody else made comes from: the log, or logs, it was trained on.

    An empty sequence says that it was learned from no log; then `log` is None.
    """
    if isinstance(logs, Log):
        logs = (logs,)
    good = isinstance(logs, Sequence) and not isinstance(logs, str)
    if not good or not all(isinstance(log, Log) for log in logs):
        raise PolicyError(
            f"trained_on must be a log, or a list of logs; got a {type(logs).__name__}.",
            do="Pass the log the model was fitted to, or [] if no log was used.",
        )
    origins = [{k: v for k, v in provenance_of(log).items() if k != "made_by"} for log in logs]
    if not origins:
        return {"log": None}
    return origins[0] | ({"others": origins[1:]} if len(origins) > 1 else {})


METRIC = {"scale": "float64 d", "weight": "float64 d"}
"""The arrays of a policy that measures distances between features."""


class Answering:
    """What follows from `at` and `space`, for all policies of dprl."""

    if TYPE_CHECKING:  # a kind of policy says how
        parameters: Any

        @property
        def space(self) -> Space:
            """What its states are."""
            ...

        def at(self, states: Any) -> Decisions:
            """What it answers at these states."""
            ...

    @property
    def _learner(self) -> str:
        return str(self.parameters.get("learner", "another learner"))

    def act(self, states: Any) -> Any:
        """The action for each state, what to avoid there, or DEFER; states as in `at`.

        Args:
            states: States as `at` takes them, or one state.

        Returns:
            A list of k action labels or DEFER; for a single state, a single answer.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.act([0.0])
            'drug'
        """
        rows, single = self.space.read(states)
        answers = self.at(rows).answers()
        return answers[0] if single else answers

    def probabilities(self, states: Any, *, behavior: Floats | None = None) -> Floats:
        """The probability π(a|s): 1 at the chosen action, the behaviour's where it defers.

        Args:
            states: States as `at` takes them.
            behavior: float64 (k, A), the probabilities of usual practice at these states, used
                where the policy defers. Default None: the shares on record of what was done there
                first; NaN where there are none.

        Returns:
            float64 (k, A), the probability of each action in the order of `actions`.

        Raises:
            PolicyError: `behavior` has another shape.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.probabilities([[0.0]]).tolist()
            [[1.0, 0.0]]
        """
        return self.at(states).probabilities(behavior=behavior)

    def bootstrap_neighbors(self) -> Near | None:
        """What counts near a place, for returns that were cut short (see `dprl.logs.censoring`).

        Returns:
            None, because labels have no neighbours.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.bootstrap_neighbors() is None
            True
        """
        return None


class Unrecorded(Answering):
    """What policies share that keep no record of usual practice: they say what they do, no more."""

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """What it does at one state; there is no evidence to explain it by.

        Args:
            state: One state, as `at` takes them.
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            The answer, and whose it is.

        Raises:
            PolicyError: More than one state is given, or a model's answer cannot be used.

        Example:
            >>> import dprl
            >>> rule = lambda states: ["drug" if s == "ill" else None for s in states]
            >>> policy = dprl.CallablePolicy(rule, actions=["drug", "wait"])
            >>> policy.explain(["ill"]).suggested
            'drug'
        """
        rows = single_state(self.space, state)
        words = self.space.words(rows[0])
        return explain_without_evidence(self.at(rows), 0, words, self._learner)

    def changes(self, *, cases: bool = False) -> Table:
        """Refused: it does not know what is usually done.

        Args:
            cases: Has no effect. Default False.

        Returns:
            Nothing: it always raises.

        Raises:
            PolicyError: Always.

        Example:
            >>> import dprl
            >>> rule = lambda states: ["drug" if s == "ill" else None for s in states]
            >>> policy = dprl.CallablePolicy(rule, actions=["drug", "wait"])
            >>> policy.changes()  # doctest: +IGNORE_EXCEPTION_DETAIL
            Traceback (most recent call last):
            dprl.errors.PolicyError: ...
        """
        raise no_record(self._learner)


@dataclass(frozen=True, eq=False)
class PolicyFields(Answering):
    """The frozen parts of a policy.

    Attributes:
        states: State labels, S of them.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        certificate: What is proved about it, where it went through `dprl.gate`.
    """

    knows_practice: ClassVar[bool] = False
    """Whether it keeps what was usually done: it defers, explains and lists changes by that."""
    gain: ClassVar[Mapping[str, Any] | None] = None
    """What the whole policy brings over usual practice, where its learner states it."""
    may_change: ClassVar[bool] = False
    """Whether it may change usual practice somewhere, and knows it."""
    ARRAYS: ClassVar[Mapping[str, str]] = {}
    """Its arrays: name → dtype and shape, "float64 SA". S, A and d count states, actions and
    features; w counts the features that have a weight; equal letters are equal numbers."""
    OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Those of its arrays that it may do without: None, and nothing in its file."""

    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    parameters: Mapping[str, Any]
    provenance: Mapping[str, Any]
    certificate: Certificate | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                value = value.view()
                value.setflags(write=False)
            elif isinstance(value, Mapping):
                value = Facts(value)
            object.__setattr__(self, part.name, value)
        for name, labels in (("states", self.states), ("actions", self.actions)):
            if len(set(labels)) != len(labels):
                self._refuse(f"{name!r} repeats a label")
            if len({isinstance(label, str) for label in labels}) > 1:
                self._refuse(f"{name!r} mixes text and numbers")
        if not self.actions:
            self._refuse("it knows no action")
        if DEFERRAL in self.actions:
            self._refuse(f"an action called {DEFERRAL!r} is what it says where it names none")
        n_min = self.parameters.get("n_min")
        whole = isinstance(n_min, int | float) and not isinstance(n_min, bool) and n_min >= 1
        if isinstance(n_min, float):
            whole = whole and (n_min.is_integer() or math.isinf(n_min))
        if n_min is not None and not whole:
            self._refuse(worded("its {n_min} is {n_min2}", n_min2=repr(n_min)))
        if not (self.certificate is None or isinstance(self.certificate, Certificate)):
            self._refuse("its certificate is none")
        if not isinstance(self.provenance.get("columns", {}), Mapping):
            self._refuse("its provenance names no columns")
        if "luck" in self.provenance and (wrong := wrong_luck(self.provenance["luck"])):
            self._refuse(wrong)
        self._check_arrays()

    def _repr_html_(self) -> str:
        from dprl._core.table import in_notebook

        named = map(Called.learned(self).act, self.actions)
        actions = f"Actions: {first_few(named, 12, ', …')}."
        return in_notebook(repr(self).strip("<>"), [actions, *self.stated])

    def plot(self, path: str | Path | None = None) -> Any:
        """What each suggestion brings, with its interval, as a matplotlib figure (extra `plot`).

        Args:
            path: File to write the figure to, .png, .svg or .pdf; the rows are written beside it as
                .parquet. Default None: nothing is written.

        Returns:
            The figure; `dprl.figures.forest` has the rows as well.

        Raises:
            PackageError: matplotlib is not installed.
            ParameterError: The policy keeps no intervals.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
            >>> len(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log).plot().axes)
            1
        """
        rows = suggestions_of(self)
        with plot.look():
            figure = forest_of(self, rows[:DRAWN], max(len(rows) - DRAWN, 0))
            if path is not None:
                plot.save(figure, Path(path))
                write_rows(to_json_value(rows), Path(path).with_suffix(".parquet"))
        return figure

    def _refuse(self, what: str) -> None:
        raise PolicyError(f"a policy cannot be made of these parts: {what}.")

    def _check_arrays(self) -> None:
        """Refuse arrays that have not the dtype and shape of `ARRAYS`, and no metric."""
        size = {"S": len(self.states), "A": len(self.actions)}
        size["d"] = len(getattr(self, "feature_names", ()))
        for name, spec in self.ARRAYS.items():
            dtype, _, letters = spec.partition(" ")
            array = getattr(self, name)
            if array is None and name in self.OPTIONAL:
                continue
            for letter, n in zip(letters, array.shape, strict=False):
                size.setdefault(letter, n)
            shape = tuple(size.get(letter, 0) for letter in letters)
            if array.shape != shape or array.dtype != dtype:
                self._refuse(f"{name!r} is {array.dtype}{array.shape}, not {dtype}{shape}")
            if name == "weight":
                size["w"] = int((array > 0).sum())
        if self.ARRAYS.keys() >= METRIC.keys():
            self._check_metric(getattr(self, "scale"), getattr(self, "weight"))  # noqa: B009

    def _check_metric(self, scale: Floats, weight: Floats) -> None:
        """Refuse scales and weights that make no distances, or such that no computer can hold."""
        used = weight[weight != 0]
        sizes = np.concatenate((scale, used))
        if (weight < 0).any() or not len(used) or not ((sizes >= 1e-100) & (sizes <= 1e100)).all():
            self._refuse("its scales and weights make no metric")

    @property
    def stated(self) -> tuple[str, ...]:
        """What its learner states about the whole policy, in sentences; none for most."""
        return ()

    @property
    def exports(self) -> Mapping[str, Callable[..., str]]:
        """What `dprl export --to` can write of it: language → what writes it; over labels, all."""
        if self.space.feature_names:
            return {}
        from dprl.policies.rules.export import LabelRules

        return LabelRules(self).exports

    @property
    def conditions(self) -> tuple[str, ...]:
        """What its values are of: the time that counts, and how cut episodes were treated."""
        return conditions_of(self.parameters, self.provenance)

    @property
    def statements(self) -> tuple[str, ...]:
        """What its learner states, and what its values are of."""
        return (*self.stated, *self.conditions)

    @property
    def certificate_words(self) -> str:
        """Its certificate as it is printed; '' without one."""
        return "" if self.certificate is None else self.certificate.details()

    @functools.cached_property
    def encoding(self) -> Encoding | None:
        """How the columns of its log became states; None where they were states already."""
        return encoding_of(self.provenance.get("columns", {}))

    @property
    def gone(self) -> str | None:
        """The label of a missing state, where training had one; None where there is none."""
        columns = self.provenance.get("columns", {})
        words, name = columns.get("missing", {}), columns.get("state")
        flagged = isinstance(name, str) and isinstance(words, Mapping) and words.get(name) == "flag"
        return GONE if flagged and GONE in self.states else None

    @property
    def fold(self) -> str:
        """What was done to the labels of its log ("trim,casefold"); '' where nothing was."""
        return check_labels(self.provenance.get("columns", {}).get("labels", ""))

    @property
    def luck(self) -> Luck | None:
        """How far luck explains its changes; None if that is not recorded, or it is certified."""
        if self.certificate is not None:
            return None
        facts = self.provenance.get("luck")
        return luck_words(facts, part="approved" in self.provenance)

    @property
    def n_min(self) -> float:
        """Trajectories an action needed before it could be suggested."""
        n_min = self.parameters.get("n_min")
        return math.inf if n_min is None else float(n_min)

    def learned(self) -> dict[str, Any]:
        """What `dprl fit` says of it besides its counts and changes, as JSON can hold it.

        Returns:
            Name → fact; empty for most.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> list(policy.learned())
            ['luck']
        """
        facts: dict[str, Any] = {}
        if self.luck is not None:
            facts["luck"] = {**self.provenance["luck"], "words": self.luck.words}
        if self.stated:
            facts["stated"] = self.stated
        return facts

    def learned_words(self, changes: str) -> str:
        """What `dprl fit` prints of it.

        Args:
            changes: The table of its changes, as it is printed.

        Returns:
            Itself in words, and its changes.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.learned_words("2 changes").splitlines()[-1]
            '2 changes'
        """
        return f"{self}\n\n{changes}"

    def details(self) -> str:
        """Everything that it says of itself, as text.

        Returns:
            What is printed of it, where that is not shortened.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.details() == str(policy)
            True
        """
        return str(self)


# --- What each suggestion brings, as rows of a picture

DRAWN = 25
"""Suggestions that a picture of a policy shows."""
LEGEND = {
    "change": "change, with 95 % interval", "confirmation": "confirmation, with 95 % interval"
}  # fmt: skip


def beside_of(policy: Any) -> str:
    """What the advantages of a policy are compared with."""
    return "doing otherwise" if getattr(policy, "rules", ()) else "usual practice"


def forest_of(policy: Any, rows: Sequence[Mapping[str, Any]], left: int) -> Any:
    """The picture of these rows of `suggestions_of`; `left` of them are not among them."""
    called = Called.learned(policy)
    told = [
        {**row, "words": f"{called.said(row['where'])}: {called.act(row['suggested'])}"}
        for row in rows
    ]
    return plot.forest(
        told, f"advantage over {beside_of(policy)}", LEGEND, Outcome.learned(policy).falls, left
    )


def single_changes(policy: Any) -> list[tuple[int, str, Any, Any]]:
    """Each thing that a policy suggests: its place, where, what, and the policy of this alone.

    Args:
        policy: A policy of rules, or of labelled states.

    Raises:
        PolicyError: It is of another kind.
    """
    if hasattr(policy, "rules"):
        return [
            (i, str(rule.words), rule.suggested, only(policy, [i]))
            for i, rule in enumerate(policy.rules)
        ]
    if not isinstance(getattr(policy, "choice", None), np.ndarray) or not policy.states:
        raise PolicyError(
            f"a {type(policy).__name__} has no changes that can be taken one by one.",
            do=worded("Fit a learner of labelled states, or {dprl.Rules}."),
        )
    return [
        (s, str(policy.states[s]), policy.actions[policy.choice[s]], only(policy, [s]))
        for s in np.flatnonzero(np.asarray(policy.choice) >= 0).tolist()
    ]


def only(policy: Any, kept: Sequence[int]) -> Any:
    """The policy that defers everywhere but in some states, or by some of its rules.

    Args:
        policy: A policy of rules, or of labelled states.
        kept: The positions of states or rules; none for a policy that defers everywhere.
    """
    if hasattr(policy, "rules"):
        return replace(policy, rules=tuple(policy.rules[i] for i in kept))
    choice = np.full_like(policy.choice, -1)
    choice[list(kept)] = policy.choice[list(kept)]
    return replace(policy, choice=choice, certificate=None)


def suggestions_of(policy: Any) -> list[dict[str, Any]]:
    """What a policy suggests and what each of it brings, with its interval, the surest first."""
    rows = [*_listed(policy, "change"), *_listed(policy, "confirmation")]
    falls = Outcome.learned(policy).falls
    return sorted(rows, key=lambda row: row["high"] if falls else -row["low"])


def _listed(policy: Any, kind: str) -> list[dict[str, Any]]:
    """The changes or confirmations of a policy as rows of a forest plot."""
    lister = getattr(policy, f"{kind}s", None)
    if lister is None:
        return []
    listed = lister()
    if "advantage" not in listed.columns or "low" not in listed.columns:
        raise ParameterError(
            "a forest plot needs intervals, and this policy keeps none.",
            where=f"{type(policy).__name__}.{kind}s() has {', '.join(listed.columns)}",
            do="Fit one of the learners of dprl itself.",
        )
    certificate = getattr(policy, "certificate", None)
    issued = () if certificate is None else certificate.rows
    bound = Outcome.learned(policy).shown
    proved = {row["state"]: bound(row.get("advantage_low")) for row in issued}
    features = [n for n in policy.space.feature_names if n in listed.columns]
    rows = []
    for row in listed.to_dicts():
        where = row.get("where", row.get("state"))
        if where is None:
            where = ", ".join(f"{name} {row[name]:.3g}" for name in features)
        low, high = row["low"], row["high"]
        if low is None or not np.isfinite(low) or high is None or not np.isfinite(high):
            continue
        rows.append(
            {
                "where": str(where),
                "kind": kind,
                "usual": row.get("usual"),
                "suggested": row["suggested"],
                "advantage": row["advantage"],
                "low": low,
                "high": high,
                "proved": proved.get(row.get("state")),
            }
        )
    return rows


@dataclass(frozen=True, eq=False)
class Stored(PolicyFields):
    """The frozen parts of a policy that is kept in a policy file.

    A kind of policy is a class that names its `KIND`: with that it is declared (`KINDS`), and its
    files can be read wherever its module is imported (`dprl._core.optional`). The class says what
    its file holds: the fields are its parts, `ARRAYS` the dtype and shape of those that are arrays,
    `LABELS` those that are lists of labels; `_contradiction` refuses numbers that cannot be, and
    `migrate` reads the files of older versions.
    """

    KIND: ClassVar[str] = ""
    """What the file calls this kind of policy."""
    LABELS: ClassVar[tuple[str, ...]] = ("states", "actions", "feature_names", "episodes")
    """Fields that are tuples of labels; a file holds them as lists."""
    OLDER: ClassVar[Mapping[str, str]] = {}
    """Arrays that files of older versions hold in place of some of `ARRAYS`."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if vars(cls).get("KIND"):
            KINDS.add(cls.KIND, cls)

    @classmethod
    def file_arrays(cls) -> dict[str, str]:
        """The arrays that a file may hold, of this version or an older one: as `ARRAYS`."""
        return {**cls.ARRAYS, **cls.OLDER}

    @classmethod
    def migrate(cls, version: int, words: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Turn the parts of a file of a format version into those of the next, in place."""

    @property
    def single_states(self) -> str:
        """Which states of single people it answers from and cannot leave out; '' if none."""
        return ""

    def unnamed(self) -> dict[str, Any]:
        """The parts that name people in training, without their names.

        Returns:
            Attribute name → new value; empty if no part names anybody.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.unnamed()
            {}
        """
        return {}

    def _contradiction(self) -> str:
        """Which of its numbers contradict its own rule; '' if none do. Files must have none."""
        return ""

    def _identity(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What makes it this policy: all of its parts but what people call things."""
        words, arrays = self._parts()
        columns = words["provenance"].get("columns", {})
        if "called" in columns:
            words["provenance"]["columns"] = {k: v for k, v in columns.items() if k != "called"}
        return words, arrays

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        words: dict[str, Any] = {"made_by": self.provenance.get("made_by", "")}
        arrays = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                arrays[part.name] = value
            elif value is None and part.name in self.OPTIONAL:
                continue
            elif isinstance(value, Certificate):
                words[part.name] = value.to_dict()
            else:
                words[part.name] = to_json_value(value)
        return words, arrays

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy file (a zip of JSON and npy; equal policies give equal bytes).

        Plain hashes of training groups, which files of older versions hold, are sealed
        (`dprl.logs.overlap`): such a file is written with a new digest.

        Args:
            path: Where to write it; a file that is there is replaced.

        Raises:
            PolicyError: The path is a folder, its folder does not exist, or numbers of the policy
                contradict its own rule, such as a suggestion that nobody took.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "care.policy")
            ...     policy.save(path)
            ...     dprl.TablePolicy.load(path).digest() == policy.digest()
            True
        """
        if wrong := self._contradiction():
            self._refuse(wrong)
        words, arrays = self._parts()
        words["provenance"] = to_json_value(sealed_origin(self.provenance))
        pack(path, self.KIND, words, arrays)

    def __eq__(self, other: object) -> bool:
        """Policies of one kind that hold the same are equal."""
        return self is other or (type(self) is type(other) and self.digest() == other.digest())

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> str:
        """SHA-256 of everything the policy holds, but not of what people call things.

        Returns:
            The digest as hexadecimal text; equal policies have equal digests.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.digest() == dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log).digest()
            True
        """
        digest: str = document(self.KIND, *self._identity())[0]["digest"]
        return digest

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a policy file of this kind of policy. No code from it is run.

        Args:
            path: The file that `save` wrote.

        Returns:
            The policy.

        Raises:
            PolicyError: The file is not there, is damaged, or holds another kind of policy.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "care.policy")
            ...     policy.save(path)
            ...     dprl.TablePolicy.load(path).digest() == policy.digest()
            True
        """
        return cls._opened(path, *unpack(path))

    @classmethod
    def _opened(
        cls,
        path: str | os.PathLike[str],
        kind: str,
        words: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
    ) -> Self:
        """The policy of a file. Whatever is wrong with its parts comes out as a PolicyError.

        What it says of itself is made once, so that words which cannot be said are refused now and
        not when someone asks.
        """
        try:
            policy = cls._from_parts(path, kind, words, arrays)
            if wrong := policy._contradiction():
                policy._refuse(wrong)
            luck, _ = policy.luck, policy.encoding
            lines = (*policy.statements, policy.certificate_words, luck.words if luck else "")
            if not all(isinstance(line, str) for line in lines):
                policy._refuse("what it says of itself is no text")
        except PolicyError:
            raise
        except Exception as error:
            line = next(iter(str(error).splitlines()), "")[:200]
            raise PolicyError(
                f"{os.fspath(path)!r} holds parts that make no policy.",
                f"{type(error).__name__}: {line}",
                "Copy it again from where it was made, or fit the policy again.",
            ) from error
        return policy

    @classmethod
    def _from_parts(
        cls,
        path: str | os.PathLike[str],
        kind: str,
        words: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
    ) -> Self:
        names = {f.name for f in fields(cls)}
        given: dict[str, Any] = {**{k: v for k, v in words.items() if k in names}, **arrays}
        odd = sorted((names ^ set(given)) - (set(cls.OPTIONAL) - set(given)))
        lists = [f.name for f in fields(cls) if f.name in cls.LABELS]
        labels: list[Any] = [given.get(name) for name in lists]
        good = (
            kind == cls.KIND
            and not odd
            and all(
                isinstance(x, list) and all(isinstance(v, str | int) for v in x) for x in labels
            )
            and all(isinstance(name, str) for name in given.get("feature_names", ()))
            and all(isinstance(given[k], dict) for k in ("parameters", "provenance"))
            and isinstance(given["certificate"], dict | None)
        )
        if not good:
            raise PolicyError(
                f"{os.fspath(path)!r} holds no policy this version can read.",
                f"kind {kind!r}" + (f", parts {', '.join(odd[:4])}" if odd else ""),
                "Upgrade dprl, or fit the policy again.",
            )
        given |= {n: tuple(x) for n, x in zip(lists, labels, strict=True)}
        if given["certificate"] is not None:
            given["certificate"] = Certificate.from_dict(given["certificate"])
        return cls(**given)


# --- A copy of a policy that may leave the house: it answers the same, and names nobody
#
# What a policy file holds about people, and what becomes of it in a public copy:
#
# * the digest of the training log, the sample of its groups and the digests beside other logs and
#   the audit trail (`provenance`, `certificate`): left out. They let one test who was in the log.
# * labels of training episodes (`NeighborPolicy.episodes`): replaced by numbers. The numbers follow
#   the points' own values, so they say nothing about the labels or the order of the log.
# * training points (`NeighborPolicy`) and cell centres (`CellPolicy`, each the state of one step of
#   training): the policy cannot answer without them. They go along only where that is asked for.
# * labels of states and actions, counts, means and variances of returns, the smallest and largest
#   value of each feature, the weights of a network, names of columns, settings: stay. They are what
#   the policy knows. A count may be 1, and then the mean beside it is one person's return.

Kept = TypeVar("Kept", bound=Stored)

FACTS = (
    "made_by", "episodes", "groups", "steps", "cut_episodes", "episodes_used", "steps_used",
    "columns", "notes", "ranges", "quantiles", "backups", "luck", "markov",
    "probabilities", "n_sites",
)  # fmt: skip
PARTS = {
    "sweep": ("settings", "rule", "words", "estimator"),
    "approved": ("changes", "of", "needs"),
    "rules": ("whole", "eta"),
}
"""What of a provenance names nobody. Whatever is not listed here is left out."""


def public_origin(origin: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a provenance by which nobody can be found in the training log."""
    result: dict[str, Any] = {name: origin[name] for name in FACTS if name in origin}
    for part, names in PARTS.items():
        facts = origin.get(part)
        if isinstance(facts, Mapping):
            result[part] = {name: facts[name] for name in names if name in facts}
    return result


def public_copy(policy: Kept, *, points: bool = False) -> Kept:
    """A copy of a policy without what names people; it answers the same at every state.

    The copy cannot tell which logs it has seen: `dprl.evaluate` warns of that. What stays in it is
    said in `dprl.policies.base`.

    Args:
        policy: A policy that can be saved.
        points: Let training points (or the centres of cells) go along, where the policy answers
            from them. They are states of single people as they were measured; without this, such a
            policy is refused.

    Returns:
        The copy, of the same class.

    Raises:
        PolicyError: The policy lives in memory only, or it answers from states of single people
            and `points` is False.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        >>> dprl.public_copy(policy).provenance["log"]
        'withheld'
    """
    policy.digest()  # a policy that lives in memory only is refused here
    if policy.single_states and not points:
        raise PolicyError(
            f"this policy answers from {policy.single_states}.",
            ", ".join(getattr(policy, "feature_names", ())[:4]),
            worded("If they may be public, say so: {points=True}. Labels are left out anyhow."),
        )
    origin = {**public_origin(policy.provenance), "log": WITHHELD, "public": True}
    proved = policy.certificate
    changed: dict[str, Any] = {
        "provenance": origin,
        "certificate": None if proved is None else replace(proved, log=WITHHELD),
    }
    return replace(policy, **changed, **policy.unnamed())
