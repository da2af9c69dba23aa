"""The prior of initial values, of those at both ends in space, and of weights."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from keql._numerics.linalg import extent_of, size_or_one
from keql._observations.data import noise_range
from keql._regression.hidden import with_fixed_bounds
from keql.kernels import RBF, Constant, Matern, Sum


@dataclass(frozen=True)
class PointsWithSlopes:
    """Points of the boundary, some of which stand for slopes in time.

    points : ndarray of shape (c, d). All of them.
    slopes : slice. Which of them stand for slopes.
    axis : int. The coordinate of time.
    """

    points: np.ndarray
    slopes: slice
    axis: int

    def __len__(self):
        return len(self.points)

    def covariance(self, kernel):
        """Prior covariance (c, c), the kernel that of the function itself."""
        return self._put(kernel(self.points), self._rows(kernel))

    def covariance_with(self, kernel, points):
        """Prior covariance (c, n) with values at other points (n, d)."""
        K, once = kernel(self.points, points), self._once
        K[self.slopes] = kernel.derivative(self.points[self.slopes], points, once, None)
        return K

    @property
    def _once(self):
        """The multi-index of a derivative in time."""
        return tuple(int(i == self.axis) for i in range(self.points.shape[1]))

    def _rows(self, kernel):
        """Prior covariances (s, c) of the slopes."""
        moving, once = self.points[self.slopes], self._once
        rows = kernel.derivative(moving, self.points, once, None)
        rows[:, self.slopes] = kernel.derivative(moving, moving, once, once)
        return rows

    def _put(self, K, rows):
        """K, with the rows and columns of slopes put in."""
        K[self.slopes], K[:, self.slopes] = rows, rows.T
        return K


class StateKernels:
    """The kernels of the boundary values of several states, independent of each other.

    kernels : tuple of Kernel. Of each state. Hyperparameters follow one another.
    """

    def __init__(self, kernels):
        self.kernels = tuple(kernels)

    def __str__(self):
        return ", ".join(map(str, self.kernels))

    @property
    def n_dims(self):
        """Number of hyperparameters."""
        return sum(kernel.n_dims for kernel in self.kernels)

    @property
    def theta(self):
        """Logarithms (n,) of the hyperparameters of all kernels."""
        return np.concatenate([kernel.theta for kernel in self.kernels])

    @property
    def bounds(self):
        """Their bounds (n, 2)."""
        return np.vstack([np.reshape(k.bounds, (-1, 2)) for k in self.kernels])

    def clone_with_theta(self, theta):
        """The kernels with other hyperparameters."""
        ends = np.cumsum([kernel.n_dims for kernel in self.kernels])[:-1]
        pairs = zip(self.kernels, np.split(theta, ends), strict=True)
        return StateKernels([kernel.clone_with_theta(own) for kernel, own in pairs])


@dataclass(frozen=True)
class PointsOfStates:
    """Points of the boundary of several states.

    points : ndarray of shape (c, d). All of them.
    states : ndarray of shape (c,). Position of the state of each.
    slopes : slice, default=slice(0). Which of them stand for slopes in time.
    axis : int, default=0. The coordinate of time.
    """

    points: np.ndarray
    states: np.ndarray
    slopes: slice = field(default_factory=lambda: slice(0))
    axis: int = 0

    def __len__(self):
        return len(self.points)

    def of(self, k):
        """Rows of those of a state, and its points (c_k, d) or PointsWithSlopes."""
        rows = np.flatnonzero(self.states == k)
        points, slopes = self.points[rows], _among(rows, self.slopes)
        if slopes.start == slopes.stop:
            return rows, points
        return rows, PointsWithSlopes(points, slopes, self.axis)

    def covariance(self, kernel):
        """Prior covariance (c, c), the kernel a StateKernels."""
        K = np.zeros((len(self), len(self)))
        for k, own in enumerate(kernel.kernels):
            rows, boundary = self.of(k)
            K[np.ix_(rows, rows)] = _covariance(boundary, own)
        return K

    def covariance_with(self, kernel, others):
        """Prior covariance (c, n) with values at other points of states."""
        K = np.zeros((len(self), len(others)))
        for k, own in enumerate(kernel.kernels):
            rows, boundary = self.of(k)
            columns, points = others.of(k)
            K[np.ix_(rows, columns)] = covariance_with(boundary, own, points)
        return K


def boundary_points(grid):
    """Points (c, d) of the boundary of an EvolutionGrid, as their prior takes them."""
    if len(grid.states) > 1:
        given = grid.boundary, grid.states_of_boundary
        return PointsOfStates(*given, grid.rows_of_slopes, grid.axis)
    if grid.order == 1:
        return grid.boundary
    return PointsWithSlopes(grid.boundary, grid.rows_of_slopes, grid.axis)


def points_at(boundary, places):
    """Some points of the boundary, at sorted positions that include those of slopes."""
    if isinstance(boundary, np.ndarray):
        return boundary[places]
    kept = {"points": boundary.points[places]}
    if isinstance(boundary, PointsOfStates):
        kept["states"] = boundary.states[places]
    return replace(boundary, slopes=_among(places, boundary.slopes), **kept)


def _among(places, own):
    """The slice of those of sorted positions that are within a slice."""
    return slice(*np.searchsorted(places, [own.start or 0, own.stop]))


class Covariances:
    """Prior covariances on the boundary, for many hyperparameters of a kernel.

    points : ndarray of shape (c, d). Those of `slopes` stand for slopes in time, which
        is the coordinate `axis`.
    kernel : Kernel. Constant times a radial one; a fixed Constant may be added before.

    With g the profile of the radial kernel, q the squared distances in each coordinate
    in units of its length l, tau the distances in time and v the variance,

        cov(u, u) = v g + offset,     cov(u_t, u) = v tau g' / l_t^2,
        cov(u_t, u_t) = -v (g' + q_t g'') / l_t^2,

    the argument of g being half the sum of the q, and d q / d log l = -2 q.
    """

    def __init__(self, points, kernel, slopes=slice(0), axis=0):
        self.slopes, self.axis = slopes, axis
        self._scaled, self._offset = kernel, 0.0
        if isinstance(kernel, Sum):
            self._offset, self._scaled = kernel.k1.constant_value, kernel.k2
        constant, radial = self._scaled.k1, self._scaled.k2
        self._variance, self._lengths = constant.constant_value, radial.length_scale
        self._free_variance = not constant.hyperparameter_constant_value.fixed
        self._free_lengths = not radial.hyperparameter_length_scale.fixed
        differences = [np.subtract.outer(x, x) for x in points.T]
        self._tau = differences[axis][slopes]
        period = getattr(radial, "period", None)
        self._d = points.shape[1]
        lengths = np.broadcast_to(np.inf if period is None else period, self._d)
        for x, p in zip(differences, lengths, strict=True):
            if np.isfinite(p):  # chords of a circle
                np.multiply(p / np.pi, np.sin(np.pi / p * x), out=x)
        self._squares = [x * x for x in differences]
        self._memory = np.empty((2 + self._d, len(points), len(points)))

    def at(self, theta):
        """The covariance (c, c) at log-hyperparameters (n,), and its slopes in these.

        The slopes are a list of n matrices. All are valid until the next call, which
        takes their memory: to be given new one took as long as to fill it.
        """
        v, lengths = self._read(theta)
        radial, rates = self._scaled.k2, 1 / lengths**2
        slopes = self._of_values(radial, v, rates)
        K = np.add(slopes[0], self._offset, out=self._memory[0])
        if self._tau.size:
            (rows, own), moving = self._of_slopes(radial, v, rates)
            self._put(K, rows, own)
            for slope, each in zip(slopes, moving, strict=True):
                self._put(slope, *each)
        return K, self._of_free(slopes)

    def _of_values(self, radial, v, rates, n_entries=2**14):
        """Covariances (c, c) of values without the offset, and slopes in the lengths.

        Made of rows of about `n_entries` entries, which stay in the cache.
        """
        c = len(self._squares[0])
        scaled, *on_lengths = self._memory[1:]
        step = max(1, n_entries // max(1, c))
        for rows in (slice(i, i + step) for i in range(0, c, step)):
            squares = [square[rows] for square in self._squares]
            rho = 0.5 * sum(map(np.multiply, rates, squares))
            g, first = radial.profile_derivatives(rho, [0, 1])
            np.multiply(v, g, out=scaled[rows])
            falling = -v * first
            for rate, square, slope in zip(rates, squares, on_lengths, strict=True):
                np.multiply(rate, falling * square, out=slope[rows])
        return [scaled, *on_lengths]

    def _put(self, K, rows, own):
        """Put the rows and columns of slopes and their own block into K."""
        s = self.slopes
        K[s], K[:, s] = rows, rows.T
        K[s, s] = own

    def _of_slopes(self, radial, v, rates):
        """Covariances (s, c) with values, (s, s) of slopes, then all their slopes.

        Those are in the logarithm of the variance, and in those of the lengths.
        """
        s, axis, rate = self.slopes, self.axis, v * rates[self.axis]
        q = [r * square[s] for r, square in zip(rates, self._squares, strict=True)]
        own_q = [each[:, s] for each in q]
        first, second, third = radial.profile_derivatives(0.5 * sum(q), [1, 2, 3])
        rows = rate * self._tau * first
        on_rows = [-rate * self._tau * each * second for each in q]
        on_rows[axis] -= 2 * rows
        q_t, second, third = own_q[axis], second[:, s], third[:, s]
        own = -rate * (first[:, s] + q_t * second)
        on_own = [rate * each * (second + q_t * third) for each in own_q]
        on_own[axis] += 2 * (rate * q_t * second - own)
        return (rows, own), [(rows, own), *zip(on_rows, on_own, strict=True)]

    def _read(self, theta):
        """The variance, and the lengths (d,)."""
        v, lengths = self._variance, self._lengths
        if self._free_variance:
            v, theta = np.exp(theta[0]), theta[1:]
        if self._free_lengths:
            lengths = np.exp(theta)
        return v, np.broadcast_to(lengths, self._d)

    def _of_free(self, slopes):
        """Those of free hyperparameters; one length may be that of all coordinates."""
        parts = slopes[:1] if self._free_variance else []
        if self._free_lengths:
            each = slopes[1:]
            parts = parts + (each if np.size(self._lengths) > 1 else [sum(each)])
        return parts


class FixedCovariances:
    """The same for a kernel of any kind without free hyperparameters.

    boundary : ndarray of shape (c, d), or PointsWithSlopes.
    kernel : Kernel.
    """

    def __init__(self, boundary, kernel):
        self._covariance = _covariance(boundary, kernel)

    def at(self, theta):
        """The covariance (c, c), and no slopes; `theta` is empty."""
        return self._covariance.copy(), []


def _covariance(boundary, kernel):
    """Prior covariance of boundary values, which are points or know their own."""
    if isinstance(boundary, np.ndarray):
        return kernel(boundary)
    return boundary.covariance(kernel)


def covariance_with(boundary, kernel, points):
    """The same (c, n) with values at other points (n, d), or PointsOfStates."""
    if isinstance(boundary, np.ndarray):
        return kernel(boundary, points)
    return boundary.covariance_with(kernel, points)


class CovariancesOfStates:
    """The same of all states, which are independent of each other.

    boundary : ndarray of shape (c, d), PointsWithSlopes or PointsOfStates.
    kernel : Kernel or StateKernels.

    blocks : list. Positions of the boundary values of each state; of all but a
        PointsOfStates there is one.
    """

    def __init__(self, boundary, kernel):
        if isinstance(boundary, PointsOfStates):
            kernels = kernel.kernels
            pairs = (boundary.of(k) for k in range(len(kernels)))
            self.blocks, own = zip(*pairs, strict=True)
        else:
            kernels, self.blocks, own = [kernel], [slice(None)], [boundary]
        self._parts = list(map(_covariances, own, kernels))
        self._ends = np.cumsum([kernel.n_dims for kernel in kernels])[:-1]

    def at(self, theta):
        """Of each block the covariance at log-hyperparameters (n,), and its slopes."""
        own = np.split(theta, self._ends)
        return [part.at(each) for part, each in zip(self._parts, own, strict=True)]


def _covariances(boundary, kernel):
    """Those of one state, for any hyperparameters of its kernel."""
    if not kernel.n_dims:
        return FixedCovariances(boundary, kernel)
    if isinstance(boundary, PointsWithSlopes):
        return Covariances(boundary.points, kernel, boundary.slopes, boundary.axis)
    return Covariances(boundary, kernel)


@dataclass(frozen=True)
class BoundaryPrior:
    """The prior of boundary values and weights, and the noise of observations.

    kernel : Kernel or StateKernels. Prior covariance on the boundary.
    noise : float or ndarray of shape (J,). Standard deviation of an observation of
        weight 1, in its units; of each of J observed operators if it is an array.
    scale : float. Prior standard deviation of the weights, in units of what two steps
        say: far from the true states equations seem to have no effect.
    free_noise, free_scale : bool, or ndarray of shape (J,). Whether noise and scale are
        of maximum likelihood, as the kernel is.
    max_scale : float. The scale is between 1 and this.
    log_odds : float. By which the data, in log likelihood, have to favour it over the
        prior with the kernel that a user gives the states; 0 for that one, and where
        none is given.
    """

    kernel: object
    noise: float | np.ndarray
    scale: float = 1.0
    free_noise: bool | np.ndarray = True
    free_scale: bool = True
    max_scale: float = 1e3
    log_odds: float = 0.0

    def levels(self, data):
        """The noise level (N,) that each observation of a function has, by position."""
        return np.zeros(len(data.values), int) if self._is_alike else data.index

    def variances(self, data):
        """Noise variances (N,) of the observations of a function."""
        return np.reshape(self.noise, -1)[self.levels(data)] ** 2 / data.weights

    @property
    def _is_alike(self):
        return np.ndim(self.noise) == 0

    def with_open_noise(self, start):
        """The prior with noise levels that are all found, those given from a start.

        The start is an array (J,), in the units of the observed operators.
        """
        noise = np.where(self.free_noise, self.noise, np.maximum(self.noise, start))
        if self._is_alike:
            return replace(self, noise=float(noise[0]), free_noise=True)
        return replace(self, noise=noise, free_noise=np.ones(len(noise), dtype=bool))

    def with_given_noise(self, other):
        """The prior with the noise levels that are not free in another one."""
        noise = np.where(other.free_noise, self.noise, other.noise)
        noise = float(noise) if self._is_alike else noise
        return replace(self, noise=noise, free_noise=other.free_noise)

    def bounds(self, sizes):
        """Of the logarithms of all hyperparameters, free or not; values of sizes."""
        levels = np.log(
            [*np.reshape(noise_range(sizes), (2, -1)).T, (1, self.max_scale)]
        )
        return np.vstack([np.reshape(self.kernel.bounds, (-1, 2)), levels])

    @cached_property
    def theta(self):
        """Logarithms of all hyperparameters: the kernel's, the noise, the scale."""
        return np.r_[self.kernel.theta, np.log(np.r_[self.noise, self.scale])]

    @cached_property
    def is_free(self):
        """Which of them are free."""
        kernel = np.ones(self.kernel.n_dims, dtype=bool)
        noise = np.broadcast_to(self.free_noise, np.size(self.noise))
        return np.r_[kernel, noise, self.free_scale]

    def covariance(self, boundary):
        """Prior covariance of boundary values.

        `boundary` has the points (c, d), or is a PointsWithSlopes or PointsOfStates.
        """
        return _covariance(boundary, self.kernel)

    def covariances(self, boundary):
        """The same for other hyperparameters of the kernel, with their effects."""
        return CovariancesOfStates(boundary, self.kernel)

    def with_theta(self, theta):
        """The prior with other values of the free hyperparameters."""
        values, n = self.theta.copy(), self.kernel.n_dims
        values[self.is_free] = theta
        noise = np.where(self.free_noise, np.exp(values[n:-1]), self.noise)
        noise = float(noise[0]) if self._is_alike else noise
        scale = np.exp(values[-1]) if self.free_scale else self.scale
        kernel = self.kernel.clone_with_theta(values[:n])
        return replace(self, kernel=kernel, noise=noise, scale=scale)


def boundary_kernels(points, values, order=1, periods=None, length=0.3):
    """Kernels on the boundary to start from, of different smoothness.

    An unknown offset and Matern kernels of some degrees, then one of smooth functions;
    the first length scales are a fraction of the extent of the points (n, d) that cover
    the box, between 0.02 and 30 of it, and variances between 0.01 and 1,000 of the mean
    square of the values (N,). If the equation is of second order in time, slopes have
    to exist. All have the `periods` of the coordinates.
    """
    extent, square = extent_of(points), size_or_one(values) ** 2
    offset = Constant(np.mean(values) ** 2, "fixed")
    variance = Constant(square, (1e-2 * square, 1e3 * square))
    bounds = np.outer(extent, (0.02, 30.0))
    degrees = (1.5, 2.5) if order == 1 else (2.5,)
    first = length * extent
    kernels = [Matern(first, bounds, nu=nu, period=periods) for nu in degrees]
    kernels.append(RBF(first, bounds, period=periods))
    return [offset + variance * kernel for kernel in kernels]


def boundary_priors(learned, points, order, noise, first_noise, exact, kept):
    """Priors of different smoothness; all states have kernels of the same one.

    The first one has the kernels that a user gives states, as they are. Others have
    more free hyperparameters, and have to be the more probable by the criterion of
    Schwarz, "Estimating the dimension of a model", Annals of Statistics 6, 1978.

    learned : LearnedModel. Observations and equations, of an order in time.
    points : ndarray of shape (n, d). They cover the box.
    noise : float, ndarray of shape (J,) or None. Noise levels that are given; nan: not.
    first_noise, exact : float. Others start at the first one, and all are no less than
        the second one, in units of the size of the observations.
    kept : dict of str to Kernel. Those that are given, by the names of their states.
    """
    observations = learned.observations
    functions, single = observations.functions, len(observations.operators) == 1
    sizes = observations.sizes()
    given = np.full(len(sizes), np.nan) if noise is None else np.reshape(noise, -1)
    given = given.astype(float)
    levels = np.where(np.isnan(given), first_noise * sizes, given)
    levels, is_free = np.maximum(levels, exact * sizes), np.isnan(given)
    kernels = []
    for state in observations.states:
        values = [sample.values for sample in observations.of_state(state)]
        given = points, np.concatenate(values), order, observations.periods
        own = boundary_kernels(*given)
        if kept:
            first = with_fixed_bounds(kept[state]) if state in kept else own[0]
            own = [first, *own]
        kernels.append(own)
    of_all = zip(*kernels, strict=True)
    kernels = [own[0] if len(own) == 1 else StateKernels(own) for own in of_all]
    price = 0.5 * np.log(sum(len(data.values) for data in functions))
    return tuple(
        BoundaryPrior(
            kernel,
            float(levels[0]) if single else levels,
            free_noise=bool(is_free[0]) if single else is_free,
            free_scale=any(
                e.equation_kernel is not None and e.equation_kernel.n_dims > 0
                for e in learned.equations
            ),
            log_odds=price * (kernel.n_dims - kernels[0].n_dims) if kept else 0.0,
        )
        for kernel in kernels
    )
