"""Lines that say what a fit is doing."""

import re
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from keql import IdentifiabilityWarning, KernelPDESolver, OneStepKEqL, TwoStepKEqL
from keql._estimators.progress import Progress
from keql.kernels import RBF, Polynomial

T = np.linspace(0, 6, 25)[:, None]
U = np.sin(2 * T[:, 0])
TIME = re.compile(r"^\[ *\d+\.\d s\] ")


def lines_of(capsys):
    """What was printed, without the elapsed times, which rise."""
    lines = capsys.readouterr().out.splitlines()
    assert all(TIME.match(line) for line in lines)
    times = [float(line[1:].partition(" s]")[0]) for line in lines]
    assert times == sorted(times)
    return [TIME.sub("", line) for line in lines]


def stages_of(capsys):
    """The lines that a fit prints however long it takes."""
    late = re.compile(r": (goes on|fit \d+, step .*)$")
    return [line for line in lines_of(capsys) if not late.search(line)]


def test_two_steps_say_what_they_do(capsys):
    model = TwoStepKEqL("u", "u_tt", variables="t", equation_kernel=Polynomial(1))
    model.set_params(verbose=1).fit(T, U)
    assert stages_of(capsys) == [
        "two steps, 25 observations",
        f"found {model.equation_}",
    ]
    table = pd.DataFrame({"t": T[:, 0], "run": ["a", "b"] * 12 + ["a"]})
    states = TwoStepKEqL(None, variables="t", function_column="run", verbose=1)
    states.fit(table, U)
    expected = ["two steps, 25 observations of 2 functions", "done"]
    assert stages_of(capsys) == expected
    model.set_params(verbose=0).fit(T, U)
    assert stages_of(capsys) == []


def test_stages_have_a_line_and_steps_have_none(capsys):
    model = OneStepKEqL("u", "u_tt", variables="t", n_terms=1, verbose=1).fit(T, U)
    lines = [re.sub(r"of \d+,", "of n,", line) for line in stages_of(capsys)]
    first = "hypothesis 1 of n, "
    assert lines[:3] == [
        "two steps, 25 observations",
        first + "exact states, quadratic polynomial",
        first + "states that obey the equation exactly",
    ]
    assert lines[-1] == f"found {model.equation_}" and len(lines) < 9
    kernel = RBF(1.0, "fixed")
    given = {"collocation_points": 30, "observation_noise": 1e-3, "n_terms": None}
    X, y = np.column_stack([T, T[::-1] ** 2 / 6]), U
    model = OneStepKEqL(("u", "u_x", "u_y"), "u_t", variables=("t", "x", "y"), **given)
    X = np.column_stack([X, np.cos(9 * T)])
    model.set_params(state_kernel=kernel, equation_noise=0.1, verbose=1)
    with pytest.warns(IdentifiabilityWarning):  # of points on a curve
        model.fit(X, y)
    assert stages_of(capsys)[1] == "equation at collocation points"


def test_solvers_say_what_they_do(capsys):
    given = {"variables": "t", "collocation_points": 20, "verbose": 1}
    solver = KernelPDESolver({"u_tt": 1.0, "u": 4.0}, **given)
    solver.fit([[0.0], [0.5]], [1.0, 0.2])
    *stages, last = stages_of(capsys)
    solving = "solving, 2 data, 20 collocation points"
    assert stages == ["choice of the kernel", solving]
    assert last.startswith("solved: 1 step(s), relative noise ")
    solver.set_params(state_kernel=RBF(1.0)).fit([[0.0], [0.5]], [1.0, 0.2])
    assert stages_of(capsys)[0] == solving
    with Progress(1, interval=0.02) as progress:
        progress.start(solving)
        time.sleep(0.1)
    assert lines_of(capsys)[1] == f"{solving}: goes on"


def test_hypotheses_are_counted(capsys):
    progress = Progress(1)
    for name, number in (("lines", 1), ("lines", 1), ("parabolas", 2), ("lines", 1)):
        progress.hypothesis(name, number, 2)
    steps(progress)
    assert lines_of(capsys) == [
        "hypothesis 1 of 2, lines",
        "hypothesis 2 of 2, parabolas",
        "hypothesis 1 of 2, lines",
        "hypothesis 1 of 2, states that obey the equation exactly",
    ]


