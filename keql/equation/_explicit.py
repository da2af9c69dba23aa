"""Ordinary differential equations solved for the highest derivatives of the states."""

from collections.abc import Mapping
from copy import copy
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from keql._numerics.arguments import as_numbers, call_given, in_short
from keql._numerics.linalg import rms
from keql._observations.inputs import input_columns
from keql.equation._known import LinearKnownPart


class Layout:
    """Where derivatives of the states stand, in the vector y and in the features.

    y has state by state, and of each its derivatives of the orders below the highest.
    """

    def __init__(self, equation, inputs):
        if len(equation.variables) != 1:
            raise ValueError(
                "simulate integrates ordinary differential equations, but this one has "
                f"the variables {', '.join(equation.variables)}: use KernelPDESolver."
            )
        self.variable = equation.variables[0]
        self.states = tuple(getattr(equation, "states", ("u",)))
        self.input_names = tuple(getattr(equation, "inputs", ()))
        self.operators, self.inputs = equation.operators, inputs
        derivatives = [_plain_derivative(operator) for operator in self.operators]
        self.orders = {
            state: max((k for s, k, _ in derivatives if s == state), default=0)
            for state in self.states
        }
        static = [state for state, order in self.orders.items() if order == 0]
        if static:
            whose = "" if len(self.states) == 1 else f" of {', '.join(static)}"
            kind = "the equation has" if len(self.states) == 1 else "the equations have"
            raise ValueError(f"simulate needs a derivative{whose}: {kind} none.")
        # Rows of all derivatives, the highest of each state among them.
        first = np.cumsum([0, *(order + 1 for order in self.orders.values())])
        begin = dict(zip(self.states, first, strict=False))
        self.rows = [begin[state] + order for state, order, _ in derivatives]
        self.factors = np.array([factor for _, _, factor in derivatives])
        self.highest = (first[1:] - 1).tolist()
        self.known = np.setdiff1d(np.arange(first[-1]), self.highest)
        self.offset = 1 + len(self.input_names)
        # Columns of the highest derivatives, of which there may be several multiples.
        self.solved_for = [
            (j, self.highest.index(row))
            for j, row in enumerate(self.rows)
            if row in self.highest
        ]
        # Columns of the entries of y, with their positions and factors.
        position = {row: i for i, row in enumerate(self.known.tolist())}
        self.given = [
            (self.offset + j, position[row], self.factors[j])
            for j, row in enumerate(self.rows)
            if row in position
        ]
        self.columns_of_state = [
            [self.offset + j for j, (s, _, _) in enumerate(derivatives) if s == state]
            for state in self.states
        ]

    @cached_property
    def names(self):
        """Names of the entries of y."""
        return [
            f"{state}_{self.variable * k}" if k else state
            for state, order in self.orders.items()
            for k in range(order)
        ]

    @cached_property
    def _places_of_given(self):
        """Columns that depend on y, the entries of it there, and factors or None."""
        own = np.array(self.given, dtype=float).reshape(-1, 3)
        columns, places = own[:, :2].T.astype(int)
        return columns, places, None if np.all(own[:, 2] == 1) else own[:, 2]

    @cached_property
    def _chain(self):
        """Positions in dy/dt that hold an entry of y, those, and of the highest."""
        pairs = np.array(self.chain(), dtype=int).reshape(-1, 2)
        return *pairs.T, self.position_of_highest()

    @property
    def highest_names(self):
        """Names of the operators that are the highest derivatives."""
        first = [self.rows.index(row) for row in self.highest]
        return [self.operators[j].name for j in first]

    def check_initial(self, initial):
        """Values of the states and of their derivatives at the first time, as y."""
        if isinstance(initial, Mapping):
            initial = self._flat(initial)
        initial = np.atleast_1d(as_numbers(initial, "initial"))
        n = sum(self.orders.values())
        if initial.shape != (n,) or not np.all(np.isfinite(initial)):
            state, *others = self.states
            names = ", ".join(self.names)
            needs = "the equations need"
            if not others:
                lower = (f"its derivative of order {k}" for k in range(1, n))
                names = ", ".join([state, *lower])
                needs = f"an equation of order {n} needs"
            raise ValueError(
                f"initial has shape {initial.shape}: {needs} {n} finite value(s), "
                f"{names}."
            )
        return initial

    def _flat(self, initial):
        if set(initial) != set(self.states):
            raise ValueError(
                f"initial has values of {', '.join(map(str, initial))}: the states are "
                f"{', '.join(self.states)}."
            )
        for state, order in self.orders.items():
            if np.size(initial[state]) != order:
                raise ValueError(
                    f"initial has {np.size(initial[state])} value(s) of {state!r}, "
                    f"whose highest derivative has the order {order}: give {order}, "
                    "the state and then its derivatives."
                )
        values = [as_numbers(initial[state], "initial") for state in self.states]
        return np.concatenate([np.ravel(own) for own in values])

    def sizes(self, initial, training):
        """The size of the state that each entry of y belongs to.

        It is the largest of its initial values and of its features in `training`.
        """
        ends = np.cumsum(list(self.orders.values()))[:-1]
        sizes = []
        pairs = zip(np.split(initial, ends), self.columns_of_state, strict=True)
        for values, columns in pairs:
            size = np.max(np.abs(values), initial=0.0)
            if training is not None:
                size = max(size, rms(training[:, columns]))
            sizes.append(size or 1.0)
        return np.repeat(sizes, list(self.orders.values()))

    def features(self, t, y, highest):
        """Features at times (n,) of y (sum of orders, n) and highest derivatives."""
        S = self.features_in_time(t)
        columns = self.derivatives(y, highest)[self.rows] * self.factors[:, None]
        S[:, self.offset :] = columns.T
        return S

    def features_in_time(self, t):
        """The same (n, d + Q') where all states are zero."""
        S = np.zeros((len(t), self.offset + len(self.rows)))
        S[:, 0] = t
        if self.input_names or self.inputs:
            given = input_columns(self.input_names, self.inputs, t[:, None])
            S[:, 1 : self.offset] = given
        return S

    def insert(self, S, y):
        """Write y (n, D) into features (n, d + Q') without highest derivatives."""
        columns, places, factors = self._places_of_given
        own = y[:, places]
        S[:, columns] = own if factors is None else own * factors

    def derivatives(self, y, highest):
        """All derivatives, state by state: y (sum of orders, n) and the highest."""
        table = np.empty((len(self.known) + len(self.highest), y.shape[1]))
        table[self.known], table[self.highest] = y, highest
        return table

    def velocity(self, y, highest):
        """The derivative of y in time, of its shape."""
        return self.derivatives(y, highest)[self.known + 1]

    def rates(self, y, highest):
        """The derivative of y (n, D) in time, of its shape, from the highest (n, S)."""
        places, of_y, places_of_highest = self._chain
        rates = np.empty(y.shape)
        rates[:, places] = y[:, of_y]
        rates[:, places_of_highest] = highest
        return rates

    def position_of_highest(self):
        """Positions in dy/dt of the highest derivatives, one for each state."""
        return np.cumsum(list(self.orders.values())) - 1

    def chain(self):
        """Pairs of positions in dy/dt and in y that hold one derivative."""
        pairs, start = [], 0
        for order in self.orders.values():
            pairs += [(start + k, start + k + 1) for k in range(order - 1)]
            start += order
        return pairs

    def slopes(self, gradient):
        """Slopes (n, S) in the highest derivatives from those in the features."""
        slopes = np.zeros((len(gradient), len(self.states)))
        for j, position in self.solved_for:
            slopes[:, position] += gradient[:, self.offset + j] * self.factors[j]
        return slopes

    def mass(self, gradients):
        """Slopes (n, E, S) of equations from those (n, d + Q') of each in features."""
        return np.stack([self.slopes(gradient) for gradient in gradients], axis=1)

    def constant_mass(self, known_parts, n_unknown):
        """What `mass` gives, (1, E, S), if it is the same everywhere; or None.

        As where highest derivatives are in linear known parts alone. Unknown parts
        depend on the first `n_unknown` features.
        """
        lowest = min(self.offset + j for j, _ in self.solved_for)
        are_linear = all(isinstance(part, LinearKnownPart) for part in known_parts)
        if lowest < n_unknown or not are_linear:
            return None
        anywhere = np.zeros((1, self.offset + len(self.rows)))
        return self.mass([part.gradient(anywhere).T for part in known_parts])

    def is_of_highest(self, part):
        """Whether a known part is a combination of highest derivatives alone."""
        columns = {self.offset + j for j, _ in self.solved_for}
        return isinstance(part, LinearKnownPart) and columns.issuperset(part.columns)

    def linearise(self, slopes, gradients, features):
        """Slopes of dy/dt in y (n, D, D), and in the weights of all equations.

        slopes, gradients : as those of :meth:`linearise_in_y`.
        features : list of ndarray of shape (n, p_e). Slopes of each in its weights.

        Returns on_y, on_weights : ndarray of shape (n, D, D), (n, D, sum of p_e).
        """
        on_y, loads = self.linearise_in_y(slopes, gradients)
        pairs = zip(np.moveaxis(loads, 2, 0), features, strict=True)
        on_weights = [load[:, :, None] * part[:, None, :] for load, part in pairs]
        return on_y, np.concatenate(on_weights, axis=2)

    def linearise_in_y(self, slopes, gradients):
        """Slopes of dy/dt in y (n, D, D), and in the left-hand sides (n, D, E).

        slopes : ndarray of shape (n, E, S). Of equations in the highest derivatives.
        gradients : list of ndarray of shape (n, d + Q'). Of each in its features.
        """
        (n, E), D = slopes.shape[:2], len(self.known)
        right = np.zeros((n, E, D + E))
        for e, gradient in enumerate(gradients):
            for column, place, factor in self.given:
                right[:, e, place] += gradient[:, column] * factor
            right[:, e, D + e] = 1.0
        found = np.zeros((n, D, D + E))
        for place, chain in self.chain():
            found[:, place, chain] = 1.0
        found[:, self.position_of_highest()] = -solve_each(slopes, right)
        return found[:, :, :D], found[:, :, D:]


