"""The scale of states that were never measured is that of their prior."""

import warnings

import numpy as np
import pytest

from keql import Equation, IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._regression.two_step import FitSettings, Hypothesis, refit_two_steps
from keql.kernels import RBF, Constant, Polynomial

T = np.linspace(0, 6, 30)[:, None]
KERNELS = {"x": RBF(1.0), "y": 9.0 * RBF(0.5)}


def learn(y, **changes):
    """x' = P(x, y), y' = P(x), of which y may be hidden."""
    laws = [
        ("x", Equation("x_t", ("x", "y"))),
        ("y", Equation({"y_t": 2}, ("x",))),
        ("seen", Equation("x_t", ("x",))),
    ]
    settings = {"states": ("x", "y"), "variables": ("t",), "state_kernel": KERNELS}
    settings |= {"optimizer": None, "collocation_points": 40, "equations": laws}
    return TwoStepKEqL(**settings | changes)._learn_in_two_steps(T, y, None)


def kernel_of(learned, position):
    """Scale and centre of the operators, and the variance."""
    given = learned.equations[position].equation_kernel.get_params()
    return given["k2__scale"], given["k2__center"], given["k1__constant_value"]


def test_features_of_a_hidden_state_have_the_size_of_the_prior():
    learned = learn(np.sin(T[:, 0]))
    scale, center, variance = kernel_of(learned, 0)
    assert scale[1] == pytest.approx(3.0) and center[1] == pytest.approx(0.0, abs=1e-9)
    x = learned.states[0].evaluate(learned.setup.collocation_points[0], L(learned, "x"))
    assert scale[0] == pytest.approx(np.std(x)) and center[0] == pytest.approx(
        np.mean(x)
    )
    target = learned.targets[0]
    assert variance == pytest.approx(np.mean(target**2))
    # 2 y_t has the standard deviation 2 * 3 / 0.5.
    assert kernel_of(learned, 1)[2] == pytest.approx(12.0**2)


def L(learned, name):
    return next(o for o in learned.setup.operators if o.name == name)


def test_the_scale_stays_whatever_the_states_are():
    """Fitted values that shrink do not take the prior of the equations along."""
    first = learn(np.sin(T[:, 0]), optimizer="fmin_l_bfgs_b")
    n_points = len(first.setup.collocation_points[0])
    values = np.concatenate([np.sin(T[:, 0])] + [np.ones(n_points)] * 4)
    found = []
    for size in (1.0, 1e-9):
        shrunk = values.copy()
        for q, operator in enumerate(first.setup.operators):
            rows = slice(30 + q * n_points, 30 + (q + 1) * n_points)
            wave = np.sin(np.arange(n_points) + q)
            shrunk[rows] = wave * (size if operator.state == "y" else 1.0)
        settings = FitSettings(random_state=0)
        kernel = first.state_kernel
        again = refit_two_steps(first, Hypothesis(), settings, kernel, [shrunk])
        found.append(again)
    for position in (0, 1):
        one, other = (kernel_of(learned, position) for learned in found)
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    bounds = "k1__constant_value_bounds"
    fixed = [e.equation_kernel.get_params()[bounds] for e in found[0].equations]
    assert fixed[:2] == ["fixed", "fixed"] and not isinstance(fixed[2], str)


def test_a_kernel_made_for_other_states_has_the_variance_of_the_prior():
    """Its own one was of what two steps see of a hidden state, which is nothing."""
    found = []
    for kernel in (None, 1.0 * Polynomial(2), Constant(1.0, "fixed") * Polynomial(2)):
        laws = [("y", Equation({"y_t": 2}, ("x",), kernel=kernel))]
        learned = learn(np.sin(T[:, 0]), optimizer="fmin_l_bfgs_b", equations=laws)
        found.append(kernel_of(learned, 0)[2])
    assert found == pytest.approx([12.0**2, 12.0**2, 1.0])


