"""What is said of noise levels."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from keql import IdentifiabilityWarning, OneStepKEqL, ReducedOneStepKEqL
from keql._observations.data import FunctionData, Observations
from keql.fit_report._reasons import heteroscedastic, observed_and_fitted
from keql.operators import identity_of

T = np.linspace(0.0, 6.0, 40)[:, None]
NOISE = np.random.RandomState(0).standard_normal(40)
U = np.exp(-0.5 * T[:, 0])


def learned(true, values, weights=None, functions=1):
    """What the residuals are asked of: states that are the true ones."""
    weights = np.ones(len(true)) if weights is None else weights
    operator, index = identity_of("u", 1), np.zeros(len(true), dtype=int)
    parts = np.array_split(np.arange(len(true)), functions)
    data = [
        FunctionData(T[p], values[p], weights[p], index[p], [operator]) for p in parts
    ]

    def evaluate(points, _):
        return true[np.searchsorted(T[:, 0], points[:, 0])]

    states = [SimpleNamespace(evaluate=evaluate) for _ in parts]
    return SimpleNamespace(
        observations=Observations(tuple(range(functions)), data), states=states
    )


@pytest.mark.parametrize("functions", [1, 3])
@pytest.mark.parametrize("unit", [1e-6, 1.0, -1e6])
def test_noise_that_is_a_part_of_each_value_is_told(unit, functions):
    true = unit * U
    model = learned(true, true * (1 + 0.05 * NOISE), functions=functions)
    [sentence] = heteroscedastic(model)
    assert sentence.startswith("residuals of u grow with its values")
    large = U > np.median(U)
    sizes = [np.sqrt(np.mean((U * NOISE)[own] ** 2)) for own in (large, ~large)]
    assert f"{sizes[0] / sizes[1]:.2g} times as large" in sentence
    assert "sample_weight" in sentence


@pytest.mark.parametrize(
    "true, error",
    [
        (U, 0.03 * NOISE),  # even
        (U, 0.05 * (1 - U) * NOISE),  # it falls
        (np.ones(40), 0.03 * NOISE),  # values are equal
        (U, 1e-5 * U * NOISE),  # rounding
        (U[:3], 0.05 * U[:3] * NOISE[:3]),  # few
    ],
)
def test_other_noise_is_not_told(true, error):
    assert heteroscedastic(learned(true, true + error)) == []


def test_weights_that_say_how_noise_grows_are_taken_for_it():
    model = learned(U, U * (1 + 0.05 * NOISE), weights=U**-2)
    assert heteroscedastic(model) == []
    [seen] = observed_and_fitted(model)
    np.testing.assert_allclose(seen.errors, -0.05 * NOISE)


@pytest.mark.parametrize("method", [OneStepKEqL, ReducedOneStepKEqL])
def test_fits_tell_of_noise_that_grows(method):
    """Weights that say how precise each value is leave nothing to tell."""
    y = U * (1 + 0.03 * NOISE)
    model = method("u", "u_t", variables="t")
    with pytest.warns(IdentifiabilityWarning, match="residuals of u grow with"):
        model.fit(T, y)
    assert any("residuals of u" in each for each in model.fit_report_.concerns)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(T, y, sample_weight=y**-2)
    assert not [each for each in told if "grow with" in str(each.message)]
    assert model.equation_.terms() == {"u": pytest.approx(-0.5, abs=0.01)}
