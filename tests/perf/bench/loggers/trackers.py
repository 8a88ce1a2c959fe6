"""Trackers that are out of order, and one that takes everything; `options` of the run say which it is."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import ClassVar

from dftrace_ai.loggers import BaseLogint
from dftrace_ai.loggers.records import Status

HOWS = ("hangs", "raises", "is a black hole")
WHERES = ("at its beginning", "in each call", "at its end")


class Quiet(BaseLogint):
    """Takes everything, and keeps nothing."""

    name: ClassVar[str] = "quiet"

    def open(self) -> None:
        self._reaches(WHERES[0])

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        self._reaches(WHERES[1])

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        self._reaches(WHERES[1])

    def finish(self, status: Status) -> None:
        self._reaches(WHERES[2])

    def _reaches(self, where: str) -> None:
        """Come to a place."""


class Hanging(Quiet):
    """Hangs when it is to log for the first time."""

    name: ClassVar[str] = "hanging"

    def _reaches(self, where: str) -> None:
        if where == WHERES[1]:
            time.sleep(1e6)


class Faulty(Quiet):
    """Does what its options say: `how`, and `where`."""

    name: ClassVar[str] = "faulty"

    def _reaches(self, where: str) -> None:
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
