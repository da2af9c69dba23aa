"""The hypotheses that a fit may try, and why some of them do not apply."""

from dataclasses import dataclass, replace

import numpy as np

from keql._evolution.form import why_not_integrated
from keql._numerics.scaling import size_or_one
from keql._regression.equation_prior import (
    polynomial_kernel,
    varying_coefficient_kernel,
)
from keql._regression.two_step import Hypothesis


@dataclass(frozen=True)
class Candidate:
    """A hypothesis, and a clause that says why it is not tried; empty if it may be."""

    hypothesis: Hypothesis
    why_not: str = ""


def candidates(two_step, given, settings):
    """The table of hypotheses, in the order in which they are tried.

    Parameters
    ----------
    two_step : LearnedModel
        Observations and equation, with the size of what P has to explain.
    given : Hypothesis
        What the user says; None where it is left open.
    settings : FitSettings
        How hypotheses are fitted.

    Returns
    -------
    table : list of Candidate
        Exact states come first: they say most of the states.
    """
    size = size_or_one(two_step.target)
    placed = two_step.setup.collocation_points
    observed = [data.points for data in two_step.observations.functions]
    cubic = replace(
        given,
        equation_kernel=polynomial_kernel(size, degree=3),
        name="cubic polynomial",
    )
    varying = replace(
        given,
        equation_kernel=varying_coefficient_kernel(
            size, np.concatenate([*placed, *observed])
        ),
        name="linear, coefficients varying with the coordinates",
    )
    first = given if given.equation_kernel is None else replace(given, name="as given")
    kernel_given = "" if given.equation_kernel is None else "equation_kernel is given"
    not_exact = _why_not_exact(two_step, given, settings)
    return [
        Candidate(_exact(first), not_exact),
        Candidate(_exact(cubic), not_exact or kernel_given),
        Candidate(first),
        Candidate(cubic, kernel_given),
        Candidate(varying, kernel_given or _why_not_varying(two_step, given)),
    ]


def _exact(hypothesis):
    name = f"exact states, {hypothesis.name}"
    return replace(hypothesis, constraint="integration", name=name)


def _why_not_exact(two_step, given, settings):
    if settings.reduced:
        return "states of the reduced method lie in the span of kernel functions"
    if settings.solver != "auto":
        return f"solver={settings.solver!r} asks for states made of representers"
    if given.state_kernel is not None or settings.optimizer is None:
        return "state_kernel is given, or optimizer=None keeps the default one"
    if given.equation_noise:
        return "equation_noise says that the equation does not hold exactly"
    return why_not_integrated(two_step)


def _why_not_varying(two_step, given):
    if given.n_terms is not None:
        return "n_terms asks for a polynomial"
    if len(two_step.observations.functions) == 1:
        return "one function does not tell varying coefficients from others"
    return ""
