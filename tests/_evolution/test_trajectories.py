"""Exact trajectories against solve_ivp, finite differences and Gaussian formulas."""

import pickle
import re
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import solve_ivp
from scipy.linalg import block_diag, expm

from keql import Equation, OneStepKEqL, TwoStepKEqL
from keql._evolution.flow import Flow
from keql._evolution.form import why_no_trajectories
from keql._evolution.initial_values import (
    InitialPrior,
    InitialValueRegression,
    Rows,
)
from keql._evolution.trajectories import (
    TrajectoryIterate,
    TrajectoryLimits,
    make_trajectory_problem,
)
from keql._evolution.trajectory import rounding_of
from keql._numerics.optimisation import FullSteps, minimise
from keql.kernels import RBF, Polynomial
from keql.operators import parse_operator

VARIABLES = ("t",)


def integrate(velocity, initial, times):
    """Values (n, D) of the solution of y' = velocity(t, y)."""
    how = {"rtol": 1e-12, "atol": 1e-12, "method": "DOP853"}
    span = times[0], times[-1]
    return solve_ivp(velocity, span, initial, t_eval=times, **how).y.T


def hunt(_, y):
    """Prey and predators of Lotka and Volterra."""
    return [1.1 * y[0] - 0.4 * y[0] * y[1], -0.4 * y[1] + 0.1 * y[0] * y[1]]


def swing(t, y):
    """Two oscillators, (x, x_t, y): the second one is of first order and driven."""
    return [y[1], -2.0 * y[0] - 0.3 * y[1] + y[2], np.cos(t) - 0.5 * y[2] + 0.2 * y[1]]


TIMES = np.linspace(0, 12, 25)
HUNTED = integrate(hunt, (10.0, 5.0), TIMES)
SWUNG = integrate(swing, (1.0, 0.0, 0.5), TIMES)
LINEAR = {"equation_kernel": Polynomial(1)}
PAIR = {"operators": ("x", "y"), "known_part": ("x_t", "y_t"), "states": ("x", "y")}


def learn(X, y, **changes):
    """The two-step solution of two states."""
    settings = {"variables": VARIABLES, "collocation_points": 60}
    model = TwoStepKEqL(**PAIR | settings | changes)
    return model._learn_in_two_steps(np.reshape(X, (len(y), -1)), y, None)


@pytest.fixture(scope="module")
def hunters():
    return learn(TIMES, HUNTED)


@pytest.fixture(scope="module")
def swinging():
    operators = ("x", "x_t", "y")
    drive = {"v": lambda points: np.cos(points[:, 0])}
    kernel = Polynomial(1)
    parts = {"operators": operators, "known_part": ("x_tt", "y_t"), "inputs": drive}
    return learn(TIMES, SWUNG[:, [0, 2]], equation_kernel=kernel, **parts)


def flow_of(learned, equations=None):
    inputs = learned.setup.inputs
    given = {
        name: lambda points, i=i: inputs.at(0, points)[:, i]
        for i, name in enumerate(inputs.names)
    }
    forcing = learned.setup.forcing_functions[0]
    return Flow(learned.equations if equations is None else equations, given, forcing)


def shifted(equations, direction, h):
    """Equations with other weights, all of them in one vector."""
    moved, start = [], 0
    for equation in equations:
        size = len(equation.weights)
        equation = copy(equation)
        equation.weights = equation.weights + h * direction[start : start + size]
        moved.append(equation)
        start += size
    return tuple(moved)


# --- steps ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hunters", "swinging"])
def test_a_step_and_its_slopes(name, request):
    learned = request.getfixturevalue(name)
    flow = flow_of(learned)
    rng, D = np.random.RandomState(0), flow.n_states
    t, h = rng.uniform(0, 10, 4), rng.uniform(0.02, 0.1, 4)
    y = rng.normal(size=(4, D)) + 2.0
    ends, slopes = flow.step(t, h, y)
    alone, _ = flow.step(t, h, y, with_slopes=False)
    assert_allclose(alone, ends, rtol=1e-14)

    def velocity(time, state):
        return flow.velocity(np.array([time]), state[None], with_slopes=False)[0][0]

    for k in range(4):
        exact = integrate(velocity, y[k], np.array([t[k], t[k] + h[k]]))[-1]
        assert_allclose(ends[k], exact, rtol=1e-9)
    step = 1e-5
    for i in range(D):
        moved = [flow.step(t, h, y + s * np.eye(D)[i], False)[0] for s in (step, -step)]
        expected = (moved[0] - moved[1]) / (2 * step)
        assert_allclose(slopes[:, :, i], expected, rtol=1e-7, atol=1e-8)
    p = sum(flow.sizes)
    assert slopes.shape == (4, D, D + p)
    for i in range(p):
        moved = [
            flow_of(learned, shifted(learned.equations, np.eye(p)[i], s)).step(
                t, h, y, False
            )[0]
            for s in (step, -step)
        ]
        expected = (moved[0] - moved[1]) / (2 * step)
        assert_allclose(slopes[:, :, D + i], expected, rtol=1e-6, atol=1e-8)


