"""Orthonormal features of the equation's RKHS."""

import pickle
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from keql._numerics.elementary import Elementary
from keql._numerics.linalg import solve_lower
from keql.equation._basis import (
    FixedUnknownPart,
    InducingBasis,
    NoUnknownPart,
    PolynomialBasis,
    regression_posterior,
    regression_rows,
    with_slopes,
)
from keql.equation._learned import rms_std
from keql.equation._setup import make_basis
from keql.kernels import (
    RBF,
    Constant,
    Dictionary,
    FunctionKernel,
    Matern,
    Polynomial,
    Restriction,
    combinations,
)

RNG = np.random.RandomState(0)
S = RNG.normal(size=(30, 3))
T = RNG.normal(size=(8, 3))
CUBIC = Constant(2.0) * Polynomial(3, scale=[1.0, 2.0, 0.5], center=0.3)
PARTLY_CUBIC = Polynomial(3, scale=0.7, center=0.1, active_dims=(2, 0))
WAVE = Elementary((("b", 1),), "sin", "a", 1.3)
FUNCTIONS = [
    WAVE,
    WAVE.in_log_parameter(),
    Elementary((("a", 1), ("c", 2))),
    Elementary((), "exp", "c", 0.4),
]
ELEMENTARY = Dictionary(
    {f"{f.name} {i}": f for i, f in enumerate(FUNCTIONS)}, [1.0, 0.5, 2.0, 3.0], "abc"
)
FINITE = {
    "cubic": CUBIC,
    "partly cubic": PARTLY_CUBIC,
    "constant": Constant(3.0),
    "homogeneous": Polynomial(2, scale=0.7, center=0.0, offset=0.0),
    "restricted": Restriction(
        Constant(0.5) * CUBIC.k2, [(0, 0, 0), (0, 2, 1), (1, 0, 0)]
    ),
    "one monomial": Restriction(PARTLY_CUBIC, [(2, 0, 1)]),
    "elementary": ELEMENTARY,
    "other functions": Dictionary({"f": lambda a, c: anp.tanh(a) * c}, 2.0, "abc"),
    "product": Polynomial(1, scale=1.0, center=0.2, active_dims=0) * PARTLY_CUBIC,
}
INFINITE = {
    "RBF": RBF([1.0, 2.0, 1.5]),
    "Matern": Matern(2.0, nu=2.5),
    "variable coefficients": RBF(0.8, active_dims=0)
    * Polynomial(1, scale=1.0, center=0.0, active_dims=(1, 2)),
    "function": FunctionKernel(lambda x, y: anp.exp(anp.sum(x * y, axis=-1))),
}


def difference_quotient(basis, S, step=1e-5):
    """Central differences of all features in all columns, of shape (d, n, p)."""
    shifts = step * np.eye(S.shape[1])
    return np.stack([(basis(S + e) - basis(S - e)) / (2 * step) for e in shifts])


@pytest.mark.parametrize("name", FINITE)
def test_features_with_slopes_are_those_found_one_by_one(name):
    """Also of weights some of which are zero, at whatever many points."""
    basis = PolynomialBasis(FINITE[name])
    weights = np.linspace(-1, 2, basis.kernel.n_features(3))
    some = np.where(np.arange(len(weights)) % 2, 0.0, weights)
    for chosen in (weights, some, np.zeros(len(weights))):
        both = with_slopes(basis, chosen, 3)
        for rows in (S, T[:1]):
            features, slopes = both(rows)
            assert_allclose(features, basis(rows), rtol=1e-12, atol=1e-12)
            expected = basis.gradient(rows, chosen)
            assert_allclose(slopes, expected, rtol=1e-12, atol=1e-11)
            parts = difference_quotient(basis, rows) @ chosen
            assert_allclose(slopes, parts, atol=1e-7 * (1 + np.abs(parts).max()))


@pytest.mark.parametrize("name", ["variable coefficients", "fixed", "none"])
def test_features_with_slopes_of_other_bases(name):
    inducing = InducingBasis(INFINITE["variable coefficients"], T)
    fixed = FixedUnknownPart(inducing, np.linspace(-1, 1, len(T)), None)
    bases = {"fixed": fixed, "none": NoUnknownPart()}
    basis = bases.get(name, inducing)
    weights = np.linspace(-1, 1, len(T) if basis is inducing else 0)
    features, slopes = with_slopes(basis, weights, 3)(S)
    assert_array_equal(features, basis(S))
    assert_array_equal(slopes, basis.gradient(S, weights))


