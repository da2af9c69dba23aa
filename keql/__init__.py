"""Kernel equation learning: differential equations from a few measurements.

Estimators with scikit-learn's interface that learn the state of a process and the
differential equation it solves from scattered observations.
"""

from keql.equation import LearnedEquation
from keql.one_step import OneStepKEqL, ReducedOneStepKEqL
from keql.two_step import TwoStepKEqL

__version__ = "0.1.0"

__all__ = [
    "LearnedEquation",
    "OneStepKEqL",
    "ReducedOneStepKEqL",
    "TwoStepKEqL",
    "__version__",
]
