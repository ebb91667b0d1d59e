"""The suite: any learner against all rivals, on problems whose true values are known, as data.

`dprl bench --learner my_module:MyLearner` runs it. A problem is a line of `WORLDS`: how it is made,
how many there are (random ones have numbers), the sizes of its logs and whether it is one where
something can be gained or one that punishes. A learner is a line of `LEARNERS`: how it is made for
a problem, by one rule for all (the setting that its authors name or use; where they name none, one
that fits rewards of about 1). `OTHERS` are settings that are tried beside it, so that its best one
in hindsight can be shown. Learners share logs (`dprl.contest`), so differences are paired.

Problems and logs have public seeds: number k of a random problem is `random_mdp(k)`, its logs are
those of the seed of the suite. `check=True` takes problems and logs with other numbers, kept for
checking what was tuned on the public ones.
"""

from __future__ import annotations

# Apart: the suite itself; the command that runs it is beside it.
import functools
import hashlib
import html
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dprl import envs
from dprl._core import plot
from dprl._core.table import Table
from dprl.apps.contest import METRICS, Problem, Row, contest, gains
from dprl.baselines import (
    BC,
    CQL,
    DUIPI,
    HCPI,
    LCB,
    MBIE,
    MOPO,
    PQI,
    RL,
    SPIBB,
    Mode,
    RaMDP,
    RMin,
    RobustMDP,
    SoftSPIBB,
)
from dprl.certificate import gate
from dprl.envs import hard
from dprl.errors import ParameterError
from dprl.learners.confident import Confident
from dprl.learners.discrete import DPRLDiscrete
from dprl.learners.registry import find
from dprl.logs.log import Log
from dprl.logs.reading.tables import Rows, read_rows
from dprl_studies.harness import Experiment, Setting, table_of

KEPT = 100_000
"""Numbers of problems, and seeds of logs, of the second set begin here."""
OWN = ("Confident", "Confident, no promise", "DPRL")
"""What is ours among the learners."""


@dataclass(frozen=True)
class World:
    """A problem of the suite, or a family of random ones.

    Attributes:
        make: From a number to the problem.
        sizes: Numbers of episodes in a log.
        punishes: What it punishes, in a few words; '' where something can be gained.
        problems: How many problems there are: in full, and in the quick suite.
        large: Whether the quick suite leaves it out.
    """

    make: Callable[[int], Any]
    sizes: tuple[int, ...]
    punishes: str = ""
    problems: tuple[int, int] = (1, 1)
    large: bool = False


def _same(make: Callable[[], Any], number: int) -> Any:
    return make()


def _one(make: Callable[[], Any], *sizes: int, punishes: str = "", large: bool = False) -> World:
    return World(functools.partial(_same, make), sizes, punishes, large=large)


def _care() -> Any:
    """Without discount some plans never end in it."""
    return replace(envs.care_pathway(), gamma=0.999)


def _random(number: int, **more: Any) -> Any:
    return envs.random_mdp(number, **more)


def _graded(share: float) -> World:
    make = functools.partial(_random, practice=share)
    return World(make, (20, 100), problems=(10, 3))


