"""What was chosen in a fit, and how well its data are met."""

from operator import itemgetter

import numpy as np

from keql._numerics.scaling import rms, size_or_one
from keql.equation import number
from keql.fit_report._concerns import find_concerns
from keql.fit_report._identifiability import (
    FUNCTIONS,
    ROWS,
    identify,
    slopes_of_monomials,
)
from keql.fit_report._report import Choice, FitReport, Residual
from keql.kernels import as_kernel
from keql.operators import parse_operator


def describe_fit(model, learned, search=None):
    """Make the report of a fit.

    Parameters
    ----------
    model : estimator
        With its parameters, and all fitted attributes but this one.
    learned : LearnedModel
        What it has stored.
    search : dict, default=None
        Of a state kernel that was chosen with the joint problem: `alternatives`, a list
        of (kernel, error) of all that were compared; `error`, that of the one chosen;
        `learned_with`, the one that the law was learned with; `dispersion`, by which
        variances were raised; and `followed`, the error of states that follow the law
        exactly, None if these were not taken. If nothing else was tried, only that, and
        laws as `alternatives`.

    Returns
    -------
    report : FitReport
        The report.
    """
    data, setup = learned.observations.functions, learned.setup
    n_values = sum(len(each.values) for each in data)
    title = f"{type(model).__name__}, {n_values} observations"
    if len(data) > 1:
        title += f" of {len(data)} functions"
    residuals = {"observations": _residual_of_observations(learned)}
    identifiability, search = None, search or {}
    followed = search.get("followed") is not None
    if setup is not None:
        n_points = sum(map(len, setup.collocation_points))
        title += f", {n_points} collocation points"
        residuals["equation"] = _residual_of_equation(learned, followed)
        identifiability = _identify(learned, followed)
    alternatives = search.get("alternatives", [])
    alternatives = sorted(
        ((str(k), float(e)) for k, e in alternatives), key=itemgetter(1)
    )
    return FitReport(
        title,
        _choices(model, learned, search),
        residuals,
        identifiability,
        alternatives,
        find_concerns(model, residuals, identifiability),
    )


# --- what was chosen ------------------------------------------------------------------


def _choices(model, learned, search):
    fitted = model.optimizer is not None
    raised = search.get("dispersion", 1.0) ** 0.5
    raised = f", raised {raised:.3g}-fold to what is left" if raised > 1 else ""
    choices = [
        Choice(
            "state kernel",
            str(learned.state_kernel),
            _origin_of_state_kernel(model, fitted, search),
        )
    ]
    lengths = length_scales(learned.state_kernel, learned.variables)
    if lengths:
        choices.append(Choice("length scales", lengths, "in the units of X"))
    followed = search.get("followed")
    if followed is not None:
        reason = f"observations are predicted better then, error {number(followed)}"
        choices.append(Choice("states", "follow the law exactly", reason))
    if model.observation_noise is not None:
        reason = "given"
    elif followed is not None:
        reason = "of most likelihood given the law"
    elif fitted:
        reason = "fitted along with the state kernel"
    else:
        reason = "not fitted, as optimizer=None"
    choices.append(
        Choice("observation noise", number(learned.observation_noise), reason + raised)
    )
    if learned.equation is None:
        return choices
    kernel = learned.equation.equation_kernel
    if model.equation_kernel is not None:
        reason = _origin(as_kernel(model.equation_kernel), fitted)
    elif _is_quadratic(learned):
        reason = "the default" + (", its variance by maximum likelihood" * fitted)
    else:
        reason = "observations are predicted better than with a quadratic polynomial"
    choices.append(Choice("equation kernel", str(kernel), reason))
    if "learned_with" in search:
        kernel = str(search["learned_with"])
        reason = "the law with which observations are predicted best"
        choices.append(Choice("learned with", kernel, reason))
    if model.equation_noise is not None:
        reason = "given"
    elif followed is not None:
        reason = "none, as the law is followed exactly"
    elif hasattr(model, "loss_curve_"):
        reason = "a small part of the size of the unknown part"
        if search:
            reason += ", or less if that suits the data better"
    else:
        reason = "fitted along with the equation kernel"
    level = number(learned.equation_noise)
    choices.append(Choice("equation noise", level, reason + raised))
    tries = getattr(model, "restarts_", [])
    if tries:
        losses = [each["loss"] for each in tries]
        reason = f"loss {number(min(losses))}"
        if len(tries) > 1:
            reason = (
                f"the best of {len(tries)} tries, {reason} to {number(max(losses))}"
            )
        choices.append(Choice("minimum", f"{model.n_iter_} steps", reason))
    return choices


