"""What the estimators that learn an equation share."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from keql._estimators.base import BaseKEqL
from keql._estimators.pde_solver import KernelPDESolver
from keql._observations.data import (
    FunctionData,
    Observations,
    refuse_conflicts,
    sorted_labels,
)
from keql._regression.two_step import FitSettings, Hypothesis, fit_two_steps
from keql._solving.conditions import name_coordinates
from keql.equation import EquationSetup, bind_known_part, make_known_part
from keql.operators import parse_operator


class Learner(BaseKEqL):
    """Base class of the estimators that learn states and an equation."""

    @property
    def _hypothesis(self):
        """What the parameters say of states and equation."""
        return Hypothesis(**self._parameters_of(Hypothesis))

    @property
    def _settings(self):
        """How hypotheses are fitted, by the parameters."""
        return FitSettings(**self._parameters_of(FitSettings))

    def _parameters_of(self, kind):
        """Parameters that have the name of a field of a dataclass."""
        params = self.get_params(deep=False)
        return {name: params[name] for name in params.keys() & kind.__annotations__}

    def fit(self, X, y, sample_weight=None):
        """Fit the states and the equation.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_columns)
            Points of all functions, stacked; with a column of labels if
            `function_column` is given.
        y : array-like of shape (n_samples,)
            Observed values of the states.
        sample_weight : array-like of shape (n_samples,), default=None
            Relative precisions: the noise variance of a row is observation_noise^2
            over its weight. Rows of weight 0 are left out.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If an argument is not as documented; the message names it.
        """
        raise NotImplementedError

    def _learn_in_two_steps(self, X, y, sample_weight, n_restarts=0):
        """The states by kernel ridge regression, then the equation."""
        self._validate_params()
        observations = self._validate_observations(X, y, sample_weight)
        columns = self._coordinate_columns() if self.variables is None else None
        n_coordinates = observations.functions[0].points.shape[1]
        variables = name_coordinates(self.variables, None, columns, n_coordinates)
        setup = self._describe_equation(observations, variables)
        return fit_two_steps(
            self._hypothesis, observations, variables, setup, self._settings, n_restarts
        )

    def _store(self, learned, state_kernel=None):
        """Set the fitted attributes, all at once.

        `state_kernel` is that of the states if it is not the one that the equation was
        learned with.
        """
        setup, equation = learned.setup, learned.equation
        self.variables_, self.states_ = learned.variables, learned.states
        self.functions_ = learned.observations.labels
        self.state_kernel_ = state_kernel or learned.state_kernel
        self.observation_noise_ = learned.observation_noise
        self.collocation_points_ = None if setup is None else setup.collocation_points
        self.equation_ = equation
        self.equation_noise_ = learned.equation_noise
        self.equation_kernel_ = None if setup is None else equation.equation_kernel

    def pde_solver(self, **params):
        """Make a solver of the learned equation.

        Parameters
        ----------
        **params : dict
            Parameters of :class:`keql.KernelPDESolver` that differ from those below.

        Returns
        -------
        solver : KernelPDESolver
            Not yet fitted: with the learned equation, the state kernel that it was
            learned with, the names of the variables and the function column, the
            collocation points (if functions have different ones, all of them when they
            are at most 1000, otherwise chosen by the solver), and the forcing if that
            is a function, which is defined for new data too.
        """
        check_is_fitted(self)
        if self.equation_ is None:
            raise ValueError(
                f"{type(self).__name__} was fitted without operators: it has no "
                "equation to solve."
            )
        points = self.collocation_points_[0]
        if any(own is not points for own in self.collocation_points_):
            points = np.unique(np.concatenate(self.collocation_points_), axis=0)
            points = points if len(points) <= 1000 else None
        settings = {
            "equation": self.equation_,
            "state_kernel": self.equation_.state_kernel,
            "collocation_points": points,
            "variables": self.variables_,
            "function_column": self.function_column,
            "forcing": self.forcing if callable(self.forcing) else None,
        }
        return KernelPDESolver(**settings | params)

    def _validate_observations(self, X, y, sample_weight):
        """Merge rows into one regression problem for each function."""
        points, entries, y = self._read(X, y)
        labels, operators_of_rows = entries[0], entries[1]
        states = self._name_states(y)
        weights = self._read_weights(sample_weight, points)
        variables = self._name_variables(points)
        rows = self._long_form(points, y, weights, operators_of_rows, states, variables)
        owners, index, operators, table, weights = rows
        if len(table) < 2:
            raise ValueError(
                f"X holds {len(table)} observation(s) of positive weight "
                f"(n_samples={len(points)}): too few, at least 2 are needed."
            )
        names = sorted_labels(labels[i] for i in owners)
        position = {label: m for m, label in enumerate(names)}
        owner = np.array([position[labels[i]] for i in owners], dtype=float)
        table = np.column_stack([owner, index, table])
        # Equal rows are one row with the sum of their weights, so that a weight means
        # a repetition; sorting makes the fit independent of the order of the rows.
        table, inverse = np.unique(table, axis=0, return_inverse=True)
        weights = np.bincount(inverse.ravel(), weights=weights)
        functions = []
        for m in range(len(names)):
            own = table[:, 0] == m
            kinds = table[own, 1].astype(int)
            data = table[own, 2:-1], table[own, -1], weights[own]
            functions.append(FunctionData(*data, kinds, operators))
        if self.observation_noise == 0:
            refuse_conflicts(functions)
        return Observations(tuple(names), functions, states), variables
