"""States that follow a law, found from states that are far from them.

Full Gauss-Newton steps (:mod:`keql._evolution.problem`) may lead to states that are no
better. Here they are damped: each is so short that what is minimised becomes less, with
the law integrated as it is and not linearised. It takes longer, but does not get lost
(Nocedal and Wright, Numerical Optimization, 2006, section 10.3).
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from keql._evolution.integration import simulate
from keql._evolution.states import Trajectory
from keql._numerics.scaling import rms

# Parts of a step that are tried, and how much less, relatively, what is minimised is to
# become.
PARTS, FLAT = 0.5 ** np.arange(7), 1e-2


@dataclass(frozen=True)
class Descent:
    """A law, and states that follow it.

    Parameters
    ----------
    equation : LearnedEquation
        The law.
    states : list of ndarray of shape (n_steps * 4 * n_points,)
        Values of each function on the grid.
    border : list of ndarray of shape (c,)
        Those on the border.
    missed : ndarray of shape (N,)
        Observations less values of the states.
    target : Trajectory
        Where a full step leads to, the law linearised at the states; its likelihood is
        the evidence for the law.
    """

    equation: object
    states: list
    border: list
    missed: np.ndarray
    target: Trajectory

    @property
    def negative_log_evidence(self):
        """Minus the log evidence for the law, up to a constant."""
        return self.target.negative_log_likelihood


def descend(evolution, equation, states, near=None):
    """Steps to states that follow a law and meet the observations.

    Parameters
    ----------
    evolution : Evolution
        The problem of following a law.
    equation : LearnedEquation
        The law to start from.
    states : list of ndarray
        Values on the grid; those on the border are started from.
    near : BorderRegression, default=None
        Whose priors and noise are to be started from.

    Yields
    ------
    descent : Descent
        Where it starts, and where each step leads to.
    """
    border = [evolution.values_at(state, evolution.grid.border) for state in states]
    reached = _simulate(evolution, equation, border, states)
    while reached is not None:
        equation, border, states, missed = reached
        flows, near, _ = evolution.linearise(equation, states, near)
        if flows is None:
            return
        try:
            loss = _negative_log_evidence(near, equation.weights, border, missed)
            target = evolution.trajectory(equation, flows, near, loss)
        except np.linalg.LinAlgError:  # of weights with effects beyond bounds
            return
        here = Descent(equation, states, border, missed, target)
        yield here
        reached = _step(evolution, here)


def _negative_log_evidence(regression, weights, border, missed):
    """Laplace's approximation of it, up to a constant that only data decide.

    That of the linearised problem is too high as long as steps are long: the noise is
    taken to be no less than the residuals are.
    """
    regression = regression.with_noise_above(rms(missed))
    shift = len(missed) * np.log(regression.size)
    return regression.loss(weights, border, missed) + regression.log_volume() - shift


def _step(evolution, here):
    """What :func:`_simulate` says after a step; None if none makes the loss less."""
    start, target, near = here.equation, here.target, here.target.regression
    loss = near.loss(start.weights, here.border, here.missed)
    p = len(start.weights)
    target_border = [unknowns[1 + p :] for unknowns in target.solution.unknowns]
    for part in PARTS:
        equation = copy(start)
        equation.weights = _between(start.weights, target.equation.weights, part)
        border = [
            _between(*pair, part)
            for pair in zip(here.border, target_border, strict=True)
        ]
        guess = [
            _between(*pair, part)
            for pair in zip(here.states, target.states, strict=True)
        ]
        reached = _simulate(evolution, equation, border, guess)
        if reached is not None:
            missed = reached[-1]
            if near.loss(equation.weights, border, missed) < (1 - FLAT) * loss:
                return reached
    return None


def _between(start, end, part):
    return (1 - part) * start + part * end


def _simulate(evolution, equation, border, guess):
    """Law, border, states with these values there, and what they miss; or None."""
    states, missed = [], []
    for values, near, data in zip(border, guess, evolution.functions, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):  # it is looked at
            state = simulate(evolution.grid, equation, values, near)
        if state is None:
            return None
        states.append(state)
        missed.append(data.values - evolution.values_at(state, data.points))
    return equation, border, states, np.concatenate(missed)
