"""The evidence of sets of many columns, and of pairs of these that are added."""

import numpy as np
import pytest
from scipy import stats

from keql._numerics.subsets import SubsetEvidence, TermOdds
from keql._regression.functions.columns import ColumnEvidence, GrowingSet


@pytest.fixture(scope="module")
def columns():
    """Effects (30, 11) of different sizes and a target that some of them explain."""
    rng = np.random.default_rng(0)
    effects = rng.standard_normal((30, 11)) * 10.0 ** rng.uniform(-1, 3, 11)
    return effects, effects[:, [0, 3]] @ [0.5, -0.2] + rng.standard_normal(30)


def evidences(effects, target, kinds, levels=(0.1, np.inf)):
    """Those of any set, and of few columns at once."""
    odds = TermOdds(np.array(kinds))
    prior = np.eye(effects.shape[1])
    return (
        ColumnEvidence(effects, target, odds, levels),
        SubsetEvidence(effects, target, prior, odds, levels),
    )


def test_sets_of_many_columns_are_those_of_few(columns):
    many, few = evidences(*columns, [0] * 5 + [1] * 3 + [-1] * 3)
    for kept in ([], [2], [0, 5, 8], [3, 0, 1, 6, 9]):
        assert many(kept) == pytest.approx(few(kept), rel=1e-9)
        np.testing.assert_allclose(many.values(kept), few.values(kept), rtol=1e-8)


def test_whatever_sets_were_before_what_may_be_added_is_that_of_the_set(columns):
    many, few = evidences(*columns, [0] * 5 + [1] * 3 + [-1] * 3)
    sets = [(0, 1), (0, 1, 5, 8), (0, 2), (), (3,), (3, 0, 1), (3, 0)]
    first = np.array([6, 0, 1, 2, 7, 3, 4])
    second = np.array([9, -1, -1, -1, 10, -1, -1])
    growing = GrowingSet(many, sets, first, second)
    for kept in sets:
        growing.become(kept)
        found = growing.more()
        for i, j, value in zip(first, second, found, strict=True):
            if i not in kept:
                expected = few([*kept, i] if j < 0 else [*kept, i, j])
                assert value == pytest.approx(expected, rel=1e-9)


def test_pairs_whose_second_coefficients_are_bounded():
    """By scanning all multiples of the first ones that there may be."""
    rng = np.random.default_rng(1)
    effects, target = rng.standard_normal((30, 7)), rng.standard_normal(30)
    effects[:, 4:] *= [3.0, 0.5, 1.0]
    evidence, _ = evidences(effects, target, [-1] * 7, (1.0, 1.0))
    kept, most = [0], 0.3

    def loss(columns, precisions):
        rows = np.vstack([columns, np.diag(np.sqrt(precisions))])
        right = np.concatenate([target, np.zeros(columns.shape[1])])
        return 0.5 * np.linalg.lstsq(rows, right, rcond=None)[1][0]

    def lowest(i, j, multiples):
        lines = (
            np.c_[effects[:, kept], effects[:, i] + s * effects[:, j]]
            for s in multiples
        )
        return min(
            loss(own, [1, 1 + s**2]) for own, s in zip(lines, multiples, strict=True)
        )

    first, second = np.array([1, 2, 3]), np.array([4, 5, 6])
    growing = GrowingSet(evidence, [tuple(kept)], first, second)
    growing.become(tuple(kept))
    free, bounded = growing.more(), growing.more(np.full(3, most))
    multiples = np.linspace(-most, most, 61)
    expected = [
        lowest(i, j, multiples) - loss(effects[:, [*kept, i, j]], np.ones(3))
        for i, j in zip(first, second, strict=True)
    ]
    np.testing.assert_allclose(free - bounded, expected, atol=1e-3)
    assert np.max(expected) > 0.1


def test_what_rounding_errors_leave_of_columns_explains_nothing():
    """A slow cosine is a parabola, and its slope nearly another one.

    Their target is neither, and is met by nothing that is beside them.
    """
    x, k = np.linspace(-1, 1, 100), 1e-4
    products = np.column_stack([np.ones(100), x**2])
    cosine = np.column_stack([np.cos(k * x), -k * x * np.sin(k * x)])
    columns = np.column_stack([products, cosine, np.sin(3 * x), 3 * x * np.cos(3 * x)])
    effects = 1e7 * columns / np.max(np.abs(columns), axis=0)
    target = 1e7 * np.cos(20 * x)
    evidence, _ = evidences(effects, target, [0, 0, 1, -1, 1, -1], (1.0, np.inf))
    pairs = np.array([2, 4, 2]), np.array([3, 5, -1])
    growing = GrowingSet(evidence, [(0, 1)], *pairs)
    growing.become((0, 1))
    slow, other, alone = growing.more()
    assert slow < evidence([0, 1]) + 1
    assert other == pytest.approx(evidence([0, 1, 4, 5]), rel=1e-6)
    assert alone < evidence([0, 1]) + 1


def test_columns_of_diverging_trajectories_overflow_nowhere():
    """Their products are above the largest number: they are improbable all the same."""
    rng = np.random.RandomState(3)
    effects = rng.standard_normal((10, 5)) * 10.0 ** np.array([0, 0, 90, 200, 1])
    many, few = evidences(effects, rng.standard_normal(10), [-1] * 5, (1.0, 1.0))
    growing = GrowingSet(many, [(0,)], np.array([1, 3]), np.array([2, 4]))
    growing.become((0,))
    expected = [few([0, 1, 2]), few([0, 3, 4])]
    assert growing.more() == pytest.approx(expected)
    assert many([0, 1, 3]) == pytest.approx(few([0, 1, 3]))


def test_a_parameter_that_is_held_gains_what_its_distribution_is_narrowed_by(columns):
    """The evidence of a point is the ratio of the densities there, after and before.

    Savage's ratio: Dickey, "The weighted likelihood ratio, linear hypotheses on normal
    location parameters", Annals of Mathematical Statistics 42, 1971.
    """
    effects, target = columns
    evidence, _ = evidences(effects, target, [-1] * 11, (1.0, 1.0))
    free, slope = [0, 3, 7], 7
    precision = np.eye(3) + effects[:, free].T @ effects[:, free]
    mean = np.linalg.solve(precision, effects[:, free].T @ target)[-1]
    variance = np.linalg.inv(precision)[-1, -1]
    after, before = stats.norm(mean, variance**0.5), stats.norm(0, 1)
    gain = evidence([i for i in free if i != slope]) - evidence(free)
    assert gain == pytest.approx(after.logpdf(0) - before.logpdf(0), rel=1e-6)
