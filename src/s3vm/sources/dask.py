"""Rows on a Dask cluster: they stay on their workers, and only sums over them travel.

A worker holds its partitions in an actor, which keeps nothing of the run but what never changes
(`BatchGradientWorker`): every call brings the coefficients and returns the sums. A step that fails with a lost worker
can therefore be repeated by the remaining ones, once Dask has recomputed its partitions.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial, reduce
from itertools import pairwise, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from s3vm import backends, philox
from s3vm._utils.arrays import host, moments_of, project, stack
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array, Rows
from s3vm._utils.warn import warn
from s3vm.backends import Backend, Features
from s3vm.philox import Purpose

if TYPE_CHECKING:
    from s3vm.solvers.tsg.batch_gradient import BatchGradient, BatchGradientWorker, Iterate

_HEARTBEAT = 0.5  # seconds between two checks of whether workers are alive
_POLL = 0.02  # seconds between two checks of whether tasks are done
_NOTICE = 5.0  # seconds in which the scheduler notices that a connection is broken
FAN_OUT = 4  # workers that the client, or a worker, calls itself; these call the others, so that no sum is a bottleneck
_UNEVEN = 1.1  # times its share of the rows is what a worker may hold
_MAX_LOSSES = 3  # in one iteration: rows that end every worker they are on must not end all of them


class WorkerLostError(RuntimeError):
    """A worker of the cluster was lost, and training cannot continue without it."""


class _WorkerGoneError(Exception):
    """A worker is no longer part of the cluster."""


class Part(NamedTuple):
    """A partition as training needs it. `moments` are its number of rows, and the mean and variance of its entries."""

    unlabeled: Rows
    labeled: Rows
    labels: Array
    moments: tuple[int, float, float]

    def on(self, directions: Array) -> "Part":
        """The part with its rows projected."""
        unlabeled, labeled = project(self.unlabeled, directions), project(self.labeled, directions)
        return Part(unlabeled, labeled, self.labels, moments_of(stack([unlabeled, labeled])))


def variance_from(moments: Iterable[tuple[int, float, float]]) -> float:
    """The variance of the entries of all parts, which have the same number of columns."""
    n_rows, means, variances = np.array(list(moments)).T
    mean = n_rows @ means / n_rows.sum()
    return float(n_rows @ (variances + (means - mean) ** 2) / n_rows.sum())


class Engine(NamedTuple):
    """The backend of each worker; ``n_jobs=None`` means as many threads as it has."""

    name: str
    dtype: str
    n_jobs: int | None
    cache_bytes: int | Literal["auto"]

    def begin(self, gradient: "BatchGradientWorker") -> tuple[Backend, list[Features]]:
        """The backend of a thread, and the features of each thread."""
        n_jobs = optional("distributed", "dask").get_worker().state.nthreads if self.n_jobs is None else self.n_jobs
        n_threads = backends.backend(self.name, self.dtype, n_jobs).n_threads
        cache_bytes = backends.backend(self.name, self.dtype, 1, self.cache_bytes).cache_bytes
        backend = backends.backend(self.name, self.dtype, 1, cache_bytes // n_threads)
        law = gradient.kernel, gradient.seed, gradient.n_features, gradient.centers.shape[1]
        return backend, [backend.features(*law) for _ in range(n_threads)]


class _Holder:
    """The partitions of one worker; the first unlabelled row of part i has number ``firsts[i]`` of all.

    It also calls the holders `behind` it, and returns the sums of all of them.
    """

    def __init__(self, firsts: list[int], parts: list[Part]) -> None:
        self._firsts, self._parts = firsts, [part.unlabeled for part in parts]
        self._stopped = False

    def begin(self, gradient: "BatchGradientWorker", n_rows: int, engine: Engine, behind: list[Any]) -> None:
        self._n_rows, self._dtype, self._behind = n_rows, engine.dtype, behind
        self._backend, self._features = engine.begin(gradient)
        self._gradient = gradient.on(self._backend)
        self._threads = ThreadPoolExecutor(len(self._features))

    def pull(self, seed: int, stream: Purpose, steps: range, size: int, iterate: "Iterate") -> "BatchGradient":
        calls = [other.pull(seed, stream, steps, size, iterate) for other in self._behind]
        at = np.sort(philox.indices(seed, stream, steps, size, self._n_rows).ravel())
        own = [
            part[at[slice(*np.searchsorted(at, [first, first + part.shape[0]]))] - first]
            for first, part in zip(self._firsts, self._parts, strict=True)
        ]
        total = _added([self._sums(stack(own), iterate), *(_result(call, self._check) for call in calls)])
        return total._replace(span=total.span.astype(self._dtype))

    def _sums(self, rows: Rows, iterate: "Iterate") -> "BatchGradient":
        """The sums over the rows, which are divided among the threads."""
        bounds = np.linspace(0, rows.shape[0], len(self._features) + 1).astype(int)
        shares = [self._backend.put(rows[start:stop]) for start, stop in pairwise(bounds)]
        there = iterate.moved(self._backend.put)
        gradients = self._threads.map(
            self._gradient.gradient, repeat(self._backend), self._features, shares, repeat(there)
        )
        return _added(gradients).moved(host)

    def _check(self) -> None:
        if self._stopped:
            raise RuntimeError("stopped")

    async def stop(self) -> None:
        """Ends a `pull` that waits for other workers, at the same time, so that this one can begin the next."""
        self._stopped = True


class ClusterSource:
    """The unlabelled rows of partitions that lie on the workers of a cluster, in the order of the partitions.

    `parts` are futures of `Part`, `counts` their numbers of unlabelled rows, and `variance` is that of all entries of
    all rows, labelled or not. A worker that is silent for `patience` seconds counts as lost.
    """

    def __init__(
        self,
        client: Any,
        parts: Sequence[Any],
        counts: Sequence[int],
        n_dims: int,
        variance: float,
        engine: Engine,
        patience: float,
    ) -> None:
        self._client, self._parts, self._engine, self._patience = client, list(parts), engine, patience
        self._counts, self._starts = list(counts), np.cumsum([0, *counts])
        self.n_rows, self.n_dims, self.variance = int(self._starts[-1]), n_dims, variance
        self._gradient: BatchGradientWorker | None = None
        self._holders: dict[str, Any] = {}
        self._futures: dict[str, Any] = {}  # of the holders, which live as long as these

    def take(self, positions: Array) -> Rows:
        """The rows of these numbers, fetched from the workers."""
        of_part = np.searchsorted(self._starts[1:], positions, side="right")
        order = np.argsort(of_part, kind="stable")
        wanted = [(part, order[of_part[order] == part]) for part in np.unique(of_part)]
        futures = [
            self._client.submit(_rows, self._parts[part], positions[at] - self._starts[part], pure=False)
            for part, at in wanted
        ]
        return stack(finished(self._client, futures, self._patience))[np.argsort(order)]

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        return self.take(philox.indices(seed, stream, steps, size, self.n_rows).ravel())

    def sample(self, seed: int, size: int) -> Rows:
        return self.take(philox.distinct(seed, Purpose.REFERENCE, 0, size, self.n_rows))

    def pull(
        self, worker: "BatchGradientWorker", seed: int, stream: Purpose, steps: range, size: int, iterate: "Iterate"
    ) -> "BatchGradient":
        """What `worker` computes from a batch, wherever its rows are. If a worker is lost, others replace it.

        Raises a `WorkerLostError` if Dask cannot recompute the rows of the lost worker, or if a worker is silent.
        """
        lost = ""
        for _ in range(_MAX_LOSSES):
            try:
                self._place(worker)
                return self._sum((seed, stream, steps, size, iterate))
            except _WorkerGoneError as gone:
                lost = f"worker {gone} was lost in iteration {steps.start + 1}"
                self._release()
                warn(f"{lost}; the others continue once its rows have been recomputed")
            except WorkerLostError as error:
                raise WorkerLostError(f"{lost}: {error}" if lost else str(error)) from error
        raise WorkerLostError(
            f"{lost}, the last of {_MAX_LOSSES}. They may have run out of memory; see the worker logs. Start workers "
            "with more memory, or cut the rows into smaller partitions, and call fit again"
        )

    def project(self, directions: Array) -> None:
        """Maps the rows where they are; only the projected ones stay there."""
        self._parts = self._client.map(Part.on, self._parts, directions=directions, pure=False)
        moments = self._client.map(attrgetter("moments"), self._parts, pure=False)
        self.n_dims = int(directions.shape[1])
        self.variance = variance_from(finished(self._client, moments, self._patience))

    def close(self) -> None:
        """Releases what the workers hold for this source."""
        self._release()
        self._parts = []

    def _release(self) -> None:
        for holder in self._holders.values():
            with suppress(RuntimeError):  # of a lost worker
                holder.stop()
        self._holders, self._futures = {}, {}

    def _place(self, gradient: "BatchGradientWorker") -> None:
        """Makes every worker hold its partitions, unless it does already."""
        if self._holders and self._gradient is gradient:
            return
        client, actor = self._client, optional("distributed", "dask").Actor
        finished(client, self._parts, self._patience, gather=False)
        who_has = client.who_has(self._parts)
        threads = {name: info["nthreads"] for name, info in _workers_of(client).items()}
        shares = assign_partitions(self._counts, [who_has.get(part.key, ()) for part in self._parts], threads)

        def hold(address: str, numbers: list[int]) -> Any:
            arguments = self._starts[numbers].tolist(), [self._parts[i] for i in numbers]
            return client.submit(_Holder, *arguments, actor=True, workers=[address], pure=False)

        self._futures = {address: hold(address, numbers) for address, numbers in shares.items()}
        watch = _Watch(client, self._patience)
        while any(future.status == "pending" for future in self._futures.values()):
            watch.check(shares)
            time.sleep(_POLL)
        self._holders = {address: actor(_Holder, address, future.key) for address, future in self._futures.items()}
        self._gradient = gradient
        holders = list(self._holders.values())
        behind = [holders[FAN_OUT * (i + 1) : FAN_OUT * (i + 2)] for i in range(len(holders))]
        self._call("begin", [(gradient, self.n_rows, self._engine, others) for others in behind])

    def _sum(self, batch: tuple[Any, ...]) -> "BatchGradient":
        """The sums over a batch, those of the first holders added in their order."""
        first, *others = self._call("pull", [batch] * min(FAN_OUT, len(self._holders)))
        return _added([first._replace(span=first.span.astype(np.float64)), *others])

    def _call(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """The results of that method of the first holders, in the order of their rows."""
        watch = _Watch(self._client, self._patience)
        try:
            holders = zip(self._holders.values(), arguments, strict=False)
            calls = [getattr(holder, method)(*its_arguments) for holder, its_arguments in holders]
            return [_result(call, partial(watch.check, self._holders)) for call in calls]
        except (KeyError, OSError, RuntimeError) as error:
            # A connection breaks before the scheduler knows why. The worker may have restarted, without its holder.
            until = time.monotonic() + _NOTICE
            while time.monotonic() < until:
                watch.check(self._holders)
                for address, future in self._futures.items():
                    if future.status != "finished":
                        raise _WorkerGoneError(address) from error
                time.sleep(_POLL)
            if isinstance(error, OSError):
                raise WorkerLostError(f"{error}: call fit again once the cluster works") from error
            raise


def _result(call: Any, check: Callable[[], None]) -> Any:
    """The result of a call of an actor; `check` looks now and then whether to wait any longer."""
    while True:
        try:
            return call.result(timeout=_HEARTBEAT)
        except TimeoutError:
            check()


def assign_partitions(
    sizes: Sequence[int], owners: Sequence[Iterable[str]], threads: dict[str, int]
) -> dict[str, list[int]]:
    """The partitions that each worker is to hold: those it has, unless that is much more than its share.

    A batch takes as long as the worker with most of its rows, so surplus partitions are moved, once, to the worker with
    the fewest rows. Workers without partitions are not in the result.
    """
    if not threads:
        raise _WorkerGoneError("that held a partition")
    fair = _UNEVEN * sum(sizes) / sum(threads.values())
    held, rows = dict[str, list[int]](), dict.fromkeys(sorted(threads), 0)

    def give(i: int, address: str) -> None:
        held.setdefault(address, []).append(i)
        rows[address] += sizes[i]

    surplus = []
    for i, names in enumerate(owners):
        able = [name for name in sorted(names) if name in rows and rows[name] + sizes[i] <= fair * threads[name]]
        if able:
            give(i, able[0])
        else:
            surplus.append(i)
    for i in sorted(surplus, key=lambda i: -sizes[i]):
        give(i, min(rows, key=lambda name: ((rows[name] + sizes[i]) / threads[name], name not in owners[i])))
    return {address: sorted(numbers) for address, numbers in sorted(held.items(), key=lambda item: min(item[1]))}


class _Watch:
    """Checks now and then whether workers are alive."""

    def __init__(self, client: Any, patience: float) -> None:
        self._client, self._patience = client, patience
        self._heard: dict[str, tuple[float, float]] = {}
        self._asked = self._last_any = time.monotonic()
        self._workers: dict[str, Any] | None = None

    def check(self, addresses: Iterable[str]) -> None:
        """Raises `_WorkerGoneError` if one of these workers has left, `WorkerLostError` if one is silent."""
        now = time.monotonic()
        for address in addresses:
            if address not in self._now():
                raise _WorkerGoneError(address)
            last_seen = self._now()[address]["last_seen"]
            if self._heard.setdefault(address, (last_seen, now))[0] != last_seen:
                self._heard[address] = last_seen, now
            if now - self._heard[address][1] > self._patience:
                raise WorkerLostError(
                    f"worker {address} has been silent for {self._patience:g} seconds: stop it, or set a longer "
                    "patience if it may be busy, and call fit again"
                )

    def check_any(self) -> None:
        """Raises `WorkerLostError` if there has been no worker at all for a while."""
        if self._now():
            self._last_any = time.monotonic()
        elif time.monotonic() - self._last_any > self._patience:
            raise WorkerLostError("the cluster has no workers: start some, and call fit again")

    def _now(self) -> dict[str, Any]:
        """What the scheduler knows of its workers, now or a moment ago."""
        if self._workers is None or time.monotonic() - self._asked > _HEARTBEAT:
            self._workers = _workers_of(self._client)
            self._asked = time.monotonic()
        return self._workers


def finished(client: Any, futures: Sequence[Any], patience: float, gather: bool = True) -> list[Any]:
    """The results of ordinary tasks, which Dask repeats if a worker is lost; a `WorkerLostError` if it cannot."""
    watch = _Watch(client, patience)
    # A task that Dask repeats is "lost" meanwhile.
    while any(future.status in ("pending", "lost") for future in futures):
        watch.check_any()
        time.sleep(_POLL)
    for future in futures:
        if future.status == "error":
            future.result()  # raises what happened
        if future.status != "finished":
            raise WorkerLostError(
                f"a worker was lost with rows that Dask cannot recompute ({future.status}), since they were sent to "
                "it: read them on the workers (dask.dataframe.read_parquet, ...) or send them again, and call fit again"
            )
    return client.gather(list(futures)) if gather else []


@contextmanager
def direct(client: Any) -> Iterator[None]:
    """Lets the client talk to workers directly, not through the scheduler, if it can reach them."""
    before = client.direct_to_workers
    client.direct_to_workers = before or _reaches_workers(client)
    try:
        yield
    finally:
        client.direct_to_workers = before


def _workers_of(client: Any) -> dict[str, Any]:
    """What the scheduler knows of its workers."""
    if client.status not in ("running", "connecting"):
        raise WorkerLostError(f"the Dask client is {client.status}: create a new one, and call fit again")
    return dict(client.scheduler_info(n_workers=-1)["workers"])


def _reaches_workers(client: Any) -> bool:
    workers = list(_workers_of(client))

    async def reach() -> bool:
        try:
            comm = await optional("distributed", "dask").comm.connect(workers[0], timeout=2, **client.connection_args)
        except OSError:
            return False
        await comm.close()
        return True

    return bool(workers) and bool(client.sync(reach))


def _added(sums: "Iterable[BatchGradient]") -> "BatchGradient":
    return reduce(lambda total, more: total.plus(more), sums)


def _rows(part: Part, positions: Array) -> Rows:
    return part.unlabeled[positions]
