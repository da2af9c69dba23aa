"""The table of hypotheses: what is tried, and why something is not."""

from dataclasses import dataclass, replace
from functools import partial
from math import comb
from typing import NamedTuple

import numpy as np

from keql._evolution.driven.noise import process_noise
from keql._evolution.form import why_no_trajectories, why_not_integrated
from keql._numerics.linalg import size_or_one
from keql._regression.hidden import hidden_operators
from keql._regression.two_step import (
    Hypothesis,
    polynomial_kernel,
    varying_coefficient_kernel,
)
from keql.equation import PolynomialBasis
from keql.model_selection._criteria import (
    level_in_space,
    predicts_within_noise,
)


@dataclass(frozen=True)
class Candidate:
    """A hypothesis, and a clause that says why it is not tried; empty if it may be."""

    hypothesis: Hypothesis
    why_not: str = ""


class Hypotheses(NamedTuple):
    """The table of hypotheses, its rows in the order in which they are tried.

    exact, exact_cubic : Candidate. Exact states of the equation that is given, or else
        of a quadratic polynomial; and of a cubic one.
    first, cubic, varying : Candidate. Both at collocation points; and an equation whose
        coefficients vary with the coordinates.
    quartic, quartic_in_time, in_coordinates : Candidate. Exact states of polynomials
        with more terms: of degree four, also of time; and of the coordinates.
    exact_varying : Candidate. Exact states with coefficients that vary.
    functions, driven : Candidate. Exact states with elementary functions; and states
        that white noise drives.
    """

    exact: Candidate
    exact_cubic: Candidate
    first: Candidate
    cubic: Candidate
    varying: Candidate
    quartic: Candidate
    quartic_in_time: Candidate
    in_coordinates: Candidate
    exact_varying: Candidate
    functions: Candidate
    driven: Candidate

    @property
    def exact_polynomials(self):
        """The quadratic and the cubic one."""
        return self.exact, self.exact_cubic

    @property
    def wider(self):
        """Exact states of more terms than a cubic polynomial has."""
        return self.quartic, self.quartic_in_time, self.in_coordinates

    @property
    def at_collocation_points(self):
        """Those whose states obey the equation at collocation points."""
        return self.first, self.cubic, self.varying


def candidates(two_step, given, settings):
    """The table of hypotheses, in the order in which they are tried.

    two_step : LearnedModel. Observations and equation, with the size of what P has to
        explain.
    given : Hypothesis. What the user says; None where it is left open.
    settings : FitSettings. How hypotheses are fitted.

    Returns table : Hypotheses. Exact states come first: they say most of the states.
    """
    cubic = replace(
        given,
        equation_kernel=default_kernels(
            two_step, given, partial(polynomial_kernel, degree=3)
        ),
        name="cubic polynomial",
    )
    varying = _varying(two_step, given)
    is_open = _is_open(two_step, given)
    first = given if is_open else replace(given, name="as given")
    kernel_given = "" if is_open else "equation_kernel is given"
    cubic_not = exact_cubic_not = kernel_given or _why_not_cubic(two_step)
    names = [t.name for t in two_step.setup.equations if t.depends_on is not None]
    if all(given.of_equation(name).n_terms is not None for name in names):
        exact_cubic_not = kernel_given  # of many terms the most probable are searched
    exact_cubic_not = exact_cubic_not or _why_too_many(two_step, _n_cubic(two_step))
    not_exact = _why_not_exact(two_step, given, settings)
    not_varying = kernel_given or _why_not_varying(two_step, given)
    return Hypotheses(
        Candidate(_exact(first), not_exact),
        Candidate(_exact(cubic), not_exact or exact_cubic_not),
        Candidate(first),
        Candidate(cubic, cubic_not),
        Candidate(varying, not_varying),
        *_wider(two_step, given, not_exact or kernel_given),
        _exactly_varying(two_step, varying, not_exact or not_varying),
        _elementary(two_step, given, not_exact or kernel_given),
        _driven(two_step, given, cubic if not exact_cubic_not else first, not_exact),
    )


def without_equation_noise(two_step, given, settings):
    """The table without the noise that is given of the equations of fields.

    None if that is not all that keeps their states from being exact, or if the number
    of their terms is not open.
    """
    names = [t.name for t in two_step.setup.equations if t.depends_on is not None]
    is_open = all(given.of_equation(name).n_terms == "auto" for name in names)
    if len(two_step.variables) < 2 or not is_open:
        return None
    if not _why_not_exact(two_step, given, settings):
        return None
    table = candidates(two_step, replace(given, equation_noise=None), settings)
    return None if table.exact.why_not else table


