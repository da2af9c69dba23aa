"""Callbacks of scikit-learn, where the installed version has them.

They came with scikit-learn 1.9. With an earlier version the estimators have no method
``set_callbacks``, and `fit` reports its steps to nobody.
"""

from collections.abc import Callable
from typing import TypeVar

Fit = TypeVar("Fit", bound=Callable)


class SilentContext:
    """Stands in for the context that passes what happens in `fit` on to callbacks."""

    def subcontext(self, **task):
        """Return the context of a part of the fit."""
        return self

    def call_on_fit_task_begin(self, **task):
        """Ignore that the fit, or a part of it, begins."""

    def call_on_fit_task_end(self, **task):
        """Ignore that a part of the fit ends; return False, a fit goes on."""
        return False


class SilentMixin:
    """Gives an estimator a context, but no method to set callbacks."""

    def _init_callback_context(self, **task):
        return SilentContext()


class Tasks:
    """What callbacks are told of the parts of a fit: its hypotheses, and their steps.

    The number of hypotheses is known once the first one is tried, that of steps never.

    Parameters
    ----------
    context : callback context of the fit.
    given : dict. What callbacks are given of the fit: `estimator`, `X` and `y`.
    """

    def __init__(self, context, given):
        self.context, self.given = context, given
        self.hypotheses, self.numbers, self.hypothesis = None, set(), None

    def begin(self, number, n):
        """Tell that a hypothesis is tried, the `number`-th of `n`."""
        if number in self.numbers:
            return
        if self.hypotheses is None:
            names = {"task_name": "hypotheses", "max_subtasks": n}
            self.hypotheses = self._begin(self.context, **names)
        self._end(self.hypothesis)
        self.hypothesis = self._begin(self.hypotheses, task_name="hypothesis")
        self.numbers.add(number)

    def step(self, attributes):
        """Tell of a step; whether a callback asks to stop.

        `attributes` returns those of the model after it.
        """
        step = self._begin(self.context, task_name="step")
        how = self.given | {"reconstruction_attributes": attributes}
        return step.call_on_fit_task_end(**how)

    def end(self):
        """Tell that no other hypothesis is tried."""
        self._end(self.hypothesis)
        self._end(self.hypotheses)

    def _begin(self, context, **names):
        task = context.subcontext(**names)
        task.call_on_fit_task_begin(**self.given)
        return task

    def _end(self, task):
        if task is not None:
            task.call_on_fit_task_end(**self.given)


def unchanged(fit):
    """Return the method `fit`: there are no callbacks to end after it."""
    return fit


try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as managed
except ModuleNotFoundError:
    CallbackSupportMixin, managed = SilentMixin, unchanged


def with_callbacks(fit: Fit) -> Fit:
    """Return the method `fit` with callbacks that end after it; its type is kept."""
    return managed(fit)
