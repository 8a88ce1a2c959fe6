"""Batches of spans sent to a receiver of OTLP over HTTP, and what became of each span.

The rules, which answers are asked again after what time among them, are those of
https://opentelemetry.io/docs/specs/otlp/#otlphttp.
"""

from __future__ import annotations

import gzip
import http.client
import random
import re
import socket
import ssl
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from threading import Event, Timer
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from dftrace_ai._version import __version__
from dftrace_ai.analysis.otlp.messages import refused_in
from dftrace_ai.errors import ConfigError
from dftrace_ai.masking import HIDDEN, masked_text
from dftrace_ai.wording import briefly, counted, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dftrace_ai.analysis.otlp.messages import Batch

PATH: Final = "/v1/traces"
PORTS: Final = {"http": 80, "https": 443}
GZIP_LEVEL: Final = 1

# As receivers take them; the default of OpenTelemetry's collector is ten times as much.
MOST_BYTES: Final = 2 * 1024 * 1024
ANSWER_BYTES: Final = 1024 * 1024
# One span of so many bytes that is too large says that the receiver takes none.
SMALL_BYTES: Final = 64 * 1024

TAKEN: Final = range(200, 300)
TOO_LARGE: Final = 413
TOO_LATE: Final = "gave no answer in time"
AGAIN: Final = frozenset({429, 502, 503, 504})
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
# A receiver that asks for a day of peace is tried before.
LONGEST_ASKED_S: Final = 600.0
# While somebody may lose patience.
SLICE_S: Final = 1.0


class Place(NamedTuple):
    """Where a receiver is."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def address(self) -> str:
        """Its address, as it may be told: what is asked for may be what lets in."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return _shown(f"{self.scheme}://{host}:{self.port}{self.path}")


def place_of(address: str, *, exact: bool = False) -> Place:
    """Read the address of a receiver: ``/v1/traces`` is added unless it is `exact` or there.

    Raises:
        ConfigError: it is none of HTTP's.
    """
    wrong = ConfigError(
        f"{quoted(_shown(address))}: is no address of a receiver, such as http://127.0.0.1:4318"
    )
    try:
        parts = urlsplit(address)
        port = PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
        (parts.hostname or "").encode("idna")  # as it is looked up
    except ValueError as error:
        raise wrong from error
    text = f"{parts.path}{parts.query}{parts.hostname}"
    if not port or not parts.hostname or not (text.isascii() and text.isprintable()):
        raise wrong
    if parts.username is not None or " " in text:
        raise wrong
    path = parts.path or "/"
    if not exact:
        path = path.rstrip("/").removesuffix(PATH) + PATH
    return Place(parts.scheme, parts.hostname, port, path + (f"?{parts.query}" * bool(parts.query)))


def _shown(address: str) -> str:
    """Return an address without what lets in: users, passwords, and what is asked for."""
    scheme, sign, rest = address.partition("://")
    if not sign:
        scheme, rest = "", address
    place, *asked = re.split(r"[?#]", rest, maxsplit=1)
    if any("@" in one for one in asked):
        place = HIDDEN  # a password may hold such a sign, too
    elif "@" in place:
        place = f"{HIDDEN}@{place.rpartition('@')[2]}"
    return masked_text(f"{scheme}{sign}{place}") + (f"?{HIDDEN}" if asked else "")


class _Answer(NamedTuple):
    """What a receiver said; no status where it said nothing."""

    status: int
    why: str
    body: bytes = b""
    after_s: float | None = None
    is_final: bool = False


