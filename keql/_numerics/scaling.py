"""The size of values and the extent of points, by which everything is scaled."""

import numpy as np


def root_mean_square(values):
    """Size of data: the root of their mean square, or 1 if they are all zero."""
    largest = np.max(np.abs(values), initial=0.0)
    if largest == 0:
        return 1.0
    return float(largest * np.sqrt(np.mean((values / largest) ** 2)))


def extent_of(points):
    """Extent of points in each coordinate; 1 where they do not differ.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Points.

    Returns
    -------
    extent : ndarray of shape (d,)
        In the units of the coordinates, positive.
    """
    extent = np.ptp(points, axis=0)
    return np.where(extent > 0, extent, 1.0)
