"""Numbers of a certificate that contradict it: a file that holds them is refused.

A digest says that a file is whole, not that anybody computed what is in it. What is checked here
follows from the stored numbers alone, whatever the log was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dprl.policies.certificate import Certificate

__all__ = ["CLOSE", "wrong_certificate"]

CLOSE = 1e-6
"""Relative differences up to this are rounding."""


def wrong_certificate(certificate: Certificate) -> str:
    """Which claim does not follow from the numbers stored with it, in words; '' if all do."""
    for row in certificate.rows:
        where = f"state {row['state']!r}"
        if row["n"] < 1:
            return f"{where}: it is certified, and n = {row['n']}"
        if certificate.mode != "policy":
            wrong = _wrong_row(row, certificate)
            if wrong:
                return f"{where}: {wrong}"
    return ""


def _wrong_row(row: Mapping[str, Any], certificate: Certificate) -> str:
    delta, margin = certificate.delta, certificate.margin
    if certificate.grade == "proved":
        # The level is shared by the parts that certify, and by the pairs that each part tests.
        parts = len(certificate.tested) if certificate.mode == "swap-split" else 1
        pairs = max(1, min(certificate.tested, default=1))
        need = math.log10(max(1, parts) * pairs / delta)
        if row["log10_e"] < need - CLOSE:
            return f"log10_e = {row['log10_e']:.4g}, and δ = {delta:g} needs at least {need:.4g}"
    elif row["p"] > delta * (1 + CLOSE):
        return f"p = {row['p']:.4g}, and δ = {delta:g}"
    width = -certificate.trivial
    scale = CLOSE * (width if math.isfinite(width) else abs(row["low"]) + abs(row["difference"]))
    if row["low"] < -scale or row["low"] > width + scale or abs(row["difference"]) > width + scale:
        return f"low = {row['low']:.4g}, difference = {row['difference']:.4g}, range {width:.4g}"
    if row["advantage_low"] > row["low"] + scale or row["advantage_low"] < margin - scale:
        return (
            f"advantage_low = {row['advantage_low']:.4g}, low = {row['low']:.4g}, margin {margin:g}"
        )
    return ""
