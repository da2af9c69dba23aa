"""Problems that the package had not been measured on when they were written.

The families of `suite_problems` have guided the package for long. These were made to
find wrong equations that come back in silence: functions that are not on offer, inputs
that nobody names, noise that is not normal, fields whose coefficients are functions.
"""

from dataclasses import replace

import numpy as np
from field_law_problems import FIELD_LAWS
from further_problems import FURTHER
from law_problems import LAWS, system
from scipy.integrate import solve_ivp
from suite_problems import (
    SuiteProblem,
    ode,
    on_ring,
    pair_on_ring,
    polynomial_system,
    shallow_water,
)


def with_other_noise(problem, kind, level=0.02, seed=3):
    """A problem with noise of a standard deviation that is a part of that of values.

    Uniform; normal with three values five standard deviations away ("outliers"); in
    proportion to the values ("multiplicative"); or of a correlation of 0.7 between
    neighbours ("correlated").
    """
    rng = np.random.default_rng(seed)
    y, size = problem.y, level * np.std(problem.y, axis=0)
    errors = rng.standard_normal(y.shape)
    if kind == "uniform":
        errors = rng.uniform(-(3**0.5), 3**0.5, y.shape)
    elif kind == "outliers":
        rows = rng.choice(len(y), 3, replace=False)
        errors[rows] = 5 * np.sign(errors[rows])
    elif kind == "multiplicative":
        errors = errors * np.abs(y) / np.std(y, axis=0)
    elif kind == "correlated":
        for i in range(1, len(y)):
            errors[i] = 0.7 * errors[i - 1] + 0.51**0.5 * errors[i]
    return replace(problem, y=y + size * errors, noise=level)


def field(
    rate, initial, operators, t_end=2.0, n=110, m=128, drive=np.zeros_like, ring=False
):
    """u_t = rate(x, u, derivative) + drive(t) of period 2 pi, seen at n random points.

    `derivative(values, order)` is that on the grid in space. `operators` are u and its
    derivatives in space. Points are those of a box, or of the whole `ring`.
    """
    x = 2 * np.pi * np.arange(m) / m
    k = np.fft.rfftfreq(m, 1 / m)

    def derivative(values, order):
        return np.fft.irfft((1j * k) ** order * np.fft.rfft(values), m)

    solution = solve_ivp(
        lambda t, u: rate(x, u, derivative) + drive(np.asarray(t)),
        (0, t_end),
        initial(x),
        "LSODA",
        dense_output=True,
        rtol=1e-9,
        atol=1e-10,
    ).sol

    def at(points, function):
        values = []
        for t, place in points:
            modes = np.fft.rfft(function(solution(t))) / m
            modes[1:-1] *= 2
            values.append(np.real(np.sum(np.exp(1j * place * k) * modes)))
        return np.array(values)

    rng, start, stop = np.random.default_rng(5), 1.0, 5.0
    if ring:
        start, stop = 0.0, 2 * np.pi
    margin = 0.025 * (stop - start)
    X = rng.uniform((0, start), (t_end, stop), (n, 2))
    inside = (0.03 * t_end, start + margin), (0.97 * t_end, stop - margin)
    X_test = rng.uniform(*inside, (600, 2))
    orders = [name.count("x") for name in operators]
    found = [at(X_test, lambda u, o=o: derivative(u, o)) for o in orders]
    settings = {"operators": operators, "known_part": "u_t", "variables": ("t", "x")}
    if ring:
        settings["periods"] = {"x": 2 * np.pi}
    return SuiteProblem(
        settings,
        X,
        at(X, lambda u: u),
        X_test,
        found[0],
        features=np.column_stack([X_test, *found]),
        parts=-at(X_test, lambda u: rate(x, u, derivative)) - drive(X_test[:, 0]),
    )


def of_several(problems):
    """Problems of one equation as one, the number of each in a column of its points."""

    def stacked(name):
        return np.concatenate([getattr(each, name) for each in problems])

    def numbered(name):
        parts = [getattr(each, name) for each in problems]
        numbers = [np.full(len(own), k) for k, own in enumerate(parts)]
        return np.column_stack([np.vstack(parts), np.concatenate(numbers)])

    return SuiteProblem(
        problems[0].settings | {"function_column": 1},
        numbered("X"),
        stacked("y"),
        numbered("X_test"),
        stacked("y_test"),
        features=stacked("features"),
        parts=stacked("parts"),
    )


def duffing():
    """Duffing's equation with other coefficients, seen 45 times."""
    terms = {"u": -0.8, "u^3": 1.0, "u_t": 0.25}
    return ode(lambda t, u, v: 0.8 * u - u**3 - 0.25 * v, [1.8, 0.0], 12, 45, terms)


