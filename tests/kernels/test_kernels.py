"""The kernels as kernels of scikit-learn, their columns, and what they refuse."""

import pickle
from math import nan

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from keql.kernels import (
    RBF,
    Constant,
    Envelope,
    Exponentiation,
    FunctionKernel,
    Matern,
    Periodic,
    Polynomial,
    Product,
    RadialKernel,
    RationalQuadratic,
    Sum,
    as_kernel,
)

X = np.random.RandomState(0).normal(size=(6, 2))
Y = np.random.RandomState(1).normal(size=(4, 2))


def inverse_multiquadric(rho):
    """Profile of a kernel; at the top level so that it can be pickled."""
    return 1 / anp.sqrt(1 + 2 * rho)


def exponential_of_product(x, y):
    """A kernel that is not stationary."""
    return anp.exp(0.3 * anp.sum(x * y, axis=-1))


# Kernels of scikit-learn, and the columns of X on which they are compared.
COUNTERPARTS = {
    "RBF": sk.RBF(0.7),
    "RBF, two scales": sk.RBF([0.7, 1.9], length_scale_bounds=(1e-2, 1e2)),
    "RBF, fixed": sk.RBF(0.7, length_scale_bounds="fixed"),
    "Matern 0.5": sk.Matern(0.7, nu=0.5),
    "Matern 1.5": sk.Matern([0.7, 1.9], nu=1.5),
    "Matern 2.5": sk.Matern(0.7, (1e-2, 1e2), nu=2.5),
    "Matern 1.2": sk.Matern(0.7, nu=1.2),
    "Matern 6.3": sk.Matern([0.7, 1.9], nu=6.3),
    "Matern infinity": sk.Matern([0.7, 1.9], nu=np.inf),
    "RationalQuadratic": sk.RationalQuadratic(0.7, 1.3, (1e-2, 1e2), (1e-3, 1e3)),
    "RationalQuadratic, fixed": sk.RationalQuadratic(0.7, 1.3, alpha_bounds="fixed"),
    "ConstantKernel": sk.ConstantKernel(2.5, (1e-2, 1e2)),
    "Sum": 2.0 * sk.RBF(0.7) + sk.Matern(1.3, nu=2.5),
    "Product": sk.RationalQuadratic(0.7, 1.3) * sk.RBF([1.3, 0.4]) * 3,
    "Exponentiation": (sk.ConstantKernel(1.2) * sk.RBF(0.7) + 1) ** 2,
}


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_counterparts_of_scikit_learn(name):
    theirs = COUNTERPARTS[name]
    ours = as_kernel(theirs)
    assert_allclose(ours(X, Y), theirs(X, Y), rtol=1e-12)
    assert_allclose(ours(X), theirs(X), rtol=1e-12)
    assert_allclose(ours.diag(X), theirs.diag(X), rtol=1e-12)
    assert_allclose(ours.theta, theirs.theta)
    assert_allclose(ours.bounds, theirs.bounds)
    assert ours.n_dims == theirs.n_dims
    assert ours.is_stationary() == theirs.is_stationary()
    assert [h.name for h in ours.hyperparameters] == [
        h.name for h in theirs.hyperparameters
    ]
    shifted = theirs.theta + 0.1 * np.arange(1, theirs.n_dims + 1)
    assert_allclose(
        ours.clone_with_theta(shifted)(X, Y),
        theirs.clone_with_theta(shifted)(X, Y),
        rtol=1e-12,
    )
    # scikit-learn differentiates Matern kernels of general nu by differences
    tolerance = 1e-5 if name in ("Matern 1.2", "Matern 6.3") else 1e-11
    K, gradient = ours(X, eval_gradient=True)
    assert_array_equal(K, ours(X))
    assert_allclose(gradient, theirs(X, eval_gradient=True)[1], atol=tolerance)


