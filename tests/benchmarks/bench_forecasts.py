"""How often bands of forecasts hold the truth.

Half of a window is observed, with noise of 2 % of the root mean square of the states,
and the other half is forecast. For each draw of initial conditions (Burgers) and noise
are told the error of the forecast (relative L2), the parts of the true states in bands
of 90 %, of the observed half and of the forecast, whether the terms are the true ones,
and the processor time of the fit and of the forecast. Draws of wrong terms count.

    python tests/benchmarks/bench_forecasts.py --problems burgers --draws 20
"""

import argparse
import time
import warnings

import numpy as np
from scipy.stats import norm

from keql import IdentifiabilityWarning, OneStepKEqL
from keql.datasets import make_burgers, make_lotka_volterra
from keql.metrics import relative_l2_error

ROW = "{:16} {:>5} {:>9} {:>9} {:>9} {:>6} {:>8} {:>8}"
HEADING = "problem", "draw", "rel. L2", "observed", "forecast", "terms"
HEADING = *HEADING, "fit s", "then s"
BURGERS_TERMS = {"u u_x", "u_xx"}
HUNTING_TERMS = {"prey_t": {"prey", "prey predator"}}
HUNTING_TERMS["predator_t"] = {"predator", "prey predator"}


def main():
    """Print a row for each draw, and the coverage of all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.02)
    options = parser.parse_args()
    print(ROW.format(*HEADING))
    for name in options.problems:
        covered = []
        for draw in range(options.first, options.first + options.draws):
            covered.append(one_draw(name, draw, options.noise))
        pooled = " ".join(f"{part:.3f}" for part in np.mean(covered, axis=0))
        print(f"{name}: bands of 90 % cover {pooled} (observed half, forecast)")


def one_draw(name, draw, noise):
    """Fit and forecast one draw; its coverage of the observed half and the forecast."""
    settings, X, y, halves, truth, is_right = PROBLEMS[name](draw, noise)
    began = time.process_time()
    with warnings.catch_warnings(record=True, action="always") as caught:
        model = OneStepKEqL(**settings, n_terms="auto").fit(X, y)
    fitted = time.process_time()
    doubted = any(issubclass(w.category, IdentifiabilityWarning) for w in caught)
    coverage, half_width = [], norm.ppf(0.95)
    for points, known in zip(halves, truth, strict=True):
        found, std = model.forecast(points, return_std=True)
        coverage.append(np.mean(np.abs(found - known) < half_width * std))
    spent = time.process_time() - fitted
    terms = "right" if is_right(model.equation_) else "wrong"
    row = [name, draw, f"{relative_l2_error(truth[1].ravel(), found.ravel()):.2e}"]
    row += [*(f"{part:.3f}" for part in coverage), terms + "?" * doubted]
    times = f"{fitted - began:.1f}", f"{spent:.1f}"
    print(ROW.format(*row, *times), flush=True)
    return coverage


def burgers(draw, noise, n_interior=100, n_times=26):
    """The published benchmark, of which t < 1/2 is seen: both sides, t = 0, inside."""
    data, rng = make_burgers(random_state=draw), np.random.default_rng(draw)
    x = np.linspace(0, 1, 31)
    sides = np.linspace(0, 0.5, 13)[1:]
    parts = [(np.zeros(31), x), (sides, 0 * sides), (sides, 0 * sides + 1)]
    parts.append((rng.uniform(0, 0.5, n_interior), rng.uniform(0, 1, n_interior)))
    X = np.column_stack([np.concatenate(part) for part in zip(*parts, strict=True)])
    exact = data.truth(X)
    y = exact + noise * np.sqrt(np.mean(exact**2)) * rng.standard_normal(len(X))
    settings = {k: data.problem[k] for k in ("operators", "known_part", "variables")}
    halves = []
    for times in (np.linspace(0, 0.5, n_times), np.linspace(0.5, 1, n_times)[1:]):
        grid = np.meshgrid(times, np.linspace(0, 1, 51), indexing="ij")
        halves.append(np.column_stack([part.ravel() for part in grid]))
    truth = [data.truth(points) for points in halves]
    return settings, X, y, halves, truth, _is_burgers


def _is_burgers(equation):
    return set(equation.terms()) == BURGERS_TERMS


def lotka_volterra(draw, noise, t_end=30.0, n_samples=41):
    """Prey and predators, seen until t = 15."""
    data = make_lotka_volterra(t_end=t_end, random_state=draw)
    rng = np.random.default_rng(draw)
    t = np.linspace(0, t_end / 2, n_samples)[:, None]
    halves = [np.linspace(0, t_end / 2, 200)[:, None]]
    halves.append(halves[0][1:] + t_end / 2)
    exact, *truth = (
        np.column_stack([data.truth(points, state) for state in data.states])
        for points in (t, *halves)
    )
    sizes = np.sqrt(np.mean(exact**2, axis=0))
    y = exact + noise * sizes * rng.standard_normal(exact.shape)
    names = ("operators", "known_part", "variables", "states")
    settings = {name: data.problem[name] for name in names if name in data.problem}
    return settings, t, y, halves, truth, _is_hunting


def _is_hunting(equations):
    return {name: set(e.terms()) for name, e in equations.items()} == HUNTING_TERMS


PROBLEMS = {"burgers": burgers, "lotka_volterra": lotka_volterra}

if __name__ == "__main__":
    main()
