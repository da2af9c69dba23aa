"""Trying again when the minimum of a joint problem is a poor one."""

from dataclasses import replace

from keql._levenberg_marquardt import minimise

# First damping, relative to the loss of the two-step solution (both have no unit).
DAMPING = 1e-4
# A squared residual this many times the noise variance, on average, says that the
# minimum is a poor one or that the model does not hold.
POOR = 4.0
# One this large in the end is worth a warning.
FAILED = 100.0
# Steps of a first stage; it need not converge.
STAGE_STEPS = 60
# By how much a window grows at each end while the equation holds within.
WIDEN = 0.15
# What is tried in turn while the minimum is poor. A first stage with other noise, or
# with the equation imposed in a window only (in fractions of the extent of the first
# coordinate), may find a state near enough to the right one in part of the domain,
# and with it the equation.
ATTEMPTS = (
    {"damping": 1.0},
    {"damping": 1e-4},
    {"window": (0.5, 1.0)},
    {"window": (0.0, 0.5)},
    {"noise": 0.1},
    {"window": (2 / 3, 1.0)},
    {"window": (0.4, 0.6)},
    {"window": (0.8, 1.0)},
    {"window": (0.25, 0.75)},
    {"window": (0.0, 0.2)},
    {"window": (1 / 3, 2 / 3)},
    {"damping": 1e4},
    {"window": (0.2, 0.4)},
    {"window": (0.6, 0.8)},
    {"noise": 10.0},
    {"noise": 100.0},
)


def minimise_with_restarts(problem, start, *, n_restarts, max_iter, tol, report):
    """Minimise, and while the residuals are far above the noise try another way.

    Parameters
    ----------
    problem : DualProblem
        The problem.
    start : Iterate
        The two-step solution.
    n_restarts : int
        Largest number of further tries.
    max_iter, tol, report
        As for :func:`keql._levenberg_marquardt.minimise`.

    Returns
    -------
    result : Result
        That of the try with the lowest loss.
    misfit : float
        Its mean squared residual in units of the noise.
    tries : list of dict
        What was tried, and what it led to.
    """
    reached, tries = None, []
    settings = {"max_iter": max_iter, "tol": tol, "report": report}
    for attempt in ATTEMPTS[: n_restarts + 1]:
        result = _attempt(problem, start, settings, **attempt)
        misfit = problem.misfit(result.solution)
        outcome = {"loss": result.loss, "misfit": misfit, "n_iter": result.n_iter}
        tries.append({**attempt, **outcome})
        if reached is None or result.loss < reached.loss:
            reached, reached_misfit = result, misfit
        if misfit <= POOR or result.interrupted:
            break
    return reached, reached_misfit, tries


def _attempt(problem, start, settings, damping=1.0, noise=None, window=None):
    """One minimisation, after a first stage with other noise or in a window."""
    n_iter = 0
    for stage in _stages(problem, noise, window):
        first = DAMPING * stage.evaluate(start).loss
        steps = min(settings["max_iter"], STAGE_STEPS)
        staged = minimise(
            stage, start, damping=first, **{**settings, "max_iter": steps}
        )
        start, n_iter = staged.solution, n_iter + staged.n_iter
        if staged.interrupted:
            loss = problem.evaluate(start).loss
            return replace(staged, loss=loss, loss_curve=[loss], damping_curve=[])
        if stage.misfit(start) > POOR:
            break
    first = DAMPING * damping * problem.evaluate(start).loss
    result = minimise(problem, start, damping=first, **settings)
    result.n_iter += n_iter
    return result


def _stages(problem, noise, window):
    """Problems to solve before the whole one: easier ones, then wider windows."""
    if noise is not None:
        yield problem.with_observation_noise(noise)
    if window is not None:
        start, stop = window
        while start > 0 or stop < 1:
            yield problem.within(start, stop)
            start, stop = max(start - WIDEN, 0), min(stop + WIDEN, 1)
