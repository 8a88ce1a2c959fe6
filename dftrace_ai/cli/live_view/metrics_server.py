"""Who answers Prometheus: a server of few connections, none of which holds up the others."""

from __future__ import annotations

import io
import socket
import threading
import time
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from dftrace_ai.cli.live_view.metrics import Metrics
from dftrace_ai.cli.terminal import complain
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import briefly, escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dftrace_ai.live import Observer

ACCEPTED: Final = "PORT or HOST:PORT, such as 9108 or 127.0.0.1:9108"
PLACE_LETTERS: Final = 100
# One Prometheus or two ask, each on one connection: more at once are closed unheard.
MOST_CONNECTIONS: Final = 16
# For asking, and for taking the answer.
PATIENCE_S: Final = 5.0
PAUSE_S: Final = 0.1


class _Asked(WSGIRequestHandler):
    """One request and its answer."""

    timeout = PATIENCE_S

    def get_environ(self) -> dict[str, Any]:
        """Return the request without the forms that it wants: there is the text format alone."""
        environ = super().get_environ()
        environ.pop("HTTP_ACCEPT", None)  # prometheus_client trips over versions that are none
        return environ

    def get_stderr(self) -> Any:
        """Return where it is told at length that a client has left: nowhere."""
        return io.StringIO()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named so above it
        """Log nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128  # of a few, the others ask again after a second only

    def __init__(self, address: tuple[str, int], handler: type[_Asked]) -> None:
        self._lock = threading.Lock()
        self._began: dict[socket.socket, float] = {}
        self.address_family, _, _, _, place = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__((str(place[0]), address[1]), handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            time.sleep(PAUSE_S)  # no descriptor is left: the same client is waiting still
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take a connection where there are not too many."""
        with self._lock:
            if len(self._began) >= MOST_CONNECTIONS:
                return False
            self._began[request] = time.monotonic()
            return True

    def service_actions(self) -> None:
        """Hear no further who has been asking for too long, a letter now and then."""
        with self._lock:
            for request, began in self._began.items():
                if time.monotonic() - began > PATIENCE_S:
                    with suppress(OSError):
                        request.shutdown(socket.SHUT_RD)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client has left or kept silent, or there is no thread for it."""


def place_of(text: str) -> tuple[str, int]:
    """Return host and port of what was given, by default this host; ConfigError: it is none."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigError(f"{_given(text)}: {ACCEPTED} is accepted")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _given(text: str) -> str:
    return f"--prometheus {escaped(shortened(text, PLACE_LETTERS))}"


def serve(observer: Observer, text: str) -> tuple[WSGIServer, str]:
    """Give metrics to who asks there; return server and address. ConfigError: none can listen."""
    host, port = place_of(text)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Metrics(observer))
    answer = make_wsgi_app(registry)

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        try:
            answered: Iterable[bytes] = answer(environ, start_response)
        except Exception as error:  # noqa: BLE001 - the next scrape may go well
            complain(f"no metrics: {briefly(error)}", loud=True)
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
            return [b"no metrics\n"]
        return answered

    try:
        server = make_server(host, port, application, _Server, _Asked)
    except OSError as error:
        raise ConfigError(f"{_given(text)}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise ConfigError(f"{_given(text)}: no host can have this name") from error
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shown = f"[{host}]" if ":" in host else host
    return server, f"http://{shown}:{server.server_port}/metrics"