class _Signature(NamedTuple):
    """What the layout of an equation depends on."""

    variables: tuple
    states: tuple
    inputs: tuple
    operators: tuple


def layout_of(equation, inputs):
    """The Layout of an equation, made once for all with the same operators."""
    states = tuple(getattr(equation, "states", ("u",)))
    names = tuple(getattr(equation, "inputs", ()))
    given = tuple(equation.variables), states, names, tuple(equation.operators)
    layout = copy(_without_inputs(_Signature(*given)))
    layout.inputs = inputs
    return layout


@lru_cache(maxsize=16)
def _without_inputs(signature):
    return Layout(signature, None)


def solve_each(matrices, right):
    """The solutions (n, k, m) of matrices (n, k, k) and right-hand sides (n, k, m).

    Most systems give each highest derivative by itself: their matrices are diagonal.
    """
    diagonals = np.einsum("nii->ni", matrices)
    n_entries = np.count_nonzero(diagonals)
    if n_entries == diagonals.size and n_entries == np.count_nonzero(matrices):
        return right / diagonals[:, :, None]
    return np.linalg.solve(matrices, right)


def _plain_derivative(operator):
    """The state of an operator, its order, and the factor of the derivative."""
    if len(operator.parts) > 1:
        raise ValueError(
            f"simulate needs plain derivatives as operators, not "
            f"{operator.name!r}: learn with each derivative as its own operator."
        )
    [(state, (order,), factor)] = operator.parts
    return state, order, factor


