"""The coverage experiment: are certificates true, on three problems with known values?

Each problem is sampled many times. Three kinds of rows answer three questions:

* *pair*: a lower bound of E x - E y for a single pair of state and action, at level .05, where x is
  the return after the action and y the return after any other action. How often is the true
  difference above the bound, and how far? The bounds are the e-value, Chernoff (KL) and Hoeffding.
* *policy*: does a gated policy keep its claim (no harmful suggestion, gain not overstated; for a
  claim about the whole policy only the latter)? Proved and for large samples. The gate by all
  visits stands beside the gate by first visits alone. How often does a policy without
  gate make a harmful suggestion? What does the paper's Theorem 1 claim?
* *approximate*: does the bootstrap interval for the gain of a policy without gate contain the true
  gain, on held-out groups and (as a warning) on the log that the policy was learned from?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dprl._core import plot
from dprl._core.arrays import Floats
from dprl._core.table import Table
from dprl.certificate._gate import gate
from dprl.certificate.evalues import differences, histograms, hoeffding_difference, kl_difference
from dprl.certificate.gain import approximate_gain, certified_gain, estimate, nats_of_sets
from dprl.certificate.pair_tests import REACH, best_low, by_returns, propose, some_of
from dprl.certificate.settings import GateSettings
from dprl.envs.chain import dense_chain
from dprl.envs.forest import forest
from dprl.envs.gridworld import small_grid
from dprl.evidence.counts import Counts, count_source, evidence
from dprl.evidence.decision_points import allowed
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.censoring import treat_cut
from dprl.logs.log import Log
from dprl.logs.reading.tables import Row, Rows
from dprl.logs.source import as_source
from dprl.planning.finite_mdp import FiniteMDP
from dprl.policies.held_out import HeldOut
from dprl_studies.harness import Experiment, Setting, by, plain_page, table_of
from dprl_studies.paper.claims import clopper_pearson
from dprl_studies.paper.contest import VALUES, blocks, mdp_seed

PROBLEMS: Final = {"small grid": (small_grid, 500), "forest": (forest, 1_000),
                   "dense chain": (dense_chain, 2_000)}  # fmt: skip
DATASETS, N_MIN, DELTA, LEVEL, DRAWS, BOOTSTRAPPED = 400, 20, 0.05, 0.05, 200, 100
CUT: Final = "terminal"


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per problem and block of data sets; 400 data sets per problem, 5 if `quick`."""
    return [
        {**task, "problem": name}
        for name, (_, n) in PROBLEMS.items()
        for task in blocks({"n": n}, 5 if quick else DATASETS, seed)
    ]


def run(setting: Setting) -> list[Row]:
    """The rows of all three kinds for one block of data sets of one problem."""
    mdp = PROBLEMS[setting["problem"]][0]()
    V = mdp.state_values()
    Q = mdp.action_values(V)
    rows = []
    for dataset in range(setting["first"], setting["last"]):
        log = treat_cut(mdp.sample(setting["n"], seed=mdp_seed(setting, dataset)), mdp.gamma, CUT)
        answers = [*_pairs(mdp, log, Q), *_policies(mdp, log, Q - V[:, None])]
        if dataset < BOOTSTRAPPED:
            answers += _approximate(mdp, log)
        rows += [{"problem": mdp.name, "n": setting["n"], "dataset": dataset, **row}
                 for row in answers]  # fmt: skip
    return rows


def _row(what: str, who: str, **facts: Any) -> Row:
    """A row of kind `what` for the method `who`; numbers that are not given are NaN.

    The numbers: `cases` (claims checked), `held` (claims that are true), `harmful` (whether there
    is a harmful suggestion), `issued` (suggestions), `claimed` and `truth` (lower bound or estimate
    of the gain, and true gain), `overstated` (whether a policy's claimed gain exceeds the truth).
    """
    names = ("cases", "held", "harmful", "issued", "claimed", "truth", "overstated")
    return {"what": what, "who": who, **{n: float(facts.get(n, np.nan)) for n in names}}


