"""Terms with errors, coefficient functions, sparse equations, projections."""

import pickle

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_equation import SAMPLE, burgers, make_equation, monomial, rbf_equation

from keql import OneStepKEqL, TwoStepKEqL
from keql.datasets import make_burgers, make_darcy, make_duffing
from keql.equation import highest_derivatives
from keql.equation._basis import regression_posterior
from keql.kernels import RBF, Constant, Polynomial, Restriction
from keql.metrics import relative_l2_error

QUADRATIC = Constant(4.0) * Polynomial(2, 1.0, 0.2, active_dims=(2, 3, 4))


def regression(noise, size=1.0, kernel=QUADRATIC, S=SAMPLE, seed=5):
    """An equation fitted to u_t = 0.5 u u_x + 0.01 u_xx, with known features."""
    _, _, u, u_x, u_xx, _ = S.T
    target = size * (-0.5 * u * u_x - 0.01 * u_xx)
    target = target + noise * np.random.RandomState(seed).normal(size=len(S))
    kernel = Constant(size**2) * kernel
    features = kernel.feature_map(S[:, :5])
    level = max(noise, 1e-6 * size)
    gram = features.T @ features + level**2 * np.eye(features.shape[1])
    weights = np.linalg.solve(gram, features.T @ target)
    equation = burgers(kernel=kernel, weights=weights, S=S)
    equation.posterior = regression_posterior(features, target, level, weights)
    return equation


MANY = np.random.RandomState(3).normal(size=(200, 6))


# --- terms --------------------------------------------------------------------------


def test_standard_errors_are_those_of_least_squares():
    equation = regression(1e-3, S=MANY)
    terms, std = equation.terms(return_std=True)
    assert list(terms) == list(std) and len(terms) == 10
    _, _, u, u_x, u_xx, _ = MANY.T
    columns = {
        "1": 1 + 0 * u, "u": u, "u_x": u_x, "u_xx": u_xx, "u^2": u**2,
        "u u_x": u * u_x, "u u_xx": u * u_xx, "u_x^2": u_x**2,
        "u_x u_xx": u_x * u_xx, "u_xx^2": u_xx**2,
    }  # fmt: skip
    A = np.column_stack([columns[name] for name in terms])
    expected = 1e-3 * np.sqrt(np.diag(np.linalg.inv(A.T @ A)))
    assert_allclose(list(std.values()), expected, rtol=1e-3)


def test_standard_errors_cover_the_truth():
    true = {"u u_x": 0.5, "u_xx": 0.01}
    scores = []
    for seed in range(30):
        terms, std = regression(1e-3, S=MANY, seed=seed).terms(return_std=True)
        scores += [(terms[name] - true.get(name, 0.0)) / std[name] for name in terms]
    assert 0.85 < np.sqrt(np.mean(np.square(scores))) < 1.15


def test_frame():
    frame = regression(1e-3, S=MANY).to_frame()
    assert list(frame.index[:2]) == ["u u_x", "u_xx"] and frame.index.name == "term"
    assert list(frame.columns) == [
        "coefficient",
        "standard_error",
        "contribution",
        "share",
    ]
    assert frame["share"].sum() == pytest.approx(1.0)
    assert frame["contribution"].is_monotonic_decreasing
    size = 0.5 * np.sqrt(np.mean((MANY[:, 2] * MANY[:, 3]) ** 2))
    assert frame.loc["u u_x", "contribution"] == pytest.approx(size, rel=1e-2)
    by_hand = burgers().to_frame()
    assert by_hand["standard_error"].isna().all()
    assert by_hand["coefficient"].to_dict() == burgers().terms()


# --- sparse equations ---------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_sparse_equation_has_the_true_terms(size, noise):
    equation = regression(noise * size, size, S=MANY)
    sparse = equation.sparse()
    terms = sparse.terms()
    assert terms == {
        "u u_x": pytest.approx(0.5 * size, rel=1e-3),
        "u_xx": pytest.approx(0.01 * size, rel=1e-2),
    }
    # The coefficients are those of a regression on these terms alone.
    u, u_x, u_xx = MANY[:, 2:5].T
    A = np.column_stack([u * u_x, u_xx])
    target = size * (A @ [-0.5, -0.01])
    target += noise * size * np.random.RandomState(5).normal(size=200)
    expected = np.linalg.lstsq(A, target, rcond=None)[0]
    assert_allclose(list(terms.values()), -expected, rtol=1e-6)
    assert len(equation.terms()) == 10  # unchanged


