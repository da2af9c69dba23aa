"""Short pieces of trajectories of ordinary differential equations, all at once.

The steps of :class:`scipy.integrate.DOP853` (Hairer, Norsett, Wanner, "Solving ordinary
differential equations I", section II.5) from many points, with the derivatives of their
ends in the points and in the weights of the equations. White noise on the right-hand
sides adds a jump to each: these are found with the observations by a Kalman filter and
a recursion backwards.
"""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.integrate import DOP853

from keql._numerics.linalg import largest_factor
from keql.equation import Layout, solve_each, with_slopes


class Flow:
    """The vector field of explicit equations with weights, for one function.

    The equations are LearnedEquations of one variable; `given` says of each input what
    it is, {name: function of points}, and `forcing` of each equation what its
    right-hand side is, a function of points or None for zero. In y (D,) are the states
    and their derivatives below the highest, as a :class:`keql.equation.Layout` has
    them.
    """

    def __init__(self, equations, given, forcing):
        self.equations, self.layout = tuple(equations), Layout(equations[0], given)
        self.forcing = forcing
        first = self.equations[0]
        self.n_unknown = first.n_unknown_features
        self.sizes = [len(equation.weights) for equation in self.equations]
        known = [equation.known_part for equation in self.equations]
        self._constant_mass = self.layout.constant_mass(known, self.n_unknown)

    @cached_property
    def _with_slopes(self):
        """What gives features and slopes of each equation, made for many calls."""
        pairs = ((e.basis, e.weights) for e in self.equations)
        return [with_slopes(*pair, self.n_unknown) for pair in pairs]

    def __getstate__(self):
        # Functions without names cannot be saved; they are made again where needed.
        return {k: v for k, v in vars(self).items() if k != "_with_slopes"}

    @property
    def n_states(self):
        """Length D of y."""
        return sum(self.layout.orders.values())

    def mass(self, t, y, highest=0.0):
        """Slopes (n, E, S) in the highest derivatives (S, n) at y (D, n)."""
        S = self.layout.features(t, y, highest)
        return self.layout.mass([equation.gradient(S) for equation in self.equations])

    def velocity(self, t, y, with_slopes=True):
        """dy/dt (n, D) at times (n,) and y (n, D), with slopes in y and weights.

        The slopes have the shapes (n, D, D) and (n, D, p). The highest derivatives h
        solve M h + G(t, y) . w = f(t), with M of :meth:`mass`.
        """
        velocity, S, parts, slopes = self._velocity(t, y)
        if not with_slopes:
            return velocity, None, None
        gradients = self._gradients(S, slopes)
        mass = self.layout.mass(gradients)
        return velocity, *self.layout.linearise(mass, gradients, parts)

    def _velocity(self, t, y):
        """dy/dt (n, D) and all features; of each P its features and slopes (d', n)."""
        S = self.layout.features(t, y.T, 0.0)
        own, left = S[:, : self.n_unknown], np.empty((len(S), len(self.equations)))
        parts, slopes = zip(*(both(own) for both in self._with_slopes), strict=True)
        pairs = zip(parts, self.equations, self.forcing, strict=True)
        for e, (part, equation, f) in enumerate(pairs):
            left[:, e] = part @ equation.weights + equation.known_part(S)
            if f is not None:
                left[:, e] -= _at(f, t)
        mass = self._constant_mass
        if mass is None:
            mass = self.layout.mass(self._gradients(S, slopes))
        highest = -solve_each(mass, left[..., None])[..., 0]
        return self.layout.velocity(y.T, highest.T).T, S, parts, slopes

    def _gradients(self, S, slopes):
        """Slopes (n, d + Q') of each equation in all features, those of P given."""
        gradients = [equation.known_part.gradient(S) for equation in self.equations]
        for gradient, own in zip(gradients, slopes, strict=True):
            gradient[: len(own)] += own
        return [gradient.T for gradient in gradients]

    def step(self, t, h, y, with_slopes=True):
        """y (n, D) after steps h (n,) from times (n,), with slopes of the ends.

        The slopes (n, D, D + p) are those in y and in the weights.
        """
        (n, D), stages = y.shape, np.empty((DOP853.n_stages, *y.shape))
        found = []
        for i in range(DOP853.n_stages):
            before = DOP853.A[i, :i] @ stages[:i].reshape(i, n * D)
            inner = y + h[:, None] * before.reshape(n, D)
            at = t + DOP853.C[i] * h
            stages[i], *rest = self._velocity(at, inner)
            found.append(rest)
        end = y + h[:, None] * np.tensordot(DOP853.B, stages, 1)
        if not with_slopes:
            return end, None
        places, features, slopes = zip(*found, strict=True)
        slopes = [np.hstack(own) for own in zip(*slopes, strict=True)]
        gradients = self._gradients(np.concatenate(places), slopes)
        linear = self.layout.linearise_in_y(self.layout.mass(gradients), gradients)
        on_y, loads = (own.reshape(len(found), n, *own.shape[1:]) for own in linear)
        in_y, of_stages = _slopes_of_end(h, on_y, loads)
        in_weights = [
            np.matmul(np.moveaxis(of_stages[..., e], 0, 2), np.stack(own, axis=1))
            for e, own in enumerate(zip(*features, strict=True))
        ]
        return end, np.concatenate([in_y, *in_weights], axis=2)

    def respond(self, times, nodes):
        """Changes (K, D, 1 + p + D) of nodes (K, D) that make them fit together.

        First what they are if neither weights nor initial values change, then their
        slopes in these. None if steps are not finite.
        """
        ends, slopes = self.step(times[:-1], np.diff(times), nodes[:-1])
        if not (np.all(np.isfinite(ends)) and np.all(np.isfinite(slopes))):
            return None
        D, p = nodes.shape[1], sum(self.sizes)
        response = np.zeros((len(times), D, 1 + p + D))
        response[0, :, 1 + p :] = np.eye(D)
        response[1:, :, 0] = ends - nodes[1:]
        response[1:, :, 1 : 1 + p] = slopes[:, :, D:]
        transitions = slopes[:, :, :D]
        for A, before, after in zip(transitions, response, response[1:], strict=False):
            after += A @ before
        return response

    def driven(self, t, y, levels, units):
        """What white noise on the right-hand sides does near y (n, D) at times (n,).

        levels : ndarray of shape (E,). Square root of the spectral density of each.
        units : ndarray of shape (D,). Sizes of the entries of y.

        Returns noise : WhiteNoise.
        """
        _, on_y, _ = self.velocity(t, y)
        mass = self.mass(t, y.T)
        right = np.broadcast_to(np.diag(levels), mass.shape)
        loads = np.zeros((*y.shape, len(levels)))
        loads[:, self.layout.position_of_highest()] = solve_each(mass, right)
        return WhiteNoise(on_y, loads, units)


