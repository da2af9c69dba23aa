"""OneStepKEqL: oracles, limit cases, invariances, restarts, scikit-learn's contract."""

import importlib.util
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares
from scipy.special import airy
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold

from keql import ExtrapolationWarning, IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql.datasets import make_burgers, make_darcy, make_duffing
from keql.kernels import RBF, Constant, Matern, Polynomial, RationalQuadratic
from keql.metrics import equation_error, relative_l2_error
from keql.operators import gram, parse_operator

WithAllTerms = partial(OneStepKEqL, n_terms=None)
POINTS = np.linspace(0, 6, 60)[:, None]
OSCILLATOR = {
    "operators": ("u",),
    "known_part": "u_tt",
    "variables": ("t",),
    "collocation_points": POINTS,
}
FIXED = {
    "state_kernel": RBF(1.0, "fixed"),
    "equation_kernel": Polynomial(1),
    "observation_noise": 1e-4,
    "equation_noise": 1e-3,
}


def only_state(**parameters):
    """The first of two steps, without an equation."""
    given = {name: FIXED[name] for name in ("state_kernel", "observation_noise")}
    return TwoStepKEqL(variables=("t",), **given, **parameters)


def oscillator(n=8):
    """Exact observations of u'' = -4 u."""
    t = np.linspace(0, 6, n)[:, None]
    return t, np.sin(2 * t.ravel())


def duffing(n_observations=14, t_max=12.0, n_collocation=120, **parameters):
    """A chaotic trajectory, and settings that find its equation."""
    data = make_duffing(
        n_observations, t_max=t_max, n_collocation=n_collocation, **parameters
    )
    settings = {
        **data.problem,
        "state_kernel": data.kernels["state_kernel"],
        "equation_kernel": Polynomial(3),
        "observation_noise": 1e-4,
        "equation_noise": 1e-3,
    }
    return data, settings


@pytest.fixture(scope="module")
def two_functions():
    """Two solutions of one equation, labelled in the last column."""
    t = np.linspace(0, 6, 9)
    X = np.vstack([np.column_stack([t, np.full(9, label)]) for label in (7, 3)])
    return X, np.concatenate([np.sin(2 * t), 2 * np.cos(2 * t + 0.3)])


# --- oracles and limit cases --------------------------------------------------------


@pytest.mark.parametrize("penalty", [1.0, 2.5])
def test_minimum_agrees_with_scipy(penalty):
    """The objective as a sum of squares, written out with Cholesky factors."""
    rng = np.random.RandomState(0)
    X = np.linspace(0, 3, 6)[:, None]
    y = np.sin(2 * X.ravel()) + 0.05 * rng.normal(size=6)
    weights = rng.uniform(0.5, 2, size=6)
    points = np.linspace(0.1, 2.9, 8)[:, None]
    kernel = Matern(0.8, "fixed", nu=3.5)
    model = WithAllTerms(
        operators=("u",),
        known_part="u_tt",
        variables=("t",),
        collocation_points=points,
        forcing=lambda points: np.cos(points[:, 0]),
        state_kernel=kernel,
        equation_kernel=Constant(1.0, "fixed") * Polynomial(2, scale=1.0, center=0.0),
        observation_noise=0.05,
        equation_noise=0.3,
        state_penalty=penalty,
        tol=1e-13,
    ).fit(X, y, sample_weight=weights)

    u, u_tt = (parse_operator(name, ("t",)) for name in ("u", "u_tt"))
    functionals = [(X, u), (points, u), (points, u_tt)]
    C = np.linalg.cholesky(gram(kernel, functionals))

    def residuals(unknowns):
        alpha, w = unknowns[:-3], unknowns[-3:]
        observed, v, v_tt = np.split(C @ alpha, [6, 14])
        # (u u' + 1)^2 has the orthonormal features 1, sqrt(2) u, u^2.
        P = w[0] + 2**0.5 * w[1] * v + w[2] * v**2
        return np.concatenate(
            [
                weights**0.5 * (observed - y) / 0.05,
                (P + v_tt - np.cos(points[:, 0])) / 0.3,
                penalty**0.5 * alpha,
                w,
            ]
        )

    best = least_squares(residuals, np.zeros(len(C) + 3), xtol=1e-14, ftol=1e-14)
    assert model.loss_curve_[-1] == pytest.approx(best.cost, rel=1e-7)
    t = np.linspace(0, 3, 40)[:, None]
    cross = np.linalg.solve(C, gram(kernel, functionals, [(t, u)]))
    np.testing.assert_allclose(model.predict(t), cross.T @ best.x[:-3], atol=1e-4)
    v = np.linspace(-1, 1, 5)
    P = model.equation_.unknown_part(np.column_stack([0 * v, v]))
    w = best.x[-3:]
    np.testing.assert_allclose(
        P, w[0] + 2**0.5 * w[1] * v + w[2] * v**2, atol=1e-4 * np.abs(P).max()
    )


