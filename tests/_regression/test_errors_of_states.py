"""What errors of fitted states make of equations, against repetitions and formulas."""

import re
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import inv

from keql import IdentifiabilityWarning, TwoStepKEqL
from keql._regression.errors_of_states import (
    SampledRows,
    errors_of_residual,
    largest_part,
)
from keql.kernels import RBF, Polynomial
from keql.operators import KernelExpansion, gram, parse_operator

T = np.linspace(0, 6, 40)[:, None]
SETTINGS = {
    "operators": ("u",),
    "known_part": "u_t",
    "variables": ("t",),
    "state_kernel": RBF(1.5, "fixed"),
    "equation_kernel": Polynomial(1),
    "observation_noise": 0.01,
    "collocation_points": np.linspace(0.5, 5.5, 60)[:, None],
}


def drawn(seed):
    """States that the prior makes likely, with noise."""
    rng = np.random.default_rng(seed)
    K = RBF(1.5)(T) + 1e-10 * np.eye(len(T))
    y = np.linalg.cholesky(K) @ rng.standard_normal(len(T))
    return y + 0.01 * rng.standard_normal(len(T))


def test_covariances_of_sums_are_those_of_gaussian_processes():
    u, u_t = (parse_operator(name, ("t",)) for name in ("u", "u_t"))
    kernel, points = RBF(0.7), np.linspace(0.1, 1.9, 7)[:, None]
    data, noise = [(np.linspace(0, 2, 5)[:, None], u)], np.full(5, 1e-3)
    state = KernelExpansion(kernel, data, np.zeros(5), noise_variances=noise)
    factors = np.random.default_rng(0).standard_normal((2, 7))
    apply = np.hstack([np.diag(row) for row in factors])
    own = [(points, u), (points, u_t)]
    cross = gram(kernel, own, data)
    posterior = gram(kernel, own)
    posterior -= cross @ inv(gram(kernel, data) + np.diag(noise)) @ cross.T
    found = state.covariance(points, [u, u_t], factors)
    assert_allclose(found, apply @ posterior @ apply.T, atol=1e-10)
    alone = state.covariance(points, [u_t], np.ones((1, 7)))
    assert_allclose(np.diag(alone), state.variance(points, u_t), atol=1e-10)


def test_the_covariance_of_the_weights():
    """That of the regression, and what errors of the residual make of the weights."""
    with pytest.warns(IdentifiabilityWarning, match="% of its terms unexplained"):
        model = TwoStepKEqL(**SETTINGS, equation_noise=0.05).fit(T, drawn(0))
    equation, state = model.equation_, model.states_[0]
    S = equation.training_features
    features = equation.basis(S[:, : equation.n_unknown_features])
    precision = np.eye(features.shape[1]) + features.T @ features / 0.05**2
    slopes = equation.gradient(S)[:, -2:].T
    C = state.covariance(S[:, :1], equation.operators, slopes)
    A = inv(precision) @ features.T / 0.05**2
    expected = inv(precision) + A @ C @ A.T
    L = equation.posterior.factor
    assert_allclose(inv(L @ L.T), expected, rtol=1e-6, atol=1e-9)


def test_standard_errors_are_those_of_repetitions():
    """u' = -0.5 u + 0.2, of which the prior of the states is that of the truth.

    Errors that the residuals tell alone are several times too small.
    """
    truth = 0.4 + 0.6 * np.exp(-0.5 * T[:, 0])
    misses, without = [], []
    for seed in range(30):
        noise = 0.005 * np.random.default_rng(seed).standard_normal(len(T))
        settings = SETTINGS | {"observation_noise": 0.005}
        model = TwoStepKEqL(**settings).fit(T, truth + noise)
        values, errors = model.equation_.terms(return_std=True)
        misses.append((values["u"] + 0.5) / errors["u"])
        alone = model.equation_.posterior
        features = model.equation_.basis(model.equation_.training_features[:, :2])
        level = model.equation_noise_
        precision = np.eye(len(alone.weights)) + features.T @ features / level**2
        share = inv(precision).trace() / inv(alone.factor @ alone.factor.T).trace()
        without.append(share**0.5)
    assert 0.3 < np.sqrt(np.mean(np.square(misses))) < 2.0
    assert np.median(without) < 0.5


