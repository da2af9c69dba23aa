"""Arguments as people give them: what cannot be meant is refused, by its name."""

import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from datetime import date, time, timedelta
from numbers import Integral, Real

import numpy as np
from scipy.sparse import issparse


@contextmanager
def naming(argument):
    """Errors about values, or types, that are raised inside name the `argument`."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        if re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{argument}: {error}") from error


def refuse_no_array(given, name):
    """Refuse what holds no numbers, or not all of them, or holds them otherwise.

    The argument `given`, called `name`, is expected to be an array, a list or a table.
    """
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise ValueError(
            f"{name} is a masked array in which {np.ma.count_masked(given)} value(s) "
            "are masked, and a mask would be ignored: leave these rows out, or, in y, "
            "put NaN for what was not measured, by y.filled(np.nan)."
        )
    if issparse(given):
        raise TypeError(
            f"{name} is a sparse matrix, but dense numbers are needed: give "
            f"{name}.toarray()."
        )
    is_array = hasattr(given, "__array__") or isinstance(given, list | tuple | Real)
    is_array = is_array or hasattr(given, "__len__") or hasattr(given, "__dataframe__")
    none = str | bytes | Mapping | Set | Iterator | type
    if isinstance(given, none) or callable(given) or not is_array:
        raise TypeError(
            f"{name} is {in_short(given)}, which is no array of numbers: give one, or "
            "a list of numbers, or a table."
        )
    names = list(getattr(given, "columns", ()))
    twice = [each for i, each in enumerate(names) if each in names[:i]]
    if twice:
        raise ValueError(
            f"{name} has several columns called {twice[0]!r}: leave out all but one, "
            "or call them otherwise."
        )
    if getattr(given, "dtype", None) is not None and np.iscomplexobj(given):
        raise ValueError(
            f"{name} holds complex numbers. Complex data not supported: give real and "
            "imaginary parts as two states."
        )


def as_numbers(given, name, ndim=None):
    """Numbers as an array in float64; of `ndim` dimensions, if these are given.

    What is no array of numbers is refused as :func:`refuse_no_array` does, dates and
    durations too. NaN and infinite numbers pass.
    """
    if type(given) is float:  # as most parameters are
        given = np.array(given)
    if type(given) is not np.ndarray or given.dtype != np.float64:
        refuse_no_array(given, name)
        refuse_dates(given, name)
        try:
            given = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"{name} cannot be read as an array of numbers: {error}. Give rows of "
                "one length that hold numbers."
            ) from error
    if ndim is not None and given.ndim != ndim:
        raise ValueError(
            f"{name} has {given.ndim} dimension(s), shape {given.shape}: it must have "
            f"{ndim}."
        )
    return given


def as_rows(given, name):
    """Numbers as a table in float64 of shape (n, n_columns); a list is one row."""
    return as_numbers(np.atleast_2d(as_numbers(given, name)), name, ndim=2)


def refuse_dates(values, where):
    """Refuse dates and durations, which would be taken as whole numbers.

    `where` begins the sentence: what holds them.
    """
    try:
        values = np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths, or no array
        return
    kind, first = values.dtype.kind, None
    if kind == "O":
        first = next((v for v in values.ravel() if v is not None), None)
    is_date = kind == "M" or isinstance(first, date | time | np.datetime64)
    is_duration = kind == "m" or isinstance(first, timedelta | np.timedelta64)
    if is_duration:
        raise ValueError(
            f"{where} holds durations: a derivative needs their unit. Divide by it, "
            "for hours by np.timedelta64(1, 'h')."
        )
    if is_date:
        raise ValueError(
            f"{where} holds dates: a derivative needs a unit of time. Subtract the "
            "first date and divide by the unit, for hours by np.timedelta64(1, 'h')."
        )


def is_real(given):
    """Whether something is a real number; NumPy's durations say so, and are none."""
    return isinstance(given, Real) and not isinstance(given, np.timedelta64)


def is_int(given):
    """Whether something is a whole number."""
    return is_real(given) and isinstance(given, Integral)


def check_flag(given, name):
    """Refuse what is neither True nor False."""
    if not isinstance(given, bool | np.bool_):
        raise TypeError(f"{name} is {in_short(given)}: it must be True or False.")


def refuse_odd_number(given):
    """Refuse a real number that is none of Python's floats, nor fits in one."""
    if isinstance(given, Real) and not isinstance(given, int | float | np.number):
        raise TypeError(f"{in_short(given)} is neither an int nor a float: give one.")
    if isinstance(given, Real):
        float(given)


def refuse_odd_numbers(parameters, constraints=None):
    """The same of all parameters, a dict of them by name; and flags that are none.

    True and False, which Python takes for one and zero, are no numbers where the
    `constraints` of scikit-learn say that a parameter is in an interval.
    """
    for name, value in parameters.items():
        with naming(name):
            refuse_odd_number(value)
        kinds = () if constraints is None else constraints.get(name, ())
        is_number = any(hasattr(kind, "closed") for kind in kinds)
        if is_number and isinstance(value, bool | np.bool_):
            raise ValueError(
                f"{name} is {value}, which says neither how many nor how much: give a "
                "number, or another of the values that its documentation lists."
            )


def check_positive(given, name, kind=Real):
    """Refuse what is no number, or no whole one (`kind`), above zero."""
    word = "whole number" if kind is Integral else "number"
    is_number = is_real(given) and isinstance(given, kind)
    if isinstance(given, bool) or not is_number or not given > 0:
        raise ValueError(
            f"{name} must be positive, got {in_short(given)}: give a {word} above zero."
        )


def check_functions(given, *names):
    """Refuse attributes that are to be called, such as kernels, and cannot be."""
    for name in names:
        value = getattr(given, name)
        if isinstance(value, type) or not callable(value):
            raise TypeError(
                f"{name} is {in_short(value)}, which cannot be called: give a kernel, "
                "or a function where one is asked for."
            )


def call_given(function, name, points, twice=False):
    """Values (n,) of a function that a user has written, at points (n, d).

    Its own errors, values that are no numbers, or not one for each point, are refused
    by the `name` of the argument; with `twice` other values at a second call as well.
    """
    n = len(points)
    shown = f"points of shape {np.shape(points)}"
    # A copy, since functions may write to what they are given.
    values = _called(function, name, shown, np.array(points))
    if np.ma.is_masked(values):
        raise ValueError(f"{name} returned a masked array: a mask would be ignored.")
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} returned {in_short(values)} for {shown}: it must return a real "
            "number for each. Complex data not supported."
        )
    values = values.astype(np.float64)
    if values.shape not in {(n,), (n, 1)}:
        raise ValueError(
            f"{name} has values of shape {values.shape} at {shown}: it must return "
            "one value for each."
        )
    values = values.ravel()
    if not np.all(np.isfinite(values)):
        raise ValueError(
            f"{name} is not finite at {np.sum(~np.isfinite(values))} of {n} points: it "
            "must be known wherever it is asked for."
        )
    if twice and not np.array_equal(call_given(function, name, points), values):
        raise ValueError(
            f"{name} returned different values at the same points when it was called "
            "twice: draw random numbers once, outside of the function."
        )
    return values


def _called(function, name, shown, *arguments):
    """What a user's function returns; its errors say whose they are."""
    try:
        return function(*arguments)
    except Exception as error:
        raise ValueError(
            f"{name} failed when it was called with {shown}: "
            f"{type(error).__name__}: {error}. It must take arrays and return an array."
        ) from error


def in_short(given):
    """A value, or what it is, in few characters."""
    if isinstance(given, type):
        return f"the class {given.__name__} (without brackets)"
    text = repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."
