"""States on a grid, and how they were found."""

from dataclasses import dataclass

import numpy as np

from keql._evolution.boundary_values import BorderRegression


class EvolvedState:
    """A state that follows from the law by integration.

    Parameters
    ----------
    grid : EvolutionGrid
        Where it is known.
    values : ndarray of shape (n_steps, 4, n_points)
        What it is there.
    roots : ndarray of shape (n_steps, 4, n_points, r)
        Its posterior covariance there is their product with themselves over the last
        axis.
    outside : KernelExpansion
        The state outside of the box.
    """

    def __init__(self, grid, values, roots, outside):
        self.grid = grid
        self.values = values
        self.roots = roots
        self.outside = outside

    def evaluate(self, points, operator):
        """Values of an operator applied to the state.

        Parameters
        ----------
        points : ndarray of shape (n, 2)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        values : ndarray of shape (n,)
            In units of the values over those of the coordinates differentiated.
        """
        inside, values = self.grid.contains(points), np.empty(len(points))
        state = self.values[..., None]
        values[inside] = self.grid.apply(state, points[inside], operator)[:, 0]
        if not inside.all():
            values[~inside] = self.outside.evaluate(points[~inside], operator)
        return values

    def variance(self, points, operator):
        """Posterior variances of an operator applied to the state.

        Parameters
        ----------
        points : ndarray of shape (n, 2)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        variances : ndarray of shape (n,)
            Of the latent state, without observation noise; never negative.
        """
        inside, variances = self.grid.contains(points), np.empty(len(points))
        roots = self.grid.apply(self.roots, points[inside], operator)
        variances[inside] = np.sum(roots**2, axis=1)
        if not inside.all():
            variances[~inside] = self.outside.variance(points[~inside], operator)
        return variances


@dataclass(frozen=True)
class Trajectory:
    """States on a grid, and the law that they follow.

    Parameters
    ----------
    equation : LearnedEquation
        The law.
    states : list of ndarray of shape (n_steps * 4 * n_points,)
        Values of each function.
    flows : list of ndarray
        What :func:`integrate` says of them.
    regression : BorderRegression
        With the priors and the noise of most likelihood.
    solution : Solution
        Of the regression.
    losses : list of float
        What is minimised, with the priors and the noise of each step.
    negative_log_likelihood : float
        Minus the log likelihood of the observations, up to a constant.
    error : float
        Root mean square error of the predictions of each observation from all others.
    """

    equation: object
    states: list
    flows: list
    regression: BorderRegression
    solution: object
    losses: list
    negative_log_likelihood: float
    error: float


@dataclass(frozen=True)
class Followed:
    """States that follow their law.

    Parameters
    ----------
    learned : LearnedModel
        States and law.
    trajectory : Trajectory
        What they were made from.
    path : list of TermsStep
        Laws that were compared.
    """

    learned: object
    trajectory: object
    path: list

    @property
    def error(self):
        """Root mean square error of the predictions of observations."""
        return self.trajectory.error

    @property
    def for_report(self):
        """What a report says of it if nothing else was tried."""
        laws = [(", ".join(step.terms), step.error) for step in self.path]
        return {"alternatives": laws, "followed": self.error}

    @property
    def outcome(self):
        """What an estimator says of it, by the names of its attributes."""
        losses = self.trajectory.losses
        return {
            "loss_curve_": losses,
            "damping_curve_": [],  # undamped
            "n_iter_": len(losses),
            "converged_": True,
            "message_": "the states follow the law exactly.",
            "misfit_": self.trajectory.solution.misfit,
            "restarts_": [],
            "terms_path_": self.path,
        }
