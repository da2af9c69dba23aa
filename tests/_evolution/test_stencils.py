"""Derivatives from a few values nearby."""

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from numpy.testing import assert_allclose

from keql._evolution.fronts.stencils import stencil_weights


@pytest.mark.parametrize("order", [0, 1, 4])
def test_polynomials_are_differentiated_exactly(order):
    rng = np.random.RandomState(0)
    nodes = np.arange(6.0) + rng.uniform(-0.3, 0.3, size=(3, 2, 6))
    places = rng.uniform(0, 5, size=(3, 2))
    quintic = Polynomial(rng.normal(size=6))
    weights = stencil_weights(nodes, places, order)
    assert weights.shape == (order + 1, 3, 2, 6)
    for k, own in enumerate(weights):
        found = np.sum(own * quintic(nodes), axis=-1)
        expected = quintic.deriv(k)(places) if k else quintic(places)
        assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_the_weights_of_equidistant_values_are_those_of_central_differences():
    second = stencil_weights(np.array([[-1.0, 0.0, 1.0]]), np.zeros(1), 2)[2]
    assert_allclose(second, [[1.0, -2.0, 1.0]])
