"""The joint problem in the primal: states in an orthonormal basis, steps by QR.

Smooth kernels have a low numerical rank: a few of the representers, picked by a pivoted
Cholesky factorisation of their Gram matrix, span all of them to rounding accuracy.
With phi the orthonormal basis of their span (the Cholesky change of variables), a state
is v = phi . z with |v| = |z|, and a Levenberg-Marquardt step is a linear least-squares
problem in the z_m and w. Orthogonal factorisations do not square its condition number,
so that noise levels near rounding errors, and more unknowns than data, do no harm.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from keql._joint.problem import Block, Iterate
from keql._joint.states import PrimalState
from keql._numerics.linalg import pivoted_cholesky, solve_lower
from keql.equation import WeightPosterior
from keql.operators import gram


class SpanBasis:
    """An orthonormal basis of the span of representers in an RKHS.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the RKHS.
    functionals : list of (points, operator)
        Those whose representers span the space.
    order : ndarray of shape (r,)
        The functionals in the order in which they were picked.
    cholesky : ndarray of shape (r, r)
        Lower Cholesky factor of the Gram matrix in this order.
    """

    def __init__(self, kernel, functionals, order, cholesky):
        self.kernel = kernel
        self.functionals = functionals
        self.order = order
        self.cholesky = cholesky

    def __call__(self, functionals):
        """Values of functionals on the basis functions, of shape (n, r)."""
        cross = gram(self.kernel, self.functionals, functionals)
        return solve_lower(self.cholesky, cross[self.order]).T

    def coefficients(self, z):
        """Coefficients of phi . z on the representers, in the order of these."""
        c = np.empty(len(z))
        c[self.order] = solve_lower(self.cholesky, z, transposed=True)
        return c


def span(kernel, functionals):
    """Pick functionals whose representers span those of all to rounding accuracy.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the RKHS.
    functionals : list of (points, operator)
        All of them, n in number. Their Gram matrix is held in memory meanwhile.

    Returns
    -------
    basis : SpanBasis
        Of r functions.
    rows : ndarray of shape (n, r)
        Values of the functionals on the basis functions.
    """
    rows, pivots = pivoted_cholesky(gram(kernel, functionals))
    sizes = np.cumsum([0, *(len(points) for points, _ in functionals)])
    picked, order = [], np.empty(len(pivots), dtype=int)
    filled = 0
    for (points, operator), start, stop in zip(
        functionals, sizes[:-1], sizes[1:], strict=True
    ):
        places = np.flatnonzero((pivots >= start) & (pivots < stop))
        if len(places):
            picked.append((points[pivots[places] - start], operator))
            order[places] = filled + np.arange(len(places))
            filled += len(places)
    return SpanBasis(kernel, picked, order, rows[pivots]), rows


@dataclass(frozen=True)
class PrimalBlock(Block):
    """One function, its state in an orthonormal basis.

    Parameters
    ----------
    basis : SpanBasis
        Of r functions, shared by functions with the same kernel.
    basis_values : ndarray of shape (N, r)
        Point values of the basis functions.
    basis_operators : ndarray of shape (Q', K, r)
        Operators on the basis functions.
    """

    basis: SpanBasis
    basis_values: np.ndarray
    basis_operators: np.ndarray

    @property
    def n_unknowns(self):
        """Number of basis functions, r."""
        return self.basis_values.shape[1]

    def evaluate(self, z):
        """Point values and operators of the state with coefficients `z`."""
        return np.concatenate([self.basis_values @ z, (self.basis_operators @ z).flat])

    def squared_norm(self, z, values):
        """Squared RKHS norm of the state with coefficients `z`."""
        return z @ z

    def represent(self, functionals, coefficients):
        """Coefficients of a sum of representers, projected on the basis."""
        return self.basis(functionals).T @ coefficients

    @property
    def gram_values(self):
        """Gram matrix of the point values, of shape (N, N)."""
        return self.basis_values @ self.basis_values.T

    def restricted(self, rows, shared):
        """The same with the collocation points `rows` only; nothing can be shared."""
        return replace(
            self,
            forcing=self.forcing[rows],
            points=self.points[rows],
            basis_operators=self.basis_operators[:, rows],
        )

    def widen(self, z, rows):
        """Coefficients of the state that a restricted block represents by `z`."""
        return z

    def prior(self):
        """A function that draws coefficients of states from the prior."""
        return lambda rng: rng.standard_normal(self.n_unknowns)

    def expand_values(self, x):
        """Coefficients of the sum of the representers of point values, times `x`."""
        return x @ self.basis_values

    def jacobian(self, slopes):
        """T phi for T = (point values, sum_q slopes_q L_q), of shape (N + K, r)."""
        n = len(self.values)
        J = np.empty((n + len(self.points), self.n_unknowns))
        J[:n] = self.basis_values
        np.einsum("qk,qkr->kr", slopes, self.basis_operators, out=J[n:])
        return J


def make_primal_blocks(
    kernels, functions, collocation_points, forcing, operators, identity
):
    """Bases and what functionals give on them; what functions share is computed once.

    Parameters
    ----------
    kernels, functions, collocation_points, forcing, operators, identity
        As for :func:`keql._joint.dual.make_dual_blocks`.

    Returns
    -------
    blocks : list of PrimalBlock
        One for each function.
    """
    blocks = [None] * len(kernels)
    for kernel in {id(kernel): kernel for kernel in kernels}.values():
        members = [m for m, other in enumerate(kernels) if other is kernel]
        observed = np.concatenate([functions[m].points for m in members])
        distinct, places = np.unique(observed, axis=0, return_inverse=True)
        imposed = {id(collocation_points[m]): collocation_points[m] for m in members}
        functionals = [(distinct, identity)]
        starts, start = {}, len(distinct)
        for key, points in imposed.items():
            functionals += [(points, operator) for operator in operators]
            starts[key] = start
            start += len(operators) * len(points)
        basis, rows = span(kernel, functionals)
        places = np.split(
            places.ravel(), np.cumsum([len(functions[m].points) for m in members])
        )
        for m, own in zip(members, places[:-1], strict=True):
            data, points = functions[m], collocation_points[m]
            start = starts[id(points)]
            shape = (len(operators), len(points), rows.shape[1])
            stop = start + len(operators) * len(points)
            blocks[m] = PrimalBlock(
                values=data.values,
                weights=data.weights,
                forcing=forcing[m],
                points=points,
                basis=basis,
                basis_values=rows[own],
                basis_operators=rows[start:stop].reshape(shape),
            )
    return blocks


class PrimalModel:
    """Linearisation of a joint problem; `step` solves it for any damping.

    With a = lambda + mu, b = 1 + mu, J = T phi and all rows in units of the noise, the
    step of function m minimises

        |J dz + Psi dw + r|^2 + a |dz + (lambda / a) z|^2

    for any dw by a QR factorisation whose last rows leave p equations for dw; those of
    all functions and sqrt(b) (dw + w / b) = 0 are solved by another (block arrowhead).

    Parameters
    ----------
    problem : JointProblem
        The problem, with primal blocks.
    evaluation : Evaluation
        Where it is linearised.
    """

    def __init__(self, problem, evaluation):
        self.problem = problem
        self.evaluation = evaluation
        weights = evaluation.iterate.weights

        def prepare(m):
            block, n = problem.blocks[m], len(problem.blocks[m].values)
            slopes, features = problem.slopes(evaluation.features[m], weights)
            above = np.zeros((n, features.shape[1]))
            rows = np.hstack(
                [
                    block.jacobian(slopes),
                    np.vstack([above, features]),
                    evaluation.residuals[m][:, None],
                ]
            )
            rows *= np.sqrt(problem.precisions[m])[:, None]
            return triangle(rows) if len(rows) > rows.shape[1] else rows

        self.rows = list(problem.map_blocks(prepare, range(len(problem.blocks))))

    def step(self, damping):
        """The damped Gauss-Newton iterate, and the decrease of the loss predicted.

        Parameters
        ----------
        damping : float
            mu, in units of the squared RKHS norms' weights.

        Returns
        -------
        iterate : Iterate
            The new iterate.
        decrease : float
            By which the linear model is lower there.
        """
        problem, iterate = self.problem, self.evaluation.iterate
        a, b = problem.penalty + damping, 1.0 + damping
        heads, root, right = self._eliminate(a, b)
        dw = -linalg.solve_triangular(root, right, check_finite=False)

        def expand(m):
            r = len(iterate.coefficients[m])
            head, p = heads[m], len(dw)
            target = head[:, r : r + p] @ dw + head[:, -1]
            dz = -linalg.solve_triangular(head[:, :r], target, check_finite=False)
            z = iterate.coefficients[m] + dz
            return dz, z, problem.blocks[m].evaluate(z)

        steps = list(problem.map_blocks(expand, range(len(problem.blocks))))
        new = Iterate(
            [z for _, z, _ in steps], [v for *_, v in steps], iterate.weights + dw
        )
        return new, self.evaluation.loss - self._model_loss(new, steps, dw)

    def _eliminate(self, a, b):
        """Triangular factors of the functions, and the equations left for dw."""
        problem, iterate = self.problem, self.evaluation.iterate
        p = len(iterate.weights)

        def reduce(m):
            z, rows = iterate.coefficients[m], self.rows[m]
            prior = np.zeros((len(z), rows.shape[1]))
            prior[np.diag_indices(len(z))] = a**0.5
            prior[:, -1] = problem.penalty / a**0.5 * z
            R = triangle(np.vstack([rows, prior]))
            return R[: len(z)], R[len(z) :, len(z) :]

        reduced = list(problem.map_blocks(reduce, range(len(problem.blocks))))
        prior = np.hstack([b**0.5 * np.eye(p), (iterate.weights / b**0.5)[:, None]])
        R = triangle(np.vstack([*(tail for _, tail in reduced), prior]))
        return [head for head, _ in reduced], R[:p, :p], R[:p, p]

    def _model_loss(self, new, steps, dw):
        """Loss of the linear model at the new iterate."""
        loss = 0.5 * new.weights @ new.weights
        for rows, (dz, z, _) in zip(self.rows, steps, strict=True):
            r = len(dz)
            residual = rows[:, :r] @ dz + rows[:, r:-1] @ dw + rows[:, -1]
            loss += 0.5 * (self.problem.penalty * z @ z + residual @ residual)
        return loss

    def posterior_states(self):
        """The states with their posterior variances, the equation being uncertain too.

        Returns
        -------
        states : list of PrimalState
            One for each function.
        """
        problem, iterate = self.problem, self.evaluation.iterate
        heads, root, _ = self._eliminate(problem.penalty, 1.0)
        return [
            PrimalState(
                block.basis,
                z,
                problem.penalty,
                head[:, : len(z)],
                solve_lower(root.T, head[:, len(z) : -1].T),
                problem.dispersion,
            )
            for block, z, head in zip(
                problem.blocks, iterate.coefficients, heads, strict=True
            )
        ]

    def leave_one_out(self):
        """Errors of the prediction of each observation from all other data.

        The residual r_i at the minimum becomes r_i / (1 - h_i) where its observation
        is left out, with the leverage h_i of its row.

        Returns
        -------
        errors : list of ndarray of shape (N,)
            For each function.
        """
        problem = self.problem
        heads, root, _ = self._eliminate(problem.penalty, 1.0)
        errors = []
        for m, (block, head) in enumerate(zip(problem.blocks, heads, strict=True)):
            n, r = len(block.values), block.n_unknowns
            rows = block.basis_values * np.sqrt(problem.precisions[m][:n])[:, None]
            q = solve_lower(head[:, :r].T, rows.T)
            shared = solve_lower(root.T, head[:, r:-1].T @ q)
            leverage = np.sum(q**2, axis=0) + np.sum(shared**2, axis=0)
            left = np.maximum(1 - leverage, np.finfo(float).eps)
            errors.append(self.evaluation.residuals[m][:n] / left)
        return errors

    def posterior_weights(self):
        """What the data say about the weights of P, whatever the states are."""
        evaluation = self.evaluation
        _, root, _ = self._eliminate(self.problem.penalty, 1.0)
        return WeightPosterior(
            evaluation.iterate.weights, root.T, evaluation.loss
        ).with_dispersion(self.problem.dispersion)


def triangle(A):
    """The upper triangular factor R of A = Q R, of as many rows as columns at most."""
    R = linalg.qr(A, mode="r", check_finite=False)[0]
    return R[: A.shape[1]]
