"""Lots done by other processes on this machine, which end with this one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar, cast

from dftrace_ai.analysis.executors.lots import Failed, Lot, Refused
from dftrace_ai.errors import DftraceError
from dftrace_ai.interpreters import begun, ended

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from typing_extensions import Self

Given = TypeVar("Given")
Made = TypeVar("Made")

MOST_TRIES: Final = 3
"""A lot whose process dies so often is not tried again."""


class Processes:
    """So many processes of this package, each of which does a lot at a time.

    They begin when there is work, and are ended with the block, whatever they are at. One that
    dies, as where the memory of the machine is used up, is replaced.

    Args:
        count: how many there are.
        files: descriptors that they have from this process, by the same numbers.

    Example::

        with Processes(4) as executor:
            verdict = why(["out/"], spread=Spread(executor))
    """

    def __init__(self, count: int, files: Sequence[int] = ()) -> None:
        self.workers = count
        self._files = files
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._is_closed = True
            running = [*self._running]
        for process in running:
            process.kill()

    def as_completed(
        self, lots: Sequence[Lot]
    ) -> Generator[tuple[int, list[object] | Failed], None, None]:
        """Yield what became of each lot, by its index, as they come."""
        waiting = deque(enumerate(lots))
        done: SimpleQueue[tuple[int, list[object] | Failed] | BaseException] = SimpleQueue()
        threads = [
            threading.Thread(target=self._work, args=(waiting, done), daemon=True)
            for _ in range(min(self.workers, len(lots)))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in lots:
                outcome = done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            waiting.clear()

    def _work(self, waiting: deque[tuple[int, Lot]], done: SimpleQueue[Any]) -> None:
        """Have a process do lots until there are none; another one where it dies."""
        process: subprocess.Popen[bytes] | None = None
        try:
            while waiting:
                try:
                    number, lot = waiting.popleft()
                except IndexError:
                    return  # another thread was quicker
                outcome: object = None
                for _ in range(MOST_TRIES):
                    process = process or self._begun()
                    outcome = _answer(process, lot)
                    if outcome is not None:
                        break
                    self._end(process)
                    process = None
                died = Failed(f"{MOST_TRIES} processes died over it")
                done.put((number, died if outcome is None else outcome))
        except BaseException as error:  # noqa: BLE001 - whoever waits for the lot gets it
            done.put(error)
        finally:
            if process is not None:
                self._end(process)

    def _begun(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise DftraceError("the processes were ended")
            try:
                pipe = subprocess.PIPE
                process = begun(__name__, "serve", (), pipe, given=pipe, files=self._files)
            except OSError as error:
                raise DftraceError(f"no process can be started: {error.strerror}") from error
            self._running.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        ended(process)
        with self._lock:
            self._running.discard(process)


@contextmanager
def beside(
    call: Callable[[Given], Made], given: Given, files: Sequence[int] = ()
) -> Iterator[Callable[[], Made]]:
    """Have another process make something, and give a function that waits for it.

    Where no process can make it, it is made here when it is asked for.

    Args:
        call: a function of this package; what it is given and returns goes by pickle.
        given: what it is called with.
        files: descriptors that the process needs for that.

    Example::

        with beside(lateness_of, job, job.files) as coming:
            met = collectives_of(job)
            lateness = coming()
    """
    lot = Lot(call, (given,), ())
    # The process is ended before its thread is waited for.
    with ThreadPoolExecutor(1) as pool, Processes(1, files) as executor:
        said = pool.submit(lambda: [*executor.as_completed([lot])])

        def made() -> Made:
            try:
                _, outcome = said.result()[0]
            except DftraceError:  # none can be started
                return call(given)
            if isinstance(outcome, Failed) or isinstance(outcome[0], Refused):
                return call(given)
            return cast("Made", outcome[0])

        yield made


def _answer(process: subprocess.Popen[bytes], lot: Lot) -> list[object] | Failed | None:
    """Return what a process says of a lot; None where it died."""
    given, said = process.stdin, process.stdout
    if given is None or said is None:
        return None
    try:
        pickle.dump(lot, given, pickle.HIGHEST_PROTOCOL)
        given.flush()
        answer: list[object] | Failed = pickle.load(said)  # noqa: S301 - of a process of ours
    except (OSError, EOFError, pickle.UnpicklingError):
        return None
    return answer


def serve(words: Sequence[str]) -> int:
    """Do the lots that come on standard input until it ends, and say what became of each."""
    given, said = sys.stdin.buffer, sys.stdout.buffer
    # What a library prints is no answer.
    sys.stdout = sys.stderr
    while True:
        lot = _next(given)
        if lot is None:
            return 0
        outcome = _outcome(lot)
        try:
            pickle.dump(outcome, said, pickle.HIGHEST_PROTOCOL)
            said.flush()
        except BrokenPipeError:  # that process was killed meanwhile, and nobody waits
            _leave_unsaid(said)
            return 0


def _next(given: IO[bytes]) -> Lot | None:
    try:
        lot: Lot = pickle.load(given)  # noqa: S301 - of the process that began this one
    except (EOFError, pickle.UnpicklingError):
        return None  # that process has ended, in the midst of a lot too, or has nothing more
    return lot


def _leave_unsaid(said: IO[bytes]) -> None:
    """Have what could not be written go nowhere, or the interpreter tells of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, said.fileno())
    os.close(nowhere)


def _outcome(lot: Lot) -> list[object] | Failed:
    try:
        # What is gone here is gone for all of this machine: who reads it tells.
        return lot.done_here()
    except Exception as error:  # noqa: BLE001 - the command tells of it, and of the others
        return Failed(f"{type(error).__name__}: {error}")
