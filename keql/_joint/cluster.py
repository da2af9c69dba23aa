"""A joint problem whose functions are on the workers of a cluster of dask.

Each worker has a part of the functions. It makes their Gram matrices from their data,
and keeps states, matrices and factors. Of a step only what the weights of P need, sums
of size p x p over functions, is fetched, and the step of the weights is sent. All that
workers do are pure functions of what they did before: what is lost with a worker is
computed again by others.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import itemgetter

import numpy as np

from keql._joint.dual import DualBlock, make_dual_blocks
from keql._joint.linearised import Elimination
from keql._joint.problem import Conditions, Iterate
from keql._numerics.optimisation import minimise


def minimise_joint(problem, start, control, **loop):
    """:func:`minimise`, on the workers of a cluster if the problem has a client.

    The model of the last step, of which matrices are a large part of what a fit takes,
    is let go.
    """
    n_workers = 0 if problem.client is None else len(problem.client.ncores())
    if min(n_workers, len(problem.blocks)) < 2:
        return replace(minimise(problem, start, control, **loop), model=None)
    report, remote = loop.pop("report", None), ClusterProblem(problem, n_workers)
    result = minimise(remote, start, control, report=report, **loop)
    solution = result.solution
    if isinstance(solution, ClusterIterate):
        solution = Iterate(solution.coefficients, solution.values, solution.weights)
    return replace(result, solution=solution, model=None)


@dataclass
class ClusterIterate:
    """States on the workers, and weights (p,).

    `parts` has for each part of the functions the future of an Evaluation. What a state
    is made of is fetched when it is asked for.
    """

    problem: object
    parts: list
    weights: np.ndarray
    loss: float

    @property
    def iterate(self):
        """The iterate of which it is the evaluation, too."""
        return self

    @cached_property
    def _fetched(self):
        client = self.problem.client
        iterates = [client.submit(_iterate_of, part, pure=False) for part in self.parts]
        return client.gather(iterates)

    @property
    def coefficients(self):
        """Of each state."""
        return self.problem.in_order([each.coefficients for each in self._fetched])

    @property
    def values(self):
        """Of the functionals of each state."""
        return self.problem.in_order([each.values for each in self._fetched])


class ClusterProblem:
    """A JointProblem, its functions in as many parts as there are workers."""

    def __init__(self, problem, n_workers):
        self.whole, self.client = problem, problem.client
        n_parts = min(n_workers, len(problem.blocks))
        members = range(len(problem.blocks))
        self.members = [members[i::n_parts] for i in range(n_parts)]
        blank = replace(problem, blocks=[], precisions=[], map_blocks=map, client=None)
        self.parts = [
            self._submit(
                _part_of,
                blank,
                [_sent(problem.blocks[m]) for m in own],
                [problem.precisions[m] for m in own],
            )
            for own in self.members
        ]

    def _submit(self, function, *arguments):
        return self.client.submit(function, *arguments, pure=False)

    def in_order(self, parts):
        """Lists of the functions of each part as one list of all functions."""
        found = {}
        for own, values in zip(self.members, parts, strict=True):
            found.update(zip(own, values, strict=True))
        return [found[m] for m in range(len(found))]

    def evaluate(self, iterate):
        """The evaluation of an iterate; one on the workers is evaluated already."""
        if isinstance(iterate, ClusterIterate):
            return iterate
        parts = [
            self._submit(
                _evaluation_at,
                part,
                [iterate.coefficients[m] for m in own],
                [iterate.values[m] for m in own],
                iterate.weights,
            )
            for part, own in zip(self.parts, self.members, strict=True)
        ]
        losses = self.client.gather([self._submit(_loss_of, part) for part in parts])
        loss = self.total(losses, iterate.weights)
        return ClusterIterate(self, parts, iterate.weights, loss)

    @staticmethod
    def total(losses, weights):
        """The loss of all parts, each of which has that of the weights."""
        return float(sum(losses) - 0.5 * (len(losses) - 1) * weights @ weights)

    def linearise(self, evaluation):
        """The problem linearised at an evaluation."""
        return ClusterModel(self, evaluation)


class ClusterModel:
    """The linearisation of a ClusterProblem, a model of each part on its worker."""

    def __init__(self, problem, evaluation):
        self.problem, self.evaluation = problem, evaluation
        pairs = zip(problem.parts, evaluation.parts, strict=True)
        self.models = [problem._submit(_linearised, *pair) for pair in pairs]

    def step(self, damping):
        """The iterate after a step with damping mu, and the predicted decrease."""
        problem, whole = self.problem, self.problem.whole
        submit, gather = problem._submit, problem.client.gather
        scales, w = (whole.penalty + damping, 1.0 + damping), self.evaluation.weights
        kept = [submit(_eliminated, model, *scales) for model in self.models]
        summaries = gather([submit(itemgetter(1), each) for each in kept])
        merged = whole.linear_model.merged(summaries)
        _, dw = whole.linear_model.solve_for_weights(scales[1], w, merged)
        pairs = zip(self.models, kept, strict=True)
        moved = [submit(_moved, *pair, dw, *scales) for pair in pairs]
        losses = gather([submit(itemgetter(1, 2), each) for each in moved])
        promised, reached = (
            problem.total(own, w + dw) for own in zip(*losses, strict=True)
        )
        parts = [submit(itemgetter(0), each) for each in moved]
        new = ClusterIterate(problem, parts, w + dw, reached)
        return new, self.evaluation.loss - promised


def _sent(block):
    """What a worker makes a block from: data and kernel, or a block in the primal."""
    if not isinstance(block, DualBlock):
        return block
    given = [getattr(block, field.name) for field in fields(Conditions)]
    return block.kernel, Conditions(*given)


def _part_of(blank, sent, precisions):
    """The problem of some of the functions."""
    if isinstance(sent[0], tuple):
        sent = make_dual_blocks(*map(list, zip(*sent, strict=True)))
    return replace(blank, blocks=sent, precisions=precisions)


def _evaluation_at(problem, coefficients, values, weights):
    return problem.evaluate(Iterate(coefficients, values, weights))


def _loss_of(evaluation):
    return evaluation.loss


def _iterate_of(evaluation):
    return evaluation.iterate


def _linearised(problem, evaluation):
    return problem.linearise(evaluation)


def _eliminated(model, a, b):
    """What is kept of each function, and what the weights need."""
    return model.eliminate_states(a, b)


def _moved(model, eliminated, dw, a, b):
    """The evaluation after a step, the loss promised for it, and its loss."""
    parts = Elimination(*eliminated[0], None, dw)
    new, residuals = model.moved(parts, a, b)
    evaluation = model.problem.evaluate(new)
    return evaluation, float(model.problem.loss(new, residuals)), evaluation.loss
