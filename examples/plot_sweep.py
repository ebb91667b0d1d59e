"""
Which n_min?
============

Several settings beside each other on the same held-out episodes: what each gains, how often it
defers, and on how many episodes the estimate rests. Hollow marks rest on fewer than 30. The
largest of several noisy estimates is too large, so whatever is picked here must be judged again on
fresh episodes.
"""

import dprl

world = dprl.envs.care_pathway()
train, test = world.sample(3000, seed=0).split(0.5, seed=0)
swept = dprl.sweep(
    dprl.DPRLDiscrete(n_min=20, gamma=1.0), train, test, n_min=[5, 10, 20, 50, 100, 200]
)
compared = dprl.figures.sweep(swept)
