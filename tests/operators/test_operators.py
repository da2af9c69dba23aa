"""Names of operators, Gram matrices of functionals, and functions made of them."""

from functools import partial

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from keql._numerics.linalg import cholesky
from keql.kernels import RBF, FunctionKernel, Matern, Polynomial, SystemKernel
from keql.operators import (
    DifferentialOperator,
    KernelExpansion,
    apply_operator,
    gram,
    gram_diagonal,
    gram_rows,
    parse_operator,
)

TX = ("t", "x")
RNG = np.random.RandomState(0)
X = RNG.uniform(-1, 1, size=(7, 2))
Z = RNG.uniform(-1, 1, size=(5, 2))


def op(name, variables=TX):
    """Operator of a name."""
    return parse_operator(name, variables)


# --- names ------------------------------------------------------------------------

# Name, variables, and the coefficient of each multi-index.
NAMES = [
    ("u", TX, {(0, 0): 1}),
    ("u_t", TX, {(1, 0): 1}),
    ("u_xx", TX, {(0, 2): 1}),
    ("u_tx", TX, {(1, 1): 1}),
    ("u_xt", TX, {(1, 1): 1}),
    ("u_xtxtt", TX, {(3, 2): 1}),
    ("u_x", ("x",), {(1,): 1}),
    ("u_x1x1", ("x1", "x2"), {(2, 0): 1}),
    ("u_x2x1x2", ("x1", "x2"), {(1, 2): 1}),
    ("u_x10x1", ("x1", "x10"), {(1, 1): 1}),
    ("u_timetime", ("time", "pos_x"), {(2, 0): 1}),
    ("u_timepos_x", ("time", "pos_x"), {(1, 1): 1}),
    ("u_x", ("x", "xx"), {(1, 0): 1}),
    ("u_xx + u_t", TX, {(0, 2): 1, (1, 0): 1}),
    ("u_xx+u_t", TX, {(0, 2): 1, (1, 0): 1}),
    ("2 u_xx - 0.5*u", TX, {(0, 2): 2, (0, 0): -0.5}),
    ("2u_xx - .5 * u + 1.e-3 u_t", TX, {(0, 2): 2, (0, 0): -0.5, (1, 0): 1e-3}),
    ("  - u_t  + 3E2u_x ", TX, {(1, 0): -1, (0, 1): 300}),
    ("+u", TX, {(0, 0): 1}),
    ("u_tx + u_xt", TX, {(1, 1): 2}),
    ("u_t + u - u_t", TX, {(0, 0): 1}),
    ("laplacian(u)", TX, {(0, 2): 1}),
    ("laplacian(u)", ("x", "y"), {(2, 0): 1, (0, 2): 1}),
    ("laplacian(u)", ("y", "t", "x"), {(2, 0, 0): 1, (0, 0, 2): 1}),
    ("u_t - 0.1 laplacian(u)", ("t", "y"), {(1, 0): 1, (0, 2): -0.1}),
    ("3*laplacian(u) - u_yy", ("x", "y"), {(2, 0): 3, (0, 2): 2}),
    ((0, 2), TX, {(0, 2): 1}),
    ((np.int64(1), np.int64(1)), TX, {(1, 1): 1}),
    ((0, 1), ("x", "xx"), {(0, 1): 1}),
]


@pytest.mark.parametrize(("name", "variables", "expected"), NAMES)
def test_names(name, variables, expected):
    operator = parse_operator(name, variables)
    assert dict(operator.terms) == expected
    assert len(operator.terms) == len(expected)
    assert operator.order == max(sum(a) for a in expected)


