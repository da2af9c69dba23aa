"""Exact states of two-step solutions, as a search finds them."""

from dataclasses import replace

from keql._evolution.form import why_not_integrated
from keql._regression.two_step import FitSettings, Hypothesis
from keql.model_selection._exact_fit import fit_exact_states
from keql.model_selection._fit import Context
from keql.model_selection._starts._diffusion import fit_from_diffusion

CONTEXT = Context(FitSettings(), lambda *_: False)


def fit_exactly(learned, equation=None, n_terms=None, noise=None, context=CONTEXT):
    """Exact states from those of a learned model; None where there are none."""
    if why_not_integrated(learned):
        return None
    hypothesis = Hypothesis(n_terms=n_terms, observation_noise=noise)
    everything = learned
    if equation is not None:
        everything = replace(learned, equations=(equation,))
    return fit_exact_states(everything, learned, hypothesis, context)


def grow(learned, n_terms=None):
    """Exact states from a diffusion; None where there are none."""
    if why_not_integrated(learned):
        return None
    return fit_from_diffusion(learned, Hypothesis(n_terms=n_terms), CONTEXT)
