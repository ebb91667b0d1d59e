"""Commands about a policy file: `act`, `changes`, `explain`, `export`, `sign`, `verify`."""

from __future__ import annotations

import csv
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from dprl._core.disk import prefix_in, refuse_overwrite, replacing
from dprl._core.table import harmless, many, printable
from dprl.apps.cli.console import command, complain, printed, progress, show, told
from dprl.apps.cli.options import (
    SETTINGS,
    Cases,
    Decimal,
    Details,
    Flag,
    Json,
    Letters,
    Partitions,
    check_folder,
    columns_for,
    numbers,
    whole,
)
from dprl.errors import LogError, ParameterError
from dprl.logs.called import NOBODY, Called

if TYPE_CHECKING:
    from dprl.logs.reading.tables import TableFile
    from dprl.policies.protocol import Policy

# --- `dprl verify`: check who vouches for a policy file


@command
def verify(
    policy: str,
    /,
    *,
    key: str,
    json: Json = False,
) -> int:
    """Check that a policy file is signed with a key, and that it can be used.

    The signature is POLICY.minisig, by `dprl sign` or by minisign.

    Example: `dprl verify policy.dprl --key ours.pub`

    Args:
        policy: A policy file.
        key: A public key of minisign: a .pub file, or its line of base64.
    """
    from dprl.policies.loading import load
    from dprl.policies.signature import PublicKey
    from dprl.policies.signature import verify as check_signature

    signed = check_signature(policy, PublicKey.read(key))
    digest = load(policy).digest()
    facts = {"ok": True, "key": signed.key, "comment": signed.comment, "digest": digest}
    text = (
        f"Signed with the key {signed.key}.\n"
        f"Trusted comment: {printable(signed.comment)}\n"
        f"Policy {digest}"
    )
    return told(facts, text, json)


# --- `dprl sign`: vouch for a policy file with a key of minisign

PASSWORD = "DPRL_SIGN_PASSWORD"


@command
def sign(
    policy: str,
    /,
    *,
    key: str,
    comment: str = "",
    json: Json = False,
) -> int:
    """Sign a policy file; the signature is written beside it, as POLICY.minisig.

    The format is minisign's: `minisign -V -p KEY.pub -m policy.dprl` checks it too. The password of
    the key, if it has one, is asked for, or taken from the environment variable
    DPRL_SIGN_PASSWORD.

    Example: `dprl sign policy.dprl --key ours.key`

    Args:
        policy: A policy file.
        key: A secret key that minisign -G made (.key).
        comment: A trusted comment; default: time and name.
    """
    from dprl.policies.loading import load
    from dprl.policies.signature import SecretKey
    from dprl.policies.signature import sign as write_signature

    load(policy)  # what cannot be used is not signed
    secret = SecretKey.read(key, _password)
    written = write_signature(policy, secret, comment)
    facts = {"policy": policy, "signature": str(written)}
    return told(facts, f"Signed: {written}", json)


def _password() -> str:
    given = os.environ.get(PASSWORD)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise ParameterError(
            "the secret key has a password, and nobody can be asked for it.",
            do=f"Set {PASSWORD}, or run the command in a terminal.",
        )
    import getpass

    return getpass.getpass("Password of the key: ")


# --- The command that writes a policy for others: `dprl export`