WORLDS: dict[str, World] = {
    "forest": _one(envs.forest, 50, 200, 1_000),
    "risky arms": _one(envs.risky_arms, 50, 200, 1_000, punishes="rare arms are good by luck"),
    "rooms": _one(envs.rooms, 10, 50, large=True),
    "open grid": _one(envs.open_grid, 10, 50, large=True),
    "soft": _one(envs.soft, 10, 50, large=True),
    "small grid": _one(envs.small_grid, 25, 100),
    "care pathway": _one(_care, 50, 200, 1_000),
    "dense chain": _one(envs.dense_chain, 25, 100),
    "maze": _one(envs.maze, 20, 100),
    "river": _one(functools.partial(envs.river, max_steps=200), 5, 25),
    "wet chicken": _one(hard.wet_chicken, 50, 300),
    "ICU-Sepsis": _one(envs.icu_sepsis, 1_000, large=True),
    **{f"random, practice {share}": _graded(share) for share in (0.1, 0.5, 0.9)},
    "random, endings by action": World(
        functools.partial(_random, endings=True), (20, 100), problems=(10, 3)
    ),
    "nothing to gain, one step": _one(hard.null_states, 1_000, punishes="actions do nothing"),
    "nothing to gain, chain": _one(hard.null_chain, 100, 300, punishes="actions do nothing"),
    "lucky arm": _one(hard.lucky_arm, 300, 1_500, punishes="forty arms, all a little worse"),
    "delayed harm": _one(hard.delayed_harm, 300, 1_000, punishes="a cost that the state hides"),
    "hidden confounder, Γ = 3": _one(
        hard.hidden_labels, 300, 1_000, punishes="an unrecorded cause of treatment and outcome"
    ),
    "practice drifts": _one(hard.drift_labels, 300, 1_000, punishes="practice and outcomes drift"),
    "rare catastrophe": _one(hard.catastrophe, 300, 600, punishes="one loss in 300"),
    "heavy tails": _one(hard.tails_labels, 300, 800, punishes="outcomes with heavy tails"),
}  # fmt: skip
"""Name → problem."""

NOT_HERE = (
    "point mass and the simulated wards (states are features), logs with menus of available "
    "actions (the rivals do not take them), censored episodes (the truth of a learner then depends "
    "on how it treats them)"
)
"""What the suite leaves out, and why."""

LEARNERS: dict[str, Callable[..., Any]] = {
    "BC": lambda w: BC(), "Mode": lambda w: Mode(), "RL": lambda w: RL(gamma=w.gamma),
    "SPIBB": lambda w, n_min=10: SPIBB(gamma=w.gamma, n_min=n_min),
    "SPIBB knowing b": lambda w: SPIBB(
        gamma=w.gamma, n_min=10, behavior=getattr(w, "behavior", None)
    ),
    "Soft-SPIBB": lambda w, epsilon=2.0: SoftSPIBB(gamma=w.gamma, epsilon=epsilon, delta=1.0),
    "Lower-Soft-SPIBB": lambda w, epsilon=1.0: SoftSPIBB(
        gamma=w.gamma, epsilon=epsilon, delta=1.0, limit="raised"
    ),
    "Adv-Soft-SPIBB": lambda w, epsilon=2.0: SoftSPIBB(
        gamma=w.gamma, epsilon=epsilon, delta=1.0, advantageous=True
    ),
    "LCB": lambda w, c=0.1: LCB(gamma=w.gamma, c=c),
    "RaMDP": lambda w, kappa=0.05: RaMDP(gamma=w.gamma, kappa=kappa),
    "MOPO": lambda w, lam=0.1: MOPO(gamma=w.gamma, lam=lam),
    "R-MIN": lambda w, n_min=3: RMin(gamma=w.gamma, n_min=n_min),
    "robust MDP": lambda w, c=0.1: RobustMDP(gamma=min(w.gamma, 0.999), c=c),
    "MBIE": lambda w, c=0.1: MBIE(gamma=min(w.gamma, 0.999), c=c),
    "DUIPI": lambda w, xi=0.5: DUIPI(gamma=min(w.gamma, 0.999), xi=xi),
    "PQI": lambda w, b=0.002: PQI(gamma=w.gamma, b=b),
    "CQL": lambda w, alpha=0.1: CQL(gamma=min(w.gamma, 0.999), alpha=alpha),
    "HCPI": lambda w, delta=0.05: HCPI(gamma=w.gamma, delta=delta),
    "HCPI knowing b": lambda w: HCPI(gamma=w.gamma, behavior=getattr(w, "behavior", None)),
    "DPRL": lambda w, n_min=20: DPRLDiscrete(gamma=w.gamma, n_min=n_min),
    "gate of DPRL": lambda w: Gated(DPRLDiscrete(gamma=w.gamma, n_min=20)),
    "gate of LCB": lambda w: Gated(LCB(gamma=w.gamma)),
    "Confident": lambda w: Confident(gamma=w.gamma),
    "Confident, no promise": lambda w: Confident(
        gamma=w.gamma, promise=False, splits=0, check=False
    ),
}  # fmt: skip
"""Name → from a problem to the learner, in the setting of the rule; keyword arguments vary it.
What falls back to b̂ is below practice half of the time; knowing b (where a world says it) not."""

