"""A server of `dftrace view` in a thread of its own, and what stands for the offline UI."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs
from urllib.request import urlopen

from conftest import clean_environment
from safety.commands import COMMAND, Done

from dftrace_ai.analysis.merging.gathering import Asked, gathered
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.time_window import TimeWindow
from dftrace_ai.cli.trace_server import TraceServer


def stand_in_ui(folder: Path) -> Path:
    """Stands for the offline UI in a folder, beside which lies what is not part of it."""
    built = folder / "web_dist"
    (built / "v1").mkdir(parents=True)
    (built / "index.html").write_text("<html>the page</html>")
    (built / "v1" / "engine.wasm").write_bytes(b"\0asm")
    (folder / "secret.txt").write_text("outside")
    return built


def viewed(path: Path) -> tuple[bytes, Done]:
    """What `dftrace view` hands to the page that it opens, once, and how it ends."""
    words = [*COMMAND, "view", path, "--no-browser", "--once", "--json"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()
    ) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        with urlopen(address, timeout=60) as page:
            (url,) = parse_qs(page.url.partition("#!/?")[2])["url"]
        with urlopen(url, timeout=60) as trace:
            body = bytes(trace.read())
        out, err = process.communicate(timeout=60)
    return body, Done(process.returncode, out, err)


@contextmanager
def serving(
    traces: Path,
    ui: Path | None = None,
    *,
    window: TimeWindow | None = None,
    port: int | None = 0,
    once: bool = False,
) -> Iterator[TraceServer]:
    """A server of the traces below a path, which ends with the block."""
    told: list[str] = []
    asked = Asked(window=window, around=True)
    with TraceServer(
        gathered(open_traces([traces]).files, asked), ui=ui, once=once, port=port, tell=told.append
    ) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()
