"""FunctionKFold: what its folds promise, and what it refuses."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    check_cv,
    cross_val_score,
    cross_validate,
)

from keql import TwoStepKEqL
from keql.kernels import RBF
from keql.model_selection import FunctionKFold


def table(sizes=(7, 4, 12), seed=0):
    """Points of several functions in random order, labelled in the second column."""
    rng = np.random.RandomState(seed)
    labels = np.repeat(np.arange(len(sizes)) * 10.0, sizes)
    X = np.column_stack([rng.uniform(size=len(labels)), labels, rng.rand(len(labels))])
    return X[rng.permutation(len(X))]


def frames(X):
    """The same table as an array and as data frames, with the column's name there."""
    columns = {"t": X[:, 0], "run": [f"run {label:g}" for label in X[:, 1]]}
    columns["x"] = X[:, 2]
    return {
        "array": (X, 1),
        "from behind": (X, -2),
        "pandas": (pd.DataFrame(columns), "run"),
        "pandas, by index": (pd.DataFrame(columns), 1),
        "pandas, from behind": (pd.DataFrame(columns), -2),
        "polars": (pl.DataFrame(columns), "run"),
        "polars, by index": (pl.DataFrame(columns), 1),
    }


SPLITTERS = [
    {"n_splits": 2},
    {"n_splits": 4},
    {"n_splits": 4, "shuffle": True, "random_state": 3},
    {"n_splits": 3, "always_train": "border"},
    {"n_splits": 3, "always_train": lambda X: X[:, 0] < 0.2, "shuffle": True},
    {"n_splits": 3, "always_train": np.arange(23) % 5 == 0},
]


@pytest.mark.parametrize("parameters", SPLITTERS, ids=range(len(SPLITTERS)))
def test_promises_of_the_folds(parameters):
    X = table()
    folds = list(FunctionKFold(function_column=1, **parameters).split(X))
    assert len(folds) == parameters["n_splits"]
    times_tested = np.zeros(len(X), dtype=int)
    for train, test in folds:
        # A partition of the rows, and a state for every function that is asked for.
        assert sorted([*train, *test]) == list(range(len(X)))
        assert set(X[train, 1]) == set(X[:, 1])
        assert len(test) > 0 and np.all(np.diff(test) > 0)
        times_tested[test] += 1
    rule = parameters.get("always_train")
    if rule is None:
        kept = np.zeros(len(X), dtype=bool)
    elif isinstance(rule, str):
        kept = border(X)
    else:
        kept = rule(X) if callable(rule) else rule
    np.testing.assert_array_equal(times_tested, np.where(kept, 0, 1))
    # Folds are of one size, altogether and within each function.
    sizes = [len(test) for _, test in folds]
    assert max(sizes) - min(sizes) <= 1
    for label in set(X[:, 1]):
        within = [np.sum(X[test, 1] == label) for _, test in folds]
        assert max(within) - min(within) <= 1


def border(X):
    """Rows where a coordinate has the smallest or largest value of its function."""
    by_function = pd.DataFrame(X, columns=["t", "run", "x"]).groupby("run")
    rank = by_function.rank()
    highest = by_function.rank(ascending=False)
    return ((rank == 1) | (highest == 1)).any(axis=1).to_numpy()


