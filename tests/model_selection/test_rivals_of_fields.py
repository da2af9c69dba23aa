"""What equations of fields are told from: elementary functions, and other terms."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from exact_states import CONTEXT, fit_exactly
from known_equations import learn_cole_hopf
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from keql import OneStepKEqL, TwoStepKEqL
from keql._evolution.problem import make_evolution_problem
from keql._numerics.elementary import ODD, Elementary
from keql._regression.functions import terms as terms_module
from keql._regression.functions.screening import can_be_screened
from keql._regression.functions.settings import ElementarySettings
from keql._regression.functions.table import FunctionTable
from keql._regression.functions.terms import Term, are_in_products, kind_of, moved
from keql._regression.screening import CandidateTerms
from keql._regression.two_step import Hypothesis
from keql.datasets import make_burgers
from keql.exceptions import IdentifiabilityWarning
from keql.fit_report._undetermined import rivals_in_words
from keql.kernels import Polynomial, Restriction
from keql.model_selection import _exact_states
from keql.model_selection._exact_fit import fit_exact_states
from keql.model_selection._starts._from_diffusion import from_simpler
from keql.model_selection._terms._fewer import _Path
from keql.model_selection._terms._functions import fit_elementary
from keql.model_selection._terms._settings import TermSearchSettings

TRANSPORT = {"operators": ("u", "u_x"), "known_part": "u_t", "variables": ("t", "x")}


def decaying_transport(n, noise=0.0, seed=0):
    """Points and values of u_t = -0.6 u_x + exp(-u), which has a closed form.

    Along the lines x - 0.6 t = z, exp(u) grows by the time that passes.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform((0, 0), (1.5, 4), (n, 2))
    z = X[:, 1] - 0.6 * X[:, 0]
    start = 0.8 * np.sin(z) + 0.3 * np.cos(2 * z)
    u = np.log(np.exp(start) + X[:, 0])
    return X, u + noise * np.std(u) * rng.standard_normal(n)


@pytest.fixture(scope="module")
def two_step():
    return learn_cole_hopf(20)


@pytest.fixture(scope="module")
def cubic():
    """Exact states of the polynomial that is near exp(-u)."""
    terms = [(0, 0, 0, 1), (0, 0, 0, 0), (0, 0, 1, 0), (0, 0, 2, 0), (0, 0, 3, 0)]
    kernel = Restriction(Polynomial(3), terms)
    model = TwoStepKEqL(**TRANSPORT, equation_kernel=kernel)
    learned = model._learn_in_two_steps(*decaying_transport(60), None)
    return fit_exactly(learned)


def test_functions_of_a_field_are_those_of_its_state_and_waves(two_step):
    offered = FunctionTable(two_step, ElementarySettings.of_fields())
    every = [term.function for term in offered.terms if term.function.family]
    diffusions = [function for function in every if function.flux]
    assert {f.family for f in diffusions} == {"exp"}  # values are of both signs
    assert {f.flux for f in diffusions} == {("u_x", "u_xx")}
    functions = [f for f in every if f.argument == "u" and not f.flux]
    assert {f.argument for f in every} == {"u", "u_x", "x"}
    of_slopes = {(f.family, f.powers) for f in every if f.argument == "u_x"}
    assert of_slopes == {("peak", (("u_xx", 1),)), ("abs", (("u_xx", 1),))}
    powers = {f.name for f in every if f.is_whole_power}
    assert powers == {"u^4", "u^5"}
    assert not {f.family for f in functions} & {*ODD}
    waves = [f for f in functions if f.family in ("sin", "cos")]
    assert waves and not any(f.powers for f in waves)
    assert any(f.powers == (("u", 1),) for f in functions)
    in_space = {f.powers for f in every if f.argument == "x"}
    single = {(), (("u", 1),), (("u_x", 1),), (("u_xx", 1),)}
    assert in_space == single | {(("u", 2),), (("u", 1), ("u_x", 1))}
    everything = FunctionTable(two_step, ElementarySettings())
    arguments = {t.function.argument for t in everything.terms if t.function.family}
    assert arguments == {"u", "u_x", "u_xx", "t"}
    assert {*ODD} <= {term.function.family for term in everything.terms}


