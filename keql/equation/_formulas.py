"""Equations as text, LaTeX, HTML and sympy objects.

A table of names says how each format writes the features in a product.
"""

import importlib
from functools import partial
from typing import Any

import numpy as np

from keql._numerics.elementary import Elementary
from keql.equation._monomials import terms_of, text_product
from keql.equation._notation import (
    Notation,
    html_product,
    html_unit,
    join,
    latex_number,
    latex_operator,
    latex_product,
    latex_symbol,
    latex_text,
    latex_unit,
    number,
    number_with_error,
    text_derivative,
)
from keql.operators import as_factor


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


class PrintableEquation:
    """The formula of an equation, in several languages."""

    # Whether the data do not tell the equation from others: set when it is fitted.
    in_doubt = False
    # In a system P and f have the number of their equation, and c0, c1, ... go on.
    _mark = ""
    _first_coefficient = 0
    # Units of coordinates, states and inputs, if they were given: set as well.
    units: Any = None
    # Of the equation that this is the formula of.
    variables: tuple
    operators: list
    known_part: Any
    has_forcing: bool

    def __str__(self) -> str:
        """Solved for the known part: "u_t = 0.500 u u_x + 0.0100 u_xx"."""
        if self.units is None:
            return self._write(Notation(text_product))
        return self.to_text()

    def to_text(self) -> str:
        """The equation as text, with standard errors.

        Returns
        -------
        text : str
            Such as "u_t = 0.500(2) u u_x + 0.0100(3) u_xx": the errors are in the last
            digits of the coefficients. With units as it is printed.
        """
        names = {}
        for operator in self.operators if self.units is not None else ():
            written = text_derivative(operator, self.variables)
            names[operator.name] = names[as_factor(operator.name)] = written
        product = partial(text_product, names=names)
        return self._write(Notation(product, unit=" {}".format), errors=True)

    def __repr__(self):
        remarks = [self._loss_of_fit()] if self.original is not None else []
        remarks += ["in doubt, see fit_report_"] if self.in_doubt else []
        text = f" ({'; '.join(remarks)})" if remarks else ""
        return f"<LearnedEquation {self}{text}>"

    def to_latex(self) -> str:
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
        for factor, function in self._elementary_functions().items():
            names[factor] = function.latex(names)
        for name in self.known_part.terms:
            if name not in names:  # a function of named features
                function = name.partition("(")[0].replace("_", r"\_")
                arguments = ", ".join(names[p] for p in self.known_part.parameters)
                names[name] = rf"\mathrm{{{function}}}({arguments})"
        if self._mark:
            names[f"f{self._mark}"] = latex_symbol(f"f{self._mark}")

        def write(product):
            return latex_product(product, names)

        return self._write(Notation(write, latex_number, latex_unit), equals)

    def _repr_latex_(self):
        return f"$\\displaystyle {self.to_latex()}$"

    def _repr_html_(self):
        write = partial(html_product, states=self.states)
        lines = [f"<div><em>{self._write(Notation(write, unit=html_unit))}</em></div>"]
        if self.original is not None:
            lines.append(f"<div>{self._loss_of_fit()}</div>")
        return "\n".join(lines)

    def to_sympy(self) -> Any:
        """The equation as a sympy object, solved for the known part.

        Returns
        -------
        equation : sympy.Eq
            In the states, functions such as u of the coordinates, and their
            derivatives, functions called as the inputs, f for a forcing, and, if P has
            no finite list of terms, a function P of its arguments or functions c0, c1,
            ... of the coordinates. Functions of a dictionary are symbols called as
            they are, but for elementary ones.
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
        for factor, function in self._elementary_functions().items():
            table[factor] = function.sympy(sympy, table)
        table[f"f{self._mark}"] = sympy.Function(f"f{self._mark}")(*symbols)
        for text, (function, arguments) in self._unknown_functions().items():
            table[text] = sympy.Function(function)(*(table[a] for a in arguments))
        for name in self.known_part.terms:
            if name not in table:  # a function of named features
                function, _, _ = name.partition("(")
                arguments = [table[p] for p in self.known_part.parameters]
                table[name] = sympy.Function(function)(*arguments)
        return table

    def _write(self, notation, equals=" = ", errors=False):
        """Both sides; coefficients have standard errors if asked, and with units."""
        errors = errors or self.units is not None
        measured = self._measured_coefficients() if errors else {}
        sides = self._sides()
        written = []
        for position, side in enumerate(sides):
            is_unknown = position == (1 if self.known_part.terms else 0)
            terms = []
            for value, product in side:
                term = value, notation.product(product)
                if is_unknown and product in measured:
                    error, unit = measured[product]
                    size = notation.number(number_with_error(abs(value), error))
                    term += (size + notation.unit(unit) if unit else size,)
                terms.append(term)
            written.append(join(terms, lambda v: notation.number(number(v))))
        return equals.join(written)

    def _measured_coefficients(self):
        """Standard error and unit of the coefficient of each product of P.

        An error is NaN where none is known, a unit that of a pure number.
        """
        terms = terms_of(self)
        if terms is None or not terms.products:
            return {}
        errors = np.full(len(terms.products), np.nan)
        if self.posterior is not None:
            errors = self.posterior.std(terms.coefficients)
        units = [self._unit_of_coefficient(product) for product in terms.products]
        pairs = zip(map(float, errors), units, strict=True)
        return dict(zip(terms.products, pairs, strict=True))

    @property
    def _sign(self):
        """That of P where the equation is printed: -1 on the side of f, else 1."""
        return -1.0 if self.known_part.terms else 1.0

    @property
    def unit(self) -> Any:
        """Unit of both sides: of the forcing f if it is given, or of the known part.

        With coefficients of its own that has the unit of its first operator. None if
        it is a function, and without units.
        """
        if self.units is None:
            return None
        if self.has_forcing and "f" in self.units.given:
            return self.units.of("f")
        if not hasattr(self.known_part, "coefficients") or not self.known_part.terms:
            return None
        return self.units.of_operator(self.known_part.operators[0], self.variables)

    def _unit_of_coefficient(self, product):
        """Unit of what multiplies a product of features, pairs (name, power).

        None if it is unknown: that of the equation is, or that of a factor.
        """
        unit = self.unit
        if unit is None:
            return None
        functions = self._elementary_functions()
        for name, power in product:
            if name in functions:
                factor = self._unit_of_function(functions[name])
            else:
                factor = self._unit_of_feature(name)
            unit = None if unit is None or factor is None else unit / factor**power
        return unit

    def _unit_of_feature(self, name):
        """Unit of an operator, a coordinate or an input, by its name as a factor.

        None if it is none of these, or if a sum of different units.
        """
        if name in (*self.variables, *self.inputs):
            return self.units.of(name)
        operators = {as_factor(L.name): L for L in self.operators}
        if name not in operators:
            return None
        return self.units.of_operator(operators[name], self.variables)

    def _unit_of_function(self, function):
        """Unit of an elementary function as it is written in a term, or None.

        None if that of what it is a function of is not known, or its power no ratio of
        small numbers.
        """
        first, *others = (self._unit_of_feature(n) for n in function.arguments)
        if first is None or function.degree is None or any(u != first for u in others):
            return None
        unit = first ** (function.degree * (2 if function.squares else 1))
        factors = [(name, 1) for name in function.flux[1:]]
        if function.factor.startswith("/"):  # it is written with its powers
            factors += function.powers
        for name, power in factors:
            own = self._unit_of_feature(name)
            unit = None if unit is None or own is None else unit * own**power
        return unit

    def _named_functions(self):
        """Names of the functions of a dictionary that only their owner knows."""
        functions = getattr(self.equation_kernel, "functions", {})
        return [n for n, f in functions.items() if not isinstance(f, Elementary)]

    def _elementary_functions(self):
        """Elementary functions of a dictionary by the last factors of their terms."""
        functions = getattr(self.equation_kernel, "functions", {}).values()
        own = [f for f in functions if isinstance(f, Elementary) and f.family]
        return {function.product[-1][0]: function for function in own}

    def _sides(self):
        """Left- and right-hand side as lists of (coefficient, product)."""
        known = [(value, ((name, 1),)) for name, value in self.known_part.terms.items()]
        forcing = [(1.0, ((f"f{self._mark}", 1),))] if self.has_forcing else []
        terms = terms_of(self)
        if terms is not None:
            values = self._sign * terms.coefficients @ self.weights
            order = np.argsort(terms.sizes(self.weights))[::-1]
            unknown = [(float(values[i]), terms.products[i]) for i in order]
        else:
            products, sign = self._coefficient_products(), 1.0
            if (
                products is None
            ):  # P itself, of which coefficients have the sign printed
                products, sign = [()], self._sign
            pairs = zip(self._unknown_functions(), products, strict=True)
            unknown = [(sign, ((function, 1), *product)) for function, product in pairs]
        return (known, forcing + unknown) if known else (unknown, forcing)

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
