"""Exact states of several fields: linear waves in closed form, and FitzHugh-Nagumo."""

from dataclasses import replace

import numpy as np
import pytest
from known_equations import make_system
from numpy.testing import assert_allclose

from keql import OneStepKEqL, TwoStepKEqL
from keql._evolution.boundary.prior import (
    BoundaryPrior,
    PointsOfStates,
    StateKernels,
)
from keql._evolution.forecast import EvolvedState
from keql._evolution.form import are_semilinear, time_axis, why_not_integrated
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import (
    effects_on_rates,
    linear_response,
    linear_solution,
)
from keql._evolution.problem import make_evolution_problem
from keql._joint.assembly import joint_basis
from keql._numerics.optimisation import Result, Stop
from keql._regression.term_scores import TermTable
from keql._regression.two_step import Hypothesis
from keql.datasets import make_fitzhugh_nagumo
from keql.kernels import RBF, Constant, Matern, Polynomial
from keql.model_selection._terms._linearised import LinearisedTermSearch
from keql.model_selection._terms._settings import TrajectorySearchSettings
from keql.operators import identity_of, parse_operator

TX, NAMES = ("t", "x"), ("u", "v")
UNIT = np.zeros(2), np.ones(2)
AUTO = Hypothesis(n_terms="auto")


def oscillation(points):
    """u_t = 0.1 u_xx - v and v_t = u: two fields (n, 2), one of them without diffusion.

    Two waves, so that u_xx is no multiple of u.
    """
    return wave(points, 2.0) + 0.5 * wave(points, 1.0)


def wave(points, k, diffusion=0.1):
    """One of them, cos(k x), whose amplitudes solve a' = -D k^2 a - b and b' = a."""
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
        n_ends=((1,), (0,)), states=NAMES, grading=1.0,
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
    prior = BoundaryPrior(
        kernels, np.array([0.1, 0.3]), free_noise=np.array([1, 0]) > 0
    )
    covariances, K = prior.covariances(points), prior.covariance(points)
    other = points.states[:, None] != points.states
    assert np.all(K[other] == 0) and np.all(K[~other] > 0)
    slopes = []
    for rows, (own, each) in zip(
        covariances.blocks, covariances.at(kernels.theta), strict=True
    ):
        assert_allclose(own, K[np.ix_(rows, rows)])
        slopes += [(rows, slope) for slope in each]
    free = prior.theta[prior.is_free]
    assert len(free) == len(prior.theta) - 1 == 8
    for k, change in enumerate(1e-6 * np.eye(len(free))[:6]):
        ends = [prior.with_theta(free + s * change) for s in (1, -1)]
        slope = np.subtract(*(end.covariance(points) for end in ends)) / 2e-6
        found = np.zeros_like(K)
        rows, found[np.ix_(slopes[k][0], slopes[k][0])] = slopes[k]
        assert_allclose(found, slope, atol=1e-7)
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


