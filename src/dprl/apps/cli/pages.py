"""Commands that make pages: `report` and `review`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl._core.disk import refuse_overwrite
from dprl._core.table import harmless, many
from dprl.apps.cli.console import caution, command, progress, told, warned
from dprl.apps.cli.options import (
    By,
    Draws,
    Flag,
    Json,
    OtherColumns,
    Seed,
    Values,
    Whole,
    check_folder,
    columns_for,
    intended_use,
)
from dprl.apps.cli.service import Host, Names, Port, announce, check_packages, warn_of_others
from dprl.apps.reports.intended_use import card_beside
from dprl.errors import ParameterError

if TYPE_CHECKING:
    from dprl.apps.review.app import Review

# --- `dprl review`: a local page on which people judge a policy's changes


@command
def review(
    policy: str,
    /,
    columns: OtherColumns | None = None,
    *,
    log: list[str],
    training: list[str] | None = None,
    out: Path = Path("approved.dprl"),
    cases: Flag = False,
    verdicts: Path | None = None,
    needs: Whole = 1,
    export: Flag = False,
    blank: Path | None = None,
    filled: Path | None = None,
    terminal: Flag = False,
    by: By = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    allow_host: Names = None,
    json: Json = False,
) -> int:
    """Open a local page on which people judge a policy's changes one by one.

    Verdicts are kept beside the policy, in POLICY.review.sqlite. The approved changes are written
    as a new policy, with the audit trail beside it. The page shows past cases of --log with their
    labels: it is for people who may read that log.

    Example: `dprl review policy.dprl --log test.parquet`

    Args:
        policy: A policy file.
        columns: Columns of the log, where their names differ from those of the policy.
        log: The log to judge it by, best held out.
        training: The log that rules were fitted on: they can be narrowed.
        out: File for the approved policy.
        cases: Also show similar *training* episodes.
        verdicts: SQLite file of verdicts; by default beside the policy.
        needs: Number of reviewers who must agree on a change.
        export: Open no page: write the approved policy and stop.
        blank: Open no page: write the changes to this new CSV file, to be filled in.
        filled: Open no page: record the verdicts of this CSV file, all of them or none.
        terminal: Open no page: ask here, change by change.
    """
    from dprl.apps.review.app import open_review
    from dprl.apps.review.verdicts import record_sheet, write_sheet
    from dprl.policies.loading import deferring

    if sum((export, blank is not None, filled is not None, terminal)) > 1:
        raise ParameterError("--export, --blank, --filled and --terminal: one at a time.")
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "review")
    with progress() as tell, warned() as cautions:
        opened = open_review(
            fitted, policy, log, verdicts=verdicts, out=out, needs=needs,
            columns=named, progress=tell, training=training, by=by,
            narrowing=not (export or blank or filled or terminal),
            exporting=export,
        )  # fmt: skip
    caution(cautions)
    if export:
        written = opened.export()
        return told(written.to_dict(), written, json)
    if blank is not None:
        check_folder(blank)
        write_sheet(opened.described, blank)
        changes = len(opened.described.changes)
        facts: dict[str, Any] = {"blank": str(blank), "changes": changes}
        return told(facts, f"{many(changes, 'change')} to judge in {blank}.", json)
    if filled is not None or terminal:
        new = _ask(opened) if filled is None else record_sheet(opened.verdicts, filled)
        record = {"recorded": new, "verdicts": str(opened.verdicts.path)}
        return told(record, f"{many(new, 'verdict')} recorded in {opened.verdicts.path}.", json)
    check_packages()
    from dprl.apps.web import new_token, open_socket, run, url_of

    token = new_token()
    app = opened.app(token, host, tuple(allow_host or ()), cases)
    sock = open_socket(host, port)
    url = f"{url_of(sock, host)}/{token}/"
    facts = {"url": url, "verdicts": str(opened.verdicts.path), "out": str(out)}
    warn_of_others(host, "verdicts and the log")
    announce(facts, f"Review at {url}\nVerdicts in {opened.verdicts.path}. Stop with Ctrl-C.", json)
    run(app, sock)
    return 0


def _ask(opened: Review) -> int:
    """Ask for a verdict on each change, on the terminal; the number of verdicts."""
    from dprl.apps.review.verdicts import tidy_name, who

    changes, words = opened.described.changes, {"a": "agree", "d": "disagree", "u": "unsure"}
    new = 0
    try:
        name = tidy_name(input("Your name: "))
        done = {v.change for v in opened.verdicts.all() if who(v.reviewer) == who(name)}
        for i, c in enumerate(changes, 1):
            if c.key in done:
                continue
            said = (
                f"\n{i} of {len(changes)}: {c.situation}\n"
                f"  usual {c.usual}, suggested {c.suggested}\n"
                f"  {c.episodes:,} {c.counted} took it there, {c.others:,} did otherwise"
            )
            print(harmless(said))  # noqa: T201
            answer = ""
            while answer not in (*words, "s", "q"):
                answer = input("  a agree, d disagree, u unsure, s skip, q quit: ").strip().lower()
            if answer == "q":
                break
            if answer in words:
                opened.verdicts.add(c.key, name, words[answer], input("  Comment: "))
                new += 1
    except EOFError:  # what was said so far stands
        pass
    return new


# --- `dprl report`: one page on a policy, for people


@command
def report(
    policy: str,
    files: list[str],
    /,
    columns: OtherColumns | None = None,
    *,
    out: Path = Path("review.html"),
    title: str | None = None,
    cases: Whole = 0,
    draws: Draws = 2_000,
    seed: Seed = 0,
    values: Values = True,
    by: By = None,
    standard: str | None = None,
    card: Path | None = None,
    lang: str = "en",
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
        out: File for the report.
        title: Heading of the report.
        cases: Past cases shown on each side of a change, with labels.
        standard: "target": add what the TARGET 2025 statement asks of an emulated trial, and write
            a model card. People's answers come from [intended-use] in dprl.toml; what nobody
            answered is marked *to fill in*.
        card: File for the model card. Default: beside the report and named after it, as in
            review.model-card.json.
        lang: Language of the page: "en" or "de".
    """
    import dprl
    from dprl._core.html.catalogue import speak
    from dprl.apps.reports.standard import check_standard
    from dprl.evaluation.subgroups import columns_by
    from dprl.policies.loading import deferring, read_like

    speak(lang)  # what is refused is refused before a long log is read
    if check_standard(standard) is not None and card is None:
        card = card_beside(out)
    for target in (out, card):
        refuse_overwrite(target, policy, *files)
    use = intended_use() if standard is not None else None
    fitted = deferring(policy)
    named = columns_for(fitted, columns, "report")
    with progress() as tell, warned() as cautions:
        data = read_like(fitted, files, tell, **named)
        written = dprl.report(
            fitted, data, out, title=title, cases=cases, values=values, draws=draws, seed=seed,
            by=columns_by(by, data), standard=standard, use=use, card=card, lang=lang,
            progress=tell,
        )  # fmt: skip
    return told({**written.to_dict(), "warnings": cautions}, written, json, cautions)
