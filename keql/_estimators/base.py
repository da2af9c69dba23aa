"""What the estimators share: validation, labels, collocation, prediction.

The only module that imports private helpers of scikit-learn.
"""

from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from keql._observations.columns import column_index, refuse_missing
from keql._observations.data import (
    by_label,
    default_collocation,
    evaluate_forcing,
    low_discrepancy,
)
from keql.operators import DifferentialOperator, parse_operator


def at_least(lowest, kind=Integral):
    """The constraint that a parameter is a number, not below the lowest."""
    return Interval(kind, lowest, None, closed="left")


class BaseKEqL(RegressorMixin, BaseEstimator):
    """Base class of the estimators."""

    # Parameters that name a column of X which holds no coordinate; labels are first.
    _special = ("function_column",)

    _parameter_constraints: dict = {
        "operators": [None, tuple, list],
        "known_part": [None, str, tuple, dict, callable, DifferentialOperator],
        "collocation_points": [None, at_least(1), "array-like", dict],
        "forcing": [None, callable, "array-like", dict],
        "variables": [None, tuple, list],
        "function_column": [None, Integral, str],
        "observation_noise": [None, at_least(0, Real)],
        "equation_noise": [None, at_least(0, Real)],
        "state_penalty": [Interval(Real, 0, None, closed="neither")],
        "n_inducing": [at_least(1)],
        "n_basis": [None, at_least(1)],
        "n_terms": [None, StrOptions({"auto"}), at_least(1)],
        "solver": [StrOptions({"auto", "dual", "primal"})],
        "optimizer": [StrOptions({"fmin_l_bfgs_b"}), callable, None],
        "n_restarts": [at_least(0)],
        "max_iter": [at_least(1)],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        "n_jobs": [None, Integral],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    def predict(self, X, return_std=False):
        """Values of the fitted state.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns)
            Points, with the column of function labels if there was one in `fit`.
        return_std : bool, default=False
            Whether the posterior standard deviation of the state is returned too.

        Returns
        -------
        u : ndarray of shape (n,)
            In units of `y`; of a solver with an operator column, values of the operator
            that a row names.
        std : ndarray of shape (n,)
            Only if `return_std`: of the state itself, without observation noise; of a
            solver, of the linearised problem with the kernel as prior covariance.

        Warns
        -----
        ExtrapolationWarning
            If the estimator is a :class:`keql.KernelPDESolver` and points lie outside
            of the domain of the data and collocation points, or the equation was
            learned and features of the solution leave the region of those that it was
            learned from; the method `extrapolation` says where.
        """
        return self.predict_derivative(X, "u", return_std=return_std)

    def predict_derivative(self, X, operator, return_std=False):
        """Values of an operator applied to the fitted state.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns)
            Points, with the column of function labels if there was one in `fit`.
        operator : str, tuple of int, or DifferentialOperator
            Any operator that the state kernel allows, such as "u_xx"; it need not be
            one of the equation's.
        return_std : bool, default=False
            Whether the posterior standard deviation is returned too.

        Returns
        -------
        values : ndarray of shape (n,)
            In units of `y` over those of the coordinates differentiated.
        std : ndarray of shape (n,)
            Only if `return_std`.

        Warns
        -----
        ExtrapolationWarning
            If the estimator is a :class:`keql.KernelPDESolver`, where its `predict`
            warns.
        """
        check_is_fitted(self)
        points, labels = self._read_points(X)
        operator = parse_operator(operator, self.variables_)
        self._warn(points, labels)
        index = np.zeros(len(points), dtype=int)
        return self._evaluate(points, labels, [operator], index, return_std)

    def _evaluate(self, points, labels, operators, index, return_std):
        """Values of an operator at each row, its `index` in the list of operators."""
        values, variances = np.empty(len(points)), np.empty(len(points))
        for m, rows_of_function in self._rows_of_functions(labels):
            for j in np.unique(index[rows_of_function]):
                rows = rows_of_function[index[rows_of_function] == j]
                state, asked = self.states_[m], (points[rows], operators[j])
                values[rows] = state.evaluate(*asked)
                if return_std:
                    variances[rows] = state.variance(*asked)
        return (values, np.sqrt(variances)) if return_std else values

    def _warn(self, points, labels):
        """Warn of predictions that go too far; of learned states none does."""

    def coordinates(self, X):
        """Coordinates of points: `X` without the column of function labels.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns)
            Points as `predict` takes them.

        Returns
        -------
        points : ndarray of shape (n, d)
            The columns named by `variables_`.
        """
        check_is_fitted(self)
        return self._read_points(X)[0]

    def _rows_of_functions(self, labels):
        """Yield (position in `functions_`, rows), refusing unknown labels."""
        known = {label: m for m, label in enumerate(self.functions_)}
        unknown = sorted({str(label) for label in labels if label not in known})
        if unknown:
            raise ValueError(
                f"X has the function label(s) {', '.join(unknown[:5])} in column "
                f"{self.function_column!r}, unseen in fit: known are "
                f"{', '.join(str(label) for label in self.functions_[:10])}. Solve "
                "the learned equation for new functions."
            )
        positions = np.array([known[label] for label in labels], dtype=int)
        for m in np.unique(positions):
            yield m, np.flatnonzero(positions == m)

    def _read_points(self, X):
        """Coordinates (n, d) and function labels of the rows of `X`, after `fit`."""
        points, entries = self._split_columns(X, reset=False)
        return points, entries[0]

    def _split_columns(self, X, reset):
        """Coordinates (n, d), and the entries of each special column."""
        given = {parameter: getattr(self, parameter) for parameter in self._special}
        if not any(column is not None for column in given.values()):
            points = validate_data(self, X, dtype=np.float64, reset=reset)
            return points, [[None] * len(points) for _ in given]
        if not hasattr(X, "columns"):
            X = np.asarray(X)
        _check_feature_names(self, X, reset=reset)
        _check_n_features(self, X, reset=reset)
        given = {name: column for name, column in given.items() if column is not None}
        columns = {name: column_index(X, given[name], name) for name in given}
        others = [i for i in range(X.shape[1]) if i not in columns.values()]
        coordinates = _safe_indexing(X, others, axis=1)
        checks = {"dtype": np.float64, "input_name": "X", "estimator": self}
        points = check_array(coordinates, **checks)
        entries = dict.fromkeys(self._special, [None] * len(points))
        for name, i in columns.items():
            entries[name] = np.asarray(_safe_indexing(X, i, axis=1)).tolist()
            refuse_missing(entries[name], given[name], name)
        return points, list(entries.values())

    def _read(self, X, y):
        """Coordinates and values of the rows, and entries of the special columns."""
        if len(getattr(y, "shape", ())) == 2 and y.shape[1] > 1:
            raise ValueError(
                f"y has {y.shape[1]} columns: keql learns one state u, given as a "
                "1d array; systems of several states are not supported yet."
            )
        if all(getattr(self, parameter) is None for parameter in self._special):
            points, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
            return points, [[None] * len(points) for _ in self._special], y
        points, entries = self._split_columns(X, reset=True)
        y = column_or_1d(y, warn=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(points, y)
        return points, entries, y

    def _read_weights(self, sample_weight, points):
        """Relative precisions of the rows, of shape (n,), none of them negative."""
        return _check_sample_weight(
            sample_weight, points, dtype=np.float64, ensure_non_negative=True
        )

    def _coordinate_columns(self):
        """Names of the columns of `X` that hold coordinates; None for an array."""
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return None
        special = [getattr(self, parameter) for parameter in self._special]
        special = [names[i] if isinstance(i, Integral) else i for i in special]
        return [name for name in names if name not in special]

    def _place_collocation(self, observations, variables):
        """Collocation points of each function."""
        given, labels = self.collocation_points, observations.labels
        if given is None:
            return default_collocation(observations.functions)
        if isinstance(given, Integral):
            everything = np.concatenate([d.points for d in observations.functions])
            return [low_discrepancy(everything, given)] * len(labels)
        per_function = by_label(given, labels, "collocation_points")
        checks = {"dtype": np.float64, "input_name": "collocation_points"}
        different = {id(points): points for points in per_function}
        checked = {key: check_array(x, **checks) for key, x in different.items()}
        for array in checked.values():
            if array.shape[1] != len(variables):
                raise ValueError(
                    f"collocation_points has {array.shape[1]} column(s): it must have "
                    f"one for each of the variables {', '.join(variables)}."
                )
        return [checked[id(points)] for points in per_function]

    def _evaluate_forcing(self, labels, collocation_points):
        """Right-hand side at the collocation points of each function."""
        placed = self.collocation_points
        at_points = placed is not None and not isinstance(placed, Integral)
        return evaluate_forcing(self.forcing, labels, collocation_points, at_points)
