"""Record the answers of many small fits, and compare two such records.

A change of the code that should change no answer is shown to change none: record
before and after it, and compare. Only public names of the package are imported, so
that private modules may move in between.

    python tests/benchmarks/recorded_fits.py record OLD.json
    python tests/benchmarks/recorded_fits.py record NEW.json --only 'burgers*' --jobs 2
    python tests/benchmarks/recorded_fits.py compare OLD.json NEW.json

Its exit status is 1 if a fit does not work any more, or the error of a state is larger.
"""

import argparse
import importlib
import json
import pickle
import sys
import time
import warnings
from fnmatch import fnmatchcase
from functools import partial, partialmethod
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from scipy.integrate import solve_ivp
from scipy.interpolate import BarycentricInterpolator, RectBivariateSpline

from keql import KernelPDESolver, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql.datasets import make_burgers, make_darcy, make_duffing
from keql.kernels import RBF, Constant, Matern, Polynomial
from keql.metrics import filtering_error

# Relative differences up to this are called rounding.
ROUNDING = 1e-6
# The error of a state has become worse if it has grown by more than both.
WORSE_BY, WORSE_BY_ABSOLUTE = 0.01, 1e-8
# What a fit that does not work raises.
ERRORS = (ValueError, RuntimeError, ArithmeticError, TypeError, AttributeError)
ERRORS += (LookupError, MemoryError, pickle.PicklingError)
# Attributes that are recorded if an estimator has them; as text, or as numbers.
TEXTS = ("equation_", "state_kernel_", "equation_kernel_", "message_", "fit_report_")
NUMBERS = ("observation_noise_", "equation_noise_", "n_iter_", "converged_", "misfit_")
NUMBERS += ("linear_", "relative_noise_", "log_likelihood_")

# What is told in columns of its own; and what makes a case unequal if it differs.
NOT_COMPARED = {"state_error", "seconds", "pickle_bytes", "term_stds"}
DECISIVE = {"predictions", "unknown_part", "set_of_terms"}

# By default scipy shuffles the nodes, so that no two runs round in the same way.
SHUFFLED = BarycentricInterpolator.__init__
BarycentricInterpolator.__init__ = partialmethod(SHUFFLED, rng=0)

RAISED, PI, CASES = "It raised", np.pi, {}


def cases(**variants):
    """Register a function that returns a case, for each set of its arguments.

    A case is an estimator, X, y, X_test, y_test, and weights of X if there are any.
    """

    def register(function):
        for name, arguments in variants.items():
            CASES[name] = partial(function, **arguments)
        return function

    return register


# Rates, initial values, and the end of the time.
ODES = {
    "logistic": (lambda t, u: u * (1 - u), [0.1], 8),
    "logistic_too": (lambda t, u: u * (1 - u), [1.6], 8),
    "decay": (lambda t, u: -0.7 * u, [1.0], 5),
    "harmonic": (lambda t, u: [u[1], -4 * u[0]], [0.0, 2.0], 6),
    "damped": (lambda t, u: [u[1], -u[0] - 0.3 * u[1]], [1.0, 0.0], 12),
    "van_der_pol": (lambda t, u: [u[1], (1 - u[0] ** 2) * u[1] - u[0]], [2.0, 0.0], 10),
    "forced": (lambda t, u: [u[1], t - 4 * u[0] - u[1] / 2], [0.5, 0.0], 10),
}


def in_time(of, n, noise=0.0, weighted=False):
    """Observations of the first component of a solution, and test points."""
    rate, start, end = ODES[of]
    limits = {"rtol": 1e-11, "atol": 1e-12, "dense_output": True}
    solution = solve_ivp(rate, (0, end), start, "DOP853", **limits).sol
    t, test = np.linspace(0, end, n), np.linspace(0, end, 301)
    y = solution(t)[0] + noise * np.random.RandomState(0).normal(size=n)
    weights = [1.0 + 3.0 * (t > 3) - (t == 0)] if weighted else []
    return t[:, None], y, test[:, None], solution(test)[0], *weights


def on_square(of, n, n_side=9, closed=False):
    """Values on three sides, or all four, and inside of the unit square, and a test."""
    points = grid(*2 * [np.linspace(0, 1, n_side)])
    t, x = points.T
    sides = points[(t == 0) | (x == 0) | (x == 1) | (closed & (t == 1))]
    X = np.concatenate([sides, np.random.RandomState(0).uniform(size=(n, 2))])
    test = grid(np.linspace(0, 1, 21), np.linspace(0, 1, 31))
    return X, STATES[of](*X.T), test, STATES[of](*test.T)


