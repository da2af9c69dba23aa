"""Sizes of values, also of those that squares would lose."""

import numpy as np
import pytest

from keql._numerics.linalg import extent_of, rms, size_or_one


@pytest.mark.parametrize("unit", [1e-300, 1e-6, 1.0, 1e300])
def test_the_root_mean_square_has_the_unit_of_the_values(unit):
    assert rms(unit * np.array([3.0, -4.0])) == pytest.approx(unit * 12.5**0.5)


def test_a_perfect_fit_has_no_error():
    """Zeros are of size one only where something is divided by their size."""
    for values in (np.zeros(3), np.zeros(0)):
        assert rms(values) == 0.0
        assert size_or_one(values) == 1.0
    assert size_or_one(np.full(4, 2.0)) == 2.0


def test_a_coordinate_without_extent_counts_as_one():
    points = np.array([[1.0, 5.0], [4.0, 5.0]])
    assert extent_of(points).tolist() == [3.0, 1.0]
