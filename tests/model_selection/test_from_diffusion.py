"""Equations that grow from a diffusion where no other start leads to them."""

import warnings
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from exact_states import CONTEXT, grow
from known_equations import cole_hopf, learn_cole_hopf, points_of_cole_hopf
from scipy.integrate import solve_ivp

from keql import OneStepKEqL, TwoStepKEqL
from keql._evolution.problem import EvolutionProblem
from keql._observations.data import PredictionScale
from keql._regression.screening import CandidateTerms
from keql._regression.two_step import Hypothesis
from keql.datasets import make_burgers
from keql.exceptions import IdentifiabilityWarning
from keql.kernels import RBF, Constant, Polynomial, Restriction
from keql.model_selection._candidates import Candidate
from keql.model_selection._criteria import error_without_equation
from keql.model_selection._fit import Fit
from keql.model_selection._starts import _diffusion, _from_diffusion
from keql.model_selection._starts._from_diffusion import (
    _misses_near,
    leads_nowhere,
    or_from_diffusion,
    or_more_terms,
    or_simpler,
)
from keql.model_selection._terms._fewer import TermsStep
from keql.model_selection._terms._settings import TermSearchSettings
from keql.operators import parse_operator

SETTINGS = {
    "operators": ("u", "u_x", "u_xx"),
    "known_part": "u_t",
    "variables": ("t", "x"),
}
U = parse_operator("u", ("t", "x"))
# Exponents of t, x, u, u_x, u_xx in u u_x, u^2 and u_xx.
FEW = [(0, 0, 1, 1, 0), (0, 0, 2, 0, 0), (0, 0, 0, 0, 1)]


def two_steps(X, y, **changes):
    return TwoStepKEqL(**(SETTINGS | changes))._learn_in_two_steps(X, y, None)


@pytest.fixture(scope="module")
def two_step():
    return learn_cole_hopf(15, equation_kernel=Restriction(Polynomial(2), FEW))


@pytest.fixture(scope="module")
def grown(two_step):
    return grow(two_step, "auto")


@pytest.mark.slow
def test_the_equation_is_found(grown):
    exact = grown
    # Sets of terms are compared by full steps: some have no states to integrate from.
    assert type(exact.problem) is EvolutionProblem
    terms = exact.learned.equation.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    assert terms["u u_x"] == pytest.approx(1, rel=1e-2)
    assert terms["u_xx"] == pytest.approx(0.1, rel=1e-2)
    X = np.random.RandomState(0).uniform(size=(50, 2))
    found = exact.learned.states[0].evaluate(X, U)
    assert np.max(np.abs(found - cole_hopf(*X.T))) < 1e-3


@pytest.mark.slow
def test_sign_and_units_do_not_matter():
    X = points_of_cole_hopf(15)
    units, factor = np.array([1e3, 1e-4]), -2.0
    learned = two_steps(
        X * units,
        1e5 * cole_hopf(*X.T),
        known_part={"u_t": factor},
        equation_kernel=Constant(1.0, (1e-30, 1e30)) * Restriction(Polynomial(2), FEW),
    )
    terms = grow(learned, "auto").learned.equation.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    assert terms["u_xx"] == pytest.approx(0.1 * factor * 1e-8 / 1e3, rel=1e-2)


@pytest.mark.parametrize("factor, grows", [(0.9, True), (1.1, False)])
def test_no_diffusion_is_begun_beside_states_that_predict_well(
    two_step, factor, grows, monkeypatch
):
    """They are known better than those of a diffusion with another term."""
    alone = error_without_equation(two_step.states, two_step.observations)
    size = PredictionScale(two_step.observations).size
    criteria = replace(CONTEXT.criteria, predicts_well=factor * alone / size)
    settings, asked = replace(CONTEXT.settings, n_restarts=1), []
    context = replace(CONTEXT, settings=settings, criteria=criteria)
    for name in ("fit_from_early_times", "fit_from_diffusion"):
        found = partial(lambda name, *_: asked.append(name), name)
        monkeypatch.setattr(_from_diffusion, name, found)
    assert or_from_diffusion(None, two_step, Hypothesis(), context) is None
    assert asked == ["fit_from_early_times", "fit_from_diffusion"][: 1 + grows]


