"""From a fit to its report: what was chosen, met, and looks wrong."""

from dataclasses import asdict, dataclass, field
from datetime import date
from itertools import compress
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from keql._joint.assembly import size_of_constraint
from keql._joint.restarts import RestartSettings
from keql._numerics.linalg import rms, size_or_one
from keql._numerics.versions import computing_versions
from keql._observations.units import with_unit
from keql.equation import number
from keql.fit_report._found import Fitted, ReportUnits
from keql.fit_report._identify import dependent_terms, identify_terms
from keql.fit_report._one_solution import travelling
from keql.fit_report._reasons import (
    how_driven,
    observed_and_fitted,
    why_equation_kernel,
    why_equation_noise,
    why_observation_noise,
    why_state_kernel,
)
from keql.fit_report._report import (
    Choice,
    FitReport,
    ReportCriteria,
    Residual,
    times,
)
from keql.fit_report._undetermined import (
    undetermined,
    unexplained,
    unexplained_between,
)


@dataclass(frozen=True)
class SearchSummary:
    """What was tried to find the states and the equation of a fit.

    The `alternatives`, state kernels or equations (or their names) that were compared,
    come with the root mean square error of predicting each observation from all others,
    in the units of the values; `error` is that of the state kernel chosen, at the stage
    at which kernels were compared, `final_error` that of the states and equations that
    came out in the end, and `exact_error` that of states that obey the equation
    exactly, or "driven by white noise" (`driven`), with the `boundary_kernel` of their
    initial and boundary values (None: they do not), which is not that given unless the
    fit `keeps_kernel`; `resolution` says how finely these were integrated, and by how
    many times the noise they change if finer. The equation was learned with the state
    kernel `learned_with`; None: none was searched. Kernel and terms are the most
    probable ones, of those that predict about as well, if `by_evidence`. All variances
    were raised by the factor `dispersion` to that of the residuals. Hypotheses were
    compared by the named `criteria`, and those `not_tried` have a sentence that says
    why. The `doubts` are
    sentences on why the equations of the fit may be others; None: they are looked for
    when the report is made, and what else is of concern, such as given kernels that are
    too small, is told with them. `examined` are the ExaminedEquations; None: they are
    examined for the report.
    """

    alternatives: tuple = ()
    error: float | None = None
    final_error: float | None = None
    learned_with: object = None
    by_evidence: bool = False
    dispersion: float = 1.0
    exact_error: float | None = None
    driven: str = ""
    boundary_kernel: object = None
    keeps_kernel: bool = True
    resolution: tuple | None = None
    not_tried: tuple = ()
    doubts: tuple | None = None
    concerns: tuple = ()
    criteria: dict = field(default_factory=dict)
    examined: object = None


def describe_fit(model, learned, search=None):
    """Make the report of a fit.

    The estimator `model` has its parameters, and all fitted attributes but the report;
    `learned` is the LearnedModel that it has stored, and `search` the SearchSummary of
    what was tried; None: nothing was searched.
    """
    search, setup = search or SearchSummary(), learned.setup
    criteria, units = ReportCriteria(), ReportUnits(model, learned)
    examined = search.examined or examine(learned, search.exact_error is not None)
    data = learned.observations.functions
    title = f"{type(model).__name__}, {_number_of_values(learned.observations)}"
    if len(data) > 1:
        title += f" of {len(data)} functions"
    residuals = _residuals_of_observations(learned) | examined.residuals
    if setup is not None:
        used, given = setup.collocation_points, setup.given_points
        title += f", {sum(map(len, used))} collocation points"
        if sum(map(len, given)) > sum(map(len, used)):
            title += f" of {sum(map(len, given))}, the others being beyond the data"
    choices = choices_of(model, learned, search, units)
    compared = [(str(name), float(error)) for name, error in search.alternatives]
    compared.sort(key=itemgetter(1))
    concerns = list(search.doubts or [])
    if search.doubts is None:
        concerns = undetermined(learned) + travelling(learned, criteria.large_part)
        concerns += unexplained(residuals, criteria.large_part)
        concerns += search.concerns
    # The noise of exact states may stay that of a fit before the last one.
    is_found = search.exact_error is not None and model.observation_noise is None
    told = {} if is_found else residuals
    others = find_concerns(model, told, examined.identifiability, criteria)
    concerns += [each for each in others if each not in concerns]
    tried = list(search.not_tried), dict(search.criteria)
    return FitReport(
        title,
        choices,
        residuals,
        examined.identifiability,
        compared,
        concerns,
        *tried,
        units=units.of_residuals(learned),
        versions={"date": date.today().isoformat()} | computing_versions(),
        fitted=Fitted.from_fit(model, learned, search.final_error),
    )


