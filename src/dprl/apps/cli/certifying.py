"""Commands about proofs: `gate`, and `monitor`, which watches what was certified."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

from dprl._core.disk import refuse_overwrite
from dprl._core.table import form, many
from dprl.apps.cli.console import caution, command, printed, progress, show, warned
from dprl.apps.cli.fitting import is_evidence
from dprl.apps.cli.options import (
    Cluster,
    Details,
    Flag,
    Json,
    MaybeWhole,
    OtherColumns,
    ReturnRange,
    ScanOptions,
    Whole,
    columns_for,
    working_on,
)
from dprl.errors import ParameterError

if TYPE_CHECKING:
    from dprl.logs.log import Label


# --- `dprl monitor`: does what was certified still hold, while new episodes come in?


@command
def monitor(
    policy: str,
    files: list[str] | None = None,
    /,
    columns: OtherColumns | None = None,
    *,
    record: Path | None = None,
    delta: float | None = None,
    figure: Path | None = None,
    strict: Flag = False,
    details: Details = False,
    json: Json = False,
) -> int:
    """Add new episodes to a certified policy, and say how its claims stand.

    It says *not tested yet*, *still certified*, *more is certified now*, *cannot be tested any
    more* (everybody follows), *less than was estimated* or *what was promised is contradicted*, and
    where practice has changed. Look as often as you like: the claims hold at any time. Groups that
    were added before are left out. Without files it shows how things stand.

    Example: `dprl monitor policy.dprl week-12.parquet --figure evidence.png`

    Args:
        policy: A policy file that `dprl gate` wrote.
        files: CSV or Parquet files with new episodes, or patterns in quotes.
        columns: Columns of the log, where their names differ from those of the policy.
        record: File of the monitor; by default the policy's name with .monitor at its end.
        delta: How often each kind of statement may be false; by default that of the certificate. It
            cannot be changed later.
        figure: Figure of the evidence over time: .png, .svg or .pdf.
        strict: End with exit code 3 if a promise is contradicted.
    """
    import dprl
    from dprl.policies.loading import deferring, read_like

    place = Path(f"{policy}.monitor") if record is None else record
    for path in (place, figure, figure and figure.with_suffix(".parquet")):
        refuse_overwrite(path, policy, *(files or ()))
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "monitor")
    with progress() as tell, warned() as cautions:
        watching = dprl.Monitor(fitted, place, delta=delta)
        if files:
            data = read_like(fitted, files, tell, **named)
            tell("weighing the evidence", 0.0)
            looked = watching.add(data)
        else:
            looked = watching.look()
        if figure is not None:
            watching.plot(figure)
    broken = looked.status.endswith("contradicted")
    if json:
        facts = {**looked.to_dict(), "record": str(place), "warnings": list(cautions)}
        show(facts, as_json=True)
    else:
        caution(cautions)
        words = printed(looked, details)
        show(f"{words}\n\nKept in {place}." if files else words, as_json=False)
    return 3 if strict and broken else 0


# --- What to do after a gate that certified nothing: how far the log is from it, and what to try

ROUNDED = 2
"""Digits of a number of episodes that is only an order of magnitude."""


def after_vacuous(policy: Any, n_units: int, *, delta: float, grade: str, mode: str) -> list[str]:
    """What is said after a certificate that holds nothing, in lines.

    How many episodes it would take comes from the change that is surest in training: if its
    advantage and spread stay as they were seen, an interval shrinks with the root of the number of
    training episodes (whatever the size of the log that was gated), and has to leave out 0 with
    room for all changes that are tested (by the normal distribution). A split log certifies with
    half of its episodes. What is proved for samples of any size needs more, so the number is a
    least one.

    Args:
        policy: The policy that was gated.
        n_units: Number of groups (episodes) of the log.
        delta: Probability with which the claim may fail.
        grade: "proved" or "large-sample".
        mode: How the log was divided.
    """
    from dprl.logs.outcome import Outcome
    from dprl.policies.certificate import KINDS

    kind, lines = KINDS[mode], ["Next steps, for episodes that are new:"]
    table = policy.changes()
    rows = [row for row in table if _ends(row) is not None]
    if not len(table):
        lines.append("  - The policy changes nothing, so there is nothing to certify.")
        return lines
    better = Outcome.learned(policy).shown
    hopeful = [row for row in rows if better(row["advantage"]) > 0]
    if not kind.whole and rows and not hopeful:
        lines.append(
            "  - At first visits no change did better than usual practice in training: more "
            "episodes of this kind are not likely to certify one."
        )
    elif not kind.whole and hopeful:
        halves = 2 if kind.shared_level else 1
        need, best = min(
            ((_factor(row, len(table), delta), i) for i, row in enumerate(hopeful)),
            key=lambda pair: pair[0],
        )
        row = hopeful[best]
        learned = getattr(policy, "provenance", {}).get("groups")
        needed = _rounded(need * halves * (learned if isinstance(learned, int) else n_units))
        lines.append(_more(row, len(table), needed, n_units, grade))
    if grade == "proved":
        lines.append(
            "  - A narrower range of returns (--lowest, --highest), if rewards allow it; or "
            "--grade large-sample, which needs fewer episodes and is an approximation."
        )
    if len(table) > 1:
        lines.append(
            f"  - Fewer comparisons: {many(table, 'change')} share δ = {delta:g}. Merge states "
            "that are alike, or raise --n-min when fitting, without looking at returns."
        )
    lines.append(
        "  - Do not gate this log again with other settings until something passes: then δ does "
        "not hold. Choose them now, before the new episodes are looked at."
    )
    return lines


def _more(row: Any, n_changes: int, needed: int, n_units: int, grade: str) -> str:
    """How many episodes the change of `row`, the surest of `n_changes`, would need."""
    where = row.get("state", row.get("where", "")) or "one of its regions"
    one = "its one change" if n_changes == 1 else "the surest change"
    if needed <= n_units:
        reason = (
            "its bounds hold for samples of any size, and first decisions alone are compared"
            if grade == "proved"
            else "it compares first decisions alone, and does not weigh them"
        )
        return (
            f"  - More episodes than the {n_units:,} of this log for {one} ({where}: "
            f"{row['suggested']}). How many cannot be told: its interval in training asks for "
            f"about {needed:,}, but the gate asks for more ({reason})."
        )
    at_least = "at least " if grade == "proved" else ""
    others = form(n_changes - 1, "change takes", "changes take") if n_changes > 1 else ""
    return (
        f"  - More episodes: for {one} ({where}: {row['suggested']}) it takes {at_least}about "
        f"{needed:,}, if what it brought stays as it was seen; this log has {n_units:,}."
        + (f" The other {others} more." if others else "")
    )


def _ends(row: Any) -> tuple[float, float] | None:
    """The ends of the interval of a change's advantage; None where there are none."""
    low, high = row.get("low"), row.get("high")
    if row.get("advantage") is None or low is None or high is None:
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) and high > low else None


