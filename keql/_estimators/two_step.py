"""Two-step kernel equation learning: the states first, then the equations."""

import warnings
from dataclasses import replace
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning

from keql._estimators.base import all_or_nothing
from keql._estimators.learner import Learner
from keql._estimators.progress import Progress
from keql._regression.errors_of_states import with_errors_of_states
from keql.exceptions import IdentifiabilityWarning
from keql.fit_report import describe_fit, summary_of_two_steps

INTERRUPTED = (
    "interrupted while hyperparameters were looked for: the two-step solution with the "
    "best of them until then is kept; fit again to search on."
)


class TwoStepKEqL(Learner):
    """Learn states and the equations they solve, one after the other.

    First kernel ridge regression gives each state u from its observations; then the
    operators are applied to the fitted states at the collocation points, and a second
    kernel ridge regression gives P such that (P + Pbar)(x, L_1 u, ..., L_Q u) = f.
    Two linear solves: fast, and accurate when observations are dense. There may be
    several states and equations; each equation has a P of its own.

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
        Kernel of the states, ``{state: kernel}`` if they differ. Its free
        hyperparameters are a start and are fitted by maximum marginal likelihood over
        all functions; bounds "fixed" or `optimizer=None` keep them. None: chosen from
        the data, see Notes.
    equation_kernel : kernel or dict, default=None
        Kernel of P, ``{equation: kernel}`` if they differ; parts without `active_dims`
        act on the operators and inputs. Its scale is found unless a factor such as
        ``Constant(1.0, "fixed")`` says it: by likelihood for polynomials and other
        kernels with few features, from the size of what P has to explain for others.
        None: a :class:`keql.kernels.Polynomial` of degree 2.
    observation_noise, equation_noise : float or dict, default=None
        Standard deviations of an observation of weight 1, in units of `y`, and of the
        equation's residual, in units of the forcing; ``{state or operator: float}`` and
        ``{equation: float}`` if they differ. None: fitted with the kernels.
    state_penalty : float, default=1.0
        Weight lambda of the squared RKHS norm of the states: their prior covariance is
        the state kernel over lambda.
    n_inducing : int, default=500
        Inducing points of P that are drawn from the features; those are kept that are
        independent to rounding. A polynomial kernel has exact features and needs none.
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        Of the likelihoods, as in
        :class:`sklearn.gaussian_process.GaussianProcessRegressor`.
    n_restarts : int, default=0
        Further starts of the optimiser of the state kernel, drawn within its bounds.
    verbose : int, default=0
        1: whether a line is printed for each stage, with the elapsed time.
    random_state : int, RandomState instance or None, default=None
        Draws restarts and inducing points.

    Attributes
    ----------
    equation_ : LearnedEquation, LearnedSystem or None
        The learned equation; several are a :class:`keql.LearnedSystem`, which maps
        their names, those of the known parts or of `equations`, to each.
    states_, collocation_points_ : list of KernelExpansion, list of ndarray
        The fitted state and the collocation points of each function.
    functions_, variables_, state_names_ : tuple
        Labels of the functions, (None,) without a label column; names of coordinates,
        and of the states in the order of the columns that `predict` returns.
    domain_ : ndarray of shape (n_functions, 2, d)
        Lowest and highest coordinates of each function's observations, and a mean gap
        between these beyond, that of a regular grid of as many: where predictions do
        not warn. With exact states and those of a joint fit, collocation points too.
    state_kernel_, equation_kernel_ : Kernel
        With fitted hyperparameters; of several states a
        :class:`keql.kernels.SystemKernel`, of several equations a dict by name.
    observation_noise_, equation_noise_ : float
        The given or fitted noise levels; of several states or operators observed, and
        of several equations, a dict by name.
    fit_report_ : FitReport
        What was chosen and why, how well data and equation are met, and what looks
        wrong; to be printed.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of `X`, and their names if it had any.

    Warns
    -----
    IdentifiabilityWarning
        If `fit` does not tell the equation from others: P or all coefficients are
        uncertain, terms trade off, a part is not explained, observations are mostly
        noise, or a state does not change in one direction. It says what to change.
    ConvergenceWarning
        If `fit` was interrupted.

    Notes
    -----
    Without a `state_kernel` a state is a priori an offset of the size of the mean, plus
    a smooth function (:class:`keql.kernels.RBF`), plus a rougher one
    (:class:`keql.kernels.RationalQuadratic`) that fades away from some centre
    (:class:`keql.kernels.Envelope`). States of differential equations are seldom
    equally rough everywhere: what diffuses starts rough, a shock has a place. A single
    kernel takes the shortest length scale everywhere, and needs many more observations.
    All sizes, lengths and the centre are those of the highest posterior density given
    the observations, with weak priors in units of the data; `state_kernel_` holds them,
    "fixed". On rings it is an offset plus one :class:`keql.kernels.RBF` with `period`.

    Standard errors of terms have those of the fitted states, to first order, and so has
    what :meth:`keql.LearnedEquation.sparse` leaves out: errors of the residual at
    collocation points are those of one smooth function, whose covariance the posterior
    of the states tells (Fuller, Measurement Error Models, Wiley, 1987). Where P is
    uncertain by 3 % of its size, or a part of it is not explained, a
    :class:`keql.IdentifiabilityWarning` and the report say so, and `equation_` is
    marked as in doubt.

    References
    ----------
    Jalalian, Osorio, Hsu, Hosseini, Owhadi, "Data-Efficient Kernel Methods for
    Learning Differential Equations and Their Solution Operators", arXiv:2503.01036.

    Examples
    --------
    >>> import numpy as np
    >>> from keql import TwoStepKEqL
    >>> t = np.linspace(0, 6, 40)[:, None]
    >>> model = TwoStepKEqL(operators=("u",), known_part="u_tt", variables=("t",))
    >>> model = model.fit(t, np.sin(2 * t.ravel()))
    >>> round(model.equation_.terms()["u"], 2)
    -4.0

    A system of two states, of which the first is not measured everywhere:

    >>> y = np.exp(-0.1 * t) * np.column_stack([np.sin(2 * t), np.cos(2 * t)])
    >>> y[::3, 0] = np.nan
    >>> model = TwoStepKEqL(("u", "v"), ("u_t", "v_t"), variables=("t",))
    >>> model = model.set_params(states=("u", "v")).fit(t, y)
    >>> print(model.equation_.sparse(n_terms=2))
    u_t = 2.00 v - 0.100 u
    v_t = -2.00 u - 0.100 v
    """

    _imposes_equations = False

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
        optimizer: Any = "fmin_l_bfgs_b",
        n_restarts: int = 0,
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
        self.optimizer, self.n_restarts = optimizer, n_restarts
        self.verbose, self.random_state = verbose, random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        with all_or_nothing(self), Progress(self.verbose) as progress:
            given = X, y, sample_weight, self.n_restarts, progress
            learned = self._learn_in_two_steps(*given)
            learned, errors = with_errors_of_states(learned)
            summary = summary_of_two_steps(self._hypothesis, learned, errors)
            for equation in learned.equations:
                equation.in_doubt = bool(summary.doubts)
            self._store(learned)
            stopped = (INTERRUPTED,) if learned.is_stopped else ()
            told = replace(summary, doubts=(*stopped, *summary.doubts))
            self.fit_report_ = describe_fit(self, learned, told)
            progress.done(self.equation_, summary.doubts)
        if learned.is_stopped:
            text = f"{type(self).__name__} was {INTERRUPTED}"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        if summary.doubts:
            text = f"{type(self).__name__} found that {'; '.join(summary.doubts)}."
            warnings.warn(text, IdentifiabilityWarning, stacklevel=2)
        return self
