"""Integrating an ordinary differential equation in its features."""

import time
import warnings

import numpy as np
from scipy.integrate import solve_ivp

from keql._numerics.linalg import rms
from keql.exceptions import ExtrapolationWarning, SimulationError


def simulate(
    equation, t_eval, initial, forcing=None, *, method="DOP853", rtol=1e-9, **budget
):
    """Integrate F(t, u, u_t, ...) = f for its highest derivative.

    See :meth:`keql.equation.LearnedEquation.simulate`; `budget` may hold
    `max_evaluations` and `max_seconds`.
    """
    system = _System(equation, forcing, **budget)
    t_eval, initial = _check_times(t_eval), _check_initial(initial, system.order)
    system.check_explicit(t_eval[0], initial)
    absolute = rtol * (system.size_of_states(initial) or 1.0)
    settings = {"method": method, "rtol": rtol, "atol": absolute}
    # The system itself finds, and says, that a value is not finite.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        solution = solve_ivp(
            system, t_eval[[0, -1]], initial, t_eval=t_eval, **settings
        )
    if solution.status != 0:
        raise SimulationError(
            f"the integration of {equation} stopped at t = {system.latest:g} of "
            f"{t_eval[-1]:g}: {solution.message} The solution may end there; look at "
            "it up to that time, or use method='Radau' if the equation is stiff.",
            system.latest,
        )
    states = solution.y.T
    _warn_of_extrapolation(equation, system.features(t_eval, states.T), t_eval)
    return states


def _plain_derivatives(equation):
    """Orders of the operators, which are multiples of derivatives, and the factors."""
    if len(equation.variables) != 1:
        raise ValueError(
            f"simulate integrates ordinary differential equations, but this one has "
            f"the variables {', '.join(equation.variables)}: use KernelPDESolver."
        )
    for operator in equation.operators:
        if len(operator.terms) > 1:
            raise ValueError(
                f"simulate needs plain derivatives as operators, not "
                f"{operator.name!r}: learn with each derivative as its own operator."
            )
    terms = [operator.terms[0] for operator in equation.operators]
    orders = [a[0] for a, _ in terms]
    if max(orders) == 0:
        raise ValueError("simulate needs a derivative: the equation has none.")
    return orders, np.array([factor for _, factor in terms])


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


def _check_initial(initial, order):
    initial = np.atleast_1d(np.asarray(initial, dtype=float))
    if initial.shape != (order,) or not np.all(np.isfinite(initial)):
        names = ["u", *(f"its derivative of order {k}" for k in range(1, order))]
        raise ValueError(
            f"initial has shape {initial.shape}: an equation of order {order} needs "
            f"{order} finite value(s), {', '.join(names)}."
        )
    return initial


class _System:
    """The equation as a system of first order in u, u_t, ..., with a budget."""

    def __init__(self, equation, forcing, max_evaluations=200_000, max_seconds=60.0):
        if equation.has_forcing and forcing is None:
            raise ValueError(
                "forcing is None, but the equation has a right-hand side: give it as a "
                "function of points (n, 1), for zero lambda points: 0 * points[:, 0]."
            )
        self.equation, self.forcing = equation, forcing
        self.orders, self.factors = _plain_derivatives(equation)
        self.order = max(self.orders)
        self.highest = self.orders.index(self.order)  # position among the operators
        self.max_evaluations, self.max_seconds = max_evaluations, max_seconds
        self.evaluations, self.began, self.latest = 0, time.monotonic(), -np.inf

    def size_of_states(self, initial):
        """The largest of the initial values and of the features learned from."""
        learned_from = getattr(self.equation, "training_features", None)
        size = np.max(np.abs(initial), initial=0.0)
        return size if learned_from is None else max(size, rms(learned_from[:, 1:]))

    def features(self, t, y, highest=None):
        """Features at times (n,) of states (order, n); the highest derivative last."""
        derivatives = np.vstack([y, np.zeros(y.shape[1])])
        derivatives[-1] = self._solve(t, y) if highest is None else highest
        columns = derivatives[self.orders] * self.factors[:, None]
        return np.column_stack([t, columns.T])

    def _solve(self, t, y):
        """The highest derivative, which enters linearly."""
        zero, factor = self.features(t, y, highest=0.0), self.factors[self.highest]
        slope = self.equation.gradient(zero)[:, 1 + self.highest] * factor
        right = 0.0 if self.forcing is None else np.ravel(self.forcing(t[:, None]))
        return (right - self.equation(zero)) / slope

    def check_explicit(self, t, initial, tolerance=1e-8):
        """Refuse an equation that is not solved for its highest derivative.

        The slope in it may change by the part `tolerance`, which rounding may cause.
        """
        y, t = initial[:, None], np.array([t])
        features = [self.features(t, y, highest=value) for value in (0.0, 1.0, -3.0)]
        slopes = [self.equation.gradient(S)[0, 1 + self.highest] for S in features]
        if slopes[0] == 0 or np.ptp(slopes) > tolerance * abs(slopes[0]):
            name = self.equation.operators[self.highest].name
            raise ValueError(
                f"the equation cannot be solved for {name}: it must enter linearly, as "
                "the known part does."
            )

    def __call__(self, t, y):
        self.evaluations += 1
        spent = time.monotonic() - self.began
        if self.evaluations > self.max_evaluations or spent > self.max_seconds:
            raise SimulationError(
                f"the integration of {self.equation} came to t = {self.latest:g} in "
                f"{self.evaluations - 1} evaluations and {spent:.1f} seconds: raise "
                "max_evaluations or max_seconds, lower rtol's accuracy, or use "
                "method='Radau' if the equation is stiff.",
                self.latest,
            )
        highest = self._solve(np.array([t]), y[:, None])
        if not np.all(np.isfinite(highest)):
            raise SimulationError(
                f"the solution of {self.equation} is not finite after t = "
                f"{self.latest:g}: it grows beyond bounds there.",
                self.latest,
            )
        self.latest = max(self.latest, t)
        return np.append(y[1:], highest)


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