def _slopes_of_end(h, on_y, loads):
    """Slopes of the ends of steps h (n,) in y, and in the left-hand sides of stages.

    Those of a stage act through all that come after it: from the last one on, each is
    multiplied by what changes of its velocity do to the end.

    on_y, loads : ndarray of shape (stages, n, D, D), (stages, n, D, E). Slopes of the
        velocity of each stage in its y and in its left-hand sides.

    Returns in_y, of_stages : ndarray of shape (n, D, D), (stages, n, D, E).
    """
    n_stages, n, D, E = loads.shape
    through = np.empty((n_stages, n, D, D))
    of_stages = np.empty((n_stages, n, D, E))
    for i in reversed(range(n_stages)):
        later = through[i + 1 :].reshape(n_stages - i - 1, n * D * D)
        change = (DOP853.A[i + 1 : n_stages, i] @ later).reshape(n, D, D)
        change = h[:, None, None] * (change + DOP853.B[i] * np.eye(D))
        np.matmul(change, on_y[i], out=through[i])
        np.matmul(change, loads[i], out=of_stages[i])
    return np.eye(D) + np.sum(through, axis=0), of_stages


@dataclass(frozen=True)
class ProcessNoise:
    """White noise on the right-hand side of each equation of one function.

    The residual of an equation at collocation points is its level times independent
    standard normal numbers: in continuous time, white noise of the spectral density
    level^2 times the mean distance of the points.

    levels : ndarray of shape (E,). Standard deviations, in the units of the forcings.
    distances : ndarray of shape (E,). Mean distances of the collocation points.
    """

    levels: np.ndarray
    distances: np.ndarray

    def times(self, factors):
        """The noise with levels (E,) times as high."""
        return replace(self, levels=self.levels * factors)

    def near(self, flow, t, y, units):
        """The WhiteNoise of a flow at times (n,) and y (n, D)."""
        return flow.driven(t, y, self.levels * np.sqrt(self.distances), units)

    def between(self, flow, times, nodes, units):
        """The same in the middle of each of the steps between nodes (K, D)."""
        t, y = (times[:-1] + times[1:]) / 2, (nodes[:-1] + nodes[1:]) / 2
        return self.near(flow, t, y, units)


