"""How uncertain equations with terms are, by coefficients and by other terms."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._observations.data import noise_range
from keql._regression.two_step import FitSettings, Hypothesis
from keql.kernels import Polynomial, Restriction
from keql.model_selection._beside import _uncertain
from keql.model_selection._beside._uncertain import least_told, uncertainty_of_terms
from keql.model_selection._criteria import Criteria
from keql.model_selection._fit import Context
from keql.model_selection._terms._fewer import TermsStep
from keql.model_selection._terms._trajectories import fit_trajectories

RATE, FIRST = 0.6, 2.0
CONTEXT = Context(FitSettings(), lambda *_: False)


def decay(n=30, noise=0.02, seed=1):
    """Times, and values of u_t = -0.6 u with noise in parts of their spread."""
    t = np.linspace(0, 4, n)
    u = FIRST * np.exp(-RATE * t)
    noise = noise * np.std(u)
    return t, u + noise * np.random.default_rng(seed).standard_normal(n)


@pytest.fixture(scope="module")
def fit():
    """Exact states of a decay, its term given."""
    t, u = decay()
    kernel = Restriction(Polynomial(1), ["u"])
    model = TwoStepKEqL("u", "u_t", variables="t", equation_kernel=kernel)
    learned = model._learn_in_two_steps(t[:, None], u, None)
    return fit_trajectories(learned, Hypothesis(n_terms=None), CONTEXT)


def test_coefficients_are_as_uncertain_as_least_squares_say(fit):
    """Those of rate and initial value; P has the relative deviation of the rate."""
    t, _ = decay()
    u = FIRST * np.exp(-RATE * t)
    slopes = np.column_stack([u / FIRST, -t * u]) / float(fit.problem.prior.noise[0])
    covariance = np.linalg.inv(slopes.T @ slopes)
    expected = covariance[1, 1] ** 0.5 / RATE
    assert uncertainty_of_terms(fit) == {"u_t": pytest.approx(expected, rel=0.05)}


def test_other_terms_count_as_they_are_probable(fit):
    """One of a third of the probability differs by 20 % where states are."""
    [equation] = fit.learned.equations

    def times(factor):
        other = SimpleNamespace(
            unknown_part=lambda S: factor * equation.unknown_part(S)
        )
        return (other,)

    alone = uncertainty_of_terms(fit)["u_t"]
    steps = [
        TermsStep(("u",), 0, 0, 0, 5.0, equations=times(1.0)),
        TermsStep(("u^2",), 0, 0, 0, 5.0 - np.log(2), equations=times(1.2)),
        TermsStep(("u^3",), 0, 0, 0, 9.0),  # of which nothing else is known
        TermsStep(("u^4",), 0, 0, 0, np.nan, equations=times(3.0)),
    ]
    found = uncertainty_of_terms(replace(fit, terms_path=steps))["u_t"]
    assert found**2 == pytest.approx(alone**2 + 0.2**2 / 3)


def test_inner_parameters_of_functions_are_free(fit, monkeypatch):
    """Their derivatives are beside the terms in the equations of a search."""
    [learned] = fit.learned.equations
    posterior = SimpleNamespace(
        weights=np.ones(2), std=lambda A: 0.3 * np.linalg.norm(A, axis=1)
    )
    free = SimpleNamespace(
        posterior=posterior,
        basis=lambda S: np.column_stack([3 * S[:, 1], 4 * S[:, 1]]),
        unknown_part=learned.unknown_part,
    )
    steps = [TermsStep(("u",), 0, 0, 0, 0.0, equations=(free,))]
    changed = replace(fit, terms_path=steps)
    monkeypatch.setattr(type(fit), "has_functions", True)
    u = learned.training_features[:, 1]
    size = np.sqrt(np.mean(learned.unknown_part(learned.training_features) ** 2))
    expected = 1.5 * np.sqrt(np.mean(u**2)) / size
    assert uncertainty_of_terms(changed)["u_t"] == pytest.approx(expected)


def test_equations_with_hidden_states_are_not_asked():
    """Nothing tells the unit of y, nor the coefficients of what has it."""
    t = np.linspace(0, 6, 40)
    y = np.column_stack([np.sin(t), np.full(40, np.nan)])
    model = TwoStepKEqL(
        ("x", "y"),
        ("x_t", "y_t"),
        variables="t",
        states=("x", "y"),
        equation_kernel=Polynomial(1),
    )
    learned = model._learn_in_two_steps(t[:, None], y, None)
    fit = SimpleNamespace(
        terms_path=[],
        term_names=[],
        two_step=learned,
        learned=learned,
        is_exact=False,
        has_functions=False,
    )
    assert uncertainty_of_terms(fit) == {}
    seen = replace(
        learned,
        observations=model._learn_in_two_steps(
            t[:, None], np.column_stack([np.sin(t), np.cos(t)]), None
        ).observations,
    )
    fit.learned = seen
    assert set(uncertainty_of_terms(fit)) == {"x_t", "y_t"}


def test_equations_without_a_list_of_terms_are_not_asked(fit, monkeypatch):
    monkeypatch.setattr(_uncertain, "terms_of", lambda _: None)
    assert uncertainty_of_terms(fit) == {}


@pytest.mark.parametrize(
    "n, noise, n_terms, told",
    [(8, 0.15, "auto", True), (60, 0.02, "auto", False), (8, 0.15, None, False)],
)
def test_what_noise_leaves_of_a_chosen_equation_is_told(n, noise, n_terms, told):
    """Who keeps all terms asks for no choice."""
    t, u = decay(n, noise)
    kernel = Restriction(Polynomial(1), ["u"])
    model = OneStepKEqL(
        "u", "u_t", variables="t", equation_kernel=kernel, n_terms=n_terms
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model.fit(t[:, None], u)
    concerns = [c for c in model.fit_report_.concerns if "is uncertain by" in c]
    assert len(concerns) == told


@pytest.mark.parametrize(
    "changes, least",
    [
        ({}, "uncertain_if_exact"),
        ({"is_exact": False}, "uncertain_terms"),
        ({"is_driven": True}, "uncertain_terms"),
        ({"sees": 1e-2}, "uncertain_terms"),
        ({"finds": 1e-2}, "uncertain_terms"),
    ],
)
def test_less_is_told_of_exact_data(fit, changes, least):
    """In them neither two steps nor exact states find more than the lowest noise."""
    lowest, _ = noise_range(fit.two_step.observations.sizes())
    levels = {"sees": lowest, "finds": lowest} | changes
    stand_in = SimpleNamespace(
        is_exact=changes.get("is_exact", True),
        is_driven=changes.get("is_driven", False),
        two_step=replace(fit.two_step, observation_noise=np.array(levels["sees"])),
        problem=SimpleNamespace(prior=SimpleNamespace(noise=np.array(levels["finds"]))),
    )
    criteria = Criteria()
    assert least_told(stand_in, criteria) == getattr(criteria, least)
