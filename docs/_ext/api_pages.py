"""One page per topic of the API, made from the sections of `api.md`.

`api.md` lists all public names under headings, in one file that is easy to keep. While the pages
are built, every section becomes a page of its own (`api/TOPIC.rst`), and `api.md` itself shows the
topics with their names.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

ABOUT = {
    "Logs": "Read, check and split tables of decisions.",
    "Events": "Make decisions of tables of events.",
    "Learners and policies": "Learn a policy over labels, or rules over features; ask it, save it.",
    "Sites that share no rows": "Learn from the sums of several hospitals.",
    "Certificates": "Keep only what is proved, and watch it in use.",
    "Evaluation": "What a policy is worth, for whom, and how strong an unrecorded cause must be.",
    "Reports": "A page for people.",
    "Figures": "Pictures with the rows behind them.",
    "Bounds": "What the published bounds say.",
    "Continuous states": "Policies over measurements: similar cases, and rules.",
    "Intensive care": "From MIMIC tables, or simulated ones, to logs.",
    "Rivals": "Other published methods with the same `fit(log)`.",
    "Environments": "Problems whose truth is known.",
    "Atari": "The study on games.",
    "Errors": "What is refused, and what is warned about.",
}
BLOCK = re.compile(r"```\{eval-rst\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^([^\n]+)\n-{3,}\n", re.MULTILINE)
NAME = re.compile(r"^\.\. auto(?:function|class|exception|data):: (\S+)", re.MULTILINE)


def sections(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first section, and the sections: title → directives."""
    before, *parts = SECTION.split(BLOCK.search(text)[1])
    return before, dict(zip(parts[::2], parts[1::2], strict=True))


def place(title: str) -> str:
    """The name of the page of a section."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def write(app: Sphinx) -> None:
    """Write a page for each section, anew only where it has changed."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    _, parts = sections((Path(app.srcdir) / "api.md").read_text())
    for title, body in parts.items():
        about = ABOUT.get(title, "").replace("`", "``")
        page = f"{title}\n{'=' * len(title)}\n\n{about}\n\n{body}"
        file = folder / f"{place(title)}.rst"
        if not file.exists() or file.read_text() != page:
            file.write_text(page)
    for file in folder.glob("*.rst"):
        if file.stem not in map(place, parts):
            file.unlink()


def topics(app: Sphinx, docname: str, source: list[str]) -> None:
    """In place of the directives of `api.md`, the topics with their names."""
    if docname != "api":
        return
    before, parts = sections(source[0])
    lines = [f"```{{eval-rst}}\n{before}```", ""]
    for title, body in parts.items():
        names = " · ".join(f"{{py:obj}}`{name}`" for name in NAME.findall(body))
        lines += [f"## [{title}](api/{place(title)}.rst)", "", ABOUT.get(title, ""), "", names, ""]
    pages = "\n".join(f"api/{place(title)}" for title in parts)
    lines += ["```{toctree}\n:hidden:\n", pages, "```", ""]
    source[0] = BLOCK.sub(lambda _: "\n".join(lines), source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", write, priority=50)
    app.connect("source-read", topics)
    return {"parallel_read_safe": True}
