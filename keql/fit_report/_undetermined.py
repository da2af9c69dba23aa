"""Equations that the data do not determine, or do not tell from others."""

from collections import Counter
from functools import partial, reduce
from operator import add, mul
from typing import NamedTuple

import numpy as np

from keql._numerics.linalg import rms
from keql.equation import number, terms_of, text_product
from keql.fit_report._report import ReportCriteria, multiple, percent
from keql.operators import parse_operator


def undetermined(learned, significant=3.0, in_two_steps=False):
    """Equations of a system that the data do not determine, each in a sentence.

    learned : LearnedModel. States and equations.
    significant : float. How many standard errors one of the coefficients of an equation
        is away from zero, at least, if the equation is determined.
    in_two_steps : bool. Whether it was learned from fitted states, of which its weights
        have the errors. Then one that is the only one is looked at, too.
    """
    if learned.setup is None or not (in_two_steps or learned.setup.is_system):
        return []
    seen = {s for L in learned.observations.operators for s in L.states}
    if seen < set(learned.observations.states):  # nothing tells the unit of the others
        return []
    sentences = {}
    for terms, equation in zip(learned.setup.equations, learned.equations, strict=True):
        if equation.posterior is None or terms_of(equation) is None:
            continue
        unit = 1.0 if in_two_steps else _unit_of_errors(learned, equation)
        largest = _largest_ratio(equation, unit)
        if largest < significant:
            name = f" {terms.name}" if learned.setup.is_system else ""
            sentences[terms.name] = (
                f"the equation{name} is not determined: none of its "
                f"coefficients is more than {largest:.1f} standard errors away from "
                "zero. Observe more, or with less noise, or ask for fewer terms"
            )
    return list(sentences.values())


def with_advice_once(sentences, advice="Observe more, or with less noise, or "):
    """Sentences of which only the first one that gives an `advice` gives it."""
    said, found = False, []
    for text in sentences:
        found.append(text.replace(advice, "Or ") if said else text)
        said = said or advice in text
    return found


def exhausted(fit, least=10, share=0.7):
    """Equations of a Fit that took all terms on offer, or most, each in a sentence.

    A sum of all products comes near to any smooth function. Only of at least so many
    terms does it say something. At collocation points, where an equation is met to its
    noise, the part `share` of them does: a quadratic polynomial with eight of ten terms
    was as good as an exponential function there.
    """
    sentences, learned = [], fit.learned
    for terms, equation, wide in zip(
        learned.setup.equations, learned.equations, fit.two_step.equations, strict=True
    ):
        is_open = fit.hypothesis.of_equation(terms.name).n_terms == "auto"
        if terms.depends_on is None or not is_open:
            continue
        own, all_ = (terms_of(each) for each in (equation, wide))
        if own is None or all_ is None:
            continue
        n_offered = len(all_.products)
        n_used = np.sum(own.coefficients @ equation.weights != 0)
        n_many = n_offered if fit.is_exact else share * n_offered
        if n_offered >= least and n_used >= n_many:
            name = f" {terms.name}" if learned.setup.is_system else ""
            sentences.append(
                f"the equation{name} has {n_used} of the {n_offered} terms that "
                "were tried, which together come near to many functions: it may be of "
                "another form. Try an equation_kernel of another form or a higher "
                "degree, or observe states that differ more"
            )
    return sentences


