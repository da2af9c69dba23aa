"""The joint solve: errors, time of a step, growth with the number of functions.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_one_step.py

Ratios compare both sides in one run; errors are relative L2 errors. The published
figures are those of arXiv:2503.01036.
"""

import time

import numpy as np
from scipy import linalg

from keql import OneStepKEqL
from keql.datasets import make_burgers, make_darcy, make_duffing
from keql.kernels import RBF, Constant, Polynomial
from keql.metrics import relative_l2_error
from keql.model_selection._fit import Context, JointFamily

DUFFING_NOISE = {"observation_noise": 1e-4, "equation_noise": 1e-3}


def main():
    """Print everything, the quick parts first."""
    time_of_a_step()
    growth_with_functions()
    burgers_from_its_boundary()
    duffing_free_form()
    duffing()


def joint_problem(model, data):
    """The least-squares problem of a fit, and its start."""
    two_step = model._learn_in_two_steps(data.X, data.y, None)
    context = Context(model._settings, lambda *_: False)
    family = JointFamily(two_step, model._hypothesis, context)
    return family.problem_of(two_step)


def fastest(function, repeats=5):
    """Shortest time of several calls, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def one_step(problem, start):
    """Linearise, solve, evaluate: what an accepted step costs."""
    model = problem.linearise(problem.evaluate(start))
    iterate, _ = model.step(1e4)
    return problem.evaluate(iterate)


def time_of_a_step():
    """An accepted step against one Cholesky factorisation of the same size."""
    data = make_duffing()
    model = OneStepKEqL(
        **data.problem,
        **DUFFING_NOISE,
        state_kernel=data.kernels["state_kernel"],
        equation_kernel=Polynomial(3),
        n_terms=None,
    )
    problem, start = joint_problem(model, data)
    H = problem.linearise(problem.evaluate(start)).undamped.factors[0]
    H = np.asfortranarray(H @ H.T)
    step = fastest(lambda: one_step(problem, start))
    factorisation = fastest(lambda: linalg.lapack.dpotrf(H, lower=1, clean=0))
    print(
        f"One step at N + K = {len(H)}: {step / factorisation:.1f} times one Cholesky "
        f"factorisation ({1e3 * step:.0f} ms; wanted: below 5)"
    )


def growth_with_functions():
    """Time of a step for 64 functions over that for 16."""
    times = {}
    for n_functions in (16, 64):
        data = make_darcy(n_functions, 8, random_state=0)
        model = OneStepKEqL(**data.problem, **data.kernels, random_state=0)
        problem, start = joint_problem(model, data)
        times[n_functions] = fastest(lambda p=problem, s=start: one_step(p, s), 3)
    print(
        f"Time of a step, 64 functions over 16: {times[64] / times[16]:.1f} "
        "(linear: 4; wanted: below 5)"
    )


def burgers_from_its_boundary():
    """The problem seen at 100 points of the boundary."""
    data = make_burgers(
        theta=0.5,
        nu=0.01,
        initial_condition="published",
        layout="boundary",
        collocation_shape=(26, 26),
    )
    kernels = {name: data.kernels[name] for name in ("state_kernel", "equation_kernel")}
    for n_terms, sigma_p in ((None, 1e-5), (None, 1e-4), ("auto", 1e-4)):
        model = OneStepKEqL(
            **data.problem,
            **kernels,
            n_terms=n_terms,
            observation_noise=1e-6,
            equation_noise=sigma_p,
        )
        start = time.perf_counter()
        model.fit(data.X, data.y)
        seconds = time.perf_counter() - start
        error = relative_l2_error(data.y_test, model.predict(data.X_test))
        print(
            f"Burgers from its boundary, noise 1e-6 and {sigma_p:g}, n_terms="
            f"{n_terms!r}: state error {error:.1e} in {seconds:.1f} s (published: "
            f"3.5e-3), {len(model.equation_.terms())} terms"
        )


def duffing():
    """Random initial conditions, a cubic equation, one set of parameters."""
    for seed in range(4):
        rng = np.random.RandomState(seed)
        errors, times, n_direct = [], [], 0
        for _ in range(20):
            data = make_duffing(initial=tuple(rng.uniform(-1, 1, 2)))
            model = OneStepKEqL(
                **data.problem,
                **DUFFING_NOISE,
                state_kernel=data.kernels["state_kernel"],
                equation_kernel=Polynomial(3),
                n_terms=None,
                random_state=0,
            )
            start = time.perf_counter()
            model.fit(data.X, data.y)
            times.append(time.perf_counter() - start)
            errors.append(relative_l2_error(data.y_test, model.predict(data.X_test)))
            n_direct += len(model.restarts_) == 1
        solved = np.array(errors) < 1e-2
        print(
            f"Duffing, initial conditions from RandomState({seed}): {solved.sum()} of "
            f"20 trajectories solved ({n_direct} at once), median state error "
            f"{np.median(errors):.1e}, seconds {np.median(times):.1f} (median) and "
            f"{max(times):.1f} (longest) (published: 9.6e-3 on one)",
            flush=True,
        )


def duffing_free_form():
    """One trajectory, an equation in the RKHS of a Gaussian kernel."""
    data = make_duffing()
    model = OneStepKEqL(
        **data.problem,
        **DUFFING_NOISE,
        state_kernel=data.kernels["state_kernel"],
        equation_kernel=Constant(100.0, "fixed") * RBF(1.0, "fixed"),
        n_inducing=300,
        random_state=0,
    )
    start = time.perf_counter()
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - start
    error = relative_l2_error(data.y_test, model.predict(data.X_test))
    print(
        f"Duffing, free-form equation: state error {error:.1e} in {seconds:.0f} s "
        "(published, on another trajectory of the same problem: 9.6e-3)"
    )


if __name__ == "__main__":
    main()
