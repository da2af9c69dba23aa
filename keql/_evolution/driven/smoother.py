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
from keql._numerics.linalg import largest_factor


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
