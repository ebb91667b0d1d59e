r"""The gate over numeric features: decide per cell.

One half of the groups proposes and the other certifies, without a swap, since the cells themselves
come from the half that proposes: its core points (enough trajectories with one action within the
radius) are covered by a greedy net; a state belongs to the nearest centre within the radius, and
farther from every centre the policy defers. Cells are then treated as labels are.

The claim needs E x and E y, the values of taking the suggestion and of doing otherwise, to be the
same everywhere in a cell. (E y also depends on *how often each other action is taken*: each of them
may be worth the same everywhere while their mix is not.) How nearly that must hold, and what the
data say about it:

* eps* = min over suggestions of (lower bound of E x - E y, less what a margin asks for) / 2. If E x
  and E y differ within a cell by less than that, every suggestion still improves everywhere in its
  cell. The gain is certified for eps = 0 only.
* The refuted contrast: each proposed cell is cut in two at the median of its widest coordinate
  (both from the half that proposes), and on the other half the two sides are compared, x with x and
  y with y. A cell is not issued if the data prove a difference within it that is too large for its
  own bound. Among issued cells, the largest difference that the data prove (at a level δ of its
  own, for all proposed cells together) refutes any smaller eps.
* Sensitivity: the same gate with half and with twice the radius, each at its own δ. These rows are
  for reading only; the radius must not be chosen by them.
"""

from __future__ import annotations

# Apart: one kind of gate; the others are beside it.
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.words import say, sentences
from dprl.certificate.assumptions import LogRecord, of_states
from dprl.certificate.evalues import binned, differences
from dprl.certificate.gain import certified_gain, nats_of_sets
from dprl.certificate.pair_tests import (
    REACH,
    best_low,
    by_returns,
    compare,
    issue,
    most_met,
    propose,
    some_of,
)
from dprl.certificate.settings import GateSettings
from dprl.errors import LogError
from dprl.evidence.counts import Counts, availability, count_source, evidence
from dprl.evidence.decision_points import allowed
from dprl.evidence.neighbors.engine import Engine, Points, core_points, greedy_net, nearest_centres
from dprl.evidence.neighbors.metric import FittedMetric
from dprl.evidence.propensity import RecordedPropensity
from dprl.learners.continuous import DPRLContinuous, feature_quantiles, feature_ranges
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.censoring import treat_cut
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Log
from dprl.logs.returns import first_visits, returns
from dprl.logs.source import Chunk
from dprl.policies.base import provenance_of
from dprl.policies.cells import CellPolicy, centres_of
from dprl.policies.certificate import SPLIT
from dprl.policies.table import TablePolicy


@dataclass(frozen=True, eq=False)
class Cells:
    """The centres of the cells, in the coordinates of a metric.

    Attributes:
        metric: The metric, fitted to the half that proposes.
        z: float64 (M, d'), the centres in the metric's coordinates.
        radius: Largest distance from a centre to a state of its cell, in the metric's units.
    """

    metric: FittedMetric
    z: Floats
    radius: float

    def labelled(self, log: Log) -> Log:
        """The log with cells as states: 0..M-1, and M for a state in no cell."""
        M = len(self.z)
        x = self.metric.transform(plain_features(log))
        cell = np.full(log.n_steps, -1, np.int64)
        if M:
            cell = nearest_centres(centres_of(self.z), x, self.radius)
        return replace(
            log, features=None, feature_names=(), states=tuple(range(M + 1)),
            state=np.where(cell < 0, M, cell),
        )  # fmt: skip


