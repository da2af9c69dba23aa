"""
Noise and uncertainty
=====================

Observations are noisy, some are missing, and the terms that one allows for may not be
quite those of nature. What can one still rely on? A fit gives the standard deviation of
its state, and held-out observations tell whether to believe it.
"""

# %%
# The data
# --------
#
# A damped pendulum, :math:`u_{tt} = -\sin u - 0.1\, u_t`, is observed at random times
# with a noise of 0.15. Nobody looked between 7 and 11.

import numpy as np
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import KFold

from keql import OneStepKEqL, TwoStepKEqL
from keql.kernels import Constant, Polynomial
from keql.metrics import relative_l2_error
from keql.plotting import StateDisplay

rng = np.random.default_rng(0)
motion = solve_ivp(
    lambda t, y: [y[1], -np.sin(y[0]) - 0.1 * y[1]],
    (0, 20),
    [2.8, 0.0],
    dense_output=True,
    rtol=1e-9,
    atol=1e-9,
).sol
t = np.sort(rng.uniform(0, 20, 80))
t = t[(t < 7) | (t > 11)]
y = motion(t)[0] + 0.15 * rng.normal(size=len(t))
X = t[:, None]
X_test = np.linspace(0, 20, 500)[:, None]
y_test = motion(X_test.ravel())[0]

# %%
# An equation that is nearly right
# --------------------------------
#
# We allow for polynomials of degree three in :math:`u` and :math:`u_t`. The sine is no
# such polynomial, so that no equation of this kind holds exactly. By default states are
# integrated all the same, and obey the equation that is learned exactly. How exactly it
# is to hold otherwise is said by ``equation_noise``, in units of :math:`u_{tt}`. Angles
# and times are in natural units, so that coefficients are of the order of one: that is
# what a fixed factor of the kernel says, which would be found otherwise.

problem = {
    "variables": ("t",),
    "operators": ("u", "u_t"),
    "known_part": "u_tt",
    "collocation_points": np.linspace(0, 20, 150)[:, None],
    "equation_kernel": Constant(1.0, "fixed") * Polynomial(3),
}
levels = {
    "no equation in the gap (two-step)": TwoStepKEqL(variables=("t",)),
    "exact states, the default": OneStepKEqL(**problem, n_terms=None),
    "equation noise 0.05": OneStepKEqL(**problem, n_terms=None, equation_noise=0.05),
}
for name, model in levels.items():
    model.fit(X, y)
    u, std = model.predict(X_test, return_std=True)
    covered = np.mean(abs(u - y_test) < 1.96 * std)
    error = relative_l2_error(y_test, u)
    print(f"{name:34} error {error:5.1%}, 95 % band covers {covered:.0%}")

# %%
# The noise of the observations was not given: it is estimated, along with the length
# scale of the state.

print(f"estimated noise {model.observation_noise_:.3f}, the true one is 0.15")

# %%
# Which one to believe
# --------------------
#
# With data of your own there is no truth to compare with, but there are observations to
# hold out. We leave out one stretch of time after the other, but for both ends, which
# would be forecasts, and ask for the mean logarithm of the density that a model
# gave to what was then observed. An error that is large compared with the standard
# deviation costs dearly.


def log_density(model, X, y):
    """Mean log density of observations, noise included."""
    u, std = model.predict(X, return_std=True)
    return norm.logpdf(y, u, np.hypot(std, model.observation_noise_)).mean()


folds = list(KFold(8).split(X))[1:-1]
for name, model in levels.items():
    densities = [
        log_density(clone(model).fit(X[seen], y[seen]), X[left_out], y[left_out])
        for seen, left_out in folds
    ]
    print(f"{name:34} {np.mean(densities):6.2f}")

# %%
# The picture
# -----------
#
# Without the equation, the gap is filled with a guess, and the band says so. With the
# equation it is bridged, and the band is narrower. What an equation that is taken
# literally cannot describe counts as noise of the observations, and is small beside it
# here. The log density can choose the noise of the equation as any other parameter: it
# is a ``scoring`` for the example on grid search.

figure, axes = plt.subplots(
    3, 1, figsize=(8, 8), layout="constrained", sharex=True, sharey=True
)
for ax, (name, model) in zip(axes, levels.items(), strict=True):
    ax.axvspan(7, 11, color="0.93", zorder=0)
    u, std = model.predict(X_test, return_std=True)
    StateDisplay.from_predictions(
        X_test, u, std=std, X=X, y=y, variables=("t",), ax=ax, label="learned state"
    )
    ax.plot(X_test, y_test, "--", color="black", lw=1, label="truth")
    ax.get_legend().remove()
    ax.set_title(name, loc="left", fontsize="medium")
    ax.set(ylim=(-2.8, 3.6))
    ax.label_outer()
handles, labels = axes[0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
plt.show()
