"""The Lorenz system."""

from typing import Any

import numpy as np

from keql._numerics.arguments import as_numbers
from keql.datasets import _common as common
from keql.datasets import _systems as systems


def make_lorenz(
    n_samples: int = 200,
    *,
    t_end: float = 10.0,
    initial: Any = (-8.0, 8.0, 27.0),
    parameters: Any = (10.0, 28.0, 8 / 3),
    observed: Any = ("x", "y", "z"),
    streams: int | None = None,
    noise: float = 0.0,
    random_state: Any = None,
) -> Any:
    """Make observations of the Lorenz system.

    The states solve x_t = sigma (y - x), y_t = x (rho - z) - y, z_t = x y - beta z.
    Known are the derivatives in time, unknown are the three right-hand sides.

    The motion is chaotic: an error grows by a factor of about e for each unit of time.

    Parameters
    ----------
    n_samples : int, default=200
        Number of sampling times, uniform on [0, t_end]; at least 2.
    t_end : float, default=10.0
        End of the time interval.
    initial : tuple of float, default=(-8.0, 8.0, 27.0)
        Values of x, y and z at t = 0.
    parameters : tuple of float, default=(10.0, 28.0, 8 / 3)
        The values of sigma, rho and beta.
    observed : str or tuple of str, default=("x", "y", "z")
        Names of the states that are measured; the columns of the others are NaN.
    streams : int, default=None
        Only one of the states is measured at a time: this many samples of the first
        of `observed`, as many of the next, and after the last of the first again.
        None: all of them at all times.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise of `y`, as a fraction of the root mean
        square of each clean state.
    random_state : int, RandomState, Generator or None, default=None
        Draws the noise, the same for every `observed` and `streams`.

    Returns
    -------
    Bunch
        With the entries of :mod:`keql.datasets`, among them

        - `X` (n_samples, 1), `y` (n_samples, 3): the observations, NaN where a state
          is not measured;
        - `X_test` (2000, 1), `y_test` (2000, 3): the clean states on a uniform grid;
        - `feature_names`: ("t", "x", "y", "z", "x_t", "y_t", "z_t");
        - `terms`: the true right-hand sides, ``{"x_t": {"x": -10.0, "y": 10.0}, ...}``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Examples
    --------
    >>> from keql.datasets import make_lorenz
    >>> data = make_lorenz(400, observed=("x", "y"), streams=1)
    >>> data.y[:3].round(1)
    array([[-8. ,  nan,  nan],
           [ nan,  7.4,  nan],
           [-1.9,  nan,  nan]])
    >>> data.operators, data.known_part
    (('x', 'y', 'z'), ('x_t', 'y_t', 'z_t'))
    """
    common.check_count(n_samples, "n_samples", 2)
    common.check_number(t_end, "t_end", min_val=0.0, include_boundaries="neither")
    common.check_number(noise, "noise", min_val=0.0)
    states = ("x", "y", "z")
    start = systems.check_initial(initial, states)
    columns = systems.check_observed(observed, states)
    equations = _make_equations(parameters, states)
    measured = np.zeros((n_samples, 3), dtype=bool)
    if streams is None:
        measured[:, columns] = True
    else:
        common.check_count(streams, "streams", 1)
        rows = np.arange(n_samples)
        measured[rows, np.take(columns, rows // streams % len(columns))] = True
    X, X_test = (np.linspace(0.0, t_end, n)[:, None] for n in (n_samples, 2000))
    truth = systems.Trajectory(equations, states, start, t_end, nodes_per_time=1000)
    description = systems.DESCR.format(
        title="Lorenz system",
        equations="x_t = sigma (y - x),  y_t = x (rho - z) - y,  z_t = x y - beta z",
        operators=", ".join(states),
        truth="an integrator of order 8 with a tolerance of 1e-12",
    )
    rng = common.random_generator(random_state)
    return systems.make_bunch(
        equations, X, measured, X_test, truth, noise, rng, DESCR=description
    )


def _make_equations(parameters, states):
    """The right-hand sides, from sigma, rho and beta."""
    values = as_numbers(parameters, "parameters")
    if values.shape != (3,) or not np.all(np.isfinite(values)):
        raise ValueError(
            f"parameters={parameters!r}; give three finite numbers, sigma, rho, beta."
        )
    sigma, rho, beta = values.tolist()
    terms = {
        "x_t": {"x": -sigma, "y": sigma},
        "y_t": {"x": rho, "x z": -1.0, "y": -1.0},
        "z_t": {"x y": 1.0, "z": -beta},
    }
    return systems.Polynomials(("t",), states, terms)
