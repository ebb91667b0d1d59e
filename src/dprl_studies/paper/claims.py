"""The claims experiment: every claim that dprl prints, in every world that punishes it.

A world (`dprl.envs.hard`) is sampled many times; of each log every claim of a family is compared
with the truth: was it made, and was it false? Families share what is fitted:

* *rules*: of `dprl.Rules`: every rule, its lower end, the policy as a whole and its stated gain;
* *confident*: of `dprl.Confident`: the policy that is issued, and the bound of its gain; and how
  often `dprl.markov_check`, which it asks first, refutes the state;
* *gate*: of `dprl.gate` in its modes: no harmful suggestion, no overstated gain;
* *intervals*: of a policy made beforehand, the interval of every estimate of `dprl.evaluate`, and
  the bounds of `dprl.sensitivity` at the strength of the hidden cause there is;
* *monitor*: of `dprl.Monitor`: nothing is contradicted while nothing has changed, and nothing is
  still certified where the benefit is gone, or where everybody follows and nothing can be seen.

A cell (claim × world) is flagged where more logs than its level + 2 standard errors are violated.
Worlds in which an assumption of a claim does not hold are shown apart, with the sentence that the
product prints there.
"""

from __future__ import annotations

import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy import stats

import dprl
from dprl._core import plot
from dprl._core.checks import check_choice, check_whole
from dprl._core.table import Table
from dprl.envs.hard import WORLDS, MarkovWorld, World, single_step
from dprl.errors import DprlError
from dprl.logs.log import Log
from dprl.logs.reading.tables import Row, Rows
from dprl.policies.rules.rule import Condition, Rule
from dprl_studies.harness import Experiment, Setting, by, table_of

Place: TypeAlias = World | MarkovWorld
BLOCK, LEVEL, N_MIN, DRAWS = 10, 0.05, 20, 400
HIDDEN, UNSEEN, MARKOV = "hidden cause", "catastrophes were seen", "state is Markov"
INTERVALS = ("evaluate", "sensitivity")
"""Families whose claims are intervals: they may be refused, and then say nothing."""
QUICK = ("null linear weak, 300 x 4", "effect linear by lot, 400", "habits, 1500",
         "patients, 60 x 20")  # fmt: skip


@dataclass(frozen=True)
class Told:
    """What one claim said of one log, and the truth.

    Attributes:
        claim: Its name.
        made: Whether anything was claimed.
        false: Whether the claim is false.
        claimed: The number that was stated, NaN where none was.
        truth: The true number.
        kept: Of claims about a policy its true gain, 0 where none was issued; else NaN.
        width: Of intervals their width, else NaN.
        ess: Of estimates the effective sample size where it matters, else NaN.
        words: What was printed.
    """

    claim: str
    made: bool
    false: bool
    claimed: float = np.nan
    truth: float = np.nan
    kept: float = np.nan
    width: float = np.nan
    ess: float = np.nan
    words: str = ""


@dataclass(frozen=True)
class Family:
    """Claims that share what is fitted.

    Attributes:
        told: (world, log, seed) → what each claim said.
        applies: Whether the family is for a world.
        logs: Logs of each cell.
    """

    told: Callable[[Place, Log, int], Iterator[Told]]
    applies: Callable[[Place], bool]
    logs: int


# --- the families


