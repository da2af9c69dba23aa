"""One-step kernel equation learning: states and equation together."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.base import clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from keql._estimators.base import BaseKEqL
from keql._estimators.learner import SolverMixin
from keql._evolution.states import EvolvedState
from keql._joint.assembly import assemble_learned, make_problem
from keql._joint.restarts import FAILED
from keql._joint.starts import linearised_start, start_at
from keql._numerics.parallel import parallel_map
from keql._numerics.scaling import size_or_one
from keql._observations.data import size_of
from keql._regression.equation_prior import (
    polynomial_kernel,
    varying_coefficient_kernel,
)
from keql.equation import find_terms
from keql.fit_report import describe_fit
from keql.model_selection import (
    CLEARLY,
    GOOD,
    compare_kernels,
    fit_jointly,
    fit_with_best_kernel,
    follow_law,
    grow_law,
    is_convincing,
)


class OneStepKEqL(CallbackSupportMixin, SolverMixin, BaseKEqL):
    r"""Learn the states and the equation they solve together.

    The states v_m, in the RKHS of the state kernel, and P, in that of the equation
    kernel, minimise::

        1/2 |P|^2 + sum_m [ lambda/2 |v_m|^2 + 1/(2 sigma_u^2) |v_m(X_m) - y_m|^2
                            + 1/(2 sigma_P^2) |(P + Pbar)(Phi(v_m, Y_m)) - f_m|^2 ],

    so that the equation helps where observations are missing. A Levenberg-Marquardt
    loop starts at the two-step solution; each step is a linear regression with as
    many functionals as there are observations and collocation points.

    Parameters
    ----------
    operators : tuple of operators, default=None
        L_1, ..., L_Q, on which P depends, as for :class:`keql.TwoStepKEqL`.
    known_part : operator, dict or callable, default=None
        Pbar, as for :class:`keql.TwoStepKEqL`.
    collocation_points : array-like, dict or int, default=None
        Where the equation is imposed, as for :class:`keql.TwoStepKEqL`.
    forcing : callable, array-like or dict, default=None
        Right-hand side f, as for :class:`keql.TwoStepKEqL`.
    variables : tuple of str, default=None
        Names of the coordinates by position; None: the columns of a data frame,
        otherwise x0, x1, ...
    function_column : int or str, default=None
        Column of `X` that labels the function a row belongs to.
    state_kernel : kernel, default=None
        Kernel of the states; free hyperparameters are fitted by maximum marginal
        likelihood of the observations. None: an offset plus the RBF or Matern kernel
        whose joint fit predicts observations best from all others; the equation may be
        that of another fit, with the default kernel of :class:`keql.TwoStepKEqL`, if
        observations are predicted better with it. States of an equation of evolution in
        one space dimension, u_t = G(t, x, u, u_x, u_xx), follow it exactly, unless
        observations are predicted clearly better without that: only their initial
        values and those on both sides are open, with a Matern kernel of maximum
        likelihood.
    equation_kernel : kernel, default=None
        Kernel of P; free hyperparameters are fitted to the two-step solution. None: a
        :class:`keql.kernels.Polynomial` of degree 2 with fitted variance. If no state
        kernel is given either, it has degree 3 if observations are predicted poorly
        with degree 2, and clearly better with 3; or, if there are several functions and
        `n_terms` is not given, it is one of linear equations whose coefficients vary
        with the coordinates, if with it observations are predicted clearly better.
    observation_noise : float, default=None
        Standard deviation sigma_u of an observation of weight 1, in units of `y`;
        None: fitted with the state kernel.
    equation_noise : float, default=None
        Standard deviation sigma_P of the equation's residual in units of the forcing;
        None: a thousandth of the root mean square of the unknown part, or, along with a
        state kernel that is not given, a tenth of that if observations are predicted
        better, or what the residuals are if they are far below it.
    state_penalty : float, default=1.0
        Weight lambda of the squared RKHS norm of the states.
    n_inducing : int, default=500
        Inducing points of P, drawn from the two-step features; a polynomial kernel
        has exact features and needs none.
    n_terms : int, "auto" or None, default=None
        How many terms a polynomial P keeps. Terms are taken out one by one, the one
        that costs least each time, and all is fitted again; "auto" keeps those that
        cost clearly more than all before them, or those that predict observations
        best; of states that follow an equation of evolution, those of the highest
        evidence. None: all terms are kept.
    solver : {"auto", "dual", "primal"}, default="auto"
        How a state is represented: by representers, with as many unknowns as residuals
        (dual), or in an orthonormal basis of their span (primal), which is smaller for
        smooth kernels; the solution is the same. "auto": whichever is faster.
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        Of the likelihoods.
    n_restarts : int, default=10
        How often the fit tries again while its residuals are far above the noise
        levels: from states drawn at random given the observations, several of them
        each time, with few of the collocation points until one of them succeeds.
    max_iter : int, default=300
        Largest number of steps of one try.
    tol : float, default=1e-6
        The loop ends when a step lowers the loss by less, relatively.
    warm_start : bool, default=False
        Whether a further `fit` starts from the last solution if that has the same
        number of observations and collocation points.
    n_jobs : int, default=None
        Threads that work on different functions.
    verbose : int, default=0
        Whether each accepted step is printed.
    random_state : int, RandomState instance or None, default=None
        Draws inducing points, and the states to try again from.

    Attributes
    ----------
    equation_ : LearnedEquation or None
        The learned equation.
    states_ : list of KernelExpansion or EvolvedState
        The fitted state of each function; of the second kind if it was integrated.
    functions_ : tuple
        Labels of the functions; (None,) without a label column.
    state_kernel_, equation_kernel_ : Kernel
        With fitted hyperparameters.
    observation_noise_, equation_noise_ : float
        The noise levels, given or chosen; those of a chosen kernel that predicts well
        but does not meet the data are raised, with all variances, to what is left. An
        equation that states follow exactly has none.
    collocation_points_ : list of ndarray
        Of each function.
    variables_ : tuple of str
        Names of the coordinates.
    loss_curve_ : list of float
        Loss at the start and after each accepted step, where the equation was learned;
        if nothing but integration was needed, at each of its steps, undamped.
    damping_curve_ : list of float
        Damping of each accepted step.
    n_iter_ : int
        Number of steps tried.
    converged_ : bool
        Whether the loop met its stopping rule.
    misfit_ : float
        Mean square of the residuals in units of the noise levels; about 1 or less
        when observations and equation are met.
    restarts_ : list of dict
        What was tried, with the loss, misfit and number of steps that it led to:
        `draws` states with few of the collocation points, or the whole problem from
        another `start` than the two-step solution.
    terms_path_ : list of (terms, loss, misfit, error)
        Fits with fewer and fewer terms; empty if `n_terms` is None. Where states follow
        an equation, those that were compared, with minus their log evidence.
    fit_report_ : FitReport
        What was chosen and why, how well data and equation are met, and what looks
        wrong; to be printed.
    n_features_in_ : int
        Number of columns of `X`.
    feature_names_in_ : ndarray of str
        Names of the columns of `X`, if it had any.

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
    >>> model = OneStepKEqL(
    ...     operators=("u",),
    ...     known_part="u_tt",
    ...     equation_kernel=Polynomial(1),
    ...     variables=("t",),
    ... ).fit(t, np.sin(2 * t.ravel()))
    >>> bool(abs(model.equation_.terms()["u"] - 4) < 0.01)
    True
    """

    def __init__(
        self,
        operators=None,
        known_part=None,
        collocation_points=None,
        forcing=None,
        variables=None,
        function_column=None,
        state_kernel=None,
        equation_kernel=None,
        observation_noise=None,
        equation_noise=None,
        state_penalty=1.0,
        n_inducing=500,
        n_terms=None,
        solver="auto",
        optimizer="fmin_l_bfgs_b",
        n_restarts=10,
        max_iter=300,
        tol=1e-6,
        warm_start=False,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self.operators = operators
        self.known_part = known_part
        self.collocation_points = collocation_points
        self.forcing = forcing
        self.variables = variables
        self.function_column = function_column
        self.state_kernel = state_kernel
        self.equation_kernel = equation_kernel
        self.observation_noise = observation_noise
        self.equation_noise = equation_noise
        self.state_penalty = state_penalty
        self.n_inducing = n_inducing
        self.n_terms = n_terms
        self.solver = solver
        self.optimizer = optimizer
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    @with_callbacks
    def fit(self, X, y, sample_weight=None):
        """Fit states and equation.

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
        self : OneStepKEqL
            The fitted estimator.

        Raises
        ------
        ValueError
            If an argument is not as documented; the message names it.
        """
        two_step = self._learn_in_two_steps(X, y, sample_weight)
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        if two_step.setup is None:
            learned, outcome, search = two_step, nothing_to_minimise(), None
        else:
            learned, outcome, search = self._learn_jointly(two_step, context, X, y)
        self._store(learned)
        for name, value in outcome.items():
            setattr(self, name, value)
        self.fit_report_ = describe_fit(self, learned, search)
        to_do = advice(self.converged_, self.message_, self.misfit_)
        if to_do:
            warnings.warn(
                f"{type(self).__name__} {to_do}", ConvergenceWarning, stacklevel=3
            )
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    def _learn_jointly(self, two_step, context, X, y):
        """The joint fit; with a kernel that is not given, one of the better law."""
        if self.n_terms is not None:  # refuse before the long part
            n_columns = len(two_step.variables) + two_step.setup.n_operators
            find_terms(two_step.equation.basis.kernel, n_columns, self.n_terms)

        def report(two_step):
            return partial(self._report, context, X, y, two_step)

        def fit(two_step, problem, start, n_restarts=0):
            return fit_jointly(
                two_step,
                problem,
                start,
                n_terms=self.n_terms,
                n_restarts=n_restarts,
                rng=check_random_state(self.random_state),
                report=report(two_step),
                max_iter=self.max_iter,
                tol=self.tol,
            )

        if not self._chooses_kernel():
            best = fit(two_step, *self._solve_jointly(two_step), self.n_restarts)
            return best.learned, best.outcome, None
        best = self._follow_laws(two_step)
        if best is None or not is_convincing(best, two_step):
            found = self._find_kernel(two_step, fit, report, best)
            if found is not None:
                best = found.following(lambda _, followed=best: followed)
        return best.learned, best.outcome, best.for_report

    def _follow_laws(self, two_step):
        """States that follow a law exactly, a cubic one if that is clearly better."""
        best = self._follow_or_grow(two_step, two_step)
        if best is None or not self._doubts(best.error, two_step):
            return best
        learner, start = self._with_cubic_law(two_step)
        cubic = learner._follow_or_grow(start, two_step)
        better = cubic is not None and cubic.error < CLEARLY * best.error
        return cubic if better else best

    def _follow_or_grow(self, learned, two_step):
        """The same from two steps, or grown if these are not a good start."""
        best = self._follow_law(learned, learned)
        if best is not None and is_convincing(best, two_step):
            return best
        grown = self._follow_law(learned, learned, grow=True)
        if best is None or (grown is not None and grown.error < best.error):
            return grown
        return best

    def _find_kernel(self, two_step, fit, report, followed):
        """The joint fit with the best kernel, of states and perhaps of the law.

        None if no kernel promises clearly better predictions than what is followed.
        """

        def compare(learner, two_step):
            learn = partial(learner._learn_from, two_step)
            return compare_kernels(two_step, learn, learner._solve_jointly)

        def search(learner, two_step, kernels):
            return fit_with_best_kernel(
                two_step,
                kernels,
                partial(learner._learn_from, two_step),
                learner._solve_jointly,
                fit,
                partial(self._follow_law, two_step),
                n_restarts=self.n_restarts,
                free_noise=self.equation_noise is None,
                report=report,
                max_iter=self.max_iter,
                tol=self.tol,
            )

        law, kernels = (self, two_step), compare(self, two_step)
        if self._doubts(kernels[0].error, two_step):
            cubic = self._with_cubic_law(two_step)
            others = compare(*cubic)
            better = others[0].error < CLEARLY * kernels[0].error
            if better and not self._doubts(others[0].error, two_step):
                law, kernels = cubic, others
        if followed is not None and kernels[0].error > CLEARLY * followed.error:
            if followed.error < GOOD * size_of(two_step.observations.functions):
                return None
        best = search(*law, kernels)
        if self._may_vary(best):
            varying = self._with_varying_coefficients(two_step)
            kernels = compare(*varying)
            if kernels[0].error < CLEARLY * best.error:
                best = best.or_better(search(*varying, kernels), CLEARLY)
        return best

    def _follow_law(self, two_step, learned, grow=False):
        """States that follow a law exactly, if it is one of evolution."""
        if self.equation_noise:
            return None  # it is said not to hold exactly
        everything, noise = two_step.equation, self.observation_noise
        follow = grow_law if grow else follow_law
        followed = follow(learned, everything, self.n_terms, noise)
        if self.verbose and followed is not None:
            law = followed.learned.equation
            print(f"followed  {law}  error of predictions {followed.error:.3g}")
        return followed

    def _chooses_kernel(self):
        return self.state_kernel is None and self.optimizer is not None

    def _doubts(self, error, two_step):
        """Whether a law that is not given and predicts poorly may be a cubic one."""
        size = size_of(two_step.observations.functions)
        return self.equation_kernel is None and error >= GOOD * size

    def _may_vary(self, search):
        """Whether a law that is not given may have varying coefficients, too."""
        is_free = self.equation_kernel is None and self.n_terms is None
        several = len(search.fit.two_step.observations.functions) > 1
        hopeless = search.fit.result.interrupted or search.fit.is_hidden
        return is_free and several and not hopeless and search.followed is None

    def _with_cubic_law(self, two_step):
        """An estimator that learns a cubic polynomial, and its two steps."""
        size = size_or_one(two_step.target)
        return self._with_law(polynomial_kernel(size, degree=3), two_step)

    def _with_varying_coefficients(self, two_step):
        """An estimator that learns such a law, and its two steps."""
        observed = [data.points for data in two_step.observations.functions]
        points = np.concatenate(two_step.setup.collocation_points + observed)
        law = varying_coefficient_kernel(size_or_one(two_step.target), points)
        return self._with_law(law, two_step)

    def _with_law(self, law, two_step):
        other = clone(self).set_params(equation_kernel=law)
        return other, other._learn_from(two_step, two_step.state_kernel)

    def _state_kernels(self, two_step):
        """Kernel of the state of each function."""
        return [two_step.state_kernel] * len(two_step.observations.functions)

    def _learn_from(self, two_step, kernel, values=None):
        """Two steps with another state kernel; the second one from given values."""
        setup, variables = two_step.setup, two_step.variables
        rng = check_random_state(self.random_state)
        if values is None:
            noise, observations = two_step.observation_noise, two_step.observations
            return self._learn_with(kernel, noise, observations, variables, setup, rng)
        observed = [len(data.values) for data in two_step.observations.functions]
        imposed = [z[n:] for z, n in zip(values, observed, strict=True)]
        S = setup.features(imposed)
        equation, noise = self._learn_equation(setup, S, variables, kernel, rng)
        return replace(
            two_step,
            state_kernel=kernel,
            states=None,
            equation=equation,
            equation_noise=noise,
        )

    def _solve_jointly(self, two_step, values=None, law=None, equation_noise=None):
        """The least-squares problem of a fit, and where it starts."""
        if equation_noise is None:
            equation_noise = self.equation_noise
        problem = make_problem(
            two_step,
            self._state_kernels(two_step),
            solver=self.solver,
            equation_noise=equation_noise,
            state_penalty=self.state_penalty,
            map_blocks=partial(parallel_map, self.n_jobs),
        )
        weights = two_step.equation.weights
        if law is not None:
            problem, weights = problem.with_basis(law), np.empty(0)
        if values is not None:
            return problem, linearised_start(problem, values, weights)
        return problem, self._start(problem, two_step)

    def _start(self, problem, two_step):
        """The two-step solution, or the last one."""
        weights = two_step.equation.weights
        last = getattr(self, "equation_", None) if self.warm_start else None
        if last is not None and last.weights.shape == weights.shape:
            states = [
                s.outside if isinstance(s, EvolvedState) else s for s in self.states_
            ]
            states = [(s.functionals, s.coefficients) for s in states]
            if len(states) == len(problem.blocks):
                start = start_at(problem, states, last.weights)
                if start is not None:
                    return start
        # The prior of the two-step states is the kernel over lambda.
        states = [
            (s.functionals, s.coefficients / self.state_penalty)
            for s in two_step.states
        ]
        return start_at(problem, states, weights)

    def _report(self, context, X, y, two_step, problem, result):
        """Tell a user, and callbacks, about an accepted step."""
        if self.verbose:
            print(
                f"step {result.n_iter:4d}  loss {result.loss:.6g}  "
                f"damping {result.damping_curve[-1]:.2g}"
            )
        step = context.subcontext(task_name="step")
        step.call_on_fit_task_begin(estimator=self, X=X, y=y)

        def attributes():
            snapshot = type(self)(**self.get_params(deep=False))
            snapshot._store(assemble_learned(two_step, problem, result.solution))
            return vars(snapshot) | {"n_features_in_": self.n_features_in_}

        return step.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=attributes
        )


def nothing_to_minimise():
    """What an estimator says of a fit without an equation."""
    return {
        "loss_curve_": [],
        "damping_curve_": [],
        "n_iter_": 1,  # the linear regression of the states
        "converged_": True,
        "message_": "there is no equation to learn.",
        "misfit_": 0.0,
        "restarts_": [],
        "terms_path_": [],
    }


def advice(converged, message, misfit):
    """What to do about a fit that should not be relied on; None for others."""
    if not converged:
        return message
    if misfit > FAILED:
        return (
            f"ended with misfit_={misfit:.3g}: residuals are {misfit**0.5:.0f} times "
            "the noise levels, so that the minimum is a poor one or the levels are too "
            "small. Raise n_restarts, try other kernels or operators, or a larger "
            "observation_noise or equation_noise."
        )
    return None
