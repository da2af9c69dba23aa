"""White noise in equations: dense Gaussian formulas, limits and invariances."""

import pickle
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.linalg import block_diag, expm

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._evolution.driven.noise import (
    ProcessNoise,
    WhiteNoise,
    compressed,
    process_noise,
)
from keql._evolution.driven.regression import NoisyRegression
from keql._evolution.driven.smoother import NoisyRows
from keql._evolution.initial_values import InitialPrior
from keql._evolution.trajectories import (
    TrajectoryIterate,
    TrajectoryModel,
    make_trajectory_problem,
)
from keql._regression.two_step import FitSettings, Hypothesis
from keql.kernels import RBF, Constant, Matern, Polynomial
from keql.model_selection import why_at_collocation_points
from keql.operators import parse_operator

SQUARE, FRICTION, LEVEL, NOISE = 2.0, 0.3, 0.5, 0.1
TIMES = np.sort(np.random.RandomState(0).uniform(0, 10, 30))
SEEN = np.cos(np.sqrt(SQUARE) * TIMES) + 0.1 * np.random.RandomState(1).normal(size=30)
PLACED = np.linspace(0, 10, 51)[:, None]
SWING = {"operators": ("u", "u_t"), "known_part": "u_tt", "variables": ("t",)}
SPREAD = np.array([2.0, 3.0])


def added_covariance(J, load, h):
    """That of what white noise adds in times h: Van Loan's matrix exponential."""
    D = len(J)
    M = np.block([[-J, load @ load.T], [np.zeros((D, D)), J.T]])
    E = expm(M * h)
    return E[D:, D:].T @ E[:D, D:]


# --- a linear oscillator beside Gaussian process regression ---------------------------


@pytest.fixture(scope="module")
def swung():
    """The linearised problem of an oscillator whose coefficients are known."""
    model = TwoStepKEqL(
        **SWING, equation_kernel=Polynomial(1), collocation_points=PLACED
    )
    learned = model._learn_in_two_steps(TIMES[:, None], SEEN, None)
    equation = copy(learned.equations[0])
    S = np.column_stack([np.zeros(20), np.random.RandomState(0).normal(size=(20, 2))])
    features = equation.basis(S)
    P = SQUARE * S[:, 1] + FRICTION * S[:, 2]
    equation.weights = np.linalg.lstsq(features, P, rcond=None)[0]
    levels = {"equation_noise": np.array([LEVEL])}
    problem = make_trajectory_problem(learned, np.array([NOISE]), **levels)
    # The linearised equations are right; their weights do not change.
    prior = replace(problem.prior, scale=1e-9, spread=SPREAD)
    problem = replace(problem, prior=prior)
    iterate = TrajectoryIterate((equation,), problem.start().nodes)
    rows = problem.responses(iterate)
    seen = [own.observed for own in rows]
    regression = NoisyRegression(seen, 0 * equation.weights, prior)
    model = TrajectoryModel(problem, iterate, *problem.smoothed(rows), regression)
    for each in model.solution.equations:
        each.weights = equation.weights
    return model, NoisyRegression(rows, 0 * equation.weights, prior)


@pytest.fixture(scope="module")
def dense():
    """Covariance (n, 2, n, 2) of state and slope at observed and at other times."""
    asked = np.r_[np.linspace(-1, 12, 27), TIMES[3]]
    J = np.array([[0.0, 1.0], [-SQUARE, -FRICTION]])
    load = np.array([[0.0], [LEVEL * np.sqrt(0.2)]])
    t = np.r_[TIMES, asked] - TIMES[0]
    C = np.zeros((len(t), 2, len(t), 2))
    for i, a in enumerate(t):
        for j, b in enumerate(t):
            C[i, :, j] = expm(J * a) @ np.diag(SPREAD**2) @ expm(J * b).T
            if a * b > 0:  # both after, or both before the initial values
                near = min(a, b, key=abs)
                way = J * np.sign(near)
                own = added_covariance(way, load, abs(near))
                C[i, :, j] += expm(J * (a - near)) @ own @ expm(J * (b - near)).T
    n = len(TIMES)
    K = C[:n, 0, :n, 0] + NOISE**2 * np.eye(n)
    return asked, C, K


def test_evidence_and_left_out_errors_are_those_of_a_gaussian_process(swung, dense):
    inverse = np.linalg.inv(dense[2])
    _, volume = np.linalg.slogdet(dense[2])
    model, fine = swung
    expected = inverse @ SEEN / np.diag(inverse)
    for regression in (model.regression, fine):
        assert_allclose(regression.leave_one_out()[0], expected, atol=1e-9)
        evidence = -0.5 * SEEN @ inverse @ SEEN - 0.5 * volume
        assert regression.log_evidence() == pytest.approx(evidence, rel=1e-10)
        residuals = NOISE * inverse @ SEEN
        assert_allclose(regression._residuals[0], residuals, atol=1e-9)
        left = NOISE**2 * np.diag(inverse)
        assert_allclose(1 - regression._leverages[0], left, rtol=1e-9)


