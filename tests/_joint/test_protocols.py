"""All problems, linear models and states keep the promises of the protocols.

Each case is a problem in whatever unknowns it has. It says how an iterate is written as
one vector x, and what the rows are of which its loss is half the sum of squares; those
of a linear problem are affine in x, so that their differences give a dense
least-squares problem. The other oracle is the Gaussian distribution of the data, from
the kernels and the plain formulas. A new kind of problem is another function in CASES.
"""

import pickle
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pytest
from known_equations import make_equation
from scipy.linalg import block_diag, cho_factor, cho_solve
from scipy.stats import multivariate_normal, norm
from test_primal import in_the_primal
from test_problems import LINEAR_PART, OPERATORS, STATE_KERNEL, make_case

from keql._evolution.boundary.prior import BoundaryPrior
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import linear_response
from keql._evolution.problem import EvolutionIterate, EvolutionProblem
from keql._joint.problem import Conditions
from keql._numerics.subsets import SubsetEvidence, TermOdds
from keql._observations.data import FunctionData, Observations
from keql._observations.imposed import Imposed
from keql._solving.problem import make_problem
from keql.equation import GivenEquation, LearnedModel
from keql.kernels import Constant, Matern, Polynomial
from keql.operators import gram, parse_operator

IMPOSED = 2.0 * OPERATORS[2] - 0.5 * OPERATORS[0]
T = np.linspace(-0.5, 3.5, 25)[:, None]
DISPERSION = 2.5


@dataclass
class Case:
    """A problem and its oracles.

    `flatten` and `iterate_of` go between iterates and vectors x, `rows` gives those
    of data, then of priors. `observed` has, for each function, the places of its
    observations in these rows, and `scales` by what each of them was multiplied; the
    weights of P are the last `n_weights` of x. `data` is the vector of the data,
    `covariance` theirs, and `cross` that of them and of an operator of a state at
    points, with the prior variances of this. `evidence_shift` is what a model leaves
    out of its evidence because it depends on the data alone.
    """

    problem: object
    start: object
    flatten: object
    iterate_of: object
    rows: object
    observed: list
    scales: np.ndarray
    n_weights: int
    data: np.ndarray = None
    covariance: np.ndarray = None
    cross: object = None
    points: np.ndarray = field(default_factory=lambda: T)
    variables: tuple = ("t",)
    is_damped: bool = True
    evidence_shift: float = 0.0

    @property
    def dispersion(self):
        """By which all variances are multiplied."""
        return getattr(self.problem, "dispersion", 1.0)

    def dense(self):
        """Rows at zero, and their derivatives; exact where these are affine."""
        zero = np.zeros(len(self.flatten(self.start)))
        at_zero = self.rows(self.iterate_of(zero))
        units = np.eye(len(zero))
        J = [self.rows(self.iterate_of(unit)) - at_zero for unit in units]
        return at_zero, np.column_stack(J)


def joint_case(problem, start, roots):
    """Of a JointProblem, with matrices that give states coefficients of unit prior."""
    blocks, w = problem.blocks, start.weights
    ends = np.cumsum([len(root) for root in roots])

    def flatten(iterate):
        pairs = zip(roots, iterate.coefficients, strict=True)
        states = [np.linalg.solve(root, c) for root, c in pairs]
        return np.concatenate([*states, iterate.weights])

    def iterate_of(x):
        *states, weights = np.split(x, ends)
        pairs = zip(roots, states, strict=True)
        return problem.iterate([root @ z for root, z in pairs], weights)

    def rows(iterate):
        residuals = np.concatenate(problem.evaluate(iterate).residuals)
        x = flatten(iterate)
        prior = np.r_[np.full(ends[-1], problem.penalty**0.5), np.ones(len(w))] * x
        return np.concatenate(
            [np.sqrt(np.concatenate(problem.precisions)) * residuals, prior]
        )

    starts = np.cumsum([0, *(len(p) for p in problem.precisions)])
    observed = [
        start + np.arange(len(block.values))
        for start, block in zip(starts, blocks, strict=False)
    ]
    scales = np.sqrt(np.concatenate(problem.precisions))
    return Case(problem, start, flatten, iterate_of, rows, observed, scales, len(w))


