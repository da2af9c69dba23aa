"""Mixed steps: linear maps that full steps do not end in, and states of a beam."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from known_equations import learn_cole_hopf
from numpy.testing import assert_allclose

from keql import TwoStepKEqL
from keql._evolution.problem import make_evolution_problem
from keql._numerics.optimisation import FullSteps, Stop, minimise
from keql._regression.screening import CandidateTerms
from keql.model_selection._terms._evolution import MixedSteps

FREE = {"memory": 3, "most": 1e3, "near": np.inf, "slow": 0.0}


class LinearMap:
    """Steps that multiply what is missing of a solution by a matrix; a diary of it.

    Where a coordinate is beyond `wall`, it cannot be linearised.
    """

    def __init__(self, factors, solution=1.0, wall=np.inf):
        rng = np.random.default_rng(0)
        basis = rng.normal(size=(len(factors),) * 2)
        self.matrix = basis @ np.diag(factors) @ np.linalg.inv(basis)
        self.solution, self.wall = np.full(len(factors), solution), wall
        self.seen = []

    def evaluate(self, iterate):
        self.seen.append(iterate)
        return SimpleNamespace(iterate=iterate, loss=0.0)

    def linearise(self, evaluation):
        if np.max(np.abs(evaluation.iterate)) > self.wall:
            return None
        missing = self.matrix @ (evaluation.iterate - self.solution)
        end = self.solution + missing
        return SimpleNamespace(
            problem=self, evaluation=evaluation, step=lambda damping: (end, 0.0)
        )

    def moves(self, before, after):
        return after - before

    def change(self, before, after):
        return np.linalg.norm(after - before)

    def combine(self, iterates, parts):
        return np.tensordot(parts, iterates, 1)


def run(problem, control, max_iter=15):
    return minimise(
        problem, np.zeros(len(problem.solution)), control, max_iter=max_iter
    )


@pytest.mark.parametrize("factors", [(-0.95,), (0.95,), (-0.98, 0.9, 0.5)])
def test_linear_steps_end_where_full_ones_do_not(factors):
    """Anderson's method is the best polynomial in the map: as many steps as factors."""
    full = run(LinearMap(factors), FullSteps(1e-8))
    assert full.stop in (Stop.MAX_ITER, Stop.NO_PROGRESS)
    mixed = run(LinearMap(factors), MixedSteps(1e-8, **FREE))
    assert mixed.converged and mixed.n_iter <= len(factors) + 2
    assert_allclose(mixed.solution, 1.0, atol=1e-8)


def test_units_of_the_iterates_do_not_matter():
    near, far = (
        run(LinearMap((-0.98, 0.9, 0.5), size), MixedSteps(1e-8 * size, **FREE))
        for size in (1.0, 1e6)
    )
    assert near.n_iter == far.n_iter
    assert_allclose(1e6 * near.solution, far.solution, rtol=1e-8)


def test_steps_far_away_and_those_that_fall_fast_are_full():
    """The first ones there, until they change the iterate by ten times `tol`."""
    problem = LinearMap((0.5,))
    run(problem, MixedSteps(0.01), max_iter=6)
    missing = 1 - np.ravel(problem.seen)
    assert_allclose(missing[:4], 0.5 ** np.arange(4))
    assert abs(missing[4]) < 1e-12
    problem = LinearMap((0.2,))
    run(problem, MixedSteps(1e-9, near=np.inf), max_iter=6)
    assert_allclose(1 - np.ravel(problem.seen), 0.2 ** np.arange(7))


def test_steps_with_a_large_part_are_forgotten():
    """A factor of 0.95 asks for 20 times the difference of two steps."""
    problem = LinearMap((0.95,))
    run(problem, MixedSteps(1e-8, most=3.0, near=np.inf), max_iter=6)
    missing = 1 - np.ravel(problem.seen)
    assert_allclose(missing, 0.95 ** np.arange(len(missing)))


