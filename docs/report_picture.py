"""Make docs/_static/report.png, the picture of a report on the first page and in the README.

Needs chromium: run `python docs/report_picture.py` where the report's looks have changed.
"""

import subprocess
import tempfile
from pathlib import Path

from PIL import Image

import dprl

TO = Path(__file__).parent / "_static" / "report.png"

world = dprl.envs.care_pathway()
log = world.sample(8000, seed=1)
gated = dprl.gate(dprl.DPRLDiscrete(n_min=20, gamma=1.0), log, value_range=(0, 1))
with tempfile.TemporaryDirectory() as folder:
    page = Path(folder) / "review.html"
    dprl.report(gated, world.sample(800, seed=2), page)
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1040,1076",
         f"--screenshot={TO}", page.as_uri()],
        check=True,
    )  # fmt: skip
small = Image.open(TO).convert("RGB").quantize(128)
small.save(TO, optimize=True)
