"""The catalogue of words: the same keys in every language, numbers by language, one language a text."""

from __future__ import annotations

import datetime
import html
import re
from importlib import resources

import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup

import dprl
from dprl._core.html.catalogue import LANGUAGES, NUMBER, _table, speak
from dprl.policies._rule import Condition, Rule

PLACES = re.compile(r"\{\w+#?\}")
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


@pytest.mark.parametrize("lang", LANGUAGES[1:])
def test_languages_have_the_same_keys_places_and_tags(lang):
    english, other = speak("en").messages, speak(lang).messages
    assert set(other) == set(english)
    for key, message in english.items():
        assert sorted(PLACES.findall(other[key])) == sorted(PLACES.findall(message)), key
        assert sorted(TAGS.findall(other[key])) == sorted(TAGS.findall(message)), key


@pytest.mark.parametrize("lang", LANGUAGES[1:])
def test_sentences_have_the_same_places(lang):
    for english, own in _table(f"{lang}.sentences").items():
        places = {place.replace("#", "") for place in PLACES.findall(english)}
        assert set(PLACES.findall(own)) == places, english


def test_every_key_that_is_used_is_there():
    folder = resources.files("dprl._core.html").joinpath("templates")
    templates = "".join(
        folder.joinpath(f"{name}.html").read_text(encoding="utf-8")
        for name in ("page", "report", "pieces", "figures", "standard")
    )
    keys = speak("en").messages
    for key in re.findall(r"(?<!\w)t\('([\w.-]+)'[,)]", templates):
        assert key in keys, key
    for key in re.findall(r"t\.many\('([\w.-]+)'[,)]", templates):
        assert f"{key}.one" in keys, key
        assert f"{key}.other" in keys, key


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
    assert str(de.many("count.episode", 1)) == "1\u00a0Episode"
    assert str(de.many("count.episode", 1000)) == "1.000\u00a0Episoden"


def test_values_are_escaped():
    hostile = "<b>{0}</b>\u202e"
    text = speak("de")("target.fact.effect-alone", name=hostile, difference="1")
    assert "<b>" not in text
    assert "&lt;b&gt;{0}&lt;/b&gt;⟨U+202E⟩" in text
    sentence = speak("de").quote(
        f"There are no subgroups by {hostile}: this is the log the policy was learned from."
    )
    assert isinstance(sentence, Markup)
    assert "<b>" not in sentence


def test_a_text_is_in_one_language():
    de = speak("de")
    known_one = "Episodes are independent of each other."
    assert de.quote(known_one) == "Episoden sind voneinander unabhängig."
    both = f"{known_one} This sentence has no translation."
    assert de.quote(both) == f'<span lang="en">{both}</span>'
    assert speak("en").quote(both) == both
    lean = (
        "below usual practice, but not surely: age up to 53.5 (-0.1, -0.3 to +0.1; 1,200 episodes)."
    )
    assert de.quote(lean) == (
        "Unter der üblichen Praxis, aber nicht sicher: age bis 53,5 (-0,1, -0,3 bis +0,1; 1.200 "
        "Episoden)."
    )
    # A label that could be the rest of a sentence is not taken for one.
    odd = (
        "There are no subgroups by sex: this is the log the policy was learned from. And more; so."
    )
    assert de.quote(odd).startswith('<span lang="en">')


def test_labels_are_never_translated():
    de = speak("de")
    assert de.situation("state = 1.5", ()) == "state = 1.5"
    names = ("age", "blood pressure")
    assert de.situation("age 60.5 to under 70 · blood pressure = 3", names) == (
        "age 60,5 bis unter 70 · blood pressure = 3"
    )
    assert de.situation("age above 60.5 and at most 70 and blood pressure missing", names) == (
        "age über 60,5 und höchstens 70 und blood pressure fehlt"
    )
    assert de.situation(
        "cell 4: all states nearest to age = 60.1; in this log anywhere", names
    ) == ("Zelle 4: alle Zustände, die age = 60,1 am nächsten liegen; in diesem Log überall")
    assert (
        de.situation("weight 3 to under 4", names) == '<span lang="en">weight 3 to under 4</span>'
    )
    assert speak("en").situation("weight 3 to under 4", names) == "weight 3 to under 4"
    assert de.situation("age is not 1.5 and blood pressure is low", names) == (
        "age ist nicht 1.5 und blood pressure ist low"
    )
    assert de.cell("where", "age above 60.5", False, names) == "age über 60,5"
    assert de.cell("n", "1,200", True, ()) == "1.200"
    assert de.cell("state", "1,200", False, ()) == "1,200"
    assert de.usual("practice is divided") == "die Praxis ist geteilt"
    assert de.ahead("a → b → … 1,200 more") == "a → b → … 1.200 weitere"
    assert de.ahead("end") == "Ende"
    assert NUMBER.fullmatch("-1,234.5e-05")


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


