"""Options of the commands that learn: which learner, and its settings.

The options of a learner are the fields of its class (`dprl.learners.registry`), with the words of
its docstring. An option that some learners have and others have not has no default here (None), so
that it can be refused, wherever it was given, when another learner is asked for. The learner itself
has the default.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, make_dataclass
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import Parameter

from dprl._core.checks import Cut
from dprl.apps.cli.options import SETTINGS, TREATMENTS, MaybeWhole, numbers
from dprl.errors import ParameterError
from dprl.evidence.neighbors.scales import SCALES
from dprl.learners import registry
from dprl.learners.registry import LEARNERS, Entry, Setting

SHARED = ("gamma", "cut")
"""Settings that every learner of dprl has, and their options once."""
OF_COMMANDS = ("n_min", "radius", "seed")
"""Settings that a comparison of several asks for in its own way."""
METRIC = {"scale": "std", "weight": None}
"""What makes up the setting `metric` on the command line → what is as if it were not given."""


GAMMA = Annotated[float, Parameter(help="Discount per step, in (0, 1].")]
CUT = Annotated[
    Cut | None,
    Parameter(
        help=f"How to treat cut episodes: {TREATMENTS}. ipcw needs --no-plan, or --learner rules "
        "--lam 1. By default as ended, with a warning."
    ),
]


class _Options:
    """How to learn: what is done with the options, whichever they are (see `_options`)."""

    learner: str

    @property
    def entry(self) -> Entry:
        """The learner that is asked for."""
        return LEARNERS[self.learner]

    def reads_features(self, radius: Any = None) -> bool:
        """Whether states are read as features, even a single column of them."""
        return self.entry.reads_features(vars(self).get("radius", radius))

    def make(
        self,
        n_min: float | None = None,
        radius: float | None = None,
        *,
        seed: int | None = None,
        own_seed: bool = True,
    ) -> Any:
        """The learner that is asked for, with its settings.

        Args:
            n_min: Episodes an action needs; None: not given, or among the options already.
            radius: Largest distance of similar states; None: states are labels, or the learner
                needs no distance, or it is among the options already.
            seed: Seed of the divisions and of the check; None: not given.
            own_seed: Whether --seed is an option of the learner, and not of the command.
        """
        given = {"n_min": n_min, "radius": radius, "seed": seed, **vars(self)}
        given = {name: value for name, value in given.items() if value is not None}
        self._refuse_others({k: v for k, v in given.items() if own_seed or k != "seed"})
        features = self.entry.reads_features(given.get("radius"))
        own = self.entry.offered(features=features)
        if not features:
            self._refuse_features_alone(given, own)
        for setting in own.values():
            if setting.default is MISSING and setting.name not in given:
                raise _needed(self.learner, setting)
        settings = {name: given[name] for name in own if name in given}
        if "metric" in own:
            from dprl.evidence.neighbors.metric import Metric

            weights = numbers(given.get("weight", []), "a weight is written NAME=WEIGHT")
            settings["metric"] = Metric(scale=given.get("scale", "std"), weights=weights)
        return self.entry.made_by(features=features)(**settings)

    def check_sweep(self) -> None:
        """Refuse a learner whose settings are not to be compared."""
        name = self.learner
        if self.entry.no_sweep:
            raise ParameterError(
                f"--learner {name} is not for sweep: {self.entry.no_sweep}.",
                f"--learner {name}",
                f"Say dprl fit --learner {name}, and judge the policy with dprl evaluate on "
                "episodes it was not learned from.",
            )

    def _refuse_others(self, given: Mapping[str, Any]) -> None:
        """Refuse options that only other learners have."""
        having = takers()
        others = [n for n in having if n in given and self.learner not in having[n]]
        if not others:
            return
        what = f"{', '.join(map(_option, others))}: not for the learner {self.learner}"
        if len({having[name] for name in others}) == 1:
            what += f", only for {' and '.join(having[others[0]])}."
        else:
            each = [f"{_option(name)} {' and '.join(having[name])}" for name in others]
            what += f" (learners that have them: {'; '.join(each)})."
        if "radius" in others and self.entry.no_radius:
            what += f" {self.entry.no_radius}"
        common = [one for one in having[others[0]] if all(one in having[n] for n in others)]
        instead = f", or say --learner {' or '.join(common)}" if common else ""
        raise ParameterError(
            what,
            f"{_option(others[0])} {given[others[0]]}",
            f"Leave {'it' if len(others) == 1 else 'them'} out (in {SETTINGS} too){instead}.",
        )

    def _refuse_features_alone(self, given: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Refuse settings that the learner has for features, where states are labels."""
        where = self.entry.offered(features=True)
        metric = [n for n, usual in METRIC.items() if "metric" in where and given.get(n) != usual]
        if any(name in given for name in metric):
            raise ParameterError(
                "--weight and --scale are for features.",
                do="Name a --radius too, or leave them out.",
            )
        for name in where:
            if name in given and name not in own:
                raise ParameterError(
                    f"{_option(name)} is for features: the learner {self.learner} has no such "
                    "setting where states are labels.",
                    f"{_option(name)} {given[name]}",
                    "Name a --radius too, or leave it out.",
                )

    def with_states(self, data: Any, radius: Any = None) -> Any:
        """The log with states as the learner takes them: categories joined, where it takes labels.

        Refused are numbers without a radius, and numbers where the learner takes labels only.
        """
        if data.features is None or self.reads_features(radius):
            return data
        if data.levels and all(own is not None for own in data.levels):
            return data.joined()
        count = f"states are {len(data.feature_names)} features"
        levels = data.levels or [None] * len(data.feature_names)
        numeric = [n for n, own in zip(data.feature_names, levels, strict=True) if own is None]
        first = f"{numeric[0]!r} holds numbers"
        if self.entry.features is None:
            raise ParameterError(
                f"{count}, and the learner {self.learner} takes labels.",
                first,
                "Name columns of labels with --state (they are joined into one label; say "
                "--categorical where numbers are labels), or say --learner rules, or --learner "
                "dprl and a --radius.",
            )
        raise ParameterError(
            f"{count}, and no radius is given.",
            first,
            "Say how far similar states may be, after scaling: --radius 1.5; or say --learner "
            "rules, which needs no distance.",
        )