def test_a_step_is_of_order_eight(hunters):
    """Half the step has an error smaller by about 2^9."""
    flow = flow_of(hunters)
    t, y = np.zeros(1), np.array([[10.0, 5.0]])

    def velocity(_, state):
        return flow.velocity(t, state[None], with_slopes=False)[0][0]

    errors = []
    for h in (1.0, 0.5):
        exact = integrate(velocity, y[0], np.array([0.0, h]))[-1]
        errors.append(np.abs(flow.step(t, np.array([h]), y, False)[0][0] - exact).max())
    assert errors[0] / errors[1] > 200


# --- weights and initial values -------------------------------------------------------


def regression(free=False, weights=True, seed=0):
    """Weights and the initial values of two functions from made-up rows."""
    rng, p, D = np.random.RandomState(seed), 3 if weights else 0, 2
    rows = [
        Rows(
            rng.normal(size=n),
            rng.normal(size=(n, p)),
            rng.normal(size=(n, D)),
            rng.normal(size=D),
            np.arange(n) % 2,
            rng.uniform(0.5, 2.0, n),
        )
        for n in (8, 6)
    ]
    noise, lowest = np.array([0.3, 0.8]), np.array([1e-3, 1e-3])
    free = np.array([free, free])
    prior = InitialPrior(np.array([2.0, 5.0]), noise, free, lowest, scale=1.5)
    return InitialValueRegression(rows, rng.normal(size=p), prior)


def joint_gaussian(model):
    """Target (N,), effects (N, q), prior variances (q,), noise variances (N,)."""
    rows, prior, p = model.rows, model.prior, model.p
    C = block_diag(*(own.on_initial for own in rows))
    A = np.hstack([np.concatenate([own.on_weights for own in rows]), C])
    center = np.concatenate([model.center, *(own.initial for own in rows)])
    target = np.concatenate([own.residuals for own in rows]) + A @ center
    variances = np.r_[np.full(p, prior.scale**2), np.tile(prior.spread**2, 2)]
    noise = [prior.noise[own.index] ** 2 / own.weights for own in rows]
    return target, A, variances, np.concatenate(noise)


def unknowns(model):
    """The most probable weights and initial values of both functions."""
    weights, initial = model.changes
    before = [own.initial for own in model.rows]
    return np.concatenate([model.center + weights, *map(np.add, before, initial)])


@pytest.mark.parametrize("weights", [True, False])
def test_the_posterior_is_that_of_the_full_covariance(weights):
    model = regression(weights=weights)
    target, A, prior, noise = joint_gaussian(model)
    C = (A * prior) @ A.T + np.diag(noise)
    gain = (A * prior).T @ np.linalg.inv(C)
    mean = gain @ target
    covariance = np.diag(prior) - gain @ (A * prior)
    assert_allclose(unknowns(model), mean, rtol=1e-10)
    assert_allclose(model.weights, mean[: model.p], rtol=1e-10)
    for m, root in enumerate(model.roots_of_covariance()):
        of_weights, first = np.arange(model.p), model.p + 2 * m
        own = np.ix_(*2 * [np.r_[of_weights, first : first + 2]])
        assert_allclose(root @ root.T, covariance[own], rtol=1e-9, atol=1e-12)
    assert 2 * model.loss == pytest.approx(target @ np.linalg.solve(C, target))
    density = stats.multivariate_normal(np.zeros(len(C)), C).logpdf(target)
    density += 0.5 * len(C) * np.log(2 * np.pi)  # which is left out
    assert model.log_evidence() == pytest.approx(density)
    residuals = target - A @ mean
    assert model.misfit == pytest.approx(np.mean(residuals**2 / noise))
    posterior = model.posterior_weights()
    assert_allclose(posterior.weights, mean[: model.p], rtol=1e-10)
    inverse = np.linalg.inv(covariance[: model.p, : model.p])
    assert_allclose(posterior.factor @ posterior.factor.T, inverse, rtol=1e-9)


@pytest.mark.parametrize("n_kept", [0, 1, 2])
def test_changes_that_keep_linear_functions_are_the_most_probable_ones(n_kept):
    """As Gaussians say of what is known to vanish."""
    model, rng = regression(), np.random.RandomState(7)
    p, constant = model.p, rng.normal(size=n_kept)
    slopes = rng.normal(size=(n_kept, p + 4))
    own = [slopes[:, p : p + 2], slopes[:, p + 2 :]]
    weights, initial = model.changes_keeping(constant, slopes[:, :p], own)
    target, A, prior, noise = joint_gaussian(model)
    covariance = np.linalg.inv((A.T / noise) @ A + np.diag(1 / prior))
    before = np.concatenate([model.center, *(each.initial for each in model.rows)])
    change = covariance @ (A.T / noise) @ target - before
    gain = covariance @ slopes.T @ np.linalg.inv(slopes @ covariance @ slopes.T)
    change = change - gain @ (constant + slopes @ change)
    assert_allclose(np.concatenate([weights, *initial]), change, rtol=1e-8)


