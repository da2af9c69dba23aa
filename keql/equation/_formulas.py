"""Equations as text, LaTeX, HTML and sympy objects.

A table of names says how each format writes the features in a product.
"""

import html
import importlib
import re
from functools import partial

import numpy as np

from keql.equation._monomials import terms_of, text_product
from keql.operators import as_factor

GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho "
    "sigma tau upsilon phi chi psi omega"
).split()


def number(value, digits=3):
    """A coefficient as text: three digits, no trailing point."""
    return f"{value:#.{digits}g}".rstrip(".")


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
        html_name(name, states) + (f"<sup>{power}</sup>" if power > 1 else "")
        for name, power in product
    )
    return " ".join(factors) or "1"


def join(terms, write_number=number):
    """Write [(coefficient, written product)] as a sum with signs.

    A coefficient of 1 is left out, unless the product is "1".
    """
    text = ""
    for value, body in terms:
        if abs(value) != 1 or body == "1":
            size = write_number(abs(value))
            body = size if body == "1" else f"{size} {body}"
        sign = "-" if value < 0 else "+"
        text += f" {sign} {body}" if text else f"{sign}{body}".removeprefix("+")
    return text or "0"


def latex_number(value):
    """A coefficient in LaTeX: powers of ten are written as such."""
    mantissa, _, exponent = number(value).partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa


def latex_text(text):
    """The name of a function as it was given, with its indices and powers."""
    braced = re.sub(r"([_^])(\w+)", r"\1{\2}", text)
    return rf"\mathrm{{{braced}}}".replace(" ", r"\ ")


def latex_symbol(name):
    """The name of a coordinate or a function in LaTeX."""
    match = re.fullmatch(r"([A-Za-z]+)_?(\d*)", name)
    if match is None:
        escaped = name.replace("_", r"\_")
        return rf"\mathrm{{{escaped}}}"
    letters, digits = match.groups()
    if letters in GREEK:
        letters = rf"\{letters}"
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
    numbered = re.fullmatch(r"([A-Za-z]+)(\d+)", letters)
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


def sympy_operator(operator, variables):
    """A differential operator applied to its states, as a sympy expression."""
    sympy = import_optional("sympy")
    symbols = sympy.symbols(variables)
    total = sympy.Integer(0)
    for state, orders, coefficient in operator.parts:
        term = sympy.Function(state)(*symbols)
        for symbol, order in zip(symbols, orders, strict=True):
            if order:
                term = sympy.Derivative(term, (symbol, order))
        is_whole = coefficient % 1 == 0
        total += sympy.sympify(int(coefficient) if is_whole else coefficient) * term
    return total