def test_sparse_equation_is_an_equation():
    equation = regression(1e-3, S=MANY)
    sparse = equation.sparse()
    terms = sparse.terms()
    _, _, u, u_x, u_xx, u_t = SAMPLE.T
    P = -terms["u u_x"] * u * u_x - terms["u_xx"] * u_xx
    assert_allclose(sparse.unknown_part(SAMPLE), P, rtol=1e-7, atol=1e-9)
    assert_allclose(sparse(SAMPLE), P + u_t, rtol=1e-7, atol=1e-9)
    gradient = sparse.gradient(SAMPLE)
    assert_allclose(gradient[:, 2], -terms["u u_x"] * u_x, rtol=1e-6, atol=1e-8)
    again = pickle.loads(pickle.dumps(sparse))
    assert repr(again) == repr(sparse)
    assert sparse.to_latex().count("u_{xx}") == 1
    _, std = sparse.terms(return_std=True)
    assert std["u u_x"] <= equation.terms(return_std=True)[1]["u u_x"] * 1.0001


def test_what_was_lost_is_stated():
    equation = regression(1e-3, S=MANY)
    assert equation.unexplained == 0.0 and equation.loss_ratio == 1.0
    assert "learned P" not in repr(equation)
    one = equation.sparse(n_terms=1)
    assert list(one.terms()) == ["u u_x"] and one.original is equation
    P, Q = equation.unknown_part(MANY), one.unknown_part(MANY)
    assert one.unexplained == pytest.approx(relative_l2_error(P, Q), rel=1e-9)
    path = {step.n_terms: step for step in equation.path()}
    assert one.loss_ratio == pytest.approx(path[1].loss_ratio, rel=1e-9)
    assert one.unexplained == pytest.approx(path[1].unexplained, rel=1e-9)
    assert f"{100 * one.unexplained:.2g} % from the learned P" in repr(one)
    assert f"{one.loss_ratio:.3g} times the loss" in repr(one)
    assert "times the loss" in one._repr_html_()
    # Of a sparse equation, what was lost is counted from the beginning.
    assert equation.sparse().sparse(n_terms=1).original is equation


def test_path():
    path = regression(1e-3, S=MANY).path()
    assert [step.n_terms for step in path] == list(range(10, 0, -1))
    assert path[0].loss_ratio == pytest.approx(1.0)
    ratios = [step.loss_ratio for step in path]
    assert ratios == sorted(ratios)
    for more, fewer in zip(path, path[1:], strict=False):
        assert set(fewer.terms) < set(more.terms)
    assert path[8].terms == ("u u_x", "u_xx")


def test_terms_to_keep():
    equation = regression(1e-3, S=MANY)
    assert len(equation.sparse(max_loss=1.0, tol=0.0).terms()) == 10
    # The spurious terms are below the last digit that is printed: 1e-3 of 0.5.
    assert len(equation.sparse(max_loss=1.0, tol=1e-2).terms()) == 2
    assert len(equation.sparse(max_loss=np.inf).terms()) == 1
    same = equation.sparse(n_terms=10)
    assert same.terms() == pytest.approx(equation.terms(), rel=1e-6, abs=1e-12)
    for n_terms in (0, 11, 2.5):
        with pytest.raises(ValueError, match="from 1 to 10"):
            equation.sparse(n_terms=n_terms)
    with pytest.raises(ValueError, match="max_loss=0.5 must be at least 1"):
        equation.sparse(max_loss=0.5, tol=0.0)


def test_what_sparse_needs():
    with pytest.raises(ValueError, match="no posterior"):
        burgers().sparse()
    with pytest.raises(ValueError, match="not polynomial.*project"):
        equation = rbf_equation()
        equation.posterior = regression(1e-3).posterior
        equation.sparse()
    kernel = Polynomial(2, 1.0, 0.7, offset=0.0, active_dims=(2, 3, 4))
    with pytest.raises(ValueError, match="not independent.*offset"):
        regression(1e-3, kernel=kernel).sparse()


# --- projections --------------------------------------------------------------------


