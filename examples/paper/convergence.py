"""Histories of the loss: Duffing, Burgers' equation, its shock and its boundary, Darcy.

    python examples/paper/convergence.py --quick

The loss of every accepted step of the last try, with the published settings and with
ours. Losses of different settings are not comparable: the weights differ. Where ours
chooses terms, the last peak is where terms were taken out.
"""

import sys

import burgers_from_boundary
import burgers_observations
import burgers_shock
import darcy
import duffing
import numpy as np
from experiment import measured, new_figure, read_arrays, read_options, run, save

from keql.datasets import make_burgers, make_darcy, make_duffing

METHODS = ("published settings", "ours")


def boundary_data():
    """Burgers' equation seen on its boundary."""
    return make_burgers(initial_condition="published", **burgers_from_boundary.PROBLEM)


# What a script learns from, by case: its function and the data.
CASES = {
    "Duffing": (duffing.learn, make_duffing),
    "Burgers, fixed condition, 20 inside": (
        burgers_observations.learn,
        lambda: burgers_observations.make_data("fixed", 20, 0),
    ),
    "Burgers, shock": (burgers_observations.learn, lambda: burgers_shock.make_data(0)),
    "Burgers, boundary": (burgers_from_boundary.learn_boundary, boundary_data),
    "Darcy, 8 functions": (darcy.learn, lambda: make_darcy(8, 8, random_state=0)),
}
QUICK = ("Burgers, boundary", "Darcy, 8 functions")


def measure(case, method):
    """How many steps a fit takes, and its losses."""
    learn, make_data = CASES[case]
    data = make_data()
    model, cost = measured(lambda: learn(method, data)[0])
    return {
        "n_steps": len(model.loss_curve_) - 1,
        "first": model.loss_curve_[0],
        "last": model.loss_curve_[-1],
        **cost,
        "loss": np.array(model.loss_curve_),
    }


def main(argv=None):
    """Measure and draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    cases = tuple(CASES) if options.full else QUICK
    tasks = [{"case": case, "method": m} for case in cases for m in METHODS]
    path = options.output / "convergence.csv"
    rows = run(path, tasks, measure, options.jobs)
    figure, axes = new_figure(
        1, len(cases), figsize=(3.6 * len(cases), 3.4), squeeze=False
    )
    for ax, case in zip(axes[0], cases, strict=True):
        for method in METHODS:
            loss = read_arrays(path, {"case": case, "method": method})["loss"]
            ax.loglog(1 + np.arange(len(loss)), loss, label=method)
        ax.set_title(case, fontsize=9)
        ax.set_xlabel("accepted steps + 1")
    axes[0, 0].set_ylabel("loss")
    axes[0, 0].legend()
    save(figure, options.output / "convergence.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
