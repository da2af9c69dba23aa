"""Collocation points beyond the data change nothing of what is learned from these."""

import numpy as np
import pytest
from known_equations import cole_hopf, points_of_cole_hopf
from numpy.testing import assert_allclose, assert_array_equal

from keql import Equation, OneStepKEqL, TwoStepKEqL
from keql._observations.data import inside_of, mean_gap
from keql.kernels import RBF, Polynomial, Restriction

HOURS = np.linspace(0, 24, 33)[:, None]
GROWTH = 1 / (1 + 9 * np.exp(-HOURS[:, 0] / 4))
NOISY = GROWTH + 0.01 * np.random.RandomState(0).standard_normal(33)
LOGISTIC = {"operators": ("u",), "known_part": "u_t", "variables": ("t",)}


def every(step, until, begin=0.0):
    return np.arange(begin, until + step / 2, step)[:, None]


def in_space(until, begin=0.0):
    """Collocation points of which those until t = 1 are always the same."""
    grid = np.meshgrid(every(0.125, until, begin), np.linspace(0, 1, 9), indexing="ij")
    return np.stack(grid, axis=-1).reshape(-1, 2)


def fit(estimator, places, y=NOISY, **changes):
    settings = LOGISTIC | {"collocation_points": places} | changes
    if estimator is OneStepKEqL:
        settings["n_terms"] = None
    return estimator(**settings).fit(HOURS, y)


@pytest.mark.parametrize("estimator", [OneStepKEqL, TwoStepKEqL])
def test_a_day_of_data_tells_one_equation(estimator):
    y = GROWTH + 0.5 * (NOISY - GROWTH)
    model = fit(estimator, every(0.5, 24), y)
    for places in (every(0.5, 30), every(0.5, 36), every(0.5, 36, begin=-6)):
        other = fit(estimator, places, y)
        assert_array_equal(other.equation_.weights, model.equation_.weights)
        assert_array_equal(other.collocation_points_[0], places)
        assert_array_equal(other.predict(HOURS), model.predict(HOURS))
    title = str(other.fit_report_).splitlines()[0]
    assert "49 collocation points of 85, the others being beyond the data" in title
    assert "beyond" not in str(model.fit_report_)


@pytest.mark.parametrize(
    "given",
    [
        {"equation_noise": 0.01, "state_kernel": RBF(6.0)},
        {"state_kernel": RBF(6.0), "n_terms": None},
        {"solver": "primal"},
    ],
)
def test_states_follow_the_equation_where_the_user_says(given):
    """At collocation points, which are kept then; predictions there do not warn."""
    model = OneStepKEqL(**LOGISTIC, collocation_points=every(0.5, 30), **given)
    setup = model._learn_in_two_steps(HOURS, NOISY, None).setup
    assert len(setup.collocation_points[0]) == 61


@pytest.mark.slow
def test_a_field_tells_one_equation_and_goes_on():
    """The state is predicted at the later points all the same, and warned of."""
    X = points_of_cole_hopf(20)
    kernel = Restriction(Polynomial(2), [(0, 0, 1, 1, 0), (0, 0, 0, 0, 1)])
    settings = {"known_part": "u_t", "variables": ("t", "x"), "equation_kernel": kernel}
    operators = ("u", "u_x", "u_xx")
    models = [
        OneStepKEqL(operators, **settings, collocation_points=in_space(until))
        for until in (1.0, 1.5)
    ]
    day, later = (model.fit(X, cole_hopf(*X.T)) for model in models)
    assert_array_equal(later.equation_.weights, day.equation_.weights)
    points = np.random.RandomState(0).uniform(size=(30, 2))
    assert_array_equal(later.predict(points), day.predict(points))
    points[:, 0] += 0.5
    assert_allclose(later.forecast(points), cole_hopf(*points.T), atol=2e-3)
    points[:, 0] = 1.1  # less than a mean gap away
    assert_allclose(later.predict(points), later.forecast(points), rtol=1e-6)


def test_points_until_a_mean_gap_stay():
    """Rounding errors of times decide nothing."""
    data = np.linspace(0, 1, 11)[:, None]
    assert mean_gap(data) == pytest.approx(0.1)
    for ends, kept in (((0, 1), 51), ((0, 1.099), 51), ((-0.1, 1.1), 51)):
        places = np.linspace(*ends, 51)[:, None]
        assert inside_of(data, places, 0, both_sides=True).sum() == kept
    places = np.linspace(-1, 2, 61)[:, None]
    inside = inside_of(data, places + 1e-13, 0, both_sides=True)
    assert_array_equal(inside, (places > -1e-9)[:, 0] & (places < 1 + 1e-9)[:, 0])
    assert inside_of(data, places, 0, both_sides=False).sum() == 41
    assert inside_of(data, places + 7, 0, both_sides=True).all()  # nothing is left


def test_in_space_all_points_stay():
    X = points_of_cole_hopf(20)
    settings = {"operators": ("u", "u_x", "u_xx"), "variables": ("t", "x")}
    wide = in_space(1.0, begin=-0.5) * [1.0, 3.0]
    model = TwoStepKEqL(known_part="u_t", **settings, collocation_points=wide)
    learned = model._learn_in_two_steps(X, cole_hopf(*X.T), None)
    assert len(learned.setup.collocation_points[0]) == len(wide)
    elliptic = TwoStepKEqL(("u_tt", "u_xx"), variables=("t", "x"), forcing=np.sum)
    elliptic.set_params(collocation_points=2 * wide, forcing=lambda x: x[:, 0])
    learned = elliptic._learn_in_two_steps(X, cole_hopf(*X.T), None)
    assert len(learned.setup.collocation_points[0]) == len(wide)


def test_functions_have_their_own_ends():
    """Those with the same end share their points, as they did before."""
    last, runs = (12.0, 24.0, 24.0), []
    for label, end in enumerate(last):
        t = HOURS[HOURS <= end][:, None]
        runs.append(np.column_stack([np.full(len(t), label), t]))
    X, places = np.concatenate(runs), every(0.5, 36)
    settings = LOGISTIC | {"function_column": 0, "forcing": np.sin(places[:, 0])}
    model = TwoStepKEqL(**settings, collocation_points=places)
    setup = model._learn_in_two_steps(X, np.exp(-X[:, 1]), None).setup
    first, second, third = setup.collocation_points
    assert (first[-1], second[-1]) == (12.0, 24.0) and third is second
    for points, forcing in zip(setup.collocation_points, setup.forcing, strict=True):
        assert_allclose(forcing, np.sin(points[:, 0]))


def test_equations_with_points_of_their_own():
    """The rows of each equation are those of its points that are left."""
    t = HOURS
    y = np.column_stack([np.exp(-t / 9), np.sin(t / 4)])
    named = [
        ("x", Equation("x_t", operators=("x",), collocation_points=every(1.0, 40))),
        ("y", Equation("y_t", operators=("x", "y"), collocation_points=every(0.5, 24))),
    ]
    model = TwoStepKEqL(states=("x", "y"), variables=("t",), equations=named)
    setup = model._learn_in_two_steps(t, y, None).setup
    (rows,), (points,) = setup.rows, setup.collocation_points
    parts = [points[own] for _, own in rows.slices()]
    assert_array_equal(parts[0], every(1.0, 24))
    assert_array_equal(parts[1], every(0.5, 24))
