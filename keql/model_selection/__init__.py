"""Folds of several functions, and the search for what fits best."""

from keql.model_selection._candidates import why_at_collocation_points
from keql.model_selection._fit import Context, Fit
from keql.model_selection._folds import FunctionKFold
from keql.model_selection._search import search

__all__ = ["FunctionKFold"]
