"""States with a jump at each node, given observations: a filter and a smoother.

A Kalman filter, given the weights and the initial values, takes the jumps out; the
state at a node given all observations follows from a recursion backwards, which needs
no inverse (de Jong, "Smoothing and interpolation with the state-space model", JASA 84,
1989).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import linalg

from keql._evolution.driven.noise import compressed
from keql._numerics.linalg import largest_factor, solve_lower_of_each


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
        starts, n_steps, n = kept[:-1], np.diff(kept), self.n_sources
        every = self.transitions, self.roots, self.added
        A, R, added = (steps[starts] for steps in every)
        for j in range(1, n_steps.max(initial=1)):
            on = np.flatnonzero(n_steps > j)
            step, roots, own = (steps[starts[on] + j] for steps in every)
            pairs = np.split(step @ R[on], n, axis=2), np.split(roots, n, axis=2)
            R[on] = np.concatenate(
                [
                    compressed(np.concatenate(pair, axis=2))
                    for pair in zip(*pairs, strict=True)
                ],
                axis=2,
            )
            A[on], added[on] = step @ A[on], step @ added[on] + own
        return replace(
            self,
            transitions=A,
            roots=R,
            added=added,
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


class Seen(NamedTuple):
    """Nodes of which as many entries were observed, m, and what that tells of them.

    nodes, rows : ndarray of shape (k,), (k, m). Which nodes, and which observations.
    entries : ndarray of shape (k, m, D). What is observed, in units of the noise.
    root : ndarray of shape (k, m, m). S, a root of the covariance of the observations
        in units of their noise, given those of earlier nodes.
    along : ndarray of shape (k, D, m). The covariances of the nodes and of observations
        that S^-1 makes independent.
    """

    nodes: np.ndarray
    rows: np.ndarray
    entries: np.ndarray
    root: np.ndarray
    along: np.ndarray

    @classmethod
    def by_number(cls, at_nodes, entries, factors):
        """Those of each number of observations.

        at_nodes : list of ndarray of shape (m,). The observations of each node.
        entries : ndarray of shape (n, D). Of all observations.
        factors : list of ndarray of shape (m + D, m + D). Of each node, with S and what
            belongs to it below.
        """
        numbers = np.array([*map(len, at_nodes)])
        for m in np.unique(numbers[numbers > 0]).tolist():
            nodes = np.flatnonzero(numbers == m)
            rows = np.array([at_nodes[k] for k in nodes])
            own = np.array([factors[k][:, :m] for k in nodes])
            yield cls(nodes, rows, entries[rows], np.tril(own[:, :m]), own[:, m:])

    def independent(self, values):
        """S^-1 times values (k, m, j) of the observations."""
        return solve_lower_of_each(self.root, values)

    def transposed(self, values):
        """S^-T times values (k, m, j)."""
        return solve_lower_of_each(self.root, values, transposed=True)

    @property
    def deviations(self):
        """The diagonal (k, m) of S."""
        return np.diagonal(self.root, axis1=1, axis2=2)

    @property
    def gains(self):
        """What observations, in units of their noise, add to the nodes (k, D, m)."""
        return np.swapaxes(self.transposed(np.swapaxes(self.along, 1, 2)), 1, 2)


class Smoother:
    """Nodes of one function, given its observations, the weights and initial values.

    What is affine in those has columns: (1, w - w0, z - z0). Observations of one node
    are taken together, at a cost cubic in their number and with quadratic memory.

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
        order = np.argsort(own.nodes, kind="stable")
        bounds = np.searchsorted(own.nodes[order], np.arange(1, len(own.roots) + 1))
        at_nodes = np.split(order, bounds)
        # In units of the noise, which all observations have in common then.
        entries = np.eye(len(own.initial))[own.entries] / noise[:, None]
        factors = self._filter_covariances(at_nodes, entries)
        self._seen = [*Seen.by_number(at_nodes, entries, factors)]
        self._filter_means()

    def _filter_covariances(self, at_nodes, entries):
        """Find roots of the covariances of nodes, given all observations until then.

        A node and its observations in units of their noise have a joint root, of which
        a factorisation makes ((S, 0), (G, L)), lower triangular (array form of the
        Kalman filter: Kailath, Sayed, Hassibi, "Linear estimation", 2000, chapter 12).

        Returns factors : list of ndarray of shape (m + D, m + D). Those of nodes with m
            observations; above the diagonal are other numbers.
        """
        own, factors, blank = self.own, [], {}
        D, width = own.roots.shape[1:]
        self.filtered, lower = np.empty((len(at_nodes), D, D)), np.tri(D)
        root = np.zeros((D, D + width))
        for k, rows in enumerate(at_nodes):
            if k:
                root[:, :D] = own.transitions[k - 1] @ self.filtered[k - 1]
                root[:, D:] = own.roots[k - 1]
            m = len(rows)
            if m not in blank:
                blank[m] = np.eye(m + D, m + D + width)
            joint = blank[m].copy()
            joint[m:, m:] = root
            if m:
                joint[:m, m:] = entries[rows] @ root
            # By LAPACK itself: it is done often, and for a few rows.
            factor = linalg.lapack.dgeqrf(joint.T, overwrite_a=1)[0][: m + D].T
            np.multiply(factor[m:, m:], lower, out=self.filtered[k])
            factors.append(factor)
        return factors

    def _filter_means(self):
        """Find means of the nodes, and what observations add to those before them."""
        own, (K, D) = self.own, self.filtered.shape[:2]
        width, residuals = own.added.shape[2], (own.residuals / self.noise)[:, None]
        before = np.zeros((K, D, width + D))
        before[0, :, width:], before[1:, :, :width] = np.eye(D), own.added
        # What observations of a node leave of its changes.
        self._left = np.tile(np.eye(D), (K, 1, 1))
        gains = [seen.gains for seen in self._seen]
        for seen, gain in zip(self._seen, gains, strict=True):
            self._left[seen.nodes] -= gain @ seen.entries
        self.means = self._left @ before
        for seen, gain in zip(self._seen, gains, strict=True):
            self.means[seen.nodes, :, :1] += gain @ residuals[seen.rows]
        steps = self._left[1:] @ own.transitions
        for step, earlier, mean in zip(steps, self.means, self.means[1:], strict=False):
            mean += step @ earlier
        before[1:] += own.transitions @ self.means[:-1]
        n = len(self.noise)
        self.innovations, self.deviations = np.empty((n, width + D)), np.empty(n)
        self._independent = []
        for seen in self._seen:
            missed = -seen.entries @ before[seen.nodes]
            missed[:, :, :1] += residuals[seen.rows]
            missed = seen.independent(missed)
            # As if they were observed one after the other.
            units = self.noise[seen.rows] * seen.deviations
            self.innovations[seen.rows] = units[:, :, None] * missed
            self.deviations[seen.rows] = np.abs(units)
            self._independent.append(missed)

    @cached_property
    def backward(self):
        """What observations say of the nodes and observations before them."""
        own, (K, D, width), n = self.own, self.means.shape, len(self.noise)
        later, information = np.zeros((K, D, width)), np.zeros((K, D, D))
        smoothed, precisions = np.empty((n, width)), np.empty(n)
        for seen, missed in zip(self._seen, self._independent, strict=True):
            back = np.swapaxes(seen.entries, 1, 2)
            later[seen.nodes] = back @ seen.transposed(missed)
            own_root = seen.independent(seen.entries)
            information[seen.nodes] = np.swapaxes(own_root, 1, 2) @ own_root
        steps = own.transitions @ self._left[:-1]
        for k in range(K - 2, -1, -1):
            later[k] += steps[k].T @ later[k + 1]
            information[k] += steps[k].T @ information[k + 1] @ steps[k]
        ahead, known = np.zeros_like(later), np.zeros_like(information)
        back = np.swapaxes(own.transitions, 1, 2)
        ahead[:-1] = back @ later[1:]
        known[:-1] = back @ information[1:] @ own.transitions
        for seen, missed in zip(self._seen, self._independent, strict=True):
            along, noise = np.swapaxes(seen.along, 1, 2), self.noise[seen.rows]
            own = seen.transposed(missed - along @ ahead[seen.nodes])
            smoothed[seen.rows] = own / noise[:, :, None]
            identity = np.eye(noise.shape[1])
            inner = identity + along @ known[seen.nodes] @ seen.along
            root = seen.independent(np.broadcast_to(identity, inner.shape))
            precisions[seen.rows] = np.sum(root * (inner @ root), axis=1) / noise**2
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
