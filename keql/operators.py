"""Linear differential operators: their names, Gram matrices and features."""

import re
import warnings
from collections import defaultdict
from dataclasses import dataclass
from operator import index

import autograd.numpy as anp
import numpy as np
from autograd import elementwise_grad

from keql._formulas import as_factor
from keql._numerics.linalg import solve_lower

__all__ = [
    "DifferentialOperator",
    "KernelExpansion",
    "apply_operator",
    "gram",
    "gram_diagonal",
    "parse_operator",
]
# Rows of a Gram matrix that are held in memory at once, times its columns.
BLOCK_ENTRIES = 2**21


@dataclass(frozen=True)
class DifferentialOperator:
    """A linear differential operator with constant coefficients.

    Parameters
    ----------
    terms : tuple of (multi-index, float)
        Orders of differentiation in each coordinate, and the coefficient, of each
        term of the sum.
    name : str
        What the operator is called in printed equations and error messages.

    See Also
    --------
    parse_operator : Make one from its name.

    Examples
    --------
    >>> from keql.operators import parse_operator
    >>> u_xx, u_yy = (parse_operator(name, ("x", "y")) for name in ("u_xx", "u_yy"))
    >>> (u_xx + 2 * u_yy).terms
    (((0, 2), 2.0), ((2, 0), 1.0))
    """

    terms: tuple
    name: str

    @property
    def order(self):
        """Highest total order of differentiation."""
        return max(sum(a) for a, _ in self.terms)

    def same_as(self, other):
        """Whether two operators are the same map, whatever their names.

        Parameters
        ----------
        other : DifferentialOperator
            The operator to compare with.

        Returns
        -------
        same : bool
            True for "u_tx" and "u_xt".
        """
        return self.terms == other.terms

    def __add__(self, other):
        return _collect([*self.terms, *other.terms], f"{self.name} + {other.name}")

    def __sub__(self, other):
        negative = [(a, -value) for a, value in other.terms]
        name = f"{self.name} - {as_factor(other.name)}"
        return _collect([*self.terms, *negative], name)

    def __rmul__(self, factor):
        terms = [(a, factor * value) for a, value in self.terms]
        return _collect(terms, f"{factor:g} {as_factor(self.name)}")


def _collect(terms, name):
    """An operator with equal multi-indices added up and the terms in order."""
    total = defaultdict(float)
    for a, coefficient in terms:
        total[a] += float(coefficient)
    kept = sorted(item for item in total.items() if item[1] != 0)
    if not kept:
        raise ValueError(f"the operator {name!r} is zero: its terms cancel.")
    return DifferentialOperator(tuple(kept), name)


def parse_operator(operator, variables):
    """Make a differential operator from its name.

    Parameters
    ----------
    operator : str, tuple of int, or DifferentialOperator
        "u" (the state itself), "u_t", "u_xx", "u_tx" (derivatives, one variable after
        the other), "laplacian(u)" (second derivatives in all variables but one called
        "t"), sums and constant multiples such as "u_xx + 2 u_yy", or a multi-index
        with one order for each variable.
    variables : sequence of str
        Names of the coordinates by position.

    Returns
    -------
    operator : DifferentialOperator
        An operator object is returned as it is.

    Raises
    ------
    ValueError
        If the name does not parse, names an unknown variable or has two readings.

    Examples
    --------
    >>> from keql.operators import parse_operator
    >>> parse_operator("u_tx", ("t", "x")).terms
    (((1, 1), 1.0),)
    >>> parse_operator("laplacian(u)", ("t", "x", "y")).terms
    (((0, 0, 2), 1.0), ((0, 2, 0), 1.0))
    """
    variables = tuple(variables)
    if isinstance(operator, DifferentialOperator):
        _check_width(operator.terms, operator.name, variables)
        return operator
    if isinstance(operator, str):
        return _parse_sum(operator, variables)
    terms = ((_as_orders(operator), 1.0),)
    _check_width(terms, operator, variables)
    powers = zip(variables, terms[0][0], strict=True)
    suffix = "".join(name * order for name, order in powers)
    return DifferentialOperator(terms, f"u_{suffix}" if suffix else "u")


