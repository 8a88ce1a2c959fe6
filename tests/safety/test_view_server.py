"""The server behind `dftrace view`, over real sockets: neighbours, web pages and odd requests."""

from __future__ import annotations

import gzip
import os
import re
import socket
import time
from pathlib import Path
from random import Random

import pytest
from analysis.trace_lines import TraceLines, small_trace
from cli.served_traces import serving, stand_in_ui

from dftrace_ai.cli import trace_server
from dftrace_ai.cli.trace_server import TraceServer
from dftrace_ai.ui import local_server


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return small_trace().write(tmp_path / "traces" / "a.pfw.gz")


@pytest.fixture(scope="module")
def big_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than the buffers between a server and its client hold, compressed, too."""
    trace = TraceLines()
    random = Random(1)
    for number in range(1000):
        trace.instant(random.randbytes(5000).hex(), number)
    return trace.write(tmp_path_factory.mktemp("big") / "b.pfw.gz", 1000)


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    """Has links that lead out of it, and what is no file."""
    built = stand_in_ui(tmp_path)
    (built / "leak.txt").symlink_to(tmp_path / "secret.txt")
    (built / "out").symlink_to(tmp_path)
    (built / "ring").symlink_to("ring")
    os.mkfifo(built / "pipe")
    return built


def connected(server: TraceServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass  # the server closed while it had not read all of a request
    return b"".join(parts)


def say(server: TraceServer, request: bytes) -> bytes:
    with connected(server) as connection:
        connection.sendall(request)
        return rest_of(connection)


def get(server: TraceServer, path: str, *headers: str) -> tuple[int, bytes, bytes]:
    """Status, head and body of the answer to a request of bytes that no client would send."""
    lines = [f"GET {path} HTTP/1.1", *(headers or (f"Host: 127.0.0.1:{server.port}",))]
    request = "\r\n".join([*lines, "Connection: close", "", ""])
    head, _, body = say(server, request.encode("latin-1")).partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


def without_chunk_sizes(sent: bytes) -> bytes:
    body = b""
    while sent:
        size, _, sent = sent.partition(b"\r\n")
        body, sent = body + sent[: int(size, 16)], sent[int(size, 16) + 2 :]
    return body


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "..\\secret.txt",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "out/secret.txt",
        "leak.txt",
        "v1",
        "v1/",
        ".",
        "pipe",
        "ring",
        "%00",
        "index.html%00.png",
        "x" * 5000,
        "%ff%fe",
        "index.html/",
        "a.pfw/",
        "A.pfw",
    ],
)
def test_only_the_files_of_the_ui_are_served(trace: Path, ui: Path, name: str) -> None:
    with serving(trace, ui) as server:
        status, _, body = get(server, f"/{server.token}/{name}")
        if name == "index.html/":
            assert b"outside" not in body
        else:
            assert (status, body) == (404, b"")
        assert get(server, f"/{server.token}/v1/engine.wasm")[2] == b"\0asm"


def test_no_answer_says_a_word_of_the_request(trace: Path, ui: Path) -> None:
    host = b"Host: 127.0.0.1\r\n"
    with serving(trace, ui) as server:
        for request, status in (
            (b"<script>alert(1)</script>\r\n\r\n", b"400"),
            (b"GET /%s HTTP/1.1\r\n\r\n" % (b"<x>" * 40_000), b"414"),
            (b"GET / HTTP/9.9\r\n\r\n", b"505"),
            (b"GET //[ HTTP/1.1\r\n" + host + b"\r\n", b"404"),
            (b"<PUT> / HTTP/1.1\r\n" + host + b"\r\n", b"501"),
            (b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n<script>\n", b"404"),
            (b"HEAD / HTTP/1.1\r\n" + host + b"\r\n", b"501"),
            (b"GET / HTTP/1.1\r\n" + b"X: <script>\r\n" * 500 + b"\r\n", b"431"),
            (b"GET / HTTP/1.1\r\nX: " + b"<x>" * 40_000 + b"\r\n\r\n", b"431"),
            (b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"404"),
        ):
            answer = say(server, request)
            head, _, body = answer.partition(b"\r\n\r\n")
            # A server that closes before it has read all may cut off its own answer.
            assert head.split()[1:2] in ([status], []), (request[:40], answer[:200])
            assert (b"<" in head, body) == (False, b"")
        assert get(server, f"/{server.token}/")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        ("X: y",),
        ("Host: evil.example",),
        ("Host: evil.example:{port}",),
        ("Host: 127.0.0.1",),
        ("Host: 127.0.0.1:{port}.evil.example",),
        ("Host: evil.example", "Host: 127.0.0.1:{port}"),
        ("Host: [::1]:{port}",),
    ],
)
def test_a_page_under_another_name_gets_nothing(
    trace: Path, ui: Path, headers: tuple[str, ...]
) -> None:
    with serving(trace, ui) as server:
        given = [header.format(port=server.port) for header in headers]
        for path in (
            server.trace_path,
            f"/{server.token}/",
            f"http://127.0.0.1{server.trace_path}",
        ):
            assert get(server, path, *given)[::2] == (404, b"")
        assert get(server, server.trace_path, f"Host: localhost:{server.port}")[0] == 200


def test_a_request_with_a_body_is_refused(trace: Path, ui: Path) -> None:
    hidden = f"GET /{'x'} HTTP/1.1\r\n\r\n".encode()
    with serving(trace, ui) as server:
        request = (
            f"GET {server.trace_path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Content-Length: {len(hidden)}\r\n\r\n"
        ).encode()
        assert say(server, request + hidden).count(b"HTTP/1.1 ") == 1


def test_answers_stay_where_they_belong(trace: Path, ui: Path) -> None:
    with serving(trace, ui) as server:
        for path in (server.trace_path, f"/{server.token}/"):
            head = get(server, path)[1].decode()
            assert "Cache-Control: no-store" in head
            assert "Cross-Origin-Resource-Policy: same-origin" in head
            assert "Referrer-Policy: no-referrer" in head
            assert "X-Content-Type-Options: nosniff" in head
            assert "X-Frame-Options: DENY" in head
            assert "Access-Control-Allow-Origin" not in head
            assert "Python" not in head


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)", "'+alert(1)+'", 'a\u2028\x1b\n"', "TRACE NONCE"]
)
def test_a_name_is_only_a_name_in_the_page_that_hands_over(tmp_path: Path, name: str) -> None:
    path = small_trace().write(tmp_path / f"{name.replace('/', '_')}.pfw")
    with serving(path) as server:
        _, head, page = get(server, f"/{server.token}/open")
        (nonce,) = set(re.findall(rb"nonce=\"([\w-]+)\"", page))
        assert b"script-src 'nonce-%s'" % nonce in head
        assert b"default-src 'none'" in head
        strings = re.findall(rb"fetch\('([^']*)'\)|title: '([^']*)'|fileName: '([^']*)'", page)
        names = {one for found in strings for one in found if one}
        assert len(names) == 1
        assert re.fullmatch(rb"[\w%.~-]+\.pfw\.gz", names.pop())
        assert page.count(b"<script") == page.count(b"</script>") == 1
        assert get(server, f"/{server.token}/open")[2] != page
        sent = get(server, server.trace_path)[2]
        assert b'"process_name"' in gzip.decompress(without_chunk_sizes(sent))


def test_a_name_that_is_not_utf8_is_served(tmp_path: Path, ui: Path) -> None:
    path = small_trace().write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.pfw")))
    with serving(path, ui) as server:
        assert "caf%E9.pfw.gz" in server.trace_path
        assert get(server, server.trace_path)[0] == 200


def test_once_is_once(trace: Path, ui: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_server, "LINGER_S", 60.0)
    with serving(trace, ui, once=True) as server:
        assert get(server, server.trace_path)[0] == 200
        # The page may still ask for parts of itself; nobody gets the trace again.
        assert get(server, server.trace_path)[::2] == (404, b"")
        assert get(server, f"/{server.token}/")[0] == 200
    with serving(trace, once=True) as server:
        server.fetched = True
        question = f"OPTIONS {server.trace_path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
        assert say(server, question.encode()).startswith(b"HTTP/1.1 404")


def test_a_download_that_breaks_off_does_not_count(big_trace: Path, ui: Path) -> None:
    with serving(big_trace, ui, once=True) as server:
        with connected(server) as connection:
            connection.sendall(
                f"GET {server.trace_path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert get(server, server.trace_path)[0] == 200


def test_no_answer_waits_for_what_acknowledges_its_head(trace: Path, ui: Path) -> None:
    with serving(trace, ui) as server, connected(server) as connection:
        connection.sendall(
            f"GET /{server.token}/ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        (its_end,) = server._http.asking or [None]
        while its_end is None:  # it is being answered
            (its_end,) = server._http.asking or [None]
        assert its_end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_many_silent_connections_keep_nobody_out(trace: Path, ui: Path) -> None:
    with serving(trace, ui) as server:
        silent = [connected(server) for _ in range(local_server.MOST_CONNECTIONS * 3)]
        try:
            for at, connection in enumerate(silent):
                # Some have begun to ask.
                if at % 2 and at >= len(silent) - 20:
                    connection.sendall(b"GET / HT")
            assert get(server, server.trace_path)[0] == 200
            # The first of them were let go, and their threads have ended.
            assert rest_of(silent[0]) == b""
            assert len(server._http.asking) <= local_server.MOST_CONNECTIONS
        finally:
            for connection in silent:
                connection.close()


def test_who_asks_letter_by_letter_is_let_go(
    trace: Path, ui: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "ASKING_S", 0.3)
    with serving(trace, ui) as server, connected(server) as slow:
        with pytest.raises(OSError):
            until = time.monotonic() + 60
            while time.monotonic() < until:
                slow.sendall(b"G")
                time.sleep(0.01)
        assert get(server, server.trace_path)[0] == 200


def test_who_takes_nothing_is_let_go(
    big_trace: Path, ui: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "TAKING_S", 0.3)
    with serving(big_trace, ui) as server, socket.socket() as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        idle.connect(("127.0.0.1", server.port))
        idle.sendall(
            f"GET {server.trace_path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
        )
        assert idle.recv(10)
        until = time.monotonic() + 60
        while server._http.in_progress and time.monotonic() < until:
            time.sleep(0.01)
        assert server._http.in_progress == 0
        assert get(server, f"/{server.token}/")[0] == 200
