"""White noise in equations whose level is found: slopes, limits and invariances."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._evolution.driven.noise import WhiteNoise
from keql._evolution.driven.regression import NoisyRegression
from keql._evolution.driven.smoother import NoisyRows
from keql._evolution.initial_values import InitialPrior
from keql._evolution.trajectories import TrajectoryProblem
from keql._regression.two_step import FitSettings, Hypothesis
from keql.kernels import RBF, Polynomial
from keql.model_selection._beside import _driven
from keql.model_selection._beside._driven import (
    fit_driven,
    or_driven,
    why_not_driven,
)
from keql.model_selection._candidates import candidates
from keql.model_selection._criteria import Criteria
from keql.model_selection._fit import Context
from keql.model_selection._terms._fewer import TermsStep, most_probable
from keql.model_selection._terms._trajectories import fit_trajectories
from keql.operators import KernelExpansion, gram, parse_operator

DRIVES = np.array([0.8, 1.7])


def random_rows(rng, n, K=30, D=2, p=3):
    """Observations of nodes with jumps of which each of two noises drives one entry."""
    roots, A = np.zeros((K - 1, D, 2 * D)), rng.normal(size=(K - 1, D, D)) / 2
    for e in range(2):
        roots[:, e, e * D] = rng.uniform(0.5, 1.5, K - 1)
    path = [np.zeros(D)]
    for step, root in zip(A, roots * np.repeat(DRIVES, D), strict=True):
        path.append(step @ path[-1] + root @ rng.normal(size=2 * D))
    nodes, entries = rng.randint(0, K, n), rng.randint(0, D, n)
    return NoisyRows(
        A,
        roots,
        0.1 * rng.normal(size=(K - 1, D, 1 + p)),
        np.array(path)[nodes, entries] + 0.3 * rng.normal(size=n),
        nodes,
        entries,
        np.zeros(D),
        rng.randint(0, 2, n),
        rng.uniform(0.5, 2.0, n),
        n_sources=2,
    )


@pytest.fixture
def regression():
    rng = np.random.RandomState(0)
    rows = [random_rows(rng, 60), random_rows(rng, 80)]
    noise = np.array([0.1, 0.7])
    prior = InitialPrior(np.ones(2), noise, np.ones(2, bool), noise / 100, 1.7)
    prior = replace(prior, first_noise=np.outer((0.1, 1.0), noise), drive=DRIVES)
    return NoisyRegression(rows, rng.normal(size=3), prior)


def evidence(regression, noise=1.0, drive=1.0):
    prior = regression.prior
    changed = replace(prior, noise=prior.noise * noise, drive=prior.drive * drive)
    return regression._with(changed).log_evidence()


def sizes_of_jumps(regression):
    """Sums over functions of what :meth:`Smoother.sizes_of_jumps` says."""
    change, initial = regression.changes
    return np.sum(
        [
            smoother.sizes_of_jumps(np.r_[1.0, change, own], root)
            for smoother, root, own in zip(
                regression.smoothers, regression._roots(), initial, strict=True
            )
        ],
        axis=0,
    )


def test_slopes_of_the_evidence_are_sizes_of_jumps(regression):
    squares, known = sizes_of_jumps(regression)
    for e, step in enumerate(np.eye(2) * 1e-5):
        higher, lower = (evidence(regression, drive=np.exp(s)) for s in (step, -step))
        slope = (higher - lower) / 2e-5
        assert slope == pytest.approx(squares[e] - known[e], rel=1e-5)


def test_sources_stay_apart_where_nothing_is_observed(regression):
    few = NoisyRegression(
        [own.observed for own in regression.noisy], regression.center, regression.prior
    )
    assert few.log_evidence() == pytest.approx(regression.log_evidence(), rel=1e-10)
    assert_allclose(sizes_of_jumps(few), sizes_of_jumps(regression), rtol=1e-8)


def test_the_likeliest_levels_are_found(regression):
    best = regression.with_best_prior(max_iter=500, tol=1e-6)
    highest = best.log_evidence()
    assert highest > regression.log_evidence() + 1
    assert_allclose(best.prior.drive, DRIVES, rtol=0.3)
    for e in range(2):
        for factor in (0.9, 1.1):
            changed = np.where(np.arange(2) == e, factor, 1.0)
            assert evidence(best, drive=changed) < highest
            assert evidence(best, noise=changed) < highest


def test_the_search_begins_at_the_best_of_some_levels(regression):
    """From far too little noise in the equations too."""
    prior = replace(regression.prior, drive=1e-6 * DRIVES)
    first = replace(prior, first_drive=(1.0, 1e6))
    found = regression._with(first).with_best_prior(500, 1e-6)
    expected = regression.with_best_prior(500, 1e-6)
    assert_allclose(found.prior.drive, expected.prior.drive, rtol=1e-3)


@pytest.mark.parametrize(("rise", "n_steps"), [(1e-6, 2), (1.0, 50)])
def test_the_search_ends_where_the_evidence_does_not_depend_on_levels(
    regression, monkeypatch, rise, n_steps
):
    calls, unit = [], regression.prior.noise[0]

    def higher(self):
        calls.append(self)
        return replace(self.prior, noise=1.01 * self.prior.noise)

    monkeypatch.setattr(NoisyRegression, "_better_prior", higher)
    monkeypatch.setattr(
        NoisyRegression, "log_evidence", lambda self: rise * self.prior.noise[0] / unit
    )
    given = replace(regression.prior, first_noise=np.zeros((1, 2)))
    regression._with(given).with_best_prior()
    assert len(calls) == n_steps


def test_roots_of_each_source():
    rng = np.random.RandomState(0)
    J, loads = rng.normal(size=(4, 3, 3)), rng.normal(size=(4, 3, 2))
    h = np.array([0.3, 0.0, -0.2, 1.0])
    both = WhiteNoise(J, loads, np.ones(3))
    parts = np.split(both.roots(h), 2, axis=2)
    for e, root in enumerate(parts):
        alone = WhiteNoise(J, loads[:, :, e : e + 1], np.ones(3)).root(h)
        assert_allclose(square(root), square(alone), atol=1e-12)
    expected = sum(square(root) for root in parts)
    assert_allclose(square(both.root(h)), expected, atol=1e-12)


def square(roots):
    """The covariances (n, k, k) of which these are roots (n, k, r)."""
    return roots @ np.swapaxes(roots, 1, 2)


# --- fits -----------------------------------------------------------------------------

DENSITY, NOISE = 0.05, 0.02
GIVEN = {"operators": ("u", "u_t"), "known_part": "u_tt", "variables": ("t",)}
# With the degree given, equations of other forms are not tried, which take long.
LINEAR = GIVEN | {"equation_kernel": Polynomial(1)}


def oscillator(density, n=60, t_end=20.0, seed=0):
    """u_tt = -u - 0.2 u_t + white noise: times, values with noise, and the truth."""
    rng, fine = np.random.RandomState(seed), 100
    dt = t_end / (fine * (n - 1))
    kicks = np.sqrt(density * dt) * rng.normal(size=fine * (n - 1) + 1)
    u, v, path = 1.0, 0.0, []
    for kick in kicks:
        path.append(u)
        v += dt * (-u - 0.2 * v) + kick
        u += dt * v
    path, t = np.array(path), np.arange(len(path)) * dt
    seen = path[::fine] + NOISE * np.std(path) * rng.normal(size=n)
    return t[::fine, None], seen, t[:: fine // 10, None], path[:: fine // 10]


def density_of(model):
    """The spectral density of the noise in the only equation of a fit."""
    [points] = model.collocation_points_
    return model.equation_noise_**2 * np.ptp(points) / (len(points) - 1)


@pytest.fixture(scope="module")
def kicked():
    with pytest.warns(IdentifiabilityWarning):
        return OneStepKEqL(**LINEAR).fit(*oscillator(DENSITY)[:2])


def test_a_driven_oscillator_is_known_as_one(kicked):
    terms, errors = kicked.equation_.terms(return_std=True)
    assert abs(terms["u"] + 1) < 3 * errors["u"]
    assert DENSITY / 2 < density_of(kicked) < 2 * DENSITY
    report = str(kicked.fit_report_)
    assert "driven by white noise of the likeliest size" in report
    assert "found with states and terms" in report
    _, _, t, truth = oscillator(DENSITY)
    u, std = kicked.predict(t, return_std=True)
    assert 0.8 < np.mean(np.abs(u - truth) < 1.645 * std) < 1.0
    _, std = kicked.forecast([[20.0], [22.0]], return_std=True)
    assert std[1] > 3 * std[0]


def test_an_oscillator_that_nothing_drives_is_not():
    t, u, *_ = oscillator(0.0)
    model = OneStepKEqL(**LINEAR).fit(t, u)
    assert set(model.equation_.terms()) == {"u", "u_t"}
    assert model.equation_noise_ == 0
    reasons = dict(model.fit_report_.not_tried)
    name = "states driven by noise of an open level"
    assert reasons[name] == "noise in the equations makes the data no more probable"


def test_units_do_not_matter(kicked):
    t, u, *_ = oscillator(DENSITY)
    with pytest.warns(IdentifiabilityWarning):
        other = OneStepKEqL(**LINEAR).fit(60 * t, 1e3 * u)
    # Of u_tt^2 times a time: the square of the unit of u over the cube of that of t.
    assert density_of(other) == pytest.approx(
        density_of(kicked) * 1e6 / 60**3, rel=1e-3
    )
    terms = kicked.equation_.terms()
    for name, value in other.equation_.terms().items():
        order = 2 - name.count("t")
        assert value * 60**order == pytest.approx(terms[name], rel=1e-3)


@pytest.fixture(scope="module")
def blurred():
    """Decay with noise of a fifth of its size: nothing predicts it within a tenth."""
    t = np.linspace(0.0, 4.0, 60)
    y = np.exp(-t) + 0.1 * np.random.RandomState(0).normal(size=60)
    model = OneStepKEqL(operators=("u",), known_part="u_t", variables=("t",))
    two_step = model._learn_in_two_steps(t[:, None], y, None)
    hypothesis = Hypothesis(n_terms="auto", constraint="integration")
    context = Context(FitSettings(max_iter=100, tol=1e-6), lambda *_: False)
    return fit_trajectories(two_step, hypothesis, context), two_step


@pytest.mark.parametrize("is_finite", [True, False])
def test_poor_predictions_alone_are_no_reason_for_noise(
    blurred, is_finite, monkeypatch
):
    """Where noise adds nothing, no terms are searched with it; unless none can say."""
    fit, two_step = blurred
    assert fit.predicts_poorly(Criteria()) and fit.term_names == ["u"]
    if not is_finite:
        monkeypatch.setattr(TrajectoryProblem, "responses", lambda *_: None)
    reason = why_not_driven(fit, two_step, Criteria(), misses=True)
    assert ("no more probable" in reason) == is_finite
    eager = replace(Criteria(), driven=-1e3)
    assert not why_not_driven(fit, two_step, eager, misses=True)


def test_smooth_states_are_not_driven():
    """A parabola for exp(-u): noise would make up for it, but jumps are not smooth."""
    t = np.linspace(0.0, 10.0, 100)
    model = OneStepKEqL(operators=("u",), known_part="u_t", variables=("t",))
    two_step = model._learn_in_two_steps(t[:, None], np.log(0.5 + t), None)
    hypothesis = Hypothesis(n_terms="auto", constraint="integration")
    context = Context(FitSettings(max_iter=100, tol=1e-6), lambda *_: False)
    fit = fit_trajectories(two_step, hypothesis, context)
    assert "too smooth" in why_not_driven(fit, two_step, Criteria(), misses=True)
    anything = replace(Criteria(), undriven=0.0)
    assert not why_not_driven(fit, two_step, anything, misses=True)


def test_exact_data_are_met_without_noise():
    t = np.linspace(0, 10, 40)[:, None]
    model = OneStepKEqL(**LINEAR).fit(t, np.cos(t[:, 0]))
    reasons = dict(model.fit_report_.not_tried)
    name = "states driven by noise of an open level"
    assert reasons[name] == "exact data are met without it"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, ""),
        ({"equation_noise": 0.1}, "equation_noise is given"),
        ({"n_terms": None}, "n_terms=None keeps all terms"),
        ({"state_kernel": RBF(1.0)}, "state_kernel is given"),
    ],
)
def test_what_is_given_is_kept(given, reason):
    t, u, *_ = oscillator(0.0, n=20)
    two_step = TwoStepKEqL(**LINEAR)._learn_in_two_steps(t, u, None)
    hypothesis = Hypothesis(**{"n_terms": "auto"} | given)
    row = candidates(two_step, hypothesis, FitSettings())[-1]
    assert (row.hypothesis.constraint, row.why_not) == ("driven", reason)


# --- which of both is taken -----------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A fit with terms, and what its innovations are."""

    term_names: tuple
    log_evidence: float
    innovations: np.ndarray | None = None
    terms_path: tuple = ()
    error: float = 0.1

    def __post_init__(self):
        if not self.terms_path:
            step = TermsStep(self.term_names, 0.0, 1.0, 0.1, self.log_evidence, {})
            object.__setattr__(self, "terms_path", [step])

    @property
    def model(self):
        regression = SimpleNamespace(innovations=[self.innovations])
        return SimpleNamespace(
            regression=regression, log_evidence=lambda: self.log_evidence
        )

    @property
    def two_step(self):
        return SimpleNamespace(states=None)

    @property
    def result(self):
        return SimpleNamespace(interrupted=False)

    @property
    def observations(self):
        zeros = np.zeros(20)
        data = SimpleNamespace(
            values=zeros, index=zeros.astype(int), weights=np.ones(20)
        )
        return SimpleNamespace(functions=[data])


