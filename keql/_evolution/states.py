"""States that are known on a grid of time and space."""

import numpy as np

from keql._evolution.integration import linear_response


class EvolvedState:
    """A state that follows from its equation by integration.

    Its posterior covariance on the grid is R R^T with R the product of the linear
    response and a root of the posterior covariance of weights and boundary values. R
    takes more memory than all else together and is computed whenever variances are
    asked for.

    Parameters
    ----------
    grid : EvolutionGrid
        Where it is known.
    values : ndarray of shape (n_steps, 4, n_points)
        Its values there.
    equation : LearnedEquation
        That it obeys, with p weights.
    root : ndarray of shape (p + c, r)
        Of the posterior covariance of the weights and the c boundary values.
    outside : KernelExpansion
        The state outside of the box.
    """

    def __init__(self, grid, values, equation, root, outside):
        self.grid = grid
        self.values = values
        self.equation = equation
        self.root = root
        self.outside = outside

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state at points (n, 2)."""
        inside, values = self.grid.contains(points), np.empty(len(points))
        state = self.values[..., None]
        values[inside] = self.grid.apply(state, points[inside], operator)[:, 0]
        if not inside.all():
            values[~inside] = self.outside.evaluate(points[~inside], operator)
        return values

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, without observation noise."""
        inside, variances = self.grid.contains(points), np.empty(len(points))
        if inside.any():
            response = linear_response(self.grid, self.equation, self.values)
            roots = response[..., 1:] @ self.root
            roots = self.grid.apply(roots, points[inside], operator)
            variances[inside] = np.sum(roots**2, axis=1)
        if not inside.all():
            variances[~inside] = self.outside.variance(points[~inside], operator)
        return variances
