r"""
Systems and hidden states
=========================

Most things do not change alone: predators live on prey, and a drug is absorbed before
it is seen in the blood. In this fourth tutorial several states act on each other, some
are measured more often than others, and one never is. It helps to have read
:doc:`the first <tutorial_1_equation>`.
"""

# %%
# Two states
# ----------
#
# Prey and predators were counted for twenty weeks, four times a week, with errors of
# about 2 % of how much the numbers vary. The predators are hard to find, and were
# counted only every third time. The table has a column for each state; what was not
# counted is empty, NaN.

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from keql import Equation, OneStepKEqL
from keql.datasets import make_lotka_volterra
from keql.kernels import Polynomial, Restriction
from keql.plotting import StateDisplay

data = make_lotka_volterra(80, t_end=20, noise=0.02, random_state=0)
weeks = pd.DataFrame(data.X, columns=["t"])
counts = pd.DataFrame(data.y, columns=["prey", "predator"])
counts.loc[np.arange(80) % 3 > 0, "predator"] = np.nan
pd.concat([weeks, counts], axis=1).head(4).round(2)

# %%
# An equation for each state
# --------------------------
#
# ``known_part`` is a tuple: one equation for each of its entries, all of them of the
# same ``operators``. Operators are called after the columns. Errors of counting are
# known here, and said with ``observation_noise``, for each state; without it they are
# estimated.

errors = {"prey": 0.1, "predator": 0.06}
model = OneStepKEqL(
    operators=("prey", "predator"),
    known_part=("prey_t", "predator_t"),
    observation_noise=errors,
    units={"t": "week"},
).fit(weeks, counts)
print(model.equation_)

# %%
# Prey multiply and are eaten when they meet predators, who multiply by that and die
# otherwise: the equations of Lotka and Volterra, with 1.1, 0.4, 0.1 and 0.4. The digits
# in brackets are standard errors. ``equation_`` is a mapping from names to equations,
# and each has all that an equation has.

print(list(model.equation_))
model.equation_.to_frame().round(3)

# %%
# What comes next
# ---------------
#
# ``forecast`` goes on from the last week, with the uncertainty of the states and of the
# equations in its band; ``equation_.simulate`` starts anywhere else.

ahead = pd.DataFrame({"t": np.linspace(20, 30, 100)})
later, std = model.forecast(ahead, return_std=True)

figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
StateDisplay.from_estimator(model, weeks, counts, ax=ax)
for column, color in enumerate(("#0072B2", "#D55E00")):
    low, high = (
        later[:, column] - 2 * std[:, column],
        later[:, column] + 2 * std[:, column],
    )
    name = f"{counts.columns[column]}, forecast"
    ax.plot(ahead["t"], later[:, column], "--", color=color, label=name)
    ax.fill_between(ahead["t"], low, high, color=color, alpha=0.3)
ax.set(xlim=(0, 30), ylabel="number of animals")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)

# %%
# A state that nobody sees
# ------------------------
#
# A patient swallows 100 mg of a drug, and its amount in the blood is measured 15 times,
# to 1 mg. How much is still in the gut was not measured, but for the first moment, when
# all of it is there. The column is NaN otherwise.

t = np.array([0, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12])
true_blood = 100 * 1.2 / (1.2 - 0.3) * (np.exp(-0.3 * t) - np.exp(-1.2 * t))
noise = np.random.default_rng(0).standard_normal(t.size)
hours = pd.DataFrame({"t": t})
amounts = pd.DataFrame({"gut": np.nan, "blood": true_blood + noise})
amounts.loc[0, "gut"] = 100.0

# %%
# We know who acts on whom: what leaves the gut depends on the gut only, and the blood
# on both. Equations of different operators are written one by one. A ``Restriction``
# names the terms; constants are not among them, as nothing comes from nothing.


def first_order(*states):
    """A kernel for equations that are linear in states, without a constant."""
    return Restriction(Polynomial(1), list(states))


settings = {
    "states": ("gut", "blood"),
    "units": {"t": "h", "gut": "mg", "blood": "mg"},
    "observation_noise": {"gut": 0.1, "blood": 1.0},
}
model = OneStepKEqL(
    equations=[
        ("gut", Equation("gut_t", ("gut",), kernel=first_order("gut"))),
        (
            "blood",
            Equation("blood_t", ("gut", "blood"), kernel=first_order("gut", "blood")),
        ),
    ],
    **settings,
).fit(hours, amounts)
print(model.equation_)

# %%
# The drug was absorbed at a rate of 1.2 per hour and lost at 0.3, which these equations
# meet within two or three standard errors. One thing that we know has not been said:
# what leaves the gut arrives in the blood. The *sum* of both changes by what the blood
# loses,
#
# .. math:: \text{gut}_t + \text{blood}_t = P(\text{blood}),
#
# and this is the second equation now. A known part may be any combination.

balanced = OneStepKEqL(
    equations=[
        ("uptake", Equation("gut_t", ("gut",), kernel=first_order("gut"))),
        (
            "loss",
            Equation(
                {"gut_t": 1.0, "blood_t": 1.0}, ("blood",), kernel=first_order("blood")
            ),
        ),
    ],
    **settings,
).fit(hours, amounts)
print(balanced.equation_)

# %%
# What is known makes the rest more certain: the error of the loss is less than half of
# what it was. The gut, seen once, is known at all times.

times = pd.DataFrame({"t": np.linspace(0, 12, 100)})
figure, axes = plt.subplots(
    1, 2, figsize=(9, 3.2), layout="constrained", sharey=True, sharex=True
)
for ax, fitted, title in zip(
    axes, (model, balanced), ("without the balance", "with it"), strict=True
):
    states = fitted.predict(times)
    for values, name, color in zip(
        states.T, ("gut", "blood"), ("#0072B2", "#D55E00"), strict=True
    ):
        ax.plot(times["t"], values, color=color, label=name)
    ax.plot(t, amounts["blood"], "o", color="#D55E00", mfc="white", label="measured")
    truth = 100 * np.exp(-1.2 * times["t"])
    ax.plot(times["t"], truth, "--", color="black", lw=1, label="gut, truth")
    ax.set(title=title, xlabel="t (h)")
axes[0].set_ylabel("gut, blood (mg)")
axes[1].legend(frameon=False)

# %%
# What next
# ---------
#
# - States that are measured in turn, and one without any measurement:
#   :doc:`../systems/system_streams`.
# - Doses that differ between patients: :doc:`../systems/system_doses`.
# - The chapter on systems of the user guide: :doc:`/guide_systems`.

plt.show()
