"""CSV files in encodings that DuckDB does not know: by way of UTF-8, in a private folder."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from dprl._core.limits import said_if_short
from dprl._core.words import option, worded
from dprl.errors import LogError

__all__ = ["Recoded", "written_in"]

PIECE = 1 << 20
"""Characters that are written again at a time."""


class Recoded:
    """Copies of files in UTF-8; they are removed when nothing refers to this any more.

    They are in a private folder in `room`. Default None: the system's place for temporary files.

    Attributes:
        files: The copies, in the order of the files and under the same names.
    """

    def __init__(self, files: Sequence[str], encoding: str, room: str | None = None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="dprl-utf8-", dir=room))
        self.remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.files: list[str] = []
        try:
            for i, file in enumerate(files):
                name = os.path.basename(file)
                packed = name.lower().endswith(".gz")
                copy = folder / str(i) / (name[:-3] if packed else name)
                copy.parent.mkdir()
                with said_if_short("the file as UTF-8", str(folder)):
                    _copy(file, copy, encoding, packed)
                self.files.append(str(copy))
        except BaseException:
            self.remove()
            raise


def _copy(file: str, copy: Path, encoding: str, packed: bool) -> None:
    """Write one file again as UTF-8; a LogError names what cannot be read."""
    try:
        with contextlib.ExitStack() as stack:
            opener = gzip.open if packed else open
            source = stack.enter_context(opener(file, "rt", encoding=encoding, newline=""))
            target = stack.enter_context(copy.open("w", encoding="utf-8", newline=""))
            while piece := source.read(PIECE):
                target.write(piece)
    except (UnicodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise LogError(
            f"{os.path.basename(file)!r} is not text in {encoding}.",
            str(error)[:200],
            worded(
                "Declare the encoding it is written in ({encoding}), or write it again as UTF-8.",
                encoding=option("encoding"),
            ),
        ) from error


@contextlib.contextmanager
def written_in(encoding: str, path: Path, room: Path) -> Iterator[Path]:
    """Give a path for text in UTF-8; at the end `path` holds the same text in `encoding`.

    For UTF-8 that is `path` itself; else it is in a folder in `room`.
    """
    if encoding == "utf-8":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="dprl-utf8-", dir=room) as folder:
        plain = Path(folder) / "table.csv"
        yield plain
        try:
            with (
                said_if_short("writing the table", str(path)),
                plain.open(encoding="utf-8", newline="") as source,
                path.open("w", encoding=encoding, newline="") as target,
            ):
                while piece := source.read(PIECE):
                    target.write(piece)
        except UnicodeEncodeError as error:  # the names of folders need not be in this encoding
            raise LogError(
                f"the table cannot be written in {encoding}, the encoding of its files.",
                str(error)[:200],
                "Leave --partitions out, or write the files again as UTF-8.",
            ) from error
