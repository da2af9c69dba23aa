"""Record the answers of many small fits, and compare two such records.

A change of the code that should change no answer is shown to change none: record
before and after it, and compare. Only public names of the package are imported, so
that the private modules may move in between.

    python tests/benchmarks/recorded_fits.py record OLD.json
    python tests/benchmarks/recorded_fits.py record NEW.json --only 'burgers*' --jobs 2
    python tests/benchmarks/recorded_fits.py compare OLD.json NEW.json

The comparison fails, with exit status 1, if a fit does not work any more or the error
of a state has become larger.
"""

import argparse
import importlib
import json
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import autograd.numpy as anp
import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.integrate import solve_ivp
from scipy.interpolate import RectBivariateSpline
from sklearn.model_selection import GridSearchCV

from keql import KernelPDESolver, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL, datasets
from keql.kernels import (
    RBF,
    Constant,
    Dictionary,
    Matern,
    Polynomial,
    RationalQuadratic,
    Restriction,
)
from keql.metrics import filtering_error
from keql.model_selection import FunctionKFold

# Numbers of points at which predictions, standard deviations and P are recorded.
N_PREDICTIONS, N_STD, N_UNKNOWN = 60, 10, 20
# Relative differences that are called rounding.
ROUNDING = 1e-6
# A state error has become worse if it grows by more than both.
WORSE_RELATIVE, WORSE_ABSOLUTE = 0.01, 1e-8
# What a fit that does not work raises.
ERRORS = (ValueError, RuntimeError, ArithmeticError, TypeError, AttributeError)
ERRORS += (LookupError, pickle.PicklingError)
# Attributes that are recorded if an estimator has them; as text, or as numbers.
TEXTS = ("equation_", "state_kernel_", "equation_kernel_", "fit_report_", "message_")
NUMBERS = ("observation_noise_", "equation_noise_", "n_iter_", "converged_", "misfit_")
NUMBERS += ("linear_", "relative_noise_", "log_likelihood_")

CASES = {}
make_burgers = cache(datasets.make_burgers)


class Case(NamedTuple):
    """A fit, and what else is asked of it.

    `make()` returns an estimator, X, y, X_test, and y_test or None; `derivative` is the
    operator that is predicted; `weights(X)` are weights of the observations; `initial`
    are the values from which the learned equation is integrated.
    """

    make: Callable
    derivative: str
    weights: Callable | None = None
    initial: tuple | None = None


def case(derivative, variants=None, **options):
    """Register a function as a case, or as one for each set of its arguments."""

    def register(function):
        for suffix, settings in (variants or {"": {}}).items():
            name = f"{function.__name__}_{suffix}".rstrip("_")
            CASES[name] = Case(partial(function, **settings), derivative, **options)
        return function

    return register


# --- ordinary differential equations --------------------------------------------------

ODE = {"variables": ("t",), "random_state": 0}
SECOND = ODE | {"operators": ("u", "u_t"), "known_part": "u_tt"}
FIRST = ODE | {"operators": ("u",), "known_part": "u_t"}
HARMONIC = ODE | {
    "operators": ("u",),
    "known_part": "u_tt",
    "equation_kernel": Polynomial(1),
    "collocation_points": np.linspace(0, 6, 60)[:, None],
}
FIXED = {
    "state_kernel": RBF(1.0, "fixed"),
    "observation_noise": 1e-4,
    "equation_noise": 1e-3,
}


def parts(data):
    """Observations and test points of a data set."""
    return data.X, data.y, data.X_test, data.y_test


def trajectory(rate, initial, t_max, n, noise=0.0):
    """Observations of the first component of a solution, and 301 test points."""
    solution = solve_ivp(
        rate, (0, t_max), initial, "DOP853", dense_output=True, rtol=1e-11, atol=1e-12
    ).sol
    t, test = np.linspace(0, t_max, n)[:, None], np.linspace(0, t_max, 301)[:, None]
    noise = noise * np.random.RandomState(0).normal(size=n)
    return t, solution(t[:, 0])[0] + noise, test, solution(test[:, 0])[0]


def cosine(points):
    """A forcing."""
    return np.cos(points[:, 0])


def known_damping(u_t, u_tt):
    """A part of an equation that is known as a function."""
    return u_tt + 0.3 * u_t


def sine(u):
    """A function of the state that an equation may contain."""
    return anp.sin(u)


def itself(u_t):
    """The velocity, the same."""
    return u_t


@case(
    "u_t",
    {
        "two_step": {"learner": TwoStepKEqL},
        "defaults": {},
        "cubic": {"equation_kernel": Polynomial(3)},
        "cubic_auto": {"equation_kernel": Polynomial(3), "n_terms": "auto"},
        "published": {"published": True, "n_restarts": 2},
    },
    initial=(0.0, 0.0),
)
def duffing(learner=OneStepKEqL, published=False, **settings):
    """The chaotic oscillator of the paper."""
    data = datasets.make_duffing()
    kernels = data.kernels if published else {}
    model = learner(**data.problem | kernels | settings, random_state=0)
    return model, *parts(data)


@case("u_t", {"one_step": {}, "reduced": {"learner": ReducedOneStepKEqL}})
def duffing_restarts(learner=OneStepKEqL):
    """An equation in the space of a Gaussian kernel that is not found directly."""
    data = datasets.make_duffing(18, t_max=28.0, n_collocation=400)
    settings = FIXED | {
        "state_kernel": data.kernels["state_kernel"],
        "equation_kernel": Constant(100.0, "fixed") * RBF(1.0, "fixed"),
        "n_inducing": 100,
        "n_restarts": 3,
    }
    return learner(**data.problem | settings, random_state=0), *parts(data)


