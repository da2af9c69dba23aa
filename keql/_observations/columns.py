"""Columns of X that hold no coordinate: where they are, and what is in them."""

import numpy as np


def column_index(X, column, parameter):
    """Position, not negative, of a column of X (n, n_columns), by name or position.

    X is an array or a dataframe; `parameter` names the parameter for the error message.
    """
    names = list(X.columns) if hasattr(X, "columns") else None
    if isinstance(column, str):
        if names is None or column not in names:
            advice = "X is an array, give the index of the column."
            if names is not None:
                advice = f"its columns are {', '.join(map(str, names))}."
            raise ValueError(f"{parameter}={column!r} is no column of X: {advice}")
        return names.index(column)
    if not -X.shape[1] <= column < X.shape[1] or X.shape[1] < 2:
        raise ValueError(
            f"{parameter}={column} is no column of X, which has {X.shape[1]} columns "
            "(one of them for labels, the others for coordinates)."
        )
    return column % X.shape[1]


def refuse_missing(entries, column, parameter):
    """Refuse entries None or nan in a label column.

    `parameter`, "function_column" or "operator_column", says what they are labels of.
    """
    if any(entry is None or entry != entry for entry in entries):
        word = parameter.removesuffix("_column")
        raise ValueError(
            f"X has a missing {word} label in column {column!r}: every row must say "
            f"which {word} it belongs to."
        )


def split_labels(X, column, parameter):
    """Coordinates (n, d) and labels, a list of length n, of the rows of a table X.

    `column` is the name or position of the column of labels; without one (None) all
    labels are None. `parameter` names the parameter for error messages.
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
