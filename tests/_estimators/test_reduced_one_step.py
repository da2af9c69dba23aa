"""The reduced method: states in the span of few kernel functions."""

import warnings

import numpy as np
import pytest
from interruptions import InterruptAt
from known_equations import cole_hopf, points_of_cole_hopf
from scipy import special
from sklearn.exceptions import ConvergenceWarning

from keql import IdentifiabilityWarning, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
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


@pytest.mark.filterwarnings("ignore:.* has no list of terms and is uncertain by")
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


@pytest.mark.slow
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


# --- terms: those of states that obey the equation exactly ---------------------------

TIMES = np.linspace(0, 8, 30)[:, None]
GROWTH = {"operators": ("u",), "known_part": "u_t", "variables": ("t",)}


def gompertz(t):
    """The solution of u_t = -0.8 u log(u / 3) from u = 0.1."""
    return 3 * (0.1 / 3) ** np.exp(-0.8 * t)


def noisy_gompertz():
    """Its values at TIMES, with noise of 2 % of their standard deviation."""
    y = gompertz(TIMES[:, 0])
    noise = np.random.default_rng((0, 77)).standard_normal(len(y))
    return y + 0.02 * np.std(y) * noise


def error_of_growth(equation):
    """Relative error of P where the true state is."""
    t = np.linspace(0, 8, 200)
    u = gompertz(t)
    P, known = 0.8 * u * np.log(u / 3), np.column_stack([t, u])
    return np.linalg.norm(equation.unknown_part(known) - P) / np.linalg.norm(P)


@pytest.mark.slow
def test_terms_of_noisy_data_are_those_of_exact_states():
    """With terms of its own the equation was wrong by 10 %, and nothing said so."""
    y, messages, models = noisy_gompertz(), [], []
    for kind in (OneStepKEqL, ReducedOneStepKEqL):
        with pytest.warns(IdentifiabilityWarning, match="terms from others") as caught:
            models.append(kind(**GROWTH).fit(TIMES, y))
        messages.append(str(caught[0].message).partition(" found that ")[2])
    exact, reduced = models
    assert messages[0] == messages[1]
    assert error_of_growth(reduced.equation_) < 0.02
    assert reduced.equation_.terms().keys() == exact.equation_.terms().keys()
    projected = reduced.states_[0].kernel
    assert len(projected.points) == len(reduced.collocation_points_[0])
    np.testing.assert_allclose(
        reduced.predict(TIMES), gompertz(TIMES[:, 0]), atol=0.01 * np.std(y)
    )


@pytest.mark.slow
def test_states_start_from_exact_ones():
    """From two steps, states of thirty noisy values end in another minimum.

    With the right terms, and errors of 70 %. The period is 7.4163.
    """
    t = np.linspace(0, 15, 30)[:, None]
    y = cubic_oscillation(t[:, 0])
    y = y + 0.02 * np.std(y) * np.random.default_rng(0).standard_normal(30)
    problem = {"operators": ("u", "u_t"), "known_part": "u_tt", "variables": ("t",)}
    model = ReducedOneStepKEqL(**problem).fit(t, y)
    assert model.equation_.terms().keys() == {"u^3"}
    assert model.equation_.terms()["u^3"] == pytest.approx(-1, abs=0.02)
    fine = np.linspace(0, 15, 200)[:, None]
    np.testing.assert_allclose(
        model.predict(fine), cubic_oscillation(fine[:, 0]), atol=0.02
    )


def cubic_oscillation(t):
    """The solution of u_tt = -u^3 from u = 1, u_t = 0: cn(t; 1/2)."""
    return special.ellipj(t, 0.5)[1]


def test_terms_beside_a_given_state_kernel():
    """Coefficients are those of states with that kernel, which bend if it is narrow."""
    y = noisy_gompertz()
    model = ReducedOneStepKEqL(**GROWTH, state_kernel=RBF(1.0))
    with pytest.warns(IdentifiabilityWarning, match="differs by .* where states are"):
        model.fit(TIMES, y)
    [name] = model.equation_.terms()
    assert name.startswith("u log")


@pytest.mark.slow
def test_an_equation_of_poor_exact_states_is_told(monkeypatch):
    """Where these do not convince, terms are chosen at collocation points."""
    reduced = "keql.model_selection._beside._reduced"
    monkeypatch.setattr(f"{reduced}.predicts_within_noise", lambda *_: False)
    monkeypatch.setattr(f"{reduced}.ExactSearch.in_doubt", lambda *_: True)
    t = np.linspace(0, 3, 30)[:, None]
    y = riccati(t[:, 0])
    y = y + 0.02 * np.std(y) * np.random.default_rng((0, 77)).standard_normal(30)
    with pytest.warns(IdentifiabilityWarning, match="with exact states predicts obs"):
        ReducedOneStepKEqL(**GROWTH, n_terms=2).fit(t, y)


def riccati(t):
    """The solution of u_t = -2 t u + u^2 from u = 0.5."""
    return np.exp(-(t**2)) / (2 - np.pi**0.5 / 2 * special.erf(t))


def test_all_terms_are_kept_without_exact_states(monkeypatch):
    """None are looked for: that is what costs time where functions are many."""
    search = "keql.model_selection._beside._reduced.ExactSearch"
    monkeypatch.setattr(search, lambda *_: pytest.fail("exact states are looked for"))
    model = ReducedOneStepKEqL(**GROWTH, n_terms=None, equation_kernel=Polynomial(2))
    model.fit(TIMES, 1 / (1 + 9 * np.exp(-TIMES[:, 0])))
    assert model.equation_.terms().keys() == {"1", "u", "u^2"}


def test_an_interrupted_search_for_terms_leaves_no_exact_states(monkeypatch):
    """States are those of two steps: these are the best that is no exact one."""
    from keql._evolution.trajectories import TrajectoryProblem

    stopping = InterruptAt(TrajectoryProblem.linearise, 8)
    monkeypatch.setattr(TrajectoryProblem, "linearise", lambda *args: stopping(*args))
    y = noisy_gompertz()
    model, two = ReducedOneStepKEqL(**GROWTH), TwoStepKEqL(**GROWTH)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(TIMES, y)
    assert not model.converged_ and stopping.calls == 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        two.fit(TIMES, y)
    np.testing.assert_allclose(model.predict(TIMES), two.predict(TIMES))
