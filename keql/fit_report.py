"""What a fit has chosen and why, how well it meets its data, and what looks wrong."""

from html import escape
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from keql._feature_cloud import FUNCTIONS, ROWS, feature_cloud, slopes_of_monomials
from keql._joint.restarts import POOR
from keql._numerics.scaling import root_mean_square
from keql.equation import number
from keql.kernels import as_kernel
from keql.operators import parse_operator

__all__ = ["FitReport"]
# Residuals this many times their noise level look wrong.
FAR = 2.0
# A residual of the equation that is this part of its terms is no small one.
LARGE = 0.2
# Losses of tries that differ by less, relatively, are those of one minimum.
SAME = 0.01
# So many of the kernels that were compared are printed.
SHOWN = 5
# A hyperparameter so near to its bounds, in logarithms, is at them.
AT_BOUND = 1e-6


class Choice(NamedTuple):
    """A quantity that a fit needed, its value as text, and where that is from."""

    name: str
    value: str
    reason: str


class Residual(NamedTuple):
    """Root mean square residual, its noise level, and the size of the target."""

    rms: float
    noise: float
    size: float


class FitReport:
    """What a fit has chosen and why, how well it meets its data, what looks wrong.

    The attribute `fit_report_` of the estimators that learn; print it.

    Parameters
    ----------
    title : str
        What was fitted.
    choices : list of (name, value, reason)
        What was given or chosen, all of it text.
    residuals : dict of str to (rms, noise, size)
        Of the observations, in the units of `y`, and of the equation, in those of the
        forcing: root mean square residual, noise level, root mean square of what was
        to be met.
    cloud : FeatureCloud or None
        How well the terms of the equation can be told apart: `n_terms`, `rank`,
        `condition` and `ties`. None for an equation without a list of terms.
    alternatives : list of (str, float)
        Kernels that were compared, with their criterion, the best first: the error of
        predicting each observation from all others.
    concerns : list of str
        What looks wrong, and what to do about it.

    Examples
    --------
    In a travelling wave derivatives in time and space are proportional, and no data of
    one wave say which of them an equation should have:

    >>> import numpy as np
    >>> from keql import TwoStepKEqL
    >>> from keql.kernels import Polynomial
    >>> X = np.random.default_rng(0).uniform(0, 3, (100, 2))
    >>> model = TwoStepKEqL(
    ...     operators=("u_t", "u_x", "u_xx"),
    ...     known_part="u_tt",
    ...     variables=("t", "x"),
    ...     equation_kernel=Polynomial(1),
    ... ).fit(X, np.sin(X[:, 1] - 0.5 * X[:, 0]) + X[:, 1] - 0.5 * X[:, 0])
    >>> report = model.fit_report_
    >>> report.cloud.n_terms, report.cloud.rank
    (4, 3)
    >>> print(report.concerns[0][:43])
    the terms u_x and u_t trade off against one
    """

    def __init__(self, title, choices, residuals, cloud, alternatives, concerns):
        self.title = title
        self.choices = choices
        self.residuals = residuals
        self.cloud = cloud
        self.alternatives = alternatives
        self.concerns = concerns

    def sections(self):
        """The report as a table.

        Returns
        -------
        sections : dict of str to list of (str, str, str)
            By heading, rows of a name, a value and a remark.
        """
        sections = {"Chosen": [tuple(choice) for choice in self.choices]}
        if self.alternatives:
            heading = "Compared, by the error of predicting what was left out"
            sections[heading] = [
                (number(error), kernel, "")
                for kernel, error in self.alternatives[:SHOWN]
            ]
            if len(self.alternatives) > SHOWN:
                more = f"{len(self.alternatives) - SHOWN} more"
                sections[heading].append(("...", more, ""))
        sections["Met, root mean square of the residuals"] = [
            (
                name,
                number(residual.rms),
                f"{_times(residual.rms, residual.noise)} the noise level, "
                f"{_percent(residual.rms, residual.size)} of the {_sized(name)}",
            )
            for name, residual in self.residuals.items()
        ]
        if self.cloud is not None:
            sections["Told apart"] = [
                (
                    "terms",
                    f"{self.cloud.rank} of {self.cloud.n_terms}",
                    f"condition number {number(self.cloud.condition)}",
                )
            ]
        found = [("", concern, "") for concern in self.concerns]
        sections["What looks wrong"] = found or [("", "nothing", "")]
        return {heading: rows for heading, rows in sections.items() if rows}

    def __str__(self):
        lines = [self.title]
        for heading, rows in self.sections().items():
            lines += ["", heading]
            width = max(len(name) for name, *_ in rows)
            for name, value, remark in rows:
                text = f"{name:{width}}  {value}" if width else f"- {value}"
                lines.append("  " + text + (f"  ({remark})" if remark else ""))
        return "\n".join(lines)

    def __repr__(self):
        n = len(self.concerns)
        return f"<FitReport of {self.title}: {n} concern{'s' * (n != 1)}>"

    def _repr_html_(self):
        body = []
        for heading, rows in self.sections().items():
            body.append(
                f'<tr><th colspan="3" style="text-align: left">{escape(heading)}</th>'
                "</tr>"
            )
            for row in rows:
                cells = "".join(
                    f'<td style="text-align: left">{escape(text)}</td>' for text in row
                )
                body.append(f"<tr>{cells}</tr>")
        return (
            f"<table><caption>{escape(self.title)}</caption>"
            f"<tbody>{''.join(body)}</tbody></table>"
        )