# A name that does not work in the variables given, and what the message says of it.
WRONG_NAMES = [
    ("u_y", TX, ["'u_y'", "unknown variable", "'y'", "t, x"]),
    ("u_x2", TX, ["'u_x2'", "unknown variable", "'x2'"]),
    ("u_", TX, ["'u_'", "unknown variable"]),
    ("u_x_t", TX, ["'u_x_t'", "unknown variable"]),
    ("v_xx", TX, ["'v_xx'", "function 'v'", "the state is called u"]),
    ("u + 2 vel", TX, ["'u + 2 vel'", "function 'vel'"]),
    ("laplacian(v)", TX, ["'laplacian(v)'", "function 'v'"]),
    ("", TX, ["empty", "'u_x'"]),
    ("  ", TX, ["'  '", "does not parse"]),
    ("u_x u_t", TX, ["'u_x u_t'", "does not parse at 'u_t'", "multiples"]),
    ("u**2", TX, ["'u**2'", "does not parse at '**2'"]),
    ("u_x +", TX, ["'u_x +'", "does not parse at '+'"]),
    ("u_t", ("time (s)",), ["not made of the variables time (s)", "variables=('t',)"]),
    ("v_t", TX, ["the state is called u; states=('v',)"]),
    ("2", TX, ["'2'", "does not parse"]),
    ("u_x - - u", TX, ["does not parse at '- - u'"]),
    ("u(x)", TX, ["does not parse at '(x)'"]),
    ("u_x - u_x", TX, ["'u_x - u_x'", "is zero"]),
    ("0 u", TX, ["'0 u'", "is zero"]),
    ("u + laplacian(u)", ("t",), ["'u + laplacian(u)'", "variable other than t"]),
    ("u_xx", ("x", "xx"), ["'u_xx'", "2 readings", "x, xx", "(0, 1)"]),
    ((1,), TX, ["(1,)", "one order >= 0", "t, x"]),
    ((1, 0, 0), TX, ["(1, 0, 0)", "one order >= 0", "t, x"]),
    ((1, -1), TX, ["(1, -1)", "one order >= 0"]),
    ((0.5, 1), TX, ["(0.5, 1)", "must be a name", "multi-index"]),
    (("u", "u_x"), TX, ["('u', 'u_x')", "must be a name"]),
    (2, TX, ["operator 2 ", "must be a name"]),
    (op("u_x"), ("x",), ["'u_x'", "(0, 1)", "one order >= 0"]),
]


@pytest.mark.parametrize(("name", "variables", "words"), WRONG_NAMES)
def test_wrong_names(name, variables, words):
    with pytest.raises(ValueError, match="operator") as error:
        parse_operator(name, variables)
    assert [word for word in words if word not in str(error.value)] == []


def test_names_have_letters_of_any_alphabet():
    states, variables = ("θ", "größe"), ("τ", "х")
    assert parse_operator("2 θ_ττ", variables, states).parts == [("θ", (2, 0), 2.0)]
    assert parse_operator("laplacian(größe)", ("t", "х"), states).states == ("größe",)
    with pytest.raises(ValueError, match="does not parse at '2'"):
        parse_operator("2", variables, states)


def test_objects_of_other_coordinates_are_refused():
    """Orders go by position: u_x of (t, x) is u_t of (x, t)."""
    made = parse_operator("u_x", ("t", "x"))
    with pytest.raises(ValueError, match="made for other coordinates than x, t"):
        parse_operator(made, ("x", "t"))
    with pytest.raises(ValueError, match="'z' is not made of the variables t"):
        parse_operator(parse_operator("v_z", "z", "v"), ("t",), ("u", "v"))


def test_objects():
    operator = DifferentialOperator((((0, 2), 3.0),), "mine")
    assert parse_operator(operator, TX) is operator
    assert op("u_tx").same_as(op("u_xt"))
    assert op("u_tx").same_as(op((1, 1)))
    assert not op("u_tx").same_as(op("u_xx"))
    assert not op("u_x").same_as(op("2 u_x"))
    assert (op((0, 0)).name, op((1, 2)).name) == ("u", "u_txx")
    assert op((2, 1), ("x1", "x2")).name == "u_x1x1x2"


def test_arithmetic_reads_like_the_names():
    total = op("u_xx") + 2 * op("u_t") - 0.5 * op("u")
    assert dict(total.terms) == {(0, 2): 1, (1, 0): 2, (0, 0): -0.5}
    nested = op("u_x") - (op("u_x") - op("u"))
    assert nested.same_as(op("u"))
    assert dict((-3 * (op("u") + op("u_x"))).terms) == {(0, 0): -3, (0, 1): -3}
    for operator in [
        op("u_xx") + 2 * op("u_t"),
        op("u_xx") - op("u"),
        op("u") + 0.5 * op("laplacian(u)"),
    ]:
        assert op(operator.name).same_as(operator)
    assert (2 * (op("u") + op("u_x"))).name == "2 (u + u_x)"
    assert (op("u") - (op("u_t") - op("u_x"))).name == "u - (u_t - u_x)"
    with pytest.raises(ValueError, match="is zero"):
        op("u") - op("u")


# --- Gram matrices ----------------------------------------------------------------

