"""What is known of the nodes of a driven state, and of those beyond them."""

from dataclasses import dataclass

import numpy as np

from keql._evolution.driven.noise import compressed


@dataclass(frozen=True)
class DrivenNodes:
    """What is known of nodes between which white noise drives the equations.

    process : ProcessNoise. The noise.
    units : ndarray of shape (D,). Sizes of the entries of y.
    response : ndarray of shape (K, D, p + D). Slopes of the nodes in weights and
        initial values, given the observations.
    filtered : ndarray of shape (K, D, D). Roots of their covariances, given the
        observations until each of them, weights and initial values.
    later, slopes_of_later : ndarray of shape (K, D), (K, D, p + D). What observations
        from each node on add to its mean, in units of the inverse of its covariance.
    information : ndarray of shape (K, D, D). What they take of that covariance.
    """

    process: object
    units: np.ndarray
    response: np.ndarray
    filtered: np.ndarray
    later: np.ndarray
    slopes_of_later: np.ndarray
    information: np.ndarray

    @classmethod
    def found(cls, process, units, smoother, response, change):
        """Those of a Smoother whose nodes have a response, where (1, w - w0, z - z0) is
        the change."""
        later, information, _, _ = smoother.backward
        arrays = later @ change, later[:, :, 1:], information
        return cls(process, units, response[:, :, 1:], smoother.filtered, *arrays)

    def going_on(self, flow, times, nodes, backwards=False):
        """The same with further nodes (K', D) at times (K',), the first one known.

        They come after all others, or `backwards` before these.
        """
        h, known = np.diff(times), 0 if backwards else -1
        noise = self.process.between(flow, times, nodes, self.units)
        _, slopes = flow.step(times[:-1], h, nodes[:-1])
        D = nodes.shape[1]
        responses, filtered = [self.response[known]], [self.filtered[known]]
        for own, root in zip(slopes, noise.root(h), strict=True):
            response = own[:, :D] @ responses[-1]
            response[:, :-D] += own[:, D:]
            responses.append(response)
            filtered.append(compressed(np.hstack([own[:, :D] @ filtered[-1], root])))
        zeros = [
            np.zeros((len(h), *each.shape[1:]))
            for each in (self.later, self.slopes_of_later, self.information)
        ]
        own = self.later, self.slopes_of_later, self.information
        added = np.array(responses[1:]), np.array(filtered[1:]), *zeros
        pairs = zip(added, (self.response, self.filtered, *own), strict=True)
        if backwards:
            arrays = [np.concatenate([new[::-1], old]) for new, old in pairs]
        else:
            arrays = [np.concatenate([old, new]) for new, old in pairs]
        return DrivenNodes(self.process, self.units, *arrays)
