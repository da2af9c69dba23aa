r"""
An equation from one experiment forecasts another
=================================================

An equation is worth something if it foretells an experiment that it has not seen. Two
scratch assays, tables as in :doc:`../equations/scratch_assay`: an equation is learned
on the first, and the second is forecast with it from its first time only. Beside it
stands the usual model, logistic growth with linear diffusion, whose parameters are
fitted by least squares. ::

    python examples/predictions/assay_forecast.py first.csv second.csv

Made for the assays of Jin et al. (Journal of Theoretical Biology 390, 2016). Without
files, two assays are made up. Needs pandas.
"""

# %%
# Two tables
# ----------
#
# The made-up cells divide and move as in :math:`u_t = r(t) u (1 - u/K) + D u_{xx}`, but
# they need some hours to recover from the scratch before they divide, as real ones do.

import sys
import warnings

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

from keql import OneStepKEqL
from keql.exceptions import ExtrapolationWarning
from keql.kernels import Constant, Matern, Polynomial, Restriction
from keql.metrics import relative_l2_error


def grow(times, x, u0, growth, capacity, diffusion):
    """Densities of shape (times, positions): logistic growth and linear diffusion."""

    def rate(t, u):
        slopes = np.diff(u, prepend=u[0], append=u[-1]) / (x[1] - x[0])
        spreading = diffusion * np.diff(slopes) / (x[1] - x[0])
        return growth(t) * u * (1 - u / capacity) + spreading

    return solve_ivp(rate, times[[0, -1]], u0, "LSODA", times, rtol=1e-6, atol=1e-9).y.T


def made_up_assay(width, seed):
    """Cells at 5 times and 38 positions, counted with errors."""
    times, x = np.linspace(0, 48, 5), np.arange(25.0, 1900.0, 50.0)
    u0 = 7e-4 / (1 + np.exp((width - abs(x - 950)) / 60))
    u = grow(times, x, u0, lambda t: 0.06 * (1 - np.exp(-((t / 12) ** 2))), 1.7e-3, 700)
    u *= 1 + 0.05 * np.random.default_rng(seed).normal(size=u.shape)
    columns = np.repeat(times, x.size), np.tile(x, times.size), u.ravel()
    return pd.DataFrame(
        np.column_stack(columns), columns=["hours", "micrometres", "cells per um^2"]
    )


if len(sys.argv) > 2:
    first, second = map(pd.read_csv, sys.argv[1:3])
else:
    first, second = made_up_assay(300, seed=0), made_up_assay(200, seed=1)


def as_profiles(table):
    """Times, positions, and densities of shape (times, positions)."""
    wide = table.pivot(index=table.columns[0], columns=table.columns[1])
    return wide.index.to_numpy(), wide.columns.levels[1].to_numpy(), wide.to_numpy()


# %%
# The usual model
# ---------------
#
# Growth, capacity and diffusion for which the solution from the first profile comes
# closest to the other ones.


def usual(parameters, table):
    """The forecast of the usual model from the first time of a table."""
    times, x, u = as_profiles(table)
    growth, capacity, diffusion = np.exp(parameters)
    return grow(times, x, u[0], lambda t: growth, capacity, diffusion)


def error_of(forecast, table):
    """Relative L2 error at all times but the first."""
    return relative_l2_error(as_profiles(table)[2][1:].ravel(), forecast[1:].ravel())


scale = as_profiles(first)[2].mean()
parameters = least_squares(
    lambda p: (usual(p, first) - as_profiles(first)[2])[1:].ravel() / scale,
    np.log([0.05, 2 * scale, 500.0]),
).x
print("growth {:.3g}, capacity {:.3g}, diffusion {:.3g}".format(*np.exp(parameters)))

# %%
# Equations that are learned
# --------------------------
#
# A first fit finds the level of the noise and how smooth the profiles are. Then we
# offer three equations, the terms of which are given and their coefficients not: the
# usual one, one whose growth changes with time, and one whose diffusion changes with
# density, :math:`(D(u)\,u_x)_x`, for states of two degrees of smoothness in time each.
# As all forecasts start from the first time, it counts more than the others, by the
# ``sample_weight``.

TERMS = {
    "as usual": ["u", "u^2", "u_xx"],
    "growth changes with time": ["u", "t u", "t^2 u", "u^2", "u_xx"],
    "diffusion changes with density": ["u", "u^2", "u_xx", "u u_xx", "u_x^2"],
}
X, y = first.iloc[:, :2], first.iloc[:, 2]
hours = X.iloc[:, 0].to_numpy()


