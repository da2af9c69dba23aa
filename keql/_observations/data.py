"""The observed values of several functions."""

from dataclasses import dataclass

import numpy as np

from keql._numerics.scaling import size_or_one


def noise_range(size=1.0, smallest=1e-5, largest=1.0):
    """Least and largest noise level that is fitted, of shape (2,).

    They are the parts `smallest`, which counts as exact data, and `largest` of the root
    mean square `size` of the values, in its unit.
    """
    return np.multiply((smallest, largest), size)


@dataclass(frozen=True)
class Observations:
    """Validated data: one regression problem for each function."""

    labels: tuple
    functions: list


def sorted_labels(labels):
    """Different labels in an order that does not depend on that of the rows."""
    return sorted(set(labels), key=lambda label: (type(label).__name__, label))


def refuse_conflicts(functions):
    """Refuse different values at one point, which exact observations cannot have."""
    for data in functions:
        points, counts = np.unique(data.points, axis=0, return_counts=True)
        if np.any(counts > 1):
            raise ValueError(
                f"y has {counts.max()} conflicting values at the point "
                f"{points[counts.argmax()]} of X, but observation_noise=0 says that "
                "they are exact: give a noise level, or leave it to be estimated."
            )


@dataclass(frozen=True)
class FunctionData:
    """Noisy values of one function: y_i = v(x_i) + noise / sqrt(weight_i).

    Parameters
    ----------
    points : ndarray of shape (n, d)
        The x_i.
    values : ndarray of shape (n,)
        The y_i.
    weights : ndarray of shape (n,)
        Positive; relative precisions of the values.
    """

    points: np.ndarray
    values: np.ndarray
    weights: np.ndarray


def size_of(functions):
    """Root mean square of the values of several functions, in their units."""
    return size_or_one(np.concatenate([data.values for data in functions]))
