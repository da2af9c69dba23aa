"""Of which degree the equations of fields are that are tried first."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import OneStepKEqL
from keql._observations.data import FunctionData, Observations
from keql._regression.two_step import Hypothesis
from keql.model_selection import _trajectory_search
from keql.model_selection._candidates import Candidate, Hypotheses
from keql.model_selection._criteria import Criteria
from keql.model_selection._state_kernels import KernelCandidate
from keql.model_selection._trajectory_search import TrajectorySearch
from keql.operators import identity_of

QUADRATIC, CUBIC = (Hypothesis(n_terms="auto", name=name) for name in ("2", "3"))
LENGTHS, KERNELS = "compare_lengths", "compare_kernels"


def fields_with(monkeypatch, noisy, errors=None, imposed=0.1):
    """A search for ten values of a field whose joint fits have such errors by name.

    And the hypotheses of which a list was asked for these.
    """
    asked, of_state = [], (np.zeros(10, dtype=int), [identity_of("u", 1)])
    values = FunctionData(np.zeros((10, 2)), np.arange(10.0), np.ones(10), *of_state)
    two_step = SimpleNamespace(
        observations=Observations((None,), [values]),
        setup=SimpleNamespace(is_system=True),
        variables=("t", "x"),
        observation_noise=np.full(1, 0.1 if noisy else 1e-9),
    )
    row = Candidate(QUADRATIC)
    table = Hypotheses(*(row for _ in Hypotheses._fields))
    context = SimpleNamespace(criteria=Criteria(), tried=None)
    search = TrajectorySearch(two_step, table, context)

    def fitted(hypothesis):
        asked.append(hypothesis.name)
        error = np.full(1, errors[hypothesis.name])
        return None, [KernelCandidate(None, None, error, 0.0)]

    start = None, SimpleNamespace(error=imposed)
    monkeypatch.setattr(search, "_with_all_terms", fitted)
    monkeypatch.setattr(search, "_imposed", lambda _: start)
    return search, asked


@pytest.mark.parametrize(
    ("noisy", "quadratic", "imposed", "low"),
    [
        (True, 0.19, 0.1, True),  # ten values: odds of 6.4
        (True, 0.21, 0.1, False),  # of 7.4
        (True, 0.1, 0.21, False),
        (False, 0.13, 0.1, True),
        (False, 0.14, 0.1, False),
        (False, 0.1, 0.21, False),
    ],
)
def test_a_quadratic_equation_is_tried_if_it_predicts_as_well_as_a_cubic_one(
    noisy, quadratic, imposed, low, monkeypatch
):
    errors = {"2": quadratic, "3": 0.1}
    search, asked = fields_with(monkeypatch, noisy, errors, imposed)
    assert search._is_of_low_degree([QUADRATIC, CUBIC]) == low
    assert asked == (["3", "2"] if imposed < 0.2 else ["3"])
    everything = Hypothesis(n_terms=None)
    for given in ([CUBIC], [everything, everything]):
        assert not search._is_of_low_degree(given)
    assert len(asked) <= 2


@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("low", [True, False])
def test_starts_of_fields(low, noisy, monkeypatch):
    """States of two steps tell terms of exact data; of noisy ones joint fits do."""
    search, _ = fields_with(monkeypatch, noisy)
    monkeypatch.setattr(search, "_is_of_low_degree", lambda _: low)
    both = [QUADRATIC, CUBIC]
    found = [
        (find and find.__name__, tried)
        for find, tried in search._starts(both, both, [])
    ]
    first = [(None, [CUBIC]), (LENGTHS, both if low else [CUBIC])]
    assert found == [*(first[::-1] if noisy else first), (KERNELS, [CUBIC])]
    assert search.not_tried == [("2", "its terms are among the cubic ones")]
    search.begin(QUADRATIC)
    assert search.not_tried == []


@pytest.mark.parametrize(
    ("noisy", "error"), [(True, 0.19), (True, 0.21), (False, 0.21)]
)
def test_fields_that_predict_worse_than_joint_fits_do_not_suffice(
    noisy, error, monkeypatch
):
    """With few terms they do so decisively only where terms are missing."""
    search, _ = fields_with(monkeypatch, noisy)
    monkeypatch.setattr(search, "_misses_nothing", lambda fit: fit.error < 1.0)
    joint = KernelCandidate(None, None, np.full(1, 0.1), 0.0)
    search.found[_trajectory_search.compare_lengths.__name__, 0] = [joint]
    fit = SimpleNamespace(error=error)
    assert search._suffices(fit) == (not noisy or error < 0.2)
    assert not search._suffices(SimpleNamespace(error=2.0))


def prey_and_predator(n=150, noise=0.02, t_end=4.0, n_points=64):
    """Scattered values on a ring of two populations that diffuse."""
    x = 2 * np.pi * np.arange(n_points) / n_points
    k = np.fft.rfftfreq(n_points, 1 / n_points)

    def second_derivative(values):
        return np.fft.irfft(-(k**2) * np.fft.rfft(values), n_points)

    def rates(_, state):
        u, v = np.split(state, 2)
        u_t = u - u**2 - 0.8 * u * v + 0.05 * second_derivative(u)
        v_t = 0.9 * u * v - 0.4 * v + 0.1 * second_derivative(v)
        return np.concatenate([u_t, v_t])

    start = np.concatenate([0.6 + 0.3 * np.cos(x), 0.5 + 0.2 * np.sin(2 * x)])
    found = solve_ivp(
        rates, (0, t_end), start, "BDF", dense_output=True, rtol=1e-8, atol=1e-10
    )
    rng = np.random.default_rng(0)
    X = rng.uniform([0, 0], [t_end, 2 * np.pi], (n, 2))
    waves = np.fft.rfft(found.sol(X[:, 0]).reshape(2, n_points, n), axis=1) / n_points
    phases = np.exp(1j * np.outer(k, X[:, 1])) * np.where(k > 0, 2, 1)[:, None]
    y = np.sum(waves * phases, axis=1).real.T
    return X, y + noise * np.std(y, axis=0) * rng.standard_normal(y.shape)


@pytest.mark.slow
def test_noisy_fields_of_quadratic_equations():
    """Their terms are looked for among quadratic ones."""
    X, y = prey_and_predator()
    model = OneStepKEqL(
        ("u", "v", "u_x", "v_x", "u_xx", "v_xx"),
        ("u_t", "v_t"),
        variables=("t", "x"),
        states=("u", "v"),
        n_terms="auto",
    ).fit(X, y)
    expected = {
        "u_t": {"u": 1.0, "u^2": -1.0, "u v": -0.8, "u_xx": 0.05},
        "v_t": {"u v": 0.9, "v": -0.4, "v_xx": 0.1},
    }
    for name, truth in expected.items():
        assert model.equation_[name].terms() == pytest.approx(truth, rel=0.15)
        assert model.equation_kernel_[name].kernel.degree == 2
