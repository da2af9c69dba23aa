"""Elementary functions of one quantity with an inner parameter, times powers.

A function is a value: it names its family, and pickles. The inner parameter k of a
family has the unit of the quantity, or one over that, or none, so that functions of
data in other units are the same functions with other parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from inspect import Parameter, Signature
from itertools import combinations_with_replacement
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
    is_positive : bool. Whether x, of a pole the sum of k and x, has to be above zero.
    is_line : bool. Whether f is a straight line in log k, however far.
    bend, slope_bend : callable or None. The derivatives of the rates in x, of families
        that a diffusivity may have.
    natural : tuple of float. Values of k which laws are known to have, and which are
        therefore hypotheses of their own, without an unknown: a continuous prior would
        give them no probability at all. Wrinch and Jeffreys, "On certain fundamental
        principles of scientific inquiry", Philosophical Magazine 42, 1921.
    is_angle : bool. Whether these are units, in which x has to be an angle.
    """

    value: Callable
    slope: Callable
    rate: Callable
    slope_rate: Callable
    text: str
    latex: str
    symbolic: Callable
    is_positive: bool = False
    is_line: bool = False
    bend: Callable | None = None
    slope_bend: Callable | None = None
    natural: tuple = ()
    is_angle: bool = False


# Waves of an angle in radians, in degrees, and in turns: whatever its unit, it has one.
ANGLES = 1.0, np.pi / 180, 2 * np.pi
# Exponents have no unit. Those of laws are ratios p/q of small whole numbers, as units
# of powers have to match, or areas and volumes are compared; simple ones are more
# probable, and these are those with abs(p) + q of at most 5 (Jeffreys, "Theory of
# probability", 1961, section 1.62, measures complexity by such sums).
EXPONENTS = tuple(
    float(Fraction(p, q))
    for q in range(1, 5)
    for p in range(q - 5, 6 - q)
    if gcd(p, q) == 1 and not (q == 1 and p >= 0)
)


def _size(x):
    """Absolute values, at zero the least number that has a logarithm."""
    return np.abs(x) + np.finfo(float).tiny


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
    "log": Family(
        lambda x, k: np.log(k * x),
        lambda x, k: np.ones_like(x),
        lambda x, k: 1 / x,
        lambda x, k: np.zeros_like(x),
        "log({kx})",
        r"\log({kx})",
        lambda sympy, x, k: sympy.log(k * x),
        is_positive=True,
        is_line=True,
    ),
    "pole": Family(
        lambda x, k: 1 / (k + x),
        lambda x, k: -k / (k + x) ** 2,
        lambda x, k: -1 / (k + x) ** 2,
        lambda x, k: 2 * k / (k + x) ** 3,
        "/({k} + {x})",
        "/({k} + {x})",
        lambda sympy, x, k: 1 / (k + x),
        is_positive=True,
    ),
    "peak": Family(
        lambda x, k: 1 / (k + x**2),
        lambda x, k: -k / (k + x**2) ** 2,
        lambda x, k: -2 * x / (k + x**2) ** 2,
        lambda x, k: 4 * k * x / (k + x**2) ** 3,
        "/({k} + {x}^2)",
        "/({k} + {x}^{{2}})",
        lambda sympy, x, k: 1 / (k + x**2),
    ),
    "power": Family(
        lambda x, k: x**k,
        lambda x, k: k * x**k * np.log(x),
        lambda x, k: k * x ** (k - 1),
        lambda x, k: k * x ** (k - 1) * (1 + k * np.log(x)),
        "{x}{to_k}",
        "{x}{to_k}",
        lambda sympy, x, k: x ** (int(k) if float(k).is_integer() else k),
        is_positive=True,
        bend=lambda x, k: k * (k - 1) * x ** (k - 2),
        slope_bend=lambda x, k: (
            k * x ** (k - 2) * (2 * k - 1 + k * (k - 1) * np.log(x))
        ),
        natural=EXPONENTS,
    ),
    "abs": Family(
        lambda x, k: _size(x) ** k,
        lambda x, k: k * _size(x) ** k * np.log(_size(x)),
        lambda x, k: k * np.sign(x) * _size(x) ** (k - 1),
        lambda x, k: k * np.sign(x) * _size(x) ** (k - 1) * (1 + k * np.log(_size(x))),
        "|{x}|{to_k}",
        r"\lvert {x} \rvert{to_k}",
        lambda sympy, x, k: sympy.Abs(x) ** k,
        natural=(1.0, 4.0),  # drag as the square of a speed; the fifth power
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
}


