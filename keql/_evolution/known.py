"""What is known of each function in space and time: right-hand sides and inputs.

Both are functions of points. At the Radau points of a grid they are the rows of one
array: those of the E equations first, then the I inputs that unknown parts depend on.
"""

import numpy as np


def known_functions(setup):
    """For each function a tuple of what is known, each a function of points or None.

    None is a right-hand side that is zero.
    """
    return tuple(
        (*forcing, *setup.inputs.of_function(m).values())
        for m, forcing in enumerate(setup.forcing_functions)
    )


def known_at(grid, functions):
    """Values (E + I, 3 n_steps n_points) of functions at all Radau points of a grid."""
    points = grid.points[:, 1:].reshape(-1, grid.d)
    known = np.zeros((len(functions), len(points)))
    for row, f in zip(known, functions, strict=True):
        if f is not None:
            row[:] = np.ravel(f(points.copy()))
    return known


def split_known(equations, known, n):
    """Right-hand sides (E, n) of equations, inputs (I, n): of an array, or a number."""
    n_equations, n_inputs = len(equations), len(equations[0].inputs)
    known = np.broadcast_to(known, (n_equations + n_inputs, n))
    return known[:n_equations], known[n_equations:]
