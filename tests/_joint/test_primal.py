"""The joint problem in the primal: the same solutions as in the dual."""

import numpy as np
import pytest
from joint_problems import solve_jointly
from test_problems import CASES, OPERATORS, STATE_KERNEL, make_case, solved

from keql import OneStepKEqL, ReducedOneStepKEqL
from keql._joint.primal import PrimalModel, make_primal_blocks, span
from keql._joint.problem import JointProblem
from keql.datasets import make_burgers
from keql.kernels import RBF, Constant, Matern, Polynomial, ProjectedKernel
from keql.operators import gram, parse_operator

T = np.linspace(-1, 4, 40)[:, None]


def in_the_primal(case):
    """The same problem with states in an orthonormal basis, at the same iterate."""
    blocks = make_primal_blocks([STATE_KERNEL] * len(case.functions), case.conditions)
    dual = case.problem
    problem = JointProblem(
        blocks,
        dual.basis,
        dual.known_part,
        dual.n_unknown,
        [block.precisions(*case.noises) for block in blocks],
        dual.penalty,
        PrimalModel,
    )
    coefficients = [
        block.represent(other.observed + other.imposed, c)
        for block, other, c in zip(
            blocks, dual.blocks, case.iterate.coefficients, strict=True
        )
    ]
    return problem, problem.iterate(coefficients, case.iterate.weights)


# --- the basis ---------------------------------------------------------------------


def test_basis_spans_all_functionals_orthonormally():
    points = np.linspace(0, 1, 30)[:, None]
    operators = [parse_operator(name, ("x",)) for name in ("u", "u_x", "u_xx")]
    functionals = [(points, operator) for operator in operators]
    for kernel in (RBF(0.3), Matern(0.3, nu=3.5)):
        basis, rows = span(kernel, functionals)
        G = gram(kernel, functionals)
        size = np.sqrt(np.diag(G))
        np.testing.assert_allclose(
            rows @ rows.T / size / size[:, None], G / size / size[:, None], atol=1e-12
        )
        # Orthonormal: the Gram matrix of the basis, by way of the representers.
        C = np.column_stack([basis.coefficients(z) for z in np.eye(rows.shape[1])])
        norms = C.T @ gram(kernel, basis.functionals) @ C
        np.testing.assert_allclose(norms, np.eye(len(norms)), atol=2e-2)
        np.testing.assert_allclose(basis(functionals[1:2]), rows[30:60], atol=1e-4)
    assert rows.shape[1] == 90  # a rough kernel has full rank,
    assert span(RBF(0.3), functionals)[1].shape[1] < 25  # a smooth one has not


@pytest.mark.parametrize("most_whole", [0, 60, 5000])
def test_basis_is_that_of_the_whole_gram_matrix(most_whole):
    """Whether its columns are computed at once, or those that are picked one by one."""
    points = np.linspace(0, 1, 30)[:, None] ** 1.3
    operators = [parse_operator(name, ("x",)) for name in ("u", "u_x")]
    functionals = [(points, operator) for operator in operators]
    kernel = Matern(0.3, nu=3.5)  # of full rank
    basis, rows = span(kernel, functionals, most_dense=0, most_whole=most_whole)
    expected, dense = span(kernel, functionals)
    np.testing.assert_array_equal(basis.order, expected.order)
    np.testing.assert_allclose(rows, dense, atol=1e-8 * np.abs(dense).max())


def test_basis_of_few_kernel_functions_is_that_of_their_gram_matrix():
    """Column by column, from the values of the functions, which are computed once."""
    # Not symmetric: which of two equal pivots comes first is a matter of rounding.
    points, centres = (np.linspace(0, 1, n)[:, None] ** 1.3 for n in (30, 7))
    operators = [parse_operator(name, ("x",)) for name in ("u", "u_x", "u + u_xx")]
    functionals = [(points, operator) for operator in operators]
    kernel = ProjectedKernel(2.0 * Matern(0.3, nu=3.5), centres)
    basis, rows = span(kernel, functionals, most_dense=0)
    G = gram(kernel, functionals)
    size = np.sqrt(np.diag(G))
    np.testing.assert_allclose(
        rows @ rows.T / size / size[:, None], G / size / size[:, None], atol=1e-12
    )
    assert rows.shape[1] == 7
    np.testing.assert_allclose(basis(functionals), rows, atol=1e-6 * np.abs(rows).max())
    _, dense = span(kernel, functionals)
    np.testing.assert_allclose(rows, dense, atol=1e-8 * np.abs(dense).max())


