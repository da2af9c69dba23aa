"""A state kernel for a solver that is given none."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from keql._numerics.arguments import naming
from keql._solving.noise_levels import solve_all
from keql.kernels import RBF, Constant, Matern, SystemKernel, as_kernel


def choose_kernel(
    conditions,
    equation,
    variables,
    states,
    boxes,
    noise,
    *,
    nu=None,
    fractions=(0.05, 0.1, 0.2, 0.4, 0.8),
    n_sweeps=4,
    n_rows=500,
    n_functions=3,
    max_iter=15,
    tol=1e-2,
):
    """An RBF kernel, and an offset, of the highest likelihood; unbound and fixed.

    With `nu`, a Matern kernel of that smoothness.

    The length scales are first one of the `fractions` of the extent of the domain in
    all coordinates, then each is halved and doubled, at most `n_sweeps` times, while
    that helps. Several `states` have these length scales in common, and offsets of
    their own; their sizes are those of their data, then each in turn, but the first, is
    made four times as large or small. The likelihood is computed for at most
    `n_functions` functions with `n_rows` conditions and as many rows of equations each;
    it need not be exact to tell kernels apart, so that the loop, with `max_iter` and
    `tol`, ends early. `boxes` (M, 2, d) are the domains of the functions.
    """
    extent = boxes[:, 1].max(axis=0) - boxes[:, 0].min(axis=0)
    extent = np.where(extent > 0, extent, 1.0)
    candidates = _Candidates(conditions, states, extent, nu)
    sample = [_subsample(given, n_rows) for given in conditions[:n_functions]]

    def rate(changes):
        kernel = candidates.make(changes).bind(variables)
        loop = {"max_iter": max_iter, "tol": tol}
        solutions = solve_all(kernel, equation, sample, noise, **loop)
        if any(solution.interrupted for solution in solutions):
            raise KeyboardInterrupt
        likelihood = sum(solution.likelihood for solution in solutions)
        scale = float(np.mean([solution.scale for solution in solutions]))
        return likelihood, changes, scale

    d, others = len(extent), len(states) - 1
    first = [(fraction,) * d + (1.0,) * others for fraction in fractions]
    steps = (2.0,) * d + (4.0,) * others
    best = _search(rate, first, steps, n_sweeps if len(steps) > 1 else 0)
    _, changes, scale = best
    return candidates.make(changes, scale if scale > 0 else 1.0)


class _Candidates:
    """The kernels that are compared, for data of several functions.

    The variances (S,) of the states, and of their offsets relative to these, are those
    of the data; that of a single state has no unit, as its scale is sought.
    """

    def __init__(self, conditions, states, extent, nu):
        self.states, self.extent, self.nu = states, extent, nu
        self.variances, self.offsets = np.ones(len(states)), np.zeros(len(states))
        squares = np.zeros(len(states))
        for s, name in enumerate(states):
            squares[s], self.offsets[s] = _square_and_offset(conditions, name)
        if len(states) > 1 and squares.any():
            # A state without data is as large as the others are in the mean.
            mean = np.exp(np.mean(np.log(squares[squares > 0])))
            self.variances = np.where(squares > 0, squares, mean)

    def make(self, changes, scale=1.0):
        """The kernel, or SystemKernel, for changes of lengths and of sizes.

        `changes` has the d length scales in units of the extent, then factors of the
        sizes of all states but the first.
        """
        d = len(self.extent)
        lengths = np.array(changes[:d]) * self.extent
        factors = np.square([1.0, *changes[d:]])
        kernels = [
            self._of_state(lengths, float(scale * variance), offset)
            for variance, offset in zip(
                factors * self.variances, self.offsets, strict=True
            )
        ]
        if len(kernels) == 1:
            return kernels[0]
        return SystemKernel(dict(zip(self.states, kernels, strict=True)))

    def _of_state(self, lengths, variance, offset):
        kernel = RBF(lengths, "fixed")
        if self.nu is not None:
            kernel = Matern(lengths, "fixed", self.nu)
        kernel = Constant(variance, "fixed") * kernel
        if offset:
            kernel = Constant(variance * offset, "fixed") + kernel
        return kernel


def _search(rate, first, steps, n_sweeps):
    """The best of the `first` changes and others; that so far if it is interrupted."""
    rated = []

    def kept(changes):
        rated.append(rate(changes))
        return rated[-1]

    try:
        return _pattern_search(kept, max(map(kept, first)), steps, n_sweeps)
    except KeyboardInterrupt:
        if not rated:
            raise
        warnings.warn(
            "KernelPDESolver: interrupted while a kernel was looked for: the equation "
            f"is solved with the best of {len(rated)} kernels; give a state_kernel, or "
            "fit again to go on.",
            ConvergenceWarning,
            stacklevel=6,
        )
        return max(rated)


def _pattern_search(rate, best, steps, n_sweeps):
    """Change each entry in turn by its factor while that raises the likelihood."""
    tried = {best[1]}
    for _ in range(n_sweeps):
        before = best
        for axis, step in enumerate(steps):
            for factor in (1 / step, step):
                changes = list(best[1])
                changes[axis] *= factor
                if tuple(changes) not in tried:
                    tried.add(tuple(changes))
                    best = max(best, rate(tuple(changes)))
        if best is before:
            break
    return best


def _square_and_offset(conditions, state):
    """Mean square of the values of a state, and the part of it of their mean."""
    observations = [item for given in conditions for item in given.observations]
    parts = [
        values
        for _, operator, values in observations
        if operator.order == 0 and operator.state == state
    ]
    values = np.concatenate([*parts, []])
    square = np.mean(values**2) if values.size else 0.0
    return square, (np.mean(values) ** 2 / square if square > 0 else 0.0)


def _subsample(conditions, n_rows):
    """Some of the conditions and points, drawn at random: even strides see lines."""
    rng = np.random.RandomState(0)
    share = min(1.0, n_rows / len(conditions.values))
    sizes = [len(points) for points, _ in conditions.observed]
    wanted = [(int(np.ceil(share * size)), size) for size in sizes]
    n_points = n_rows // conditions.rows.n_equations
    wanted.append((n_points, len(conditions.points)))
    *observed_rows, rows = [np.sort(rng.permutation(of)[:n]) for n, of in wanted]
    return conditions.select(observed_rows, rows)


def kernel_of_states(given, states):
    """A kernel that was given, of several states a SystemKernel.

    It may be one for all of them, a dict by name, or a SystemKernel.
    """
    given = given.kernels if isinstance(given, SystemKernel) else given
    if isinstance(given, dict):
        missing = [name for name in states if name not in given]
        if missing:
            raise ValueError(
                f"state_kernel has no kernel for {', '.join(missing)}: the states are "
                f"{', '.join(states)}. Give one for each, or one for all."
            )
    else:
        given = dict.fromkeys(states, given)
    with naming("state_kernel"):
        kernels = {name: as_kernel(given[name]) for name in states}
    return kernels[states[0]] if len(states) == 1 else SystemKernel(kernels)
