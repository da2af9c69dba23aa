"""Which fits are in doubt, whatever they were found by."""

from types import SimpleNamespace

import numpy as np
import pytest

from keql import OneStepKEqL
from keql.model_selection._candidates import candidates
from keql.model_selection._criteria import Selection


def selection(variables=("t", "x"), n_terms="auto", integrable=True, is_exact=False):
    """A selection whose fit has the equation at collocation points, or not."""
    fit = SimpleNamespace(
        two_step=SimpleNamespace(variables=variables),
        hypothesis=SimpleNamespace(n_terms=n_terms),
        is_exact=is_exact,
    )
    return Selection(joint=fit, integrable=integrable)


def test_terms_of_fields_that_could_be_exact_and_are_not_are_in_doubt():
    assert selection().misses_exact_fields
    assert selection(("t", "x", "y")).misses_exact_fields


@pytest.mark.parametrize(
    "changes",
    [{"variables": ("t",)}, {"n_terms": None}, {"integrable": False}]
    + [{"is_exact": True}],
)
def test_others_are_not(changes):
    assert not selection(**changes).misses_exact_fields


def test_few_observations_of_a_field_are_not_integrated():
    X = np.random.default_rng(0).uniform(size=(5, 2))
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    reasons = []
    for n in (4, 5):
        two_step = model._learn_in_two_steps(X[:n], X[:n, 0] * X[:n, 1], None)
        table = candidates(two_step, model._hypothesis, model._settings)
        reasons.append(table[0].why_not)
    assert reasons == ["4 observations determine no 4 coefficients", ""]
