r"""
An equation from your own table: a scratch assay
================================================

A strip is cleared of cells, which then divide and move into it. By which equation do
they? The data are a table with one row for each measurement, in a CSV file with the
columns time, position and density, in this order and with a header::

    python examples/equations/scratch_assay.py densities.csv

Made for the assays of Jin et al. (Journal of Theoretical Biology 390, 2016), but the
script looks at nothing but the order of the columns. Without a file it makes up a table
of the same kind, which is what this page shows. Needs pandas.
"""

# %%
# The table
# ---------
#
# The made-up cells obey the equation of Fisher and Kolmogorov, :math:`u_t = r u (1 -
# u/K) + D u_{xx}`, with a growth of 0.05 per hour, a capacity of 0.0017 cells per
# square micrometre, a diffusion of 700 square micrometres per hour, and errors of
# counting.

import sys

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from sklearn.base import clone

from keql import OneStepKEqL


def made_up_assay(growth=0.05, capacity=1.7e-3, diffusion=700.0):
    """Cells at 5 times and 38 positions, by explicit finite differences."""
    x = np.arange(25.0, 1900.0, 50.0)
    u = 6e-4 / (1 + np.exp((300 - abs(x - 950)) / 60))
    dt, rows = 0.1, []
    for step in range(481):
        if step % 120 == 0:
            rows.append(np.column_stack([np.full(x.size, step * dt), x, u]))
        flux = np.diff(u, prepend=u[0], append=u[-1]) / 50
        u = u + dt * (growth * u * (1 - u / capacity) + diffusion * np.diff(flux) / 50)
    table = np.concatenate(rows)
    table[:, 2] *= 1 + 0.05 * np.random.default_rng(0).normal(size=len(table))
    return pd.DataFrame(table, columns=["hours", "micrometres", "cells per um^2"])


table = pd.read_csv(sys.argv[1]) if len(sys.argv) > 1 else made_up_assay()
X, y = table.iloc[:, :2], table.iloc[:, 2]
print(table.head(3))

# %%
# From the table to an equation
# -----------------------------
#
# We say that :math:`u_t` depends on the density, its slope and its curvature, and
# nothing about how. Kernels, noise and the terms of the equation are found from the
# data. Units are those of the file. The equation is imposed at 300 points; more take
# longer.

model = OneStepKEqL(
    variables=("t", "x"),
    operators=("u", "u_x", "u_xx"),
    known_part="u_t",
    collocation_points=300,
).fit(X, y)
print(model.equation_)
print(f"estimated noise of a density: {model.observation_noise_ / y.mean():.0%}")

# %%
# A table of the terms, with standard errors; the contribution is the size of a term on
# the data. For the made-up cells, the three terms of the equation are found: growth,
# its limit, and that the cells spread.

print(model.equation_.to_frame())

# %%
# Is it to be believed?
# ---------------------
#
# We learn again without some of the rows and predict these: every fifth one, and all
# those of a time. To predict the last time from those before is to extrapolate.

times = X.iloc[:, 0].to_numpy()
middle, last = np.unique(times)[[len(np.unique(times)) // 2, -1]]
parts = {
    "every fifth row": np.arange(len(y)) % 5 == 4,
    f"those at time {middle:g}": times == middle,
    f"those at time {last:g}, the last": times == last,
}
print(f"{'rows held out':30}    R^2   equation learned from the others")
for name, out in parts.items():
    other = clone(model).fit(X[~out], y[~out])
    print(f"{name:30} {other.score(X[out], y[out]):6.3f}   {other.equation_}")

# %%
# For the made-up cells all three have the terms of the equation above, and coefficients
# within two of its standard errors: it does not hang on single rows. Where equations
# differ in their terms, the data do not tell them, and predictions alone can be relied
# on.
#
# The picture
# -----------
#
# Lines and bands are the learned state with two standard deviations.

figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
x = np.linspace(X.iloc[:, 1].min(), X.iloc[:, 1].max(), 300)
colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(np.unique(times))))
for t, colour in zip(np.unique(times), colours, strict=True):
    rows = pd.DataFrame({X.columns[0]: np.full(len(x), t), X.columns[1]: x})
    u, std = model.predict(rows, return_std=True)
    ax.plot(x, u, color=colour, label=f"{table.columns[0]} = {t:g}")
    ax.fill_between(x, u - 2 * std, u + 2 * std, color=colour, alpha=0.2, lw=0)
    ax.plot(X.iloc[:, 1][times == t], y[times == t], "o", ms=4, color=colour)
ax.set(xlabel=X.columns[1], ylabel=table.columns[2], xlim=(x[0], x[-1]), ylim=(0, None))
figure.suptitle(f"${model.equation_.to_latex()}$", fontsize="medium")
figure.legend(loc="outside right center", frameon=False)
plt.show()
