"""Functions that explain an equation along states that are known without it."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import TwoStepKEqL
from keql._numerics.elementary import Elementary, state_grid
from keql._numerics.subsets import TermOdds
from keql._regression.functions import terms as terms_module
from keql._regression.functions.screening import (
    FunctionScreening,
    _have_twins,
    better_than_products,
    between,
    combined,
)
from keql._regression.functions.search import ElementarySearch
from keql._regression.functions.settings import ElementarySettings
from keql._regression.functions.table import FunctionTable
from keql._regression.functions.terms import Term, form_of, kind_of, says_the_same
from keql.kernels import Polynomial
from keql.model_selection._terms._functions import offers_cubics


def glider(t, state):
    """A glider's speed and angle."""
    v, angle = state
    return [-np.sin(angle) - 0.08 * v**2, v - np.cos(angle) / v]


def learned_from(rate, initial, t_end, n, error=0.0):
    """Two exact states at collocation points, as two steps know them.

    With an error of the slopes that is smooth.
    """
    names, t = ("t", "x", "y"), np.linspace(0, t_end, 5 * n)
    observed = np.linspace(0, t_end, n)
    found = solve_ivp(
        rate, (0, t_end), initial, "DOP853", t_eval=t, rtol=1e-12, atol=1e-12
    )
    slopes = np.array([rate(*pair) for pair in zip(t, found.y.T, strict=True)]).T
    slopes *= 1 + error * np.cos(3 * t)
    features = np.column_stack([t, *found.y])
    parts = [
        SimpleNamespace(depends_on=(0, 1), known_part=SimpleNamespace(terms={own: 1.0}))
        for own in ("x_t", "y_t")
    ]
    operators = [SimpleNamespace(name=n, state=n[0]) for n in ("x", "y", "x_t", "y_t")]
    inputs = SimpleNamespace(names=())
    setup = SimpleNamespace(
        equations=tuple(parts),
        operators=operators,
        inputs=inputs,
        is_system=True,
        rows=[SimpleNamespace(equation=np.repeat([0, 1], len(t)))],
        unknown_names=lambda variables: names,
    )
    data = SimpleNamespace(points=np.repeat(observed, 2)[:, None])
    return SimpleNamespace(
        setup=setup,
        variables=("t",),
        targets=[*slopes],
        equations=[SimpleNamespace(training_features=features)] * 2,
        observations=SimpleNamespace(functions=[data], states=("x", "y"), periods=None),
    )


@pytest.mark.slow
def test_the_terms_of_a_glider():
    learned = learned_from(glider, [5.0, 0.7], 10, 60, error=1e-5)
    settings = ElementarySettings()
    offered = FunctionTable(learned, settings)
    expected = [
        {"sin(y)": -1.0, "x^2": -0.08},
        {"x": 1.0, "x^-1 cos(y)": -1.0},
    ]
    for e, terms in enumerate(expected):
        screening = FunctionScreening(learned, offered, e, settings)
        screening.run()
        best = screening.with_errors_of_states(1)[0][0]
        scales = offered.scales(best.terms)
        found = zip(best.terms, best.values * scales, strict=True)
        found = {term.function.name: value for term, value in found}
        assert found == pytest.approx(terms, rel=1e-3)


def named(screened, offered):
    """The coefficients of terms by their names, with one digit of the parameters."""
    scales = offered.scales(screened.terms)
    names = [replace(term.function, digits=1).name for term in screened.terms]
    return dict(zip(names, screened.values * scales, strict=True))