def check_states(model, points, truth, bound):
    """Errors of each state, relative to its size, are below a bound."""
    found, std = model.predict(points, return_std=True)
    errors = np.linalg.norm(found - truth, axis=0) / np.linalg.norm(truth, axis=0)
    assert np.all(errors < bound)
    assert std.shape == truth.shape and np.all(std > 0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_terms_of_states_of_unequal_order(noise):
    """The second field does not diffuse: it has no values at the ends."""
    model = OneStepKEqL(**OSCILLATION, equation_kernel=Polynomial(2), n_terms="auto")
    model.fit(*observed(noise=noise))
    terms = {name: model.equation_[name].terms() for name in ("u_t", "v_t")}
    expected = {"u_t": {"u_xx": 0.1, "v": -1.0}, "v_t": {"u": 1.0}}
    for name, truth in expected.items():
        assert terms[name] == pytest.approx(truth, rel=4 * noise + 1e-3)
    inside = np.random.RandomState(1).uniform(0.2, 2.8, size=(200, 2))
    check_states(model, inside, oscillation(inside), 1e-3 if noise == 0 else 0.01)
    assert isinstance(model.states_[0], EvolvedState)


def learn(X=None, y=None, **changes):
    """What two steps learn."""
    if X is None:
        X, y = observed(12)
    settings = OSCILLATION | {"collocation_points": 20} | changes
    return TwoStepKEqL(**settings)._learn_in_two_steps(X, y, None)


def test_the_prior_is_of_the_states_that_were_observed():
    learned = learn()
    assert why_not_integrated(learned) == ""
    problem = make_evolution_problem(learned, np.array([np.nan, 0.1]), (6, 10))
    assert problem.grid.states == NAMES and list(problem.grid.n_ends) == [1, 0]
    for prior in problem.priors:
        assert prior.noise[1] == 0.1 and list(prior.free_noise) == [True, False]
    # Rows of the first state, then of the second one.
    state = np.zeros((6, 4, 2, 10))
    state[:, :, 1] = 1.0
    seen = problem.observed[0] @ state.ravel()
    data = problem.functions[0]
    assert_allclose(seen, data.index, atol=1e-12)
    start = problem.start_without_terms()
    assert not np.any(start.weights) and len(start.weights)
    model = problem.linearise(problem.evaluate(start))
    assert np.isfinite(model.log_evidence()) and len(model.solution.equations) == 2
    assert str(problem.boundary_kernel).startswith("u: ")


@pytest.mark.parametrize(
    ("sizes", "finer"),
    [
        ((2, 6), (4, 12)),
        ((2, 16), (4, 16)),  # only steps in time are too long
        ((12, 6), (12, 12)),  # only points in space are too far apart
        ((12, 16), None),
    ],
)
def test_fields_are_resolved_where_two_grids_differ(sizes, finer):
    """Waves need as many steps and as many points; what has enough stays."""
    learned, noise = learn(), np.array([1e-3, 1e-3])
    problem = make_evolution_problem(learned, noise, sizes)
    truth = problem.iterate(equations(), [on_grid(problem.grid).ravel()])
    unknowns = [np.r_[1.0, truth.weights, boundary] for boundary in truth.boundary]
    states = problem.solution_of(truth, unknowns)  # on this grid
    solution = problem.iterate(truth.equations, states)
    found = problem.resolved(solution)
    assert problem.resolved(solution, finest=sizes) is None
    shorter = problem.with_short_steps(solution)
    assert problem.with_short_steps(solution, most=sizes[0]) is None
    if finer is None:
        assert found is None and shorter is None
        return
    problem, iterate = found
    assert (problem.grid.n_steps, problem.grid.n_points) == finer
    assert iterate.states[0].shape == (finer[0] * 4 * 2 * finer[1],)
    if finer[0] == sizes[0]:
        assert shorter is None
    else:
        grid = shorter[0].grid
        assert (grid.n_steps, grid.n_points) == (finer[0], sizes[1])


UV = ("u", "u_xx", "v", "v_xx")


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({}, ""),
        ({"operators": UV}, ""),
        ({"operators": ("u", "u_x", "v")}, "derivative of each state"),
        ({"operators": ("u", "v")}, "derivative of each state"),
        ({"operators": (*UV, "u_x")}, ""),
        ({"operators": ("u_xx", "v_x")}, "derivative of each state"),
        ({"known_part": ("u_t", {"u_t": 1, "v_t": 1})}, "derivative of each state"),
        ({"known_part": ("u_tt", "v_tt")}, ""),
        ({"known_part": ("u_tt", "v_tt"), "operators": ("u_xxx", "v")}, "derivative"),
        ({"known_part": ("u_tt", {"v_tt": 1, "u_xx": 1})}, "derivative of each state"),
        ({"known_part": ("u_tt", "v_tt"), "operators": ("u_xx", "v_tt")}, "derivative"),
        ({"known_part": ("u_tt", "v_t")}, "derivative of each state"),
        ({"known_part": ("u_t",)}, "as many equations"),
    ],
)
def test_fields_of_evolution_are_recognised(changes, reason):
    why_not = why_not_integrated(learn(**changes))
    assert reason in why_not and bool(why_not) == bool(reason)


def test_a_field_that_is_never_observed_is_not_integrated():
    X, y = observed(12)
    seen = np.isfinite(y[:, 0])
    assert "never observed" in why_not_integrated(learn(X[seen], y[seen]))


def test_semilinear_products_have_a_highest_derivative_alone():
    learned = learn(operators=("u", "u_x", "u_xx", "v", "v_xx"))
    products = {
        "1": (0, 0, 0, 0, 0),
        "u_xx": (0, 0, 1, 0, 0),
        "u u_x": (1, 1, 0, 0, 0),
        "u^2 v": (2, 0, 0, 1, 0),
        "v_xx": (0, 0, 0, 0, 1),
        "u u_xx": (1, 0, 1, 0, 0),
        "u_xx^2": (0, 0, 2, 0, 0),
        "u v_xx": (1, 0, 0, 0, 1),
    }
    powers = np.array([(0, 0, *own) for own in products.values()])
    assert are_semilinear(learned, powers).tolist() == 5 * [True] + 3 * [False]
    powers[1, 0] = 1  # t u_xx
    assert not are_semilinear(learned, powers)[1]


def search_of(learned):
    """A search among all terms of two fields, and where it begins."""
    problem = make_evolution_problem(learned, np.full(2, 0.05), (6, 10))
    table = TermTable(learned, joint_basis(learned.equations), AUTO)
    search = LinearisedTermSearch(
        problem, table, None, TrajectorySearchSettings.of_fields()
    )
    places = {name: i for i, name in enumerate(table.names)}
    return search, problem, problem.start_without_terms(), places