def process_noise(setup, levels):
    """The ProcessNoise of each function; None if all equations hold exactly.

    setup : EquationSetup. With the collocation points.
    levels : ndarray of shape (E,) or None. Nan or zero for equations that do.
    """
    if levels is None or not np.any(np.nan_to_num(levels)):
        return None
    found = []
    for points, rows in zip(setup.collocation_points, setup.rows, strict=True):
        places = [points[own, 0] for _, own in rows.slices()]
        gaps = [np.ptp(t) / max(len(t) - 1, 1) if len(t) else 0.0 for t in places]
        found.append(ProcessNoise(np.nan_to_num(levels), np.array(gaps)))
    return found


@dataclass(frozen=True)
class WhiteNoise:
    """White noise that drives linear systems dx = J x dt + B dW, n at once.

    jacobians, loads : ndarray of shape (n, D, D), (n, D, E). J and B.
    units : ndarray of shape (D,). Sizes of the entries of x.
    """

    jacobians: np.ndarray
    loads: np.ndarray
    units: np.ndarray

    def transition(self, h):
        """What times h (n,) later is left of a change: exp(J h) of shape (n, D, D)."""
        ratios = self.units / self.units[:, None]
        exponents = self.jacobians * ratios * h[:, None, None]
        if not np.all(np.isfinite(exponents)):
            return np.full_like(exponents, np.nan)
        return linalg.expm(exponents) / ratios

    def root(self, h):
        """A root (n, D, D) of the covariance of what the noise adds in times h (n,).

        The times may be negative.
        """
        return compressed(np.concatenate(self._parts(h), axis=2))

    def roots(self, h):
        """Roots (n, D, E D) of the covariances of each of the E loads, side by side."""
        each = np.moveaxis(np.stack(self._parts(h), axis=3), 2, 0)
        return np.concatenate([*compressed(each)], axis=2)

    def _parts(self, h, n_points=5):
        """Summands (n, D, E) of a root of the covariance, for each of some times.

        By Gauss's quadrature of exp(J s) B B^T exp(J s)^T over s, of order 10: no
        covariance is factorised, which may be singular, or zero.
        """
        places, shares = np.polynomial.legendre.leggauss(n_points)
        parts = []
        for place, share in zip((1 + places) / 2, shares / 2, strict=True):
            width = np.sqrt(share * np.abs(h))[:, None, None]
            parts.append(width * (self.transition(place * h) @ self.loads))
        return parts


def compressed(roots):
    """Lower triangular L (..., D, D) with L L^T = R R^T, of roots R (..., D, k)."""
    D, k = roots.shape[-2:]
    if k < D:
        roots = np.concatenate([roots, np.zeros((*roots.shape[:-1], D - k))], axis=-1)
    return np.swapaxes(np.linalg.qr(np.swapaxes(roots, -1, -2), mode="r"), -1, -2)


def _compressed_one(root, lower):
    """The same of one root (D, k) with k >= D, by LAPACK itself: it is done often.

    `lower` (D, D) has ones on and below the diagonal.
    """
    return linalg.lapack.dgeqrf(root.T)[0][: len(root)].T * lower