@command
def export(
    policy: str,
    /,
    *,
    out: Path,
    public: Flag = False,
    points: Flag = False,
    to: Literal["sql", "json", "python"] | None = None,
    table: str | None = None,
    column: str | None = None,
    dialect: Literal["duckdb", "standard"] | None = None,
    json: Json = False,
) -> int:
    """Write a copy of a policy; with --public a copy that names nobody and answers the same.

    A public copy holds no labels of episodes, no sample of the training log and no digest of a
    log, so it cannot tell which logs it has seen. Without --public the copy holds everything that
    the policy holds, in the file format of this version.

    A policy made of rules, or over labels, can be written for other programs too, with --to.

    Example: `dprl export policy.dprl --public --out public.dprl`

    Example: `dprl export policy.dprl --to sql --table stays --out rules.sql`

    Args:
        policy: A policy file.
        out: File for the copy.
        public: Leave out whatever names or identifies people.
        points: With --public: keep training points or cell centres, which are measurements of
            single people.
        to: Rules and labels only: write a query (sql), rules as JSON, or a Python function, with
            the same answers. A column of labels is called state.
        table: With --to sql: the table that is asked; by default stays.
        column: With --to sql: the column of suggestions; by default suggested.
        dialect: With --to sql: standard is for PostgreSQL and others too; by default duckdb.
    """
    from dprl.policies.base import public_copy
    from dprl.policies.loading import load

    names = {"table": table, "column": column, "dialect": dialect}
    naming = {name: value for name, value in names.items() if value is not None}
    if to is not None:
        _refuse("--to", {"public": public or None, "points": points or None}, "a policy file")
    if to != "sql":
        _refuse(f"--to {to}" if to else "a policy file", naming, "--to sql")
    refuse_overwrite(out, policy)
    with progress() as tell:
        tell("writing", 0.0)
        fitted = load(policy)
        if to is not None:
            text = _text(fitted, policy, to, naming)
            check_folder(out)
            with replacing(out) as part:
                part.write_text(text, encoding="utf-8")
            written = {"out": str(out), "to": to, "rules": len(getattr(fitted, "rules", ()))}
            return told(written, f"The rules of {policy} as {to}. Saved as {out}.", json)
        copy = public_copy(fitted, points=points) if public else fitted
        copy.save(out)
        digest = load(out).digest()
    facts = {"policy": str(out), "digest": digest, "public": public}
    kind = "A public copy" if public else "A copy"
    return told(facts, f"{kind} of {policy}. Saved as {out}.", json)


def _refuse(asked: str, given: dict[str, Any], only: str) -> None:
    """Refuse options that are not for what is asked."""
    others = {name: value for name, value in given.items() if value is not None}
    if others:
        first = next(iter(others))
        raise ParameterError(
            f"{', '.join(f'--{name}' for name in others)}: not for {asked}, only for {only}.",
            f"--{first}{'' if others[first] is True else f' {others[first]}'}",
            f"Leave {'it' if len(others) == 1 else 'them'} out (in {SETTINGS} too).",
        )


def _text(fitted: Any, policy: str, to: str, naming: dict[str, str]) -> str:
    """A policy in another language; refused where no short text says what it does."""
    exports = fitted.exports
    if to not in exports:
        raise ParameterError(
            f"--to {to} is for rules and for policies over labels; {policy!r} holds a policy of "
            f"{fitted.parameters.get('learner', 'another kind')} over numbers.",
            f"it answers from {fitted.single_states or 'what no short text can say'}",
            "Ask it by `dprl serve` or `dprl act`, or learn rules: dprl fit --learner rules.",
        )
    return str(exports[to](**naming))


# --- `dprl changes`: the decisions a policy would change


@command
def changes(
    policy: str,
    /,
    *,
    confirmations: bool = False,
    cases: Cases = False,
    details: Details = False,
    json: Json = False,
) -> int:
    """List the decisions a policy would change, the largest difference first.

    Args:
        policy: A policy file.
        confirmations: List instead the states where it suggests the usual action.
    """
    from dprl.policies.loading import deferring
    from dprl.policies.rules.text import not_issued, rules_of

    fitted = deferring(policy)
    listed = fitted.confirmations if confirmations else fitted.changes
    table = listed(cases=cases)
    proved, ruled = fitted.certificate, rules_of(fitted)
    apart = None if ruled is None else not_issued(ruled)
    if json:
        facts = None if proved is None else proved.to_dict()
        more: dict[str, Any] = {"stated": fitted.stated} if fitted.stated else {}
        if fitted.luck is not None:
            more["luck"] = {**fitted.provenance["luck"], "words": fitted.luck.words}
        if apart is not None:
            more["not_issued"] = apart.to_dicts()
        show({"rows": table.to_dicts(), "certificate": facts, **more}, json)
        return 0
    parts = [
        fitted.details() if details else str(fitted),
        table.details() if details else str(table),
        *([str(apart)] * bool(apart)),
    ]
    show("\n\n".join([*parts, *([] if proved is None else [printed(proved, details)])]), json)
    return 0


