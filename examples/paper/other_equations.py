"""Equations that the paper does not have: higher orders, and two dimensions of space.

    python examples/paper/other_equations.py --quick

- Korteweg-de Vries, third order: u_t = -6 u u_x - u_xxx, two solitons that meet;
- Kuramoto-Sivashinsky, fourth order: u_t = -u u_x - u_xx - u_xxxx, chaotic, periodic;
- Allen-Cahn in two dimensions of space: u_t = 0.02 (u_xx + u_yy) + u - u^3.

The state at the first time and scattered values are observed, without noise; no setting
but the degree of the equation is given. Truth: a formula, or a Fourier method with
exponential Runge-Kutta steps of order 4.
"""

import sys

import numpy as np
from experiment import (
    measured,
    new_figure,
    read_arrays,
    read_options,
    report,
    run,
    save,
    select,
)
from scipy.interpolate import CubicSpline
from scipy.stats import qmc

from keql import OneStepKEqL, TwoStepKEqL
from keql.kernels import Polynomial
from keql.metrics import equation_error, relative_l2_error


class Solitons:
    """Two solitons, with wave numbers 1 and 3/2, of u_t + 6 u u_x + u_xxx = 0."""

    box = ((-1.0, 1.0), (-8.0, 8.0))
    variables = ("t", "x")
    operators = ("u", "u_x", "u_xx", "u_xxx")
    degree = 2
    n_initial = (40,)
    n_scattered = 100
    n_collocation = 600

    def __call__(self, X, operator):
        # u is twice the second logarithmic derivative of a sum of exponentials of
        # k x: derivatives are cumulants of k, weighted with these exponentials.
        t, x = X.T
        first, second = np.exp(x - t), np.exp(1.5 * x - 3.375 * t)
        terms = np.array([np.ones(len(X)), first, second, first * second / 25])
        shares = terms / terms.sum(axis=0)
        k = np.array([[0.0], [1.0], [1.5], [2.5]])
        centred = k - np.sum(shares * k, axis=0)
        m2, m3, m4, m5 = (np.sum(shares * centred**n, axis=0) for n in range(2, 6))
        order = operator.count("x")
        return 2 * (m2, m3, m4 - 3 * m2**2, m5 - 10 * m2 * m3)[order]

    @staticmethod
    def unknown_part(S):
        """P of features t, x, u, u_x, u_xx, u_xxx."""
        return 6 * S[:, 2] * S[:, 3] + S[:, 5]


