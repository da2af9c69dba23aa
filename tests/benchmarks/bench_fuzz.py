"""How wrong calls end: thousands of valid calls, each with one argument changed.

    python tests/benchmarks/bench_fuzz.py --calls 10000 --seed 0

Outcomes are counted, and all but the good ones are listed:

- clear: an error of a kind that users expect, whose message names the argument;
- ran: the call ran, and nothing says that it should not have;
- obscure: an error from the inside, or one that does not name the argument;
- nonsense: the call ran, although the argument has no meaning;
- wrong: the argument means what it meant before, but the answer differs;
- hang, memory: the call took longer than `--limit` seconds, or more than `--gigabytes`.
"""

import argparse
import contextlib
import io
import re
import resource
import signal
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd
from scipy import sparse

import keql.datasets
import keql.kernels
import keql.metrics
import keql.operators
import keql.plotting
from keql import (
    Equation,
    KernelPDESolver,
    OneStepKEqL,
    ReducedOneStepKEqL,
    SimulationError,
    TwoStepKEqL,
)
from keql.kernels import RBF, Matern, Polynomial


@dataclass
class Case:
    """A valid call: a function of its arguments, what each of them is, its answer."""

    name: str
    call: object
    arguments: dict
    roles: dict


class Opaque:
    """Something that no argument can be."""

    def __repr__(self):
        return "Opaque()"