@case("u_t", {"two_step": {"learner": TwoStepKEqL}, "one_step": {}}, initial=(0.1,))
def logistic(learner=OneStepKEqL):
    """u_t = u - u^2."""
    return learner(**FIRST), *trajectory(lambda t, u: u * (1 - u), [0.1], 8, 15)


@case(
    "u_t",
    {
        "two_step": {"learner": TwoStepKEqL, "n": 30},
        "one_step": {},
        "reduced": {"learner": ReducedOneStepKEqL},
        "fixed": FIXED,
        "penalty": FIXED | {"state_penalty": 2.5},
        "two_step_penalty": {"learner": TwoStepKEqL, "n": 20, "state_penalty": 3.0},
        "free_bounds": {"state_kernel": Constant(2.0) * Matern(1.5, nu=4.5)},
        "no_optimizer": FIXED | {"observation_noise": None, "optimizer": None},
        "restarted": {
            "learner": TwoStepKEqL,
            "n": 20,
            "state_kernel": RationalQuadratic(1.0),
            "n_restarts": 3,
        },
    },
    initial=(0.0, 2.0),
)
def harmonic(learner=OneStepKEqL, n=8, **settings):
    """u_tt = -4 u."""
    data = trajectory(lambda t, u: [u[1], -4 * u[0]], [0.0, 2.0], 6, n)
    return learner(**HARMONIC | settings), *data


@case(
    "u_t",
    {"one_step": {}, "two_step": {"learner": TwoStepKEqL}},
    weights=lambda X: 1.0 + 3.0 * (X[:, 0] > 3) - (X[:, 0] == 0),
)
def weighted(learner=OneStepKEqL):
    """Observations of different precision, one of them of none."""
    data = trajectory(lambda t, u: [u[1], -4 * u[0]], [0.0, 2.0], 6, 25, noise=0.05)
    return learner(**HARMONIC, n_restarts=2), *data


@case(
    "u_tt",
    {
        "two_step": {"learner": TwoStepKEqL},
        "auto": {"n_terms": "auto"},
        "callable": {"known_part": known_damping, "operators": ("u",)},
        "dict": {"known_part": {"u_tt": 1.0, "u": 1.0}, "operators": ("u_t",)},
    },
)
def damped(learner=OneStepKEqL, **settings):
    """u_tt = -u - 0.3 u_t."""
    data = trajectory(lambda t, u: [u[1], -u[0] - 0.3 * u[1]], [1.0, 0.0], 12, 14)
    return learner(**SECOND | settings), *data


@case(
    "u_t",
    {
        "cubic": {"equation_kernel": Polynomial(3)},
        "free_form": {
            "equation_kernel": Constant(10.0) * RBF(2.0),
            "n_inducing": 60,
            "state_kernel": Constant(4.0) * RBF(1.0),
        },
        "defaults": {},
    },
    initial=(2.0, 0.0),
)
def van_der_pol(**settings):
    """u_tt = (1 - u^2) u_t - u."""
    data = trajectory(
        lambda t, u: [u[1], (1 - u[0] ** 2) * u[1] - u[0]], [2.0, 0.0], 10, 25
    )
    model = OneStepKEqL(**SECOND | settings, collocation_points=150, n_restarts=2)
    return model, *data


@case("u_t", initial=(0.5, 0.0))
def forced():
    """u_tt = -4 u - 0.5 u_t + cos t."""
    data = trajectory(
        lambda t, u: [u[1], np.cos(t) - 4 * u[0] - 0.5 * u[1]], [0.5, 0.0], 10, 20
    )
    return OneStepKEqL(**SECOND, forcing=cosine, equation_kernel=Polynomial(1)), *data


@case("u_t", {"dictionary": {}, "restriction": {"polynomial": True}})
def pendulum(polynomial=False):
    """u_tt = -sin u - 0.1 u_t, with functions or monomials that are given."""
    kernel = Dictionary({"sin(u)": sine, "u_t": itself})
    if polynomial:
        kernel = Restriction(Polynomial(3), [(0, 1, 0), (0, 3, 0), (0, 0, 1)])
    data = trajectory(
        lambda t, u: [u[1], -np.sin(u[0]) - 0.1 * u[1]], [1.5, 0.0], 12, 16
    )
    return OneStepKEqL(**SECOND, equation_kernel=kernel), *data


@case("u_t", {"two_step": {"learner": TwoStepKEqL}, "one_step": {}})
def noisy_decay(learner=OneStepKEqL):
    """u_t = -0.7 u with a noise of 2 %."""
    data = trajectory(lambda t, u: -0.7 * u, [1.0], 5, 40, noise=0.02)
    return learner(**FIRST, equation_kernel=Polynomial(1)), *data


@case("u_t", {"two_step": {"learner": TwoStepKEqL}, "one_step": {}})
def three_logistic(learner=OneStepKEqL):
    """Three solutions of one equation, in a table with a column of labels."""
    tables, values = [], []
    for label, start in (("b", 0.05), ("a", 0.3), ("c", 1.6)):
        found = trajectory(lambda t, u: u * (1 - u), [start], 6, 8)
        tables.append([pd.DataFrame({"t": X[:, 0], "of": label}) for X in found[::2]])
        values.append(found[1::2])
    (X, X_test), (y, y_test) = map(partial(zip, strict=True), (), ()), ()
    settings = FIRST | {"variables": None, "function_column": "of"}
    return learner(**settings), X, y, X_test, y_test
