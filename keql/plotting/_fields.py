"""Displays of errors and of coefficient functions."""

from typing import Any, Self

import numpy as np

from keql._numerics.arguments import check_flag
from keql.metrics import relative_l2_error
from keql.plotting import _common as common
from keql.plotting._state import StateDisplay


class ErrorDisplay(common.Display):
    """The error of a fitted state, as of :class:`StateDisplay`, against a known truth.

    In a map zero is in the middle of the colours. They end at the largest error, or,
    if a few are more than twice as large as 99 % of them, at that of these, which
    arrows at the ends of the bar tell.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Where the truth is known, on a grid or scattered; d is 1 or 2.
    true, predicted : ndarray of shape (n,)
        The truth, and the fitted state.
    std : ndarray of shape (n,), default=None
        Its standard deviation; shown as a band around zero for one coordinate.
    variables : sequence of str, default=None
        Names of the coordinates.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.
    relative_error_ : float
        The relative L2 error.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.plotting import ErrorDisplay
    >>> t = np.linspace(0, 1, 5)
    >>> display = ErrorDisplay.from_predictions(t, t, 1.01 * t, variables=["t"])
    >>> round(display.relative_error_, 4)
    0.01
    """

    def __init__(
        self,
        points: Any,
        true: Any,
        predicted: Any,
        *,
        std: Any = None,
        variables: Any = None,
    ) -> None:
        self.points = points
        self.true = true
        self.predicted = predicted
        self.std = std
        self.variables = variables

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        operator: Any = None,
        function: Any = None,
        uncertainty: bool = True,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the error of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            Of keql.
        X, y : array-like of shape (n, n_columns) and (n,) or (n, S)
            Points, as `predict` takes them (also a dataframe), and the truth there.
        operator : operator, default=None
            Which of several states is shown; None: the only one.
        function : hashable, default=None
            Label of the function whose rows are shown; None for the first.
        uncertainty : bool, default=True
            Whether the standard deviation is computed.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`.

        Returns
        -------
        display : ErrorDisplay
            Drawn.
        """
        common.check_fitted(estimator)
        check_flag(uncertainty, "uncertainty")
        (shown,) = common.operators_shown(estimator, operator)
        _refuse_none(X, y)
        points, true = common.split_rows(estimator, X, y, function, [shown])
        points, true = common.check_dimension(points), true[:, 0]
        if np.all(np.isnan(true)):
            raise ValueError(f"y has no values of {shown.name}, whose error is asked.")
        points, true = points[np.isfinite(true)], true[np.isfinite(true)]
        rows = common.rows_for(estimator, points, function)
        with_std = uncertainty and points.shape[1] == 1
        predicted = estimator.predict_derivative(rows, shown, return_std=with_std)
        predicted, std = predicted if with_std else (predicted, None)
        own = {"std": std, "variables": common.labelled_variables(estimator)}
        display = cls(points, true, predicted, **own)
        return common.plot_named(display, estimator, function, ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        points: Any,
        true: Any,
        predicted: Any,
        *,
        std: Any = None,
        variables: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        given = {"true": true, "predicted": predicted, "std": std}
        arrays = common.check_arrays(points, variables, **given)
        return cls(**arrays).plot(ax=ax, **kwargs)

    def _draw(self, ax, **kwargs):
        self.relative_error_ = relative_l2_error(self.true, self.predicted)
        error = self.predicted - self.true
        shown = self.points, error, self.variables, "predicted - true"
        if self.points.shape[1] == 1:
            common.draw_line(ax, *shown, **kwargs)
            if self.std is not None:
                order = np.argsort(self.points[:, 0])
                x, std = self.points[order, 0], self.std[order]
                common.draw_band(ax, x, 0.0, std, color=common.QUIET, alpha=0.3)
                ax.legend()
            ax.axhline(0.0, color="black", lw=0.8)
        else:
            common.draw_map(ax, *shown, centred=True, **{"cmap": "PuOr_r", **kwargs})
        ax.set_title(f"relative L2 error {self.relative_error_:.2g}")


def _refuse_none(X, y):
    """Refuse errors of nothing."""
    if X is None or y is None:
        raise ValueError("X and y must be given: errors are those of observations.")


class CoefficientDisplay(common.MeanOrStdDisplay):
    """A coefficient of a learned equation as a function of the coordinates.

    The values are those of :meth:`keql.LearnedEquation.coefficient`.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Where, on a grid or scattered; d is 1 or 2.
    values, std : ndarray of shape (n,)
        The coefficient there, and its standard deviation, None by default.
    variables : sequence of str, default=None
        Names of the coordinates.
    term : str, default=""
        What the coefficient multiplies.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.plotting import CoefficientDisplay
    >>> x = np.linspace(0, 1, 5)
    >>> display = CoefficientDisplay.from_predictions(
    ...     x, np.cos(x), variables=["x"], term="u_xx"
    ... )
    >>> display.ax_.get_ylabel()
    'coefficient of u_xx'
    """

    def __init__(
        self,
        points: Any,
        values: Any,
        *,
        std: Any = None,
        variables: Any = None,
        term: str = "",
    ) -> None:
        self.points = points
        self.values = values
        self.std = std
        self.variables = variables
        self.term = term

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        term: str,
        *,
        equation: str | None = None,
        points: Any = None,
        quantity: str = "mean",
        grid_resolution: int = 100,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw a coefficient function of the equation of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator
            Whose equation kernel is polynomial in the operators.
        term : str
            A product of operators.
        equation : str, default=None
            Name of the equation of a system; None: the only one.
        points : array-like of shape (n, d), default=None
            Where; None for a grid in the box of the collocation points.
        quantity : {"mean", "std"}, default="mean"
            What the map of a function of two coordinates shows.
        grid_resolution : int, default=100
            Points of the grid for each coordinate.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`.

        Returns
        -------
        display : CoefficientDisplay
            Drawn.
        """
        learned = common.check_equation(estimator)
        chosen = common.equation_named(learned, equation)
        if points is None:
            box = np.concatenate(estimator.collocation_points_)
            points = common.grid_of(common.check_dimension(box), grid_resolution)
        points = common.check_dimension(points)
        values, std = chosen.coefficient(term, points, return_std=True)
        names = common.labelled_variables(estimator)
        display = cls(points, values, std=std, variables=names, term=term)
        return display.plot(ax=ax, quantity=quantity, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        points: Any,
        values: Any,
        *,
        std: Any = None,
        variables: Any = None,
        term: Any = "",
        quantity: Any = "mean",
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        arrays = common.check_arrays(points, variables, values=values, std=std)
        return cls(**arrays, term=term).plot(ax=ax, quantity=quantity, **kwargs)

    def _draw(self, ax, quantity, **kwargs):
        label = f"coefficient of {self.term}" if self.term else "coefficient"
        is_line = self.points.shape[1] == 1
        if is_line:
            kwargs = {"label": label, **kwargs}
        given = {"std": self.std, "variables": self.variables, "name": label}
        state = StateDisplay(self.points, self.values, **given)
        state.plot(ax, quantity=quantity, **kwargs)
        if is_line:
            ax.legend()
