"""Several states: columns of y, values of operators, inputs, named equations."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.utils import get_tags

from keql import Equation, KernelPDESolver, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql.equation import LearnedEquation, LearnedSystem
from keql.kernels import RBF, Polynomial

LEARNERS = (TwoStepKEqL, OneStepKEqL, ReducedOneStepKEqL)
T = np.linspace(0, 6, 40)[:, None]
# A rotation, x' = 2 y and y' = -2 x.
CIRCLE = np.column_stack([np.sin(2 * T[:, 0]), np.cos(2 * T[:, 0])])
FIXED = {
    "variables": ("t",),
    "state_kernel": RBF(1.0, "fixed"),
    "equation_kernel": Polynomial(1),
    "observation_noise": 1e-4,
}
ROTATION = {
    "operators": ("x", "y"),
    "known_part": ("x_t", "y_t"),
    "states": ("x", "y"),
    "collocation_points": 40,
    "equation_noise": 1e-3,
}


def with_gaps():
    """The rotation, each state seen at times of its own."""
    y = CIRCLE.copy()
    y[::3, 0] = np.nan
    y[1::3, 1] = np.nan
    return y


# --- columns of y ---------------------------------------------------------------------


@pytest.mark.parametrize("method", LEARNERS)
def test_without_an_equation_columns_are_independent(method):
    y = with_gaps()
    together = method(**FIXED).fit(T, y)
    found = together.predict(T, return_std=True)
    for s in range(2):
        rows = np.isfinite(y[:, s])
        alone = method(**FIXED).fit(T[rows], y[rows, s])
        expected = alone.predict(T, return_std=True)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[:, s], theirs, rtol=1e-9, atol=1e-10)
    assert together.state_names_ == ("u1", "u2")
    assert together.observation_noise_ == {"u1": 1e-4, "u2": 1e-4}


@pytest.mark.parametrize("method", LEARNERS)
def test_a_system_is_learned(method):
    # With less noise states are exact, and a circle is told to have other equations.
    settings = FIXED | ROTATION | {"equation_noise": 0.05}
    model = method(**settings).fit(T, with_gaps())
    assert isinstance(model.equation_, LearnedSystem)
    assert list(model.equation_) == ["x_t", "y_t"]
    assert model.equation_["x_t"].terms()["y"] == pytest.approx(2, abs=1e-2)
    assert model.equation_["y_t"].terms()["x"] == pytest.approx(-2, abs=1e-2)
    assert list(model.equation_noise_) == ["x_t", "y_t"]
    assert list(model.equation_kernel_) == ["x_t", "y_t"]
    values, std = model.predict(T, return_std=True)
    np.testing.assert_allclose(values, CIRCLE, atol=1e-3)
    assert std.shape == (40, 2) and np.all(std > 0)
    slopes = model.predict_derivative(T, "x_t")
    np.testing.assert_allclose(slopes, 2 * CIRCLE[:, 1], atol=0.05)


def test_states_are_called_as_the_columns_of_a_data_frame():
    def names(columns):
        table = pd.DataFrame(CIRCLE, columns=columns)
        return TwoStepKEqL(**FIXED).fit(T, table).state_names_

    assert names(["prey", "predator"]) == ("prey", "predator")
    assert names(None) == ("u1", "u2")  # pandas calls them 0 and 1
    table = pd.DataFrame(CIRCLE[:, :1], columns=["prey"])
    assert TwoStepKEqL(**FIXED).fit(T, table).state_names_ == ("u",)


def test_a_score_leaves_out_what_was_not_measured():
    model = TwoStepKEqL(**FIXED).fit(T, CIRCLE)
    y = with_gaps() + 0.1 * np.random.RandomState(0).normal(size=CIRCLE.shape)
    predicted, weights = model.predict(T), np.linspace(1, 2, 40)
    expected = []
    for s in range(2):
        rows = np.isfinite(y[:, s])
        data = y[rows, s], predicted[rows, s]
        expected.append(r2_score(*data, sample_weight=weights[rows]))
    score = model.score(T, y, sample_weight=list(weights))
    assert score == pytest.approx(np.mean(expected))
    # A state that is not in y, or has no values there, does not count.
    assert model.score(T, y[:, 0], list(weights)) == pytest.approx(expected[0])
    y[:, 0] = np.nan
    assert model.score(T, y, weights) == pytest.approx(expected[1])
    with pytest.raises(ValueError, match="0 values in all: it must have values"):
        model.score(T, np.full((40, 2), np.nan))
    with pytest.raises(ValueError, match="3 column.* each of the states u1, u2"):
        model.score(T, np.ones((40, 3)))
    single = TwoStepKEqL(**FIXED).fit(T, CIRCLE[:, 0])
    rows = np.isfinite(with_gaps()[:, 0])
    expected = single.score(T[rows], CIRCLE[rows, 0])
    assert single.score(T, with_gaps()[:, 0]) == expected


def test_a_state_that_was_never_measured_follows_from_the_equations():
    """Of x' = 2 y, y' = -2 x with both known, x alone is seen."""
    known = ({"x_t": 1, "y": -2}, {"y_t": 1, "x": 2})
    settings = {**FIXED, "states": ("x", "y"), "collocation_points": 40}
    del settings["equation_kernel"]
    equations = [(name, Equation(k)) for name, k in zip("ab", known, strict=True)]
    model = OneStepKEqL(**settings, equations=equations)
    with warnings.catch_warnings(action="error"):  # a column is no single output
        model.fit(T, CIRCLE[:, :1])
    np.testing.assert_allclose(model.predict(T), CIRCLE, atol=1e-2)
    assert model.score(T, CIRCLE[:, 0]) > 0.999
    assert model.observation_noise_ == 1e-4


def test_the_tag_of_several_outputs():
    def several(**parameters):
        return get_tags(OneStepKEqL(**parameters)).target_tags.multi_output

    assert several() and several(**ROTATION)
    assert several(operators=("a",), known_part=("a_t", "b_t"))
    assert several(equations=[("a", Equation("a_t"))])
    assert not several(operators=("u",), known_part="u_t")
    for equation, is_several in ((None, True), ("u_t", False), (("u_t", "v_t"), True)):
        tags = get_tags(KernelPDESolver(equation)).target_tags
        assert tags.multi_output == is_several


def test_kernels_of_states_may_be_used_again():
    only_states = {"states": ("x", "y"), "variables": ("t",)}
    first = TwoStepKEqL(**only_states).fit(T, CIRCLE)
    kernel = first.state_kernel_
    again = TwoStepKEqL(**only_states, state_kernel=kernel)
    assert again.fit(T, CIRCLE).state_kernel_.kernels == kernel.kernels
    other = {"x": kernel.kernels["x"], "y": RBF(2.0, "fixed")}
    found = again.set_params(state_kernel=other).fit(T, CIRCLE).state_kernel_
    assert found.kernels == other
    only = {"y": RBF(2.0, "fixed")}  # the other one is chosen
    model = again.set_params(state_kernel=only).fit(T, CIRCLE)
    found = model.state_kernel_
    assert "given for y" in str(model.fit_report_)
    assert found.kernels["y"] == only["y"] and found.kernels["x"] == kernel.kernels["x"]


# --- values of operators, and inputs --------------------------------------------------


@pytest.mark.parametrize("method", LEARNERS)
def test_rows_may_hold_values_of_operators(method):
    X = np.vstack([np.column_stack([T, np.full(40, i)]) for i in (0, 1)]).astype(object)
    X[:, 1] = np.repeat(["u", "u_t"], 40)
    y = CIRCLE.T.ravel() * np.repeat([1.0, 2.0], 40)
    seen = np.r_[np.arange(0, 40, 5), 40 + np.arange(40)]  # few values, many slopes
    model = method(operator_column=1, **FIXED).fit(X[seen], y[seen])
    np.testing.assert_allclose(model.predict(X), y, atol=1e-2)
    assert set(model.observation_noise_) == {"u", "u_t"}
    slopes = model.predict_derivative(X, "u_t")
    np.testing.assert_allclose(slopes[:40], y[40:], atol=1e-2)


def test_inputs_in_all_their_forms():
    """u' = c u with one number c for each function."""
    rates = {0: -0.5, 1: 0.25, 2: 0.1}
    X = np.vstack([np.column_stack([T, np.full(40, m)]) for m in rates])
    c = np.array([rates[m] for m in X[:, 1]])
    y = np.exp(c * X[:, 0])
    settings = {**FIXED, "operators": ("u",), "known_part": "u_t", "function_column": 1}
    settings |= {"equation_kernel": Polynomial(2), "collocation_points": 40}
    forms = [
        rates,
        {0: lambda x: np.full(len(x), -0.5), 1: 0.25, 2: 0.1},
        {0: ([0.0, 6.0], [-0.5, -0.5]), 1: 0.25, 2: 0.1},
    ]
    terms = []
    for given in forms:
        model = TwoStepKEqL(**settings, inputs={"c": given}).fit(X, y)
        terms.append(model.equation_.terms())
        np.testing.assert_array_equal(model.input_values(X)[:, 0], c)
    table = pd.DataFrame({"t": X[:, 0], "function": X[:, 1], "rate": c})
    settings["function_column"] = "function"
    model = TwoStepKEqL(**settings, inputs={"c": "rate"}).fit(table, y)
    for found in (*terms, model.equation_.terms()):
        assert found["c u"] == pytest.approx(1, abs=1e-2)
        assert found == pytest.approx(terms[0])
    with pytest.raises(ValueError, match="'c' has the values -0.5 and 0.25"):
        mixed = table.assign(function=0)
        TwoStepKEqL(**settings, inputs={"c": "rate"}).fit(mixed, y)


