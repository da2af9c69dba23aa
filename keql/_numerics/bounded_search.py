"""Minimising a smooth function of a few hyperparameters within bounds."""

import numpy as np
from scipy import optimize

# Largest change of a log-hyperparameter in one run of the optimiser, and runs.
BOX, MAX_BOXES = 1.0, 30
# What rounding may change a log likelihood of an ill-conditioned kernel by, relatively.
ROUNDING = 1e-5


def best_optimum(optima):
    return min(optima, key=lambda optimum: optimum[1])


def random_starts(bounds, n_restarts, rng):
    if n_restarts == 0:
        return []
    if not np.all(np.isfinite(bounds)):
        raise ValueError(
            "n_restarts > 0 draws starts within the bounds of the kernel: all bounds "
            "must be finite."
        )
    return [rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(n_restarts)]


def minimise_within_bounds(optimizer, objective, start, bounds):
    """Minimise within the bounds; the method of ours goes in steps of limited size.

    Far from the optimum the gradient is so large (noise levels are small) that one
    step would cross the whole valley and end on the plateau of very short length
    scales, where nothing is explained and the gradient vanishes. So L-BFGS-B works in
    a box around the start, and again around the result while that lies on its border.
    """
    if callable(optimizer):
        return optimizer(objective, start, bounds=bounds)
    return _polish(objective, *minimise_in_boxes(objective, start, bounds, BOX), bounds)


def minimise_in_boxes(objective, start, bounds, size, n_boxes=MAX_BOXES, options=None):
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


def _polish(objective, theta, value, bounds):
    """Move an optimum to the root of the gradient, unless the value rises there.

    The value is flat there: minimising it leaves theta uncertain to the square root
    of rounding errors, which a change of units would show.
    """
    inside = np.all((theta > bounds.T[0], theta < bounds.T[1]), axis=0)
    if not inside.any():
        return theta, value

    def gradient(part):
        moved = theta.copy()
        moved[inside] = np.clip(part, *bounds[inside].T)
        return objective(moved)[1][inside]

    root = optimize.root(gradient, theta[inside], method="hybr")
    is_near = np.all(np.abs(root.x - theta[inside]) < 0.1)
    if not (root.success and is_near):
        return theta, value
    polished = theta.copy()
    polished[inside] = np.clip(root.x, *bounds[inside].T)
    reached = objective(polished, eval_gradient=False)
    # Differences below the rounding errors of the value say nothing.
    is_worse = reached > value + ROUNDING * max(1.0, abs(value))
    return (theta, value) if is_worse else (polished, reached)
