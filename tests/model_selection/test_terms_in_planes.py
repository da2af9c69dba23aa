"""Terms of equations in time and two coordinates of space: which, and how well known.

Grids are coarse there. Oracles are states of known equations on a ring times a ring,
integrated by their Fourier series, and what the search does with stand-ins.
"""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import IdentifiabilityWarning, OneStepKEqL
from keql._numerics.optimisation import Result, Stop
from keql.fit_report._undetermined import differs_on_grid
from keql.model_selection import _exact_states, _search, _selection
from keql.model_selection._candidates import candidates
from keql.model_selection._criteria import Criteria
from keql.model_selection._exact_states import ExactSearch
from keql.model_selection._selection import Selection

VARIABLES = "t", "x", "y"
OPERATORS = "u", "u_x", "u_y", "u_xx", "u_yy"


def observed_in_a_plane(rate, n, t_end=2.0, n_modes=24, seed=8):
    """Points and values of u_t = 0.1 (u_xx + u_yy) + rate(u) from three waves."""
    x = 2 * np.pi * np.arange(n_modes) / n_modes
    k = np.fft.fftfreq(n_modes, 1 / n_modes)
    square = np.add.outer(k**2, k**2)

    def slopes(t, u):
        u = u.reshape(square.shape)
        spread = np.real(np.fft.ifft2(square * np.fft.fft2(u)))
        return (rate(u) - 0.1 * spread).ravel()

    first = 0.2 + 0.4 * np.cos(x[:, None] + 0.3) * np.cos(x)
    first += 0.3 * np.sin(2 * x[:, None] + x + 2) - 0.25 * np.cos(2 * x - 1)
    given = {"method": "DOP853", "dense_output": True, "rtol": 1e-9, "atol": 1e-10}
    solution = solve_ivp(slopes, (0, t_end), first.ravel(), **given).sol
    X = np.random.default_rng(seed).uniform((0, 1, 1), (t_end, 4, 4), (n, 3))
    modes = np.fft.fft2(solution(X[:, 0]).T.reshape(-1, n_modes, n_modes))
    in_x, in_y = (np.exp(1j * np.outer(c, k)) / n_modes for c in X[:, 1:].T)
    return X, np.real(np.einsum("nij,ni,nj->n", modes, in_x, in_y))


@pytest.mark.slow
def test_a_cubic_term_is_found_in_a_plane():
    """Allen's and Cahn's equation; a quadratic polynomial was all that was tried."""
    X, y = observed_in_a_plane(lambda u: u - u**3, 150)
    model = OneStepKEqL(OPERATORS, "u_t", variables=VARIABLES)
    with warnings.catch_warnings():
        # Other terms that coarse grids do not tell from none may be named.
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model.fit(X, y)
    expected = {"u_xx": 0.1, "u_yy": 0.1, "u": 1.0, "u^3": -1.0}
    assert model.equation_.terms() == pytest.approx(expected, rel=1e-2)


