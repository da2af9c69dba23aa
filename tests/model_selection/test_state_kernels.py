"""Length scales chosen by what the equation predicts."""

from types import SimpleNamespace

import numpy as np
import pytest

from keql import IdentifiabilityWarning, OneStepKEqL, ReducedOneStepKEqL
from keql.datasets import make_burgers
from keql.kernels import RBF, Constant
from keql.metrics import relative_l2_error
from keql.model_selection import _state_kernels
from keql.model_selection._criteria import Criteria
from keql.model_selection._state_kernels import (
    KernelCandidate,
    compare_kernels,
    most_parsimonious,
    search_lengths,
)


class Found:
    def __init__(self, error, values):
        self.error, self.values = error, values


def test_search_descends_and_continues_from_where_it_is():
    best, calls = np.array([0.2, 0.05]), []

    def evaluate(place, values):
        calls.append((tuple(place), values))
        return Found(np.sum(np.log(place / best) ** 2), tuple(place))

    path = 0.4 * 0.5 ** np.arange(5)[:, None] * np.ones(2)
    tried = search_lengths(evaluate, path, (0.01, 10.0), (2.0, 2.0**0.5), "given")
    found = min(tried.values(), key=lambda candidate: candidate.error)
    np.testing.assert_allclose(found.values, best, rtol=1e-6)
    assert len({place for place, _ in calls}) == len(calls) == len(tried)
    assert calls[0] == (tuple(path[0]), "given")
    visited = {place for place, _ in calls}
    assert all(values in visited for _, values in calls[1:])
    assert min(min(place) for place, _ in calls) > 0.01


def test_kernels_near_those_that_were_compared(monkeypatch):
    """The best length scales of either kind have moved by one factor since.

    The error is the squared distance from these, in logarithms: they are found as in a
    search from the first, and in fewer fits.
    """
    points = np.random.RandomState(0).uniform(size=(30, 2))
    operators = [SimpleNamespace(order=2)]
    setup = SimpleNamespace(operators=operators, collocation_points=[np.ones((400, 2))])
    data = SimpleNamespace(functions=[SimpleNamespace(points=points)], periods=None)
    family = SimpleNamespace(
        observations=data,
        two_step=SimpleNamespace(setup=setup),
        context=SimpleNamespace(criteria=Criteria()),
    )
    extent, fits = np.ptp(points, axis=0), []

    def fit(family, kernel, values, comparison):
        fits.append(kernel)
        started.append(values)
        best = extent * (right if hasattr(kernel, "nu") else 2 * right)
        error = 1e-3 + np.sum(np.log(kernel.length_scale / best) ** 2)
        iterate = SimpleNamespace(values=len(fits))
        return KernelCandidate(kernel, iterate, np.array([error]), 1.0)

    monkeypatch.setattr(_state_kernels, "_with_offset", lambda family, kernel: kernel)
    monkeypatch.setattr(_state_kernels, "_fit_kernel", fit)
    right, started = np.array([0.4, 0.2]), []
    before = compare_kernels(family)
    n_first = len(fits)
    right = np.array([0.4, 0.2 * 2**0.5])
    found = compare_kernels(family, near=before)
    n_near = len(fits) - n_first
    again = compare_kernels(family)
    for is_smooth in (True, False):
        own, other = (
            min((k for k in each if k.is_smooth is is_smooth), key=lambda k: k.error)
            for each in (found, again)
        )
        np.testing.assert_allclose(own.place, (1 + is_smooth) * right, rtol=1e-5)
        np.testing.assert_allclose(own.place, other.place, rtol=1e-5)
    assert n_near < len(fits) - n_first - n_near
    start = len(started)
    compare_kernels(family, near=before, from_there=True)
    rough = next(i for i in range(start, len(fits)) if hasattr(fits[i], "nu"))
    for first, is_smooth in ((start, True), (rough, False)):
        own = [k for k in before if k.is_smooth is is_smooth]
        assert started[first] == min(own, key=lambda k: k.error).values


def test_of_equal_predictions_the_lowest_loss():
    rng = np.random.RandomState(0)
    errors = rng.standard_normal(200)
    best = KernelCandidate(None, None, errors, 300.0)
    as_good = KernelCandidate(None, None, 1.001 * errors[::-1], 200.0)
    costly = KernelCandidate(None, None, 1.0005 * errors[::-1], 250.0)
    worse = KernelCandidate(None, None, 1.1 * errors, 100.0)
    assert most_parsimonious([best, as_good, costly, worse], Criteria()) is as_good
    # one observation alone can make a difference
    outlier = errors + 10.0 * (np.arange(200) == 7)
    assert (
        most_parsimonious(
            [best, KernelCandidate(None, None, outlier, 100.0)], Criteria()
        )
        is best
    )


@pytest.fixture(scope="module")
def few():
    return make_burgers(25, collocation_shape=(14, 17), random_state=0)


@pytest.fixture(scope="module")
def fitted(few):
    return OneStepKEqL(**few.problem).fit(few.X, few.y)


@pytest.mark.slow
def test_few_observations_are_enough(few, fitted):
    """Far better than with the scales that the observations alone suggest.

    With these, exact states tell that the equation is another one.
    """
    error = relative_l2_error(few.y_test, fitted.predict(few.X_test))
    by_likelihood = Constant(0.04) * RBF([0.4, 0.2])
    other = OneStepKEqL(**few.problem, state_kernel=by_likelihood, equation_noise=0.1)
    with pytest.warns(IdentifiabilityWarning, match="with exact states predicts"):
        other.fit(few.X, few.y)
    assert error < 0.05
    assert error < 0.5 * relative_l2_error(few.y_test, other.predict(few.X_test))


@pytest.mark.slow
def test_variances_are_of_the_size_of_errors(few, fitted):
    mean, std = fitted.predict(few.X_test, return_std=True)
    covered = np.mean(np.abs(mean - few.y_test) < 1.645 * std)
    assert 0.5 < covered <= 1
    assert fitted.misfit_ < 2
    assert fitted.observation_noise_ > 0


@pytest.mark.slow
def test_rough_kernels_for_noisy_data():
    noisy = make_burgers(60, noise=0.05, collocation_shape=(14, 17), random_state=0)
    model = OneStepKEqL(**noisy.problem, n_terms=None)
    with pytest.warns(IdentifiabilityWarning, match="a cubic polynomial predicts"):
        model.fit(noisy.X, noisy.y)
    assert "Matern" in str(model.state_kernel_)
    mean, std = model.predict(noisy.X_test, return_std=True)
    assert relative_l2_error(noisy.y_test, mean) < 0.05
    assert 0.7 < np.mean(np.abs(mean - noisy.y_test) < 1.645 * std) <= 1


@pytest.mark.slow
def test_units_do_not_matter(few, fitted):
    settings = dict(few.problem)
    settings["collocation_points"] = few.collocation_points * [60.0, 1e3]
    other = OneStepKEqL(**settings).fit(few.X * [60.0, 1e3], few.y * 1e6)
    np.testing.assert_allclose(
        other.predict(few.X_test * [60.0, 1e3]) * 1e-6,
        fitted.predict(few.X_test),
        atol=1e-3 * np.abs(few.y).max(),
    )


@pytest.mark.slow
def test_reduced_method_chooses_too(few):
    model = ReducedOneStepKEqL(**few.problem, n_terms=None)
    with pytest.warns(IdentifiabilityWarning, match="leaves 10 %"):
        model.fit(few.X, few.y)
    assert relative_l2_error(few.y_test, model.predict(few.X_test)) < 0.1