def test_projection_is_least_squares():
    equation = regression(1e-3, S=MANY)
    line = equation.project(1)
    u, u_x, u_xx = MANY[:, 2:5].T
    A = np.column_stack([1 + 0 * u, u, u_x, u_xx])
    P = equation.unknown_part(MANY)
    expected = np.linalg.lstsq(A, P, rcond=None)[0]
    terms = line.terms()
    printed = [terms[k] for k in ("1", "u", "u_x", "u_xx")]
    assert_allclose(printed, -expected, rtol=1e-8)
    assert line.unexplained == pytest.approx(relative_l2_error(P, A @ expected))
    assert "times the loss" not in repr(line) and "learned P" in repr(line)
    exact = equation.project(3)
    assert exact.unexplained < 1e-8


def test_projection_carries_the_posterior_over():
    equation = regression(1e-3, S=MANY)
    same, std = equation.project(2).terms(return_std=True)
    terms, expected = equation.terms(return_std=True)
    assert same == pytest.approx(terms, rel=1e-6, abs=1e-9)
    assert std == pytest.approx(expected, rel=1e-6)
    # More functions than the data can tell apart have no posterior.
    many = regression(1e-3).project(4)
    assert many.posterior is None and many.to_frame()["standard_error"].isna().all()


def test_projection_on_functions():
    S = np.random.RandomState(4).uniform(-1, 1, size=(60, 6))
    kernel = RBF([1.0, 1.0, 1.5], active_dims=(2, 3, 4))
    equation = make_equation(
        ["u", "u_x", "u_xx"], "u_t", Constant(100.0) * kernel, np.zeros(60), S
    )
    target = np.sin(2 * S[:, 2]) + 0.3 * S[:, 3]
    features = equation.basis(S[:, :5])
    gram = features.T @ features + 1e-8 * np.eye(60)
    equation.weights = np.linalg.solve(gram, features.T @ target)
    equation.posterior = regression_posterior(features, target, 1e-4, equation.weights)
    functions = {
        "sin(2 u)": lambda u: anp.sin(2 * u),
        "u": lambda u: u,
        "u_x": lambda u_x: u_x,
        "exp(u_xx)": lambda u_xx: anp.exp(u_xx),
    }
    projected = equation.project(functions)
    assert projected.unexplained < 1e-3
    sparse = projected.sparse()
    assert sparse.terms() == {
        "sin(2 u)": pytest.approx(-1.0, abs=0.01),
        "u_x": pytest.approx(-0.3, abs=0.01),
    }
    assert str(sparse).startswith("u_t = -")
    assert sparse.equation_kernel.feature_names == ["sin(2 u)", "u_x"]
    cubic = equation.project(Polynomial(3))
    assert 1e-3 < cubic.unexplained < 0.2


def test_projection_needs_finitely_many_functions():
    with pytest.raises(ValueError, match="no finite list of functions"):
        burgers().project(RBF(1.0))


# --- formulas -----------------------------------------------------------------------


def free_form(P, scale=1.0):
    """An equation with a Gaussian kernel whose P has given values at its features."""
    S = np.random.RandomState(4).uniform(0.2, 2, size=(80, 6)) * scale
    lengths = [scale, scale]
    kernel = Constant(100.0) * RBF(lengths, active_dims=(2, 3))
    equation = make_equation(["u", "u_x", "u_xx"], "u_t", kernel, np.zeros(80), S)
    target, features = -P(S[:, 2] / scale, S[:, 3] / scale), equation.basis(S[:, :5])
    gram = features.T @ features + 1e-8 * np.eye(80)
    equation.weights = np.linalg.solve(gram, features.T @ target)
    equation.posterior = regression_posterior(features, target, 1e-4, equation.weights)
    return equation


@pytest.mark.parametrize(
    ("P", "terms"),
    [
        (lambda u, v: 1.3 * np.sin(2 * u) - 0.2 * v, {"sin(2 u)": 1.3, "u_x": -0.2}),
        (lambda u, v: u - 0.5 * u**3, {"u": 1.0, "u^3": -0.5}),
        (lambda u, v: u * v / (0.7 + u), {"u u_x/(0.7 + u)": 1.0}),
        (lambda u, v: u * np.log(u), {"u log(u)": 1.0}),
    ],
)
def test_formulas(P, terms):
    formula = free_form(P).formula()
    assert formula.unexplained < 0.01
    assert formula.terms() == pytest.approx(terms, abs=0.02)


def test_formulas_in_other_units():
    formula = free_form(lambda u, v: np.exp(-u) + v, 1e4).formula()
    assert formula.terms() == pytest.approx({"exp(-0.0001 u)": 1.0, "u_x": 1e-4}, 0.02)


