"""Given kernels of equations whose scale the data contradict, each in a sentence."""

import numpy as np
from scipy import linalg

from keql._numerics.linalg import rms, size_or_one
from keql.equation import FixedUnknownPart
from keql.fit_report._report import multiple, percent
from keql.kernels import as_kernel


def pulled_to_zero(hypothesis, learned, narrow=0.01, n_rows=50):
    """Equations whose given kernel holds P far too small, each in a sentence.

    The prior standard deviation of P, over at most about `n_rows` of the features of a
    LearnedModel, is compared with the median size of what P has to explain: below
    the part `narrow` of it coefficients are pulled to zero, whatever the data say. The
    Hypothesis tells which kernels were given; the scale of others is found.
    """
    if learned.setup is None:
        return []
    sentences = []
    for terms, equation, target in zip(
        learned.setup.equations, learned.equations, learned.targets, strict=True
    ):
        kernel = equation.equation_kernel
        given = hypothesis.of_equation(terms.name).equation_kernel
        if kernel is None or given is None or _is_found(kernel):
            continue
        S = equation.training_features
        rows = S[:: max(1, len(S) // n_rows), : equation.n_unknown_features]
        prior, size = np.sqrt(np.mean(kernel.diag(rows))), np.median(np.abs(target))
        if prior < narrow * size:
            sentences.append(
                f"the scale of equation_kernel says that P is of size {prior:.2g}, but "
                f"it has to explain values of size {size:.2g}, in units of the "
                "forcing: its coefficients are pulled to zero. Leave the scale open, "
                "with no Constant or one of default bounds, or multiply the kernel by "
                f"the square of the ratio, {(size / prior) ** 2:.1g}"
            )
    return sentences


def pulled(hypothesis, fit, most, odds):
    """Equations whose given scale changes P far more than data do, each in a sentence.

    The weights of P have a normal prior, and those that the data determine are of the
    size that their prior says, or it is wrong: the likeliest variance is found so by
    MacKay ("Bayesian interpolation", Neural Computation 4, 1992). Where states are
    known well, a prior that is too narrow does no harm; where they are not, it costs
    less to bend them, and P would be another one with that variance. States that are
    found while an equation is held are not bent.

    hypothesis : Hypothesis. It tells which kernels were given.
    fit : Fit. With states at collocation points.
    most : float. Root mean square of the change of P where states are, with the prior
        of that variance, in units of its size, from which on it is told.
    odds : float. Log odds of that variance to the one given, from which on it counts.
    """
    is_held = not fit.is_exact and isinstance(fit.problem.basis, FixedUnknownPart)
    if fit.is_exact or is_held or fit.learned.setup is None:
        return []
    sentences, learned = [], fit.learned
    for terms, equation in zip(learned.setup.equations, learned.equations, strict=True):
        given = hypothesis.of_equation(terms.name).equation_kernel
        if given is None or not _is_scale_given(given, equation):
            continue
        variance, gain, change = _likeliest_scale(equation, fit.problem.dispersion)
        if variance > 1 and gain > odds and change > most:
            sentences.append(
                f"the scale of equation_kernel is {multiple(variance**0.5)} times too "
                "small for the weights that the data determine, which are pulled to "
                f"zero, and states with them: without that, P would differ by "
                f"{percent(change, 1.0)} where states are. Leave the scale open, with "
                "no Constant or one of default bounds, or multiply the kernel by "
                f"{variance:.2g}"
            )
    return sentences


def _is_scale_given(given, equation):
    """Whether the variance of a kernel of P is given, and none that was found."""
    kernel = equation.equation_kernel
    if equation.posterior is None or _is_found(kernel):
        return False
    n_given, n_used = (
        sum(each.name.endswith("constant_value") for each in k.hyperparameters)
        for k in (as_kernel(given), kernel)
    )
    return n_used == n_given


def _likeliest_scale(equation, dispersion):
    """The likeliest variance of the prior of the weights, and what changes with it.

    In units of the variance that they have; its log odds to that one; and the change of
    P in units of its size where states are, to first order in that of the precision.
    """
    posterior = equation.posterior.with_dispersion(1 / dispersion)
    precision = posterior.factor @ posterior.factor.T
    sizes, directions = linalg.eigh(precision)
    sizes = np.maximum(sizes, 1.0)  # the prior has precision one
    n_determined = np.sum(1 - 1 / sizes)
    weights = directions.T @ posterior.weights
    if not n_determined or not np.any(weights):
        return 1.0, 0.0, 0.0
    variance = weights @ weights / n_determined
    gain = 0.5 * n_determined * (variance - 1 - np.log(variance))
    lost = 1 - 1 / variance  # precision
    change = directions @ (lost * weights / (sizes - lost))
    S = equation.training_features[:, : equation.n_unknown_features]
    P = [equation.basis.values(S, each) for each in (posterior.weights, change)]
    return float(variance), float(gain), rms(P[1]) / size_or_one(P[0])


def _is_found(kernel):
    """Whether the variance of a fitted kernel is a free one, within its bounds.

    A dictionary has its variance in its scales.
    """
    if kernel.feature_names is not None:
        return True
    values = kernel.get_params()
    return any(
        values[each.name] < 0.99 * each.bounds[0, 1]
        for each in kernel.hyperparameters
        if each.name.endswith("constant_value") and not each.fixed
    )
