"""The policy that is served, and how a new one takes its place.

A new file is read, checked and warmed while the old policy goes on answering; then the two are
exchanged in one step. A request is answered by one policy from its beginning to its end, and every
answer names the digest of the policy that gave it. A file that cannot be taken over changes
nothing: the old policy stays, and the reason is recorded.
"""

from __future__ import annotations

import bisect
import contextlib
import csv
import functools
import hashlib
import io
import itertools
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core import __version__
from dprl._core.arrays import Floats
from dprl._core.table import first_few
from dprl.apps.serve.answers import Answers, Column, columns_of
from dprl.apps.serve.audit import check_ordinary
from dprl.apps.serve.hooks import COMMENT, MOST_FEEDBACK, OUTCOMES
from dprl.errors import ParameterError, PolicyError
from dprl.logs.encoding.encoder import FAR
from dprl.logs.encoding.gaps import GONE
from dprl.logs.reading.dates import on_day
from dprl.policies.loading import deferring
from dprl.policies.protocol import DeferringPolicy

# --- Whether people have reviewed a policy, and whether they approved it
#
# `dprl review --export` writes the approved policy and, beside it, the audit trail: every verdict
# ever given, as CSV. The policy's provenance names the SHA-256 of that trail, and how many changes
# were approved. So a trail belongs to one policy, and a policy to one trail. Whoever can write a
# policy file could write this, too: who it comes from says its signature (`--require-signed`).

HOW = (
    "Name with --require-approved the audit trail that `dprl review --export` wrote beside the "
    "approved policy, such as approved-audit.csv."
)
LARGEST = 1 << 28


def review_of(policy: DeferringPolicy) -> dict[str, Any] | None:
    """What is on record of the review that a policy comes from; None where nobody reviewed it.

    Args:
        policy: A policy.

    Returns:
        `policy`, the digest of the policy that was reviewed, `changes` that were approved, `of` how
        many, `needs`, the number of reviewers who had to agree, and `audit`, the SHA-256 of the
        audit trail.
    """
    noted = policy.provenance.get("approved")
    if not isinstance(noted, Mapping) or not isinstance(noted.get("audit"), str):
        return None
    return {name: noted.get(name) for name in ("policy", "changes", "of", "needs", "audit")}


def require_approved(policy: DeferringPolicy, trail: str | os.PathLike[str]) -> None:
    """Refuse a policy that is not the outcome of a review with this audit trail.

    Args:
        policy: The policy.
        trail: The audit trail that was written beside it.

    Raises:
        ParameterError: The trail cannot be read, or is none.
        PolicyError: The policy was not reviewed, comes from another review, or nothing in it was
            approved.
    """
    digest = policy.digest()
    review = review_of(policy)
    if review is None:
        raise PolicyError(
            "nobody has approved this policy.",
            f"policy {digest[:12]}…: its provenance names no review",
            "Review it with `dprl review`, and serve the policy that its export writes.",
        )
    data = _trail(Path(trail))
    seen = hashlib.sha256(data).hexdigest()
    if seen != review["audit"]:
        raise PolicyError(
            "this policy comes from another review than the one that is required.",
            f"policy {digest[:12]}… names the audit trail {review['audit'][:12]}…, and "
            f"{str(trail)!r} has {seen[:12]}…",
            "Put the policy and the audit trail of the same export in place.",
        )
    rows = csv.DictReader(io.StringIO(data.decode(), newline=""))
    approved = {row.get("change") for row in rows if row.get("approved") == "yes"}
    if not approved or len(approved) != review["changes"]:
        raise PolicyError(
            f"the review approved {len(approved):,} changes, and this policy makes "
            f"{review['changes']}." if approved else "the review approved no change.",
            f"policy {digest[:12]}…, audit trail {str(trail)!r}",
            "Serve a policy of which reviewers approved something, as the export wrote it.",
        )  # fmt: skip