def together(function, names, *arguments):
    """Data of several functions, labelled 0.0, 1.0, ... in the last column of X."""
    found = []
    for m, name in enumerate(names):
        X, y, X_test, y_test = function(name, *arguments)
        X, X_test = (np.insert(points, points.shape[1], m, 1) for points in (X, X_test))
        found.append((X, y, X_test, y_test))
    return map(np.concatenate, zip(*found, strict=True))


def conditions(X, y, truth, end):
    """Conditions in time; a second column of X tells their operators."""
    t = np.linspace(0, end, 99)
    test = np.column_stack([t, 0 * t])[:, : len(X[0])]
    return np.array(X), np.array(y), test, truth(t)


def grid(*axes):
    """Points of a product grid, in rows."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def evolved(reaction, initial, n=64):
    """The solution of u_t = 0.01 u_xx + reaction(u) with period 1, as a function."""
    t, x = np.linspace(0, 1, 101), np.linspace(0, 1, n + 1)
    symbol = -0.01 * (2 * PI * np.fft.rfftfreq(n, 1 / n)) ** 2

    def rate(_, u):
        return np.fft.irfft(symbol * np.fft.rfft(u), n) + reaction(u)

    limits = {"rtol": 1e-10, "atol": 1e-12, "t_eval": t}
    u = solve_ivp(rate, (0, 1), initial(2 * PI * x[:-1]), "DOP853", **limits).y.T
    return RectBivariateSpline(t, x, np.column_stack([u, u[:, 0]]), kx=5, ky=5).ev


def cole_hopf(t, x, amplitude=0.5):
    """A solution of u_t = u u_x + 0.1 u_xx."""
    e = amplitude * np.exp(-0.1 * PI**2 * t)
    return -0.2 * PI * e * np.sin(PI * x) / (1 + e * np.cos(PI * x))


WAVES = [(k, 0.1 * k**2, np.sqrt(0.5 * k**2 + 2)) for k in (PI, 2 * PI)]
STATES = {
    "burgers": cole_hopf,
    "burgers_too": partial(cole_hopf, amplitude=-0.3),
    "heat": lambda t, x: sum(np.exp(-d * t) * np.sin(k * x) for k, d, _ in WAVES),
    "klein": lambda t, x: sum(np.cos(w * t) * np.sin(k * x) for k, _, w in WAVES),
    "transport": lambda t, x: np.exp(-20 * (x - 0.3 - 0.4 * t) ** 2),
    "laplace": lambda x, y: np.exp(x) * np.sin(y),
    "poisson": lambda x, y: (x**3 + y**3) / 6 + np.exp(2 * x) * np.sin(2 * y) / 4,
    "cubic": lambda x, y: 1 / (1 + x + y),
    "cubic_too": lambda x, y: 1 / (2 + x + y),
    "fisher": evolved(lambda u: 4 * (u - u**2), lambda x: 0.3 + 0.2 * np.cos(x)),
    "allen": evolved(lambda u: 3 * (u - u**3), lambda x: 0.5 * np.sin(x) + 0.1),
}


def damping(u_t, u_tt):
    """A known part."""
    return u_tt + 0.3 * u_t


def cubic(u, u_xx, u_yy):
    """A nonlinear elliptic equation."""
    return u_xx + u_yy - 4 * u**3


def burgers_law(u, u_t, u_x, u_xx):
    """The equation of `cole_hopf`."""
    return u_t - u * u_x - 0.1 * u_xx


# A right-hand side that can be pickled: the sum of the coordinates.
SUM = {"forcing": partial(np.sum, axis=1)}
TWO, REDUCED = {"learner": TwoStepKEqL}, {"learner": ReducedOneStepKEqL}
AUTO, SOLVE = {"n_terms": "auto"}, {"learner": KernelPDESolver}
LINEAR, CUBIC = ({"equation_kernel": Polynomial(degree)} for degree in (1, 3))
NOISE = {"observation_noise": 1e-4, "equation_noise": 1e-3}
FIXED = NOISE | {"state_kernel": RBF(1.0, "fixed")}
FREE = {"state_kernel": Constant(2.0) * Matern(1.5, nu=4.5)}
GAUSSIAN = {"equation_kernel": Constant(10.0) * RBF(2.0), "n_inducing": 60}
SMOOTH = NOISE | {"state_kernel": RBF((0.3, 0.1), "fixed")}
ROUND, LONG = {"state_kernel": RBF(0.4)}, {"state_kernel": RBF((0.6, 0.3))}

FIRST = {"variables": ("t",), "operators": ("u",), "known_part": "u_t"}
SECOND = FIRST | {"operators": ("u", "u_t"), "known_part": "u_tt"}
LOGISTIC = FIRST | {"data": (in_time, "logistic", 12)}
SEVERAL = (together, in_time, ("logistic", "logistic_too"), 8)
SEVERAL = FIRST | {"function_column": 1, "data": SEVERAL}
DECAY = FIRST | LINEAR | {"data": (in_time, "decay", 40, 0.02)}
HARMONIC = SECOND | LINEAR | {"operators": ("u",), "collocation_points": 60}
DENSE = HARMONIC | TWO | {"data": (in_time, "harmonic", 20)}
WEIGHTED = HARMONIC | {"data": (in_time, "harmonic", 25, 0.05, True)}
HARMONIC |= {"data": (in_time, "harmonic", 9)}
DAMPED = SECOND | {"data": (in_time, "damped", 14)}
VAN_DER_POL = SECOND | {"data": (in_time, "van_der_pol", 25), "n_restarts": 2}
FORCED = SECOND | LINEAR | SUM | {"data": (in_time, "forced", 20)}

TX = FIRST | {"variables": ("t", "x"), "collocation_points": 200}
DIFFUSIVE = TX | {"operators": ("u", "u_x", "u_xx")}
TRANSPORT, WAVE = (TX | LINEAR | {"operators": ("u", name)} for name in ("u_x", "u_xx"))
ALLEN_CAHN, WAVE = WAVE | CUBIC, WAVE | {"known_part": "u_tt"}
PAIR = (together, on_square, ("burgers", "burgers_too"), 15)
PAIR = DIFFUSIVE | {"function_column": 2, "collocation_points": 100, "data": PAIR}
XY = {"variables": ("x", "y"), "collocation_points": 80}
POISSON = XY | LINEAR | SUM | {"operators": ("u_xx", "u_yy")}

ODE = SOLVE | {"variables": ("t",), "collocation_points": 100}
VALUES = [[0.0], [3.0]], [0.0, 1.0], lambda t: t - 2 * np.sin(t) / np.sin(3), 3
VALUES = ODE | SUM | {"equation": {"u_tt": 1, "u": 1}, "data": (conditions, *VALUES)}
VELOCITY = [[0.0, 0.0], [0.0, 1.0]], [0.0, 1.0], np.sin, 12
VELOCITY = ODE | {"operator_column": 1, "data": (conditions, *VELOCITY)} | FIXED
VELOCITY |= {"equation": "u_tt + u", "boundary_operators": ["u", "u_t"]}
VELOCITY |= {"collocation_points": np.linspace(0, 12, 121)[:, None], "n_windows": 4}
ELLIPTIC = SOLVE | XY | {"equation": cubic, "data": (on_square, "cubic", 0, 9, True)}
ELLIPTIC_TWO = (together, on_square, ("cubic", "cubic_too"), 0, 9, True)
ELLIPTIC_TWO = ELLIPTIC | ROUND | {"function_column": 2, "data": ELLIPTIC_TWO}
INNER = grid(np.linspace(0, 1, 15)[1:], np.linspace(0, 1, 14)[1:-1])
EVOLUTION = SOLVE | {"variables": ("t", "x"), "collocation_points": INNER}
HEAT = EVOLUTION | {"equation": "u_t - 0.1 u_xx", "data": (on_square, "heat", 0, 13)}
BURGERS = {"equation": burgers_law, "data": (on_square, "burgers", 0, 13)}
BURGERS |= EVOLUTION | LONG
DATA = SOLVE | ROUND | {"variables": ("x", "y"), "data": (on_square, "laplace", 40)}


@cases(
    logistic=LOGISTIC,
    logistics_two_step=SEVERAL | TWO,
    noisy_decay=DECAY,
    harmonic=HARMONIC,
    harmonic_reduced=HARMONIC | REDUCED,
    harmonic_penalty=HARMONIC | FIXED | {"state_penalty": 2.5},
    harmonic_penalty_two_step=DENSE | FIXED | {"state_penalty": 3.0},
    harmonic_no_optimizer=HARMONIC | FIXED | {"optimizer": None},
    harmonic_restarted=DENSE | FREE | {"n_restarts": 3},
    weighted=WEIGHTED | FIXED | {"observation_noise": 0.05},
    damped_auto=DAMPED | AUTO,
    known_function=DAMPED | {"known_part": damping},
    van_der_pol_cubic=VAN_DER_POL | CUBIC,
    van_der_pol_free_form=VAN_DER_POL | GAUSSIAN | FREE,
    forced=FORCED,
    exact_burgers=DIFFUSIVE | {"data": (on_square, "burgers", 20)},
    two_functions=PAIR,
    two_functions_two_step=PAIR | TWO,
    heat_auto=DIFFUSIVE | AUTO | {"data": (on_square, "heat", 20)},
    fisher_auto=DIFFUSIVE | AUTO | {"data": (on_square, "fisher", 40)},
    allen_cahn=ALLEN_CAHN | {"data": (on_square, "allen", 60)},
    klein_gordon=WAVE | {"data": (on_square, "klein", 40)},
    transport=TRANSPORT | {"data": (on_square, "transport", 25)},
    poisson=POISSON | {"data": (on_square, "poisson", 10, 9, True)},
    solved_values=VALUES,
    solved_velocity=VELOCITY,
    solved_elliptic=ELLIPTIC,
    solved_elliptic_two=ELLIPTIC_TWO,
    solved_heat=HEAT,
    solved_heat_windows=HEAT | {"n_windows": 3},
    solved_burgers=BURGERS,
    solved_burgers_noisy=BURGERS | {"observation_noise": 1e-3},
    interpolation=DATA | {"observation_noise": 0.05},
)
def fitted(data, learner=OneStepKEqL, **settings):
    """Equations that are learned, or known, or not there at all."""
    make, *arguments = data
    seed = {} if learner is KernelPDESolver else {"random_state": 0}
    return learner(**settings | seed), *make(*arguments)


DUFFING, STATE = {"make": make_duffing}, {"keys": ("state_kernel",)}
SHORT = {"make": partial(make_duffing, 14, t_max=12.0, n_collocation=120)}
RADIAL = {"equation_kernel": Constant(100.0, "fixed") * RBF(1.0, "fixed")}
RADIAL |= {"make": partial(make_duffing, 18, t_max=28.0, n_collocation=400)}
RADIAL |= NOISE | STATE | {"n_inducing": 100, "n_restarts": 3}
SEEDED = partial(make_burgers, random_state=0)
FEW, SOME, MANY = ({"make": partial(SEEDED, n)} for n in (30, 100, 400))
NOISY = {"make": partial(SEEDED, 200, noise=0.02)}
COARSE = {"make": partial(SEEDED, 40, collocation_shape=(14, 17))}
KERNELS = {"keys": ("state_kernel", "equation_kernel")}
SIDES = {"layout": "boundary", "initial_condition": "published", "theta": 0.5}
SIDES = {"make": partial(make_burgers, **SIDES, collocation_shape=(26, 26))} | KERNELS
SIDES |= {"observation_noise": 1e-6, "equation_noise": 1e-4}
DARCY = partial(make_darcy, n_interior=8, grid_size=11, random_state=0)
DARCY, DARCY_2 = ({"make": partial(DARCY, n), "n_inducing": 100} for n in (4, 2))
DARCY |= KERNELS
SURE = {"observation_noise": 1e-6, "equation_noise": 1e-3, "n_restarts": 0}


@cases(
    duffing=DUFFING,
    duffing_two_step=DUFFING | TWO,
    duffing_cubic=DUFFING | CUBIC,
    duffing_published=DUFFING | KERNELS | NOISE | {"n_inducing": 200},
    duffing_radial=RADIAL,
    duffing_warm_start=SHORT | STATE | CUBIC | NOISE | {"warm_start": True},
    burgers_30=FEW,
    burgers_30_auto=FEW | AUTO,
    burgers_100=SOME,
    burgers_100_two_terms=SOME | {"n_terms": 2},
    burgers_400_two_step=MANY | TWO,
    burgers_400_auto=MANY | AUTO,
    burgers_noisy_auto=NOISY | AUTO,
    burgers_sides=SIDES | AUTO,
    coarse_dual=COARSE | SMOOTH | {"solver": "dual"},
    coarse_primal=COARSE | SMOOTH | {"solver": "primal"},
    coarse_reduced=COARSE | SMOOTH | REDUCED | {"n_basis": 80},
    coarse_free_kernel=COARSE | {"state_kernel": RBF((0.3, 0.1))},
    coarse_equation_noise=COARSE | {"equation_noise": 1e-2},
    coarse_observation_noise=COARSE | {"observation_noise": 1e-4},
    darcy_two_step=DARCY | TWO,
    darcy=DARCY | SURE,
    darcy_threads=DARCY | SURE | {"n_jobs": 2},
    darcy_reduced=DARCY | SURE | REDUCED,
    darcy_defaults=DARCY_2,
)
def paper(make, learner=OneStepKEqL, keys=(), **settings):
    """Problems of the paper, with some of the published settings."""
    data = make()
    kernels = {key: data.kernels[key] for key in keys} | {"random_state": 0}
    model = learner(**data.problem | kernels | settings)
    if "warm_start" in settings:  # go on where one of two steps ended
        model.set_params(max_iter=2).fit(data.X, data.y).set_params(max_iter=100)
    return model, data.X, data.y, data.X_test, data.y_test


@cases(learned_burgers_solved={})
def learned_burgers():
    """A learned equation, solved for another begin."""
    model = TwoStepKEqL(**DIFFUSIVE).fit(*on_square("burgers", 100)[:2])
    return model.pde_solver(), *on_square("burgers_too", 0, 13)


@cases(learned_darcy_solved={})
def learned_darcy():
    """A learned linear equation, solved for new flows."""
    model, X, y, *_ = paper(**DARCY | SURE)
    new = make_darcy(3, 0, grid_size=11, random_state=1)
    solver = model.fit(X, y).pde_solver(forcing=new.forcing)
    return solver, new.X, new.y, new.X_test, new.y_test


# --- records --------------------------------------------------------------------------


def attempt(function):
    """What a function returns, as json knows it, or what it raises."""
    try:
        found = function()
    except ERRORS as error:
        return f"{RAISED} {type(error).__name__}: {error}"
    return found.tolist() if hasattr(found, "tolist") else found


def pick(table, n):
    """Rows of a table in random order, the same each time."""
    return table[np.random.RandomState(0).permutation(len(table))[:n]]


def answers(model, X_test, y_test):
    """What is recorded of a fitted estimator."""
    points, law, ask = pick(X_test, 60), getattr(model, "equation_", None), {}
    last = (0,) * (len(model.variables_) - 1) + (1,)
    ask["predictions"] = lambda: model.predict(points)
    ask["derivatives"] = lambda: model.predict_derivative(points, last)
    ask["stds"] = lambda: model.predict(points[:10], return_std=True)[1]
    ask["state_error"] = lambda: filtering_error(model, X_test, y_test)
    if hasattr(law, "terms"):
        ask["terms"] = lambda: law.terms()
        ask["set_of_terms"] = lambda: sorted(law.terms())
        ask["term_stds"] = lambda: law.terms(return_std=True)[1]
        ask["unknown_part"] = lambda: law.unknown_part(pick(law.training_features, 20))
        if len(last) == 1:  # an equation in time, from fixed values
            order = max(operator.order for operator in law.operators)
            start = np.linspace(0, 3, 31), [0.2, 0.1][:order], model.forcing
            ask["simulated"] = lambda: law.simulate(*start)
    for name in TEXTS + NUMBERS:
        value = getattr(model, name, None)
        if value is not None:
            ask[name] = partial(str if name in TEXTS else np.asarray, value)
    ask["pickle_bytes"] = lambda: len(pickle.dumps(model))
    return {name: attempt(question) for name, question in ask.items()}


def run_case(name):
    """The name of a case and its record."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model, X, y, X_test, y_test, *weights = CASES[name]()
            start = time.process_time()
            model.fit(X, y, *weights)
            found = {"seconds": time.process_time() - start}
            found |= answers(model, X_test, y_test)
        except ERRORS as error:
            found = {"failed": f"{type(error).__name__}: {error}"}
    texts = [f"{each.category.__name__}: {each.message}" for each in caught]
    return name, found | {"warnings": sorted(texts)}


