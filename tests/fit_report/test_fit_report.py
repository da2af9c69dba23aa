"""What estimators report of a fit: choices, residuals, and what looks wrong."""

import pickle
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import pytest
from known_equations import cole_hopf
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql.exceptions import IdentifiabilityWarning
from keql.fit_report import FitReport, describe_fit
from keql.fit_report._describe import SearchSummary, _disagreement
from keql.fit_report._identify import identify, slopes_of_monomials
from keql.fit_report._report import ReportCriteria
from keql.kernels import RBF, Constant, Dictionary, Polynomial

CRITERIA = ReportCriteria()
METHODS = (
    TwoStepKEqL,
    partial(OneStepKEqL, n_terms=None),
    partial(ReducedOneStepKEqL, n_terms=None),
)
SPEED = 0.5
WAVES = {
    "operators": ("u_t", "u_x", "u_xx"),
    "known_part": "u_tt",
    "variables": ("t", "x"),
    "equation_kernel": Polynomial(1),
    "collocation_points": 150,
}
TIMES = np.linspace(0, 6, 40)[:, None]


def to_the_right(z):
    return anp.sin(z) + 0.5 * anp.sin(2 * z + 1)


def waves(*profiles, n=150):
    """Waves that travel to the right, the second one to the left."""
    X = np.random.RandomState(0).uniform(0, 3, (n, 2))
    moved = SPEED * X[:, 0]
    shifted = [X[:, 1] - moved, X[:, 1] + moved]
    return X, sum(f(z) for f, z in zip(profiles, shifted, strict=False))


@pytest.fixture(scope="module")
def travelling():
    """The report of a travelling wave, in which u_t = -0.5 u_x."""
    with pytest.warns(IdentifiabilityWarning, match="does not change in one direction"):
        return TwoStepKEqL(**WAVES).fit(*waves(to_the_right)).fit_report_


# --- terms that cannot be told apart --------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_travelling_wave_does_not_tell_derivatives_apart(method):
    settings = {"state_kernel": RBF(1.5, "fixed"), "observation_noise": 1e-5}
    model = method(**WAVES, **settings)
    with pytest.warns(IdentifiabilityWarning, match="does not change in one direction"):
        model.fit(*waves(to_the_right))
    report = model.fit_report_
    assert (report.identifiability.n_terms, report.identifiability.rank) == (4, 3)
    ((names, size, error),) = report.identifiability.dependent_terms
    assert set(names) == {"u_t", "u_x"}
    assert size < 2 * error < 1e-2
    first, second = report.concerns
    assert "u_t = -0.500 u_x" in first and first in str(report)
    assert "the terms u_x and u_t trade off against one another" in second


@pytest.mark.parametrize("method", METHODS)
def test_two_waves_do(method):
    X, y = waves(to_the_right, lambda z: np.cos(1.7 * z))
    settings = {"state_kernel": RBF(1.5, "fixed"), "observation_noise": 1e-5}
    report = method(**WAVES, **settings).fit(X, y).fit_report_
    assert report.identifiability.rank == report.identifiability.n_terms == 4
    assert report.concerns == []
    assert "nothing" in str(report) and "0 concerns" in repr(report)


def test_an_orbit_on_a_circle_does_not_tell_squares_apart():
    model = TwoStepKEqL(operators=("u", "u_t"), known_part="u_tt", variables=("t",))
    (tie,) = model.fit(
        TIMES, np.sin(2 * TIMES[:, 0])
    ).fit_report_.identifiability.dependent_terms
    # u^2 + u_t^2 / 4 = 1
    assert set(tie[0]) == {"1", "u^2", "u_t^2"}
    damped = np.sin(2 * TIMES[:, 0]) * np.exp(-0.1 * TIMES[:, 0])
    assert model.fit(TIMES, damped).fit_report_.concerns == []