# --- `dprl explain`: why a policy answers as it does in one state

HOW = "a state is written NAME=VALUE,NAME=VALUE"


@command
def explain(policy: str, state: list[str], /, *, cases: Cases = False, json: Json = False) -> int:
    """Say why a policy answers as it does in one state.

    Examples: `dprl explain policy.dprl mild`, `dprl explain policy.dprl stage=mild` or, where
    states are features, `dprl explain policy.dprl pressure=58 lactate=2.1 'ward=ICU, north'`

    Args:
        policy: A policy file.
        state: A state's label, or its column and the label (stage=mild); or its features, a
            NAME=VALUE each ('pressure=58,lactate=2.1' in one word, too). A category is its label,
            and nothing stands for a missing value: pressure=58 ward=ICU lactate=
    """
    from dprl.policies.loading import deferring

    fitted = deferring(policy)
    names = fitted.space.feature_names
    encoding = getattr(fitted.space, "encoding", None)
    word = " ".join(state)
    if encoding is not None and word not in fitted.states:
        names = tuple(encoding.columns)
    label: Any
    if names:
        levels = getattr(fitted.space, "levels", None) if encoding is None else encoding.levels
        label = (
            numbers(_pairs(state), HOW)
            if levels is None
            else _mixed(_pairs(state), names, levels, () if encoding is None else encoding.days)
        )
        for name in label:
            if name not in names:
                raise ParameterError(
                    f"{name!r} is no feature of this policy.",
                    do=f"Features: {', '.join(names)}.",
                )
    else:
        label = _label(fitted, state)
    explanation = fitted.explain(label, cases=cases)
    return told(explanation.to_dict(), explanation, json)


def _pairs(words: Sequence[str]) -> list[str]:
    """NAME=VALUE pairs: a word each, or several in one word with commas between them.

    A comma that no name follows belongs to a label where each word is a pair.
    """
    if len(words) == 1:
        return next(csv.reader([words[0]], skipinitialspace=True), [])
    pairs: list[str] = []
    for word in words:
        parts = next(csv.reader([word.rstrip(",")], skipinitialspace=True), [])
        pairs += parts if all("=" in part for part in parts) else [word]
    return pairs


def _label(fitted: Any, words: Sequence[str]) -> Any:
    """The label of a state, from the label or from its column and the label."""
    word = " ".join(words)
    column = fitted.provenance.get("columns", {}).get("state") or "state"
    column = column[0] if isinstance(column, list) and len(column) == 1 else column
    name, equals, value = word.partition("=")
    if equals and name.strip() == column and word not in map(str, fitted.states):
        word = value
    if not fitted.states or isinstance(fitted.states[0], str):
        return word  # the policy folds it as it folded the labels of its log
    by_text = {str(s).lower(): s for s in fitted.states}
    word = word.strip()
    try:
        return by_text[word.lower()] if word.lower() in by_text else whole(word)
    except ValueError:
        what = "true or false" if isinstance(fitted.states[0], bool) else "whole numbers"
        raise ParameterError(
            f"this policy's states are {what}; got {word!r}.",
            do=f"Its states look like {', '.join(map(str, fitted.states[:3]))}.",
        ) from None


def _mixed(
    pairs: Sequence[str], names: Sequence[str], levels: Sequence[Any], days: Collection[str]
) -> dict[str, Any]:
    """A state as written: text for categories and dates, None where nothing is given."""
    categories = {name for name, own in zip(names, levels, strict=False) if own is not None}
    categories |= set(days)
    by_name: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals:
            raise ParameterError(f"{HOW}; got {pair!r}.", do="ward=ICU,lactate=2.1")
        if name in by_name:
            raise ParameterError(f"{name!r} is given twice.")
        if not value.strip():
            by_name[name] = None
        elif name in categories:
            by_name[name] = value
        else:
            by_name |= numbers([pair], HOW)
    return by_name


# --- A policy's suggestions for a file of states, and the file written again with one on every
# row