def test_without_an_equation_it_is_the_two_step_method():
    rng = np.random.RandomState(0)
    X, y = rng.uniform(size=(30, 2)), rng.normal(size=30)
    model, reference = (method().fit(X, y) for method in (OneStepKEqL, TwoStepKEqL))
    X_new = rng.uniform(size=(20, 2))
    for ours, theirs in zip(
        model.predict(X_new, return_std=True),
        reference.predict(X_new, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert model.equation_ is None
    assert model.converged_
    assert model.restarts_ == []
    assert model.n_iter_ == 1


@pytest.mark.parametrize("penalty", [1.0, 2.5])
def test_a_vague_equation_leaves_the_state_of_two_steps(penalty):
    X, y = oscillator()
    settings = {**OSCILLATOR, **FIXED, "state_penalty": penalty}
    vague = {**settings, "equation_noise": 1e6}
    model = WithAllTerms(**vague).fit(X, y)
    reference = only_state(state_penalty=penalty).fit(X, y)
    t = np.linspace(0, 6, 50)[:, None]
    np.testing.assert_allclose(model.predict(t), reference.predict(t), atol=1e-6)
    # It is where the loop starts.
    assert model.loss_curve_[0] == pytest.approx(model.loss_curve_[-1], rel=1e-6)
    exact = WithAllTerms(**settings).fit(X, y)
    assert np.abs(exact.predict(t) - reference.predict(t)).max() > 1e-2


def test_recovers_an_equation_that_two_steps_cannot():
    X, y = oscillator()
    t = np.linspace(0, 6, 100)[:, None]
    truth = np.sin(2 * t.ravel())
    model = WithAllTerms(**OSCILLATOR, **FIXED).fit(X, y)
    with pytest.warns(IdentifiabilityWarning, match="is uncertain by"):
        reference = TwoStepKEqL(**OSCILLATOR, **FIXED).fit(X, y)
    assert abs(model.equation_.terms()["u"] + 4) < 1e-3
    assert relative_l2_error(truth, model.predict(t)) < 1e-3
    assert relative_l2_error(truth, reference.predict(t)) > 2e-2
    np.testing.assert_allclose(
        model.predict_derivative(t, "u_t"), 2 * np.cos(2 * t.ravel()), atol=1e-2
    )
    np.testing.assert_allclose(
        model.equation_.apply(model, model.collocation_points_[0]), 0, atol=1e-3
    )
    # What one knows anyway is met: the loss is that of the solution, not of the start.
    assert model.misfit_ < 1
    assert model.converged_
    assert np.all(np.diff(model.loss_curve_) < 0)
    assert len(model.damping_curve_) == len(model.loss_curve_) - 1
    assert str(model.equation_).startswith("u_tt = -4.00 u")


def test_forcing_in_all_its_forms():
    X = np.linspace(0, 6, 12)[:, None]
    y = np.cos(3 * X.ravel())  # u_tt + 14 u = 5 cos 3t

    def forcing(points):
        return 5 * np.cos(3 * points[:, 0])

    results = []
    for collocation, given in (
        (POINTS, forcing),
        (POINTS, forcing(POINTS)),
        ({None: POINTS}, {None: forcing}),
    ):
        settings = {**OSCILLATOR, **FIXED, "collocation_points": collocation}
        model = WithAllTerms(**settings, forcing=given).fit(X, y)
        results.append(model.equation_.terms()["u"])
        assert str(model.equation_).startswith("u_tt = f - 14.0 u")
    assert np.ptp(results) == 0


def test_nonlinear_known_part():
    X, y = oscillator()
    settings = {**OSCILLATOR, **FIXED, "equation_kernel": Polynomial(3)}
    settings["known_part"] = lambda u, u_tt: u_tt + u**3 + 0 * anp.exp(u)
    model = WithAllTerms(**settings).fit(X, y)
    terms = model.equation_.terms()  # u_tt = -4 u + u^3
    assert terms["u"] == pytest.approx(-4, abs=1e-2)
    assert terms["u^3"] == pytest.approx(1, abs=2e-2)
    t = np.linspace(0, 6, 100)[:, None]
    assert relative_l2_error(np.sin(2 * t.ravel()), model.predict(t)) < 1e-3


def test_coefficients_that_vary():
    """u_tt + (1 + t) u = 0, Airy's equation: a kernel in t times a polynomial in u."""
    t = np.linspace(0, 6, 100)[:, None]
    X = t[::9]
    truth, y = (airy(-(1 + points.ravel()))[0] for points in (t, X))
    kernel = Constant(10.0, "fixed") * RBF(3.0, "fixed", active_dims=("t",))
    settings = {**OSCILLATOR, **FIXED, "equation_kernel": kernel * Polynomial(1)}
    model = WithAllTerms(**settings).fit(X, y)
    assert relative_l2_error(truth, model.predict(t)) < 1e-3
    S = np.column_stack([t, truth])[::5]
    P = model.equation_.unknown_part(S)
    assert relative_l2_error((1 + S[:, 0]) * S[:, 1], P) < 1e-2


# --- several functions ---------------------------------------------------------------


def test_functions_share_the_equation_and_keep_their_states(two_functions):
    X, y = two_functions
    model = WithAllTerms(**OSCILLATOR, **FIXED, function_column=1).fit(X, y)
    assert model.functions_ == (3.0, 7.0)
    assert model.equation_.terms()["u"] == pytest.approx(-4, abs=1e-3)
    t = np.linspace(0, 6, 50)
    for label, truth in ((7, np.sin(2 * t)), (3, 2 * np.cos(2 * t + 0.3))):
        found = model.predict(np.column_stack([t, np.full(50, label)]))
        assert relative_l2_error(truth, found) < 1e-3


def test_data_frames_and_relabelling_change_nothing(two_functions):
    X, y = two_functions
    reference = WithAllTerms(**OSCILLATOR, **FIXED, function_column=1).fit(X, y)
    for names in ({7.0: "left", 3.0: "right"}, {7.0: "right", 3.0: "left"}):
        labels = [names[label] for label in X[:, 1]]
        table = pd.DataFrame({"run": labels, "hours": X[:, 0]})
        model = WithAllTerms(**OSCILLATOR, **FIXED, function_column="run")
        model.fit(table, y)
        np.testing.assert_allclose(
            model.predict(table), reference.predict(X), atol=1e-8
        )
        for name, value in reference.equation_.terms().items():
            assert model.equation_.terms()[name] == pytest.approx(value, abs=1e-5)


def test_functions_with_their_own_points(two_functions):
    X, y = two_functions
    points = {7.0: np.linspace(0, 6, 50)[:, None], 3.0: np.linspace(1, 2, 30)[:, None]}
    settings = {**OSCILLATOR, **FIXED, "collocation_points": points}
    model = WithAllTerms(**settings, function_column=1).fit(X[:-2], y[:-2])
    assert [len(p) for p in model.collocation_points_] == [30, 50]
    # The equation comes from the first function, and helps the second where it holds.
    assert model.equation_.terms()["u"] == pytest.approx(-4, abs=1e-2)


def test_threads_change_nothing(two_functions, monkeypatch):
    X, y = two_functions
    used = []

    def spy(n_threads):
        used.append(n_threads)
        return ThreadPoolExecutor(n_threads)

    monkeypatch.setattr("keql._numerics.parallel.ThreadPoolExecutor", spy)
    first, second = (
        WithAllTerms(**OSCILLATOR, **FIXED, function_column=1, n_jobs=n_jobs).fit(X, y)
        for n_jobs in (1, 2)
    )
    assert set(used) == {2}
    np.testing.assert_allclose(first.predict(X), second.predict(X), rtol=1e-12)
    assert first.loss_curve_ == pytest.approx(second.loss_curve_, rel=1e-9)


# --- invariances ---------------------------------------------------------------------


def test_row_order_does_not_matter():
    data, settings = duffing()
    order = np.random.RandomState(0).permutation(len(data.y))
    first, second = (
        WithAllTerms(**settings).fit(data.X[rows], data.y[rows])
        for rows in (np.arange(len(data.y)), order)
    )
    np.testing.assert_array_equal(
        first.predict(data.X_test), second.predict(data.X_test)
    )
    assert first.equation_.terms() == second.equation_.terms()


@pytest.mark.parametrize("unit_u", [1e-6, 1e6])
@pytest.mark.parametrize("given", [True, False])
def test_units(unit_u, given):
    """Hours or seconds, micro or mega: the same equation after conversion."""

    def fit(unit_t, unit_u):
        data, settings = duffing()
        settings |= {
            "collocation_points": unit_t * settings["collocation_points"],
            "forcing": unit_u / unit_t**2 * data.forcing(data.collocation_points),
            "state_kernel": Constant(unit_u**2, "fixed")
            * RationalQuadratic(
                2**-0.5 * unit_t, 1.0, length_scale_bounds="fixed", alpha_bounds="fixed"
            ),
            "equation_kernel": Constant((unit_u / unit_t**2) ** 2, "fixed")
            * Polynomial(3),
            "observation_noise": 1e-4 * unit_u,
            "equation_noise": 1e-3 * unit_u / unit_t**2,
        }
        if not given:
            settings |= {"observation_noise": None, "equation_noise": None}
        return WithAllTerms(**settings).fit(data.X * unit_t, data.y * unit_u)

    unit_t = 3600.0
    plain, scaled = fit(1.0, 1.0), fit(unit_t, unit_u)
    assert plain.n_iter_ == scaled.n_iter_
    np.testing.assert_allclose(scaled.loss_curve_, plain.loss_curve_, rtol=1e-5)
    expected, found = plain.equation_.terms(), scaled.equation_.terms()
    units = {"u": unit_u, "u_t": unit_u / unit_t}
    for name, value in expected.items():
        unit = unit_t**2 / unit_u
        for factor in [] if name == "1" else name.split():
            base, _, power = factor.partition("^")
            unit *= units[base] ** int(power or 1)
        assert found[name] * unit == pytest.approx(value, rel=1e-6, abs=1e-6), name


def test_weights_are_repetitions_and_precisions():
    X, y = oscillator()
    y = y + 0.1 * np.random.RandomState(0).normal(size=len(y))
    weights = np.array([1, 3, 1, 2, 1, 0, 1, 1])
    settings = {**OSCILLATOR, **FIXED, "observation_noise": 0.1}
    weighted = WithAllTerms(**settings).fit(X, y, sample_weight=weights)
    repeated = WithAllTerms(**settings).fit(
        np.repeat(X, weights, 0), np.repeat(y, weights)
    )
    t = np.linspace(0, 6, 50)[:, None]
    np.testing.assert_allclose(weighted.predict(t), repeated.predict(t), atol=1e-10)
    settings["observation_noise"] = 0.2
    noisier = WithAllTerms(**settings).fit(X, y, sample_weight=4 * weights)
    np.testing.assert_allclose(weighted.predict(t), noisier.predict(t), atol=1e-8)
    plain = WithAllTerms(**settings).fit(X, y)
    assert np.abs(weighted.predict(t) - plain.predict(t)).max() > 1e-2


def test_a_large_weight_makes_a_row_exact():
    X, y = oscillator()
    y = y + 0.1 * np.random.RandomState(0).normal(size=len(y))
    weights = np.where(np.arange(len(y)) == 5, 1e10, 1.0)
    settings = {**OSCILLATOR, **FIXED, "observation_noise": 0.1}
    model = WithAllTerms(**settings).fit(X, y, sample_weight=weights)
    residual = np.abs(model.predict(X) - y)
    assert residual[5] < 1e-6
    assert residual.max() > 0.05


# --- the loop from outside -----------------------------------------------------------


def test_warm_start_goes_on():
    data, settings = duffing()
    with pytest.warns(ConvergenceWarning):
        model = WithAllTerms(**settings, warm_start=True, max_iter=2, n_restarts=0)
        model.fit(data.X, data.y)
    halfway = model.loss_curve_[-1]
    model.set_params(max_iter=100).fit(data.X, data.y)
    assert model.loss_curve_[0] == pytest.approx(halfway, rel=1e-6)
    full = WithAllTerms(**settings).fit(data.X, data.y)
    np.testing.assert_allclose(
        model.predict(data.X_test), full.predict(data.X_test), atol=1e-5
    )
    found = model.predict(data.X_test)
    model.fit(data.X, data.y)
    assert model.n_iter_ <= 2 < full.n_iter_
    np.testing.assert_allclose(model.predict(data.X_test), found, atol=1e-6)


def test_warm_start_from_another_problem_starts_anew():
    X, y = oscillator()
    model = WithAllTerms(**FIXED, warm_start=True).fit(X, y)  # no equation yet
    for settings in (OSCILLATOR, {"collocation_points": POINTS[::2]}):
        model.set_params(**settings).fit(X, y)
        assert model.equation_.terms()["u"] == pytest.approx(-4, abs=1e-2)
    reference = clone(model).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), reference.predict(X))