@pytest.mark.slow
def test_terms_that_nearly_cancel():
    """A predator's slope is small beside its terms, whose sum it is.

    The parameter of the function lies between those of the table, and as n^2/(1 + n^2)
    is 1 - 1/(1 + n^2), there are two forms of the second equation.
    """

    def feeding(t, state):
        x, y = state
        eaten = x**2 * y / (1 + x**2)
        return [x * (1 - x / 4) - eaten, 0.7 * eaten - 0.3 * y]

    learned = learned_from(feeding, [1.0, 1.5], 30, 70, error=1e-5)
    settings = ElementarySettings()
    offered = FunctionTable(learned, settings)
    found = []
    for e in range(2):
        screening = FunctionScreening(learned, offered, e, settings)
        screening.run()
        for best, *_ in screening.with_errors_of_states(3):
            found.append(named(best, offered))
    first = {"x": 1.0, "x^2": -0.25, "x^2 y/(1 + x^2)": -1.0}
    assert found[:4] == [pytest.approx(first, rel=2e-2)] * 4
    forms = {"y": -0.3, "x^2 y/(1 + x^2)": 0.7}, {"y": 0.4, "y/(1 + x^2)": -0.7}
    for own in found[4:]:
        assert own in [pytest.approx(form, rel=2e-2) for form in forms]


@pytest.mark.parametrize(
    "depends_on, expected", [((0, 1), {"y^2 x^-1"}), ((1,), set())]
)
def test_squares_over_other_states_are_of_what_an_equation_depends_on(
    depends_on, expected
):
    """The second equation, of y, may depend on x or not; x and y are positive."""
    learned = learned_from(lambda t, s: [-s[0], -s[1]], [1.0, 0.7], 3, 40)
    first, second = learned.setup.equations
    second = SimpleNamespace(depends_on=depends_on, known_part=second.known_part)
    learned.setup.equations = (first, second)
    offered = FunctionTable(learned, ElementarySettings())
    squares = [t.function for t in offered.terms if t.equation == 1]
    squares = [f for f in squares if f.family == "power" and f.powers == (("y", 2),)]
    assert {f.name for f in squares} == expected
    assert all(f.is_natural for f in squares)


def test_a_grid_of_neighbours():
    offered = FunctionTable(
        learned_from(glider, [5.0, 0.7], 10, 60), ElementarySettings()
    )
    peaks = [t for t in offered.terms if t.function.family == "peak"]
    own = [t for t in peaks if kind_of(t) == kind_of(peaks[0])]
    parameters = [t.function.parameter for t in [*own, *between(own, 1.5)]]
    ratios = np.exp(np.diff(np.log(np.sort(parameters))))
    assert np.all(ratios < 1.5 + 1e-9) and np.all(ratios > 1.2)
    assert {min(parameters), max(parameters)} <= {t.function.parameter for t in own}
    products = [t for t in offered.terms if not t.function.family]
    assert between(products, 1.5) == []


def test_what_goes_down_to_zero_has_poles():
    """Of states with errors that are slightly below it; others change their sign."""

    def poles(x):
        return [k for family, k in state_grid(x) if family == "pole"]

    x = np.exp(-np.linspace(0, 12, 100))
    assert len(poles(x)) == 7
    assert poles(x - 1e-3) == pytest.approx(poles(x), rel=1e-2)
    below = poles(x - 0.03)
    assert 0 < len(below) < 7 and min(below) > 2 * 0.03 * 0.9
    assert poles(x - 0.2) == []


def test_a_state_that_turns_round_has_fast_sines():
    def pendulum(t, state):
        return [state[1], 1.67 - np.sin(state[0]) - 0.64 * state[1]]

    learned = learned_from(pendulum, [1.47, -0.2], 10, 60)
    offered = FunctionTable(learned, ElementarySettings())
    angle = learned.equations[0].training_features[:, 1]
    assert np.max(angle) > 12
    numbers = [
        t.function.parameter
        for t in offered.terms
        if (t.function.family, t.function.argument) == ("sin", "x")
    ]
    assert min(abs(np.array(numbers) - 1)) < 1 / np.ptp(angle)


def test_an_inner_parameter_may_run_away():
    """The function exceeds all numbers: it has a scale, and nothing is warned of."""
    offered = FunctionTable(
        learned_from(glider, [5.0, 0.7], 10, 60), ElementarySettings()
    )
    for powers in [(), (("y", 2),)]:
        assert offered.scales([Term(0, Elementary(powers, "exp", "x", 1e6), 0)]) == 1.0
    assert offered.scales([Term(0, Elementary((), "exp", "x", 0.1), 0)]) > 0


