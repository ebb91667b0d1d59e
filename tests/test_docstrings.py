"""Every public name explains itself: what it takes, what it returns, what it refuses, an example."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dprl

PACKAGES = (
    "dprl", "dprl.logs", "dprl.events", "dprl.evidence", "dprl.evidence.neighbors", "dprl.planning", "dprl.envs",
    "dprl.learners", "dprl.baselines", "dprl.policies", "dprl.certificate", "dprl.evaluation",
    "dprl.stats", "dprl.testing", "dprl.apps", "dprl.figures", "dprl_studies.harness", "dprl_studies.paper", "dprl.icu",
    "dprl.atari",
)  # fmt: skip


def public() -> dict[str, Any]:
    """Functions and classes by the module and name they are defined under, each once."""
    named: dict[str, Any] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                named[f"{thing.__module__}.{thing.__qualname__}"] = thing
    return {k: named[k] for k in sorted(named)}


PUBLIC = public()


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods a class defines itself; properties are described in one sentence."""
    for name, member in vars(cls).items():
        if not name.startswith("_") and isinstance(member, classmethod | staticmethod):
            yield name, member.__func__
        elif not name.startswith("_") and inspect.isfunction(member):
            yield name, member


def section(doc: str, title: str) -> str:
    """The lines under a title such as 'Args:', without the title."""
    found = re.search(rf"^{title}:\n((?:[ ]+.*\n|\n)*)", doc + "\n", re.MULTILINE)
    return found[1] if found else ""


def described(doc: str, *titles: str) -> set[str]:
    """The names that the sections describe."""
    lines = "".join(section(doc, title) for title in titles)
    return set(re.findall(r"^    \**(\w+): \S", lines, re.MULTILINE))


def raises(function: Any) -> bool:
    """Whether the body raises anything itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


def lacks(function: Any) -> list[str]:
    """What the docstring of a function does not say."""
    doc = inspect.getdoc(function) or ""
    missing = [] if ">>> " in doc else ["an example"]
    taken = set(inspect.signature(function).parameters) - {"self", "cls"}
    missing += [f"argument {name}" for name in sorted(taken - described(doc, "Args"))]
    returned = str(function.__annotations__.get("return", None))
    if returned != "None" and not (section(doc, "Returns") or section(doc, "Yields")):
        missing.append("what it returns")
    if raises(function) and not section(doc, "Raises"):
        missing.append("what it raises")
    return missing


@pytest.mark.parametrize("place", PUBLIC)
def test_a_public_name_is_explained(place: str) -> None:
    thing = PUBLIC[place]
    if inspect.isfunction(thing):
        assert not lacks(thing)
        return
    doc = inspect.getdoc(thing) or ""
    assert doc, "no docstring"
    if issubclass(thing, BaseException):
        return
    missing = {} if ">>> " in doc else {thing.__name__: ["an example"]}
    if dataclasses.is_dataclass(thing):
        fields = {field.name for field in dataclasses.fields(thing)}
        rest = fields - described(doc, "Attributes", "Args")
        if rest:
            missing[thing.__name__] = missing.get(thing.__name__, []) + sorted(rest)
    missing |= {name: lack for name, method in methods(thing) if (lack := lacks(method))}
    assert not missing


def test_the_names_looked_at_are_those_a_user_can_reach() -> None:
    assert "dprl.logs._io.read" in PUBLIC
    assert "dprl.learners.baselines.fitted.FittedPQI" in PUBLIC
    modules = {name for name in dprl.__all__ if inspect.ismodule(getattr(dprl, name))}
    assert modules <= {place.removeprefix("dprl.") for place in PACKAGES}


@pytest.mark.parametrize("place", PUBLIC)
def test_an_argument_is_described_by_a_whole_phrase(place: str) -> None:
    thing = PUBLIC[place]
    docs = [thing, *(method for _, method in methods(thing))] if inspect.isclass(thing) else [thing]
    for doc in map(inspect.getdoc, docs):
        for title in ("Args", "Attributes", "Returns"):
            for line in section(doc or "", title).splitlines():
                text = line.partition(": ")[2] or line.strip()
                assert not re.match(r"(Of|Whose|And|In) \S+( \S+){0,2}\.$", text), line
                assert not re.search(r"\bone (entry|number|row) an? \w+", text, re.IGNORECASE), line


def listed():
    """What docs/api.md lists: the objects behind its names."""
    text = (Path(__file__).parent.parent / "docs" / "api.md").read_text()
    kinds = "class|function|exception|data"
    for name in re.findall(rf"^\.\. auto(?:{kinds}):: (\S+)$", text, re.MULTILINE):
        package, _, last = name.rpartition(".")
        yield getattr(importlib.import_module(package), last)


def test_the_api_page_lists_every_public_name():
    known = {id(thing) for thing in listed()}
    assert [name for name, thing in PUBLIC.items() if id(thing) not in known] == []
    assert {id(getattr(dprl, n)) for n in dprl.__all__ if n.endswith(("Warning", "Error"))} <= known
    packages = [
        dprl,
        *(module for n in dprl.__all__ if inspect.ismodule(module := getattr(dprl, n))),
    ]
    values = {
        f"{package.__name__}.{n}": id(thing)
        for package in packages
        for n in package.__all__
        if not inspect.ismodule(thing := getattr(package, n)) and not n.startswith("__")
    }
    assert [name for name, value in values.items() if value not in known] == []
