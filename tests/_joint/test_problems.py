"""The joint problem in the dual, compared with the plain formulas in dense algebra."""

import itertools
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import elementwise_grad
from scipy.linalg import block_diag
from sklearn import config_context

from keql._joint.dual import (
    DualBlock,
    DualModel,
    make_dual_blocks,
    normal_matrices,
)
from keql._joint.problem import Conditions, JointProblem, Tangent
from keql._joint.state_gram import StateGram, add_block
from keql._numerics.parallel import parallel_map
from keql._observations.data import Sample
from keql._observations.imposed import Imposed
from keql.equation._basis import InducingBasis, PolynomialBasis
from keql.equation._known import make_known_part
from keql.kernels import RBF, Matern, Polynomial
from keql.operators import gram, parse_operator

# --- equations: the package's kernels beside plain formulas ---------------------------


def by_polynomial(S, centers):
    """(s . s' / scale^2 + 1)^2 of u and u_t."""
    scaled, others = S[:, 1:3] / [0.9, 1.6], centers[:, 1:3] / [0.9, 1.6]
    return (anp.dot(scaled, others.T) + 1.0) ** 2


def by_gaussian(S, centers):
    """exp(-|s - s'|^2 / 2 l^2) of u and u_t."""
    difference = (S[:, None, 1:3] - centers[None, :, 1:3]) / 1.3
    return anp.exp(-0.5 * anp.sum(difference**2, axis=-1))


def by_hybrid(S, centers):
    """Coefficients that vary with t, in front of 1, u and u_t."""
    difference = (S[:, None, 0] - centers[None, :, 0]) / 0.4
    return anp.exp(-0.5 * difference**2) * (anp.dot(S[:, 1:3], centers[:, 1:3].T) + 1.0)


def by_time(S, centers):
    """A function of t alone: with a linear known part the problem is linear."""
    difference = (S[:, None, 0] - centers[None, :, 0]) / 0.7
    return anp.exp(-0.5 * difference**2)


def pendulum(t, u, u_t, u_tt):
    return u_tt * (1 + 0.1 * u**2) + anp.sin(u) * u_t + t


LINEAR_PART = {"u_tt": 2.0, "u": -0.5}
VARYING = RBF(0.4, active_dims=("t",)) * Polynomial(1, scale=1.0, center=0.0)
EQUATIONS = {
    "polynomial": (Polynomial(2, scale=[0.9, 1.6], center=0.0), by_polynomial),
    "inducing": (RBF(1.3), by_gaussian),
    "hybrid": (VARYING, by_hybrid),
    "time": (RBF(0.7, active_dims=("t",)), by_time),
}
KNOWN_PARTS = {
    "linear": (LINEAR_PART, lambda t, u, u_t, u_tt: 2 * u_tt - 0.5 * u),
    "nonlinear": (pendulum, pendulum),
}
STATE_KERNEL = Matern(0.5, nu=3.5)
NAMES = ("t", "u", "u_t", "u_tt")
OPERATORS = [parse_operator(name, ("t",)) for name in NAMES[1:]]
# Observations and collocation points of each function; the first two share the latter.
SIZES = ((5, 7), (3, 7), (4, 6))
PENALTY = 1.7


