"""Errors of states, equations and solution operators, and scorers made of them.

Every error is the relative L2 error norm(true - predicted) / norm(true), without a
square, averaged over functions: the published figures are these.
"""

from collections.abc import Hashable
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.base import clone
from sklearn.utils import check_array, check_consistent_length, column_or_1d

from keql._numerics.arguments import (
    as_numbers,
    as_rows,
    call_given,
    in_short,
    naming,
    refuse_dates,
    refuse_no_array,
)

__all__ = [
    "equation_error",
    "fill_distance",
    "filtering_error",
    "filtering_scorer",
    "make_equation_scorer",
    "operator_error",
    "relative_l2_error",
]


def _values(values, name):
    """Return finite float values of shape (n,)."""
    values = _array(values, name, ensure_2d=False, allow_nd=True)
    if values.ndim > 2 or values.size != len(values):
        raise ValueError(f"{name} has the shape {values.shape}: it must have one axis.")
    return column_or_1d(values)


def _array(values, name, **how):
    """Return finite floats; errors name the argument."""
    try:
        refuse_dates(values, name)
        kind = np.asarray(values).dtype.kind
        if kind in "mM" or np.ma.is_masked(values):
            raise ValueError("dates and masked values are no numbers.")
        return check_array(values, dtype=np.float64, input_name=name, **how)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error


def _relative(true, predicted, name):
    """Return norm(true - predicted) / norm(true) of one function."""
    if len(true) != len(predicted):
        raise ValueError(
            f"{name} and features have inconsistent numbers of samples, {len(true)} "
            f"and {len(predicted)}: give one value for each."
        )
    norm = np.linalg.norm(true)
    if norm == 0:
        raise ValueError(
            f"{name} is zero: no error is relative to it; leave that function out."
        )
    return float(np.linalg.norm(true - predicted) / norm)


def relative_l2_error(y_true: Any, y_pred: Any, *, functions: Any = None) -> float:
    """Relative L2 error, norm(y_true - y_pred) / norm(y_true).

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        True and predicted values, in the same units.
    functions : array-like of shape (n,), default=None
        Label of the function that a value belongs to: the error of each function is
        taken by itself, and their mean returned. None: all belong to one function.

    Returns
    -------
    float
        The error, without unit; 0 is best.

    Raises
    ------
    ValueError
        If the lengths differ, a value is not finite, or a true function is zero.

    Examples
    --------
    >>> from keql.metrics import relative_l2_error
    >>> relative_l2_error([3.0, 4.0], [3.0, 3.0])
    0.2
    >>> relative_l2_error([3.0, 4.0, 5.0], [3.0, 3.0, 2.0], functions=[0, 0, 1])
    0.4
    """
    y_true, y_pred = _values(y_true, "y_true"), _values(y_pred, "y_pred")
    if len(y_true) != len(y_pred):
        raise ValueError(
            "y_true and y_pred have inconsistent numbers of samples, "
            f"{len(y_true)} and {len(y_pred)}: give values at equal points."
        )
    with naming("functions"):
        check_consistent_length(y_true, y_pred, functions)
    if functions is None:
        return _relative(y_true, y_pred, "y_true")
    rows_of: dict = {}
    for row, label in enumerate(np.asarray(functions).tolist()):
        if not isinstance(label, Hashable):
            raise TypeError(f"functions has {in_short(label)}, which is no label.")
        rows_of.setdefault(label, []).append(row)
    errors = [
        _relative(y_true[rows], y_pred[rows], f"y_true of function {label!r}")
        for label, rows in rows_of.items()
    ]
    return float(np.mean(errors))


def _check_method(given, name, method):
    """Refuse an argument that cannot be asked for what is compared."""
    if not hasattr(given, method):
        raise TypeError(
            f"{name} is {in_short(given)}, which has no method {method}: give that of "
            "a fitted learner."
        )


def _fitted(estimator):
    """Return the estimator that a search has found, or the estimator itself."""
    return getattr(estimator, "best_estimator_", estimator)


def function_labels(estimator, X):
    """Return the labels of the rows of X, or None if all are one function."""
    column = getattr(estimator, "function_column", None)
    if column is None:
        return None
    names = getattr(X, "columns", None)
    if names is not None:
        return np.asarray(X[column if isinstance(column, str) else names[column]])
    if isinstance(column, str):
        known = list(getattr(estimator, "feature_names_in_", []))
        if column not in known:
            raise ValueError(
                f"function_column={column!r} is a name, but X is an array; give a "
                "DataFrame, or the index of the column."
            )
        column = known.index(column)
    return np.asarray(X)[:, column]


