"""The error bounds, tested: errors over the fill distance beside the guaranteed rates.

    python examples/paper/theory.py --quick

Manufactured problems that satisfy the assumptions: Pbar(u) + P(u) = f with P of one
variable in the RKHS of the equation kernel, and a state u that is the integral operator
of the state kernel applied to a smooth function, so that it is in the smaller space of
the theorem. Observations and collocation points are the same uniform grid, data are
exact. Pbar is u' on an interval and the Laplacian on a square.

Guaranteed (gamma = nu + d/2, order the order of Pbar): gamma for the state in L2, one
less for its gradient, and for P, whose own rate is higher here, all below
gamma - d/2 - order.

The one-step state is not the interpolant of least norm: it gives way to a smaller norm
of P, and comes close to the guaranteed rate. The two-step state is, and doubles it for
states as smooth as these. Where data are this dense and exact there is nothing for the
equation to add.
"""

import sys

import numpy as np
from experiment import (
    measured,
    new_figure,
    read_options,
    run,
    save,
    select,
)

from keql import OneStepKEqL, TwoStepKEqL
from keql.kernels import Constant, Matern
from keql.metrics import fill_distance

# By dimension: smoothness of the kernels, points per side, length scale.
CASES = {
    1: {"nus": (2.5, 3.5, 4.5), "sizes": (9, 13, 18, 26, 36, 52), "length": 0.5},
    2: {"nus": (3.5, 4.5, 5.5), "sizes": (7, 9, 12, 16, 20), "length": 0.8},
}
FULL_SIZES = {1: (72, 104), 2: (24, 28)}
ORDER = {1: 1, 2: 2}
KNOWN = {1: "u_x", 2: {"u_xx": 1.0, "u_yy": 1.0}}
METHODS = {"one-step": OneStepKEqL, "two-step": TwoStepKEqL}
EQUATION_KERNEL = Matern(1.0, nu=4.5, length_scale_bounds="fixed")
NOISE = 1e-7  # relative to the state and to the forcing: as good as exact
FIGURES = {
    "state_l2": "state in L2",
    "state_h1": "its gradient in L2",
    "equation": "P, largest error",
}


def grid(n, d):
    """Uniform grid on the unit interval or square."""
    axes = np.meshgrid(*[np.linspace(0, 1, n)] * d, indexing="ij")
    return np.stack(axes, -1).reshape(-1, d)


