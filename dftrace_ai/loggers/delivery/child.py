"""The process of a tracker: opens it, reads records from its standard input, ends with that."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO

from dftrace_ai.loggers.delivery.own_process import END, LENGTH
from dftrace_ai.loggers.delivery.shared_count import SharedCount
from dftrace_ai.wording import described

if TYPE_CHECKING:
    from dftrace_ai.loggers.interfaces.base import BaseLogint

__all__ = ["serve"]

FAILED = 1


def serve(number: int) -> None:
    """Serve one training, then exit; whatever the tracker leaves behind ends with the process.

    Args:
        number: of the file of `SharedCount`.
    """
    told = SharedCount(number)
    told.close_number()
    # The tracker may read its standard input; records are not for it.
    records = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    code = FAILED
    try:
        code = _served(records, told)
    except BaseException as error:  # noqa: BLE001 - the reason has to be told before the end
        told.note(described(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _served(records: BinaryIO, told: SharedCount) -> int:
    message = _next(records)
    if message is None:
        return FAILED
    module, name, run, limit_s = message
    kind: Any = import_module(module)
    for part in name.split("."):
        kind = getattr(kind, part)
    try:
        logint: BaseLogint = kind(run)
        logint.open()
    except BaseException as error:  # noqa: BLE001
        told.note(f"it could not begin: {described(error)}")
        return FAILED
    status: Any = "killed"
    while True:
        message = _next(records)
        if message is None or isinstance(message, str):
            status = message or status
            break
        try:
            logint.take(message)
        except BaseException as error:  # noqa: BLE001
            told.note(described(error))
        else:
            told.taken += 1
    if status == "killed":
        # Whom it would have to answer is gone.
        watch = threading.Timer(max(1.0, limit_s), os._exit, (FAILED,))
        watch.daemon = True
        watch.start()
    try:
        logint.flush()
        logint.finish(status)
    except BaseException as error:  # noqa: BLE001
        told.note(f"it could not end: {described(error)}")
        return FAILED
    told.ended = True
    return 0


def _next(records: BinaryIO) -> Any:
    """Return the next message: a status at the orderly end, None where the training is gone."""
    head = records.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    data = records.read(length) if length != END else records.read()
    if length == END:
        return data.decode()
    # From the training that started this process, and nobody else.
    return pickle.loads(data) if len(data) == length else None  # noqa: S301
