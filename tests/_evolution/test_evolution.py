"""States that obey their equation exactly, against solutions in closed form."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from exact_states import CONTEXT, fit_exactly
from known_equations import (
    DIFFUSION,
    cole_hopf,
    make_equation,
    monomial,
    points_of_cole_hopf,
)
from numpy.testing import assert_allclose

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._estimators.one_step import EarlierSolution
from keql._evolution.boundary.regression import BoundaryValueRegression
from keql._evolution.forecast import EvolvedState
from keql._evolution.form import IntegrationLimits, time_axis, why_not_integrated
from keql._evolution.problem import make_evolution_problem
from keql._numerics.linalg import rms
from keql._observations.data import box_around
from keql._regression.hidden import with_fixed_bounds
from keql._regression.two_step import FitSettings, Hypothesis
from keql.kernels import RBF, Constant, Polynomial, Restriction
from keql.model_selection._candidates import candidates
from keql.model_selection._exact_fit import _with_all_terms
from keql.model_selection._fit import Context
from keql.model_selection._terms._evolution import solve_exactly
from keql.model_selection._terms._settings import TermSearchSettings
from keql.operators import KernelExpansion, parse_operator

LAW = monomial(2, 3) + monomial(4)
# Exponents of t, x, u, u_x, u_xx in u u_x and u_xx.
TERMS = [(0, 0, 1, 1, 0), (0, 0, 0, 0, 1)]


SETTINGS = {
    "operators": ("u", "u_x", "u_xx"),
    "known_part": "u_t",
    "variables": ("t", "x"),
    "equation_kernel": Restriction(Polynomial(2), TERMS),
    "optimizer": None,
    "observation_noise": 1e-4,
}


def two_steps(X, y, **changes):
    """What two steps learn, without a search for kernels."""
    model = TwoStepKEqL(**(SETTINGS | changes))
    return model._learn_in_two_steps(X, y, None)


@pytest.fixture(scope="module")
def learned():
    X = points_of_cole_hopf(30)
    return two_steps(X, cole_hopf(*X.T))


@pytest.fixture(scope="module")
def exact(learned):
    return fit_exactly(learned)


def test_a_solution_is_found_with_its_equation(learned, exact):
    rng = np.random.RandomState(1)
    P = rng.uniform(size=(200, 2))
    before, after = learned.states[0], exact.learned.states[0]
    size = np.abs(cole_hopf(*P.T)).max()
    # Values are said to have noise of 1e-4, 3e-4 of their size.
    for name, order, tol in (("u", 0, 3e-4), ("u_x", 1, 6e-3)):
        operator, truth = parse_operator(name, ("t", "x")), cole_hopf(*P.T, order=order)
        missed = [s.evaluate(P, operator) - truth for s in (before, after)]
        assert np.abs(missed[1]).max() < min(tol * size, 0.1 * np.abs(missed[0]).max())
    terms = exact.learned.equation.terms()
    assert terms["u u_x"] == pytest.approx(1, abs=1e-3)
    assert terms["u_xx"] == pytest.approx(DIFFUSION, rel=1e-3)
    equation = learned.equation.terms()
    assert abs(terms["u u_x"] - 1) < 0.1 * abs(equation["u u_x"] - 1)
    assert exact.error < 1e-3 * size


def test_errors_are_within_what_is_said_of_them(learned, exact):
    state, equation = exact.learned.states[0], exact.learned.equation
    P = np.random.RandomState(2).uniform(size=(300, 2))
    u = parse_operator("u", ("t", "x"))
    std = np.sqrt(state.variance(P, u))
    assert np.mean(np.abs(state.evaluate(P, u) - cole_hopf(*P.T)) < 2 * std) > 0.9
    errors = equation.posterior.std(np.eye(2))
    terms = equation.terms()
    assert abs(terms["u u_x"] - 1) < 4 * errors[0]
    assert np.all(equation.posterior.weights == equation.weights)
    assert exact.learned.observation_noise < 1e-3


def test_features_of_the_equation_are_those_of_its_states(exact):
    new, u = exact.learned, parse_operator("u_xx", ("t", "x"))
    S, x = new.equation.training_features, new.setup.collocation_points[0]
    assert_allclose(S[:, 4], new.states[0].evaluate(x, u), rtol=1e-9, atol=1e-8)


@pytest.mark.slow
def test_a_fit_is_the_same_to_the_last_digit_and_leaves_numpys_generator(learned):
    first = fit_exactly(learned)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    again = fit_exactly(learned)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    values = [fit.result.solution.states[0] for fit in (first, again)]
    assert np.array_equal(*values)


def test_a_noise_level_that_is_given_is_kept(learned):
    found = fit_exactly(learned, noise=1e-4)
    assert found.learned.observation_noise == 1e-4


def test_the_order_of_the_coordinates_does_not_matter(learned, exact):
    X = points_of_cole_hopf(30)
    other = two_steps(X[:, ::-1], cole_hopf(*X.T), variables=("x", "t"))
    found = fit_exactly(other)
    P = np.random.RandomState(3).uniform(size=(50, 2))
    values = found.learned.states[0].evaluate(
        P[:, ::-1], parse_operator("u", ("x", "t"))
    )
    expected = exact.learned.states[0].evaluate(P, parse_operator("u", ("t", "x")))
    assert_allclose(values, expected, rtol=0, atol=1e-5)


def test_units_do_not_matter(exact):
    """u in millions, time in thousandths: u u_x has another coefficient then."""
    X, units = points_of_cole_hopf(30), np.array([1e3, 1.0])
    y = 1e6 * cole_hopf(*X.T)
    equation = Restriction(Constant(1e6, "fixed") * Polynomial(2), TERMS)  # u_t in 1000
    other = two_steps(X * units, y, observation_noise=1e2, equation_kernel=equation)
    found = fit_exactly(other)
    P = np.random.RandomState(3).uniform(size=(50, 2))
    u = parse_operator("u", ("t", "x"))
    values = found.learned.states[0].evaluate(P * units, u) / 1e6
    expected = exact.learned.states[0].evaluate(P, u)
    assert_allclose(values, expected, rtol=0, atol=1e-5)
    terms = found.learned.equation.terms()
    assert terms["u u_x"] == pytest.approx(1e-9, rel=1e-3)
    assert terms["u_xx"] == pytest.approx(1e-4, rel=1e-3)


@pytest.mark.slow
def test_several_functions_share_the_equation():
    X = [points_of_cole_hopf(8, seed) for seed in range(2)]
    values = [cole_hopf(*x.T, a) for x, a in zip(X, (0.5, -0.4), strict=True)]
    table = [np.column_stack([x, np.full(len(x), m)]) for m, x in enumerate(X)]
    start = two_steps(np.concatenate(table), np.concatenate(values), function_column=2)
    new = fit_exactly(start).learned
    P = np.random.RandomState(3).uniform(size=(50, 2))
    for state, a in zip(new.states, (0.5, -0.4), strict=True):
        found = state.evaluate(P, parse_operator("u", ("t", "x")))
        assert_allclose(found, cole_hopf(*P.T, a), rtol=0, atol=1e-3)
    assert new.equation.terms()["u u_x"] == pytest.approx(1, abs=0.01)


def test_outside_of_the_box_the_state_is_the_one_before(learned, exact):
    P = np.array([[0.5, 0.5], [0.5, 1.2], [-0.1, 0.3]])
    u = parse_operator("u", ("t", "x"))
    before, after = learned.states[0], exact.learned.states[0]
    assert_allclose(after.evaluate(P, u)[1:], before.evaluate(P, u)[1:])
    assert_allclose(after.variance(P, u)[1:], before.variance(P, u)[1:])
    assert after.evaluate(P, u)[0] != before.evaluate(P, u)[0]
    assert np.all(after.variance(P, u) >= 0)


def test_states_are_stored_with_all_that_they_need(exact):
    state = exact.learned.states[0]
    copy = pickle.loads(pickle.dumps(state))
    P, u = np.array([[0.3, 0.4]]), parse_operator("u", ("t", "x"))
    assert_allclose(copy.evaluate(P, u), state.evaluate(P, u), rtol=1e-12)
    assert_allclose(copy.variance(P, u), state.variance(P, u), rtol=1e-5)
    assert len(pickle.dumps(state)) < 6e5


@pytest.mark.parametrize(
    "operators, known_part, variables, axis",
    [
        (("u", "u_x", "u_xx"), "u_t", ("t", "x"), 0),
        (("u", "u_x", "u_xx"), "u_t", ("x", "t"), 1),
        (("u", "u_t"), "u_xx", ("t", "x"), 0),
        (("u", "u_x"), "u_t", ("t", "x"), 0),
        (("u", "u_x"), "u_t", ("x", "t"), 1),
        (("u", "u_x"), "u_tt", ("t", "x"), 1),
        (("u", "u_xxx"), "u_t", ("t", "x"), 0),
        (("u", "u_xxxx"), "u_t", ("x", "t"), 1),
        (("u", "u_xxxxx"), "u_t", ("t", "x"), None),
        (("u", "u_xx"), "u_tt", ("t", "x"), 0),
        (("u", "u_t", "u_xxxx"), {"u_tt": -2.0}, ("x", "t"), 1),
        (("u", "u_xx"), {"u_tt": 1.0, "u_t": 0.1}, ("t", "x"), 0),
        (("u",), {"u_tt": 1.0, "u_xx": 1.0}, ("t", "x"), None),
        (("u", "u_tt", "u_xx"), "u_tt", ("t", "x"), None),
        (("u", "u_xx"), "u_ttt", ("t", "x"), None),
        (("u", "u_tx", "u_xx"), "u_t", ("t", "x"), 0),
        (("u",), "u_t", ("t",), None),
        (("u", "u_xx", "u_yy"), "u_t", ("t", "x", "y"), 0),
        (("u", "u_xx", "u_yy"), "u_t", ("x", "t", "y"), 1),
        (("u", "u_xx", "u_yy"), "u_tt", ("x", "y", "t"), 2),
        (("u_x", "u_y"), "u_t", ("x", "y", "t"), 2),
        (("u", "u_yy"), {"u_tt": 1.0, "u_xx": 1.0}, ("t", "x", "y"), None),
        (("u", "u_xxxxx", "u_yy"), "u_t", ("t", "x", "y"), None),
        (("u", "u_xx", "u_zz"), "u_t", ("t", "x", "y", "z"), None),
    ],
)
def test_evolution_equations_are_recognised(operators, known_part, variables, axis):
    X = np.random.RandomState(0).uniform(size=(6, len(variables)))
    changes = {"operators": operators, "equation_kernel": None, "variables": variables}
    found = two_steps(X, X[:, 0], known_part=known_part, **changes)
    assert time_axis(found.setup, len(variables)) == axis


def test_a_forcing_has_to_be_known_everywhere():
    X = np.random.RandomState(0).uniform(size=(30, 2))
    places = {"collocation_points": X, "equation_kernel": None}
    for forcing, reason in ((lambda p: p[:, 0], ""), (X[:, 0], "at the collocation")):
        found = two_steps(X, np.sin(X[:, 1]), forcing=forcing, **places)
        why_not = why_not_integrated(found)
        assert reason in why_not and bool(why_not) == bool(reason)


@pytest.mark.slow
def test_equations_with_a_forcing_are_integrated():
    """u_t = u_xx / 10 + f for two waves that decay at rates of their own."""
    X = np.random.RandomState(0).uniform(0, [1.0, 2.0], size=(50, 2))

    def waves(points):
        t, x = points.T
        return np.exp(-t) * np.sin(x), 0.5 * np.exp(-t / 2) * np.cos(2 * x)

    def forcing(points):
        first, second = waves(points)
        return -0.9 * first - 0.1 * second

    settings = {"variables": ("t", "x"), "forcing": forcing, "n_terms": "auto"}
    model = OneStepKEqL(("u", "u_xx"), "u_t", **settings).fit(X, sum(waves(X)))
    assert model.equation_.terms() == pytest.approx({"u_xx": 0.1}, rel=1e-3)
    test = np.random.RandomState(1).uniform(0, [1.0, 2.0], size=(50, 2))
    assert_allclose(model.predict(test), sum(waves(test)), atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("order", [3, 4])
def test_equations_of_higher_order_in_space(order):
    """u_t = -u_xxx and u_t = -u_xxxx, integrated from what waves are at the ends."""

    def wave(points):
        t, x = points.T
        if order == 3:
            return np.cos(x + t) + 0.5 * np.sin(2 * x + 8 * t)
        return np.exp(-t) * np.cos(x) + 0.5 * np.exp(-16 * t) * np.sin(2 * x)

    X = np.random.RandomState(0).uniform(0, [0.5, 6.0], size=(80, 2))
    names = ("u", "u_x", "u_" + "x" * order)
    model = OneStepKEqL(names, "u_t", variables=("t", "x"), n_terms="auto")
    model.fit(X, wave(X))
    assert model.equation_.terms() == pytest.approx({names[2]: -1.0}, rel=1e-3)
    test = np.random.RandomState(1).uniform([0.05, 0.5], [0.45, 5.5], size=(50, 2))
    assert_allclose(model.predict(test), wave(test), atol=1e-3)


def test_the_box_reaches_as_far_as_scattered_points_suggest():
    """It is that of the points where several are on a side."""
    rng = np.random.RandomState(0)
    scattered = rng.uniform(size=(19, 2))
    lower, upper = box_around(scattered, scattered)
    gap = 2 * np.ptp(scattered, axis=0) / 20
    assert_allclose(lower, scattered.min(axis=0) - gap)
    assert_allclose(upper, scattered.max(axis=0) + gap)
    walls = np.vstack([scattered, [[0.3, -0.1], [0.6, -0.1]]])
    lower, _ = box_around(walls, scattered)
    assert lower[1] == -0.1 and lower[0] < scattered[:, 0].min()
    _, upper = box_around(scattered, np.array([[5.0, 0.5]]))
    assert upper[0] == 5.0


def test_time_is_not_exact_backwards(learned):
    """As a diffusion with the wrong sign would."""
    equation = make_equation(("u", "u_x", "u_xx"), "u_t", LAW, [0.0, DIFFUSION])
    backwards = replace(learned, equations=(equation,))
    assert fit_exactly(backwards) is None


def test_what_takes_too_long_is_left_out(learned):
    assert why_not_integrated(learned) == ""
    why_not = why_not_integrated(learned, IntegrationLimits(observations=0))
    assert "observations of a function, more than 0" in why_not


def test_observations_of_one_time_are_not_exact():
    X = np.column_stack([np.ones(8), np.linspace(0, 1, 8)])
    assert fit_exactly(two_steps(X, np.sin(X[:, 1]))) is None


def test_weights_of_effects_beyond_bounds_are_not_exact(learned, monkeypatch):
    def failing(self):
        raise np.linalg.LinAlgError

    monkeypatch.setattr(BoundaryValueRegression, "with_best_prior", failing)
    assert fit_exactly(learned) is None


@pytest.mark.parametrize(
    "changes, settings, reason",
    [
        ({}, {}, ""),
        ({"equation_noise": 0.1}, {}, "equation_noise says"),
        ({"state_kernel": Polynomial(1)}, {}, "state_kernel is given"),
        ({}, {"solver": "primal"}, "solver='primal' asks"),
        ({}, {"reduced": True}, "reduced method"),
        ({}, {"optimizer": None}, "optimizer=None"),
    ],
)
def test_what_the_user_says_is_not_overruled(learned, changes, settings, reason):
    table = candidates(learned, Hypothesis(**changes), FitSettings(**settings))
    assert table[0].hypothesis.constraint == "integration"
    assert reason in table[0].why_not and bool(table[0].why_not) == bool(reason)
    assert table[2].hypothesis.constraint == "collocation" and not table[2].why_not


@pytest.mark.parametrize("part, is_exact", [(5e-3, True), (5e-2, False)])
def test_states_are_exact_beside_noise_of_an_equation_that_holds(
    learned, part, is_exact
):
    level = part * rms(learned.targets[0])
    given = Hypothesis(equation_noise=level, state_kernel=RBF(1.0), n_terms="auto")
    reason = candidates(learned, given, FitSettings())[0].why_not
    assert reason.startswith("" if is_exact else "equation_noise says")
    assert bool(reason) != is_exact


@pytest.mark.slow
def test_a_fit_beside_noise_of_an_equation_that_holds_is_that_without_it():
    X = points_of_cole_hopf(30)
    settings = SETTINGS | {"optimizer": "fmin_l_bfgs_b"}
    noisy = {"observation_noise": 1e-5, "equation_noise": 1e-4}
    first, model = (
        OneStepKEqL(**settings | given).fit(X, cole_hopf(*X.T))
        for given in ({"observation_noise": 1e-5}, noisy)
    )
    assert isinstance(model.states_[0], EvolvedState) and model.equation_noise_ == 0
    assert "far within the level that is given" in " ".join(
        str(model.fit_report_).split()
    )
    assert_allclose(model.predict(X), first.predict(X), atol=1e-9)


def test_steps_that_do_not_converge_are_not_taken(learned):
    few = replace(CONTEXT, settings=FitSettings(max_iter=1))
    assert fit_exactly(learned, context=few) is None


def test_exact_states_report_their_steps_and_can_be_stopped(learned):
    seen = []

    def report(two_step, problem, result):
        seen.append(result.loss)
        return len(seen) == 2

    fit = fit_exactly(learned, context=replace(CONTEXT, report=report))
    assert len(seen) == 2 and fit.result.interrupted and not fit.result.converged
    assert seen == fit.result.loss_curve[1:]


@pytest.mark.slow
def test_defaults_have_exact_states_and_say_so():
    X = points_of_cole_hopf(20)
    y = cole_hopf(*X.T)
    settings = {k: SETTINGS[k] for k in ("operators", "known_part", "variables")}
    model = OneStepKEqL(**settings, n_terms="auto", warm_start=True).fit(X, y)
    assert isinstance(model.states_[0], EvolvedState)
    assert model.converged_ and model.n_iter_ == len(model.loss_curve_) - 1 > 0
    kernel = model.state_kernel_
    assert "RBF" in str(kernel) and "Envelope" in str(model.equation_.state_kernel)
    assert "exact" in str(model.fit_report_)
    P = np.random.RandomState(3).uniform(size=(50, 2))
    assert_allclose(model.predict(P), cole_hopf(*P.T), rtol=0, atol=1e-3)
    terms = model.equation_.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    again = model.fit(X, y)  # from there
    assert_allclose(again.predict(P), cole_hopf(*P.T), rtol=0, atol=1e-3)


CARRIED = {"operators": ("u", "u_x"), "known_part": "u_t", "variables": ("t", "x")}


def carried(p, decay=0.5):
    """A solution of u_t = -0.7 u_x - 0.5 u."""
    return np.exp(-decay * p[:, 0]) * np.sin(4 * (p[:, 1] - 0.7 * p[:, 0]) + 1)


@pytest.mark.slow
def test_what_is_carried_along_is_found():
    rng = np.random.RandomState(1)
    X, P = rng.uniform(size=(40, 2)), rng.uniform(0.05, 0.95, size=(100, 2))
    kernel = Polynomial(1)
    model = OneStepKEqL(**CARRIED, equation_kernel=kernel, n_terms="auto")
    model.fit(X, carried(X))
    assert isinstance(model.states_[0], EvolvedState)
    assert_allclose(model.predict(P), carried(P), atol=1e-3)
    assert set(model.equation_.terms()) == {"u", "u_x"}


def test_exact_data_that_an_equation_nearly_meets_tell_of_another_one():
    X = np.random.RandomState(1).uniform(size=(40, 2))
    few = Polynomial(1, active_dims=("u_x",))  # it does not decay
    model = OneStepKEqL(**CARRIED, equation_kernel=few, n_terms=1)
    with pytest.warns(IdentifiabilityWarning, match="missed by"):
        model.fit(X, carried(X, 0.01))
    assert isinstance(model.states_[0], EvolvedState)


@pytest.mark.slow
def test_exact_states_start_from_earlier_ones(learned, exact):
    """At once on the fine grid, others on a coarse one first."""

    def counted(previous):
        sizes = []
        context = Context(FitSettings(), lambda *given: tell(sizes, *given), previous)
        return fit_exactly(learned, context=context), sizes

    def tell(sizes, learned, problem, result):
        sizes.append(problem.grid.n_points)

    _, first = counted(None)
    again, sizes = counted(
        EarlierSolution(exact.learned.states, exact.learned.equations)
    )
    assert set(first) == {40, 80} and set(sizes) == {80}
    assert len(sizes) < len(first)
    old, new = (fit.result.solution.states[0] for fit in (exact, again))
    assert_allclose(new, old, atol=1e-5)


def test_all_terms_are_solved_for_on_the_fine_grid_where_the_coarse_one_fails(
    learned, exact, monkeypatch
):
    def solve(problem, start, factor):
        if problem.grid.n_points == 40:
            return None
        return solve_exactly(learned, CONTEXT, TermSearchSettings(), problem, start, 1)

    problem = make_evolution_problem(learned)
    result = _with_all_terms(problem, problem.start(), solve)
    assert result.converged
    assert_allclose(
        result.solution.states[0], exact.result.solution.states[0], atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"solver": "primal"}, {"n_restarts": 0}])
def test_parameters_hold_where_states_could_be_exact(changes):
    """One step is all that is allowed, whatever the states are."""
    X = points_of_cole_hopf(10)
    settings = {k: SETTINGS[k] for k in ("operators", "known_part", "variables")}
    model = OneStepKEqL(
        **settings,
        equation_kernel=Restriction(Polynomial(2), TERMS),
        collocation_points=40,
        max_iter=1,
        **changes,
    )
    with pytest.warns(IdentifiabilityWarning, match="missed by"):
        model.fit(X, cole_hopf(*X.T))
    assert isinstance(model.states_[0], KernelExpansion)
    assert model.n_iter_ == 1 and len(model.loss_curve_) <= 2
    reasons = dict(model.fit_report_.not_tried)
    assert bool(reasons) and all(reasons.values())


def test_a_prior_that_is_given_is_kept():
    X = points_of_cole_hopf(20)
    model = OneStepKEqL(**SETTINGS)
    with pytest.warns(IdentifiabilityWarning, match="do not tell their coefficients"):
        kernel = model.fit(X, cole_hopf(*X.T)).states_[0]
    assert isinstance(kernel, KernelExpansion)


@pytest.mark.slow
def test_a_given_kernel_is_the_prior_of_boundary_values_if_it_can():
    """The one that is most likely is kept; with a short one values are improbable."""
    X = points_of_cole_hopf(30)
    settings = SETTINGS | {"optimizer": "fmin_l_bfgs_b"}
    first = OneStepKEqL(**settings).fit(X, cole_hopf(*X.T))
    short = Constant(0.05, "fixed") * RBF([10.0, 0.03], "fixed")
    inside = np.random.RandomState(1).uniform(0.1, 0.9, size=(200, 2))
    for kernel, words in (
        (with_fixed_bounds(first.state_kernel_), "given, and the prior of"),
        (short, "far more probable with it than with that given"),
    ):
        model = OneStepKEqL(**settings, state_kernel=kernel).fit(X, cole_hopf(*X.T))
        assert words in " ".join(str(model.fit_report_).split())
        assert (str(model.state_kernel_) == str(kernel)) == (kernel is not short)
        assert_allclose(model.predict(inside), first.predict(inside), rtol=1e-3)
