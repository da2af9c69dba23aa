"""Equations that are imposed more and more strictly."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import Equation, TwoStepKEqL
from keql._joint.assembly import equation_sizes
from keql._joint.problem import JointProblem
from keql._numerics.linalg import rms
from keql._regression.likelihood import maximise_likelihood
from keql._regression.two_step import FitSettings, Hypothesis
from keql.datasets import make_fitzhugh_nagumo
from keql.kernels import RBF, SystemKernel, map_states
from keql.model_selection._fit import Context, JointFamily
from keql.model_selection._starts import _annealing
from keql.model_selection._starts._annealing import (
    AnnealingSettings,
    Imposition,
    anneal,
    compare_lengths,
    likely_kernel,
    told_by,
)
from keql.model_selection._state_kernels import (
    KernelCandidate,
    compare_kernels,
    warm_start,
)

CONTEXT = Context(FitSettings(), lambda *_: False)
SETTINGS = AnnealingSettings()
TIMES = np.linspace(0, 12, 25)
STATES = ("x", "y")


def hunt(_, y):
    """Prey and predators of Lotka and Volterra."""
    return [1.1 * y[0] - 0.4 * y[0] * y[1], -0.4 * y[1] + 0.1 * y[0] * y[1]]


def cycles():
    how = {"rtol": 1e-10, "atol": 1e-10, "t_eval": TIMES}
    return solve_ivp(hunt, (0, 12), [10.0, 5.0], **how).y.T


def learn(y, equations=None, **changes):
    """The two-step solution."""
    if equations is None:
        equations = [(s, Equation(f"{s}_t", STATES)) for s in STATES]
    settings = {"variables": ("t",), "states": STATES, "collocation_points": 40}
    model = TwoStepKEqL(**settings | changes, equations=equations)
    return model._learn_in_two_steps(TIMES[:, None], y, None)


def family_of(two_step):
    return JointFamily(two_step, Hypothesis(), CONTEXT)


@pytest.fixture(scope="module")
def hunters():
    return learn(cycles())


@pytest.fixture(scope="module")
def annealed(hunters):
    return anneal(family_of(hunters))


def length_scales(kernel, name):
    return kernel.of_state(name).get_params()["k2__k2__length_scale"]


def test_the_best_candidate_comes_first(annealed):
    errors = [candidate.error for candidate in annealed]
    assert errors[1:] == sorted(errors[1:])
    assert annealed[0].log_density == max(c.log_density for c in annealed)
    # Exact data of equations that there are: nothing else predicts so well.
    assert errors[0] < 1e-3


def test_length_scales_of_all_states_are_varied_together(annealed):
    ratios = [
        length_scales(c.kernel, "x") / length_scales(c.kernel, "y") for c in annealed
    ]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))
    tried = sorted(np.log2([float(length_scales(c.kernel, "x")) for c in annealed]))
    assert np.diff(tried) == pytest.approx(0.5)
    assert len(annealed) >= 3


def test_units_do_not_matter(annealed):
    scaled = anneal(family_of(learn(cycles() * [1e3, 1e-3])))
    assert len(scaled) == len(annealed)
    first, other = annealed[0], scaled[0]
    for name in STATES:
        expected = length_scales(first.kernel, name)
        assert length_scales(other.kernel, name) == pytest.approx(expected, rel=1e-4)
    assert other.error == pytest.approx(first.error, rel=1e-2)


def test_levels_fall_and_those_of_constraints_stay(monkeypatch):
    """The noise of each equation goes from its own size to its final level."""
    y = cycles()
    laws = [
        ("x", Equation("x_t", STATES)),
        ("y", Equation("y_t", STATES, noise=0.5)),
        ("copy", Equation({"x": 1, "z": -2}, operators=None)),
    ]
    data = np.column_stack([y, 0.5 * y[:, 0]])
    two_step = learn(data, laws, states=("x", "y", "z"))
    hypothesis = Hypothesis(equation_noise={"y": 0.5})
    family, levels, minimise = (
        JointFamily(two_step, hypothesis, CONTEXT),
        [],
        _annealing.minimise_roughly,
    )

    def record(problem, start, settings):
        levels.append(problem.equation_noise)
        return minimise(problem, start, settings)

    monkeypatch.setattr(_annealing, "minimise_roughly", record)
    candidates = anneal(family, replace(SETTINGS, factors=()))
    assert len(candidates) == 1 and len(levels) == 5
    fitted, problem, _ = family.at(candidates[0].kernel)
    sizes, final = equation_sizes(fitted), problem.equation_noise
    assert sizes[1] > 0.5  # a given level is not undercut
    expected = np.array([[1, 0.1, 0.01, 1e-3, 1e-3], [0, 0, 0, 0, 0]]).T * sizes[0]
    np.testing.assert_allclose(np.array(levels)[:, 0], expected[:, 0], rtol=1e-6)
    ratios = np.array(levels)[:, 1] / sizes[1]
    given = 0.5 / sizes[1]
    assert ratios == pytest.approx([max(r, given) for r in (1, 0.1, 0.01, 0, 0)])
    np.testing.assert_allclose(np.array(levels)[:, 2], final[2], rtol=1e-12)
    assert final[2] == pytest.approx(1e-7 * sizes[2])


def test_levels_are_reached_one_by_one(hunters):
    """The equations that states tell obey them closely at the last one."""
    imposition, misses = Imposition(family_of(hunters)), []
    whole = Imposition(imposition.family).candidate
    while imposition.advance():
        learned, noise = imposition.learned, imposition.problem.equation_noise
        evaluation = imposition.problem.evaluate(imposition.iterate)
        misses.append(rms(evaluation.residuals[0][-80:]))
        np.testing.assert_allclose(learned.equation_noise, noise, rtol=1e-12)
    assert len(misses) == len(SETTINGS.levels) and misses[-1] < 0.02 * misses[0]
    found = imposition.candidate
    assert found.loss == whole.loss and not imposition.advance()
    assert imposition.problem is None  # its matrices are large
    assert found.kernel is imposition.kernel


@pytest.fixture
def interrupt(monkeypatch):
    """A function that has evaluations of joint problems interrupted at the n-th one.

    It returns a list that grows by each of them.
    """

    def interrupt(n):
        evaluate, asked = JointProblem.evaluate, []

        def interrupted(problem, iterate):
            asked.append(iterate)
            if len(asked) == n:
                raise KeyboardInterrupt
            return evaluate(problem, iterate)

        monkeypatch.setattr(JointProblem, "evaluate", interrupted)
        return asked

    return interrupt


@pytest.mark.parametrize("n_levels", [0, 2, 4])
def test_an_interruption_ends_the_way_to_a_start(n_levels, hunters, interrupt):
    """At any level: it was swallowed, and all levels and kernels followed."""
    imposition = Imposition(family_of(hunters))
    for _ in range(n_levels):
        imposition.advance()
    asked = interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        compare_lengths(imposition.family, imposition.candidate)
    assert len(asked) == 3


def test_an_interruption_ends_the_comparison_of_kernels(hunters, interrupt):
    asked = interrupt(40)
    with pytest.raises(KeyboardInterrupt):
        compare_kernels(family_of(hunters))
    assert len(asked) == 40


def test_what_takes_long_depends_on_residuals_and_unknowns(hunters):
    family = family_of(hunters)
    [block] = Imposition(family).problem.blocks
    work = (2 * 25 + 2 * 40) * min(block.n_unknowns, 130) ** 2
    for factor, slow in ((0.99, True), (1.01, False)):
        settings = replace(SETTINGS, work=factor * work)
        assert Imposition(family, settings).is_slow == slow


@pytest.mark.parametrize("many", [39, 40])
def test_many_points_are_left_for_the_last_level(many, hunters, monkeypatch):
    """Half of the 40 points are enough until then, and lead to nearly equal states."""
    family, tried, minimise = family_of(hunters), [], _annealing.minimise_roughly

    def counted(problem, *given):
        tried.append(max(len(block.points) for block in problem.blocks))
        return minimise(problem, *given)

    monkeypatch.setattr(_annealing, "minimise_roughly", counted)
    found = Imposition(family, replace(SETTINGS, many=many)).candidate
    n_levels = len(SETTINGS.levels)
    assert tried == n_levels * [20 if many < 40 else 40] + [40]
    whole = Imposition(family, replace(SETTINGS, many=1000)).candidate
    assert found.converged and found.loss == pytest.approx(whole.loss, rel=0.05)


def test_the_likely_kernel_is_of_highest_likelihood(hunters):
    kernel = likely_kernel(hunters.observations, ("t",), SETTINGS)
    assert isinstance(kernel, SystemKernel)
    for name in STATES:
        own = kernel.of_state(name)
        assert len(own.theta) == 0  # all of it is fixed
        samples = hunters.observations.of_state(name)
        mean = np.mean(samples[0].values)
        assert own.get_params()["k1__constant_value"] == pytest.approx(mean**2)
        free = own.clone_with_theta(own.theta).set_params(
            k2__k2__length_scale_bounds=(1e-2, 1e2),
            k2__k1__constant_value_bounds=(1e-4, 1e4),
        )
        again, _ = maximise_likelihood(free, None, samples)
        found = again.get_params()["k2__k2__length_scale"]
        assert found == pytest.approx(length_scales(kernel, name), rel=1e-2)


def test_a_state_that_was_never_observed_has_the_scale_of_the_others():
    y = cycles()
    laws = [("x", Equation("x_t", STATES)), ("y", Equation("y_t", STATES))]
    two_step = learn(y, laws, states=("x", "y", "z"))
    kernel = likely_kernel(two_step.observations, ("t",), SETTINGS)
    hidden = kernel.of_state("z").get_params()
    scales = [length_scales(kernel, name) for name in STATES]
    expected = np.sqrt(scales[0] * scales[1])
    assert hidden["k2__length_scale"] == pytest.approx(expected)
    assert hidden["k1__constant_value"] == 1.0
    longer = likely_kernel(two_step.observations, ("t",), replace(SETTINGS, hidden=3.0))
    found = longer.of_state("z").get_params()["k2__length_scale"]
    assert found == pytest.approx(3 * expected)


@pytest.mark.parametrize("with_kernel", [False, True])
def test_a_state_that_was_never_observed_does_not_start_at_zero(with_kernel):
    """There, with equations that do not depend on it, the loss has a saddle."""
    y = cycles() * [1.0, np.nan]
    two_step = learn(y)
    family = family_of(two_step)
    if with_kernel:
        _, problem, start = family.at(two_step.state_kernel)
    else:
        problem, start = family.problem_of(two_step)
    values = start.values[0][len(TIMES) :].reshape(-1, 40)
    names = [operator.name for operator in problem.blocks[0].operators]
    assert np.std(values[names.index("y")]) > 0.03
    first = start.weights[: problem.basis.sizes[0]]
    slope = problem.basis.bases[0].gradient(np.ones((1, 3)), first)[2]
    assert abs(slope[0]) > 0.03


@pytest.mark.parametrize("compare", [anneal, compare_kernels])
def test_kernels_that_are_given_stay_and_the_others_are_compared(compare):
    given = {"x": RBF(1.7, "fixed")}
    two_step = learn(cycles(), state_kernel=given)
    family = JointFamily(two_step, Hypothesis(state_kernel=given), CONTEXT)
    candidates = compare(family)
    assert len(candidates) >= 3
    assert {str(c.kernel.of_state("x")) for c in candidates} == {
        "RBF(length_scale=1.7)"
    }
    others = {str(c.kernel.of_state("y")) for c in candidates}
    assert len(others) == len(candidates)


def test_a_fit_starts_where_the_best_candidate_ended(hunters, annealed):
    """With the final noise levels, at about the same loss."""
    start = warm_start(annealed[0], family_of(hunters))
    loss = start.problem.evaluate(start.solution).loss
    assert loss == pytest.approx(annealed[0].loss, rel=1e-2)
    np.testing.assert_allclose(
        start.problem.equation_noise, 1e-3 * equation_sizes(start.two_step)
    )


def test_fields_begin_with_the_state_kernel_of_the_two_steps():
    """But a field that was never observed has the length scale of the others."""
    data = make_fitzhugh_nagumo(12, random_state=0)
    settings = data.problem | {"collocation_points": 20}
    learner = TwoStepKEqL(**settings)
    two_step = learner._learn_in_two_steps(data.X, data.y, None)
    assert _annealing._first_kernel(family_of(two_step), SETTINGS) is (
        two_step.state_kernel
    )
    y = np.where([True, False], data.y, np.nan)
    seen = np.isfinite(y[:, 0])
    two_step = TwoStepKEqL(**settings)._learn_in_two_steps(data.X[seen], y[seen], None)
    kernel = _annealing._first_kernel(family_of(two_step), SETTINGS)
    assert kernel.of_state("u") == two_step.state_kernel.of_state("u")
    likely = likely_kernel(two_step.observations, ("t", "x"), SETTINGS)
    assert kernel.of_state("v") == likely.of_state("v")


def test_longer_scales_are_tried_where_shorter_ones_are_no_better(hunters, monkeypatch):
    """As long as predictions improve; here they are best at some multiple."""
    tried = []

    def at(multiple):
        def pretend(family, kernel, near, settings):
            scale = float(length_scales(kernel, "x") / length_scales(first.kernel, "x"))
            tried.append(scale)
            error = 1 + abs(np.log2(scale / multiple))
            errors = np.full(4, error)
            found = KernelCandidate(kernel, None, errors, 1.0, -error)
            return replace(found, converged=True)

        return pretend

    kernel = likely_kernel(hunters.observations, ("t",), SETTINGS)
    for multiple, expected in (
        (0.5, [-0.5, -1, -1.5]),
        (2.0, [-0.5, 0.5, 1, 1.5]),
        (1.0, [-0.5, 0.5]),
    ):
        tried.clear()
        error = 1 + abs(np.log2(multiple))
        first = KernelCandidate(kernel, None, np.full(4, error), 1.0, -error)
        first = replace(first, converged=True)
        monkeypatch.setattr(_annealing, "_at_last_level", at(multiple))
        best = _annealing.compare_lengths(family_of(hunters), first)[0]
        assert np.log2(tried) == pytest.approx(expected)
        assert best.error == pytest.approx(1.0)


def test_states_that_solve_no_problem_start_no_other(hunters, annealed):
    """Equations are imposed gradually again, up to a candidate that is solved."""
    longest = max(annealed, key=lambda c: float(length_scales(c.kernel, "x")))
    kernel = map_states(lambda k: _annealing._rescaled(k, 4.0), longest.kernel)
    nowhere = KernelCandidate(kernel, None, np.ones(4), np.inf, -np.inf)
    candidates = compare_lengths(family_of(hunters), replace(nowhere, converged=False))
    assert candidates[0].converged and candidates[0].error < 1e-3


def test_a_kernel_that_another_equation_had_is_not_looked_for_again(monkeypatch):
    """Nor are kernels that were compared: the search goes on from these."""
    kernel, problem = object(), SimpleNamespace(equation_noise=0.0)
    problem.precisions = problem.blocks = []
    family = SimpleNamespace(
        at=lambda *given: (None, problem, given), context=SimpleNamespace(near=None)
    )
    monkeypatch.setattr(_annealing, "_first_kernel", lambda *given: 1 / 0)
    known = [KernelCandidate(kernel, None, np.zeros(2), 1.0)]
    imposed = Imposition(family, **told_by(Imposition, known))
    assert imposed.kernel is kernel and imposed.iterate == (kernel,)
    assert told_by(compare_kernels, [known]) == {"near": known, "from_there": True}
    for find in (Imposition, compare_kernels, compare_lengths):
        assert told_by(find, []) == {}
    assert told_by(compare_lengths, [known]) == {}
