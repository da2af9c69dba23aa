"""Kernel equation learning: differential equations from a few measurements.

Estimators with scikit-learn's interface that learn the state of a process and the
differential equation it solves from scattered observations. The modules `datasets`,
`plotting`, `metrics`, `kernels`, `operators` and `model_selection` are imported when
they are first named, as in ``keql.datasets.make_burgers()``.
"""

import importlib
from typing import Any

from keql._estimators.equations import Equation
from keql._estimators.one_step import OneStepKEqL
from keql._estimators.pde_solver import KernelPDESolver
from keql._estimators.reduced_one_step import ReducedOneStepKEqL
from keql._estimators.two_step import TwoStepKEqL
from keql._numerics.versions import show_versions
from keql.equation import LearnedEquation, LearnedSystem
from keql.exceptions import (
    ExtrapolationWarning,
    IdentifiabilityWarning,
    IllPosedWarning,
    SimulationError,
)

__version__ = "0.1.0"

# Imported by __getattr__: their names are not those of attributes until then.
_MODULES = "datasets kernels metrics model_selection operators plotting".split()

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
    "show_versions",
]


def __getattr__(name: str) -> Any:
    """Import a public module when it is named for the first time."""
    if name in _MODULES:
        return importlib.import_module(f"keql.{name}")
    raise AttributeError(f"module 'keql' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
