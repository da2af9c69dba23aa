"""How numbers, units and names are written, as text, in LaTeX and in HTML."""

import html
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keql.operators import as_factor

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho "
    "sigma tau upsilon phi chi psi omega"
).split()
# Capital letters that are no Latin ones have names of their own in LaTeX.
CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split()
LATEX_GREEK = {*GREEK, *CAPITALS}


def number(value, digits=3):
    """A coefficient as text: three digits, no trailing point."""
    return f"{value:#.{digits}g}".rstrip(".")


def number_with_error(value, error, most=6):
    """A coefficient with its standard error in its last digits: "-1.095(7)".

    The error has one digit, two if the first is a 1; the coefficient has `most` at
    most, without an error if that is smaller.
    """
    if not (np.isfinite(error) and error > 0):
        return number(value)
    size = max(abs(value), error)
    exponent = int(np.floor(np.log10(size)))
    shift = exponent if exponent < -4 or exponent >= 6 else 0
    value, error = value / 10.0**shift, error / 10.0**shift
    power = f"e{shift:+03d}" if shift else ""
    first = int(np.floor(np.log10(error)))
    n_digits = 2 if error / 10.0**first < 1.95 else 1
    decimals = n_digits - 1 - first
    if decimals + exponent - shift + 1 > most:
        return number(value, most) + power
    if decimals < 0:
        return f"{round(value, decimals):.0f}({round(error, decimals):.0f}){power}"
    return f"{value:.{decimals}f}({round(error * 10**decimals)}){power}"


def text_derivative(operator, variables):
    """A differential operator as "d2u/dt2"; the name of a sum or a multiple."""
    if len(operator.parts) > 1 or operator.parts[0][2] != 1:
        return as_factor(operator.name)
    [(state, orders, _)] = operator.parts
    if not any(orders):
        return state
    total, below = sum(orders), ""
    for name, order in zip(variables, orders, strict=True):
        power = f"^{order}" if name[-1].isdigit() else f"{order}"
        below += f"d{name}{power if order > 1 else ''}" if order else ""
    return f"d{total if total > 1 else ''}{state}/{below}"


def latex_unit(unit):
    """A unit in LaTeX."""
    factors = (n if k == 1 else f"{n}^{{{k}}}" for n, k in unit.factors)
    product = r"\,".join(factors)
    return rf"\,\mathrm{{{product}}}"


def html_unit(unit):
    """A unit in HTML."""
    factors = (
        html.escape(n) + ("" if k == 1 else f"<sup>{k}</sup>") for n, k in unit.factors
    )
    return f" {' '.join(factors)}"


class Notation(NamedTuple):
    """How a format writes what a formula consists of, each a function of one argument.

    A `product` of features, the text of a `number`, as :func:`number` writes it, and a
    `unit`, with what separates it from its number.
    """

    product: Callable
    number: Callable = str
    unit: Callable = "{}".format


def latex_product(product, names):
    """A product in LaTeX; `names` says how features are written."""
    factors = []
    for name, power in product:
        factor = names.get(name, name)
        factors.append(factor if power == 1 else f"{_braced(factor)}^{{{power}}}")
    return r" \, ".join(factors) or "1"


def html_product(product, states=()):
    """A product in HTML; `states` are names that may have indices of their own."""
    factors = (
        html_name(name, states) + (f"<sup>{power}</sup>" if power != 1 else "")
        for name, power in product
    )
    return " ".join(factors) or "1"


def join(terms, write_number=number):
    """Write [(coefficient, written product)] as a sum with signs.

    A coefficient of 1 is left out, unless the product is "1"; of a term with a third
    entry this is written for the coefficient without its sign.
    """
    text = ""
    for value, body, *written in terms:
        if written or abs(value) != 1 or body == "1":
            size = written[0] if written else write_number(abs(value))
            body = size if body == "1" else f"{size} {body}"
        sign = "-" if value < 0 else "+"
        text += f" {sign} {body}" if text else f"{sign}{body}".removeprefix("+")
    return text or "0"


