"""The confident learner, slowly: dense matrices, one list of outcomes for every pair.

Written from the text, not from the code: visits are kept one by one, errors are propagated through
explicit matrices, nothing is skipped, updated or drawn. States and actions are 0, 1, 2, …
"""

from __future__ import annotations

import functools

import numpy as np
from scipy import stats

import dprl

DOUBTS = (0.5, 0.35, 0.25, 0.16, 0.1, 0.05, 0.01)


@functools.cache
def t_quantile(level, df):
    return float(stats.t.ppf(level, df))


def log_of(episodes, groups, S, A, **options):
    """The Log of what `random_visits` gives."""
    rows = [
        (e, t, s, a, r, groups[e])
        for e, episode in enumerate(episodes)
        for t, (s, a, r) in enumerate(episode)
    ]
    episode, time, state, action, reward, group = map(list, zip(*rows, strict=True))
    return dprl.from_arrays(
        episode=episode, time=time, state=state, action=action, reward=reward, group=group,
        states=range(S), actions=range(A), **options,
    )  # fmt: skip


def random_visits(seed, end=0.25):
    """Episodes of a random world with revisits, unseen states and pairs, and unequal spreads.

    Gives episodes (lists of (s, a, r)), the group of each, S and A.
    """
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 7)), int(rng.integers(2, 4))
    visited = int(rng.integers(1, S + 1))
    P = rng.dirichlet(np.full(visited, 0.5), (visited, A))
    middle, spread = rng.normal(size=(visited, A)), 2.0 ** rng.integers(-4, 3, (visited, A))
    b = rng.dirichlet(np.full(A, 0.7), visited)
    b[rng.random((visited, A)) < 0.15] = 0.0
    b[b.sum(axis=1) == 0] = 1.0
    b /= b.sum(axis=1, keepdims=True)
    episodes = []
    for _ in range(int(rng.integers(4, 70))):
        s, episode = int(rng.integers(visited)), []
        while True:
            a = int(rng.choice(A, p=b[s]))
            r = float(middle[s, a] + spread[s, a] * rng.normal())
            if rng.random() < 0.3:
                r = float(round(r))
            episode.append((s, a, r))
            if rng.random() < end:
                break
            s = int(rng.choice(visited, p=P[s, a]))
        episodes.append(episode)
    groups = np.arange(len(episodes))
    if seed % 3 == 0:  # some groups of several episodes
        groups = rng.integers(max(len(episodes) // 2, 1), size=len(episodes))
    return episodes, groups.tolist(), S, A


class Slow:
    """The model of some episodes, and what can be said in it.

    cut: the episodes that were cut: their last row says only where they were last seen.
    twice: whether each trajectory counts for two, as in a half that must choose as the whole does.
    """

    def __init__(self, episodes, groups, S, A, gamma, cut=(), twice=False):
        self.S, self.A, self.gamma, self.episodes = S, A, gamma, len(episodes)
        self.seen = [[[] for _ in range(A)] for _ in range(S)]  # (r, s') of every visit, S for END
        behind = [[set() for _ in range(A)] for _ in range(S)]
        self.start = np.zeros(S)
        for e, (episode, group) in enumerate(zip(episodes, groups, strict=True)):
            self.start[episode[0][0]] += 1 / len(episodes)
            for t, (s, a, r) in enumerate(episode[:-1] if e in cut else episode):
                following = episode[t + 1][0] if t + 1 < len(episode) else S
                self.seen[s][a].append((r, following))
                behind[s][a].add(group)
        self.n = np.array([[len(x) for x in row] for row in self.seen], float)
        self.m = np.array([[len(x) for x in row] for row in behind]) * (2 if twice else 1)
        self.visits = self.n.sum(axis=1)
        self.b = np.full((S, A), 1 / A)
        self.R, self.P = np.zeros((S, A)), np.zeros((S, A, S))
        for s in range(S):
            for a in range(A):
                if self.visits[s]:
                    self.b[s, a] = self.n[s, a] / self.visits[s]
                for r, following in self.seen[s][a]:
                    self.R[s, a] += r / self.n[s, a]
                    if following < S:
                        self.P[s, a, following] += 1 / self.n[s, a]

    def stuck(self, choice):
        """Where a policy never comes to an end, however long one waits."""
        left = np.ones(self.S)
        for _ in range(self.S + 1):
            end = [
                1 - self.gamma + self.gamma * (1 - self.P[s, a] @ (left > 0))
                if (a := choice[s]) >= 0
                else 1 - self.gamma * self.b[s] @ self.P[s] @ (left > 0)
                for s in range(self.S)
            ]
            left = np.where(np.array(end) > 1e-12, 0.0, left)
        return left > 0

    def evaluate(self, choice):
        return SlowPolicy(self, np.asarray(choice))

    def choose(self, risk, eligible, always=False):
        """The chosen policy, its gain (estimate, se, df) and its doubt; None where it defers."""
        usual = self.evaluate([-1] * self.S)
        best, low = (usual, None, None), -1e300 if always else 0.0
        for doubt in DOUBTS:
            policy = self.iterate(doubt, eligible)
            if (policy.choice < 0).all():
                continue
            estimate, se, df = policy.gain(usual)
            bound = estimate - t_quantile(1 - risk, df) * se
            if bound > low + 1e-13 * abs(low):
                best, low = (policy, (estimate, se, df), doubt), bound
        return best

    def brings(self, choice, kappa=0.0):
        """What a policy brings here; usual practice where its action was never seen.

        kappa: every pair is moved towards what usual practice meets, as if by so many visits.
        """
        usual = self.evaluate([-1] * self.S)
        P, R = self.P.copy(), self.R.copy()
        for s in range(self.S):
            for a in range(self.A):
                w = self.n[s, a] / (self.n[s, a] + kappa) if self.n[s, a] else 0.0
                P[s, a] = w * P[s, a] + (1 - w) * self.b[s] @ self.P[s]
                R[s, a] = w * R[s, a] + (1 - w) * self.b[s] @ self.R[s]
        at = np.arange(self.S)
        speaks = np.asarray(choice) >= 0
        P_pi = np.where(speaks[:, None], P[at, choice], np.einsum("sa,sat->st", self.b, self.P))
        R_pi = np.where(speaks, R[at, choice], (self.b * self.R).sum(axis=1))
        V = np.linalg.solve(np.eye(self.S) - self.gamma * P_pi, R_pi)
        return float(self.start @ (V - usual.V))

    def lcb(self, c):
        """Pessimistic value iteration, by iterating values; -1 where nothing is better than v_min."""
        V = self.evaluate([-1] * self.S).V[self.visits > 0]
        scale, floor = max(np.ptp(V), np.abs(V).max()), min(0.0, V.min())
        with np.errstate(divide="ignore"):
            penalty = c * scale * np.sqrt(np.log(2 * self.n.size / 0.05) / (2 * self.n))
        V = np.full(self.S, floor)
        for _ in range(2_000):
            Q = np.where(self.n > 0, self.R - penalty + self.gamma * self.P @ V, -np.inf)
            V = np.maximum(Q.max(axis=1), floor)
        slack = 1e-9 * scale
        return [
            int((Q[s] >= Q[s].max() - slack).argmax())
            if Q[s].max() > floor + slack
            else int(self.n[s].argmax())
            for s in range(self.S)
        ]

    def family(self, eligible):
        """Name of each member that does not defer everywhere → its policy, evaluated."""
        alone = self.n == self.visits[:, None]

        def admitted(choice):
            return [
                a if a >= 0 and eligible[s, a] and not alone[s, a] else -1
                for s, a in enumerate(choice)
            ]

        found = {f"sure {doubt}": self.iterate(doubt, eligible).choice for doubt in DOUBTS}
        for c in (0.05, 0.1, 0.2, 0.5):
            found[f"lcb {c}"] = self.lcb(c)
        mode = admitted(self.n.argmax(axis=1))
        found["mode"] = mode
        for doubt in (0.35, 0.16, 0.05, 0.01):
            found[f"mode, sure {doubt}"] = self.iterate(doubt, eligible, mode).choice
        made = {name: self.evaluate(admitted(choice)) for name, choice in found.items()}
        return {name: policy for name, policy in made.items() if (policy.choice >= 0).any()}

    def iterate(self, doubt, eligible, start=None):
        policy = self.evaluate([-1] * self.S if start is None else start)
        for _ in range(200):
            choice = policy.choice.copy()
            for s in range(self.S):
                best, at = 0.0, -1
                for a in range(self.A):
                    if not eligible[s, a] or a == policy.choice[s]:
                        continue
                    K = max(int(eligible[s].sum()) - 1, 1)
                    t = max(t_quantile(1 - doubt / K, max(int(self.m[s, a]) - 1, 1)), 0.0)
                    low = policy.delta[s, a] - t * np.sqrt(policy.variance(s, a))
                    margin = 1e-10 * (abs(policy.V[s]) + abs(policy.Q[s, a]))
                    if low > margin and low > best:
                        best, at = low, a
                if at >= 0:
                    choice[s] = at
            if (choice == policy.choice).all():
                return policy
            stuck = self.stuck(choice)
            if stuck.any():  # begun again without the states that never come to an end
                return self.iterate(doubt, eligible & ~stuck[:, None], start)
            policy = self.evaluate(choice)
        raise AssertionError("it did not settle")


class SlowPolicy:
    """A policy in a model: values, and the errors of what it brings."""

    def __init__(self, model, choice):
        self.model, self.choice = model, choice
        S, A, gamma = model.S, model.A, model.gamma
        self.pi = model.b.copy()
        for s in range(S):
            if choice[s] >= 0:
                self.pi[s] = np.eye(A)[choice[s]]
        self.P_pi = np.einsum("sa,sat->st", self.pi, model.P)
        self.M = np.linalg.inv(np.eye(S) - gamma * self.P_pi)
        self.V = self.M @ (self.pi * model.R).sum(axis=1)
        self.Q = model.R + gamma * model.P @ self.V
        self.delta = self.Q - self.V[:, None]
        self.usual = (model.b * self.Q).sum(axis=1)
        self._variances()

    def targets(self, s, a):
        ahead = np.append(self.V, 0.0)
        return np.array([r + self.model.gamma * ahead[k] for r, k in self.model.seen[s][a]])

    def _variances(self):
        model = self.model
        S, A = model.S, model.A
        squares, T = np.zeros((S, A)), np.zeros(S)
        for s in range(S):
            for a in range(A):
                y = self.targets(s, a)
                if len(y):
                    squares[s, a] = ((y - y.mean()) ** 2).sum()
                    T[s] += ((y - self.usual[s]) ** 2).sum()
        freedom = sum(max(n - 1, 0) for n in model.n.ravel())
        within = squares.sum() / max(freedom, 1)
        less = np.maximum(model.visits - 1, 1)
        self.prior = np.maximum(T / less, (T + 20 * within) / np.maximum(model.visits + 19, 1))
        self.prior[model.visits == 0] = 0.0
        with np.errstate(all="ignore"):
            e = (squares + 2 * self.prior[:, None]) / (model.n + 1) / model.n
        self.e = np.where(model.n > 0, e, 0.0)
        of_b = (model.b * (self.Q - self.usual[:, None]) ** 2).sum(axis=1)
        self.of_b = of_b / np.maximum(model.visits, 1)
        self.v = (self.pi**2 * self.e).sum(axis=1) + np.where(self.choice < 0, self.of_b, 0.0)

    def variance(self, s, a):
        """Var Δ(s,a), the formula with g and c."""
        model = self.model
        g = model.gamma * (model.P[s, a] - self.P_pi[s]) @ self.M
        c, pi, e = g[s] - 1, self.pi[s, a], self.e[s, a]
        others = sum(g[k] ** 2 * self.v[k] for k in range(model.S) if k != s)
        return others + c**2 * (self.v[s] - pi**2 * e) + (1 + c * pi) ** 2 * e

    def over_usual(self):
        """What each pair brings over usual practice in its state, and its standard error.

        Independent errors: one for every pair's mean target, one for b̂ of every state. Their
        effect on every Q and on every mean of Q under b̂ is written out as a matrix.
        """
        model = self.model
        S, A = model.S, model.A
        pair, own = np.eye(S * A, S * A + S), np.eye(S, S * A + S, S * A)
        u = np.zeros((S, S * A + S))
        for s in range(S):
            for a in range(A):
                u[s] += self.pi[s, a] * pair[s * A + a]
            if self.choice[s] < 0:
                u[s] += own[s]
        of_V = self.M @ u
        of_Q = pair + model.gamma * model.P.reshape(S * A, S) @ of_V
        variance = np.concatenate((self.e.ravel(), self.of_b))
        advantage, se = np.full((S, A), np.nan), np.full((S, A), np.nan)
        for s in range(S):
            of_usual = own[s] + sum(model.b[s, a] * of_Q[s * A + a] for a in range(A))
            for a in range(A):
                if model.n[s, a]:
                    advantage[s, a] = self.Q[s, a] - self.usual[s]
                    se[s, a] = np.sqrt(((of_Q[s * A + a] - of_usual) ** 2 * variance).sum())
        return advantage, se

    def gain(self, usual):
        """The gain over usual practice: estimate, standard error, degrees of freedom."""
        model = self.model
        S, A = model.S, model.A
        w, x = model.start @ self.M, model.start @ usual.M
        total, share = 0.0, 0.0
        for s in range(S):
            for a in range(A):
                n = model.n[s, a]
                if not n:
                    continue
                c, d = w[s] * self.pi[s, a], x[s] * usual.pi[s, a]
                z = c * self.targets(s, a) - d * usual.targets(s, a)
                squares = ((z - z.mean()) ** 2).sum() + 2 * self.prior[s] * (c - d) ** 2
                e = squares / (n + 1) / n
                total, share = total + e, share + e**2 / max(model.m[s, a] - 1, 1)
            if model.visits[s]:
                h = -x[s] * usual.Q[s] + (w[s] * self.Q[s] if self.choice[s] < 0 else 0.0)
                of_b = (model.b[s] * (h - model.b[s] @ h) ** 2).sum() / model.visits[s]
                total, share = total + of_b, share + of_b**2 / model.visits[s]
        brings = self.V - usual.V
        estimate = model.start @ brings
        total += (model.start * (brings - estimate) ** 2).sum() / model.episodes
        df = total**2 / share if share else 1e6
        most = max((model.m[s, self.choice[s]] for s in range(S) if self.choice[s] >= 0), default=0)
        return estimate, np.sqrt(total), max(min(df, most - 1, 1e6), 1.0)

    def another(self, usual):
        """What one more rare loss would cost, at the suggestion whose own record allows it least.

        Losses are those of an action about the mean of each pair, in the targets of usual practice.
        """
        model, w, most = self.model, self.model.start @ self.M, 0.0
        for s, a in enumerate(self.choice):
            if a < 0:
                continue
            sides = squares = visits = 0.0
            for other in range(model.S):
                y = usual.targets(other, a)
                if len(y):
                    SS = ((y - y.mean()) ** 2).sum()
                    sides += SS * ((y.mean() - y.min()) - (y.max() - y.mean()))
                    squares, visits = squares + SS, visits + len(y)
            size = sides / squares if squares else 0.0
            if size <= 0 or squares / visits >= size**2 / 10:
                continue
            loss = size**2 - 10 * squares / visits
            more = max(loss / model.m[s, a] ** 2 - self.e[s, a], 0.0)
            most = max(most, w[s] * (1 - model.b[s, a]) * np.sqrt(more))
        return most


def weighted_gain(episodes, S, A, gamma, choice, rows, starts):
    """The gain of a choice where each visit and each start counts as much as its weight says."""
    n, R, P = np.zeros((S, A)), np.zeros((S, A)), np.zeros((S, A, S))
    start = np.zeros(S)
    weight = iter(rows)
    for episode, first in zip(episodes, starts, strict=True):
        start[episode[0][0]] += first
        for t, (s, a, r) in enumerate(episode):
            w = next(weight)
            n[s, a] += w
            R[s, a] += w * r
            if t + 1 < len(episode):
                P[s, a, episode[t + 1][0]] += w
    R, P = R / np.maximum(n, 1e-300), P / np.maximum(n, 1e-300)[..., None]
    visits = n.sum(axis=1, keepdims=True)
    b = np.where(visits > 0, n / np.maximum(visits, 1e-300), 1 / A)
    values = []
    for chosen in (choice, [-1] * S):
        pi = np.array([np.eye(A)[a] if a >= 0 else b[s] for s, a in enumerate(chosen)])
        M = np.linalg.inv(np.eye(S) - gamma * np.einsum("sa,sat->st", pi, P))
        values.append(start @ M @ (pi * R).sum(axis=1) / start.sum())
    return values[0] - values[1]


def influences(episodes, groups, S, A, gamma, choice, h=1e-4):
    """What each visit and each start adds to the gain, by differences; and the sums over groups."""
    rows, starts = np.ones(sum(map(len, episodes))), np.ones(len(episodes))
    group_of = [g for e, g in zip(episodes, groups, strict=True) for _ in e] + list(groups)
    adds = []
    for weights in (rows, starts):
        for i in range(len(weights)):
            ends = []
            for step in (h, -h):
                weights[i] = 1 + step
                ends.append(weighted_gain(episodes, S, A, gamma, choice, rows, starts))
            weights[i] = 1.0
            adds.append((ends[0] - ends[1]) / (2 * h))
    adds = np.array(adds)
    names = sorted(set(groups))
    sums = np.array([sum(x for x, g in zip(adds, group_of, strict=True) if g == k) for k in names])
    return adds, sums


def judged(whole, halves, n_min):
    """Member → (policy, (estimate, se, df), t of every half, what each brought, the same mixed).

    halves: pairs of `Slow` models; each trajectory of theirs counts twice.
    """
    usual = whole.evaluate([-1] * whole.S)
    found = {
        name: (policy, policy.gain(usual), [], [], [])
        for name, policy in whole.family(whole.m >= n_min).items()
    }
    for pair in halves:
        for one, other in (pair, pair[::-1]):
            nobody = one.evaluate([-1] * one.S)
            chose = one.family(one.m >= 2 * (n_min // 2))
            for name, (_, _, t, brought, mixed) in found.items():
                if name not in chose:
                    brought.append(0.0)
                    mixed.append(0.0)
                    continue
                choice = chose[name].choice
                estimate, se, _ = chose[name].gain(nobody)
                brought.append(other.brings(choice))
                mixed.append(other.brings(choice, 3.0))
                t.append((estimate - brought[-1]) / se)
    return found
