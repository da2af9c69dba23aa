"""The data sets: their truth against exact solutions, their layout, their noise."""

import pickle

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql.datasets import _burgers, make_burgers, make_darcy, make_duffing
from keql.datasets._burgers import _solve_burgers
from keql.datasets._darcy import _GaussianFields

FULL = {
    "duffing": make_duffing,
    "burgers": lambda **kwargs: make_burgers(20, **kwargs),
    "boundary": lambda **kwargs: make_burgers(layout="boundary", **kwargs),
    "darcy": lambda **kwargs: make_darcy(3, 5, **kwargs),
}
DESCRIBED = (
    "operators known_part collocation_points forcing variables function_column"
).split()
ENTRIES = (
    "X y feature_names X_test y_test problem kernels truth equation unknown_part DESCR"
).split() + DESCRIBED


@pytest.fixture
def coarse(monkeypatch):
    """Make the truth of Burgers' equation cheap where it need not be accurate."""
    resolution = _burgers._Resolution(n_nodes=201, n_steps=200, n_levels=100)
    monkeypatch.setattr(_burgers, "_Resolution", lambda: resolution)


def features_of(data, X, function=None):
    """Return the features of the truth at points, in the documented order."""
    names = data.feature_names[len(data.problem["variables"]) :]
    columns = [data.truth(X, name, function=function) for name in names]
    return np.column_stack([X, *columns])


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def random_points(n, d, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, d))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("name", FULL)
def test_entries(name):
    data = FULL[name](random_state=0)
    assert set(ENTRIES) <= set(data)
    assert len(data.X) == len(data.y) and len(data.X_test) == len(data.y_test)
    described = set(data.problem)
    assert described == set(DESCRIBED)
    assert all(data[entry] is data.problem[entry] for entry in described)
    assert {"state_kernel", "equation_kernel"} <= set(data.kernels)
    assert np.array_equal(data.y, data.truth(data.X))
    assert np.array_equal(data.y_test, data.truth(data.X_test))
    assert data.noise_std == 0.0
    n_coordinates = len(data.problem["variables"])
    operators = list(data.operators) + [data.known_part] * bool(data.known_part)
    assert data.feature_names[n_coordinates:] == operators
    assert "arXiv:2503.01036" in data.DESCR and "{" not in data.DESCR


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("name", FULL)
def test_unknown_part_ignores_further_columns(name):
    data = FULL[name](random_state=0)
    n_seen = len(data.problem["variables"]) + len(data.operators)
    S = np.random.default_rng(1).standard_normal((7, len(data.feature_names)))
    expected = data.unknown_part(S)
    assert np.array_equal(data.unknown_part(S[:, :n_seen]), expected)
    known = S[:, -1] if data.known_part else 0.0
    assert np.array_equal(data.equation(S), expected + known)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("name", FULL)
def test_random_state(name):
    first, again, other = (FULL[name](noise=0.1, random_state=i) for i in (3, 3, 4))
    assert np.array_equal(first.X, again.X) and np.array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)
    same = FULL[name](noise=0.1, random_state=np.random.RandomState(3))
    assert np.array_equal(first.y, same.y)
    generators = (np.random.default_rng(seed) for seed in (3, 3, 4))
    first, again, other = (FULL[name](noise=0.1, random_state=g) for g in generators)
    assert np.array_equal(first.y, again.y) and not np.array_equal(first.y, other.y)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("name", FULL)
