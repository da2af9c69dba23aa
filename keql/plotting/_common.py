"""What the displays share: axes, points of a fitted estimator, maps and lines."""

from collections.abc import Hashable
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from keql._numerics.arguments import (
    as_numbers,
    check_positive,
    in_short,
    naming,
    refuse_odd_number,
)
from keql._numerics.memory import MemoryBudget
from keql._observations.columns import (
    column_index,
    operators_of_rows,
    states_by_name,
)
from keql._observations.units import Units, labelled
from keql.equation import LearnedSystem
from keql.metrics import function_labels
from keql.operators import parse_operator

# Blue and vermilion of Okabe and Ito's palette, and grey.
FIRST, SECOND, QUIET = "#0072B2", "#D55E00", "0.45"
# For lines in the same axes: these, and its bluish green, purple, orange and sky blue.
PALETTE = FIRST, SECOND, "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
BAND = "two standard deviations"
# A white circle with a black edge.
CIRCLE = {"ls": "", "marker": "o", "mfc": "white", "mec": "black"}
DIVERGING, SEQUENTIAL = "RdBu_r", "viridis"


class Display:
    """Base of the displays: `_draw` draws on given axes."""

    _draw: Any

    @classmethod
    def from_predictions(cls, *arrays: Any, **kwargs: Any) -> Self:
        """Draw given values.

        Parameters
        ----------
        *arrays : array-like
            The parameters of the class, by their names; `variables` that are None are
            x0 and x1.
        **kwargs : dict
            `ax` and other options, as in :meth:`plot`.

        Returns
        -------
        display : Display
            Drawn.
        """
        raise NotImplementedError

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None for a new figure.
        **kwargs : dict
            For matplotlib's `plot` of lines and points, or `pcolormesh` of maps.

        Returns
        -------
        display : Display
            This one.
        """
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(layout="constrained")
        check_axes(ax)
        self.ax_, self.figure_ = ax, ax.figure
        try:
            self._draw(ax, **kwargs)
        except AttributeError as error:
            if "unexpected keyword" in str(error):
                raise TypeError(f"matplotlib refuses an option: {error}") from error
            raise
        return self


class MeanOrStdDisplay(Display):
    """Base of the displays of a function that may have a standard deviation `std`."""

    std: Any

    def plot(self, ax: Any = None, *, quantity: str = "mean", **kwargs: Any) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None for a new figure.
        quantity : {"mean", "std"}, default="mean"
            Whether the line or the map is the function or its standard deviation.
        **kwargs : dict
            For matplotlib's `plot` or `pcolormesh`.

        Returns
        -------
        display : Display
            This one.
        """
        known = isinstance(quantity, str) and quantity in ("mean", "std")
        if not known or (quantity == "std" and self.std is None):
            raise ValueError(
                f"quantity={quantity!r} must be 'mean', or 'std' where `std` is given."
            )
        return super().plot(ax, quantity=quantity, **kwargs)


def check_axes(ax):
    """Refuse what is no Axes of matplotlib."""
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise TypeError(
            f"ax is {in_short(ax)}: it must be Axes of matplotlib, of a figure those "
            "that figure.gca() returns, or None for a new figure."
        )


def check_fitted(estimator):
    """Refuse what is no fitted estimator."""
    with naming("estimator"):
        check_is_fitted(estimator)


def check_equation(estimator):
    """The learned equation, or system, of a fitted estimator."""
    check_fitted(estimator)
    if estimator.equation_ is None:
        raise ValueError(
            f"estimator={type(estimator).__name__} was fitted without an equation: "
            "give operators and a known part or a forcing."
        )
    return estimator.equation_


def equation_named(learned, name):
    """The equation of a name in what an estimator has learned; None: the only one."""
    is_system = isinstance(learned, LearnedSystem)
    names = ", ".join(map(repr, learned)) if is_system else "not named: there is one"
    if name is None and is_system:
        raise ValueError(
            f"equation=None, but the estimator has several, {names}: name one."
        )
    if name is not None and not (is_system and name in learned):
        raise ValueError(f"equation={name!r} is none of the estimator's, {names}.")
    return learned[name] if is_system else learned


