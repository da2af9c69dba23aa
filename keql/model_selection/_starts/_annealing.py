"""The equations of a system, imposed more and more strictly.

A joint problem in which the equations hold closely from the start ends in a poor
minimum unless the start is near a solution: where trajectories diverge, a state that
is wrong at one time is wrong at all later ones. With high noise levels of the equations
the states are those that the observations tell alone; lowering the levels step by step,
each solution starting the next, leads to states and equations that agree.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from keql._joint.assembly import assemble_learned, equation_sizes
from keql._joint.starts import SubsampledProblem, most_points
from keql._numerics.linalg import extent_of
from keql._observations.data import left_out_errors
from keql._regression.hidden import hidden_state_kernel, with_fixed_bounds
from keql.kernels import RBF, SystemKernel, as_kernel, map_states
from keql.model_selection._state_kernels import (
    KernelCandidate,
    compare_kernels,
    likeliest_kernel,
    minimise_roughly,
    with_given_kernels,
)


@dataclass(frozen=True)
class AnnealingSettings:
    """How strictly equations are imposed in turn, and with which state kernels.

    levels : tuple of float. Noise levels of the equations, in units of the root mean
        square of what the unknown parts explain, from "hardly imposed" to the level
        that equations have without being told. Of known constraints they are not
        lowered, as these hold from the start.
    factors : tuple of float. Multiples of the length scales of maximum likelihood that
        are compared at the last level.
    hidden : float. Length scale of a state that was never observed, in units of the
        geometric mean of those of the others.
    many, part : int, float. Where an equation has more collocation points than `many`,
        which take long, it is imposed at this part of them until its last level: states
        that observations tell are known nearly as well by then. With half of them 404
        values of Lorenz' flow took 0.7 of the time, for errors that differ by 1e-3.
    work : float. From such a product of the residuals and the square of the unknowns
        on, which a step takes time in proportion to, a level takes about as long as a
        search for exact trajectories does: 1 s either for 404 values of Lorenz' flow
        (1.3e9), but 0.1 s and 1 s for 80 of glycolysis (1.1e8).
    max_iter, tol : int, float. Of the least-squares loop at each level.
    damping : float. The first damping, relative to the loss.
    """

    levels: tuple = (1.0, 0.1, 0.01, 1e-3)
    factors: tuple = (2.0**-0.5, 2.0**0.5)
    hidden: float = 1.0
    many: int = 500
    part: float = 0.5
    work: float = 3e8
    max_iter: int = 20
    tol: float = 1e-2
    damping: float = 1e-4


def anneal(family, settings=None):
    """State kernels compared by annealed joint fits, that to be taken first.

    Those that are given stay as they were fitted.

    family : JointFamily. The joint problems.
    settings : AnnealingSettings, default=None. None: the default ones.

    Returns candidates : list of KernelCandidate. The best one, then the others by
        rising error.
    """
    return compare_lengths(family, Imposition(family, settings).candidate, settings)


class Imposition:
    """Equations imposed on the states of one kernel, level by level.

    family, settings : See :func:`anneal`.
    kernel : Kernel, default=None. None: that of the two steps, which knows that fields
        are rougher in some places than in others; or an RBF kernel where there is time
        alone. It does not depend on the equation.

    two_step, problem, iterate : LearnedModel, JointProblem, Iterate. The two-step
        solution with the kernel, and the solution at the last level that was reached.
        The problem, which has large matrices, is let go with the candidate.
    is_slow : bool. Whether a level takes about as long as a search for trajectories.
    """

    def __init__(self, family, settings=None, kernel=None):
        self.family, self.settings = family, settings or AnnealingSettings()
        if kernel is None:
            kernel = with_given_kernels(_first_kernel(family, self.settings), family)
        self.kernel = kernel
        self.two_step, self.problem, self.iterate = family.at(kernel)
        self._final_noise = self.problem.equation_noise
        self.is_slow = _work_of_step(self.problem) >= self.settings.work
        # States that are known to be near agree with equations already.
        is_near = family.context.near is not None
        self._levels_to_come = [] if is_near else [*self.settings.levels]

    def advance(self):
        """Solve the problem of the next level; whether there was one."""
        if not self._levels_to_come:
            return False
        level, final = self._levels_to_come.pop(0), self._final_noise
        sizes = equation_sizes(self.two_step)
        terms = self.two_step.setup.equations
        learned = [own.depends_on is not None for own in terms]
        noise = np.where(learned, np.maximum(level * sizes, final), final)
        self.problem = self.problem.with_equation_noise(noise)
        given = self.problem, self.iterate, self.settings
        self.iterate = _minimise_with_few_points(*given)
        return True

    @property
    def learned(self):
        """The LearnedModel of the last level that was reached."""
        return assemble_learned(self.two_step, self.problem, self.iterate)

    def levels(self):
        """The LearnedModel of each level that is yet to come, if these take long."""
        while self.is_slow and self.advance():
            yield self.learned

    @cached_property
    def candidate(self):
        """The KernelCandidate that all levels lead to."""
        while self.advance():
            pass
        if np.any(self.problem.equation_noise > self._final_noise):
            self.problem = self.problem.with_equation_noise(self._final_noise)
        given = self.problem, self.iterate, self.settings
        found = _candidate(self.family, self.kernel, *given)
        self.problem = self.iterate = None
        return found


def told_by(find, known):
    """What a search is told of what it found with other equations, as its arguments.

    find : callable. Of a JointFamily and these.
    known : list. What it returned.
    """
    if known and find is compare_kernels:
        return {"near": known[0], "from_there": True}
    return {"kernel": known[0].kernel} if known and find is Imposition else {}


def compare_lengths(family, first, settings=None):
    """A candidate beside others whose length scales are shorter or longer.

    They are shortened, or otherwise lengthened, as long as what is left out is more
    probable: a kernel that is too smooth for the equation to be met may predict well,
    but is far too sure of its predictions. Each begins with the states of the one
    before if these solve its problem; if not, equations are imposed gradually again.

    family, settings : See :func:`anneal`.
    first : KernelCandidate. As from an :class:`Imposition`.

    Returns candidates : list of KernelCandidate. See :func:`anneal`.
    """
    settings = settings or AnnealingSettings()
    if not family.hypothesis.open_states(family.observations.states):
        return [first]
    candidates = [first]
    for factor in settings.factors:
        candidates += _rescaled_candidates(family, first, factor, settings)
        if any(other.log_density > first.log_density for other in candidates):
            break
    best = max(candidates, key=lambda candidate: candidate.log_density)
    others = [candidate for candidate in candidates if candidate is not best]
    return [best, *sorted(others, key=lambda candidate: candidate.error)]


def _rescaled_candidates(family, best, factor, settings):
    """Candidates with length scales multiplied again and again while that is better."""
    candidates = []
    while True:
        kernel = map_states(lambda k: _rescaled(k, factor), best.kernel)
        kernel = with_given_kernels(kernel, family)
        if best.converged:
            found = _at_last_level(family, kernel, best, settings)
        else:  # States that solve no problem are no start for another one.
            found = Imposition(family, settings, kernel).candidate
        candidates.append(found)
        if not candidates[-1].log_density > best.log_density:
            return candidates
        best = candidates[-1]


def _first_kernel(family, settings):
    """The state kernel to begin with; that of a hidden state suits the others."""
    two_step, observations = family.two_step, family.observations
    in_time = len(two_step.variables) == 1
    hidden = observations.hidden_states
    if not in_time and not hidden:
        return two_step.state_kernel
    likely = likely_kernel(observations, two_step.variables, settings)
    if in_time:
        return likely
    own = {
        state: (likely if state in hidden else two_step.state_kernel).of_state(state)
        for state in observations.states
    }
    return SystemKernel(own)


def likely_kernel(observations, variables, settings):
    """An offset and an RBF kernel of maximum likelihood for each state."""
    points = np.concatenate([data.points for data in observations.functions])
    extent, kernels, scales = extent_of(points), {}, []
    for state in observations.states:
        samples = observations.of_state(state)
        if not samples or state in observations.hidden_states:
            continue
        given = samples, RBF, 0.1, extent, observations.periods, variables
        kernel, _ = likeliest_kernel(*given)
        kernels[state] = kernel
        scales.append(_length_scales(kernel))
    for state in observations.states:
        if state not in kernels:
            shared = np.exp(np.mean(np.log(scales), axis=0)) if scales else 0.1 * extent
            given = observations.of_state(state), settings.hidden * shared
            kernels[state] = hidden_state_kernel(*given, observations)
    kernels = {state: kernels[state] for state in observations.states}
    fixed = {state: with_fixed_bounds(kernel) for state, kernel in kernels.items()}
    return SystemKernel(fixed) if len(fixed) > 1 else fixed[observations.states[0]]


def _length_scales(kernel):
    parameters = kernel.get_params()
    (name,) = [key for key in parameters if key.rpartition("__")[2] == "length_scale"]
    return np.ravel(parameters[name])


def _rescaled(kernel, factor):
    """The kernel with its length scales multiplied."""
    parameters = kernel.get_params()
    kernel = as_kernel(kernel).bind([])
    for name, value in parameters.items():
        if name.rpartition("__")[2] == "length_scale":
            kernel.set_params(**{name: np.multiply(value, factor)})
    return kernel


def _work_of_step(problem):
    """Products of numbers, up to a factor, that a step of a joint problem takes."""
    n_residuals = sum(map(len, problem.precisions))
    n_unknowns = sum(block.n_unknowns for block in problem.blocks)
    return float(n_residuals) * min(n_unknowns, n_residuals) ** 2


def _minimise_with_few_points(problem, start, settings):
    """The iterate of lowest loss, with equations at a part of many points."""
    most = most_points(problem)
    if most <= settings.many:
        return minimise_roughly(problem, start, settings).solution
    few = SubsampledProblem(problem, int(settings.part * most))
    found = minimise_roughly(few.problem, few.narrow(start), settings)
    return few.widen(found.solution)


def _at_last_level(family, kernel, near, settings):
    """The candidate of a kernel, from the states of another one."""
    _, problem, start = family.at(kernel, near.values)
    return _candidate(family, kernel, problem, start, settings)


def _candidate(family, kernel, problem, start, settings):
    result = minimise_roughly(problem, start, settings)
    model = problem.linearise(problem.evaluate(result.solution))
    errors = left_out_errors(model, family.observations)
    density = model.left_out_density()
    found = KernelCandidate(kernel, result.solution, errors, result.loss, density)
    return replace(found, converged=result.converged)
