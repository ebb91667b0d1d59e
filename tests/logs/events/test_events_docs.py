"""The example of the page on events runs, and says what the page says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from dprl.logs.events import spec as _toml
from dprl.logs.events.spec import Part

pytest.importorskip("pyarrow", reason="pyarrow writes the sample in the schema of MEDS")
PAGE = (Path(__file__).parents[3] / "docs" / "events.md").read_text()


def test_the_example_of_the_page_runs(tmp_path, run):
    import pyarrow.parquet as pq
    from test_events_meds import SCHEMA, pa, sample

    *_, path = sample(tmp_path)
    table = pq.read_table(path)
    more = pa.Table.from_pylist(
        [
            {
                "subject_id": 3,
                "time": table["time"][5].as_py().replace(hour=16),
                "code": "INFUSION_END//221906",
            }
        ],
        SCHEMA,
    )
    pq.write_table(pa.concat_tables([table, more]), path)
    (tmp_path / "sepsis.toml").write_text(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])
    code, out, err = run("build", tmp_path / "sepsis.toml", "--out", tmp_path / "log.parquet")
    assert (code, err) == (0, "")
    assert "ended: died" in out
    code, out, _ = run("build", tmp_path / "sepsis.toml", "--explain", "2", "2150-01-02 13:00")
    assert "decision 2 at 2150-01-02 12:00:00" in out
    assert (tmp_path / "log.missing.md").is_file()


def test_the_page_names_every_key():
    tables = {**_toml.TABLES, **_toml.LISTS, "action.part": Part}
    for name, kind in tables.items():
        row = re.search(rf"^\| `\[+{re.escape(name)}\]+` \|.*$", PAGE, re.MULTILINE)[0]
        for field in fields(kind):
            if field.name not in ("may_be_absent", "parts"):
                assert f"`{field.name}`" in row, (name, field.name)
