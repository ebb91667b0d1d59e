"""Build the wheel and the source archive, install each into empty environments, and use it there.

    python .ci/release.py                    every extra, with this Python
    python .ci/release.py --pythons 3.12 3.13    the core, with other Pythons that are installed too

Every environment is new and holds nothing but dprl with one extra, at the versions of
constraints.txt. In each the command line runs its demo, and modules of the extra are imported. From
the source archive the core is installed once more. What cannot be tried here is said.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_FOR_USERS = {"dev", "docs", "bench"}
USES = {
    "": "import dprl; dprl.envs.care_pathway()",
    "plot": "import matplotlib",
    "gym": "import gymnasium, minari",
    "deep": "import torch",
    "atari": "import ale_py, torch",
    "cluster": "import dask, distributed",
    "serve": "import starlette, uvicorn",
    "sign": "import cryptography",
    "icu": "import dprl_studies.icu",
}


def run(*command: object, **options: object) -> str:
    """What a command prints; its output, and the end, if it fails."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source archive, made in a folder."""
    tool = environment(folder / "builder", sys.executable)
    run(tool, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", "hatchling")
    run(tool, "-m", "hatchling", "build", "-d", folder / "dist", cwd=ROOT)
    (wheel,), (source,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, source


def environment(folder: Path, python: str) -> Path:
    """The Python of a new, empty environment."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def look_inside(wheel: Path, source: Path) -> None:
    """The archives hold what they must, and nothing that does not belong there."""
    names = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(source) as archive:
        members = archive.getnames()
    for wanted in ("dprl/py.typed", "dprl/__main__.py", "dprl_studies/py.typed"):
        assert wanted in names, f"{wanted} is not in the wheel"
    assert not [n for n in names if not n.startswith(("dprl/", "dprl_studies/", "dprl-"))], (
        "strange files in it"
    )
    top = members[0].partition("/")[0]
    for wanted in ("LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "tests", "docs"):
        assert any(m.startswith(f"{top}/{wanted}") for m in members), f"{wanted} is not in {source}"
    bad = [n for n in (*names, *members) if n.endswith((".nbi", ".nbc", ".pyc"))]
    assert not bad, f"compiled files: {bad[:3]}"


def use(python: Path, extra: str) -> None:
    """What a user does first, and what the extra is for."""
    folder = python.parent.parent / "work"
    folder.mkdir()
    dprl = python.parent / "dprl"
    run(python, "-c", USES.get(extra, USES[""]), cwd=folder)
    facts = json.loads(run(dprl, "demo", "--folder", folder, "--json", cwd=folder))
    assert facts["value_policy"] > facts["value_behavior"]
    doctor = json.loads(run(dprl, "doctor", "--json", cwd=folder))
    assert doctor["trouble"] == [], doctor["trouble"]


def say(line: str) -> None:
    """Print at once: every step takes a while."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Build, install, use."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pythons", nargs="*", default=[], help="3.12 3.13: try these too")
    parser.add_argument("--extras", nargs="*", help="only these; '' is the core")
    asked = parser.parse_args()
    extras = asked.extras
    if extras is None:
        extras = ["", *(e for e in PROJECT["optional-dependencies"] if e not in NOT_FOR_USERS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, source = build(folder)
        look_inside(wheel, source)
        say(f"{wheel.name} {wheel.stat().st_size / 1e6:.1f} MB, {source.name}")
        jobs = [(sys.executable, extra, wheel) for extra in extras]
        jobs.append((sys.executable, "", source))
        for version in asked.pythons:
            python = shutil.which(f"python{version}")
            if python is None:
                say(f"Python {version} is not here: not tried")
            else:
                jobs.append((python, "", wheel))
        for number, (python, extra, archive) in enumerate(jobs):
            place = folder / f"env{number}"
            inside = environment(place, python)
            what = f"{archive}[{extra}]" if extra else archive
            run(inside, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", what)
            use(inside, extra)
            version = run(inside, "-c", "import sys; print(sys.version.split()[0])").strip()
            say(f"Python {version}, {archive.suffix} {extra or 'core'}: works")
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
