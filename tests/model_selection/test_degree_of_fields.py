"""Of which degree the equations of fields are that are tried first."""

from types import SimpleNamespace

import numpy as np
import pytest

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

    start = None, SimpleNamespace(candidate=SimpleNamespace(error=imposed))
    monkeypatch.setattr(search, "_with_all_terms", fitted)
    monkeypatch.setattr(search, "_imposition", lambda _: start)
    return search, asked


@pytest.mark.parametrize(
    ("noisy", "quadratic", "imposed", "order"),
    [
        (True, 0.19, 0.1, "23"),  # ten values: odds of 6.4
        (True, 0.21, 0.1, "3"),  # of 7.4
        (True, 0.1, 0.21, "3"),
        (False, 0.13, 0.1, "23"),
        (False, 0.14, 0.1, "3"),
        (False, 0.1, 0.21, "3"),
    ],
)
def test_a_quadratic_equation_is_tried_first_if_it_predicts_as_well_as_a_cubic_one(
    noisy, quadratic, imposed, order, monkeypatch
):
    errors = {"2": quadratic, "3": 0.1}
    search, asked = fields_with(monkeypatch, noisy, errors, imposed)
    found = search._by_degree([QUADRATIC, CUBIC])
    assert "".join(hypothesis.name for hypothesis in found) == order
    assert asked == (["3", "2"] if imposed < 0.2 else ["3"])


@pytest.mark.parametrize(("noisy", "asked"), [(False, []), (True, ["3", "2"])])
def test_exact_data_that_quadratic_equations_predict_as_first_imposed(
    noisy, asked, monkeypatch
):
    search, known = fields_with(monkeypatch, noisy, {"2": 0.1, "3": 0.1}, 0.01)
    found = search._by_degree([QUADRATIC, CUBIC])
    assert "".join(hypothesis.name for hypothesis in found) == "23"
    assert known == asked


@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
def test_starts_of_fields(is_open, noisy, monkeypatch):
    """States of two steps tell terms of exact data; of noisy ones joint fits do."""
    search, _ = fields_with(monkeypatch, noisy)
    both = [QUADRATIC, CUBIC] if is_open else [Hypothesis(name=n) for n in "23"]
    monkeypatch.setattr(search, "_by_degree", lambda joint: joint[::-1])
    starts = search._starts(both, both, [])
    found = [(find and find.__name__, tried) for find, tried in starts]
    cubic = both[1:] if is_open else both
    joint = LENGTHS, both[::-1] if is_open else both
    functions = search._elementary_rows  # of exact data, beside polynomials
    first = [joint, (None, cubic)] if noisy else [(None, [*cubic, *functions]), joint]
    assert found == [*first, (KERNELS, cubic)] and len(functions) == 1
    left_out = [("2", "its terms are among the cubic ones")]
    assert search.not_tried == (left_out if is_open else [])
    search.begin(both[0])
    assert search.not_tried == []


@pytest.mark.parametrize("noisy", [True, False])
def test_quadratic_joint_fits_are_no_start_for_a_cubic_equation(noisy, monkeypatch):
    """Where the joint fit of a cubic one is too large to be made."""
    search, _ = fields_with(monkeypatch, noisy)
    starts = search._starts([QUADRATIC, CUBIC], [QUADRATIC], [])
    tried = {find and find.__name__: hypotheses for find, hypotheses in starts}
    functions = [] if noisy else search._elementary_rows
    assert tried == {None: [CUBIC, *functions], LENGTHS: [], KERNELS: []}


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
    monkeypatch.setattr(search, "_may_be_shorter", lambda fit: False)
    fit = SimpleNamespace(error=error)
    assert search._suffices(fit) == (not noisy or error < 0.2)
    assert not search._suffices(SimpleNamespace(error=2.0))