def test_what_is_uncertain_is_averaged_over_noise_levels():
    """Student's t, of independent states with noise of their own."""
    rng, n, sizes = np.random.RandomState(0), 8, (3.0, 0.2)
    effects = block_diag(*rng.normal(size=(2, n, 2)))
    values = effects @ rng.normal(size=4) + np.repeat(sizes, n) * rng.normal(size=2 * n)
    index, none = np.repeat([0, 1], n), np.empty((2 * n, 0))
    rows = Rows(values, none, effects, np.zeros(4), index, np.ones(2 * n))
    free, lowest = np.ones(2, dtype=bool), np.full(2, 1e-6)
    prior = InitialPrior(np.full(4, 1e4), np.ones(2), free, lowest)
    model = InitialValueRegression([rows], np.empty(0), prior).with_best_prior()
    [root] = model.roots_of_covariance()
    for k, own in enumerate((slice(0, 2), slice(2, 4))):
        A, y = effects[index == k][:, own], values[index == k]
        left = np.linalg.lstsq(A, y, rcond=None)[1][0] / (n - 2)
        expected = left * np.linalg.inv(A.T @ A) * stats.t(n - 2).var()
        assert_allclose((root @ root.T)[own, own], expected, rtol=5e-3)


def test_leave_one_out_is_that_of_explicit_refits():
    model = regression()
    errors, logs = model.leave_one_out(), model.left_out_log_densities()
    assert [len(own) for own in errors] == [8, 6]
    target, A, _, _ = joint_gaussian(model)
    first = 0
    for m, own in enumerate(model.rows):
        for i in range(len(own.index)):
            arrays = own.residuals, own.on_weights, own.on_initial
            arrays, others = [np.delete(a, i, axis=0) for a in arrays], [*model.rows]
            last = np.delete(own.index, i), np.delete(own.weights, i)
            others[m] = Rows(*arrays, own.initial, *last)
            found = InitialValueRegression(others, model.center, model.prior)
            missed = target[first + i] - A[first + i] @ unknowns(found)
            assert errors[m][i] == pytest.approx(missed, rel=1e-9)
            # of which evidences have no constants
            more = model.log_evidence() - found.log_evidence()
            assert logs[first + i] == pytest.approx(more - 0.5 * np.log(2 * np.pi))
        first += len(own.index)


def test_noise_levels_and_scale_of_most_likelihood():
    """The evidence has no slope in the logarithms of what is free."""
    rng, model = np.random.RandomState(1), regression(free=True)
    center, rows = 0 * model.center, []
    for own in model.rows:
        explained = own.on_weights @ [30.0, -20.0, 10.0]
        noisy = explained + rng.normal(size=len(own.index))
        rows.append(replace(own, residuals=noisy, initial=0 * own.initial))
    start = InitialValueRegression(rows, center, model.prior)
    best = start.with_best_prior(max_iter=1000, tol=1e-10)
    assert best.log_evidence() > start.log_evidence()
    assert 1.0 < best.prior.scale < best.prior.max_scale
    assert np.all(best.prior.noise > best.prior.lowest)

    def evidence(noise, scale):
        prior = replace(best.prior, noise=noise, scale=scale)
        return InitialValueRegression(rows, center, prior).log_evidence()

    h = 1e-4
    for factors in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
        up, down = (np.exp(sign * h * np.array(factors)) for sign in (1, -1))
        slope = evidence(best.prior.noise * up[:2], best.prior.scale * up[2])
        slope -= evidence(best.prior.noise * down[:2], best.prior.scale * down[2])
        assert abs(slope / (2 * h)) < 1e-3
    held = InitialValueRegression(rows, center, replace(model.prior, scale=1.0))
    held.prior.free_noise[:] = False
    assert_array_equal(held.with_best_prior().prior.noise, model.prior.noise)


def test_the_whitened_regression_has_the_same_evidence():
    """Up to a constant: that of the initial values and the noise."""
    model = regression()
    model = InitialValueRegression(model.rows, 0 * model.center, model.prior)
    target, effects = model.whitened()
    differences = []
    for kept in ([0, 1, 2], [0], [1, 2], []):
        B = effects[:, kept]
        C = np.eye(len(kept)) + B.T @ B
        explained = B.T @ target
        value = 0.5 * explained @ np.linalg.solve(C, explained)
        value -= 0.5 * np.linalg.slogdet(C)[1] if kept else 0.0
        rows = [replace(own, on_weights=own.on_weights[:, kept]) for own in model.rows]
        fewer = InitialValueRegression(rows, np.zeros(len(kept)), model.prior)
        differences.append(fewer.log_evidence() - value)
    assert np.ptp(differences) < 1e-9


def test_where_it_is_linearised_does_not_matter():
    model, shift = regression(), np.array([3.0, -1.0, 2.0])
    rows = [
        replace(own, residuals=own.residuals - own.on_weights @ shift)
        for own in model.rows
    ]
    other = InitialValueRegression(rows, model.center + shift, model.prior)
    assert_allclose(unknowns(other), unknowns(model), rtol=1e-10)
    assert other.log_evidence() == pytest.approx(model.log_evidence())
    assert_allclose(other.whitened()[0], model.whitened()[0], rtol=1e-9, atol=1e-11)


