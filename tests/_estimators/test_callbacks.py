"""A fit where scikit-learn has no callbacks yet."""

import importlib.util

import numpy as np
import pytest
from task_recorder import TaskRecorder

from keql import OneStepKEqL
from keql._estimators import callbacks
from keql.kernels import RBF, Polynomial

T = np.linspace(0, 6, 25)[:, None]
SETTINGS = {
    "operators": ("u",),
    "known_part": "u_tt",
    "variables": ("t",),
    "state_kernel": RBF(1.0, "fixed"),
    "equation_kernel": Polynomial(1),
    "observation_noise": 1e-4,
    "equation_noise": 1e-3,
}


class Silent(OneStepKEqL):
    """The estimator as it is with an earlier version of scikit-learn."""

    _init_callback_context = callbacks.SilentMixin._init_callback_context


def test_a_fit_that_reports_to_nobody_is_the_same():
    y = np.sin(2 * T.ravel())
    silent, usual = (model(**SETTINGS).fit(T, y) for model in (Silent, OneStepKEqL))
    assert silent.converged_ and silent.n_iter_ == usual.n_iter_ > 1
    np.testing.assert_array_equal(silent.predict(T), usual.predict(T))
    assert silent.equation_.terms() == usual.equation_.terms()


def test_callbacks_can_be_set_where_scikit_learn_has_them():
    known = importlib.util.find_spec("sklearn.callback") is not None
    assert hasattr(callbacks.CallbackSupportMixin, "set_callbacks") is known
    assert (callbacks.managed is callbacks.unchanged) is not known


def test_hypotheses_are_tasks_of_a_known_number():
    """Of which a bar can say how many are left."""
    callback = pytest.importorskip("sklearn.callback", reason="not before 1.9")
    recorder, monitor = TaskRecorder(), callback.ScoringMonitor(scoring="r2")
    model = OneStepKEqL("u", "u_tt", variables="t", n_terms=1)
    model.set_callbacks(recorder, monitor).fit(T, np.sin(2 * T.ravel()))
    others = [task for task in recorder.tasks if task[1] != "step"]
    first, second, *within, last, end = others
    assert first == ("begin", "fit", None) and end == ("end", "fit", None)
    assert second[:2] == ("begin", "hypotheses") and last[:2] == ("end", "hypotheses")
    assert 1 <= len(within) / 2 <= second[2] == last[2]
    assert within == [("begin", "hypothesis", 0), ("end", "hypothesis", 0)] * (
        len(within) // 2
    )
    assert ("end", "step", 0) in recorder.tasks
