"""What an evolution equation leaves open, from observations that are linear in it.

Unknown are the weights w of the equation and, for each function, its initial values and
those at both ends in space, together the boundary values z_m. Their priors are
N(0, scale^2 I) and N(0, K), K a kernel on the boundary. The linearised equation makes
the observations of a function

    y_m = a_m + B_m w + C_m z_m + noise / sqrt(weights).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg

from keql._evolution.boundary.condensed import condensed
from keql._evolution.boundary.prior import points_at
from keql._numerics.linalg import (
    cholesky,
    inverse_lower,
    size_or_one,
    solve_lower,
)
from keql._numerics.scoring import minimise_by_scoring
from keql._observations.data import expected_noise
from keql._regression.likelihood import log_densities
from keql.equation import WeightPosterior


@dataclass(frozen=True)
class _Whitened:
    """Observations in units of their uncertainty if the weights are known.

    Of each function, of whose observations there are r_m rows, the factor L_m of its
    own covariance, and L_m^-1 times its target d_m, the effects Y_m (r_m, p) of weights
    and those F_m (r_m, c) of boundary values; and the factors Q (r + p, p), R (p, p) of
    all Y_m with the identity below, by which weights need no normal equations.
    """

    factors: list
    targets: list
    on_weights: list
    on_boundary: list
    Q: np.ndarray
    R: np.ndarray

    @cached_property
    def parts(self):
        """The rows of Q of each function, and those of the identity, as a list."""
        return np.split(self.Q, np.cumsum([len(d) for d in self.targets]))

    @cached_property
    def projected(self):
        """The target in the directions Q, of shape (p,)."""
        pairs = zip(self.parts, self.targets, strict=False)
        return sum(own.T @ target for own, target in pairs)

    @cached_property
    def residuals(self):
        """What the most probable weights leave of the targets, a list."""
        q = self.projected
        return [d - own @ q for own, d in zip(self.parts, self.targets, strict=False)]


class BoundaryValueRegression:
    """Weights and boundary values from observations.

    boundary : ndarray of shape (c, d), PointsWithSlopes or PointsOfStates. Of unknowns.
    maps : list of ndarray of shape (N_m, 1 + p + c). (a_m, B_m, C_m) of each function.
    functions : list of FunctionData. The observations.
    prior : BoundaryPrior. With the noise of the observations.
    rows : list of CondensedRows, default=None. The observations in fewer rows, where
        they are many; None: they are made.

    Boundary values of functions are independent, so that a covariance is factored for
    each of them alone: time and memory are linear in the number of functions.
    """

    def __init__(self, boundary, maps, functions, prior, rows=None):
        self.boundary, self.maps, self.functions = boundary, maps, functions
        self.prior = prior
        self.n_weights = p = maps[0].shape[1] - 1 - len(boundary)
        levels = [prior.levels(data) for data in functions]
        n_levels = np.size(prior.noise)
        self.rows = rows or [
            condensed(_with_target(data, own), at, data.weights, n_levels)
            for data, own, at in zip(functions, maps, levels, strict=True)
        ]
        self.targets = [own.matrix[:, 0] for own in self.rows]
        self.on_weights = [own.matrix[:, 1 : 1 + p] for own in self.rows]
        self.on_boundary = [own.matrix[:, 1 + p :] for own in self.rows]
        levels = np.concatenate(levels)
        values = np.concatenate([data.values for data in functions])
        self.n_values, self.sizes = len(values), np.ones(n_levels)
        self.counts = np.bincount(levels, minlength=n_levels)
        for j in np.unique(levels):
            self.sizes[j] = size_or_one(values[levels == j])

    @property
    def shift(self):
        """Log likelihood that the units of the observations make."""
        return float(self.counts @ np.log(self.sizes))

    def with_prior(self, prior):
        """The same observations with another prior."""
        own = self.boundary, self.maps, self.functions
        is_alike = np.shape(prior.noise) == np.shape(self.prior.noise)
        return BoundaryValueRegression(*own, prior, self.rows if is_alike else None)

    def log_likelihood(self, prior):
        """Log marginal likelihood of the observations, up to a constant.

        With it the gradient with respect to `prior.theta`, and the average information
        of that. The kernel differs from the prior's own one by its hyperparameters at
        most.
        """
        return self._log_likelihood(prior.theta)

    def _log_likelihood(self, theta):
        """The same for the logarithms of all hyperparameters, free or not.

        With P the inverse covariance of the targets y, and dG its slopes, the gradient
        is [y^T P dG P y - tr(P dG)] / 2, and y^T P dG P dG' P y / 2 the average of the
        information that is observed and that which is expected (Gilmour, Thompson and
        Cullis, "Average information REML", Biometrics 51, 1995).
        """
        if len(self._seen) < len(self.boundary):
            return self._of_what_is_seen._log_likelihood(theta)
        n = len(theta) - len(self.sizes) - 1
        noise, scale = np.exp(theta[n:-1]), np.exp(theta[-1])
        kernels, slopes = zip(*self._covariance_function.at(theta[:n]), strict=True)
        variances = self._variances(noise)
        whitened = self._whiten(kernels, variances, scale)
        blocks, on_noise = self._covariance_function.blocks, np.zeros(len(self.sizes))
        pulled = [np.zeros(K.shape) for K in kernels]
        effects = []  # L^-1 dG P y of each function, by columns
        for L, own, r, F, own_variances, rows in zip(
            whitened.factors,
            whitened.parts,
            whitened.residuals,
            whitened.on_boundary,
            variances,
            self.rows,
            strict=False,
        ):
            levels = rows.levels
            explained = np.column_stack([r, own])
            of_kernel = _pull_on(pulled, F, explained, blocks, slopes)
            back, inverse = solve_lower(L, explained, transposed=True), inverse_lower(L)
            alpha, by_weights = back[:, 0], np.sum(back[:, 1:] ** 2, axis=1)
            precisions = np.einsum("ij,ij->j", inverse, inverse) - by_weights
            on_levels = own_variances * (alpha**2 - precisions)
            on_noise += np.bincount(levels, on_levels, len(on_noise)) - rows.n_idle
            moved = np.zeros((len(alpha), len(on_noise)))
            moved[np.arange(len(alpha)), levels] = 2 * own_variances * alpha
            effects.append(np.column_stack([*of_kernel, inverse @ moved]))
        pairs = zip(pulled, slopes, strict=True)
        on_kernel = [0.5 * np.vdot(total, dK) for total, each in pairs for dK in each]
        below = whitened.parts[-1]  # R^-1
        weights = below @ whitened.projected
        on_scale = np.sum(weights**2) - self.n_weights + np.sum(below**2)
        value = -_loss(whitened) - self._log_volume(whitened, noise)
        gradient = np.r_[on_kernel, on_noise, on_scale]
        return value, gradient, _average_information(whitened, effects)

    def with_best_prior(self, precision=1e-6, box=2.0):
        """The regression with the free hyperparameters of maximum likelihood.

        With it minus the log likelihood, up to a constant that only the data decide;
        `precision` is relative, and `box` the largest change of a log-hyperparameter
        in one step of the optimiser.
        """
        bounds, is_free = self.prior.bounds(self.sizes), self.prior.is_free
        # In units of the values, so that the stopping rule knows none.
        shift = self.shift
        if not is_free.any():
            return self, -self.log_likelihood(self.prior)[0] - shift

        values = self.prior.theta.copy()

        def objective(theta):
            values[is_free] = theta
            value, gradient, information = self._log_likelihood(values)
            information = information[np.ix_(is_free, is_free)]
            return -value - shift, -gradient[is_free], information

        start = np.clip(values[is_free], *bounds[is_free].T)
        start, found = self._with_raised_noise(objective, start, bounds[is_free])
        theta, loss = minimise_by_scoring(
            objective, start, bounds[is_free], box, precision, found=found
        )
        return self.with_prior(self.prior.with_theta(theta)), loss

    def _with_raised_noise(self, objective, theta, bounds, least=0.5):
        """Free hyperparameters whose noise levels are no longer far too low.

        With these the objective there. Of n observations with such a level sigma minus
        the log likelihood is about ``r^2 / (2 sigma^2) + n log(sigma)``, of which a
        step of scoring adds at most `least` to log(sigma). This goes to the minimum.
        """
        is_free, n = self.prior.is_free, len(self.sizes)
        counts = np.r_[np.zeros(len(is_free) - n - 1), self.counts, 0][is_free]
        rows, found = np.flatnonzero(counts), objective(theta)
        while len(rows):
            falling = np.maximum(-found[1][rows], 0.0)
            raised = theta.copy()
            raised[rows] += 0.5 * np.log1p(falling / counts[rows])
            raised = np.clip(raised, *bounds.T)
            if np.max(raised - theta) < least:
                break
            there = objective(raised)
            if not there[0] < found[0]:
                break
            theta, found = raised, there
        return theta, found

    def whitened(self):
        """Rows (r,) and the effects (r, p) of the weights on them, whitened.

        They are the observations, or fewer where these are condensed.

        In units of the observations' uncertainty if the weights are known; the weights
        in units of their prior scale.
        """
        whitened = self._whitened
        return np.concatenate(whitened.targets), np.concatenate(whitened.on_weights)

    @property
    def n_free(self):
        """Number of observations: boundary values have a prior."""
        return self.n_values

    @property
    def level_range(self):
        """Between which multiples of theirs noise levels may be with other weights.

        They are not changed without the kernels of boundary values.
        """
        return 1.0, 1.0

    @cached_property
    def unknowns(self):
        """The most probable (1, weights, boundary values) of each function."""
        whitened = self._whitened
        return [
            np.r_[1.0, self.weights, self._covariance @ (F.T @ r)]
            for F, r in zip(whitened.on_boundary, whitened.residuals, strict=True)
        ]

    @cached_property
    def weights(self):
        """The most probable weights, of shape (p,)."""
        whitened = self._whitened
        return self.prior.scale * (whitened.parts[-1] @ whitened.projected)

    @property
    def loss(self):
        """The objective at its minimum, boundary values eliminated."""
        return _loss(self._whitened)

    @property
    def misfit(self):
        """Mean square of the residuals in units of the noise levels."""
        pairs = zip(self.functions, self._left_out, strict=True)
        total = sum(self.prior.variances(data) @ own[0] ** 2 for data, own in pairs)
        return float(total / self.n_values)

    def posterior_weights(self):
        """What the observations say about the weights, whatever the boundary values.

        As in a ridge regression, whitened by what else is uncertain.
        """
        lower = self._with_expected_noise._whitened.R.T / self.prior.scale
        return WeightPosterior(self.weights, lower, _loss(self._whitened))

    def leave_one_out(self):
        """Errors of predicting each observation from all others, for each function."""
        return [alpha / precisions for alpha, precisions in self._left_out]

    def left_out_log_densities(self):
        """Log densities (n,) of the observations, each given all others."""
        return np.concatenate([log_densities(*pair) for pair in self._left_out])

    @cached_property
    def _left_out(self):
        """What tells of each observation given all others, two arrays per function.

        The inverse covariance of all observations times their target, and the precision
        of predicting each from all others.
        """
        found, start, Q = [], 0, self._whitened.Q
        for m, (L, r) in enumerate(
            zip(self._whitened.factors, self._whitened.residuals, strict=True)
        ):
            rows = slice(start, start + len(L))
            start += len(L)
            if self.rows[m].is_rotated:
                found.append(self._left_out_of_many(m))
                continue
            inverse = solve_lower(L, np.eye(len(L)))
            # Columns of the projection off Q, whose squares are those of G^-1.
            off = -Q @ (Q[rows].T @ inverse)
            off[rows] += inverse
            alpha = solve_lower(L, r, transposed=True)
            found.append((alpha, np.sum(off**2, axis=0)))
        return found

    def _left_out_of_many(self, m, least=1e-12):
        """The same of a function with rotated rows, from its unknowns.

        An observation of leverage h, the part of its own noise variance that unknowns
        make uncertain, has the precision 1 - h in units of its own; `least` is that
        which rounding errors leave.
        """
        data, rows = self.functions[m], self.maps[m]
        precisions = 1 / self.prior.variances(data)
        residuals = data.values - rows @ self.unknowns[m]
        effects, covariance = rows[:, 1:], self._posterior_covariances[m]
        leverages = precisions * np.sum((effects @ covariance) * effects, axis=1)
        return precisions * residuals, precisions * np.maximum(1 - leverages, least)

    @cached_property
    def _with_expected_noise(self):
        """The regression with the noise that is expected where it is not given."""
        prior, n_left = self.prior, np.zeros(len(self.sizes))
        for data, (_, precisions) in zip(self.functions, self._left_out, strict=True):
            left = prior.variances(data) * precisions
            n_left += np.bincount(prior.levels(data), left, len(n_left))
        noise = expected_noise(prior.noise, n_left, prior.free_noise)
        if np.array_equal(noise, prior.noise):
            return self
        return self.with_prior(replace(prior, noise=noise))

    def covariances(self):
        """Posterior covariance (p + c, p + c) of the unknowns of each function."""
        return self._with_expected_noise._posterior_covariances

    @cached_property
    def _posterior_covariances(self):
        whitened, K, p = self._whitened, self._covariance, self.n_weights
        root_of_weights, covariances = self.prior.scale * whitened.parts[-1], []
        for own, F in zip(whitened.parts, whitened.on_boundary, strict=False):
            explained = F @ K
            root = np.vstack([root_of_weights, -explained.T @ own])
            covariance = root @ root.T
            covariance[p:, p:] += K - explained.T @ explained  # if weights are known
            covariances.append(covariance)
        return covariances

    def log_volume(self):
        """By which the log evidence is lower because the unknowns are uncertain."""
        return self._log_volume(self._whitened, np.reshape(self.prior.noise, -1))

    def _log_volume(self, whitened, noise):
        """Half the log determinant of the covariance of all observations."""
        logs = [np.log(np.diag(L)).sum() for L in whitened.factors]
        logs += [rows.log_volume(noise) for rows in self.rows]
        return float(sum(logs) + np.log(np.abs(np.diag(whitened.R))).sum())

    def _variances(self, noise):
        """Noise variances of the rows of each function, for noise levels (J,)."""
        return [noise[rows.levels] ** 2 / rows.weights for rows in self.rows]

    @cached_property
    def _covariance(self):
        """Prior covariance (c, c) of the boundary values."""
        return self.prior.covariance(self.boundary)

    @cached_property
    def _covariance_function(self):
        return self.prior.covariances(self.boundary)

    @cached_property
    def _seen(self):
        """Positions of the boundary values that observations depend on.

        An equation that leaves few values open at the ends has no effect of the others.
        Slopes are kept, which are at positions of their own.
        """
        seen = np.any([np.any(C, axis=0) for C in self.on_boundary], axis=0)
        seen[getattr(self.boundary, "slopes", slice(0))] = True
        return np.flatnonzero(seen)

    @cached_property
    def _of_what_is_seen(self):
        """The regression without the boundary values that have no effect at all."""
        columns = np.r_[: 1 + self.n_weights, 1 + self.n_weights + self._seen]
        maps = [rows[:, columns] for rows in self.maps]
        boundary = points_at(self.boundary, self._seen)
        own = boundary, maps, self.functions, self.prior
        rows = [each.columns(columns) for each in self.rows]
        return BoundaryValueRegression(*own, rows)

    @cached_property
    def _rows(self):
        """The target, and the effects of weights and boundary values, by columns."""
        return [np.asfortranarray(own.matrix) for own in self.rows]

    @cached_property
    def _whitened(self):
        variances = self._variances(np.reshape(self.prior.noise, -1))
        blocks = self._covariance_function.blocks
        kernels = [self._covariance[rows][:, rows] for rows in blocks]
        return self._whiten(kernels, variances, self.prior.scale)

    @cached_property
    def _on_blocks(self):
        """The effects of the boundary values of each state, of each function a list."""
        blocks = self._covariance_function.blocks
        return [[C[:, rows] for rows in blocks] for C in self.on_boundary]

    def _whiten(self, kernels, variances, scale):
        """The observations whitened by a prior.

        `kernels` are the covariances of the boundary values of each state, `variances`
        those of the noise of each function, and `scale` that of the weights.
        """
        columns, p = ([], [], [], []), self.n_weights
        for whole, parts, own in zip(
            self._rows, self._on_blocks, variances, strict=True
        ):
            pairs = zip(parts, kernels, strict=True)
            G = sum(C @ K @ C.T for C, K in pairs)
            np.einsum("ii->i", G)[:] += own
            L, rows = cholesky(G), whole.copy(order="F")
            rows[:, 1 : 1 + p] *= scale
            rows = solve_lower(L, rows, overwrite=True)
            parts = L, rows[:, 0], rows[:, 1 : 1 + p], rows[:, 1 + p :]
            for column, part in zip(columns, parts, strict=True):
                column.append(part)
        stacked = np.vstack([*columns[2], np.eye(p)])
        return _Whitened(*columns, *linalg.qr(stacked, mode="economic"))


def _with_target(data, rows):
    """The target of a function's observations, beside the effects of its unknowns."""
    return np.column_stack([data.values - rows[:, 0], rows[:, 1:]])


