"""Exact fields that are seen a few times at many places, in a plane."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import OneStepKEqL
from keql.model_selection import _exact_fit
from keql.model_selection._criteria import Criteria
from keql.model_selection._exact_fit import _coarse_first
from keql.model_selection._terms._settings import TermSearchSettings


def snapshots(n_times=4, n_places=45):
    """Points, and values of u_t = u - u^2 + 0.1 (u_xx + u_yy), periodic in space."""
    m = 32
    k = np.fft.fftfreq(m, 1 / m)
    x = 2 * np.pi * np.arange(m) / m
    square = np.add.outer(k**2, k**2)

    def rate(_, u):
        spread = np.fft.ifft2(square * np.fft.fft2(u.reshape(m, m))).real.ravel()
        return u - u**2 - 0.1 * spread

    x, y = x[:, None], x
    first = 0.15 * np.cos(x + 0.3) * np.cos(y) + 0.1 * np.sin(2 * x + y)
    first = (0.35 + first + 0.08 * np.cos(2 * y - 1)).ravel()
    t, how = np.linspace(0, 3, n_times), {"rtol": 1e-10, "atol": 1e-10}
    u = solve_ivp(rate, (0, 3), first, "DOP853", t_eval=t, **how).y
    modes = np.fft.fft2(u.T.reshape(-1, m, m)) / m**2
    places = np.random.default_rng(8).uniform(1, 4, (n_places, 2))
    in_x, in_y = (np.exp(1j * np.outer(own, k)) for own in places.T)
    values = np.real(np.einsum("tkl,nk,nl->tn", modes, in_x, in_y))
    X = np.column_stack([np.repeat(t, n_places), np.tile(places, (n_times, 1))])
    return X, values.ravel()


@pytest.mark.slow
def test_larger_sets_are_tried_where_boundary_values_explain_data():
    """With three terms they do, and the equation has four."""
    X, y = snapshots()
    operators = "u", "u_x", "u_y", "u_xx", "u_yy"
    model = OneStepKEqL(operators, "u_t", variables=("t", "x", "y")).fit(X, y)
    expected = {"u": 1.0, "u^2": -1.0, "u_xx": 0.1, "u_yy": 0.1}
    assert model.equation_.terms() == pytest.approx(expected, rel=2e-3)
    assert model.fit_report_.concerns == []


class StandIn:
    """A search on a coarse grid that has found an equation as soon as it is run."""

    def __init__(self, runs, settings=None, loss=0.0):
        self.runs, self.settings, self.loss = runs, settings, loss
        self.best, self.steps, self.stop, self.is_astray = None, [], None, False
        grid = SimpleNamespace(states=None)
        coarse = SimpleNamespace(interpolate_from=lambda *_: grid, learned=None)
        self.problem = SimpleNamespace(on_coarse_grid=lambda: coarse, learned=None)
        self.leads = True

    def on(self, _, only_leading=False):
        return StandIn(self.runs)

    def run(self, _):
        self.runs.append(self.settings.grows)
        self.best, self.loss = f"grown {self.settings.grows}", -len(self.runs)

    def or_better(self, other):
        return other if other.loss < self.loss else self


@pytest.mark.parametrize("least", ["uncertain_if_exact", "uncertain_terms"])
@pytest.mark.parametrize("part", [2e-4, 2e-3, 2e-2])
def test_sets_grow_where_exact_data_leave_an_equation_open(least, part, monkeypatch):
    criteria, runs = Criteria(), []
    told = getattr(criteria, least)
    monkeypatch.setattr(_exact_fit, "exact_fit", lambda *given: given[2])
    monkeypatch.setattr(_exact_fit, "least_told", lambda *_: told)
    monkeypatch.setattr(_exact_fit, "uncertainty_of_terms", lambda _: {"u_t": part})
    monkeypatch.setattr(_exact_fit, "_gone_on", lambda _, first, __: first)
    search = StandIn(runs, TermSearchSettings())
    found = _coarse_first(search, None, None, criteria)
    is_open = least == "uncertain_if_exact" and part > 1e-3
    assert runs == [False, True][: 1 + is_open]
    assert found.best == f"grown {is_open}"
