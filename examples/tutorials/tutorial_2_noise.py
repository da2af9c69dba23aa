r"""
Noise, kernels and grid search
==============================

The :doc:`first tutorial <tutorial_1_equation>` had exact data and used whatever was
the default. Now the data are noisy, and we make choices: how smooth is the state,
which terms may the equation have, and how exactly does it hold? None of these has to
be guessed.
"""

# %%
# A pendulum
# ----------
#
# A swing is filmed, and its angle read off at 60 random moments (in seconds) with an
# error of 0.1 (in radians).

import warnings

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp
from scipy.stats import norm
from sklearn.model_selection import GridSearchCV, KFold

from keql import OneStepKEqL
from keql.kernels import RBF, Constant, Matern, Polynomial
from keql.plotting import StateDisplay

rng = np.random.default_rng(1)
swing = solve_ivp(
    lambda t, y: [y[1], -np.sin(y[0]) - 0.1 * y[1]],
    (0, 20),
    [2.5, 0.0],
    dense_output=True,
    rtol=1e-9,
    atol=1e-9,
).sol
t = np.sort(rng.uniform(0, 20, 60))
X, y = t[:, None], swing(t)[0] + 0.1 * rng.normal(size=60)
X_test = np.linspace(0, 20, 400)[:, None]
y_test = swing(X_test.ravel())[0]

# %%
# Kernels
# -------
#
# A kernel says what is plausible before anything is seen. There are two in a model.
#
# - ``state_kernel``, for the state. ``RBF`` makes functions very smooth, on a length
#   scale; ``Matern`` less so, by its parameter ``nu``. Hyperparameters that are given
#   as a plain number are a start, and are fitted by maximum likelihood; those marked
#   ``"fixed"`` stay. Without a state kernel the default is an ``RBF`` kernel.
# - ``equation_kernel``, for :math:`P`. ``Polynomial(3)`` allows for all polynomials
#   of degree three, ``RBF`` for any smooth function. ``n_terms=None`` keeps all of its
#   terms; by default they are chosen.
#
# The noise of the observations is fitted as well if it is not given.


model = OneStepKEqL(
    variables=("t",),
    operators=("u", "u_t"),
    known_part="u_tt",
    collocation_points=np.linspace(0, 20, 100)[:, None],
    state_kernel=Constant(1.0) * RBF(2.0),
    equation_kernel=Polynomial(3),
    n_terms=None,
).fit(X, y)
print(model.equation_)
print("kernel:", model.state_kernel_)
print(f"noise: {model.observation_noise_:.3f}")

# %%
# Does it know what it does not know?
# -----------------------------------
#
# ``predict`` returns a standard deviation on request. If all is well, the truth is
# within two of them at 95 per cent of the times.


def covered(model):
    """How often the truth is in the band."""
    u, std = model.predict(X_test, return_std=True)
    return np.mean(abs(u - y_test) < 1.96 * std)


print(f"{covered(model):.0%}")

# %%
# Not all is well. The model takes for certain what is not:
#
# - The equation. By default ``equation_noise`` is a thousandth of the size of
#   :math:`u_{tt}`, which is to say that the equation is exact. But no cubic
#   polynomial is the sine of a pendulum.
# - The smoothness of the state. Functions of an ``RBF`` kernel are so smooth that a
#   few values tell everything about the rest.
#
# Judging by data that were held out
# ----------------------------------
#
# We do not look at the truth to do better, as there is none with real data. Instead we
# leave out some observations and ask how probable they were to a model that has not
# seen them. A *scorer* for scikit-learn is a function of a model and of data.


def log_density(model, X, y):
    """Mean log density of observations, their noise included."""
    u, std = model.predict(X, return_std=True)
    return norm.logpdf(y, u, np.hypot(std, model.observation_noise_)).mean()


# %%
# ``GridSearchCV`` tries all combinations of choices. A whole kernel can be one of
# them, and parameters of a kernel are reached with two underscores. We hold out whole
# stretches of time (``KFold`` without shuffling), since between close neighbours any
# smooth curve predicts well.


search = GridSearchCV(
    model,
    {
        "state_kernel": [Constant(1.0) * RBF(2.0), Constant(1.0) * Matern(2.0, nu=4.5)],
        "equation_kernel__degree": [1, 3],
        "equation_noise": [0.001, 0.05, 0.2],
    },
    scoring=log_density,
    cv=KFold(6),
)
with warnings.catch_warnings(record=True, action="always") as told:
    search.fit(X, y)
print(search.best_params_)
print(f"{len(told)} of 72 fits warned")

# %%
# Those that warn have not seen some of the first swings, the largest ones: small swings
# do not tell the terms of a cubic from one another, and the warnings name these terms.

scores = pd.DataFrame(search.cv_results_["params"])
scores["state_kernel"] = [type(kernel.k2).__name__ for kernel in scores["state_kernel"]]
scores["score"] = search.cv_results_["mean_test_score"]
scores.pivot_table(
    "score", "equation_noise", ["state_kernel", "equation_kernel__degree"]
).round(2)

# %%
# Equations of degree one are a line through the sine, for a pendulum with small
# swings: they are worse than those of degree three. With the ``RBF`` kernel, an
# equation that is taken for exact is clearly worse than one with some noise. With the
# rougher ``Matern`` kernel, that matters less. The search found a good model, and it
# is one that knows its limits:

best = search.best_estimator_
print(best.equation_)
print(f"covered: {covered(best):.0%}")

# %%

figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
StateDisplay.from_estimator(best, X, y, ax=ax)
ax.plot(X_test, y_test, "--", color="black", lw=1, label="truth")
ax.set(xlabel="t (s)", ylabel="angle u (rad)")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)

# %%
# Reading a function
# ------------------
#
# What did it learn? The polynomial has ten terms. The part that depends on the angle
# only is the restoring force, and it can be evaluated like any function:
# ``equation_.unknown_part`` takes rows of features in the order of
# ``equation_.feature_names``, here ``t``, ``u``, ``u_t`` and ``u_tt``.

angle = np.linspace(-2.5, 2.5, 100)
features = np.zeros((100, 4))
features[:, 1] = angle

plt.figure(figsize=(5, 3), layout="constrained")
force = best.equation_.unknown_part(features)
plt.plot(angle, force, color="#0072B2", label="learned")
plt.plot(angle, np.sin(angle), "--", color="black", lw=1, label="sin u")
plt.xlabel("angle u (rad)")
plt.ylabel("restoring force (rad/s$^2$)")
plt.legend(frameon=False)

# %%
# What next
# ---------
#
# - :doc:`Solve and predict with the learned equation <tutorial_3_predict>`.
# - The user guide, on choosing kernels and on what the standard deviations mean.

plt.show()