class Answered:
    """States with their answers, ready to be written in the order they came.

    `guessed` names the only column of the file, where it was taken for the states although it has
    another name.
    """

    def __init__(
        self, table: TableFile, states: list[Any], answers: list[Any], unknown: int, guessed: str
    ) -> None:
        self.table, self.states, self.answers, self.unknown = table, states, answers, unknown
        self.guessed, self.called = guessed, NOBODY

    def counts(self) -> dict[str, int]:
        """Rows, rows deferred, and rows whose state the policy never saw."""
        from dprl.policies.protocol import DEFER

        deferred = sum(a is DEFER for a in self.answers)
        return {"rows": len(self.answers), "deferred": deferred, "unknown": self.unknown}

    def write(self, out: str | None, name: str, defer: str) -> None:
        """Write the input's columns and one more; to standard output where `out` is None."""
        from dprl.policies.protocol import DEFER

        words = [defer if a is DEFER else str(a) for a in self.answers]
        named = None
        if self.called.values.get(self.called.action):
            named = [defer if a is DEFER else str(self.called.act(a)) for a in self.answers]
        if out is not None:
            if not Path(out).parent.is_dir():
                raise LogError(f"the folder of {out!r} does not exist.", do="Make it first.")
            with replacing(out) as part:
                self.table.write_with(name, words, part, Path(out).suffix.lower(), True, named)
            return
        with tempfile.TemporaryDirectory(dir=self.table.room) as folder:
            part = Path(folder) / "answers.csv"
            self.table.write_with(name, words, part, ".csv", called=named)
            with part.open(encoding="utf-8", newline="") as stream:
                if sys.stdout.isatty():  # a pipe gets every cell as it was
                    sys.stdout.writelines(map(harmless, stream))
                else:
                    shutil.copyfileobj(stream, sys.stdout)


def answer(
    policy: Policy,
    source: str,
    column: str | None,
    added: str,
    partitions: bool = False,
    decimal: str = ".",
    encoding: str = "utf-8",
    out: str | None = None,
) -> Answered:
    """Answer every row of a CSV or Parquet file, or of CSV on standard input ('-').

    `column` names the column of states (by default the one that the policy was fitted on); `added`
    is the name of the new column of answers. With `partitions`, folders named NAME=VALUE are read
    as columns too. `decimal` and `encoding` say how a CSV file is written; dates are written as in
    the log that the policy was fitted to. The answers can be written to the folder of `out`.
    """
    from dprl.logs.reading.tables import TableFile
    from dprl.logs.reading.text import Text

    text = Text(decimal, encoding, policy.provenance.get("columns", {}).get("dates", "iso"))
    folder_out = None if out is None else Path(out).parent
    if source != "-":
        table = TableFile(source, partitions=partitions, text=text, out=folder_out)
        return _answer(policy, table, column, added)
    with tempfile.TemporaryDirectory(prefix=prefix_in(None, "input")) as folder:
        name = Path(folder) / "standard input.csv"  # the name used in messages
        with name.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        table = TableFile(str(name), text=text, out=folder_out)
        return _answer(policy, table, column, added)


