"""
Your own kernel
===============

A kernel says what one knows about a state before seeing it. Here the state lives on a
ring, and the kernel that says so is one line of code. All its derivatives are computed
automatically.
"""

# %%
# The data
# --------
#
# A substance drifts along a ring of circumference 1 and spreads,
#
# .. math:: u_t = -0.6\, u_x + 0.01\, u_{xx}.
#
# It is observed at 60 places and times, with a noise of two per cent, and never near
# the place where the ring was cut open to have a coordinate :math:`x` in [0, 1].

import autograd.numpy as anp
import numpy as np
from matplotlib import pyplot as plt

from keql import OneStepKEqL
from keql.kernels import RBF, FunctionKernel, Polynomial
from keql.metrics import relative_l2_error
from keql.plotting import ErrorDisplay, StateDisplay


def substance(points):
    """The true state at (t, x)."""
    t, x = points.T
    waves = ((1, 1.0, 0.0), (2, 0.5, 1.0))
    return sum(
        size
        * np.exp(-0.01 * (2 * np.pi * k) ** 2 * t)
        * np.cos(2 * np.pi * k * (x - 0.6 * t) + phase)
        for k, size, phase in waves
    )


rng = np.random.default_rng(0)
X = np.column_stack([rng.uniform(0, 1, 60), rng.uniform(0.15, 0.85, 60)])
y = substance(X) + 0.02 * rng.normal(size=len(X))

# %%
# The kernel
# ----------
#
# ``FunctionKernel`` takes any function of two points that is symmetric, positive
# definite and written in ``autograd.numpy``. This one depends on the angle between two
# places on the ring, so that states and all their derivatives fit together where it was
# cut. It looks at the coordinate :math:`x` only; the product with a Gaussian kernel in
# :math:`t` is a kernel of both.


def on_a_ring(x, y):
    """Smooth functions of period 1."""
    return anp.exp(4 * (anp.cos(2 * np.pi * (x - y)[..., 0]) - 1))


ring = RBF(0.5, active_dims="t") * FunctionKernel(on_a_ring, active_dims="x")
line = RBF(0.5, active_dims="t") * RBF(0.15, active_dims="x")

# %%
# A look at what we believe before seeing any data: two functions drawn from each prior,
# at the two ends of the cut.

axis = np.linspace(0, 1, 101)[:, None]
for name, kernel in (("ring", ring), ("line", line)):
    places = np.column_stack([np.zeros(101), axis])
    covariance = kernel.bind(("t", "x"))(places) + 1e-9 * np.eye(101)
    draws = np.linalg.cholesky(covariance) @ rng.normal(size=(101, 2))
    jump = abs(draws[0] - draws[-1]).max()
    print(f"{name}: the ends of two random functions differ by {jump:.1e}")

# %%
# Learning with it
# ----------------
#
# A kernel of your own goes wherever another one does.

grid = np.linspace(0, 1, 25)
collocation = np.column_stack([c.ravel() for c in np.meshgrid(grid, grid[:-1])])
models = {}
fine = np.linspace(0, 1, 80)
X_test = np.column_stack([c.ravel() for c in np.meshgrid(fine, fine)])
y_test = substance(X_test)
for name, kernel in (("line", line), ("ring", ring)):
    models[name] = OneStepKEqL(
        variables=("t", "x"),
        operators=("u", "u_x", "u_xx"),
        known_part="u_t",
        collocation_points=collocation,
        state_kernel=kernel,
        equation_kernel=Polynomial(1),
        observation_noise=0.02,
        equation_noise=0.05,
    ).fit(X, y)
    error = relative_l2_error(y_test, models[name].predict(X_test))
    print(f"{name}: {models[name].equation_}, error of the state {error:.1%}")

# %%
# The picture
# -----------
#
# With the kernel of a line the two sides of the cut, :math:`x = 0` and :math:`x = 1`,
# know nothing of each other. The errors are on one scale, which holds 99 % of those of
# the line.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
limit = abs(y_test).max()
StateDisplay.from_predictions(
    X_test, y_test, X=X, variables=("t", "x"), ax=axes[0], vmin=-limit, vmax=limit
)
axes[0].get_legend().remove()
axes[0].set_title("truth and observations")
limit = np.quantile(abs(models["line"].predict(X_test) - y_test), 0.99)
for ax, (name, model) in zip(axes[1:], models.items(), strict=True):
    ErrorDisplay.from_estimator(model, X_test, y_test, ax=ax, vmin=-limit, vmax=limit)
    ax.set_title(f"error with the kernel of a {name}")
for ax in axes:
    ax.label_outer()
plt.show()
