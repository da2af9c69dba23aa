"""What the packages hand to one another: problems, linear models and states.

Nothing derives from these classes; they say what an object has to offer. A new linear
solver, another way to impose an equation or another kind of state needs no more.
"""

from typing import Protocol


class Problem(Protocol):
    """A nonlinear least-squares problem, as :func:`minimise` sees it."""

    def evaluate(self, iterate):
        """An evaluation with `iterate`, `residuals` and `loss`; None if impossible."""

    def linearise(self, evaluation):
        """The :class:`LinearModel` at an evaluation; None if there is none."""


class LinearModel(Protocol):
    """A problem linearised at an evaluation: a linear Gaussian regression.

    Its `problem` is the one that was linearised, with the hyperparameters that it has
    then; its `evaluation` is where, with the loss that these hyperparameters give.
    """

    def step(self, damping):
        """The damped Gauss-Newton iterate, and the predicted decrease of the loss."""

    def leave_one_out(self):
        """Errors of predicting each observation from all others, one array a function.

        In the units of the values, for observations of weight one.
        """

    def log_evidence(self):
        """Log density of the data with all unknowns integrated out, up to a constant.

        The constant depends on the data only.
        """

    def posterior_weights(self):
        """Posterior of the equation's weights, whatever the states are."""

    def posterior_states(self):
        """Posterior of the states, one :class:`State` for each function."""


class State(Protocol):
    """A fitted function with posterior variances."""

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state at points (n, d)."""

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, never negative."""
