"""Saved models are small, and give the numbers that they gave before."""

import pickle
import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from keql import (
    IdentifiabilityWarning,
    KernelPDESolver,
    OneStepKEqL,
    ReducedOneStepKEqL,
    TwoStepKEqL,
)
from keql.kernels import RBF, Matern, Polynomial

SIZES = (48, 96)  # observations of the two fits whose saved sizes are compared
LARGE = 400  # observations, and a thousand collocation points, of less than 1 MB
KERNEL = Matern([0.8, 0.4], "fixed", nu=3.5)
FITS = {
    "two-step": (TwoStepKEqL, {}),
    "dual": (OneStepKEqL, {"solver": "dual"}),
    "primal": (OneStepKEqL, {"solver": "primal", "state_kernel": RBF([0.8, 0.4])}),
    "inducing": (OneStepKEqL, {"solver": "dual", "equation_kernel": RBF(2.0)}),
    "reduced": (ReducedOneStepKEqL, {"solver": "dual", "n_basis": 40}),
    "reduced primal": (ReducedOneStepKEqL, {"solver": "primal", "n_basis": 40}),
}


@cache
def fit(name, n):
    """A short fit to `n` values of two waves, with 2.5 collocation points for each."""
    X = np.random.RandomState(0).uniform(size=(n, 2))
    inner = np.random.RandomState(1).uniform(size=(5 * n // 2, 2))
    Estimator, changes = FITS[name]
    settings = {
        "operators": ("u", "u_x", "u_xx"),
        "known_part": "u_t",
        "variables": ("t", "x"),
        "collocation_points": inner,
        "state_kernel": KERNEL,
        "equation_kernel": Polynomial(2),
        "observation_noise": 1e-3,
        "equation_noise": 1e-2,
        "n_inducing": 30,
        "optimizer": None,
        "random_state": 0,
    }
    if Estimator is not TwoStepKEqL:
        settings |= {"max_iter": 3, "n_restarts": 0}
    along = X[:, 1] - X[:, 0]
    y = np.exp(-0.2 * X[:, 0]) * (np.sin(3 * along) + np.cos(7 * along))
    model = Estimator(**settings | changes)
    if Estimator is TwoStepKEqL:  # the waves are too short for its observations
        with pytest.warns(IdentifiabilityWarning, match="trade off"):
            return model.fit(X, y), inner[:20]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y), inner[:20]


@cache
def boundary_value_problem(n):
    """A solver with `n` data on the ends of a rod, and 2.5 collocation points each."""
    t, x = np.linspace(0, 1, n // 3), np.linspace(0, 1, n // 3)
    start = np.column_stack([np.zeros(len(x)), x])
    sides = np.column_stack([np.tile(t[1:], 2), np.repeat([0.0, 1.0], len(t) - 1)])
    inner = np.random.RandomState(0).uniform(size=(5 * n // 2, 2))
    solver = KernelPDESolver(
        "u_t - 0.1 u_xx",
        inner,
        variables=("t", "x"),
        state_kernel=RBF([0.5, 0.3]),
        observation_noise=1e-3,
        equation_noise=1e-2,
    )
    X = np.vstack([start, sides])
    y = np.where(X[:, 0] == 0, np.sin(np.pi * X[:, 1]), 0.0)
    return solver.fit(X, y), inner[:20]


def arrays_in(thing, seen=None):
    """All arrays that an object would be saved with."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from arrays_in(value, seen)
    elif isinstance(thing, list | tuple):
        for value in thing:
            yield from arrays_in(value, seen)
    elif hasattr(thing, "__dict__"):
        yield from arrays_in(vars(thing), seen)


@pytest.mark.parametrize("name", FITS)
def test_what_is_saved_grows_with_the_data_and_not_with_their_square(name):
    sizes = [len(pickle.dumps(fit(name, n)[0])) for n in SIZES]
    per_row = (sizes[1] - sizes[0]) / (SIZES[1] - SIZES[0])
    assert sizes[1] < 2 * sizes[0]
    assert sizes[1] + per_row * (LARGE - SIZES[1]) < 1e6


def test_what_a_solver_saves_grows_with_the_data():
    sizes = [len(pickle.dumps(boundary_value_problem(n)[0])) for n in SIZES]
    per_row = (sizes[1] - sizes[0]) / (SIZES[1] - SIZES[0])
    assert sizes[1] + per_row * (LARGE - SIZES[1]) < 1e6


@pytest.mark.parametrize("name", [*FITS, "solver"])
def test_a_saved_model_gives_the_same_numbers(name):
    make = boundary_value_problem if name == "solver" else lambda n: fit(name, n)
    model, X = make(48)
    again = pickle.loads(pickle.dumps(model))
    for predict in ("predict", "predict_derivative"):
        arguments = (X,) if predict == "predict" else (X, "u_x")
        before = getattr(model, predict)(*arguments, return_std=True)
        after = getattr(again, predict)(*arguments, return_std=True)
        np.testing.assert_array_equal(after[0], before[0])
        tolerance = 1e-7 * np.abs(before[1]).max()
        np.testing.assert_allclose(after[1], before[1], rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("name", [*FITS, "solver"])
def test_nothing_is_kept_of_a_prediction(name):
    model, X = boundary_value_problem(48) if name == "solver" else fit(name, 48)
    again = pickle.loads(pickle.dumps(model))
    before = sum(array.nbytes for array in arrays_in(again))
    again.predict(X, return_std=True)
    assert sum(array.nbytes for array in arrays_in(again)) == before
    # A factor of the data of one function would be larger than all that is kept.
    largest = max(array.size for array in arrays_in(again.states_))
    assert largest < 48**2
