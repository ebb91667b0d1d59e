"""What the rows of a contest say, in tables and sentences: a page of the docs.

No sentence of the page can contradict its table, since both come from the same rows. A test makes
the pages in the docs again from the row files beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dprl._core.table import Table
from dprl.logs.reading.tables import Rows
from dprl_studies.paper.contest import families, made_of

NEAR = 0.95
"""Within 5 % of the best gain over usual practice counts as near the best."""

SAME = 1e-9
"""Values that differ by less are the same."""

SWEPT = ("DPRL contrast", "DPRL paper", "SPIBB", "SPIBB, behavior true", "PQI")
"""Families that run over thresholds from 1 to 30, where a contest has them."""

Cells = dict[tuple[str, int], dict[str, Any]]
"""Contestant and number of episodes → the line of the summary."""


def short(value: float, sign: bool = False) -> str:
    """A number with three digits and no zero before the point.

    Example:
        >>> short(0.25), short(-0.0712), short(0.25, sign=True), short(-1e-9, sign=True)
        ('.250', '-.071', '+.250', '+.000')
    """
    text = f"{round(value, 3) + 0.0:{'+' if sign else ''}.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.9995 else text


def page(rows: Rows, facts: dict[str, Any], title: str, summary: Callable[[Rows], Table]) -> str:
    """The page of a contest: what it is made of, and per problem a table and what it says.

    Args:
        rows: Rows that `dprl_studies.paper.contest.rows_of` made, as columns.
        facts: What `settings.json` says of the run.
        title: What the contest is about.
        summary: A function rows → the table of `dprl_studies.paper.contest.summarise`.

    Returns:
        The page, in Markdown.

    Example:
        >>> from dprl_studies.paper.contest import summarise
        >>> rows = {"problem": np.array(["forest"] * 2), "n": np.array([50, 50]),
        ...         "contestant": np.array(["BC", "BC"]), "value": np.array([0.4, 0.6]),
        ...         "behavior": np.array([0.45, 0.45]), "best": np.array([0.6, 0.6]),
        ...         "seed": np.array([7, 7])}
        >>> facts = {"dprl": "0.2.0", "code": "1234567890abcdef00"}
        >>> text = page(rows, facts, "Forest", lambda rows: summarise(rows, "Forest"))
        >>> "| BC | .500 / .400 |" in text, "in 1 of 1: BC" in text
        (True, True)
    """
    table = summary(rows)
    out = [
        f"Made by `dprl reproduce` from its rows; dprl {facts['dprl']}, code "
        f"`{facts['code'][:16]}`. Each cell is mean / CVaR 5 % of the exact value. {made_of(rows)}"
    ]
    for problem in dict.fromkeys(table["problem"]):
        lines = [line for line in table if line["problem"] == problem]
        cells = {(line["contestant"], line["n"]): line for line in lines}
        names = list(dict.fromkeys(line["contestant"] for line in lines))
        sizes = sorted({line["n"] for line in lines})
        usual, best = lines[0]["behavior"], lines[0]["best"]
        out += [
            "",
            f"**{title}: {problem}.** Usual practice {short(usual)}, best policy {short(best)}.",
            "",
            "| episodes | " + " | ".join(f"{n:,}" for n in sizes) + " |",
            "|---" * (len(sizes) + 1) + "|",
        ]
        for name in names:
            both = (cells[name, n] for n in sizes)
            pairs = (f"{short(c['mean'])} / {short(c['cvar'])}" for c in both)
            out.append(f"| {name} | " + " | ".join(pairs) + " |")
        out += ["", *(f"- {sentence}" for sentence in sentences(cells, names, sizes))]
        out += _with_the_true_behaviour(cells, names, sizes)
        if "chose_better" in rows:
            mine = {key: column[rows["problem"] == problem] for key, column in rows.items()}
            out += ["", *_bias_and_variance(mine, sizes)]
    return "\n".join(out) + "\n"


def sentences(cells: Cells, names: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """What a table of one problem says: who falls below practice, who is near the best, and why.

    Args:
        cells: Contestant and number of episodes → its line of the summary.
        names: The contestants, in the order of the table.
        sizes: The numbers of episodes, ascending.

    Returns:
        Sentences.

    Example:
        >>> line = {"mean": 0.6, "cvar": 0.4, "behavior": 0.5}
        >>> sentences({("RL", 50): line}, ["RL"], [50])[0]
        'CVaR below usual practice: in 1 of 1: RL. Never: nobody.'
    """
    usual, of = next(iter(cells.values()))["behavior"], len(sizes)

    def counted(test: Callable[[str, int], bool]) -> dict[str, int]:
        return {name: sum(test(name, n) for n in sizes) for name in names}

    def said(counts: dict[str, int]) -> str:
        some = (
            f"{k} of {of}: {folded([name for name in names if counts[name] == k])}"
            for k in sorted({k for k in counts.values() if k}, reverse=True)
        )
        return "in " + ". In ".join(some or ["no size: nobody"])

    below = counted(lambda name, n: cells[name, n]["cvar"] < usual - SAME)
    top = {
        (key, n): max(cells[name, n][key] for name in names) - usual
        for key in ("mean", "cvar")
        for n in sizes
    }
    near = counted(
        lambda name, n: all(
            cells[name, n][key] - usual >= NEAR * top[key, n] - SAME for key in ("mean", "cvar")
        )
    )
    found = [
        f"CVaR below usual practice: {said(below)}. Never: "
        f"{folded([name for name in names if not below[name]])}.",
        f"Within 5 % of the best gain of all contestants, in mean and in CVaR: {said(near)}.",
    ]
    for family, group in families(names).items():
        if family in SWEPT and len(group) > 2:
            found.append(_swept(cells, family, group, sizes))
    return found


def _with_the_true_behaviour(cells: Cells, names: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """Table of what contestants gain by the true behaviour, where they stand twice."""
    known = [name for name in names if f"{name}, behavior true" in names]
    if not known:
        return []
    lines = [
        "",
        "The true behaviour in place of the estimated one changes mean / CVaR by:",
        "",
        "| episodes | " + " | ".join(f"{n:,}" for n in sizes) + " |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for name in known:
        both = (
            " / ".join(
                short(cells[f"{name}, behavior true", n][key] - cells[name, n][key], True)
                for key in ("mean", "cvar")
            )
            for n in sizes
        )
        lines.append(f"| {name} | " + " | ".join(both) + " |")
    return lines


def folded(names: Sequence[str]) -> str:
    """Contestants in few words: those of one family together.

    Example:
        >>> folded(["SPIBB, n_min 5, behavior true", "SPIBB, n_min 20, behavior true", "RL"])
        'SPIBB, n_min 5/20, behavior true; RL'
    """
    found = []
    for group in families(names).values():
        words = []
        for parts in zip(*(name.split(", ") for name in group), strict=True):
            values = "/".join(dict.fromkeys(part.rpartition(" ")[2] for part in parts))
            words.append(f"{parts[0].rpartition(' ')[0]} {values}".strip())
        found.append(", ".join(words))
    return "; ".join(found) or "nobody"


def _swept(cells: Cells, family: str, group: Sequence[str], sizes: Sequence[int]) -> str:
    """What a larger threshold does within a family whose members differ in it alone."""
    low, high, of = group[0], group[-1], len(sizes)
    falls = sum(cells[high, n]["mean"] < cells[low, n]["mean"] - SAME for n in sizes)
    rises = sum(cells[high, n]["cvar"] > cells[low, n]["cvar"] + SAME for n in sizes)
    twenty = next((name for name in group if "n_min 20" in name), None)
    words = (
        f"{family}, from {_threshold(low)} to {_threshold(high)}: the mean is lower in {falls} and "
        f"the CVaR higher in {rises} of {of} sizes"
    )
    if twenty is None:
        return words + "."
    first = {
        key: sum(
            cells[twenty, n][key] >= max(cells[name, n][key] for name in group) - SAME
            for n in sizes
        )
        for key in ("mean", "cvar")
    }
    return (
        f"{words}; n_min 20 has the family's best mean in {first['mean']} and its best CVaR in "
        f"{first['cvar']}."
    )


def _threshold(name: str) -> str:
    return next(part for part in name.split(", ") if part.startswith("n_min"))


def _bias_and_variance(rows: Rows, sizes: Sequence[int]) -> list[str]:
    """Table of the two shares of `dprl_studies.paper.gridworld.bias_and_variance`, by n_min."""
    swept = ~np.isnan(rows["n_min"]) & ~np.isnan(rows["careless_found"])
    names = list(dict.fromkeys(rows["contestant"][swept].tolist()))
    lines = [
        "Careless cells whose best action passes the filter / cells with a truly better action, "
        "among those where it speaks and the expert varies:",
        "",
        "| episodes | " + " | ".join(f"{n:,}" for n in sizes) + " |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for name in names:
        both = []
        for n in sizes:
            mine = (rows["contestant"] == name) & (rows["n"] == n)
            shares = (rows[key][mine] for key in ("careless_found", "chose_better"))
            known = (share[~np.isnan(share)] for share in shares)
            both.append(" / ".join(f"{s.mean():.2f}" if len(s) else "–" for s in known))
        lines.append(f"| {name} | " + " | ".join(both) + " |")
    return lines
