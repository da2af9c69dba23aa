"""Weights and initial values from observations that are linear in them.

Unknown are the weights w of all equations and, for each function, its initial values
z_m. Linearised equations make the observations of a function

    y_m = a_m + B_m (w - w0) + C_m (z_m - z_m0) + noise,

with the prior N(0, scale^2 I) of the weights and one so wide of the initial values that
it hardly matters. As a_m is what the present solution says, differences are small where
that is nearly right, and rounding errors with them, however much B_m and C_m grow in
time. Initial values are eliminated function by function, by orthogonal factors.

The noise levels and the scale are those of maximum likelihood (MacKay, "Bayesian
interpolation", Neural Computation 4, 1992, section 4.4); what is uncertain then is
averaged over the noise levels that are possible.

"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg

from keql._numerics.linalg import extrapolated, inverse_lower, solve_lower, solve_upper
from keql._observations.data import expected_noise
from keql._regression.likelihood import log_densities
from keql.equation import WeightPosterior


@dataclass(frozen=True)
class InitialPrior:
    """The prior of initial values and weights, and the noise of observations.

    spread : ndarray of shape (D,). Prior standard deviations of the initial values.
    noise : ndarray of shape (J,). Those of the observed operators, in their units.
    free_noise : ndarray of bool, of shape (J,). Which are of maximum likelihood.
    lowest : ndarray of shape (J,). Least noise levels that are found.
    scale : float. Prior standard deviation of the weights, between 1 and `max_scale`:
        features of equations are scaled to what two steps say, which may be too small.
    max_scale : float.
    first_noise : ndarray of shape (k, J). With noise in the equations, levels at one of
        which the search for the most likely ones begins.
    drive : ndarray of shape (E,) or None. Factors of the noise in each equation if its
        level is found by maximum likelihood, too.
    first_drive : tuple of float. Such factors, as those of `first_noise`.
    """

    spread: np.ndarray
    noise: np.ndarray
    free_noise: np.ndarray
    lowest: np.ndarray
    scale: float = 1.0
    max_scale: float = 1e3
    first_noise: np.ndarray | None = None
    drive: np.ndarray | None = None
    first_drive: tuple = ()

    @property
    def log_levels(self):
        """Logarithms of all that is of maximum likelihood."""
        levels = [] if self.drive is None else self.drive
        return np.log(np.r_[self.noise, self.scale, levels])

    def with_log_levels(self, logs):
        """The prior with others, as far as they are free and between their limits."""
        levels, scale, drive = np.split(np.exp(logs), np.cumsum([len(self.noise), 1]))
        return replace(
            self,
            noise=np.where(
                self.free_noise, np.maximum(levels, self.lowest), self.noise
            ),
            scale=float(np.clip(scale[0], 1.0, self.max_scale)),
            drive=None if self.drive is None else drive,
        )


@dataclass(frozen=True)
class Rows:
    """Observations of one function: how they depend on what is unknown.

    residuals : ndarray of shape (n,). y_m - a_m.
    on_weights, on_initial : ndarray of shape (n, p), (n, D). B_m and C_m.
    initial : ndarray of shape (D,). z_m0.
    index : ndarray of shape (n,). The operator of each observation.
    weights : ndarray of shape (n,). Relative precisions.
    """

    residuals: np.ndarray
    on_weights: np.ndarray
    on_initial: np.ndarray
    initial: np.ndarray
    index: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class _Whitened:
    """Whitened rows (n + D, ...) of one function, and factors of the first columns.

    The last D rows are those of the prior of the initial values. Q (n + D, D) and R
    (D, D) factorise their columns; `right` and `effects` are those of all rows, and
    `rest` what is orthogonal to Q of the former and then of the latter.
    """

    Q: np.ndarray
    R: np.ndarray
    right: np.ndarray
    effects: np.ndarray

    @cached_property
    def rest(self):
        """Of shape (n + D, 1 + p)."""
        rest = np.column_stack([self.right, self.effects])
        for _ in range(2):  # the second time for what rounding errors left
            rest = rest - self.Q @ (self.Q.T @ rest)
        return rest


class LatePosterior(WeightPosterior):
    """What a regression says of some of the weights, found when it is asked for.

    Most solutions are steps to others: nobody asks how certain they are.

    regression : InitialValueRegression.
    part : slice. Positions of the weights.
    """

    def __init__(self, regression, part):
        self._regression, self._part = regression, part
        self.weights, self.loss = regression.weights[part], regression.loss

    @cached_property
    def factor(self):
        """The lower triangular factor of the precision."""
        whole = self._regression.posterior_weights()
        return whole.part(self._part.start, self._part.stop).factor

    def __reduce__(self):
        return WeightPosterior, (self.weights, self.factor, self.loss)


class InitialValueRegression:
    """Weights and initial values of M functions.

    rows : list of Rows. Of each function.
    center : ndarray of shape (p,). The weights w0.
    prior : InitialPrior. With noise levels and the scale of the weights.
    """

    def __init__(self, rows, center, prior):
        self.rows, self.center, self.prior = rows, center, prior
        self.p = len(center)
        index = [own.index for own in rows]
        self._roots_of_precisions = [
            np.sqrt(own.weights) / prior.noise[j]
            for own, j in zip(rows, index, strict=True)
        ]
        self._precisions = self._roots_of_precisions

    def _whitened(self, own, roots):
        """Columns of initial values, right-hand side and effects of one function."""
        spread, D = self.prior.spread, len(own.initial)
        columns = np.concatenate([own.on_initial * spread * roots[:, None], np.eye(D)])
        right = np.concatenate([own.residuals * roots, -own.initial / spread])
        effects = np.zeros((len(right), self.p))
        effects[: len(roots)] = own.on_weights * self.prior.scale * roots[:, None]
        return columns, right, effects

    @cached_property
    def _eliminated(self):
        """The rows of each function, its initial values eliminated."""
        blocks = []
        for pair in zip(self.rows, self._precisions, strict=True):
            columns, right, effects = self._whitened(*pair)
            blocks.append(_Whitened(*np.linalg.qr(columns), right, effects))
        return blocks

    @cached_property
    def _together(self):
        """Of a single function: its rows, and what `_solved` is, found in one go."""
        columns, right, effects = self._whitened(self.rows[0], self._precisions[0])
        (n, D), p = columns.shape, self.p
        rows = np.zeros((n + p, D + p))
        rows[:n, :D], rows[:n, D:], rows[n:, D:] = columns, effects, np.eye(p)
        all_right = np.concatenate([right, -self.center / self.prior.scale])
        Q, R = np.linalg.qr(rows)
        change = solve_upper(R, Q.T @ all_right)
        block = _Whitened(Q[:n, :D], R[:D, :D], right, effects)
        return block, (Q[:, D:], R[D:, D:], change[D:], all_right - rows @ change)

    @property
    def _blocks(self):
        """The rows of each function with factors of initial values' columns."""
        return [self._together[0]] if len(self.rows) == 1 else self._eliminated

    @cached_property
    def _solved(self):
        """Factors Q and R of the weights' columns, their change, and all residuals."""
        if len(self.rows) == 1:
            return self._together[1]
        rest = np.concatenate([block.rest for block in self._eliminated])
        effects, prior = rest[:, 1:], -self.center / self.prior.scale
        right = np.concatenate([rest[:, 0], prior])
        if not self.p:
            return effects, np.empty((0, 0)), prior, right
        rows = np.vstack([effects, np.eye(self.p)])
        Q, R = np.linalg.qr(rows)
        change = solve_upper(R, Q.T @ right)
        return Q, R, change, right - rows @ change

    @property
    def changes(self):
        """Changes of the weights (p,) and of the initial values, a list of (D,)."""
        change = self._solved[2]
        initial = [
            self.prior.spread
            * solve_upper(block.R, block.Q.T @ (block.right - block.effects @ change))
            for block in self._blocks
        ]
        return self.prior.scale * change, initial

    def changes_keeping(self, constant, on_weights, on_initial):
        """The most probable `changes` of which linear functions vanish.

        The unit of a hidden state is such a function: nothing but the prior of the
        weights tells it, in which it is not linear, so that full steps never end.

        constant, on_weights : ndarray of shape (H,), (H, p). The functions without
            changes, and their slopes in those of the weights.
        on_initial : list of ndarray of shape (H, D). In those of the initial values.
        """
        change, initial = self.changes
        if not len(constant):
            return change, initial
        roots, p = self._roots(), self.p
        on_shared, own = on_weights @ roots[0][:p, :p], []
        for slopes, root in zip(on_initial, roots, strict=True):
            on_shared = on_shared + slopes @ root[p:, :p]
            own.append(slopes @ root[p:, p:])
        value = constant + on_weights @ change
        value = value + sum(map(np.matmul, on_initial, initial))
        covariance = on_shared @ on_shared.T + sum(each @ each.T for each in own)
        pull, *_ = linalg.lstsq(covariance, value)
        shared = on_shared.T @ pull
        change = change - roots[0][:p, :p] @ shared
        initial = [
            before - root[p:, :p] @ shared - root[p:, p:] @ (each.T @ pull)
            for before, root, each in zip(initial, roots, own, strict=True)
        ]
        return change, initial

    @property
    def weights(self):
        """The most probable weights, of shape (p,)."""
        return self.center + self.prior.scale * self._solved[2]

    @cached_property
    def loss(self):
        """The lowest value of 1/2 |residuals|^2 + 1/2 |unknowns|^2, both whitened."""
        return 0.5 * float(np.sum(self._solved[3] ** 2))

    def _of_data(self, values):
        """Values (sum of n + D, ...) in the rows of observations, for each function."""
        if len(self.rows) == 1:
            return [values[: len(self.rows[0].index)]]
        ends = np.cumsum([len(block.right) for block in self._blocks])
        parts = np.split(values[: ends[-1]], ends[:-1])
        return [
            part[: len(own.index)] for part, own in zip(parts, self.rows, strict=True)
        ]

    @cached_property
    def _residuals(self):
        """Those of the observations of each function, in units of the noise levels."""
        return self._of_data(self._solved[3])

    @cached_property
    def _leverages(self):
        """The part of each observation in its own prediction, for each function."""
        by_weights = self._of_data(np.sum(self._solved[0] ** 2, axis=1))
        return [
            own + np.sum(block.Q[: len(own)] ** 2, axis=1)
            for own, block in zip(by_weights, self._blocks, strict=True)
        ]

    @property
    def misfit(self):
        """Mean square of the residuals in units of the noise levels."""
        return float(np.mean(np.concatenate(self._residuals) ** 2))

    @property
    def n_free(self):
        """Number of observations less that of the initial values."""
        return max(1, sum(len(own.index) - len(own.initial) for own in self.rows))

    @property
    def level_range(self):
        """Between which multiples of theirs noise levels may be with other weights."""
        prior = self.prior
        if not np.all(prior.free_noise):
            return 1.0, 1.0
        return np.max(prior.lowest / prior.noise), np.inf

    def log_evidence(self):
        """Log likelihood of the observations, weights and initial values averaged."""
        factors = [self._solved[1], *(block.R for block in self._blocks)]
        volume = sum(np.sum(np.log(np.abs(np.diag(R)))) for R in factors)
        volume -= sum(np.sum(np.log(roots)) for roots in self._precisions)
        return -self.loss - float(volume)

    def leave_one_out(self):
        """Errors of predicting each observation from all others, for each function."""
        errors = []
        for missed, leverage, roots in zip(
            self._residuals,
            self._leverages,
            self._roots_of_precisions,
            strict=True,
        ):
            left = np.maximum(1 - leverage, np.finfo(float).eps)
            errors.append(missed / left / roots)
        return errors

    def left_out_log_densities(self):
        """Log densities (n,) of the observations, each given all others."""
        left = np.maximum(1 - np.concatenate(self._leverages), np.finfo(float).eps)
        roots = np.concatenate(self._roots_of_precisions)
        missed = np.concatenate(self._residuals)
        return log_densities(missed * roots, left * roots**2)

    def posterior_weights(self):
        """What the observations say about the weights, whatever the initial values."""
        lower = self._with_expected_noise._solved[1].T / self.prior.scale
        return WeightPosterior(self.weights, lower, self.loss)

    def roots_of_covariance(self):
        """For each function a matrix (p + D, p + D) whose square is a covariance.

        It is that of the weights and of the initial values of the function.
        """
        return self._with_expected_noise._roots()

    @cached_property
    def _with_expected_noise(self):
        """The regression with the noise that is expected where it is not given."""
        prior, left = self.prior, [1 - own for own in self._leverages]
        index = np.concatenate([own.index for own in self.rows])
        n_left = np.bincount(index, np.concatenate(left), len(prior.noise))
        noise = expected_noise(prior.noise, n_left, prior.free_noise)
        if np.array_equal(noise, prior.noise):
            return self
        return self._with(replace(prior, noise=noise))

    def _with(self, prior):
        """The regression with another prior."""
        return type(self)(self.rows, self.center, prior)

    def _roots(self):
        p, scale, spread = self.p, self.prior.scale, self.prior.spread
        of_weights = solve_lower(self._solved[1].T, np.eye(p)).T if p else np.eye(0)
        roots = []
        for block in self._blocks:
            D = len(block.R)
            root = np.zeros((p + D, p + D))
            root[:p, :p] = of_weights
            follow = block.Q.T @ (block.effects @ of_weights)
            root[p:, :p] = -solve_upper(block.R, follow)
            root[p:, p:] = solve_upper(block.R, np.eye(D))
            root[:p] *= scale
            root[p:] *= spread[:, None]
            roots.append(root)
        return roots

    def _misfit(self, total, n_free):
        """Mean square of residuals by the number of them that nothing explains."""
        return total / max(n_free, 1.0)

    def with_best_prior(self, max_iter=50, tol=1e-3):
        """The regression with noise levels and the scale of maximum likelihood.

        Fixed-point steps, at most `max_iter`, until logarithms change by less than
        `tol`; after two of them one to where they lead, if that is more probable, and
        no more if the three raise the log evidence by less than `tol`: where noise and
        jumps explain the same, it hardly depends on their levels.
        """
        best, path, evidence = self, [self.prior.log_levels], self.log_evidence()
        for _ in range(max_iter):
            best = best._with(best._better_prior())
            path.append(best.prior.log_levels)
            if np.max(np.abs(path[-1] - path[-2])) < tol:
                break
            if len(path) == 3:
                best = best._or_with_levels(extrapolated(*path))
                before, evidence = evidence, best.log_evidence()
                if evidence < before + tol:
                    break
                path = [best.prior.log_levels]
        return best

    def _or_with_levels(self, logs):
        """This, or the regression with other levels if these are more probable."""
        other = self._with(self.prior.with_log_levels(logs))
        return other if other.log_evidence() > self.log_evidence() else self

    def _better_prior(self):
        prior, noise = self.prior, self.prior.noise.copy()
        missed, leverage = map(np.concatenate, (self._residuals, self._leverages))
        index = np.concatenate([own.index for own in self.rows])
        for j in np.flatnonzero(prior.free_noise):
            own = index == j
            variance = self._misfit(np.sum(missed[own] ** 2), np.sum(1 - leverage[own]))
            noise[j] = max(noise[j] * np.sqrt(variance), prior.lowest[j])
        scale = prior.scale
        if self.p:
            inverse = inverse_lower(self._solved[1].T)
            determined = max(self.p - np.sum(inverse**2), 1e-3)
            scale *= np.sqrt(np.sum((self.weights / scale) ** 2) / determined)
        scale = float(np.clip(scale, 1.0, prior.max_scale))
        return replace(prior, noise=noise, scale=scale)

    def whitened(self):
        """The target (n,) and the effects (n, p) of weights, initial values averaged.

        In units of what is uncertain if the weights are known; the weights in units of
        their scale.
        """
        rest = np.concatenate([block.rest for block in self._eliminated])
        target, effects = rest[:, 0], rest[:, 1:]
        return target + effects @ (self.center / self.prior.scale), effects