def _rules(world: Place, log: Log, seed: int) -> Iterator[Told]:
    assert isinstance(world, World)
    policy = dprl.Rules(gamma=world.gamma, delta=LEVEL, seed=seed).fit(log)
    words, rules = policy.claim, policy.rules
    effects = [
        world.effect(partial(_spoken_by, policy, i), rule.suggested) for i, rule in enumerate(rules)
    ]
    lows = [rule.facts.get("low") for rule in rules]
    gain, issued = world.gain(policy), bool(rules)
    yield Told(
        "rules: every rule", issued, any(e.value + 3 * e.error <= 1e-9 for e in effects),
        kept=gain.value, truth=min((e.value for e in effects), default=np.nan), words=words,
    )  # fmt: skip
    stated = [(low, e) for low, e in zip(lows, effects, strict=True) if low is not None]
    worst = max(stated, key=lambda pair: pair[0] - pair[1].value, default=None)
    yield Told(
        "rules: lower ends", bool(stated),
        any(low > e.value + 3 * e.error + 1e-9 for low, e in stated),
        claimed=np.nan if worst is None else worst[0],
        truth=np.nan if worst is None else worst[1].value, words=words,
    )  # fmt: skip
    yield Told(
        "rules: not below practice", issued, gain.value + 3 * gain.error < -1e-9, kept=gain.value,
        truth=gain.value, words=words,
    )  # fmt: skip
    whole = policy.provenance["rules"]["whole"]
    low = whole.get("low", np.nan)
    made = issued and bool(np.isfinite(low))
    truth = world.gain(policy, once=True)
    yield Told(
        "rules: stated gain", made, made and low > truth.value + 3 * truth.error + 1e-9,
        claimed=low, truth=truth.value, words=" ".join(policy.stated),
    )  # fmt: skip


def _spoken_by(policy: Any, rule: int, states: Any) -> Any:
    return policy.rule_of(states) == rule


def _confident(world: Place, log: Log, seed: int) -> Iterator[Told]:
    policy = dprl.Confident(gamma=world.gamma, risk=LEVEL, seed=seed).fit(log)
    gain, facts = world.gain(policy).value, policy.gain
    issued = bool((policy.choice >= 0).any())
    words = " ".join(policy.stated)
    yield Told("confident: not below practice", issued, gain < -1e-9, kept=gain, truth=gain,
               words=words)  # fmt: skip
    low = facts["low"] if facts and issued else np.nan
    made = bool(np.isfinite(low))
    yield Told("confident: bound", made, made and low > gain + 1e-9, claimed=low, truth=gain,
               words=words)  # fmt: skip
    checked = policy.provenance["markov"]
    yield Told("check: state refuted", True, not checked["ok"], words=checked["words"])


GATES: dict[str, dict[str, Any]] = {
    "proved, all visits": {},
    "proved, first visits": {"markov": False},
    "proved, in-sample": {"mode": "in-sample"},
    "large-sample": {"grade": "large-sample"},
    "whole, proved": {"mode": "policy"},
    "whole, large-sample": {"mode": "policy", "grade": "large-sample"},
}
"""How the gate is asked."""


def _gate(world: Place, log: Log, seed: int) -> Iterator[Told]:
    learner = dprl.DPRLDiscrete(n_min=N_MIN, gamma=world.gamma)
    for name, options in GATES.items():
        ask = {"delta": LEVEL, "seed": seed, **options}
        if options.get("grade") != "large-sample":
            if world.value_range is None:
                continue
            ask["value_range"] = world.value_range
        if name == "proved, in-sample":
            ask["states"] = world.states
        if name == "whole, proved" and log.propensity is None:
            continue
        gated = dprl.gate(learner, log, **ask)
        certificate = gated.certificate
        assert certificate is not None
        gain, issued = world.gain(gated).value, bool(certificate.rows)
        words = f"{certificate.claim} It rests on: {' '.join(certificate.assumptions)}"
        if options.get("mode") != "policy":
            effects = [_brings(world, row) for row in certificate.rows]
            yield Told(f"gate {name}: suggestions", issued, any(e < -1e-9 for e in effects),
                       kept=gain, truth=min(effects, default=np.nan), words=words)  # fmt: skip
            lows = [row["low"] for row in certificate.rows]
            over = [low > e + 1e-9 for low, e in zip(lows, effects, strict=True)]
            yield Told(f"gate {name}: lower ends", issued, any(over), words=words,
                       claimed=max(lows, default=np.nan))  # fmt: skip
        low = certificate.gain
        if options.get("markov", True):  # else no gain is ever stated
            yield Told(
                f"gate {name}: gain", low is not None, low is not None and low > gain + 1e-9,
                claimed=np.nan if low is None else low, truth=gain, kept=gain, words=words,
            )  # fmt: skip


def _brings(world: Place, row: Any) -> float:
    """The true contrast of what a row of a certificate suggests, or says to avoid."""
    says = dprl.Avoid(row["avoid"]) if "avoid" in row else row["suggested"]
    return world.effect(lambda labels: labels == row["state"], says).value