@dataclass(frozen=True)
class NoisyRows:
    """Observations of one function whose nodes have jumps.

    The changes of K nodes follow x_{k+1} = A_k x_k + g_k + B_k (w - w0) + R_k e_k with
    standard normal e_k, from x_0 = z - z0.

    transitions, roots : ndarray of shape (K - 1, D, D). A_k and R_k.
    added : ndarray of shape (K - 1, D, 1 + p). g_k and B_k.
    residuals : ndarray of shape (n,). Observations less what the nodes are.
    nodes, entries : ndarray of shape (n,). Which node and which entry of it each is.
    initial, index, weights : ndarray. As of Rows.
    n_sources : int. The columns of R_k are those of so many noises, side by side.
    """

    transitions: np.ndarray
    roots: np.ndarray
    added: np.ndarray
    residuals: np.ndarray
    nodes: np.ndarray
    entries: np.ndarray
    initial: np.ndarray
    index: np.ndarray
    weights: np.ndarray
    n_sources: int = 1

    def driven(self, factors):
        """The same with the noise of each source times a factor (n_sources,)."""
        columns = self.roots.shape[2] // self.n_sources
        return replace(self, roots=self.roots * np.repeat(factors, columns))

    @cached_property
    def observed(self):
        """The same with the first and last node and those that were observed only."""
        kept = np.unique([0, *self.nodes, len(self.roots)])
        A, R, added, lower = [], [], [], np.tri(self.roots.shape[1])
        for start, stop in itertools.pairwise(kept):
            parts = self.transitions[start], self.roots[start], self.added[start]
            for k in range(start + 1, stop):
                step = self.transitions[k]
                pairs = zip(
                    np.split(step @ parts[1], self.n_sources, axis=1),
                    np.split(self.roots[k], self.n_sources, axis=1),
                    strict=True,
                )
                roots = [_compressed_one(np.hstack(pair), lower) for pair in pairs]
                own = step @ parts[2] + self.added[k]
                parts = step @ parts[0], np.hstack(roots), own
            for every, part in zip((A, R, added), parts, strict=True):
                every.append(part)
        return replace(
            self,
            transitions=np.array(A),
            roots=np.array(R),
            added=np.array(added),
            nodes=np.searchsorted(kept, self.nodes),
        )


class Backward(NamedTuple):
    """What the recursion of a Smoother backwards finds.

    later : ndarray of shape (K, D, 1 + p + D). What observations from each node on add
        to its mean given those before, in units of the inverse of its covariance.
    information : ndarray of shape (K, D, D). What they take of that covariance P:
        P @ information @ P.
    smoothed : ndarray of shape (n, 1 + p + D). The inverse covariance of the
        observations times these.
    precisions : ndarray of shape (n,). The diagonal of that inverse covariance.
    """

    later: np.ndarray
    information: np.ndarray
    smoothed: np.ndarray
    precisions: np.ndarray


