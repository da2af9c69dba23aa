r"""
Solve and predict with the learned equation
===========================================

A learned equation is more than a description of the data that it came from. In this
third tutorial (:doc:`the first <tutorial_1_equation>`, :doc:`the second
<tutorial_2_noise>`) it predicts what happens elsewhere: from another start, with
other values on the boundary.
"""

# %%
# A partial differential equation
# -------------------------------
#
# We learn Burgers' equation from values on the boundary of a square of time and space.

import warnings

import numpy as np
from matplotlib import pyplot as plt

from keql import KernelPDESolver, OneStepKEqL
from keql.datasets import make_burgers, make_duffing
from keql.kernels import RBF, Polynomial
from keql.metrics import relative_l2_error
from keql.plotting import StateDisplay

data = make_burgers(
    theta=0.5,
    nu=0.01,
    initial_condition="published",
    layout="boundary",
    collocation_shape=(26, 26),
)
model = OneStepKEqL(
    **data.problem,
    state_kernel=RBF(0.1118, "fixed"),
    equation_kernel=10 * Polynomial(2),
    observation_noise=1e-6,
    equation_noise=1e-4,
).fit(data.X, data.y)
print(model.equation_)

# %%
# From an equation to a solver
# ----------------------------
#
# ``pde_solver`` makes a ``KernelPDESolver`` with the learned equation and the kernel
# and collocation points of the model. It is fitted like everything else: to points and
# values, here a new initial condition, :math:`u_0 = -x \sin 2\pi x`, and zeros at both
# ends. Nothing is known about later times.

x = np.linspace(0, 1, 40)[:, None]
t = np.linspace(0, 1, 26)[1:, None]
start = np.hstack([np.zeros_like(x), x])
left, right = np.hstack([t, np.zeros_like(t)]), np.hstack([t, np.ones_like(t)])
X_new = np.vstack([start, left, right])
y_new = np.where(X_new[:, 0] == 0, -X_new[:, 1] * np.sin(2 * np.pi * X_new[:, 1]), 0.0)

solver = model.pde_solver().fit(X_new, y_new)
print("linear:", solver.linear_, " steps:", solver.n_iter_)

# %%
# How far to trust it
# -------------------
#
# A learned equation holds where it was learned. Our new state is up to twice as large
# as the one that we learned from, and when we ask for predictions, the solver warns.


axis = np.linspace(0, 1, 60)
X_test = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    u = solver.predict(X_test)
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")

# %%
# ``extrapolation`` says where: the ratio is at most 1 where all features of the
# solution, here :math:`u`, :math:`u_x` and :math:`u_{xx}`, are within the region of
# those learned from.


figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
StateDisplay.from_predictions(X_test, u, X=X_new, variables=("t", "x"), ax=axes[0])
ratio = solver.extrapolation(X_test)
StateDisplay.from_predictions(
    X_test, ratio, variables=("t", "x"), name="extrapolation", ax=axes[1]
)
axes[1].contour(axis, axis, ratio.reshape(60, 60), [1.0], colors="white")

# %%
# Is the prediction right nevertheless? An equation of two terms extrapolates better
# than one of ten. We compare with the true solution.


truth = make_burgers(
    0,
    theta=0.5,
    nu=0.01,
    initial_condition=lambda x: -x * np.sin(2 * np.pi * x),
).truth
print(f"relative error: {relative_l2_error(truth(X_test), u):.2%}")

# %%
# Any equation
# ------------
#
# The solver also takes equations that one writes down, as a function of coordinates
# and operators. The same problem with the true equation says how much of the error is
# due to learning.


exact = KernelPDESolver(
    equation=lambda u, u_t, u_x, u_xx: u_t - 0.5 * u * u_x - 0.01 * u_xx,
    collocation_points=data.collocation_points,
    variables=("t", "x"),
    state_kernel=solver.state_kernel_,
).fit(X_new, y_new)
print(f"relative error: {relative_l2_error(truth(X_test), exact.predict(X_test)):.2%}")

# %%
# An ordinary differential equation
# ---------------------------------
#
# In one variable there is a quicker way: to integrate. We learn a forced oscillator
# from 20 values, and ask what it does from another start. ``simulate`` takes the
# times, the initial :math:`u` and :math:`u_t`, and the force.


seen = make_duffing(20, t_max=15, n_collocation=300)
oscillator = OneStepKEqL(
    **seen.problem,
    state_kernel=seen.kernels["state_kernel"],
    equation_kernel=Polynomial(3),
    observation_noise=1e-6,
    equation_noise=1e-4,
).fit(seen.X, seen.y)
print(oscillator.equation_)

# %%

times = np.linspace(0, 12, 400)
states = oscillator.equation_.simulate(
    times, initial=[0.3, 0.0], forcing=lambda points: np.cos(2 * points[:, 0])
)
true = make_duffing(2, t_max=12, initial=(0.3, 0.0)).truth(times[:, None])
print(f"relative error: {relative_l2_error(true, states[:, 0]):.1e}")

# %%

plt.figure(figsize=(8, 2.6), layout="constrained")
plt.plot(times, oscillator.predict(times[:, None]), color="0.7", label="learned from")
plt.plot(times, states[:, 0], color="#0072B2", label="predicted, another start")
plt.plot(times, true, "--", color="black", lw=1, label="truth")
plt.xlabel("t")
plt.ylabel("u")
plt.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)

# %%
# What next
# ---------
#
# Several states, some of them never measured: :doc:`systems and hidden states
# <tutorial_4_systems>`. The gallery has more: coefficients that vary, operator learning
# with new sources, your own kernels, many functions at once.

plt.show()