def with_gaussian(case, functionals, psi):
    """The case with the distribution of its data, for linear functionals of states.

    `functionals` are those of each function, and `psi` has the features of P of all
    data in their order.
    """
    problem = case.problem
    grams = [gram(STATE_KERNEL, own) / problem.penalty for own in functionals]
    noise = np.diag(1 / np.concatenate(problem.precisions))
    covariance = problem.dispersion * (block_diag(*grams) + psi @ psi.T + noise)
    ends = np.cumsum([len(G) for G in grams])

    def cross(m, points, operator):
        query = [(points, operator)]
        own = gram(STATE_KERNEL, query, functionals[m])
        rows = np.zeros((len(points), ends[-1]))
        rows[:, ends[m] - own.shape[1] : ends[m]] = own
        factor = problem.dispersion / problem.penalty
        return factor * rows, factor * np.diag(gram(STATE_KERNEL, query))

    parts = [np.r_[block.values, block.forcing] for block in problem.blocks]
    data = np.concatenate(parts)
    return replace(case, data=data, covariance=covariance, cross=cross)


def roots_of(case):
    return [np.linalg.inv(np.linalg.cholesky(G)).T for G in case.grams]


def learner(form, equation):
    """States and equation, in either form; linear if P depends on time alone."""
    pieces = make_case(equation)
    if form == "dual":
        case = joint_case(pieces.problem, pieces.iterate, roots_of(pieces))
    else:
        problem, iterate = in_the_primal(pieces)
        roots = [np.eye(block.n_unknowns) for block in problem.blocks]
        case = joint_case(problem, iterate, roots)
    problem = case.problem
    problem.dispersion = DISPERSION
    if equation != "time":
        return case
    functionals = [
        [(data.points, OPERATORS[0]), (points, IMPOSED)]
        for data, points in zip(pieces.functions, pieces.points, strict=True)
    ]
    psi = [
        [
            np.zeros((len(data.values), case.n_weights)),
            problem.basis(with_state(points)),
        ]
        for data, points in zip(pieces.functions, pieces.points, strict=True)
    ]
    return with_gaussian(case, functionals, np.vstack(sum(psi, [])))


def with_state(points):
    """Features of P at points, of a state that is zero."""
    return np.column_stack([points, np.zeros((len(points), 2))])


def solver(is_linear):
    """A given equation with values and slopes as data: no weights are free."""
    rng = np.random.RandomState(0)
    points = np.linspace(0.1, 2.9, 7)[:, None]
    observed = [
        (np.array([[0.0], [3.0]]), OPERATORS[0]),
        (np.array([[0.0], [1.3], [2.0]]), OPERATORS[1]),
    ]
    values, forcing = rng.normal(size=5), rng.normal(size=7)
    rows = Imposed.everywhere(points)
    conditions = Conditions(
        observed, values, np.ones(5), points, OPERATORS, forcing, rows
    )

    def damped(u, u_t, u_tt):
        return u_tt + 0.5 * u * u_t + u**3

    equation = GivenEquation(LINEAR_PART if is_linear else damped, ("t",))
    conditions = replace(conditions, operators=equation.operators)
    problem = make_problem(STATE_KERNEL, equation, conditions)
    precisions = rng.uniform(0.5, 5.0, size=12)
    problem = replace(problem, precisions=[precisions])
    (block,) = problem.blocks
    root = np.linalg.cholesky(gram(STATE_KERNEL, block.observed + block.imposed))
    start = problem.iterate([0.1 * rng.normal(size=len(root))], np.empty(0))
    case = joint_case(problem, start, [np.linalg.inv(root).T])
    if not is_linear:
        return case
    functionals = [[*observed, (points, IMPOSED)]]
    return with_gaussian(case, functionals, np.zeros((12, 0)))