def test_pickle(name):
    data = FULL[name](random_state=0)
    copy = pickle.loads(pickle.dumps(data))
    S = np.random.default_rng(1).standard_normal((7, len(data.feature_names)))
    assert np.array_equal(copy.truth(data.X), data.y)
    assert np.array_equal(copy.equation(S), data.equation(S))
    assert np.array_equal(copy.unknown_part(S), data.unknown_part(S))
    if name == "duffing":
        assert np.array_equal(copy.forcing(data.X), data.forcing(data.X))


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(
    "make",
    [
        lambda noise: make_duffing(1000, noise=noise, random_state=0),
        lambda noise: make_burgers(700, noise=noise, random_state=0),
        lambda noise: make_darcy(10, 50, noise=noise, random_state=0),
    ],
)
def test_noise_is_a_fraction_of_the_state(make):
    data, clean = make(0.05), make(0.0)
    assert data.noise_std == pytest.approx(0.05 * np.sqrt(np.mean(data.y_test**2)))
    assert np.array_equal(data.y_test, clean.y_test)
    noise = (data.y - clean.y) / data.noise_std
    # Four standard errors of a standard deviation, and of a mean.
    assert abs(np.std(noise) - 1.0) < 4 / np.sqrt(2 * len(noise))
    assert abs(np.mean(noise)) < 4 / np.sqrt(len(noise))
    # Rows on the boundary have their share.
    assert np.all(noise != 0.0)


ERRORS = [
    (lambda: make_duffing(1), "n_observations"),
    (lambda: make_duffing(n_collocation=1), "n_collocation"),
    (lambda: make_duffing(t_max=0.0), "t_max"),
    (lambda: make_duffing(t_max=np.inf), "t_max"),
    (lambda: make_duffing(noise=-0.1), "noise"),
    (lambda: make_duffing(initial=(0.0,)), "initial"),
    (lambda: make_duffing(initial=(0.0, np.nan)), "initial"),
    (lambda: make_burgers(-1), "n_interior"),
    (lambda: make_burgers(726), "n_interior=726, but there are only 725"),
    (lambda: make_burgers(nu=0.0), "nu"),
    (lambda: make_burgers(nu=1e-5, initial_condition="published"), "nu=1e-05 is too"),
    (lambda: make_burgers(theta=np.nan), "theta"),
    (lambda: make_burgers(noise=np.inf), "noise"),
    (lambda: make_burgers(layout="grid"), "layout='grid'"),
    (lambda: make_burgers(collocation_shape=(26,)), "collocation_shape"),
    (lambda: make_burgers(collocation_shape=(26.5, 31)), "collocation_shape"),
    (lambda: make_burgers(collocation_shape=(26, 2)), "collocation_shape"),
    (lambda: make_burgers(initial_condition="random"), "initial_condition='random'"),
    (lambda: make_burgers(initial_condition=np.cos), "at x = 0 and"),
    (lambda: make_burgers(initial_condition=np.zeros_like), "not all zero"),
    (lambda: make_burgers(initial_condition=np.sum), "values of shape"),
    (lambda: make_darcy(0), "n_functions"),
    (lambda: make_darcy(2, 170), "n_interior=170, but there are only 169"),
    (lambda: make_darcy(2, grid_size=2), "grid_size"),
    (lambda: make_darcy(2, length_scale=0.001), "length_scale"),
    (lambda: make_darcy(2, noise=-1.0), "noise"),
    (lambda: make_darcy(2).features(0), "n == 0"),
    (lambda: make_darcy(2).truth([[0.1, 0.2, 2.0]]), "function=2 is not one of 0 to 1"),
    (lambda: make_darcy(2).truth([[0.1, 0.2]]), "X has 2 columns and function is None"),
    (lambda: make_duffing().truth([[50.1]]), "X has 1 rows outside"),
    (lambda: make_duffing().truth([[1.0, 1.0]]), "X has 2 columns"),
    (lambda: make_duffing().truth([[1.0]], "u_x"), "operator='u_x'"),
    (lambda: make_duffing().truth([[1.0]], "u_ttttt"), "operator='u_ttttt'"),
    (lambda: make_duffing().truth([[1.0]], function=0), "function=0"),
]


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Duffing.


@pytest.fixture(scope="module")
def duffing():
    return make_duffing()


