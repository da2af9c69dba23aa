"""The kernels in many digits, from their definitions, and difference quotients.

The oracle knows a kernel as the formula of its definition and differentiates it by
central differences in the coordinates of both arguments. It knows nothing of radial
functions, Bessel recurrences or the Leibniz rule, and it converges on the diagonal as
well, where the quotient of a Matern kernel has the error step^(2 (nu - order)): hence
its very small step there.
"""

from functools import cache
from itertools import product
from math import comb

import mpmath as mp

# A point, its partners, and the parameters of the first, second and third column.
POINT = (0.3, -0.8, 1.1)
LENGTHS = (0.7, 1.3, 0.4)
PERIODS = (1.5, 2.5, 0.8)
OFFSETS = {
    "on": (0.0, 0.0, 0.0),
    "near": (1e-8, -1e-8, 0.6e-8),
    "off": (0.4, -0.9, 0.1),
    "far": (-2.2, 1.7, 0.9),
}

# Multi-indices of order at most 4, for each dimension.
PAIRS = {
    1: [((i,), (j,)) for i in range(5) for j in range(5)],
    2: [
        ((0, 0), (0, 0)),
        ((1, 0), (0, 0)),
        ((0, 1), (1, 0)),
        ((1, 1), (1, 1)),
        ((2, 0), (0, 2)),
        ((3, 0), (1, 1)),
        ((2, 1), (2, 1)),
        ((2, 2), (2, 2)),
        ((1, 3), (3, 1)),
        ((4, 0), (0, 4)),
    ],
    3: [
        ((0, 0, 1), (0, 0, 0)),
        ((1, 0, 0), (0, 0, 1)),
        ((1, 0, 1), (0, 2, 0)),
        ((0, 1, 1), (0, 1, 1)),
        ((1, 1, 1), (1, 1, 1)),
        ((2, 0, 2), (0, 2, 2)),
        ((1, 1, 2), (2, 1, 1)),
        ((0, 0, 4), (0, 0, 4)),
    ],
}


def difference_quotient(function, x, y, a, b):
    """Derivative d^a_x d^b_y of a function of two lists of mpmath numbers."""
    orders, d = (*a, *b), len(x)
    digits = 60 if tuple(x) == tuple(y) else 20
    with mp.workdps(digits * sum(orders) + 40):
        step = mp.mpf(10) ** -digits
        center = [mp.mpf(float(coordinate)) for coordinate in (*x, *y)]
        total = mp.mpf(0)
        for shifts in product(*(range(order + 1) for order in orders)):
            weight, point = 1, []
            for c, n, i in zip(center, orders, shifts, strict=True):
                weight *= (-1) ** i * comb(n, i)
                point.append(c + (mp.mpf(n) / 2 - i) * step)
            total += weight * function(point[:d], point[d:])
        return total / step ** sum(orders)


def radial(profile):
    """A function of two points from one of r^2 = sum ((x - y) / l)^2."""

    @cache
    def remembered(square, precision):
        return profile(square)

    def function(x, y):
        columns = zip(x, y, LENGTHS, strict=False)
        square = sum(((p - q) / mp.mpf(length)) ** 2 for p, q, length in columns)
        return remembered(square, mp.mp.prec)

    return function


def mp_matern(nu):
    """Definition of the Matern kernel."""

    def profile(square):
        if square == 0:
            return mp.mpf(1)
        s = mp.sqrt(2 * mp.mpf(nu) * square)
        return mp.mpf(2) ** (1 - mp.mpf(nu)) / mp.gamma(nu) * s**nu * mp.besselk(nu, s)

    return radial(profile)


def mp_rational_quadratic(alpha):
    """Definition of the rational quadratic kernel."""
    return radial(lambda square: (1 + square / (2 * mp.mpf(alpha))) ** -mp.mpf(alpha))


def mp_periodic(x, y):
    """Definition of the periodic kernel."""
    columns = zip(x, y, LENGTHS, PERIODS, strict=False)
    sines = [
        mp.sin(mp.pi * (p - q) / mp.mpf(period)) / mp.mpf(length)
        for p, q, length, period in columns
    ]
    return mp.exp(-2 * sum(sine**2 for sine in sines))


def mp_envelope(x, y):
    """Definition of the envelope with centre 0.2 and widths LENGTHS."""
    squares = [
        ((p - mp.mpf(0.2)) / mp.mpf(width)) ** 2
        for point in (x, y)
        for p, width in zip(point, LENGTHS, strict=False)
    ]
    return mp.exp(-sum(squares) / 2)


def mp_polynomial(degree, offset):
    """Definition of the polynomial kernel with centre 0.2 and scales LENGTHS."""

    def function(x, y):
        c = mp.mpf(0.2)
        columns = zip(x, y, LENGTHS, strict=False)
        inner = sum((p - c) * (q - c) / mp.mpf(length) ** 2 for p, q, length in columns)
        return (inner + mp.mpf(offset)) ** degree

    return function


def matern_variance(nu, order):
    """Variance of a derivative in one dimension, l = 1, from the spectral density.

    The spectral density is a scale mixture of normal ones, whose moments are known.
    """
    double_factorial = mp.fac2(2 * order - 1)
    return double_factorial * mp.mpf(nu) ** order * mp.gammaprod([nu - order], [nu])