OTHERS: dict[str, tuple[Any, ...]] = {
    "SPIBB": (3, 5, 20, 50), "Soft-SPIBB": (0.1, 0.5, 1.0), "Lower-Soft-SPIBB": (0.1, 0.5, 2.0),
    "Adv-Soft-SPIBB": (0.1, 0.5, 1.0), "LCB": (0.02, 0.05, 0.2, 0.5), "RaMDP": (0.01, 0.2, 1.0),
    "MOPO": (0.02, 0.5), "R-MIN": (1, 5, 10, 20), "robust MDP": (0.02, 0.3, 1.0),
    "MBIE": (0.02, 0.3, 1.0), "DUIPI": (0.1, 1.0), "PQI": (0.0005, 0.01), "CQL": (0.01, 0.5),
    "DPRL": (5, 10, 50),
}  # fmt: skip
"""Name → other values of its setting, for its best one in hindsight."""


@dataclass(frozen=True)
class Gated:
    """A learner whose suggestions the gate certifies for large samples, as one learner.

    Attributes:
        learner: The learner that proposes.

    Example:
        >>> from dprl.baselines import LCB
        >>> log = envs.care_pathway().sample(2_000, seed=0)
        >>> Gated(LCB(gamma=1.0)).fit(log).certificate.grade
        'large-sample'
    """

    learner: Any

    def fit(self, log: Log) -> Any:
        """The certified part of what the learner suggests.

        Args:
            log: The log.

        Returns:
            The gated policy.

        Example:
            >>> from dprl.baselines import LCB
            >>> log = envs.care_pathway().sample(2_000, seed=0)
            >>> Gated(LCB(gamma=1.0)).fit(log).act("fever")
            'antibiotics'
        """
        return gate(self.learner, log, grade="large-sample")


def _learners(names: Sequence[str], own: str, hindsight: bool) -> dict[str, Any]:
    """Label → learner or function of a problem, of the rivals and of a learner from outside."""
    made: dict[str, Any] = {}
    for name in names:
        made[name] = LEARNERS[name]
        for value in OTHERS.get(name, ()) if hindsight else ():
            setting = LEARNERS[name].__code__.co_varnames[1]
            made[f"{name}, {setting} {value}"] = functools.partial(
                LEARNERS[name], **{setting: value}
            )
    if own:
        found = find(own)
        if found is None:
            raise ParameterError(
                f"there is no learner {own!r}.", do="Name the module and class: module:Class."
            )
        made[own] = functools.partial(_from_outside, found.made_by())
    return made


def _from_outside(cls: Any, world: Problem) -> Any:
    """Somebody's learner, with the discount of the problem if it takes one."""
    try:
        return cls(gamma=world.gamma)
    except TypeError:
        return cls()


def _settings(
    quick: bool, seed: int, *, own: str, check: bool, hindsight: bool, names: Sequence[str]
) -> list[Setting]:
    """One task per problem and size; the quick suite has fewer problems and logs."""
    first = KEPT if check else 0
    code = "" if not own else hashlib.sha256(_source(own)).hexdigest()[:16]
    tasks = []
    for name, world in WORLDS.items():
        if quick and world.large:
            continue
        problems = world.problems[quick]
        logs = 8 if quick else 40
        for number in range(problems):
            tasks += [
                {
                    "world": name, "number": first + seed * 1_000 + number, "n": n,
                    "seed": first + seed, "logs": max(2, math.ceil(logs / problems)), "own": own,
                    "code": code, "hindsight": hindsight, "names": list(names),
                }
                for n in world.sizes[: 2 if quick else None]
            ]  # fmt: skip
    return tasks


def _source(own: str) -> bytes:
    """The source of the module of somebody's learner, so that rows of an older one are not used."""
    import importlib.util

    spec = importlib.util.find_spec(own.partition(":")[0])
    if spec is None or not spec.origin:
        raise ParameterError(f"the module of the learner {own!r} cannot be found.")
    return Path(spec.origin).read_bytes()


