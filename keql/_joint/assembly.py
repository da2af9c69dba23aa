"""From the two-step solution to the joint problem, its start, and what it taught."""

from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.utils import check_random_state

from keql._joint.dual import DualModel, make_dual_blocks
from keql._joint.primal import (
    PrimalModel,
    functionals_of_state,
    make_primal_blocks,
)
from keql._joint.problem import Conditions, JointProblem, first_equal, same_points
from keql._numerics.linalg import pivoted_cholesky, rms, size_or_one
from keql._regression.two_step import learned_equation
from keql.equation import FixedUnknownPart, SystemBasis, draw_rows
from keql.kernels import ProjectedKernel, map_states
from keql.operators import gram


def make_problem(
    two_step,
    kernels,
    *,
    solver,
    equation_noise,
    state_penalty,
    map_blocks,
    n_threads=1,
    client=None,
    relative_equation_noise=1e-3,
    constraint_noise=1e-7,
    smallest_noise=1e-9,
):
    """The JointProblem of a fit, from its two-step solution.

    `kernels` are the state kernels of the functions. With the `solver` "auto" states
    are represented in the primal if that has at most half as many unknowns as the dual,
    which has one for each residual; then it is faster. `equation_noise` (E,) is sigma_P
    in units of the forcing; nan stands for `relative_equation_noise` times the root
    mean square of the unknown part. Those of known constraints are `constraint_noise`
    times the size of their terms: with far less, rounding errors hide what states cost.
    All are at least `smallest_noise`, relative to the data and to the unknown part.
    `map_blocks` applies a function to each block, in `n_threads`.
    """
    setup, functions = two_step.setup, two_step.observations.functions
    smallest = smallest_noise * two_step.observations.sizes()
    sigma_u = np.maximum(two_step.observation_noise, smallest)
    sizes = equation_sizes(two_step)
    is_learned = [terms.depends_on is not None for terms in setup.equations]
    relative = np.where(is_learned, relative_equation_noise, constraint_noise)
    sigma_p = np.where(np.isnan(equation_noise), relative * sizes, equation_noise)
    sigma_p = np.maximum(sigma_p, smallest_noise * sizes)
    blocks, linear_model = _make_blocks(kernels, _conditions(two_step), solver)
    present = [np.unique(data.index) for data in functions]
    return JointProblem(
        blocks,
        joint_basis(two_step.equations),
        setup.known_part,
        setup.n_columns,
        [
            block.precisions(sigma_u[own], sigma_p)
            for block, own in zip(blocks, present, strict=True)
        ],
        state_penalty,
        linear_model,
        map_blocks,
        n_threads,
        client=client,
    )


def state_kernels(two_step, settings):
    """State kernel of each function; that of a span for the reduced method."""
    placed = two_step.setup.collocation_points
    if not settings.reduced:
        return [two_step.state_kernel] * len(placed)
    rng, kernels = check_random_state(settings.random_state), []
    for m, first in enumerate(first_equal(placed, same_points)):
        if first < m:
            kernels.append(kernels[first])
            continue
        points = np.unique(placed[m], axis=0)
        size = len(placed[m]) if settings.n_basis is None else int(settings.n_basis)
        project = partial(ProjectedKernel, points=draw_rows(points, size, rng))
        kernels.append(map_states(project, two_step.state_kernel))
    return kernels


def equation_sizes(two_step):
    """Size (E,) of each equation: the root mean square of what P has to explain.

    Of a known constraint, see :func:`size_of_constraint`.
    """
    return np.array(
        [
            size_of_constraint(equation, two_step)
            if terms.depends_on is None
            else size_or_one(target)
            for terms, equation, target in zip(
                two_step.setup.equations,
                two_step.equations,
                two_step.targets,
                strict=True,
            )
        ]
    )


def size_of_constraint(equation, two_step):
    """The sum of the sizes of the terms of a known equation, root mean squares.

    The sizes of operators are those at the points of all equations: where a constraint
    is imposed they may all vanish, as the slope does at an insulated wall.
    """
    first = len(two_step.variables) + len(two_step.setup.inputs.names)
    slopes = equation.known_part.gradient(equation.training_features)[first:]
    everywhere = [each.training_features[:, first:] for each in two_step.equations]
    sizes = [rms(values) for values in np.concatenate(everywhere).T]
    return size_or_one(np.sum(np.abs(slopes.T) * sizes, axis=1))


def joint_basis(equations):
    """The features of all unknown parts; those of a single equation as they are."""
    if len(equations) == 1:
        return equations[0].basis
    sizes = [len(equation.weights) for equation in equations]
    return SystemBasis([equation.basis for equation in equations], sizes)


def joint_weights(equations):
    """The weights of all equations, one after the other."""
    return np.concatenate([equation.weights for equation in equations])


def _conditions(two_step):
    """What the states of each function have to meet: values and the equations."""
    setup = two_step.setup
    parts = setup.collocation_points, setup.forcing, setup.rows
    return [
        Conditions(
            data.functionals,
            data.values,
            data.weights,
            points,
            setup.operators,
            forcing,
            rows,
        )
        for data, points, forcing, rows in zip(
            two_step.observations.functions, *parts, strict=True
        )
    ]


