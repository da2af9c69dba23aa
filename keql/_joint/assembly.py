"""From the two-step solution to the joint problem, its start, and what it taught."""

from dataclasses import replace

import numpy as np

from keql._joint.dual import DualModel, make_dual_blocks
from keql._joint.primal import PrimalModel, make_primal_blocks
from keql._joint.problem import JointProblem
from keql._numerics.linalg import pivoted_cholesky
from keql._numerics.scaling import size_or_one
from keql.equation import FixedUnknownPart, LearnedEquation, LearnedModel
from keql.operators import gram, parse_operator

# Relative to the size of the unknown part: an equation that is not said to be noisy.
EQUATION_NOISE = 1e-3
# A noise level of zero is this small, relative to the data.
EXACT = 1e-9
# The rank of Gram matrices of more rows is not looked at: the dual needs less time.
LARGEST = 6000
# The rank of so many representers, in units of the number of data, is looked at first.
SAMPLED = 0.75


def make_problem(
    two_step,
    kernels,
    *,
    solver,
    equation_noise,
    state_penalty,
    map_blocks,
):
    """The least-squares problem of a fit.

    Parameters
    ----------
    two_step : LearnedModel
        Observations, equation and noise levels.
    kernels : list of Kernel
        State kernel of each function.
    solver : {"auto", "dual", "primal"}
        How states are represented; "auto": in the primal if that has at most half as
        many unknowns as the dual, which has one for each residual; then it is faster.
    equation_noise : float or None
        sigma_P; None: a small part of the size of the unknown part.
    state_penalty : float
        lambda.
    map_blocks : callable
        Applies a function to each block.

    Returns
    -------
    problem : JointProblem
        The problem.
    """
    setup, functions = two_step.setup, two_step.observations.functions
    values = np.concatenate([data.values for data in functions])
    size = size_or_one(two_step.target)
    if equation_noise is None:
        equation_noise = EQUATION_NOISE * size
    sigma_u = max(two_step.observation_noise, EXACT * size_or_one(values))
    sigma_p = max(equation_noise, EXACT * size)
    blocks, linear_model = _make_blocks(two_step, kernels, solver)
    return JointProblem(
        blocks,
        two_step.equation.basis,
        setup.known_part,
        len(two_step.variables) + setup.n_operators,
        [block.precisions(sigma_u, sigma_p) for block in blocks],
        state_penalty,
        linear_model,
        map_blocks,
    )


def _make_blocks(two_step, kernels, solver):
    setup, functions = two_step.setup, two_step.observations.functions
    arguments = (
        kernels,
        functions,
        setup.collocation_points,
        setup.forcing,
        setup.operators,
        parse_operator("u", two_step.variables),
    )
    places = {id(points): len(points) for points in setup.collocation_points}
    n_representers = sum(places.values()) * len(setup.operators)
    n_representers += sum(len(data.values) for data in functions)
    small = solver == "auto" and n_representers <= LARGEST
    if solver == "primal" or (small and not _is_of_high_rank(*arguments)):
        blocks = make_primal_blocks(*arguments)
        fewer = all(2 * b.n_unknowns <= len(b.values) + len(b.points) for b in blocks)
        if fewer or solver == "primal":
            return blocks, PrimalModel
    return make_dual_blocks(*arguments), DualModel


def _is_of_high_rank(
    kernels, functions, collocation_points, forcing, operators, identity
):
    """Whether a part of the representers has a rank too high for the primal already.

    That of all is as high at least, and takes much longer to find out.
    """
    n_data = len(functions[0].values) + len(collocation_points[0])
    functionals = [(functions[0].points, identity)]
    functionals += [(collocation_points[0], operator) for operator in operators]
    n_rows = sum(len(points) for points, _ in functionals)
    stride = max(1, int(n_rows / (SAMPLED * n_data)))
    sample = [
        (points[i % stride :: stride], op) for i, (points, op) in enumerate(functionals)
    ]
    _, pivots = pivoted_cholesky(gram(kernels[0], sample))
    return 2 * len(pivots) > n_data


def assemble_learned(two_step, problem, iterate):
    """What the estimators store, from a solution of the joint problem.

    If the equation was fixed, states are as uncertain as if it were not, and it is
    itself as uncertain as where it was learned.
    """
    law = problem.basis
    fixed = isinstance(law, FixedUnknownPart)
    if fixed:
        problem = problem.with_basis(law.basis)
        iterate = replace(iterate, weights=law.weights)
    model = problem.linearise(problem.evaluate(iterate))
    setup, root = two_step.setup, problem.dispersion**0.5
    equation = LearnedEquation(
        two_step.variables,
        setup.operators,
        setup.n_operators,
        setup.known_part,
        problem.basis,
        iterate.weights,
        two_step.state_kernel,
        np.concatenate(model.evaluation.features),
        setup.has_forcing,
        law.posterior if fixed else model.posterior_weights(),
    )
    return LearnedModel(
        two_step.observations,
        two_step.variables,
        setup,
        two_step.state_kernel,
        two_step.observation_noise * root,
        model.posterior_states(),
        equation,
        problem.equation_noise * root,
    )
