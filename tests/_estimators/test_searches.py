"""Searches of scikit-learn: what they can vary, and where they run."""

from functools import partial

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import loguniform
from sklearn import config_context
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
)
from task_recorder import TaskRecorder
from threadpoolctl import threadpool_info, threadpool_limits

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._numerics.parallel import parallel_map
from keql.kernels import RBF, Polynomial
from keql.metrics import filtering_scorer, make_equation_scorer
from keql.model_selection import FunctionKFold

# Two motions of a driven oscillator, u_tt + 4 u = f, with different driving forces.
TIMES = np.linspace(0, 6, 20)
RATES = {"slow": 0.5, "fast": 3.0}


def force(rate):
    """A force under which u = sin(2 t) + cos(rate t) is a motion."""
    return lambda points: (4 - rate**2) * np.cos(rate * points[:, 0])


def motion(t, rate):
    return np.sin(2 * t) + np.cos(rate * t)


FORCING = {label: force(rate) for label, rate in RATES.items()}
VALUES = np.concatenate([motion(TIMES, rate) for rate in RATES.values()])
FEATURES = np.column_stack([np.linspace(0, 6, 30), np.linspace(-1, 1, 30)])
SCORING = {
    "state": filtering_scorer,
    "equation": make_equation_scorer(FEATURES, 4 * FEATURES[:, 1]),
}
FOLDS = FunctionKFold(3, function_column="run", always_train="border")


def table(kind=pd.DataFrame):
    """Times of both motions, with their labels."""
    return kind({"t": np.tile(TIMES, 2), "run": np.repeat([*RATES], len(TIMES))})


def learner(method=TwoStepKEqL, **parameters):
    """An estimator with the right settings, but for those that a test changes."""
    settings = {
        "operators": ("u",),
        "known_part": "u_tt",
        "forcing": FORCING,
        "variables": ("t",),
        "function_column": "run",
        "collocation_points": 40,
        "state_kernel": RBF(1.0, "fixed"),
        "equation_kernel": Polynomial(1),
        "observation_noise": 1e-4,
        "equation_noise": 1e-3,
    }
    return method(**settings | parameters)


# For each parameter, values of which the first is right and the last quite wrong.
CHOICES = {
    "state_kernel__length_scale": [1.0, 0.01],
    "equation_kernel__degree": [1, 2],
    "observation_noise": [1e-4, 10.0],
    "collocation_points": [40, 3],
}


def of_wrong_values():
    """What candidates with these say in two steps, and others do not need to."""
    return pytest.warns(IdentifiabilityWarning, match="% of its")


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_grid_search(kind):
    search = GridSearchCV(
        learner(),
        CHOICES,
        scoring=SCORING,
        refit="state",
        cv=FOLDS,
        error_score="raise",
    )
    with of_wrong_values():
        search.fit(table(kind), VALUES)
    results = pd.DataFrame(search.cv_results_)
    assert len(results) == 16
    assert search.best_params_["state_kernel__length_scale"] == 1.0
    assert search.best_params_["observation_noise"] == 1e-4
    assert search.best_score_ > -1e-2
    # The two-step state knows nothing of the equation, whose own score tells.
    right = results[
        [
            (params == {name: values[0] for name, values in CHOICES.items()})
            for params in results.params
        ]
    ]
    assert right.mean_test_equation.item() > -0.01
    wrong = results[results.param_observation_noise == 10.0]
    assert wrong.mean_test_equation.max() < -0.1
    # One more time on the whole, in the units of the table and with its names.
    again = search.best_estimator_
    assert list(again.feature_names_in_) == ["t", "run"]
    np.testing.assert_allclose(search.predict(table(kind)), VALUES, atol=1e-2)
    assert again.equation_.terms()["u"] == pytest.approx(-4, rel=0.05)


