"""
First steps: the equation of an oscillator
==========================================

A forced Duffing oscillator is seen at 32 moments. Which equation does it obey, and what
did it do in between? Both questions are answered at once.
"""

# %%
# The data
# --------
#
# The motion solves
#
# .. math:: u_{tt} = 3 u - 3 u^3 - 0.2\, u_t + \cos 2t
#
# and starts at rest. We look at it 32 times in 50 units of time: fewer than two
# observations for each swing.

import numpy as np
from matplotlib import pyplot as plt

from keql import OneStepKEqL, TwoStepKEqL
from keql.datasets import make_duffing
from keql.kernels import Polynomial
from keql.metrics import relative_l2_error
from keql.plotting import PhasePortraitDisplay

data = make_duffing(32)
print(data.X.shape, data.y.shape)

# %%
# What is known
# -------------
#
# An estimator is told what is known of the equation, in words that one can type. Here
# it is the acceleration and the force, and that the rest depends on :math:`u` and
# :math:`u_t`:
#
# .. math:: P(u, u_t) + u_{tt} = \cos 2t.
#
# The equation is imposed at 1,000 collocation points, which need no observations. The
# data set has all of this in ``data.problem``; with data of your own you write it down
# as it is here. :math:`P` may be any polynomial of degree three, of which there are ten
# terms; those that the data call for are kept.

problem = {
    "variables": ("t",),
    "operators": ("u", "u_t"),
    "known_part": "u_tt",
    "forcing": lambda points: np.cos(2 * points[:, 0]),
    "collocation_points": np.linspace(0, 50, 1000)[:, None],
}
settings = {
    "state_kernel": data.kernels["state_kernel"],
    "equation_kernel": Polynomial(3),
    "observation_noise": 1e-6,
    "equation_noise": 1e-4,
}
model = OneStepKEqL(**problem, **settings).fit(data.X, data.y)
print(model.equation_)

# %%
# These are the three true terms. The observations are exact, and so are the
# coefficients.

for name, value in model.equation_.terms().items():
    print(f"{name:4} {value:12.8f}")

# %%
# The state
# ---------
#
# A fitted model predicts the state at any time. Interpolation of the 32 values alone,
# which is the first of the two steps of :class:`keql.TwoStepKEqL`, cannot know what
# happens between them: the fit warns that derivatives are poorly known.

two_step = TwoStepKEqL(**problem, **settings).fit(data.X, data.y)
for name, fitted in (("two-step", two_step), ("one-step", model)):
    error = relative_l2_error(data.y_test, fitted.predict(data.X_test))
    print(f"{name}: relative error {error:.1e}")

# %%
# The picture
# -----------
#
# On the left both states in the first half of the time, on the right the motion that
# was learned in the phase plane. Any derivative of a state is at hand.

figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4), layout="constrained", width_ratios=[3, 2]
)
early, seen = data.X_test[:, 0] <= 25, data.X[:, 0] <= 25
t = data.X_test[early]
left.plot(t, two_step.predict(t), color="#D55E00", lw=1, label="two-step")
left.plot(t, model.predict(t), color="#0072B2", label="one-step")
left.plot(t, data.y_test[early], "--", color="black", lw=1, label="truth")
left.plot(data.X[seen], data.y[seen], "o", mfc="white", mec="black", label="observed")
left.set(xlabel="t", ylabel="u", xlim=(0, 25))
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
PhasePortraitDisplay.from_estimator(model, data.X, ax=right)
plt.show()
