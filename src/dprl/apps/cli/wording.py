"""What the library says, for readers of the command line: options in place of Python arguments.

Messages of the library name arguments and, often, options too: "Choose cut= (--cut)". From Python
they are shown as they are. Commands show them through `in_options`, which keeps the option of such
a pair, writes a lone argument as its option (``plan=False`` is ``--no-plan``), and names commands
and learners as the command line does. Only arguments that some command takes as an option are
touched, and nothing that a message quotes from data or says about a place.
"""

from __future__ import annotations

import functools
import re

from dprl.errors import DprlError

__all__ = ["error_in_options", "in_options", "place_in_options"]

QUOTED = r"""'[^']*'|"[^"]*\""""
VALUE = rf"(?:{QUOTED}|\[[^\]]*\]|\{{[^}}]*\}}|\([^()]*\)|True|False|[\w%][\w.%+-]*(?<!\.)|\.\.\.)"
ARGUMENT = rf"(?<![\w'\"./=?&\[-])(?P<name>[a-z][a-z_]*)=(?P<value>{VALUE})?"
PLAIN = ARGUMENT.replace("?P<name>", "?:").replace("?P<value>", "?:")
OPTION = r"--[a-z][^()]*"
ALSO = rf"(?:(?: or|,) (?:{QUOTED}))*"
"""Further values of an argument: "'a' or 'b'"."""
CALL = r"(?:\b\w+(?:, \w+)* = )?\b(?:log|dprl)\.[\w.]+\([^()]*\)(?:\.\w+\([^()]*\))*"


def _whole(hit: re.Match[str]) -> str:
    """To read a log into memory is the default of commands."""
    return f"{'L' if hit[1] == 'R' else 'l'}eave out --out-of-core"


PAIRED = re.compile(rf"(?:{PLAIN}, )*{ARGUMENT}{ALSO} \((?P<option>{OPTION})\)")
PAIRS = (
    (rf"\({PLAIN}{ALSO}, (?P<option>{OPTION})\)", r"(\g<option>)"),
    (r"(?P<option>--[a-z-]+), or [a-z_]+=(?![\w'\"\[{(])", r"\g<option>"),
    (r"\b[a-z_]+=(?:True|False), or (?P<option>--[a-z-]+)", r"\g<option>"),
    (r"\b(?:dprl\.)?[A-Z]\w+ \((?P<option>--learner [a-z]+)\)", r"\g<option>"),
    (rf"{CALL}, or (?P<option>dprl [a-z]+)", r"\g<option>"),
    (rf"(?P<option>dprl [a-z]+(?: --[a-z-]+)?), or {CALL}", r"\g<option>"),
    (r"\b([Rr])ead (?:the log|it) with dprl\.read\b(?: \(without --out-of-core\))?", _whole),
    (r"(?:,? then|, or join categories into one:) log\.\w+\(\)", ""),
    (r" \(before log\.\w+\(\) or log\.\w+\(\)\)", ""),
    (r"\bread with (?=missing=)", ""),
    (r"\bDPRLDiscrete or DPRLContinuous\b", "--learner dprl"),
    (r"\bRules (?=with )", "--learner rules "),
    (r"(?<![\w'\"-])n_min\b(?! =)", "--n-min"),
    (r"(?<![\w'\"-])value_range\b(?!=)", "--lowest and --highest"),
)
"""An argument (or a call) and its option side by side → the option."""

NAMES = {
    "dprl.Rules": "--learner rules", "dprl.Confident": "--learner confident",
    "dprl.DPRLDiscrete": "--learner dprl", "dprl.DPRLContinuous": "--learner dprl",
    "DPRLDiscrete": "--learner dprl", "DPRLContinuous": "--learner dprl",
    "dprl.markov_check": "dprl check --markov", "dprl.merge_evidence": "dprl merge",
    "dprl.site_evidence": "dprl evidence",
}  # fmt: skip
"""What Python calls a learner or a command → what the command line calls it."""

ALIKE = {"value_range": "--lowest and --highest"}
"""Arguments that have other options than their own names."""


@functools.cache
def _known() -> tuple[frozenset[str], frozenset[str]]:
    """All options of all commands, and all commands."""
    from dprl.apps.cli.main import app  # where every command is registered

    commands = [name for name in app if not name.startswith("-")]
    options: set[str] = set()
    for name in commands:
        own = app[name]
        parts = [own[n] for n in own if not n.startswith("-")] or [own]
        for part in parts:
            options |= {n for a in part.assemble_argument_collection() for n in a.names}
    return frozenset(n for n in options if n.startswith("--")), frozenset(commands)


