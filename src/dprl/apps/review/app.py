"""The review page: plain HTML over HTTP, with no script in it.

Everything lives under a path that begins with the token, so there is no cookie that another server
on this machine could see. Forms carry a second secret, and the guard of `dprl.apps.web` lets them
come from our own pages only.
"""

from __future__ import annotations

# Apart: a server, kept from commands that do not serve.
import os
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from dprl._core import html as pages
from dprl._core.checks import check_whole
from dprl._core.disk import check_target, expand_paths
from dprl.apps.reports.changes import Change, Described, as_called, describe_changes
from dprl.apps.review.narrowing import Shown, fields_of, kept_words, look, words_of
from dprl.apps.review.verdicts import (
    Exported,
    NotStoredError,
    Verdict,
    Verdicts,
    nothing_judged,
    statuses,
    tidy_name,
    who,
    write_approved,
)
from dprl.apps.web import Guard, same, token_in_path
from dprl.errors import DprlError, ParameterError, PolicyError
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation.subgroups import columns_by
from dprl.learners.rules.held_out import HeldOut
from dprl.logs.called import Called
from dprl.logs.encoding.gaps import GONE
from dprl.logs.log import Log
from dprl.policies.loading import read_like
from dprl.policies.protocol import DeferringPolicy
from dprl.policies.rules.rule import days_told
from dprl.policies.rules.text import rules_of

if TYPE_CHECKING:
    from dprl.logs.reading.files import Progress


# --- `dprl review`: changes described by a log, verdicts opened, a page served or an export


@dataclass(frozen=True)
class Review:
    """An open review: the changes, the verdicts so far, and where the approved policy goes.

    Attributes:
        described: The changes of the policy, described with the help of a log.
        verdicts: The reviewers' verdicts.
        out: File for the approved policy.
        needs: Number of reviewers who must agree on a change.
        half: The half of the training log that certified rules; None where rules cannot be
            narrowed.
        unread: Why they cannot, in words.
    """

    described: Described
    verdicts: Verdicts
    out: Path
    needs: int
    half: HeldOut | None = None
    unread: str = ""

    def export(self) -> Exported:
        """Write the approved policy and the audit trail."""
        return write_approved(self.described, self.verdicts, self.out, self.needs)

    def app(self, token: str, host: str, names: tuple[str, ...], cases: bool = False) -> Any:
        """The review page as an ASGI application; `cases` adds similar training episodes."""
        return review_app(
            self.described, self.verdicts, self.out,
            token=token, needs=self.needs, host=host, names=names, cases=cases, half=self.half,
            unread=self.unread,
        )  # fmt: skip


def open_review(
    policy: DeferringPolicy,
    path: str | os.PathLike[str],
    log: list[str],
    *,
    verdicts: Path | None,
    out: Path,
    needs: int,
    columns: Mapping[str, Any],
    progress: Progress,
    training: list[str] | None = None,
    narrowing: bool = True,
    by: list[str] | None = None,
    exporting: bool = False,
) -> Review:
    """Open a review; everything is checked before anything is written.

    Rules can be narrowed where `training` names the log that the policy was fitted on, or `log` is
    that log; the scores are computed here, unless `narrowing` is False. `by` names columns that
    make subgroups, which need a log that the policy has not seen. With `exporting` there must be
    verdicts already.
    """
    check_whole("--needs", needs, 1)
    if not out.parent.is_dir() or out.is_dir() or out.resolve() == Path(path).resolve():
        raise ParameterError(
            f"the approved policy cannot be written to {str(out)!r}.",
            do="Name with --out a file in a folder that exists, and not the policy itself.",
        )
    file = Path(path).with_suffix(".review.sqlite") if verdicts is None else verdicts
    audit = out.with_name(out.stem + "-audit.csv")
    inputs = expand_paths(path, *log, *(training or ()))
    verdict_files = {
        file.resolve(),
        *(file.with_name(file.name + x).resolve() for x in ("-wal", "-shm")),
    }
    if {out.resolve(), audit.resolve()} & (inputs | verdict_files) or verdict_files & inputs:
        raise ParameterError(
            "a file that is read or holds verdicts would be overwritten.",
            f"--out {str(out)!r}, its audit {audit.name!r}, --verdicts {str(file)!r}",
            "Name other files.",
        )
    check_target(out, audit)
    if file.exists() and not file.is_file():
        raise ParameterError(
            f"{str(file)!r} is no file that could hold verdicts.",
            do="Name another one with --verdicts.",
        )
    data = read_like(policy, log, progress, **columns)
    half, unread = None, ""
    if narrowing:
        half, unread = _half(policy, data, training, columns, progress)
    subgroups = None
    if by:
        subgroups = evaluate(policy, data, by=columns_by(by, data), progress=progress).subgroups
    progress("describing the changes", 0.0)
    described = replace(describe_changes(policy, data), subgroups=subgroups)
    keys = [c.key for c in described.changes]
    if exporting and not file.exists():
        raise nothing_judged(file)
    given = Verdicts(file, policy.digest(), keys, data.digest())
    return Review(described, given, out, needs, half, unread)


