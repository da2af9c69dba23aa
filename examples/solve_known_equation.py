"""Solve equations that one can write down, with no mesh, and draw the solutions.

Three problems: a nonlinear elliptic equation, -Laplace(u) + u^3 = f; a viscous eikonal
equation, |grad u|^2 = 1 + 0.1 Laplace(u), whose solution is nearly the distance to the
boundary; and Poisson's equation with kernels of different smoothness on finer and
finer grids, which converge at the orders that theory promises, or faster.

    python examples/solve_known_equation.py
    python examples/solve_known_equation.py --output solutions.png
"""

import argparse
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from keql import KernelPDESolver
from keql.kernels import RBF, Matern
from keql.metrics import relative_l2_error

FIGURE = Path("solve_known_equation.png")
GRID = np.linspace(0, 1, 81)
TEST = np.stack(np.meshgrid(GRID, GRID), axis=-1).reshape(-1, 2)


def main(arguments=None):
    """Solve, report and draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=FIGURE, help="file to draw to")
    path = parser.parse_args(arguments).output
    surfaces = [elliptic(), eikonal()]
    draw(path, surfaces, orders_of_convergence())
    print(f"The figure is in {path}")


def split_square(n):
    """Inner points and boundary points of an n x n grid on the unit square."""
    axis = np.linspace(0, 1, n)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    on_side = np.any((points == 0) | (points == 1), axis=1)
    return points[~on_side], points[on_side]


def elliptic():
    """A problem with a known solution: any state makes one, with its own forcing."""

    def state(X, k=np.pi):
        x, y = X.T
        return np.sin(k * x) * np.sin(k * y) + 4 * np.sin(4 * k * x) * np.sin(4 * k * y)

    def forcing(X, k=np.pi):
        x, y = X.T
        low, high = np.sin(k * x) * np.sin(k * y), np.sin(4 * k * x) * np.sin(4 * k * y)
        return 2 * k**2 * (low + 64 * high) + state(X) ** 3

    inner, sides = split_square(32)
    solver = KernelPDESolver(
        equation=lambda u, u_xx, u_yy: -(u_xx + u_yy) + u**3,
        collocation_points=inner,
        forcing=forcing,
        variables=("x", "y"),
        state_kernel=RBF(0.2),
    )
    start = time.perf_counter()
    u = solver.fit(sides, np.zeros(len(sides))).predict(TEST)
    seconds = time.perf_counter() - start
    error = relative_l2_error(state(TEST), u)
    print(f"-Laplace(u) + u^3 = f:            error {error:.1e} in {seconds:.1f} s")
    return r"$-\Delta u + u^3 = f$", u, "RdBu_r"


def eikonal():
    """A problem without a formula: the solver says how well the equation is met."""
    inner, sides = split_square(32)
    solver = KernelPDESolver(
        equation=lambda u_x, u_y, u_xx, u_yy: u_x**2 + u_y**2 - 0.1 * (u_xx + u_yy),
        collocation_points=inner,
        forcing=lambda X: np.ones(len(X)),
        variables=("x", "y"),
        state_kernel=RBF(0.2),
    )
    start = time.perf_counter()
    u = solver.fit(sides, np.zeros(len(sides))).predict(TEST)
    seconds = time.perf_counter() - start
    print(
        f"|grad u|^2 = 1 + 0.1 Laplace(u):  residual {solver.residual_[0]:.1e} "
        f"in {seconds:.1f} s"
    )
    return r"$|\nabla u|^2 = 1 + 0.1\,\Delta u$", u, "viridis"


def orders_of_convergence():
    """Errors of Poisson's equation: {nu: (spacings, errors)}."""

    def state(X):
        return np.exp(X[:, 0]) * np.sin(3 * X[:, 0] + 4 * X[:, 1])

    def forcing(X):
        angle = 3 * X[:, 0] + 4 * X[:, 1]
        return np.exp(X[:, 0]) * (6 * np.cos(angle) - 24 * np.sin(angle))

    curves = {}
    for nu in (2.5, 3.5, 4.5):
        sizes, errors = np.array([6, 9, 12, 18, 24, 32]), []
        for n in sizes:
            inner, sides = split_square(n + 1)
            solver = KernelPDESolver(
                equation="laplacian(u)",
                collocation_points=inner,
                forcing=forcing,
                variables=("x", "y"),
                state_kernel=Matern(1.0, nu=nu),
                observation_noise=0,
                equation_noise=0,
            ).fit(sides, state(sides))
            errors.append(relative_l2_error(state(TEST), solver.predict(TEST)))
        order = np.polyfit(np.log(1 / sizes), np.log(errors), 1)[0]
        print(
            f"Poisson, Matern kernel, nu = {nu}: order {order:.1f}, at least {nu - 1}"
        )
        curves[nu] = 1 / sizes, np.array(errors)
    return curves


def draw(path, surfaces, curves):
    """Two solutions side by side, and errors over the spacing of the points."""
    fig = Figure(figsize=(11.5, 3.4), layout="constrained")
    axes = fig.subplots(1, 3)
    for ax, (title, u, colours) in zip(axes, surfaces, strict=False):
        limits = {"vmin": -abs(u).max(), "vmax": abs(u).max()} if u.min() < -1 else {}
        image = ax.pcolormesh(
            GRID,
            GRID,
            u.reshape(len(GRID), -1),
            cmap=colours,
            rasterized=True,
            **limits,
        )
        ax.set(title=title, xlabel="x", aspect="equal", xticks=[0, 1], yticks=[0, 1])
        fig.colorbar(image, ax=ax).ax.set_xlabel("u")
    axes[0].set_ylabel("y")
    colours = ("#0072B2", "#D55E00", "#009E73")
    for colour, (nu, (spacing, errors)) in zip(colours, curves.items(), strict=True):
        axes[2].loglog(spacing, errors, "o-", ms=4, color=colour, label=rf"$\nu={nu}$")
        promised = errors[-1] * (spacing / spacing[-1]) ** (nu - 1)
        axes[2].loglog(spacing, promised, ":", color=colour)
    ticks = [0.03, 0.06, 0.1, 0.2]
    axes[2].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[2].minorticks_off()
    axes[2].set(
        title="Poisson's equation, Matérn kernels",
        xlabel="spacing of the collocation points",
        ylabel="relative $L^2$ error",
    )
    axes[2].plot([], [], ":", color="gray", label=r"order $\nu - 1$")
    axes[2].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the version of matplotlib, equal figures are equal files.
    fig.savefig(path, dpi=140, metadata={"Software": None})


if __name__ == "__main__":
    main()
