"""An outcome of which less is better: everything that is shown has the sign of the table.

The same log three times: rewards r with ``better="higher"``, -r with ``better="lower"``, and 2 r,
which tells what of a text is an outcome at all: a number that is another one there. Every such number
must change its sign where the direction does, and nothing else may change.
"""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

import dprl
from dprl.logs.outcome import other_end
from dprl.policies.certificate import down

NUMBER = re.compile(r"(?<![\w#])(?<!\d\.)[+−-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
UNSIGNED = re.compile(
    r"(standard error|by at least|is worth at least|by more than|gains?|Gain:|gain >=|wider by|differences of|eps\* =) ?\(?$"
)
"""What stands before a size, which has no sign: "by at least 3" is better by 3, whatever is better."""
SIZES = {
    "se", "sure_se", "gain", "certified_gain", "se_by_visits", "optimism", "unseen", "margin",
    "trivial", "worth", "learning", "untreated",
}  # fmt: skip
"""Keys and columns of sizes."""


def log_of(rewards: str, seed: int = 0, n: int = 1500, **more: Any) -> dprl.Log:
    """A log of invented patients: "higher", "lower" (the sign changed) or "double"."""
    log = dprl.envs.care_pathway().sample(n, seed=seed)
    first = np.zeros(log.n_steps)
    first[log.starts[:-1]] = 3.25
    r = 7.0 * log.reward + first  # nothing else on a page is as large as a return
    sign = {"higher": 1.0, "lower": -1.0, "double": 2.0}[rewards]
    which = np.repeat(np.arange(log.n_episodes), log.lengths)
    label = np.array(log.states)[log.codes()]
    return dprl.from_arrays(
        episode=which + 10_000 * seed, state=more.pop("state", label),
        action=np.array(log.actions)[log.action], reward=sign * r,
        better="lower" if rewards == "lower" else "higher", **more,
    )  # fmt: skip


def features_of(rewards: str, seed: int = 0, n: int = 900) -> dprl.Log:
    """Patients with two measurements; the drug helps where the first is low."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    drug = rng.random(n) < 0.45
    y = 5 + 3.0 * drug * (x[:, 0] < 0.3) + rng.normal(size=n)
    sign = {"higher": 1.0, "lower": -1.0, "double": 2.0}[rewards]
    return dprl.from_arrays(
        episode=np.arange(n) + 10_000 * seed, state=x, action=np.where(drug, "drug", "wait"),
        reward=sign * y, better="lower" if rewards == "lower" else "higher",
        feature_names=["pressure", "age"],
    )  # fmt: skip


WAYS = ("higher", "lower", "double")


def ranged(rewards: str, low: float = -1.0, high: float = 12.0) -> tuple[float, float]:
    """The range of returns in the direction of each log."""
    return {"higher": (low, high), "lower": (-high, -low), "double": (2 * low, 2 * high)}[rewards]


def value(word: str) -> float:
    return float(word.replace(",", "").replace("−", "-"))


SIZED = re.compile(
    r"\b(higher by|lower by|höher um|niedriger um) ([\d.]+)([^()\d]*) \(([\d.]+) (to|bis) ([\d.]+)\)"
)
"""A difference as it is said: its size, and which way it goes."""


def signed(text: str) -> str:
    """The same with a sign in place of the word, so that it can be compared."""

    def number(m: re.Match[str]) -> str:
        down = m[1] in ("lower by", "niedriger um")
        sign, ends = ("-", (m[6], m[4])) if down else ("+", (m[4], m[6]))
        return f"by {sign}{m[2]}{m[3]} ({sign}{ends[0]} {m[5]} {sign}{ends[1]})"

    return SIZED.sub(number, text)


def lines_of(text: str) -> list[str]:
    """The lines of a text without digests; of a page, what stands in it, without the axes of its pictures."""
    if "<" in text and "</" in text:
        text = re.sub(
            r"<style.*?</style>|<text.*?</text>|<script.*?</script>", " ", text, flags=re.S
        )
        text = re.sub(r"</(p|li|td|th|dd|dt|tr|h\d|caption)>", "\n", text)
        text = signed(re.sub(r"<[^>]+>", " ", text))
    return [HASHES.sub("digest", line) for line in text.splitlines() if line.strip()]


def _apart(one: list[str], other: list[str]) -> list[str]:
    """Where two texts differ in more than their numbers."""
    lines = ([NUMBER.sub("#", line) for line in text] for text in (one, other))
    return [line for line in difflib.ndiff(*lines) if line[0] in "+-"]


def check_text(name: str, texts: dict[str, str], gains: frozenset[float] = frozenset()) -> None:
    """Of each line, the outcomes have the other sign, and the other numbers are the same.

    `gains` are sizes: what is gained at least, whichever way is better.
    """
    higher, lower, double = (lines_of(texts[way]) for way in WAYS)
    assert len(higher) == len(lower) == len(double), (
        name, len(higher), len(lower), len(double), _apart(higher, lower)
    )  # fmt: skip
    for one, other, twice in zip(higher, lower, double, strict=True):
        found = [*NUMBER.finditer(one)]
        x = [value(m[0]) for m in found]
        y, z = ([value(m[0]) for m in NUMBER.finditer(line)] for line in (other, twice))
        assert len(x) == len(y) == len(z), (name, one, other, twice)
        amounts, same = Counter[float](), Counter[float]()
        for m, v, w in zip(found, x, z, strict=True):
            size = v == w or v in gains or bool(UNSIGNED.search(one[: m.start()]))
            (same if size else amounts)[v if size else 0.0 - v] += 1
        assert Counter(y) == amounts + same, (name, one, other)


def check_values(name: str, values: dict[str, Any], key: str = "") -> None:
    """The same of values that JSON holds: by their keys, whose ends change places."""
    one, other, twice = (values[way] for way in WAYS)
    at = f"{name}: {key}"
    if isinstance(one, dict):
        for own in one:
            end = own if own in other and not _is_amount(one, twice, own) else other_end(own)
            assert end in other, (at, own, sorted(other))
            check_values(name, {"higher": one[own], "lower": other[end], "double": twice[own]}, own)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), at
        if key in ("value_range", "range") and len(one) == 2:
            other = [*reversed(other)]
        if key == "returns" and len(one) == 3:  # a mean with its ends
            other = [other[0], other[2], other[1]]
        for a, b, c in zip(one, other, twice, strict=True):
            check_values(name, {"higher": a, "lower": b, "double": c}, key)
    elif isinstance(one, str):
        check_text(at, values)
    elif isinstance(one, float) and one != twice and key not in SIZES:
        assert other == pytest.approx(-one, abs=1e-9), at
    elif key != "digest":
        assert other == one or (isinstance(one, float) and other == pytest.approx(one)), at


def _is_amount(one: Any, twice: Any, key: str) -> bool:
    return isinstance(one[key], float) and one[key] != twice[key] and key not in SIZES


HASHES = re.compile(r"(?<![\w.])(?=[0-9]*[a-f])[0-9a-f]{12,64}(?!\w)")


def check_shown(shown: dict[str, dict[str, Any]], *gains: float | None) -> None:
    """Everything that was shown of the three logs."""
    sizes = frozenset(round(down(gain or 0.0), digits) for gain in gains for digits in (3, 4))
    for name in shown["higher"]:
        three = {way: shown[way][name] for way in WAYS}
        if isinstance(three["higher"], str):
            check_text(name, three, sizes)
        else:
            plain = {way: json.loads(json.dumps(v, default=str)) for way, v in three.items()}
            check_values(name, plain)


def shown_of(policy: Any) -> dict[str, Any]:
    """What a policy says of itself."""
    tables = {"changes": policy.changes(), "confirmations": policy.confirmations()}
    return {
        "print": str(policy), "page": policy._repr_html_(), "learned": policy.learned(),
        **{f"{name} as values": json.loads(t.to_json()) for name, t in tables.items()},
    }  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_learned_and_judged_over_labels(tmp_path) -> None:
    shown: dict[str, dict[str, Any]] = {}
    answers = {}
    for way in WAYS:
        train, test = log_of(way), log_of(way, seed=1)
        policy = dprl.DPRLDiscrete(n_min=30, gamma=1.0).fit(train)
        answers[way] = policy.act(list(train.states))
        evaluation = dprl.evaluate(policy, test, draws=50, value_range=ranged(way))
        bounds = dprl.sensitivity(
            policy, test, gamma=[1, 2], draws=50, yardstick=False, value_range=ranged(way)
        )
        other = dprl.DPRLDiscrete(n_min=150, gamma=1.0).fit(train)
        compared = dprl.compare({"low": policy, "high": other}, test, draws=50)
        swept = dprl.sweep(
            dprl.DPRLDiscrete(n_min=30, gamma=1.0), train, test, n_min=[30, 150], draws=50,
            delta=0.1, value_range=ranged(way),
        )  # fmt: skip
        assert swept.pick("lower-end").parameters["n_min"] == 30
        found = dprl.check(train)
        dprl.report(
            policy, test, tmp_path / f"{way}.html", draws=50, cases=2, title="R", by="state"
        )
        dprl.report(policy, test, tmp_path / f"{way}.de.html", draws=50, title="R", lang="de")
        shown[way] = {
            **shown_of(policy),
            **{f"explain {s}": policy.explain(s).to_dict() for s in train.states},
            **{f"explain {s} in words": str(policy.explain(s)) for s in ("fever", "worse")},
            "evaluation": evaluation.details(), "evaluation as values": evaluation.to_dict(),
            "evaluation page": evaluation._repr_html_(),
            "sensitivity as values": bounds.to_dict(),
            "sensitivity": "\n".join(bounds.lines()), "compare": compared.to_dict(),
            "sweep": swept.to_dict(), "check": found.details(), "log": train._repr_html_(),
            "markov": dprl.markov_check(train, 1.0, permutations=299).to_dict(),
            "report": (tmp_path / f"{way}.html").read_text(),
            "report in German": (tmp_path / f"{way}.de.html").read_text().replace(",", "."),
        }  # fmt: skip
    assert answers["higher"] == answers["lower"]
    check_shown(shown)


@pytest.mark.slow
def test_certified_and_watched(tmp_path) -> None:
    shown: dict[str, dict[str, Any]] = {}
    gains: list[float | None] = []
    for way in WAYS:
        log, new = log_of(way, n=3000), log_of(way, seed=1)
        learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        proved = dprl.gate(learner, log, value_range=ranged(way))
        large = dprl.gate(learner, log, grade="large-sample", seed=1)
        whole = dprl.gate(learner, log, grade="large-sample", mode="policy")
        none = dprl.gate(learner, log.take(np.arange(200)), value_range=ranged(way))
        assert not proved.certificate.vacuous
        assert not whole.certificate.vacuous
        proved.save(tmp_path / "gated.dprl")
        again = dprl.load(tmp_path / "gated.dprl")
        assert again.certificate == proved.certificate or (
            again.certificate.to_dict() == proved.certificate.to_dict()
        )
        assert again.digest() == proved.digest()
        watched = dprl.Monitor(proved)
        looked = watched.add(new, when="today")
        dprl.report(proved, new, tmp_path / f"{way}.html", draws=50, title="R")
        shown[way] = {
            f"{name} {kind}": form(gated)
            for name, gated in
            {"proved": proved, "large": large, "whole": whole, "none": none}.items()
            for kind, form in {
                "certificate": lambda p: p.certificate.details(),
                "page": lambda p: p.certificate._repr_html_(),
                "values": lambda p: p.certificate.to_dict(),
                "changes": lambda p: p.changes().to_dicts(),
            }.items()
        }  # fmt: skip
        shown[way] |= {
            "watch": looked.details(), "watch as values": looked.to_dict(),
            "history": watched.history().to_dicts(),
            "report": (tmp_path / f"{way}.html").read_text(),
        }  # fmt: skip
        gains = gains or [p.certificate.gain for p in (proved, large, whole)]
    check_shown(shown, *gains, -13.0)


@pytest.mark.slow
def test_confident(tmp_path) -> None:
    shown: dict[str, dict[str, Any]] = {}
    for way in WAYS:
        train, test = log_of(way), log_of(way, seed=1)
        worst = {"higher": -2.0, "lower": 2.0, "double": -4.0}[way]
        policy = dprl.Confident(gamma=1.0, worst=worst).fit(train)
        assert policy.gain["low"] > 0
        dprl.report(policy, test, tmp_path / f"{way}.html", draws=50, title="R")
        shown[way] = {
            **shown_of(policy), "explain": policy.explain("fever").to_dict(),
            "report": (tmp_path / f"{way}.html").read_text(),
        }  # fmt: skip
    check_shown(shown)


@pytest.mark.slow
def test_learned_and_judged_over_features(tmp_path) -> None:
    shown: dict[str, dict[str, Any]] = {}
    gain = None
    for way in WAYS:
        train, test = features_of(way), features_of(way, seed=1)
        near = dprl.DPRLContinuous(n_min=20, radius=0.5, gamma=1.0).fit(train)
        rules = dprl.Rules(gamma=1.0, splits=1).fit(train)
        assert any(not rule.silent for rule in rules.rules)
        dprl.report(rules, test, tmp_path / f"{way}.html", draws=50, title="R")
        cells = dprl.gate(
            dprl.DPRLContinuous(n_min=20, radius=1.0, gamma=1.0), train,
            value_range=ranged(way, -5, 15),
        )  # fmt: skip
        gain = gain or cells.certificate.gain
        shown[way] = {
            **{f"near {name}": own for name, own in shown_of(near).items()},
            **{f"rules {name}": own for name, own in shown_of(rules).items()},
            **{f"cells {name}": own for name, own in shown_of(cells).items()},
            "near explain": near.explain([0.0, 0.0], cases=True).to_dict(),
            "rules explain": rules.explain([-1.0, 0.0]).to_dict(),
            "rules worth": rules.worth().to_dicts(), "certificate": cells.certificate.details(),
            "report": (tmp_path / f"{way}.html").read_text(),
        }  # fmt: skip
    check_shown(shown, gain, -20.0)


@pytest.mark.slow
def test_the_answer_is_the_same_in_other_words() -> None:
    """At most eight lines, verdict first: "higher by 0.6" where more is better, else "lower by"."""
    printed = {}
    for way in ("higher", "lower"):
        train, test = log_of(way), log_of(way, seed=1)
        policy = dprl.DPRLDiscrete(n_min=30, gamma=1.0).fit(train)
        evaluation = dprl.evaluate(policy, test, draws=100)
        swept = dprl.sweep(
            dprl.DPRLDiscrete(n_min=30, gamma=1.0), train, test, n_min=[30, 150], draws=50
        )
        gated = dprl.gate(
            dprl.DPRLDiscrete(n_min=20, gamma=1.0), log_of(way, n=3000), value_range=ranged(way)
        )
        bounds = dprl.sensitivity(policy, test, gamma=[1, 2], draws=50)
        watched = dprl.Monitor(gated).add(test)
        printed[way] = [evaluation, swept, gated.certificate, bounds, watched, dprl.check(train)]
        assert all(len(str(one).splitlines()) <= 8 for one in printed[way])
        assert all(len(one.details()) > len(str(one)) for one in printed[way])
        table = str(policy.changes()).splitlines()
        assert len(table[1].split()) == 8
        assert "planned" in policy.changes().details()
    for one, other in zip(*(map(str, printed[way][:2]) for way in printed), strict=True):
        first, same = one.splitlines()[0], other.splitlines()[0]
        assert "higher by" in first
        assert same == first.replace("higher by", "lower by")
    assert str(printed["lower"][0]).startswith("Better than usual practice")
