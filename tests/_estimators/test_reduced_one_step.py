"""The reduced method: states in the span of few kernel functions."""

import numpy as np
import pytest
from known_equations import cole_hopf, points_of_cole_hopf
from sklearn.exceptions import ConvergenceWarning

from keql import IdentifiabilityWarning, ReducedOneStepKEqL, TwoStepKEqL
from keql._joint.assembly import state_kernels
from keql.datasets import make_darcy
from keql.kernels import RBF, Polynomial

T = np.linspace(0, 6, 9)[:, None]


@pytest.mark.parametrize("n_basis, rank", [(None, 12), (5, 5), (40, 12)])
def test_states_are_in_the_span_of_kernel_functions(n_basis, rank):
    """Of those at the collocation points, or at as many of them as asked for."""
    points = np.linspace(0, 6, 12)[:, None]
    kernel = RBF(0.7, "fixed")
    model = ReducedOneStepKEqL(
        operators=("u",),
        known_part="u_tt",
        collocation_points=points,
        variables=("t",),
        state_kernel=kernel,
        equation_kernel=Polynomial(1),
        observation_noise=0.5,
        equation_noise=1.0,
        n_basis=n_basis,
        random_state=0,
    )
    with pytest.warns(IdentifiabilityWarning, match="made of errors"):
        model.fit(T, np.sin(2 * T.ravel()))
    x = np.linspace(0, 6, 60)[:, None]
    two_step = model._learn_in_two_steps(T, T.ravel(), None)
    projected = state_kernels(two_step, model._settings)[0]
    assert np.linalg.matrix_rank(projected(x), tol=1e-8) == rank
    centers = projected.points
    assert set(centers.ravel()) <= set(points.ravel())
    U = kernel(x, centers)
    values = model.predict(x)
    inside = U @ np.linalg.lstsq(U, values, rcond=None)[0]
    np.testing.assert_allclose(inside, values, atol=1e-6)


@pytest.mark.parametrize("n_basis", [20, 30])
def test_a_search_keeps_the_span_that_it_drew(n_basis):
    """Whatever the random state: states of one span are no states of another."""
    t = np.linspace(0, 6, 12)[:, None]
    model = ReducedOneStepKEqL(
        operators=("u",),
        known_part="u_tt",
        collocation_points=60,
        variables=("t",),
        equation_kernel=Polynomial(1),
        n_basis=n_basis,
        random_state=np.random.RandomState(0),
    ).fit(t, np.sin(2 * t.ravel()))
    x = np.linspace(0, 6, 50)[:, None]
    np.testing.assert_allclose(model.predict(x), np.sin(2 * x.ravel()), atol=0.01)


def test_reduced_method_goes_to_two_steps_where_all_is_observed():
    """Observations at the collocation points, and exact: the states are known."""
    data = make_darcy(3, 16, grid_size=6, random_state=0)
    settings = dict(
        data.problem,
        state_kernel=RBF(0.5, "fixed"),
        equation_kernel=RBF(0.5, "fixed", active_dims=("x1", "x2")) * Polynomial(1),
        equation_noise=10.0,
        n_inducing=30,
        random_state=0,
    )
    points = data.collocation_points
    X = np.vstack(
        [np.column_stack([points, np.full(len(points), m)]) for m in range(3)]
    )
    y = np.concatenate([data.truth(points, "u", function=m) for m in range(3)])
    with pytest.warns(IdentifiabilityWarning, match="is uncertain by"):  # from 3
        two = TwoStepKEqL(**settings, observation_noise=1e-7).fit(X, y)
    distances = []
    for noise in (1e-2, 1e-4, 1e-6):
        one = ReducedOneStepKEqL(**settings, observation_noise=noise).fit(X, y)
        difference = one.predict(X) - two.predict(X)
        distances.append(np.linalg.norm(difference) / np.linalg.norm(y))
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-5
    S = two.equation_.training_features
    expected = two.equation_.unknown_part(S)
    found = one.equation_.unknown_part(S)
    assert np.linalg.norm(found - expected) < 1e-2 * np.linalg.norm(expected)


def test_states_stay_in_the_span_where_exact_ones_exist():
    """Burgers' states could be integrated, but not within the span of few functions."""
    X = points_of_cole_hopf(20)
    model = ReducedOneStepKEqL(
        operators=("u", "u_x", "u_xx"),
        known_part="u_t",
        variables=("t", "x"),
        collocation_points=60,
        n_basis=5,
        n_restarts=0,
        max_iter=5,
        n_terms=3,
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X, cole_hopf(*X.T))
    x = np.random.RandomState(0).uniform(size=(40, 2))
    span = model.states_[0].kernel(x, model.collocation_points_[0])
    assert np.linalg.matrix_rank(span, tol=1e-8 * np.linalg.norm(span)) == 5
    values = model.predict(x)
    inside = span @ np.linalg.lstsq(span, values, rcond=None)[0]
    np.testing.assert_allclose(inside, values, atol=1e-6)
    reasons = dict(model.fit_report_.not_tried)
    assert any("span of kernel functions" in reason for reason in reasons.values())