class ArrayLike:
    """What NumPy can make an array of."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)


class Raises:
    """A callable that fails."""

    def __call__(self, *args):
        raise ZeroDivisionError("own failure")


def wrong_shape(points):
    """Returns too few values."""
    return np.ones(len(points) - 1 if np.ndim(points) else 1)


def nothing(*args):
    """Returns nothing."""


def text(*args):
    """Returns text."""
    return "abc"


def not_vectorised(points):
    """Works for a single number only."""
    return 1.0 if points > 0 else 0.0


def no_arguments():
    """Takes no argument."""
    return 1.0


def random_values(points):
    """Returns other values each time."""
    return np.random.default_rng().normal(size=len(points))


def numpy_part(u):
    """A function in numpy, where one in autograd.numpy is needed."""
    return np.asarray([float(v) for v in u]) ** 2


def strange_part(u, q):
    """A function of something that is not there."""
    return u + q


# For each role: label, value or function of the valid value, and what must happen:
# "refuse", "same" (the answer of the valid call), or "any".
JUNK = [
    ("opaque", Opaque(), "refuse"),
    ("text", "abc", "refuse"),
    ("empty text", "", "refuse"),
    ("bytes", b"abc", "refuse"),
    ("complex", 1j, "refuse"),
    ("nan", float("nan"), "refuse"),
    ("inf", float("inf"), "any"),
    ("empty dict", {}, "any"),
    ("empty list", [], "any"),
    ("set", {1, 2}, "refuse"),
    ("class", RBF, "refuse"),
    ("none", None, "any"),
    ("negative", -1, "any"),
    ("zero", 0, "any"),
    ("half", 0.5, "any"),
    ("huge", 10**9, "any"),
    ("nested", {"a": {"b": None}}, "refuse"),
    ("nothing inside", (None,), "any"),
    ("bool", True, "any"),
    ("numpy integer", np.int64(3), "any"),
    ("array of no dimension", np.array(2.0), "any"),
    ("decimal", Decimal(1), "any"),
    ("random state", np.random.RandomState(0), "any"),
]


def _junk(**verdicts):
    """The junk, with other verdicts for some of it."""
    names = {name.replace(" ", "_"): name for name, _, _ in JUNK}
    changed = {names[key.strip("_")]: verdict for key, verdict in verdicts.items()}
    return [(n, value, changed.get(n, verdict)) for n, value, verdict in JUNK]


def _framed(X):
    return pd.DataFrame(np.asarray(X), columns=["t", "x", "z"][: np.shape(X)[1]])


def _spoil(value):
    """A function that puts a value into the middle of an array."""

    def spoiled(x):
        x = np.array(x, dtype=float)
        x[len(x) // 2] = value
        return x

    return spoiled


TABLE = [
    ("list", lambda x: np.asarray(x).tolist(), "same"),
    ("fortran", lambda x: np.asfortranarray(x), "same"),
    ("strided", lambda x: np.repeat(np.asarray(x), 2, axis=0)[::2], "same"),
    ("object", lambda x: np.asarray(x).astype(object), "same"),
    ("longdouble", lambda x: np.asarray(x).astype(np.longdouble), "same"),
    ("big endian", lambda x: np.asarray(x).astype(">f8"), "same"),
    ("read only", lambda x: _locked(x), "same"),
    ("masked", lambda x: _masked(x), "refuse"),
    ("not masked", lambda x: np.ma.masked_array(x), "any"),
    ("sparse", lambda x: sparse.csr_matrix(np.atleast_2d(x)), "refuse"),
    ("text inside", lambda x: _with_text(x), "refuse"),
    ("bytes", lambda x: np.asarray(x).astype("S8"), "any"),
    ("complex", lambda x: np.asarray(x) + 1j, "refuse"),
    ("nan", _spoil(np.nan), "any"),
    ("inf", _spoil(np.inf), "refuse"),
    ("overflow", lambda x: np.asarray(x) * 1e300, "any"),
    ("tiny", lambda x: np.asarray(x) * 1e-300, "any"),
    ("empty", lambda x: np.asarray(x)[:0], "refuse"),
    ("one row", lambda x: np.asarray(x)[:1], "any"),
    ("one more", lambda x: np.concatenate([x, x[:1]]), "any"),
    ("three dimensions", lambda x: np.asarray(x)[..., None, None], "refuse"),
    ("transposed", lambda x: np.asarray(x).T, "any"),
    ("ragged", lambda x: [[1.0], [1.0, 2.0]], "refuse"),
    ("dates", lambda x: np.asarray(x).astype("datetime64[s]"), "refuse"),
    ("bool", lambda x: np.asarray(x) > 1, "any"),
    ("string", lambda x: "abc", "refuse"),
    ("none", lambda x: None, "any"),
    ("opaque", lambda x: Opaque(), "refuse"),
    ("dict", lambda x: {"a": 1}, "refuse"),
    ("generator", lambda x: (row for row in x), "any"),
    ("scalar", lambda x: 1.0, "any"),
    ("constant", lambda x: np.ones_like(x), "any"),
    ("callable", lambda x: np.sin, "refuse"),
    ("half precision", lambda x: np.asarray(x).astype(np.float16), "any"),
    ("None inside", lambda x: _with_inside(x, None), "any"),
    ("decimals", lambda x: _with_inside(x, Decimal("0.5")), "any"),
    ("huge integer inside", lambda x: _with_inside(x, 10**400), "any"),
    ("durations", lambda x: np.asarray(x).astype("timedelta64[s]"), "refuse"),
    ("wrapped integers", lambda x: np.asarray(x).astype(np.uint8) - np.uint8(5), "any"),
    ("rows twice", lambda x: np.repeat(np.asarray(x), 2, axis=0), "any"),
    ("records", lambda x: np.rec.fromarrays([np.ravel(x)], names="a"), "any"),
    ("array protocol", lambda x: ArrayLike(x), "any"),
    ("memory view", lambda x: memoryview(np.array(x)), "any"),
    ("alternating sizes", lambda x: np.asarray(x) * _alternating(x), "any"),
]
FRAMES = [
    ("frame", _framed, "same"),
    ("frame in another order", lambda x: _framed(x).iloc[:, ::-1], "same"),
    ("frame called otherwise", lambda x: _framed(x).add_suffix("_cm"), "any"),
    ("column twice", lambda x: pd.concat([_framed(x)] * 2, axis=1), "refuse"),
    ("column too many", lambda x: _framed(x).assign(z=1.0), "refuse"),
    ("column of text", lambda x: _framed(x).assign(t="a"), "refuse"),
    ("nullable frame", lambda x: _framed(x).convert_dtypes(), "same"),
    ("frame of categories", lambda x: _framed(x).astype("category"), "any"),
    ("row names", lambda x: _framed(x).set_index(np.arange(len(x))[::-1]), "same"),
    ("frame of numbers", lambda x: pd.DataFrame(np.asarray(x)), "any"),
    ("two-level columns", lambda x: pd.concat({"a": _framed(x)}, axis=1), "any"),
    ("two-level rows", lambda x: pd.concat({"a": _framed(x)}), "same"),
    ("NA in a frame", lambda x: _framed(x).convert_dtypes().mask(_first), "any"),
]
FUNCTIONS = [
    ("wrong shape", wrong_shape, "refuse"),
    ("raises", Raises(), "refuse"),
    ("returns None", nothing, "refuse"),
    ("returns text", text, "refuse"),
    ("not vectorised", not_vectorised, "refuse"),
    ("no arguments", no_arguments, "refuse"),
    ("random", random_values, "refuse"),
    ("two arguments", lambda a, b: a, "refuse"),
    ("nan values", lambda p: np.full(len(p), np.nan), "refuse"),
    ("complex values", lambda p: np.full(len(p), 1j), "refuse"),
]
POOLS = {
    "points": TABLE + FRAMES,
    "values": TABLE,
    "weights": [*TABLE, ("negative", lambda x: -np.asarray(x), "refuse")],
    "number": _junk(
        negative="refuse", none="any", empty_dict="any", empty_list="refuse"
    ),
    "count": _junk(
        inf="refuse",
        negative="refuse",
        half="refuse",
        empty_list="refuse",
        nothing_inside="refuse",
    ),
    "kernel": [
        *_junk(negative="refuse", zero="refuse", empty_list="refuse"),
        ("matern too rough", Matern(1.0, nu=0.5), "any"),
        ("nan length", RBF(float("nan")), "refuse"),
        ("negative length", RBF(-1.0), "refuse"),
        ("two lengths", RBF([1.0, 2.0]), "any"),
        ("three lengths", RBF([1.0, 2.0, 3.0]), "refuse"),
        ("other column", RBF(1.0, active_dims=("q",)), "refuse"),
        ("kernel of classes", {"u": RBF}, "refuse"),
        ("other state", {"w": RBF(1.0)}, "refuse"),
        ("function", np.exp, "refuse"),
        ("huge polynomial", Polynomial(200), "any"),
        ("degree 0", Polynomial(0), "any"),
        ("degree half", Polynomial(1.5), "refuse"),
    ],
    "operators": [
        *_junk(
            empty_list="any", negative="refuse", zero="refuse", nothing_inside="refuse"
        ),
        ("twice", lambda x: (*x, x[0]), "same"),
        ("list", list, "same"),
        ("unknown", ("q",), "refuse"),
        ("unknown derivative", ("u_q",), "refuse"),
        ("empty name", ("",), "refuse"),
        ("high order", ("u_" + "t" * 40,), "any"),
        ("numbers", (1, 2, 3), "refuse"),
        ("zero operator", ("u - u",), "refuse"),
        ("recursive", lambda x: _recursive(), "refuse"),
        ("long", ("u + " * 3000 + "u",), "any"),
    ],
    "known_part": [
        *_junk(negative="refuse", zero="refuse"),
        *[row for row in FUNCTIONS if row[0] != "wrong shape"],
        ("numpy", numpy_part, "refuse"),
        ("strange", strange_part, "refuse"),
        ("nan coefficient", {"u_t": float("nan")}, "refuse"),
        ("text coefficient", {"u_t": "1"}, "refuse"),
        ("zero coefficient", {"u_t": 0.0}, "any"),
        ("unknown operator", {"q_t": 1.0}, "refuse"),
        ("recursive", lambda x: _recursive(), "refuse"),
    ],
    "function": [
        *_junk(empty_list="refuse", negative="any", zero="any"),
        *FUNCTIONS,
    ],
    "names": [
        *_junk(negative="refuse", zero="refuse", huge="refuse", half="refuse"),
        ("twice", lambda x: (x[0], x[0]), "refuse"),
        ("too many", lambda x: (*x, "z9"), "any"),
        ("spaces", lambda x: (" ",) * len(x), "refuse"),
        ("numbers", lambda x: tuple(range(len(x))), "refuse"),
        ("list", list, "same"),
    ],
    "column": [
        *_junk(negative="any", zero="any", huge="refuse", half="refuse"),
        ("bool", True, "any"),
    ],
    "choice": _junk(class_="any", negative="refuse", half="refuse", huge="refuse"),
    "flag": _junk(zero="any"),
    "jobs": [*_junk(negative="any", half="refuse", huge="any"), ("0", 0, "refuse")],
    "dict": [
        *_junk(negative="refuse", zero="refuse", half="refuse", huge="refuse"),
        ("unknown entry", {"nobody": 1.0}, "any"),
        ("number as name", {1: 1.0}, "refuse"),
    ],
    "collocation": [*TABLE, *FRAMES, *_junk(negative="refuse", zero="refuse")],
    "axes": [*_junk(), ("figure", lambda x: _figure(), "refuse")],
    "any": JUNK,
    "object": _junk(none="refuse", negative="refuse", zero="refuse", huge="refuse"),
}
POOLS["numbers"] = [
    (name, value, "any" if name in {"inf", "empty"} else verdict)
    for name, value, verdict in TABLE
]
POOLS["real"] = _junk(negative="any")
POOLS["collocation"] = [
    (name, value, "any" if name in {"none", "scalar", "empty list"} else verdict)
    for name, value, verdict in POOLS["collocation"]
]


def _locked(x):
    x = np.array(x)
    x.flags.writeable = False
    return x


def _masked(x):
    x = np.ma.masked_array(x, mask=False)
    x[0] = np.ma.masked
    return x


def _with_text(x):
    return _with_inside(x, "abc")


def _with_inside(x, value):
    """An array of objects, the first of them a value."""
    x = np.asarray(x).astype(object)
    x[(0,) * x.ndim] = value
    return x


def _alternating(x):
    """Factors of 1e-150 and 1e150 in turns, for the rows of an array."""
    factors = 10.0 ** (150 * (-1.0) ** np.arange(len(x)))
    return factors.reshape(-1, *[1] * (np.ndim(x) - 1))


def _first(frame):
    """Where a frame has its first row."""
    return np.arange(len(frame))[:, None] + np.zeros(frame.shape[1]) == 0


def _recursive():
    own = []
    own.append(own)
    return own


def _figure():
    import matplotlib.pyplot as plt

    plt.close("all")
    return plt.figure()


# ---------------------------------------------------------------------------- the calls
T = np.linspace(0, 3, 12)[:, None]
EXACT = np.exp(-T[:, 0])
RNG = np.random.default_rng(0)
PLANE = RNG.uniform(size=(20, 2))
HEAT = np.exp(-PLANE[:, 0]) * np.sin(PLANE[:, 1])
WHERE = np.linspace(0.1, 2.9, 7)[:, None]
LEARNER = {
    "operators": ("u",),
    "known_part": "u_t",
    "collocation_points": np.linspace(0, 3, 15)[:, None],
    "forcing": lambda points: 0 * points[:, 0],
    "variables": ("t",),
    "function_column": None,
    "operator_column": None,
    "inputs": None,
    "states": ("u",),
    "equations": None,
    "units": {"t": "s"},
    "state_kernel": RBF(1.0, "fixed"),
    "equation_kernel": Polynomial(1),
    "observation_noise": 1e-3,
    "equation_noise": 1e-3,
    "state_penalty": 1.0,
    "n_inducing": 50,
    "optimizer": None,
    "n_restarts": 0,
    "verbose": 0,
    "random_state": 0,
}
ONE_STEP = {
    **LEARNER,
    "n_terms": None,
    "solver": "dual",
    "max_iter": 20,
    "tol": 1e-6,
    "warm_start": False,
    "n_jobs": None,
}
ROLES = {
    "X": "points",
    "y": "values",
    "sample_weight": "weights",
    "operators": "operators",
    "known_part": "known_part",
    "equation": "known_part",
    "collocation_points": "collocation",
    "forcing": "function",
    "variables": "names",
    "states": "names",
    "function_column": "column",
    "operator_column": "column",
    "inputs": "dict",
    "equations": "any",
    "units": "dict",
    "state_kernel": "kernel",
    "equation_kernel": "kernel",
    "observation_noise": "number",
    "equation_noise": "number",
    "state_penalty": "number",
    "n_inducing": "count",
    "n_basis": "count",
    "n_terms": "count",
    "optimizer": "choice",
    "solver": "choice",
    "n_restarts": "count",
    "max_iter": "count",
    "tol": "number",
    "warm_start": "flag",
    "n_jobs": "jobs",
    "verbose": "any",
    "random_state": "any",
    "n_windows": "count",
    "boundary_operators": "operators",
}


def fits(kind, X, y, where, **settings):
    """A case of fitting and predicting, with all arguments of `fit` as well."""

    def call(X, y, sample_weight=None, **params):
        model = kind(**params)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        return model.fit(X, y, **weights).predict(where)

    arguments = {"X": X, "y": y, **settings}
    if kind is not KernelPDESolver:
        arguments["sample_weight"] = np.ones(len(X))
    roles = {name: ROLES[name] for name in arguments}
    return Case(kind.__name__ + ".fit", call, arguments, roles)


def fit_cases():
    """Cases of fitting: an ODE, a system, a PDE, functions, and a solver."""
    yield fits(TwoStepKEqL, T, EXACT, WHERE, **LEARNER)
    yield fits(OneStepKEqL, T, EXACT, WHERE, **ONE_STEP)
    reduced = ONE_STEP | {"n_basis": 8}
    yield fits(ReducedOneStepKEqL, T, EXACT, WHERE, **reduced)
    exact = ONE_STEP | {"state_kernel": None, "solver": "auto", "equation_noise": None}
    yield fits(OneStepKEqL, T, EXACT, WHERE, **exact)
    pair = np.column_stack([np.sin(T), np.cos(T)])
    system = {
        "operators": ("u", "v"),
        "known_part": ("u_t", "v_t"),
        "states": ("u", "v"),
        "forcing": None,
    }
    yield fits(OneStepKEqL, T, pair, WHERE, **ONE_STEP | system)
    plane = {
        "operators": ("u", "u_xx"),
        "variables": ("t", "x"),
        "collocation_points": PLANE[:10],
        "units": None,
    }
    yield fits(OneStepKEqL, PLANE, HEAT, PLANE[:5], **ONE_STEP | plane)
    yield fits(TwoStepKEqL, PLANE, HEAT, PLANE[:5], **LEARNER | plane)
    labels = np.repeat([[1.0], [2.0]], 12, axis=0)
    stacked = np.hstack([np.vstack([T, T]), labels])
    both = np.concatenate([EXACT, 2 * EXACT])
    some = np.hstack([WHERE, np.ones_like(WHERE)])
    functions = {"function_column": 1, "inputs": {"p": {1.0: 1.0, 2.0: 2.0}}}
    case = fits(OneStepKEqL, stacked, both, some, **ONE_STEP | functions)
    case.roles["X"] = "values"  # the column of labels is one by its position
    yield case
    ends = np.array([[0.0], [3.0]])
    solver = {
        "equation": {"u_tt": 1, "u": 1},
        "collocation_points": np.linspace(0, 3, 15)[:, None],
        "forcing": lambda points: points[:, 0],
        "variables": ("t",),
        "states": ("u",),
        "inputs": None,
        "units": {"t": "s"},
        "boundary_operators": ("u",),
        "operator_column": None,
        "function_column": None,
        "state_kernel": RBF(1.0),
        "observation_noise": 0.0,
        "equation_noise": 0.0,
        "n_windows": 1,
        "max_iter": 10,
        "tol": 1e-4,
        "n_jobs": None,
        "verbose": 0,
    }
    yield fits(KernelPDESolver, ends, np.array([0.0, 1.0]), WHERE, **solver)


def method_cases():
    """Cases of what is asked of fitted models."""
    ode = OneStepKEqL(**ONE_STEP).fit(T, EXACT)
    heat = {"operators": ("u", "u_xx"), "variables": ("t", "x"), "units": None}
    heat["collocation_points"] = PLANE[:10]
    field = TwoStepKEqL(**LEARNER | heat).fit(PLANE, HEAT)
    for model, X, y in (ode, WHERE, np.exp(-WHERE[:, 0])), (field, PLANE, HEAT):
        flag = {"X": X, "return_std": False}
        kinds = {"X": "points", "return_std": "flag"}
        yield Case("predict", model.predict, flag, kinds)
        derived = {"X": X, "operator": "u_t", "return_std": False}
        how = kinds | {"operator": "operator"}
        yield Case("predict_derivative", model.predict_derivative, derived, how)
        scored = {"X": X, "y": y, "sample_weight": np.ones(len(X))}
        how = {"X": "points", "y": "values", "sample_weight": "weights"}
        yield Case("score", model.score, scored, how)
        yield Case("coordinates", model.coordinates, {"X": X}, {"X": "points"})
    later = {"X": WHERE + 3, "return_std": False}
    kinds = {"X": "points", "return_std": "flag"}
    yield Case("forecast", ode.forecast, later, kinds)
    simulated = {
        "t_eval": np.linspace(0, 1, 5),
        "initial": [1.0],
        "forcing": lambda points: 0 * points[:, 0],
        "inputs": None,
        "return_std": False,
        "method": "DOP853",
        "rtol": 1e-6,
        "max_evaluations": 10_000,
        "max_seconds": 5.0,
    }
    how = {
        "t_eval": "values",
        "initial": "values",
        "forcing": "function",
        "inputs": "dict",
        "return_std": "flag",
        "method": "choice",
        "rtol": "number",
        "max_evaluations": "number",
        "max_seconds": "number",
    }
    yield Case("simulate", ode.simulate, simulated, how)
    equation = field.equation_
    S = equation.features(field, PLANE)
    for name in ("__call__", "unknown_part", "gradient", "extrapolation"):
        yield Case(name, getattr(equation, name), {"S": S}, {"S": "numbers"})
    asked = {"w": field, "X": PLANE, "inputs": None}
    how = {"w": "any", "X": "points", "inputs": "dict"}
    yield Case("features", equation.features, asked, how)
    yield Case("apply", equation.apply, asked, how)
    yield Case("sparse", equation.sparse, {"n_terms": 2}, {"n_terms": "count"})

    def solve(**params):
        solver = ode.pde_solver(**params)
        return solver.fit([[0.0], [3.0]], [1.0, np.exp(-3.0)]).predict(WHERE)

    params = {
        "forcing": LEARNER["forcing"],
        "variables": ("t",),
        "collocation_points": LEARNER["collocation_points"],
        "max_iter": 10,
    }
    yield Case("pde_solver", solve, params, {n: ROLES[n] for n in params})
    yield from display_cases(ode, field)


def display_cases(ode, field):
    """Cases of displays."""
    kinds = {
        "estimator": "object",
        "X": "points",
        "y": "values",
        "ax": "axes",
        "operator": "shown operator",
        "function": "any",
        "quantity": "choice",
        "grid_resolution": "count",
        "equation": "any",
    }
    state = {"estimator": ode, "X": T, "y": EXACT, "ax": None, "operator": "u_t"}
    state |= {"function": None, "quantity": "mean", "grid_resolution": 10}
    draw = keql.plotting.StateDisplay.from_estimator
    yield Case("StateDisplay", _drawn(draw), state, kinds)
    draw = keql.plotting.LossCurveDisplay.from_estimator
    loss = {"estimator": ode, "ax": None}
    yield Case("LossCurveDisplay", _drawn(draw), loss, kinds)
    draw = keql.plotting.EquationParityDisplay.from_estimator
    parity = {"estimator": field, "equation": None, "ax": None}
    yield Case("EquationParityDisplay", _drawn(draw), parity, kinds)
    draw = keql.plotting.ErrorDisplay.from_estimator
    error = {"estimator": field, "X": PLANE, "y": HEAT, "ax": None}
    yield Case("ErrorDisplay", _drawn(draw), error, kinds)


def _drawn(draw):
    """A function that draws, and closes what it has drawn."""

    def call(**arguments):
        import matplotlib.pyplot as plt

        try:
            draw(**arguments)
        finally:
            plt.close("all")

    return call


def other_cases():
    """Cases of kernels, operators, data sets and measures of errors."""
    for kind, own in (
        (RBF, {"length_scale": 1.0, "active_dims": None}),
        (Matern, {"length_scale": 1.0, "nu": 2.5}),
        (Polynomial, {"degree": 2, "scale": 1.0, "center": 0.0}),
        (keql.kernels.Periodic, {"length_scale": 1.0, "periodicity": 1.0}),
        (keql.kernels.RationalQuadratic, {"length_scale": 1.0, "alpha": 1.0}),
    ):

        def call(X, Y, kind=kind, **params):
            return kind(**params)(X, Y)

        arguments = {"X": PLANE, "Y": PLANE[:4], **own}
        roles = {name: "number" for name in own} | {"X": "numbers", "Y": "numbers"}
        roles |= {"active_dims": "any", "degree": "count", "center": "real"}
        roles = {name: roles[name] for name in arguments}
        yield Case(kind.__name__, call, arguments, roles)
    asked = {"operator": "u_x", "variables": ("t", "x"), "states": ("u",)}
    how = {"operator": "operator", "variables": "names", "states": "names"}

    def parsed(**arguments):
        keql.operators.parse_operator(**arguments)

    yield Case("parse_operator", parsed, asked, how)
    pair = {"y_true": HEAT, "y_pred": HEAT + 0.1}
    how = {"y_true": "values", "y_pred": "values"}
    yield Case("relative_l2_error", keql.metrics.relative_l2_error, pair, how)
    fill = {"points": PLANE[:5], "domain": PLANE}
    how = {"points": "values", "domain": "values"}
    yield Case("fill_distance", keql.metrics.fill_distance, fill, how)
    for make, own in (
        (keql.datasets.make_lorenz, {"n_samples": 10, "t_end": 1.0}),
        (keql.datasets.make_lotka_volterra, {"n_samples": 10, "t_end": 1.0}),
        (keql.datasets.make_duffing, {"n_observations": 10, "t_max": 1.0}),
    ):

        def sizes(make=make, **arguments):
            return make(**arguments).X

        own = own | {"noise": 0.0, "random_state": 0}
        how = {"noise": "number", "random_state": "any"}
        how |= {"n_samples": "count", "n_observations": "count"}
        how |= {"t_end": "number", "t_max": "number"}
        how = {name: how[name] for name in own}
        yield Case(make.__name__, sizes, own, how)
    equation = {
        "known_part": "u_t",
        "operators": ("u",),
        "collocation_points": LEARNER["collocation_points"],
        "forcing": lambda points: 0 * points[:, 0],
        "kernel": Polynomial(1),
        "n_terms": None,
        "noise": 1e-3,
    }
    given = {name: LEARNER[name] for name in LEARNER if name not in equation}
    given |= {"equation_kernel": None, "equation_noise": None}

    def named(**arguments):
        equations = [("first", Equation(**arguments))]
        return TwoStepKEqL(**given | {"equations": equations}).fit(T, EXACT).predict(T)

    roles = ROLES | {"kernel": "kernel", "noise": "number"}
    yield Case("Equation", named, equation, {n: roles[n] for n in equation})


POOLS["operator"] = [
    *_junk(negative="refuse", zero="refuse", empty_list="refuse", none="refuse"),
    ("unknown", "q", "refuse"),
    ("unknown derivative", "u_q", "refuse"),
    ("high order", "u_" + "t" * 60, "any"),
    ("recursive", lambda x: _recursive(), "refuse"),
    ("unfinished", "u +", "refuse"),
]
POOLS["shown operator"] = [  # None: the state itself
    (name, value, "any" if name == "none" else verdict)
    for name, value, verdict in POOLS["operator"]
]
NAMES = {"initial": "initial", "kernel": "kernel", "w": "w"}
EXPECTED = (ValueError, TypeError, SimulationError, NotImplementedError)


class TooLong(BaseException):
    """Raised when a call has used its time."""


def attempt(case, arguments, limit):
    """What a call returns or raises: a pair of which one is None."""

    def ring(*_):
        raise TooLong

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        quiet = contextlib.redirect_stdout(io.StringIO())
        with warnings.catch_warnings(), quiet:
            warnings.simplefilter("ignore")
            return case.call(**arguments), None
    except (Exception, TooLong) as error:  # noqa: BLE001
        return None, error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def judge(argument, verdict, answer, error, expected):
    """The outcome of a call with a changed argument, and what to say of it."""
    if isinstance(error, TooLong):
        return "hang", ""
    if isinstance(error, MemoryError):
        return "memory", str(error)
    if error is not None:
        said = f"{type(error).__name__}: {error}"
        singular = argument.removesuffix("s")
        named = re.search(rf"(?<![A-Za-z]){re.escape(singular)}s?(?![A-Za-z])", said)
        is_clear = isinstance(error, EXPECTED) and named
        if is_clear and not isinstance(error, np.linalg.LinAlgError):
            return ("wrong" if verdict == "same" else "clear"), said
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "obscure", f"{said} [{frame.filename.split('/')[-1]}:{frame.lineno}]"
    if verdict == "refuse":
        return "nonsense", ""
    if verdict == "same" and answer is not None:
        size = np.max(np.abs(expected)) + 1e-300
        differs = np.max(np.abs(np.subtract(answer, expected))) / size
        if not differs < 1e-6:
            return "wrong", f"differs by {differs:.1e}"
    return "ran", ""


def mutate(case, rng):
    """One argument changed: its name, what was done, what must happen, arguments."""
    argument = rng.choice(sorted(case.arguments))
    pool = POOLS[case.roles[argument]]
    label, value, verdict = pool[rng.integers(len(pool))]
    arguments = dict(case.arguments)
    valid = arguments[argument]
    is_change = callable(value) and getattr(value, "__name__", "") == "<lambda>"
    is_change = is_change or value in (_framed, list)
    is_change = is_change or getattr(value, "__name__", "") == "spoiled"
    is_function = case.roles[argument] in {"function", "known_part"}
    if is_change and not (is_function and label in {r[0] for r in FUNCTIONS}):
        try:
            value = value(valid)
        except (TypeError, ValueError, AttributeError, IndexError, OverflowError):
            return None
    arguments[argument] = value
    return argument, label, verdict, arguments


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--gigabytes", type=float, default=6.0)
    parser.add_argument("--only", default="", help="part of the names of calls")
    parser.add_argument("--show-ran", action="store_true")
    options = parser.parse_args()
    size = int(options.gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    rng, counts, listed = np.random.default_rng(options.seed), Counter(), Counter()
    cases = [*fit_cases(), *method_cases(), *other_cases()]
    cases = [case for case in cases if options.only in case.name]
    expected = []
    for case in cases:
        answer, error = attempt(case, case.arguments, options.limit)
        if error is not None:
            raise RuntimeError(f"the valid call {case.name} failed") from error
        expected.append(answer)
    while counts.total() < options.calls:
        i = rng.integers(len(cases))
        changed = mutate(cases[i], rng)
        if changed is None:
            continue
        argument, label, verdict, arguments = changed
        answer, error = attempt(cases[i], arguments, options.limit)
        outcome, said = judge(argument, verdict, answer, error, expected[i])
        counts[outcome] += 1
        if outcome not in {"clear", "ran"} or (options.show_ran and outcome == "ran"):
            listed[f"{outcome:9}{cases[i].name}: {argument} {label}: {said[:150]}"] += 1
    for line, times in sorted(listed.items()):
        print(f"{times:4} {line}")
    print(dict(counts))


if __name__ == "__main__":
    main()