# --- named equations ------------------------------------------------------------------


def named():
    return [
        ("first", Equation("x_t", ("x", "y"), kernel=Polynomial(1), noise=1e-3)),
        ("second", Equation("y_t", ("x", "y"), kernel=Polynomial(1), noise=1e-3)),
    ]


def test_named_equations_are_those_of_a_tuple_of_known_parts():
    settings = {**FIXED, "states": ("x", "y"), "collocation_points": 40}
    del settings["equation_kernel"]
    by_name = TwoStepKEqL(**settings, equations=named()).fit(T, CIRCLE)
    by_tuple = TwoStepKEqL(**FIXED, **ROTATION).fit(T, CIRCLE)
    assert list(by_name.equation_) == ["first", "second"]
    for ours, theirs in zip(
        by_name.equation_.values(), by_tuple.equation_.values(), strict=True
    ):
        assert ours.terms() == pytest.approx(theirs.terms())


def test_parameters_of_named_equations():
    model = OneStepKEqL(equations=named())
    params = model.get_params()
    assert params["first__kernel__degree"] == 1 and params["second__noise"] == 1e-3
    assert "first" not in model.get_params(deep=False)
    copy = clone(model).set_params(first__kernel__degree=3, second__noise=0.1)
    assert dict(copy.equations)["first"].kernel.degree == 3
    assert copy.get_params()["second__noise"] == 0.1
    assert model.get_params()["first__kernel__degree"] == 1
    copy.set_params(second=Equation("y_t"), second__n_terms=2)
    assert dict(copy.equations)["second"].get_params()["n_terms"] == 2
    assert [name for name, _ in copy.equations] == ["first", "second"]
    with pytest.raises(ValueError, match="third"):
        copy.set_params(third__noise=0.1)


