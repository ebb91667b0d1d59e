"""Who may ask: one token, or several with names, kept in a private file.

The file is TOML, one line per caller:

    ward-7 = "a token of at least 16 characters"

Log and audit say by name who asked; a token is never written down. The file is read again on
SIGHUP. One that cannot be used changes nothing: the tokens that were read last go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dprl.apps.serve.audit import check_ordinary
from dprl.apps.web import same
from dprl.errors import ParameterError

SHORTEST = 16
"""Smallest number of characters of a token."""
MOST, LARGEST = 1000, 1 << 20
"""Largest number of callers, and of bytes of their file."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KEPT = "tokens.toml"
HOW = 'Write one line per caller, such as: ward-7 = "a long random token".'


def check_token(token: object, what: str, where: str = "") -> str:
    """A token that is long enough and can stand in a header; the error does not show it."""
    plain = isinstance(token, str) and token.isascii() and token.isprintable() and " " not in token
    if not isinstance(token, str) or not plain or len(token) < SHORTEST:
        raise ParameterError(
            f"{what} must have at least {SHORTEST} characters, plain ones without blanks.", where,
            "Make one with: openssl rand -base64 24",
        )  # fmt: skip
    return token


@dataclass
class Tokens:
    """The tokens that the service accepts.

    Attributes:
        by_name: Name of a caller → token; the name is '' where there is one token without a name.
        path: The file that they were read from; None where there is none.
        kept: Where the tokens that were read last are kept for processes that start later; None
            where there is one process.
    """

    by_name: Mapping[str, str] = field(repr=False)
    path: Path | None = None
    kept: Path | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str], shared: str | None = None) -> Tokens:
        """The tokens that were taken over last, or, where none are kept, those of a file.

        Args:
            path: The file.
            shared: Folder that the processes of a server share; None where there is one process.
        """
        kept = None if shared is None else Path(shared) / KEPT
        if kept is not None and kept.exists():
            return cls(_read(kept), Path(path), kept)
        tokens = cls(_read(Path(path)), Path(path))
        if shared is not None:
            tokens.keep(shared)
        return tokens

    def keep(self, shared: str) -> None:
        """Keep the tokens in a folder for processes that start later, now and on each reload."""
        self.kept = Path(shared) / KEPT
        self._keep()

    @property
    def names(self) -> list[str]:
        """The names of the callers; none where there is one token without a name."""
        return sorted(name for name in self.by_name if name)

    def caller(self, given: str) -> str | None:
        """Whose token this is; None where it is nobody's.

        Every token is looked at, so the time taken does not show which one is nearly right.
        """
        whose = None
        for name, token in self.by_name.items():
            if same(given, token):
                whose = name
        return whose

    def reload(self) -> None:
        """Read the file again; a ParameterError where it cannot be used, and nothing changes."""
        if self.path is not None:
            self.by_name = _read(self.path)
            self._keep()

    def _keep(self) -> None:
        if self.kept is None or self.path is None:
            return
        text = "".join(
            f"{json.dumps(name)} = {json.dumps(token)}\n" for name, token in self.by_name.items()
        )
        part = ""
        try:
            handle, part = tempfile.mkstemp(dir=self.kept.parent)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(text)
            Path(part).replace(self.kept)
        except OSError:  # then who starts later reads the file: no token that was withdrawn stays
            for stale in (part, self.kept):
                with contextlib.suppress(OSError):
                    os.unlink(stale)


def _read(path: Path) -> dict[str, str]:
    check_ordinary(path, "the file of tokens", HOW)
    try:
        with path.open("rb") as file:
            _check_private(os.fstat(file.fileno()), path)
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ParameterError(
            f"the tokens in {str(path)!r} cannot be read: {error.strerror}.", do=HOW
        ) from error
    if len(data) > LARGEST:
        raise ParameterError(f"{str(path)!r} is too large for a file of tokens.", do=HOW)
    try:
        given = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        place = re.search(r"\(at [^()]*\)", str(error))  # the rest might show a token
        raise ParameterError(
            f"the tokens in {str(path)!r} are no TOML.", place[0] if place else "", HOW
        ) from None
    if not 1 <= len(given) <= MOST:
        raise ParameterError(
            f"{str(path)!r} names {len(given):,} callers, not 1 to {MOST:,}.", do=HOW
        )
    for number, (name, token) in enumerate(given.items(), 1):
        if not NAME.fullmatch(name):
            raise ParameterError(
                "the name of a caller has 1 to 64 letters, digits, '.', '_' and '-'.",
                f"name {number} in {str(path)!r}", HOW,
            )  # fmt: skip
        check_token(token, f"the token of {name!r}", str(path))
    owners: dict[str, str] = {}
    for name, token in given.items():
        other = owners.setdefault(token, name)
        if other != name:
            raise ParameterError(
                f"{other!r} and {name!r} have the same token.", str(path),
                "Give each caller a token of its own.",
            )  # fmt: skip
    return given


def _check_private(facts: os.stat_result, path: Path) -> None:
    """Refuse a file that others could read or change."""
    if os.name != "posix":
        return
    by_group = stat.S_IRGRP if facts.st_uid == 0 else 0  # root's secret, handed to a group
    if facts.st_mode & 0o077 & ~by_group:
        raise ParameterError(
            "the file of tokens can be read or changed by others.",
            f"{str(path)!r} has mode {stat.S_IMODE(facts.st_mode):o}",
            f"Make it private: chmod 600 {path}",
        )
    if facts.st_uid not in (0, os.geteuid()):
        raise ParameterError(
            "the file of tokens belongs to another user.", str(path), "Own it, or let root own it."
        )


@contextlib.contextmanager
def token_file(token: str | None) -> Iterator[Path | None]:
    """A private file with a token, in a private folder, until the end of the block.

    The folder is made where the system keeps what lives as long as a service does. None where there
    is no token.
    """
    if token is None:
        yield None
        return
    places = [os.environ.get(name, "") for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR")]
    place = next((p for p in places if p and os.access(p, os.W_OK)), None)
    try:
        folder = Path(tempfile.mkdtemp(prefix="dprl-token-", dir=place))
        handle = os.open(folder / "token", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(token)
    except OSError as error:
        raise ParameterError(
            "a new token would be printed where others may read it, and no file can be written.",
            f"standard output is no terminal; {error}",
            "Put a token into the environment variable DPRL_TOKEN, or name a file with --tokens.",
        ) from error
    try:
        yield folder / "token"
    finally:
        remove_token_file(folder / "token")


def remove_token_file(path: Path) -> None:
    """Remove the file and its folder, if they are still there."""
    with contextlib.suppress(OSError):
        path.unlink()
    with contextlib.suppress(OSError):
        path.parent.rmdir()
