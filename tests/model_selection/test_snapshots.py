"""Exact fields that are seen a few times at many places, in a plane."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import OneStepKEqL


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
def test_sets_have_a_term_more_in_a_plane():
    """Boundary values explain these data with three wrong terms."""
    X, y = snapshots()
    operators = "u", "u_x", "u_y", "u_xx", "u_yy"
    model = OneStepKEqL(operators, "u_t", variables=("t", "x", "y")).fit(X, y)
    expected = {"u": 1.0, "u^2": -1.0, "u_xx": 0.1, "u_yy": 0.1}
    assert model.equation_.terms() == pytest.approx(expected, rel=2e-3)
    assert model.fit_report_.concerns == []
