"""The examples run as a user runs them, and do what they say."""

import ast
import re
import runpy
import struct
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from keql.exceptions import IdentifiabilityWarning

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
# Folders with a header are topics of the gallery, and their scripts are its pages.
TOPICS = sorted(path.parent for path in EXAMPLES.glob("*/GALLERY_HEADER.rst"))
PAGES = {path.name: path for topic in TOPICS for path in topic.glob("*.py")}
TUTORIALS = sorted(name for name in PAGES if name.startswith("tutorial_"))
# What each tutorial prints in the end.
CLAIMS = {
    "tutorial_1_equation.py": r"OneStepKEqL: 0\.\d+%",
    "tutorial_2_noise.py": r"'equation_kernel__degree': 3",
    "tutorial_3_predict.py": r"relative error: \d\.\de-\d\d\n$",
    "tutorial_4_systems.py": r"dgut/dt \+ dblood/dt = -0\.3\d+\(\d+\) h\^-1 blood\n$",
}

# What a fit that is to be improved on warns of.
WARNS = {"tutorial_1_equation.py": "TwoStepKEqL found .* of its terms unexplained"}


def run(name, *arguments):
    """Call the main function of an example."""
    return runpy.run_path(str(EXAMPLES / name))["main"]([str(a) for a in arguments])


def png_size(path):
    """Width and height from the header of a PNG file."""
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", header[16:])


def coefficients(equation):
    """Read "1.0 u u_x - 2.0 u_xx" as {"u u_x": 1.0, "u_xx": -2.0}."""
    terms = re.findall(r"(?:^|([+-]) )(-?[\d.e+-]+) (u[^+-]*?)(?= [+-] |$)", equation)
    return {name: float(value) * (-1) ** (sign == "-") for sign, value, name in terms}


def test_coefficients_are_read():
    text = "-0.5 u u_x - 2.00e-05 u_xx + 3. u^2 + 6 smaller terms"
    assert coefficients(text) == {"u u_x": -0.5, "u_xx": -2e-5, "u^2": 3.0}


@pytest.mark.slow
def test_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(IdentifiabilityWarning, match="TwoStepKEqL found"):
        run("demo.py", "--output", tmp_path / "figures" / "demo.png")
    printed = capsys.readouterr().out
    true, learned = (
        coefficients(re.search(rf"{word} equation: +u_t = (.*)", printed)[1])
        for word in ("True", "Learned")
    )
    assert true == {"u u_x": 0.5, "u_xx": 0.01}
    # What the demo claims: the two true terms and no others, right to three digits.
    assert set(learned) == set(true)
    for name, value in true.items():
        assert learned[name] == pytest.approx(value, rel=1e-3)
    errors = [
        float(re.search(rf"{name} +([\d.e-]+) %", printed)[1])
        for name in ("Two-step", "One-step")
    ]
    assert errors[0] > 10 > 0.01 > errors[1]
    assert re.search(r"figure is in figures.demo\.png\n", printed)
    width, height = png_size(tmp_path / "figures" / "demo.png")
    assert width > 2 * height > 800
    assert (tmp_path / "figures" / "demo.png").stat().st_size < 300 * 1024


def assay(growth, capacity, diffusion):
    """Densities of cells that divide and move into a gap: a table like a measured one.

    Explicit finite differences for u_t = r u (1 - u / K) + D u_xx without flux at the
    ends, seen at 5 times and 38 positions with noise.
    """
    x = np.arange(25.0, 1900.0, 50.0)
    u = np.where(abs(x - 950) > 300, 0.4, 0.05) * capacity
    dt, rows = 0.1, []
    for step in range(481):
        if step % 120 == 0:
            rows.append(np.column_stack([np.full(x.size, step * dt), x, u]))
        flux = np.diff(u, prepend=u[0], append=u[-1]) / 50
        u = u + dt * (growth * u * (1 - u / capacity) + diffusion * np.diff(flux) / 50)
    table = np.concatenate(rows)
    noise = np.random.RandomState(0).normal(size=len(table))
    table[:, 2] += 0.02 * capacity * noise
    return pd.DataFrame(table, columns=["hours", "um", "cells"])