WRONG = [
    ({"operators": ("x",)}, "operators is given beside equations"),
    ({"equation_noise": 0.1}, "equation_noise is given beside equations"),
    ({"equations": named()[:1] * 2}, "first, first: they must differ"),
    ({"equations": [("states", Equation("x_t"))]}, "and from the estimator's param"),
    ({"equations": [("a__b", Equation("x_t"))]}, "no '__'"),
    ({"equations": [("a", "x_t")]}, "must be a list of pairs"),
    ({"equations": ["x_t"]}, "must be a list of pairs"),
    ({"states": ("x", "x")}, "must be different names"),
    ({"states": ("x", "2y")}, "must be different names"),
    ({"operator_column": 1}, "y has 2 columns beside operator_column"),
]


@pytest.mark.parametrize("changes, message", WRONG)
def test_wrong_parameters(changes, message):
    settings = {"variables": ("t",), "states": ("x", "y"), "equations": named()}
    X = T.astype(object)
    if "operator_column" in changes:
        X = np.column_stack([X, np.full(40, "x")])
    with pytest.raises(ValueError, match=message):
        TwoStepKEqL(**settings | changes).fit(X, CIRCLE)


# --- solvers --------------------------------------------------------------------------


def test_a_solver_has_the_state_of_its_equation():
    predictions = []
    for state in ("u", "prey"):
        model = TwoStepKEqL((state,), f"{state}_t", variables=("t",), states=(state,))
        model = model.fit(T, np.exp(-T[:, 0]))
        assert isinstance(model.equation_, LearnedEquation)
        solver = model.pde_solver(state_kernel=RBF(1.0)).fit(T[:1], [0.9])
        predictions.append(solver.predict(T[:20]))
        assert solver.state_names_ == (state,)
    np.testing.assert_allclose(*predictions, rtol=1e-9)
    assert np.abs(predictions[0] - 0.9 * np.exp(-T[:20, 0])).max() < 1e-2


def test_a_solver_refuses_columns_without_a_state():
    with pytest.raises(ValueError, match="y has 2 columns, but the state is u"):
        KernelPDESolver("u_t", T, variables=("t",)).fit(T, CIRCLE)
    model = TwoStepKEqL(**FIXED, **ROTATION).fit(T, CIRCLE)
    with pytest.raises(ValueError, match="y has 3 columns, but the states are x, y"):
        model.pde_solver().fit(T, CIRCLE[:, [0, 1, 1]])
