"""A server of `dftrace view` in a thread of its own, and what stands for the offline UI."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.time_window import TimeWindow
from dftrace_ai.cli.trace_server.server import TraceServer


def stand_in_ui(folder: Path) -> Path:
    """Stands for the offline UI in a folder, beside which lies what is not part of it."""
    built = folder / "web_dist"
    (built / "v1").mkdir(parents=True)
    (built / "index.html").write_text("<html>the page</html>")
    (built / "v1" / "engine.wasm").write_bytes(b"\0asm")
    (folder / "secret.txt").write_text("outside")
    return built


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
    with TraceServer(
        open_traces([traces]), window=window, ui=ui, once=once, port=port, tell=told.append
    ) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()
