"""The data sets of systems: truth against other solutions, what is measured, noise."""

import pickle

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql.datasets import (
    make_fitzhugh_nagumo,
    make_heat_with_boundary_law,
    make_lorenz,
    make_lotka_volterra,
)
from keql.datasets._fitzhugh_nagumo import _CosineSeries

MAKERS = {
    "lorenz": make_lorenz,
    "lotka_volterra": make_lotka_volterra,
    "fitzhugh_nagumo": make_fitzhugh_nagumo,
}
ENTRIES = (
    "X y feature_names X_test y_test problem kernels truth equation unknown_part "
    "noise_std terms DESCR"
).split()
DESCRIBED = (
    "operators known_part collocation_points forcing variables function_column states"
).split()
# The largest residual of an equation, as a fraction of its largest known part.
RESIDUALS = {"lorenz": 1e-9, "lotka_volterra": 1e-8, "fitzhugh_nagumo": 1e-8}


def points_within(data, n, seed=0):
    """Random points inside the box of the test points."""
    lower, upper = data.X_test.min(axis=0), data.X_test.max(axis=0)
    return np.random.default_rng(seed).uniform(lower, upper, (n, len(lower)))


def features_of(data, X):
    """Return the features of the truth at points, in the documented order."""
    names = data.feature_names[X.shape[1] :]
    return np.column_stack([X, *(data.truth(X, name) for name in names)])


@pytest.mark.parametrize("name", MAKERS)
def test_entries(name):
    data = MAKERS[name](t_end=1.0, random_state=0)
    assert set(ENTRIES) <= set(data) and set(data.problem) == set(DESCRIBED)
    assert all(data[entry] is data.problem[entry] for entry in DESCRIBED)
    n_states = len(data.states)
    assert data.y.shape == (len(data.X), n_states)
    assert data.y_test.shape == (len(data.X_test), n_states)
    assert np.array_equal(data.y_test, data.truth(data.X_test))
    measured = ~np.isnan(data.y)
    assert np.array_equal(data.y[measured], data.truth(data.X)[measured])
    assert np.array_equal(data.noise_std, np.zeros(n_states))
    assert tuple(data.terms) == data.known_part
    n_coordinates = len(data.variables)
    names = [*data.operators, *data.known_part]
    assert data.feature_names == [*data.variables, *names]
    assert data.X.shape[1] == n_coordinates
    assert "{" not in data.DESCR


@pytest.mark.parametrize("name", MAKERS)
def test_truth_solves_its_equations(name):
    data = MAKERS[name]()
    S = features_of(data, points_within(data, 2000))
    n_equations = len(data.known_part)
    residual, known = data.equation(S), S[:, -n_equations:]
    assert residual.shape == (2000, n_equations)
    largest = np.max(abs(residual), axis=0) / np.max(abs(known), axis=0)
    assert np.all(largest < RESIDUALS[name])


@pytest.mark.parametrize("name", MAKERS)
def test_unknown_part_ignores_further_columns(name):
    data = MAKERS[name](t_end=1.0)
    S = np.random.default_rng(1).standard_normal((7, len(data.feature_names)))
    expected = data.unknown_part(S)
    n_seen = len(data.variables) + len(data.operators)
    assert np.array_equal(data.unknown_part(S[:, :n_seen]), expected)
    assert np.array_equal(data.equation(S), expected + S[:, n_seen:])


@pytest.mark.parametrize("name", MAKERS)
def test_random_state(name):
    make, short = MAKERS[name], {"t_end": 1.0, "noise": 0.1}
    first, again, other = (make(**short, random_state=i) for i in (3, 3, 4))
    assert np.array_equal(first.X, again.X)
    assert np.array_equal(first.y, again.y, equal_nan=True)
    assert not np.array_equal(first.y, other.y, equal_nan=True)
    same = make(**short, random_state=np.random.RandomState(3))
    assert np.array_equal(first.y, same.y, equal_nan=True)


