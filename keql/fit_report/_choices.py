"""What was given or chosen in a fit, and why: rows of a name, a value and a reason."""

import numpy as np

from keql.equation import number
from keql.fit_report._report import Choice
from keql.kernels import as_kernel


def choices_of(model, learned, search):
    """The choices of a fit, those that were not made left out.

    The arguments are those of :func:`describe_fit`, the last a SearchSummary.
    """
    kernel = search.boundary_kernel
    kernel = learned.state_kernel if kernel is None else kernel
    raised = _raised(search.dispersion)
    rows = [
        ("state kernel", str(kernel), _why_state_kernel(model, search)),
        (
            "length scales",
            length_scales(kernel, learned.variables),
            "in the units of X",
        ),
        ("states", *_exact_states(search)),
        (
            "observation noise",
            number(learned.observation_noise),
            _why_observation_noise(model, search) + raised,
        ),
    ]
    if learned.equation is not None:
        rows += [
            (
                "equation kernel",
                str(learned.equation.equation_kernel),
                _why_equation_kernel(model, learned),
            ),
            (
                "learned with",
                "" if search.learned_with is None else str(search.learned_with),
                "observations are predicted best with the equation that it gives",
            ),
            (
                "equation noise",
                number(learned.equation_noise),
                _why_equation_noise(model, search) + raised,
            ),
            ("minimum", *_minimum(model)),
        ]
    return [Choice(*row) for row in rows if row[1]]


def _why_state_kernel(model, search):
    if search.boundary_kernel is not None:
        return "of initial and boundary values, of most likelihood given the equation"
    if model.state_kernel is not None:
        return _why_given(as_kernel(model.state_kernel), model)
    if model.optimizer is None:
        return "the default, not fitted, as optimizer=None"
    if search.learned_with is None:
        return "the default, by the highest posterior density given the observations"
    return (
        f"the best of {len(search.alternatives)} at predicting each observation from "
        f"all others and the equation, error {number(search.error)}"
    )


def _why_given(kernel, model):
    """Where the hyperparameters of a given kernel come from."""
    if kernel.n_dims == 0 or model.optimizer is None:
        return "given"
    return "given as a start, by maximum likelihood"


def _exact_states(search):
    if search.exact_error is None:
        return "", ""
    error = number(search.exact_error)
    reason = f"observations are predicted better then, error {error}"
    return "obey the equation exactly", reason


def _why_observation_noise(model, search):
    if model.observation_noise is not None:
        return "given"
    if search.exact_error is not None:
        return "of most likelihood given the equation"
    if model.optimizer is None:
        return "not fitted, as optimizer=None"
    return "fitted along with the state kernel"


def _why_equation_kernel(model, learned):
    if model.equation_kernel is not None:
        return _why_given(as_kernel(model.equation_kernel), model)
    if not _is_quadratic(learned):
        return "observations are predicted better than with a quadratic polynomial"
    if model.optimizer is None:
        return "the default"
    return "the default, its variance by maximum likelihood"


def _is_quadratic(learned):
    """Whether the equation is a polynomial of degree 2, or less."""
    columns = np.ones(len(learned.variables) + learned.setup.n_operators, bool)
    degree = learned.equation.equation_kernel.degree_in(columns)
    return degree is not None and degree <= 2


def _why_equation_noise(model, search):
    if model.equation_noise is not None:
        return "given"
    if search.exact_error is not None:
        return "none, as exact states obey the equation"
    if not hasattr(model, "loss_curve_"):
        return "fitted along with the equation kernel"
    reason = "a small part of the size of the unknown part"
    if search.learned_with is None:
        return reason
    return f"{reason}, or less if that suits the data better"


def _minimum(model):
    """The number of steps, and the losses of all tries."""
    losses = [attempt["loss"] for attempt in getattr(model, "restarts_", [])]
    if not losses:
        return "", ""
    reason = f"loss {number(min(losses))}"
    if len(losses) > 1:
        reason = f"the best of {len(losses)} tries, {reason} to {number(max(losses))}"
    return f"{model.n_iter_} steps", reason


def _raised(dispersion):
    """What is said of noise levels that were raised with all variances."""
    if dispersion <= 1:
        return ""
    return f", raised {dispersion**0.5:.3g}-fold to the size of the residuals"


def length_scales(kernel, variables):
    """Length scales of a state kernel as text, by the names of the coordinates.

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
        texts.append(", ".join(f"{n} {number(scale)}" for n, scale in pairs))
    return "; ".join(texts)
