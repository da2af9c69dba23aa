"""Exact states of many functions: one after another, with one set of weights."""

from contextlib import nullcontext

import numpy as np
import pytest

from keql import IdentifiabilityWarning, OneStepKEqL
from keql._evolution.forecast import EvolvedState


def burgers(rng, viscosity=0.1):
    """A solution u(t, x) of u_t + u u_x = viscosity u_xx, by Cole and Hopf."""
    k = np.pi * np.array([1, 2, 3])[:, None]
    sizes = rng.uniform(0.5, 1, 3) * rng.choice([-1, 1], 3) * [0.5, 0.25, 0.15]

    def solution(t, x):
        waves = sizes[:, None] * np.exp(-viscosity * k**2 * t)
        phi = 1.2 + np.sum(waves * np.cos(k * x), axis=0)
        return 2 * viscosity * np.sum(k * waves * np.sin(k * x), axis=0) / phi

    return solution


def draw(solutions, n, rng, lower=0.0, upper=1.0):
    """Points (M n, 3), the first column the function, and values there."""
    X, y = [], []
    for m, solution in enumerate(solutions):
        points = rng.uniform(lower, upper, size=(n, 2))
        X.append(np.column_stack([np.full(n, m), points]))
        y.append(solution(*points.T))
    return np.concatenate(X), np.concatenate(y)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_burgers_from_many_initial_conditions(noise):
    """Of more functions than all sets of terms are compared for, on a coarse grid."""
    rng = np.random.RandomState(0)
    solutions = [burgers(rng) for _ in range(14)]
    X, y = draw(solutions, 30, rng)
    y = y + noise * np.std(y) * rng.normal(size=len(y))
    model = OneStepKEqL(
        ("u", "u_x", "u_xx"),
        "u_t",
        variables=("t", "x"),
        function_column=0,
        n_terms="auto",
    )
    told = nullcontext()
    if noise:  # at odds of 1 to 15
        told = pytest.warns(IdentifiabilityWarning, match="also u_x")
    with told:
        model.fit(X, y)
    assert all(isinstance(state, EvolvedState) for state in model.states_)
    truth = {"u u_x": -1.0, "u_xx": 0.1}
    terms, std = model.equation_.terms(return_std=True)
    assert set(terms) == set(truth)
    for name, value in truth.items():
        assert abs(terms[name] - value) < 4 * std[name] + 1e-3 * abs(value)
        assert std[name] < 0.1 * abs(value)
    X, y = draw(solutions, 100, rng, 0.05, 0.95)
    error = np.linalg.norm(model.predict(X) - y) / np.linalg.norm(y)
    assert error < (1e-3 if noise == 0 else 0.1)
