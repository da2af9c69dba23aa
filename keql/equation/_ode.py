"""Integrating ordinary differential equations in their features."""

import time
import warnings
from collections.abc import Mapping

import numpy as np
from scipy.integrate import OdeSolver, solve_ivp

from keql._numerics.arguments import (
    as_numbers,
    check_flag,
    check_positive,
    in_short,
)
from keql.equation._explicit import Equations, Layout
from keql.exceptions import ExtrapolationWarning, SimulationError

# Of scipy's solve_ivp.
METHODS = "RK23", "RK45", "DOP853", "Radau", "BDF", "LSODA"


def simulate(
    equation,
    t_eval,
    initial,
    forcing=None,
    inputs=None,
    return_std=False,
    *,
    method="DOP853",
    rtol=1e-9,
    **budget,
):
    """Integrate F_e(t, x, x_t, ..., y, y_t, ...) = f_e for the highest derivatives.

    `equation` is an equation of a single state, or a mapping from names to equations of
    several. See :meth:`keql.equation.LearnedEquation.simulate`; `budget` may hold
    `max_evaluations` and `max_seconds`. For standard deviations, the linearised
    equations carry a root of the posterior covariance of the weights.
    """
    _check_options(inputs, return_std, method, rtol, budget)
    layout, t_eval = Layout(equation, inputs), _check_times(t_eval)
    equations = Equations.read(equation, forcing, t_eval)
    initial = layout.check_initial(initial)
    explicit = equations.check_explicit(layout, t_eval[0], initial)
    root = explicit.root_of_weights() if return_std else np.empty((0, 0))
    system = _System(layout, explicit, root, t_eval[[0, -1]], **budget)
    sizes = layout.sizes(initial, getattr(equation, "training_features", None))
    D, columns = len(initial), root.shape[1]
    sizes = np.concatenate([sizes, np.repeat(sizes, columns)])
    start = np.concatenate([initial, np.zeros(D * columns)])
    settings = {"method": method, "rtol": rtol, "atol": rtol * sizes}
    # The system itself finds, and says, that a value is not finite.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        solution = solve_ivp(system, t_eval[[0, -1]], start, t_eval=t_eval, **settings)
    if solution.status != 0:
        raise SimulationError(
            f"the integration of {explicit} stopped at t = {system.latest:g} of "
            f"{t_eval[-1]:g}: {solution.message} The solution may end there; look at "
            "it up to that time, or use method='Radau' if the equation is stiff.",
            system.latest,
        )
    y, deviations = solution.y[:D], solution.y[D:].reshape(D, columns, len(t_eval))
    S = layout.features(t_eval, y, explicit.solve(layout, t_eval, y))
    _warn_of_extrapolation(equation, S, t_eval)
    return (y.T, np.linalg.norm(deviations, axis=1).T) if return_std else y.T


def _check_options(inputs, return_std, method, rtol, budget):
    """Refuse options of the integration that have no meaning."""
    check_flag(return_std, "return_std")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise TypeError(
            f"inputs is {in_short(inputs)}: it must be {{name: number or function of "
            "points (n, 1)}, or None."
        )
    is_known = isinstance(method, str) and method in METHODS
    if not is_known and not (
        isinstance(method, type) and issubclass(method, OdeSolver)
    ):
        raise ValueError(
            f"method is {in_short(method)}: it must be one of scipy's solve_ivp, "
            f"{', '.join(METHODS)}."
        )
    check_positive(rtol, "rtol")
    for name, value in budget.items():
        if name not in {"max_evaluations", "max_seconds"}:
            raise TypeError(
                f"simulate has no option {name!r}: there are forcing, inputs, "
                "return_std, method, rtol, max_evaluations and max_seconds."
            )
        check_positive(value, name)


def _check_times(t_eval):
    t_eval = as_numbers(t_eval, "t_eval")
    if t_eval.ndim == 2 and t_eval.shape[1] == 1:
        t_eval = t_eval[:, 0]
    is_finite = t_eval.ndim == 1 and len(t_eval) > 1 and np.all(np.isfinite(t_eval))
    if not (is_finite and np.all(np.diff(t_eval) > 0)):
        raise ValueError(
            "t_eval must be at least two finite times in rising order; the first is "
            "that of the initial values."
        )
    # The shortest step that SciPy takes.
    if np.min(np.diff(t_eval)) <= 10 * np.spacing(np.max(np.abs(t_eval))):
        raise ValueError(
            f"t_eval has times near {t_eval[-1]:g} that differ by "
            f"{np.min(np.diff(t_eval)):.2g}, which is about what such numbers are "
            "rounded by: subtract the first time from all."
        )
    return t_eval


class _System:
    """The equations as a system of first order in y, with a budget.

    `root` (p, r) is one of the covariance of their weights: y (D,) is followed by its
    change (D, r) with each of its columns. It is to be integrated over a `span`.
    """

    def __init__(
        self, layout, equations, root, span, max_evaluations=200_000, max_seconds=60.0
    ):
        self.layout, self.equations, self.root = layout, equations, root
        self.span = span
        self.max_evaluations, self.max_seconds = max_evaluations, max_seconds
        self.evaluations, self.began, self.latest = 0, time.monotonic(), -np.inf

    def __call__(self, t, y):
        self.evaluations += 1
        spent = time.monotonic() - self.began
        is_over = self.evaluations > self.max_evaluations or spent > self.max_seconds
        if is_over or self._is_hopeless():
            raise SimulationError(
                f"the integration of {self.equations} came to t = {self.latest:g}, of "
                f"{self.span[1]:g}, in {self.evaluations - 1} evaluations and "
                f"{spent:.1f} seconds: raise max_evaluations or max_seconds, end "
                "t_eval earlier, lower rtol's accuracy, or use method='Radau' if the "
                "equation is stiff.",
                self.latest,
            )
        D, at = len(self.layout.known), np.array([t])
        y, changes = y[:D, None], y[D:].reshape(D, -1)
        highest = self.equations.solve(self.layout, at, y)
        if not np.all(np.isfinite(highest)):
            raise SimulationError(
                f"the solution of {self.equations} is not finite after t = "
                f"{self.latest:g}: it grows beyond bounds there.",
                self.latest,
            )
        self.latest = max(self.latest, t)
        velocity = self.layout.velocity(y, highest)[:, 0]
        if not changes.size:
            return velocity
        on_y, on_weights = self.equations.linearise(self.layout, at, y, highest)
        changes = on_y[0] @ changes + on_weights[0] @ self.root
        return np.concatenate([velocity, changes.ravel()])

    def _is_hopeless(self, after=0.05, distance=1e-6):
        """Whether a part `after` of the budget was spent on less than `distance`.

        `distance` is relative to the span. What is left would take thousands of times
        the budget, unless steps grow by as much.
        """
        begin, end = self.span
        spent = self.evaluations > after * self.max_evaluations
        return spent and self.latest - begin < distance * (end - begin)


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
