"""What a solver is given: the equation in one form, names, inputs, noise levels."""

from typing import NamedTuple

from keql._estimators.equations import is_several, name_equations
from keql._observations.columns import name_states
from keql._observations.inputs import Inputs
from keql._solving.problem import by_name
from keql.equation import GivenEquation, GivenSystem, LearnedEquation, LearnedSystem


class BoundaryData(NamedTuple):
    """What is read from X and y: names, and conditions without an equation.

    labels : tuple. Of the functions.
    variables, states : tuple of str. Names of coordinates and states.
    conditions : list of Conditions. Of each function.
    inputs : Inputs. Known quantities of the equation.
    """

    labels: tuple
    variables: tuple
    states: tuple
    conditions: list
    inputs: Inputs


def is_learned(equation):
    """Whether an equation, or a system, was learned, and has names of its own."""
    return isinstance(equation, LearnedEquation | LearnedSystem)


def states_of_solver(equation, given, columns, n_columns, has_operator_column):
    """Names of the states in the order of the columns of y.

    `given` is the parameter; `columns` are the names of the `n_columns` columns of y,
    None if it is an array.
    """
    learned = equation.states if is_learned(equation) else None
    unnamed = given is None and columns is None
    single = equation is not None and not is_several(equation)
    own = learned or (("u",) if single and unnamed else None)
    if own and n_columns > len(own):
        called = "state is" if len(own) == 1 else "states are"
        raise ValueError(
            f"y has {n_columns} columns, but the {called} {', '.join(own)}: give data "
            "of these, or name the states of the equation with the parameter states."
        )
    given = learned if given is None else given
    names = name_states(given, columns, n_columns, has_operator_column)
    if learned and set(names) != set(learned):
        raise ValueError(
            f"states={names} must be those of the equation, {', '.join(learned)}, in "
            "any order."
        )
    return names


def order_inputs(equation, given):
    """Names of the inputs in the order in which the equation has them.

    `given` is the parameter, {name: values}.
    """
    given = tuple(given or ())
    needed = equation.inputs if is_learned(equation) else given
    if set(needed) != set(given) or (given and equation is None):
        has = f"depends on {', '.join(needed)}" if needed else "has none"
        has = "is None" if equation is None else has
        raise ValueError(
            f"inputs has {', '.join(given) or 'no entry'}, but the equation {has}: "
            "give each of its inputs by name, and no others."
        )
    return needed


def bind_equation(equation, forcing, data):
    """The equation of a solver in the form in which it is solved, or None.

    `equation` and `forcing` are parameters, `data` is the BoundaryData.
    """
    if equation is None:
        if forcing is not None:
            raise ValueError(
                "forcing is given without an equation: give equation, such as "
                "'laplacian(u)', or leave forcing out."
            )
        return None
    if not is_learned(equation):
        names = data.variables, data.states, data.inputs.names
        if not is_several(equation):
            return GivenEquation(equation, *names)
        if len(equation) == 1:
            return GivenEquation(equation[0], *names)
        parts = dict(zip(name_equations(equation), equation, strict=True))
        return GivenSystem(parts, *names)
    if equation.variables != data.variables:
        raise ValueError(
            f"the equation was learned in the variables "
            f"{', '.join(equation.variables)}, the data have "
            f"{', '.join(data.variables)}: give data in the same coordinates."
        )
    return equation


def refuse_unknown_noise(noise, equation, conditions):
    """Refuse NoiseLevels with entries for what is no state, operator or equation."""
    operators = [L for given in conditions for _, L in given.observed]
    observed = dict.fromkeys(L.name for L in operators)
    observed |= dict.fromkeys(state for L in operators for state in L.states)
    equations = [name for name in by_name(equation) if name]
    pairs = (
        ("observation_noise", noise.observation_noise, observed),
        ("equation_noise", noise.equation_noise, equations),
    )
    for parameter, given, names in pairs:
        unknown = (
            [n for n in given if n not in names] if isinstance(given, dict) else []
        )
        if unknown:
            known = ", ".join(names)
            advice = f"the names are {known}" if known else "give a number or None"
            raise ValueError(f"{parameter} has an entry {unknown[0]!r}: {advice}.")
