"""States on a grid that follows them, as they become steeper.

States on a grid that is too coarse are less steep than they should be, and so is a grid
that follows them. Points are laid out anew after each step until both agree: steps
begin where a grid resolves the states and lead to steeper ones, which the next grid
resolves.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from keql._evolution.fronts.layout import finest_part, follow
from keql._numerics.optimisation import FullSteps, minimise


@dataclass(frozen=True)
class FollowingSettings:
    """When states are looked for on a grid that follows them, and how.

    steep : float. Part of the states that varies as fast as the points of a grid allow,
        from which on more points may let data be met that are missed. It was 5e-2 of
        states at the limit of a grid, and 1e-3 of those of a resolved front.
    n_layouts : int. Steps at most, after each of which points are laid out.
    patience : int. Of these, after which the likelihood has to be higher than it was on
        the grid before; sooner if it falls from a step to the next.
    near : float. Change of the states in a step, in the mean over the box and in units
        of their size, from which on the points are where they are needed.
    finer : float. By which the numbers of steps and points grow if a finer grid changes
        the states.
    """

    steep: float = 0.01
    n_layouts: int = 15
    patience: int = 4
    near: float = 1e-3
    finer: float = 1.5


def can_follow(grid):
    """Whether a grid may follow states that are known on another one.

    They are a single one, of an equation of first order in time, on an interval.
    """
    is_single = len(grid.states) == 1 and grid.order == 1
    on_interval = len(grid.space) == 1 and not grid.on_rings.any()
    return is_single and on_interval and not grid.follows


def are_steep(problem, iterate, settings):
    """Whether states vary as fast as the points of their grid allow."""
    grid = problem.grid
    if not can_follow(grid):
        return False
    return finest_part(grid, _stacked(grid, iterate.states)) > settings.steep


def on_following_grid(problem, iterate, sizes=None):
    """A problem and an iterate on a grid that follows the states of the iterate.

    `sizes` are its numbers of steps and points; None: the default ones.
    """
    values = _stacked(problem.grid, iterate.states)
    followed = problem.on(follow(problem.grid, values, sizes=sizes))
    return followed, followed.interpolate_from(problem, iterate)


def follow_states(problem, iterate, limit, settings, sizes=None, report=None):
    """Steps from an iterate, each on a grid that follows the one before.

    problem, iterate : EvolutionProblem, EvolutionIterate. To begin with.
    limit : float. Minus the log likelihood that has to be undercut.
    settings : FollowingSettings. How many steps there are.
    sizes : (int, int), default=None. Of the grid; None: the default ones.
    report : callable, default=None. Called after each step with the problem and the
        Result so far; returns True to stop.

    Returns result : Result or None. Of the last step, which has converged or was
        interrupted; None if states are not found, or are not more likely.
    """
    last = np.inf
    for k in range(settings.n_layouts):
        problem, iterate = on_following_grid(problem, iterate, sizes)
        told = report and partial(report, problem)
        control = FullSteps(settings.near)
        result = minimise(problem, iterate, control, max_iter=1, report=told)
        if result is None or result.model is None:
            return None
        if result.interrupted:
            return result
        loss = result.model.loss
        is_late = result.converged or k + 1 >= settings.patience or loss > last
        if is_late and loss > limit:
            return None
        if result.converged:
            return result
        problem, iterate, last = result.model.problem, result.solution, loss
    return None


def _stacked(grid, states):
    """States as functions (n_steps, 4, size, m) on a grid."""
    return np.stack(states, axis=-1).reshape(grid.n_steps, 4, grid.size, -1)