def test_along_a_field_there_are_functions_of_time_and_whole_waves_on_rings(two_step):
    observations = replace(two_step.observations, periods=np.array([np.inf, 3.0]))
    ring = replace(two_step, observations=observations)
    offered = FunctionTable(ring, ElementarySettings.along_fields())
    every = [term.function for term in offered.terms if term.function.family]
    assert {f.argument for f in every} == {"u", "u_x", "x", "t"}
    waves = [f for f in every if f.argument == "x"]
    assert all(f.is_held and not f.is_free for f in waves)
    numbers = {round(f.parameter * 3 / (2 * np.pi), 9) for f in waves}
    assert numbers == {1.0, 2.0, 3.0, 4.0}
    wave = Term(0, waves[0], 0)
    assert moved(wave, 2.0) is wave  # its wave number is known
    other = Term(0, next(f for f in waves if f.parameter != waves[0].parameter), 1)
    assert kind_of(wave) != kind_of(other)
    # Powers of time may be infinite where a field begins.
    assert "power" not in {f.family for f in every if f.argument == "t"}
    assert "abs" in {f.family for f in every if f.argument == "u"}


def test_fields_are_not_screened_along_one_path_in_time(two_step):
    assert not can_be_screened(two_step)


def test_responses_make_the_regression_of_the_linearised_problem(two_step):
    problem = make_evolution_problem(two_step).with_grid(10, 16)
    iterate = problem.start_without_terms()
    model = problem.linearise(problem.evaluate(iterate))
    problem = model.problem
    regression = problem.regression(iterate, problem.responses(iterate))
    assert_allclose(regression.weights, model.regression.weights, rtol=1e-6)
    assert regression.loss == pytest.approx(model.regression.loss, rel=1e-6)


@pytest.mark.slow
def test_a_function_is_found_beside_the_polynomial_that_is_near(cubic):
    hypothesis = Hypothesis(n_terms="auto", name="elementary functions")
    hypothesis = replace(hypothesis, has_functions=True)
    fit = fit_elementary(cubic.two_step, hypothesis, CONTEXT, cubic)
    terms = fit.learned.equation.terms()
    assert set(terms) == {"exp(-u)", "u_x"}
    assert terms["exp(-u)"] == pytest.approx(1, rel=1e-4)
    assert terms["u_x"] == pytest.approx(-0.6, rel=1e-4)
    evidence = fit.log_evidences
    assert evidence[frozenset(terms)] > evidence[frozenset(cubic.term_names)] + 10
    assert fit.problem.grid.equals(cubic.problem.grid)
    assert cubic.or_more_probable(fit, 1.0) is cubic  # its own evidence is not known


@pytest.mark.slow
def test_an_exponential_of_exact_data_is_found_by_default():
    model = OneStepKEqL(**TRANSPORT).fit(*decaying_transport(60))
    assert str(model.equation_) == "u_t = 1.00 exp(-u) - 0.600 u_x"


@pytest.mark.slow
def test_a_source_that_varies_in_space_is_found_by_default():
    """Along z = x - 0.6 t, u grows by the integral of 0.1 sin(x) over time."""
    X = np.random.default_rng(0).uniform((0, 0), (1.5, 4), (80, 2))
    z = X[:, 1] - 0.6 * X[:, 0]
    grown = (np.cos(z) - np.cos(X[:, 1])) / 6
    u = 0.8 * np.sin(z) + 0.3 * np.cos(2 * z) + grown
    terms = OneStepKEqL(**TRANSPORT).fit(X, u).equation_.terms()
    assert set(terms) == {"u_x", "sin(x)"}
    assert_allclose([terms["u_x"], terms["sin(x)"]], [-0.6, 0.1], rtol=1e-3)


@pytest.mark.slow
def test_a_diffusivity_that_is_a_power_is_found_by_default():
    """Of u_t = (u_x / u)_x there is a solution in closed form."""
    t, x = np.random.default_rng(0).uniform((0.4, 0.3), (1.2, 3.3), (100, 2)).T
    u = 2 * np.sinh(2 * t) / (np.cosh(2 * t) + np.cos(2 * x))
    model = OneStepKEqL(
        operators=("u", "u_x", "u_xx"), known_part="u_t", variables=("t", "x")
    ).fit(np.column_stack([t, x]), u)
    assert model.equation_.terms() == pytest.approx({"(u^-1 u_x)_x": 1.0}, rel=1e-3)


