"""Time to event: a time and a status become the outcome of a log, whoever was censored.

Most tables of medicine have a time and a status: days until an event or until somebody stopped
looking, and which of the two it was. With a horizon τ that was fixed beforehand the outcome is

    event-free   1{T > τ}              time   min(T, τ)              risk   1{T <= τ, by this cause}

where T is counted from the first decision of an episode. Of whoever was censored before τ it is not
known, and never taken for event-free. It is completed (`dprl.logs.unseen`): with S the chance to
have no event yet and G that to be followed still, both given state and action,

    Y* = Y 1{seen} / G(U-) + ∫ Q(u) / G(u) dM(u),     U = min(time, τ),     Q(u) = E[Y | T > u],

where M is the martingale of censoring: dM(u) = 1{censored at u} - 1{followed until u} dΛ(u). Its
mean, given state and action, is that of Y if G or Q is right (Robins & Rotnitzky 1992). Where
everybody fares alike Y* is Y, so nobody is weighted to 10.3 of 10.

**Hazards** are λ(u | x, a) = r(u, x, a) λ_a(u): how much likelier than others of the same action
somebody is (r, from cross-fitted models of eight parts of the time) times what makes the sum of all
right at every single time. So without features it is Kaplan-Meier by action, ties and all: an event
comes before who was censored at the same time.

**Several decisions.** Every row tells the time from its own decision. Hazards are those of the row
that is in force. A decision is met only by who is followed until then, so its own completed return
Y*_t starts there: Y*_t = (what its row adds) + Y*_{t+1} / G(from t to t + 1). Learners of returns
read it (`cut="ipcw"`); judges read the whole Y*_0, which stands on the last row.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints, doubles
from dprl._core.checks import check_choice, wrong
from dprl._core.table import Table, many
from dprl._core.words import either, option, worded
from dprl.errors import CutWarning, LogError, ParameterError
from dprl.logs.censoring import SMALL, folds_of, outside
from dprl.logs.checking.findings import Finding
from dprl.logs.log import CUT, EVENT, TERMINAL, Log
from dprl.logs.outcome import Outcome
from dprl.logs.source import unseen_words
from dprl.logs.unseen import CELL, MANY, Inputs, by_action, cross_fitted

TARGETS: Final = ("event-free", "time", "risk")
"""What can be asked of a time to event."""
KEPT: Final = ("survival", "horizon", "target")
"""What is declared, as arguments are called and as columns of a log keep it."""
PARTS: Final = 8
"""Parts of the time that models of hazards tell apart."""
TIMES: Final = 1_000
"""Most different times; where there are more, times are rounded up to these."""
FEW: Final = 0.01
"""With a larger share of outcomes whose chance to be seen was below `SMALL`, a warning is given."""
LEAST: Final = 0.02
"""The smallest chance to be followed that a weight is made of."""
UNITS: Final = ("days", "weeks", "months", "years", "hours", "minutes")
"""Names of columns that say the unit of their times."""
SEEN_NOT: Final = (
    "0", "false", "no", "none", "cut", "truncated", "censored", "censor", "cens", "alive", "living",
    "lost", "lost to follow-up", "withdrawn", "event-free", "no event", "zensiert", "lebt",
)  # fmt: skip
"""What tables call who was censored, in small letters."""
CAME: Final = ("1", "true", "yes", "event", "terminal", "terminated")
"""What tables call the event where nobody names it."""
FATAL: Final = ("event", "dead", "death", "died", "deceased", "terminal", "terminated")
"""What is never censored, whatever else is the event."""


@dataclass(frozen=True)
class Survival:
    """A time to event, as it was declared.

    Attributes:
        duration: The column of times.
        status: The column that says how they ended.
        cause: The status that is the event; "" where it is 1, true or terminal.
        horizon: The time that is asked about.
        target: "event-free", "time" or "risk".
    """

    duration: str
    status: str
    horizon: float
    target: str = "event-free"
    cause: str = ""

    @classmethod
    def declared(cls, survival: Any, horizon: Any, target: Any) -> Survival | None:
        """What the arguments of a call declare; None where they declare nothing."""
        if survival is None or survival == "":
            for name, value in (("horizon", horizon), ("target", target)):
                if value not in (None, ""):
                    raise ParameterError(
                        worded("{given} says what is asked of a time to event, and none is named.",
                               given=option(name, value)),
                        do=worded("Name its columns: {survival}.",
                                  survival=option("survival", "days,status")),
                        argument=name,
                    )  # fmt: skip
            return None
        names = survival.split(",") if isinstance(survival, str) else survival
        good = isinstance(names, Sequence) and all(isinstance(one, str | int) for one in names)
        names = [str(one).strip() for one in names] if good else []
        if len(names) not in (2, 3) or not all(names):
            need = "the columns of the time and of the status, and, where it is not 1, the event"
            raise wrong("survival", need, survival, "For example 'days,status' or "
                        "'days,status,relapse'.")  # fmt: skip
        try:
            tau = float(horizon)
        except (TypeError, ValueError):
            tau = np.nan
        if not (0 < tau < np.inf) or isinstance(horizon, bool):
            raise wrong("horizon", "the time that is asked about, above 0", horizon,
                        "Fix it before looking at results.")  # fmt: skip
        target = target or "event-free"
        check_choice("target", target, TARGETS)
        return cls(names[0], names[1], tau, target, *names[2:])

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Survival | None:
        """The time to event that is declared with the columns of a log."""
        return cls.declared(*(columns.get(name) for name in KEPT))

    @property
    def kept(self) -> dict[str, Any]:
        """What columns keep of it."""
        names = [self.duration, self.status, *([self.cause] if self.cause else [])]
        return {"survival": names, "horizon": self.horizon, "target": self.target}

    @property
    def when(self) -> str:
        """The horizon with its unit: "730 days"."""
        unit = self.duration if self.duration.lower() in UNITS else f"({self.duration})"
        return f"{self.horizon:g} {unit}"

    def meant(self, labels: Sequence[Any], rows: Sequence[int], events: Sequence[str]) -> list[Any]:
        """The labels of the status with 1 for the event and 0 for censored; else a LogError.

        Args:
            labels: The labels as the source writes them.
            rows: On how many rows each stands.
            events: The competing events that are declared.
        """
        texts = [str(label).strip() for label in labels]
        words, others = [text.lower() for text in texts], {name.lower() for name in events}
        if self.cause and self.cause not in texts:
            raise LogError(
                f"{self.status!r} is {self.cause!r} nowhere.",
                f"it holds {', '.join(map(repr, labels[:8]))}",
                "Name the event as the column does.",
            )
        alone = [word for text, word in zip(texts, words, strict=True) if text != self.cause]
        pair = bool(self.cause) and len(alone) == 1 and alone[0] not in (*FATAL, *others)

        def one(label: Any, text: str, word: str) -> Any:
            if text == self.cause or (not self.cause and word in CAME):
                return 1
            if pair or word in SEEN_NOT:
                return None if word in others else 0
            return label if word in others and word not in CAME else None

        result = [one(*each) for each in zip(labels, texts, words, strict=True)]
        unsaid = not self.cause and others & {*words} and not {*words} & {*SEEN_NOT}
        doubt = None in result or (unsaid and "1" in words)  # 1 and 2 as R writes them, or causes
        if doubt:
            each = ", ".join(
                f"{label!r} on {many(int(n), 'row')}"
                for label, n in list(zip(labels, rows, strict=True))[:8]
            )
            likely = [t for t, word in zip(texts, words, strict=True) if word in FATAL]
            likely += [t for t, word in zip(texts, words, strict=True) if word not in SEEN_NOT][
                ::-1
            ]
            likely = ["1"] * ("1" in texts and bool({*words} & {*SEEN_NOT})) + likely
            name = self.cause or (likely or texts)[0]
            raise LogError(
                f"{self.status!r} does not say which is the event and who was censored.",
                each,
                worded(
                    "Name the event, for example {choice}. Of two labels the other is then the "
                    "censored. Of more, write censored (or 0) for who was censored, and a word of "
                    "its own for any other event, which {events} names.",
                    choice=either(
                        f"survival=({self.duration!r}, {self.status!r}, {name!r})",
                        f"--survival {self.duration},{self.status},{name}",
                    ),
                    events=option("events"),
                ),
            )
        return result

    def outcome(self, given: Outcome) -> Outcome:
        """What the log's rewards are, and which way is better, where nobody said otherwise."""
        what = {
            "event-free": f"share event-free at {self.when}",
            "time": f"time without event, up to {self.when}",
            "risk": f"risk of {self.cause or 'the event'} by {self.when}",
        }[self.target]
        timed = self.target == "time" and self.duration.lower() in UNITS
        return Outcome(
            given.name or what,
            given.unit or (self.duration.lower() if timed else ""),
            given.better or ("lower" if self.target == "risk" else "higher"),
        )

    @property
    def possible(self) -> tuple[float, float]:
        """The smallest and the largest outcome there can be, as it is shown."""
        return 0.0, self.horizon if self.target == "time" else 1.0