def target(world: Place) -> Any:
    """A policy made without any log: the first action in about half of the states, else DEFER.

    Args:
        world: The world it is for.

    Returns:
        The policy.

    Example:
        >>> from dprl.envs.hard import null
        >>> target(null("xor")).act([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]])
        ['treat', DEFER]
    """
    if isinstance(world, MarkovWorld) or world.states:
        often = set(world.states[:1] if len(world.states) == 1 else world.states[::2])
        first = world.actions[0]
        return dprl.CallablePolicy(
            lambda states: [first if s in often else None for s in states], world.actions,
            parameters={"gamma": world.gamma}, trained_on=[],
        )  # fmt: skip
    number = next(
        (name for name, own in zip(world.feature_names, world.levels, strict=False) if own is None),
        world.feature_names[0],
    )
    cut = 0.5 if number == "calendar" else 0.0
    return dprl.RulePolicy(
        states=(), actions=world.actions, parameters={"gamma": world.gamma}, provenance={},
        feature_names=world.feature_names, levels=world.levels,
        rules=(Rule((Condition(number, "above", cut),), world.actions[0]),),
    )  # fmt: skip


def _intervals(world: Place, log: Log, seed: int) -> Iterator[Told]:
    policy = target(world)
    truth = world.gain(policy)
    asked: dict[str, Any] = {"draws": DRAWS, "seed": seed}
    if log.propensity is None:  # both would fit the same model
        asked["behavior"] = dprl.Behavior.fit(log, seed=seed)
    evaluation = dprl.evaluate(policy, log, **asked)
    strength = float(world.name.split()[-1]) if world.name.startswith(HIDDEN) else 1.0
    found = dprl.sensitivity(
        policy, log, gamma=[max(strength, 1.0)], yardstick=False, value_range=world.value_range,
        **asked,
    )  # fmt: skip
    ess = float(evaluation.facts["ess_differs"] or np.nan)
    words = " ".join(evaluation.warnings)
    first = evaluation.rows[evaluation.headline]
    for name, row, said, few in (
        ("evaluate: headline", first, words, ess),
        *((f"evaluate: {name}", row, words, ess) for name, row in evaluation.rows.items()),
        ("sensitivity: bounds", found.rows[0], " ".join(found.warnings), found.facts["ess"]),
    ):
        low, high = row["difference_low"], row["difference_high"]
        made = bool(np.isfinite([low, high]).all())
        out = made and not low - 3 * truth.error <= truth.value <= high + 3 * truth.error
        yield Told(name, made, out, claimed=low, truth=truth.value, width=high - low,
                   ess=np.nan if few is None else few, words=said)  # fmt: skip


def _monitor(world: Place, log: Log, seed: int) -> Iterator[Told]:
    assert isinstance(world, World)
    assert world.value_range is not None
    learner = dprl.DPRLDiscrete(n_min=N_MIN, gamma=world.gamma)
    ask: dict[str, Any] = {"value_range": world.value_range, "seed": seed, "avoid": False}
    gated = dprl.gate(learner, log, delta=LEVEL, **ask)
    assert gated.certificate is not None
    b, means, start = world.tables()
    where = {label: i for i, label in enumerate(world.states)}
    usual, gone, changed = b.copy(), means.copy(), False
    for row in gated.certificate.rows:
        if "avoid" not in row:
            s, a = where[row["state"]], world.actions.index(row["suggested"])
            b[s], changed = np.eye(len(world.actions))[a], True
            gone[s, a] = (usual[s] @ means[s] - usual[s, a] * means[s, a]) / (1 - usual[s, a])
    later = {
        "nothing changed": ((usual + b) / 2, means, True),
        "benefit gone": ((usual + b) / 2, gone, False),
        "everybody follows": (b, means, False),
    }
    for name, (behavior, pays, fine) in later.items():
        new = single_step(name, [str(a) for a in world.actions], behavior, pays, start=start)
        seen = dprl.Monitor(gated).add(_others(new.sample(4 * len(log.groups), seed=seed), world))
        status, verdicts = str(seen.status), [row["verdict"] for row in seen.suggestions]
        wrong = "contradicted" in status if fine else "holds" in verdicts
        if name == "everybody follows":  # there is nobody to compare with
            wrong = wrong or "cannot" not in status
        yield Told(f"monitor: {name}", changed, changed and wrong, words=status)


