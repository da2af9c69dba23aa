"""Learn Burgers' equation from its boundary, and draw what was learned.

The state solves u_t = 0.5 u u_x + 0.01 u_xx on the unit square of time and space, and
is seen at 100 points of the boundary only: at the first and the last time and at both
ends. The learners are told that u_t depends on u, u_x and u_xx, not how. The two-step
method interpolates the observations first, cannot know what happens in between, and
warns of that; the one-step method learns state and equation together, and keeps only
those of the ten terms of degree two that the data call for. Nothing is tuned: kernels,
noise levels and the number of terms are chosen by the fit. The equation that it learns
is printed beside the true one, and the figure shows the truth, both learned states and
the error of the better one.

    python examples/demo.py
    python examples/demo.py --output burgers.png
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from keql import OneStepKEqL, TwoStepKEqL
from keql.datasets import make_burgers
from keql.metrics import equation_error, relative_l2_error

FIGURE = Path(__file__).resolve().parent.parent / "doc" / "_static" / "demo.png"
TRUE_TERMS = {"u u_x": 0.5, "u_xx": 0.01}


def main(arguments=None):
    """Learn, report and draw."""
    options = parse(arguments)
    data = make_burgers(
        theta=TRUE_TERMS["u u_x"],
        nu=TRUE_TERMS["u_xx"],
        initial_condition="published",
        layout="boundary",
        collocation_shape=(26, 26),
    )
    print(
        f"Learning from {len(data.y)} observations on the boundary of a solution of "
        "Burgers' equation.\n"
    )
    two_step = TwoStepKEqL(**data.problem).fit(data.X, data.y)
    start = time.perf_counter()
    one_step = OneStepKEqL(**data.problem).fit(data.X, data.y)
    seconds = time.perf_counter() - start

    learned = one_step.equation_.terms()
    print(f"True equation:     u_t = {write_sum(TRUE_TERMS)}")
    print(f"Learned equation:  u_t = {write_sum(learned)}\n")
    print("Relative L2 error       of the state   of the right-hand side")
    states = [("Truth and observations", data.y_test)]
    for name, model in (("Two-step", two_step), ("One-step", one_step)):
        u = model.predict(data.X_test)
        states.append((f"{name} state", u))
        judged = judge(model.equation_, data)
        print(f"{name:22}  {error(data.y_test, u):>12}   {judged:>22}")
    print(f"\nTime to learn in one step: {seconds:.1f} s")

    draw(options.output, data, states, [("Error of one-step", u - data.y_test)])
    print(f"\nThe figure is in {os.path.relpath(options.output)}")


def parse(arguments):
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, default=FIGURE, help="where the figure is written"
    )
    return parser.parse_args(arguments)


def write_sum(terms):
    """Write {monomial: coefficient} as a sum."""
    written = " + ".join(f"{value:#.3g} {name}" for name, value in terms.items())
    return written.replace("+ -", "- ")


def error(true, learned):
    """Write the relative L2 error as a percentage."""
    return f"{100 * relative_l2_error(true, learned):.2g} %"


def judge(equation, data):
    """Write the error of the learned P on the features of the true state."""
    columns = [data.truth(data.X_test, name) for name in ("u", "u_x", "u_xx", "u_t")]
    features = np.column_stack([data.X_test, *columns])
    return f"{100 * equation_error(equation, features, data.unknown_part):.2g} %"


def draw(path, data, states, errors):
    """Draw functions on the grid of test points, one panel for each.

    `states` and `errors` are lists of (title, values). All states share one scale of
    colours, and all errors another; the observations are marked in the first panel.
    """
    n_panels = len(states) + len(errors)
    fig = Figure(figsize=(3.5 * n_panels, 3.2), layout="constrained")
    axes = fig.subplots(1, n_panels, sharey=True)
    draw_group(fig, axes[: len(states)], data.X_test, states, "RdBu_r", "state u")
    draw_group(fig, axes[len(states) :], data.X_test, errors, "PuOr_r", "error of u")
    axes[0].plot(*data.X.T, "o", ms=3, mfc="black", mec="white", mew=0.5, clip_on=False)
    axes[0].set_ylabel("x")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the version of matplotlib, equal figures are equal files.
    fig.savefig(path, dpi=140, metadata={"Software": None})


def draw_group(fig, axes, points, panels, colours, label):
    """Draw functions of (t, x) on one scale, zero in the middle of the colours.

    The scale holds 99 % of the values: one corner does not make all else pale.
    """
    order = np.lexsort(points.T)  # by x, then by t
    t, x = (np.unique(column) for column in points.T)
    limit = max(np.quantile(np.abs(values), 0.99) for _, values in panels)
    for ax, (title, values) in zip(axes, panels, strict=True):
        image = ax.pcolormesh(
            t,
            x,
            values[order].reshape(len(x), len(t)),
            cmap=colours,
            vmin=-limit,
            vmax=limit,
        )
        ax.set(title=title, xlabel="t", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        ax.set(xlim=(t[0], t[-1]), ylim=(x[0], x[-1]))
    bar = fig.colorbar(image, ax=axes, label=label, pad=0.03, extend="both")
    bar.formatter.set_powerlimits((-2, 3))


if __name__ == "__main__":
    main()
