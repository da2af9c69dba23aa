"""The heat equation with a law of heat transfer at one end."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.utils import Bunch

from keql._estimators.equations import Equation
from keql.datasets import _common as common
from keql.datasets import _systems as systems


@dataclass(frozen=True)
class _Laws:
    """The three equations, of a body of temperature u."""

    conductivity: float
    transfer: float
    ambient: float

    @property
    def terms(self):
        """The right-hand sides; that of the insulated end is zero."""
        wall = {"u": self.transfer, "1": -self.transfer * self.ambient}
        return {
            "interior": {"u_xx": self.conductivity},
            "wall": wall,
            "insulated": {},
        }

    def unknown_part(self, features):
        """Values (n, 3) of the unknown parts, those on the left-hand side."""
        u, u_xx = np.asarray(features, dtype=np.float64)[:, 2:4].T
        wall = self.transfer * (u - self.ambient)
        return -np.column_stack([self.conductivity * u_xx, wall, np.zeros(len(u))])

    def equation(self, features):
        """Values (n, 3) of the unknown parts and the known ones."""
        u_t, u_x = np.asarray(features, dtype=np.float64)[:, 4:6].T
        return self.unknown_part(features) + np.column_stack([u_t, u_x, u_x])


class _Modes(systems.Truth):
    """A sum of eigenfunctions cos(m (1 - x)) that decay to the ambient temperature.

    Their slope is zero at x = 1, and the law of the wall holds for all m with
    m tan m = h, of which there is one in each interval (j pi, j pi + pi / 2).
    """

    variables, states = ("t", "x"), ("u",)
    lower, upper = (0.0, 0.0), (1.0, 1.0)

    def __init__(self, laws, amplitudes):
        def condition(m):
            return m * np.sin(m) - laws.transfer * np.cos(m)

        starts = np.pi * np.arange(len(amplitudes))
        roots = [brentq(condition, a, a + np.pi / 2, xtol=1e-15) for a in starts]
        self._numbers, self._amplitudes = np.array(roots), np.array(amplitudes)
        self._rates = laws.conductivity * self._numbers**2
        self._ambient = laws.ambient

    def __call__(self, X, operator="u", function=None):
        return super().__call__(X, operator, function)

    def derivative(self, points, state, orders):
        """Values (n,) of a derivative of the temperature."""
        t, x = points.T
        angles = np.outer(1 - x, self._numbers) - orders[1] * np.pi / 2
        modes = np.cos(angles) * self._numbers ** orders[1]
        decay = np.exp(-np.outer(t, self._rates)) * (-self._rates) ** orders[0]
        values = (modes * decay) @ self._amplitudes
        return values if any(orders) else values + self._ambient


def make_heat_with_boundary_law(
    n_interior: int = 60,
    n_wall: int = 15,
    *,
    conductivity: float = 0.2,
    transfer: float = 2.0,
    ambient: float = 0.3,
    noise: float = 0.0,
    random_state: Any = None,
) -> Any:
    """Make observations of a body that cools through one wall.

    The temperature u solves u_t = conductivity u_xx for t and x in [0, 1]. At the wall
    x = 0 the heat flux follows u_x = transfer (u - ambient): heat flows out, to the
    left, while the wall is warmer than the ambient. At the other end, x = 1, u_x = 0.
    Known are the left-hand sides and that this end is insulated; unknown are both laws,
    of the interior and of the wall, which hold at points of their own.

    Parameters
    ----------
    n_interior : int, default=60
        Number of observations inside, drawn from the uniform distribution.
    n_wall : int, default=15
        Number of observations at the wall x = 0, uniform in time; at least 2.
    conductivity : float, default=0.2
        Conductivity of heat divided by the capacity, positive.
    transfer : float, default=2.0
        Coefficient of the heat transfer at the wall, positive, at most 1e12.
    ambient : float, default=0.3
        Temperature outside of the wall.
    noise : float, default=0.0
        Standard deviation of the Gaussian noise of `y`, rows at the wall included, as a
        fraction of the root mean square of the clean state.
    random_state : int, RandomState, Generator or None, default=None
        Draws the points inside and the noise. More points inside are only added.

    Returns
    -------
    Bunch
        With the entries of :mod:`keql.datasets`, among them

        - `X` (n_wall + n_interior, 2), `y` (n_wall + n_interior,): the observations at
          (t, x), those at the wall first;
        - `equations`: a list of (name, :class:`keql.Equation`), of the equations
          "interior", "wall" and "insulated", each with the points where it holds; it
          is in `problem`, in place of what describes a single equation;
        - `X_test` (10000, 2), `y_test` (10000,): the clean state on a uniform grid;
        - `feature_names`: ("t", "x", "u", "u_xx", "u_t", "u_x"), of all equations;
        - `unknown_part(features)`, `equation(features)`: columns for the interior,
          the wall and the insulated end, whatever the points;
        - `terms`: the true right-hand sides, ``{"interior": {"u_xx": 0.2}, ...}``.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Examples
    --------
    >>> from keql import TwoStepKEqL
    >>> from keql.datasets import make_heat_with_boundary_law
    >>> data = make_heat_with_boundary_law(random_state=0)
    >>> data.terms["wall"]
    {'u': 2.0, '1': -0.6}
    >>> model = TwoStepKEqL(**data.problem).fit(data.X, data.y)
    >>> found = model.equation_["wall"].sparse(n_terms=2).terms()
    >>> {name: round(value, 1) for name, value in found.items()}
    {'u': 2.0, '1': -0.6}
    """
    common.check_count(n_interior, "n_interior", 0)
    common.check_count(n_wall, "n_wall", 2)
    positive = {"min_val": 0.0, "include_boundaries": "neither"}
    common.check_number(conductivity, "conductivity", **positive)
    common.check_number(transfer, "transfer", max_val=1e12, **positive)
    common.check_number(ambient, "ambient")
    common.check_number(noise, "noise", min_val=0.0)
    laws = _Laws(float(conductivity), float(transfer), float(ambient))
    truth, rng = _Modes(laws, (1.2, -0.4, 0.2)), common.random_generator(random_state)
    inside = rng.uniform(size=(n_interior, 2))
    X = np.vstack([_points_at(0.0, n_wall), inside])
    fine = np.linspace(0.0, 1.0, 100)
    X_test = common.product_grid(fine, fine)
    y, y_test = truth(X), truth(X_test)
    noise_std = float(noise * np.sqrt(np.mean(y_test**2)))
    problem = {
        "variables": truth.variables,
        "states": truth.states,
        "equations": _describe_equations(),
    }
    return Bunch(
        X=X,
        y=y + noise_std * rng.standard_normal(len(y)),
        feature_names=["t", "x", "u", "u_xx", "u_t", "u_x"],
        X_test=X_test,
        y_test=y_test,
        noise_std=noise_std,
        problem=problem,
        kernels={},
        truth=truth,
        equation=laws.equation,
        unknown_part=laws.unknown_part,
        terms=laws.terms,
        DESCR=systems.DESCR.format(
            title="Heat equation with a law of heat transfer at one end",
            equations=f"u_t = {conductivity} u_xx in the interior\n"
            f"u_x = {transfer} (u - {ambient}) at x = 0,  u_x = 0 at x = 1",
            operators="u, u_xx in the interior, and of u at the wall",
            truth="a sum of three eigenfunctions",
        ),
        **problem,
    )


def _points_at(x, n):
    """Points (n, 2) at one position, uniform in time."""
    return np.column_stack([np.linspace(0.0, 1.0, n), np.full(n, x)])


def _describe_equations():
    """What is known of each equation, and where it holds."""
    axis = np.linspace(0.0, 1.0, 20)
    inside = common.product_grid(axis, axis)
    wall, insulated = _points_at(0.0, 40), _points_at(1.0, 40)
    return [
        ("interior", Equation("u_t", ("u", "u_xx"), collocation_points=inside)),
        ("wall", Equation("u_x", ("u",), collocation_points=wall)),
        ("insulated", Equation("u_x", collocation_points=insulated)),
    ]