def run_task(setting: Setting) -> list[Row]:
    """The rows of one task: a row per log and learner.

    Args:
        setting: World, number of the problem, size, seed, how many logs, and the learners.

    Returns:
        The rows.

    Example:
        >>> task = {"world": "care pathway", "number": 0, "n": 50, "seed": 0, "logs": 2, "own": "",
        ...         "code": "", "hindsight": False, "names": ["BC", "LCB"]}
        >>> [row["learner"] for row in run_task(task)]
        ['BC', 'LCB', 'BC', 'LCB']
    """
    world, name = WORLDS[setting["world"]], setting["world"]
    found = contest(
        {name: world.make(setting["number"])},
        _learners(setting["names"], setting["own"], setting["hindsight"]),
        sizes=[setting["n"]], datasets=setting["logs"], seed=setting["seed"],
    )  # fmt: skip
    machine = f"{platform.system()} {platform.machine()}, numpy {np.__version__}"
    return [
        {
            **row, "number": setting["number"], "punishes": world.punishes, "machine": machine,
            "promised": math.nan if row["promised"] is None else row["promised"],
        }
        for row in found.rows
    ]  # fmt: skip


def verify(path: Path, sample: int = 5, seed: int = 0) -> list[str]:
    """Run a sample of the rows that somebody contributed again.

    Args:
        path: A file of rows (Parquet), as `dprl bench` writes it.
        sample: How many rows are run again, at most. Default 5.
        seed: Seed of the sample. Default 0.

    Returns:
        What is not as it says, in sentences; empty where all is.

    Example:
        >>> import tempfile
        >>> from dprl.logs.reading.tables import write_rows
        >>> task = {"world": "care pathway", "number": 0, "n": 50, "seed": 0, "logs": 2, "own": "",
        ...         "code": "", "hindsight": False, "names": ["BC", "LCB"]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "rows.parquet")
        ...     write_rows(run_task(task), path)
        ...     verify(path, sample=2)
        []
    """
    rows = records(read_rows([path]))
    chosen = np.random.default_rng(seed).choice(len(rows), min(sample, len(rows)), replace=False)
    wrong = []
    for row in (rows[i] for i in sorted(chosen.tolist())):
        what = f"{row['learner']} on log {row['dataset']} of {row['problem']}, n = {row['n']}"
        base = str(row["learner"]).split(", ")[0]
        own = str(row["learner"]) if ":" in str(row["learner"]) else ""
        names = [] if own else [n for n in LEARNERS if n in (row["learner"], base)]
        label = row["learner"]
        try:
            again = contest(
                {row["problem"]: WORLDS[row["problem"]].make(int(row["number"]))},
                {label: _learners(names, own, True)[label]},
                sizes=[int(row["n"])], datasets=[int(row["dataset"])], seed=int(row["seed"]),
            ).rows[0]  # fmt: skip
        except KeyError:
            wrong.append(f"{what}: there is no such problem or learner here.")
            continue
        if not math.isclose(again["value"], row["value"], rel_tol=1e-9, abs_tol=1e-9):
            wrong.append(
                f"{what}: value {again['value']:.6g}, and the file says {row['value']:.6g}."
            )
    return wrong


def records(rows: Rows) -> list[Row]:
    """Columns as rows, promises that are none as None.

    Args:
        rows: The columns.

    Returns:
        The rows.

    Example:
        >>> records({"n": np.array([1]), "promised": np.array([np.nan])})
        [{'n': 1, 'promised': None}]
    """
    columns = {name: column.tolist() for name, column in rows.items()}
    found = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    return [{**r, "promised": None if math.isnan(r["promised"]) else r["promised"]} for r in found]


def cells(rows: Sequence[Row]) -> dict[tuple[str, int], dict[str, list[Row]]]:
    """(problem, size) → learner → its rows, in the order of the logs.

    Args:
        rows: The rows.

    Returns:
        The cells; random problems of one family share theirs.

    Example:
        >>> list(cells([{"problem": "maze", "n": 20, "learner": "BC", "number": 0, "dataset": 0}]))
        [('maze', 20)]
    """
    found: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in sorted(rows, key=lambda r: (r["number"], r["dataset"])):
        cell = found.setdefault((row["problem"], int(row["n"])), {})
        cell.setdefault(row["learner"], []).append(row)
    order = {name: i for i, name in enumerate(WORLDS)}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0][0], 99), item[0][1])))


