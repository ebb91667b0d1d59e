"""From stays.parquet to logs for learners: split by patient, filled from training alone.

In stays.parquet a value that was never charted is missing, so that nobody fills it by accident with
numbers from the wrong patients: `dprl.read` refuses the file. A `Preparation` is fitted on the
training split; the same one then makes the log of every split.

    medians        the median of each measured feature, over the training decisions that have it
    usual_map      the training median of the mean pressure, for rewards where none is charted
    edges          the limits of the action levels: published, or terciles of the training doses

Stays differ in length and the reward of an hour is nearly 1, so a return mostly says how many hours
were left, which no feature shows. `reward="shortfall"` is the same reward minus 1 (a good hour
costs nothing): returns then compare how hours went, not how many there were. `costs=Costs()`
subtracts from either what the treatment of the hour costs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import check_choice
from dprl._core.database import connect
from dprl._core.disk import check_target, replacing, together
from dprl.errors import LogError, ParameterError
from dprl.logs._io import write
from dprl.logs.log import CUT, TERMINAL, Log
from dprl.logs.reading.frames import quoted
from dprl.logs.reading.paths import columns_of_files, literal
from dprl_studies.icu.dictionary import COLUMNS, FEATURES, RAW, WEIGHTS, Costs, check_costs
from dprl_studies.icu.stays import Cohort, check_edges, run_sql, set_variables

# --- `Stays`: the decisions of some or all patients in a file that `build` wrote


@dataclass(frozen=True)
class Stays:
    """The decisions of some or all patients of a file.

    Attributes:
        path: A file that `build` wrote.
        subjects: The identifiers of the patients, sorted.
        n_stays: Number of their stays.
        n_decisions: Number of their decisions.

    Example:
        >>> Stays(Path("stays.parquet"), (1, 2, 3), 4, 200)
        Stays: 4 stays of 3 patients · 200 decisions
    """

    path: Path
    subjects: tuple[int, ...]
    n_stays: int
    n_decisions: int

    def __repr__(self) -> str:
        return (
            f"Stays: {self.n_stays:,} stays of {len(self.subjects):,} patients · "
            f"{self.n_decisions:,} decisions"
        )

    def split(self, shares: Sequence[float] = (0.25, 0.25, 0.5), *, seed: int) -> tuple[Stays, ...]:
        """Split the patients at random; every patient is in exactly one part.

        Args:
            shares: Share of the patients in each part; above 0, adding up to 1. Default
                (0.25, 0.25, 0.5).
            seed: Seed of the split.

        Returns:
            One `Stays` per share.

        Raises:
            ParameterError: The shares are not above 0 or do not add up to 1.
            LogError: There are too few patients for so many parts.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import dprl
            >>> temporary = tempfile.TemporaryDirectory()
            >>> folder = Path(temporary.name)
            >>> tables = dprl.icu.simulate(folder / "tables", stays=12, seed=0)
            >>> built = dprl.icu.build(folder / "tables", folder / "stays.parquet")
            >>> one, other = dprl.icu.read_stays(built.path).split((0.5, 0.5), seed=0)
            >>> one
            Stays: 6 stays of 6 patients · 327 decisions
            >>> temporary.cleanup()
        """
        if len(shares) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise ParameterError(f"shares must be above 0 and add up to 1; got {tuple(shares)!r}.")
        n = len(self.subjects)
        ends = np.round(np.cumsum(shares) * n).astype(int)
        if (np.diff(np.concatenate(([0], ends))) < 1).any():
            raise LogError(
                f"{n} patients cannot be split into {len(shares)} parts of {tuple(shares)}.",
                do="A patient is never torn apart; use fewer parts, or more patients.",
            )
        order = np.random.default_rng(seed).permutation(n)
        parts = np.split(order, ends[:-1])
        return tuple(_stays(self.path, [self.subjects[i] for i in part]) for part in parts)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open a DuckDB connection for queries about these decisions; use it in a `with` block.

        The view `decisions` has one row per decision and the columns of `dprl.icu.dictionary()`,
        without the levels of the treatments and the reward, which a `Preparation` computes.

        Yields:
            The connection; it is closed at the end of the block.

        Example:
            >>> import dprl
            >>> tables = dprl.icu.simulate("tables", stays=12, seed=0)
            >>> built = dprl.icu.build("tables", "stays.parquet")
            >>> with dprl.icu.read_stays("stays.parquet").open() as con:
            ...     con.execute("SELECT count(*), max(hour) FROM decisions").fetchone()
            (675, 70)
        """
        computed = ("bolus", "vasopressor", "last_bolus", "last_vasopressor", "reward")
        names = ", ".join(name for name in COLUMNS if name not in computed)
        with connect(files=[self.path]) as con:
            con.execute("CREATE TABLE chosen AS SELECT unnest($1::BIGINT[]) AS subject_id",
                        [list(self.subjects)])  # fmt: skip
            con.execute(
                f"CREATE VIEW decisions AS SELECT {names} FROM "
                f"{_scan(self.path)} "
                "SEMI JOIN chosen USING (subject_id)"
            )
            yield con


