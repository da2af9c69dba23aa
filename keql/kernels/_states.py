"""Kernels of states: of a part of an RKHS, and of the states of a system."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keql._numerics.arguments import in_short, naming
from keql._numerics.linalg import cholesky, solve_lower
from keql.kernels._active import NonStationaryKernel
from keql.kernels._convert import as_kernel


class ProjectedKernel(NonStationaryKernel):
    """Kernel of the span of U(y_1, .), ..., U(y_K, .) in the RKHS of U.

    k(x, y) = U(x, Y) U(Y, Y)^-1 U(Y, y): a Gaussian process with this covariance has
    no variance outside of the span. `kernel` is U, and the distinct `points` (K, d) are
    the y_k.
    """

    def __init__(self, kernel, points):
        self.kernel = kernel
        self.points = points
        self.cholesky = cholesky(kernel(points))

    def __reduce__(self):
        # The factor, which is computed again, would be most of what is saved.
        return ProjectedKernel, (self.kernel, self.points)

    def __call__(self, X, Y=None):
        """Values at all pairs of points, of shape (n, m)."""
        return self.derivative(X, Y)

    def diag(self, X: Any) -> np.ndarray:
        """Values k(x, x), of shape (n,)."""
        zero = (0,) * X.shape[1]
        return np.sum(self._whitened(X, [zero])[zero] ** 2, axis=0)

    def check_order(self, a, operator=None):
        self.kernel.check_order(a, operator)

    def _derivatives(self, X, Y, pairs):
        left = self._whitened(X, dict.fromkeys(a for a, _ in pairs))
        right = self._whitened(Y, dict.fromkeys(b for _, b in pairs))
        return [left[a].T @ right[b] for a, b in pairs]

    def _whitened(self, X, orders):
        """C^-1 d^a_x U(Y, x), of shape (K, n), for each multi-index a."""
        zero = (0,) * X.shape[1]
        layers = self.kernel.derivatives(self.points, X, [(zero, a) for a in orders])
        return {
            a: solve_lower(self.cholesky, layer)
            for a, layer in zip(orders, layers, strict=True)
        }


class SystemKernel:
    """The kernels of the states of a system, which are independent a priori.

    Parameters
    ----------
    kernels : dict of str to Kernel
        The kernel of each state, by its name.

    Examples
    --------
    >>> from keql.kernels import RBF, SystemKernel
    >>> kernel = SystemKernel({"prey": RBF(0.5), "predator": 4.0 * RBF(1.0)})
    >>> print(kernel)
    prey: RBF(length_scale=0.5), predator: 2**2 * RBF(length_scale=1)
    """

    def __init__(self, kernels: Any) -> None:
        if not isinstance(kernels, Mapping):
            raise TypeError(
                f"kernels is {in_short(kernels)}: it must be a dict of kernels by the "
                "names of the states."
            )
        with naming("kernels"):
            self.kernels = {name: as_kernel(own) for name, own in kernels.items()}

    def of_state(self, name: str) -> Any:
        """The kernel of a state.

        Parameters
        ----------
        name : str
            Name of the state.

        Returns
        -------
        kernel : Kernel
            The kernel that it has in this system.
        """
        return self.kernels[name]

    def map(self, function: Any) -> Any:
        """The system with another kernel for each state.

        Parameters
        ----------
        function : callable
            From the kernel of a state to another one.

        Returns
        -------
        system : SystemKernel
            Of the same states.
        """
        return SystemKernel({name: function(k) for name, k in self.kernels.items()})

    def bind(self, names: Any) -> Any:
        """Resolve `active_dims` of each kernel to column indices.

        Parameters
        ----------
        names : list of str
            Names of the coordinates.

        Returns
        -------
        system : SystemKernel
            A clone.
        """
        return self.map(lambda kernel: kernel.bind(names))

    def __eq__(self, other):
        return isinstance(other, SystemKernel) and self.kernels == other.kernels

    def __str__(self):
        return ", ".join(f"{name}: {kernel}" for name, kernel in self.kernels.items())

    def __repr__(self):
        return f"<SystemKernel {self}>"


def map_states(function, kernel):
    """A kernel, or each of those of a SystemKernel, with a function applied to it."""
    return (
        kernel.map(function) if isinstance(kernel, SystemKernel) else function(kernel)
    )
