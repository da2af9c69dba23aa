"""States by kernel ridge regression, then the equation from their features."""

from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state

from keql._numerics.arguments import naming
from keql._numerics.linalg import extent_of, ridge, rms, size_or_one
from keql._numerics.optimisation import Interruption
from keql._observations.data import Sample, size_of
from keql._regression.hidden import (
    hidden_operators,
    hidden_state_kernel,
    involves,
    with_prior_values,
    with_prior_variance,
)
from keql._regression.likelihood import fit_given_kernel, fit_state, maximise_likelihood
from keql._regression.state_prior import (
    fit_ring_prior,
    fit_state_prior,
    refuse_other_periods,
)
from keql.equation import (
    LearnedEquation,
    LearnedModel,
    NoUnknownPart,
    make_basis,
    regression_posterior,
    regression_rows,
)
from keql.kernels import (
    RBF,
    Constant,
    Dictionary,
    Polynomial,
    Product,
    Sum,
    SystemKernel,
    as_kernel,
    map_states,
)


@dataclass(frozen=True)
class Hypothesis:
    """What a fit supposes of states and equation; None: it is to be chosen.

    Free hyperparameters of the kernels, those of the states and of P, are a start. A
    polynomial P has `n_terms` terms, an int, or "auto" to choose them; None: all. The
    noise levels are standard deviations, in the units of y and of the forcing. The
    `constraint` is "collocation", where the equation is imposed at points,
    "integration", where states are integrated, or "driven", the same by white noise of
    an open level. With `has_functions`, terms can be functions. Reports show `name`.

    Of systems, what is said of states, or of equations, may be a dict by name; an entry
    that is missing leaves the choice open. `observation_noise` may also name operators
    of which values were observed.
    """

    state_kernel: object = None
    equation_kernel: object = None
    n_terms: object = None
    observation_noise: float | None = None
    equation_noise: float | None = None
    constraint: str = "collocation"
    has_functions: bool = False
    name: str = "quadratic polynomial"

    def of_state(self, name):
        """What is supposed of one state, or of the values of an operator."""
        return replace(
            self,
            state_kernel=entry_of(self.state_kernel, name),
            observation_noise=entry_of(self.observation_noise, name),
        )

    def of_equation(self, name):
        """What is supposed of one equation."""
        return replace(
            self,
            equation_kernel=entry_of(self.equation_kernel, name),
            n_terms=entry_of(self.n_terms, name, "auto"),
            equation_noise=entry_of(self.equation_noise, name),
        )

    def with_listed_terms(self, setup, variables):
        """The hypothesis with `n_terms` "auto" only where P has a list of terms.

        Others keep all that their kernels have. That of a single equation is no dict.
        """
        names = setup.unknown_names(variables)
        found = {}
        for terms in setup.equations:
            own = self.of_equation(terms.name)
            found[terms.name] = own.n_terms
            if terms.depends_on is None or not _has_terms(own, names):
                found[terms.name] = None if own.n_terms == "auto" else own.n_terms
        if not setup.is_system:
            [found] = found.values()
        return replace(self, n_terms=found)

    def noise_levels(self, operators):
        """Those that are given of observed operators (J,); others are not a number."""
        given = [self.of_state(own.name).observation_noise for own in operators]
        return np.array(given, dtype=float)

    def open_states(self, names):
        """Those of the named states whose kernel is to be chosen."""
        return [name for name in names if self.of_state(name).state_kernel is None]

    def open_equations(self, names):
        """Those of the named equations whose noise level is to be chosen."""
        noise = {name: self.of_equation(name).equation_noise for name in names}
        return [name for name in names if noise[name] is None]


