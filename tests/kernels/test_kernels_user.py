"""Kernels that a user writes: smooth ones are differentiated, others are refused."""

import autograd.numpy as anp
import mpmath as mp
import numpy as np
import pytest
from kernel_oracles import LENGTHS, PAIRS, difference_quotient, mp_matern
from numpy.testing import assert_allclose

from keql.kernels import RBF, FunctionKernel, Matern, RadialKernel, RationalQuadratic


def matern52(distance):
    """Matern kernel with nu = 2.5 as a function of the scaled distance."""
    s = anp.sqrt(5.0) * distance
    return (1 + s + s**2 / 3) * anp.exp(-s)


ROUGH = {
    "square root": lambda rho: matern52(anp.sqrt(2 * rho)),
    "tiny addend": lambda rho: matern52(anp.sqrt(2 * rho + 1e-300)),
    "clipped": lambda rho: matern52(anp.sqrt(anp.maximum(2 * rho, 1e-10))),
    "where": lambda rho: matern52(
        anp.where(rho > 0, anp.sqrt(2 * anp.where(rho > 0, rho, 1.0)), 0.0)
    ),
    "clipped, another unit": lambda rho: matern52(
        anp.sqrt(anp.maximum(2e12 * rho, 1e-10))
    ),
}


@pytest.mark.parametrize("name", ROUGH)
@pytest.mark.parametrize("distance", [0.0, 1e-8, 0.5])
@pytest.mark.parametrize("order", [1, 2])
def test_guarded_square_root_is_refused(name, distance, order):
    profile = ROUGH[name]
    X, Y = np.array([[0.2]]), np.array([[0.2 + distance]])
    assert np.isfinite(RadialKernel(profile)(X, Y))
    with pytest.raises(ValueError, match="needs derivative 1 of `profile`"):
        RadialKernel(profile).derivative(X, Y, (order,), (order,))

    def function(x, y):
        return profile(0.5 * anp.sum((x - y) ** 2, axis=-1))

    with pytest.raises(ValueError, match="differentiated wrongly where x = y"):
        FunctionKernel(function).derivative(X, Y, (order,), (order,))


@pytest.mark.parametrize("distance", [0.0, 1e-8, 0.5])
def test_built_in_matern_does_not_need_the_square_root(distance):
    value = Matern(nu=2.5).derivative([[0.2]], [[0.2 + distance]], (2,), (2,))[0, 0]
    exact = difference_quotient(
        lambda x, y: mp_matern(2.5)([x[0] * LENGTHS[0]], [y[0] * LENGTHS[0]]),
        [0.2],
        [0.2 + distance],
        (2,),
        (2,),
    )
    assert_allclose(value, float(exact), rtol=1e-9)


def test_guarded_square_root_in_a_composition_is_refused():
    kernel = 2.0 * RBF(1.0) * RadialKernel(ROUGH["where"], active_dims=1)
    kernel.derivative(np.ones((1, 2)), None, (2, 0), (2, 0))
    with pytest.raises(ValueError, match="u_x has order 1 and needs derivative 1"):
        kernel.check_order((0, 1), "u_x")
    with pytest.raises(ValueError, match="needs derivative 1 of `profile`"):
        kernel.derivative(np.ones((1, 2)), None, (0, 1), (0, 1))


def test_profile_is_differentiated_as_far_as_it_is_smooth():
    # rho^(5/2) has two continuous derivatives at 0; the third is infinite there, and
    # belongs to a power of x - y that is 0.
    kernel = RadialKernel(lambda rho: anp.exp(-rho) + 0.01 * rho**2.5)
    value = kernel.derivative([[0.0]], [[0.0], [0.3]], (2,), (2,))[0]
    assert_allclose(value[0], 3.0, rtol=1e-14)
    exact = difference_quotient(
        lambda x, y: (
            mp.exp(-((x[0] - y[0]) ** 2) / 2)
            + mp.mpf(0.01) * ((x[0] - y[0]) ** 2 / 2) ** 2.5
        ),
        [0.0],
        [0.3],
        (2,),
        (2,),
    )
    assert_allclose(value[1], float(exact), rtol=1e-12)
    with pytest.raises(ValueError, match="derivative 3 of `profile`"):
        kernel.derivative([[0.0]], [[0.3]], (3,), (0,))


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
@pytest.mark.parametrize("kernel", [RBF, RationalQuadratic])
def test_profile_in_any_unit(kernel, unit):
    profiles = {
        RBF: lambda rho: anp.exp(-rho / unit**2),
        RationalQuadratic: lambda rho: 1 / (1 + rho / unit**2),
    }
    X = np.array([[0.0], [1e-8], [0.6], [3.0]]) * unit
    for a, b in PAIRS[1]:
        values = RadialKernel(profiles[kernel]).derivative(X, None, a, b)
        expected = kernel(unit).derivative(X, None, a, b)
        assert_allclose(values, expected, atol=1e-11 * np.abs(expected).max(), rtol=0)
