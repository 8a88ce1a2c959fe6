"""An HTTP server that stays open to its user whoever else on the machine connects."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LocalServer"]

# Anybody on this machine can connect. Who has not asked for anything after this time, or is the
# first of so many who have not, has to connect again.
ASKING_S = 15.0
MOST_CONNECTIONS = 64


class LocalServer(ThreadingHTTPServer):
    """A server with a thread for each connection, which nobody can crowd out.

    Args:
        address: host and port.
        handler: what answers a connection.

    Attributes:
        in_progress: requests that are being answered.
        last_request: when the last one was, by `time.monotonic`.
        lock: held while these are looked at.

    Example::

        server = LocalServer(("127.0.0.1", 0), Handler)
        while True:
            server.handle_request()
            server.let_go_of_idlers()
    """

    daemon_threads = True
    # Of connections that wait to be accepted; with fewer, a crowd makes the next one wait seconds.
    request_queue_size = 2 * MOST_CONNECTIONS
    # How long handle_request waits before it looks whether it is done.
    timeout = 0.1

    def __init__(
        self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]
    ) -> None:
        self.in_progress = 0
        self.last_request = time.monotonic()
        self.lock = threading.Lock()
        # Connections that have not asked for anything (again), and since when; the oldest first.
        self.asking: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, at the cost of whoever has kept silent for longest."""
        with self.lock:
            self.asking[request] = time.monotonic()
            crowd = list(self.asking)[:-MOST_CONNECTIONS]
        self._let_go(crowd)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that ends."""
        with self.lock:
            self.asking.pop(request, None)
        super().shutdown_request(request)

    def let_go_of_idlers(self) -> None:
        """End the connections that have asked for nothing in time."""
        now = time.monotonic()
        with self.lock:
            idlers = [one for one, since in self.asking.items() if now - since > ASKING_S]
        self._let_go(idlers)

    def _let_go(self, connections: list[socket.socket]) -> None:
        for connection in connections:
            with self.lock:
                self.asking.pop(connection, None)
            # Wakes the thread that reads from it, which closes it.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def answering(self, connection: socket.socket) -> Iterator[None]:
        """Count a request in progress; its connection may take its time."""
        with self.lock:
            self.asking.pop(connection, None)
            self.in_progress += 1
        try:
            yield
        finally:
            with self.lock:
                self.in_progress -= 1
                self.last_request = self.asking[connection] = time.monotonic()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that a browser gave up; pass on all else."""
        import sys

        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)
