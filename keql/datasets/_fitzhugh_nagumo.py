"""The FitzHugh-Nagumo equations: an activator and its recovery, which diffuse."""

from typing import Any

import numpy as np
from scipy.fft import dct, idct

from keql.datasets import _common as common
from keql.datasets import _systems as systems


class _CosineSeries(systems.Truth):
    """The solution on [0, t_end] x [0, 10] as cosines in x with splines in t.

    The slopes of both fields at both ends are zero, as those of the cosines are. Values
    on `n_waves` points are stepped in time; the splines are of degree 7 through values
    of the coefficients only, so that the equations are not built into the derivatives.
    """

    variables, states, length = ("t", "x"), ("u", "v"), 10.0
    lower = (0.0, 0.0)

    def __init__(self, t_end, n_waves=48):
        self.upper = (float(t_end), self.length)
        self._numbers = np.pi / self.length * np.arange(n_waves)
        x = (np.arange(n_waves) + 0.5) * self.length / n_waves
        angle = np.pi * x / self.length
        start = [1.5 * np.cos(angle) + 0.5 * np.cos(3 * angle), 0.8 * np.cos(2 * angle)]
        initial = dct(np.array(start), norm="forward").ravel()
        # Steps as long as the method is stable would leave noise in the short waves.
        step = 2 / (0.5 * self._numbers[-1] ** 2)
        self._spline = systems.integrate(self._rate, initial, t_end, 100, step)

    def _rate(self, t, coefficients):
        waves = coefficients.reshape(2, -1)
        u, v = idct(waves, norm="forward")
        u_xx, v_xx = -(self._numbers**2) * waves
        reactions = [u - u**3 / 3 - v + 0.3, 0.4 * u - 0.2 * v + 0.08]
        reaction_u, reaction_v = dct(np.array(reactions), norm="forward")
        return np.concatenate([0.5 * u_xx + reaction_u, 0.1 * v_xx + reaction_v])

    def derivative(self, points, state, orders):
        """Values (n,) of a derivative of a state."""
        t, x = points.T
        waves = self._spline(t, nu=orders[0]).reshape(len(t), 2, -1)[:, state]
        cosines = np.cos(np.outer(x, self._numbers) + orders[1] * np.pi / 2)
        values = 2 * waves * cosines * self._numbers ** orders[1]
        # The constant is once in the series, the other waves twice.
        return values.sum(axis=1) - values[:, 0] / 2


def make_fitzhugh_nagumo(
    n_samples: int = 200,
    *,
    t_end: float = 10.0,
    noise: float = 0.0,
    random_state: Any = None,
) -> Any:
    """Make observations of the FitzHugh-Nagumo equations in one space dimension.

    An activator u and its recovery v solve u_t = 0.5 u_xx + u - u^3 / 3 - v + 0.3 and
    v_t = 0.1 v_xx + 0.4 u - 0.2 v + 0.08 for t in [0, t_end] and x in [0, 10], with
    u_x = v_x = 0 at both ends. Known are the derivatives in time, unknown are both
    right-hand sides. Each field is measured at points of its own.

    Parameters
    ----------
    n_samples : int, default=200
        Number of points at which u is measured, and of those at which v is, all drawn
        from the uniform distribution.
    t_end : float, default=10.0
        End of the time interval.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise of `y`, as a fraction of the root mean
        square of each clean state.
    random_state : int, RandomState, Generator or None, default=None
        Draws the points and the noise. More samples only add points.

    Returns
    -------
    Bunch
        With the entries of :mod:`keql.datasets`, among them

        - `X` (2 n_samples, 2), `y` (2 n_samples, 2): the observations at (t, x), of u
          in even rows and of v in odd ones; NaN for the other;
        - `X_test` (10000, 2), `y_test` (10000, 2): the clean states on a uniform grid;
        - `feature_names`: ("t", "x", "u", "u_xx", "v", "v_xx", "u_t", "v_t");
        - `terms`: the true right-hand sides, ``{"u_t": {"u_xx": 0.5, ...}, ...}``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.datasets import make_fitzhugh_nagumo
    >>> data = make_fitzhugh_nagumo(150, random_state=0)
    >>> data.X.shape, np.isnan(data.y[:2])
    ((300, 2), array([[False,  True],
           [ True, False]]))
    >>> data.terms["v_t"]
    {'v_xx': 0.1, 'u': 0.4, 'v': -0.2, '1': 0.08}
    """
    common.check_count(n_samples, "n_samples", 1)
    common.check_number(t_end, "t_end", min_val=0.0, include_boundaries="neither")
    common.check_number(noise, "noise", min_val=0.0)
    truth, rng = _CosineSeries(t_end), common.random_generator(random_state)
    terms = {
        "u_t": {"u_xx": 0.5, "u": 1.0, "u^3": -1 / 3, "v": -1.0, "1": 0.3},
        "v_t": {"v_xx": 0.1, "u": 0.4, "v": -0.2, "1": 0.08},
    }
    operators = ("u", "u_xx", "v", "v_xx")
    equations = systems.Polynomials(truth.variables, operators, terms)
    X = rng.uniform(truth.lower, truth.upper, (2 * n_samples, 2))
    measured = np.tile([[True, False], [False, True]], (n_samples, 1))
    X_test = common.product_grid(
        np.linspace(0.0, t_end, 100), np.linspace(0.0, truth.length, 100)
    )
    description = systems.DESCR.format(
        title="FitzHugh-Nagumo equations",
        equations="u_t = 0.5 u_xx + u - u^3 / 3 - v + 0.3\n"
        "v_t = 0.1 v_xx + 0.4 u - 0.2 v + 0.08",
        operators=", ".join(operators),
        truth="a series of 48 cosines, integrated with a tolerance of 1e-12",
    )
    return systems.make_bunch(
        equations, X, measured, X_test, truth, noise, rng, DESCR=description
    )
