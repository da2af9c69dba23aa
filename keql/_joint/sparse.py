"""The joint problem of many points: one state whose equation is known.

A step needs H = T U T^* + W^-1 of the linearised functionals as in
:mod:`keql._joint.dual`, but no matrix is formed: products with H are hierarchical
(:mod:`keql.operators`), and conjugate gradients, preconditioned by a sparse inverse
Cholesky factor of H, solve for the step to a stated tolerance. Functionals come values
first and derivatives after, each coarse to fine, as in Chen, Owhadi and Schaefer,
"Sparse Cholesky factorization for solving nonlinear PDEs via Gaussian processes",
Math. Comp. 94, 2025; time and memory grow with the number of points nearly linearly.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from keql._joint.linearised import LinearisedProblem
from keql._joint.problem import Conditions
from keql._numerics.linalg import cholesky
from keql._numerics.sparse_cholesky import (
    InverseFactor,
    coarse_to_fine,
    conjugate_gradients,
    last_column,
    nearest_before,
)
from keql.operators import HierarchicalGram, KernelExpansion


@dataclass(frozen=True)
class SparseSettings:
    """How exactly, and by what means, the steps of many points are computed.

    Attributes
    ----------
    tolerance : float
        Of conjugate gradients: what their residual may add to the loss, relatively.
    max_iterations : int
        Of conjugate gradients, for one step.
    n_neighbours : int
        Entries in a column of the sparse factor besides that on the diagonal. Two and a
        half times as many halve the iterations, and take several times as long to find.
    product_error : float
        Largest relative error of products with the Gram matrix. Kernels that are not
        smooth away from zero, such as periodic ones, have larger ones.
    """

    tolerance: float = 1e-6
    max_iterations: int = 300
    n_neighbours: int = 40
    product_error: float = 1e-7


@dataclass(frozen=True)
class SparseBlock(Conditions):
    """One function of a single equation; its state is a sum of representers.

    These are those of a :class:`DualBlock`; `gram` is the :class:`HierarchicalGram` of
    the observed points, then the K collocation points, for all derivatives that occur.
    """

    kernel: object
    gram: HierarchicalGram
    settings: SparseSettings = SparseSettings()

    @property
    def functionals(self):
        """Observed functionals, then the operators at the collocation points."""
        return self.observed + self.imposed

    @property
    def n_unknowns(self):
        """Number of representers."""
        return len(self.values) + len(self.operators) * len(self.points)

    def evaluate(self, c):
        """Values of the representers on the function with coefficients `c`."""
        derivatives = self.gram.multiply(strengths(self.functionals, c, self.gram))
        return collect(self.functionals, derivatives, self.gram.orders)

    def squared_norm(self, c, z):
        """Squared RKHS norm of the state with coefficients c and values z."""
        return c @ z

    def row_weights(self, slopes):
        """What the rows of T are made of: (n_orders, N + K) factors of derivatives."""
        n, orders = len(self.values), self.gram.orders
        weights = np.zeros((len(orders), n + len(self.points)))
        start = 0
        for points, operator in self.observed:
            rows = slice(start, start + len(points))
            for _, a, factor in operator.parts:
                weights[orders.index(a), rows] += factor
            start = rows.stop
        for operator, slope in zip(self.operators, slopes, strict=True):
            for _, a, factor in operator.parts:
                weights[orders.index(a), n:] += factor * slope
        return weights

    def prior_variances(self, slopes):
        """Prior variances (N + K,) of the rows of T."""
        return self.gram.variances(self.row_weights(slopes))


def make_sparse_block(kernel, given, settings):
    """The SparseBlock of the Conditions of one function of one equation."""
    functionals = given.observed + given.imposed
    orders = orders_of([operator for _, operator in functionals])
    points = [x for x, _ in given.observed] + [given.points]
    gram = HierarchicalGram(kernel, np.concatenate(points), orders)
    error = gram.error()
    if not error <= settings.product_error:
        raise np.linalg.LinAlgError(
            f"products with the kernel {kernel} have errors of {error:.1g}, as it is "
            "not smooth away from zero: give another state_kernel, or solver='dense'."
        )
    return SparseBlock(*vars(given).values(), kernel, gram, settings)


def orders_of(operators):
    """The multi-indices that occur in operators, sorted."""
    return sorted({a for operator in operators for _, a, _ in operator.parts})


def _places(functionals):
    """The rows of each functional among points that follow on one another.

    Neighbours in the list that share one array of points share its rows.
    """
    places, last, stop = [], None, 0
    for points, _ in functionals:
        if points is not last:
            start, stop, last = stop, stop + len(points), points
        places.append(slice(start, stop))
    return places


def strengths(functionals, c, gram):
    """Strengths (n_orders, n) of the derivatives at all points, from coefficients."""
    total, first = np.zeros((len(gram.orders), len(gram.points))), 0
    for rows, (points, operator) in zip(_places(functionals), functionals, strict=True):
        own = c[first : first + len(points)]
        for _, a, factor in operator.parts:
            total[gram.orders.index(a), rows] += factor * own
        first += len(points)
    return total


def collect(functionals, derivatives, orders):
    """Values of functionals from the derivatives (n_orders, n) at all points."""
    values = []
    for rows, (_, operator) in zip(_places(functionals), functionals, strict=True):
        parts = operator.parts
        values.append(sum(f * derivatives[orders.index(a), rows] for _, a, f in parts))
    return np.concatenate(values)


class SparseModel(LinearisedProblem):
    """Linearisation of a problem with one SparseBlock, of a known equation.

    With a = lambda + mu the step is that of a DualModel without features of P,

        rt = r - (lambda/a) T v,   x = H^-1 rt,   dv = -(lambda/a) v - T^* x / a.

    Data are divided by their prior standard deviations before the linear solve.
    `error` is the largest relative error of the loss that conjugate gradients ended
    with, and `n_iterations` the largest number of them.
    """

    def __init__(self, problem, evaluation):
        super().__init__(problem, evaluation)
        self.error, self.n_iterations = 0.0, 0

    def _matrix(self, m, tangent, features):
        return self.problem.blocks[m].row_weights(tangent.slopes)

    @cached_property
    def scales(self):
        """Prior standard deviations (N + K,) of the data, noise included."""
        (block,) = self.problem.blocks
        prior = block.gram.variances(self.matrices[0])
        return np.sqrt(prior + 1 / self.problem.precisions[0])

    @cached_property
    def product(self):
        """The matrix T U T^* of the scaled functionals, for products."""
        (block,) = self.problem.blocks
        return block.gram.of_rows(self.matrices[0] / self.scales)

    @cached_property
    def factor(self):
        """The sparse InverseFactor of H without damping, scaled."""
        (block,) = self.problem.blocks
        noise = 1 / (self.problem.precisions[0] * self.scales**2)
        m = block.settings.n_neighbours
        return factorise(block.gram, self.matrices[0] / self.scales, noise, m)

    @property
    def half_log_determinant(self):
        """Half the logarithm of the determinant of H, nearly."""
        return self.factor.half_log_determinant + float(np.sum(np.log(self.scales)))

    def solve(self, right, a):
        """Solve (T U T^* / a + W^-1) x = right.

        The misfit of the residual adds to the loss what is measured by `error`.
        """
        settings = self.problem.blocks[0].settings
        noise = 1 / (self.problem.precisions[0] * self.scales**2)
        b = right / self.scales
        size = a * (b @ self.factor.solve(b))
        x, residual, n_iterations = conjugate_gradients(
            lambda x: self.product.multiply(x) / a + noise * x,
            lambda r: a * self.factor.solve(r),
            b,
            self._start() * self.scales,
            lambda r: np.sum(r**2 / noise) <= settings.tolerance * size,
            settings.max_iterations,
        )
        error = float(np.sum(residual**2 / noise) / size)
        self.error = max(self.error, error)
        self.n_iterations = max(self.n_iterations, n_iterations)
        if not error <= settings.tolerance:
            raise np.linalg.LinAlgError(self._too_smooth(error, n_iterations))
        return x / self.scales

    def _too_smooth(self, error, n_iterations):
        kernel = self.problem.blocks[0].kernel
        return (
            f"{n_iterations} iterations with a sparse factor of {len(self.scales)} "
            f"functionals left an error of {error:.1g} of the loss: the kernel "
            f"{kernel} is too smooth, or its length scale too long, for so many "
            "points. Give a state_kernel that is rougher, such as a Matern kernel of "
            "lower nu, or shorter, or fewer points with solver='dense'."
        )

    def _start(self):
        """The x for which the state is T^* x up to sign, as it is at a minimum."""
        c, slopes = self.evaluation.iterate.coefficients[0], self.tangents[0].slopes
        n = len(c) - slopes.size
        squares = np.sum(slopes**2, axis=0)
        x = np.sum(slopes * c[n:].reshape(slopes.shape), axis=0)
        x = x / np.where(squares > 0, squares, 1.0)
        return -self.problem.penalty * np.concatenate([c[:n], x])

    def _eliminate_state(self, a, b, m):
        iterate, penalty = self.evaluation.iterate, self.problem.penalty
        Tv = self.tangents[m].apply(iterate.values[m])
        right = self.evaluation.residuals[m] - penalty / a * Tv
        return None, np.empty((len(right), 0)), right

    def _summary(self, features, right):
        return None

    @staticmethod
    def solve_for_weights(b, w, summary):
        """R (0, 0) and no step: there are no weights."""
        return cholesky(np.empty((0, 0))), np.empty(0)

    def _step_of_state(self, m, parts, a, effect):
        c, penalty = self.evaluation.iterate.coefficients[m], self.problem.penalty
        x = self.solve(parts.right[m], a)
        return -(penalty / a) * c - self.tangents[m].expand(x) / a

    def posterior_states(self):
        """The state, without variances."""
        (block,), (c,) = self.problem.blocks, self.evaluation.iterate.coefficients
        return [SparseState(block.kernel, block.functionals, c)]


def factorise(gram, weights, noise, m, n_pairs=2**18):
    """The InverseFactor of functionals with m neighbours for each.

    `weights` (n_orders, n) are those of the derivatives in each functional, and `noise`
    (n,) is the variance that is added to it. Covariances are computed for about
    `n_pairs` pairs at once.
    """
    points = gram.original_points * gram.metric
    degrees = np.array([sum(a) for a in gram.orders])
    order_of = np.max(np.where(weights != 0, degrees[:, None], 0), axis=0)
    parts = [np.flatnonzero(order_of == degree) for degree in np.unique(order_of)]
    order = np.concatenate([part[coarse_to_fine(points[part])] for part in parts])
    nearest = nearest_before(points[order], m)
    n, columns = len(order), np.zeros((len(order), m + 1))
    members = np.column_stack([nearest, np.arange(n)])
    lower = np.tril_indices(m + 1)
    step = max(1, n_pairs // len(lower[0]))
    for start in range(0, n, step):
        own = order[members[start : start + step]]
        values = gram.covariances(weights, own[:, lower[0]], own[:, lower[1]])
        A = np.zeros((len(own), m + 1, m + 1))
        A[:, lower[0], lower[1]] = values
        A[:, range(m + 1), range(m + 1)] += noise[own]
        for i, matrix in enumerate(A, start=start):
            first = int(np.sum(nearest[i] < 0))
            columns[i, first:] = last_column(matrix[first:, first:])
    return InverseFactor(order, nearest, columns)


class SparseState(KernelExpansion):
    """A state of many representers, whose values come from hierarchical products.

    Sums over fewer than `n_direct` pairs of a point and a representer are direct.
    """

    n_direct = 2**26

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state."""
        if len(points) * len(self.coefficients) <= self.n_direct:
            return super().evaluate(points, operator)
        targets = [(points, operator)]
        everything = self.functionals + targets
        orders = orders_of([own for _, own in everything])
        places, n = _places(everything), len(points)
        x = [x for i, (x, _) in enumerate(everything) if i in _firsts(places)]
        gram = HierarchicalGram(self.kernel, np.concatenate(x), orders)
        c = np.concatenate([self.coefficients, np.zeros(n)])
        sources = strengths(everything, c, gram)
        rows = np.arange(places[-1].start, places[-1].stop)
        return collect(everything, gram.multiply(sources, rows), orders)[-n:]

    def variance(self, points, operator):
        """Refused: variances need a factor that is exact."""
        raise ValueError(
            "standard deviations are not available from a sparse factor, whose errors "
            "are larger than they: fit with solver='dense', on fewer points."
        )


def _firsts(places):
    """Positions of the slices that are not those before them."""
    return {i for i, own in enumerate(places) if i == 0 or own != places[i - 1]}
