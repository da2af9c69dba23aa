"""What an equation adds to predictions: exact states beside those without equations.

States of two steps know no equation. An equation that holds predicts each observation
from all others no worse than they do, whatever it is; and one of a kind that comes near
to many motions has to predict better before it counts as found.
"""

from typing import NamedTuple

import numpy as np

from keql._regression.likelihood import left_out_log_densities
from keql.model_selection._criteria import sees_noise


class Gain(NamedTuple):
    """By how much exact states make observations more probable than states without.

    The sum of `n` differences of log densities, of each observation given all others,
    and the standard error of that sum.
    """

    total: float
    error: float
    n: int


def gain_of_equations(fit):
    """The Gain of a Fit with exact states, or None where nothing is compared.

    Compared are values of states that are exact in time, or of a single one in space,
    with noise that two steps see: densities of exact data tell of rounding and
    resolution. White noise in the equations predicts little.
    """
    two_step = fit.two_step
    observations, in_time = two_step.observations, len(two_step.variables) == 1
    compared = all(L.name in observations.states for L in observations.operators)
    compared = compared and (in_time or len(observations.states) == 1)
    if not (compared and fit.is_exact) or (in_time and fit.is_driven):
        return None
    if not sees_noise(two_step):
        return None
    own = fit.result.model.regression.left_out_log_densities()
    change = own - _log_densities_without(two_step)
    error = np.std(change) * len(change) ** 0.5
    return Gain(float(np.sum(change)), float(error), len(change))


def _log_densities_without(two_step):
    """Log densities (n,) of values of states, each given all others, without equations.

    In the order of the observations of each function, sorted by operator.
    """
    observations, found = two_step.observations, []
    kernels = getattr(two_step.state_kernel, "kernels", None)
    for data in observations.functions:
        for j, level in enumerate(np.ravel(two_step.observation_noise)):
            kernel = two_step.state_kernel
            if kernels is not None:
                kernel = kernels[observations.operators[j].name]
            if np.any(data.index == j):
                given = kernel, float(level), [data.of_operator(j)]
                found.append(left_out_log_densities(*given))
    return np.concatenate(found)
