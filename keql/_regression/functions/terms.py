"""Terms of equations with elementary functions: their kinds, and what they say."""

from dataclasses import dataclass, replace

import numpy as np

from keql._numerics.elementary import Elementary


@dataclass(frozen=True)
class Term:
    """A function in the equation at position `equation`, with what it came from.

    origin : int. Position in the table of the function with which it began.
    """

    equation: int
    function: Elementary
    origin: int


@dataclass(frozen=True)
class Refined:
    """Terms solved for, with their parameters.

    terms : tuple of Term. With the parameters found.
    values : ndarray. Their weights, in units of the scales.
    iterate : TrajectoryIterate. Equations and nodes.
    model : TrajectoryModel. Linearised there, the parameters free.
    score : float. Log evidence with the prior odds of the terms.
    error : float. Root mean square of the errors of predicting observations.
    """

    terms: tuple
    values: np.ndarray
    iterate: object
    model: object
    score: float
    error: float

    @property
    def has_functions(self):
        """Whether some of the terms are no products."""
        return any(term.function.family for term in self.terms)


def falls_short(score, before, least, n_left):
    """Whether steps will not raise the log evidence to the least that is wanted.

    Of a right set errors fall quadratically: their logarithm, and with it the
    evidence, gains twice as much in each step as in the last one. What does not suffice
    even then, in the steps that are left, is given up.
    """
    rise = max(score - before, 0.0)
    return score + rise * (2.0 ** (1 + max(n_left, 0)) - 2) < least


def kind_of(term):
    """What terms have in common that differ in their inner parameters."""
    own = term.function
    parameter = own.parameter if own.is_held else 1.0
    shape = own.family, own.arguments, own.powers, own.flux, own.slope, own.is_held
    return term.equation, parameter, *shape


def n_extensions(terms):
    """How many of two kinds of terms there are beside products of few operators.

    High powers are one, and all other functions are the other: both together are less
    probable before data are seen, as 5 u - 6 sin(u) - u^5/4 is instead of u^3.
    """
    return len({t.function.is_whole_power for t in terms if t.function.family})


def moved(term, by):
    """A term whose inner parameter is multiplied by a number."""
    if not term.function.is_free:
        return term
    function = term.function.with_parameter(term.function.parameter * by)
    return replace(term, function=function)


def with_slopes(terms, values, n_equations):
    """Weights of the functions of each equation, then zero for their slopes."""
    weights = []
    for e in range(n_equations):
        own = [v for t, v in zip(terms, values, strict=True) if t.equation == e]
        n = sum(1 for t in terms if t.equation == e and t.function.is_free)
        weights.append(np.r_[own, np.zeros(n)])
    return weights


def without_slopes(terms, weights):
    """Weights of sorted terms, and the changes of the logarithms of their parameters.

    `weights` are those of the functions of each equation, then of their slopes.
    """
    values, moves, start = [], [], 0
    for e in sorted({t.equation for t in terms}):
        own = [t for t in terms if t.equation == e]
        inner = [i for i, t in enumerate(own) if t.function.is_free]
        a = weights[start : start + len(own)]
        b = weights[start + len(own) : start + len(own) + len(inner)]
        start += len(own) + len(inner)
        own_moves = np.zeros(len(own))
        for i, slope in zip(inner, b, strict=True):
            own_moves[i] = slope / a[i] if a[i] else 0.0
        values.append(a)
        moves.append(own_moves)
    return np.concatenate(values), np.concatenate(moves)


def simplified(term, tol=1e-5):
    """A term whose function is a whole power, up to `tol`, as a product.

    An even power of a size is one, too.
    """
    function, power = term.function, round(term.function.parameter)
    is_whole = abs(function.parameter - power) < tol and power > 0
    is_power = function.family == "power" or (function.family, power % 2) == ("abs", 0)
    if not (is_power and is_whole) or function.flux or function.origin:
        return term
    powers = dict(function.powers)
    powers[function.argument] = powers.get(function.argument, 0) + power
    return replace(term, function=Elementary(tuple(powers.items())))


def form_of(term):
    """The same of those that may have natural parameters, too."""
    if not term.function.is_natural:
        return kind_of(term)
    return kind_of(replace(term, function=replace(term.function, is_held=False)))


def says_the_same(refined, other, significant=2.0):
    """Whether terms are others with more, or with other inner parameters.

    Where these are natural in one of two sets, and differ by so many standard errors
    of the other one, they are another hypothesis.
    """
    own, fewer = ({form_of(t): t for t in each.terms} for each in (refined, other))
    if not {*fewer} <= {*own}:
        return False
    if len(own) > len(fewer):
        return True
    errors = {}
    for each in (refined, other):
        found = parameter_errors(each)
        errors |= {each.terms[i]: error for i, error in found.items()}
    for form, term in fewer.items():
        pair = term.function, own[form].function
        if pair[0].is_natural or pair[1].is_natural:
            a, b = (f.parameter for f in pair)
            error = max(errors.get(t, 0.0) for t in (term, own[form]))
            if a != b and not abs(a / b - 1) < significant * error:
                return False
    return True


def parameter_errors(refined):
    """Standard errors of the logarithms of inner parameters, by position of terms."""
    model, errors, start = refined.model, {}, 0
    stds = model.posterior_weights().std(np.eye(len(model.regression.weights)))
    for e in sorted({t.equation for t in refined.terms}):
        own = [i for i, t in enumerate(refined.terms) if t.equation == e]
        inner = [i for i in own if refined.terms[i].function.is_free]
        start += len(own)
        for i, error in zip(inner, stds[start : start + len(inner)], strict=True):
            errors[i] = error / max(abs(refined.values[i]), np.finfo(float).tiny)
        start += len(inner)
    return errors


def with_digits(refined):
    """Terms whose inner parameters are written to the digits that they are known to."""
    errors, terms = parameter_errors(refined), []
    order = sorted(range(len(refined.terms)), key=lambda i: refined.terms[i].equation)
    for i in order:
        term, digits = refined.terms[i], 3
        if term.function.is_natural:
            digits = 4
        if i in errors:
            digits = int(np.clip(1 - np.floor(np.log10(errors[i])), 2, 4))
        function = replace(term.function, digits=digits)
        terms.append(simplified(replace(term, function=function)))
    return terms


def are_in_products(refined, degree, significant=2.0):
    """Whether a diffusion has a power, up to its error, that is a sum of products.

    (u u_x)_x is u u_xx + u_x^2. As a rival of these it is no other equation.

    degree : int. The highest of the products.
    significant : float. Standard errors up to which the power may be a whole one.
    """
    errors = parameter_errors(refined)
    for i, error in errors.items():
        function = refined.terms[i].function
        if not (function.flux and function.family == "power"):
            continue
        power, whole = function.parameter, round(function.parameter)
        # Errors of terms that have no effect are as large as numbers can be.
        if 0 < whole < degree and abs(1 - whole / power) / significant < error:
            return True
    return False
