"""Elementary functions in equations whose states are smooth but cannot be exact.

Sets of functions are ranked along the smooth states, which exact data tell well, and
those that explain the equation best are solved for jointly with the states. The slope
of each function in its inner parameter is a term beside it, and its coefficient says
how the parameter changes, as in :mod:`keql._regression.functions.search`.
"""

from dataclasses import replace

import numpy as np

from keql._numerics.subsets import TermOdds
from keql._regression.functions.screening import better_than_products, combined
from keql._regression.functions.settings import ElementarySettings
from keql._regression.functions.table import FunctionTable
from keql._regression.functions.terms import (
    form_of,
    moved,
    simplified,
    without_slopes,
)
from keql.equation import terms_of
from keql.kernels import Dictionary
from keql.model_selection._fit import JointFamily, fit_jointly
from keql.model_selection._terms._fewer import TermsStep


def fit_smooth_functions(two_step, first, kernel, context):
    """The joint fit of smooth states with the most probable functions, or None.

    Others that meet the data as well are in its path. The loss of smooth states of
    exact data tells equations apart as their evidence would.

    two_step : LearnedModel. The two-step solution of a single equation.
    first : Hypothesis. All but the functions.
    kernel : Kernel. The prior of the smooth states.
    context : Context. How problems are solved.

    Returns fit : Fit or None.
    """
    learned, _, _ = JointFamily(two_step, first, context).at(kernel)
    settings = ElementarySettings.of_static_fields()
    offered, fits = FunctionTable(learned, settings, time=None), []
    odds = TermOdds(offered.kinds, settings.n_expected)
    ranked = better_than_products(learned, offered, 0, settings, 0.0)
    for terms, _ in combined([ranked]):
        if any(term.function.family for term in terms):
            fit = _fit_functions(two_step, first, kernel, context, offered, terms)
            if fit is not None and fit.result.interrupted:
                return fit
            if fit is not None:
                fit = _with_evidence(fit, odds([term.origin for term in terms]))
                fits.append((fit, {*map(form_of, terms)}))
    if not fits:
        return None
    (best, own), *others = sorted(fits, key=lambda pair: -pair[0].log_evidence)
    most, path = context.criteria.met_smoothly, [*best.terms_path]
    for fit, forms in others:
        if fit.misfit < most and not own <= forms:  # more terms add nothing
            path += fit.terms_path
    return replace(best, terms_path=path)


def _with_evidence(fit, odds):
    """A fit with the log evidence of its terms, their prior log odds included."""
    figures = fit.result.loss, fit.misfit, fit.error, odds - fit.result.loss
    equations = tuple(fit.learned.equations)
    step = TermsStep(tuple(fit.term_names), *figures, equations=equations)
    return replace(fit, terms_path=[step])


def _fit_functions(two_step, first, kernel, context, offered, terms):
    """The joint fit with some functions, their inner parameters held; or None.

    None if these do not settle, or if functions stand for products.
    """
    settings, last = offered.settings, np.inf
    for _ in range(settings.max_steps):
        slopes = [t.function.in_log_parameter() for t in terms if t.function.is_free]
        functions = [*(term.function for term in terms), *slopes]
        with np.errstate(all="ignore"):  # a parameter may run away
            values = offered.values_of(functions, 0)
        if not np.all(np.isfinite(values)):
            return None
        fit = _joint(two_step, first, kernel, context, offered, functions)
        if fit.result.interrupted:
            return fit
        if not slopes:
            break
        equation = fit.learned.equations[0]
        found = terms_of(equation).coefficients @ equation.weights
        _, moves = without_slopes(terms, found)
        change = np.max(np.abs(moves))
        if not change < 2 * last:
            return None
        last, limit = change, settings.largest_change
        by = np.exp(np.clip(moves, -limit, limit))
        terms = [moved(*pair) for pair in zip(terms, by.tolist(), strict=True)]
        if change < settings.tol:
            break
    else:
        return None
    if offered.are_flat(terms):
        return None
    held = [simplified(term).function for term in terms]
    held = [replace(f, is_held=True, digits=4) for f in held]
    return _joint(two_step, first, kernel, context, offered, held)


def _joint(two_step, first, kernel, context, offered, functions):
    """The joint fit with some functions as the terms of its equation."""
    hypothesis = replace(
        first,
        equation_kernel=_kernel(offered, functions),
        n_terms=None,
        has_functions=True,
        name="elementary functions",
    )
    family = JointFamily(two_step, hypothesis, context)
    return fit_jointly(family, *family.at(kernel))


def _kernel(offered, functions):
    """That of functions of one equation, and of slopes of some of them."""
    names = [f.name + " slope" * f.slope for f in functions]
    scales = [offered.scale_of(v, 0) for v in offered.values_of(functions, 0)]
    return Dictionary(dict(zip(names, functions, strict=True)), scales, offered.names)