def _origin(kernel, fitted):
    """Where the hyperparameters of a given kernel come from."""
    if kernel.n_dims == 0 or not fitted:
        return "given"
    return "given as a start, by maximum likelihood"


def _origin_of_state_kernel(model, fitted, search):
    if model.state_kernel is not None:
        return _origin(as_kernel(model.state_kernel), fitted)
    if not fitted:
        return "the default, not fitted, as optimizer=None"
    if "learned_with" in search:
        return (
            f"the best of {len(search['alternatives'])} at predicting each observation "
            f"from all others and the equation, error {number(search['error'])}"
        )
    return "the default, by the highest posterior density given the observations"


def length_scales(kernel, variables):
    """Length scales of a state kernel as text, by the names of the coordinates.

    Parameters
    ----------
    kernel : Kernel
        Bound to columns.
    variables : tuple of str
        Names of the columns.

    Returns
    -------
    text : str
        Empty if there are none; those of different parts in the order of the kernel.
    """
    parameters, found = kernel.get_params(), []
    for name, value in parameters.items():
        if name.rpartition("__")[2] != "length_scale":
            continue
        active = parameters.get(name.removesuffix("length_scale") + "active_dims")
        names = variables if active is None else [variables[i] for i in active]
        scales = np.broadcast_to(np.ravel(value), len(names))
        pairs = zip(names, scales, strict=True)
        found.append(", ".join(f"{n} {number(scale)}" for n, scale in pairs))
    return "; ".join(found)


# --- how well the data are met --------------------------------------------------------


def _residual_of_observations(learned):
    identity = parse_operator("u", learned.variables)
    data = learned.observations.functions
    misses = [
        (state.evaluate(each.points, identity) - each.values) * np.sqrt(each.weights)
        for each, state in zip(data, learned.states, strict=True)
    ]
    values = np.concatenate([each.values for each in data])
    noise = float(learned.observation_noise)
    return Residual(rms(np.concatenate(misses)), noise, size_or_one(values))


def _residual_of_equation(learned, followed):
    equation, target = learned.equation, learned.target
    missed = equation.unknown_part(equation.training_features) - target
    if followed:  # nothing is imposed on the border
        points = equation.training_features[:, : len(learned.variables)]
        lower, upper = points.min(axis=0), points.max(axis=0)
        missed = missed[np.all((points > lower) & (points < upper), axis=1)]
    return Residual(rms(missed), learned.equation_noise, size_or_one(target))


def _is_quadratic(learned):
    """Whether the equation is a polynomial of degree 2, or less."""
    columns = np.ones(len(learned.variables) + learned.setup.n_operators, bool)
    degree = learned.equation.equation_kernel.degree_in(columns)
    return degree is not None and degree <= 2


def _identify(learned, followed):
    """How well the terms of the equation can be told apart; None without a list."""
    equation, d = learned.equation, len(learned.variables)
    terms = equation._find_terms()
    if terms is None:
        return None
    n_operators = learned.setup.n_operators
    operators = learned.setup.operators[:n_operators]
    placed = learned.setup.collocation_points
    starts = np.cumsum([0, *map(len, placed)])
    chosen = range(0, len(placed), -(-len(placed) // FUNCTIONS))
    stride = -(-sum(len(placed[m]) for m in chosen) // ROWS)
    rows, errors = [], []
    for m in chosen:
        sample, state = placed[m][::stride], learned.states[m]
        rows.append(np.arange(starts[m], starts[m + 1], stride))
        errors.append([state.variance(sample, operator) for operator in operators])
    S = equation.training_features[np.concatenate(rows), : d + n_operators]
    # States that follow the equation do not have to be differentiated for it.
    errors = np.sqrt(np.concatenate(errors, axis=1)) * (not followed)
    columns = range(d, d + n_operators)
    if terms.exponents is not None:
        slopes = slopes_of_monomials(terms.exponents, S, columns)
    else:
        units, kernel = np.eye(S.shape[1], dtype=int), equation.equation_kernel
        layers = [kernel.feature_map(S, tuple(units[j])) for j in columns]
        slopes = np.stack(layers) / kernel.feature_scales()
    return identify(terms.names, terms.values, slopes, errors)