@pytest.mark.parametrize(
    "values, may_go",
    [([40, 0, 40, 0], [1]), ([0, 40, 0, 40], [0]), ([9, 5, 7, 0], [1, 2, 0])],
)
def test_terms_that_explain_much_are_not_taken_out(values, may_go):
    """In the linearised problem, a function with the slope in its inner parameter.

    Those that explain least go first.

    Orthogonal columns in units of the noise: without the first one the evidence falls
    by half its squared coefficient, less what its prior and its odds are.
    """
    rng = np.random.RandomState(0)
    effects = np.linalg.qr(rng.standard_normal((60, 4)))[0]
    target = effects @ np.array(values, float) + rng.standard_normal(60)
    effects = 30 * effects
    regression = SimpleNamespace(whitened=lambda: (target, effects), n_free=60)
    functions = (Elementary((("x", k),)) for k in (1, 2))
    functions = [*functions, Elementary((), "sin", "x", 1.0)]
    terms = [Term(0, function, i) for i, function in enumerate(functions)]
    best = SimpleNamespace(terms=terms, model=SimpleNamespace(regression=regression))
    search = ElementarySearch.__new__(ElementarySearch)
    search.settings = ElementarySettings()
    search.offered = SimpleNamespace(kinds=np.array([[0, 0], [0, 0], [0, 1]]))
    assert search._dispensable(best) == may_go


@pytest.mark.parametrize(
    "gains, left, n_solved", [((1, 0, 0, 0, 0), 4, 7), ((0, 0, 0, 0, 1), 4, 9)]
)
def test_the_most_dispensable_terms_are_taken_out_first(gains, left, n_solved):
    """The others are solved without only where none of the first three can go.

    Five terms, one of which raises the evidence when it goes, the first in the order
    or the last: then three sets, or all five, are solved for, and four at the end.
    """
    search, solved = ElementarySearch.__new__(ElementarySearch), []
    search.settings, search.is_stopped = ElementarySettings(n_tried=3), False
    search.offered = SimpleNamespace(with_products=lambda terms: [])
    search._dispensable = lambda best: [*range(len(best.terms))]

    def best_of(problem, offers, iterate, best):
        for terms, values in offers:
            solved.append(terms)
            score = sum(g for t, g in enumerate(gains) if t not in terms)
            if score > best.score:
                best = SimpleNamespace(**vars(best) | {"terms": terms, "score": score})
                best.values = values
        return best

    search._best_of = best_of
    given = {"model": SimpleNamespace(problem=None), "iterate": None}
    first = SimpleNamespace(terms=[*range(5)], values=np.zeros(5), score=0, **given)
    found = search._pruned(first)
    assert (len(found.terms), len(found.values)) == (left, left)
    assert len(solved) == n_solved


@cache
def field(source, n=80, seed=0):
    """What two steps know of u_t = 0.1 u_xx + a source, sin(2 x) / 2 or 0."""
    X = np.random.default_rng(seed).uniform((0, 0), (2, 5), (n, 2))
    k = np.arange(1, 4)
    damping = np.exp(-0.1 * np.outer(X[:, 0], k**2)) * [1.0, 0.5, -0.3]
    u = np.sum(damping * np.cos(np.outer(X[:, 1], k) + [0.0, -1.27, 1.0]), axis=1)
    u += source * 2.5 * (1 - np.exp(-0.4 * X[:, 0])) * np.sin(2 * X[:, 1])
    model = TwoStepKEqL(
        operators=("u", "u_x", "u_xx"),
        known_part="u_t",
        variables=("t", "x"),
        equation_kernel=Polynomial(2),
    )
    return model._learn_in_two_steps(X, u, None)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_source_is_found_along_a_field(noise):
    learned, settings = field(0.5), ElementarySettings.of_fields()
    offered = FunctionTable(learned, settings)
    for own in better_than_products(learned, offered, 0, settings, noise):
        diffusion, source = sorted(own[0].terms, key=lambda t: t.function.family)
        assert diffusion.function.name == "u_xx"
        assert (source.function.family, source.function.argument) == ("sin", "x")
        assert source.function.parameter == pytest.approx(2, rel=0.02)
        sizes = {
            term.function.family: value * scale
            for term, value, scale in zip(
                own[0].terms, own[0].values, offered.scales(own[0].terms), strict=True
            )
        }
        assert sizes == pytest.approx({"": -0.1, "sin": -0.5}, rel=0.05)