def possible_values(columns: Mapping[str, Any]) -> tuple[float, float] | None:
    """The range of outcomes, as it is computed with; None where a log has no time to event."""
    asked = Survival.of(columns)
    if asked is None:
        return None
    low, high = Outcome.of(columns).ends(*asked.possible)
    return low, high


# --- The log whose rewards are such outcomes


def survived(log: Log, asked: Survival) -> Log:
    """The log whose rewards are the declared outcome; of the censored it is completed.

    Args:
        log: A log whose rewards are times, and whose endings are statuses.
        asked: What was declared.
    """
    t = Times.of(log, asked)
    Y, n = t.outcomes(asked), int(t.censored.sum())
    alone = log.n_steps == log.n_episodes
    more = {**log.more, "duration": t.duration, "status": t.status[t.episode].astype(float)}
    ended = np.where((log.ended == CUT) | (t.times > asked.horizon), TERMINAL, log.ended)
    last = log.starts[1:] - 1
    reward = np.zeros(log.n_steps)
    reward[last] = Y
    columns: dict[str, Any] = dict(log.columns)
    if n:
        _refuse_unfollowed(log, t, asked)
        returns = _completed(log, t, asked, Y)
        reward[last] = returns[log.starts[:-1]]
        columns["unseen"] = {"rows": n}
        if not alone:
            more["completed"] = log.outcome.shown(returns)
            ended = np.where(t.censored, CUT, ended)
    return replace(
        log, reward=log.outcome.shown(reward), ended=ended.astype(np.uint8), more=more,
        columns=columns,
    )  # fmt: skip


