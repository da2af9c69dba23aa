"""Fits that are interrupted or fail: all attributes of a fit, or those of before."""

import warnings
from functools import partial

import numpy as np
import pytest
from interruptions import InterruptAt

from keql import KernelPDESolver, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql.kernels import RBF, Polynomial

T = np.linspace(0, 3, 12)[:, None]
Y = np.exp(-T[:, 0])
GIVEN = {
    "known_part": "u_t",
    "operators": ("u",),
    "variables": ("t",),
    "equation_kernel": Polynomial(1),
}
FIXED = {"state_kernel": RBF(1.0, "fixed"), "observation_noise": 1e-3}
DUAL = {**GIVEN, **FIXED, "solver": "dual", "n_restarts": 0}
MODELS = {
    "two steps": TwoStepKEqL(**GIVEN),
    "dual": OneStepKEqL(**DUAL),
    "reduced": ReducedOneStepKEqL(**GIVEN, **FIXED, n_restarts=0),
    "exact": OneStepKEqL(**GIVEN),
    "chosen terms": OneStepKEqL(**GIVEN, n_terms="auto"),
    "solver": KernelPDESolver(
        lambda u, u_t: u_t + u**2,
        variables=("t",),
        state_kernel=RBF(1.0),
        collocation_points=12,
        observation_noise=1e-6,
        equation_noise=1e-6,
    ),
}
ENDS = np.array([[0.0], [3.0]]), np.array([1.0, 0.25])


def fitted_attributes(model):
    return {
        name: value
        for name, value in vars(model).items()
        if name.endswith("_") and not name.startswith("_")
    }


def fit_until(monkeypatch, model, n, error=KeyboardInterrupt):
    """Fit, with one call of a function that all stages use interrupted."""
    from keql._numerics import linalg

    X, y = ENDS if isinstance(model, KernelPDESolver) else (T, Y)
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stopping = InterruptAt(linalg.lapack.dpotrf, n, error)
        patch.setattr(linalg.lapack, "dpotrf", stopping)
        try:
            model.fit(X, y)
        except (KeyboardInterrupt, MemoryError):
            return True, stopping.calls
    return False, stopping.calls


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("name", MODELS)
def test_attributes_are_those_of_one_fit(monkeypatch, name, error):
    from sklearn.base import clone

    _, calls = fit_until(monkeypatch, clone(MODELS[name]), 10**9)
    complete = clone(MODELS[name])
    fit_until(monkeypatch, complete, 10**9)
    for n in np.unique(np.linspace(1, calls, 6).astype(int)):
        model = clone(MODELS[name])
        stopped, _ = fit_until(monkeypatch, model, n, error)
        if stopped:
            assert fitted_attributes(model) == {}
        else:
            assert fitted_attributes(model).keys() == fitted_attributes(complete).keys()
            assert np.all(np.isfinite(model.predict(T)))


@pytest.mark.parametrize("name", ["two steps", "dual", "solver"])
def test_an_earlier_fit_stays(monkeypatch, name):
    from sklearn.base import clone

    model = clone(MODELS[name])
    fit_until(monkeypatch, model, 10**9)
    before = fitted_attributes(model)
    stopped, _ = fit_until(monkeypatch, model, 1, MemoryError)
    assert stopped
    after = fitted_attributes(model)
    assert after.keys() == before.keys()
    assert all(after[key] is before[key] for key in before)
    with pytest.raises(ValueError, match="y"):
        model.fit(T, Y[:3])
    assert fitted_attributes(model).keys() == before.keys()


def test_the_best_so_far_is_kept_between_the_stages(monkeypatch):
    """Where terms are compared, after some were solved for."""
    from keql._regression.term_scores import TermScores

    compare = TermScores.linearised
    stopping = InterruptAt(compare, 2)
    monkeypatch.setattr(TermScores, "linearised", lambda *args: stopping(*args))
    model = OneStepKEqL(**GIVEN, n_terms="auto")
    with pytest.warns(UserWarning, match="interrupted"):
        model.fit(T, Y)
    assert stopping.calls == 2
    assert not model.converged_ and model.equation_.terms()["u"] == pytest.approx(-1)
    np.testing.assert_allclose(model.predict(T), Y, rtol=1e-6)


