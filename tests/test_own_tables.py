"""What a new user does with tables of their own, by what the guide says alone.

From a table to an equation with units and standard errors, predictions with a band, a
report to hand on, and the equation saved and read again.
"""

import json
import pickle

import numpy as np
import pandas as pd
import pytest

from keql import LearnedEquation, LearnedSystem, OneStepKEqL


def hand_on(model, tmp_path):
    """The equation after a way through a file.

    The report is a page with pictures, and the model a file of less than a megabyte.
    """
    page = tmp_path / "report.html"
    model.fit_report_.to_html(page)
    assert page.read_text(encoding="utf-8").count("<img") >= 2
    saved = tmp_path / "model.pickle"
    saved.write_bytes(pickle.dumps(model))
    assert saved.stat().st_size < 1e6
    loaded = pickle.loads(saved.read_bytes())
    assert str(loaded.fit_report_) == str(model.fit_report_)
    path = tmp_path / "equation.json"
    path.write_text(json.dumps(model.equation_.to_dict()), encoding="utf-8")
    assert path.stat().st_size < 1e6
    kind = type(model.equation_)
    assert kind in (LearnedEquation, LearnedSystem)
    again = kind.from_dict(json.loads(path.read_text(encoding="utf-8")))
    assert str(again) == str(model.equation_)
    return again


@pytest.mark.slow
def test_a_noisy_oscillator_in_hours_and_millivolts(tmp_path):
    """u'' = -1.1 u - 0.12 u', seen for ten hours, forecast for four more."""
    t = np.linspace(0, 10, 60)
    rate, decay = np.sqrt(1.1 - 0.06**2), np.exp(-0.06 * t)
    rng = np.random.default_rng(0)
    u = 25 * decay * np.cos(rate * t) + 0.3 * rng.standard_normal(60)
    table = pd.DataFrame({"time_h": t, "u_mV": u})
    model = OneStepKEqL(
        operators=("u", "u_t"),
        known_part="u_tt",
        variables="t",
        units={"t": "h", "u": "mV"},
        n_terms="auto",
    ).fit(table[["time_h"]], table["u_mV"])
    terms, errors = model.equation_.terms(return_std=True)
    assert set(terms) == {"u", "u_t"}
    for name, true in {"u": -1.1, "u_t": -0.12}.items():
        assert abs(terms[name] - true) < 4 * errors[name] < 0.1
    assert str(model.equation_).startswith("d2u/dt2 = -1.")
    assert "h^-2 u - 0.1" in str(model.equation_)
    later = pd.DataFrame({"time_h": np.linspace(10.5, 14, 8)})
    forecast, std = model.forecast(later, return_std=True)
    s = later["time_h"].to_numpy()
    # The phase is that of u(0) = 25 and u'(0) = -1.5.
    expected = 25 * np.exp(-0.06 * s) * np.cos(rate * s)
    assert np.all(abs(forecast - expected) < 4 * std) and np.all(std < 1)
    again = hand_on(model, tmp_path)
    start = [25.0, -1.5]
    assert np.array_equal(again.simulate(t, start), model.simulate(t, start))


def cooling(t, x, sizes):
    """Temperatures in a rod with ends at zero, from those at first, in K."""
    parts = (
        size * np.exp(-0.01 * (k * np.pi) ** 2 * t) * np.sin(k * np.pi * x)
        for k, size in enumerate(sizes, start=1)
    )
    return sum(parts)


@pytest.mark.slow
def test_two_rods_with_a_label_and_gaps(tmp_path):
    """u_t = 0.01 u_xx in metres and minutes, for two initial temperatures."""
    rng, parts = np.random.default_rng(0), []
    rods = {"brass": (20.0, 8.0, 0.0), "steel": (6.0, -10.0, 8.0)}
    for rod, sizes in rods.items():
        t, x = rng.uniform(0, 10, 80), rng.uniform(0, 1, 80)
        u = 0.1 * rng.standard_normal(80) + cooling(t, x, sizes)
        parts.append(pd.DataFrame({"t": t, "x": x, "rod": rod, "u": u}))
    table = pd.concat(parts, ignore_index=True)
    table.loc[rng.choice(160, 8, replace=False), "u"] = np.nan
    model = OneStepKEqL(
        operators=("u", "u_x", "u_xx"),
        known_part="u_t",
        function_column="rod",
        units={"t": "min", "x": "m", "u": "K"},
        n_terms="auto",
    )
    with pytest.raises(ValueError, match="y contains NaN, .* 8 of 160 rows"):
        model.fit(table[["t", "x", "rod"]], table["u"])
    with pytest.raises(ValueError, match="name it: function_column='rod'"):
        OneStepKEqL(variables=("t", "x")).fit(table[["t", "x", "rod"]], table["u"])
    table = table[table["u"].notna()]
    model.fit(table[["t", "x", "rod"]], table["u"])
    terms, errors = model.equation_.terms(return_std=True)
    assert set(terms) == {"u_xx"}
    assert abs(terms["u_xx"] - 0.01) < 4 * errors["u_xx"] < 1e-3
    assert str(model.equation_).endswith(" m^2 min^-1 d2u/dx2")
    for rod, sizes in rods.items():
        x = np.linspace(0.1, 0.9, 9)
        later = pd.DataFrame({"t": np.full(9, 12.0), "x": x, "rod": rod})
        forecast, std = model.forecast(later, return_std=True)
        assert np.all(abs(forecast - cooling(12.0, x, sizes)) < 4 * std)
        assert np.all(std < 1)
    hand_on(model, tmp_path)


