"""Equations of a system that the data do not determine."""

import re
import warnings
from copy import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from two_step_fields import field_of, soliton

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._regression.two_step import Hypothesis
from keql.fit_report._describe import (
    SearchSummary,
    at_points,
    describe_fit,
    parts_between,
)
from keql.fit_report._related import _conserved, related, related_in_two_steps
from keql.fit_report._report import ReportCriteria
from keql.fit_report._undetermined import (
    amplifying,
    exhausted,
    interpolating,
    uncertain,
    undetermined,
    unexplained_between,
    unresolved,
)
from keql.kernels import RBF, Polynomial
from keql.model_selection._selection import Selection

T = np.linspace(0, 5, 26)[:, None]
PAIR = {"operators": ("x", "y"), "known_part": ("x_t", "y_t"), "states": ("x", "y")}


def learn(scale=1.0, **changes):
    """x' = y, y' = -x, from exact values; its LearnedModel."""
    y = np.column_stack([np.sin(T), np.cos(T)])
    model = TwoStepKEqL(
        **PAIR | changes,
        variables=("t",),
        state_kernel=RBF(1.5, "fixed"),
        observation_noise=1e-3,
        equation_noise={"x_t": 1e-2, "y_t": scale},
        equation_kernel=Polynomial(1),
    )
    return model._learn_in_two_steps(T, y, None)


def test_coefficients_that_are_all_within_their_errors():
    assert undetermined(learn(1e-2)) == []
    (text,) = undetermined(learn(100.0))
    assert text.startswith("the equation y_t is not determined: none of its coeff")


@pytest.mark.parametrize("noise", [1e-2, 100.0])
def test_single_equations_are_left_out(noise):
    model = TwoStepKEqL(("u",), "u_t", variables=("t",), equation_noise=noise)
    learned = model.set_params(equation_kernel=Polynomial(1))._learn_in_two_steps(
        T, np.exp(-T[:, 0]), None
    )
    assert undetermined(learned) == []


def test_states_that_change_on_a_finer_grid_are_not_resolved():
    grid = "40 steps in time, 80 points in space"
    (text,) = unresolved(grid, 9.51)
    assert f"with {grid} they differ by 9.5 times the noise" in text
    assert unresolved(grid, 0.0) == []


@pytest.mark.parametrize("phase", [0.3, 1.0])
def test_operators_in_proportion_are_named(phase):
    one_mode = field_of(lambda X: np.exp(-X[:, 0]) * np.cos(X[:, 1] + phase))
    (text,) = related(one_mode, 5e-3)
    assert text.startswith("u_xx = -1.00 u to 0.") and "the equation u_t:" in text
    assert related(field_of(soliton), 5e-3) == []
    two_modes = field_of(lambda X: np.cos(X[:, 1] / 2) + np.cos(X[:, 1] + phase))
    assert related(two_modes, 5e-3) == []


def test_operators_that_differ_by_errors_are_in_proportion(monkeypatch):
    def mode(X):
        return np.exp(-X[:, 0]) * np.cos(X[:, 1] + 1.0)

    noisy = field_of(mode, 0.02, (1.0, 1.5))
    (text,) = related(noisy, 5e-3)
    factor, size = re.match(r"u_xx = (\S+) u to (\S+) %", text).groups()
    assert float(factor) == pytest.approx(-1, rel=0.05) and 0.5 < float(size) < 5
    assert related(field_of(soliton, 0.02, (1.0, 1.5)), 5e-3) == []
    kind = type(noisy.states[0])  # the same, if the states are known exactly
    monkeypatch.setattr(kind, "variance", lambda self, X, _: np.zeros(len(X)))
    assert related(noisy, 5e-3) == []


def test_high_derivatives_are_related_unless_exact_states_contradict():
    def modes(X, third=0.0):
        waves = np.cos(X[:, 1] / 2) + 0.5 * np.cos(X[:, 1] + 1)
        return np.exp(-X[:, 0]) * (waves + third * np.cos(0.7 * X[:, 1]))

    given = {"noise": 3e-3, "scales": (2.0, 3.0), "operators": ("u", "u_xx", "u_xxxx")}
    found = field_of(modes, **given)
    (text,) = related_in_two_steps(found, found)
    pattern = r"u_xxxx = -(\S+) u - (\S+) u_xx to"
    factors = [float(factor) for factor in re.match(pattern, text).groups()]
    assert factors == pytest.approx([1 / 4, 5 / 4], rel=0.1)
    other = field_of(lambda X: modes(X, 0.2), **given)
    assert related_in_two_steps(found, other) == []
    assert related_in_two_steps(other, other) == []
    assert related_in_two_steps(replace(found, states=None), found) == []


