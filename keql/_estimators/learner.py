"""What the estimators that learn an equation share."""

import warnings
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from keql._estimators import checks
from keql._estimators.base import BaseKEqL
from keql._estimators.equations import (
    describe_equations,
    is_several,
    list_equations,
    named_equations,
    where_observed,
)
from keql._estimators.pde_solver import KernelPDESolver
from keql._estimators.progress import Progress, words_for_data
from keql._evolution.forecast import EvolvedState, Forecast
from keql._evolution.trajectory import Trajectory, integrated_from
from keql._numerics.parallel import threads_for
from keql._observations.columns import (
    coordinates_by_name,
    name_coordinates,
    name_single_state,
    name_states,
    ring_lengths,
    states_by_name,
)
from keql._observations.condensed import condense
from keql._observations.data import (
    FunctionData,
    Observations,
    forcing_functions,
    reach_of,
    sorted_labels,
)
from keql._observations.grids import as_grid, read_grid
from keql._observations.replicates import refuse_contradictions
from keql._observations.units import Units
from keql._regression.two_step import FitSettings, Hypothesis, fit_two_steps
from keql.equation import LearnedSystem
from keql.exceptions import ExtrapolationWarning
from keql.fit_report import FitReport
from keql.operators import identity_of


class Learner(BaseKEqL):
    """Base class of the estimators that learn states and an equation."""

    _imposes_equations = True  # whether states follow it at its collocation points
    # Set by `fit`: an equation of a single state is no system, and missing only if
    # states are all that was asked for.
    equation_: Any
    fit_report_: FitReport

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # An equation without named states is about a single one, u.
        single = self.operators is not None or self.known_part is not None
        named = self.equations is not None or self.states is not None
        several = named or not single or is_several(self.known_part)
        tags.target_tags.multi_output = several
        return tags

    @property
    def _hypothesis(self):
        """What the parameters say of states and equations."""
        given = self._parameters_of(Hypothesis)
        entries = {name: _if_any(given[name]) for name in given if name != "n_terms"}
        hypothesis = Hypothesis(**given | entries)
        if self.equations is None:
            return hypothesis
        return replace(
            hypothesis,
            equation_kernel=_if_any({name: e.kernel for name, e in self.equations}),
            n_terms={name: e.n_terms for name, e in self.equations},
            equation_noise=_if_any({name: e.noise for name, e in self.equations}),
        )

    @property
    def _settings(self):
        """How hypotheses are fitted, by the parameters."""
        return FitSettings(**self._parameters_of(FitSettings))

    def _parameters_of(self, kind):
        """Parameters that have the name of a field of a dataclass."""
        own = [name for name in kind.__annotations__ if hasattr(self, name)]
        return {name: getattr(self, name) for name in own}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the estimator, and of its named equations.

        Parameters
        ----------
        deep : bool, default=True
            Whether the parameters of kernels and of equations are included.

        Returns
        -------
        params : dict of str to object
            Those of an equation have its name and two underscores before theirs.
        """
        params = super().get_params(deep)
        if deep:
            for name, equation in named_equations(self):
                params[name] = equation
                own = equation.get_params(deep).items()
                params.update({f"{name}__{key}": value for key, value in own})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator, or of its named equations.

        Parameters
        ----------
        **params : dict
            As :meth:`get_params` names them.

        Returns
        -------
        self : object
            The estimator.
        """
        if "equations" in params:
            self.equations = params.pop("equations")
        named, own = dict(named_equations(self)), dict[str, Any]()
        for key in list(params):
            name, _, rest = key.partition("__")
            if name in named:
                own.setdefault(name, {})[rest] = params.pop(key)
        for name, changes in own.items():
            if "" in changes:  # another equation
                named[name] = changes.pop("")
                self.equations = [(n, named.get(n, old)) for n, old in self.equations]
            named[name].set_params(**changes)
        return super().set_params(**params)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the states and the equation.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_columns), or grid
            Points of all functions, stacked; with the columns that `function_column`,
            `operator_column` and `inputs` name, if there are such. An xarray DataArray
            or Dataset holds points and values, of which NaN are left out.
        y : {array-like, dataframe} of shape (n_samples,) or (n_samples, S)
            Observed values of the states, one column for each; NaN where a state was
            not measured, but not in a whole row. With an operator column, of shape
            (n_samples,), values of the operators that it names. None for a grid.
        sample_weight : array-like of shape (n_samples,), default=None
            Relative precisions: the noise variance of the values in a row is
            observation_noise^2 over its weight. Rows of weight 0 are left out.

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

    def _learn_in_two_steps(self, X, y, sample_weight, n_restarts=0, progress=None):
        """The states by kernel ridge regression, then the equations."""
        self._validate_params()
        progress = progress or Progress(self.verbose)
        named = list_equations(self)
        observations, variables, inputs = self._read_observations(X, y, sample_weight)
        checks.check_names(variables, observations.states, inputs.names)
        checks.check_entries(self, [each.name for each in named], observations)
        if self.units is not None:
            names = (*variables, *observations.states, *inputs.names)
            Units(self.units).check(names)
        setup = describe_equations(self, named, observations, variables, inputs)
        checks.check_problem(self, variables, observations, setup)
        if setup and self._learns_where_observed(setup, observations, variables):
            setup = where_observed(setup, observations, len(variables))
        progress.say(f"two steps, {words_for_data(observations)}")
        given = self._hypothesis, observations, variables, setup, self._settings
        with threads_for(max(len(data.values) for data in observations.functions)):
            learned = fit_two_steps(*given, n_restarts)
        return learned

    def _learns_where_observed(self, setup, observations, variables):
        return True  # collocation points far beyond the data are left out

    def _store(self, learned, state_kernel=None):
        """Set the fitted attributes, all at once.

        `state_kernel` is that of the states if it is not the one that the equation was
        learned with.
        """
        setup, observations = learned.setup, learned.observations
        self.variables_, self.states_ = learned.variables, learned.states
        self.functions_, self.state_names_ = observations.labels, observations.states
        self.last_times_ = [data.points[:, 0].max() for data in observations.functions]
        self.domain_ = np.array(self._domains(learned))
        self.state_kernel_ = state_kernel or learned.state_kernel
        self.observation_noise_ = _by_name(
            [operator.name for operator in observations.operators],
            learned.observation_noise,
        )
        self.collocation_points_ = None if setup is None else setup.given_points
        self.equation_ = self.equation_noise_ = self.equation_kernel_ = None
        units = None if self.units is None else Units(self.units)
        for equation in learned.equations:
            equation.units = units
        if setup is not None:
            self.inputs_ = setup.inputs
            names = [terms.name for terms in setup.equations]
            kernels = [equation.equation_kernel for equation in learned.equations]
            self.equation_ = _by_name(names, learned.equations, LearnedSystem)
            self.equation_noise_ = _by_name(names, learned.equation_noise)
            self.equation_kernel_ = _by_name(names, kernels)

    def _domains(self, learned):
        """For each function, corners (2, d) of the box beyond which `predict` warns."""
        imposed = [np.empty((0, len(learned.variables)))] * len(learned.states)
        if learned.setup is not None and self._imposes_equations:
            imposed = learned.setup.collocation_points
        observed = [data.points for data in learned.observations.functions]
        periods = [learned.observations.periods] * len(observed)
        return [*map(reach_of, observed, imposed, periods)]

    def _warn(self, points, labels):
        """Warn of points outside of the box of what was observed."""
        outside = np.zeros(len(points), dtype=bool)
        for m, rows in self._rows_of_functions(labels):
            (lower, upper), x = self.domain_[m], points[rows]
            outside[rows] = np.any((x < lower) | (x > upper), axis=1)
        if outside.any():
            warnings.warn(
                f"{outside.sum()} of {len(points)} points lie outside of the data, by "
                f"more than a mean gap between observations, such as "
                f"{points[outside][0]}: states are extrapolated there. How they go on "
                "after the last time is what the method forecast tells.",
                ExtrapolationWarning,
                stacklevel=3,
            )

    def forecast(self, X: Any, return_std: bool = False) -> Any:
        """States at later times: the learned equations, integrated on.

        Exact states go on, with values at both ends in space by their prior given the
        known ones. Other states of ordinary differential equations are integrated from
        the last observed time, and uncertain independently of the equations.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns)
            Points, as `predict` takes them.
        return_std : bool, default=False
            Whether standard deviations of all that is uncertain are returned too.

        Returns
        -------
        u : ndarray of shape (n,) or (n, S)
            In units of `y`, one column for each of several states.
        std : ndarray of the same shape
            Only if `return_std`: with noise that drives trajectories, no other.

        Raises
        ------
        ValueError
            If states in space are not exact, or a point is outside in space.
        SimulationError
            If the solution ends before, or the forcing is not known so far.

        Examples
        --------
        >>> import numpy as np
        >>> from keql import OneStepKEqL
        >>> t = np.linspace(0, 2, 20)[:, None]
        >>> model = OneStepKEqL(("u",), "u_t", variables=("t",), n_terms="auto")
        >>> model = model.fit(t, np.exp(-t[:, 0]))
        >>> u, std = model.forecast([[4.0]], return_std=True)
        >>> bool(abs(u[0] - np.exp(-4.0)) < 1e-6)
        True
        """
        check_is_fitted(self)
        grid = as_grid(X)
        if grid is not None:
            asked = self.forecast(grid.points(), return_std)
            return grid.filled(asked, self.state_names_)
        points, labels = self._read_points(X)
        forecaster = copy(self)
        forecaster.states_ = list(self.states_)
        for m, rows in self._rows_of_functions(labels):
            forecaster.states_[m] = self._integrated(m, points[rows])
        return forecaster._predict(X, return_std)

    def _integrated(self, m, points):
        """The state of a function, integrated on to the last time of points (n, d)."""
        state = self.states_[m]
        if isinstance(state, Trajectory):
            return state.alone(points[:, 0])
        if isinstance(state, EvolvedState):
            until = float(np.max(points[:, state.grid.axis]))
            return Forecast(state, until)
        equations = self.equation_
        if equations is None or len(self.variables_) != 1:
            raise ValueError(
                "forecast integrates learned ordinary differential equations, and "
                "states in space that obey their equation exactly. The states of this "
                f"fit depend on {', '.join(self.variables_)} and do not"
                f"{'' if equations is not None else ', without an equation'}: solve "
                "learned equations of several coordinates with pde_solver()."
            )
        several = isinstance(equations, LearnedSystem)
        equations = tuple(equations.values()) if several else (equations,)
        given = self.inputs_.of_function(m), self._forcing_of(m)
        state = integrated_from(state, self.last_times_[m], equations, *given)
        return state.alone(points[:, 0])

    def _forcing_of(self, m):
        """Right-hand sides of all equations for a function, as functions or None."""
        places = self.functions_, self.collocation_points_
        given = [each.given.forcing for each in list_equations(self)]
        every = [forcing_functions(forcing, *places) for forcing in given]
        return tuple(own[m] for own in every)

    def simulate(self, t_eval: Any, initial: Any, **options: Any) -> Any:
        """Integrate the learned ordinary differential equations from initial values.

        Parameters
        ----------
        t_eval : array-like of shape (n,)
            Times in rising order; the initial values belong to the first.
        initial : array-like of shape (sum of orders,), or dict
            Initial values, in order or by name.
        **options : dict
            `forcing`, `inputs`, `return_std` and those of the integration, as for
            :meth:`keql.LearnedEquation.simulate`, or that of a
            :class:`keql.LearnedSystem`.

        Returns
        -------
        states : ndarray of shape (n, sum of orders)
            Each followed by its derivatives below the highest; with `return_std` a
            pair, their standard deviations besides.
        """
        return self._learned_equation().simulate(t_eval, initial, **options)

    def to_latex(self) -> str:
        """The learned equation, or all of a system, in LaTeX.

        Returns
        -------
        latex : str
            That of :meth:`keql.LearnedEquation.to_latex`.
        """
        return self._learned_equation().to_latex()

    def _learned_equation(self):
        """What was learned; refused if states were fitted without an equation."""
        check_is_fitted(self)
        if self.equation_ is None:
            raise ValueError(
                f"{type(self).__name__} was fitted without operators: it has no "
                "equation to solve."
            )
        return self.equation_

    def pde_solver(self, **params: Any) -> KernelPDESolver:
        """Make a solver of the learned equation.

        Parameters
        ----------
        **params : dict
            Parameters of :class:`keql.KernelPDESolver` that differ from those below.

        Returns
        -------
        solver : KernelPDESolver
            Not yet fitted: with the learned equation, the state kernel that it was
            learned with, the names of the variables and states, the function column,
            the collocation points (if functions have different ones, all of them when
            they are at most 1000, otherwise chosen by the solver; if equations do,
            those that were given), and the forcing and inputs if these are functions,
            numbers or columns of X, which are defined for new data too.
        """
        equation, named = self._learned_equation(), list_equations(self)
        given = {e.name: e.given.forcing for e in named}
        forcing: Any = {name: f for name, f in given.items() if callable(f)}
        if len(named) == 1:
            forcing = forcing.get(named[0].name)
        inputs = {
            name: values
            for name, values in (self.inputs or {}).items()
            if not isinstance(values, dict)
        }
        settings = {
            "equation": equation,
            "state_kernel": equation.state_kernel,
            "collocation_points": self._places_for_solver(named),
            "variables": self.variables_,
            "function_column": self.function_column,
            "states": self.state_names_,
            "units": self.units,
            "inputs": inputs or None,
            "forcing": forcing or None,
        }
        return KernelPDESolver(**settings | params)

    def _places_for_solver(self, named):
        """Collocation points for new functions, by equation if they were given so."""
        own = {each.name: each.given.collocation_points for each in named}
        if len(named) > 1 and any(given is not None for given in own.values()):
            shared = self.collocation_points
            own = {name: shared if x is None else x for name, x in own.items()}
            return {n: None if isinstance(x, dict) else x for n, x in own.items()}
        points = self.collocation_points_[0]
        if any(own is not points for own in self.collocation_points_):
            points = np.unique(np.concatenate(self.collocation_points_), axis=0)
            points = points if len(points) <= 1000 else None
        return points

    def _read_observations(self, X, y, sample_weight):
        """The Observations, names of the coordinates, and Inputs of the data.

        Equal rows are one row with the sum of their weights, so that a weight means a
        repetition; sorting makes the fit independent of the order of the rows. Long
        records in time are condensed.
        """
        grid = as_grid(X)
        X, y = (X, y) if grid is None else read_grid(grid, y)
        of_states, given = getattr(y, "columns", None), self.states
        if given is None:
            named = checks.texts_of(self.operators, self.known_part, self.equations)
            given = name_single_state(y, named)
        points, columns, y = self._read(X, y)
        by_row = self.operator_column is not None
        states = name_states(given, of_states, y.shape[1], by_row)
        y = y if by_row else states_by_name(y, of_states, states)
        names = self._coordinate_columns()
        variables = name_coordinates(self.variables, None, names, points.shape[1])
        points = points[:, coordinates_by_name(names, variables)]
        weights = self._read_weights(sample_weight, points)
        labels = columns["function_column"]
        if self.operator_column is None:
            operators = [identity_of(s, len(variables)) for s in states[: y.shape[1]]]
            rows, index = np.nonzero(np.isfinite(y) & (weights > 0)[:, None])
            values = y[rows, index]
        else:
            entries = columns["operator_column"]
            operators, index = self._operators_of_rows(entries, variables, states)
            rows = np.flatnonzero(weights > 0)
            index, values = index[rows], y[rows, 0]
        if len(np.unique(np.column_stack([index, points[rows]]), axis=0)) < 2:
            raise ValueError(
                f"X holds {len(rows)} observation(s) of positive weight "
                f"(n_samples={len(points)}): too few, 2 are needed, at 2 places."
            )
        present, index = np.unique(index, return_inverse=True)
        operators = [operators[j] for j in present]
        functions = sorted_labels(labels[i] for i in rows)
        position = {label: m for m, label in enumerate(functions)}
        owner = np.array([position[labels[i]] for i in rows], dtype=float)
        table = np.column_stack([owner, index, points[rows], values])
        data = _merge_rows(table, weights[rows], len(functions), operators)
        refuse_contradictions(data, table, self.observation_noise)
        given = tuple(functions), data, states, ring_lengths(self.periods, variables)
        observations = condense(Observations(*given))
        return observations, variables, self._read_inputs(columns, labels, functions)


def _if_any(given):
    """What is given; None if it is a dict that says nothing, all entries being None."""
    if isinstance(given, dict) and all(value is None for value in given.values()):
        return None
    return given


def _by_name(names, values, make=dict):
    """The only value, or values by name."""
    values = [float(v) if isinstance(v, np.floating) else v for v in values]
    if len(names) == 1:
        return values[0]
    return make(dict(zip(names, values, strict=True)))


def _merge_rows(table, weights, n_functions, operators):
    """FunctionData of each function from rows (function, operator, point, value)."""
    table, inverse = np.unique(table, axis=0, return_inverse=True)
    weights = np.bincount(inverse.ravel(), weights=weights)
    # The rows are sorted, by functions first.
    ends = np.searchsorted(table[:, 0], np.arange(1, n_functions))
    return [
        FunctionData(own[:, 2:-1], own[:, -1], w, own[:, 1].astype(int), operators)
        for own, w in zip(np.split(table, ends), np.split(weights, ends), strict=True)
    ]
