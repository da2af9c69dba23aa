"""Functions that a user has written in `autograd.numpy`."""

import inspect
import warnings
from contextlib import contextmanager


def parameter_names(function):
    """Names of the parameters but those with a default, which are constants."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
    ]


@contextmanager
def vanishing_derivatives():
    """Silence autograd where a derivative is 0, as u_xx of u = x is.

    Autograd warns that the output seems independent of the input.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Output seems independent of input")
        yield
