"""What the systems of equations share: right-hand sides, truth, observations."""

from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from scipy.integrate import solve_ivp
from scipy.interpolate import make_interp_spline
from sklearn.utils import Bunch

from keql._numerics.arguments import as_numbers, naming
from keql._numerics.memory import refuse_steps
from keql.datasets import _common as common
from keql.kernels import parse_monomial
from keql.operators import parse_operator

DESCR = """{title}

{equations}

The unknown parts are functions of
{operators}.

The truth is {truth}. No settings are published for these data: `kernels` is empty, and
the collocation points are left to the learner.
"""


@dataclass(frozen=True)
class Polynomials:
    """Equations whose known parts are operators, equal to polynomials of operators.

    `terms` are the right-hand sides, {known part: {product: coefficient}}.
    """

    variables: tuple
    operators: tuple
    terms: dict

    @property
    def known_part(self):
        """Names of the known parts, one for each equation."""
        return tuple(self.terms)

    @property
    def feature_names(self):
        """The variables, the operators, and those that only known parts use."""
        names = [*self.variables, *self.operators]
        return names + [name for name in self.known_part if name not in names]

    def right_hand_sides(self, values):
        """Values (n, E) of the polynomials at values (n, Q) of the operators."""
        exponents, coefficients = self._products
        return np.prod(values[:, None] ** exponents, axis=2) @ coefficients.T

    @cached_property
    def _products(self):
        """Exponents (q, Q) of all products, and their coefficients (E, q)."""
        names = sorted({name for terms in self.terms.values() for name in terms})
        exponents = [parse_monomial(name, self.operators) for name in names]
        rows = [
            [terms.get(name, 0.0) for name in names] for terms in self.terms.values()
        ]
        return np.array(exponents), np.array(rows)

    def unknown_part(self, features):
        """Values (n, E) of the unknown parts, those on the left-hand side."""
        features = np.asarray(features, dtype=np.float64)
        first = len(self.variables)
        return -self.right_hand_sides(features[:, first : first + len(self.operators)])

    def equation(self, features):
        """Values (n, E) of the unknown parts and the known ones; zero at the truth."""
        features = np.asarray(features, dtype=np.float64)
        known = [self.feature_names.index(name) for name in self.known_part]
        return self.unknown_part(features) + features[:, known]

    def describe_problem(self, states):
        """The arguments of a learner that describe the equations, as a dict."""
        names = self.operators, self.known_part
        problem = common.describe_problem(*names, None, None, self.variables)
        return {**problem, "states": states}


class Truth:
    """States on a box, of which a subclass knows the derivatives.

    It has `variables`, `states`, the corners `lower` and `upper` of the box, and
    `derivative(points, state, orders)`, the values (n,) of one state by its position.
    """

    def __call__(self, X, operator=None, function=None):
        common.refuse_function(function)
        points = common.check_points(X, self.lower, self.upper)
        if operator is None:
            return np.column_stack([self(points, state) for state in self.states])
        parts = parse_operator(operator, self.variables, self.states).parts
        highest = max(max(orders) for _, orders, _ in parts)
        if highest > 4:
            raise ValueError(
                f"operator={operator!r} is of order {highest} in a variable; the truth "
                "has derivatives up to order 4."
            )
        values = [
            factor * self.derivative(points, self.states.index(state), orders)
            for state, orders, factor in parts
        ]
        return np.sum(values, axis=0)


class Trajectory(Truth):
    """The solution of ordinary differential equations on [0, t_end].

    It is kept as a spline of degree 7 through its values only: that its derivatives
    satisfy the equations is a check and not built in.
    """

    variables = ("t",)
    lower = (0.0,)

    def __init__(self, equations, states, initial, t_end, nodes_per_time):
        self.states, self.upper = states, (float(t_end),)

        def rate(t, values):
            return equations.right_hand_sides(values[None])[0]

        self._spline = integrate(rate, initial, t_end, nodes_per_time)

    def derivative(self, points, state, orders):
        """Values (n,) of a derivative of a state."""
        return self._spline(points[:, 0], nu=orders[0])[:, state]


def integrate(rate, initial, t_end, nodes_per_time, max_step=np.inf):
    """The solution of an initial value problem as a spline of degree 7 in time."""
    t_end = float(t_end)  # products of small integers of NumPy overflow
    refuse_steps(nodes_per_time * t_end, f"t_end={t_end:g}", "give an earlier end.")
    settings = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12, "max_step": max_step}
    most, evaluations = max(100_000, 100 * nodes_per_time * t_end), count(1)

    def counted(t, values):
        if next(evaluations) > most:
            raise ValueError(
                f"the solution from initial={initial!r} to t_end={t_end:g} changes too "
                f"fast: it takes more than {most:,.0f} evaluations. Give other numbers "
                "for it, or other parameters of the equations."
            )
        return rate(t, values)

    solution = solve_ivp(counted, (0.0, t_end), initial, dense_output=True, **settings)
    if not solution.success:
        raise ValueError(
            f"the solution from initial={initial!r} ends at t = {solution.t[-1]:.3g}, "
            f"before t_end={t_end}: {solution.message} Give other parameters."
        )
    n_nodes = max(int(nodes_per_time * t_end), 8)
    t = np.linspace(0.0, t_end, n_nodes)
    with naming("t_end"):
        return make_interp_spline(t, solution.sol(t).T, k=7)


def check_initial(initial, states):
    """Return the initial values of the states, checked."""
    start = as_numbers(initial, "initial")
    if start.shape != (len(states),) or not np.all(np.isfinite(start)):
        raise ValueError(
            f"initial={initial!r}; give {len(states)} finite numbers, those of "
            f"{', '.join(states)} at t = 0."
        )
    return start


def check_observed(observed, states):
    """Return the positions of the states that are measured, in the order given."""
    with naming("observed"):
        names = (observed,) if isinstance(observed, str) else tuple(observed)
    unknown = [name for name in names if name not in states]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(
            f"observed={observed!r}; give names of the states {', '.join(states)}, at "
            "least one and each once."
        )
    return [states.index(name) for name in names]


def make_bunch(equations, X, measured, X_test, truth, noise, rng, **others):
    """Assemble a data set of several states.

    `measured` (n, S) says which states are measured in which row; the others are NaN.
    The noise of a row does not depend on it.
    """
    y_test = truth(X_test)
    noise_std = noise * np.sqrt(np.mean(y_test**2, axis=0))
    y = truth(X) + noise_std * rng.standard_normal(measured.shape)
    problem = equations.describe_problem(truth.states)
    return Bunch(
        X=X,
        y=np.where(measured, y, np.nan),
        feature_names=equations.feature_names,
        X_test=X_test,
        y_test=y_test,
        noise_std=noise_std,
        problem=problem,
        kernels={},
        truth=truth,
        equation=equations.equation,
        unknown_part=equations.unknown_part,
        terms={name: dict(terms) for name, terms in equations.terms.items()},
        **problem,
        **others,
    )