def learner(terms):
    """An estimator of an equation with these terms, products of time and features."""
    everything = Polynomial(3, active_dims=("t", "u", "u_x", "u_xx"))
    return OneStepKEqL(
        variables=("t", "x"),
        operators=("u", "u_x", "u_xx"),
        known_part="u_t",
        equation_kernel=Restriction(everything, terms),
        n_terms=None,
        collocation_points=150,
    )


explored = learner(TERMS["as usual"]).fit(X, y)
across = explored.equation_.state_kernel.k2.k2.length_scale[-1]
print(f"noise {explored.observation_noise_:.2g}, length scale across {across:.0f}")


def learn(terms, along, times=None):
    """The equation of these terms, with states that change over `along` hours."""
    profile = Matern([along, across], "fixed", nu=4.5)
    kernel = Constant(scale**2, "fixed") * (Constant(1.0, "fixed") + profile)
    model = learner(terms).set_params(
        state_kernel=kernel, observation_noise=explored.observation_noise_
    )
    rows = np.isin(hours, hours if times is None else times)
    weights = np.where(hours == hours.min(), 30.0, 1.0)
    return model.fit(X[rows], y[rows], sample_weight=weights[rows])


# %%
# Forecasts
# ---------
#
# :meth:`~keql.OneStepKEqL.pde_solver` turns a learned equation into a solver. It is
# given the first profile, with its noise, and that no cells cross the sides: the last
# column says of which operator a row holds the value.


def forecast(model, table):
    """The solution of a learned equation from the first time of a table."""
    times, x, u = as_profiles(table)
    solver = model.pde_solver(
        boundary_operators=("u", "u_x"),
        operator_column=2,
        observation_noise=explored.observation_noise_,
    )
    t = np.linspace(times[0], times[-1], 25)[1:]
    start = np.column_stack([np.full(x.size, times[0]), x, np.zeros(x.size)])
    sides = [
        np.column_stack([t, np.full(24, side), np.ones(24)]) for side in x[[0, -1]]
    ]
    solver.fit(np.vstack([start, *sides]), np.concatenate([u[0], np.zeros(48)]))
    grid = np.stack(np.meshgrid(times, x, [0.0], indexing="ij"), axis=-1)
    with warnings.catch_warnings():
        # Other densities than those learned from are what this is about.
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return solver.predict(grid.reshape(-1, 3)).reshape(u.shape)


# %%
# Which equation? Each is learned without one of the times of the first assay, four
# times over, and forecasts that assay. The second one has no say in this.


def error_without_a_time(terms, along):
    """Error of forecasts of the first assay, each learned without one time of it."""
    times = np.unique(hours)
    parts = [np.delete(times, i) for i in range(1, len(times))]
    errors = [error_of(forecast(learn(terms, along, p), first), first) for p in parts]
    return np.sqrt(np.mean(np.square(errors)))


candidates = [(name, np.ptp(hours) / part) for name in TERMS for part in (2, 1)]
errors = [error_without_a_time(TERMS[name], along) for name, along in candidates]
for (name, along), error in zip(candidates, errors, strict=True):
    print(f"{f'{name}, {along:.0f} hours':40} {error:.3f}")
name, along = candidates[int(np.argmin(errors))]

# %%
# The best one is learned from all times, and forecasts the second assay.

model = learn(TERMS[name], along)
print(model.equation_)
print("Error of the forecast of the second assay")
print(f"  learned equation: {error_of(forecast(model, second), second):.3f}")
print(f"  usual model:      {error_of(usual(parameters, second), second):.3f}")

# %%
# The picture
# -----------
#
# The second assay, and what the first one says of it.

times, x, u = as_profiles(second)
figure, axes = plt.subplots(
    1, len(times) - 1, figsize=(11, 3), sharey=True, layout="constrained"
)
ours, theirs = forecast(model, second), usual(parameters, second)
for ax, *at in zip(axes, times[1:], u[1:], ours[1:], theirs[1:], strict=True):
    ax.plot(x, at[1], "o", ms=3, mfc="white", mec="black", label="observed")
    ax.plot(x, at[2], color="#0072B2", label="learned equation")
    ax.plot(x, at[3], color="#D55E00", label="usual model")
    ax.set(title=f"{second.columns[0]} = {at[0]:g}", xlabel=second.columns[1])
axes[0].set(ylabel=second.columns[2], ylim=(0, None))
axes[0].legend(frameon=False)
plt.show()
