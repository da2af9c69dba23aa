"""Burgers' equation with 10 to 600 observations inside the unit square.

    python examples/paper/burgers_observations.py --quick

u_t = u u_x + 0.01 u_xx. Two series: one initial condition, drawn once, and points drawn
anew each time; or a new initial condition each time too.
"""

import sys

import numpy as np
import pinn_baseline
import sindy_baseline
from experiment import (
    measured,
    new_figure,
    read_options,
    report,
    run,
    save,
    select,
    summary,
)
from published import BURGERS, BURGERS_SIZES

from keql import OneStepKEqL, TwoStepKEqL
from keql.datasets import make_burgers
from keql.kernels import RBF
from keql.metrics import equation_error, relative_l2_error

METHODS = (
    "ours",
    "published settings",
    "two-step",
    "sindy",
    "ensemble sindy",
    "weak sindy",
    "pinn-sr",
)
FIGURES = {"state_error": "state", "equation_error": "equation"}
# Quick: random initial conditions, these numbers of observations, one draw; the
# network, which takes longest, for one of them.
QUICK = {"conditions": ("random",), "sizes": (10, 100, 600), "pinn-sr": (100,)}
FIXED_SEED = 2025


def fixed_initial_condition(x):
    """The one initial condition of the first series."""
    j = np.arange(1, 50)
    amplitudes = np.random.RandomState(FIXED_SEED).standard_normal(len(j))
    return np.sin(np.pi * np.outer(x, j)) @ (amplitudes / (j + 1) ** 2)


def make_data(condition, size, draw):
    """The data of a draw."""
    u0 = fixed_initial_condition if condition == "fixed" else None
    return make_burgers(size, initial_condition=u0, random_state=draw)


def likeliest(data, noise=None):
    """A Gaussian kernel of maximum likelihood for the observations, and their noise.

    With the tiny noise of the joint problem the likelihood ends in scales shorter than
    the distance between observations once these are many: None finds a noise level
    too. Fronts, on the other hand, then pass for noise.
    """
    model = TwoStepKEqL(
        variables=data.variables,
        state_kernel=data.kernels["state_kernel"],
        observation_noise=noise,
    ).fit(data.X, data.y)
    return model.state_kernel_.length_scale, model.observation_noise_


def published_kernels(data, noise=None):
    """Published settings: length scales of maximum likelihood times 0.75."""
    lengths = 0.75 * likeliest(data, noise)[0]
    return data.kernels | {"state_kernel": RBF(lengths, "fixed")}


def at_hand(methods, network=True):
    """Those whose packages are installed; the network only if that is wanted."""
    missing = [] if sindy_baseline.available() else ["sindy"]
    if not (network and pinn_baseline.available()):
        missing.append("pinn-sr")
    return [m for m in methods if not any(name in m for name in missing)]


def published_as(method):
    """The name of a method among the published figures; None if it is not there."""
    names = {"two-step": None, "pinn-sr": "pinn_sr"}
    return names.get(method, "sindy" if "sindy" in method else "one_step")


def learn(method, data):
    """A fitted estimator and its equation."""
    if method == "pinn-sr":
        model = pinn_baseline.PinnSR(data.problem).fit(data.X, data.y)
        return model, model.equation
    if method == "ours":  # not a single setting
        model = OneStepKEqL(**data.problem)
    elif method == "published settings":
        settings = {**published_kernels(data), "n_terms": None, "n_restarts": 0}
        model = OneStepKEqL(**data.problem, **settings)
    else:
        lengths, noise = likeliest(data)
        kernels = data.kernels | {
            "state_kernel": RBF(lengths, "fixed"),
            "observation_noise": noise,
        }
        model = TwoStepKEqL(**data.problem, **kernels)
    return with_equation(method, model.fit(data.X, data.y))


def with_equation(method, model):
    """A fitted estimator and its equation, or that of SINDy on its state."""
    if method == "weak sindy":
        return model, sindy_baseline.learn_weak_sindy(model)
    if "sindy" in method:
        ensemble = method.startswith("ensemble")
        return model, sindy_baseline.learn_sindy(model, 2, ensemble=ensemble)
    return model, model.equation_


def true_features(data):
    """Features of the true state where errors of the equation are taken."""
    axis = np.linspace(0, 1, 104)[2:-2]
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    return np.column_stack([points, *(data.truth(points, o) for o in data.operators)])


def measure(condition, size, draw, method):
    """Errors of the state and of the unknown part of the equation."""
    data = make_data(condition, size, draw)
    (model, equation), cost = measured(lambda: learn(method, data))
    return {
        "state_error": relative_l2_error(data.y_test, model.predict(data.X_test)),
        "equation_error": equation_error(
            equation, true_features(data), data.unknown_part
        ),
        **cost,
    }


def draw_figure(rows, target, methods):
    """Errors over the number of observations, with their range over draws."""
    conditions = sorted({row["condition"] for row in rows})
    shape = 2, len(conditions)
    size = 5.5 * len(conditions), 8
    figure, axes = new_figure(
        *shape, figsize=size, sharex=True, sharey="row", squeeze=False
    )
    colors = {m: f"C{i}" for i, m in enumerate(METHODS)}
    for column, condition in zip(axes.T, conditions, strict=True):
        column[0].set_title(f"{condition} initial condition")
        for ax, (name, title) in zip(column, FIGURES.items(), strict=True):
            for method in methods:
                chosen = select(rows, condition=condition, method=method)
                sizes = sorted({row["size"] for row in chosen})
                mean, low, high, _ = np.array(
                    [summary(select(chosen, size=n), name) for n in sizes]
                ).T
                ax.loglog(sizes, mean, "o-", color=colors[method], label=method)
                ax.fill_between(sizes, low, high, color=colors[method], alpha=0.15)
            for key, color in (
                ("one_step", "published settings"),
                ("sindy", "sindy"),
                ("pinn_sr", "pinn-sr"),
            ):
                values = BURGERS[condition][key][name]
                label = f"published: {key.replace('_', '-')}"
                ax.loglog(BURGERS_SIZES, values, "--", color=colors[color], label=label)
            ax.set_ylabel(f"relative L2 error of the {title}")
    for ax in axes[1]:
        ax.set_xlabel("observations inside")
    axes[0, 0].legend(fontsize=7)
    save(figure, target)


def main(argv=None):
    """Measure, print beside the published figures, draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    n_draws = options.draws or (10 if options.full else 1)
    conditions = tuple(BURGERS) if options.full else QUICK["conditions"]
    sizes = BURGERS_SIZES if options.full else QUICK["sizes"]
    methods = at_hand(METHODS)
    tasks = [
        {"condition": condition, "size": size, "draw": draw, "method": method}
        for draw in range(n_draws)
        for condition in conditions
        for size in sizes
        for method in methods
        if method != "pinn-sr" or options.full or size in QUICK[method]
    ]
    path = options.output / "burgers_observations.csv"
    rows = run(path, tasks, measure, options.jobs)
    for condition in conditions:
        known = BURGERS[condition]
        for name, title in FIGURES.items():
            print(f"\nError of the {title}, {condition} initial condition")
            for size in sizes:
                i = BURGERS_SIZES.index(size)
                for method in methods:
                    chosen = select(rows, condition=condition, size=size, method=method)
                    key = published_as(method)
                    value = None if key is None else known[key][name][i]
                    report(f"  {size} observations, {method}", chosen, name, value)
                if "pinn-sr" not in methods:
                    value = known["pinn_sr"][name][i]
                    print(f"  {size} observations, PINN-SR as published: {value:.2g}")
    draw_figure(rows, options.output / "burgers_observations.png", methods)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
