"""SINDy as a baseline, on the derivatives of a kernel interpolant.

The state is that of the first of the two steps, its derivatives are exact ones of the
interpolant, the dictionary is that of the equation kernel and the sparse regression is
pysindy's sequentially thresholded least squares. No threshold is published: the one
with the least Bayesian information criterion is taken.
"""

import warnings

import numpy as np

THRESHOLDS = (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
ENSEMBLE = 20
# Weak form: grid of the state, number of test functions, exponents of u, u_x, u_xx.
WEAK_GRID, WEAK_PLACES = 101, 300
WEAK_TERMS = {
    "u": (1, 0, 0),
    "u_1": (0, 1, 0),
    "u_11": (0, 0, 1),
    "uu_1": (1, 1, 0),
    "uu_11": (1, 0, 1),
}


def available():
    """Whether pysindy is there; says how to get it if not."""
    try:
        import pysindy  # noqa: F401
    except ImportError:
        print("SINDy is left out: pip install 'keql[benchmark]'")
        return False
    return True


class SindyEquation:
    """A sparse polynomial of the operators; `unknown_part` as a LearnedEquation has."""

    def __init__(self, powers, coefficients, n_coordinates):
        self.powers = powers
        self.coefficients = coefficients
        self.n_coordinates = n_coordinates

    def unknown_part(self, S):
        """P at features: coordinates, then operators, then others."""
        stop = self.n_coordinates + self.powers.shape[1]
        columns = np.asarray(S)[:, self.n_coordinates : stop]
        return dictionary(columns, self.powers) @ self.coefficients

    def value(self, *columns):
        """P of arrays, one for each operator; autograd differentiates it."""
        total = 0.0
        for powers, coefficient in zip(self.powers, self.coefficients, strict=True):
            if coefficient:
                term = coefficient
                for column, power in zip(columns, powers, strict=True):
                    for _ in range(power):
                        term = term * column
                total = total + term
        return total


def dictionary(columns, powers):
    """All monomials at rows of operators."""
    return np.prod(columns[:, None, :] ** powers, axis=2)


def monomial_powers(n_operators, degree):
    """Exponents (p, Q) of all monomials in the operators, the constant included."""
    import pysindy

    library = pysindy.PolynomialLibrary(degree=degree).fit(np.ones((1, n_operators)))
    return np.asarray(library.powers_, dtype=int)


def sparse_regression(Theta, target, ensemble=False, random_state=0):
    """Coefficients (p,) of the columns of `Theta` (n, p), of the best threshold."""
    import pysindy

    # Thresholds mean the same for all terms once these have unit size.
    sizes = np.sqrt(np.mean(Theta**2, axis=0))
    unit = np.sqrt(np.mean(target**2))
    best = None
    for threshold in THRESHOLDS:
        optimizer = pysindy.STLSQ(threshold=threshold, alpha=0.0)
        if ensemble:
            np.random.seed(random_state)  # noqa: NPY002, what pysindy draws from
            optimizer = pysindy.EnsembleOptimizer(
                optimizer, bagging=True, n_models=ENSEMBLE
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # thresholds that eliminate every term
            optimizer.fit(Theta / sizes, target[:, None] / unit)
        scaled = np.ravel(optimizer.coef_)
        rss = np.sum((Theta / sizes @ scaled - target / unit) ** 2)
        n = len(target)
        criterion = n * np.log(rss / n) + np.log(n) * np.count_nonzero(scaled)
        if best is None or criterion < best[0]:
            best = criterion, scaled * unit / sizes
    return best[1]


def learn_sindy(two_step, degree, ensemble=False, random_state=0):
    """Sparse regression on the features of a fitted TwoStepKEqL.

    Parameters
    ----------
    two_step : TwoStepKEqL
        Fitted, of one function; the features of its state are used, not its equation.
    degree : int
        Of the polynomials in the dictionary.
    ensemble : bool, default=False
        Whether the median of fits to resampled rows is taken.
    random_state : int, default=0
        Of the resampling.

    Returns
    -------
    SindyEquation
    """
    learned = two_step.equation_
    points = two_step.collocation_points_[0]
    S = learned.features(two_step, points)
    forcing = two_step.forcing
    target = 0.0 if forcing is None else forcing(points)
    # P = f - Pbar, and equation_ = P + Pbar.
    target = target - (learned(S) - learned.unknown_part(S))
    d, n_operators = points.shape[1], len(two_step.operators)
    columns = S[:, d : d + n_operators]
    powers = monomial_powers(n_operators, degree)
    Theta = dictionary(columns, powers)
    found = sparse_regression(Theta, target, ensemble, random_state)
    return SindyEquation(powers, found, d)


def learn_weak_sindy(two_step, random_state=0):
    """Sparse regression of integrals against test functions: no derivative of u in t.

    Of an evolution equation u_t + P(u, u_x, u_xx) = 0 in one dimension of space, with
    the products of at most two factors that can be integrated by parts.

    Parameters
    ----------
    two_step : TwoStepKEqL
        Fitted; its state is evaluated on a grid.
    random_state : int, default=0
        Of the places of the test functions.

    Returns
    -------
    SindyEquation
    """
    import pysindy

    points = two_step.collocation_points_[0]
    low, high = points.min(axis=0), points.max(axis=0)
    t, x = np.linspace(low, high, WEAK_GRID).T
    grid = np.stack(np.meshgrid(x, t, indexing="ij"), axis=-1)
    u = two_step.predict(grid[..., ::-1].reshape(-1, 2)).reshape(len(x), len(t), 1)
    library = pysindy.WeakPDELibrary(
        function_library=pysindy.PolynomialLibrary(degree=1, include_bias=False),
        derivative_order=2,
        spatiotemporal_grid=grid,
        K=WEAK_PLACES,
        H_xt=list((high - low)[::-1] / 10),
    )
    np.random.seed(random_state)  # noqa: NPY002, what pysindy draws from
    u = pysindy.AxesArray(u, pysindy.utils.comprehend_axes(u))
    library.fit([u])
    Theta = np.asarray(library.transform([u])[0])
    target = np.ravel(library.convert_u_dot_integral(u))
    powers = np.array([WEAK_TERMS[n] for n in library.get_feature_names(["u"])])
    return SindyEquation(powers, -sparse_regression(Theta, target), 2)
