"""Threads: of maps over functions, and of BLAS. And clusters."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache

from joblib import cpu_count, effective_n_jobs
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController


def parallel_map(n_jobs, function, items):
    """Like `map`, in threads if `n_jobs` is more than one; results in order.

    `n_jobs` is the number of threads, as in joblib; None: one. The threads share the
    cores: BLAS gets no more of its own for each of them than would fill these, and
    never more than it is allowed outside. There are several maps in each step of a fit,
    and joblib takes 30 ms to start one. A cluster has its own threads.
    """
    n_threads = n_threads_of(n_jobs)
    if n_threads == 1:
        return map(function, items)
    blas = _threadpool_controller().select(user_api="blas")
    allowed = [library.num_threads for library in blas.lib_controllers]
    limit = min([max(1, cpu_count() // n_threads), *allowed])
    with blas.limit(limits=limit), ThreadPoolExecutor(n_threads) as threads:
        return list(threads.map(function, items))


def n_threads_of(n_jobs):
    """Number of threads of a :func:`parallel_map`."""
    if n_jobs in (None, 1) or client_of_cluster(n_jobs) is not None:
        return 1
    return effective_n_jobs(n_jobs)


def client_of_cluster(n_jobs):
    """The client of the cluster that joblib's backend is, if `n_jobs` asks for one.

    None: there is no such backend, or one job is asked for.
    """
    if n_jobs in (None, 1):
        return None
    return getattr(get_active_backend()[0], "client", None)


def threads_for(size, smallest=2000):
    """A context in which BLAS has one thread if matrices are small.

    Below `smallest` rows (`size` are those of the largest matrix), threads that wait
    for each other take longer than one alone: trajectories of 25 values 20 times as
    much processor time.
    """
    if size >= smallest:
        return nullcontext()
    return _threadpool_controller().limit(limits=1, user_api="blas")


# Made once: it looks through all libraries that are loaded.
_threadpool_controller = cache(ThreadpoolController)
