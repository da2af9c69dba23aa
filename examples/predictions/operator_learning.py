"""
From an equation to its solution operator
=========================================

A learned equation can be solved: for other boundary values and other sources than
those it was learned from. Sixteen flows are enough to predict any other.
"""

# %%
# Learn the equation
# ------------------
#
# The flows through a porous medium of the example on varying coefficients: a linear
# equation :math:`\nabla \cdot (a \nabla u) = f` whose permeability :math:`a` is not
# known.

import time
import warnings

import autograd.numpy as anp
import numpy as np
from matplotlib import pyplot as plt

from keql import KernelPDESolver, OneStepKEqL
from keql.datasets import make_darcy
from keql.metrics import relative_l2_error

data = make_darcy(n_functions=16, n_interior=8, random_state=0)
model = OneStepKEqL(
    **data.problem,
    state_kernel=data.kernels["state_kernel"],
    equation_kernel=data.kernels["equation_kernel"],
    observation_noise=1e-6,
    equation_noise=1e-3,
    n_inducing=300,
    random_state=0,
).fit(data.X, data.y)

# %%
# Solve it for a hundred new flows
# --------------------------------
#
# :meth:`~keql.OneStepKEqL.pde_solver` makes a solver of the learned equation, with the
# kernel and the collocation points of the model. It is fitted to values on the
# boundary, and gets the new sources: here a dictionary from the label of a flow to the
# values of its source at the collocation points. Since the equation is linear and the
# points are the same, all of them share one factorisation.

new = make_darcy(n_functions=100, n_interior=0, random_state=1)
solver = model.pde_solver(forcing=new.forcing)
start = time.perf_counter()
solver.fit(new.X, new.y)
seconds = time.perf_counter() - start
print(f"linear: {solver.linear_}; 100 solutions in {seconds:.1f} s")

# %%
# A learned equation holds where it was learned. The solver knows how far the features
# of the new solutions, the place, :math:`u` and its derivatives, are from those of the
# sixteen flows, and warns where they are further out. The equation is linear, and so
# the predictions are good nevertheless.

labels = new.X_test[:, 2]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    predicted = solver.predict(new.X_test)
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}\n")
errors = [
    relative_l2_error(new.y_test[labels == m], predicted[labels == m])
    for m in range(100)
]
print(f"median relative error {np.median(errors):.1e}, largest {max(errors):.1e}")

# %%
# A source unlike all others
# --------------------------
#
# The sources so far were smooth and random. Now there are a well and a sink, and the
# pressure is zero on the boundary. What is right is computed with the same solver from
# the true equation, which one can simply write down.


def well_and_sink(points):
    """Right-hand side at points of shape (n, 2)."""
    to_well = ((points - [0.3, 0.3]) ** 2).sum(axis=1)
    to_sink = ((points - [0.7, 0.65]) ** 2).sum(axis=1)
    return 40 * (np.exp(-to_sink / 0.02) - np.exp(-to_well / 0.02))


def darcy(x1, x2, u_x1, u_x1x1, u_x2, u_x2x2):
    """The true equation: div(a grad u), with a = exp(sin(cos x1 + cos x2))."""
    inner = anp.cos(x1) + anp.cos(x2)
    drift = anp.sin(x1) * u_x1 + anp.sin(x2) * u_x2
    return anp.exp(anp.sin(inner)) * (u_x1x1 + u_x2x2 - anp.cos(inner) * drift)


def square(axis):
    """All points with coordinates from `axis`."""
    return np.column_stack([c.ravel() for c in np.meshgrid(axis, axis)])


outline = square(np.linspace(0, 1, 25))
outline = outline[np.any((outline == 0) | (outline == 1), axis=1)]
shared = {
    "collocation_points": square(np.linspace(1 / 14, 13 / 14, 23)),
    "forcing": well_and_sink,
    "function_column": None,
    "state_kernel": 0.1 * data.kernels["state_kernel"].set_params(length_scale=0.15),
}
learned = model.pde_solver(**shared)
exact = KernelPDESolver(equation=darcy, variables=("x1", "x2"), **shared)
for each in (learned, exact):
    each.fit(outline, np.zeros(len(outline)))

# %%
# There is no warning this time, since the equation was only used where it was learned.
# How far out one is can be asked for: 1 is the border.

axis = np.linspace(0, 1, 80)
fine = square(axis)
u, u_exact = learned.predict(fine), exact.predict(fine)
reach = learned.extrapolation(shared["collocation_points"]).max()
print(f"furthest collocation point: {reach:.2f}")
print(f"relative error: {relative_l2_error(u_exact, u):.1e}")

# %%
# The picture
# -----------

figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.5), layout="constrained")
table = (len(axis), len(axis))
panels = (
    ("source", well_and_sink(fine), "BrBG_r", "f"),
    ("predicted pressure", u, "RdBu_r", "u"),
    ("predicted - true", u - u_exact, "PuOr_r", "u"),
)
for ax, (title, values, colours, label) in zip(axes, panels, strict=True):
    limit = abs(values).max()
    image = ax.pcolormesh(
        axis, axis, values.reshape(table), cmap=colours, vmin=-limit, vmax=limit
    )
    bar = figure.colorbar(image, ax=ax)
    bar.ax.set_xlabel(label)
    bar.formatter.set_powerlimits((-2, 3))
    ax.set(title=title, xlabel="x1", ylabel="x2", aspect="equal")
    ax.label_outer()
levels = 0.03 * np.array([-5, -4, -3, -2, -1, 1, 2, 3, 4, 5])
axes[1].contour(axis, axis, u.reshape(table), levels, colors="black", linewidths=0.6)
plt.show()
