"""The display of trajectories in a plane."""

from typing import Any, Self

import numpy as np

from keql._numerics.arguments import check_flag, naming
from keql.equation import LearnedSystem
from keql.operators import parse_operator
from keql.plotting import _common as common


class PhasePortraitDisplay(common.Display):
    """A trajectory in the plane of u and u_t, or of two states of a system.

    Parameters
    ----------
    u, u_t : ndarray of shape (n,)
        The trajectory, in order of time: a state and its derivative, or two states.
    observed, true : tuple of two ndarray, default=None
        Both at the observations (n_samples,), and those of a trajectory (n,) to compare
        with.
    acceleration : callable, default=None
        Takes u and u_t and returns u_tt: directions are drawn.
    variable : str, default="t"
        Name of the coordinate.
    names : pair of str, default=None
        What is on the axes; None: u and its derivative.
    rates : callable, default=None
        In place of `acceleration`, for two states: takes both and returns the
        derivatives of both.

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
        self,
        u: Any,
        u_t: Any,
        *,
        observed: Any = None,
        true: Any = None,
        acceleration: Any = None,
        variable: str = "t",
        names: Any = None,
        rates: Any = None,
    ) -> None:
        self.u = u
        self.u_t = u_t
        self.observed = observed
        self.true = true
        self.acceleration = acceleration
        self.variable = variable
        self.names = names
        self.rates = rates

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        states: Any = None,
        function: Any = None,
        directions: bool = True,
        grid_resolution: int = 1000,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Draw the trajectory of fitted states of one coordinate.

        Parameters
        ----------
        estimator : fitted estimator
            Of keql.
        X : {array-like, dataframe} of shape (n_samples, n_columns), default=None
            Observations to mark.
        y : array-like of shape (n_samples, S), default=None
            Observed values: where both states were measured, these are marked; without
            it the learned states at the points `X`.
        states : pair of operators, default=None
            What is on the axes, such as ``("x", "z")``. None: the state and its
            derivative, or the states if there are two.
        function : hashable, default=None
            Label of the function; None for the first.
        directions : bool, default=True
            Whether the learned directions are drawn, where the equation gives u_tt, or
            those of two states their derivatives, by what is on the axes alone, without
            a forcing and without the coordinate.
        grid_resolution : int, default=1000
            Points of the trajectory.
        ax, **kwargs : matplotlib Axes and dict
            As in :meth:`plot`; the latter for the trajectory.

        Returns
        -------
        display : PhasePortraitDisplay
            Drawn.
        """
        check_flag(directions, "directions")
        equation = common.check_equation(estimator)
        shown = _on_axes(estimator, states)
        own = _trajectory(estimator, X, y, function, grid_resolution, shown)
        if directions:
            own |= _directions(equation, estimator, shown)
        return common.plot_named(cls(**own), estimator, function, ax=ax, **kwargs)

    @classmethod
    def from_predictions(
        cls,
        u: Any,
        u_t: Any,
        *,
        observed: Any = None,
        true: Any = None,
        acceleration: Any = None,
        variable: Any = "t",
        names: Any = None,
        rates: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        u = common.as_series(u, "u")
        u = common.check_values(u, u, "u")
        if not isinstance(variable, str):
            raise TypeError(f"variable is {variable!r}: it must be a name, a text.")
        u_t = common.check_values(common.as_series(u_t, "u_t"), u, "u_t")
        marks = {"observed": observed, "true": true, "acceleration": acceleration}
        marks |= {"variable": variable, "names": names, "rates": rates}
        return cls(u, u_t, **marks).plot(ax=ax, **kwargs)

    def _draw(self, ax, **kwargs):
        if self.acceleration is not None or self.rates is not None:
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
        names = ("u", f"u_{self.variable}") if self.names is None else self.names
        ax.set(xlabel=names[0], ylabel=names[1])
        common.legend_above(ax)

    def _draw_directions(self, ax):
        """Streamlines of the rates on both axes around the trajectory."""
        axes = []
        for values in (self.u, self.u_t):
            margin = 0.15 * np.ptp(values) or 0.5 * np.max(np.abs(values)) or 1.0
            axes.append(np.linspace(values.min() - margin, values.max() + margin, 40))
        u, u_t = np.meshgrid(*axes)
        if self.rates is None:
            rates = u_t, self.acceleration(u.ravel(), u_t.ravel())
        else:
            rates = self.rates(u.ravel(), u_t.ravel())
        along, upwards = (np.reshape(rate, u.shape) for rate in rates)
        style = {"color": "0.75", "linewidth": 0.7, "arrowsize": 0.8, "zorder": 0}
        ax.streamplot(*axes, along, upwards, **style)


def _on_axes(estimator, states):
    """The two operators on the axes."""
    names = estimator.state_names_
    if len(estimator.variables_) != 1:
        raise ValueError(
            f"estimator has the variables {', '.join(estimator.variables_)}: a "
            "phase portrait needs a state of one coordinate."
        )
    if states is None and len(names) > 2:
        raise ValueError(
            f"states=None, but the estimator has the states {', '.join(names)}: name "
            f"the two of the plane, such as states={names[:2]}."
        )
    if states is None:
        (variable,) = estimator.variables_
        states = names if len(names) == 2 else (names[0], f"{names[0]}_{variable}")
    if not isinstance(states, list | tuple) or len(states) != 2:
        raise ValueError(f"states={states!r} must be a pair of states or operators.")
    with naming("states"):
        shown = [parse_operator(name, estimator.variables_, names) for name in states]
    if shown[0] == shown[1]:
        raise ValueError(f"states={states!r} are the same twice: give two that differ.")
    return shown


def _trajectory(estimator, X, y, function, resolution, shown):
    """What a display shows of fitted states: its arguments, a dict.

    The arguments here are those of :meth:`PhasePortraitDisplay.from_estimator`, and
    the operators on the axes.
    """

    def values(points):
        rows = common.rows_for(estimator, points, function)
        return tuple(estimator.predict_derivative(rows, asked) for asked in shown)

    box = estimator.collocation_points_[common.position_of(estimator, function)]
    observed = None
    if X is not None:
        points, measured = common.split_rows(estimator, X, y, function, shown)
        box = np.concatenate([box, points])
        observed = values(points)
        if measured is not None:
            both = np.all(np.isfinite(measured), axis=1)
            observed = tuple(measured[both].T) if both.any() else observed
    first, second = values(common.grid_of(box, resolution))
    return {
        "u": first,
        "u_t": second,
        "observed": observed,
        "variable": estimator.variables_[0],
        "names": tuple(common.labelled_operator(estimator, asked) for asked in shown),
    }


def _directions(learned, estimator, shown):
    """The argument that gives directions, where equations do; otherwise none: a dict.

    `shown` are the operators on the axes.
    """
    (variable,) = estimator.variables_
    names = [asked.name for asked in shown]
    states, equations = list(learned.states), [learned]
    if isinstance(learned, LearnedSystem):
        equations = list(learned.values())
    if names == [states[0], f"{states[0]}_{variable}"] and len(states) == 1:
        second = f"{states[0]}_{variable}{variable}"
        rate = _rate(learned, second, names) if len(equations) == 1 else None
        return {"acceleration": rate}
    rates = []
    for name in names:
        found = [_rate(each, f"{name}_{variable}", names) for each in equations]
        rates += [rate for rate in found if rate is not None][:1]
    if len(rates) < 2 or not set(names) <= set(states):
        return {}
    return {"rates": lambda a, b: tuple(rate(a, b) for rate in rates)}


def _rate(equation, derivative, plane):
    """A derivative as a function of what is on the axes; None if it is none.

    It is one if the equation says so, without a forcing, and by these alone.
    """
    known, names = equation.known_part, equation.feature_names
    alone = list(known.terms) == [derivative] and not equation.has_forcing
    if not alone or equation.equation_kernel is None:
        return None
    used = equation.equation_kernel.depends_on(equation.n_unknown_features)
    depends = {name for name, on in zip(names, used, strict=False) if on}
    if not depends <= set(plane):
        return None

    def rate(*values):
        S = np.zeros((len(values[0]), len(names)))
        for name, column in zip(plane, values, strict=True):
            if name in names:
                S[:, names.index(name)] = column
        return -equation.unknown_part(S) / known.terms[derivative]

    return rate
