"""Darcy flow with an unknown permeability: M functions, 2, 4 or 8 observations inside.

    python examples/paper/darcy.py --quick

Errors of the equation on the functions it was learned from, on new functions of the
same distribution and of a rougher one (length scale 0.2, as in the published runs), and
of its solution operator on new functions.
"""

import sys
import warnings

import numpy as np
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
from published import DARCY, DARCY_SIZES

from keql import ExtrapolationWarning, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql.datasets import make_darcy
from keql.kernels import RBF, Polynomial
from keql.metrics import equation_error, relative_l2_error

METHODS = ("ours", "published settings", "two-step")
OBSERVATIONS = (2, 4, 8)
QUICK = {"sizes": (2, 8, 16), "observations": (8,)}
# Ours: the full method, lower noise, more inducing points, and coefficients that vary
# over the whole square (the published length scale is 0.4).
NOISE = {"observation_noise": 1e-6, "equation_noise": 1e-3, "n_inducing": 400}
UNKNOWN_PART = RBF(1.0, "fixed", active_dims=("x1", "x2")) * Polynomial(1)
N_NEW = 5
GRID_SIZE = 100


def learn(method, data, draw=0):
    """A fitted estimator and its equation."""
    settings = {**data.problem, **data.kernels, "random_state": draw}
    if method == "ours":
        model = OneStepKEqL(**settings | NOISE | {"equation_kernel": UNKNOWN_PART})
    elif method == "published settings":
        model = ReducedOneStepKEqL(**settings, n_restarts=0)
    else:
        model = TwoStepKEqL(**settings)
    model.fit(data.X, data.y)
    return model, model.equation_


def training_features(data, n_functions):
    """Features of the true functions that were observed."""
    axis = np.linspace(0, 1, GRID_SIZE)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    return [
        np.column_stack(
            [points, *(data.truth(points, o, function=m) for o in data.operators)]
        )
        for m in range(min(n_functions, 8))  # eight are enough for a mean
    ]


def operator_error(model, draw):
    """Mean error of the solutions for new functions, from boundary and forcing."""
    new = make_darcy(N_NEW, 1, random_state=1000 + draw)
    on_side = np.any((new.X[:, :2] == 0) | (new.X[:, :2] == 1), axis=1)
    solver = model.pde_solver(forcing=new.forcing, state_kernel=RBF(0.5, "fixed"))
    solver.fit(new.X[on_side], new.y[on_side])
    errors = []
    for label in range(N_NEW):
        rows = new.X_test[:, 2] == label
        u = solver.predict(new.X_test[rows])
        errors.append(relative_l2_error(new.y_test[rows], u))
    return np.mean(errors)


def measure(n_functions, n_interior, draw, method):
    """Errors of the equation on three kinds of functions, and of its solutions."""
    data = make_darcy(n_functions, n_interior, random_state=draw)
    (model, equation), cost = measured(lambda: learn(method, data, draw))
    shared = {"n": N_NEW, "grid_size": GRID_SIZE, "random_state": 100 + draw}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        kinds = {
            "training": training_features(data, n_functions),
            "in_distribution": data.features(**shared),
            "out_of_distribution": data.features(**shared, length_scale=0.2),
        }
        figures = {
            kind: equation_error(equation, features, data.unknown_part)
            for kind, features in kinds.items()
        }
        figures["operator"] = operator_error(model, draw)
    return figures | cost


def draw_figure(rows, target, observations):
    """Errors over the number of functions."""
    figure, axes = new_figure(
        len(observations),
        len(DARCY),
        figsize=(3.4 * len(DARCY), 3 * len(observations)),
        squeeze=False,
        sharex=True,
    )
    for row, n_interior in zip(axes, observations, strict=True):
        for ax, (kind, known) in zip(row, DARCY.items(), strict=True):
            for i, method in enumerate(METHODS):
                chosen = select(rows, n_interior=n_interior, method=method)
                sizes = sorted({r["n_functions"] for r in chosen})
                stats = [summary(select(chosen, n_functions=n), kind) for n in sizes]
                mean, low, high, _ = np.transpose(stats)
                ax.loglog(sizes, mean, "o-", color=f"C{i}", label=method)
                ax.fill_between(sizes, low, high, color=f"C{i}", alpha=0.15)
            for key, color in (("one_step", "C1"), ("two_step", "C2")):
                label = f"published: {key.replace('_', '-')}"
                ax.loglog(
                    DARCY_SIZES, known[key][n_interior], "--", c=color, label=label
                )
            ax.set_title(f"{kind.replace('_', ' ')}, {n_interior} inside", fontsize=9)
        row[0].set_ylabel("relative L2 error")
    for ax in axes[-1]:
        ax.set_xlabel("functions")
    axes[0, 0].legend(fontsize=7)
    save(figure, target)


def main(argv=None):
    """Measure, print beside the published figures, draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    n_draws = options.draws or (10 if options.full else 1)
    sizes = DARCY_SIZES if options.full else QUICK["sizes"]
    observations = OBSERVATIONS if options.full else QUICK["observations"]
    tasks = [
        {"n_functions": m, "n_interior": n, "draw": draw, "method": method}
        for draw in range(n_draws)
        for n in observations
        for m in sizes
        for method in METHODS
    ]
    rows = run(options.output / "darcy.csv", tasks, measure, options.jobs)
    for kind, known in DARCY.items():
        print(f"\nError, {kind.replace('_', ' ')}")
        for n in observations:
            for m in sizes:
                for method in METHODS:
                    key = "two_step" if method == "two-step" else "one_step"
                    chosen = select(rows, n_functions=m, n_interior=n, method=method)
                    value = known[key][n][DARCY_SIZES.index(m)]
                    report(f"  M = {m}, {n} inside, {method}", chosen, kind, value)
    draw_figure(rows, options.output / "darcy.png", observations)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
