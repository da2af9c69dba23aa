"""Why kernels and noise levels are what they are, and whether noise is even."""

from typing import NamedTuple

import numpy as np
from scipy import stats

from keql._numerics.linalg import rms
from keql.equation import number
from keql.fit_report._report import multiple
from keql.kernels import as_kernel


def why_state_kernel(model, search):
    if search.exact_error is not None and search.boundary_kernel is None:
        return "of the states that the trajectories started from; they need none"
    given = _why_given(model.state_kernel, model)
    if search.boundary_kernel is not None:
        text = "of initial and boundary values"
        if not search.keeps_kernel:
            return f"{text}, which are far more probable with it than with that given"
        if given:
            return f"{given}, and the prior {text}"
        return f"{text}, of most likelihood given the equation"
    if given:
        if search.learned_with is None:  # no other was compared
            return given
        given += "; of the others "
    if model.optimizer is None:
        return "the default, not fitted, as optimizer=None"
    if search.learned_with is None:
        return "the default, by the highest posterior density given the observations"
    if search.by_evidence:
        return (
            f"{given}the most probable of those that predict observations about as well"
        )
    return (
        f"{given}the best of {len(search.alternatives)} at predicting each observation "
        f"from all others and the equation, error {number(search.error)} at that stage"
    )


def _why_given(kernel, model):
    """Where the hyperparameters of a given kernel, or of several by name, come from.

    Empty if none is given.
    """
    given, text = getattr(kernel, "kernels", kernel), "given"
    if isinstance(given, dict):
        given = {name: each for name, each in given.items() if each is not None}
        text = f"given for {', '.join(given)}"
    if not given:
        return ""
    kernels = given.values() if isinstance(given, dict) else [given]
    is_fixed = all(as_kernel(each).n_dims == 0 for each in kernels)
    if is_fixed or model.optimizer is None:
        return text
    return f"{text} as a start, by maximum likelihood"


def why_observation_noise(model, search):
    if model.observation_noise is not None:
        return "given"
    if search.exact_error is not None:
        return "of most likelihood given the equation"
    if model.optimizer is None:
        return "not fitted, as optimizer=None"
    return "fitted along with the state kernel"


def why_equation_kernel(model, learned, search):
    if model.equations is not None:
        return "as the equations say, or the default"
    given = _why_given(model.equation_kernel, model)
    if given:
        return given
    if not _is_quadratic(learned) and search.by_evidence:
        return "far more probable than a quadratic polynomial, given the observations"
    if not _is_quadratic(learned):
        return "observations are predicted better than with a quadratic polynomial"
    if model.optimizer is None:
        return "the default"
    return "the default, its variance by maximum likelihood"


def _is_quadratic(learned):
    """Whether all equations are polynomials of degree 2, or less."""
    columns = np.ones(len(learned.setup.unknown_names(learned.variables)), bool)
    kernels = [equation.equation_kernel for equation in learned.equations]
    degrees = [kernel.degree_in(columns) for kernel in kernels if kernel is not None]
    return all(degree is not None and degree <= 2 for degree in degrees)


def why_equation_noise(model, search, names):
    given = model.equation_noise
    if model.equations is not None:
        given = {name: equation.noise for name, equation in model.equations}
    if not isinstance(given, dict):
        given = dict.fromkeys(names, given)
    own = [name for name in names if given.get(name) is not None]
    if len(own) == len(names):
        small = "none: states obey the equation far within the level that is given"
        return small if _are_exact(search) and any(given.values()) else "given"
    start = f"given for {', '.join(own)}; of the others " if own else ""
    return start + _why_free_noise(model, search)


def how_driven(fit):
    """In words that white noise drives states, or empty."""
    size = "likeliest" if fit.finds_noise else "given"
    return f"driven by white noise of the {size} size" if fit.is_driven else ""


def _are_exact(search):
    """Whether states obey the equation, and no noise drives them."""
    return search.exact_error is not None and not search.driven


def _why_free_noise(model, search):
    if search.driven:
        return "found with states and terms, as the likeliest level"
    if _are_exact(search):
        return "none, as exact states obey the equation"
    if not hasattr(model, "loss_curve_"):
        return "fitted along with the equation kernel"
    reason = "a small part of the size of the unknown part"
    if search.learned_with is None:
        return reason
    return f"{reason}, or less if that suits the data better"


class Observed(NamedTuple):
    """Values (n,) of an operator, those that the states have, and precisions."""

    name: str
    values: np.ndarray
    fitted: np.ndarray
    weights: np.ndarray

    @property
    def errors(self):
        """Residuals (n,) in units in which their noise is even."""
        return (self.fitted - self.values) * np.sqrt(self.weights)


def observed_and_fitted(learned):
    """What was seen of each operator, a list of Observed, with a LearnedModel."""
    functions, seen = learned.observations.functions, []
    for j, operator in enumerate(learned.observations.operators):
        own = [data.of_operator(j) for data in functions]
        pairs = zip(own, learned.states, strict=True)
        fitted = [s.evaluate(d.points, operator) for d, s in pairs if len(d.values)]
        values = np.concatenate([d.values for d in own])
        weights = np.concatenate([d.weights for d in own])
        seen.append(Observed(operator.name, values, np.concatenate(fitted), weights))
    return seen


def heteroscedastic(learned, chance=1e-3, least=2.0, rounding=1e-3):
    """Operators whose residuals grow with their values, each in a sentence.

    A noise level holds for all values of an operator. If noise is a part of each value,
    large ones count for too much, and terms and noise levels may be wrong. Not asked
    of two steps: states that are found without an equation follow the noise where it is
    large (decays with noise of 10 % leave less there than elsewhere).

    Spearman's rank correlation test (Gujarati, Basic Econometrics, 2003, section 11.5).

    learned : LearnedModel. States, which leave the residuals.
    chance : float. Probability of so high a rank correlation of residuals and values,
        without signs, by chance. With noise of 3 % of each value 52 of 104 states of 63
        systems in the sciences have it, and none of 125 with even noise of 3 %.
    least : float. Ratio of the residuals, root mean square, of the larger half of the
        values and the smaller one, from which on it is told.
    rounding : float. Residuals below this part of the size of values are left alone.
    """
    sentences = []
    for seen in observed_and_fitted(learned):
        sizes, errors = np.abs(seen.fitted), seen.errors
        if len(sizes) < 4 or rms(errors) < rounding * rms(sizes):
            continue
        large = sizes > np.median(sizes)
        ratio = rms(errors[large]) / (rms(errors[~large]) or 1.0) if any(large) else 1.0
        if ratio <= least:
            continue
        rank = stats.spearmanr(sizes, np.abs(errors), alternative="greater")
        if rank.pvalue < chance:
            sentences.append(
                f"residuals of {seen.name} grow with its values: they are "
                f"{multiple(ratio)} times as large among the larger half of these. If "
                "noise is a part of each value, say so to fit with sample_weight, such "
                "as 1 / value**2: else large values count for too much, and terms may "
                "be wrong"
            )
    return sentences
