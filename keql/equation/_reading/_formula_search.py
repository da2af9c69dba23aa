"""The simplest sum of elementary functions that explains values: a formula for them."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg, optimize

from keql._numerics.elementary import Elementary, own_factors, products, state_grid
from keql._numerics.linalg import rms


@dataclass(frozen=True)
class FormulaSettings:
    """How far the search for a formula goes.

    n_kept : int. Sets of each size and number of inner parameters, the nearest ones of
        different families, whose parameters are found, and that grow by one function.
    n_grown : int. Of each, the functions that bring it nearest.
    n_steps : int. Evaluations, for each.
    most_change : float. Of the logarithm of an inner parameter from the grid: more than
        the distance of neighbours.
    largest : float. Norm of a term, in units of that of the values: larger ones cancel
        each other.
    halved : float. A larger set that does not explain the values either has to be
        nearer to them by this factor.
    n_rows : int. Most rows of the columns, evenly spaced among all.
    """

    n_kept: int = 20
    n_grown: int = 60
    n_steps: int = 30
    most_change: float = 2.5
    largest: float = 4.0
    halved: float = 0.5
    n_rows: int = 300


def simplest_formula(columns, values, tol, max_terms, settings=None):
    """The simplest sum of elementary functions of columns that explains values.

    columns : dict of str to ndarray of shape (n,). What the functions depend on.
    values : ndarray of shape (n,). To be explained.
    tol : float. Error, relative L2, up to which they are.
    max_terms : int. Most functions.

    Returns functions : list of Elementary. Those with the fewest coefficients and inner
        parameters within `tol`; if none are, the nearest ones; none of values that are
        zero.
    """
    settings = settings or FormulaSettings()
    rows = np.linspace(0, len(values) - 1, min(len(values), settings.n_rows))
    rows = np.round(rows).astype(int)
    columns = {name: column[rows] for name, column in columns.items()}
    search = _FormulaSearch(columns, values[rows], settings)
    best, sets = _Formula((), np.inf, 0.0), [()]
    for _ in range(max_terms):
        sets = search.different(search.grown(sets))
        found = [search.refined(kept) for kept in sets]
        found = [f for f in found if f.largest < settings.largest]
        within = [f for f in found if f.error < tol]
        if within:
            return list(min(within, key=lambda f: (f.n_parameters, f.error)).functions)
        nearest = min(found, key=lambda f: f.error, default=best)
        if nearest.error < settings.halved * best.error:
            best = nearest
    return list(best.functions)


@dataclass(frozen=True)
class _Formula:
    """Functions, how far their best sum is from the values, and its largest term."""

    functions: tuple
    error: float
    largest: float

    @property
    def n_parameters(self):
        """Coefficients and inner parameters."""
        return sum(1 + bool(f.family) for f in self.functions)


class _FormulaSearch:
    """Sets of functions that grow, from the values of all of them."""

    def __init__(self, columns, values, settings):
        self.columns, self.settings = columns, settings
        self.size = linalg.norm(values) or 1.0
        self.target = values / self.size
        offered = list(dict.fromkeys(_functions_of(columns)))
        F = np.column_stack([self._at(function) for function in offered])
        norms = np.array([linalg.norm(f) if np.all(np.isfinite(f)) else 0 for f in F.T])
        usable = np.flatnonzero(norms > 0)
        self.offered, self.F = (
            [offered[i] for i in usable],
            F[:, usable] / norms[usable],
        )

    def grown(self, sets):
        """Sets with one function more, the nearest first."""
        errors = {}
        for kept in sets:
            Q = linalg.qr(self.F[:, list(kept)], mode="economic")[0]
            rest, target = (A - Q @ (Q.T @ A) for A in (self.F, self.target))
            squares = np.sum(rest**2, axis=0)
            new = squares > 1e-10  # others are combinations of those kept, to rounding
            gains = np.where(new, (rest.T @ target) ** 2 / np.where(new, squares, 1), 0)
            for i in np.argsort(-gains)[: self.settings.n_grown]:
                if gains[i] > 0:
                    errors[tuple(sorted([*kept, int(i)]))] = target @ target - gains[i]
        return sorted(errors, key=errors.get)

    def different(self, sets):
        """The first sets whose functions differ in more than their parameters.

        Some with each number of inner parameters: more may bend to anything.
        """
        first, counts = {}, Counter()
        for kept in sets:
            functions = [self.offered[i] for i in kept]
            kind = frozenset(replace(f, parameter=1.0) for f in functions)
            n_inner = sum(bool(f.family) for f in functions)
            is_new = len(kind) == len(kept) and kind not in first
            if is_new and counts[n_inner] < self.settings.n_kept:
                first[kind] = kept
                counts[n_inner] += 1
        return list(first.values())

    def refined(self, kept):
        """The formula of a set, with the inner parameters of least squares."""
        functions = [self.offered[i] for i in kept]
        inner = [i for i, f in enumerate(functions) if f.family]

        def moved(changes):
            new = list(functions)
            for i, by in zip(inner, np.exp(changes), strict=True):
                new[i] = new[i].with_parameter(new[i].parameter * by)
            return new

        def residuals(changes):
            rest = self._fit(moved(changes))[0]
            return np.where(np.isfinite(rest), rest, 1.0)

        if inner:
            most, steps = self.settings.most_change, self.settings.n_steps
            bounds, start = (-most, most), np.zeros(len(inner))
            solution = optimize.least_squares(
                residuals, start, bounds=bounds, max_nfev=steps
            )
            functions = moved(solution.x)
        rest, terms = self._fit(functions)
        largest = np.max(np.sqrt(np.sum(terms**2, axis=0)))
        return _Formula(tuple(functions), float(linalg.norm(rest)), float(largest))

    def _fit(self, functions):
        """Residuals of the best sum of functions, and its terms (n, k)."""
        F = np.column_stack([self._at(function) for function in functions])
        if not np.all(np.isfinite(F)):
            return np.full(len(F), np.nan), np.full(F.shape, np.inf)
        F = F / np.maximum([rms(f) for f in F.T], np.finfo(float).tiny)
        terms = F * linalg.lstsq(F, self.target)[0]
        return self.target - np.sum(terms, axis=1), terms

    def _at(self, function):
        values = function(*(self.columns[name] for name in function.columns))
        return np.broadcast_to(values, np.shape(self.target)).astype(float)


def _functions_of(columns):
    """Products of columns; and functions of each, alone or times a column.

    What saturates is times two columns too, as in u v/(k + u).
    """
    yield from map(Elementary, products(columns))
    factors = [(), *(((name, 1),) for name in columns)]
    for name, x in columns.items():
        pairs = [((name, 1), (other, 1)) for other in columns if other != name]
        saturating = {"pole": pairs, "peak": [((name, 2),), *pairs]}
        for family, k in state_grid(x):
            before = own_factors(family, name, factors)
            for powers in [*before, *saturating.get(family, [])]:
                if function := Elementary(powers, family, name, k).with_one_power:
                    yield function
