"""Options of the commands that learn: which learner, and its settings.

An option of one learner alone has no default here (None), so that it can be refused, wherever it
was given, when the other learner is asked for. The learner itself has the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from dprl.apps.cli.options import SETTINGS, MaybeWhole, numbers
from dprl.errors import ParameterError

__all__ = ["LearnerOptions"]

OWN = {
    "dprl": ("contrast", "plan", "visits", "scale", "weight", "radius", "lam"),
    "confident": ("risk", "keep", "evidence", "veto", "splits", "check", "seed"),
}
"""Learner → the options that only this one has."""


@Parameter(name="*")
@dataclass(kw_only=True)
class LearnerOptions:
    """How to learn."""

    gamma: Annotated[float, Parameter(help="Discount per step, in (0, 1].")]
    learner: Annotated[
        Literal["dprl", "confident"],
        Parameter(
            help="dprl suggests what enough episodes did without harm, and can be certified; "
            "confident suggests only what is surely better, and says how sure (labels only; it "
            "plans in a model, so the state must tell enough)."
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
            "0 for no bound."
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
            "that matters for what comes next. By default returns."
        ),
    ] = None
    cut: Annotated[
        Literal["drop", "bootstrap", "terminal"] | None,
        Parameter(help="How to treat cut episodes; by default as ended, with a warning."),
    ] = None

    def make(
        self, n_min: float | None, radius: float | None, *, seed: int | None, own_seed: bool
    ) -> Any:
        """The learner that is asked for, with its settings.

        Args:
            n_min: Episodes an action needs; None: not given.
            radius: Largest distance of similar states; None: states are labels.
            seed: Seed of the divisions and of the check; None: not given.
            own_seed: Whether --seed is an option of the learner, and not of the command.
        """
        import dprl

        given = {**vars(self), "radius": radius, "seed": seed if own_seed else None}
        self._refuse_others(given)
        shared: dict[str, Any] = {"gamma": self.gamma, "cut": self.cut}
        if self.learner == "confident":
            settings = {**given, "n_min": n_min, "seed": seed}
            return dprl.Confident(**shared, **_given(settings, (*OWN["confident"], "n_min")))
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
        """Refuse options that only another learner has."""
        for learner, names in OWN.items():
            others = [f"--{name}" for name in names if given[name] is not None]
            if learner == self.learner or not others:
                continue
            what = f"{', '.join(others)}: not for the learner {self.learner}, only for {learner}."
            if "--radius" in others:
                what += " A radius is for features; the learner confident takes labels."
            it = "it" if len(others) == 1 else "them"
            raise ParameterError(
                what,
                f"{others[0]} {given[others[0].removeprefix('--')]}",
                f"Leave {it} out (in {SETTINGS} too), or say --learner {learner}.",
            )

    def check_states(self, data: Any, radius: Any) -> None:
        """Refuse features without a radius, and features where the learner takes labels only."""
        if data.features is None or radius is not None:
            return
        count = f"states are {len(data.feature_names)} features"
        first = repr(data.feature_names[0])
        if self.learner == "confident":
            raise ParameterError(
                f"{count}, and the learner confident takes labels.",
                first,
                "Name one column of labels with --state, or say --learner dprl and a --radius.",
            )
        raise ParameterError(
            f"{count}, and no radius is given.",
            do="Say how far similar states may be, after scaling: --radius 1.5",
        )


def _given(settings: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The settings of these names that were given."""
    return {name: settings[name] for name in names if settings[name] is not None}