def evolution():
    """Exact states of u_t = 0.1 u_xx + w_1 + w_2 t, which is linear in all unknowns."""
    rng = np.random.RandomState(0)
    X = np.vstack([[0.0, 0.0], [1.0, 2.0], rng.uniform(0, [1, 2], size=(10, 2))])
    equation = make_equation(
        ("u",),
        {"u_t": 1.0, "u_xx": -0.1},
        Polynomial(1, 1.0, 0.0, active_dims=(0,)),
        [0.0, 0.0],
    )
    u = parse_operator("u", ("t", "x"))
    values, weights = rng.normal(size=12), rng.uniform(0.5, 2.0, 12)
    data = FunctionData(X, values, weights, np.zeros(12, dtype=int), [u])
    observations, noise = Observations((None,), [data]), np.array([0.2])
    learned = LearnedModel(
        observations, ("t", "x"), None, None, noise, [None], (equation,), np.zeros(1)
    )
    grid = EvolutionGrid(np.zeros(2), np.array([1.0, 2.0]), 0, n_steps=3, n_along=6)
    observed = (grid.interpolation(X, u),)
    kernel = Constant(1.5, "fixed") * Matern([0.4, 0.8], "fixed", nu=1.5)
    prior = BoundaryPrior(kernel, 0.2, 3.0, free_noise=False, free_scale=False)
    problem = EvolutionProblem(learned, grid, observed, (prior,), ((None,),))
    response = linear_response(grid, equation, np.zeros(grid.points[..., 0].size))
    flat = response.reshape(-1, response.shape[-1])[:, 1:]
    root = np.linalg.cholesky(kernel(grid.boundary))

    def iterate_of(x):
        weights, boundary = 3.0 * x[-2:], root @ x[:-2]
        new = copy(equation)
        new.weights = weights
        return EvolutionIterate((new,), [flat @ np.r_[weights, boundary]], [boundary])

    def flatten(iterate):
        weights = iterate.equation.weights / 3.0
        return np.r_[np.linalg.solve(root, iterate.boundary[0]), weights]

    scales = np.sqrt(data.weights) / 0.2

    def rows(iterate):
        residuals = problem.evaluate(iterate).residuals
        return np.r_[scales * residuals, flatten(iterate)]

    spread = block_diag(9.0 * np.eye(2), kernel(grid.boundary))
    A = observed[0] @ flat

    def cross(m, points, operator):
        rows = grid.interpolation(points, operator) @ flat
        return rows @ spread @ A.T, np.einsum("ij,jk,ik->i", rows, spread, rows)

    return Case(
        problem,
        iterate_of(0.3 * rng.normal(size=len(root) + 2)),
        flatten,
        iterate_of,
        rows,
        [np.arange(12)],
        scales,
        2,
        data=data.values,
        covariance=A @ spread @ A.T + np.diag(1 / scales**2),
        cross=cross,
        points=rng.uniform(0, [1, 2], size=(15, 2)),
        variables=("t", "x"),
        is_damped=False,
        evidence_shift=12 * np.log(problem.sizes[0]),
    )


CASES = {
    "dual": lambda: learner("dual", "time"),
    "evolution": evolution,
    "primal": lambda: learner("primal", "time"),
    "solver": lambda: solver(is_linear=True),
    "nonlinear dual": lambda: learner("dual", "polynomial"),
    "nonlinear primal": lambda: learner("primal", "polynomial"),
    "nonlinear solver": lambda: solver(is_linear=False),
}
LINEAR = [name for name in CASES if "nonlinear" not in name]


@cache
def case_of(name):
    return CASES[name]()


def solved(case):
    """A linear problem, linearised at its solution."""
    problem = case.problem
    solution, _ = problem.linearise(problem.evaluate(case.start)).step(0.0)
    return problem.linearise(problem.evaluate(solution))


# --- problems and steps ------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_loss_is_half_the_sum_of_squares(name):
    case = case_of(name)
    evaluation = case.problem.evaluate(case.start)
    assert evaluation.loss == pytest.approx(0.5 * np.sum(case.rows(case.start) ** 2))
    assert evaluation.iterate is case.start
    back = case.iterate_of(case.flatten(case.start))
    assert case.problem.evaluate(back).loss == pytest.approx(evaluation.loss)