FUNCTIONALS = [
    (X, op("u")),
    (X, op("u_xx")),
    (Z, op("u_t")),
    (Z, op("u - 2 u_tx")),
    (X, op("laplacian(u)")),
]


def skew_kernel():
    """A kernel that is not stationary."""
    return FunctionKernel(lambda x, y: anp.exp(0.5 * anp.sum(x * y, axis=-1)))


KERNELS = [RBF([0.7, 0.4]), Matern(0.9, nu=3.2), skew_kernel()]


def dense(kernel, rows, columns):
    """The Gram matrix by its definition, one block and one term at a time."""
    return np.block(
        [
            [
                sum(
                    p * q * kernel.derivative(points, others, a, b)
                    for a, p in left.terms
                    for b, q in right.terms
                )
                for others, right in columns
            ]
            for points, left in rows
        ]
    )


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_gram_by_its_definition(kernel):
    columns = [(Z, op("u_x")), (X[:3], op("u + u_t")), (X[:3], op("u"))]
    expected = dense(kernel, FUNCTIONALS, columns)
    G = gram(kernel, FUNCTIONALS, columns)
    assert_allclose(G, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
    symmetric = gram(kernel, FUNCTIONALS)
    expected = dense(kernel, FUNCTIONALS, FUNCTIONALS)
    tolerance = 1e-12 * np.abs(expected).max()
    assert_allclose(symmetric, expected, rtol=1e-12, atol=tolerance)
    assert_allclose(gram(kernel, FUNCTIONALS, FUNCTIONALS), symmetric, atol=tolerance)
    eigenvalues = np.linalg.eigvalsh(symmetric)
    assert eigenvalues[0] > -1e-12 * eigenvalues[-1]


def test_gram_does_not_depend_on_the_list():
    kernel = RBF([0.7, 0.4])
    G = gram(kernel, FUNCTIONALS)
    starts = np.cumsum([0, *(len(points) for points, _ in FUNCTIONALS)])
    order = [3, 0, 4, 2, 1]
    index = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in order])
    permuted = gram(kernel, [FUNCTIONALS[i] for i in order])
    assert_allclose(permuted, G[np.ix_(index, index)], rtol=1e-12, atol=1e-12)
    # Equal points in another array are as good as the same array.
    copied = [(points.copy(), operator) for points, operator in FUNCTIONALS]
    assert_allclose(gram(kernel, copied), G, rtol=1e-12, atol=1e-12)
    single = [(points[i : i + 1], o) for points, o in FUNCTIONALS for i in range(1)]
    assert_allclose(
        gram(kernel, single), G[np.ix_(starts[:-1], starts[:-1])], atol=1e-12
    )


def test_gram_is_linear_in_the_operators():
    kernel = RBF([0.7, 0.4])
    G = {
        name: gram(kernel, [(X, op(name))], [(Z, op("u_t"))])
        for name in ["u", "u_xx", "u - 3 u_xx"]
    }
    assert_allclose(G["u - 3 u_xx"], G["u"] - 3 * G["u_xx"], rtol=1e-12, atol=1e-12)


def test_gram_closed_form():
    # k = exp(-tau^2 / 2): with itself u' has the kernel (1 - tau^2) k, with u tau k.
    x, y = np.array([[0.0], [0.5], [2.0]]), np.array([[0.3], [-1.0]])
    tau = x - y.T
    k = np.exp(-(tau**2) / 2)
    u, u_x = op("u", ("x",)), op("u_x", ("x",))
    expected = np.block([[k, tau * k], [-tau * k, (1 - tau**2) * k]])
    G = gram(RBF(1.0), [(x, u), (x, u_x)], [(y, u), (y, u_x)])
    assert_allclose(G, expected, rtol=1e-14, atol=1e-15)


class CountingKernel(RBF):
    """An RBF kernel that writes down what it is asked for."""

    def derivatives(self, X, Y, pairs):
        self.log.append((len(X), len(Y), list(pairs)))
        return super().derivatives(X, Y, pairs)


def counting_kernel():
    """A kernel with an empty log."""
    kernel = CountingKernel(0.7)
    kernel.log = []
    return kernel


