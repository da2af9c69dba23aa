"""A state kernel for a solver that is given none."""

import numpy as np

from keql._solving.conditions import Conditions
from keql._solving.noise_levels import solve_all
from keql.kernels import RBF, Constant

# Length scales tried, relative to the extent of the domain.
FRACTIONS = (0.05, 0.1, 0.2, 0.4, 0.8)
# How often each of them is halved and doubled, at most.
SWEEPS = 4
# Of at most so many conditions and collocation points of so many functions.
ROWS, FUNCTIONS = 500, 3
# A likelihood need not be exact to tell kernels apart.
STEPS = {"max_iter": 15, "tol": 1e-2}


def choose_kernel(problems, equation, variables, boxes, noise):
    """An RBF kernel, and an offset, of the highest likelihood.

    The length scales are first one fraction of the extent of the domain in all
    coordinates, then each is halved and doubled while that helps. The likelihood is
    that of the boundary data and of the equation, at some of the points.

    Parameters
    ----------
    problems : list of (Conditions, ndarray of shape (K, d))
        What is given of each function, and its collocation points.
    equation : LearnedEquation, GivenEquation or None
        The equation.
    variables : tuple of str
        Names of the coordinates.
    boxes : ndarray of shape (M, 2, d)
        Domains.
    noise : Noise
        How exactly conditions and equation hold.

    Returns
    -------
    kernel : Kernel
        Unbound, with fixed hyperparameters.
    """
    extent = boxes[:, 1].max(axis=0) - boxes[:, 0].min(axis=0)
    extent = np.where(extent > 0, extent, 1.0)
    offset = _offset([conditions for conditions, _ in problems])
    sample = [_thin(*problem) for problem in problems[:FUNCTIONS]]

    def candidate(fractions, scale=1.0):
        kernel = Constant(scale, "fixed") * RBF(fractions * extent, "fixed")
        if offset:
            kernel = Constant(scale * offset, "fixed") + kernel
        return kernel

    def rate(fractions):
        kernel = candidate(fractions).bind(variables)
        outcomes = solve_all(kernel, equation, sample, noise, STEPS)
        likelihood = sum(outcome.likelihood for outcome in outcomes)
        scale = float(np.mean([outcome.scale for outcome in outcomes]))
        return likelihood, tuple(fractions), scale

    best = max(rate(np.full(len(extent), fraction)) for fraction in FRACTIONS)
    tried = {best[1]}
    for _ in range(SWEEPS if len(extent) > 1 else 0):
        before = best
        for axis in range(len(extent)):
            for factor in (0.5, 2.0):
                fractions = np.array(best[1])
                fractions[axis] *= factor
                if tuple(fractions) not in tried:
                    tried.add(tuple(fractions))
                    best = max(best, rate(fractions))
        if best is before:
            break
    _, fractions, scale = best
    return candidate(np.array(fractions), scale if scale > 0 else 1.0)


def _offset(all_conditions):
    """Variance of an unknown constant, relative to the mean square of the values."""
    values = []
    for conditions in all_conditions:
        position = 0
        for at, operator in conditions.functionals:
            if operator.order == 0:
                values.append(conditions.values[position : position + len(at)])
            position += len(at)
    values = np.concatenate(values) if values else np.zeros(1)
    size = np.mean(values**2)
    return np.mean(values) ** 2 / size if size > 0 else 0.0


def _thin(conditions, points):
    """Some of the conditions and points, drawn at random: even strides see lines."""
    rng = np.random.RandomState(0)

    def draw(n, of):
        return np.sort(rng.permutation(of)[:n])

    functionals, values, position = [], [], 0
    share = min(1.0, ROWS / len(conditions.values))
    for at, operator in conditions.functionals:
        rows = draw(int(np.ceil(share * len(at))), len(at))
        functionals.append((at[rows], operator))
        values.append(conditions.values[position + rows])
        position += len(at)
    rows = draw(ROWS, len(points))
    thinned = Conditions(functionals, np.concatenate(values), conditions.forcing[rows])
    return thinned, points[rows]
