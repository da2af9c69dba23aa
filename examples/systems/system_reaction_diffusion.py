"""
A reaction-diffusion pair
=========================

Two fields that react and diffuse, each seen at points of its own: which terms are in
their equations, and what are they where they were not measured? The fit takes one to
two minutes.
"""

# %%
# The data
# --------
#
# An activator :math:`u` and its recovery :math:`v`, as in the equations of FitzHugh and
# Nagumo,
#
# .. math::
#
#    u_t &= 0.5\,u_{xx} + u - u^3/3 - v + 0.3 \\
#    v_t &= 0.1\,v_{xx} + 0.4\,u - 0.2\,v + 0.08 .
#
# Each is measured at 60 points of time and space, exactly, and nowhere are both.

import time

from matplotlib import pyplot as plt

from keql import OneStepKEqL
from keql.datasets import make_fitzhugh_nagumo
from keql.metrics import relative_l2_error
from keql.plotting import ErrorDisplay, StateDisplay

data = make_fitzhugh_nagumo(60, random_state=0)
print(data.y[:2].round(3))

# %%
# One call
# --------
#
# Quadratic equations do not predict these observations, so that cubic ones are tried,
# in four operators: 35 terms for each field, most of which are left out in the end.
# Fields of one space coordinate are integrated from their initial values, those at both
# ends being found as well.

model = OneStepKEqL(
    operators=("u", "u_xx", "v", "v_xx"),
    known_part=("u_t", "v_t"),
    states=("u", "v"),
    variables=("t", "x"),
)
start = time.perf_counter()
model.fit(data.X, data.y)
print(model.equation_)
print(f"{time.perf_counter() - start:.0f} s")

# %%
# The states are known where they were not measured.

predicted = model.predict(data.X_test)
for name, true, ours in zip(data.states, data.y_test.T, predicted.T, strict=True):
    print(f"{name}: error {relative_l2_error(true, ours):.4f}")

# %%
# The picture
# -----------
#
# Above both fields, each with its own observations, below their errors.

figure, axes = plt.subplots(
    2, 2, figsize=(10, 6.5), layout="constrained", sharex=True, sharey=True
)
for column, name in zip(axes.T, data.states, strict=True):
    StateDisplay.from_estimator(
        model, data.X, data.y, operator=name, grid_resolution=100, ax=column[0]
    )
    ErrorDisplay.from_estimator(
        model, data.X_test, data.y_test, operator=name, ax=column[1]
    )
for ax in axes.ravel():
    ax.label_outer()
    if ax.get_legend():
        ax.get_legend().remove()
plt.show()
