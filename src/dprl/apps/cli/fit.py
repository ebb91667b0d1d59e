"""`dprl fit`: learns a policy from a log and saves it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli._cluster import working_on
from dprl.apps.cli.console import caution, head, progress, show, warned
from dprl.apps.cli.learning import FitOptions, check_cluster, taken_by_fit
from dprl.apps.cli.options import Cluster, FilesOfLog, Json, LogOptions
from dprl.apps.cli.out_of_core import ScanOptions

__all__ = ["fit"]


@command
def fit(
    files: FilesOfLog,
    log: LogOptions,
    learning: FitOptions,
    memory: ScanOptions | None = None,
    *,
    out: Annotated[Path, Parameter(help="Where to save the policy.")] = Path("policy.dprl"),
    cluster: Cluster = None,
    json: Json = False,
) -> int:
    """Learn a policy from a log and save it.

    Example: `dprl fit visits.csv --episode patient --state stage --action treatment --reward score
    --n-min 20 --gamma 0.99`

    Where states are numeric features, name them and a radius:
    `dprl fit stays.parquet --state 'x_*' --radius 1.5 ...`

    Where the state tells enough, suggest only what is surely better:
    `dprl fit visits.csv --learner confident --gamma 0.99 ...`

    Rules that people can read, over features that may be categories or missing:
    `dprl fit stays.csv --state age --state ward --learner rules --gamma 0.99 ...`

    A learner of your own, as Python imports it:
    `dprl fit visits.csv --learner my_package:MyLearner --gamma 0.99 ...`

    A log larger than memory, in Parquet files:
    `dprl fit 'visits/*.parquet' --out-of-core --memory-limit 2GB ...`

    On a Dask cluster, whose workers see the folder of temporary files:
    `dprl fit 'visits/*.parquet' --cluster tcp://10.0.0.1:8786 --out-of-core --temp-folder DIR ...`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    refuse_overwrite(out, *files)
    learner = learning.make()
    check_cluster(cluster, learning.learner, learner)
    takes, features = taken_by_fit(learner), learning.reads_features()
    memory = memory or ScanOptions()
    plain = len(log.state) == len(log.action) == 1 and not log.action_bins
    parts = memory.in_parts(files, able=not features and plain)
    with progress() as tell, warned() as cautions, working_on(cluster) as there:
        also = {**there, **({"progress": tell} if "progress" in takes else {})}
        if parts:
            with memory.scanned(files, log.options(features), tell) as data:
                policy = learner.fit(data, **also)
                policy.save(out)
        else:
            data = dprl.read(files, **log.options(features), progress=tell)
            data = learning.with_states(data)
            tell("fitting (the first run compiles for some seconds)", 0.0)
            policy = learner.fit(data, **also)
            policy.save(out)
    has_chances = data.has_propensity if parts else data.propensity is not None
    if has_chances and "propensity" not in takes:
        cautions.append(
            f"the learner {learning.learner} does not use the probabilities in "
            f"{log.propensity!r}; rules do."
        )
    if policy.luck is not None and policy.luck.caution:
        cautions.append(policy.luck.words)
    facts: dict[str, Any] = {"policy": str(out), "digest": policy.digest(), **policy.learned()}
    if not policy.knows_practice:  # it can neither be counted nor list changes
        words = str(policy)
        facts |= {"warnings": cautions}
    else:
        changes = policy.changes()
        words = policy.learned_words(head(changes))
        facts = {**policy.summary(), **facts, "warnings": cautions, "changed": changes.to_dicts()}
    if json:
        show(facts, as_json=True)
        return 0
    caution(cautions)
    show(f"{data!r}\n{words}\n\nSaved as {out}.", as_json=False)
    return 0
