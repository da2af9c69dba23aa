"""Elementary functions of one quantity with an inner parameter, times powers.

A function is a value: it names its family, and pickles.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from inspect import Parameter, Signature

from keql._numerics.elementary.families import FAMILIES


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
    squares : tuple of str. Columns whose squares are added to that of the argument, if
        it is the square of a distance or of a speed.
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
    squares: tuple = ()

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
    def is_whole_power(self):
        """Whether it is a product of powers that are whole and positive."""
        is_whole = self.is_held and self.parameter > 0 and self.parameter % 1 == 0
        is_power = self.family == "power" and is_whole
        return not self.family or (is_power and not (self.origin or self.squares))

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
        """The columns that its elementary function is of: a tuple."""
        others = (self.reference,) if self.reference else self.squares
        return (self.argument, *others) if self.family else ()

    @property
    def degree(self):
        """The power, a Fraction, of the unit of its argument that the function has.

        None if that is no ratio of small numbers.
        """
        degree = FAMILIES[self.family].degree
        power = self.parameter if degree is None else degree
        ratio = Fraction(power).limit_denominator(6)
        return ratio if abs(float(ratio) - power) < 1e-6 else None

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
        if self.squares:
            return sum(values[name] ** 2 for name in self.arguments)
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
        x = self._written_argument({name: name for name in self.arguments}, "^2")
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
        x = self._written_argument(names, "^{2}")
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
        if self.squares:
            x = sum(table[name] ** 2 for name in self.arguments)
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

    def _written_argument(self, names, squared):
        """The argument as it is written: "t", "(t - 2010)", "(a - b)", "(x^2 + y^2)".

        `squared` is how a square is written.
        """
        if self.squares:
            return f"({' + '.join(names[name] + squared for name in self.arguments)})"
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
        if self.family != "power" or self.argument not in own or self.squares:
            return self
        exponent = self.parameter + own.pop(self.argument)
        powers = tuple(own.items())
        return replace(self, powers=powers, parameter=exponent) if exponent else None

    def in_log_parameter(self):
        """The derivative of the function in the logarithm of its parameter."""
        return replace(self, slope=True)