def filtering_error(estimator: Any, X: Any, y: Any) -> float:
    """Relative L2 error of a fitted state, averaged over functions.

    Parameters
    ----------
    estimator : estimator
        A fitted regressor. Its parameter `function_column`, if it has one, says which
        column of `X` labels the functions. A search stands for its best estimator.
    X, y : array-like (or DataFrame) of shape (n, n_features) and (n,)
        Points at which the true state is known, and the true state there.

    Returns
    -------
    float
        The error, without unit; 0 is best.

    Raises
    ------
    ValueError
        If a true function is zero, or the column of labels is not found.

    Examples
    --------
    >>> from sklearn.dummy import DummyRegressor
    >>> from keql.metrics import filtering_error
    >>> mean = DummyRegressor().fit([[0.0], [1.0]], [0.0, 2.0])
    >>> filtering_error(mean, [[0.0], [1.0]], [2.0, 2.0])
    0.5
    """
    estimator = _fitted(estimator)
    _check_method(estimator, "estimator", "predict")
    labels, predicted = function_labels(estimator, X), estimator.predict(X)
    with naming("X and y"):
        check_consistent_length(predicted, y)
    return relative_l2_error(y, predicted, functions=labels)


def filtering_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Score a fitted state by minus its filtering error: a `scoring` of scikit-learn.

    Parameters
    ----------
    estimator, X, y : estimator and array-like
        A fitted regressor, points and the true state, as in :func:`filtering_error`.

    Returns
    -------
    float
        Minus the relative L2 error; 0 is best.

    Examples
    --------
    >>> from sklearn.dummy import DummyRegressor
    >>> from sklearn.model_selection import cross_val_score
    >>> from keql.metrics import filtering_scorer
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [2.0, 2.0, 1.0, 1.0]
    >>> cross_val_score(DummyRegressor(), X, y, scoring=filtering_scorer, cv=2)
    array([-0.5, -1. ])
    """
    return -filtering_error(estimator, X, y)


def _per_function(arrays):
    """Return a list of arrays (n, d): one per function, or the only one."""
    if isinstance(arrays, (list, tuple)) and np.ndim(arrays[0]) == 2:
        return list(arrays)
    if hasattr(arrays, "columns") or np.ndim(arrays) != 3:
        return [arrays]
    return list(as_numbers(arrays, "features"))


def _true_values(unknown_part, features):
    """Return the values (n,) of the true unknown part for each function's features."""
    if callable(unknown_part):
        truths = [call_given(unknown_part, "unknown_part", S, True) for S in features]
    else:
        refuse_no_array(unknown_part, "unknown_part")
        if hasattr(unknown_part, "columns"):
            unknown_part = np.asarray(unknown_part)
        if isinstance(unknown_part, Real) or not len(unknown_part):
            raise ValueError("unknown_part must have one value for each feature.")
        is_list = len(features) > 1 or np.ndim(unknown_part[0]) == 1
        truths = list(unknown_part) if is_list else [unknown_part]
    if len(truths) != len(features):
        raise ValueError(
            f"unknown_part has values for {len(truths)} functions and features are "
            f"of {len(features)}; give one array of values for each."
        )
    return [_values(truth, "unknown_part") for truth in truths]


def equation_error(equation: Any, features: Any, unknown_part: Any) -> float:
    """Relative L2 error of the learned unknown part, averaged over functions.

    Parameters
    ----------
    equation : LearnedEquation
        Anything with a method `unknown_part(features)`.
    features : array-like of shape (n, n_features) or list of them
        Features of true functions: coordinates, then operators; a list has one array
        for each function.
    unknown_part : callable or array-like of shape (n,) or list of them
        The true unknown part: a function of the features, or its values at them.

    Returns
    -------
    float
        The error, without unit; 0 is best.

    Raises
    ------
    ValueError
        If the true unknown part is zero, or lists differ in length.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.datasets import make_duffing
    >>> from keql.metrics import equation_error
    >>> data = make_duffing()
    >>> t = data.collocation_points
    >>> S = np.column_stack([t, data.truth(t, "u"), data.truth(t, "u_t")])
    >>> equation_error(data, S, data.unknown_part)
    0.0
    >>> equation_error(data, S, 2.0 * data.unknown_part(S))
    0.5
    """
    _check_method(equation, "equation", "unknown_part")
    with naming("features"):
        features = [as_rows(S, "features") for S in _per_function(features)]
    with naming("unknown_part"):
        truths = _true_values(unknown_part, features)
    name = "equation.unknown_part(features)"
    with naming("features"):
        found = [_values(equation.unknown_part(S), name) for S in features]
    pairs = zip(truths, found, strict=True)
    return float(np.mean([_relative(*pair, "unknown_part") for pair in pairs]))


