"""Commands about this machine and the command line itself: `doctor`, `completion`, `help`."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cyclopts import App, Parameter

from dprl.apps.cli.console import app, command, progress, show
from dprl.apps.cli.options import SETTINGS, Json, log_options
from dprl.errors import ParameterError

# --- `dprl help`: what a command does, and the options about a log that commands share


@Parameter(name="*")
@dataclass(kw_only=True)
class AllLogOptions(log_options("_All", optional=True, shown=True)):  # type: ignore[misc]
    """The options about a log, all of them shown."""


ABOUT_LOG = """Options about the log, of all commands that read one.

They say which column is what, how the table is written, and what is done to its values. Commands
that take a policy read the columns it was fitted on; name those that are called otherwise. All can
be kept in `dprl.toml`, in the table [log].
"""


@command
def help(topic: str = "", /) -> int:  # noqa: A001  (a command has the name of its function)
    """Show what a command does, or the options about a log: `dprl help fit`, `dprl help log`.

    Args:
        topic: A command, or log.
    """
    if topic == "log":
        topics = App(name="dprl COMMAND", help=ABOUT_LOG, help_flags=(), version_flags=())
        topics.default(_log)
        topics.help_print([])
        return 0
    commands = [name for name in app if not name.startswith("-")]
    if topic and topic not in commands:
        raise ParameterError(
            f"there is no help on {topic!r}.", do=f"Ask for log, or for {', '.join(commands)}."
        )
    app.help_print([topic] if topic else [])
    return 0


def _log(*, log: AllLogOptions | None = None) -> None:
    """Only its help is used."""


# --- `dprl completion`: what a shell needs to complete commands and options


@command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print what makes a shell complete dprl's commands and options with the tab key.

    Example: `dprl completion bash > ~/.local/share/bash-completion/completions/dprl`

    Example: `dprl completion zsh > ~/.zfunc/_dprl`, with that folder in fpath

    Example: `dprl completion fish > ~/.config/fish/completions/dprl.fish`

    Args:
        shell: The shell.
    """
    show(app.generate_completion(prog_name="dprl", shell=shell).rstrip(), as_json=False)
    return 0


# --- `dprl doctor`: versions, threads, memory, caches, and whether the compiled loops are warm

OPTIONAL = {
    "plot": ("matplotlib",),
    "serve": ("starlette", "uvicorn"),
    "sign": ("cryptography",),
    "cluster": ("dask", "distributed"),
    "deep": ("torch",),
    "gym": ("gymnasium", "minari"),
    "frames": ("pandas", "polars", "pyarrow"),
}
"""What extras bring, by the name people know them by."""


@command
def doctor(
    *,
    warm: bool = False,
    json: Json = False,
) -> int:
    """Say what this installation is made of, and whether anything is in its way.

    Versions of dprl and of what it needs, cores and threads, memory, free disk, where compiled
    loops are kept and how many of them are. Changes nothing but, with --warm, what is kept: what a
    first read, fit and judgement need is compiled now. Exit code 1 where something is wrong.

    Args:
        warm: Compile what first uses would compile.
    """
    with progress() as tell:
        for i, job in enumerate(WARMING if warm else ()):
            tell("compiling", i / len(WARMING))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of logs that mean nothing
                job()
        tell("looking", 0.0)
        facts = _facts()
    if json:
        show(facts, as_json=True)
    else:
        show(_words(facts), as_json=False)
    return 1 if facts["trouble"] else 0


def _warm_tables() -> None:
    """Use once what learns from labels, and what judges it."""
    import dprl

    world = dprl.envs.forest()
    log, held_out = world.sample(200, seed=0), world.sample(200, seed=1)
    policy = dprl.DPRLDiscrete(n_min=5, gamma=0.9, cut="terminal").fit(log)
    dprl.evaluate(policy, held_out, draws=20, cut="terminal")
    dprl.Confident(gamma=0.9, cut="terminal").fit(log)


def _warm_features() -> None:
    """Use once what learns from features, and has a policy answer."""
    import numpy as np

    import dprl

    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(800, 3)), np.repeat(np.arange(200), 4)
    reward, action = rng.normal(size=800), rng.permutation(800) % 2
    log = dprl.from_arrays(episode=group, state=X, action=action, reward=reward)
    dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=0.9).fit(log).act(X[:100])
    dprl.Rules(gamma=0.9, depth=2).fit(log)


def _warm_files() -> None:
    """Read once a file of so many rows and labels that compiled loops do it."""
    import dprl
    from dprl._core.labels import MANY

    header = "episode,time,state,action,reward"
    rows = "\n".join(f"p{i},0,s{i % 7},a{i % 3},{i % 11}" for i in range(MANY))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_text(f"{header}\n{rows}\n", encoding="utf-8")
        log = dprl.read(
            path, episode="episode", time="time", state="state", action="action", reward="reward"
        )
    dprl.DPRLDiscrete(n_min=5, gamma=0.9).fit(log)


WARMING = (_warm_tables, _warm_features, _warm_files)
"""What `dprl doctor --warm` does once."""


