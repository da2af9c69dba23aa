"""The functions that equations of evolution may have, as values.

Their scales, and which ones may stand in the place of others.
"""

from copy import copy
from dataclasses import replace
from itertools import product

import numpy as np

from keql._numerics.elementary import ANGLES, FAMILIES, Elementary, ElementaryTable
from keql._numerics.linalg import rms
from keql._regression.functions.candidates import (
    FunctionCandidates,
    argument_of,
    own_states,
)
from keql._regression.functions.terms import Term
from keql.equation import PolynomialBasis
from keql.kernels import Dictionary


class FunctionTable:
    """The functions that equations may have, the inner parameters of some on a grid.

    learned : LearnedModel. Equations, with the features that their columns have.
    settings : ElementarySettings.
    time : int or None, default=0. Which coordinate is not one of space.

    terms : list of Term. First the products of each equation.
    sizes : list of float. What the unknown part of each equation has to explain.
    degree : int. The highest of the products.
    kinds : ndarray of shape (q, 2). Of each term its equation, and 0 for a product, 1
        for an elementary function, 2 if that has a natural parameter, 3 for waves of
        phases: of the last two there are few, and none of them is improbable because
        there are many others.
    """

    def __init__(self, learned, settings, time=0):
        self.names = tuple(learned.setup.unknown_names(learned.variables))
        n_columns = len(self.names)
        self.sizes = [rms(target) or 1.0 for target in learned.targets]
        self.features = [e.training_features[:, :n_columns] for e in learned.equations]
        self.state_of = {own.name: own.state for own in learned.setup.operators}
        self.own_states = [
            own_states(part, self.state_of) for part in learned.setup.equations
        ]
        self.settings, self._scales, kinds, self.terms = settings, {}, [], []
        for e, part in enumerate(learned.setup.equations):
            if part.depends_on is not None:
                own = FunctionCandidates(learned, e, settings, time).with_kinds()
                kinds += [(e, kind) for kind in own.values()]
                start = len(self.terms)
                self.terms += [Term(e, f, start + i) for i, f in enumerate(own)]
        self.kinds = np.array(kinds)
        self._known = {(term.equation, term.function): term for term in self.terms}
        monomials = [t.function.powers for t in self.terms if not t.function.family]
        self.degree = max((sum(dict(own).values()) for own in monomials), default=0)

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
        flat = self.settings.flat
        for term in terms:
            if flat and (term.function.is_free or term.function.is_natural):
                alone = replace(term.function, powers=(), flux=())
                values = self.values(replace(term, function=alone))
                x = argument_of(alone, self.names, self.features[term.equation])
                for each in (values, values[x != 0] / x[x != 0]):
                    size = np.max(np.abs(each), initial=0.0)  # none where x is zero
                    if size and np.ptp(each) < flat * size:
                        return True
        return False

    def with_products(self, terms, alike=0.98, beside=True):
        """Terms with products of operators where functions stand for these.

        For one that saturates early the product that is left of it may stand, for one
        that hardly bends the product with its argument: along states with errors they
        may be more probable. Or for what other terms leave of one, if these are to be
        considered: 36 u - 37 sin(u) - 5 u^3 stands for a fifth power.

        terms : sequence of Term.
        alike : float, default=0.98. The least cosine of a function and a product.
        beside : bool, default=True. Whether other terms are considered.

        Returns sets : list of list of Term. First with all such functions replaced,
            then with one of several at a time; empty if there are none.
        """
        found = [self._product_for(t, terms, alike, beside) for t in terms]
        places = [i for i, term in enumerate(terms) if found[i] != term]
        groups = [places, *([i] for i in places if len(places) > 1)]
        changed = [
            [found[i] if i in group else term for i, term in enumerate(terms)]
            for group in groups
            if group
        ]
        return [[*dict.fromkeys(own)] for own in changed]

    def _product_for(self, term, terms, alike, beside):
        """The product for which the function of a term stands, or the term."""
        f = term.function
        if f.is_whole_power or len(f.arguments) > 1:
            return term
        others = [t for t in terms if t.equation == term.equation and t is not term]
        own = [t for t in self.terms if t.equation == term.equation]
        own = [t for t in own if t.function.is_whole_power and t not in others]
        own = [t for t in own if t.function.depends_on <= f.depends_on]
        for rest in ([], others) if others and beside else ([],):
            found = [self._likeness(term, product, rest) for product in own]
            if found and max(found) > alike:
                return own[int(np.argmax(found))]
        return term

    def _likeness(self, term, product, rest, tol=1e-8):
        """The size of the cosine between two terms, without what others explain."""
        with np.errstate(all="ignore"):  # where a function is not defined
            columns = np.array([self.values(t) for t in (term, product, *rest)])
        if not np.all(np.isfinite(columns)):
            return 0.0
        largest = np.max(np.abs(columns), axis=1, keepdims=True)
        columns /= np.where(largest > 0, largest, 1.0)  # whatever their units
        columns /= np.sqrt(np.maximum(np.sum(columns**2, axis=1), 1.0))[:, None]
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