def test_too_few_steps_warn_with_advice():
    data, settings = duffing()
    model = WithAllTerms(**settings, max_iter=1, n_restarts=0)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 .*raise max_iter"):
        model.fit(data.X, data.y)
    assert not model.converged_
    assert model.n_iter_ == 1
    assert np.all(np.isfinite(model.predict(data.X_test)))


class Recorder:
    """A callback that keeps what it sees, and acts at the end of a given step."""

    def __init__(self, at=None, action=None):
        self.at, self.action = at, action
        self.tasks, self.errors, self.calls = [], [], []

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.calls.append("begin")

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        self.calls.append("end")
        self.tasks.append(context.task_name)
        if fitted_estimator is not None:
            self.errors.append(np.linalg.norm(fitted_estimator.predict(X) - y))
        if len(self.errors) == self.at and context.task_name == "step":
            return self.action()


def interrupt():
    raise KeyboardInterrupt


needs_callbacks = pytest.mark.skipif(
    importlib.util.find_spec("sklearn.callback") is None,
    reason="scikit-learn has no callbacks before 1.9",
)


@needs_callbacks
def test_callbacks_see_each_step():
    from sklearn.callback import ScoringMonitor

    data, settings = duffing()
    recorder, monitor = Recorder(), ScoringMonitor(scoring="r2")
    model = WithAllTerms(**settings).set_callbacks(recorder, monitor)
    model.fit(data.X, data.y)
    n_steps = len(model.loss_curve_) - 1
    assert recorder.tasks == ["step"] * n_steps + ["fit"]
    assert recorder.calls[:2] == ["setup", "begin"]
    assert recorder.calls[-2:] == ["end", "teardown"]
    assert recorder.calls.count("begin") == recorder.calls.count("end") == n_steps + 1
    log = monitor.get_logs().data_as_pandas
    assert (log.task_name == "step").sum() == n_steps
    assert log.r2.iloc[n_steps - 1] > 0.999
    # They have changed nothing.
    plain = WithAllTerms(**settings).fit(data.X, data.y)
    np.testing.assert_array_equal(plain.predict(data.X), model.predict(data.X))
    final = np.linalg.norm(plain.predict(data.X) - data.y)
    assert recorder.errors[n_steps - 1] == pytest.approx(final, rel=1e-6)


