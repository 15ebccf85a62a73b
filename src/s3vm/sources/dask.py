"""Rows on a Dask cluster: they stay on their workers, and only sums over them travel.

A worker holds its partitions in an actor, which keeps nothing of the run but what never changes
(`BatchGradientWorker`): every call brings the coefficients and takes back the sums. A step that a lost worker has
broken off can therefore be asked again of those that are left, once Dask has made its partitions again.
"""

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise, repeat
from typing import Any, Literal, NamedTuple

import numpy as np

from s3vm import backends, philox
from s3vm._utils.arrays import host, stack
from s3vm._utils.optional import optional
from s3vm._utils.typing import Array, Rows
from s3vm.backends import Backend, Features
from s3vm.philox import Purpose
from s3vm.solvers.tsg.batch_gradient import BatchGradient, BatchGradientWorker, Iterate

__all__ = ["FAN_OUT", "ClusterSource", "Engine", "Part", "WorkerLostError", "direct", "finished", "shared_out"]

_LOOK = 0.5  # seconds between two looks at whether workers are still there
_POLL = 0.02  # seconds between two looks at whether tasks are done
_NOTICE = 5.0  # seconds in which the scheduler notices that a connection is broken
FAN_OUT = 4  # workers that the client, or a worker, asks itself; these ask the others, so that no sum is a bottleneck
_UNEVEN = 1.1  # times its share of the rows is what a worker may hold
_MOST_LOSSES = 3  # in one iteration: rows that end every worker they are on are not carried to the next ones for ever


class WorkerLostError(RuntimeError):
    """A worker of the cluster was lost, and training cannot go on without it."""


class _GoneError(Exception):
    """A worker is no longer part of the cluster."""


class Part(NamedTuple):
    """A partition as training needs it. `moments` are the number, mean and variance of all its entries."""

    unlabelled: Rows
    labelled: Rows
    labels: Array
    moments: tuple[int, float, float]


