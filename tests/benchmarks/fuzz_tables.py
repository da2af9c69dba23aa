"""More valid calls: of the command, grids, units, kernels, displays and systems."""

import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from fuzz_calls import (
    EXACT,
    HEAT,
    LEARNER,
    ONE_STEP,
    PLANE,
    WHERE,
    Case,
    T,
    _drawn,
    _quietly,
    fitted_system,
)
from fuzz_mutations import FUNCTIONS, JUNK, POOLS, TABLE, _junk

import keql.kernels
import keql.metrics
import keql.model_selection
import keql.operators
import keql.plotting
from keql import KernelPDESolver, OneStepKEqL, TwoStepKEqL
from keql.__main__ import main
from keql.kernels import RBF, Matern, Polynomial

LINES = ["t,x,u,v,rod", *(f"{t:.6g},0.5,{np.exp(-t):.6g},1,a" for t in T[:, 0])]


def _lines(change):
    """A function of lines of a table, of which `change` makes others."""
    return lambda lines: change(list(lines))


POOLS["lines"] = [
    ("nothing", _lines(lambda x: []), "refuse"),
    ("names alone", _lines(lambda x: x[:1]), "refuse"),
    ("no names", _lines(lambda x: x[1:]), "refuse"),
    ("one row", _lines(lambda x: x[:2]), "any"),
    ("semicolons", _lines(lambda x: [line.replace(",", ";") for line in x]), "same"),
    ("tabulators", _lines(lambda x: [line.replace(",", "\t") for line in x]), "same"),
    ("spaces", _lines(lambda x: [line.replace(",", " , ") for line in x]), "same"),
    (
        "quotes",
        _lines(lambda x: ['"' + '","'.join(r.split(",")) + '"' for r in x]),
        "same",
    ),
    ("empty lines", _lines(lambda x: [x[0], "", *x[1:], ""]), "same"),
    ("columns too many", _lines(lambda x: [*x[:-1], x[-1] + ",1"]), "refuse"),
    ("columns too few", _lines(lambda x: [*x[:-1], "1"]), "refuse"),
    ("name twice", _lines(lambda x: [x[0].replace("v", "u"), *x[1:]]), "refuse"),
    ("time twice", _lines(lambda x: [x[0].replace("x", "t"), *x[1:]]), "refuse"),
    ("no name", _lines(lambda x: [x[0].replace("v", ""), *x[1:]]), "any"),
    ("text", _lines(lambda x: [*x[:-1], "3,1,abc,1,a"]), "refuse"),
    ("time of text", _lines(lambda x: [*x[:-1], "noon,1,1,1,a"]), "refuse"),
    ("infinite", _lines(lambda x: [*x[:-1], "3,1,inf,1,a"]), "refuse"),
    ("infinite time", _lines(lambda x: [*x[:-1], "inf,1,1,1,a"]), "refuse"),
    ("time missing", _lines(lambda x: [*x[:-1], ",1,1,1,a"]), "refuse"),
    ("value missing", _lines(lambda x: [*x[:-1], "3,1,,1,a"]), "any"),
    ("all missing", _lines(lambda x: [x[0], *("1,1,,,a" for _ in x[1:])]), "refuse"),
    ("comma as point", _lines(lambda x: [*x[:-1], '3,1,"0,05",1,a']), "refuse"),
    ("dates", _lines(lambda x: [*x[:-1], "2020-01-01,1,1,1,a"]), "refuse"),
    ("huge", _lines(lambda x: [*x[:-1], "3,1,1e308,1,a"]), "any"),
    ("too large", _lines(lambda x: [*x[:-1], "3,1,1e999,1,a"]), "refuse"),
    ("hexadecimal", _lines(lambda x: [*x[:-1], "3,1,0x10,1,a"]), "refuse"),
    ("underscores", _lines(lambda x: [*x[:-1], "3,1,1_0,1,a"]), "any"),
    ("complex", _lines(lambda x: [*x[:-1], "3,1,1+1j,1,a"]), "refuse"),
    ("null bytes", _lines(lambda x: [*x[:-1], "3,1,\x00,1,a"]), "refuse"),
    ("open quote", _lines(lambda x: [*x[:-1], '3,1,"1,1,a']), "refuse"),
    ("byte order mark", _lines(lambda x: ["\ufeff" + x[0], *x[1:]]), "same"),
    ("long entry", _lines(lambda x: [*x[:-1], "3,1,1,1," + "a" * 200_000]), "any"),
    ("no UTF-8", lambda x: b"\xff\xfe\x00t,u\n1,\xe9\n", "refuse"),
    ("other letters", _lines(lambda x: [x[0].replace("v", "\u00fc"), *x[1:]]), "any"),
    ("rows twice", _lines(lambda x: [*x, *x[1:]]), "any"),
    ("same times", _lines(lambda x: [x[0], *("1,1,2,1,a" for _ in x[1:])]), "any"),
    ("no file", lambda x: None, "refuse"),
    ("a folder", lambda x: 0, "refuse"),
]
TEXTS = [
    ("empty", [""], "refuse"),
    ("absent", ["q"], "refuse"),
    ("spaces", ["  "], "refuse"),
    ("nothing", [], "any"),
    ("twice", lambda x: [*x, *x], "refuse"),
    ("number", ["1"], "refuse"),
    ("line end", ["u\nv"], "refuse"),
    ("other letters", ["\u00fc"], "refuse"),
    ("long", ["u" * 10_000], "refuse"),
    ("operation", ["u+v"], "refuse"),
    ("option", ["--verbose"], "any"),
]
POOLS["texts"] = TEXTS
POOLS["label"] = [row for row in TEXTS if row[0] != "twice"]
POOLS["operator texts"] = [
    (n, v, "any" if n in {"twice", "nothing", "operation", "option"} else verdict)
    for n, v, verdict in TEXTS
]
POOLS["unit texts"] = [
    ("no name", ["=h"], "refuse"),
    ("no unit", ["t="], "refuse"),
    ("no sign", ["t"], "refuse"),
    ("of nothing", ["q=h"], "refuse"),
    ("twice", ["t=h", "t=s"], "any"),
    ("two signs", ["t=h=s"], "refuse"),
    ("odd power", ["t=h^x"], "refuse"),
    ("other letters", ["t=\u00b5s"], "any"),
    ("long", ["t=" + "h" * 10_000], "any"),
]
POOLS["whole texts"] = [
    ("zero", ["0"], "refuse"),
    ("minus", ["-1"], "refuse"),
    ("half", ["0.5"], "refuse"),
    ("text", ["few"], "refuse"),
    ("huge", ["9" * 400], "any"),
    ("empty", [""], "refuse"),
    ("other digits", ["\u0663"], "any"),
    ("superscript", ["\u00b2"], "refuse"),
]
POOLS["units"] = [
    *POOLS["dict"],
    ("number as unit", {"t": 5}, "refuse"),
    ("none as unit", {"t": None}, "refuse"),
    ("error as unit", {"t": ValueError("s")}, "refuse"),
    ("empty unit", {"t": ""}, "any"),
    ("powers", {"t": "kg m^2 s^-3"}, "any"),
    ("division", {"t": "m/s/s"}, "any"),
    ("power without", {"t": "s^"}, "refuse"),
    ("power of text", {"t": "s^a"}, "refuse"),
    ("half power", {"t": "s^0.5"}, "any"),
    ("huge power", {"t": "s^" + "9" * 400}, "any"),
    ("brackets", {"t": "(s"}, "any"),
    ("tags", {"t": "<b>s</b>"}, "any"),
    ("dollars", {"t": "$\\frac{1}"}, "any"),
    ("percent", {"u": "%"}, "any"),
    ("pairs", (("t", "s"),), "refuse"),
]
POOLS["grid"] = [
    *((n, v, "any" if n == "none" else verdict) for n, v, verdict in _junk(none="any")),
    ("transposed", lambda g: g.transpose("x", "t"), "any"),
    ("set of data", lambda g: g.to_dataset(name="u"), "same"),
    ("no coordinates", lambda g: g.drop_vars("t"), "refuse"),
    ("other names", lambda g: g.rename(t="time"), "any"),
    ("backwards", lambda g: g[::-1], "same"),
    ("missing", lambda g: g.where(g > 0.3), "any"),
    ("nothing measured", lambda g: g * np.nan, "refuse"),
    ("infinite", lambda g: g * np.inf, "refuse"),
    ("complex", lambda g: g + 1j, "refuse"),
    ("text", lambda g: g.astype("U5"), "any"),
    ("objects", lambda g: g.astype(object), "same"),
    ("one time", lambda g: g[:1], "any"),
    ("no time", lambda g: g[:0], "refuse"),
    ("a number", lambda g: g[0, 0], "refuse"),
    ("a row", lambda g: g[0], "refuse"),
    ("three axes", lambda g: g.expand_dims(z=[0.0]), "refuse"),
    ("dates", lambda g: g.assign_coords(t=g.t.values.astype("M8[s]")), "refuse"),
    ("texts", lambda g: g.assign_coords(t=list("abcde")), "refuse"),
    ("same time", lambda g: g.assign_coords(t=0 * g.t), "any"),
    ("nan time", lambda g: g.assign_coords(t=np.nan * g.t), "refuse"),
    ("two variables", lambda g: xr.Dataset({"u": g, "v": g}), "any"),
    ("no variables", lambda g: xr.Dataset(coords=g.coords), "refuse"),
    ("name of a coordinate", lambda g: g.rename("w"), "any"),
    ("two coordinates", lambda g: g.assign_coords(s=("t", g.t.values)), "same"),
]
TEXT = ("none", "text", "line_ends", "number_as_text", "long_text", "numpy_text")
TEXT += (
    "empty_text",
    "own_text",
    "spaces",
    "brackets",
    "format",
    "code",
    "lone_surrogate",
)
POOLS["path"] = [
    *_junk(**dict.fromkeys(TEXT, "any")),
    ("no folder", "/no/where/a.html", "refuse"),
    ("a folder", "/tmp", "refuse"),
    ("null byte", "a\x00.html", "refuse"),
]
POOLS["two kernels"] = [
    *_junk(negative="refuse"),
    ("matern", Matern(1.0, nu=2.5), "any"),
]
POOLS["kernels by name"] = [
    *_junk(empty_dict="any"),
    *((label, {"u": value}, "any") for label, value, _ in POOLS["two kernels"]),
]
POOLS["text"] = _junk(**dict.fromkeys(TEXT, "any"))
POOLS["orders"] = [*_junk(none="any"), ("negative orders", (-1, 0), "refuse")]
POOLS["some function"] = [
    *_junk(none="refuse"),
    *((n, v, "any") for n, v, _ in FUNCTIONS),
]
POOLS["any table"] = [
    *((n, v, "any") for n, v, _ in TABLE),
    *((n, v, "any") for n, v, _ in JUNK),
]
POOLS["series of names"] = _junk(none="any", empty_list="any")


