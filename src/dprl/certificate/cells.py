r"""The gate over numeric features: decide per cell.

One half of the groups proposes and the other certifies, without a swap, since the cells themselves
come from the half that proposes: its core points (enough trajectories with one action within the
radius) are covered by a greedy net; a state belongs to the nearest centre within the radius, and
farther from every centre the policy defers. Over cells everything is as over labels.

The claim is about cells: that a suggestion improves on usual practice *in the mean of its cell*. It
is about every state of the cell if values of an action do not differ within it. How nearly that
must hold, and what the data say of it:

* eps* = min over suggestions of (lower bound of E x - E y) / 2. If values of an action within a
  cell differ by less than that, every suggestion still improves everywhere in its cell.
* The refuted contrast: each certified cell is cut in two at the median of its widest coordinate
  (both from the half that proposes), and on the other half the two sides are compared, same cell,
  same action. The largest difference proved, at level δ for all of them, refutes any smaller eps.
* Sensitivity: the same at half and at twice the radius.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.cell_policy import CellPolicy, centres_of
from dprl.certificate.evalue import differences
from dprl.certificate.histograms import binned, first_visits
from dprl.certificate.proof import (
    REACH,
    Asked,
    Proven,
    best_low,
    certify,
    finish,
    half_of,
    propose,
)
from dprl.certificate.reach import certified_gain, nats_of_sets
from dprl.continuous import DPRLContinuous, feature_ranges
from dprl.cut import settle
from dprl.errors import LogError
from dprl.learn import DPRLDiscrete
from dprl.log import Log
from dprl.neighbors.engine import Engine
from dprl.neighbors.metric import FittedMetric
from dprl.neighbors.net import core_points, greedy_net, nearest_centres
from dprl.neighbors.points import Points
from dprl.points import allowed
from dprl.policy import Policy
from dprl.returns import returns
from dprl.stored import provenance_of
from dprl.tabular import availability, evidence, tally

__all__ = ["gate_cells"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cells:
    """Centres in the coordinates of a metric.

    Attributes:
        metric: Fitted to the half that proposes.
        z: float64 (M, d'), the centres.
        radius: How far a cell reaches.
    """

    metric: FittedMetric
    z: Floats
    radius: float

    def labelled(self, log: Log) -> Log:
        """The log with cells for states: 0..M-1, and M for everywhere else."""
        M = len(self.z)
        x = self.metric.transform(np.asarray(log.features))
        cell = np.full(log.n_steps, -1, np.int64)
        if M:
            cell = nearest_centres(centres_of(self.z), x, self.radius)
        return replace(
            log, features=None, feature_names=(), states=tuple(range(M + 1)),
            state=np.where(cell < 0, M, cell),
        )  # fmt: skip


def gate_cells(
    learner: DPRLContinuous, log: Log, asked: Asked, sides: NDArray[np.bool_]
) -> CellPolicy:
    """The certified part of a learner over features; sides (groups,): those that propose."""
    policy, _ = _gated(learner, log, asked, sides)
    sensitivity = []
    for radius in (learner.radius / 2, learner.radius * 2):
        other = _gated(replace(learner, radius=radius), log, asked, sides)[0].certificate
        if other is not None:
            sensitivity.append(
                {"radius": radius, "suggestions": len(other.rows), "gain": other.gain}
            )
    certificate = policy.certificate
    if certificate is not None:
        cells = {**certificate.cells, "sensitivity": sensitivity}
        policy = replace(policy, certificate=replace(certificate, cells=cells))
    return policy


def _gated(
    learner: DPRLContinuous, log: Log, asked: Asked, sides: NDArray[np.bool_]
) -> tuple[CellPolicy, Proven]:
    settled = settle(log, learner.gamma, learner.cut).gathered()
    halves = half_of(settled, log, sides, True), half_of(settled, log, sides, False)
    if not all(half.n_episodes for half in halves):
        raise LogError(
            "no episode is left on one side of the split.", do="Read more, or drop fewer."
        )
    cells = _cells(learner, halves[0])
    whole, one, other = (cells.labelled(part) for part in (settled, *halves))
    M, gamma = len(cells.z), learner.gamma
    inside = np.arange(M + 1)[:, None] < M
    available = availability(cells.labelled(log))

    wanted = propose(evidence(one, gamma), learner, available) & inside
    proof = certify(
        other, evidence(other, gamma), wanted, gamma, asked, max(1, int(wanted.sum())), 1.0
    )
    known, occurrences = tally(whole, gamma)
    pairs = allowed(known, learner.n_min, contrast=learner.contrast, available=available)
    pairs &= proof.pairs
    over_cells = DPRLDiscrete(
        n_min=learner.n_min, gamma=gamma, contrast=learner.contrast, plan=learner.plan
    )
    choice, planned = over_cells.choose(whole, known, occurrences, pairs)
    inner = Policy.of(
        known,
        choice=choice,
        allowed=pairs,
        planned=planned,
        steps=np.bincount(whole.codes(), minlength=M + 1),
        parameters=learner.settings(),
        provenance=provenance_of(
            log, settled, notes=list(cells.metric.notes), ranges=feature_ranges(settled)
        ),
    )
    policy = _cell_policy(inner, cells, log)
    issued = int((choice >= 0).sum())
    nats = nats_of_sets(proof.tested, min(issued, proof.tested), 1, REACH * asked.delta)
    lower = best_low([proof], choice)
    gain = certified_gain(other, choice, lower, gamma, nats)
    facts: dict[str, Any] = {"radius": float(learner.radius), "centres": M}
    if issued:
        facts["eps_star"] = float(lower[choice >= 0].min() / 2)
        facts["refuted"] = _refuted(cells, halves, (one, other), choice, gamma, asked)
    return finish(policy, [proof], learner, log, settled, asked, "split", gain, facts), proof


def _cells(learner: DPRLContinuous, log: Log) -> Cells:
    """A greedy net over the core points of the half that proposes."""
    metric = learner.metric.fit(log)
    points = Points.of(log, metric, learner.gamma)
    engine = Engine.build(points, log.n_actions)
    core = core_points(engine, learner.radius, max(1.0, np.ceil(learner.n_min / 2)))
    centre = greedy_net(engine, learner.radius, core)
    return Cells(metric, points.z[np.unique(centre[centre >= 0])], float(learner.radius))


def _cell_policy(inner: Policy, cells: Cells, log: Log) -> CellPolicy:
    """The policy over cells 0..M-1 of one that also has the state "elsewhere"."""
    M = len(cells.z)
    parts: dict[str, Any] = {}
    for field in fields(inner):
        value = getattr(inner, field.name)
        parts[field.name] = value[:M] if isinstance(value, np.ndarray) else value
    parts["states"] = tuple(range(M))
    return CellPolicy(
        **parts, feature_names=log.feature_names, scale=cells.metric.scale,
        weight=cells.metric.weight, z=cells.z,
    )  # fmt: skip


def _refuted(
    cells: Cells,
    halves: tuple[Log, Log],
    labelled: tuple[Log, Log],
    choice: NDArray[np.int32],
    gamma: float,
    asked: Asked,
) -> float:
    """The largest difference within a certified cell, same action, that the data prove; or 0."""
    z = [cells.metric.transform(np.asarray(half.features)) for half in halves]
    rows = [np.flatnonzero(first_visits(log)) for log in labelled]
    cell = [log.codes()[r] for log, r in zip(labelled, rows, strict=True)]
    G, action = returns(labelled[1], gamma)[rows[1]], labelled[1].action[rows[1]]
    issued = np.flatnonzero(choice >= 0)
    pair, values = [], []
    for i, c in enumerate(issued):
        there = z[0][rows[0][cell[0] == c]]
        here = (cell[1] == c) & (action == choice[c])
        if len(there) < 2 or not here.any():
            continue
        axis = int(there.var(axis=0).argmax())
        side = z[1][rows[1][here], axis] > np.median(there[:, axis])
        pair.append(2 * i + side)
        values.append(G[here])
    if not pair:
        return 0.0
    found = binned(
        np.concatenate(pair), np.concatenate(values), asked.value_range, gamma,
        tuple(range(len(issued))), (0, 1), len(halves[1].groups),
    )  # fmt: skip
    each = asked.delta / (2 * len(issued))
    return float(max(0.0, differences(found, np.arange(2 * len(issued)), each).low.max()))
