"""Burgers' equation seen on its boundary only, and a new initial condition.

    python examples/paper/burgers_from_boundary.py --quick

u_t = 0.5 u u_x + 0.01 u_xx from 100 points of the boundary of the space-time square;
the learned equation is then solved for the initial condition -x sin 2 pi x. There is
nothing random, so that one draw is all.
"""

import sys
import warnings

import numpy as np
from burgers_observations import (
    METHODS,
    at_hand,
    learn,
    published_as,
    true_features,
    with_equation,
)
from experiment import (
    measured,
    new_figure,
    read_arrays,
    read_options,
    report,
    run,
    save,
    select,
)
from published import BURGERS_BOUNDARY

from keql import ExtrapolationWarning, KernelPDESolver, OneStepKEqL, TwoStepKEqL
from keql.datasets import make_burgers
from keql.metrics import equation_error, relative_l2_error

PROBLEM = {
    "theta": 0.5,
    "nu": 0.01,
    "layout": "boundary",
    "collocation_shape": (26, 26),
}


def new_initial_condition(x):
    """What the learned equation is solved for."""
    return -x * np.sin(2 * np.pi * x)


def learn_boundary(method, data):
    """As elsewhere, but with the published kernels where there are settings."""
    if method in ("ours", "pinn-sr"):
        return learn(method, data)
    if method == "published settings":
        settings = {**data.kernels, "n_terms": None, "n_restarts": 0}
        model = OneStepKEqL(**data.problem, **settings)
    else:
        model = TwoStepKEqL(**data.problem, **data.kernels)
    return with_equation(method, model.fit(data.X, data.y))


def solve(equation, model, data, X, y):
    """Solve a learned equation for other data."""
    settings = {
        "collocation_points": data.collocation_points,
        "variables": data.variables,
        "state_kernel": data.kernels["state_kernel"],
    }
    if not hasattr(equation, "simulate"):  # that of SINDy
        value = equation.value
        equation = lambda u_t, u, u_x, u_xx: u_t + value(u, u_x, u_xx)  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # features leave those learned from
        return KernelPDESolver(equation, **settings).fit(X, y)


def measure(method):
    """Errors of the state, the equation and the new solution."""
    data = make_burgers(initial_condition="published", **PROBLEM)
    new = make_burgers(initial_condition=new_initial_condition, **PROBLEM)
    (model, equation), cost = measured(lambda: learn_boundary(method, data))
    known = (new.X[:, 0] < 1) | np.isin(new.X[:, 1], (0, 1))
    solver = solve(equation, model, data, new.X[known], new.y[known])
    state = model.predict(data.X_test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        solution = solver.predict(new.X_test)
    return {
        "state_error": relative_l2_error(data.y_test, state),
        "equation_error": equation_error(
            equation, true_features(data), data.unknown_part
        ),
        "new_error": relative_l2_error(new.y_test, solution),
        **cost,
        "state": state,
        "new": solution,
        "true_state": data.y_test,
        "true_new": new.y_test,
    }


def draw_figure(path, target, methods):
    """The truth, and what each method makes of it, for both initial conditions."""
    figure, axes = new_figure(
        2,
        len(methods) + 1,
        figsize=(2.4 * len(methods) + 3, 5),
        sharex=True,
        sharey=True,
    )
    for row, (name, title) in zip(
        axes, (("state", "observed"), ("new", "new condition")), strict=True
    ):
        for ax, method in zip(row, (None, *methods), strict=True):
            arrays = read_arrays(path, {"method": method or methods[0]})
            truth = arrays[f"true_{name}"]
            values = truth if method is None else abs(arrays[name] - truth)
            show(ax, figure, values, signed=method is None)
            ax.set_title("true u" if method is None else f"error, {method}", fontsize=8)
        row[0].set_ylabel(f"{title}\nx")
    for ax in axes[1]:
        ax.set_xlabel("t")
    save(figure, target)


def show(ax, figure, values, signed):
    """Contours of values on the uniform grid, t running fastest."""
    n = int(np.sqrt(len(values)))
    axis = np.linspace(0, 1, n)
    image = ax.contourf(
        axis, axis, values.reshape(n, n), 20, cmap="RdBu_r" if signed else "viridis"
    )
    figure.colorbar(image, ax=ax, shrink=0.8, format="%.1g")


def main(argv=None):
    """Measure, print beside the published figures, draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    methods = at_hand(METHODS, network=options.full)
    path = options.output / "burgers_from_boundary.csv"
    tasks = [{"method": method} for method in methods]
    rows = run(path, tasks, measure, options.jobs)
    for name in ("state_error", "equation_error", "new_error"):
        print(f"\n{name}")
        known = BURGERS_BOUNDARY.get(name, {})
        for method in methods:
            value = known.get(published_as(method))
            report(f"  {method}", select(rows, method=method), name, value)
        if known and "pinn-sr" not in methods:
            print(f"  PINN-SR as published: {known['pinn_sr']:.2g}")
    draw_figure(path, options.output / "burgers_from_boundary.png", methods)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
