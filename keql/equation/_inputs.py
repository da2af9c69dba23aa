"""Known quantities that an equation depends on, evaluated at points."""

import numpy as np


def input_columns(names, inputs, points):
    """Values of the named inputs at points (n, d), of shape (n, number of inputs).

    `inputs` is {name: number or function of the points}, or None if there are none. A
    ValueError says which input is missing, unknown, or has values of a wrong shape.
    """
    given = {} if inputs is None else dict(inputs)
    missing = [name for name in names if name not in given]
    unknown = [repr(name) for name in given if name not in names]
    if missing:
        raise ValueError(
            f"inputs lacks {', '.join(missing)}: the equation depends on the known "
            f"quantities {', '.join(names)}. Give {{name: number or function of "
            "points (n, d)}."
        )
    if unknown:
        known = f"its inputs are {', '.join(names)}" if names else "it has no inputs"
        raise ValueError(
            f"inputs has {', '.join(unknown)}, which the equation does not depend on: "
            f"{known}."
        )
    columns = [_column(name, given[name], points) for name in names]
    return np.column_stack(columns) if columns else np.empty((len(points), 0))


def _column(name, value, points):
    values = np.asarray(value(points) if callable(value) else value, dtype=float)
    n = len(points)
    if values.shape not in {(), (n,), (n, 1)}:
        raise ValueError(
            f"the input {name!r} has values of shape {values.shape} at {n} points: it "
            "must be a number, or a function that returns one value for each point."
        )
    return np.broadcast_to(np.ravel(values), (n,))