def make_case(equation="polynomial", known="linear", n_functions=3, factor=1.0):
    """A problem with the pieces that plain formulas need."""
    rng = np.random.RandomState(0)
    sizes = SIZES[:n_functions]
    observed = [np.sort(rng.uniform(0, 3, size=(n, 1)), axis=0) for n, _ in sizes]
    shared, own = (np.linspace(0.1, 2.9, k)[:, None] for k in (7, 6))
    points = [shared if k == 7 else own for _, k in sizes]
    functions = [
        Sample(x, rng.normal(size=len(x)), rng.uniform(0.5, 2, size=len(x)))
        for x in observed
    ]
    forcing = [rng.normal(size=len(x)) for x in points]
    known_part = make_known_part(KNOWN_PARTS[known][0], ("t",))
    known_part._locate(NAMES, lambda operator: NAMES.index(operator.name))
    kernel, formula = EQUATIONS[equation]
    kernel = factor * kernel.bind(NAMES[:3], default=(1, 2))
    centers = rng.normal(size=(9, 3))
    is_finite = kernel.n_features(3) is not None
    basis = PolynomialBasis(kernel) if is_finite else InducingBasis(kernel, centers)
    conditions = [
        Conditions(
            [(d.points, OPERATORS[0])],
            d.values,
            d.weights,
            x,
            OPERATORS,
            f,
            Imposed.everywhere(x),
        )
        for d, x, f in zip(functions, points, forcing, strict=True)
    ]
    blocks = make_dual_blocks([STATE_KERNEL] * n_functions, conditions)
    noises = (0.2, 0.7)
    problem = JointProblem(
        blocks,
        basis,
        known_part,
        3,
        [block.precisions(*noises) for block in blocks],
        PENALTY,
        DualModel,
    )
    beta = 0.3 * rng.normal(size=len(centers))
    weights = basis(centers).T @ beta
    grams = [gram(STATE_KERNEL, block.observed + block.imposed) for block in blocks]
    coefficients = [rng.normal(size=len(G)) / len(G) for G in grams]
    return SimpleNamespace(
        problem=problem,
        iterate=problem.iterate(coefficients, weights),
        functions=functions,
        conditions=conditions,
        forcing=forcing,
        points=points,
        noises=noises,
        grams=grams,
        known=KNOWN_PARTS[known][1],
        centers=centers,
        kernel=lambda S: factor * formula(S, centers),
        beta=beta,
    )


CASES = [
    ("polynomial", "linear"),
    ("inducing", "linear"),
    ("hybrid", "linear"),
    ("polynomial", "nonlinear"),
    ("inducing", "nonlinear"),
]


def moved_to(case, iterate):
    """The same case at another iterate; P as a sum of kernels at the centers again."""
    features = case.problem.basis(case.centers)
    beta = np.linalg.lstsq(features.T, iterate.weights, rcond=None)[0]
    return SimpleNamespace(**{**vars(case), "iterate": iterate, "beta": beta})


def equation_residual(case, m, columns):
    """(P + Pbar)(Phi) - f by the plain formulas, from the columns u, u_t, u_tt."""
    t = case.points[m][:, 0]
    S = anp.stack([t, *columns], axis=1)
    return (
        anp.dot(case.kernel(S), case.beta) + case.known(t, *columns) - case.forcing[m]
    )


def columns_of(case, m):
    n = len(case.functions[m].points)
    return case.iterate.values[m][n:].reshape(len(OPERATORS), -1)


# --- the dense problem ------------------------------------------------------------


def dense_jacobian(case):
    """Residuals in the unknowns (alpha_1, ..., alpha_M, w), and that of the whole.

    alpha_m = C^T c, with G = C C^T, has the norm of v_m. The rows are weighted, and
    those of the priors appended.
    """
    problem, iterate = case.problem, case.iterate
    data = problem.evaluate(iterate)
    roots = [np.linalg.cholesky(G) for G in case.grams]
    blocks, right = [], []
    for m, C in enumerate(roots):
        columns = columns_of(case, m)
        n, n_points = len(case.functions[m].points), columns.shape[1]
        T = np.zeros((n + n_points, len(C)))
        T[:n, :n] = np.eye(n)
        for q in range(len(OPERATORS)):

            def residual(column, q=q, m=m, columns=columns):
                moved = [column if i == q else c for i, c in enumerate(columns)]
                return equation_residual(case, m, moved)

            slopes = elementwise_grad(residual)(columns[q].copy())
            T[n:, n + q * n_points : n + (q + 1) * n_points] = np.diag(slopes)
        root = np.sqrt(problem.precisions[m])
        S = data.features[m][:, :3]
        psi = np.vstack([np.zeros((n, len(iterate.weights))), problem.basis(S)])
        blocks.append((root[:, None] * (T @ C), root[:, None] * psi))
        right.append(root * data.residuals[m])
    J = np.hstack(
        [block_diag(*(J for J, _ in blocks)), np.vstack([psi for _, psi in blocks])]
    )
    n_states = sum(len(C) for C in roots)
    priors = np.r_[
        np.full(n_states, problem.penalty**0.5), np.ones(len(iterate.weights))
    ]
    alphas = [C.T @ c for C, c in zip(roots, iterate.coefficients, strict=True)]
    unknowns = np.concatenate([*alphas, iterate.weights])
    J = np.vstack([J, np.diag(priors)])
    return J, np.concatenate([*right, priors * unknowns]), roots


