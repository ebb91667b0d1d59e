"""CallablePolicy: anything that predicts an action, made into a policy that can be evaluated.

A scikit-learn classifier, a d3rlpy algorithm, a stable-baselines3 model, or a plain function. It is
asked for its actions and for nothing else; where it answers None or DEFER, usual practice goes on.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np

from dprl._core.arrays import Ints
from dprl._core.words import either, worded
from dprl.errors import PolicyError
from dprl.logs.log import DEFERRAL, Facts, Label, Log
from dprl.policies.base import Unrecorded, origin_of_training
from dprl.policies.protocol import DEFER, Decisions, Terms, pi_of
from dprl.policies.spaces import FeatureSpace, OpenSpace

AGAIN = 64
"""States asked about twice."""


@dataclass(frozen=True, eq=False, repr=False)
class CallablePolicy(Unrecorded):
    """A policy that asks `model.predict(states)`, or `model(states)`; it lives in memory only.

    Where states are features the model gets float64 (k, d) (a dataframe with their names, in its
    own order, if it was fitted to one); where they are labels, an array of k labels. Where
    `predict` returns a pair, as stable-baselines3 does, the first is taken; where it can be told to
    be `deterministic`, it is. A model that answers the same states differently is refused: what it
    is worth is not what one draw of it is worth.

    Attributes:
        model: What predicts.
        actions: The action labels, in the order of its codes.
        answers: What it predicts: "labels" out of `actions`, or "codes" 0, 1, … into them.
        feature_names: The d features a state needs, in the model's order; empty where states are
            labels. By default those of the dataframe it was fitted to, where it remembers them.
        parameters: What is worth knowing about it (`gamma`, say, which `evaluate` then uses).
        provenance: Where it comes from; with `trained_on`, the digests and sizes of these logs and
            a sample of their groups.

    Args:
        trained_on: The log, or a list of all logs, by which the model was fitted or chosen; []
            where no log was used, as for a protocol that people wrote. `dprl.evaluate` then
            refuses these logs and others that share groups with them. Default None: not known,
            and `dprl.evaluate` says so.

    Raises:
        PolicyError: The model cannot be asked, `answers` is neither of the two, the features are
            not the model's, the actions are none or repeat a label, or `trained_on` is no log.

    Example:
        >>> import dprl
        >>> rule = lambda states: ["drug" if s == "ill" else None for s in states]
        >>> policy = dprl.CallablePolicy(rule, actions=["drug", "wait"])
        >>> policy.act(["ill", "well"])
        ['drug', DEFER]
    """

    certificate: ClassVar[None] = None
    knows_practice: ClassVar[bool] = False
    may_change: ClassVar[bool] = False

    model: Any
    actions: Sequence[Label]
    answers: Literal["labels", "codes"] = "labels"
    feature_names: Sequence[str] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    trained_on: InitVar[Log | Sequence[Log] | None] = None

    def __post_init__(self, trained_on: Log | Sequence[Log] | None) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        if not callable(getattr(self.model, "predict", self.model)):
            raise PolicyError(
                f"a {type(self.model).__name__} cannot be asked: it has no predict, and is no "
                "function."
            )
        if self.answers not in ("labels", "codes"):
            raise PolicyError(f"answers must be 'labels' or 'codes'; got {self.answers!r}.")
        model_names = getattr(self.model, "feature_names_in_", ())
        names = tuple(self.feature_names) or tuple(map(str, model_names))
        if len(model_names) and sorted(names) != sorted(map(str, model_names)):
            raise PolicyError(
                "the model was fitted to other features than it is said to take.",
                f"{', '.join(map(str, model_names[:4]))} and not {', '.join(names[:4])}",
            )
        actions = tuple(self.actions)
        if not actions or len(set(actions)) != len(actions) or DEFERRAL in actions:
            raise PolicyError(
                f"actions must be different labels, at least one, none of them {DEFERRAL!r}; "
                f"got {actions!r}.",
                do=worded(
                    "Pass those of the log: {choice}.",
                    choice=either("actions=log.actions", "--actions log.actions"),
                ),
            )
        put("feature_names", tuple(map(str, model_names)) if len(model_names) else names)
        put("actions", actions)
        put("parameters", Facts({"learner": type(self.model).__name__, **self.parameters}))
        origin = {} if trained_on is None else origin_of_training(trained_on)
        put("provenance", Facts({**origin, **self.provenance}))

    @functools.cached_property
    def space(self) -> FeatureSpace | OpenSpace:
        """The features the model takes; where it names none, whatever a log holds."""
        names, even = tuple(self.feature_names), np.ones(len(self.feature_names))
        return FeatureSpace(names, even, even) if names else OpenSpace()

    # -- what it answers ---------------------------------------------------------------------

    def at(self, states: Any) -> Decisions:
        """What the model predicts at these states; a single state is a list of one.

        Args:
            states: k labels, or (k, d) features as the model takes them; or a single state.

        Returns:
            The k decisions; they carry no evidence.

        Raises:
            PolicyError: The model's answers are no actions, or differ when it is asked again.

        Example:
            >>> import dprl
            >>> rule = lambda states: ["drug" if s == "ill" else None for s in states]
            >>> policy = dprl.CallablePolicy(rule, actions=["drug", "wait"])
            >>> policy.at(["ill", "well"]).choice.tolist()
            [0, -1]
        """
        rows, _ = self.space.read(states)
        choice = self.choice(rows)
        pi = pi_of(choice, len(self.actions))
        return Decisions.without_evidence(
            range(len(choice)), tuple(self.actions), pi, Terms(), choice
        )

    def choice(self, states: Any) -> Ints:
        """The code of the action predicted for each state.

        Args:
            states: k labels, or (k, d) features as the model takes them.

        Returns:
            int64 (k,), a place in `actions`; -1 where the model answers None or DEFER.

        Raises:
            PolicyError: The model's answers are no actions, or differ when it is asked again.

        Example:
            >>> import dprl
            >>> rule = lambda states: ["drug" if s == "ill" else None for s in states]
            >>> policy = dprl.CallablePolicy(rule, actions=["drug", "wait"])
            >>> policy.choice(["ill", "well"]).tolist()
            [0, -1]
        """
        asked = self._asked(states)
        codes = self._codes(asked)
        if (self._codes(asked[:AGAIN]) != codes[:AGAIN]).any():
            raise PolicyError(
                "the model answers the same states differently each time.",
                do="Wrap it in a function that gives its most likely action.",
            )
        return codes

    def _codes(self, asked: Any) -> Ints:
        """The codes of its answers."""
        predicted = self._predict(asked)
        if isinstance(predicted, tuple):  # stable-baselines3: (actions, hidden state)
            predicted = predicted[0]
        predicted = predicted if isinstance(predicted, list) else np.asarray(predicted)
        if np.ndim(predicted) != 1 and np.size(predicted) == len(asked):
            predicted = np.reshape(np.asarray(predicted), len(asked))
        if np.ndim(predicted) != 1 or len(predicted) != len(asked):
            raise PolicyError(
                f"the model predicted {np.shape(predicted)} for {len(asked):,} states.",
                do="It must name one action a state.",
            )
        column = predicted.tolist() if isinstance(predicted, np.ndarray) else predicted
        return np.array([self._code(answer) for answer in column], np.int64)

    @functools.cached_property
    def _predict(self) -> Callable[[Any], Any]:
        """What is asked; stable-baselines3 would explore unless told not to."""
        predict = getattr(self.model, "predict", self.model)
        try:
            can_be_told = "deterministic" in inspect.signature(predict).parameters
        except (TypeError, ValueError):  # what is written in C may not say
            can_be_told = False
        return functools.partial(predict, deterministic=True) if can_be_told else predict

    def _asked(self, states: Any) -> Any:
        """The states as the model takes them."""
        if not self.feature_names:
            return np.asarray(states)
        x, _ = self.space.read(states)
        if not hasattr(self.model, "feature_names_in_"):
            return x
        import narwhals as nw

        columns = dict(zip(self.feature_names, x.T, strict=True))
        return nw.from_dict(columns, backend="pandas").to_native()

    def _code(self, answer: Any) -> int:
        if answer is None or answer is DEFER:
            return -1
        if isinstance(answer, np.generic):
            answer = answer.item()
        if self.answers == "labels":
            # 1 == 1.0 == True: a label must also be of the labels' type
            if any(type(answer) is type(label) for label in self.actions):
                try:
                    return self.actions.index(answer)
                except ValueError:
                    pass
            self._refuse(answer)
        whole = isinstance(answer, int) and not isinstance(answer, bool)
        if not whole or not 0 <= answer < len(self.actions):
            self._refuse(answer)
        return int(answer)

    def _refuse(self, answer: Any) -> NoReturn:
        labels = f"labels are {', '.join(map(repr, self.actions[:4]))}"
        if self.answers == "labels":
            raise PolicyError(
                f"the model predicted {answer!r}, which is no action.",
                labels,
                "Pass answers='codes' if it predicts places in that list.",
            )
        raise PolicyError(
            f"the model predicted {answer!r}, which is no code from 0 to {len(self.actions) - 1}.",
            labels,
            "Pass answers='labels' if it predicts them.",
        )

    def save(self, path: str | os.PathLike[str]) -> NoReturn:
        """Refused: a policy file holds no code, and the model is code.

        Args:
            path: Has no effect.

        Returns:
            Nothing: it always raises.

        Raises:
            PolicyError: Always.

        Example:
            >>> import dprl
            >>> rule = lambda states: ["drug" if s == "ill" else None for s in states]
            >>> policy = dprl.CallablePolicy(rule, actions=["drug", "wait"])
            >>> policy.save("rule.policy")  # doctest: +IGNORE_EXCEPTION_DETAIL
            Traceback (most recent call last):
            dprl.errors.PolicyError: ...
        """
        raise PolicyError(
            f"a policy around a {self.parameters['learner']} lives in memory only.",
            do="Keep the model in its own way, and wrap it again: dprl.CallablePolicy(model, ...).",
        )

    def digest(self) -> NoReturn:
        """Refused, as saving is.

        Returns:
            Nothing: it always raises.

        Raises:
            PolicyError: Always.

        Example:
            >>> import dprl
            >>> rule = lambda states: ["drug" if s == "ill" else None for s in states]
            >>> policy = dprl.CallablePolicy(rule, actions=["drug", "wait"])
            >>> policy.digest()  # doctest: +IGNORE_EXCEPTION_DETAIL
            Traceback (most recent call last):
            dprl.errors.PolicyError: ...
        """
        self.save("")

    def _repr_html_(self) -> str:
        from dprl._core.table import in_notebook

        return in_notebook(repr(self).strip("<>"))

    def __repr__(self) -> str:
        return f"<CallablePolicy: {self.parameters['learner']} · {len(self.actions)} actions>"