def waves(x):
    """Three waves to start from."""
    return np.cos(x) + 0.6 * np.cos(2 * x + 1) - 0.4 * np.cos(3 * x + 2)


def high_waves(x):
    """Two waves about one."""
    return 1 + 0.4 * np.cos(x) + 0.25 * np.cos(2 * x + 1)


def burgers_and_fisher():
    """What is carried along, spreads and grows, seen 90 times."""
    return on_ring(
        {"u u_x": -0.8, "u_xx": 0.1, "u": 1.0, "u^2": -1.0},
        lambda x: 0.5 + 0.3 * np.cos(x) + 0.15 * np.sin(2 * x),
        2.0,
        2 * np.pi,
        90,
        (1.0, 5.0),
    )


def growth_that_varies():
    """What spreads and grows, in some places more than in others, seen 110 times."""
    return field(
        lambda x, u, d: 0.05 * d(u, 2) + (1 + 0.5 * np.sin(x)) * u - u**2,
        high_waves,
        ("u", "u_x", "u_xx"),
    )


def driven_heat():
    """Heat that is switched on and off everywhere, seen 110 times."""
    return field(
        lambda x, u, d: 0.1 * d(u, 2),
        waves,
        ("u", "u_x", "u_xx"),
        drive=lambda t: np.cos(3 * t),
    )


