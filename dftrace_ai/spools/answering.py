"""Asking file systems that may not answer: a server that is away keeps who asks till it is back."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from dftrace_ai.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")

PATIENCE_S: Final = 5.0
"""A file on this machine answers within microseconds, one on a network's disk within a second."""


class SilentError(TraceError):
    """A file system does not answer."""


class Asking(Generic[Answer]):
    """Asks on a thread, one question after the other, and gives up one that nobody answers."""

    def __init__(self, what: str) -> None:
        self._what = what  # is asked about, for the message
        # Where what was given up comes when it comes.
        self._awaited: SimpleQueue[tuple[Answer] | BaseException] | None = None

    def answer(self, call: Callable[[], Answer]) -> Answer:
        """Return what a function returns, or raise what it raises.

        SilentError: it waits, or still does since another call, for one answer for longer than
        `PATIENCE_S`; beside that it may take as long as it likes.
        """
        if self._awaited is not None and self._awaited.empty():
            raise SilentError(f"{self._what}: the file system does not answer")
        self._awaited = None
        answers: SimpleQueue[tuple[Answer] | BaseException] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put((call(),))
            except BaseException as error:  # noqa: BLE001 - for who has asked
                answers.put(error)

        asking = threading.Thread(target=ask, name="asking", daemon=True)
        asking.start()
        stood = ""
        while True:
            try:
                answer = answers.get(timeout=PATIENCE_S)
            except Empty:
                before, stood = stood, waits_since(asking)
                if stood and stood == before:
                    self._awaited = answers
                    text = f"{self._what}: the file system has not answered for {PATIENCE_S:g} s"
                    raise SilentError(text) from None
                continue
            if isinstance(answer, BaseException):
                raise answer
            return answer[0]


def waits_since(thread: threading.Thread) -> str:
    """Return what stays the same for as long as a thread is in one wait; empty while it is in none.

    On a busy machine it may only wait for a processor, which is none.
    """
    folder = Path(f"/proc/self/task/{thread.native_id}")
    try:
        state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
        told = (folder / "status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""  # it has ended
    if state == b"R":
        return ""
    return "".join(line for line in told.splitlines() if "ctxt_switches" in line)
