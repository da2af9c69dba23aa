"""Sets of terms near those of a linearised problem."""

from types import SimpleNamespace

import numpy as np
import pytest

from keql._numerics.elementary import Elementary
from keql._regression.functions.columns import ColumnEvidence, FunctionColumns
from keql._regression.functions.nearby import SetsNear
from keql._regression.functions.settings import ElementarySettings
from keql._regression.functions.terms import Term

SETTINGS = ElementarySettings()


def power(k):
    return Elementary((), "power", "u", float(k), is_held=True)


@pytest.fixture
def near():
    """Sets near the products u and u^2 of one equation, and u of another one.

    Effects of the equations are orthogonal. Two powers explain what the first has to,
    of which either alone, with one of the products or both of them, explains nothing
    more: they nearly cancel each other.
    """
    rng = np.random.default_rng(0)
    products = [Elementary((("u", 1),)), Elementary((("u", 2),))]
    functions = [*products, *(power(k) for k in (0.2, 0.4, 0.6, 0.8))]
    terms = [Term(e, f, 6 * e + i) for e in (0, 1) for i, f in enumerate(functions)]
    effects = np.zeros((60, 12))
    effects[:30, :6] = rng.standard_normal((30, 6))
    effects[30:, 6:] = rng.standard_normal((30, 6))
    hidden = rng.standard_normal(30)
    hidden -= (
        effects[:30, :2] @ np.linalg.lstsq(effects[:30, :2], hidden, rcond=None)[0]
    )
    effects[:30, 4] = effects[:30, 3] + 0.1 * hidden
    target = np.zeros(60)
    target[:30] = 100 * (effects[:30, 4] - effects[:30, 3])
    target[:30] += 0.5 * rng.standard_normal(30)
    target[30:] = 20 * effects[30:, 6] + rng.standard_normal(30)
    offered = SimpleNamespace(
        sizes=[1.0, 1.0], kinds=[(e, int(i > 1)) for e in (0, 1) for i in range(6)]
    )
    columns = FunctionColumns(
        offered,
        terms,
        {id(terms[i]) for i in (0, 1, 6)},
        lambda odds: ColumnEvidence(100 * effects, 100 * target, odds, (1.0, np.inf)),
        SETTINGS,
    )
    return SetsNear(columns, SETTINGS, has_much_noise=True)


def names(offers):
    return [[(t.equation, t.function.name) for t in terms] for terms, _ in offers]


def test_two_terms_replace_all_of_an_equation(near):
    """The other equation keeps its own."""
    assert names(near.replaced())[0] == [(0, "u^0.4"), (0, "u^0.6"), (1, "u")]


def test_their_values_are_the_most_probable_ones(near):
    """They are those of a regression on these columns, in which the prior is wide."""
    _, values = next(iter(near.replaced()))
    assert values[:2] == pytest.approx([-100, 100], rel=0.05)
    assert values[2] == pytest.approx(20, rel=0.05)


def test_sets_that_are_less_probable_are_not_solved_for(near):
    """Nothing explains the second equation better than its own term does."""
    own = [[pair for pair in kept if pair[0] == 1] for kept in names(near.replaced())]
    assert all((1, "u") in kept for kept in own)


def test_a_set_has_as_many_terms_as_are_allowed_at_most(near):
    """As where the observations are met already, and fewer terms are looked for."""
    found = names(near.changed(is_first=False, most=3))
    assert found
    assert all(len(kept) < 3 for kept in found)