def import_optional(name):
    """Sympy or pandas, or an error that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        method, advice = "to_sympy", ", or install keql with its extra 'symbolic'."
        if name == "pandas":
            advice = ". terms(return_std=True) gives the same numbers as dicts."
            method = "to_frame"
        raise ImportError(
            f"{method} needs {name}, which is not installed: pip install {name}{advice}"
        ) from error


def _braced(latex):
    """A factor that a power may follow."""
    return f"({latex})" if latex.startswith(r"\Delta") else latex


class PrintableEquation:
    """The formula of an equation, in several languages."""

    # Whether the data do not tell the equation from others: set when it is fitted.
    in_doubt = False
    # In a system P and f have the number of their equation, and c0, c1, ... go on.
    _mark = ""
    _first_coefficient = 0

    def __str__(self):
        """Solved for the known part: "u_t = 0.500 u u_x + 0.0100 u_xx"."""
        return self._write(text_product)

    def __repr__(self):
        remarks = [self._loss_of_fit()] if self.original is not None else []
        remarks += ["in doubt, see fit_report_"] if self.in_doubt else []
        text = f" ({'; '.join(remarks)})" if remarks else ""
        return f"<LearnedEquation {self}{text}>"

    def to_latex(self):
        r"""The equation in LaTeX, solved for the known part.

        Returns
        -------
        latex : str
            Without dollar signs, such as ``u_{t} = 0.500 u \, u_{x}``.
        """
        return self._write_latex(" = ")

    def _write_latex(self, equals):
        names = {name: latex_symbol(name) for name in (*self.variables, *self.inputs)}
        for operator in self.operators:
            written = latex_operator(operator, self.variables)
            names[operator.name] = names[as_factor(operator.name)] = written
        for text, (function, arguments) in self._unknown_functions().items():
            written = [latex_product([(as_factor(a), 1)], names) for a in arguments]
            names[text] = f"{latex_symbol(function)}({', '.join(written)})"
        for name in self._named_functions():
            names[name] = latex_text(name)
        for name in self.known_part.terms:
            if name not in names:  # a function of named features
                function = name.partition("(")[0].replace("_", r"\_")
                arguments = ", ".join(names[p] for p in self.known_part.parameters)
                names[name] = rf"\mathrm{{{function}}}({arguments})"
        if self._mark:
            names[f"f{self._mark}"] = latex_symbol(f"f{self._mark}")

        def write(product):
            return latex_product(product, names)

        return self._write(write, latex_number, equals)

    def _repr_latex_(self):
        return f"$\\displaystyle {self.to_latex()}$"

    def _repr_html_(self):
        write = partial(html_product, states=self.states)
        lines = [f"<div><em>{self._write(write)}</em></div>"]
        if self.original is not None:
            lines.append(f"<div>{self._loss_of_fit()}</div>")
        return "\n".join(lines)

    def to_sympy(self):
        """The equation as a sympy object, solved for the known part.

        Returns
        -------
        equation : sympy.Eq
            In the states, functions such as u of the coordinates, and their
            derivatives, functions called as the inputs, f for a forcing, and, if P has
            no finite list of terms, a function P of its arguments or functions c0, c1,
            ... of the coordinates. Functions of a dictionary are symbols called as
            they are.
        """
        sympy = import_optional("sympy")
        table = self._sympy_table(sympy)

        def total(side):
            result = sympy.Integer(0)
            for value, product in side:
                factor = int(value) if abs(value) == 1 else sympy.Float(value)
                result += factor * sympy.prod(table[name] ** n for name, n in product)
            return result

        return sympy.Eq(*map(total, self._sides()), evaluate=False)

    def _sympy_table(self, sympy):
        """Expressions of all names that a product may have."""
        table = dict(zip(self.variables, sympy.symbols(self.variables), strict=True))
        symbols = list(table.values())
        for name in self.inputs:
            table[name] = sympy.Function(name)(*symbols)
        for operator in self.operators:
            expression = sympy_operator(operator, self.variables)
            table[operator.name] = table[as_factor(operator.name)] = expression
        for name in self._named_functions():
            table[name] = sympy.Symbol(name)  # a function that only its owner knows
        table[f"f{self._mark}"] = sympy.Function(f"f{self._mark}")(*symbols)
        for text, (function, arguments) in self._unknown_functions().items():
            table[text] = sympy.Function(function)(*(table[a] for a in arguments))
        for name in self.known_part.terms:
            if name not in table:  # a function of named features
                function, _, _ = name.partition("(")
                arguments = [table[p] for p in self.known_part.parameters]
                table[name] = sympy.Function(function)(*arguments)
        return table

    def _write(self, write, write_number=number, equals=" = "):
        sides = ([(v, write(product)) for v, product in side] for side in self._sides())
        return equals.join(join(side, write_number) for side in sides)

    def _named_functions(self):
        """Names of the functions of a dictionary."""
        kernel = self.equation_kernel
        return () if kernel is None else kernel.feature_names or ()

    def _sides(self):
        """Left- and right-hand side as lists of (coefficient, product)."""
        known = [(value, ((name, 1),)) for name, value in self.known_part.terms.items()]
        forcing = [(1.0, ((f"f{self._mark}", 1),))] if self.has_forcing else []
        terms = terms_of(self)
        if terms is None:
            products = self._coefficient_products()
            products = [()] if products is None else products
            pairs = zip(self._unknown_functions(), products, strict=True)
            unknown = [(1.0, ((function, 1), *product)) for function, product in pairs]
        else:
            values = terms.coefficients @ self.weights
            order = np.argsort(terms.sizes(self.weights))[::-1]
            unknown = [(float(values[i]), terms.products[i]) for i in order]
        if not known:
            return unknown, forcing
        return known, forcing + [(-value, product) for value, product in unknown]

    def _loss_of_fit(self):
        """How far the equation is from the original, in a phrase."""
        text = f"{100 * self.unexplained:.2g} % from the learned P"
        if self.loss_ratio == 1.0:  # as after a projection
            return text
        ratio = f"{self.loss_ratio:.3g}"
        loss = "the same loss" if ratio == "1" else f"{ratio} times the loss"
        return f"{text}, {loss}"

    def _unknown_names(self):
        return self.feature_names[: self.n_unknown_features]

    def _unknown_functions(self):
        """Functions that P consists of where it has no list of terms.

        P itself, or c0, c1, ... that multiply products of operators; each name as it is
        printed, with the letter and the names of the arguments.
        """
        if terms_of(self) is not None:
            return {}
        products, names = self._coefficient_products(), self._unknown_names()
        active = self.equation_kernel.depends_on(len(names))
        arguments, letters = [names[i] for i in np.flatnonzero(active)], ["P"]
        letters[0] += self._mark
        if products is not None:
            first = self._first_coefficient
            letters = [f"c{i}" for i in range(first, first + len(products))]
            is_factor = self._is_factor()
            arguments = [names[i] for i in np.flatnonzero(active & ~is_factor)]
        text = ", ".join(arguments)
        return {f"{letter}({text})": (letter, arguments) for letter in letters}
