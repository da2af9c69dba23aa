"""Scales of kernels that are given and too small are told, with what they change."""

from types import SimpleNamespace

import numpy as np
import pytest

from keql import IdentifiabilityWarning, OneStepKEqL
from keql.equation import WeightPosterior
from keql.fit_report._given import pulled
from keql.kernels import RBF, Constant
from keql.model_selection._criteria import Criteria

T = np.linspace(0, 6, 30)[:, None]
U = np.cos(2 * T[:, 0]) * np.exp(-0.1 * T[:, 0])


def oscillator(scale, noise):
    """u_tt from (u, u_t) by a free form with a given scale, from noisy values."""
    y = U + noise * np.random.default_rng(0).normal(size=len(T))
    return OneStepKEqL(
        ("u", "u_t"),
        "u_tt",
        variables="t",
        state_kernel=RBF(1.0, "fixed"),
        observation_noise=noise,
        equation_kernel=scale * RBF(2.0, "fixed"),
        equation_noise=0.02,
        collocation_points=np.linspace(0, 6, 40)[:, None],
    ).fit(T, y)


def error_of(model):
    """Relative error of the states where they are observed."""
    return np.linalg.norm(model.predict(T) - U) / np.linalg.norm(U)


def test_a_given_scale_that_pulls_states_is_told():
    with pytest.warns(IdentifiabilityWarning, match="scale of equation_kernel is"):
        narrow = oscillator(Constant(0.1, "fixed"), 0.03)
    (text,) = [each for each in narrow.fit_report_.concerns if "scale" in each]
    factor = float(text.rpartition(" ")[2])
    with pytest.warns(IdentifiabilityWarning, match="has no list of terms"):
        as_advised = oscillator(Constant(0.1 * factor, "fixed"), 0.03)
        start_only = oscillator(Constant(0.1), 0.03)
    assert error_of(narrow) > 2 * error_of(as_advised)
    for fitted in (as_advised, start_only):
        assert not any("scale" in each for each in fitted.fit_report_.concerns)


def test_a_narrow_prior_does_no_harm_to_states_that_are_known_well():
    narrow = oscillator(Constant(0.1, "fixed"), 1e-4)
    assert narrow.fit_report_.concerns == []
    assert error_of(narrow) < 1e-3


def test_the_likeliest_scale_of_weights_with_equal_precisions():
    """A closed form: precision L of all weights, of which the prior has one.

    With L = 4 the fraction 3/4 is determined by the data, and the mean square of the
    weights is 12 of 3/4 each: a variance of 16. With its precision of 1/16 in place of
    one the weights are w L / (L - 15/16).
    """
    rng = np.random.default_rng(1)
    weights = rng.normal(size=6)
    weights *= (6 * 12) ** 0.5 / np.linalg.norm(weights)
    features = rng.normal(size=(20, 6))
    basis = SimpleNamespace(values=lambda S, w: S @ w)
    kernel, posterior = Constant(1.0, "fixed") * RBF(1.0, "fixed"), None
    for dispersion in (1.0, 9.0):  # of which posterior variances are multiples
        posterior = WeightPosterior(weights, 2 * np.eye(6), 0.0)
        equation = SimpleNamespace(
            equation_kernel=kernel,
            posterior=posterior.with_dispersion(dispersion),
            basis=basis,
            training_features=features,
            n_unknown_features=6,
        )
        setup = SimpleNamespace(equations=[SimpleNamespace(name="u_t")])
        learned = SimpleNamespace(setup=setup, equations=[equation])
        problem = SimpleNamespace(basis=basis, dispersion=dispersion)
        fit = SimpleNamespace(is_exact=False, problem=problem, learned=learned)
        given = SimpleNamespace(equation_kernel=kernel)
        hypothesis = SimpleNamespace(of_equation=lambda name, given=given: given)
        gain = 0.5 * 4.5 * (16 - 1 - np.log(16))  # 4.5 weights are determined
        (text,) = pulled(hypothesis, fit, Criteria().pulled, 0.99 * gain)
        change = 100 * (4 / (4 - 15 / 16) - 1)
        assert "is 4 times too small" in text
        assert f"P would differ by {change:.2g} % where" in text
        assert text.endswith("multiply the kernel by 16")
        assert pulled(hypothesis, fit, 1.1 * change / 100, 0.0) == []
        assert pulled(hypothesis, fit, 0.0, 1.01 * gain) == []
        # A scale that the kernel was given besides is none that the user gives.
        equation.equation_kernel = Constant(1.0, "fixed") * kernel
        assert pulled(hypothesis, fit, 0.0, 0.0) == []