def _others(log: Log, world: World) -> Log:
    """The same log of other patients, with the labels of the world."""
    names = tuple(f"later {i:07d}" for i in range(log.n_episodes))
    return replace(log, states=world.states, episodes=names, groups=names)


def _once(world: Place) -> bool:
    own = isinstance(world, World) and bool(world.states) and world.atlas is not None
    return own and world.value_range == (0.0, 1.0) and world.best > 0.02


def _over_features(world: Place) -> bool:
    return isinstance(world, World) and not world.states


def _over_labels(world: Place) -> bool:
    return not _over_features(world)


def _any(world: Place) -> bool:
    return True


FAMILIES: dict[str, Family] = {
    "rules": Family(_rules, _over_features, 400),
    "confident": Family(_confident, _over_labels, 400),
    "gate": Family(_gate, _over_labels, 200),
    "intervals": Family(_intervals, _any, 400),
    "monitor": Family(_monitor, _once, 400),
}
"""Name of a family → its claims."""

NEEDS: dict[str, tuple[str, ...]] = {
    "rules": (HIDDEN, UNSEEN),
    "confident": (HIDDEN, UNSEEN),
    "gate proved": (HIDDEN,),
    "gate whole, proved": (HIDDEN,),
    "gate": (HIDDEN, UNSEEN),
    "evaluate": (HIDDEN, UNSEEN),
    "sensitivity": (UNSEEN,),
    "monitor": (HIDDEN, UNSEEN),
    "check": (HIDDEN, MARKOV),
}
"""How claims begin → what they assume, by name; the first that fits."""


def apart(claim: str, world: Place) -> str:
    """The assumption of a claim that does not hold in a world.

    Args:
        claim: Name of the claim, such as "rules: every rule".
        world: The world.

    Returns:
        The assumption; '' where all hold.

    Example:
        >>> from dprl.envs.hard import hidden_cause
        >>> apart("rules: every rule", hidden_cause())
        'hidden cause'
    """
    needs = next(needs for start, needs in NEEDS.items() if claim.startswith(start))
    if claim.startswith("sensitivity") and not world.name.startswith(HIDDEN):
        needs = HIDDEN, *needs  # it is asked how strong a cause there may be: none
    return next((need for need in needs if need in world.breaks), "")


# --- the experiment


def settings(
    quick: bool,
    seed: int,
    *,
    logs: int | None = None,
    worlds: Sequence[str] = (),
    claims: Sequence[str] = (),
) -> Sequence[Setting]:
    """One task per world, family and block of logs; the first blocks of all come first."""
    most = 1 if quick and logs is None else None if logs is None else check_whole("logs", logs, 1)
    for family in claims:
        check_choice("claims", family, tuple(FAMILIES))
    wanted = [name for name in WORLDS if any(part in name for part in worlds)] if worlds else (
        [*QUICK] if quick else [*WORLDS]
    )  # fmt: skip
    if not wanted:
        raise dprl.ParameterError(
            f"no world has {worlds[0]!r} in its name.", do=f"Worlds: {'; '.join(WORLDS)}."
        )
    made = {name: WORLDS[name].make() for name in wanted}
    upto = {family: most or FAMILIES[family].logs for family in (claims or FAMILIES)}
    return [
        {"world": name, "family": family, "first": first, "last": min(first + BLOCK, upto[family]),
         "seed": seed}
        for first in range(0, max(upto.values()), BLOCK)
        for family in upto
        for name in wanted
        if first < upto[family] and FAMILIES[family].applies(made[name])
    ]  # fmt: skip


