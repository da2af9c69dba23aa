"""
The forecast of an oscillator
=============================

An oscillation was measured 40 times, with errors. Its equation is learned, and tells
how the oscillation goes on, and how sure that is.
"""

# %%
# The data
# --------
#
# Van der Pol's oscillator feeds itself while it is small and is damped while it is
# large,
#
# .. math:: u_{tt} = (1 - u^2)\, u_t - u,
#
# and so comes to a cycle that does not depend on where it began. It starts small and is
# measured 40 times in 15 units of time, a little more than two turns, with errors of
# 0.1, which are 5 % of its amplitude.

import warnings

import numpy as np
from matplotlib import pyplot as plt
from scipy.integrate import solve_ivp

from keql import OneStepKEqL

motion = solve_ivp(
    lambda t, state: [state[1], (1 - state[0] ** 2) * state[1] - state[0]],
    (0, 30),
    [0.5, 0.0],
    rtol=1e-10,
    atol=1e-10,
    dense_output=True,
)
rng = np.random.default_rng(2)
t = np.linspace(0, 15, 40)
y = motion.sol(t)[0] + 0.1 * rng.standard_normal(t.size)

# %%
# The equation
# ------------
#
# All that is said is that the acceleration depends on :math:`u` and :math:`u_t`. The
# quadratic polynomials that are tried first do not describe these data, the cubic ones
# do. The state is integrated, so that it obeys the equation exactly, and the terms are
# those of the highest evidence. Few noisy values leave the equation uncertain, and a
# warning says by how much.

model = OneStepKEqL(operators=("u", "u_t"), known_part="u_tt", variables=("t",))
with warnings.catch_warnings(record=True, action="always") as said:
    model.fit(t[:, None], y)
print(model.equation_)
print(*(warning.message for warning in said), sep="\n")

# %%
# Each coefficient has a standard error; the noise level was found as well.

terms, errors = model.equation_.terms(return_std=True)
for name, true in (("u^2 u_t", -1.0), ("u_t", 1.0), ("u", -1.0)):
    print(f"{name:8} {terms[name]:7.3f} +- {errors[name]:.3f}  true {true:4.1f}")
print(f"noise    {model.observation_noise_:7.3f}")

# %%
# The forecast
# ------------
#
# ``forecast`` integrates the equation on, beyond the data. Its standard deviations come
# from the errors of the state and of the coefficients together. A band of 1.645 of them
# to either side should hold the truth in 90 of 100 cases. All times of a forecast are
# one case, as their errors come from the same few coefficients: with four draws of the
# errors of measurement the band held the truth at 74, 98, 100 and 100 % of these times.

t_new = np.linspace(0, 30, 600)
truth = motion.sol(t_new)[0]
u, std = model.forecast(t_new[:, None], return_std=True)
for name, part in (("measured", t_new <= t[-1]), ("forecast", t_new > t[-1])):
    error = np.sqrt(np.mean((u - truth)[part] ** 2))
    inside = np.mean(np.abs(u - truth)[part] < 1.645 * std[part])
    print(f"{name}: error {error:.3f}, {inside:.0%} of the truth in the band")

# %%
# The picture
# -----------
#
# The cycle is stable, so that errors of size die out while those of phase add up: the
# band, drawn once more around zero with the error of the state, is widest where the
# state changes fastest, and grows with every turn.

figure, (above, below) = plt.subplots(
    2, 1, figsize=(9, 5), sharex=True, layout="constrained", height_ratios=[2, 1]
)
band = 1.645 * std
above.fill_between(t_new, u - band, u + band, color="#0072B2", alpha=0.3, lw=0)
above.plot(t_new, u, color="#0072B2", label="learned, with a 90 % band")
above.plot(t_new, truth, "--", color="black", lw=1, label="truth")
above.plot(t, y, "o", ms=4, mfc="white", mec="black", label="measured")
above.set(ylabel="u")
above.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
below.fill_between(t_new, -band, band, color="0.45", alpha=0.3, lw=0)
below.plot(t_new, u - truth, color="#0072B2", lw=1)
below.set(xlabel="t", ylabel="error", xlim=(0, 30))
for ax in (above, below):
    ax.axvline(t[-1], color="0.6", lw=0.8)
plt.show()
