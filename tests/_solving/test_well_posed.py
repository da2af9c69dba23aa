"""On how many values of a coordinate boundary data are spread over the others."""

import numpy as np
import pytest

from keql._solving.well_posed import _conditions_across

BOX = np.array([[0.0, 0.0], [2.0, 1.0]])
SIDE = np.linspace(0, 1, 6)


def line(t=None, x=None):
    """Points on a line of the box, on which t or x is constant."""
    t = 2 * SIDE if t is None else np.full(6, t)
    return np.column_stack([t, SIDE if x is None else np.full(6, x)])


@pytest.mark.parametrize(
    ("points", "counts"),
    [
        (line(t=0.0), (1, 0)),  # its ends lie on the sides, but say nothing of later
        (line(x=1.0), (0, 1)),
        (np.vstack([line(x=0.0), line(x=1.0), line(t=0.0)]), (1, 2)),
        (line(t=2.0)[[0, 1, 5]], (0, 0)),  # a gap
        (np.vstack([line(t=t)[1:-1] for t in (0.4, 0.8, 1.2, 1.6)]), (4, 4)),
    ],
)
def test_conditions_across(points, counts):
    assert tuple(_conditions_across(points, axis, BOX) for axis in (0, 1)) == counts
