"""Traces in stores that fsspec knows: what is read of them, and what is said of stores that do not answer."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from analysis.executors.made_job import made
from analysis.trace_lines import TraceLines
from safety.commands import invoke

from dftrace_ai.analysis import ranks, why
from dftrace_ai.analysis.reading import index_file, open_traces, remote, trace_file
from dftrace_ai.analysis.summary.report import reported
from dftrace_ai.errors import DftraceError, TraceError

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")


class Store(ThreadingHTTPServer):
    """Files by ranges, over HTTP; what was asked for, and how it misbehaves."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.folder = folder
        self.ranges: list[tuple[str, int]] = []
        self.how = ""
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answering(BaseHTTPRequestHandler):
    """One call: a page of links for the folder, pieces of the files in it."""

    server: Store

    def log_message(self, *words: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        store, name = self.server, self.path.rpartition("/")[2]
        if store.how == "silent":
            store.ended.wait()
            return
        if store.how == "refuses":
            self.send_error(403)
            return
        if store.how in {"500", "503"}:
            self.send_error(int(store.how))
            return
        links = "".join(f'<a href="{path.name}">x</a>' for path in store.folder.iterdir())
        path = store.folder / name
        if name and not path.exists():
            self.send_error(404)
            return
        content = path.read_bytes() if name else links.encode()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        sent = content[int(wanted[1]) : int(wanted[2]) + 1] if wanted else content
        if wanted:
            store.ranges.append((name, len(sent)))
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(sent[: len(sent) // 2] if store.how == "cuts" and name else sent)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("job") / "out")


@pytest.fixture(scope="module")
def serving(job: Path) -> Iterator[Store]:
    with Store(job) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        yield store
        store.ended.set()
        store.shutdown()


@pytest.fixture
def store(serving: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(remote, "_kept", type(remote._kept)())
    monkeypatch.setattr(remote, "_known", {})
    monkeypatch.setattr(remote, "_listed", set())
    serving.how = ""
    serving.ranges.clear()
    return serving


def told(value: Any, place: str) -> str:
    return str(asdict(value)).replace(place, "")


def test_stores_give_the_figures_of_files(store: Store, job: Path):
    memory = fsspec.filesystem("memory")
    for path in job.iterdir():
        memory.pipe(f"/traces/{path.name}", path.read_bytes())
    for place in (f"{store.url}/", "memory://traces/", f"{store.url}/*.pfw.gz", job.as_uri()):
        folder = place.removeprefix("file://").removesuffix("*.pfw.gz").removesuffix("/") + "/"
        for call in (why, ranks, reported):
            assert told(call([place]), folder) == told(call([job]), f"{job}/")
    one = next(job.glob("*-100.pfw.gz"))
    assert reported([f"memory://traces/{one.name}"]).events == reported([one]).events


def test_what_is_kept_beside_traces_is_read_from_stores(
    store: Store, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By whoever opens a folder, and believed while lengths and ends are the same."""
    folder = Path(shutil.copytree(job, tmp_path / "job"))
    assert invoke("index", folder).status == 0
    monkeypatch.setattr(store, "folder", folder)
    memory = fsspec.filesystem("memory")
    for path in folder.iterdir():
        memory.pipe(f"/indexed/{path.name}", path.read_bytes())
    found: list[Path] = []
    opened = remote.opened_remote

    def opening(path: remote.RemotePath) -> Any:
        found.append(path)
        return opened(path)

    for module in (index_file, trace_file):
        monkeypatch.setattr(module, "opened_remote", opening)
    for place in (f"{store.url}/", "memory://indexed/"):
        found.clear()
        assert told(reported([place]), place) == told(reported([job]), f"{job}/")
        assert {path.suffix for path in found} >= {".dfindex"}
        assert told(ranks([place]), place) == told(ranks([job]), f"{job}/")
        assert ".dfrank" in {path.suffix for path in found}
    # One that changes is not believed any more.
    trace = next(folder.glob("*-100.pfw.gz"))
    memory.pipe(f"/indexed/{trace.name}", trace.read_bytes()[:-20])
    remote._known.clear()
    remote._kept.clear()
    assert "was made before the trace changed" in invoke("summary", "memory://indexed/").err


def test_a_command_takes_the_address_of_a_store(store: Store):
    done = invoke("summary", f"{store.url}/", "--jobs", "2", "--by", "rank")
    assert done.status == 0, done.err
    assert "9 files" in done.out
    done = invoke("index", f"{store.url}/")
    assert done.status == 1
    assert f"not indexed: {store.url}/t-node0-100.pfw.gz: lies in a store" in done.err


def test_of_a_file_that_is_looked_at_its_ends_are_fetched(store: Store):
    trace = TraceLines(7)
    for at in range(20000):
        trace.span("a", "compute", at * 1000, 900, note=os.urandom(60).hex())
    trace.footer()
    large = trace.write(store.folder / "large.pfw.gz", 1000)
    try:
        size = large.stat().st_size
        (opened,) = open_traces([f"{store.url}/large.pfw.gz"])
        assert opened.header is not None
        assert opened.end.state == "complete"
        assert sum(length for _, length in store.ranges) < size / 2
        assert opened.path.stat().st_size == size
        report = reported([pickle.loads(pickle.dumps(opened.path))])
        assert report.events == 20_000
        # What was there is not fetched again.
        assert sum(length for _, length in store.ranges) == size
    finally:
        large.unlink()


def test_what_a_store_does_not_give_is_said(store: Store, monkeypatch: pytest.MonkeyPatch):
    first = f"{store.url}/t-node0-100.pfw.gz"
    with pytest.raises(TraceError, match=rf"{store.url}/none.pfw.gz: no such file"):
        open_traces([f"{store.url}/none.pfw.gz"])
    with pytest.raises(TraceError, match="Cannot connect to host 127.0.0.1:9"):
        open_traces(["http://127.0.0.1:9/out/a.pfw.gz"])
    for how, words in (
        ("cuts", "cannot be read"),
        ("refuses", "403"),
        ("500", "500, message='Internal Server Error'"),
        ("503", "503, message='Service Unavailable'"),
        ("silent", "nothing came for"),
    ):
        store.how = how
        with monkeypatch.context() as patch:
            patch.setattr(remote, "ANSWER_S", 0.5 if how == "silent" else 60.0)
            with pytest.raises(TraceError, match=words) as raised:
                open_traces([first])
        assert first in str(raised.value)
    with pytest.raises(TraceError, match="unknown://a/b: cannot be read: Protocol not known"):
        open_traces(["unknown://a/b"])
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DftraceError, match=r"s3://a/b needs fsspec; .*'dftrace-ai\[fsspec\]'"):
        open_traces(["s3://a/b"])