# --- trajectories ---------------------------------------------------------------------


def solve(learned, noise=None, max_iter=60, tol=1e-12, **limits):
    """The solution of the trajectory problem of a two-step solution."""
    J = len(learned.observations.operators)
    given = np.full(J, np.nan) if noise is None else np.asarray(noise, dtype=float)
    problem = make_trajectory_problem(learned, given, TrajectoryLimits(**limits))
    result = minimise(problem, problem.start(), FullSteps(tol), max_iter=max_iter)
    return problem, result


@pytest.fixture(scope="module")
def solved(hunters):
    return solve(hunters, steps_in_noise=200)


def terms_of(model):
    return [equation.terms() for equation in model.solution.equations]


def close_to(expected, found, tol):
    rest = dict.fromkeys(found, 0.0) | expected
    return found == pytest.approx(rest, abs=tol)


def test_lotka_volterra_is_recovered(solved):
    """All twelve terms, from 25 exact values."""
    _, result = solved
    assert result.converged
    first, second = terms_of(result.model)
    assert close_to({"x": 1.1, "x y": -0.4}, first, 1e-6)
    assert close_to({"y": -0.4, "x y": 0.1}, second, 1e-6)


def test_the_unit_of_a_hidden_state_stays():
    """Steps end as fast as with all states, and change what is seen with them only.

    The prior of the weights has another unit of y, to which no step leads: to first
    order none shows in the prey, which a large one moves away from the solution.
    """
    hidden = np.column_stack([HUNTED[:, 0], np.full(len(TIMES), np.nan)])
    laws = [("x_t", Equation("x_t", ("x", "y"))), ("y_t", Equation("y_t", ("x", "y")))]
    start = learn(TIMES, HUNTED, equations=laws, operators=None, known_part=None)
    start = replace(start, observations=learn(TIMES, hidden).observations)
    problem = make_trajectory_problem(start, np.array([np.nan]), TrajectoryLimits())
    (y,) = problem.hidden
    first = problem.start()
    model = problem.linearise(problem.evaluate(first))
    size = np.std(first.nodes[0][:, y])
    assert np.std(model.solution.nodes[0][:, y]) == pytest.approx(size, rel=0.1)
    moved = replace(first, nodes=[first.nodes[0] * np.where(np.arange(2) == y, 1.1, 1)])
    assert problem.change(first, moved) == pytest.approx((0.1 / 1.1) ** 2)
    # By chance the second step is a short one, below which others must not fall soon.
    steps = FullSteps(1e-8, patience=8)
    assert minimise(problem, first, steps, max_iter=12).converged
    hidden[3, 1] = HUNTED[3, 1]  # a single value tells it
    few = replace(start, observations=learn(TIMES, hidden).observations)
    given = np.full(2, np.nan)
    assert not make_trajectory_problem(few, given, TrajectoryLimits()).hidden


def test_noisy_data_begin_with_longer_steps(hunters):
    """As they may be as inexact as noise is; where they may not, they are divided."""
    for level, n in ((np.nan, 120), (0.1, 120), (1e-7, 216)):
        given = np.full(2, level)
        problem = make_trajectory_problem(hunters, given, TrajectoryLimits())
        assert len(problem.times[0]) == n + 1
    iterate = problem.start()
    noisy = replace(problem, prior=replace(problem.prior, noise=np.full(2, 0.1)))
    for own in (problem, noisy):
        finer, there = own.resolved(iterate) or (own, iterate)
        errors = np.concatenate(finer.step_errors(there))
        noise = np.min(own.prior.noise / own.learned.observations.sizes())
        assert np.abs(errors).max() < 2 * max(1e-3 * noise / len(errors), 1e-11)


def test_nodes_are_the_solution(solved):
    problem, result = solved
    (times,), (nodes,) = problem.times, result.solution.nodes
    assert np.all(np.isin(TIMES, times)) and np.diff(times).max() < 12 / 199
    assert_allclose(nodes, integrate(hunt, (10.0, 5.0), times), atol=1e-7)
    (state,) = result.model.posterior_states()
    assert_allclose(state.nodes, nodes, atol=1e-10)
    # Between the nodes it is integrated from the one before.
    points = np.linspace(0.01, 11.9, 57)
    exact = integrate(hunt, (10.0, 5.0), np.r_[0.0, points])[1:]
    for i, name in enumerate("xy"):
        value = parse_operator(name, VARIABLES, ("x", "y"))
        slope = parse_operator(f"{name}_t", VARIABLES, ("x", "y"))
        assert_allclose(state.evaluate(points[:, None], value), exact[:, i], atol=1e-7)
        rates = np.array([hunt(0, y)[i] for y in exact])
        assert_allclose(state.evaluate(points[:, None], slope), rates, atol=1e-6)
    both = parse_operator("x_t - 2 y", VARIABLES, ("x", "y"))
    rates = [hunt(0, y)[0] - 2 * y[1] for y in exact]
    assert_allclose(state.evaluate(points[:, None], both), rates, atol=1e-6)