def test_scorers_with_metadata_routing():
    grid = {"observation_noise": [1e-4, 10.0]}
    settings = {"scoring": SCORING, "refit": "equation", "cv": FOLDS}
    with of_wrong_values():
        plain = GridSearchCV(learner(), grid, **settings).fit(table(), VALUES)
    with config_context(enable_metadata_routing=True), of_wrong_values():
        routed = GridSearchCV(learner(), grid, **settings).fit(table(), VALUES)
    for name in ("mean_test_state", "mean_test_equation"):
        np.testing.assert_array_equal(routed.cv_results_[name], plain.cv_results_[name])


@pytest.mark.parametrize("name", CHOICES)
def test_each_parameter_in_the_joint_problem(name):
    search = GridSearchCV(
        learner(OneStepKEqL, solver="dual", n_restarts=0, tol=1e-3),
        {name: CHOICES[name]},
        scoring=SCORING,
        refit="equation",
        cv=clone(FOLDS).set_params(n_splits=2),
        error_score="raise",
    )
    if name == "state_kernel__length_scale":
        # States of so short a scale cannot meet the equation, and the fit says so.
        search.set_params(param_grid={name: [1.0, 0.4]})
    if name == "observation_noise":  # all is noise, to one of them
        with pytest.warns(IdentifiabilityWarning, match="do not tell their coeff"):
            search.fit(table(), VALUES)
    else:
        search.fit(table(), VALUES)
    assert search.cv_results_["mean_test_equation"].max() > -0.05
    assert name in search.best_params_


@pytest.mark.slow
def test_randomised_search():
    search = RandomizedSearchCV(
        learner(),
        {
            "state_kernel__length_scale": loguniform(1e-2, 1e1),
            "equation_kernel__degree": [1, 2],
            "observation_noise": loguniform(1e-5, 1e-2),
            "collocation_points": [20, 40, 80],
        },
        n_iter=12,
        scoring=filtering_scorer,
        cv=FOLDS,
        random_state=0,
        error_score="raise",
    )
    with of_wrong_values():
        search.fit(table(), VALUES)
    assert 0.3 < search.best_params_["state_kernel__length_scale"] < 5
    assert search.best_score_ > -0.05
    with of_wrong_values():
        again = clone(search).fit(table(), VALUES)
    assert again.best_params_ == search.best_params_


def test_halving_search_with_collocation_points_as_the_resource():
    search = HalvingGridSearchCV(
        learner(),
        {
            "state_kernel__length_scale": [0.01, 0.3, 1.0, 3.0],
            "equation_kernel__degree": [1, 2],
            "observation_noise": [1e-4],
        },
        resource="collocation_points",
        min_resources=10,
        max_resources=90,
        factor=3,
        scoring=SCORING["equation"],
        cv=FOLDS,
        error_score="raise",
    )
    with of_wrong_values():
        search.fit(table(), VALUES)
    assert search.n_resources_ == [10, 30]
    assert search.n_candidates_ == [8, 3]
    assert search.best_params_["state_kernel__length_scale"] in (1.0, 3.0)
    assert search.best_score_ > -0.05


def test_halving_search_over_collocation_points():
    """Observations are the resource: of one function, as others may lose all rows."""
    t = np.linspace(0, 6, 90)[:, None]
    search = HalvingGridSearchCV(
        learner(forcing=FORCING["slow"], function_column=None),
        {"collocation_points": [3, 40], "observation_noise": [1e-4, 10.0]},
        min_resources=30,
        factor=2,
        scoring=SCORING["equation"],
        cv=FunctionKFold(3, shuffle=True, random_state=0),
        random_state=0,
        error_score="raise",
    )
    with of_wrong_values():
        search.fit(t, motion(t[:, 0], 0.5))
    assert search.best_params_ == {"collocation_points": 40, "observation_noise": 1e-4}


# --- where a search runs --------------------------------------------------------------

TWELVE = {
    "state_kernel__length_scale": [0.6, 0.8, 1.0],
    "equation_kernel__degree": [1, 2],
    "observation_noise": [1e-3, 1e-2],
}