def test_each_block_is_computed_once():
    kernel = counting_kernel()
    names = ["u", "u_t", "u_x", "u_xx"]
    gram(kernel, [(X, op(name)) for name in names])
    ((n, m, pairs),) = kernel.log
    assert (n, m) == (7, 7)
    assert len(set(pairs)) == len(pairs) == 10  # of 16 blocks
    assert len({frozenset(pair) for pair in pairs}) == 10

    kernel = counting_kernel()
    gram(kernel, [(X, op("u")), (Z, op("u_x")), (Z, op("u_xx"))])
    counts = {(n, m): len(pairs) for n, m, pairs in kernel.log}
    assert counts == {(7, 7): 1, (5, 7): 2, (5, 5): 3}
    assert len(kernel.log) == 3

    # Sums that share terms share their derivatives as well.
    kernel = counting_kernel()
    gram(kernel, [(X, op("u + u_x")), (X, op("u - u_x"))], [(Z, op("u"))])
    ((_, _, pairs),) = kernel.log
    assert len(set(pairs)) == len(pairs) == 2


@pytest.mark.parametrize("name", ["u_xx", "u - u_xx"])
def test_too_rough_kernel(name):
    for call in (
        lambda kernel: gram(kernel, [(X, op(name))]),
        lambda kernel: gram(kernel, [(X, op("u"))], [(X, op(name))]),
        lambda kernel: gram(kernel, [(X, op("u")), (X, op(name))]),
        lambda kernel: gram_diagonal(kernel, X, op(name)),
    ):
        with pytest.raises(ValueError, match="order 2") as error:
            call(Matern(1.0, nu=1.5))
        assert f"the operator {name!r}" in str(error.value)
        assert "nu=1.5" in str(error.value)
        assert "nu > 2" in str(error.value)
        call(Matern(1.0, nu=2.5))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_gram_diagonal(kernel):
    points = np.random.RandomState(1).uniform(-1, 1, size=(150, 2))
    operator = op("u_x - 2 u_t")
    whole = dense(kernel, [(points, operator)], [(points, operator)])
    diagonal = gram_diagonal(kernel, points, operator)
    assert_allclose(diagonal, np.diag(whole), rtol=1e-12)


# --- functions made of functionals --------------------------------------------------

COEFFICIENTS = np.random.RandomState(2).normal(size=sum(len(p) for p, _ in FUNCTIONALS))
QUERIES = np.random.RandomState(3).uniform(-1, 1, size=(11, 2))


@pytest.mark.parametrize("name", ["u", "u_x", "u_tt - u_x"])
def test_expansion_by_its_definition(name):
    kernel = RBF([0.7, 0.4])
    v = KernelExpansion(kernel, FUNCTIONALS, COEFFICIENTS)
    expected = dense(kernel, [(QUERIES, op(name))], FUNCTIONALS) @ COEFFICIENTS
    assert_allclose(v.evaluate(QUERIES, op(name)), expected, rtol=1e-11)


@pytest.mark.parametrize("name", ["u", "u_t", "u_xx", "3 u_tx - u"])
def test_expansion_differentiated_automatically(name):
    # v = sum_j c_j k(., x_j) + sum_j e_j d/dx_j k(., z_j), written out in autograd.
    c, e = COEFFICIENTS[:7], COEFFICIENTS[7:12]
    lengths = np.array([0.7, 0.4])

    def kernel(points, others):
        tau = (points[:, None, :] - others) / lengths
        return anp.exp(-0.5 * anp.sum(tau**2, axis=-1))

    def v(points):
        slope = (points[:, None, 1] - Z[:, 1]) / lengths[1] ** 2 * kernel(points, Z)
        return anp.dot(kernel(points, X), c) + anp.dot(slope, e)

    expansion = KernelExpansion(
        RBF(lengths), [(X, op("u")), (Z, op("u_x"))], COEFFICIENTS[:12]
    )
    expected = apply_operator(v, QUERIES, op(name))
    assert_allclose(expansion.evaluate(QUERIES, op(name)), expected, rtol=1e-11)


