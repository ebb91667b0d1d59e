"""A few thousand odd requests; `tests/hostile/fuzz_serve.py` asks as many as it is told."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_no_request_is_answered_with_a_500(seed):
    path = Path(__file__).parents[2] / "hostile" / "fuzz_serve.py"
    spec = importlib.util.spec_from_file_location("fuzz_serve", path)
    fuzz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzz)
    codes = fuzz.main(1_500, seed)
    assert sum(codes.values()) == 1_500
    assert {"200", "400", "401", "403", "404", "405", "421", "422"} <= set(codes)
