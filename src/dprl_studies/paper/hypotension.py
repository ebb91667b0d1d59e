"""The hypotension study: DPRL for features and other learners, on a folder of MIMIC tables.

Patients are split 25/25/50 into training, validation and test (as the paper's 500/500/1000). All
learners learn from the training patients, with radius 10 and the paper's weights of the features,
and are evaluated on the test patients. A stay that lasts longer than 72 hours is used up to hour 72
and treated as ended there: only the first 72 hours count. No learner is tuned, so the validation
patients are not used.

For simulated tables (`dprl icu simulate`), the true value of every policy is given beside its
estimate; it is found by playing the policy. There treatment costs what `dprl.icu.Costs()` says, in
the logs that are learned from, in the estimates and in the true value: without costs one treatment
for everybody would be nearly best. Real tables are used with the published reward, without costs.

Contestants marked *shortfall* learned from the reward minus 1; all are evaluated without that.
*DPRL paper* is the paper's own rule: no contrast, and every neighbour counts, not one per patient.

PQI's threshold b is n_min / |D|, so that it needs as many neighbours of a state as SPIBB and DPRL.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.disk import replacing
from dprl._core.table import Table
from dprl.errors import LogError, ParameterError
from dprl.evaluation._evaluate import evaluate
from dprl.evidence.behavior import Behavior
from dprl.learners.continuous import DPRLContinuous
from dprl.logs.log import Log
from dprl.logs.reading.files import Progress
from dprl.logs.reading.tables import Row, Rows
from dprl.policies.protocol import Kind, is_drawn
from dprl_studies import icu
from dprl_studies.harness import Experiment, Setting, plain_page
from dprl_studies.icu.simulation import MARK, frugal_treatment, true_value

GAMMA, RADIUS = 0.99, 10.0
ENOUGH = 200
"""With fewer test patients than this, the table warns that no conclusion can be drawn."""

SHOWN = 13.0
"""Range of the figure: values at most this far from usual practice.