@needs_callbacks
@pytest.mark.parametrize(
    "action, message",
    [(interrupt, "interrupted after"), (lambda: True, "stopped by a callback")],
)
@pytest.mark.parametrize("n_restarts", [0, 4])
def test_a_stopped_fit_keeps_the_best_iterate(action, message, n_restarts):
    data, settings = duffing()
    recorder = Recorder(2, action)
    model = WithAllTerms(**settings, n_restarts=n_restarts).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match=message):
        model.fit(data.X, data.y)
    assert recorder.tasks.count("step") == 2
    assert not model.converged_
    assert len(model.restarts_) == 1
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        short = WithAllTerms(**settings, n_restarts=0, max_iter=model.n_iter_)
        short.fit(data.X, data.y)
    assert model.loss_curve_ == short.loss_curve_
    np.testing.assert_array_equal(
        model.predict(data.X_test), short.predict(data.X_test)
    )
    assert model.equation_.terms() == short.equation_.terms()
    assert np.all(np.isfinite(model.predict(data.X_test, return_std=True)))


@pytest.mark.slow
@needs_callbacks
@pytest.mark.parametrize("action", [interrupt, lambda: True])
def test_a_stop_while_trying_again_keeps_the_first_result(action, hard_duffing):
    data, settings = hard_duffing
    first = WithAllTerms(**settings, n_restarts=0)
    with pytest.warns(ConvergenceWarning, match="misfit_"):
        first.fit(data.X, data.y)
    recorder = Recorder(len(first.loss_curve_) + 2, action)
    model = WithAllTerms(**settings).set_callbacks(recorder)
    with pytest.warns(ConvergenceWarning, match="interrupted after|stopped by"):
        model.fit(data.X, data.y)
    assert recorder.tasks.count("step") == recorder.at
    assert len(model.restarts_) == 2 and "draws" in model.restarts_[1]
    assert not model.converged_
    assert model.loss_curve_ == first.loss_curve_
    np.testing.assert_array_equal(
        model.predict(data.X_test), first.predict(data.X_test)
    )


