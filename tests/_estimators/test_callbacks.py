"""A fit where scikit-learn has no callbacks yet."""

import importlib.util

import numpy as np

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
    assert (callbacks.with_callbacks is callbacks.unchanged) is not known
