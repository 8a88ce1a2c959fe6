"""Lots done by the workers of a Dask cluster, on as many machines as it has.

Loaded late, where `--dask` asks for it: it needs distributed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

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

SCHEDULER: Final = re.compile(r"(tcp|tls)://([^/\s:\[\]]+|\[[^/\s\[\]]+\]):([0-9]{1,5})/?")
LOCAL: Final = "local:"
LOCALS: Final = re.compile(LOCAL + r"[1-9][0-9]{0,3}")
"""Before a number of workers: a cluster on this machine, which ends with the command."""

# So long a scheduler is waited for, and so long a worker that is asked what it is.
ANSWER_S: Final = 15.0
SILENT_S: Final = 15.0
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


class _Known(TypedDict):
    """What a scheduler says of a worker."""

    nthreads: int


def address_of(address: str | None, scheduler_file: str | None = None) -> str:
    """Return the address that an option gives, or the file of a scheduler; refuse what is none."""
    if address is not None:
        if not _is_scheduler(address) and not LOCALS.fullmatch(address):
            raise ConfigError(
                f"--dask {address}: it is written as --dask tcp://node0:8786, or --dask local:4"
            )
        return address
    called = f"--dask-file {scheduler_file}"
    if not os.path.isfile(scheduler_file or ""):  # noqa: PTH113
        raise DftraceError(f"{called}: there is no such file")
    try:
        with open(scheduler_file or "", "rb") as file:  # noqa: PTH123
            address = json.load(file)["address"]
    except OSError as error:
        raise DftraceError(f"{called}: {error.strerror}") from error
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise DftraceError(f"{called}: it is no file that a scheduler of Dask wrote") from error
    if not isinstance(address, str) or not _is_scheduler(address):
        raise DftraceError(
            f"{called}: the address in it is {json.dumps(address)[:80]}, and not as "
            '"tcp://node0:8786"'
        )
    return address


def _is_scheduler(address: str) -> bool:
    found = SCHEDULER.fullmatch(address)
    return found is not None and 0 < int(found[3]) < 1 << 16


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
        address = address_of(address, scheduler_file)
        self._says = says
        self._looked_at: set[str] = set()
        self._left_out: set[str] = set()
        with ExitStack() as stack:
            if address.startswith(LOCAL):
                address = _local_cluster(address, stack)
            else:
                # A client that got no answer waits again when it ends.
                _ask_scheduler(address)
            self._called = address
            try:
                self._client: Any = distributed.Client(
                    address, timeout=ANSWER_S, set_as_default=False
                )
            except (OSError, ValueError, TypeError, ImportError) as error:
                raise DftraceError(
                    f"no scheduler of Dask answers at {self._called}: {error}"
                ) from error
            stack.callback(self._end)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def workers(self) -> int:
        """How many lots are done at the same time: the threads of all workers."""
        return max(1, sum(worker["nthreads"] for worker in self._there().values()))

    def _there(self) -> dict[str, _Known]:
        """Return the workers that the scheduler has, by their addresses."""
        from distributed import TimeoutError as LateError

        client = self._client
        if client.status != "running" or client.scheduler is None:
            raise self._gone()
        try:
            found = client.sync(client.scheduler.identity, callback_timeout=ANSWER_S)
        except LateError as error:
            raise DftraceError(
                f"the scheduler at {self._called} does not answer for {ANSWER_S:g} s"
            ) from error
        except OSError as error:
            raise self._gone() from error
        workers: dict[str, _Known] = found["workers"]
        return workers

    def _end(self) -> None:
        from distributed import TimeoutError as LateError

        try:
            self._client.close(timeout=ANSWER_S)
        except LateError:
            # Else it would wait again where the interpreter ends.
            self._client.status = "closed"

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
        from distributed import TimeoutError as LateError

        error = future.exception()
        if error is None:
            try:
                answer: list[object] = future.result(timeout=GONE_S)
            except LateError:
                self._there()  # it says so where the scheduler is the silent one
                return Failed(f"the worker that did it gave no answer for {GONE_S:g} s")
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
        there = self._there()
        return bool(there if used is None else there.keys() & {*used})

    def _look(self, lot: Lot) -> None:
        """Ask the workers what they are; say which are left out, and refuse where all are."""
        late = time.monotonic() + ANSWER_S
        while not (there := self._there()):
            if time.monotonic() > late:
                raise DftraceError(f"the scheduler at {self._called} has no workers")
            time.sleep(0.1)
        new = {*there} - self._looked_at
        self._looked_at |= new
        path = lot.paths[0] if lot.paths else ""
        size = os.path.getsize(path) if path and os.path.exists(path) else 0  # noqa: PTH110, PTH202
        found = self._client.sync(self._asked, new, path, size) if new else {}
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

    async def _asked(
        self, workers: Iterable[str], path: str, size: int
    ) -> dict[str, Worker | Exception | None]:
        """Return what each worker says of itself; None for one that says nothing."""
        run = self._client.run
        asked = {
            address: asyncio.ensure_future(
                run(
                    look_around,
                    path,
                    size,
                    workers=[address],
                    on_error="return",
                    asynchronous=True,
                )
            )
            for address in workers
        }
        _, silent = await asyncio.wait(asked.values(), timeout=SILENT_S)
        for one in silent:
            one.cancel()
        # One that has left meanwhile is not in its answer.
        return {
            address: None if one in silent else one.result().get(address)
            for address, one in asked.items()
        }


def _ask_scheduler(address: str) -> None:
    """Refuse an address where nobody answers, or something that is no scheduler."""
    from distributed import Security, rpc

    async def ask() -> object:
        given = Security().get_connection_args("client")
        asked = rpc(address, timeout=ANSWER_S, connection_args=given)
        try:
            return await asyncio.wait_for(asked.identity(), ANSWER_S)
        finally:
            await asked.close_rpc()

    said: list[object] = []

    def keep() -> None:
        try:
            said.append(asyncio.run(ask()))
        except Exception as error:  # noqa: BLE001 - what answers may be anything
            said.append(error)

    # Of its own, as the caller may have a loop that runs; and no library keeps it for ever.
    asking = threading.Thread(target=keep, daemon=True)
    asking.start()
    asking.join(2 * ANSWER_S)
    found = said[0] if said else TimeoutError()
    if isinstance(found, dict) and "workers" in found:
        return
    why_not = "what answers is something else"
    if isinstance(found, (TimeoutError, asyncio.TimeoutError)):
        why_not = f"nothing came for {ANSWER_S:g} s"
    elif isinstance(found, Exception) and not isinstance(found, MemoryError):
        why_not = str(found) or type(found).__name__
    raise DftraceError(f"no scheduler of Dask answers at {address}: {why_not}")


def _why_not(said: object) -> str:
    """Return why a worker is of no use; empty for one that is."""
    if said is None:
        return f"does not answer for {SILENT_S:g} s"
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
