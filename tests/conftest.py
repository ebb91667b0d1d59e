"""Small logs, in the two forms the tests need: lists of rows for the oracle, a Log for dprl."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from sources import WAYS

import dprl

# DuckDB's binding lists what is still alive when the interpreter goes, whoever keeps it: a page of
# lines after the result. This runs last (it is registered first) and lets them go nowhere.
atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))

# Nobody pulls the plug on a test. What is asked of the disk, and in which order, is tested with
# steps that fail; to wait for it a thousand times tests nothing.
os.fsync = lambda handle: None

Row = tuple[Any, Any, float]

settings.register_profile(
    "dprl", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)  # fmt: skip
settings.register_profile("long", parent=settings.get_profile("dprl"), max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dprl"))

QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.memory.monitor-interval": "5s",
}
"""A cluster that waits for its next test looks at itself less often: it cost a tenth of a core."""

COLUMNS = {
    "episode": "patient", "time": "day", "state": "stage", "action": "drug", "reward": "score",
}  # fmt: skip


def to_log(
    episodes: Sequence[Sequence[Row]], cut: Sequence[bool] | None = None, **options: Any
) -> dprl.Log:
    """A Log of these episodes; `cut` marks those we stopped looking at."""
    rows = [
        (e, t, s, a, r, not cut[e] if cut else True)
        for e, episode in enumerate(episodes)
        for t, (s, a, r) in enumerate(episode)
    ]
    episode, time, state, action, reward, ended = map(list, zip(*rows, strict=True))
    if cut is not None:
        options["ended"] = ended
    return dprl.from_arrays(
        episode=episode, time=time, state=state, action=action, reward=reward, **options
    )


def random_episodes(seed: int, dyadic: bool = False) -> list[list[Row]]:
    """A few dozen episodes with revisits, ties, one-step episodes, lone actions, gappy labels."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    states = sorted(rng.choice(1000, n_states, replace=False).tolist())
    actions = [f"a{i}" for i in sorted(rng.choice(40, n_actions, replace=False).tolist())]
    lone = set(rng.choice(states, max(1, n_states // 4)).tolist())
    levels = [0.0, 0.5, 1.0, -0.25]
    episodes = []
    for _ in range(int(rng.integers(2, 60))):
        length = 1 if rng.random() < 0.2 else int(rng.integers(1, 13))
        episode = []
        for _ in range(length):
            s = int(rng.choice(states))
            a = actions[0] if s in lone else str(rng.choice(actions))
            r = float(rng.choice(levels)) if dyadic else float(rng.normal())
            episode.append((s, a, r))
        episodes.append(episode)
    return episodes


@pytest.fixture(params=WAYS)
def held(request, tmp_path):
    """A function that holds a log in one of all the ways there are; a test runs once for each."""
    with contextlib.ExitStack() as stack:
        yield lambda log: stack.enter_context(WAYS[request.param](log, tmp_path))


@pytest.fixture(scope="session")
def two():
    """A Dask cluster of two worker processes on this machine, for all tests of this process."""
    pytest.importorskip("distributed")
    import dask

    from dprl._core.cluster import connect

    with dask.config.set(QUIET), connect(2, patience=300) as cluster:
        yield cluster


@pytest.fixture
def visits(tmp_path):
    """A small CSV file of visits with a decision worth changing, and its columns."""
    rng = np.random.default_rng(5)
    lines = ["patient,day,stage,drug,score"]
    for patient in range(300):
        stage = "mild"
        for day in range(3):
            drug = "new" if rng.random() < 0.3 else "old"
            good = rng.random() < (0.8 if (drug == "new") == (stage == "mild") else 0.3)
            lines.append(f"{patient},{day},{stage},{drug},{int(good)}")
            stage = "mild" if good else "severe"
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, COLUMNS


@pytest.fixture(scope="session")
def played():
    """A log of the stand-in for a game (needs torch)."""
    from bars import EXPERT, MEDIUM, Bars

    from dprl_studies.atari import collect

    return collect("bars", EXPERT, MEDIUM, samples=300, seed=4, copies=4, make=Bars)


@pytest.fixture(scope="session")
def frames(played):
    from bars import Bars

    return played.frames(Bars)


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder; gives (exit code, stdout, stderr)."""
    from dprl.apps.cli.main import main

    monkeypatch.chdir(tmp_path)

    def call(*tokens, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as caught:
            main([str(t) for t in tokens])
        out = capsys.readouterr()
        return caught.value.code, out.out, out.err

    return call


def options(columns):
    return [x for part, name in columns.items() for x in (f"--{part}", name)]


@pytest.fixture(scope="session")
def care():
    """A world, a policy learned from it, and a log it has not seen."""
    mdp = dprl.envs.care_pathway()
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(mdp.sample(1_000, seed=1))
    return mdp, policy, mdp.sample(1_000, seed=2)


@pytest.fixture(scope="session")
def postgres():
    """A function that runs SQL in a cluster of its own, which is gone afterwards."""
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/local/pgsql/bin")]
    named = shutil.which("initdb")
    home = next((p for p in ([Path(named).parent] if named else []) + places
                 if (p / "initdb").is_file() and (p / "psql").exists()), None)  # fmt: skip
    if home is None:
        pytest.skip("there is no PostgreSQL")
    user = {}
    folder = Path(tempfile.mkdtemp(prefix="dprl-pg-"))
    if os.geteuid() == 0:  # which PostgreSQL refuses to run as
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            pytest.skip("there is no unprivileged user to run PostgreSQL as")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid}

    def call(*line, **more):
        return subprocess.run(
            [str(x) for x in line], check=True, capture_output=True, cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C"}, **user, **more,
        )  # fmt: skip

    data = folder / "data"
    try:
        call(home / "initdb", "-D", data, "-U", "dprl", "--auth=trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        call(home / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
    except (OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"PostgreSQL does not start: {error}")
    try:
        yield lambda text: call(
            home / "psql", "-h", folder, "-U", "dprl", "-d", "postgres", "-q", "--csv",
            "-v", "ON_ERROR_STOP=1", input=text.encode(),
        ).stdout.decode()  # fmt: skip
    finally:
        call(home / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
