"""Families of elementary functions of a quantity with an inner parameter.

The inner parameter k of a family has the unit of the quantity, or one over that, or
none, so that functions of data in other units are the same functions with other
parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import autograd.numpy as np


@dataclass(frozen=True)
class Family:
    """Functions f(x, k) of a quantity x and a parameter k.

    value, slope : callable. f, and k df/dk, its derivative in the logarithm of k.
    rate, slope_rate : callable. The derivatives of these in x.
    text, latex : str. How f is written, with {x}, {k}, {kx}, their product, and {to_k},
        an exponent that is empty if it is 1. What begins with a slash follows the
        factors of f.
    symbolic : callable. f in sympy, of that module, x and k.
    is_line : bool. Whether f is a straight line in log k, however far.
    bend, slope_bend : callable or None. The derivatives of the rates in x, of families
        that a diffusivity may have.
    natural : tuple of float. Values of k which laws are known to have, and which are
        therefore hypotheses of their own, without an unknown: a continuous prior would
        give them no probability at all. Wrinch and Jeffreys, "On certain fundamental
        principles of scientific inquiry", Philosophical Magazine 42, 1921.
    is_angle : bool. Whether these are units, in which x has to be an angle.
    degree : int or None. The power of the unit of x that f has; None: it is k.
    """

    value: Callable
    slope: Callable
    rate: Callable
    slope_rate: Callable
    text: str
    latex: str
    symbolic: Callable
    is_line: bool = False
    bend: Callable | None = None
    slope_bend: Callable | None = None
    natural: tuple = ()
    is_angle: bool = False
    degree: int | None = 0


# Waves of an angle in radians, in degrees, and in turns: whatever its unit, it has one.
ANGLES = 1.0, np.pi / 180, 2 * np.pi
# Exponents have no unit. Those of laws are ratios p/q of small whole numbers, as units
# of powers have to match, or areas and volumes are compared; simple ones are more
# probable, and these are those with abs(p) + q of at most 5 (Jeffreys, "Theory of
# probability", 1961, section 1.62, measures complexity by such sums), but for whole
# ones up to 3, which products have. Stars and bifurcations have the fifth power, too.
EXPONENTS = (
    *(
        float(Fraction(p, q))
        for q in range(1, 5)
        for p in range(q - 5, 6 - q)
        if gcd(p, q) == 1 and not (q == 1 and 0 <= p <= 3)
    ),
    5.0,
)

# Those of the square of a distance or of a speed: forces around a centre, and drag.
RADII = -2.0, -1.5, -1.0, -0.5, 0.5


def _size(x):
    """Absolute values, at zero the least number that has a logarithm."""
    return np.abs(x) + np.finfo(float).tiny


def _saturation(n):
    """1/(k + x^n), which makes of the power of a quantity one that saturates.

    With n = 1 it is Michaelis's and Menten's, with n of 2 to 4 it is Hill's, of
    molecules that bind together: "The possible effects of the aggregation of the
    molecules of haemoglobin on its dissociation curves", Journal of Physiology 40,
    1910.
    """
    power = "{x}" if n == 1 else f"{{x}}^{n}"
    in_latex = "{x}" if n == 1 else f"{{x}}^{{{{{n}}}}}"
    return Family(
        lambda x, k: 1 / (k + x**n),
        lambda x, k: -k / (k + x**n) ** 2,
        lambda x, k: -n * x ** (n - 1) / (k + x**n) ** 2,
        lambda x, k: 2 * n * k * x ** (n - 1) / (k + x**n) ** 3,
        f"/({{k}} + {power})",
        f"/({{k}} + {in_latex})",
        lambda sympy, x, k: 1 / (k + x**n),
        degree=-n,
    )


FAMILIES = {
    "sin": Family(
        lambda x, k: np.sin(k * x),
        lambda x, k: k * x * np.cos(k * x),
        lambda x, k: k * np.cos(k * x),
        lambda x, k: k * np.cos(k * x) - k**2 * x * np.sin(k * x),
        "sin({kx})",
        r"\sin({kx})",
        lambda sympy, x, k: sympy.sin(k * x),
        natural=ANGLES,
        is_angle=True,
    ),
    "cos": Family(
        lambda x, k: np.cos(k * x),
        lambda x, k: -k * x * np.sin(k * x),
        lambda x, k: -k * np.sin(k * x),
        lambda x, k: -k * np.sin(k * x) - k**2 * x * np.cos(k * x),
        "cos({kx})",
        r"\cos({kx})",
        lambda sympy, x, k: sympy.cos(k * x),
        natural=ANGLES,
        is_angle=True,
    ),
    "exp": Family(
        lambda x, k: np.exp(k * x),
        lambda x, k: k * x * np.exp(k * x),
        lambda x, k: k * np.exp(k * x),
        lambda x, k: k * (1 + k * x) * np.exp(k * x),
        "exp({kx})",
        r"\exp({kx})",
        lambda sympy, x, k: sympy.exp(k * x),
        bend=lambda x, k: k**2 * np.exp(k * x),
        slope_bend=lambda x, k: k**2 * (2 + k * x) * np.exp(k * x),
    ),
    "arrhenius": Family(
        lambda x, k: np.exp(-k / x),
        lambda x, k: -k / x * np.exp(-k / x),
        lambda x, k: k / x**2 * np.exp(-k / x),
        lambda x, k: k / x**2 * (1 - k / x) * np.exp(-k / x),
        "exp(-{k}/{x})",
        "\\exp(-{k}/{x})",
        lambda sympy, x, k: sympy.exp(-k / x),
    ),
    "log": Family(
        lambda x, k: np.log(k * x),
        lambda x, k: np.ones_like(x),
        lambda x, k: 1 / x,
        lambda x, k: np.zeros_like(x),
        "log({kx})",
        r"\log({kx})",
        lambda sympy, x, k: sympy.log(k * x),
        is_line=True,
    ),
    "pole": _saturation(1),
    "peak": _saturation(2),
    "hill3": _saturation(3),
    "hill4": _saturation(4),
    "power": Family(
        lambda x, k: x**k,
        lambda x, k: k * x**k * np.log(x),
        lambda x, k: k * x ** (k - 1),
        lambda x, k: k * x ** (k - 1) * (1 + k * np.log(x)),
        "{x}{to_k}",
        "{x}{to_k}",
        lambda sympy, x, k: x ** (int(k) if float(k).is_integer() else k),
        bend=lambda x, k: k * (k - 1) * x ** (k - 2),
        slope_bend=lambda x, k: (
            k * x ** (k - 2) * (2 * k - 1 + k * (k - 1) * np.log(x))
        ),
        natural=EXPONENTS,
        degree=None,
    ),
    "abs": Family(
        lambda x, k: _size(x) ** k,
        lambda x, k: k * _size(x) ** k * np.log(_size(x)),
        lambda x, k: k * np.sign(x) * _size(x) ** (k - 1),
        lambda x, k: k * np.sign(x) * _size(x) ** (k - 1) * (1 + k * np.log(_size(x))),
        "|{x}|{to_k}",
        r"\lvert {x} \rvert{to_k}",
        lambda sympy, x, k: sympy.Abs(x) ** k,
        natural=(1.0,),  # drag as the square of a speed
        degree=None,
    ),
    "tanh": Family(
        lambda x, k: np.tanh(k * x),
        lambda x, k: k * x * (1 - np.tanh(k * x) ** 2),
        lambda x, k: k * (1 - np.tanh(k * x) ** 2),
        lambda x, k: k * (1 - np.tanh(k * x) ** 2) * (1 - 2 * k * x * np.tanh(k * x)),
        "tanh({kx})",
        r"\tanh({kx})",
        lambda sympy, x, k: sympy.tanh(k * x),
    ),
    "sinh": Family(
        lambda x, k: np.sinh(k * x),
        lambda x, k: k * x * np.cosh(k * x),
        lambda x, k: k * np.cosh(k * x),
        lambda x, k: k * np.cosh(k * x) + k**2 * x * np.sinh(k * x),
        "sinh({kx})",
        r"\sinh({kx})",
        lambda sympy, x, k: sympy.sinh(k * x),
        natural=(1.0,),  # as of a potential in units of the thermal one
        is_angle=True,
    ),
}
