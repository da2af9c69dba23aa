"""Solving a learned equation, or any other, for new data."""

import warnings
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from keql._estimators.base import BaseKEqL, StrOptions, all_or_nothing, at_least
from keql._estimators.boundary import (
    BoundaryData,
    bind_equation,
    is_learned,
    order_inputs,
    refuse_unknown_noise,
    states_of_solver,
)
from keql._estimators.checks import check_names, texts_of
from keql._estimators.equations import is_several
from keql._estimators.progress import Progress
from keql._numerics.arguments import naming
from keql._numerics.parallel import parallel_map
from keql._observations.columns import (
    coordinates_by_name,
    name_coordinates,
    name_single_state,
    operators_of_columns,
    operators_of_rows,
    states_by_name,
)
from keql._observations.data import sorted_labels
from keql._observations.grids import as_grid, read_grid
from keql._observations.units import Units
from keql._solving.conditions import box_of, observe
from keql._solving.default_kernel import choose_kernel, kernel_of_states
from keql._solving.many_points import ManyPoints, solve_each
from keql._solving.noise_levels import NoiseLevels
from keql._solving.places import impose
from keql._solving.problem import by_name
from keql._solving.well_posed import check_posed
from keql._solving.windows import solve_in_windows
from keql.equation import LearnedEquation, LearnedSystem
from keql.exceptions import ExtrapolationWarning
from keql.operators import DifferentialOperator