def test_the_last_step_alone_is_taken_where_a_mixed_one_cannot_be_linearised():
    """The mixture of the first two goes to the solution, which is behind a wall."""
    problem = LinearMap((0.9,), solution=10.0, wall=5.0)
    control = MixedSteps(1e-8, most=100.0, near=np.inf)
    run(problem, control, max_iter=3)
    assert_allclose(np.ravel(problem.seen)[:4], [0, 1, 10, 1.9], atol=1e-12)
    control.steps = control.steps[-1:]
    assert control.shorter(SimpleNamespace(problem=problem)) is None


@pytest.fixture(scope="module")
def burgers():
    learned = learn_cole_hopf(15)
    return make_evolution_problem(learned).with_grid(15, 20)


def test_iterates_are_mixed_with_their_weights_and_boundary(burgers):
    start = burgers.start()
    (equation,) = start.equations
    candidates = CandidateTerms(equation)
    other = burgers.iterate(
        candidates.with_values([0, 1], np.array([0.5, -0.5])),
        [2.0 * states for states in start.states],
    )
    first = burgers.iterate(
        candidates.with_values([0, 1], np.array([1.0, 2.0])), start.states
    )
    mixed = burgers.combine([first, other], [3.0, -2.0])
    assert_allclose(mixed.weights, 3 * first.weights - 2 * other.weights)
    for name in ("states", "boundary"):
        own = [getattr(each, name)[0] for each in (mixed, first, other)]
        assert_allclose(own[0], 3 * own[1] - 2 * own[2], atol=1e-12)
    between = burgers.interpolate(first, other, 0.25)
    assert_allclose(between.states[0], 1.25 * first.states[0])


def test_moves_are_in_units_of_the_states(burgers):
    start = burgers.start()
    moved = replace(start, states=[states + 0.1 for states in start.states])
    size = burgers.sizes[0]
    moves = burgers.moves(start, moved)
    assert moves.shape[1:] == (1, burgers.grid.n_points)
    assert_allclose(moves, 0.1 / size)
    assert burgers.change(start, moved) == pytest.approx(0.1 / size)


@pytest.mark.slow
def test_states_of_a_beam_converge_where_full_steps_take_too_many():
    """u_tt = -u_xxxx/20 - 0.8 u - u_t/4 from 130 values with 2 % noise."""
    rng = np.random.default_rng(1)
    X, phases = rng.uniform(0, 4, (130, 2)), rng.uniform(0, 2 * np.pi, (3, 2))
    t, x = X.T
    y = np.zeros(len(X))
    for k, size, (p, q) in zip((1, 1.7, 2.6), (1, 0.7, 0.4), phases, strict=True):
        rate = np.sqrt(k**4 / 20 + 0.8 - 1 / 64)
        y += size * np.exp(-t / 8) * np.cos(rate * t + q) * np.cos(k * x + p)
    y += 0.02 * np.std(y) * rng.standard_normal(len(y))
    model = TwoStepKEqL(
        operators=("u", "u_t", "u_x", "u_xx", "u_xxxx"),
        known_part="u_tt",
        variables=("t", "x"),
    )
    learned = model._learn_in_two_steps(X, y, None)
    names = learned.equation.feature_names  # the known part is the last
    candidates = CandidateTerms(learned.equation)
    rows = [[name == own for own in names[:-1]] for name in ("u", "u_t", "u_xxxx")]
    terms = [candidates.exponents.tolist().index(each) for each in rows]
    equation = candidates.with_values(sorted(terms), np.array([0.8, 0.25, 0.05]))
    assert set(equation.terms()) == {"u", "u_t", "u_xxxx"}
    problem = make_evolution_problem(learned)
    start = problem.iterate(equation, problem.start().states)
    full, mixed = (
        minimise(problem, start, control(1e-5), max_iter=15)
        for control in (FullSteps, MixedSteps)
    )
    assert mixed.converged and mixed.n_iter < full.n_iter
    evidence = full.model.log_evidence()
    assert mixed.model.log_evidence() == pytest.approx(evidence, abs=0.5)
