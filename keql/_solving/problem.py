"""A function whose equation is known: the joint problem without free weights."""

import numpy as np

from keql._joint.dual import DualModel, make_dual_blocks
from keql._joint.problem import JointProblem
from keql.equation import (
    FixedUnknownPart,
    LearnedEquation,
    NoUnknownPart,
    bind_known_part,
    make_known_part,
)


def make_problem(kernel, equation, conditions):
    """The joint problem of one function and a LearnedEquation, GivenEquation or None.

    Its noise variances are still to be chosen: they are one.
    """
    if isinstance(equation, LearnedEquation):
        basis = FixedUnknownPart(equation.basis, equation.weights, equation.posterior)
        known_part = equation.known_part
        n_unknown = len(equation.variables) + equation.n_operators
    else:
        basis, n_unknown = NoUnknownPart(), 0
        known_part = make_known_part(None, ()) if equation is None else equation.part
        if equation is None:
            bind_known_part(known_part, (), [])
    blocks = make_dual_blocks([kernel], [conditions])
    precisions = np.ones(len(conditions.values) + len(conditions.forcing))
    equation = basis, known_part, n_unknown
    return JointProblem(blocks, *equation, [precisions], 1.0, DualModel)


def prior_variances(model):
    """Prior variances (N + K,) of the functionals of a problem linearised at zero.

    Where the linearised equation vanishes, as that of u_x^2 + u_y^2 = 1 does at zero,
    its operators count with slope one.
    """
    prior = np.diag(model.matrices[0])
    if np.all(prior > 0):
        return prior
    of_ones = np.ones_like(model.tangents[0].slopes)
    of_ones = model.problem.blocks[0].normal_matrix(of_ones)
    return np.where(prior > 0, prior, np.diag(of_ones))


def seems_linear(model, size, training_features=None, tolerance=1e-5):
    """Whether the slopes of an equation are the same at zero and at random features.

    Those of `model`, linearised at zero, differ by less than `tolerance`, relatively.
    Random features have `size` times their prior standard deviations, or those of the
    `training_features` (n, d + Q), beyond which a learned equation may be flat.
    """
    (block,), (tangent,) = model.problem.blocks, model.tangents
    slopes, rng = tangent.slopes, np.random.RandomState(0)
    if not slopes.size:
        return True
    spread = block.rows.gather(np.sqrt(block.variances())).T
    if training_features is not None:
        spread, size = np.std(training_features[:, -len(slopes) :], axis=0), 1.0
    for factor in (0.1, 1.0, 10.0):
        noise = rng.standard_normal(slopes.T.shape)
        S = np.hstack([block.rows.coordinates, factor * size * spread * noise])
        there, _ = model.problem.slopes(S, np.empty(0))
        if not np.abs(there - slopes).max() <= tolerance * np.abs(slopes).max():
            return False
    return True
