"""An experiment on a cluster has the rows it has in one process, and continues where it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_experiments import TOY

from dprl.errors import ParameterError
from dprl_studies.harness import RESULTS, reproduce

pytest.importorskip("distributed")


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in RESULTS if "figure" not in name}


@pytest.mark.slow
def test_the_same_files_and_no_task_twice(two, tmp_path):
    reproduce(TOY, tmp_path / "here", workers=1)
    reproduce(TOY, tmp_path / "there", cluster=two)
    assert files(tmp_path / "there") == files(tmp_path / "here")
    parts = sorted((tmp_path / "there" / "parts").iterdir())
    before = [part.stat().st_mtime_ns for part in parts]
    parts[1].unlink()
    shares = []
    reproduce(TOY, tmp_path / "there", cluster=two, progress=lambda name, s: shares.append(s))
    assert shares == [1 - 1 / len(parts), 1.0]
    after = [part.stat().st_mtime_ns for part in parts]
    assert [b == a for b, a in zip(before, after, strict=True)] == [
        i != 1 for i in range(len(parts))
    ]
    assert files(tmp_path / "there") == files(tmp_path / "here")


def test_workers_or_a_cluster(tmp_path):
    with pytest.raises(ParameterError, match="workers are processes of this machine"):
        reproduce(TOY, tmp_path, workers=2, cluster="local:2")
