"""Derivatives of the kernels against difference quotients in many digits.

The errors are relative to sqrt(d^a d^a k(x, x) d^b d^b k(y, y)), the geometric mean of
the variances of the two derivatives.
"""

from itertools import product

import autograd.numpy as anp
import mpmath as mp
import numpy as np
import pytest
from kernel_oracles import (
    LENGTHS,
    OFFSETS,
    PAIRS,
    PERIODS,
    POINT,
    difference_quotient,
    matern_variance,
    mp_envelope,
    mp_matern,
    mp_periodic,
    mp_polynomial,
    mp_rational_quadratic,
    radial,
)
from numpy.testing import assert_allclose, assert_array_equal

from keql.kernels import (
    RBF,
    Constant,
    Envelope,
    FunctionKernel,
    Matern,
    Periodic,
    Polynomial,
    RadialKernel,
    RationalQuadratic,
)


def pairs_up_to(order, d):
    """The pairs of multi-indices whose orders are at most `order`."""
    return [pair for pair in PAIRS[d] if max(map(sum, pair)) <= order]


def largest_error(kernel, function, d, highest, places=tuple(OFFSETS)):
    """Largest error, relative to sqrt(d^a d^a k(x, x) d^b d^b k(y, y))."""
    x = np.array(POINT[:d])
    ys = np.array([x + np.array(OFFSETS[place][:d]) for place in places])
    pairs = pairs_up_to(highest, d)
    deviation = {
        a: mp.sqrt(difference_quotient(function, x, x, a, a))
        for a in {a for pair in pairs for a in pair}
    }
    errors = [
        abs(value - difference_quotient(function, x, y, a, b))
        / (deviation[a] * deviation[b])
        for (a, b), values in zip(
            pairs, kernel.derivatives(x[None], ys, pairs), strict=True
        )
        for y, value in zip(ys, values[0], strict=True)
    ]
    return float(max(errors))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_rbf(d):
    function = radial(lambda square: mp.exp(-square / 2))
    assert largest_error(RBF(LENGTHS[:d]), function, d, 4) < 1e-12


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.7])
def test_rational_quadratic(alpha, d):
    kernel = RationalQuadratic(LENGTHS[:d], alpha)
    assert largest_error(kernel, mp_rational_quadratic(alpha), d, 4) < 1e-12


@pytest.mark.parametrize("d", [1, 2, 3])
def test_periodic(d):
    kernel = Periodic(LENGTHS[:d], PERIODS[:d])
    assert largest_error(kernel, mp_periodic, d, 4) < 1e-12


@pytest.mark.parametrize("d", [1, 2, 3])
def test_envelope(d):
    kernel = Envelope(LENGTHS[:d], 0.2)
    pairs = PAIRS[d]
    points = np.array(POINT[:d]) + np.array([OFFSETS[p][:d] for p in OFFSETS])
    for (a, b), values in zip(
        pairs, kernel.derivatives(points[:1], points, pairs), strict=True
    ):
        # Where a derivative is 0 there is no size of its own to compare with.
        scale = np.prod(np.array(LENGTHS[:d]) ** -np.add(a, b))
        for y, value in zip(points, values[0], strict=True):
            exact = difference_quotient(mp_envelope, points[0], y, a, b)
            assert abs(value - exact) < 1e-12 * scale, (a, b)


# For each nu the highest order below nu, at most 4, and the dimensions: the Bessel
# functions of the oracle are slow for integer nu.
MATERN = [
    *((nu, order, d) for nu, order in [(1.5, 1), (2.5, 2), (4.5, 4)] for d in (1, 2)),
    *((5.5, 4, d) for d in (1, 2, 3)),
    *((1.2, 1, d) for d in (1, 2, 3)),
    *((2.3, 2, d) for d in (1, 2, 3)),
    pytest.param(3.0, 2, 1, marks=pytest.mark.slow),
    *(pytest.param(4.1, 4, d, marks=pytest.mark.slow) for d in (1, 2)),
    (10.7, 4, 1),
]


@pytest.mark.parametrize(("nu", "highest", "d"), MATERN)
def test_matern(nu, highest, d):
    assert highest < nu <= max(highest + 1, 4 if highest < 4 else np.inf)
    kernel = Matern(LENGTHS[:d], nu=nu)
    assert largest_error(kernel, mp_matern(nu), d, highest) < 1e-10


