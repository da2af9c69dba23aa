"""A state kernel for a solver that is given none."""

import numpy as np

from keql._solving.noise_levels import solve_all
from keql.kernels import RBF, Constant


def choose_kernel(
    conditions,
    equation,
    variables,
    boxes,
    noise,
    *,
    fractions=(0.05, 0.1, 0.2, 0.4, 0.8),
    n_sweeps=4,
    n_rows=500,
    n_functions=3,
    max_iter=15,
    tol=1e-2,
):
    """An RBF kernel, and an offset, of the highest likelihood; unbound and fixed.

    The length scales are first one of the `fractions` of the extent of the domain in
    all coordinates, then each is halved and doubled, at most `n_sweeps` times, while
    that helps. The likelihood is computed for at most `n_functions` functions with
    `n_rows` conditions and collocation points each; it need not be exact to tell
    kernels apart, so that the loop, with `max_iter` and `tol`, ends early. `boxes` (M,
    2, d) are the domains of the functions.
    """
    extent = boxes[:, 1].max(axis=0) - boxes[:, 0].min(axis=0)
    extent = np.where(extent > 0, extent, 1.0)
    offset = _offset(conditions)
    sample = [_subsample(given, n_rows) for given in conditions[:n_functions]]

    def candidate(fractions, scale=1.0):
        kernel = Constant(scale, "fixed") * RBF(fractions * extent, "fixed")
        if offset:
            kernel = Constant(scale * offset, "fixed") + kernel
        return kernel

    def rate(fractions):
        kernel = candidate(np.array(fractions)).bind(variables)
        loop = {"max_iter": max_iter, "tol": tol}
        solutions = solve_all(kernel, equation, sample, noise, **loop)
        likelihood = sum(solution.likelihood for solution in solutions)
        scale = float(np.mean([solution.scale for solution in solutions]))
        return likelihood, fractions, scale

    d = len(extent)
    best = max(rate((fraction,) * d) for fraction in fractions)
    best = _pattern_search(rate, best, n_sweeps if d > 1 else 0)
    _, fractions, scale = best
    return candidate(np.array(fractions), scale if scale > 0 else 1.0)


def _pattern_search(rate, best, n_sweeps):
    """Halve and double each fraction in turn while that raises the likelihood."""
    tried = {best[1]}
    for _ in range(n_sweeps):
        before = best
        for axis in range(len(best[1])):
            for factor in (0.5, 2.0):
                fractions = list(best[1])
                fractions[axis] *= factor
                if tuple(fractions) not in tried:
                    tried.add(tuple(fractions))
                    best = max(best, rate(tuple(fractions)))
        if best is before:
            break
    return best


def _offset(conditions):
    """Variance of an unknown constant, relative to the mean square of the values."""
    observations = [item for given in conditions for item in given.observations]
    parts = [values for _, operator, values in observations if operator.order == 0]
    values = np.concatenate([*parts, []])
    square = np.mean(values**2) if values.size else 0.0
    return np.mean(values) ** 2 / square if square > 0 else 0.0


def _subsample(conditions, n_rows):
    """Some of the conditions and points, drawn at random: even strides see lines."""
    rng = np.random.RandomState(0)
    share = min(1.0, n_rows / len(conditions.values))
    sizes = [len(points) for points, _ in conditions.observed]
    wanted = [(int(np.ceil(share * size)), size) for size in sizes]
    wanted.append((n_rows, len(conditions.points)))
    *observed_rows, rows = [np.sort(rng.permutation(of)[:n]) for n, of in wanted]
    return conditions.select(observed_rows, rows)