@pytest.mark.parametrize(
    "power, error, are_products",
    [(1.02, 0.03, True), (1.02, 0.003, False), (3.0, 0.1, False), (-1.0, 0.1, False)]
    + [(1.02, np.float64(1e308), True)],  # of a term without an effect
)
def test_a_diffusivity_that_may_be_a_whole_power_is_no_rival(
    power, error, are_products, monkeypatch
):
    """Up to its standard error: (u u_x)_x is u u_xx + u_x^2."""
    function = Elementary((), "power", "u", power, flux=("u_x", "u_xx"))
    refined = SimpleNamespace(terms=[Term(0, function, 0)])
    monkeypatch.setattr(terms_module, "parameter_errors", lambda _: {0: error})
    assert are_in_products(refined, 3) is are_products


@pytest.mark.slow
def test_terms_beside_what_is_given_are_told_from_those_of_exact_states():
    """Published Burgers, 30 values, the state kernel and noise of both kinds given."""
    data = make_burgers(30, random_state=1)
    size = np.std(data.y)
    y = data.y + 0.02 * size * np.random.default_rng(1).standard_normal(len(data.y))
    model = OneStepKEqL(
        **data.problem,
        state_kernel=data.kernels["state_kernel"],
        observation_noise=0.02 * size,
        equation_noise=0.1,
    )
    text = "polynomial with exact states predicts observations about as well"
    with pytest.warns(IdentifiabilityWarning, match=text):
        model.fit(data.X, y)


@pytest.mark.slow
def test_cubic_terms_are_found_from_a_quadratic_equation_that_is_near():
    """u_t = -0.6 u_x + u - u^3 along the lines x - 0.6 t = z."""
    X = np.random.default_rng(0).uniform((0, 0), (1.5, 4), (60, 2))
    z, grown = X[:, 1] - 0.6 * X[:, 0], np.exp(X[:, 0])
    start = 0.5 + 0.2 * np.sin(z) + 0.1 * np.cos(2 * z)
    u = start * grown / np.sqrt(1 + start**2 * (grown**2 - 1))
    simpler, wider = (
        TwoStepKEqL(
            **TRANSPORT, equation_kernel=Polynomial(degree)
        )._learn_in_two_steps(X, u, None)
        for degree in (2, 3)
    )
    hypothesis = Hypothesis(n_terms="auto")
    near = fit_exact_states(simpler, simpler, hypothesis, CONTEXT)
    assert near.error > 1e-4
    fit = from_simpler(near, hypothesis, wider, CONTEXT)
    expected = {"u": 1, "u^3": -1, "u_x": -0.6}
    assert fit.result.solution.equation.terms() == pytest.approx(expected, rel=1e-3)
    noisy = replace(wider, observation_noise=np.array([0.1]))
    assert from_simpler(near, hypothesis, noisy, CONTEXT) is None
    assert from_simpler(near, replace(hypothesis, n_terms=None), wider, CONTEXT) is None
    assert from_simpler(None, hypothesis, wider, CONTEXT) is None


@pytest.mark.slow
def test_sets_that_noise_does_not_tell_are_solved_for(two_step):
    """In the place of a term of the best set, and beside all if these shift."""
    [data] = two_step.observations.functions
    level = 0.05 * np.std(data.values)
    noise = level * np.random.RandomState(0).standard_normal(len(data.values))
    data = replace(data, values=data.values + noise)
    observations = replace(two_step.observations, functions=[data])
    noisy = {"observations": observations, "observation_noise": np.array([level])}
    learned = replace(two_step, **noisy)
    tried = []
    for limits in ({"rival": 0.0}, {"shifted": np.inf}, {"shifted": 0.0}):
        settings = TermSearchSettings(**{"rival": 12.0, **limits})
        given = learned, learned, Hypothesis(n_terms="auto"), CONTEXT, settings
        found = fit_exact_states(*given)
        tried.append({frozenset(step.terms) for step in found.terms_path})
    few, instead, beside = tried
    best = set(found.term_names)
    assert few < instead < beside
    assert not any(best < terms for terms in instead - few)
    assert any(best < terms for terms in beside - instead)


