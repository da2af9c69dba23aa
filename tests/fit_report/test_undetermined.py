"""Equations of a system that the data do not determine."""

import numpy as np
import pytest

from keql import TwoStepKEqL
from keql.fit_report import undetermined
from keql.kernels import RBF, Polynomial

T = np.linspace(0, 5, 26)[:, None]
PAIR = {"operators": ("x", "y"), "known_part": ("x_t", "y_t"), "states": ("x", "y")}


def learn(scale=1.0, **changes):
    """x' = y, y' = -x, from exact values; its LearnedModel."""
    y = np.column_stack([np.sin(T), np.cos(T)])
    model = TwoStepKEqL(
        **PAIR | changes,
        variables=("t",),
        state_kernel=RBF(1.5, "fixed"),
        observation_noise=1e-3,
        equation_noise={"x_t": 1e-2, "y_t": scale},
        equation_kernel=Polynomial(1),
    )
    return model._learn_in_two_steps(T, y, None)


def test_coefficients_that_are_all_within_their_errors():
    assert undetermined(learn(1e-2)) == []
    (text,) = undetermined(learn(100.0))
    assert text.startswith("the equation y_t is not determined: none of its coeff")


@pytest.mark.parametrize("noise", [1e-2, 100.0])
def test_single_equations_are_left_out(noise):
    model = TwoStepKEqL(("u",), "u_t", variables=("t",), equation_noise=noise)
    learned = model.set_params(equation_kernel=Polynomial(1))._learn_in_two_steps(
        T, np.exp(-T[:, 0]), None
    )
    assert undetermined(learned) == []