@pytest.mark.parametrize("name", MAKERS)
def test_pickle(name):
    data = MAKERS[name](t_end=1.0)
    copy = pickle.loads(pickle.dumps(data))
    X = points_within(data, 10)
    S = features_of(data, X)
    assert np.array_equal(features_of(copy, X), S)
    assert np.array_equal(copy.equation(S), data.equation(S))


@pytest.mark.parametrize("name", MAKERS)
def test_noise_is_a_fraction_of_each_state(name):
    data = MAKERS[name](1000, t_end=1.0, noise=0.05, random_state=0)
    size = np.sqrt(np.mean(data.y_test**2, axis=0))
    assert data.noise_std == pytest.approx(0.05 * size)
    assert np.array_equal(data.y_test, data.truth(data.X_test))
    for column in range(len(size)):
        noise = (data.y - data.truth(data.X))[:, column] / data.noise_std[column]
        noise = noise[~np.isnan(noise)]
        # Four standard errors of a standard deviation, and of a mean.
        assert abs(np.std(noise) - 1.0) < 4 / np.sqrt(2 * len(noise))
        assert abs(np.mean(noise)) < 4 / np.sqrt(len(noise))


def lorenz(t, u):
    return [
        10 * (u[1] - u[0]),
        28 * u[0] - u[0] * u[2] - u[1],
        u[0] * u[1] - 8 / 3 * u[2],
    ]


def prey_and_predators(t, u):
    return [1.1 * u[0] - 0.4 * u[0] * u[1], 0.1 * u[0] * u[1] - 0.4 * u[1]]


@pytest.mark.parametrize(
    ("name", "rate", "t_end"),
    [("lorenz", lorenz, 5.0), ("lotka_volterra", prey_and_predators, 24.0)],
)
def test_truth_agrees_with_another_integrator(name, rate, t_end):
    # The equations written once more, as a method for stiff ones sees them.
    data, t = MAKERS[name](), np.linspace(0.0, t_end, 40)
    solution = solve_ivp(
        rate, (0, t_end), data.truth([[0.0]])[0], "LSODA", t, rtol=1e-12, atol=1e-12
    )
    assert data.truth(t[:, None]) == pytest.approx(solution.y.T, abs=1e-6)
    for column, state in enumerate(data.states):
        slope = [rate(0.0, u)[column] for u in solution.y.T]
        assert data.truth(t[:, None], f"{state}_t") == pytest.approx(slope, abs=1e-4)


def test_lotka_volterra_keeps_its_invariant():
    prey, predator = make_lotka_volterra(t_end=96.0).y_test.T
    invariant = (
        0.1 * prey - 0.4 * np.log(prey) + 0.4 * predator - 1.1 * np.log(predator)
    )
    assert np.ptp(invariant) < 1e-10


def test_lorenz_at_rest():
    # One of the two fixed points.
    rest = np.array([72**0.5, 72**0.5, 27.0])
    data = make_lorenz(initial=rest, t_end=1.0)
    assert data.y_test == pytest.approx(np.tile(rest, (2000, 1)), abs=1e-7)


def test_second_derivatives_and_sums():
    data = make_lorenz()
    t, h = points_within(data, 50) * 0.9 + 0.1, 1e-5
    slopes = [data.truth(t + step, "x_t") for step in (-h, h)]
    x_tt = (slopes[1] - slopes[0]) / (2 * h)
    assert data.truth(t, "x_tt") == pytest.approx(x_tt, abs=1e-3)
    total = data.truth(t, "x_tt") + 2 * data.truth(t, "z")
    assert data.truth(t, "x_tt + 2 z") == pytest.approx(total, rel=1e-12)


def test_lorenz_states_that_are_never_measured():
    full = make_lorenz(noise=0.1, random_state=0)
    data = make_lorenz(noise=0.1, observed=("z", "x"), random_state=0)
    assert np.array_equal(np.isnan(data.y).all(axis=0), [False, True, False])
    assert np.array_equal(data.y[:, [0, 2]], full.y[:, [0, 2]])
    single = make_lorenz(observed="y")
    assert np.array_equal(np.isnan(single.y).any(axis=0), [True, False, True])