def test_duffing_layout(duffing):
    assert np.array_equal(duffing.X, np.linspace(0, 50, 32)[:, None])
    assert np.array_equal(duffing.collocation_points, np.linspace(0, 50, 1000)[:, None])
    assert np.array_equal(duffing.X_test, np.linspace(0, 50, 5000)[:, None])
    assert duffing.feature_names == ["t", "u", "u_t", "u_tt"]
    assert duffing.kernels["n_inducing"] == 500
    # 32 observations, beta = 1e-9, omega = 50; 1000 collocation points.
    assert duffing.kernels["observation_noise"] ** 2 == pytest.approx(6.4e-10)
    assert duffing.kernels["equation_noise"] ** 2 == pytest.approx(1e-6)
    S = [[0.0, 2.0, 5.0]]
    assert duffing.unknown_part(S) == pytest.approx(-6.0 + 24.0 + 1.0)


def test_duffing_state_kernel(duffing):
    tau = np.array([[0.0], [0.3], [2.0]])
    expected = 1 / (1 + tau**2)
    assert duffing.kernels["state_kernel"](tau, np.zeros((1, 1))) == pytest.approx(
        expected
    )
    for name in ("state_kernel", "equation_kernel"):
        assert duffing.kernels[name].theta.size == 0


@pytest.mark.parametrize("initial", [(0.0, 0.0), (0.0, -1.0), (2.5, 0.5)])
def test_duffing_truth_solves_its_equation(initial):
    data = make_duffing(t_max=20.0, initial=initial)
    t = 20.0 * random_points(2000, 1)
    S = features_of(data, t)
    residual = data.equation(S) - data.forcing(t)
    assert np.max(abs(residual)) < 1e-6 * np.max(abs(S))
    start = [data.truth([[0.0]], name)[0] for name in ("u", "u_t")]
    assert start == pytest.approx(initial, abs=1e-9)


def test_duffing_truth_agrees_with_another_integrator(duffing):
    # The equation written once more, as a stiff method sees it.
    def rate(t, z):
        return [z[1], 3 * z[0] - 3 * z[0] ** 3 - 0.2 * z[1] + np.cos(2 * t)]

    t = np.linspace(0.0, 20.0, 50)
    solution = solve_ivp(
        rate, (0, 20), [0, 0], "LSODA", t_eval=t, rtol=1e-12, atol=1e-12
    )
    for name, expected in zip(("u", "u_t"), solution.y, strict=True):
        assert duffing.truth(t[:, None], name) == pytest.approx(expected, abs=1e-6)


def test_duffing_agrees_with_the_published_trajectory(duffing, reference):
    published = np.load(reference("duffing_trajectory.npz"))
    assert np.array_equal(duffing.X, published["X"])
    assert np.array_equal(duffing.X_test, published["X_test"])
    # Integrated at a tolerance of 1e-8, and chaotic.
    error = abs(duffing.y_test - published["y_test"])
    t = duffing.X_test[:, 0]
    for until, tolerance in ((5, 1e-7), (10, 1e-6), (20, 3e-4), (23, 1e-2)):
        assert np.max(error[t < until]) < tolerance


# Burgers.


@pytest.fixture(scope="module")
def burgers():
    return make_burgers(n_interior=60, random_state=0)


def test_burgers_layout(burgers):
    assert burgers.X.shape == (141, 2)
    assert burgers.collocation_points.shape == (26 * 29, 2)
    assert burgers.X_test.shape == (10_000, 2)
    assert burgers.feature_names == ["t", "x", "u", "u_x", "u_xx", "u_t"]
    t, x = burgers.X.T
    sides, start = (x == 0) | (x == 1), (t == 0) & (x > 0) & (x < 1)
    assert sides.sum() == 52 and start.sum() == 29
    inner = {tuple(row) for row in burgers.X[~sides & ~start]}
    assert len(inner) == 60
    assert inner <= {tuple(row) for row in burgers.collocation_points}
    assert np.max(abs(burgers.y[sides])) < 1e-15
    assert burgers.kernels["observation_noise"] ** 2 == pytest.approx(141e-13)
    assert burgers.kernels["equation_noise"] ** 2 == pytest.approx(754e-11)
    assert burgers.kernels["state_kernel"].theta.size == 2


