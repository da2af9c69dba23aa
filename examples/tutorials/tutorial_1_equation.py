r"""
Learn an equation from scattered data
=====================================

This is the first of four tutorials. It starts with a table of measurements and ends
with the differential equation behind them. You need to know Python and what a
partial derivative is.
"""

# %%
# A table
# -------
#
# Something is measured at scattered times ``t`` and places ``x``. The measurements are
# in a table with one row for each. Here the table is computed from an equation that we
# keep to ourselves for now; yours would come from ``pd.read_csv``.

import pandas as pd
from matplotlib import pyplot as plt

from keql import OneStepKEqL, TwoStepKEqL
from keql.datasets import make_burgers
from keql.metrics import relative_l2_error
from keql.plotting import ErrorDisplay, StateDisplay

data = make_burgers(80, initial_condition="published", random_state=0)
table = pd.DataFrame({"t": data.X[:, 0], "x": data.X[:, 1], "u": data.y})
table.sample(5, random_state=0)

# %%
# There are 161 rows: the values at the first time and at both ends, where they are
# zero, and 80 at scattered places inside.


plt.figure(figsize=(5, 3), layout="constrained")
plt.scatter(
    table["t"], table["x"], c=table["u"], cmap="RdBu_r", vmin=-0.45, vmax=0.45, s=12
)
plt.colorbar().ax.set_xlabel("u")
plt.xlabel("t")
plt.ylabel("x")

# %%
# What we know, and what we do not
# --------------------------------
#
# We believe that there is an equation of the form
#
# .. math::
#
#    u_t = \text{some function of } u, u_x, u_{xx},
#
# and do not know the function. In keql an equation is written with everything on the
# left,
#
# .. math::
#
#    P(u, u_x, u_{xx}) + u_t = 0,
#
# and this is said with two parameters: ``operators`` is what the unknown part
# :math:`P` depends on, and ``known_part`` is the rest. Derivatives are written with
# subscripts, in the names of the columns.

equation = {"operators": ("u", "u_x", "u_xx"), "known_part": "u_t"}

# %%
# Two steps
# ---------
#
# The obvious way is to draw a smooth function through the data, to differentiate it,
# and then to look for a relation between the derivatives. ``TwoStepKEqL`` does this
# with kernels. It is a scikit-learn estimator: parameters when it is made, data in
# ``fit``.


X, y = table[["t", "x"]], table["u"]
two_step = TwoStepKEqL(**equation).fit(X, y)
print(two_step.equation_)

# %%
# By default :math:`P` is a polynomial of degree two, and these are all of its ten
# terms, the largest on the data first. Is the equation right? The fit warns that it
# does not explain all of its own state. One cannot tell from the numbers:
# :math:`u_{xx}` is large where :math:`u` is small, so that coefficients cannot be
# compared with each other. The table has for every term its ``contribution``, the root
# mean square of the whole term over the data.

two_step.equation_.to_frame().head(4)

# %%
# One step
# --------
#
# Values between the observations are guesses, and their second derivatives are worse.
# But if an equation holds, it holds between the observations too, and that says a lot
# about what is there. ``OneStepKEqL`` takes the same parameters and looks for the
# state :math:`u` and the equation :math:`P` at the same time.
#
# How exactly are they to be met? ``observation_noise`` is in the units of ``u``,
# ``equation_noise`` in those of :math:`u_t`. Our data have no noise, and the levels
# are small. And as we would like an equation that can be read, we ask for as few terms
# as the data call for.


one_step = OneStepKEqL(**equation, observation_noise=1e-4, equation_noise=1e-2).fit(
    X, y
)
print(one_step.equation_)

# %%
# These are the two terms of Burgers' equation, :math:`u_t = u\,u_x + 0.01\,u_{xx}`,
# from which the table was computed.
#
# How did it get to two terms? The path has a fit for each number of terms. Terms are
# taken out one by one, always the one that costs least, and the state is fitted again
# each time. The loss tells which ones were needed.

for step in one_step.terms_path_:
    print(f"{len(step.terms):2d} terms, loss {step.loss:8.3g}")

# %%
# The state
# ---------
#
# A fitted model is also a regressor of the state: it predicts :math:`u` anywhere, and
# any derivative. With your own data, ``score`` on rows that were held out tells how
# well. Here we know the truth.


X_test = pd.DataFrame(data.X_test, columns=["t", "x"])
for model in (two_step, one_step):
    u = model.predict(X_test)
    print(f"{type(model).__name__}: {relative_l2_error(data.y_test, u):.2%}")
print(one_step.predict_derivative(X_test[:3], "u_xx"))

# %%

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
StateDisplay.from_estimator(
    one_step, X, y, uncertainty=False, grid_resolution=60, ax=axes[0]
)
ErrorDisplay.from_estimator(one_step, X_test, data.y_test, ax=axes[1])

# %%
# The small dots are the *collocation points*, where the equation is imposed; by
# default there are some in the box of the data, and ``collocation_points`` sets them.
#
# What next
# ---------
#
# - Real data have noise, and kernels can be chosen: :doc:`noise, kernels and grid
#   search <tutorial_2_noise>`.
# - An equation is there to be solved: :doc:`solve and predict <tutorial_3_predict>`.
# - Several states, some of them never measured: :doc:`systems and hidden states
#   <tutorial_4_systems>`.

plt.show()
