"""Burgers' equation on the unit square of space and time."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.fft import dst, idst
from scipy.interpolate import RectBivariateSpline

from keql._numerics.arguments import as_numbers, call_given
from keql._numerics.memory import MemoryBudget, refuse_steps
from keql.datasets import _common as common
from keql.kernels import RBF, Constant, Polynomial


@dataclass(frozen=True)
class _Resolution:
    """How finely the truth is computed and kept.

    There are `n_nodes` in space, and at least `n_steps` time steps, of which `n_levels`
    at equidistant times are kept for the interpolation, and the initial state. At most
    the fraction `tail` of the norm of a state may lie in the shortest third of its
    waves.
    """

    n_nodes: int = 2001
    n_steps: int = 10_000
    n_levels: int = 1_000
    tail: float = 1e-3


def _advection(theta, n_nodes):
    """The map from u at the inner nodes to theta u u_x there, by central differences.

    The derivative of u^2 / 2 is of order 8, on nine nodes. u is odd at both sides, so
    that its square is even there, and zero on them.
    """
    # With the signs of numpy's convolution.
    weights = [-1 / 280, 4 / 105, -1 / 5, 4 / 5, 0, -4 / 5, 1 / 5, -4 / 105, 1 / 280]
    stencil = np.array(weights) * theta / 2 * (n_nodes - 1)
    n_ghosts = len(stencil) // 2
    square = np.zeros(n_nodes + 2 * n_ghosts - 2)

    def advection(u):
        square[n_ghosts:-n_ghosts] = u**2
        square[: n_ghosts - 1] = square[n_ghosts : 2 * n_ghosts - 1][::-1]
        square[1 - n_ghosts :] = square[1 - 2 * n_ghosts : -n_ghosts][::-1]
        return np.convolve(square, stencil, "valid")

    return advection


def _solve_burgers(u0, theta, nu, n_nodes, n_steps, n_levels):
    """Solve u_t = theta u u_x + nu u_xx on the unit square, u = 0 at x = 0 and 1.

    Strang splitting: the diffusion is exact in the sine basis, its half steps of
    neighbouring steps are taken together; the advection takes one step of a
    Runge-Kutta method of order 4. With smooth solutions the error is that of the
    splitting, of order 2 in the step.

    Returns the state at `n_levels` + 1 equidistant times, shape (n_levels + 1,
    n_nodes), of which `n_steps` must be a multiple; not a number at the times after
    the solution has left its bound, that of the initial state.
    """
    dt, stride = 1 / n_steps, n_steps // n_levels
    rates = nu * (np.pi * np.arange(1, n_nodes - 1)) ** 2
    half, full = np.exp(-rates * dt / 2), np.exp(-rates * dt)
    advection = _advection(theta, n_nodes)
    levels = np.full((n_levels + 1, n_nodes), np.nan)
    levels[:, [0, -1]] = 0.0
    levels[0] = u0
    bound = 10 * np.max(abs(u0))
    waves = dst(u0[1:-1], 1) * half
    # Fronts that the nodes do not resolve grow without bound.
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(1, n_steps + 1):
            u = idst(waves, 1)
            k1 = advection(u)
            k2 = advection(u + dt / 2 * k1)
            k3 = advection(u + dt / 2 * k2)
            k4 = advection(u + dt * k3)
            waves = dst(u + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), 1)
            if step % stride == 0:
                level = idst(waves * half, 1)
                if not np.max(abs(level)) <= bound:
                    break
                levels[step // stride, 1:-1] = level
            waves *= full
    return levels


class _BurgersTruth:
    """A solution on the unit square as a quintic spline in t and x."""

    def __init__(self, initial_condition, theta, nu, resolution):
        n_nodes, n_levels = resolution.n_nodes, resolution.n_levels
        x = np.linspace(0.0, 1.0, n_nodes)
        u0 = _initial_state(initial_condition, x)
        # Stability of the advection: its eigenvalues reach 1.73 i |theta u| / dx, and
        # the Runge-Kutta method is stable up to 2.83 i.
        stable = 1.73 / 2.5 * abs(theta) * np.max(abs(u0)) * (n_nodes - 1)
        steps_per_level = np.ceil(max(resolution.n_steps, stable) / n_levels)
        n_steps = int(steps_per_level) * n_levels
        refuse_steps(n_steps, f"theta={theta:g}", "give a smaller theta.")
        u = _solve_burgers(u0, theta, nu, n_nodes, n_steps, n_levels)
        waves = dst(u[:, 1:-1], 1, axis=1)
        short = np.linalg.norm(waves[:, 2 * waves.shape[1] // 3 :], axis=1)
        if not np.all(short <= resolution.tail * np.linalg.norm(waves, axis=1)):
            raise ValueError(
                f"nu={nu} is too small for theta={theta} and this initial_condition: "
                f"the solution has fronts that {n_nodes} nodes do not resolve. "
                "Give a larger nu or a smoother initial_condition."
            )
        t = np.linspace(0.0, 1.0, n_levels + 1)
        self._spline = RectBivariateSpline(t, x, u, kx=5, ky=5)

    def __call__(self, X, operator="u", function=None):
        common.refuse_function(function)
        t, x = common.check_points(X, [0.0, 0.0], [1.0, 1.0]).T
        order_t, order_x = common.orders_of(operator, ("t", "x"))
        return self._spline.ev(t, x, dx=order_t, dy=order_x)


def _published_initial_condition(x):
    return (x * np.sin(np.pi * x) - np.sin(5 * np.pi * x) - np.sin(3 * np.pi * x)) / 4


def _random_initial_condition(x, rng):
    waves = np.arange(1, 50)
    coefficients = rng.standard_normal(len(waves)) / (waves + 1) ** 2
    return np.sin(np.pi * np.outer(x, waves)) @ coefficients


def _initial_state(initial_condition, x):
    """Return the values of the initial condition at the nodes, checked."""
    u0 = call_given(initial_condition, "initial_condition", x)
    size = np.max(abs(u0))
    if u0.shape != x.shape or not np.isfinite(size) or size == 0:
        raise ValueError(
            "initial_condition must map an array of positions (n,) to finite values "
            "(n,) that are not all zero."
        )
    if np.max(abs(u0[[0, -1]])) > 1e-9 * size:
        raise ValueError(
            f"initial_condition is {u0[0]:.3g} at x = 0 and {u0[-1]:.3g} at x = 1; it "
            "must be zero at both."
        )
    u0[[0, -1]] = 0.0
    return u0


def _published_grid(shape, alpha):
    """Return t and x of the published grid, clustered towards the sides."""
    n_t, n_x = shape
    j = np.arange(n_x)
    clustered, uniform = np.cos(np.pi * j / (n_x - 1)), 2 * j / (n_x - 1) - 1
    x = 0.5 * (1 - alpha * clustered + (1 - alpha) * uniform)
    # Exact ends, whatever the rounding.
    x[[0, -1]] = 0.0, 1.0
    return np.linspace(0.0, 1.0, n_t), x


def _unknown_part(features, theta, nu):
    u, u_x, u_xx = np.asarray(features, dtype=np.float64)[:, 2:5].T
    return -theta * u * u_x - nu * u_xx


def _equation(features, theta, nu):
    return _unknown_part(features, theta, nu) + np.asarray(features)[:, 5]


def _published_kernels(layout, n_observations, n_collocation):
    """Return the published kernels and noise levels of a layout."""
    state, variance, beta = RBF((0.3, 0.1)), 1.0, 1e-11
    if layout == "boundary":
        state, variance, beta = RBF(0.0125**0.5, "fixed"), 10.0, 1e-16
    equation = Constant(variance, "fixed") * Polynomial(2)
    noise = common.noise_levels(n_observations, n_collocation, omega=100, beta=beta)
    return {"state_kernel": state, "equation_kernel": equation, **noise}


def make_burgers(
    n_interior: int = 100,
    *,
    theta: float = 1.0,
    nu: float = 0.01,
    initial_condition: Any = None,
    layout: str = "random",
    collocation_shape: Any = (26, 31),
    noise: float = 0.0,
    random_state: Any = None,
) -> Any:
    """Make observations of a solution of Burgers' equation.

    The state solves u_t = theta u u_x + nu u_xx for t and x in [0, 1] with u = 0 at
    x = 0 and x = 1. Known is u_t, unknown is P = -theta u u_x - nu u_xx.

    Parameters
    ----------
    n_interior : int, default=100
        Number of observations drawn from the points of the grid that are neither on
        the sides nor at t = 0. Layout "boundary" has none.
    theta, nu : float, default=1.0 and 0.01
        Factor of the advection, and the viscosity, positive.
    initial_condition : None, "published" or callable, default=None
        State at t = 0. None draws sum_{j=1}^{49} (j + 1)^-2 Z_j sin(j pi x) with
        standard normal Z_j; "published" is (x sin pi x - sin 5 pi x - sin 3 pi x) / 4,
        that of the shock (theta=5, nu=0.001, 60 interior observations) and of the
        problem seen on the boundary only (theta=0.5, layout "boundary", shape
        (26, 26)); a callable maps positions (n,) to values (n,), zero at both sides.
    layout : {"random", "boundary"}, default="random"
        "random": both sides, t = 0 and `n_interior` points between are observed.
        "boundary": both sides, t = 0 and t = 1.
    collocation_shape : pair of int, default=(26, 31)
        Numbers of grid points in t (uniform) and in x (denser towards the sides); at
        least 2 and 3. The collocation points are the grid without its sides.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise of `y`, rows on the boundary included,
        as a fraction of the root mean square of the clean state.
    random_state : int, RandomState, Generator or None, default=None
        Draws the initial condition, the interior points and the noise. The initial
        condition is the same for every `n_interior`, and points are only added.

    Returns
    -------
    Bunch
        With the entries of :mod:`keql.datasets`, among them

        - `X` (n, 2), `y` (n,): the observations at (t, x), both sides first, then
          t = 0, then t = 1 or the interior points;
        - `kernels`: the state kernel of layout "random" is a start for the maximum
          likelihood; the published runs then multiplied its length scales by 0.75;
        - `X_test` (10000, 2), `y_test`: the clean state on a uniform grid;
        - `feature_names`: ("t", "x", "u", "u_x", "u_xx", "u_t");
        - `equation(features)`: the values of P + u_t.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or the solution too steep to be computed.

    Examples
    --------
    >>> from keql.datasets import make_burgers
    >>> data = make_burgers(n_interior=50, random_state=0)
    >>> data.X.shape, data.collocation_points.shape
    ((131, 2), (754, 2))
    >>> data.operators, data.known_part
    (('u', 'u_x', 'u_xx'), 'u_t')
    """
    common.check_number(theta, "theta")
    common.check_number(nu, "nu", min_val=0.0, include_boundaries="neither")
    common.check_number(noise, "noise", min_val=0.0)
    if not isinstance(layout, str) or layout not in ("random", "boundary"):
        raise ValueError(f"layout={layout!r}; give 'random' or 'boundary'.")
    shape = as_numbers(collocation_shape, "collocation_shape")
    is_whole = shape.shape == (2,) and np.all(np.mod(shape, 1) == 0)  # and finite
    if not is_whole or np.any(shape < (2, 3)):
        raise ValueError(
            f"collocation_shape={collocation_shape!r}; give the numbers of points in t "
            "(at least 2) and in x (at least 3)."
        )
    MemoryBudget().refuse_above(
        100 * np.prod(shape), f"collocation_shape={collocation_shape!r}", "give less."
    )
    shape = shape.astype(int)
    n_inner = (shape[0] - 1) * (shape[1] - 2)
    if layout == "random":
        common.check_count(
            n_interior, "n_interior", 0, n_inner, "inner points of collocation_shape"
        )
    rng = common.random_generator(random_state)
    if initial_condition is None:
        initial_condition = partial(_random_initial_condition, rng=rng)
    elif isinstance(initial_condition, str) and initial_condition == "published":
        initial_condition = _published_initial_condition
    elif not callable(initial_condition):
        raise ValueError(
            f"initial_condition={initial_condition!r}; give None, 'published' or a "
            "callable."
        )
    truth = _BurgersTruth(initial_condition, float(theta), float(nu), _Resolution())

    t, x = _published_grid(shape, alpha=0.6 if layout == "boundary" else 0.5)
    collocation = common.product_grid(t, x[1:-1])
    parts = [common.product_grid(t, x[[0, -1]]), common.product_grid(t[:1], x[1:-1])]
    if layout == "boundary":
        parts.append(common.product_grid(t[-1:], x[1:-1]))
    else:
        chosen = rng.permutation(n_inner)[:n_interior]
        parts.append(common.product_grid(t[1:], x[1:-1])[chosen])
    X = np.vstack(parts)
    fine = np.linspace(0.0, 1.0, 100)
    test = common.product_grid(fine, fine)
    operators, variables = ("u", "u_x", "u_xx"), ("t", "x")
    problem = common.describe_problem(operators, "u_t", collocation, None, variables)
    others = {
        "kernels": _published_kernels(layout, len(X), len(collocation)),
        "equation": partial(_equation, theta=theta, nu=nu),
        "unknown_part": partial(_unknown_part, theta=theta, nu=nu),
        "DESCR": common.DESCR.format(
            title="Burgers' equation",
            equation=f"u_t + P(u) = 0,  P(u) = -{theta} u u_x - {nu} u_xx",
            operators=", ".join(operators),
            truth="Strang splitting, second order in time, 2001 nodes.",
        ),
    }
    return common.make_bunch(problem, X, test, truth, noise, rng, **others)