def _pairs(mdp: FiniteMDP, log: Log, Q: Floats) -> list[Row]:
    """Bounds for single pairs that at least 5 episodes took and at least 5 others did not.

    `Q` (S, A) are the true action values under usual practice.
    """
    counted = evidence(log, mdp.gamma)
    x, y = counted.took, counted.others
    at = np.nonzero((x.n >= 5) & (y.n >= 5))
    if not len(at[0]):
        return []
    low, high = VALUES[mdp.name]
    D, p = high - low, mdp.behavior[at]
    rest = (mdp.behavior * Q).sum(axis=1)[at[0]] - p * Q[at]
    truth = Q[at] - rest / (1 - p)
    pairs = at[0] * len(mdp.actions) + at[1]
    unit: list[Any] = [(x.mean[at] - low) / D, x.n[at], (y.mean[at] - low) / D, y.n[at], LEVEL]
    bounds = {
        "e-value": differences(histograms(log, mdp.gamma, (low, high)), pairs, LEVEL).low,
        "Chernoff": D * kl_difference(*unit),
        "Hoeffding": D * hoeffding_difference(*unit),
    }
    return [
        _row("pair", name, cases=len(truth), held=(bound <= truth + 1e-9).sum(),
             claimed=(bound / D).mean(), truth=(truth / D).mean())
        for name, bound in bounds.items()
    ]  # fmt: skip


