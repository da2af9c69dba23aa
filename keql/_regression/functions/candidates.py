"""The functions that the unknown part of an equation may have.

Products of operators, and elementary functions of each operator and of time with their
inner parameters on a grid, in units of the data; of fields, functions of the state,
diffusions whose diffusivity is one, and coefficients that vary in space.
"""

from itertools import combinations, permutations, product

import numpy as np

from keql._numerics.elementary import (
    FAMILIES,
    ODD,
    PRECISE,
    RADII,
    Elementary,
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


def argument_of(function, names, S):
    """Values (n,) of what a function is of, where the columns `names` have values S."""
    values = {name: S[:, names.index(name)] for name in function.arguments}
    return function.argument_of(values)


class FunctionCandidates:
    """The functions that one equation may have.

    learned : LearnedModel. Equations, with the features that their columns have.
    e : int. The position of the equation.
    settings : ElementarySettings.
    time : int or None. Which coordinate is not one of space.

    names : tuple of str. The columns of the features S.
    inputs, operators : list of str. What is known beside the coordinates; and what the
        unknown part depends on, inputs first.
    states_in : list of str. Those of the operators that are states.
    own_states : set of str. The states whose derivatives the known part has.
    """

    def __init__(self, learned, e, settings, time):
        setup, data = learned.setup, learned.observations
        part, d = setup.equations[e], len(learned.variables)
        self.settings, self.time = settings, time
        self.names = tuple(setup.unknown_names(learned.variables))
        self.S = learned.equations[e].training_features[:, : len(self.names)]
        first = d + len(setup.inputs.names)
        operators = [self.names[first + q] for q in part.depends_on]
        self.inputs = list(self.names[d:first])
        self.operators = [*self.inputs, *operators]
        self.states, self.is_system = data.states, setup.is_system
        self.states_in = [name for name in self.operators if name in self.states]
        self.state_of = {own.name: own.state for own in setup.operators}
        self.own_states = own_states(part, self.state_of)
        self.n_times = max(len(np.unique(own.points[:, 0])) for own in data.functions)
        is_ring = np.zeros(d, bool)
        if data.periods is not None:
            is_ring = np.isfinite(data.periods)
        self.in_space = [i for i in np.flatnonzero(~is_ring) if i != time]
        self.rings = [(i, data.periods[i]) for i in np.flatnonzero(is_ring)]
        self.coordinates = [v for i, v in enumerate(learned.variables) if i != time]

    def with_kinds(self):
        """Functions and their kinds, a dict, first the products.

        The kind is 0 for a product, 1 for an elementary function, 2 if its parameter is
        natural, 3 for waves of phases.
        """
        settings = self.settings
        functions = dict.fromkeys(self._functions())
        natural = [*self._at_natural_values(functions), *self._high_powers()]
        if settings.of_single_states:
            natural += self._ratios()
        if settings.of_single_states and settings.of_derivatives:
            natural += self._of_distances()
        phases = []
        if self.is_system and settings.of_derivatives:
            phases = self._waves_of_phases()
        kinds = {own: int(not own.is_product) for own in functions}
        return kinds | dict.fromkeys(natural, 2) | dict.fromkeys(phases, 3)

    def _column(self, name):
        """The values (n,) of a column."""
        return self.S[:, self.names.index(name)]

    def _functions(self):
        """Products of operators, functions of each and of time, times an operator.

        Those of time stand alone in a system, which has twice as many or more.
        """
        settings, operators = self.settings, self.operators
        monomials = products(operators, settings.degree, settings.most_products)
        yield from (Elementary(powers) for powers in monomials)
        if not settings.of_single_states:
            return
        if settings.of_derivatives:
            yield from self._functions_of(operators, operators)
            yield from self._functions_of_time()
            return
        own = [*self.inputs, *self.states_in]
        yield from self._functions_of(own, own)
        yield from self._diffusions()
        yield from self._flattening()
        yield from self._waves()
        if settings.beside_states:
            yield from self._coordinates()
            yield from self._waves_on_rings()
            yield from self._functions_of_time()

    def _at_natural_values(self, functions):
        """Functions without an unknown parameter, of all forms that are on the grid.

        What is an angle is a state.
        """
        for function in functions:
            if not function.is_free:
                continue
            is_angle = FAMILIES[function.family].is_angle
            if not is_angle or {*function.arguments} <= {*self.states}:
                x = argument_of(function, self.names, self.S)
                yield from at_natural_values(function, x, n_times=self.n_times)

    def _high_powers(self, powers=(4.0, 5.0)):
        """The fourth and fifth power of what changes its sign.

        Of what is positive they are among natural exponents.
        """
        settings = self.settings
        if settings.of_single_states:
            own = self.operators if settings.of_derivatives else self.states_in
            for name, k in product(own, powers):
                if np.min(self._column(name)) <= 0:
                    yield Elementary((), "power", name, k, is_held=True)

    def _of_distances(self, nearest=1e-2):
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
        for name in self.operators:
            if name in self.state_of:
                orders = name.removeprefix(self.state_of[name])
                groups.setdefault(orders, []).append(name)
        for own in groups.values():
            if len(own) < len(self.states):
                continue
            columns = [self.names.index(name) for name in own]
            squares = np.sum(self.S[:, columns] ** 2, axis=1)
            if np.min(squares) < nearest**2 * np.max(squares):
                continue
            factors = own
            if len(groups) == 1:
                factors = [n for n in own if self.state_of[n] in self.own_states]
            given = {"is_held": True, "squares": tuple(own[1:])}
            for k, name in product(RADII, factors):
                yield Elementary(((name, 1),), "power", own[0], k, **given)

    def _ratios(self):
        """The squares of an equation's own states over others that are positive.

        As of predators whose number is limited by that of their prey (Leslie and Gower,
        "The properties of a stochastic model for the predator-prey type of interaction
        between two species", Biometrika 47, 1960), and of activators and inhibitors
        (Gierer and Meinhardt, "A theory of biological pattern formation", Kybernetik
        12, 1972).
        """
        for own, other in permutations(self.states_in, 2):
            if own in self.own_states and np.min(self._column(other)) > 0:
                yield Elementary(((own, 2),), "power", other, -1.0, is_held=True)

    def _waves_of_phases(self):
        """Sines and cosines of how far a state is ahead of another one, and of its own.

        As of phases that pull each other: oscillators of Kuramoto, pendulums that are
        coupled, generators of a power grid. What the equation is of is subtracted.
        States are angles then: slower sines would stand for differences themselves.
        """
        own = self.own_states
        pairs = combinations(sorted(self.states_in, key=own.__contains__), 2)
        alone = ((name, "") for name in self.states_in if name in own)
        for argument, reference in (*pairs, *alone):
            for family in ("sin", "cos"):
                wave = Elementary((), family, argument, reference=reference)
                yield from at_natural_values(
                    wave, argument_of(wave, self.names, self.S)
                )

    def _diffusions(self):
        """Diffusions of states in a coordinate, whose diffusivity is a function."""
        for state, x in product(self.states, self.coordinates):
            flux = f"{state}_{x}", f"{state}_{x}{x}"
            if {state, *flux} <= {*self.operators}:
                for family, k in diffusivities(self._column(state)):
                    yield Elementary((), family, state, k, flux=flux)

    def _flattening(self, steepest=(0.5, 1.0, 2.0)):
        """Diffusions of states in space whose diffusivity depends on their slope.

        u_xx/(1 + u_x^2) moves a curve as fast as it is bent, and |u_x|^k u_xx is what
        flows like ice does. The slope at which diffusion is halved is `steepest` times
        the steepest at first.
        """
        if len(self.coordinates) > 1:
            return
        for state, x in product(self.states, self.coordinates):
            slope, bend = f"{state}_{x}", ((f"{state}_{x}{x}", 1),)
            if {slope, bend[0][0]} <= {*self.operators}:
                largest = np.max(np.abs(self._column(slope)))
                for k in np.array(steepest) * largest:
                    yield Elementary(bend, "peak", slope, k**2)
                yield Elementary(bend, "abs", slope, 1.0)

    def _functions_of_time(self):
        """Time, as slow sines stand for it, waves and decays, alone and as factors.

        Of the square, too, if there is one operator: as what limits growth may vary.
        """
        settings, operators = self.settings, self.operators
        time, t = self.names[self.time], self.S[:, self.time]
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

    def _waves(self):
        """Sources and coefficients that vary with a coordinate of space."""
        factors = self._factors_in_space()
        for column in self.in_space:
            name, x = self.names[column], self.S[:, column]
            waves = np.arange(1, self.settings.n_waves + 1) * np.pi / np.ptp(x)
            for k, family, own in product(waves, ("cos", "sin"), factors):
                yield Elementary(own, family, name, k)

    def _factors_in_space(self):
        """What coefficients that vary in space are those of, a list of powers.

        Sources, operators, what limits growth, and the advection of a state by itself.
        """
        limits = [((name, 2),) for name in self.states_in]
        moving = [
            ((state, 1), (f"{state}_{x}", 1))
            for state, x in product(self.states, self.coordinates)
            if {state, f"{state}_{x}"} <= {*self.operators}
        ]
        return [(), *(((name, 1),) for name in self.operators), *limits, *moving]

    def _coordinates(self):
        """Those of space, as slow waves stand for them, and their powers."""
        factors = self._factors_in_space()
        for column in self.in_space:
            name, x = self.names[column], self.S[:, column]
            yield from (Elementary(((name, 1), *own)) for own in factors)
            for own, k in product(factors, powers_of_coordinates(x)):
                yield Elementary(own, "power", name, k, is_held=True)

    def _waves_on_rings(self):
        """The same of coordinates that are rings, on which waves are whole."""
        factors = self._factors_in_space()
        for column, length in self.rings:
            waves = np.arange(1, self.settings.n_waves + 1) * 2 * np.pi / length
            for k, own, family in product(waves.tolist(), factors, ("cos", "sin")):
                yield Elementary(own, family, self.names[column], k, is_held=True)

    def _functions_of(self, operators, factors):
        """Functions of each operator, alone and times one of the factors."""
        factors = [(), *(((name, 1),) for name in factors)]
        settings = self.settings
        positive = [o for o in operators if np.min(self._column(o)) > 0]
        for name in operators:
            x = self._column(name)
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


def own_states(part, state_of):
    """The states whose derivatives the known part of an equation has, a set.

    `state_of` are the states of operators.
    """
    return {state_of[name] for name in state_of if name in part.known_part.terms}