def test_contributions_of_terms_add_up_to_the_unknown_part(two_step):
    candidates = CandidateTerms(two_step.equation)
    equation = candidates.with_values([4, 1], np.array([2.0, -0.3]))
    parts = candidates.contributions(equation)
    assert set(np.flatnonzero(np.any(parts != 0, axis=0))) == {1, 4}
    S = candidates.equation.training_features
    assert_allclose(np.sum(parts, axis=1), equation.unknown_part(S), atol=1e-12)


def test_odds_beyond_counting_are_told_as_such():
    rivals = [({"u"}, 0.0), ({"u", "v"}, 1e4), ({"v"}, -1.0)]
    text = rivals_in_words(rivals)
    assert "also v (odds above 1,000,000); v instead of u (odds 0.37)" in text


def shallow_water(n, noise, seed):
    """Depth and speed of a layer of water, h_t = -(h v)_x and v_t = -v v_x - h_x.

    Integrated on a ring with Fourier modes, seen at n points in a part of it.
    """
    x, k = 2 * np.pi * np.arange(64) / 64, np.fft.rfftfreq(64, 1 / 64)

    def slope(values):
        return np.fft.irfft(1j * k * np.fft.rfft(values), 64)

    def rates(t, state):
        h, v = np.split(state, 2)
        return np.concatenate([-slope(h * v), -v * slope(v) - slope(h)])

    start = 1 + 0.2 * np.cos(x) + 0.1 * np.cos(2 * x + 1)
    start = np.concatenate([start, 0.2 * np.sin(x) + 0.0667 * np.cos(2 * x)])
    solution = solve_ivp(rates, (0, 2), start, dense_output=True, rtol=1e-9, atol=1e-10)
    rng = np.random.default_rng((0, 5))
    X, y = rng.uniform((0, 1), (2, 5), (n, 2)), []
    for values in np.split(solution.sol(X[:, 0]), 2):
        modes = np.fft.rfft(values, axis=0).T / 64
        modes[:, 1:-1] *= 2
        y.append(np.real(np.sum(np.exp(1j * np.outer(X[:, 1], k)) * modes, axis=1)))
    y, rng = np.column_stack(y), np.random.default_rng((seed, 77))
    return X, y + noise * np.std(y, axis=0) * rng.standard_normal(y.shape)


WATER = {
    "operators": ("h", "v", "h_x", "v_x"),
    "known_part": ("h_t", "v_t"),
    "variables": ("t", "x"),
    "states": ("h", "v"),
}


@pytest.mark.slow
def test_terms_of_fields_at_collocation_points_are_compared_by_evidence(monkeypatch):
    """Wherever taking out one by one has ended: with eight terms that stand for two."""
    monkeypatch.setattr(_Path, "place", lambda path: 3)
    model = OneStepKEqL(**WATER)
    with pytest.warns(IdentifiabilityWarning, match="do not tell the terms from"):
        model.fit(*shallow_water(60, 0.02, 1))
    assert set(model.equation_["h_t"].terms()) == {"h v_x", "v h_x"}
    assert set(model.equation_["v_t"].terms()) == {"h_x", "v v_x"}
    steps = [s for s in model.terms_path_ if np.isfinite(s.log_evidence)]
    best = max(steps, key=lambda step: step.log_evidence)
    first = max(steps, key=lambda step: len(step.terms))
    assert len(best.terms) == 4 and len(first.terms) > 8
    assert best.log_evidence > first.log_evidence + 10


@pytest.mark.slow
def test_evidence_of_fields_is_not_asked_beside_what_is_given():
    """It would tell of a given noise level instead of the terms."""
    model = OneStepKEqL(**WATER, observation_noise={"h": 0.003, "v": 0.003})
    with warnings.catch_warnings(record=True, action="always"):
        model.fit(*shallow_water(40, 0.02, 1))
    assert not any(np.isfinite(step.log_evidence) for step in model.terms_path_)


@pytest.mark.slow
def test_functions_do_not_explain_the_errors_of_a_coarse_grid(monkeypatch):
    # Functions are looked for though few terms meet the data, on a coarse grid whose
    # errors are far above those of exact values.
    monkeypatch.setattr(_exact_states, "few_terms_meet", lambda *_: False)
    data = make_burgers(30, random_state=0)
    model = OneStepKEqL(**data.problem).fit(data.X, data.y)  # warns of nothing
    assert "exact states, elementary functions" not in dict(model.fit_report_.not_tried)
    assert {*model.equation_.terms()} == {"u u_x", "u_xx"}
