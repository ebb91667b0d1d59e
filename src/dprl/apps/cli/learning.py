"""Options of the commands that learn: which learner, and its settings.

An option that some learners have and others have not has no default here (None), so that it can be
refused, wherever it was given, when another learner is asked for. The learner itself has the
default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from dprl._core.checks import Cut
from dprl.apps.cli.options import SETTINGS, TREATMENTS, MaybeWhole, numbers
from dprl.errors import ParameterError

__all__ = ["TAKERS", "FitOptions", "LearnerOptions"]

TAKERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("contrast", "plan", "visits", "scale", "weight", "radius"), ("dprl",)),
    **dict.fromkeys(("risk", "keep", "evidence", "veto", "check"), ("confident",)),
    **dict.fromkeys(("depth", "delta", "margin", "cuts", "folds"), ("rules",)),
    "lam": ("dprl", "rules"),
    "splits": ("confident", "rules"),
    "seed": ("confident", "rules"),
}
"""Option that not every learner has → the learners that have it."""
DISTANCE = {
    "confident": "A radius is for features; the learner confident takes labels.",
    "rules": "Rules need no distance: they ask each feature by itself.",
}
"""Learner → why it takes no radius."""


@Parameter(name="*")
@dataclass(kw_only=True)
class LearnerOptions:
    """How to learn."""

    gamma: Annotated[float, Parameter(help="Discount per step, in (0, 1].")]
    learner: Annotated[
        Literal["dprl", "confident", "rules"],
        Parameter(
            help="dprl suggests what enough episodes did without harm, and can be certified; "
            "confident suggests only what is surely better, and says how sure (labels only; it "
            "plans in a model, so the state must tell enough); rules are a few sentences over "
            "features, proposed by one half of the groups and certified by the other."
        ),
    ] = "dprl"
    risk: Annotated[
        float | None,
        Parameter(
            help="confident: a policy's own lower end at level 1 - risk must be above 0; in "
            "(0, 0.5], by default 0.01."
        ),
    ] = None
    keep: Annotated[
        float | None,
        Parameter(
            help="confident: share of the largest lower end that is enough, in (0, 1]; below 1, by "
            "default 1, small changes that add little are left out."
        ),
    ] = None
    evidence: Annotated[
        Literal["model", "excursions", "returns"] | None,
        Parameter(
            help="confident: what must be sure. model (by default) needs a state that tells all "
            "that matters, excursions needs that only where it suggests something, returns does "
            "not need it."
        ),
    ] = None
    veto: Annotated[
        bool | None,
        Parameter(
            help="confident: strike suggestions that first-visit returns contradict; by default "
            "not."
        ),
    ] = None
    splits: Annotated[
        MaybeWhole,
        Parameter(
            help="confident: how often the log is halved for the bound of the gain; by default 3, "
            "0 for no bound. rules: how many divisions in two halves are tried; by default 3."
        ),
    ] = None
    check: Annotated[
        bool | None,
        Parameter(help="confident: check whether the state tells enough; by default it does."),
    ] = None
    contrast: Annotated[
        bool | None,
        Parameter(help="dprl: also require n-min episodes that did otherwise; by default yes."),
    ] = None
    plan: Annotated[
        bool | None,
        Parameter(help="dprl: plan over all decisions of an episode together; by default yes."),
    ] = None
    visits: Annotated[
        Literal["first", "all"] | None,
        Parameter(
            help="dprl: count episodes (first, by default), or every visit (all; no certificate)."
        ),
    ] = None
    scale: Annotated[
        Literal["std", "robust", "none"] | None,
        Parameter(help="dprl, features: what to divide them by; by default std."),
    ] = None
    weight: Annotated[
        list[str] | None,
        Parameter(help="dprl, features: NAME=WEIGHT, repeatable.", negative=""),
    ] = None
    lam: Annotated[
        float | None,
        Parameter(
            help="dprl, features: λ of credit in place of returns, from 0 to 1. 1 assumes no more "
            "than returns do; below 1 a model of values is trusted, and features must tell all "
            "that matters for what comes next. By default returns. rules: the same λ; by default "
            "chosen by the proposing half among 1, 0.95, 0.9 and 0.8."
        ),
    ] = None
    cut: Annotated[
        Cut | None,
        Parameter(
            help=f"How to treat cut episodes: {TREATMENTS}. ipcw needs --no-plan, or --learner "
            "rules --lam 1. By default as ended, with a warning."
        ),
    ] = None

    def reads_features(self, radius: Any) -> bool:
        """Whether states are read as features, even a single column of them."""
        return radius is not None or self.learner == "rules"

    def make(
        self, n_min: float | None, radius: float | None, *, seed: int | None, own_seed: bool
    ) -> Any:
        """The learner that is asked for, with its settings.

        Args:
            n_min: Episodes an action needs; None: not given.
            radius: Largest distance of similar states; None: states are labels, or the learner
                needs no distance.
            seed: Seed of the divisions and of the check; None: not given.
            own_seed: Whether --seed is an option of the learner, and not of the command.
        """
        import dprl

        given = {**vars(self), "radius": radius, "seed": seed if own_seed else None}
        self._refuse_others(given)
        shared: dict[str, Any] = {"gamma": self.gamma, "cut": self.cut}
        if self.learner != "dprl":
            makers: dict[str, Any] = {"confident": dprl.Confident, "rules": dprl.Rules}
            own = [name for name, takers in TAKERS.items() if self.learner in takers]
            settings = {**given, "n_min": n_min, "seed": seed}
            return makers[self.learner](**shared, **_given(settings, (*own, "n_min")))
        if n_min is None:
            raise ParameterError(
                "the learner dprl needs --n-min: how many episodes must have taken an action "
                "before it may be suggested.",
                do="Choose it before looking at results (--n-min 20), or compare several with dprl "
                "sweep. --learner confident needs none: it takes 3.",
            )
        shared |= {"n_min": n_min, **_given(given, ("contrast", "plan", "visits"))}
        if radius is not None:
            weights = numbers(self.weight or [], "a weight is written NAME=WEIGHT")
            metric = dprl.Metric(scale=self.scale or "std", weights=weights)
            return dprl.DPRLContinuous(radius=radius, metric=metric, lam=self.lam, **shared)
        if self.weight or (self.scale or "std") != "std":
            raise ParameterError(
                "--weight and --scale are for features.",
                do="Name a --radius too, or leave them out.",
            )
        if self.lam is not None:
            raise ParameterError(
                "--lam is for features: the learner dprl compares returns where states are labels.",
                f"--lam {self.lam:g}",
                "Name a --radius too, or leave it out.",
            )
        return dprl.DPRLDiscrete(**shared)

    def _refuse_others(self, given: dict[str, Any]) -> None:
        """Refuse options that only other learners have."""
        others = [
            name for name, takers in TAKERS.items()
            if given.get(name) is not None and self.learner not in takers
        ]  # fmt: skip
        if not others:
            return
        takers = [TAKERS[name] for name in others]
        what = f"{', '.join(f'--{name}' for name in others)}: not for the learner {self.learner}"
        if len(set(takers)) == 1:
            what += f", only for {' and '.join(takers[0])}."
        else:
            each = [f"--{name} {' and '.join(TAKERS[name])}" for name in others]
            what += f" (learners that have them: {'; '.join(each)})."
        if "radius" in others:
            what += f" {DISTANCE[self.learner]}"
        common = [learner for learner in takers[0] if all(learner in own for own in takers)]
        instead = f", or say --learner {' or '.join(common)}" if common else ""
        raise ParameterError(
            what,
            f"--{others[0]} {given[others[0]]}",
            f"Leave {'it' if len(others) == 1 else 'them'} out (in {SETTINGS} too){instead}.",
        )

    def with_states(self, data: Any, radius: Any) -> Any:
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
        if self.learner == "confident":
            raise ParameterError(
                f"{count}, and the learner confident takes labels.",
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


@Parameter(name="*")
@dataclass(kw_only=True)
class FitOptions(LearnerOptions):
    """How to learn once: also the options that a comparison of settings does not have."""

    depth: Annotated[
        MaybeWhole,
        Parameter(help="rules: the most questions on the way to a rule, 1 to 4; by default 2."),
    ] = None
    delta: Annotated[
        float | None,
        Parameter(
            help="rules: the chance that some rule is no improvement, in (0, 1); by default 0.05. "
            "The claim is large-sample."
        ),
    ] = None
    margin: Annotated[
        float | None,
        Parameter(
            help="rules: what a rule must bring over doing otherwise, in units of returns; by "
            "default 0."
        ),
    ] = None
    cuts: Annotated[
        MaybeWhole,
        Parameter(help="rules: the most cuts of a feature that are tried, 1 to 32; by default 16."),
    ] = None
    folds: Annotated[
        MaybeWhole,
        Parameter(help="rules: folds of the models of usual practice, at least 2; by default 4."),
    ] = None


def _given(settings: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The settings of these names that were given."""
    return {name: settings[name] for name in names if settings.get(name) is not None}
