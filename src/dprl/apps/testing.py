"""Whether a learner of your own keeps the rules that dprl's tools rely on, said in words.

`check_learner` asks a learner to learn from small logs of problems whose truth is known, and names
every rule that it breaks, as scikit-learn's `check_estimator` does for its estimators.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import numpy as np

from dprl._core.arrays import Floats
from dprl.envs import PointMass, random_mdp, risky_arms
from dprl.errors import DprlError, ParameterError
from dprl.logs.log import Log

__all__ = ["check_learner"]


@dataclass(frozen=True, eq=False)
class _Case:
    """A learner with a log, and what it learned."""

    learner: Any
    log: Log
    policy: Any

    def pi(self, policy: Any, log: Log | None = None) -> Floats:
        """π (k, A) of a policy, NaN where it defers, at the states of a log."""
        log = log or self.log
        states = log.states if log.state is not None else log.features
        return np.asarray(policy.at(states).pi, np.float64)


Rule = Callable[[_Case], Iterator[str]]


def _answers(case: _Case) -> Iterator[str]:
    unknown = set(case.policy.actions) - set(case.log.actions)
    if unknown:
        yield f"its policy names actions that the log does not have: {sorted(unknown)!r}."
    pi = case.pi(case.policy)
    acts = ~np.isnan(pi).all(axis=1)
    if (pi[acts] < 0).any() or not np.allclose(pi[acts].sum(axis=1), 1, atol=1e-6):
        yield "where its policy acts, the probabilities of actions are no distribution."


def _same(one: Floats, other: Floats) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, atol=1e-9, equal_nan=True))


def _repeats(case: _Case) -> Iterator[str]:
    if not _same(case.pi(case.policy), case.pi(case.learner.fit(case.log))):
        yield (
            "two fits to one log answer differently: make the seed of whatever is random a setting."
        )


def _order(case: _Case) -> Iterator[str]:
    last_first = case.log.take(np.arange(case.log.n_episodes)[::-1])
    if not _same(case.pi(case.policy), case.pi(case.learner.fit(last_first))):
        yield "the order of the episodes in the log changes its answers."


def _labels(case: _Case) -> Iterator[str]:
    if case.log.state is None:
        return
    called = replace(case.log, states=tuple(f"x {label}" for label in case.log.states))
    if not _same(case.pi(case.policy), case.pi(case.learner.fit(called), called)):
        yield "what states are called changes its answers, although their order is the same."


def _unseen(case: _Case) -> Iterator[str]:
    pi = case.pi(case.learner.fit(case.log.take([0])))
    acts = ~np.isnan(pi).all(axis=1)
    if not np.allclose(pi[acts].sum(axis=1), 1, atol=1e-6):
        yield "fitted to one episode, it has no distribution at states that it has not seen."


def _untouched(case: _Case) -> Iterator[str]:
    before = case.log.digest()
    case.learner.fit(case.log)
    if replace(case.log).digest() != before:
        yield "fit changes the log."


def _settings(case: _Case) -> Iterator[str]:
    own = case.learner
    if not (is_dataclass(own) or hasattr(own, "get_params") or hasattr(own, "with_settings")):
        yield (
            "its settings cannot be read, so it cannot be swept or cloned: make it a dataclass, or "
            "give it get_params and set_params."
        )
    elif hasattr(own, "get_params"):
        other = type(own)(**own.get_params())
        if not _same(case.pi(case.policy), case.pi(other.fit(case.log))):
            yield "another one made of its get_params() answers differently."


RULES: dict[str, Rule] = {
    "answers": _answers, "repeats": _repeats, "order": _order, "labels": _labels,
    "unseen": _unseen, "untouched": _untouched, "settings": _settings,
}  # fmt: skip
"""Rule → what a learner breaks of it, in sentences."""


def check_learner(learner: Any, *, but: tuple[str, ...] = ()) -> None:
    """Check that a learner of your own keeps the rules that dprl's tools rely on.

    It learns from small logs: of labelled states, or of features where its class says `TAKES =
    "features"`. The rules: "answers" (fit returns a policy whose answers are distributions over the
    log's actions), "repeats" (the same log, the same answers), "order" (of episodes) and "labels"
    (of states) change nothing, "unseen" (states without rows have an answer), "untouched" (the
    log), "settings" (can be read and copied).

    Args:
        learner: The learner: an object with `fit(log)`.
        but: Names of rules that are not checked. Default none.

    Raises:
        ParameterError: It breaks rules; every one is named.

    Example:
        >>> import dprl
        >>> dprl.testing.check_learner(dprl.baselines.LCB(gamma=0.95))
    """
    name = type(learner).__name__
    if isinstance(learner, type):
        raise ParameterError(f"{learner.__name__} is a class.", do="Pass one that is made of it.")
    if not callable(getattr(learner, "fit", None)):
        raise ParameterError(f"{name} is no learner: it has no fit(log).")
    features = getattr(learner, "TAKES", "labels") == "features"
    broken: list[str] = []
    logs = [PointMass().sample(20, seed=0)] if features else [
        random_mdp(0).sample(40, seed=0), risky_arms().sample(300, seed=1)
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for log in logs:
            try:
                policy = learner.fit(log)
            except Exception as error:  # whatever somebody's learner raises
                broken.append(f"fit: it fails on a log of {log!r} ({error!r}).")
                continue
            if not hasattr(policy, "at") or not hasattr(policy, "actions"):
                broken.append(f"answers: fit(log) returns a {type(policy).__name__}, no policy.")
                continue
            case = _Case(learner, log, policy)
            for rule in (own for own in RULES if own not in but):
                try:
                    broken += [f"{rule}: {sentence}" for sentence in RULES[rule](case)]
                except (DprlError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                    broken.append(f"{rule}: it fails ({error!r}).")
    broken = list(dict.fromkeys(broken))
    if broken:
        raise ParameterError(
            f"{name} breaks rules of a learner. " + " · ".join(broken),
            do="Mend them, or leave them out by name: but=('order',), say.",
        )
