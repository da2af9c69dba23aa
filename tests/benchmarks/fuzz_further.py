"""Still more valid calls: nested arguments, names, and fits one after another.

Also changes that are of no single argument: two that are swapped, one that is
misspelt, one inside of another.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
from fuzz_calls import (
    EXACT,
    HEAT,
    LEARNER,
    ONE_STEP,
    PLANE,
    ROLES,
    WHERE,
    Case,
    T,
    _drawn,
    _quietly,
    fitted_system,
)
from fuzz_mutations import JUNK, POOLS, _junk
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import Kernel as AnyKernel

import keql.kernels
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


class DiffersError(BaseException):
    """An answer depends on what it must not depend on."""


# --- changes of no single argument --------------------------------------------------


def swapped(arguments, rng):
    """Two arguments in each other's place."""
    first, second = rng.choice(sorted(arguments), 2, replace=False)
    changed = arguments | {first: arguments[second], second: arguments[first]}
    return f"{first} and {second}", "swapped", "any", changed


def misspelt(arguments, rng):
    """An argument that is called otherwise."""
    name = rng.choice(sorted(arguments))
    wrong = [name + "s", name[:-1], name.upper(), name.replace("_", ""), "_" + name]
    wrong = str(rng.choice([each for each in wrong if each not in arguments]))
    changed = {(wrong if key == name else key): v for key, v in arguments.items()}
    return f"{name} and {wrong}", "misspelt", "any", changed


def nested(arguments, rng):
    """Something else in the place of a part of an argument."""
    candidates = [name for name, value in arguments.items() if _parts(value)]
    if not candidates:
        return None
    name = rng.choice(sorted(candidates))
    inside, changed = _replaced(arguments[name], rng)
    names = " and ".join([name, *(each for each in inside if isinstance(each, str))])
    label = f"inside at {'.'.join(str(each) for each in inside)}"
    return names, label, "any", arguments | {name: changed}


def _parts(value):
    """Keys of the parts of a value."""
    if isinstance(value, AnyKernel | Equation):
        return sorted(value.get_params(deep=False))
    if isinstance(value, dict):
        return list(value)
    if isinstance(value, list | tuple):
        return list(range(len(value)))
    return []


def _replaced(value, rng):
    """Keys that lead to a part, and the value with another part there."""
    keys = _parts(value)
    if not keys or rng.random() < 0.1:
        label, junk, _ = JUNK[rng.integers(len(JUNK))]
        is_made = getattr(junk, "__name__", "") == "<lambda>"
        return (f"({label})",), junk(value) if is_made else junk
    key = keys[rng.integers(len(keys))]
    if isinstance(value, AnyKernel | Equation):
        own = value.get_params(deep=False)
        inside, own[key] = _replaced(own[key], rng)
        return (key, *inside), type(value)(**own)
    inside, part = _replaced(value[key], rng)
    if isinstance(value, dict):
        return (key, *inside), {**value, key: part}
    parts = [*value[:key], part, *value[key + 1 :]]
    return inside, type(value)(parts)


STRUCTURAL = [swapped, misspelt, nested, nested]


# --- fits one after another -----------------------------------------------------------


def again_cases():
    """Fits of models that were fitted before, also after a fit that failed."""
    settings = {k: v for k, v in LEARNER.items() if k != "collocation_points"}
    settings |= {"collocation_points": 12, "forcing": None}  # functions are not saved
    kinds = {"two steps": TwoStepKEqL(**settings)}
    kinds["joint"] = OneStepKEqL(**ONE_STEP | settings | {"max_iter": 5})
    solver = KernelPDESolver({"u_tt": 1, "u": 1}, variables=("t",))
    kinds["solver"] = solver.set_params(state_kernel=RBF(1.0), collocation_points=12)
    other = np.linspace(0, 2, 9)[:, None], np.cos(np.linspace(0, 2, 9))
    for name, model in kinds.items():

        def call(X, y, model=model):
            used = clone(model).fit(*other)
            before = set(vars(used))
            try:
                used.fit(X, y)
            except Exception:
                _check_whole(used, before)
                raise
            found = used.predict(WHERE)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = pickle.loads(pickle.dumps(used)).predict(WHERE)
            fresh = clone(model).fit(X, y).predict(WHERE)
            for what, answer in ("fresh", fresh), ("loaded", loaded):
                if not np.array_equal(answer, found, equal_nan=True):
                    raise DiffersError(f"a {what} model predicts otherwise")
            return found

        given = {"X": T, "y": EXACT}
        yield Case(f"again, {name}", call, given, {"X": "points", "y": "values"})


