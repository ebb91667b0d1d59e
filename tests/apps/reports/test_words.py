"""The catalogue of words: the same keys in every language, numbers by language, one language a text."""

from __future__ import annotations

import datetime
import html
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from babel.messages.extract import extract_from_dir
from babel.messages.frontend import parse_keywords, parse_mapping_cfg
from markupsafe import Markup

import dprl
from dprl._core.html.catalogue import LANGUAGES, speak
from dprl._core.words import joined, pieces, said_in, say, say_many, sentences, with_said, word
from dprl.policies.rules.rule import Condition, Rule

WORDS_TARGET = re.compile(r"-k (\S+)")
TAGS = re.compile(r"</?\w+")
ENGLISH = re.compile(
    r"\b(the|of|and|is|are|were|with|to|this|that|at|by|for|not|no|it|its|policy's|usual|"
    r"suggested|decisions?|steps|changes?|episodes|groups|missing|above|below|log's)\b"
)
"""Words that stand in nearly every English sentence, and in no German one."""


@pytest.fixture(scope="module")
def german(tmp_path_factory):
    """A German report to the standard, of labels, with further columns and subgroups."""
    rng = np.random.default_rng(0)
    n = 1_200
    x, age = rng.normal(size=n), rng.normal(60, 10, n).round()
    drug = rng.random(n) < np.where(age > 60, 0.6, 0.3)

    def log(rows):
        return dprl.from_arrays(
            episode=rows.tolist(),
            state=np.where(x > 0, "hoch", "tief")[rows].tolist(),
            action=np.where(drug, "Mittel", "warten")[rows].tolist(),
            reward=(drug * np.where(x > 0, 2.0, -2.0) + rng.normal(size=n))[rows].tolist(),
            also={"Alter": [None if i % 17 == 0 else age[i] for i in rows]},
        )

    train, test = log(np.arange(600)), log(np.arange(600, n))
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    folder = tmp_path_factory.mktemp("de")
    dprl.report(
        policy, test, folder / "r.html", values=False, draws=60, by="Alter", standard="target",
        use={"question": "Wer bekommt das Mittel?"}, lang="de", date=datetime.date(2026, 3, 31),
    )  # fmt: skip
    return (folder / "r.html").read_text(encoding="utf-8")