def run(setting: Setting) -> list[Row]:
    """The rows of one task: what each claim of a family said of each log."""
    name, family = setting["world"], FAMILIES[setting["family"]]
    world, rows = WORLDS[name].make(), []
    for dataset in range(setting["first"], setting["last"]):
        entropy = [zlib.crc32(name.encode()), dataset, setting["seed"]]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        log = world.sample(WORLDS[name].groups, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                told = list(family.told(world, log, dataset))
            except DprlError as error:
                told = [Told(f"{setting['family']}: no error", True, True, words=str(error))]
        for one in told:
            broken = apart(one.claim, world)
            keep = one.claim.endswith("no error") or (broken and dataset == setting["first"])
            rows.append({
                "world": name, "groups": WORLDS[name].groups, "dataset": dataset,
                "claim": one.claim, "apart": broken, "made": bool(one.made),
                "false": bool(one.false), "claimed": float(one.claimed),
                "truth": float(one.truth), "kept": float(one.kept), "width": float(one.width),
                "ess": float(one.ess), "best": world.best, "words": one.words if keep else "",
            })  # fmt: skip
    return rows


def clopper_pearson(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share.

    Args:
        k: How often it happened.
        n: How often it could have.
        level: Coverage, in (0, 1). Default .95.

    Returns:
        The lower and the upper end.

    Example:
        >>> [round(end, 4) for end in clopper_pearson(0, 20)]
        [0.0, 0.1684]
    """
    tail = (1 - level) / 2
    if not n:
        return 0.0, 1.0
    low = float(stats.beta.ppf(tail, k, n - k + 1)) if k else 0.0
    high = float(stats.beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0
    return low, high


def summary(rows: Rows) -> Table:
    """One row per claim and world: how often it was made, how often it was false, its power."""
    lines = []
    for (claim, world, broken), part in by(rows, "claim", "world", "apart"):
        made, false = np.asarray(part["made"], bool), int(np.sum(part["false"]))
        has_width = claim.startswith(INTERVALS)
        n = int(made.sum()) if has_width else len(made)  # an interval that is refused says nothing
        low, high = clopper_pearson(false, n)
        most = LEVEL + 2 * np.sqrt(LEVEL * (1 - LEVEL) / max(n, 1))
        best, share = float(part["best"][0]), false / max(n, 1)
        claimed = np.where(made, np.maximum(part["claimed"], 0), 0)
        stated = part["kept"] if np.isfinite(part["kept"]).all() else claimed
        worth = float(np.mean(stated)) / best if best > 1e-9 else np.nan
        lines.append({
            "claim": claim, "world": world, "logs": len(made), "made": int(made.sum()),
            "false": false, "share": share, "low": low, "high": high, "level": LEVEL,
            "flag": "apart" if broken else "FALSE" if share > most else "",
            "power": np.nan if has_width or claim.startswith("check") else worth,
            "width": _median(part["width"]),
            "ess": _median(part["ess"]),
        })  # fmt: skip
    order = {name: i for i, name in enumerate(WORLDS)}
    lines.sort(key=lambda line: (str(line["claim"]), order[str(line["world"])]))
    return table_of(
        lines,
        "Claims and the truth",
        "made: logs in which the claim is made; false: logs in which it is made and false; share: "
        "of all logs, of intervals of those that are given; low, high: its Clopper-Pearson "
        "interval; flag: FALSE above the level + 2 standard errors, apart where an assumption of "
        "the claim does not hold; power: share of the best gain that the issued policies keep, or "
        "that is claimed; width: median width of intervals; ess: median effective sample size "
        "where it matters.",
    )


def _median(x: Any) -> float:
    finite = x[np.isfinite(x)]
    return float(np.median(finite)) if len(finite) else np.nan


def brief(table: Table) -> Table:
    """One row per claim: worlds and logs in which it was asked, and where it is flagged."""
    lines = []
    for claim in dict.fromkeys(table["claim"]):
        own = [line for line in table if line["claim"] == claim]
        asked = [line for line in own if line["flag"] != "apart"]
        flagged = [line for line in asked if line["flag"]]
        worst = max(asked, key=lambda line: line["share"], default=None)
        lines.append({
            "claim": claim, "worlds": len(asked), "logs": sum(line["logs"] for line in asked),
            "made": sum(line["made"] for line in asked),
            "false": sum(line["false"] for line in asked), "flagged": len(flagged),
            "worst": worst["share"] if worst else np.nan,
            "where": worst["world"] if worst and worst["false"] else "",
        })  # fmt: skip
    return table_of(lines, table.caption)


INTRODUCTION = """By `dprl reproduce claims --seed {seed}` on {date}, dprl {version}, code {code}.

A cell says in how many logs a claim was false, of all logs (of intervals: of those that were
given). Worlds that differ in strength alone share a row. **Bold**: in a world of the row more logs
than the level of {level:g} and two standard errors; then the worst world is named below the table.
*most*: upper end of the Clopper-Pearson interval of the worst column, over the whole row. *made*:
share of logs in which anything is claimed. *kept*: share of the best possible gain that the issued
policies have; *claimed*: share that is stated, 0 where nothing is issued. Of intervals their median
width stands in brackets (the mean over the worlds of a row), and the median effective sample size
where it matters is *ess*.
"""
APART = """### Where an assumption does not hold

No method can keep these claims here: a cause that nobody recorded, a catastrophe that the log has
not met, a state that hides the past. What is printed names what it rests on.
"""
STRENGTH = re.compile(r" (weak|medium|strong)(?=, )")


def page(rows: Rows, facts: dict[str, Any]) -> str:
    """The tables of the page of the docs that shows all claims: made from the rows.

    Args:
        rows: The rows of the experiment.
        facts: What settings.json says: seed, versions, the digest of the code.

    Returns:
        Markdown text.
    """
    table = summary(rows)
    lines = [
        INTRODUCTION.format(
            seed=facts["seed"], version=facts["dprl"], code=facts["code"][:12], level=LEVEL,
            date=datetime.now(UTC).date(),
        ),
        _markdown(brief(table)),
    ]  # fmt: skip
    held = [line for line in table if line["flag"] != "apart"]
    broken = [line for line in table if line["flag"] == "apart" and line["made"]]
    for cells, title in ((held, ""), (broken, APART)):
        lines += [title] * bool(title and cells)
        for subject in dict.fromkeys(_subject(line) for line in cells):
            own = [line for line in cells if _subject(line) == subject]
            lines += [f"#### {subject}\n", _cells(own, subject), *_flagged(own)]
            said = _said(rows, own[0]["claim"]) if title else []
            lines += [f"It says there: {' '.join(words.split())}\n" for words in said]
    return "\n".join(lines)


def _markdown(table: Table) -> str:
    return Table(dict(table.columns)).to_markdown()


TOGETHER = {"check": "confident", "sensitivity": "evaluate"}
"""Subjects that share the table of another."""


def _subject(line: Any) -> str:
    """In whose table a claim is."""
    word = str(line["claim"]).split(": ")[0].split()[0]
    return TOGETHER.get(word, word)


def _column(line: Any, subject: str) -> str:
    """Of a gate its way, whatever it claims of it; else the claim."""
    begin, end = str(line["claim"]).split(": ")
    if begin in TOGETHER:
        return str(line["claim"])
    return end if subject == begin else begin.removeprefix(f"{subject} ")


def _row(line: Any) -> str:
    return STRENGTH.sub("", str(line["world"]))


def _said(rows: Rows, claim: str) -> list[str]:
    """What was printed where an assumption of a claim does not hold, once."""
    chosen = np.flatnonzero(
        (rows["claim"] == claim) & (rows["apart"] != "") & (rows["words"] != "")
    )
    return [str(words) for words in rows["words"][chosen[:1]]]


def _flagged(lines: Sequence[Any]) -> list[str]:
    """The cells above their level, one after another."""
    told = [
        f"{line['claim']}, {line['world']}: {line['false']} of "
        f"{line['made'] if line['claim'].startswith(INTERVALS) else line['logs']} "
        f"({line['low']:.3f} to {line['high']:.3f})"
        for line in lines if line["flag"] == "FALSE"
    ]  # fmt: skip
    return [f"Above the level: {'; '.join(told)}.\n"] if told else []


def _cells(lines: Sequence[Any], subject: str) -> str:
    """The cells of a subject as a Markdown table: a row per kind of world, a column per claim."""
    named = list(dict.fromkeys(_column(c, subject) for c in lines if c["made"]))
    columns: dict[str, list[Any]] = {"world": []}
    for row in dict.fromkeys(_row(line) for line in lines):
        own = [line for line in lines if _row(line) == row]
        told: dict[str, Any] = {"world": row}
        worst = 0.0
        for name in named:
            cells = [c for c in own if _column(c, subject) == name]
            counts: dict[str, tuple[int, int]] = {}
            for c in cells:
                false, n = counts.get(c["claim"], (0, 0))
                given = c["made"] if c["claim"].startswith(INTERVALS) else c["logs"]
                counts[c["claim"]] = false + c["false"], n + given
            false, n = max(counts.values(), default=(0, 0), key=lambda x: x[0] / max(x[1], 1))
            words = f"{false}/{n}" if n else ""
            wide = [c["width"] for c in cells if np.isfinite(c["width"])]
            words += f" ({np.mean(wide):.2g})" if wide and n else ""
            told[name] = f"**{words}**" if any(c["flag"] == "FALSE" for c in cells) else words
            worst = max(worst, clopper_pearson(false, n)[1] if n else 0.0)
        told["most"] = f"{worst:.3f}"
        told["made"] = _mean([c["made"] / c["logs"] for c in _first(own)])
        told["kept"] = _mean([c["power"] for c in own if str(c["claim"]).endswith(KEPT)])
        told["claimed"] = _mean([c["power"] for c in own if str(c["claim"]).endswith(CLAIMED)])
        told["ess"] = _mean([c["ess"] for c in own])
        for name, value in told.items():
            columns.setdefault(name, []).append(value)
    return Table({n: v for n, v in columns.items() if any(v)}).to_markdown()


KEPT = (": every rule", ": not below practice", ": suggestions", "headline", ": bounds")
CLAIMED = (": stated gain", ": bound", ": gain")


def _first(own: Sequence[Any]) -> Sequence[Any]:
    """The cells of a row that tell how often anything is claimed; all where none is chosen."""
    return [c for c in own if str(c["claim"]).endswith(KEPT)] or own


def _mean(values: Sequence[float]) -> str:
    finite = [v for v in values if np.isfinite(v)]
    return f"{float(np.mean(finite)):.2f}" if finite else ""


def figure(rows: Rows) -> Any:
    """The share of false logs in every cell, with its interval, one row of dots per claim."""
    table = summary(rows)
    claims = list(dict.fromkeys(table["claim"]))
    figure, axes = plot.grid(1, 1, width=6.4, height=0.5 + 0.3 * len(claims))
    axis = axes[0][0]
    for i, claim in enumerate(claims):
        own = [line for line in table if line["claim"] == claim and line["flag"] != "apart"]
        at = i + np.linspace(-0.3, 0.3, max(len(own), 1))[: len(own)]
        share = np.array([line["share"] for line in own])
        color = ["#d55e00" if line["flag"] else "#0072b2" for line in own]
        axis.scatter(share, at, s=7, c=color)
    axis.axvline(LEVEL, color="black", lw=1)
    axis.set(yticks=np.arange(len(claims)), yticklabels=claims, xlim=(-0.02, 1.02),
             xlabel="share of logs in which the claim is false")  # fmt: skip
    axis.invert_yaxis()
    return figure


def on_worlds(
    *, logs: int | None = None, worlds: Sequence[str] = (), claims: Sequence[str] = ()
) -> Experiment:
    """The experiment, of some worlds and claims.

    Args:
        logs: Logs of each cell. Default None: those of each family, and 1 if quick.
        worlds: Parts of the names of worlds. Default (): all.
        claims: Families of claims. Default (): all.

    Returns:
        The experiment.

    Example:
        >>> len(on_worlds(worlds=["wet chicken"], claims=["confident"], logs=20).settings(False, 0))
        4
    """
    return Experiment(
        "claims", "Does every claim hold in every world that its assumptions admit?",
        partial(settings, logs=logs, worlds=worlds, claims=claims), run, summary, figure, brief,
        page,
    )  # fmt: skip
