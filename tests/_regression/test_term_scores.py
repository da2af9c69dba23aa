"""The evidence of sets of terms, where equations say almost nothing."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from keql import TwoStepKEqL
from keql._evolution.trajectories import make_trajectory_problem
from keql._joint.assembly import joint_basis
from keql._numerics.subsets import linear_evidence
from keql._regression.term_scores import TermPrior, TermScores, TermTable
from keql._regression.two_step import Hypothesis


@pytest.mark.parametrize("factor", [1e-100, 1e-160, 1e-240])
def test_terms_that_would_have_to_be_tiny_have_no_effect(factor):
    """As beside states with slopes of such a size, of which noise alone is left."""
    t = np.linspace(0, 4, 12)
    model = TwoStepKEqL("u", "u_t", variables="t", observation_noise=0.05)
    learned = model._learn_in_two_steps(t[:, None], 2 * np.exp(-0.6 * t), None)
    basis, kept = joint_basis(learned.equations), [0, 1, 2]
    table = TermTable(learned, basis, Hypothesis(n_terms="auto"))
    scores = TermScores(
        table, table.weights(basis, kept, np.eye(3)), learned.equations, TermPrior()
    )
    [equation] = map(copy, learned.equations)
    equation.weights = factor * equation.weights
    problem = make_trajectory_problem(learned, np.array([0.05]))
    iterate = replace(problem.start(), equations=(equation,))
    linear = problem.linearise(problem.evaluate(iterate))
    target, effects = linear.regression.whitened()
    by_weights = linear_evidence(effects, target, np.eye(3))
    expected = linear.log_evidence() - by_weights - 0.5 * target @ target
    to_values = table.coefficients(basis, kept)
    solved = scores.solved(linear, kept, to_values, [equation])
    assert solved == pytest.approx(expected + scores.odds(kept), rel=1e-9)
    score = scores.linearised(linear)
    added = scores.odds(kept) - scores.odds([])
    assert score(kept) - score([]) == pytest.approx(added, rel=1e-9)