class Spectral:
    """A periodic solution as a Fourier series with coefficients that are splines in t.

    `linear(k)` is the symbol of the linear part, `nonlinear(u, k)` the transform of the
    rest; the box has its first side in time.
    """

    def __init__(self, n_modes, n_steps, seed, n_before=0):
        self.rng = np.random.RandomState(seed)
        lengths = [stop - start for start, stop in self.box[1:]]
        axes = [np.fft.fftfreq(n_modes, length / n_modes) for length in lengths]
        self.k = 2 * np.pi * np.stack(np.meshgrid(*axes, indexing="ij"))
        points = [np.arange(n_modes) * length / n_modes for length in lengths]
        u0 = self.initial(*np.meshgrid(*points, indexing="ij"))
        t = np.linspace(*self.box[0], n_steps + 1)
        waves = self.integrate(np.fft.fftn(u0), t[1] - t[0], n_before + n_steps)
        waves = waves[n_before:]
        self.spline = CubicSpline(t, waves.reshape(len(t), -1) / u0.size)

    def integrate(self, v, dt, n_steps):
        """Exponential time differencing, Runge-Kutta of order 4 (Kassam, Trefethen)."""
        L = self.linear(self.k)
        # The coefficients are means over a circle: no cancellation near zero.
        z = dt * L[..., None] + np.exp(1j * np.pi * (np.arange(32) + 0.5) / 32)
        half, full = np.exp(dt * L / 2), np.exp(dt * L)
        e = np.exp(z)
        q = dt * np.real(np.mean((np.exp(z / 2) - 1) / z, -1))
        f1 = dt * np.real(np.mean((-4 - z + e * (4 - 3 * z + z**2)) / z**3, -1))
        f2 = dt * np.real(np.mean((2 + z + e * (-2 + z)) / z**3, -1))
        f3 = dt * np.real(np.mean((-4 - 3 * z - z**2 + e * (4 - z)) / z**3, -1))
        found = [v]
        for _ in range(n_steps):
            Nv = self.nonlinear(v)
            a = half * v + q * Nv
            Na = self.nonlinear(a)
            Nb = self.nonlinear(half * v + q * Na)
            Nc = self.nonlinear(half * a + q * (2 * Nb - Nv))
            v = full * v + f1 * Nv + 2 * f2 * (Na + Nb) + f3 * Nc
            found.append(v)
        return np.array(found)

    def __call__(self, X, operator):
        suffix = operator.partition("_")[2]
        orders = [suffix.count(name) for name in self.variables[1:]]
        k = self.k.reshape(len(self.k), -1)
        factor = np.prod([(1j * row) ** n for row, n in zip(k, orders, strict=True)], 0)
        blocks = np.array_split(X, -(-len(X) // 1000))
        return np.concatenate(
            [
                np.real(
                    np.sum(self.spline(B[:, 0]) * factor * np.exp(1j * B[:, 1:] @ k), 1)
                )
                for B in blocks
            ]
        )


class KuramotoSivashinsky(Spectral):
    """u_t + u u_x + u_xx + u_xxxx = 0 on a circle of length 22, on its attractor."""

    box = ((0.0, 6.0), (0.0, 22.0))
    variables = ("t", "x")
    operators = ("u", "u_x", "u_xx", "u_xxx", "u_xxxx")
    degree = 2
    n_initial = (44,)
    n_scattered = 150
    n_collocation = 500
    n_steps = 600
    n_before = 5000

    def __init__(self, seed):
        super().__init__(64, self.n_steps, seed, self.n_before)

    def initial(self, x):
        """Long waves, 50 units of time before."""
        j = np.arange(1, 5)[:, None]
        a, b = self.rng.standard_normal((2, 4, 1))
        phase = 2 * np.pi * j * x / 22
        return np.sum(a * np.sin(phase) + b * np.cos(phase), axis=0)

    @staticmethod
    def linear(k):
        """-u_xx - u_xxxx."""
        return k[0] ** 2 - k[0] ** 4

    def nonlinear(self, v):
        """-u u_x."""
        u = np.real(np.fft.ifftn(v))
        return -0.5j * self.k[0] * np.fft.fftn(u**2) * (abs(self.k[0]) < 6)

    @staticmethod
    def unknown_part(S):
        """P of features t, x, u, ..., u_xxxx."""
        return S[:, 2] * S[:, 3] + S[:, 4] + S[:, 6]


class LongKuramotoSivashinsky(KuramotoSivashinsky):
    """The same over twice the time, from the long waves themselves."""

    box = ((0.0, 12.0), (0.0, 22.0))
    n_scattered = 200
    n_steps = 1200
    n_before = 0


class AllenCahn(Spectral):
    """u_t = 0.02 (u_xx + u_yy) + u - u^3 on a square of side 2, periodic."""

    box = ((0.0, 2.0), (0.0, 2.0), (0.0, 2.0))
    variables = ("t", "x", "y")
    operators = ("u", "u_x", "u_y", "u_xx", "u_yy")
    degree = 3
    n_initial = (9, 9)
    n_scattered = 200
    n_collocation = 500

    def __init__(self, seed):
        super().__init__(32, 200, seed)

    def initial(self, x, y):
        """A few waves."""
        found = 0.0
        for a in range(3):
            for b in range(3):
                shift, size = self.rng.uniform(0, 2 * np.pi), self.rng.standard_normal()
                found = found + 0.5 * size * np.cos(np.pi * (a * x + b * y) + shift)
        return found

    @staticmethod
    def linear(k):
        """Diffusion and growth."""
        return 1 - 0.02 * np.sum(k**2, axis=0)

    @staticmethod
    def nonlinear(v):
        """-u^3."""
        return -np.fft.fftn(np.real(np.fft.ifftn(v)) ** 3)

    @staticmethod
    def unknown_part(S):
        """P of features t, x, y, u, u_x, u_y, u_xx, u_yy."""
        u = S[:, 3]
        return -0.02 * (S[:, 6] + S[:, 7]) - u + u**3


EQUATIONS = {
    "Korteweg-de Vries": lambda seed: Solitons(),
    "Allen-Cahn, 2-d": AllenCahn,
    "Kuramoto-Sivashinsky": KuramotoSivashinsky,
    "Kuramoto-Sivashinsky, longer": LongKuramotoSivashinsky,
}
# In two dimensions of space a fit takes as long as all others together.
QUICK = ("Korteweg-de Vries", "Kuramoto-Sivashinsky")
METHODS = ("one-step", "two-step")


def observations(problem, seed):
    """The state at the first time on a grid, and scattered points of all times."""
    lower, upper = np.transpose(problem.box)
    axes = [
        np.linspace(low, high, n)
        for low, high, n in zip(lower[1:], upper[1:], problem.n_initial, strict=True)
    ]
    space = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    first = np.column_stack([np.full(len(space), lower[0]), space])
    rng = np.random.RandomState(seed)
    size = problem.n_scattered, len(lower)
    scattered = lower + (upper - lower) * rng.uniform(size=size)
    return np.concatenate([first, scattered])


def points(problem, n):
    """Points of a low-discrepancy sequence in the box."""
    lower, upper = np.transpose(problem.box)
    halton = qmc.Halton(len(lower), scramble=False).random(n + 1)[1:]
    return lower + (upper - lower) * halton


def measure(equation, draw, method):
    """Errors of the state and of the unknown part."""
    problem = EQUATIONS[equation](draw)
    X, test = observations(problem, draw), points(problem, 4000)
    estimator = OneStepKEqL if method == "one-step" else TwoStepKEqL
    settings = {"n_terms": "auto"} if method == "one-step" else {}
    model = estimator(
        problem.operators,
        "u_t",
        points(problem, problem.n_collocation),
        variables=problem.variables,
        equation_kernel=Polynomial(problem.degree),
        **settings,
    )
    _, cost = measured(lambda: model.fit(X, problem(X, "u")))
    u, predicted = problem(test, "u"), model.predict(test)
    S = np.column_stack([test, *(problem(test, name) for name in problem.operators)])
    return {
        "n_observations": len(X),
        "n_collocation": problem.n_collocation,
        "state_error": relative_l2_error(u, predicted),
        "equation_error": equation_error(model.equation_, S, problem.unknown_part),
        **cost,
        "equation_learned": str(model.equation_)[:300],
        **maps(problem, model),
    }


def maps(problem, model, n=60):
    """Truth and state in the plane of time and the first coordinate of space."""
    lower, upper = np.transpose(problem.box)
    axes = [np.linspace(lower[i], upper[i], n) for i in range(2)]
    plane = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)
    middle = np.full((len(plane), len(lower) - 2), np.mean((lower, upper)))
    X = np.column_stack([plane, middle])
    return {"X": X, "truth": problem(X, "u"), "state": model.predict(X)}


def draw_figure(path, target, equations):
    """Truth and errors of draw 0."""
    n_rows = len(equations)
    figure, axes = new_figure(n_rows, 3, figsize=(10, 2.7 * n_rows))
    for row, equation in zip(axes, equations, strict=True):
        for ax, method in zip(row, (None, *METHODS), strict=True):
            task = {"equation": equation, "draw": 0, "method": method or METHODS[0]}
            arrays = read_arrays(path, task)
            n = int(np.sqrt(len(arrays["X"])))
            t, x = arrays["X"][:, :2].T.reshape(2, n, n)
            values = arrays["truth"]
            if method is not None:
                values = abs(arrays["state"] - values)
            image = ax.contourf(t, x, values.reshape(n, n), 20)
            figure.colorbar(image, ax=ax, format="%.2g")
            ax.set_title(equation if method is None else f"error, {method}", fontsize=9)
            ax.set_xlabel("t")
        row[0].set_ylabel("x")
    save(figure, target)


def main(argv=None):
    """Measure, print, draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    n_draws = options.draws or (5 if options.full else 1)
    equations = tuple(EQUATIONS) if options.full else QUICK
    path = options.output / "other_equations.csv"
    tasks = [
        {"equation": equation, "draw": draw, "method": method}
        for draw in range(n_draws)
        for equation in equations
        for method in METHODS
    ]
    rows = run(path, tasks, measure, options.jobs)
    for equation in equations:
        for method in METHODS:
            chosen = select(rows, equation=equation, method=method)
            for figure in ("state_error", "equation_error"):
                report(f"{equation}, {method}, {figure}", chosen, figure)
    draw_figure(path, options.output / "other_equations.png", equations)
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
