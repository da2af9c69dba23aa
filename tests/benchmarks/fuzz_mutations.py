"""What arguments of calls are changed to, and what must happen then."""

from collections import deque
from datetime import datetime
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
from fuzz_values import MORE_FRAMES, MORE_FUNCTIONS, MORE_JUNK, MORE_NAMES, MORE_TABLE
from scipy import sparse
from sklearn.gaussian_process import kernels
from sklearn.gaussian_process.kernels import WhiteKernel

from keql.kernels import RBF, Matern, Polynomial, Restriction
from keql.operators import parse_operator


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


class Failing:
    """What NumPy cannot make an array of, although it says it can."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("own failure")

    def __len__(self):
        return 12


class Grade(IntEnum):
    """A whole number with a name."""

    FIRST = 1


class OwnNumber(float):
    """A number of a class of its own."""


def alters(points):
    """Changes what it is given."""
    points[...] = 0.0
    return np.ones(len(points))


def recurses(*args):
    """Never ends."""
    return recurses(*args)


def stops(*args):
    """Raises what iterators do."""
    raise StopIteration


def a_number(points):
    """A number for all points."""
    return 0.0


def a_list(points):
    """A list of numbers."""
    return [0.0] * len(points)


def a_column(points):
    """Values of shape (n, 1)."""
    return np.zeros((len(points), 1))


def a_frame(points):
    """Values in a table."""
    return pd.DataFrame({"f": np.zeros(len(points))})


def a_series(points):
    """Values in a series whose rows have other names."""
    return pd.Series(np.zeros(len(points)), index=np.arange(len(points)) + 7)


def infinite(points):
    """Values that are not finite."""
    return np.full(len(points), np.inf)


def all_points(points):
    """All coordinates, not one value for each point."""
    return np.column_stack([points, points])


def of_keywords(*, points):
    """Takes its argument by name."""
    return np.zeros(len(points))


class RoughKernel(RBF):
    """A kernel whose values are not a number."""

    def __call__(self, X, Y=None, eval_gradient=False):
        return np.full((len(X), len(X if Y is None else Y)), np.nan)


def _deep(depth):
    """A list in lists."""
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


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
    ("fraction", Fraction(1, 3), "any"),
    ("enumerated", Grade.FIRST, "any"),
    ("own number", OwnNumber(0.5), "any"),
    ("half precision", np.float16(0.5), "any"),
    ("long integer", 10**400, "any"),
    ("least number", 5e-324, "any"),
    ("largest number", 1.7e308, "any"),
    ("minus zero", -0.0, "any"),
    ("number as text", "1.0", "refuse"),
    ("NA", pd.NA, "refuse"),
    ("no time", pd.NaT, "refuse"),
    ("series", pd.Series([1.0]), "any"),
    ("frame", pd.DataFrame({"t": [1.0]}), "any"),
    ("range", range(3), "any"),
    ("iterator", lambda x: iter([1, 2]), "any"),
    ("module", np, "refuse"),
    ("ellipsis", ..., "refuse"),
    ("slice", slice(None), "refuse"),
    ("failing", Failing(), "refuse"),
    ("long text", "u" * 100_000, "refuse"),
    ("line ends", "u\n\x00", "refuse"),
    ("other letters", "\u00fc\u20dd", "any"),
    ("deep list", _deep(500), "refuse"),
    *MORE_JUNK,
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
    ("negative strides", lambda x: np.asarray(x)[::-1].copy()[::-1], "same"),
    ("offset in memory", lambda x: _offset(x), "same"),
    ("tuple", lambda x: tuple(np.asarray(x).tolist()), "same"),
    ("deque", lambda x: deque(np.asarray(x).tolist()), "any"),
    ("series", lambda x: pd.Series(list(np.asarray(x))), "any"),
    ("shuffled series", lambda x: _shuffled_series(x), "any"),
    ("index", lambda x: pd.Index(np.ravel(x)), "any"),
    ("least numbers", lambda x: np.asarray(x) * 0 + 5e-324, "any"),
    ("nearly equal", lambda x: 1 + 1e-15 * np.asarray(x), "any"),
    ("far away", lambda x: 1e15 + np.asarray(x), "any"),
    ("minus", lambda x: -np.asarray(x), "any"),
    ("no columns", lambda x: np.asarray(x).reshape(len(x), -1)[:, :0], "refuse"),
    ("one row less", lambda x: np.asarray(x)[:-1], "any"),
    ("fractions", lambda x: _with_inside(x, Fraction(1, 2)), "any"),
    ("number as text inside", lambda x: _with_inside(x, "0.5"), "any"),
    ("list inside", lambda x: _with_inside(x, [1.0]), "any"),
    ("array inside", lambda x: _with_inside(x, np.array([1.0])), "any"),
    ("NA inside", lambda x: _with_inside(x, pd.NA), "any"),
    ("date inside", lambda x: _with_inside(x, datetime(2020, 1, 1)), "refuse"),
    ("structured", lambda x: _structured(x), "refuse"),
    ("failing", lambda x: Failing(), "refuse"),
    ("set", lambda x: {1.0, 2.0}, "refuse"),
    ("range", lambda x: range(len(x)), "any"),
    ("no dimension", lambda x: np.array(1.0), "any"),
    ("void", lambda x: np.zeros(len(x), "V8"), "refuse"),
    ("unicode", lambda x: np.asarray(x).astype("U20"), "any"),
    ("huge integers", lambda x: np.full(np.shape(x), 2**63 - 1), "any"),
    ("minus zeros", lambda x: np.asarray(x) * -0.0, "any"),
    *MORE_TABLE,
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
    *MORE_FRAMES,
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
    ("alters", alters, "any"),
    ("recurses", recurses, "refuse"),
    ("stops", stops, "refuse"),
    ("a number", a_number, "any"),
    ("a list", a_list, "any"),
    ("a column", a_column, "any"),
    ("a frame", a_frame, "any"),
    ("a series", a_series, "any"),
    ("infinite", infinite, "refuse"),
    ("all points", all_points, "refuse"),
    ("of keywords", of_keywords, "refuse"),
    ("of NumPy", np.ravel, "any"),
    ("a method", "abc".upper, "refuse"),
    ("a partial", partial(np.full, fill_value=1.0), "any"),
    *MORE_FUNCTIONS,
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
        ("of noise", WhiteKernel(), "refuse"),
        ("with noise", kernels.RBF(1.0) + WhiteKernel(), "refuse"),
        ("of scikit-learn", kernels.RBF(1.0), "any"),
        ("linear", kernels.DotProduct(), "any"),
        ("of pairs", kernels.PairwiseKernel(metric="laplacian"), "any"),
        ("periodic", kernels.ExpSineSquared(), "any"),
        ("compound", kernels.CompoundKernel([kernels.RBF()]), "refuse"),
        ("bounds in turn", RBF(1.0, (2.0, 1.0)), "any"),
        ("bounds of nan", RBF(1.0, (np.nan, 1.0)), "any"),
        ("bounds of text", RBF(1.0, "free"), "any"),
        ("three bounds", RBF(1.0, (1.0, 2.0, 3.0)), "any"),
        ("infinite bounds", RBF(1.0, (0.0, np.inf)), "any"),
        ("outside of bounds", RBF(1.0, (5.0, 6.0)), "any"),
        ("infinite length", RBF(np.inf), "any"),
        ("least length", RBF(1e-300), "any"),
        ("length of text", RBF("long"), "refuse"),
        ("no length", RBF(None), "refuse"),
        ("sum of a hundred", sum(100 * [RBF(1.0)], RBF(1.0)), "any"),
        ("not a number", RoughKernel(1.0), "refuse"),
        ("negative degree", Polynomial(-1), "refuse"),
        ("no terms", Restriction(Polynomial(1), []), "any"),
        ("terms of others", Restriction(Polynomial(1), ["q"]), "refuse"),
        ("term twice", Restriction(Polynomial(1), ["u", "u"]), "any"),
        ("restricted RBF", lambda x: Restriction(RBF(1.0), ["u"]), "refuse"),
        ("matern half", Matern(1.0, nu=2.2), "any"),
        ("nothing of states", {}, "any"),
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
        ("nested", lambda x: (tuple(x),), "any"),
        ("array", lambda x: np.array(x), "any"),
        ("index", lambda x: pd.Index(x), "any"),
        ("keys", lambda x: dict.fromkeys(x, 1.0).keys(), "any"),
        ("iterator", lambda x: iter(x), "any"),
        ("spaces", lambda x: tuple(f" {name} " for name in x), "any"),
        ("capitals", ("U",), "refuse"),
        ("negative order", ("u_-1",), "refuse"),
        ("function", ("sin(u)",), "refuse"),
        ("product", ("u*u",), "refuse"),
        ("infinite factor", ("1e999 u",), "refuse"),
        ("parsed", lambda x: tuple(parse_operator(n, ("t", "x")) for n in x), "any"),
        ("of others", (parse_operator("v_z", ("z",), ("v",)),), "refuse"),
    ],
    "known_part": [
        *_junk(negative="refuse", zero="refuse"),
        *[row for row in FUNCTIONS if row[0] != "wrong shape"],
        ("numpy", numpy_part, "refuse"),
        ("strange", strange_part, "refuse"),
        ("nan coefficient", {"u_t": float("nan")}, "refuse"),
        ("text coefficient", {"u_t": "1"}, "refuse"),
        ("zero coefficient", {"u_t": 0.0}, "refuse"),
        ("unknown operator", {"q_t": 1.0}, "refuse"),
        ("infinite coefficient", {"u_t": float("inf")}, "refuse"),
        ("complex coefficient", {"u_t": 1j}, "refuse"),
        ("least coefficient", {"u_t": 5e-324}, "any"),
        ("large coefficient", {"u_t": 1e300}, "any"),
        ("array as coefficient", {"u_t": np.ones(3)}, "refuse"),
        ("function as coefficient", {"u_t": random_values}, "any"),
        ("same twice", {"u_t": 1.0, "u_t + 0": 1.0}, "any"),
        ("that of learned", {"u": 1.0}, "any"),
        ("equation twice", lambda x: (x, x), "any"),
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
        ("word of Python", lambda x: ("lambda", *x[1:]), "any"),
        ("underscores", lambda x: ("__class__", *x[1:]), "any"),
        ("digit first", lambda x: ("1t", *x[1:]), "any"),
        ("operation", lambda x: ("t+x", *x[1:]), "any"),
        ("other letters", lambda x: ("\u00fc", *x[1:]), "any"),
        ("line end", lambda x: ("t\n", *x[1:]), "refuse"),
        ("array", lambda x: np.array(x), "any"),
        ("index", lambda x: pd.Index(x), "any"),
        ("one less", lambda x: tuple(x)[1:], "any"),
        ("empty", (), "any"),
        ("laplacian", lambda x: ("laplacian", *x[1:]), "any"),
        ("unfortunate", lambda x: ("u", *x[1:]), "any"),
        ("longer", lambda x: ("tt", *x[1:]), "any"),
        *MORE_NAMES,
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
        ("names of all kinds", {1: 1.0, "a": 2.0, None: 3.0}, "refuse"),
        ("text of text", {"u": "m", "t": "s"}, "any"),
        ("function inside", {"p": random_values}, "any"),
        ("nan inside", {"p": float("nan")}, "refuse"),
        ("array inside", {"p": np.ones(3)}, "refuse"),
        ("empty inside", {"p": {}}, "refuse"),
        ("text inside", {"p": "abc"}, "any"),
        ("no unit", {"t": "s s^^2"}, "refuse"),
    ],
    "collocation": [*TABLE, *FRAMES, *_junk(negative="refuse", zero="refuse")],
    "axes": [*_junk(), ("figure", lambda x: _figure(), "refuse")],
    "any": JUNK,
    "object": _junk(none="refuse", negative="refuse", zero="refuse", huge="refuse"),
}
NOTHING = {"inf", "empty", "no row but columns", "nothing at all"}
POOLS["points of a table"] = [  # scikit-learn refuses another order of columns
    (name, value, "any" if name == "frame in another order" else verdict)
    for name, value, verdict in POOLS["points"]
]
POOLS["numbers"] = [
    (name, value, "any" if name in NOTHING else verdict)
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


def _offset(x):
    """The same numbers in memory that does not begin where numbers do."""
    x = np.ascontiguousarray(x, dtype=float)
    room = np.empty(x.nbytes + 1, dtype=np.uint8)[1:]
    own = room.view(float).reshape(x.shape) if x.size else x.copy()
    own[...] = x
    return own


def _shuffled_series(x):
    """A series in the same order whose rows are named in another one."""
    values = np.asarray(x)
    return pd.Series(list(values), index=np.arange(len(values))[::-1])


def _structured(x):
    """Records with a field of numbers and one of text."""
    return np.array([(1.0, "a")] * len(x), dtype=[("t", float), ("x", "U3")])


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
POOLS["term"] = [
    *_junk(
        negative="refuse", zero="refuse", empty_list="refuse", none="refuse", half="any"
    ),
    ("absent", "u^9", "refuse"),
    ("of another name", "q", "refuse"),
    ("unfinished", "u^", "refuse"),
    ("power of half", "u^0.5", "refuse"),
    ("huge power", "u^" + "9" * 400, "refuse"),
]
POOLS["dictionary"] = _junk(negative="refuse", zero="any")
POOLS["flag of plain"] = _junk(zero="any", none="any")
ANY_TABLE = [(name, value, "any") for name, value, _ in TABLE]
POOLS["plain"] = [*_junk(none="any"), *ANY_TABLE]
POOLS["initial"] = [*_junk(), *ANY_TABLE, ("nobody", {"w": 1.0}, "refuse")]
POOLS["labelled"] = [row for row in TABLE if row[0] not in {"opaque", "set"}]
POOLS["seed"] = _junk(negative="refuse", half="refuse", text="refuse")
POOLS["part"] = [*_junk(none="refuse"), *FUNCTIONS, *TABLE]
POOLS["initial function"] = [*_junk(none="any"), *FUNCTIONS]
