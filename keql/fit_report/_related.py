"""Values of operators and inputs that leave it open which equation is the true one."""

from collections import Counter
from functools import reduce
from operator import add, mul
from typing import NamedTuple

import numpy as np

from keql.equation import number, terms_of, text_product
from keql.fit_report._report import ReportCriteria, percent


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

    def find(names, S, is_energy, e):
        columns = [None, *names]
        linear = _linear_relations(columns, S, most, named)
        if not linear:
            for each in _linear_relations(columns, S, criteria.related, named, 1):
                errors = criteria.signal * _deviation(learned, e, each.factors[1:])
                linear += [each] if each.size < errors else []
        if linear:
            return linear
        return [r for r in _conserved(names, S, conserved) if not is_energy(r)]

    return _may_be_added(_relations(learned, find))


def related_in_two_steps(two_step, learned, named=0.05):
    """Relations of operators where states of two steps are, each in a sentence.

    What data tell of high derivatives is seen before an equation says anything: exact
    states have those that boundary values give them, of which little may be known.
    Relations that exact states contradict are none.

    two_step : LearnedModel. States that were found without the equations, or None.
    learned : LearnedModel. The states of the fit and its equations, which have to have
        one of the operators.
    named : float. As of :func:`related`.
    """
    criteria = ReportCriteria()
    if two_step.states is None:
        return []

    def find(names, S, is_energy, e):
        columns, most = [None, *names], criteria.loosely_related
        return [
            relation
            for relation in _linear_relations(columns, S, most, named, 1)
            if all(
                _in_errors(model, e, relation.factors) < criteria.signal
                for model in (two_step, learned)
            )
        ]

    return _may_be_added(_relations(two_step, find, learned.equations))


def _may_be_added(relations):
    """Linear relations, and the equations that they leave open, in sentences."""
    return [
        f"{text} where states are, so that any multiple of this may be added to the "
        f"equation {names}: observe other states, or let it depend on fewer operators"
        for text, names in relations
    ]


def saturated(learned):
    """Equations with as many powers of an input as it has values, each in a sentence.

    On k values any function is a polynomial of degree k - 1. That of two values is a
    straight line, which is what is meant by an input of two values.
    """
    sentences, inputs = [], learned.setup.inputs.names
    for terms, equation in zip(learned.setup.equations, learned.equations, strict=True):
        own = terms_of(equation) if inputs and terms.depends_on else None
        if own is None or own.exponents is None:
            continue
        kept = own.exponents[(own.coefficients @ equation.weights) != 0]
        for i, name in enumerate(inputs, start=len(learned.variables)):
            n_values = len(np.unique(equation.training_features[:, i]))
            power = np.max(kept[:, i], initial=0)
            if 1 < power >= n_values - 1:
                sentences.append(
                    f"the input {name} has {n_values} values, and the equation "
                    f"{terms.name} its power {power}: on these values any function is "
                    "a sum of such powers. Observe functions with other values of it"
                )
    return sentences


def known_up_to_constants(hypothesis, learned):
    """States of which only derivatives were observed, each in a sentence.

    A constant that is added to such a state makes of a polynomial another one of the
    degree that it had. Told are states that an equation depends on whose kernel the
    Hypothesis leaves open.
    """
    sentences = []
    observed = learned.observations.operators
    for state in learned.observations.states:
        own = [L for L in observed if state in L.states]
        if not own or any(_has_values(L, state) for L in own):
            continue
        names = _open_equations_with(state, hypothesis, learned.setup)
        if names:
            sentences.append(
                f"only derivatives of {state} were observed: with any constant added "
                f"to it another equation {' or '.join(names)} explains these as well. "
                f"Observe a value of {state}, or give an equation_kernel"
            )
    return sentences


def followed_too_rarely(hypothesis, learned):
    """States with fewer values than fix them, each in a sentence.

    With a state b also alpha b + beta + gamma a, of another state a, obeys equations
    whose polynomials have the degrees that they had: of such states values tell one
    from another if they are more than there are states. Told are states that were not
    followed while others were, and which an equation depends on whose kernel the
    Hypothesis leaves open. States without any value are no surprise: the report tells
    what their data do not determine.
    """
    sentences, observations = [], learned.observations
    for state in observations.hidden_states:
        samples = observations.of_state(state)
        n_values = sum(len(sample.values) for sample in samples)
        names = _open_equations_with(state, hypothesis, learned.setup)
        if names and 0 < n_values <= len(observations.states):
            others = [name for name in observations.states if name != state]
            sentences.append(
                f"{n_values} value{'s' * (n_values > 1)} of {state} may be those of "
                f"any multiple of it with a constant or {' or '.join(others)} added, "
                f"for which {' and '.join(names)} are other equations: there may be "
                f"others with as few terms. Observe {state} more often, or give an "
                "equation_kernel with its terms"
            )
    return sentences