def _number_of_values(observations):
    """How many observations there are, and how many were taken in their place."""
    n = sum(len(data.values) for data in observations.functions)
    if observations.n_samples is None:
        return f"{n} observations"
    if observations.is_condensed:
        return f"{observations.n_samples} observations condensed to {n}"
    return f"{observations.n_samples} observations, of which {n} were taken"


def _residuals_of_observations(learned):
    """Residuals by name: "observations", with the operator if there are several."""
    residuals, noise = {}, learned.observation_noise
    for seen, level in zip(observed_and_fitted(learned), noise, strict=True):
        name = f"observations of {seen.name}" if len(noise) > 1 else "observations"
        size = size_or_one(seen.values)
        residuals[name] = Residual(rms(seen.errors), float(level), size)
    return residuals


class ExaminedEquations(NamedTuple):
    """Residuals of equations by their names, and the Identifiability of their terms."""

    residuals: dict
    identifiability: object


def examine(learned, is_exact=False, parts=None):
    """The ExaminedEquations of a LearnedModel, whose states may be exact.

    The `parts` are as of :func:`identify_terms`.
    """
    if learned.setup is None:
        return ExaminedEquations({}, None)
    terms = identify_terms(learned, is_exact, ReportCriteria(), parts)
    return ExaminedEquations(residuals_of_equations(learned, is_exact), terms)


def residuals_of_equations(learned, is_exact):
    """Residuals by name: "equation", with its own name if there are several."""
    residuals, setup = {}, learned.setup
    parts = learned.equations, learned.targets, learned.equation_noise, setup.equations
    for equation, target, noise, terms in zip(*parts, strict=True):
        S = equation.training_features
        misses = equation.unknown_part(S) - target
        if is_exact:  # initial and boundary values are free: nothing is imposed there
            points = S[:, : len(learned.variables)]
            lower, upper = points.min(axis=0), points.max(axis=0)
            misses = misses[np.all((points > lower) & (points < upper), axis=1)]
        name = f"equation {terms.name}" if setup.is_system else "equation"
        size = size_or_one(target)
        if terms.depends_on is None:
            size = size_of_constraint(equation, learned)
        residuals[name] = Residual(rms(misses), float(noise), size)
    return residuals


def at_points(learned, hypothesis, most, most_between):
    """Sentences on what equations that hold at collocation points only do not tell.

    They leave more than the part `most` unexplained at these points, or `most_between`
    halfway between them, or observations are far above their noise, where the
    Hypothesis leaves that noise open (that which is given is believed); or terms are
    made of errors.
    """
    examined = examine(learned)
    names = [terms.name for terms in learned.setup.equations]
    is_open = [hypothesis.of_equation(n).equation_noise is None for n in names]
    own = dict(compress(examined.residuals.items(), is_open))
    sentences = unexplained(own, most)
    if not sentences:
        between = compress(parts_between(learned, ReportCriteria()), is_open)
        sentences = unexplained_between(
            dict(zip(own, between, strict=True)), most_between
        )
    residuals = _residuals_of_observations(learned)
    operators = [L.name for L in learned.observations.operators]
    is_open = [hypothesis.of_state(n).observation_noise is None for n in operators]
    own = dict(compress(residuals.items(), is_open))
    sentences += residuals_above_noise(own, ReportCriteria())
    return sentences + dependent_terms(examined.identifiability)


def parts_between(learned, criteria):
    """By what part of its terms each equation is missed between its points, a list.

    States may bend to meet any equation at collocation points: those of slopes in
    another unit than values were stairs. 0 of equations without an unknown part, and
    where a forcing is known at collocation points only.
    """
    setup, parts = learned.setup, []
    for e, terms in enumerate(setup.equations):
        places = setup.some_rows(e, criteria.n_rows, criteria.n_functions)
        found = [
            _missed_between(learned, e, m, points)
            for m, _, points in places
            if terms.depends_on is not None and _knows_forcing(setup, e, m)
        ]
        misses, targets = np.hstack([np.zeros((2, 1)), *found])
        parts.append(rms(misses) / size_or_one(targets))
    return parts


