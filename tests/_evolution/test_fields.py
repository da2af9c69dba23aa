"""Exact states of several fields: linear waves in closed form, and FitzHugh-Nagumo."""

from dataclasses import replace

import numpy as np
import pytest
from known_equations import make_system
from numpy.testing import assert_allclose

from keql import Equation, OneStepKEqL, TwoStepKEqL
from keql._evolution.boundary_prior import (
    BoundaryPrior,
    PointsOfStates,
    StateKernels,
)
from keql._evolution.form import time_axis, why_not_integrated
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import (
    effects_on_rates,
    linear_response,
    linear_solution,
)
from keql._evolution.problem import make_evolution_problem
from keql.datasets import make_fitzhugh_nagumo
from keql.kernels import RBF, Constant, Matern
from keql.operators import identity_of, parse_operator

TX, NAMES = ("t", "x"), ("u", "v")
UNIT = np.zeros(2), np.ones(2)


def oscillation(points, k=2.0, diffusion=0.1):
    """u_t = D u_xx - v and v_t = u: two fields (n, 2), one of them without diffusion.

    Waves cos(k x) whose amplitudes (a, b) solve a' = -D k^2 a - b and b' = a.
    """
    t, x = points.T
    decay = diffusion * k**2
    rate = np.sqrt(1 - decay**2 / 4)
    b = np.exp(-decay * t / 2) * np.sin(rate * t) / rate
    a = np.exp(-decay * t / 2) * (
        np.cos(rate * t) - decay / (2 * rate) * np.sin(rate * t)
    )
    return np.column_stack([a, b]) * np.cos(k * x)[:, None]


def equations(first=None, second=None):
    """The equations of the oscillation, in either order, as a tuple."""
    system = make_system(
        {
            "v_t": ({"v_t": 1.0}, second or {"u": -1.0}),
            "u_t": ({"u_t": 1.0}, first or {"u_xx": -0.1, "v": 1.0}),
        },
        ("u", "u_xx", "v"),
        NAMES,
        TX,
    )
    return tuple(system.values())


def make_grid(n_steps=8, n_points=16, axis=0):
    return EvolutionGrid(
        np.zeros(2), np.array([2.0, 1.0])[[axis, 1 - axis]], axis, n_steps, n_points,
        n_ends=(1, 0), states=NAMES, grading=1.0,
    )  # fmt: skip


def on_grid(grid, points=None):
    """The oscillation on a grid, as it keeps values."""
    values = oscillation(grid.points.reshape(-1, 2))
    shape = grid.n_steps, 4, grid.n_points
    return np.concatenate([v.reshape(shape) for v in values.T], axis=2)


def test_a_grid_keeps_states_side_by_side():
    grid = make_grid()
    values = on_grid(grid)
    points = np.random.RandomState(0).uniform(0, [2, 1], size=(20, 2))
    for name, expected in zip(NAMES, oscillation(points).T, strict=True):
        found = grid.interpolation(points, identity_of(name, 2)) @ values.ravel()
        assert_allclose(found, expected, atol=1e-4)
    both = parse_operator("u", TX, NAMES) + 2.0 * parse_operator("v_x", TX, NAMES)
    alone = [
        grid.interpolation(points, parse_operator(name, TX, NAMES)) @ values.ravel()
        for name in ("u", "v_x")
    ]
    found = grid.interpolation(points, both) @ values.ravel()
    assert_allclose(found, alone[0] + 2 * alone[1])
    # Both fields at the start, one of them at both ends.
    boundary = grid.boundary_of(values[..., None])[:, 0]
    assert len(boundary) == len(grid.boundary) == 2 * 16 + 2 * 3 * 8
    rows = np.arange(len(boundary)), grid.states_of_boundary
    assert_allclose(boundary, oscillation(grid.boundary)[rows])
    assert not grid.equals(EvolutionGrid(*UNIT, 0))


def test_the_response_gives_the_closed_form():
    """Whichever equation is the first, and whatever the state it is linearised at."""
    grid, laws = make_grid(), equations()
    exact = on_grid(grid)
    boundary = grid.boundary_of(exact[..., None])[:, 0]
    weights = np.concatenate([law.weights for law in laws])
    rng = np.random.RandomState(0)
    state = rng.normal(size=exact.size)
    unknowns = np.r_[1.0, weights, boundary]
    response = linear_response(grid, laws, state)
    # The equations are linear: with the weights they have, any state is as good.
    assert_allclose(response @ unknowns, exact, atol=2e-5)
    alone = linear_solution(grid, laws, state, unknowns)
    assert_allclose(alone.reshape(exact.shape), response @ unknowns, atol=1e-10)


