"""The joint problem of an estimator, as its fit assembles it."""

from keql.model_selection._fit import Context, JointFamily


def context_of(model):
    """How an estimator solves problems; it reports nothing."""
    return Context(model._settings, lambda *_: False)


def solve_jointly(model, two_step):
    """The joint problem of a two-step solution, and its start."""
    family = JointFamily(two_step, model._hypothesis, context_of(model))
    return family.problem_of(two_step)
