"""Packages that only some of the work needs: imported when it begins, or said to be missing."""

from __future__ import annotations

import importlib
from typing import Any

from dprl.errors import PackageError

__all__ = ["missing", "needed"]


def needed(module: str, by: str, install: str, package: str = "") -> Any:
    """A module of an optional package.

    Args:
        module: Its name, as it is imported.
        by: What needs it: "a figure".
        install: What pip must be given to install it: "dprl[plot]".
        package: The name of the package, where the module has another.
    """
    top = module.partition(".")[0]
    try:
        importlib.import_module(top)
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from error  # Ctrl-C in the middle of an import
        there = not isinstance(error, ModuleNotFoundError) or error.name != top
        raise missing(by, package or top, f"import {module}: {error}", install, there) from error


def missing(by: str, package: str, where: str, install: str, there: bool = False) -> PackageError:
    """The error for a package that is not there; or is `there`, and cannot be imported."""
    state = "installed but cannot be imported" if there else "not installed"
    quoted = f"'{install}'" if "[" in install else install
    return PackageError(f"{by} needs {package}, which is {state}.", where, f"pip install {quoted}")