def test_states_that_were_measured_tell_their_scale():
    y = np.column_stack([np.sin(T[:, 0]), 1e-3 * np.cos(T[:, 0])])
    scale, _, _ = kernel_of(learn(y), 0)
    assert scale[1] < 2e-3
    # A derivative is enough.
    X = np.empty((60, 2), dtype=object)
    X[:, 0], X[:, 1] = np.tile(T[:, 0], 2), np.repeat(["x", "y_t"], 30)
    model = TwoStepKEqL(
        ("x", "y"), ("x_t", "y_t"), variables=("t",), states=("x", "y")
    ).set_params(operator_column=1, state_kernel=KERNELS, optimizer=None)
    model.set_params(equation_kernel=Polynomial(1), observation_noise=1e-4)
    with pytest.warns(
        IdentifiabilityWarning, match="x_t is uncertain"
    ):  # y + c will do
        model.fit(X, y.T.ravel())
    assert model.equation_kernel_["x_t"].get_params()["scale"][1] < 1e-2


def observed(n_values, n_other=26):
    """A damped rotation of x and y; y has `n_values` values, at the first times."""
    t = np.linspace(0, 5, n_other)[:, None]
    states = np.exp(-0.2 * t) * np.column_stack([np.sin(t), np.cos(t)])
    seen = states.copy()
    seen[n_values:, 1] = np.nan
    return t, seen, states


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [None, Polynomial(1)])
def test_a_single_value_of_a_state_tells_its_unit_but_not_how_it_varies(kernel):
    t, seen, states = observed(1)
    model = OneStepKEqL(("x", "y"), ("x_t", "y_t"), equation_kernel=kernel)
    model.set_params(states=("x", "y"), variables="t")
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(t, seen)
    values = model.equation_.simulate(t, {"x": states[0, 0], "y": states[0, 1]})
    np.testing.assert_allclose(values[:, 0], states[:, 0], atol=1e-6)
    # Another equation for it may have as few terms, if nothing is said of them.
    told = " ".join(str(w.message) for w in caught)
    assert ("1 value of y may be" in told) == (kernel is None)


@pytest.mark.parametrize(
    ("n_values", "n_other", "hidden"),
    [(0, 26, ["y"]), (1, 26, ["y"]), (3, 26, ["y"]), (4, 26, []), (2, 2, [])],
)
def test_few_values_do_not_tell_how_a_state_varies(n_values, n_other, hidden):
    t, seen, _ = observed(n_values, n_other)
    model = TwoStepKEqL(("x", "y"), ("x_t", "y_t"), states=("x", "y"), variables="t")
    assert model._learn_in_two_steps(t, seen, None).observations.hidden_states == hidden


def test_many_initial_values_are_no_motion():
    """Each function has one value of y: its unit is known, but no length scale."""
    t, seen, _ = observed(1)
    X = np.vstack([np.column_stack([t, np.full(26, m)]) for m in range(5)])
    settings = {"states": ("x", "y"), "variables": "t", "function_column": 1}
    model = TwoStepKEqL(("x", "y"), ("x_t", "y_t"), **settings)
    learned = model._learn_in_two_steps(X, np.tile(seen, (5, 1)), None)
    assert learned.observations.hidden_states == ["y"]


def test_the_report_says_what_is_free_of_a_state_without_values():
    t, seen, _ = observed(0)
    kernels = {"x": RBF(1.0), "y": RBF(1.0)}
    model = TwoStepKEqL(("x", "y"), ("x_t", "y_t"), state_kernel=kernels)
    model.set_params(states=("x", "y"), variables="t", optimizer=None)
    with warnings.catch_warnings(record=True, action="always"):
        model.fit(t, seen)
    rows = {name: row for name, *row in model.fit_report_.sections()["Data"]}
    assert rows["y"][0] == "not measured"
    assert rows["y"][1].startswith("its unit is not determined by the data")
    assert rows["x"][1] == "26 values"