@pytest.mark.slow
def test_a_noisy_equation_in_a_plane_is_that_of_exact_states():
    """Its coefficients are as far off as their standard errors say."""
    X, y = observed_in_a_plane(lambda u: -0.5 * u, 120)
    y = y + 0.02 * np.std(y) * np.random.default_rng(0).standard_normal(len(y))
    model = OneStepKEqL(("u", "u_xx", "u_yy"), "u_t", variables=VARIABLES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model.fit(X, y)
    found, errors = model.equation_.terms(return_std=True)
    assert {*found} == {"u", "u_xx", "u_yy"}
    assert abs(found["u"] + 0.5) < 3 * errors["u"]
    for name in ("u_xx", "u_yy"):
        assert abs(found[name] - 0.1) < 3 * errors[name]


@pytest.mark.parametrize(
    "operators, reason",
    [
        (OPERATORS, ""),
        ((*OPERATORS, "u_xy"), ""),
        ((*OPERATORS, "u_xy", "u_xxx"), "120 terms take long, more than 84"),
    ],
)
def test_cubic_terms_in_a_plane_are_on_offer_if_they_are_not_too_many(
    operators, reason
):
    X = np.random.default_rng(0).uniform(size=(60, 3))
    model = OneStepKEqL(operators, "u_t", variables=VARIABLES)
    two_step = model._learn_in_two_steps(X, np.prod(X, axis=1), None)
    table = candidates(two_step, model._hypothesis, model._settings)
    assert table.exact.why_not == ""
    why_not = table.exact_cubic.why_not
    assert (reason in why_not) if reason else not why_not


class Exact:
    """What is asked of exact states in a plane."""

    noise_part = 0.02  # that of the values, by which joint fits are told apart

    def __init__(self, error=0.0, interrupted=False):
        self.error, self.asked = error, []
        stop = Stop.KEYBOARD if interrupted else Stop.CONVERGED
        self.result = Result(None, 0.0, stop=stop)

    def or_more_probable(self, other, odds):
        self.asked.append((other, odds))
        return other

    def stopped(self, stop):
        return Exact(self.error, interrupted=True)


def make_exact_search(in_plane):
    """An ExactSearch that knows no more than where it is."""
    search = ExactSearch.__new__(ExactSearch)
    search.direct, search.criteria = {}, Criteria()
    search.two_steps, search.context = list, None
    variables = VARIABLES if in_plane else VARIABLES[:2]
    search.two_step = SimpleNamespace(variables=variables)
    return search


def test_more_products_in_a_plane_are_those_that_two_steps_led_to(monkeypatch):
    """Otherwise they are looked for near the best states, as on a line."""
    looked = []
    monkeypatch.setattr(
        _exact_states, "or_more_terms", lambda fit, *_: looked.append(fit) or fit
    )
    best, cubic = Exact(), Exact()
    hypothesis = SimpleNamespace(name="cubic")
    for in_plane in (True, False):
        search = make_exact_search(in_plane)
        assert search._or_more_products(best, hypothesis) is best
        search.direct["cubic"] = None, cubic
        found = search._or_more_products(best, hypothesis)
        assert found is (cubic if in_plane else best)
    assert best.asked == [(cubic, Criteria().wider)]
    assert looked == [best] * 3
    stopped = Exact(interrupted=True)
    search = make_exact_search(in_plane=True)
    search.direct["cubic"] = None, cubic
    assert search._or_more_products(stopped, hypothesis) is stopped


@pytest.mark.parametrize("error, is_held", [(0.1, True), (0.3, False)])
def test_the_equation_of_exact_states_is_held_if_it_predicts_better(
    error, is_held, monkeypatch
):
    joint, held, exact = Exact(0.2), Exact(error), Exact()
    monkeypatch.setattr(_search, "with_equation_of", lambda *_: held)
    search = _search._Search.__new__(_search._Search)
    search.context = SimpleNamespace(criteria=Criteria())
    found = search._or_exact_equation(Selection(joint), exact)
    assert found.joint is (held if is_held else joint)
    joint.noise_part = 1e-6
    assert search._or_exact_equation(Selection(joint), exact).joint is joint
    stopped = Selection(Exact(interrupted=True))
    assert search._or_exact_equation(stopped, exact) is stopped


def test_an_interruption_leaves_the_equation_of_the_joint_fit(monkeypatch):
    monkeypatch.setattr(_search, "with_equation_of", lambda *_: Exact(interrupted=True))
    search = _search._Search.__new__(_search._Search)
    search.context = SimpleNamespace(criteria=Criteria())
    found = search._or_exact_equation(Selection(Exact(0.2)), Exact())
    assert found.joint.result.interrupted and found.error == 0.2


@pytest.mark.parametrize(
    "noise, part, is_told",
    [(0.0, 5e-4, False), (0.0, 5e-3, True), (0.02, 5e-3, False), (0.02, 0.05, True)],
)
def test_equations_that_differ_on_a_grid_are_told(noise, part, is_told, monkeypatch):
    """Exact data promise more of the coefficients than noisy ones."""
    monkeypatch.setattr(_selection, "_difference", lambda *_: part)
    joint = SimpleNamespace(noise_part=noise, learned=SimpleNamespace())
    exact = SimpleNamespace(learned=SimpleNamespace(equations=()))
    assert Selection(joint).bent == 0
    found = Selection(joint, integrated=exact).bent
    assert found == (part if is_told else 0)
    sentences = differs_on_grid(found)
    assert bool(sentences) == is_told
    if is_told:
        assert f"differs by {100 * part:.2g} % where states are" in sentences[0]
