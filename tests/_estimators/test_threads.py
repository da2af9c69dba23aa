"""Fits are the same whatever the number of threads of the linear algebra."""

import os
import subprocess
import sys

import numpy as np
import pytest

# An equation whose states are exact, and two steps of so many observations that the
# linear algebra has all threads that it is allowed. Numbers are printed exactly.
SCRIPT = """
import numpy as np
from keql import OneStepKEqL, TwoStepKEqL
from keql.kernels import RBF, Polynomial

t = np.linspace(0, 6, 25)[:, None]
noise = 0.02 * np.random.default_rng(0).standard_normal(25)
model = OneStepKEqL(("u", "u_t"), "u_tt", variables="t", n_terms="auto")
exact = model.fit(t, np.sin(2 * t[:, 0]) + noise).equation_
print(*[float(v).hex() for v in exact.terms().values()])

X = np.random.default_rng(1).uniform(size=(2100, 2))
y = np.exp(-X[:, 0]) * np.sin(3 * X[:, 1])
model = TwoStepKEqL(("u_xx",), "u_t", variables=("t", "x"), observation_noise=1e-3)
model.set_params(state_kernel=RBF([1.0, 0.5], "fixed"), equation_noise=1e-2)
model.set_params(equation_kernel=Polynomial(1), collocation_points=300)
free = model.set_params(random_state=0).fit(X, y).equation_
print(*[float(v).hex() for v in free.terms().values()])
"""


def printed(n_threads):
    """Coefficients of both fits, in a process with so many threads."""
    threads = {"OPENBLAS_NUM_THREADS": n_threads, "OMP_NUM_THREADS": n_threads}
    threads |= {"MKL_NUM_THREADS": n_threads}
    command, given = (
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        os.environ | threads,
    )
    done = subprocess.run(
        command, env=given, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_fits_do_not_depend_on_the_number_of_threads():
    one, two, again = printed("1"), printed("2"), printed("2")
    assert two == again
    for first, second in zip(one, two, strict=True):
        numbers = [[*map(float.fromhex, text.split())] for text in (first, second)]
        np.testing.assert_allclose(*numbers, rtol=1e-6)