@dataclass(frozen=True)
class Times:
    """The times of a log's rows and episodes.

    Attributes:
        duration: (N,), the time from each decision to the end of following.
        start: (N,), when each decision was made, from the first of its episode.
        until: (N,), when the next was made; infinity on last rows.
        episode: (N,), the episode of each row.
        times: (E,), the time from the first decision on.
        status: (E,), 0 censored, 1 the event, 2 and more a competing one.
        censored: (E,), who was censored before the horizon.
        horizon: The horizon.
    """

    duration: Floats
    start: Floats
    until: Floats
    episode: Ints
    times: Floats
    status: Ints
    censored: Bools
    horizon: float

    @classmethod
    def of(cls, log: Log, asked: Survival) -> Times:
        """The times of a log as it was read, or as `survived` made it."""
        first, episode = log.starts[:-1], np.repeat(np.arange(log.n_episodes), log.lengths)
        if "duration" in log.more:
            duration, status = log.more["duration"], log.more["status"][first].astype(np.int64)
        else:
            duration = np.asarray(log.outcome.shown(log.reward), np.float64)
            codes = log.ended.astype(np.int64)
            status = np.where(codes >= EVENT, codes - EVENT + 2, (codes == TERMINAL).astype(int))
            _check(log, duration, asked)
        times = duration[first]
        start = times[episode] - duration
        until = np.append(start[1:], np.inf)
        until[log.starts[1:] - 1] = np.inf
        censored = (status == 0) & (times < asked.horizon)
        return cls(duration, start, until, episode, times, status, censored, asked.horizon)

    def outcomes(self, asked: Survival) -> Floats:
        """float64 (E,), the outcome of each episode; of the censored it means nothing."""
        if asked.target == "time":
            return np.asarray(np.minimum(self.times, asked.horizon))
        came = (self.times <= asked.horizon) & (self.status > 0)
        if asked.target == "risk":
            return doubles(came & (self.status == 1))
        return doubles(~came)


