"""The functions of a joint problem on the workers of a cluster of dask."""

import os
import pickle
import signal
from functools import partial

import joblib
import numpy as np
import pytest
from sklearn import config_context

from keql import OneStepKEqL
from keql._joint.cluster import ClusterProblem, PartOfProblem, minimise_joint
from keql._joint.problem import ranges_of_equal_sums
from keql._numerics.optimisation import Damping
from keql.kernels import RBF, Polynomial
from keql.model_selection._fit import Context, JointFamily

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

T = np.linspace(0, 4, 9)
STARTS = (0.1, 0.3, 0.6, 1.4, 1.9)
X = np.array([(t, m) for m in range(len(STARTS)) for t in T])
Y = np.concatenate([1 / (1 + (1 / u - 1) * np.exp(-T)) for u in STARTS])


def model(solver, **settings):
    """Logistic growth from five starts."""
    return OneStepKEqL(
        operators=("u",),
        known_part="u_t",
        variables=("t",),
        function_column=1,
        collocation_points=40,
        state_kernel=RBF(1.0, "fixed"),
        equation_kernel=Polynomial(2),
        observation_noise=1e-3,
        equation_noise=1e-3,
        solver=solver,
        **settings,
    )


def problem_of(solver):
    """The joint problem, and its start."""
    learner = model(solver)
    two_step = learner._learn_in_two_steps(X, Y, None)
    context = Context(learner._settings, lambda *_: False)
    return JointFamily(two_step, learner._hypothesis, context).problem_of(two_step)


@pytest.fixture(scope="module")
def client():
    """Of two workers, threads of this process."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(processes=False, **settings) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("solver", ["dual", "primal"])
def test_workers_find_the_same_solution_and_send_sums_only(solver, client, monkeypatch):
    problem, start = problem_of(solver)
    given = {"max_iter": 30, "report": lambda result: told.append(result.loss)}
    told = []
    alone = minimise_joint(problem, start, Damping(1e3, 1e-8), **given)
    alone_told, told, sizes = told, [], []

    def watched(futures):
        found = gather(futures)
        sizes.extend(len(pickle.dumps(each)) for each in found)
        return found

    gather = client.gather
    monkeypatch.setattr(client, "gather", watched)
    problem.client = client
    result = minimise_joint(problem, start, Damping(1e3, 1e-8), **given)
    assert result.converged and result.n_iter == alone.n_iter > 3
    np.testing.assert_allclose(told, alone_told, rtol=1e-9)
    ours, theirs = result.solution, alone.solution
    np.testing.assert_allclose(ours.weights, theirs.weights, rtol=1e-7, atol=1e-9)
    for one, other in zip(ours.values, theirs.values, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)
    # Two for each step and part; in the end the states.
    p = len(start.weights)
    assert len(sizes) == 2 * (2 * result.n_iter + 2)
    assert max(sizes[:-2]) < 8 * p * (p + 1) + 600


def test_no_message_holds_all_functions(client, monkeypatch):
    """Dask warns of large messages, and a warning is an error here."""
    problem, start = problem_of("dual")
    alone = problem.evaluate(start)
    problem.client = client
    # More than a message with one of the functions, and less than one with three.
    threshold = {"distributed.admin.large-graph-warning-threshold": "3kB"}
    with dask.config.set(threshold):
        monkeypatch.setattr(ClusterProblem, "parcel_bytes", 1)
        evaluation = ClusterProblem(problem, 2).evaluate(start)
        monkeypatch.undo()
        with pytest.warns(UserWarning, match="large graph"):
            ClusterProblem(problem, 2).evaluate(start)
    assert evaluation.loss == pytest.approx(alone.loss, rel=1e-12)
    for ours, theirs in zip(evaluation.values, start.values, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_estimator_takes_the_workers_if_jobs_are_asked_for(client, monkeypatch):
    made = []

    class Spy(ClusterProblem):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr("keql._joint.cluster.ClusterProblem", Spy)
    make = partial(model, "auto", n_terms=None)
    alone = make().fit(X, Y)
    with joblib.parallel_config("dask", client=client):
        make().fit(X, Y)
        assert not made
        fitted = make(n_jobs=2).fit(X, Y)
    assert [len(own) for own in made[0].members] == [2, 3]
    np.testing.assert_allclose(fitted.predict(X), alone.predict(X), rtol=1e-10)
    assert fitted.equation_.terms() == pytest.approx(
        alone.equation_.terms(), rel=1e-7, abs=1e-9
    )


def test_a_part_keeps_its_model_but_does_not_send_it():
    problem, start = problem_of("dual")
    evaluation = problem.evaluate(start)
    part = PartOfProblem(problem, evaluation, np.nan, working_memory=1024)
    size = len(pickle.dumps(part))
    assert part.model is part.model
    eliminated = part.eliminate_states(11.0, 11.0)
    assert part.eliminate_states(11.0, 11.0) is eliminated
    assert part.eliminate_states(3.0, 3.0) is not eliminated
    assert len(pickle.dumps(part)) == size
    moved = pickle.loads(pickle.dumps(part))
    steps = [each.model.step(10.0) for each in (part, moved)]
    np.testing.assert_array_equal(steps[0][0].weights, steps[1][0].weights)


def test_workers_have_the_working_memory_of_the_fit(client):
    problem, start = problem_of("dual")
    problem.client = client
    with config_context(working_memory=0):
        parts = ClusterProblem(problem, 2).evaluate(start).parts
    for part in parts:
        assert client.submit(_keeps_factors, part, pure=False).result() is False


def _keeps_factors(part):
    return part.model.keeps_factors


@pytest.mark.parametrize(
    "costs, n_ranges, sizes",
    [
        ([1.0] * 12, 4, [3, 3, 3, 3]),
        ([1.0] * 3, 3, [1, 1, 1]),
        ([9.0, 1.0, 1.0, 1.0], 2, [1, 3]),
        ([1.0, 1.0, 1.0, 9.0], 3, [2, 1, 1]),
        ([100.0, 1.0, 1.0], 3, [1, 1, 1]),
        ([1.0, 1.0, 100.0], 3, [1, 1, 1]),
    ],
)
def test_ranges_of_equal_sums(costs, n_ranges, sizes):
    ranges = ranges_of_equal_sums(np.array(costs), n_ranges)
    assert [len(own) for own in ranges] == sizes
    assert [m for own in ranges for m in own] == list(range(len(costs)))


@pytest.mark.slow
def test_what_a_worker_had_is_computed_again():
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    problem, start = problem_of("dual")
    alone = minimise_joint(problem, start, Damping(1e3, 1e-8), max_iter=30)
    with (
        distributed.LocalCluster(processes=True, **settings) as cluster,
        distributed.Client(cluster) as client,
    ):
        first = next(iter(client.run(os.getpid).values()))
        problem.client, steps = client, []

        def kill_once(result):
            steps.append(result.loss)
            if len(steps) == 2:
                os.kill(first, signal.SIGKILL)

        given = {"max_iter": 30, "report": kill_once}
        result = minimise_joint(problem, start, Damping(1e3, 1e-8), **given)
    assert len(steps) > 3
    np.testing.assert_allclose(result.loss, alone.loss, rtol=1e-9)
