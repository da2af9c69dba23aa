"""Evidence of sets of columns, and of all their neighbours at once."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from keql._numerics.subsets import (
    HighestEvidence,
    MixedOdds,
    SubsetEvidence,
    TermOdds,
    linear_evidence,
    log_likelihood_of,
    small_subsets,
    two_exchanged,
)

KINDS = np.array([0, 0, 0, 1, 1, 1, 1, -1])
LEVELS = [(1e-2, np.inf), (1.0, 1.0 + 1e-9), (0.5, 3.0)]


@pytest.fixture(scope="module")
def regression():
    """Effects (12, 8) of sizes that differ much, a target and a prior precision."""
    rng = np.random.RandomState(0)
    effects = rng.standard_normal((12, 8)) * 10.0 ** np.arange(-2, 6)
    root = rng.standard_normal((8, 8)) * 10.0 ** np.arange(-2, 6)
    target = effects @ (10.0 ** -np.arange(-2.0, 6)) + rng.standard_normal(12)
    return effects, target, root.T @ root


def of_one_prior(effects, target, prior, *how):
    """The highest of one evidence, that of independent coefficients."""
    return HighestEvidence(effects, target, [np.diag(prior)], *how)


def evidence_of(effects, target, prior, kept, levels):
    """From the normal distribution of the target, with the best level of noise."""
    own, precision = effects[:, kept], prior[np.ix_(kept, kept)]
    covariance = np.eye(len(target)) + own @ np.linalg.solve(precision, own.T)

    def minus(log_level):
        level = np.exp(2 * log_level)
        return -multivariate_normal(cov=level * covariance).logpdf(target)

    bounds = np.log(levels[0]), min(np.log(levels[1]), 8.0)
    return -minimize_scalar(minus, bounds=bounds, method="bounded").fun


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("kept", [[7], [0, 3, 7], [1, 2, 4, 5, 7], [0, 1, 2, 4, 6, 7]])
def test_evidence_is_that_of_the_target(regression, kept, levels):
    odds = TermOdds(KINDS)
    score = SubsetEvidence(*regression, odds, levels)
    expected = evidence_of(*regression, kept, levels) + odds(kept)
    constant = 0.5 * 12 * np.log(2 * np.pi)
    assert score(kept) == pytest.approx(expected + constant, abs=1e-4)


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("kept", [[1, 7], [2, 3, 7], [0, 1, 4, 5, 6, 7]])
def test_neighbours_are_sets_with_their_own_evidence(regression, kept, levels):
    score = of_one_prior(*regression, TermOdds(KINDS), levels)
    added = np.setdiff1d(np.arange(8), kept)
    table = score.neighbours(kept, added)
    for i, out in enumerate([*kept, None]):
        rest = [k for k in kept if k != out]
        for j, new in enumerate([*added, None]):
            own = sorted([*rest, *([] if new is None else [new])])
            # A term that is not chosen has no odds, also where it is taken out.
            assert table[i, j] == pytest.approx(score(own), abs=1e-6)


def test_neighbours_of_dependent_columns_need_jitter():
    """What the columns that stay leave of each other are rounding errors."""
    rng = np.random.default_rng(0)
    effects = 1e12 * rng.normal(size=(20, 3)) @ rng.normal(size=(3, 8))
    score = of_one_prior(effects, effects[:, 0], np.eye(8), TermOdds(np.full(8, -1)))
    kept, added = [0, 1, 2, 3, 4, 5], [6, 7]
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(score.precision[0][:6, :6])
    table = score.neighbours(kept, added)
    for i, values in enumerate(table[:-1, :-1]):
        own = score.more(kept[:i] + kept[i + 1 :], added)
        np.testing.assert_array_equal(values, own)


def test_coefficients_and_costs(regression):
    """Of the ridge regression, and what its loss is without a column."""
    effects, target, prior = regression
    score, kept = SubsetEvidence(*regression, TermOdds(KINDS)), [0, 2, 5, 7]

    def solve(kept):
        own, precision = effects[:, kept], prior[np.ix_(kept, kept)]
        values = np.linalg.solve(own.T @ own + precision, own.T @ target)
        loss = np.sum((target - own @ values) ** 2) + values @ precision @ values
        return values, 0.5 * loss

    values, loss = solve(kept)
    np.testing.assert_allclose(score.values(kept), values, rtol=1e-6)
    prior = np.diag(np.diag(prior))
    score = of_one_prior(effects, target, prior, TermOdds(KINDS))
    values, loss = solve(kept)
    np.testing.assert_allclose(score.values(kept), values, rtol=1e-6)
    without = [solve([i for i in kept if i != j])[1] - loss for j in kept]
    np.testing.assert_allclose(score.costs(kept), without, rtol=1e-6)


def test_odds_with_a_term_more_or_less():
    odds = TermOdds(KINDS)
    for kept in ([], [0], [1, 3, 7], [0, 1, 2, 3, 6]):
        unused = np.setdiff1d(np.arange(8), kept)
        more = [odds([*kept, i]) for i in unused]
        np.testing.assert_allclose(odds.more(kept)[unused], more)
        less = [odds([k for k in kept if k != i]) for i in kept]
        np.testing.assert_allclose(odds.less(kept)[kept], less)


def test_many_sets_at_once():
    rng = np.random.default_rng(3)
    effects, target = rng.normal(size=(20, 6)), rng.normal(size=20)
    score = of_one_prior(effects, target, np.eye(6), TermOdds(np.zeros(6, dtype=int)))
    sets = [*small_subsets(range(6), range(1, 7), 100)]
    assert len(sets) == 63
    one_by_one = [score(list(kept)) for kept in sets]
    np.testing.assert_allclose(score.many(sets), one_by_one, rtol=1e-12)
    chosen = np.array([*combinations(range(8), 3)])
    for odds in (TermOdds(KINDS), MixedOdds([TermOdds(KINDS), TermOdds(KINDS, 3.0)])):
        np.testing.assert_allclose(odds.many(chosen), [odds(kept) for kept in chosen])


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_many_sets_of_one_prior(regression, size, levels):
    effects, target, prior = regression
    score = SubsetEvidence(effects, target, prior, TermOdds(KINDS), levels)
    sets = [*combinations(range(8), size)]
    one_by_one = [score(list(kept)) for kept in sets]
    np.testing.assert_allclose(score.many(np.array(sets)), one_by_one, rtol=1e-8)


def test_sets_of_one_prior_without_an_evidence_are_none(regression):
    score = SubsetEvidence(*regression, TermOdds(KINDS))
    sets = np.array([(0, 1), (0, 3), (1, 2)])
    before = score.many(sets)
    score.precision[3, 3] = -1.0
    found = score.many(sets)
    assert found[1] == -np.inf
    np.testing.assert_allclose(found[[0, 2]], before[[0, 2]], rtol=1e-12)


@pytest.mark.parametrize("rest", [(), (0, 7), (7, 5, 3)])
def test_many_sets_beside_columns_that_all_have(regression, rest):
    effects, target, prior = regression
    score = of_one_prior(effects, target, prior, TermOdds(KINDS), LEVELS[0])
    sets = [own for size in range(4) for own in combinations([1, 2, 4, 6], size)]
    expected = [score(sorted([*rest, *own])) for own in sets]
    np.testing.assert_allclose(score.many(sets, rest), expected, rtol=1e-8)


def test_sets_of_columns_that_depend_on_each_other_have_an_evidence():
    rng = np.random.RandomState(1)
    effects = rng.standard_normal((12, 4)) * 1e9
    effects = np.column_stack([effects, effects[:, 0] + effects[:, 1]])
    odds = TermOdds(np.zeros(5))
    score = of_one_prior(effects, effects[:, 2], np.eye(5), odds, LEVELS[0])
    best, other = score.many([(2,), (0, 1, 4)])
    assert np.isfinite(other) and best > other + 20


def test_sets_without_an_evidence_are_none():
    """As rounding errors leave them, negative definite; the other sets keep theirs."""
    rng = np.random.RandomState(1)
    effects = rng.standard_normal((12, 4))
    score = of_one_prior(effects, effects[:, 2], np.eye(4), TermOdds(np.zeros(4)))
    sets = [(0, 1), (0, 3), (2,)]
    before = score.many(sets)
    score.precision[0, 3, 3] = -1.0
    found = score.many(sets)
    assert found[1] == -np.inf
    np.testing.assert_allclose(found[[0, 2]], before[[0, 2]], rtol=1e-12)


def test_what_rounding_errors_leave_below_zero_counts_as_zero():
    """Sets that explain more than there is would be above all others."""
    squares = np.array([-1e9, 0.0, 1e-9, 30.0])
    below, zero, above, noisy = log_likelihood_of(squares, 20, (1.0, np.inf))
    assert below == zero == pytest.approx(above, abs=1e-8)
    assert zero > noisy == pytest.approx(-10 * np.log(1.5) - 10)


def test_sets_that_nearly_depend_on_columns_that_all_have():
    """Elimination leaves of them less than rounding errors."""
    rng = np.random.RandomState(1)
    shared = rng.standard_normal((40, 3))
    near = shared @ rng.standard_normal((3, 4)) + 1e-12 * rng.standard_normal((40, 4))
    effects, target = 1e12 * np.hstack([shared, near]), rng.standard_normal(40)
    odds = TermOdds(np.zeros(7, dtype=int))
    score = of_one_prior(effects, target, np.eye(7), odds)
    sets = [*combinations(range(3, 7), 3)]
    assert np.all(np.isfinite(score.many(sets, rest=(0, 1, 2))))


def test_two_members_are_exchanged_for_the_first_of_many_others():
    sets = two_exchanged([1, 2, 3], [7, 5, 6], 9)
    assert {frozenset(own) for own in sets} == {
        frozenset({stays, *pair})
        for stays in (1, 2, 3)
        for pair in ((5, 6), (5, 7), (6, 7))
    }
    assert len(sets) == 9
    few = two_exchanged([1, 2, 3], [7, 5, 6], 8)
    assert {frozenset(own) for own in few} == {
        frozenset({stays, 5, 7}) for stays in (1, 2, 3)
    }
    assert two_exchanged([1, 2], [3, 4], 1) == [(3, 4)]
    assert two_exchanged([1], [3, 4], 9) == two_exchanged([1, 2], [3], 9) == []


def test_small_subsets_end_where_they_become_many():
    sets = small_subsets([3, 5, 7, 9], range(1, 5), 10)
    assert len(sets) == 4 + 6
    assert sets[0] == (3,) and sets[-1] == (7, 9)


def test_the_highest_evidence_is_that_of_the_prior_that_suits_a_set():
    rng = np.random.default_rng(3)
    effects, target = rng.normal(size=(20, 6)), 10 * rng.normal(size=20)
    odds = TermOdds(np.zeros(6, dtype=int))
    precisions = [np.full(6, 1 / s**2) for s in (0.1, 9)]
    each = [SubsetEvidence(effects, target, np.diag(own), odds) for own in precisions]
    score = HighestEvidence(effects, target, precisions, odds)
    sets = [*small_subsets(range(6), range(7), 100)]
    expected = [max(one([*kept]) for one in each) for kept in sets]
    np.testing.assert_allclose([score([*kept]) for kept in sets], expected)
    np.testing.assert_allclose(score.many(sets), expected)
    kept, added = [0, 3, 4], [1, 2, 5]
    others = [*small_subsets(added, range(4), 100)]
    expected = [max(one([*kept, *more]) for one in each) for more in others]
    np.testing.assert_allclose(score.many(others, kept), expected)
    table = score.neighbours(kept, added)
    for i, j in np.ndindex(table.shape):
        own = [*kept[:i], *kept[i + 1 :], *added[j : j + 1]]
        assert table[i, j] == pytest.approx(max(one(own) for one in each))
    np.testing.assert_allclose(table[:-1, -1], score.less(kept))
    assert table[0, 1] == pytest.approx(score([2, 3, 4]))
    best = max(each, key=lambda one: one(kept))
    np.testing.assert_allclose(score.values(kept), best.values(kept))
    rises = [of_one_prior(effects, target, np.diag(own), odds) for own in precisions]
    chosen = int(each[1] is best)
    np.testing.assert_allclose(score.costs(kept), rises[chosen].costs(kept))


def test_linear_evidence_is_that_of_the_target(regression):
    """As sets of columns have it, also where effects and target are large."""
    effects, target, prior = regression
    kept = [0, 3, 7]
    root = np.linalg.cholesky(prior[np.ix_(kept, kept)]).T
    found = linear_evidence(effects[:, kept], target, root)
    expected = evidence_of(*regression, kept, (1.0, 1.0 + 1e-9))
    assert found == pytest.approx(expected + 6 * np.log(2 * np.pi), abs=1e-4)


def test_as_many_terms_are_expected_as_the_odds_say():
    n, odds = 60, TermOdds(np.zeros(60, dtype=int), expected=3.0)
    k = np.arange(n + 1)
    p = np.exp([odds([*range(i)]) + np.log(comb(n, i)) for i in k])
    assert np.sum(p) == pytest.approx(1.0)
    assert k @ p == pytest.approx(n / (2 + n / 3))


def test_mixed_odds_are_the_mean_of_their_probabilities():
    one, two = TermOdds(KINDS), TermOdds(np.zeros(8, dtype=int), expected=2.0)
    odds = MixedOdds([one, two])
    for kept in ([], [1, 3], [0, 1, 4, 6]):
        expected = np.log(0.5 * np.exp(one(kept)) + 0.5 * np.exp(two(kept)))
        assert odds(kept) == pytest.approx(expected)
        unused = np.setdiff1d(np.arange(8), kept)
        more = [odds([*kept, i]) for i in unused]
        np.testing.assert_allclose(odds.more(kept)[unused], more)
        less = [odds([k for k in kept if k != i]) for i in kept]
        np.testing.assert_allclose(odds.less(kept)[kept], less)


def test_columns_of_diverging_trajectories_overflow_nowhere():
    """Their products are above the largest number: they are improbable all the same."""
    rng = np.random.RandomState(3)
    effects = rng.standard_normal((10, 5)) * 10.0 ** np.array([0, 0, 90, 200, 1])
    target, odds = rng.standard_normal(10), TermOdds(np.full(5, -1))
    evidence = SubsetEvidence(effects, target, np.eye(5), odds)
    assert evidence([0, 1, 2, 3, 4]) < evidence([0, 1, 2]) - 50 < evidence([0, 1]) - 100
    more = evidence.more([0, 1], np.array([2, 3, 4]))
    assert more[1] == pytest.approx(evidence([0, 1, 3]))
    table = of_one_prior(effects, target, np.eye(5), odds).neighbours([0, 1], [2, 3, 4])
    assert table[-1, 1] == pytest.approx(evidence([0, 1, 3]))
    Q = np.linalg.qr(effects[:, [0, 2]] / [1, 1e90])
    expected = np.linalg.solve(Q[1], Q[0].T @ target)[1] * 1e-90
    assert evidence.values([0, 2])[1] == pytest.approx(expected, rel=0.2)
