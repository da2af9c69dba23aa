"""Two experiments in one table without a label are refused; repetitions are not."""

import numpy as np
import pandas as pd
import pytest

from keql import TwoStepKEqL
from keql.kernels import RBF

T = np.linspace(0, 10, 30)
COLD, HOT = 20 - 15 * np.exp(-0.3 * T), 20 + 60 * np.exp(-0.3 * T)


def fit(t, y, **given):
    kernel = RBF(2.0, "fixed")
    return TwoStepKEqL(variables="t", state_kernel=kernel, **given).fit(t, y)


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("order", ["stacked", "by time", "shuffled"])
def test_two_experiments_at_the_same_times(order, noise):
    rng = np.random.default_rng(0)
    t, y = np.tile(T, 2), np.r_[COLD, HOT] + noise * rng.standard_normal(60)
    rows = {"stacked": np.arange(60), "shuffled": rng.permutation(60)}
    rows = rows.get(order, np.argsort(t, kind="stable"))
    with pytest.raises(ValueError, match="2 values at each of 30 places of X"):
        fit(t[rows, None], y[rows])


@pytest.mark.parametrize("direction", [1, -1])
def test_two_experiments_at_other_times(direction):
    rng = np.random.default_rng(1)
    t = np.sort(rng.uniform(0, 10, (2, 30)))[:, ::direction].ravel()
    size = np.repeat([-15.0, 60.0], 30)
    y = 20 + size * np.exp(-0.3 * t) + 0.5 * rng.standard_normal(60)
    with pytest.raises(ValueError, match="2 passes .* function_column"):
        fit(t[:, None], y)
    fit(t[:, None], y, observation_noise=20.0)
    labelled = pd.DataFrame({"t": t, "run": np.repeat(["a", "b"], 30)})
    fit(labelled, y, function_column="run")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("repeats", [2, 4])
@pytest.mark.parametrize("times", ["the same", "other"])
def test_repetitions_of_one_experiment(seed, repeats, times):
    """Errors as large as the signal or far below, and rounded values, are errors."""
    rng = np.random.default_rng(seed)
    t = np.tile(T, repeats)
    if times == "other":
        t = np.sort(rng.uniform(0, 10, (repeats, 30))).ravel()
    truth = 60 * np.exp(-0.3 * t)
    for error in (1e-6, 0.5, 30.0):
        fit(t[:, None], truth + error * rng.standard_normal(len(t)))
    fit(t[:, None], truth + 0.2 * truth * rng.standard_normal(len(t)))
    fit(t[:, None], np.round(truth / 10 + 0.5 * rng.standard_normal(len(t))))


def test_fine_and_coarse_passes_of_one_experiment():
    """What straight lines miss between few points is no contradiction."""
    for few in (12, 20):
        t = np.r_[np.linspace(0, 10, few), np.linspace(0, 10, 200)]
        fit(t[:, None], np.sin(3 * t))


def test_experiments_in_a_field():
    grid = np.stack(np.meshgrid(T[:8] / 10, T[:12] / 5, indexing="ij"), -1)
    points = np.tile(grid.reshape(-1, 2), (2, 1))
    u = np.exp(-points[:, 0]) * np.sin(points[:, 1]) * np.repeat([1.0, 2.0], 96)
    model = TwoStepKEqL(variables=("t", "x"), state_kernel=RBF([1.0, 1.0], "fixed"))
    with pytest.raises(ValueError, match="2 values at each of 96 places"):
        model.fit(points, u)


@pytest.mark.parametrize("shuffle", [False, True])
def test_three_experiments_one_of_them_twice(shuffle):
    rng = np.random.default_rng(2)
    t, y = np.tile(T, 4), np.r_[COLD, HOT, 20 + 30 * np.exp(-0.3 * T), COLD]
    y = y + 0.3 * rng.standard_normal(120)
    rows = rng.permutation(120) if shuffle else np.arange(120)
    with pytest.raises(ValueError, match="4 values at each of 30 places of X"):
        fit(t[rows, None], y[rows])
