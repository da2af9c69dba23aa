"""Integrating ordinary differential equations in their features."""

import time
import warnings

import numpy as np
from scipy.integrate import solve_ivp

from keql.equation._explicit import Equations, Layout
from keql.exceptions import ExtrapolationWarning, SimulationError


def simulate(
    equation,
    t_eval,
    initial,
    forcing=None,
    inputs=None,
    *,
    method="DOP853",
    rtol=1e-9,
    **budget,
):
    """Integrate F_e(t, x, x_t, ..., y, y_t, ...) = f_e for the highest derivatives.

    `equation` is an equation of a single state, or a mapping from names to equations of
    several. See :meth:`keql.equation.LearnedEquation.simulate`; `budget` may hold
    `max_evaluations` and `max_seconds`.
    """
    layout = Layout(equation, inputs)
    equations = Equations.read(equation, forcing)
    t_eval, initial = _check_times(t_eval), layout.check_initial(initial)
    explicit = equations.check_explicit(layout, t_eval[0], initial)
    system = _System(layout, explicit, **budget)
    sizes = layout.sizes(initial, getattr(equation, "training_features", None))
    settings = {"method": method, "rtol": rtol, "atol": rtol * sizes}
    # The system itself finds, and says, that a value is not finite.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        solution = solve_ivp(
            system, t_eval[[0, -1]], initial, t_eval=t_eval, **settings
        )
    if solution.status != 0:
        raise SimulationError(
            f"the integration of {explicit} stopped at t = {system.latest:g} of "
            f"{t_eval[-1]:g}: {solution.message} The solution may end there; look at "
            "it up to that time, or use method='Radau' if the equation is stiff.",
            system.latest,
        )
    highest = explicit.solve(layout, t_eval, solution.y)
    S = layout.features(t_eval, solution.y, highest)
    _warn_of_extrapolation(equation, S, t_eval)
    return solution.y.T


def _check_times(t_eval):
    t_eval = np.asarray(t_eval, dtype=float)
    if t_eval.ndim == 2 and t_eval.shape[1] == 1:
        t_eval = t_eval[:, 0]
    is_finite = t_eval.ndim == 1 and len(t_eval) > 1 and np.all(np.isfinite(t_eval))
    if not (is_finite and np.all(np.diff(t_eval) > 0)):
        raise ValueError(
            "t_eval must be at least two finite times in rising order; the first is "
            "that of the initial values."
        )
    return t_eval


class _System:
    """The equations as a system of first order in y, with a budget."""

    def __init__(self, layout, equations, max_evaluations=200_000, max_seconds=60.0):
        self.layout, self.equations = layout, equations
        self.max_evaluations, self.max_seconds = max_evaluations, max_seconds
        self.evaluations, self.began, self.latest = 0, time.monotonic(), -np.inf

    def __call__(self, t, y):
        self.evaluations += 1
        spent = time.monotonic() - self.began
        if self.evaluations > self.max_evaluations or spent > self.max_seconds:
            raise SimulationError(
                f"the integration of {self.equations} came to t = {self.latest:g} in "
                f"{self.evaluations - 1} evaluations and {spent:.1f} seconds: raise "
                "max_evaluations or max_seconds, lower rtol's accuracy, or use "
                "method='Radau' if the equation is stiff.",
                self.latest,
            )
        y = y[:, None]
        highest = self.equations.solve(self.layout, np.array([t]), y)
        if not np.all(np.isfinite(highest)):
            raise SimulationError(
                f"the solution of {self.equations} is not finite after t = "
                f"{self.latest:g}: it grows beyond bounds there.",
                self.latest,
            )
        self.latest = max(self.latest, t)
        return self.layout.velocity(y, highest)[:, 0]


def _warn_of_extrapolation(equation, S, t_eval, rounding=1e-8):
    """Warn of times (n,) at which features (n, 1 + Q') are beyond the training's."""
    if not hasattr(equation, "extrapolation"):  # a GivenEquation
        return
    ratio = equation.extrapolation(S)
    outside = ratio > 1 + rounding
    if outside.any():
        warnings.warn(
            f"at {outside.sum()} of {len(t_eval)} times, first at t = "
            f"{t_eval[outside][0]:g}, the features of the simulated state leave the "
            "region that the equation was learned from, by a factor of up to "
            f"{ratio.max():.3g}: it is extrapolated there.",
            ExtrapolationWarning,
            stacklevel=4,
        )
