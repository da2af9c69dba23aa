"""Laws of fields that are no polynomials, of the family unseen.

Fields of one and two states on a circle, seen in a box, and potentials that do not
change with time.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from scipy.integrate import solve_ivp
from suite_problems import SuiteProblem


def on_circle(rates, initial, t_end, n=150, names=("u",), order=1, n_modes=96, draw=0):
    """Fields of period 2 pi, seen at n points in a box.

    The last derivatives in time of the fields are rates(x, derivative), of the points
    of a grid and of a function from the position of a field and an order in x to its
    derivative there.
    """
    x = 2 * np.pi * np.arange(n_modes) / n_modes
    numbers, size = np.arange(n_modes // 2 + 1), len(names)
    kept = numbers <= n_modes // 3

    def derivative(field, n):
        modes = np.fft.rfft(field, axis=-1) * kept * (1j * numbers) ** n
        return np.fft.irfft(modes, n_modes)

    def last(fields):
        return np.array(rates(x, lambda i, n=0: derivative(fields[i], n)))

    def slope(t, state):
        fields = state.reshape(-1, n_modes)
        return np.concatenate([fields[size:], last(fields)]).ravel()

    start = np.zeros((order * size, n_modes))
    start[:size] = [own(x) for own in initial]
    how = {"rtol": 1e-10, "atol": 1e-11, "dense_output": True}
    state = solve_ivp(slope, (0, t_end), start.ravel(), "DOP853", **how).sol

    def at(fields, X, n=0):
        """Values (points, fields) between grid points of derivatives of order n."""
        modes = np.fft.rfft(fields, axis=-1) * kept / n_modes * (1j * numbers) ** n
        modes[..., 1:] *= 2
        waves = np.exp(1j * np.outer(X[:, 1], numbers))
        return np.real(np.einsum("pfk,pk->pf", modes, waves))

    rng = np.random.default_rng((draw, 5))
    X = rng.uniform((0, 1), (t_end, 5), (n, 2))
    X_test = rng.uniform((0.03 * t_end, 1.1), (0.97 * t_end, 4.9), (300, 2))
    seen, tested = (
        state(points[:, 0]).T.reshape(len(points), -1, n_modes)
        for points in (X, X_test)
    )
    orders = range(3) if size == 1 else (0, 2)
    columns = [at(tested[:, :size], X_test, n) for n in orders]
    operators = [f"{name}_{'x' * n}".rstrip("_") for n in orders for name in names]
    parts = np.array([last(fields) for fields in tested])
    y, y_test = at(seen[:, :size], X), columns[0]
    settings = {
        "operators": tuple(operators),
        "known_part": tuple(f"{name}_{'t' * order}" for name in names),
        "variables": ("t", "x"),
        "states": names,
    }
    if size == 1:
        settings = settings | {"known_part": f"u_{'t' * order}", "states": None}
        y, y_test = y[:, 0], y_test[:, 0]
    features = np.column_stack([X_test, *columns])
    parts = -at(parts, X_test)
    given = settings, X, y, X_test, y_test
    return SuiteProblem(*given, features=features, parts=parts)


def waves(x, sizes, phase=0.0):
    """Three waves of these sizes."""
    return np.cos(np.outer(x + phase, [1, 2, 3]) + [0.0, 1.0, 2.0]) @ sizes


SLOW = partial(waves, sizes=[0.6, 0.4, -0.2])


def bent():
    """A curve that moves as fast as it is bent."""
    return on_circle(
        lambda x, u: [0.2 * u(0, 2) / (1 + u(0, 1) ** 2)],
        [lambda x: 1.5 * SLOW(x)],
        2.0,
    )


def fifth_power():
    return on_circle(lambda x, u: [0.1 * u(0, 2) + u(0) - u(0) ** 5], [SLOW], 2.0)


def exponential_wave():
    return on_circle(
        lambda x, u: [u(0, 2) + 0.5 - 0.5 * np.exp(u(0))], [SLOW], 3.0, 200, order=2
    )


def capacity():
    """Growth up to a capacity that varies in space."""
    return on_circle(
        lambda x, u: [0.1 * u(0, 2) + u(0) - (1 + 0.5 * np.sin(x)) * u(0) ** 2],
        [lambda x: 0.6 + 0.4 * SLOW(x)],
        3.0,
        200,
    )


def medium():
    """Burgers' equation where speeds vary in space."""
    return on_circle(
        lambda x, u: [0.1 * u(0, 2) - (1 + 0.3 * np.sin(x)) * u(0) * u(0, 1)],
        [lambda x: 0.5 + SLOW(x)],
        1.5,
        200,
    )


