"""
Burgers' equation from its boundary only
========================================

Nothing is observed inside the domain, and yet the equation and the state there are
found: the equation carries what is known from the boundary inwards, while it is being
learned.
"""

# %%
# The data
# --------
#
# A solution of Burgers' equation
#
# .. math:: u_t = 0.5\, u\, u_x + 0.01\, u_{xx}
#
# on the unit square of time and space is seen at 100 points, at the first and the last
# time and at both ends. Known is that :math:`u_t` is some function of :math:`u`,
# :math:`u_x` and :math:`u_{xx}`.

import time

from matplotlib import pyplot as plt

from keql import OneStepKEqL, TwoStepKEqL
from keql.datasets import make_burgers
from keql.kernels import RBF, Polynomial
from keql.metrics import relative_l2_error
from keql.plotting import ErrorDisplay, StateDisplay

data = make_burgers(
    theta=0.5,
    nu=0.01,
    initial_condition="published",
    layout="boundary",
    collocation_shape=(26, 26),
)
print(f"{len(data.X)} observations, {len(data.collocation_points)} collocation points")

# %%
# Two steps, and one
# ------------------
#
# Both estimators take the same parameters. The kernel of the state says on which scale
# it varies, that of the equation that it is a polynomial of degree two, and the noise
# levels how exactly the observations and the equation are to be met. The two-step
# method interpolates, differentiates and then looks for an equation; derivatives inside
# are its own idea of a function, and it warns that they are poorly known. The one-step
# method looks for the state and the equation at once, and for the terms that are
# needed; states obey the equation exactly here, as its noise is small.

settings = {
    **data.problem,
    "state_kernel": RBF(0.1118, "fixed"),
    "equation_kernel": 10 * Polynomial(2),
    "observation_noise": 1e-6,
    "equation_noise": 1e-4,
}
models = {
    "two-step": TwoStepKEqL(**settings),
    "one-step": OneStepKEqL(**settings),
}
for name, model in models.items():
    start = time.perf_counter()
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - start
    error = relative_l2_error(data.y_test, model.predict(data.X_test))
    print(f"{name}: relative error of the state {error:.1e}, {seconds:.1f} s")
    print(f"    {model.equation_}")

# %%
# Why these terms
# ---------------
#
# The path has the sets of terms that were solved for, with states that obey them
# exactly. The evidence, the probability of the observations with all states and
# coefficients averaged out, tells them apart; superfluous terms lower it. Nothing was
# said about how many terms there are.

best = max(step.log_evidence for step in models["one-step"].terms_path_)
for step in models["one-step"].terms_path_:
    less, terms = best - step.log_evidence, ", ".join(step.terms)
    print(f"{len(step.terms):2d} terms  log evidence lower by {less:7.1f}  {terms}")

# %%
# The picture
# -----------
#
# The two-step state is right where it was observed and nowhere else. The last panel has
# the error of the one-step state, on a scale of its own.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
limit = abs(data.y_test).max()
for ax, (name, model) in zip(axes, models.items(), strict=False):
    StateDisplay.from_predictions(
        data.X_test,
        model.predict(data.X_test),
        X=data.X,
        variables=("t", "x"),
        ax=ax,
        vmin=-limit,
        vmax=limit,
    )
    ax.get_legend().remove()
    ax.set_title(f"{name} state and observations")
ErrorDisplay.from_estimator(models["one-step"], data.X_test, data.y_test, ax=axes[2])
axes[2].set_title("error of the one-step state")
for ax in axes:
    ax.label_outer()
plt.show()