@pytest.mark.parametrize("name", ["u", "u_x", "u_t + 2 u_xx"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_variance_of_a_gaussian_process(kernel, name):
    noise = np.linspace(0.1, 0.3, len(COEFFICIENTS))
    data = dense(kernel, FUNCTIONALS, FUNCTIONALS) + np.diag(noise**2)
    v = KernelExpansion(kernel, FUNCTIONALS, COEFFICIENTS, cholesky(data))
    query = [(QUERIES, op(name))]
    cross = dense(kernel, query, FUNCTIONALS)
    prior = dense(kernel, query, query)
    expected = np.diag(prior - cross @ np.linalg.inv(data) @ cross.T)
    tolerance = 1e-10 * np.diag(prior).max()
    assert_allclose(v.variance(QUERIES, op(name)), expected, atol=tolerance)
    assert np.all(expected > 10 * tolerance)


def test_variance_vanishes_where_the_value_is_known():
    # Never below zero, where the difference of prior and gain has rounding errors.
    for seed in range(20):
        points = np.random.RandomState(seed).uniform(-1, 1, size=(7, 2))
        factor = cholesky(gram(RBF(0.3), [(points, op("u"))]))
        v = KernelExpansion(RBF(0.3), [(points, op("u"))], np.zeros(7), factor)
        variance = v.variance(points, op("u"))
        assert np.all(variance >= 0)
        assert np.all(variance < 1e-12)
        assert_allclose(v.variance(points + 100, op("u")), 1.0)


@pytest.mark.parametrize("entries", [1, 70, 2**21])
def test_blocks_do_not_matter_and_stay_small(entries, monkeypatch):
    kernel = counting_kernel()
    factor = cholesky(gram(kernel, FUNCTIONALS) + np.eye(len(COEFFICIENTS)))
    v = KernelExpansion(kernel, FUNCTIONALS, COEFFICIENTS, factor)
    points = np.random.RandomState(4).uniform(-1, 1, size=(23, 2))
    expected = v.evaluate(points, op("u_x")), v.variance(points, op("u_x"))
    monkeypatch.setattr(gram_rows, "__defaults__", (entries,))
    kernel.log.clear()
    values = v.evaluate(points, op("u_x"))
    rows = max(n for n, _, _ in kernel.log)
    assert rows == min(23, max(1, entries // len(COEFFICIENTS)))
    assert_allclose(values, expected[0], rtol=1e-13)
    assert_allclose(v.variance(points, op("u_x")), expected[1], rtol=1e-12)


def test_reproducing_property():
    # <v, delta_x L k> = L v(x): norms and values are one matrix.
    kernel = Matern([0.7, 0.4], nu=3.5)
    v = KernelExpansion(kernel, FUNCTIONALS, COEFFICIENTS)
    values = np.concatenate([v.evaluate(p, o) for p, o in FUNCTIONALS])
    assert_allclose(values, gram(kernel, FUNCTIONALS) @ COEFFICIENTS, rtol=1e-10)


def test_polynomial_state():
    # The functions of a polynomial kernel of degree 2 have no third derivative.
    kernel = Polynomial(2, scale=1.0, center=0.0)
    v = KernelExpansion(kernel, [(X, op("u"))], COEFFICIENTS[:7])
    assert_allclose(v.evaluate(QUERIES, op("u_xxx")), 0.0, atol=1e-14)
    u_tx = v.evaluate(QUERIES, op("u_tx"))
    assert_allclose(u_tx, 2 * (X[:, 0] * X[:, 1]) @ COEFFICIENTS[:7], rtol=1e-12)


# --- functions in autograd.numpy ------------------------------------------------------


def wave(points):
    """sin(3 t) exp(2 x) + t^3 x."""
    t, x = points[:, 0], points[:, 1]
    return anp.sin(3 * t) * anp.exp(2 * x) + t**3 * x


T, S = QUERIES.T
SINE, COSINE, E = np.sin(3 * T), np.cos(3 * T), np.exp(2 * S)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("u", SINE * E + T**3 * S),
        ("u_t", 3 * COSINE * E + 3 * T**2 * S),
        ("u_xx", 4 * SINE * E),
        ("u_tx", 6 * COSINE * E + 3 * T**2),
        ("u_tttt", 81 * SINE * E),
        ("u_tt - 2 u_x", -9 * SINE * E + 6 * T * S - 2 * (2 * SINE * E + T**3)),
        ("laplacian(u)", 4 * SINE * E),
    ],
)
def test_apply_operator(name, expected):
    values = apply_operator(wave, QUERIES, op(name))
    assert_allclose(values, expected, rtol=1e-12, atol=1e-12)


def test_apply_operator_to_functions_whose_derivatives_vanish():
    # Without a word of warning (warnings are errors here).
    def linear(points):
        return 2 * points[:, 0] + 1

    for name in ["u_x", "u_xx", "u_tt", "u_tx"]:
        assert_array_equal(apply_operator(linear, X, op(name)), np.zeros(7))
    assert_array_equal(apply_operator(linear, X, op("u_t")), np.full(7, 2.0))
    ones = apply_operator(lambda points: np.ones(len(points)), X, op("u - u_t"))
    assert_array_equal(ones, np.ones(7))
    assert_array_equal(apply_operator(linear, [[1, 2]], op("u")), [3.0])


@pytest.mark.parametrize("name", ["u", "u_t"])
def test_apply_operator_refuses_other_shapes(name):
    for function, shape in [
        (lambda points: points[:, :1], r"\(7, 1\)"),
        (lambda points: anp.sum(points), r"\(\)"),
    ]:
        with pytest.raises(ValueError, match=f"shape {shape}.*one value for each row"):
            apply_operator(function, X, op(name))


PAIR = ("u", "v_in")  # a name with an underscore


def test_operators_of_several_states():
    parse = partial(parse_operator, variables=TX, states=PAIR)
    assert parse("v_in_tx").parts == [("v_in", (1, 1), 1.0)]
    assert parse("laplacian(v_in)").parts == [("v_in", (0, 2), 1.0)]
    mixed = parse("v_in_t - 2 u")
    assert mixed.parts == [("u", (0, 0), -2.0), ("v_in", (1, 0), 1.0)]
    assert mixed.state is None
    assert parse("u_t").state == "u"
    assert not parse("u_t").same_as(parse("v_in_t"))
    assert (parse("v_in_t") - 2 * parse("u")).same_as(mixed)


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        ("w_t", ["'w_t'", "function 'w'", "the states are called u, v_in"]),
        ((1, 0), ["does not say which of the states u, v_in"]),
        (parse_operator("w", TX, ("w",)), ["'w'", "no state", "u, v_in"]),
        ("v_in_y", ["'v_in_y'", "unknown variable", "'y'"]),
    ],
)
def test_wrong_names_of_states(operator, words):
    with pytest.raises(ValueError, match="operator") as error:
        parse_operator(operator, TX, PAIR)
    assert [word for word in words if word not in str(error.value)] == []


