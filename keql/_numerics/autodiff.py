"""Functions that a user has written, and their automatic differentiation."""

import inspect
import warnings

from autograd import elementwise_grad


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
