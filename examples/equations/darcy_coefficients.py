"""
Coefficients that vary: the permeability of a porous medium
===========================================================

The coefficients of an equation may be functions of the place. Here the permeability of
a medium is found from some flows through it, from values of the pressure alone.
"""

# %%
# The data
# --------
#
# The pressure of a flow through a porous medium solves
#
# .. math:: \nabla \cdot (a \nabla u) = f
#
# on the unit square, with sources :math:`f` that are known and a permeability :math:`a`
# that is not. There are 32 flows through the same medium with different sources. Each
# is observed on the boundary and at eight places inside; the last column of ``X`` says
# which flow a row belongs to.

import numpy as np
from matplotlib import pyplot as plt

from keql import OneStepKEqL
from keql.datasets import make_darcy
from keql.kernels import RBF, Polynomial
from keql.metrics import relative_l2_error
from keql.plotting import CoefficientDisplay, ErrorDisplay

data = make_darcy(n_functions=32, n_interior=8, random_state=0)
print(data.X.shape, "of", data.operators)

# %%
# A kernel for the equation
# -------------------------
#
# That the equation is linear in the state, with smooth functions of the place as
# coefficients, is said by the kernel: a product of a Gaussian kernel in the coordinates
# and a polynomial of degree one in the operators. No operator is known, and nothing
# says that the coefficients of the first derivatives have to do with those of the
# second.

settings = {
    "state_kernel": RBF(0.5, "fixed"),
    "equation_kernel": RBF(0.4, "fixed", active_dims=("x1", "x2")) * Polynomial(1),
    "observation_noise": 1e-6,
    "equation_noise": 1e-3,
    "n_inducing": 400,
    "random_state": 0,
}
model = OneStepKEqL(**data.problem, **settings).fit(data.X, data.y)
print(f"{model.n_iter_} steps, misfit {model.misfit_:.2g}")

# %%
# The learned coefficients
# ------------------------
#
# Written out, the equation is :math:`a\,(u_{x_1 x_1} + u_{x_2 x_2}) + a_{x_1} u_{x_1} +
# a_{x_2} u_{x_2} = f`. We compare with the true coefficients; the standard deviations
# come with the fit.

axis = np.linspace(0, 1, 60)
points = np.column_stack([c.ravel() for c in np.meshgrid(axis, axis)])
inner = np.cos(points).sum(axis=1)
a = np.exp(np.sin(inner))
slopes = -a[:, None] * np.cos(inner)[:, None] * np.sin(points)
true = {"u_x1x1": a, "u_x2x2": a, "u_x1": slopes[:, 0], "u_x2": slopes[:, 1]}
learned = {}
for term, values in true.items():
    learned[term], std = model.equation_.coefficient(term, points, return_std=True)
    error = relative_l2_error(values, learned[term])
    print(f"coefficient of {term:6}: error {error:.2%}, largest std {std.max():.3f}")
zero = np.abs(model.equation_.coefficient("u_x1x2", points)).max()
print(f"coefficient of u_x1x2: at most {zero:.3f}")

# %%
# The picture
# -----------
#
# The upper row has the coefficients of a second and of a first derivative, the lower
# one how far they are from the truth. The largest errors are at the sides of the
# square, where the equation was not imposed.

figure, axes = plt.subplots(2, 2, figsize=(9, 7.2), layout="constrained")
for column, term in zip(axes.T, ("u_x1x1", "u_x1"), strict=True):
    CoefficientDisplay.from_estimator(model, term, points=points, ax=column[0])
    ErrorDisplay.from_predictions(
        points, true[term], learned[term], variables=("x1", "x2"), ax=column[1]
    )
for ax in axes.flat:
    ax.set_aspect("equal")
    ax.label_outer()
plt.show()
