"""A tracker that hangs, raises, or asks somebody who never answers: at its beginning, in a call, at its end."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import ClassVar

from dftrace_ai.loggers import BaseLogint
from dftrace_ai.loggers.records import Status

HOWS = ("hangs", "raises", "is a black hole")
WHERES = ("at its beginning", "in each call", "at its end")


class Faulty(BaseLogint):
    """Does what its options say: `how`, and `where`."""

    name: ClassVar[str] = "faulty"

    def open(self) -> None:
        """Begin."""
        self._fail(WHERES[0])

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Take numbers."""
        self._fail(WHERES[1])

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        """Take a file."""
        self._fail(WHERES[1])

    def finish(self, status: Status) -> None:
        """End."""
        self._fail(WHERES[2])

    def _fail(self, where: str) -> None:
        if self.run.options["where"] != where:
            return
        how = self.run.options["how"]
        if how == HOWS[0]:
            time.sleep(1e6)
        if how == HOWS[1]:
            raise RuntimeError("it raises")
        # Who listens takes what is sent, and says nothing.
        with socket.create_server(("127.0.0.1", 0)) as server:
            asking = socket.create_connection(server.getsockname())
            asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
            asking.recv(1)