def search_of_twelve(n_jobs=None):
    """Twelve candidates in five folds."""
    given = {"collocation_points": 15, "solver": "dual", "n_restarts": 0, "tol": 1e-2}
    model = learner(OneStepKEqL, **given)
    folds = clone(FOLDS).set_params(n_splits=5)
    return GridSearchCV(
        model,
        TWELVE,
        scoring=SCORING,
        refit="equation",
        cv=folds,
        n_jobs=n_jobs,
        error_score="raise",
    ).fit(table(), VALUES)


@pytest.fixture(scope="module")
def alone():
    """The search in this process, and nothing else."""
    with threadpool_limits(1):
        return search_of_twelve()


def check_same(search, other):
    """The same candidates, scores and model, to the last digit."""
    assert search.cv_results_["params"] == other.cv_results_["params"]
    assert len(search.cv_results_["params"]) == 12 and search.n_splits_ == 5
    for name in [f"split{k}_test_{s}" for k in range(5) for s in SCORING]:
        np.testing.assert_array_equal(
            search.cv_results_[name], other.cv_results_[name], err_msg=name
        )
    assert search.best_params_ == other.best_params_
    np.testing.assert_array_equal(search.predict(table()), other.predict(table()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", [pytest.param("loky", marks=pytest.mark.slow), "threading"]
)
def test_two_jobs_change_nothing(alone, backend, own_workers):
    with threadpool_limits(1), joblib.parallel_config(backend):
        check_same(alone, search_of_twelve(n_jobs=2))


@pytest.mark.slow
@pytest.mark.parametrize(
    "processes",
    [
        pytest.param(True, id="processes", marks=pytest.mark.slow),
        pytest.param(False, id="threads"),
    ],
)
def test_a_dask_cluster_changes_nothing(alone, processes):
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        threadpool_limits(1),
        distributed.LocalCluster(processes=processes, **settings) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        search = search_of_twelve()
    check_same(alone, search)


@pytest.mark.parametrize("n_cores", [1, 2, 8])
@pytest.mark.parametrize("outside", [1, 16])
def test_threads_of_a_fit_share_the_cores(n_cores, outside, monkeypatch):
    def allowed(_):
        return [
            library["num_threads"]
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ]

    monkeypatch.setattr("keql._numerics.parallel.cpu_count", lambda: n_cores)
    with threadpool_limits(outside, user_api="blas"):
        before = allowed(0)
        inside = parallel_map(2, allowed, range(4))
        assert len(inside) == 4
        assert set(map(max, inside)) == {min(max(1, n_cores // 2), outside)}
        assert allowed(0) == before


# --- callbacks ------------------------------------------------------------------------


def test_callbacks_in_a_search():
    callback = pytest.importorskip("sklearn.callback", reason="not before 1.9")
    recorder = TaskRecorder()
    make = partial(learner, OneStepKEqL, solver="dual", n_restarts=0, tol=1e-2)
    model = make().set_callbacks(recorder)
    search = GridSearchCV(
        model,
        {"observation_noise": [1e-4, 1e-3]},
        cv=clone(FOLDS).set_params(n_splits=2),
        error_score="raise",
    ).fit(table(), VALUES)
    fits = recorder.ended.count(("OneStepKEqL", "fit"))
    assert fits == 2 * 2 + 1
    steps = recorder.ended.count(("OneStepKEqL", "step"))
    assert steps > fits and set(recorder.ended) == {
        ("OneStepKEqL", "fit"),
        ("OneStepKEqL", "step"),
    }
    # Those of the search see its own tasks, and change nothing either.
    plain = clone(search).set_params(estimator=make())
    monitor = callback.ScoringMonitor(scoring="r2")
    plain.set_callbacks(monitor).fit(table(), VALUES)
    np.testing.assert_array_equal(
        plain.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"]
    )