class Engine(NamedTuple):
    """What backend a worker is to use; ``n_jobs=None`` is as many threads as it has."""

    name: str
    dtype: str
    n_jobs: int | None
    cache_bytes: int | Literal["auto"]

    def begin(self, puller: BatchGradientWorker) -> tuple[Backend, list[Features]]:
        """The backend of each thread, and its features."""
        n_jobs = optional("distributed", "dask").get_worker().state.nthreads if self.n_jobs is None else self.n_jobs
        n_threads = backends.backend(self.name, self.dtype, n_jobs).n_threads
        cache_bytes = backends.backend(self.name, self.dtype, 1, self.cache_bytes).cache_bytes
        one = backends.backend(self.name, self.dtype, 1, cache_bytes // n_threads)
        law = puller.kernel, puller.seed, puller.n_features, puller.centres.shape[1]
        return one, [one.features(*law) for _ in range(n_threads)]


class _Holder:
    """The partitions of one worker, the unlabelled rows of part i being number ``firsts[i]`` and on of all.

    It asks the holders `behind` it, too, and answers for all of them.
    """

    def __init__(self, firsts: list[int], parts: list[Part]) -> None:
        self._firsts, self._parts = firsts, [part.unlabelled for part in parts]
        self._stopped = False

    def begin(self, puller: BatchGradientWorker, n_rows: int, engine: Engine, behind: list[Any]) -> None:
        self._n_rows, self._dtype, self._behind = n_rows, engine.dtype, behind
        self._backend, self._features = engine.begin(puller)
        self._puller = puller.on(self._backend)
        self._threads = ThreadPoolExecutor(len(self._features))

    def pull(self, seed: int, stream: Purpose, steps: range, size: int, point: Iterate) -> BatchGradient:
        calls = [other.pull(seed, stream, steps, size, point) for other in self._behind]
        at = np.sort(philox.indices(seed, stream, steps, size, self._n_rows).ravel())
        mine = [
            part[at[slice(*np.searchsorted(at, [first, first + part.shape[0]]))] - first]
            for first, part in zip(self._firsts, self._parts, strict=True)
        ]
        result = self._shared(stack(mine), point)
        for call in calls:
            result = result.plus(self._answer(call))
        return result._replace(span=result.span.astype(self._dtype))

    def _shared(self, rows: Rows, point: Iterate) -> BatchGradient:
        """The sums over the rows, which the threads share."""
        bounds = np.linspace(0, rows.shape[0], len(self._features) + 1).astype(int)
        shares = [self._backend.put(rows[start:stop]) for start, stop in pairwise(bounds)]
        there = point.moved(self._backend.put)
        first, *others = self._threads.map(
            self._puller.gradient, repeat(self._backend), self._features, shares, repeat(there)
        )
        for other in others:
            first = first.plus(other)
        return BatchGradient(*map(host, first))

    def _answer(self, call: Any) -> BatchGradient:
        while not self._stopped:
            try:
                return call.result(timeout=_LOOK)
            except TimeoutError:
                continue
        raise RuntimeError("stopped")

    async def stop(self) -> None:
        """Waits no longer for others: this runs beside a `pull` that does, and keeps the worker from its next one."""
        self._stopped = True


class ClusterSource:
    """The unlabelled rows of partitions that lie on the workers of a cluster, in the order of the partitions.

    Parameters
    ----------
    client : distributed.Client
    parts : futures of `Part`
    counts : number of unlabelled rows in each
    n_dims : int
    variance : float
        Of all entries of all rows, labelled ones too.
    engine : Engine
    patience : float
        Seconds after which a worker that has not been heard of counts as lost.
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
        self._ends = np.cumsum(counts)
        self.n_rows, self.n_dims, self.variance = int(self._ends[-1]), n_dims, variance
        self._asked: BatchGradientWorker | None = None
        self._holders: dict[str, Any] = {}
        self._futures: dict[str, Any] = {}  # of the holders, which last as long as these

    def take(self, positions: Array) -> Rows:
        """The rows of those numbers, brought here."""
        of_part = np.searchsorted(self._ends, positions, side="right")
        starts = np.concatenate([[0], self._ends])
        order = np.argsort(of_part, kind="stable")
        wanted = [(part, order[of_part[order] == part]) for part in np.unique(of_part)]
        futures = [
            self._client.submit(_rows, self._parts[part], positions[at] - starts[part], pure=False)
            for part, at in wanted
        ]
        rows = stack(finished(self._client, futures, self._patience))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return rows[back]

    def batches(self, seed: int, stream: Purpose, steps: range, size: int) -> Rows:
        return self.take(philox.indices(seed, stream, steps, size, self.n_rows).ravel())

    def sample(self, seed: int, size: int) -> Rows:
        if self.n_rows <= size:
            return self.take(np.arange(self.n_rows))
        return self.batches(seed, Purpose.REFERENCE, range(1), size)

    def pull(
        self, puller: BatchGradientWorker, seed: int, stream: Purpose, steps: range, size: int, point: Iterate
    ) -> BatchGradient:
        """What `puller` makes of a batch, from the workers that have its rows; a lost one is made up for if it can be.

        Raises
        ------
        WorkerLostError
            If rows went with it that Dask cannot make again, or if it is there but silent.
        """
        lost = ""
        for _ in range(_MOST_LOSSES):
            try:
                self._place(puller)
                return self._ask((seed, stream, steps, size, point))
            except _GoneError as gone:
                lost = f"worker {gone} was lost in iteration {steps.start + 1}"
                self._let_go()
                warnings.warn(f"{lost}; the others go on once its rows have been made again", stacklevel=2)
            except WorkerLostError as error:
                raise WorkerLostError(f"{lost}: {error}" if lost else str(error)) from error
        raise WorkerLostError(
            f"{lost}, the last of {_MOST_LOSSES}. Perhaps they had too little memory, of which their logs would tell: "
            "start workers with more, or cut the rows into smaller partitions, and call fit again"
        )

    def close(self) -> None:
        """Lets go of what the workers hold for this source."""
        self._let_go()
        self._parts = []

    def _let_go(self) -> None:
        for one in self._holders.values():
            with suppress(RuntimeError):  # a lost one
                one.stop()
        self._holders, self._futures = {}, {}

    def _place(self, puller: BatchGradientWorker) -> None:
        """Has every worker hold its partitions, unless that is so already."""
        if self._holders and self._asked is puller:
            return
        client, actor = self._client, optional("distributed", "dask").Actor
        finished(client, self._parts, self._patience, gather=False)
        who_has = client.who_has(self._parts)
        threads = {name: one["nthreads"] for name, one in client.scheduler_info(n_workers=-1)["workers"].items()}
        sizes = np.diff(self._ends, prepend=0).tolist()
        mine = shared_out(sizes, [who_has.get(part.key, ()) for part in self._parts], threads)
        starts = np.concatenate([[0], self._ends]).tolist()
        self._futures = {
            address: client.submit(
                _Holder,
                [starts[i] for i in numbers],
                [self._parts[i] for i in numbers],
                actor=True,
                workers=[address],
                pure=False,
            )
            for address, numbers in mine.items()
        }
        watch = _Watch(client, self._patience)
        while any(future.status == "pending" for future in self._futures.values()):
            watch.look(mine)
            time.sleep(_POLL)
        self._holders = {address: actor(_Holder, address, future.key) for address, future in self._futures.items()}
        self._asked = puller
        everyone = list(self._holders.values())
        behind = [everyone[FAN_OUT * (i + 1) : FAN_OUT * (i + 2)] for i in range(len(everyone))]
        self._call("begin", [(puller, self.n_rows, self._engine, some) for some in behind])

    def _ask(self, question: tuple[Any, ...]) -> BatchGradient:
        first, *others = self._call("pull", [question] * min(FAN_OUT, len(self._holders)))
        result = first._replace(span=first.span.astype(np.float64))
        for other in others:
            result = result.plus(other)
        return result

    def _call(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        """What that method of the first holders answers, in the order of their rows."""
        answers, watch = [], _Watch(self._client, self._patience)
        try:
            calls = [getattr(one, method)(*each) for one, each in zip(self._holders.values(), arguments, strict=False)]
            for call in calls:
                while True:
                    try:
                        answers.append(call.result(timeout=_LOOK))
                        break
                    except TimeoutError:
                        watch.look(self._holders)
        except (KeyError, OSError, RuntimeError) as error:
            # A connection breaks before the scheduler knows why. A worker may be back already, without its holder.
            until = time.monotonic() + _NOTICE
            while time.monotonic() < until:
                watch.look(self._holders)
                for address, future in self._futures.items():
                    if future.status != "finished":
                        raise _GoneError(address) from error
                time.sleep(_POLL)
            if isinstance(error, OSError):
                raise WorkerLostError(f"{error}: call fit again once the cluster is well") from error
            raise
        return answers


def shared_out(sizes: Sequence[int], owners: Sequence[Iterable[str]], threads: dict[str, int]) -> dict[str, list[int]]:
    """Which partitions each worker is to hold: those it has, unless that is much more than its share.

    A batch takes as long as the worker with the most of it, so a partition too many is moved, once, to where the least
    is. Workers that have nothing to do are not in the result.
    """
    if not threads:
        raise _GoneError("that held a partition")
    fair = _UNEVEN * sum(sizes) / sum(threads.values())
    held, rows = dict[str, list[int]](), dict.fromkeys(sorted(threads), 0)

    def give(i: int, address: str) -> None:
        held.setdefault(address, []).append(i)
        rows[address] += sizes[i]

    left = []
    for i, those in enumerate(owners):
        able = [name for name in sorted(those) if name in rows and rows[name] + sizes[i] <= fair * threads[name]]
        if able:
            give(i, able[0])
        else:
            left.append(i)
    for i in sorted(left, key=lambda i: -sizes[i]):
        give(i, min(rows, key=lambda name: ((rows[name] + sizes[i]) / threads[name], name not in owners[i])))
    return {address: sorted(numbers) for address, numbers in sorted(held.items(), key=lambda item: min(item[1]))}


class _Watch:
    """Looks whether workers are still there, now and then."""

    def __init__(self, client: Any, patience: float) -> None:
        self._client, self._patience = client, patience
        self._heard: dict[str, tuple[float, float]] = {}
        self._last = self._last_any = time.monotonic()
        self._workers: dict[str, Any] | None = None

    def look(self, addresses: Iterable[str]) -> None:
        """Raises `_GoneError` if one of these workers has left, `WorkerLostError` if one is silent."""
        now = time.monotonic()
        for address in addresses:
            if address not in self._now():
                raise _GoneError(address)
            seen = self._now()[address]["last_seen"]
            if self._heard.setdefault(address, (seen, now))[0] != seen:
                self._heard[address] = seen, now
            if now - self._heard[address][1] > self._patience:
                raise WorkerLostError(
                    f"worker {address} has not been heard of for {self._patience:g} seconds: end it, or give a longer "
                    "patience if it may be busy, and call fit again"
                )

    def look_for_any(self) -> None:
        """Raises `WorkerLostError` if there has been no worker at all for a while."""
        if self._now():
            self._last_any = time.monotonic()
        elif time.monotonic() - self._last_any > self._patience:
            raise WorkerLostError("the cluster has no workers: start some, and call fit again")

    def _now(self) -> dict[str, Any]:
        """What the scheduler knows of its workers, asked now or a moment ago."""
        if self._workers is None or time.monotonic() - self._last > _LOOK:
            if self._client.status not in ("running", "connecting"):
                raise WorkerLostError(f"the Dask client is {self._client.status}: make a new one, and call fit again")
            self._workers = self._client.scheduler_info(n_workers=-1)["workers"]
            self._last = time.monotonic()
        return self._workers


def finished(client: Any, futures: Sequence[Any], patience: float, gather: bool = True) -> list[Any]:
    """The results of ordinary tasks, which Dask runs again if a worker is lost; a `WorkerLostError` if it cannot."""
    watch = _Watch(client, patience)
    # Dask calls what it makes again "lost" meanwhile.
    while any(future.status in ("pending", "lost") for future in futures):
        watch.look_for_any()
        time.sleep(_POLL)
    for future in futures:
        if future.status == "error":
            future.result()  # raises what happened
        if future.status != "finished":
            raise WorkerLostError(
                f"rows went with a worker that Dask cannot make again ({future.status}), since they were sent to the "
                "cluster and not made there. Read them on the workers (dask.array.from_zarr, "
                "dask.dataframe.read_parquet, ...), or send them again, and call fit again"
            )
    return client.gather(list(futures)) if gather else []


@contextmanager
def direct(client: Any) -> Iterator[None]:
    """Lets the client talk to workers without the scheduler in between for a while, if it can reach them."""
    before = client.direct_to_workers
    client.direct_to_workers = before or _reaches_workers(client)
    try:
        yield
    finally:
        client.direct_to_workers = before


def _reaches_workers(client: Any) -> bool:
    workers = list(client.scheduler_info(n_workers=-1)["workers"])

    async def reach() -> bool:
        try:
            comm = await optional("distributed", "dask").comm.connect(workers[0], timeout=2, **client.connection_args)
        except OSError:
            return False
        await comm.close()
        return True

    return bool(workers) and bool(client.sync(reach))


def _rows(part: Part, positions: Array) -> Rows:
    return part.unlabelled[positions]