@dataclass(frozen=True)
class Elementary:
    """A product of powers of columns, times an elementary function of one of them.

    Or the diffusion of a state whose diffusivity is the function f, (f(u) u_x)_x.

    powers : tuple of (str, int). Names of columns, and to which powers.
    family : str. Of the function; empty: there is none, the product is a monomial.
    argument : str. The column that it is a function of.
    parameter : float. Its inner parameter k.
    slope : bool. Whether it is the derivative in log k instead.
    digits : int. How many of the parameter's are written.
    flux : tuple of str. The columns of the first and the second derivative of the
        argument in a coordinate of space, if it is a diffusion; there are no powers.
    is_held : bool. Whether the inner parameter is known: waves on a ring are whole, and
        others may be those of an angle.
    origin : float. Where the argument is counted from, in its unit.
    reference : str. The column that it is counted from, if it is a difference.
    """

    powers: tuple = ()
    family: str = ""
    argument: str = ""
    parameter: float = 1.0
    slope: bool = False
    digits: int = 3
    flux: tuple = ()
    is_held: bool = False
    origin: float = 0.0
    reference: str = ""

    @classmethod
    def power_above(cls, origin, argument, power, powers=()):
        """A whole power of what a column is above an origin, times powers of others."""
        if not origin:
            return cls(((argument, power), *powers))
        own = "power", argument, float(power)
        return cls(powers, *own, is_held=True, origin=origin)

    @property
    def is_product(self):
        """Whether it is a product of whole powers, which may have an origin."""
        is_power = self.family == "power" and self.is_held
        return not self.family or (is_power and bool(self.origin))

    @property
    def is_free(self):
        """Whether there is an inner parameter that is not known."""
        return bool(self.family) and not self.is_held

    @property
    def depends_on(self):
        """The names of the columns of which it is a function, a set."""
        own = {name for name, _ in self.powers} | {*self.flux}
        return own | {*self.arguments}

    @property
    def arguments(self):
        """The column, or the two, that its elementary function is of: a tuple."""
        own = (self.argument, self.reference) if self.reference else (self.argument,)
        return own if self.family else ()

    @property
    def is_natural(self):
        """Whether the inner parameter is held at one that laws are known to have."""
        return self.is_held and self.parameter in FAMILIES[self.family].natural

    @cached_property
    def columns(self):
        """The names of the columns that it depends on, as `__call__` takes them."""
        own = [*self.arguments, *self.flux, *(name for name, _ in self.powers)]
        return list(dict.fromkeys(own))

    @cached_property
    def __signature__(self):
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature([Parameter(name, kind) for name in self.columns])

    def __call__(self, *values):
        """Values at those of the columns."""
        given = dict(zip(self.columns, values, strict=True))
        result = 1.0
        if self.family:
            family, x = FAMILIES[self.family], self.argument_of(given)
            result = (family.slope if self.slope else family.value)(x, self.parameter)
        if self.flux:
            first, second = (given[name] for name in self.flux)
            rate = (family.slope_rate if self.slope else family.rate)(x, self.parameter)
            result = result * second + rate * first**2
        for name, power in self.powers:
            result = result * given[name] ** power
        return result

    def argument_of(self, values):
        """The quantity that its elementary function is of, by names of columns."""
        x = values[self.argument] - self.origin
        return x - values[self.reference] if self.reference else x

    @property
    def name(self):
        """How it is written: "u u_t", "sin(u)", "u/(2.1 + u)"."""
        factors = [n if p == 1 else f"{n}^{p}" for n, p in self.powers]
        if not self.family:
            return " ".join(factors) or "1"
        text = self.factor
        if text.startswith("/"):
            return (" ".join(factors) or "1") + text
        return " ".join([*factors, text])

    @property
    def factor(self):
        """How the function is written beside its powers: "sin(2 u)", "/(3 + u)"."""
        x = self._written_argument({name: name for name in self.arguments})
        text = self._fill(FAMILIES[self.family].text, x, " ")
        if not self.flux:
            return text
        return f"({text} {self.flux[0]})_{self._coordinate}"

    @property
    def _coordinate(self):
        """The name of the coordinate that a diffusion spreads along."""
        return self.flux[0].rpartition("_")[2]

    @property
    def product(self):
        """The name as a product, pairs of a factor and its power."""
        if not self.family:
            return self.powers
        if self.factor.startswith("/"):
            return ((self.name, 1),)
        return (*self.powers, (self.factor, 1))

    def latex(self, names):
        """The last factor of the product in LaTeX; `names` says how columns are."""
        x = self._written_argument(names)
        text = self._fill(FAMILIES[self.family].latex, x, r" \, ")
        if self.flux:
            return rf"({text} \, {names[self.flux[0]]})_{{{self._coordinate}}}"
        if not text.startswith("/"):
            return text
        factors = [names[n] + (f"^{{{p}}}" if p != 1 else "") for n, p in self.powers]
        return (r" \, ".join(factors) or "1") + text

    def sympy(self, sympy, table):
        """The last factor of the product in sympy, of the expressions of columns."""
        x = table[self.argument] - sympy.nsimplify(repr(self.origin))
        x = x - table[self.reference] if self.reference else x
        result = FAMILIES[self.family].symbolic(sympy, x, sympy.Float(self.parameter))
        if self.flux:
            result = result * table[self.flux[0]]
            return sympy.diff(result, table[self._coordinate])
        if not self.factor.startswith("/"):
            return result
        return sympy.prod(table[n] ** p for n, p in self.powers) * result

    def _fill(self, template, x, times):
        k = f"{self.parameter:.{self.digits}g}"
        bare = x[1:-1] if self.reference else x
        kx = {"1": bare, "-1": f"-{x}"}.get(k, f"{k}{times}{x}")
        to_k = "" if float(k) == 1 else f"^{{{k}}}" if times != " " else f"^{k}"
        return template.format(x=x, k=k, kx=kx, to_k=to_k)

    def _written_argument(self, names):
        """The argument as it is written: "t", "(t - 2010)", "(a - b)"."""
        x = names[self.argument]
        if self.reference:
            return f"({x} - {names[self.reference]})"
        if not self.origin:
            return x
        sign = "-" if self.origin > 0 else "+"
        return f"({x} {sign} {abs(self.origin):.15g})"

    def with_parameter(self, parameter):
        """The function with another inner parameter."""
        return replace(self, parameter=float(parameter))

    @property
    def with_one_power(self):
        """The function, powers of its own column as one power; None if it is 1."""
        own = dict(self.powers)
        if self.family != "power" or self.argument not in own:
            return self
        exponent = self.parameter + own.pop(self.argument)
        powers = tuple(own.items())
        return replace(self, powers=powers, parameter=exponent) if exponent else None

    def in_log_parameter(self):
        """The derivative of the function in the logarithm of its parameter."""
        return replace(self, slope=True)


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
    lowest = np.min(x)
    if lowest > -0.05 * size:  # what goes down to zero may seem to be below it
        poles = np.geomspace(0.01, 4, n) * size
        yield from (("pole", k) for k in poles if lowest > -0.5 * k)
    if lowest > 0:
        yield "log", 1 / np.median(x)
        yield from (("power", k) for k in (-1.0, -0.5, 0.35, 0.6, 1.5, 2.5))
    else:
        yield from (("abs", k) for k in (0.5, 1.0, 4.0))


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
# drag is the size of a speed times the speed, and friction that saturates stands alone.
ODD = "abs", "tanh"


def odd_factors(family, name, factors):
    """What functions of a column are multiplied by, of odd ones not by `factors`."""
    return {"abs": [((name, 1),)], "tanh": [()]}.get(family, factors)


def at_natural_values(function, x, least=0.5, most=40.0):
    """A function of a column with values x, its parameter at each natural value.

    Of an angle, which is no factor beside its sine, as far as it turns by so many
    radians: in one unit, seldom in two.

    Yields functions whose parameters are held.
    """
    family = FAMILIES[function.family]
    if family.is_angle and function.argument in dict(function.powers):
        return
    for k in family.natural:
        if not family.is_angle or least <= k * np.max(np.abs(x)) <= most:
            yield replace(function, parameter=k, is_held=True)
