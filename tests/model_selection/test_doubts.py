"""Which fits are in doubt, whatever they were found by."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import solve_ivp
from sklearn.exceptions import ConvergenceWarning

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._regression.likelihood import left_out_log_densities
from keql._regression.two_step import Hypothesis
from keql.datasets import make_burgers
from keql.fit_report._undetermined import (
    coarse,
    missed,
    not_exact,
    rivals_of_other_orders_in_words,
    unsupported,
    wider_rivals_in_words,
)
from keql.kernels import RBF, Polynomial
from keql.model_selection import _selection
from keql.model_selection._beside._without import Gain
from keql.model_selection._candidates import candidates, without_equation_noise
from keql.model_selection._criteria import Criteria, few_terms_meet
from keql.model_selection._fit import Fit
from keql.model_selection._selection import Selection
from keql.model_selection._terms._fewer import TermsStep


def selection(variables=("t", "x"), n_terms="auto", integrable=True, is_exact=False):
    """A selection whose fit has the equation at collocation points, or not."""
    fit = SimpleNamespace(
        two_step=SimpleNamespace(variables=variables),
        hypothesis=SimpleNamespace(n_terms=n_terms),
        is_exact=is_exact,
    )
    return Selection(joint=fit, integrable=integrable)


def test_terms_of_fields_that_could_be_exact_and_are_not_are_in_doubt():
    assert selection().misses_exact_fields
    assert selection(("t", "x", "y")).misses_exact_fields


@pytest.mark.parametrize(
    "changes",
    [{"variables": ("t",)}, {"n_terms": None}, {"integrable": False}]
    + [{"is_exact": True}],
)
def test_others_are_not(changes):
    assert not selection(**changes).misses_exact_fields


def test_terms_that_exact_states_have_too_are_not_in_doubt():
    """Their rivals are those of the joint fit then."""
    path = [TermsStep(("u_xx",), 1.0, 1.0, 1.0, -3.0)]
    found = replace(selection(), joint=Joint(("u_xx",)))
    exact = Joint(("u_xx",), path)
    both = found.with_rivals_of(exact)
    assert both.integrated is exact and both.joint.terms_path == path
    assert found.misses_exact_fields and not both.misses_exact_fields
    assert found.with_rivals_of(None) is found
    other = Joint(("u_xx", "u"), path)
    assert found.with_rivals_of(other) is found


@dataclass(frozen=True)
class Joint:
    """A fit of a field with the named terms, at collocation points."""

    term_names: tuple
    terms_path: tuple = ()
    is_exact: bool = False
    hypothesis: Hypothesis = Hypothesis(n_terms="auto")

    @property
    def two_step(self):
        """What a selection asks of it."""
        return SimpleNamespace(variables=("t", "x"))


@pytest.mark.parametrize(
    "changes, is_asked",
    [({}, True), ({"equation_noise": 1e-3}, False), ({"equation_noise": None}, False)]
    + [({"n_terms": None}, False), ({"solver": "dual"}, False)],
)
def test_exact_states_are_asked_for_terms_beside_noise_of_equations(changes, is_asked):
    """Of fields, where that noise is all that keeps their states from being exact."""
    X = np.random.default_rng(0).uniform(size=(20, 2))
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    model.set_params(**{"equation_noise": 0.1} | changes)
    two_step = model._learn_in_two_steps(X, np.exp(X[:, 0]) * X[:, 1], None)
    given = two_step, model._hypothesis, model._settings
    table = without_equation_noise(*given)
    assert (table is not None) == is_asked
    if is_asked:
        assert candidates(*given)[0].why_not.startswith("equation_noise says")
        assert not table[0].why_not
        assert table[0].hypothesis.equation_noise is None
    elif not changes.get("solver"):
        assert not candidates(*given)[0].why_not or "n_terms" in changes


def test_noise_of_ordinary_differential_equations_drives_their_states():
    T = np.linspace(0, 1, 20)[:, None]
    model = OneStepKEqL("u", "u_t", variables="t", equation_noise=0.1)
    two_step = model._learn_in_two_steps(T, np.exp(T[:, 0]), None)
    given = two_step, model._hypothesis, model._settings
    assert without_equation_noise(*given) is None
    assert not candidates(*given)[0].why_not


@pytest.mark.slow
def test_fields_with_noise_of_equations_have_the_terms_of_exact_states():
    """Without these Burgers' equation had three wrong terms here, or more."""
    data = make_burgers(30, random_state=0)
    rng = np.random.default_rng(0)
    y = data.y + 0.02 * np.std(data.y) * rng.normal(size=len(data.y))
    noise = 0.05 * np.std(data.truth(data.X_test, "u_t"))
    model = OneStepKEqL(**data.problem, equation_noise=noise)
    model.set_params(n_terms="auto").fit(data.X, y)  # without a warning
    assert {*model.equation_.terms()} == {"u u_x", "u_xx"}
    assert model.equation_noise_ in (0.0, pytest.approx(noise))
    missed = np.linalg.norm(model.predict(data.X_test) - data.y_test)
    assert missed < 0.015 * np.linalg.norm(data.y_test)