def test_exp_sine_squared_and_dot_product():
    theirs = sk.ExpSineSquared(0.7, 1.3, (1e-2, 1e2), (1e-3, 1e3))
    ours = as_kernel(theirs)
    x, y = X[:, :1], Y[:, :1]
    assert isinstance(ours, Periodic)
    assert_allclose(ours(x, y), theirs(x, y), rtol=1e-12)
    assert_allclose(ours.theta, theirs.theta)
    assert_allclose(ours.bounds, theirs.bounds)
    gradients = [kernel(x, eval_gradient=True)[1] for kernel in (ours, theirs)]
    assert_allclose(*gradients, atol=1e-12)

    theirs = sk.DotProduct(0.7, (1e-2, 1e2))
    ours = as_kernel(theirs)
    assert_allclose(ours(X, Y), theirs(X, Y), rtol=1e-13)
    assert_allclose(ours.theta, 2 * theirs.theta)  # sigma_0 squared is ours
    assert_allclose(ours.bounds, 2 * theirs.bounds)
    gradients = [kernel(X, eval_gradient=True)[1] for kernel in (ours, theirs)]
    assert_allclose(2 * gradients[0], gradients[1], rtol=1e-13)
    assert as_kernel(sk.DotProduct(0.7, "fixed")).n_dims == 0


def test_conversion_of_mixed_compositions():
    mixed = (2.0 * sk.RBF(0.7) + sk.DotProduct(0.5, "fixed")) * Periodic(0.9, 1.7)
    expected = (2.0 * RBF(0.7) + Polynomial(1, 1.0, 0.0, 0.25)) * Periodic(0.9, 1.7)
    assert as_kernel(mixed) == expected
    for a, b in [(None, None), ((1, 0), (0, 2))]:
        assert_array_equal(
            as_kernel(mixed).derivative(X, Y, a, b), expected.derivative(X, Y, a, b)
        )
    # With a keql kernel on the left nothing needs to be converted.
    for kernel, kind in [
        (RBF() + sk.Matern(), Sum),
        (RBF() * sk.Matern(nu=1.5), Product),
        (1.0 + RBF(), Sum),
        (2 * RBF(), Product),
        (RBF() ** 2, Exponentiation),
    ]:
        assert type(kernel) is kind
        assert as_kernel(kernel) is kernel
        assert kernel.derivative(X, Y, (1, 0), (0, 0)).shape == (6, 4)
    for kernel, kind in [
        (sk.RBF() + RBF(), Sum),
        (sk.RBF() * RBF(), Product),
        ((sk.RBF() + RBF()) ** 3, Exponentiation),
        (sk.ConstantKernel(2.0), Constant),
    ]:
        assert type(as_kernel(kernel)) is kind


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (sk.WhiteKernel(), "WhiteKernel describes noise"),
        (sk.RBF() + sk.WhiteKernel(0.1), "observation_noise"),
        (sk.PairwiseKernel(), "PairwiseKernel.* has no known derivatives"),
        (2.0 * (sk.PairwiseKernel() + sk.RBF()), "keql.kernels.FunctionKernel"),
        (sk.CompoundKernel([sk.RBF()]), "CompoundKernel.* has no known derivatives"),
        ("rbf", "'rbf' has no known derivatives"),
        (None, "None has no known derivatives"),
    ],
)
def test_kernels_without_derivatives_are_refused(kernel, message):
    with pytest.raises(TypeError, match=message):
        as_kernel(kernel)


@pytest.mark.parametrize("number", [0, -1.0, nan])
def test_number_as_kernel_must_be_positive(number):
    with pytest.raises(ValueError, match="must be positive"):
        number * RBF()


# Kernels with free parameters that scikit-learn does not have, or has not this way.
KERNELS = {
    "RBF": RBF([0.7, 1.9]),
    "RBF, one column": RBF(0.7, active_dims=1),
    "Matern": Matern([0.7, 1.9], nu=2.3),
    "RationalQuadratic": RationalQuadratic([0.7, 1.9], 1.3),
    "RationalQuadratic, alpha fixed": RationalQuadratic(0.7, 1.3, alpha_bounds="fixed"),
    "RationalQuadratic, scale fixed": RationalQuadratic(0.7, 1.3, "fixed"),
    "Periodic": Periodic([0.7, 1.9], [1.3, 2.3]),
    "Periodic, one number": Periodic(0.7, 1.3),
    "Periodic, period fixed": Periodic([0.7, 1.9], 1.3, periodicity_bounds="fixed"),
    "Envelope": Envelope([0.7, 1.9], [0.2, -0.3]),
    "Envelope, one number": Envelope(0.7, 0.2),
    "Envelope, fixed": Envelope(0.7, 0.2, "fixed"),
    "Polynomial": Polynomial(3, [0.7, 1.9], 0.3, 0.6, offset_bounds=(1e-3, 1e3)),
    "Polynomial, fixed": Polynomial(3, 0.7, 0.3, active_dims=(1, 0)),
    "Constant": Constant(2.3),
    "RadialKernel": RadialKernel(inverse_multiquadric, [0.7, 1.9]),
    "FunctionKernel": FunctionKernel(exponential_of_product),
    "composition": 2.0 * RBF(0.7, active_dims=0) * Periodic(0.8, 2.3, active_dims=1)
    + RationalQuadratic(1.1, 0.6) ** 2,
}