class Equations:
    """Equations with their right-hand sides, solved for the highest derivatives."""

    def __init__(self, equations, forcings):
        self.equations, self.forcings = equations, forcings

    @classmethod
    def read(cls, equation, forcing, times):
        """From an equation, or a mapping of several, and what the user gave as f.

        It is tried at the `times` (n,).
        """
        if not isinstance(equation, Mapping):
            equations, forcings = {"": equation}, {"": forcing}
        else:
            equations, forcings = dict(equation), _named_forcings(equation, forcing)
        for name, each in equations.items():
            if each.has_forcing and forcings.get(name) is None:
                whose = f" for {name!r}" if name else ""
                raise ValueError(
                    f"forcing is None{whose}, but the equation has a right-hand side: "
                    "give it as a function of points (n, 1), for zero lambda points: "
                    "0 * points[:, 0]."
                )
        for given in forcings.values():
            if given is not None and not callable(given):
                raise TypeError(
                    f"forcing is {in_short(given)}: it must be a function of points "
                    "(n, 1), or None for zero."
                )
            if given is not None:
                call_given(given, "forcing", times[:, None], twice=True)
        given = {name: forcings.get(name) for name in equations}
        return cls(equations, {name: _of_copies(f) for name, f in given.items()})

    def __str__(self):
        return "; ".join(map(str, self.equations.values()))

    def slopes(self, layout, S):
        """Slopes (n, E, S) in the highest derivatives at features."""
        columns = [layout.offset + j for j, _ in layout.solved_for]
        return np.stack(
            [
                layout.slopes(_gradient(equation, S, columns))
                for equation in self.equations.values()
            ],
            axis=1,
        )

    def residuals(self, t, S):
        """Right- less left-hand sides (n, E) at times and features."""
        columns = []
        for name, equation in self.equations.items():
            f = self.forcings[name]
            right = 0.0 if f is None else np.ravel(f(t[:, None]))
            columns.append(right - equation(S))
        return np.stack(columns, axis=1)

    def solve(self, layout, t, y):
        """The highest derivatives (S, n), which enter linearly, at times (n,)."""
        zero = layout.features(t, y, highest=0.0)
        matrix, right = self.slopes(layout, zero), self.residuals(t, zero)
        # Equations differ in their units.
        pivot = _largest(matrix)
        try:
            solved = np.linalg.solve(matrix / pivot, (right / pivot[..., 0])[..., None])
        except np.linalg.LinAlgError:  # singular
            return np.full((len(layout.states), len(t)), np.nan)
        return solved[..., 0].T

    def linearise(self, layout, t, y, highest):
        """Slopes of dy/dt (n, D, D), (n, D, p) in y and in the weights of learned ones.

        At times (n,), y (D, n) and the highest derivatives (S, n) that solve them.
        """
        S = layout.features(t, y, highest)
        equations = self.equations.values()
        features = [e.basis(S[:, : e.n_unknown_features]) for e in equations]
        gradients = [equation.gradient(S) for equation in equations]
        return layout.linearise(self.slopes(layout, S), gradients, features)

    def root_of_weights(self):
        """A root (p, p) of the posterior covariance of the weights of all equations.

        Those of different equations are taken to be independent.
        """
        learned = [e for e in self.equations.values() if len(e.weights)]
        return block_diag(*(e._need_posterior().root() for e in learned))

    def check_explicit(self, layout, t, initial, tolerance=1e-8):
        """The equations that give the highest derivatives, which enter linearly.

        The slopes in these may change by the part `tolerance`, as rounding may cause.
        """
        y, t = initial[:, None], np.array([t])
        features = [layout.features(t, y, highest=value) for value in (0.0, 1.0, -3.0)]
        slopes = np.concatenate([self.slopes(layout, S) for S in features])
        chosen = self._choose(layout, np.any(slopes != 0, axis=(0, 2)))
        slopes = slopes[:, [name in chosen.equations for name in self.equations]]
        size = np.abs(_largest(slopes[:1]))
        is_linear = size.all() and not np.any(np.ptp(slopes, axis=0) > tolerance * size)
        if is_linear and np.all(np.isfinite(slopes)):
            rank = np.linalg.matrix_rank(slopes[0] / size[0])
            is_linear = rank == len(layout.states)
        if not is_linear:
            names = ", ".join(layout.highest_names)
            if len(layout.states) == 1:
                raise ValueError(
                    f"the equation cannot be solved for {names}: it must enter "
                    "linearly, as the known part does."
                )
            raise ValueError(
                f"the equations {', '.join(chosen.equations)} cannot be solved for "
                f"{names}: these must enter linearly, as in the known parts, and the "
                "equations be independent in them."
            )
        return chosen

    def _choose(self, layout, has_highest):
        """The S equations to integrate, of those that have a highest derivative.

        Known equations that come on top are constraints that the solution obeys.
        """
        states = layout.states
        pairs = zip(self.equations, has_highest, strict=True)
        names = [name for name, has in pairs if has]
        if len(self.equations) == len(states):
            names = list(self.equations)
        if len(names) > len(states):
            names = [n for n in names if _has_unknown_part(self.equations[n])]
        if len(names) != len(states):
            others = [str(name) for name in self.equations if name not in names]
            unused = f"; {', '.join(others)} cannot be used" if others else ""
            found = f": {', '.join(names)}" if any(names) else ""
            raise ValueError(
                f"simulate needs {len(states)} equations with a highest derivative, "
                f"one for each of the states {', '.join(states)}, not {len(names)}"
                f"{found}{unused}. Simulate a LearnedSystem of the equations that give "
                "the evolution."
            )
        return Equations(
            {name: self.equations[name] for name in names},
            {name: self.forcings[name] for name in names},
        )