def split(case, unknowns):
    """Parts (alpha_1, ..., alpha_M, w)."""
    sizes = np.cumsum([len(G) for G in case.grams])
    return np.split(unknowns, sizes)


# --- one function ------------------------------------------------------------


@pytest.mark.parametrize("is_whole", [True, False])
def test_normal_matrix_is_that_of_the_functionals(is_whole):
    """Also over several chunks of rows, with an operator whose slope vanishes."""
    rng = np.random.RandomState(0)
    n, n_operators, n_points = 9, 3, 230
    A = rng.normal(size=(n + n_operators * n_points, 40))
    G = A @ A.T
    points = np.zeros((n_points, 1))
    imposed = G[n:, n:].reshape(n_operators, n_points, n_operators, n_points)
    whole, blocks = (
        imposed if is_whole else None,
        {(q, r): imposed[q, :, r] for q in range(n_operators) for r in range(q + 1)},
    )
    block = DualBlock(
        observed=[],
        values=np.zeros(n),
        weights=np.ones(n),
        points=points,
        operators=OPERATORS,
        forcing=np.zeros(n_points),
        rows=Imposed.everywhere(points),
        kernel=None,
        group=0,
        gram_values=G[:n, :n],
        gram_cross=G[:n, n:],
        gram_states=[StateGram(np.arange(n_operators), whole, blocks)],
    )
    slopes = rng.normal(size=(n_operators, n_points))
    for used in ([True, True, True], [True, False, True], [False, False, False]):
        a = slopes * np.array(used)[:, None]
        T = block_diag(np.eye(n), np.hstack([np.diag(row) for row in a]))
        np.testing.assert_allclose(
            np.tril(block.normal_matrix(a)), np.tril(T @ G @ T.T), atol=1e-11
        )
        for columns in ((), (4,)):  # of one state, or of several
            c = rng.normal(size=(len(G), *columns))
            x = rng.normal(size=(n + n_points, *columns))
            np.testing.assert_allclose(block.evaluate(c), G @ c, atol=1e-11)
            tangent = Tangent(a, block.rows)
            np.testing.assert_allclose(tangent.apply(c), T @ c, atol=1e-13)
            np.testing.assert_allclose(tangent.expand(x), T.T @ x, atol=1e-13)


def matrix_of(own, size):
    """The whole matrix (size, size) of a StateGram, one product for each column."""
    units = np.eye(size).reshape(len(own.members), -1, size)
    return own.multiply(units).reshape(size, size)


def test_gram_parts_are_those_of_the_functionals():
    case = make_case()
    for block, G in zip(case.problem.blocks, case.grams, strict=True):
        n = len(block.values)
        assert block.n_unknowns == len(G)
        np.testing.assert_allclose(block.gram_values, G[:n, :n], atol=1e-15)
        np.testing.assert_allclose(block.gram_cross, G[:n, n:], atol=1e-13)
        (of_state,) = block.gram_states
        np.testing.assert_array_equal(of_state.members, range(len(OPERATORS)))
        whole = matrix_of(of_state, len(G) - n)
        np.testing.assert_allclose(whole, G[n:, n:], atol=1e-12)


def test_functions_with_the_same_points_share_their_matrix():
    blocks = make_case().problem.blocks
    (first,), (second,), (third,) = (block.gram_states for block in blocks)
    assert first is second
    assert first is not third
    assert [block.group for block in blocks] == [0, 0, 2]


def test_precisions_are_inverse_variances():
    case = make_case()
    sigma_u, sigma_p = case.noises
    for data, points, precisions in zip(
        case.functions, case.points, case.problem.precisions, strict=True
    ):
        n = len(data.values)
        np.testing.assert_allclose(precisions[:n], data.weights / sigma_u**2)
        np.testing.assert_allclose(precisions[n:], np.full(len(points), sigma_p**-2))


# --- residuals and slopes ----------------------------------------------------------


