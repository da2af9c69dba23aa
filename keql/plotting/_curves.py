"""Displays of a fit's progress and of its equations."""

from typing import Any, Self

import numpy as np

from keql._numerics.arguments import as_numbers, in_short
from keql._observations.units import labelled
from keql.equation import LearnedEquation, LearnedSystem
from keql.metrics import relative_l2_error
from keql.plotting import _common as common


class LossCurveDisplay(common.Display):
    """Loss and damping after each accepted step of a joint fit.

    Parameters
    ----------
    loss_curve : array-like of shape (n_steps + 1,)
        The loss at the start and after each step.
    damping_curve : array-like of shape (n_steps,), default=None
        The damping of each step. Full steps, such as those of exact states, have none,
        and no axes for it.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where the loss was drawn.
    damping_ax_ : matplotlib Axes or None
        The axes of the damping, on the right.

    Examples
    --------
    >>> from keql.plotting import LossCurveDisplay
    >>> display = LossCurveDisplay.from_predictions([100.0, 10.0, 1.0], [0.1, 0.05])
    >>> display.ax_.get_yscale()
    'log'
    """

    def __init__(self, loss_curve: Any, damping_curve: Any = None) -> None:
        self.loss_curve = loss_curve
        self.damping_curve = damping_curve

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the progress of a fit.

        Parameters
        ----------
        estimator : fitted estimator
            That has a `loss_curve_`.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`; the latter for the loss.

        Returns
        -------
        display : LossCurveDisplay
            Drawn.
        """
        common.check_fitted(estimator)
        if not getattr(estimator, "loss_curve_", []):
            raise ValueError(
                f"estimator={type(estimator).__name__} has no loss curve: only a joint "
                "fit of an equation, as of OneStepKEqL, is made in steps."
            )
        display = cls(estimator.loss_curve_, estimator.damping_curve_)
        return display.plot(ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        loss_curve: Any,
        damping_curve: Any = None,
        *,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        for name, values in (
            ("loss_curve", loss_curve),
            ("damping_curve", damping_curve),
        ):
            if values is not None or name == "loss_curve":
                values = as_numbers(values, name, ndim=1)
                if not np.all(np.isfinite(values)) or not len(values):
                    raise ValueError(f"{name} must be finite numbers, at least one.")
        return cls(loss_curve, damping_curve).plot(ax=ax, **kwargs)

    def _draw(self, ax, **kwargs):
        self.damping_ax_ = None
        loss = np.asarray(self.loss_curve, dtype=float)
        settings = {"color": common.FIRST, "marker": "o", "ms": 3, **kwargs}
        lines = ax.plot(np.arange(len(loss)), loss, label="loss", **settings)
        # Over less than one power of ten the ticks of a logarithm are hard to read.
        is_flat = 0 < np.max(loss) < 10 * np.min(loss)
        yscale = "linear" if is_flat else "log"
        ax.set(xlabel="accepted step", ylabel="loss", yscale=yscale)
        ax.xaxis.get_major_locator().set_params(integer=True)
        damping = np.asarray(
            [] if self.damping_curve is None else self.damping_curve, dtype=float
        )
        if np.any(damping > 0):
            self.damping_ax_ = other = ax.twinx()
            steps, settings = np.arange(1, len(damping) + 1), {"color": common.SECOND}
            lines += other.plot(steps, damping, "--", label="damping", **settings)
            other.set(ylabel="damping", yscale="log")
        ax.legend(handles=lines)


class EquationParityDisplay(common.Display):
    """Predicted against given values of what an equation was learned from.

    The given values are f - Pbar, the right-hand side less the known part at the
    learned states, and the prediction is P. An equation that holds has all points on
    the diagonal. A system has a panel for each equation.

    Parameters
    ----------
    given, predicted : ndarray of shape (n,), or list of E of these
        Values of f - Pbar and of P; lists for E equations.
    label : str or list of E str, default="f - known part"
        What is given.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes, or an array of E of these, and Figure
        Where it was drawn.
    relative_error_ : float or list of E float
        The relative L2 error of each equation.

    Examples
    --------
    >>> from keql.plotting import EquationParityDisplay
    >>> display = EquationParityDisplay.from_predictions([1.0, 2.0], [1.0, 2.2])
    >>> round(display.relative_error_, 3)
    0.089
    """

    def __init__(
        self, given: Any, predicted: Any, label: Any = "f - known part"
    ) -> None:
        self.given = given
        self.predicted = predicted
        self.label = label

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, equation: Any = None, ax: Any = None, **kwargs: Any
    ) -> Self:
        """Draw the equation of a fitted estimator where it was imposed.

        Parameters
        ----------
        estimator : fitted estimator
            Of keql.
        equation : str, LearnedEquation or LearnedSystem, default=None
            Name of one equation of a system; or another equation or system to judge at
            the same states, such as a sparse one; None for `estimator.equation_`.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`; the latter for the points.

        Returns
        -------
        display : EquationParityDisplay
            Drawn.
        """
        learned = common.check_equation(estimator)
        other, name = equation, None
        if equation is None or isinstance(equation, str):
            other, name = learned, equation
        elif not isinstance(equation, LearnedEquation | LearnedSystem):
            raise TypeError(
                f"equation is {in_short(equation)}: it must be the name of an "
                "equation, a LearnedEquation or a LearnedSystem."
            )
        if name is not None or not isinstance(learned, LearnedSystem):
            own = common.equation_named(learned, name)
            judged = own if other is learned else other
            return cls(*_parity(estimator, own, judged, name)).plot(ax=ax, **kwargs)
        panels = [
            _parity(estimator, own, common.equation_named(other, name), name)
            for name, own in learned.items()
            if own.equation_kernel is not None
        ]
        return cls(*map(list, zip(*panels, strict=True))).plot(ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        given: Any,
        predicted: Any,
        *,
        label: Any = "f - known part",
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        if not isinstance(label, str):
            raise TypeError(f"label is {in_short(label)}: it must be a text.")
        given = as_numbers(given, "given")
        predicted = as_numbers(predicted, "predicted")
        for values, name in (given, "given"), (predicted, "predicted"):
            if values.ndim > 2 or not values.size or not np.all(np.isfinite(values)):
                raise ValueError(
                    f"{name} has the shape {values.shape}: it must be a row or a "
                    "column of finite numbers, at least one."
                )
        given = np.ravel(given)
        predicted = common.check_values(predicted, given, "predicted")
        return cls(given, predicted, label).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of E Axes, default=None
            Where to draw, one for each of several equations; None for a new figure.
        **kwargs : dict
            For matplotlib's `plot` of points.

        Returns
        -------
        display : EquationParityDisplay
            This one.
        """
        if not isinstance(self.given, list):
            return super().plot(ax, **kwargs)
        n_panels, errors = len(self.given), []
        if ax is None:
            from matplotlib import pyplot

            size = 3.2 * n_panels, 3.4
            _, ax = pyplot.subplots(1, n_panels, figsize=size, layout="constrained")
        axes = np.ravel(np.asarray(ax, dtype=object))
        if len(axes) != n_panels:
            raise ValueError(
                f"ax has {len(axes)} Axes for {n_panels} equations: give one for each, "
                "or name an equation."
            )
        for panel in zip(axes, self.given, self.predicted, self.label, strict=True):
            errors.append(_draw_parity(*panel, **kwargs))
        self.ax_, self.figure_, self.relative_error_ = axes, axes[0].figure, errors
        return self

    def _draw(self, ax, **kwargs):
        values = self.given, self.predicted, self.label
        self.relative_error_ = _draw_parity(ax, *values, **kwargs)


