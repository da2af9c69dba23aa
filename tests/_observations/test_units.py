"""Units: how they are read and printed, and what follows from them."""

import pytest

from keql._observations.units import Unit, Units, labelled, with_unit
from keql.operators import parse_operator

READ = [
    ("h", {"h": 1}, "h"),
    ("m/s^2", {"m": 1, "s": -2}, "m s^-2"),
    ("m s**-2", {"m": 1, "s": -2}, "m s^-2"),
    ("m·s-2", {"m": 1, "s": -2}, "m s^-2"),
    ("mol / L / h", {"mol": 1, "L": -1, "h": -1}, "mol h^-1 L^-1"),
    ("1/h", {"h": -1}, "h^-1"),
    ("m*m/m2", {}, ""),
    ("°C", {"°C": 1}, "°C"),
    ("µm2", {"µm": 2}, "µm^2"),
    ("1", {}, ""),
    ("", {}, ""),
]


@pytest.mark.parametrize("text, powers, written", READ)
def test_units_are_read_and_written(text, powers, written):
    unit = Unit.parse(text, "units['t']")
    assert unit == Unit(powers) and str(unit) == written
    assert Unit.parse(str(unit), "") == unit and bool(unit) is bool(powers)


@pytest.mark.parametrize("text", ["h^", "(m/s)", "m^1.5", "3 h", "^2"])
def test_what_is_no_unit_is_refused(text):
    with pytest.raises(ValueError, match=r"units\['t'\]='.*' does not parse at '.*m/s"):
        Units({"t": text})


def test_units_follow_those_of_their_parts():
    units, names = Units({"t": "h", "u": "mV", "v": "A"}), ("t", "x")

    def of(operator):
        parsed = parse_operator(operator, names, ("u", "v"))
        unit = units.of_operator(parsed, names)
        return None if unit is None else str(unit)

    assert of("u_tt") == "mV h^-2" and of("v_x") == "A" and of("u_tx") == "mV h^-1"
    assert of("u_xx + 2 u") == "mV" and of("u_t + u_x") is None
    ratio = units.of("u") / units.of("t") ** 2
    assert ratio * units.of("t") ** 2 == units.of("u") != units.of("x")
    assert units.of("u") != "mV"


def test_units_are_asked_for_by_name():
    units = Units({"t": "h", "f": "N"})
    units.check(("t", "u"))
    with pytest.raises(ValueError, match="units has an entry for 't', .*x, u, or f"):
        units.check(("x", "u"))


def test_labels_and_numbers():
    units = Units({"t": "h"})
    assert labelled("t", units.of("t")) == "t (h)" and with_unit("2", "h") == "2 h"
    for unit in (units.of("x"), None):
        assert labelled("x", unit) == "x" and with_unit("2", unit) == "2"
