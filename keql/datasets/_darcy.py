"""Darcy flow: several functions that share one equation with variable coefficients."""

from typing import Any

import numpy as np
from sklearn.utils import check_array

from keql.datasets import _common as common
from keql.kernels import RBF, Constant, Polynomial

VARIABLES = ("x1", "x2")
OPERATORS = ("u", "u_x1", "u_x1x1", "u_x2", "u_x2x2", "u_x1x2")


class _GaussianFields:
    """Draws of a Gaussian process on the unit square with the kernel of `RBF`.

    In one dimension, with s = (x - 1/2) / length_scale, the kernel is the sum of
    phi_n(x) phi_n(y) over n = 0, 1, ..., phi_n = exp(-s^2 / 2) s^n / sqrt(n!). A draw
    is sum_ij Z_ij phi_i(x1) phi_j(x2) with standard normal Z_ij. The squares of the
    phi_n are the probabilities of a Poisson distribution of mean s^2, which tells
    how many terms reach the rounding; they grow as length_scale^-2, which is why it is
    at least `shortest`.
    """

    def __init__(self, n_functions, length_scale, rng, shortest=0.02):
        common.check_number(length_scale, "length_scale", min_val=shortest)
        self.length_scale = float(length_scale)
        mean = (0.5 / self.length_scale) ** 2
        self._n_terms = int(np.ceil(mean + 12 * np.sqrt(mean) + 24))
        self._weights = rng.standard_normal((n_functions, self._n_terms, self._n_terms))

    def _basis(self, x, order):
        """Return the derivatives of the phi_n at the x, shape (len(x), n_terms)."""
        s = (x - 0.5) / self.length_scale
        n = np.arange(1, self._n_terms + order)
        ratios = s[:, None] / np.sqrt(n)
        powers = np.cumprod(np.column_stack([np.ones_like(s), ratios]), axis=1)
        basis = np.exp(-0.5 * s[:, None] ** 2) * powers
        for _ in range(order):
            # phi_n' = (sqrt(n) phi_{n-1} - sqrt(n + 1) phi_{n+1}) / length_scale
            roots = np.sqrt(np.arange(1, basis.shape[1]))
            derivative = -roots * basis[:, 1:]
            derivative[:, 1:] += roots[:-1] * basis[:, :-2]
            basis = derivative / self.length_scale
        return basis

    def __call__(self, X, function, orders):
        left, right = (self._basis(X[:, i], orders[i]) for i in range(2))
        return np.einsum("ni,ni->n", left @ self._weights[function], right)


class _DarcyTruth:
    """Several functions, told apart by the third column of X or by `function`."""

    def __init__(self, fields, n_functions):
        self._fields = fields
        self._n_functions = n_functions

    def __call__(self, X, operator="u", function=None):
        X = check_array(X, dtype=np.float64, input_name="X")
        orders = common.orders_of(operator, VARIABLES)
        if function is None and X.shape[1] != 3:
            raise ValueError(
                f"X has {X.shape[1]} columns and function is None; give x1, x2 and the "
                "label of the function, or the label as function."
            )
        labels = X[:, 2] if function is None else np.full(len(X), float(function))
        points = common.check_points(X[:, :2], [0.0, 0.0], [1.0, 1.0])
        values = np.empty(len(X))
        order = np.argsort(labels, kind="stable")
        different, starts = np.unique(labels[order], return_index=True)
        for label, rows in zip(different, np.split(order, starts[1:]), strict=True):
            if label not in range(self._n_functions):
                raise ValueError(
                    f"function={label:g} is not one of 0 to {self._n_functions - 1}."
                )
            values[rows] = self._fields(points[rows], int(label), orders)
        return values


def _unknown_part(features):
    """Return div(a grad u), a = exp(sin(cos x1 + cos x2)), at features (n, 8)."""
    columns = np.asarray(features, dtype=np.float64)[:, :8].T
    x1, x2, _, u_x1, u_x1x1, u_x2, u_x2x2, _ = columns
    inner = np.cos(x1) + np.cos(x2)
    a = np.exp(np.sin(inner))
    slope = np.cos(inner)
    drift = -slope * (np.sin(x1) * u_x1 + np.sin(x2) * u_x2)
    return a * (u_x1x1 + u_x2x2 + drift)


def _features_at(points, fields, function):
    """Return the features (n, 8) of one drawn function at points (n, 2)."""
    names = [common.orders_of(operator, VARIABLES) for operator in OPERATORS]
    return np.column_stack([points, *(fields(points, function, a) for a in names)])


def _new_features(n, length_scale=0.5, grid_size=100, random_state=None):
    """Return the features (grid_size**2, 8) of `n` new functions on a uniform grid.

    They are draws from the Gaussian process with the given length scale, a list.
    """
    common.check_count(n, "n", 1)
    common.check_count(grid_size, "grid_size", 2)
    axis = np.linspace(0.0, 1.0, grid_size)
    points = common.product_grid(axis, axis)
    fields = _GaussianFields(n, length_scale, common.random_generator(random_state))
    return [_features_at(points, fields, m) for m in range(n)]


