"""Short pieces of trajectories of ordinary differential equations, all at once.

The steps of :class:`scipy.integrate.DOP853` (Hairer, Norsett, Wanner, "Solving ordinary
differential equations I", section II.5) from many points, with the derivatives of their
ends in the points and in the weights of the equations.
"""

from functools import cached_property

import numpy as np
from scipy.integrate import DOP853

from keql._evolution.driven.noise import WhiteNoise
from keql.equation import layout_of, solve_each, with_slopes


class Flow:
    """The vector field of explicit equations with weights, for one function.

    The equations are LearnedEquations of one variable; `given` says of each input what
    it is, {name: function of points}, and `forcing` of each equation what its
    right-hand side is, a function of points or None for zero. In y (D,) are the states
    and their derivatives below the highest, as a :class:`keql.equation.Layout` has
    them.
    """

    def __init__(self, equations, given, forcing):
        self.equations, self.layout = tuple(equations), layout_of(equations[0], given)
        self.forcing = forcing
        first = self.equations[0]
        self.n_unknown = first.n_unknown_features
        self.sizes = [len(equation.weights) for equation in self.equations]

    @cached_property
    def _constant_mass(self):
        """What :meth:`mass` gives if it is the same everywhere; or None."""
        known = [equation.known_part for equation in self.equations]
        return self.layout.constant_mass(known, self.n_unknown)

    @cached_property
    def _with_slopes(self):
        """What gives features and slopes of each equation, made for many calls."""
        pairs = ((e.basis, e.weights) for e in self.equations)
        return [with_slopes(*pair, self.n_unknown) for pair in pairs]

    @cached_property
    def _known_parts(self):
        """Those of the equations; None where it vanishes without highest ones."""
        parts = (equation.known_part for equation in self.equations)
        return [None if self.layout.is_of_highest(part) else part for part in parts]

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
        S = self.layout.features_in_time(t)
        velocity = self._velocity(S, y, self._right(t))
        if not with_slopes:
            return velocity, None, None
        parts, slopes = self._parts(S)
        gradients = self._gradients(S, slopes)
        mass = self.layout.mass(gradients)
        return velocity, *self.layout.linearise(mass, gradients, parts)

    def _right(self, t):
        """Right-hand sides (n, E) of the equations at times (n,)."""
        right = np.zeros((len(t), len(self.equations)))
        for e, f in enumerate(self.forcing):
            if f is not None:
                right[:, e] = _at(f, t)
        return right

    def _velocity(self, S, y, right):
        """dy/dt (n, D) at y (n, D), which are written into features of their times."""
        self.layout.insert(S, y)
        own, left = S[:, : self.n_unknown], -right
        pairs = zip(self._with_slopes, self._known_parts, strict=True)
        for e, (unknown, known) in enumerate(pairs):
            left[:, e] += unknown.values(own)
            if known is not None:
                left[:, e] += known(S)
        mass = self._constant_mass
        if mass is None:
            mass = self.layout.mass(self._gradients(S, self._parts(S)[1]))
        highest = -solve_each(mass, left[..., None])[..., 0]
        return self.layout.rates(y, highest)

    def _parts(self, S):
        """Features (n, p_e) and slopes (d', n) of each P at features (n, d + Q')."""
        own = S[:, : self.n_unknown]
        return tuple(zip(*(both(own) for both in self._with_slopes), strict=True))

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
        (n, D), n_stages = y.shape, DOP853.n_stages
        stages, wide = np.empty((n_stages, n, D)), h[:, None]
        times = (t + DOP853.C[:n_stages, None] * h).ravel()
        S, right = self.layout.features_in_time(times), self._right(times)
        for i in range(n_stages):
            before = DOP853.A[i, :i] @ stages[:i].reshape(i, n * D)
            inner, own = y + wide * before.reshape(n, D), slice(i * n, (i + 1) * n)
            stages[i] = self._velocity(S[own], inner, right[own])
        end = y + wide * (DOP853.B @ stages.reshape(n_stages, n * D)).reshape(n, D)
        if not with_slopes:
            return end, None
        features, slopes = self._parts(S)
        gradients = self._gradients(S, slopes)
        linear = self.layout.linearise_in_y(self.layout.mass(gradients), gradients)
        linear = np.concatenate(linear, axis=2)
        in_y, of_stages = _slopes_of_end(
            h, linear.reshape(n_stages, n, D, linear.shape[2])
        )
        in_weights = [
            np.matmul(
                np.moveaxis(of_stages[..., e], 0, 2),
                np.moveaxis(own.reshape(n_stages, n, own.shape[1]), 0, 1),
            )
            for e, own in enumerate(features)
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


def _slopes_of_end(h, slopes):
    """Slopes of the ends of steps h (n,) in y, and in the left-hand sides of stages.

    Those of a stage act through all that come after it: from the last one on, each is
    multiplied by what changes of its velocity do to the end.

    slopes : ndarray of shape (stages, n, D, D + E). Of the velocity of each stage in
        its y and in its left-hand sides.

    Returns in_y, of_stages : ndarray of shape (n, D, D), (stages, n, D, E).
    """
    n_stages, n, D, width = slopes.shape
    through, unit = np.empty(slopes.shape), np.eye(D)
    for i in reversed(range(n_stages)):
        later = through[i + 1 :].reshape(n_stages - i - 1, n * D * width)
        change = (DOP853.A[i + 1 : n_stages, i] @ later).reshape(n, D, width)[..., :D]
        change = h[:, None, None] * (change + DOP853.B[i] * unit)
        np.matmul(change, slopes[i], out=through[i])
    return unit + np.sum(through[..., :D], axis=0), through[..., D:]


def flow_of(learned, m, equations=None):
    """The vector field of one function of a learned model."""
    setup = learned.setup
    equations = learned.equations if equations is None else equations
    return Flow(equations, setup.inputs.of_function(m), setup.forcing_functions[m])


def _at(forcing, t):
    """Values (n,) of a function of points at times (n,)."""
    return np.ravel(forcing(np.array(t[:, None])))  # functions may write to it