def test_verbose_prints_each_step(capsys):
    data, settings = duffing()
    model = WithAllTerms(**settings, verbose=2).fit(data.X, data.y)
    lines = capsys.readouterr().out.splitlines()
    steps = [line for line in lines if ", step " in line]
    assert len(steps) == len(model.loss_curve_) - 1
    assert f"loss {model.loss_curve_[-1]:.6g}" in steps[-1]


# --- restarts -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def hard_duffing():
    """A trajectory on which the first try ends in a poor minimum."""
    rng = np.random.RandomState(0)
    initial = [rng.uniform(-1, 1, 2) for _ in range(5)][4]
    data, settings = duffing(32, 50.0, 1000, initial=initial)
    return data, {**settings, "random_state": 0}


@pytest.mark.slow
def test_a_poor_minimum_is_noticed_and_left(hard_duffing):
    data, settings = hard_duffing
    model = WithAllTerms(**settings).fit(data.X, data.y)
    assert len(model.restarts_) > 1
    assert model.restarts_[0]["misfit"] > 100
    assert model.misfit_ == model.restarts_[-1]["misfit"] < 1
    assert relative_l2_error(data.y_test, model.predict(data.X_test)) < 1e-5


def test_a_poor_minimum_that_stays_is_reported(hard_duffing):
    data, settings = hard_duffing
    model = WithAllTerms(**settings, n_restarts=0)
    with pytest.warns(ConvergenceWarning, match="misfit_=.*n_restarts.*noise"):
        model.fit(data.X, data.y)
    assert len(model.restarts_) == 1
    assert model.misfit_ > 100
    assert model.converged_  # to a minimum, though a poor one
    assert relative_l2_error(data.y_test, model.predict(data.X_test)) > 0.05


