"""One-step kernel equation learning with states in a smaller space."""

from dataclasses import replace

from keql._estimators.one_step import OneStepKEqL


class ReducedOneStepKEqL(OneStepKEqL):
    """Learn states and equation together, the states in a smaller space.

    As :class:`OneStepKEqL`, but each state is sought in the span of the kernel
    functions U(y_k, .) at its collocation points, instead of one for each operator
    and point: cheaper where functions are many, and a little less accurate.

    Parameters
    ----------
    operators, known_part, collocation_points, forcing : optional
        As for :class:`OneStepKEqL`.
    variables, function_column, operator_column, inputs : optional
        As for :class:`OneStepKEqL`.
    states, equations, units, periods : optional
        As for :class:`OneStepKEqL`.
    state_kernel, equation_kernel : optional
        As for :class:`OneStepKEqL`.
    observation_noise, equation_noise, state_penalty, n_inducing : optional
        As for :class:`OneStepKEqL`.
    n_basis : int, default=None
        Number of kernel functions: a random subset of the collocation points, for
        when these are many; None for all. With fewer of them than observations these
        cannot be met exactly.
    n_terms, solver, optimizer, n_restarts, max_iter, tol, warm_start : optional
        As for :class:`OneStepKEqL`.
    n_jobs, verbose, random_state : optional
        As for :class:`OneStepKEqL`.

    See Also
    --------
    OneStepKEqL : The full method; all attributes are described there.

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
        units=None,
        periods=None,
        state_kernel=None,
        equation_kernel=None,
        observation_noise=None,
        equation_noise=None,
        state_penalty=1.0,
        n_inducing=500,
        n_basis=None,
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