def with_known_kernels(given, two_step):
    """The Hypothesis with the given kernels of states as two steps have fitted them."""
    states = two_step.observations.states
    fitted = getattr(two_step.state_kernel, "kernels", None)
    fitted = fitted or dict.fromkeys(states, two_step.state_kernel)
    kept = {*states} - {*given.open_states(states)}
    return replace(given, state_kernel={name: fitted[name] for name in kept} or None)


def row_of_terms(exact, table, two_step, criteria):
    """The Candidate of a table that has the polynomial of exact states.

    None if they do not predict within the noise, nor leave no more than it: their
    terms may be those of what a coarse grid does not resolve. None of systems.
    """
    is_system = two_step.setup.is_system
    if is_system or not isinstance(exact.learned.equation.basis, PolynomialBasis):
        return None
    leaves = level_in_space(exact, two_step)
    predicts = predicts_within_noise(exact, two_step, criteria)
    if not predicts and leaves > criteria.exact_noise:
        return None
    rows = table.first, table.cubic
    names = {f"exact states, {row.hypothesis.name}": row for row in rows}
    row = names.get(exact.hypothesis.name)
    return None if row is None or row.why_not else row


def with_terms_of(exact, hypothesis):
    """A hypothesis whose equations have the terms of exact states, and keep all."""
    pairs = zip(exact.two_step.setup.equations, exact.learned.equations, strict=True)
    kernels = {
        terms.name: equation.equation_kernel
        for terms, equation in pairs
        if terms.depends_on is not None
    }
    return replace(hypothesis, equation_kernel=kernels, n_terms=None)


def _elementary(two_step, given, why_not):
    """Exact states with elementary functions, in space those of up to two states."""
    setup, d = two_step.setup, len(two_step.variables)
    names = [t.name for t in setup.equations if t.depends_on is not None]
    if d > 2 or (d > 1 and len(two_step.observations.states) > 2):
        few = "in space it is tried for one coordinate and up to two states"
        why_not = why_not or few
    elif any(given.of_equation(name).n_terms != "auto" for name in names):
        why_not = why_not or 'only n_terms="auto" asks for any terms'
    n_columns = len(setup.unknown_names(two_step.variables))
    features = two_step.equation.training_features[:, d:n_columns]
    why_not = why_not or _why_powers_are_alike(features, 4)
    hypothesis = replace(given, name="elementary functions", has_functions=True)
    return Candidate(_exact(hypothesis), why_not)


def _driven(two_step, given, widest, why_not):
    """States of ordinary differential equations driven by noise of an open level.

    The equations are those of the `widest` hypothesis.
    """
    names = [t.name for t in two_step.setup.equations]
    unknown = [t.name for t in two_step.setup.equations if t.depends_on is not None]
    states = two_step.observations.states
    if len(two_step.variables) > 1:
        why_not = "only ordinary differential equations are integrated with noise"
    elif len(given.open_equations(names)) < len(names):
        why_not = why_not or "equation_noise is given"
    elif len(given.open_states(states)) < len(states):
        why_not = why_not or "state_kernel is given"
    elif any(given.of_equation(name).n_terms is None for name in unknown):
        why_not = why_not or "n_terms=None keeps all terms"
    elif hidden_operators(two_step):
        why_not = why_not or "a state that is never observed explains as much"
    hypothesis = replace(
        widest, constraint="driven", name="states driven by noise of an open level"
    )
    return Candidate(hypothesis, why_not or _why_no_distances(two_step))


def _why_no_distances(two_step):
    """Why noise at collocation points is none in continuous time; or empty."""
    driven = process_noise(two_step.setup, np.ones(len(two_step.setup.equations)))
    if any(np.any(each.distances == 0) for each in driven):
        return "equation_noise needs several collocation points"
    return ""


def _varying(two_step, given):
    """The hypothesis of a linear equation whose coefficients vary."""
    observations = two_step.observations
    points = [data.points for data in observations.functions]
    make = partial(
        varying_coefficient_kernel,
        points=np.concatenate([*two_step.setup.collocation_points, *points]),
        periods=observations.periods,
    )
    return replace(
        given,
        equation_kernel=default_kernels(two_step, given, make),
        n_terms=None,
        name="linear, coefficients varying with the coordinates",
    )


