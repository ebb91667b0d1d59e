"""Names in single backticks: a link where it is a class or a whole name of dprl, else code.

Short names in small letters (`policy`, `n_min`) are arguments as a rule, and would link to any
attribute of that name.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyXRefRole

LINKED = re.compile(
    r"[A-Z]\w*[a-z]\w*(\.\w+)?|(dprl|numpy|pandas|sklearn|matplotlib|polars)\.[\w.]+"
)


class Name(PyXRefRole):
    """The default role of docstrings."""

    def run(self):
        """A reference, or plain code."""
        if LINKED.fullmatch(self.text):
            return super().run()
        return [nodes.literal(self.rawtext, self.text)], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""

    def role(name, rawtext, text, lineno, inliner, options=None, content=()):
        return Name()("py:obj", rawtext, text, lineno, inliner, options or {}, content)

    app.add_role("name", role)
    return {"parallel_read_safe": True}