def test_a_constant_state_is_named():
    (text,) = related(field_of(lambda X: np.full(len(X), 2.0)), 5e-3)
    assert text.startswith("u = 2.00 to")


@pytest.mark.parametrize("value", [1.0, 0.7, -3e6])
def test_equal_values_tell_nothing_of_changes(value):
    """Whatever rounding errors make of an equation; a value that differs does."""
    y = np.full(len(T), value)
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",), n_terms="auto")
    with pytest.warns(IdentifiabilityWarning, match="all observed values are equal"):
        model.fit(T, y)
    for scale, is_constant in ((1.0, True), (1 + 1e-13, False)):
        y[3] *= scale
        two_step = model._learn_in_two_steps(T, y, None)
        found = Selection.is_constant.fget(SimpleNamespace(best=two_step))
        assert found is is_constant


def test_a_conserved_sum_is_named_with_its_constant():
    y = np.column_stack([np.exp(-T), 3 - np.exp(-T)])
    model = TwoStepKEqL(**PAIR, variables=("t",), observation_noise=1e-6)
    (text,) = related(model._learn_in_two_steps(T, y, None), 1e-3)
    assert text.startswith("y = -1.00 x + 3.00 to")
    assert "the equation x_t or y_t:" in text


def test_each_of_several_conserved_sums_is_named():
    """As those of atoms in a reaction; any mixture of both would be one, too."""
    y = np.column_stack([np.exp(-T), 3 - np.exp(-T), 2 * np.exp(-T) + 0.5])
    names = {"operators": ("x", "y", "z"), "known_part": ("x_t", "y_t", "z_t")}
    model = TwoStepKEqL(**names, states=("x", "y", "z"), variables=("t",))
    model.set_params(observation_noise=1e-6)
    texts = related(model._learn_in_two_steps(T, y, None), 1e-3)
    starts = ["y = -1.00 x + 3.00 to", "z = 2.00 x + 0.500 to"]
    for start, text in zip(starts, sorted(texts), strict=True):
        assert text.startswith(start) and "the equation x_t or y_t or z_t:" in text


def test_conserved_products_are_those_of_independent_states():
    """Of a circle beside multiples of its states; on a line, or a point, are none."""
    u, v = np.cos(T), np.sin(T)
    circle, line = np.hstack([u, u + 2, v, 1 - v]), np.hstack([u, 2 * u + 1, 3 - u])
    (found,) = _conserved(["u", "w", "v", "z"], circle, 1e-7)
    assert found.text == "v^2 = -1.00 u^2 + 1.00"
    assert _conserved(["a", "b", "c"], line, 1e-7) == []
    equal = 3.7 * (1 + np.finfo(float).eps * (np.arange(26) % 2))
    assert _conserved(["u"], equal[:, None], 1e-7) == []


@pytest.mark.slow
def test_a_standing_wave_is_not_fitted_in_silence():
    X = np.random.default_rng(1).uniform(0, 3, (60, 2))
    y = np.cos(2 * X[:, 0]) * np.sin(2 * X[:, 1] + 0.3)
    model = OneStepKEqL(("u", "u_xx"), "u_tt", variables=("t", "x"))
    with pytest.warns(IdentifiabilityWarning, match="u_xx = -4.00 u to"):
        model.fit(X, y)