Estimates that few patients support can lie far outside of it.
"""

FOLLOWED = 30
"""With a smaller effective sample size than this, an estimate rests on its model alone."""

N_MIN, REVIEWED = (10, 30, 50), 30
CONTESTANTS: tuple[Setting, ...] = (
    {"learner": "behaviour"},
    *({"learner": "DPRL", "n_min": n} for n in N_MIN),
    *({"learner": "DPRL paper", "n_min": n} for n in N_MIN),
    *({"learner": "DPRL planned", "n_min": n, "reward": "shortfall"} for n in N_MIN),
    *({"learner": "SPIBB", "n_min": n} for n in N_MIN),
    *({"learner": "PQI", "n_min": n} for n in N_MIN),
    {"learner": "CQL", "alpha": 0.1},
    {"learner": "BC"},
)
"""The learners that are compared, with their settings; "behaviour" is usual practice."""

SILENT: dict[str, Row] = {
    "behaviour": {"deferred": 1.0, "changes": 0.0},
    "best treatment": {"deferred": 0.0, "changes": math.nan},
}
"""Contestants that learn nothing: usual practice, and the best rule of the simulation."""

FACTS = "tables.json"
"""The file beside `stays.parquet` that says whether the patients are invented, and the costs."""

ESTIMATES = (
    "DR", "DR_low", "DR_high", "difference", "difference_low", "difference_high", "behavior",
    "ess", "ess_change", "reached", "followers", "changed",
)  # fmt: skip


def label(contestant: Setting) -> str:
    """The name of a contestant in tables and figures, such as "SPIBB, n_min 10"."""
    parts = [str(contestant["learner"])]
    parts += [f"{k} {contestant[k]:g}" for k in ("n_min", "alpha") if k in contestant]
    return ", ".join(parts + ["shortfall"] * ("reward" in contestant))


def learner(contestant: Setting, n_steps: int, quick: bool, seed: int) -> Any:
    """The learner of a contestant, with its settings; its method `fit` takes the training log.

    `n_steps` is the number of decisions in the training log, which PQI's threshold needs. `quick`
    gives smaller forests and fewer steps of training.
    """
    from dprl.learners.baselines import DeepCQL, FittedPQI, FittedSPIBB, ForestBC

    name = contestant["learner"]
    shared: dict[str, Any] = {"gamma": GAMMA, "metric": icu.metric(), "cut": "terminal"}
    forest: dict[str, Any] = {
        "trees": 20 if quick else 50,
        "iterations": 5 if quick else 20,
        "seed": seed,
    }
    if name.startswith("DPRL"):
        shared["plan"] = name.endswith("planned")
        if name.endswith("paper"):
            shared |= {"contrast": False, "visits": "all"}
        return DPRLContinuous(n_min=contestant["n_min"], radius=RADIUS, **shared)
    if name == "SPIBB":
        return FittedSPIBB(n_min=contestant["n_min"], radius=RADIUS, **shared, **forest)
    if name == "PQI":
        b = min(1.0, contestant["n_min"] / n_steps)
        return FittedPQI(b=b, radius=RADIUS, **shared, **forest)
    if name == "CQL":
        steps = 1_000 if quick else 10_000
        return DeepCQL(alpha=contestant["alpha"], steps=steps, seed=seed, **shared)
    return ForestBC(trees=forest["trees"], seed=seed)


@functools.lru_cache(maxsize=1)
def _data(stays: str, digest: str, seed: int, costs: icu.Costs | None) -> tuple[Any, Any, Behavior]:
    """The stays in the file `stays`, their split into logs, and the behaviour in the test log.

    Kept in memory, so that a process reads them once; `digest` is that of the file's content.
    """
    decisions = icu.read_stays(stays)
    data = icu.prepare(decisions, seed=seed, costs=costs)
    return decisions, data, Behavior.fit(data.test, seed=seed)


def judge(policy: Any, test: Log, behavior: Behavior, seed: int) -> Row:
    """Estimate the value of a policy from the test patients: doubly robust, 95 % intervals.

    Args:
        policy: A policy over the 29 features, or None for a contestant without policy.
        test: The log of the test patients.
        behavior: How the test patients were treated: the probability of each action.
        seed: Seed of the bootstrap and of the models inside the estimate.

    Returns:
        A row of numbers; all are NaN if there is no policy.

        - `DR`, `DR_low`, `DR_high`: the estimated value and its interval.
        - `behavior`: the estimated value of usual practice.
        - `difference`, `difference_low`, `difference_high`: `DR` minus `behavior`.
        - `changed`: the share of decisions that the policy would change.
        - `ess`, `ess_change`: effective number of patients, among all and among those for whom the
          policy would change a decision.
        - `reached`, `followers`: how many patients the policy would change a decision for, and how
          many of them were treated as suggested each time.

    Example:
        >>> math.isnan(judge(None, None, None, seed=0)["DR"])
        True
    """
    if policy is None:
        return dict.fromkeys(ESTIMATES, math.nan)
    evaluation = evaluate(policy, test, gamma=GAMMA, cut="terminal", behavior=behavior, seed=seed)
    dr, facts = evaluation["DR"], evaluation.facts
    return {
        "DR": dr["value"], "DR_low": dr["value_low"], "DR_high": dr["value_high"],
        **{k: dr[k] for k in ("difference", "difference_low", "difference_high")},
        "behavior": evaluation.behavior["value"],
        **{k: float(facts[k]) for k in ("ess", "ess_change")},
        **{k: float(facts[f"{k}_change"]) for k in ("reached", "followers")},
        "changed": float(facts["changed"]),
    }  # fmt: skip


def settings(
    quick: bool,
    seed: int,
    *,
    stays: str,
    digest: str,
    simulated: bool,
    costs: dict[str, float] | None,
) -> Sequence[Setting]:
    """One task per contestant; `quick` takes one setting of each learner. Without torch no CQL.

    `stays` is the path of the Parquet file of decisions, `digest` the SHA-256 of its content;
    `simulated` says whether the patients are simulated, and `costs` what treatment costs (None:
    nothing).
    """
    chosen = [c for c in CONTESTANTS if not quick or c.get("n_min", 10) == 10]
    if find_spec("torch") is None:
        chosen = [c for c in chosen if c["learner"] != "CQL"]
    if quick:
        chosen = [c for c in chosen if c.get("alpha", 0.1) == 0.1]
    about = {"stays": stays, "digest": digest, "simulated": simulated, "costs": costs,
             "quick": quick, "seed": seed}  # fmt: skip
    tasks = [{**about, "contestant": c} for c in chosen]
    if simulated:
        tasks.append({**about, "contestant": {"learner": "best treatment"}})
    return tasks


def run(setting: Setting) -> list[Row]:
    """The row of one contestant: its policy's estimated value and, if simulated, its true value."""
    contestant, seed, quick = setting["contestant"], setting["seed"], setting["quick"]
    costs = None if setting["costs"] is None else icu.Costs(**setting["costs"])
    stays, data, behavior = _data(setting["stays"], setting["digest"], seed, costs)
    policy: Any = None
    played: Any = frugal_treatment if contestant["learner"] == "best treatment" else None
    if contestant["learner"] not in SILENT:
        train = data.train
        if "reward" in contestant:
            train = icu.prepare(stays, seed=seed, reward=contestant["reward"], costs=costs).train
        policy = played = learner(contestant, train.n_steps, quick, seed).fit(train)
    row: Row = {
        "contestant": label(contestant), "learner": contestant["learner"],
        "n_min": contestant.get("n_min", 0), "reward": contestant.get("reward", "published"),
        "bolus_cost": costs.bolus if costs else 0.0,
        "vasopressor_cost": costs.vasopressor if costs else 0.0,
        **{f"{part}_patients": len(getattr(data, part).groups) for part in ("train", "test")},
        "test_decisions": data.test.n_steps, "usual": _mean_return(data.test),
        **(_spoken(policy, data.test) if policy else SILENT[contestant["learner"]]),
        **judge(policy, data.test, behavior, seed),
        "true_value": math.nan, "true_se": math.nan,
        "simulated": setting["simulated"], "seed": seed,
    }  # fmt: skip
    if math.isnan(row["changes"]):  # stochastic policies: count what the evaluation counted
        row["changes"] = row["changed"] * data.test.n_steps
    if setting["simulated"]:
        number = 500 if quick else 2_000
        row["true_value"], row["true_se"] = true_value(
            played, data.preparation, gamma=GAMMA, stays=number, seed=seed
        )
    return [row]


