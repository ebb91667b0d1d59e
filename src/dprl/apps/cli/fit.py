"""`dprl fit`: learns a policy from a log and saves it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dprl._core.disk import refuse_overwrite
from dprl.apps.cli._app import command
from dprl.apps.cli._cluster import check_cluster, working_on
from dprl.apps.cli.console import caution, head, progress, show, warned
from dprl.apps.cli.learned import facts_of_rules, words_of_rules
from dprl.apps.cli.learning import FitOptions
from dprl.apps.cli.options import Cluster, FilesOfLog, Json, LogOptions, MaybeWhole
from dprl.apps.cli.out_of_core import ScanOptions

__all__ = ["fit"]


@command
def fit(
    files: FilesOfLog,
    log: LogOptions,
    learning: FitOptions,
    memory: ScanOptions | None = None,
    *,
    n_min: Annotated[
        MaybeWhole,
        Parameter(
            help="Episodes an action needs before it may be suggested; dprl needs it, confident "
            "takes 3 by default. rules: groups that took it and groups that did not, by default 20."
        ),
    ] = None,
    radius: Annotated[
        float | None,
        Parameter(help="dprl, features: largest distance of similar states, after scaling."),
    ] = None,
    seed: Annotated[
        MaybeWhole,
        Parameter(
            help="confident: seed of the halves and of the check; rules: of the halves, the "
            "models and the test; by default 0."
        ),
    ] = None,
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

    A log larger than memory, in Parquet files:
    `dprl fit 'visits/*.parquet' --out-of-core --memory-limit 2GB ...`

    On a Dask cluster, whose workers see the folder of temporary files:
    `dprl fit 'visits/*.parquet' --cluster tcp://10.0.0.1:8786 --out-of-core --temp-folder DIR ...`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    import dprl

    refuse_overwrite(out, *files)
    check_cluster(cluster, learning.learner)
    learner = learning.make(n_min, radius, seed=seed, own_seed=True)
    slow, rules = learning.learner != "dprl", learning.learner == "rules"
    features = learning.reads_features(radius)
    memory = memory or ScanOptions()
    plain = len(log.state) == len(log.action) == 1 and not log.action_bins
    parts = memory.in_parts(files, able=not features and plain)
    with progress() as tell, warned() as cautions, working_on(cluster) as there:
        if parts:
            with memory.scanned(files, log.options(features), tell) as data:
                policy = learner.fit(data, **there, progress=tell)
                policy.save(out)
        else:
            data = dprl.read(files, **log.options(features), progress=tell)
            data = learning.with_states(data, radius)
            tell("fitting (the first run compiles for some seconds)", 0.0)
            policy = learner.fit(data, **there, **({"progress": tell} if slow else {}))
            policy.save(out)
    has_chances = data.has_propensity if parts else data.propensity is not None
    if has_chances and not rules:
        cautions.append(
            f"the learner {learning.learner} does not use the probabilities in "
            f"{log.propensity!r}; rules do."
        )
    if policy.luck is not None and policy.luck.caution:
        cautions.append(policy.luck.words)
    changes = policy.changes()
    if json:
        facts: dict[str, Any] = {
            **policy.summary(), "policy": str(out), "digest": policy.digest(),
        }  # fmt: skip
        if learning.learner == "confident":
            facts["gain"] = policy.gain
        if policy.luck is not None:
            facts["luck"] = {**policy.provenance["luck"], "words": policy.luck.words}
        if policy.stated:
            facts["stated"] = policy.stated
        if rules:
            facts |= facts_of_rules(policy)
        show({**facts, "warnings": cautions, "changed": changes.to_dicts()}, as_json=True)
        return 0
    caution(cautions)
    words = words_of_rules(policy) if rules else f"{policy}\n\n{head(changes)}"
    show(f"{data!r}\n{words}\n\nSaved as {out}.", as_json=False)
    return 0
