"""The model card: what a report says about a policy, for machines that keep records of models.

The sections are those of a model card: details, intended use, factors, metrics, data, analyses,
ethics, caveats. What nobody said is null, and named under "to_fill_in".
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from pathlib import Path

from dprl._core.table import to_json_value
from dprl._core.version import __version__
from dprl._core.words import option, worded
from dprl.apps._changes import Described
from dprl.apps._intended_use import ASKED, card_beside
from dprl.apps._standard import Study
from dprl.errors import ParameterError
from dprl.evaluation._result import Evaluation

__all__ = ["card_of", "card_path"]

SCHEMA = "dprl-model-card-1"


def card_of(
    title: str,
    day: datetime.date,
    lang: str,
    report: Path,
    page: bytes,
    described: Described,
    judged: Evaluation | None,
    study: Study,
    notes: list[str],
) -> bytes:
    """The card as JSON text; the same arguments give the same bytes.

    Args:
        title: Heading of the report.
        day: Date of the report.
        lang: Language of the report; sentences in "items" are in it.
        report: The file of the report.
        page: Its bytes.
        described: The changes of the policy.
        judged: The evaluation; None where there is none.
        study: The answers to the standard.
        notes: What a reader must be careful about.
    """
    policy, made = described.policy, described.policy.provenance
    proved = policy.certificate
    stated: dict[str, str | None] = {key: study.use.get(key) for key in ASKED}
    card = {
        "schema": SCHEMA,
        "standard": study.standard,
        "language": lang,
        "date": day.isoformat(),
        "report": {"file": report.name, "sha256": hashlib.sha256(page).hexdigest()},
        "model_details": {
            "name": title,
            "digest": policy.digest(),
            "made_by": made.get("made_by"),
            "card_by": f"dprl {__version__}",
            "parameters": dict(policy.parameters),
            "actions": list(policy.actions),
            "features": list(policy.space.feature_names) or None,
            "contact": stated["contact"],
        },
        "intended_use": {
            key.replace("-", "_"): stated[key]
            for key in ("question", "setting", "users", "not-for")
        },
        "factors": {
            "compared": study.baseline.to_dict(),
            "balance": None if described.balance is None else described.balance.to_dict(),
            "subgroups": None
            if judged is None or judged.subgroups is None
            else judged.subgroups.to_dict(),
        },
        "metrics": {
            "shares_of_decisions": dict(described.steps),
            "practice_divided": described.divided,
            "changes": len(described.changes),
        },
        "evaluation_data": {
            "log": described.log_digest,
            "episodes": described.log.n_episodes,
            "groups": len(described.log.groups),
            "decisions": described.log.n_steps,
            "cut_episodes": described.cut,
            "left_out_episodes": described.left_out,
            "held_out": not described.seen and not described.unsure,
            "missing": dict(study.missing),
            "flow": dict(study.flow),
        },
        "training_data": {
            key: made.get(key)
            for key in ("log", "episodes", "episodes_used", "groups", "steps", "cut_episodes")
        },
        "quantitative_analyses": {
            "evaluation": None if judged is None else judged.to_dict(),
            "not_evaluated": described.seen or None,
            "certificate": None if proved is None else proved.to_dict(),
            "sensitivity": None if study.sensitivity is None else study.sensitivity.to_dict(),
            "not_bounded": study.refusal or study.unbounded or None,
        },
        "ethical_considerations": stated["ethics"],
        "caveats_and_recommendations": notes,
        "items": [
            {
                "section": item.section,
                "item": item.name,
                "stated": item.own,
                "from_data": [line.striptags() for line in item.facts],
                "to_fill_in": item.blank,
            }
            for item in study.items
        ],
        "to_fill_in": list(study.blanks),
    }
    text = json.dumps(to_json_value(card), ensure_ascii=False, indent=2, allow_nan=False)
    return f"{text}\n".encode()


def card_path(
    target: Path, card: str | os.PathLike[str] | None, standard: str | None
) -> Path | None:
    """Where the model card goes; None without a standard.

    Args:
        target: The file of the report.
        card: The file that was asked for; None for one beside the report.
        standard: The standard that was asked for; None for none.

    Raises:
        ParameterError: A card was asked for without a standard, or it cannot be written there.
    """
    if standard is None:
        if card is not None:
            raise ParameterError(
                "a model card is written with a report to a standard, and none was asked for.",
                do=worded(
                    "Say {standard}, or leave the card out.", standard=option("standard", "target")
                ),
            )
        return None
    path = card_beside(target) if card is None else Path(card)
    if not path.parent.is_dir() or path.is_dir() or path.resolve() == target.resolve():
        raise ParameterError(
            f"the model card cannot be written to {str(path)!r}.",
            do="Name a file of its own in a folder that exists.",
        )
    return path
