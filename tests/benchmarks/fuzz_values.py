"""More of what arguments are changed to: types of other packages, functions."""

import re
from array import array
from collections import OrderedDict, namedtuple
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import polars as pl
import xarray as xr
from scipy import sparse

from keql import OneStepKEqL
from keql.kernels import RBF

Pair = namedtuple("Pair", "first second")


class OwnArray(np.ndarray):
    """An array of a class of its own."""


class OwnText(str):
    """A text of a class of its own."""

    __slots__ = ()


class OwnFrame(pd.DataFrame):
    """A table of a class of its own."""

    @property
    def _constructor(self):
        return OwnFrame


class Polite:
    """Says yes to whatever it is asked for."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Polite()

    def __call__(self, *args, **kwargs):
        return Polite()


class NotComparable:
    """Cannot be compared, nor shown."""

    def __eq__(self, other):
        raise RuntimeError("own failure")

    __hash__ = None

    def __bool__(self):
        raise RuntimeError("own failure")


class Exchanged:
    """A table that other packages read by the protocol of exchange alone."""

    def __init__(self, x):
        self.frame = pd.DataFrame(np.asarray(x, dtype=float))
        self.frame.columns = ["t", "x", "z"][: self.frame.shape[1]]

    def __dataframe__(self, nan_as_null=False, allow_copy=True):
        return self.frame.__dataframe__(nan_as_null, allow_copy)


def _pl(x):
    """A table of polars."""
    x = np.asarray(x, dtype=float)
    names = ["t", "x", "z", "w"]
    return pl.DataFrame({n: c for n, c in zip(names, np.atleast_2d(x.T), strict=False)})


def generates(points):
    """Yields values one by one."""
    for point in points:
        yield 0.0 * point


async def promises(points):
    """Has to be waited for."""
    return np.zeros(len(points))


@cache
def remembers(points):
    """Remembers its answers, and cannot for arrays."""
    return np.zeros(len(points))


class Counts:
    """Returns how often it was called."""

    calls = 0

    def __call__(self, points):
        type(self).calls += 1
        return np.full(len(points), float(self.calls))


def of_bools(points):
    """True or False."""
    return np.asarray(points)[..., 0] > 0.5


def of_objects(points):
    """Numbers as objects."""
    return np.zeros(len(points)).astype(object)


def masked_values(points):
    """Values of which one is masked."""
    return np.ma.masked_array(np.zeros(len(points)), np.arange(len(points)) == 0)


def sparse_values(points):
    """Values in a sparse matrix."""
    return sparse.csr_matrix(np.ones((len(points), 1)))


def dates(points):
    """Dates."""
    return np.zeros(len(points)).astype("M8[s]")


def text_numbers(points):
    """Numbers as texts."""
    return np.array(["1.0"] * len(points))


def nan_somewhere(points):
    """One value is not a number."""
    return np.where(np.arange(len(points)) == len(points) // 2, np.nan, 0.0)


def one_by_one(points):
    """Fails for several points."""
    if len(points) > 1:
        raise ValueError("one point at a time")
    return np.zeros(1)


def of_the_batch(points):
    """Depends on the other points."""
    return points[:, 0] - np.mean(points)


def three_arguments(points, more, most):
    """Needs three arguments."""
    return np.zeros(len(points))


def view_of_points(points):
    """A column of what it is given."""
    return points[:, 0]


def large_values(points):
    """Values whose squares overflow."""
    return np.full(len(points), 1e300)


def resizes(points):
    """Tries to resize what it is given."""
    points.resize((0, 0), refcheck=False)
    return np.zeros(0)


MORE_FUNCTIONS = [
    ("generates", generates, "refuse"),
    ("promises", promises, "refuse"),
    ("remembers", remembers, "refuse"),
    ("counts", Counts(), "refuse"),
    ("of bools", of_bools, "any"),
    ("of objects", of_objects, "any"),
    ("masked values", masked_values, "refuse"),
    ("sparse values", sparse_values, "refuse"),
    ("dates", dates, "refuse"),
    ("text numbers", text_numbers, "refuse"),
    ("nan somewhere", nan_somewhere, "refuse"),
    ("one by one", one_by_one, "refuse"),
    ("of the batch", of_the_batch, "any"),
    ("three arguments", three_arguments, "refuse"),
    ("view of points", view_of_points, "any"),
    ("large values", large_values, "any"),
    ("resizes", resizes, "refuse"),
    ("vectorized", np.vectorize(float), "any"),
    ("a class", frozenset, "any"),
    ("polite", Polite(), "refuse"),
    ("mock", MagicMock(), "refuse"),
]
MORE_JUNK = [
    ("numpy nan", np.float64("nan"), "refuse"),
    ("numpy text", np.str_("abc"), "refuse"),
    ("numpy bytes", np.bytes_(b"abc"), "refuse"),
    ("numpy bool", np.bool_(True), "any"),
    ("numpy complex", np.complex128(1j), "refuse"),
    ("numpy date", np.datetime64("2020-01-01"), "refuse"),
    ("numpy no time", np.datetime64("NaT"), "refuse"),
    ("numpy duration", np.timedelta64(1, "s"), "refuse"),
    ("numpy void", np.void(b"ab"), "refuse"),
    ("long double", np.longdouble(1), "any"),
    ("date", datetime(2020, 1, 1), "refuse"),
    ("duration", timedelta(1), "refuse"),
    ("timestamp", pd.Timestamp("2020"), "refuse"),
    ("interval", pd.Interval(0, 1), "refuse"),
    ("categories", pd.Categorical(["a", "b"]), "refuse"),
    ("object of no dimension", np.array(None, dtype=object), "any"),
    ("nan of no dimension", np.array(np.nan), "refuse"),
    ("masked constant", np.ma.masked, "refuse"),
    ("not implemented", NotImplemented, "refuse"),
    ("pattern", re.compile("u"), "refuse"),
    ("error", ValueError("u"), "refuse"),
    ("kernel", RBF(1.0), "any"),
    ("estimator", OneStepKEqL(), "refuse"),
    ("folder", Path("abc"), "any"),
    ("own text", OwnText("abc"), "refuse"),
    ("named tuple", Pair(1, None), "any"),
    ("frozen set", frozenset({"u"}), "any"),
    ("ordered dict", OrderedDict(abc=1), "any"),
    ("machine array", array("d", [1.0, 2.0]), "any"),
    ("byte array", bytearray(b"abc"), "any"),
    ("memory", memoryview(b"abc"), "any"),
    ("between integers", 2**53 + 1, "any"),
    ("unsigned", np.uint8(3), "any"),
    ("two to the 63rd", 2**63, "any"),
    ("long negative", -(10**400), "any"),
    ("minus inf", float("-inf"), "any"),
    ("minus half", -0.5, "any"),
    ("lone surrogate", "\ud800", "refuse"),
    ("spaces", "   ", "refuse"),
    ("brackets", "((((((u", "refuse"),
    ("many brackets", "(" * 5000 + "u" + ")" * 5000, "any"),
    ("format", "%s{0}{}$\\", "refuse"),
    ("code", "__import__('os')", "refuse"),
    ("polars", pl.DataFrame({"t": [1.0]}), "any"),
    ("polars series", pl.Series([1.0, None]), "any"),
    ("data array", xr.DataArray([1.0, 2.0]), "any"),
    ("not comparable", NotComparable(), "refuse"),
    ("empty array", np.zeros(0), "any"),
    ("array of nothing", np.zeros((0, 0)), "any"),
    ("hundred dimensions", np.zeros((1,) * 60), "any"),
    ("array of texts", np.array(["u", "q"]), "any"),
    ("records", np.zeros(2, dtype=[("a", float), ("b", int)]), "refuse"),
    ("dict of itself", dict.fromkeys("u", {"u": {"u": 1.0}}), "any"),
    ("exotic name", {"u'": 1.0, "\u03c8": 2.0}, "any"),
]
MORE_TABLE = [
    ("matrix", lambda x: np.asmatrix(x), "any"),
    ("own array", lambda x: np.asarray(x).view(OwnArray), "same"),
    ("broadcast", lambda x: np.broadcast_to(x, np.shape(x)), "same"),
    ("data array", lambda x: xr.DataArray(np.asarray(x)), "any"),
    ("polars", lambda x: _pl(x), "any"),
    ("polars series", lambda x: pl.Series(np.ravel(x).tolist()), "any"),
    ("polars with null", lambda x: _pl(x).with_columns(t=None), "any"),
    ("lazy polars", lambda x: _pl(x).lazy(), "refuse"),
    ("exchanged", lambda x: Exchanged(x), "any"),
    ("array of categories", lambda x: pd.Categorical(np.ravel(x)), "any"),
    ("nullable array", lambda x: pd.array(np.ravel(x), dtype="Float64"), "any"),
    (
        "nullable with NA",
        lambda x: pd.array([None, *np.ravel(x)[1:]], "Float64"),
        "any",
    ),
    ("sparse array", lambda x: pd.arrays.SparseArray(np.ravel(x)), "any"),
    ("periods", lambda x: pd.period_range("2020", periods=len(x)), "refuse"),
    (
        "zoned times",
        lambda x: pd.date_range("2020", periods=len(x), tz="UTC"),
        "refuse",
    ),
    ("days", lambda x: np.asarray(x).astype("M8[D]"), "refuse"),
    ("years", lambda x: np.asarray(x).astype("M8[Y]"), "refuse"),
    ("no times", lambda x: np.full(np.shape(x), "NaT", "M8[ns]"), "refuse"),
    ("machine array", lambda x: array("d", np.ravel(x)), "any"),
    ("numpy scalars", lambda x: [np.float64(v) for v in np.ravel(x)], "any"),
    ("arrays of no dimension", lambda x: [np.array(v) for v in np.ravel(x)], "any"),
    ("rows of all kinds", lambda x: [*np.asarray(x)[:-1], [1.0, 2.0, 3.0]], "any"),
    ("by 1e12", lambda x: np.asarray(x) * 1e12, "any"),
    ("by 1e-12", lambda x: np.asarray(x) * 1e-12, "any"),
    ("moved by 1e9", lambda x: np.asarray(x) + 1e9, "any"),
    ("half of it twice", lambda x: _half_twice(x), "any"),
    ("backwards", lambda x: np.asarray(x)[::-1], "any"),
    ("in another order", lambda x: np.roll(np.asarray(x), 3, axis=0), "any"),
    ("all nan", lambda x: np.asarray(x) * np.nan, "any"),
    ("minus infinite", lambda x: np.asarray(x) * -np.inf, "any"),
    ("single precision", lambda x: np.asarray(x).astype(np.float32), "any"),
    ("whole numbers", lambda x: np.asarray(x).astype(np.int8), "any"),
    ("nothing at all", lambda x: np.zeros((0, 0)), "refuse"),
    ("no row but columns", lambda x: np.zeros((0, np.asarray(x).size)), "refuse"),
    ("many dimensions", lambda x: np.asarray(x).reshape(*[1] * 40, -1), "any"),
    ("column of a column", lambda x: np.asarray(x).reshape(-1, 1), "any"),
    ("flat", lambda x: np.ravel(x), "any"),
    ("wide", lambda x: np.repeat(np.atleast_2d(x), 50, axis=-1), "any"),
    ("constant but one", lambda x: _one_other(x), "any"),
    ("nearly same rows", lambda x: np.repeat(np.asarray(x)[:1], len(x), 0), "any"),
    ("class of arrays", lambda x: np.ndarray, "refuse"),
    ("not comparable", lambda x: NotComparable(), "refuse"),
    ("polite", lambda x: Polite(), "refuse"),
    ("frame of itself", lambda x: pd.DataFrame({"t": [pd.DataFrame()] * 3}), "refuse"),
    ("values of a dict", lambda x: dict(enumerate(x)).values(), "any"),
    ("zipped", lambda x: zip(x, x, strict=True), "any"),
    ("texts of numpy", lambda x: np.asarray(x).astype(np.dtypes.StringDType()), "any"),
    (
        "large strides",
        lambda x: np.tile(np.asarray(x), 5)[..., : np.shape(x)[-1]],
        "any",
    ),
]
MORE_FRAMES = [
    ("own frame", lambda x: OwnFrame(_table(x)), "same"),
    (
        "polars in another order",
        lambda x: pl.from_pandas(_table(x).iloc[:, ::-1]),
        "any",
    ),
    ("sparse frame", lambda x: _table(x).astype(pd.SparseDtype(float)), "any"),
    ("frame of texts", lambda x: _table(x).astype("string"), "any"),
    ("frame of objects", lambda x: _table(x).astype(object), "same"),
    ("frame of dates", lambda x: _table(x).astype("M8[s]"), "refuse"),
    ("frame of durations", lambda x: _table(x).astype("m8[s]"), "refuse"),
    ("complex frame", lambda x: _table(x).astype(complex), "refuse"),
    ("column missing", lambda x: _table(x).iloc[:, 1:], "refuse"),
    ("no rows in a frame", lambda x: _table(x).iloc[:0], "refuse"),
    ("same names of rows", lambda x: _table(x).set_index(np.zeros(len(x))), "same"),
    ("numpy names", lambda x: _table(x).rename(columns=np.str_), "same"),
    ("names of dates", lambda x: _named(x, pd.Timestamp("2020")), "any"),
    ("names of numbers", lambda x: _named(x, 1.5), "any"),
    ("no name", lambda x: _named(x, None), "any"),
    ("empty name", lambda x: _named(x, ""), "any"),
    ("capital name", lambda x: _named(x, "T"), "any"),
    ("unicode name", lambda x: _named(x, "\u03c4"), "any"),
    ("name with unit", lambda x: _named(x, "t [s]"), "any"),
    ("name of an operator", lambda x: _named(x, "u_t"), "any"),
    (
        "categories of texts",
        lambda x: _table(x).assign(t=pd.Categorical(["a"] * len(x))),
        "refuse",
    ),
    ("column of lists", lambda x: _table(x).assign(t=[[1.0]] * len(x)), "any"),
    ("nullable integers", lambda x: _table(x).round().astype("Int64"), "any"),
    ("single frame", lambda x: _table(x).astype(np.float32), "any"),
    ("data set", lambda x: xr.Dataset.from_dataframe(_table(x)), "any"),
    ("transposed frame", lambda x: _table(x).T, "any"),
    ("series of a frame", lambda x: _table(x)["t"], "any"),
    ("groups", lambda x: _table(x).groupby("t"), "refuse"),
    ("rolling", lambda x: _table(x).rolling(2), "refuse"),
]
MORE_NAMES = [
    ("operator", lambda x: ("u_t", *x[1:]), "any"),
    ("prime", lambda x: ("u'", *x[1:]), "any"),
    ("greek", lambda x: ("\u03c8", *x[1:]), "any"),
    ("combined letters", lambda x: ("e\u0301", *x[1:]), "any"),
    ("power", lambda x: ("u\u00b2", *x[1:]), "any"),
    ("comma", lambda x: ("u,v", *x[1:]), "any"),
    ("zero width", lambda x: ("u\u200b", *x[1:]), "any"),
    ("underscore", lambda x: ("_", *x[1:]), "any"),
    ("ending in one", lambda x: ("u_", *x[1:]), "any"),
    ("nan as a name", lambda x: ("nan", *x[1:]), "any"),
    ("number with power", lambda x: ("1e5", *x[1:]), "any"),
    ("imaginary", lambda x: ("I", *x[1:]), "any"),
    ("pi", lambda x: ("pi", *x[1:]), "any"),
    ("sine", lambda x: ("sin", *x[1:]), "any"),
    ("picture", lambda x: ("\U0001f600", *x[1:]), "any"),
    ("right to left", lambda x: ("\u05d0", *x[1:]), "any"),
    ("partial", lambda x: ("\u2202", *x[1:]), "any"),
    ("very long", lambda x: ("a" * 10_000, *x[1:]), "any"),
    ("none inside", lambda x: (None, *x[1:]), "refuse"),
    ("numpy text inside", lambda x: (np.str_(x[0]), *x[1:]), "same"),
    ("own text inside", lambda x: (OwnText(x[0]), *x[1:]), "same"),
    ("set of names", lambda x: set(x), "any"),
    ("generator of names", lambda x: (name for name in x), "any"),
]


def _table(x):
    """A table with columns called t, x."""
    x = np.asarray(x, dtype=float)
    x = x[:, None] if x.ndim == 1 else x
    return pd.DataFrame(x, columns=["t", "x", "z"][: x.shape[1]])


def _named(x, name):
    """A table whose first column has another name."""
    table = _table(x)
    return table.set_axis([name, *table.columns[1:]], axis=1)


def _half_twice(x):
    """The first half of the rows, twice."""
    x = np.asarray(x)
    return np.concatenate([x[: len(x) // 2]] * 2)


def _one_other(x):
    """Ones, but for the last row."""
    x = np.ones_like(x, dtype=float)
    x[-1] = 2.0
    return x
