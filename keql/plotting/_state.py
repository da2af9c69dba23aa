"""The display of a state."""

import numpy as np

from keql.plotting import _common as common


class StateDisplay(common.MeanOrStdDisplay):
    """A fitted state, with the observations and the collocation points.

    A line with a band of two standard deviations for one coordinate, a map for two.
    Make it with :meth:`from_estimator` or :meth:`from_predictions`;
    :class:`ErrorDisplay` shows the difference from a known truth.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Where the state is known, on a grid or scattered; d is 1 or 2.
    values, std : ndarray of shape (n,)
        The state there, and its standard deviation, None by default.
    X, y : ndarray of shape (n_samples, d) and (n_samples,), default=None
        Observations.
    collocation_points : ndarray of shape (K, d), default=None
        Where the equation was imposed.
    variables : sequence of str, default=None
        Names of the coordinates.
    name : str, default="u"
        What is shown: "u" or another operator.

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
        points,
        values,
        *,
        std=None,
        X=None,
        y=None,
        collocation_points=None,
        variables=None,
        name="u",
    ):
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
        estimator,
        X=None,
        y=None,
        *,
        operator="u",
        function=None,
        uncertainty=True,
        quantity="mean",
        grid_resolution=200,
        ax=None,
        **kwargs,
    ):
        """Draw the state of a fitted estimator on a grid.

        Parameters
        ----------
        estimator : fitted estimator
            Of keql.
        X, y : array-like of shape (n_samples, n_columns) and (n_samples,), default=None
            Observations to mark, as `fit` takes them; `X` may be a dataframe.
        operator : operator, default="u"
            What is shown; "u_x" is the derivative of the state.
        function : hashable, default=None
            Label of the function; None for the first.
        uncertainty : bool, default=True
            Whether the standard deviation is computed.
        quantity : {"mean", "std"}, default="mean"
            What the map of a function of two coordinates shows.
        grid_resolution : int, default=200
            Points of the grid for each coordinate.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`.

        Returns
        -------
        display : StateDisplay
            Drawn.
        """
        with_std = uncertainty or quantity == "std"
        state = _on_grid(estimator, X, y, operator, function, with_std, grid_resolution)
        return cls(**state).plot(ax=ax, quantity=quantity, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        points,
        values,
        *,
        std=None,
        X=None,
        y=None,
        collocation_points=None,
        variables=None,
        name="u",
        quantity="mean",
        ax=None,
        **kwargs,
    ):
        arrays = common.check_arrays(points, variables, values=values, std=std)
        arrays["X"] = common.check_dimension(X)
        arrays["y"] = None if y is None else np.ravel(y)
        arrays["collocation_points"] = common.check_dimension(collocation_points)
        return cls(**arrays, name=name).plot(ax=ax, quantity=quantity, **kwargs)

    def _draw(self, ax, quantity, **kwargs):
        is_mean = quantity == "mean"
        shown, band = (self.values, self.std) if is_mean else (self.std, None)
        label = self.name if is_mean else f"standard deviation of {self.name}"
        if self.points.shape[1] == 1:
            args = self.points, shown, self.variables, label, band
            common.draw_line(ax, *args, **{"label": "state", **kwargs})
            self._mark_on_line(ax, quantity)
            common.legend_above(ax)
        else:
            common.draw_map(ax, self.points, shown, self.variables, label, **kwargs)
            self._mark_on_map(ax)

    def _mark_on_line(self, ax, quantity):
        if self.X is not None and self.y is not None and quantity == "mean":
            settings = {"label": "observations", "ms": 5, "zorder": 3}
            ax.plot(self.X[:, 0], self.y, **common.CIRCLE, **settings)
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
            settings = {"ms": 4, "mfc": "black", "mec": "white", "mew": 0.7}
            settings |= {"label": "observations", "clip_on": False, "zorder": 3}
            handles += ax.plot(*self.X.T, "o", **settings)
        if handles:
            common.legend_above(ax, handles, markerscale=1.5)


def _on_grid(estimator, X, y, operator, function, with_std, resolution):
    """What a display shows of the state of a fitted estimator: its arguments, a dict.

    The arguments here are those of :meth:`StateDisplay.from_estimator`.
    """
    common.check_is_fitted(estimator)
    observed, y = common.split_rows(estimator, X, y, function)
    collocation = estimator.collocation_points_
    if collocation is not None:
        collocation = collocation[common.position_of(estimator, function)]
    known = [p for p in (observed, collocation) if p is not None]
    if not known:
        raise ValueError("X is None: give the observations, or points, to show.")
    box = common.check_dimension(np.concatenate(known))
    points = common.grid_of(box, resolution)
    rows = common.rows_for(estimator, points, function)
    values = estimator.predict_derivative(rows, operator, return_std=with_std)
    values, std = values if with_std else (values, None)
    name = str(getattr(operator, "name", operator))
    return {
        "points": points,
        "values": values,
        "std": std,
        "X": observed,
        "y": y if name == "u" else None,
        "collocation_points": collocation,
        "variables": estimator.variables_,
        "name": name,
    }
