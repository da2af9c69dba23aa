"""The estimators in scikit-learn's searches, scored by the errors of keql.metrics."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, KFold

from keql import IdentifiabilityWarning, TwoStepKEqL
from keql.kernels import RBF, Polynomial
from keql.metrics import filtering_error, filtering_scorer, make_equation_scorer

# Two solutions of u_tt = -4 u, row by row in turn.
T = np.repeat(np.linspace(0, 6, 40), 2)
RUNS = np.tile(["first", "second"], 40)
U = np.where(RUNS == "first", np.sin(2 * T), 2 * np.cos(2 * T + 0.3))
FEATURES = np.column_stack([np.linspace(0, 5, 30), np.linspace(-1, 1, 30)])


@pytest.mark.parametrize("column", ["run", 1])
def test_search_over_several_functions(column):
    model = TwoStepKEqL(
        operators=("u",),
        known_part="u_tt",
        variables=("t",),
        function_column=column,
        state_kernel=RBF(1.0, "fixed"),
        equation_kernel=Polynomial(1),
        observation_noise=1e-4,
        equation_noise=1e-3,
    )
    scoring = {
        "state": filtering_scorer,
        # The unknown part of u_tt + P(u) = 0.
        "equation": make_equation_scorer(FEATURES, 4 * FEATURES[:, 1]),
    }
    search = GridSearchCV(
        model,
        {"state_kernel__length_scale": [0.01, 1.0]},
        scoring=scoring,
        refit="state",
        cv=KFold(4, shuffle=True, random_state=0),
        error_score="raise",
    )
    with pytest.warns(IdentifiabilityWarning, match="derivatives are poorly known"):
        search.fit(pd.DataFrame({"t": T, "run": RUNS}), U)  # with the short scale
    assert search.best_params_ == {"state_kernel__length_scale": 1.0}
    scores = search.cv_results_["mean_test_equation"]
    assert scores[0] < -0.5 and scores[1] > -0.02
    new = pd.DataFrame({"t": T + 0.05, "run": RUNS}).iloc[:-4]
    truth = np.where(RUNS == "first", np.sin(2 * T + 0.1), 2 * np.cos(2 * T + 0.4))[:-4]
    assert filtering_error(search, new, truth) < 1e-3