def _needed(learner: str, setting: Setting) -> ParameterError:
    """What is said of a setting that has no default and was not given."""
    if setting.name == "n_min":
        return ParameterError(
            f"the learner {learner} needs --n-min: how many episodes must have taken an action "
            "before it may be suggested.",
            do="Choose it before looking at results (--n-min 20), or compare several with dprl "
            "sweep. --learner confident needs none: it takes 3.",
        )
    return ParameterError(
        f"the learner {learner} needs {_option(setting.name)}.", do=in_words(setting)
    )


def takers() -> dict[str, tuple[str, ...]]:
    """Option that not every learner has → the learners that have it."""
    names: dict[str, list[str]] = {}
    for entry in LEARNERS.values():
        own = {**entry.offered(features=False), **entry.offered(features=True)}
        for name in own:
            for option in METRIC if name == "metric" else (name,):
                names.setdefault(option, []).append(entry.name)
    every = len(LEARNERS)
    return {n: tuple(own) for n, own in names.items() if n not in SHARED and len(own) < every}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# -- options from settings -----------------------------------------------------------------------


def in_words(setting: Setting) -> str:
    """What a docstring says of a setting, as the help of its option; code in it is an option."""
    text = setting.words.replace('"', "").replace("Default None:", "Default:")
    if isinstance(setting.default, bool):
        usual = "yes" if setting.default else "no"
        text = text.replace(f"Default {setting.default}", f"Default {usual}")
    parts = text.split("`")
    parts[1::2] = map(_as_option, parts[1::2])
    return "".join(parts)


def _as_option(code: str) -> str:
    """An argument in a docstring, with its value if it has one, as an option."""
    name, sign, value = code.partition("=")
    if not name.isidentifier():
        return code
    if value in ("True", "False"):
        return _option(name if value == "True" else f"no-{name}")
    return f"{_option(name)} {value}" if sign else _option(name)


def _help(name: str, entries: Collection[Entry]) -> str:
    """The help of a setting: whose it is, and what it does there."""
    whose: dict[str, list[str]] = {}
    for entry in entries:
        labels, features = entry.offered(features=False), entry.offered(features=True)
        setting = labels.get(name) or features.get(name)
        if setting is not None:
            alone = name in features and name not in labels and entry.labels is not None
            words = in_words(setting) + " Needed." * (setting.default is MISSING and not alone)
            whose.setdefault(words, []).append(f"{entry.name}, features" if alone else entry.name)
    return " ".join(f"{' and '.join(names)}: {words}" for words, names in whose.items())


