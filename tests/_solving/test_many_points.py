"""Equations at many points: sparse factors find what dense ones do."""

import pickle
from functools import partial

import numpy as np
import pytest

from keql import KernelPDESolver
from keql._joint import sparse
from keql._joint.sparse import SparseSettings
from keql._solving import many_points
from keql._solving.many_points import ManyPoints
from keql.kernels import RBF, Constant, Matern, Periodic, Polynomial
from keql.metrics import relative_l2_error

PI = np.pi
TEST = np.random.RandomState(0).uniform(size=(200, 2))
KERNEL = Matern(0.3, nu=3.5)


def waves(X):
    return np.sin(PI * X[:, 0]) * np.sin(2 * PI * X[:, 1])


def source(X):
    """-Laplace(u) + u^3 of these waves."""
    return 5 * PI**2 * waves(X) + waves(X) ** 3


def cubic(u, u_xx, u_yy):
    return -(u_xx + u_yy) + u**3


def sides(n):
    s = np.linspace(0, 1, n)
    grid = np.stack(np.meshgrid(s, s), axis=-1).reshape(-1, 2)
    return grid[np.any((grid == 0) | (grid == 1), axis=1)]


def inside(n):
    """About n points, on a grid with a little disorder."""
    s = np.arange(0.5, np.sqrt(n)) / np.sqrt(n)
    grid = np.stack(np.meshgrid(s, s), axis=-1).reshape(-1, 2)
    return grid + 0.1 * np.random.RandomState(1).uniform(size=grid.shape) / np.sqrt(n)


@pytest.fixture
def small_start(monkeypatch):
    """The dense solve before has fewer points, so that tests are quick."""
    monkeypatch.setattr(
        many_points, "ManyPoints", partial(ManyPoints, n_coarse=150, n_dense=500)
    )


def solver(**changes):
    settings = {
        "equation": cubic,
        "collocation_points": inside(400),
        "forcing": source,
        "variables": ("x", "y"),
        "state_kernel": KERNEL,
        "solver": "sparse",
    }
    return KernelPDESolver(**settings | changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("equation", "forcing"),
    [
        (cubic, source),
        ("-1 u_xx - u_yy", lambda X: 5 * PI**2 * waves(X)),
    ],
    ids=["nonlinear", "linear"],
)
def test_sparse_is_dense(small_start, equation, forcing):
    X = sides(21)
    changes = {"equation": equation, "forcing": forcing}
    found, exact = (
        solver(**changes, solver=name).fit(X, waves(X)) for name in ("sparse", "dense")
    )
    u, expected = found.predict(TEST), exact.predict(TEST)
    assert relative_l2_error(expected, u) < 1e-6
    assert relative_l2_error(waves(TEST), u) < 1e-2
    u_x = exact.predict_derivative(TEST, "u_x")
    assert relative_l2_error(u_x, found.predict_derivative(TEST, "u_x")) < 1e-5
    assert found.linear_ == exact.linear_
    assert found.converged_
    assert found.relative_noise_ == exact.relative_noise_
    # The determinant is that of the sparse factor, which is never less.
    assert np.allclose(found.log_likelihood_, exact.log_likelihood_, rtol=2e-2)


@pytest.mark.slow
def test_an_equation_of_evolution_with_slopes_that_vary(small_start):
    """u_t + u u_x = u_xx / 20 with two length scales, from values and slopes."""

    def burgers(u, u_t, u_x, u_xx):
        return u_t + u * u_x - 0.05 * u_xx

    t, x = np.meshgrid(np.linspace(0, 1, 20), np.linspace(0, 1, 24), indexing="ij")
    grid = np.column_stack([t.ravel(), x.ravel()])
    on_side = (grid[:, 0] == 0) | (grid[:, 1] == 0) | (grid[:, 1] == 1)
    settings = {
        "equation": burgers,
        "forcing": None,
        "collocation_points": grid[~on_side],
        "variables": ("t", "x"),
        "state_kernel": 0.5 * Matern([0.8, 0.3], nu=3.5),
    }
    X, y = grid[on_side], np.sin(PI * grid[on_side, 1]) * (grid[on_side, 0] == 0)
    found, exact = (
        solver(**settings, solver=name).fit(X, y) for name in ("sparse", "dense")
    )
    u, expected = found.predict(TEST), exact.predict(TEST)
    assert relative_l2_error(expected, u) < 1e-5


def test_slopes_at_the_border_and_noise(small_start):
    """Several operators are observed, with a noise that is given."""
    x = np.linspace(0, 3, 400)[:, None]
    found, exact = (
        KernelPDESolver(
            "u_tt + u",
            x,
            variables=("t",),
            boundary_operators=("u", "u_t"),
            operator_column=1,
            state_kernel=Matern(2.0, nu=3.5),
            observation_noise={"u": 1e-3, "u_t": 0.0},
            solver=name,
        ).fit([[0, 0], [0, 1], [0, 0]], [1.0, 0.5, 1.001])
        for name in ("sparse", "dense")
    )
    X = np.column_stack([np.linspace(0, 3, 40), np.zeros(40)])
    expected = np.cos(X[:, 0]) + 0.5 * np.sin(X[:, 0])
    assert relative_l2_error(exact.predict(X), found.predict(X)) < 1e-6
    assert relative_l2_error(expected, found.predict(X)) < 2e-3