def _exactly_varying(two_step, varying, why_not):
    """Exact states in time and space with coefficients that vary with these."""
    if len(two_step.variables) != 2:
        why_not = why_not or "it is tried in time and one coordinate of space only"
    return Candidate(_exact(varying), why_not)


def _wider(two_step, given, why_not):
    """Exact states of a single equation with more terms, in the order of the table.

    Of an ordinary differential equation products of four operators, and those that
    depend on time, each with all terms of the one before; of one in time and one
    coordinate of space products of two factors that may be coordinates.
    """
    if two_step.setup.is_system:
        why_not = "it is tried for single equations only"
    elif given.n_terms is None:
        why_not = why_not or "n_terms=None keeps all terms"
    n_columns = len(two_step.setup.unknown_names(two_step.variables))
    features = two_step.equation.training_features[:, :n_columns]
    d, not_open = len(two_step.variables), _columns_of_rings(two_step)
    other = "" if d == 1 else "it is tried for ordinary differential equations only"
    field = "" if d == 2 else "it is tried with one coordinate of space only"
    if len(not_open) == d or len(two_step.observations.functions) > 1:
        field = field or "it is tried for one function without periods only"
    free = tuple(i for i in range(n_columns) if i not in not_open)
    for name, degree, columns, own in (
        ("quartic polynomial", 4, tuple(range(d, n_columns)), other),
        ("quartic polynomial of time too", 4, tuple(range(n_columns)), other),
        ("quadratic polynomial of coordinates too", 2, free, field),
    ):
        make = partial(polynomial_kernel, degree=degree, columns=columns)
        kernel = default_kernels(two_step, given, make)
        hypothesis = replace(given, equation_kernel=kernel, name=name)
        reason = own or why_not
        if not reason:
            reason = _why_powers_are_alike(features[:, columns], degree)
        yield Candidate(_exact(hypothesis), reason)


def _columns_of_rings(two_step):
    """Coordinates that are rings: a polynomial of them jumps where they close."""
    periods = two_step.observations.periods
    return () if periods is None else tuple(np.flatnonzero(np.isfinite(periods)))


def _why_powers_are_alike(features, degree, most=1e9):
    """Why powers of features (n, q) cannot be told apart, as a clause; or empty.

    The powers of values that vary by a small part of their size are nearly equal up to
    scale; `most` is what rounding leaves of a product of `degree` of them.
    """
    spread = np.std(features, axis=0)
    ratios = np.abs(np.mean(features, axis=0)) / np.where(spread > 0, spread, 1.0)
    if np.all(ratios**degree < most):
        return ""
    return "values vary too little, beside their size, for their powers to differ"


def default_kernels(two_step, given, make):
    """The kernel of each equation if that of none is given, made from its size.

    A dict by name, in which the kernels that are given stay.
    """
    kernels = {}
    names = [terms.name for terms in two_step.setup.equations]
    for name, target in zip(names, two_step.targets, strict=True):
        own = given.of_equation(name).equation_kernel
        kernels[name] = make(size_or_one(target)) if own is None else own
    return kernels


def is_all_open(two_step, hypothesis):
    """Whether kernels, noise levels and terms are all to be found from the data."""
    observations = two_step.observations
    names = [t.name for t in two_step.setup.equations if t.depends_on is not None]
    equations = [hypothesis.of_equation(name) for name in names]
    levels = [equation.equation_noise for equation in equations]
    return (
        len(hypothesis.open_states(observations.states)) == len(observations.states)
        and np.all(np.isnan(hypothesis.noise_levels(observations.operators)))
        and all(level is None for level in levels)
        and all(equation.n_terms == "auto" for equation in equations)
    )


def _is_open(two_step, given):
    """Whether the kernel of an equation that is to be learned is not given."""
    unknown = [t for t in two_step.setup.equations if t.depends_on is not None]
    return any(given.of_equation(t.name).equation_kernel is None for t in unknown)


def _exact(hypothesis):
    name = f"exact states, {hypothesis.name}"
    return replace(hypothesis, constraint="integration", name=name)


