"""
Choosing kernels by grid search
===============================

Kernels, noise levels and degrees are hyperparameters, and scikit-learn knows how to
choose them: by their predictions of observations that were held out.
"""

# %%
# The data
# --------
#
# A solution of Burgers' equation, :math:`u_t = u\, u_x + 0.01\, u_{xx}`, at 148 points,
# with a noise of one per cent. A model predicts the state at points that it has not
# seen, so that it has a score, and all of scikit-learn's model selection works.

import numpy as np
from joblib import parallel_config
from matplotlib import pyplot as plt
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from keql import OneStepKEqL
from keql.datasets import make_burgers
from keql.kernels import RBF, Polynomial
from keql.metrics import equation_error, relative_l2_error
from keql.model_selection import FunctionKFold

data = make_burgers(100, noise=0.01, collocation_shape=(16, 18), random_state=1)
model = OneStepKEqL(
    **data.problem,
    state_kernel=RBF((0.3, 0.1), "fixed"),
    equation_kernel=Polynomial(2),
    observation_noise=data.noise_std,
    equation_noise=0.02,
    n_terms=None,
    n_restarts=0,
    tol=1e-4,
)

# %%
# The search
# ----------
#
# Parameters of a kernel are reached through the estimator, with two underscores: the
# name of the parameter that holds the kernel, and that of the kernel's own. The state
# kernel has one length scale for time and one for space. (Left free instead of "fixed",
# they would be set by maximum likelihood, which is quicker but judges the state alone.)
#
# The state is known on the sides and at the start. These rows stay in training: what is
# asked is how well the state is predicted where one would want to know it.

in_time, in_space = (0.15, 0.3, 0.6), (0.07, 0.1, 0.15, 0.2)
search = GridSearchCV(
    model,
    {"state_kernel__length_scale": [(t, x) for t in in_time for x in in_space]},
    cv=FunctionKFold(4, always_train="border", shuffle=True, random_state=0),
    scoring="neg_root_mean_squared_error",
).fit(data.X, data.y)
print(search.best_params_)
print(search.best_estimator_.equation_)

# %%
# The search knew nothing of the truth. We do, and look at how the best model compares.

features = np.column_stack(
    [data.X_test, *(data.truth(data.X_test, name) for name in data.operators)]
)
errors = []
for params in search.cv_results_["params"]:
    fitted = model.set_params(**params).fit(data.X, data.y)
    errors.append(relative_l2_error(data.y_test, fitted.predict(data.X_test)))
best = search.best_index_
print(f"state error {errors[best]:.2%}; best of the grid {min(errors):.2%}")
P_error = equation_error(search.best_estimator_.equation_, features, data.unknown_part)
print(f"error of the learned right-hand side {P_error:.2%}")

# %%
# The report of the fit says how well the data and the equation are met, and whether the
# terms of the equation can be told apart.

print(search.best_estimator_.fit_report_)

# %%
# More cores, more machines
# -------------------------
#
# ``GridSearchCV(..., n_jobs=2)`` fits two candidates at a time. On a cluster of dask it
# is the same search in another context; here the cluster is two threads of this
# process. The result does not depend on where it was computed.

try:
    from distributed import Client, LocalCluster
except ImportError:
    print("This part needs dask: pip install 'keql[distributed]'")
else:
    threads = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    with (
        LocalCluster(**threads, dashboard_address=None) as cluster,
        Client(cluster),
        parallel_config("dask"),
    ):
        again = clone(search).fit(data.X, data.y)
    scores = [s.cv_results_["mean_test_score"] for s in (search, again)]
    print("the same on dask:", np.allclose(*scores, rtol=1e-6))

# %%
# The picture
# -----------
#
# Errors on held-out observations, which one can always compute, beside errors against
# the truth, which one cannot: they agree on where to be. Both contain the noise, the
# first in what it is measured against.

shape = (len(in_time), len(in_space))
held_out = -search.cv_results_["mean_test_score"] / np.std(data.y)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
tables = (("error on held-out observations", held_out), ("error, truth known", errors))
for ax, (title, values) in zip(axes, tables, strict=True):
    table = np.reshape(values, shape)
    ax.imshow(np.log(table), cmap="viridis_r", aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        dark = np.log(value) > np.log(table).mean()
        marked = i * shape[1] + j == best
        ax.text(
            j,
            i,
            f"{value:.1%}",
            ha="center",
            va="center",
            color="white" if dark else "black",
            weight="bold" if marked else "normal",
        )
    ax.add_patch(
        plt.Rectangle(
            (best % shape[1] - 0.47, best // shape[1] - 0.47),
            0.94,
            0.94,
            fill=False,
            ec="#D55E00",
            lw=3,
        )
    )
    ax.set(title=title, xlabel="length scale in x")
    ax.set_xticks(range(shape[1]), in_space)
    ax.set_yticks(range(shape[0]), in_time)
axes[0].set_ylabel("length scale in t")
plt.show()
