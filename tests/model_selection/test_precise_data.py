"""Exact states of data that are more precise than a grid, and of very many data."""

from types import SimpleNamespace

import numpy as np
import pytest

from keql import OneStepKEqL
from keql.model_selection._criteria import Criteria, meets_data

DIFFUSION = 0.006


def merging_fronts(points):
    """Burgers' equation, u_t = -u u_x + 0.006 u_xx, by Cole's and Hopf's closed form.

    phi is a sum of exponential functions, which solve the heat equation.
    """
    speeds, shifts = np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.3, 0.45])
    t, x = points[:, :1], points[:, 1:]
    exponents = (0.5 * speeds**2 * t - speeds * x + shifts) / (2 * DIFFUSION)
    parts = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return parts @ speeds / parts.sum(axis=1)


def test_fronts_are_as_precise_as_data_that_are_exact():
    """A grid of 40 steps and 80 points leaves 2.3e-4 of the states."""
    rng = np.random.default_rng(0)
    points, asked = rng.uniform(size=(120, 2)), rng.uniform(0.02, 0.98, (1000, 2))
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    model.fit(points, merging_fronts(points))
    terms = {"u u_x": pytest.approx(-1, rel=1e-4), "u_xx": pytest.approx(0.006, 1e-4)}
    assert model.equation_.terms() == terms
    assert np.sqrt(np.mean((model.predict(asked) - merging_fronts(asked)) ** 2)) < 8e-5


@pytest.mark.parametrize(
    "is_random, is_condensed, d, meets",
    [
        (True, True, 2, True),
        (
            False,
            True,
            2,
            False,
        ),  # an equation that lacks a term misses neighbours alike
        (True, False, 2, False),  # scattered points are no neighbours
        (True, True, 1, False),  # trajectories have their own criteria
    ],
)
def test_what_grids_show_of_noise(is_random, is_condensed, d, meets):
    """Two steps took noise of 1 % for a motion, and say that it is 0.01 %."""
    residuals = 1e-2 * np.sin(np.arange(400) / 9)
    if is_random:
        residuals = 1e-2 * np.random.default_rng(0).standard_normal(400)
    data = SimpleNamespace(values=residuals, index=np.zeros(400, int), weights=1.0)
    data.weights = np.ones(400)
    observations = SimpleNamespace(
        functions=[data],
        is_condensed=is_condensed,
        n_operators=1,
        sizes=lambda: np.ones(1),
        operators=[None],
    )
    two_step = SimpleNamespace(
        observations=observations,
        observation_noise=np.array([1e-4]),
        variables=("t", "x")[:d],
    )
    fit = SimpleNamespace(
        error=1.1e-2,
        is_exact=True,
        observations=observations,
        two_step=two_step,
        hypothesis=SimpleNamespace(n_terms="auto"),
        problem=SimpleNamespace(prior=SimpleNamespace(noise=np.array([1e-2]))),
        model=SimpleNamespace(evaluation=SimpleNamespace(residuals=residuals)),
    )
    assert meets_data(fit, two_step, Criteria()) == meets
