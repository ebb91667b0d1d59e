"""The learners that have a name: their classes, the states they take, and their settings.

A learner's settings are the fields of its dataclass: name, type, default, and what its docstring
says of them under "Attributes". Command-line options are made of these (`dprl.apps.cli.learning`),
so a setting is declared once.

`register` adds a learner of your own:

    @dataclass(frozen=True, kw_only=True)
    class Majority:
        gamma: float
        n_min: float = 20
        def fit(self, log): ...

    dprl.learners.register("majority", labels=Majority, about="does what most did")

Then `dprl fit --learner majority --n-min 30` works where the module is imported
(`dprl._core.optional`), and so does `dprl fit --learner my_package.learner:Majority`.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.util
import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from dprl._core import checks
from dprl._core.optional import Registry
from dprl.errors import ParameterError

if TYPE_CHECKING:
    from dprl.logs.log import Log
    from dprl.policies.protocol import Policy


@runtime_checkable
class Learner(Protocol):
    """What learns: whatever has `fit(log)`, which returns a policy.

    There is no class to inherit from. `dprl.sweep`, `dprl.gate`, `dprl.contest`, `Confident`
    (`members`) and the command line take it; `dprl.testing.check_learner` says what it lacks. An
    attribute `gamma`, or one among the `parameters` of its policy, is the discount that it plans
    with.

    Example:
        >>> import dprl
        >>> isinstance(dprl.baselines.LCB(gamma=1.0), dprl.learners.Learner)
        True
    """

    def fit(self, log: Log) -> Policy:
        """The policy that is learned from a log.

        Args:
            log: The log.

        Returns:
            The policy.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> dprl.baselines.BC().fit(log).act("fever")
            'watch'
        """


class Settings:
    """The settings of a learner, as scikit-learn asks for them; its fields are the settings.

    Example:
        >>> import dprl
        >>> from sklearn.base import clone
        >>> clone(dprl.baselines.LCB(gamma=1.0)) == dprl.baselines.LCB(gamma=1.0)
        True
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting by its name.

        Args:
            deep: Not used: no setting is a learner itself. Default True.

        Returns:
            Name → value.

        Example:
            >>> import dprl
            >>> dprl.baselines.LCB(gamma=1.0).get_params()["c"]
            0.1
        """
        own: Any = self
        return {f.name: getattr(self, f.name) for f in fields(own) if f.init}

    def set_params(self, **params: Any) -> Self:
        """The learner with other settings; this one stays as it is.

        Args:
            **params: The settings that are different.

        Returns:
            The other learner.

        Raises:
            ParameterError: If it has no such setting, or a value is outside its range.

        Example:
            >>> import dprl
            >>> dprl.baselines.LCB(gamma=1.0).set_params(c=0.5).c
            0.5
        """
        own: Any = self
        names = list(self.get_params())
        if unknown := [name for name in params if name not in names]:
            near = difflib.get_close_matches(unknown[0], names, n=1)
            raise ParameterError(
                f"{type(self).__name__} has no setting {unknown[0]!r}.",
                do=f"Did you mean {near[0]!r}?" if near else f"It has {', '.join(names)}.",
            )
        other: Self = replace(own, **params)
        return other

    def __eq__(self, other: object) -> bool:
        """Learners of one class with the same settings are equal; a setting may be an array."""
        if type(self) is not type(other):
            return NotImplemented
        import numpy as np

        theirs = other.get_params()
        return all(np.array_equal(one, theirs[name]) for name, one in self.get_params().items())

    def __hash__(self) -> int:
        return hash((type(self), getattr(self, "gamma", None)))


@dataclass(frozen=True)
class Setting:
    """One setting of a learner.

    Attributes:
        name: Its name.
        kind: Its type.
        default: Its default; `dataclasses.MISSING` where it must be given.
        words: What the learner's docstring says of it.
    """

    name: str
    kind: Any
    default: Any
    words: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A learner with a name.

    Attributes:
        name: What the command line calls it.
        labels: The class that learns where states are labels, or "module:Class"; None: it does not.
        features: The class that learns where states are features, or "module:Class"; None: it does
            not.
        about: What it does, in words that follow its name.
        not_offered: Settings for Python alone, which the command line does not offer.
        no_radius: Why it needs no distance, where somebody gives one.
        no_sweep: Why `dprl sweep` does not take it; '' where it does.
    """

    name: str
    labels: str | type | None = None
    features: str | type | None = None
    about: str = ""
    not_offered: tuple[str, ...] = ()
    no_radius: str = ""
    no_sweep: str = ""

    def reads_features(self, radius: Any) -> bool:
        """Whether it reads states as features, even a single column of them."""
        return self.features is not None and (self.labels is None or radius is not None)

    def offered(self, *, features: bool) -> dict[str, Setting]:
        """The settings of the class for labels, or for features, that the command line offers."""
        where = self.features if features else self.labels
        settings = () if where is None else settings_of(where)
        return {s.name: s for s in settings if s.name not in self.not_offered}

    def made_by(self, *, features: bool | None = None) -> Any:
        """Its class for labels, or for features; by default the first that it has."""
        first = self.features if self.labels is None else self.labels
        where = first if features is None else self.features if features else self.labels
        return _imported(where) if isinstance(where, str) else where


LEARNERS: Registry[Entry] = Registry("dprl.learners", "learner")
"""Every learner that the command line has a name for."""