def _check_whole(model, before):
    """Whether all attributes of a fit are there, or none."""
    try:
        model.predict(WHERE)
    except NotFittedError:
        left = {n for n in vars(model) if n.endswith("_") and not n.startswith("_")}
        if left:
            raise DiffersError(f"{sorted(left)} are left of a fit") from None
    if len(vars(model)) < len(before) and hasattr(model, "states_"):
        raise DiffersError("attributes are lost of a fit")


def table_cases():
    """What is asked of a model that was fitted to a table, in tables."""
    names = ("t", "x")
    table = pd.DataFrame(PLANE, columns=names)
    heat = {"operators": ("u", "u_xx"), "variables": names, "units": None}
    heat["collocation_points"] = table[:10]
    model = TwoStepKEqL(**LEARNER | heat).fit(table, pd.Series(HEAT, name="u"))
    yield Case(
        "predict of a table", model.predict, {"X": table}, {"X": "points of a table"}
    )
    asked = {"X": table, "operator": "u_x"}
    how = {"X": "points of a table", "operator": "operator"}
    yield Case("derivative of a table", model.predict_derivative, asked, how)
    asked = {"w": model, "X": table}
    features = _quietly(model.equation_.features)
    yield Case(
        "features of a table", features, asked, {"w": "any", "X": "points of a table"}
    )
    drawn = {"estimator": model, "X": table, "y": HEAT, "at": {"t": 0.5}}
    drawn |= {"uncertainty": False, "ax": None}
    how = {"estimator": "object", "X": "points of a table", "y": "values", "at": "at"}
    how |= {"uncertainty": "flag", "ax": "axes"}
    draw = keql.plotting.StateDisplay.from_estimator
    yield Case("slice", _drawn(draw), drawn, how)
    asked = {"estimator": model, "term": "u_xx", "points": None, "quantity": "mean"}
    asked |= {"grid_resolution": 5, "ax": None}
    how = {"estimator": "object", "term": "term", "points": "any", "ax": "axes"}
    how |= {"quantity": "choice", "grid_resolution": "count"}
    draw = keql.plotting.CoefficientDisplay.from_estimator
    yield Case("coefficient display", _drawn(draw), asked, how)


# --- nested arguments -----------------------------------------------------------------


def nested_cases():
    """Kernels, equations and parameters inside of parameters."""
    lengths = {"length_scale": 1.0, "length_scale_bounds": (1e-3, 1e3)}
    lengths["active_dims"] = None

    def of_kernel(kind):
        def call(**own):
            model = TwoStepKEqL(**LEARNER | {"state_kernel": kind(**own)})
            model.set_params(optimizer="fmin_l_bfgs_b").fit(T, EXACT).predict(WHERE)

        return call

    how = {"length_scale": "number", "length_scale_bounds": "bounds"}
    how["active_dims"], also = "any", ("state_kernel", "equation_kernel")
    yield Case("RBF in a fit", of_kernel(RBF), lengths, how, also)
    smooth = {**lengths, "nu": 3.5}, {**how, "nu": "number"}
    yield Case("Matern in a fit", of_kernel(Matern), *smooth, also)
    given = {"degree": 2, "scale": "auto", "center": 0.0}

    def equation_kernel(**own):
        model = OneStepKEqL(**ONE_STEP | {"equation_kernel": Polynomial(**own)})
        model.fit(T, EXACT).predict(WHERE)

    how = {"degree": "count", "scale": "any", "center": "any"}
    yield Case("Polynomial in a fit", equation_kernel, given, how, also)
    functions = {"u": lambda u: u, "u^2": lambda u: u**2}

    def dictionary(functions, scale):
        kernel = keql.kernels.Dictionary(functions, scale)
        model = OneStepKEqL(**ONE_STEP | {"equation_kernel": kernel})
        model.fit(T, EXACT).predict(WHERE)

    given = {"functions": functions, "scale": 1.0}
    how = {"functions": "dict of functions", "scale": "any"}
    yield Case("Dictionary in a fit", dictionary, given, how, also)
    yield from _system_cases()
    yield from _set_params_cases()


