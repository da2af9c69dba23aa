"""Linear differential operators and their names."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from math import isfinite
from operator import index
from typing import Any

from keql._numerics.arguments import in_short


def as_factor(name):
    """The name of an operator in a product: in brackets if it is a sum or multiple."""
    return name if re.fullmatch(r"\w+|laplacian\(\w+\)", name) else f"({name})"


@dataclass(frozen=True)
class DifferentialOperator:
    """A linear differential operator with constant coefficients.

    Parameters
    ----------
    terms : tuple of (multi-index, float)
        Orders of differentiation in each coordinate, and the coefficient, of each
        term of the sum.
    name : str
        What the operator is called in printed equations and error messages.
    states : tuple of str, default=None
        Name of the state that each term is applied to; None: the single state "u".

    See Also
    --------
    parse_operator : Make one from its name.

    Examples
    --------
    >>> from keql.operators import parse_operator
    >>> u_xx, u_yy = (parse_operator(name, ("x", "y")) for name in ("u_xx", "u_yy"))
    >>> (u_xx + 2 * u_yy).terms
    (((0, 2), 2.0), ((2, 0), 1.0))
    """

    terms: tuple
    name: str
    states: Any = None

    def __post_init__(self):
        if self.states is None:
            object.__setattr__(self, "states", ("u",) * len(self.terms))

    @property
    def parts(self) -> list:
        """The terms with their states: a list of (state, multi-index, coefficient)."""
        return [(s, *term) for s, term in zip(self.states, self.terms, strict=True)]

    @property
    def state(self) -> str | None:
        """Name of the state that the operator is applied to; None if it has several."""
        return self.states[0] if len(set(self.states)) == 1 else None

    def of_state(self, name: str) -> Any:
        """The part that is applied to one state.

        Parameters
        ----------
        name : str
            Name of the state.

        Returns
        -------
        operator : DifferentialOperator or None
            None if no term is applied to it.
        """
        terms = tuple((a, value) for state, a, value in self.parts if state == name)
        if not terms:
            return None
        return DifferentialOperator(terms, self.name, (name,) * len(terms))

    @property
    def order(self) -> int:
        """Highest total order of differentiation."""
        return max(sum(a) for a, _ in self.terms)

    def same_as(self, other: Any) -> bool:
        """Whether two operators are the same map, whatever their names.

        Parameters
        ----------
        other : DifferentialOperator
            The operator to compare with.

        Returns
        -------
        same : bool
            True for "u_tx" and "u_xt".
        """
        return self.parts == other.parts

    def __add__(self, other):
        return _collect([*self.parts, *other.parts], f"{self.name} + {other.name}")

    def __sub__(self, other):
        negative = [(s, a, -value) for s, a, value in other.parts]
        name = f"{self.name} - {as_factor(other.name)}"
        return _collect([*self.parts, *negative], name)

    def __rmul__(self, factor):
        parts = [(s, a, factor * value) for s, a, value in self.parts]
        return _collect(parts, f"{factor:g} {as_factor(self.name)}")


def position_of(operator, operators):
    """Position of the first operator that is the same map, or None."""
    return next((i for i, o in enumerate(operators) if operator.same_as(o)), None)


def extend_operators(operators, others):
    """The operators, then those of `others` that are no map named before."""
    extended = list(operators)
    for operator in others:
        if position_of(operator, extended) is None:
            extended.append(operator)
    return extended


def identity_of(state, d):
    """The operator that leaves a named state of `d` coordinates as it is."""
    return DifferentialOperator((((0,) * d, 1.0),), state, (state,))


def _collect(parts, name):
    """An operator with equal multi-indices added up and the terms in order."""
    total = defaultdict(float)
    for state, a, coefficient in parts:
        total[state, a] += float(coefficient)
    if not all(map(isfinite, total.values())):
        raise ValueError(f"the operator {name!r} has a factor that is not finite.")
    kept = sorted(item for item in total.items() if item[1] != 0)
    if not kept:
        raise ValueError(f"the operator {name!r} is zero: its terms cancel.")
    terms = tuple((a, coefficient) for (_, a), coefficient in kept)
    return DifferentialOperator(terms, name, tuple(state for (state, _), _ in kept))


def parse_operator(
    operator: Any, variables: Any, states: Any = ("u",)
) -> DifferentialOperator:
    """Make a differential operator from its name.

    Parameters
    ----------
    operator : str, tuple of int, or DifferentialOperator
        "u" (the state itself), "u_t", "u_xx", "u_tx" (derivatives, one variable after
        the other, with "_" between them if names have underscores: "u_x_mm_x_mm"),
        "laplacian(u)" (second derivatives in all variables but one called "t"), sums
        and constant multiples such as "u_xx + 2 u_yy", or a multi-index with one order
        for each variable, if there is a single state.
    variables : sequence of str
        Names of the coordinates by position.
    states : sequence of str, default=("u",)
        Names of the states.

    Returns
    -------
    operator : DifferentialOperator
        An operator object is returned as it is.

    Raises
    ------
    ValueError
        If the name does not parse, names an unknown variable or has two readings.

    Examples
    --------
    >>> from keql.operators import parse_operator
    >>> parse_operator("u_tx", ("t", "x")).terms
    (((1, 1), 1.0),)
    >>> parse_operator("laplacian(u)", ("t", "x", "y")).terms
    (((0, 0, 2), 1.0), ((0, 2, 0), 1.0))
    >>> parse_operator("prey_t", ("t",), states=("prey", "predator")).states
    ('prey',)
    """
    variables = _as_names(variables, "variables")
    states = _as_names(states, "states")
    if isinstance(operator, DifferentialOperator):
        _check_width(operator.terms, operator.name, variables)
        _check_states(operator, states)
        if operator.name.startswith(tuple(f"{name}_" for name in operator.states)):
            _check_coordinates(operator, variables, states)
        return operator
    if isinstance(operator, str):
        return _parse_sum(operator, variables, states)
    return _from_orders(operator, variables, states)


def _check_coordinates(operator, variables, states):
    """Refuse an operator whose name says something else of these coordinates."""
    if _parse_sum(operator.name, variables, states).terms != operator.terms:
        raise ValueError(
            f"the operator {operator.name!r} was made for other coordinates than "
            f"{', '.join(variables)}, in this order: make it anew, or give its name."
        )


def _as_names(names, parameter):
    """Names as a tuple; a text stands for a tuple of one."""
    names = (names,) if isinstance(names, str) else names
    is_list = isinstance(names, Iterable) and not isinstance(names, bytes)
    is_list = is_list and getattr(names, "ndim", 1) > 0
    names = tuple(names) if is_list else (names,)
    texts = [isinstance(name, str) and name.isprintable() for name in names]
    wrong = [
        n for n, text in zip(names, texts, strict=True) if not (text and n.strip())
    ]
    if wrong:
        raise TypeError(
            f"{parameter} has {in_short(wrong[0])}: it must be a tuple of texts, the "
            "names, which are printable and not empty."
        )
    if len(set(names)) < len(names):
        raise ValueError(f"{parameter}={names} has a name twice: leave one out.")
    return names


def _from_orders(operator, variables, states):
    """The derivative of a single state with given orders in each coordinate."""
    terms = ((_as_orders(operator), 1.0),)
    _check_width(terms, operator, variables)
    if len(states) > 1:
        raise ValueError(
            f"the operator {operator!r} does not say which of the states "
            f"{', '.join(states)} it is applied to: give it as a name."
        )
    powers = zip(variables, terms[0][0], strict=True)
    names = [name for name, order in powers for _ in range(order)]
    return DifferentialOperator(terms, _derivative_name(states[0], names), states)


def _derivative_name(state, variables):
    """Name of the derivative of a state by variables, one after the other.

    Names with underscores have one between them: "u_x_mm_x_mm".
    """
    between = "_" if any("_" in name for name in variables) else ""
    return "_".join(filter(None, [state, between.join(variables)]))


def _check_states(operator, states):
    unknown = sorted(set(operator.states) - set(states))
    if unknown:
        raise ValueError(
            f"the operator {operator.name!r} is applied to {', '.join(unknown)}, which "
            f"is no state: the states are {', '.join(states)}."
        )


def _as_orders(operator):
    try:
        if isinstance(operator, Set | Mapping | bytes):
            raise TypeError
        orders = tuple(operator)
        if any(isinstance(order, bool) for order in orders):
            raise TypeError
        return tuple(map(index, orders))
    except TypeError:
        raise ValueError(
            f"the operator {in_short(operator)} must be a name such as 'u_xx', a "
            "multi-index "
            "such as (0, 2), or a DifferentialOperator."
        ) from None


def _check_width(terms, name, variables, highest=100):
    for a, _ in terms:
        if sum(a) > highest:
            raise ValueError(
                f"the operator {in_short(name)} differentiates {sum(a)} times: orders "
                f"are {highest} at most."
            )
        if len(a) != len(variables) or min(a, default=-1) < 0:
            raise ValueError(
                f"the operator {name!r} has the multi-index {a}: it must have one "
                "order >= 0 for each of the variables, "
                f"{', '.join(variables) or 'none'}."
            )


_TERM = re.compile(
    r"\s*(?P<sign>[+-])?\s*"
    r"(?:(?P<factor>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*\*?\s*)?"
    r"(?P<atom>laplacian\(\w+\)|[^\W\d_]\w*)\s*"
)


def _parse_sum(text, variables, states):
    parts, position = [], 0
    while position < len(text):
        match = _TERM.match(text, position)
        if match is None or (parts and match["sign"] is None):
            raise ValueError(
                f"the operator {text!r} does not parse at {text[position:]!r}: write "
                "'u', 'u_t', 'u_xx', 'laplacian(u)', or sums and multiples such as "
                "'u_xx + 2 u_yy'."
            )
        factor = float(match["factor"] or 1) * (-1 if match["sign"] == "-" else 1)
        atom = _parse_atom(match["atom"], text, variables, states)
        parts += [(state, a, factor) for state, a in atom]
        position = match.end()
    if not parts:
        raise ValueError("the operator '' is empty: write for example 'u' or 'u_x'.")
    operator = _collect(parts, text.strip())
    _check_width(operator.terms, text, variables)
    return operator


def _parse_atom(atom, text, variables, states):
    """Pairs (state, multi-index) of "u", "u_..." or "laplacian(u)"."""
    if atom.startswith("laplacian("):
        state = atom[len("laplacian(") : -1]
        if state not in states:
            raise ValueError(_unknown_function(text, state, states))
        space = [i for i, name in enumerate(variables) if name != "t"]
        if not space:
            raise ValueError(f"the operator {text!r} needs a variable other than t.")
        orders = [tuple(2 * (j == i) for j in range(len(variables))) for i in space]
        return [(state, a) for a in orders]
    if atom in states:
        return [(atom, (0,) * len(variables))]
    # Names of states may have underscores themselves.
    owners = [state for state in states if atom.startswith(f"{state}_")]
    if not owners:
        function = atom.partition("_")[0]
        raise ValueError(_unknown_function(text, function, states))
    suffixes = [(state, atom[len(state) + 1 :]) for state in owners]
    readings = _readings(suffixes, variables)
    if not readings and any("_" in name for name in variables):
        readings = _readings(suffixes, variables, between="_")
    if not readings:
        raise ValueError(
            f"the operator {text!r} names an unknown variable: {suffixes[-1][1]!r} is "
            f"not made of the variables {', '.join(variables)}.{_advice(variables)}"
        )
    if len(readings) > 1:
        raise ValueError(
            f"the operator {text!r} has {len(readings)} readings in the variables "
            f"{', '.join(variables)}: give it as a multi-index such as "
            f"{readings[0][1]}."
        )
    return readings


def _advice(variables):
    """What to do about names, of columns perhaps, that no operator can contain."""
    if all(re.fullmatch(r"x\d+", name) for name in variables):
        example = ("t", "x", "y", "z")[: len(variables)]
        advice = f"give them, as in variables={example!r}."
        return f" Columns of an array have no names: {advice}"
    wrong = [name for name in variables if not re.fullmatch(r"\w+", name)]
    if not wrong:
        return ""
    return (
        " Names in operators are made of letters, digits and underscores: "
        f"{wrong[0]!r} is none, call it otherwise, as in variables=('t',)."
    )


def _unknown_function(text, function, states):
    called, advice = "state is", f"states=({function!r},) calls it otherwise"
    if len(states) > 1:
        called, advice = "states are", "the parameter states calls them otherwise"
    return (
        f"the operator {text!r} names the function {function!r}: the {called} called "
        f"{', '.join(states)}; {advice}."
    )


def _readings(suffixes, variables, between=""):
    """Pairs (state, multi-index) of the suffixes, pairs (state, text), that parse."""
    return [
        (state, a)
        for state, suffix in suffixes
        for a in (_tokenise(suffix, variables, between) if suffix else [])
    ]


def _tokenise(suffix, variables, between=""):
    """All multi-indices whose names, in some order, spell the suffix.

    `between` stands between two names.
    """
    if not suffix:
        return [(0,) * len(variables)]
    readings = set()
    for i, name in enumerate(variables):
        if suffix.startswith(name):
            others = suffix[len(name) :]
            if others and (not others.startswith(between) or others == between):
                continue
            others = others.removeprefix(between)
            for rest in _tokenise(others, variables, between):
                readings.add((*rest[:i], rest[i] + 1, *rest[i + 1 :]))
    return sorted(readings)