def _policies(mdp: FiniteMDP, log: Log, A: Floats) -> list[Row]:
    """The claims of policies with and without gate, beside the truth.

    `A` (S, A) are the true advantages over usual practice: negative for a harmful action.
    """
    shared: dict[str, Any] = {"n_min": N_MIN, "gamma": mdp.gamma, "cut": CUT}
    learner = DPRLDiscrete(**shared)
    ask: dict[str, Any] = {"value_range": VALUES[mdp.name], "delta": DELTA, "avoid": False}
    contrast = learner.fit(log)
    gates = {
        "gate, swap-split": gate(learner, log, **ask),
        "gate, in-sample": gate(learner, log, mode="in-sample", states=mdp.states, **ask),
        "gate, large-sample": gate(learner, log, grade="large-sample", delta=DELTA, avoid=False),
        "whole policy, proved": gate(learner, _with_chances(mdp, log), mode="policy", **ask),
        "whole policy, large-sample": gate(
            learner, log, mode="policy", grade="large-sample", delta=DELTA
        ),
    }
    asked = GateSettings(DELTA, VALUES[mdp.name])
    sides = np.zeros(len(log.groups), bool)
    sides[np.random.default_rng(0).permutation(len(sides))[: len(sides) // 2]] = True
    answers: dict[str, tuple[NDArray[np.int32], float | None]] = {
        "paper's rule": (DPRLDiscrete(contrast=False, **shared).fit(log).choice, None),
        "contrast": (contrast.choice, None),
        "first visits, swap-split": by_first_visits(learner, log, asked, sides),
        "first visits, in-sample": by_first_visits(learner, log, asked, None),
    }
    for name, gated in gates.items():
        assert gated.certificate is not None  # a gated policy has one
        answers[name] = gated.decisions.choice, gated.certificate.gain or 0.0
    rows, usual = [], mdp.value()
    for name, (choice, gain) in answers.items():
        truth = mdp.value(_matrix(mdp, choice)) - usual
        speaks = np.flatnonzero(choice >= 0)
        harmful = bool((A[speaks, choice[speaks]] < -1e-9).any())
        facts: dict[str, Any] = {"issued": len(speaks), "harmful": harmful, "truth": truth}
        if gain is not None:
            over = gain > truth + 1e-9
            broken = harmful and not name.startswith("whole policy")  # that is about the whole
            facts |= {"claimed": gain, "overstated": over, "held": not broken and not over,
                      "cases": 1}  # fmt: skip
        rows.append(_row("policy", name, **facts))
    bounds = gates["gate, in-sample"].certificate
    assert bounds is not None
    truth = mdp.value(contrast) - usual
    for name, value in bounds.bounds.items():
        claimed = -np.inf if value is None else value
        rows.append(_row("policy", name, claimed=claimed, truth=truth, held=claimed <= truth,
                         cases=1))  # fmt: skip
    return rows


def by_first_visits(
    learner: DPRLDiscrete, log: Log, asked: GateSettings, sides: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int32], float]:
    """What first visits alone certify, int32 (S,), -1 where nothing; and its certified gain.

    The gate as it was before all visits counted, for comparison only: e-values of returns at first
    visits on a grid of 1/400 (`dprl.certificate.evalues`), and a gain from how often episodes part
    from the policy, paid for every set that could have been chosen (`dprl.certificate.gain`). The
    gate over cells of features still works like this.

    Args:
        learner: The learner whose rule proposes and chooses.
        log: A settled log with labelled states, one episode per group.
        asked: delta, value_range, margin and horizon.
        sides: bool (groups,), true for one half; None to certify with all of the log.
    """
    log = log.gathered()
    source = as_source(log)
    counted = count_source(source, Counts(learner.gamma))
    whole = counted.evidence
    pairs = allowed(whole, learner.n_min, contrast=learner.contrast)
    if sides is None:
        tested = log.n_states * log.n_actions
        tests = [by_returns(log, whole, pairs, learner.gamma, asked, tested, 1.0)]
    else:
        halves = [some_of(log, sides == side, None, learner.gamma) for side in (True, False)]
        seen = [evidence(half, learner.gamma) for half in halves]
        tests = []
        for one, other in ((0, 1), (1, 0)):
            wanted = propose(seen[one], learner, None)
            n = max(1, int(wanted.sum()))
            half = halves[other]
            tests.append(by_returns(half, seen[other], wanted, learner.gamma, asked, n, 0.5))
    pairs &= np.logical_or.reduce([one.pairs for one in tests])
    choice, _ = learner.choose(source, counted, pairs)
    k = int((choice >= 0).sum())
    nats = nats_of_sets(log.n_states, k, log.n_actions, REACH * asked.delta)
    return choice, certified_gain(log, choice, best_low(tests, choice), learner.gamma, nats)


def _with_chances(mdp: FiniteMDP, log: Log) -> Log:
    """The log with the probability with which each action was taken."""
    state = {label: i for i, label in enumerate(mdp.states)}
    action = {label: i for i, label in enumerate(mdp.actions)}
    s = np.array([state[label] for label in log.states])[log.codes()]
    a = np.array([action[label] for label in log.actions])[log.action]
    return replace(log, propensity=mdp.behavior[s, a])


def _matrix(mdp: FiniteMDP, choice: NDArray[np.int32]) -> Floats:
    """The policy of these choices, float64 (S, A): the behaviour where it defers."""
    matrix, speaks = mdp.behavior.copy(), np.flatnonzero(choice >= 0)
    matrix[speaks] = np.eye(len(mdp.actions))[choice[speaks]]
    return matrix


def _approximate(mdp: FiniteMDP, log: Log) -> list[Row]:
    """Bootstrap intervals for the gain of a policy without gate; none if it always defers."""
    train, test = log.split(0.5, seed=0)
    policy = DPRLDiscrete(n_min=N_MIN, gamma=mdp.gamma, cut=CUT).fit(train)
    if not (policy.decisions.choice >= 0).any():
        return []
    truth = mdp.value(policy) - mdp.value()
    ask: dict[str, Any] = {"level": 0.95, "draws": DRAWS, "seed": 0}
    own = HeldOut.meet(policy, train, allow_seen=True, reads="transitions")
    gains = {
        "bootstrap, held-out": approximate_gain(policy, test, **ask),
        "bootstrap, own log": estimate(own, **ask),
    }
    return [
        _row("approximate", name, cases=1, held=gain.low <= truth <= gain.high,
             claimed=gain.gain, truth=truth)
        for name, gain in gains.items()
    ]  # fmt: skip


def summary(rows: Rows) -> Table:
    """One row per problem, kind of row and method."""
    lines = []
    for (problem, what, who), part in by(rows, "problem", "what", "who"):
        known = np.isfinite(part["cases"]).all()
        lines.append({
            "problem": problem, "what": what, "method": who, "datasets": len(part["dataset"]),
            "held": float(part["held"].sum() / part["cases"].sum()) if known else np.nan,
            **{name: float(part[name].mean())
               for name in ("harmful", "overstated", "issued", "claimed", "truth")},
        })  # fmt: skip
    return table_of(
        lines,
        f"Certificates against the truth (δ = {DELTA}, single bounds at level {LEVEL}, "
        f"n_min {N_MIN})",
        "held: share of bounds, claims or intervals that the truth bears out; harmful: share "
        "of datasets with at least one suggestion that is worse than usual practice; overstated: "
        "share of datasets whose claimed gain exceeds the true one; claimed and truth: mean lower "
        "bound and true value (pairs: E x - E y in parts of the range; policies: "
        "gain; – is minus infinity).",
    )


def brief(table: Table) -> Table:
    """Only the rows about policies."""
    lines = [
        {name: value for name, value in row.items() if name != "what"}
        for row in table
        if row["what"] == "policy"
    ]
    return table_of(lines, table.caption, table.note)


def figure(rows: Rows) -> Any:
    """Three panels: how far bounds are below the truth, harmful data sets, certified gains."""
    table = summary(rows)
    figure, axes = plot.grid(1, 3, width=4.6, height=4.4)
    colors = {"e-value": "#0072b2", "Chernoff": "#e69f00", "Hoeffding": "#999999",
              "paper's rule": "#56b4e9", "contrast": "#0072b2", "gate, swap-split": "#e69f00",
              "gate, in-sample": "#d55e00", "first visits, swap-split": "#009e73",
              "first visits, in-sample": "#cc79a7", "gate, large-sample": "#000000"}  # fmt: skip
    problems = list(PROBLEMS)

    def bars(axis: Any, what: str, methods: Sequence[str], column: str) -> None:
        """Draw a column of the summary as bars, one group per problem, one bar per method."""
        width = 0.8 / len(methods)
        for k, method in enumerate(methods):
            shown = {r["problem"]: r[column] for r in table
                     if r["what"] == what and r["method"] == method}  # fmt: skip
            x = np.arange(len(problems)) + (k - (len(methods) - 1) / 2) * width
            heights = [shown.get(p, np.nan) for p in problems]
            of = {r["problem"]: r["datasets"] for r in table
                  if r["what"] == what and r["method"] == method}  # fmt: skip
            ends = [clopper_pearson(round(h * of[p]), of[p]) if p in of else (h, h)
                    for p, h in zip(problems, heights, strict=True)]  # fmt: skip
            error = np.abs(np.array(ends).T - heights)
            drawn = axis.bar(
                x, heights, width * 0.92, yerr=error, error_kw={"lw": 0.6, "ecolor": "#555555"},
                color=colors[method], label=method,
            )  # fmt: skip
            axis.bar_label(drawn, fmt=lambda v: f"{v:.2g}" if v else "", fontsize=7, padding=1)
        axis.set_xticks(range(len(problems)), problems)
        axis.grid(axis="x", visible=False)
        axis.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)

    pairs = [r for r in table if r["what"] == "pair"]
    for k, method in enumerate(("e-value", "Chernoff", "Hoeffding")):
        gaps = {r["problem"]: r["truth"] - r["claimed"] for r in pairs if r["method"] == method}
        x = np.arange(len(problems)) + (k - 1) * 0.27
        heights = [gaps[p] for p in problems]
        drawn = axes[0, 0].bar(x, heights, 0.25, color=colors[method], label=method)
        axes[0, 0].bar_label(drawn, fmt=lambda v: f"{v:.2g}", fontsize=7, padding=1)
    axes[0, 0].set_xticks(range(len(problems)), problems)
    axes[0, 0].grid(axis="x", visible=False)
    axes[0, 0].legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    held = min(r["held"] for r in pairs)
    axes[0, 0].set_title(f"How far single bounds lie below the truth\n(they hold in {held:.2%})")
    gated = ("first visits, swap-split", "gate, swap-split", "first visits, in-sample",
             "gate, in-sample", "gate, large-sample")  # fmt: skip
    rules = ("paper's rule", "contrast", *gated)
    bars(axes[0, 1], "policy", rules, "harmful")
    axes[0, 1].set(title="Datasets with a harmful suggestion\n(no bar: in none)", ylim=(0, 0.5))
    plot.reference(axes[0, 1], DELTA, "δ")
    gates = [r for r in table if r["what"] == "policy" and r["method"] in gated]
    axis = axes[0, 2]
    for i, r in enumerate(gates):
        axis.plot([r["claimed"], r["truth"]], [i, i], color="#bbbbbb", zorder=1)
        axis.plot(r["claimed"], i, "o", color=colors[r["method"]])
        axis.plot(r["truth"], i, "|", color="black", ms=12)
    names = [f"{r['problem']}: {r['method']}" for r in gates]
    axis.set_yticks(range(len(gates)), names, fontsize=7.5)
    axis.set(title="Certified gain ● and true gain |", xlabel="over usual practice (mean)")
    axis.set_xlim(left=0)
    axis.invert_yaxis()
    logs = max(r["datasets"] for r in table)
    plot.caption(figure, f"{logs:,} logs a problem; whiskers: 95 % Clopper-Pearson.")
    return figure


EXPERIMENT = Experiment(
    "coverage", "Do certificates hold, and what are they worth?",
    settings, run, summary, figure, brief, plain_page(summary, brief),
)  # fmt: skip
