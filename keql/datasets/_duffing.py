"""The forced Duffing oscillator."""

from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.interpolate import make_interp_spline

from keql._numerics.arguments import naming
from keql._numerics.memory import refuse_steps
from keql.datasets import _common as common
from keql.kernels import RBF, Constant, RationalQuadratic


class _DuffingTruth:
    """A trajectory on [0, t_max] as a spline of degree 7 through its values only.

    The derivatives are those of the spline: that they satisfy the equation is a check
    of the trajectory and not built in. `tolerance` is the integrator's: the motion is
    chaotic, an error grows by a factor of about 1e9 until t = 50.
    """

    def __init__(self, t_max, initial, tolerance=1e-13, nodes_per_time=200):
        self.t_max = float(t_max)
        settings = {"method": "DOP853", "rtol": tolerance, "atol": tolerance}
        span = 0.0, self.t_max
        solution = solve_ivp(_rate, span, initial, dense_output=True, **settings)
        n_nodes = int(nodes_per_time * self.t_max)
        t = np.linspace(0.0, self.t_max, max(n_nodes, 8 * len(solution.t)))
        with naming("t_max"):
            self._spline = make_interp_spline(t, solution.sol(t)[0], k=7)

    def __call__(self, X, operator="u", function=None):
        common.refuse_function(function)
        t = common.check_points(X, [0.0], [self.t_max])[:, 0]
        return self._spline(t, nu=common.orders_of(operator, ("t",))[0])


def _rate(t, state):
    u, u_t = state
    return [u_t, np.cos(2 * t) + 3 * u - 3 * u**3 - 0.2 * u_t]


def _forcing(points):
    return np.cos(2 * np.asarray(points, dtype=np.float64)[:, 0])


def _unknown_part(features):
    u, u_t = np.asarray(features, dtype=np.float64)[:, 1:3].T
    return -3 * u + 3 * u**3 + 0.2 * u_t


def _equation(features):
    return _unknown_part(features) + np.asarray(features)[:, 3]


def make_duffing(
    n_observations: int = 32,
    *,
    t_max: float = 50.0,
    initial: Any = (0.0, 0.0),
    n_collocation: int = 1000,
    noise: float = 0.0,
    random_state: Any = None,
) -> Any:
    """Make observations of a forced Duffing oscillator.

    The state solves u_tt - 3 u + 3 u^3 + 0.2 u_t = cos(2 t). Known are u_tt and the
    forcing, unknown is P = -3 u + 3 u^3 + 0.2 u_t.

    The motion is chaotic. The trajectory is computed to about 1e-3 up to t = 50 by an
    integrator at the edge of double precision; one at a tolerance of 1e-8 (as in the
    published run) agrees with it to 1e-2 until t = 23 and leaves it after t = 25.

    Parameters
    ----------
    n_observations : int, default=32
        Number of observations, uniform on [0, t_max]; at least 2.
    t_max : float, default=50.0
        End of the time interval.
    initial : pair of float, default=(0.0, 0.0)
        Values u(0) and u_t(0).
    n_collocation : int, default=1000
        Number of collocation points, uniform on [0, t_max]; at least 2.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise of `y`, as a fraction of the root mean
        square of the clean state.
    random_state : int, RandomState, Generator or None, default=None
        Draws the noise.

    Returns
    -------
    Bunch
        With the entries of :mod:`keql.datasets`, among them

        - `X` (n_observations, 1), `y` (n_observations,): the observations;
        - `X_test` (5000, 1), `y_test`: the clean state on a uniform grid;
        - `feature_names`: ("t", "u", "u_t", "u_tt");
        - `equation(features)`: the values of P + u_tt.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Examples
    --------
    >>> from keql.datasets import make_duffing
    >>> data = make_duffing()
    >>> data.X.shape, data.collocation_points.shape
    ((32, 1), (1000, 1))
    >>> u, u_t, u_tt = (data.truth(data.X, name) for name in ("u", "u_t", "u_tt"))
    >>> residual = u_tt - 3 * u + 3 * u**3 + 0.2 * u_t - data.forcing(data.X)
    >>> bool(abs(residual).max() < 1e-6)
    True
    """
    common.check_count(n_observations, "n_observations", 2)
    common.check_count(n_collocation, "n_collocation", 2)
    common.check_number(t_max, "t_max", min_val=0.0, include_boundaries="neither")
    t_max = float(t_max)  # products of small integers of NumPy overflow
    refuse_steps(1000 * t_max, f"t_max={t_max:g}", "give an earlier end.")
    common.check_number(noise, "noise", min_val=0.0)
    start = np.asarray(initial, dtype=np.float64)
    if start.shape != (2,) or not np.all(np.isfinite(start)):
        raise ValueError(f"initial={initial!r}; give two numbers, u(0) and u_t(0).")
    kernels = {
        "state_kernel": RationalQuadratic(2**-0.5, 1.0, "fixed", "fixed"),
        "equation_kernel": Constant(1.0, "fixed") * RBF(1.0, "fixed"),
        **common.noise_levels(n_observations, n_collocation, omega=50, beta=1e-9),
        "n_inducing": min(500, n_collocation),
    }
    others = {
        "kernels": kernels,
        "equation": _equation,
        "unknown_part": _unknown_part,
        "DESCR": common.DESCR.format(
            title="Forced Duffing oscillator",
            equation="u_tt + P(u) = cos(2 t),  P(u) = -3 u + 3 u^3 + 0.2 u_t",
            operators="u, u_t",
            truth="an integrator of order 8 with a tolerance of 1e-13.",
        ),
    }
    counts = n_collocation, n_observations, 5000
    points, X, X_test = (np.linspace(0.0, t_max, n)[:, None] for n in counts)
    problem = common.describe_problem(("u", "u_t"), "u_tt", points, _forcing, ("t",))
    truth, rng = _DuffingTruth(t_max, start), common.random_generator(random_state)
    return common.make_bunch(problem, X, X_test, truth, noise, rng, **others)