def _check(log: Log, duration: Floats, asked: Survival) -> None:
    """Refuse times that are none."""
    if (duration < 0).any():
        row = int(np.argmin(duration))
        raise LogError(
            f"{asked.duration!r} is below 0 on {many(int((duration < 0).sum()), 'row')}.",
            f"{duration[row]:g}",
            "A time to event is counted from its decision on.",
        )
    inside = np.ones(log.n_steps, bool)
    inside[log.starts[:-1]] = False
    rising = inside & (np.diff(duration, prepend=0.0) >= 0)
    if rising.any():
        row = int(np.argmax(rising))
        episode = int(np.searchsorted(log.starts, row, "right")) - 1
        raise LogError(
            f"{asked.duration!r} does not fall from one decision of an episode to the next on "
            f"{many(int(rising.sum()), 'row')}.",
            f"episode {log.episodes[episode]!r}: {duration[row - 1]:g}, then {duration[row]:g}",
            "With several rows an episode, every row holds the time from its own decision on.",
        )


def _refuse_unfollowed(log: Log, t: Times, asked: Survival) -> None:
    """Refuse a horizon to which (hardly) anybody with an action, or in a state, was followed."""
    first = log.starts[:-1]
    arm, labels = log.action[first].astype(np.int64), log.features is None
    state = log.codes()[first].astype(np.int64) if labels else arm
    for cell in (arm, state * log.n_actions + arm) if labels else (arm,):
        order = np.argsort(cell, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1):
            gone, T = t.censored[own], t.times[own]
            if len(own) < CELL or not gone.any():
                continue
            at, lost = np.unique(T[gone], return_counts=True)
            ended = np.sort(T[t.status[own] > 0])  # an event comes before who was censored then
            there = len(own) - np.searchsorted(np.sort(T), at, "left")
            there -= np.searchsorted(ended, at, "right") - np.searchsorted(ended, at, "left")
            chance = float(np.prod(1 - lost / there))
            if chance >= SMALL:
                continue
            whose = log.actions[arm[own[0]]]
            where = "" if cell is arm else f" in state {log.states[state[own[0]]]!r}"
            how = f"the chance to be followed is {chance:.1%}" if chance else "nobody was"
            who = f"{many(len(own), 'episode')} with {whose!r}{where}"
            raise LogError(
                f"the horizon, {asked.when}, lies beyond the follow-up of {who}: "
                f"{int(gone.sum()):,} were censored before, and {how} "
                + ("until then." if chance else f"followed beyond {T.max():g}."),
                f"episode {log.episodes[int(own[np.argmax(gone)])]!r}, censored at "
                f"{T[np.argmax(gone)]:g}",
                worded(
                    "Nothing tells what came then: choose a shorter {horizon}, or leave them out "
                    "of the table.",
                    horizon=option("horizon"),
                ),
            )


# --- Completing


@dataclass(frozen=True)
class _Grid:
    """The different times, and where rows and episodes stand among them.

    Attributes:
        times: (M,), rising.
        part: (M,), the part of the time in which each lies, from 0.
        end: (E,), the place of each episode's last time; M for who was seen to the horizon.
        low: (N,), the first place at which a row is in force.
        high: (N,), the first place at which it is not any more; where somebody ended, one more.
    """

    times: Floats
    part: Ints
    end: Ints
    low: Ints
    high: Ints

    @classmethod
    def of(cls, log: Log, t: Times) -> _Grid:
        """The grid of a log's times up to the horizon."""
        U = np.minimum(t.times, t.horizon)
        ends = t.censored | ((t.status > 0) & (t.times <= t.horizon))
        times = np.unique(U[ends])
        if len(times) > TIMES:
            places = np.quantile(np.sort(U[ends]), np.linspace(0, 1, TIMES), method="higher")
            times = np.unique(places)
        M = len(times)
        end = np.where(ends, np.searchsorted(times, U, "left"), M)
        low = np.searchsorted(times, t.start, "right")
        low[log.starts[:-1]] = 0
        low = np.minimum(low, end[t.episode])
        high = np.append(low[1:], M)
        last = log.starts[1:] - 1
        high[last] = np.minimum(end + 1, M)
        edges = np.unique(np.quantile(end[ends], np.linspace(0, 1, PARTS + 1)[1:-1]).astype(int))
        part = np.unique(np.searchsorted(edges, np.arange(M), "right"), return_inverse=True)[1]
        return cls(times, part.astype(np.int64), end, low, high)