@pytest.mark.parametrize("place", [0, 1])
def test_states_are_those_of_a_gaussian_process(swung, dense, place):
    asked, C, K = dense
    n, [state] = len(TIMES), swung[0].posterior_states()
    cross = C[n:, place, :n, 0]
    mean = cross @ np.linalg.solve(K, SEEN)
    own = np.einsum("ii->i", C[n:, place, n:, place])
    variance = own - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    operator = parse_operator(["u", "u_t"][place], ("t",), ("u",))
    points = asked[:, None]
    assert_allclose(state.evaluate(points, operator), mean, atol=1e-8)
    assert_allclose(state.variance(points, operator), variance, atol=1e-8)
    again = pickle.loads(pickle.dumps(state))
    assert_allclose(again.evaluate(points, operator), mean, atol=1e-8)


def test_highest_derivatives_have_the_noise_of_residuals(swung):
    [state] = swung[0].posterior_states()
    names = [parse_operator(name, ("t",), ("u",)) for name in ("u", "u_t", "u_tt")]
    between = (state.times[:-1] + state.times[1:])[50:60, None] / 2
    u, slope, highest = (state.evaluate(between, name) for name in names)
    h = 1e-5
    ends = [state.evaluate(between + side, names[1]) for side in (-h, h)]
    assert_allclose(highest, (ends[1] - ends[0]) / (2 * h), atol=1e-6)
    assert np.max(np.abs(highest + SQUARE * u + FRICTION * slope)) > 1e-3
    assert np.all(state.variance(between, names[2]) > LEVEL**2)


# --- the regression beside dense formulas ---------------------------------------------


def random_rows(rng, n, K=6, D=3, p=4):
    roots = compressed(rng.normal(size=(K - 1, D, 2)))
    return NoisyRows(
        rng.normal(size=(K - 1, D, D)) / 2,
        roots,
        rng.normal(size=(K - 1, D, 1 + p)),
        rng.normal(size=n),
        rng.randint(0, K, n),
        rng.randint(0, D, n),
        rng.normal(size=D),
        rng.randint(0, 2, n),
        rng.uniform(0.5, 2.0, n),
    )


def dense_rows(own, noise):
    """Residuals less what is known of them, slopes, and covariance without these."""
    K, D, width = len(own.roots) + 1, len(own.initial), own.added.shape[2]
    mean, jumps = np.zeros((K, D, width + D)), np.zeros((K, D, K - 1, D))
    mean[0, :, width:] = np.eye(D)
    for k in range(K - 1):
        A = own.transitions[k]
        mean[k + 1] = A @ mean[k]
        mean[k + 1, :, :width] += own.added[k]
        jumps[k + 1] = np.tensordot(A, jumps[k], 1)
        jumps[k + 1, :, k] += own.roots[k]
    rows = mean[own.nodes, own.entries]
    root = jumps[own.nodes, own.entries].reshape(len(noise), -1)
    return own.residuals - rows[:, 0], rows[:, 1:], root @ root.T + np.diag(noise**2)


def test_a_regression_with_jumps_is_the_dense_one():
    rng, p, D = np.random.RandomState(0), 4, 3
    rows = [random_rows(rng, 12), random_rows(rng, 9)]
    center = rng.normal(size=p)
    spread, noise = rng.uniform(1, 3, D), np.array([0.3, 0.7])
    prior = InitialPrior(spread, noise, np.ones(2, bool), noise / 100, 1.7)
    regression = NoisyRegression(rows, center, prior)
    right, slopes, parts = [], [], []
    for m, own in enumerate(rows):
        r, own_slopes, S = dense_rows(own, noise[own.index] / own.weights**0.5)
        full = np.zeros((len(r), p + 2 * D))
        full[:, :p] = own_slopes[:, :p]
        full[:, p + m * D : p + (m + 1) * D] = own_slopes[:, p:]
        mean = np.r_[-center, -rows[0].initial, -rows[1].initial]
        right.append(r - full @ mean)
        slopes.append(full)
        parts.append(S)
    right, slopes, S = np.concatenate(right), np.concatenate(slopes), block_diag(*parts)
    before = np.diag(np.r_[np.full(p, 1.7), spread, spread] ** 2)
    total = S + slopes @ before @ slopes.T
    inverse = np.linalg.inv(total)
    evidence = -0.5 * right @ inverse @ right - 0.5 * np.linalg.slogdet(total)[1]
    assert regression.log_evidence() == pytest.approx(evidence, rel=1e-10)
    expected = inverse @ right / np.diag(inverse)
    assert_allclose(np.concatenate(regression.leave_one_out()), expected, rtol=1e-8)
    gain = before @ slopes.T @ inverse
    assert_allclose(regression.weights, (gain @ right)[:p], rtol=1e-8)
    covariance = before - gain @ slopes @ before
    [root, _] = regression._roots()
    assert_allclose(root @ root.T, covariance[: p + D, : p + D], atol=1e-9)
    few = NoisyRegression([own.observed for own in rows], center, prior)
    assert few.log_evidence() == pytest.approx(evidence, rel=1e-10)
    assert_allclose(few.weights, regression.weights, rtol=1e-8)


