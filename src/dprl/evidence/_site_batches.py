"""Evidence where the data already are: partitions of a table are counted apart, and added up.

`count_batches` makes a function of an iterator of Arrow record batches, as Spark's `mapInArrow`
wants it: it reads one partition and gives back one row, with the evidence of the partition. Rows do
not leave the executors. `from_batches` adds up these rows; the result is what `dprl.site_evidence`
would have said of the whole table, bit for bit.

Every group (every episode, where there are no groups) must be in one partition as a whole. Each
partition also gives back hashes of its groups, and `from_batches` refuses a group that is in two.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dprl._core.checks import check_whole
from dprl._core.optional import needed
from dprl.errors import EvidenceError, ParameterError
from dprl.evidence._site_cells import USUAL_K, as_site, whole_evidence
from dprl.evidence._site_evidence import SiteEvidence
from dprl.evidence._site_schema import SiteSchema
from dprl.logs.columns import by_role
from dprl.logs.log import Label

__all__ = ["BATCH_COLUMNS", "count_batches", "from_batches"]

BATCH_COLUMNS = "evidence binary, groups binary"
"""The columns that `count_batches` gives back, as Spark writes a schema."""


def count_batches(
    schema: SiteSchema,
    *,
    episode: str,
    time: str,
    state: str,
    action: str,
    reward: str,
    group: str | None = None,
    available: str | None = None,
    ended: str | None = None,
    propensity: str | None = None,
    events: Sequence[str] | None = None,
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function for Spark's `mapInArrow`, which counts a partition of a table.

    Args:
        schema: States, actions, discount and range, fixed beforehand.
        episode: Column naming the trajectory of a row.
        time: Column ordering an episode's rows; partitions have no order of their own.
        state: Column of state labels.
        action: Column of action labels.
        reward: Column of the reward for this row's state and action.
        group: Column of what stays together, e.g. a patient's stays. Default None.
        available: Column of the actions on offer. Default None.
        ended: Column saying terminal, cut or an event on an episode's last row. Default None.
        propensity: Column of the probability with which the action was taken; a certificate says
            on how many logs it is on record. Default None.
        events: Words in the column of endings that name a competing event. Default None.

    Returns:
        A function from record batches to record batches with the columns `evidence` and `groups`.
        Partitions must hold whole groups: repartition the table by group (or episode) before.

    Raises:
        ParameterError: `schema` is no schema.

    Example:
        >>> import dprl, pyarrow
        >>> from dprl.evidence import count_batches, from_batches
        >>> rows = {"who": [1, 1, 2], "day": [0, 1, 0], "s": ["ill", "well", "ill"],
        ...         "a": ["drug", "wait", "wait"], "r": [0, 1, 0]}
        >>> schema = dprl.SiteSchema(states=["ill", "well"], actions=["drug", "wait"], gamma=1.0)
        >>> count = count_batches(
        ...     schema, episode="who", time="day", state="s", action="a", reward="r"
        ... )
        >>> parts = list(count(pyarrow.table(rows).to_batches()))
        >>> from_batches(parts, k=1).groups
        2
    """
    columns = by_role(locals())
    if not isinstance(schema, SiteSchema):
        raise ParameterError(f"a schema is needed; got an object of type {type(schema).__name__}.")

    def count(batches: Iterable[Any]) -> Iterator[Any]:
        from dprl.logs._io import from_frame

        arrow = needed("pyarrow", "counting Arrow batches", "pyarrow")
        whole = [batch for batch in batches if batch.num_rows]
        if not whole:
            return
        log = from_frame(
            arrow.Table.from_batches(whole), **columns, events=events, follow_up=schema.follow_up,
            also=(),
        )  # fmt: skip
        counted = whole_evidence(log, schema)
        yield arrow.RecordBatch.from_pydict(
            {
                "evidence": arrow.array([counted.to_bytes()], arrow.binary()),
                "groups": arrow.array([_hashes(log.groups)], arrow.binary()),
            }
        )

    return count


def _hashes(groups: Sequence[Label]) -> bytes:
    """8 bytes for each group, to see whether it is in two partitions."""
    return b"".join(
        hashlib.blake2b(f"{type(g).__name__}|{g}".encode(), digest_size=8).digest() for g in groups
    )


def from_batches(parts: Any, *, k: int = USUAL_K, site: str = "") -> SiteEvidence:
    """The evidence of a table that was counted in partitions by `count_batches`.

    Args:
        parts: The rows that came back: an Arrow table, record batches, or rows as Spark's
            `collect` gives them.
        k: The fewest groups of anything that is given away about a state. Default 10.
        site: A name for the site. Default "".

    Returns:
        The evidence, as `dprl.site_evidence` would make it of the whole table.

    Raises:
        EvidenceError: A group is in two partitions, or a row is no evidence.
        LogError: There are fewer than k groups.

    Example:
        >>> import dprl, pyarrow
        >>> from dprl.evidence import count_batches, from_batches
        >>> log = dprl.envs.care_pathway().sample(300, seed=0)
        >>> schema = dprl.SiteSchema.of(log, gamma=1.0)
        >>> from_batches([], k=1)
        Traceback (most recent call last):
        ...
        dprl.errors.EvidenceError: no partition has a row: there is nothing to count.
    """
    k = check_whole("k", k, 1)
    rows = list(_rows(parts))
    if not rows:
        raise EvidenceError("no partition has a row: there is nothing to count.")
    hashes = np.concatenate([np.frombuffer(bytes(groups), np.uint64) for _, groups in rows])
    _, times = np.unique(hashes, return_counts=True)
    if (times > 1).any():
        raise EvidenceError(
            f"{int((times > 1).sum()):,} of {len(times):,} groups are in more than one partition, "
            "and would count more than once.",
            f"{len(rows):,} partitions",
            "Repartition the table by the group (or episode) column before counting.",
        )
    counted = [SiteEvidence.load(io.BytesIO(bytes(data))) for data, _ in rows]
    if any(part.schema != counted[0].schema for part in counted):
        raise EvidenceError("the partitions were counted with different schemas.")
    return as_site(counted, k=k, site=site)


def _rows(parts: Any) -> Iterator[tuple[Any, Any]]:
    """Evidence and hashes of every row, whatever holds the rows."""
    for part in [parts] if hasattr(parts, "to_pylist") else parts:
        for row in part.to_pylist() if hasattr(part, "to_pylist") else [part]:
            try:
                named = row if isinstance(row, Mapping) else {
                    "evidence": row[0], "groups": row[1],
                }  # fmt: skip
                yield named["evidence"], named["groups"]
            except (KeyError, IndexError, TypeError) as error:
                raise EvidenceError(
                    "a row holds no evidence of a partition.",
                    repr(row)[:80],
                    "Give what the function of dprl.evidence.count_batches gave back.",
                ) from error
