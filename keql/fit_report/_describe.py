"""Makes the report of a fit."""

from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from keql._numerics.scaling import rms, size_or_one
from keql.fit_report._choices import choices_of
from keql.fit_report._concerns import find_concerns
from keql.fit_report._identifiability import identify_terms
from keql.fit_report._report import FitReport, ReportCriteria, Residual
from keql.operators import parse_operator


@dataclass(frozen=True)
class SearchSummary:
    """What was tried to find the states and the equation of a fit.

    Attributes
    ----------
    alternatives : sequence of (kernel or str, float)
        State kernels, or equations, that were compared, and the root mean square error
        of predicting each observation from all others, in the units of the values.
    error : float or None
        The error with the state kernel that was chosen.
    learned_with : Kernel or None
        The state kernel that the equation was learned with; None: none was searched.
    dispersion : float
        The factor by which all variances were raised to that of the residuals.
    exact_error : float or None
        The error of states that obey the equation exactly; None: they do not.
    boundary_kernel : Kernel or None
        The kernel of initial and boundary values of exact states.
    not_tried : sequence of (str, str)
        Hypotheses that were not tried, and a sentence that says why.
    criteria : dict of str to float
        By which hypotheses were compared.
    """

    alternatives: tuple = ()
    error: float | None = None
    learned_with: object = None
    dispersion: float = 1.0
    exact_error: float | None = None
    boundary_kernel: object = None
    not_tried: tuple = ()
    criteria: dict = field(default_factory=dict)


def describe_fit(model, learned, search=None):
    """Make the report of a fit.

    Parameters
    ----------
    model : estimator
        With its parameters, and all fitted attributes but the report.
    learned : LearnedModel
        What it has stored.
    search : SearchSummary, default=None
        What was tried; None: nothing was searched.
    """
    search = search or SearchSummary()
    criteria, setup = ReportCriteria(), learned.setup
    data, is_exact = learned.observations.functions, search.exact_error is not None
    title = f"{type(model).__name__}, {sum(len(d.values) for d in data)} observations"
    if len(data) > 1:
        title += f" of {len(data)} functions"
    residuals = {"observations": _residual_of_observations(learned)}
    identifiability = None
    if setup is not None:
        n_points = sum(map(len, setup.collocation_points))
        title += f", {n_points} collocation points"
        residuals["equation"] = _residual_of_equation(learned, is_exact)
        identifiability = identify_terms(learned, is_exact, criteria)
    alternatives = [(str(name), float(error)) for name, error in search.alternatives]
    return FitReport(
        title,
        choices_of(model, learned, search),
        residuals,
        identifiability,
        sorted(alternatives, key=itemgetter(1)),
        find_concerns(model, residuals, identifiability, criteria),
        list(search.not_tried),
        dict(search.criteria),
    )


def _residual_of_observations(learned):
    identity = parse_operator("u", learned.variables)
    data = learned.observations.functions
    residuals = [
        (state.evaluate(d.points, identity) - d.values) * np.sqrt(d.weights)
        for d, state in zip(data, learned.states, strict=True)
    ]
    values = np.concatenate([d.values for d in data])
    noise = float(learned.observation_noise)
    return Residual(rms(np.concatenate(residuals)), noise, size_or_one(values))


def _residual_of_equation(learned, is_exact):
    equation, target = learned.equation, learned.target
    residuals = equation.unknown_part(equation.training_features) - target
    if is_exact:  # initial and boundary values are free: nothing is imposed there
        points = equation.training_features[:, : len(learned.variables)]
        lower, upper = points.min(axis=0), points.max(axis=0)
        residuals = residuals[np.all((points > lower) & (points < upper), axis=1)]
    return Residual(rms(residuals), learned.equation_noise, size_or_one(target))
