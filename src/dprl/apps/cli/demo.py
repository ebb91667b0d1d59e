"""`dprl demo`: the main job from end to end, on data that the package makes itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.plural import form, many
from dprl.apps.cli._app import command
from dprl.apps.cli.console import progress, show
from dprl.apps.cli.options import Json

__all__ = ["demo"]

PATIENTS, SEED, N_MIN = 2_000, 7, 50
NO_BROWSER = "\n   No browser could be started here: open the file yourself."
COLUMNS = {
    "episode": "patient", "time": "day", "state": "situation", "action": "treatment",
    "reward": "outcome", "ended": "ended",
}  # fmt: skip


@command
def demo(
    *,
    folder: Path | None = None,
    show_report: Annotated[
        bool,
        Parameter(
            name="--open",
            negative="",
            help="Also write the report on the policy, from patients "
            "it was not learned from, and open it in a browser.",
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Show the whole job on invented patients: log → check → fit → changes → the truth.

    Args:
        folder: Folder for the log and the policy; by default a new temporary folder.
    """
    import tempfile

    where = Path(tempfile.mkdtemp(prefix="dprl-demo-")) if folder is None else folder
    where.mkdir(parents=True, exist_ok=True)
    with progress() as tell:
        tell("warming up (the first run compiles for some seconds)", 0.0)
        lines: list[str] = []
        result = _run(where, lines.append)
        if show_report:
            tell("writing the report", 0.0)
            page = _report(where)
            result["report"] = str(page)
            opened = _opened(page)
            lines.append(f"\n6. The report for people → {page}" + ("" if opened else NO_BROWSER))
    show(result if json else "\n".join(lines), json)
    return 0


def _report(folder: Path) -> Path:
    """A report on the demo's policy, on patients that it was not learned from."""
    from dataclasses import replace

    from dprl.apps._report import report
    from dprl.envs.care import care_pathway
    from dprl.policies.table import TablePolicy

    policy = TablePolicy.load(folder / "policy.dprl")
    held_out = replace(care_pathway().sample(PATIENTS, seed=SEED + 1), columns=COLUMNS)
    report(policy, held_out, folder / "report.html")
    return folder / "report.html"


def _opened(page: Path) -> bool:
    """Whether a browser could be asked to show a page."""
    import webbrowser

    try:
        return webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        return False


def _run(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Draw a log, check it, fit, list the changes, and compare with the truth.

    Writes visits.parquet and policy.dprl into `folder`; returns everything as plain values.
    """
    from dataclasses import replace

    from dprl.envs.care import care_pathway
    from dprl.learners.discrete import DPRLDiscrete
    from dprl.logs._io import check, read, write
    from dprl.policies.table import TablePolicy

    pathway = care_pathway()
    file, saved = folder / "visits.parquet", folder / "policy.dprl"
    write(replace(pathway.sample(PATIENTS, seed=SEED), columns=COLUMNS), file)
    report = check(str(file), **COLUMNS)
    log = read(file, **COLUMNS)  # type: ignore[arg-type]
    say(f"1. A log: {PATIENTS:,} invented patients, {log.n_steps:,} treatment decisions → {file}")
    problems = sum(f.level == "error" for f in report.findings)
    say(f"2. Checked: {problems} errors. {repr(log).removeprefix('Log: ')}.")

    policy = DPRLDiscrete(n_min=N_MIN, gamma=1.0).fit(log)
    policy.save(saved)
    line, *by_luck = str(policy).splitlines()
    say("\n   ".join([f"3. Fitted: {line} → {saved}", *by_luck]) + "\n")
    for row in policy.changes():
        say(
            f"   When the situation is {row['state']!r}: {row['suggested']}, not {row['usual']} "
            f"(usual in {100 * row['usual_share']:.0f} %).\n"
            f"      {100 * row['value']:.0f} of 100 such patients went home with it, "
            f"{100 * row['value_usual']:.0f} with usual practice; "
            f"{row['episodes']:,} patients had it, {row['others']:,} first had something else."
        )
    say("   In every other situation: DEFER. Keep doing what you do.\n")

    made = policy.changes()
    changed = f"{form(made, 'this', 'these')} {many(made, 'change')}"
    now, new = pathway.value(), pathway.value(TablePolicy.load(saved))
    best = float(pathway.start @ pathway.optimal[0])
    say(
        "4. The truth (this world is invented, so it is known exactly). Of 100 patients go home:\n"
        f"   today {100 * now:.1f} · with {changed} {100 * new:.1f} · "
        f"at the very best {100 * best:.1f}\n"
    )
    say(
        "5. Which learner? This was dprl: it compares whole returns, so it can be used where the "
        "state does not\n   tell all, and `dprl gate` can prove its suggestions. Where the state "
        "tells enough, `dprl fit --learner\n   confident` also says how sure it is that its policy "
        "is better than what is done today."
    )
    return {
        "log": str(file),
        "policy": str(saved),
        **policy.summary(),
        "changed": policy.changes().to_dicts(),
        "value_behavior": now,
        "value_policy": new,
        "value_best": best,
    }
