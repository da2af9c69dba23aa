"""
States seen at different times, and one never seen
==================================================

Instruments take turns, and some quantities cannot be measured at all. Each value is an
observation of a state at a time of its own; the equations connect them.
"""

# %%
# One state at a time
# -------------------
#
# The Lorenz system
#
# .. math::
#
#    x_t &= 10\,(y - x), \\
#    y_t &= x\,(28 - z) - y, \\
#    z_t &= x\,y - \tfrac{8}{3}\,z
#
# is seen at 90 times in 3 units of time, first :math:`x`, then :math:`y`, then
# :math:`z`, then :math:`x` again. What was not measured is NaN.

import numpy as np
from matplotlib import pyplot as plt

from keql import OneStepKEqL
from keql.datasets import make_lorenz
from keql.metrics import relative_l2_error
from keql.plotting import PhasePortraitDisplay, StateDisplay

streams = make_lorenz(90, t_end=3, streams=1)
print(streams.y[:4].round(2))

# %%
# Nothing is interpolated to common times, and no row is thrown away.

problem = {
    "operators": ("x", "y", "z"),
    "known_part": ("x_t", "y_t", "z_t"),
    "states": ("x", "y", "z"),
    "variables": ("t",),
}
in_turn = OneStepKEqL(**problem).fit(streams.X, streams.y)
print(in_turn.equation_)

# %%
# A state that was never measured
# -------------------------------
#
# A column of NaN is a state for which there is an equation and no observation. The
# other two were measured at 80 times.

hidden = make_lorenz(80, t_end=3, observed=("x", "y"))
print(hidden.y[:2].round(2))
without = OneStepKEqL(**problem).fit(hidden.X, hidden.y)
print(without.equation_)

# %%
# The equation of :math:`x` is the true one. Those of :math:`y` and :math:`z` look
# different, and have to: nobody has said in which units :math:`z` is measured, nor
# where its zero is. With :math:`z = a \tilde z + b\,x + c\,y + d` for any numbers the
# equations of :math:`x`, :math:`y` and :math:`\tilde z` are quadratic as well and
# explain the same data. For one choice of these numbers the learned state is the true
# one.

learned, true = without.predict(hidden.X_test), hidden.y_test
columns = np.column_stack([learned, np.ones(len(learned))])
combination = np.linalg.lstsq(columns, true[:, 2], rcond=None)[0]
in_true_units = np.column_stack([learned[:, :2], columns @ combination])
print("z = {2:.3f} z~ + {0:.3f} x + {1:.3f} y + {3:.3f}".format(*combination))
for name, states in (
    ("one at a time", in_turn.predict(streams.X_test)),
    ("without z", in_true_units),
):
    print(f"{name}: error {relative_l2_error(true.ravel(), states.ravel()):.1e}")

# %%
# The picture
# -----------
#
# On the left the three streams and the states, each with its observations in its
# colour. On the right the learned motion in the plane of :math:`x`, which was measured,
# and of the state that was not.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 4), layout="constrained", width_ratios=[3, 2]
)
StateDisplay.from_estimator(in_turn, streams.X, streams.y, uncertainty=False, ax=left)
PhasePortraitDisplay.from_estimator(without, hidden.X, states=("x", "z"), ax=right)
right.set(ylabel="z (scale unknown)")
plt.show()
