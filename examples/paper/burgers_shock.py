"""Burgers' equation with (near) shocks: u_t = 5 u u_x + 0.001 u_xx, 60 observations.

    python examples/paper/burgers_shock.py --quick

Draws differ in the places of the observations only; the published ones are used too if
the environment variable KEQL_REFERENCE names the folder of `burgers_shock.npz`.
"""

import sys

from burgers_from_boundary import show
from burgers_observations import (
    METHODS,
    at_hand,
    learn,
    published_as,
    published_kernels,
    true_features,
    with_equation,
)
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
from published import BURGERS_SHOCK

from keql import TwoStepKEqL
from keql.datasets import make_burgers
from keql.metrics import equation_error, relative_l2_error

FILE = "burgers_shock.npz"


def make_data(draw):
    """The data of a draw."""
    seed = 0 if draw == "published" else draw
    data = make_burgers(
        60, theta=5.0, nu=1e-3, initial_condition="published", random_state=seed
    )
    return use_draw(data, draw, FILE)


def learn_shock(method, data):
    """As elsewhere, but two steps and SINDy with the published kernel: exact data.

    With a noise level that is found along with the kernel, fronts pass for noise.
    """
    if method in ("ours", "published settings", "pinn-sr"):
        return learn(method, data)
    kernels = published_kernels(data, data.kernels["observation_noise"])
    model = TwoStepKEqL(**data.problem, **kernels).fit(data.X, data.y)
    return with_equation(method, model)


def measure(draw, method):
    """Errors of the state and of the unknown part of the equation."""
    data = make_data(draw)
    (model, equation), cost = measured(lambda: learn_shock(method, data))
    state = model.predict(data.X_test)
    return {
        "state_error": relative_l2_error(data.y_test, state),
        "equation_error": equation_error(
            equation, true_features(data), data.unknown_part
        ),
        **cost,
        "state": state,
        "truth": data.y_test,
        "X": data.X,
    }


def draw_figure(path, target, methods, draw):
    """The truth and the states of a draw."""
    figure, axes = new_figure(
        1, len(methods) + 1, figsize=(2.6 * len(methods) + 3, 3), sharey=True
    )
    for ax, method in zip(axes, (None, *methods), strict=True):
        arrays = read_arrays(path, {"draw": draw, "method": method or methods[0]})
        values = arrays["truth"] if method is None else arrays["state"]
        show(ax, figure, values, signed=True)
        ax.set_title(method or "true u")
        ax.set_xlabel("t")
    axes[0].plot(*arrays["X"].T, "k.", markersize=3)
    axes[0].set_ylabel("x")
    save(figure, target)


def main(argv=None):
    """Measure, print beside the published figures, draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    chosen_draws = draws(options, 5, FILE)
    methods = at_hand(METHODS, network=options.full)
    path = options.output / "burgers_shock.csv"
    tasks = [{"draw": d, "method": m} for d in chosen_draws for m in methods]
    rows = run(path, tasks, measure, options.jobs)
    for name in ("state_error", "equation_error"):
        print(f"\n{name}")
        for method in methods:
            value = None
            if name == "state_error":
                value = BURGERS_SHOCK.get(published_as(method))
            chosen = select(rows, method=method)
            first = select(chosen, draw=chosen_draws[0])
            report(f"  {method}, draw {chosen_draws[0]}", first, name, value)
            report(f"  {method}, all", chosen, name, value)
    if "pinn-sr" not in methods:
        print(f"  PINN-SR as published, state: {BURGERS_SHOCK['pinn_sr']:.2g}")
    # The interpolant of SINDy is the two-step state.
    shown = [m for m in methods if "sindy" not in m]
    target = options.output / "burgers_shock.png"
    draw_figure(path, target, shown, chosen_draws[0])
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
