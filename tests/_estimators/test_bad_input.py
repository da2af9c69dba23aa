"""What cannot be meant is refused by name; what means the same gives the same."""

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from keql import Equation, KernelPDESolver, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql._evolution.trajectory import Trajectory
from keql.datasets import make_burgers, make_lotka_volterra
from keql.exceptions import IdentifiabilityWarning, SimulationError
from keql.kernels import RBF, Constant, Matern, Polynomial
from keql.operators import gram, parse_operator
from keql.plotting import StateDisplay

T = np.linspace(0, 3, 12)[:, None]
Y = np.exp(-T[:, 0])
PLACES = np.linspace(0, 3, 15)[:, None]
GIVEN = {
    "operators": ("u",),
    "known_part": "u_t",
    "collocation_points": PLACES,
    "variables": ("t",),
    "state_kernel": RBF(1.0, "fixed"),
    "equation_kernel": Polynomial(1),
    "observation_noise": 1e-3,
    "equation_noise": 1e-3,
    "optimizer": None,
}
LEARNERS = [
    (TwoStepKEqL, {}),
    (OneStepKEqL, {"solver": "dual", "n_restarts": 0}),
    (ReducedOneStepKEqL, {"n_restarts": 0}),
]


def learner(kind=TwoStepKEqL, **changes):
    """A learner whose fit takes milliseconds."""
    return kind(**{**GIVEN, **dict(LEARNERS)[kind], **changes})


def recursive():
    own = []
    own.append(own)
    return own


def fails(points):
    raise ZeroDivisionError("own failure")


def masked(values):
    values = np.ma.masked_array(values, mask=False)
    values[0] = np.ma.masked
    return values


def numpy_only(u):
    return np.array([float(value) for value in u])


def random_part(u):
    return u + np.random.default_rng().normal(size=np.shape(u))


def random_forcing(points):
    return np.random.default_rng().normal(size=len(points))


