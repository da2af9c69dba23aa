"""The experiments of the paper: what they share, and one that is quick."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "paper"
TASKS = [{"size": n, "method": name} for n in (1, 2) for name in ("a", "b")]


@pytest.fixture
def paper(monkeypatch):
    """Import a script of the experiments; forget them afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield lambda name: __import__(name)
    for name in set(sys.modules) - before:
        if (FOLDER / f"{name}.py").is_file():
            del sys.modules[name]


def measure_some(calls, fail_at=None):
    """A function that measures, notes what it was asked for, and may fail."""

    def measure(size, method):
        if (size, method) == fail_at:
            raise KeyboardInterrupt
        calls.append((size, method))
        return {"error": size / 3, "curve": np.arange(size)}

    return measure


def test_an_interrupted_run_continues(paper, tmp_path, capsys):
    experiment, path, calls = paper("experiment"), tmp_path / "rows.csv", []
    with pytest.raises(KeyboardInterrupt):
        experiment.run(path, TASKS, measure_some(calls, fail_at=(2, "a")))
    assert calls == [(1, "a"), (1, "b")]
    with path.open("a", encoding="utf-8") as file:
        file.write("2,a,0.6")  # cut off while it was written
    rows = experiment.run(path, TASKS, measure_some(calls))
    assert calls == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]  # each of them once
    assert [row["error"] for row in rows] == [1 / 3, 1 / 3, 2 / 3, 2 / 3]
    assert rows == experiment.run(path, TASKS, measure_some(calls))
    assert len(calls) == 4
    with path.open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 4
    arrays = experiment.read_arrays(path, TASKS[2])
    np.testing.assert_array_equal(arrays["curve"], [0, 1])
    assert "4 rows, 2 to do" in capsys.readouterr().out


def test_a_larger_run_takes_over_the_rows_of_a_smaller_one(paper, tmp_path):
    experiment, path, calls = paper("experiment"), tmp_path / "rows.csv", []
    experiment.run(path, TASKS[:2], measure_some(calls))
    experiment.run(path, TASKS[::-1], measure_some(calls))
    assert sorted(calls) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_a_table_of_another_version_is_refused(paper, tmp_path):
    experiment, path = paper("experiment"), tmp_path / "rows.csv"
    experiment.run(path, TASKS[:1], measure_some([]))
    with pytest.raises(ValueError, match="of another version"):
        experiment.run(path, TASKS, lambda size, method: {"other": 1.0})


@pytest.mark.slow
def test_several_processes_give_the_same_rows(paper, tmp_path, own_workers):
    experiment = paper("experiment")
    tables = [
        experiment.run(tmp_path / f"{jobs}.csv", TASKS, measure_some([]), jobs)
        for jobs in (1, 2)
    ]
    assert tables[0] == tables[1]


def test_the_cost_counts_time_memory_and_warnings(paper):
    from sklearn.exceptions import ConvergenceWarning

    experiment = paper("experiment")

    def work():
        __import__("warnings").warn("not done", ConvergenceWarning, stacklevel=1)
        return np.ones(2**23).sum()  # 64 MiB

    result, cost = experiment.measured(work)
    assert result == 2**23
    assert cost["converged"] == 0 and cost["seconds"] >= 0
    _, idle = experiment.measured(lambda: None)
    assert idle["converged"] == 1
    assert cost["peak_mb"] >= idle["peak_mb"]


def test_published_tables_have_a_figure_for_each_size(paper):
    published = paper("published")
    curves = [
        (len(values), len(published.BURGERS_SIZES))
        for methods in published.BURGERS.values()
        for figures in methods.values()
        for values in figures.values()
    ]
    curves += [
        (len(values), len(published.DARCY_SIZES))
        for methods in published.DARCY.values()
        for by_observations in methods.values()
        for values in by_observations.values()
    ]
    assert len(curves) == 2 * 3 * 2 + 4 * 2 * 3
    assert all(found == wanted for found, wanted in curves)


def test_published_tables_are_those_of_the_authors(paper, reference):
    import json

    published = paper("published")
    table = json.loads(reference("published_errors.json").read_text(encoding="utf-8"))
    names = {"one_step": "one_step_keql", "sindy": "sindy", "pinn_sr": "pinn_sr"}
    figures = {"state_error": "filtering", "equation_error": "equation"}
    for condition, methods in published.BURGERS.items():
        kind = {"fixed": "fixed", "random": "varying"}[condition]
        theirs = table["burgers_benchmark"][f"{kind}_initial_condition"]
        for method, curves in methods.items():
            for figure, values in curves.items():
                known = theirs[names[method]][figures[figure]]["mean"]
                np.testing.assert_allclose(values, known, rtol=6e-3)
    names = {"one_step": "reduced_one_step_keql", "two_step": "two_step_keql"}
    for kind, methods in published.DARCY.items():
        title = "operator_in_distribution" if kind == "operator" else f"equation_{kind}"
        for method, by_observations in methods.items():
            for n, values in by_observations.items():
                known = table["darcy"][title][names[method]]
                known = known[f"{n}_interior_observations"]["mean"]
                np.testing.assert_allclose(values, known, rtol=6e-3)


