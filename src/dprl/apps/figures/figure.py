"""Figure: a picture together with the rows it is drawn from."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dprl._core import plot
from dprl._core.table import Table, many, to_json_value
from dprl.errors import PackageError, ParameterError
from dprl.logs.reading.tables import write_rows

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"
COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def colour(place: int) -> str:
    """The colour of the action, column or line at this place; safe for colour-blind readers."""
    return COLOURS[place % len(COLOURS)]


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure that shows itself in a notebook, with the rows behind it.

    Attributes:
        kind: What it shows, in one or two words: the name of the function that made it.
        table: The rows it is drawn from; every mark of the picture is one of them.
        words: What it shows, in a sentence; read aloud where the picture cannot be seen.
        painter: Called without arguments, draws it and returns the figure of matplotlib.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
        >>> figure = dprl.figures.forest(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
        >>> figure
        <Figure: forest, 2 rows>
        >>> list(figure.to_frame()["suggested"])
        ['antibiotics', 'fluids']
    """

    kind: str
    table: Table
    words: str
    painter: Callable[[], Any] = field(repr=False)

    def draw(self) -> Any:
        """The figure, drawn anew.

        Returns:
            A `matplotlib.figure.Figure`, to be changed at will.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)
            >>> len(dprl.figures.forest(policy).draw().axes)
            1
        """
        with plot.look():
            return self.painter()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure, and its rows beside it.

        Args:
            path: The file of the picture, .png, .svg or .pdf. The rows go to a file of the same
                name that ends in .parquet.

        Raises:
            ParameterError: It has no rows, or the name ends otherwise.
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
            >>> figure = dprl.figures.forest(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
            >>> figure.save("changes.svg")  # doctest: +SKIP
        """
        if not len(self.table):
            raise ParameterError(
                f"the figure ({self.kind}) has no rows, so there is nothing to write.",
                do="Look at its words: they say why.",
            )
        file = Path(path)
        with plot.look():
            plot.save(self.painter(), file)
        write_rows(to_json_value(self.table.to_dicts()), file.with_suffix(".parquet"))

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows behind the figure as a dataframe.

        Args:
            backend: The library: "pandas" (the default), "polars" or "pyarrow".

        Returns:
            A dataframe of that library.

        Raises:
            ParameterError: If the library is not one of the three.
            PackageError: If it is not installed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
            >>> figure = dprl.figures.forest(dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log))
            >>> figure.to_frame().shape[0]
            2
        """
        return self.table.to_frame(backend)

    def _repr_html_(self) -> str:
        try:
            figure = self.draw()
        except PackageError:
            return self.table._repr_html_()
        svg = io.BytesIO()
        with plot.look():
            figure.savefig(svg, format="svg", metadata={"Date": None})
        data = base64.b64encode(svg.getvalue()).decode()
        words = html.escape(self.words, quote=True)
        return f'<img src="data:image/svg+xml;base64,{data}" alt="{words}"><p>{words}</p>'

    def __str__(self) -> str:
        return f"{self.words}\n\n{self.table}"

    def __repr__(self) -> str:
        n = len(self.table)
        return f"<Figure: {self.kind}, {many(n, 'row')}>"