def _system_cases():
    """Cases of what systems are described by."""
    pair = np.column_stack([np.sin(T), np.cos(T)])
    kept = {"state_kernel", "observation_noise", "collocation_points", "optimizer"}
    plain = {name: value for name, value in ONE_STEP.items() if name in kept}
    first = Equation("u_t", operators=("u", "v"), kernel=Polynomial(1), n_terms=None)
    second = Equation("v_t", operators=("u", "v"), kernel=Polynomial(1), n_terms=None)

    def system(X, y, **params):
        model = OneStepKEqL(**plain | params, solver="dual", n_restarts=0, max_iter=5)
        model.fit(X, y).predict(WHERE)
        str(model.equation_), str(model.fit_report_)

    given = {"X": T, "y": pair, "states": ("u", "v"), "variables": ("t",)}
    given["equations"] = [("first", first), ("second", second)]
    how = {name: ROLES[name] for name in given} | {"equations": "equations"}
    yield Case("named equations", system, given, how)
    mapped = {"X": T, "y": pair, "states": ("u", "v"), "variables": ("t",)}
    mapped |= {"operators": ("u", "v"), "known_part": ("u_t", "v_t"), "n_terms": None}
    mapped["state_kernel"] = {"u": RBF(1.0), "v": RBF(1.0)}
    mapped["observation_noise"] = {"u": 1e-3, "v": 1e-3}
    mapped["equation_kernel"] = Polynomial(1)
    how = {name: ROLES[name] for name in mapped} | {"observation_noise": "levels"}
    yield Case("dicts for states", system, mapped, how)


def _set_params_cases():
    """Cases of parameters inside of parameters, set by their names."""
    for kind in (TwoStepKEqL, ReducedOneStepKEqL):
        settings = ONE_STEP | {"n_basis": 8}
        settings = {n: v for n, v in settings.items() if n in kind().get_params()}
        model = kind(**settings)

        def call(model=model, **params):
            own = clone(model).set_params(**params)
            own.get_params()
            own.fit(T, EXACT).predict(WHERE)

        given = {"state_kernel__length_scale": 1.0, "equation_kernel__degree": 1}
        given |= {"operators": ("u",), "observation_noise": 1e-3}
        how = {"state_kernel__length_scale": "nested number"}
        how |= {"equation_kernel__degree": "nested count"}
        how |= {"operators": "operators", "observation_noise": "number"}
        yield Case("set_params", call, given, how)