class Sender:
    """Sends batches, one after the other, each until it is taken, refused or given up.

    Args:
        place: where to.
        headers: sent with each request, such as what lets in.
        timeout_s: how long a request may take in all, seconds.
        patient: whether to go on with a batch that nobody has taken for so many seconds.

    Attributes:
        accepted: spans that were taken.
        refused: spans that the receiver did not want.
        lost: spans that were given up, since no receiver took them.
        requests: how many there were, with those that were sent again.
        again: of them those that were sent again.
        bytes: of the bodies of all.
        problem: the last reason why something was not taken; empty for none.
        is_over: a receiver takes nothing at all: nothing more is sent.
    """

    def __init__(
        self,
        place: Place,
        headers: Mapping[str, str],
        timeout_s: float,
        patient: Callable[[float], bool],
    ) -> None:
        self.place = place
        self.accepted = self.refused = self.lost = 0
        self.requests = self.again = self.bytes = 0
        self.problem = ""
        self.is_over = False
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"dftrace_ai/{__version__}",
            **headers,
        }
        self._timeout_s = timeout_s
        self._most_bytes = MOST_BYTES
        self._patient = patient
        self._connection: http.client.HTTPConnection | None = None

    def send(self, batch: Batch) -> None:
        """Send a batch, and wait until it is known what becomes of it."""
        until = self._told + batch.count
        try:
            self._send_parts(batch)
        except BaseException:
            self.lost += until - self._told  # interrupted: nobody has said that it was taken
            raise

    @property
    def _told(self) -> int:
        """Of how many spans it is known what became of them."""
        return self.accepted + self.refused + self.lost

    def _send_parts(self, batch: Batch) -> None:
        if self.is_over:
            self.lost += batch.count
            return
        message = batch.message()
        is_one = batch.count == 1
        if is_one or len(message) <= self._most_bytes:
            if self._send(message, batch.count):
                return
            self._most_bytes = min(self._most_bytes, len(message) // 2)
        for half in batch.halves():
            self._send_parts(half)

    def _send(self, message: bytes, count: int) -> bool:
        """Return whether it is known what becomes of it; else it is too much at once."""
        body = gzip.compress(message, GZIP_LEVEL)
        began, pause = time.monotonic(), FIRST_PAUSE_S
        while True:
            answer = self._ask(body)
            if answer.status in TAKEN:
                partly = refused_in(answer.body)
                refused = min(max(partly.spans, 0), count)
                self.refused += refused
                self.accepted += count - refused
                if refused or partly.why:
                    self.problem = f"refused {counted(refused, 'span')}: {_words(partly.why)}"
                return True
            self.problem = answer.why
            if answer.is_final:
                is_large = answer.status == TOO_LARGE
                if is_large and count > 1:
                    return False
                self.refused += count
                # Who has taken nothing so far is no receiver, or does not let us in.
                self.is_over = not self.accepted and not (is_large and len(message) > SMALL_BYTES)
                return True
            wait = answer.after_s
            if wait is None:
                wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - not all at once
            pause = min(pause * 2, LONGEST_PAUSE_S)
            if not self._waited(began, wait):
                self.lost += count
                self.is_over = True
                return True
            self.again += 1

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _waited(self, began: float, wait: float) -> bool:
        """Wait; return whether it is not too late then."""
        until = time.monotonic() + wait
        while (left := until - time.monotonic()) > 0:
            if not self._patient(time.monotonic() - began):
                return False
            time.sleep(min(left, SLICE_S))
        return self._patient(time.monotonic() - began)

    def _ask(self, body: bytes) -> _Answer:
        self.requests += 1
        self.bytes += len(body)
        connection = self._connection or self._connect()
        self._connection = connection
        # A receiver that sends a byte now and then would hold a request for ever.
        ended = Event()
        watch = Timer(self._timeout_s, _end, (connection, ended))
        watch.daemon = True
        began = time.monotonic()
        try:
            watch.start()
            if connection.sock is None:
                connection.connect()
                # The time may have ended at an address that nobody answers at.
                if ended.is_set():
                    raise TimeoutError
            connection.request("POST", self.place.path, body, self._headers)
            response = connection.getresponse()
            text = response.read(ANSWER_BYTES)
            is_taken = response.status in TAKEN
            if is_taken and len(text) < ANSWER_BYTES and response.length:
                raise http.client.IncompleteRead(text, response.length)
            is_long = len(text) == ANSWER_BYTES and bool(response.read(1))
            if response.will_close or is_long:
                self.close()
        except ssl.SSLCertVerificationError as error:
            self.close()
            return _Answer(0, f"certificate refused: {error.verify_message}", is_final=True)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            is_late = time.monotonic() - began >= self._timeout_s
            return _Answer(0, TOO_LATE if is_late else _reason(error))
        finally:
            watch.cancel()
        if is_taken and is_long:
            return _Answer(0, f"answered with more than {ANSWER_BYTES:,} bytes", is_final=True)
        if is_taken:
            return _Answer(response.status, "", text)
        why = f"answered {response.status} {_words(response.reason)}".rstrip()
        again = response.status in AGAIN
        return _Answer(response.status, why, text, _after_s(response), is_final=not again)

    def _connect(self) -> http.client.HTTPConnection:
        place = self.place
        if place.scheme == "http":
            return http.client.HTTPConnection(place.host, place.port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(
            place.host,
            place.port,
            timeout=self._timeout_s,
            context=ssl.create_default_context(),
        )


def _end(connection: http.client.HTTPConnection, ended: Event) -> None:
    ended.set()  # before it looks: what is connected later looks whether it is
    with suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return TOO_LATE
    if isinstance(error, (http.client.HTTPException, ValueError)):
        return "gave no answer of HTTP"
    return f"cannot be reached: {briefly(error)}"


def _after_s(response: http.client.HTTPResponse) -> float | None:
    """Return after how many seconds it wants to be asked again; None where it does not say."""
    said = response.getheader("Retry-After", "").strip()
    if said.isascii() and said.isdigit():
        return min(float(said[:9]), LONGEST_ASKED_S)
    try:
        asked = parsedate_to_datetime(said).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(asked, 0.0), LONGEST_ASKED_S)


def _words(text: str) -> str:
    return " ".join(text.split())[:200]