class Manufactured:
    """A state in the image of the kernel's integral operator, and a P."""

    def __init__(self, d, nu):
        self.kernel = Matern(CASES[d]["length"], nu=nu, length_scale_bounds="fixed")
        self.variables = ("x", "y")[:d]
        # Midpoint rule for the integral; far finer than any grid of observations.
        n = {1: 4000, 2: 90}[d]
        axes = np.meshgrid(*[(np.arange(n) + 0.5) / n] * d, indexing="ij")
        self.nodes = np.stack(axes, -1).reshape(-1, d)
        waves = np.prod(np.sin(np.pi * (3 - d) * self.nodes), axis=1)
        tilt = np.cos(2 * self.nodes[:, 0] + self.nodes[:, -1])
        self.weights = (3 * waves + tilt) / len(self.nodes)
        self.centres = np.linspace(-1.5, 1.5, 7)[:, None]
        self.heights = np.array([1.0, -2.0, 1.5, 0.5, -1.0, 2.0, -1.5])
        size = np.max(abs(self.sum(grid(51, d), (0,) * d)))
        self.weights /= size

    def sum(self, X, orders):
        """A derivative of the state."""
        zero = (0,) * X.shape[1]
        blocks = np.array_split(X, -(-len(X) // 500))
        return np.concatenate(
            [
                self.kernel.derivative(B, self.nodes, orders, zero) @ self.weights
                for B in blocks
            ]
        )

    def equation(self, u):
        """The true P."""
        return EQUATION_KERNEL(u[:, None], self.centres) @ self.heights

    def forcing(self, X):
        """The right-hand side of Pbar(u) + P(u) = f."""
        d = X.shape[1]
        orders = [(1,)] if d == 1 else [(2, 0), (0, 2)]
        known = sum(self.sum(X, a) for a in orders)
        return known + self.equation(self.sum(X, (0,) * d))

    def gradient(self, X):
        """All first derivatives of the state."""
        return np.array(
            [self.sum(X, tuple(row)) for row in np.eye(X.shape[1], dtype=int)]
        )


def measure(d, nu, method, n):
    """Errors of the state, its gradient and the equation; fill distance."""
    problem, X = Manufactured(d, nu), grid(n, d)
    y, f = problem.sum(X, (0,) * d), problem.forcing(X)
    settings = {"n_restarts": 0} if method == "one-step" else {}
    model = METHODS[method](
        ("u",),
        KNOWN[d],
        X,
        f,
        variables=problem.variables,
        state_kernel=problem.kernel,
        equation_kernel=Constant(1.0, "fixed") * EQUATION_KERNEL,
        observation_noise=NOISE,
        equation_noise=NOISE * np.sqrt(np.mean(f**2)),
        n_inducing=10_000,
        **settings,
    )
    _, cost = measured(lambda: model.fit(X, y))
    fine = grid({1: 1003, 2: 53}[d], d)
    u, slopes = problem.sum(fine, (0,) * d), problem.gradient(fine)
    learned = [model.predict_derivative(fine, f"u_{v}") for v in problem.variables]
    B = np.linspace(u.min(), u.max(), 500)
    S = np.column_stack([np.zeros((len(B), d)), B])
    P = problem.equation(B)
    return {
        "fill_distance": fill_distance(X, grid({1: 5000, 2: 301}[d], d)),
        "state_l2": norm(model.predict(fine) - u) / norm(u),
        "state_h1": norm(learned - slopes) / norm(slopes),
        "equation": np.max(abs(model.equation_.unknown_part(S) - P)) / np.max(abs(P)),
        **cost,
    }


def norm(values):
    """Root mean square."""
    return np.sqrt(np.mean(np.square(values)))


def guaranteed(d, nu):
    """Rates of the theorem for the figures."""
    gamma = nu + d / 2
    return {
        "state_l2": gamma,
        "state_h1": gamma - 1,
        "equation": gamma - d / 2 - ORDER[d],
    }


def main(argv=None):
    """Measure, print slopes beside rates, draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    tasks = [
        {"d": d, "nu": nu, "method": method, "n": n}
        for d, case in CASES.items()
        for nu in case["nus"]
        for method in METHODS
        for n in case["sizes"] + (FULL_SIZES[d] if options.full else ())
    ]
    path = options.output / "theory.csv"
    rows = run(path, tasks, measure, options.jobs)
    figure, axes = new_figure(2, 3, figsize=(11, 7))
    for line, (d, case) in zip(axes, CASES.items(), strict=True):
        for ax, (name, title) in zip(line, FIGURES.items(), strict=True):
            ax.set_title(f"d = {d}: {title}", fontsize=9)
            for color, nu in enumerate(case["nus"]):
                rate = guaranteed(d, nu)[name]
                for method in METHODS:
                    chosen = select(rows, d=d, nu=nu, method=method)
                    rho, error = np.array(
                        [(row["fill_distance"], row[name]) for row in chosen]
                    ).T
                    slope = fitted_slope(rho, error)
                    print(
                        f"d = {d}, nu = {nu}, {method}, {title}: {error[0]:.1e} to "
                        f"{error[-1]:.1e}, slope {slope:.1f}, guaranteed {rate:g}"
                    )
                    style = "o-" if method == "one-step" else "s:"
                    label = f"nu {nu}, {method}: {slope:.1f} ({rate:g})"
                    ax.loglog(rho, error, style, c=f"C{color}", ms=4, label=label)
            ax.set_xlabel("fill distance; slopes (and guaranteed ones)")
            ax.legend(fontsize=6)
            ax.xaxis.set_minor_formatter("")
        line[0].set_ylabel("relative error")
    save(figure, options.output / "theory.png")
    return rows


def fitted_slope(rho, error):
    """Slope in logarithms, of the errors that rounding does not yet determine."""
    clean = error > 1e-13
    if clean.sum() < 3:
        return np.nan
    return np.polyfit(np.log(rho[clean]), np.log(error[clean]), 1)[0]


if __name__ == "__main__":
    main(sys.argv[1:])