def test_beyond_the_nodes_it_is_integrated_on(solved):
    """In both directions, in any order of the times; also its slopes."""
    (state,) = solved[1].model.posterior_states()
    later = np.array([15.0, 12.5, 14.0])
    order = np.argsort(later)
    exact = np.empty((3, 2))
    exact[order] = integrate(hunt, HUNTED[-1], np.r_[12.0, later[order]])[1:]
    earlier = integrate(lambda t, y: -np.array(hunt(t, y)), HUNTED[0], [0.0, 0.7])[1]
    for i, name in enumerate("xy"):
        value = parse_operator(name, VARIABLES, ("x", "y"))
        assert_allclose(state.evaluate(later[:, None], value), exact[:, i], rtol=1e-6)
        before = state.evaluate(np.array([[-0.7]]), value)
        assert_allclose(before, earlier[i], rtol=1e-6)
        slope = parse_operator(f"{name}_t", VARIABLES, ("x", "y"))
        rates = [hunt(0, y)[i] for y in exact]
        assert_allclose(state.evaluate(later[:, None], slope), rates, rtol=1e-5)


def test_variance_beyond_the_nodes_is_propagated():
    """A decay whose rate and initial value are uncertain: u = z exp(-w t)."""
    times = np.linspace(0, 2, 9)
    noisy = np.exp(-times) + 0.01 * np.random.RandomState(0).normal(size=9)
    learned = learn_one(times, noisy, operators=("u",), known_part="u_t", **LINEAR)
    _, result = solve(learned, [0.01])
    (state,) = result.model.posterior_states()
    value, h = parse_operator("u", VARIABLES), 1e-4
    p, t = len(state.root) - 1, np.array([[-1.0], [3.0], [5.0]])

    def values(change):
        (equation,) = shifted(result.solution.equations, change[:p], 1.0)
        terms = equation.terms()
        rest, rate = terms["1"] / terms["u"], terms["u"]
        return (state.nodes[0] + change[p] + rest) * np.exp(rate * t[:, 0]) - rest

    linear = [(values(h * c) - values(-h * c)) / (2 * h) for c in state.root.T]
    assert_allclose(state.variance(t, value), np.sum(np.square(linear), 0), rtol=1e-4)
    assert_allclose(state.evaluate(t, value), values(np.zeros(p + 1)), rtol=1e-7)


@pytest.mark.parametrize("is_driven", [False, True])
def test_steps_that_explode_are_no_linearisation(solved, is_driven):
    """However fast states grow in a step, squares of where it leads are finite."""
    problem, result = solved
    problem = problem.driven(np.ones(2)) if is_driven else problem
    for factor in np.geomspace(60.0, 80.0, 20):
        equations = [copy(equation) for equation in result.solution.equations]
        for equation in equations:
            equation.weights = factor * equation.weights
        iterate = replace(result.solution, equations=tuple(equations))
        model = problem.linearise(problem.evaluate(iterate))
        assert model is None or np.all(np.isfinite(model.regression.weights))
        assert model is None or np.isfinite(model.log_evidence())


def test_above_the_order_and_after_an_explosion_is_the_other_state(solved, hunters):
    (state,) = solved[1].model.posterior_states()
    point, operator = np.array([[3.0]]), parse_operator("x_tt", VARIABLES, ("x", "y"))
    expected = hunters.states[0].evaluate(point, operator)
    assert_array_equal(state.evaluate(point, operator), expected)
    times = np.linspace(0, 0.9, 10)  # u' = u^2 with u(0) = 1 ends at t = 1
    learned = learn_one(times, 1 / (1 - times), operators=("u",), known_part="u_t")
    _, result = solve(learned)
    (state,) = result.model.posterior_states()
    points, operator = np.array([[0.95], [1.2]]), parse_operator("u", VARIABLES)
    found = state.evaluate(points, operator)
    assert found[0] == pytest.approx(20.0, rel=1e-3)
    beyond = learned.states[0].evaluate(points, operator)[1]
    assert found[1] == pytest.approx(beyond)
    assert np.all(np.isfinite(state.variance(points, operator)))


def learn_one(t, y, **settings):
    """The two-step solution of a single state."""
    model = TwoStepKEqL(variables=VARIABLES, collocation_points=60, **settings)
    return model._learn_in_two_steps(t[:, None], y, None)


@pytest.mark.parametrize("as_array", [False, True])
def test_a_forcing_is_integrated_too(as_array):
    """As a function, or between the collocation points where its values are given."""

    def force(points):
        return np.cos(2 * points[:, 0])

    grid, times = np.linspace(0, 10, 201)[:, None], np.linspace(0, 10, 41)
    exact = integrate(
        lambda t, y: [y[1], np.cos(2 * t) - 3 * y[0] - 0.2 * y[1]], (1.0, 0.0), times
    )
    given = {"forcing": force(grid), "collocation_points": grid}
    given = given if as_array else {"forcing": force, "collocation_points": 60}
    model = TwoStepKEqL(("u", "u_t"), "u_tt", variables=VARIABLES, **given, **LINEAR)
    learned = model._learn_in_two_steps(times[:, None], exact[:, 0], None)
    assert why_no_trajectories(learned) == ""
    _, result = solve(learned)
    assert result.converged
    (terms,) = terms_of(result.model)
    assert close_to({"u": -3.0, "u_t": -0.2}, terms, 1e-6)


