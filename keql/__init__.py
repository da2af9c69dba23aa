"""Kernel equation learning: differential equations from a few measurements.

Estimators with scikit-learn's interface that learn the state of a process and the
differential equation it solves from scattered observations.
"""

from keql.equation._learned import LearnedEquation
from keql.exceptions import ExtrapolationWarning, IllPosedWarning, SimulationError
from keql.one_step import OneStepKEqL
from keql.pde_solver import KernelPDESolver
from keql.reduced_one_step import ReducedOneStepKEqL
from keql.two_step import TwoStepKEqL

__version__ = "0.1.0"

__all__ = [
    "ExtrapolationWarning",
    "IllPosedWarning",
    "KernelPDESolver",
    "LearnedEquation",
    "OneStepKEqL",
    "ReducedOneStepKEqL",
    "SimulationError",
    "TwoStepKEqL",
    "__version__",
]
