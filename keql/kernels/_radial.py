"""Radial kernels: any profile, derivatives of any order in closed form."""

from itertools import product
from math import comb, exp, factorial, lgamma, log, pi, prod, sqrt
from operator import add
from typing import Any

import numpy as np
from autograd import elementwise_grad
from scipy.special import gamma, kv

from keql._numerics.arguments import check_positive, is_real, refuse_odd_numbers
from keql._numerics.autodiff import differentiate
from keql.kernels._active import hyperparameter, row_blocks
from keql.kernels._stationary import AnisotropicKernel


class _Radial(AnisotropicKernel):
    r"""A kernel k(x, y) = g(rho), rho = 1/2 sum_i (x_i - y_i)^2 / l_i^2.

    rho is a separable quadratic, so with z_i = (x_i - y_i) / l_i

        d_i^n g = l_i^-n sum_{j <= n/2} n! / (j! (n-2j)! 2^j) z_i^(n-2j) g^(n-j)(rho),

    over several columns the polynomials multiply and the orders of g add, and each
    derivative in y changes the sign. A subclass supplies the g^(n) alone, as a list for
    each n of `orders`, by `profile_derivatives(rho, orders)`. Where g^(n)(0) is
    infinite the value at rho = 0 is irrelevant (a power of z that vanishes there goes
    with it) and must be finite, for instance 0.

    A column of the `period` p_i is a ring. Its points lie on a circle of the
    circumference p_i, and x_i - y_i is the chord between them, so that its part of rho
    is 1/2 (p_i / pi)^2 sin(pi (x_i - y_i) / p_i)^2 / l_i^2. No function in the plane
    that is positive definite ceases to be so on a circle.
    """

    period = None

    def profile_derivatives(self, rho: Any, orders: Any) -> list:
        """Derivatives of g, the kernel as a function of rho.

        Parameters
        ----------
        rho : ndarray
            Values of rho, half the squared distances in units of the length scales.
        orders : list of int
            Which derivatives.

        Returns
        -------
        derivatives : list of ndarray
            For each order an array of the shape of `rho`, anything finite at 0 where it
            is infinite.
        """
        raise NotImplementedError

    def _active_derivatives(self, X, Y, pairs):
        scale = self._per_column("length_scale", X.shape[1])
        totals = [tuple(map(add, a, b)) for a, b in pairs]
        factors = [
            (-1) ** sum(b) / prod(scale ** np.array(n))
            for n, (_, b) in zip(totals, pairs, strict=True)
        ]
        values = [np.empty((len(X), len(Y))) for _ in pairs]
        for rows in row_blocks(len(X), len(Y)):
            block = self._scaled_derivatives(X[rows], Y, scale, set(totals))
            for value, n, factor in zip(values, totals, factors, strict=True):
                np.multiply(block[n], factor, out=value[rows])
        return values

    def _scaled_derivatives(self, X, Y, scale, totals):
        """The derivatives with respect to z: {multi-index: array (n, m)}."""
        if self.period is not None:
            return self._derivatives_on_rings(X, Y, scale, totals)
        differences, squares, rho = _scaled_differences(X, Y, scale)
        orders = sorted({order for n in totals for order in _profile_orders(n)})
        profile = dict(zip(orders, self.profile_derivatives(rho, orders), strict=True))
        return {n: _chain(n, profile, differences, squares) for n in totals}

    def _derivatives_on_rings(self, X, Y, scale, totals):
        """The same where columns are rings, by Faa di Bruno's formula."""
        highest = np.max([*totals], axis=0)
        parts = self._parts_of_rho(X, Y, scale, highest)
        rho, orders = sum(part[0] for part in parts), range(int(sum(highest)) + 1)
        profile = self.profile_derivatives(rho, [*orders])
        bell = [_bell_polynomials(part) for part in parts]
        return {n: _faa_di_bruno(n, profile, bell) for n in totals}

    def _parts_of_rho(self, X, Y, scale, highest):
        """For each column a list of derivatives 0, 1, ... in z_i of its part of rho."""
        period, parts = self._per_column("period", X.shape[1], finite=False), []
        for x, y, length, p, n in zip(X.T, Y.T, scale, period, highest, strict=True):
            z = np.subtract.outer(x, y) / length
            if np.isinf(p):
                rest = [z, np.ones_like(z), *[np.zeros_like(z)] * max(n - 2, 0)]
                parts.append([0.5 * z * z, *rest[:n]])
                continue
            rate = 2 * pi * length / p
            rest = [
                -np.cos(rate * z + k * pi / 2) * rate ** (k - 2)
                for k in range(1, n + 1)
            ]
            parts.append([2 * (np.sin(rate * z / 2) / rate) ** 2, *rest])
        return parts

    def _active_value_and_gradient(self, X, Y):
        scale = self._per_column("length_scale", X.shape[1])
        if self.period is not None:
            parts = self._parts_of_rho(X, Y, scale, np.zeros(len(scale), int))
            squares = [2 * part for (part,) in parts]
            rho = 0.5 * sum(squares)
        else:
            _, squares, rho = _scaled_differences(X, Y, scale)
        value, slope = self.profile_derivatives(rho, [0, 1])
        layers = [-slope * square for square in squares]
        return value, self._log_layers("length_scale", layers)


