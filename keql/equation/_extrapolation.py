"""How far features lie from those that an equation was learned from."""

import numpy as np

# Directions in which the training features vary by less, relatively, do not count.
NEGLIGIBLE = 1e-6


def coverage_ratio(training, S):
    """How far out features are, in units of the region that others cover.

    The region is the smallest box around the training features, cut with the smallest
    multiple of their covariance ellipsoid that holds all of them: the second finds
    unseen combinations of values that were each seen (hidden extrapolation).

    Parameters
    ----------
    training : ndarray of shape (m, p)
        Features that an equation was learned from.
    S : ndarray of shape (n, p)
        Features to judge.

    Returns
    -------
    ratio : ndarray of shape (n,)
        At most 1 inside; 2 is twice as far from the centre as the border.

    References
    ----------
    Cook, "Detection of influential observation in linear regression", 1977, on the
    leverage of new points; here with the box, as leverage is lenient with outliers.
    """
    lower, upper = training.min(axis=0), training.max(axis=0)
    half = 0.5 * (upper - lower)
    size = np.maximum(np.abs(lower), np.abs(upper))
    constant = half <= NEGLIGIBLE * size
    half = np.where(constant, np.where(size > 0, size, 1.0), half)
    centre = 0.5 * (lower + upper)
    ratio = np.max(np.abs(S - centre) / half, axis=1, initial=0.0)
    mean = training.mean(axis=0)
    scaled = (training - mean) / half
    _, spread, axes = np.linalg.svd(scaled, full_matrices=False)
    kept = spread > NEGLIGIBLE * spread.max(initial=0.0)
    if not kept.any():
        return ratio
    whiten = axes[kept].T / spread[kept]
    largest = np.linalg.norm(scaled @ whiten, axis=1).max()
    distance = np.linalg.norm((S - mean) / half @ whiten, axis=1)
    return np.maximum(ratio, distance / largest)
