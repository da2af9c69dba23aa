"""Gram matrices of operators applied at points."""

from dataclasses import dataclass

import numpy as np


def gram(kernel, rows, columns=None):
    """Gram matrix of functionals "an operator applied at a point".

    The entry for the functionals phi = delta_x L and psi = delta_y R is
    L_x R_y k(x, y).

    Parameters
    ----------
    kernel : Kernel
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
    left = _group_by_points(kernel, rows)
    right = left if symmetric else _group_by_points(kernel, columns)
    G = np.empty((left[-1].stop, right[-1].stop))
    for i, first in enumerate(left):
        for second in right[: i + 1] if symmetric else right:
            _fill_block(G, kernel, first, second, mirror=symmetric)
    return G


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


def _group_by_points(kernel, functionals):
    """Groups of the (points, operator) in a list that follow on one array of points."""
    groups = []
    for points, operator in functionals:
        for a, _ in operator.terms:
            kernel.check_order(a, f"the operator {operator.name!r}")
        if groups and groups[-1].points is points:
            groups[-1].operators.append(operator)
        else:
            start = groups[-1].stop if groups else 0
            groups.append(_FunctionalGroup(points, [operator], start))
    return groups


def _fill_block(G, kernel, first, second, mirror):
    """Write the block of two groups into G, and its mirror image if wanted."""
    blocks = [
        (rows, left, columns, right)
        for rows, left in first.slices()
        for columns, right in second.slices()
        if not mirror or columns.start <= rows.start
    ]
    pairs = {
        (a, b): None
        for _, left, _, right in blocks
        for a, _ in left.terms
        for b, _ in right.terms
    }
    values = kernel.derivatives(first.points, second.points, list(pairs))
    derivative = dict(zip(pairs, values, strict=True))
    for rows, left, columns, right in blocks:
        block = 0.0
        for a, on_left in left.terms:
            for b, on_right in right.terms:
                factor, value = on_left * on_right, derivative[a, b]
                block = block + (value if factor == 1 else factor * value)
        G[rows, columns] = block
        if mirror and columns.start < rows.start:
            G[columns, rows] = block.T


def gram_diagonal(kernel, points, operator):
    """Prior variances L_x L_y k(x, y) at y = x.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the RKHS on which the operator acts.
    points : ndarray of shape (n, d)
        The points x.
    operator : DifferentialOperator
        The operator L.

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
    chunks = [points[i : i + 64] for i in range(0, len(points), 64)]
    return np.concatenate([np.diag(gram(kernel, [(c, operator)])) for c in chunks])
