"""Many elementary functions of the same columns, evaluated together."""

from dataclasses import dataclass

import numpy as np

from keql._numerics.elementary.families import FAMILIES


class ElementaryTable:
    """Many elementary functions of the same columns, evaluated together.

    functions : sequence of Elementary. They are m.
    columns : list of str. The d columns, by name.
    """

    def __init__(self, functions, columns):
        exponents = np.zeros((len(columns), len(functions)), dtype=int)
        groups = {}
        for i, f in enumerate(functions):
            for name, power in f.powers:
                exponents[columns.index(name), i] += power
            if f.family:
                places = tuple(columns.index(n) for n in f.arguments)
                flux = tuple(columns.index(n) for n in f.flux)
                argument = _Argument(places, f.origin, bool(f.squares))
                key = f.family, argument, f.slope, flux
                groups.setdefault(key, []).append((i, f.parameter))
        self.n_functions, self.exponents = len(functions), exponents
        self.powers = {
            column: _Powers(own) for column, own in enumerate(exponents) if any(own)
        }
        lowered = exponents - (exponents != 0)
        self.lowered = {column: _Powers(lowered[column]) for column in self.powers}
        self.groups, self.fluxes = [], []
        for (family, argument, is_slope, flux), own in groups.items():
            f, (rows, k) = FAMILIES[family], map(np.array, zip(*own, strict=True))
            pair = (f.slope, f.slope_rate) if is_slope else (f.value, f.rate)
            if flux:
                third, places = f.slope_bend if is_slope else f.bend, argument.places
                self.fluxes.append((*pair, third, places + flux, rows, k[:, None]))
            else:
                self.groups.append((*pair, argument, rows, k[:, None]))
        self.arguments = {
            column for _, _, argument, *_ in self.groups for column in argument.places
        }

    def __call__(self, S):
        """Values (m, n) at the rows of S (n, d)."""
        return self.multiplied(S, self.functions(S))

    def derivative(self, S, column):
        """Their derivatives (m, n) in one of the columns."""
        return self.derivatives(S, [column])[0]

    def derivatives(self, S, columns, F=None):
        """Those in several of the columns, a list.

        F : ndarray of shape (m, n), default=None. The functions if they are known.
        """
        F, found = self.functions(S) if F is None else F, []
        powers = {column: own(S[:, column]) for column, own in self.powers.items()}
        for column in columns:
            total = np.zeros(F.shape)
            if column in self.arguments:
                for _, rate, argument, rows, k in self.groups:
                    if column in argument.places:
                        inner = argument.slope(S, column)
                        total[rows] = inner * rate(argument(S), k)
                if column in powers:
                    total *= powers[column]
            if column in powers:
                lowered = self.lowered[column](S[:, column])
                total += F * (self.exponents[column][:, None] * lowered)
            for other, values in powers.items():
                if other != column:
                    total *= values
            for *functions, places, rows, k in self.fluxes:
                if column in places:
                    u, *slopes = S[:, places].T
                    which = places.index(column)
                    total[rows] = _flux_slopes(functions, u, *slopes, k, which)
            found.append(total)
        return found

    def functions(self, S):
        """Values (m, n) of the functions without the powers of columns."""
        F = np.ones((self.n_functions, len(S)))
        for value, _, argument, rows, k in self.groups:
            F[rows] = value(argument(S), k)
        for value, rate, _, places, rows, k in self.fluxes:
            u, first, second = S[:, places].T
            F[rows] = value(u, k) * second + rate(u, k) * first**2
        return F

    def multiplied(self, S, F):
        """Functions F (m, n), which are written over, times the powers of columns."""
        for column, powers in self.powers.items():
            F *= powers(S[:, column])
        return F


@dataclass(frozen=True)
class _Argument:
    """What functions are of: a column above an origin or another one, or squares added.

    places : tuple of int. The columns, by position.
    """

    places: tuple
    origin: float
    has_squares: bool

    def __call__(self, S):
        """Values (n,) at the rows of S (n, d)."""
        if self.has_squares:
            return np.sum(S[:, self.places] ** 2, axis=1)
        first, *others = self.places
        x = S[:, first] - self.origin
        return x - S[:, others[0]] if others else x

    def slope(self, S, column):
        """Its derivative in one of the columns, of shape (n,) or a number."""
        if self.has_squares:
            return 2 * S[:, column]
        return 1.0 if self.places[0] == column else -1.0


def _flux_slopes(functions, u, first, second, k, which):
    """Derivatives (m, n) of diffusions f(u) u_xx + f'(u) u_x^2 in one of the columns.

    functions : list of callable. f and its first and second derivative.
    which : int. 0 for u, 1 for u_x, 2 for u_xx.
    """
    value, rate, bend = functions
    if which == 0:
        return rate(u, k) * second + bend(u, k) * first**2
    return value(u, k) if which == 2 else 2 * rate(u, k) * first


class _Powers:
    """Powers (m, n) of values x (n,), each different one taken once."""

    def __init__(self, exponents):
        different, self.places = np.unique(exponents, return_inverse=True)
        self.different = different.tolist()

    def __call__(self, x):
        return np.array([x**power for power in self.different])[self.places]
