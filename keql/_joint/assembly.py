"""From the two-step solution to the joint problem, its start, and what it taught."""

from dataclasses import replace

import numpy as np

from keql._joint.dual import DualModel, make_dual_blocks
from keql._joint.primal import PrimalModel, make_primal_blocks
from keql._joint.problem import Conditions, JointProblem, first_equal, same_points
from keql._numerics.linalg import pivoted_cholesky, size_or_one
from keql.equation import FixedUnknownPart, LearnedEquation
from keql.operators import gram, parse_operator


def make_problem(
    two_step,
    kernels,
    *,
    solver,
    equation_noise,
    state_penalty,
    map_blocks,
    relative_equation_noise=1e-3,
    smallest_noise=1e-9,
):
    """The JointProblem of a fit, from its two-step solution.

    `kernels` are the state kernels of the functions. With the `solver` "auto" states
    are represented in the primal if that has at most half as many unknowns as the dual,
    which has one for each residual; then it is faster. `equation_noise` is sigma_P in
    units of the forcing; None stands for `relative_equation_noise` times the root mean
    square of the unknown part. Noise levels are at least `smallest_noise`, relative to
    the data and to the unknown part. `map_blocks` applies a function to each block.
    """
    setup, functions = two_step.setup, two_step.observations.functions
    values = np.concatenate([data.values for data in functions])
    size = size_or_one(two_step.target)
    if equation_noise is None:
        equation_noise = relative_equation_noise * size
    sigma_u = max(two_step.observation_noise, smallest_noise * size_or_one(values))
    sigma_p = max(equation_noise, smallest_noise * size)
    blocks, linear_model = _make_blocks(kernels, _conditions(two_step), solver)
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


def _conditions(two_step):
    """What the state of each function has to meet: point values and the equation."""
    setup, identity = two_step.setup, parse_operator("u", two_step.variables)
    functions = two_step.observations.functions
    observed = [(data.points, data.values, data.weights) for data in functions]
    imposed = setup.collocation_points, setup.forcing
    return [
        Conditions([(x, identity)], y, weights, points, setup.operators, forcing)
        for (x, y, weights), points, forcing in zip(observed, *imposed, strict=True)
    ]


def _make_blocks(kernels, conditions, solver, most_representers=6000):
    """Blocks, and the linear model for them, as `solver` says or as is faster.

    The rank of more representers than `most_representers` takes more time than the
    dual.
    """
    places = [given.points for given in conditions]
    n_places = sum(len(places[i]) for i in set(first_equal(places, same_points)))
    n_representers = n_places * len(conditions[0].operators)
    n_representers += sum(len(given.values) for given in conditions)
    small = solver == "auto" and n_representers <= most_representers
    if solver == "primal" or (
        small and not _is_of_high_rank(kernels[0], conditions[0])
    ):
        blocks = make_primal_blocks(kernels, conditions)
        fewer = all(2 * b.n_unknowns <= len(b.values) + len(b.points) for b in blocks)
        if fewer or solver == "primal":
            return blocks, PrimalModel
    return make_dual_blocks(kernels, conditions), DualModel


def _is_of_high_rank(kernel, conditions, share=0.75):
    """Whether a part of the representers has a rank too high for the primal already.

    The rank of all is at least as high, and takes longer to find out. The part has
    `share` representers for each datum.
    """
    n_data = len(conditions.values) + len(conditions.points)
    functionals = conditions.observed + conditions.imposed
    n_rows = sum(len(points) for points, _ in functionals)
    stride = max(1, int(n_rows / (share * n_data)))
    sample = [
        (points[i % stride :: stride], operator)
        for i, (points, operator) in enumerate(functionals)
    ]
    _, pivots = pivoted_cholesky(gram(kernel, sample))
    return 2 * len(pivots) > n_data


def assemble_learned(two_step, problem, iterate):
    """What the estimators store, from a solution of the joint problem.

    If the equation was fixed, states are as uncertain as if it were not, and it is
    itself as uncertain as where it was learned.
    """
    fixed = problem.basis if isinstance(problem.basis, FixedUnknownPart) else None
    if fixed is not None:
        problem = problem.with_basis(fixed.basis)
        iterate = replace(iterate, weights=fixed.weights)
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
        model.posterior_weights() if fixed is None else fixed.posterior,
    )
    return replace(
        two_step,
        observation_noise=two_step.observation_noise * root,
        states=model.posterior_states(),
        equation=equation,
        equation_noise=problem.equation_noise * root,
    )
