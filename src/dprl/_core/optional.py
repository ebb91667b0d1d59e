"""Optional packages: imported when they are needed, with a clear error if they are missing."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from dprl.errors import PackageError, ParameterError

# --- Registries: what has a name and is declared once, here or in a package of somebody else
#
# A package of your own adds to a registry when its module is imported, by a call to `register`.
# dprl finds the module in one of two ways, and only when a name is asked for that it does not know
# itself:
#
# * the package announces it as an entry point, whose group is that of the registry
#   (``[project.entry-points."dprl.learners"]``, ``mine = "my_package.learner"``);
# * the environment variable DPRL_PLUGINS names it (several with commas between them).
#
# No file that dprl reads can name a module: what is imported is chosen by who runs dprl.

PLUGINS = "DPRL_PLUGINS"
"""Environment variable: modules that register something when they are imported."""

T = TypeVar("T")


class Registry(dict[str, T]):
    """Name → what is declared under it, in the order of declaration.

    Args:
        group: The group of entry points in which packages announce more of them.
        what: What one of them is, for messages.
    """

    def __init__(self, group: str, what: str) -> None:
        super().__init__()
        self.group, self.what = group, what

    def add(self, name: str, value: T) -> None:
        """Declare one; a name that is taken is refused, unless it is for the same thing."""
        if self.setdefault(name, value) != value:
            raise ParameterError(
                f"there is a {self.what} {name!r} already.", do="Name it otherwise."
            )

    def find(self, name: str) -> T | None:
        """What is declared under a name, here or by a package; None where nothing is."""
        if name not in self:
            self._import_plugins(name)
        return self.get(name)

    def _import_plugins(self, name: str) -> None:
        from importlib.metadata import entry_points  # which takes milliseconds

        modules = [entry.module for entry in entry_points(group=self.group, name=name)]
        modules += [word.strip() for word in os.environ.get(PLUGINS, "").split(",") if word.strip()]
        for module in modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise ParameterError(
                    f"the module {module!r} of a {self.what} cannot be imported.",
                    str(error),
                    f"Install it, or leave it out ({PLUGINS}, or the package that announces it).",
                ) from error


# --- Libraries of linear algebra on one thread
#
# Their sums depend on the number of threads in the last bits, and threads that wait for each other
# in small products cost many times what they save.


_LOADED = ("numpy.linalg", "scipy.linalg", "sklearn.utils._openmp_helpers", "torch")
"""Modules that bring libraries of their own."""


@functools.cache
def _controller(_loaded: tuple[bool, ...]) -> Any:
    """What knows the libraries that are loaded now, made anew where more of them are."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


@contextmanager
def single_thread(kind: str | None = "blas") -> Iterator[None]:
    """Libraries on one thread, inside the block.

    Args:
        kind: Which libraries: "blas", "openmp", or None for both.
    """
    if kind != "blas":  # what is imported inside the block would not be held to one
        importlib.import_module("sklearn.utils._openmp_helpers")
    loaded = tuple(name in sys.modules for name in _LOADED)
    with _controller(loaded).limit(limits=1, user_api=kind):
        yield


# --- Optional packages: imported when they are needed, with a clear error if they are missing


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