def _open_equations_with(state, hypothesis, setup):
    """Names of the equations without a given kernel that depend on a state's values."""
    return [
        terms.name
        for terms in setup.equations
        if hypothesis.of_equation(terms.name).equation_kernel is None
        and any(_has_values(setup.operators[q], state) for q in terms.depends_on or ())
    ]


def _has_values(operator, state):
    """Whether an operator has the values of a state among its terms."""
    return any(s == state and not any(orders) for s, orders, _ in operator.parts)


def energies(learned, most):
    """Conserved energies of single states, each in a sentence: no doubts, but limits.

    Every oscillator without friction has one, of which an orbit shows a single value:
    it has the square of the highest derivative. Without that a relation is an equation
    of lower order.

    The arguments are those of :func:`related`, `most` the conserved one.
    """

    def find(names, S, is_energy, _):
        return [r for r in _conserved(names, S, most) if is_energy(r)]

    return [
        f"{text} where states are, a conserved energy: of terms with a multiple of "
        f"this in the equation {names} nothing is known. Observe another energy to "
        "exclude them"
        for text, names in _relations(learned, find)
    ]


def _relations(learned, find, equations=None):
    """What is found among the operators of each equation that has one of them.

    learned : LearnedModel. States, and the features that they have.
    find : callable. Of names of operators, their values (n, q), a function that says
        whether a relation is a conserved energy, and the position of the equation: a
        list of relations with a text, the names of their members and a size.
    equations : list of LearnedEquation, default=None. Which have to have one of the
        operators; None: those of `learned`.

    Returns relations : list of (str, str). What holds to which part, and the equations.
    """
    setup, sentences = learned.setup, {}
    if setup is None:
        return []
    columns = setup.unknown_names(learned.variables)
    first = len(columns) - setup.n_operators
    operators = dict(zip(columns[first:], setup.operators, strict=False))

    def is_energy(relation):
        states = {s for name in relation.members for s in operators[name].states}
        highest = max(relation.members, key=lambda name: operators[name].order)
        return len(states) == 1 and highest in relation.squared

    equations = learned.equations if equations is None else equations
    for e, (part, equation) in enumerate(zip(setup.equations, equations, strict=True)):
        if not part.depends_on:
            continue
        own = [first + q for q in part.depends_on]
        S = learned.equations[e].training_features[:, own]
        names = [columns[i] for i in own]
        for relation in find(names, S, is_energy, e):
            if relation.members & _operators_in(equation, columns):
                text = f"{relation.text} to {percent(relation.size, 1.0)}"
                sentences.setdefault(text, []).append(part.name)
    return [(text, " or ".join(names)) for text, names in sentences.items()]


def _deviation(learned, e, factors):
    """Standard deviation of operators of equation `e`, times factors, at its points."""
    variances = [own for own, _ in _combined(learned, e, factors)]
    return float(np.mean(np.concatenate(variances)) ** 0.5)


def _in_errors(learned, e, factors):
    """A combination of operators in standard deviations of it, the median of sizes.

    At points of equation `e`; the first of the factors is that of a constant. At the
    border derivatives may be off by many times what is known of them inside.
    """
    setup, ratios = learned.setup, []
    first = len(setup.unknown_names(learned.variables)) - setup.n_operators
    columns = [first + q for q in setup.equations[e].depends_on]
    S = learned.equations[e].training_features[:, columns]
    for variances, rows in _combined(learned, e, factors[1:]):
        errors = np.maximum(np.sqrt(variances), ReportCriteria().rounding)
        ratios.append(np.abs(factors[0] + S[rows] @ factors[1:]) / errors)
    return float(np.median(np.concatenate(ratios)))


def _combined(learned, e, factors):
    """Variances of operators of equation `e`, times factors, and the rows they are of.

    Of some functions, each a pair.
    """
    operators = [
        learned.setup.operators[q] for q in learned.setup.equations[e].depends_on
    ]
    combined = reduce(add, map(mul, factors, operators))
    criteria = ReportCriteria()
    return [
        (learned.states[m].variance(points, combined), rows)
        for m, rows, points in learned.setup.some_rows(
            e, criteria.n_rows, criteria.n_functions
        )
    ]


class _LinearRelation(NamedTuple):
    """A combination of columns that is zero, or nearly.

    A `text`, the names of its `members` and of the `last`, for which it is solved, the
    root mean square `size` of what is not zero, and the `factors` of all columns, by
    which they are multiplied in it.
    """

    text: str
    members: set
    last: str
    size: float
    factors: np.ndarray


