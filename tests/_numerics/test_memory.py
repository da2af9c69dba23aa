"""What is too large is refused; predictions in parts are those at once."""

import os
import platform
import subprocess
import sys
import warnings

import numpy as np
import pytest
import sklearn

from keql import OneStepKEqL
from keql._numerics.memory import MemoryBudget, in_chunks, refuse_steps
from keql.kernels import RBF, Polynomial

T = np.linspace(0, 3, 12)[:, None]
GIVEN = {
    "operators": ("u",),
    "known_part": "u_t",
    "variables": ("t",),
    "equation_kernel": Polynomial(1),
}


def test_budget():
    budget = MemoryBudget(fraction=1e-9)  # some bytes
    assert 0 < budget.bytes() < 1e4
    budget.refuse_above(1, "one number", "")
    with pytest.raises(
        ValueError, match=r"a million numbers would take 0.008 GB.*less"
    ):
        budget.refuse_above(1e6, "a million numbers", "give less.")
    refuse_steps(1e7, "ten million", "")
    with pytest.raises(ValueError, match=r"more would take 1.1e\+07 steps.*less"):
        refuse_steps(1.1e7, "more", "give less.")


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_chunks_are_the_whole(n):
    points = np.arange(2.0 * n).reshape(n, 2)
    with sklearn.config_context(working_memory=0.01):
        parts = in_chunks(points, 100)
    assert len(parts) == max(1, n)
    np.testing.assert_array_equal(np.concatenate(parts), points)
    assert len(in_chunks(points, 1)) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"state_kernel": RBF(1.0, "fixed"), "solver": "dual"},
        {"state_kernel": RBF(1.0, "fixed"), "solver": "primal"},
        {},
    ],
)
def test_predictions_in_parts(given):
    model = OneStepKEqL(**GIVEN, **given, n_restarts=0).fit(T, np.exp(-T[:, 0]))
    points = np.linspace(0, 3.2, 80)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = model.predict(points, return_std=True)
        with sklearn.config_context(working_memory=0.02):
            parts = model.predict(points, return_std=True)
    np.testing.assert_allclose(parts[0], expected[0], rtol=1e-9)
    np.testing.assert_allclose(parts[1], expected[1], rtol=1e-5, atol=1e-9)


FAULTS = """
import resource
import numpy as np
from keql._numerics.memory import keep_freed_memory


def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(50_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


print(faults(), keep_freed_memory(), faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other libraries are not asked"
)
def test_freed_memory_is_kept_where_the_environment_says_otherwise():
    told = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=os.environ | {"MALLOC_TRIM_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
        check=True,
    )
    before, agreed, after = told.stdout.split()
    # An array of 98 pages each time.
    assert agreed == "True"
    assert int(before) > 50 * 90
    assert int(after) < 500
