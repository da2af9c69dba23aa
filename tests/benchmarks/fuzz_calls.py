"""Valid calls of everything that is public, and what each of their arguments is."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

import keql.datasets
import keql.kernels
import keql.metrics
import keql.model_selection
import keql.operators
import keql.plotting
from keql import (
    Equation,
    KernelPDESolver,
    OneStepKEqL,
    ReducedOneStepKEqL,
    TwoStepKEqL,
)
from keql.kernels import RBF, Matern, Polynomial


@dataclass
class Case:
    """A valid call: a function of its arguments, and what each of them is.

    `also` are names that an error may have in the place of that of the argument, as of
    the parameter that an argument is a part of.
    """

    name: str
    call: object
    arguments: dict
    roles: dict
    also: tuple = ()


T = np.linspace(0, 3, 12)[:, None]
EXACT = np.exp(-T[:, 0])
RNG = np.random.default_rng(0)
PLANE = RNG.uniform(size=(20, 2))
HEAT = np.exp(-PLANE[:, 0]) * np.sin(PLANE[:, 1])
WHERE = np.linspace(0.1, 2.9, 7)[:, None]
LEARNER = {
    "operators": ("u",),
    "known_part": "u_t",
    "collocation_points": np.linspace(0, 3, 15)[:, None],
    "forcing": lambda points: 0 * points[:, 0],
    "variables": ("t",),
    "function_column": None,
    "operator_column": None,
    "inputs": None,
    "states": ("u",),
    "equations": None,
    "units": {"t": "s"},
    "state_kernel": RBF(1.0, "fixed"),
    "equation_kernel": Polynomial(1),
    "observation_noise": 1e-3,
    "equation_noise": 1e-3,
    "state_penalty": 1.0,
    "n_inducing": 50,
    "optimizer": None,
    "n_restarts": 0,
    "verbose": 0,
    "random_state": 0,
}
ONE_STEP = {
    **LEARNER,
    "n_terms": None,
    "solver": "dual",
    "max_iter": 20,
    "tol": 1e-6,
    "warm_start": False,
    "n_jobs": None,
}
ROLES = {
    "X": "points",
    "y": "values",
    "sample_weight": "weights",
    "operators": "operators",
    "known_part": "known_part",
    "equation": "known_part",
    "collocation_points": "collocation",
    "forcing": "function",
    "variables": "names",
    "states": "names",
    "function_column": "column",
    "operator_column": "column",
    "inputs": "dict",
    "equations": "any",
    "units": "dict",
    "state_kernel": "kernel",
    "equation_kernel": "kernel",
    "observation_noise": "number",
    "equation_noise": "number",
    "state_penalty": "number",
    "n_inducing": "count",
    "n_basis": "count",
    "n_terms": "count",
    "optimizer": "choice",
    "solver": "choice",
    "n_restarts": "count",
    "max_iter": "count",
    "tol": "number",
    "warm_start": "flag",
    "n_jobs": "jobs",
    "verbose": "any",
    "random_state": "any",
    "n_windows": "count",
    "boundary_operators": "operators",
}


def fits(kind, X, y, where, **settings):
    """A case of fitting and predicting, with all arguments of `fit` as well."""

    def call(X, y, sample_weight=None, **params):
        model = kind(**params)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        places = where
        if set(getattr(X, "columns", ())) == {"t", "x"}:  # in their order
            places = pd.DataFrame(where, columns=["t", "x"])[list(X.columns)]
        return model.fit(X, y, **weights).predict(places)

    arguments = {"X": X, "y": y, **settings}
    if kind is not KernelPDESolver:
        arguments["sample_weight"] = np.ones(len(X))
    roles = {name: ROLES[name] for name in arguments}
    return Case(kind.__name__ + ".fit", call, arguments, roles)


def fit_cases():
    """Cases of fitting: an ODE, a system, a PDE, functions, and a solver."""
    yield fits(TwoStepKEqL, T, EXACT, WHERE, **LEARNER)
    yield fits(OneStepKEqL, T, EXACT, WHERE, **ONE_STEP)
    reduced = ONE_STEP | {"n_basis": 8}
    yield fits(ReducedOneStepKEqL, T, EXACT, WHERE, **reduced)
    exact = ONE_STEP | {"state_kernel": None, "solver": "auto", "equation_noise": None}
    yield fits(OneStepKEqL, T, EXACT, WHERE, **exact)
    pair = np.column_stack([np.sin(T), np.cos(T)])
    system = {
        "operators": ("u", "v"),
        "known_part": ("u_t", "v_t"),
        "states": ("u", "v"),
        "forcing": None,
    }
    yield fits(OneStepKEqL, T, pair, WHERE, **ONE_STEP | system)
    plane = {
        "operators": ("u", "u_xx"),
        "variables": ("t", "x"),
        "collocation_points": PLANE[:10],
        "units": None,
    }
    yield fits(OneStepKEqL, PLANE, HEAT, PLANE[:5], **ONE_STEP | plane)
    yield fits(TwoStepKEqL, PLANE, HEAT, PLANE[:5], **LEARNER | plane)
    labels = np.repeat([[1.0], [2.0]], 12, axis=0)
    stacked = np.hstack([np.vstack([T, T]), labels])
    both = np.concatenate([EXACT, 2 * EXACT])
    some = np.hstack([WHERE, np.ones_like(WHERE)])
    functions = {"function_column": 1, "inputs": {"p": {1.0: 1.0, 2.0: 2.0}}}
    case = fits(OneStepKEqL, stacked, both, some, **ONE_STEP | functions)
    case.roles["X"] = "values"  # the column of labels is one by its position
    yield case
    ends = np.array([[0.0], [3.0]])
    solver = {
        "equation": {"u_tt": 1, "u": 1},
        "collocation_points": np.linspace(0, 3, 15)[:, None],
        "forcing": lambda points: points[:, 0],
        "variables": ("t",),
        "states": ("u",),
        "inputs": None,
        "units": {"t": "s"},
        "boundary_operators": ("u",),
        "operator_column": None,
        "function_column": None,
        "state_kernel": RBF(1.0),
        "observation_noise": 0.0,
        "equation_noise": 0.0,
        "n_windows": 1,
        "max_iter": 10,
        "tol": 1e-4,
        "n_jobs": None,
        "verbose": 0,
    }
    yield fits(KernelPDESolver, ends, np.array([0.0, 1.0]), WHERE, **solver)


def method_cases():
    """Cases of what is asked of fitted models."""
    ode = OneStepKEqL(**ONE_STEP).fit(T, EXACT)
    heat = {"operators": ("u", "u_xx"), "variables": ("t", "x"), "units": None}
    heat["collocation_points"] = PLANE[:10]
    field = TwoStepKEqL(**LEARNER | heat).fit(PLANE, HEAT)
    for model, X, y in (ode, WHERE, np.exp(-WHERE[:, 0])), (field, PLANE, HEAT):
        flag = {"X": X, "return_std": False}
        kinds = {"X": "points", "return_std": "flag"}
        yield Case("predict", model.predict, flag, kinds)
        derived = {"X": X, "operator": "u_t", "return_std": False}
        how = kinds | {"operator": "operator"}
        yield Case("predict_derivative", model.predict_derivative, derived, how)
        scored = {"X": X, "y": y, "sample_weight": np.ones(len(X))}
        how = {"X": "points", "y": "values", "sample_weight": "weights"}
        yield Case("score", model.score, scored, how)
        yield Case("coordinates", model.coordinates, {"X": X}, {"X": "points"})
    later = {"X": WHERE + 3, "return_std": False}
    kinds = {"X": "points", "return_std": "flag"}
    yield Case("forecast", ode.forecast, later, kinds)
    simulated = {
        "t_eval": np.linspace(0, 1, 5),
        "initial": [1.0],
        "forcing": lambda points: 0 * points[:, 0],
        "inputs": None,
        "return_std": False,
        "method": "DOP853",
        "rtol": 1e-6,
        "max_evaluations": 10_000,
        "max_seconds": 5.0,
    }
    how = {
        "t_eval": "values",
        "initial": "values",
        "forcing": "function",
        "inputs": "dict",
        "return_std": "flag",
        "method": "choice",
        "rtol": "number",
        "max_evaluations": "number",
        "max_seconds": "number",
    }
    yield Case("simulate", ode.simulate, simulated, how)
    equation = field.equation_
    S = equation.features(field, PLANE)
    for name in ("__call__", "unknown_part", "gradient", "extrapolation"):
        yield Case(name, getattr(equation, name), {"S": S}, {"S": "numbers"})
    asked = {"w": field, "X": PLANE, "inputs": None}
    how = {"w": "any", "X": "points", "inputs": "dict"}
    yield Case("features", equation.features, asked, how, ("function",))
    yield Case("apply", equation.apply, asked, how, ("function",))
    yield Case("sparse", equation.sparse, {"n_terms": 2}, {"n_terms": "count"})

    def solve(**params):
        solver = ode.pde_solver(**params)
        return solver.fit([[0.0], [3.0]], [1.0, np.exp(-3.0)]).predict(WHERE)

    params = {
        "forcing": LEARNER["forcing"],
        "variables": ("t",),
        "collocation_points": LEARNER["collocation_points"],
        "max_iter": 10,
    }
    yield Case("pde_solver", solve, params, {n: ROLES[n] for n in params})
    yield from display_cases(ode, field)


def display_cases(ode, field):
    """Cases of displays."""
    kinds = {
        "estimator": "object",
        "X": "points",
        "y": "values",
        "ax": "axes",
        "operator": "shown operator",
        "function": "any",
        "quantity": "choice",
        "grid_resolution": "count",
        "equation": "any",
    }
    state = {"estimator": ode, "X": T, "y": EXACT, "ax": None, "operator": "u_t"}
    state |= {"function": None, "quantity": "mean", "grid_resolution": 10}
    draw = keql.plotting.StateDisplay.from_estimator
    yield Case("StateDisplay", _drawn(draw), state, kinds)
    draw = keql.plotting.LossCurveDisplay.from_estimator
    loss = {"estimator": ode, "ax": None}
    yield Case("LossCurveDisplay", _drawn(draw), loss, kinds)
    draw = keql.plotting.EquationParityDisplay.from_estimator
    parity = {"estimator": field, "equation": None, "ax": None}
    yield Case("EquationParityDisplay", _drawn(draw), parity, kinds)
    draw = keql.plotting.ErrorDisplay.from_estimator
    error = {"estimator": field, "X": PLANE, "y": HEAT, "ax": None}
    yield Case("ErrorDisplay", _drawn(draw), error, kinds)


def _drawn(draw):
    """A function that draws, and closes what it has drawn."""

    def call(**arguments):
        import matplotlib.pyplot as plt

        try:
            draw(**arguments)
        finally:
            plt.close("all")

    return call


def other_cases():
    """Cases of kernels, operators, data sets and measures of errors."""
    for kind, own in (
        (RBF, {"length_scale": 1.0, "active_dims": None}),
        (Matern, {"length_scale": 1.0, "nu": 2.5}),
        (Polynomial, {"degree": 2, "scale": 1.0, "center": 0.0}),
        (keql.kernels.Periodic, {"length_scale": 1.0, "periodicity": 1.0}),
        (keql.kernels.RationalQuadratic, {"length_scale": 1.0, "alpha": 1.0}),
    ):

        def call(X, Y, kind=kind, **params):
            return kind(**params)(X, Y)

        arguments = {"X": PLANE, "Y": PLANE[:4], **own}
        roles = {name: "number" for name in own} | {"X": "numbers", "Y": "numbers"}
        roles |= {"active_dims": "any", "degree": "count", "center": "real"}
        roles = {name: roles[name] for name in arguments}
        yield Case(kind.__name__, call, arguments, roles)
    asked = {"operator": "u_x", "variables": ("t", "x"), "states": ("u",)}
    how = {"operator": "operator", "variables": "names", "states": "names"}

    def parsed(**arguments):
        keql.operators.parse_operator(**arguments)

    yield Case("parse_operator", parsed, asked, how)
    pair = {"y_true": HEAT, "y_pred": HEAT + 0.1}
    how = {"y_true": "values", "y_pred": "values"}
    yield Case("relative_l2_error", keql.metrics.relative_l2_error, pair, how)
    fill = {"points": PLANE[:5], "domain": PLANE}
    how = {"points": "values", "domain": "values"}
    yield Case("fill_distance", keql.metrics.fill_distance, fill, how)
    for make, own in (
        (keql.datasets.make_lorenz, {"n_samples": 10, "t_end": 1.0}),
        (keql.datasets.make_lotka_volterra, {"n_samples": 10, "t_end": 1.0}),
        (keql.datasets.make_duffing, {"n_observations": 10, "t_max": 1.0}),
    ):

        def sizes(make=make, **arguments):
            return make(**arguments).X

        own = own | {"noise": 0.0, "random_state": 0}
        how = {"noise": "number", "random_state": "any"}
        how |= {"n_samples": "count", "n_observations": "count"}
        how |= {"t_end": "number", "t_max": "number"}
        how = {name: how[name] for name in own}
        yield Case(make.__name__, sizes, own, how)
    equation = {
        "known_part": "u_t",
        "operators": ("u",),
        "collocation_points": LEARNER["collocation_points"],
        "forcing": lambda points: 0 * points[:, 0],
        "kernel": Polynomial(1),
        "n_terms": None,
        "noise": 1e-3,
    }
    given = {name: LEARNER[name] for name in LEARNER if name not in equation}
    given |= {"equation_kernel": None, "equation_noise": None}

    def named(**arguments):
        equations = [("first", Equation(**arguments))]
        return TwoStepKEqL(**given | {"equations": equations}).fit(T, EXACT).predict(T)

    roles = ROLES | {"kernel": "kernel", "noise": "number"}
    yield Case("Equation", named, equation, {n: roles[n] for n in equation})


FLAGS = {"has_forcing", "in_doubt"}


def reading_cases():
    """Cases of what is asked of equations, folds, measures of errors and data sets."""
    ode = OneStepKEqL(**ONE_STEP).fit(T, EXACT)
    equation, system = ode.equation_, fitted_system()
    read = {"term": "u", "points": T, "return_std": False}
    how = {"term": "term", "points": "numbers", "return_std": "flag"}
    yield Case("coefficient", equation.coefficient, read, how)
    how = {"dictionary": "dictionary"}
    yield Case("project", _quietly(equation.project), {"dictionary": 2}, how)
    how = {"tol": "number", "max_terms": "count"}
    limits = {"tol": 0.01, "max_terms": 4}
    yield Case("formula", _quietly(equation.formula), limits, how)
    yield Case("terms", equation.terms, {"return_std": False}, {"return_std": "flag"})

    def read_again(plain):
        type(equation).from_dict(plain).unknown_part(np.ones((3, 2)))

    saved = {"plain": equation.to_dict()}
    yield Case("from_dict", read_again, saved, {"plain": "plain"})

    def changed(**arguments):
        read_again(arguments)

    how = {key: "flag" if key in FLAGS else "plain" for key in saved["plain"]}
    yield Case("from_dict entry", changed, saved["plain"], how)
    asked = {"t_eval": np.linspace(0, 1, 5), "initial": {"u": 1.0, "v": 0.5}}
    how = {"t_eval": "values", "initial": "initial"}
    yield Case("simulate system", system.equation_.simulate, asked, how)
    folds = {"n_splits": 2, "shuffle": True, "random_state": 0}
    labels = np.column_stack([np.vstack([T, T]), np.repeat([1.0, 2.0], 12)])

    def split(X, **params):
        kind = keql.model_selection.FunctionKFold(function_column=1, **params)
        list(kind.split(X))

    how = {"X": "labelled", "n_splits": "count", "shuffle": "flag"}
    how["random_state"] = "seed"
    yield Case("FunctionKFold", split, {"X": labels, **folds}, how)
    how = {"equation": "object", "features": "numbers", "unknown_part": "part"}
    known = {"equation": equation, "features": np.hstack([T, T]), "unknown_part": EXACT}
    yield Case("equation_error", keql.metrics.equation_error, known, how)
    scored = {"estimator": ode, "X": T, "y": EXACT}
    how = {"estimator": "object", "X": "points", "y": "values"}
    yield Case("filtering_error", keql.metrics.filtering_error, scored, how)
    yield Case("phase", _drawn(_phase), {"estimator": system, **PORTRAIT}, HOW_PORTRAIT)
    yield from small_data_sets()


PORTRAIT = {"X": T, "states": ("u", "v"), "function": None, "directions": True}
PORTRAIT |= {"grid_resolution": 20, "ax": None}
HOW_PORTRAIT = {"estimator": "object", "X": "any", "states": "names", "ax": "axes"}
HOW_PORTRAIT |= {"function": "any", "directions": "flag", "grid_resolution": "count"}


def _phase(**arguments):
    """A phase portrait."""
    keql.plotting.PhasePortraitDisplay.from_estimator(**arguments)


def _quietly(call):
    """The call without its answer, of which only errors count."""

    def run(**arguments):
        call(**arguments)

    return run


def fitted_system():
    """A model of two states."""
    pair = np.column_stack([np.sin(T), np.cos(T)])
    names = {"operators": ("u", "v"), "known_part": ("u_t", "v_t")}
    system = ONE_STEP | names | {"states": ("u", "v"), "forcing": None}
    return OneStepKEqL(**system).fit(T, pair)


def small_data_sets():
    """Cases of data sets that take more than numbers of samples."""
    sets = keql.datasets
    burgers = {"n_interior": 5, "theta": 1.0, "nu": 0.1, "initial_condition": None}
    burgers |= {"layout": "random", "collocation_shape": (4, 5)}
    heat = {"n_interior": 5, "n_wall": 3, "conductivity": 0.2, "transfer": 2.0}
    heat |= {"ambient": 0.3}
    darcy = {"n_functions": 2, "n_interior": 3, "length_scale": 0.5, "grid_size": 5}
    lorenz = {"n_samples": 5, "t_end": 1.0, "initial": (-8.0, 8.0, 27.0)}
    lorenz |= {"parameters": (10.0, 28.0, 2.7), "observed": ("x", "z"), "streams": None}
    kinds = {
        "initial_condition": "initial function",
        "layout": "choice",
        "collocation_shape": "values",
        "parameters": "values",
        "initial": "values",
        "observed": "names",
        "streams": "any",
        "theta": "real",
    }
    for make, own in (
        (sets.make_burgers, burgers),
        (sets.make_heat_with_boundary_law, heat),
        (sets.make_darcy, darcy),
        (sets.make_fitzhugh_nagumo, {"n_samples": 5, "t_end": 1.0}),
        (sets.make_lorenz, lorenz),
    ):
        arguments = own | {"noise": 0.0, "random_state": 0}
        how = {
            name: kinds.get(
                name, "count" if isinstance(value, int) and value else "number"
            )
            for name, value in arguments.items()
        }
        how |= {"random_state": "seed"} | (
            {"ambient": "real"} if "ambient" in own else {}
        )
        yield Case(make.__name__, _quietly(make), arguments, how)
