"""Elementary functions of one quantity with an inner parameter, times powers.

A function is a value: it names its family, and pickles. The inner parameter k of a
family has the unit of the quantity, or one over that, or none, so that functions of
data in other units are the same functions with other parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Parameter, Signature

import autograd.numpy as np


@dataclass(frozen=True)
class Family:
    """Functions f(x, k) of a quantity x and a parameter k.

    value, slope : callable. f, and k df/dk, its derivative in the logarithm of k.
    text, latex : str. How f is written, with {x}, {k} and {kx}, their product. What
        begins with a slash follows the factors of f.
    symbolic : callable. f in sympy, of that module, x and k.
    is_positive : bool. Whether x has to be above zero.
    """

    value: Callable
    slope: Callable
    text: str
    latex: str
    symbolic: Callable
    is_positive: bool = False


FAMILIES = {
    "sin": Family(
        lambda x, k: np.sin(k * x),
        lambda x, k: k * x * np.cos(k * x),
        "sin({kx})",
        r"\sin({kx})",
        lambda sympy, x, k: sympy.sin(k * x),
    ),
    "cos": Family(
        lambda x, k: np.cos(k * x),
        lambda x, k: -k * x * np.sin(k * x),
        "cos({kx})",
        r"\cos({kx})",
        lambda sympy, x, k: sympy.cos(k * x),
    ),
    "exp": Family(
        lambda x, k: np.exp(k * x),
        lambda x, k: k * x * np.exp(k * x),
        "exp({kx})",
        r"\exp({kx})",
        lambda sympy, x, k: sympy.exp(k * x),
    ),
    "log": Family(
        lambda x, k: np.log(k * x),
        lambda x, k: np.ones_like(x),
        "log({kx})",
        r"\log({kx})",
        lambda sympy, x, k: sympy.log(k * x),
        is_positive=True,
    ),
    "pole": Family(
        lambda x, k: 1 / (k + x),
        lambda x, k: -k / (k + x) ** 2,
        "/({k} + {x})",
        "/({k} + {x})",
        lambda sympy, x, k: 1 / (k + x),
        is_positive=True,
    ),
    "peak": Family(
        lambda x, k: 1 / (k + x**2),
        lambda x, k: -k / (k + x**2) ** 2,
        "/({k} + {x}^2)",
        "/({k} + {x}^{{2}})",
        lambda sympy, x, k: 1 / (k + x**2),
    ),
    "power": Family(
        lambda x, k: x**k,
        lambda x, k: k * x**k * np.log(x),
        "{x}^{k}",
        "{x}^{{{k}}}",
        lambda sympy, x, k: x**k,
        is_positive=True,
    ),
}


@dataclass(frozen=True)
class Elementary:
    """A product of powers of columns, times an elementary function of one of them.

    powers : tuple of (str, int). Names of columns, and to which powers.
    family : str. Of the function; empty: there is none, the product is a monomial.
    argument : str. The column that it is a function of.
    parameter : float. Its inner parameter k.
    slope : bool. Whether it is the derivative in log k instead.
    digits : int. How many of the parameter's are written.
    """

    powers: tuple = ()
    family: str = ""
    argument: str = ""
    parameter: float = 1.0
    slope: bool = False
    digits: int = 3

    @cached_property
    def columns(self):
        """The names of the columns that it depends on, as `__call__` takes them."""
        own = [self.argument] if self.family else []
        return list(dict.fromkeys([*own, *(name for name, _ in self.powers)]))

    @cached_property
    def __signature__(self):
        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature([Parameter(name, kind) for name in self.columns])

    def __call__(self, *values):
        """Values at those of the columns."""
        given = dict(zip(self.columns, values, strict=True))
        result = 1.0
        if self.family:
            family, x = FAMILIES[self.family], given[self.argument]
            result = (family.slope if self.slope else family.value)(x, self.parameter)
        for name, power in self.powers:
            result = result * given[name] ** power
        return result

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
        return self._fill(FAMILIES[self.family].text, self.argument, " ")

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
        x = names[self.argument]
        text = self._fill(FAMILIES[self.family].latex, x, r" \, ")
        if not text.startswith("/"):
            return text
        factors = [names[n] + (f"^{{{p}}}" if p > 1 else "") for n, p in self.powers]
        return (r" \, ".join(factors) or "1") + text

    def sympy(self, sympy, table):
        """The last factor of the product in sympy, of the expressions of columns."""
        x = table[self.argument]
        result = FAMILIES[self.family].symbolic(sympy, x, sympy.Float(self.parameter))
        if not self.factor.startswith("/"):
            return result
        return sympy.prod(table[n] ** p for n, p in self.powers) * result

    def _fill(self, template, x, times):
        k = f"{self.parameter:.{self.digits}g}"
        kx = {"1": x, "-1": f"-{x}"}.get(k, f"{k}{times}{x}")
        return template.format(x=x, k=k, kx=kx)

    def with_parameter(self, parameter):
        """The function with another inner parameter."""
        return replace(self, parameter=float(parameter))

    def in_log_parameter(self):
        """The derivative of the function in the logarithm of its parameter."""
        return replace(self, slope=True)
