"""Sphinx settings."""

import os
import sys
from pathlib import Path

import dprl
import dprl.logs.log
import dprl.logs.reading.also

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import gallery_order  # noqa: E402  (lies in _ext)
import gallery_pictures  # noqa: E402
import inventories  # noqa: E402

# The type of a field that is imported for type checkers only: without it autodoc writes the
# annotations of all fields of `Log` as they stand.
dprl.logs.log.Also = dprl.logs.reading.also.Also

project = "dprl"
copyright = "2026, The dprl developers"
author = "The dprl developers"
release = dprl.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "api_pages",
    "drawings",
    "formulas",
    "names",
]
exclude_patterns = ["_build", "_drawings", "benchmarks/*.md", "findings/*.md"]

html_theme = "furo"
html_title = "dprl"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["pages.css"]

autodoc_typehints = "description"
default_role = "name"  # `Log` in a docstring is a link; see _ext/names.py
autodoc_preserve_defaults = True
napoleon_google_docstring = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_block", "attrs_inline"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "config.cache"]

# Nothing is fetched while the pages are built: the few objects of other projects that the pages
# name are listed by hand in _inventories.
intersphinx_mapping = inventories.mapping(HERE / "_inventories", HERE / "_made")

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"spark_",
    "within_subsection_order": gallery_order.Order,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "show_memory": False,
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "plot_gallery": os.environ.get("DPRL_GALLERY", "1") != "0",
    "matplotlib_animations": False,
    "image_scrapers": (gallery_pictures.scraper,),
    "reset_modules": (gallery_pictures.reset,),
    "capture_repr": (),
    "doc_module": ("dprl",),
    "reference_url": {"dprl": None},
}
