"""
A system of equations from scarce, noisy data
=============================================

Prey and predators were counted 25 times, with errors. Both laws are learned at once,
without a word on their form, and then tell how the populations go on.
"""

# %%
# The data
# --------
#
# The populations oscillate as in the equations of Lotka and Volterra,
#
# .. math::
#
#    \text{prey}_t &= 1.1\,\text{prey} \\
#    &\quad - 0.4\,\text{prey}\;\text{predator} \\
#    \text{predator}_t &= 0.1\,\text{prey}\;\text{predator} \\
#    &\quad - 0.4\,\text{predator},
#
# and are counted once in each unit of time, about eleven times a period. The errors are
# 2 % of the size of each population. A table has a column for each state; NaN would say
# that it was not counted.

import numpy as np
from matplotlib import pyplot as plt

from keql import OneStepKEqL
from keql.datasets import make_lotka_volterra
from keql.metrics import relative_l2_error
from keql.plotting import PhasePortraitDisplay, StateDisplay

data = make_lotka_volterra(25, noise=0.02, random_state=0)
print(data.X.shape, data.y.shape)

# %%
# Two equations, one call
# -----------------------
#
# A tuple of known parts is a system: an equation for each, all of them of the same
# operators. No kernel, no noise level and no threshold is given. States of ordinary
# differential equations obey these exactly, and the terms are those of the highest
# evidence among all polynomials.

model = OneStepKEqL(
    operators=("prey", "predator"),
    known_part=("prey_t", "predator_t"),
    states=("prey", "predator"),
    variables=("t",),
)
model.fit(data.X, data.y)
print(model.equation_)

# %%
# Each coefficient comes with a standard error.

terms, errors = model.equation_.terms(return_std=True)
for name, own in terms.items():
    for term, value in own.items():
        true = data.terms[name].get(term, 0.0)
        std = errors[name][term]
        print(f"{name:11} {term:14} {value:8.4f} +- {std:.4f}  true {true:5.2f}")

# %%
# The noise level of each state was found too, in its own units.

for name, true in zip(data.states, data.noise_std, strict=True):
    print(f"noise of {name}: {model.observation_noise_[name]:.3f}, true {true:.3f}")

# %%
# Beyond the data
# ---------------
#
# ``forecast`` integrates the learned equations on from where the populations were at
# the last observation, here for another two periods. (From other initial values it is
# ``model.equation_.simulate`` that does so.) The standard deviations come from the
# errors of the state and of the coefficients; they are larger in the second period than
# in the first, as errors of the period add up.

t_last = data.X.max()
t_new = np.linspace(t_last, t_last + 22, 400)
forecast, std = model.forecast(t_new[:, None], return_std=True)
truth = make_lotka_volterra(2, t_end=t_new[-1]).truth(t_new[:, None])
for name, known, ours in zip(data.states, truth.T, forecast.T, strict=True):
    print(f"{name}: error of the forecast {relative_l2_error(known, ours):.3f}")
for name, own in zip(data.states, std.T, strict=True):
    largest = [half.max() for half in np.split(own, 2)]
    print("{}: standard deviation up to {:.2f}, then {:.2f}".format(name, *largest))

# %%
# The picture
# -----------
#
# On the left the states with the counts, and what follows, with a band of two standard
# deviations; the truth is dashed. On the right the same in the plane of both
# populations, with the learned directions.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 4), layout="constrained", width_ratios=[3, 2]
)
StateDisplay.from_estimator(model, data.X, data.y, ax=left)
for column in range(2):
    color = left.get_lines()[2 * column].get_color()
    left.plot(t_new, forecast[:, column], color=color, lw=1, alpha=0.6)
    ends = (forecast[:, column] + k * std[:, column] for k in (-2, 2))
    left.fill_between(t_new, *ends, color=color, lw=0, alpha=0.2)
    name = None if column else "truth"
    left.plot(t_new, truth[:, column], "--", color="black", lw=0.7, label=name)
left.axvline(t_last, color="0.6", lw=0.8)
left.set(xlim=(0, t_new[-1]), ylabel="individuals")
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
PhasePortraitDisplay.from_estimator(model, data.X, data.y, ax=right)
plt.show()
