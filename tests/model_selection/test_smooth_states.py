"""Smooth states of exact data tell equations apart that hold at collocation points."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from keql import OneStepKEqL, TwoStepKEqL
from keql.fit_report._undetermined import missed_smoothly
from keql.model_selection._beside._smooth import _smooth_kernel
from keql.model_selection._criteria import Criteria
from keql.model_selection._selection import Selection

CRITERIA = Criteria()


def state(X):
    """A sum of waves, its slope in x, and its Laplacian."""
    a, b, c = 2 * X[:, 0] + 0.3, 3 * X[:, 1], 2 * X[:, 0] - X[:, 1]
    return (
        np.sin(a) * np.cos(b) + 0.5 * np.cos(c),
        2 * np.cos(a) * np.cos(b) - np.sin(c),
        -13 * np.sin(a) * np.cos(b) - 2.5 * np.cos(c),
    )


def fit(part, n=40, **changes):
    """u_xx + u_yy = f - part(x, y, u, u_x), from exact values; the model, warnings."""

    def forcing(X):
        u, u_x, laplacian = state(X)
        return laplacian + part(*X.T, u, u_x)

    X = np.random.default_rng(4).uniform(0, 1, (n, 2))
    model = OneStepKEqL(("u", "u_x", "u_y"), "u_xx + u_yy", variables=("x", "y"))
    model.set_params(forcing=forcing, **changes)
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(X, state(X)[0])
    return model, " ".join(str(w.message) for w in caught)


@pytest.mark.parametrize(
    ("part", "terms"),
    [
        (lambda x, y, u, p: (6 + 3 * x) * u, {"u": 6.0, "x u": 3.0}),
        (lambda x, y, u, p: 2 * u**3 - 4 * u, {"u": -4.0, "u^3": 2.0}),
    ],
)
def test_exact_data_tell_terms_to_many_digits(part, terms):
    """Rough states bent to -7.7 u + 0.7 u_x + 0.4; or left errors of 0.5 %."""
    model, told = fit(part)
    assert told == ""
    found = model.equation_.terms()
    assert {*found} == {*terms}
    for name, value in terms.items():
        assert found[name] == pytest.approx(-value, rel=1e-3)


@pytest.mark.slow
def test_an_equation_of_another_form_is_told():
    _, told = fit(lambda x, y, u, p: 3 * np.abs(x - y) * p)
    assert "smooth states of exact data miss it" in told


@pytest.mark.parametrize(("power", "is_smooth"), [(3, False), (None, True)])
def test_data_say_whether_states_are_smooth(power, is_smooth):
    X = np.random.default_rng(4).uniform(0, 1, (60, 2))
    along = X[:, 0] + 0.5 * X[:, 1] - 0.7
    y = state(X)[0] if power is None else np.abs(along) ** power + np.sin(2 * X[:, 1])
    model = TwoStepKEqL(("u",), "u_xx + u_yy", variables=("x", "y"))
    _, log_odds = _smooth_kernel(model._learn_in_two_steps(X, y, None))
    assert (log_odds > CRITERIA.smooth) == is_smooth


@pytest.mark.parametrize(
    ("is_smooth", "times", "factor"), [(True, 0.9, 0.0), (True, 4, 2), (False, 4, 0.0)]
)
def test_only_smooth_states_tell_that_an_equation_is_missed(is_smooth, times, factor):
    misfit = times * CRITERIA.met_smoothly
    result = SimpleNamespace(interrupted=False)
    joint = SimpleNamespace(misfit=misfit, result=result)
    selection = Selection(joint, is_smooth=is_smooth)
    assert selection.misses_smoothly == pytest.approx(factor)
    assert len(missed_smoothly(selection.misses_smoothly)) == (factor > 0)