def _equation_score(estimator, X=None, y=None, *, features, unknown_part):
    return -equation_error(_fitted(estimator).equation_, features, unknown_part)


def make_equation_scorer(features: Any, unknown_part: Any) -> Any:
    """Make a scorer of fitted learners: minus the error of their equation.

    Parameters
    ----------
    features, unknown_part : array-like or list of them, or callable
        True features and the true unknown part, as in :func:`equation_error`.

    Returns
    -------
    callable
        ``scorer(estimator, X, y=None)``, usable as `scoring`; it looks at
        ``estimator.equation_`` only. Picklable if `unknown_part` is.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> from keql.metrics import make_equation_scorer
    >>> scorer = make_equation_scorer([[1.0], [2.0]], [2.0, 4.0])
    >>> learned = SimpleNamespace(unknown_part=lambda S: 1.5 * S[:, 0])
    >>> scorer(SimpleNamespace(equation_=learned), X=None)
    -0.25
    """
    # Not a local function: a scorer is pickled to other processes.
    return partial(_equation_score, features=features, unknown_part=unknown_part)


def operator_error(solver: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> float:
    """Relative L2 error of the solutions that a solver finds for new conditions.

    Parameters
    ----------
    solver : estimator
        A solver of a learned equation. A clone of it is fitted, it stays as it is.
    X, y : array-like of shape (n, n_features) and (n,), or lists of them
        Points of the initial and boundary conditions, and the solution there; a list
        has one array for each problem, and every problem gets its own clone.
    X_test, y_test : array-like of shape (n_test, n_features) and (n_test,), or lists
        Points at which the true solution is known, and the true solution there.

    Returns
    -------
    float
        The error, averaged over problems and their functions; 0 is best.

    Raises
    ------
    ValueError
        If a true solution is zero, or the lists differ in length.

    Examples
    --------
    >>> from sklearn.dummy import DummyRegressor
    >>> from keql.metrics import operator_error
    >>> solver = DummyRegressor()
    >>> operator_error(solver, [[0.0], [1.0]], [1.0, 3.0], [[0.5]], [4.0])
    0.5
    """
    problems = [X, y, X_test, y_test]
    if not (isinstance(X, (list, tuple)) and np.ndim(X[0]) == 2):
        problems = [[item] for item in problems]
    if len({len(item) for item in problems}) > 1:
        sizes = ", ".join(str(len(item)) for item in problems)
        raise ValueError(
            f"X, y, X_test and y_test are of {sizes} problems; give as many of each."
        )
    _check_method(solver, "solver", "fit")
    with naming("solver"):
        errors = [
            _error_of_solution(clone(solver).fit(conditions, values), points, truth)
            for conditions, values, points, truth in zip(*problems, strict=True)
        ]
    return float(np.mean(errors))


def _error_of_solution(solver, X_test, y_test):
    """Error of a fitted solver; what is refused is said to be of X_test and y_test."""
    with naming("X_test and y_test"):
        return filtering_error(solver, X_test, y_test)


def fill_distance(points: Any, domain: Any) -> float:
    """Largest distance from a point of the domain to the nearest of the points.

    The error bounds are powers of it: of the collocation points in the domain, and of
    the true features in the set on which the equation is asked for.

    Parameters
    ----------
    points, domain : array-like of shape (n, d) and (n_domain, d)
        The points that fill the domain, and those that stand for it, such as a grid.

    Returns
    -------
    float
        The distance, in the units of the coordinates.

    Raises
    ------
    ValueError
        If the two differ in d.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.metrics import fill_distance
    >>> fill_distance([[0.0], [1.0]], np.linspace(0.0, 1.0, 11)[:, None])
    0.5
    """
    points, domain = _array(points, "points"), _array(domain, "domain")
    if points.shape[1] != domain.shape[1]:
        raise ValueError(
            f"points have {points.shape[1]} coordinates and domain has "
            f"{domain.shape[1]}; give both the same."
        )
    return float(cKDTree(points).query(domain)[0].max())
