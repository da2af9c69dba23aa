"""What the estimators share: validation, labels, collocation, prediction.

The only module that imports private helpers of scikit-learn.
"""

from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import _safe_indexing, check_array, get_tags
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

from keql._numerics.arguments import (
    as_numbers,
    check_flag,
    in_short,
    naming,
    refuse_dates,
    refuse_no_array,
    refuse_odd_numbers,
)
from keql._observations.columns import (
    column_index,
    coordinates_by_name,
    operators_of_rows,
    refuse_missing,
    refuse_no_coordinates,
    states_by_name,
)
from keql._observations.grids import as_grid, read_grid
from keql._observations.inputs import Inputs, constant_of_functions
from keql._observations.tables import refuse_what_is_no_number
from keql.operators import DifferentialOperator, identity_of, parse_operator


def at_least(lowest, kind=Integral):
    """The constraint that a parameter is a number, not below the lowest."""
    return Interval(kind, lowest, None, closed="left")


@contextmanager
def all_or_nothing(estimator):
    """What fails, or is interrupted, inside leaves fitted attributes as they were.

    Errors of the linear algebra say what the matrices were made of.
    """
    before = _fitted_attributes(estimator)
    try:
        yield
    except BaseException as error:
        for name in _fitted_attributes(estimator):
            delattr(estimator, name)
        vars(estimator).update(before)
        if isinstance(error, np.linalg.LinAlgError):
            raise ValueError(
                f"the fit to X and y, with {_covariances_of(estimator)}, failed: "
                f"{error}"
            ) from error
        raise


def _covariances_of(estimator):
    """The parameters that covariances are made of, as they are given, in a phrase."""
    names = "state_kernel equation_kernel observation_noise equation_noise"
    names = [*names.split(), "state_penalty", "n_basis"]
    given = {name: getattr(estimator, name, None) for name in names}
    told = [f"{name}={in_short(v)}" for name, v in given.items() if v is not None]
    return ", ".join(told)


def _fitted_attributes(estimator):
    """What `fit` sets, {name: value}: names that end in an underscore."""
    own = vars(estimator).items()
    return {k: v for k, v in own if k.endswith("_") and not k.startswith("_")}


def _true_values(y):
    """Values (n,) or (n, S) to compare with, NaN where nothing was measured."""
    y = as_numbers(y, "y")
    if y.ndim not in (1, 2) or np.any(np.isinf(y)):
        raise ValueError(
            f"y has the shape {y.shape}, with {np.sum(np.isinf(y))} infinite values: "
            "it must have one or two axes and be finite, or NaN where nothing was "
            "measured."
        )
    return y