@pytest.mark.slow
def test_the_order_of_points_does_not_matter(small_start):
    X, points = sides(21), inside(400)
    rng = np.random.RandomState(2)
    mixed = rng.permutation(len(X))
    first = solver(collocation_points=points).fit(X, waves(X)).predict(TEST)
    second = solver(collocation_points=rng.permutation(points))
    second = second.fit(X[mixed], waves(X[mixed])).predict(TEST)
    assert relative_l2_error(first, second) < 1e-8


@pytest.mark.slow
def test_predictions_at_many_points_are_those_at_few(small_start, monkeypatch):
    X = sides(21)
    found = solver().fit(X, waves(X))
    few = found.predict(TEST), found.predict_derivative(TEST, "laplacian(u)")
    monkeypatch.setattr(sparse.SparseState, "n_direct", 0)
    many = found.predict(TEST), found.predict_derivative(TEST, "laplacian(u)")
    for one, other in zip(few, many, strict=True):
        assert relative_l2_error(one, other) < 1e-8
    assert len(pickle.dumps(found)) < 1e6


def test_no_standard_deviations(small_start):
    X = sides(21)
    with pytest.raises(ValueError, match=r"not available .* solver='dense'"):
        solver().fit(X, waves(X)).predict(TEST, return_std=True)


@pytest.mark.slow
def test_kernels_that_are_too_smooth_are_told(small_start):
    """The screening effect fails for analytic functions with long length scales."""
    X = sides(21)
    with pytest.raises(ValueError, match=r"RBF.*is too smooth, or"):
        solver(state_kernel=RBF(0.5)).fit(X, waves(X))


def test_auto_goes_on_densely(small_start, monkeypatch):
    """As a user who gives no solver must not get less than without sparse factors."""
    X, few = sides(21), SparseSettings(max_iterations=2)
    monkeypatch.setattr(many_points, "SparseSettings", lambda: few)
    points = inside(450)
    found = solver(collocation_points=points, solver="auto").fit(X, waves(X))
    exact = solver(collocation_points=points, solver="dense").fit(X, waves(X))
    u, std = found.predict(TEST, return_std=True)
    np.testing.assert_array_equal(u, exact.predict(TEST))
    assert np.all(std >= 0)
    monkeypatch.setattr(
        many_points,
        "ManyPoints",
        partial(ManyPoints, n_coarse=150, n_dense=500, max_representers=1000),
    )
    with pytest.raises(ValueError, match="2 iterations with a sparse"):
        solver(collocation_points=points, solver="auto").fit(X, waves(X))


def test_kernels_with_peaks_far_away_are_told(small_start):
    X = sides(21)
    kernel = KERNEL + Periodic(0.2, 0.3)
    with pytest.raises(ValueError, match="not smooth away from zero"):
        solver(state_kernel=kernel).fit(X, waves(X))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"equation": None, "forcing": None}, "no equation"),
        ({"state_kernel": Polynomial(3, 1.0, 0.0) + KERNEL}, "not stationary"),
        (
            {
                "equation": ({"u_x": 1, "v": -1}, {"v_x": 1, "u": 1}),
                "forcing": None,
                "states": ("u", "v"),
                "variables": ("x", "y"),
            },
            "several equations",
        ),
    ],
)
def test_problems_that_sparse_factors_do_not_solve(changes, reason):
    X = sides(5)
    y = np.column_stack([waves(X)] * 2) if "states" in changes else waves(X)
    with pytest.raises(ValueError, match=f"solver='sparse' is not possible.*{reason}"):
        solver(collocation_points=20, **changes).fit(X, y)


def test_three_coordinates_are_refused():
    X = np.random.RandomState(0).uniform(size=(60, 3))
    with pytest.raises(ValueError, match="3 coordinates"):
        KernelPDESolver("laplacian(u)", 30, state_kernel=KERNEL, solver="sparse").fit(
            X, X[:, 0]
        )


def test_what_auto_takes():
    """Many points and a kernel that is rough enough."""

    class Given:
        def __init__(self, n, d=2):
            self.values, self.forcing = np.zeros(10), np.zeros(n)
            self.points, self.operators = np.zeros((n, d)), [None] * 3

    class Equation:
        states = ("u",)

    takes = ManyPoints().takes
    rough, smooth = KERNEL, Constant(2.0) * RBF(0.2)
    assert takes("auto", rough + Constant(1.0), Equation, Given(5000))
    assert not takes("auto", rough, Equation, Given(1000))
    assert not takes("dense", rough, Equation, Given(10**6))
    assert not takes("auto", smooth, Equation, Given(5000))
    assert not takes("auto", rough, Equation, Given(5000, d=3))
    with pytest.raises(ValueError, match=r"needs 180 GB, and the kernel .* too smooth"):
        takes("auto", smooth, Equation, Given(50_000))
    with pytest.raises(ValueError, match="3 coordinates"):
        takes("auto", rough, Equation, Given(50_000, d=3))


@pytest.mark.slow
def test_the_default_kernel_is_rough(small_start):
    X = sides(21)
    found = solver(state_kernel=None).fit(X, waves(X))
    assert "Matern" in str(found.state_kernel_)
    assert relative_l2_error(waves(TEST), found.predict(TEST)) < 1e-2
