"""Minus a log likelihood minimised by steps with its information."""

import numpy as np
from scipy import optimize

from keql._numerics.linalg import solve_lower


def minimise_by_scoring(
    objective, start, bounds, size=2.0, precision=1e-6, max_iter=100, found=None
):
    """Minimise minus a log likelihood by steps with its information, in a trust region.

    `objective` returns the value, the gradient (n,) and a positive semidefinite
    information (n, n), as of theta (n,), which are logarithms. A step minimises

        gradient @ step + step @ information @ step / 2

    among those that stay within the bounds (n, 2) and change none by more than a
    radius, at first and at most `size`, and is taken if the value falls. The radius
    becomes a quarter of the step where less than a quarter of the promised fall is
    met, and twice as large where a step as long as it meets three quarters (Nocedal
    and Wright, "Numerical Optimization", 2006, algorithm 4.1). The information is that
    of `objective`, with the curvature that the last step has met, taken or not: where
    it is less than that, steps go to and fro. A step on which the value rises by more
    than four times the fall that was promised says nothing of the curvature nearby: a
    likelihood falls exponentially where a kernel no longer allows the values. It ends
    when a step promises less than `precision`, relatively, or after `max_iter` steps.
    What the objective is at the start may be `found`.
    """
    theta, (value, gradient, information) = start, found or objective(start)
    radius = size
    for _ in range(max_iter):
        reach = np.clip(bounds - theta[:, None], -radius, radius)
        step = _scored_step(gradient, information, reach)
        promised = -gradient @ step - 0.5 * step @ information @ step
        if not promised > precision * max(1.0, abs(value)):
            break
        trial = np.clip(theta + step, *bounds.T)  # rounding crosses them
        found, length = objective(trial), np.max(np.abs(step))
        gain = (value - found[0]) / promised
        if not gain > 0.25:
            radius = 0.25 * length
        elif gain > 0.75 and length > 0.99 * radius:
            radius = min(2 * radius, size)
        secant = trial - theta, found[1] - gradient
        if gain > 0:
            theta, (value, gradient, information) = trial, found
        if gain > -4:
            information = _with_secant(information, *secant)
    return theta, value


def _with_secant(information, step, change):
    """The information (n, n) with the curvature that a step has met.

    By the update of Broyden, Fletcher, Goldfarb and Shanno, for the `change` of the
    gradient (Nocedal and Wright, "Numerical Optimization", 2006, equation 6.19); as it
    is if that has no positive curvature.
    """
    along = information @ step
    met, expected = step @ change, step @ along
    if not min(met, expected) > 0:
        return information
    return (
        information + np.outer(change / met, change) - np.outer(along / expected, along)
    )


def _scored_step(gradient, information, reach, least=1e-10, damping=1e-6):
    """The step (n,) that lowers the model most between the ends `reach` (n, 2).

    With scales that give the information a diagonal of ones, its Cholesky factor L and
    z the scaled step, the model is half of |L.T z + L^-1 gradient|^2. `least` is the
    smallest information that counts, in units of the largest, and `damping` what keeps
    L regular, in units of each.
    """
    own = np.diag(information)
    scales = np.sqrt(np.maximum(own, least * np.max(own)) + np.finfo(float).tiny)
    scaled = information / np.outer(scales, scales)
    L = np.linalg.cholesky(scaled + damping * np.eye(len(own)))
    target = -solve_lower(L, gradient / scales)
    free = np.flatnonzero(reach[:, 0] < reach[:, 1])
    ends = reach[free].T * scales[free]
    step = np.zeros(len(own))
    found = optimize.lsq_linear(L.T[:, free], target, ends, method="bvls")
    step[free] = found.x / scales[free]
    return step