def test_no_formula():
    noise = np.random.RandomState(0).standard_normal(80)
    equation = free_form(lambda u, v: noise)
    assert equation.formula(max_terms=2).unexplained > 0.1
    assert len(equation.formula(max_terms=2).terms()) <= 2


def test_formulas_take_polynomials_as_they_are():
    equation = burgers()
    assert equation.formula(tol=1e-6).terms() == pytest.approx(equation.terms())


# --- coefficient functions ----------------------------------------------------------


def test_coefficients_of_a_polynomial():
    # P = x^2 u_x + 3 t + 2 u u_x, printed on the right-hand side
    kernel = monomial(1, 1, 3) + monomial(0) + monomial(2, 3)
    equation = burgers(kernel=kernel, weights=[1.0, 3.0, 2.0])
    points = np.random.RandomState(0).uniform(size=(7, 2))
    t, x = points.T
    for term, expected in {
        "u_x": -(x**2), "1": -3 * t, "u u_x": -2 + 0 * t, "u^2": 0 * t, "u": 0 * t
    }.items():  # fmt: skip
        assert_allclose(equation.coefficient(term, points), expected, atol=1e-14)
    assert equation.coefficient_terms()[:3] in (
        ["1", "u u_x", "u_x"], ["u u_x", "1", "u_x"], ["1", "u_x", "u u_x"],
        ["u_x", "1", "u u_x"], ["u u_x", "u_x", "1"], ["u_x", "u u_x", "1"],
    )  # fmt: skip


def test_coefficients_add_up_to_the_equation():
    kernel = RBF(0.8, active_dims=(1,)) * Polynomial(2, 2.0, 0.3, active_dims=(2, 3))
    weights = np.random.RandomState(1).normal(size=12)
    equation = burgers(kernel=kernel, weights=weights)
    terms = equation.coefficient_terms()
    assert set(terms) == {"1", "u", "u_x", "u^2", "u u_x", "u_x^2"}
    t, x, u, u_x = SAMPLE[:, :4].T
    factors = {"1": 1, "u": u, "u_x": u_x, "u^2": u**2, "u u_x": u * u_x}
    factors["u_x^2"] = u_x**2
    points = SAMPLE[:, :2]
    parts = {k: equation.coefficient(k, points) * factors[k] for k in terms}
    P = equation.unknown_part(SAMPLE)
    assert_allclose(sum(parts.values()), -P, atol=1e-9 * np.abs(P).max())
    sizes = [np.mean(np.square(parts[k])) for k in terms]
    assert sizes == sorted(sizes, reverse=True)


def test_std_of_coefficients():
    equation = regression(1e-3, S=MANY)
    points = np.zeros((3, 2))
    values, std = equation.coefficient("u u_x", points, return_std=True)
    terms, expected = equation.terms(return_std=True)
    assert_allclose(values, terms["u u_x"])
    assert_allclose(std, expected["u u_x"])


def test_wrong_coefficients():
    points = np.zeros((3, 2))
    with pytest.raises(ValueError, match="not polynomial in the operators.*project"):
        rbf_equation().coefficient("u", points)
    with pytest.raises(ValueError, match="not polynomial in the operators"):
        rbf_equation().coefficient_terms()
    for term in ("u^3", "x u"):
        with pytest.raises(ValueError, match="at most 2 of the operators u, u_x, u_xx"):
            burgers().coefficient(term, points)
    with pytest.raises(ValueError, match="does not parse.*u_t'"):
        burgers().coefficient("u_t", points)
    with pytest.raises(ValueError, match="points has 3 column.*t, x"):
        burgers().coefficient("u", np.zeros((4, 3)))


# --- fits ---------------------------------------------------------------------------