def test_some_functions_stand_for_all():
    """Six functions of equal points: two of them are as good as six."""
    points = np.column_stack([np.repeat(np.arange(6), len(T)), np.tile(T[:, 0], 6)])
    y = np.concatenate([drawn(seed) for seed in range(6)])
    places = {k: SETTINGS["collocation_points"] for k in range(6)}
    own = {**SETTINGS, "collocation_points": places, "function_column": 0}
    model = TwoStepKEqL(**own)
    learned = model._learn_in_two_steps(points, y, None)
    for sampled in (SampledRows(600, 6), SampledRows(120, 2), SampledRows(60, 6)):
        rows = errors_of_residual(learned, 0, sampled)
        stands_for = sum(share * len(own) for own, share, _ in rows)
        assert stands_for == pytest.approx(len(learned.targets[0]))


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda t, rng: np.exp(-t), None),
        (lambda t, rng: np.cos(t) ** 3, "leaves .* % of its terms unexplained"),
        (lambda t, rng: rng.standard_normal(len(t)), "is not determined"),
        (lambda t, rng: np.sin(t) + 0.1 * rng.standard_normal(len(t)), "uncertain by"),
    ],
)
def test_doubts(make, words):
    """None of what is right, what no P of this kernel explains, and pure noise."""
    t = np.linspace(0, 5, 30)
    y = make(t, np.random.default_rng(0))
    settings = {"operators": ("u",), "known_part": "u_t", "variables": ("t",)}
    model = TwoStepKEqL(**settings, equation_kernel=Polynomial(1))
    told = pytest.warns(IdentifiabilityWarning, match=words) if words else nullcontext()
    with told:
        model.fit(t[:, None], y)
    assert model.equation_.in_doubt == (words is not None)
    if words is None:
        assert model.fit_report_.concerns == []
    else:
        assert any(re.search(words, text) for text in model.fit_report_.concerns)


def part_of(misses, root):
    """What a residual allows of errors, of which weights make up for none."""
    n = len(misses)
    equation = SimpleNamespace(
        training_features=np.zeros((n, 1)),
        n_unknown_features=1,
        unknown_part=lambda S: misses,
        basis=lambda S: np.zeros((len(S), 1)),
    )
    learned = SimpleNamespace(equations=[equation], targets=[np.zeros(n)])
    rows = [(np.arange(n), 1.0, root)]
    return largest_part(learned, 0, rows, [np.zeros((1, n))])


@pytest.mark.parametrize("true", [1.0, 0.1])
def test_residuals_bound_errors_in_nineteen_of_twenty_draws(true):
    """Of correlated errors of which the part `true` is left."""
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(RBF(0.5)(T) + 1e-10 * np.eye(len(T)))
    parts = [
        part_of(true * root @ rng.standard_normal(len(T)), root) for _ in range(400)
    ]
    assert 0.92 < np.mean(np.array(parts) >= true) < 0.98
    assert np.median(parts) < 2 * true


def test_a_prior_that_is_rougher_than_the_states_raises_no_doubts():
    """By its posterior alone P would be uncertain by 3.8 %; it is 0.3 % off."""
    settings = SETTINGS | {"state_kernel": RBF(0.25, "fixed")}
    model = TwoStepKEqL(**settings).fit(T, np.exp(-T[:, 0]))
    values, errors = model.equation_.terms(return_std=True)
    assert abs(values["u"] + 1) < 2 * errors["u"] < 0.03


@pytest.mark.parametrize("noise, is_told", [(1e-3, True), (10.0, False)])
def test_noise_of_an_equation_that_is_given_is_believed(noise, is_told):
    """A law that no polynomial in u explains, within the noise or far above it."""
    model = TwoStepKEqL(**SETTINGS, equation_noise=noise)
    with pytest.warns(IdentifiabilityWarning) as caught:
        model.fit(T, np.cos(T[:, 0]) ** 3)
    assert ("unexplained" in str(caught[0].message)) == is_told