def _make_blocks(kernels, conditions, solver, most_representers=6000):
    """Blocks, and the linear model for them, as `solver` says or as is faster.

    The primal is faster if it has at most half as many unknowns as there are data. Of
    several functions, the rank of more representers than `most_representers` takes more
    time than the dual.
    """
    if solver == "primal":
        return make_primal_blocks(kernels, conditions), PrimalModel
    single = len(conditions) == 1
    small = single or _n_representers(conditions) <= most_representers
    if solver == "auto" and small and not _is_of_high_rank(kernels[0], conditions[0]):
        most = min(len(own.values) + len(own.forcing) for own in conditions) // 2
        blocks = make_primal_blocks(kernels, conditions, most)
        if blocks is not None and all(block.n_unknowns <= most for block in blocks):
            return blocks, PrimalModel
    return make_dual_blocks(kernels, conditions), DualModel


def _n_representers(conditions):
    """The largest number of representers of one state, of all functions together."""
    places = [given.points for given in conditions]
    n_places = sum(len(places[i]) for i in set(first_equal(places, same_points)))
    observed = [each for given in conditions for each in given.observed]
    numbers = {}
    for points, operator in observed:
        for state in set(operator.states):
            numbers[state] = numbers.get(state, 0) + len(points)
    for operator in conditions[0].operators:
        numbers[operator.state] = numbers.get(operator.state, 0) + n_places
    return max(numbers.values())


def _is_of_high_rank(kernel, conditions, share=0.75, most_rows=2000):
    """Whether a part of the representers has a rank too high for the primal already.

    The rank of all is at least as high, and takes longer to find out. The part has
    `share` representers for each datum. Of more than `most_rows` the rank is the one
    to which those of so many, and of half of them, grow as a power of the number.
    """
    n_data = len(conditions.values) + len(conditions.forcing)
    n_wanted = share * n_data
    rank = _rank_of(kernel, conditions, min(n_wanted, most_rows))
    if n_wanted > most_rows:
        half = _rank_of(kernel, conditions, most_rows / 2)
        rank *= (n_wanted / most_rows) ** np.log2(rank / half)
    return 2 * rank > n_data


def _rank_of(kernel, conditions, n_wanted):
    """The rank of about so many of the representers, those of all states together."""
    functionals = conditions.observed + conditions.imposed
    n_rows = sum(len(points) for points, _ in functionals)
    stride = max(1, int(n_rows / n_wanted))
    sample = [
        (points[i % stride :: stride], operator)
        for i, (points, operator) in enumerate(functionals)
    ]
    rank = 0
    for state in {state for _, operator in sample for state in operator.states}:
        _, own = functionals_of_state(state, sample)
        rank += len(pivoted_cholesky(gram(kernel.of_state(state), own))[1])
    return rank


def assemble_learned(two_step, problem, iterate, model=None):
    """What the estimators store, from a solution of the joint problem.

    `model` is the problem linearised there, if there is one and P is free.
    If the equation was fixed, states are as uncertain as if it were not, and it is
    itself as uncertain as where it was learned.
    """
    fixed = problem.basis if isinstance(problem.basis, FixedUnknownPart) else None
    if fixed is not None:
        problem = problem.with_basis(fixed.basis)
        iterate = replace(iterate, weights=fixed.weights)
    if model is None:
        model = problem.linearise(problem.evaluate(iterate))
    posterior = model.posterior_weights() if fixed is None else fixed.posterior
    root = problem.dispersion**0.5
    return replace(
        two_step,
        observation_noise=two_step.observation_noise * root,
        states=model.posterior_states(),
        equations=_learned_equations(
            two_step, problem, model.evaluation, iterate, posterior
        ),
        equation_noise=problem.equation_noise * root,
    )


def equations_at(two_step, problem, iterate):
    """The equations of an iterate that is not yet a solution, to be printed."""
    if problem.is_exact:
        return iterate.equations
    if isinstance(problem.basis, FixedUnknownPart):
        iterate = replace(iterate, weights=problem.basis.weights)
        problem = problem.with_basis(problem.basis.basis)
    evaluation = problem.evaluate(iterate)
    return _learned_equations(two_step, problem, evaluation, iterate, None)


def _learned_equations(two_step, problem, evaluation, iterate, posterior):
    """The equations of a solution, each with the posterior of its own weights."""
    setup, basis = two_step.setup, problem.basis
    bases = basis.bases if setup.is_system else [basis]
    sizes = basis.sizes if setup.is_system else [len(iterate.weights)]
    features = setup.split(np.concatenate(evaluation.features))
    equations, start = [], 0
    for terms, own, S, size in zip(
        setup.equations, bases, features, sizes, strict=True
    ):
        weights = iterate.weights[start : start + size]
        has_posterior = posterior is not None and size
        part = posterior.part(start, start + size) if has_posterior else None
        equations.append(learned_equation(two_step, terms, own, weights, S, part))
        start += size
    return tuple(equations)
