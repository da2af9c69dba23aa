"""States drawn given the observations, and problems on few collocation points."""

from dataclasses import replace

import numpy as np
import pytest
from test_primal import in_the_primal
from test_problems import PENALTY, STATE_KERNEL, make_case, matrix_of

from keql._joint.cluster import minimise_joint
from keql._joint.starts import (
    ConditionalSamples,
    LargeProblems,
    SubsampledProblem,
    evenly_spread,
)
from keql._numerics.optimisation import Damping
from keql.operators import gram

T = np.linspace(0.05, 2.95, 21)[:, None]


def problem_of(form, noise=1e-3, **arguments):
    """A problem in either form, with small noise of the observations."""
    case = make_case(**arguments)
    case.noises = (noise, 0.7)
    problem, iterate = (
        (case.problem, case.iterate) if form == "dual" else in_the_primal(case)
    )
    precisions = [block.precisions(*case.noises) for block in problem.blocks]
    return case, replace(problem, precisions=precisions), iterate


@pytest.mark.parametrize("form", ["dual", "primal"])
def test_draws_follow_the_process_given_the_observations(form):
    case, problem, _ = problem_of(form, noise=1e-5)
    block, precisions = problem.blocks[0], problem.precisions[0]
    y = case.functions[0].values
    n = len(y)
    draw = ConditionalSamples(block, precisions, PENALTY)
    rng = np.random.RandomState(0)
    values = np.array([block.evaluate(draw(rng)) for _ in range(3000)])
    np.testing.assert_allclose(
        values[:, :n], np.broadcast_to(y, (len(values), n)), rtol=1e-4
    )
    # The state and its derivatives where the equation is imposed, by the plain formula.
    functionals = case.conditions[0].observed + case.conditions[0].imposed
    K = gram(STATE_KERNEL, functionals[:1])
    cross = gram(STATE_KERNEL, functionals[1:], functionals[:1])
    mean = cross @ np.linalg.solve(K, y)
    variance = y @ np.linalg.solve(K, y) / n
    covariance = variance * (
        gram(STATE_KERNEL, functionals[1:]) - cross @ np.linalg.solve(K, cross.T)
    )
    size = np.sqrt(np.diag(covariance))
    error = np.abs(values[:, n:].mean(axis=0) - mean) / size
    assert np.max(error) < 4 / np.sqrt(len(values))
    wrong = (np.cov(values[:, n:].T) - covariance) / size / size[:, None]
    assert np.max(np.abs(wrong)) < 5 * np.sqrt(2 / len(values))


@pytest.mark.parametrize("form", ["dual", "primal"])
def test_draws_have_the_units_of_the_observations(form):
    drawn = []
    for unit in (1.0, 1e6):
        _, problem, _ = problem_of(form, noise=1e-3 * unit)
        block = problem.blocks[0]
        object.__setattr__(block, "values", unit * block.values)
        # The noise relative to the prior is what it was.
        precisions = problem.precisions[0] * unit**2
        draw = ConditionalSamples(block, precisions, PENALTY)
        drawn.append(draw(np.random.RandomState(0)) / unit)
    np.testing.assert_allclose(*drawn, rtol=1e-10, atol=1e-12)


def thinned(form):
    """A problem, the same at four points of each function, and an iterate of that."""
    _, whole, start = problem_of(form)
    few = SubsampledProblem(whole, 4)
    rng = np.random.RandomState(1)
    coefficients = [rng.normal(size=b.n_unknowns) for b in few.problem.blocks]
    return whole, few, few.problem.iterate(coefficients, start.weights)


@pytest.mark.parametrize("form", ["dual", "primal"])
def test_a_thinned_problem_is_the_problem_at_its_points(form):
    whole, few, iterate = thinned(form)
    here = few.problem.evaluate(iterate)
    there = whole.evaluate(few.widen(iterate))
    for m, rows in enumerate(few.points):
        assert len(rows) == 4
        n = len(whole.blocks[m].values)
        np.testing.assert_allclose(here.features[m], there.features[m][rows])
        np.testing.assert_allclose(
            here.residuals[m],
            there.residuals[m][np.concatenate([np.arange(n), n + rows])],
            rtol=1e-9,
        )
        # All points together weigh as much as before.
        np.testing.assert_allclose(
            few.problem.precisions[m].sum(), whole.precisions[m].sum()
        )
    norms = [
        b.squared_norm(c, z)
        for p, i in ((few.problem, iterate), (whole, few.widen(iterate)))
        for b, c, z in zip(p.blocks, i.coefficients, i.values, strict=True)
    ]
    np.testing.assert_allclose(norms[:3], norms[3:], rtol=1e-9)