def test_a_rate_that_varies_is_found_beside_several_products():
    """All pairs of products of operators are looked at, however many coordinates."""
    learned, settings = field(0.5), ElementarySettings.along_fields()
    S = learned.equations[0].training_features
    x, u, u_x, u_xx = S[:, 1:5].T
    target = 0.3 * u_xx - 0.5 * u * u_x + u * (1 + 0.5 * np.sin(1.3 * x))
    same = "setup", "variables", "observations", "equations"
    known = {name: getattr(learned, name) for name in same}
    learned = SimpleNamespace(**known, targets=[target])
    offered = FunctionTable(learned, settings)
    [first, *_] = better_than_products(learned, offered, 0, settings, 0.0)[-1]
    names = {t.function.name for t in first.terms}
    assert names == {"u_xx", "u u_x", "u", "u sin(1.3 x)"}


@pytest.mark.parametrize("source", [0.0, 0.5])
def test_functions_that_come_first_have_to_be_far_more_probable(source):
    settings = replace(ElementarySettings.along_fields(), at_first=True)
    learned = field(source)
    offered = FunctionTable(learned, settings)
    ranked = better_than_products(learned, offered, 0, settings, 0.0)
    assert bool(ranked) == bool(source)


@pytest.mark.parametrize("n, are_offered", [(3, True), (4, False)])
def test_cubic_products_of_three_operators_are_offered(n, are_offered):
    part = SimpleNamespace(depends_on=(*range(n),))
    two_step = SimpleNamespace(setup=SimpleNamespace(equations=(part,)))
    assert offers_cubics(two_step) is are_offered


def test_products_stand_where_they_explain_a_field():
    learned, settings = field(0.0), ElementarySettings.of_fields()
    offered = FunctionTable(learned, settings)
    ranked = better_than_products(learned, offered, 0, settings, 0.0)
    every = [term for own in ranked for each in own for term in each.terms]
    assert every and not any(term.function.family for term in every)
    search = ElementarySearch(SimpleNamespace(learned=learned), offered, settings, None)
    assert search.run_along(None, 0.0) is None  # no problem is solved


def test_points_between_observations_tell_nothing_more():
    """Scores are those of as many rows as there are observations."""
    settings = ElementarySettings.of_fields()
    learned = field(0.5)
    offered = FunctionTable(learned, settings)
    screening = FunctionScreening(learned, offered, 0, settings)
    assert screening.n_free == 80 < len(screening.target)
    term = next(t for t in offered.terms if t.function.name == "u_xx")
    [(fit, _)] = screening._fits([[term]], 1.0)
    size = np.sqrt(
        np.mean((screening.target / screening.unit) ** 2) * len(screening.target)
    )
    assert size == pytest.approx(np.sqrt(80))
    assert fit.noise == 1.0 and -80 < fit.score < 0


def test_functions_that_stand_for_one_are_left_out():
    learned, settings = field(0.0), ElementarySettings.along_fields()
    offered = FunctionTable(learned, settings)
    for k, is_flat in ((0.05, True), (1.0, False)):
        for family in ("cos", "sin"):  # for 1, and for t
            slow = Term(0, Elementary((("u_x", 1),), family, "t", k), 0)
            assert offered.are_flat([slow]) == is_flat
    products = {t.function.name for t in offered.terms if not t.function.family}
    assert {"x", "x u", "x u_xx", "t", "t u"} <= products
    spread = Elementary((), "exp", "u", 1e-3, flux=("u_x", "u_xx"))
    assert offered.are_flat([Term(0, spread, 0)])
    held = Elementary((), "cos", "t", 0.05, is_held=True)
    assert not offered.are_flat([Term(0, held, 0)])