def test_functions_with_the_same_kernel_share_a_basis():
    problem, _ = in_the_primal(make_case())
    first, second, third = problem.blocks
    assert first.basis is second.basis is third.basis
    assert np.shares_memory(first.basis_operators, second.basis_operators)


# --- the same as in the dual -------------------------------------------------------


@pytest.mark.parametrize("equation, known", CASES)
@pytest.mark.parametrize("damping", [0.0, 1e-3, 1.0, 1e4])
def test_steps_are_those_of_the_dual(equation, known, damping):
    case = make_case(equation, known)
    problem, iterate = in_the_primal(case)
    ours, theirs = problem.evaluate(iterate), case.problem.evaluate(case.iterate)
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-9)
    for a, b in zip(ours.residuals, theirs.residuals, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    new, decrease = problem.linearise(ours).step(damping)
    expected, promised = case.problem.linearise(theirs).step(damping)
    assert decrease == pytest.approx(promised, rel=1e-7)
    size = np.abs(expected.weights).max()
    np.testing.assert_allclose(new.weights, expected.weights, atol=1e-8 * size)
    for z, w in zip(new.values, expected.values, strict=True):
        np.testing.assert_allclose(z, w, atol=1e-8 * np.abs(w).max())
    assert problem.evaluate(new).loss == pytest.approx(
        case.problem.evaluate(expected).loss, rel=1e-6
    )


@pytest.mark.parametrize("equation", ["polynomial", "inducing"])
@pytest.mark.parametrize("operator", ["u", "u_t"])
def test_posterior_is_that_of_the_dual(equation, operator):
    case = make_case(equation)
    problem, _ = in_the_primal(case)
    dual = solved(case.problem, case.iterate)
    case.iterate = dual.iterate
    _, iterate = in_the_primal(case)
    ours = problem.linearise(problem.evaluate(iterate))
    theirs = case.problem.linearise(dual)
    t = np.linspace(-1, 4, 40)[:, None]
    operator = parse_operator(operator, ("t",))
    for a, b in zip(ours.posterior_states(), theirs.posterior_states(), strict=True):
        np.testing.assert_allclose(
            a.variance(t, operator), b.variance(t, operator), rtol=1e-6
        )
        np.testing.assert_allclose(
            a.evaluate(t, operator), b.evaluate(t, operator), rtol=1e-6, atol=1e-9
        )
    for a, b in zip(ours.leave_one_out(), theirs.leave_one_out(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    a, b = ours.posterior_weights(), theirs.posterior_weights()
    features = case.problem.basis(case.centers)
    np.testing.assert_allclose(a.std(features), b.std(features), rtol=1e-7)
    assert a.loss == pytest.approx(b.loss, rel=1e-7)


# --- estimators ----------------------------------------------------------------------


# Forty values with such a noise level do not tell the equation, whatever the solver.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::keql.IdentifiabilityWarning")
@pytest.mark.parametrize(
    "Estimator",
    [pytest.param(OneStepKEqL, marks=pytest.mark.slow), ReducedOneStepKEqL],
)
def test_solvers_agree(Estimator):
    data = make_burgers(40, collocation_shape=(10, 13), random_state=0)
    settings = dict(
        data.problem,
        state_kernel=Matern([0.8, 0.4], "fixed", nu=3.5),
        equation_kernel=Constant(1.0, "fixed") * Polynomial(2),
        observation_noise=5e-3,
        equation_noise=5e-2,
        tol=1e-12,
    )
    dual, primal, auto = (
        Estimator(**settings, solver=solver).fit(data.X, data.y)
        for solver in ("dual", "primal", "auto")
    )
    size = np.abs(data.y).max()
    for other in (primal, auto):
        np.testing.assert_allclose(
            other.predict(data.X_test), dual.predict(data.X_test), atol=1e-6 * size
        )
    S = dual.equation_.training_features
    expected = dual.equation_.unknown_part(S)
    np.testing.assert_allclose(
        primal.equation_.unknown_part(S), expected, atol=1e-6 * np.abs(expected).max()
    )


@pytest.mark.slow
def test_auto_takes_the_smaller_representation():
    data = make_burgers(40, collocation_shape=(10, 13), random_state=0)
    for kernel, primal in ((RBF([2.0, 0.8]), True), (Matern(0.5, nu=3.5), False)):
        model = OneStepKEqL(
            **data.problem, state_kernel=kernel, optimizer=None, observation_noise=1e-3
        )
        two_step = model._learn_in_two_steps(data.X, data.y, None)
        problem, _ = solve_jointly(model, two_step)
        assert (problem.linear_model is PrimalModel) is primal


@pytest.mark.slow
def test_warm_start_in_the_primal():
    data = make_burgers(40, collocation_shape=(10, 13), random_state=0)
    model = OneStepKEqL(
        **data.problem,
        state_kernel=RBF([1.0, 0.5], "fixed"),
        observation_noise=1e-2,
        equation_noise=1.0,
        solver="primal",
        warm_start=True,
    ).fit(data.X, data.y)
    before = model.loss_curve_[-1]
    model.fit(data.X, data.y)
    assert model.loss_curve_[0] == pytest.approx(before, rel=1e-5)


def test_dispersion_multiplies_variances_and_moves_nothing():
    case = make_case()
    for problem, iterate in ((case.problem, case.iterate), in_the_primal(case)):
        evaluation = problem.evaluate(iterate)
        model = problem.linearise(evaluation)
        before = [state.variance(T, OPERATORS[0]) for state in model.posterior_states()]
        misfit, (new, _) = problem.misfit(iterate), model.step(0.1)
        weights = model.posterior_weights()
        problem.dispersion = 9.0
        for state, variance in zip(model.posterior_states(), before, strict=True):
            np.testing.assert_allclose(state.variance(T, OPERATORS[0]), 9 * variance)
        assert problem.misfit(iterate) == pytest.approx(misfit / 9)
        np.testing.assert_array_equal(model.step(0.1)[0].weights, new.weights)
        features = problem.basis(case.centers)
        np.testing.assert_allclose(
            model.posterior_weights().std(features), 3 * weights.std(features)
        )


@pytest.mark.parametrize("length, primal", [(0.1, False), (0.3, False), (2.0, True)])
def test_a_part_of_the_representers_tells_of_a_high_rank(length, primal, monkeypatch):
    """Where it does, the rank of all of them is not computed; it would say the same."""
    t = np.linspace(0, 6, 20)[:, None]
    model = OneStepKEqL(
        operators=("u", "u_t"),
        known_part="u_tt",
        variables=("t",),
        collocation_points=60,
        state_kernel=RBF(length, "fixed"),
        equation_kernel=Polynomial(1),
        observation_noise=1e-3,
    )
    two_step = model._learn_in_two_steps(t, np.sin(t[:, 0]), None)
    asked = []

    def spy(*arguments):
        asked.append(make_primal_blocks(*arguments))
        return asked[-1]

    monkeypatch.setattr("keql._joint.assembly.make_primal_blocks", spy)
    problem, _ = solve_jointly(model, two_step)
    assert (problem.linear_model is PrimalModel) == primal
    if not primal:
        assert asked == []
    problem, _ = solve_jointly(model.set_params(solver="primal"), two_step)
    (block,) = problem.blocks
    assert (2 * block.n_unknowns <= 20 + 60) == primal
