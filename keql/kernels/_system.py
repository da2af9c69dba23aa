"""Kernels of several states that are independent of one another."""

from keql.kernels._convert import as_kernel


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

    def __init__(self, kernels):
        self.kernels = {name: as_kernel(kernel) for name, kernel in kernels.items()}

    def of_state(self, name):
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

    def map(self, function):
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

    def bind(self, names):
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

    __hash__ = None

    def __str__(self):
        return ", ".join(f"{name}: {kernel}" for name, kernel in self.kernels.items())

    def __repr__(self):
        return f"<SystemKernel {self}>"


def map_states(function, kernel):
    """A kernel, or each of those of a SystemKernel, with a function applied to it."""
    return (
        kernel.map(function) if isinstance(kernel, SystemKernel) else function(kernel)
    )
