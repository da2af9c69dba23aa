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