def _facts() -> dict[str, Any]:
    from dprl._core import __version__

    needed = _needed()
    trouble = [
        f"{name} {at} is older than dprl needs ({least} or newer)"
        for name, (at, least, good) in needed.items()
        if at and not good
    ]
    trouble += [f"{name} is not installed" for name, (at, _, _) in needed.items() if not at]
    kernels, trouble_of_kernels = _kernels()
    memory, free = _memory()
    return {
        "dprl": __version__,
        "folder": str(Path(sys.modules["dprl"].__file__ or "").parent),
        "python": platform.python_version(),
        "system": platform.platform(),
        "needed": {name: at for name, (at, _, _) in needed.items()},
        "optional": {name: {p: _version(p) for p in parts} for name, parts in OPTIONAL.items()},
        "cores": os.cpu_count(),
        "threads": {
            name: os.environ[name]
            for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
            if name in os.environ
        },
        "memory": memory,
        "temporary": {"folder": tempfile.gettempdir(), "free": free},
        "kernels": kernels,
        "settings": SETTINGS if Path(SETTINGS).is_file() else None,
        "trouble": [*trouble, *trouble_of_kernels],
    }


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _needed() -> dict[str, tuple[str | None, str, bool]]:
    """Package → its version here, the lowest that will do, and whether it does."""
    import re
    from importlib import metadata

    try:
        lines = metadata.requires("dprl") or []
    except metadata.PackageNotFoundError:  # run from a folder, never installed
        lines = []
    packages = {}
    for line in lines:
        one = re.fullmatch(r"([A-Za-z0-9_.-]+)\s*>=\s*([0-9.]+)", line.strip())
        if one is not None:
            at, least = _version(one[1]), one[2]
            packages[one[1]] = (at, least, at is not None and _parts(at) >= _parts(least))
    return packages


def _parts(version: str) -> tuple[int, ...]:
    import re

    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))


def _kernels() -> tuple[dict[str, Any], list[str]]:
    """How many compiled loops there are, how many are kept on disk and where, and what is wrong."""
    import importlib
    import re

    import dprl
    from dprl._core.compiled import KERNELS

    source = Path(dprl.__file__).parent
    for path in sorted(source.rglob("*.py")):
        if re.search(r"^@(compiled|fused)", path.read_text(encoding="utf-8"), re.M):
            importlib.import_module(
                ".".join(("dprl", *path.relative_to(source).with_suffix("").parts))
            )
    folders, warm = set(), 0
    for kernel in KERNELS.values():
        folder = _cache_folder(kernel)
        if folder is None:
            continue
        folders.add(str(folder))
        name = kernel.py_func.__qualname__
        warm += any(folder.glob(f"{Path(kernel.py_func.__code__.co_filename).stem}.{name}-*.nbi"))
    writable = [folder for folder in folders if _writable(Path(folder))]
    trouble = []
    if not any(hasattr(kernel, "stats") for kernel in KERNELS.values()):
        trouble.append("NUMBA_DISABLE_JIT is set, so no loop is compiled: for debuggers alone")
    elif len(writable) < len(folders) or not folders:
        trouble.append(
            "compiled loops cannot be kept on disk, so every run compiles them anew: set "
            "NUMBA_CACHE_DIR to a folder that can be written"
        )
    return {"loops": len(KERNELS), "warm": warm, "folders": sorted(folders)}, trouble


def _cache_folder(kernel: Any) -> Path | None:
    """Where the machine code of a kernel is kept; None where it is not kept."""
    place = getattr(getattr(kernel, "stats", None), "cache_path", None)
    return None if place is None else Path(place)


def _writable(folder: Path) -> bool:
    """Whether a folder, or the first folder above it that exists, can be written."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _memory() -> tuple[int | None, int | None]:
    """Bytes of memory, and bytes free where temporary files go."""
    import shutil

    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        total = None
    try:
        free = shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        free = None
    return total, free


def _size(bytes_: int | None) -> str:
    return "unknown" if bytes_ is None else f"{bytes_ / 1e9:.1f} GB"


def _words(facts: dict[str, Any]) -> str:
    def versions(packages: dict[str, str | None]) -> str:
        return " · ".join(f"{name} {at or 'not installed'}" for name, at in packages.items())

    kernels = facts["kernels"]
    threads = " · ".join(f"{name}={value}" for name, value in facts["threads"].items())
    cold = kernels["loops"] - kernels["warm"]
    lines = [
        f"dprl {facts['dprl']}, Python {facts['python']}, {facts['system']}",
        f"  in {facts['folder']}",
        f"needs     {versions(facts['needed'])}",
        *(f"{name:<9} {versions(parts)}" for name, parts in facts["optional"].items()),
        f"machine   {facts['cores']} cores{f', {threads}' if threads else ''}, "
        f"{_size(facts['memory'])} of memory",
        f"temporary {facts['temporary']['folder']}, {_size(facts['temporary']['free'])} free",
        f"loops     {kernels['warm']} of {kernels['loops']} compiled and kept on disk"
        + (f"; the others compile when they are first used, {cold} of them" if cold else ""),
        *(f"  in {folder}" for folder in kernels["folders"][:3]),
        f"settings  {facts['settings'] or f'no {SETTINGS} in this folder'}",
    ]
    lines += [f"trouble   {line}" for line in facts["trouble"]] or ["No trouble."]
    return "\n".join(lines)
