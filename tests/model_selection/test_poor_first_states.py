"""Noisy fields, of whose derivatives observations alone say too little."""

from types import SimpleNamespace

import numpy as np
import pytest
from exact_states import CONTEXT, fit_exactly
from known_equations import learn_cole_hopf
from scipy.integrate import solve_ivp

from keql import OneStepKEqL
from keql._numerics.optimisation import Stop
from keql._regression.two_step import Hypothesis
from keql.exceptions import IdentifiabilityWarning
from keql.model_selection import _exact_states
from keql.model_selection._exact_fit import fit_exact_states
from keql.model_selection._exact_states import ExactSearch
from keql.model_selection._terms._evolution import TermSearch
from keql.model_selection._terms._settings import TermSearchSettings
from keql.model_selection._terms._trajectories import fit_trajectories

HYPOTHESIS = Hypothesis(n_terms="auto", constraint="integration")


@pytest.fixture(scope="module")
def two_step():
    return learn_cole_hopf(20)


@pytest.mark.parametrize(
    "settings, n_grids",
    [(TermSearchSettings.of_poor_states(), 1), (TermSearchSettings(), 2)],
)
def test_a_search_is_given_up_where_few_sets_lead_anywhere(
    two_step, settings, n_grids, monkeypatch
):
    """After as many failures as there may be, on the coarse grid alone."""
    asked = []

    def fails(search, problem, equation, states):
        asked.append(problem.grid.n_points)
        return False

    monkeypatch.setattr(TermSearch, "try_terms", fails)
    given = two_step, two_step, HYPOTHESIS, CONTEXT, settings
    assert fit_exact_states(*given) is None
    assert len({*asked}) == n_grids
    if n_grids == 1:
        assert len(asked) == settings.most_failed + 1


ENDED = SimpleNamespace(interrupted=False)
MET, MET_TOO, MISSED = (SimpleNamespace(result=ENDED) for _ in range(3))


def seen_at(n):
    """What a search asks of two steps: how many values each function has."""
    functions = [SimpleNamespace(values=np.zeros(n))]
    return SimpleNamespace(observations=SimpleNamespace(functions=functions))


class Searched(ExactSearch):
    """A search whose states of two steps and joint fits have known outcomes."""

    def __init__(self, direct, joint, tries_joint, varying=None, along=None):
        self.two_step, self.context, self.asked = seen_at(60), None, []
        self.so_far = None
        self.criteria, self.size = SimpleNamespace(approximate=1.0), 1.0
        self.outcomes, self.tries = {"two steps": direct, "joint": joint}, tries_joint
        self.outcomes |= {"varying": varying, "along": along}

    @property
    def _tries_joint_fits(self):
        return self.tries

    def _from_two_steps(self, hypothesis, impatient=False):
        self.asked.append("impatient" if impatient else "two steps")
        return None, self.outcomes["two steps"]

    def _from_joint_fits(self):
        self.asked.append("joint")
        return self.outcomes["joint"]

    def _varying(self, polynomial):
        self.asked.append("varying")
        return self.outcomes["varying"]

    def _is_found(self, fit):
        return fit is MET

    def leave_out(self, rows, reason):
        """Nothing is told."""

    def _or_functions(self, best, near=np.inf):
        return None

    def _functions_along(self, at_first=False):
        self.asked += ["along at first"] if at_first else []
        return self.outcomes["along"] if at_first else None


@pytest.mark.parametrize(
    "direct, joint, varying, tries_joint, found, asked",
    [
        (MET, MET_TOO, None, True, MET, ["impatient"]),
        (None, MET_TOO, MET, True, MET_TOO, ["impatient", "joint"]),
        (MISSED, MET_TOO, MET, True, MET_TOO, ["impatient", "joint"]),
        (MET, MET_TOO, None, False, MET, ["two steps"]),
        (MISSED, None, MET, True, MET, ["impatient", "joint", "varying"]),
        (
            MISSED,
            None,
            None,
            True,
            None,
            ["impatient", "joint", "varying", "two steps"],
        ),
    ],
)
def test_joint_fits_come_where_two_steps_lead_nowhere(
    direct, joint, varying, tries_joint, found, asked, monkeypatch
):
    """And then coefficients that vary, before the search from two steps goes on."""
    monkeypatch.setattr(_exact_states, "sees_noise", lambda _: True)
    monkeypatch.setattr(_exact_states, "leads_nowhere", lambda *_: False)
    monkeypatch.setattr(_exact_states, "offers_cubics", lambda _: False)
    search = Searched(direct, joint, tries_joint, varying)
    row, left = (SimpleNamespace(why_not=w, hypothesis=HYPOTHESIS) for w in ("", "no"))
    assert search._exact_from_two_steps(row, left, left) is found
    assert search.asked == asked