def _half(
    policy: DeferringPolicy,
    data: Log,
    training: list[str] | None,
    columns: Mapping[str, Any],
    progress: Progress,
) -> tuple[HeldOut | None, str]:
    """The half that certified rules, or why there is none to ask."""
    ruled = rules_of(policy)
    if ruled is None:
        if training:
            raise ParameterError(
                "--training is for narrowing rules, and this policy has none.", do="Leave it out."
            )
        return None, ""
    if training:
        read = read_like(policy, training, progress, **{**columns, "also": ()})
        return HeldOut.of(ruled, read, progress=progress), ""
    if policy.provenance.get("log") != data.digest():
        return None, "To narrow a rule, open this review with --training and the training log."
    try:
        return HeldOut.of(ruled, data, progress=progress), ""
    except PolicyError as error:
        return None, f"Rules cannot be narrowed here: {error.what}"


# --- The review page: plain HTML over HTTP, with no script in it

BODY = 64 * 1024
NAME_COOKIE = "dprl_reviewer"
WORDS = {
    "open": "○ open",
    "approved": "✓ approved",
    "waiting": "… waiting for a second",
    "conflict": "≠ reviewers disagree",
    "refused": "✗ refused",
    "unsure": "? unsure",
}


def review_app(
    described: Described,
    verdicts: Verdicts,
    out: Path,
    *,
    token: str,
    needs: int = 1,
    host: str = "127.0.0.1",
    names: tuple[str, ...] = (),
    cases: bool = False,
    half: HeldOut | None = None,
    unread: str = "",
) -> Starlette:
    """The review page as an ASGI application.

    Past cases of the log that the policy is judged by are shown with their labels. With `cases`,
    the most similar *training* episodes are shown too; the policy file names them. With `half`,
    rules can be narrowed; else `unread` says why they cannot.
    """
    site = _Site(described, verdicts, out, token, needs, cases, half, unread)
    routes = [
        Route("/{token}/", site.index),
        Route("/{token}/style.css", site.style),
        Route("/{token}/change/{key}", site.change),
        Route("/{token}/verdict", site.verdict, methods=["POST"]),
        Route("/{token}/export", site.export, methods=["POST"]),
        Route("/{token}/approved.dprl", site.approved),
        Route("/{token}/audit.csv", site.audit),
    ]

    def refuse(status: int, what: str, do: str) -> Response:
        return HTMLResponse(pages.render("message.html", what=what, do=do), status)

    def failed(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        if status == 500:
            return refuse(500, "Something went wrong here; verdicts given are safe.", "Try again.")
        do = "Use the whole address that dprl review printed." if status in (403, 404) else ""
        return refuse(status, f"{status}: {getattr(error, 'detail', '')}", do)

    guard = Middleware(
        Guard, host=host, names=names, limit=BODY, refuse=refuse, origin=True,
        enter=token_in_path(token, refuse),
    )  # fmt: skip
    return Starlette(
        routes=routes, middleware=[guard], exception_handlers={HTTPException: failed, 500: failed}
    )


class _Site:
    def __init__(
        self,
        described: Described,
        verdicts: Verdicts,
        out: Path,
        token: str,
        needs: int,
        training_cases: bool,
        half: HeldOut | None,
        unread: str,
    ) -> None:
        self.half, self.unread = half, unread
        self.described, self.verdicts, self.out = described, verdicts, out
        self.shown = as_called(described)
        self.token, self.needs, self.csrf = token, needs, secrets.token_urlsafe(24)
        self.keys = [c.key for c in described.changes]
        self.training_cases = training_cases
        self.certificate = described.policy.certificate
        self.digest, self.exported = described.policy.digest(), None
        self.ends = [x for c in described.changes for x in c.drawn]
        self.extent = pages.scale(self.ends)

    exported: Exported | None

    # -- reading ---------------------------------------------------------------------------------

    def index(self, request: Request) -> Response:
        reviewer, verdicts = _reviewer(request), self.verdicts.all()
        status = statuses(verdicts, self.keys, self.needs)
        mine = {k for k in self.keys if any(_is(reviewer, v) for v in status[k].latest)}
        counts = Counter(s.word for s in status.values())
        chosen = {n: request.query_params.get(n, "")[:100] for n in ("status", "suggested", "text")}
        shown = [
            c
            for c in self.shown.changes
            if (
                chosen["status"] in ("", status[c.key].word)
                or (chosen["status"] == "mine" and c.key not in mine)
            )
            and chosen["suggested"] in ("", str(c.suggested))
            and chosen["text"].casefold() in c.situation.casefold()
        ]
        return self._page(
            "review.html",
            changes=self.shown.changes,
            shown=shown,
            status=status,
            counts={**dict.fromkeys(WORDS, 0), **counts, "judged": len(self.keys) - counts["open"]},
            mine=len(mine),
            following=next((k for k in self.keys if k not in mine), None),
            reviewer=reviewer,
            chosen=chosen,
            suggestions=sorted({c.suggested for c in self.shown.changes}, key=str),
            needs=self.needs,
            out=self.out.name,
            exported=self.exported,
            since=0 if self.exported is None else len(verdicts) - self.exported.verdicts,
            digest=self.digest,
            narrowed_words=self._kept_words,
            message=_said(request),
        )

    def change(self, request: Request) -> Response:
        key, asked = request.path_params["key"], request.query_params
        if key not in self.described:
            raise HTTPException(404, "there is no such change")
        shown, wrong = None, ""
        if "narrow" in asked or "conditions" in asked:
            try:
                shown = self._look(self.described[key], asked)
            except DprlError as error:
                wrong = words_of(error)
        return self._change(
            key, _reviewer(request), wrong or _said(request), code=422 if wrong else 200,
            shown=shown, asked=asked if "narrow" in asked else None,
        )  # fmt: skip

    def _look(self, c: Change, asked: Mapping[str, str]) -> Shown:
        """What the half that certified says of a narrower rule."""
        if self.half is None or c.rule is None:
            raise ParameterError(self.unread or "only rules can be narrowed.")
        return look(self.half, c.rule.number, asked)

    def _change(
        self,
        key: str,
        reviewer: str,
        message: str = "",
        comment: str = "",
        code: int = 200,
        shown: Shown | None = None,
        asked: Any = None,
    ) -> Response:
        if key not in self.described:
            raise HTTPException(404, "there is no such change")
        c, at = self.described[key], self.keys.index(key)
        verdicts = self.verdicts.all()
        status = statuses(verdicts, self.keys, self.needs)[key]
        took, others = self.described.cases(c)
        act = Called.learned(self.described.policy).act
        took, others = ([replace(x, action=act(x.action)) for x in y] for y in (took, others))
        return self._page(
            "change.html",
            code,
            c=self.shown[key],
            status=status,
            history=[v for v in reversed(verdicts) if v.change == key],
            current={v.id for v in status.latest},
            place=at + 1,
            total=len(self.keys),
            before=self.keys[at - 1] if at else None,
            after=self.keys[at + 1] if at + 1 < len(self.keys) else None,
            took=took,
            others=others,
            similar=self._similar(c),
            compared=self.described.compared.get(key),
            certified=self._certified(c),
            reviewer=reviewer,
            comment=comment,
            message=message,
            wrong=code != 200,
            shown=shown,
            extent=self.extent if shown is None else pages.scale([*self.ends, *shown.drawn]),
            fields=[]
            if self.half is None or c.rule is None
            else fields_of(self.half.policy, c.rule.number, asked),
            unread=self.unread if c.rule is not None else "",
            narrowed_words=self._kept_words,
        )

    def _kept_words(self, text: str) -> str:
        """Where a narrower rule that a verdict keeps holds, in words."""
        rules = rules_of(self.described.policy)
        return kept_words(text, () if rules is None else days_told(rules))

    def _similar(self, c: Change) -> list[dict[str, Any]]:
        if c.region is None or not self.training_cases:
            return []
        state = [None if value == GONE else value for _, value in c.typical]
        return self.described.policy.explain(state, cases=True).similar.to_dicts()

    def _certified(self, c: Change) -> list[tuple[str, str]]:
        """The certificate's row on this change, as words."""
        if self.certificate is None or c.state is None:
            return []
        table = self.certificate.table()
        cells = (dict(zip(table.columns, row, strict=True)) for row in table.cells())
        row = next((r for r in cells if r.get("state") == str(c.state)), {})
        return [(name, value) for name, value in row.items() if name != "state"]

    def style(self, request: Request) -> Response:
        return Response(pages.style(), media_type="text/css")

    # -- writing ---------------------------------------------------------------------------------

    async def verdict(self, request: Request) -> Response:
        form = await self._form(request)
        names = ("change", "reviewer", "verdict", "comment", "conditions")
        return await run_in_threadpool(self._record, **{n: form.get(n, "") for n in names})

    def _record(
        self, change: str, reviewer: str, verdict: str, comment: str, conditions: str
    ) -> Response:
        shown, narrowed = None, ""
        try:
            if conditions and change in self.described:
                shown = self._look(self.described[change], {"conditions": conditions})
                if shown.few:
                    raise ParameterError(shown.few, do="Narrow the rule less.")
                narrowed = shown.narrowing.text()
            recorded = self.verdicts.add(change, reviewer, verdict, comment, narrowed)
        except DprlError as error:
            text, status_code = words_of(error), 507 if isinstance(error, NotStoredError) else 422
            return self._change(change, reviewer[:100], text, comment, status_code, shown)
        status = self._statuses()
        at = self.keys.index(change)
        ahead = self.keys[at + 1 :] + self.keys[:at]
        todo = (k for k in ahead if not any(_is(recorded.reviewer, v) for v in status[k].latest))
        following = next(todo, None)
        place = f"change/{following}" if following else ""
        answer = RedirectResponse(f"/{self.token}/{place}?recorded={recorded.id}", 303)
        answer.set_cookie(
            NAME_COOKIE, quote(recorded.reviewer), path=f"/{self.token}/", httponly=True,
            samesite="strict",
        )  # fmt: skip
        return answer

    async def export(self, request: Request) -> Response:
        await self._form(request)
        try:
            self.exported = await run_in_threadpool(
                write_approved, self.described, self.verdicts, self.out, self.needs
            )
        except PolicyError as error:
            return HTMLResponse(pages.render("message.html", what=error.what, do=error.do), 422)
        return RedirectResponse(f"/{self.token}/#exported", 303)

    def approved(self, request: Request) -> Response:
        return self._file(None if self.exported is None else self.exported.policy)

    def audit(self, request: Request) -> Response:
        return self._file(None if self.exported is None else self.exported.audit)

    def _file(self, path: Path | None) -> Response:
        if path is None or not path.is_file():
            raise HTTPException(404, "nothing has been written yet")
        return FileResponse(path, filename=path.name)

    # -- around ----------------------------------------------------------------------------------

    async def _form(self, request: Request) -> dict[str, str]:
        if request.headers.get("content-type") != "application/x-www-form-urlencoded":
            raise HTTPException(415, "a form is expected")
        try:
            text = (await request.body()).decode("ascii")
            form = dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=20))
        except ValueError as error:
            raise HTTPException(400, "this form cannot be read") from error
        if not same(form.get("csrf", ""), self.csrf):
            raise HTTPException(
                403, "this form is not ours, or from before a restart: open it again"
            )
        return form

    def _statuses(self) -> Any:
        return statuses(self.verdicts.all(), self.keys, self.needs)

    def _page(self, template: str, code: int = 200, /, **values: Any) -> Response:
        text = pages.render(
            template,
            root=f"/{self.token}/",
            csrf=self.csrf,
            described=self.shown,
            certificate=self.certificate,
            words=WORDS,
            **{"extent": self.extent, **values},
        )
        return HTMLResponse(text, code)


def _reviewer(request: Request) -> str:
    try:
        return tidy_name(unquote(request.cookies.get(NAME_COOKIE, "")))
    except ParameterError:
        return ""


def _is(reviewer: str, verdict: Verdict) -> bool:
    return who(verdict.reviewer) == who(reviewer)


def _said(request: Request) -> str:
    number = request.query_params.get("recorded", "")
    return f"Verdict {int(number)} is recorded." if number.isdecimal() and len(number) < 9 else ""