def two_fields(rates, t_end, first, second):
    """Two fields that begin with a mean and three waves around it, each a pair."""
    initial = [
        lambda x, mean=mean, sizes=sizes, phase=phase: mean + waves(x, sizes, phase)
        for phase, (mean, sizes) in enumerate((first, second))
    ]
    return on_circle(rates, initial, t_end, names=("u", "v"))


def enzyme():
    """What an enzyme makes of what it eats, while both spread."""

    def rates(x, u):
        eaten = u(0) / (0.5 + u(0))
        return 0.1 * u(0, 2) - eaten, 0.1 * u(1, 2) + eaten - 0.4 * u(1)

    return two_fields(rates, 2.0, (1.2, [0.4, 0.3, -0.3]), (0.5, [0.2, -0.1, 0.1]))


def switch():
    """Two genes that suppress each other, in cells side by side."""

    def rates(x, u):
        return [0.1 * u(i, 2) + 1 / (1 + u(1 - i) ** 2) - 0.5 * u(i) for i in range(2)]

    return two_fields(rates, 4.0, (1.0, [0.6, 0.3, -0.3]), (1.0, [0.5, -0.3, 0.2]))


def hunting():
    """Predators and prey that spread, after Rosenzweig and MacArthur."""

    def rates(x, u):
        eaten = u(0) * u(1) / (0.5 + u(0))
        return (
            0.1 * u(0, 2) + u(0) - u(0) ** 2 - eaten,
            0.05 * u(1, 2) + 0.8 * eaten - 0.3 * u(1),
        )

    first, second = (0.8, [0.15, 0.1, -0.1]), (0.4, [0.1, -0.1, 0.05])
    return two_fields(rates, 6.0, first, second)


def with_inputs(name, values, problem_of):
    """Several functions whose equation depends on a number, the input of this name.

    problem_of(value, draw) is the problem of one of them.
    """
    problems = [problem_of(value, draw) for draw, value in enumerate(values)]

    def labelled(points):
        return np.concatenate(
            [np.column_stack([np.full(len(X), m), X]) for m, X in enumerate(points)]
        )

    def stacked(attribute):
        return np.concatenate([getattr(own, attribute) for own in problems])

    features = [
        np.insert(own.features, 2, value, axis=1)
        for own, value in zip(problems, values, strict=True)
    ]
    inputs = {name: dict(enumerate(values))}
    return replace(
        problems[0],
        settings=problems[0].settings | {"function_column": 0, "inputs": inputs},
        X=labelled([own.X for own in problems]),
        y=stacked("y"),
        X_test=labelled([own.X_test for own in problems]),
        y_test=stacked("y_test"),
        features=np.concatenate(features),
        parts=stacked("parts"),
    )


def viscosities():
    """Burgers' equation in three liquids."""

    def liquid(nu, draw):
        def rates(x, u):
            return [nu * u(0, 2) - u(0) * u(0, 1)]

        start = [lambda x: SLOW(x, phase=2 * draw)]
        return on_circle(rates, start, 1.5, 60, n_modes=288, draw=draw)

    return with_inputs("nu", (0.05, 0.1, 0.2), liquid)


def doses():
    """What spreads and is eaten by an enzyme, of which there are three doses."""

    def dose(d, draw):
        def rates(x, u):
            return [0.1 * u(0, 2) - d * u(0) / (0.5 + u(0))]

        start = [lambda x: 2 + SLOW(x, phase=draw)]
        return on_circle(rates, start, 1.2, 60, draw=draw)

    return with_inputs("d", (0.5, 1.0, 2.0), dose)