def _factor(row: Any, n_tested: int, delta: float) -> float:
    """How many times as many episodes it takes to tell the advantage of a change from 0."""
    from dprl._core.inference import LEVEL  # which needs numpy

    low, high = _ends(row) or (0.0, 0.0)
    error = (high - low) / (2 * NormalDist().inv_cdf((1 + LEVEL) / 2))
    needed = NormalDist().inv_cdf(1 - delta / n_tested)
    return float((needed * error / row["advantage"]) ** 2)


def _rounded(n: float) -> int:
    """A number of episodes, rounded up to so many digits."""
    size = 10.0 ** max(math.floor(math.log10(max(n, 1.0))) + 1 - ROUNDED, 0)
    return math.ceil(n / size) * round(size)


# --- `dprl gate`: keeps only what a log certifies to be an improvement

PLAIN = ("state", "action")
"""What must be one column each where a log is read in parts."""


@command
def gate(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    memory: ScanOptions | None = None,
    *,
    ends: ReturnRange | None = None,
    delta: float = 0.05,
    margin: float = 0.0,
    mode: str = "swap-split",
    grade: Literal["proved", "large-sample"] = "proved",
    states: Path | None = None,
    markov: bool = True,
    horizon: MaybeWhole = None,
    seed: Whole = 0,
    confounding: float = 1.0,
    avoid: bool = True,
    out: Path = Path("gated.dprl"),
    cluster: Cluster = None,
    details: Details = False,
    json: Json = False,
) -> int:
    """Keep only the suggestions that a log proves to improve on usual practice.

    State --lowest and --highest from what rewards can be, never from the returns in the log. Only
    --grade large-sample does without them; what it certifies is not proved.

    Example: `dprl gate policy.dprl visits.csv --lowest 0 --highest 1`

    Args:
        policy: A policy file; usually with the log it was fitted to.
        files: CSV or Parquet files, or patterns in quotes. Or one file of what sites counted: then
            say --mode in-sample --no-markov; states and range are those of the sites' schema.
        columns: Columns of the log, where their names differ from those of the policy.
        delta: Probability with which the claim may fail.
        margin: Advantage that a suggestion must exceed.
        mode: Which part of the log proposes and certifies: swap-split or in-sample; policy: one
            bound for the policy as a whole, on a log that it has never seen.
        grade: proved: exact for samples of any size. large-sample: an approximation that needs no
            range, by first visits; never called proved.
        states: A text file with the states that were fixed without looking at returns, one per
            line, and so were gamma, n-min and the range (in-sample needs it).
        markov: Claim that what follows a visit depends on the past through the state alone. Without
            it, or where the log refutes it, first visits count and less is claimed.
        horizon: Most steps of an episode (group); for in-sample.
        seed: Seed of the split.
        confounding: Γ: issue only what remains proved although an unrecorded cause moved the odds
            of treatment, the state being equal, by up to this factor (1 to 20).
        avoid: Also say what not to do, where one of three actions or more is surely worse than the
            others together and none of them is surely the best.
        out: Where to save the gated policy.
    """
    import dprl
    from dprl.policies.loading import deferring, read_like, reading_like

    of_sites = len(files) == 1 and is_evidence(files[0])
    value_range = (ends or ReturnRange()).both()
    if value_range is None and grade == "proved" and not of_sites:
        raise ParameterError(
            "--lowest is missing: a certificate needs the range of returns.",
            do="State --lowest and --highest from what rewards can be, never from the returns in "
            "the log; only --grade large-sample does without both.",
        )
    refuse_overwrite(out, policy, *files, *([] if states is None else [str(states)]))
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "gate")
    fold = "" if of_sites else str(getattr(fitted.space, "fold", ""))
    options = {} if of_sites else reading_like(fitted, files, **named)
    memory = memory or ScanOptions()
    with (
        progress() as tell,
        warned() as cautions,
        contextlib.ExitStack() as open_files,
        working_on(cluster) as there,
    ):
        data: Any
        if of_sites:
            data = dprl.SiteEvidence.load(files[0])
        elif memory.in_parts(files, able=all(isinstance(options[k], str) for k in PLAIN)):
            data = open_files.enter_context(memory.scanned(files, options, tell))
        else:
            data = read_like(fitted, files, tell, mixed=False, **named)
        tell("certifying", 0.0)
        gated = dprl.gate(
            fitted, data, delta=delta, margin=margin, mode=mode, grade=grade,
            value_range=value_range,
            states=None if states is None else _declared(states, data.facts.states, fold),
            markov=markov,
            horizon=horizon, seed=seed, confounding=confounding, avoid=avoid, **there,
        )  # fmt: skip
        gated.save(out)
        n_units = data.facts.n_groups
    proved = gated.certificate
    steps: list[str] = []
    if proved is not None and proved.vacuous:
        steps = after_vacuous(fitted, n_units, delta=delta, grade=grade, mode=mode)
    if json and proved is not None:
        show({**gated.summary(), "policy": str(out), "digest": gated.digest(),
              "certificate": proved.to_dict(), "warnings": cautions,
              "next_steps": [line.strip(" -") for line in steps[1:]]}, json)  # fmt: skip
        return 0
    caution(cautions)
    after = "".join(f"\n{line}" for line in ("", *steps)) if steps else ""
    words = "" if proved is None else printed(proved, details)
    show(f"before: {fitted}\nafter:  {gated}\n\n{words}{after}\n\nSaved as {out}.", json)
    return 0


def _declared(path: Path, states: tuple[Label, ...], how: str) -> list[Label]:
    """The states named in a file, one per line, as the labels they are in the log.

    Args:
        path: The file.
        states: The states of the log.
        how: What was done to the labels of the policy's log ("trim,casefold"); '' for nothing.
    """
    from dprl.logs.reading.text import fold

    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ParameterError(
            f"the states cannot be read from {str(path)!r}.",
            do="Give a text file with one state per line.",
        ) from None
    label = {str(state): state for state in states}
    named = [fold(line.strip(), how) for line in lines if line.strip()]
    return [label.get(name, name) for name in (dict.fromkeys(named) if how else named)]