@pytest.mark.parametrize("name", CASES)
def test_a_short_step_lowers_the_loss_as_predicted(name):
    """A highly damped step is one down the gradient of the loss."""
    case = case_of(name)
    problem = case.problem
    model = problem.linearise(problem.evaluate(case.start))
    x = case.flatten(case.start)
    if not case.is_damped:
        with pytest.raises(ValueError, match="not damped"):
            model.step(1e6)
        return
    new, decrease = model.step(1e6)
    step = case.flatten(new) - x

    def loss(fraction):
        return problem.evaluate(case.iterate_of(x + fraction * step)).loss

    slope = (loss(1e-2) - loss(-1e-2)) / 2e-2
    assert decrease > 0
    assert -slope == pytest.approx(decrease, rel=1e-2)
    # ... and a longer one lowers a sum of squares by what its linear model says.
    new, decrease = model.step(1.0)
    step = case.flatten(new) - x
    moved = [case.rows(case.iterate_of(x + h * step)) for h in (1e-5, -1e-5)]
    along = (moved[0] - moved[1]) / 2e-5
    at_start = case.rows(case.start)
    expected = 0.5 * np.sum(at_start**2) - 0.5 * np.sum((at_start + along) ** 2)
    assert decrease == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("damping", [0.0, 0.3, 1e3])
def test_a_step_of_a_linear_problem_solves_least_squares(name, damping):
    case = case_of(name)
    if damping and not case.is_damped:
        return  # its refusal is tested above
    problem, x = case.problem, case.flatten(case.start)
    new, decrease = problem.linearise(problem.evaluate(case.start)).step(damping)
    at_zero, J = case.dense()
    A = np.vstack([J, damping**0.5 * np.eye(len(x))])
    right = np.r_[-at_zero, damping**0.5 * x]
    expected = np.linalg.lstsq(A, right, rcond=None)[0]
    size = np.abs(expected).max()
    np.testing.assert_allclose(case.flatten(new), expected, atol=1e-7 * size)
    fallen = problem.evaluate(case.start).loss - problem.evaluate(new).loss
    assert decrease == pytest.approx(fallen, rel=1e-8)


@pytest.mark.parametrize("name", LINEAR)
def test_a_step_to_given_weights_finds_the_best_states_for_them(name):
    case = case_of(name)
    problem, x = case.problem, case.flatten(case.start)
    model = problem.linearise(problem.evaluate(case.start))
    if not hasattr(model, "step_to"):
        return  # of joint problems only
    n_states = len(x) - case.n_weights
    weights = 1.5 * case.start.weights - 0.1
    at_zero, J = case.dense()
    right = -at_zero - J[:, n_states:] @ weights
    expected = np.linalg.lstsq(J[:, :n_states], right, rcond=None)[0]
    found = case.flatten(model.step_to(weights))
    np.testing.assert_allclose(found[n_states:], weights, rtol=1e-12)
    size = np.abs(expected).max()
    np.testing.assert_allclose(found[:n_states], expected, atol=1e-7 * size)


# --- posteriors --------------------------------------------------------------------


@pytest.mark.parametrize("name", LINEAR)
def test_leave_one_out_is_fitting_without(name):
    case = case_of(name)
    at_zero, J = case.dense()
    errors = solved(case).leave_one_out()
    assert len(errors) == len(case.observed)
    for found, places in zip(errors, case.observed, strict=True):
        for error, i in zip(found, places, strict=True):
            others = np.arange(len(J)) != i
            x = np.linalg.lstsq(J[others], -at_zero[others], rcond=None)[0]
            expected = (at_zero[i] + J[i] @ x) / case.scales[i]
            assert error == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", LINEAR)
def test_left_out_density_is_that_of_the_conditional_gaussian(name):
    case, model = case_of(name), solved(case_of(name))
    if not hasattr(model, "left_out_density"):
        return  # of joint problems only
    C, data, logs, squares = case.covariance, case.data, [], []
    for i in np.concatenate(case.observed):
        others = np.arange(len(data)) != i
        gain = np.linalg.solve(C[np.ix_(others, others)], C[others, i])
        variance = C[i, i] - gain @ C[others, i]
        logs.append(norm(gain @ data[others], variance**0.5).logpdf(data[i]))
        squares.append((data[i] - gain @ data[others]) ** 2 / variance)
    expected = np.mean(logs) + 0.5 * np.log(2 * np.pi)
    assert model.left_out_density() == pytest.approx(expected, rel=1e-6)
    assert model.left_out_dispersion() == pytest.approx(np.mean(squares), rel=1e-6)


