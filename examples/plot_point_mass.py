"""
A point mass: where a policy speaks
===================================

Where the policy makes suggestions, and where it defers: a noisy point mass.

An expert moves a point mass around a pit to a goal, but in one strip of the square the expert takes
the wrong way four times out of five. From 400 logged walks DPRL should change the actions in the
strip and leave the rest alone. The one-step policy looks at what followed each action under usual
practice. The planned policy looks at what would follow if the other points of the strip were
changed too.
"""

from __future__ import annotations

import sys

import numpy as np

import dprl
from dprl._core import plot
from dprl.envs.point_mass import (
    GOAL,
    GOAL_RADIUS,
    MOVES,
    PIT,
    PIT_RADIUS,
    STRIP,
    PointMass,
)

EPISODES, N_MIN, RADIUS, SEED = 400, 10, 0.06, 1


def draw_world(axis):
    """The square, its pit, its goal and the careless strip."""
    from matplotlib.patches import Circle, Rectangle

    axis.add_patch(Rectangle((STRIP[0], 0), STRIP[1] - STRIP[0], 1, color="#fbe6d8", lw=0))
    axis.add_patch(Circle(PIT, PIT_RADIUS, color="#555555", lw=0))
    axis.add_patch(Circle(GOAL, GOAL_RADIUS, color="#cfe8cf", lw=0))
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axis.grid(visible=False)


def arrows(axis, places, actions, color):
    """A short arrow for each action."""
    u, v = MOVES[actions].T
    x, y = places.T
    axis.quiver(x, y, u, v, color=color, pivot="mid", scale=38, width=0.004, headwidth=5)


def main(path: str | None = None) -> dict[str, float]:
    """Fit, judge by play, draw."""
    world = PointMass()
    log = world.sample(EPISODES, seed=SEED)
    learner = {
        "n_min": N_MIN, "radius": RADIUS, "gamma": world.gamma, "cut": "terminal",
        "metric": dprl.Metric(scale="none"),
    }
    policies = {
        "one step": dprl.DPRLContinuous(plan=False, **learner).fit(log),
        "planned": dprl.DPRLContinuous(**learner).fit(log),
    }
    values = {"usual practice": world.value(n=20_000)}
    values |= {name: world.value(policy) for name, policy in policies.items()}

    steps = (np.arange(30) + 0.5) / 30
    places = np.array([(x, y) for x in steps for y in steps])
    outside = ((places - PIT) ** 2).sum(axis=1) > PIT_RADIUS**2
    places = places[outside]
    with plot.look():
        figure, axes = plot.grid(1, 3, width=4.2, height=4.4)
        draw_world(axes[0, 0])
        axes[0, 0].plot(*log.features[::5].T, ".", ms=1.5, color="#888888")
        arrows(axes[0, 0], places[::3], world.behavior(places[::3]).argmax(axis=1), "#b35806")
        for axis, policy in zip(axes[0, 1:], policies.values(), strict=True):
            draw_world(axis)
            here = policy.at(places)
            silent = here.choice < 0
            axis.plot(*places[silent].T, ".", ms=2.5, color="#c8c8c8")
            for kind, color in ((2, "#0072b2"), (1, "#7fc4e8")):
                some = here.kind == kind
                arrows(axis, places[some], here.choice[some], color)
        for axis, (name, (value, error)) in zip(axes[0], values.items(), strict=True):
            axis.set_title(f"{name}: {value:.3f} ± {2 * error:.3f}")
        axes[0, 0].set_xlabel(f"{log.n_episodes} walks; arrows: the expert's usual move")
        axes[0, 1].set_xlabel("dark: a change · light: confirmed · dots: DEFER")
        axes[0, 2].set_xlabel("the same, planned over many steps")
        if path is not None:
            figure.savefig(path, dpi=150)
    return {name: value for name, (value, _) in values.items()}


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