def read(page):
    """What is read on a page, and what is read aloud of its figures."""
    body = re.sub(r"<head>.*?</head>", "", page, flags=re.DOTALL)
    spoken = " ".join(re.findall(r'aria-label="([^"]*)"', body))
    body = re.sub(r"<svg.*?</svg>", " ", body, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", " ", body) + spoken).replace("\u00a0", " ")


def places(message):
    """The places of a message, with how each is written."""
    return sorted((name, how) for _, name, how in pieces(message) if name is not None)


@pytest.fixture(scope="module")
def collected():
    """What the program says today: the messages that `make words` would collect."""
    root = Path(__file__).parents[3]
    keywords = [
        word
        for line in WORDS_TARGET.findall((root / "Makefile").read_text())
        for word in line.split()
    ]
    found = {}
    for _, _, message, _, _ in extract_from_dir(
        root / "src/dprl", *mapping(root), keywords=parse_keywords(keywords),
        directory_filter=lambda folder: True,
    ):  # fmt: skip
        one, *others = (message,) if isinstance(message, str) else message
        found[one] = others
    return found


def mapping(root):
    """The files and how each is read, as babel.cfg has them."""
    with (root / "babel.cfg").open(encoding="utf-8") as stream:
        return parse_mapping_cfg(stream)


@pytest.mark.parametrize("lang", LANGUAGES[1:])
def test_nothing_is_untranslated_and_nothing_is_stale(lang, collected):
    """Otherwise: make words, and fill in what is empty."""
    assert set(speak(lang).messages) == set(collected)


@pytest.mark.parametrize("lang", LANGUAGES[1:])
def test_translations_have_the_same_places_and_tags(lang, collected):
    for message, forms in speak(lang).messages.items():
        english = (message, *collected[message])
        assert len(forms) == len(english), message
        for said, own in zip(english, forms, strict=True):
            assert places(own) == places(said), message
            assert sorted(TAGS.findall(own)) == sorted(TAGS.findall(said)), message


def test_numbers_by_language():
    en, de = speak("en"), speak("de")
    assert (en.count(1234567), de.count(1234567)) == ("1,234,567", "1.234.567")
    assert (en.number(1234.5), de.number(1234.5)) == ("1234.500", "1234,500")
    assert (en.number(-0.25, True), de.number(-0.25, True)) == ("−0.250", "−0,250")
    assert (en.number(0.25, True), de.number(0.25, True)) == ("+0.250", "+0,250")
    assert (en.fixed(1234.56, 1), de.fixed(1234.56, 1)) == ("1,234.6", "1.234,6")
    assert (en.general(0.05), de.general(0.05)) == ("0.05", "0,05")
    assert de.number(None) == de.number(float("nan")) == "–"
    assert de.number("1.5 mg") == "1.5 mg"  # a label stays as it is
    assert (de.percent(0.001), de.percent(0.5), de.percent(0.999)) == (
        "<1\u00a0%", "50\u00a0%", ">99\u00a0%",
    )  # fmt: skip
    day = datetime.date(2026, 3, 1)
    assert (en.date(day), de.date(day)) == ("1 March 2026", "1. März 2026")
    assert str(de.ngettext("{n} episode", "{n} episodes", 1)) == "1\u00a0Episode"
    assert str(de.ngettext("{n} episode", "{n} episodes", 1000)) == "1.000\u00a0Episoden"


def test_values_are_escaped():
    hostile = "<b>{0}</b>\u202e"
    text = speak("de")("Column {name}", name=hostile)
    assert "<b>" not in text
    assert "&lt;b&gt;{0}&lt;/b&gt;⟨U+202E⟩" in text
    sentence = speak("de").quote(
        say("There are no subgroups by {by}: {seen}.", by=hostile, seen="x")
    )
    assert isinstance(sentence, Markup)
    assert "<b>" not in sentence


def test_a_sentence_is_its_english_text_and_knows_its_parts():
    cut = say_many(
        "{n:,} episode was cut: {weighed}", "{n:,} episodes were cut: {weighed}", 1200, weighed="x"
    )
    assert cut == "1,200 episodes were cut: x"
    assert json.loads(json.dumps(cut)) == cut
    again = pickle.loads(pickle.dumps(cut))
    assert (again, again.values) == (cut, cut.values)
    assert speak("de").quote(cut) == "1.200 Episoden brachen ab: x"
    both = sentences(say("DM is left out."), "", joined("; ", [word("episodes"), "a label"]))
    assert both == "DM is left out. episodes; a label"
    assert speak("de").quote(both) == "DM ist weggelassen. Episoden; a label"


def test_files_keep_what_sentences_know():
    document = {
        "notes": [say("{k:,} of {n:,} declared states do not occur in this log.", k=1, n=2)]
    }
    kept = json.loads(json.dumps({**document, "said": said_in(document)}))
    plain = {"notes": [str(note) for note in document["notes"]]}
    (note,) = with_said(plain, kept["said"])["notes"]
    assert speak("de").quote(note) == "1 von 2 erklärten Zuständen kommen in diesem Log nicht vor."
    assert said_in({"notes": [note]}) == said_in(document)
    assert said_in({"notes": ["a text"]}) == []
    # A file cannot say one thing in English and another in German, nor ask for anything else.
    for odd in (
        [{"message": "Nothing was cut.", "values": {}}],
        [{"message": "{n.__class__}", "values": {"n": 1}}],
        [{"message": "{n:99999999}", "values": {"n": 1}}],
        [{"message": 3, "values": {}}], [{"parts": 3}], [None], "said", [["x"]],
    ):  # fmt: skip
        assert type(with_said(plain, odd)["notes"][0]) is str


def test_a_text_is_in_one_language():
    de = speak("de")
    own = say("Episodes are independent of each other.")
    assert de.quote(own) == "Episoden sind voneinander unabhängig."
    both = sentences(own, say("This sentence has no translation."))
    assert de.quote(both) == f'<span lang="en">{both}</span>'
    assert de.quote(str(own)) == f'<span lang="en">{own}</span>'
    assert speak("en").quote(both) == both


def test_labels_are_never_translated():
    de = speak("de")
    assert de.situation("state = 1.5", ()) == "state = 1.5"
    assert de.situation("weight 3 to under 4", ("weight",)) == (
        '<span lang="en">weight 3 to under 4</span>'
    )
    rule = Rule(
        (
            Condition("age", "above", 60.5), Condition("age", "at most", 70.0),
            Condition("ward", "not in", labels=("1.5", "above 2")), Condition("blood", "missing"),
        ),
        "drug",
    )  # fmt: skip
    assert rule.words == (
        'age above 60.5 and at most 70 and ward is neither 1.5 nor "above 2" and blood missing'
    )
    assert de.situation(rule.words, ("age",)) == (
        'age über 60,5 und höchstens 70 und ward ist weder 1.5 noch "above 2" und blood fehlt'
    )
    assert de.cell("where", rule.words, False, ("age",)) == de.situation(rule.words, ("age",))
    assert rule.sentence.startswith("If age is above 60.5 and at most 70 and ward is neither")
    assert de.part(rule.sentence).startswith("Wenn age über 60,5 und höchstens 70 und ward ist")
    assert de.cell("n", "1,200", True, ()) == "1.200"
    assert de.cell("state", "1,200", False, ()) == "1,200"


def test_no_english_is_left_on_a_german_page(german):
    assert '<html lang="de">' in german
    assert '<span lang="en">' not in german
    words = read(german)
    # What follows are names and settings, as the policy keeps them.
    page, _, settings = words.partition("Erstellt von")
    page = page.replace(
        "Transparent Reporting of Observational Studies Emulating a Target Trial", ""
    )
    assert ENGLISH.findall(page) == []
    assert ENGLISH.findall(settings.partition("Geschrieben von")[2]) == []
    assert "31. März 2026" in page
    assert re.search(r"\+\d,\d{3} bis \+\d,\d{3}", page)
    assert not re.search(r"\d\.\d{3} to ", page)


def test_an_unknown_language_is_refused_in_three_lines():
    with pytest.raises(dprl.ParameterError) as wrong:
        speak("fr")
    what, where, do = str(wrong.value).split("\n")
    assert "there is no language 'fr'" in what
    assert "en, de" in where
    assert "'en'" in do
    assert LANGUAGES == ("en", "de")


@pytest.fixture(scope="module")
def german_rules(tmp_path_factory):
    """A German report on rules about labels: a tree, a divided practice, takers that differ."""
    facts = {
        "steps": 120, "groups": 118, "groups_took": 40, "groups_others": 78, "advantage": 0.3125,
        "se": 0.05, "low": -0.0125, "high": 0.52, "p": 0.003, "gain": 0.2, "share": 0.4,
        "changed": 0.3, "overlap": 0.98, "balance": ["Station ICU", 0.23],
        "share_usual": [["warten", 0.36], ["Mittel", 0.34], ["beides", 0.3]],
    }  # fmt: skip
    icu = Condition("Station", "in", labels=("ICU", "Haus 2"))
    rules = (
        Rule((icu,), "Mittel", facts),
        Rule(
            (Condition("Station", "not in", labels=icu.labels), Condition("Druck", "above", 62.5)),
            "beides",
            facts,
        ),
    )
    policy = dprl.RulePolicy(
        states=(), actions=("Mittel", "beides", "warten"), feature_names=("Druck", "Station"),
        rules=rules, levels=(None, ("Haus 2", "ICU", "NAW")),
        parameters={"delta": 0.05, "gamma": 1.0, "n_min": 20, "learner": "Rules"},
        provenance={"steps": 600, "groups": 300, "episodes": 400, "made_by": "dprl", "notes": [
            say("Randomised: the probabilities of actions are known on all {n:,} rows and used as "
                "they are.", n=3000)]},
    )  # fmt: skip
    rng = np.random.default_rng(0)
    table = {
        "Fall": range(80), "Druck": rng.normal(62, 5, 80), "Punkte": rng.normal(size=80),
        "Station": rng.choice(["Haus 2", "ICU", "NAW"], 80),
        "Tat": rng.choice(["Mittel", "beides", "warten"], 80),
    }  # fmt: skip
    log = dprl.from_frame(
        pd.DataFrame(table), episode="Fall", state=["Druck", "Station"], action="Tat",
        reward="Punkte",
    )  # fmt: skip
    path = tmp_path_factory.mktemp("rules") / "r.html"
    dprl.report(policy, log, path, values=False, draws=60, lang="de")
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_rules_and_their_tree_are_german(german_rules):
    assert 'lang="en"' not in german_rules
    words = " ".join(read(german_rules).split())
    assert (
        '1. Wenn Station ist "Haus 2" oder ICU: Mittel (die Praxis ist geteilt: warten 36 %'
        in words
    )
    assert 'Station ist weder "Haus 2" noch ICU und Druck über 62,5' in words
    assert "noch in Station ICU um 0,23 Standardabweichungen" in words
    assert "auf allen 3.000 Zeilen bekannt" in words
    texts = re.findall(r'<text class="t-(?:box|axis)"[^>]*>([^<]*)<', german_rules)
    assert {"ja", "nein", "überlassen"} <= set(texts)
    page = words.partition("Erstellt von")[0].replace("überlassen (DEFER)", "")
    assert ENGLISH.findall(page) == []
