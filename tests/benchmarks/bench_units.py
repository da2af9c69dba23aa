"""Is an equation the same in other units, and far from the origin?

Each problem is fitted in its own units, then with coordinates and states multiplied by
1e-12 to 1e12, one by one and together, also by irregular factors, and with coordinates
moved by 1e9. The equations are converted back. What counts is the largest relative
difference of P over the features that it was learned from, and whether the terms are
those of the first fit; for solvers, the difference of the states.

Coordinates are multiples of 2^-10, so that moving them by 1e9 costs no digits: what
rounding of the coordinates themselves costs is not what is measured here. Kernels that
are given have no lengths in units of the features of P, which would be other kernels.

    python tests/benchmarks/bench_units.py
    python tests/benchmarks/bench_units.py --names ode two --quick
"""

import argparse
import time
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp

from keql import KernelPDESolver, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql.kernels import RBF, Constant, Polynomial

ROW = "{:34} {:26} {:>9} {:>6} {:>7}"


@dataclass(frozen=True)
class Units:
    """Factors of the coordinates and of the states, and what moves the coordinates."""

    name: str
    coordinates: float = 1.0
    states: float = 1.0
    shift: float = 0.0


CHANGES = [
    Units("coordinates 1e-12", 1e-12),
    Units("coordinates 1e12", 1e12),
    Units("states 1e-12", 1.0, 1e-12),
    Units("states 1e12", 1.0, 1e12),
    Units("2.3e-4, 3.7e5", 2.3e-4, 3.7e5),
    Units("1e12, 1e-12", 1e12, 1e-12),
    Units("moved by 1e9", shift=1e9),
]


