"""What `dftrace top` shows, as metrics for Prometheus: names and labels that stay few.

The form is Prometheus' text format, https://prometheus.io/docs/instrumenting/exposition_formats/.
Who answers takes few connections, none of which holds up the others.
"""

from __future__ import annotations

import io
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from dftrace_ai.cli.terminal import complain
from dftrace_ai.errors import ConfigError, DftraceError
from dftrace_ai.wording import briefly, escaped, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from prometheus_client.core import Metric

    from dftrace_ai.live import Observer
    from dftrace_ai.live.model import RankStatus, Snapshot

RANK: Final = ("run", "rank")
RUN_DIGITS: Final = 8
# Of one process: a program may have any number of categories, a time series costs for ever.
MOST_CATEGORIES: Final = 24
OTHERS: Final = "others"
NS: Final = 1e9
SHARED: Final = "rw-s"
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class _Stepped(NamedTuple):
    """A step of a rank, when it was seen first, and the time of one as known then."""

    step: int
    seen_ns: int
    step_s: float | None


class Metrics:
    """Looks at processes whenever metrics are asked for; a collector of prometheus_client."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._lock = threading.Lock()
        self._steps: dict[tuple[str, str], _Stepped] = {}
        self._mapped: set[tuple[str, str]] = set()
        self._over: set[tuple[str, str]] = set()

    def describe(self) -> Iterable[Metric]:
        """Return nothing: what there is, is known when it is asked for."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield what all ranks are doing now."""
        with self._lock:  # two servers may ask at one moment
            began = time.perf_counter()
            try:
                seen = self._observer.look()
            except DftraceError:  # the training has not begun, or it is over
                seen = None
            found = [] if seen is None else self._untold(list(_of_ranks(seen)))
            yield from self._metrics(seen, found)
            took = GaugeMetricFamily("dftrace_scrape_seconds", "Time that looking took.")
            took.add_metric((), time.perf_counter() - began)
            yield took

    def _metrics(
        self, seen: Snapshot | None, found: list[tuple[tuple[str, str], RankStatus]]
    ) -> Iterator[Metric]:
        def gauge(name: str, about: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"dftrace_{name}", about, labels=(*RANK, *labels))

        up = gauge("process_up", "1 while the process lives, 0 when it has died.", "host", "pid")
        step = gauge("step", "Newest value of the argument step.")
        epoch = gauge("epoch", "Newest value of the argument epoch.")
        step_s = gauge("step_seconds", "Time of a step, on average since the scrape before.")
        events = gauge("events_per_second", "Events that are recorded in a second.")
        share = gauge("category_ratio", "Share of a category's own time, lately.", "category")
        open_s = gauge("open_span_seconds", "Age of the innermost open span.", "category", "name")
        stuck_s = gauge("stuck_seconds", "Since when a rank in a span has recorded nothing.")
        waited = gauge("waited_for_ratio", "Share of time in which the others waited for the rank.")
        memory = gauge("resident_memory_bytes", "Memory of the process that is in RAM.")
        spool = gauge("spool_bytes", "Size of the spool.")
        dropped = CounterMetricFamily(
            "dftrace_events_dropped", "Events that were lost since the spool was full.", labels=RANK
        )
        drain = CounterMetricFamily(
            "dftrace_drain_cpu_seconds", "Processor time of formatting and writing.", labels=RANK
        )
        for labels, rank in found:
            up.add_metric((*labels, rank.host, str(rank.pid)), rank.state == "alive")
            lives = rank.state == "alive"
            for metric, value in (
                (step, rank.step),
                (epoch, rank.epoch),
                (step_s, self._step_seconds(rank) if lives else None),
                (events, rank.events_per_s if lives else None),
                (memory, self._memory(rank, seen)),
                (spool, rank.spool_bytes),
                (dropped, rank.dropped),
                (drain, rank.drain_cpu_us / 1e6),
            ):
                if value is not None:
                    metric.add_metric(labels, value)
            if rank.main is None or not lives:
                continue
            for category, ratio in _ratios(rank):
                share.add_metric((*labels, category), ratio)
            place = rank.place
            stuck_s.add_metric(labels, rank.quiet_s(rank.main) if place else 0.0)
            if place:
                age = max(rank.seen_ns - place[-1].start_ns, 0) / NS
                open_s.add_metric((*labels, place[-1].cat, place[-1].name), age)
        of_rank = {labels for labels, _ in found}
        for one in () if seen is None else seen.waited_for:
            labels = (one.run[:RUN_DIGITS], str(one.rank))
            if labels in of_rank:
                of_rank.remove(labels)
                waited.add_metric(labels, one.share)
        yield from (up, step, epoch, step_s, events, share, open_s, stuck_s, waited, memory)
        yield from (spool, dropped, drain)

    def _untold(
        self, found: list[tuple[tuple[str, str], RankStatus]]
    ) -> list[tuple[tuple[str, str], RankStatus]]:
        """Return them without the dead of runs in which nobody lives, once these were told."""
        lives = {run for (run, _), rank in found if rank.state == "alive"}
        over = {rank.identity for (run, _), rank in found if run not in lives}
        told, self._over = self._over & over, over
        return [one for one in found if one[1].identity not in told]

    def _step_seconds(self, rank: RankStatus) -> float | None:
        if rank.step is None:
            return None
        before = self._steps.get(rank.identity)
        if before is None or rank.step < before.step:
            self._steps[rank.identity] = _Stepped(rank.step, rank.seen_ns, None)
            return None
        if rank.step > before.step:
            took = max(rank.seen_ns - before.seen_ns, 0) / NS / (rank.step - before.step)
            self._steps[rank.identity] = _Stepped(rank.step, rank.seen_ns, took)
            return took
        return before.step_s

    def _memory(self, rank: RankStatus, seen: Snapshot | None) -> int | None:
        """Return bytes in RAM of a process of this host, by `/proc`; None where it is not known."""
        is_here = seen is not None and rank.host == seen.taken_on and rank.told_s is None
        if not is_here or rank.state != "alive":
            return None
        with suppress(OSError, ValueError, IndexError):
            # A container has numbers of its own: who has mapped the spool is the process.
            process = Path("/proc", str(rank.pid))
            if rank.identity not in self._mapped:
                # The file got its name when it was mapped already: the kernel tells its number.
                number = str(Path(rank.spool).stat().st_ino)
                lines = map(str.split, (process / "maps").read_text().splitlines())
                if not any(line[1] == SHARED and line[4] == number for line in lines):
                    return None
                self._mapped.add(rank.identity)
            return int((process / "statm").read_bytes().split()[1]) * PAGE_BYTES
        return None


def _of_ranks(seen: Snapshot) -> Iterator[tuple[tuple[str, str], RankStatus]]:
    """Yield processes with their labels, each once: a second series of a name fails the scrape."""
    by_labels: dict[tuple[str, str], RankStatus] = {}
    for process in seen.processes:
        if process.worker:
            continue
        name = str(process.pid) if process.rank is None else str(process.rank)
        labels = process.run[:RUN_DIGITS], name if process.rank is not None else f"process {name}"
        other = by_labels.get(labels)
        if other is None or (other.started_ns or 0) < (process.started_ns or 0):
            by_labels[labels] = process
    yield from sorted(by_labels.items())


def _ratios(rank: RankStatus) -> Iterator[tuple[str, float]]:
    main = rank.main
    if main is None or not main.covered_s:
        return
    times = sorted(main.self_s.items(), key=lambda one: -one[1])
    rest = sum(seconds for _, seconds in times[MOST_CATEGORIES:])
    for category, seconds in (*times[:MOST_CATEGORIES], (OTHERS, rest)):
        if seconds:
            yield category, seconds / main.covered_s
    yield "unannotated", main.unannotated_s / main.covered_s


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

    def get_environ(self) -> WSGIEnvironment:
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

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
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
