"""Words in the names of columns that say what a column is: English, German, French and Spanish.

Names are compared in small letters and without accents ("Événement" is evenement, "Maß" is mass).
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["BESIDES", "LATER", "PLACES", "WORDS", "fits", "words_in"]

WORDS = {
    "episode": ("episode", "trajectory", "traj", "stay", "encounter", "admission", "hadm", "visit",
                "icustay", "csn", "case", "game", "run", "session",
                "fall", "aufenthalt", "aufnahme", "besuch", "fallnummer", "fallnr", "fallid",
                "sejour", "visite", "cas", "hospitalisation", "admision",
                "episodio", "estancia", "visita", "caso", "ingreso"),
    "group": ("patient", "subject", "person", "pid", "mrn", "hospital", "site", "centre", "center",
              "user", "customer", "family",
              "patientin", "proband", "krankenhaus", "klinik", "standort", "zentrum",
              "sujet", "personne", "hopital", "paciente", "sujeto", "persona", "centro"),
    "time": ("time", "timestamp", "datetime", "date", "day", "hour", "week", "month", "step", "t",
             "charttime", "minute", "period", "seq", "order", "index",
             "zeit", "zeitpunkt", "datum", "uhrzeit", "tag", "stunde", "woche", "monat", "schritt",
             "temps", "jour", "heure", "semaine", "mois", "etape", "horodatage",
             "tiempo", "fecha", "dia", "hora", "semana", "mes", "paso", "minuto"),
    "action": ("action", "treatment", "treat", "drug", "dose", "arm", "intervention", "therapy",
               "decision", "rx", "assigned", "allocation", "item",
               "behandlung", "medikament", "massnahme", "therapie", "arznei", "dosis", "handlung",
               "entscheidung", "gabe", "eingriff", "arzneimittel",
               "traitement", "medicament", "geste", "bras",
               "tratamiento", "medicamento", "farmaco", "accion", "brazo", "terapia"),
    "reward": ("reward", "return", "utility", "payoff", "outcome", "score", "result", "click",
               "benefit",
               "belohnung", "ergebnis", "nutzen", "punktzahl", "zielgrosse",
               "recompense", "resultat", "issue", "benefice",
               "recompensa", "resultado", "desenlace", "puntuacion", "beneficio"),
    "ended": ("ended", "end", "done", "terminal", "terminated", "censored", "finished", "ending",
              "ende", "beendet", "abgeschlossen", "zensiert", "fin", "termine", "censure",
              "terminado", "finalizado", "censurado"),
    "propensity": ("propensity", "pscore", "probability", "prob", "pi",
                   "wahrscheinlichkeit", "probabilite", "probabilidad"),
    "state": ("state", "stage", "situation", "phase", "condition",
              "zustand", "stadium", "lage", "etat", "stade", "estado", "etapa", "fase",
              "situacion"),
}  # fmt: skip
"""Role → words for it; the first is the role's own."""
PLACES = ("hospital", "site", "centre", "center", "family", "krankenhaus", "klinik", "standort",
          "zentrum", "hopital", "centro")  # fmt: skip
"""Words of groups that are no single person: their rows are not one trajectory."""
LATER = ("outcome", "death", "died", "dead", "mortality", "survived", "survival", "discharge",
         "los", "readmission", "followup", "alive", "reward", "return",
         "tod", "verstorben", "gestorben", "sterblichkeit", "uberlebt", "uberleben", "entlassung",
         "entlassen", "liegedauer", "ergebnis", "belohnung",
         "mort", "deces", "decede", "mortalite", "survie", "sortie", "resultat", "recompense",
         "muerte", "fallecido", "mortalidad", "supervivencia", "alta", "resultado", "recompensa",
         "desenlace")  # fmt: skip
"""Words of columns that are often known only afterwards: never proposed as a part of the state."""
BESIDES = ("id", "num", "no", "nr", "number", "key", "code", "nummer", "kennung", "schlussel",
           "numero", "cle", "codigo", "clave")  # fmt: skip
"""Words that say that a column names something, not what."""
ENDINGS = ("en", "n", "s", "nr", "id", "nummer", "ennr", "enid", "ennummer", "enkennung", "snr",
           "sid", "snummer", "sart", "art", "es", "s")  # fmt: skip
"""What German puts behind a word in one piece: Patientennummer, Behandlungsart."""
LONG = 6
"""Shorter words are never taken for the beginning of a longer one."""


def words_in(name: str) -> list[str]:
    """The parts of a name, in small letters without accents: `ICUStay_ID` is icu, stay, id."""
    spaced = re.sub(r"(?<=[a-z0-9à-ÿ])(?=[A-ZÀ-Þ])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    plain = unicodedata.normalize("NFKD", spaced.casefold())
    return re.findall(r"[a-z]+|[0-9]+", "".join(c for c in plain if not unicodedata.combining(c)))


def fits(word: str, parts: set[str]) -> bool:
    """Whether a word is one of the parts of a name, or the beginning of a German compound."""
    if word in parts:
        return True
    return len(word) >= LONG and any(
        part.startswith(word) and part[len(word) :] in ENDINGS for part in parts
    )