def _draw_parity(ax, given, predicted, label, **kwargs):
    """Points of one equation and the diagonal; the relative error, nan for zeros."""
    error = relative_l2_error(given, predicted) if np.linalg.norm(given) else np.nan
    style = {"ls": "", "marker": "o", "ms": 3, "mew": 0, "rasterized": True}
    settings = {**style, "color": common.FIRST, "alpha": 0.5, **kwargs}
    middle = 0.5 * (np.max(given) + np.min(given))
    ax.axline((middle, middle), slope=1, color="black", lw=0.8, zorder=1)
    ax.plot(given, predicted, **settings)
    ax.set(xlabel=f"given: {label}", ylabel="predicted: P")
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(f"relative L2 error {error:.2g}")
    return error


def _parity(estimator, learned, judged, name=None):
    """What is shown of one equation: values given and predicted, and a label."""
    S = learned.training_features
    label = "f" if learned.has_forcing else ""
    if learned.known_part.terms:
        known = str(learned).partition(" = ")[0]
        known = f"({known})" if " " in known else known
        label = f"{label} - {known}" if label else f"-{known}"
    given = _forcing_of(estimator, learned, name) - learned.known_part(S)
    return given, judged.unknown_part(S), labelled(label, learned.unit)


def _forcing_of(estimator, learned, name):
    """The right-hand side of one equation where it was imposed, (n,)."""
    S, labels = learned.training_features, estimator.functions_
    points = S[:, : len(estimator.variables_)]
    if not learned.has_forcing:
        return np.zeros(len(S))
    given = estimator.forcing
    if name is not None and estimator.equations is not None:
        given = dict(estimator.equations)[name].forcing
    elif isinstance(given, tuple):
        given = given[list(estimator.equation_).index(name)]
    if callable(given):
        return np.ravel(np.asarray(given(np.array(points)), dtype=float))
    values, start = [], 0
    sizes = [len(own) for own in estimator.collocation_points_]
    sizes = sizes if sum(sizes) == len(S) else [len(S) // len(labels)] * len(labels)
    for label, size in zip(labels, sizes, strict=True):
        forcing = given[label] if isinstance(given, dict) else given
        own, start = points[start : start + size], start + size
        forcing = forcing(np.array(own)) if callable(forcing) else forcing
        values.append(np.ravel(np.asarray(forcing, dtype=float)))
    return np.concatenate(values)