# The gallery is run when the documentation is built; here those of its pages that are
# quick, or say something that nothing else tests.


@pytest.fixture
def show(monkeypatch, capsys):
    """Run a page of the gallery; return what it prints and the figure it shows."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    pyplot.close("all")  # what other tests have drawn
    monkeypatch.setattr(pyplot, "show", lambda: None)

    def run_page(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(PAGES[name]), run_name="__main__")
        return capsys.readouterr().out, pyplot.figure(pyplot.get_fignums()[-1])

    yield run_page
    pyplot.close("all")


def numbers(pattern, printed):
    """The numbers that a pattern with one group finds; percentages are fractions."""
    found = re.findall(pattern, printed)
    return [float(n.rstrip("%")) / (100 if n.endswith("%") else 1) for n in found]


@pytest.mark.slow
def test_burgers_boundary(show):
    with pytest.warns(IdentifiabilityWarning, match="derivatives are poorly known"):
        printed, figure = show("burgers_boundary.py")
    two_step, one_step = numbers(r"state (\S+),", printed)
    assert two_step > 0.5 > 1e-3 > one_step
    learned = coefficients(re.findall(r"    u_t = (.*)", printed)[-1])
    assert set(learned) == {"u u_x", "u_xx"}
    assert len(re.findall(r"\d+ terms +log evidence", printed)) > 4
    assert len(figure.axes) == 6  # three maps, each with a bar


@pytest.mark.slow
def test_forecast_oscillator(show):
    printed, figure = show("forecast_oscillator.py")
    assert set(coefficients(re.search(r"u_tt = (.*)", printed)[1])) == {
        "u",
        "u_t",
        "u^2 u_t",
    }
    assert "the equation is uncertain by" in printed
    estimated, noise = (
        numbers(r"(\S+) \+- ", printed),
        numbers(r"noise +(\S+)", printed),
    )
    assert estimated == pytest.approx([-1.0, 1.0, -1.0], rel=0.2)
    assert noise == pytest.approx([0.1], rel=0.2)
    assert min(numbers(r"(\d+%) of the truth", printed)) > 0.8
    assert len(figure.axes) == 2


@pytest.mark.slow
def test_uncertainty(show):
    printed, figure = show("uncertainty.py")
    error = numbers(r"error +([\d.]+%),", printed)
    covered = numbers(r"covers (\d+%)", printed)
    assert min(covered) > 0.8
    assert max(error[1:]) < error[0]
    assert "true one is 0.15" in printed
    assert len(figure.axes) == 3


@pytest.mark.slow
def test_own_kernel(show):
    printed, _ = show("own_kernel.py")
    jumps = numbers(r"differ by (\S+)", printed)
    line, ring = numbers(r"error of the state (\S+)", printed)
    assert jumps[0] < 1e-3 < 0.1 < jumps[1]
    assert line > 0.1 > 0.03 > ring
    learned = coefficients(re.search(r"ring: u_t = (.*), error", printed)[1])
    assert learned["u_x"] == pytest.approx(-0.6, rel=0.02)
    assert learned["u_xx"] == pytest.approx(0.01, rel=0.1)


@pytest.mark.slow
def test_operator_learning(show):
    printed, _ = show("operator_learning.py")
    assert "linear: True" in printed and "ExtrapolationWarning" in printed
    assert max(numbers(r"error:? (\d\S+?),?\s", printed)) < 1e-3


@pytest.mark.slow
def test_planets(show):
    printed, figure = show("system_planets.py")
    force = re.findall(r"= -([\d.]+)\(\d\) AU\^3 yr\^-2 [xy] \(x\^2", printed)
    np.testing.assert_allclose([float(k) for k in force], 4 * np.pi**2, rtol=0.01)
    assert max(numbers(r"two years: (\S+) AU", printed)) < 0.1
    assert len(figure.axes[0].lines) == 6


@pytest.mark.slow
def test_scratch_assay(tmp_path, show):
    growth, capacity = 0.05, 2e-3
    table = assay(growth, capacity, diffusion=500.0)
    table.to_csv(tmp_path / "assay.csv", index=False)
    # Five rows in six do not tell the logistic law from a sine, which bends alike.
    with pytest.warns(IdentifiabilityWarning, match="sin.* instead of u, u.2"):
        printed, figure = show("scratch_assay.py", tmp_path / "assay.csv")
    # The growth dominates and is learned, roughly: r u - r/K u^2.
    learned = coefficients(re.search(r"^u_t = (.*)", printed, re.M)[1])
    assert learned["u"] == pytest.approx(growth, rel=0.5)
    assert learned["u^2"] == pytest.approx(-growth / capacity, rel=0.5)
    rows = re.findall(r"^(.{30}) +(-?[\d.]+)   u_t = ", printed, re.M)
    scores = {name.strip(): float(score) for name, score in rows}
    assert set(scores) == {
        "every fifth row",
        "those at time 24",
        "those at time 48, the last",
    }
    assert 0.9 < scores["every fifth row"] < 1
    assert figure.axes[0].get_ylabel() == "cells"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages_of_the_gallery_have_their_form(name):
    text = PAGES[name].read_text(encoding="utf-8")
    title, line = ast.get_docstring(ast.parse(text)).splitlines()[:2]
    assert line == "=" * len(title)
    assert text.count("\n# %%\n") >= 3
    assert text.endswith("plt.show()\n")
    # Listed in the order of the gallery, as one that is not would come last.
    settings = (ROOT / "doc" / "conf.py").read_text(encoding="utf-8")
    assert f'"{name}"' in settings


def test_all_topics_are_listed_and_no_example_is_lost():
    settings = (ROOT / "doc" / "conf.py").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^topics = (.*)$", settings, re.M)
    assert sorted(ast.literal_eval(listed)) == [topic.name for topic in TOPICS]
    # Those that are no pages are made for the command line.
    commands = {path.name for path in EXAMPLES.glob("*.py")}
    assert commands == {"demo.py", "solve_known_equation.py"}


def test_there_are_four_tutorials():
    assert [name[len("tutorial_")] for name in TUTORIALS] == ["1", "2", "3", "4"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorials_run_from_top_to_bottom(name, show):
    words = WARNS.get(name)
    told = pytest.warns(IdentifiabilityWarning, match=words) if words else nullcontext()
    with told:
        printed, _ = show(name)
    assert re.search(CLAIMS[name], printed)


def test_users_script():
    found = runpy.run_path(str(ROOT / "tests" / "users_script.py"))
    assert found["latex"].startswith("u_{tt} = -4.")
    assert found["score"] == pytest.approx(1.0) and abs(found["error"]).max() < 0.1


@pytest.mark.slow
def test_solve_known_equation(tmp_path, capsys):
    run("solve_known_equation.py", "--output", tmp_path / "figure.png")
    printed = capsys.readouterr().out
    assert float(re.search(r"u\^3 = f: +error (\S+)", printed)[1]) < 1e-6
    assert float(re.search(r"residual (\S+)", printed)[1]) < 1e-2
    orders = re.findall(r"order ([\d.]+), at least ([\d.]+)", printed)
    assert len(orders) == 3
    assert all(float(order) > float(least) for order, least in orders)
    width, height = png_size(tmp_path / "figure.png")
    assert width > 3 * height > 1200


def test_notebooks_have_titles_in_place_of_references(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "doc" / "_extensions")
    from notebooks import plain

    text = (
        "See :doc:`the first\n<tutorial_1>`, :doc:`../systems/streams`, :math:`u_t`, "
        ":class:`keql.TwoStepKEqL` and :meth:`~keql.OneStepKEqL.pde_solver`."
    )
    assert plain(text) == (
        "See the first, `streams`, :math:`u_t`, `keql.TwoStepKEqL` and `pde_solver`."
    )
