"""Columns: coordinates, labels of functions, and operators in X; states in y."""

import re
from collections.abc import Hashable
from functools import partial
from numbers import Real

import numpy as np

from keql._numerics.arguments import as_numbers, in_short, naming, refuse_no_array
from keql.operators import (
    DifferentialOperator,
    identity_of,
    parse_operator,
    position_of,
)


def is_name(text):
    """Whether a text may be the name of a state or of an input."""
    return text.isidentifier() and not text.startswith("_")


def refuse_no_coordinates(X, given):
    """Refuse an X all of whose columns are special ones: {parameter: column}.

    Nothing is said if it has not even those, as :func:`column_index` says that.
    """

    def may_be_in(column):
        if isinstance(column, str):
            return column in getattr(X, "columns", ())
        return not isinstance(column, bool) and abs(column) <= X.shape[1]

    if X.shape[1] <= len(given) and all(map(may_be_in, given.values())):
        raise ValueError(
            f"X has {X.shape[1]} feature(s) (shape={X.shape}) while a minimum of "
            f"{1 + len(given)} is required: X has no column of coordinates beside "
            f"{' and '.join(given)}."
        )


def column_index(X, column, parameter):
    """Position, not negative, of a column of X (n, n_columns), by name or position.

    X is an array or a dataframe; `parameter` names the parameter for the error message.
    """
    names = list(X.columns) if hasattr(X, "columns") else None
    if isinstance(column, bool):
        raise TypeError(
            f"{parameter}={column} is no column of X: give its name or its position."
        )
    if isinstance(column, str):
        if names is None or column not in names:
            advice = "X is an array, give the index of the column."
            if names is not None:
                advice = f"its columns are {', '.join(map(str, names))}."
            raise ValueError(f"{parameter}={column!r} is no column of X: {advice}")
        return names.index(column)
    if not -X.shape[1] <= column < X.shape[1] or X.shape[1] < 2:
        raise ValueError(
            f"{parameter}={column} is no column of X, which has {X.shape[1]} columns "
            "(one of them for labels, the others for coordinates)."
        )
    return column % X.shape[1]


def ring_lengths(periods, variables):
    """The length of each coordinate that is a ring, infinity for others; or None.

    `periods` is the parameter of that name, {coordinate: length} or None; `variables`
    are the names of the coordinates.
    """
    if not periods:
        return None
    for name, length in periods.items():
        if name not in variables:
            raise ValueError(
                f"periods names {name!r}, which is no coordinate: the variables are "
                f"{', '.join(variables)}."
            )
        is_number = isinstance(length, Real) and not isinstance(length, bool)
        if not (is_number and 0 < length < np.inf):
            raise ValueError(
                f"periods has {length!r} for {name!r}: it must be the length of the "
                "ring, a positive number in units of the coordinate."
            )
    return tuple(float(periods.get(name, np.inf)) for name in variables)


def refuse_missing(entries, column, parameter):
    """Refuse entries None or nan in a label column.

    `parameter`, "function_column" or "operator_column", says what they are labels of.
    """
    if any(entry is None or entry != entry for entry in entries):
        word = parameter.removesuffix("_column")
        raise ValueError(
            f"X has a missing {word} label in column {column!r}: every row must say "
            f"which {word} it belongs to."
        )
    unhashable = [entry for entry in entries if not isinstance(entry, Hashable)]
    if unhashable:
        raise TypeError(
            f"{parameter}={column!r} of X has the entry {in_short(unhashable[0])}: "
            "labels are numbers or texts."
        )


def split_labels(X, column, parameter):
    """Coordinates (n, d) and labels, a list of length n, of the rows of a table X.

    `column` is the name or position of the column of labels; without one (None) all
    labels are None. `parameter` names the parameter for error messages.
    """
    if not hasattr(X, "columns"):
        refuse_no_array(X, "X")
        with naming("X"):
            X = np.asarray(X)
        if X.ndim != 2:
            raise ValueError(
                f"X has {X.ndim} dimension(s), it must be a table with one row for "
                "each observation: use X.reshape(-1, 1) for one coordinate."
            )
    n_rows, n_columns = X.shape
    if n_columns <= (column is not None):
        raise ValueError(
            f"X has {n_columns} feature(s) (shape={X.shape}) while a minimum of "
            f"{1 + (column is not None)} is required, one of them a coordinate."
        )
    index = None if column is None else column_index(X, column, parameter)

    def entries(i):
        return np.asarray(X[X.columns[i]] if hasattr(X, "columns") else X[:, i])

    others = [as_numbers(entries(i), "X") for i in range(n_columns) if i != index]
    labels = [None] * n_rows if index is None else entries(index).tolist()
    if index is not None:
        refuse_missing(labels, column, parameter)
    return np.column_stack(others), labels


def name_coordinates(given, learned, columns, n):
    """Names of the `n` coordinates: those given, an equation's, or those of columns."""
    names = (given,) if isinstance(given, str) else given
    _refuse_no_names(names, "variables")
    if names is None:
        names = learned or columns or [f"x{i}" for i in range(n)]
    names = tuple(str(name) for name in names)
    if len(names) != n or len(set(names)) != n:
        raise ValueError(
            f"variables={names} must be {n} different name(s): X has {n} coordinate "
            "column(s) beside those of function_column, operator_column and inputs."
        )
    if learned and set(learned) == set(names) and tuple(learned) != names:
        raise ValueError(
            f"the variables are {', '.join(names)} in this order, but the equation has "
            f"them in the order {', '.join(learned)}: bring them into one order."
        )
    return names


def _refuse_no_names(names, parameter):
    """Refuse names, of coordinates or states, that are no texts, or empty ones."""
    for name in () if names is None else names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(
                f"{parameter}={in_short(names)} has {in_short(name)}: names are texts "
                "that are not empty, such as 'x' or 't_hours'."
            )