class Smoother:
    """Nodes of one function, given its observations, the weights and initial values.

    What is affine in those has columns: (1, w - w0, z - z0).

    own : NoisyRows. The observations.
    noise : ndarray of shape (n,). Standard deviations of their errors.

    innovations : ndarray of shape (n, 1 + p + D). What each observation adds to those
        before it.
    deviations : ndarray of shape (n,). Standard deviations of these.
    means, filtered : ndarray of shape (K, D, 1 + p + D), (K, D, D). Means of the nodes
        given all observations until then, and roots of their covariances.
    """

    def __init__(self, own, noise):
        self.own, self.noise = own, noise
        n, D, width = len(noise), len(own.initial), own.added.shape[2]
        K = len(own.roots) + 1
        order = np.argsort(own.nodes, kind="stable")
        bounds = np.searchsorted(own.nodes[order], np.arange(1, K))
        self._at_nodes = [rows.tolist() for rows in np.split(order, bounds)]
        self.innovations = np.zeros((n, width + D))
        self.deviations, self._gains = np.empty(n), np.empty((n, D))
        self.means, self.filtered = np.empty((K, D, width + D)), np.empty((K, D, D))
        mean, L = np.zeros((D, width + D)), np.zeros((D, D))
        mean[:, width:] = np.eye(D)
        self.innovations[:, 0] = own.residuals
        root, lower = np.empty((D, D + own.roots.shape[2])), np.tri(D)
        for k in range(K):
            if k:
                A = own.transitions[k - 1]
                mean = A @ mean
                mean[:, :width] += own.added[k - 1]
                root[:, :D], root[:, D:] = A @ L, own.roots[k - 1]
                L = _compressed_one(root, lower)
            for i in self._at_nodes[k]:
                self._observe(i, mean, L)
            self.means[k], self.filtered[k] = mean, L

    def _observe(self, i, mean, L):
        """Change the mean and the root by an observation (Potter's update)."""
        row, r = self.own.entries[i], self.noise[i]
        f, innovation = L[row].copy(), self.innovations[i]
        innovation -= mean[row]
        variance = r * r + f @ f
        self.deviations[i] = s = variance**0.5
        along = L @ f
        self._gains[i] = gain = along / variance
        mean += gain[:, None] * innovation
        L -= along[:, None] * (f / (variance + r * s))

    @cached_property
    def backward(self):
        """What observations say of the nodes and observations before them."""
        own, (K, D, width) = self.own, self.means.shape
        later, information = np.zeros((K, D, width)), np.zeros((K, D, D))
        smoothed, precisions = np.empty((len(self.noise), width)), self.deviations**-2
        added, known = np.zeros((D, width)), np.zeros((D, D))
        shares = self.innovations * precisions[:, None]
        for k in range(K - 1, -1, -1):
            if k < K - 1:
                A = own.transitions[k]
                added, known = A.T @ added, A.T @ (known @ A)
            for i in reversed(self._at_nodes[k]):
                row, gain = own.entries[i], self._gains[i]
                smoothed[i] = shares[i] - gain @ added
                effect = known @ gain
                precisions[i] += gain @ effect
                added[row] += smoothed[i]
                known[row] -= effect
                known[:, row] -= effect
                known[row, row] += precisions[i]
            later[k], information[k] = added, known
        return Backward(later, information, smoothed, precisions)

    def is_tame(self, units, most):
        """Whether changes (D,) of initial values grow to `most` times as much at most.

        In their units; and whether squares of all else are finite.
        """
        growth = np.abs(self.innovations[:, -len(units) :]) * units
        all_else = self.innovations, self.deviations
        finite = all(np.all(np.abs(own) < largest_factor()) for own in all_else)
        return bool(finite and np.all(growth < most * units[self.own.entries][:, None]))

    @property
    def response(self):
        """Changes (K, D, 1 + p + D) of the nodes given all observations."""
        response, L = self.means.copy(), self.filtered[:-1]
        after = np.swapaxes(self.own.transitions, 1, 2) @ self.backward.later[1:]
        response[:-1] += L @ (np.swapaxes(L, 1, 2) @ after)
        return response

    def sizes_of_jumps(self, change, root):
        """Sums of squares of the jumps of each source, and how much is known of these.

        The first (n_sources,) as :meth:`squared_jumps`; the second the same as what
        they are expected to be if the noise has the right size (MacKay, "Bayesian
        interpolation", Neural Computation 4, 1992, section 4.4). `root` is that of the
        covariance of weights and initial values.
        """
        back = np.swapaxes(self.own.roots, 1, 2)
        jumps = back @ self.backward.later[1:]
        squares = (jumps @ change) ** 2
        known = np.sum((back @ self.backward.information[1:]) * back, axis=2)
        known = known - np.sum((jumps[:, :, 1:] @ root) ** 2, axis=2)
        n = self.own.n_sources
        return [
            np.array([np.sum(part) for part in np.split(each, n, axis=1)])
            for each in (squares, known)
        ]

    def squared_jumps(self, change):
        """Sum of squares of the jumps in units of their noise, where these change."""
        later = (self.backward.later[1:] @ change)[..., None]
        return float(np.sum((np.swapaxes(self.own.roots, 1, 2) @ later) ** 2))


def flow_of(learned, m, equations=None):
    """The vector field of one function of a learned model."""
    setup = learned.setup
    equations = learned.equations if equations is None else equations
    return Flow(equations, setup.inputs.of_function(m), setup.forcing_functions[m])


def _at(forcing, t):
    """Values (n,) of a function of points at times (n,)."""
    return np.ravel(forcing(np.array(t[:, None])))  # functions may write to it
