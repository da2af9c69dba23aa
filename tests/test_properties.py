"""What holds whatever the numbers are: inputs, units, orders of rows, labels.

Examples are those of the same seed at every run: no test fails by chance.
"""

import re
from functools import cache, partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from keql import OneStepKEqL, TwoStepKEqL
from keql.kernels import RBF, Constant, Polynomial
from keql.operators import parse_operator

T = np.arange(16) / 8  # which are exact in few digits, also in single precision
Y = np.exp(-T) + 0.5
SETTINGS = {
    "operators": ("u",),
    "known_part": "u_t",
    "variables": ("t",),
    "equation_kernel": Polynomial(1),
}
FEW = settings(max_examples=15, deadline=None, derandomize=True, database=None)
MANY = settings(FEW, max_examples=40)


def fitted(X, y, a=1.0, b=1.0, t0=0.0, weights=None, **changes):
    """Two steps, in units a of the state and b of time, which begins at t0."""
    given = {
        "state_kernel": Constant(a**2, "fixed") * RBF(0.7 * b, "fixed"),
        "observation_noise": 1e-3 * a,
        "collocation_points": t0 + b * np.linspace(0, 1.875, 12)[:, None],
    }
    return TwoStepKEqL(**SETTINGS | given | changes).fit(X, y, sample_weight=weights)


EXPECTED = fitted(T[:, None], Y)
FOUND = EXPECTED.predict(T[:, None])
POWERS = st.floats(-12, 12).map(lambda power: 10.0**power)


@FEW
@given(POWERS, POWERS, st.sampled_from([0.0, 1.0, -1e3, 2.0**30]))
def test_units(a, b, shift):
    """The same equation in any units, and wherever time begins."""
    moved = b * (T[:, None] + shift)
    model = fitted(moved, a * Y, a, b, b * shift)
    there = b * (np.linspace(0, 1.875, 7)[:, None] + shift)
    if shift:  # rounding of the times themselves is not what is tested
        there = np.round(there / b * 1024) / 1024 * b
    np.testing.assert_allclose(
        model.predict(there) / a, EXPECTED.predict(there / b - shift), rtol=1e-6
    )
    one, other = EXPECTED.equation_.terms(), model.equation_.terms()
    assert one.keys() == other.keys()
    factors = {"1": a / b, "u": 1 / b}
    for name, value in one.items():
        assert other[name] / factors[name] == pytest.approx(value, rel=1e-6)


@FEW
@given(st.permutations(range(16)), st.permutations(range(12)))
def test_orders_of_rows(rows, places):
    """Neither the order of observations matters nor that of collocation points."""
    imposed = np.linspace(0, 1.875, 12)[list(places), None]
    rows = list(rows)
    model = fitted(T[rows, None], Y[rows], collocation_points=imposed)
    np.testing.assert_allclose(model.predict(T[:, None]), FOUND, rtol=1e-7)


LABELS = st.lists(
    st.one_of(st.integers(-(2**53), 2**53), st.text(max_size=5), st.booleans()),
    min_size=2,
    max_size=2,
    unique_by=lambda label: (str(type(label)), label),
).filter(lambda pair: pair[0] != pair[1])


def of_two_functions(names, other_way):
    """Predictions of the second of two functions, and terms, with other labels."""
    order = [1, 0] if other_way else [0, 1]
    curves = {0: Y, 1: 2 * Y - 0.5}
    column = pd.Series([names[i] for i in order for _ in T], dtype=object)
    X = pd.DataFrame({"t": np.concatenate([T, T]), "rod": column})
    y = np.concatenate([curves[i] for i in order])
    model = fitted(X, y, function_column="rod")
    label = pd.Series([names[1]] * 5, dtype=object)
    asked = pd.DataFrame({"t": T[:5]}).assign(rod=label)
    return model.predict(asked), model.equation_.terms()


of_letters = cache(partial(of_two_functions, ("a", "b")))


@pytest.mark.slow
@FEW
@given(LABELS, st.booleans())
def test_labels_of_functions(labels, other_way):
    """Functions may be called anything, in any order."""
    expected, terms = of_letters(other_way)
    found, others = of_two_functions(labels, other_way)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert others == pytest.approx(terms, rel=1e-9)