@pytest.mark.parametrize("nu", [0.5, 0.7, 1.01, 3.5, 8.5, 9.5, 20.0, 50.0, 99.9, 100])
def test_matern_at_all_distances(nu):
    # The values cross from the series at 0 to the Bessel function.
    distances = np.array([0, 1e-160, 1e-15, 1e-4, 3e-3, 5e-3, 7e-3, 0.02, 0.3, 2, 20])
    order = (1,) if nu > 1 else (0,)
    values = Matern(0.7, nu=nu).derivative([[0.0]], distances[:, None], order, order)[0]
    function = mp_matern(nu)
    if nu > 1.5:
        # What lies so near has the value at 0 to all digits.
        assert_allclose(values[1:3], values[0], rtol=1e-14)
    variance = matern_variance(nu, *order) / mp.mpf(0.7) ** (2 * order[0])
    assert_allclose(values[0], float(variance), rtol=1e-12)
    for distance, value in zip(distances, values, strict=True):
        if distance > 1e-12:
            exact = difference_quotient(function, [0.0], [distance], order, order)
            assert abs(value - exact) < 1e-11 * variance


@pytest.mark.parametrize("nu", [1.2, 2.5, 3.0, 4.1, 4.5, 10.7, 50.0, 100])
@pytest.mark.parametrize("length", [1e-6, 1.0, 1e6])
def test_matern_variance_of_derivatives(nu, length):
    for order in range(5):
        if order < nu:
            value = Matern(length, nu=nu).derivative(
                [[0.0]], [[0.0], [1e-200 * length]], (order,), (order,)
            )
            exact = float(matern_variance(nu, order) / mp.mpf(length) ** (2 * order))
            assert_allclose(value, exact, rtol=1e-12)


