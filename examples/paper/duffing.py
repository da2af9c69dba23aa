"""The Duffing oscillator: 32 observations on [0, 50] and new initial conditions.

    python examples/paper/duffing.py --quick

The state between the observations, and solutions of the learned equation from initial
conditions u(0) = 0, u'(0) = 0.5, 1 and -1. Draw 0 has the published initial condition
u(0) = u'(0) = 0, the others random ones. The published trajectory, which is another one
after t = 25 (the motion is chaotic), is used too if the environment variable
KEQL_REFERENCE names the folder of `duffing_trajectory.npz`.
"""

import sys

import numpy as np
from experiment import (
    draws,
    measured,
    new_figure,
    read_arrays,
    read_options,
    report,
    run,
    save,
    select,
    use_draw,
)
from published import DUFFING
from scipy.integrate import solve_ivp
from sindy_baseline import available, learn_sindy

from keql import OneStepKEqL, TwoStepKEqL
from keql.datasets import make_duffing
from keql.kernels import RBF, Constant, Polynomial
from keql.metrics import equation_error, relative_l2_error

FILE = "duffing_trajectory.npz"
HORIZONS = (3, 6, 10)
SLOPES = (0.5, 1.0, -1.0)
TIMES = np.linspace(0, max(HORIZONS), 1001)
# Settings of ours: the published state kernel; an equation that is a cubic polynomial,
# or one of no given form in the RKHS of a Gaussian kernel.
NOISE = {"observation_noise": 1e-4, "equation_noise": 1e-3}
# Published results to compare with, by method.
METHODS = {
    "ours": "one_step",
    "ours without a form": "one_step",
    "published settings": "one_step",
    "two-step": "two_step",
    "sindy": "sindy",
    "ensemble sindy": "sindy",
}


def initial(draw):
    """Initial condition of a draw."""
    if draw in (0, "published"):
        return 0.0, 0.0
    return tuple(np.random.RandomState(draw).uniform(-1, 1, 2))


def learn(method, data):
    """A fitted estimator and its equation."""
    state_kernel = data.kernels["state_kernel"]
    if method == "ours":
        model = OneStepKEqL(
            **data.problem,
            **NOISE,
            state_kernel=state_kernel,
            equation_kernel=Polynomial(3),
            n_terms=None,
        )
    elif method == "ours without a form":
        model = OneStepKEqL(
            **data.problem,
            **NOISE,
            state_kernel=state_kernel,
            equation_kernel=Constant(100.0, "fixed") * RBF(1.0, "fixed"),
            n_inducing=300,
            random_state=0,
        )
    elif method == "published settings":
        model = OneStepKEqL(
            **data.problem, **data.kernels, n_restarts=0, random_state=0
        )
    else:
        model = TwoStepKEqL(**data.problem, **data.kernels, random_state=0)
    model.fit(data.X, data.y)
    if "sindy" in method:
        return model, learn_sindy(model, 3, ensemble=method.startswith("ensemble"))
    return model, model.equation_


def measure(draw, method):
    """Errors of the state, of the equation and of new solutions."""
    data = use_draw(make_duffing(initial=initial(draw)), draw, FILE)
    (model, equation), cost = measured(lambda: learn(method, data))
    state = model.predict(data.X_test)
    t = np.linspace(0, 50, 5000)[:, None]
    S = np.column_stack([t, data.truth(t, "u"), data.truth(t, "u_t")])
    new = np.array([solve(equation.unknown_part, slope) for slope in SLOPES])
    truth = np.array([solve(data.unknown_part, slope) for slope in SLOPES])
    figures = {
        "state_error": relative_l2_error(data.y_test, state),
        "equation_error": equation_error(equation, S, data.unknown_part),
    }
    for stop in HORIZONS:
        seen = stop >= TIMES
        errors = [
            relative_l2_error(u[seen], v[seen]) for u, v in zip(truth, new, strict=True)
        ]
        figures[f"new_{stop}"] = np.mean(errors)
    return figures | cost | {"state": state, "new": new, "truth": truth}


def solve(unknown_part, slope):
    """Integrate u_tt = cos 2t - P(u, u_t); stay at the last value if it blows up."""

    def rate(t, y):
        value = unknown_part(np.array([[t, *y]]))[0]
        return [y[1], np.cos(2 * t) - value]

    def too_large(t, y):
        return abs(y[0]) - 10

    too_large.terminal = True
    settings = {"method": "DOP853", "rtol": 1e-9, "atol": 1e-9}
    interval = (0, TIMES[-1])
    found = solve_ivp(
        rate, interval, [0.0, slope], t_eval=TIMES, events=too_large, **settings
    )
    u = found.y[0]
    return np.pad(u, (0, len(TIMES) - len(u)), mode="edge")


def draw_figure(path, target, methods, draw):
    """States of a draw, and solutions from new initial conditions."""
    figure, axes = new_figure(4, 1, figsize=(10, 11))
    data = use_draw(make_duffing(initial=initial(draw)), draw, FILE)
    truth = {"color": "black", "linewidth": 2.5, "alpha": 0.4, "label": "true"}
    axes[0].plot(data.X_test, data.y_test, **truth)
    axes[0].plot(data.X, data.y, "ko", markersize=5, label="observed")
    for method in methods:
        arrays = read_arrays(path, {"draw": draw, "method": method})
        if "sindy" not in method:
            axes[0].plot(data.X_test, arrays["state"], linewidth=1, label=method)
        for ax, u, v in zip(axes[1:], arrays["new"], arrays["truth"], strict=True):
            if method == methods[0]:
                ax.plot(TIMES, v, **truth)
            ax.plot(TIMES, u, linewidth=1, label=method)
    axes[0].set_title("Observed trajectory")
    for ax, slope in zip(axes[1:], SLOPES, strict=True):
        ax.set_title(f"Learned equation from u(0) = 0, u'(0) = {slope:g}")
        ax.set_ylim(-2, 2)
    for ax in axes:
        ax.set_ylabel("u")
        ax.legend(loc="upper right", fontsize=7, ncols=3)
    axes[-1].set_xlabel("t")
    save(figure, target)


def main(argv=None):
    """Measure, print beside the published figures, draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    chosen_draws = draws(options, 10, FILE)
    methods = [m for m in METHODS if "sindy" not in m or available()]
    tasks = [
        {"draw": draw, "method": method} for draw in chosen_draws for method in methods
    ]
    path = options.output / "duffing.csv"
    rows = run(path, tasks, measure, options.jobs)
    for figure in ("state_error", *(f"new_{stop}" for stop in HORIZONS)):
        print(f"\n{figure}, the published initial condition, then all draws")
        for method in methods:
            known = DUFFING[figure][METHODS[method]]
            chosen = select(rows, method=method)
            for draw in chosen_draws[:2]:
                if initial(draw) == (0.0, 0.0):
                    name = f"  {method}, draw {draw}"
                    report(name, select(chosen, draw=draw), figure, known)
            report(f"  {method}, all", chosen, figure)
    draw_figure(path, options.output / "duffing.png", methods, chosen_draws[0])
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
