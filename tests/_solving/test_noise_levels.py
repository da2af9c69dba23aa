"""Solving a known equation: levels of the noise, linear equations, shared factors."""

import pickle

import numpy as np
import pytest

from keql import KernelPDESolver
from keql._joint.problem import Conditions
from keql._observations.imposed import Imposed
from keql._solving import noise_levels
from keql._solving.noise_levels import NoiseLevels
from keql.kernels import RBF
from keql.metrics import relative_l2_error
from keql.operators import parse_operator

PI = np.pi
TEST = np.random.RandomState(0).uniform(size=(300, 2))


def square(n_inner, n_side):
    """Inner grid points and boundary points of the unit square."""
    inner = np.linspace(0, 1, n_inner + 2)[1:-1]
    points = np.stack(np.meshgrid(inner, inner), axis=-1).reshape(-1, 2)
    s = np.linspace(0, 1, n_side)
    grid = np.stack(np.meshgrid(s, s), axis=-1).reshape(-1, 2)
    return points, grid[np.any((grid == 0) | (grid == 1), axis=1)]


def hill(X):
    """A smooth function that vanishes on the sides of the unit square."""
    return np.sin(PI * X[:, 0]) * np.sin(PI * X[:, 1])


def cubic(u, u_xx, u_yy):
    return -(u_xx + u_yy) + u**3


@pytest.mark.parametrize("seems", [True, False])
@pytest.mark.parametrize("linear", [True, False])
def test_a_wrong_first_impression_does_not_matter(monkeypatch, seems, linear):
    """Linear equations are told by their slopes; the solution has the last word."""
    monkeypatch.setattr(noise_levels, "seems_linear", lambda *_: seems)
    points, sides = square(8, 9)
    solver = KernelPDESolver(
        "-1 u_xx - u_yy" if linear else cubic,
        points,
        lambda X: 2 * PI**2 * hill(X) + (not linear) * hill(X) ** 3,
        ("x", "y"),
        state_kernel=RBF(0.5),
    ).fit(sides, hill(sides))
    assert relative_l2_error(hill(TEST), solver.predict(TEST)) < 1e-4
    assert solver.linear_ == (linear and seems)


def test_one_factorisation_for_a_linear_equation(monkeypatch):
    sizes = []
    factorise = noise_levels.factorise
    monkeypatch.setattr(
        noise_levels, "factorise", lambda H, s: sizes.append(len(H)) or factorise(H, s)
    )
    points, sides = square(4, 5)
    X = np.column_stack([np.tile(sides, (20, 1)), np.repeat(np.arange(20), len(sides))])
    solver = KernelPDESolver(
        "laplacian(u)",
        points,
        lambda X: X[:, 0],
        ("x", "y"),
        function_column=2,
        state_kernel=RBF(0.5),
        observation_noise=0,
        equation_noise=0,
    ).fit(X, np.random.RandomState(0).normal(size=len(X)))
    assert sizes == [len(sides) + len(points)]
    assert all(s.factors[0] is solver.states_[0].factors[0] for s in solver.states_)
    assert len(pickle.dumps(solver.states_)) < 1e5


def test_variances_of_a_level():
    prior, t = np.array([1.0, 4.0, 9.0]), np.arange(2.0)[:, None]
    u, rows = parse_operator("u", ("t",)), Imposed.everywhere(t[:1])
    of_equation = t[:1], [u], np.zeros(1), rows
    conditions = Conditions([(t, u)], np.zeros(2), np.ones(2), *of_equation)

    def variances(level, *noises):
        noise = NoiseLevels(*noises, (1e-2, 1e-6))
        return noise.variances(level, noise.given(conditions), prior)

    # Nothing is given: all variances are relative to the prior ones.
    np.testing.assert_allclose(variances(1e-2, None, None), 1e-2 * prior)
    # What is given stays, and is at least that of the lowest level.
    np.testing.assert_allclose(variances(1e-2, 0.3, None), [0.09, 0.09, 9e-2])
    np.testing.assert_allclose(variances(1e-2, None, 0), [1e-2, 4e-2, 9e-6])
    # If all is given, a high level is where the search begins.
    np.testing.assert_allclose(variances(1e-2, 0.15, 0), [0.0225, 0.04, 9e-2])
    np.testing.assert_allclose(variances(1e-6, 0.15, 0), [0.0225, 0.0225, 9e-6])


def test_some_of_the_conditions():
    u, u_t = (parse_operator(name, ("t",)) for name in ("u", "u_t"))
    t = np.arange(5.0)[:, None]
    given = Conditions(
        [(t, u), (t[:3], u_t)],
        np.arange(8.0),
        np.ones(8),
        t,
        [u_t],
        np.arange(5.0),
        Imposed.everywhere(t),
    )
    parts = given.observations
    assert [operator for _, operator, _ in parts] == [u, u_t]
    np.testing.assert_array_equal(parts[1][2], [5, 6, 7])
    some = given.select([np.array([1, 4]), np.array([2])], np.array([0, 3]))
    np.testing.assert_array_equal(some.values, [1, 4, 7])
    np.testing.assert_array_equal(some.observed[1][0], [[2.0]])
    np.testing.assert_array_equal(some.forcing, [0, 3])
    np.testing.assert_array_equal(some.rows.coordinates, [[0.0], [3.0]])
    # An operator without rows is left out; functions with equal functionals are known.
    assert len(given.select([np.array([1]), np.arange(0)], np.arange(5)).observed) == 1
    assert given.key == given.select([np.arange(5), np.arange(3)], np.arange(5)).key
    assert given.key != some.key