def _knows_forcing(setup, e, m):
    """Whether the forcing of equation `e` is known everywhere for function `m`."""
    return not setup.equations[e].has_forcing or callable(setup.forcing_functions[m][e])


def _missed_between(learned, e, m, points):
    """Residuals of equation `e` halfway to the nearest of its points, and targets.

    An array (2, n) for points (n, d) of function `m`, in the unit of the equation, or
    (2, 0) if there is a single one.
    """
    setup, equation = learned.setup, learned.equations[e]
    placed = np.unique(
        setup.collocation_points[m][setup.rows[m].slices()[e][1]], axis=0
    )
    if len(placed) < 2:
        return np.empty((2, 0))
    scale = np.where(np.ptp(placed, axis=0) > 0, np.ptp(placed, axis=0), 1.0)
    nearest = cKDTree(placed / scale).query(points / scale, k=2)[1][:, 1]
    between = (points + placed[nearest]) / 2
    operators = [learned.states[m].evaluate(between, L) for L in setup.operators]
    S = np.column_stack([between, setup.inputs.at(m, between), *operators])
    right = setup.forcing_functions[m][e]
    target = -equation.known_part(S)
    if right is not None:
        target = target + np.ravel(right(between))
    return np.array([equation.unknown_part(S) - target, target])


def choices_of(model, learned, search, units):
    """The choices of a fit, with a SearchSummary; those that were not made left out.

    Numbers have `units`, the ReportUnits of the model.
    """
    kernel = search.boundary_kernel
    kernel = learned.state_kernel if kernel is None else kernel
    operators = learned.observations.operators
    pairs = zip(learned.observation_noise, operators, strict=True)
    noise = [with_unit(number(v), units.of_operator(L)) for v, L in pairs]
    noise = _listed([operator.name for operator in operators], noise)
    scales = _scales_of_states(kernel, learned, units)
    raised = ""  # with all variances
    if search.dispersion > 1:
        raised = f", raised {search.dispersion**0.5:.3g}-fold to that of the residuals"
    rows = [
        ("state kernel", str(kernel), why_state_kernel(model, search)),
        ("length scales", scales, "in the units of X"),
        ("states", *_exact_states(search)),
        ("resolution", *_resolution(search)),
        ("observation noise", noise, why_observation_noise(model, search) + raised),
    ]
    if learned.equations:
        learned_with = "" if search.learned_with is None else str(search.learned_with)
        best = "observations are predicted best with the equation that it gives"
        names = [terms.name for terms in learned.setup.equations]
        pairs = zip(learned.equation_noise, learned.equations, strict=True)
        noise = [with_unit(number(level), equation.unit) for level, equation in pairs]
        noise = _listed(names, noise)
        kernels = [equation.equation_kernel for equation in learned.equations]
        known = [i for i, kernel in enumerate(kernels) if kernel is not None]
        kernel = _listed([names[i] for i in known], [str(kernels[i]) for i in known])
        rows += [
            ("equation kernel", kernel, why_equation_kernel(model, learned, search)),
            ("learned with", learned_with, best),
            (
                "equation noise",
                noise,
                why_equation_noise(model, search, names) + raised,
            ),
            ("minimum", *_minimum(model)),
        ]
    return [Choice(*row) for row in rows if row[1]]


def _listed(names, texts):
    """The only text, or texts with the names that they belong to."""
    if len(texts) == 1:
        return texts[0]
    pairs = zip(names, texts, strict=True)
    return "; ".join(f"{name}: {text}" for name, text in pairs)


def _scales_of_states(kernel, learned, units):
    """Length scales of the kernel of each state, as text."""
    states, own = learned.observations.states, {}
    own = {name: units.of(name) for name in learned.variables}
    scales = [length_scales(kernel.of_state(s), learned.variables, own) for s in states]
    return _listed(states, scales)


def _exact_states(search):
    if search.exact_error is None:
        return "", ""
    reason = "observations are predicted better then, error "
    how = search.driven or "exactly"
    return f"obey the equation {how}", reason + number(search.exact_error)


def _resolution(search):
    """How finely exact states are integrated, and what a finer resolution changes."""
    if search.resolution is None:
        return "", ""
    text, change = search.resolution
    return text, f"a finer one changes them by {change:.2g} times the noise level"


def _minimum(model):
    """The number of steps, and the losses of all tries."""
    losses = [attempt["loss"] for attempt in getattr(model, "restarts_", [])]
    if not losses:
        return "", ""
    reason = f"loss {number(min(losses))}"
    if len(losses) > 1:
        reason = f"the best of {len(losses)} tries, {reason} to {number(max(losses))}"
    return f"{model.n_iter_} steps", reason


