"""How far features lie from those that an equation was learned from."""

import numpy as np


def coverage_ratio(training, S, negligible=1e-6):
    """How far out features (n, p) are, in units of the region that others (m, p) cover.

    The region is the smallest box around the training features, cut with the smallest
    multiple of their covariance ellipsoid that holds all of them: the second finds
    combinations of values that were each seen, but not together (hidden extrapolation).
    The ratio (n,) is at most 1 inside; 2 is twice as far from the centre as the border.
    A direction in which the training features vary by less than `negligible` of their
    size does not count: there they are one value with rounding errors.

    Cook, "Detection of influential observation in linear regression", 1977, on the
    leverage of new points; here with the box, as leverage is lenient with outliers.
    """
    lower, upper = training.min(axis=0), training.max(axis=0)
    half = 0.5 * (upper - lower)
    size = np.maximum(np.abs(lower), np.abs(upper))
    constant = half <= negligible * size
    half = np.where(constant, np.where(size > 0, size, 1.0), half)
    centre = 0.5 * (lower + upper)
    ratio = np.max(np.abs(S - centre) / half, axis=1, initial=0.0)
    mean = training.mean(axis=0)
    scaled = (training - mean) / half
    _, spread, axes = np.linalg.svd(scaled, full_matrices=False)
    varying = spread > negligible * spread.max(initial=0.0)
    if not varying.any():
        return ratio
    whiten = axes[varying].T / spread[varying]
    largest = np.linalg.norm(scaled @ whiten, axis=1).max()
    distance = np.linalg.norm((S - mean) / half @ whiten, axis=1)
    return np.maximum(ratio, distance / largest)