def test_steps_are_divided_until_they_resolve_the_solution():
    """Few steps of a fast oscillation, whose errors are told as they are."""
    times = np.linspace(0, 10, 40)
    learned = learn_one(
        times, np.cos(3 * times), operators=("u", "u_t"), known_part="u_tt", **LINEAR
    )
    _, result = solve(learned, steps=8)
    problem = result.model.problem
    errors = [np.abs(own).max() for own in problem.step_errors(result.solution)]
    finer, iterate = problem.resolved(result.solution)
    assert len(finer.times[0]) > len(problem.times[0])
    assert np.isin(problem.times[0], finer.times[0]).all()
    smaller = [np.abs(own).max() for own in finer.step_errors(iterate)]
    assert smaller[0] < 0.1 * errors[0]
    while finer is not None:
        problem = finer
        result = minimise(problem, iterate, FullSteps(1e-12), max_iter=20)
        finer, iterate = problem.resolved(result.solution) or (None, None)
    (state,) = result.model.posterior_states()
    points, value = np.linspace(0, 10, 101), parse_operator("u", VARIABLES)
    exact = np.cos(3 * points)
    assert_allclose(state.evaluate(points[:, None], value), exact, atol=1e-8)


def test_steps_are_no_shorter_than_times_can_tell():
    """Far from zero, times have few digits: shorter steps are not more accurate."""
    times, nodes = 1e9 + np.linspace(0, 10, 11), np.column_stack([np.arange(11.0)])
    size = np.sqrt(np.mean(nodes**2))
    assert_allclose(rounding_of(times, nodes), 2 * np.spacing(1e9) / size)

    def forcing(X):
        return 1.2 * np.cos(0.7 * (X[:, 0] - 1e9))

    t = np.linspace(0, 15, 41)
    y = integrate(lambda t, s: [s[1], 1.2 * np.cos(0.7 * t) - 2 * s[0]], [0.5, 0], t)
    settings = {"operators": ("u", "u_t"), "known_part": "u_tt", "variables": ("t",)}
    model = OneStepKEqL(**settings, forcing=forcing).fit(1e9 + t[:, None], y[:, 0])
    assert_allclose(model.equation_.terms()["u"], -2, rtol=1e-4)
    how = {choice.name: choice.value for choice in model.fit_report_.choices}
    assert int(how["resolution"].split()[0]) < 1000


def test_the_change_that_is_told_is_the_error_of_steps():
    """Nodes beside solutions in closed form of the equation that was found."""
    times = np.linspace(0, 20, 60)
    learned = learn_one(
        times, np.cos(5 * times), operators=("u", "u_t"), known_part="u_tt", **LINEAR
    )
    _, result = solve(learned, steps=8)
    problem, (terms,) = result.model.problem, terms_of(result.model)
    text, change = problem.resolution(result.solution)
    assert text == "59 steps in time"
    wave = np.exp(np.roots([1, -terms["u_t"], -terms["u"]])[0] * times)
    solutions, nodes = np.column_stack([wave.real, wave.imag]), result.solution.nodes
    nearest = solutions @ np.linalg.lstsq(solutions, nodes[0][:, 0], rcond=None)[0]
    expected = np.sqrt(np.mean((nodes[0][:, 0] - nearest) ** 2)) / problem.prior.noise
    assert change == pytest.approx(expected[0], rel=0.02) and change > 1
    finer, there = problem.resolved(result.solution)
    again = minimise(finer, there, FullSteps(1e-12), max_iter=20)
    assert finer.resolution(again.solution)[1] < 0.01 * change


def test_second_order_and_inputs(swinging):
    _, result = solve(swinging)
    assert result.converged
    first, second = terms_of(result.model)
    assert close_to({"x": -2.0, "x_t": -0.3, "y": 1.0}, first, 1e-6)
    assert close_to({"v": 1.0, "x_t": 0.2, "y": -0.5}, second, 1e-6)
    (state,) = result.model.posterior_states()
    points = np.linspace(0, 12, 31)
    exact = integrate(swing, (1.0, 0.0, 0.5), points)
    for i, name in enumerate(("x", "x_t", "y")):
        operator = parse_operator(name, VARIABLES, ("x", "y"))
        found = state.evaluate(points[:, None], operator)
        assert_allclose(found, exact[:, i], atol=1e-6)


@pytest.fixture(scope="module")
def two_runs():
    """Two functions with initial values of their own, seen with gaps and noise."""
    rng, times = np.random.RandomState(0), np.linspace(0, 8, 17)
    runs = [integrate(hunt, initial, times) for initial in ((10.0, 5.0), (3.0, 2.0))]
    y = np.vstack(runs) + 0.01 * rng.normal(size=(34, 2))
    y[::4, 0], y[1::4, 1] = np.nan, np.nan
    X = np.column_stack([np.tile(times, 2), np.repeat([0, 1], 17)])
    return runs, learn(X, y, function_column=1)