def _scaled_differences(X, Y, scale):
    """The arrays z_i = (x_i - y_i) / l_i, z_i^2 and rho = sum_i z_i^2 / 2: (n, m)."""
    differences = [np.subtract.outer(x, y) for x, y in zip(X.T, Y.T, strict=True)]
    for z, length in zip(differences, scale, strict=True):
        z /= length
    squares = [z * z for z in differences]
    return differences, squares, 0.5 * sum(squares)


def _bell_polynomials(part):
    """B[n][j], the partial Bell polynomials of derivatives 1, 2, ... of a function.

    B_(n+1, j) = sum_k binom(n, k) h^(k+1) B_(n-k, j-1), the list `part` of the h^(k).
    """
    zero, one = np.zeros_like(part[0]), np.ones_like(part[0])
    B = [[one]]
    for n in range(len(part) - 1):
        row = [zero]
        for j in range(1, n + 2):
            terms = [
                comb(n, k) * part[k + 1] * B[n - k][j - 1]
                for k in range(n + 1)
                if j - 1 <= n - k
            ]
            row.append(sum(terms))
        B.append(row)
    return B


def _faa_di_bruno(n, profile, bell):
    """Derivative d^n of g(sum_i h_i), from those of g and the B[n][j] of each h_i."""
    total = 0.0
    for orders in product(*(range(order + 1) for order in n)):
        factors = [
            B[order][j] for B, order, j in zip(bell, n, orders, strict=True) if order
        ]
        if all(j or not order for order, j in zip(n, orders, strict=True)):
            total = total + prod(factors, start=profile[sum(orders)])
    return total