def _has_terms(hypothesis, names):
    """Whether P of the named columns has a finite list of terms."""
    d = len(names)
    if hypothesis.equation_kernel is None:
        return True
    with naming("equation_kernel"):
        kernel = as_kernel(hypothesis.equation_kernel).bind(names)
        n_features = kernel.n_features(d)
    if n_features is None or kernel.feature_names is not None:
        return kernel.feature_names is not None
    # Some need numbers to say it, whichever.
    rows = 1 + 0.5 * np.sin(np.arange(d * (d + 2))).reshape(d + 2, d)
    with naming("equation_kernel"), np.errstate(all="ignore"):
        return kernel.scaled_to(rows).feature_polynomials(d) is not None


def entry_of(given, name, default=None):
    """What is given for a name: the entry of a dict, or what is given for all.

    An entry that is missing is the default.
    """
    given = given.kernels if isinstance(given, SystemKernel) else given
    return given.get(name, default) if isinstance(given, dict) else given


@dataclass(frozen=True)
class FitSettings:
    """How hypotheses are fitted, whatever they say: parameters of the estimators.

    `state_penalty` is lambda, the weight of the squared RKHS norms of the states, and P
    has `n_inducing` inducing points. With `reduced` states are sought in the span of
    `n_basis` kernel functions; None: one at each collocation point. The `solver`,
    "auto", "dual" or "primal", says how a state of the joint problem is represented.
    Likelihoods have an `optimizer` (a name, a callable or None) and `n_restarts`
    further starts, the least-squares loop has `max_iter` and `tol`. There are `n_jobs`
    threads that work on different functions, and a `random_state` for what is drawn.
    Hyperparameters of the equation kernel are found from `n_likelihood_rows` rows of
    features, evenly spaced, at most: the likelihood takes their number cubed. Values of
    operators of states that were never observed themselves have the noise level
    `hidden_noise`, relative to their size, unless one is given.
    """

    state_penalty: float = 1.0
    n_inducing: int = 500
    n_basis: int | None = None
    reduced: bool = False
    solver: str = "auto"
    optimizer: object = "fmin_l_bfgs_b"
    n_restarts: int = 0
    max_iter: int = 300
    tol: float = 1e-6
    n_jobs: int | None = None
    random_state: object = None
    n_likelihood_rows: int = 500
    hidden_noise: float = 1e-2

    def with_own_seed(self):
        """The settings with an int as `random_state`.

        A search states its problems again and again, and what is drawn for them, such
        as the span of the states, has to be the same each time.
        """
        if isinstance(self.random_state, Integral):
            return self
        rng = check_random_state(self.random_state)
        return replace(self, random_state=int(rng.randint(2**31 - 1)))


def fit_two_steps(hypothesis, observations, variables, setup, settings, n_restarts=0):
    """The two-step solution, its free hyperparameters of maximum likelihood.

    A LearnedModel, from the Hypothesis about kernels and noise levels, the Observations
    of all functions, the names of the coordinates, an EquationSetup (None: states are
    fitted without an equation), the FitSettings, and the number of further starts of
    the likelihood of the state kernel. If that is interrupted from the keyboard, the
    solution is that of the best hyperparameters until then, and `is_stopped`.
    """
    rng, interruption = check_random_state(settings.random_state), Interruption()
    how = {"n_restarts": n_restarts, "rng": rng, "interruption": interruption}
    given = hypothesis, observations, variables, settings, how
    kernel, noise = _fit_state_kernels(*given)
    learned = LearnedModel(observations, variables, setup, kernel, noise)
    learned = _fit_states(learned, hypothesis, settings, rng, interruption)
    return replace(learned, is_stopped=interruption.has_come)


def refit_two_steps(two_step, hypothesis, settings, kernel, values=None):
    """The two-step solution for another state kernel or another equation kernel.

    The LearnedModel `two_step` has the noise of the observations, the Hypothesis the
    equation kernel; the state `kernel` is used as it is. With `values`, one array of
    shape (N_m + Q' K_m,) for each function, the equation is learned from these values
    of states and operators, and the result, a LearnedModel, has no states; None: states
    are fitted to the observations.
    """
    rng = check_random_state(settings.random_state)
    learned = replace(two_step, state_kernel=kernel, states=None)
    if values is None:
        return _fit_states(learned, hypothesis, settings, rng)
    n_observed = [len(data.values) for data in two_step.observations.functions]
    imposed = [z[n:] for z, n in zip(values, n_observed, strict=True)]
    S = two_step.setup.features(imposed)
    return _learn_equations(learned, S, hypothesis, settings, rng)


