"""
A law that holds on the boundary only
=====================================

A body cools through a wall. How heat spreads inside and how it leaves through the wall
are two unknown equations of one temperature, each imposed at points of its own.
"""

# %%
# The data
# --------
#
# The temperature solves :math:`u_t = 0.2\, u_{xx}` inside. At the wall, :math:`x = 0`,
# heat flows out the faster the warmer the wall is, :math:`u_x = 2\,(u - 0.3)`, and the
# other end is insulated, :math:`u_x = 0`. It was measured 30 times at the wall and at
# 150 points inside, with errors of 1 %.

import numpy as np
from matplotlib import pyplot as plt

from keql import Equation, OneStepKEqL
from keql.datasets import make_heat_with_boundary_law
from keql.metrics import relative_l2_error
from keql.plotting import StateDisplay

data = make_heat_with_boundary_law(150, 30, noise=0.01, random_state=0)
print(data.X.shape, f"noise {data.noise_std:.3f}")

# %%
# Equations with names
# --------------------
#
# Equations that differ are a list of names and :class:`keql.Equation`, as the steps of
# a pipeline are. Each has its operators and the points where it holds. The third one
# has no unknown part, ``operators=None``: it is known, and only imposed.

axis, times = np.linspace(0, 1, 20), np.linspace(0, 1, 40)
inside = np.column_stack([a.ravel() for a in np.meshgrid(axis, axis, indexing="ij")])
wall, insulated = (np.column_stack([times, np.full(40, x)]) for x in (0.0, 1.0))
equations = [
    ("interior", Equation("u_t", ("u", "u_xx"), inside)),
    ("wall", Equation("u_x", ("u",), wall)),
    ("insulated", Equation("u_x", None, insulated)),
]
model = OneStepKEqL(equations=equations, variables=("t", "x"))
model.fit(data.X, data.y)
print(model.equation_)

# %%
# Neither the form of the laws nor the temperature outside was given. The latter is
# where the slope at the wall is zero.

law = model.equation_["wall"].terms()
outside = -law["1"] / law["u"]
print(f"transfer {law['u']:.2f}, temperature outside {outside:.3f}")
error = relative_l2_error(data.y_test, model.predict(data.X_test))
print(f"error of the temperature {error:.4f}")

# %%
# Parameters of an equation are reached by its name, in a search too.

print(model.get_params()["wall__n_terms"])

# %%
# The picture
# -----------
#
# On the left the temperature with the observations, on the right the law of the wall at
# the temperatures that the wall has had.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
StateDisplay.from_estimator(model, data.X, data.y, ax=left)
u = model.predict(wall)
std = model.predict_derivative(wall, "u_x", return_std=True)[1]
right.plot(np.sort(u), 2 * (np.sort(u) - 0.3), "--", color="black", label="truth")
right.errorbar(
    u,
    model.predict_derivative(wall, "u_x"),
    2 * std,
    fmt="o",
    ms=3,
    color="#0072B2",
    label="learned state, two standard deviations",
)
features = model.equation_.features(model, wall)
right.plot(
    u,
    -model.equation_["wall"].unknown_part(features),
    color="#D55E00",
    label="learned law",
)
right.set(xlabel="u at the wall", ylabel="u_x at the wall")
right.legend(frameon=False)
plt.show()