def test_functions_have_initial_values_of_their_own(two_runs):
    runs, learned = two_runs
    problem, result = solve(learned, [0.01, 0.01])
    assert result.converged
    first, second = terms_of(result.model)
    assert first["x"] == pytest.approx(1.1, abs=0.05)
    assert second["x y"] == pytest.approx(0.1, abs=0.01)
    for m, (nodes, exact) in enumerate(zip(result.solution.nodes, runs, strict=True)):
        seen = np.searchsorted(problem.times[m], np.linspace(0, 8, 17))
        assert_allclose(nodes[seen], exact, atol=0.06)
    errors = result.model.leave_one_out()
    assert [len(e) for e in errors] == [len(d.values) for d in problem.functions]
    assert np.sqrt(np.mean(np.concatenate(errors) ** 2)) < 0.03


def test_a_linearisation_is_the_one_of_the_solution_map(two_runs):
    """The nodes respond to weights and initial values as integrated ones do."""
    learned = two_runs[1]
    problem, result = solve(learned, [0.01, 0.01], steps=32)
    equations, nodes = result.solution.equations, result.solution.nodes
    model = problem.linearise(problem.evaluate(result.solution))
    p = sum(len(e.weights) for e in equations)
    rng, h = np.random.RandomState(0), 1e-6

    def nodes_after(m, direction, initial, step):
        flow = problem.flow(m, shifted(equations, direction, step))
        y, path = nodes[m][0] + step * initial, []
        path.append(y)
        for t, length in zip(
            problem.times[m][:-1], np.diff(problem.times[m]), strict=True
        ):
            y = flow.step(np.array([t]), np.array([length]), y[None], False)[0][0]
            path.append(y)
        return np.array(path)

    for m in range(2):
        direction, initial = rng.normal(size=p), rng.normal(size=2)
        both = [nodes_after(m, direction, initial, s) for s in (h, -h)]
        expected = (both[0] - both[1]) / (2 * h)
        found = model.responses[m] @ np.r_[0.0, direction, initial]
        scale = np.abs(expected).max()
        assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * scale)
        # The variance is that of this linear map; between nodes too.
        state = result.model.posterior_states()[m]
        root = state.root
        operator = parse_operator("y", VARIABLES, ("x", "y"))
        linear = result.model.responses[m][:, 1, 1:] @ root
        variance = state.variance(problem.times[m][:, None], operator)
        assert_allclose(variance[1:], np.sum(linear**2, axis=1)[1:], rtol=1e-3)


def test_variance_is_propagated_between_the_nodes():
    """Of a linear system, against matrix exponentials for each column of the root."""
    matrix, rng = np.array([[-0.3, 1.5], [-1.0, -0.1]]), np.random.RandomState(0)
    times = np.linspace(0, 5, 21)
    y = np.array([expm(matrix * t) @ [1.0, 0.5] for t in times])
    learned = learn(times, y + 0.01 * rng.normal(size=y.shape), **LINEAR)
    _, result = solve(learned, [0.01, 0.01])
    (state,), equations = result.model.posterior_states(), result.solution.equations
    points, p = np.array([0.37, 2.21, 4.99]), state.root.shape[0] - 2

    def values(change):
        generator = np.zeros((3, 3))
        for i, equation in enumerate(shifted(equations, change[:p], 1.0)):
            terms = equation.terms()
            generator[i] = [terms[name] for name in ("x", "y", "1")]
        start = np.r_[state.nodes[0] + change[p:], 1.0]
        path = np.array([expm(generator * t) @ start for t in points])
        return np.hstack([path[:, :2], (path @ generator.T)[:, :2]])

    h = 1e-3
    linear = [(values(h * c) - values(-h * c)) / (2 * h) for c in state.root.T]
    expected = np.sum(np.square(linear), axis=0)
    for i, name in enumerate(("x", "y", "x_t", "y_t")):
        asked = points[:, None], parse_operator(name, VARIABLES, ("x", "y"))
        assert_allclose(
            state.evaluate(*asked), values(np.zeros(p + 2))[:, i], rtol=1e-8
        )
        assert_allclose(state.variance(*asked), expected[:, i], rtol=1e-5)
        copied = pickle.loads(pickle.dumps(state))
        assert_allclose(copied.variance(*asked), state.variance(*asked), rtol=1e-12)


def test_noise_that_is_not_given_is_found(two_runs):
    problem, result = solve(two_runs[1], tol=1e-6)
    noise = result.model.problem.prior.noise
    assert np.all((noise > 0.006) & (noise < 0.016))
    given, _ = solve(two_runs[1], [0.5, 0.02], max_iter=1)
    assert_array_equal(given.prior.noise, [0.5, 0.02])
    learned = result.model.problem.assemble(result.model)
    assert_array_equal(learned.observation_noise, noise)
    assert_array_equal(learned.equation_noise, [0.0, 0.0])
    assert len(learned.states) == 2
    features = learned.setup.split(learned.setup.features_of(learned.states))
    for equation, S in zip(learned.equations, features, strict=True):
        assert_allclose(equation(S), 0.0, atol=1e-7 * np.abs(S).max())
        assert_array_equal(equation.training_features, S)


