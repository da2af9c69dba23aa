"""The joint problem in the dual: representers as unknowns, steps in observation space.

A Levenberg-Marquardt step is a linear Gaussian regression with as many functionals as
residuals, T = (observed functionals, linearised equation); only matrices of that size
are factored (design: the representer theorem in observation space).
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from keql._joint.linearised import (
    LinearisedProblem,
    LinearisedState,
    last_rows,
)
from keql._joint.problem import (
    Conditions,
    distinct_functionals,
    first_equal,
    same_points,
)
from keql._joint.state_gram import StateGram, add_block, add_to_all
from keql._numerics.linalg import (
    cholesky,
    cholesky_in_place,
    packed,
    pivoted_cholesky,
    solve_cholesky,
    solve_lower,
    unpacked,
)
from keql.operators import gram, gram_blocks, gram_diagonal, gram_rows


@dataclass(frozen=True)
class DualBlock(Conditions):
    """One function, its state as a sum of representers.

    These are the representers of its N observed functionals, then of the Q' operators
    at K points. Their Gram matrix for the state kernel is kept in parts: observed
    functionals (N, N), these against operators (N, Q' K), and a StateGram for the
    operators of each state, as different states are independent. Functions of one
    `group` have the same kernel and points, and share the latter; where many of them
    are observed at the same places they share `gram_cross` too, and `places` (N,) has
    the rows of it that are those of the function. None: all rows.
    """

    kernel: object
    group: int
    gram_values: np.ndarray
    gram_cross: np.ndarray
    gram_states: list
    places: np.ndarray | None = None

    @property
    def n_unknowns(self):
        """Number of representers."""
        return len(self.values) + self.gram_cross.shape[1]

    @property
    def cross(self):
        """Gram matrix (N, Q' K) of the observed functionals against operators."""
        return self.gram_cross if self.places is None else self.gram_cross[self.places]

    def evaluate(self, c):
        """Values of the representers on functions with coefficients `c`, in columns."""
        n, cross = len(self.values), self.cross
        imposed = cross.T @ c[:n] + self._apply_states(c[n:])
        observed = self.gram_values @ c[:n] + cross @ c[n:]
        return np.concatenate([observed, imposed])

    def _apply_states(self, c):
        """The Gram matrix of the operators times coefficients (Q' K, ...)."""
        c = c.reshape(len(self.operators), len(self.points), *c.shape[1:])
        values = np.zeros_like(c)
        for own in self.gram_states:
            values[own.members] = own.multiply(c[own.members])
        return values.reshape(-1, *c.shape[2:])

    def variances(self):
        """Prior variances (Q', K) of the operators at the points."""
        variances = np.empty((len(self.operators), len(self.points)))
        for own in self.gram_states:
            variances[own.members] = own.variances()
        return variances

    def squared_norm(self, c, z):
        """Squared RKHS norm of the state with coefficients c and values z."""
        return c @ z

    def represent(self, functionals, coefficients):
        """Coefficients of a sum of the first representers; None of any other sum."""
        ours = (self.observed + self.imposed)[: len(functionals)]
        if [len(points) for points, _ in functionals] != [len(p) for p, _ in ours]:
            return None
        c = np.zeros(self.n_unknowns)
        c[: len(coefficients)] = coefficients
        return c

    def restricted(self, points, shared):
        """The block with some of the collocation points only, given by position.

        In the dict `shared` the functions of a group, which have the same points and so
        the same ones kept, find what they share.
        """
        n_points = len(self.points)
        if self.group not in shared:
            shared[self.group] = [own.at(points) for own in self.gram_states]
        key = id(self.gram_cross)
        if key not in shared:
            cross = self.gram_cross.reshape(len(self.gram_cross), -1, n_points)
            shared[key] = cross[:, :, points].reshape(len(cross), -1)
        rows = self.rows.at(points, n_points)
        return replace(
            self,
            forcing=self.forcing[rows],
            points=self.points[points],
            rows=self.rows.select(rows, points, n_points),
            gram_cross=shared[key],
            gram_states=shared[self.group],
        )

    def widen(self, c, rows):
        """Coefficients of the state that a restricted block represents by `c`."""
        n, n_operators = len(self.values), len(self.operators)
        wide = np.zeros((n_operators, len(self.points)))
        wide[:, rows] = c[n:].reshape(n_operators, -1)
        return np.concatenate([c[:n], wide.ravel()])

    def narrow(self, c, rows):
        """Coefficients `c` of a state on the representers of a restricted block.

        None if representers of other points than these have a part in it.
        """
        n, imposed = len(self.values), c[len(self.values) :]
        kept = imposed.reshape(len(self.operators), -1)[:, rows]
        if np.count_nonzero(kept) < np.count_nonzero(imposed):
            return None
        return np.concatenate([c[:n], kept.ravel()])

    def prior(self, negligible=1e-10):
        """A function that draws coefficients of states from the prior.

        From the part of it that the representers span: values L z at the pivots of
        their Gram matrix L L^T, with z standard normal, have coefficients L^-T z.
        Parts smaller than `negligible`, relatively, are drowned by rounding.
        """
        n = len(self.values)
        whole = np.empty((self.n_unknowns, self.n_unknowns))
        whole[:n, :n], whole[:n, n:] = self.gram_values, self.cross
        whole[n:, :n] = whole[:n, n:].T
        whole[n:, n:] = self._apply_states(np.eye(self.n_unknowns - n))
        rows, pivots = pivoted_cholesky(whole, negligible)
        L = rows[pivots]

        def draw(rng):
            c = np.zeros(self.n_unknowns)
            c[pivots] = solve_lower(L, rng.standard_normal(len(L)), transposed=True)
            return c

        return draw

    def expand_values(self, x):
        """Coefficients of the sum of the representers of observations, times `x`."""
        return np.concatenate([x, np.zeros(self.gram_cross.shape[1])])

    def normal_matrix(self, slopes):
        """T U T^* for the T of a :class:`Tangent`; its lower triangle."""
        (H,) = normal_matrices([self], [slopes])
        return H

    def _observed_part(self, slopes):
        """T U T^* with the rows of observations by columns; the rest is zero."""
        n, n_rows = len(self.values), slopes.shape[1]
        H = np.zeros((n + n_rows, n + n_rows))
        H[:n, :n] = self.gram_values
        cross = self.cross.reshape(n, len(slopes), len(self.points))
        for rows, points in self.rows.slices():
            part = cross[:, :, points]
            np.einsum("nqk,qk->nk", part, slopes[:, rows], out=H[:n, n:][:, rows])
        return H


def normal_matrices(blocks, slopes, fewest=4):
    """T U T^* of functions of one group, a list of their lower triangles.

    `slopes` has those of a :class:`Tangent` for each. For at least `fewest` functions
    the Gram matrix that they share is read once. The triangles are in Fortran order, in
    which LAPACK factors lower triangles fastest.
    """
    pairs = zip(blocks, slopes, strict=True)
    matrices = [block._observed_part(own) for block, own in pairs]
    upper = [
        H[len(block.values) :, len(block.values) :]
        for H, block in zip(matrices, blocks, strict=True)
    ]
    slices = blocks[0].rows.slices()
    for i, left in enumerate(slices):
        for right in slices[i:]:
            parts = [H[left[0], right[0]] for H in upper]
            for s, own in enumerate(blocks[0].gram_states):
                if len(blocks) >= fewest:
                    add_to_all(parts, own, slopes, left, right, first=s == 0)
                    continue
                for H, of_function in zip(parts, slopes, strict=True):
                    add_block(H, own, of_function, left, right, first=s == 0)
    return [H.T for H in matrices]


def make_dual_blocks(kernels, conditions):
    """A DualBlock for each function; what functions share is computed once.

    `kernels` has the state kernel of each function, `conditions` what it has to meet.
    """
    groups = first_equal(
        list(zip(kernels, [given.points for given in conditions], strict=True)),
        lambda one, other: one[0] is other[0] and same_points(one[1], other[1]),
    )
    shared, blocks = {}, []
    for m, (kernel, given, group) in enumerate(
        zip(kernels, conditions, groups, strict=True)
    ):
        if group not in shared:
            members = [i for i, other in enumerate(groups) if other == group]
            own = [conditions[i] for i in members]
            common = dict(zip(members, _common_cross(kernel, own), strict=True))
            shared[group] = _state_grams(kernel, given), common
        states, common = shared[group]
        cross, places = common[m] or (_cross(kernel, given.observed, given), None)
        grams = gram(kernel, given.observed), cross, states, places
        blocks.append(DualBlock(*vars(given).values(), kernel, group, *grams))
    return blocks


def _cross(kernel, observed, given):
    """Gram matrix of observed functionals against the operators at the points."""
    if not given.imposed:
        return np.empty((sum(len(points) for points, _ in observed), 0))
    return gram(kernel, observed, given.imposed)


def _common_cross(kernel, conditions):
    """That of all functionals of functions with one kernel and the same points.

    For each function a pair of it and of positions of its rows; None if they are
    observed at so many places that it has more than half as many rows as all together.
    """
    observed, places = distinct_functionals(conditions)
    n_rows = sum(len(points) for points, _ in observed)
    if 2 * n_rows > sum(map(len, places)):
        return [None] * len(conditions)
    cross = _cross(kernel, observed, conditions[0])
    return [(cross, own) for own in places]


def _state_grams(kernel, given):
    """A StateGram for each state that the operators of the equations act on."""
    members = {}
    for q, operator in enumerate(given.operators):
        members.setdefault(operator.state, []).append(q)
    grams = []
    for positions in members.values():
        own = [given.operators[q] for q in positions]
        compute = partial(gram_blocks, kernel, given.points, own)
        grams.append(
            StateGram.computed(np.array(positions), len(given.points), compute)
        )
    return grams


def factorise(H, precisions, a=1.0):
    """Lower Cholesky factor of H / a + diag(1 / precisions).

    Of H only the lower triangle is read, and so should it be of the factor, which may
    have anything above the diagonal. Where jitter is needed, rows and columns are
    first scaled to a diagonal near one, by powers of two, which rounds nothing:
    functionals differ in size by orders of magnitude, and what is added against
    rounding should be small beside each.
    """
    L = cholesky_in_place(_with_noise(H, precisions, a), clean=False)
    if L is not None:
        return L
    A = np.tril(_with_noise(H, precisions, a))
    scale = np.ldexp(1.0, np.frexp(np.diag(A))[1] // 2)
    A /= scale
    A /= scale[:, None]
    L = cholesky(A)
    L *= scale[:, None]
    return L


def _with_noise(H, precisions, a, n_columns=128):
    """The lower triangle of H / a + diag(1 / precisions); above it is anything."""
    A = np.empty_like(H)
    for start in range(0, len(H), n_columns):
        columns = slice(start, start + n_columns)
        np.multiply(H[start:, columns], 1 / a, out=A[start:, columns])
    np.einsum("ii->i", A)[:] += 1 / precisions
    return A


def whitened(L, features, right, cost_of_copy=8):
    """The rows of L^-1 Psi that are not zero, (R, p), and L^-1 `right`, (N + R,).

    P has no part in observations: its `features` (R, p) at the collocation points are
    the last rows of Psi. The last rows of L are copied, to be solved with alone, where
    that saves more than `cost_of_copy` products of numbers for each of their entries.
    """
    n, n_rows = len(L) - len(features), len(features)
    if (len(L) ** 2 - n_rows**2) * features.shape[1] > cost_of_copy * n_rows**2:
        return solve_lower(L[n:, n:], features), solve_lower(L, right)
    columns = np.zeros((len(L), 1 + features.shape[1]), order="F")
    columns[:, 0], columns[n:, 1:] = right, features
    columns = solve_lower(L, columns)
    return columns[n:, 1:], columns[:, 0]


class DualModel(LinearisedProblem):
    """Linearisation of a problem with dual blocks.

    With a = lambda + mu, b = 1 + mu and, for each function, H = T U T^*/a + W^-1 =
    L L^T, Y = L^-1 Psi, d = L^-1 rt (block arrowhead: H has no Psi in it),

        rt = r - (lambda/a) T v - (1/b) Psi w,
        e = -(b I + sum Y^T Y)^-1 sum Y^T d,      x = L^-T (d + Y e),
        dw = e - w / b,                           dv = -(lambda/a) v - T^* x / a.
    """

    _can_recompute = True

    def _matrix(self, m, tangent, features):
        return self.problem.blocks[m].normal_matrix(tangent.slopes)

    def _matrices(self, members, features):
        groups, found = {}, {}
        for m in members:
            groups.setdefault(self.problem.blocks[m].group, []).append(m)
        for own in groups.values():
            blocks = [self.problem.blocks[m] for m in own]
            slopes = [self.tangents[m].slopes for m in own]
            found.update(zip(own, normal_matrices(blocks, slopes), strict=True))
        return [found[m] for m in members]

    def _right(self, m, a, effect):
        """r - (lambda/a) T v + psi . dw, of shape (N + R,), for psi . dw (R,)."""
        Tv = self.tangents[m].apply(self.evaluation.iterate.values[m])
        right = self.evaluation.residuals[m] - self.problem.penalty / a * Tv
        right[len(right) - len(effect) :] += effect
        return right

    def _eliminate_state(self, a, b, m, made=None):
        features, matrix = made or self._features_and_matrix(m)
        rt = self._right(m, a, features @ (-self.evaluation.iterate.weights / b))
        L = factorise(matrix, self.problem.precisions[m], a)
        return L, *whitened(L, features, rt)

    def _summary(self, features, right):
        pairs = zip(features, right, strict=True)
        products = sum(Y.T @ last_rows(d, Y) for Y, d in pairs)
        return sum(Y.T @ Y for Y in features), products

    @staticmethod
    def merged(summaries):
        """The summary of several problems."""
        return tuple(map(sum, zip(*summaries, strict=True)))

    @staticmethod
    def solve_for_weights(b, w, summary):
        """R (p, p) and the step of the weights w (p,), from the summary."""
        squares, products = summary
        R = cholesky(b * np.eye(len(w)) + squares)
        return R, -solve_cholesky(R, products) - w / b

    def _factors_and_summary(self, a, b, n_sums=16):
        """Packed factors of all functions, None if they are not kept, and the sums.

        Sums over functions are taken in `n_sums` at most.
        """

        def eliminate(ranges):
            squares, products, factors = 0.0, 0.0, []
            for members in ranges:
                made = self._features_and_matrices(members)
                for m, own in zip(members, made, strict=True):
                    L, Y, d = self._eliminate_state(a, b, m, own)
                    squares = squares + Y.T @ Y
                    products = products + Y.T @ last_rows(d, Y)
                    factors.append(packed(L) if self.keeps_factors else None)
            return factors, (squares, products)

        ranges = self.problem.parts
        runs = np.array_split(np.arange(len(ranges)), min(n_sums, len(ranges)))
        runs = [[ranges[i] for i in run] for run in runs]
        found = self.problem.map_blocks(eliminate, runs)
        factors, summaries = zip(*found, strict=True)
        kept = list(chain.from_iterable(factors)) if self.keeps_factors else None
        return kept, self.merged(summaries)

    def _steps_of_states(self, members, parts, a, b, effects):
        penalty, steps = self.problem.penalty, []
        solved = self._representers(members, parts, a, b, effects)
        for m, x in zip(members, solved, strict=True):
            dc = -(penalty / a) * self.evaluation.iterate.coefficients[m]
            steps.append(dc - self.tangents[m].expand(x) / a)
        return steps

    def _representers(self, members, parts, a, b, effects):
        """The x (N + R,) of several functions."""
        if parts.features is not None:
            e = parts.dw + self.evaluation.iterate.weights / b
            for m in members:
                L, Y, right = parts.factors[m], parts.features[m], parts.right[m].copy()
                right[len(right) - len(Y) :] += Y @ e
                yield solve_lower(L, right, transposed=True)
            return
        factors = self._factors(members, parts, a)
        for m, L, effect in zip(members, factors, effects, strict=True):
            yield solve_cholesky(L, self._right(m, a, effect))

    def _factors(self, members, parts, a):
        """The factors of several functions, unpacked or computed."""
        precisions = [self.problem.precisions[m] for m in members]
        if parts.factors is not None:
            for m, own in zip(members, precisions, strict=True):
                yield unpacked(parts.factors[m], len(own))
            return
        matrices = self._matrices(members, [None] * len(members))
        for H, own in zip(matrices, precisions, strict=True):
            yield factorise(H, own, a)

    def _whitened_observations(self, m, L):
        return solve_lower(L, np.eye(len(L), len(self.problem.blocks[m].values)))

    def _left_out_precision(self, m, own, shared):
        # With C = H + Psi Psi^T the covariance of the data, the variance of the
        # prediction of a datum from all others is 1 / (C^-1)_ii, and the residual r at
        # the minimum becomes r / (s (C^-1)_ii) for a noise of variance s (Rasmussen and
        # Williams, 2006, eq. 5.12).
        return own - shared

    def _half_log_determinant(self, m, L):
        return np.sum(np.log(np.diag(L)))

    def _state(self, m, data, penalty, dispersion, *factors):
        c = self.evaluation.iterate.coefficients[m]
        expansion = self.problem.blocks[m].kernel, data.functionals, c
        return DualState(*expansion, data, penalty, dispersion, factors)


class DualState(LinearisedState):
    """A state in terms of representers, with variances of the linearised problem.

    The covariance of the data of one function is H + Psi Psi^T, and functions share
    the weights of P; by the Woodbury identity what the data explain of a prior
    variance is ``|L^-1 q|^2 - |R^-1 Y^T L^-1 q|^2`` with R R^T = I + sum Y^T Y. The
    factors are L (N + K, N + K) and R^-1 Y^T (p, K): P has no part in observations.
    """

    def variance(self, points, operator):
        """Posterior variances (n,) of an operator at points, never negative."""
        L, shared = self.factors or self._factorise()
        explained = []
        for rows in gram_rows(self.kernel, points, operator, self.functionals):
            q = self.data.tangent.apply(rows.T) / self.penalty
            q = solve_lower(L, q)
            learned = shared @ last_rows(q, shared.T)
            explained.append(np.sum(q**2, axis=0) - np.sum(learned**2, axis=0))
        prior = gram_diagonal(self.kernel, points, operator) / self.penalty
        unexplained = np.maximum(prior - np.concatenate(explained), 0.0)
        return self.dispersion * unexplained

    def _factorise(self):
        data = self.data
        H = data.tangent.apply(gram(self.kernel, self.functionals))
        H = data.tangent.apply(H.T)
        L = factorise(H, data.precisions, self.penalty)
        Y, _ = whitened(L, data.basis(data.S), np.zeros(len(L)))
        return L, solve_lower(data.coupling, Y.T)