# One number for all states, or a dict by name.
NUMBERS = {"zero", "half", "huge"}
POOLS["levels"] = [
    (label, value, "any" if label in NUMBERS else outcome)
    for label, value, outcome in POOLS["dict"]
]
POOLS["nested number"], POOLS["nested count"] = (
    [(label, value, "any") for label, value, _ in POOLS[role]]
    for role in ("number", "count")
)
POOLS["bounds"] = [
    *_junk(text="refuse", none="any", frozen_set="any"),
    ("in turn", (2.0, 1.0), "any"),
    ("of nan", (np.nan, 1.0), "any"),
    ("three", (1.0, 2.0, 3.0), "any"),
    ("infinite", (0.0, np.inf), "any"),
    ("negative bounds", (-2.0, -1.0), "any"),
    ("array", np.array([[1e-3, 1e3]]), "any"),
    ("two rows", np.array([[1e-3, 1e3]] * 2), "any"),
    ("texts", ("a", "b"), "any"),
    ("fixed", "fixed", "any"),
    ("equal", (1.0, 1.0), "any"),
]
POOLS["at"] = [
    *_junk(none="any"),
    ("unknown", {"q": 0.5}, "refuse"),
    ("everywhere", {"t": 0.5, "x": 0.5}, "any"),
    ("text as place", {"t": "a"}, "refuse"),
    ("nan as place", {"t": np.nan}, "refuse"),
    ("far", {"t": 1e300}, "any"),
    ("array as place", {"t": np.ones(3)}, "any"),
]
POOLS["dict of functions"] = [
    *_junk(),
    ("no function", {"u": 1.0}, "any"),
    ("unknown column", {"q": lambda q: q}, "refuse"),
    ("constant", {"one": lambda u: 1.0}, "any"),
    ("text of a function", {"u": lambda u: "abc"}, "refuse"),
    ("failing", {"u": lambda u: u / 0 + abs(None)}, "refuse"),
    ("nan", {"u": lambda u: u * np.nan}, "refuse"),
    ("not a name", {1: lambda u: u}, "any"),
    ("twice", {"a": lambda u: u, "b": lambda u: u}, "any"),
    ("random", {"u": lambda u: u * np.random.default_rng().normal()}, "any"),
    ("wrong shape", {"u": lambda u: u[:-1]}, "refuse"),
    ("kinked", {"u": lambda u: abs(u)}, "any"),
]
_FIRST = Equation("u_t", operators=("u", "v"), kernel=Polynomial(1), n_terms=None)
POOLS["equations"] = [
    *_junk(),
    ("no names", [_FIRST, _FIRST], "any"),
    ("same name", [("a", _FIRST), ("a", _FIRST)], "any"),
    ("class", [("a", Equation)], "refuse"),
    ("number as name", [(1, _FIRST)], "refuse"),
    ("name of a parameter", [("states", _FIRST)], "any"),
    ("underscores", [("a__b", _FIRST)], "any"),
    ("triple", [("a", _FIRST, None)], "refuse"),
    ("dict", {"a": _FIRST}, "any"),
    ("of nothing", [("a", Equation())], "refuse"),
    ("text", [("a", "u_t")], "any"),
    ("estimator", [("a", OneStepKEqL())], "refuse"),
    ("same equation", [("a", _FIRST), ("b", _FIRST)], "any"),
    ("long name", [("a" * 100_000, _FIRST)], "any"),
    ("odd name", [("\u00fc +\n", _FIRST)], "any"),
    ("generator", lambda x: (each for each in x), "any"),
]


# --- names ----------------------------------------------------------------------------


def named_cases():
    """States and variables of all names, and all that is printed of them."""

    def call(state, variable):
        derived = f"{state}_{variable}"
        names = {"operators": (state,), "known_part": derived, "units": None}
        names |= {"variables": (variable,), "states": (state,), "inputs": None}
        model = TwoStepKEqL(**LEARNER | names).fit(T, EXACT)
        equation = model.equation_
        str(equation), equation.to_latex(), equation.to_frame(), equation.to_text()
        equation.to_sympy(), repr(model), str(model.fit_report_)
        type(equation).from_dict(equation.to_dict())
        model.predict_derivative(WHERE, derived)
        return model.predict(WHERE)

    given = {"state": "u", "variable": "t"}
    how = {"state": "single name", "variable": "single name"}
    also = ("states", "operators", "known_part", "variables", "columns")
    yield Case("names", call, given, how, also)

    def of_table(state, variable, X):
        try:
            hash(state), hash(variable)
            if callable(variable):  # pandas calls these
                raise ValueError("a function names no column")
            table = pd.DataFrame(X, columns=[variable])
            values = pd.Series(EXACT, name=state)
        except Exception as error:  # of many kinds
            raise ValueError("state, variable or X are of no table") from error
        names = {"operators": (state,), "known_part": f"{state}_{variable}"}
        names |= {"variables": None, "states": None, "units": None, "inputs": None}
        model = TwoStepKEqL(**LEARNER | names)
        model.set_params(collocation_points=table)
        return model.fit(table, values).predict(table[::2])

    how |= {"X": "any table"}
    yield Case("names of columns", of_table, given | {"X": T}, how, (*also, "y"))