@pytest.mark.usefixtures("coarse")
def test_burgers_boundary_layout():
    data = make_burgers(layout="boundary", collocation_shape=(26, 26), random_state=0)
    assert data.X.shape == (100, 2) and data.collocation_points.shape == (624, 2)
    t, x = data.X.T
    assert np.all((x == 0) | (x == 1) | (t == 0) | (t == 1))
    assert data.kernels["state_kernel"].theta.size == 0
    tau = data.kernels["state_kernel"]([[0.0, 0.0]], [[0.05, 0.1]])
    assert tau == pytest.approx(np.exp(-0.5 * 0.0125 / 0.0125))
    assert data.kernels["equation_kernel"].k1.constant_value == 10.0
    assert data.kernels["equation_kernel"].theta.size == 0


@pytest.mark.usefixtures("coarse")
def test_burgers_more_points_keep_the_others():
    few, many = (make_burgers(n, random_state=5) for n in (10, 40))
    assert np.array_equal(few.X, many.X[: len(few.X)])
    assert np.array_equal(few.y, many.y[: len(few.y)])


def test_burgers_random_initial_condition(burgers):
    # The projections on the sines are Z_j / (j + 1)^2 with Z_j standard normal.
    x = np.linspace(0.0, 1.0, 201)
    u0 = burgers.truth(np.column_stack([np.zeros(201), x]))
    j = np.arange(1, 100)
    z = 2 / 200 * np.sin(np.pi * np.outer(j, x)) @ u0 * (j + 1) ** 2
    assert np.max(abs(z[49:])) < 1e-4
    assert 0.7 < np.std(z[:49]) < 1.3
    assert np.max(abs(z[:49])) < 4


def cole_hopf(t, x, theta, nu):
    """Return an exact solution that vanishes at x = 0 and x = 1."""
    decay = 0.9 * np.exp(-(np.pi**2) * nu * t)
    phi = 1 + decay * np.cos(np.pi * x)
    return -2 * nu * np.pi * decay * np.sin(np.pi * x) / phi / theta


@pytest.mark.slow
@pytest.mark.parametrize("theta", [1.0, -2.0])
def test_burgers_agrees_with_an_exact_solution(theta):
    data = make_burgers(
        theta=theta, nu=0.1, initial_condition=lambda x: cole_hopf(0.0, x, theta, 0.1)
    )
    points = random_points(2000, 2)
    t, x = points.T
    exact = cole_hopf(t, x, theta, 0.1)
    assert relative(data.truth(points), exact) < 1e-7
    h = 1e-4
    x = np.clip(x, h, 1 - h)
    points = np.column_stack([t, x])
    left, middle, right = (cole_hopf(t, x + s, theta, 0.1) for s in (-h, 0, h))
    u_xx = (left - 2 * middle + right) / h**2
    assert relative(data.truth(points, "u_xx"), u_xx) < 1e-5
    u_x = (right - left) / (2 * h)
    assert relative(data.truth(points, "u_x"), u_x) < 1e-5


