"""Predictions outside of the data warn, and forecasts do not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from keql import ExtrapolationWarning, IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql.kernels import RBF

TIMES = np.linspace(0, 2, 21)[:, None]
DECAY = {"operators": ("u",), "known_part": "u_t", "variables": ("t",)}
IN_SPACE = {"operators": ("u",), "known_part": "u_t", "variables": ("t", "x")}


@pytest.fixture(scope="module")
def decay():
    return TwoStepKEqL(**DECAY).fit(TIMES, np.exp(-TIMES[:, 0]))


def test_a_mean_gap_beyond_the_data_is_inside(decay):
    assert_allclose(decay.domain_, [[[-0.1], [2.1]]])
    decay.predict([[-0.09], [1.0], [2.09]])
    with pytest.warns(ExtrapolationWarning, match="1 of 2 points lie outside") as seen:
        decay.predict([[1.0], [2.2]])
    assert "such as [2.2]" in str(seen[0].message) and seen[0].filename == __file__


def test_derivatives_warn_too_and_scores_do_not(decay):
    with pytest.warns(ExtrapolationWarning, match="1 of 1 points"):
        decay.predict_derivative([[-1.0]], "u_t")
    assert decay.score([[3.0], [4.0]], np.exp([-3.0, -4.0])) < 0


def test_forecasts_do_not_warn(decay):
    assert decay.forecast([[4.0]])[0] == pytest.approx(np.exp(-4.0), rel=1e-2)


def test_units_do_not_matter():
    """Nor does what is added to the times."""
    for unit, begin in ((1e3, 0.0), (1e-3, 50.0)):
        t = begin + unit * TIMES
        model = TwoStepKEqL(**DECAY).fit(t, np.exp(-TIMES[:, 0]))
        model.predict(t[-1:] + 0.09 * unit)
        with pytest.warns(ExtrapolationWarning):
            model.predict(t[-1:] + 0.11 * unit)


def test_where_an_equation_is_imposed_states_are_known():
    """In space, where it is imposed beyond the data; not by those of two steps."""
    grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 5)]), axis=-1).reshape(-1, 2)
    places = grid * [1.0, 2.0]
    given = {"state_kernel": RBF(1.0, "fixed"), "observation_noise": 1e-3}
    settings = IN_SPACE | given | {"collocation_points": places}
    y = np.exp(-grid[:, 0]) * np.sin(grid[:, 1])
    two = TwoStepKEqL(**settings, optimizer=None)
    with pytest.warns(IdentifiabilityWarning, match="is uncertain by"):
        two.fit(grid, y)  # there, too, of states that are not known
    with pytest.warns(ExtrapolationWarning):
        two.predict([[0.5, 1.9]])
    one = OneStepKEqL(**settings, equation_noise=1e-2, optimizer=None).fit(grid, y)
    one.predict([[0.5, 1.9]])


def test_every_function_has_its_own_data():
    """In time and space: 36 points on a grid, of which a mean gap is a fifth."""
    grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 6)]), axis=-1).reshape(-1, 2)
    later = grid + [2.0, 0.0]
    X = np.concatenate(
        [
            np.column_stack([np.full(36, m), points])
            for m, points in ((0, grid), (1, later))
        ]
    )
    y = np.exp(-X[:, 1]) * np.sin(X[:, 2])
    model = TwoStepKEqL(**IN_SPACE, function_column=0).fit(X, y)
    assert_allclose(model.domain_[0], [[-0.2, -0.2], [1.2, 1.2]])
    model.predict(X)
    model.predict([[0, 1.19, 1.19], [1, 1.81, -0.19]])
    for point in ([0, 1.5, 0.5], [1, 1.5, 0.5], [0, 0.5, 1.3], [1, 2.5, -0.3]):
        with pytest.warns(ExtrapolationWarning, match="1 of 73 points"):
            model.predict(np.concatenate([X, [point]]))