def coordinates_by_name(columns, variables, table="X", strictly=False):
    """Positions of the coordinates among the columns of X, in the order `variables`.

    `columns` are the names of the coordinate columns of the `table`, None if it is an
    array. Without a name that is one of the `variables`, the columns are in their
    order, or refused if that is said `strictly`, unless their names are numbers.
    """
    if not _agree(columns, variables, table, "variables", "coordinates"):
        columns = [] if columns is None else list(columns)
        if strictly and any(isinstance(name, str) for name in columns):
            raise ValueError(
                f"{table} has the columns {', '.join(map(str, columns))}, but the "
                f"coordinates are {', '.join(variables)}: call the columns as "
                "variables has them, in any order, or give an array."
            )
        return list(range(len(variables)))
    return [list(columns).index(name) for name in variables]


def states_by_name(values, columns, states):
    """Values (n, S) of the states from those in the columns of y, by their names.

    `columns` are the names of the columns of `values` (n, n_columns), None if y is an
    array. Without a name that is one of the `states`, the columns are in their order,
    and the values are returned as they are; otherwise what has no column is NaN.
    """
    if not _agree(columns, states, "y", "states", "states"):
        return values
    placed = np.full((len(values), len(states)), np.nan)
    placed[:, [states.index(name) for name in columns]] = values
    return placed


def _agree(columns, names, table, parameter, kind):
    """Whether columns are called as `names` are; refused if only some of them are."""
    columns = [] if columns is None else list(columns)
    known = [name for name in columns if name in names]
    if not known:
        return False
    other = [str(name) for name in columns if name not in names]
    if other:
        raise ValueError(
            f"{table} has the columns {', '.join(map(str, columns))}, but the {kind} "
            f"are {', '.join(names)}, of which {', '.join(other)} is none: call all "
            f"columns as {parameter} has them, in any order, or give an array."
        )
    return True


def name_single_state(y, named):
    """Name of a single state that has one in `y`: as the column is called, or None.

    The column of a data frame, or a series, has its name if operators in `named`, texts
    that were given, begin with it, and none of them with "u".
    """
    columns = getattr(y, "columns", None)
    columns = [getattr(y, "name", None)] if columns is None else list(columns)
    if len(columns) != 1 or not isinstance(columns[0], str):
        return None
    begins = [
        any(
            re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", text)
            for text in named
        )
        for name in ("u", columns[0])
    ]
    return columns[0] if begins == [False, True] else None


def name_states(given, columns, n_columns, has_operator_column):
    """Names of the states: those given, of the columns of y, or u1, u2, ...

    `columns` are the names of the `n_columns` columns of y, None if it is an array.
    """
    names = (given,) if isinstance(given, str) else given
    _refuse_no_names(names, "states")
    if names is None and n_columns > 1:
        names = [f"u{i + 1}" for i in range(n_columns)]
        if columns is not None and all(isinstance(name, str) for name in columns):
            names = columns
    names = ("u",) if names is None else tuple(str(name) for name in names)
    wrong = [n for n in names if not is_name(n)]
    if wrong or len(set(names)) < len(names) or len(names) < n_columns:
        raise ValueError(
            f"states={names} must be different names of letters, digits and "
            f"underscores, one for each of the {n_columns} column(s) of y, and "
            "further ones for states that were never measured."
        )
    if has_operator_column and n_columns > 1:
        raise ValueError(
            f"y has {n_columns} columns beside operator_column, which says what "
            "each row holds: give y as one column."
        )
    return names


def operators_of_columns(boundary_operators, n_columns, variables, states):
    """The operators whose values several columns of y hold: those given, or states."""
    given = boundary_operators
    if given is None:
        return [identity_of(state, len(variables)) for state in states[:n_columns]]
    given = [given] if isinstance(given, str | DifferentialOperator) else list(given)
    if len(given) != n_columns:
        raise ValueError(
            f"boundary_operators has {len(given)} operator(s), but y has {n_columns} "
            "columns: give one for each column, or leave them out for the states."
        )
    with naming("boundary_operators"):
        return [parse_operator(operator, variables, states) for operator in given]


def operators_of_rows(
    boundary_operators, entries, variables, has_column, states=("u",)
):
    """The different operators, and for each row the position of its own in them.

    `entries` are those of the operator column, names or positions in
    `boundary_operators`; without such a column there must be one operator.
    """
    given = boundary_operators
    if given is None or isinstance(given, str | DifferentialOperator):
        given = [states[0] if given is None else given]
    parse = partial(parse_operator, variables=variables, states=states)
    with naming("boundary_operators"):
        operators = [parse(operator) for operator in given]
    if not operators:
        raise ValueError(
            "boundary_operators is empty: name what the values in y are values of, "
            "such as 'u', or leave it out for the states."
        )
    if has_column:
        index = [_find_operator(entry, operators, parse) for entry in entries]
        return operators, np.array(index)
    if len(operators) > 1:
        raise ValueError(
            f"boundary_operators has {len(operators)} operators: name the column "
            "of X that says which one a row belongs to, operator_column."
        )
    return operators, np.zeros(len(entries), dtype=int)


def _find_operator(entry, operators, parse):
    """Position of the operator that an entry names; appended if it is a new one."""
    if isinstance(entry, str):
        with naming("operator_column"):
            operator = parse(entry)
        if position_of(operator, operators) is None:
            operators.append(operator)
        return position_of(operator, operators)
    if entry == int(entry) and 0 <= entry < len(operators):
        return int(entry)
    raise ValueError(
        f"X has the entry {entry!r} in its operator_column: it must be the "
        "name of an operator or its position in boundary_operators, from 0 to "
        f"{len(operators) - 1}."
    )
