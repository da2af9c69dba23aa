"""The display of a state."""

from typing import Any, Self

import numpy as np

from keql._numerics.arguments import as_numbers, check_flag
from keql._observations.units import Units, with_unit
from keql.plotting import _common as common


class StateDisplay(common.MeanOrStdDisplay):
    """A fitted state, with the observations and the collocation points.

    A line with a band of two standard deviations for one coordinate, a map for two; of
    more coordinates a slice, with the others fixed.
    Several states of one coordinate are lines in the same axes.
    Make it with :meth:`from_estimator` or :meth:`from_predictions`;
    :class:`ErrorDisplay` shows the difference from a known truth.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Where the state is known, on a grid or scattered; d is 1 or 2.
    values, std : ndarray of shape (n,) or (n, S)
        The state there, one column for each of several, and its standard deviation,
        None by default.
    X, y : ndarray of shape (n_samples, d) and (n_samples,) or (n_samples, S)
        Observations, None by default; NaN where a state was not measured.
    collocation_points : ndarray of shape (K, d), default=None
        Where the equation was imposed.
    variables : sequence of str, default=None
        Names of the coordinates.
    name : str or sequence of S str, default="u"
        What is shown: "u" or another operator, or one for each column of `values`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from keql import TwoStepKEqL
    >>> from keql.plotting import StateDisplay
    >>> t = np.linspace(0, 6, 30)[:, None]
    >>> model = TwoStepKEqL(operators=("u",), known_part="u_tt", variables=("t",))
    >>> model = model.fit(t, np.sin(t.ravel()))
    >>> display = StateDisplay.from_estimator(model, t, np.sin(t.ravel()))
    >>> display.ax_.get_xlabel()
    't'
    """

    def __init__(
        self,
        points: Any,
        values: Any,
        *,
        std: Any = None,
        X: Any = None,
        y: Any = None,
        collocation_points: Any = None,
        variables: Any = None,
        name: Any = "u",
    ) -> None:
        self.points = points
        self.values = values
        self.std = std
        self.X = X
        self.y = y
        self.collocation_points = collocation_points
        self.variables = variables
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        operator: Any = None,
        function: Any = None,
        uncertainty: bool = True,
        quantity: str = "mean",
        at: Any = None,
        grid_resolution: int = 200,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the state of a fitted estimator on a grid.

        Parameters
        ----------
        estimator : fitted estimator
            Of keql.
        X, y : array-like, default=None
            Observations to mark, as `fit` takes them.
        operator : operator, default=None
            What is shown: a state by its name, or an operator such as "u_x". None: the
            state; of several states of one coordinate, all of them.
        function : hashable, default=None
            Label of the function; None for the first.
        uncertainty : bool, default=True
            Whether the standard deviation is computed.
        quantity : {"mean", "std"}, default="mean"
            What the map of a function of two coordinates shows.
        at : dict of str to float, default=None
            Coordinates that are fixed, by name, such as ``{"t": 1.0}``: all but one or
            two. Of observations and collocation points those that lie there are shown.
        grid_resolution : int, default=200
            Points of the grid for each coordinate.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`.

        Returns
        -------
        display : StateDisplay
            Drawn.
        """
        check_flag(uncertainty, "uncertainty")
        with_std, kwargs["quantity"] = uncertainty or quantity == "std", quantity
        given = X, y, operator, function, with_std, grid_resolution
        state = cls(**_on_grid(estimator, _Slice(estimator, at), *given))
        return common.plot_named(state, estimator, function, at, ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        points: Any,
        values: Any,
        *,
        std: Any = None,
        X: Any = None,
        y: Any = None,
        collocation_points: Any = None,
        variables: Any = None,
        name: Any = "u",
        quantity: Any = "mean",
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        arrays = common.check_arrays(points, variables, values=values, std=std)
        _refuse_maps_of_several(arrays["points"], arrays["values"])
        arrays["X"] = common.check_dimension(X)
        arrays["y"] = None if y is None else common.check_values(y, arrays["X"], "y")
        arrays["collocation_points"] = common.check_dimension(collocation_points)
        if arrays["values"].ndim > 1 and isinstance(name, str):
            name = [f"{name}{i + 1}" for i in range(arrays["values"].shape[1])]
        return cls(**arrays, name=name).plot(ax=ax, quantity=quantity, **kwargs)

    def _draw(self, ax, quantity, **kwargs):
        is_mean = quantity == "mean"
        shown, band = (self.values, self.std) if is_mean else (self.std, None)
        prefix = "" if is_mean else "standard deviation of "
        if shown.ndim > 1:
            self._draw_several(ax, shown, band, prefix, **kwargs)
            return
        label = f"{prefix}{self.name}"
        if self.points.shape[1] == 1:
            args = self.points, shown, self.variables, label, band
            common.draw_line(ax, *args, **{"label": "state", **kwargs})
            if is_mean and self.X is not None and self.y is not None:
                self._mark_values(ax, self.y)
            self._mark_points(ax)
            common.legend_above(ax)
        else:
            common.draw_map(ax, self.points, shown, self.variables, label, **kwargs)
            self._mark_on_map(ax)

    def _draw_several(self, ax, shown, band, prefix, **kwargs):
        """Lines of several states, each with its observations in its colour."""
        label = prefix + ", ".join(self.name)
        for j, name in enumerate(self.name):
            std = None if band is None else band[:, j]
            settings = {"color": common.PALETTE[j % len(common.PALETTE)], "label": name}
            # A band has the colour of its line: legends with one each are hard to read.
            settings["band"] = "_band"
            args = self.points, shown[:, j], self.variables, label, std
            line = common.draw_line(ax, *args, **settings | kwargs)
            if not prefix and self.X is not None and self.y is not None:
                colour = {"mec": line.get_color(), "label": "_observations"}
                self._mark_values(ax, self.y[:, j], **colour)
        self._mark_points(ax)
        common.legend_above(ax, ncols=4)

    def _mark_values(self, ax, y, **changes):
        settings = {"label": "observations", "ms": 5, "zorder": 3, **changes}
        ax.plot(self.X[:, 0], y, **{**common.CIRCLE, **settings})

    def _mark_points(self, ax):
        if self.collocation_points is not None:
            t = self.collocation_points[:, 0]
            settings = {"ms": 5, "mew": 0.5, "label": "collocation points"}
            settings |= {"color": common.QUIET, "transform": ax.get_xaxis_transform()}
            ax.plot(t, np.full(len(t), 0.02), "|", **settings)

    def _mark_on_map(self, ax):
        handles = []
        if self.collocation_points is not None:
            settings = {"ms": 1.5, "color": "0.25", "alpha": 0.6}
            settings["label"] = "collocation points"
            handles += ax.plot(*self.collocation_points.T, ".", **settings)
        if self.X is not None:
            measured = np.full(len(self.X), True)
            if self.y is not None and np.any(np.isfinite(self.y)):
                measured = np.isfinite(self.y)
            settings = {"ms": 4, "mfc": "black", "mec": "white", "mew": 0.7}
            settings |= {"label": "observations", "clip_on": False, "zorder": 3}
            handles += ax.plot(*self.X[measured].T, "o", **settings)
        if handles:
            common.legend_above(ax, handles, markerscale=1.5)


def _refuse_maps_of_several(points, values):
    """Refuse several states of two coordinates in one map."""
    if values.ndim > 1 and points.shape[1] > 1:
        raise ValueError(
            f"values has {values.shape[1]} columns at points of two coordinates: a map "
            "shows one state. Name it (operator), or give one column."
        )


class _Slice:
    """Where a display cuts through the space of the coordinates.

    Parameters
    ----------
    estimator : fitted estimator.
    at : dict of str to float, or None. Coordinates that are fixed.
    """

    def __init__(self, estimator, at):
        common.check_fitted(estimator)
        at, names = {} if at is None else at, list(estimator.variables_)
        if not isinstance(at, dict) or not set(at) <= set(names):
            raise ValueError(
                f"at={at!r} must be a dict of coordinates, {', '.join(names)}, to the "
                "value that each is fixed at."
            )
        units = Units(estimator.units or {})
        values = as_numbers([*at.values()], "at", ndim=1)
        if not np.all(np.isfinite(values)):
            raise ValueError(f"at={at!r} must have finite numbers.")
        pairs = zip(at, values, strict=True)
        shown = (with_unit(f"{name} = {v:g}", units.of(name)) for name, v in pairs)
        self.words = ", ".join(shown)
        self.fixed, self.values = [names.index(name) for name in at], values
        self.free = [i for i in range(len(names)) if i not in self.fixed]
        if not self.free:
            raise ValueError(f"at={at!r} fixes all coordinates: leave one or two out.")
        if len(self.free) > 2:
            raise ValueError(
                f"at={at!r} leaves {len(self.free)} coordinates, and a display shows "
                'one or two of them: fix the others, as in at={"t": 1.0}.'
            )

    def points(self, free):
        """Points (n, d) with the free coordinates (n, d')."""
        points = np.empty((len(free), len(self.fixed) + len(self.free)))
        points[:, self.free], points[:, self.fixed] = free, self.values
        return points

    def of(self, points, box, values=None):
        """The free coordinates and the values of the points on it, None without any.

        To a millionth of the box (2, d) around the data.
        """
        if points is None:
            return None, None
        distance = np.abs(points[:, self.fixed] - self.values)
        here = np.all(distance <= 1e-6 * np.ptp(box, axis=0)[self.fixed], axis=1)
        if not np.any(here):
            return None, None
        return points[here][:, self.free], None if values is None else values[here]


def _on_grid(estimator, cut, X, y, operator, function, with_std, resolution):
    """What a display shows of the state of a fitted estimator: its arguments, a dict.

    The arguments here are those of :meth:`StateDisplay.from_estimator`, and the slice.
    """
    several = len(cut.free) == 1
    operators = common.operators_shown(estimator, operator, several)
    observed, y = common.split_rows(estimator, X, y, function, operators)
    collocation = estimator.collocation_points_
    if collocation is not None:
        collocation = collocation[common.position_of(estimator, function)]
    box = _box_around(observed, collocation)
    points = common.grid_of(box[:, cut.free], resolution)
    rows = common.rows_for(estimator, cut.points(points), function)
    observed, y = cut.of(observed, box, y)
    collocation, _ = cut.of(collocation, box)
    shown = [
        estimator.predict_derivative(rows, asked, return_std=with_std)
        for asked in operators
    ]
    values, std = zip(*shown, strict=True) if with_std else (shown, None)
    where = f" at {cut.words}" if cut.words else ""
    names = [common.labelled_operator(estimator, own) + where for own in operators]
    single = len(operators) == 1
    return {
        "points": points,
        "values": _columns(values, single),
        "std": None if std is None else _columns(std, single),
        "X": observed,
        "y": None if y is None or np.all(np.isnan(y)) else _columns(y.T, single),
        "collocation_points": collocation,
        "variables": [common.labelled_variables(estimator)[i] for i in cut.free],
        "name": names[0] if single else names,
    }


def _box_around(*places):
    """The lowest and the highest coordinates (2, d) of points, some of them None."""
    known = [points for points in places if points is not None]
    if not known:
        raise ValueError("X is None: give the observations, or points, to show.")
    points = np.concatenate(known)
    return np.array([points.min(axis=0), points.max(axis=0)])


def _columns(arrays, single):
    """The only array, or arrays as columns."""
    return arrays[0] if single else np.stack(arrays, axis=1)
