"""Reading: everything that is said about a source when a log is read from it, told once.

`read`, `scan`, `from_frame`, `from_arrays`, `check` and the command line take the same options.
They make a `Reading` of them, which is checked once; what an option means is told in its field, and
put into the help of every function that takes it.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from dprl.logs.roles import ROLES, by_role, takes_roles

if TYPE_CHECKING:
    from dprl.logs.design import Design
    from dprl.logs.encoding.gaps import Missing
    from dprl.logs.follow_up import Window
    from dprl.logs.log import Label
    from dprl.logs.outcome import Outcome
    from dprl.logs.reading.text import Text
    from dprl.logs.survival import Survival


F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["word", "words", "switch"]


def _option(default: Any, kind: Kind, sentence: str, kept: bool = False) -> Any:
    """A field of `Reading` that the command line has, too.

    Args:
        default: Its default.
        kind: How the command line takes it: one word, several, or a switch.
        sentence: What it means.
        kept: Whether a policy keeps it, and reads later logs with it.
    """
    return field(default=default, metadata={"cli": kind, "help": sentence, "kept": kept})


# ruff: noqa: RUF009  (a field is described by a call)
@dataclass(frozen=True)
class Reading:
    """How a log is read from a source; checked when it is made.

    Attributes:
        columns: Role → the name of its column, or a list of names; None where it is not recorded.
        missing: What to do about missing values: "error" refuses them, except in features, which
            stay NaN; "drop-episodes" leaves out the episodes that have one, features included;
            "median" fills numbers of the state by the median of the training log; "flag" does so
            too and adds a feature that is 1 there ("lactate missing"), and gives labels one more,
            "missing"; "zero" makes a missing reward 0, where outcomes are recorded at the end
            alone. Or a mapping from columns or patterns to these words, as in {"*": "median",
            "ward": "flag", "score": "zero"}. Gaps are filled when a learner takes the log, and its
            policy fills all later rows by the same numbers; `dprl.Rules` gives what is flagged a
            side of its own. Default "error".
        partitions: Whether folders named NAME=VALUE in the paths become columns, as text like that
            of a CSV file. Default False: folder names mean nothing.
        decimal: The mark before the fraction of a number in CSV files, "." or ",". Default ".".
        encoding: How the letters of CSV files are written: "utf-8", "latin-1", "utf-16", "cp1252"
            (Windows), or another encoding of text that Python has. Default "utf-8".
        dates: How dates are written as text: "iso" (2024-02-01), "day-first" (1.2.2024),
            "month-first" (2/1/2024), or a format of strptime ("%d %b %Y"). ISO dates are always
            understood. Dates in the state become days since 1970-01-01. Default "iso".
        labels: What is done to the labels of states, actions and categories: "trim" (no spaces
            around them), "casefold" (small letters) or "trim,casefold"; a policy does the same.
            Default "": nothing.
        categorical: Features whose values are labels though they look like numbers (codes of wards,
            say). Default None: features of text or truth values are categories, others numbers.
        action_bins: Cuts doses into ranges: a number of ranges with about as many rows each, or the
            edges between them (a dose on an edge is in the lower range); a mapping from action
            columns to either, where there are several. The edges are in
            `log.columns["action_bins"]`, which later logs can be given, and a policy keeps them.
            Default None: every value is an action of its own.
        also: Further columns that are not in the state, by name or pattern. They are compared
            between those who took a suggestion and others, and can be given to `evaluate(by=...)`;
            no learner sees them. Default None: all columns without a role if there are at most 30,
            without identifiers and free text (`log.also.words` says which). (): none.
        events: Words in the column of endings that name a competing event (death in another arm of
            the pathway, say). Such an episode ended, with what its rewards say; it was not cut.
            Default None: there are none.
        follow_up: For how long every episode is followed from its first row on: a number of steps,
            or text such as "10 steps", "72 units" (of a time column of numbers) or "30 days" (of
            dates). Later rows are left out, returns are of what remains, and an episode that was
            cut later is not cut any more. Default None: to its end.
        outcome: What the rewards are, in words: "CD4 count at week 20". Default "": the name of
            their column.
        unit: The unit of the outcome: "cells/mm³". Default "": none is shown.
        better: Which way is better: "higher" or "lower". With "lower", rewards change their sign
            once, when the log is made, so that everything is computed with "larger is better"
            (`log.reward` too); whatever is shown is in the direction and the unit of the table,
            and so are ranges that are given. Default "": higher, which is said; a column whose name
            sounds like a harm (deaths, costs, length of stay) is refused until this is given.
        called: What people call columns and values, where something is shown: column → its name, or
            → value → name, as in {"arm": {0: "ZDV alone"}, "cd40": "CD4 count at the start"}; the
            column of the values has its own name under "". Or words: "arm:0=ZDV alone". Nothing is
            computed with it, and files for machines hold what the table holds. Default None.
        design: "randomised" where actions were given by lot, as in a trial. Without chances on
            record, the shares of the log (or of each stratum) are the chances. Default "": nothing
            is said.
        versus: The arm that the others are compared with. Default "": the one whose name says that
            it is a control, else usual practice.
        chances: The chances of all arms of a trial: arm → number, arm → column that holds it, or,
            with `strata`, arm → stratum → number. Or words: "drug=0.25". Default None: as
            `propensity` or `design` say.
        strata: Column within which the chances are the same. Default "": none.
        states: The state labels that may occur; any other is an error. Default None: all that
            occur.
        actions: The action labels that may occur; any other is an error. Default None: all that
            occur.
        reward_range: Smallest and largest possible reward; a reward outside is an error. Default
            None: any finite reward.
        survival: A time to event in place of a reward: the columns of the time and of the status
            (1, true or terminal: the event; 0, false or censored: not seen any more; others are
            named in `events`), and, where it is not 1, the status that is the event:
            ``("days", "status", "relapse")``. With several rows an episode the time is counted from
            each decision. Who was censored is completed (`dprl.logs.survival`), never counted as
            event-free. Default None: the reward is a column.
        horizon: The time to which a time to event is asked about. Default None: needed with
            `survival`.
        guard: Columns of harms, such as bleeding, of which less is better: what a change does to
            each is told beside what it gains, and `dprl.study` issues none that may do harm there.
            Default None: none.
        costs: What actions cost, in the unit of the outcome: action → cost (others cost nothing),
            words such as "drug=12.5", or a column. The reward is less by it (more, where less is
            better). Default None: nothing.
        target: What is asked of a time to event: "event-free" at the horizon (of any event), "time"
            without event until then, or "risk" of the event by then, others competing. Default "":
            "event-free".
    """

    columns: Mapping[str, Any]
    missing: Missing = _option(
        "error",
        "words",
        "What to do about missing values: error (default), drop-episodes, median (of the "
        "training log), flag (the same, and a feature that says where; of labels, a label "
        "missing), or zero (of the reward). COLUMN=WORD for one column; repeat it for "
        "several. A policy keeps it.",
        kept=True,
    )
    partitions: bool = _option(False, "switch", "Read folders named NAME=VALUE as columns too.")
    decimal: str = _option(
        ".", "word", "Mark before the fraction of a number in CSV files: . (default) or ,"
    )
    encoding: str = _option(
        "utf-8",
        "word",
        "How the letters of CSV files are written: utf-8 (default), cp1252 (Windows), "
        "latin-1, utf-16 or another.",
    )
    dates: str = _option(
        "iso",
        "word",
        "How dates are written: iso (default), day-first, month-first, or a format such as "
        "'%d %b %Y'. A policy keeps it.",
        kept=True,
    )
    labels: str = _option(
        "",
        "word",
        "What is done to labels: trim (no spaces around them), casefold (small letters), or "
        "trim,casefold. A policy keeps it.",
        kept=True,
    )
    categorical: Sequence[str] | None = _option(
        None,
        "words",
        "Feature whose values are labels though they look like numbers; repeat it for "
        "several. Text is a category without it.",
        kept=True,
    )
    action_bins: Any = _option(
        None,
        "words",
        "Cut doses into ranges: a number of ranges with about as many rows each (4), or the "
        "edges between them (0,0.1,0.3; a single edge: '5,'); COLUMN=4 where several columns "
        "are the action. A policy keeps the edges.",
        kept=True,
    )
    also: str | Sequence[str] | None = _option(
        None,
        "words",
        "Column that is not in the state, to compare between those who took a suggestion and "
        "others; repeat it, or give a pattern. By default all that are left, if they are few; "
        "none for none.",
    )
    events: Sequence[str] | None = _option(
        None,
        "words",
        "Word in the column of endings that names a competing event; repeat it for several. "
        "Such an episode ended; it was not cut.",
        kept=True,
    )
    follow_up: Any = _option(
        None,
        "word",
        "Follow every episode for this long from its first row: a number of steps, or text "
        "such as '72 units' (of --time) or '30 days'. Returns are of that time alone, and "
        "what was cut later is not cut any more.",
        kept=True,
    )
    outcome: str = _option(
        "",
        "word",
        "What the rewards are, in words, such as 'CD4 count at week 20'. A policy keeps it.",
        kept=True,
    )
    unit: str = _option("", "word", "The unit of the outcome. A policy keeps it.", kept=True)
    better: str = _option(
        "",
        "word",
        "Which outcome is the better one: higher (assumed where nobody says it) or lower. "
        "Everything that is shown is in the direction of the table. A policy keeps it.",
        kept=True,
    )
    called: Any = _option(
        None,
        "words",
        "What people call a column, 'cd40=CD4 count at the start', or a value, 'arm:0=ZDV alone'; "
        "repeat it. Only what is shown; [labels] of dprl.toml says it too. A policy keeps it.",
        kept=True,
    )
    design: str = _option(
        "",
        "word",
        "randomised where actions were given by lot, as in a trial; without chances on record "
        "the shares of the log are the chances.",
    )
    versus: str = _option(
        "",
        "word",
        "The arm that the others are compared with. By default the one whose name says that "
        "it is a control, else usual practice.",
    )
    chances: Any = _option(
        None,
        "words",
        "Chance of an arm of a trial, drug=0.25, or the column that holds it, drug=p_drug; "
        "repeat it for every arm.",
    )
    strata: str = _option("", "word", "Column within which the chances of a trial are the same.")
    states: Sequence[Label] | None = None
    actions: Sequence[Label] | None = None
    reward_range: tuple[float, float] | None = None
    survival: Any = _option(
        None,
        "word",
        "A time to event in place of a reward: the columns of the time and of the status, "
        "days,status (1 is the event, 0 censored; others are --events), or days,status,relapse "
        "where the event is called so. A policy keeps it.",
        kept=True,
    )
    horizon: Any = _option(
        None, "word", "The time to which a time to event is asked about. A policy keeps it.",
        kept=True,
    )  # fmt: skip
    target: str = _option(
        "",
        "word",
        "What is asked of a time to event: event-free at the horizon (default), time without "
        "event until then, or risk of the event by then. A policy keeps it.",
        kept=True,
    )

    guard: Sequence[str] | None = _option(
        None,
        "words",
        "Column of a harm, of which less is better: what a change does to it is told, and a study "
        "issues none that may do harm there; repeat it for several. A policy keeps it.",
        kept=True,
    )
    costs: Any = _option(
        None,
        "words",
        "What an action costs in the unit of the outcome, drug=12.5, or the column that holds it; "
        "repeat it for several actions. A policy keeps it.",
        kept=True,
    )

    def __post_init__(self) -> None:
        from dprl.logs.checking.rows import check_events  # the command line has these fields too,
        from dprl.logs.encoding.gaps import missing_words  # and shows its help without arrays
        from dprl.logs.outcome import refuse_harm

        object.__setattr__(self, "categorical", tuple(self.categorical or ()))
        object.__setattr__(self, "events", check_events(self.events))
        if isinstance(self.guard, str):
            object.__setattr__(self, "guard", (self.guard,))
        if isinstance(self.missing, str):
            missing_words(self.missing, {})  # refused before a file is opened
        self._check_reward()
        reward = self.columns.get("reward")  # the signs of a sum say what is a harm
        if isinstance(reward, str) and not re.search(r"[*+(]| - ", reward):
            refuse_harm(self.declared_outcome, reward)
        _ = self.text, self.window, self.declared_design

    def _check_reward(self) -> None:
        """Put a time and its status where a reward and an ending stand; refuse both, or neither."""
        from dprl._core.words import api, option, worded
        from dprl.errors import ParameterError

        asked = self.time_to_event
        if asked is None:
            if self.columns.get("reward", "") is None:
                raise ParameterError(
                    worded("{reward=} is missing: what came of each decision."),
                    do=worded(
                        "Name its column, or those of a time and a status "
                        "({survival='days,status'})."
                    ),
                    argument="reward",
                )  # fmt: skip
            return
        own = {"reward": asked.duration, "ended": asked.status}
        beside = {"follow_up": self.follow_up, "reward_range": self.reward_range}
        if self.costs:
            raise ParameterError(
                worded("{named} are taken off a reward, and a time to event has none.",
                       named=option("costs", self.costs)),
                do=worded("Weigh what is spent against it afterwards: {budget}.",
                          budget=api("dprl.evaluation.budget")),
                argument="costs",
            )  # fmt: skip
        beside |= {k: self.columns.get(k) for k in own if self.columns.get(k) != own[k]}
        for name, value in beside.items():
            if value is not None:
                raise ParameterError(
                    worded("{named} and a time to event exclude each other.",
                           named=option(name, value)),
                    do=worded(
                        "The time, its status and {horizon=} say all there is: leave it out."),
                    argument=name,
                )  # fmt: skip
        object.__setattr__(self, "columns", {**self.columns, **own})

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Reading:
        """The reading that the arguments of a call ask for; other arguments are left alone."""
        own = {f.name: given[f.name] for f in fields(cls) if f.name in given}
        return cls(**{**own, "columns": by_role(given)})

    @functools.cached_property
    def declared_outcome(self) -> Outcome:
        """What the rewards are, and which way is better."""
        from dprl.logs.outcome import Outcome

        said = Outcome(self.outcome or "", self.unit or "", cast("Any", self.better or ""))
        return said if self.time_to_event is None else self.time_to_event.outcome(said)

    @functools.cached_property
    def time_to_event(self) -> Survival | None:
        """The time to event that stands in place of a reward; None without one."""
        if not (self.survival or self.horizon or self.target):
            return None
        from dprl.logs.survival import Survival

        return Survival.declared(self.survival, self.horizon, self.target)

    @functools.cached_property
    def declared_design(self) -> Design:
        """How actions were given, and what arms are compared with."""
        from dprl.logs.design import Design

        return Design(cast("Any", self.design or ""), str(self.versus or ""))

    @functools.cached_property
    def text(self) -> Text:
        """How the text of files is written."""
        from dprl.logs.reading.text import Text

        return Text(self.decimal, self.encoding, self.dates, self.labels)

    @functools.cached_property
    def window(self) -> Window | None:
        """For how long every episode is followed; None for to its end."""
        from dprl.logs.follow_up import window_of

        return None if self.follow_up is None else window_of(self.follow_up)

    @property
    def declared(self) -> dict[str, Sequence[Label]]:
        """The roles "state" and "action" → the labels that may occur, where that was declared."""
        both = {"state": self.states, "action": self.actions}
        return {part: labels for part, labels in both.items() if labels is not None}

    def named(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """The names of a log's columns, with what else was declared that later logs need."""
        from dprl.logs.called import KEY, called_of, check_apart
        from dprl.logs.encoding.gaps import missing_words

        words = missing_words(self.missing, names)
        named: dict[str, Any] = {"events": list(self.events)} if self.events else {}
        named |= self.declared_outcome.declared
        named |= {KEY: said} if (said := called_of(self.called)) else {}
        check_apart(said, names.get("action"))
        named |= {} if self.time_to_event is None else self.time_to_event.kept
        return {**names, **named, **({"missing": words} if words else {})}