def _profile_orders(n):
    """Orders of the derivatives of g in the derivative d^n of the kernel."""
    return range(sum((order + 1) // 2 for order in n), sum(n) + 1)


def _chain(n, profile, differences, squares):
    """Derivative d^n of g(rho) in the z_i, from {order: derivative of g}.

    Column after column, l_i^n d_i^n g^(m) replaces the g^(m) that the columns still
    to come will need.
    """
    for column, order in enumerate(n):
        profile = {
            m: _one_column(order, m, profile, differences[column], squares[column])
            for m in _profile_orders(n[column + 1 :])
        }
    return profile[0]


def _one_column(n, m, profile, z, square):
    """Sum over j of n! / (j! (n-2j)! 2^j) z^(n-2j) g^(m+n-j), by Horner's rule in z^2.

    It never forms a power of z that underflows beside a derivative that overflows.
    """
    total = profile[m + n]
    for j in range(1, n // 2 + 1):
        factor = factorial(n) // (factorial(j) * factorial(n - 2 * j) * 2**j)
        total = total * square
        total += profile[m + n - j] if factor == 1 else factor * profile[m + n - j]
    return total * z if n % 2 else total


class RBF(_Radial):
    r"""Squared-exponential kernel exp(-1/2 sum_i (x_i - y_i)^2 / l_i^2).

    Its functions are analytic: every derivative exists. See chapter 4 of Rasmussen and
    Williams, Gaussian Processes for Machine Learning, 2006, for the kernels here.

    Parameters
    ----------
    length_scale : float or array-like of shape (n_active,), default=1.0
        The l_i, in units of the coordinates.
    length_scale_bounds : pair of float or "fixed", default=(1e-5, 1e5)
        Bounds in a search for the maximum likelihood.
    active_dims : int, str or tuple of them, default=None
        Columns that the kernel looks at, by index or name; None for all.
    period : float or array-like of shape (n_active,), default=None
        Lengths of the columns that are rings, where distances are those of chords;
        infinity for a line. None: all are lines.

    Examples
    --------
    >>> from keql.kernels import RBF
    >>> RBF(2.0).derivative([[0.0]], [[0.0]], a=(1,), b=(1,))
    array([[0.25]])
    """

    def __init__(
        self,
        length_scale: Any = 1.0,
        length_scale_bounds: Any = (1e-5, 1e5),
        active_dims: Any = None,
        period: Any = None,
    ) -> None:
        super().__init__(length_scale, length_scale_bounds, active_dims)
        self.period = period

    def profile_derivatives(self, rho: Any, orders: Any) -> list:
        value = np.exp(-rho)
        return [-value if n % 2 else value for n in orders]


class Matern(_Radial):
    r"""Matern kernel 2^(1-nu)/Gamma(nu) s^nu K_nu(s), s = sqrt(2 nu) r.

    Here r is the length of the vector (x_i - y_i) / l_i. The functions of the kernel
    have about nu derivatives: an operator of order n is defined on the RKHS if and
    only if nu > n. With g as a function of rho = r^2 / 2 and
    d/ds [s^m K_m] = -s^m K_(m-1),

        g^(n)(rho) = 2^(1-nu)/Gamma(nu) (-2 nu)^n s^(nu-n) K_(nu-n)(s)

    (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 4.14;
    NIST Digital Library of Mathematical Functions, 10.29.4).

    Parameters
    ----------
    length_scale : float or array-like of shape (n_active,), default=1.0
        The l_i, in units of the coordinates.
    length_scale_bounds : pair of float or "fixed", default=(1e-5, 1e5)
        Bounds in a search for the maximum likelihood.
    nu : float, default=1.5
        Smoothness, 0 < nu <= 100, not only half-integers; beyond 100 use
        :class:`RBF`, its limit.
    active_dims : int, str or tuple of them, default=None
        Columns that the kernel looks at, by index or name; None for all.
    period : float or array-like of shape (n_active,), default=None
        Lengths of the columns that are rings, where distances are those of chords;
        infinity for a line. None: all are lines.

    Examples
    --------
    >>> from keql.kernels import Matern
    >>> Matern(nu=2.5).derivative([[0.0]], [[0.0]], a=(2,), b=(2,)).round(6)
    array([[25.]])
    """

    def __init__(
        self,
        length_scale: Any = 1.0,
        length_scale_bounds: Any = (1e-5, 1e5),
        nu: float = 1.5,
        active_dims: Any = None,
        period: Any = None,
    ) -> None:
        super().__init__(length_scale, length_scale_bounds, active_dims)
        self.nu = nu
        self.period = period

    def check_order(self, a: Any, operator: str | None = None) -> None:
        order = int(np.sum(np.asarray(a)[self._columns(len(a))]))
        if order > 0 and self.nu <= order:
            raise ValueError(
                f"{operator or 'the derivative'} has order {order}, but the functions "
                f"of Matern(nu={self.nu:g}) have no such derivative: choose "
                f"nu > {order}, or the RBF kernel."
            )

    def profile_derivatives(self, rho: Any, orders: Any) -> list:
        if not is_real(self.nu) or not 0 < self.nu <= 100:
            raise ValueError(
                f"nu={self.nu!r} of Matern must be positive and at most 100; use RBF "
                "for smoother functions."
            )
        nu = float(self.nu)
        # K_m(s) underflows long before s = 1000, up to where s^m is still finite.
        s = np.minimum(np.sqrt(4 * nu * rho), 1000.0)
        log_factor, decay = (1 - nu) * log(2) - lgamma(nu), np.exp(-s)
        return [
            (-1) ** n
            * exp(log_factor + n * log(2 * nu))
            * _bessel_power(nu - n, s, decay)
            for n in orders
        ]


def _bessel_power(m, s, decay):
    """s^m K_m(s); at s = 0 its limit if m > 0, and 0 (irrelevant) otherwise.

    `decay` is exp(-s).
    """
    p = abs(m) - 0.5
    if p == int(p) and p <= 8:
        return _bessel_power_half_integer(m, int(p), s, decay)
    # Below `small` K_m would overflow, and s^m K_m is its series to rounding error.
    if m > 0:
        small = max(2 * np.exp((lgamma(m) - 690) / m), 1e-150)
    else:
        small = 10.0 ** (-300 / max(2 * abs(m), 2))
    is_small = s < small
    safe = np.where(is_small, 1.0, s)
    value = safe**m * kv(abs(m), safe)
    if m <= 0:
        return np.where(is_small, 0.0, value)
    limit = 2 ** (m - 1) * gamma(m)
    if m > 2:
        limit = limit * (1 - s**2 / (4 * (m - 1)) + s**4 / (32 * (m - 1) * (m - 2)))
    return np.where(is_small, limit, value)


def _bessel_power_half_integer(m, p, s, decay):
    """The same for m = +-(p + 1/2), where K_m is elementary (DLMF 10.49.12)."""
    polynomial = 1.0
    for k in range(1, p + 1):
        factor = factorial(p + k) / (factorial(k) * factorial(p - k) * 2**k)
        polynomial = polynomial * s + factor
    value = sqrt(pi / 2) * polynomial * decay
    if m > 0:
        return value
    is_small = s < 10.0 ** (-300 / (2 * p + 1))
    return np.where(is_small, 0.0, value * np.where(is_small, 1.0, s) ** (2 * m))


class RationalQuadratic(_Radial):
    r"""Rational quadratic kernel (1 + sum_i (x_i - y_i)^2 / (2 alpha l_i^2))^-alpha.

    A mixture of RBF kernels with many length scales; every derivative exists (Rasmussen
    and Williams, Gaussian Processes for Machine Learning, 2006, eq. 4.19).

    Parameters
    ----------
    length_scale : float or array-like of shape (n_active,), default=1.0
        The l_i, in units of the coordinates.
    alpha : float, default=1.0
        Mixture parameter, any positive number; the limit of large alpha is RBF.
    length_scale_bounds, alpha_bounds : pair of float or "fixed", default=(1e-5, 1e5)
        Bounds in a search for the maximum likelihood.
    active_dims : int, str or tuple of them, default=None
        Columns that the kernel looks at, by index or name; None for all.

    Examples
    --------
    >>> from keql.kernels import RationalQuadratic
    >>> RationalQuadratic(alpha=1.0)([[0.0]], [[2.0]]).round(6)
    array([[0.333333]])
    """

    hyperparameter_alpha = hyperparameter("alpha")

    def __init__(
        self,
        length_scale: Any = 1.0,
        alpha: float = 1.0,
        length_scale_bounds: Any = (1e-5, 1e5),
        alpha_bounds: Any = (1e-5, 1e5),
        active_dims: Any = None,
    ) -> None:
        super().__init__(length_scale, length_scale_bounds, active_dims)
        self.alpha = alpha
        self.alpha_bounds = alpha_bounds

    def profile_derivatives(self, rho: Any, orders: Any) -> list:
        check_positive(self.alpha, "alpha")
        refuse_odd_numbers({"alpha": self.alpha})
        base = 1 + rho / self.alpha
        value = base ** -(self.alpha + min(orders))
        derivatives = []
        for n in range(min(orders), max(orders) + 1):
            if n in orders:
                factor = prod(-(self.alpha + k) / self.alpha for k in range(n))
                derivatives.append(factor * value)
            value = value / base
        return derivatives

    def _active_value_and_gradient(self, X, Y):
        value, layers = super()._active_value_and_gradient(X, Y)
        # scikit-learn orders hyperparameters by name: alpha before length_scale.
        if not self.hyperparameter_alpha.fixed:
            scale = self._per_column("length_scale", X.shape[1])
            ratio = _scaled_differences(X, Y, scale)[-1] / self.alpha
            slope = ratio / (1 + ratio) - np.log1p(ratio)
            layers = [self.alpha * value * slope, *layers]
        return value, layers


class RadialKernel(_Radial):
    r"""A kernel of your own, given its profile g(rho).

    k(x, y) = g(rho) with rho = 1/2 sum_i (x_i - y_i)^2 / l_i^2. The derivatives of g
    are automatic, those of k come from the closed form that all radial kernels share.
    The example is the inverse multiquadric.

    Parameters
    ----------
    profile : callable
        The function g of an array, elementwise, written in `autograd.numpy`. It must
        be smooth in rho at 0 as far as it is differentiated. To be pickled it must be
        importable (a function of a module, not a lambda).
    length_scale : float or array-like of shape (n_active,), default=1.0
        The l_i, in units of the coordinates.
    length_scale_bounds : pair of float or "fixed", default=(1e-5, 1e5)
        Bounds in a search for the maximum likelihood.
    active_dims : int, str or tuple of them, default=None
        Columns that the kernel looks at, by index or name; None for all.

    Examples
    --------
    >>> import autograd.numpy as np
    >>> from keql.kernels import RadialKernel
    >>> kernel = RadialKernel(lambda rho: 1 / np.sqrt(1 + 2 * rho), length_scale=0.5)
    >>> kernel.derivative([[0.0]], [[0.0]], a=(1,), b=(1,))
    array([[4.]])
    """

    def __init__(
        self,
        profile: Any,
        length_scale: Any = 1.0,
        length_scale_bounds: Any = (1e-5, 1e5),
        active_dims: Any = None,
    ) -> None:
        super().__init__(length_scale, length_scale_bounds, active_dims)
        self.profile = profile

    def check_order(self, a: Any, operator: str | None = None) -> None:
        order = int(np.sum(np.asarray(a)[self._columns(len(a))]))
        function = self.profile
        with np.errstate(all="ignore"):
            step, size = self._small_step()
            tolerance = 1e-6 * size
            lower = function(np.array([0.0, step]))
            for n in range(1, order + 1):
                function = elementwise_grad(function)
                upper = function(np.array([0.0, step]))
                slope = (lower[1] - lower[0]) / step
                # Automatic differentiation through np.where or a guarded square root
                # is wrong at 0 without complaint; the slope beside 0 gives it away.
                tolerance = tolerance / (1e4 * step)
                if not abs(upper[0] - slope) <= 0.5 * abs(slope) + tolerance:
                    raise ValueError(
                        f"{operator or 'the derivative'} has order {order} and needs "
                        f"derivative {n} of `profile` to be continuous at rho = 0, "
                        f"where it is {upper[0]:.3g} but {slope:.3g} beside it: the "
                        "kernel is too rough, or not written as a smooth function of "
                        "rho (without np.where, and without a square root, guarded or "
                        "not)."
                    )
                lower = upper

    def _small_step(self):
        """A step in rho that changes g by 1e-5 to 1e-4 of g(0), and abs(g(0)).

        Derivative n of g is usually about abs(g(0)) / (1e4 step)^n.
        """
        steps = 10.0 ** np.arange(-40, 41)
        at_zero = abs(self.profile(np.zeros(1))[0])
        change = np.abs(self.profile(steps) - self.profile(np.zeros(1)))
        n_small = np.argmin(np.append(change <= 1e-4 * at_zero, False))
        return steps[max(n_small - 1, 0)], at_zero

    def profile_derivatives(self, rho: Any, orders: Any) -> list:
        derivatives = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for n in orders:
                value = differentiate(self.profile, (n,), (rho,))
                value = np.broadcast_to(value, rho.shape)
                # Finite where it matters: `check_order` has seen to that.
                irrelevant = (rho == 0) & (n > 0) & ~np.isfinite(value)
                derivatives.append(np.where(irrelevant, 0.0, value))
        return derivatives

    def _active_derivatives(self, X, Y, pairs):
        with np.errstate(invalid="ignore"):  # infinite times zero: reported below
            values = super()._active_derivatives(X, Y, pairs)
        if not all(np.all(np.isfinite(value)) for value in values):
            raise ValueError(
                "`profile` or a derivative of it is not finite at some rho > 0, or the "
                "profile not at rho = 0."
            )
        return values