class KernelPDESolver(BaseKEqL):
    """Solve differential equations for boundary and initial data.

    Of all functions in the RKHS of the state kernel that meet the data and, at the
    collocation points, the equation, the one of least norm is found. The equation is
    one that was learned, or any that can be written as a function of the state and
    its derivatives: linear equations take one linear solve, others Gauss-Newton steps
    with Levenberg-Marquardt damping, each of them a linear regression with as many
    functionals as there are data and collocation points. Several equations are solved
    for several states at once.

    Parameters
    ----------
    equation : LearnedEquation, operator, dict, callable or tuple, default=None
        `equation_` of a fitted estimator, also a LearnedSystem; or F of the equation
        F = f, as an operator such as "laplacian(u)", a dict {operator: coefficient}, or
        a function in `autograd.numpy` whose arguments are named after coordinates,
        inputs and operators, ``lambda u, u_xx, u_yy: -(u_xx + u_yy) + u**3``; or a
        tuple of these, ``({"x_t": 1, "y": -1}, {"y_t": 1, "x": 1})``, one for each
        equation of a system. None: the data are interpolated.
    collocation_points : array-like of shape (K, d), dict or int, default=None
        Where the equation is imposed, {label: array} if functions differ; a number of
        points of a low-discrepancy sequence in the bounding box of `X`; None: five
        times as many as there are data, between 200 and 1000, which several equations
        share. ``{equation: one of these}`` if equations differ.
    forcing : callable, array-like of shape (K,), dict or tuple, default=None
        Right-hand side f: a function of points (K, d), values at given collocation
        points, {label: one of these} if functions differ, or None for zero. Of several
        equations, a tuple with one of these for each, or {equation: one of these}.
    variables : tuple of str, default=None
        Names of the coordinates by position, or in any order if the columns of a data
        frame are called so; None: those of a learned equation, the columns of a data
        frame, otherwise x0, x1, ...
    function_column : int or str, default=None
        Column of `X` that labels the function a row belongs to: many solutions of the
        same equation at once.
    states : tuple of str, default=None
        Names of the states in the order of the columns of `y` and of predictions; the
        columns of a data frame that are called so may be in any order. None: those of a
        learned equation, the columns of a data frame `y` with several, u1, u2, ... for
        an array with several, otherwise "u".
    inputs : dict, default=None
        Known quantities that the equation depends on, by name: a function of points
        (n, d), a number, a pair (times, values) of samples, {label: one of these} if
        functions differ, or the name of a column of `X`.
    units : dict of str to str, default=None
        Units of coordinates and states by their names, for the axes of displays.
    boundary_operators : operator or list of operators, default=None
        What the values in `y` are values of; None: the states themselves. Any linear
        operator with constant coefficients, such as "u_x" or "u + 0.5 u_x". If there
        are several, each is that of a column of `y`, or `operator_column` says which
        one a row belongs to.
    operator_column : int or str, default=None
        Column of `X` with the name of the operator that `y` holds, or its position in
        `boundary_operators`.
    state_kernel : kernel or dict, default=None
        Kernel of the states, ``{state: kernel}`` if they differ, used with its
        hyperparameters as they are. None: that of a learned equation; for other
        equations an RBF kernel, or a Matern kernel for sparse factors, with the length
        scales and the variance for which data and linearised equation are likeliest;
        several states have the length scales in common.
    observation_noise, equation_noise : float or dict, default=None
        Standard deviations of `y`, in its units, and of the equation's residual, in
        units of the forcing, by the name of the state or operator and of the equation
        if they differ. 0: exact; None: as small as the likelihood says that the
        equation and the kernel can follow.
    n_windows : int, default=1
        Number of windows of the coordinate called t (otherwise of the first), solved
        one after the other: the state at the end of one is the initial state of the
        next, at the places where initial data were given. Memory is that of the
        largest window.
    solver : {"auto", "dense", "sparse"}, default="auto"
        "dense" factors a matrix with a row for each datum and collocation point.
        "sparse" needs time and memory that grow with their number about linearly, for
        one equation of one state in at most two coordinates and a
        stationary kernel that is not too smooth, such as Matern; it has no standard
        deviations. "auto" takes it for such problems of more than 4,000 rows.
    max_iter, tol : int, float, default=50, 1e-4
        Steps for a nonlinear equation at one level of the noise, at most, and when they
        end: when they lower the loss by less, relatively.
    n_jobs, verbose : int, default=None, 0
        Threads that solve a nonlinear equation for different functions; whether the
        result for each function and window is printed.

    Attributes
    ----------
    equation_, state_kernel_ : LearnedEquation, GivenEquation or None; Kernel
        The equation and the kernel used; several equations are a mapping from names to
        equations, and several states have a :class:`keql.kernels.SystemKernel`.
    states_, collocation_points_ : list of states, list of ndarray
        The solution and the collocation points of each function.
    functions_, variables_, state_names_ : tuple
        Labels of the functions, (None,) without a label column; names of coordinates,
        and of the states in the order of the columns that `predict` returns.
    linear_ : bool
        Whether the equation was recognised as linear.
    reach_ : ndarray of shape (n_functions,)
        Largest :meth:`extrapolation` at the collocation points.
    relative_noise_ : ndarray of shape (n_functions,)
        Noise variances chosen for data and equation, relative to prior variances:
        between 1e-13, for a problem that can be met exactly, and 1e-2.
    residual_, log_likelihood_ : ndarray of shape (n_functions,)
        Root mean square of the equation's residual at the collocation points, of
        several equations of shape (n_functions, n_equations), and log likelihood of the
        data and the linearised equation at the best scale of the kernel, for choosing
        between kernels.
    domain_ : ndarray of shape (n_functions, 2, d)
        Lower and upper corner of the box of all points in `fit`.
    converged_, n_iter_ : bool, int
        Whether all functions met the stopping rule; largest number of steps of one.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of `X`, and their names if it had any.

    See Also
    --------
    OneStepKEqL : Learns the equation; its `pde_solver` method makes a KernelPDESolver.

    References
    ----------
    Chen, Hosseini, Owhadi, Stuart, "Solving and learning nonlinear PDEs with Gaussian
    processes", Journal of Computational Physics 447, 2021.

    Examples
    --------
    A boundary value problem, u'' + u = t with u(0) = 0 and u(3) = 1:

    >>> import numpy as np
    >>> from keql import KernelPDESolver
    >>> solver = KernelPDESolver(
    ...     equation={"u_tt": 1, "u": 1}, forcing=lambda points: points[:, 0],
    ...     variables=("t",), collocation_points=40,
    ... ).fit([[0.0], [3.0]], [0.0, 1.0])
    >>> exact = 1.5 - 2 * np.sin(1.5) / np.sin(3)
    >>> bool(abs(solver.predict([[1.5]])[0] - exact) < 1e-7)
    True

    A system, x' = y and y' = -x with x(0) = 0 and x(1) = 1; y is not given:

    >>> system = KernelPDESolver(
    ...     equation=({"x_t": 1, "y": -1}, {"y_t": 1, "x": 1}), states=("x", "y"),
    ...     variables=("t",), collocation_points=20,
    ... ).fit([[0.0], [1.0]], [[0.0, np.nan], [1.0, np.nan]])
    >>> exact = np.array([np.sin(0.5), np.cos(0.5)]) / np.sin(1)
    >>> bool(np.all(abs(system.predict([[0.5]]) - exact) < 1e-6))
    True
    """

    _parameter_constraints: dict = {
        **BaseKEqL._parameter_constraints,
        "equation": [None, str, tuple, list, dict, callable, DifferentialOperator],
        "boundary_operators": [None, str, tuple, list, DifferentialOperator],
        "n_windows": [at_least(1)],
        "solver": [StrOptions({"auto", "dense", "sparse"})],
    }

    def __init__(
        self,
        equation: Any = None,
        collocation_points: Any = None,
        forcing: Any = None,
        variables: Any = None,
        function_column: int | str | None = None,
        states: Any = None,
        inputs: Any = None,
        units: Any = None,
        boundary_operators: Any = None,
        operator_column: int | str | None = None,
        state_kernel: Any = None,
        observation_noise: Any = None,
        equation_noise: Any = None,
        n_windows: int = 1,
        solver: str = "auto",
        max_iter: int = 50,
        tol: float = 1e-4,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.equation, self.forcing = equation, forcing
        self.collocation_points, self.variables = collocation_points, variables
        self.boundary_operators, self.state_kernel = boundary_operators, state_kernel
        self.function_column, self.operator_column = function_column, operator_column
        self.states, self.inputs, self.units = states, inputs, units
        self.observation_noise, self.equation_noise = observation_noise, equation_noise
        self.n_windows, self.solver, self.n_jobs = n_windows, solver, n_jobs
        self.max_iter, self.tol = max_iter, tol
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # A single equation that is given is about a single state, u, unless named.
        single = self.equation is not None and self.states is None
        single = single and not is_several(self.equation)
        single = single and len(getattr(self.equation, "states", "u")) == 1
        tags.target_tags.multi_output = not single
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Solve the equation.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_columns), or grid
            Points with boundary or initial data, of all functions, stacked; with
            columns of labels and operators if there are such; or a grid, as the
            learners take it.
        y : {array-like, dataframe} of shape (n_samples,) or (n_samples, S)
            Values of the state there, or of the operator that the row names; of several
            states one column for each, with NaN where one is not given.

        Returns
        -------
        self : KernelPDESolver
            The fitted solver.

        Raises
        ------
        ValueError
            If an argument is not as documented; the message names it.
        """
        with all_or_nothing(self), Progress(self.verbose) as progress:
            solved, highest_level = self._solve(progress, X, y)
            self._store(solved)
            self._tell(progress, solved)
        self._warn_of_poor_solutions(solved, highest_level)
        return self

    def _solve(self, progress, X, y):
        """The state and the solutions of each function, and the highest noise level."""
        self._validate_params()
        data = self._read_boundary(X, y)
        conditions, labels, variables = data.conditions, data.labels, data.variables
        equation = bind_equation(self.equation, self.forcing, data)
        if equation is not None:
            places = self.collocation_points, self.forcing, data.inputs
            conditions = impose(equation, labels, conditions, *places)
        boxes = np.stack([box_of(given) for given in conditions])
        if equation is not None:
            check_posed(equation, labels, conditions, boxes)
        noise = NoiseLevels(self.observation_noise, self.equation_noise)
        refuse_unknown_noise(noise, equation, conditions)
        given = equation, data, conditions, boxes, noise
        kernel = self._choose_kernel(progress, *given)
        loop = {"max_iter": self.max_iter, "tol": self.tol, "solver": self.solver}
        loop["map_functions"] = partial(parallel_map, self.n_jobs)
        with naming("state_kernel"):
            bound = kernel.bind(variables)
            for own in getattr(bound, "kernels", {"": bound}).values():
                own(boxes[0][:1])  # says what is wrong with its numbers
        solve = partial(solve_each, bound, equation, noise=noise, **loop)
        axis = variables.index("t") if "t" in variables else 0
        n_rows = sum(len(given.values) for given in conditions)
        n_points = sum(len(given.points) for given in conditions)
        progress.start(f"solving, {n_rows} data, {n_points} collocation points")
        solved = solve_in_windows(solve, equation, conditions, axis, self.n_windows)
        self.variables_, self.functions_ = variables, labels
        self.state_names_, self.inputs_ = data.states, data.inputs
        self.equation_, self.state_kernel_ = equation, kernel
        self.collocation_points_ = [given.points for given in conditions]
        self.domain_ = boxes
        return solved, noise.levels[0]

    def _operators_of_rows(self, entries, variables, states):
        given = self.boundary_operators
        has_column = self.operator_column is not None
        return operators_of_rows(given, entries, variables, has_column, states)

    def extrapolation(self, X: Any) -> np.ndarray:
        """How far the features of the solution are from those learned from.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n, n_columns)
            Points, with the same columns as in `fit`.

        Returns
        -------
        ratio : ndarray of shape (n,)
            As :meth:`keql.equation.LearnedEquation.extrapolation`: at most 1 where
            the features lie within the region of the training features. Zero if the
            equation was not learned.
        """
        check_is_fitted(self)
        return self._extrapolation(*self._read_points(X))

    def _extrapolation(self, points, labels):
        ratio = np.zeros(len(points))
        if not isinstance(self.equation_, LearnedEquation | LearnedSystem):
            return ratio
        for m, rows in self._rows_of_functions(labels):
            state, x = self.states_[m], points[rows]
            imposed = [state.evaluate(x, L) for L in self.equation_.operators]
            S = np.column_stack([x, self.inputs_.at(m, x), *imposed])
            ratio[rows] = self.equation_.extrapolation(S)
        return ratio

    def _warn(self, points, labels, tolerance=1e-6):
        """Warn of points outside of the domain and of features never seen.

        A region is left beyond 1 + `tolerance` times its radius.
        """
        if self.equation_ is None:
            return
        texts, outside = [], np.zeros(len(points), dtype=bool)
        for m, rows in self._rows_of_functions(labels):
            lower, upper = self.domain_[m]
            slack, x = tolerance * (upper - lower), points[rows]
            outside[rows] = np.any((x < lower - slack) | (x > upper + slack), axis=1)
        if outside.any():
            texts.append(
                f"{outside.sum()} of {len(points)} points lie outside of the domain "
                f"where data and collocation points were given, such as "
                f"{points[outside][0]}: the equation was not imposed there. Fit with "
                "collocation_points that reach so far."
            )
        if max(self.reach_) > 1 + tolerance:
            ratio = self._extrapolation(points, labels)
            unseen = ratio > 1 + tolerance
            if unseen.any():
                texts.append(
                    f"at {unseen.sum()} of {len(points)} points the features of the "
                    "solution leave the region that the equation was learned from, by "
                    f"a factor of up to {ratio.max():.3g}: it is extrapolated there. "
                    "The method extrapolation says where."
                )
        for text in texts:
            warnings.warn(text, ExtrapolationWarning, stacklevel=3)

    def _read_boundary(self, X, y):
        """The BoundaryData of X and y."""
        grid = as_grid(X)
        X, y = (X, y) if grid is None else read_grid(grid, y)
        of_states, given = getattr(y, "columns", None), self.states
        if given is None and not is_learned(self.equation):
            given = name_single_state(y, texts_of(self.equation))
        points, columns, y = self._read(X, y)
        by_row = self.operator_column is not None
        shape = of_states, y.shape[1], by_row
        states = states_of_solver(self.equation, given, *shape)
        labels, entries = columns["function_column"], columns["operator_column"]
        own, learned = self.variables, getattr(self.equation, "variables", None)
        names = self._coordinate_columns()
        variables = name_coordinates(own, learned, names, points.shape[1])
        points = points[:, coordinates_by_name(names, variables)]
        if self.boundary_operators is None and not by_row:
            y = states_by_name(y, of_states, states)
        if y.shape[1] == 1:
            operators, index = self._operators_of_rows(entries, variables, states)
            rows = np.arange(len(y))
        else:
            given = self.boundary_operators
            operators = operators_of_columns(given, y.shape[1], variables, states)
            rows, index = np.nonzero(np.isfinite(y))
        values = y[np.isfinite(y)]
        noise = NoiseLevels(self.observation_noise, self.equation_noise)
        functions = sorted_labels(labels)
        position = {label: m for m, label in enumerate(functions)}
        owner = np.array([position[labels[i]] for i in rows])
        conditions = []
        for m in range(len(functions)):
            own = owner == m
            given = points[rows[own]], values[own], index[own]
            conditions.append(observe(*given, operators, noise))
        check_names(variables, states, self.inputs or ())
        names = order_inputs(self.equation, self.inputs)
        inputs = self._read_inputs(columns, labels, functions, names)
        if self.units is not None:
            Units(self.units).check((*variables, *states, *inputs.names))
        return BoundaryData(tuple(functions), variables, states, conditions, inputs)

    def _choose_kernel(self, progress, equation, data, conditions, boxes, noise):
        given, learned = self.state_kernel, getattr(equation, "state_kernel", None)
        if given is None and learned is None:
            progress.start("choice of the kernel")
            names = data.variables, data.states
            nu = ManyPoints().smoothness(self.solver, equation, conditions)
            return choose_kernel(conditions, equation, *names, boxes, noise, nu=nu)
        return kernel_of_states(learned if given is None else given, data.states)

    def _store(self, solved):
        """Fitted attributes, from the state and the solutions of each function."""
        self.states_ = [state for state, _ in solved]
        windows = [solutions for _, solutions in solved]

        def gather(combine, name):
            return np.array([combine([getattr(s, name) for s in w]) for w in windows])

        self.linear_ = bool(gather(all, "linear").all())
        self.converged_ = bool(gather(all, "converged").all())
        self.n_iter_ = int(gather(sum, "n_iter").max())
        self.relative_noise_ = gather(max, "level")
        self.residual_ = gather(partial(np.max, axis=0), "residual")
        if self.residual_.shape[1] == 1:
            self.residual_ = self.residual_[:, 0]
        self.log_likelihood_ = gather(sum, "likelihood")
        self.reach_ = np.zeros(len(solved))
        if isinstance(self.equation_, LearnedEquation | LearnedSystem):
            # All features at once: their ratios rest on one look at the training set.
            # The first column of those of several equations is the equation's number.
            first = int(len(by_name(self.equation_)) > 1)
            features = [np.vstack([s.features[:, first:] for s in w]) for w in windows]
            ratios = self.equation_.extrapolation(np.vstack(features))
            parts = np.split(ratios, np.cumsum([len(S) for S in features])[:-1])
            self.reach_ = np.array([part.max() for part in parts])

    def _tell(self, progress, solved):
        """Tell the result for each function and window."""
        for label, (_, solutions) in zip(self.functions_, solved, strict=True):
            which = "solved" if label is None else f"function {label}"
            for solution in solutions:
                progress.say(
                    f"{which}: {solution.n_iter} step(s), relative noise "
                    f"{solution.level:.0e}, residual "
                    + ", ".join(f"{residual:.2e}" for residual in solution.residual)
                )

    def _warn_of_poor_solutions(self, solved, highest_level):
        """Warn of searches that did not converge, or ended at the highest noise."""
        advice = [s.message for _, parts in solved for s in parts if not s.converged]
        if self.equation_ is not None and self.relative_noise_.max() >= highest_level:
            advice.append(
                "the state meets the data and the equation only roughly, up to a tenth "
                "of their prior standard deviations. Give more collocation_points, a "
                "state_kernel with other length scales, or data that agree with the "
                "equation."
            )
        if advice:
            warnings.warn(
                f"KernelPDESolver: {advice[0]}", ConvergenceWarning, stacklevel=3
            )
