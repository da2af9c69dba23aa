"""
Two doses, one system
=====================

Experiments differ in a quantity that is known, the dose of a drug. How the equations
depend on it is learned from two experiments, and tells what a third one would show.
"""

# %%
# Two experiments
# ---------------
#
# Cells grow on food and are killed by a drug,
#
# .. math::
#
#    \text{cells}_t &= 0.9\,\text{cells}\;\text{food} - \text{dose}\;\text{cells} \\
#    \text{food}_t &= -0.5\,\text{cells}\;\text{food}.
#
# Both are measured nine times with an error of 0.01, at a dose of 0.2 and one of 0.6.

import warnings

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp

from keql import OneStepKEqL
from keql.metrics import relative_l2_error
from keql.plotting import StateDisplay


def experiment(dose, t):
    """Cells and food at times, from the same start."""

    def rate(t, state):
        cells, food = state
        return [0.9 * cells * food - dose * cells, -0.5 * cells * food]

    settings = {"t_eval": t, "rtol": 1e-9, "atol": 1e-9}
    return solve_ivp(rate, (0, t[-1]), [0.1, 2.0], **settings).y.T


rng = np.random.default_rng(0)
hours, doses = np.linspace(0, 8, 9), {"low": 0.2, "high": 0.6}
tables = []
for label, dose in doses.items():
    table = pd.DataFrame(experiment(dose, hours), columns=["cells", "food"])
    table += 0.01 * rng.standard_normal(table.shape)
    tables.append(table.assign(experiment=label, t=hours))
data = pd.concat(tables)
print(data.head(3).round(3))

# %%
# Inputs
# ------
#
# An input is a known quantity that the equations may depend on: here a number for each
# experiment. It could also be a function of time, or a column of the table.

model = OneStepKEqL(
    operators=("cells", "food"),
    known_part=("cells_t", "food_t"),
    function_column="experiment",
    inputs={"dose": doses},
)
model.fit(data[["experiment", "t"]], data[["cells", "food"]])
print(model.equation_)

# %%
# One experiment could not have told the effect of the dose from other losses: there,
# the term is a multiple of ``cells``.
#
# Another dose
# ------------
#
# The equations are solved for doses that were not tried. One of them is larger than
# both that were: the simulation warns of that, and the equation still holds.

t_new = np.linspace(0, 8, 200)
start, new = {"cells": 0.1, "food": 2.0}, {}
for dose in (0.4, 0.8):
    with warnings.catch_warnings(record=True, action="always") as caught:
        new[dose] = model.equation_.simulate(t_new, start, inputs={"dose": dose})
    for warning in caught:
        print(f"{warning.category.__name__}: {warning.message}")
    error = relative_l2_error(experiment(dose, t_new).ravel(), new[dose].ravel())
    print(f"dose {dose}: relative error of the prediction {error:.3f}")

# %%
# The picture
# -----------
#
# The two experiments, and on the right the predicted cells for other doses; dashed is
# the truth.

figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
for ax, (label, dose) in zip(axes, doses.items(), strict=False):
    rows = data[["experiment", "t"]], data[["cells", "food"]]
    StateDisplay.from_estimator(model, *rows, function=label, ax=ax)
    ax.annotate(f"dose {dose}", (0.97, 0.82), xycoords="axes fraction", ha="right")
    ax.set(xlabel="hours", ylim=(0, 2.6))
for color, (dose, states) in zip(("#0072B2", "#56B4E9"), new.items(), strict=True):
    axes[2].plot(t_new, states[:, 0], color=color, label=f"cells at dose {dose}")
    axes[2].plot(t_new, experiment(dose, t_new)[:, 0], "--", color="black", lw=0.8)
axes[2].set(xlabel="hours", ylabel="cells")
axes[2].legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=2)
plt.show()