def _answer(policy: Policy, table: TableFile, column: str | None, added: str) -> Answered:
    from dprl.logs.reading.dates import on_day

    if added.lower() in {"state", *(name.lower() for name in table.types)}:
        raise LogError(
            f"the table has a column {added!r} already.", do="Choose another with --column."
        )
    names = policy.space.feature_names
    encoding = getattr(policy.space, "encoding", None)
    levels = getattr(policy.space, "levels", None)
    kinds = [*(levels or ()), *(() if encoding is None else encoding.levels)]
    table.read_gaps({*policy.space.states, *(label for own in kinds for label in own or ())})
    if encoding is not None and column is None:
        columns = table.mixed_features(list(encoding.columns), encoding.levels, encoding.days)
        shown = columns | {
            name: [None if day is None else on_day(day) for day in columns[name]]
            for name in encoding.days
        }
        rows = [dict(zip(shown, row, strict=True)) for row in zip(*shown.values(), strict=True)]
        labels = set(policy.space.states)
        unknown = 0 if names else len(rows) - sum(s in labels for s in encoding.states(rows))
        return Answered(table, rows, policy.act(columns) if rows else [], unknown, "")
    if names:
        if column is not None:
            raise LogError(
                f"a state of this policy is {len(names)} features, not {column!r}.",
                do="Leave --state out: the table's columns are found by the features' names.",
            )
        if levels is not None:  # which has an answer where a feature is missing
            columns = table.mixed_features(names, levels)
            rows = [
                dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)
            ]
            return Answered(table, rows, policy.act(columns), 0, "")
        x = table.features(names)
        rows = [dict(zip(names, row, strict=True)) for row in x.tolist()]
        return Answered(table, rows, policy.act(x), 0, "")
    guessed = ""
    if column is None:
        named = policy.provenance.get("columns", {}).get("state")
        column = named if isinstance(named, str) else None
        if column not in table.types and len(table.types) == 1:
            column = guessed = next(iter(table.types))
    if column is None:
        raise LogError(
            f"which of the {len(table.types)} columns holds the states is not said.",
            ", ".join(map(repr, table.types)),
            "Name it with --state.",
        )
    policy_states = policy.space.states
    states = table.states(column, type(policy_states[0]) if policy_states else int)
    answers = policy.act(states)
    unknown = int((policy.space.codes(states) < 0).sum())  # type: ignore[union-attr]
    return Answered(table, states, answers, unknown, guessed)


def _as_json(column: str, answer: Any) -> dict[str, Any]:
    """One answer as JSON holds it: an action, null where it defers, or what to avoid."""
    from dprl.policies.protocol import DEFER, Avoid

    if isinstance(answer, Avoid):
        return {column: None, "avoid": answer.action}
    return {column: None if answer is DEFER else answer}


# --- `dprl act`: a policy's suggestion beside every state of a table


@command
def act(
    policy: str,
    states: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-",
    /,
    *,
    state: str | None = None,
    out: str | None = None,
    column: str = "suggested",
    defer: str = "DEFER",
    partitions: Partitions = False,
    decimal: Decimal = None,
    encoding: Letters = None,
    json: Json = False,
) -> int:
    """Write a policy's suggestion beside every state of a table: an action, "not" an action, DEFER.

    Example: `echo stage-3 | (echo stage; cat) | dprl act policy.dprl`

    Args:
        policy: A policy file.
        states: A CSV or Parquet file with a column of states; '-' reads CSV with a header from
            standard input.
        state: Column of states; by default as in the log.
        out: A .csv or .parquet file; default: standard output.
        column: Name of the column that is added.
        defer: What to write for DEFER; '' for nothing.
    """
    from dprl.policies.loading import deferring

    refuse_overwrite(out, policy, states)
    fitted = deferring(policy)
    if defer.removeprefix("not ") in map(str, fitted.actions):
        raise ParameterError(
            f"--defer {defer!r} names an action of the policy: nobody could tell them apart.",
            do="Choose another word for what is deferred.",
        )
    encoded = getattr(fitted.space, "encoding", None) is not None
    if state is None and not fitted.space.feature_names and not encoded:
        columns = columns_for(fitted, None, "act")["state"]
        state = columns[0] if isinstance(columns, list) and len(columns) == 1 else columns
    answered = answer(
        fitted, states, state, column, partitions, decimal or ".", encoding or "utf-8", out
    )
    answered.called = Called.learned(fitted)
    counts = answered.counts()
    if answered.guessed:
        complain(f"the only column, {answered.guessed!r}, is taken for the states.")
    if out is not None:
        answered.write(out, column, defer)
    if json:
        rows = [
            {"state": s, **_as_json(column, a)}
            for s, a in zip(answered.states, answered.answers, strict=True)
        ]
        show({**counts, "rows_out": rows} if out is None else {**counts, "out": out}, as_json=True)
        return 0
    if out is None:
        answered.write(None, column, defer)
    if counts["unknown"]:
        complain(
            f"{counts['unknown']:,} of {counts['rows']:,} rows hold a state the policy never saw: "
            "deferred."
        )
    if out is not None:
        complain(f"{many(counts['rows'], 'row')}, {counts['deferred']:,} deferred. Saved as {out}.")
    return 0