def gate_cells(
    learner: DPRLContinuous, log: Log, settings: GateSettings, record: LogRecord, note: str
) -> CellPolicy:
    """The certified policy of a learner over features.

    Args:
        learner: The learner whose settings are used.
        log: The log, with numeric features.
        settings: The settings of the gate.
        record: What is known of the log.
        note: A sentence on how the groups were split, for the certificate.

    Returns:
        A policy over cells, with its certificate.
    """
    plain_features(log)  # refused before any half of it is looked at
    sides = settings.sides(log)
    policy = _gated(learner, log, settings, record, sides, note)
    sensitivity = []
    for radius in (learner.radius / 2, learner.radius * 2):
        other = _gated(replace(learner, radius=radius), log, settings, record, sides, note)
        if other.certificate is not None:
            certificate = other.certificate
            sensitivity.append({
                "radius": float(radius), "suggestions": len(certificate.rows),
                "gain": certificate.gain,
            })  # fmt: skip
    if policy.certificate is not None:
        cells = {**policy.certificate.cells, "sensitivity": sensitivity}
        policy = replace(policy, certificate=replace(policy.certificate, cells=cells))
    return policy


def _gated(
    learner: DPRLContinuous,
    log: Log,
    settings: GateSettings,
    record: LogRecord,
    sides: Bools,
    note: str,
) -> CellPolicy:
    gamma, cut = learner.gamma, learner.cut
    treated = treat_cut(log, gamma, cut).gathered()
    halves = some_of(log, sides, cut, gamma), some_of(log, ~sides, cut, gamma)
    if not all(half.n_episodes for half in halves):
        raise LogError(
            "no episode is left on one side of the split.", do="Read more, or drop fewer."
        )
    cells = _cells(learner, halves[0])
    labelled, one, other = (cells.labelled(part) for part in (treated, *halves))
    whole, M = Chunk(labelled), len(cells.z)
    inside = np.arange(M + 1)[:, None] < M
    record = replace(record, chances=RecordedPropensity.of(labelled))

    wanted = propose(evidence(one, gamma), learner, availability(one)) & inside
    tests = by_returns(
        other, evidence(other, gamma), wanted, gamma, settings, max(1, int(wanted.sum())), 1.0, one,
        record.chances,
    )  # fmt: skip
    refuted = _refuted(cells, halves, (one, other), wanted, gamma, settings)
    with np.errstate(divide="ignore", invalid="ignore"):
        bears = (tests.low - settings.margin / (1 - tests.p_high)) / 2
    too_large = tests.pairs & (refuted > 0) & (refuted >= bears)
    tests = replace(tests, pairs=tests.pairs & ~too_large)

    counted = count_source(whole, Counts(gamma))
    available = availability(cells.labelled(log))
    pairs = allowed(counted.evidence, learner.n_min, contrast=learner.contrast, available=available)
    pairs &= tests.pairs
    over_cells = DPRLDiscrete(
        n_min=learner.n_min, gamma=gamma, contrast=learner.contrast, plan=learner.plan
    )
    choice, planned = over_cells.choose(whole, counted, pairs)
    inner = TablePolicy.of(
        counted.evidence,
        choice=choice,
        allowed=pairs,
        planned=planned,
        steps=counted.steps,
        parameters=learner.settings(),
        provenance=provenance_of(
            log,
            treated,
            notes=list(cells.metric.notes),
            ranges=feature_ranges(treated),
            quantiles=feature_quantiles(treated),
        ),
    )
    speaks = np.flatnonzero(choice >= 0)
    nats = nats_of_sets(tests.tested, min(len(speaks), tests.tested), 1, REACH * settings.delta)
    facts: dict[str, Any] = {"radius": float(learner.radius), "centres": M}
    if len(speaks):
        facts["eps_star"] = float(bears[speaks, choice[speaks]].min())
        facts["refuted"] = float(refuted[speaks, choice[speaks]].max())
    notes, shows = [note], say("prove") if settings.grade == "proved" else say("show")
    if too_large.any():
        notes.append(
            sentences(
                say(
                    "{sum:,} more passed, but the data {shows} too much difference within their "
                    "cells: not issued.",
                    sum=int(too_large.sum()),
                    shows=shows,
                ),
                say("A smaller radius may help."),
            )
        )
    return issue(
        _cell_policy(inner, cells, log),
        [tests],
        learner,
        record,
        settings,
        mode=SPLIT.name,
        groups=len(treated.groups),
        gain=certified_gain(other, choice, best_low([tests], choice), gamma, nats),
        assumptions=of_states(record, cut, settings, cells=True),
        most=lambda: most_met(whole, choice),
        notes=notes,
        cells=facts,
    )