def _as_orders(operator):
    try:
        return tuple(index(order) for order in operator)
    except TypeError:
        raise ValueError(
            f"the operator {operator!r} must be a name such as 'u_xx', a multi-index "
            "such as (0, 2), or a DifferentialOperator."
        ) from None


def _check_width(terms, name, variables):
    for a, _ in terms:
        if len(a) != len(variables) or min(a) < 0:
            raise ValueError(
                f"the operator {name!r} has the multi-index {a}: it must have one "
                f"order >= 0 for each of the variables {', '.join(variables)}."
            )


_TERM = re.compile(
    r"\s*(?P<sign>[+-])?\s*"
    r"(?:(?P<factor>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*\*?\s*)?"
    r"(?P<atom>laplacian\(u\)|[A-Za-z]\w*)\s*"
)


def _parse_sum(text, variables):
    terms, position = [], 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or (terms and match["sign"] is None):
            raise ValueError(
                f"the operator {text!r} does not parse at {text[position:]!r}: write "
                "'u', 'u_t', 'u_xx', 'laplacian(u)', or sums and multiples such as "
                "'u_xx + 2 u_yy'."
            )
        factor = float(match["factor"] or 1) * (-1 if match["sign"] == "-" else 1)
        terms += [(a, factor) for a in _parse_atom(match["atom"], text, variables)]
        position = match.end()
    if not terms:
        raise ValueError("the operator '' is empty: write for example 'u' or 'u_x'.")
    return _collect(terms, text.strip())


def _parse_atom(atom, text, variables):
    """Multi-indices of "u", "u_..." or "laplacian(u)"."""
    if atom == "laplacian(u)":
        space = [i for i, name in enumerate(variables) if name != "t"]
        if not space:
            raise ValueError(f"the operator {text!r} needs a variable other than t.")
        return [tuple(2 * (j == i) for j in range(len(variables))) for i in space]
    function, _, suffix = atom.partition("_")
    if function != "u":
        raise ValueError(
            f"the operator {text!r} names the function {function!r}: the state is "
            "called u, and systems of several states are not supported yet."
        )
    if atom == "u":
        return [(0,) * len(variables)]
    readings = _tokenise(suffix, variables) if suffix else []
    if not readings:
        raise ValueError(
            f"the operator {text!r} names an unknown variable: {suffix!r} is not made "
            f"of the variables {', '.join(variables)}."
        )
    if len(readings) > 1:
        raise ValueError(
            f"the operator {text!r} has {len(readings)} readings in the variables "
            f"{', '.join(variables)}: give it as a multi-index such as {readings[0]}."
        )
    return readings


def _tokenise(suffix, variables):
    """All multi-indices whose names, in some order, spell the suffix."""
    if not suffix:
        return [(0,) * len(variables)]
    readings = set()
    for i, name in enumerate(variables):
        if suffix.startswith(name):
            for rest in _tokenise(suffix[len(name) :], variables):
                readings.add((*rest[:i], rest[i] + 1, *rest[i + 1 :]))
    return sorted(readings)


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
    left = _stations(kernel, rows)
    right = left if symmetric else _stations(kernel, columns)
    G = np.empty((left[-1].stop, right[-1].stop))
    for i, station in enumerate(left):
        for other in right[: i + 1] if symmetric else right:
            _fill(G, kernel, station, other, mirror=symmetric)
    return G


@dataclass
class _Station:
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


def _stations(kernel, functionals):
    stations = []
    for points, operator in functionals:
        for a, _ in operator.terms:
            kernel.check_order(a, f"the operator {operator.name!r}")
        if stations and stations[-1].points is points:
            stations[-1].operators.append(operator)
        else:
            start = stations[-1].stop if stations else 0
            stations.append(_Station(points, [operator], start))
    return stations