@pytest.mark.parametrize("name", KERNELS)
def test_gradient_in_theta(name):
    kernel = KERNELS[name]
    K, gradient = kernel(X, eval_gradient=True)
    assert gradient.shape == (6, 6, kernel.n_dims)
    assert_array_equal(K, kernel(X))
    step = 1e-5
    for column in range(kernel.n_dims):
        shift = step * (np.arange(kernel.n_dims) == column)
        upper = kernel.clone_with_theta(kernel.theta + shift)(X)
        lower = kernel.clone_with_theta(kernel.theta - shift)(X)
        difference = (upper - lower) / (2 * step)
        assert np.abs(difference).max() > 1e-3
        scale = np.abs(K).max()
        assert_allclose(gradient[..., column], difference, atol=1e-9 * scale, rtol=1e-8)


@pytest.mark.parametrize("name", KERNELS)
def test_parameters_and_copies(name):
    kernel = KERNELS[name]
    expected = kernel(X, Y)
    assert_array_equal(pickle.loads(pickle.dumps(kernel))(X, Y), expected)
    copy = clone(kernel)
    assert copy == kernel and copy is not kernel
    assert_array_equal(copy(X, Y), expected)
    for copy in (kernel.clone_with_theta(kernel.theta), kernel.bind(["t", "x"])):
        assert type(copy) is type(kernel)
        assert_allclose(copy(X, Y), expected, rtol=1e-13)
    rebuilt = clone(kernel).set_params(**kernel.get_params())
    assert_array_equal(rebuilt(X, Y), expected)
    assert_allclose(kernel.diag(X), np.diag(kernel(X)), rtol=1e-13)
    assert kernel != RBF(123.0)
    # Kernels are values: they take lists, and leave what they are given alone.
    assert_array_equal(kernel(X.tolist(), Y.tolist()), expected)


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (RBF([0.7, 1.9]), "RBF(length_scale=[0.7, 1.9])"),
        (RBF(0.7, active_dims=("t",)), "RBF(length_scale=0.7, active_dims=('t',))"),
        (Matern(1 / 3, nu=2.5), "Matern(length_scale=0.333, nu=2.5)"),
        (
            Polynomial(3),
            "Polynomial(degree=3, scale='auto', center='auto', offset=1)",
        ),
        (
            FunctionKernel(exponential_of_product),
            "FunctionKernel(function=exponential_of_product)",
        ),
        (
            4.0 * Periodic(np.array([0.7]), 2.0) ** 2,
            "2**2 * Periodic(length_scale=[0.7], periodicity=2) ** 2",
        ),
    ],
)
def test_repr(kernel, text):
    assert repr(kernel) == text


def test_equality_and_nested_parameters():
    kernel = 2.0 * RBF(0.7, active_dims=0) + Matern([0.5, 0.6], nu=2.5)
    same = 2.0 * RBF(0.7, active_dims=0) + Matern([0.5, 0.6], nu=2.5)
    assert kernel == same
    for name, value in [
        ("k1__k1__constant_value", 3.0),
        ("k1__k2__length_scale", 0.8),
        ("k1__k2__active_dims", 1),
        ("k2__nu", 3.5),
        ("k2__length_scale_bounds", "fixed"),
    ]:
        changed = clone(kernel).set_params(**{name: value})
        assert changed.get_params()[name] == value
        assert changed != kernel
        assert kernel == same
    assert RBF(1.0) != Matern(1.0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            Constant(1.0, (1e-3, 1e3)) * RBF([1.0, 1.0], (1e-2, 1e2)),
            sk.ConstantKernel(1.0, (1e-3, 1e3)) * sk.RBF([1.0, 1.0], (1e-2, 1e2)),
        ),
        (
            Matern([1.0, 1.0], (1e-2, 1e2), nu=2.5) + Constant(0.5, "fixed"),
            sk.Matern([1.0, 1.0], (1e-2, 1e2), nu=2.5)
            + sk.ConstantKernel(0.5, "fixed"),
        ),
    ],
    ids=["RBF", "Matern"],
)
def test_in_gaussian_process_regressor(ours, theirs):
    random_state = np.random.RandomState(2)
    points = random_state.uniform(-2, 2, size=(40, 2))
    y = (
        np.sin(2 * points[:, 0])
        + 0.5 * points[:, 1]
        + 0.1 * random_state.normal(size=40)
    )
    fits = [
        GaussianProcessRegressor(kernel, alpha=1e-2).fit(points, y)
        for kernel in (ours, theirs)
    ]
    assert np.abs(fits[0].kernel_.theta - ours.theta).max() > 0.1
    assert_allclose(fits[0].kernel_.theta, fits[1].kernel_.theta, rtol=1e-3, atol=1e-4)
    assert_allclose(
        fits[0].log_marginal_likelihood_value_,
        fits[1].log_marginal_likelihood_value_,
        rtol=1e-8,
    )
    mean, std = fits[0].predict(X, return_std=True)
    expected_mean, expected_std = fits[1].predict(X, return_std=True)
    assert_allclose(mean, expected_mean, rtol=1e-3, atol=1e-4)
    assert_allclose(std, expected_std, rtol=1e-3)