# --- posterior ----------------------------------------------------------------------


def test_standard_deviations():
    X, y = oscillator()
    model = WithAllTerms(**OSCILLATOR, **FIXED).fit(X, y)
    assert np.all(model.predict(X, return_std=True)[1] < 1.5e-4)
    # Between observations the equation leaves little doubt; far away there is nothing
    # but the prior, whose variance is 1.
    between = np.linspace(0.3, 5.7, 50)[:, None]
    mean, std = model.predict(between, return_std=True)
    assert np.all(std < 1e-2)
    two_steps = only_state().fit(X, y)
    assert np.all(std < two_steps.predict(between, return_std=True)[1])
    with pytest.warns(ExtrapolationWarning):
        far = model.predict(np.array([[60.0]]), return_std=True)
    np.testing.assert_allclose(far, [[0.0], [1.0]], atol=1e-6)
    _, std = model.predict_derivative(between, "u_t", return_std=True)
    assert np.all((std > 0) & (std < 0.1))


def test_standard_deviations_grow_with_the_noise():
    X, y = oscillator(20)
    t = np.linspace(0, 6, 30)[:, None]
    widths = [
        WithAllTerms(**{**OSCILLATOR, **FIXED, "observation_noise": noise})
        .fit(X, y)
        .predict(t, return_std=True)[1]
        for noise in (1e-3, 1e-1)
    ]
    assert np.all(widths[0] < 0.1 * widths[1])
    assert np.all(widths[1] < 0.1)


# --- scikit-learn's ways --------------------------------------------------------------


