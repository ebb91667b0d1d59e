"""Sphinx settings."""

import dprl

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
