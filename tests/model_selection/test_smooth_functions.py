"""Elementary functions in equations whose states are smooth and cannot be exact."""

import pickle

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL
from keql.exceptions import IdentifiabilityWarning
from keql.model_selection._beside import _smooth_functions

PLANE = {"operators": ("u", "u_x", "u_y"), "known_part": "u_xx + u_yy"}
NUMBERS, PHASES = np.array([[2, 3, -1], [1, -2, 3.0]]), np.array([0.3, 1.0, 2.0])
SIZES = np.array([0.8, 0.6, -0.5])


def plane(X, a=0, b=0):
    """Three waves, differentiated so many times in x and in y."""
    factors = SIZES * NUMBERS[0] ** a * NUMBERS[1] ** b
    return np.cos(X @ NUMBERS + PHASES + (a + b) * np.pi / 2) @ factors


def learn_in_plane(part, **changes):
    """u_xx + u_yy = f - part(y, u, u_x), of 60 exact values."""

    def forcing(X):
        laplacian = plane(X, 2) + plane(X, 0, 2)
        return laplacian + part(X[:, 1], plane(X), plane(X, 1))

    X = np.random.default_rng(4).uniform(0, 1, (60, 2))
    model = OneStepKEqL(**PLANE, variables=("x", "y"), forcing=forcing, **changes)
    return model.fit(X, plane(X))


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (lambda y, u, p: np.sin(2 * u), "- 1.00 sin(2 u)"),
        (lambda y, u, p: np.exp(1.5 * u) / 2, "- 0.500 exp(1.5 u)"),
        (lambda y, u, p: 3 * np.cos(2 * y) * p, "- 3.00 u_x cos(2 y)"),
        (lambda y, u, p: -np.sinh(2 * u), "+ 1.00 sinh(2 u)"),
    ],
)
def test_functions_of_static_fields_are_found(part, text):
    """No polynomial of the third degree is near: they left errors of 1e-2."""
    model = learn_in_plane(part)
    assert str(model.equation_) == f"u_xx + u_yy = f {text}"
    X = np.random.default_rng(0).uniform(0.05, 0.95, (200, 2))
    error = np.linalg.norm(model.predict(X) - plane(X)) / np.linalg.norm(plane(X))
    assert error < 1e-4
    again = pickle.loads(pickle.dumps(model.equation_))
    assert str(again) == str(model.equation_)


def ions(unknown=("u", "u_x", "u_xx"), known=None):
    """u_xx - sinh(u) = f of four potentials, of Poisson and Boltzmann."""
    rng, X, y, forcing = np.random.default_rng(0), [], [], {}
    for m in range(4):
        k, sizes, phases = (
            rng.uniform(-6, 6, 5),
            rng.standard_normal(5),
            6 * rng.random(5),
        )

        def potential(x, n=0, k=k, sizes=sizes, phases=phases):
            waves = np.cos(np.outer(x, k) + phases + n * np.pi / 2)
            return waves @ (sizes * k**n)

        def source(points, u=potential):
            return u(points[:, 0], 2) - np.sinh(u(points[:, 0]))

        x = rng.uniform(0, 1, 20)
        X.append(np.column_stack([np.full(20, m), x]))
        y.append(potential(x))
        forcing[m] = source
    given = {"forcing": forcing, "variables": ("x",), "function_column": 0}
    model = OneStepKEqL(unknown, known, **given)
    return model.fit(np.concatenate(X), np.concatenate(y))


def test_functions_are_found_beside_an_unknown_coefficient_of_the_highest_derivative():
    """Rough states bent to 1.02 u_xx + 0.985 u^2 in silence."""
    model = ions()
    assert str(model.equation_) == "1.00 u_xx - 1.00 sinh(u) = f"
    assert model.equation_.terms()["u_xx"] == pytest.approx(1.0, rel=1e-4)


def test_functions_that_are_not_on_offer_are_told():
    with pytest.warns(IdentifiabilityWarning, match="another form"):
        learn_in_plane(lambda y, u, p: np.tanh(2 * p + y))


def test_a_fit_that_is_stopped_at_functions_keeps_the_polynomial(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_smooth_functions, "better_than_products", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = learn_in_plane(lambda y, u, p: np.sin(2 * u))
    assert "u^3" in str(model.equation_)