def _fit_state_kernels(hypothesis, observations, variables, settings, how):
    """State kernel, or those of all states, and the noise level (J,) of each operator.

    The values of operators other than the states themselves have the noise level of
    their state, relative to the size of the values. `how` has what an optimiser is
    told besides.
    """
    how = {"optimizer": settings.optimizer, **how}
    kernels, relative = {}, {}
    for state in observations.states:
        own = hypothesis.of_state(state)
        kernel = own.state_kernel
        if kernel is not None:
            kernel = as_kernel(kernel).bind(variables)
            refuse_other_periods(kernel, state, observations)
        samples = observations.of_state(state)
        if samples and state not in observations.hidden_states:
            kernels[state], level = _fit_state_kernel(
                kernel,
                own.observation_noise,
                samples,
                settings,
                how,
                observations.periods,
            )
            relative[state] = level / size_of(samples)
        else:
            kernels[state] = kernel or _kernel_of_hidden(samples, observations)
    fallback = np.mean(list(relative.values())) if relative else settings.hidden_noise
    levels = []
    for operator, size in zip(
        observations.operators, observations.sizes(), strict=True
    ):
        given = hypothesis.of_state(operator.name).observation_noise
        level = relative.get(operator.state, fallback) * size
        levels.append(level if given is None else given)
    if len(kernels) == 1:
        return kernels[observations.states[0]], np.array(levels)
    return SystemKernel(kernels), np.array(levels)


def _fit_state_kernel(kernel, noise, samples, settings, how, periods):
    """Kernel and noise of one state, of maximum likelihood or posterior density."""
    # A prior covariance kernel / lambda has the likelihood of the kernel with all
    # variances, those of the noise included, times lambda.
    root = settings.state_penalty**0.5
    scaled = [Sample(d.points, d.values * root, d.weights) for d in samples]
    noise = None if noise is None else noise * root
    if kernel is None and periods is not None:
        kernel, noise = fit_ring_prior(scaled, noise, periods, **how)
    elif kernel is None:
        kernel, noise = fit_state_prior(scaled, noise, **how)
    else:
        kernel, noise = fit_given_kernel(kernel, noise, scaled, **how)
    return kernel, noise / root


def _kernel_of_hidden(samples, observations, length=0.1):
    """A kernel of a `length` in units of the extent of the points."""
    points = np.concatenate([data.points for data in observations.functions])
    return hidden_state_kernel(samples, length * extent_of(points), observations)


def _fit_states(learned, hypothesis, settings, rng, interruption=None):
    """Both steps, with the state kernel and the noise level of `learned`."""
    scale = Constant(1 / settings.state_penalty, "fixed")
    prior = map_states(lambda kernel: scale * kernel, learned.state_kernel)
    states = [
        fit_state(prior, learned.observation_noise, data)
        for data in learned.observations.functions
    ]
    learned = replace(learned, states=states, equations=(), equation_noise=np.empty(0))
    if learned.setup is None:
        return learned
    S = learned.setup.features_of(states)
    return _learn_equations(learned, S, hypothesis, settings, rng, interruption)


def _learn_equations(learned, S, hypothesis, settings, rng, interruption=None):
    """Second step: regression of f - Pbar on the features S of states."""
    setup, how = learned.setup, (hypothesis, settings, rng, interruption)
    forcing = setup.split(np.concatenate(setup.forcing))
    pairs = [
        _learn_equation(learned, terms, own, right, *how)
        for terms, own, right in zip(
            setup.equations, setup.split(S), forcing, strict=True
        )
    ]
    equations, noise = zip(*pairs, strict=True)
    return replace(learned, equations=equations, equation_noise=np.array(noise))


