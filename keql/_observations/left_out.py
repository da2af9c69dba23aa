"""What is predicted of observations that are left out."""

import numpy as np


def left_out_errors(model, functions, fewest_inside=5):
    """Error of the prediction of each observation from all others, of shape (n,).

    `model` is a linearised joint problem (a LinearModel) of the list of FunctionData
    `functions`. The errors have the units of the values and are weighted as the values
    are. An observation on the border of the box around the points of its function is
    extrapolated and not counted, unless fewer than `fewest_inside` lie inside.
    """
    errors = [
        missed * np.sqrt(data.weights)
        for data, missed in zip(functions, model.leave_one_out(), strict=True)
    ]
    errors = np.concatenate(errors)
    border = [np.any(_at_ends(data.points), axis=1) for data in functions]
    inside = ~np.concatenate(border)
    return errors[inside] if inside.sum() >= fewest_inside else errors


def on_border(points, labels):
    """Mask (n,) of the points (n, d) on the border of the box of their function.

    `labels`, a list of length n, names the function of each point. A coordinate that is
    the same for all points of a function has no border.
    """
    rows_of = {}
    for row, label in enumerate(labels):
        rows_of.setdefault(label, []).append(row)
    mask = np.zeros(len(points), dtype=bool)
    for rows in rows_of.values():
        varies = np.ptp(points[rows], axis=0) > 0
        mask[rows] = np.any(_at_ends(points[rows]) & varies, axis=1)
    return mask


def _at_ends(points):
    """Where a coordinate of points (n, d) is the least or the largest of all."""
    return (points == points.min(axis=0)) | (points == points.max(axis=0))