def operators_shown(estimator, operator, several=False):
    """Operators of the states that a display shows: a list.

    None stands for the state; of several states, for all of them if a display can show
    `several`, and is refused otherwise.
    """
    check_fitted(estimator)
    states = estimator.state_names_
    if operator is not None:
        with naming("operator"):
            return [parse_operator(operator, estimator.variables_, states)]
    if len(states) > 1 and not several:
        raise ValueError(
            f"operator=None, but the estimator has the states {', '.join(states)}: "
            f"name what is shown, such as operator={states[0]!r}."
        )
    return [parse_operator(name, estimator.variables_, states) for name in states]


def labelled_variables(estimator):
    """Names of the coordinates with their units, as labels of axes."""
    if estimator.units is None:
        return estimator.variables_
    units = Units(estimator.units)
    return [labelled(name, units.of(name)) for name in estimator.variables_]


def labelled_operator(estimator, operator):
    """The name of an operator with its unit, as the label of an axis."""
    if estimator.units is None:
        return operator.name
    unit = Units(estimator.units).of_operator(operator, estimator.variables_)
    return labelled(operator.name, unit)


def position_of(estimator, function):
    """Position of a function label among those of the fit; None is the first."""
    labels = estimator.functions_
    if function is None:
        return 0
    if not isinstance(function, Hashable) or function not in labels:
        raise ValueError(
            f"function={function!r} is not one of the labels in fit: "
            f"{', '.join(str(label) for label in labels[:10])}."
        )
    return labels.index(function)


def plot_named(display, estimator, function, at=None, **kwargs):
    """Plot a display, and write into its axes which of several functions it shows.

    And where it is cut. Returns the display.
    """
    display.plot(**kwargs)
    words = [f"{name} = {value:g}" for name, value in (at or {}).items()]
    if len(estimator.functions_) > 1:
        column = estimator.function_column
        what = column if isinstance(column, str) else "function"
        label = estimator.functions_[position_of(estimator, function)]
        words.insert(0, f"{what} = {label}")
    place = {"xy": (0.98, 0.97), "xycoords": "axes fraction", "ha": "right"}
    box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.7}
    if words:
        display.ax_.annotate(", ".join(words), va="top", bbox=box, **place)
    return display


def rows_for(estimator, points, function):
    """Points as `predict_derivative` takes them: with all columns of X in fit.

    Those of inputs and of operators, which it does not read, are zero.
    """
    label = estimator.functions_[position_of(estimator, function)]
    names = getattr(estimator, "feature_names_in_", None)
    labels = np.full(len(points), label, dtype=np.asarray(label).dtype)
    special = {column: np.zeros(len(points)) for column in _columns_beside(estimator)}
    if estimator.function_column is not None:
        special[estimator.function_column] = labels
    width = points.shape[1] + len(special)
    at = {
        list(names).index(column) if isinstance(column, str) else column % width: values
        for column, values in special.items()
    }
    coordinates = iter(points.T)
    if names is not None:
        own = [name for i, name in enumerate(names) if i not in at]
        if set(own) == set(estimator.variables_):  # columns of X may be in any order
            places = map(estimator.variables_.index, own)
            coordinates = iter(points.T[list(places)])
    columns = [at[i] if i in at else next(coordinates) for i in range(width)]
    if names is None:
        dtype = float if {c.dtype.kind for c in columns} <= set("fiub") else object
        return np.column_stack([column.astype(dtype) for column in columns])
    import pandas

    return pandas.DataFrame(dict(zip(names, columns, strict=True)))


def _columns_beside(estimator):
    """Columns of X in fit that hold operators or inputs, by name or position."""
    columns = [getattr(estimator, "operator_column", None)]
    inputs = getattr(estimator, "inputs", None) or {}
    columns += [given for given in inputs.values() if isinstance(given, str)]
    return [column for column in columns if column is not None]