def test_sentences_of_rules():
    rule = (
        "2. Otherwise, if blood pressure is above 66.6 and at most 80: drug (usually wait, 58 %); it "
        "brought +2.38 over doing otherwise (+1.89 to +2.86, each end with confidence 95 % for all "
        "rules at once; adjusted p 0.0002); Γ* = 8.65."
    )
    assert speak("de").quote(rule) == (
        "2. Sonst, wenn blood pressure über 66,6 und höchstens 80: drug (üblich: wait, 58 %); sie "
        "brachte +2,38 gegenüber anderem Handeln (+1,89 bis +2,86, jedes Ende mit Konfidenz 95 % für "
        "alle Regeln zugleich; angepasstes p 0,0002); Γ* = 8,65."
    )
    odd = '1. If ward is neither "a: b" nor c: drug.'
    assert html.unescape(speak("de").quote(odd)) == ('1. Wenn ward ist weder "a: b" noch c: drug.')
    shares = "1. Everywhere: drug (practice is divided: drug 40 %, wait 35 %, 1,000 more 25 %)."
    assert speak("de").quote(shares) == (
        "1. Überall: drug (die Praxis ist geteilt: drug 40 %, wait 35 %, 1.000 weitere 25 %)."
    )


def test_conditions_on_labels():
    de, names = speak("de"), ("ward", "age and sex", "age")
    for english, own in {
        'ward is ICU or or-2 or "a and b" and age above 60.5': (
            'ward ist ICU oder or-2 oder "a and b" und age über 60,5'
        ),
        "age above 60.5 and at most 70 and age and sex at most 2": (
            "age über 60,5 und höchstens 70 und age and sex höchstens 2"
        ),
        "ward is neither ICU nor HDU, where no earlier rule holds": (
            "ward ist weder ICU noch HDU, wo keine frühere Regel gilt"
        ),
        'ward is not "x \\" or y"': 'ward ist nicht "x \\" or y"',
    }.items():
        assert de.situation(english, names) == own
        assert speak("en").situation(english, names) == english
    assert de.condition("no condition", names) == "no condition"
    assert de.usual("a or b", ("a", "b", "c")) == "a oder b"
    assert de.usual("a or b", ("a or b", "a", "b")) == "a or b"
    assert speak("en").usual("a or b", ("a", "b")) == "a or b"


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
            "Randomised: the probabilities of actions are known on all 3,000 rows and used as they "
            "are."]},
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
    assert {"ja", "nein", "überlassen", "+0,31 (-0,013 bis +0,52)"} <= set(texts)
    page = words.partition("Erstellt von")[0].replace("überlassen (DEFER)", "")
    assert ENGLISH.findall(page) == []


@pytest.mark.parametrize("page", ["german", "german_rules"])
def test_no_sentence_of_the_catalogue_is_left_in_english(page, request):
    words = " ".join(read(request.getfixturevalue(page)).split())
    said_in_german = " ".join(speak("de").messages.values())
    texts = [*speak("en").messages.values(), *_table("de.sentences")]
    for text in texts:
        plain = html.unescape(re.sub(r"<[^>]*>", "", text))
        for piece in PLACES.split(plain):
            if len(piece.split()) >= 4 and piece not in said_in_german:
                assert " ".join(piece.split()) not in words, text


def test_the_note_on_rows_left_out_of_a_fit_is_translated():
    note = (
        "Fitted on a random part of the training groups, at most 8,000 rows of up to 9,387 (whole "
        "groups): value_model, extra trees."
    )
    assert speak("de").quote(note) == (
        "Angepasst an einen zufälligen Teil der Trainingsgruppen, höchstens 8.000 von bis zu 9.387 "
        "Zeilen (ganze Gruppen): value_model, extra trees."
    )