@pytest.mark.parametrize("equation, known", CASES)
def test_residuals_and_loss_are_those_of_the_plain_formula(equation, known):
    case = make_case(equation, known)
    problem, iterate = case.problem, case.iterate
    evaluation = problem.evaluate(iterate)
    norm = case.beta @ case.kernel(case.centers) @ case.beta
    loss, squares, count = 0.5 * norm, 0.0, 0
    for m, (data, G) in enumerate(zip(case.functions, case.grams, strict=True)):
        c, n = iterate.coefficients[m], len(data.values)
        z = G @ c
        np.testing.assert_allclose(iterate.values[m], z, atol=1e-12)
        misfits = z[:n] - data.values
        imposed = equation_residual(case, m, z[n:].reshape(3, -1))
        expected = np.concatenate([misfits, imposed])
        np.testing.assert_allclose(evaluation.residuals[m], expected, rtol=1e-9)
        assert np.all(evaluation.features[m][:, 0] == case.points[m][:, 0])
        square = data.weights @ misfits**2 / case.noises[0] ** 2
        square += imposed @ imposed / case.noises[1] ** 2
        loss += 0.5 * PENALTY * c @ z + 0.5 * square
        squares, count = squares + square, count + len(expected)
    assert evaluation.loss == pytest.approx(loss, rel=1e-10)
    assert problem.misfit(iterate) == pytest.approx(squares / count, rel=1e-10)