def _type(name: str, settings: Sequence[Setting]) -> Any:
    """The type of the option of a setting; whole numbers stay whole."""
    unions = (Union, UnionType)
    kinds = [
        kind for s in settings
        for kind in (get_args(s.kind) if get_origin(s.kind) in unions else (s.kind,))
    ]  # fmt: skip
    if name == "n_min" or int in kinds:
        return MaybeWhole
    choices = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if choices:
        return _choice(dict.fromkeys(choices)) | None
    return next((kind | None for kind in (bool, float, str) if kind in kinds), None)


def _choice(words: Iterable[str]) -> Any:
    """The type of one of these words."""
    return Literal.__getitem__(tuple(words))


def _annotated(kind: Any, words: str) -> Any:
    """The type of an option with its help."""
    return Annotated[kind, Parameter(help=words)]


def _options(entries: Collection[Entry], but: Sequence[str] = ()) -> Any:
    """A dataclass of options: those of every learner, and the settings of these."""
    about = "; ".join(f"{entry.name} {entry.about}" for entry in LEARNERS.values())
    learner = _annotated(_choice(LEARNERS), f"{about}.")
    columns: list[Any] = [("gamma", GAMMA), ("learner", learner, "dprl"), ("cut", CUT, None)]
    offered: dict[str, list[Setting]] = {}
    for entry in entries:
        for features in (False, True):
            for name, setting in entry.offered(features=features).items():
                offered.setdefault(name, []).append(setting)
    for name, settings in offered.items():
        if name == "metric":
            scale, weight = "what to divide them by; by default std.", "NAME=WEIGHT, repeatable."
            columns += [
                ("scale", _annotated(_choice(SCALES) | None, f"dprl, features: {scale}"), None),
                ("weight", Annotated[
                    list[str] | None, Parameter(help=f"dprl, features: {weight}")
                ], None),
            ]  # fmt: skip
        elif name not in (*SHARED, *but) and (kind := _type(name, settings)) is not None:
            columns.append((name, _annotated(kind, _help(name, entries)), None))
    made = make_dataclass("LearnerOptions", columns, bases=(_Options,), kw_only=True)
    made.__doc__ = "How to learn."
    made.__module__ = __name__
    return Parameter(name="*")(made)


def _sweep_options() -> Any:
    """Those of a comparison of settings, which asks for some of them in its own way."""
    return _options([one for one in LEARNERS.values() if not one.no_sweep], OF_COMMANDS)


if TYPE_CHECKING:

    class LearnerOptions(_Options):
        """Options of `sweep`."""

    class FitOptions(_Options):
        """Options of `fit`."""
else:
    FitOptions, LearnerOptions = _options(LEARNERS.values()), _sweep_options()


def offer(
    tokens: Sequence[str], table: Mapping[str, Any], commands: Mapping[str, Callable[..., int]]
) -> None:
    """Take in a learner, or a scale, that is not dprl's own, with the options it has.

    Args:
        tokens: The command and its options as they were written.
        table: Defaults of the command, from dprl.toml.
        commands: `fit` and `sweep`, by name.
    """
    if tokens[:1] not in [[name] for name in commands]:
        return
    for option, registered in (("learner", registry.find), ("scale", SCALES.find)):
        line = " ".join(tokens).replace(f"--{option}=", f"--{option} ")
        asked = re.search(rf"--{option} (\S+)", line)
        name = asked[1] if asked else table.get(option)
        if isinstance(name, str):
            registered(name)
    commands["fit"].__annotations__["learning"] = _options(LEARNERS.values())
    commands["sweep"].__annotations__["learning"] = _sweep_options()


def taken_by_fit(learner: Any) -> frozenset[str]:
    """The names that `fit` of a learner takes: the log, and maybe progress, cluster, propensity."""
    return frozenset(inspect.signature(learner.fit).parameters)


def check_cluster(cluster: str | None, name: str, learner: Any) -> None:
    """Refuse a cluster for a learner that works in one process only."""
    if cluster is None or "cluster" in taken_by_fit(learner):
        return
    able = [one.name for one in LEARNERS.values() if "cluster" in taken_by_fit(one.made_by())]
    raise ParameterError(
        f"the learner {name} works in one process, not on a cluster.",
        f"--cluster {cluster}",
        f"Leave --cluster out, or say --learner {' or '.join(able)}.",
    )