def record(path, patterns, n_jobs):
    """Run the cases, and write what is known after each of them."""
    chosen = [name for name in CASES if any(fnmatchcase(name, p) for p in patterns)]
    found = {name: {"failed": "it did not come to an end"} for name in chosen}
    # Imported as a module, as workers do it, so that its functions can be pickled.
    run = importlib.import_module(Path(__file__).stem).run_case
    jobs = Parallel(n_jobs, return_as="generator_unordered", batch_size=1)
    for name, answer in jobs(delayed(run)(name) for name in chosen):
        found[name] = answer
        path.write_text(json.dumps(found, indent=1), encoding="utf-8")
        print(name, answer.get("failed") or f"{answer['seconds']:.2f} s", flush=True)


# --- comparisons ----------------------------------------------------------------------


def distance(old, new):
    """Largest difference of two numbers or lists, in units of the largest number."""
    if json.dumps(old) == json.dumps(new):
        return 0.0
    try:
        old, new = np.array(old, dtype=float), np.array(new, dtype=float)
        return float(np.abs(new - old).max() / (np.abs(old).max() or 1.0))
    except ERRORS:  # texts, lists of different lengths, or nothing
        return np.inf


def law_distance(old, new):
    """Largest difference of coefficients in units of size and error; or else of P."""
    before, after = old.get("terms"), new.get("terms")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return distance(old.get("unknown_part"), new.get("unknown_part"))
    both, stds = before.keys() & after.keys(), old["term_stds"]
    sizes = {name: abs(before[name]) + stds.get(name, 0.0) or 1.0 for name in both}
    return max((abs(after[k] - before[k]) / sizes[k] for k in both), default=np.inf)