def command_cases():
    """Cases of the command, whose errors are what it writes."""
    folder = Path(tempfile.mkdtemp())

    def run(lines, **options):
        path = folder / ("none.csv" if lines is None else "file.csv")
        path = folder if isinstance(lines, int) else path
        if isinstance(lines, bytes):
            path.write_bytes(lines)
        elif isinstance(lines, list):
            path.write_text("\n".join(map(str, lines)), encoding="utf-8")
        arguments = [str(path)]
        for name, texts in options.items():
            arguments += [f"--{name}", *map(str, texts)]
        said, shown = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
            try:
                status = main(arguments)
            except SystemExit as error:
                status = error.code
        if status:
            told = said.getvalue().replace(str(path), "lines")
            raise ValueError(told.partition("error: ")[2] or told)

    given = {"lines": LINES, "state": ["u"], "time": ["t"], "order": ["1"]}
    how = {"lines": "lines", "state": "texts", "time": "label", "order": "whole texts"}
    given |= {"terms": ["auto"], "units": ["t=h"], "operators": ["u"]}
    how |= {"terms": "whole texts", "units": "unit texts"}
    also = ("lines", "arguments")  # which the command tells of what it is asked for
    yield Case("command", run, given, how | {"operators": "operator texts"}, also)
    labelled = given | {"function": ["rod"]}
    how = how | {"operators": "operator texts", "function": "label"}
    yield Case("command of functions", run, labelled, how, also)


