"""What looks wrong in a fit, and what to do about it."""

import numpy as np

from keql._joint.restarts import POOR
from keql.equation import number
from keql.fit_report._report import _percent, _times

# Residuals this many times their noise level look wrong.
FAR = 2.0
# A residual of the equation that is this part of its terms is no small one.
LARGE = 0.2
# Losses of tries that differ by less, relatively, are those of one minimum.
SAME = 0.01
# A hyperparameter so near to its bounds, in logarithms, is at them.
AT_BOUND = 1e-6


# --- what looks wrong -----------------------------------------------------------------


def find_concerns(model, residuals, identifiability):
    concerns = []
    if identifiability is not None:
        concerns += _dependent_terms(identifiability)
    for name, residual in residuals.items():
        if residual.rms > FAR * residual.noise > 0:
            parameter = (
                "observation_noise" if name == "observations" else "equation_noise"
            )
            concerns.append(
                f"the {name} {'are' if name[-1] == 's' else 'is'} missed by "
                f"{_times(residual.rms, residual.noise)} the noise level: a larger "
                f"{parameter}, another kernel or other operators are called for"
            )
    equation = residuals.get("equation")
    if equation is not None and equation.rms > LARGE * equation.size:
        concerns.append(
            f"the equation leaves {_percent(equation.rms, equation.size)} of its terms "
            "unexplained: operators are missing, or derivatives are poorly known"
        )
    concerns += [*_disagreement(model), *_at_bounds(model)]
    if not getattr(model, "converged_", True):
        concerns.append(model.message_)
    return concerns


def _dependent_terms(identifiability):
    """What is said of terms that the data do not tell apart."""
    if not identifiability.dependent_terms:
        return
    names, size, error = identifiability.dependent_terms[0]
    if len(names) == 1:
        subject = f"the term {names[0]} is made of errors"
    else:
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        subject = f"the terms {listed} trade off against one another"
    text = (
        f"{subject}: on the learned states they combine to {size:.1g} of their size, "
        f"of which errors of the derivatives alone would make {error:.1g}, so that the "
        "data do not tell their coefficients"
    )
    if len(identifiability.dependent_terms) > 1:
        more = len(identifiability.dependent_terms) - 1
        text += f"; the same holds for {more} more combinations of terms"
    yield text + (
        ". Observe more, or states that differ more, or leave some of these terms out "
        "of the equation kernel"
    )


def _disagreement(model):
    """Tries that ended in different minima, when none of them met the data."""
    tries = getattr(model, "restarts_", [])
    losses = sorted(each["loss"] for each in tries)
    if len(tries) < 2 or model.misfit_ <= POOR:
        return
    agreeing = sum(loss <= (1 + SAME) * losses[0] for loss in losses)
    if agreeing < 2:
        yield (
            f"{len(tries)} tries ended in different minima, with losses from "
            f"{number(losses[0])} to {number(losses[-1])}, and the lowest was found "
            "once: there may be a lower one. Raise n_restarts, or give a state kernel"
        )


def _at_bounds(model):
    """Hyperparameters of given kernels that the likelihood would move further."""
    if model.optimizer is None:
        return
    for name in ("state_kernel", "equation_kernel"):
        kernel = getattr(model, f"{name}_", None)
        if getattr(model, name) is None or kernel is None or kernel.n_dims == 0:
            continue
        at_end = np.any(
            np.abs(kernel.bounds - kernel.theta[:, None]) < AT_BOUND, axis=1
        )
        if at_end.any():
            yield (
                f"{at_end.sum()} hyperparameter(s) of {name} ended at their bounds: "
                f"{kernel}. Widen the bounds, or fix what the data say nothing about"
            )