def _mean_return(log: Log) -> float:
    """The mean discounted return of the log, which estimates the value of usual practice."""
    step = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    return float(np.add.reduceat(log.reward * GAMMA**step, log.starts[:-1]).mean())


def _spoken(policy: Any, test: Log) -> Row:
    """The share of test decisions at which the policy defers, and the number it would change.

    The number is NaN for a stochastic policy.
    """
    if is_drawn(policy):
        return {"deferred": 0.0, "changes": math.nan}
    kind = policy.at(test.features).kind
    return {
        "deferred": float((kind == Kind.DEFER).mean()),
        "changes": float((kind == Kind.CHANGE).sum()),
    }


def summary(rows: Rows) -> Table:
    """One row per contestant; the note warns if there are too few patients for conclusions."""
    columns: dict[str, Any] = {"contestant": rows["contestant"].tolist()}
    for name in ("deferred", "changes", "DR", "DR_low", "DR_high", "difference", "difference_low",
                 "difference_high", "ess_change", "followers", "true_value",
                 "true_se"):  # fmt: skip
        columns[name] = rows[name].tolist()
    test = int(rows["test_patients"][0])
    notes = [
        f"{int(rows['train_patients'][0]):,} patients in training, {test:,} in the test; r = "
        f"{RADIUS:g}, γ = {GAMMA:g}; in the test usual practice got {rows['usual'][0]:.3f}. "
        "DR: doubly robust, 95 % intervals; difference: to usual practice; ess_change and "
        "followers: among patients who reach a change."
    ]
    if "CQL" not in rows["learner"]:
        notes.append("CQL was left out: it needs torch (pip install 'dprl[deep]').")
    size = np.asarray(rows["ess_change"], np.float64)
    judged = ~np.isnan(size) & (np.asarray(rows["changes"], np.float64) > 0)
    weak = int((size[judged] < FOLLOWED).sum())
    if weak:
        notes.append(
            f"In {weak} of {int(judged.sum())} rows that change something ess_change is below "
            f"{FOLLOWED}: hardly anybody was treated as suggested, DR rests on its model alone and "
            "its interval is too short. Read nothing into those."
        )
    if bool(rows["simulated"][0]):
        notes.append(
            "Invented patients: `true_value` is the value by playing the policy among them."
        )
    costs = icu.Costs(float(rows["bolus_cost"][0]), float(rows["vasopressor_cost"][0]))
    if costs != icu.Costs(0, 0):
        notes.append(
            f"Treatment costs {costs}: subtracted from the reward in every column. The costs are a "
            "choice; with the published reward one treatment for everybody would be nearly best."
        )
    if test < ENOUGH:
        notes.append(
            f"TOO SMALL FOR CONCLUSIONS: {test:,} test patients. Whatever these numbers look like, "
            "they show that the study runs, and nothing about patients."
        )
    return Table(
        columns, "Hypotension in intensive care: value of the first 72 h", "\n".join(notes)
    )


