"""The Lotka-Volterra equations of prey and predators."""

from typing import Any

import numpy as np

from keql.datasets import _common as common
from keql.datasets import _systems as systems


def make_lotka_volterra(
    n_samples: int = 25,
    *,
    t_end: float = 24.0,
    initial: Any = (10.0, 5.0),
    noise: float = 0.0,
    random_state: Any = None,
) -> Any:
    """Make observations of the Lotka-Volterra equations.

    The states solve prey_t = 1.1 prey - 0.4 prey predator and predator_t =
    0.1 prey predator - 0.4 predator. Known are the derivatives in time, unknown are
    both right-hand sides. From the default initial values the period is 10.8.

    Parameters
    ----------
    n_samples : int, default=25
        Number of sampling times, uniform on [0, t_end]; at least 2.
    t_end : float, default=24.0
        End of the time interval.
    initial : pair of float, default=(10.0, 5.0)
        Prey and predators at t = 0, both positive.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise of `y`, as a fraction of the root mean
        square of each clean state.
    random_state : int, RandomState, Generator or None, default=None
        Draws the noise.

    Returns
    -------
    Bunch
        With the entries of :mod:`keql.datasets`, among them

        - `X` (n_samples, 1), `y` (n_samples, 2): the observations;
        - `X_test` (2000, 1), `y_test` (2000, 2): the clean states on a uniform grid;
        - `feature_names`: ("t", "prey", "predator", "prey_t", "predator_t");
        - `terms`: the true right-hand sides, ``{"prey_t": {"prey": 1.1, ...}, ...}``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Examples
    --------
    >>> from keql.datasets import make_lotka_volterra
    >>> data = make_lotka_volterra(noise=0.02, random_state=0)
    >>> data.X.shape, data.y.shape
    ((25, 1), (25, 2))
    >>> data.terms["prey_t"]
    {'prey': 1.1, 'prey predator': -0.4}
    """
    common.check_count(n_samples, "n_samples", 2)
    common.check_number(t_end, "t_end", min_val=0.0, include_boundaries="neither")
    common.check_number(noise, "noise", min_val=0.0)
    states = ("prey", "predator")
    start = systems.check_initial(initial, states)
    if np.any(start <= 0):
        raise ValueError(f"initial={initial!r}; give two positive numbers.")
    terms = {
        "prey_t": {"prey": 1.1, "prey predator": -0.4},
        "predator_t": {"prey predator": 0.1, "predator": -0.4},
    }
    equations = systems.Polynomials(("t",), states, terms)
    X, X_test = (np.linspace(0.0, t_end, n)[:, None] for n in (n_samples, 2000))
    truth = systems.Trajectory(equations, states, start, t_end, nodes_per_time=200)
    description = systems.DESCR.format(
        title="Lotka-Volterra equations",
        equations="prey_t = 1.1 prey - 0.4 prey predator\n"
        "predator_t = 0.1 prey predator - 0.4 predator",
        operators=", ".join(states),
        truth="an integrator of order 8 with a tolerance of 1e-12",
    )
    measured = np.ones((n_samples, 2), dtype=bool)
    rng = common.random_generator(random_state)
    return systems.make_bunch(
        equations, X, measured, X_test, truth, noise, rng, DESCR=description
    )
