"""Flows of three states with five or six terms, most of them chaotic.

Those that Sprott found, "Some simple chaotic flows", Physical Review E 50, 1994, cases
A to S, but L, which leaves from the initial values here; the flows of Chen and Ueta
(1999), Rikitake (1958) and Lorenz (1984); and Halvorsen's. Each is seen at 120 equal
times of 4 to 40 units, exactly and with 2 % noise.

    python tests/benchmarks/bench_suite.py --families flow
"""

from functools import partial

from suite_problems import polynomial_system

# Right-hand sides as {product: coefficient} of x, y and z; initial values; the end.
FLOWS = {
    "sprott A": (
        ({"y": 1}, {"x": -1, "y z": 1}, {"1": 1, "y^2": -1}),
        (0, 5, 0),
        30,
    ),
    "sprott B": (
        ({"y z": 1}, {"x": 1, "y": -1}, {"1": 1, "x y": -1}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott C": (
        ({"y z": 1}, {"x": 1, "y": -1}, {"1": 1, "x^2": -1}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott D": (
        ({"y": -1}, {"x": 1, "z": 1}, {"x z": 1, "y^2": 3}),
        (0.05, 0.05, 0.05),
        30,
    ),
    "sprott E": (
        ({"y z": 1}, {"x^2": 1, "y": -1}, {"1": 1, "x": -4}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott F": (
        ({"y": 1, "z": 1}, {"x": -1, "y": 0.5}, {"x^2": 1, "z": -1}),
        (0.05, 0.05, 0.4),
        30,
    ),
    "sprott G": (
        ({"x": 0.4, "z": 1}, {"x z": 1, "y": -1}, {"x": -1, "y": 1}),
        (0.05, 0.05, 0.4),
        30,
    ),
    "sprott H": (
        ({"y": -1, "z^2": 1}, {"x": 1, "y": 0.5}, {"x": 1, "z": -1}),
        (0.05, 0.05, 0.4),
        30,
    ),
    "sprott I": (
        ({"y": -0.2}, {"x": 1, "z": 1}, {"x": 1, "y^2": 1, "z": -1}),
        (0.05, 0.05, 0.4),
        40,
    ),
    "sprott J": (
        ({"z": 2}, {"y": -2, "z": 1}, {"x": -1, "y": 1, "y^2": 1}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott K": (
        ({"x y": 1, "z": -1}, {"x": 1, "y": -1}, {"x": 1, "z": 0.3}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott M": (
        ({"z": -1}, {"x^2": -1, "y": -1}, {"1": 1.7, "x": 1.7, "y": 1}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott N": (
        ({"y": -2}, {"x": 1, "z^2": 1}, {"1": 1, "y": 1, "z": -2}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott O": (
        ({"y": 1}, {"x": 1, "z": -1}, {"x": 1, "x z": 1, "y": 2.7}),
        (0.05, 0.05, 0.4),
        30,
    ),
    "sprott P": (
        ({"y": 2.7, "z": 1}, {"x": -1, "y^2": 1}, {"x": 1, "y": 1}),
        (0.05, 0.05, 0.4),
        30,
    ),
    "sprott Q": (
        ({"z": -1}, {"x": 1, "y": -1}, {"x": 3.1, "y^2": 1, "z": 0.5}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott R": (
        ({"1": 0.9, "y": -1}, {"1": 0.4, "z": 1}, {"x y": 1, "z": -1}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "sprott S": (
        ({"x": -1, "y": -4}, {"x": 1, "z^2": 1}, {"1": 1, "x": 1}),
        (0.05, 0.5, 0.4),
        30,
    ),
    "chen": (
        (
            {"x": -35, "y": 35},
            {"x": -7, "x z": -1, "y": 28},
            {"x y": 1, "z": -3},
        ),
        (-3, 2, 20),
        4,
    ),
    "halvorsen": (
        (
            {"x": -1.4, "y": -4, "z": -4, "y^2": -1},
            {"y": -1.4, "z": -4, "x": -4, "z^2": -1},
            {"z": -1.4, "x": -4, "y": -4, "x^2": -1},
        ),
        (-5, 0, 0),
        12,
    ),
    "rikitake": (
        (
            {"x": -1, "y z": 1},
            {"y": -1, "x z": 1, "x": -3},
            {"1": 1, "x y": -1},
        ),
        (1, 0, 2),
        25,
    ),
    "lorenz 1984": (
        (
            {"y^2": -1, "z^2": -1, "x": -0.25, "1": 2},
            {"x y": 1, "x z": -4, "y": -1, "1": 1},
            {"x y": 4, "x z": 1, "z": -1},
        ),
        (1, 1, 1),
        15,
    ),
}


def flows():
    """Functions from the number of a draw to a problem, by family and name."""
    return {
        ("flow", f"{name} 2%" if noise else name): partial(flow, name, noise)
        for name in FLOWS
        for noise in (0.0, 0.02)
    }


def flow(name, noise, draw):
    """A flow at 120 equal times, with noise of a part of each standard deviation."""
    right, initial, t_end = FLOWS[name]
    states = dict(zip("xyz", right, strict=True))
    return polynomial_system(states, [*initial], t_end, 120).with_noise(noise, draw)