@pytest.mark.parametrize("name", LINEAR)
def test_posterior_of_the_weights_is_the_dense_one(name):
    case = case_of(name)
    at_zero, J = case.dense()
    posterior = solved(case).posterior_weights()
    p, covariance = case.n_weights, case.dispersion * np.linalg.inv(J.T @ J)
    if not case.is_damped:  # the unit of the weights is that of their prior
        covariance = 9.0 * covariance
    x = np.linalg.lstsq(J, -at_zero, rcond=None)[0]
    own = slice(len(x) - p, None)
    weights = x[own] if case.is_damped else 3.0 * x[own]
    np.testing.assert_allclose(posterior.weights, weights, rtol=1e-6, atol=1e-9)
    A = np.random.RandomState(1).normal(size=(4, p))
    expected = np.sqrt(np.einsum("ij,jk,ik->i", A, covariance[own, own], A))
    np.testing.assert_allclose(posterior.std(A), expected, rtol=1e-6)
    loss = 0.5 * np.sum((at_zero + J @ x) ** 2)
    assert posterior.loss == pytest.approx(loss / case.dispersion, rel=1e-8)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("operator", ["u", "u_t", "u_tt + 2 u"])
def test_states_are_the_conditional_gaussian(name, operator):
    case = case_of(name)
    operator = parse_operator(operator, case.variables)
    factor = cho_factor(case.covariance)
    states = solved(case).posterior_states()
    assert len(states) == len(case.observed)
    for m, state in enumerate(states):
        cross, prior = case.cross(m, case.points, operator)
        mean = cross @ cho_solve(factor, case.data)
        variance = prior - np.sum(cross * cho_solve(factor, cross.T).T, axis=1)
        sizes = np.abs(mean).max(), prior.max()
        values = state.evaluate(case.points, operator)
        np.testing.assert_allclose(values, mean, atol=1e-8 * sizes[0])
        for one in (state, pickle.loads(pickle.dumps(state))):
            found = one.variance(case.points, operator)
            np.testing.assert_allclose(found, variance, rtol=1e-6, atol=1e-9 * sizes[1])
            assert np.all(found >= 0)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("at_solution", [True, False])
def test_log_evidence_is_the_density_of_the_data(name, at_solution):
    case = case_of(name)
    model = case.problem.linearise(case.problem.evaluate(case.start))
    model = solved(case) if at_solution else model
    density = multivariate_normal(cov=case.covariance).logpdf(case.data)
    expected = density + 0.5 * len(case.data) * np.log(2 * np.pi)
    expected += case.evidence_shift
    assert model.log_evidence() == pytest.approx(expected, rel=1e-8)


def test_log_evidence_of_both_forms_agrees_where_problems_are_nonlinear():
    dual, primal = (case_of(f"nonlinear {form}") for form in ("dual", "primal"))
    models = [c.problem.linearise(c.problem.evaluate(c.start)) for c in (dual, primal)]
    dual, primal = (model.log_evidence() for model in models)
    assert primal == pytest.approx(dual, rel=1e-7)


@pytest.mark.parametrize("form", ["dual", "primal"])
def test_a_regression_for_the_weights_alone_has_the_evidence_of_the_whole(form):
    """Its loss at given weights is that of the best states for them."""
    case = case_of(f"nonlinear {form}")
    problem = case.problem.with_dispersion(1.0)
    model = problem.linearise(problem.evaluate(case.start))
    target, effects = model.whitened_weights()
    p = effects.shape[1]
    for seed in range(3):
        weights = np.random.default_rng(seed).standard_normal(p)
        dw = weights - model.evaluation.iterate.weights
        parts = model.undamped._replace(dw=dw)
        moved = model.moved(parts, problem.penalty, 1.0)
        loss = problem.loss(*moved) - 0.5 * weights @ weights
        residuals = target - effects @ weights
        assert 0.5 * residuals @ residuals == pytest.approx(loss, rel=1e-6)
    regression = SubsetEvidence(effects, target, np.eye(p), TermOdds(np.full(p, -1)))
    evidence = regression([*range(p)]) - model.half_log_determinant_of_states()
    assert evidence == pytest.approx(model.log_evidence(), rel=1e-6)