def _has_unknown_part(equation):
    return getattr(equation, "equation_kernel", None) is not None


def _gradient(equation, S, columns):
    """Slopes (n, d + Q') of an equation in the features, right in these columns."""
    if _has_unknown_part(equation):
        active = equation.equation_kernel.depends_on(equation.n_unknown_features)
        if not any(active[column] for column in columns if column < len(active)):
            return equation.known_part.gradient(S).T
    return equation.gradient(S)


def _largest(matrix):
    """The entry of largest size in each row, of shape (..., E, 1)."""
    position = np.argmax(np.abs(matrix), axis=-1)[..., None]
    return np.take_along_axis(matrix, position, axis=-1)


def _of_copies(function):
    """The function, or None, of copies of points: users may write to these."""
    return function and (lambda points: function(np.array(points)))


def _named_forcings(equations, forcing):
    """Right-hand sides by the names of the equations."""
    if forcing is None:
        return {}
    if not isinstance(forcing, Mapping):
        is_list = isinstance(forcing, tuple | list)
        if not is_list or len(forcing) != len(equations):
            raise ValueError(
                "forcing must be {name of the equation: function of points (n, 1)}, or "
                f"a tuple with one entry for each of {', '.join(equations)}."
            )
        return dict(zip(equations, forcing, strict=True))
    unknown = [repr(name) for name in forcing if name not in equations]
    if unknown:
        raise ValueError(
            f"forcing has {', '.join(unknown)}, which is no equation: they are called "
            f"{', '.join(equations)}."
        )
    return dict(forcing)
