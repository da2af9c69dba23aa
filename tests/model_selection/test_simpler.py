"""Functions in the place of many products that explain exact trajectories as well."""

from types import SimpleNamespace

import numpy as np
import pytest

from keql.model_selection._beside import _simpler
from keql.model_selection._beside._simpler import or_fewer_terms


def fit_of(n_terms, error=1e-12, stop=None):
    """What is asked of a fit of two equations."""
    result = SimpleNamespace(interrupted=stop is not None, stop=stop)
    setup = SimpleNamespace(equations=[0, 1])
    names = [f"x_tt: u{i}" for i in range(n_terms)]
    learned = SimpleNamespace(setup=setup)
    fit = SimpleNamespace(term_names=names, error=error, result=result, learned=learned)
    fit.stopped = lambda stop: ("stopped", stop)
    return fit


@pytest.mark.parametrize(
    "n_terms, is_linear, is_dependent, is_asked",
    [
        (5, False, True, True),
        (4, False, True, False),
        (5, True, True, False),
        (5, False, False, False),
    ],
)
def test_they_are_looked_for_where_several_sets_are_exact(
    n_terms, is_linear, is_dependent, is_asked, monkeypatch
):
    monkeypatch.setattr(_simpler, "_are_linear", lambda learned: is_linear)
    monkeypatch.setattr(_simpler, "_are_dependent", lambda learned: is_dependent)
    fit, other, asked = fit_of(n_terms), fit_of(2), []
    found = or_fewer_terms(fit, lambda own: asked.append(own) or other, 1e-9)
    assert found is (other if is_asked else fit)
    assert asked == [fit] * is_asked


@pytest.mark.parametrize(
    "other", [None, fit_of(2, error=1e-8), fit_of(5)], ids=["none", "missed", "as many"]
)
def test_they_have_to_be_exact_and_fewer(other, monkeypatch):
    for name, answer in (("_are_linear", False), ("_are_dependent", True)):
        monkeypatch.setattr(_simpler, name, lambda learned, own=answer: own)
    fit = fit_of(5)
    assert or_fewer_terms(fit, lambda own: other, 1e-9) is fit
    stopped = or_fewer_terms(fit, lambda own: fit_of(2, stop="asked"), 1e-9)
    assert stopped == ("stopped", "asked")


@pytest.mark.parametrize("eccentricity", [0.0, 0.3])
def test_velocities_on_a_circle_depend_on_each_other(eccentricity):
    """And any four quantities without such a relation do not."""
    angle = np.linspace(0, 5, 60)
    t = np.linspace(0, 3, 60)
    velocities = [-np.sin(angle), eccentricity + np.cos(angle)]
    free = [np.exp(-t), t * np.sin(3 * t)]
    for columns, expected in ((velocities, True), (free, False)):
        S = np.column_stack([t, *columns, t])  # the last is of the known part
        equation = SimpleNamespace(training_features=S, n_unknown_features=3)
        setup = SimpleNamespace(inputs=SimpleNamespace(names=()))
        given = SimpleNamespace(variables=("t",), equations=[equation], setup=setup)
        assert _simpler._are_dependent(given) == expected
