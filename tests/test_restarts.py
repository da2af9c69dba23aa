"""Trying again from a poor minimum: through windows, and through a polynomial."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL
from keql._basis import InducingBasis, PolynomialBasis
from keql._restarts import ATTEMPTS, POOR, minimise_with_restarts
from keql.datasets import make_duffing
from keql.kernels import RBF, Constant
from keql.metrics import relative_l2_error

SETTINGS = {
    "equation_kernel": Constant(100.0, "fixed") * RBF(1.0, "fixed"),
    "observation_noise": 1e-4,
    "equation_noise": 1e-3,
    "n_inducing": 150,
    "max_iter": 60,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def data():
    """Observations so sparse that a free-form equation is not found directly."""
    return make_duffing(18, t_max=28.0, n_collocation=400)


def model(data, **parameters):
    kernel = {"state_kernel": data.kernels["state_kernel"]}
    return OneStepKEqL(**{**data.problem, **kernel, **SETTINGS, **parameters})


def test_a_free_form_equation_is_found_through_a_cubic_one(data):
    with pytest.warns(ConvergenceWarning):
        direct = model(data, n_restarts=0).fit(data.X, data.y)
    assert direct.misfit_ > POOR
    fitted = model(data, n_restarts=10, max_iter=300).fit(data.X, data.y)
    assert fitted.misfit_ < POOR
    assert isinstance(fitted.equation_.basis, InducingBasis)
    assert any("degree" in each for each in fitted.restarts_)
    assert fitted.restarts_[-1]["start"] == "cubic"
    errors = [
        relative_l2_error(data.y_test, each.predict(data.X_test))
        for each in (direct, fitted)
    ]
    assert errors[1] < 0.1 < errors[0]


class Recorder:
    """A problem that is never solved well; remembers how it was tried."""

    basis = PolynomialBasis(None)

    def __init__(self, stages=()):
        self.stages = list(stages)

    def within(self, start, stop):
        self.stages.append((start, stop))
        return self

    def with_observation_noise(self, factor):
        self.stages.append(factor)
        return self

    def evaluate(self, x):
        self.loss = 1.0
        return self

    def linearise(self, evaluation):
        return self

    def step(self, damping):
        return 0.0, 0.0

    def misfit(self, x):
        return 2 * POOR


def test_every_attempt_is_tried_while_the_misfit_is_poor():
    problem = Recorder()
    settings = {"max_iter": 5, "tol": 1e-6, "report": lambda *_: None, "rng": None}
    *_, tries = minimise_with_restarts(problem, 0.0, n_restarts=6, **settings)
    kept = [
        {k: v for k, v in each.items() if k in ATTEMPTS[0] | ATTEMPTS[2] | ATTEMPTS[4]}
        for each in tries
    ]
    assert kept == list(ATTEMPTS[:7])
    # One stage each: windows do not grow where the equation does not hold.
    expected = [each.get("window", each.get("noise")) for each in ATTEMPTS[:7]]
    assert problem.stages == [stage for stage in expected if stage is not None]


def test_windows_grow_while_the_equation_holds():
    problem = Recorder()
    problem.misfit = lambda x: 0.5 * POOR if len(problem.stages) else 2 * POOR
    settings = {"max_iter": 5, "tol": 1e-6, "report": lambda *_: None, "rng": None}
    minimise_with_restarts(problem, 0.0, n_restarts=2, **settings)
    assert problem.stages[0] == ATTEMPTS[2]["window"]
    widths = np.diff(problem.stages, axis=1).ravel()
    assert np.all(np.diff(widths) > 0) and problem.stages[-1][0] < 0.15
