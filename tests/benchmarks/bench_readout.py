"""Reading equations: sparse equations, coefficient functions, projections.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_readout.py

The settings of the fits are those of bench_one_step.py.
"""

import warnings

import numpy as np
from scipy.integrate import solve_ivp
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL
from keql.datasets import make_burgers, make_darcy, make_duffing
from keql.kernels import RBF, Constant, Polynomial
from keql.metrics import relative_l2_error

# Second-order equations u_tt = g(u, u_t), with their true terms and first values.
OSCILLATORS = {
    "van der Pol": (
        {"u", "u_t", "u^2 u_t"},
        lambda t, y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]],
        (1.0, 0.0),
        12.0,
    ),
    "hardening spring": (
        {"u", "u_t", "u^3"},
        lambda t, y: [y[1], -y[0] - 0.1 * y[1] - 0.3 * y[0] ** 3],
        (1.5, 0.0),
        15.0,
    ),
    "asymmetric spring": (
        {"u", "u_t", "u^2"},
        lambda t, y: [y[1], -4 * y[0] - 0.05 * y[1] + 0.2 * y[0] ** 2],
        (1.0, 0.0),
        10.0,
    ),
}


def main():
    """Print everything, the quick parts first."""
    burgers_from_its_boundary()
    duffing()
    oscillators()
    darcy_coefficients()
    duffing_free_form()


def burgers_from_its_boundary():
    """Wanted: exactly the two true terms."""
    data = make_burgers(
        theta=0.5,
        nu=0.01,
        initial_condition="published",
        layout="boundary",
        collocation_shape=(26, 26),
    )
    kernel = data.kernels["equation_kernel"]
    for sigma_u in (1e-6, 1e-7):
        settings = {
            **data.problem,
            "state_kernel": data.kernels["state_kernel"],
            "observation_noise": sigma_u,
            "equation_noise": 1e-5,
        }
        settings["n_terms"] = None
        model = OneStepKEqL(**settings, equation_kernel=kernel).fit(data.X, data.y)
        sparse = model.equation_.sparse()
        again = OneStepKEqL(**settings, equation_kernel=sparse.equation_kernel)
        again.fit(data.X, data.y)
        errors = [
            relative_l2_error(data.y_test, fitted.predict(data.X_test))
            for fitted in (model, again)
        ]
        print(
            f"Burgers from its boundary, noise {sigma_u:g}: {sparse!r}; fitted again "
            f"{again.equation_}, state error {errors[0]:.1e} before, {errors[1]:.1e}"
        )


def duffing():
    """Wanted: exactly the three true terms."""
    data = make_duffing()
    model = OneStepKEqL(
        **data.problem,
        state_kernel=data.kernels["state_kernel"],
        equation_kernel=Polynomial(3),
        observation_noise=1e-4,
        equation_noise=1e-3,
        n_terms=None,
    ).fit(data.X, data.y)
    print(f"Duffing: {model.equation_.sparse()!r}")


def oscillators():
    """How often the default criterion finds the true terms, for noisy data."""
    for noise in (0.0, 0.01, 0.03):
        found = lost = total = 0
        for true, slope, first, stop in OSCILLATORS.values():
            for seed in range(3):
                rng = np.random.RandomState(seed)
                t = np.sort(rng.uniform(0, stop, 200))
                solution = solve_ivp(
                    slope, (0, stop), first, t_eval=t, rtol=1e-10, atol=1e-10
                )
                u = solution.y[0]
                size = noise * np.sqrt(np.mean(u**2))
                model = OneStepKEqL(
                    operators=("u", "u_t"),
                    known_part="u_tt",
                    variables=("t",),
                    equation_kernel=Polynomial(3),
                    n_terms=None,
                    n_restarts=2,
                )
                with warnings.catch_warnings():
                    # A poor fit counts as it is.
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model.fit(t[:, None], u + size * rng.normal(size=len(t)))
                terms = set(model.equation_.sparse().terms())
                found += terms == true
                lost += not true <= terms
                total += 1
        print(
            f"Oscillators, noise {noise:.0%}: the true terms in {found} of {total} "
            f"fits, a true term lost in {lost}"
        )


def darcy_coefficients():
    """Wanted: a and its derivatives within 2 % on the unit square."""
    axis = np.linspace(0, 1, 50)
    points = np.column_stack([x.ravel() for x in np.meshgrid(axis, axis)])
    x1, x2 = points.T
    inner = np.cos(x1) + np.cos(x2)
    a = np.exp(np.sin(inner))
    true = {
        "u_x1x1": a,
        "u_x2x2": a,
        "u_x1": -a * np.cos(inner) * np.sin(x1),
        "u_x2": -a * np.cos(inner) * np.sin(x2),
    }
    for seed in range(3):
        data = make_darcy(32, 8, random_state=seed)
        settings = {**data.problem, **data.kernels, "random_state": seed}
        settings.update(observation_noise=1e-6, equation_noise=1e-3, n_inducing=400)
        model = OneStepKEqL(**settings, n_restarts=0).fit(data.X, data.y)
        errors = {
            term: relative_l2_error(values, model.equation_.coefficient(term, points))
            for term, values in true.items()
        }
        shown = ", ".join(f"{term} {error:.1e}" for term, error in errors.items())
        print(f"Darcy, M = 32, draw {seed}, errors of the coefficients: {shown}")


def duffing_free_form():
    """A Gaussian equation kernel, projected on polynomials."""
    data = make_duffing()
    model = OneStepKEqL(
        **data.problem,
        state_kernel=data.kernels["state_kernel"],
        equation_kernel=Constant(100.0, "fixed") * RBF(1.0, "fixed"),
        observation_noise=1e-4,
        equation_noise=1e-3,
        n_inducing=300,
        random_state=0,
    ).fit(data.X, data.y)
    for degree in (3, 5):
        projected = model.equation_.project(degree)
        print(
            f"Duffing, free-form equation on degree {degree}: "
            f"{projected.unexplained:.1%} unexplained; {projected.sparse()!r}"
        )


if __name__ == "__main__":
    main()
