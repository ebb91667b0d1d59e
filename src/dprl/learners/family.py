r"""Many candidate policies from one log, and a choice between them by halves (ours).

No learner is best everywhere. Where people are mostly right, pessimistic value iteration and even
*always the usual action* beat the iteration of `dprl.planning.sure_iteration`; where they are wrong
at a few doors, both are far below practice. So all of them are candidates. `MEMBERS` has those that
always compete, in kinds:

    sure ε            the iteration from usual practice, for every ε of `DOUBTS`
    lcb c             `dprl.baselines.LCB`, c = .05, .1, .2, .5
    mode              always the usual action (`dprl.baselines.Mode`)
    mode, sure ε      the iteration from `mode`, ε = .35, .16, .05, .01

and deferring everywhere. Learners of your own can compete too, each as a kind by itself; a policy
that mixes actions enters as the action whose share it raises most in a state. All are treated
alike: only eligible pairs are suggested, elsewhere a member defers.

**Judged by halves.** The groups are divided in halves, `splits` times; every member learns on one
half and is judged on the other, both ways:

    t(m)    mean of (gain by the half that chose - gain by the other half) / se of the chooser
    H(m)    mean gain in the model of the other half
    H_κ(m)  the same, suggestions mixed with κ visits' worth of practice (`PlanModel.brings`)

t is how many standard errors an estimate of this member is too high on logs like this one. (A half
must choose as daringly as the whole log, so it counts each trajectory twice where it asks how many
stand behind a pair, and half of `n_min` is enough.)

**The choice** is the largest H_κ(m) - se(m)/2, with the standard error on the whole log: with few
cases a member must be better by something to be preferred.

    with a promise     among the members whose bound is above 0
    without            among those whose own lower end at level 1 - `EASIER` risk is above 0, which
                       ignores that they were chosen

**The bound** begins with the estimate on the whole log less what such estimates are too high on
halves, and comes half-way down to what the other halves say where that is less:

    paid(m)  = estimate - max(t(m), 0) · se
    bound(m) = min( paid(m), (paid(m) + H(m)) / 2 ) - t_{1 - risk/K, df} · se_g

(H is cross-fitted and of policies that were learned from half as much, so mostly too low.) K kinds
share the level, since the choice is between them: four, and one for every learner of your own.

se_g has groups in it: se_g² = se² + max(0, G/(G - 1) ∑_g (∑_{i in g} IF_i)² - ∑_i IF_i²), IF_i what
a visit i adds to the estimate to first order. Episodes of one patient are one group, not many.
A member that no other half could judge has no bound. Large-sample, and measured, not proved
(`dprl reproduce confident`).

**What has happened elsewhere only.** A treatment that harms one in seventy has often not done so in
one of several states, and there its mean is too high and its spread too small. So of every action
the size D(a) of its rare losses is learned from the whole log (`rare_losses`), and with

    one = max_s w(s) (1 - b(a|s)) √max(0, D(a)²/m(s,a)² - e(s,a))

se_g² grows by one², as if one more loss had been met, and (1 + 2z²)/6 · one is taken off, z the
normal quantile at 1 - risk: the Cornish-Fisher term of a mean whose distribution leans to one side
(Johnson, 1978). Of losses that k of m cases had this is close to the exact Poisson limit: k = 0 of
m gives 2.7/m, exact 3.0/m; 3 give 7.4, exact 7.8. Where D(a) is no more than what the pair's own
variance e(s,a) allows for nothing is taken off.

**What has not happened yet.** A catastrophe with chance q at a suggestion is unseen in its m cases
with chance (1 - q)^m. If it was seen at none, ∑ m q <= ln(1/α) but for chance α, and it costs at
most

    ln(1/α) · max_s w(s) (1 - b(a|s)) (Q^b(s,a) - worst) / m(s,a)

`worst` being the lowest return there can be (w(s): how often s is met). With `worst` half of the
risk is α and this is taken off; without it nothing can be said.
"""

from __future__ import annotations

# Apart: what competes, and how it is chosen; `confident` gathers the evidence and issues.
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import numpy as np

from dprl._core.arrays import Ints
from dprl._core.optional import Registry
from dprl._core.words import worded
from dprl.errors import DprlError, ParameterError, PlanError
from dprl.learners.baselines import LCB
from dprl.planning.advantages import DENSE, Advantages, Gain, gain
from dprl.planning.sure_iteration import DOUBTS, PlanModel
from dprl.policies.protocol import check_learned