def test_a_limit_cycle_is_named(noise=0.02):
    """Any multiple of x^2 + y^2 - 1 may be added to x_t = -y and y_t = x."""
    y = np.column_stack([np.cos(T), np.sin(T)])
    y = y + noise * np.random.default_rng(2).standard_normal(y.shape)
    model = OneStepKEqL(**PAIR, variables=("t",))
    with pytest.warns(
        IdentifiabilityWarning, match=r"added to the equation x_t or y_t"
    ):
        model.fit(T, y)
    text = next(text for text in model.fit_report_.concerns if "y^2" in text)
    left, right = text.split(" to ")[0].split(" = ")
    square, constant = right.split(" x^2 + ")
    assert left == "y^2"
    assert float(square) == pytest.approx(-1, abs=2 * noise + 1e-6)
    assert float(constant) == pytest.approx(1, abs=2 * noise + 1e-6)


def test_a_conserved_energy_is_in_the_report():
    """Of an oscillator without friction; there is no warning, and no doubt."""
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",))
    model.fit(T, 1.5 * np.cos(2 * T[:, 0]))
    (text,) = model.fit_report_.concerns
    assert text.startswith("u_t^2 = -4.00 u^2 + 9.00 to ")
    assert "in doubt" not in repr(model.equation_)


def test_orbits_that_differ_have_no_energy_in_common():
    """Nor has one that loses it."""
    t = np.tile(T, (2, 1))
    labels = np.repeat([0.0, 1.0], len(T))[:, None]
    two = np.concatenate([np.cos(2 * T), 2 * np.sin(2 * T)])[:, 0]
    damped = np.exp(-0.1 * T[:, 0]) * np.cos(2 * T[:, 0])
    for X, y, more in [
        (np.hstack([t, labels]), two, {"function_column": 1}),
        (T, damped, {}),
    ]:
        model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",), **more).fit(X, y)
        assert not any("^2 =" in text for text in model.fit_report_.concerns)


@pytest.mark.parametrize("least, n_terms", [(3, "auto"), (4, "auto"), (3, 3)])
@pytest.mark.parametrize("is_exact", [False, True])
def test_equations_of_all_terms_are_in_doubt(is_exact, least, n_terms):
    """Unless these are few, or all of them were asked for."""
    learned = learn()
    given = SimpleNamespace(of_equation=lambda name: SimpleNamespace(n_terms=n_terms))
    fit = {"learned": learned, "two_step": learned, "hypothesis": given}
    fit = SimpleNamespace(**fit, is_exact=is_exact, has_functions=False)
    found = exhausted(fit, least)
    assert len(found) == (2 if (least, n_terms) == (3, "auto") else 0)
    assert all("has 3 of the 3 terms that were tried" in text for text in found)


@pytest.mark.parametrize("share, is_exact, n", [(0.6, False, 1), (0.7, False, 0)])
def test_equations_of_most_terms_are_in_doubt_at_collocation_points(share, is_exact, n):
    learned = learn()
    smaller = [copy(equation) for equation in learned.equations]
    smaller[0].weights = smaller[0].weights * [1.0, 1.0, 0.0]
    for equation in smaller[1:]:
        equation.weights = np.zeros(3)
    fewer = replace(learned, equations=smaller)
    given = SimpleNamespace(of_equation=lambda name: SimpleNamespace(n_terms="auto"))
    fit = SimpleNamespace(
        learned=fewer,
        two_step=learned,
        hypothesis=given,
        is_exact=is_exact,
        has_functions=False,
    )
    assert len(exhausted(fit, 3, share)) == n
    fit.is_exact = True
    assert not exhausted(fit, 3, share)
    fit.has_functions = True  # whatever else was on offer
    assert not exhausted(fit, many_with_functions=3)
    [text] = exhausted(fit, many_with_functions=2)
    assert "has 2 terms with elementary functions among them" in text


