"""The Levenberg-Marquardt loop on small dense problems, compared with scipy's."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import least_squares

from keql._numerics import optimisation
from keql._numerics.optimisation import (
    Backtracking,
    Damping,
    FullSteps,
    Interruption,
    RelaxedSteps,
    Stop,
)


def minimise(problem, start, *, damping, tol, **settings):
    return optimisation.minimise(problem, start, Damping(damping, tol), **settings)


class DenseProblem:
    """Residuals of a vector, steps by the damped normal equations; it keeps a diary."""

    def __init__(self, residual, jacobian):
        self.residual = residual
        self.jacobian = jacobian
        self.dampings, self.losses = [], []

    def evaluate(self, x):
        r = self.residual(x)
        self.losses.append(0.5 * r @ r)
        return SimpleNamespace(iterate=x, r=r, loss=self.losses[-1])

    def linearise(self, evaluation):
        J = self.jacobian(evaluation.iterate)

        def step(damping):
            self.dampings.append(damping)
            normal = J.T @ J + damping * np.eye(J.shape[1])
            h = np.linalg.solve(normal, -J.T @ evaluation.r)
            r = evaluation.r + J @ h
            return evaluation.iterate + h, evaluation.loss - 0.5 * r @ r

        return SimpleNamespace(problem=self, evaluation=evaluation, step=step)

    def change(self, before, after):
        return np.linalg.norm(after - before) / np.linalg.norm(after)

    def interpolate(self, start, end, fraction):
        return start + fraction * (end - start)


def rosenbrock():
    return DenseProblem(
        lambda x: np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]),
        lambda x: np.array([[-20 * x[0], 10.0], [-1.0, 0.0]]),
    )


def exponential_fit():
    """Amplitude and rate of a decay from noisy values: the loss does not vanish."""
    t = np.linspace(0, 3, 25)
    y = 2 * np.exp(-1.3 * t) + 0.1 * np.random.RandomState(0).normal(size=25)
    return DenseProblem(
        lambda x: x[0] * np.exp(-x[1] * t) - y,
        lambda x: np.exp(-x[1] * t)[:, None] * np.column_stack([t**0, -x[0] * t]),
    )


def linear():
    rng = np.random.RandomState(0)
    A, b = rng.normal(size=(20, 4)), rng.normal(size=20)
    return DenseProblem(lambda x: A @ x - b, lambda x: A)


def square_root():
    """(sqrt(x) - 2)^2 + (x - 4)^2, not a number for negative x."""
    return DenseProblem(
        lambda x: np.array([x[0] ** 0.5 - 2 if x[0] >= 0 else np.nan, x[0] - 4]),
        lambda x: np.array([[0.5 * x[0] ** -0.5], [1.0]]),
    )


SETTINGS = {"damping": 1.0, "max_iter": 200, "tol": 1e-12}


@pytest.mark.parametrize("damping", [1e-8, 1.0, 1e4])
@pytest.mark.parametrize(
    "make, start",
    [
        (rosenbrock, [-1.2, 1.0]),
        (exponential_fit, [1.0, 0.0]),
        (exponential_fit, [5.0, 4.0]),
        (square_root, [30.0]),
    ],
)
def test_agrees_with_scipy(make, start, damping):
    problem = make()
    start = np.array(start)
    result = minimise(problem, start, **{**SETTINGS, "damping": damping})
    expected = least_squares(problem.residual, start, xtol=1e-15, gtol=1e-15)
    assert result.converged
    assert result.message.startswith("converged")
    np.testing.assert_allclose(result.solution, expected.x, rtol=1e-6)
    assert result.loss == pytest.approx(expected.cost, rel=1e-9, abs=1e-20)


def test_linear_problem_takes_one_step():
    problem = linear()
    result = minimise(problem, np.ones(4), **{**SETTINGS, "damping": 1e-12})
    J, r = problem.jacobian(0), problem.residual(np.zeros(4))
    expected = np.linalg.lstsq(J, -r, rcond=None)
    np.testing.assert_allclose(result.solution, expected[0], rtol=1e-8)
    assert result.converged
    # The first accepted step reaches the minimum, one more finds nothing to gain.
    assert result.n_iter <= 2
    assert problem.losses[1] == pytest.approx(result.loss, rel=1e-10)


def test_a_start_at_the_minimum_converges():
    problem = exponential_fit()
    solution = minimise(problem, np.array([1.0, 0.0]), **SETTINGS).solution
    result = minimise(problem, solution, **{**SETTINGS, "tol": 1e-8})
    assert result.converged
    assert result.n_iter == 1
    np.testing.assert_allclose(result.solution, solution, rtol=1e-8)


def test_a_loss_of_zero_converges():
    zero = DenseProblem(lambda x: np.zeros(3), lambda x: np.eye(3))
    result = minimise(zero, np.ones(3), **SETTINGS)
    assert result.converged
    assert result.loss == 0


def test_curves_tell_what_happened():
    problem = rosenbrock()
    result = minimise(problem, np.array([-1.2, 1.0]), **SETTINGS)
    assert np.all(np.diff(result.loss_curve) < 0)
    assert result.loss_curve[0] == problem.losses[0]
    assert result.loss_curve[-1] == result.loss == min(problem.losses)
    assert len(result.damping_curve) == len(result.loss_curve) - 1
    assert result.n_iter == len(problem.dampings) == len(problem.losses) - 1
    assert set(result.loss_curve) <= set(problem.losses)


def test_stops_after_max_iter_with_advice():
    start = np.array([-1.2, 1.0])
    result = minimise(rosenbrock(), start, **{**SETTINGS, "max_iter": 3})
    assert not result.converged
    assert result.n_iter == 3
    assert "max_iter=3" in result.message
    assert "raise max_iter" in result.message
    # It is the same path, cut off.
    full = minimise(rosenbrock(), start, **SETTINGS)
    assert result.loss_curve == full.loss_curve[: len(result.loss_curve)]


def test_tolerance_is_relative():
    """Residuals of any unit take the same path."""

    def scaled(unit):
        problem = exponential_fit()
        return DenseProblem(
            lambda x: unit * problem.residual(x), lambda x: unit * problem.jacobian(x)
        )

    paths = [
        minimise(
            scaled(unit),
            np.array([1.0, 0.0]),
            damping=unit**2,
            max_iter=100,
            tol=1e-4,
        )
        for unit in (1e-6, 1.0, 1e6)
    ]
    assert len({path.n_iter for path in paths}) == 1
    for path in paths:
        np.testing.assert_allclose(path.solution, paths[1].solution, rtol=1e-9)


def test_loose_tolerance_stops_earlier():
    start = np.array([5.0, 4.0])
    steps = [
        minimise(exponential_fit(), start, **{**SETTINGS, "tol": tol}).n_iter
        for tol in (0.3, 1e-3, 1e-12)
    ]
    assert steps[0] < steps[1] < steps[2]


# --- the damping ---------------------------------------------------------------------


def test_damping_falls_after_good_steps():
    problem = linear()
    minimise(problem, np.ones(4), **{**SETTINGS, "damping": 1e3})
    assert len(problem.dampings) > 3
    assert np.all(np.diff(problem.dampings) < 0)


def test_damping_rises_after_rejections_and_recovers():
    problem = rosenbrock()
    # Undamped, the first step multiplies the loss by a hundred.
    minimise(problem, np.array([-1.2, 1.0]), **{**SETTINGS, "damping": 1e-6})
    best, dampings = problem.losses[0], problem.dampings
    assert problem.losses[1] > best
    factors = np.divide(dampings[1:], dampings[:-1])
    for loss, factor in zip(problem.losses[1:-1], factors, strict=True):
        if loss > best:
            assert factor > 1
        best = min(best, loss)
    assert np.any(factors < 1)


def test_losses_that_are_no_numbers_are_rejected():
    problem = square_root()
    # Newton's step from 300 leads to negative x.
    problem.residual = lambda x: np.array([x[0] ** 0.5 - 2 if x[0] >= 0 else np.nan])
    problem.jacobian = lambda x: np.array([[0.5 * x[0] ** -0.5]])
    result = minimise(problem, np.array([300.0]), **{**SETTINGS, "damping": 1e-12})
    assert np.isnan(problem.losses).any()
    assert result.converged
    np.testing.assert_allclose(result.solution, 4.0, rtol=1e-5)
    assert np.all(np.isfinite(result.loss_curve))


def test_stalls_with_advice_where_rounding_hides_the_loss():
    problem, factors = exponential_fit(), iter(1 + 1e-3 * np.arange(100))
    solution = minimise(problem, np.array([1.0, 0.0]), **SETTINGS).solution
    residual = problem.residual
    problem.residual = lambda x: next(factors) * residual(x)
    result = minimise(problem, solution, **{**SETTINGS, "tol": 1e-6})
    assert not result.converged
    assert result.n_iter < 20
    assert "stalled" in result.message
    assert "observation_noise" in result.message
    np.testing.assert_array_equal(result.solution, solution)


def test_a_start_that_is_no_number_ends():
    problem = square_root()
    problem.jacobian = lambda x: np.ones((2, 1))
    result = minimise(problem, np.array([-1.0]), **SETTINGS)
    assert not result.converged
    assert result.n_iter < 20


# --- the outside world ----------------------------------------------------------------


def test_report_is_called_after_each_accepted_step():
    seen = []

    def report(result):
        seen.append((result.n_iter, result.loss, tuple(result.solution)))

    result = minimise(rosenbrock(), np.array([-1.2, 1.0]), **SETTINGS, report=report)
    assert [loss for _, loss, _ in seen] == result.loss_curve[1:]
    assert seen[-1][1:] == (result.loss, tuple(result.solution))
    steps = [n_iter for n_iter, _, _ in seen]
    assert steps == sorted(set(steps))
    assert steps[-1] <= result.n_iter
    assert result.converged


def test_report_stops_the_loop():
    result = minimise(
        rosenbrock(),
        np.array([-1.2, 1.0]),
        **SETTINGS,
        report=lambda result: len(result.loss_curve) == 4,
    )
    assert len(result.loss_curve) == 4
    assert not result.converged
    assert "stopped by a callback" in result.message


@pytest.mark.parametrize("where", ["evaluate", "report"])
def test_interrupt_keeps_the_best_iterate(where):
    problem, calls = rosenbrock(), []
    evaluate = problem.evaluate

    def interrupt(argument):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return evaluate(argument) if where == "evaluate" else None

    report = None
    if where == "evaluate":
        problem.evaluate = interrupt
    else:
        report = interrupt
    result = minimise(problem, np.array([-1.2, 1.0]), **SETTINGS, report=report)
    assert not result.converged
    assert "interrupted" in result.message
    assert "warm_start=True" in result.message
    assert len(result.loss_curve) > 2
    assert result.loss == result.loss_curve[-1] == min(problem.losses)
    r = problem.residual(result.solution)
    assert 0.5 * r @ r == result.loss


# --- other controls -------------------------------------------------------------------


def test_full_steps_converge_quadratically_near_the_solution():
    problem, start = exponential_fit(), np.array([1.9, 1.2])
    expected = minimise(problem, start, **SETTINGS)
    result = optimisation.minimise(problem, start, FullSteps(1e-10), max_iter=15)
    assert result.converged and result.n_iter < 10
    assert result.damping_curve == [0.0] * result.n_iter
    np.testing.assert_allclose(result.solution, expected.solution, rtol=1e-8)
    cut = optimisation.minimise(problem, start, FullSteps(1e-10), max_iter=2)
    assert cut.stop is Stop.MAX_ITER and cut.loss_curve == result.loss_curve[:3]


def test_backtracking_goes_where_full_steps_get_lost():
    start = np.array([-1.2, 1.0])
    full = optimisation.minimise(rosenbrock(), start, FullSteps(1e-12), max_iter=1)
    assert full.loss > full.loss_curve[0]
    result = optimisation.minimise(rosenbrock(), start, Backtracking(), max_iter=100)
    assert result.converged
    losses = np.array(result.loss_curve)
    assert np.all(losses[1:] < 0.99 * losses[:-1])
    np.testing.assert_allclose(result.solution, [1.0, 1.0], rtol=1e-6)


@pytest.mark.parametrize("control", [Damping(1.0, 1e-9), FullSteps(1e-9)])
def test_what_cannot_be_linearised_has_failed(control):
    problem = rosenbrock()
    problem.linearise = lambda evaluation: None
    result = optimisation.minimise(problem, np.ones(2), control, max_iter=9)
    assert result.stop is Stop.FAILED and not result.converged
    assert result.n_iter == 0 and "failed" in result.message


def test_what_cannot_be_evaluated_has_no_result():
    problem = rosenbrock()
    problem.evaluate = lambda iterate: None
    assert minimise(problem, np.ones(2), **SETTINGS) is None


def test_full_steps_that_lead_back_and_forth_are_given_up():
    """Those that turn as well, but less and less, go on."""

    class Turning:
        def __init__(self, factor):
            self.factor, self.problem = factor, self

        def evaluate(self, iterate):
            return SimpleNamespace(iterate=iterate, loss=abs(iterate))

        def linearise(self, evaluation):
            turned = Turning(self.factor)
            turned.evaluation = evaluation
            return turned

        def step(self, damping):
            return -self.factor * self.evaluation.iterate, 0.0

        def change(self, before, after):
            return abs(after - before)

    def end(factor):
        result = optimisation.minimise(
            Turning(factor), 1.0, FullSteps(1e-2), max_iter=15
        )
        return result.stop, result.n_iter

    assert end(1.0) == (Stop.NO_PROGRESS, 8)
    assert end(0.98) == (Stop.NO_PROGRESS, 8)
    stop, n_iter = end(0.6)
    assert stop is Stop.CONVERGED and 8 < n_iter <= 15


@pytest.mark.parametrize("n", [1, 2, 5])
def test_an_interrupted_search_has_the_best_that_was_evaluated(n):
    values, interruption = [3.0, 1.0, 2.0, 4.0], Interruption()

    def objective(theta, eval_gradient=True):
        if theta[0] == n - 1:
            raise KeyboardInterrupt
        value = values[int(theta[0])]
        return (value, np.zeros(1)) if eval_gradient else value

    def find(objective, thetas):
        for theta in thetas:
            objective(theta)
        return thetas[-1], objective(thetas[-1], eval_gradient=False)

    thetas = np.arange(4.0)[:, None]
    if n == 1:  # nothing was evaluated
        with pytest.raises(KeyboardInterrupt):
            interruption.best(find, objective, thetas)
        return
    theta, value = interruption.best(find, objective, thetas)
    assert (theta, value) == {2: (0, 3.0), 5: (3, 4.0)}[n]
    assert interruption.has_come == (n == 2)
    for other in (interruption, Interruption(is_kept=False)):
        if n == 2:
            with pytest.raises(KeyboardInterrupt):
                other.best(find, objective, thetas)


@pytest.mark.parametrize(
    ("changes", "stop", "expected"),
    [
        ([1.0, 0.05, 0.02, 0.06, 0.03], Stop.NO_PROGRESS, Stop.CONVERGED),
        ([0.05, 0.02, 0.2, 0.03], Stop.NO_PROGRESS, Stop.NO_PROGRESS),
        ([0.05, 0.02, 0.06, 0.03], Stop.MAX_ITER, Stop.MAX_ITER),
        ([0.05, 0.02, 0.06, 0.03], Stop.FAILED, Stop.FAILED),
    ],
)
def test_small_steps_that_do_not_end_have_converged(changes, stop, expected):
    control = FullSteps(0.01, changes=changes)
    assert control.settled_or(stop, 10.0) is expected


class Circling:
    """A problem and its own model, whose full steps change it by what is given."""

    def __init__(self, changes):
        self.changes, self.fractions = iter(changes), []
        self.problem, self.evaluation = self, SimpleNamespace(iterate=0.0, loss=1.0)

    def evaluate(self, iterate):
        return self.evaluation

    def linearise(self, evaluation):
        return self

    def step(self, damping):
        return 1.0, 0.0

    def change(self, before, after):
        return next(self.changes)

    def interpolate(self, start, end, fraction):
        self.fractions.append(fraction)
        return fraction * end


@pytest.mark.parametrize(
    "falling, stop, n_iter, shortest",
    [
        (1.0, Stop.NO_PROGRESS, 8, 1 / 16),
        (0.98, Stop.NO_PROGRESS, 8, 1 / 8),  # to 0.92 in four steps
        (0.95, Stop.CONVERGED, 91, 1 / 4),  # slowly
    ],
)
def test_steps_that_go_round_are_given_up(falling, stop, n_iter, shortest):
    problem = Circling(1.0 * falling ** np.arange(200))
    control = RelaxedSteps(1e-2, patience=4)
    result = optimisation.minimise(problem, 0.0, control, max_iter=150)
    assert (result.stop, result.n_iter) == (stop, n_iter)
    assert min(problem.fractions) == shortest


class Newton:
    """Newton's steps for atan(x) = 0, which lead back and forth further and further."""

    def evaluate(self, x):
        return SimpleNamespace(iterate=x, loss=0.5 * np.arctan(x) ** 2)

    def linearise(self, evaluation):
        x = evaluation.iterate
        end = x - np.arctan(x) * (1 + x**2)
        return SimpleNamespace(
            problem=self, evaluation=evaluation, step=lambda damping: (end, 0.0)
        )

    @staticmethod
    def change(before, after):
        return abs(after - before)

    @staticmethod
    def interpolate(start, end, fraction):
        return (1 - fraction) * start + fraction * end


