"""Which elementary functions of a quantity are tried: grids of inner parameters."""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np

from keql._numerics.elementary.families import FAMILIES


def products(names, degree=3, most=25):
    """Powers of all products of columns, of the degree that is not too many."""
    for highest in range(degree, 0, -1):
        found = [
            tuple((n, factors.count(n)) for n in dict.fromkeys(factors))
            for total in range(highest + 1)
            for factors in combinations_with_replacement(names, total)
        ]
        if len(found) <= most:
            break
    return found


def state_grid(x, n=7):
    """Families and inner parameters for a quantity with values x, in its units."""
    size = np.max(np.abs(x)) or 1.0
    for k in np.geomspace(0.5, 12, n) / size:
        yield "sin", k
        yield "cos", k
    for k in np.geomspace(0.5, 12, n) / size:
        yield "exp", k
        yield "exp", -k
    for k in np.geomspace(0.03, 4, n) * size:
        yield "peak", k**2
    for k in np.geomspace(0.5, 12, n) / size:
        yield "tanh", k
    for k in np.array([0.5, 1.5, 4.0]) / size:
        yield "sinh", k
    lowest = np.min(x)
    if lowest > -0.05 * size:  # what goes down to zero may seem to be below it
        poles = np.geomspace(0.01, 4, n) * size
        yield from (("pole", k) for k in poles if lowest > -0.5 * k)
        for k in np.geomspace(0.1, 2, n) * size:
            yield "hill3", k**3
            yield "hill4", k**4
    if lowest > 0.05 * size and lowest < size:
        change = 1 / lowest - 1 / size  # of the exponent, as that of an exponential
        yield from (("arrhenius", k) for k in np.geomspace(0.5, 12, n) / change)
    if lowest > 0:
        yield "log", 1 / np.median(x)
        yield from (("power", k) for k in (-1.0, -0.5, 0.35, 0.6, 1.5, 2.5))
    else:
        yield from (("abs", k) for k in (0.5, 1.0, 3.0))


def fast_waves(x, most):
    """Wave numbers beyond those of the grid, for a state that turns round and round.

    Of a quantity with values x, up to `most` radians over all of them. Neighbours
    differ by two radians over these, so that one of them is near.
    """
    span, size = np.ptp(x), np.max(np.abs(x))
    if not span > 0:
        return np.empty(0)
    return np.arange(12 * span / size + 2, most, 2.0) / span


def origin_of(t, far):
    """What times t are counted from: zero, or a round number if they are far from it.

    They are if the nearest is more than `far` times their span away from it. The number
    is the last before the first time, or that itself, that is a multiple of a power of
    ten, the largest of at most a tenth of the span: it is written with few digits.
    """
    span, first = np.ptp(t), np.min(t)
    if not span > 0 or np.min(np.abs(t)) <= far * span or first * np.max(t) <= 0:
        return 0.0
    unit = int(np.floor(np.log10(span / 10)))
    whole = np.floor(np.round(first / 10.0**unit, 6))  # 2010.3 is 20103 tenths
    return float(whole * 10**unit if unit >= 0 else whole / 10**-unit)


def time_grid(t, n, has_beginning=True):
    """The same for times t: n frequencies, of half a period and more, and decays.

    And powers, as of what spreads from a centre or expands, where time is counted from
    a beginning: from zero, or from less than the time that was observed after it.
    """
    span, lowest = np.ptp(t) or 1.0, np.min(t)
    for w in np.arange(1, n + 1) * np.pi / span:
        yield "cos", w
        yield "sin", w
    for k in (1.0, 3.0, 10.0):
        yield "exp", -k / span
    if 0 <= lowest < span:
        yield from (("pole", k * span) for k in (0.02, 0.1, 0.5))
    if has_beginning and 0 < lowest < span:
        yield from (("power", k) for k in (-2.0, -1.0, -0.5, 0.5))


def powers_of_coordinates(x):
    """Exponents that a coordinate x of space has in coefficients, beside the first.

    The square, as of a particle in a trap, and of what grows by parts of itself. And
    those of equations around a centre, such as on a disc and in a ball, where what
    spreads has u_x/x, and u/x^2 if it turns, too: if x begins above zero, by a tenth of
    its extent as states are integrated beyond their observations, and not far from
    there.
    """
    is_distance = 0.1 * np.ptp(x) < np.min(x) < np.ptp(x)
    return (2.0, -1.0, -2.0) if is_distance else (2.0,)


def diffusivities(x, powers=(-1.0, -0.5, 0.5, 1.5, 2.5), steps=(0.5, 1.5, 4.0)):
    """Families and inner parameters that the diffusivity of a state may have.

    x : ndarray. Values of the state.
    powers : tuple of float. Exponents, where the state is positive.
    steps : tuple of float. Of exponentials, the largest exponent of either sign.
    """
    size = np.max(np.abs(x)) or 1.0
    for k in np.array(steps) / size:
        yield "exp", k
        yield "exp", -k
    if np.min(x) > 0:
        yield from (("power", k) for k in powers)


# Families of which one function of each column is tried, which changes sign with it:
# drag is the size of a speed times the speed, friction that saturates stands alone, and
# so does what exponentials of both signs make, as the charge of ions in a potential.
ODD = "abs", "tanh", "sinh"
# Families that noise does not tell from others: on 2 % of it sums of them were more
# probable than u^2/(1 + u^2) with a line, which had made the data.
PRECISE = "arrhenius", "hill3", "hill4"


def own_factors(family, name, factors):
    """What functions of a column are multiplied by: `factors`, or others of their own.

    Drag is odd, as that times the column is, and what saturates stands alone: molecules
    that bind together do so times their own power, if they activate something.
    """
    own = {
        "abs": [((name, 1),)],
        "tanh": [()],
        "sinh": [()],
        "hill3": [(), ((name, 3),)],
        "hill4": [(), ((name, 4),)],
    }
    return own.get(family, factors)


def at_natural_values(function, x, most=40.0, least=0.5, n_times=0, per_wave=4):
    """A function of a column with values x, its parameter at each natural value.

    Of an angle, which is no factor beside its sine, as far as it turns by `most`
    radians, in one unit, seldom in two; or farther, as what turns round and round from
    zero does, if there are so many of the `n_times` for each turn.

    Yields functions whose parameters are held.
    """
    family = FAMILIES[function.family]
    if family.is_angle and function.argument in dict(function.powers):
        return
    farthest = np.max(np.abs(x))
    if np.ptp(x) > 0.5 * farthest:
        most = max(most, 2 * np.pi * n_times / per_wave)
    for k in family.natural:
        if not family.is_angle or least <= k * farthest <= most:
            yield replace(function, parameter=k, is_held=True)