def test_what_white_noise_adds():
    rng = np.random.RandomState(0)
    J, load = rng.normal(size=(4, 3, 3)), rng.normal(size=(4, 3, 2))
    h = np.array([0.3, 0.0, -0.2, 1.0])
    root = WhiteNoise(J, load, rng.uniform(1e-3, 1e3, 3)).root(h)
    for k in range(4):
        sign = np.sign(h[k])
        expected = added_covariance(sign * J[k], load[k], abs(h[k]))
        assert_allclose(root[k] @ root[k].T, expected, atol=1e-9)


def test_distances_of_collocation_points(swung):
    setup = swung[0].problem.learned.setup
    [found] = process_noise(setup, np.array([0.5]))
    assert isinstance(found, ProcessNoise)
    assert_allclose(found.distances, 0.2)
    assert process_noise(setup, np.array([np.nan])) is None
    assert process_noise(setup, np.array([0.0])) is None


# --- fits -----------------------------------------------------------------------------


def driven(n=40, level=0.3, seed=3):
    """An oscillator driven by white noise: times, values with noise, and the truth."""
    rng, dt = np.random.RandomState(seed), 0.005
    times = np.arange(0, 12, dt)
    kicks = level * np.sqrt(12 / 119) * np.sqrt(dt) * rng.normal(size=len(times))
    u, v, path = 1.5, 0.0, []
    for kick in kicks:
        path.append(u)
        u, v = u + dt * v, v - dt * (SQUARE * u + FRICTION * v) + kick
    rows = np.linspace(0, len(times) - 1, n).astype(int)
    seen = np.array(path)[rows] + 0.02 * rng.normal(size=n)
    return times[rows][:, None], seen, (times[::24, None], np.array(path)[::24])


T, U, _ = driven()
GIVEN = {"equation_kernel": Polynomial(1), "n_terms": None, **SWING}
GRID = {"collocation_points": np.linspace(0, 12, 120)[:, None]}
# A kernel and the noise are the prior of the states at collocation points.
HELD = {"state_kernel": Constant(1.0) * Matern(1.0, nu=3.5), "n_restarts": 0}
ASKED = np.linspace(-0.5, 14, 60)[:, None]


def fit(t=T, u=U, **changes):
    return OneStepKEqL(**GIVEN | GRID | {"equation_noise": 0.3} | changes).fit(t, u)


@pytest.fixture(scope="module")
def kicked():
    return fit()


def told(model, factor=1.0):
    """All numbers of a fit in the unit of its data."""
    u, std = (np.ravel(each) / factor for each in model.forecast(ASKED, True))
    noise = np.ravel(list(np.atleast_1d(model.observation_noise_))) / factor
    terms = model.equation_.terms()
    terms["1"] = terms["1"] / factor
    return np.concatenate([u, std, noise, list(terms.values())])


def test_a_driven_oscillator_is_found(kicked):
    terms, errors = kicked.equation_.terms(return_std=True)
    assert terms.keys() >= {"u"}
    assert abs(terms["u"] + SQUARE) < 3 * errors["u"]
    assert kicked.observation_noise_ == pytest.approx(0.02, rel=0.5)
    assert kicked.equation_noise_ == 0.3
    assert "driven by white noise" in str(kicked.fit_report_)
    _, std = kicked.forecast([[12.0], [14.0]], return_std=True)
    _, less = fit(equation_noise=0.05).forecast([[12.0], [14.0]], return_std=True)
    assert std[1] - std[0] > 2 * (less[1] - less[0])


@pytest.mark.slow
def test_bands_of_driven_states_hold():
    errors, inside, held = [], [], []
    for seed in range(12):
        t, u, (times, truth) = driven(seed=seed)
        for model, found in ((fit(t, u), errors), (fit(t, u, **HELD), held)):
            state, std = model.predict(times, return_std=True)
            found.append(np.sqrt(np.mean((state - truth) ** 2)))
            if found is errors:
                inside.append(np.mean(np.abs(state - truth) < 1.645 * std))
    assert 0.8 < np.mean(inside) < 0.97
    assert np.mean(errors) < np.mean(held)


