"""Drawings of the pages, made while the pages are built.

Each module of `_drawings` names its drawings in a dict `DRAWINGS`: name → function that returns a
matplotlib figure. They are written to `_made/NAME.svg`, anew only where the module has changed. The
directive `drawing` shows one of them::

    ```{drawing} deferring
    Where the log has little to compare, the policy defers.
    ```
"""

import importlib.util
import sys
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.application import Sphinx

FOLDER, MADE = "_drawings", "_made"


class Drawing(Directive):
    """A drawing with its caption; the caption is also what a screen reader reads."""

    required_arguments = 1
    has_content = True
    option_spec = {"alt": directives.unchanged, "width": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """The picture and the words below it."""
        words = " ".join(self.content)
        image = nodes.image(
            uri=f"/{MADE}/{self.arguments[0]}.svg", alt=self.options.get("alt", words)
        )
        image["classes"].append("drawing")
        if "width" in self.options:
            image["width"] = self.options["width"]
        figure = nodes.figure("", image, align="center")
        if words:
            caption = nodes.caption(words, "")
            parsed, _ = self.state.inline_text(words, self.lineno)
            caption += parsed
            figure += caption
        return [figure]


def make(app: Sphinx) -> None:
    """Write every drawing whose module is newer than it."""
    import matplotlib

    matplotlib.use("Agg")
    folder, made = Path(app.srcdir) / FOLDER, Path(app.srcdir) / MADE
    made.mkdir(exist_ok=True)
    sys.path.insert(0, str(folder))
    shared = (folder / "_style.py").stat().st_mtime
    for file in sorted(folder.glob("[!_]*.py")):
        spec = importlib.util.spec_from_file_location(f"drawing_{file.stem}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, draw in module.DRAWINGS.items():
            to = made / f"{name}.svg"
            if not to.exists() or to.stat().st_mtime < max(file.stat().st_mtime, shared):
                _write(draw, to)


def _write(draw, to: Path) -> None:
    from dprl._core import plot

    with plot.look():
        figure = draw()
        plot.save(figure, to)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("drawing", Drawing)
    app.connect("builder-inited", make, priority=100)
    return {"parallel_read_safe": True}
