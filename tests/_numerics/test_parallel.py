"""Threads of BLAS."""

import pytest
from threadpoolctl import threadpool_info

from keql._numerics.parallel import threads_for


@pytest.mark.parametrize("size, is_limited", [(100, True), (2000, False)])
def test_small_matrices_have_one_thread(size, is_limited):
    before = threads_of_blas()
    with threads_for(size):
        inside = threads_of_blas()
    assert inside == ([1] * len(before) if is_limited else before)
    assert threads_of_blas() == before


def threads_of_blas():
    return [pool["num_threads"] for pool in threadpool_info() if is_blas(pool)]


def is_blas(pool):
    return pool["user_api"] == "blas"