@dataclass(frozen=True)
class Problem:
    """Observations and what describes them, in some units.

    Coordinates have one factor, and so have states. `order` is that of the known part,
    which P has the unit of. A `forcing` is a function of the points in the units of the
    problem. `lengths` are those of a given state kernel, and `length` that of the
    coefficients in the coordinate. A `method` makes the model.
    """

    X: np.ndarray
    y: np.ndarray
    method: type
    settings: dict
    order: int = 1
    forcing: object = None
    lengths: object = None
    length: float | None = None
    labels: np.ndarray | None = None

    def fitted(self, units):
        """The model, fitted in other units."""
        settings = dict(self.settings)
        points, b, a = self.X * units.coordinates + units.shift, *_factors(units)
        if self.lengths is not None:
            lengths = np.multiply(self.lengths, b)
            settings["state_kernel"] = Constant(a**2, "fixed") * RBF(lengths, "fixed")
        if self.length is not None:
            varying = RBF(self.length * b, np.array([1e-5, 1e5]) * b, "x")
            settings["equation_kernel"] = varying * Polynomial(1)
        if self.forcing is not None:
            scale = a / b**self.order
            settings["forcing"] = lambda X: scale * self.forcing((X - units.shift) / b)
        if isinstance(settings.get("collocation_points"), np.ndarray):
            places = settings["collocation_points"] * b + units.shift
            settings["collocation_points"] = places
        if "periods" in settings:
            periods = settings["periods"].items()
            settings["periods"] = {name: L * b for name, L in periods}
        if "observation_noise" in settings:
            settings["observation_noise"] = settings["observation_noise"] * a
        if self.labels is not None:
            points = np.column_stack([points, self.labels])
            settings["function_column"] = points.shape[1] - 1
        model = self.method(**settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a fit says is not what is asked here
            return model.fit(points, self.y * a)


def _factors(units):
    return units.coordinates, units.states


def orders_of(names, states):
    """Orders of derivatives by the names of operators; coordinates have minus one."""
    return [
        (len(name.split("_")[1]) if "_" in name else 0)
        if name.split("_")[0] in states
        else -1
        for name in names
    ]


def difference(problem, first, other, units):
    """Largest relative difference of P, or of the states of a solver."""
    b, a = _factors(units)
    if isinstance(first, KernelPDESolver):
        inside = problem.settings["collocation_points"]
        there = inside * b + units.shift
        u, v = first.predict(inside), other.predict(there) / a
        return np.linalg.norm(u - v) / np.linalg.norm(u), True
    pairs = [(first.equation_, other.equation_)]
    if hasattr(first.equation_, "keys"):
        names = list(first.equation_)
        pairs = [(first.equation_[name], other.equation_[name]) for name in names]
    worst, same = 0.0, True
    for one, two in pairs:
        S = one.training_features[:, : one.n_unknown_features]
        orders = orders_of(one.feature_names[: S.shape[1]], first.state_names_)
        scale = [b if k < 0 else a / b**k for k in orders]
        moved = np.array([units.shift if k < 0 else 0.0 for k in orders])
        P, Q = one.unknown_part(S), two.unknown_part(S * scale + moved)
        Q = Q * b**problem.order / a
        worst = max(worst, np.linalg.norm(P - Q) / np.linalg.norm(P))
        same &= _terms(one) == _terms(two)
    return worst, same


def _terms(equation):
    """Names of the terms of an equation; none if it is no sum of terms."""
    try:
        return {name for name, value in equation.terms().items() if value}
    except ValueError:
        return set()


# --- problems ---------------------------------------------------------------------


def on_grid(X):
    """Coordinates rounded to multiples of 2^-10."""
    return np.round(np.asarray(X, dtype=float) * 1024) / 1024


def ode(rate, initial, t_end, n, noise=0.0, method=OneStepKEqL, **settings):
    """u^(k) = rate(u, ..., u^(k-1)) at n times."""
    t, order = on_grid(np.linspace(0, t_end, n)), len(initial)
    names = tuple("u" + ("_" if i else "") + "t" * i for i in range(order + 1))
    found = solve_ivp(
        lambda t, s: [*s[1:], rate(*s)], (0, t_end), initial, "DOP853", t, rtol=1e-12
    ).y[0]
    rng = np.random.default_rng(n)
    y = found + noise * np.std(found) * rng.standard_normal(n)
    given = {"operators": names[:-1], "known_part": names[-1], "variables": ("t",)}
    return Problem(t[:, None], y, method, given | settings, order)


def logistic(**settings):
    return ode(lambda u: u - u**2, [0.1], 6, 25, **settings)


def oscillator(**settings):
    return ode(lambda u, v: -4 * u - 0.2 * v, [1.0, 0.0], 6, 40, **settings)


def van_der_pol(**settings):
    return ode(lambda u, v: (1 - u**2) * v - u, [0.5, 0.0], 15, 40, **settings)


def pendulum(**settings):
    return ode(lambda u, v: -np.sin(u), [2.0, 0.0], 20, 40, **settings)


def driven(**settings):
    """A forced oscillation."""

    def forcing(X):
        return 1.2 * np.cos(0.7 * X[:, 0])

    t = on_grid(np.linspace(0, 15, 40))
    found = solve_ivp(
        lambda t, s: [s[1], forcing(np.array([[t]]))[0] - 2 * s[0] - 0.3 * s[1]],
        (0, 15),
        [0.5, 0.0],
        "DOP853",
        t,
        rtol=1e-12,
    ).y[0]
    given = {"operators": ("u", "u_t"), "known_part": "u_tt", "variables": ("t",)}
    return Problem(t[:, None], found, OneStepKEqL, given | settings, 2, forcing)


def hunters(noise=0.0, method=OneStepKEqL, **settings):
    """Prey and predators."""
    t = on_grid(np.linspace(0, 10, 40))
    y = solve_ivp(
        lambda t, s: [s[0] - s[0] * s[1], s[0] * s[1] - s[1]],
        (0, 10),
        [2.0, 0.5],
        "DOP853",
        t,
        rtol=1e-12,
    ).y.T
    y = y + noise * np.std(y) * np.random.default_rng(1).standard_normal(y.shape)
    given = {"operators": ("p", "q"), "known_part": ("p_t", "q_t")}
    given |= {"variables": ("t",), "states": ("p", "q")}
    return Problem(t[:, None], y, method, given | settings, 1)


def plane(n, seed=0):
    """Points of the unit square."""
    return on_grid(np.random.default_rng(seed).uniform(0, 1, (n, 2)))


def heat(n=40, method=OneStepKEqL, length=None, **settings):
    """u_t = u_xx / 20 of two modes; coordinates share a unit, which changes 1/20."""
    X = plane(n)
    y = np.exp(-0.45 * X[:, 0]) * np.cos(3 * X[:, 1])
    y += 0.5 * np.exp(-1.8 * X[:, 0]) * np.sin(6 * X[:, 1])
    given = {"operators": ("u", "u_x", "u_xx"), "known_part": "u_t"}
    given |= {"variables": ("t", "x")}
    return Problem(X, y, method, given | settings, 1, None, length)


def waves_on_a_ring(n=40, **settings):
    """u_t = -0.7 u_x on a ring of length 1."""
    X = plane(n, 1)
    phase = 2 * np.pi * (X[:, 1] - 0.7 * X[:, 0])
    y = 0.4 + np.cos(phase) + 0.5 * np.sin(2 * phase)
    given = {"operators": ("u", "u_x"), "known_part": "u_t", "periods": {"x": 1.0}}
    given |= {"variables": ("t", "x")}
    return Problem(X, y, OneStepKEqL, given | settings, 1)


def elliptic(method=OneStepKEqL, **settings):
    """u_xx + u_yy = f + u^3."""

    def truth(X):
        return np.sin(np.pi * X[:, 0]) * np.cos(2 * X[:, 1]) + X[:, 1]

    def forcing(X):
        wave = np.sin(np.pi * X[:, 0]) * np.cos(2 * X[:, 1])
        return -(np.pi**2 + 4) * wave - truth(X) ** 3

    X, side = plane(40, 4), on_grid(np.linspace(0.02, 0.98, 9))
    given = {
        "operators": ("u",),
        "known_part": "u_xx + u_yy",
        "variables": ("x", "y"),
        "collocation_points": np.array([(a, b) for a in side for b in side]),
        "equation_kernel": Polynomial(3),
    }
    return Problem(X, truth(X), method, given | settings, 2, forcing)


def varying(method=TwoStepKEqL, **settings):
    """Two functions with -(a u_x)_x = f, as in Darcy's problem: a depends on x."""
    x = on_grid(np.linspace(0, 1, 25))
    X, labels = np.concatenate([x, x])[:, None], np.repeat([0, 1], 25)
    y = np.concatenate([np.sin(3 * x), np.cos(2 * x)])
    given = {"operators": ("u_x",), "known_part": "u_xx", "variables": ("x",)}
    return Problem(X, y, method, given | settings, 2, length=0.5, labels=labels)


def cosine(X):
    return np.cos(3 * X[:, 0])


def boundary_values(equation, forcing=None, lengths=None, **settings):
    """A known equation, values at both ends."""
    x = np.array([[0.0], [1.0]])
    points = on_grid(np.linspace(0, 1, 40))[:, None]
    given = {"equation": equation, "collocation_points": points, "variables": ("x",)}
    ends = x, np.array([1.0, 2.0])
    return Problem(*ends, KernelPDESolver, given | settings, 2, forcing, lengths)


def problems():
    """Functions that make a problem, by name."""
    auto, given = {"n_terms": "auto"}, {"equation_kernel": Polynomial(1)}
    two = {"method": TwoStepKEqL}
    return {
        "ode logistic": lambda: logistic(),
        "ode logistic, auto": lambda: logistic(**auto),
        "ode logistic, 2 %, auto": lambda: logistic(noise=0.02, **auto),
        "ode oscillator, kernel": lambda: oscillator(**given),
        "ode oscillator, 2 %, kernel": lambda: oscillator(noise=0.02, **given),
        "ode oscillator, auto": lambda: oscillator(**auto),
        "ode oscillator, 2 %, auto": lambda: oscillator(noise=0.02, **auto),
        "ode van der Pol, auto": lambda: van_der_pol(**auto),
        "ode van der Pol, 2 %, auto": lambda: van_der_pol(noise=0.02, **auto),
        "ode pendulum, auto": lambda: pendulum(**auto),
        "ode driven": lambda: driven(**auto),
        "ode dual": lambda: oscillator(solver="dual", **given),
        "ode primal, noise": lambda: oscillator(noise=0.02, solver="primal", **given),
        "two steps": lambda: oscillator(**two),
        "two steps, kernel": lambda: oscillator(**two, **given),
        "two steps, 2 %": lambda: oscillator(noise=0.02, **two),
        "two steps, cubic": lambda: van_der_pol(**two, equation_kernel=Polynomial(3)),
        "two steps, system": lambda: hunters(**two),
        "two steps, heat": lambda: heat(**two),
        "two steps, varying": lambda: varying(),
        "two steps, elliptic": lambda: elliptic(**two),
        "reduced": lambda: oscillator(
            method=ReducedOneStepKEqL, n_basis=30, random_state=0, **given
        ),
        "system, auto": lambda: hunters(**auto),
        "system, 2 %, auto": lambda: hunters(noise=0.02, **auto),
        "system, kernel": lambda: hunters(equation_kernel=Polynomial(2)),
        "field heat, auto": lambda: heat(**auto),
        "field heat, collocation": lambda: heat(length=(0.7, 0.4), **given),
        "ring advection, auto": lambda: waves_on_a_ring(**auto),
        "elliptic": lambda: elliptic(),
        "solver": lambda: boundary_values("u_xx"),
        "solver, kernel": lambda: boundary_values("u_xx", forcing=cosine, lengths=0.4),
    }


def main():
    """A row for each problem and change of units."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="*", default=None)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    print(ROW.format("problem", "units", "error", "terms", "CPU s"))
    failed = 0
    for name, make in problems().items():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        problem = make()
        start = time.process_time()
        first = problem.fitted(Units("own"))
        for units in CHANGES[-3:] if options.quick else CHANGES:
            error, same = difference(problem, first, problem.fitted(units), units)
            failed += not (error < 1e-6 and same)
            spent = f"{time.process_time() - start:.1f}"
            terms = "same" if same else "OTHER"
            print(ROW.format(name, units.name, f"{error:.1e}", terms, spent))
            start = time.process_time()
    print(f"{failed} differ by more than 1e-6, or have other terms")


if __name__ == "__main__":
    main()