POOLS["single name"] = [
    *((label, value, "any") for label, value, _ in JUNK),
    *(
        (label, (lambda x, change=change: change((x,))[0]), "any")
        for label, change, _ in POOLS["names"]
        if getattr(change, "__name__", "") == "<lambda>"
        and label not in {"one less", "set of names", "generator of names", "index"}
    ),
]


# --- Gram matrices and systems of kernels ---------------------------------------------


def gram_cases():
    """Cases of Gram matrices and of combinations of kernels."""
    u, u_x = (keql.operators.parse_operator(n, ("t", "x")) for n in ("u", "u_x"))
    given = {"kernel": RBF(1.0), "rows": [(PLANE, u)], "columns": [(PLANE[:4], u_x)]}
    how = {"kernel": "two kernels", "rows": "functionals", "columns": "functionals"}
    yield Case("gram", keql.operators.gram, given, how)
    given = {"kernel": RBF(1.0), "points": PLANE, "operator": u_x}
    how = {"kernel": "two kernels", "points": "numbers", "operator": "any"}
    yield Case("gram_diagonal", keql.operators.gram_diagonal, given, how)

    def expanded(points, operator, coefficients, **own):
        state = keql.operators.KernelExpansion(coefficients=coefficients, **own)
        return state.evaluate(points, operator)

    given = {"kernel": RBF(1.0), "functionals": [(PLANE[:4], u)], "points": PLANE}
    given |= {"coefficients": np.ones(4), "operator": u_x}
    how = {"kernel": "two kernels", "functionals": "functionals"}
    how |= {"points": "numbers", "coefficients": "numbers", "operator": "any"}
    yield Case("KernelExpansion", expanded, given, how)

    def convert(kernel):
        keql.kernels.as_kernel(kernel)

    yield Case("as_kernel", convert, {"kernel": RBF(1.0)}, {"kernel": "two kernels"})
    system = _quietly(keql.kernels.SystemKernel)
    given = {"kernels": {"u": RBF(1.0), "v": Matern(1.0, nu=3.5)}}
    yield Case("SystemKernel", system, given, {"kernels": "kernels by name"})
    swing = fitted_system()
    asked = {"t_eval": np.linspace(0, 1, 5), "initial": {"u": 1.0, "v": 0.5}}
    asked |= {"forcing": None, "inputs": None, "return_std": True}
    how = {"t_eval": "values", "initial": "initial", "forcing": "any"}
    how |= {"inputs": "dict", "return_std": "flag"}
    yield Case("swing.simulate", _quietly(swing.simulate), asked, how)
    limits = {"tol": 0.01, "max_terms": 4}
    how = {"tol": "number", "max_terms": "count"}
    yield Case("system.formula", _quietly(swing.equation_.formula), limits, how)


POOLS["functionals"] = [
    *_junk(),
    ("points alone", lambda x: [x[0][0]], "refuse"),
    ("in turn", lambda x: [x[0][::-1]], "refuse"),
    ("name of an operator", lambda x: [(x[0][0], "u_q")], "any"),
    ("of one column", lambda x: [(x[0][0][:, :1], x[0][1])], "refuse"),
    ("nan points", lambda x: [(x[0][0] * np.nan, x[0][1])], "any"),
    ("no points", lambda x: [(x[0][0][:0], x[0][1])], "any"),
    ("nothing", lambda x: [], "any"),
    ("dict", lambda x: dict.fromkeys("u", x), "refuse"),
]


def further_cases():
    """All of the above."""
    yield from again_cases()
    yield from table_cases()
    yield from nested_cases()
    yield from named_cases()
    yield from gram_cases()