def table_cases():
    """Cases of grids, units and rings, and of what is written of equations."""
    axes = {"t": np.linspace(0, 1, 5), "x": np.linspace(0, 1, 4)}
    t, x = np.meshgrid(*axes.values(), indexing="ij")
    grid = xr.DataArray(np.exp(-t) * np.sin(x), axes, ("t", "x"), name="u")
    heat = {"operators": ("u", "u_xx"), "variables": ("t", "x"), "units": None}
    heat |= {"collocation_points": PLANE[:10]}

    def learned(X, y, periods, units, **others):
        model = TwoStepKEqL(**LEARNER | heat | others, periods=periods)
        kernel = None if periods is not None else LEARNER["state_kernel"]
        model.set_params(units=units, state_kernel=kernel).fit(X, y)
        model.equation_.to_text(), model.equation_.to_latex(), model.to_latex()
        model.equation_.to_frame(), model.equation_._repr_html_()
        str(model.fit_report_), model.fit_report_.to_html()
        return model.predict(_in_order_of(X, PLANE[:5]))

    given = {"X": grid, "y": None, "periods": None, "units": {"t": "s", "x": "mm"}}
    how = {"X": "grid", "y": "any", "periods": "dict", "units": "units"}
    yield Case("grid", learned, given, how)
    given = {"X": PLANE, "y": HEAT, "periods": {"x": 2.0}, "units": {"u": "K"}}
    how = {"X": "points", "y": "values", "periods": "dict", "units": "units"}
    yield Case("ring", learned, given, how)
    model = OneStepKEqL(**ONE_STEP | {"units": {"t": "s", "u": "mV"}}).fit(T, EXACT)
    for name in ("to_html", "to_markdown"):
        write = getattr(model.fit_report_, name)
        yield Case(name, _inside_a_folder(write), {"path": None}, {"path": "path"})

    yield from solver_cases(model)
    yield from system_cases()


