"""Optional packages: imported when they are needed, with a clear error if they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from dprl.errors import PackageError

__all__ = ["missing", "needed"]


def needed(module: str, by: str, install: str, package: str = "") -> Any:
    """A module of an optional package.

    Args:
        module: The name of the module, as it is imported.
        by: What needs it, for the message: "a figure".
        install: The argument of pip that installs it: "dprl[plot]".
        package: The name of the package, if it differs from that of the module. Default: the same.

    Returns:
        The imported module.

    Raises:
        PackageError: If the package is missing or cannot be imported.
    """
    top = module.partition(".")[0]
    try:
        importlib.import_module(top)
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error  # Ctrl-C in the middle of an import
        installed = not isinstance(error, ModuleNotFoundError) or error.name != top
        raise missing(
            by, package or top, f"import {module}: {error}", install, installed
        ) from error


def missing(
    by: str, package: str, where: str, install: str, installed: bool = False
) -> PackageError:
    """The error for a package that is not installed, or (`installed`) cannot be imported."""
    state = "installed but cannot be imported" if installed else "not installed"
    quoted = f"'{install}'" if "[" in install else install
    return PackageError(f"{by} needs {package}, which is {state}.", where, f"pip install {quoted}")