# Names end in the part that noise is of the standard deviation of the values.
UNSEEN = {
    "uptake 2%": lambda: ode(lambda t, u: 0.6 - 1.5 * u / (0.8 + u), [4.0], 8, 30),
    "harvest": lambda: ode(
        lambda t, u: u * (1 - u / 4) - 0.9 * u / (1 + u), [0.6], 12, 30
    ),
    "falling friction 2%": lambda: ode(
        lambda t, u, v: -u - 0.3 * v / (0.1 + v**2), [1.5, 0.0], 8, 45
    ),
    "saturating friction 2%": lambda: ode(
        lambda t, u, v: -1.3 * u - 0.4 * np.tanh(3 * v), [2.0, 0.0], 12, 45
    ),
    "relativistic 2%": lambda: ode(
        lambda t, u, v: -u * (1 - v**2) ** 1.5, [1.2, 0.0], 15, 40
    ),
    "hidden pulse 2%": lambda: ode(
        lambda t, u: -0.5 * u + 2 * np.exp(-((t - 4) ** 2) / 0.8), [1.0], 10, 40
    ),
    "hidden wave 2%": lambda: ode(
        lambda t, u, v: -1.7 * u - 0.2 * v + 0.8 * np.sin(0.6 * t), [1.0, 0.0], 18, 60
    ),
    "third order 2%": lambda: ode(
        lambda t, u, v, w: -0.6 * w - 1.5 * v - 0.5 * u,
        [1.0, 0.0, 0.0],
        15,
        50,
        {"u_tt": 0.6, "u_t": 1.5, "u": 0.5},
    ),
    "uniform noise": lambda: with_other_noise(duffing(), "uniform"),
    "outliers": lambda: with_other_noise(duffing(), "outliers"),
    "multiplicative noise": lambda: with_other_noise(duffing(), "multiplicative"),
    "correlated noise": lambda: with_other_noise(duffing(), "correlated"),
    "births 2%": lambda: polynomial_system(
        {
            "s": {"1": 0.02, "s i": -1.5, "s": -0.02},
            "i": {"s i": 1.5, "i": -0.5},
        },
        [0.9, 0.02],
        25,
        45,
    ),
    "toggle switch 2%": lambda: system(
        lambda u, v: [2 / (1 + v**2) - u, 2 / (1 + u**2) - v],
        ("u", "v"),
        [0.5, 1.2],
        10,
        40,
    ),
    "equal competitors 2%": lambda: polynomial_system(
        {
            "x": {"x": 1.0, "x^2": -1.0, "x y": -1.0},
            "y": {"y": 1.0, "x y": -1.0, "y^2": -1.0},
        },
        [0.1, 0.3],
        10,
        40,
    ),
    "exponential diffusivity 2%": lambda: field(
        lambda x, u, d: d(0.08 * np.exp(0.8 * u) * d(u, 1), 1),
        lambda x: 0.8 * np.cos(x) + 0.4 * np.cos(2 * x + 1),
        ("u", "u_x", "u_xx"),
    ),
    "fast diffusion 2%": lambda: field(
        lambda x, u, d: d(0.1 * d(u, 1) / u, 1), high_waves, ("u", "u_x", "u_xx")
    ),
    "varying speed 2%": lambda: field(
        lambda x, u, d: -(0.8 + 0.3 * np.sin(x)) * d(u, 1), waves, ("u", "u_x")
    ),
    "shallow water": lambda: shallow_water(0.3, 100),
    "pendulum with drag": lambda: ode(
        lambda t, u, v: -np.sin(u) - 0.25 * v * np.abs(v), [1.8, 0.0], 15, 50
    ),
    "weak saturating friction 2%": lambda: ode(
        lambda t, u, v: -2 * u - 0.5 * np.tanh(2 * v), [2.0, 0.0], 10, 45
    ),
    "source in space": lambda: field(
        lambda x, u, d: 0.15 * d(u, 2) - 0.5 * u + 0.4 * np.cos(x),
        waves,
        ("u", "u_x", "u_xx"),
    ),
    "budworm": lambda: ode(
        lambda t, u: 0.6 * u * (1 - u / 6) - u**2 / (1 + u**2), [0.3], 15, 40
    ),
    "feeding": lambda: system(
        lambda n, p: [
            n * (1 - n / 3) - n * p / (1 + n),
            0.6 * n * p / (1 + n) - 0.3 * p,
        ],
        ("n", "p"),
        [1.0, 0.8],
        30,
        60,
    ),
    "feeding that learns": lambda: system(
        lambda n, p: [
            n * (1 - n / 4) - n**2 * p / (1 + n**2),
            0.7 * n**2 * p / (1 + n**2) - 0.3 * p,
        ],
        ("n", "p"),
        [1.0, 1.5],
        30,
        70,
    ),
    "enzyme chain": lambda: system(
        lambda s, p: [-1.2 * s / (0.5 + s), 1.2 * s / (0.5 + s) - 0.4 * p],
        ("s", "p"),
        [2.0, 0.1],
        8,
        35,
    ),
    "gene that activates itself": lambda: ode(
        lambda t, u: 0.1 + 2 * u**2 / (1 + u**2) - 0.9 * u, [0.1], 14, 35
    ),
    "soft walls": lambda: ode(
        lambda t, u, v: -0.2 * np.sinh(3 * u) - 0.05 * v, [1.0, 0.0], 14, 50
    ),
    "bessel": lambda: ode(lambda t, u, v: -v / (t + 0.5) - u, [1.0, 0.0], 12, 40),
    "cyclic sines": lambda: system(
        lambda x, y, z: [
            np.sin(y) - 0.2 * x,
            np.sin(z) - 0.2 * y,
            np.sin(x) - 0.2 * z,
        ],
        ("x", "y", "z"),
        [1.0, 0.5, -0.5],
        20,
        80,
    ),
    "repressilator": lambda: system(
        lambda a, b, c: [4 / (1 + c**3) - a, 4 / (1 + a**3) - b, 4 / (1 + b**3) - c],
        ("a", "b", "c"),
        [1.0, 1.5, 0.5],
        25,
        100,
    ),
    "power diffusivity": lambda: field(
        lambda x, u, d: d(0.1 * u**1.5 * d(u, 1), 1), high_waves, ("u", "u_x", "u_xx")
    ),
    "bistable": lambda: field(
        lambda x, u, d: 0.08 * d(u, 2) + 3 * u * (1 - u) * (u - 0.25),
        lambda x: 0.5 + 0.45 * np.cos(x) + 0.2 * np.sin(2 * x),
        ("u", "u_x", "u_xx"),
    ),
    "two fluids 2%": lambda: field(
        lambda x, u, d: 0.1 * d(u, 2) - 0.3 * d(u**2 / (u**2 + 0.5 * (1 - u) ** 2), 1),
        lambda x: 0.5 + 0.3 * np.cos(x) + 0.1 * np.sin(2 * x),
        ("u", "u_x", "u_xx"),
    ),
    "three phases 2%": lambda: system(
        lambda a, b, c: [
            0.5 + 0.4 * (np.sin(b - a) + np.sin(c - a)),
            0.1 + 0.4 * (np.sin(a - b) + np.sin(c - b)),
            0.4 * (np.sin(a - c) + np.sin(b - c)) - 0.4,
        ],
        ("a", "b", "c"),
        [0.0, 1.5, 3.0],
        12,
        60,
    ),
    "two swings 2%": lambda: of_several(
        [
            ode(lambda t, u, v: -2 * np.sin(u) - 0.1 * v, [start, 0.0], 8, 20)
            for start in (1.0, 2.6)
        ]
    ),
    "species that spread 2%": lambda: pair_on_ring(
        {
            "u": {"u": 1.0, "u^2": -1.0, "u v": -1.0, "u_xx": 0.05},
            "v": {"v": -0.5, "u v": 1.0, "v_xx": 0.1},
        },
        (
            lambda x: 0.6 + 0.3 * np.cos(x) + 0.1 * np.sin(2 * x),
            lambda x: 0.5 + 0.3 * np.sin(x),
        ),
        4.0,
    ),
    "source on a ring 2%": lambda: field(
        lambda x, u, d: 0.1 * d(u, 2) + 0.5 * np.sin(x),
        waves,
        ("u", "u_x", "u_xx"),
        ring=True,
    ),
    "driven field 2%": lambda: field(
        lambda x, u, d: 0.1 * d(u, 2) - u**3,
        waves,
        ("u", "u_x", "u_xx"),
        t_end=3.0,
        n=120,
        drive=lambda t: 0.8 * np.cos(3 * t),
    ),
    "burgers and fisher": burgers_and_fisher,
    "burgers and fisher 2%": burgers_and_fisher,
    "swing of periodic length 2%": lambda: ode(
        lambda t, u, v: -(1.2 + 0.4 * np.cos(2 * t)) * u - 0.1 * v, [1.0, 0.0], 14, 45
    ),
    "star 2%": lambda: ode(  # of Emden and Fowler
        lambda t, u, v: -2 * v / (t + 0.5) - u**3, [1.5, 0.0], 10, 40
    ),
    "molecule": lambda: ode(  # of Morse
        lambda t, u, v: -2 * (np.exp(-u) - np.exp(-2 * u)) - 0.1 * v, [1.0, 0.0], 15, 45
    ),
    "rising tone": lambda: ode(
        lambda t, u, v: -u - 0.15 * v + 0.5 * np.sin(0.15 * t**2), [1.0, 0.0], 14, 60
    ),
    "chemostat 2%": lambda: system(
        lambda s, x: [
            0.3 * (1 - s) - 1.2 * s * x / (0.3 + s),
            1.2 * s * x / (0.3 + s) - 0.3 * x,
        ],
        ("s", "x"),
        [0.9, 0.1],
        20,
        40,
    ),
    "predators of few prey 2%": lambda: system(  # of May
        lambda n, p: [n * (1 - n) - n * p / (n + 0.1), 0.3 * p * (1 - p / n)],
        ("n", "p"),
        [0.6, 0.3],
        40,
        60,
    ),
    "enzyme cascade 2%": lambda: system(
        lambda a, b: [-a / (0.5 + a), a / (0.5 + a) - 0.8 * b / (0.2 + b)],
        ("a", "b"),
        [2.0, 0.1],
        6,
        40,
    ),
    "korteweg and burgers": lambda: field(
        lambda x, u, d: -u * d(u, 1) - 0.03 * d(u, 3) + 0.06 * d(u, 2),
        waves,
        ("u", "u_x", "u_xx", "u_xxx"),
    ),
    "burgers and huxley 2%": lambda: field(
        lambda x, u, d: -u * d(u, 1) + 0.08 * d(u, 2) + u * (1 - u) * (u - 0.3),
        high_waves,
        ("u", "u_x", "u_xx"),
    ),
    "saturated growth 2%": lambda: field(
        lambda x, u, d: 0.1 * d(u, 2) + u / (1 + u**2) - 0.3 * u,
        high_waves,
        ("u", "u_x", "u_xx"),
    ),
    "diffusion that varies 2%": lambda: field(
        lambda x, u, d: d((0.15 + 0.08 * np.sin(x)) * d(u, 1), 1),
        waves,
        ("u", "u_x", "u_xx"),
    ),
    "source that decays 2%": lambda: field(
        lambda x, u, d: 0.1 * d(u, 2) - 0.5 * u,
        waves,
        ("u", "u_x", "u_xx"),
        drive=lambda t: np.exp(-t),
    ),
    "stiffening spring": lambda: ode(
        lambda t, u, v: -u - 0.3 * u**5 - 0.1 * v, [1.4, 0.0], 12, 45
    ),
    "flip-flop 2%": lambda: ode(
        lambda t, u: -0.3 * u + 1.5 * np.exp(-1.2 * t), [0.0], 12, 30
    ),
    "growth that varies": growth_that_varies,
    "growth that varies 2%": growth_that_varies,
    "driven heat": driven_heat,
    "driven heat 2%": driven_heat,
}


def unseen():
    """Functions from the number of a draw to a problem, by family and name."""

    made = UNSEEN | FURTHER | LAWS | FIELD_LAWS

    def problem(draw, name):
        found = made[name]()
        return found.with_noise(0.02, draw) if name.endswith("2%") else found

    return {
        ("unseen", name): lambda draw, name=name: problem(draw, name) for name in made
    }
