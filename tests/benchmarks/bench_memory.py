"""Does the memory of a process grow over thousands of fits?

    python tests/benchmarks/bench_memory.py --fits 2000

Small fits in turn: two steps, the joint solve, exact states with a search of terms
(every hundredth), and solvers of what was learned. What the process holds is told every
200 fits, in MB; the first 200 load what is loaded once.
"""

import argparse
import time
import warnings

import numpy as np

from keql import OneStepKEqL, TwoStepKEqL
from keql.kernels import RBF, Polynomial

T = np.linspace(0, 3, 12)[:, None]
GIVEN = {"operators": ("u",), "known_part": "u_t", "variables": ("t",)}
FIXED = {"state_kernel": RBF(1.0, "fixed"), "equation_kernel": Polynomial(1)}
FIXED |= {"observation_noise": 1e-3, "collocation_points": 12}


def fit(i, rng):
    """Fit the data of a decay that no other fit has had, and ask for predictions."""
    y = np.exp(-rng.uniform(0.5, 2.0) * T[:, 0]) + 1e-3 * rng.standard_normal(len(T))
    if i % 100 == 0:
        model = OneStepKEqL(**GIVEN, n_terms="auto")
    elif i % 2:
        model = OneStepKEqL(**GIVEN, **FIXED, solver="dual", n_restarts=0, max_iter=3)
    else:
        model = TwoStepKEqL(**GIVEN, **FIXED)
    model.fit(T, y).predict(T, return_std=True)
    str(model.equation_), str(model.fit_report_)
    if i % 10 == 5:
        solver = model.pde_solver(collocation_points=T, max_iter=3)
        solver.fit(T[:1], y[:1]).predict(T)


def held():
    """What the process holds, in MB."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=2000)
    options = parser.parse_args()
    rng, sizes, began = np.random.default_rng(0), [], time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(1, options.fits + 1):
            fit(i, rng)
            if i % 200 == 0:
                sizes.append(held())
                spent = time.process_time() - began
                print(f"{i:6} fits {sizes[-1]:8.1f} MB {spent:7.0f} s", flush=True)
    print(f"{max(sizes) - min(sizes):.1f} MB between the least and the most")


if __name__ == "__main__":
    main()
