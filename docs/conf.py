"""Sphinx settings."""

import dprl
import dprl.logs._also
import dprl.logs.log

# The type of a field that is imported for type checkers only: without it autodoc writes the
# annotations of all fields of `Log` as they stand.
dprl.logs.log.Also = dprl.logs._also.Also

project = "dprl"
copyright = "2026, The dprl developers"
author = "The dprl developers"
release = dprl.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
exclude_patterns = ["_build", "benchmarks/*.md"]
autodoc_typehints = "description"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
suppress_warnings = ["myst.header", "myst.xref_missing"]