OPTIONS = {f.name: f for f in fields(Reading) if f.name != "columns"}
"""The fields of `Reading` beside the columns, by name."""


def _entries(section: str) -> dict[str, str]:
    """Name → what a section of a docstring says of it, with its name and its indentation."""
    matches = re.finditer(r"^ {8}\**(\w+): .*\n?(?: {12}.*\n?)*", section, re.MULTILINE)
    return {match[1]: match[0].rstrip("\n") for match in matches}


# -- told once -----------------------------------------------------------------------------------

WIDTH = 100


def documented(function: F, *, arrays: bool = False) -> F:
    """Put what roles and options mean into the help of the function below, which takes them.

    What its own docstring says of an argument stays; arguments are in the order of the signature.

    Args:
        function: The function.
        arrays: Whether it takes values rather than the names of columns. Default False.
    """
    doc, texts = function.__doc__, _entries(Reading.__doc__ or "")
    if doc is None:  # python -OO
        return takes_roles(function)
    for role in ROLES:
        words = f"{role.name}: {role.values if arrays else role.column}"
        texts[role.name] = textwrap.fill(
            words, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    head, title, rest = doc.partition("    Args:\n")
    own, gap, tail = rest.partition("\n\n")
    texts |= _entries(own)
    lines = [texts[name] for name in inspect.signature(function).parameters]
    function.__doc__ = head + title + "\n".join(lines) + gap + tail
    return takes_roles(function)


def documented_arrays(function: F) -> F:
    """The same for a function that takes the values of columns, not their names."""
    return documented(function, arrays=True)
