"""Units of what was measured, and of what follows from them."""

import re
from fractions import Fraction

from keql._numerics.arguments import in_short

# One factor of a unit: a sign of division, a name, a power.
FACTOR = re.compile(
    r"\s*(?P<over>/)?\s*[*·]?\s*"
    r"(?:1(?!\d)|(?P<name>[^\s*/·^\d().+-]+)(?:(?:\^|\*\*)?(?P<power>[+-]?\d+))?)\s*"
)


class Unit:
    """A product of powers of named units, such as mV h^-2.

    `powers` is {name: power}; without an entry it is that of a pure number.
    """

    def __init__(self, powers):
        self.powers = {name: power for name, power in powers.items() if power}

    @classmethod
    def parse(cls, text, parameter):
        """Read "h", "mV", "m/s^2", "mol L^-1"; errors begin with the `parameter`."""
        powers, position = {}, 0
        while position < len(text):
            match = FACTOR.match(text, position)
            if match is None:
                raise ValueError(
                    f"{parameter}={text!r} does not parse at {text[position:]!r}: "
                    "write units as 'h', 'mV', 'm/s^2' or 'mol L^-1'."
                )
            if match["name"]:
                power = int(match["power"] or 1) * (-1 if match["over"] else 1)
                powers[match["name"]] = powers.get(match["name"], 0) + power
            position = match.end()
        return cls(powers)

    def __mul__(self, other):
        names = {**self.powers, **other.powers}
        return Unit({n: self.powers.get(n, 0) + other.powers.get(n, 0) for n in names})

    def __pow__(self, power):
        power = Fraction(power)
        return Unit({name: power * own for name, own in self.powers.items()})

    def __eq__(self, other):
        return isinstance(other, Unit) and self.powers == other.powers

    def __bool__(self):
        return bool(self.powers)

    def __truediv__(self, other):
        return self * other**-1

    @property
    def factors(self):
        """Pairs of a name and its power, the positive powers first, by name."""
        pairs = self.powers.items()
        return sorted(pairs, key=lambda pair: (pair[1] < 0, pair[0].lower()))

    def __str__(self):
        return " ".join(
            name if power == 1 else f"{name}^{_written(power)}"
            for name, power in self.factors
        )


def _written(power):
    """A power as text, a ratio of whole numbers in parentheses."""
    return f"({power})" if Fraction(power).denominator > 1 else str(power)


class Units:
    """Units of coordinates, states, inputs and the forcing f, by their names.

    `given` is {name: text}; what has no entry is a pure number.
    """

    def __init__(self, given):
        self.given = dict(given)
        for name, text in self.given.items():
            if not isinstance(text, str | Unit):
                raise TypeError(
                    f"units has {in_short(text)} for {name!r}: a unit is a text."
                )
        self.parsed = {
            name: Unit.parse(str(text), f"units[{name!r}]")
            for name, text in self.given.items()
        }

    def check(self, names):
        """Refuse entries for what is none of the names, nor the forcing."""
        unknown = [repr(name) for name in self.given if name not in (*names, "f")]
        if unknown:
            raise ValueError(
                f"units has an entry for {', '.join(unknown)}, which is none of the "
                f"variables, states and inputs: give those of {', '.join(names)}, or f "
                "for the right-hand side."
            )

    def of(self, name):
        """The unit of a coordinate, a state or an input."""
        return self.parsed.get(name, Unit({}))

    def of_operator(self, operator, variables):
        """The unit of an operator's values; None of a sum of different units."""
        units = []
        for state, orders, _ in operator.parts:
            unit = self.of(state)
            for name, order in zip(variables, orders, strict=True):
                unit = unit / self.of(name) ** order
            units.append(unit)
        return units[0] if all(unit == units[0] for unit in units) else None


def with_unit(text, unit):
    """A number, as text, with its unit, which may be None."""
    return f"{text} {unit or ''}".strip()


def labelled(name, unit):
    """The label of an axis: "t (h)"; the name alone without a unit."""
    return f"{name} ({unit})" if unit else name