def test_the_response_is_the_slope_in_the_weights():
    grid, laws = make_grid(6, 10), equations()
    boundary = grid.boundary_of(on_grid(grid)[..., None])[:, 0]
    weights = np.concatenate([law.weights for law in laws])

    def solved(weights):
        changed = [replace(laws[0], weights=weights[:1])]
        changed.append(replace(laws[1], weights=weights[1:]))
        start = np.zeros(grid.n_steps * 4 * grid.size)
        return linear_solution(
            grid, tuple(changed), start, np.r_[1.0, weights, boundary]
        )

    response = linear_response(grid, laws, solved(weights))
    response = response.reshape(-1, response.shape[-1])
    for k, change in enumerate(1e-6 * np.eye(len(weights))):
        slope = (solved(weights + change) - solved(weights - change)) / 2e-6
        assert_allclose(response[:, 1 + k], slope, atol=1e-7)


def test_effects_on_rates_are_features():
    grid, laws = make_grid(6, 10), equations()
    exact = on_grid(grid)
    effects = effects_on_rates(grid, laws, exact.ravel())
    assert effects.shape == (2, 6 * 3 * 10, 3)
    rates = effects @ np.concatenate([law.weights for law in laws])
    points = grid.points[:, 1:].reshape(-1, 2)
    step = np.array([1e-5, 0.0])
    slopes = (oscillation(points + step) - oscillation(points - step)) / 2e-5
    assert_allclose(rates.T, slopes, atol=1e-3)


def test_the_prior_of_states_is_block_diagonal_and_its_gradient_right():
    rng = np.random.RandomState(0)
    points = PointsOfStates(rng.uniform(size=(9, 2)), np.repeat([0, 1, 0], 3))
    kernels = StateKernels(
        [Constant(2.0) * Matern([0.4, 2.0], nu=1.5), Constant(0.5) * RBF([1.0, 3.0])]
    )
    prior = BoundaryPrior(kernels, np.array([0.1, 0.3]), free_noise=np.array([1, 0]) > 0)
    K, layers = prior.covariance(points, eval_gradient=True)
    other = points.states[:, None] != points.states
    assert np.all(K[other] == 0) and np.all(K[~other] > 0)
    assert_allclose(K, prior.covariance(points))
    free = prior.theta[prior.is_free]
    assert len(free) == len(prior.theta) - 1 == 8
    for k, change in enumerate(1e-6 * np.eye(len(free))[:6]):
        ends = [prior.with_theta(free + s * change) for s in (1, -1)]
        slope = np.subtract(*(end.covariance(points) for end in ends)) / 2e-6
        assert_allclose(layers[:, :, k], slope, atol=1e-8)
    moved = prior.with_theta(free + np.log(2.0))
    assert_allclose(moved.noise, [0.2, 0.3])


def observed(n=90, noise=0.0, seed=0):
    """Each field of the oscillation at half of the points."""
    rng = np.random.RandomState(seed)
    X = rng.uniform(0, [3.0, 3.0], size=(2 * n, 2))
    y = oscillation(X)
    y = y + noise * np.std(y, axis=0) * rng.normal(size=y.shape)
    y[::2, 0], y[1::2, 1] = np.nan, np.nan
    return X, y


OSCILLATION = {
    "operators": ("u", "u_xx", "v"),
    "known_part": ("u_t", "v_t"),
    "states": NAMES,
    "variables": TX,
}


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_terms_of_states_of_unequal_order(noise):
    """The second field does not diffuse: it has no values at the ends."""
    model = OneStepKEqL(**OSCILLATION, n_terms="auto").fit(*observed(noise=noise))
    assert model.equation_["u_t"].terms() == pytest.approx(
        {"u_xx": 0.1, "v": -1.0}, rel=2 * noise + 1e-3
    )
    assert model.equation_["v_t"].terms() == pytest.approx(
        {"u": 1.0}, rel=2 * noise + 1e-3
    )
    inside = np.random.RandomState(1).uniform(0.2, 2.8, size=(200, 2))
    truth = oscillation(inside)
    error = np.linalg.norm(model.predict(inside) - truth, axis=0)
    assert np.all(error < (1e-3 if noise == 0 else 0.01) * np.linalg.norm(truth, axis=0))
    _, std = model.predict(inside, return_std=True)
    assert std.shape == truth.shape and np.all(std > 0)
    if noise:
        z = (model.predict(inside) - truth) / std
        assert 0.2 < np.sqrt(np.mean(z**2)) < 2.5


def learn(**changes):
    X, y = observed(12)
    settings = OSCILLATION | {"collocation_points": 20} | changes
    return TwoStepKEqL(**settings).fit(X, y).learned_


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_fitzhugh_nagumo_with_defaults(noise):
    data = make_fitzhugh_nagumo(150, noise=noise, random_state=0)
    model = OneStepKEqL(**data.problem, n_terms="auto").fit(data.X, data.y)
    for name, truth in data.terms.items():
        found = model.equation_[name].terms()
        assert found == pytest.approx(truth, rel=1e-3 if noise == 0 else 0.1)
    inside = np.all((data.X_test > 0.3) & (data.X_test < 9.7), axis=1)
    truth = data.y_test[inside]
    error = np.linalg.norm(model.predict(data.X_test[inside]) - truth, axis=0)
    assert np.all(error < (1e-3 if noise == 0 else 0.01) * np.linalg.norm(truth, axis=0))