def unit(rows: Sequence[Row]) -> Any:
    """True gains in shares of the best gain; where nothing can be gained, in units of returns.

    Args:
        rows: Rows of one learner.

    Returns:
        float64, one number per row.

    Example:
        >>> unit([{"value": 0.6, "practice": 0.5, "best": 0.7}]).tolist()
        [0.5]
    """
    return np.asarray(gains(rows))


def summarise(rows: Rows) -> Table:
    """One row per learner: means over the cells of the suite, with paired differences.

    Args:
        rows: The rows of all tasks, as columns.

    Returns:
        The table: mean and CVaR of the gain over cells where something can be gained, in shares of
        the best; the mean loss to Confident over the same logs with its 95 % interval; the share of
        logs below practice there and in worlds that punish; broken promises; seconds.

    Example:
        >>> task = {"world": "care pathway", "number": 0, "n": 50, "seed": 0, "logs": 2, "own": "",
        ...         "code": "", "hindsight": False, "names": ["BC", "Confident"]}
        >>> found = run_task(task)
        >>> table = summarise({k: np.array([r[k] for r in found]) for k in found[0]})
        >>> table["learner"]
        ['BC', 'Confident']
    """
    together = cells(records(rows))
    names = list(dict.fromkeys(name for cell in together.values() for name in cell))
    lead = "Confident" if "Confident" in names else names[0]
    lines = []
    for name in names:
        own = {key: cell[name] for key, cell in together.items() if name in cell}
        open_cells = {k: v for k, v in own.items() if not v[0]["punishes"]}
        punish = {k: v for k, v in own.items() if v[0]["punishes"]}
        apart = [
            unit(part) - unit(together[key][lead])
            for key, part in open_cells.items() if len(part) == len(together[key][lead])
        ]  # fmt: skip
        low, high = _interval(apart)
        every = [row for part in own.values() for row in part]
        lines.append({
            "learner": name, "mean": _over(open_cells, "mean"),
            "cvar": _over(open_cells, "cvar 5 %"), "cvar 1 %": _over(open_cells, "cvar 1 %"),
            f"to {lead}": float(np.mean([a.mean() for a in apart])) if apart else math.nan,
            "low": low, "high": high, "below": _over(open_cells, "below"),
            "below where punished": _over(punish, "below"),
            "worst cell": max((METRICS["below"](p) for p in own.values()), default=math.nan),
            "changed": _over(own, "changed"), "promises": _over(own, "promised"),
            "broken": _kept(open_cells), "broken where punished": _kept(punish),
            "failed": sum(bool(row["failed"]) for row in every) / len(every),
            "seconds": float(np.mean([row["seconds"] for row in every])),
        })  # fmt: skip
    return table_of(
        lines, "The suite",
        "mean and CVaR 5 % of the true gain in shares of the best gain, over cells (problem and "
        f"size) where something can be gained; to {lead}: mean difference over the same logs, with "
        "its 95 % interval (bootstrap of logs within cells); below: share of logs whose policy is "
        "worse than practice, there, in worlds that punish, and in the worst cell of all; changed: "
        "share of steps; promises: share of logs with a stated gain above 0; broken: of these, "
        "where it is above the truth, there and in worlds that punish (most of which break what "
        "the promise assumes); failed: share of logs on which it could not learn (practice then "
        "goes on); seconds of a processor a fit. A setting behind a comma is not that of the rule: "
        "it is there for a choice in hindsight.",
    )  # fmt: skip


def _over(parts: Mapping[Any, list[Row]], metric: str) -> float:
    """The mean of a metric over cells; NaN where there are none."""
    return float(np.mean([METRICS[metric](p) for p in parts.values()])) if parts else math.nan