def _pull_on(pulled, F, explained, blocks, slopes):
    """Add what the observations of a function say of covariances to what others say.

    F (N_m, c) are the whitened effects of boundary values, `explained` (N_m, 1 + p)
    the residual and the directions of the weights, and `pulled` the sums for the
    `blocks` of independent boundary values. Returns the whitened effects (N_m,) of
    the slopes of their covariances.
    """
    effects = []
    for rows, total, own in zip(blocks, pulled, slopes, strict=True):
        C = F[:, rows]
        along = C.T @ explained
        total += along @ along.T
        total -= C.T @ C
        effects += [C @ (dK @ along[:, 0]) for dK in own]
    return effects


def _loss(whitened):
    """Half the squared norms of what observations and weights deviate by."""
    weights = whitened.parts[-1] @ whitened.projected
    return 0.5 * float(sum(r @ r for r in whitened.residuals) + weights @ weights)


def _average_information(whitened, effects):
    """The average information of hyperparameters, that of the scale the last of them.

    `effects` are those of the others (N_m, n) of each function, whitened.
    """
    n = len(effects)
    on_weights = whitened.on_weights
    pairs = zip(on_weights, whitened.residuals, strict=True)
    along = 2 * sum(Y.T @ r for Y, r in pairs)
    moved = [
        np.column_stack([own, Y @ along])
        for own, Y in zip(effects, on_weights, strict=True)
    ]
    pairs = zip(whitened.parts[:n], moved, strict=True)
    inside = sum(own.T @ each for own, each in pairs)
    total = sum(each.T @ each for each in moved)
    return 0.5 * (total - inside.T @ inside)


def boundary_loss(prior, points, weights, boundary, residuals, variances):
    """The objective for any weights and boundary values.

    prior : BoundaryPrior. Of them.
    points : ndarray of shape (c, d) or PointsWithSlopes. Points of the boundary.
    weights : ndarray of shape (p,). Of the equation.
    boundary : list of ndarray of shape (c,). Boundary values of each function.
    residuals, variances : ndarray of shape (N,). Observations less the states, and the
        variances of their noise.

    Returns loss : float. 1/2 |w|^2 / scale^2 + 1/2 sum z^T K^-1 z + 1/2 sum of squared
        residuals in units of the noise.
    """
    L = cholesky(prior.covariance(points))
    norms = [np.sum(solve_lower(L, values) ** 2) for values in boundary]
    misfit = np.sum(residuals**2 / variances)
    return 0.5 * float(weights @ weights / prior.scale**2 + sum(norms) + misfit)