@pytest.mark.parametrize(
    "joint, tries_joint, found, asked",
    [
        (MET, True, MET, ["two steps", "two steps", "joint"]),
        (None, True, None, ["two steps", "two steps", "joint", "two steps"]),
        (MET, False, None, ["two steps", "two steps", "two steps"]),
    ],
)
def test_of_exact_data_joint_fits_come_before_terms_in_the_coordinates(
    joint, tries_joint, found, asked, monkeypatch
):
    monkeypatch.setattr(_exact_states, "sees_noise", lambda _: False)
    monkeypatch.setattr(_exact_states, "leads_nowhere", lambda *_: False)
    monkeypatch.setattr(_exact_states, "offers_cubics", lambda _: False)
    search = Searched(MISSED, joint, tries_joint)
    row = SimpleNamespace(why_not="", hypothesis=HYPOTHESIS)
    assert search._exact_from_two_steps(row, row, row) is found
    assert search.asked == asked


@pytest.mark.parametrize(
    "noise, along, joint, found, asked",
    [
        (True, MET, None, MET, ["impatient", "along at first"]),
        (True, None, MET, MET, ["impatient", "along at first", "joint"]),
        (False, MET, None, MET, ["impatient", "along at first"]),
        (False, None, MET, None, ["impatient", "along at first", "two steps"]),
    ],
)
def test_functions_along_two_steps_come_before_all_sets_of_terms(
    noise, along, joint, found, asked, monkeypatch
):
    """Where all cubic products stand beside them, with noise or without."""
    monkeypatch.setattr(_exact_states, "sees_noise", lambda _: noise)
    monkeypatch.setattr(_exact_states, "leads_nowhere", lambda *_: False)
    monkeypatch.setattr(_exact_states, "offers_cubics", lambda _: True)
    search = Searched(MISSED, joint, True, along=along)
    row, left = (SimpleNamespace(why_not=w, hypothesis=HYPOTHESIS) for w in ("", "no"))
    assert search._exact_from_two_steps(row, left, left) is found
    assert search.asked == asked


@pytest.mark.parametrize(
    "n, asked", [(299, ["impatient"]), (300, ["two steps"]), (5000, ["two steps"])]
)
def test_of_many_values_all_sets_of_terms_come_before_joint_fits(monkeypatch, n, asked):
    """Joint fits take the cube of the values, from which derivatives are known."""
    monkeypatch.setattr(_exact_states, "sees_noise", lambda _: True)
    monkeypatch.setattr(_exact_states, "leads_nowhere", lambda *_: False)
    monkeypatch.setattr(_exact_states, "offers_cubics", lambda _: False)
    search, row = Searched(MET, MET_TOO, True), SimpleNamespace(why_not="")
    row.hypothesis = HYPOTHESIS
    search.two_step = seen_at(n)
    left = SimpleNamespace(why_not="not wanted")
    assert search._exact_from_two_steps(row, left, left) is MET
    assert search.asked == asked


class OfExactData(Searched):
    """One of data without noise, which knows nothing else of these."""

    sees_noise, known = False, ()

    def two_steps(self, hypothesis):
        """Nothing that is asked of."""


@pytest.mark.parametrize("anew", [MET, MISSED, None, KeyboardInterrupt])
def test_terms_of_exact_data_are_looked_for_anew_from_a_joint_fit(anew, monkeypatch):
    """What misses the data then, or is interrupted, leaves the fit as it was."""
    fit = SimpleNamespace(learned="its states")
    fit.stopped = lambda stop: SimpleNamespace(
        result=SimpleNamespace(interrupted=True, stop=stop)
    )

    class Near(OfExactData):
        def two_steps(self, hypothesis):
            return "two steps"

        def _misses_nothing(self, fit):
            return fit is MET

    def fit_anew(*given):
        assert given == (HYPOTHESIS, "two steps", None, "its states")
        if anew is KeyboardInterrupt:
            raise anew
        return anew

    monkeypatch.setattr(_exact_states, "fit_hypothesis", fit_anew)
    monkeypatch.setattr(_exact_states, "or_followed", lambda *given: given[0])
    monkeypatch.setattr(_exact_states, "few_terms_meet", lambda *_: False)
    fit.result = ENDED
    found = Near(None, None, True)._with_terms_near(fit, HYPOTHESIS)
    if anew is KeyboardInterrupt:
        assert found.result.stop is Stop.KEYBOARD
    else:
        assert found is (MET if anew is MET else fit)