def make_darcy(
    n_functions: int = 8,
    n_interior: int = 8,
    *,
    length_scale: float = 0.5,
    grid_size: int = 15,
    noise: float = 0.0,
    random_state: Any = None,
) -> Any:
    """Make observations of solutions of a Darcy flow with unknown permeability.

    Every state solves div(a grad u) = f on the unit square with the permeability
    a = exp(sin(cos x1 + cos x2)). The states are drawn from a Gaussian process and
    their forcings f are exact. No part of the equation is known.

    Parameters
    ----------
    n_functions : int, default=8
        Number of functions.
    n_interior : int, default=8
        Number of observations of each function inside the square, drawn for each by
        itself from the inner points of the grid.
    length_scale : float, default=0.5
        Length scale of the Gaussian process with kernel RBF; at least 0.02.
    grid_size : int, default=15
        Points of the uniform grid per coordinate; at least 3. All its boundary points
        are observed, its inner ones are the collocation points.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise of `y`, rows on the boundary included,
        as a fraction of the root mean square of the clean states.
    random_state : int, RandomState, Generator or None, default=None
        Draws the functions, the observed points and the noise. The functions do not
        depend on `n_interior`, and the first of them not on `n_functions`.

    Returns
    -------
    Bunch
        With the entries of :mod:`keql.datasets`, among them

        - `X` (n, 3), `y` (n,): the observations at (x1, x2, label of the function),
          function by function, its boundary first; the labels are 0.0, 1.0, ...;
        - `forcing`: a dict from the label to the values at the collocation points;
        - `X_test` (900 n_functions, 3), `y_test`: the clean states on a uniform grid;
        - `truth(X, operator="u", function=None)`: the clean states or a derivative, for
          X with a column of labels, or without one for the given `function`;
        - `features(n, length_scale=0.5, grid_size=100, random_state=None)`: features of
          `n` new functions, a list of arrays (grid_size**2, 8) on a uniform grid, for
          the error of the equation in and out of the distribution it was learned from;
        - `feature_names`: ("x1", "x2", "u", "u_x1", "u_x1x1", "u_x2", "u_x2x2",
          "u_x1x2");
        - `equation(features)`: the values of P, the whole left-hand side.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Examples
    --------
    >>> from keql.datasets import make_darcy
    >>> data = make_darcy(n_functions=2, random_state=0)
    >>> data.X.shape, data.collocation_points.shape
    ((128, 3), (169, 2))
    >>> [S.shape for S in data.features(3, length_scale=0.2, grid_size=10)]
    [(100, 8), (100, 8), (100, 8)]
    """
    common.check_count(n_functions, "n_functions", 1)
    common.check_count(grid_size, "grid_size", 3)
    n_inner = (grid_size - 2) ** 2
    common.check_count(
        n_interior, "n_interior", 0, n_inner, "inner points of grid_size"
    )
    common.check_number(noise, "noise", min_val=0.0)
    rng = common.random_generator(random_state)
    fields = _GaussianFields(n_functions, length_scale, rng)

    axis = np.linspace(0.0, 1.0, grid_size)
    grid = common.product_grid(axis, axis)
    inside = np.all((grid > 0) & (grid < 1), axis=1)
    inner, boundary = grid[inside], grid[~inside]
    axis = np.linspace(0.0, 1.0, 30)
    parts, parts_test, forcing = [], [], {}
    for m in range(n_functions):
        observed = inner[rng.permutation(n_inner)[:n_interior]]
        parts.append(_labelled(np.vstack([boundary, observed]), m))
        parts_test.append(_labelled(common.product_grid(axis, axis), m))
        features = _features_at(inner, fields, m)
        forcing[float(m)] = _unknown_part(features)
    X, X_test = np.vstack(parts), np.vstack(parts_test)
    n_collocation = n_functions * n_inner
    coefficients = RBF(0.4, "fixed", active_dims=VARIABLES)
    kernels = {
        "state_kernel": RBF(0.5, "fixed"),
        "equation_kernel": Constant(1.0, "fixed") * coefficients * Polynomial(1),
        **common.noise_levels(len(X), n_collocation, omega=5, beta=1e-12),
        "n_inducing": min(200, n_collocation),
    }
    others = {
        "kernels": kernels,
        "features": _new_features,
        "equation": _unknown_part,
        "unknown_part": _unknown_part,
        "DESCR": common.DESCR.format(
            title="Darcy flow",
            equation="div(a grad u) = f,  a = exp(sin(cos x1 + cos x2))",
            operators=", ".join(VARIABLES + OPERATORS),
            truth="draws of a Gaussian process, differentiated in closed form.",
        ),
    }
    problem = common.describe_problem(OPERATORS, None, inner, forcing, VARIABLES, 2)
    truth = _DarcyTruth(fields, n_functions)
    return common.make_bunch(problem, X, X_test, truth, noise, rng, **others)


def _labelled(points, label):
    return np.column_stack([points, np.full(len(points), float(label))])
