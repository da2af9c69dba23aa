"""ODEBench: textbook systems of one to four states, seen at 150 samples.

Each system is fitted with one call, from the first of its two initial values, with
nothing given but the names of its states and n_terms="auto". A fit

- reconstructs a system if its states have a coefficient of determination above 0.9;
- generalises if the equation, integrated from the second initial value, has.

The systems are those of odebench_odd.json in the folder that the environment variable
KEQL_REFERENCE names: every other one of ODEBench (github.com/sdascoli/odeformer).

    KEQL_REFERENCE=... python tests/benchmarks/bench_odebench.py --dimensions 1 2
"""

import argparse
import json
import os
import re
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.integrate import solve_ivp
from sklearn.metrics import r2_score

from keql import OneStepKEqL
from keql.exceptions import SimulationError

ROW = "{:>3} {:>2} {:>9} {:>9} {:>6} {:>7}  {}"


def main():
    """Print a row for each system, and how many are found."""
    options = read_options()
    print(ROW.format("id", "d", "state", "second", "warned", "CPU s", "equation"))
    outcomes = []
    for system in systems():
        if options.dimensions and system["dim"] not in options.dimensions:
            continue
        if options.ids and system["id"] not in options.ids:
            continue
        row = one_fit(system, options)
        outcomes.append(row[2:4])
        state, second = (f"{value:.5f}" for value in row[2:4])
        print(ROW.format(row[0], row[1], state, second, *row[4:]), flush=True)
    found = np.sum(np.array(outcomes) > 0.9, axis=0)
    print(f"reconstruction {found[0]}, generalisation {found[1]} of {len(outcomes)}")


def read_options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dimensions", nargs="*", type=int)
    parser.add_argument("--ids", nargs="*", type=int)
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--noise", type=float, default=0.0)
    return parser.parse_args()


def systems():
    """The systems of the reference data."""
    folder = os.environ.get("KEQL_REFERENCE")
    path = None if folder is None else Path(folder) / "odebench_odd.json"
    if path is None or not path.exists():
        raise SystemExit(
            "KEQL_REFERENCE must name the folder that has odebench_odd.json."
        )
    return json.loads(path.read_text(encoding="utf-8"))["systems"]


def one_fit(system, options):
    """Number, dimension, both coefficients of determination, warned, time, text."""
    names = tuple(f"x{i}" for i in range(system["dim"]))
    t = np.linspace(0, 10, options.samples)
    first, second = (solve(system, initial, t) for initial in system["init"])
    rng = np.random.default_rng(system["id"])
    noise = options.noise * np.sqrt(np.mean(first**2, axis=0))
    y = first + noise * rng.standard_normal(first.shape)
    start, message = time.process_time(), ""
    state = general = np.nan
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:
            model = fit(names, t, y)
        except ValueError as error:
            message = str(error)
    seconds = time.process_time() - start
    if not message:
        message = "; ".join(str(model.equation_).splitlines())
        with warnings.catch_warnings(record=True):
            state = r2_score(first, model.predict(t[:, None]).reshape(first.shape))
            general = r2_of_simulation(model, names, second, t)
    warned = "yes" if caught else "no"
    return system["id"], len(names), state, general, warned, f"{seconds:.1f}", message


def fit(names, t, y):
    """A fit with nothing given but what describes the system."""
    if len(names) == 1:
        model = OneStepKEqL(
            operators=("u",), known_part="u_t", variables=("t",), n_terms="auto"
        )
        return model.fit(t[:, None], y[:, 0])
    known = tuple(f"{name}_t" for name in names)
    model = OneStepKEqL(
        operators=names,
        known_part=known,
        states=names,
        variables=("t",),
        n_terms="auto",
    )
    return model.fit(t[:, None], y)


def r2_of_simulation(model, names, truth, t):
    """Coefficient of determination of the equation from other initial values."""
    names = ("u",) if len(names) == 1 else names
    initial = dict(zip(names, truth[0], strict=True))
    try:
        found = model.equation_.simulate(t, initial)
    except SimulationError:  # it diverges
        return -np.inf
    found = np.reshape(found, truth.shape)
    return r2_score(truth, found) if np.all(np.isfinite(found)) else -np.inf


def solve(system, initial, t):
    """States (n, d) at times, from an initial value."""
    text = system["eq"].replace("^", "**")
    constants = system["consts"][0]
    text = re.sub(r"c_(\d+)", lambda match: f"({constants[int(match[1])]!r})", text)
    text = re.sub(r"x_(\d+)", r"x[\1]", text)
    known = {name: getattr(np, name) for name in ("sin", "cos", "exp", "log", "tan")}
    known["cot"] = lambda x: 1 / np.tan(x)
    codes = [compile(part.strip(), "equation", "eval") for part in text.split("|")]

    def rate(_, x):
        return [eval(code, known, {"x": x}) for code in codes]

    found = solve_ivp(rate, (0, 10), initial, "LSODA", t_eval=t, rtol=1e-11, atol=1e-11)
    return found.y.T


if __name__ == "__main__":
    main()
