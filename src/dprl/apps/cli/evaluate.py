"""Commands that say how good a policy is, and how sure that is: gate, evaluate, sweep, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.log_columns import columns_for
from dprl.apps.cli.options import (
    Json,
    LearnerOptions,
    LogOptions,
    OtherColumns,
    Partitions,
    Whole,
    Wholes,
)
from dprl.errors import ParameterError

__all__ = ["evaluate", "gate", "report", "split", "sweep"]

Level = Annotated[float, Parameter(help="Coverage of the intervals, between 0 and 1.")]
Draws = Annotated[Whole, Parameter(help="Number of bootstrap draws.")]
Seed = Annotated[Whole, Parameter(help="Seed of everything random.")]
Values = Annotated[
    bool, Parameter(help="Fit a model of values too (DM, DR, WDR); slow where states are features.")
]


def gate(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    *,
    lowest: Annotated[float, Parameter(help="The lowest return there can be.")],
    highest: Annotated[float, Parameter(help="The highest return there can be.")],
    delta: Annotated[float, Parameter(help="Probability with which the claim may fail.")] = 0.05,
    margin: Annotated[float, Parameter(help="Advantage that a suggestion must exceed.")] = 0.0,
    mode: Annotated[
        Literal["swap-split", "in-sample"],
        Parameter(help="Which part of the log proposes and certifies."),
    ] = "swap-split",
    states_fixed: Annotated[
        bool,
        Parameter(
            help="Declare that states, gamma, n-min and the range were fixed without looking at "
            "returns (in-sample needs it).",
            negative="",
        ),
    ] = False,
    horizon: Annotated[
        Whole | None, Parameter(help="Most steps of an episode (group); for in-sample.")
    ] = None,
    seed: Annotated[Whole, Parameter(help="Seed of the split.")] = 0,
    out: Annotated[Path, Parameter(help="Where to save the gated policy.")] = Path("gated.dprl"),
    json: Json = False,
) -> int:
    """Keep only the suggestions that a log proves to improve on usual practice.

    State --lowest and --highest from what rewards can be, never from the returns in the log.

    Example: `dprl gate policy.dprl visits.csv --lowest 0 --highest 1`

    Args:
        policy: A policy file; usually with the log it was fitted to.
        files: CSV or Parquet files, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl.policies._load import deferring, read_like

    refuse_overwrite(out, policy, *files)
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "gate")
    with progress() as tell, warned() as said:
        data = read_like(fitted, files, tell, **named)
        tell("certifying", 0.0)
        gated = dprl.gate(
            fitted, data, delta=delta, value_range=(lowest, highest), margin=margin, mode=mode,
            states_fixed=states_fixed, horizon=horizon, seed=seed,
        )  # fmt: skip
        gated.save(out)
    proved = gated.certificate
    if json and proved is not None:
        show({**gated.summary(), "policy": str(out), "digest": gated.digest(),
              "certificate": proved.to_dict(), "warnings": said}, json)  # fmt: skip
        return 0
    caution(said)
    show(f"before: {fitted}\nafter:  {gated}\n\n{proved}\n\nSaved as {out}.", json)
    return 0