def test_nothing_is_offered_where_no_set_is_left(monkeypatch):
    """All that were found have functions that stand for 1."""
    learned, settings = field(0.5), ElementarySettings.along_fields()
    offered = FunctionTable(learned, settings)
    monkeypatch.setattr(offered, "are_flat", lambda terms: True)
    ranked = better_than_products(learned, offered, 0, settings, 0.0)
    assert not any(ranked) and not combined([ranked])


def test_sets_whose_parameters_have_become_the_same_are_no_sets():
    first = Term(0, Elementary((), "sin", "x", 2.0), 0)
    terms = [first, replace(first, function=first.function.with_parameter(2.0001))]
    assert _have_twins(terms) and not _have_twins(terms[:1])
    apart = replace(first, function=first.function.with_parameter(2.1))
    other = Term(0, Elementary((), "cos", "x", 2.0), 1)
    assert not _have_twins([first, apart, other])


def test_natural_parameters_are_as_probable_whatever_else_is_offered():
    """Odds of one among the few of them, not among all functions."""
    learned, found = learned_from(glider, [5.0, 0.7], 10, 60), []
    for n in (3, 30):
        offered = FunctionTable(learned, ElementarySettings(n_parameters=n))
        natural = [t for t in offered.terms if t.function.is_natural]
        kinds = offered.kinds[[t.origin for t in natural]].tolist()
        assert {kind for _, kind in kinds} == {2, 3}  # 3: phases
        own = [t for t, kind in zip(natural, kinds, strict=True) if kind == [0, 2]]
        odds = TermOdds(offered.kinds)
        term = next(t for t in own if t.function.name == "sin(y)")
        found.append(odds([term.origin]) - odds([]))
        b = 1 + len(own)
        assert found[-1] == pytest.approx(-np.log(len(own) + b - 1), rel=1e-9)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_phases_of_an_equation_are_its_own_states_and_differences_from_these():
    """With a constant: neither has derivatives among the operators."""
    learned = learned_from(glider, [5.0, 0.7], 10, 60)
    several = ElementarySettings.of_trajectories(5, False, False)
    for settings in (ElementarySettings(), several):
        offered = FunctionTable(learned, settings)
        sets = [
            [{t.function.name for t in own if t.equation == e} for e in (0, 1)]
            for own in offered.couplings()
        ]
        assert sets[0] == [{"1", "sin(x)", "sin(y - x)"}, {"1", "sin(y)", "sin(x - y)"}]
        cosines = {"cos(x)", "cos(y - x)"}, {"cos(y)", "cos(x - y)"}
        assert sets[1] == [a | b for a, b in zip(sets[0], cosines, strict=True)]
    free = [t for t in offered.terms if t.function.is_free]
    assert not free and any(t.function.reference for t in offered.terms)


def test_no_set_has_one_form_twice_at_a_natural_value():
    """x^0.5 and x^0.6667 together stand for what is between them."""
    learned, settings = learned_from(glider, [5.0, 0.7], 10, 60), ElementarySettings()
    offered = FunctionTable(learned, settings)
    screening = FunctionScreening(learned, offered, 0, settings)
    columns = screening._columns(())
    places = {
        t.function.name if t.function.is_natural else t: i
        for i, t in enumerate(columns.terms)
        if t is not None and t.function.family == "power" and t.function.powers == ()
    }
    natural = places["x^0.5"]
    free = next(i for key, i in places.items() if isinstance(key, Term))
    form = form_of(columns.terms[natural])
    assert form == form_of(columns.terms[free])
    for base in [(natural,), columns.with_slope(free), ()]:
        added = {kept[-1] for _, kept in columns.best_added([base], most=10_000)}
        added |= {kept[-2] for _, kept in columns.best_added([base]) if len(kept) > 1}
        again = [i for i in added if columns.terms[i] and i not in base]
        again = [i for i in again if form_of(columns.terms[i]) == form]
        is_natural = [columns.terms[i].function.is_natural for i in again]
        assert not base or not any(is_natural) and (base[0] != natural or not again)
        assert base or any(is_natural)


