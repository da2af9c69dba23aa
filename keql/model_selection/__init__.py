"""Folds of several functions, and the search for what fits best."""

from keql.model_selection._evolution_terms import follow_law, is_convincing
from keql.model_selection._folds import FunctionKFold
from keql.model_selection._from_diffusion import grow_law
from keql.model_selection._joint_fit import fit_jointly
from keql.model_selection._search import CLEARLY, fit_with_best_kernel
from keql.model_selection._state_kernels import GOOD, compare_kernels

__all__ = ["FunctionKFold"]
