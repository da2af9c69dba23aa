"""A search over hyperparameters: 50 fits of Burgers' equation seen on its boundary.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_search.py [n_jobs]

Two searches of ten candidates in five folds: ten length scales of the state, with all
other parameters at their defaults; and five length scales with two noise levels, which
are far too small for some of them, without restarts, as the guide says of searches.
Prints the time of a search, the load of the machine before it, and of one fit the
shares of its parts: Gram matrices do not change between candidates that have a kernel
in common, so that their share is what keeping them could save.
"""

import cProfile
import os
import pstats
import sys
import time
import warnings

from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from keql import OneStepKEqL
from keql.datasets import make_burgers
from keql.kernels import RBF, Polynomial
from keql.model_selection import FunctionKFold

LENGTHS = [0.08, 0.09, 0.095, 0.1, 0.105, 0.1118, 0.12, 0.13, 0.14, 0.15]
# Name of a search, its grid, and parameters of the estimator.
SEARCHES = [
    ("ten length scales, defaults", {"state_kernel__length_scale": LENGTHS}, {}),
    (
        "five length scales, two noise levels, n_restarts=0",
        {
            "state_kernel__length_scale": LENGTHS[::2],
            "observation_noise": [1e-6, 1e-4],
        },
        {"n_restarts": 0},
    ),
]
# Functions whose times are told: (file, name) and what they do.
PARTS = {
    ("operators.py", "gram"): "Gram matrices",
    ("_linalg.py", "pivoted_cholesky"): "rank of the Gram matrix",
    ("_dual.py", "normal_matrix"): "normal matrices of the steps",
    ("_linalg.py", "cholesky"): "Cholesky factors",
    ("_dual.py", "evaluate"): "values of the states",
}


def problems():
    """Data sets by name: the default initial condition is drawn at random."""
    published = {"theta": 0.5, "initial_condition": "published"}
    shape = {"collocation_shape": (26, 26)}
    yield "published problem", make_burgers(layout="boundary", **published, **shape)
    yield "random initial condition", make_burgers(layout="boundary", random_state=0)


def model_of(data, **parameters):
    """The estimator that is searched."""
    return OneStepKEqL(
        **data.problem,
        state_kernel=RBF(0.1118, "fixed"),
        equation_kernel=Polynomial(2),
        n_terms=None,
        **parameters,
    )


def time_of_a_search(data, grid, n_jobs, **parameters):
    """Seconds of 50 fits, and the search."""
    search = GridSearchCV(
        model_of(data, **parameters),
        grid,
        cv=FunctionKFold(5, shuffle=True, random_state=0),
        n_jobs=n_jobs,
        error_score="raise",
    )
    start = time.perf_counter()
    search.fit(data.X, data.y)
    return time.perf_counter() - start, search


def shares_of_a_fit(data, **parameters):
    """Print how long a fit takes and where."""
    model, profile = model_of(data, **parameters), cProfile.Profile()
    profile.runcall(model.fit, data.X, data.y)
    stats = pstats.Stats(profile)
    print(f"one fit: {stats.total_tt:.1f} s, {model.n_iter_} steps, of which")
    for (file, _line, name), (*_, seconds, _callers) in stats.stats.items():
        part = PARTS.get((os.path.basename(file), name))
        if part and seconds > 1e-4 * stats.total_tt:
            print(f"    {part:30} {seconds / stats.total_tt:6.1%}")


def main():
    """Print everything."""
    n_jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    warnings.simplefilter("ignore", ConvergenceWarning)
    os.environ["PYTHONWARNINGS"] = "ignore"  # of the workers
    for name, data in problems():
        shares_of_a_fit(data, observation_noise=1e-4, n_restarts=0)
        for kind, grid, parameters in SEARCHES:
            load = os.getloadavg()[0]
            seconds, search = time_of_a_search(data, grid, n_jobs, **parameters)
            print(
                f"{name}, {kind}: 50 fits in {seconds:.0f} s (wanted: below 180) with "
                f"n_jobs={n_jobs}, load before {load:.1f}; best {search.best_params_}, "
                f"score {search.best_score_:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