def test_no_free_parameters():
    kernel = Polynomial(2, 1.0, 0.0) + RBF(1.0, "fixed") * Constant(2.0, "fixed")
    assert kernel.n_dims == 0
    assert kernel(X, eval_gradient=True)[1].shape == (6, 6, 0)


# active_dims


def test_bind():
    kernel = (
        RBF(0.7, active_dims="x") * Periodic(1.0, 2.0, active_dims=("y", "t"))
        + Polynomial(2, 1.0, 0.0)
        + Matern(active_dims=1) ** 2
        + 3.0
    )
    bound = kernel.bind(["t", "x", "y"], default=(0, 2))
    first, second = bound.k1.k1.k1.k1, bound.k1.k1.k1.k2
    assert first.active_dims == (1,)
    assert second.active_dims == (2, 0)
    assert bound.k1.k1.k2.active_dims == (0, 2)
    assert bound.k1.k2.kernel.active_dims == (1,)
    assert kernel.k1.k1.k1.k1.active_dims == "x"
    assert kernel.bind(["t", "x", "y"]).k1.k1.k2.active_dims is None
    assert_array_equal(bound.depends_on(4), [True, True, True, False])
    points = np.random.RandomState(4).normal(size=(5, 3))
    assert_allclose(
        bound.k1.k1.k1(points),
        RBF(0.7)(points[:, [1]]) * Periodic(1.0, 2.0)(points[:, [2, 0]]),
    )


def test_order_of_active_dims():
    kernel = RBF([0.7, 1.9], active_dims=(1, 0))
    assert_array_equal(kernel(X, Y), RBF([0.7, 1.9])(X[:, ::-1], Y[:, ::-1]))
    assert_allclose(
        kernel.derivative(X, Y, (2, 0), (0, 1)),
        RBF([1.9, 0.7]).derivative(X, Y, (2, 0), (0, 1)),
        rtol=1e-13,
    )