def _trail(path: Path) -> bytes:
    check_ordinary(path, "the audit trail", HOW)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        lines = data.decode().splitlines()
    except OSError as error:
        raise ParameterError(
            f"the audit trail {str(path)!r} cannot be read: {error.strerror}.", do=HOW
        ) from error
    except UnicodeDecodeError:
        lines = []
    columns = next(csv.reader(lines[:1]), []) if lines and len(data) <= LARGEST else []
    if not {"change", "verdict", "approved", "chain"} <= set(columns):
        raise ParameterError(f"{str(path)!r} is no audit trail of a review.", do=HOW)
    return data


# --- Copies of the policies that were taken over, in a folder that the processes of a server
# share
#
# A process that starts later must start with the policy that is served, whatever has become of the
# file since. So a policy is copied first, with its signature, and read from the copy: what is
# served and what is kept are the same bytes.
#
# A file that was put in place is not looked at before SIGHUP asks for it. So the folder also counts
# how often that was asked, and how much of it is done: a process that was just starting then, and
# did not hear it, sees that and looks at the files. Every other process leaves them alone.

SIGNATURE = ".minisig"
"""What the name of a policy's signature ends with."""
COUNT = struct.Struct("<q")
ASKED, DONE = 0, COUNT.size
"""Places in the file of counts: how often SIGHUP came, and up to which time it was followed."""


@dataclass(frozen=True)
class Kept:
    """A folder of copies; the file `current` names the one that is served.

    Attributes:
        folder: The folder.
        begun: What `done` was before this process read the policy that it starts with.
    """

    folder: Path
    begun: int = 0

    def copy(self, path: str | os.PathLike[str]) -> Path:
        """A copy of a policy file and of its signature, if it has one; `take` or `drop` it."""
        inside = Path(tempfile.mkdtemp(dir=self.folder, prefix="policy-"))
        target = inside / Path(path).name
        try:
            shutil.copyfile(path, target)
            signature = Path(f"{os.fspath(path)}{SIGNATURE}")
            if signature.is_file():
                shutil.copyfile(signature, f"{target}{SIGNATURE}")
        except BaseException:
            shutil.rmtree(inside, ignore_errors=True)
            raise
        return target

    def drop(self, copy: Path) -> None:
        """Remove a copy."""
        shutil.rmtree(copy.parent, ignore_errors=True)

    def take(self, copy: Path) -> None:
        """Let processes start with this copy from now on; of earlier ones the last few stay."""
        handle, part = tempfile.mkstemp(dir=self.folder, suffix=".part")
        with os.fdopen(handle, "w") as file:
            file.write(str(copy))
        Path(part).replace(self.folder / "current")
        copies = sorted(self.folder.glob("policy-*"), key=lambda p: p.stat().st_mtime_ns)
        for old in copies[:-10]:  # others may be about to be taken, or being read
            if old != copy.parent:
                shutil.rmtree(old, ignore_errors=True)

    def current(self) -> Path:
        """The copy that processes start with."""
        return Path((self.folder / "current").read_text())

    def count(self) -> None:
        """Begin to count. The file has its full size from here on: a full disk does not matter."""
        self._counts.write_bytes(bytes(2 * COUNT.size))

    def ask(self) -> None:
        """Count that all processes are asked to look at the files."""
        self._write(ASKED, self.asked + 1)

    def follow(self, number: int) -> None:
        """Say that the first `number` times are followed: what they brought is kept here."""
        if number > self.done:
            self._write(DONE, number)

    @property
    def asked(self) -> int:
        """How often the processes were asked to look at the files."""
        return self._read(ASKED)

    @property
    def done(self) -> int:
        """How many of these times are followed."""
        return self._read(DONE)

    @property
    def _counts(self) -> Path:
        return self.folder / "counts"

    def _read(self, place: int) -> int:
        try:
            data = self._counts.read_bytes()
        except OSError:
            return 0
        return int(COUNT.unpack_from(data, place)[0])

    def _write(self, place: int, number: int) -> None:
        with contextlib.suppress(OSError):
            handle = os.open(self._counts, os.O_WRONLY)
            try:
                os.pwrite(handle, COUNT.pack(number), place)
            finally:
                os.close(handle)


# --- The policy that is served, and how a new one takes its place

FEW = 16
"""Up to so many states are counted one by one, which is faster than by arrays."""
UNSEEN = "unseen"
"""The part of labels that training did not have."""


