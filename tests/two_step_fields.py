"""Fields that two steps know, and a single wave that travels."""

import numpy as np

from keql import TwoStepKEqL
from keql.kernels import RBF

SLOPES = "u", "u_x", "u_xx"


def field_of(values, noise=0.0, scales=(1.0, 4.0), operators=SLOPES):
    """A model of u_t from u_x and u_xx, learned in two steps from a field."""
    t, x = np.meshgrid(np.linspace(0, 1, 13), np.linspace(0, 20, 31), indexing="ij")
    X = np.column_stack([t.ravel(), x.ravel()])
    model = TwoStepKEqL(
        operators,
        "u_t",
        variables=("t", "x"),
        state_kernel=RBF(scales, "fixed"),
        observation_noise=max(noise, 1e-6),
    )
    y = values(X) + noise * np.random.default_rng(0).standard_normal(len(X))
    return model._learn_in_two_steps(X, y, None)


def soliton(X):
    return 2 / np.cosh((X[:, 1] - 8 - 4 * X[:, 0]) / 3) ** 2