def test_lorenz_streams():
    full = make_lorenz(404, noise=0.1, random_state=0)
    data = make_lorenz(404, streams=10, noise=0.1, random_state=0)
    measured = ~np.isnan(data.y)
    assert np.all(measured.sum(axis=1) == 1)
    which = np.argmax(measured, axis=1)
    assert np.array_equal(which[:40], np.repeat([0, 1, 2, 0], 10))
    assert np.array_equal(data.y[measured], full.y[measured])
    alternating = make_lorenz(observed=("y", "x"), streams=1)
    which = np.argmax(~np.isnan(alternating.y), axis=1)
    assert np.array_equal(which[:4], [1, 0, 1, 0])


def test_fitzhugh_nagumo_measures_one_field_at_a_point():
    few, many = (make_fitzhugh_nagumo(n, t_end=1.0, random_state=0) for n in (10, 40))
    assert np.array_equal(few.X, many.X[:20])
    measured = ~np.isnan(many.y)
    assert np.array_equal(measured[0::2], np.tile([True, False], (40, 1)))
    assert np.array_equal(measured[1::2], np.tile([False, True], (40, 1)))
    assert len(np.unique(many.X, axis=0)) == 80


def test_fitzhugh_nagumo_ends_and_begin():
    data = make_fitzhugh_nagumo(t_end=2.0)
    t = np.linspace(0.0, 2.0, 30)
    for side in (0.0, 10.0):
        points = np.column_stack([t, np.full(30, side)])
        for name in ("u_x", "v_x", "u_xxx"):
            assert np.max(abs(data.truth(points, name))) < 1e-10
    x = np.linspace(0.0, 10.0, 30)
    u = 1.5 * np.cos(np.pi * x / 10) + 0.5 * np.cos(3 * np.pi * x / 10)
    points = np.column_stack([np.zeros(30), x])
    assert data.truth(points, "u") == pytest.approx(u, abs=1e-12)


def test_fitzhugh_nagumo_is_resolved():
    series, finer = _CosineSeries(3.0), _CosineSeries(3.0, n_waves=64)
    points = np.random.default_rng(0).uniform((0, 0), (3, 10), (200, 2))
    for name in ("u", "u_xx", "v_xx", "u_t"):
        assert series(points, name) == pytest.approx(finer(points, name), abs=1e-8)


def heat_features(data, at=None):
    """Features at random points, all at one position if there is one."""
    X = points_within(data, 500)
    if at is not None:
        X[:, 1] = at
    return features_of(data, X)


@pytest.mark.parametrize("changes", [{}, {"transfer": 50.0, "ambient": -1.0}])
def test_heat_obeys_each_equation_where_it_holds(changes):
    data = make_heat_with_boundary_law(**changes)
    places = [(None, 0), (0.0, 1), (1.0, 2)]
    for at, column in places:
        S = heat_features(data, at)
        assert np.max(abs(data.equation(S)[:, column])) < 1e-12 * np.max(abs(S))
    # Nor does the law of the wall hold inside.
    assert np.min(np.max(abs(data.equation(heat_features(data))), axis=0)[1:]) > 0.1


def test_heat_flows_out_of_a_warm_wall():
    data = make_heat_with_boundary_law()
    assert np.all(data.truth(data.X[:15]) > 0.3)
    assert np.all(data.truth(data.X[:15], "u_x") > 0)
    # The heat in the body decreases by what flows through the wall.
    x, h = (np.arange(1000) + 0.5) / 1000, 1e-4
    heat = [
        np.mean(data.truth(np.column_stack([np.full(1000, t), x])))
        for t in (0.5 - h, 0.5 + h)
    ]
    flux = 0.2 * data.truth([[0.5, 0.0]], "u_x")[0]
    assert (heat[1] - heat[0]) / (2 * h) == pytest.approx(-flux, rel=1e-5)


