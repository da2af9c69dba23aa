"""What the data sets share: checks, operator names, the assembly of the result."""

import re
from numbers import Integral, Real

import numpy as np
from sklearn.utils import Bunch, check_array, check_random_state, check_scalar

from keql._numerics.arguments import naming, refuse_odd_number
from keql._numerics.memory import MemoryBudget

DESCR = """{title}

{equation}

The unknown part P is a function of
{operators}.

The observations X, y, the forcing and the collocation points are laid out as in the
published experiment; `kernels` holds its settings. The truth is
{truth}

References
----------
Jalalian, Osorio, Hsu, Hosseini, Owhadi, "Data-Efficient Kernel Methods for Learning
Differential Equations and Their Solution Operators: Algorithms and Error Analysis",
arXiv:2503.01036, section 4.
"""


def check_number(value, name, **limits):
    """Check a finite real parameter; the limits are those of `check_scalar`."""
    with naming(name):
        refuse_odd_number(value)
    check_scalar(value, name, Real, **limits)
    if not np.isfinite(value):
        raise ValueError(f"{name} is {value}; give a finite number.")


def check_count(value, name, smallest, largest=None, what=None):
    """Check an integer parameter; `what` says what there are only `largest` of.

    A data set has about a hundred numbers for each of what is counted.
    """
    if isinstance(value, bool):
        raise TypeError(f"{name} is {value}, which is no number.")
    with naming(name):
        refuse_odd_number(value)
    check_scalar(value, name, Integral, min_val=smallest)
    advice = "give a smaller number."
    MemoryBudget().refuse_above(100 * int(value), f"{name}={value:,}", advice)
    if largest is not None and value > largest:
        raise ValueError(f"{name}={value}, but there are only {largest} {what}.")


def random_generator(random_state):
    """What draws the numbers: a NumPy Generator as it is, else a RandomState."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    with naming("random_state"):
        return check_random_state(random_state)


def orders_of(operator, variables, highest=4):
    """Return how often an operator such as "u_xx" differentiates by each variable."""
    tokens = "|".join(variables)
    match = re.fullmatch(f"u(?:_((?:{tokens})+))?", str(operator))
    found = re.findall(tokens, match[1] or "") if match else None
    if found is None or len(found) > highest:
        raise ValueError(
            f"operator={operator!r} is not known to the truth; give 'u', or 'u_' and "
            f"at most {highest} of {', '.join(variables)}."
        )
    return tuple(found.count(variable) for variable in variables)


def check_points(X, lower, upper):
    """Return points inside the domain of the truth, which is not extrapolated."""
    X = check_array(X, dtype=np.float64, input_name="X")
    if X.shape[1] != len(lower):
        raise ValueError(f"X has {X.shape[1]} columns; the truth takes {len(lower)}.")
    lower, upper = np.asarray(lower), np.asarray(upper)
    slack = 1e-9 * (upper - lower)
    outside = np.any((X < lower - slack) | (X > upper + slack), axis=1)
    if np.any(outside):
        raise ValueError(
            f"X has {outside.sum()} rows outside the domain from {lower.tolist()} to "
            f"{upper.tolist()}, such as {X[outside][0].tolist()}."
        )
    return np.clip(X, lower, upper)


def refuse_function(function):
    """Raise if a data set of one function is asked for a particular one."""
    if function is not None:
        raise ValueError(
            f"function={function!r}: the data are of one function; omit it."
        )


def product_grid(first, second):
    """Return the points of a product grid; the first coordinate runs fastest."""
    return np.column_stack([axis.ravel() for axis in np.meshgrid(first, second)])


def describe_problem(operators, known_part, points, forcing, variables, column=None):
    """The description of an equation, as constructor arguments of a learner: a dict."""
    return {
        "operators": operators,
        "known_part": known_part,
        "collocation_points": points,
        "forcing": forcing,
        "variables": variables,
        "function_column": column,
    }


def make_bunch(problem, X, X_test, truth, noise, rng, **others):
    """Assemble a data set; the noise goes to every row of the observations."""
    y, y_test = truth(X), truth(X_test)
    noise_std = noise * np.sqrt(np.mean(y_test**2))
    names = [*problem["variables"], *problem["operators"]]
    if problem["known_part"] is not None:
        names.append(problem["known_part"])
    return Bunch(
        X=X,
        y=y + noise_std * rng.standard_normal(len(y)),
        feature_names=names,
        X_test=X_test,
        y_test=y_test,
        noise_std=float(noise_std),
        problem=problem,
        truth=truth,
        **problem,
        **others,
    )


def noise_levels(n_observations, n_collocation, omega, beta):
    """Translate the weights of the authors' loss to standard deviations.

    Their loss is the mean square of all data times omega, plus that of the equation at
    all collocation points, plus beta times the squared norms. The counts are of all
    functions together.
    """
    return {
        "observation_noise": float(np.sqrt(n_observations * beta / omega)),
        "equation_noise": float(np.sqrt(n_collocation * beta)),
    }
