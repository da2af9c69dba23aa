"""Short pieces of trajectories of ordinary differential equations, all at once.

The steps of :class:`scipy.integrate.DOP853` (Hairer, Norsett, Wanner, "Solving ordinary
differential equations I", section II.5) from many points, with the derivatives of their
ends in the points and in the weights of the equations.
"""

import numpy as np
from scipy.integrate import DOP853

from keql.equation import Layout, solve_each


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
        highest = [self.layout.offset + j for j, _ in self.layout.solved_for]
        self._only_known_has_highest = min(highest) >= self.n_unknown

    @property
    def n_states(self):
        """Length D of y."""
        return sum(self.layout.orders.values())

    def mass(self, t, y, highest=0.0):
        """Slopes (n, E, S) in the highest derivatives (S, n) at y (D, n)."""
        S = self.layout.features(t, y, highest)
        slopes = [self.layout.slopes(e.gradient(S)) for e in self.equations]
        return np.stack(slopes, axis=1)

    def velocity(self, t, y, with_slopes=True):
        """dy/dt (n, D) at times (n,) and y (n, D), with slopes in y and weights.

        The slopes have the shapes (n, D, D) and (n, D, p). The highest derivatives h
        solve M h + G(t, y) . w = f(t), with M of :meth:`mass`.
        """
        layout = self.layout
        S = layout.features(t, y.T, 0.0)
        if with_slopes or not self._only_known_has_highest:
            gradients = [equation.gradient(S) for equation in self.equations]
        else:
            gradients = [
                equation.known_part.gradient(S).T for equation in self.equations
            ]
        M = np.stack([layout.slopes(gradient) for gradient in gradients], axis=1)
        parts = [e.basis(S[:, : self.n_unknown]) for e in self.equations]
        left = [
            part @ e.weights + e.known_part(S) - (0.0 if f is None else _at(f, t))
            for part, e, f in zip(parts, self.equations, self.forcing, strict=True)
        ]
        highest = -solve_each(M, np.stack(left, axis=1)[..., None])[..., 0]
        velocity = layout.velocity(y.T, highest.T).T
        if not with_slopes:
            return velocity, None, None
        on_y, on_w = layout.linearise(M, gradients, parts)
        return velocity, on_y, on_w

    def step(self, t, h, y, with_slopes=True):
        """y (n, D) after steps h (n,) from times (n,), with slopes of the ends.

        The slopes (n, D, D + p) are those in y and in the weights.
        """
        n, D = y.shape
        A, B, C = DOP853.A, DOP853.B, DOP853.C
        width = D + sum(self.sizes) if with_slopes else 0
        V = np.zeros((n, D, width))
        V[:, :, :D] = np.eye(D)[:, :width]
        # All stages in one array each, so that sums over them are single products.
        stages = np.empty((DOP853.n_stages, n, D))
        tangents = np.empty((DOP853.n_stages, n, D, width))
        for i in range(DOP853.n_stages):
            inner = y + h[:, None] * np.tensordot(A[i, :i], stages[:i], 1)
            f, on_y, on_w = self.velocity(t + C[i] * h, inner, with_slopes)
            stages[i] = f
            if with_slopes:
                change = np.tensordot(A[i, :i], tangents[:i], 1)
                np.matmul(on_y, V + h[:, None, None] * change, out=tangents[i])
                tangents[i, :, :, D:] += on_w
        end = y + h[:, None] * np.tensordot(B, stages, 1)
        if not with_slopes:
            return end, None
        return end, V + h[:, None, None] * np.tensordot(B, tangents, 1)

    def respond(self, times, nodes):
        """Changes (K, D, 1 + p + D) of nodes (K, D) that make them fit together.

        First what they are if neither weights nor initial values change, then their
        slopes in these. None if steps are not finite.
        """
        ends, slopes = self.step(times[:-1], np.diff(times), nodes[:-1])
        if not (np.all(np.isfinite(ends)) and np.all(np.isfinite(slopes))):
            return None
        D, p = nodes.shape[1], sum(self.sizes)
        A, gaps = slopes[:, :, :D], ends - nodes[1:]
        added = np.dstack([gaps, slopes[:, :, D:]])
        response = np.zeros((len(times), D, 1 + p + D))
        response[0, :, 1 + p :] = np.eye(D)
        for k in range(len(ends)):
            response[k + 1] = A[k] @ response[k]
            response[k + 1, :, : 1 + p] += added[k]
        return response


def _at(forcing, t):
    """Values (n,) of a function of points at times (n,)."""
    return np.ravel(forcing(np.array(t[:, None])))  # functions may write to it