def test_products_of_highest_derivatives_are_left_out():
    """But for those of the best set so far."""
    search, problem, start, places = search_of(learn(equation_kernel=Polynomial(2)))
    search.kept = [places["u_t: u_xx^2"], places["v_t: u"]]
    model, score = search._among_semilinear(problem, start)
    assert len(model.regression.weights) == len(places) - 5  # three in either, but one
    own = [places["u_t: u_xx"], places["v_t: u"]]
    more = sorted([*own, places["u_t: u u_xx"]])
    odds = search.scores.odds
    assert score(more) - score(own) == pytest.approx(odds(more) - odds(own))


def test_what_is_interrupted_among_all_semilinear_terms_is_the_last():
    """The solution with all of them is kept, and nothing is searched from there."""
    search, problem, start, places = search_of(learn(equation_kernel=Polynomial(2)))
    asked = []

    def solve(problem, iterate, rivals=None):
        asked.append(len(iterate.weights))
        if len(asked) == 1:  # the best set
            return None
        model = problem.linearise(problem.evaluate(iterate))
        return Result(iterate, 0.0, model, Stop.KEYBOARD)

    search.solve = solve
    search.run_from_semilinear(problem, start)
    assert len(asked) == 2 and asked[1] == len(places) - 6
    assert search.best.interrupted and len(search.kept) == asked[1]


@pytest.mark.parametrize("many", [1, 100])
def test_very_many_terms_are_not_where_a_search_begins(many):
    """If there is another way to search: nothing is solved for then."""
    search, problem, start, _ = search_of(learn(equation_kernel=Polynomial(2)))
    search.settings = replace(search.settings, many=many, dense=0.0)
    search.solve = lambda *_: None
    search.run(problem, start, begins_dense=False)
    assert bool(search.tried) == (many == 100)


def test_terms_with_which_states_diffuse():
    """By a factor of e in the duration of the points, if waves are as long as these."""
    given = {
        "operators": ("u", "u_xx", "u_xxxx", "v"),
        "equation_kernel": Polynomial(2),
    }
    for highest, (sign, order) in {"u_xxxx": (1, 4), "u_xx": (-1, 2)}.items():
        learned = learn(**given)
        search, *_, places = search_of(learned)
        values, position = search._diffusion(), places[f"u_t: {highest}"]
        duration, length = np.ptp(learned.observations.functions[0].points, axis=0)
        rate = (length / (2 * np.pi)) ** order / duration
        assert values[position] == pytest.approx(sign * rate)
        assert np.sum(values != 0) == 1  # v has no derivative of its own on offer
        given["operators"] = ("u", "u_xx", "v")


def test_no_state_diffuses_by_an_equation_of_two():
    """Or by one without a derivative in time; the scale of the known part counts."""
    search, *_ = search_of(learn(known_part=({"u_t": 1.0, "v_t": 1.0}, "u")))
    assert not np.any(search._diffusion())
    given = [learn(known_part=(known, "v_t")) for known in ("u_t", "2 u_t")]
    once, twice = (search_of(learned)[0]._diffusion() for learned in given)
    assert np.any(once)
    np.testing.assert_allclose(twice, 2 * once)


def test_terms_are_told_where_states_diffuse():
    """Beside a noise of 10 %, which hides them where nothing smooths it."""
    learned = learn(*observed(noise=0.1), operators=("u", "u_x", "u_xx", "v"))
    search, problem, start, places = search_of(learned)
    truth = sorted(places[name] for name in ("u_t: u_xx", "u_t: v", "v_t: u"))
    search.solve = lambda *_: None
    search.run_from_diffusion(problem, start)
    assert search.tried == {tuple(truth)} and search.best is None
    model = problem.linearise(problem.evaluate(start))
    assert search.sets.best(search.scores.linearised(model)) != truth


def test_terms_of_a_part_have_the_evidence_that_they_have_among_all():
    search, problem, start, places = search_of(learn(equation_kernel=Polynomial(2)))
    model = problem.linearise(problem.evaluate(start))
    whole, kept = search.scores.linearised(model), [1, 3, 4, 12, 17]
    given = kept, search.single[:, kept], model.iterate.equations
    some = search.scores.of_some(model, *given)
    for own in ([1, 12], [3, 4, 17], kept):
        assert some(own) == pytest.approx(whole(own))


def test_terms_are_those_of_the_equations_whichever_coordinate_is_time():
    assert time_axis(learn().setup, 2) == 0
    X, y = observed(12)
    swapped = learn(X[:, ::-1], y, variables=("x", "t"))
    assert time_axis(swapped.setup, 2) == 1 and why_not_integrated(swapped) == ""


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_fitzhugh_nagumo_with_defaults(noise):
    data = make_fitzhugh_nagumo(150, noise=noise, random_state=0)
    model = OneStepKEqL(**data.problem).fit(data.X, data.y)
    for name, truth in data.terms.items():
        found = model.equation_[name].terms()
        assert found == pytest.approx(truth, rel=1e-3 if noise == 0 else 0.15)
    inside = np.all((data.X_test > 0.3) & (data.X_test < 9.7), axis=1)
    points, truth = data.X_test[inside], data.y_test[inside]
    check_states(model, points, truth, 1e-3 if noise == 0 else 0.015)
