"""States whose equations are known: the joint problem without free weights."""

from collections.abc import Mapping

import numpy as np

from keql._joint.dual import DualModel, make_dual_blocks
from keql._joint.problem import JointProblem
from keql.equation import (
    FixedUnknownPart,
    NoUnknownPart,
    PolynomialBasis,
    SystemBasis,
    SystemKnownPart,
    bind_known_part,
    make_known_part,
)


def by_name(equation):
    """The equations of a system by name; of a single equation, or of None, a dict."""
    if isinstance(equation, Mapping):
        return dict(equation)
    return {} if equation is None else {"": equation}


def make_problem(kernel, equation, conditions):
    """The joint problem of one function and its equation, or equations, or None.

    `equation` is a learned or given equation or system. The noise variances are still
    to be chosen: they are one.
    """
    return joint_problem(make_dual_blocks([kernel], [conditions]), equation, DualModel)


def joint_problem(blocks, equation, linear_model):
    """The joint problem of one block, with noise variances of one."""
    precisions = np.ones(len(blocks[0].values) + len(blocks[0].forcing))
    parts = _parts(list(by_name(equation).values()))
    return JointProblem(blocks, *parts, [precisions], 1.0, linear_model)


def _parts(equations):
    """Features of P, known part, and number of columns that P sees, of all equations.

    The first column of several equations has the number of the equation.
    """
    if not equations:
        known_part = make_known_part(None, ())
        bind_known_part(known_part, (), [])
        return NoUnknownPart(), known_part, 0
    first = equations[0]
    if len(equations) == 1:
        basis = FixedUnknownPart(first.basis, first.weights, first.posterior)
        return basis, first.known_part, first.n_unknown_features
    fixed = [_as_fixed(equation) for equation in equations]
    weights = [own for _, own in fixed]
    basis = SystemBasis([basis for basis, _ in fixed], [len(own) for own in weights])
    basis = FixedUnknownPart(basis, np.concatenate(weights), None)
    known_part = SystemKnownPart([equation.known_part for equation in equations])
    return basis, known_part, 1 + first.n_unknown_features


def _as_fixed(equation):
    """A basis of an equation that is fast to compute, and the weights in it."""
    if isinstance(equation.basis, PolynomialBasis):
        d = equation.n_unknown_features
        return equation.basis.unrestricted(equation.weights, d)
    return equation.basis, equation.weights


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
        there = model.problem.slopes(S, np.empty(0))
        for rows, _ in block.rows.slices():  # equations differ in their units
            own, change = slopes[:, rows], there[:, rows] - slopes[:, rows]
            if not _largest(change) <= tolerance * _largest(own):
                return False
    return True


def _largest(values):
    return np.max(np.abs(values), initial=0.0)
