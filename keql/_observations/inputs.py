"""Known quantities that equations may depend on, for each function."""

from dataclasses import dataclass

import numpy as np

from keql._numerics.arguments import as_numbers, call_given, refuse_dates
from keql._observations.data import by_label


class Inputs:
    """The inputs of an estimator, and the numbers that columns of X held in `fit`.

    `given` is the parameter, {name: values}; `labels` are those of the functions, and
    `constants` has, for inputs that are columns of X, the number of each function.
    """

    def __init__(self, given, labels, constants):
        self.labels, self.sources = labels, {}
        for name, values in (given or {}).items():
            if isinstance(values, str):
                self.sources[name] = constants[name]
            else:
                per_function = by_label(values, labels, f"inputs[{name!r}]")
                self.sources[name] = [as_source(name, own) for own in per_function]

    @property
    def names(self):
        """Names of the inputs, in the order given."""
        return tuple(self.sources)

    def at(self, m, points):
        """Values (n, I) of all inputs at points (n, d) of function `m`."""
        columns = [
            _evaluate(name, own[m], points) for name, own in self.sources.items()
        ]
        return np.stack(columns, axis=1) if columns else np.empty((len(points), 0))

    def of_function(self, m):
        """The inputs of one function, {name: function of points}."""
        return {name: _Input(self, m, i) for i, name in enumerate(self.names)}


@dataclass(frozen=True)
class _Input:
    """One of the inputs of a function, as a function of points."""

    inputs: Inputs
    function: int
    position: int

    def __call__(self, points):
        return self.inputs.at(self.function, points)[:, self.position]


class Samples:
    """Samples of an input of one coordinate, linear between them and constant beyond.

    The rule is that of :func:`numpy.interp`; `times` (n,) are in rising order.
    """

    def __init__(self, times, values):
        self.times, self.values = times, values

    def __call__(self, points):
        """Values (n,) at points (n, 1)."""
        return np.interp(points[:, 0], self.times, self.values)


def as_source(name, given):
    """A number, a function of points, or the Samples of a pair (times, values)."""
    if callable(given):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        refuse_dates(given[0], f"inputs[{name!r}] has a list of times that")
        times, values = (np.asarray(part, dtype=float).ravel() for part in given)
        if len(times) != len(values) or np.any(np.diff(times) <= 0):
            raise ValueError(
                f"inputs[{name!r}] has {len(times)} times and {len(values)} values: "
                "give as many of both, the times in rising order."
            )
        return Samples(times, values)
    try:
        return float(given)
    except (TypeError, ValueError):
        raise ValueError(
            f"inputs[{name!r}]={given!r} must be a number, a function of points "
            "(n, d), a pair (times, values) of samples, a dict of these by function "
            "label, or the name of a column of X."
        ) from None


def _evaluate(name, source, points):
    if isinstance(source, Samples) and points.shape[1] > 1:
        raise ValueError(
            f"inputs[{name!r}] is a pair (times, values), but there are "
            f"{points.shape[1]} coordinates: give a function of points (n, d)."
        )
    if callable(source):
        return call_given(source, f"inputs[{name!r}]", points)
    if not np.isfinite(source):
        raise ValueError(
            f"inputs[{name!r}] is not finite at any point: it must be known wherever "
            "an equation is imposed."
        )
    return np.full(len(points), source)


def constant_of_functions(name, entries, labels, functions):
    """The number that a column of X holds in each function, in the order of these.

    `entries` and `labels` are those of the rows. A ValueError says in which function
    the column varies.
    """
    numbers = {}
    for label, entry in zip(labels, entries, strict=True):
        first = numbers.setdefault(label, float(entry))
        if float(entry) != first:
            raise ValueError(
                f"the column of the input {name!r} has the values {first:g} and "
                f"{float(entry):g} in the function {label!r}: it must be constant in "
                "each function. Give what varies as a function of the coordinates."
            )
    return [numbers[label] for label in functions]


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
    columns = [_input_column(name, given[name], points) for name in names]
    return np.column_stack(columns) if columns else np.empty((len(points), 0))


def _input_column(name, value, points):
    if callable(value):
        return call_given(value, f"inputs[{name!r}]", points)
    values, n = as_numbers(value, f"inputs[{name!r}]"), len(points)
    if values.shape not in {(), (n,), (n, 1)}:
        raise ValueError(
            f"inputs[{name!r}] has values of shape {values.shape} at {n} points: it "
            "must be a number, or a function that returns one value for each point."
        )
    return np.broadcast_to(np.ravel(values), (n,))