def test_sindy_finds_an_equation_in_exact_data(paper):
    pytest.importorskip("pysindy")
    from keql import TwoStepKEqL
    from keql.kernels import RBF

    t = np.linspace(0, 8, 60)[:, None]
    model = TwoStepKEqL(
        ("u", "u_t"),
        "u_tt",
        t,
        variables=("t",),
        state_kernel=RBF(1.0, "fixed"),
        observation_noise=1e-8,
    ).fit(t, np.exp(-0.1 * t.ravel()) * np.sin(2 * t.ravel()))
    equation = paper("sindy_baseline").learn_sindy(model, 2)
    # u'' + 0.2 u' + 4.01 u = 0
    S = np.random.RandomState(0).normal(size=(20, 3))
    np.testing.assert_allclose(
        equation.unknown_part(S), 4.01 * S[:, 1] + 0.2 * S[:, 2], rtol=1e-2, atol=1e-2
    )
    np.testing.assert_allclose(
        equation.value(*S[:, 1:].T), equation.unknown_part(S), rtol=1e-12, atol=1e-12
    )


def test_weak_sindy_finds_an_equation_without_derivatives_in_time(paper):
    pytest.importorskip("pysindy")
    from keql import TwoStepKEqL
    from keql.datasets import make_burgers
    from keql.kernels import RBF

    data = make_burgers(
        600, nu=0.05, initial_condition=lambda x: np.sin(np.pi * x), random_state=0
    )
    kernel = RBF((0.3, 0.2), "fixed")
    model = TwoStepKEqL(**data.problem, state_kernel=kernel, observation_noise=1e-6)
    equation = paper("sindy_baseline").learn_weak_sindy(model.fit(data.X, data.y))
    found = dict(zip(map(tuple, equation.powers), equation.coefficients, strict=True))
    # u_t = u u_x + 0.05 u_xx
    np.testing.assert_allclose(found[1, 1, 0], -1.0, rtol=0.05)
    np.testing.assert_allclose(found[0, 0, 1], -0.05, rtol=0.05)


def test_a_network_learns_a_linear_equation(paper, monkeypatch):
    pytest.importorskip("torch")
    pytest.importorskip("pysindy")
    baseline = paper("pinn_baseline")
    monkeypatch.setattr(baseline, "FIRST_STEPS", (500, 200))
    monkeypatch.setattr(baseline, "LATER_STEPS", (50, 200))
    t = np.linspace(0, 3, 31)[:, None]
    problem = {
        "operators": ("u",),
        "known_part": "u_t",
        "collocation_points": t,
        "variables": ("t",),
    }
    model = baseline.PinnSR(problem, degree=1).fit(t, np.exp(-t.ravel()))
    np.testing.assert_allclose(model.predict(t), np.exp(-t.ravel()), atol=1e-2)
    S = np.array([[0.0, 0.3], [0.0, 0.8]])
    np.testing.assert_allclose(model.equation.unknown_part(S), S[:, 1], atol=2e-2)


@pytest.mark.slow
def test_an_experiment_runs(paper, tmp_path, capsys, monkeypatch):
    darcy = paper("darcy")
    monkeypatch.setattr(darcy, "QUICK", {"sizes": (2,), "observations": (8,)})
    monkeypatch.setattr(darcy, "METHODS", ("two-step", "ours"))
    monkeypatch.setattr(darcy, "GRID_SIZE", 25)
    rows = darcy.main(["--quick", "--output", str(tmp_path)])
    errors = {row["method"]: row["training"] for row in rows}
    assert errors["ours"] < errors["two-step"] < 0.3
    printed = capsys.readouterr().out
    assert "M = 2, 8 inside, two-step" in printed and "published 0.0558" not in printed
    assert "published 0.056" in printed
    assert (tmp_path / "darcy.png").stat().st_size > 10_000
    darcy.main(["--quick", "--output", str(tmp_path)])
    assert "2 rows, 0 to do" in capsys.readouterr().out


def test_names_differ_from_those_of_the_gallery():
    # The gallery looks for names in the folders below its own and refuses duplicates.
    names = {path.name for path in FOLDER.glob("*.py")}
    assert not names & {path.name for path in FOLDER.parent.glob("*.py")}
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in index for name in names)


def test_all_experiments_are_run_and_a_failure_is_told(paper, capsys):
    run_all = paper("run_all")
    helpers = {"experiment", "published", "run_all"}
    scripts = {path.stem for path in FOLDER.glob("*.py")} - helpers
    assert set(run_all.SCRIPTS) == {s for s in scripts if not s.endswith("_baseline")}
    with pytest.raises(SystemExit, match="no_such.py failed"):
        run_all.run_script("no_such", ["--quick"])
    assert capsys.readouterr().out.startswith("no_such: ")


def test_a_benchmark_tells_what_has_become_slower(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER.parent.parent / "tests" / "benchmarks"))
    compare = __import__("bench_pieces").compare
    row = {"case": "K", "size": 256, "piece": "fit", "ratio": 10.0}
    rows = [row, row | {"piece": "gram", "ratio": 2.0}]
    saved = [row | {"ratio": 5.0}, rows[1], row | {"piece": "solve"}]
    assert compare(rows, saved, tolerance=1.5) == [("K", 256, "fit")]
    assert "5.0 to 10.0, 2.00 times" in capsys.readouterr().out
    assert compare(rows, rows, tolerance=1.5) == []
