"""What a single solution leaves open of the equation that it obeys."""

import numpy as np

from keql._numerics.elementary import Elementary
from keql._numerics.linalg import rms, size_or_one
from keql.equation import number, terms_of
from keql.fit_report._report import percent
from keql.kernels import Dictionary
from keql.operators import parse_operator


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


def _relation(names, direction):
    """The first derivatives whose combination is zero, as an equation."""
    if not np.any(direction):
        return f"{names[0]} = 0"
    first, *others = np.flatnonzero(direction)
    right = [f"{number(-direction[i] / direction[first])} {names[i]}" for i in others]
    return f"{names[first]} = {' + '.join(right) or '0'}"


def varying_in_time(hypothesis, learned):
    """Equations with as many coefficients that depend on time as there are functions.

    Each in a sentence. At each time the functions are as many linear equations for the
    values of the coefficients there, which follow any states if they are no fewer.
    Told are those whose kernel the Hypothesis leaves open.
    """
    n_functions = len(learned.observations.functions)
    alone = len(learned.variables) == 1
    pairs = zip(learned.setup.equations, learned.equations, strict=True)
    sentences = []
    for terms, equation in pairs if alone else ():
        given = hypothesis.of_equation(terms.name).equation_kernel
        kernel = equation.equation_kernel
        if given is not None or kernel is None or terms_of(equation) is not None:
            continue
        if kernel.degree_in(np.arange(equation.n_unknown_features) >= 1) is None:
            continue  # no coefficients
        n_terms = len(equation.coefficient_terms())
        if 0 < n_functions <= n_terms:
            sentences.append(
                f"{n_functions} function{'s' * (n_functions > 1)} may be followed by "
                f"any equation with {n_terms} coefficient{'s' * (n_terms > 1)} that "
                f"var{'y' if n_terms > 1 else 'ies'} with {learned.variables[0]}: "
                f"observe more than {n_terms} functions, or give an equation_kernel "
                "with fewer such coefficients"
            )
    return sentences


def reversible(learned, least=1e-3, alike=1e-6):
    """A sentence if a force explains an orbit as well as the square of a speed does.

    An equation of the second order that stays as it is when u_t changes its sign makes
    of u_t^2 a function of u along one orbit, as the derivative of u_t^2 in u is 2 u_tt.
    So terms with that square may stand for others that depend on u alone.

    learned : LearnedModel. States and equations.
    least, alike : float. Parts of the size of the unknown part: by so much u_t changes
        it at least, and its sign at most.
    """
    equation, state, time = _of_one_trajectory(learned)
    speed = f"{state}_{time}"
    if equation is None or _order(equation) != 2 or speed not in equation.feature_names:
        return []
    S, column = equation.training_features, equation.feature_names.index(speed)
    backwards = S.copy()
    backwards[:, column] *= -1
    size, slopes = size_or_one(equation.unknown_part(S)), equation.gradient(S)
    by_speed = rms(slopes[:, column] * S[:, column])
    turned, by_time = rms(equation(backwards) - equation(S)), rms(slopes[:, 0])
    by_time *= np.ptp(S[:, 0])
    if by_speed < least * size or max(turned, by_time) > alike * size:
        return []
    return [
        "the equation stays as it is when time runs backwards, so that along one "
        f"orbit the square of {speed} is a function of {state}: terms with that square "
        f"may stand for others of {state} alone. Observe orbits of other energies, as "
        "further functions"
    ]


def exchanged(learned, least=1e-3, significant=3.0):
    """A sentence if a linear equation and its source may change places.

    One solution of u_t = a u + b exp(k t) is a sum of exp(a t) and exp(k t), as is that
    of k u and a source exp(a t): of a drug that is taken up and given off it is not
    told which of the two is slow (Yanez and others, "Flip-flop pharmacokinetics",
    Therapeutic Delivery 2, 2011). The frequencies of u_tt = a u and of a wave that
    drives it change places likewise, if no term is needed for another phase.

    learned : LearnedModel. States and equations.
    least, significant : float. The motion without a source is at least this part of
        the state, and so many standard errors.
    """
    equation, state, time = _of_one_trajectory(learned)
    rate, sources = _linear_terms(equation, state, time)
    if not sources:
        return []
    S, is_first = equation.training_features, _order(equation) == 1
    t, u = S[:, 0], S[:, equation.feature_names.index(state)]
    own, other = rate if is_first else (-rate) ** 0.5, sources[0].parameter
    alone = _motions(own, t, is_first)
    driven = [
        f for k in {s.parameter for s in sources} for f in _motions(k, t, is_first)
    ]
    columns = np.column_stack([*alone, *driven, np.ones(len(t))])
    parts = np.linalg.lstsq(columns, u, rcond=None)[0] * np.std(columns, axis=0)
    n = sum(len(data.values) for data in learned.observations.functions)
    errors = significant * np.max(learned.observation_noise) / n**0.5
    is_there = np.abs(parts[: len(alone)]) > max(least * np.std(u), errors)
    n_terms = sum(source.parameter == other for source in sources)
    if not 0 < np.sum(is_there) <= n_terms:
        return []
    left = f"{state}_{time if is_first else 2 * time}"
    factor, wave = (other, "exp({} {})") if is_first else (-(other**2), "cos({} {})")
    source = wave.format(number(own), time)
    return [
        f"the source and what {state} does without one may change places: {left} = "
        f"{number(factor)} {state} with a source in proportion to {source} has this "
        "solution as well. Observe another one, as a further function"
    ]


def _of_one_trajectory(learned):
    """The equation of one function, and the names of its state and of time.

    None for the equation if there is more in it than these.
    """
    setup, names = learned.setup, learned.observations.states
    counts = len(learned.states), len(names), len(learned.variables)
    is_single = setup is not None and {*counts, len(learned.equations)} == {1}
    if not is_single or setup.has_forcing or setup.inputs.names:
        return None, "", ""
    return learned.equations[0], names[0], learned.variables[0]


def _order(equation):
    """The order of the highest derivative in an equation."""
    return max(operator.order for operator in equation.operators)


def _linear_terms(equation, state, time):
    """The rate a of u_t or u_tt = a u, and the elementary functions that drive it.

    Those of time alone, with which solutions are sums of exponentials, or of waves. No
    functions if the equation is another one.
    """
    nothing = 0.0, []
    if equation is None or not isinstance(equation.equation_kernel, Dictionary):
        return nothing
    known, order = equation.known_part.terms, _order(equation)
    families = {1: {"exp"}, 2: {"cos", "sin"}}.get(order, set())
    if [*known] != [f"{state}_{order * time}"]:
        return nothing
    values = terms_of(equation).coefficients @ equation.weights
    rate, sources = 0.0, []
    functions = equation.equation_kernel.functions.values()
    for function, value in zip(functions, -values / [*known.values()], strict=True):
        if not isinstance(function, Elementary):
            return nothing
        is_source = function.family in families and function.argument == time
        if not function.family and function.powers == ((state, 1),):
            rate = float(value)
        elif is_source and not function.powers:
            sources.append(function)
        elif function.family or function.powers:
            return nothing
    return (rate, sources) if rate < 0 or (rate and order == 1) else nothing


def _motions(rate, t, is_first):
    """What a linear equation of the first or second order does without a source."""
    if is_first:
        return [np.exp(rate * (t - (np.max(t) if rate > 0 else np.min(t))))]
    return [np.cos(rate * t), np.sin(rate * t)]