@pytest.mark.slow
def test_burgers_from_its_boundary():
    data = make_burgers(
        theta=0.5,
        nu=0.01,
        initial_condition="published",
        layout="boundary",
        collocation_shape=(26, 26),
    )
    settings = {
        **data.problem,
        "state_kernel": data.kernels["state_kernel"],
        "observation_noise": 1e-7,
        "equation_noise": 1e-5,
        "solver": "dual",
    }
    kernel = data.kernels["equation_kernel"]
    model = OneStepKEqL(**settings, equation_kernel=kernel).fit(data.X, data.y)
    sparse = model.equation_.sparse()
    assert sparse.terms() == {
        "u_xx": pytest.approx(0.01, rel=0.01),
        "u u_x": pytest.approx(0.5, rel=0.02),
    }
    # Fitted again with these terms, the state is better as well.
    again = OneStepKEqL(**settings, equation_kernel=sparse.equation_kernel)
    again.fit(data.X, data.y)
    first, second = (
        relative_l2_error(data.y_test, m.predict(data.X_test)) for m in (model, again)
    )
    assert set(again.equation_.terms()) == {"u_xx", "u u_x"}
    assert second < 0.5 * first
    # The quadratic approximation knew the loss of the new fit, nearly.
    ratio = again.loss_curve_[-1] / model.loss_curve_[-1]
    assert sparse.loss_ratio == pytest.approx(ratio, rel=0.25)


def test_duffing():
    data = make_duffing()
    model = OneStepKEqL(
        **data.problem,
        observation_noise=1e-4,
        equation_noise=1e-3,
        state_kernel=data.kernels["state_kernel"],
        equation_kernel=Polynomial(3),
    ).fit(data.X, data.y)
    true = {"u^3": -3.0, "u": 3.0, "u_t": -0.2}
    assert model.equation_.sparse().terms() == pytest.approx(true, rel=1e-4)
    assert str(model.equation_.sparse()) == "u_tt = f - 3.00 u^3 + 3.00 u - 0.200 u_t"


@pytest.mark.slow
def test_darcy_coefficients():
    data = make_darcy(20, 8, random_state=0)
    settings = {**data.problem, **data.kernels, "n_inducing": 400}
    settings.update(observation_noise=1e-6, equation_noise=1e-3, random_state=0)
    equation = OneStepKEqL(**settings, n_restarts=0).fit(data.X, data.y).equation_
    axis = np.linspace(0, 1, 30)
    points = np.column_stack([x.ravel() for x in np.meshgrid(axis, axis)])
    x1, x2 = points.T
    inner = np.cos(x1) + np.cos(x2)
    a = np.exp(np.sin(inner))
    true = {
        "u_x1x1": a,
        "u_x2x2": a,
        "u_x1": -a * np.cos(inner) * np.sin(x1),
        "u_x2": -a * np.cos(inner) * np.sin(x2),
    }
    for term, values in true.items():
        learned, std = equation.coefficient(term, points, return_std=True)
        assert relative_l2_error(values, learned) < 0.02
        assert 0.1 < np.sqrt(np.mean(((learned - values) / std) ** 2)) < 10
    assert set(equation.coefficient_terms()[:4]) == set(true)


def test_two_step_posterior():
    t = np.linspace(0, 6, 60)[:, None]
    model = TwoStepKEqL(
        operators=("u", "u_t"),
        known_part="u_tt",
        variables=("t",),
        equation_kernel=Polynomial(2),
        equation_noise=1e-4,
    ).fit(t, np.exp(-0.2 * t.ravel()) * np.sin(2 * t.ravel()))
    equation = model.equation_
    features = equation.basis(equation.training_features)
    precision = np.eye(6) + features.T @ features / 1e-8
    L = equation.posterior.factor
    # Errors of the states, which are small here, make all weights less certain.
    added = np.linalg.inv(L @ L.T) - np.linalg.inv(precision)
    assert np.linalg.eigvalsh(added).min() > -1e-9 * np.trace(added)
    assert set(equation.sparse().terms()) == {"u", "u_t"}


@pytest.mark.parametrize(
    "powers, expected",
    [([(1, 0, 0), (0, 1, 0)], [2, 0]), ([(1, 0, 1)], [0, 2]), ([(2, 0, 0)], [0, 0])],
)
def test_highest_derivatives_are_those_of_terms(powers, expected):
    """Of u, u_xx and u_yy, and of coordinates and a known quantity none."""
    X = np.random.default_rng(0).uniform(size=(20, 3))
    exponents = [(0, 0, 0, 0, *each) for each in powers]
    model = TwoStepKEqL(
        operators=("u", "u_xx", "u_yy"),
        known_part="u_t",
        variables=("t", "x", "y"),
        inputs={"q": lambda X: X[:, 0]},
        equation_kernel=Restriction(Polynomial(2), exponents),
    )
    learned = model._learn_in_two_steps(X, np.prod(X, axis=1), None)
    assert highest_derivatives(learned.equation, [1, 2]) == expected