@pytest.mark.parametrize("form", ["dual", "primal"])
def test_a_state_of_the_points_kept_is_narrowed_as_it_is(form):
    whole, few, iterate = thinned(form)
    back = few.narrow(few.widen(iterate))
    for before, after in zip(iterate.coefficients, back.coefficients, strict=True):
        np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(back.weights, iterate.weights)


def test_a_state_of_other_points_is_narrowed_to_one_near_its_values():
    _, whole, start = problem_of("dual")
    few = SubsampledProblem(whole, 4)
    # The solution of the problem: what is linearised there is met as well.
    solved = minimise_joint(whole, start, Damping(1e3, 1e-10), max_iter=60).solution
    near = few.narrow(solved)
    assert all(np.any(c) for c in near.coefficients)
    for block, here, there in zip(
        few.problem.blocks, near.values, solved.values, strict=True
    ):
        n = len(block.values)
        np.testing.assert_allclose(here[:n], there[:n], atol=0.02)
    loss = few.problem.evaluate(near).loss
    assert loss < 1.1 * few.problem.evaluate(few.narrow(start)).loss


def test_a_result_with_few_points_is_one_of_the_whole():
    _, whole, start = problem_of("dual")
    few = SubsampledProblem(whole, 4)
    result = minimise_joint(
        few.problem, few.narrow(start), Damping(1e3, 1e-8), max_iter=60
    )
    problem, wide = few.widen_result(result)
    assert problem is whole
    assert wide.loss == whole.evaluate(wide.solution).loss
    assert wide.stop is result.stop
    np.testing.assert_array_equal(wide.solution.weights, result.solution.weights)


@pytest.mark.parametrize(
    "form, most_rows, n_points, expected",
    [
        ("dual", 5, 4, True),
        ("primal", 5, 4, False),  # time is proportional to the points
        ("dual", 100, 4, False),
        ("dual", 5, 7, False),  # the observations are many, not the points
    ],
)
def test_which_problems_are_large(form, most_rows, n_points, expected):
    _, problem, _ = problem_of(form)
    large = LargeProblems(most_rows=most_rows, n_points=n_points)
    assert large.is_large(problem) is expected


def test_a_thinned_block_knows_its_representers():
    _, whole, _ = problem_of("dual")
    blocks = SubsampledProblem(whole, 4).problem.blocks
    for block in blocks:
        n = len(block.values)
        G = gram(STATE_KERNEL, block.observed + block.imposed)
        np.testing.assert_allclose(block.gram_cross, G[:n, n:])
        whole = matrix_of(block.gram_states[0], len(G) - n)
        np.testing.assert_allclose(whole, G[n:, n:])
    # The first two functions share their collocation points.
    assert blocks[0].gram_states is blocks[1].gram_states


@pytest.mark.parametrize("form", ["dual", "primal"])
def test_a_problem_of_few_points_is_not_thinned(form):
    _, whole, iterate = problem_of(form)
    few = SubsampledProblem(whole, 7)
    assert few.problem.evaluate(iterate).loss == pytest.approx(
        whole.evaluate(iterate).loss, rel=1e-12
    )


def test_scattered_points():
    np.testing.assert_array_equal(evenly_spread(T, 100), np.arange(len(T)))
    rng = np.random.RandomState(0)
    shuffled = rng.permutation(T)
    rows = evenly_spread(shuffled, 11)
    assert np.all(np.diff(rows) > 0)
    np.testing.assert_allclose(np.sort(shuffled[rows, 0]), T[::2, 0])
    grid = np.stack(np.meshgrid(np.arange(26), np.arange(29)), axis=-1).reshape(-1, 2)
    rows = evenly_spread(grid, 350)
    for column in grid[rows].T:
        counts = np.bincount(column)
        assert counts.min() > 0.7 * counts.max()