FORMS = [
    np.asfortranarray,
    np.ndarray.tolist,
    lambda X: X.astype(np.float32),
    lambda X: X.astype(">f8"),
    lambda X: X.astype(object),
    lambda X: np.repeat(X, 2, axis=0)[::2],
    lambda X: X[::-1].copy()[::-1],
    lambda X: pd.DataFrame(X, columns=["t"]),
    lambda X: pd.DataFrame(X, columns=["t"]).convert_dtypes(),
    lambda X: pl.DataFrame({"t": X[:, 0]}),
]
COLUMNS = [
    np.ndarray.tolist,
    pd.Series,
    pl.Series,
    lambda y: y[:, None],
    lambda y: y.astype(object),
    lambda y: pd.Series(y, index=np.arange(len(y))[::-1]),
]


@MANY
@given(st.sampled_from(FORMS), st.sampled_from(COLUMNS))
@pytest.mark.filterwarnings("ignore:X (has|does not have) .*feature names")
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_forms_of_the_same_numbers(form, column):
    model = fitted(form(T[:, None]), column(Y))
    np.testing.assert_array_equal(np.ravel(model.predict(form(T[:, None]))), FOUND)


@FEW
@given(st.lists(st.integers(0, 15), min_size=1, max_size=16))
def test_batches(rows):
    """A prediction does not depend on what else is asked for."""
    predicted, std = EXPECTED.predict(T[rows, None], return_std=True)
    np.testing.assert_allclose(predicted, FOUND[rows], rtol=1e-9)
    _, alone = EXPECTED.predict(T[rows[:1], None], return_std=True)
    assert std[0] == pytest.approx(alone[0], rel=1e-6)


@FEW
@given(st.lists(st.integers(1, 3), min_size=16, max_size=16))
def test_weights_are_repetitions(times):
    repeated = fitted(np.repeat(T, times)[:, None], np.repeat(Y, times))
    weighted = fitted(T[:, None], Y, weights=np.array(times, dtype=float))
    np.testing.assert_allclose(
        weighted.predict(T[:, None]), repeated.predict(T[:, None]), rtol=1e-6
    )


NUMBERS = st.one_of(
    st.floats(), st.floats(-10, 10), st.sampled_from([0.0, 1e308, 5e-324, 1e-300])
)
TABLES = arrays(
    np.float64, array_shapes(min_dims=0, max_dims=3, max_side=8), elements=NUMBERS
)


@MANY
@given(TABLES, TABLES, st.booleans())
@pytest.mark.filterwarnings("ignore")
def test_any_arrays(X, y, is_joint):
    """A fit to them is refused by name, or predicts finite numbers."""
    if X.ndim == 2 and y.ndim and len(X) and X.shape[1] == 1:
        y = np.resize(y, len(X))  # most would be refused for their shapes alone
    model = TwoStepKEqL(**SETTINGS)
    if is_joint:
        model = OneStepKEqL(**SETTINGS, solver="dual", n_restarts=0, max_iter=3)
    model.set_params(state_kernel=RBF(1.0, "fixed"), observation_noise=1e-2)
    try:
        predicted = model.set_params(collocation_points=8).fit(X, y).predict(X)
    except (TypeError, ValueError) as error:
        assert re.search(r"(?<!\w)(X|y|variables|state_kernel)(?!\w)", str(error)), (
            error
        )
    else:
        assert np.all(np.isfinite(predicted))


@settings(MANY, max_examples=300)
@given(st.one_of(st.text(max_size=12), st.text("uvtx_+-*^().0123456789 ", max_size=12)))
def test_any_text_of_an_operator(text):
    """It is refused by name, or parsed, and what is printed is parsed to the same."""
    try:
        operator = parse_operator(text, ("t", "x"), ("u", "v"))
    except (TypeError, ValueError) as error:
        assert "operator" in str(error)
    else:
        assert parse_operator(operator.name, ("t", "x"), ("u", "v")) == operator
