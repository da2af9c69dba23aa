"""Tables as people have them: what is no number is refused in words."""

import numpy as np

from keql._numerics.arguments import refuse_dates, refuse_no_array


def refuse_what_is_no_number(table, name, leave_out=(), needed=True):
    """Refuse dates, durations, text and, if all are `needed`, missing numbers.

    The `table` is a data frame, an array or a list of shape (n, n_columns) or (n,),
    called `name`; the columns at the positions `leave_out` are not looked at. What is
    no table is refused; what cannot be read as columns is left to later checks.
    """
    refuse_no_array(table, name)
    columns = _columns(table)
    if not columns:
        refuse_dates(table, name)  # in a series, or an index
    for i, (column, entries) in enumerate(columns):
        if i in leave_out:
            continue
        where = name if column is None else f"{name} has the column {column!r}, which"
        refuse_dates(entries, where)
        if entries.dtype.kind in "OUST":
            _refuse_text(entries, where, column)
        elif entries.dtype.kind == "f":
            if needed:
                _refuse_missing(entries, name, column)
            _refuse_overflow(entries, where)


def _columns(table):
    """Pairs of a column's name and its entries (n,); the name of a single one is None.

    An array's columns are named by their positions.
    """
    if hasattr(table, "columns"):
        return [(name, np.asarray(table[name])) for name in table.columns]
    if not isinstance(table, np.ndarray | list | tuple):
        return []
    try:
        table = np.asarray(table)
    except ValueError:  # rows of different lengths
        return []
    if table.ndim == 1:
        return [(None, table)]
    return list(enumerate(table.T)) if table.ndim == 2 else []


def _refuse_text(entries, where, column):
    """Refuse a text that is no number; numbers may be written as text."""
    for entry in entries:
        if not isinstance(entry, str | bytes):
            continue
        advice = "Give numbers."
        try:
            float(entry)
            is_number = isinstance(entry, str)
        except ValueError:
            is_number = False
        if not is_number:
            if where.startswith("X has"):
                advice = (
                    "If it says which function (experiment) a row belongs to, name it: "
                    f"function_column={column!r}; dates in text are read by "
                    "pandas.to_datetime, and then made numbers of a unit; otherwise "
                    "leave it out."
                )
            raise ValueError(f"{where} holds text such as {str(entry)!r}. {advice}")


def _refuse_overflow(entries, where, largest=1e100):
    """Refuse numbers whose squares, and products of some, cannot be represented."""
    size = float(np.max(np.abs(entries[np.isfinite(entries)]), initial=0.0))
    if size > largest:
        raise ValueError(
            f"{where} has numbers of size {size:.3g}, above {largest:g}, whose "
            "products cannot be computed: choose another unit."
        )
    if 0 < size < 1 / largest:
        raise ValueError(
            f"{where} has no numbers above {size:.3g}, and products of such numbers "
            "are rounded to zero: choose another unit."
        )


def _refuse_missing(entries, name, column):
    """Refuse NaN in a column of numbers."""
    missing = np.flatnonzero(np.isnan(entries))
    if len(missing):
        which = "" if column is None else f" in its column {column!r},"
        raise ValueError(
            f"{name} contains NaN{which} in {len(missing)} of {len(entries)} rows, "
            f"such as row {missing[0]}: where a value was measured must be known. "
            "Leave these rows out of X and y."
        )
