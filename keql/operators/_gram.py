"""Gram matrices of operators applied at points, and functions made of them."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from keql._numerics.arguments import as_numbers, in_short
from keql._numerics.linalg import cholesky, inverse_from_cholesky, solve_lower
from keql._numerics.memory import MemoryBudget


def gram(kernel: Any, rows: Any, columns: Any = None) -> np.ndarray:
    """Gram matrix of functionals "an operator applied at a point".

    The entry for the functionals phi = delta_x L and psi = delta_y R is
    L_x R_y k(x, y).

    Parameters
    ----------
    kernel : Kernel or SystemKernel
        Kernel of the RKHS on which the functionals act.
    rows, columns : list of (points, operator)
        Points of shape (n_i, d) with the :class:`DifferentialOperator` applied there.
        Neighbours in the list that share one array of points are evaluated together.
        `columns=None` stands for `rows`: the matrix is symmetric then, and each block
        is computed once.

    Returns
    -------
    G : ndarray of shape (sum n_i, sum m_j)
        In the order of the lists.

    Raises
    ------
    ValueError
        If an operator is not defined on the kernel's RKHS.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.kernels import RBF
    >>> from keql.operators import gram, parse_operator
    >>> u, u_x = parse_operator("u", ("x",)), parse_operator("u_x", ("x",))
    >>> point = np.array([[0.0]])
    >>> gram(RBF(0.5), [(point, u), (point, u_x)])
    array([[1., 0.],
           [0., 4.]])
    """
    symmetric = columns is None
    left = _group_by_points(kernel, _functionals(rows, "rows"))
    right = left
    if not symmetric:
        right = _group_by_points(kernel, _functionals(columns, "columns"))
    G = _empty(left[-1].stop, right[-1].stop)
    for i, first in enumerate(left):
        for second in right[: i + 1] if symmetric else right:
            _fill_block(G, kernel, first, second, mirror=symmetric)
    return G


def _empty(n, m):
    """An array (n, m), if it fits."""
    refuse_large_gram(n, m)
    return np.empty((n, m))


def refuse_large_gram(n, m):
    """Refuse a Gram matrix (n, m) that with its factor takes too much memory.

    And with the values that make it up.
    """
    what = f"the dense covariance of {n:,} observed and imposed values"
    advice = "give fewer rows of X, or fewer collocation_points."
    MemoryBudget().refuse_above(3.0 * n * m, what, advice)


@dataclass
class _FunctionalGroup:
    """Consecutive functionals on one array of points."""

    points: np.ndarray
    operators: list
    start: int

    @property
    def stop(self):
        return self.start + len(self.points) * len(self.operators)

    def slices(self):
        n = len(self.points)
        for j, operator in enumerate(self.operators):
            yield slice(self.start + j * n, self.start + (j + 1) * n), operator


def _functionals(given, name):
    """A list of (points, operator), checked; points are arrays (n, d)."""
    is_list = isinstance(given, list | tuple) and len(given) > 0
    if not is_list or not all(
        isinstance(each, list | tuple) and len(each) == 2 for each in given
    ):
        raise TypeError(
            f"{name} is {in_short(given)}: it must be a list of pairs of points and of "
            "the DifferentialOperator applied there, at least one."
        )
    return [_functional(*each, name) for each in given]


def _functional(points, operator, name):
    """Points as an array (n, d), and the operator applied there, both checked."""
    if isinstance(operator, type) or not hasattr(operator, "parts"):
        raise TypeError(
            f"{name}: the operator is {in_short(operator)}, but must be a "
            "DifferentialOperator, as of parse_operator."
        )
    points = as_numbers(points, f"{name}: points", ndim=2)
    orders = {len(a) for _, a, _ in operator.parts}
    if orders - {points.shape[1]}:
        raise ValueError(
            f"{name}: points has {points.shape[1]} column(s), but the operator "
            f"{operator.name!r} is of functions of {max(orders)} coordinate(s)."
        )
    return points, operator


def _check_order(kernel, operator):
    """Raise ValueError if an operator is not defined on the kernel's functions."""
    if isinstance(kernel, type) or not hasattr(kernel, "of_state"):
        raise TypeError(
            f"kernel is {in_short(kernel)}: it must be one of keql.kernels."
        )
    for state, a, _ in operator.parts:
        kernel.of_state(state).check_order(a, f"the operator {operator.name!r}")