@pytest.mark.parametrize("kernel", [CUBIC, PARTLY_CUBIC, Constant(3.0)], ids=str)
def test_polynomial_features_are_exact(kernel):
    basis = PolynomialBasis(kernel)
    assert_allclose(basis(S) @ basis(T).T, kernel(S, T), rtol=1e-10, atol=1e-12)
    assert basis(S).shape == (30, kernel.n_features(3))
    weights = np.linspace(-1, 1, kernel.n_features(3))
    assert_allclose(
        basis.values(S, weights), basis(S) @ weights, rtol=1e-10, atol=1e-12
    )
    gradient = basis.gradient(S, weights)
    expected = difference_quotient(basis, S) @ weights
    assert_allclose(gradient, expected, atol=1e-7 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("name", INFINITE)
def test_inducing_features_reproduce_the_kernel_at_their_points(name):
    kernel = INFINITE[name]
    basis = InducingBasis(kernel, T)
    assert basis(S).shape == (30, 8)
    # k(s, s_i) exactly at each inducing point s_i, and Nystrom's approximation beyond.
    K = kernel(S, T)
    scale = np.abs(K).max()
    assert_allclose(basis(S) @ basis(T).T, K, rtol=0, atol=1e-8 * scale)
    nystrom = K @ np.linalg.pinv(kernel(T), rcond=1e-14) @ K.T
    scale = np.abs(nystrom).max()
    assert_allclose(basis(S) @ basis(S).T, nystrom, rtol=0, atol=1e-7 * scale)


@pytest.mark.parametrize("name", INFINITE)
def test_gradient_of_inducing_features(name):
    basis = InducingBasis(INFINITE[name], T)
    weights = np.linspace(-1, 1, 8)
    expected = basis(S) @ weights
    scale = np.abs(expected).max()
    assert_allclose(basis.values(S, weights), expected, atol=1e-8 * scale)
    gradient = basis.gradient(S[:6], weights)
    expected = difference_quotient(basis, S[:6]) @ weights
    assert_allclose(gradient, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


COMBINED = {
    **INFINITE,
    "nested": Constant(2.0) * RBF(0.8, active_dims=0) * INFINITE["Matern"],
    "few features first": Polynomial(2, scale=0.5, center=0.1, active_dims=(0, 1))
    * RBF([0.7, 1.2], active_dims=(0, 2)),
    "a column that nothing depends on": RBF(0.8, active_dims=0)
    * Polynomial(2, scale=1.0, center=0.0, active_dims=1),
    "sum": INFINITE["RBF"] + INFINITE["variable coefficients"],
}


@pytest.mark.parametrize("name", COMBINED)
def test_combinations_are_those_of_the_blocks(name):
    kernel = COMBINED[name]
    coefficients = RNG.normal(size=(8, 2))
    orders = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (2, 0, 0)]
    found = combinations(kernel, S, T, coefficients, orders)
    for order, combination in zip(orders, found, strict=True):
        expected = kernel.derivative(S, T, a=order) @ coefficients
        assert_allclose(
            combination, expected, rtol=0, atol=1e-12 * (1 + np.abs(expected).max())
        )


def test_a_product_with_few_features_is_not_formed(monkeypatch):
    """Only the other factor is evaluated, once for all slopes of the features."""
    kernel, calls = INFINITE["variable coefficients"], []
    evaluate = RBF._derivatives

    def counted(self, X, Y, pairs):
        calls.extend(pairs)
        return evaluate(self, X, Y, pairs)

    monkeypatch.setattr(RBF, "_derivatives", counted)
    combinations(kernel, S, T, np.ones((8, 1)), [(0, 1, 0), (0, 0, 1), (0, 0, 0)])
    assert calls == [((0, 0, 0), (0, 0, 0))]


@pytest.mark.parametrize(
    "kernel",
    [
        INFINITE["variable coefficients"],
        COMBINED["few features first"],
        INFINITE["Matern"] * Constant(2.0),
    ],
    ids=str,
)
def test_functions_that_share_points_share_what_depends_on_these(kernel):
    """Also in any order of the rows, and where points change from call to call."""
    basis, d = InducingBasis(kernel, T), T.shape[1]
    narrow = kernel.k1 if kernel.k1.n_features(d) is not None else kernel.k2
    wide = kernel.k2 if narrow is kernel.k1 else kernel.k1
    shared, weights = wide.depends_on(d), np.linspace(-1, 1, 8)
    for seed in (1, 2):
        rng = np.random.RandomState(seed)
        points = np.tile(rng.normal(size=(5, d)), (12, 1))
        rows = np.where(shared, points, rng.normal(size=points.shape))
        rows = rows[rng.permutation(len(rows))]
        one_by_one = np.concatenate([basis(row[None]) for row in rows])
        assert basis._at_shared_points(rows) is not None
        assert_allclose(basis(rows), one_by_one, rtol=0, atol=1e-8)
        values = one_by_one @ weights
        assert_allclose(basis.values(rows, weights), values, rtol=0, atol=1e-8)
        alone = np.hstack([basis.gradient(row[None], weights) for row in rows])
        assert_allclose(basis.gradient(rows, weights), alone, rtol=0, atol=1e-7)
        first = int(np.flatnonzero(shared)[-1]) + 1
        found = basis.gradient(rows, weights, first)[first:]
        assert_allclose(found, alone[first:], rtol=0, atol=1e-7)
        # Not each point for every function.
        assert basis._at_shared_points(rows[1:]) is None


@pytest.mark.parametrize("place", ["outside", "first", "last"])
def test_a_variance_does_not_hide_what_functions_share(place):
    """A product of three factors; two of them are RBF and polynomial."""
    wide, narrow = RBF(0.5, active_dims=(0,)), Polynomial(1, 1.0, 0.0, active_dims=(1,))
    variance = Constant(4.0)
    product = {
        "outside": variance * (wide * narrow),
        "first": (variance * wide) * narrow,
        "last": wide * (narrow * variance),
    }[place]
    T = np.random.RandomState(0).normal(size=(8, 2))
    x = np.tile(np.linspace(0, 1, 3), 10)
    S = np.column_stack([x, np.linspace(-1, 1, 30)])
    basis = InducingBasis(product, T)
    phi, by_point, _ = basis._at_shared_points(S)
    assert (phi.shape, by_point.shape) == ((30, 2), (3, 2, 8))
    features = solve_lower(basis.cholesky, product(T, S)).T
    assert_allclose(basis(S), features, rtol=0, atol=1e-10)


def test_inducing_features_are_orthonormal():
    # <psi_i, psi_j> = (C^-1 P C^-T)_ij, with the coefficients read off at the points.
    kernel = INFINITE["RBF"]
    K = kernel(T)
    coefficients = np.linalg.solve(K, InducingBasis(kernel, T)(T))
    assert_allclose(coefficients.T @ K @ coefficients, np.eye(8), atol=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_features_have_no_units(unit):
    basis, other = (
        InducingBasis(RBF(factor * np.array([1.0, 2.0, 1.5])), factor * T)
        for factor in (1.0, unit)
    )
    assert_allclose(other(unit * S), basis(S), rtol=1e-9, atol=1e-12)
    weights = np.linspace(-1, 1, 8)
    gradient = unit * other.gradient(unit * S, weights)
    assert_allclose(gradient, basis.gradient(S, weights), rtol=1e-8, atol=1e-10)


def test_choice_of_basis():
    rng = np.random.RandomState(0)
    assert isinstance(make_basis(CUBIC, S, 5, rng), PolynomialBasis)
    basis = make_basis(INFINITE["RBF"], S, 12, rng)
    assert isinstance(basis, InducingBasis)
    assert len(np.unique(basis.points, axis=0)) == len(basis.points) == 12
    assert {tuple(row) for row in basis.points} <= {tuple(row) for row in S}
    # Rows that occur twice, as at a boundary where u = 0, are drawn once.
    repeated = np.concatenate([S[:4]] * 5)
    basis = make_basis(INFINITE["RBF"], repeated, 12, rng)
    assert_array_equal(basis.points, np.unique(S[:4], axis=0))


def test_draw_of_inducing_points():
    def points(n, seed):
        rng = np.random.RandomState(seed)
        return make_basis(INFINITE["RBF"], S, n, rng).points

    for n in (30, 31, 1000):
        assert_array_equal(points(n, 0), np.unique(S, axis=0))
    assert_array_equal(points(10, 0), points(10, 0))
    assert not np.array_equal(points(10, 0), points(10, 1))
    # Every row has its turn.
    drawn = np.concatenate([points(10, seed) for seed in range(100)])
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 30
    assert_allclose(counts / 100, 1 / 3, atol=0.17)


def test_features_of_a_restriction_are_those_of_its_kernel():
    kernel = Restriction(CUBIC, [(1, 0, 0), (0, 2, 1), (0, 0, 0)])
    basis, weights = PolynomialBasis(kernel), np.array([1.0, -2.0, 0.5])
    assert_allclose(basis(S), kernel.feature_map(S), rtol=1e-10, atol=1e-12)
    for order in ((0, 1, 0), (0, 1, 1)):
        expected = kernel.feature_map(S, order)
        assert_allclose(basis(S, order), expected, rtol=1e-10, atol=1e-12)
    assert_allclose(basis.values(S, weights), basis(S) @ weights, rtol=1e-10)
    slopes = np.stack(
        [kernel.feature_map(S, tuple(e)) @ weights for e in np.eye(3, dtype=int)]
    )
    assert_allclose(basis.gradient(S, weights), slopes, rtol=1e-9, atol=1e-11)
    # What is kept to be faster is saved along: features of a saved basis keep nothing.
    again = pickle.loads(pickle.dumps(basis))
    size = len(pickle.dumps(again))
    assert_array_equal(again(S), basis(S))
    assert len(pickle.dumps(again)) == size


def test_directions_of_a_restriction_are_found_once(monkeypatch):
    kernel, calls = Restriction(CUBIC, [(1, 0, 0), (0, 2, 1)]), []
    directions = Restriction._directions

    def count(self, d):
        calls.append(d)
        return directions(self, d)

    monkeypatch.setattr(Restriction, "_directions", count)
    basis = PolynomialBasis(kernel)
    for _ in range(3):
        basis(S)
        basis.gradient(S, np.ones(2))
    assert calls == [3]


def test_regressions_on_many_rows_are_those_of_a_triangle():
    rng = np.random.RandomState(0)
    S, target = rng.uniform(-1, 1, size=(90_000, 1)), rng.normal(size=90_000)
    basis = InducingBasis(RBF(0.5), np.linspace(-1, 1, 6)[:, None])
    with config_context(working_memory=8):
        rows, right = regression_rows(basis, S, target)
        values = basis.values(S, np.arange(6.0))
        gradient = basis.gradient(S, np.arange(6.0))
    assert rows.shape == (7, 6)
    features = basis(S)
    np.testing.assert_allclose(rows.T @ rows, features.T @ features)
    np.testing.assert_allclose(rows.T @ right, features.T @ target, atol=1e-8)
    np.testing.assert_allclose(right @ right, target @ target)
    np.testing.assert_allclose(values, features @ np.arange(6.0))
    slopes = basis(S, (1,)) @ np.arange(6.0)
    np.testing.assert_allclose(gradient, [slopes], atol=1e-10)
    # few rows are the features themselves
    few, same = regression_rows(basis, S[:50], target[:50])
    np.testing.assert_array_equal(few, basis(S[:50]))
    np.testing.assert_array_equal(same, target[:50])


def test_values_of_smooth_functions_lose_few_digits():
    # The kernel has fewer than 80 dimensions that rounding leaves: with 400 points the
    # coefficients of the function are so large that 2e-4 of its values is lost.
    rng = np.random.RandomState(0)
    S = rng.uniform(size=(600, 4))
    kernel = RBF(3.0, "fixed", active_dims=(0, 1))
    kernel = kernel * Polynomial(1, 1.0, 0.0, active_dims=(2, 3))
    basis = make_basis(kernel, S, 400, rng)
    assert len(basis.points) < 80 and basis.n_drawn == 400
    features, expected = basis(S), np.sin(3 * S[:, 0]) * S[:, 2]
    weights = np.linalg.lstsq(features, expected, rcond=None)[0]
    assert_allclose(features @ weights, expected, atol=2e-3)
    assert_allclose(basis.values(S, weights), features @ weights, atol=1e-5)
    again = pickle.loads(pickle.dumps(basis))
    assert again.n_drawn == 400
    assert_array_equal(again.points, basis.points)


def test_the_spread_of_an_equation_is_found_in_chunks():
    """Features of all of many rows at once would take gigabytes."""
    rng, sizes = np.random.RandomState(0), []
    S = rng.uniform(-1, 1, size=(5_000, 1))
    basis = InducingBasis(RBF(0.5), np.linspace(-1, 1, 6)[:, None])
    posterior = regression_posterior(basis(S[:9]), S[:9, 0], 0.1, np.zeros(6))

    def counted(rows):
        sizes.append(len(rows))
        return basis(rows)

    equation = SimpleNamespace(posterior=posterior, basis=counted)
    with config_context(working_memory=0.2):
        spread = rms_std(equation, S)
    assert len(sizes) > 4
    assert max(sizes) * 4 * 6 * 8 < 0.2 * 2**20
    assert spread == pytest.approx(np.mean(posterior.std(basis(S)) ** 2) ** 0.5)
