"""Commands that learn a policy: `fit`, of a log or of what sites counted."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from dprl._core.checks import SegmentRule
from dprl._core.disk import refuse_overwrite
from dprl.apps.cli.console import command, head, in_options, progress, told, warned
from dprl.apps.cli.learning import FitOptions, check_cluster, taken_by_fit
from dprl.apps.cli.options import (
    Cluster,
    FilesOfLog,
    Json,
    LogOptions,
    MaybeWhole,
    ScanOptions,
    working_on,
)
from dprl.errors import ParameterError

# --- `dprl fit` of an evidence file: the same command, with the options that are left to choose
#
# Columns, the discount and the treatment of cut episodes were fixed by the schema that the sites
# counted with, so this form of the command has none of them.

sites = App(name="dprl fit", help_format="markdown", suppress_keyboard_interrupt=False)


def for_sites(tokens: list[str]) -> tuple[App, list[str]] | None:
    """The command for evidence and its tokens, if `fit` is asked for a file of evidence."""
    if tokens[:1] != ["fit"]:
        return None
    rest = iter(tokens[1:])
    for token in rest:
        if token in ("--n-min", "--out"):
            next(rest, None)  # its value is no file of evidence to read
        elif not token.startswith("--"):
            return (sites, tokens[1:]) if is_evidence(token) else None
    return None


def is_evidence(token: str) -> bool:
    """Whether it is "-", or a file or a folder that says it holds evidence."""
    if token == "-":
        return True
    try:
        if not token.startswith("-") and all(
            Path(token, name).exists() for name in ("schema.json", "days", "history")
        ):
            return True
        if token.startswith("-") or not Path(token).is_file() or not zipfile.is_zipfile(token):
            return False
        with zipfile.ZipFile(token) as z:
            return "evidence.json" in z.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


@sites.default
def fit_evidence(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    n_min: MaybeWhole = None,
    contrast: bool = True,
    plan: bool = True,
    segments: SegmentRule = "pooled",
    out: Path = Path("policy.dprl"),
    json: Json = False,
) -> int:
    """Learn a policy from what sites counted, without their rows, and save it.

    Gamma and the treatment of cut episodes are those of the sites' schema.

    Example: `dprl fit all.evidence --n-min 20 --no-plan --out policy.dprl`

    Args:
        file: An evidence file, a folder of evidence, or - for standard input.
        n_min: Episodes an action needs before it may be suggested.
        contrast: Also require n-min episodes that did otherwise.
        plan: Plan over all decisions together; needs a second round of counting.
        segments: How the plan reads Algorithm 2: "pooled" or "end" (all that second counts of 0.2.0
            can give).
        out: Where to save the policy.
    """
    import dprl
    from dprl.planning.sites import load_counts

    if file != "-":
        refuse_overwrite(out, file)
    if n_min is None:
        raise ParameterError(
            "--n-min is missing: how many episodes must have taken an action before it may be "
            "suggested.",
            do="Choose it before looking at results (--n-min 20).",
        )
    counted = load_counts(file)
    schema = (counted.evidence if isinstance(counted, dprl.SitePlan) else counted).schema
    learner = dprl.DPRLDiscrete(
        n_min=n_min, gamma=schema.gamma, contrast=contrast, plan=plan, cut=schema.cut,
        segments=segments,
    )  # fmt: skip
    with warned() as cautions:
        policy = learner.fit(counted)
        policy.save(out)
    changes = policy.changes()
    facts = {**policy.summary(), "policy": str(out), "digest": policy.digest(),
             "notes": list(counted.notes()), "warnings": cautions,
             "changed": changes.to_dicts()}  # fmt: skip
    words = f"{counted!r}\n{policy}\n\n{head(changes)}\n\nSaved as {out}."
    return told(facts, words, json, cautions)


# --- `dprl fit`: learns a policy from a log and saves it


@command
def fit(
    files: FilesOfLog,
    log: LogOptions,
    learning: FitOptions,
    memory: ScanOptions | None = None,
    *,
    out: Path = Path("policy.dprl"),
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
        out: Where to save the policy.
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
    about = in_options(data.facts.outcome.words(str(log.reward)))
    return told(facts, f"{about}\n{data!r}\n{words}\n\nSaved as {out}.", json, cautions)
