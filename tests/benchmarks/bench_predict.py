"""How much memory predictions at many points take, above the model.

    python tests/benchmarks/bench_predict.py --points 1000000

Peaks of what Python and NumPy allocate, with the points and the answer, in MB.
"""

import argparse
import time
import tracemalloc
import warnings

import numpy as np

from keql import KernelPDESolver, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql.kernels import RBF, Polynomial

RNG = np.random.default_rng(0)
T = np.linspace(0, 6, 40)[:, None]
PLANE = RNG.uniform(size=(150, 2))
ODE = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
HEAT = {
    "operators": ("u", "u_xx"),
    "known_part": "u_t",
    "variables": ("t", "x"),
    "collocation_points": RNG.uniform(size=(150, 2)),
}
GIVEN = {"state_kernel": RBF(0.5), "equation_kernel": Polynomial(1)}
ENDS = np.array([[0.0], [6.0]])


def heat(X):
    """A solution of u_t = 0.1 u_xx."""
    return np.exp(-0.1 * np.pi**2 * X[:, 0]) * np.sin(np.pi * X[:, 1])


def models():
    """Fitted models of all kinds of states, by name."""
    swing, field = np.sin(2 * T[:, 0]), heat(PLANE)
    joint = {**HEAT, **GIVEN, "n_restarts": 0}
    yield "two steps", TwoStepKEqL(**HEAT, **GIVEN).fit(PLANE, field)
    yield "dual", OneStepKEqL(**joint, solver="dual").fit(PLANE, field)
    yield "primal", OneStepKEqL(**joint, solver="primal").fit(PLANE, field)
    yield "reduced", ReducedOneStepKEqL(**joint, n_basis=60).fit(PLANE, field)
    yield "trajectory", OneStepKEqL(**ODE, equation_kernel=Polynomial(1)).fit(T, swing)
    exact = OneStepKEqL(**HEAT, equation_kernel=Polynomial(1)).fit(PLANE, field)
    yield "exact in space", exact
    solver = KernelPDESolver({"u_tt": 1, "u": 4}, variables="t", state_kernel=RBF(1.0))
    yield "solver", solver.fit(ENDS, np.sin(2 * ENDS[:, 0]))


def measure(ask):
    """What was answered, MB at the peak, seconds of processor time."""
    tracemalloc.start()
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = ask()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return answer, peak, time.process_time() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=10**6)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name, model in models():
        if options.only not in name:
            continue
        low, high = model.domain_[0]
        X = RNG.uniform(low, high, size=(options.points, len(low)))
        kind = type(model.states_[0]).__name__
        for what, ask in (
            ("predict", lambda m=model, X=X: m.predict(X)),
            ("return_std", lambda m=model, X=X: m.predict(X, return_std=True)),
            ("derivative", lambda m=model, X=X: m.predict_derivative(X, "u_t")),
        ):
            _, peak, seconds = measure(ask)
            print(f"{name:15} {kind:16} {what:11} {peak:7.0f} MB {seconds:7.1f} s")


if __name__ == "__main__":
    main()