KAPPA = 3.0
"""With how many visits' worth of usual practice a suggestion is mixed where it is judged."""
EASIER = 4.0
"""How many times the risk a member may have to be considered where nothing is promised."""


@dataclass(frozen=True)
class Member:
    """One way to choose a policy.

    Attributes:
        name: Its name.
        kind: Members of a kind are variants of one idea and share a level.
        choose: From a model the chosen action of each state, int64 (S,), -1 to defer, and the same
            evaluated where that is at hand. It may raise PlanError: then it defers everywhere.
        cheap: Whether it competes with many states too, where each costs much. Default True.
    """

    name: str
    kind: str
    choose: Callable[[PlanModel], Ints | Advantages]
    cheap: bool = True


MEMBERS: Registry[Member] = Registry("dprl.members", "member")
"""The members that always compete, and those that a package adds."""


def _lcb(c: float) -> Callable[[PlanModel], Ints]:
    def choose(model: PlanModel) -> Ints:
        return np.asarray(LCB(gamma=model.gamma, c=c).plan(model.mdp).argmax(axis=1))

    return choose


def _sure(doubt: float, *, from_mode: bool = False) -> Callable[[PlanModel], Advantages]:
    def choose(model: PlanModel) -> Advantages:
        return model.iterate(doubt, model.habit if from_mode else None)[0]

    return choose


for _doubt in DOUBTS:
    _name, _cheap = f"sure {_doubt}", _doubt in (0.5, 0.16, 0.01)
    MEMBERS.add(_name, Member(_name, "sure", _sure(_doubt), cheap=_cheap))
for _c in (0.05, 0.1, 0.2, 0.5):
    MEMBERS.add(f"lcb {_c}", Member(f"lcb {_c}", "lcb", _lcb(_c)))
MEMBERS.add("mode", Member("mode", "mode", lambda model: model.table.n.argmax(axis=1)))
for _doubt in (0.35, 0.16, 0.05, 0.01):
    _name = f"mode, sure {_doubt}"
    _choose = _sure(_doubt, from_mode=True)
    MEMBERS.add(_name, Member(_name, "mode, sure", _choose, cheap=False))


def name_of(learner: Any) -> str:
    """What a learner of somebody's own is called: its class and settings."""
    name = repr(learner) if is_dataclass(learner) else type(learner).__name__
    return name if len(name) <= 120 else f"{name[:119]}…"


def own(learners: Sequence[Any], states: Sequence[Any], actions: Sequence[Any]) -> list[Member]:
    """Learners of somebody's own as members, for a log with these labels."""
    names = [name_of(learner) for learner in learners]
    return [
        Member(name, name, _learned(learner, states, actions))
        for name, learner in zip(names, learners, strict=True)
    ]


def check_members(members: Any) -> tuple[Any, ...]:
    """Learners of somebody's own, if that is what they are, else a ParameterError."""
    if members is None:
        return ()
    if not isinstance(members, list | tuple):
        raise ParameterError(
            worded("members must be a list of learners; got {got}.", got=repr(members)),
            do="Put learners into it: 'members=[SPIBB(n_min=10, gamma=0.99)]', say.",
            argument="members",
        )
    for i, learner in enumerate(members):
        if isinstance(learner, type) or not callable(getattr(learner, "fit", None)):
            raise ParameterError(
                f"a member must be a learner with fit(log); got {learner!r}.",
                f"members[{i}]",
                "A learner has fit(log), which returns a policy over the same labels.",
                argument="members",
            )
    names = [name_of(learner) for learner in members]
    if len(set(names)) < len(names):
        raise ParameterError("two members have the same name.", repr(names), argument="members")
    return tuple(members)


def _learned(learner: Any, states: Sequence[Any], actions: Sequence[Any]) -> Any:
    def choose(model: PlanModel) -> Ints:
        b = model.table.b
        if hasattr(learner, "plan"):  # it plans in a model: no rows are needed
            pi = learner.plan(model.mdp)
        else:
            assert model.rows is not None
            policy = check_learned(learner.fit(model.rows()), name_of(learner))
            place = {label: i for i, label in enumerate(actions)}
            missing = [label for label in policy.actions if label not in place]
            if missing:
                raise ParameterError(
                    f"the policy of {name_of(learner)} knows actions that the log does not have.",
                    f"action {missing[0]!r}",
                    "A member learns a policy over the labels of its log.",
                    argument="members",
                )
            columns = [place[label] for label in policy.actions]
            pi = np.zeros_like(b)
            pi[:, columns] = policy.probabilities(states, behavior=b[:, columns])
        raised = pi - b
        best = raised.argmax(axis=1)
        return np.where(raised.max(axis=1) > 1e-9, best, -1).astype(np.int64)

    return choose