def brief(table: Table) -> Table:
    """The columns that fit on a screen."""
    names = ("contestant", "deferred", "changes", "DR", "difference_low", "difference_high",
             "ess_change", "true_value")  # fmt: skip
    return Table({n: table[n] for n in names}, table.caption, table.note)


page = plain_page(summary, brief)
"""The page of the docs."""


def figure(rows: Rows) -> Any:
    """Two panels: the value of each policy, and the share of decisions at which it does not defer.

    The first shows the estimate with its interval, the true value if the patients are simulated,
    and the value of usual practice as a dashed line.
    """
    names = rows["contestant"].tolist()
    place = np.arange(len(names))[::-1]
    figure, axes = plot.grid(1, 2, width=5.2, height=0.6 + 0.24 * len(names))
    left, right = axes[0]
    shown = {"DPRL": "DPRL contrast", "DPRL planned": "DPRL gate"}
    families = [shown.get(n.split(",")[0], n.split(",")[0]) for n in names]
    looks = plot.style(families)
    truth = rows["true_value"][names.index("behaviour")]
    usual = float(rows["usual"][0]) if math.isnan(truth) else float(truth)
    window = (usual - SHOWN, usual + SHOWN)
    for i, (y, family) in enumerate(zip(place, families, strict=True)):
        colour = looks[family]["color"]
        if not math.isnan(rows["DR"][i]):
            low, middle, high = (rows[k][i] for k in ("DR_low", "DR", "DR_high"))
            left.plot(np.clip([low, high], *window), [y, y], color=colour, linewidth=2)
            for value, beyond in ((low, "<"), (high, ">")):
                if not window[0] <= value <= window[1]:
                    left.plot(np.clip(value, *window), y, beyond, color=colour, markersize=6)
            if window[0] <= middle <= window[1]:
                left.plot(middle, y, "o", color=colour, markersize=5)
        if not math.isnan(rows["true_value"][i]):
            left.plot(rows["true_value"][i], y, "D", color="black", markersize=4, fillstyle="none")
        right.barh(y, 1 - rows["deferred"][i], color=colour, height=0.6)
    left.axvline(usual, color="#333333", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    left.set_yticks(place, names)
    right.set_yticks(place, [""] * len(names))
    left.set_title("value: DR, 95 % (●), true (◇), usual (- -)")
    left.set_xlim(window[0] - 0.5, window[1] + 0.5)
    right.set_title("share of test decisions at which it speaks")
    right.set_xlim(0, 1)
    for axis in (left, right):
        axis.set_ylim(-0.7, len(names) - 0.3)
    plot.caption(
        figure,
        f"One split by patient: {int(rows['train_patients'][0]):,} to learn from, "
        f"{int(rows['test_patients'][0]):,} to judge by. Bars: 95 % bootstrap intervals over "
        "patients, cut where an arrow stands.",
    )
    return figure


def reviewed(folder: Path, seed: int) -> tuple[Any, Log]:
    """The policy and the log for the review report of a study: DPRL with n_min 30.

    Args:
        folder: The folder of the study, in which `on_tables` has written `stays.parquet` and
            `tables.json`.
        seed: Seed of the split by patient, the same as that of the study.

    Returns:
        The policy learned from the training patients, and the log of the test patients.

    Raises:
        LogError: The folder holds no study.

    Example:
        >>> tables = icu.simulate("tables", stays=12, seed=0)
        >>> study = on_tables(Path("tables"), Path("study"))
        >>> policy, test = reviewed(Path("study"), seed=0)
        >>> policy.parameters["n_min"], test.n_episodes
        (30, 6)
    """
    stays = icu.read_stays(str(folder / "stays.parquet"))
    facts = folder / FACTS
    if not facts.is_file():
        raise LogError(
            f"{str(folder)!r} does not say what treatment costs: {FACTS} is missing.",
            do="Run dprl reproduce hypotension once more.",
        )
    costs = json.loads(facts.read_text(encoding="utf-8"))["costs"]
    data = icu.prepare(stays, seed=seed, costs=None if costs is None else icu.Costs(**costs))
    contestant = {"learner": "DPRL", "n_min": REVIEWED}
    policy = learner(contestant, data.train.n_steps, quick=False, seed=seed).fit(data.train)
    return policy, data.test


def on_tables(
    tables: Path | None, folder: Path, *, memory: str = "4GB", progress: Progress | None = None
) -> Experiment:
    """Build the cohort of a folder of tables, and make the experiment on it.

    Args:
        tables: Folder of MIMIC-IV or MIMIC-III tables, or of simulated ones.
        folder: Folder for `stays.parquet`, the decisions of the cohort, and `tables.json`, which
            says whether they are simulated and what treatment costs; made if it does not exist.
        memory: Memory limit of DuckDB. Default "4GB".
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The experiment, for `dprl_studies.harness.reproduce`.

    Raises:
        ParameterError: `tables` is None.
        LogError: Tables or columns are missing, or no stay is in the cohort.

    Example:
        >>> tables = icu.simulate("tables", stays=12, seed=0)
        >>> study = on_tables(Path("tables"), Path("study"))
        >>> [task["contestant"]["learner"] for task in study.settings(True, 0)][:4]
        ['behaviour', 'DPRL', 'DPRL paper', 'DPRL planned']
    """
    if tables is None:
        raise ParameterError(
            "the hypotension study needs a folder of MIMIC tables.",
            do="Name it: --tables FOLDER. Invented ones: dprl icu simulate --out FOLDER.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    stays = folder / "stays.parquet"
    icu.build(tables, stays, memory=memory, progress=progress)
    mark = tables / MARK
    simulated = mark.is_file() and bool(json.loads(mark.read_text()).get("simulated"))
    facts = {"simulated": simulated, "costs": asdict(icu.Costs()) if simulated else None}
    with replacing(folder / FACTS) as part:
        part.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    about: dict[str, Any] = {
        "stays": str(stays.resolve()),
        "digest": hashlib.sha256(stays.read_bytes()).hexdigest(),
        **facts,
    }
    return Experiment(
        "hypotension", "Does it change treatment for the better, where it speaks?",
        functools.partial(settings, **about), run, summary, figure, brief, page,
    )  # fmt: skip
