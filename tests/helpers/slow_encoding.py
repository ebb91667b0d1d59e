"""Gaps filled and states encoded in plain Python, row by row, to compare with."""

FAR = 1e9


def is_gap(value):
    return value is None or value == "" or value != value


def middle(values):
    """The median: the middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def learned(rows, words):
    """Column → what a training table (a list of dicts) says about filling and labels."""
    facts = {}
    for column in rows[0]:
        present = [row[column] for row in rows if not is_gap(row[column])]
        gaps = len(rows) - len(present)
        labels = any(isinstance(value, str) for value in present)
        facts[column] = {
            "word": words.get(column),
            "labels": sorted(set(present)) if labels else None,
            "gaps": gaps,
            "middle": None if labels else middle(present),
        }
    return facts


def encoded(row, facts):
    """One row as feature → number, as a policy over distances takes it."""
    ready = {}
    for column, fact in facts.items():
        value = row[column]
        flagged = fact["word"] == "flag"
        if fact["labels"] is None:
            if is_gap(value):
                value = FAR if flagged and not fact["gaps"] else fact["middle"]
            ready[column] = float(value)
            if flagged and fact["gaps"]:
                ready[f"{column} missing"] = float(is_gap(row[column]))
            continue
        labels = list(fact["labels"])
        if flagged and fact["gaps"]:
            labels.append("missing")
        word = "missing" if is_gap(value) else value
        for label in labels:
            other = 0.0 if word in labels else FAR
            ready[f"{column}={label}"] = 1.0 if word == label else other
    return ready


def joined(row):
    """One row of labels as one label."""
    words = (f"{name}={'missing' if is_gap(value) else value}" for name, value in row.items())
    return " · ".join(words)