def _cells(learner: DPRLContinuous, log: Log) -> Cells:
    """The cells: a greedy net over the core points of the half that proposes."""
    metric = learner.metric.fit(log)
    points = Points.of(log, metric, learner.gamma)
    engine = Engine.build(points, log.n_actions)
    core = core_points(engine, learner.radius, max(1.0, np.ceil(learner.n_min / 2)))
    centre = greedy_net(engine, learner.radius, core)
    return Cells(metric, points.z[np.unique(centre[centre >= 0])], float(learner.radius))


def _cell_policy(inner: TablePolicy, cells: Cells, log: Log) -> CellPolicy:
    """The policy over the cells 0..M-1, from one that also has the state M ("in no cell")."""
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
    wanted: Bools,
    gamma: float,
    settings: GateSettings,
) -> Floats:
    """float64 (M + 1, A): the largest difference, of x or of y, proved within a cell; or 0."""
    z = [cells.metric.transform(plain_features(half)) for half in halves]
    rows = [np.flatnonzero(first_visits(log)) for log in labelled]
    cell = [log.codes()[r] for log, r in zip(labelled, rows, strict=True)]
    G, action = returns(labelled[1], gamma)[rows[1]], labelled[1].action[rows[1]]
    result = np.zeros(wanted.shape)
    at = np.argwhere(wanted)
    pair, values, who = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0, np.int64)]
    group = np.repeat(labelled[1].group, labelled[1].lengths)[rows[1]]
    for i, (c, a) in enumerate(at):
        proposing = z[0][rows[0][cell[0] == c]]
        certifying = cell[1] == c
        if len(proposing) < 2 or not certifying.any():
            continue
        axis = int(proposing.var(axis=0).argmax())
        coordinate, cut = z[1][rows[1][certifying], axis], np.median(proposing[:, axis])
        side = coordinate > cut if (proposing[:, axis] > cut).any() else coordinate >= cut
        otherwise = action[certifying] != a
        pair.append(2 * (2 * i + otherwise) + side)  # state 2i: x, 2i + 1: y; "action": the side
        values.append(G[certifying])
        who.append(group[certifying].astype(np.int64))
    if settings.grade == "large-sample":
        result[at[:, 0], at[:, 1]] = _shown(
            np.concatenate(pair),
            np.concatenate(values),
            np.concatenate(who),
            len(at),
            settings.delta,
        )
        return result
    assert settings.value_range is not None  # a proof has a range
    counts = binned(
        np.concatenate(pair), np.concatenate(values), settings.value_range, gamma,
        tuple(range(2 * len(at))), (0, 1), len(halves[1].groups),
    )  # fmt: skip
    if len(counts.keys):
        each = settings.delta / (4 * len(at))
        low = differences(counts, np.arange(4 * len(at)), each).low.reshape(-1, 4)
        result[at[:, 0], at[:, 1]] = np.maximum(low.max(axis=1), 0.0)
    return result


def _shown(side: Ints, value: Floats, group: Ints, cells: int, level: float) -> Floats:
    """float64 (cells,): the largest difference within each cell that is shown for large samples.

    `side` (n,) is 4·cell + 2·(y, not x) + half of the cell; both signs of both differences are
    tested, all at once.
    """
    if not cells:
        return np.zeros(0)
    which, half = side // 2, side % 2 == 1
    both = np.concatenate((which, which + 2 * cells))
    result = compare(
        both, np.concatenate((half, ~half)), np.tile(value, 2), np.tile(group, 2), 4 * cells,
        level=level, ends=level,
    )  # fmt: skip
    return np.asarray(np.maximum(result.low.reshape(2, cells, 2).max(axis=(0, 2)), 0.0))