def _kept(parts: Mapping[Any, list[Row]]) -> float:
    """Of all promises in some cells the share that is above the truth; NaN where there are none."""
    rows = [row for part in parts.values() for row in part if row["promised"] is not None]
    return METRICS["broken"](rows) if rows else math.nan


SHOWN = ("learner", "mean", "cvar", "low", "high", "below", "below where punished", "broken")
"""What a screen has room for."""


def brief(table: Table) -> Table:
    """The summary as a table that fits on a screen.

    Args:
        table: A table that `summarise` made.

    Returns:
        The same rows, the best mean first, with fewer columns.

    Example:
        >>> row = dict.fromkeys(SHOWN, 0.5) | {"learner": "LCB", "seconds": 0.1}
        >>> "seconds" in brief(table_of([row])).columns
        False
    """
    rows = sorted(table.to_dicts(), key=lambda row: -row["mean"])
    return table_of(
        [{name: row[name] for name in SHOWN} for row in rows], table.caption, table.note
    )


def _interval(apart: Sequence[Any]) -> tuple[float, float]:
    """The 95 % interval of the mean over cells of paired differences, logs drawn within cells."""
    if not apart:
        return math.nan, math.nan
    rng = np.random.default_rng(0)
    draws = np.mean([a[rng.integers(0, len(a), (400, len(a)))].mean(axis=1) for a in apart], axis=0)
    low, high = np.percentile(draws, [2.5, 97.5])
    return float(low), float(high)


def figure(rows: Rows) -> Any:
    """Mean gain against the share of logs below practice, one point per learner.

    Args:
        rows: The rows of all tasks, as columns.

    Returns:
        A matplotlib figure.

    Example:
        >>> task = {"world": "care pathway", "number": 0, "n": 50, "seed": 0, "logs": 2, "own": "",
        ...         "code": "", "hindsight": False, "names": ["BC", "LCB"]}
        >>> found = run_task(task)
        >>> len(figure({k: np.array([r[k] for r in found]) for k in found[0]}).axes)
        1
    """
    drawn, axes = plot.grid(1, 1)
    for row in summarise(rows):
        if ", " not in row["learner"] or row["learner"] in OWN:
            axes[0, 0].plot([row["below"]], [row["mean"]], "o")
            axes[0, 0].annotate(row["learner"], (row["below"], row["mean"]))
    axes[0, 0].set_xlabel("share of logs below practice")
    axes[0, 0].set_ylabel("mean gain, in shares of the best")
    return drawn


def experiment(
    learner: str = "",
    *,
    check: bool = False,
    hindsight: bool = False,
    names: Sequence[str] | None = None,
) -> Experiment:
    """The suite as an experiment, which `dprl_studies.harness.reproduce` runs.

    Args:
        learner: A learner of your own, "module:Class". Default '': none.
        check: Whether to use the problems and logs that are kept for checking. Default False.
        hindsight: Whether to run the other settings of the rivals too. Default False.
        names: The rivals, of `LEARNERS`. Default None: all.

    Returns:
        The experiment.

    Raises:
        ParameterError: There is no such rival.

    Example:
        >>> len(experiment(names=["BC"]).settings(True, 0)) > 20
        True
    """
    for name in names or ():
        if name not in LEARNERS:
            raise ParameterError(
                f"there is no rival {name!r} in the suite.", do=f"There are {', '.join(LEARNERS)}."
            )
    settings = functools.partial(
        _settings, own=learner, check=check, hindsight=hindsight, names=tuple(names or LEARNERS)
    )
    return Experiment(
        name="bench", question="Who improves on practice, and who is safe, over the whole suite?",
        settings=settings, run=run_task, summary=summarise, figure=figure, brief=brief, page=page,
    )  # fmt: skip


# -- the page --------------------------------------------------------------------------------------

SORTED = """<script>
document.querySelectorAll("table.bench th").forEach((th) => th.addEventListener("click", () => {
  const table = th.closest("table"), at = th.cellIndex, up = th.dataset.up !== "1";
  const key = (tr) => tr.cells[at].dataset.v ?? tr.cells[at].textContent;
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const x = parseFloat(key(a)), y = parseFloat(key(b));
    return isNaN(x) || isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
  });
  th.dataset.up = up ? "1" : "0";
  (up ? rows : rows.reverse()).forEach((tr) => table.tBodies[0].append(tr));
}));
</script>"""