def test_few_observations_of_a_field_are_not_integrated():
    X = np.random.default_rng(0).uniform(size=(5, 2))
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    reasons = []
    for n in (4, 5):
        two_step = model._learn_in_two_steps(X[:n], X[:n, 0] * X[:n, 1], None)
        table = candidates(two_step, model._hypothesis, model._settings)
        reasons.append(table[0].why_not)
    assert reasons == ["4 observations determine no 4 coefficients", ""]


@pytest.mark.parametrize("shift, expected", [(0.3, np.exp(0.3)), (0.0, 0), (-0.3, 0)])
def test_states_that_predict_worse_with_the_equation(shift, expected):
    """By a factor in the mean, if that is clear beside how much values differ."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(40, 2))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(40)
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    two_step = model._learn_in_two_steps(X, y, None)
    level, data = float(two_step.observation_noise[0]), two_step.observations
    without = left_out_log_densities(two_step.state_kernel, level, data.functions)
    changes = rng.standard_normal(40) * 0.5
    changes += shift - np.mean(changes)
    regression = SimpleNamespace(left_out_log_densities=lambda: without - changes)
    fit = SimpleNamespace(
        two_step=two_step,
        observations=data,
        hypothesis=model._hypothesis,
        has_functions=False,
        is_exact=True,
        result=SimpleNamespace(model=SimpleNamespace(regression=regression)),
    )
    found = Selection(exact=fit)
    assert found.better_without == pytest.approx(expected)
    assert found.unsupported is None
    fit.is_exact = False
    assert found.better_without == 0


@pytest.mark.parametrize("is_driven", [False, True])
def test_trajectories_that_predict_worse_with_the_equation(is_driven):
    """Of several states, each with its own prior; not where noise drives them."""
    rng, t = np.random.default_rng(0), np.linspace(0, 10, 40)
    y = np.c_[np.sin(t), 3 * np.cos(1.3 * t)] + 0.05 * rng.standard_normal((40, 2))
    names = {"operators": ("a", "b"), "known_part": ("a_t", "b_t"), "variables": "t"}
    model = OneStepKEqL(**names, states=("a", "b"))
    two_step = model._learn_in_two_steps(t[:, None], y, None)
    (data,) = two_step.observations.functions
    without = [
        left_out_log_densities(kernel, level, [data.of_operator(j)])
        for j, (kernel, level) in enumerate(
            zip(
                two_step.state_kernel.kernels.values(),
                two_step.observation_noise,
                strict=True,
            )
        )
    ]
    densities = np.concatenate(without) - 0.3
    regression = SimpleNamespace(left_out_log_densities=lambda: densities)
    fit = SimpleNamespace(
        two_step=two_step,
        observations=two_step.observations,
        hypothesis=model._hypothesis,
        has_functions=False,
        is_exact=True,
        is_driven=is_driven,
        result=SimpleNamespace(model=SimpleNamespace(regression=regression)),
    )
    expected = 0 if is_driven else np.exp(0.3)
    assert Selection(exact=fit).better_without == pytest.approx(expected)


def fit_of_functions(has_functions=True):
    """A fit of three terms."""
    return SimpleNamespace(
        observations=SimpleNamespace(operators=[]),
        hypothesis=Hypothesis(),
        has_functions=has_functions,
        term_names=["u", "sin(t)", "u_t"],
    )


@pytest.mark.parametrize("total, told", [(2.9, "2.9 higher"), (-1.0, "1 lower")])
def test_functions_that_predict_no_better_than_no_equation(total, told, monkeypatch):
    """Not by one for each of the terms; polynomials are not told."""
    gain = Gain(total, 3.1, 40)
    monkeypatch.setattr(_selection, "gain_of_equations", lambda _: gain)
    assert Selection(exact=fit_of_functions()).unsupported is gain
    (text,) = unsupported(gain)
    assert f"their log density is {told} (standard error 3.1)" in text
    assert Selection(exact=fit_of_functions(False)).unsupported is None
    assert unsupported(None) == []


@pytest.mark.parametrize("total", [3.1, -6.0])
def test_what_predicts_better_or_worse_than_no_equation_is_not_told_as_such(
    total, monkeypatch
):
    """Worse by 2.1 standard errors, which is told in other words."""
    monkeypatch.setattr(_selection, "gain_of_equations", lambda _: Gain(total, 2.9, 40))
    found = Selection(exact=fit_of_functions())
    assert found.unsupported is None
    assert (found.better_without > 0) == (total < 0)


def test_a_wave_in_time_that_stands_for_a_state_that_was_not_observed_is_told():
    """Prey without its predator."""
    t, rng = np.linspace(0, 15, 50), np.random.default_rng(0)
    prey = solve_ivp(
        lambda _, y: [y[0] - 0.5 * y[0] * y[1], 0.4 * y[0] * y[1] - 0.8 * y[1]],
        (0, 15),
        [1.0, 1.0],
        t_eval=t,
        rtol=1e-9,
    ).y[0]
    prey += 0.02 * np.std(prey) * rng.standard_normal(50)
    model = OneStepKEqL("u", "u_t", variables="t")
    with pytest.warns(IdentifiabilityWarning, match="about as well without any equat"):
        model.fit(t[:, None], prey)
    assert "sin" in str(model.equation_)


def test_what_is_said_of_fields_that_are_better_without():
    assert not_exact(False, 0.0) == []
    (text,) = not_exact(False, 1.3)
    assert "they are 1.30 times as probable in the mean" in text
    (text,) = not_exact(True, 0.0)
    assert text.startswith("states that obey the equations exactly were not found")


@pytest.mark.parametrize("has_functions, told", [(True, {"u", "u v"}), (False, {"u"})])
def test_polynomials_in_place_of_functions_are_told(has_functions, told):
    """Unless the evidence is decisive; other functions if it is not strong."""
    odds = {"u^-1 sin(v)": 0.0, "u": -2.0, "u v": -5.0, "u exp(v)": -5.0, "1": -9.0}
    fit = SimpleNamespace(
        log_evidences={frozenset([name]): value for name, value in odds.items()},
        term_names=["u^-1 sin(v)"],
        has_functions=has_functions,
        observations=SimpleNamespace(hidden_states=[]),
    )
    (_, zero), *others = Selection(exact=fit).rivals
    assert zero == 0
    assert {name for terms, _ in others for name in terms} == told


def table_of(variables=("t", "x"), **changes):
    """The reasons why hypotheses are not tried, by their names."""
    X = np.random.default_rng(0).uniform(size=(30, len(variables)))
    operators = ("u", "u_xx") if len(variables) > 1 else ("u",)
    model = OneStepKEqL(operators, "u_t", variables=variables, **changes)
    two_step = model._learn_in_two_steps(X, np.prod(X, axis=1), None)
    table = candidates(two_step, model._hypothesis, model._settings)
    return {row.hypothesis.name: row.why_not for row in table}


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({}, ""),
        ({"variables": ("t",)}, "one coordinate of space only"),
        ({"variables": ("t", "x", "y")}, "one coordinate of space only"),
        ({"equation_kernel": Polynomial(2)}, "equation_kernel is given"),
        ({"n_terms": None}, "keeps all terms"),
    ],
)
def test_terms_in_the_coordinates_are_tried_of_single_fields(changes, reason):
    given = table_of(**changes)
    found = given["exact states, quadratic polynomial of coordinates too"]
    assert reason in found and bool(reason) == bool(found)
    if len(changes.get("variables", "tx")) > 1:
        assert given["exact states, quartic polynomial"]


def line(slope, order=0):
    """The equation P = slope u where states are from 0 to 2."""
    return SimpleNamespace(
        order=order,
        weights=np.array([slope]),
        training_features=np.linspace(0, 2, 9)[:, None],
        unknown_part=lambda S: slope * S[:, 0],
    )


def chosen_among(steps, **changes):
    """Exact states with the term u, chosen among sets of terms."""
    return SimpleNamespace(
        terms_path=steps,
        log_evidences={frozenset(step.terms): step.log_evidence for step in steps},
        term_names=["u"],
        has_functions=False,
        learned=SimpleNamespace(equations=(line(1.0),)),
        observations=SimpleNamespace(hidden_states=[]),
        **changes,
    )


@pytest.mark.parametrize(
    "name, gain, slope, odds, told, in_time",
    [
        ("u^2", -7.5, 1.2, 7.0, True, False),
        ("u^2", -10.5, 1.2, 7.0, False, False),  # the data exclude it
        ("u^2", -7.5, 1.05, 7.0, False, False),  # it says the same
        ("u^2", -7.5, 1.2, 0.0, False, False),  # of the same hypothesis
        ("exp(u)", -7.5, 1.2, 7.0, True, True),
        ("exp(u)", -8.5, 1.2, 7.0, False, False),  # some are near to anything
    ],
)
def test_what_only_prior_odds_exclude_is_told(name, gain, slope, odds, told, in_time):
    """Of wider hypotheses, if the equation differs where states are."""
    steps = [
        TermsStep(("u",), 0, 0, 0, 0.0, equations=(line(1.0),)),
        TermsStep((name,), 0, 0, 0, gain, None, odds, (line(slope),)),
    ]
    fit = chosen_among(steps, two_step=SimpleNamespace(variables=("t", "x")))
    found = Selection(exact=fit).wider_rivals
    sentences = wider_rivals_in_words(found)
    assert found.pop(0) == ({"u"}, 0)
    assert [terms for terms, _ in found] == ([{name}] if told else [])
    fit.two_step.variables = ("t",)
    assert len(Selection(exact=fit).wider_rivals) == 1 + in_time
    assert len(sentences) == told
    if told:
        assert found[0][1] == pytest.approx(slope - 1)
        assert "differ by up to 20 %" in sentences[0]
        assert f"where states are: {name} instead of u." in sentences[0]


@pytest.mark.parametrize(
    "error, gain, slope, told",
    [
        (0.9, -4.5, 1.2, True),
        (1.1, -4.5, 1.2, False),  # it predicts worse
        (1.1, -2.5, 1.0, True),  # evidence alone does not exclude it
        (0.9, -5.5, 1.2, False),  # evidence against it is very strong
        (0.9, -4.5, 1.02, False),  # it says the same
    ],
)
def test_other_equations_that_predict_no_worse_are_rivals(error, gain, slope, told):
    steps = [
        TermsStep(("u",), 0, 0, 1.0, 0.0, equations=(line(1.0),)),
        TermsStep(("u^2",), 0, 0, error, gain, equations=(line(slope),)),
    ]
    fit = chosen_among(steps)
    found = Selection(exact=fit).rivals
    assert found == ([({"u"}, 0.0), ({"u^2"}, gain)] if told else [({"u"}, 0.0)])


@pytest.mark.parametrize(
    "error, slope, order, told",
    [
        (0.9, 1.2, 2, True),
        (1.1, 1.2, 2, False),  # it predicts worse
        (0.9, 1.02, 2, False),  # it says the same
        (0.9, 1.2, 1, False),  # as many boundary values are free
    ],
)
def test_evidence_does_not_decide_on_boundary_values(
    monkeypatch, error, slope, order, told
):
    monkeypatch.setattr(
        _selection, "highest_derivatives", lambda equation, _: equation.order
    )
    steps = [
        TermsStep(("u_x",), 0, 0, 1.0, 0.0, equations=(line(1.0, 1),)),
        TermsStep(("u_xx",), 0, 0, error, -11.0, equations=(line(slope, order),)),
    ]
    fit = SimpleNamespace(
        terms_path=steps,
        log_evidences={frozenset(step.terms): step.log_evidence for step in steps},
        term_names=["u_x"],
        has_functions=False,
        is_exact=True,
        learned=SimpleNamespace(equations=(line(1.0),)),
        observations=SimpleNamespace(hidden_states=[]),
        two_step=SimpleNamespace(variables=("t", "x")),
        problem=SimpleNamespace(grid=SimpleNamespace(axis=0)),
    )
    found = Selection(exact=fit).rivals_of_other_orders
    assert [terms for terms, _ in found] == [{"u_x"}, *([{"u_xx"}] if told else [])]
    sentences = rivals_of_other_orders_in_words(found)
    assert len(sentences) == told
    if told:
        assert "by up to 20 % from this one where states are: u_xx in" in sentences[0]
    fit.two_step.variables = ("t",)
    assert Selection(exact=fit).rivals_of_other_orders == []


@pytest.mark.parametrize(
    "n_terms, level, seen, meet",
    [(4, 1e-6, 1e-6, True), (5, 1e-6, 1e-6, False), (4, 2e-6, 1e-6, False)],
)
def test_few_terms_that_meet_exact_data_leave_nothing(n_terms, level, seen, meet):
    observations = SimpleNamespace(sizes=lambda: np.ones(1))
    two_step = SimpleNamespace(
        observations=observations, observation_noise=np.array([seen])
    )
    prior = SimpleNamespace(noise=np.array([level]))
    fit = SimpleNamespace(
        term_names=["u"] * n_terms, problem=SimpleNamespace(prior=prior)
    )
    assert few_terms_meet(fit, two_step, Criteria()) == meet
    two_step.observation_noise = np.array([0.1])
    assert not few_terms_meet(fit, two_step, Criteria())


def test_what_is_said_of_observations_that_are_missed():
    assert missed(0.0) == []
    assert "are missed by more than their noise allows" in missed(1.2)[0]
    assert "are missed by 3 times what their noise allows" in missed(3.0)[0]
    (sentence,) = missed(3.0, 0.11)
    assert "missed by 11 % of their size, 3 times what neighbouring ones" in sentence
    assert "observation_noise" in sentence


@pytest.mark.parametrize(
    "changes, told",
    [
        ({}, True),
        ({"error": 0.002}, False),  # predicts well
        ({"noise": 0.005}, False),  # no better than noise allows
        ({"is_exact": True}, False),
        ({"given": 0.001}, False),  # noise that is given is believed
        ({"open_states": ()}, False),  # and so is a kernel
    ],
)
def test_observations_that_do_not_tell_states_between_them(changes, told):
    """Each is predicted with an error of 1 % of its size, far above noise of 0.1 %."""
    values = {"error": 0.01, "noise": 0.001, "is_exact": False, "given": None}
    values = {**values, "open_states": ("u", "v"), **changes}
    t = np.linspace(0, 10, 40)
    model = OneStepKEqL(("u", "v"), ("u_t", "v_t"), variables="t", states=("u", "v"))
    y = np.column_stack([np.sin(t), np.cos(t)])
    observations = model._learn_in_two_steps(t[:, None], y, None).observations
    hypothesis = SimpleNamespace(
        open_states=lambda _: values["open_states"],
        noise_levels=lambda _: np.array([values["given"]], dtype=float),
    )
    noise = values["noise"] * observations.sizes()
    fit = SimpleNamespace(
        error=values["error"],
        is_exact=values["is_exact"],
        observations=observations,
        hypothesis=hypothesis,
        two_step=SimpleNamespace(observation_noise=noise),
    )
    error = Selection(joint=fit).error_between
    assert error == (0.01 if told else 0)
    sentences = coarse(error)
    assert len(sentences) == told
    assert not told or "with an error of 1 % of their size" in sentences[0]


@pytest.mark.slow
def test_noise_that_motions_hide_is_no_sign_of_missing_terms(recwarn):
    """Three hunts of twelve values: two steps take most of their noise for a motion."""
    parts, times = [], np.linspace(0, 8, 12)
    for k, start in enumerate(([1.0, 1.0], [3.0, 0.5], [4.0, 2.0])):
        found = solve_ivp(
            lambda t, y: [y[0] - 0.5 * y[0] * y[1], 0.4 * y[0] * y[1] - 0.8 * y[1]],
            (0, 8),
            start,
            "DOP853",
            t_eval=times,
            rtol=1e-10,
        )
        parts.append(np.column_stack([times, np.full(12, k), found.y.T]))
    X, y = np.split(np.vstack(parts), 2, axis=1)
    rng = np.random.default_rng((0, 77))
    y = y + 0.02 * np.std(y, axis=0) * rng.standard_normal(y.shape)
    settings = {"variables": ("t",), "states": ("a", "b"), "function_column": 1}
    model = OneStepKEqL(("a", "b"), ("a_t", "b_t"), **settings).fit(X, y)
    assert {*model.equation_["a_t"].terms()} == {"a", "a b"}
    assert not [w for w in recwarn if w.category is IdentifiabilityWarning]


def test_free_forms_have_no_names_of_terms():
    """Fits of two starts that agree are compared by them."""
    t = np.linspace(0, 3, 12)[:, None]
    model = TwoStepKEqL(("u",), "u_t", variables=("t",), equation_kernel=RBF())
    learned = model._learn_in_two_steps(t, np.exp(-t[:, 0]), None)
    fit = SimpleNamespace(is_exact=False, learned=learned, two_step=learned)
    assert Fit.term_names.fget(fit) == []


def duffing(t):
    """Values (2, n) of u and u_t of u_tt = u - u^3 - 0.2 u_t at times t (n,)."""

    def rate(t, y):
        return [y[1], y[0] - y[0] ** 3 - 0.2 * y[1]]

    settings = {"t_eval": t, "rtol": 1e-11, "atol": 1e-11}
    return solve_ivp(rate, t[[0, -1]], [1.8, 0.0], **settings).y


@pytest.mark.slow
def test_joint_fits_of_states_in_time_miss_what_no_equation_explains():
    """Slopes in other units than values: both are met by no trajectory."""
    t = np.linspace(0, 12, 20)
    u, v = duffing(t)
    X = pd.DataFrame({"t": np.r_[t, t], "op": ["u"] * 20 + ["u_t"] * 20})
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables="t", operator_column="op")
    model.set_params(equation_kernel=Polynomial(1), collocation_points=20)
    with pytest.warns(ConvergenceWarning, match="the minimum is a poor one"):
        model.fit(X, np.r_[u, 2 * v])
    assert any("times what their noise allows" in c for c in model.fit_report_.concerns)


@pytest.mark.slow
def test_an_oscillator_is_no_equation_of_first_order():
    """Which takes waves in time, and predicts noisy values no better than curves do."""
    t = np.linspace(0, 15, 50)
    u, _ = duffing(t)
    y = u + 0.02 * np.std(u) * np.random.default_rng(0).standard_normal(50)
    model = OneStepKEqL("u", "u_t", variables="t")
    told = "about as well without any equation"
    with pytest.warns(IdentifiabilityWarning, match=told):
        model.fit(t[:, None], y)