def test_states_on_a_circle_do_not_tell_their_equations():
    """Neither has anything but the other one; a spiral tells all terms."""
    model = TwoStepKEqL(("u", "v"), ("u_t", "v_t"), variables="t", states=("u", "v"))
    y = np.column_stack([np.sin(2 * TIMES), np.cos(2 * TIMES)])
    with pytest.warns(IdentifiabilityWarning, match="1, v.2 and u.2 trade off"):
        model.fit(TIMES, y)
    assert model.fit(TIMES, np.exp(-0.1 * TIMES) * y).fit_report_.concerns == []


def test_a_narrow_range_is_no_matter_of_units():
    """Temperatures about 300 are told apart if they are known well enough."""
    decay = 300 + 5 * np.exp(-TIMES[:, 0])
    noise = np.random.RandomState(0).standard_normal(len(decay))
    settings = {"operators": ("u",), "known_part": "u_t", "variables": ("t",)}
    settings |= {"state_kernel": Constant(300.0**2) + Constant(9.0) * RBF(2.0)}
    exact = TwoStepKEqL(**settings, observation_noise=1e-5)
    exact.fit(TIMES, decay + 1e-5 * noise)
    noisy = TwoStepKEqL(**settings, observation_noise=1.0)
    with pytest.warns(IdentifiabilityWarning, match="is not determined"):
        noisy.fit(TIMES, decay + noise)
    assert exact.fit_report_.identifiability.rank == 3
    assert noisy.fit_report_.identifiability.rank < 3
    assert exact.fit_report_.identifiability.condition > 1e5


def test_functions_of_a_dictionary_are_named():
    kernel = Dictionary(
        {"sin(u)": lambda u: anp.sin(u), "u": lambda u: u, "2 u": lambda u: 2 * u}
    )
    model = TwoStepKEqL(
        operators=("u",),
        known_part="u_tt",
        variables=("t",),
        equation_kernel=kernel,
        optimizer=None,
        equation_noise=1e-3,
    )
    with pytest.warns(IdentifiabilityWarning, match="is not determined"):
        model.fit(TIMES, np.sin(2 * TIMES[:, 0]))
    ((names, size, _),) = model.fit_report_.identifiability.dependent_terms
    assert set(names) == {"u", "2 u"} and size < 1e-10


def test_equations_without_terms_have_no_cloud():
    settings = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    model = TwoStepKEqL(**settings, equation_kernel=RBF(1.0), random_state=0)
    report = model.fit(TIMES, np.sin(2 * TIMES[:, 0])).fit_report_
    assert report.identifiability is None and "Identifiability" not in str(report)
    plain = TwoStepKEqL().fit(TIMES, np.sin(TIMES[:, 0])).fit_report_
    assert set(plain.residuals) == {"observations"}
    assert "equation" not in str(plain)


def test_the_cloud_of_a_table():
    rng = np.random.RandomState(0)
    A = rng.standard_normal((200, 4)) * [1, 1e6, 1e-6, 1]
    A[:, 3] = A[:, 0] + 1e-3 * rng.standard_normal(200)
    scaled = A / np.sqrt(np.mean(A**2, axis=0))
    names, exact = list("abcd"), np.zeros((1, 200))
    identifiability = identify(names, A, np.zeros((1, 200, 4)), exact, CRITERIA)
    assert identifiability.rank == 4 and identifiability.dependent_terms == []
    assert identifiability.condition == pytest.approx(np.linalg.cond(scaled))
    # Column d is a feature with an error that hides its difference from a.
    slopes = np.zeros((1, 200, 4))
    slopes[0, :, 3] = 1.0
    identifiability = identify(names, A, slopes, exact + 1e-2, CRITERIA)
    ((tied, size, error),) = identifiability.dependent_terms
    assert identifiability.rank == 3 and tied == ("a", "d")
    assert size == pytest.approx(np.linalg.svd(scaled)[1][-1] / 200**0.5)
    assert error == pytest.approx(1e-2 / 2**0.5, rel=0.1)
    # Fewer rows than terms, and a term that is always zero.
    few = A[:2] * [1, 1, 1, 0], slopes[:, :2], exact[:, :2]
    identifiability = identify(names, *few, CRITERIA)
    assert (identifiability.n_terms, identifiability.rank) == (4, 2)