def _scan(path: Path) -> str:
    """SQL that reads exactly this file (no pattern, no partitions)."""
    return f"read_parquet({quoted(literal(path), chr(39))}, hive_partitioning=false)"


def read_stays(path: str | os.PathLike[str]) -> Stays:
    """Open a file of decisions that `build` wrote; the rows stay on disk.

    Args:
        path: The Parquet file.

    Returns:
        The decisions of all its patients.

    Raises:
        LogError: There is no such file, it is not Parquet, or it lacks columns.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import dprl
        >>> temporary = tempfile.TemporaryDirectory()
        >>> folder = Path(temporary.name)
        >>> tables = dprl.icu.simulate(folder / "tables", stays=12, seed=0)
        >>> built = dprl.icu.build(folder / "tables", folder / "stays.parquet")
        >>> dprl.icu.read_stays(built.path)
        Stays: 12 stays of 11 patients · 675 decisions
        >>> temporary.cleanup()
    """
    import duckdb

    file = Path(path)
    if not file.is_file():
        raise LogError(f"there is no file {str(file)!r}.", do="Make it: dprl icu build.")
    try:
        real = file.resolve()
        with connect(files=[real]) as con:
            columns_of_files([str(real)], "parquet", con.execute)  # each column once
            in_file = {row[0] for row in con.sql(f"SELECT * FROM {_scan(real)}").description}
            missing = [name for name in COLUMNS if name not in in_file]
            if not missing:
                patients = con.execute(f"SELECT DISTINCT subject_id FROM {_scan(real)}").fetchall()
    except duckdb.Error as error:
        raise LogError(f"{str(file)!r} is no Parquet file.", str(error).splitlines()[0]) from error
    if missing:
        raise LogError(
            f"{str(file)!r} lacks {len(missing)} columns of a table of stays: "
            f"{', '.join(missing[:6])}.",
            do="Make it with dprl icu build.",
        )
    return _stays(file, [row[0] for row in patients])


def _stays(path: Path, subjects: Sequence[int]) -> Stays:
    """The stays of these patients, with their counts."""
    chosen = Stays(path, tuple(sorted(subjects)), 0, 0)
    with chosen.open() as con:
        n = con.execute("SELECT count(DISTINCT stay_id), count(*) FROM decisions").fetchone()
    return Stays(path, chosen.subjects, int(n[0]), int(n[1]))


# --- From stays.parquet to logs for learners: split by patient, filled from training alone

ACTIONS = tuple(f"bolus {b}, vasopressor {v}" for b in range(4) for v in range(4))
"""The 16 treatments: level of bolus, level of vasopressor."""

PARTS = {
    "episode": "stay_id", "group": "subject_id", "time": "hour", "action": "action",
    "reward": "reward", "ended": "ended",
}  # fmt: skip
"""Part of a log → name of its column in the file of a prepared log."""

Edges = Literal["published", "terciles"]
Reward = Literal["published", "shortfall"]