def test_burgers_splitting_is_of_second_order():
    x = np.linspace(0.0, 1.0, 257)
    u0 = np.sin(np.pi * x) - 0.5 * np.sin(3 * np.pi * x)

    def final(n_steps):
        return _solve_burgers(u0, 1.0, 0.02, len(x), n_steps, 1)[-1]

    best = final(6400)
    errors = [np.linalg.norm(final(n) - best) for n in (100, 200, 400, 800)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders == pytest.approx(2.0, abs=0.1)


def test_burgers_is_of_high_order_in_space():
    theta, nu = 1.0, 0.1

    def error(n_nodes):
        x = np.linspace(0.0, 1.0, n_nodes)
        u = _solve_burgers(cole_hopf(0.0, x, theta, nu), theta, nu, n_nodes, 4000, 1)
        return relative(u[-1], cole_hopf(1.0, x, theta, nu))

    coarse, fine = error(17), error(33)
    assert fine < 1e-5
    assert coarse / fine > 2**4


@pytest.mark.usefixtures("coarse")
def test_burgers_stays_stable_when_fast():
    # 200 steps would not be stable: the number of steps follows the speed.
    data = make_burgers(
        theta=60.0, nu=1.0, initial_condition=lambda x: np.sin(np.pi * x)
    )
    assert np.max(abs(data.y_test)) <= 1.0 + 1e-9
    t = data.X_test[:, 0]
    energy = [np.sum(data.y_test[t == level] ** 2) for level in np.unique(t)]
    assert np.all(np.diff(energy) < 0)


def test_burgers_truth_solves_its_equation(burgers):
    S = features_of(burgers, random_points(5000, 2))
    assert np.linalg.norm(burgers.equation(S)) < 1e-4 * np.linalg.norm(S[:, 5])
    S = S[S[:, 0] > 0.02]
    assert np.linalg.norm(burgers.equation(S)) < 1e-6 * np.linalg.norm(S[:, 5])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "n_fixed", "tolerances"),
    [
        (
            "boundary_only",
            {"theta": 0.5, "layout": "boundary", "collocation_shape": (26, 26)},
            100,
            (3e-6, 1e-5),
        ),
        # A front as thin as two nodes: the published values between them are
        # interpolated less accurately than those at the observations.
        ("shock", {"n_interior": 60, "theta": 5.0, "nu": 0.001}, 81, (1e-4, 3e-3)),
    ],
)
def test_burgers_agrees_with_the_published(
    reference, name, arguments, n_fixed, tolerances
):
    published = np.load(reference(f"burgers_{name}.npz"))
    data = make_burgers(initial_condition="published", **arguments)
    assert data.X.shape == published["X"].shape
    assert data.X[:n_fixed] == pytest.approx(published["X"][:n_fixed], abs=1e-14)
    points = published["collocation_points"]
    assert data.collocation_points == pytest.approx(points, abs=1e-14)
    for points, values, tolerance in zip(
        ("X", "X_test"), ("y", "y_test"), tolerances, strict=True
    ):
        truth = data.truth(published[points])
        assert relative(truth, published[values]) < tolerance


# Darcy.


@pytest.fixture(scope="module")
def darcy():
    return make_darcy(n_functions=3, n_interior=8, random_state=0)


def test_darcy_layout(darcy):
    assert darcy.X.shape == (3 * 64, 3) and darcy.function_column == 2
    assert darcy.collocation_points.shape == (169, 2)
    assert darcy.X_test.shape == (3 * 900, 3)
    assert list(darcy.forcing) == [0.0, 1.0, 2.0]
    names = "x1 x2 u u_x1 u_x1x1 u_x2 u_x2x2 u_x1x2".split()
    assert darcy.feature_names == names
    inner = {tuple(row) for row in darcy.collocation_points}
    chosen = []
    for label in range(3):
        points = darcy.X[darcy.X[:, 2] == label, :2]
        on_boundary = np.any((points == 0) | (points == 1), axis=1)
        assert on_boundary.sum() == 56
        chosen.append({tuple(row) for row in points[~on_boundary]})
        assert len(chosen[-1]) == 8 and chosen[-1] <= inner
    assert chosen[0] != chosen[1]
    # 64 observations and 169 collocation points for each of three functions.
    assert darcy.kernels["observation_noise"] ** 2 == pytest.approx(192e-12 / 5)
    assert darcy.kernels["equation_noise"] ** 2 == pytest.approx(507e-12)
    assert darcy.kernels["n_inducing"] == 200
    assert darcy.kernels["state_kernel"].theta.size == 0
    assert darcy.kernels["equation_kernel"].theta.size == 0