@pytest.mark.slow
def test_all_terms_are_kept_if_none_is_to_go(two_step):
    equation = grow(two_step).learned.equation
    assert len(equation.terms()) == len(FEW)


@pytest.mark.slow
def test_what_is_carried_along_leads_nowhere(two_step, grown):
    """If it predicts poorly; an equation of what spreads says where others are."""

    def poor(error):
        return error > 0.1

    def fit(place, error):
        equation = CandidateTerms(two_step.equation).with_values([place], np.ones(1))
        result = SimpleNamespace(solution=SimpleNamespace(equation=equation))
        return SimpleNamespace(error=error, problem=grown.problem, result=result)

    names = list(CandidateTerms(two_step.equation).exponents.sum(axis=1))
    assert names.count(1) == 1  # u_xx alone is of degree one
    spreads = names.index(1)
    carried = next(i for i in range(3) if i != spreads)
    assert leads_nowhere(None, two_step, poor)
    assert leads_nowhere(fit(carried, 0.2), two_step, poor)
    assert not leads_nowhere(fit(carried, 0.05), two_step, poor)
    assert not leads_nowhere(fit(spreads, 0.2), two_step, poor)


@pytest.mark.slow
@pytest.mark.parametrize(
    "error, sees, taken",
    [(1e-6, False, True), (0.5, False, False), (1e-6, True, False)],
)
def test_a_pair_whose_fronts_are_followed_is_the_last(
    error, sees, taken, two_step, grown, monkeypatch
):
    """If exact data are met then; else terms are searched on the grid that stays."""
    asked, followed = [], SimpleNamespace(result=SimpleNamespace(interrupted=False))

    def follow(fit, learned, context):
        asked.append(fit)
        return followed if len(asked) == 1 else fit

    monkeypatch.setattr(_diffusion, "or_followed", follow)
    monkeypatch.setattr(_diffusion, "sees_noise", lambda _: sees)
    monkeypatch.setattr(_diffusion, "meets_data", lambda *_: error < 0.1)
    found = grow(two_step, "auto")
    assert (found is followed) == (taken or sees)
    assert len(asked) == (1 if taken or sees else 2)
    pair = not sees
    assert (len(asked[0].terms_path) == 0) == pair, "no set of terms was compared yet"


@pytest.mark.parametrize(
    "equation_kernel", [RBF(1.0), Restriction(Polynomial(2), FEW[:2])]
)
def test_without_a_diffusion_nothing_grows(equation_kernel):
    learned = learn_cole_hopf(15, equation_kernel=equation_kernel)
    assert grow(learned) is None


def test_what_is_no_evolution_does_not_grow():
    X = np.random.RandomState(0).uniform(size=(12, 2))
    learned = two_steps(X, X[:, 0], operators=("u",), known_part="u_tt + u_xx")
    assert grow(learned, "auto") is None


@pytest.mark.slow
def test_ten_observations_inside_are_enough():
    """Where exact states from the two-step state would have another equation."""
    data = make_burgers(10, random_state=8)
    kernel = Restriction(Polynomial(2), [*FEW, (0, 0, 1, 0, 0)])
    model = OneStepKEqL(
        **data.problem, equation_kernel=kernel, n_terms="auto", random_state=0
    )
    model.fit(data.X, data.y)
    terms = model.equation_.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    assert terms["u u_x"] == pytest.approx(1, rel=1e-2)
    assert terms["u_xx"] == pytest.approx(0.01, rel=1e-2)


@pytest.mark.slow
def test_a_single_soliton_is_one_of_many_equations():
    """It solves u_t = -4 u_x as well as the equation of Korteweg and de Vries."""
    rng = np.random.default_rng(11)
    X, X_test = (rng.uniform((-1, -6), (1, 6), (n, 2)) for n in (120, 1000))
    y, y_test = (2 / np.cosh(P[:, 1] - 4 * P[:, 0]) ** 2 for P in (X, X_test))
    operators = "u", "u_x", "u_xx", "u_xxx"
    model = OneStepKEqL(operators, "u_t", variables=("t", "x"))
    with pytest.warns(IdentifiabilityWarning, match="does not change in one direction"):
        model.fit(X, y)
    terms = model.equation_.terms()
    assert {*terms} in ({"u_x"}, {"u u_x", "u_xxx"})
    error = np.linalg.norm(model.predict(X_test) - y_test)
    assert error < 0.05 * np.linalg.norm(y_test)


