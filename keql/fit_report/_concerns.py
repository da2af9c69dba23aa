"""What looks wrong in a fit, and what to do about it."""

import numpy as np

from keql._joint.restarts import RestartSettings
from keql.equation import number
from keql.fit_report._report import percent, times


def find_concerns(model, residuals, identifiability, criteria):
    """What looks wrong by a ReportCriteria, as sentences."""
    return [
        *_dependent_terms(identifiability),
        *_residuals_above_noise(residuals, criteria),
        *_unexplained_part(residuals.get("equation"), criteria),
        *_disagreement(model, criteria),
        *_at_bounds(model, criteria),
        *([] if getattr(model, "converged_", True) else [model.message_]),
    ]


def _dependent_terms(identifiability):
    """Terms that the data do not tell apart."""
    if identifiability is None or not identifiability.dependent_terms:
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


def _residuals_above_noise(residuals, criteria):
    """Residuals that are far above their noise level."""
    for name, residual in residuals.items():
        if residual.rms > criteria.far_above_noise * residual.noise > 0:
            is_plural = name == "observations"
            parameter = "observation_noise" if is_plural else "equation_noise"
            yield (
                f"the {name} {'are' if is_plural else 'is'} missed by "
                f"{times(residual.rms, residual.noise)} the noise level: a larger "
                f"{parameter}, another kernel or other operators are called for"
            )


def _unexplained_part(residual, criteria):
    """A residual of the equation that is large beside its terms."""
    if residual is not None and residual.rms > criteria.large_part * residual.size:
        yield (
            f"the equation leaves {percent(residual.rms, residual.size)} of its terms "
            "unexplained: operators are missing, or derivatives are poorly known"
        )


def _disagreement(model, criteria):
    """Tries that ended in different minima, when none of them met the data."""
    losses = sorted(attempt["loss"] for attempt in getattr(model, "restarts_", []))
    if len(losses) < 2 or model.misfit_ <= RestartSettings.poor_misfit:
        return
    agreeing = sum(loss <= (1 + criteria.same_loss) * losses[0] for loss in losses)
    if agreeing < 2:
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
        if getattr(model, name) is None or kernel is None or kernel.n_dims == 0:
            continue
        distances = np.abs(kernel.bounds - kernel.theta[:, None])
        n_at_end = np.any(distances < criteria.at_bound, axis=1).sum()
        if n_at_end:
            yield (
                f"{n_at_end} hyperparameter(s) of {name} ended at their bounds: "
                f"{kernel}. Widen the bounds, or fix what the data say nothing about"
            )
