"""A joint problem whose functions are on the workers of a cluster of dask.

Each worker has a part of the functions. It makes their Gram matrices from their data,
and keeps states, matrices and factors. Of a step only what the weights of P need, sums
of size p x p over functions, is fetched, and the step of the weights is sent. All that
workers do are pure functions of what they did before: what is lost with a worker is
computed again by others.

The data of functions, and states from elsewhere, are sent in parcels: a message to the
scheduler that holds all of a part would be tens of megabytes, of which dask warns.
"""

import pickle
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain

import numpy as np
from sklearn import config_context, get_config

from keql._joint.dual import DualBlock, make_dual_blocks
from keql._joint.linearised import Elimination
from keql._joint.problem import Conditions, Iterate, ranges_of_equal_sums
from keql._numerics.memory import keep_freed_memory
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

    `parts` has for each part of the functions the future of a :class:`PartOfProblem`.
    What a state is made of is fetched when it is asked for.
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
        return self.problem.gathered(_iterate_of, self.parts)

    @property
    def coefficients(self):
        """Of each state."""
        return [own for part in self._fetched for own in part.coefficients]

    @property
    def values(self):
        """Of the functionals of each state."""
        return [own for part in self._fetched for own in part.values]


class ClusterProblem:
    """A JointProblem, its functions in as many parts as there are workers.

    Functions that follow each other, which take about the time that those of other
    parts take, are a part: they are worked on together as they are without a cluster.

    A message holds `parcel_bytes` and one function at most. The figure decides nothing
    but the number of messages; dask warns of those above ten megabytes.
    """

    parcel_bytes = 2**20

    def __init__(self, problem, n_workers):
        self.whole, self.client = problem, problem.client
        sizes = np.array([len(own) for own in problem.precisions], dtype=float)
        n_parts = min(n_workers, len(problem.blocks))
        self.members = ranges_of_equal_sums(sizes**3, n_parts)
        blank = replace(problem, blocks=[], precisions=[], client=None)
        blank = replace(blank, map_blocks=map, n_threads=1)
        working_memory = get_config()["working_memory"]
        self.parts = [
            # Each worker has one, unless it has been lost.
            self._submit(
                _part_of,
                blank,
                self._parcels(
                    [(_sent(problem.blocks[m]), problem.precisions[m]) for m in own],
                    worker,
                ),
                working_memory,
                workers=[worker],
                allow_other_workers=True,
            )
            for own, worker in zip(self.members, self.client.ncores(), strict=False)
        ]

    def _submit(self, function, *arguments, **where):
        return self.client.submit(function, *arguments, pure=False, **where)

    def _parcels(self, items, worker=None):
        """Futures of lists of the items, one for each message."""
        sizes = np.array([len(pickle.dumps(each)) for each in items])
        number = np.cumsum(sizes) // self.parcel_bytes
        where = {"workers": worker, "allow_other_workers": worker is not None}
        return [
            self._submit(list, [items[m] for m in np.flatnonzero(number == n)], **where)
            for n in np.unique(number)
        ]

    def on_parts(self, function, parts, *arguments):
        """Futures of a function of each part."""
        return [self._submit(function, each, *arguments) for each in parts]

    def gathered(self, function, parts, *arguments):
        """What a function returns for each part."""
        return self.client.gather(self.on_parts(function, parts, *arguments))

    def evaluate(self, iterate):
        """The evaluation of an iterate; one on the workers is evaluated already."""
        if isinstance(iterate, ClusterIterate):
            return iterate
        parts = [
            self._submit(
                _part_at,
                part,
                self._parcels(
                    [(iterate.coefficients[m], iterate.values[m]) for m in own]
                ),
                iterate.weights,
            )
            for part, own in zip(self.parts, self.members, strict=True)
        ]
        _, losses = zip(*self.gathered(_losses_of, parts), strict=True)
        loss = self.total(losses, iterate.weights)
        return ClusterIterate(self, parts, iterate.weights, loss)

    @staticmethod
    def total(losses, weights):
        """The loss of all parts, each of which has that of the weights."""
        return float(sum(losses) - 0.5 * (len(losses) - 1) * weights @ weights)

    def linearise(self, evaluation):
        """The problem linearised at an evaluation."""
        return ClusterModel(self, evaluation)


