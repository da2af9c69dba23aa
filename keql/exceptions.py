"""Warnings and errors of keql."""

__all__ = [
    "ExtrapolationWarning",
    "IdentifiabilityWarning",
    "IllPosedWarning",
    "SimulationError",
]


class ExtrapolationWarning(UserWarning):
    """Warns of a prediction beyond what an equation or a state was fitted on.

    Examples
    --------
    >>> import warnings
    >>> from keql import ExtrapolationWarning, KernelPDESolver
    >>> solver = KernelPDESolver("u_t + u", 20, variables=("t",))
    >>> solver = solver.fit([[0.0], [1.0]], [1.0, 0.37])
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     u = solver.predict([[0.5], [2.0]])
    >>> caught[0].category is ExtrapolationWarning
    True
    """


class IdentifiabilityWarning(UserWarning):
    """Warns of equations that the data do not tell from others.

    Examples
    --------
    With much noise a decay and a saturation look alike:

    >>> import warnings
    >>> import numpy as np
    >>> from keql import IdentifiabilityWarning, OneStepKEqL
    >>> t = np.linspace(0, 3, 15)
    >>> y = np.exp(-t) + 0.05 * np.random.RandomState(1).standard_normal(15)
    >>> model = OneStepKEqL(("u",), "u_t", variables=("t",), n_terms="auto")
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     model = model.fit(t[:, None], y)
    >>> caught[0].category is IdentifiabilityWarning
    True
    """


class IllPosedWarning(UserWarning):
    """Warns of boundary data that do not determine a solution.

    Examples
    --------
    A second condition is missing:

    >>> import warnings
    >>> import numpy as np
    >>> from keql import IllPosedWarning, KernelPDESolver
    >>> points = np.linspace(0, 1, 20)[:, None]
    >>> solver = KernelPDESolver("u_tt", points, variables=("t",))
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     solver = solver.fit([[0.0]], [1.0])
    >>> caught[0].category is IllPosedWarning
    True
    """


class SimulationError(RuntimeError):
    """Raised when an ordinary differential equation was not integrated to the end.

    Parameters
    ----------
    message : str
        What happened and what to do.
    time : float
        How far the integration came.

    Examples
    --------
    >>> import numpy as np
    >>> from keql import SimulationError, TwoStepKEqL
    >>> t = np.linspace(0, 0.9, 30)[:, None]
    >>> model = TwoStepKEqL(("u",), "u_t", variables=("t",))
    >>> equation = model.fit(t, 1 / (1 - t[:, 0])).equation_  # u_t = u^2
    >>> try:
    ...     states = equation.simulate([0.0, 2.0], [1.0])
    ... except SimulationError as error:
    ...     print(f"{error.time:.1f}")
    1.0
    """

    def __init__(self, message: str, time: float) -> None:
        super().__init__(message, time)
        self.time = time

    def __str__(self):
        return self.args[0]