def fisheries():
    """Predators and prey that spread, the former fished at two rates."""

    def fishery(f, draw):
        def rates(x, u):
            eaten = u(0) * u(1)
            return [
                0.1 * u(0, 2) + u(0) - eaten,
                0.05 * u(1, 2) + eaten - f * u(1),
            ]

        start = [
            lambda x: 1 + waves(x, [0.4, 0.3, -0.2], draw),
            lambda x: 1 + waves(x, [0.3, -0.2, 0.1], 1 - draw),
        ]
        return on_circle(rates, start, 4.0, 100, names=("u", "v"), draw=draw)

    return with_inputs("f", (0.3, 0.6), fishery)


def static(part, n, plane=False, n_functions=4):
    """The Laplacian + part(u) = f of waves, at n points of each of several functions.

    On a line, where the factor of the Laplacian is unknown, or in a plane.
    """
    rng, d = np.random.default_rng(0), 1 + plane
    k = rng.uniform(-4, 4, (n_functions, 5, d)) * (1.0 if plane else 1.5)
    sizes = rng.standard_normal((n_functions, 5)) * 0.6
    phases = rng.uniform(0, 2 * np.pi, (n_functions, 5))

    def values(points, m, axis=0, order=0):
        angles = points @ k[m].T + phases[m] + order * np.pi / 2
        return np.cos(angles) @ (sizes[m] * k[m, :, axis] ** order)

    def laplacian(points, m):
        return sum(values(points, m, axis, 2) for axis in range(d))

    def forcing(points, m):
        return laplacian(points, m) + part(values(points, m))

    def seen(n, least, most):
        points = [rng.uniform(least, most, (n, d)) for _ in range(n_functions)]
        X = [np.column_stack([np.full(n, m), own]) for m, own in enumerate(points)]
        y = [values(own, m) for m, own in enumerate(points)]
        return points, np.concatenate(X), np.concatenate(y)

    _, X, y = seen(n, 0.0, 1.0)
    points, X_test, y_test = seen(100, 0.03, 0.97)
    second = np.concatenate([laplacian(own, m) for m, own in enumerate(points)])
    slopes = np.concatenate([values(own, m, 0, 1) for m, own in enumerate(points)])
    variables = ("x", "y")[:d]
    settings = {
        "operators": ("u",) if plane else ("u", "u_x", "u_xx"),
        "known_part": "u_xx + u_yy" if plane else None,
        "forcing": {m: partial(forcing, m=m) for m in range(n_functions)},
        "variables": variables,
        "function_column": 0,
    }
    columns = [X_test[:, 1:], y_test]
    features = np.column_stack(columns if plane else [*columns, slopes, second])
    parts = part(y_test) if plane else second + part(y_test)
    given = settings, X, y, X_test, y_test
    return SuiteProblem(*given, features=features, parts=parts[:, None])


def ions():
    """A potential after Poisson and Boltzmann."""
    return static(lambda u: -np.sinh(u), 20)


def membrane():
    """A membrane that is held by a field of the sine of its height."""
    return static(lambda u: -np.sin(2 * u), 40, plane=True)


def cubic(plane=False):
    """A rod, or a plate, that is held the more strongly the more it is bent."""
    return static(lambda u: -(u**3), 40 if plane else 20, plane)


FIELD_LAWS = {
    "bent curve": bent,
    "bent curve 2%": bent,
    "fifth power": fifth_power,
    "fifth power 2%": fifth_power,
    "exponential wave": exponential_wave,
    "capacity": capacity,
    "capacity 2%": capacity,
    "medium": medium,
    "enzyme in space": enzyme,
    "switch in space": switch,
    "hunting in space": hunting,
    "hunting in space 2%": hunting,
    "ions": ions,
    "membrane": membrane,
    "membrane 2%": membrane,
    "rod 2%": cubic,
    "plate": partial(cubic, plane=True),
    "plate 2%": partial(cubic, plane=True),
    "viscosities": viscosities,
    "viscosities 2%": viscosities,
    "doses": doses,
    "fisheries": fisheries,
    "fisheries 2%": fisheries,
}