@dataclass
class ClusterModel:
    """The linearisation of a ClusterProblem, a model of each part on its worker.

    A step takes two rounds: the sums that the weights need are fetched from all
    workers, and the step of the weights is sent to them.
    """

    problem: ClusterProblem
    evaluation: ClusterIterate

    def step(self, damping):
        """The iterate after a step with damping mu, and the predicted decrease."""
        problem, linear_model = self.problem, self.problem.whole.linear_model
        parts, w = self.evaluation.parts, self.evaluation.weights
        scales = problem.whole.penalty + damping, 1.0 + damping
        merged = linear_model.merged(problem.gathered(_summary_of, parts, *scales))
        _, dw = linear_model.solve_for_weights(scales[1], w, merged)
        moved = problem.on_parts(_moved, parts, dw, *scales)
        losses = problem.gathered(_losses_of, moved)
        promised, reached = (
            problem.total(own, w + dw) for own in zip(*losses, strict=True)
        )
        new = ClusterIterate(problem, moved, w + dw, reached)
        return new, self.evaluation.loss - promised


@dataclass
class PartOfProblem:
    """Some of the functions, on a worker: their problem, and where their states are.

    `promised` is the loss that a linear model promised for the `evaluation`. The linear
    model there is kept, and the states that are eliminated until they are moved, but
    neither is sent: they are made again wherever the part is moved to. The worker has
    the `working_memory` of scikit-learn that the fit has elsewhere.
    """

    problem: object
    evaluation: object
    promised: float
    working_memory: int
    eliminated: dict = field(default_factory=dict, compare=False)

    @cached_property
    def model(self):
        """The problem linearised at the evaluation."""
        with config_context(working_memory=self.working_memory):
            return self.problem.linearise(self.evaluation)

    def eliminate_states(self, a, b):
        """What is kept of each function, and what the weights need."""
        if (a, b) not in self.eliminated:
            with config_context(working_memory=self.working_memory):
                self.eliminated = {(a, b): self.model.eliminate_states(a, b)}
        return self.eliminated[a, b]

    def __getstate__(self):
        kept = {name: own for name, own in vars(self).items() if name != "model"}
        return kept | {"eliminated": {}}


def _sent(block):
    """What a worker makes a block from: data and kernel, or a block in the primal."""
    if not isinstance(block, DualBlock):
        return block
    given = [getattr(block, field.name) for field in fields(Conditions)]
    return block.kernel, Conditions(*given)


def _part_of(blank, parcels, working_memory):
    """The problem of some of the functions, not evaluated anywhere."""
    keep_freed_memory()
    sent, precisions = map(list, zip(*chain.from_iterable(parcels), strict=True))
    if isinstance(sent[0], tuple):
        with config_context(working_memory=working_memory):
            sent = make_dual_blocks(*map(list, zip(*sent, strict=True)))
    problem = replace(blank, blocks=sent, precisions=precisions)
    return PartOfProblem(problem, None, np.nan, working_memory)


def _part_at(part, parcels, weights):
    """The part at an iterate."""
    coefficients, values = map(list, zip(*chain.from_iterable(parcels), strict=True))
    iterate = Iterate(coefficients, values, weights)
    return replace(part, evaluation=part.problem.evaluate(iterate))


def _losses_of(part):
    """The loss promised for where a part is, and its loss there."""
    return part.promised, part.evaluation.loss


def _iterate_of(part):
    return part.evaluation.iterate


def _summary_of(part, a, b):
    """What the weights need of the functions, whose states are eliminated."""
    return part.eliminate_states(a, b)[1]


def _moved(part, dw, a, b):
    """The part after a step."""
    kept, _ = part.eliminate_states(a, b)
    part.eliminated = {}
    new, residuals = part.model.moved(Elimination(*kept, None, dw), a, b)
    promised = float(part.problem.loss(new, residuals))
    evaluation = part.problem.evaluate(new)
    return replace(part, evaluation=evaluation, promised=promised)