def test_names_of_states_with_two_readings():
    with pytest.raises(ValueError, match="2 readings"):
        parse_operator("u_t_x", ("x", "t_x"), states=("u", "u_t"))


def test_states_of_a_system_are_independent():
    """The Gram matrix of sums of states is the sum of those of the states."""
    kernels = {"u": RBF(0.5), "v_in": 4.0 * RBF((0.3, 2.0))}
    X = np.random.default_rng(0).uniform(size=(5, 2))
    names = ("u", "u_x", "v_in_t", "v_in_t - 2 u", "laplacian(v_in)")
    operators = [parse_operator(name, TX, PAIR) for name in names]
    G = gram(SystemKernel(kernels), [(X, operator) for operator in operators])
    expected = np.zeros((5, 5, 5, 5))  # operator, operator, point, point
    for state, kernel in kernels.items():
        for i, left in enumerate(operators):
            for j, right in enumerate(operators):
                for a, f in _part_of(state, left):
                    for b, g in _part_of(state, right):
                        expected[i, j] += f * g * kernel.derivative(X, X, a, b)
    expected = expected.transpose(0, 2, 1, 3).reshape(25, 25)
    np.testing.assert_allclose(G, expected, rtol=1e-12, atol=1e-12)


def _part_of(state, operator):
    """What an operator does to one of the states: [(multi-index, coefficient)]."""
    return [(a, value) for name, a, value in operator.parts if name == state]


@pytest.mark.parametrize(
    "name, orders",
    [("u_x_mm_x_mm", (0, 2)), ("u_x_mmx_mm", (0, 2)), ("u_t_h_x_mm", (1, 1))],
)
def test_names_with_underscores_may_have_one_between_them(name, orders):
    assert parse_operator(name, ("t_h", "x_mm")).terms == ((orders, 1.0),)
    assert parse_operator((0, 2), ("t_h", "x_mm")).name == "u_x_mm_x_mm"


def test_underscores_between_coordinates_come_second():
    """A state that is called as a derivative keeps its own."""
    operator = parse_operator("u_x_x", ("x", "t_h"), ("u", "u_x"))
    assert operator.states == ("u_x",)
    assert parse_operator("u_x_x", ("x", "t_h")).terms == (((2, 0), 1.0),)
    with pytest.raises(ValueError, match="unknown variable"):
        parse_operator("u_x_", ("x", "t_h"))
