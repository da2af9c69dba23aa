"""What a user writes: `make lint` checks its types, and a test runs it."""

from typing import Any, assert_type

import numpy as np

from keql import KernelPDESolver, LearnedEquation, TwoStepKEqL
from keql.fit_report import FitReport
from keql.kernels import Polynomial

times = np.linspace(0, 6, 25)[:, None]
model = TwoStepKEqL("u", "u_tt", variables="t", equation_kernel=Polynomial(1))
model = assert_type(model.fit(times, np.sin(2 * times[:, 0])), TwoStepKEqL)
assert_type(model.fit_report_, FitReport)

state: np.ndarray = model.predict(times)
slope, error = model.predict_derivative(times, "u_t", return_std=True)
later: np.ndarray = model.forecast([[6.5]])
score: float = model.score(times, state)

equation: LearnedEquation = model.equation_
plain = assert_type(equation.to_dict(), dict[str, Any])
again = assert_type(LearnedEquation.from_dict(plain), LearnedEquation)
latex = assert_type(again.to_latex(), str)
solver = assert_type(model.pde_solver(), KernelPDESolver)
