"""Examples in docstrings run in an empty folder of their own, so that they may write files."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _example_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder: Path = tmp_path_factory.mktemp("example")
        request.getfixturevalue("monkeypatch").chdir(folder)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The examples of the studies take as long as slow tests do."""
    for item in items:
        if isinstance(item, pytest.DoctestItem) and "dprl_studies" in item.path.parts:
            item.add_marker(pytest.mark.slow)
