"""Fields on rings that had not been tried before, as families of the suite.

Of one to three states, seen at 150 scattered points all around a ring, or in a window
of one: which the fit is not told, and whose ends leave values open. Those families that
guided the package are of few states and moderate order; these were collected where fits
were slow, or wrong.

    python tests/benchmarks/bench_suite.py --families ring
"""

from functools import partial

import numpy as np
from scipy.integrate import solve_ivp
from suite_problems import SuiteProblem

from keql.kernels import parse_monomial

WINDOW = 1.0, 4.0


def fields_on_ring(equations, initial, t_end, derivatives, n=150, **how):
    """Polynomial equations of fields of period 2 pi, seen at n scattered points.

    equations : dict. By state the terms of u_t, {term: coefficient}; or those of u_tt
        under "u_tt", and so of all states.
    initial : sequence of callable. The states at time 0, and u_t there if it is u_tt.
    derivatives : sequence of str. What may be in the equations: "", "x", "xx", ... of
        all states, and "t".
    length : float, default=2 pi. Of the ring.
    window : tuple of float, default=None. Between which points values are seen.
    """
    truth, names, known = _solution(equations, initial, t_end, **how)
    operators = [
        f"{name}_{orders}" if orders else name
        for orders in derivatives
        for name in names
    ]
    low, high = how.get("window") or (0.0, how.get("length", 2 * np.pi))
    rng = np.random.default_rng(0)
    X, X_test = (rng.uniform([0, low], [t_end, high], (m, 2)) for m in (n, 1000))
    settings = {
        "operators": tuple(operators),
        "known_part": known if len(names) > 1 else known[0],
        "variables": ("t", "x"),
        "n_terms": "auto",
    }
    if len(names) > 1:
        settings["states"] = tuple(names)
    y, y_test = (truth(points) for points in (X, X_test))
    terms = {
        name: {term: -c for term, c in own.items()}
        for name, own in zip(known, equations.values(), strict=True)
    }
    return SuiteProblem(settings, X, y, X_test, y_test, terms)


def _solution(equations, initial, t_end, length=2 * np.pi, window=None, n_modes=128):
    """Values of all states at points, their names and those of the known parts."""
    is_wave = all(name.endswith("_tt") for name in equations)
    names = [name.removesuffix("_tt") for name in equations]
    x = length * np.arange(n_modes) / n_modes
    wave = 2j * np.pi / length * np.fft.rfftfreq(n_modes, 1 / n_modes)
    keep = np.arange(len(wave)) <= n_modes // 3
    columns = [f"{u}_{k * 'x'}" if k else u for u in names for k in range(5)]
    columns += [f"{u}_t" for u in names if is_wave]
    products = [
        [(parse_monomial(term, columns), c) for term, c in own.items()]
        for own in equations.values()
    ]

    def rate(_, z):
        modes = np.fft.rfft(z.reshape(len(initial), n_modes))
        D = [np.fft.irfft(wave**k * u, n_modes) for u in modes for k in range(5)]
        slopes = D[5 * len(names) :: 5]
        D = [*D[: 5 * len(names)], *slopes]
        parts = [
            sum(c * np.prod(np.power(np.transpose(D), p), axis=1) for p, c in own)
            for own in products
        ]
        smooth = np.fft.irfft(keep * np.fft.rfft(parts), n_modes)
        return np.concatenate([*slopes, *smooth])

    start = np.concatenate([own(x) for own in initial])
    how = {"dense_output": True, "rtol": 1e-10, "atol": 1e-11}
    found = solve_ivp(rate, (0, t_end), start, "LSODA", **how)

    def truth(X):
        phases = np.exp(np.outer(X[:, 1], wave)) / n_modes
        values = found.sol(X[:, 0]).T.reshape(len(X), len(initial), n_modes)
        modes = np.fft.rfft(values[:, : len(names)])
        modes[..., 1:-1] *= 2
        states = np.real(np.einsum("im,ism->is", phases, modes))
        return states if len(names) > 1 else states[:, 0]

    return truth, names, tuple(f"{u}_{'tt' if is_wave else 't'}" for u in names)


def _cosine(mean, *parts):
    """A function: mean + the sum of size cos(k x + phase) for (k, size, phase)."""
    return lambda x: mean + sum((a * np.cos(k * x + p) for k, a, p in parts), 0 * x)


def _sine(k, size):
    return k, size, -np.pi / 2


def attracted(strength, diffusion, size, t_end):
    """Cells u that follow the gradient of a substance v of theirs, of some diffusion.

    u_t = 0.1 u_xx - strength (u v_x)_x; `size` is that of the first wave of v.
    """
    terms = {"u_xx": 0.1, "u_x v_x": -strength, "u v_xx": -strength}
    equations = {"u": terms, "v": {"u": 1, "v": -1, "v_xx": diffusion}}
    initial = _cosine(1.0, (1, 0.2, 0.0)), _cosine(1.0, _sine(1, size))
    return fields_on_ring(equations, initial, t_end, ("", "x", "xx"))