def test_darcy_functions_depend_on_the_seed_only(darcy):
    more = make_darcy(n_functions=5, n_interior=20, random_state=0)
    rows = len(darcy.y_test)
    assert np.array_equal(more.y_test[:rows], darcy.y_test)


def test_darcy_forcing_is_the_divergence(darcy):
    # Finite volumes: differences of the flux through the faces, from values only.
    def a(x):
        return np.exp(np.sin(np.cos(x[:, 0]) + np.cos(x[:, 1])))

    X, h = darcy.collocation_points, 1e-3
    for label in (0.0, 2.0):
        f = np.zeros(len(X))
        for e in h * np.vstack([np.eye(2), -np.eye(2)]):
            change = darcy.truth(X + e, function=label) - darcy.truth(X, function=label)
            f += a(X + e / 2) * change / h**2
        assert relative(darcy.forcing[label], f) < 1e-5


def test_darcy_features_and_truth_agree(darcy):
    X = darcy.collocation_points
    S = features_of(darcy, X, function=1)
    assert darcy.unknown_part(S) == pytest.approx(darcy.forcing[1.0], rel=1e-12)
    labelled = np.column_stack([X, np.ones(len(X))])
    assert np.array_equal(darcy.truth(labelled, "u_x1"), S[:, 3])
    h = 1e-5
    step = np.array([0.0, h])
    u_x1 = [darcy.truth(X + s, "u_x1", function=1) for s in (-step, step)]
    assert (u_x1[1] - u_x1[0]) / (2 * h) == pytest.approx(S[:, 7], abs=1e-7)


@pytest.mark.parametrize("length_scale", [0.02, 0.2, 0.5, 5.0])
def test_darcy_basis_reproduces_the_kernel(length_scale):
    fields = _GaussianFields(0, length_scale, np.random.RandomState(0))
    x = np.linspace(0.0, 1.0, 31)
    basis = [fields._basis(x, order) for order in range(4)]
    tau = (x[:, None] - x) / length_scale
    gauss = np.exp(-0.5 * tau**2)
    hermite = [1, -tau, tau**2 - 1, 3 * tau - tau**3]
    for order in range(4):
        for other in range(4 - order):
            n = order + other
            # Derivatives by the second argument change the sign.
            expected = (-1) ** other * hermite[n] * gauss
            product = basis[order] @ basis[other].T * length_scale**n
            assert product == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("length_scale", [0.5, 0.2])
def test_darcy_draws_have_the_covariance(length_scale):
    n = 1000
    S = make_darcy(1, 0, grid_size=3).features(
        n, length_scale=length_scale, grid_size=3, random_state=1
    )
    assert len(S) == n and S[0].shape == (9, 8)
    points, u = S[0][:, :2], np.array([s[:, 2] for s in S])
    distance = np.linalg.norm(points[:, None] - points, axis=2)
    expected = np.exp(-0.5 * (distance / length_scale) ** 2)
    # An entry of the covariance of n draws has a standard error sqrt((1 + k^2) / n).
    deviation = (u.T @ u / n - expected) / np.sqrt((1 + expected**2) / n)
    assert np.max(abs(deviation)) < 4.5


def test_darcy_features_are_reproducible_and_solve_the_equation(darcy):
    first, again = (darcy.features(2, grid_size=101, random_state=7) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], first[1])
    u = first[0].reshape(101, 101, 8)
    u_x1x1 = np.diff(u[..., 2], n=2, axis=1) * 100**2
    assert relative(u[:, 1:-1, 4], u_x1x1) < 1e-3
    u_x2 = (u[2:, :, 2] - u[:-2, :, 2]) * 50
    assert relative(u[1:-1, :, 5], u_x2) < 1e-3


def test_a_grid_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="collocation_shape=.* GB of memory"):
        make_burgers(collocation_shape=(10**9, 31))