@pytest.mark.slow
def test_without_noise_in_equations_states_are_exact():
    t, u, _ = driven(level=0.0)
    exact = told(fit(t, u, equation_noise=None))
    for level, rtol in ((1e-12, 1e-5), (1e-3, 0.02)):
        found = told(fit(t, u, equation_noise=level))
        assert_allclose(found, exact, rtol=rtol, atol=1e-3 * rtol)


@pytest.mark.slow
def test_systems_with_gaps_inputs_and_several_functions():
    """x_t = y + v, with v = cos t and noise; y_t = -2 x, which holds exactly."""
    rng, dt, tables, seen = np.random.RandomState(0), 0.01, [], []
    for m, start in enumerate(((1.0, 0.0), (-0.5, 1.0))):
        y, path = np.array(start), []
        for k in range(1000):
            path.append(y)
            velocity = np.array([y[1] + np.cos(k * dt), -2.0 * y[0]])
            y = y + dt * velocity + [0.1 * np.sqrt(dt) * rng.normal(), 0.0]
        rows = np.arange(0, 1000, 30)
        tables.append(np.column_stack([rows * dt, np.full(len(rows), m)]))
        seen.append(np.array(path)[rows])
    X, values = np.concatenate(tables), np.concatenate(seen)
    values += 0.02 * rng.normal(size=values.shape)
    values[::3, 0] = np.nan
    values[1::3, 1] = np.nan
    model = OneStepKEqL(
        operators=("x", "y"),
        known_part=("x_t", "y_t"),
        states=("x", "y"),
        variables=("t",),
        function_column=1,
        equation_kernel=Polynomial(1),
        collocation_points=np.linspace(0, 10, 101)[:, None],
        inputs={"v": lambda points: np.cos(points[:, 0])},
        equation_noise={"x_t": 0.1 / np.sqrt(0.1), "y_t": 0.0},
        n_terms=None,
    ).fit(X, values)
    found, errors = model.equation_.terms(return_std=True)
    true = ("x_t", "y", 1.0), ("x_t", "v", 1.0), ("y_t", "x", -2.0)
    for name, term, value in true:
        assert abs(found[name][term] - value) < 4 * errors[name][term] < 0.3
    assert [each.driven.process.levels.tolist() for each in model.states_] == [
        [0.1 / np.sqrt(0.1), 0.0]
    ] * 2
    u, std = model.forecast([[9.9, 0], [12.0, 0]], return_std=True)
    assert np.all(np.isfinite(u)) and np.all(std[1] > std[0])


def test_units_and_order_of_rows(kicked):
    order = np.random.RandomState(0).permutation(len(T))
    assert_allclose(told(fit(T[order], U[order])), told(kicked), rtol=1e-7, atol=1e-9)
    large = fit(u=1e3 * U, equation_noise=300.0)
    assert_allclose(told(large, 1e3), told(kicked), rtol=1e-5, atol=1e-7)


def test_saved_models(kicked):
    again = pickle.loads(pickle.dumps(kicked))
    assert_allclose(told(again), told(kicked), rtol=1e-12)


def test_why_states_are_not_driven():
    settings = FitSettings()

    def why(in_time, **given):
        given = Hypothesis(equation_noise=0.1, n_terms="auto", **given)
        return why_at_collocation_points(given, settings, ("u",), ("u_t",), in_time)

    assert why(True) == ""
    assert "only ordinary differential equations" in why(False)
    assert "are the prior of the states" in why(True, state_kernel=RBF(1.0))


def test_states_that_are_never_observed_are_not_driven():
    """White noise would explain what they do: the equations are imposed, as before."""
    t = np.linspace(0, 12, 41)
    solve = solve_ivp(
        lambda _, s: [s[0] * (1.1 - 0.6 * s[1]), s[1] * (0.5 * s[0] - 0.9)],
        (0, 12),
        [1.5, 1.0],
        t_eval=t,
        rtol=1e-9,
    )
    values = np.column_stack([solve.y[0], np.full(41, np.nan)])
    values[:, 0] += 0.02 * np.random.RandomState(0).normal(size=41)
    settings = {"variables": ("t",), "states": ("x", "y"), "equation_noise": 0.1}
    model = OneStepKEqL(("x", "y"), ("x_t", "y_t"), t[:, None], **settings)
    with pytest.warns(IdentifiabilityWarning, match="do not tell their coefficients"):
        model.fit(t[:, None], values)
    assert "a state that is never observed" in str(model.fit_report_)
    assert "driven by white noise" not in str(model.fit_report_)
    relative = np.linalg.norm(model.predict(t[:, None])[:, 0] - solve.y[0])
    assert relative < 0.03 * np.linalg.norm(solve.y[0])
