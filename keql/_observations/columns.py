"""Columns of X that hold no coordinate: where they are, and what is in them."""

import numpy as np

# What the entries of a special column of X are labels of.
COLUMN_HOLDS = {"function_column": "function", "operator_column": "operator"}


def column_index(X, column, parameter):
    """Position of a column that is given by name or position.

    Parameters
    ----------
    X : ndarray or dataframe of shape (n, n_columns)
        The table.
    column : int or str
        The column.
    parameter : str
        Name of the parameter that says so, for messages.

    Returns
    -------
    index : int
        Not negative.

    Raises
    ------
    ValueError
        If there is no such column.
    """
    names = list(X.columns) if hasattr(X, "columns") else None
    if isinstance(column, str):
        if names is None or column not in names:
            raise ValueError(
                f"{parameter}={column!r} is no column of X: "
                + (
                    "X is an array, give the index of the column."
                    if names is None
                    else f"its columns are {', '.join(map(str, names))}."
                )
            )
        return names.index(column)
    if not -X.shape[1] <= column < X.shape[1] or X.shape[1] < 2:
        raise ValueError(
            f"{parameter}={column} is no column of X, which has "
            f"{X.shape[1]} columns (one of them for labels, the others for "
            "coordinates)."
        )
    return column % X.shape[1]


def refuse_missing(entries, column, parameter):
    """Refuse labels that are missing.

    Parameters
    ----------
    entries : list
        What the column holds.
    column : int or str
        The column.
    parameter : str
        Name of the parameter that says so.

    Raises
    ------
    ValueError
        If an entry is None or not a number.
    """
    if any(entry is None or entry != entry for entry in entries):
        word = COLUMN_HOLDS[parameter]
        raise ValueError(
            f"X has a missing {word} label in column {column!r}: every row must say "
            f"which {word} it belongs to."
        )


def split_labels(X, column, parameter):
    """Coordinates and labels of the rows of a table.

    Parameters
    ----------
    X : array-like or dataframe of shape (n, n_columns)
        The table.
    column : int, str or None
        The column of labels; None: there is none.
    parameter : str
        Name of the parameter that says so.

    Returns
    -------
    points : ndarray of shape (n, d)
        The other columns.
    labels : list of length n
        All None without a column.
    """
    if not hasattr(X, "columns"):
        X = np.asarray(X)
        if X.ndim != 2:
            raise ValueError(
                f"X has {X.ndim} dimension(s), it must be a table with one row for "
                "each observation: use X.reshape(-1, 1) for one coordinate."
            )
    n_rows, n_columns = X.shape
    index = None if column is None else column_index(X, column, parameter)

    def entries(i):
        return np.asarray(X[X.columns[i]] if hasattr(X, "columns") else X[:, i])

    others = [entries(i).astype(np.float64) for i in range(n_columns) if i != index]
    labels = [None] * n_rows if index is None else entries(index).tolist()
    if index is not None:
        refuse_missing(labels, column, parameter)
    return np.column_stack(others), labels