SMOOTH = {
    "RBF": lambda length: RBF(length),
    "Matern 4.1": lambda length: Matern(length, nu=4.1),
    "Matern 5.5": lambda length: Matern(length, nu=5.5),
    "Matern 100": lambda length: Matern(length, nu=100),
    "RationalQuadratic": lambda length: RationalQuadratic(length, 0.7),
    "RadialKernel": lambda length: RadialKernel(lambda rho: anp.exp(-rho), length),
}


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_do_not_matter(name, unit):
    X, Y = np.random.RandomState(0).uniform(size=(2, 4, 2))
    for a, b in PAIRS[2]:
        expected = SMOOTH[name](0.7).derivative(X, Y, a, b)
        values = SMOOTH[name](0.7 * unit).derivative(X * unit, Y * unit, a, b)
        values *= unit ** sum(a + b)
        assert_allclose(values, expected, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("name", SMOOTH)
def test_distances_of_many_length_scales(name):
    near, far = SMOOTH[name](1e6), SMOOTH[name](1e-6)
    for a, b in PAIRS[1]:
        variances = [near.derivative([[0.0]], None, c, c)[0, 0] for c in (a, b)]
        at_zero = near.derivative([[0.0]], None, a, b)
        beside = near.derivative([[0.0]], [[1e-200]], a, b)
        assert_allclose(beside, at_zero, rtol=0, atol=1e-14 * np.prod(variances) ** 0.5)
        variances = [far.derivative([[0.0]], None, c, c)[0, 0] for c in (a, b)]
        value = far.derivative([[0.0]], [[1.0]], a, b)[0, 0]
        assert abs(value) < 1e-5 * np.prod(variances) ** 0.5


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(("degree", "offset"), [(1, 0.0), (3, 1.0), (5, 0.4)])
def test_polynomial(degree, offset, d):
    kernel = Polynomial(degree, LENGTHS[:d], 0.2, offset)
    function = mp_polynomial(degree, offset)
    x = np.array(POINT[:d])
    ys = np.array([x + np.array(offset[:d]) for offset in OFFSETS.values()])
    for (a, b), values in zip(
        PAIRS[d], kernel.derivatives(x[None], ys, PAIRS[d]), strict=True
    ):
        exact = np.array([float(difference_quotient(function, x, y, a, b)) for y in ys])
        exact[np.abs(exact) < 1e-25] = 0  # what the difference quotient leaves of 0
        if max(sum(a), sum(b)) > degree:
            assert not np.any(exact)
        assert_allclose(values[0], exact, rtol=0, atol=1e-12 * np.abs(exact).max())


def test_constant():
    values = Constant(2.5).derivatives(
        [[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], PAIRS[2][:3]
    )
    assert_array_equal(values, [[[2.5, 2.5]], [[0, 0]], [[0, 0]]])


# Second opinion: the same function of two points, differentiated by autograd. Sums,
# products, powers and active_dims are written out in it.


def ag_rbf(x, y, length):
    return anp.exp(-0.5 * anp.sum((x - y) ** 2, axis=-1) / length**2)


def ag_periodic(x, y, length, period):
    return anp.exp(
        -2 * anp.sum(anp.sin(anp.pi * (x - y) / period) ** 2, -1) / length**2
    )


def ag_polynomial(x, y, degree):
    return (anp.sum(x * y, axis=-1) + 1) ** degree


COMPOSITIONS = {
    "active_dims": (
        RBF((0.6, 1.2), active_dims=(2, 0)),
        lambda x, y: anp.exp(
            -0.5 * ((x[..., 2] - y[..., 2]) / 0.6) ** 2
            - 0.5 * ((x[..., 0] - y[..., 0]) / 1.2) ** 2
        ),
    ),
    "sum": (
        2.0 * RBF(0.8) + RBF(1.7, active_dims=1) + 3,
        lambda x, y: 2 * ag_rbf(x, y, 0.8) + ag_rbf(x[..., 1:2], y[..., 1:2], 1.7) + 3,
    ),
    "product on other columns": (
        RBF(0.8, active_dims=(0, 2)) * Periodic(1.2, 1.9, active_dims=1),
        lambda x, y: (
            ag_rbf(x[..., ::2], y[..., ::2], 0.8)
            * ag_periodic(x[..., 1:2], y[..., 1:2], 1.2, 1.9)
        ),
    ),
    "product on the same columns": (
        RBF(1.1) * Periodic(1.2, 1.9) * Polynomial(2, 1.0, 0.0, active_dims=(1, 2)),
        lambda x, y: (
            ag_rbf(x, y, 1.1)
            * ag_periodic(x, y, 1.2, 1.9)
            * ag_polynomial(x[..., 1:], y[..., 1:], 2)
        ),
    ),
    "power": (
        (RBF(1.4) + 0.5 * Polynomial(1, 1.0, 0.0)) ** 3,
        lambda x, y: (ag_rbf(x, y, 1.4) + 0.5 * ag_polynomial(x, y, 1)) ** 3,
    ),
    "inverse multiquadric": (
        RadialKernel(lambda rho: 1 / anp.sqrt(1 + 2 * rho), 0.9),
        lambda x, y: (1 + anp.sum((x - y) ** 2, axis=-1) / 0.81) ** -0.5,
    ),
}
THIRD_ORDER = [
    ((0, 0, 0), (0, 0, 0)),
    ((1, 0, 0), (0, 0, 0)),
    ((0, 0, 1), (0, 1, 0)),
    ((2, 0, 0), (0, 0, 2)),
    ((0, 1, 1), (0, 2, 0)),
    ((1, 1, 1), (1, 0, 1)),
    ((0, 2, 0), (0, 2, 0)),
]


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_against_autograd(name):
    kernel, function = COMPOSITIONS[name]
    random_state = np.random.RandomState(1)
    X, Y = random_state.normal(size=(4, 3)), random_state.normal(size=(5, 3))
    Y[0] = X[0]
    other = FunctionKernel(function)
    together = kernel.derivatives(X, Y, THIRD_ORDER)
    for (a, b), values in zip(THIRD_ORDER, together, strict=True):
        expected = other.derivative(X, Y, a, b)
        assert_allclose(values, expected, atol=1e-12 * np.abs(expected).max())
        assert_array_equal(values, kernel.derivative(X, Y, a, b))


ALL_KINDS = {
    "RBF": RBF((0.6, 1.2)),
    "Matern 4.1": Matern((0.6, 1.2), nu=4.1),
    "Matern 5.5": Matern((0.6, 1.2), nu=5.5),
    "RationalQuadratic": RationalQuadratic((0.6, 1.2), 0.7),
    "Periodic": Periodic((0.6, 1.2), (1.1, 2.3)),
    "Envelope": Envelope((0.6, 1.2), (0.1, -0.2)),
    "Polynomial": Polynomial(5, (0.6, 1.2), (0.1, -0.2)),
    "Constant": Constant(3.0),
    "RadialKernel": RadialKernel(lambda rho: 1 / (1 + rho)),
    "FunctionKernel": FunctionKernel(lambda x, y: anp.exp(anp.sum(x * y, axis=-1))),
    "composition": RBF(0.9) * Periodic(1.0, 2.0) + 2.0 * Matern(0.9, nu=4.5) ** 2,
}


@pytest.mark.parametrize("name", ALL_KINDS)
def test_symmetry(name):
    kernel = ALL_KINDS[name]
    X, Y = np.random.RandomState(2).normal(size=(2, 3, 2))
    for a, b in [((1, 0), (0, 0)), ((0, 1), (2, 0)), ((1, 1), (1, 0))]:
        values = kernel.derivative(X, Y, a, b)
        assert_allclose(values, kernel.derivative(Y, X, b, a).T, rtol=1e-12)


@pytest.mark.parametrize("name", ALL_KINDS)
def test_gram_matrices_of_derivatives_are_positive(name):
    kernel = ALL_KINDS[name]
    X = np.random.RandomState(3).normal(size=(5, 2))
    orders = [(0, 0), (1, 0), (0, 2)]
    blocks = kernel.derivatives(X, None, list(product(orders, orders)))
    gram = np.block([blocks[3 * i : 3 * i + 3] for i in range(3)])
    assert_allclose(gram, gram.T, rtol=1e-12, atol=1e-12 * np.abs(gram).max())
    assert np.linalg.eigvalsh(gram).min() > -1e-12 * np.abs(gram).max()


@pytest.mark.parametrize("name", ALL_KINDS)
def test_derivatives_are_new_arrays(name):
    pairs = [((0, 0), (0, 0)), ((0, 0), (0, 0)), ((1, 0), (0, 1)), ((0, 1), (1, 0))]
    X = np.random.RandomState(4).normal(size=(3, 2))
    values = ALL_KINDS[name].derivatives(X, X, pairs)
    assert [value.shape for value in values] == [(3, 3)] * 4
    assert not any(
        np.shares_memory(first, second)
        for i, first in enumerate(values)
        for second in values[:i]
    )


@pytest.mark.parametrize("name", ["RBF", "Matern 4.1", "RationalQuadratic", "Periodic"])
def test_blocks_of_rows(name):
    # More pairs than are computed at a time: a row does not depend on the others.
    random_state = np.random.RandomState(5)
    X, Y = random_state.normal(size=(171, 2)), random_state.normal(size=(300, 2))
    values = ALL_KINDS[name].derivative(X, Y, (1, 1), (0, 2))
    rows = [
        ALL_KINDS[name].derivative(X[i : i + 1], Y, (1, 1), (0, 2))[0]
        for i in range(len(X))
    ]
    assert_array_equal(values, rows)
    one_column = ALL_KINDS[name].derivative(Y, X[:1], (0, 2), (1, 1))[:, 0]
    assert_allclose(one_column, values[0], atol=1e-14 * np.abs(values).max())


@pytest.mark.parametrize("name", ALL_KINDS)
def test_gradient(name):
    X, Y = np.random.RandomState(6).normal(size=(2, 3, 2))
    gradient = ALL_KINDS[name].gradient(X, Y)
    assert gradient.shape == (2, 3, 3)
    assert_array_equal(gradient[0], ALL_KINDS[name].derivative(X, Y, (1, 0)))
    assert_array_equal(gradient[1], ALL_KINDS[name].derivative(X, Y, (0, 1)))


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(active_dims=0),
        RationalQuadratic(active_dims=0),
        Matern(nu=4.5, active_dims=0),
        Periodic(active_dims=0),
        Polynomial(3, 1.0, 0.0, active_dims=0),
        RadialKernel(lambda rho: anp.exp(-rho), active_dims=0),
        FunctionKernel(lambda x, y: anp.exp(anp.sum(x * y, axis=-1)), active_dims=0),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_derivative_in_an_inactive_column_is_zero(kernel):
    X = np.ones((2, 2))
    assert_array_equal(kernel.derivative(X, None, (0, 1)), np.zeros((2, 2)))
    assert_array_equal(kernel.derivative(X, None, (1, 0), (1, 1)), np.zeros((2, 2)))


def test_empty_sets_of_points():
    X, none = np.ones((3, 2)), np.empty((0, 2))
    assert RBF().derivative(X, none, (1, 0)).shape == (3, 0)
    assert RBF().derivative(none, X, (1, 0)).shape == (0, 3)