def split_rows(estimator, X, y, function, operators):
    """Coordinates (n, d) of one function, and what was observed of operators there.

    The values are of shape (n, len(operators)), NaN where one was not observed.
    """
    if X is None:
        return None, None
    points, labels = estimator.coordinates(X), function_labels(estimator, X)
    mine = np.ones(len(points), dtype=bool)
    if labels is not None:
        mine = labels == estimator.functions_[position_of(estimator, function)]
    if y is None:
        return points[mine], None
    columns = getattr(y, "columns", None)
    y = check_values(y, points, "y").reshape(len(points), -1)
    by_row = getattr(estimator, "operator_column", None) is not None
    if not by_row and getattr(estimator, "boundary_operators", None) is None:
        y = states_by_name(y, columns, estimator.state_names_)
    values = np.full((len(points), len(operators)), np.nan)
    for measured, rows, column in _what_was_measured(estimator, X, y.shape):
        for j, operator in enumerate(operators):
            if operator.same_as(measured):
                values[rows, j] = y[rows, column]
    return points[mine], values[mine]


def _what_was_measured(estimator, X, shape):
    """Operators with the rows, and the column, of values of this shape that they have.

    A list of triples; of a learner, the columns are the states.
    """
    variables, states = estimator.variables_, estimator.state_names_
    column = getattr(estimator, "operator_column", None)
    given = getattr(estimator, "boundary_operators", None)
    if column is None and given is None:
        operators = [parse_operator(name, variables, states) for name in states]
        return [(operators[j], slice(None), j) for j in range(shape[1])]
    entries = [None] * shape[0]
    if column is not None:
        X = X if hasattr(X, "columns") else np.asarray(X)
        i = column_index(X, column, "operator_column")
        entries = (X.iloc[:, i] if hasattr(X, "columns") else X[:, i]).tolist()
    has_column = column is not None
    operators, index = operators_of_rows(given, entries, variables, has_column, states)
    return [(operator, index == j, 0) for j, operator in enumerate(operators)]


def grid_of(points, resolution):
    """A grid of points in the bounding box of `points`."""
    check_positive(resolution, "grid_resolution", Integral)
    with naming("grid_resolution"):
        refuse_odd_number(resolution)
    MemoryBudget().refuse_above(
        100.0 * float(resolution) ** points.shape[1],
        f"grid_resolution={resolution:,}",
        "give fewer points along an axis.",
    )
    axes = [
        np.linspace(lower, upper, resolution)
        for lower, upper in zip(points.min(axis=0), points.max(axis=0), strict=True)
    ]
    return np.column_stack([axis.ravel() for axis in np.meshgrid(*axes)])


def check_dimension(points):
    """Points as an array of one or two coordinates; None stays."""
    if points is None:
        return None
    points = as_numbers(points, "points")
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or not points.shape[1] or not np.all(np.isfinite(points)):
        raise ValueError(
            f"points has the shape {points.shape} and {np.sum(~np.isfinite(points))} "
            "entries that are not finite: it must be a table of numbers."
        )
    if points.shape[1] > 2:
        raise ValueError(
            f"points has {points.shape[1]} coordinates: a display shows one or two. "
            "Use from_predictions with values on a slice, and the two that vary there."
        )
    return points


def as_series(values, name):
    """Values (n,), given as such or as one column, or row, of a table."""
    values = as_numbers(values, name)
    if values.ndim > 2 or values.size != max(values.shape, default=1):
        raise ValueError(
            f"{name} has the shape {values.shape}: give a sequence of numbers."
        )
    return np.ravel(values)


def check_values(values, points, name):
    """Values (n,), or (n, S) of several states, at n points; None stays."""
    if values is None:
        return None
    values = as_numbers(values, name)
    if values.ndim > 2 or np.any(np.isinf(values)):
        raise ValueError(
            f"{name} has {values.ndim} axes and {np.sum(np.isinf(values))} infinite "
            "values: it must have one or two axes, and be finite or NaN."
        )
    if values.ndim != 2 or values.shape[1] < 2:
        values = np.ravel(values)
    if len(values) != len(points):
        raise ValueError(
            f"{name} has {len(values)} value(s) for {len(points)} point(s), the rows "
            "of X, of points or of what is given: give one for each."
        )
    return values