def register(
    name: str,
    *,
    labels: type | None = None,
    features: type | None = None,
    about: str = "",
) -> None:
    """Give a learner of your own a name on the command line.

    Args:
        name: The name: `dprl fit --learner NAME`.
        labels: Its class for states that are labels: a dataclass with `fit(log)`. Default None: it
            takes no labels.
        features: Its class for states that are features. Default None: it takes no features. Where
            both are given, a `--radius` says that states are features.
        about: What it does, in a few words. Default: the first line of its docstring.

    Raises:
        ParameterError: The name is taken, or a class is no dataclass with `fit`.

    Example:
        >>> from dataclasses import dataclass
        >>> import dprl
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Usual:
        ...     gamma: float
        ...     def fit(self, log):
        ...         return dprl.baselines.BC().fit(log)
        >>> dprl.learners.register("usual", labels=Usual, about="does what was done")
        >>> dprl.learners.registry.LEARNERS["usual"].offered(features=False).keys()
        dict_keys(['gamma'])
        >>> del dprl.learners.registry.LEARNERS["usual"]
    """
    if labels is None and features is None:
        raise ParameterError(
            f"the learner {name!r} has no class.",
            do="It needs one for labels, for features, or both.",
        )
    for cls in (labels, features):
        if cls is not None and not (is_dataclass(cls) and hasattr(cls, "fit")):
            raise ParameterError(
                f"{getattr(cls, '__name__', cls)!r} is no learner.",
                do="A learner is a dataclass whose fields are its settings, with fit(log).",
            )
    first = inspect.getdoc(labels or features) or ""
    about = about or first.partition("\n")[0]
    LEARNERS.add(name, Entry(name=name, labels=labels, features=features, about=about))


def find(name: str) -> Entry | None:
    """The learner of a name; "module:Class" names a class itself. None where there is none.

    Raises:
        ParameterError: The module cannot be imported, or has no such class.
    """
    if ":" not in name:
        return LEARNERS.find(name)
    if name not in LEARNERS:
        made = _imported(name)
        takes = "features" if getattr(made, "TAKES", "labels") == "features" else "labels"
        register(name, **{takes: made})
    return LEARNERS[name]


@functools.cache
def settings_of(where: str | type) -> tuple[Setting, ...]:
    """The settings of a learner: the fields of its class, in their order.

    Args:
        where: The class; or "module:Class", whose source is read without importing it: the help of
            a command must not wait for compilers.
    """
    if isinstance(where, str):
        return tuple(_declared(where))
    hints, words = typing.get_type_hints(where), _attributes(inspect.getdoc(where) or "")
    return tuple(
        Setting(
            f.name,
            hints[f.name],
            f.default if f.default_factory is MISSING else None,
            words.get(f.name, ""),
        )
        for f in fields(where)
        if f.init
    )


def _declared(where: str) -> Iterator[Setting]:
    """The settings of a class of dprl's, from its docstring and fields as they are written."""
    module, _, name = where.partition(":")
    spec = importlib.util.find_spec(module)
    source = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
    head = re.search(rf"^class {name}\b.*?(?=^    def )", source, re.M | re.S)
    (cls,) = ast.parse(head[0] if head else "").body  # up to its first method
    assert isinstance(cls, ast.ClassDef)
    words = _attributes(ast.get_docstring(cls) or "")
    names = {**vars(typing), **vars(checks)}
    for line in cls.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        written = ast.unparse(line.annotation)
        if written.startswith("ClassVar"):
            continue
        try:
            kind = eval(written, names)  # our own source: float, Literal["first", "all"], ...
        except NameError:
            kind = object  # a type that has no option
        value = line.value
        default: Any = MISSING if value is None else None
        if isinstance(value, ast.Constant):
            default = value.value
        yield Setting(line.target.id, kind, default, words.get(line.target.id, ""))


def _attributes(docstring: str) -> dict[str, str]:
    """Name → words, from the section "Attributes" of a docstring."""
    section = re.search(r"^Attributes:\n((?: .*\n|\n(?= ))*)", f"{docstring}\n", re.M)
    parts = re.split(r"^ {4}(\w+): ", section[1], flags=re.M) if section else [""]
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return {name: " ".join(text.split()) for name, text in pairs}


def _imported(where: str) -> Any:
    module, _, name = where.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ParameterError(
            f"there is no learner {where!r}.",
            str(error),
            "Name the module and the class as Python imports them: --learner my_package:MyLearner.",
        ) from error


for _own in (
    Entry(
        name="dprl",
        labels="dprl.learners.discrete:DPRLDiscrete",
        features="dprl.learners.continuous:DPRLContinuous",
        about="suggests what enough episodes did without harm, and can be certified",
        not_offered=("folds", "seed", "device"),
    ),
    Entry(
        name="confident",
        labels="dprl.learners.confident:Confident",
        about="suggests only what is surely better, and says how sure (labels only; it plans in a "
        "model, so the state must tell enough)",
        not_offered=("members",),
        no_radius="A radius is for features; the learner confident takes labels.",
    ),
    Entry(
        name="rules",
        features="dprl.learners.rules.learner:Rules",
        about="are a few sentences over features, proposed by one half of the groups and certified "
        "by the other",
        no_radius="Rules need no distance: they ask each feature by itself.",
        no_sweep="it chooses its settings itself on one half of the groups, and what it states of "
        "its rules holds for one fit, not for the best of several",
    ),
):
    LEARNERS.add(_own.name, _own)