class _Conserved(NamedTuple):
    """A polynomial of degree two that is zero.

    A `text`, the names of its `members`, the root mean square `size` of what is not
    zero, and the names of the members that are `squared` in it.
    """

    text: str
    members: set
    size: float
    squared: set


def _linear_relations(names, S, most, named, n_most=None):
    """What columns S (n, q) and a constant, named None, have in common, if anything.

    Several combinations that are zero are each solved for a column that is in no other;
    at most `n_most` of the smallest are told.
    """
    values = np.column_stack([np.ones(len(S)), S])
    sizes = np.sqrt(np.mean(values**2, axis=0))
    used = np.flatnonzero(sizes > 0)
    if len(S) < len(used) or len(used) < 2:
        return []
    scaled = values[:, used] / sizes[used] / len(S) ** 0.5
    _, small, combinations = np.linalg.svd(scaled, full_matrices=False)
    n_found = int(np.sum(small <= most))
    n_found = n_found if n_most is None else min(n_found, n_most)
    start = len(used) - n_found
    rows, left, solved = combinations[start:], small[start:], [None] * n_found
    if n_found > 1:
        rows, solved = _reduced(rows, np.arange(1, len(used)))
        left = np.linalg.norm(scaled @ rows.T, axis=0) / np.linalg.norm(rows, axis=1)
    own, found = [names[i] for i in used], []
    for row, size, last in zip(rows, left.tolist(), solved, strict=True):
        parts = np.abs(row)
        members = np.flatnonzero(parts >= max(named, size) * np.max(parts))
        if last is not None:
            members = [*(i for i in members if i != last), last]
        every = np.zeros(len(sizes))
        every[used] = row / sizes[used]
        text = _solved_for_last(own, every[used], members)
        columns = [own[i] for i in members]
        found.append(_LinearRelation(text, {*columns}, columns[-1], size, every))
    return found


def _reduced(rows, columns):
    """Rows (r, c) with the same span, each of which has a column to itself.

    As in Gaussian elimination, each is one in a late one of the `columns`, where all
    others are zero.

    Returns rows : ndarray of shape (r, c); solved : list. The column of each.
    """
    rows, solved = rows.copy(), []
    for row in range(len(rows)):
        largest = np.linalg.norm(rows[row:, columns], axis=0)
        solved.append(columns[largest >= 0.3 * np.max(largest)][-1])
        pivot = row + np.argmax(np.abs(rows[row:, solved[-1]]))
        rows[[row, pivot]] = rows[[pivot, row]]
        rows[row] /= rows[row, solved[-1]]
        others = np.arange(len(rows)) != row
        rows[others] -= np.outer(rows[others, solved[-1]], rows[row])
    return rows, solved


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
    values that vary little are nearly equal. Each is solved for another product. Of
    columns that are combinations of others nothing is told: any product with such a
    combination is zero.

    Returns found : list of _Conserved. Products of at least the part `named` of the
        largest are in the text.
    """
    if not most:
        return []
    linear = _linear_relations([None, *names], S, most, 0.3)
    kept = [i for i, name in enumerate(names) if name not in {r.last for r in linear}]
    names, S = [names[i] for i in kept], S[:, kept]
    first, second = np.triu_indices(S.shape[1])
    spread = np.std(S, axis=0)
    too_few = len(S) <= len(first) + len(spread)
    if too_few or not np.all(spread > 0):
        return []
    centred = _products((S - np.mean(S, axis=0)) / spread)[0]
    small = np.linalg.svd(centred, compute_uv=False)
    n_found = np.sum(small <= most)
    if not n_found:
        return []
    scaled, sizes = _products(S)
    free = np.linalg.svd(scaled, full_matrices=False)[2][-n_found:]
    quadratic = np.arange(1 + len(spread), len(sizes))
    free, solved = _reduced(free, quadratic)
    pairs = [(names[i], names[j]) for i, j in zip(first, second, strict=True)]
    own = [(), *((name,) for name in names), *pairs]
    texts = [text_product(Counter(each).items()) if each else None for each in own]
    found = []
    for row, last in zip(free, solved, strict=True):
        is_named = np.abs(row) >= named * np.max(np.abs(row))
        members = [*(i for i in np.flatnonzero(is_named) if i != last), last]
        text = _solved_for_last(texts, row / sizes, members)
        factors = {n for i in members for n in own[i]}
        squared = {n for n in factors if (n, n) in [own[i] for i in members]}
        found.append(_Conserved(text, factors, float(small[-1]), squared))
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