def test_an_interruption_before_the_first_step_is_no_failure(monkeypatch):
    """Where a set of terms has just been begun with: the fit stops, and says so."""
    from keql._evolution.trajectories import TrajectoryProblem

    stopping = InterruptAt(TrajectoryProblem.linearise, 6)
    t = np.linspace(0, 6, 30)[:, None]
    noise = 0.01 * np.random.default_rng(0).standard_normal(30)
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables="t", n_terms="auto")
    with monkeypatch.context() as patch:
        patch.setattr(TrajectoryProblem, "linearise", lambda *args: stopping(*args))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model.fit(t, np.sin(2 * t[:, 0]) + noise)
            except KeyboardInterrupt:
                assert fitted_attributes(model) == {}
                return
    assert stopping.calls == 6 and not model.converged_
    assert any("interrupted" in str(each.message) for each in caught)


def test_a_joint_fit_is_kept_while_others_are_tried(monkeypatch):
    from keql.model_selection._search import _Search

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_Search, "_or_kernel_of_two_steps", interrupted)
    monkeypatch.setattr(_Search, "_is_worth_more", lambda *_: True)
    model = OneStepKEqL(**GIVEN, solver="dual", n_restarts=0, observation_noise=1e-3)
    with pytest.warns(UserWarning, match="interrupted"):
        model.fit(T, Y)
    assert not model.converged_
    np.testing.assert_allclose(model.predict(T), Y, atol=1e-2)


def interrupted_at(owner, name, n):
    """A function in the place of a method: its n-th call is Ctrl-C."""
    method, calls = getattr(owner, name), []

    def call(*args, **kwargs):
        calls.append(args)
        if len(calls) == n:
            raise KeyboardInterrupt
        return method(*args, **kwargs)

    return call


def test_two_steps_are_kept_where_nothing_better_was_found(monkeypatch):
    from keql.model_selection._exact_states import ExactSearch

    stopped = interrupted_at(ExactSearch, "run", 1)
    monkeypatch.setattr(ExactSearch, "run", stopped)
    model = OneStepKEqL(**GIVEN)
    with pytest.warns(UserWarning, match="interrupted before .* two-step solution"):
        model.fit(T, Y)
    of_two_steps = TwoStepKEqL(**GIVEN).fit(T, Y)
    np.testing.assert_allclose(model.predict(T), of_two_steps.predict(T), rtol=1e-9)
    complete = fitted_attributes(OneStepKEqL(**DUAL).fit(T, Y))
    assert fitted_attributes(model).keys() == complete.keys()
    assert not model.converged_ and "interrupted" in str(model.fit_report_)


@pytest.mark.parametrize("stage", ["_or_more_terms", "_misses_nothing"])
def test_exact_states_are_kept_between_the_hypotheses(monkeypatch, stage):
    """Where one hypothesis was solved for, and another one is prepared."""
    from keql.model_selection._exact_states import ExactSearch

    stopped = interrupted_at(ExactSearch, stage, 1)
    monkeypatch.setattr(ExactSearch, stage, stopped)
    t = np.linspace(0, 6, 25)[:, None]
    noise = 0.02 * np.random.default_rng(0).standard_normal(25)
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables="t")
    with pytest.warns(UserWarning, match="interrupted after"):
        model.fit(t, np.sin(2 * t[:, 0]) + noise)
    assert model.equation_.terms()["u"] == pytest.approx(-4, abs=0.2)


