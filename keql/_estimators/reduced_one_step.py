"""One-step kernel equation learning with states in a smaller space."""

from dataclasses import replace
from typing import Any

from keql._estimators.one_step import OneStepKEqL


class ReducedOneStepKEqL(OneStepKEqL):
    """Learn states and equation together, the states in a smaller space.

    As :class:`OneStepKEqL`, but each state is sought in the span of the kernel
    functions U(y_k, .) at its collocation points, instead of one for each operator
    and point: cheaper where functions are many, and a little less accurate.

    Such states never obey an equation exactly, and bend to wrong terms as well as to
    right ones. So, where `n_terms` asks for a choice and :class:`OneStepKEqL` could
    integrate the equation, the terms are those that it finds with states which obey it
    exactly. If these predict well, the reduced problem is solved for the coefficients
    of their terms and for its own states, from these states on, and warns of what it
    would: terms that the data do not tell from others, or miss. Otherwise terms are
    chosen with equations at collocation points, and an equation of exact states that
    predicts about as well, but differs, is told beside it. With ``n_terms=None``, or a
    kernel without a list of terms, nothing but the reduced problem is solved.

    Parameters
    ----------
    operators, known_part : tuple of operators, operator, dict or callable
        What the unknown part P may depend on, such as ``("u", "u_x")``, and the part of
        the equation that is known, such as "u_t"; a tuple has one for each equation.
    collocation_points, forcing : array-like, dict, int or callable, default=None
        Where the equation is imposed: points, their number, or None for the observation
        points and a low-discrepancy fill; and its right-hand side, None for zero.
    variables : tuple of str, default=None
        Names of the coordinates; None: those of the columns.
    function_column, operator_column : int or str, default=None
        Columns of `X` with the label of the function of a row, and with the name of the
        operator whose value its `y` holds.
    inputs : dict, default=None
        Known quantities on which equations may depend, {name: values}.
    states : tuple of str, default=None
        Names of the states; None: those of the columns of `y`.
    equations : list of (str, Equation), default=None
        Equations that differ in more than the known part.
    units, periods : dict, default=None
        Units of coordinates and states by name, such as ``{"t": "h"}``, and lengths of
        the coordinates that are rings, such as ``{"x": 1.0}``.
    state_kernel, equation_kernel : kernel or dict, default=None
        Kernels of the states and of P, with free hyperparameters fitted; None: chosen
        by how well observations are predicted from all others, and a
        :class:`keql.kernels.Polynomial`.
    observation_noise, equation_noise : float or dict, default=None
        Standard deviations of an observation, in units of `y`, and of the equation's
        residual, in units of the forcing; None: fitted.
    state_penalty, n_inducing : float, int, default=1.0, 500
        Weight of the squared norms of the states, and the number of inducing points of
        P where its kernel has no finite set of features.
    n_basis : int, default=None
        Number of kernel functions: a random subset of the collocation points, for
        when these are many; None for all. With fewer of them than observations these
        cannot be met exactly.
    n_terms : int, "auto", dict or None, default="auto"
        How many terms P keeps; "auto": those that the data call for, by the evidence of
        exact states where there are such; None: all, which is much faster where
        functions are many.
    solver : {"auto", "dual", "primal"}, default="auto"
        How a state is represented, by representers or in an orthonormal basis of their
        span; the solution is the same.
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        Of the likelihoods.
    n_restarts, max_iter, tol : int, int, float, default=10, 300, 1e-6
        How often the fit tries again while residuals are far above the noise levels,
        the largest number of steps of one try, and the relative decrease of the loss
        that ends it.
    warm_start : bool, default=False
        Whether a further `fit` starts from the last solution.
    n_jobs, verbose : int, default=None, 0
        Threads that work on different functions; what is printed: 1, a line for each
        stage of the fit, and every few seconds of a stage; 2, one for each step, too.
    random_state : int, RandomState instance or None, default=None
        Draws kernel functions, inducing points and the states to try again from.

    See Also
    --------
    OneStepKEqL : The full method. Its page says more about the parameters, and has the
        fitted attributes, which are the same here.

    References
    ----------
    Jalalian, Osorio, Hsu, Hosseini, Owhadi, arXiv:2503.01036, the reduced method.

    Examples
    --------
    >>> import numpy as np
    >>> from keql import ReducedOneStepKEqL
    >>> from keql.kernels import Polynomial
    >>> t = np.linspace(0, 6, 6)[:, None]
    >>> problem = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    >>> model = ReducedOneStepKEqL(**problem, equation_kernel=Polynomial(1))
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
        n_basis: int | None = None,
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
        self.state_penalty = state_penalty
        self.n_inducing, self.n_basis = n_inducing, n_basis
        self.n_terms, self.solver = n_terms, solver
        self.optimizer, self.n_restarts = optimizer, n_restarts
        self.max_iter, self.tol = max_iter, tol
        self.warm_start, self.n_jobs = warm_start, n_jobs
        self.verbose, self.random_state = verbose, random_state

    @property
    def _settings(self):
        return replace(super()._settings, reduced=True)