def test_the_objective(two_runs):
    """Residuals in units of the noise, weights and initial values in theirs."""
    _, result = solve(two_runs[1], [0.01, 0.02])
    problem = result.model.problem
    evaluation = problem.evaluate(result.solution)
    model = problem.linearise(evaluation)
    assert evaluation.loss == pytest.approx(model.regression.loss, rel=1e-5)
    step, decrease = model.step(0.0)
    assert decrease == pytest.approx(evaluation.loss - model.regression.loss)
    assert problem.change(result.solution, step) < 1e-6
    with pytest.raises(ValueError, match="damping=0.1"):
        model.step(0.1)
    assert model.log_evidence() == model.regression.log_evidence()


def test_equations_that_explode_have_no_trajectory(hunters):
    problem = make_trajectory_problem(hunters, np.full(2, np.nan))
    start = problem.start()
    wild = shifted(start.equations, np.ones(12), 1e6)
    iterate = TrajectoryIterate(wild, start.nodes)
    assert problem.linearise(problem.evaluate(iterate)) is None
    short = replace(problem, limits=TrajectoryLimits(largest_growth=1.0 - 1e-9))
    assert short.linearise(short.evaluate(start)) is None


# --- where there are none -------------------------------------------------------------

T = TIMES[:, None]
GRID = np.random.RandomState(0).uniform(size=(25, 2))


def long_form(names):
    X = np.column_stack([np.tile(TIMES, 2), np.repeat(names, 25)]).astype(object)
    return np.column_stack([X[:, 0].astype(float), X[:, 1]]).astype(object)


def equations(*pairs):
    parts = {"operators": None, "known_part": None}
    return parts | {"equations": list(pairs)}


X_ONLY = ("a", Equation("x_t", ("x", "y")))
WITHOUT = [
    ({"variables": ("t", "z")}, "there are several coordinates"),
    (
        {"forcing": np.zeros(9), "collocation_points": np.linspace(1, 11, 9)[:, None]},
        "the forcing is not known at all observed times",
    ),
    ({"known_part": ("x_t", "x_tt")}, "simulate needs a derivative of y"),
    (
        equations(X_ONLY, ("b", Equation("y_t", ("x",))), ("c", Equation("x_t"))),
        "there are not as many equations as states",
    ),
    ({"operators": ("x", "y", "y_t")}, "an unknown part depends on a highest deriv"),
    ({"operator_column": 1, "names": ["x", "y_t"]}, "values of y_t were observed"),
    ({"operator_column": 1, "names": ["x", "x + y"]}, "values of .* were observed"),
    (
        {"known_part": ("x_t", lambda y, y_t: y * y_t)},
        "the equations are not solved for the highest derivatives",
    ),
    (
        {"known_part": ("x_t", lambda y_t: y_t + 0.1 * y_t**3)},
        "the equations are not solved for the highest derivatives",
    ),
    (
        {"known_part": ({"x_t": 1, "y_t": 1}, {"x_t": 2, "y_t": 2})},
        "the equations are not solved for the highest derivatives",
    ),
]


@pytest.mark.parametrize("changes, reason", WITHOUT)
def test_why_there_are_no_trajectories(changes, reason):
    changes, X, y = dict(changes), T, HUNTED
    settings = {"state_kernel": RBF(1.0, "fixed"), "observation_noise": 0.01}
    if "variables" in changes:
        X = GRID
    if "names" in changes:
        X, y = long_form(changes.pop("names")), HUNTED.T.ravel()
    learned = learn(X, y, **settings | changes)
    assert re.search(reason, why_no_trajectories(learned))


def test_trajectories_exist(hunters, swinging, two_runs):
    for learned in (hunters, swinging, two_runs[1]):
        assert why_no_trajectories(learned) == ""
    # A slope below the highest order may be seen; equations may be combined.
    mixed = {"known_part": ({"x_t": 1, "y_t": 1}, {"x_t": 1, "y_t": -2})}
    assert why_no_trajectories(learn(TIMES, HUNTED, **mixed)) == ""


def damping(u_t, u_tt):
    """A known part, which autograd differentiates."""
    return u_tt + 0.3 * u_t


def test_known_parts_that_are_functions_tell_the_highest_derivative():
    """At each stage of a step it is solved for with their slopes there."""

    def state(t):
        return np.exp(-0.15 * t) * np.cos(np.sqrt(1 - 0.15**2) * t)

    t, between = np.linspace(0, 8, 14), np.linspace(0, 8, 41)
    settings = {"variables": ("t",), "operators": ("u", "u_t"), "known_part": damping}
    model = OneStepKEqL(**settings).fit(t[:, None], state(t))
    np.testing.assert_allclose(
        model.predict(between[:, None]), state(between), atol=1e-8
    )