@dataclass(frozen=True)
class Preparation:
    """How missing values are filled and doses become levels; from the training split alone.

    Attributes:
        medians: Measured feature → its median in the training split, in the feature's unit.
        bolus_edges: Upper edges of bolus levels 1 and 2, mL.
        vasopressor_edges: Upper edges of vasopressor levels 1 and 2, mcg/kg per hour.
        reward: "published" (default), in [0, 1]; or "shortfall", the same minus 1.
        notes: What was unusual, in sentences. Default: none.
        costs: What treatment costs; subtracted from the reward. Default None: nothing.

    Example:
        >>> preparation = Preparation({"map": 70.0}, (500.0, 1000.0), (8.1, 21.58))
        >>> preparation.reward
        'published'
    """

    medians: dict[str, float]
    bolus_edges: tuple[float, float]
    vasopressor_edges: tuple[float, float]
    reward: Reward = "published"
    notes: tuple[str, ...] = ()
    costs: Costs | None = None

    @classmethod
    def fit(
        cls,
        train: Stays,
        *,
        edges: Edges = "published",
        reward: Reward = "published",
        costs: Costs | None = None,
        cohort: Cohort | None = None,
    ) -> Preparation:
        """Fit on the training split.

        Args:
            train: The decisions of the training patients.
            edges: Edges of the vasopressor levels: "published" (default), or "terciles" of the
                training doses above 0.
            reward: "published" (default), in [0, 1]; or "shortfall", the same minus 1, so that a
                good hour costs nothing.
            costs: What treatment costs; subtracted from the reward. Default None: nothing.
            cohort: The rules that hold the published edges. Default None: `Cohort()`.

        Returns:
            The preparation.

        Raises:
            ParameterError: `edges` or `reward` is none of these, or `costs` is no `Costs`.
            LogError: No mean pressure is known in the training split, or there are no vasopressor
                doses to take terciles of.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import dprl
            >>> temporary = tempfile.TemporaryDirectory()
            >>> folder = Path(temporary.name)
            >>> tables = dprl.icu.simulate(folder / "tables", stays=12, seed=0)
            >>> built = dprl.icu.build(folder / "tables", folder / "stays.parquet")
            >>> preparation = dprl.icu.Preparation.fit(dprl.icu.read_stays(built.path))
            >>> preparation.medians["map"]
            66.0
            >>> temporary.cleanup()
        """
        check_choice("edges", edges, ("published", "terciles"))
        check_choice("reward", reward, get_args(Reward))
        check_costs(costs)
        rules = cohort or Cohort()
        pressor = rules.vasopressor_edges
        with train.open() as con:
            middle = con.execute(
                f"SELECT {', '.join(f'median({name})' for name in RAW)} FROM decisions"
            ).fetchone()
            if edges == "terciles":
                cuts = con.execute(
                    "SELECT quantile_cont(vasopressor_dose, [1/3, 2/3]) FROM decisions "
                    "WHERE vasopressor_dose > 0"
                ).fetchone()[0]
                if cuts is None:
                    raise LogError(
                        "no vasopressor was given in the training split: there are no terciles.",
                        do="Use edges='published'.",
                    )
                pressor = (float(cuts[0]), float(cuts[1]))
                check_edges("terciles of the vasopressor doses", pressor)
        if middle[RAW.index("map")] is None:
            raise LogError(
                f"no mean pressure is known at any of {train.n_decisions:,} training decisions.",
                do="Rewards and states rest on it; use more patients.",
            )
        notes = [
            f"{name!r} is known nowhere in the training split: set to 0 where missing."
            for name, value in zip(RAW, middle, strict=True)
            if value is None
        ]
        medians = {n: 0.0 if v is None else float(v) for n, v in zip(RAW, middle, strict=True)}
        return cls(medians, rules.bolus_edges, pressor, reward, tuple(notes), costs)

    def log(self, stays: Stays) -> Log:
        """The log of any split: 29 features, 16 actions; the patients are the groups.

        Args:
            stays: The decisions of the split.

        Returns:
            The log, with missing values filled by the training medians.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import dprl
            >>> temporary = tempfile.TemporaryDirectory()
            >>> folder = Path(temporary.name)
            >>> tables = dprl.icu.simulate(folder / "tables", stays=12, seed=0)
            >>> built = dprl.icu.build(folder / "tables", folder / "stays.parquet")
            >>> stays = dprl.icu.read_stays(built.path)
            >>> dprl.icu.Preparation.fit(stays).log(stays)
            Log: 12 episodes · 11 groups · 675 steps · 29 features · 16 actions · 6 episodes cut
            >>> temporary.cleanup()
        """
        with stays.open() as con:
            set_variables(
                con,
                bolus_edges=self.bolus_edges,
                vasopressor_edges=self.vasopressor_edges,
                usual_map=self.medians["map"],
            )
            run_sql(con, "actions")
            run_sql(con, "reward")
            rows = con.execute("SELECT * FROM rewarded ORDER BY stay_id, hour").fetchnumpy()
        less = 1.0 if self.reward == "shortfall" else 0.0
        return _log(rows, self.medians, less, self.costs)

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry.

        Returns:
            Attribute name → value.

        Example:
            >>> Preparation({"map": 70.0}, (500.0, 1000.0), (8.1, 21.58)).to_dict()["bolus_edges"]
            [500.0, 1000.0]
        """
        return {
            "medians": self.medians, "bolus_edges": list(self.bolus_edges),
            "vasopressor_edges": list(self.vasopressor_edges), "reward": self.reward,
            "notes": list(self.notes),
            "costs": None if self.costs is None else asdict(self.costs),
        }  # fmt: skip


def _log(rows: dict[str, Any], medians: dict[str, float], less: float, costs: Costs | None) -> Log:
    """The log of some rows (column → values), which are sorted by stay and hour.

    Missing values become the medians; `less` and the costs are subtracted from every reward.
    """
    action = np.asarray(rows["bolus"]) * 4 + np.asarray(rows["vasopressor"])
    reward = np.asarray(rows["reward"], np.float64) - less
    if costs is not None:
        reward = reward - costs.of(action)
    stay = np.asarray(rows["stay_id"])
    episodes, first, lengths = np.unique(stay, return_index=True, return_counts=True)
    subject = np.asarray(rows["subject_id"])[first]
    groups, group = np.unique(subject, return_inverse=True)
    last = np.asarray(rows["ended"])[first + lengths - 1]
    return Log(
        starts=np.concatenate(([0], np.cumsum(lengths))),
        action=action,
        reward=reward,
        actions=ACTIONS,
        features=np.column_stack([_feature(rows, name, medians) for name in FEATURES]),
        feature_names=FEATURES,
        episodes=tuple(episodes.tolist()),
        group=group.astype(np.int32),
        groups=tuple(groups.tolist()),
        time=np.asarray(rows["hour"], np.int64),
        ended=np.where(last == "cut", CUT, TERMINAL),
        columns={**PARTS, "state": list(FEATURES)},
    )


def _feature(rows: dict[str, Any], name: str, medians: dict[str, float]) -> Floats:
    """One feature of every row, (N,); missing values become the median."""
    if name in medians:
        return np.ma.filled(np.ma.asarray(rows[name], np.float64), medians[name])
    if name in rows:
        return np.asarray(rows[name], np.float64)
    what, level = name.rsplit("_", 1)  # last_bolus_2: was the last bolus of level 2?
    return np.asarray(np.asarray(rows[what]) == int(level), np.float64)


@dataclass(frozen=True)
class Prepared:
    """Three logs of different patients, and the preparation that made them.

    Attributes:
        train: The log that learners fit to.
        valid: The log for choosing settings.
        test: The log for evaluation; it must not be used before.
        preparation: Medians and edges, from the training patients alone.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import dprl
        >>> temporary = tempfile.TemporaryDirectory()
        >>> folder = Path(temporary.name)
        >>> tables = dprl.icu.simulate(folder / "tables", stays=12, seed=0)
        >>> built = dprl.icu.build(folder / "tables", folder / "stays.parquet")
        >>> data = dprl.icu.prepare(dprl.icu.read_stays(built.path), seed=0)
        >>> [log.n_episodes for log in (data.train, data.valid, data.test)]
        [3, 3, 6]
        >>> temporary.cleanup()
    """

    train: Log
    valid: Log
    test: Log
    preparation: Preparation


def prepare(
    stays: Stays,
    *,
    seed: int,
    shares: Sequence[float] = (0.25, 0.25, 0.5),
    edges: Edges = "published",
    reward: Reward = "published",
    costs: Costs | None = None,
    cohort: Cohort | None = None,
) -> Prepared:
    """Split by patient, fit the preparation on the first part, and make the logs of all three.

    Args:
        stays: The decisions of all patients.
        seed: Seed of the split.
        shares: Shares of the patients in training, validation and test. Default (0.25, 0.25, 0.5).
        edges: "published" (default) or "terciles", see `Preparation.fit`.
        reward: "published" (default) or "shortfall", see `Preparation.fit`.
        costs: What treatment costs, such as `Costs()`: subtracted from the reward. Default None:
            nothing.
        cohort: The rules that hold the published edges. Default None: `Cohort()`.

    Returns:
        The three logs and the preparation.

    Raises:
        ParameterError: `shares` are not three numbers above 0 that add up to 1, or `costs` is no
            `Costs`.
        LogError: There are too few patients, or the training split cannot be prepared from.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import dprl
        >>> temporary = tempfile.TemporaryDirectory()
        >>> folder = Path(temporary.name)
        >>> tables = dprl.icu.simulate(folder / "tables", stays=12, seed=0)
        >>> built = dprl.icu.build(folder / "tables", folder / "stays.parquet")
        >>> data = dprl.icu.prepare(dprl.icu.read_stays(built.path), seed=0)
        >>> data.train
        Log: 3 episodes · 3 groups · 163 steps · 29 features · 16 actions · 1 episode cut
        >>> temporary.cleanup()
    """
    if len(shares) != 3:
        raise ParameterError(f"shares must be three numbers; got {tuple(shares)!r}.")
    train, valid, test = stays.split(shares, seed=seed)
    fitted = Preparation.fit(train, edges=edges, reward=reward, costs=costs, cohort=cohort)
    return Prepared(fitted.log(train), fitted.log(valid), fitted.log(test), fitted)


WRITTEN = ("train.parquet", "valid.parquet", "test.parquet", "preparation.json", "dprl.toml")
"""The files that `write_splits` writes into its folder."""


def write_splits(
    data: Prepared, folder: Path, *, seed: int, shares: Sequence[float]
) -> dict[str, Any]:
    """Write the three logs, the preparation, and a dprl.toml with the names of their columns.

    Args:
        data: The logs and the preparation.
        folder: Folder for the files of `WRITTEN`; made if it does not exist.
        seed: Seed of the split, for the record.
        shares: Shares of the patients in the three parts, for the record.

    Returns:
        What preparation.json holds (seed, shares, the preparation, and counts of each part), and
        the folder.

    Example:
        >>> import dprl
        >>> tables = dprl.icu.simulate("tables", stays=12, seed=0)
        >>> built = dprl.icu.build("tables", "stays.parquet")
        >>> data = prepare(dprl.icu.read_stays("stays.parquet"), seed=0)
        >>> facts = write_splits(data, Path("logs"), seed=0, shares=(0.25, 0.25, 0.5))
        >>> facts["train"]["decisions"]
        163
    """
    check_target(*(folder / name for name in WRITTEN))
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {"seed": seed, "shares": list(shares), **data.preparation.to_dict()}
    with together():
        for name in ("train", "valid", "test"):
            log: Log = getattr(data, name)
            write(log, folder / f"{name}.parquet")
            facts[name] = {
                "stays": log.n_episodes, "patients": len(log.groups), "decisions": log.n_steps,
                "digest": log.digest(),
            }  # fmt: skip
        with replacing(folder / "preparation.json") as part:
            part.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        with replacing(folder / "dprl.toml") as part:
            part.write_text(_toml(), encoding="utf-8")
    return {**facts, "folder": str(folder)}


def _toml() -> str:
    """The text of dprl.toml: defaults for `dprl check` and `dprl fit` with these logs."""
    weights = ",\n".join(f'  "{name}={weight:g}"' for name, weight in WEIGHTS.items())
    columns = "\n".join(f'{part} = "{name}"' for part, name in PARTS.items())
    return (
        f"[log]\n{columns}\nstate = {json.dumps(list(FEATURES))}\n\n"
        "[fit]\nradius = 10.0\nn_min = 10\ngamma = 0.99\nplan = false\n"
        f'cut = "terminal"\nweight = [\n{weights},\n]\n'
    )
