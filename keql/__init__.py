"""Kernel equation learning: differential equations from a few measurements.

Estimators with scikit-learn's interface that learn the state of a process and the
differential equation it solves from scattered observations.
"""

from keql._estimators.equations import Equation
from keql._estimators.one_step import OneStepKEqL
from keql._estimators.pde_solver import KernelPDESolver
from keql._estimators.reduced_one_step import ReducedOneStepKEqL
from keql._estimators.two_step import TwoStepKEqL
from keql.equation import LearnedEquation, LearnedSystem
from keql.exceptions import (
    ExtrapolationWarning,
    IdentifiabilityWarning,
    IllPosedWarning,
    SimulationError,
)

__version__ = "0.1.0"

__all__ = [
    "Equation",
    "ExtrapolationWarning",
    "IdentifiabilityWarning",
    "IllPosedWarning",
    "KernelPDESolver",
    "LearnedEquation",
    "LearnedSystem",
    "OneStepKEqL",
    "ReducedOneStepKEqL",
    "SimulationError",
    "TwoStepKEqL",
    "__version__",
]