def test_slopes_of_monomials():
    rng = np.random.RandomState(0)
    exponents, S = rng.randint(0, 4, (6, 3)), rng.standard_normal((10, 3))
    exponents[0] = 0

    def values(S):
        return np.prod(S[:, None] ** exponents, axis=2)

    for j, slopes in zip(
        (1, 2), slopes_of_monomials(exponents, S, (1, 2)), strict=True
    ):
        step = np.eye(3)[j] * 1e-5
        quotients = (values(S + step) - values(S - step)) / 2e-5
        np.testing.assert_allclose(slopes, quotients, rtol=1e-6, atol=1e-7)


# --- how well the data are met --------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_residuals_are_what_the_fitted_model_leaves(method):
    rng = np.random.RandomState(0)
    y = np.sin(2 * TIMES[:, 0]) + 0.05 * rng.standard_normal(40)
    weights = rng.uniform(0.5, 2.0, 40)
    model = method(
        operators=("u",),
        known_part="u_tt",
        variables=("t",),
        forcing=lambda t: 0.1 + 0 * t[:, 0],
        state_kernel=RBF(1.0, "fixed"),
        equation_kernel=Polynomial(1),
        observation_noise=0.04,
        equation_noise=0.3,
    ).fit(TIMES, y, sample_weight=weights)
    residuals = model.fit_report_.residuals
    missed = np.sqrt(np.mean(weights * (model.predict(TIMES) - y) ** 2))
    assert residuals["observations"].rms == pytest.approx(missed)
    assert residuals["observations"].noise == 0.04
    assert residuals["observations"].size == pytest.approx(np.sqrt(np.mean(y**2)))
    points = model.collocation_points_[0]
    left = model.equation_.apply(model, points) - 0.1
    target = 0.1 - model.predict_derivative(points, "u_tt")
    assert residuals["equation"].rms == pytest.approx(np.sqrt(np.mean(left**2)))
    assert residuals["equation"].size == pytest.approx(np.sqrt(np.mean(target**2)))
    assert residuals["equation"].noise == 0.3


def test_residuals_far_above_the_noise_look_wrong():
    noise = 0.3 * np.random.RandomState(0).standard_normal(40)
    model = OneStepKEqL(
        operators=("u",),
        known_part="u_tt",
        variables=("t",),
        state_kernel=RBF(2.0, "fixed"),
        equation_kernel=Polynomial(1),
        observation_noise=1e-3,
        n_restarts=1,
    )
    with pytest.warns(ConvergenceWarning, match="misfit_"):
        model.fit(TIMES, np.sin(2 * TIMES[:, 0]) + noise)
    (concern,) = [text for text in model.fit_report_.concerns if "observations" in text]
    found = re.match(r"the observations are missed by (\S+) times the noise", concern)
    missed = np.sqrt(
        np.mean((model.predict(TIMES) - np.sin(2 * TIMES[:, 0]) - noise) ** 2)
    )
    assert float(found[1]) == pytest.approx(missed / 1e-3, rel=0.1)
    assert choices(model)["minimum"].startswith("the best of 3 tries, loss ")
    assert "observation_noise" in concern


def test_an_equation_with_a_missing_operator_looks_wrong():
    """u_tt = -4 u - 2 u_t, without u_t."""
    t = np.linspace(0, 3, 40)[:, None]
    settings = {"known_part": "u_tt", "variables": ("t",)}
    settings |= {"equation_kernel": Polynomial(1), "observation_noise": 1e-5}
    y = np.exp(-t[:, 0]) * np.cos(np.sqrt(3) * t[:, 0])
    with pytest.warns(IdentifiabilityWarning, match=r"leaves \d\d % of its terms"):
        short = TwoStepKEqL(operators=("u",), **settings).fit(t, y)
    left, size = short.fit_report_.residuals["equation"].rms, np.abs(y).max()
    assert left > 0.3 * size
    assert short.equation_.in_doubt
    concern = short.fit_report_.concerns[0]
    assert re.match(r"the equation leaves \d\d % of its terms unexplained", concern)
    whole = TwoStepKEqL(operators=("u", "u_t"), **settings).fit(t, y)
    assert whole.fit_report_.concerns == []


