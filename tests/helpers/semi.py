"""The semi-MDP of a gathered log whose rows were counted by hand, on as many threads as asked."""

from __future__ import annotations

from dprl.planning.semi_mdp import count_segments, discounts


def semi_of(log, known, occurrences, pairs, rule="end"):
    fixed, bits = discounts(known.gamma, int(log.lengths.max(initial=0)), known.n_pair[pairs])
    segments = count_segments(log, known.gamma, occurrences, pairs, fixed, rule)
    return segments.semi_mdp(log.states, pairs, bits, rule)
