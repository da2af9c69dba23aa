"""Minimising a smooth function of a few hyperparameters within bounds."""

import numpy as np
from scipy import optimize


def best_optimum(optima):
    """The pair (theta, value) of least value."""
    return min(optima, key=lambda optimum: optimum[1])


def random_starts(bounds, n_restarts, rng):
    """Starts drawn uniformly within `bounds` (p, 2): a list of `n_restarts` vectors."""
    if n_restarts == 0:
        return []
    if not np.all(np.isfinite(bounds)):
        raise ValueError(
            "n_restarts > 0 draws starts within the bounds of the kernel: all bounds "
            "must be finite."
        )
    return [rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(n_restarts)]


def minimise_within_bounds(optimizer, objective, start, bounds):
    """Minimise within `bounds` (p, 2), from `start` (p,): the minimiser and its value.

    `optimizer` is scikit-learn's: a callable, or a name that stands for
    :func:`minimise_in_boxes`, the result of which is polished. `objective` returns the
    value and the gradient, or with `eval_gradient=False` the value alone.
    """
    if callable(optimizer):
        return optimizer(objective, start, bounds=bounds)
    return _polish(objective, *minimise_in_boxes(objective, start, bounds), bounds)


def minimise_in_boxes(objective, start, bounds, size=1.0, n_boxes=30, options=None):
    """Minimise by L-BFGS-B in a box around the start, then around each result.

    Far from the optimum the gradient is so large (noise levels are small) that one
    step would cross the whole valley and end on the plateau of very short length
    scales, where nothing is explained and the gradient vanishes. A box reaches as far
    as `size`, in units of theta, which are those of log-hyperparameters. A further box
    is searched while the result lies on the border of the last one, `n_boxes` in all.
    `options` are those of scipy's L-BFGS-B.
    """
    value = np.inf
    for _ in range(n_boxes):
        box = np.clip(np.add.outer(start, [-size, size]), bounds[:, :1], bounds[:, 1:])
        result = optimize.minimize(
            objective, start, method="L-BFGS-B", jac=True, bounds=box, options=options
        )
        at_border = (result.x == box.T) & (box != bounds).T
        if not at_border.any() or not result.fun < value:
            break
        start, value = result.x, result.fun
    return result.x, result.fun


def _polish(objective, theta, value, bounds, reach=0.1, rounding=1e-5):
    """Move an optimum to the root of the gradient, unless the value rises there.

    The value is flat there: minimising it leaves theta uncertain to the square root
    of rounding errors, which a change of units would show. A root further away than
    `reach`, in units of theta, is that of another optimum. `rounding` is the relative
    rounding error of a log likelihood of an ill-conditioned kernel.
    """
    inside = np.all((theta > bounds.T[0], theta < bounds.T[1]), axis=0)
    if not inside.any():
        return theta, value

    def gradient(part):
        moved = theta.copy()
        moved[inside] = np.clip(part, *bounds[inside].T)
        return objective(moved)[1][inside]

    root = optimize.root(gradient, theta[inside], method="hybr")
    is_near = np.all(np.abs(root.x - theta[inside]) < reach)
    if not (root.success and is_near):
        return theta, value
    polished = theta.copy()
    polished[inside] = np.clip(root.x, *bounds[inside].T)
    reached = objective(polished, eval_gradient=False)
    is_worse = reached > value + rounding * max(1.0, abs(value))
    return (theta, value) if is_worse else (polished, reached)