def compare(old, new):
    """Print a table and a summary; return whether nothing has become worse."""
    row = "{:25}" + 10 * "{:>10}"
    print(row.format(*"case u law terms error new CPU_s new bytes new ratio".split()))
    worse = {n: each["failed"] for n, each in new.items() if "failed" in each}
    both = [n for n in old if n in new and "failed" not in old[n] | new[n]]
    different, ratios = {}, []
    for name in both:
        a, b = old[name], new[name]
        far = {k: distance(a.get(k), b.get(k)) for k in (a | b).keys() - NOT_COMPARED}
        far["terms"] = law_distance(a, b)
        different[name] = sorted(k for k, size in far.items() if not size <= ROUNDING)
        ratios.append(b["seconds"] / a["seconds"])
        shown = "state_error", "seconds", "pickle_bytes"
        numbers = [each[key] for key in shown for each in (a, b)]
        numbers = [np.nan if isinstance(x, str) else x for x in numbers]
        error, now = numbers[:2]
        cells = [far["predictions"], far["terms"], *numbers, ratios[-1]]
        cells = [f"{x:.4g}" for x in cells]
        same = "other" if "set_of_terms" in different[name] else "same"
        print(row.format(name, *cells[:2], same, *cells[2:]))
        if now > max(error * (1 + WORSE_BY), error + WORSE_BY_ABSOLUTE):
            worse[name] = "the error of the state has become larger"
        for k in b:
            if str(b[k]).startswith(RAISED) and not str(a.get(k)).startswith(RAISED):
                worse[name] = f"{k}: {b[k]}"
    equal = [name for name in both if not DECISIVE & {*different[name]}]
    for name in both:
        if different[name]:
            print(f"\n{name} differs in {', '.join(different[name])}")
        if name not in equal:
            a, b = (each[name].get("equation_") for each in (old, new))
            print(f"  {a}\n  {b}")
    print(
        f"\n{len(equal)} of {len(both)} cases are equal to rounding, {ROUNDING:g}; ",
        end="",
    )
    print(f"{len(old) - len(both)} of the old ones are not compared.")
    print(f"CPU time, new over old: median {np.median(ratios):.3f}, ", end="")
    print(f"geometric mean {np.exp(np.mean(np.log(ratios))):.3f}.")
    for name, reason in worse.items():
        print(f"WORSE: {name}: {reason}")
    return not worse


def main():
    """Record or compare, as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recorder, comparer = map(commands.add_parser, ("record", "compare"))
    recorder.add_argument("file", type=Path)
    recorder.add_argument("--only", nargs="+", default=["*"], metavar="NAME")
    recorder.add_argument("--jobs", type=int, default=1)
    comparer.add_argument("files", nargs=2, type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.command == "record":
        return record(options.file, options.only, options.jobs)
    return not compare(*(json.loads(path.read_text("utf-8")) for path in options.files))


if __name__ == "__main__":
    sys.exit(main())
