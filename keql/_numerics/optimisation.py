"""Two minimisers: the one loop for nonlinear least squares, and L-BFGS-B in boxes.

The least-squares loop knows no kernels, no equations and no linear algebra: a problem
is linearised, its model offers steps, and a control says which of them is taken. The
other one finds a few hyperparameters within their bounds.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from inspect import signature

import numpy as np
from scipy import optimize

from keql._numerics.arguments import in_short, naming


class Stop(Enum):
    """Why a loop ended, and what to do if it ended early."""

    CONVERGED = "converged in {n_iter} steps."
    STALLED = (
        "stalled after {n_iter} steps: no damping lowers the loss; raise "
        "observation_noise or equation_noise, which are small beside rounding errors."
    )
    NO_PROGRESS = "given up after {n_iter} steps: each changes as much as those before."
    FAILED = (
        "failed after {n_iter} steps: the equation cannot be integrated from there."
    )
    MAX_ITER = (
        "not converged within max_iter={n_iter} steps (the loss is {loss:.3g}): raise "
        "max_iter, or tol if the result is good enough."
    )
    BEATEN = "given up after {n_iter} steps: others score higher than these ever will."
    CALLBACK = "stopped by a callback after {n_iter} steps."
    KEYBOARD = (
        "interrupted after {n_iter} steps: the best iterate is kept; fit again with "
        "warm_start=True to go on."
    )


@dataclass
class Result:
    """What a minimisation returns.

    `solution` is the best iterate, as the problem represents it, and `loss` its loss;
    `model` is the last linearisation, a LinearModel or None (the best iterate is a step
    from there, or where it is). The `loss_curve` has the loss at the start and after
    each accepted step, the `damping_curve` the damping of each of these steps, 0 for
    those that are not damped, and `n_iter` counts the steps tried.
    """

    solution: object
    loss: float
    model: object = None
    stop: Stop = Stop.MAX_ITER
    loss_curve: list = field(default_factory=list)
    damping_curve: list = field(default_factory=list)
    n_iter: int = 0

    @property
    def converged(self):
        """Whether a stopping rule was met."""
        return self.stop is Stop.CONVERGED

    @property
    def interrupted(self):
        """Whether the loop was stopped from the keyboard or by a callback."""
        return self.stop in (Stop.CALLBACK, Stop.KEYBOARD)

    @property
    def message(self):
        """Why the loop ended, and what to do if it ended early."""
        return self.stop.value.format(n_iter=self.n_iter, loss=self.loss)


def or_stopped(best, find, *given):
    """What `find` finds, or the best so far, stopped, if that is interrupted.

    The `best` is a fit that can be `stopped`, or None: then there is nothing to keep,
    and the interruption goes on. So it does for whoever interrupts a second time.
    """
    try:
        return find(*given)
    except KeyboardInterrupt:
        if best is None:
            raise
        return best.stopped(Stop.KEYBOARD)


@contextmanager
def keep_best(search):
    """The `best` Result of a search stays, stopped, when it is interrupted inside."""
    try:
        yield
    except KeyboardInterrupt:
        if search.best is None:
            raise
        search.best = replace(search.best, stop=Stop.KEYBOARD)


def minimise(problem, start, control, *, max_iter, report=None):
    """Minimise a nonlinear least-squares problem by Gauss-Newton steps.

    `problem` is a Problem, as in :mod:`keql._numerics.protocols`, and `start` its first
    iterate. The `control`, a Control made anew for each call, chooses the steps, of
    which at most `max_iter` are tried, and ends the loop. After each accepted step
    `report` is called with the Result so far; it returns True to stop. The Result has
    the best iterate, also when interrupted from the keyboard; None if the problem
    cannot be evaluated at the start.
    """
    current = problem.evaluate(start)
    if current is None:
        return None
    result = Result(start, current.loss, loss_curve=[current.loss])
    try:
        _iterate(problem, current, control, result, max_iter, report)
    except KeyboardInterrupt:
        result.stop = Stop.KEYBOARD
    return result


def _iterate(problem, current, control, result, max_iter, report):
    model = problem.linearise(current)
    while model is not None and result.n_iter < max_iter:
        result.model = model
        result.n_iter += 1
        damping = control.damping
        trial, stop = control.advance(model)
        if trial is not None:
            result.solution, result.loss = trial.iterate, trial.loss
            result.loss_curve.append(trial.loss)
            result.damping_curve.append(damping)
            if report is not None and report(result):
                stop = Stop.CALLBACK
        if stop is not None:
            result.stop = stop
            return
        if trial is not None and result.n_iter < max_iter:
            trial, model = _linearised(model, trial, control)
            result.solution, result.loss = trial.iterate, trial.loss
    if model is None:
        result.stop = Stop.FAILED


def _linearised(model, trial, control):
    """Where a step leads, shortened until that can be linearised, and the model there.

    The model is None if no shorter step can be, or the control knows none.
    """
    found = model.problem.linearise(trial)
    while found is None:
        shorter = control.shorter(model)
        if shorter is None:
            break
        trial, found = shorter, model.problem.linearise(shorter)
    return trial, found


class Control:
    """What chooses the steps of :func:`minimise`, and ends them."""

    def shorter(self, model):
        """The evaluation of a part of the last step, or None if none is tried."""
        return None


@dataclass
class Damping(Control):
    """Levenberg-Marquardt: the damping falls after good steps, rises after bad ones.

    The first `damping` is positive, in the units of the weights of the squared norms. A
    step is taken if the loss falls by more than the part `accept` of what the linear
    model promised. One that keeps more than the part `good` of the promise multiplies
    the damping by `decrease`, one that keeps less than 1 - `good` by half of
    `increase`, and a rejected step by `increase`. From the second rejection on that
    factor doubles each time, which leaves a region that is far too large quickly; after
    more than `max_rejections` in a row the loop is stalled. It has converged when a
    step was predicted to lower, and did lower, the loss by less than `tol` times it.

    Madsen, Nielsen, Tingleff, "Methods for non-linear least squares problems", 2004,
    section 3.2; More, "The Levenberg-Marquardt algorithm", 1978.
    """

    damping: float
    tol: float
    accept: float = 1e-4
    good: float = 0.75
    decrease: float = 0.2
    increase: float = 4.0
    max_rejections: int = 12
    rejections: int = 0

    def advance(self, model):
        """Try a step: the evaluation there, if it is taken, and why to stop, if so."""
        current = model.evaluation
        iterate, predicted = model.step(self.damping)
        trial = model.problem.evaluate(iterate)
        decrease, small = current.loss - trial.loss, self.tol * current.loss
        gain = decrease / predicted if predicted > 0 else -np.inf
        if gain > self.accept:
            self.rejections = 0
            if gain > self.good:
                self.damping *= self.decrease
            elif gain < 1 - self.good:
                self.damping *= self.increase / 2
            return trial, Stop.CONVERGED if max(predicted, decrease) <= small else None
        # Also when the trial loss is not a number. Rounding may make either negative.
        if abs(predicted) <= small and abs(decrease) <= small:
            return None, Stop.CONVERGED
        self.damping *= self.increase * 2**self.rejections
        self.rejections += 1
        return None, Stop.STALLED if self.rejections > self.max_rejections else None


def make_no_progress(changes, patience, falling):
    """Whether the least of the last `patience` changes is about that of those before.

    Not below the part `falling` of it.
    """
    last, n = changes[-2 * patience :], patience
    return len(last) == 2 * n and min(last[n:]) > falling * min(last[:n])


@dataclass
class FullSteps(Control):
    """Undamped steps, for problems near their solution.

    They have converged when one changes the iterate by less than `tol`, relatively, as
    the problem measures it (`problem.change`). They are given up if the least change of
    the last `patience` steps is not below the part `falling` of that of as many before:
    steps that lead back and forth do so for ever, and those that converge, if only by a
    half in two steps, are far below.
    """

    tol: float
    damping: float = 0.0
    patience: int = 4
    falling: float = 0.9
    changes: list = field(default_factory=list)

    def advance(self, model):
        """Take the step: the evaluation there, and why to stop, if so."""
        problem, (iterate, _) = model.problem, model.step(0.0)
        change = problem.change(model.evaluation.iterate, iterate)
        if change < self.tol:
            return problem.evaluate(iterate), Stop.CONVERGED
        self.changes.append(change)
        stuck = make_no_progress(self.changes, self.patience, self.falling)
        trial = problem.evaluate(self.end_of_step(model, iterate))
        return trial, Stop.NO_PROGRESS if stuck else None

    def end_of_step(self, model, iterate):
        """The iterate at which a step ends that leads to this one."""
        return iterate

    def settled_or(self, stop, factor):
        """Why steps ended, or that they have converged, up to rounding errors.

        If they go back and forth, and none of the last `patience` changes is above a
        multiple of `tol`.
        """
        small = max(self.changes[-self.patience :], default=np.inf) < factor * self.tol
        return Stop.CONVERGED if small and stop is Stop.NO_PROGRESS else stop


@dataclass
class RelaxedSteps(Control):
    """Full steps, shortened where they lead back and forth.

    A step is halved, to the part `shortest` at least, while nothing can be linearised
    where it leads, as trajectories explode there, and whenever the change that the full
    one makes has not fallen to the part `falling` of the one before. It is doubled
    where that has fallen by more than half of what a step of that length leaves if all
    is linear. They have converged when a full step changes the iterate by less than
    `tol`, relatively (`problem.change`); `problem.interpolate` goes part of the way.
    They are given up as full steps are, with more `patience`: short steps that converge
    need more of them, and those around a cycle had been as short as they get for a
    hundred steps.
    """

    tol: float
    shortest: float = 1 / 16
    falling: float = 0.9
    damping: float = 0.0
    fraction: float = 1.0
    patience: int = 12
    changes: list = field(default_factory=list)

    def advance(self, model):
        """Take the step: the evaluation there, and why to stop, if so."""
        problem, here = model.problem, model.evaluation.iterate
        iterate, _ = model.step(0.0)
        change = problem.change(here, iterate)
        fallen = 1 - change / self.changes[-1] if self.changes else 0.0
        if self.changes and fallen < (1 - self.falling) * self.fraction:
            self.fraction = max(self.fraction / 2, self.shortest)
        elif fallen > self.fraction / 2:
            self.fraction = min(2 * self.fraction, 1.0)
        self.changes.append(change)
        if self.fraction < 1:
            iterate = problem.interpolate(here, iterate, self.fraction)
        trial = problem.evaluate(iterate)
        if change < self.tol:
            return trial, Stop.CONVERGED
        stuck = make_no_progress(self.changes, self.patience, self.falling)
        return trial, Stop.NO_PROGRESS if stuck else None

    def shorter(self, model):
        """The evaluation of half of the last step, or None if it is the shortest."""
        if self.fraction <= self.shortest:
            return None
        self.fraction /= 2
        here, (end, _) = model.evaluation.iterate, model.step(0.0)
        return model.problem.evaluate(
            model.problem.interpolate(here, end, self.fraction)
        )


@dataclass
class Backtracking(Control):
    """The largest of some fractions of the full step that lowers the loss enough.

    The loss has to fall by the part `sufficient_decrease`, and the step is halved at
    most `n_halvings` times; converged when no fraction lowers the loss enough. Nocedal
    and Wright, Numerical Optimization, 2006, section 10.3.
    """

    sufficient_decrease: float = 1e-2
    n_halvings: int = 6
    damping: float = 0.0

    def advance(self, model):
        """Try fractions: the evaluation of the one taken, and why to stop, if so."""
        start, (end, _) = model.evaluation, model.step(0.0)
        for fraction in 0.5 ** np.arange(self.n_halvings + 1):
            between = model.problem.interpolate(start.iterate, end, fraction)
            trial = model.problem.evaluate(between)
            enough = (1 - self.sufficient_decrease) * start.loss
            if trial is not None and trial.loss < enough:
                return trial, None
        return None, Stop.CONVERGED


@dataclass
class Interruption:
    """An interruption from the keyboard, after which searches end with the best so far.

    The first one ends the search in which it comes, and `has_come` says so to those
    that follow: they should be short. A second one goes on to whoever called, and so
    does one that comes before anything was evaluated, or if it `is_kept` not.
    """

    is_kept: bool = True
    has_come: bool = False

    def best(self, find, objective, *given):
        """The pair (theta, value) that `find` finds, or the best that was evaluated.

        `find` is called with the objective, as for :func:`minimise_within_bounds`, and
        what else is `given`.
        """
        tried = _Tried(objective)
        try:
            return find(tried, *given)
        except KeyboardInterrupt:
            if self.has_come or not self.is_kept or tried.best is None:
                raise
            self.has_come = True
            return tried.best


class _Tried:
    """An objective that remembers its least value, as the pair (theta, value)."""

    def __init__(self, objective):
        self.objective, self.best = objective, None

    def __call__(self, theta, eval_gradient=True):
        found = self.objective(theta, eval_gradient)
        value = found[0] if eval_gradient else found
        if self.best is None or value < self.best[1]:
            self.best = np.array(theta), value
        return found


def best_optimum(optima):
    """The pair (theta, value) of least value."""
    return min(optima, key=lambda optimum: optimum[1])


def random_starts(bounds, n_restarts=0, rng=None):
    """Starts drawn uniformly within `bounds` (p, 2): a list of `n_restarts` vectors."""
    if n_restarts == 0:
        return []
    if not np.all(np.isfinite(bounds)):
        raise ValueError(
            "n_restarts > 0 draws starts within the bounds of the kernel: all bounds "
            "must be finite."
        )
    return [rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(n_restarts)]


def minimise_within_bounds(optimizer, objective, start, bounds):
    """Minimise within `bounds` (p, 2), from `start` (p,): the minimiser and its value.

    `optimizer` is scikit-learn's: a callable, or a name that stands for
    :func:`minimise_in_boxes`, the result of which is polished. `objective` returns the
    value and the gradient, or with `eval_gradient=False` the value alone.
    """
    if isinstance(optimizer, type):
        raise TypeError(
            f"optimizer is the class {optimizer.__name__}: give a function, or None."
        )
    if callable(optimizer):
        with naming("optimizer"):
            signature(optimizer).bind(objective, start, bounds=bounds)
        found = optimizer(objective, start, bounds=bounds)
        is_pair = isinstance(found, tuple | list) and len(found) == 2
        if not is_pair or np.shape(found[0]) != np.shape(start):
            raise ValueError(
                f"optimizer returned {in_short(found)}: it must return the pair of "
                f"theta, an array of shape {np.shape(start)}, and the value there."
            )
        return found
    return _polish(objective, *minimise_in_boxes(objective, start, bounds), bounds)


def minimise_in_boxes(
    objective, start, bounds, size=1.0, n_boxes=30, options=None, fall=np.inf
):
    """Minimise by L-BFGS-B in a box around the start, then around each result.

    Far from the optimum the gradient is so large (noise levels are small) that one
    step would cross the whole valley and end on the plateau of very short length
    scales, where nothing is explained and the gradient vanishes. A box reaches as far
    as `size`, in units of theta, which are those of log-hyperparameters. A further box
    is searched while the result lies on the border of the last one, or is lower than
    the one before by more than `fall`, as a valley with rounding errors may end a run
    far above its floor; `n_boxes` in all. `options` are those of scipy's L-BFGS-B.
    """
    value, how = np.inf, {"method": "L-BFGS-B", "jac": True, "options": options}
    for _ in range(n_boxes):
        box = np.clip(np.add.outer(start, [-size, size]), bounds[:, :1], bounds[:, 1:])
        result = optimize.minimize(objective, start, bounds=box, **how)
        at_border = (result.x == box.T) & (box != bounds).T
        goes_on = at_border.any() or value - result.fun > fall
        if not (goes_on and result.fun < value):
            break
        start, value = result.x, result.fun
    return result.x, result.fun


def _polish(objective, theta, value, bounds, reach=0.1, rounding=1e-5, n_calls=20):
    """Move an optimum to the root of the gradient, unless the value rises there.

    The value is flat there: minimising it leaves theta uncertain to the square root
    of rounding errors, which a change of units would show. A root further away than
    `reach`, in units of theta, is that of another optimum; with more than `n_calls`
    gradients for each unknown none is near. `rounding` is the relative rounding error
    of a log likelihood of an ill-conditioned kernel.
    """
    inside = np.all((theta > bounds.T[0], theta < bounds.T[1]), axis=0)
    if not inside.any():
        return theta, value

    def moved(part):
        result = theta.copy()
        result[inside] = np.clip(part, *bounds[inside].T)
        return result

    root = optimize.root(
        lambda part: objective(moved(part))[1][inside],
        theta[inside],
        options={"maxfev": n_calls * int(inside.sum())},
    )
    is_near = np.all(np.abs(root.x - theta[inside]) < reach)
    if not (root.success and is_near):
        return theta, value
    polished = moved(root.x)
    reached = objective(polished, eval_gradient=False)
    is_worse = reached > value + rounding * max(1.0, abs(value))
    return (theta, value) if is_worse else (polished, reached)