def test_pickle_and_clone():
    data, settings = duffing()
    model = WithAllTerms(**settings, random_state=0)
    parameters = dict(model.get_params())
    model.fit(data.X, data.y)
    assert all(model.get_params()[name] is value for name, value in parameters.items())
    again = pickle.loads(pickle.dumps(model))
    for ours, theirs in zip(
        again.predict(data.X_test, return_std=True),
        model.predict(data.X_test, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert again.loss_curve_ == model.loss_curve_
    copied = clone(model).fit(data.X, data.y)
    np.testing.assert_array_equal(
        copied.predict(data.X_test), model.predict(data.X_test)
    )


def test_inducing_points_are_reproducible():
    data, settings = duffing()
    settings |= {"equation_kernel": RBF(1.0, "fixed"), "n_inducing": 40}
    with pytest.warns(IdentifiabilityWarning, match="has no list of terms"):
        first, second = (
            WithAllTerms(**settings, random_state=7).fit(data.X, data.y)
            for _ in range(2)
        )
    np.testing.assert_array_equal(
        first.predict(data.X_test), second.predict(data.X_test)
    )
    assert len(first.equation_.weights) == 40


def test_grid_search_over_the_noise():
    X, y = oscillator(16)
    search = GridSearchCV(
        WithAllTerms(**OSCILLATOR, **FIXED),
        {"observation_noise": [1e-4, 10.0]},
        cv=KFold(4, shuffle=True, random_state=0),
        error_score="raise",
    )
    with pytest.warns(IdentifiabilityWarning, match="do not tell their coefficients"):
        search.fit(X, y)
    assert search.best_params_ == {"observation_noise": 1e-4}
    assert search.score(X, y) > 0.999


def test_data_in_default_settings_stay_as_they_are():
    X, y = oscillator(12)
    before = X.copy(), y.copy()
    model = OneStepKEqL(operators=("u",), known_part="u_tt", variables=("t",)).fit(X, y)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(y, before[1])
    assert model.equation_.terms()["u"] == pytest.approx(-4, abs=0.05)


# --- published problems ---------------------------------------------------------------


def test_duffing_coefficients_to_three_digits():
    data, settings = duffing(32, 50.0, 1000)
    model = WithAllTerms(**settings).fit(data.X, data.y)
    terms = model.equation_.terms()
    for name, value in {"u": 3.0, "u^3": -3.0, "u_t": -0.2}.items():
        assert terms.pop(name) == pytest.approx(value, rel=5e-4)
    assert np.all(np.abs(list(terms.values())) < 1e-3)
    assert relative_l2_error(data.y_test, model.predict(data.X_test)) < 1e-4


@pytest.mark.slow
def test_burgers_from_its_boundary():
    data = make_burgers(
        layout="boundary",
        theta=0.5,
        nu=0.01,
        initial_condition="published",
        collocation_shape=(26, 26),
    )
    model = WithAllTerms(
        **data.problem,
        state_kernel=RBF(0.1118, "fixed"),
        observation_noise=1e-7,
        equation_noise=1e-5,
    ).fit(data.X, data.y)
    assert relative_l2_error(data.y_test, model.predict(data.X_test)) < 1e-2
    assert model.equation_.terms()["u u_x"] == pytest.approx(0.5, rel=0.1)


@pytest.mark.slow
def test_darcy_flow_of_eight_functions():
    data = make_darcy(8, 8, grid_size=12, random_state=0)
    model = WithAllTerms(**data.problem, **data.kernels, tol=1e-3, random_state=0)
    equation = model.fit(data.X, data.y).equation_
    features = data.features(5, length_scale=0.5, grid_size=25, random_state=100)
    assert equation_error(equation, features, data.unknown_part) < 2e-2


@pytest.mark.slow
def test_derivatives_make_no_matrix_of_a_step_larger(monkeypatch):
    """Of 30 observations and 40 points; what is larger has several threads of BLAS."""
    sizes = []

    def spy(size):
        sizes.append(size)
        return nullcontext()

    monkeypatch.setattr("keql._estimators.one_step.threads_for", spy)
    X = np.random.default_rng(0).uniform(size=(30, 2))
    settings = {"variables": ("t", "x"), "collocation_points": 40}
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", equation_noise=0.1, **settings)
    model.set_params(state_kernel=RBF([1.0, 0.5], "fixed"), observation_noise=1e-3)
    with warnings.catch_warnings(record=True, action="always"):  # of a short fit
        model.set_params(max_iter=1, n_restarts=0).fit(X, np.exp(-X[:, 0]) * X[:, 1])
    assert sizes == [70]
