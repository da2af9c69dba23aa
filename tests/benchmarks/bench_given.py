"""The more one says, the better: every combination of what may be given.

Duffing's, Lorenz's, Burgers' and Darcy's equations with n_terms="auto", exact and with
noise: the state kernel, the equation kernel and the noise levels, of observations and
of the equations, are given or left open. All that is given is right, or, for the state
kernel, at least not unreasonable, so that no state error should be above twice that
with nothing given, unless the fit warns.

    python tests/benchmarks/bench_given.py --problems duffing
"""

import argparse
import time
import warnings
from itertools import product

import numpy as np

from keql import OneStepKEqL
from keql.datasets import make_burgers, make_darcy, make_duffing, make_lorenz
from keql.kernels import RBF, Polynomial, RationalQuadratic

ROW = "{:16} {:6} {:8} {:6} {:>9} {:>6} {:>7} {:>7}"


def main():
    """Print a row for each combination."""
    options = read_options()
    heading = "problem", "states", "equation", "noise", "error", "ratio", "warned"
    print(ROW.format(*heading, "CPU s"))
    worse = 0
    for name in options.problems:
        for level in options.noise:
            problem, y, given = PROBLEMS[name](level)
            least = None
            for chosen in product((False, True), repeat=3):
                pairs = zip(given, chosen, strict=True)
                used = [settings for settings, use in pairs if use]
                settings = {key: own[key] for own in used for key in own}
                error, warned, seconds = one_fit(problem, y, settings)
                least = error if least is None else least
                ratio = error / least
                worse += ratio > 2 and error > 1e-6 and not warned
                cells = ["given" if use else "-" for use in chosen]
                cells += [f"{error:.1e}", f"{ratio:.1f}", "yes" if warned else "no"]
                label = f"{name} {100 * level:g}%"
                print(ROW.format(label, *cells, f"{seconds:.1f}"), flush=True)
    print(f"worse by more than twice, above 1e-6, without a warning: {worse}")


def read_options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="*", default=[*PROBLEMS])
    parser.add_argument("--noise", nargs="*", type=float, default=[0.0, 0.02])
    return parser.parse_args()


def duffing(noise):
    """Duffing's equation; the state kernel is the published one."""
    data = make_duffing(60, t_max=20.0, n_collocation=300)
    kernel = RationalQuadratic(2**-0.5, 1.0, "fixed", "fixed")
    levels = {
        "observation_noise": noise * np.std(data.y) or 1e-8,
        "equation_noise": data.kernels["equation_noise"],
    }
    given = {"state_kernel": kernel}, {"equation_kernel": Polynomial(3)}, levels
    return data, with_noise(data.y, noise), given


def lorenz(noise):
    """Lorenz's equations; a state kernel that bends as fast as the states do."""
    data = make_lorenz(200, t_end=4.0)
    sizes = np.std(data.y, axis=0)
    pairs = zip(("x", "y", "z"), sizes, strict=True)
    levels = {
        "observation_noise": {name: noise * size or 1e-6 for name, size in pairs},
        "equation_noise": dict.fromkeys(("x_t", "y_t", "z_t"), 1e-3),
    }
    kernel = 10.0**2 * RBF(0.3, "fixed")
    given = {"state_kernel": kernel}, {"equation_kernel": Polynomial(2)}, levels
    return data, with_noise(data.y, noise), given


def published(make, *size):
    """A problem in space, with the published kernels and noise levels."""

    def problem(noise):
        data = make(*size, random_state=1)
        levels = {"equation_noise": data.kernels["equation_noise"]}
        levels["observation_noise"] = data.kernels["observation_noise"]
        if noise:
            levels["observation_noise"] = noise * np.std(data.y)
        names = "state_kernel", "equation_kernel"
        given = *({name: data.kernels[name]} for name in names), levels
        return data, with_noise(data.y, noise), given

    return problem


def with_noise(y, noise):
    """Values with noise of a part of their standard deviations."""
    rng = np.random.default_rng(1)
    return y + noise * np.std(y, axis=0) * rng.standard_normal(y.shape)


PROBLEMS = {
    "duffing": duffing,
    "lorenz": lorenz,
    "burgers 30": published(make_burgers, 30),
    "burgers 100": published(make_burgers, 100),
    "darcy": published(make_darcy, 4),
}


def one_fit(data, y, settings):
    """Relative error of the states, whether the fit warned, and its CPU time."""
    start = time.process_time()
    model = OneStepKEqL(**data.problem, **settings, n_terms="auto")
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(data.X, y)
        seconds = time.process_time() - start
        found = np.reshape(model.predict(data.X_test), data.y_test.shape)
    error = np.linalg.norm(found - data.y_test) / np.linalg.norm(data.y_test)
    return error, bool(caught), seconds


if __name__ == "__main__":
    main()
