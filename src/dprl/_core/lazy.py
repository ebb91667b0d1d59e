"""Public names that are imported on first use, told once for each package.

`import dprl` must stay quick and acting on a policy must not need a compiler, so no package imports
its modules. Each names its public names in its `if TYPE_CHECKING:` block, where type checkers see
them; `attach` reads the same lines.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

PUBLIC = re.compile(r"^    from (dprl[\w.]*) import (\w+) as \2$", re.MULTILINE)
"""A public name: its module, and the name itself."""


def attach(
    package: str, modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose names are imported on first use.

    Args:
        package: The name of the package. Its public names stand in its source, one a line, as
            ``from dprl.logs.log import Log as Log``.
        modules: Modules and packages that are public themselves, by their full names. Default none.

    Returns:
        The three, to be assigned in the package.
    """
    loader: Any = sys.modules[package].__spec__.loader  # type: ignore[union-attr]
    where = {name: home for home, name in PUBLIC.findall(loader.get_source(package))}
    inner = {module.rpartition(".")[2]: module for module in modules}

    def get(name: str) -> Any:
        if name in inner:
            return importlib.import_module(inner[name])
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(where[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted({*where, *inner})
    return get, lambda: names, names


class _Other(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules under a second name: the module itself, not a copy."""

    def __init__(self, names: Mapping[str, str], old: bool) -> None:
        self.names = dict(names)
        self.old = old
        self.own: dict[str, Any] = {}

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        for name in self.names:
            if fullname == name or fullname.startswith(f"{name}."):
                return importlib.machinery.ModuleSpec(fullname, self)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        first = next(n for n in self.names if f"{spec.name}.".startswith(f"{n}."))
        home = self.names[first] + spec.name[len(first) :]
        module = importlib.import_module(home)
        if self.old:
            warnings.warn(
                f"{spec.name} is called {home} now; the old name goes with the next release.",
                DeprecationWarning,
                stacklevel=2,
            )
        self.own[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: the module already ran under its own name, and keeps that name."""
        if module.__spec__ is not None:
            module.__spec__ = self.own[module.__spec__.name]


def alias(names: Mapping[str, str], old: bool = False) -> None:
    """Let modules be imported under other names, too: public name → where the module is.

    An `old` name works with a warning.
    """
    sys.meta_path.insert(0, _Other(names, old))  # before a path of the package finds a second copy