def test_heat_layout():
    data = make_heat_with_boundary_law(60, 15, noise=0.1, random_state=0)
    assert data.X.shape == (75, 2) and data.y.shape == (75,)
    assert np.all(data.X[:15, 1] == 0.0) and np.all(data.X[15:, 1] > 0.0)
    assert data.noise_std == pytest.approx(0.1 * np.sqrt(np.mean(data.y_test**2)))
    fewer = make_heat_with_boundary_law(20, 15, noise=0.1, random_state=0)
    assert np.array_equal(fewer.X, data.X[:35])
    again = make_heat_with_boundary_law(60, 15, noise=0.1, random_state=0)
    assert np.array_equal(again.y, data.y) and not np.array_equal(fewer.y, data.y[:35])
    assert [name for name, _ in data.equations] == list(data.terms)
    assert data.equations is data.problem["equations"]
    points = {name: law.collocation_points for name, law in data.equations}
    assert np.all(points["wall"][:, 1] == 0) and np.all(points["insulated"][:, 1] == 1)
    copy = pickle.loads(pickle.dumps(data))
    S = heat_features(data)
    assert np.array_equal(copy.equation(S), data.equation(S))
    assert np.array_equal(copy.truth(data.X), data.truth(data.X))


def test_heat_terms_are_the_right_hand_sides():
    data = make_heat_with_boundary_law()
    S = np.random.default_rng(0).standard_normal((5, 6))
    columns = dict(zip(data.feature_names, S.T, strict=True), **{"1": np.ones(5)})
    for column, terms in enumerate(data.terms.values()):
        total = sum((c * columns[name] for name, c in terms.items()), np.zeros(5))
        assert data.unknown_part(S)[:, column] == pytest.approx(-total)


ERRORS = [
    (lambda: make_fitzhugh_nagumo(0), "n_samples"),
    (lambda: make_fitzhugh_nagumo(t_end=-1.0), "t_end"),
    (lambda: make_fitzhugh_nagumo(noise=np.inf), "noise"),
    (lambda: make_heat_with_boundary_law(-1), "n_interior"),
    (lambda: make_heat_with_boundary_law(n_wall=1), "n_wall"),
    (lambda: make_heat_with_boundary_law(conductivity=0.0), "conductivity"),
    (lambda: make_heat_with_boundary_law(transfer=0.0), "transfer"),
    (lambda: make_heat_with_boundary_law(ambient=np.nan), "ambient"),
    (lambda: make_heat_with_boundary_law(noise=-1.0), "noise"),
    (lambda: make_lorenz(1), "n_samples"),
    (lambda: make_lorenz(t_end=0.0), "t_end"),
    (lambda: make_lorenz(noise=-0.1), "noise"),
    (lambda: make_lorenz(initial=(0.0, 1.0)), "initial=.*x, y, z"),
    (lambda: make_lorenz(parameters=(10.0, 28.0)), "parameters"),
    (lambda: make_lorenz(observed=("x", "w")), "observed"),
    (lambda: make_lorenz(observed=()), "observed"),
    (lambda: make_lorenz(observed=("x", "x")), "observed"),
    (lambda: make_lorenz(streams=0), "streams"),
    (lambda: make_lorenz().truth([[10.1]]), "X has 1 rows outside"),
    (lambda: make_lorenz().truth([[1.0]], "w"), "'w'"),
    (lambda: make_lorenz().truth([[1.0]], "x_ttttt"), "operator='x_ttttt'"),
    (lambda: make_lorenz().truth([[1.0]], "x", function=0), "function=0"),
    (lambda: make_lotka_volterra(1), "n_samples"),
    (lambda: make_lotka_volterra(t_end=np.inf), "t_end"),
    (lambda: make_lotka_volterra(noise=np.nan), "noise"),
    (lambda: make_lotka_volterra(initial=(0.0, 1.0)), "two positive"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
