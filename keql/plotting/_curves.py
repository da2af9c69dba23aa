"""Displays of a fit's progress, of its equation and of trajectories."""

import numpy as np

from keql.metrics import relative_l2_error
from keql.plotting import _common as common


class LossCurveDisplay(common.Display):
    """Loss and damping after each accepted step of a joint fit.

    Parameters
    ----------
    loss_curve : array-like of shape (n_steps + 1,)
        The loss at the start and after each step.
    damping_curve : array-like of shape (n_steps,), default=None
        The damping of each step.

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

    def __init__(self, loss_curve, damping_curve=None):
        self.loss_curve = loss_curve
        self.damping_curve = damping_curve

    @classmethod
    def from_estimator(cls, estimator, *, ax=None, **kwargs):
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
        common.check_is_fitted(estimator)
        if not getattr(estimator, "loss_curve_", []):
            raise ValueError(
                f"estimator={type(estimator).__name__} has no loss curve: only a joint "
                "fit of an equation, as of OneStepKEqL, is made in steps."
            )
        display = cls(estimator.loss_curve_, estimator.damping_curve_)
        return display.plot(ax=ax, **kwargs)

    @classmethod
    def from_predictions(cls, loss_curve, damping_curve=None, *, ax=None, **kwargs):
        return cls(loss_curve, damping_curve).plot(ax=ax, **kwargs)

    def _draw(self, ax, **kwargs):
        self.damping_ax_ = None
        loss = np.asarray(self.loss_curve, dtype=float)
        settings = {"color": common.FIRST, "marker": "o", "ms": 3, **kwargs}
        lines = ax.plot(np.arange(len(loss)), loss, label="loss", **settings)
        ax.set(xlabel="accepted step", ylabel="loss", yscale="log")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if self.damping_curve is not None and len(self.damping_curve):
            self.damping_ax_ = other = ax.twinx()
            damping = np.asarray(self.damping_curve, dtype=float)
            steps, settings = np.arange(1, len(damping) + 1), {"color": common.SECOND}
            lines += other.plot(steps, damping, "--", label="damping", **settings)
            other.set(ylabel="damping", yscale="log")
        ax.legend(handles=lines)


class EquationParityDisplay(common.Display):
    """Predicted against given values of what the equation was learned from.

    The given values are f - Pbar, the right-hand side less the known part at the
    learned states, and the prediction is P. An equation that holds has all points on
    the diagonal.

    Parameters
    ----------
    given, predicted : ndarray of shape (n,)
        Values of f - Pbar and of P.
    label : str, default="f - known part"
        What is given.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.
    relative_error_ : float
        The relative L2 error.

    Examples
    --------
    >>> from keql.plotting import EquationParityDisplay
    >>> display = EquationParityDisplay.from_predictions([1.0, 2.0], [1.0, 2.2])
    >>> round(display.relative_error_, 3)
    0.089
    """

    def __init__(self, given, predicted, label="f - known part"):
        self.given = given
        self.predicted = predicted
        self.label = label

    @classmethod
    def from_estimator(cls, estimator, *, equation=None, ax=None, **kwargs):
        """Draw the equation of a fitted estimator at its collocation points.

        Parameters
        ----------
        estimator : fitted estimator
            Of keql.
        equation : LearnedEquation, default=None
            Another equation to judge at the same states, such as a sparse one; None
            for `estimator.equation_`.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`; the latter for the points.

        Returns
        -------
        display : EquationParityDisplay
            Drawn.
        """
        learned = common.check_equation(estimator)
        equation = learned if equation is None else equation
        S = learned.training_features
        label = "f" if learned.has_forcing else ""
        if learned.known_part.terms:
            known = str(learned).partition(" = ")[0]
            known = f"({known})" if " " in known else known
            label = f"{label} - {known}" if label else f"-{known}"
        given = common.forcing_of(estimator) - learned.known_part(S)
        return cls(given, equation.unknown_part(S), label).plot(ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls, given, predicted, *, label="f - known part", ax=None, **kwargs
    ):
        given = np.ravel(np.asarray(given, dtype=float))
        predicted = common.check_values(predicted, given, "predicted")
        return cls(given, predicted, label).plot(ax=ax, **kwargs)

    def _draw(self, ax, **kwargs):
        self.relative_error_ = relative_l2_error(self.given, self.predicted)
        style = {"ls": "", "marker": "o", "ms": 3, "mew": 0, "rasterized": True}
        settings = {**style, "color": common.FIRST, "alpha": 0.5, **kwargs}
        middle = 0.5 * (np.max(self.given) + np.min(self.given))
        ax.axline((middle, middle), slope=1, color="black", lw=0.8, zorder=1)
        ax.plot(self.given, self.predicted, **settings)
        ax.set(xlabel=f"given: {self.label}", ylabel="predicted: P")
        ax.set_aspect("equal", adjustable="datalim")
        ax.set_title(f"relative L2 error {self.relative_error_:.2g}")


class PhasePortraitDisplay(common.Display):
    """A trajectory of a second-order equation in the plane of u and u_t.

    Parameters
    ----------
    u, u_t : ndarray of shape (n,)
        The trajectory, in order of time.
    observed, true : tuple of two ndarray, default=None
        The state and its derivative at the observations (n_samples,), and those of a
        trajectory (n,) to compare with.
    acceleration : callable, default=None
        Takes u and u_t and returns u_tt: directions are drawn.
    variable : str, default="t"
        Name of the coordinate.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.plotting import PhasePortraitDisplay
    >>> t = np.linspace(0, 6, 50)
    >>> display = PhasePortraitDisplay.from_predictions(np.sin(t), np.cos(t))
    >>> display.ax_.get_ylabel()
    'u_t'
    """

    def __init__(
        self, u, u_t, *, observed=None, true=None, acceleration=None, variable="t"
    ):
        self.u = u
        self.u_t = u_t
        self.observed = observed
        self.true = true
        self.acceleration = acceleration
        self.variable = variable

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X=None,
        *,
        function=None,
        directions=True,
        grid_resolution=1000,
        ax=None,
        **kwargs,
    ):
        """Draw the trajectory of a fitted state of one coordinate.

        Parameters
        ----------
        estimator : fitted estimator
            Of keql.
        X : {array-like, dataframe} of shape (n_samples, n_columns), default=None
            Observations to mark.
        function : hashable, default=None
            Label of the function; None for the first.
        directions : bool, default=True
            Whether the learned directions are drawn, where the equation gives u_tt
            without a forcing and without the coordinate.
        grid_resolution : int, default=1000
            Points of the trajectory.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`; the latter for the trajectory.

        Returns
        -------
        display : PhasePortraitDisplay
            Drawn.
        """
        trajectory = _trajectory(estimator, X, function, grid_resolution, directions)
        return cls(**trajectory).plot(ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        u,
        u_t,
        *,
        observed=None,
        true=None,
        acceleration=None,
        variable="t",
        ax=None,
        **kwargs,
    ):
        u = np.ravel(np.asarray(u, dtype=float))
        u_t = common.check_values(u_t, u, "u_t")
        marks = {"observed": observed, "true": true, "acceleration": acceleration}
        return cls(u, u_t, **marks, variable=variable).plot(ax=ax, **kwargs)

    def _draw(self, ax, **kwargs):
        if self.acceleration is not None:
            self._draw_directions(ax)
        if self.true is not None:
            ax.plot(*self.true, "--", color="black", lw=1, label="truth")
        style = {"color": common.FIRST, "lw": 1.5, "label": "learned state"}
        (line,) = ax.plot(self.u, self.u_t, **{**style, **kwargs})
        style = {"color": line.get_color(), "ms": 7, "label": "start"}
        ax.plot(self.u[:1], self.u_t[:1], "s", **style)
        if self.observed is not None:
            label = "at the observations"
            ax.plot(*self.observed, **common.CIRCLE, ms=4, label=label)
        ax.set(xlabel="u", ylabel=f"u_{self.variable}")
        common.legend_above(ax)

    def _draw_directions(self, ax):
        """Streamlines of (u_t, u_tt) around the trajectory."""
        axes = []
        for values in (self.u, self.u_t):
            margin = 0.15 * np.ptp(values)
            axes.append(np.linspace(values.min() - margin, values.max() + margin, 40))
        u, u_t = np.meshgrid(*axes)
        u_tt = self.acceleration(u.ravel(), u_t.ravel()).reshape(u.shape)
        style = {"color": "0.75", "linewidth": 0.7, "arrowsize": 0.8, "zorder": 0}
        ax.streamplot(*axes, u_t, u_tt, **style)


def _trajectory(estimator, X, function, resolution, directions):
    """What a display shows of a fitted state: its arguments, a dict.

    The arguments here are those of :meth:`PhasePortraitDisplay.from_estimator`.
    """
    equation = common.check_equation(estimator)
    if len(estimator.variables_) != 1:
        raise ValueError(
            f"estimator has the variables {', '.join(estimator.variables_)}: a "
            "phase portrait needs a state of one coordinate."
        )
    (variable,) = estimator.variables_
    slope = f"u_{variable}"
    box = estimator.collocation_points_[common.position_of(estimator, function)]
    observed = None
    if X is not None:
        points, _ = common.split_rows(estimator, X, None, function)
        box = np.concatenate([box, points])
        at = common.rows_for(estimator, points, function)
        observed = estimator.predict(at), estimator.predict_derivative(at, slope)
    grid = common.grid_of(box, resolution)
    rows = common.rows_for(estimator, grid, function)
    return {
        "u": estimator.predict(rows),
        "u_t": estimator.predict_derivative(rows, slope),
        "observed": observed,
        "acceleration": _acceleration(equation, variable) if directions else None,
        "variable": variable,
    }


def _acceleration(equation, variable):
    """u_tt as a function of u and u_t, where the equation says so; otherwise None."""
    known, names = equation.known_part, equation.feature_names
    first, second = f"u_{variable}", f"u_{variable}{variable}"
    alone = list(known.terms) == [second] and not equation.has_forcing
    width = len(equation.variables) + equation.n_operators
    used = equation.equation_kernel.depends_on(width)
    depends = {name for name, on in zip(names, used, strict=False) if on}
    if not alone or not depends <= {"u", first}:
        return None

    def acceleration(u, u_t):
        S = np.zeros((len(u), len(names)))
        for name, values in (("u", u), (first, u_t)):
            if name in names:
                S[:, names.index(name)] = values
        return -equation.unknown_part(S) / known.terms[second]

    return acceleration