@pytest.mark.parametrize(
    "noise, multiple, told",
    [(0.02, 20.0, True), (0.02, 2.0, False), (1e-4, 20.0, False)],
)
def test_terms_that_cancel_amplify_noise(noise, multiple, told):
    """P = x + multiple (x - y) where y = x from 0 to 1, seen with noise."""
    S = np.repeat(np.linspace(0, 1, 9)[:, None], 2, axis=1)
    equation = SimpleNamespace(
        training_features=S,
        feature_names=("x", "y"),
        gradient=lambda S: np.tile([1 + multiple, -multiple], (len(S), 1)),
        unknown_part=lambda S: S[:, 0] + multiple * (S[:, 0] - S[:, 1]),
    )
    setup = SimpleNamespace(
        equations=[SimpleNamespace(name="x_t", depends_on=(0, 1))], is_system=True
    )
    operators = [SimpleNamespace(name="x"), SimpleNamespace(name="y")]
    learned = SimpleNamespace(
        variables=("t",),
        observations=SimpleNamespace(operators=operators),
        setup=setup,
        equations=[equation],
    )
    prior = SimpleNamespace(noise=np.full(2, noise))
    fit = SimpleNamespace(
        is_exact=True, learned=learned, problem=SimpleNamespace(prior=prior)
    )
    sentences = amplifying(fit, 0.1, 6.0)
    assert len(sentences) == told
    if told:
        change = noise * np.hypot(21, 20) / np.sqrt(np.mean(S[:, 0] ** 2))
        assert "of the equation x_t cancel nearly" in sentences[0]
        assert f"changes by {100 * change:.2g} % of its size" in sentences[0]
    fit.is_exact = False
    assert amplifying(fit, 0.1, 6.0) == []


def test_equations_without_a_list_of_terms_are_uncertain():
    """By the standard deviation of P where states are."""
    y = np.exp(-T[:, 0])
    given = {"variables": ("t",), "observation_noise": 1e-2, "equation_noise": 0.1}
    model = TwoStepKEqL(("u",), "u_t", **given, equation_kernel=RBF(1.0, "fixed"))
    learned = model._learn_in_two_steps(T, y, None)
    (equation,) = learned.equations
    S = equation.training_features[:, :2]
    deviation = equation.posterior.std(equation.basis(S))
    part = np.linalg.norm(deviation) / np.linalg.norm(equation.unknown_part(S))
    assert uncertain(learned, 1.01 * part) == []
    (text,) = uncertain(learned, 0.99 * part)
    assert f"uncertain by {100 * part:.2g} % of its size where states are" in text
    (text,) = uncertain(learned, 2.9 * part, 3.0)
    assert f"uncertain by {300 * part:.2g} % of its size where states are (" in text
    assert "with 3 times the errors" in text
    assert uncertain(learned, 3.1 * part, 3.0) == []
    model.set_params(equation_kernel=Polynomial(1))
    assert uncertain(model._learn_in_two_steps(T, y, None), 0.0) == []


@pytest.mark.parametrize(
    "noise, given, most", [(1e-8, None, 1e-3), (0.05, None, 0.03), (1e-8, 1e-3, 0.03)]
)
@pytest.mark.parametrize("dispersion, factor", [(0.25, 1.0), (9.0, 3.0)])
def test_exact_data_leave_less_uncertain(noise, given, most, dispersion, factor):
    """Unless noise is given; poor predictions leave more, where states are not exact.

    Two steps find no noise in exact data.
    """
    t, rng = np.linspace(0, 3, 60)[:, None], np.random.default_rng(0)
    y = np.exp(-t[:, 0]) + noise * rng.standard_normal(60)
    model = OneStepKEqL("u", "u_t", variables="t", observation_noise=given)
    two_step = model._learn_in_two_steps(t, y, None)
    fit = SimpleNamespace(
        two_step=two_step,
        observations=two_step.observations,
        hypothesis=model._hypothesis,
        is_exact=False,
        model=SimpleNamespace(left_out_dispersion=lambda: dispersion),
    )
    assert Selection(joint=fit).uncertain == (most, factor)
    fit.is_exact = True
    assert Selection(exact=fit).uncertain == (most, 1.0)


def test_an_equation_of_lower_order_is_no_energy():
    """Logistic growth as u_tt = u_t - 2 u u_t, to which multiples may be added."""
    t = np.linspace(0, 6, 30)
    u = 0.1 / (0.1 + 0.9 * np.exp(-t))
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",))
    with pytest.warns(IdentifiabilityWarning, match=r"u\^2 = 1.00 u - 1.00 u_t to"):
        model.fit(t[:, None], u)


