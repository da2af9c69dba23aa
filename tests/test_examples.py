"""The examples run as a user runs them, and do what they say."""

import re
import runpy
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


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


def test_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run("demo.py", "--output", tmp_path / "figures" / "demo.png")
    printed = capsys.readouterr().out
    true, learned = (
        coefficients(re.search(rf"{word} equation: +u_t = (.*)", printed)[1])
        for word in ("True", "Learned")
    )
    assert true == {"u u_x": 0.5, "u_xx": 0.01}
    # What the demo claims: the two true terms and no others, right to 1 per cent.
    assert set(learned) == set(true)
    for name, value in true.items():
        assert learned[name] == pytest.approx(value, rel=0.01)
    errors = [
        float(re.search(rf"{name} +([\d.]+)%", printed)[1])
        for name in ("Two-step", "One-step")
    ]
    assert errors[0] > 50 > 0.2 > errors[1]
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


def test_scratch_assay(tmp_path, capsys):
    growth, capacity = 0.05, 2e-3
    table = assay(growth, capacity, diffusion=500.0)
    table.to_csv(tmp_path / "assay.csv", index=False)
    assert run("scratch_assay.py", tmp_path / "assay.csv") == 0
    printed = capsys.readouterr().out
    # The growth dominates and is learned, roughly: r u - r/K u^2.
    learned = coefficients(re.search(r"^u_t = (.*)", printed)[1])
    assert learned["u"] == pytest.approx(growth, rel=0.5)
    assert learned["u^2"] == pytest.approx(-growth / capacity, rel=0.5)
    scores = dict(re.findall(r"^(.{26}) +([-\d.]+) +[\d.]+%$", printed, re.M))
    scores = {name.strip(): float(score) for name, score in scores.items()}
    assert set(scores) == {
        "none",
        "every fifth row",
        "those at time 24",
        "those at time 48, the last",
    }
    assert 0.9 < scores["every fifth row"] < scores["none"] < 1


def test_scratch_assay_explains_what_to_give(capsys):
    assert run("scratch_assay.py") == 2
    printed = capsys.readouterr().out
    assert "CSV file" in printed and "time, position" in printed


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