def coupled_waves(**how):
    """Two fields of Klein and Gordon, each of which adds to the mass of the other."""
    equations = {
        "u_tt": {"u_xx": 1, "u": -1, "u v^2": -1},
        "v_tt": {"v_xx": 1, "v": -1, "u^2 v": -1},
    }
    initial = (*TWO_WAVES, AT_REST, AT_REST)
    return fields_on_ring(equations, initial, 3.0, ("", "xx"), **how)


THIRD, FOURTH = ("", "x", "xx", "xxx"), ("", "x", "xx", "xxxx")
AT_REST = _cosine(0.0)
TWO_WAVES = (
    _cosine(0.0, (1, 0.6, 0.0), (2, 0.4, 1.0), (3, -0.2, 2.0)),
    _cosine(0.0, (1, 0.6, 0.5), (2, 0.4, 2.0), (3, -0.2, 1.0)),
)
PROBLEMS = {
    "three species": lambda: fields_on_ring(
        {
            "u": {"u": 1, "u^2": -1, "u v": -0.6, "u w": -0.3, "u_xx": 0.05},
            "v": {"v": 0.8, "v^2": -1, "u v": -0.5, "v w": -0.7, "v_xx": 0.03},
            "w": {"w": 0.9, "w^2": -1, "u w": -0.8, "v w": -0.4, "w_xx": 0.04},
        },
        (
            _cosine(0.4, (1, 0.2, 0.0)),
            _cosine(0.3, _sine(1, 0.2)),
            _cosine(0.3, (2, 0.1, 0.0)),
        ),
        5.0,
        ("", "xx"),
    ),
    "three excitable": lambda: fields_on_ring(
        {
            "u": {"u": 1, "u^3": -1, "v": -1, "w": -0.5, "u_xx": 0.05},
            "v": {"u": 0.3, "v": -0.2, "v_xx": 0.02},
            "w": {"u": 0.5, "w": -0.4, "w_xx": 0.1},
        },
        (
            _cosine(0.0, (1, 0.8, 0.0)),
            _cosine(0.0, _sine(1, 0.3)),
            _cosine(0.0, (2, 0.2, 0.0)),
        ),
        5.0,
        ("", "xx"),
    ),
    "prey and predator": lambda: fields_on_ring(
        {
            "u": {"u": 1, "u^2": -1, "u v": -0.8, "u_xx": 0.05},
            "v": {"v": -0.4, "u v": 0.9, "v_xx": 0.1},
        },
        (_cosine(0.6, (1, 0.3, 0.0)), _cosine(0.4, _sine(1, 0.2))),
        6.0,
        ("", "xx"),
    ),
    "chemotaxis": lambda: attracted(0.5, 0.1, 0.2, 4.0),
    "aggregation": lambda: attracted(0.3, 0.05, 0.1, 3.0),
    "coupled burgers": lambda: fields_on_ring(
        {
            "u": {"u_xx": 0.1, "u u_x": -1, "u v_x": -0.5, "v u_x": -0.5},
            "v": {"v_xx": 0.2, "v v_x": -1},
        },
        (_cosine(0.0, _sine(1, 1.0)), _cosine(0.0, (1, 0.5, 0.0))),
        2.0,
        ("", "x", "xx"),
    ),
    "schroedinger": lambda: fields_on_ring(
        {
            "u": {"v_xx": -0.5, "u^2 v": -1, "v^3": -1},
            "v": {"u_xx": 0.5, "u^3": 1, "u v^2": 1},
        },
        (_cosine(1.0, (1, 0.3, 0.0)), _cosine(0.0, _sine(1, 0.2))),
        3.0,
        ("", "xx"),
    ),
    "counterflow": lambda: fields_on_ring(
        {
            "u": {"u_x": -1, "v": 0.5, "u": -0.5},
            "v": {"v_x": 1, "u": 0.5, "v": -0.5},
        },
        (_cosine(1.0, (1, 0.5, 0.0)), _cosine(0.0, _sine(1, 0.5), (2, 0.3, 0.0))),
        3.0,
        ("", "x"),
    ),
    "modified kdv": lambda: fields_on_ring(
        {"u": {"u^2 u_x": -1, "u_xxx": -0.1}},
        (_cosine(1.0, (1, 0.4, 0.0), _sine(2, 0.2)),),
        3.0,
        THIRD,
    ),
    "benney": lambda: fields_on_ring(
        {"u": {"u u_x": -1, "u_xx": -0.3, "u_xxx": -0.2, "u_xxxx": -0.1}},
        (_cosine(0.0, (1, 0.8, 0.0), _sine(2, 0.3)),),
        4.0,
        (*THIRD, "xxxx"),
    ),
    "thin film": lambda: fields_on_ring(
        {"u": {"u u_xxxx": -0.1, "u_x u_xxx": -0.1}},
        (_cosine(1.0, (1, 0.5, 0.0), _sine(2, 0.2)),),
        3.0,
        (*THIRD, "xxxx"),
    ),
    "beam": lambda: fields_on_ring(
        {"u_tt": {"u_xxxx": -0.1, "u_t": -0.2}},
        (_cosine(0.0, (1, 1.0, 0.0), _sine(2, 0.4), (3, 0.2, 0.0)), AT_REST),
        4.0,
        ("", "t", "xx", "xxxx"),
    ),
    "damped cubic wave": lambda: fields_on_ring(
        {"u_tt": {"u_xx": 1, "u": -1, "u^3": 0.5, "u_t": -0.2}},
        (_cosine(0.0, (1, 0.8, 0.0), _sine(1, 0.3)), AT_REST),
        5.0,
        ("", "t", "x", "xx"),
    ),
    "boussinesq": lambda: fields_on_ring(
        {"u_tt": {"u_xx": 1, "u u_xx": 0.4, "u_x^2": 0.4, "u_xxxx": -0.1}},
        (_cosine(0.0, (1, 0.5, 0.0), _sine(2, 0.2)), AT_REST),
        3.0,
        FOURTH,
    ),
    "coupled waves": lambda: coupled_waves(),
    "window coupled waves": lambda: coupled_waves(window=WINDOW),
    "damped pair": lambda: fields_on_ring(
        {
            "u_tt": {"u_xx": 1, "v": -1, "u_t": -0.4},
            "v_tt": {"v_xx": 0.6, "u_t": 0.3, "v_t": -0.3},
        },
        (*TWO_WAVES, AT_REST, AT_REST),
        3.0,
        ("", "t", "xx"),
        window=WINDOW,
    ),
    "window cahn hilliard": lambda: fields_on_ring(
        {"u": {"u u_x^2": 1.2, "u^2 u_xx": 0.6, "u_xx": -0.2, "u_xxxx": -0.02}},
        (_cosine(0.0, (1, 0.3, 0.0), _sine(2, 0.3)),),
        3.0,
        FOURTH,
        window=WINDOW,
    ),
    "cubic decay": lambda: fields_on_ring(
        {
            "u": {"u_xx": 0.114, "u^3": -0.861, "v": -0.166, "u": -0.773},
            "v": {"v_xx": 0.235, "u v": -0.441},
        },
        (
            _cosine(0.5, (1, 0.335, 3.59), (2, 0.160, 1.23)),
            _cosine(-0.2, (1, 0.671, 5.71), (2, 0.248, 2.48)),
        ),
        2.5,
        ("", "x", "xx"),
    ),
    "window gray scott": lambda: fields_on_ring(
        {
            "u": {"1": 0.4, "u": -0.4, "u v^2": -1, "u_xx": 0.05},
            "v": {"v": -0.3, "u v^2": 1, "v_xx": 0.02},
        },
        (_cosine(0.6, (1, 0.2, 0.0)), _cosine(0.5, _sine(1, 0.2))),
        4.0,
        ("", "xx"),
        window=WINDOW,
    ),
}


