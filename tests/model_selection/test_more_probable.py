"""Noisy static equations whose kernel and degree errors of prediction hardly tell."""

import numpy as np
import pytest

from keql import OneStepKEqL


class Waves:
    """A sum of five waves along a line, with its derivatives."""

    def __init__(self, rng):
        self.numbers = rng.uniform(-6, 6, (5, 1))
        self.sizes = rng.standard_normal(5) * 1.4 / np.sqrt(5)
        self.phases = rng.uniform(0, 6.3, 5)

    def __call__(self, points, order=0):
        angles = points @ self.numbers.T + self.phases + order * np.pi / 2
        return np.cos(angles) @ (self.sizes * self.numbers[:, 0] ** order)


def fit_along_a_line(part, seed=3):
    """The fit of part(u, u_xx) = f, four functions with 20 values each, 2 % noise."""
    rng, functions = np.random.default_rng(seed), []
    waves = [Waves(rng) for _ in range(4)]
    for m, u in enumerate(waves):
        points = rng.uniform(0, 1, (20, 1))
        points[:2] = [[0], [1]]
        functions.append((np.full(20, m), points[:, 0], u(points)))
    m, x, y = np.concatenate(functions, axis=1)
    model = OneStepKEqL(
        ("u", "u_x", "u_xx"),
        variables=("x",),
        function_column=0,
        forcing={
            m: lambda points, u=u: part(u(points), u(points, 2))
            for m, u in enumerate(waves)
        },
    )
    y = y + 0.02 * np.std(y) * rng.standard_normal(len(y))
    return model.fit(np.column_stack([m, x]), y)


def test_evidence_tells_a_cubic_equation():
    """With the kernel that predicts best it came back with u_xx, u^2 and u."""
    model = fit_along_a_line(lambda u, u_xx: -u_xx + u**3)
    assert model.equation_.terms() == {
        "u_xx": pytest.approx(-1.0, rel=0.02),
        "u^3": pytest.approx(1.0, rel=0.05),
    }
    report = str(model.fit_report_)
    assert (
        "the most probable of those that predict observations about as well" in report
    )
    assert "far more probable than a quadratic polynomial" in report


def test_evidence_tells_a_kernel():
    """With the kernel that predicts best states are as rough as it allows.

    They bend to the equation at its collocation points then, and u^3 is as good as u.
    """
    model = fit_along_a_line(lambda u, u_xx: u_xx + 4 * u)
    assert model.equation_.terms() == {
        "u_xx": pytest.approx(1.0, rel=0.02),
        "u": pytest.approx(4.0, rel=0.05),
    }
