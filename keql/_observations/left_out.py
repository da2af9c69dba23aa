"""What is predicted of observations that are left out."""

import numpy as np


def left_out_errors(model, functions):
    """Errors of the predictions of observations from all others.

    Observations on the border of the box around their function's points are not
    counted, unless there are hardly others: what lies there is extrapolated.

    Parameters
    ----------
    model : DualModel or PrimalModel
        Linearised joint problem.
    functions : list of FunctionData
        The observations.

    Returns
    -------
    errors : ndarray
        In the units of the values, weighted as they are.
    """
    inner, border = [], []
    for data, errors in zip(functions, model.leave_one_out(), strict=True):
        x = data.points
        inside = np.all((x > x.min(axis=0)) & (x < x.max(axis=0)), axis=1)
        scaled = errors * np.sqrt(data.weights)
        inner.append(scaled[inside])
        border.append(scaled[~inside])
    inner, border = np.concatenate(inner), np.concatenate(border)
    return inner if len(inner) >= 5 else np.concatenate([inner, border])


def on_border(points, labels):
    """Which points lie on the border of the box around those of their function.

    Coordinates that are the same for all points of a function have no border.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        The points.
    labels : list of length n
        Of the functions.

    Returns
    -------
    mask : ndarray of bool of shape (n,)
        True on the border.
    """
    rows_of = {}
    for row, label in enumerate(labels):
        rows_of.setdefault(label, []).append(row)
    mask = np.zeros(len(points), dtype=bool)
    for rows in rows_of.values():
        x = points[rows]
        lower, upper = x.min(axis=0), x.max(axis=0)
        mask[rows] = np.any(((x == lower) | (x == upper)) & (lower < upper), axis=1)
    return mask