# Errors


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: RBF(active_dims="z").bind(["t", "x"]), "names 'z'.*choose among t, x"),
        (lambda: RBF(active_dims=2).bind(["t", "x"]), "names 2.*index below 2"),
        (lambda: RBF(active_dims="x")(X), r"active_dims='x' are names.*bind\(names\)"),
        (lambda: RBF(active_dims=(0, 2))(X), "from 0 to 1: the input has 2 column"),
        (lambda: RBF(active_dims=-1)(X), "active_dims=-1 must be"),
        (lambda: RBF(active_dims=())(X), r"active_dims=\(\) must be"),
        (lambda: RBF(active_dims=(0, 0))(X), "must be different column indices"),
        (lambda: RBF(active_dims=0.5)(X), "active_dims=0.5 must be"),
        (lambda: RBF([1, 2, 3])(X), "length_scale of RBF has 3 entries for 2 active"),
        (
            lambda: Matern([1, 2], active_dims=0)(X),
            "length_scale of Matern has 2 entries for 1 active",
        ),
        (lambda: Envelope([1, 2, 3])(X), "width of Envelope has 3 entries"),
        (lambda: Envelope(1.0, [1, 2, 3])(X), "center of Envelope has 3 entries"),
        (lambda: Envelope(-2.0)(X), "width must be positive, got -2.0"),
        (lambda: Periodic(1.0, [1, 2, 3])(X), "periodicity of Periodic has 3 entries"),
        (lambda: RBF(-1.0)(X), "length_scale must be positive, got -1.0"),
        (lambda: RBF([1.0, 0.0])(X), r"length_scale must be positive, got \[1.0, 0.0"),
        (lambda: RBF(nan)(X), "length_scale must be positive, got nan"),
        (lambda: Periodic(1.0, -2.0)(X), "periodicity must be positive, got -2.0"),
        (lambda: RationalQuadratic(1.0, -2.0)(X), "alpha must be positive, got -2.0"),
        (lambda: Matern(nu=0)(X), "nu=0 of Matern must be positive and at most 100"),
        (lambda: Matern(nu=-1.5)(X), "nu=-1.5 of Matern must be positive"),
        (lambda: Matern(nu=200)(X), "nu=200 of Matern.*use RBF"),
        (lambda: Matern(nu=nan)(X), "nu=nan of Matern must be positive"),
        (lambda: Polynomial(2)(X), r'center="auto" is set.*scaled_to\(features\)'),
        (lambda: Polynomial(2, "auto", 0.0)(X), 'scale="auto" is set from the feature'),
        (lambda: Polynomial(2, "std", 0.0)(X), "scale='std' must be numbers or"),
        (lambda: Polynomial(2, [1, 2, 3], 0.0)(X), "scale of Polynomial has 3 entries"),
        (lambda: Polynomial(2, 1.0, [0, 0, 0])(X), "center of Polynomial has 3 entrie"),
        (lambda: Polynomial(2, 0.0, 0.0)(X), "scale must be positive, got 0.0"),
        (lambda: Polynomial(1.5, 1.0, 0.0)(X), "degree must be an integer.*got 1.5"),
        (lambda: Polynomial(-1, 1.0, 0.0).n_features(2), "degree must be .*got -1"),
        (lambda: Polynomial(2, 1.0, 0.0, -1.0)(X), "offset must not be negative"),
        (lambda: RBF().derivative(X, a=(1,)), r"a=\(1,\).*of the 2 coord"),
        (lambda: RBF().derivative(X, a=2), "a=2: the multi-index"),
        (lambda: RBF().derivative(X, b=(1, 0, 0)), r"b=\(1, 0, 0\): the m"),
        (lambda: RBF().derivative(X, b=(-1, 0)), r"b=\(-1, 0\).*order >= 0"),
        (lambda: RBF().derivative(X, a=(1.5, 0)), r"a=\(1.5, 0.*integer"),
        (lambda: (RBF() ** 2.5).derivative(X, a=(1, 0)), "exponent=2.5 must be an int"),
        (lambda: (RBF() ** 0).derivative(X), "exponent=0 must be an integer"),
        (
            lambda: Polynomial(1, 1.0, 0.0).feature_map(X, (1,)),
            r"a=\(1,\).*of the 2 coordinate",
        ),
        (
            lambda: FunctionKernel(lambda x, y: 1 / anp.sum((x - y) ** 2, -1))(X),
            "`function` has a derivative that is not finite",
        ),
        (lambda: RadialKernel(lambda rho: 1 / rho)(X), "`profile` or a derivative of"),
    ],
)
def test_errors(function, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        function()


@pytest.mark.parametrize(("nu", "highest"), [(0.5, 0), (1, 0), (1.5, 1), (2.01, 2)])
def test_order_that_matern_does_not_allow(nu, highest):
    kernel = 2.0 * Matern(nu=nu, active_dims=1) + RBF() * Periodic() ** 2
    kernel.check_order((4, highest), "u_ttttx")
    kernel.derivative(X, None, (3, highest), (0, highest))
    order = highest + 1
    with pytest.raises(
        ValueError,
        match=rf"u_x has order {order}.*Matern\(nu={nu:g}\).*choose nu > {order}",
    ):
        kernel.check_order((0, order), "u_x")
    for a, b in [((0, order), (0, 0)), ((0, 0), (2, order))]:
        with pytest.raises(ValueError, match=f"the derivative has order {order}"):
            kernel.derivative(X, None, a, b)


def test_order_counts_all_active_columns():
    with pytest.raises(ValueError, match=r"has order 3.*choose nu > 3"):
        Matern(nu=2.5).derivative(X, None, (1, 2))
    Matern(nu=2.5, active_dims=0).derivative(X, None, (1, 2))