@pytest.mark.parametrize("k, same", [(0.97, True), (0.95, False)])
def test_a_parameter_within_its_error_of_a_natural_one_is_no_rival(
    monkeypatch, k, same
):
    """One of 0.02 in its logarithm, known to two of these."""
    free = Term(0, Elementary((), "sin", "u", k), 0)
    held = Term(0, replace(free.function, parameter=1.0, is_held=True), 1)
    speed = Term(0, Elementary((("u_t", 1),)), 2)
    sets = [SimpleNamespace(terms=own) for own in ((free, speed), (held, speed))]

    def errors(refined):
        own = enumerate(refined.terms)
        return {i: 0.02 for i, t in own if t.function.is_free}

    monkeypatch.setattr(terms_module, "parameter_errors", errors)
    assert says_the_same(*sets) == says_the_same(*sets[::-1]) == same
    fewer = SimpleNamespace(terms=(held,))
    assert says_the_same(sets[0], fewer) and not says_the_same(fewer, sets[0])


def test_products_stand_for_functions_alone_and_beside_other_terms():
    """36 u - 37 sin(u) - 5 u^3 is a fifth power, and tanh(0.01 u) is a line."""
    learned = learned_from(glider, [5.0, 0.7], 10, 60)
    offered = FunctionTable(learned, ElementarySettings())
    scale = np.max(np.abs(offered.features[1][:, offered.names.index("y")]))

    def named(*names):
        return [next(t for t in own if t.function.name == name) for name in names]

    own = [t for t in offered.terms if t.equation == 1]
    line = Term(1, Elementary((), "tanh", "y", 0.01 / scale), 0)
    assert offered.with_products([line]) == [named("y")]
    assert offered.with_products(named("y", "y^2", "y^4")) == []
    wave = Term(1, Elementary((), "sin", "y", 1.0 / scale), 0)
    others = named("y", "y^3")
    assert offered.with_products([*others, wave], beside=False) == []
    assert offered.with_products([*others, wave]) == [[*others, *named("y^5")]]
    other = Term(1, Elementary((), "tanh", "x", 1e-4), 0)
    assert offered.with_products([line, other]) == [
        named("y", "x"),
        [*named("y"), other],
        [line, *named("x")],
    ]


def test_what_is_not_defined_stands_for_nothing():
    learned = learned_from(glider, [5.0, 0.7], 10, 60)
    offered = FunctionTable(learned, ElementarySettings())
    root = Term(1, Elementary((), "power", "y", 0.5), 0)
    shifted = offered.features[1][:, offered.names.index("y")]
    shifted -= np.mean(shifted)  # below zero there is no root
    assert offered.with_products([root]) == []


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_what_stands_for_a_product_does_so_in_any_unit(unit):
    learned = learned_from(glider, [5.0, 0.7], 10, 60)
    offered = FunctionTable(learned, ElementarySettings())
    y = offered.features[1][:, offered.names.index("y")]
    y *= unit
    line = Term(1, Elementary((), "tanh", "y", 0.01 / np.max(np.abs(y))), 0)
    [[found]] = offered.with_products([line])
    assert found.function.name == "y"
    wave = Term(1, Elementary((), "sin", "y", 1.0 / np.max(np.abs(y))), 0)
    own = [t for t in offered.terms if t.equation == 1]
    beside = [next(t for t in own if t.function.name == name) for name in ("y", "y^3")]
    [[*_, last]] = offered.with_products([*beside, wave])
    assert last.function.name == "y^5"