def at_sensors(n_sensors=6, n_times=25):
    """Points, and exact values of u_t = u - u^2 + 0.1 u_xx, periodic in space."""
    k, waves = np.arange(33), 2 * np.pi * np.arange(64) / 64

    def rate(_, u):
        spread = np.fft.irfft(-(k**2) * np.fft.rfft(u), 64)
        return u - u**2 + 0.1 * spread

    t = np.linspace(0, 4, n_times)
    first, how = 0.3 + 0.2 * np.sin(waves), {"rtol": 1e-10, "atol": 1e-10}
    u = solve_ivp(rate, (0, 4), first, "Radau", t_eval=t, **how).y
    x = np.linspace(0.628, 5.655, n_sensors)
    parts = np.fft.rfft(u, axis=0)[:32] / 64 * np.where(k[:32] > 0, 2, 1)[:, None]
    values = np.real(np.exp(1j * np.outer(x, k[:32])) @ parts)
    return np.stack(np.meshgrid(t, x, indexing="ij"), axis=-1).reshape(-1, 2), values.T


def test_records_of_sensors_are_not_carried_along():
    """Each may be met by a part of a wave that no other sensor sees."""
    X, values = at_sensors()
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    model.fit(X, values.ravel())
    expected = {"u": 1.0, "u^2": -1.0, "u_xx": 0.1}
    assert model.equation_.terms() == pytest.approx(expected, rel=1e-4)
    assert model.fit_report_.concerns == []


def test_more_terms_on_offer_leave_what_is_found(grown, monkeypatch):
    """Without noise, or without some of its terms on offer, nothing is compared."""
    exact, asked = grown, []

    def more(exponents, sees=True):
        monkeypatch.setattr(_from_diffusion, "sees_noise", lambda _: sees)
        wide = Restriction(Polynomial(3), exponents)
        hypothesis = Hypothesis(equation_kernel=wide, n_terms="auto", name="wider")

        def offered():
            asked.append(wide)
            return learn_cole_hopf(15, equation_kernel=wide)

        return or_more_terms(exact, hypothesis, offered, CONTEXT)

    wider = [*FEW, (0, 0, 3, 0, 0), (0, 0, 0, 1, 0)]
    assert more(wider, sees=False) is exact and not asked
    assert more(FEW[:2]) is exact and asked
    found = more(wider)
    assert set(found.term_names) == {"u u_x", "u_xx"}
    assert found.learned.equation.terms() == exact.learned.equation.terms()


def in_a_potential(X):
    """u_t = u_xx - x u: exp(t^3/3 - t x) times a solution of the heat equation."""
    t, x = X.T
    y = x - t**2
    heat = 1.5 + np.exp(-t) * np.cos(y) + 0.5 * np.exp(-4 * t) * np.sin(2 * y + 0.3)
    return np.exp(t**3 / 3 - t * x) * heat


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_terms_in_the_coordinates_are_found(noise):
    rng = np.random.default_rng(3)
    X = rng.uniform((0, -1.5), (1, 1.5), (100, 2))
    y = in_a_potential(X)
    y = y + noise * np.std(y) * rng.standard_normal(len(y))
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    with warnings.catch_warnings(action="ignore" if noise else "error"):
        model.fit(X, y)  # noise may leave other terms about as probable
    expected = pytest.approx({"x u": -1, "u_xx": 1}, rel=0.1 if noise else 1e-3)
    assert model.equation_.terms() == expected