def travelling(learned, most, least=1e-3, n_rows=300):
    """A sentence if a state does not change in one direction of its coordinates.

    A travelling wave, u_t = -c u_x, solves many equations; so does a steady state. More
    than four coordinates are not those of time and space.

    learned : LearnedModel. States and equations.
    most : float. Root mean square of a combination of first derivatives, in units of
        the largest of its terms, up to which it counts as zero.
    least : float. Terms of a smaller part of the largest derivative count as zero.
    n_rows : int. Derivatives are compared at so many collocation points at most.
    """
    variables, states = learned.variables, learned.observations.states
    alone = len(learned.states) == len(states) == 1
    if not 2 <= len(variables) <= 4 or learned.setup is None or not alone:
        return []
    points = learned.setup.collocation_points[0]
    points = points[:: -(-len(points) // n_rows)]
    names = [f"{states[0]}_{variable}" for variable in variables]
    operators = [parse_operator(name, variables, states) for name in names]
    extent = np.ptp(points, axis=0)
    slopes = [learned.states[0].evaluate(points, L) for L in operators]
    slopes = np.column_stack(slopes) * extent
    direction = np.linalg.svd(slopes, full_matrices=False)[2][-1]
    sizes = np.sqrt(np.mean((slopes * direction) ** 2, axis=0))
    largest = np.sqrt(np.max(np.mean(slopes**2, axis=0)))
    rest, size = rms(slopes @ direction), max(np.max(sizes), least * largest)
    if not rest < most * size:
        return []
    direction = np.where(sizes < least * largest, 0.0, direction) * extent
    return [
        f"the state does not change in one direction, {_relation(names, direction)} "
        f"to {percent(rest, size)}, and many equations have such solutions: observe "
        "several waves, or other initial states"
    ]


def related(learned, most, conserved=0.0, named=0.05):
    """Relations of operators where states are, each in a sentence.

    Whatever times a combination of the operators that is zero on all states may be
    added to what an equation says of them. Linear relations of operators that an
    equation depends on, and constants, are told if it has one of them; without any,
    polynomials of degree two in several states, such as a circle.

    learned : LearnedModel. States and equations.
    most : float. Root mean square of a combination, of operators in units of their own
        size and coefficients of norm one, up to which it counts as zero.
    conserved : float. The same of products, of operators without their mean and in
        units of their standard deviation; 0: none are looked for.
    named : float. Operators of at least this part of the largest are named.

    Larger combinations count as zero, too, if they are small and within the errors of
    the states, as the ReportCriteria say.
    """
    criteria = ReportCriteria()

    def find(names, S, n_states, deviation):
        linear = _linear_relation([None, *names], S, max(most, criteria.related), named)
        if linear and linear.size > most:
            errors = criteria.signal * deviation(linear.factors[1:])
            linear = linear if linear.size < errors else None
        if linear:
            return [linear[:3]]
        return [r for r in _conserved(names, S, conserved) if n_states(r[1]) > 1]

    return [
        f"{text} where states are, so that any multiple of this may be added to the "
        f"equation {names}: observe other states, or let it depend on fewer operators"
        for text, names in _relations(learned, find)
    ]


def energies(learned, most):
    """Conserved energies of single states, each in a sentence: no doubts, but limits.

    Every oscillator without friction has one, of which an orbit shows a single value.
    The arguments are those of :func:`related`, `most` the conserved one.
    """

    def find(names, S, n_states, _):
        return [r for r in _conserved(names, S, most) if n_states(r[1]) == 1]

    return [
        f"{text} where states are, a conserved energy: of terms with a multiple of "
        f"this in the equation {names} nothing is known. Observe another energy to "
        "exclude them"
        for text, names in _relations(learned, find)
    ]


def _relations(learned, find):
    """What is found among the operators of each equation that has one of them.

    find : callable. Of names of operators, their values (n, q), a function that counts
        the states in a set of names, and one of factors (q,), which returns the
        standard deviation of the combination: a list of (text, names, size).

    Returns relations : list of (str, str). What holds to which part, and the equations.
    """
    setup, sentences = learned.setup, {}
    if setup is None:
        return []
    columns = setup.unknown_names(learned.variables)
    first = len(columns) - setup.n_operators
    states = {
        name: operator.states
        for name, operator in zip(columns[first:], setup.operators, strict=False)
    }

    def n_states(names):
        return len({state for name in names for state in states[name]})

    for e, (part, equation) in enumerate(
        zip(setup.equations, learned.equations, strict=True)
    ):
        if not part.depends_on:
            continue
        own = [first + q for q in part.depends_on]
        S, names = equation.training_features[:, own], [columns[i] for i in own]
        deviation = partial(_deviation, learned, e)
        for text, members, size in find(names, S, n_states, deviation):
            if members & _operators_in(equation, columns):
                text = f"{text} to {percent(size, 1.0)}"
                sentences.setdefault(text, []).append(part.name)
    return [(text, " or ".join(names)) for text, names in sentences.items()]


def _deviation(learned, e, factors):
    """Standard deviation of operators of equation `e`, times factors, at its points."""
    operators = [
        learned.setup.operators[q] for q in learned.setup.equations[e].depends_on
    ]
    combined = reduce(add, map(mul, factors, operators))
    criteria = ReportCriteria()
    places = learned.setup.some_rows(e, criteria.n_rows, criteria.n_functions)
    found = [learned.states[m].variance(points, combined) for m, _, points in places]
    return float(np.mean(np.concatenate(found)) ** 0.5)


class _LinearRelation(NamedTuple):
    """A combination of columns that is zero, or nearly.

    A `text`, the names of its `members`, the root mean square `size` of what is not
    zero, and the `factors` of all columns, by which they are multiplied in it.
    """

    text: str
    members: set
    size: float
    factors: np.ndarray


def _linear_relation(names, S, most, named):
    """What columns S (n, q) and a constant, named None, have in common; or None."""
    values = np.column_stack([np.ones(len(S)), S])
    sizes = np.sqrt(np.mean(values**2, axis=0))
    used = np.flatnonzero(sizes > 0)
    if len(S) < len(used):
        return None
    scaled = values[:, used] / sizes[used] / len(S) ** 0.5
    _, found, combinations = np.linalg.svd(scaled, full_matrices=False)
    if len(used) < 2 or not found[-1] <= most:
        return None
    parts = np.abs(combinations[-1])
    members = np.flatnonzero(parts >= max(named, found[-1]) * np.max(parts))
    factors = combinations[-1] / sizes[used]
    own = [names[i] for i in used]
    text = _solved_for_last(own, factors, members)
    every = np.zeros(len(sizes))
    every[used] = factors
    return _LinearRelation(text, {own[i] for i in members}, float(found[-1]), every)


def _solved_for_last(names, factors, members):
    """A combination of the named members that is zero, solved for the last of them.

    The constant, named None, comes at the end.
    """
    *others, last = members
    right = ""
    for i in [*(i for i in others if names[i]), *(i for i in others if not names[i])]:
        factor = -factors[i] / factors[last]
        sign = " - " if factor < 0 else " + "
        right += sign + number(abs(factor)) + (f" {names[i]}" if names[i] else "")
    right = right.removeprefix(" + ").replace(" - ", "-", right.startswith(" - "))
    return f"{names[last]} = {right or '0'}"


def _conserved(names, S, most, named=1e-4):
    """Polynomials of degree two in named columns S (n, q) that are zero, if any.

    Whether there are some is said by the columns without their mean: the powers of
    values that vary little are nearly equal. Each is solved for another product.

    Returns found : list of (str, set, float). As of a linear relation; products of at
        least the part `named` of the largest are in the text.
    """
    first, second = np.triu_indices(S.shape[1])
    spread = np.std(S, axis=0)
    too_few = len(S) <= len(first) + len(spread)
    if not most or too_few or not np.all(spread > 0):
        return []
    centred = _products((S - np.mean(S, axis=0)) / spread)[0]
    small = np.linalg.svd(centred, compute_uv=False)
    n_found = np.sum(small <= most)
    if not n_found:
        return []
    scaled, sizes = _products(S)
    free = np.linalg.svd(scaled, full_matrices=False)[2][-n_found:]
    quadratic = np.arange(1 + len(spread), len(sizes))
    solved = []
    for row in range(n_found):  # as in Gaussian elimination, each for a late product
        largest = np.linalg.norm(free[row:, quadratic], axis=0)
        solved.append(quadratic[largest >= 0.3 * np.max(largest)][-1])
        pivot = row + np.argmax(np.abs(free[row:, solved[-1]]))
        free[[row, pivot]] = free[[pivot, row]]
        free[row] /= free[row, solved[-1]]
        others = np.arange(n_found) != row
        free[others] -= np.outer(free[others, solved[-1]], free[row])
    pairs = [(names[i], names[j]) for i, j in zip(first, second, strict=True)]
    own = [(), *((name,) for name in names), *pairs]
    texts = [text_product(Counter(each).items()) if each else None for each in own]
    found = []
    for row, last in zip(free, solved, strict=True):
        is_named = np.abs(row) >= named * np.max(np.abs(row))
        members = [*(i for i in np.flatnonzero(is_named) if i != last), last]
        text = _solved_for_last(texts, row / sizes, members)
        found.append((text, {n for i in members for n in own[i]}, float(small[-1])))
    return found


def _products(S):
    """Products of up to two columns of S (n, q), of unit norm, and their sizes."""
    first, second = np.triu_indices(S.shape[1])
    values = np.column_stack([np.ones(len(S)), S, S[:, first] * S[:, second]])
    sizes = np.sqrt(np.mean(values**2, axis=0))
    return values / sizes / len(S) ** 0.5, sizes


def _operators_in(equation, columns):
    """The operators in the terms of an equation, None in a constant one; or all."""
    terms = terms_of(equation)
    if terms is None or terms.exponents is None:
        return {None, *columns}
    kept = terms.exponents[(terms.coefficients @ equation.weights) != 0]
    found = {columns[i] for i in np.flatnonzero(np.any(kept, axis=0))}
    return found | ({None} if np.any(~np.any(kept, axis=1)) else set())


def not_exact(is_missed, better_without):
    """Sentences on fields that do not obey the equation, or are better without it.

    is_missed : bool. Whether states could obey it exactly and do not.
    better_without : float. By how much observations are more probable, given all
        others, without the equation; 0 if they are not.
    """
    sentences = []
    if is_missed:
        sentences.append(
            "states that obey the equations exactly were not found, or predict worse, "
            "and terms were chosen with equations that hold at collocation points "
            "only: they may be others. Observe more, or with less noise, or ask for "
            "fewer terms"
        )
    if better_without:
        sentences.append(
            "observations are predicted better without the equation: given all others "
            f"they are {better_without:.2f} times as probable in the mean. Terms of "
            "the equation are not among those that were tried. Try more operators, or "
            "an equation_kernel of another form"
        )
    return sentences


def missed(factor, error=0.0):
    """A sentence if observations or equations are missed by more than noise allows.

    factor : float. How many times what it allows; 0 if it is not more.
    error : float. By what part of their size exact states miss observations: these
        alone can be missed, and the noise that they show beside each other may be less
        than the errors of measurement. 0 of states that are not exact.
    """
    if not factor:
        return []
    times = f"{multiple(factor)} times what" if factor > 1.5 else "more than"
    what = f"observations and equations are missed by {times} their noise allows"
    why, advice = "", ""
    if error:
        what = (
            f"observations are missed by {percent(error, 1.0)} of their size, {times} "
            "neighbouring ones show of their noise"
        )
        why = ", or errors of measurement are larger than they seem"
        advice = "; or give observation_noise, which is believed"
    return [
        f"{what}: terms of an equation are not among those that were tried{why}. Try "
        f"more operators, or an equation_kernel of another form{advice}"
    ]


def coarse(error):
    """A sentence if observations are predicted from one another with a large error.

    error : float. In units of their size; 0 if it is small.
    """
    if not error:
        return []
    return [
        "observations are met, but each is predicted from all others and the equation "
        f"with an error of {percent(error, 1.0)} of their size, far above the noise: "
        "states between them are not known better. Observe more"
    ]


def unresolved(grid, change):
    """A sentence if exact states change by more than noise on a finer grid.

    grid : str. How finely they are integrated.
    change : float. Of observed states on a finer grid, in units of the noise; 0 if that
        is little.
    """
    if not change:
        return []
    return [
        f"states are not resolved: with {grid} they differ by {change:.2g} times the "
        "noise from those on a finer grid, and the terms may make up for that. Observe "
        "more, or ask for fewer terms"
    ]


def _relation(names, direction):
    """The first derivatives whose combination is zero, as an equation."""
    if not np.any(direction):
        return f"{names[0]} = 0"
    first, *others = np.flatnonzero(direction)
    right = [f"{number(-direction[i] / direction[first])} {names[i]}" for i in others]
    return f"{names[first]} = {' + '.join(right) or '0'}"


def _unit_of_errors(learned, equation):
    """By what factor noise levels of a joint fit, and errors with them, are too small.

    The loss of a fit in its own units is half of the number of observations.
    """
    n_observed = sum(len(data.values) for data in learned.observations.functions)
    return max(1.0, 2 * equation.posterior.loss / n_observed) ** 0.5


def _largest_ratio(equation, unit):
    """The largest of the coefficients of an equation, in a unit times their errors."""
    # Features that are nearly zero everywhere have coefficients of any size.
    with np.errstate(over="ignore"):
        values, errors = equation.terms(return_std=True)
    ratios = [abs(v) / (unit * errors[name]) for name, v in values.items()]
    return max(ratios, default=np.inf)


def unexplained(residuals, most):
    """Equations of which a part is not explained, each in a sentence.

    residuals : dict of str to Residual. Those of equations are named so.
    most : float. The largest part of the size of its terms by which one may be missed.
    """
    sentences = []
    for name, residual in residuals.items():
        if name.startswith("equation") and residual.rms > most * residual.size:
            part = percent(residual.rms, residual.size)
            sentences.append(
                f"the {name} leaves {part} of its terms unexplained: operators or "
                "terms are missing, or derivatives are poorly known. Try more "
                "operators, or an equation_kernel of a higher degree or another form"
            )
    return sentences