def test_a_joint_fit_is_kept_between_the_hypotheses(monkeypatch):
    from keql.model_selection._search import _Search

    monkeypatch.setattr(_Search, "_or_cubic", interrupted_at(_Search, "_or_cubic", 1))
    own = {"operators": ("u",), "known_part": "u_t", "variables": ("t",)}
    model = OneStepKEqL(**own, solver="dual", n_restarts=0)
    with pytest.warns(UserWarning, match="interrupted after"):
        model.fit(T, Y)
    assert model.loss_curve_ and np.allclose(model.predict(T), Y, atol=1e-3)


def solver(**settings):
    return KernelPDESolver(
        lambda u, u_t: u_t + u**2,
        variables=("t",),
        collocation_points=12,
        **settings,
    )


def test_the_best_kernel_so_far_solves_an_equation(monkeypatch):
    from keql._solving import default_kernel

    rate = interrupted_at(default_kernel, "solve_all", 4)
    monkeypatch.setattr(default_kernel, "solve_all", rate)
    with pytest.warns(UserWarning, match="best of 3 kernels"):
        model = solver().fit(*ENDS)
    assert np.all(np.isfinite(model.predict(T)))


@pytest.mark.parametrize("n", [2, 12])
def test_an_interrupted_solution_says_so(monkeypatch, n):
    """In the first search of a solver, or with less noise: it is not gone on with."""
    from keql._numerics.optimisation import Damping

    monkeypatch.setattr(Damping, "advance", interrupted_at(Damping, "advance", n))
    with pytest.warns(UserWarning, match="interrupted after"):
        model = solver(state_kernel=RBF(1.0)).fit(*ENDS)
    assert not model.converged_ and np.all(np.isfinite(model.predict(T)))


ONLY_STATES = partial(TwoStepKEqL, variables=("t",))
SEARCHES = {
    "prior": ONLY_STATES(),
    "kernel": ONLY_STATES(state_kernel=RBF(1.0)),
    "ring": ONLY_STATES(periods={"t": 3.25}),
    "callable": ONLY_STATES(optimizer=lambda f, x, bounds: (x, f(x)[0])),
    "states": OneStepKEqL(variables=("t",)),
    "system": ONLY_STATES(states=("u", "v")),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_best_hyperparameters_so_far_are_kept(monkeypatch, name):
    """Two steps with the best kernel that was tried: those that are given it."""
    from sklearn.base import clone

    from keql._regression import likelihood, state_prior

    # Each evaluation of a likelihood or density factors a covariance.
    for module, factorise in (
        (likelihood, "cholesky"),
        (state_prior, "cholesky_of_packed"),
    ):
        stand_in = interrupted_at(module, factorise, 4)
        monkeypatch.setattr(module, factorise, stand_in)
    y = np.column_stack([Y, 2 * Y]) if name == "system" else Y
    with pytest.warns(UserWarning, match="interrupted while hyperparameters"):
        model = clone(SEARCHES[name]).fit(T, y)
    monkeypatch.undo()
    assert "interrupted" in str(model.fit_report_)
    found = {
        "state_kernel": model.state_kernel_,
        "observation_noise": model.observation_noise_,
        "optimizer": None,
    }
    other = clone(SEARCHES[name]).set_params(**found).fit(T, y)
    np.testing.assert_allclose(other.predict(T), model.predict(T), rtol=1e-9)


def test_a_second_interruption_stops_at_once(monkeypatch):
    from keql._regression import state_prior

    calls = []

    def interrupted(*given):
        calls.append(given)
        if len(calls) in (4, 6):
            raise KeyboardInterrupt
        return cholesky_of_packed(*given)

    cholesky_of_packed = state_prior.cholesky_of_packed
    monkeypatch.setattr(state_prior, "cholesky_of_packed", interrupted)
    model = ONLY_STATES(states=("u", "v"))
    with pytest.raises(KeyboardInterrupt):
        model.fit(T, np.column_stack([Y, 2 * Y]))
    assert len(calls) == 6 and fitted_attributes(model) == {}