def test_rows_of_a_function_are_interleaved_or_shuffled():
    X = np.arange(12.0)[:, None]
    tests = [list(test) for _, test in FunctionKFold(3).split(X)]
    assert tests == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    shuffled = FunctionKFold(3, shuffle=True, random_state=0)
    first, second = ([list(test) for _, test in shuffled.split(X)] for _ in range(2))
    assert first == second != tests
    other = clone(shuffled).set_params(random_state=1)
    assert [list(test) for _, test in other.split(X)] != first
    rng = FunctionKFold(3, shuffle=True, random_state=np.random.RandomState(0))
    first, second = ([list(test) for _, test in rng.split(X)] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("kind", frames(table()))
@pytest.mark.parametrize("always_train", [None, "border"])
def test_containers_give_the_same_folds(kind, always_train):
    X, column = frames(table())[kind]
    settings = {"n_splits": 3, "always_train": always_train, "shuffle": True}
    settings["random_state"] = 0
    expected = FunctionKFold(function_column=1, **settings).split(table())
    found = FunctionKFold(function_column=column, **settings).split(X)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_a_rule_sees_the_columns_of_a_data_frame():
    for kind in ("pandas", "polars"):
        X, column = frames(table())[kind]
        folds = FunctionKFold(
            2, function_column=column, always_train=lambda X: X["run"] == "run 20"
        )
        tested = np.concatenate([test for _, test in folds.split(X)])
        assert sorted(tested) == [
            i for i, run in enumerate(X["run"]) if run != "run 20"
        ]


def test_the_border_is_that_of_each_function():
    # One function at a single time, on a line; the other in a square.
    line = [[0.0, x, 0] for x in (0.0, 0.4, 1.0)]
    square = [[t, x, 1] for t in (1.0, 2.0, 3.0) for x in (5.0, 6.0, 7.0)]
    folds = FunctionKFold(2, function_column=2, always_train="border")
    tested = np.concatenate([test for _, test in folds.split([*line, *square])])
    # Time is the same for all of the first: it has ends in x only.
    assert sorted(tested) == [1, 7]


def test_groups_are_held_out_together():
    X = table((9, 12))
    sensor = np.random.RandomState(1).randint(4, size=len(X))
    folds = FunctionKFold(3, function_column=1, shuffle=True, random_state=0)
    times_tested = np.zeros(len(X), dtype=int)
    for train, test in folds.split(X, groups=sensor):
        units = list(zip(X[:, 1], sensor, strict=True))
        assert {units[i] for i in train}.isdisjoint(units[i] for i in test)
        times_tested[test] += 1
    assert np.all(times_tested == 1)


@pytest.mark.parametrize("routing", [False, True])
def test_groups_reach_the_folds_through_searches(routing):
    X = np.linspace(0, 6, 18)[:, None]
    sensor = np.arange(18) // 3
    model = TwoStepKEqL(state_kernel=RBF(1.0, "fixed"), observation_noise=1e-3)
    with config_context(enable_metadata_routing=routing):
        folds = FunctionKFold(6)
        given = {"params": {"groups": sensor}} if routing else {"groups": sensor}
        result = cross_validate(
            model, X, np.sin(X[:, 0]), cv=folds, return_indices=True, **given
        )
        search = GridSearchCV(
            model, {"observation_noise": [1e-3]}, cv=folds, error_score="raise"
        ).fit(X, np.sin(X[:, 0]), groups=sensor)
    for test in result["indices"]["test"]:
        assert len(test) == 3 and len(set(sensor[test])) == 1
    assert search.cv_results_["mean_test_score"] == np.mean(result["test_score"])


def test_is_a_cross_validator():
    folds = FunctionKFold(3, function_column="run", always_train="border")
    assert folds.get_n_splits() == 3
    assert check_cv(folds) is folds
    assert repr(folds) == (
        "FunctionKFold(always_train='border', function_column='run', n_splits=3)"
    )
    again = pickle.loads(pickle.dumps(clone(folds)))
    assert again.get_params() == folds.get_params()
    search = GridSearchCV(TwoStepKEqL(), {}, cv=folds)
    assert clone(search.set_params(cv__n_splits=4)).cv.n_splits == 4


def test_scores_are_those_of_k_fold_for_one_function():
    X = np.linspace(0, 6, 20)[:, None]
    y = np.sin(X[:, 0])
    model = TwoStepKEqL(state_kernel=RBF(1.0, "fixed"), observation_noise=1e-2)
    order = np.argsort(np.arange(20) % 4, kind="stable")
    scores = cross_val_score(model, X, y, cv=FunctionKFold(4))
    expected = cross_val_score(model, X[order], y[order], cv=KFold(4))
    np.testing.assert_allclose(scores, expected)


def test_nested_searches():
    X, column = frames(table((16, 13)))["pandas"]
    y = np.sin(X["t"]).to_numpy() + X["run"].factorize()[0]
    model = TwoStepKEqL(
        state_kernel=RBF(1.0, "fixed"), observation_noise=1e-2, function_column=column
    )
    inner = FunctionKFold(
        2, function_column=column, always_train=lambda X: X["t"] < 0.3
    )
    search = GridSearchCV(
        model, {"observation_noise": [1e-2, 1e-1]}, cv=inner, error_score="raise"
    )
    outer = FunctionKFold(3, function_column=column, shuffle=True, random_state=0)
    scores = cross_val_score(search, X, y, cv=outer, error_score="raise")
    assert np.all(np.isfinite(scores))
    # A mask belongs to the whole, and says so.
    inner.set_params(always_train=(X["t"] < 0.3).to_numpy())
    search.set_params(cv=inner)
    with pytest.raises(ValueError, match="a function of X .* nested searches"):
        cross_val_score(search, X, y, cv=outer, error_score="raise")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_splits": 1}, r"n_splits=1 must be an integer of at least 2"),
        ({"n_splits": 2.0}, r"n_splits=2\.0 must be an integer"),
        ({"n_splits": 30}, r"n_splits=30 is more than the 23 row"),
        ({"n_splits": 23, "always_train": "border"}, r"more than the \d+ row"),
        ({"random_state": 0}, r"random_state=0 has no effect with shuffle=False"),
        ({"function_column": "run"}, r"'run' is no column of X: X is an array"),
        ({"function_column": 3}, r"function_column=3 is no column of X, which has 3"),
        ({"always_train": "edge"}, r"always_train='edge' is not known: give 'border'"),
        ({"always_train": np.ones(4, bool)}, r"shape \(4,\), and X has 23 rows"),
        ({"always_train": lambda X: X[:, 0]}, r"returned an array of float64"),
        ({"always_train": lambda X: X[:, 0] > -1}, r"more than the 0 row"),
    ],
)
def test_refuses(parameters, message):
    folds = FunctionKFold(**{"function_column": 1, **parameters})
    with pytest.raises(ValueError, match=message):
        list(folds.split(table()))


def test_refuses_what_no_fold_could_train_on():
    X = np.vstack([table(), [0.5, 99.0, 0.5]])
    with pytest.raises(
        ValueError, match=r"function 99\.0 has nothing left .* only row"
    ):
        list(FunctionKFold(2, function_column=1).split(X))
    folds = FunctionKFold(2, function_column=1, always_train=lambda X: X[:, 1] == 99)
    assert all(23 in train for train, _ in folds.split(X))
    with pytest.raises(ValueError, match=r"only group is held out"):
        list(FunctionKFold(2).split(X, groups=np.zeros(len(X))))


def test_refuses_tables_that_are_none():
    with pytest.raises(TypeError, match=r"shuffle='yes' must be True or False"):
        FunctionKFold(shuffle="yes").get_n_splits()
    with pytest.raises(ValueError, match=r"X has 1 dimension"):
        list(FunctionKFold(2).split(np.arange(4.0)))
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples"):
        list(FunctionKFold(2).split(np.ones((4, 1)), np.ones(3)))
    missing = pd.DataFrame({"t": [0.0, 1.0, 2.0], "run": ["a", None, "a"]})
    with pytest.raises(ValueError, match=r"missing function label in column 'run'"):
        list(FunctionKFold(2, function_column="run").split(missing))