def _in_order_of(X, places):
    """Points in a table of the same columns, if X is one of t and x."""
    if set(getattr(X, "columns", ())) != {"t", "x"}:
        return places
    return pd.DataFrame(places, columns=["t", "x"])[list(X.columns)]


def _inside_a_folder(write):
    """A function that writes to a folder of its own."""

    def call(path):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            write(path)

    return call


def solver_cases(model):
    """Cases of what is asked of solvers, and of errors of solution operators."""
    solver = model.pde_solver(forcing=LEARNER["forcing"], max_iter=10)
    ends, values = np.array([[0.0], [3.0]]), np.array([1.0, np.exp(-3.0)])
    solver.fit(ends, values)
    flag = {"X": WHERE, "return_std": False}
    kinds = {"X": "points", "return_std": "flag"}
    yield Case("solver.predict", solver.predict, flag, kinds)
    asked = {"X": WHERE, "operator": "u_t"}
    how = {"X": "points", "operator": "operator"}
    yield Case("solver.predict_derivative", solver.predict_derivative, asked, how)
    yield Case(
        "solver.extrapolation", solver.extrapolation, {"X": WHERE}, {"X": "points"}
    )
    given = {"solver": solver, "X": ends, "y": values, "X_test": WHERE}
    given |= {"y_test": np.exp(-WHERE[:, 0])}
    how = {"solver": "object", "X": "points", "y": "values", "X_test": "points"}
    operator_error = _quietly(keql.metrics.operator_error)
    yield Case("operator_error", operator_error, given, how | {"y_test": "values"})
    given = {"y_true": HEAT, "y_pred": HEAT + 0.1, "functions": np.arange(20) // 10}
    how = {"y_true": "values", "y_pred": "values", "functions": "any table"}
    yield Case("errors by function", keql.metrics.relative_l2_error, given, how)

    def scored(features, unknown_part):
        keql.metrics.make_equation_scorer(features, unknown_part)(model)

    given = {"features": np.hstack([T, T]), "unknown_part": EXACT}
    how = {"features": "numbers", "unknown_part": "part"}
    yield Case("equation scorer", scored, given, how)

    def split(X, always_train):
        folds = keql.model_selection.FunctionKFold(2, always_train=always_train)
        list(folds.split(X))

    given = {"X": T, "always_train": np.arange(12) < 2}
    yield Case(
        "always_train", split, given, {"X": "any table", "always_train": "any table"}
    )


def system_cases():
    """Cases of what is asked of equations of several states."""
    system = fitted_system()
    equations = system.equation_
    S = equations.features(system, WHERE)
    for name in ("unknown_part", "gradient", "extrapolation"):
        call = _quietly(getattr(equations, name))
        yield Case(f"system.{name}", call, {"S": S}, {"S": "numbers"})
    asked = {"w": system, "X": WHERE, "inputs": None}
    how = {"w": "any", "X": "points", "inputs": "dict"}
    for name in ("features", "apply"):
        call = _quietly(getattr(equations, name))
        yield Case(f"system.{name}", call, asked, how, ("function",))
    few = {"max_loss": 2.0, "tol": 1e-3, "n_terms": {"u_t": 1, "v_t": 1}}
    how = {"max_loss": "number", "tol": "number", "n_terms": "dict"}
    yield Case("system.sparse", _quietly(equations.sparse), few, how)
    how = {"dictionary": "dictionary"}
    yield Case("system.project", _quietly(equations.project), {"dictionary": 1}, how)
    later = {"X": WHERE + 3, "return_std": True}
    how = {"X": "points", "return_std": "flag"}
    yield Case("system.forecast", _quietly(system.forecast), later, how)
    predict = _quietly(system.predict)
    yield Case("system.predict", predict, {"X": WHERE, "return_std": True}, how)
    plain = {"plain": equations.to_dict()}
    read = _quietly(type(equations).from_dict)
    yield Case("system.from_dict", read, plain, {"plain": "plain"})

    def changed(**arguments):
        read(plain=arguments)

    how = {key: "plain" for key in plain["plain"]}
    yield Case("system.from_dict entry", changed, plain["plain"], how)


def kernel_cases():
    """Cases of the other kernels, of operators, and of displays that users fill."""
    k = keql.kernels
    of_kernel = {"kernel": RBF(1.0)}
    parts = {"k1": RBF(1.0), "k2": Matern(1.0, nu=2.5)}
    both = {"k1": "two kernels", "k2": "two kernels"}
    for kind, own, how in (
        (k.Constant, {"constant_value": 2.0}, {"constant_value": "number"}),
        (
            k.Exponentiation,
            of_kernel | {"exponent": 2},
            {"kernel": "two kernels", "exponent": "count"},
        ),
        (
            k.Envelope,
            {"width": 1.0, "center": 0.5},
            {"width": "number", "center": "real"},
        ),
        (
            k.Restriction,
            {"kernel": Polynomial(2, 1.0, 0.0), "monomials": [(1, 0), (0, 2)]},
            {"kernel": "two kernels", "monomials": "any"},
        ),
        (k.FunctionKernel, {"function": _product}, {"function": "some function"}),
        (k.Sum, parts, both),
        (k.Product, parts, both),
    ):

        def call(X, Y, kind=kind, **params):
            kind(**params)(X, Y)

        arguments = {"X": PLANE, "Y": PLANE[:4], **own}
        yield Case(
            kind.__name__, call, arguments, {"X": "numbers", "Y": "numbers"} | how
        )

    def derived(X, Y, a, b):
        RBF(1.0).derivative(X, Y, a, b)

    given = {"X": PLANE, "Y": PLANE[:4], "a": (1, 0), "b": (0, 2)}
    how = {"X": "numbers", "Y": "numbers", "a": "orders", "b": "orders"}
    yield Case("derivative", derived, given, how)
    given = {"text": "u^2 v", "names": ["u", "v"]}
    how = {"text": "text", "names": "series of names"}
    yield Case("parse_monomial", _quietly(k.parse_monomial), given, how)
    given = {"function": _mean, "points": PLANE, "operator": U_X}
    how = {"function": "some function", "points": "numbers", "operator": "any"}
    apply = _quietly(keql.operators.apply_operator)
    yield Case("apply_operator", apply, given, how)
    yield from display_cases()


U_X = keql.operators.parse_operator("u_x", ("t", "x"))


def _product(x, y):
    return np.sum(x * y, axis=-1)


def _mean(points):
    return np.mean(points, axis=1)


def display_cases():
    """Cases of displays of numbers that users have."""
    p = keql.plotting

    def drawn(kind):
        return _drawn(kind.from_predictions)

    line = {"points": T, "values": EXACT, "std": 0.1 * EXACT, "ax": None}
    how = {"points": "values", "values": "values", "std": "weights", "ax": "axes"}
    yield Case("draw state", drawn(p.StateDisplay), line, how)
    yield Case("draw coefficient", drawn(p.CoefficientDisplay), line, how)
    error = {"points": PLANE, "true": HEAT, "predicted": HEAT + 0.1, "ax": None}
    how = {"points": "values", "true": "values", "predicted": "values", "ax": "axes"}
    yield Case("draw error", drawn(p.ErrorDisplay), error, how)
    parity = {"given": HEAT, "predicted": HEAT + 0.1, "label": "f", "ax": None}
    how = {"given": "values", "predicted": "values", "label": "text", "ax": "axes"}
    yield Case("draw parity", drawn(p.EquationParityDisplay), parity, how)
    losses = {"loss_curve": [3.0, 2.0, 1.0], "damping_curve": None, "ax": None}
    how = {"loss_curve": "values", "damping_curve": "any", "ax": "axes"}
    yield Case("draw losses", drawn(p.LossCurveDisplay), losses, how)
    phase = {"u": np.sin(T[:, 0]), "u_t": np.cos(T[:, 0]), "variable": "t", "ax": None}
    how = {"u": "values", "u_t": "values", "variable": "text", "ax": "axes"}
    yield Case("draw phase", drawn(p.PhasePortraitDisplay), phase, how)


def all_cases():
    """All of the above."""
    yield from command_cases()
    yield from table_cases()
    yield from kernel_cases()
    yield from _solver_of_grid()


def _solver_of_grid():
    """A solver of an equation on a grid."""

    def solve(X, collocation_points, solver, n_windows):
        found = KernelPDESolver({"u_t": 1, "u_xx": -0.1}, variables=("t", "x"))
        found.set_params(state_kernel=RBF(0.5), collocation_points=collocation_points)
        found.set_params(solver=solver, n_windows=n_windows)
        return found.fit(X, HEAT).predict(_in_order_of(X, PLANE))

    given = {"X": PLANE, "collocation_points": PLANE[:6], "solver": "dense"}
    how = {"X": "points", "collocation_points": "collocation", "solver": "choice"}
    yield Case(
        "solver of a field",
        solve,
        given | {"n_windows": 1},
        how | {"n_windows": "count"},
    )
