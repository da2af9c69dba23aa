"""Trying again from a poor minimum: from drawn states, and through a polynomial."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL, ReducedOneStepKEqL
from keql._joint.restarts import RestartSettings
from keql.datasets import make_duffing
from keql.equation._basis import InducingBasis
from keql.exceptions import IdentifiabilityWarning
from keql.kernels import RBF, Constant, Polynomial
from keql.metrics import relative_l2_error

POOR = RestartSettings().poor_misfit
SETTINGS = {
    "observation_noise": 1e-4,
    "equation_noise": 1e-3,
    "max_iter": 60,
    "n_terms": None,
    "random_state": 0,
}
CUBIC = {"equation_kernel": Polynomial(3)}
FREE = {"equation_kernel": Constant(100.0, "fixed") * RBF(1.0, "fixed")}


@pytest.fixture(scope="module")
def data():
    """Observations so sparse that a free-form equation is not found directly."""
    return make_duffing(18, t_max=28.0, n_collocation=400)


@pytest.fixture(scope="module")
def hard():
    """A trajectory on which the two-step start leads to a poor minimum."""
    return make_duffing(20, t_max=31.0, n_collocation=400, initial=(-0.6, 0.7))


def model(data, learner=OneStepKEqL, **parameters):
    kernel = {"state_kernel": data.kernels["state_kernel"]}
    return learner(**{**data.problem, **kernel, **SETTINGS, **parameters})


def error_of(fitted, data):
    return relative_l2_error(data.y_test, fitted.predict(data.X_test))


@pytest.mark.slow
def test_a_free_form_equation_is_found_through_a_cubic_one(data):
    settings = {**FREE, "n_inducing": 150}
    with pytest.warns(ConvergenceWarning):
        direct = model(data, n_restarts=0, **settings).fit(data.X, data.y)
    assert direct.misfit_ > POOR
    with pytest.warns(IdentifiabilityWarning, match="has no list of terms"):
        fitted = model(data, max_iter=300, **settings).fit(data.X, data.y)
    assert fitted.misfit_ < POOR
    assert isinstance(fitted.equation_.basis, InducingBasis)
    assert any("degree" in each for each in fitted.restarts_)
    assert fitted.restarts_[-1]["start"] == "cubic"
    assert error_of(fitted, data) < 0.1 < error_of(direct, data)


@pytest.mark.parametrize("learner", [OneStepKEqL, ReducedOneStepKEqL])
@pytest.mark.parametrize("solver", ["dual", "primal"])
def test_a_poor_minimum_is_left_from_a_drawn_state(hard, learner, solver):
    fitted = model(hard, learner, **CUBIC, solver=solver).fit(hard.X, hard.y)
    first, *drawn, last = fitted.restarts_
    assert first["misfit"] > 1e3 * POOR
    assert all(each["draws"] == 1 for each in drawn)  # 60 steps are not enough for two
    assert [each["misfit"] < POOR for each in drawn] == [False] * (len(drawn) - 1) + [
        True
    ]
    assert last["start"] == "drawn" and last["misfit"] == fitted.misfit_ < 1e-3
    assert error_of(fitted, hard) < 1e-5


@pytest.mark.slow
def test_a_try_takes_about_as_many_steps_as_the_first_one(hard):
    settings = {**CUBIC, "equation_noise": 1e-6}  # less than the state kernel can
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = model(hard, **settings, max_iter=130, n_restarts=2).fit(hard.X, hard.y)
    drawn = [each for each in fitted.restarts_ if "draws" in each]
    assert [each["draws"] for each in drawn] == [3, 3]
    assert all(40 < each["n_iter"] <= 120 for each in drawn)


def test_what_is_not_found_is_left_at_the_lowest_loss():
    # Nothing solves u'' = P(u) for this state: its frequency grows with time.
    t = np.linspace(0, 6, 25)[:, None]
    y = np.sin(t.ravel() ** 2 / 2)
    settings = {
        "operators": ("u",),
        "known_part": "u_tt",
        "collocation_points": np.linspace(0, 6, 80)[:, None],
        "variables": ("t",),
        "state_kernel": RBF(0.5, "fixed"),
        "equation_kernel": Polynomial(1),
        **SETTINGS,
    }
    with pytest.warns(ConvergenceWarning):
        fitted = OneStepKEqL(**settings, n_restarts=3).fit(t, y)
    assert fitted.misfit_ > POOR
    assert len(fitted.restarts_) == 5  # the first, three draws, and on from the best
    assert fitted.restarts_[-1]["start"] == "drawn"
    ends = [each["loss"] for each in fitted.restarts_ if "draws" not in each]
    assert fitted.loss_curve_[-1] == min(ends)
    again = OneStepKEqL(**settings, n_restarts=3)
    with pytest.warns(ConvergenceWarning):
        again.fit(t, y)
    assert again.restarts_ == fitted.restarts_
    np.testing.assert_array_equal(again.predict(t), fitted.predict(t))
    # Tries that agree on the lowest loss are the last.
    with pytest.warns(ConvergenceWarning):
        longer = OneStepKEqL(**settings, n_restarts=30).fit(t, y)
        steps = {"max_iter": 300, "n_restarts": 30}
        many_draws = OneStepKEqL(**{**settings, **steps}).fit(t, y)
    losses = np.array([r["loss"] for r in longer.restarts_ if "draws" in r])
    assert 3 <= len(losses) < 30
    assert np.sum(losses <= 1.01 * losses.min()) == 3
    assert losses[-1] <= 1.01 * losses.min()
    # Draws of one try, of which all lead to one loss, are the last as well.
    (draws,) = [each for each in many_draws.restarts_ if "draws" in each]
    assert draws["draws"] == RestartSettings.n_all_agreeing
    assert draws["loss"] == pytest.approx(losses.min(), rel=0.01)