def test_tries_that_disagree_look_wrong():
    def concerns(*losses, misfit=50.0):
        tries = [{"loss": loss, "misfit": misfit} for loss in losses]
        model = SimpleNamespace(restarts_=tries, misfit_=misfit)
        return list(_disagreement(model, CRITERIA))

    (concern,) = concerns(100.0, 90.0, 70.0)
    assert "3 tries" in concern and "from 70.0 to 100," in concern
    assert concerns(100.0, 70.0, 70.1) == []  # the lowest was found twice
    assert concerns(100.0, 90.0, 70.0, misfit=1.0) == []  # the last has met the data
    assert concerns(70.0) == []


def test_a_fit_that_has_not_converged_looks_wrong():
    model = OneStepKEqL(
        **WAVES, state_kernel=RBF(1.5, "fixed"), max_iter=1, n_restarts=0
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(*waves(to_the_right, n=40))
    assert model.fit_report_.concerns[-1] == model.message_


# --- what was chosen ------------------------------------------------------------------


def choices_of(report):
    """The reasons of the report by name."""
    return {name: reason for name, _, reason in report.choices}


def choices(model):
    return choices_of(model.fit_report_)


def test_reasons():
    y = np.sin(2 * TIMES[:, 0])
    settings = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    default = choices(TwoStepKEqL(**settings).fit(TIMES, y))
    assert "highest posterior density" in default["state kernel"]
    assert default["observation noise"] == "fitted along with the state kernel"
    assert default["equation kernel"].startswith("the default")
    assert default["equation noise"].startswith("fitted")
    given = {
        "state_kernel": RBF(1.0, "fixed"),
        "equation_kernel": Polynomial(1),
        "observation_noise": 1e-3,
        "equation_noise": 1e-2,
    }
    model = TwoStepKEqL(**settings, **given).fit(TIMES, y)
    expected = {name.replace("_", " "): "given" for name in given}
    assert choices(model) == expected | {"length scales": "in the units of X"}
    free = {"state_kernel": RBF(1.0), "equation_kernel": Constant(1.0) * Polynomial(1)}
    fitted = choices(TwoStepKEqL(**settings, **given | free).fit(TIMES, y))
    for name in ("state kernel", "equation kernel"):
        assert fitted[name] == "given as a start, by maximum likelihood"
    kept = choices(
        TwoStepKEqL(**settings, **given | free, optimizer=None).fit(TIMES, y)
    )
    assert kept == choices(model)


def test_reasons_of_a_kernel_that_was_compared():
    y = np.sin(2 * TIMES[::4, 0])
    settings = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    settings |= {"equation_kernel": Polynomial(1), "solver": "dual"}
    model = OneStepKEqL(**settings).fit(TIMES[::4], y)
    found = re.match(r"the best of (\d+) at predicting", choices(model)["state kernel"])
    assert int(found[1]) > 3
    assert "small part" in choices(model)["equation noise"]
    losses = [each["loss"] for each in model.restarts_]
    assert losses and choices(model)["minimum"].endswith(f"loss {losses[0]:#.3g}")


def test_raised_noise_is_said_to_be():
    """A model that predicts well but does not meet its data: variances are raised."""
    rng = np.random.RandomState(0)
    y = np.sin(2 * TIMES[:, 0]) + 0.02 * rng.standard_normal(40)
    model = OneStepKEqL(
        operators=("u",),
        known_part="u_tt",
        variables=("t",),
        equation_kernel=Polynomial(1),
        observation_noise=2e-3,
        solver="dual",
        n_restarts=1,
    ).fit(TIMES, y)
    factor = model.observation_noise_ / 2e-3
    assert factor > 3
    found = re.search(r"given, raised (\S+)-fold", choices(model)["observation noise"])
    assert float(found[1]) == pytest.approx(factor, rel=1e-2)


class CountedState:
    """A state that counts how often its variance is asked for."""

    def __init__(self, state):
        self.state, self.n_variances = state, 0

    def evaluate(self, points, operator):
        return self.state.evaluate(points, operator)

    def variance(self, points, operator):
        self.n_variances += 1
        return self.state.variance(points, operator)


def test_exact_states_are_described_as_such():
    """Their own kernel is shown, nothing is imposed where values are free."""
    model = TwoStepKEqL(operators=("u", "u_t"), known_part="u_tt", variables=("t",))
    y = np.sin(2 * TIMES[:, 0])
    learned = model._learn_in_two_steps(TIMES, y, None)
    state = CountedState(learned.states[0])
    learned = replace(learned, states=[state])
    plain = describe_fit(model, learned)
    assert state.n_variances == 2  # of both operators
    search = SearchSummary(
        alternatives=(("u", 0.5), ("u, u_t", 0.25)),
        exact_error=0.25,
        boundary_kernel=RBF(0.7, "fixed"),
        resolution=("40 steps in time", 0.0123),
        not_tried=(("cubic", "the quadratic equation predicts well enough."),),
    )
    report = describe_fit(model, learned, search)
    assert state.n_variances == 2  # exact states need not be differentiated
    assert report.identifiability.rank >= plain.identifiability.rank
    rows = {name: (value, reason) for name, value, reason in report.choices}
    value, reason = rows["state kernel"]
    assert value == str(RBF(0.7, "fixed"))
    assert reason.startswith("of initial and boundary values")
    assert rows["length scales"][0] == "t 0.700"
    assert rows["states"][0] == "obey the equation exactly"
    assert rows["states"][1].endswith("error 0.250")
    change = "a finer one changes them by 0.012 times the noise level"
    assert rows["resolution"] == ("40 steps in time", change)
    assert rows["observation noise"][1] == "of most likelihood given the equation"
    assert rows["equation noise"][1] == "none, as exact states obey the equation"
    assert report.alternatives == [("u, u_t", 0.25), ("u", 0.5)]
    assert "Not tried\n  cubic  the quadratic equation" in str(report)
    assert "Not tried" not in str(plain) and "states" not in choices_of(plain)
    assert "resolution" not in choices_of(plain)
    S = learned.equation.training_features
    inside = (S[:, 0] > S[:, 0].min()) & (S[:, 0] < S[:, 0].max())
    assert inside.sum() == len(S) - 2
    missed = (learned.equation.unknown_part(S) - learned.targets[0])[inside]
    size = np.sqrt(np.mean(missed**2))
    assert report.residuals["equation"].rms == pytest.approx(size, rel=1e-6)


def test_length_scales_are_in_the_units_of_the_data():
    X, y = waves(to_the_right, n=60)
    texts = []
    for hour in (1.0, 3600.0):
        model = TwoStepKEqL(variables=("t", "x")).fit(X * [hour, 1.0], y)
        texts.append(dict((c.name, c.value) for c in model.fit_report_.choices))
    pairs = [
        [(name, float(value)) for name, value in re.findall(r"(\w) ([\d.e+]+)", text)]
        for text in (each["length scales"] for each in texts)
    ]
    assert [name for name, _ in pairs[0]] == ["t", "x", "t", "x"]
    for (name, one), (_, other) in zip(*pairs, strict=True):
        assert other == pytest.approx(one * (3600 if name == "t" else 1), rel=0.02)
    kernel = RBF(2.0, "fixed", active_dims=("x",)) * RBF(3.0, "fixed", active_dims=(0,))
    model = TwoStepKEqL(variables=("t", "x"), state_kernel=kernel).fit(X, y)
    assert model.fit_report_.choices[1].value == "x 2.00; t 3.00"


def test_hyperparameters_at_their_bounds_look_wrong():
    X, y = TIMES, np.sin(2 * TIMES[:, 0])
    narrow = TwoStepKEqL(state_kernel=RBF(0.2, (0.1, 0.3))).fit(X, y)
    (concern,) = narrow.fit_report_.concerns
    assert "1 hyperparameter(s) of state_kernel ended at their bounds" in concern
    wide = TwoStepKEqL(state_kernel=RBF(0.2, (0.01, 30.0))).fit(X, y)
    assert wide.fit_report_.concerns == []


# --- its form -------------------------------------------------------------------------


def test_text_and_html_say_the_same(travelling):
    text, html = str(travelling), travelling._repr_html_()
    for heading, rows in travelling.sections().items():
        assert heading in text and heading in html
        for row in rows:
            assert all(cell in text and cell in html for cell in row)
    assert text.startswith("TwoStepKEqL, 150 observations, 150 collocation points")
    assert re.match(r"<FitReport of TwoStepKEqL, .*: 2 concerns>", repr(travelling))
    copy = pickle.loads(pickle.dumps(travelling))
    assert str(copy) == text and copy.identifiability == travelling.identifiability


def test_alternatives_and_special_characters():
    report = FitReport(
        "a < b",
        [("state kernel", "k<1>", "why & how")],
        {},
        None,
        [("RBF(1)", 0.25), ("RBF(2)", 0.5)],
        ["x > y"],
    )
    assert "0.250  RBF(1)" in str(report)
    many = [(f"RBF({i})", 0.1 * i) for i in range(1, 9)]
    long = FitReport("", [], {}, None, many, [])
    assert "RBF(5)" in str(long) and "RBF(6)" not in str(long)
    assert "3 more" in str(long) and long.alternatives == many
    html = report._repr_html_()
    assert "k&lt;1&gt;" in html and "x &gt; y" in html and "why &amp; how" in html
    assert "<caption>a &lt; b</caption>" in html


def test_scale_of_the_data_does_not_matter():
    """Data of size 1e-6 and 1e6 raise the same concerns."""
    X, y = waves(to_the_right, n=80)
    found = []
    for unit in (1.0, 1e-6, 1e6):
        settings = {**WAVES, "equation_kernel": None}
        with pytest.warns(IdentifiabilityWarning, match="does not change in one dir"):
            report = TwoStepKEqL(**settings).fit(X, unit * y).fit_report_
        found.append((report.identifiability.rank, len(report.concerns)))
    assert found[0] == found[1] == found[2] and found[0][1] > 0


@pytest.mark.parametrize("length, is_told", [(0.05, False), (0.3, True)])
def test_given_states_too_rough_to_tell_derivatives_warn(length, is_told):
    """All points are met, but what is between them is open, and so are the terms."""
    times, places = np.linspace(0.1, 0.9, 10), np.linspace(0.05, 0.95, 10)
    X = np.array(np.meshgrid(times, places)).reshape(2, -1).T
    model = OneStepKEqL(
        ("u", "u_x", "u_xx"),
        known_part="u_t",
        collocation_points=X,
        variables=("t", "x"),
        state_kernel=RBF([0.3, length], "fixed"),
        equation_kernel=Polynomial(2),
        observation_noise=1e-5,
        equation_noise=1e-4,
        solver="dual",
        n_restarts=0,
    )
    told = pytest.warns(IdentifiabilityWarning, match="do not tell their coefficients")
    with nullcontext() if is_told else told:
        model.fit(X, cole_hopf(*X.T))
    between = X + [0.0, 0.045]
    errors = model.predict(between) - cole_hopf(*between.T)
    assert (np.max(np.abs(errors)) < 1e-3) == is_told
    identifiability = model.fit_report_.identifiability
    assert (identifiability.rank == identifiability.n_terms) == is_told
    assert str(model.fit_report_).count("do not tell their coefficients") < 2
