"""What a new user does with tables of their own, by what the guide says alone.

From a table to an equation with units and standard errors, predictions with a band, a
report to hand on, and the equation saved and read again.
"""

import json

import numpy as np
import pandas as pd
import pytest

from keql import LearnedEquation, LearnedSystem, OneStepKEqL


def hand_on(model, tmp_path):
    """The equation after a way through a file; the report is a page with pictures."""
    page = tmp_path / "report.html"
    model.fit_report_.to_html(page)
    assert page.read_text(encoding="utf-8").count("<img") >= 2
    path = tmp_path / "equation.json"
    path.write_text(json.dumps(model.equation_.to_dict()), encoding="utf-8")
    assert path.stat().st_size < 1e6
    kind = type(model.equation_)
    assert kind in (LearnedEquation, LearnedSystem)
    again = kind.from_dict(json.loads(path.read_text(encoding="utf-8")))
    assert str(again) == str(model.equation_)
    return again


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


@pytest.mark.slow
def test_two_rods_with_a_label_and_gaps(tmp_path):
    """u_t = 0.01 u_xx in metres and minutes, for two initial temperatures."""
    rng, parts = np.random.default_rng(0), []
    for rod, sizes in (("brass", (20.0, 8.0, 0.0)), ("steel", (6.0, -10.0, 8.0))):
        t, x = rng.uniform(0, 10, 80), rng.uniform(0, 1, 80)
        u = 0.1 * rng.standard_normal(80)
        for k, size in enumerate(sizes, start=1):
            u += size * np.exp(-0.01 * (k * np.pi) ** 2 * t) * np.sin(k * np.pi * x)
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
    hand_on(model, tmp_path)


def test_counts_of_predators_and_their_prey(tmp_path):
    """Whole numbers; the equations of Lotka and Volterra, with counts as units."""
    from scipy.integrate import solve_ivp

    def rates(_, counts):
        hares, lynx = counts
        return 0.5 * hares - 0.02 * hares * lynx, 0.01 * hares * lynx - 0.6 * lynx

    years = np.linspace(0, 20, 81)
    exact = solve_ivp(rates, (0, 20), [50.0, 20.0], t_eval=years, rtol=1e-10).y.T
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
    hand_on(model, tmp_path)