def random_pair(draw):
    """Two fields that diffuse and react, with one to three random terms more each."""
    rng = np.random.default_rng((draw, 12))

    def right(own, other):
        products = {
            own: (-1, 1),
            other: (-1, 1),
            "u v": (-0.6, 0.6),
            f"{own}^2": (-0.6, 0.6),
            f"{own}^3": (-1, -0.3),
            f"{own}_x": (-0.5, 0.5),
            "1": (-0.5, 0.5),
        }
        values = [(name, rng.uniform(*limits)) for name, limits in products.items()]
        chosen = rng.permutation(len(values))[: rng.integers(1, 4)]
        return dict(values[i] for i in chosen) | {f"{own}_xx": rng.uniform(0.05, 0.3)}

    while True:
        equations = {"u": right("u", "v"), "v": right("v", "u")}
        sizes, phases = rng.uniform(0.3, 0.8, (2, 2)), rng.uniform(0, 2 * np.pi, (2, 2))
        sizes[:, 1] /= 2
        parts = [
            [(1, size[0], phase[0]), (2, size[1], phase[1])]
            for size, phase in zip(sizes, phases, strict=True)
        ]
        initial = _cosine(0.5, *parts[0]), _cosine(-0.2, *parts[1])
        try:
            with np.errstate(all="raise"):
                problem = fields_on_ring(equations, initial, 2.5, ("", "x", "xx"))
        except FloatingPointError:  # they grow beyond all bounds
            continue
        if np.max(np.abs(problem.y)) < 4:
            return problem


def rings(n_random=6):
    """Functions from the number of a draw to a problem, by family and name.

    Of pairs that are drawn at random there are `n_random`.
    """

    def problem(draw, make, noise):
        found = make()
        return found.with_noise(noise, draw) if noise else found

    pairs = {f"pair {i}": partial(random_pair, i) for i in range(n_random)}
    return {
        (f"ring{ending}", name): partial(problem, make=make, noise=noise)
        for noise, ending in ((0.0, ""), (0.02, " 2%"))
        for name, make in (PROBLEMS | pairs).items()
    }
