"""Two-step kernel equation learning: the state first, then the equation."""

from keql._estimators.learner import Learner
from keql.fit_report import describe_fit


class TwoStepKEqL(Learner):
    """Learn a state and the equation it solves, one after the other.

    First kernel ridge regression gives each state u from its observations; then the
    operators are applied to the fitted states at the collocation points, and a second
    kernel ridge regression gives P such that (P + Pbar)(x, L_1 u, ..., L_Q u) = f.
    Two linear solves: fast, and accurate when observations are dense.

    Parameters
    ----------
    operators : tuple of operators, default=None
        L_1, ..., L_Q, on which P depends: names such as "u", "u_x", "u_tx",
        "laplacian(u)", multi-indices or :class:`keql.operators.DifferentialOperator`.
        None with neither `known_part` nor `forcing`: the state is fitted, no equation.
    known_part : operator, dict or callable, default=None
        Pbar: an operator ("u_t"), ``{operator: coefficient}``, or a function of named
        features in `autograd.numpy` such as ``lambda u, u_tt: u_tt + u**3``.
    collocation_points : array-like, dict or int, default=None
        Where the equation is imposed: an array of shape (K, d), ``{label: array}``, a
        number of low-discrepancy points, or None for the observation points and a
        low-discrepancy fill (5 points for each observation, between 200 and 1000 for
        one function).
    forcing : callable, array-like or dict, default=None
        The right-hand side f: a function of points (K, d), an array (K,) that goes with
        an array of collocation points, ``{label: one of these}``, or None for zero.
    variables : tuple of str, default=None
        Names of the coordinates by position; None: the columns of a data frame,
        otherwise x0, x1, ...
    function_column : int or str, default=None
        Column of `X` that labels the function a row belongs to.
    state_kernel : kernel, default=None
        Kernel of the states. Its free hyperparameters are a start and are fitted by
        maximum marginal likelihood over all functions; bounds "fixed" or
        `optimizer=None` keep them. None: chosen from the data, see Notes.
    equation_kernel : kernel, default=None
        Kernel of P; parts without `active_dims` act on the operators. None: a
        :class:`keql.kernels.Polynomial` of degree 2 with fitted variance.
    observation_noise, equation_noise : float, default=None
        Standard deviations of an observation of weight 1, in units of `y`, and of the
        equation's residual, in units of the forcing; None: fitted with the kernels.
    state_penalty : float, default=1.0
        Weight lambda of the squared RKHS norm of the states: their prior covariance is
        the state kernel over lambda.
    n_inducing : int, default=500
        Inducing points of P, drawn from the features; a polynomial kernel has exact
        features and needs none.
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        Of the likelihoods, as in
        :class:`sklearn.gaussian_process.GaussianProcessRegressor`.
    n_restarts : int, default=0
        Further starts of the optimiser of the state kernel, drawn within its bounds.
    random_state : int, RandomState instance or None, default=None
        Draws restarts and inducing points.

    Attributes
    ----------
    equation_ : LearnedEquation or None
        The learned equation.
    states_, collocation_points_ : list of KernelExpansion, list of ndarray
        The fitted state and the collocation points of each function.
    functions_, variables_ : tuple
        Labels of the functions, (None,) without a label column; names of coordinates.
    state_kernel_, equation_kernel_ : Kernel
        With fitted hyperparameters.
    observation_noise_, equation_noise_ : float
        The given or fitted noise levels.
    fit_report_ : FitReport
        What was chosen and why, how well data and equation are met, and what looks
        wrong; to be printed.
    n_features_in_, feature_names_in_ : int, ndarray of str
        Number of columns of `X`, and their names if it had any.

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
    "fixed".

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
    4.0
    """

    def __init__(
        self,
        operators=None,
        known_part=None,
        collocation_points=None,
        forcing=None,
        variables=None,
        function_column=None,
        operator_column=None,
        inputs=None,
        states=None,
        equations=None,
        state_kernel=None,
        equation_kernel=None,
        observation_noise=None,
        equation_noise=None,
        state_penalty=1.0,
        n_inducing=500,
        optimizer="fmin_l_bfgs_b",
        n_restarts=0,
        random_state=None,
    ):
        self.operators, self.known_part = operators, known_part
        self.collocation_points, self.forcing = collocation_points, forcing
        self.variables, self.function_column = variables, function_column
        self.operator_column, self.inputs = operator_column, inputs
        self.states, self.equations = states, equations
        self.state_kernel, self.equation_kernel = state_kernel, equation_kernel
        self.observation_noise, self.equation_noise = observation_noise, equation_noise
        self.state_penalty, self.n_inducing = state_penalty, n_inducing
        self.optimizer, self.n_restarts = optimizer, n_restarts
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        learned = self._learn_in_two_steps(X, y, sample_weight, self.n_restarts)
        self._store(learned)
        self.fit_report_ = describe_fit(self, learned)
        return self