# -- candidates ------------------------------------------------------------------------------------


@dataclass(eq=False)
class Candidate:
    """What one member chose, and how it was judged.

    Attributes:
        member: The member; of several that choose alike the first.
        policy: Its policy, evaluated.
        gain: Its estimated gain over usual practice.
        t: How many standard errors too high each half's estimate was.
        brought: What each half's choice brought in the other half.
        mixed: The same, its suggestions mixed with usual practice.
    """

    member: Member
    policy: Advantages
    gain: Gain
    t: list[float] = field(default_factory=list)
    brought: list[float] = field(default_factory=list)
    mixed: list[float] = field(default_factory=list)

    @property
    def changed(self) -> int:
        """In how many states it names an action."""
        return int((self.policy.choice >= 0).sum())

    @property
    def score(self) -> float:
        """H_κ - se/2; minus infinity where nobody judged."""
        return float(np.mean(self.mixed)) - self.gain.se / 2 if self.mixed else -np.inf

    @property
    def optimism(self) -> float | None:
        """How many standard errors its estimate is too high; None where nobody judged."""
        return float(np.mean(self.t)) if self.t else None

    @property
    def paid(self) -> float | None:
        """The estimate a bound begins with; None where nobody judged."""
        if self.optimism is None:
            return None
        paid = self.gain.estimate - max(self.optimism, 0.0) * self.gain.se
        return min(paid, (paid + float(np.mean(self.brought))) / 2)


Told = Callable[[float], None]


def candidates(
    model: PlanModel,
    members: Sequence[Member],
    progress: Told | None = None,
    refusals: type[DprlError] = PlanError,
) -> list[Candidate]:
    """What the members choose in a model, in their order; without those that defer everywhere.

    refusals: The errors of a member that mean that it defers.
    """
    found: list[Candidate] = []
    known: dict[bytes, Candidate] = {}
    for i, member in enumerate(members):
        if progress is not None:
            progress(i / len(members))
        try:
            made = member.choose(model)
        except refusals:
            continue
        here = made if isinstance(made, Advantages) else None
        choice = model.admitted(made.choice if isinstance(made, Advantages) else made)
        if not (choice >= 0).any():
            continue
        same = known.get(choice.tobytes())
        if same is None:
            if here is None or not np.array_equal(choice, here.choice):
                here = model.evaluate(choice, errors=False)
            same = Candidate(member, here, gain(here, model.usual, model.groups))
            known[choice.tobytes()] = same
        found.append(Candidate(member, same.policy, same.gain))
    return found


def judge(
    found: Sequence[Candidate],
    members: Sequence[Member],
    halves: Iterator[tuple[PlanModel, PlanModel]],
) -> None:
    """Let every member choose on each half and judge it on the other; noted in `found`."""
    whole = {one.member.name: one for one in found}
    members = [member for member in members if member.name in whole]
    for one, other in halves:
        for chooser, judging in ((one, other), (other, one)):
            chose = {c.member.name: c for c in candidates(chooser, members, refusals=DprlError)}
            known: dict[int, tuple[float | None, float | None]] = {}
            for member in members:
                noted, half = whole[member.name], chose.get(member.name)
                if half is None:  # it deferred
                    noted.brought.append(0.0)
                    noted.mixed.append(0.0)
                    continue
                if id(half.policy) not in known:
                    choice = half.policy.choice
                    known[id(half.policy)] = judging.brings(choice), judging.brings(choice, KAPPA)
                plain, mixed = known[id(half.policy)]
                if mixed is not None:
                    noted.mixed.append(mixed)
                if plain is None:
                    continue
                noted.brought.append(plain)
                if half.gain.se > 0:
                    noted.t.append((half.gain.estimate - plain) / half.gain.se)


def preferred(
    found: Sequence[Candidate], score: Callable[[Candidate], float], keep: float
) -> list[Candidate]:
    """Those that may be issued, the preferred one first: the largest score.

    With `keep` below 1 only those with at least that share of the largest, the fewest changes
    first.
    """
    order = sorted(found, key=score, reverse=True)  # stable: of equals the first member
    if keep == 1 or not order:
        return order
    most = score(order[0])
    return sorted(
        (one for one in order if score(one) >= min(keep * most, most)), key=lambda one: one.changed
    )


def competing(states: int) -> list[Member]:
    """The members that compete with this many states: beyond `DENSE` only those that are cheap."""
    return [member for member in MEMBERS.values() if member.cheap or states <= DENSE]
