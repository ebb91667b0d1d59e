"""Print the lowest version allowed of each core dependency, and what the tests need."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
TESTS = {
    "gymnasium", "httpx2", "hypothesis", "matplotlib", "pandas", "polars", "pyarrow", "pytest",
    "pytest-timeout", "pytest-xdist", "starlette", "uvicorn",
}  # fmt: skip
for need in project["dependencies"]:
    name, lowest = re.fullmatch(r"([\w-]+)>=([\d.]+)", need).groups()
    sys.stdout.write(f"{name}=={lowest}.*\n")
for need in project["optional-dependencies"]["dev"]:
    name = re.match(r"[\w-]+", need)[0]
    if name == "pandas":  # an old DuckDB does not know the columns of a new pandas
        sys.stdout.write(need.replace(">=", "==") + ".*\n")
    elif name in TESTS:
        sys.stdout.write(need + "\n")