def evaluate(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    *,
    gamma: Annotated[
        float | None, Parameter(help="Discount per step; by default the policy's own.")
    ] = None,
    cut: Annotated[
        Literal["drop", "bootstrap", "terminal"] | None,
        Parameter(help="How to treat cut episodes; by default as in the policy's training."),
    ] = None,
    level: Level = 0.95,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    lowest: Annotated[
        float | None, Parameter(help="The lowest return there can be; estimates below are marked.")
    ] = None,
    highest: Annotated[
        float | None, Parameter(help="The highest return; give both or neither.")
    ] = None,
    allow_seen: Annotated[
        bool, Parameter(help="Evaluate even on a log the policy was made from.", negative="")
    ] = False,
    json: Json = False,
) -> int:
    """Estimate from held-out episodes what a policy is worth, beside usual practice.

    Example: `dprl evaluate policy.dprl held-out.parquet`

    Args:
        policy: A policy file.
        files: CSV or Parquet files the policy was not learned from, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl.policies._load import read_like

    if (lowest is None) != (highest is None):
        raise ParameterError("--lowest and --highest come together.", do="Give both, or neither.")
    fitted = dprl.load(policy)
    named = columns_for(fitted, columns, "evaluate")
    with progress() as tell, warned() as said:
        data = read_like(fitted, files, tell, **named)
        found = dprl.evaluate(
            fitted, data, gamma=gamma, cut=cut, level=level, draws=draws, seed=seed, values=values,
            allow_seen=allow_seen, progress=tell,
            value_range=None if lowest is None or highest is None else (lowest, highest),
        )  # fmt: skip
    if json:
        facts = found.to_dict()
        show({**facts, "warnings": [*said, *facts["warnings"]]}, as_json=True)
        return 0
    caution(said)
    show(f"{fitted!r}\n{found}", as_json=False)
    return 0


def split(
    files: list[str],
    /,
    *,
    by: Annotated[str, Parameter(help="Column whose rows stay together: patient or episode.")],
    out: Annotated[Path, Parameter(help="A folder for train and test.")],
    fraction: Annotated[
        float, Parameter(help="Share of the patients or episodes to learn from.")
    ] = 0.5,
    seed: Seed = 0,
    partitions: Partitions = False,
    json: Json = False,
) -> int:
    """Split a table by whole patients or episodes: some to learn from, the rest to judge by.

    Writes train and test, CSV or Parquet as the table is, with every column as it came. The same
    values and seed give the same sides, whatever the order of the rows.

    Example: `dprl split visits.csv --by patient --out parts`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    from dprl.logs._split import split_table

    with progress() as tell, warned() as said:
        found = split_table(
            files, by, out, fraction=fraction, seed=seed, partitions=partitions, progress=tell
        )
    lines = [
        f"{side:<5}  {found[side]['kept']:,} of {by!r}, {found[side]['rows']:,} rows: "
        f"{found[side]['file']}"
        for side in ("train", "test")
    ]
    if not json:
        caution(said)
    show({**found, "warnings": said} if json else "\n".join(lines), json)
    return 0


