"""
Scaling to many functions
=========================

Each further function that solves the same equation teaches more about it. The fit works
on one function at a time, so that the time grows in proportion to their number.
"""

# %%
# One equation, many solutions
# ----------------------------
#
# The flows of the example on varying coefficients, each seen on the boundary and at
# eight places inside. Every flow has a state of its own with hundreds of unknowns, and
# they have the equation in common. In a step of the fit all that is needed of a state
# is how it responds to a change of the equation: a matrix with as many rows and columns
# as the equation has features, here 200. States with the same points share their
# matrices, and states with different ones can be worked on in parallel (``n_jobs``).

import time

import numpy as np
from matplotlib import pyplot as plt

from keql import OneStepKEqL
from keql.datasets import make_darcy
from keql.metrics import equation_error

numbers = np.array([4, 8, 16, 32, 64])
everything = make_darcy(n_functions=64, n_interior=8, random_state=0)
kernels = everything.kernels
judges = np.concatenate(everything.features(20, grid_size=30, random_state=1))

# %%
# The label of a function is in the last column of ``X``: a subset of the functions is a
# subset of the rows.

seconds, errors = [], []
for n_functions in numbers:
    rows = everything.X[:, 2] < n_functions
    model = OneStepKEqL(
        **everything.problem,
        state_kernel=kernels["state_kernel"],
        equation_kernel=kernels["equation_kernel"],
        observation_noise=1e-6,
        equation_noise=1e-3,
        n_inducing=200,
        n_restarts=0,
        random_state=0,
    )
    start = time.perf_counter()
    model.fit(everything.X[rows], everything.y[rows])
    per_step = (time.perf_counter() - start) / model.n_iter_
    error = equation_error(model.equation_, judges, everything.unknown_part)
    print(
        f"{n_functions:3d} functions, {rows.sum():5d} observations: {model.n_iter_:2d} "
        f"steps of {per_step:.2f} s, error of the equation {error:.1e}"
    )
    seconds.append(per_step)
    errors.append(error)

# %%
# The picture
# -----------
#
# The error is that of the learned :math:`P` on twenty functions that were not seen in
# the fit.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.loglog(numbers, errors, "o-", color="#0072B2")
left.set(ylabel="relative $L^2$ error of the equation", title="accuracy")
right.loglog(numbers, seconds, "o-", color="#0072B2", label="measured")
slope = seconds[-1] * numbers / numbers[-1]
right.loglog(numbers, slope, ":", color="black", label="in proportion")
right.set(ylabel="seconds for a step", title="time")
right.legend(frameon=False)
for ax in (left, right):
    ax.set(xlabel="number of functions")
    ax.set_xticks(numbers, [str(n) for n in numbers])
    ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
plt.show()
