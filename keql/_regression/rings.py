"""States on rings: coordinates at whose end functions begin again."""

import numpy as np

from keql._numerics.linalg import extent_of, size_or_one
from keql._numerics.optimisation import Interruption
from keql._regression.hidden import with_fixed_bounds
from keql._regression.likelihood import log_marginal_likelihood, maximise_likelihood
from keql.kernels import RBF, Constant


def fit_ring_prior(
    functions,
    noise,
    periods,
    *,
    lengths=(0.4, 0.2, 0.1),
    interruption=None,
    **how,
):
    """The prior of states on rings about which nothing is said, and the noise level.

    An offset plus an RBF kernel of maximum likelihood, the best of those found from
    some first `lengths`, in units of the extent of the points. `periods` (d,) has the
    lengths of the rings, and infinity for other coordinates; the other arguments are
    those of :func:`maximise_likelihood`.
    """
    values = np.concatenate([data.values for data in functions])
    extent = extent_of(np.concatenate([data.points for data in functions]))
    square, bounds = size_or_one(values) ** 2, np.outer(extent, (0.02, 30.0))
    offset = Constant(np.mean(values) ** 2, "fixed")
    variance, found = Constant(square, (1e-2 * square, 1e4 * square)), []
    how["interruption"] = interruption = interruption or Interruption(is_kept=False)
    for length in lengths:
        kernel = variance * RBF(length * extent, bounds, period=periods)
        kernel = offset + kernel if offset.constant_value else kernel
        pair = maximise_likelihood(kernel, noise, functions, **how)
        found.append((log_marginal_likelihood(*pair, functions), *pair))
        if interruption.has_come:
            break
    _, kernel, noise = max(found, key=lambda each: each[0])
    return with_fixed_bounds(kernel), noise


def refuse_other_periods(kernel, state, observations, tolerance=1e-6):
    """Refuse a state kernel whose functions do not repeat themselves on rings.

    `kernel` is bound to the coordinates; values of it, once around each ring, may
    differ by a `tolerance` of the largest.
    """
    if observations.periods is None:
        return
    points = np.concatenate([data.points for data in observations.functions])[:20]
    K = kernel(points)
    for axis, length in enumerate(observations.periods):
        if np.isinf(length):
            continue
        around = points + length * np.eye(points.shape[1])[axis]
        if np.max(np.abs(kernel(around, points) - K)) > tolerance * np.max(np.abs(K)):
            raise ValueError(
                f"state_kernel of {state} has not the period {length:g} in coordinate "
                f"{axis}, which is a ring by periods: give RBF or Matern with "
                "period=..., or Periodic, on that coordinate, or leave it open."
            )
