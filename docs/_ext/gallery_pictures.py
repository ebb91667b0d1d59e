"""The pictures of an example: every figure that it makes through dprl, once.

Figures of dprl are closed as soon as they are made, so that nothing stays in memory; the scraper of
matplotlib would not see them. Here they are noted when they are made.
"""

from pathlib import Path

from sphinx_gallery.scrapers import figure_rst

import dprl.apps.figures.drawn as named_figures
from dprl._core import plot

_made: list = []
_grid = plot.grid


def _noted(*sizes, **named):
    figure, axes = _grid(*sizes, **named)
    _made.append(figure)
    return figure, axes


plot.grid = _noted


def reset(gallery_conf, fname):
    """Forget the figures of the example before."""
    _made.clear()
    _shown.clear()


_shown: set[int] = set()


def scraper(block, block_vars, gallery_conf):
    """Save the figures that a block has made; say where they are."""
    figures = [(figure, _titles(figure)) for figure in _made]
    _made.clear()
    for value in block_vars["example_globals"].values():
        if isinstance(value, named_figures.Figure) and id(value) not in _shown:
            _shown.add(id(value))
            figures.append((value.draw(), value.words))
            _made.clear()
    shown = []
    for figure, words in figures:
        path = Path(next(block_vars["image_path_iterator"]))
        figure.savefig(path, dpi=110)
        shown.append(figure_rst([path], gallery_conf["src_dir"], fig_titles=words))
    return "".join(shown)


def _titles(figure):
    """What a figure shows, for those who do not see it: the titles of its panels."""
    return "; ".join(axis.get_title("left") for axis in figure.axes if axis.get_title("left"))
