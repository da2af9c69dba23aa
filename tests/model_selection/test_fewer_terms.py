"""Fits with fewer terms."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import expm
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL
from keql.datasets import make_burgers, make_duffing
from keql.kernels import RBF, Constant, Polynomial
from keql.model_selection._terms._fewer import (
    TermCriteria,
    TermsStep,
    first_rise,
    largest_gap,
    most_probable,
    with_rivals,
)

DATA = make_burgers(60, collocation_shape=(12, 15), random_state=0)
SETTINGS = dict(
    DATA.problem,
    state_kernel=RBF([0.5, 0.12], "fixed"),
    equation_kernel=Constant(1.0, "fixed") * Polynomial(2),
    observation_noise=1e-3,
    equation_noise=1e-2,
    n_restarts=0,
)


def duffing(**params):
    data = make_duffing(40, t_max=8.0, n_collocation=150, random_state=0)
    model = OneStepKEqL(
        **data.problem,
        state_kernel=data.kernels["state_kernel"],
        equation_kernel=Polynomial(3),
        observation_noise=1e-5,
        equation_noise=1e-4,
        solver="dual",
        **params,
    )
    return model.fit(data.X, data.y)


@dataclass(frozen=True)
class Searched:
    """A fit with the sets of terms that were solved for."""

    terms_path: list


def step(terms, evidence):
    equations = (object(),)
    return TermsStep(tuple(terms), 0.0, 1.0, 0.1, evidence, {"x": 1.0}, 0.0, equations)


def test_sets_of_other_fits_are_rivals_without_their_coefficients():
    """The highest evidence of each that is not known is; that of known ones stays."""
    fit = Searched([step("ab", 5.0), step("a", 1.0)])
    others = [Searched([step("ba", 9.0), step("c", 2.0)]), Searched([step("c", 3.0)])]
    found = most_probable(with_rivals(fit, others).terms_path)
    told = {"".join(sorted(terms)): own.log_evidence for terms, own in found.items()}
    assert told == {"ab": 5.0, "a": 1.0, "c": 3.0}
    assert found[frozenset("c")].coefficients is None
    assert found[frozenset("ab")].coefficients == {"x": 1.0}
    assert len(fit.terms_path) == 2


def test_gap_is_the_first_rise_far_above_all_before():
    alike = np.array([1.0, -2.0, 0.5, -1.0])
    same = [alike] * 6
    assert largest_gap([10.0, 11.0, 13.0, 400.0, 900.0], same, 100, TermCriteria()) == 2
    assert (
        largest_gap([10.0, 500.0, 1000.0], same, 100, TermCriteria()) == 0
    )  # all terms are needed
    assert (
        largest_gap([10.0, 10.1, 10.2], same[:3], 100, TermCriteria(), fewest=True) == 2
    )  # no term is worth what it is granted
    assert largest_gap([10.0, 10.1, 10.2], same[:3], 100, TermCriteria()) == 0
    assert (
        largest_gap([10.0, 130.0, 240.0], same[:3], 100, TermCriteria()) == 0
    )  # nothing stands out
    better = [alike, 0.9 * alike, 0.5 * alike, 0.8 * alike]
    assert largest_gap([10.0, 10.1, 10.2, 10.3], better, 100, TermCriteria()) == 2
    # where residuals are above the noise, rises of the size of all before are none
    losses = [1e6, 1.001e6, 1.002e6, 5e6]
    assert largest_gap(losses, same, 100, TermCriteria()) == 2
    # nor is there a gap where predictions suffer, much or by a little everywhere
    losses = [10.0, 11.0, 13.0, 400.0]
    one = alike * [1.0, 9.0, 1.0, 1.0]
    for worse in (one, 1.2 * alike):
        assert (
            largest_gap(losses, [alike, alike, worse, worse], 100, TermCriteria()) == 0
        )
    assert (
        largest_gap(
            losses,
            [alike, alike, alike * [0.9, 1.1, 1, 1], alike],
            100,
            TermCriteria(),
        )
        == 2
    )


def test_a_rise_counts_where_predictions_suffer():
    """And for each of several terms that are taken out at once."""
    errors = [np.array([1.0, -2.0, 0.5]) * f for f in (1.0, 1.0, 0.99, 1.3)]
    losses, criteria = [10.0, 12.0, 112.0, 312.0], TermCriteria()
    assert first_rise(losses, errors, 4.0, criteria) == 2
    suffers = [errors[i] for i in (0, 1, 3, 3)]
    assert first_rise(losses, suffers, 4.0, criteria) == 1
    assert first_rise(losses, suffers, 1e3, criteria) is None
    # 100 for each of one term, or of 50
    assert first_rise(losses, suffers, 4.0, criteria, [60, 59, 58, 57]) == 1
    assert first_rise(losses[:3], suffers[:3], 4.0, criteria, [60, 59, 9]) is None
    rising = [10.0, 110.0, 130.0], [suffers[0]] * 3, 4.0, criteria
    assert largest_gap(*rising) == 0
    assert largest_gap(*rising, [60, 10, 9]) == 1


def test_fits_of_a_system_end_where_the_number_of_terms_is_certain():
    t = np.linspace(0, 6, 15)[:, None]
    y = np.column_stack([np.sin(2 * t), np.cos(2 * t)])
    problem = {"operators": ("a", "b"), "known_part": ("a_t", "b_t")}
    names = {"states": ("a", "b"), "variables": ("t",)}
    kernels = {"state_kernel": RBF(1.0), "observation_noise": 1e-4, "solver": "dual"}
    model = OneStepKEqL(**problem, **names, **kernels, n_terms="auto").fit(t, y)
    assert model.equation_["a_t"].terms() == {"b": pytest.approx(2, rel=1e-3)}
    assert model.equation_["b_t"].terms() == {"a": pytest.approx(-2, rel=1e-3)}
    counts = [len(step.terms) for step in model.terms_path_]
    assert counts[0] == 12 and counts[-1] == 2
    kept = model.terms_path_[-1]
    assert set(kept.terms) == {"a_t: b", "b_t: a"}
    # the last fit is solved to the tolerance of the settings
    assert model.loss_curve_[-1] == pytest.approx(kept.loss, rel=1e-3)
    assert model.loss_curve_[-1] <= kept.loss * (1 + 1e-12)


def test_terms_of_the_duffing_equation_are_found():
    model = duffing(n_terms="auto")
    terms = model.equation_.terms()
    assert set(terms) == {"u", "u^3", "u_t"}
    for term, value in (("u", 3.0), ("u^3", -3.0), ("u_t", -0.2)):
        assert terms[term] == pytest.approx(value, rel=1e-2)
    counts = [len(step.terms) for step in model.terms_path_]
    assert counts == list(range(counts[0], counts[-1] - 1, -1))
    assert counts[0] == 10
    kept = model.terms_path_[counts[0] - 3]
    assert set(kept.terms) == set(terms)
    assert kept.loss == pytest.approx(model.loss_curve_[-1], rel=1e-3)


def test_number_of_terms_can_be_given():
    model = duffing(n_terms=4)
    assert len(model.equation_.terms()) == 4
    assert {"u", "u^3", "u_t"} < set(model.equation_.terms())
    assert len(duffing(n_terms=20).equation_.terms()) == 10


def test_fewer_terms_than_the_data_need_if_so_many_are_asked_for():
    """However large the loss is without the others."""
    with pytest.warns(ConvergenceWarning, match="residuals are"):
        model = duffing(n_terms=1)
    assert len(model.equation_.terms()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "n_terms", [1, {"x_t": 1, "y_t": 2}, {"x_t": 1, "y_t": "auto"}]
)
def test_each_equation_has_the_number_of_terms_that_is_given_for_it(n_terms):
    """x' = 0.3 x + y and y' = -x - 0.2 y, without a term that one of them needs."""
    t = np.linspace(0, 5, 26)[:, None]
    matrix = np.array([[0.3, 1.0], [-1.0, -0.2]])
    y = np.array([expm(matrix * time) @ [1.0, 0.5] for time in t[:, 0]])
    model = OneStepKEqL(
        operators=("x", "y"),
        known_part=("x_t", "y_t"),
        states=("x", "y"),
        variables=("t",),
        collocation_points=40,
        state_kernel=RBF(1.0, "fixed"),
        observation_noise=1e-4,
        equation_noise=1e-4,
        n_terms=n_terms,
    )
    with pytest.warns(ConvergenceWarning, match="residuals are"):
        found = model.fit(t, y).equation_.terms()
    assert set(found["x_t"]) == {"y"}
    if not isinstance(n_terms, dict) or n_terms["y_t"] != "auto":
        expected = n_terms["y_t"] if isinstance(n_terms, dict) else n_terms
        assert len(found["y_t"]) == expected


def test_result_is_that_of_fitting_these_terms_only():
    """A fit of the same problem with the final equation kernel has the same minimum."""
    model = OneStepKEqL(**SETTINGS, n_terms=3, tol=1e-10).fit(DATA.X, DATA.y)
    kernel = Constant(1.0, "fixed") * model.equation_kernel_
    settings = SETTINGS | {"equation_kernel": kernel, "n_terms": None}
    again = OneStepKEqL(**settings, tol=1e-10).fit(DATA.X, DATA.y)
    assert again.loss_curve_[-1] == pytest.approx(model.loss_curve_[-1], rel=1e-4)
    for term, value in model.equation_.terms().items():
        assert again.equation_.terms()[term] == pytest.approx(value, rel=1e-2)


def test_rough_fits_of_a_path_are_ended_and_the_chosen_one_is_not():
    """After a step at most of each, the fit that is chosen is the minimum all the same.

    Terms of the problem above, found by a path whose fits with fewer terms have one
    step, and solved to the last digit by another fit.
    """
    criteria = TermCriteria(max_steps=1, tol=1e-1)
    with pytest.MonkeyPatch.context() as patch:
        module = "keql.model_selection._terms._fewer.TermCriteria"
        patch.setattr(module, lambda: criteria)
        model = OneStepKEqL(**SETTINGS, n_terms=3, tol=1e-10).fit(DATA.X, DATA.y)
    exact = OneStepKEqL(**SETTINGS, n_terms=3, tol=1e-10).fit(DATA.X, DATA.y)
    assert model.loss_curve_[-1] == pytest.approx(exact.loss_curve_[-1], rel=1e-6)
    rough = [step.loss for step in model.terms_path_ if len(step.terms) == 3]
    assert rough[0] > model.loss_curve_[-1]
    assert model.converged_


@pytest.mark.slow
def test_terms_do_not_depend_on_units():
    X, y = DATA.X * [60.0, 1e3], DATA.y * 1e-6
    settings = SETTINGS | {
        "collocation_points": DATA.collocation_points * [60.0, 1e3],
        "state_kernel": Constant(1e-12, "fixed") * RBF([30.0, 120.0], "fixed"),
        "equation_kernel": Constant((1e-6 / 60) ** 2, "fixed") * Polynomial(2),
        "observation_noise": 1e-9,
        "equation_noise": 1e-8 / 60,
    }
    ours = OneStepKEqL(**SETTINGS, n_terms="auto").fit(DATA.X, DATA.y)
    theirs = OneStepKEqL(**settings, n_terms="auto").fit(X, y)
    assert list(ours.equation_.terms()) == list(theirs.equation_.terms())
    np.testing.assert_allclose(
        [step.loss for step in theirs.terms_path_],
        [step.loss for step in ours.terms_path_],
        rtol=1e-3,
    )


def test_terms_are_chosen_by_default():
    t = np.linspace(0, 6, 25)[:, None]
    settings = {"operators": "u", "known_part": "u_t", "variables": "t"}
    growth = 1 / (1 + 9 * np.exp(-t[:, 0]))
    model = OneStepKEqL(**settings).fit(t, growth)
    assert set(model.equation_.terms()) == {"u", "u^2"}
    model.set_params(n_terms=None).fit(t, growth)
    assert set(model.equation_.terms()) == {"1", "u", "u^2"}


def test_an_equation_without_terms_is_refused():
    """Unless how many there are is left open."""
    settings = {**SETTINGS, "equation_kernel": RBF(1.0), "n_restarts": 0}
    with pytest.raises(ValueError, match="n_terms=2 needs a polynomial"):
        OneStepKEqL(**settings, n_terms=2).fit(DATA.X, DATA.y)
    found = []
    for given in ({}, {"n_terms": None}):
        model = OneStepKEqL(**settings, max_iter=2, **given)
        with pytest.warns(ConvergenceWarning):
            model.fit(DATA.X, DATA.y)
        found.append(model.equation_.unknown_part(np.ones((1, 5))))
    assert found[0] == found[1]


@pytest.mark.slow
def test_terms_of_a_sum_of_kernels():
    """Several of its features are made of the same monomials."""
    t = np.linspace(0, 6, 12)[:, None]
    model = OneStepKEqL(
        operators=("u",),
        known_part="u_tt",
        equation_kernel=Polynomial(1) + Polynomial(2),
        variables=("t",),
        n_terms="auto",
        state_kernel=RBF(1.0),
        observation_noise=1e-4,
    ).fit(t, np.sin(2 * t.ravel()))
    assert model.equation_.terms() == {"u": pytest.approx(-4, rel=1e-3)}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_no_term_stays_that_is_worth_nothing(noise):
    """u_t = v_x and v_t = u_x in a box: no terms can go once there is one of each."""
    rng = np.random.RandomState(1)
    X = rng.uniform(size=(60, 2)) * [1, 2]
    left, right = (np.sin(2 * (X[:, 1] + sign * X[:, 0]) + sign) for sign in (1, -1))
    y = np.column_stack([left + right, left - right])
    y += noise * rng.standard_normal(y.shape)
    model = OneStepKEqL(
        operators=("u", "v", "u_x", "v_x"),
        known_part=("u_t", "v_t"),
        states=("u", "v"),
        variables=("t", "x"),
    ).fit(X, y)
    found = {name: {*each.terms()} for name, each in model.equation_.items()}
    assert found == {"u_t": {"v_x"}, "v_t": {"u_x"}}