def _shown(table: Table) -> str:
    """A table that a click on a column sorts."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    body = "".join(
        "<tr>" + "".join(
            f'<td data-v="{value}">{value:.3f}</td>' if isinstance(value, float)
            else f"<td>{html.escape(str(value))}</td>" for value in row.values()
        ) + "</tr>"
        for row in table
    )  # fmt: skip
    return f'<table class="bench"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def by_cell(rows: Rows, metric: str) -> Table:
    """A metric of every learner in the setting of the rule, in every cell.

    Args:
        rows: The rows of all tasks, as columns.
        metric: One of the metrics of a contest.

    Returns:
        One row per cell, one column per learner.

    Example:
        >>> task = {"world": "care pathway", "number": 0, "n": 50, "seed": 0, "logs": 2, "own": "",
        ...         "code": "", "hindsight": False, "names": ["BC"]}
        >>> found = run_task(task)
        >>> by_cell({k: np.array([r[k] for r in found]) for k in found[0]}, "below")["n"]
        [50]
    """
    lines = [
        {"problem": problem, "n": n, **{
            name: METRICS[metric](part) for name, part in cell.items()
            if ", " not in name or name in OWN
        }}
        for (problem, n), cell in cells(records(rows)).items()
    ]  # fmt: skip
    names = list(dict.fromkeys(name for line in lines for name in line))
    return table_of([{name: line.get(name, math.nan) for name in names} for line in lines], metric)


def losses(rows: Rows, ours: str = "Confident") -> list[str]:
    """Where another learner is better than ours, in sentences, the worst first.

    Args:
        rows: The rows of all tasks, as columns.
        ours: Our learner. Default "Confident".

    Returns:
        One sentence per cell in which a learner in the setting of its rule that is not below
        practice more often gains more, by more than chance.

    Example:
        >>> row = {"problem": "maze", "n": 20, "learner": "BC", "number": 0, "dataset": 0,
        ...        "value": 1.0, "practice": 1.0, "best": 2.0, "promised": np.nan}
        >>> losses({name: np.array([value]) for name, value in row.items()})
        []
    """
    found = []
    for (problem, n), cell in cells(records(rows)).items():
        if ours not in cell or cell[ours][0].get("punishes"):
            continue
        own, safe = unit(cell[ours]), METRICS["below"](cell[ours])
        for name, part in cell.items():
            if (", " in name and name not in OWN) or len(part) != len(own):
                continue
            apart = unit(part) - own
            low, _ = _interval([apart])
            if low > 0.02 and METRICS["below"](part) <= safe:
                found.append((float(apart.mean()), problem, n, name, own.mean(), unit(part).mean()))
    best: dict[tuple[str, int], tuple[Any, ...]] = {}
    for one in sorted(found, key=lambda one: -one[0]):
        best.setdefault((one[1], one[2]), one)
    return [
        f"{problem}, {n:,} episodes: {name} reaches {theirs:.2f} of the way to the best policy, "
        f"{ours} {mine:.2f}, over the same logs, and is no more often below practice."
        for _, problem, n, name, mine, theirs in best.values()
    ]


def page(rows: Rows, facts: dict[str, Any]) -> str:
    """The page of the docs: where ours loses, advice by kind of user, and the tables.

    Args:
        rows: The rows of all tasks, as columns.
        facts: What settings.json says of the run.

    Returns:
        Markdown.

    Example:
        >>> task = {"world": "care pathway", "number": 0, "n": 50, "seed": 0, "logs": 2, "own": "",
        ...         "code": "", "hindsight": False, "names": ["BC", "Confident"]}
        >>> found = run_task(task)
        >>> page({k: np.array([r[k] for r in found]) for k in found[0]}, {})[:11]
        '# The suite'
    """
    table, lost = summarise(rows), losses(rows)
    plain = [row for row in table if ", " not in row["learner"] or row["learner"] in OWN]
    few, many = _few_and_many(rows)
    stated = sorted((r for r in plain if r["promises"] > 0), key=lambda r: -r["mean"])
    keys = ("problem", "n", "number", "dataset")
    logs = len(set(zip(*(rows[key].tolist() for key in keys), strict=True)))
    promises = ", ".join(
        f"{r['learner']} (states a gain on {r['promises']:.0%} of logs; above the truth in "
        f"{r['broken']:.1%} of these, {r['broken where punished']:.1%} in worlds that punish)"
        for r in stated
    )
    how = " (quick)" if facts.get("quick") else ""
    return "\n".join([
        "# The suite",
        "",
        "Every learner on the same logs of problems whose true values are known. `dprl bench "
        "--learner my_module:MyLearner` runs it with yours, and this page is what it writes.",
        "",
        "## Where ours loses",
        "",
        *([f"- {line}" for line in lost] or ["Nowhere beyond chance in this run."]),
        "",
        "## Which for whom",
        "",
        f"- *Few episodes* (the smallest size of each problem): {few}.",
        f"- *Many episodes* (the largest): {many}.",
        f"- *Promises needed*: {promises or 'nobody states any'}.",
        "",
        "Where promises were above the truth (what the state hides, drift and losses that the log "
        "has not met yet break what promises assume):",
        "",
        *([f"- {line}" for line in broken_in(rows)] or ["- nowhere in this run."]),
        "",
        "## All learners",
        "",
        "A click on a column sorts by it.",
        "",
        "```{raw} html",
        _shown(table),
        "<h2>Mean gain in every cell</h2>",
        _shown(by_cell(rows, "mean")),
        "<h2>Share of logs below practice in every cell</h2>",
        _shown(by_cell(rows, "below")),
        SORTED,
        "```",
        "",
        f"{table.note} {logs:,} logs, seed {facts.get('seed', 0)}{how}. Not in it: {NOT_HERE}.",
        "",
    ])  # fmt: skip


def broken_in(rows: Rows) -> list[str]:
    """In which cells promises were above the truth, in sentences.

    Args:
        rows: The rows of all tasks, as columns.

    Returns:
        One sentence per learner that broke one.

    Example:
        >>> row = {"problem": "maze", "n": 20, "learner": "BC", "number": 0, "dataset": 0,
        ...        "value": 1.0, "practice": 1.0, "best": 2.0, "promised": 0.1}
        >>> broken_in({name: np.array([value]) for name, value in row.items()})
        ['BC: maze (1 of 1 promise on 1 log of 20 episodes).']
    """
    found: dict[str, list[str]] = {}
    for (problem, n), cell in cells(records(rows)).items():
        for name, part in cell.items():
            made = [row for row in part if row["promised"] is not None]
            wrong = round(METRICS["broken"](made) * len(made)) if made else 0
            if wrong:
                s, logs = "s" * (len(made) > 1), f"{len(part)} log{'s' * (len(part) > 1)}"
                found.setdefault(name, []).append(
                    f"{problem} ({wrong} of {len(made)} promise{s} on {logs} of {n:,} episodes)"
                )
    return [f"{name}: {', '.join(where)}." for name, where in found.items()]


def _few_and_many(rows: Rows) -> tuple[str, str]:
    """The three best by mean gain at the smallest and the largest size of every problem."""
    together = {
        k: c for k, c in cells(records(rows)).items() if not next(iter(c.values()))[0]["punishes"]
    }
    answers = []
    for pick in (min, max):
        ends = {p: pick(n for q, n in together if q == p) for p, _ in together}
        means: dict[str, list[tuple[float, float]]] = {}
        for problem, n in ends.items():
            for name, part in together[problem, n].items():
                if ", " not in name or name in OWN:
                    means.setdefault(name, []).append(
                        (METRICS["mean"](part), METRICS["below"](part))
                    )
        ranked = sorted(means.items(), key=lambda item: -np.mean([m for m, _ in item[1]]))[:3]
        answers.append(", ".join(
            f"{name} (mean {np.mean([m for m, _ in own]):.2f}, below practice in "
            f"{np.mean([b for _, b in own]):.0%} of logs)" for name, own in ranked
        ))  # fmt: skip
    return answers[0], answers[1]
