"""Learn an equation from measured cell densities, and report how well it fits.

Give a CSV file with one row for each measurement and the columns time, position,
density, in this order and with a header. Made for the scratch assays of Jin et al.
(Journal of Theoretical Biology 390, 2016): a strip is cleared of cells, which then
divide and move into it. A reaction-diffusion law u_t = R(u) + D u_xx is expected; the
learner is told that u_t depends on u, u_x and u_xx only. Units are those of the file.

    python examples/scratch_assay.py densities.csv

Needs pandas.
"""

import argparse
import sys

import numpy as np
import pandas as pd
from sklearn.base import clone

from keql import TwoStepKEqL


def main(arguments=None):
    """Learn from a file, print the equation and judge the fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", nargs="?", help="the CSV file: time, position, density")
    path = parser.parse_args(arguments).path
    if path is None:
        parser.print_help()
        return 2

    # From a table to an equation.
    table = pd.read_csv(path)
    X, y = table.iloc[:, :2], table.iloc[:, 2]
    equation = {"operators": ("u", "u_x", "u_xx"), "known_part": "u_t"}
    model = TwoStepKEqL(variables=("t", "x"), **equation).fit(X, y)
    print(model.equation_)

    u_t = model.predict_derivative(X, "u_t")
    residual = model.equation_.apply(model, X)  # zero where the state obeys it
    print(f"\nLearned from {len(y)} rows.")
    print(f"Estimated noise of a density: {model.observation_noise_ / y.mean():.0%}")
    print(f"Not explained by the equation: {relative(u_t, residual):.0%} of u_t\n")

    print(f"{'Rows held out':26} {'R^2':>6} {'error':>7}")
    report("none", model, X, y)
    times = X.iloc[:, 0].to_numpy()
    middle, last = np.unique(times)[[len(np.unique(times)) // 2, -1]]
    judge("every fifth row", model, X, y, np.arange(len(y)) % 5 == 4)
    judge(f"those at time {middle:g}", model, X, y, times == middle)
    judge(f"those at time {last:g}, the last", model, X, y, times == last)
    print(
        "\nThe error is relative, in the L2 norm. The two-step method predicts by\n"
        "smoothing, without solving the equation: beyond the data it is poor."
    )
    return 0


def relative(true, difference):
    """Return norm(difference) / norm(true)."""
    return np.linalg.norm(difference) / np.linalg.norm(true)


def judge(name, model, X, y, held_out):
    """Learn without some rows and report on these."""
    model = clone(model).fit(X[~held_out], y[~held_out])
    report(name, model, X[held_out], y[held_out])


def report(name, model, X, y):
    """Print how well rows are predicted."""
    error = relative(y, model.predict(X) - y)
    print(f"{name:26} {model.score(X, y):6.3f} {error:7.1%}")


if __name__ == "__main__":
    sys.exit(main())
