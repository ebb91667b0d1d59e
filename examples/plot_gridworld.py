"""
A grid: the cells in which an expert is careless
================================================

An expert walks through rooms, well but for four cells in which he is careless. From some of his
walks a policy should change those cells and leave all others alone. Dark arrows are what is
suggested; everywhere else the policy defers.
"""

import numpy as np

import dprl
from dprl._core import plot

world = dprl.envs.rooms()
policies = {
    size: dprl.DPRLDiscrete(n_min=20, gamma=world.gamma).fit(world.sample(size, seed=0))
    for size in (25, 100, 400)
}
careless = set(world.notes["careless"])
moves = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


def place(cell):
    """The column and the row of a cell called r3c5."""
    row, column = (int(x) for x in cell[1:].split("c"))
    return column, row


with plot.look():
    figure, axes = plot.grid(1, 3, width=3.6, height=4.2)
    for axis, (episodes, policy) in zip(axes[0], policies.items(), strict=True):
        here = policy.at(list(policy.states))
        for cell in careless:
            x, y = place(cell)
            axis.add_patch(plot.box((x - 0.5, y - 0.5), 1, 1, "#f5c6a5"))
        x, y = np.array([place(cell) for cell in world.states]).T
        u, v = moves[world.behavior.argmax(axis=1)].T
        axis.quiver(x, y, u, v, color="#d0d0d0", pivot="mid", scale=26, width=0.007)
        for kind, colour in ((2, "#0072b2"), (1, "#777777")):
            some = np.flatnonzero((here.kind == kind) & (here.choice >= 0))
            if len(some):
                x, y = np.array([place(policy.states[s]) for s in some]).T
                u, v = moves[[world.actions.index(policy.actions[here.choice[s]]) for s in some]].T
                axis.quiver(x, y, u, v, color=colour, pivot="mid", scale=18, width=0.012,
                            zorder=3)
        axis.set(xlim=(-0.6, 9.6), ylim=(9.6, -0.6), aspect="equal", xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.set_title(f"{episodes} walks: value {world.value(policy):.3f}")
        axis.set_xlabel(
            "light: what the expert mostly does\norange: careless · blue: changed", fontsize=8
        )
print(f"usual practice {world.value():.3f}")
