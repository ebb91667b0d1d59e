"""Options that say how a table is written, for commands that take some of them alone."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from dprl.logs._reading import OPTIONS

__all__ = ["Dates", "Decimal", "Labels", "Letters", "Partitions"]

Decimal = Annotated[str | None, Parameter(help=OPTIONS["decimal"].metadata["help"])]
Letters = Annotated[str | None, Parameter(help=OPTIONS["encoding"].metadata["help"])]
Dates = Annotated[str | None, Parameter(help=OPTIONS["dates"].metadata["help"])]
Labels = Annotated[str | None, Parameter(help=OPTIONS["labels"].metadata["help"])]
Partitions = Annotated[bool, Parameter(help=OPTIONS["partitions"].metadata["help"], negative="")]
