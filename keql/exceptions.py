"""Warnings and errors of keql."""

__all__ = ["ExtrapolationWarning", "IllPosedWarning", "SimulationError"]


class ExtrapolationWarning(UserWarning):
    """Warns of a prediction beyond what the equation or the state was fitted on."""


class IllPosedWarning(UserWarning):
    """Warns of boundary data that do not determine a solution."""


class SimulationError(RuntimeError):
    """Raised when an ordinary differential equation was not integrated to the end.

    Parameters
    ----------
    message : str
        What happened and what to do.
    time : float
        How far the integration came.

    Attributes
    ----------
    time : float
        How far the integration came.
    """

    def __init__(self, message, time):
        super().__init__(message, time)
        self.time = time

    def __str__(self):
        return self.args[0]