def _group_by_points(kernel, functionals):
    """Groups of the (points, operator) in a list that follow on one array of points."""
    groups = []
    for points, operator in functionals:
        _check_order(kernel, operator)
        if groups and groups[-1].points is points:
            groups[-1].operators.append(operator)
        else:
            start = groups[-1].stop if groups else 0
            groups.append(_FunctionalGroup(points, [operator], start))
    return groups


def _fill_block(G, kernel, first, second, mirror, n_entries=2**20):
    """Write the block of two groups into G, and its mirror image if wanted.

    Different states are independent: terms applied to them have no covariance. Rows of
    about `n_entries` entries are computed at once: what is needed beside G is small.
    """
    blocks = [
        (rows, columns, _pairs(left, right))
        for rows, left in first.slices()
        for columns, right in second.slices()
        if not mirror or columns.start <= rows.start
    ]
    step = max(1, n_entries // max(1, len(second.points)))
    for start in range(0, len(first.points), step):
        X = first.points[start : start + step]
        parts = _combine(kernel, X, second.points, [pairs for *_, pairs in blocks])
        for (rows, columns, pairs), block in zip(blocks, parts, strict=True):
            here = slice(rows.start + start, rows.start + start + len(X))
            G[here, columns] = block
            if mirror and columns.start < rows.start:
                G[columns, here] = block.T if pairs else 0.0


def gram_blocks(kernel, points, operators, blocks, n_entries=2**17):
    """Fill {(q, r): Gram matrix (K, K)} of operators q and r <= q at points (K, d).

    Those of r > q are their transposes. Computed in parts of about `n_entries` entries:
    the derivatives of all pairs of operators in a part are needed at once.
    """
    for operator in operators:
        _check_order(kernel, operator)
    all_pairs = [_pairs(operators[q], operators[r]) for q, r in blocks]
    n = len(points)
    step = max(1, n_entries // max(1, n))
    for start in range(0, n, step):
        X = points[start : start + step]
        parts = _combine(kernel, X, points, all_pairs)
        for block, part in zip(blocks.values(), parts, strict=True):
            block[start : start + step] = part


def _combine(kernel, X, Y, all_pairs):
    """For each list of :func:`_pairs` the Gram matrix (n, m), one after the other."""
    orders, derivative = {}, {}
    for pairs in all_pairs:
        for state, a, b, _ in pairs:
            orders.setdefault(state, {})[a, b] = None
    for state, needed in orders.items():
        values = kernel.of_state(state).derivatives(X, Y, list(needed))
        derivative.update(zip([(state, *pair) for pair in needed], values, strict=True))
    for pairs in all_pairs:
        block = 0.0
        for *key, factor in pairs:
            value = derivative[tuple(key)]
            block = block + (value if factor == 1 else factor * value)
        yield block


def _pairs(left, right):
    """Terms of two operators that act on one state: (state, a, b, factor)."""
    return [
        (state, a, b, on_left * on_right)
        for (state, a, on_left), (other, b, on_right) in product(
            left.parts, right.parts
        )
        if state == other
    ]


def gram_diagonal(kernel: Any, points: Any, operator: Any) -> np.ndarray:
    """Prior variances L_x L_y k(x, y) at y = x.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the RKHS on which the operator acts.
    points, operator : ndarray of shape (n, d), DifferentialOperator
        The points x, and the operator L.

    Returns
    -------
    variances : ndarray of shape (n,)
        The diagonal of `gram(kernel, [(points, operator)])`, in linear memory.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.kernels import RBF
    >>> from keql.operators import gram_diagonal, parse_operator
    >>> gram_diagonal(RBF(0.5), np.zeros((2, 1)), parse_operator("u_x", ("x",)))
    array([4., 4.])
    """
    points, operator = _functional(points, operator, "points or operator")
    chunks = [points[i : i + 64] for i in range(0, len(points), 64)]
    # Diagonals are views, which would keep all matrices.
    parts = [np.diag(gram(kernel, [(c, operator)])).copy() for c in chunks]
    return np.concatenate([np.zeros(0), *parts])


def gram_rows(kernel, points, operator, functionals, n_entries=2**21):
    """Rows of the Gram matrix of an operator at points (n, d), and of functionals.

    They come in parts of at most `n_entries` entries, or of one row.
    """
    n_rows = max(1, n_entries // sum(len(x) for x, _ in functionals))
    for i in range(0, len(points), n_rows):
        yield gram(kernel, [(points[i : i + n_rows], operator)], functionals)


class KernelExpansion:
    """A function v = sum_j c_j phi_j k(., y_j) of an RKHS, for functionals phi_j.

    What is saved of one has the size of the data: without the Cholesky factor.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the RKHS.
    functionals : list of (points, operator)
        As in :func:`gram`.
    coefficients : ndarray of shape (n,)
        The c_j, in the order of the functionals.
    cholesky : ndarray of shape (n, n), default=None
        Lower Cholesky factor of the covariance of the data that determined the c_j;
        None: computed from the kernel and `noise_variances` for posterior variances.
    noise_variances : ndarray of shape (n,), default=None
        Of these data, in units of their squares; None: they are exact.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.kernels import RBF
    >>> from keql.operators import KernelExpansion, parse_operator
    >>> u = parse_operator("u", ("x",))
    >>> bump = KernelExpansion(RBF(1.0), [(np.array([[0.0]]), u)], np.array([2.0]))
    >>> bump.evaluate(np.array([[0.0]]), u)
    array([2.])
    """

    def __init__(
        self,
        kernel: Any,
        functionals: Any,
        coefficients: Any,
        cholesky: Any = None,
        noise_variances: Any = None,
    ) -> None:
        self.kernel = kernel
        self.functionals = functionals
        self.coefficients = coefficients
        self.noise_variances = noise_variances
        self.factors = cholesky

    def __getstate__(self):
        return {**vars(self), "factors": None}

    def evaluate(self, points: Any, operator: Any) -> np.ndarray:
        """Values of an operator applied to the function.

        Parameters
        ----------
        points, operator : ndarray of shape (n, d), DifferentialOperator
            Where, and what.

        Returns
        -------
        values : ndarray of shape (n,)
            Computed in blocks of rows: memory grows with n linearly.
        """
        points, operator = _functional(points, operator, "points or operator")
        n = sum(len(x) for x, _ in _functionals(self.functionals, "functionals"))
        coefficients = as_numbers(self.coefficients, "coefficients", ndim=1)
        if len(coefficients) != n:
            raise ValueError(
                f"coefficients has {len(coefficients)} number(s) for {n} functionals."
            )
        rows = gram_rows(self.kernel, points, operator, self.functionals)
        return np.concatenate([np.zeros(0), *(part @ coefficients for part in rows)])

    def variance(self, points: Any, operator: Any) -> np.ndarray:
        """Posterior variances of an operator applied to the function.

        Parameters
        ----------
        points, operator : ndarray of shape (n, d), DifferentialOperator
            Where, and what.

        Returns
        -------
        variances : ndarray of shape (n,)
            Of the latent function, without observation noise; never negative.
        """
        L = self._factorise() if self.factors is None else self.factors
        rows = gram_rows(self.kernel, points, operator, self.functionals)
        explained = [np.sum(solve_lower(L, part.T) ** 2, axis=0) for part in rows]
        prior = gram_diagonal(self.kernel, points, operator)
        return np.maximum(prior - np.concatenate(explained), 0.0)

    def covariance(self, points: Any, operators: Any, factors: Any) -> np.ndarray:
        """Posterior covariances of sums of operators whose factors vary in space.

        Parameters
        ----------
        points : ndarray of shape (n, d)
            Where.
        operators, factors : list of DifferentialOperator, ndarray of shape (q, n)
            The sums are those of factors[j, i] times operators[j] at points[i].

        Returns
        -------
        covariances : ndarray of shape (n, n)
            Of the latent function, without observation noise; in memory of the order
            of (q n)^2.

        Notes
        -----
        Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.24.
        """
        L = self._factorise() if self.factors is None else self.factors
        own, shape = [(points, operator) for operator in operators], np.shape(factors)
        prior = gram(self.kernel, own).reshape(shape * 2)
        cross = gram(self.kernel, own, self.functionals).reshape(*shape, -1)
        explained = solve_lower(L, np.einsum("qi,qij->ji", factors, cross))
        prior = np.einsum("qi,qirj,rj->ij", factors, prior, factors, optimize=True)
        return prior - explained.T @ explained

    def leave_one_out(self) -> np.ndarray:
        """Errors of the prediction of each observed value from all others.

        Returns
        -------
        errors : ndarray of shape (n,)
            Values less their predictions, in the order of the functionals.

        Notes
        -----
        In closed form: Rasmussen and Williams, Gaussian Processes for Machine Learning,
        2006, eq. 5.12.
        """
        L = self._factorise() if self.factors is None else self.factors
        return self.coefficients / np.diag(inverse_from_cholesky(L))

    def _factorise(self):
        covariance = gram(self.kernel, self.functionals)
        if self.noise_variances is not None:
            covariance[np.diag_indices_from(covariance)] += self.noise_variances
        return cholesky(covariance)