@pytest.mark.parametrize("equation, known", CASES)
def test_slopes_agree_with_autograd(equation, known):
    case = make_case(equation, known)
    evaluation = case.problem.evaluate(case.iterate)
    for m, S in enumerate(evaluation.features):
        slopes = case.problem.slopes(S, case.iterate.weights)
        psi = case.problem.psi(S)
        columns = columns_of(case, m)
        for q in range(len(OPERATORS)):

            def residual(column, q=q, m=m, columns=columns):
                moved = [column if i == q else c for i, c in enumerate(columns)]
                return equation_residual(case, m, moved)

            expected = elementwise_grad(residual)(columns[q].copy())
            np.testing.assert_allclose(slopes[q], expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(
            psi @ case.iterate.weights, case.kernel(S) @ case.beta, rtol=1e-9
        )


@pytest.mark.parametrize("equation, known", CASES)
def test_jacobian_agrees_with_finite_differences(equation, known):
    case = make_case(equation, known)
    problem, iterate = case.problem, case.iterate
    evaluation = problem.evaluate(iterate)
    rng = np.random.RandomState(1)
    dc = [rng.normal(size=len(c)) / len(c) for c in iterate.coefficients]
    dw = rng.normal(size=len(iterate.weights))

    def moved(step):
        coefficients = [
            c + step * d for c, d in zip(iterate.coefficients, dc, strict=True)
        ]
        there = problem.iterate(coefficients, iterate.weights + step * dw)
        return problem.evaluate(there).residuals

    forward, backward = moved(1e-5), moved(-1e-5)
    for m, block in enumerate(problem.blocks):
        S = evaluation.features[m]
        slopes, psi = problem.slopes(S, iterate.weights), problem.psi(S)
        along = Tangent(slopes, block.rows).apply(block.evaluate(dc[m]))
        along[len(block.values) :] += psi @ dw
        difference = (forward[m] - backward[m]) / 2e-5
        np.testing.assert_allclose(along, difference, rtol=1e-5, atol=1e-7)


# --- steps -------------------------------------------------------------------------


@pytest.mark.parametrize("damping", [0.0, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("n_functions", [1, 3])
@pytest.mark.parametrize("equation, known", CASES)
def test_step_solves_the_damped_normal_equations(equation, known, n_functions, damping):
    case = make_case(equation, known, n_functions)
    problem, iterate = case.problem, case.iterate
    evaluation = problem.evaluate(iterate)
    new, decrease = problem.linearise(evaluation).step(damping)
    J, r, roots = dense_jacobian(case)
    assert 0.5 * r @ r == pytest.approx(evaluation.loss, rel=1e-9)
    h = -np.linalg.solve(J.T @ J + damping * np.eye(J.shape[1]), J.T @ r)
    *steps, dw = split(case, h)
    size = np.linalg.norm(h)
    np.testing.assert_allclose(new.weights - iterate.weights, dw, atol=1e-7 * size)
    for m, C in enumerate(roots):
        moved = C.T @ (new.coefficients[m] - iterate.coefficients[m])
        np.testing.assert_allclose(moved, steps[m], atol=1e-7 * size)
        np.testing.assert_allclose(
            new.values[m],
            case.grams[m] @ new.coefficients[m],
            atol=1e-9 * np.abs(new.values[m]).max(),
        )
    expected = 0.5 * r @ r - 0.5 * np.sum((r + J @ h) ** 2)
    assert decrease == pytest.approx(expected, rel=1e-7)
    assert decrease > 0


def test_blocks_in_parallel_give_the_same_step():
    case = make_case()
    problem = case.problem
    calls = []

    def backwards(function, items):
        items = list(items)
        calls.append(len(items))
        return [function(item) for item in items[::-1]][::-1]

    evaluation = problem.evaluate(case.iterate)
    expected, _ = problem.linearise(evaluation).step(0.1)
    problem = replace(problem, map_blocks=backwards, n_threads=2)
    new, _ = problem.linearise(evaluation).step(0.1)
    assert set(calls) == {1, 3}
    for ours, theirs in zip(new.values, expected.values, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    calls.clear()
    most_rows = sum(len(block.forcing) for block in problem.blocks) - 1
    problem = replace(problem, most_rows=most_rows)
    new, _ = problem.linearise(evaluation).step(0.1)
    assert set(calls) == {2}
    np.testing.assert_allclose(new.weights, expected.weights, rtol=1e-12)
    for ours, theirs in zip(new.values, expected.values, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-14)


def test_a_linear_known_equation_is_kernel_collocation():
    """P is as good as zero: one step solves Pbar(u) = f, from wherever it starts."""
    case = make_case("polynomial", "linear", factor=1e-12)
    problem = case.problem
    new, decrease = problem.linearise(problem.evaluate(case.iterate)).step(0.0)
    assert problem.evaluate(new).loss == pytest.approx(
        problem.evaluate(case.iterate).loss - decrease, rel=1e-6
    )
    t = np.linspace(0, 3, 50)[:, None]
    imposed = 2.0 * OPERATORS[2] - 0.5 * OPERATORS[0]
    for m, data in enumerate(case.functions):
        rows = [(data.points, OPERATORS[0]), (case.points[m], imposed)]
        covariance = gram(STATE_KERNEL, rows) / PENALTY
        covariance += np.diag(1 / problem.precisions[m])
        right = np.concatenate([data.values, case.forcing[m]])
        cross = gram(STATE_KERNEL, [(t, OPERATORS[0])], rows) / PENALTY
        expected = cross @ np.linalg.solve(covariance, right)
        functionals = problem.blocks[m].observed + problem.blocks[m].imposed
        values = gram(STATE_KERNEL, [(t, OPERATORS[0])], functionals)
        np.testing.assert_allclose(
            values @ new.coefficients[m], expected, atol=1e-6 * np.abs(expected).max()
        )


# --- posterior ----------------------------------------------------------------------


def solved(problem, iterate):
    """Undamped steps, as often as they lower the loss."""
    evaluation = problem.evaluate(iterate)
    for _ in range(200):
        for damping in 10.0 ** np.arange(-8, 9):
            trial = problem.evaluate(problem.linearise(evaluation).step(damping)[0])
            if trial.loss < evaluation.loss:
                break
        else:
            break
        evaluation = trial
    return evaluation


@pytest.mark.parametrize("equation", ["polynomial", "inducing"])
@pytest.mark.parametrize("operator", ["u", "u_t"])
def test_posterior_variances_are_those_of_the_joint_gaussian(equation, operator):
    """Of (v_1, v_2, w), the equation linearised at the solution, w integrated out."""
    case = make_case(equation, n_functions=2)
    problem = case.problem
    evaluation = solved(problem, case.iterate)
    J, r, roots = dense_jacobian(moved_to(case, evaluation.iterate))
    assert np.linalg.norm(J.T @ r) < 1e-5 * np.linalg.norm(r)
    covariance = np.linalg.inv(J.T @ J)
    t = np.linspace(-1, 4, 40)[:, None]
    operator = parse_operator(operator, ("t",))
    states = problem.linearise(evaluation).posterior_states()
    start = 0
    for state, block, G, C in zip(
        states, problem.blocks, case.grams, roots, strict=True
    ):
        rows = slice(start, start + len(G))
        start += len(G)
        functionals = block.observed + block.imposed
        cross = np.linalg.solve(C, gram(STATE_KERNEL, functionals, [(t, operator)]))
        prior = np.diag(gram(STATE_KERNEL, [(t, operator)])) / PENALTY
        # The part of v that the representers do not span keeps its prior variance.
        expected = prior - np.sum(cross**2, axis=0) / PENALTY
        expected += np.sum(cross * (covariance[rows, rows] @ cross), axis=0)
        found = state.variance(t, operator)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)
        assert np.all(found < prior * (1 + 1e-9))
        assert found.min() < 0.5 * prior.min()


@pytest.mark.parametrize("noise", [1e-6, 1e6])
def test_posterior_of_an_exact_and_of_a_vague_equation(noise):
    """It fixes what it imposes, or leaves the posterior of the observations."""
    case = make_case("polynomial", n_functions=1, factor=1e-12)
    problem = case.problem
    (block,) = problem.blocks
    problem.precisions = [block.precisions(0.2, noise)]
    (state,) = problem.linearise(problem.evaluate(case.iterate)).posterior_states()
    t = np.linspace(-1, 4, 30)[:, None]
    if noise < 1:
        imposed = 2.0 * OPERATORS[2] - 0.5 * OPERATORS[0]
        prior = gram(STATE_KERNEL, [(block.points, imposed)])
        assert state.variance(block.points, imposed).max() < 1e-8 * prior.max()
    else:
        data = case.functions[0]
        covariance = gram(STATE_KERNEL, [(data.points, OPERATORS[0])]) / PENALTY
        covariance += np.diag(0.2**2 / data.weights)
        q = gram(STATE_KERNEL, [(data.points, OPERATORS[0])], [(t, OPERATORS[0])])
        expected = 1 - np.sum(q * np.linalg.solve(covariance, q), axis=0) / PENALTY
        np.testing.assert_allclose(
            state.variance(t, OPERATORS[0]), expected / PENALTY, rtol=1e-6
        )


def test_leave_one_out_is_that_of_fitting_without():
    """For a linear equation, where leaving out and linearising commute."""
    case = make_case("polynomial", "linear", n_functions=2)
    problem = case.problem
    evaluation = solved(problem, case.iterate)
    found = problem.linearise(evaluation).leave_one_out()
    # The equation is nonlinear in (v, w) together: its linearisation is what counts.
    J, r, roots = dense_jacobian(moved_to(case, evaluation.iterate))
    hat = J @ np.linalg.solve(J.T @ J, J.T)
    start = 0
    for m, data in enumerate(case.functions):
        n = len(data.values)
        rows = slice(start, start + n)
        scaled = np.sqrt(problem.precisions[m][:n])
        for i, row in enumerate(range(start, start + n)):
            kept = np.arange(len(J)) != row
            step = np.linalg.lstsq(J[kept], -r[kept], rcond=None)[0]
            expected = (r[row] + J[row] @ step) / scaled[i]
            assert found[m][i] == pytest.approx(expected, rel=1e-4)
        assert np.all(np.diag(hat)[rows] < 1)
        start += len(problem.precisions[m])


# --- many functions ------------------------------------------------------------------


@pytest.mark.parametrize("damping", [0.0, 0.5])
@pytest.mark.parametrize("equation, known", CASES)
def test_what_is_not_kept_is_computed_again(equation, known, damping):
    case = make_case(equation, known)
    problem = case.problem
    evaluation = problem.evaluate(case.iterate)
    kept = DualModel(problem, evaluation)
    assert kept.matrices is not None
    for n_jobs, memory in itertools.product((None, 2), (0, 1024)):
        how = {"map_blocks": partial(parallel_map, n_jobs), "n_threads": n_jobs or 1}
        problem = replace(problem, **how, most_rows=1)
        with config_context(working_memory=memory):
            lean = DualModel(problem, evaluation)
        assert lean.matrices is None
        assert (lean.undamped.factors is None) == (memory == 0)
        assert lean.undamped.features is None
        (one, fall), (other, same) = kept.step(damping), lean.step(damping)
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-10)
        for first, second in zip(one.coefficients, other.coefficients, strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(same, fall, rtol=1e-10)
        pairs = zip(kept.leave_one_out(), lean.leave_one_out(), strict=True)
        for first, second in pairs:
            np.testing.assert_allclose(first, second, rtol=1e-10)
        np.testing.assert_allclose(lean.log_evidence(), kept.log_evidence())
        points = np.linspace(0, 3, 5)[:, None]
        pairs = zip(kept.posterior_states(), lean.posterior_states(), strict=True)
        for first, second in pairs:
            assert not second.factors
            np.testing.assert_allclose(
                first.variance(points, OPERATORS[1]),
                second.variance(points, OPERATORS[1]),
                rtol=1e-8,
            )


def test_functions_that_are_observed_at_the_same_places_share_their_matrix():
    rng = np.random.RandomState(0)
    places, points = np.linspace(0, 3, 6)[:, None], np.linspace(0.1, 2.9, 7)[:, None]
    rows = [rng.permutation(6)[:4] for _ in range(5)]
    conditions = [
        Conditions(
            [(places[own], OPERATORS[0])],
            np.zeros(4),
            np.ones(4),
            points,
            OPERATORS,
            np.zeros(7),
            Imposed.everywhere(points),
        )
        for own in rows
    ]
    blocks = make_dual_blocks([STATE_KERNEL] * 5, conditions)
    few = np.array([1, 3, 5])
    shared = {}
    for block, given in zip(blocks, conditions, strict=True):
        assert block.gram_cross is blocks[0].gram_cross
        own = gram(STATE_KERNEL, given.observed, given.imposed)
        np.testing.assert_allclose(block.cross, own, atol=1e-14)
        c = rng.normal(size=block.n_unknowns)
        G = gram(STATE_KERNEL, given.observed + given.imposed)
        np.testing.assert_allclose(block.evaluate(c), G @ c, atol=1e-11)
        part = block.restricted(few, shared)
        assert part.gram_cross is blocks[0].restricted(few, shared).gram_cross
        own = gram(STATE_KERNEL, part.observed, part.imposed)
        np.testing.assert_allclose(part.cross, own, atol=1e-14)


def test_functions_that_share_a_matrix_read_it_once():
    rng = np.random.RandomState(0)
    points = np.linspace(0.1, 2.9, 7)[:, None]
    conditions = [
        Conditions(
            [(rng.uniform(0, 3, size=(n, 1)), OPERATORS[0])],
            np.zeros(n),
            np.ones(n),
            points,
            OPERATORS,
            np.zeros(7),
            Imposed.everywhere(points),
        )
        for n in (2, 3, 4, 5)
    ]
    blocks = make_dual_blocks([STATE_KERNEL] * 4, conditions)
    slopes = [rng.normal(size=(len(OPERATORS), 7)) for _ in blocks]
    together = normal_matrices(blocks, slopes)
    for block, own, H in zip(blocks, slopes, together, strict=True):
        alone = np.tril(block.normal_matrix(own))
        np.testing.assert_allclose(np.tril(H), alone, rtol=1e-12, atol=1e-12)


def test_parts_of_a_gram_matrix_give_what_the_whole_gives():
    """Of two states in two equations, at points that follow one another or do not."""
    rng, n_points, starts = np.random.RandomState(0), 70, (0, 45, 75)
    grams = []
    for members in ([0, 1, 2], [3, 4]):
        A = rng.normal(size=(len(members) * n_points, 9))
        whole = (A @ A.T).reshape(len(members), n_points, len(members), n_points)
        pairs = [(q, r) for q in range(len(members)) for r in range(q + 1)]
        parts = {(q, r): whole[q, :, r] for q, r in pairs}
        grams.append((np.array(members), whole, parts))
    slopes = rng.normal(size=(5, starts[-1]))
    slopes[1:3, : starts[1]] = 0.0
    places = [slice(20, 65), rng.permutation(n_points)[:30]]
    rows = [slice(*pair) for pair in itertools.pairwise(starts)]
    for i, left in enumerate(zip(rows, places, strict=True)):
        for right in list(zip(rows, places, strict=True))[i:]:
            shape = [own[0].stop - own[0].start for own in (left, right)]
            found = {"whole": np.full(shape, np.nan), "parts": np.full(shape, np.nan)}
            for s, (members, whole, parts) in enumerate(grams):
                own = StateGram(members, whole)
                add_block(found["whole"], own, slopes, left, right, first=s == 0)
                own = StateGram(members, blocks=parts)
                add_block(found["parts"], own, slopes, left, right, first=s == 0)
            upper = np.triu if left is right else np.asarray
            both = [upper(H) for H in found.values()]
            np.testing.assert_allclose(*both, rtol=1e-12, atol=1e-12)