@pytest.mark.parametrize(
    "error, why_not, is_other",
    [(1e-6, "", True), (0.1, "", False), (1e-6, "it is given", False)],
)
def test_a_simpler_equation_that_meets_data_is_taken(
    monkeypatch, two_step, error, why_not, is_other
):
    """It is looked for from the states of the fit."""

    def fit_hypothesis(hypothesis, offered, context, learned):
        assert learned.states is fit.learned.states
        assert learned.equations is offered.equations
        return other

    def of_error(error):
        result = SimpleNamespace(interrupted=False)
        given = {"learned": two_step, "has_functions": False, "result": result}
        return SimpleNamespace(error=error, **given)

    fit, other = of_error(1e-5), of_error(error)
    monkeypatch.setattr(_from_diffusion, "fit_hypothesis", fit_hypothesis)
    monkeypatch.setattr(_from_diffusion, "meets_data", lambda fit, *_: fit.error < 0.01)
    misses = []
    monkeypatch.setattr(_from_diffusion, "_misses_near", lambda *_: bool(misses))
    row, offered = Candidate(Hypothesis(), why_not), learn_cole_hopf(15)
    found = or_simpler(fit, row, lambda _: offered, CONTEXT)
    assert found is (other if is_other else fit)
    misses.append("all of its terms")
    assert or_simpler(fit, row, lambda _: offered, CONTEXT) is fit
    misses.clear()
    fit.has_functions, near = True, of_error(1e-6)
    monkeypatch.setattr(_from_diffusion, "or_polynomial", lambda *_: near)
    found = or_simpler(fit, row, lambda _: offered, CONTEXT)
    assert found is (fit if why_not else near)
    fit.result.interrupted = True
    assert or_simpler(fit, row, lambda _: offered, CONTEXT) is fit


def test_what_misses_data_beside_exact_states(grown, two_step):
    """All terms that are on offer, linearised there: without a diffusion they do."""
    few = learn_cole_hopf(15, equation_kernel=Restriction(Polynomial(2), FEW[:2]))
    assert not _misses_near(grown, two_step, TermSearchSettings())
    assert _misses_near(grown, few, TermSearchSettings())


@dataclass(frozen=True)
class Compared:
    """What is asked of exact states whose terms are compared by evidence."""

    term_names: tuple
    terms_path: list
    name: str = "exact states, cubic polynomial"
    log_evidences, log_evidence = Fit.log_evidences, Fit.log_evidence
    or_more_probable = Fit.or_more_probable
    two_step = SimpleNamespace(variables=("t", "x"))
    result = SimpleNamespace(interrupted=False)

    @property
    def hypothesis(self):
        return Hypothesis(name=self.name)


@pytest.mark.parametrize("evidence, is_spreading", [(20.0, True), (-1.0, False)])
def test_what_spreads_is_looked_for_from_two_steps(monkeypatch, evidence, is_spreading):
    """Where the highest derivative is not among the terms that were found."""

    def compared(terms, value, *others, **changes):
        path = [*others, TermsStep(terms, 0.0, 0.0, 0.0, value)]
        return Compared(terms, path, **changes)

    fit = compared(("u_x",), 1.0, name="exact states, quadratic polynomial")
    carried = compared(("u_x", "u"), 2.0, TermsStep(("u_x",), 0.0, 0.0, 0.0, 1.0))
    spreading = compared(("u_x", "u_xx"), evidence)
    for name, value in {
        "sees_noise": True,
        "are_many": False,
        "predicts_within_noise": True,
        "_among_more_terms": carried,
        "_leads": False,
        "fit_hypothesis": spreading,
    }.items():
        give = partial(lambda value, *_, **__: value, value)
        monkeypatch.setattr(_from_diffusion, name, give)
    hypothesis = Hypothesis(name="exact states, cubic polynomial", n_terms="auto")
    found = or_more_terms(fit, hypothesis, lambda: None, CONTEXT)
    assert found.term_names == (("u_x", "u_xx") if is_spreading else ("u_x",))
    assert {("u_x", "u"), ("u_x", "u_xx")} <= {step.terms for step in found.terms_path}
    monkeypatch.setattr(_from_diffusion, "_leads", lambda *_: True)
    found = or_more_terms(fit, hypothesis, lambda: None, CONTEXT)
    assert ("u_x", "u_xx") not in {step.terms for step in found.terms_path}
