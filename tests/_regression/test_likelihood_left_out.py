"""Log densities of values that are left out, against their definition."""

import numpy as np
from scipy.stats import multivariate_normal

from keql._observations.data import FunctionData
from keql._regression.likelihood import left_out_log_densities
from keql.kernels import RBF


def test_they_are_differences_of_joint_log_densities():
    rng = np.random.default_rng(2)
    points, values, weights = rng.uniform(size=(6, 1)), rng.normal(size=6), np.ones(6)
    weights[2] = 4.0
    data = FunctionData(points, values, weights, np.zeros(6, dtype=int), [])
    kernel, noise = RBF(0.3), 0.4
    covariance = kernel(points) + noise**2 * np.diag(1 / weights)

    def joint(rows):
        K = covariance[np.ix_(rows, rows)]
        return multivariate_normal.logpdf(values[rows], cov=K)

    everything = list(range(6))
    expected = [
        joint(everything) - joint([j for j in everything if j != i]) for i in everything
    ]
    found = left_out_log_densities(kernel, noise, [data, data])
    np.testing.assert_allclose(found, expected * 2, rtol=1e-10)