def sweep(
    files: list[str],
    /,
    log: LogOptions,
    learning: LearnerOptions,
    *,
    n_min: Annotated[
        Wholes,
        Parameter(help="Values to try: --n-min 10 20 50.", consume_multiple=True, negative=""),
    ],
    radius: Annotated[
        list[float] | None,
        Parameter(help="For features: values to try.", consume_multiple=True, negative=""),
    ] = None,
    valid: Annotated[
        list[str] | None,
        Parameter(
            help="Files of held-out episodes to judge on; by default the files are split.",
            consume_multiple=True,
            negative="",
        ),
    ] = None,
    share: Annotated[
        float, Parameter(help="Without --valid: share of the groups to learn from.")
    ] = 0.5,
    estimator: Annotated[
        str | None, Parameter(help="Estimator to show; default DR, or WPDIS without values.")
    ] = None,
    rule: Annotated[
        Literal["cautious", "lower-end", "bold"] | None,
        Parameter(help="Pick a setting by this rule, and save its policy."),
    ] = None,
    out: Annotated[Path, Parameter(help="File for the picked policy.")] = Path("policy.dprl"),
    delta: Annotated[
        float | None,
        Parameter(help="Also certify every setting; all claims together may fail so often."),
    ] = None,
    lowest: Annotated[float | None, Parameter(help="With --delta: the lowest return.")] = None,
    highest: Annotated[float | None, Parameter(help="With --delta: the highest return.")] = None,
    figure: Annotated[
        Path | None, Parameter(help="Figure of the settings: .png, .svg or .pdf.")
    ] = None,
    level: Level = 0.95,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    json: Json = False,
) -> int:
    """Try several n_min (and radius), and judge each policy on held-out episodes.

    Rules: **cautious** the largest n_min, **lower-end** the largest lower end, **bold** the most
    steps at which it differs from practice; each only among settings whose interval lies above 0
    and whose effective sample size where it matters is at least 30. What is picked must be judged
    on other episodes again: `dprl evaluate` refuses those used here.

    Example: `dprl sweep train.csv --valid valid.csv --episode patient --state stage --action drug
    --reward score --gamma 0.99 --n-min 10 20 50 --rule cautious`

    Args:
        files: CSV or Parquet files to learn from, or patterns in quotes.
    """
    import dprl

    for path in (out, figure):
        if path is not None and not path.parent.is_dir():
            raise ParameterError(
                f"the folder of {str(path)!r} does not exist.", do="Make it first."
            )
    for path in (out if rule else None, figure, figure and figure.with_suffix(".parquet")):
        refuse_overwrite(path, *files, *(valid or ()))
    learner = learning.learner(n_min[0] if n_min else 1, radius[0] if radius else None)
    columns: dict[str, Any] = log.options(radius is not None)
    with progress() as tell, warned() as said:
        data = dprl.read(files, **columns, progress=tell)
        learning.check(data, radius)
        if valid is None:
            train, held = data.split(share, seed=seed)
        else:
            train, held = data, dprl.read(valid, **columns, progress=tell)
        found = dprl.sweep(
            learner, train, held, n_min=n_min, radius=radius, estimator=estimator, level=level,
            draws=draws, seed=seed, values=values, delta=delta,
            value_range=None if lowest is None or highest is None else (lowest, highest),
            progress=tell,
        )  # fmt: skip
        if figure is not None:
            found.plot(figure)
    picked: dict[str, Any] | None = None
    if not json:
        caution(dict.fromkeys(said))
        show(str(found), as_json=False)
    if rule is not None:
        policy = found.pick(rule)
        policy.save(out)
        chosen = {k: v for k, v in policy.provenance["sweep"].items() if k != "sample"}
        picked = {"policy": str(out), "digest": policy.digest(), **chosen}
    if json:
        facts = {**found.to_dict(), "picked": picked, "warnings": list(dict.fromkeys(said))}
        show(facts, as_json=True)
    elif picked is not None:
        show(f"\nPicked {picked['rule']}: {picked['words']}.\n{policy}\nSaved as {out}.", False)
    return 0


def report(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    *,
    out: Annotated[Path, Parameter(help="File for the report.")] = Path("review.html"),
    title: Annotated[
        str, Parameter(help="Heading of the report.")
    ] = "What this policy would change",
    cases: Annotated[
        Whole, Parameter(help="Past cases shown on each side of a change, with labels.")
    ] = 0,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    json: Json = False,
) -> int:
    """Write a report on a policy for people: one self-contained HTML file that can be printed.

    It says what would change, what held-out episodes say about it, where the policy defers and why,
    how sure that is, what nobody can know from a log, and where the policy comes from.

    Example: `dprl report policy.dprl held-out.parquet --out review.html`

    Args:
        policy: A policy file.
        files: CSV or Parquet files, best of episodes that the policy was not learned from.
        columns: Columns of the log, where their names differ from those of the policy.
    """
    import dprl
    from dprl.policies._load import deferring, read_like

    refuse_overwrite(out, policy, *files)
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "report")
    with progress() as tell, warned() as said:
        data = read_like(fitted, files, tell, **named)
        written = dprl.report(
            fitted, data, out, title=title, cases=cases, values=values, draws=draws, seed=seed,
            progress=tell,
        )  # fmt: skip
    if not json:
        caution(said)
    show({**written.to_dict(), "warnings": said} if json else str(written), json)
    return 0