@pytest.mark.slow
def test_any_function_of_an_input_is_a_polynomial_on_few_values():
    """Growth whose rate is a rational function of a dose."""
    quartic = Polynomial(4)
    for doses, kernel, told in (
        ([0.0, 0.5, 1.0, 2.0], quartic, True),
        ([0.0, 0.5, 1.0, 2.0], None, False),
        ([0.0, 1.0], None, False),
    ):
        t, parts = np.linspace(0, 5, 10), []
        for dose in doses:
            rate = 1 - 0.8 * dose / (dose + 0.5)
            growth = 0.3 * np.exp(rate * t)
            parts.append(rate * growth / (rate + growth - 0.3))
        X = pd.DataFrame({"t": np.tile(t, len(doses))})
        X["label"] = np.repeat(np.arange(len(doses)), len(t)).astype(str)
        X["dose"] = np.repeat(doses, len(t))
        model = OneStepKEqL(
            "u", "u_t", variables="t", function_column="label", inputs={"dose": "dose"}
        ).set_params(equation_kernel=kernel)
        with warnings.catch_warnings(record=True, action="always") as caught:
            model.fit(X, np.concatenate(parts))
        texts = [str(each.message) for each in caught]
        assert any("has 4 values, and" in text for text in texts) == told
        assert told or not texts
        if len(doses) > 2 and not told:
            assert str(model.equation_) == (
                "u_t = -1.00 u^2 + 0.400 u/(0.5 + dose) + 0.200 u"
            )


@pytest.mark.slow
def test_a_state_of_which_slopes_alone_were_observed_is_known_up_to_a_constant():
    """As soon as one value is, or P does not depend on it, nothing is told."""
    t = np.linspace(0, 6, 20)
    u = 0.1 / (0.1 + 0.9 * np.exp(-t))
    X = pd.DataFrame({"t": t, "operator": "u_t"})
    model = OneStepKEqL("u", "u_t", variables="t", operator_column="operator")
    with pytest.warns(IdentifiabilityWarning, match="with any constant added to it"):
        model.fit(X, u - u**2)
    X.loc[20] = 0.0, "u"
    y = np.append(u - u**2, 0.1)
    assert not any("constant" in each for each in model.fit(X, y).fit_report_.concerns)


class Parabola:
    """A state t^2 of which all operators are known."""

    def evaluate(self, points, operator):
        """Values of t^2 or of its first derivative."""
        return points[:, 0] ** 2 if operator.order == 0 else 2 * points[:, 0]


@pytest.mark.parametrize("forcing", [None, np.cos, np.zeros, "column"])
def test_equations_are_missed_between_the_points_where_they_are_imposed(forcing):
    """Halfway to the nearest ones, u_t + P(u) = f being missed by t^2 everywhere.

    Values of a forcing at points of several coordinates are all that is known of it.
    """
    points = np.array([[0.0], [0.5], [2.0], [4.5]])
    given = None if forcing is None else lambda X: np.cos(X[:, 0])
    given = np.cos if forcing == "column" else given
    model = TwoStepKEqL("u", "u_t", points, variables="t", forcing=given)
    model.set_params(equation_kernel=Polynomial(1))
    learned = model._learn_in_two_steps(T, np.exp(-T[:, 0]), None)
    equation = copy(learned.equation)
    equation.unknown_part = lambda S: 2 * S[:, 1]
    learned = replace(learned, states=[Parabola()], equations=(equation,))
    t = np.array([0.25, 0.25, 1.25, 3.25])
    right = 0.0 if forcing is None else np.cos(t)
    target = right - 2 * t
    expected = np.linalg.norm(2 * t**2 - target) / np.linalg.norm(target)
    if forcing is np.zeros:
        unknown = replace(learned.setup, forcing_functions=[(None,)])
        learned, expected = replace(learned, setup=unknown), 0.0
    (part,) = parts_between(learned, ReportCriteria())
    assert part == pytest.approx(expected)
    assert len(unexplained_between({"equation": part}, 0.9 * expected)) == (part > 0)
    assert unexplained_between({"equation": part}, 1.1 * expected) == []


@pytest.mark.parametrize("factor", [1.0, 2.0, 0.5])
def test_slopes_in_another_unit_than_values_are_told(factor):
    """States bend to have both at the points where the equation is imposed."""
    t = np.linspace(0, 6, 20)
    u = 0.1 / (0.1 + 0.9 * np.exp(-t))
    X = pd.DataFrame({"t": np.tile(t, 2), "operator": np.repeat(["u", "u_t"], 20)})
    model = OneStepKEqL("u", "u_t", variables="t", operator_column="operator")
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(X, np.append(u, factor * (u - u**2)))
    texts = [str(each.message) for each in caught]
    assert any("between collocation points" in text for text in texts) == (factor != 1)
    assert factor != 1 or not texts


