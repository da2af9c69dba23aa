"""A Levenberg-Marquardt loop that knows no kernels and no linear algebra."""

from dataclasses import dataclass, field

import numpy as np

# A step is accepted if the loss falls by more than ACCEPT of what the linear model
# promised; the damping falls after a step that kept more than GOOD of the promise.
ACCEPT, GOOD = 1e-4, 0.75
DECREASE, INCREASE = 1 / 5, 4.0


@dataclass
class Result:
    """What a minimisation returns.

    Parameters
    ----------
    solution : object
        The best iterate, as the problem represents it.
    loss : float
        Its loss.
    converged : bool
        Whether a stopping rule was met.
    message : str
        Why the loop ended, and what to do if it ended early.
    loss_curve : list of float
        Loss at the start and after each accepted step.
    damping_curve : list of float
        Damping of each accepted step.
    n_iter : int
        Number of steps tried.
    interrupted : bool
        Whether the loop was stopped from the keyboard or by a callback.
    """

    solution: object
    loss: float
    converged: bool = False
    message: str = ""
    loss_curve: list = field(default_factory=list)
    damping_curve: list = field(default_factory=list)
    n_iter: int = 0
    interrupted: bool = False


def minimise(problem, start, *, damping, max_iter, tol, report=None):
    """Minimise a nonlinear least-squares problem by damped Gauss-Newton steps.

    Parameters
    ----------
    problem : object
        With ``evaluate(x)`` returning an evaluation that has a ``loss``, and
        ``linearise(evaluation)`` returning a linear model whose ``step(damping)``
        gives the new iterate and the decrease of the loss that the model predicts.
    start : object
        First iterate.
    damping : float
        First damping, positive.
    max_iter : int
        Largest number of steps tried.
    tol : float
        The loop ends when an accepted step was predicted to lower, and did lower,
        the loss by less than `tol` times the loss.
    report : callable, default=None
        Called after each accepted step with the result so far; returns True to stop.

    Returns
    -------
    result : Result
        The best iterate, also when interrupted from the keyboard.

    References
    ----------
    Madsen, Nielsen, Tingleff, "Methods for non-linear least squares problems", 2004,
    section 3.2; More, "The Levenberg-Marquardt algorithm", 1978.
    """
    current = problem.evaluate(start)
    result = Result(start, current.loss, loss_curve=[current.loss])
    try:
        _iterate(problem, current, result, damping, max_iter, tol, report)
    except KeyboardInterrupt:
        result.interrupted = True
        result.message = (
            f"interrupted after {result.n_iter} steps: the best iterate is kept; fit "
            "again with warm_start=True to go on."
        )
    return result


def _iterate(problem, current, result, damping, max_iter, tol, report):
    model, rejected = problem.linearise(current), 0
    while result.n_iter < max_iter:
        result.n_iter += 1
        solution, predicted = model.step(damping)
        trial = problem.evaluate(solution)
        decrease = current.loss - trial.loss
        gain = decrease / predicted if predicted > 0 else -np.inf
        small = tol * current.loss
        if not gain > ACCEPT:  # also when the trial loss is not a number
            # Rounding may make either of them negative.
            if abs(predicted) <= small and abs(decrease) <= small:
                result.converged = True
                result.message = "converged: no step lowers the loss noticeably."
                return
            # Doubling the factor leaves a region that is far too large quickly.
            damping *= INCREASE * 2**rejected
            rejected += 1
            if rejected > 12:
                result.message = (
                    f"stalled after {result.n_iter} steps: no damping lowers the loss; "
                    "raise observation_noise or equation_noise, which are small "
                    "beside rounding errors."
                )
                return
            continue
        current, rejected = trial, 0
        result.solution, result.loss = solution, trial.loss
        result.loss_curve.append(trial.loss)
        result.damping_curve.append(damping)
        if gain > GOOD:
            damping *= DECREASE
        elif gain < 1 - GOOD:
            damping *= INCREASE / 2
        if report is not None and report(result):
            result.interrupted = True
            result.message = f"stopped by a callback after {result.n_iter} steps."
            return
        if max(predicted, decrease) <= small:
            result.converged = True
            result.message = f"converged in {result.n_iter} steps."
            return
        model = problem.linearise(current)
    result.message = (
        f"not converged within max_iter={max_iter} steps (the loss is "
        f"{result.loss:.3g}): raise max_iter, or tol if the result is good enough."
    )
