"""Registries: what has a name and is declared once, here or in a package of somebody else.

A package of your own adds to a registry when its module is imported, by a call to `register`. dprl
finds the module in one of two ways, and only when a name is asked for that it does not know itself:

* the package announces it as an entry point, whose group is that of the registry
  (``[project.entry-points."dprl.learners"]``, ``mine = "my_package.learner"``);
* the environment variable DPRL_PLUGINS names it (several with commas between them).

No file that dprl reads can name a module: what is imported is chosen by who runs dprl.
"""

from __future__ import annotations

import importlib
import os
from typing import TypeVar

from dprl.errors import ParameterError

__all__ = ["PLUGINS", "Registry"]

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
