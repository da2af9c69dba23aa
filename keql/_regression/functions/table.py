"""The functions that evolution equations may have, as values.

Products of operators, and elementary functions of each operator and of time with their
inner parameters on a grid, in units of the data; of fields, functions of the state,
and diffusions whose diffusivity is one.
"""

from copy import copy
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np

from keql._numerics.elementary import (
    ANGLES,
    FAMILIES,
    ODD,
    PRECISE,
    RADII,
    Elementary,
    ElementaryTable,
    at_natural_values,
    diffusivities,
    fast_waves,
    origin_of,
    own_factors,
    powers_of_coordinates,
    products,
    state_grid,
    time_grid,
)
from keql._numerics.linalg import rms
from keql._regression.functions.terms import Term
from keql.equation import PolynomialBasis
from keql.kernels import Dictionary


class FunctionTable:
    """The functions that equations may have, the inner parameters of some on a grid.

    learned : LearnedModel. Equations, with the features that their columns have.
    settings : ElementarySettings.
    time : int, default=0. Which coordinate is not one of space.

    terms : list of Term. First the products of each equation.
    sizes : list of float. What the unknown part of each equation has to explain.
    degree : int. The highest of the products.
    kinds : ndarray of shape (q, 2). Of each term its equation, and 0 for a product, 1
        for an elementary function, 2 if that has a natural parameter: these are few,
        and none of them is improbable because there are many others.
    """

    def __init__(self, learned, settings, time=0):
        self.names = tuple(learned.setup.unknown_names(learned.variables))
        self.states = learned.observations.states
        n_columns, d = len(self.names), len(learned.variables)
        self.sizes = [rms(target) or 1.0 for target in learned.targets]
        self.features = [e.training_features[:, :n_columns] for e in learned.equations]
        self.n_times = max(
            len(np.unique(data.points[:, 0])) for data in learned.observations.functions
        )
        self.is_system = learned.setup.is_system
        self.state_of = {own.name: own.state for own in learned.setup.operators}
        self.own_states = [
            {self.state_of[n] for n in self.state_of if n in part.known_part.terms}
            for part in learned.setup.equations
        ]
        periods = learned.observations.periods
        is_ring = np.zeros(d, bool) if periods is None else np.isfinite(periods)
        self.in_space = [i for i in np.flatnonzero(~is_ring) if i != time]
        self.rings = [(i, periods[i]) for i in np.flatnonzero(is_ring)]
        self.time, self.flat = time, settings.flat
        self.coordinates = [v for i, v in enumerate(learned.variables) if i != time]
        self.terms, kinds, self._scales = [], [], {}
        first = d + len(learned.setup.inputs.names)
        for e, part in enumerate(learned.setup.equations):
            if part.depends_on is None:
                continue
            operators = [self.names[first + q] for q in part.depends_on]
            operators = [*self.names[d:first], *operators]  # inputs are factors, too
            functions = dict.fromkeys(self._functions(e, operators, settings))
            natural = [*self._at_natural_values(e, functions)]
            natural += self._high_powers(e, operators, settings)
            if settings.of_single_states and settings.of_derivatives:
                natural += self._of_distances(e, operators)
                natural += self._ratios(e, operators)
            natural = dict.fromkeys(natural)
            phases = {}
            if self.is_system and settings.of_derivatives:
                phases = dict.fromkeys(self._waves_of_phases(e, operators))
            for function in {**functions, **natural, **phases}:
                kind = 2 if function in natural else int(not function.is_product)
                kind = 0 if function.is_whole_power else kind
                kinds.append((e, 3 if function in phases else kind))
                self.terms.append(Term(e, function, len(self.terms)))
        self.kinds = np.array(kinds)
        self._known = {(term.equation, term.function): term for term in self.terms}
        monomials = [t.function.powers for t in self.terms if not t.function.family]
        self.degree = max((sum(dict(own).values()) for own in monomials), default=0)

    def _functions(self, e, operators, settings):
        """Products of operators, functions of each and of time, times an operator.

        Those of time stand alone in a system, which has twice as many or more.
        """
        monomials = products(operators, settings.degree, settings.most_products)
        yield from (Elementary(powers) for powers in monomials)
        if not settings.of_single_states:
            return
        if settings.of_derivatives:
            yield from self._functions_of(e, operators, operators, settings)
            yield from self._functions_of_time(e, operators, settings)
            return
        states = [name for name in operators if name in self.states]
        yield from self._functions_of(e, states, states, settings)
        yield from self._diffusions(e, operators)
        yield from self._flattening(e, operators)
        yield from self._waves(e, operators, settings)
        if settings.beside_states:
            yield from self._coordinates(operators, e)
            yield from self._waves_on_rings(operators, settings)
            yield from self._functions_of_time(e, operators, settings)

    def _at_natural_values(self, e, functions):
        """Functions without an unknown parameter, of all forms that are on the grid.

        What is an angle is a state.
        """
        for function in functions:
            if not function.is_free:
                continue
            is_angle = FAMILIES[function.family].is_angle
            if not is_angle or {*function.arguments} <= {*self.states}:
                x = self._argument(function, e)
                yield from at_natural_values(function, x, n_times=self.n_times)

    def _high_powers(self, e, operators, settings, powers=(4.0, 5.0)):
        """The fourth and fifth power of what changes its sign.

        Of what is positive they are among natural exponents.
        """
        if not settings.of_derivatives:
            operators = [name for name in operators if name in self.states]
        if settings.of_single_states:
            for name, k in product(operators, powers):
                if np.min(self.features[e][:, self.names.index(name)]) <= 0:
                    yield Elementary((), "power", name, k, is_held=True)

    def _of_distances(self, e, operators, nearest=1e-2):
        """One component of a place or of a velocity times powers of its size.

        As of what moves around a centre, or is slowed down by drag, in two or three
        dimensions: of all states, and of their derivatives of one order. In equations
        of first order, where states are seldom coordinates, it is the own component.
        There are none of what comes near to zero, in units of the largest, where they
        have no slope.
        """
        if len(self.states) not in (2, 3):
            return
        groups = {}
        for name in operators:
            if name in self.state_of:
                groups.setdefault(self._orders(name), []).append(name)
        for own in groups.values():
            if len(own) < len(self.states):
                continue
            columns = [self.names.index(name) for name in own]
            squares = np.sum(self.features[e][:, columns] ** 2, axis=1)
            if np.min(squares) < nearest**2 * np.max(squares):
                continue
            factors = own
            if len(groups) == 1:
                factors = [n for n in own if self.state_of[n] in self.own_states[e]]
            given = {"is_held": True, "squares": tuple(own[1:])}
            for k, name in product(RADII, factors):
                yield Elementary(((name, 1),), "power", own[0], k, **given)

    def _ratios(self, e, operators):
        """The squares of an equation's own states over others that are positive.

        As of predators whose number is limited by that of their prey (Leslie and Gower,
        "The properties of a stochastic model for the predator-prey type of interaction
        between two species", Biometrika 47, 1960).
        """
        states = [name for name in operators if name in self.states]
        for own, other in permutations(states, 2):
            is_positive = np.min(self.features[e][:, self.names.index(other)]) > 0
            if own in self.own_states[e] and is_positive:
                yield Elementary(((own, 2),), "power", other, -1.0, is_held=True)

    def _orders(self, name):
        """What is written behind the state of an operator."""
        return name.removeprefix(self.state_of[name])

    def at_nearest_natural(self, terms, near=0.25):
        """Terms with natural parameters where free ones are near to these, or None.

        None if none of them is there. Linearised at other terms, right exponents of
        terms that cancel each other may seem far less probable than a free one.
        """
        changed = []
        for term in terms:
            f = term.function
            values = FAMILIES[f.family].natural if f.is_free else ()
            nearest = min(values, key=lambda k: abs(k - f.parameter), default=np.inf)
            if abs(nearest / f.parameter - 1) < near:
                natural = replace(f, parameter=nearest, is_held=True)
                term = self._known.get((term.equation, natural), term)
            changed.append(term)
        return changed if changed != [*terms] else None

    def _argument(self, function, e):
        """Values (n,) of what a function is of, where its equation was learned."""
        S, names = self.features[e], function.arguments
        return function.argument_of({n: S[:, self.names.index(n)] for n in names})

    def _waves_of_phases(self, e, operators):
        """Sines and cosines of how far a state is ahead of another one, and of its own.

        As of phases that pull each other: oscillators of Kuramoto, pendulums that are
        coupled, generators of a power grid. What the equation is of is subtracted.
        States are angles then: slower sines would stand for differences themselves.
        """
        own, states = self.own_states[e], [o for o in operators if o in self.states]
        pairs = combinations(sorted(states, key=own.__contains__), 2)
        alone = ((name, "") for name in states if name in own)
        for argument, reference in (*pairs, *alone):
            for family in ("sin", "cos"):
                wave = Elementary((), family, argument, reference=reference)
                yield from at_natural_values(wave, self._argument(wave, e))

    def couplings(self):
        """Sets of terms of states that depend on each other in one way, a list.

        Each equation has a constant and derivatives of its own states. Of phases that
        all pull each other, sines of these and of differences from these; in a second
        set cosines, too; in one unit of angles at a time. Of what moves around a centre
        or is slowed by drag, its own component times one power of the distance, or of
        the speed.
        """
        alone = [t for t in self.terms if self._is_alone(t)]
        phases = [
            [t for t in self.terms if self._is_wave(t, k, families)]
            for k, families in product(ANGLES, ({"sin"}, {"sin", "cos"}))
        ]
        pulls = [own for own in phases if any(t.function.reference for t in own)]
        moving = {t.equation for t in alone if t.function.powers}
        if len(moving) == len(self.sizes):  # all are of second order
            forces = ((t.function.parameter, t.function.squares) for t in self.terms)
            pulls += [
                [t for t in self.terms if self._is_force(t, k, squares)]
                for k, squares in dict.fromkeys(forces)
                if squares
            ]
        return [[*alone, *own] for own in pulls]

    def _is_wave(self, term, k, families):
        """Whether a term is a wave of an equation's own phase, or of a difference."""
        f, own = term.function, self.own_states[term.equation]
        is_wave = f.family in families and not f.powers
        return is_wave and f.is_held and f.parameter == k and f.arguments[-1] in own

    def _is_force(self, term, k, squares):
        """Whether a term is an own component times a power of a distance or a speed."""
        f, own = term.function, self.own_states[term.equation]
        is_own = any(self.state_of.get(name) in own for name, _ in f.powers)
        return is_own and f.squares == squares and f.parameter == k

    def _is_alone(self, term):
        """Whether a term is a constant, or a derivative of an equation's own state."""
        function, own = term.function, self.own_states[term.equation]
        if function.family or not function.powers:
            return not function.family
        [(name, power), *others] = function.powers
        is_slope = name not in own and self.state_of.get(name) in own
        return is_slope and power == 1 and not others

    def _diffusions(self, e, operators):
        """Diffusions of states in a coordinate, whose diffusivity is a function."""
        for state, x in product(self.states, self.coordinates):
            flux = f"{state}_{x}", f"{state}_{x}{x}"
            if {state, *flux} <= {*operators}:
                values = self.features[e][:, self.names.index(state)]
                for family, k in diffusivities(values):
                    yield Elementary((), family, state, k, flux=flux)

    def _flattening(self, e, operators, steepest=(0.5, 1.0, 2.0)):
        """Diffusions of states in space whose diffusivity depends on their slope.

        u_xx/(1 + u_x^2) moves a curve as fast as it is bent, and |u_x|^k u_xx is what
        flows like ice does. The slope at which diffusion is halved is `steepest` times
        the steepest at first.
        """
        if len(self.coordinates) > 1:
            return
        for state, x in product(self.states, self.coordinates):
            slope, bend = f"{state}_{x}", ((f"{state}_{x}{x}", 1),)
            if {slope, bend[0][0]} <= {*operators}:
                values = self.features[e][:, self.names.index(slope)]
                for k in np.array(steepest) * np.max(np.abs(values)):
                    yield Elementary(bend, "peak", slope, k**2)
                yield Elementary(bend, "abs", slope, 1.0)

    def _functions_of_time(self, e, operators, settings):
        """Time, as slow sines stand for it, waves and decays, alone and as factors.

        Of the square, too, if there is one operator: as what limits growth may vary.
        """
        time, t = self.names[self.time], self.features[e][:, self.time]
        factors = [(), *(((name, 1),) for name in operators)]
        factors += [((name, 2),) for name in operators if len(operators) == 1]
        origin = origin_of(t, settings.far)
        powers = range(1, settings.of_far_time + 1) if origin else (1,)
        for power, own in product(powers, factors):
            yield Elementary.power_above(origin, time, power, own)
        n_frequencies = min(settings.n_frequencies, self.n_times)
        driven = factors[:1] if self.is_system else factors
        has_beginning = not (origin or settings.beside_states)  # fields began earlier
        waves = time_grid(t - origin, n_frequencies, has_beginning)
        for (family, k), own in product(waves, driven):
            yield Elementary(own, family, time, k, origin=origin)

    def _waves(self, e, operators, settings):
        """Sources and coefficients that vary with a coordinate of space."""
        factors = self._factors_in_space(operators)
        for column in self.in_space:
            name, x = self.names[column], self.features[e][:, column]
            waves = np.arange(1, settings.n_waves + 1) * np.pi / np.ptp(x)
            for k, family, own in product(waves, ("cos", "sin"), factors):
                yield Elementary(own, family, name, k)

    def _factors_in_space(self, operators):
        """What coefficients that vary in space are those of, a list of powers.

        Sources, operators, what limits growth, and the advection of a state by itself.
        """
        limits = [((name, 2),) for name in operators if name in self.states]
        moving = [
            ((state, 1), (f"{state}_{x}", 1))
            for state, x in product(self.states, self.coordinates)
            if {state, f"{state}_{x}"} <= {*operators}
        ]
        return [(), *(((name, 1),) for name in operators), *limits, *moving]

    def _coordinates(self, operators, e):
        """Those of space, as slow waves stand for them, and their powers."""
        factors = self._factors_in_space(operators)
        for column in self.in_space:
            name, x = self.names[column], self.features[e][:, column]
            yield from (Elementary(((name, 1), *own)) for own in factors)
            for own, k in product(factors, powers_of_coordinates(x)):
                yield Elementary(own, "power", name, k, is_held=True)

    def _waves_on_rings(self, operators, settings):
        """The same of coordinates that are rings, on which waves are whole."""
        factors = self._factors_in_space(operators)
        for column, length in self.rings:
            waves = np.arange(1, settings.n_waves + 1) * 2 * np.pi / length
            for k, own, family in product(waves.tolist(), factors, ("cos", "sin")):
                yield Elementary(own, family, self.names[column], k, is_held=True)

    def _functions_of(self, e, operators, factors, settings):
        """Functions of each operator, alone and times one of the factors."""
        factors = [(), *(((name, 1),) for name in factors)]
        S = self.features[e]
        positive = [o for o in operators if np.min(S[:, self.names.index(o)]) > 0]
        for name in operators:
            x = S[:, self.names.index(name)]
            inverse = [((other, -1),) for other in positive if other != name]
            others = [o for o in operators if o != name] if self.is_system else []
            saturating = {  # as one state feeds on another
                "pole": [((name, 1), (other, 1)) for other in others],
                "peak": [((name, 2),), *(((name, 2), (other, 1)) for other in others)],
            }
            for family, k in state_grid(x, settings.n_parameters):
                is_left = family in PRECISE and not settings.of_precise_data
                if is_left or (family in ODD and not settings.drags):
                    continue
                own = saturating.get(family, [])
                is_wave = family in ("sin", "cos")
                before = own_factors(family, name, factors)
                if self.is_system and is_wave:
                    own = inverse
                if is_wave and not settings.of_derivatives:
                    before = factors[:1]
                for powers in [*before, *own]:
                    if function := Elementary(powers, family, name, k).with_one_power:
                        yield function
            own = [*factors, *inverse] if self.is_system else factors[:1]
            most = min(
                settings.most_waves, 2 * np.pi * self.n_times / settings.per_wave
            )
            for k in fast_waves(x, most):
                for powers in own:
                    yield Elementary(powers, "sin", name, k)
                    yield Elementary(powers, "cos", name, k)

    def scales(self, terms):
        """Prior standard deviations of the coefficients of terms, an array."""
        keys, missing = [(t.equation, t.function) for t in terms], {}
        for e, function in keys:
            if (e, function) not in self._scales:
                missing.setdefault(e, {})[function] = None
        for e, functions in missing.items():
            # An inner parameter may run away, until the function exceeds all numbers.
            with np.errstate(over="ignore", invalid="ignore"):
                values = self.values_of([*functions], e)
                found = [self.scale_of(own, e) for own in values]
            pairs = zip(functions, found, strict=True)
            self._scales |= {(e, function): scale for function, scale in pairs}
        return np.array([self._scales[key] for key in keys])

    def scale_of(self, values, e):
        """The same of a term in an equation with these values (n,)."""
        size = rms(values)
        usable = np.isfinite(size) and size > 0
        return self.sizes[e] / size if usable else 1.0

    def values(self, term):
        """Values (n,) of a term at the features that its equation was learned from."""
        S, function = self.features[term.equation], term.function
        columns = [S[:, self.names.index(name)] for name in function.columns]
        return np.broadcast_to(function(*columns), (len(S),))

    def values_of(self, functions, e):
        """Values (m, n) of many functions at the features of an equation."""
        return ElementaryTable(functions, list(self.names))(self.features[e])

    def are_flat(self, terms):
        """Whether a function stands for 1, or for what it is a function of.

        It, or its ratio to that, hardly changes over the data.
        """
        for term in terms:
            if self.flat and (term.function.is_free or term.function.is_natural):
                alone = replace(term.function, powers=(), flux=())
                values = self.values(replace(term, function=alone))
                x = self._argument(alone, term.equation)
                for each in (values, values[x != 0] / x[x != 0]):
                    size = np.max(np.abs(each), initial=0.0)  # none where x is zero
                    if size and np.ptp(each) < self.flat * size:
                        return True
        return False

    def with_products(self, terms, alike=0.98):
        """Terms with products of operators where functions stand for these, or None.

        For one that saturates early the product that is left of it may stand, for one
        that hardly bends the product with its argument: along states with errors they
        may be more probable. None if there is no such term.
        """
        changed = [self._product_for(term, terms, alike) for term in terms]
        return [*dict.fromkeys(changed)] if changed != [*terms] else None

    def _product_for(self, term, terms, alike):
        """The product for which the function of a term stands, or the term.

        Alone, or beside others: 36 u - 37 sin(u) - 5 u^3 stands for a fifth power.
        """
        f = term.function
        if f.is_whole_power or f.flux or len(f.arguments) > 1:
            return term
        own = [t for t in self.terms if t.equation == term.equation]
        own = [t for t in own if t.function.is_whole_power]
        own = [t for t in own if t.function.depends_on <= f.depends_on]
        others = [t for t in terms if t.equation == term.equation and t is not term]
        for beside in ([], others):
            found = [self._likeness(term, product, beside) for product in own]
            best = int(np.argmax(found))
            if found[best] > alike:
                return own[best]
        return term

    def _likeness(self, term, product, beside, tol=1e-8):
        """The size of the cosine between two terms, without what others explain."""
        columns = np.array([self.values(t) for t in (term, product, *beside)])
        columns /= np.maximum(np.sqrt(np.sum(columns**2, axis=1)), tol)[:, None]
        others, pair = columns[2:].T, columns[:2].T
        pair = pair - others @ np.linalg.lstsq(others, pair, rcond=None)[0]
        sizes = np.sqrt(np.sum(pair**2, axis=0))
        if np.min(sizes) < tol:  # others explain one of them
            return 0.0
        return abs(pair[:, 0] @ pair[:, 1]) / np.prod(sizes)

    def term(self, e, powers):
        """A product of operators in an equation, which is added if it is missing."""
        function = Elementary(tuple(powers))
        if (e, function) not in self._known:
            term = Term(e, function, len(self.terms))
            self.terms.append(term)
            self.kinds = np.vstack([self.kinds, (e, 0)])
            self._known[e, function] = term
        return self._known[e, function]

    def equations(self, learned, terms, weights):
        """Equations of a learned model with terms, followed by their slopes: a tuple.

        `weights` are those of each equation, in units of the scales.
        """
        equations = []
        for e, equation in enumerate(learned.equations):
            own = [t for t in terms if t.equation == e]
            slopes = [t for t in own if t.function.is_free]
            functions = [t.function for t in own]
            functions += [t.function.in_log_parameter() for t in slopes]
            equation = copy(equation)
            if learned.setup.equations[e].depends_on is not None:
                table = {str(i): function for i, function in enumerate(functions)}
                scales = self.scales([*own, *slopes])
                kernel = Dictionary(table, scales, self.names)
                equation.basis = PolynomialBasis(kernel)
                equation.weights = weights[e]
            equations.append(equation)
        return tuple(equations)

    def kernel(self, terms):
        """The kernel of the terms of one equation, called as they are written."""
        table = {term.function.name: term.function for term in terms}
        return Dictionary(table, self.scales(terms), self.names)