WHITE, SLOW = np.tile([1.0, -1.0], 10), np.repeat([1.0, -1.0], 10)


@pytest.mark.parametrize(
    ("gain", "innovations", "taken", "told"),
    [
        (10.0, WHITE, "driven", -7.0),
        (-2.0, WHITE, "exact", -5.0),
        (10.0, SLOW, "exact", 7.0),
    ],
)
def test_the_more_probable_is_taken_if_noise_is_white(gain, innovations, taken, told):
    exact = Found(("u", "t u"), 5.0)
    driven = Found(("u",), 5.0 + gain, innovations)
    chosen = or_driven(exact, driven, Criteria())
    assert chosen.term_names == {"exact": exact, "driven": driven}[taken].term_names
    known = most_probable(chosen.terms_path)
    left = {"exact": {"u", "white noise"}, "driven": {"u", "t u", "no white noise"}}
    odds = known[frozenset(left[taken])].log_evidence - chosen.log_evidence
    assert odds == pytest.approx(told)


def smooth_states(n=30):
    """A sine, and the interpolation of its values by a smooth kernel."""
    t = np.linspace(0, 6, n)[:, None]
    kernel, operator = RBF(1.5), parse_operator("u", ("t",))
    functionals, variances = [(t, operator)], np.full(n, 1e-8)
    covariance = gram(kernel, functionals) + np.diag(variances)
    values = np.sin(t[:, 0])
    coefficients = np.linalg.solve(covariance, values)
    state = KernelExpansion(kernel, functionals, coefficients, None, variances)
    return t, values, covariance, state


