"""Lots done by the workers of a Dask cluster, on as many machines as it has."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dftrace_ai._version import __version__
from dftrace_ai.analysis.executors.lots import Failed
from dftrace_ai.errors import ConfigError, DftraceError, missing_package
from dftrace_ai.spare_folders import SpareFolder
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from typing_extensions import Self

    from dftrace_ai.analysis.executors.lots import Lot

    Says: TypeAlias = Callable[[str], None]

ADDRESS: Final = re.compile(r"local:[1-9]\d{0,3}|\w+://[^/\s]+:\d+/?")
LOCAL: Final = "local:"
"""Before a number of workers: a cluster on this machine, which ends with the command."""

ANSWER_S: Final = 15.0
# After so long without a worker nobody comes any more; one that died is replaced by then.
GONE_S: Final = 60.0
LOOK_S: Final = 1.0
RETRIES: Final = 2


class Worker(NamedTuple):
    """What a worker says of itself before it is given anything.

    Attributes:
        version: of this package.
        reader: why the native reader cannot be loaded there; empty where it can be.
        unseen: a file that is not there, or is a shorter one; empty where all is well.
    """

    version: str
    reader: str
    unseen: str


def look_around(path: str, size: int) -> Worker:
    """Return what this process is, and whether it sees a file; called on each worker."""
    try:
        import dftrace_ai._reader as reader

        why_not = "" if reader else "it is empty"
    except ImportError as error:
        why_not = str(error)
    try:
        is_seen = not path or os.stat(path).st_size >= size  # noqa: PTH116 - of any name
    except OSError:
        is_seen = False
    return Worker(__version__, why_not, "" if is_seen else path)


class DaskWorkers:
    """The workers of a scheduler that runs, or some of this machine's own.

    Args:
        address: of a scheduler, ``tcp://node0:8786``; or ``local:4`` for so many processes here.
        scheduler_file: in place of an address, the file that the scheduler has written.
        says: is told of workers that are left out, and why.

    Raises:
        DftraceError: Dask is not installed, or no scheduler answers.

    Example::

        with DaskWorkers("tcp://node0:8786") as executor:
            verdict = why(["/shared/out"], spread=Spread(executor))
    """

    def __init__(
        self, address: str | None, scheduler_file: str | None = None, says: Says = print
    ) -> None:
        try:
            import distributed
        except ImportError as error:
            raise missing_package("Dask", "--dask", "dask") from error
        # What is of use for a user is told by this package.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        if address is None and not os.path.isfile(scheduler_file or ""):  # noqa: PTH113
            raise DftraceError(f"--dask-file {scheduler_file}: there is no such file")
        if address is not None and not ADDRESS.fullmatch(address):
            raise ConfigError(
                f"--dask {address}: it is written as --dask tcp://node0:8786, or --dask local:4"
            )
        self._says = says
        self._looked_at: set[str] = set()
        self._left_out: set[str] = set()
        with ExitStack() as stack:
            if address is not None and address.startswith(LOCAL):
                address = _local_cluster(address, stack)
            self._called = address or scheduler_file or ""
            try:
                given = {"address": address} if address else {"scheduler_file": scheduler_file}
                client = distributed.Client(**given, timeout=ANSWER_S, set_as_default=False)
                self._client: Any = stack.enter_context(client)
            except (OSError, ValueError, TypeError) as error:
                raise DftraceError(
                    f"no scheduler of Dask answers at {self._called}: {error}"
                ) from error
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def workers(self) -> int:
        """How many lots are done at the same time: the threads of all workers."""
        return max(1, sum(int(worker["nthreads"]) for worker in self._there().values()))

    def _there(self) -> dict[str, Any]:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return workers

    def as_completed(
        self, lots: Sequence[Lot]
    ) -> Generator[tuple[int, list[object] | Failed], None, None]:
        """Yield what became of each lot, by its index, as they come.

        Raises:
            DftraceError: there is no worker, or none of use; or the scheduler is gone.
        """
        from concurrent.futures import CancelledError

        from distributed import TimeoutError as LateError
        from distributed import wait

        if not lots:
            return
        self._look(lots[0])
        used = [*self._looked_at - self._left_out] if self._left_out else None
        futures = {
            self._client.submit(
                type(lot).done, lot, pure=False, retries=RETRIES, workers=used
            ): number
            for number, lot in enumerate(lots)
        }
        waiting, idle_s = {*futures}, 0.0
        try:
            while waiting:
                try:
                    with self._client.as_current():
                        done = wait(waiting, timeout=LOOK_S, return_when="FIRST_COMPLETED").done
                except LateError:
                    idle_s = 0.0 if self._has_worker(used) else idle_s + LOOK_S
                    if idle_s > GONE_S:
                        raise DftraceError(f"no worker of {self._called} is left") from None
                    continue
                except CancelledError as error:
                    raise self._gone() from error
                for future in done:
                    waiting.discard(future)
                    yield futures[future], self._outcome(future)
        finally:
            if waiting:
                self._client.cancel([*waiting], force=True)

    def _outcome(self, future: Any) -> list[object] | Failed:
        if future.status == "cancelled" or self._client.status != "running":
            raise self._gone()
        error = future.exception()
        if error is None:
            answer: list[object] = future.result()
            return answer
        name = type(error).__name__
        if name == "KilledWorker":
            return Failed("the workers that were given it died")
        if name == "UnseenError":
            return Failed(str(error))
        return Failed(f"{name}: {error}")

    def _gone(self) -> DftraceError:
        return DftraceError(f"the scheduler at {self._called} is gone")

    def _has_worker(self, used: Iterable[str] | None) -> bool:
        if self._client.status != "running":
            raise self._gone()
        there = self._there()
        return bool(there if used is None else there.keys() & {*used})

    def _look(self, lot: Lot) -> None:
        """Ask the workers what they are; say which are left out, and refuse where all are."""
        from distributed import TimeoutError as LateError

        try:
            self._client.wait_for_workers(1, timeout=ANSWER_S)
        except LateError as error:
            raise DftraceError(f"the scheduler at {self._called} has no workers") from error
        new = {*self._there()} - self._looked_at
        self._looked_at |= new
        path = lot.paths[0] if lot.paths else ""
        size = os.path.getsize(path) if path and os.path.exists(path) else 0  # noqa: PTH110, PTH202
        found = (
            self._client.run(look_around, path, size, workers=[*new], on_error="return")
            if new
            else {}
        )
        refused: dict[str, list[str]] = {}
        for address, said in sorted(found.items()):
            why_not = _why_not(said)
            if why_not:
                refused.setdefault(why_not, []).append(address)
                self._left_out.add(address)
        for why_not, addresses in refused.items():
            self._says(f"{_named(addresses)} {why_not}: left out")
        if not self._looked_at - self._left_out:
            raise DftraceError(f"no worker of {self._called} is of use")


def _why_not(said: object) -> str:
    """Return why a worker is of no use; empty for one that is."""
    if not isinstance(said, Worker):
        return f"cannot run this version of dftrace_ai, {__version__} ({said})"
    if said.version.split(".")[:2] != __version__.split(".")[:2]:
        return f"has dftrace_ai {said.version}, and not {__version__}"
    if said.reader:
        return f"has no native reader of dftrace_ai ({said.reader})"
    if said.unseen:
        return f"does not see {said.unseen}, which is to lie on a file system that all share"
    return ""


def _named(addresses: Sequence[str]) -> str:
    if len(addresses) == 1:
        return f"worker {addresses[0]}"
    return f"each of {counted(len(addresses), 'worker')}, {addresses[0]} the first,"


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Have processes that are started ignore Ctrl+C: who started them ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _local_cluster(address: str, stack: ExitStack) -> str:
    """Start workers on this machine, and return the address of their scheduler."""
    from distributed import LocalCluster

    number = address.removeprefix(LOCAL)
    folder = stack.enter_context(SpareFolder())
    with _uninterrupted():
        cluster = LocalCluster(
            n_workers=int(number),
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            local_directory=str(folder),
            silence_logs=logging.CRITICAL,
        )
    stack.enter_context(cluster)
    return str(cluster.scheduler_address)