def why_at_collocation_points(given, settings, states, equations, in_time):
    """Why what the user says asks for equations at collocation points, as a clause.

    Empty if it leaves open whether states obey them exactly. `states` and `equations`
    are all names; `in_time` says that there is time alone, where trajectories whose
    terms are searched for need no kernel of the states.
    """
    if settings.reduced:
        return "states of the reduced method lie in the span of kernel functions"
    if settings.solver != "auto":
        return f"solver={settings.solver!r} asks for states made of representers"
    all_open = len(given.open_states(states)) == len(states)
    searched = all(given.of_equation(name).n_terms is not None for name in equations)
    if not (all_open or searched) or settings.optimizer is None:
        return "state_kernel is given, or optimizer=None keeps the default one"
    if any(given.of_equation(name).equation_noise for name in equations):
        if not in_time:
            return (
                "equation_noise says that the equation does not hold exactly, and only "
                "ordinary differential equations are integrated with noise"
            )
        if not all_open:
            return "state_kernel and equation_noise are the prior of the states"
    return ""


def _without_small_noise(two_step, given, most=1e-2):
    """What is given, without noise of equations that hold as by default.

    States that obey them exactly are the limit of such noise, and are tried as well.

    most : float. Level, in units of the root mean square of what the equation explains,
        up to which the equation holds: right ones were met at collocation points to
        0.75 % (`Criteria.unexplained`), and the default level is a thousandth.
    """
    levels = {}
    for terms, target in zip(two_step.setup.equations, two_step.targets, strict=True):
        level = given.of_equation(terms.name).equation_noise
        is_small = level is not None and level <= most * size_or_one(target)
        levels[terms.name] = None if is_small else level
    return replace(given, equation_noise=levels)


def _why_not_exact(two_step, given, settings):
    names = [terms.name for terms in two_step.setup.equations]
    states = two_step.observations.states
    in_time = len(two_step.variables) == 1
    held = _without_small_noise(two_step, given)
    reason = why_at_collocation_points(held, settings, states, names, in_time)
    if reason:
        return reason
    if in_time:
        levels = [given.of_equation(name).equation_noise or 0.0 for name in names]
        driven = process_noise(two_step.setup, np.array(levels)) or []
        if any(np.any(each.distances[each.levels > 0] == 0) for each in driven):
            return "equation_noise needs several collocation points"
        if driven and hidden_operators(two_step):
            return (
                "a state that is never observed is not found beside equation_noise, "
                "which explains as much as it does"
            )
        return why_no_trajectories(two_step)
    kernel = two_step.equation.equation_kernel
    has_functions = kernel is not None and kernel.feature_names is not None
    if given.n_terms is not None and has_functions:
        return "terms of exact states in space are those of polynomials"
    reason = _why_too_few(two_step) or why_not_integrated(two_step)
    return reason or _why_too_many(two_step, len(two_step.equation.weights))


def _n_cubic(two_step):
    """How many terms a cubic polynomial of the inputs and operators has."""
    n_columns = len(two_step.setup.unknown_names(two_step.variables))
    return comb(n_columns - len(two_step.variables) + 3, 3)


def _why_too_many(two_step, n_terms, most=84):
    """Why so many terms are not compared on grids of two coordinates; or empty.

    Cubic polynomials of up to six operators have no more than `most`.
    """
    if len(two_step.variables) <= 2 or n_terms <= most:
        return ""
    return f"in two space dimensions {n_terms} terms take long, more than {most}"


def _why_too_few(two_step):
    """Why so few observations determine no equation with any states; or empty.

    They are no more than the coefficients of a linear one.
    """
    n_observed = sum(len(data.values) for data in two_step.observations.functions)
    unknown = [t for t in two_step.setup.equations if t.depends_on is not None]
    n_linear = sum(1 + len(terms.depends_on) for terms in unknown)
    if n_observed > n_linear:
        return ""
    return f"{n_observed} observations determine no {n_linear} coefficients"


def _why_not_cubic(two_step, most=600):
    """Cubic equations of a system are not tried if they have more terms than `most`.

    Each step takes the square of their number, and each term that is taken out a step.
    """
    setup = two_step.setup
    if not setup.is_system:
        return ""
    counts = [t.depends_on for t in setup.equations if t.depends_on is not None]
    n_inputs = len(setup.inputs.names)
    number = sum(comb(len(depends) + n_inputs + 3, 3) for depends in counts)
    if number <= most:
        return ""
    return (
        f"they have {number} terms in all, more than {most}: give an equation_kernel "
        "with fewer, or equations that depend on fewer operators"
    )


def _why_not_varying(two_step, given):
    if two_step.setup.is_system:
        return "it is tried for single equations only"
    if given.n_terms not in (None, "auto"):
        return "n_terms asks for a polynomial"
    if len(two_step.observations.functions) == 1:
        return "one function does not tell varying coefficients from others"
    return ""