def in_options(text: str) -> str:
    """A message of the library as a reader of the command line needs it.

    Args:
        text: What is wrong, or what to do about it.

    Example:
        >>> in_options("Choose cut= (--cut), or leave such episodes out (missing='drop-episodes').")
        'Choose --cut, or leave such episodes out (--missing drop-episodes).'
    """
    kept: list[str] = []

    def keep(hit: re.Match[str]) -> str:
        kept.append(hit[0])
        return f"\0{len(kept) - 1}\0"

    # What a message quotes (a label, a pattern of files) is not its own wording.
    text = re.sub(r"(?<![=\[({,:\w])(?<!or )(?<!\[)'[^']*[=.][^']*'", keep, text)
    text = PAIRED.sub(_paired, text)
    for pattern, option in PAIRS:
        text = re.sub(pattern, option, text)
    text = re.sub(rf"{ARGUMENT}(?P<also>{ALSO})", _argument, text)
    text = re.sub(r"^([a-z][a-z_]*)(?= (?:must|needs|is)\b)", _named, text)
    text = re.sub(
        r"(?<!policy of )\b(?:dprl\.\w+|DPRL[A-Z]\w+)\b(?!\.\w)(?:\(\.\.\.\))?", _called, text
    )
    text = re.sub(r"\0(\d+)\0", lambda hit: kept[int(hit[1])], text)
    return re.sub(r"--learner dprl(?: (?:and|or) --learner dprl)+", "--learner dprl", text)


def error_in_options(error: DprlError) -> DprlError:
    """The same error, worded for the command line."""
    return type(error)(in_options(error.what), place_in_options(error.where), in_options(error.do))


def place_in_options(text: str) -> str:
    """The place of an error; a place in data ("patient=3") stays as it is."""
    return re.sub(rf"{ARGUMENT}", lambda hit: _argument(hit) if _is_setting(hit) else hit[0], text)


def _is_setting(hit: re.Match[str]) -> bool:
    """Whether an argument is a setting of a call: data are written without quotation marks."""
    return bool(hit["value"]) and (hit["value"][0] in "'\"" or hit["value"] in ("True", "False"))


def _option(name: str) -> str:
    """The option of an argument; '' where no command has it."""
    option = f"--{name.replace('_', '-')}"
    return ALIKE.get(name, option if option in _known()[0] else "")


def _argument(hit: re.Match[str]) -> str:
    option, value = _option(hit["name"]), hit["value"] or ""
    if not option or re.search(r"--[a-z-]+ $", hit.string[: hit.start()]):
        return hit[0]  # "--missing ward=flag" is how an option is written
    also = re.sub(r"['\"]", "", hit.groupdict().get("also") or "")
    if hit["name"] in ALIKE or value in ("", "...", "[...]"):
        return f"{option}{also}"
    if value in ("True", "False"):
        return option if value == "True" else f"--no-{option[2:]}"
    if value[0] == "[":
        each = [item.strip(" '\"") for item in value[1:-1].split(",")]
        return " ".join(f"{option} {item}" for item in each if item not in ("", "...", "…"))
    bare = value[1:-1] if value[0] in "'\"" else value
    return f"{option} {value if ' ' in bare else bare}{also}"


def _paired(hit: re.Match[str]) -> str:
    """The option of an argument beside it, with the argument's value where it has none itself."""
    lone = re.fullmatch(r"--[a-z-]+", hit["option"])
    return _argument(hit) if lone and hit["value"] and hit["value"][0] in "'\"" else hit["option"]


def _named(hit: re.Match[str]) -> str:
    return (_option(hit[1]) if "_" in hit[1] or hit[1] in SETTINGS else "") or hit[1]


SETTINGS = (
    "gamma",
    "delta",
    "lam",
    "margin",
    "draws",
    "seed",
    "level",
    "radius",
    "depth",
    "splits",
)
"""Settings of one word whose name begins a message as that of an argument."""


def _called(hit: re.Match[str]) -> str:
    called = hit[0].removesuffix("(...)")
    name = called.removeprefix("dprl.")
    if called in NAMES:
        return NAMES[called]
    return f"dprl {name}" if called != name and name in _known()[1] else hit[0]