def _learn_equation(
    learned, terms, S, forcing, hypothesis, settings, rng, interruption
):
    """One equation from the features S (n, d + Q') of states, and its noise level."""
    setup, variables = learned.setup, learned.variables
    hypothesis = hypothesis.of_equation(terms.name)
    target = forcing - terms.known_part(S)
    if not np.all(np.isfinite(target)):
        raise ValueError(
            f"known_part is not finite at {np.sum(~np.isfinite(target))} of "
            f"{len(target)} collocation points, for the features of states that were "
            "fitted to the observations: it must be finite there."
        )
    unknown = S[:, : len(setup.unknown_names(variables))]
    is_hidden, typical = _typical_features(learned, terms, S)
    if terms.depends_on is None:
        basis, noise = NoUnknownPart(), rms(target)
        weights, posterior = np.empty(0), None
    else:
        size = size_or_one(forcing - terms.known_part(typical))
        kernel = _bind_equation_kernel(
            hypothesis,
            terms,
            setup,
            typical[:, : unknown.shape[1]],
            size,
            variables,
            settings.optimizer,
        )
        kernel = with_prior_variance(kernel, size) if is_hidden else kernel
        stride = -(-len(target) // settings.n_likelihood_rows)
        rows, sampled = unknown[::stride], target[::stride]
        sample = Sample(rows, sampled, np.ones(len(sampled)))
        kernel, noise = maximise_likelihood(
            kernel,
            hypothesis.equation_noise,
            [sample],
            optimizer=settings.optimizer,
            interruption=interruption,
        )
        kernel = _with_own_scale(kernel)
        basis = make_basis(kernel, unknown, settings.n_inducing, rng)
        features, right = regression_rows(basis, unknown, target)
        weights = ridge(features, right, noise)
        posterior = regression_posterior(features, right, noise, weights)
    return learned_equation(learned, terms, basis, weights, S, posterior), noise


def learned_equation(learned, terms, basis, weights, S, posterior):
    """A LearnedEquation of a LearnedModel, from the EquationTerms and what was found.

    `S` (n, d + Q') are the features of the states that it was learned from.
    """
    setup = learned.setup
    parts = setup.operators, setup.n_operators, terms.known_part, basis, weights
    origin = learned.state_kernel, S, terms.has_forcing, posterior
    names = learned.observations.states, setup.inputs.names
    return LearnedEquation(learned.variables, *parts, *origin, *names)


def _typical_features(learned, terms, S):
    """Whether hidden states have a part in an equation, and features of right size."""
    first = len(learned.variables) + len(learned.setup.inputs.names)
    hidden = hidden_operators(learned)
    if not hidden or not involves(terms, S, first, hidden):
        return False, S
    return True, with_prior_values(learned, S, first, hidden)


def _bind_equation_kernel(
    hypothesis, terms, setup, unknown, size, variables, optimizer
):
    """The equation kernel on the columns of the features, scaled to them.

    `size` is the root mean square of what P has to explain. Without an `optimizer` a
    given kernel is used as it is, otherwise its scale is found.
    """
    kernel = hypothesis.equation_kernel
    kernel = polynomial_kernel(size) if kernel is None else kernel
    with naming("equation_kernel"):
        kernel = as_kernel(kernel)
    names, d = setup.unknown_names(variables), len(variables)
    n_coordinates = d + len(setup.inputs.names)
    inputs = range(d, n_coordinates)
    operators = (n_coordinates + q for q in terms.depends_on)
    columns = tuple(sorted([*inputs, *operators]))
    with naming("equation_kernel"):
        bound = kernel.bind(names, default=columns).scaled_to(unknown)
        bound = bound if optimizer is None else with_scale(bound, unknown, size)
        with np.errstate(over="ignore"):
            squares = bound.diag(unknown) ** 2  # normal equations have them
        if not np.all(np.isfinite(squares)):
            raise ValueError(
                f"{bound}, or its square, is not finite at the features of states that "
                "were fitted to the observations: choose a lower degree, a smaller "
                "variance or another kernel."
            )
        bound(unknown[:1])  # says what else is wrong with its numbers
        bound.feature_map(unknown[:1])
    return bound


def with_scale(kernel, S, size):
    """A kernel of P with a scale that suits, unless it was said to be fixed or bounded.

    Each summand without a :class:`keql.kernels.Constant` as a factor gets one, and a
    Constant with its default bounds, which are a matter of units, has those of a free
    variance instead. `size` is the root mean square of what P has to explain, and S
    (n, d) are features.

    The variance of polynomials, and of others with few features, is free. Any values at
    all are likely for P of another kernel if its variance is large: where features are
    wrong by more than the equation is allowed to, as between few observations, the
    likelihood has no other maximum. Then the prior variance of P is the square of the
    size, in the mean over the features.
    """
    if isinstance(kernel, Sum):
        return Sum(*(with_scale(part, S, size) for part in (kernel.k1, kernel.k2)))
    if _has_scale(kernel):
        return _with_wide_bounds(kernel, size)
    if kernel.n_features(S.shape[1]) is not None:
        return _variance(size) * kernel
    variance = size**2 / size_or_one(np.sqrt(kernel.diag(S))) ** 2
    return Constant(variance, "fixed") * kernel


def _has_scale(kernel):
    """Whether a Constant is a factor of a kernel."""
    if isinstance(kernel, Product):
        return _has_scale(kernel.k1) or _has_scale(kernel.k2)
    return isinstance(kernel, Constant)


def _with_own_scale(kernel):
    """A dictionary times its variance as a dictionary, which can list its terms."""
    if not isinstance(kernel, Product) or not isinstance(kernel.k1, Constant):
        return kernel
    functions = kernel.k2
    if not isinstance(functions, Dictionary):
        return kernel
    scales = kernel.k1.constant_value**0.5 * functions.feature_scales()
    return Dictionary(functions.functions, scales, functions.columns)


def _with_wide_bounds(kernel, size):
    """A product, its Constants of default bounds with those of a free variance."""
    if isinstance(kernel, Product):
        factors = kernel.k1, kernel.k2
        return Product(*(_with_wide_bounds(factor, size) for factor in factors))
    default = Constant().constant_value_bounds
    bounds = getattr(kernel, "constant_value_bounds", None)
    if bounds is None or not np.array_equal(bounds, default):
        return kernel
    free = _variance(size)
    lower, upper = free.constant_value_bounds
    start = kernel.constant_value
    return free.set_params(constant_value=start if lower <= start <= upper else size**2)


def polynomial_kernel(size, degree=2, columns=None):
    """A kernel of polynomials, with a free variance.

    `size` is the root mean square of what P has to explain. `columns` are the positions
    of the features that they depend on; None: the inputs and operators.
    """
    return _variance(size) * Polynomial(degree, active_dims=columns)


def varying_coefficient_kernel(size, points, periods=None, length=1.0):
    """A kernel of linear equations with smoothly varying coefficients, free variance.

    `size` is the root mean square of what P has to explain. The length scale of the
    coefficients is `length` in units of the extent of the points (n, d): the features
    of two-step states are too poor to estimate it from. They have the `periods` of the
    coordinates.
    """
    columns, lengths = tuple(range(points.shape[1])), length * extent_of(points)
    coefficients = RBF(lengths, "fixed", active_dims=columns, period=periods)
    return _variance(size) * coefficients * Polynomial(1)


def _variance(size, limits=(1e-6, 1e6)):
    """A free variance, its bounds in units of the square of `size`."""
    return Constant(size**2, tuple(np.multiply(limits, size**2)))
