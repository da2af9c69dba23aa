"""Checks of what parameters say of several states and equations, by name.

Errors name the parameter, what was found, and what to do.
"""

import inspect
from numbers import Integral, Real

import numpy as np

from keql._evolution.form import count_initial_values
from keql._numerics.arguments import in_short, naming
from keql._observations.columns import is_name
from keql.kernels import SystemKernel, as_kernel
from keql.operators import DifferentialOperator, parse_operator, refuse_large_gram


def check_entries(model, equations, observations):
    """Refuse dicts with names of nothing, or with what no parameter may be.

    `equations` are the names of the equations that the estimator learns.
    """
    states = observations.states
    observed = [L.name for L in observations.operators if L.name not in states]
    whose = {
        "state_kernel": states,
        "observation_noise": (*states, *observed),
        "equation_kernel": equations,
        "equation_noise": equations,
        "n_terms": equations,
    }
    for parameter, names in whose.items():
        given = getattr(model, parameter, None)
        given = given.kernels if isinstance(given, SystemKernel) else given
        if not isinstance(given, dict):
            continue
        unknown = [repr(name) for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"{parameter} has an entry for {', '.join(unknown)}: entries are named "
                f"{', '.join(names) or 'after equations, and there is none'}."
            )
        for name, value in given.items():
            _check_value(parameter, name, value)


def _check_value(parameter, name, value):
    """Refuse a number that is negative, or a count that is none."""
    if value is None or parameter.endswith("kernel"):
        return
    if parameter == "n_terms":
        if value == "auto" or (isinstance(value, Integral) and value >= 1):
            return
        needed = 'a whole number from 1, "auto" or None'
    else:
        if isinstance(value, Real) and value >= 0:
            return
        needed = "a number that is not negative, or None"
    raise ValueError(f"{parameter} has {value!r} for {name!r}: it must be {needed}.")


def check_state_kernel(given, variables, observations, setup):
    """Refuse kernels of states that cannot be used.

    `given` is the parameter. Kernels are evaluated at a point, and have to have the
    derivatives that were observed, or that the equations of the EquationSetup have.
    """
    operators = [*observations.operators, *(setup.operators if setup else ())]
    given = given.kernels if isinstance(given, SystemKernel) else given
    for state in observations.states:
        own = given.get(state) if isinstance(given, dict) else given
        if own is None:
            continue
        with naming("state_kernel"):
            kernel = as_kernel(own).bind(variables)
            values = kernel(observations.functions[0].points[:1])
            if not np.all(np.isfinite(values)):
                raise ValueError(
                    f"{in_short(kernel)} has the value {np.ravel(values)[0]} at the "
                    "first point of X: a kernel must be finite there."
                )
            for operator in operators:
                part = operator.of_state(state)
                for a, _ in () if part is None else part.terms:
                    kernel.check_order(a, f"the operator {operator.name!r}")


def check_problem(model, variables, observations, setup):
    """Refuse kernels and data from which an estimator can learn nothing."""
    check_state_kernel(model.state_kernel, variables, observations, setup)
    largest = max(len(data.values) for data in observations.functions)
    refuse_large_gram(largest, largest)
    n_unknown = sum(e.depends_on is not None for e in setup.equations) if setup else 0
    if not n_unknown:
        return
    if not any(np.any(data.values) for data in observations.functions):
        raise ValueError(
            "y is 0 in all rows, and nothing can be learned from a state that is zero "
            "everywhere: give values that vary, of some function at least."
        )
    if model._imposes_equations:
        _check_enough(observations, setup, n_unknown)


def _check_enough(observations, setup, n_unknown):
    """Refuse data from which no equation of the EquationSetup can be told from others.

    No more values than the initial values of the solutions, and one for each unknown
    part, are met exactly by equations of any one term: a search among these finds
    nothing and takes long.
    """
    n_initial = count_initial_values(setup, observations)
    n_values = observations.n_places
    if n_values <= n_initial + n_unknown:
        raise ValueError(
            f"X and y hold {n_values} value(s) at different places, but solutions have "
            f"{n_initial} initial value(s) by the orders of operators and known_part, "
            "and each unknown part has one coefficient at least: "
            f"{n_initial + n_unknown + 1} values are needed to tell one equation from "
            "another. Observe at more places, or more functions."
        )


def check_names(variables, states, inputs):
    """Refuse names that mean two things."""
    shared = [name for name in states if name in variables]
    if shared and states != ("u",):
        raise ValueError(
            f"states={states} has {', '.join(shared)}, which is a coordinate: the "
            f"variables are {', '.join(variables)}."
        )
    for name in inputs:
        if not isinstance(name, str) or not is_name(name):
            raise ValueError(
                f"inputs has the name {name!r}: names of inputs are made of letters, "
                "digits and underscores."
            )
        if name in variables or _is_operator(name, variables, states):
            raise ValueError(
                f"inputs has the name {name!r}, which is that of a coordinate or of an "
                "operator: call the input otherwise."
            )


def texts_of(*given, within=()):
    """Names of operators in parameters: texts, keys, and arguments of functions.

    What is `within` itself is looked at once.
    """
    texts = []
    for each in given:
        if any(each is outer for outer in within):
            continue
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, DifferentialOperator):
            texts += each.states
        elif isinstance(each, dict | tuple | list):
            texts += texts_of(*each, within=(*within, each))
        elif hasattr(each, "known_part"):
            texts += texts_of(each.known_part, each.operators)
        elif callable(each):
            texts += inspect.signature(each).parameters
    return texts


def _is_operator(name, variables, states):
    """Whether a name is that of a state or of a derivative."""
    try:
        parse_operator(name, variables, states)
    except ValueError:
        return False
    return True