def test_few_terms_that_meet_exact_data_on_a_finer_grid_are_the_last(monkeypatch):
    """Others of a wider hypothesis would make up for the coarse grid."""
    fit, fine = (SimpleNamespace(result=ENDED) for _ in range(2))
    search = OfExactData(None, None, True)
    monkeypatch.setattr(_exact_states, "or_followed", lambda *_: fine)
    monkeypatch.setattr(_exact_states, "few_terms_meet", lambda own: own is fine)
    assert search._with_terms_near(fit, HYPOTHESIS) is fine


@pytest.mark.parametrize("known", [False, True])
def test_what_is_interrupted_is_the_last(known):
    """A joint fit, or its exact states: the best so far is kept, if there is one."""
    stopped = SimpleNamespace(result=SimpleNamespace(interrupted=True, stop="stop"))

    class Interrupted(ExactSearch):
        _joint_degrees = [HYPOTHESIS, HYPOTHESIS]

        def __init__(self):
            best = SimpleNamespace(stopped=lambda stop: ("best", stop))
            self.so_far, self.asked = best if known else None, []

        def _by_degree(self, hypotheses):
            return hypotheses

        def _with_all_terms(self, hypothesis):
            return None, [SimpleNamespace(error=0.0)]

        def in_doubt(self, error):
            return False

        def _trajectories_from(self, find_kernels, hypothesis, best):
            self.asked.append(hypothesis)
            return stopped

    search = Interrupted()
    assert search._from_joint_fits() == (("best", "stop") if known else stopped)
    assert len(search.asked) == 1


@pytest.mark.slow
def test_terms_are_looked_for_near_a_fit_on_its_grid(two_step):
    simpler = fit_exactly(two_step, two_step.equation, 2)
    near = fit_trajectories(two_step, HYPOTHESIS, CONTEXT, None, simpler)
    assert {*near.term_names} == {*simpler.term_names} == {"u u_x", "u_xx"}
    assert near.problem.grid.equals(simpler.problem.grid)
    assert near.error < 1.01 * simpler.error


def carried_and_spread(times, points):
    """Benney's: u_t = -u u_x - 0.3 u_xx - 0.2 u_xxx - 0.1 u_xxxx, on a ring."""
    n = 48
    x, k = 2 * np.pi * np.arange(n) / n, 1j * np.fft.rfftfreq(n, 1 / n)
    keep = np.abs(k) < n / 3

    def rate(t, u):
        linear = -(0.3 * k**2 + 0.2 * k**3 + 0.1 * k**4) * np.fft.rfft(u)
        return np.fft.irfft(keep * (linear - 0.5 * k * np.fft.rfft(u**2)), n)

    start = 0.8 * np.cos(x) + 0.3 * np.sin(2 * x)
    given = {"method": "Radau", "rtol": 1e-7, "atol": 1e-8, "dense_output": True}
    solution = solve_ivp(rate, (0.0, max(times)), start, **given).sol
    modes = np.fft.rfft(solution(times), axis=0)[:-1]
    waves = modes * np.exp(k[:-1, None] * points)
    return (2 * np.sum(waves, axis=0) - modes[0]).real / n


@pytest.mark.slow
def test_an_equation_of_fourth_order_within_noise():
    """From states of two steps no right terms are found, and functions are not."""
    rng = np.random.default_rng(0)
    X = rng.uniform([0, 0], [4, 2 * np.pi], (150, 2))
    exact = carried_and_spread(*X.T)
    y = exact + 0.02 * np.std(exact) * rng.standard_normal(150)
    operators = "u", "u_x", "u_xx", "u_xxx", "u_xxxx"
    given = {"operators": operators, "known_part": "u_t", "variables": ("t", "x")}
    model = OneStepKEqL(**given, n_terms="auto")
    with pytest.warns(IdentifiabilityWarning, match="uncertain by"):
        model.fit(X, y)
    right = {"u u_x": -1, "u_xx": -0.3, "u_xxx": -0.2, "u_xxxx": -0.1}
    terms = model.equation_.terms()
    assert {*terms} == {*right}
    for name, coefficient in right.items():
        assert abs(terms[name] / coefficient - 1) < 0.1
    missed = model.predict(X) - exact
    assert np.sqrt(np.mean(missed**2)) < 0.02 * np.std(exact)