def length_scales(kernel, variables, units):
    """Length scales of a state kernel as text, by the names of the coordinates.

    In `units`, {name: unit or None}.
    Those of different parts come in the order of the kernel; "" if there are none.
    """
    parameters, texts = kernel.get_params(), []
    for name, value in parameters.items():
        if name.rpartition("__")[2] != "length_scale":
            continue
        active = parameters.get(name.removesuffix("length_scale") + "active_dims")
        names = variables if active is None else [variables[i] for i in active]
        scales = np.broadcast_to(np.ravel(value), len(names))
        pairs = zip(names, scales, strict=True)
        texts.append(
            ", ".join(f"{n} {with_unit(number(x), units[n])}" for n, x in pairs)
        )
    return "; ".join(texts)


def find_concerns(model, residuals, identifiability, criteria):
    """What looks wrong by a ReportCriteria, as sentences."""
    return [
        *dependent_terms(identifiability),
        *residuals_above_noise(residuals, criteria),
        *_disagreement(model, criteria),
        *_at_bounds(model, criteria),
        *([] if getattr(model, "converged_", True) else [model.message_]),
    ]


def residuals_above_noise(residuals, criteria):
    """Residuals that are far above their noise level, each in a sentence."""
    for name, residual in residuals.items():
        if residual.rms > criteria.far_above_noise * residual.noise > 0:
            is_plural = name.startswith("observations")
            parameter = "observation_noise" if is_plural else "equation_noise"
            yield (
                f"the {name} {'are' if is_plural else 'is'} missed by "
                f"{times(residual.rms, residual.noise)} the noise level: a larger "
                f"{parameter}, another kernel or other operators are called for"
            )


def _disagreement(model, criteria):
    """Tries that ended in different minima, when none of them met the data."""
    losses = sorted(attempt["loss"] for attempt in getattr(model, "restarts_", []))
    if len(losses) < 2 or model.misfit_ <= RestartSettings.poor_misfit:
        return
    if sum(loss <= (1 + criteria.same_loss) * losses[0] for loss in losses) < 2:
        yield (
            f"{len(losses)} tries ended in different minima, with losses from "
            f"{number(losses[0])} to {number(losses[-1])}, and the lowest was found "
            "once: there may be a lower one. Raise n_restarts, or give a state kernel"
        )


def _at_bounds(model, criteria):
    """Hyperparameters of given kernels that the likelihood would move further."""
    if model.optimizer is None:
        return
    for name in ("state_kernel", "equation_kernel"):
        kernel = getattr(model, f"{name}_", None)
        if getattr(model, name) is None or kernel is None:
            continue
        kernel = getattr(kernel, "kernels", kernel)  # those of several states
        for own in kernel.values() if isinstance(kernel, dict) else [kernel]:
            if own is None or own.n_dims == 0:
                continue
            distances = np.abs(own.bounds - own.theta[:, None])
            n_at_end = np.any(distances < criteria.at_bound, axis=1).sum()
            if n_at_end:
                yield (
                    f"{n_at_end} hyperparameter(s) of {name} ended at their bounds: "
                    f"{own}. Widen the bounds, or fix what the data say nothing about"
                )


def summary_of(selection, doubts):
    """What a report says of a selection, with sentences on doubts."""
    fit, searched = selection.best, selection.promised is not None
    if not searched and selection.exact is None:
        return SearchSummary(doubts=doubts)
    kernel = fit.problem.boundary_kernel if fit.is_exact else None
    compared = [(", ".join(step.terms), step.error) for step in fit.terms_path]
    if searched:
        compared = [(each.kernel, each.error) for each in selection.kernels]
    return SearchSummary(
        alternatives=tuple(compared),
        error=selection.promised,
        final_error=selection.error,
        learned_with=selection.joint.learned_with if searched else None,
        by_evidence=selection.by_evidence and selection.exact is None,
        dispersion=1.0 if fit.is_exact else fit.problem.dispersion,
        exact_error=fit.error if fit.is_exact else None,
        driven=how_driven(fit),
        boundary_kernel=kernel,
        keeps_kernel=kernel is None or fit.problem.prior.log_odds == 0,
        resolution=fit.resolution,
        not_tried=tuple(selection.not_tried),
        doubts=doubts,
        criteria=asdict(selection.criteria),
    )
