"""Solving a learned equation, or any other, for new data."""

import warnings
from dataclasses import replace
from functools import partial
from numbers import Integral

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from keql._estimators.base import BaseKEqL, at_least
from keql._numerics.parallel import parallel_map
from keql._observations.columns import name_coordinates, operators_of_rows
from keql._observations.data import (
    evaluate_forcing,
    place_collocation,
    sorted_labels,
)
from keql._observations.imposed import Imposed
from keql._solving.conditions import (
    box_of,
    default_points,
    observe,
)
from keql._solving.default_kernel import choose_kernel
from keql._solving.noise_levels import NoiseLevels, solve_all
from keql._solving.well_posed import check_near, check_posed
from keql._solving.windows import solve_in_windows
from keql.equation import GivenEquation, LearnedEquation, LearnedSystem
from keql.exceptions import ExtrapolationWarning
from keql.kernels import as_kernel
from keql.operators import DifferentialOperator


class KernelPDESolver(BaseKEqL):
    """Solve a differential equation for boundary and initial data.

    Of all functions in the RKHS of the state kernel that meet the data and, at the
    collocation points, the equation, the one of least norm is found. The equation is
    one that was learned, or any that can be written as a function of the state and
    its derivatives: linear equations take one linear solve, others Gauss-Newton steps
    with Levenberg-Marquardt damping, each of them a linear regression with as many
    functionals as there are data and collocation points.

    Parameters
    ----------
    equation : LearnedEquation, operator, dict or callable, default=None
        `equation_` of a fitted estimator; or F of the equation F = f, as an operator
        such as "laplacian(u)", a dict {operator: coefficient}, or a function in
        `autograd.numpy` whose arguments are named after coordinates and operators,
        ``lambda u, u_xx, u_yy: -(u_xx + u_yy) + u**3``. None: the data are
        interpolated.
    collocation_points : array-like of shape (K, d), dict or int, default=None
        Where the equation is imposed, {label: array} if functions differ; a number of
        points of a low-discrepancy sequence in the bounding box of `X`; None: five
        times as many as there are data, between 200 and 1000.
    forcing : callable, array-like of shape (K,) or dict, default=None
        Right-hand side f: a function of points (K, d), values at given collocation
        points, {label: one of these} if functions differ, or None for zero.
    variables : tuple of str, default=None
        Names of the coordinates by position; None: those of a learned equation, the
        columns of a data frame, otherwise x0, x1, ...
    function_column : int or str, default=None
        Column of `X` that labels the function a row belongs to: many solutions of the
        same equation at once.
    boundary_operators : operator or list of operators, default=None
        What the values in `y` are values of; None: "u". Any linear operator with
        constant coefficients, such as "u_x" or "u + 0.5 u_x". If there are several,
        `operator_column` says which one a row belongs to.
    operator_column : int or str, default=None
        Column of `X` with the name of the operator that `y` holds, or its position in
        `boundary_operators`.
    state_kernel : kernel, default=None
        Kernel of the state, used with its hyperparameters as they are. None: that of
        a learned equation; for other equations an RBF kernel with the length scales
        and the variance for which data and linearised equation are likeliest.
    observation_noise, equation_noise : float, default=None
        Standard deviations of `y`, in its units, and of the equation's residual, in
        units of the forcing. 0: exact; None: as small as the likelihood says that the
        equation and the kernel can follow.
    n_windows : int, default=1
        Number of windows of the coordinate called t (otherwise of the first), solved
        one after the other: the state at the end of one is the initial state of the
        next, at the places where initial data were given. Memory is that of the
        largest window.
    max_iter, tol : int, float, default=50, 1e-4
        Steps for a nonlinear equation at one level of the noise, at most, and when they
        end: when they lower the loss by less, relatively.
    n_jobs, verbose : int, default=None, 0
        Threads that solve a nonlinear equation for different functions; whether the
        result for each function and window is printed.

    Attributes
    ----------
    equation_, state_kernel_ : LearnedEquation, GivenEquation or None; Kernel
        The equation and the kernel used.
    states_, collocation_points_ : list of states, list of ndarray
        The solution and the collocation points of each function.
    functions_, variables_ : tuple
        Labels of the functions, (None,) without a label column; names of coordinates.
    linear_ : bool
        Whether the equation was recognised as linear.
    reach_ : ndarray of shape (n_functions,)
        Largest :meth:`extrapolation` at the collocation points.
    relative_noise_ : ndarray of shape (n_functions,)
        Noise variances chosen for data and equation, relative to prior variances:
        between 1e-13, for a problem that can be met exactly, and 1e-2.
    residual_, log_likelihood_ : ndarray of shape (n_functions,)
        Root mean square of the equation's residual at the collocation points, and log
        likelihood of the data and the linearised equation at the best scale of the
        kernel, for choosing between kernels.
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
    """

    _parameter_constraints: dict = {
        **BaseKEqL._parameter_constraints,
        "equation": [None, str, tuple, dict, callable, DifferentialOperator],
        "boundary_operators": [None, str, tuple, list, DifferentialOperator],
        "operator_column": [None, Integral, str],
        "n_windows": [at_least(1)],
    }

    def __init__(
        self,
        equation=None,
        collocation_points=None,
        forcing=None,
        variables=None,
        function_column=None,
        boundary_operators=None,
        operator_column=None,
        state_kernel=None,
        observation_noise=None,
        equation_noise=None,
        n_windows=1,
        max_iter=50,
        tol=1e-4,
        n_jobs=None,
        verbose=0,
    ):
        self.equation, self.forcing = equation, forcing
        self.collocation_points, self.variables = collocation_points, variables
        self.boundary_operators, self.state_kernel = boundary_operators, state_kernel
        self.function_column, self.operator_column = function_column, operator_column
        self.observation_noise, self.equation_noise = observation_noise, equation_noise
        self.n_windows, self.n_jobs = n_windows, n_jobs
        self.max_iter, self.tol = max_iter, tol
        self.verbose = verbose

    def fit(self, X, y):
        """Solve the equation.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_columns)
            Points with boundary or initial data, of all functions, stacked; with
            columns of labels and operators if there are such.
        y : array-like of shape (n_samples,)
            Values of the state there, or of the operator that the row names.

        Returns
        -------
        self : KernelPDESolver
            The fitted solver.

        Raises
        ------
        ValueError
            If an argument is not as documented; the message names it.
        """
        self._validate_params()
        self._refuse_systems()
        labels, variables, conditions = self._read_boundary(X, y)
        equation = self._bind_equation(variables)
        if equation is not None:
            conditions = self._impose(equation, labels, variables, conditions)
        boxes = np.stack([box_of(given) for given in conditions])
        if equation is not None:
            check_posed(equation, labels, conditions, boxes)
        noise = NoiseLevels(self.observation_noise, self.equation_noise)
        kernel = self._choose_kernel(equation, conditions, variables, boxes, noise)
        loop = {"max_iter": self.max_iter, "tol": self.tol}
        loop["map_functions"] = partial(parallel_map, self.n_jobs)
        bound = kernel.bind(variables)
        solve = partial(solve_all, bound, equation, noise=noise, **loop)
        axis = variables.index("t") if "t" in variables else 0
        solved = solve_in_windows(solve, equation, conditions, axis, self.n_windows)
        self.variables_, self.functions_ = variables, labels
        self.state_names_ = self._states
        self.equation_, self.state_kernel_ = equation, kernel
        self.collocation_points_ = [given.points for given in conditions]
        self.domain_ = boxes
        self._store(solved)
        self._warn_of_poor_solutions(solved, noise.levels[0])
        return self

    def _special_columns(self):
        return {
            "function_column": self.function_column,
            "operator_column": self.operator_column,
        }

    def _operators_of_rows(self, entries, variables, states):
        given = self.boundary_operators
        has_column = self.operator_column is not None
        return operators_of_rows(given, entries, variables, has_column, states)

    def extrapolation(self, X):
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
        if not isinstance(self.equation_, LearnedEquation):
            return ratio
        for m, rows in self._rows_of_functions(labels):
            state, x = self.states_[m], points[rows]
            imposed = [state.evaluate(x, L) for L in self.equation_.operators]
            S = np.column_stack([x, *imposed])
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
        """Labels of the functions, names of the coordinates, and what is observed."""
        points, columns, y = self._read(X, y)
        if y.shape[1] > 1:
            raise ValueError(
                f"y has {y.shape[1]} columns: a solver finds the one state "
                f"{', '.join(self._states)}, give its data as a 1d array."
            )
        labels, y = columns["function_column"], y[:, 0]
        own, learned = self.variables, getattr(self.equation, "variables", None)
        names = self._coordinate_columns()
        variables = name_coordinates(own, learned, names, points.shape[1])
        entries = columns["operator_column"]
        operators, index = self._operators_of_rows(entries, variables, self._states)
        exact = not self.observation_noise
        functions = sorted_labels(labels)
        position = {label: m for m, label in enumerate(functions)}
        owner = np.array([position[label] for label in labels])
        masks = [owner == m for m in range(len(functions))]
        conditions = [
            observe(points[rows], y[rows], index[rows], operators, exact)
            for rows in masks
        ]
        return tuple(functions), variables, conditions

    @property
    def _states(self):
        """Names of the states of the equation."""
        if isinstance(self.equation, LearnedEquation | LearnedSystem):
            return self.equation.states
        return ("u",)

    def _bind_equation(self, variables):
        """The equation in the form that the solver needs."""
        if self.equation is None:
            if self.forcing is not None:
                raise ValueError(
                    "forcing is given without an equation: give equation, such as "
                    "'laplacian(u)', or leave forcing out."
                )
            return None
        if not isinstance(self.equation, LearnedEquation):
            return GivenEquation(self.equation, variables)
        if self.equation.variables != variables:
            raise ValueError(
                f"the equation was learned in the variables "
                f"{', '.join(self.equation.variables)}, the data have "
                f"{', '.join(variables)}: give data in the same coordinates."
            )
        if self.equation.has_forcing and self.forcing is None:
            raise ValueError(
                "forcing is None, but the equation was learned with a right-hand side: "
                "give the one to solve for (zero: lambda points: 0 * points[:, 0])."
            )
        return self.equation

    def _refuse_systems(self):
        """Refuse equations of several states, or that depend on inputs."""
        is_system = isinstance(self.equation, LearnedSystem) or len(self._states) > 1
        if is_system or getattr(self.equation, "inputs", ()):
            raise ValueError(
                f"equation is one of the states {', '.join(self._states)}, or has "
                "inputs: a solver solves one equation of one state without inputs. "
                "Ordinary differential equations have a method simulate."
            )

    def _impose(self, equation, labels, variables, conditions):
        """The conditions with the equation at the collocation points."""
        given = self.collocation_points
        if given is None or isinstance(given, Integral):
            placed = [default_points(conditions, given)] * len(labels)
        else:
            placed = place_collocation(given, labels, None, variables)
            for points, own in zip(placed, conditions, strict=True):
                check_near(points, own.observed)
        at_points = given is not None and not isinstance(given, Integral)
        forcing = evaluate_forcing(self.forcing, labels, placed, at_points)
        return [
            replace(
                own,
                points=points,
                operators=equation.operators,
                forcing=right,
                rows=Imposed.everywhere(points),
            )
            for own, points, right in zip(conditions, placed, forcing, strict=True)
        ]

    def _choose_kernel(self, equation, conditions, variables, boxes, noise):
        given, learned = self.state_kernel, getattr(equation, "state_kernel", None)
        if given is None and learned is None:
            return choose_kernel(conditions, equation, variables, boxes, noise)
        return learned if given is None else as_kernel(given)

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
        self.residual_ = gather(max, "residual")
        self.log_likelihood_ = gather(sum, "likelihood")
        self.reach_ = np.zeros(len(solved))
        if isinstance(self.equation_, LearnedEquation):
            # All features at once: their ratios rest on one look at the training set.
            features = [np.vstack([s.features for s in w]) for w in windows]
            ratios = self.equation_.extrapolation(np.vstack(features))
            parts = np.split(ratios, np.cumsum([len(S) for S in features])[:-1])
            self.reach_ = np.array([part.max() for part in parts])

    def _warn_of_poor_solutions(self, solved, highest_level):
        """Warn of searches that did not converge, or ended at the highest noise.

        With `verbose`, print the result for each function and window.
        """
        advice = [s.message for _, parts in solved for s in parts if not s.converged]
        for label, (_, solutions) in zip(self.functions_, solved, strict=True):
            for solution in solutions if self.verbose else []:
                print(
                    f"function {label}: {solution.n_iter} step(s), relative noise "
                    f"{solution.level:.0e}, residual {solution.residual:.2e}"
                )
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