def _completed(log: Log, t: Times, asked: Survival, Y: Floats) -> Floats:
    """float64 (N,): the completed return of every row."""
    if len(log.groups) < 2:
        raise LogError(
            "who was censored is completed from other groups, and there is 1.",
            do="Read more groups (or episodes).",
        )
    grid, fold = _Grid.of(log, t), folds_of(log)
    last = log.starts[1:] - 1
    came = (t.status > 0) & (t.times <= asked.horizon)
    one = came if asked.target != "risk" else came & (t.status == 1)
    causes = [cause for cause in (one, came & ~one) if cause.any() or cause is one]
    followed = grid.high.copy()  # events come first: who had one is not there to be censored then
    followed[last[came]] -= 1
    hazards = [_Hazard.of(log, t, grid, fold, t.censored, followed)]
    hazards += [_Hazard.of(log, t, grid, fold, which, grid.high) for which in causes]
    M = len(grid.times)
    add, left = np.zeros(log.n_steps), np.ones(log.n_steps)
    widths = np.diff(np.append(grid.times, asked.horizon))
    size, place = max(1, 2_000_000 // M), np.arange(M)
    for k in range(int(fold.max()) + 1):
        own = np.flatnonzero(fold == k)
        for rows in np.array_split(own, max(1, -(-len(own) // size))):
            C, *E = (hazard.at(rows, k) for hazard in hazards)
            Q = _expected(asked, grid, widths, E)
            cens = t.censored[t.episode[rows]] & (last[t.episode[rows]] == rows)
            risk = (place >= grid.low[rows][:, None]) & (place < followed[rows][:, None])
            G = np.maximum(np.cumprod(1 - np.where(risk, C, 0.0), axis=1), LEAST)
            before = np.column_stack([np.ones(len(rows)), G[:, :-1]])
            dM = -(1 - G / before)
            dM[cens, grid.end[t.episode[rows[cens]]]] += 1
            add[rows], left[rows] = (Q / G * dM).sum(axis=1), G[:, -1]
    result = add.copy()
    seen = ~t.censored
    small = int((left[last[seen]] < SMALL).sum())
    if small > FEW * seen.sum():
        warnings.warn(
            worded(
                "{small:,} of {seen:,} outcomes that were seen had a chance below {least:g} to be: "
                "single ones weigh much. A shorter {horizon} helps.",
                small=small, seen=int(seen.sum()), least=SMALL, horizon=option("horizon"),
            ),
            CutWarning, stacklevel=outside(),
        )  # fmt: skip
    result[last[seen]] += Y[seen] / left[last[seen]]
    for back in range(1, int(log.lengths.max())):
        rows = log.starts[1:][log.lengths > back] - 1 - back
        result[rows] += result[rows + 1] / left[rows]
    return result


def _expected(asked: Survival, grid: _Grid, widths: Floats, hazards: list[Floats]) -> Floats:
    """float64 (n, M): the mean outcome of who had no event until each time, that time included."""
    S = np.cumprod(1 - np.minimum(sum(hazards), 0.999), axis=1)
    if asked.target == "event-free":
        return np.asarray(S[:, -1:] / S)
    if asked.target == "time":
        ahead = np.cumsum((S * widths)[:, ::-1], axis=1)[:, ::-1]
        return np.asarray(grid.times + ahead / S)
    before = np.column_stack([np.ones(len(S)), S[:, :-1]])
    comes = before * hazards[0]
    later = np.cumsum(comes[:, ::-1], axis=1)[:, ::-1] - comes
    return np.asarray(later / S)


@dataclass(frozen=True)
class _Hazard:
    """The hazard of one kind of ending: a model's ratio times what is right for each action.

    Attributes:
        ratio: fold → (N, parts), how much likelier each row is in each part of the time.
        jump: fold → (A, M), the hazard of a ratio of 1, at each time.
        action: (N,), the actions of the rows.
        part: (M,), the part of each time.
    """

    ratio: list[Floats]
    jump: list[Floats]
    action: Any
    part: Ints

    def at(self, rows: Ints, fold: int) -> Floats:
        """float64 (n, M): the hazard of rows of a fold at every time."""
        whole = self.ratio[fold][rows][:, self.part] * self.jump[fold][self.action[rows]]
        return np.asarray(np.minimum(whole, 0.95))

    @classmethod
    def of(cls, log: Log, t: Times, grid: _Grid, fold: Ints, which: Bools, high: Ints) -> _Hazard:
        """The hazard of an ending that the episodes `which` had; rows are at risk until `high`."""
        last = log.starts[1:] - 1
        parts = int(grid.part.max()) + 1
        bounds = np.searchsorted(grid.part, np.arange(parts + 1))
        edges = np.append(grid.times, 0.0)[bounds - 1]  # after the last time of the part before
        edges[0], edges[-1] = 0.0, t.horizon
        stop = np.minimum(t.until, np.minimum(t.times, t.horizon)[t.episode])
        share = np.minimum(stop[:, None], edges[1:]) - np.maximum(t.start[:, None], edges[:-1])
        count = np.zeros((log.n_steps, parts))
        at = grid.end[which]
        count[last[which], grid.part[at]] = 1.0
        row, part = np.nonzero((share > 0) | (count > 0))
        shortest = 1e-3 * np.maximum(np.diff(edges), 1e-9 * t.horizon)
        time = np.maximum(share, shortest)[row, part]
        x = Inputs.of(log)
        every = np.repeat(np.arange(log.n_steps), parts)
        table = cross_fitted(
            "hazard", x.at(row).beside(part), count[row, part], fold[row],
            x.at(every).beside(np.tile(np.arange(parts), log.n_steps)), time,
        )  # fmt: skip
        ratios, jumps = [], []
        for k, predicted in enumerate(table):
            r = predicted.reshape(log.n_steps, parts)
            r = np.clip(r / max(float(r.mean()), 1e-12), 0.02, 50.0)
            ratios.append(r)
            jumps.append(cls._jumps(log, grid, r, which, high, bounds, fold != k))
        return cls(ratios, jumps, log.action, grid.part)

    @staticmethod
    def _jumps(
        log: Log, grid: _Grid, r: Floats, which: Bools, high: Ints, bounds: Ints, others: Bools
    ) -> Floats:
        """float64 (A, M): those who ended at each time, over the ratios of all still there."""
        last, a = log.starts[1:] - 1, log.action
        at_risk = np.zeros((log.n_actions, len(grid.times) + 1))
        for b in range(len(bounds) - 1):
            begin, stop = (np.clip(x, bounds[b], bounds[b + 1]) for x in (grid.low, high))
            on = others & (stop > begin)
            np.add.at(at_risk, (a[on], begin[on]), r[on, b])
            np.add.at(at_risk, (a[on], stop[on]), -r[on, b])
        n = np.cumsum(at_risk, axis=1)[:, :-1]
        ended = np.zeros(n.shape)
        mine = others[last] & which
        np.add.at(ended, (a[last[mine]], grid.end[mine]), 1.0)
        return np.divide(ended, n, out=np.zeros(n.shape), where=(ended > 0) & (n > 0))


# --- Curves by action, and what is known of the censored


def curves(log: Log, times: Sequence[float] | None = None) -> Table:
    """The table of `Log.curves`."""
    asked = Survival.of(log.columns)
    if asked is None:
        raise ParameterError(
            "this log has no time to event.",
            do=worded("Read it with {survival}.", survival=option("survival", "days,status")),
        )
    ask = np.linspace(0, asked.horizon, 13)[1:] if times is None else np.asarray(times, float)
    t, arm = Times.of(log, asked), log.action[log.starts[:-1]]
    rows: dict[str, list[Any]] = {
        name: [] for name in
        ("action", "time", "followed", "events", "censored", "share", "low", "high")
    }  # fmt: skip
    for a in np.unique(arm).tolist():
        own = arm == a
        T, status = t.times[own], t.status[own]
        share, se = curve_of(T, status, ask, asked.target == "risk")
        share = np.round(share, 14)  # a sum of parts that is 1 but for rounding has no log-log
        with np.errstate(divide="ignore", invalid="ignore"):
            width = 1.959964 * se / np.abs(share * np.log(share))
            ends = [share ** np.exp(sign * width) for sign in (1, -1)]
        low, high = (np.where(np.isfinite(end), end, share) for end in ends)
        rows["action"] += [log.actions[a]] * len(ask)
        rows["time"] += ask.tolist()
        rows["followed"] += [int((u < T).sum()) for u in ask]
        rows["events"] += [int(((u >= T) & (status > 0)).sum()) for u in ask]
        rows["censored"] += [int(((u >= T) & (status == 0)).sum()) for u in ask]
        for name, values in (("share", share), ("low", low), ("high", high)):
            rows[name] += values.tolist()
    return Table(rows, f"{log.outcome.name}")


def curve_of(T: Floats, status: Ints, ask: Floats, cause: bool = False) -> tuple[Floats, Floats]:
    """The Kaplan-Meier share without event, or the Aalen-Johansen risk of cause 1, and its error.

    Args:
        T: (n,), times.
        status: (n,), 0 censored, 1 the event, 2 and more another one.
        ask: (m,), the times that are asked about.
        cause: Whether the risk of cause 1 is asked for. Default False.
    """
    u = np.unique(T)
    n = len(T) - np.searchsorted(np.sort(T), u, "left")
    at = np.searchsorted(u, T)
    d = np.bincount(at, status > 0, len(u))
    S = np.cumprod(1 - d / n)
    place = np.searchsorted(u, ask, "right")

    def until(x: Floats) -> Floats:
        return np.concatenate(([0.0], np.cumsum(x)))[place]

    step = np.divide(d, n * (n - d), out=np.zeros(len(u)), where=n > d)
    if not cause:
        share = np.concatenate(([1.0], S))[place]
        return share, share * np.sqrt(until(step))
    one = np.bincount(at, status == 1, len(u))
    before = np.concatenate(([1.0], S[:-1]))
    F = np.cumsum(before * one / n)
    share = until(before * one / n)
    spread = share**2 * until(step) - 2 * share * until(F * step) + until(F**2 * step)
    spread += until(before**2 * one * (n - one) / n.astype(float) ** 3)
    spread -= 2 * (share * until(before * one / n**2) - until(F * before * one / n**2))
    return share, np.sqrt(np.maximum(spread, 0.0))


def survival_findings(log: Log) -> list[Finding]:
    """Who was censored before the horizon, by action, and whether everybody could reach it."""
    asked = Survival.of(log.columns)
    if asked is None or "duration" not in log.more:
        return []
    t, arm = Times.of(log, asked), log.action[log.starts[:-1]]
    n = np.bincount(arm, minlength=log.n_actions)
    gone = np.bincount(arm[t.censored], minlength=log.n_actions)
    known = curves(log, [asked.horizon])
    ends = ", ".join(
        f"{label} {share:.1%} ({low:.1%} to {high:.1%})"
        for label, share, low, high in zip(
            *(known[name] for name in ("action", "share", "low", "high")), strict=True
        )
    )
    how = "Aalen-Johansen" if asked.target == "risk" else "Kaplan-Meier"
    what = "risk" if asked.target == "risk" else "event-free"
    words = f"{what} at {asked.when} by {how}: {ends}."
    if gone.any():
        words = (
            f"{many(int(gone.sum()), 'episode')} of {log.n_episodes:,} "
            f"{'was' if gone.sum() == 1 else 'were'} censored before {asked.when}: "
            f"{by_action(log, gone, n)}. Then {words}"
        )
    large = gone.sum() > MANY * log.n_episodes
    found = [
        Finding("warning" if large else "note", "censored", words,
                do=unseen_words(log.columns))
    ]  # fmt: skip
    short = [
        f"{log.actions[a]} {t.times[arm == a].max():g}"
        for a in np.flatnonzero(n)
        if t.times[arm == a].max() < asked.horizon and (t.status[arm == a] == 0).any()
    ]
    if short:
        found.append(
            Finding(
                "warning", "beyond_follow_up",
                f"the horizon, {asked.when}, lies beyond the last time at which anybody was "
                f"followed with {', '.join(short[:8])}.",
                do=worded("Nothing tells what came then: choose a shorter {horizon}.",
                          horizon=option("horizon")),
            )
        )  # fmt: skip
    return found