@dataclass(frozen=True, eq=False)
class Served:
    """A policy as it is served.

    Attributes:
        answers: Its answers.
        document: Its OpenAPI description.
        edges: Edges of the parts of each feature's training values; () where not on record.
        shares: Feature → part → its share in training.
        cds: Id of the service of CDS Hooks; '' where there is none.
    """

    answers: Answers
    document: dict[str, Any]
    edges: tuple[list[float], ...]
    shares: Mapping[str, Mapping[str, float]]
    cds: str = ""

    @classmethod
    def of(cls, policy: DeferringPolicy, cases: bool, token: bool, cds: str = "") -> Served:
        """A policy made ready; `warm` is still to come."""
        answers = Answers(policy, cases)
        edges, shares = _training_parts(answers)
        return cls(answers, description(policy, token, cds), edges, shares, cds)

    @property
    def digest(self) -> str:
        """Digest of the policy."""
        return self.answers.digest

    @property
    def review(self) -> dict[str, Any] | None:
        """The review that the policy comes from; None where nobody reviewed it."""
        return review_of(self.answers.policy)

    def parts(self, x: Floats | None, answers: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
        """(feature, part, count) of the states that were answered within the training ranges.

        A part is a number, from 1, or "missing"; a label that training did not have is "unseen",
        whatever else the state holds.
        """
        if x is None:
            return []
        counted = self._unseen(x)
        if not self.edges:
            return counted
        inside = np.asarray(x)[[bool(answer["in_range"]) for answer in answers]]
        for name, edges, column in zip(self.answers.features, self.edges, inside.T, strict=True):
            values = column[~np.isnan(column)]
            if len(values) < len(column):
                counted.append((name, GONE, len(column) - len(values)))
            if len(values) <= FEW:
                parts = [str(bisect.bisect_left(edges, v) + 1) for v in values.tolist()]
                counted += [(name, part, 1) for part in parts]
            else:
                counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
                counted += [(name, str(part), n) for part, n in enumerate(counts.tolist(), 1) if n]
        return counted

    def _unseen(self, x: Floats) -> list[tuple[str, str, int]]:
        """(column, UNSEEN, count) of the states with a label that training did not have."""
        counted = []
        place = {name: j for j, name in enumerate(self.answers.features)}
        for column in self.answers.columns.values():
            if column.labels:
                own = np.asarray(x)[:, [place[name] for name in column.features]]
                number = int(((own == FAR) | np.isinf(own)).any(axis=1).sum())
                counted += [(column.name, UNSEEN, number)] if number else []
        return counted


def _training_parts(
    answers: Answers,
) -> tuple[tuple[list[float], ...], dict[str, dict[str, float]]]:
    """The parts of each feature's training values, if the policy has them on record."""
    given = answers.policy.provenance.get("quantiles")
    names = answers.features
    if not isinstance(given, list) or len(given) != len(names):
        return (), {}
    try:
        edges = tuple([float(v) for v in part["edges"]] for part in given)
        shares = [[float(v) for v in part["shares"]] for part in given]
        gone = [float(part.get("missing", 0.0)) for part in given]
    except (AttributeError, KeyError, TypeError, ValueError):
        return (), {}
    if any(
        len(own) != len(ends) + 1 or any(b <= a for a, b in itertools.pairwise(ends))
        for own, ends in zip(shares, edges, strict=True)
    ):
        return (), {}
    named = {}
    takes_gaps = getattr(answers.policy.space, "levels", None) is not None
    for name, own, missing in zip(names, shares, gone, strict=True):
        named[name] = {str(i): share for i, share in enumerate(own, 1)}
        if takes_gaps:  # parts that may be counted, though training had none
            named[name] |= {GONE: missing}
            named[name] |= {UNSEEN: 0.0} if answers.columns[name].labels else {}
    return edges, named


def successor(path: str | os.PathLike[str], now: Served, *, token: bool) -> Served | None:
    """The policy that the file holds now, ready to take over; None where it is the same policy.

    Raises:
        PolicyError: The file holds no policy that can be served, or one that takes other states.
    """
    policy = deferring(Path(path))
    if policy.digest() == now.digest:
        return None
    new = Served.of(policy, now.answers.cases, token, now.cds)
    _refuse_other_states(now.answers, new.answers)
    new.answers.warm()
    return new


def _refuse_other_states(now: Answers, new: Answers) -> None:
    """Refuse a policy that would refuse states which are answered now."""
    do = "Those who ask would be refused: start another server for it."
    asked, offered = _states(now), _states(new)
    if asked != offered:
        raise PolicyError(
            "the new policy takes other states than the one that is served.",
            f"{first_few(asked, 5)} now, {first_few(offered, 5)} in the file",
            do,
        )
    for name, column in now.columns.items():
        if column.nullable and not new.columns[name].nullable:
            raise PolicyError(
                f"the new policy refuses states in which {name!r} is missing.",
                "the one that is served answers them",
                do,
            )
    gone = [getattr(answers.policy.space, "gone", None) is not None for answers in (now, new)]
    if gone == [True, False]:
        raise PolicyError(
            "the new policy refuses a missing state.", "the one that is served answers it", do
        )


def _states(answers: Answers) -> tuple[str, ...]:
    """What a state is made of, as far as whoever asks must know it."""
    if answers.columns:
        kinds = {"label": " (labels)", "truth": " (true or false)", "date": " (dates)"}
        return tuple(f"{c.name}{kinds.get(c.kind, '')}" for c in answers.columns.values())
    labels = answers.policy.space.states
    return (f"labels of type {type(labels[0]).__name__ if labels else 'str'}",)


# --- The service described to machines: OpenAPI 3.1, made for the policy that is served
#
# The shapes and words of `openapi.json` are filled with what depends on the policy: `@name`
# stands for a value that is known here.

MOST = 1000
"""Largest number of states in one request."""
OTHER = "a label that training did not have: the answer says so, and that it is not in range"
ANYTHING = {"type": "object"}


@functools.cache
def _shapes() -> dict[str, Any]:
    """What does not depend on the policy."""
    text = files("dprl.apps.serve").joinpath("openapi.json").read_text(encoding="utf-8")
    shapes: dict[str, Any] = json.loads(text)
    return shapes


def _filled(shape: Any, values: dict[str, Any]) -> Any:
    """A shape with these values in place of the words `@name`."""
    if isinstance(shape, dict):
        return {name: _filled(part, values) for name, part in shape.items()}
    if isinstance(shape, list):
        return [_filled(part, values) for part in shape]
    return values[shape] if isinstance(shape, str) and shape.startswith("@") else shape


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    needed = [name for name in properties if name != "avoid"]  # which few answers have
    return {"type": "object", "properties": properties, "required": needed, **more}


def _says(what: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _row(policy: DeferringPolicy) -> dict[str, Any]:
    """What is said about one action in one state."""
    sure = policy.terms.sure
    if not sure:
        return ANYTHING
    number = {"type": ["number", "null"]}
    words = _shapes()["row of a sure policy"].items()
    meant = {name: {**number, "description": text.replace("@sure", sure)} for name, text in words}
    return {"type": "object", "properties": meant}


def _state(policy: DeferringPolicy) -> dict[str, Any]:
    """A state as it may be asked about: an object of its columns, or a label."""
    space = policy.space
    columns = columns_of(policy)
    if columns:
        ranges = dict(zip(space.feature_names, policy.provenance.get("ranges") or (), strict=False))
        shown = {column.name: _column(column, ranges.get(column.name)) for column in columns}
        return _object(shown, additionalProperties=False)
    kind = type(space.states[0]) if space.states else str
    word = {str: "string", int: "integer", bool: "boolean"}[kind]
    return {"type": word if getattr(space, "gone", None) is None else [word, "null"]}


def _column(column: Column, ends: Any) -> dict[str, Any]:
    """One column of a state: its type, the labels that training had, and whether it may be null."""
    null, nothing = (["null"], [None]) if column.nullable else ([], [])
    words = []
    if column.kind == "truth":
        shape: dict[str, Any] = {
            "enum": [True, False, "true", "false", 0, 1, *([None] * len(null))]
        }
    elif column.kind == "label":
        other = {"type": ["string", "integer", "boolean"], "description": OTHER}
        shape = {"anyOf": [{"enum": [*column.labels, *nothing]}, other]}
    else:
        word = "string" if column.kind == "date" else "number"
        shape = {"type": [word, *null] if null else word}
        if ends and None not in ends:
            low, high = (on_day(e) if column.kind == "date" else f"{e:g}" for e in ends)
            words.append(f"in training {low} to {high}")
        if column.kind == "date":
            shape["examples"] = ["2024-02-01"]
    if null:
        words.append("null where it is missing: treated as in training")
    return {**shape, **({"description": "; ".join(words)} if words else {})}


def description(policy: DeferringPolicy, token: bool, cds: str = "") -> dict[str, Any]:
    """The OpenAPI document; `cds` is the id of the service of CDS Hooks, '' without one."""
    values = {
        "@actions": [None, *policy.actions], "@row": _row(policy),
        "@uuid": {"type": "string", "format": "uuid"}, "@outcomes": list(OUTCOMES),
        "@most_feedback": MOST_FEEDBACK, "@comment": COMMENT,
    }  # fmt: skip
    shapes = _filled({k: v for k, v in _shapes().items() if k != "row of a sure policy"}, values)
    error = {"$ref": "#/components/schemas/Error"}
    refusals = {**shapes["refusals"], **({"401": shapes["no token"]} if token else {})}

    def of(path: str, method: str, good: dict[str, Any], **more: Any) -> dict[str, Any]:
        wrong = {**(shapes["refusals of a body"] if method == "post" else {}), **refusals}
        wrong |= more.pop("also", {})
        responses = {"200": good, **{k: _says(v, error) for k, v in wrong.items() if v}}
        return {method: {"summary": shapes["summaries"][path], **more, "responses": responses}}

    def get(path: str, what: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
        return of(path, "get", _says(what, schema), **more)

    def post(path: str, asked: Any, good: dict[str, Any], **also: str) -> dict[str, Any]:
        body = {"required": True, "content": {"application/json": {"schema": asked}}}
        return of(path, "post", _says("answered", good), requestBody=body, also=also)

    status = _object({"status": {"type": "string"}})
    answer = shapes["answer"]
    asked = {"type": "array", "items": _state(policy), "minItems": 1, "maxItems": MOST}
    answers = {"policy": {"type": "string"}, "answers": {"type": "array", "items": _object(answer)}}
    about = {**shapes["about"], **(shapes["about what is stated"] if policy.stated else {})}
    text = {"description": "text", "content": {"text/plain": {"schema": {"type": "string"}}}}
    state = _object({"state": _state(policy)}, additionalProperties=False)
    paths = {
        "/act": post(
            "/act", _object({"states": asked}, additionalProperties=False), _object(answers)
        ),
        "/explain": post("/explain", state, _object({**answer, **shapes["explanation"]})),
        "/policy": get("/policy", "described", {"type": "object", "properties": about}),
        "/livez": get("/livez", "it does", status, security=[]),
        "/readyz": get("/readyz", "ready", status, security=[]),
        "/healthz": get("/healthz", "ready", status, security=[]),
        "/metrics": of("/metrics", "get", text),
        "/openapi.json": get("/openapi.json", "described", ANYTHING),
    }
    if cds:
        services = _object({"services": {"type": "array", "items": ANYTHING}})
        lacking = {"412": "prefetched data are missing"}
        odd = {"400": "this is no JSON, or no feedback", "422": ""}
        own, back = "/cds-services/@cds", "/cds-services/@cds/feedback"
        paths["/cds-services"] = get("/cds-services", "described", services)
        paths[own.replace("@cds", cds)] = post(
            own, shapes["call"], _object({"cards": shapes["cards"]}), **lacking
        )
        paths[back.replace("@cds", cds)] = post(back, shapes["feedback"], shapes["stored"], **odd)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "dprl", "version": __version__, "description": shapes["info"]},
        "paths": paths,
        "components": {"schemas": {"Error": _object({"error": _object(shapes["error"])})}},
    }
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document