def test_a_hypothesis_ends_with_the_equation_of_its_last_step(capsys):
    progress = Progress(1, interval=60.0)
    problem = SimpleNamespace(process=None, is_exact=True)
    result = SimpleNamespace(n_iter=1, loss=2.0, damping_curve=[0.5])
    for number in (1, 2, 3):
        progress.hypothesis("lines", number, 3)
        progress.step(problem, result, lambda i=number: [f"u_t = {i} u"])
    lines = [line for line in lines_of(capsys) if "so far" in line]
    assert lines == ["so far u_t = 1 u", "so far u_t = 2 u"]


def test_steps_have_the_equations_of_exact_and_of_other_states(capsys, monkeypatch):
    often = partial(Progress, interval=0.0)
    monkeypatch.setattr(Progress, "_watch", lambda self: None)
    monkeypatch.setattr("keql._estimators.one_step.Progress", often)
    given = {"variables": "t", "equation_kernel": Polynomial(1), "verbose": 1}
    y = np.column_stack([U, np.cos(2 * T[:, 0])])
    system = OneStepKEqL(("u1", "u2"), ("u1_t", "u2_t"), **given)
    system.set_params(state_kernel=RBF(1.0), equation_noise=0.02, n_terms=1)
    for model, data in ((OneStepKEqL("u", "u_tt", **given), U), (system, y)):
        found = str(model.fit(T, data).equation_).splitlines()
        told = [line for line in lines_of(capsys) if line.startswith("so far ")]
        assert {line.partition(" = ")[0] for line in told} == {
            f"so far {line.partition(' = ')[0]}" for line in found
        }
        # Before others are left out they may be there, but for rounding errors.
        assert any(line.startswith(f"so far {found[0]}") for line in told)


def test_long_equations_are_cut(capsys):
    progress = Progress(1, interval=0.0)
    problem = SimpleNamespace(process=None, is_exact=True)
    result = SimpleNamespace(n_iter=1, loss=2.0, damping_curve=[0.5])
    progress.step(problem, result, lambda: ["u_t = " + 50 * "1.00 u + "])
    *_, last = lines_of(capsys)
    assert last.startswith("so far u_t = 1.00 u + ") and last.endswith(" ...")
    assert len(last) < 130


def test_systems_have_a_line_for_each_equation(capsys):
    y = np.exp(-0.2 * T) * np.column_stack([U, np.cos(2 * T[:, 0])])
    model = TwoStepKEqL(("u1", "u2"), ("u1_t", "u2_t"), variables="t", verbose=1)
    lines = str(model.fit(T, y).equation_).splitlines()
    assert stages_of(capsys)[1:] == [f"found {line}" for line in lines]


def test_a_stage_that_says_nothing_goes_on(capsys):
    with Progress(1, interval=0.02) as progress:
        time.sleep(0.2)
    assert lines_of(capsys)[0] == "two steps: goes on"
    time.sleep(0.1)
    assert lines_of(capsys) == [] and progress.is_over.is_set()
    with Progress(0, interval=0.01):
        time.sleep(0.1)
    assert lines_of(capsys) == []


def test_an_error_ends_the_lines(capsys):
    with pytest.raises(ValueError, match="requires y"):
        TwoStepKEqL("u", "u_t", verbose=1).fit(T)
    threads = [thread for thread in threading.enumerate() if thread.daemon]
    deadline = time.perf_counter() + 5
    while any("_watch" in thread.name for thread in threads if thread.is_alive()):
        assert time.perf_counter() < deadline
    assert lines_of(capsys) == []


def steps(progress):
    """Five steps of three fits, two of them of one problem."""
    first, second = (
        SimpleNamespace(process=None, is_exact=True),
        SimpleNamespace(process=None, is_exact=True),
    )
    for problem, n_iter in [
        (first, 1),
        (first, 2),
        (first, 1),
        (second, 1),
        (second, 2),
    ]:
        result = SimpleNamespace(n_iter=n_iter, loss=2.5, damping_curve=[0.1])
        progress.step(problem, result)


@pytest.mark.parametrize(
    "verbose, interval, n_lines", [(0, 0.0, 0), (1, 60.0, 1), (1, 0.0, 6), (2, 60.0, 6)]
)
def test_long_stages_and_steps(capsys, verbose, interval, n_lines):
    steps(Progress(verbose, interval))
    lines = lines_of(capsys)
    assert len(lines) == n_lines
    if n_lines > 1:
        fits = [int(re.search(r"fit (\d)", line)[1]) for line in lines[1:]]
        assert fits == [1, 1, 2, 3, 3]
        assert lines[-1].endswith("fit 3, step 2, loss 2.5, damping 0.1")