def describe_fit(model, learned, search=None):
    """Make the report of a fit.

    Parameters
    ----------
    model : estimator
        With its parameters, and all fitted attributes but this one.
    learned : Learned
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
    data, setup = learned.observations.regressions, learned.setup
    n_values = sum(len(each.values) for each in data)
    title = f"{type(model).__name__}, {n_values} observations"
    if len(data) > 1:
        title += f" of {len(data)} functions"
    residuals = {"observations": _residual_of_observations(learned)}
    cloud, search = None, search or {}
    followed = search.get("followed") is not None
    if setup is not None:
        n_points = sum(map(len, setup.collocation_points))
        title += f", {n_points} collocation points"
        residuals["equation"] = _residual_of_equation(learned, followed)
        cloud = _cloud(learned, followed)
    alternatives = search.get("alternatives", [])
    alternatives = sorted(
        ((str(k), float(e)) for k, e in alternatives), key=itemgetter(1)
    )
    return FitReport(
        title,
        _choices(model, learned, search),
        residuals,
        cloud,
        alternatives,
        _concerns(model, residuals, cloud),
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
    data = learned.observations.regressions
    misses = [
        (state.evaluate(each.points, identity) - each.values) * np.sqrt(each.weights)
        for each, state in zip(data, learned.states, strict=True)
    ]
    values = np.concatenate([each.values for each in data])
    noise = float(learned.observation_noise)
    return Residual(_rms(np.concatenate(misses)), noise, root_mean_square(values))


def _residual_of_equation(learned, followed):
    equation, target = learned.equation, learned.target
    missed = equation.unknown_part(equation.training_features) - target
    if followed:  # nothing is imposed on the border
        points = equation.training_features[:, : len(learned.variables)]
        lower, upper = points.min(axis=0), points.max(axis=0)
        missed = missed[np.all((points > lower) & (points < upper), axis=1)]
    return Residual(_rms(missed), learned.equation_noise, root_mean_square(target))


def _is_quadratic(learned):
    """Whether the equation is a polynomial of degree 2, or less."""
    columns = np.ones(len(learned.variables) + learned.setup.n_operators, bool)
    degree = learned.equation.equation_kernel.degree_in(columns)
    return degree is not None and degree <= 2


def _rms(values):
    return root_mean_square(values) if np.any(values) else 0.0


def _cloud(learned, followed):
    """How well the terms of the equation can be told apart; None without a list."""
    equation, d = learned.equation, len(learned.variables)
    terms = equation._find_terms()
    if terms is None:
        return None
    n_operators = learned.setup.n_operators
    operators = learned.setup.operators[:n_operators]
    placed = learned.setup.collocation_points
    starts = np.cumsum([0, *map(len, placed)])
    functions = range(0, len(placed), -(-len(placed) // FUNCTIONS))
    stride = -(-sum(len(placed[m]) for m in functions) // ROWS)
    rows, errors = [], []
    for m in functions:
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
    return feature_cloud(terms.names, terms.values, slopes, errors)


# --- what looks wrong -----------------------------------------------------------------


def _concerns(model, residuals, cloud):
    concerns = []
    if cloud is not None:
        concerns += _ties(cloud)
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


def _ties(cloud):
    """What is said of terms that the data do not tell apart."""
    if not cloud.ties:
        return
    names, size, error = cloud.ties[0]
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
    if len(cloud.ties) > 1:
        text += f"; the same holds for {len(cloud.ties) - 1} more combinations of terms"
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


# --- text -----------------------------------------------------------------------------


def _times(value, unit):
    return f"{value / unit:.2g} times" if unit > 0 else "without comparison to"


def _percent(value, size):
    return f"{value / size:.2g}" if size <= 0 else f"{100 * value / size:.2g} %"


def _sized(name):
    return "known part and forcing" if name == "equation" else "values"
