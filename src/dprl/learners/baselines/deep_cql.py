r"""Conservative Q-learning with a small network, for states of numeric features.

Kumar, Zhou, Tucker, Levine: *Conservative Q-Learning for Offline Reinforcement Learning*, NeurIPS
2020, CQL(H) of their Eq. 4 with discrete actions. Over batches of logged steps, Adam minimises

    mean of (Q(s,a) - y)²/2 + α ( log ∑_a' exp Q(s,a') - Q(s,a) ),   y = r + γ max_a' Q⁻(s',a')

with y = r at the end of an episode and Q⁻ a copy of Q renewed every 100 steps. Q has one hidden
layer of 16 rectified units on the coordinates of the metric less their mean. π(s) = argmax Q, the
lowest of equals. `dprl.learners.baselines.CQL` is the tabular fixed point of the same loss.

Departures from the paper: one small network (that is what DPRL's paper compares with), one Q
instead of two.

Everything is float64 on one thread of the CPU, and all that is random (the first weights, the
batches) comes from numpy: a seed gives the same weights again. torch does the derivatives only; the
policy is four arrays and answers without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, check_number
from dprl._core.optional import needed
from dprl.errors import PlanError
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.baselines.base import Facts, FeatureBaseline, Parts, Transitions
from dprl.policies.stochastic import NetworkPolicy

HIDDEN = 16
RENEWED = 100
"""The number of steps after which Q is copied into its target again."""


@dataclass(frozen=True, kw_only=True)
class DeepCQL(FeatureBaseline[NetworkPolicy]):
    """CQL with one hidden layer of 16 units; needs torch to fit, not to act.

    Attributes:
        alpha: Weight of the conservative term, at least 0.
        gamma: Discount in (0, 1].
        metric: How features are scaled for the network. Default `Metric()`.
        steps: The number of gradient steps. Default 10,000.
        batch: The number of logged steps in each gradient step. Default 256.
        learning_rate: The learning rate of Adam, above 0. Default 0.001.
        seed: Seed of the first weights and of the batches. Default 0.
        cut: What to do with cut episodes: "drop" or "terminal". Default None: as "terminal", with a
            CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import DeepCQL
        >>> from dprl.envs import PointMass
        >>> log = PointMass().sample(30, seed=0)
        >>> learner = DeepCQL(alpha=1.0, gamma=0.97, steps=10, cut="drop")
        >>> policy = learner.fit(log)  # doctest: +SKIP
        >>> policy.probabilities([[0.3, 0.5]]).shape  # doctest: +SKIP
        (1, 4)
    """

    alpha: float
    gamma: float
    metric: Metric = field(default_factory=Metric)
    steps: int = 10_000
    batch: int = 256
    learning_rate: float = 1e-3
    seed: int = 0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha, "[0, infinity)")
        check_number("learning_rate", self.learning_rate, "(0, infinity)")

    def learned(self, data: Transitions) -> tuple[type[NetworkPolicy], Parts, Facts]:
        """The policy of the trained network.

        Args:
            data: The steps of a log.

        Returns:
            The kind of policy, the weights, and the last loss.

        Example:
            >>> from dprl.baselines import DeepCQL
            >>> from dprl.envs import PointMass
            >>> log = PointMass().sample(30, seed=0)
            >>> learner = DeepCQL(alpha=1.0, gamma=0.97, steps=10, cut="drop")
            >>> policy = learner.fit(log)  # doctest: +SKIP
            >>> policy.actions  # doctest: +SKIP
            ('up', 'right', 'down', 'left')
        """
        torch = needed("torch", "DeepCQL", "dprl[deep]")
        with _one_thread(torch):
            weights, loss = self._train(torch, data)
        return NetworkPolicy, {"centre": data.centre, **weights}, {"last_loss": loss}

    def _train(self, torch: Any, data: Transitions) -> tuple[dict[str, Any], float]:
        """The weights after all steps, and the loss of the last one."""
        rng = np.random.default_rng(self.seed)
        z = torch.tensor(data.points.z - data.centre)
        action = torch.tensor(data.points.action.astype(np.int64))
        reward, last = torch.tensor(data.reward), torch.tensor(data.last)
        Q = [torch.tensor(w, requires_grad=True) for w in _first_weights(rng, data)]
        target = [w.detach().clone() for w in Q]
        adam = torch.optim.Adam(Q, lr=float(self.learning_rate))
        loss = torch.zeros(())
        for step in range(self.steps):
            i = torch.tensor(rng.integers(len(data), size=self.batch))
            if step % RENEWED == 0:
                target = [w.detach().clone() for w in Q]
            ahead = _network(torch, target, z[torch.clamp(i + 1, max=len(data) - 1)])
            best = torch.where(last[i], 0.0, ahead.max(dim=1).values)
            y = reward[i] + self.gamma * best
            q = _network(torch, Q, z[i])
            taken = q.gather(1, action[i, None])[:, 0]
            fit = ((taken - y) ** 2).mean() / 2
            loss = fit + self.alpha * (torch.logsumexp(q, dim=1) - taken).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
        weights = {
            name: w.detach().numpy().copy()
            for name, w in zip(("W1", "b1", "W2", "b2"), Q, strict=True)
        }
        if not all(np.isfinite(w).all() for w in weights.values()):
            raise PlanError(
                f"the network's weights ran off to infinity in {self.steps:,} steps.",
                do="Use a smaller learning_rate or gamma, or rewards of a smaller scale.",
            )
        return weights, float(loss.detach())


def _first_weights(rng: np.random.Generator, data: Transitions) -> list[NDArray[np.float64]]:
    """W1, b1, W2, b2, uniform within 1/√(inputs)."""
    d, A = data.points.z.shape[1], data.n_actions
    shapes = [((d, HIDDEN), d), ((HIDDEN,), d), ((HIDDEN, A), HIDDEN), ((A,), HIDDEN)]
    return [rng.uniform(-1, 1, shape) / math.sqrt(inputs) for shape, inputs in shapes]


def _network(torch: Any, weights: list[Any], z: Any) -> Any:
    """Q (n, A) at coordinates z (n, d')."""
    W1, b1, W2, b2 = weights
    return torch.relu(z @ W1 + b1) @ W2 + b2


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """One thread of torch: sums are added up in one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
