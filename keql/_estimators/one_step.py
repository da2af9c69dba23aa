"""One-step kernel equation learning: states and equation together."""

import warnings
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from keql._estimators.base import all_or_nothing
from keql._estimators.callbacks import CallbackSupportMixin, Tasks, with_callbacks
from keql._estimators.learner import Learner
from keql._estimators.progress import Progress
from keql._estimators.two_step import INTERRUPTED
from keql._joint.assembly import equations_at
from keql._joint.restarts import RestartSettings
from keql._numerics.parallel import threads_for
from keql.equation import LearnedSystem
from keql.exceptions import IdentifiabilityWarning
from keql.fit_report import describe_fit, doubts_of, energies, multiple, summary_of
from keql.model_selection import (
    Context,
    Fit,
    search,
    why_at_collocation_points,
)


class OneStepKEqL(CallbackSupportMixin, Learner):
    r"""Learn the states and the equation they solve together.

    The states v_m, in the RKHS of the state kernel, and P, in that of the equation
    kernel, minimise::

        1/2 |P|^2 + sum_m [ lambda/2 |v_m|^2 + 1/(2 sigma_u^2) |v_m(X_m) - y_m|^2
                            + 1/(2 sigma_P^2) |(P + Pbar)(Phi(v_m, Y_m)) - f_m|^2 ],

    so that the equation helps where observations are missing; of several states and
    equations, norms and squares are summed over these. A Levenberg-Marquardt loop
    starts at the two-step solution; each step is a linear regression with as many
    functionals as there are observations and collocation points.

    Parameters
    ----------
    operators : tuple of operators, default=None
        L_1, ..., L_Q, on which P depends: names such as "u", "u_x", "u_tx",
        "laplacian(u)", multi-indices or :class:`keql.operators.DifferentialOperator`.
        None with neither `known_part` nor `forcing`: states are fitted, no equation.
    known_part : operator, dict, callable or tuple of these, default=None
        Pbar: an operator ("u_t"), ``{operator: coefficient}``, or a function of named
        features in `autograd.numpy` such as ``lambda u, u_tt: u_tt + u**3``. A tuple,
        ("prey_t", "predator_t"), has one equation for each, of the same operators.
    collocation_points : array-like, dict or int, default=None
        Where the equation is imposed: an array of shape (K, d), ``{label: array}``, a
        number of low-discrepancy points, or None for the observation points and a
        low-discrepancy fill (5 points for each observation, between 200 and 1000 for
        one function; several equations share them). Those that reach beyond the data in
        time by more than a mean gap are left out where states are found without the
        equation, or may obey it exactly: nothing is learned there.
    forcing : callable, array-like, dict or tuple, default=None
        The right-hand side f: a function of points (K, d), an array (K,) that goes with
        an array of collocation points, ``{label: one of these}``, or None for zero;
        with several equations a tuple of these, or one for all.
    variables : tuple of str, default=None
        Names of the coordinates by position, or in any order if the columns of a data
        frame are called so; None: these columns, otherwise x0, x1, ... A string is a
        tuple of one, here and of operators and states.
    function_column : int or str, default=None
        Column of `X` that labels the function a row belongs to.
    operator_column : int or str, default=None
        Column of `X` with the name of the operator, such as "u" or "u_x", whose value
        the row of `y` holds; None: `y` holds values of the states.
    inputs : dict, default=None
        Known quantities on which P and known parts may depend, {name: values}; they are
        not differentiated. Values are a function of points (n, d), a number, a pair
        (times, values) of samples, linear between and constant beyond them, ``{label:
        one of these}``, or the name of a column of `X` that is constant within each
        function.
    states : tuple of str, default=None
        Names of the states: those of the columns of `y`, then of states that were never
        measured; in any order if the columns of a data frame are called so. None: the
        columns of a data frame `y`, otherwise u1, u2, ...; a single state is u, or
        called as its column if operators are and none of them is one of u.
    equations : list of (str, Equation), default=None
        Equations that differ in more than the known part, each a :class:`keql.Equation`
        with a name; parameters that describe a single equation then stay None.
    units : dict of str to str, default=None
        Units of coordinates, states and inputs by their names, and of the forcing as
        "f", such as ``{"t": "h", "u": "mV"}``; what has no entry is a pure number. The
        printed equation, tables, the report and displays then have units, and the
        printed equation standard errors: "d2u/dt2 = -1.095(7) h^-2 u". Nothing is
        converted.
    periods : dict of str to float, default=None
        Lengths of the coordinates that are rings, such as ``{"x": 1.0}``, in their
        units: states repeat themselves there, and have no ends in space. State kernels
        that are given need these periods. None: no coordinate is a ring.
    state_kernel : kernel or dict, default=None
        Kernel of the states, ``{state: kernel}`` if they differ; free hyperparameters
        are fitted by maximum marginal likelihood of the observations. Where terms
        are searched for, states may obey the equations exactly all the same: in space
        it is the prior of their initial and boundary values, unless these are far more
        probable with another kernel. None: states of
        ordinary differential equations, of any order and number, and of one equation of
        evolution in one space dimension, u_t or u_tt = G(t, x, u, u_x, ...) of second
        to fourth order in space, of any order on a ring, obey these exactly, unless
        observations are predicted clearly better without that: only their initial
        values are open, and those at both ends in space where it is no ring, these
        with a kernel of maximum likelihood. Others have an
        offset plus the RBF or Matern kernel whose joint fit predicts observations best
        from all others; the equation may be that of another fit, with the default
        kernel of :class:`keql.TwoStepKEqL`, if observations are predicted better.
    equation_kernel : kernel or dict, default=None
        Kernel of P, ``{equation: kernel}`` if they differ; free hyperparameters are
        fitted to the two-step solution, and its scale is found unless a factor such as
        ``Constant(1.0, "fixed")`` says it: by likelihood for kernels with few features,
        such as polynomials, from the size of what P has to explain for others. None: a
        :class:`keql.kernels.Polynomial` of degree 2. If no state kernel is given
        either, it has degree 3 if observations are predicted poorly with degree 2, and
        clearly better with 3, or if ordinary differential equations have cubic terms by
        their evidence; or, if there are several functions and `n_terms` is no number,
        it is one of linear equations whose coefficients vary with the coordinates, if
        with it observations are predicted clearly better, by exact states where there
        are such.
    observation_noise : float or dict, default=None
        Standard deviation sigma_u of an observation of weight 1, in units of `y`,
        ``{state or operator: float}`` if they differ; None: fitted with the state
        kernel.
    equation_noise : float or dict, default=None
        Standard deviation sigma_P of the equation's residual in units of the forcing,
        ``{equation: float}`` if they differ. Without a state kernel, ordinary
        differential equations are driven by white noise of spectral density sigma_P^2
        times the mean distance of collocation points; so they are beside one, and
        fields that obey their equation exactly are tried, up to a hundredth of the root
        mean square of what the equation explains; beyond it these say which terms a
        single equation of fields has, where no state kernel is given. None: a
        thousandth of that of the unknown part, or, along with a state kernel that is
        not given, a tenth of that if observations are predicted better, or what the
        residuals are if they are far below it.
    state_penalty, n_inducing : float, int, default=1.0, 500
        Weight lambda of the squared RKHS norm of the states, and the number of inducing
        points of P, drawn from the two-step features; a polynomial kernel has exact
        features and needs none.
    n_terms : int, "auto", dict or None, default="auto"
        How many terms P keeps, of those of a polynomial or of the functions of a
        dictionary, ``{equation: one of these}`` if equations differ. Terms are taken
        out one by one, the one that costs least each time, of whichever equation, and
        all is fitted again; "auto" keeps those that cost clearly more than all before
        them, or those that predict observations best; of exact states, those of the
        highest evidence. Ordinary differential equations and fields whose kernels are
        not given may then have elementary functions, such as sin(2 u), too. None: all
        terms are kept, as they are with "auto" where the equation kernel has no list of
        them.
    solver : {"auto", "dual", "primal"}, default="auto"
        How a state is represented: by representers, with as many unknowns as residuals
        (dual), or in an orthonormal basis of their span (primal), which is smaller for
        smooth kernels; the solution is the same. "auto": whichever is faster, or exact
        states, which have no representers.
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        Of the likelihoods.
    n_restarts : int, default=10
        How often the fit tries again while its residuals are far above the noise
        levels: from states drawn at random given the observations, several of them
        each time, with few of the collocation points until one of them succeeds. Exact
        states in space are then also sought from those of a diffusion, unless it is 0.
    max_iter, tol : int, float, default=300, 1e-6
        Largest number of steps of one try; for exact states at most 15, at most 60 of
        those of ordinary differential equations. The loop ends when a step lowers the
        loss by less than `tol`, relatively; for exact states, when a step changes them
        by less than ten times that, relative to their size, or for those of ordinary
        differential equations a tenth of it, or a small part of their noise.
    warm_start : bool, default=False
        Whether a further `fit` starts from the last solution if that has the same
        number of observations and collocation points; exact states in space, the same
        box. Those of ordinary differential equations always start anew.
    n_jobs, verbose : int, default=None, 0
        Threads that work on different functions, or, if joblib's backend is dask and it
        is not 1, the workers of its cluster; what is printed with the elapsed time: 1,
        a line for each stage of the fit, and every few seconds of a stage; 2, a line
        for each accepted step as well.
    random_state : int, RandomState instance or None, default=None
        Draws inducing points, and the states to try again from.

    Attributes
    ----------
    equation_ : LearnedEquation, LearnedSystem or None
        The learned equation; several are a :class:`keql.LearnedSystem`, which maps
        their names, those of the known parts or of `equations`, to each.
    states_, collocation_points_ : list of states, list of ndarray
        The fitted state of each function, with methods `evaluate` and `variance`, and
        its collocation points.
    functions_, variables_, state_names_ : tuple
        Labels of the functions, (None,) without a label column; names of coordinates,
        and of the states in the order of the columns that `predict` returns.
    state_kernel_, equation_kernel_ : Kernel
        With fitted hyperparameters; of exact states in space, the kernel of their
        initial values and those at both ends; of several states a
        :class:`keql.kernels.SystemKernel`, of several equations a dict by name.
    observation_noise_, equation_noise_ : float
        The noise levels, given or chosen; those of a chosen kernel that predicts well
        but does not meet the data are raised, with all variances, to the residuals.
        An equation that states obey exactly has none. Of several states or operators
        observed, and of several equations, a dict by name.
    loss_curve_, damping_curve_ : list of float
        Loss at the start and after each accepted step, where the equation was learned,
        and the damping of the step; if nothing but integration was needed, the loss at
        each of its steps, undamped. The damping is 0 for exact states.
    n_iter_, converged_ : int, bool
        Number of steps tried, and whether the loop met its stopping rule.
    misfit_ : float
        Mean square of the residuals in units of the noise levels; about 1 or less when
        observations and equation are met.
    restarts_ : list of dict
        What was tried, with the loss, misfit and number of steps that it led to:
        `draws` states with few of the collocation points, or the whole problem from
        another `start` than the two-step solution.
    terms_path_ : list of (terms, loss, misfit, error, log_evidence, coefficients, ...)
        Fits with fewer and fewer terms; empty if all are kept. The log evidence of the
        terms, what they come to, and the `prior_odds` against wider hypotheses that the
        evidence has, are of exact states only.
    fit_report_ : FitReport
        What was chosen and why, how well data and equation are met, and what looks
        wrong; to be printed.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of `X`, and their names if it had any.

    References
    ----------
    Jalalian, Osorio, Hsu, Hosseini, Owhadi, "Data-Efficient Kernel Methods for
    Learning Differential Equations and Their Solution Operators", arXiv:2503.01036.

    Examples
    --------
    Six values of a solution of u'' = -4 u are enough:

    >>> import numpy as np
    >>> from keql import OneStepKEqL
    >>> from keql.kernels import Polynomial
    >>> t = np.linspace(0, 6, 6)[:, None]
    >>> problem = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    >>> model = OneStepKEqL(**problem, equation_kernel=Polynomial(1))
    >>> model = model.fit(t, np.sin(2 * t.ravel()))
    >>> bool(abs(model.equation_.terms()["u"] + 4) < 0.01)
    True
    """

    def __init__(
        self,
        operators: Any = None,
        known_part: Any = None,
        collocation_points: Any = None,
        forcing: Any = None,
        variables: Any = None,
        function_column: int | str | None = None,
        operator_column: int | str | None = None,
        inputs: Any = None,
        states: Any = None,
        equations: Any = None,
        units: Any = None,
        periods: Any = None,
        state_kernel: Any = None,
        equation_kernel: Any = None,
        observation_noise: Any = None,
        equation_noise: Any = None,
        state_penalty: float = 1.0,
        n_inducing: int = 500,
        n_terms: Any = "auto",
        solver: str = "auto",
        optimizer: Any = "fmin_l_bfgs_b",
        n_restarts: int = 10,
        max_iter: int = 300,
        tol: float = 1e-6,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.operators, self.known_part = operators, known_part
        self.collocation_points, self.forcing = collocation_points, forcing
        self.variables, self.function_column = variables, function_column
        self.operator_column, self.inputs = operator_column, inputs
        self.states, self.equations, self.units = states, equations, units
        self.periods = periods
        self.state_kernel, self.equation_kernel = state_kernel, equation_kernel
        self.observation_noise, self.equation_noise = observation_noise, equation_noise
        self.state_penalty, self.n_inducing = state_penalty, n_inducing
        self.n_terms, self.solver = n_terms, solver
        self.optimizer, self.n_restarts = optimizer, n_restarts
        self.max_iter, self.tol = max_iter, tol
        self.warm_start, self.n_jobs = warm_start, n_jobs
        self.verbose, self.random_state = verbose, random_state

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        with all_or_nothing(self), Progress(self.verbose) as progress:
            return self._fit(progress, X, y, sample_weight)

    def _fit(self, progress, X, y, sample_weight):
        """Fit, and tell of progress."""
        two_step = self._learn_in_two_steps(X, y, sample_weight, progress=progress)
        callbacks = self._init_callback_context(max_subtasks=None)
        callbacks.call_on_fit_task_begin(estimator=self, X=X, y=y)
        doubts = []
        if two_step.setup is None or two_step.is_stopped:
            self._store_states(two_step, two_step.is_stopped)
        else:
            tasks = Tasks(callbacks, {"estimator": self, "X": X, "y": y})
            report = partial(self._report, progress, tasks)
            settings = self._settings.with_own_seed()

            def tried(name, number, n):
                progress.hypothesis(name, number, n)
                tasks.begin(number, n)

            context = Context(settings, report, self._previous(), tried=tried)
            selection, doubts = None, []
            try:
                with threads_for(_size_of(two_step)):
                    selection = search(two_step, self._hypothesis, context)
                    tasks.end()
                    doubts = doubts_of(selection, self._hypothesis)
                self._store_selection(selection, doubts)
            except KeyboardInterrupt:
                if selection is None:  # nothing better was found yet
                    tasks.end()
                    self._store_states(two_step, is_stopped=True)
                else:
                    self._store_selection(selection.stopped(), doubts)
        doubts = f"found that {'; '.join(doubts)}." if doubts else ""
        progress.done(self.equation_, doubts)
        self._warn_of_failure(doubts)
        callbacks.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _learns_where_observed(self, setup, observations, variables):
        # Otherwise states follow the equation at these points, as the user says.
        names = [terms.name for terms in setup.equations]
        hypothesis = self._hypothesis.with_listed_terms(setup, variables)
        given = hypothesis, self._settings, observations.states, names
        points = observations.functions[0].points
        return not why_at_collocation_points(*given, points.shape[1] == 1)

    def _previous(self):
        """An earlier solution to start from, if that is asked for."""
        if not self.warm_start or getattr(self, "equation_", None) is None:
            return None
        equation = self.equation_
        if isinstance(equation, LearnedSystem):
            return EarlierSolution(self.states_, tuple(equation.values()))
        return EarlierSolution(self.states_, (equation,))

    def _store_states(self, two_step, is_stopped=False):
        """Fitted attributes of two steps: states without an equation to learn.

        Or those of a fit that is stopped before anything else was found.
        """
        self._store(two_step)
        self.loss_curve_, self.damping_curve_ = [], []
        self.restarts_, self.terms_path_ = [], []
        self.n_iter_, self.converged_, self.misfit_ = 1, True, 0.0
        self.message_ = "there is no equation to learn."
        if is_stopped:
            self.n_iter_, self.converged_, self.misfit_ = 0, False, np.inf
            self.message_ = INTERRUPTED if two_step.is_stopped else _ONLY_TWO_STEPS
        self.fit_report_ = describe_fit(self, two_step)

    def _store_selection(self, selection, doubts):
        """Fitted attributes of the fit that was chosen, with sentences on doubts."""
        fit, result = selection.best, selection.best.result
        kernel = fit.problem.boundary_kernel if fit.is_exact else None
        for equation in fit.learned.equations:
            equation.in_doubt = bool(doubts)
        self._store(fit.learned, kernel)
        self.loss_curve_, self.damping_curve_ = result.loss_curve, result.damping_curve
        self.n_iter_, self.converged_ = result.n_iter, result.converged
        self.message_, self.misfit_ = result.message, fit.misfit
        self.restarts_ = fit.restarts
        # Their equations, which share features of all states, are not kept.
        self.terms_path_ = [step._replace(equations=()) for step in fit.terms_path]
        limits = energies(fit.learned, selection.conserved)
        summary = summary_of(selection, (*doubts, *limits))
        self.fit_report_ = describe_fit(self, fit.learned, summary)

    def _warn_of_failure(self, doubts):
        """Warn of a fit that should not be relied on, and say what to do.

        `doubts` says why its equations may be others, also if it did not converge.
        """
        advice = "" if self.converged_ else self.message_
        allowed = RestartSettings.poor_misfit
        if self.observation_noise is None or self.equation_noise is None:
            allowed = RestartSettings.failed_misfit
        if self.converged_ and self.misfit_ > allowed:
            times = f"{multiple(self.misfit_**0.5)} times the noise levels"
            advice = (
                f"ended with misfit_={self.misfit_:.3g}: residuals are {times}, so "
                "that the minimum is a poor one or the levels are too small. Raise "
                "n_restarts, try other kernels or operators, or a larger "
                "observation_noise or equation_noise."
            )
        category = ConvergenceWarning if advice else IdentifiabilityWarning
        text = f"{advice} So far it {doubts}" if advice and doubts else advice or doubts
        if text:
            warnings.warn(f"{type(self).__name__} {text}", category, stacklevel=5)

    def _report(self, progress, tasks, two_step, problem, result):
        """Tell a user, and callbacks, about an accepted step."""
        equations = partial(equations_at, two_step, problem, result.solution)
        progress.step(problem, result, equations)

        def attributes():
            snapshot = type(self)(**self.get_params(deep=False))
            snapshot._store(Fit(None, two_step, problem, result, None).learned)
            return vars(snapshot) | {"n_features_in_": self.n_features_in_}

        return tasks.step(attributes)


_ONLY_TWO_STEPS = (
    "interrupted before states and equation were solved for together: the two-step "
    "solution is kept; fit again with warm_start=True to go on from there."
)


def _size_of(two_step):
    """Rows of the largest matrix of a step: data and equations of a function."""
    setup, functions = two_step.setup, two_step.observations.functions
    pairs = zip(functions, setup.collocation_points, strict=True)
    return max(len(d.values) + len(setup.equations) * len(x) for d, x in pairs)


class EarlierSolution(NamedTuple):
    """States and equations of an earlier fit."""

    states: list
    equations: tuple
