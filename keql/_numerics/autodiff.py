"""Functions that a user has written, and their automatic differentiation."""

import inspect
import warnings

import numpy as np
from autograd import elementwise_grad

from keql._numerics.arguments import in_short


def parameter_names(function):
    """Names of the parameters but those with a default, which are constants."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
    ]


def differentiate(function, orders, arguments):
    """A partial derivative of a function written in `autograd.numpy`, at points.

    The function takes one array for each variable and works elementwise; `orders` says
    how often it is differentiated in each of them, and `arguments` holds the arrays.
    """
    if not any(orders):
        return function(*arguments)
    for position, order in enumerate(orders):
        for _ in range(order):
            function = elementwise_grad(function, position)
    with warnings.catch_warnings():
        # Autograd's word for a derivative that is 0, such as u_xx of u = x.
        warnings.filterwarnings("ignore", "Output seems independent of input")
        return function(*arguments)


def partial_derivatives(function, arguments):
    """The first partial derivatives of such a function, all of them at once."""
    slopes = elementwise_grad(function, tuple(range(len(arguments))))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Output seems independent of input")
        return slopes(*arguments)


def refuse_unsuitable(function, parameters, name):
    """Refuse a function of arrays (n,) that cannot be used where one is differentiated.

    It is tried at three points: it must return a number for each of them that depends
    on this point only, the same again, and have derivatives. `parameters` are the names
    of its arguments, `name` is that of the parameter of the estimator.
    """
    if not parameters:
        raise ValueError(
            f"{name} is a function without arguments: name them after coordinates, "
            "inputs and operators, as in lambda u, u_xx: u_xx + u**3."
        )
    n, k = 3, len(parameters)
    arguments = np.linspace(0.3, 0.8, n * k).reshape(k, n)
    values, backwards = (
        _tried(function, name, own) for own in (arguments, arguments[:, ::-1])
    )
    if not np.allclose(values, backwards[::-1], rtol=1e-9, atol=0, equal_nan=True):
        raise ValueError(
            f"{name} returned {in_short(values.tolist())} at three points, and in the "
            f"opposite order {in_short(backwards.tolist())} at these: each value must "
            "depend on its own point alone, and be the same at each call."
        )
    try:
        with np.errstate(all="ignore"):
            partial_derivatives(function, arguments)
    except Exception as error:
        raise ValueError(
            f"{name} cannot be differentiated: {type(error).__name__}: {error}. "
            "Write it with the functions of autograd.numpy, not with those of "
            "numpy or math, and without float()."
        ) from error


def _tried(function, name, arguments):
    """Values (n,) at arguments (k, n)."""
    n = arguments.shape[1]
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(function(*arguments))
    except Exception as error:
        raise ValueError(
            f"{name} failed when it was called with {len(arguments)} array(s) of shape "
            f"({n},): {type(error).__name__}: {error}. It must take arrays and return "
            "one."
        ) from error
    if values.dtype.kind not in "fiub" or values.shape not in {(), (n,)}:
        raise ValueError(
            f"{name} returned {in_short(values)} for {len(arguments)} array(s) of "
            f"shape ({n},): it must return a real number for each point."
        )
    return np.broadcast_to(values.astype(float), (n,))