class BaseKEqL(RegressorMixin, BaseEstimator):
    """Base class of the estimators."""

    # Set by `fit`; those of the subclasses are there.
    collocation_points_: list[np.ndarray] | None
    converged_: bool
    functions_: tuple
    n_features_in_: int
    n_iter_: int
    state_names_: tuple[str, ...]
    states_: list
    variables_: tuple[str, ...]

    _parameter_constraints: dict = {
        "operators": [None, str, tuple, list],
        "known_part": [None, str, tuple, list, dict, callable, DifferentialOperator],
        "collocation_points": [None, at_least(1), "array-like", dict],
        "forcing": [None, callable, "array-like", dict, tuple],
        "variables": [None, str, tuple, list],
        "function_column": [None, Integral, str],
        "operator_column": [None, Integral, str],
        "inputs": [None, dict],
        "units": [None, dict],
        "periods": [None, dict],
        "states": [None, tuple, list, str],
        "equations": [None, list],
        "observation_noise": [None, at_least(0, Real), dict],
        "equation_noise": [None, at_least(0, Real), dict],
        "state_penalty": [Interval(Real, 0, None, closed="neither")],
        "n_inducing": [at_least(1)],
        "n_basis": [None, at_least(1)],
        "n_terms": [None, StrOptions({"auto"}), at_least(1), dict],
        "solver": [StrOptions({"auto", "dual", "primal"})],
        "optimizer": [StrOptions({"fmin_l_bfgs_b"}), callable, None],
        "n_restarts": [at_least(0)],
        "max_iter": [at_least(1)],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        "n_jobs": [None, Interval(Integral, None, -1, closed="right"), at_least(1)],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    def _validate_params(self):
        refuse_odd_numbers(self.get_params(deep=False), self._parameter_constraints)
        super()._validate_params()

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Values of the fitted states.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns), or grid
            Points, with the columns that there were in `fit`; or an xarray grid.
        return_std : bool, default=False
            Whether the posterior standard deviations of the states are returned too.

        Returns
        -------
        u : ndarray of shape (n,) or (n, S), or grid
            In units of `y`, one column for each of several states; with an operator
            column, values (n,) of the operator that a row names; a grid for a grid.
        std : ndarray of the same shape
            Only if `return_std`: of the states themselves, without observation noise;
            of a solver, of the linearised problem with the kernel as prior covariance.

        Warns
        -----
        ExtrapolationWarning
            If points lie outside of `domain_`: of a learner, the box of the data, and
            of the collocation points if the equation is imposed there, wider by a mean
            gap between observations; use its method `forecast` for later times. Of a
            :class:`keql.KernelPDESolver` also if features of the solution leave the
            region that its equation was learned from; its method `extrapolation` says
            where.
        """
        check_is_fitted(self)
        grid = as_grid(X)
        if grid is not None:
            asked = self.predict(grid.points(), return_std)
            return grid.filled(asked, self.state_names_)
        self._warn(*self._read_points(X))
        return self._predict(X, return_std)

    def _predict(self, X, return_std=False):
        """Values of the fitted states, without a warning."""
        check_flag(return_std, "return_std")
        points, columns = self._split_columns(X, reset=False)
        labels = columns["function_column"]
        if self.operator_column is not None:
            operators, index = self._operators_of_rows(
                columns["operator_column"], self.variables_, self.state_names_
            )
            return self._evaluate(points, labels, operators, index, return_std)
        index = np.zeros(len(points), dtype=int)
        asked = [
            self._evaluate(points, labels, [operator], index, return_std)
            for operator in (identity_of(s, points.shape[1]) for s in self.state_names_)
        ]
        if len(asked) == 1:
            return asked[0]
        if not return_std:
            return np.column_stack(asked)
        return tuple(np.column_stack(part) for part in zip(*asked, strict=True))

    def predict_derivative(
        self, X: Any, operator: Any, return_std: bool = False
    ) -> Any:
        """Values of an operator applied to the fitted states.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns), or grid
            Points, as `predict` takes them.
        operator : str, tuple of int, or DifferentialOperator
            Any operator that the state kernel allows, such as "u_xx"; it need not be
            one of the equation's.
        return_std : bool, default=False
            Whether the posterior standard deviation is returned too.

        Returns
        -------
        values : ndarray of shape (n,), or grid
            In units of `y` over those of the coordinates differentiated.
        std : ndarray of shape (n,)
            Only if `return_std`.

        Warns
        -----
        ExtrapolationWarning
            Where `predict` warns.
        """
        check_is_fitted(self)
        check_flag(return_std, "return_std")
        with naming("operator"):
            operator = parse_operator(operator, self.variables_, self.state_names_)
        grid = as_grid(X)
        if grid is not None:
            values = self.predict_derivative(grid.points(), operator, return_std)
            return grid.named(values, operator.name)
        points, labels = self._read_points(X)
        self._warn(points, labels)
        index = np.zeros(len(points), dtype=int)
        return self._evaluate(points, labels, [operator], index, return_std)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination R^2 of the predictions.

        Unlike :meth:`predict` it does not warn of points outside of the data, such as
        those that a cross-validation leaves out at the ends.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns), or grid
            Points, as `predict` takes them; a grid with its values.
        y : array-like of shape (n,) or (n, S), default=None
            True values; NaN where a state was not measured. None: those of a grid.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            1 for perfect predictions; of several states, the mean over those that were
            measured.
        """
        check_is_fitted(self)
        grid = as_grid(X)
        X, y = (X, y) if grid is None else read_grid(grid, y)
        names, y = getattr(y, "columns", None), _true_values(y)
        if not y.size:
            raise ValueError(f"y has no values: its shape is {y.shape}.")
        predicted, y = self._predict(X), y.reshape(len(y), -1)
        predicted = predicted.reshape(len(predicted), -1)
        with naming("X and y"):
            check_consistent_length(predicted, y)
        if self.operator_column is None:
            y = states_by_name(y, names, self.state_names_)
        if sample_weight is not None:
            sample_weight = self._read_weights(sample_weight, predicted)
        if y.shape[1] > predicted.shape[1] or np.all(np.isnan(y)):
            raise ValueError(
                f"y has {y.shape[1]} column(s), {np.sum(~np.isnan(y))} values in all: "
                f"it must have values, and one column for each of the states "
                f"{', '.join(self.state_names_)}."
            )
        scores = []
        for true, values in zip(y.T, predicted.T, strict=False):
            rows = ~np.isnan(true)
            if rows.any():
                weights = None if sample_weight is None else sample_weight[rows]
                scores.append(r2_score(true[rows], values[rows], sample_weight=weights))
        return float(np.mean(scores))

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

    def _operators_of_rows(self, entries, variables, states):
        """Different operators, and the position of that of each row."""
        return operators_of_rows(None, entries, variables, True, states)

    def _warn(self, points, labels):
        """Warn of predictions that go too far."""

    def coordinates(self, X: Any) -> np.ndarray:
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

    def input_values(self, X: Any) -> np.ndarray:
        """Values of the inputs at points.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns)
            Points, as `predict` takes them.

        Returns
        -------
        values : ndarray of shape (n, n_inputs)
            In the order in which the equation has them.
        """
        check_is_fitted(self)
        points, labels = self._read_points(X)
        values = np.empty((len(points), len(self.inputs_.names)))
        for m, rows in self._rows_of_functions(labels):
            values[rows] = self.inputs_.at(m, points[rows])
        return values

    def _read_inputs(self, columns, labels, functions, names=None):
        """The Inputs; of those that are columns of X, the number of each function.

        `names` has them in another order than the parameter.
        """
        inputs = self.inputs or {}
        if names is not None:
            inputs = {name: inputs[name] for name in names}
        constants = {
            name: constant_of_functions(
                name, columns[f"inputs[{name!r}]"], labels, functions
            )
            for name, given in inputs.items()
            if isinstance(given, str)
        }
        return Inputs(inputs, tuple(functions), constants)

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
        points, columns = self._split_columns(X, reset=False)
        return points, columns["function_column"]

    def _special_columns(self):
        """Columns of X that hold no coordinate, by the name of their parameter."""
        columns = {
            "function_column": self.function_column,
            "operator_column": self.operator_column,
        }
        named = {} if self.inputs is None else self.inputs
        given = {name: value for name, value in named.items() if isinstance(value, str)}
        return columns | {f"inputs[{name!r}]": value for name, value in given.items()}

    def _split_columns(self, X, reset):
        """Coordinates (n, d), and the entries of each special column by name.

        The coordinates are in the order of the columns in `fit`; afterwards, in that of
        `variables_`.
        """
        points, columns = self._check_columns(X, reset)
        if not reset:
            names = self._coordinate_columns(getattr(X, "columns", None))
            points = points[:, coordinates_by_name(names, self.variables_)]
        return points, columns

    def _check_columns(self, X, reset):
        """Coordinates in the order of their columns, and the special columns."""
        special = self._special_columns()
        given = {name: column for name, column in special.items() if column is not None}
        if not given:
            refuse_what_is_no_number(X, "X")
            with naming("X"):
                points = validate_data(self, X, dtype=np.float64, reset=reset)
            return points, {name: [None] * len(points) for name in special}
        refuse_no_array(X, "X")
        with naming("X"):
            X = X if hasattr(X, "columns") else np.asarray(X)
            if len(X.shape) != 2:
                raise ValueError(
                    f"Expected 2D array, got one of shape {X.shape}. Reshape your data."
                )
            _check_feature_names(self, X, reset=reset)
            _check_n_features(self, X, reset=reset)
        refuse_no_coordinates(X, given)
        columns = {name: column_index(X, given[name], name) for name in given}
        refuse_what_is_no_number(X, "X", columns.values())
        others = [i for i in range(X.shape[1]) if i not in columns.values()]
        coordinates = _safe_indexing(X, others, axis=1)
        checks = {"dtype": np.float64, "input_name": "X", "estimator": self}
        with naming("X"):
            points = check_array(coordinates, **checks)
        entries = {name: [None] * len(points) for name in special}
        for name, i in columns.items():
            entries[name] = np.asarray(_safe_indexing(X, i, axis=1)).tolist()
            refuse_missing(entries[name], given[name], name)
        return points, entries

    def _read(self, X, y):
        """Coordinates, entries of the special columns, and values (n, S) of the rows.

        Values that are not a number were not measured.
        """
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                f"None, and X is no grid of values but {in_short(X)}: give the "
                "observed values of the states."
            )
        points, columns = self._split_columns(X, reset=True)
        is_table = hasattr(y, "columns")
        refuse_what_is_no_number(y, "y", needed=False)
        how = {"ensure_2d": False, "dtype": np.float64, "input_name": "y"}
        with naming("y"):
            y = check_array(y, ensure_all_finite="allow-nan", **how)
            if y.ndim < 2 or y.shape[1] == 1:
                several = get_tags(self).target_tags.multi_output
                y = column_or_1d(y, warn=not (is_table or several))
        with naming("X and y"):
            check_consistent_length(points, y)
        y = y.reshape(len(y), -1)
        nothing = np.flatnonzero(np.all(np.isnan(y), axis=1))
        if len(nothing):
            raise ValueError(
                f"y contains NaN, nothing was measured, in {len(nothing)} of {len(y)} "
                f"rows, such as row {nothing[0]}: leave these rows out, by "
                "rows = ~np.isnan(y) as X[rows], y[rows]. NaN in one of several "
                "columns says that this state was not measured."
            )
        return points, columns, y

    def _read_weights(self, sample_weight, points):
        """Relative precisions of the rows, of shape (n,), none of them negative."""
        if sample_weight is not None:
            refuse_what_is_no_number(sample_weight, "sample_weight")
            refuse_dates(sample_weight, "sample_weight")
        how = {"dtype": np.float64, "ensure_non_negative": True}
        with naming("sample_weight"):
            return _check_sample_weight(sample_weight, points, **how)

    def _coordinate_columns(self, names=None):
        """Names of the columns of `X` that hold coordinates; None for an array.

        `names` are those of all columns; None: those in `fit`.
        """
        names = getattr(self, "feature_names_in_", None) if names is None else names
        if names is None:
            return None
        special = self._special_columns().values()
        special = [names[i] if isinstance(i, Integral) else i for i in special]
        return [name for name in names if name not in special]