@pytest.mark.slow
def test_counts_of_predators_and_their_prey(tmp_path):
    """Whole numbers; the equations of Lotka and Volterra, with counts as units."""
    from scipy.integrate import solve_ivp

    def rates(_, counts):
        hares, lynx = counts
        return 0.5 * hares - 0.02 * hares * lynx, 0.01 * hares * lynx - 0.6 * lynx

    years = np.linspace(0, 24, 97)
    exact = solve_ivp(rates, (0, 24), [50.0, 20.0], t_eval=years, rtol=1e-10).y.T
    years, later, exact, truth = years[:81], years[81:], exact[:81], exact[81:]
    table = pd.DataFrame(np.round(exact), columns=["hares", "lynx"])
    model = OneStepKEqL(
        operators=("hares", "lynx"),
        known_part=("hares_year", "lynx_year"),
        units={"year": "a"},
        n_terms="auto",
    ).fit(pd.DataFrame({"year": years}), table)
    terms = model.equation_.terms()
    assert set(terms["hares_year"]) == {"hares", "hares lynx"}
    assert terms["hares_year"]["hares"] == pytest.approx(0.5, rel=0.03)
    assert terms["lynx_year"]["hares lynx"] == pytest.approx(0.01, rel=0.03)
    first, second = str(model.equation_).splitlines()
    assert first.startswith("dhares/dyear = ") and "a^-1 hares" in first
    assert second.startswith("dlynx/dyear = ")
    forecast, std = model.forecast(pd.DataFrame({"year": later}), return_std=True)
    assert np.all(abs(forecast - truth) < 4 * std + 0.1) and np.all(std < 2)
    hand_on(model, tmp_path)


def plate(t, x, y):
    """Temperatures of an insulated square plate, in degrees Celsius."""
    u = 20.0
    for k, m, size in ((1, 1, 10.0), (2, 1, 7.0), (1, 2, -5.0), (2, 2, 4.0)):
        decay = np.exp(-0.05 * np.pi**2 * (k**2 + m**2) * t)
        u = u + size * decay * np.cos(k * np.pi * x) * np.cos(m * np.pi * y)
    return u


def states_at_the_end(model):
    """The plate when the film ends, and that its sides stay insulated; and its rows."""
    axis, ends = np.linspace(0, 1, 10), np.linspace(1, 1.2, 6)
    x, y = (values.ravel() for values in np.meshgrid(axis, axis, indexing="ij"))
    start = pd.DataFrame({"t": 1.0, "x": x, "y": y})
    rows = [start.assign(kind="u", value=model.predict(start))]
    t, along = (values.ravel() for values in np.meshgrid(ends, axis, indexing="ij"))
    for name, other in (("x", "y"), ("y", "x")):
        for side in (0.0, 1.0):
            own = pd.DataFrame({"t": t, name: side, other: along})
            rows.append(own.assign(kind=f"u_{name}", value=0.0))
    return start, pd.concat(rows, ignore_index=True)


@pytest.mark.slow
def test_a_film_of_an_insulated_plate(tmp_path):
    """u_t = 0.05 (u_xx + u_yy) in metres and hours, from 16 frames of 16 x 16 pixels.

    Some hundred pixels drawn at random are enough for the joint method; the rest are
    left NaN, not measured.
    """
    axis, rng = np.linspace(0, 1, 16), np.random.default_rng(0)
    grid = np.meshgrid(axis, axis, axis, indexing="ij")
    film = plate(*grid) + 0.1 * rng.standard_normal((16, 16, 16))
    some = np.where(rng.uniform(size=film.shape) < 250 / film.size, film, np.nan)
    coords = dict.fromkeys("txy", axis)
    xarray = pytest.importorskip("xarray")
    given = xarray.DataArray(some, coords, name="u", attrs={"units": "degC"})
    model = OneStepKEqL(
        operators=("u", "u_xx", "u_yy"),
        known_part="u_t",
        units={"t": "h", "x": "m", "y": "m", "u": "K"},
        n_terms="auto",
    ).fit(given)
    terms, errors = model.equation_.terms(return_std=True)
    assert set(terms) == {"u_xx", "u_yy"}
    for name, value in terms.items():
        assert abs(value - 0.05) < 4 * errors[name] < 0.01
    smooth, std = model.predict(given, return_std=True)
    assert smooth.attrs == {"units": "degC"} and std.values.shape == (16, 16, 16)
    assert np.sqrt(np.mean((smooth.values - plate(*grid)) ** 2)) < 0.1
    start, table = states_at_the_end(model)
    solver = model.pde_solver(operator_column="kind", collocation_points=400)
    solver.fit(table[["t", "x", "y", "kind"]], table["value"])
    later = start.assign(t=1.2, kind="u")
    forecast, std = solver.predict(later, return_std=True)
    truth = plate(1.2, start["x"].to_numpy(), start["y"].to_numpy())
    assert np.all(abs(forecast - truth) < 4 * std) and np.all(std < 0.3)
    hand_on(model, tmp_path)
