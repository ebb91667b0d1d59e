"""`dprl icu`: from MIMIC tables to logs; and simulated tables, for people without MIMIC."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from dprl._core.disk import check_target
from dprl.apps.cli._app import command
from dprl.apps.cli.console import progress, show
from dprl.apps.cli.options import Json, MaybeWhole, Whole

__all__ = ["group"]

group = App(
    name="icu",
    help="""Hypotension in intensive care: from MIMIC tables to logs.

    dprl icu build mimic-iv --out stays.parquet
    dprl icu split stays.parquet --out splits --seed 0

Without access to MIMIC: `dprl icu simulate --out tables` makes tables of the same layout.
""",
)
command(group)

Threads = Annotated[
    MaybeWhole, Parameter(help="Number of threads; the result does not depend on it.")
]
Temp = Annotated[Path | None, Parameter(help="A folder with room for temporary files.")]


@group.command
def build(
    folder: Path,
    /,
    *,
    out: Annotated[Path, Parameter(help="The table of decisions, a .parquet file.")] = Path(
        "stays.parquet"
    ),
    memory: Annotated[str, Parameter(help="Memory limit; the rest goes to disk.")] = "4GB",
    threads: Threads = None,
    temp: Temp = None,
    items: Annotated[
        Path | None, Parameter(help="A CSV file of item codes in place of MIMIC's.")
    ] = None,
    horizon: Annotated[Whole, Parameter(help="Hours of each stay that are used.")] = 72,
    low_map: Annotated[float, Parameter(help="A mean pressure below this is low, mmHg.")] = 65.0,
    low_n: Annotated[
        Whole, Parameter(help="Low pressures that a stay must have to be included.")
    ] = 7,
    json: Json = False,
) -> int:
    """Build the hypotension cohort: one hourly treatment decision per row.

    Prints the flow of counts and the data dictionary, and writes both beside the table. Values
    never charted stay missing: `dprl icu split` fills them from the training patients.

    Example: `dprl icu build physionet/mimic-iv --out stays.parquet --memory 8GB`

    Args:
        folder: MIMIC-IV (with icu/ and hosp/) or MIMIC-III tables: .csv.gz, .csv or .parquet.
    """
    from dprl.studies import icu

    rules = icu.Cohort(horizon=horizon, low_map=low_map, low_n=low_n)
    with progress() as tell:
        built = icu.build(
            folder, out, cohort=rules, items=items, memory=memory, threads=threads, temp=temp,
            progress=tell,
        )  # fmt: skip
    text = f"{built}\n\n{icu.dictionary()}\n\nSaved as {out}."
    show(built.to_dict() if json else text, json)
    return 0


@group.command
def split(
    stays: Path,
    /,
    *,
    out: Annotated[Path, Parameter(help="A folder for train, valid and test.")],
    seed: Annotated[Whole, Parameter(help="Seed of the split.")] = 0,
    shares: Annotated[
        tuple[float, float, float],
        Parameter(help="Shares of the patients: training, validation, test."),
    ] = (0.25, 0.25, 0.5),
    edges: Annotated[
        Literal["published", "terciles"],
        Parameter(help="Vasopressor levels: the published edges, or terciles in training."),
    ] = "published",
    reward: Annotated[
        Literal["published", "shortfall"],
        Parameter(help="published: 0 to 1; shortfall: the same minus 1."),
    ] = "published",
    bolus_cost: Annotated[
        float, Parameter(help="Subtracted from the reward per level of bolus, such as 0.05.")
    ] = 0.0,
    vasopressor_cost: Annotated[
        float, Parameter(help="Subtracted per level of vasopressor and hour, such as 0.03.")
    ] = 0.0,
    json: Json = False,
) -> int:
    """Split by patient and fill what is missing from the training patients alone.

    Writes train.parquet, valid.parquet and test.parquet, logs for `dprl check` and `dprl fit`;
    preparation.json with the medians and edges; and dprl.toml with column names and weights: run
    `dprl fit train.parquet` in that folder.

    Example: `dprl icu split stays.parquet --out splits --seed 0`

    Args:
        stays: A table that `dprl icu build` wrote.
    """
    from dprl.studies import icu
    from dprl.studies.icu.preparation import WRITTEN, write_splits

    check_target(*(out / name for name in WRITTEN))
    costs = icu.Costs(bolus_cost, vasopressor_cost)
    data = icu.prepare(
        icu.read_stays(stays), seed=seed, shares=shares, edges=edges, reward=reward,
        costs=None if costs == icu.Costs(0, 0) else costs,
    )  # fmt: skip
    facts = write_splits(data, out, seed=seed, shares=shares)
    lines = [f"{name:<5}  {getattr(data, name)!r}" for name in ("train", "valid", "test")]
    lines += [f"note: {note}" for note in data.preparation.notes]
    show(facts if json else "\n".join([*lines, "", f"Saved in {out}."]), json)
    return 0


@group.command
def simulate(
    *,
    out: Annotated[Path, Parameter(help="A folder; it gets icu/ and hosp/.")],
    stays: Annotated[Whole, Parameter(help="Number of stays, of about as many patients.")] = 2000,
    seed: Annotated[Whole, Parameter(help="Seed of everything random.")] = 0,
    json: Json = False,
) -> int:
    """Write tables in the layout of MIMIC-IV, of invented patients whose best treatment is known.

    Example: `dprl icu simulate --stays 2000 --out tables --seed 0`
    """
    from dprl.studies.icu.simulation import simulate as run

    with progress() as tell:
        made = run(out, stays=stays, seed=seed, progress=tell)
    lines = [f"{name}: {rows:,} rows" for name, rows in made["tables"].items()]
    lines += ["", f"Saved in {out}. Next: dprl icu build {out} --out stays.parquet"]
    show(made if json else "\n".join(lines), json)
    return 0
