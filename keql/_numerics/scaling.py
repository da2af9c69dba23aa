"""The size of values and the extent of points, by which everything is scaled."""

import numpy as np


def rms(values):
    """Root mean square of values, in their units; 0 if there are none.

    The largest value is divided out first, so that no square overflows or vanishes.
    """
    largest = np.max(np.abs(values), initial=0.0)
    if largest == 0:
        return 0.0
    return float(largest * np.sqrt(np.mean((values / largest) ** 2)))


def size_or_one(values):
    """Root mean square of values by which others are divided; 1 if all are zero."""
    return rms(values) or 1.0


def extent_of(points):
    """Extent (d,) of points (n, d) in each coordinate; 1 where they do not differ."""
    extent = np.ptp(points, axis=0)
    return np.where(extent > 0, extent, 1.0)