def latex_number(value):
    """The text of a coefficient in LaTeX: powers of ten are written as such."""
    mantissa, _, exponent = value.partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def latex_text(text):
    """The name of a function as it was given, with its indices and powers."""
    braced = re.sub(r"([_^])(\w+)", r"\1{\2}", text)
    return rf"\mathrm{{{braced}}}".replace(" ", r"\ ")


def _greek_name(letters):
    """The name of a single Greek letter, such as "theta" or "Theta"; else `letters`."""
    known = unicodedata.name(letters, "") if len(letters) == 1 else ""
    match = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", known)
    if match is None:
        return letters
    called = match[2].lower().replace("lamda", "lambda")
    return called if match[1] == "SMALL" else called.capitalize()


def latex_symbol(name):
    """The name of a coordinate or a function in LaTeX."""
    match = re.fullmatch(r"([^\W\d_]+)_?(\d*)", name)
    if match is None:
        escaped = name.replace("_", r"\_")
        return rf"\mathrm{{{escaped}}}"
    letters, digits = match.groups()
    called = _greek_name(letters)
    if called in LATEX_GREEK:
        letters = rf"\{called}"
    elif len(letters) > 1:
        letters = rf"\mathrm{{{letters}}}"
    if not digits:
        return letters
    return f"{letters}_{digits}" if len(digits) == 1 else f"{letters}_{{{digits}}}"


def latex_operator(operator, variables):
    """A differential operator applied to its states, in LaTeX."""
    if operator.name == f"laplacian({operator.state})":
        return rf"\Delta {latex_state(operator.state)}"
    symbols, terms = [latex_symbol(name) for name in variables], []
    for state, orders, coefficient in operator.parts:
        used = [s for s, n in zip(symbols, orders, strict=True) for _ in range(n)]
        index = ("" if all(len(symbol) == 1 for symbol in used) else " ").join(used)
        terms.append((coefficient, latex_state(state, index)))
    sum_of_terms = join(terms, lambda value: f"{value:g}")
    single = len(terms) == 1 and terms[0][0] == 1
    return sum_of_terms if single else f"({sum_of_terms})"


def latex_state(name, derivative=""):
    """The name of a state in LaTeX, with the coordinates of a derivative as an index.

    What follows an underscore, or a number at the end, are indices as well: T_{c,t} is
    the derivative of T_c, and x_{1,t} that of x1.
    """
    letters, *indices = name.split("_")
    numbered = re.fullmatch(r"([^\W\d_]+)(\d+)", letters)
    if numbered is not None:
        letters, indices = numbered[1], [numbered[2], *indices]
    if not all([letters, *indices]):  # underscores at the end, or several
        symbol = latex_symbol(name)
        return f"{symbol}_{{{derivative}}}" if derivative else symbol
    index = [i if i.isdigit() else latex_symbol(i) for i in indices]
    index = ",".join([*index, derivative] if derivative else index)
    if not index:
        return latex_symbol(letters)
    single = not derivative and len(index) == 1
    return f"{latex_symbol(letters)}_{index if single else f'{{{index}}}'}"


def html_name(name, states=()):
    """A feature's name in HTML: what follows the first underscore is an index.

    That of a derivative comes after those of the state itself, if it is one of `states`
    with an underscore.
    """
    indexed = sorted((s for s in states if "_" in s), key=len, reverse=True)

    def write(match):
        word = match[0]
        for state in indexed:
            if word == state or word.startswith(f"{state}_"):
                letters, _, own = state.partition("_")
                derivative = word[len(state) + 1 :]
                index = [*own.split("_"), derivative] if derivative else own.split("_")
                return f"{letters}<sub>{','.join(index)}</sub>"
        return f"{match[1]}<sub>{match[2]}</sub>"

    return re.sub(r"\b(\w+?)_(\w+)", write, html.escape(name))


def _braced(latex):
    """A factor that a power may follow."""
    return f"({latex})" if latex.startswith(r"\Delta") else latex
