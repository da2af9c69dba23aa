"""
The law of gravitation from two orbits
======================================

Two planets were seen at forty places each, with errors of 2 %. Neither their masses nor
the form of the force is known, only that their accelerations depend on where they are
and on how fast they move.
"""

# %%
# The data
# --------
#
# Distances are in astronomical units, and the sun is at the origin. Of its mass
# :math:`G M = 4 \pi^2\,\mathrm{AU^3/yr^2}` is known: the earth goes round in a year.

import numpy as np
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp

from keql import OneStepKEqL


def attracted(t, s):
    """Velocity and acceleration in years and astronomical units."""
    distance = np.hypot(s[0], s[1])
    return [s[2], s[3], *(-4 * np.pi**2 * s[:2] / distance**3)]


def orbit(start, times):
    """Places (n, 2) of a planet at these times."""
    given = {"t_eval": times, "rtol": 1e-10, "atol": 1e-12}
    return solve_ivp(attracted, times[[0, -1]], start, **given).y[:2].T


rng, times = np.random.default_rng(0), np.linspace(0, 1.4, 40)
starts = [[1, 0, 0, 7.2], [0, 1.5, -4.4, 0.6]]
truth = [orbit(start, times) for start in starts]
places = np.concatenate(truth)
places += 0.02 * np.std(places, axis=0) * rng.standard_normal(places.shape)
X = np.column_stack([np.repeat([0, 1], 40), np.tile(times, 2)])

# %%
# The law
# -------
#
# A column of the table says which planet a row belongs to. Beside products of
# coordinates and velocities, powers of the distance and of the speed are tried.

model = OneStepKEqL(
    operators=("x", "y", "x_t", "y_t"),
    known_part=("x_tt", "y_tt"),
    states=("x", "y"),
    variables=("t",),
    function_column=0,
    units={"t": "yr", "x": "AU", "y": "AU"},
)
model.fit(X, places)
print(model.equation_)
print(f"4 pi^2 = {4 * np.pi**2:.2f}")

# %%
# A third planet
# --------------
#
# The same law says where another planet will be. Its initial values are in the order
# x, x_t, y, y_t.

later = np.linspace(0, 2, 200)
third = model.equation_.simulate(later, [-1.3, 0.0, 0.0, -4.7])
x, y = third[:, 0], third[:, 2]
error = np.hypot(*(orbit([-1.3, 0, 0, -4.7], later) - np.column_stack([x, y])).T)
print(f"largest error after two years: {np.max(error):.3f} AU")

figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
for planet, color in enumerate(["#0072B2", "#009E73"]):
    rows = X[:, 0] == planet
    learned = model.predict(np.column_stack([np.full(200, planet), later * 0.7]))
    ax.plot(*learned.T, color=color, label=f"planet {planet + 1}, learned")
    ax.plot(*places[rows].T, "o", ms=3, color=color)
ax.plot(x, y, color="#D55E00", label="a third one, predicted")
ax.plot(0, 0, "*", ms=12, color="#E69F00")
ax.set(xlabel="x (AU)", ylabel="y (AU)", aspect="equal")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