def test_steps_that_were_shortened_become_full_ones_where_they_converge():
    """Half steps would take forty."""
    control = RelaxedSteps(1e-12)
    result = optimisation.minimise(Newton(), 1.5, control, max_iter=150)
    assert result.converged and abs(result.solution) < 1e-12
    assert control.fraction == 1.0 and result.n_iter < 20


class OnAnInterval(Newton):
    """That problem where it can be linearised between -2.92 and 2.92 only."""

    def linearise(self, evaluation):
        inside = abs(evaluation.iterate) < 2.92
        return super().linearise(evaluation) if inside else None


def test_steps_to_where_nothing_can_be_linearised_are_shortened():
    """From 2.9 the full step leads to -8.8, half of it to -2.93, a quarter to -0.01."""
    control = RelaxedSteps(1e-12)
    result = optimisation.minimise(OnAnInterval(), 2.9, control, max_iter=150)
    assert result.converged and abs(result.solution) < 1e-12
    for other in (optimisation.FullSteps(1e-12), RelaxedSteps(1e-12, shortest=0.5)):
        result = optimisation.minimise(OnAnInterval(), 2.9, other, max_iter=150)
        assert result.stop is Stop.FAILED


def test_steps_that_find_their_way_late_are_not_given_up():
    """As around a cycle that they leave before the patience ends."""
    changes = [*10 * [1.0], *(0.1 ** np.arange(5))]
    control = RelaxedSteps(1e-3, patience=8)
    result = optimisation.minimise(Circling(changes), 0.0, control, max_iter=150)
    assert result.converged and result.n_iter == 15


def test_a_search_that_ends_early_goes_on_from_its_end():
    def valley(x):  # Rosenbrock's
        r = np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
        return r @ r, 2 * r @ np.array([[-20 * x[0], 10.0], [-1.0, 0.0]])

    given = valley, np.array([-1.2, 1.0]), np.array([[-5.0, 5.0]] * 2), 10.0
    options = {"maxiter": 8}
    _, value = optimisation.minimise_in_boxes(*given, options=options)
    assert value > 0.1
    x, value = optimisation.minimise_in_boxes(*given, options=options, fall=1e-4)
    assert value < 1e-4
    np.testing.assert_allclose(x, 1, atol=2e-2)