@pytest.mark.parametrize(
    ("factor", "given", "told"),
    [(3.0, None, True), (1.0, None, False), (3.0, 1, False)],
)
def test_observations_far_above_their_noise_are_told(factor, given, told):
    """At collocation points, where states need not meet observations; 2 is far."""
    y = np.exp(-T[:, 0]) + 0.1 * np.random.RandomState(0).normal(size=len(T))
    model = TwoStepKEqL("u", "u_t", 20, variables="t", observation_noise=0.1)
    model.set_params(state_kernel=RBF(2.0, "fixed"), equation_kernel=Polynomial(1))
    learned = model._learn_in_two_steps(T, y, None)
    missed = np.sqrt(
        np.mean(
            (learned.states[0].evaluate(T, learned.observations.operators[0]) - y) ** 2
        )
    )
    learned = replace(learned, observation_noise=np.array([missed / factor]))
    found = at_points(learned, Hypothesis(observation_noise=given), 1.0, 1.0)
    assert any("observations are missed by 3" in text for text in found) == told


@pytest.mark.parametrize(
    ("error", "given", "told"),
    [(None, None, True), (0.1, None, False), (0.1, 0.1, True)],
)
def test_exact_states_are_not_judged_by_noise_that_is_found(error, given, told):
    """It may be that of an earlier fit; what these states miss is asked elsewhere."""
    y = np.exp(-T[:, 0]) + 0.1 * np.random.RandomState(0).normal(size=len(T))
    model = TwoStepKEqL("u", "u_t", 20, variables="t", observation_noise=0.1)
    model.set_params(state_kernel=RBF(2.0, "fixed"), equation_kernel=Polynomial(1))
    learned = model._learn_in_two_steps(T, y, None)
    model._store(learned)
    model.observation_noise = given
    learned = replace(learned, observation_noise=np.array([1e-3]))
    summary = SearchSummary(doubts=(), exact_error=error)
    concerns = describe_fit(model, learned, summary).concerns
    assert any("observations are missed" in text for text in concerns) == told


@pytest.mark.parametrize(("n_values", "told"), [(4, True), (5, False)])
def test_values_that_are_no_more_than_unknown_numbers_are_told(n_values, told):
    """Two equations of three terms, and two initial values."""
    times = np.linspace(0, 5, n_values)[:, None]
    y = np.column_stack([np.sin(times), np.cos(times)])
    model = TwoStepKEqL(**PAIR, variables=("t",), equation_kernel=Polynomial(1))
    sentences = interpolating(model._learn_in_two_steps(times, y, None))
    assert [text.split(" are")[0] for text in sentences] == [
        "6 terms and 2 initial values"
    ] * told
    assert all("the 8 values at different places" in text for text in sentences)


def test_unknown_numbers_of_a_kernel_and_of_fields_are_not_counted():
    times = np.linspace(0, 5, 4)[:, None]
    y = np.column_stack([np.sin(times), np.cos(times)])
    model = TwoStepKEqL(**PAIR, variables=("t",), equation_kernel=RBF(1.0))
    assert interpolating(model._learn_in_two_steps(times, y, None)) == []
    assert interpolating(field_of(soliton)) == []


@pytest.mark.slow
def test_a_noisy_swing_of_eight_values_is_not_fitted_in_silence():
    """Its six terms and two initial values met the eight values to nine digits."""
    t = np.linspace(0, 5, 8)
    root = np.sqrt(2 - 0.15**2)
    u = np.exp(-0.15 * t) * (np.cos(root * t) + 0.15 / root * np.sin(root * t))
    noise = np.random.default_rng((1, 991)).standard_normal(8)
    model = OneStepKEqL(("u", "u_t"), known_part="u_tt", variables=("t",))
    with pytest.warns(IdentifiabilityWarning, match="unknown numbers"):
        model.fit(t[:, None], u + 0.02 * np.std(u) * noise)
