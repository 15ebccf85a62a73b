"""Whether a run that does not fit into memory is refused before it begins, with what to do."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from s3vm import S3VMClassifier
from s3vm._utils import machine as _machine
from s3vm._utils.input_checks import warn_of_spreads
from s3vm.backends import backend, numpy_base
from s3vm.kernels import RBF
from s3vm.solvers import SOLVERS
from s3vm.sources import ArraySource
from s3vm.training import memory_check as memory
from toy import make_problem

ENGINE = backend("cpu", "float32", cache_bytes=256 << 20)


def large(n_rows, rows=None):
    """A problem of that many rows, which are not there: a stride of 0 shows one row many times."""
    one = np.zeros((1, 5), dtype=np.float32)
    rows = np.broadcast_to(one, (n_rows, 5)) if rows is None else rows
    return replace(make_problem(RBF(0.7), "hat", "float32"), unlabeled=ArraySource(rows))


def test_machine_memory_is_that_of_the_machine():
    assert 2**28 < _machine.machine_memory() < 2**46


@pytest.mark.parametrize("limit", ["max", "123456789"])
def test_a_container_may_have_less(tmp_path, monkeypatch, limit):
    (tmp_path / "memory.max").write_text(limit + "\n")
    monkeypatch.setattr(_machine, "_LIMITS", (str(tmp_path / "memory.max"), str(tmp_path / "none")))
    assert (_machine.machine_memory() == 123456789) == (limit != "max")


@pytest.mark.parametrize("name", ["newton", "incremental"])
def test_what_does_not_fit_is_refused_with_advice(name):
    problem = large(10_000_000)
    with pytest.raises(MemoryError, match=r'needs about .* GiB for 10,000,006 rows, .*use solver="tsg", which needs'):
        memory.check_memory(SOLVERS[name](), problem, ENGINE)
    memory.check_memory(SOLVERS["tsg"](), problem, ENGINE)


@pytest.mark.parametrize(("more", "advice"), [(-1, "use fewer rows"), (1, "use a smaller cache_bytes")])
def test_advice_where_the_memory_is_that_of_a_device(monkeypatch, more, advice):
    """The cache is to be smaller only where that helps."""
    engine, solver = backend("cpu", "float32", cache_bytes=1 << 40), SOLVERS["tsg"](span="features")
    there = solver.memory(large(10_000), backend("cpu", "float32", cache_bytes=0)) + more
    monkeypatch.setattr(engine, "memory", lambda: there)
    monkeypatch.setattr(engine, "used", lambda: "at most 1 GiB on the GPU")
    with pytest.raises(MemoryError, match=f'{advice}, or backend="cpu"'):
        memory.check_memory(solver, large(10_000), engine)


def test_the_estimator_asks_first(monkeypatch):
    monkeypatch.setattr(numpy_base, "machine_memory", lambda: 1000)
    X, some = np.random.default_rng(0).normal(size=(50, 2)), np.array([0, 1] * 5 + [-1] * 40)
    with pytest.raises(MemoryError, match=r"CCCP needs about .*, but only .* is available: use fewer rows"):
        S3VMClassifier("cccp").fit(X, some)


@pytest.mark.parametrize("name", SOLVERS)
def test_estimates_grow_with_the_rows_and_know_sparse_ones(name):
    solver = SOLVERS[name]()
    few, many = (solver.memory(large(n), ENGINE) for n in (1000, 100_000))
    assert few < many or name in ("frs", "tsg")  # which keep random features in place of rows
    wide = sparse.csr_array((20_000, 100_000), dtype=np.float32)
    problem = replace(large(0, wide), labeled=sparse.csr_array((6, 100_000), dtype=np.float32))
    assert solver.memory(problem, ENGINE) < 8 << 30


def test_scales_are_judged_by_some_rows():
    X = np.ones((400_000, 8), dtype=np.float32)
    tracemalloc.start()
    try:
        warn_of_spreads(X)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 4, "there is no copy of all rows"
