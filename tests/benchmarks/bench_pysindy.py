"""The ordinary differential equations of the suite, by keql and by PySINDy.

Both see equal data. keql is called once for each problem, with n_terms="auto"; of
PySINDy's fits with all of the thresholds, libraries and differences below, that is
shown whose equation has the smallest error, which nobody knows who has not the truth.

PySINDy is no dependency of keql: install it beside keql where this is run.

    python tests/benchmarks/bench_pysindy.py --names logistic pendulum
"""

import argparse
import time
import warnings
from dataclasses import dataclass
from itertools import product

import numpy as np
from suite_problems import suite

from keql import OneStepKEqL

try:
    import pysindy
except ImportError as error:
    raise SystemExit("This comparison needs PySINDy: pip install pysindy.") from error

ROW = "{:22} {:>4} {:>9} {:>9} {:>6} {:>6}  {}"
THRESHOLDS = np.geomspace(1e-3, 1, 13)


def main():
    """Print the error of the equation by both, for each problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="*", default=[""])
    parser.add_argument("--draws", type=int, default=1)
    options = parser.parse_args()
    print(ROW.format("problem", "draw", "keql", "PySINDy", "warned", "CPU s", "best"))
    behind = 0
    for (family, name), make in suite(0).items():
        if family != "ode" or not name.startswith(tuple(options.names)):
            continue
        for draw in range(options.draws):
            problem = make(draw)
            start = time.process_time()
            own, warned = error_of_keql(problem)
            seconds = time.process_time() - start
            other, how = best_of_pysindy(problem)
            behind += own > max(other, 1e-6)
            cells = name, draw, f"{own:.1e}", f"{other:.1e}"
            print(ROW.format(*cells, warned, f"{seconds:.1f}", how), flush=True)
    print(f"behind PySINDy, and more than 1e-6 away: {behind}")


def error_of_keql(problem):
    """The relative error of P at the true states, and whether the fit warned."""
    model = OneStepKEqL(**problem.settings, n_terms="auto")
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(problem.X, problem.y)
    return problem.equation_error(model.equation_), "yes" if caught else "no"


@dataclass(frozen=True)
class Found:
    """An equation that PySINDy found, as the problem asks for one.

    It gives the highest derivative from states (n, k) and controls (n, 1).
    """

    model: object
    forcing: object

    def unknown_part(self, S):
        """P (n,) at features (n, 1 + k): it is on the left, without the forcing."""
        control, force = controls(S[:, :1], self.forcing)
        rate = self.model.predict(S[:, 1:], u=control)[:, -1]
        return -(rate - force)


def controls(t, forcing):
    """What the equation may depend on beside states, and the forcing, at times."""
    if forcing is None:
        return t, 0.0
    force = np.ravel(forcing(t))
    return force[:, None], force


def best_of_pysindy(problem):
    """The smallest error of all fits, and which has it."""
    t, order = problem.X[:, 0], len(problem.settings["operators"])
    forcing = problem.settings.get("forcing")
    best, how = np.inf, ""
    for (name, difference), (library, make) in product(
        differences(t).items(), libraries().items()
    ):
        states = [problem.y]
        for _ in range(order):
            states.append(difference(states[-1][:, None], t)[:, 0])
        x, rates = np.column_stack(states[:-1]), np.column_stack(states[1:])
        control, _ = controls(problem.X, forcing)
        for threshold in THRESHOLDS:
            model = pysindy.SINDy(
                optimizer=pysindy.STLSQ(threshold=threshold, alpha=1e-6),
                feature_library=make(),
            )
            with warnings.catch_warnings(record=True):  # that all terms were taken out
                model.fit(x, t, x_dot=rates, u=control)
                error = problem.equation_error(Found(model, forcing))
            if error < best:
                best, how = error, f"{name}, {library}, threshold {threshold:.1g}"
    return best, how


def differences(t):
    """How derivatives at equal times are taken, by name."""
    smoothed, width = {"window_length": 7, "polyorder": 3}, 4.5 * (t[1] - t[0])
    return {
        "order 2": pysindy.FiniteDifference(order=2),
        "order 4": pysindy.FiniteDifference(order=4),
        "smoothed": pysindy.SmoothedFiniteDifference(smoother_kws=smoothed),
        "spline": pysindy.SINDyDerivative(kind="spline", s=1e-2),
        "trend": pysindy.SINDyDerivative(
            kind="savitzky_golay", left=width, right=width, order=3
        ),
    }


def libraries():
    """Functions to make libraries, by name: they are fitted."""
    polynomials = {
        f"degree {d}": lambda d=d: pysindy.PolynomialLibrary(degree=d)
        for d in range(1, 5)
    }

    def with_sines():
        return pysindy.PolynomialLibrary(degree=2) + pysindy.FourierLibrary(2)

    return polynomials | {"degree 2 and sines": with_sines}


if __name__ == "__main__":
    main()