def _fill(G, kernel, station, other, mirror):
    """Write the block of two stations, and its mirror image."""
    blocks = [
        (rows, first, columns, second)
        for rows, first in station.slices()
        for columns, second in other.slices()
        if not mirror or columns.start <= rows.start
    ]
    pairs = {
        (a, b): None
        for _, first, _, second in blocks
        for a, _ in first.terms
        for b, _ in second.terms
    }
    values = kernel.derivatives(station.points, other.points, list(pairs))
    derivative = dict(zip(pairs, values, strict=True))
    for rows, first, columns, second in blocks:
        block = 0.0
        for a, left in first.terms:
            for b, right in second.terms:
                factor = left * right
                value = derivative[a, b]
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


class KernelExpansion:
    """A function v = sum_j c_j phi_j k(., y_j) of an RKHS, for functionals phi_j.

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
        gives posterior variances.

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

    def __init__(self, kernel, functionals, coefficients, cholesky=None):
        self.kernel = kernel
        self.functionals = functionals
        self.coefficients = coefficients
        self.cholesky = cholesky

    def evaluate(self, points, operator):
        """Values of an operator applied to the function.

        Parameters
        ----------
        points : ndarray of shape (n, d)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        values : ndarray of shape (n,)
            Computed in blocks of rows: memory grows with n linearly.
        """
        return np.concatenate(
            [cross @ self.coefficients for cross in self._cross(points, operator)]
        )

    def variance(self, points, operator):
        """Posterior variances of an operator applied to the function.

        Parameters
        ----------
        points : ndarray of shape (n, d)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        variances : ndarray of shape (n,)
            Of the latent function, without observation noise; never negative.
        """
        explained = np.concatenate(
            [
                np.sum(solve_lower(self.cholesky, cross.T) ** 2, axis=0)
                for cross in self._cross(points, operator)
            ]
        )
        prior = gram_diagonal(self.kernel, points, operator)
        return np.maximum(prior - explained, 0.0)

    def _cross(self, points, operator):
        rows = max(1, BLOCK_ENTRIES // len(self.coefficients))
        for i in range(0, len(points), rows):
            functional = (points[i : i + rows], operator)
            yield gram(self.kernel, [functional], self.functionals)


def apply_operator(function, points, operator):
    """Values of an operator applied to a function written in `autograd.numpy`.

    Parameters
    ----------
    function : callable
        Takes points of shape (n, d) and returns values of shape (n,), each of which
        depends on its own point only.
    points : ndarray of shape (n, d)
        Where.
    operator : DifferentialOperator
        What.

    Returns
    -------
    values : ndarray of shape (n,)
        By automatic differentiation.

    Examples
    --------
    >>> import autograd.numpy as np
    >>> from keql.operators import apply_operator, parse_operator
    >>> u_xx = parse_operator("u_xx", ("x",))
    >>> apply_operator(lambda X: X[:, 0] ** 3, np.array([[2.0]]), u_xx)
    array([12.])
    """
    points = np.asarray(points, dtype=float)

    def by_coordinate(*columns):
        values = function(anp.stack(columns, axis=-1))
        if anp.shape(values) != (len(points),):
            raise ValueError(
                f"a function of {len(points)} points returned an array of shape "
                f"{anp.shape(values)}: it must return one value for each row of X."
            )
        return values

    total = np.zeros(len(points))
    for a, coefficient in operator.terms:
        derivative = by_coordinate
        for column, order in enumerate(a):
            for _ in range(order):
                derivative = elementwise_grad(derivative, column)
        with warnings.catch_warnings():
            # Autograd's word for a derivative that vanishes, as u_xx of u = x does.
            warnings.filterwarnings("ignore", "Output seems independent of input")
            total += coefficient * derivative(*points.T)
    return total
