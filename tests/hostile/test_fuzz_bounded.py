"""The fuzzers of `make fuzz`, for seconds and with fixed seeds."""

from __future__ import annotations

import fuzz
import fuzz_evidence
import fuzz_kills
import fuzz_tables
import pytest


def test_changed_tables_are_read_or_refused(tmp_path):
    assert not fuzz_tables.main(8, 1, tmp_path)["failures"]


@pytest.mark.slow
def test_more_changed_tables(tmp_path):
    result = fuzz_tables.main(100, 2, tmp_path)
    assert not result["failures"]
    assert result["counts"]["read"] > 5


def test_changed_evidence_is_read_or_refused(tmp_path):
    result = fuzz_evidence.main(60, 3, tmp_path)
    assert not result["failures"]
    assert result["counts"]["refused"] > 30


@pytest.mark.slow
def test_more_changed_evidence(tmp_path):
    result = fuzz_evidence.main(600, 4, tmp_path)
    assert not result["failures"]
    assert result["counts"]["used"] > 5
    assert "evidence files of sites, changed" in fuzz.EACH


@pytest.mark.slow
def test_killed_writers_leave_whole_sets(tmp_path):
    assert not fuzz_kills.main(12, 1, tmp_path)["failures"]


def test_the_page_of_figures(monkeypatch, tmp_path):
    seen = []

    def run(n, seed, folder):
        seen.append(seed)
        return {"counts": {"read": n}, "failures": {}}

    monkeypatch.setattr(fuzz, "EACH", {"x": (run, 5)})
    text, failures = fuzz.rounds(0.0005, 7, tmp_path / "page.md")
    assert not failures
    assert seen == list(range(7, 7 + len(seen)))
    assert f"| x | {5 * len(seen):,} | 0 | 0 | {5 * len(seen):,} read |" in text
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == text