def check_arrays(points, variables, **values):
    """Points, names of their coordinates and values there, checked: a dict by name."""
    if points is None:
        raise TypeError("points is None: give a table of coordinates.")
    points = check_dimension(points)
    if variables is None:
        variables = [f"x{i}" for i in range(points.shape[1])]
    checked = {
        name: check_values(array, points, name) for name, array in values.items()
    }
    for name, array in checked.items():
        if array is None and name != "std":
            raise TypeError(f"{name} is None: give one number for each of the points.")
        if name == "std" and array is not None and np.any(array < 0):
            raise ValueError("std has negative numbers: it must be zero or above.")
    return {"points": points, "variables": list(variables), **checked}


def limit_of(values):
    """Where colours around zero end: at the largest size of all values.

    If that is more than twice the size that 99 % of them have, there: a corner does not
    make everything else pale.
    """
    sizes = np.abs(values)
    largest, usual = float(np.max(sizes)), float(np.quantile(sizes, 0.99))
    return (usual if largest > 2 * usual > 0 else largest) or 1.0


def draw_map(ax, points, values, variables, label, *, centred=None, **kwargs):
    """Colours of a function of two coordinates, and a bar that explains them."""
    low, high = float(np.min(values)), float(np.max(values))
    centred = low < 0 < high if centred is None else centred
    if centred:
        limit = limit_of(values)
        kwargs = {"cmap": DIVERGING, "vmin": -limit, "vmax": limit, **kwargs}
    settings = {"cmap": SEQUENTIAL, "rasterized": True, **kwargs}
    first, second = (np.unique(column) for column in points.T)
    if len(first) * len(second) == len(points):
        order = np.lexsort(points.T)
        table = values[order].reshape(len(second), len(first))
        image = ax.pcolormesh(first, second, table, **settings)
    else:
        try:
            image = ax.tripcolor(*points.T, values, shading="gouraud", **settings)
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                "the points, rows of X, are the corners of no triangles: give three at "
                f"least that are not on a line, of moderate size ({error})."
            ) from error
    ax.set(xlabel=variables[0], ylabel=variables[1])
    ax.set(xlim=(first[0], first[-1]), ylim=(second[0], second[-1]))
    beyond = low < image.norm.vmin or high > image.norm.vmax
    extend = "both" if beyond else "neither"
    bar = ax.figure.colorbar(image, ax=ax, extend=extend)
    # Beside the bar a short label, such as "u", would seem to be that of the next axes.
    if len(label) < 8:
        # Below the arrow at the end of the bar, if there is one.
        bar.ax.set_xlabel(label, labelpad=20 if beyond else None)
    else:
        bar.set_label(label)
    bar.formatter.set_powerlimits((-2, 4))
    return image


def draw_line(ax, points, values, variables, ylabel, std=None, band=BAND, **kwargs):
    """A function of one coordinate, with a band of two standard deviations."""
    order = np.argsort(points[:, 0])
    x, values = points[order, 0], values[order]
    (line,) = ax.plot(x, values, **{"color": FIRST, "lw": 1.5, **kwargs})
    if std is not None:
        settings = {"color": line.get_color(), "alpha": 0.25, "label": band}
        draw_band(ax, x, values, std[order], **settings)
    ax.set(xlabel=variables[0], ylabel=ylabel, xlim=(x[0], x[-1]))
    return line


def draw_band(ax, x, middle, std, **kwargs):
    """A band of two standard deviations around a line."""
    settings = {"lw": 0, "label": BAND, **kwargs}
    ax.fill_between(x, middle - 2 * std, middle + 2 * std, **settings)


def legend_above(ax, handles=None, **kwargs):
    """A legend that hides nothing: above the axes."""
    if handles is None:
        handles, _ = ax.get_legend_handles_labels()
    settings = {"ncols": 2, "frameon": False, "handletextpad": 0.4, **kwargs}
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1), **settings)