def test_values_are_predicted_from_all_others():
    _, values, covariance, state = smooth_states()
    errors = []
    for i in range(len(values)):
        rest = np.arange(len(values)) != i
        known = np.linalg.solve(covariance[np.ix_(rest, rest)], values[rest])
        errors.append(values[i] - covariance[i, rest] @ known)
    assert state.leave_one_out() == pytest.approx(errors, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(("error", "taken"), [(1e-2, "exact"), (1e-6, "driven")])
def test_what_is_smoother_than_driven_states_is_not_driven(error, taken):
    t, values, _, state = smooth_states()
    index = np.zeros(len(t), dtype=int)
    data = SimpleNamespace(
        points=t, values=values, index=index, weights=np.ones(len(t))
    )
    observations = SimpleNamespace(
        functions=[data], n_operators=1, sizes=lambda: np.ones(1)
    )

    class Smooth(Found):
        two_step = SimpleNamespace(states=[state])

    Smooth.observations = observations
    exact = Smooth(("u", "t u"), 5.0)
    driven = Smooth(("u",), 15.0, np.tile([1.0, -1.0], 15), error=error)
    chosen = or_driven(exact, driven, Criteria())
    assert chosen.term_names == {"exact": exact, "driven": driven}[taken].term_names


@pytest.mark.parametrize(
    ("innovations", "is_smooth", "goes_on"),
    [
        (WHITE, False, True),
        (WHITE, True, True),
        (SLOW, False, True),
        (SLOW, True, False),
    ],
)
def test_terms_are_looked_for_if_noise_may_drive_the_states(
    innovations, is_smooth, goes_on, monkeypatch
):
    """Not if the first ones leave states smooth, and innovations that are not white."""
    first = Found(("u",), 5.0, innovations)
    best, calls = Found(("u", "u^3"), 9.0, WHITE), []

    def fit(*given, simpler=None):
        calls.append(given)
        assert simpler in (None, first)
        return first if simpler is None else best

    monkeypatch.setattr(_driven, "fit_trajectories", fit)
    monkeypatch.setattr(_driven, "predicts_worse_than_none", lambda *_: is_smooth)
    context = Context(FitSettings(), lambda *_: False)
    assert fit_driven(None, None, context) is (best if goes_on else first)
    assert [own[3].n_rounds for own in calls[:1]] == [1]
