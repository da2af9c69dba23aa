"""From a learned equation to its solver."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from keql._estimators.pde_solver import KernelPDESolver

# The solver takes the collocation points of different functions together if there are
# no more.
MOST_POINTS = 1000


class SolverMixin:
    """Adds the method `pde_solver` to estimators that learn an equation."""

    def pde_solver(self, **params):
        """Make a solver of the learned equation.

        Parameters
        ----------
        **params : dict
            Parameters of :class:`keql.KernelPDESolver` that differ from those below.

        Returns
        -------
        solver : KernelPDESolver
            Not yet fitted: with the learned equation, the fitted state kernel, the
            names of the variables and the function column, the collocation points
            (if functions have different ones, all of them when they are at most
            1000, otherwise chosen by the solver), and the forcing if that is a
            function, which is defined for new data too.
        """
        check_is_fitted(self)
        if self.equation_ is None:
            raise ValueError(
                f"{type(self).__name__} was fitted without operators: it has no "
                "equation to solve."
            )
        points = np.unique(np.concatenate(self.collocation_points_), axis=0)
        settings = {
            "equation": self.equation_,
            "state_kernel": self.state_kernel_,
            "collocation_points": points if len(points) <= MOST_POINTS else None,
            "variables": self.variables_,
            "function_column": self.function_column,
            "forcing": self.forcing if callable(self.forcing) else None,
        }
        same = all(p is self.collocation_points_[0] for p in self.collocation_points_)
        if same:
            settings["collocation_points"] = self.collocation_points_[0]
        return KernelPDESolver(**settings | params)