WRONG = [
    ({"operators": (None,)}, "operators: the operator None"),
    ({"operators": ()}, "operators is empty"),
    ({"operators": ("",)}, "operators: the operator '' is empty"),
    ({"operators": recursive()}, "operators"),
    ({"operators": ("q",)}, "operators: the operator 'q' names the function 'q'"),
    ({"operators": b"u"}, "operators"),
    ({"known_part": RBF}, "known_part"),
    ({"known_part": lambda: 1.0}, "known_part is a function without arguments"),
    ({"known_part": lambda u: u[:1]}, r"known_part returned array\("),
    ({"known_part": lambda u: None}, "known_part returned"),
    ({"known_part": fails}, "known_part has the parameter 'points'"),
    ({"known_part": lambda u: 1 / 0}, "known_part failed .* ZeroDivisionError"),
    ({"known_part": lambda u: u if u > 0 else -u}, "known_part failed .* truth value"),
    ({"known_part": lambda u: np.cumsum(u)}, "known_part returned .* opposite order"),
    (
        {"known_part": numpy_only},
        "known_part cannot be differentiated: .*autograd.numpy",
    ),
    ({"known_part": random_part}, "known_part returned .* the same at each call"),
    ({"forcing": lambda: 1.0}, r"forcing failed when .*\(15, 1\): TypeError"),
    ({"forcing": fails}, "forcing failed when .* ZeroDivisionError: own failure"),
    ({"forcing": lambda p: 1.0 if p > 0 else 0.0}, "forcing failed .* truth value"),
    ({"forcing": lambda p: np.ones(3)}, r"forcing has values of shape \(3,\)"),
    ({"forcing": lambda p: None}, "forcing returned"),
    ({"forcing": lambda p: ["a"] * len(p)}, "forcing returned"),
    ({"forcing": lambda p: 1j * p[:, 0]}, "forcing returned .* Complex"),
    ({"forcing": random_forcing}, "forcing returned different values"),
    ({"forcing": [1.0, 2.0]}, "forcing has shape"),
    ({"inputs": {"p": fails}}, r"inputs\['p'\] failed"),
    ({"variables": (" ",)}, "variables"),
    ({"variables": (1,)}, "variables"),
    ({"states": (None,)}, "states"),
    ({"function_column": True}, "function_column=True is no column"),
    ({"state_kernel": RBF}, "state_kernel: the class RBF"),
    ({"state_kernel": {"u": RBF}}, "state_kernel: the class RBF"),
    ({"state_kernel": "RBF"}, "state_kernel: 'RBF' has no known derivatives"),
    ({"state_kernel": RBF(np.nan)}, "state_kernel: length_scale must be positive"),
    ({"state_kernel": RBF([1.0, 2.0])}, "state_kernel: length_scale of RBF has 2"),
    ({"state_kernel": Matern(1.0, nu=0.5)}, "state_kernel: the operator 'u_t'"),
    ({"state_kernel": Polynomial(1.5)}, "state_kernel: degree must be an integer"),
    ({"equation_kernel": RBF}, "equation_kernel: the class RBF"),
    ({"equation_kernel": np.inf}, "equation_kernel: a number used as a kernel"),
    ({"equations": []}, "equations is empty"),
    ({"collocation_points": 10**9}, "collocation_points=1,000,000,000 would take"),
    ({"collocation_points": PLACES.astype("M8[s]")}, "collocation_points"),
    ({"collocation_points": [[1.0], [1.0, 2.0]]}, "collocation_points"),
    ({"collocation_points": sparse.csr_matrix(PLACES)}, "collocation_points"),
    ({"collocation_points": masked(PLACES)}, "collocation_points is a masked array"),
    ({"collocation_points": np.empty((0, 1))}, "collocation_points"),
    (
        {"collocation_points": pd.DataFrame(PLACES, columns=["time"])},
        "collocation_points has the columns time, but the coordinates are t",
    ),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_parameters(changes, message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        learner(**changes).fit(T, Y)


@pytest.mark.parametrize("name", ["n_jobs", "max_iter"])
def test_zero_is_no_count(name):
    with pytest.raises(ValueError, match=name):
        learner(OneStepKEqL, **{name: 0}).fit(T, Y)


def test_wrong_parameters_of_named_equations():
    shared = {"operators": None, "known_part": None, "equation_kernel": None}
    shared["equation_noise"] = None
    for changes, message in (
        ({"operators": ()}, "operators is empty"),
        ({"operators": (None,)}, "operators: the operator None"),
        ({"kernel": RBF}, "kernel: the class RBF"),
        ({"forcing": fails}, "forcing failed"),
    ):
        equation = Equation(**{"known_part": "u_t", "operators": ("u",), **changes})
        with pytest.raises((ValueError, TypeError), match=message):
            learner(equations=[("first", equation)], **shared).fit(T, Y)


TABLES = [
    (masked(T), "X is a masked array in which 1 value"),
    (sparse.csr_matrix(T), "X is a sparse matrix"),
    (T + 1j, "X holds complex numbers"),
    (T.astype("M8[s]"), "X holds dates|X has the column 0, which holds dates"),
    (b"abc", "X is b'abc'"),
    ("abc", "X is 'abc'"),
    ({"a": 1}, "X is {'a': 1}"),
    ((row for row in T), "X is <generator"),
    (np.sin, "X is <ufunc"),
    (None, "X"),
    (1.0, "X"),
    ([[1.0], [1.0, 2.0]], "X"),
    (T[..., None], "X"),
    (T[:0], "X"),
    (T[:5], "X and y"),
    (T * 1e200, "X has .*above 1e\\+100"),
    (pd.DataFrame(np.hstack([T, T]), columns=["t", "t"]), "X has several columns"),
    (pd.DataFrame({"t": ["a"] * 12}), "X has the column 't', which holds text"),
]


@pytest.mark.parametrize(("X", "message"), TABLES)
def test_wrong_tables(X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        learner().fit(X, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (masked(Y), "y is a masked array"),
        (Y + 1j, "y holds complex"),
        (Y * np.inf, "y"),
        (Y * 1e200, "y has numbers of size 1e\\+200"),
        ({"a": 1}, "y is {'a': 1}"),
        (Y[:3], "X and y"),
        (["a"] * 12, "y holds text"),
    ],
)
def test_wrong_values(y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        learner().fit(T, y)


@pytest.mark.parametrize(
    "weights", [-np.ones(12), "abc", {"a": 1}, np.ones(3), [1j] * 12]
)
def test_wrong_weights(weights):
    with pytest.raises((ValueError, TypeError), match="sample_weight|negative"):
        learner().fit(T, Y, sample_weight=weights)


def test_labels_that_cannot_be_keys():
    table = pd.DataFrame({"t": T[:, 0], "run": [[1]] * 12})
    with pytest.raises(TypeError, match="function_column='run' of X has the entry"):
        learner(function_column="run").fit(table, Y)


@pytest.mark.parametrize("kind", [kind for kind, _ in LEARNERS])
def test_operators_named_twice_are_one(kind):
    once, twice = (learner(kind, operators=o).fit(T, Y) for o in (("u",), ("u", "u")))
    assert twice.equation_.terms() == once.equation_.terms()


def test_columns_are_found_by_their_names():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.uniform(size=(20, 2)), columns=["t", "x"])
    y = np.exp(-table["t"]) * np.sin(table["x"])
    how = {"variables": ("t", "x"), "observation_noise": 1e-5}
    places = table[:10]
    expected = learner(**how, collocation_points=places.to_numpy()).fit(
        table.to_numpy(), y
    )
    turned = learner(**how, collocation_points=places[["x", "t"]]).fit(
        table[["x", "t"]], y
    )
    np.testing.assert_allclose(
        turned.predict(table[["x", "t"]]), expected.predict(table.to_numpy()), rtol=1e-9
    )
    mixed = places.rename(columns={"x": "z"})
    with pytest.raises(ValueError, match="collocation_points has the columns t, z"):
        learner(**how, collocation_points=mixed).fit(table, y)


def test_questions_that_have_no_meaning():
    model = learner().fit(T, Y)
    S = model.equation_.features(model, T)
    asked = [
        (lambda: model.predict(T, return_std="yes"), "return_std is 'yes'"),
        (lambda: model.predict(masked(T)), "X is a masked"),
        (lambda: model.predict_derivative(T, {1, 2}), "operator"),
        (lambda: model.predict_derivative(T, "u_" + "t" * 200), "operator.*200 times"),
        (lambda: model.score(T, Y * np.inf), "y has the shape"),
        (lambda: model.score(T, Y[:3]), "X and y"),
        (lambda: model.score(T, Y, sample_weight=-Y), "sample_weight|Negative"),
        (lambda: model.simulate([0, 1], [1.0], method="abc"), "method is 'abc'"),
        (lambda: model.simulate([0, 1], [1.0], rtol=-1.0), "rtol must be positive"),
        (lambda: model.simulate([0, 1], [1.0], max_seconds="a"), "max_seconds"),
        (lambda: model.simulate([0, 1], [1.0], forcing=3.0), "forcing is 3.0"),
        (lambda: model.simulate([0, 1], [1.0], forcing=fails), "forcing failed"),
        (lambda: model.simulate([0, 1], [1.0], inputs=3), "inputs is 3"),
        (lambda: model.simulate(["a", "b"], [1.0]), "t_eval"),
        (lambda: model.equation_("abc"), "S is 'abc'"),
        (lambda: model.equation_(S[..., None]), "S has 3 dimension"),
        (lambda: model.equation_.features(RBF, T), "w is the class RBF"),
        (lambda: model.pde_solver(colour="red"), "colour"),
        (lambda: RBF("long")(T), "length_scale"),
        (lambda: RBF()(T, np.hstack([T, T])), "X has 1 and Y has 2"),
        (lambda: parse_operator("u_x", ("",)), "variables"),
        (lambda: parse_operator("u_x", ("x", "x")), "variables"),
    ]
    for ask, message in asked:
        with pytest.raises((ValueError, TypeError), match=message):
            pytest.fail(f"{message}: {ask()}")


def test_displays_refuse_what_they_cannot_draw():
    from matplotlib import pyplot

    model, draw = learner().fit(T, Y), StateDisplay.from_estimator
    for options, message in (
        ({"ax": pyplot.figure()}, "ax is <Figure"),
        ({"ax": "abc"}, "ax is 'abc'"),
        ({"grid_resolution": 0}, "grid_resolution must be positive"),
        ({"grid_resolution": 10**9}, "grid_resolution=1,000,000,000 would take"),
        ({"colourful": True}, "colourful"),
        ({"operator": "q"}, "operator"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            draw(model, T, Y, **options)
    with pytest.raises(TypeError, match="estimator: .*class"):
        draw(TwoStepKEqL, T, Y)
    pyplot.close("all")


def test_sizes_are_refused_before_they_start():
    u = parse_operator("u", ("t",))
    solver = KernelPDESolver({"u_t": 1, "u": 1}, variables=("t",), n_windows=10**9)
    with pytest.raises(ValueError, match="n_windows=1,000,000,000 would take 1e\\+09"):
        solver.fit([[0.0], [1.0]], [1.0, anp.exp(-1.0)])
    with pytest.raises(ValueError, match="dense covariance of 1,000,000 observed"):
        gram(RBF(1.0), [(np.zeros((10**6, 1)), u)])
    with pytest.raises(ValueError, match="degree=200 must be at most 170"):
        Polynomial(200).n_features(3)
    with pytest.raises(ValueError, match="theta=1e\\+06 would take"):
        make_burgers(theta=1e6)
    with pytest.raises(ValueError, match="t_end=1e\\+09 would take"):
        make_lotka_volterra(t_end=1e9)
    with pytest.raises(ValueError, match="n_samples=1,000,000,000 would take"):
        make_lotka_volterra(10**9)


@pytest.mark.parametrize("kind", [TwoStepKEqL, OneStepKEqL])
def test_priors_that_cannot_hold_the_data_are_told(kind):
    t = np.linspace(0, 6, 20)[:, None]
    given = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    y = 1e3 * np.sin(2 * t[:, 0])  # in millivolts
    fixed = Constant(1.0, "fixed") * Polynomial(1)
    with pytest.warns(
        IdentifiabilityWarning, match="multiply the kernel .* [48]e\\+06"
    ):
        model = kind(**given, equation_kernel=fixed).fit(t, y)
    assert any("pulled to zero" in text for text in model.fit_report_.concerns)
    # A number that is no usual one is a start of its own, not moved into bounds.
    model = kind(**given, equation_kernel=4e6 * Polynomial(1)).fit(t, y)
    assert model.equation_.terms()["u"] == pytest.approx(-4, rel=1e-4)


def test_forecasts_end_somewhere(monkeypatch):
    monkeypatch.setattr(Trajectory.__init__, "__defaults__", (0, 1e-9, 1e4, 500))
    model = learner(OneStepKEqL).fit(T, Y)
    with pytest.raises(SimulationError, match="X asks for too far a time"):
        model.forecast([[1e90]])


def test_numbers_that_no_computer_holds_are_refused():
    model, huge = learner(TwoStepKEqL), T.astype(object)
    huge[3, 0] = 10**400
    with pytest.raises(ValueError, match="X: int too large"):
        model.fit(huge, Y)
    with pytest.raises(ValueError, match="y has no numbers above 1e-300, and products"):
        model.fit(T, np.full(len(T), 1e-300))
    model = learner(TwoStepKEqL, equation_kernel=Polynomial(300))
    with pytest.raises(ValueError, match="degree=300 must be at most 170"):
        model.fit(T, Y)
    model.set_params(equation_kernel=Polynomial(160, scale=1e-3))
    with pytest.raises(ValueError, match="equation_kernel: .* is not finite"):
        model.fit(T, Y)
    with pytest.raises(TypeError, match="optimizer is the class RBF"):
        model.set_params(equation_kernel=None, optimizer=RBF, state_kernel=RBF(1.0))
        model.fit(T, Y)
    with pytest.raises(TypeError, match="variables has"):
        parse_operator("u_t", np.array("t"))


def two_steps(**settings):
    settings = {"operators": ("u",), "known_part": "u_t", **settings}
    t = np.linspace(0, 3, 12)
    return TwoStepKEqL(variables="t", **settings).fit(t[:, None], np.exp(-t))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"known_part": {}}, "known_part={} is zero"),
        ({"known_part": lambda u, u_t: u_t[:3]}, "known_part returned an array"),
        (
            {"state_kernel": RBF(1.0, (2, 1))},
            r"length_scale_bounds=\[2.0, 1.0\] must be",
        ),
        (
            {"state_kernel": RBF(1.0, (2.0, 1.0))},
            "length_scale_bounds=.* lower one first",
        ),
        ({"state_kernel": Constant(1.0, (0, 1)) * RBF(1.0)}, "constant_value_bounds="),
        ({"optimizer": lambda *_, **__: None}, "optimizer returned None"),
        ({"optimizer": lambda *_, **__: (0.0, 1.0)}, "the pair of theta, an array"),
        ({"collocation_points": 10**7}, "collocation_points=10,000,000 would take"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        two_steps(**settings)


def test_bytes_are_no_numbers():
    with pytest.raises(ValueError, match="y holds text such as"):
        TwoStepKEqL(("u",), "u_t", variables="t").fit(T, np.array([b"1"] * len(T)))


@pytest.mark.slow
def test_rows_that_take_too_much_memory_are_refused_before_a_search(monkeypatch):
    from keql._numerics.memory import MemoryBudget
    from keql._numerics.optimisation import Interruption

    monkeypatch.setattr(Interruption, "best", None)  # nothing is to be searched
    monkeypatch.setattr(MemoryBudget, "bytes", lambda self: 2.5e7)
    points = np.random.default_rng(0).uniform(size=(200_000, 2))
    model = TwoStepKEqL(("u",), "u_t", variables=("t", "x"))
    with pytest.raises(ValueError, match="covariance of 2,000 .* memory"):
        model.fit(points, points[:, 0])


def test_options_of_simulate_are_known():
    model = two_steps()
    with pytest.raises(TypeError, match="simulate has no option 'methd'"):
        model.simulate([0.0, 1.0], [1.0], methd="RK45")
