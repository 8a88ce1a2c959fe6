"""How the counters of tensors stand in a viewer: by layers, in their natural order."""

from __future__ import annotations

import gzip
import urllib.request
from pathlib import Path

from analysis.trace_lines import TraceLines
from cli.served_traces import serving, stand_in_ui
from perfetto import engine

from dftrace_ai.cli.trace_server.served import shown_names


def inspected(pid: int) -> TraceLines:
    trace = TraceLines(pid)
    for at, layer in enumerate([10, 0, 2]):
        for tensor in ("weight", "activation"):
            name = f"layers.{layer}.fc:{tensor}"
            args = {"hhash": trace.host_hash, "iteration": 1}
            trace.event("i", name, "tensor_stats", 1000 + at, more=',"s":"t"', **args)
            trace.counter(name, 1000 + at, max=1.5, mean=0.5)
    trace.counter("layers.2.fc", 1500, mine=3.0)
    trace.counter("loss:train", 1500, value=3.0)
    trace.footer()
    return trace


def shown(tmp_path: Path, traces: Path) -> list[str]:
    """The names of counters in the order in which the viewer has their tracks."""
    with (
        serving(traces, stand_in_ui(tmp_path / "page")) as server,
        urllib.request.urlopen(server.origin + server.trace_path) as answer,
    ):
        text = gzip.decompress(answer.read())
    path = tmp_path / "shown.pfw"
    path.write_bytes(text)
    view = engine.view(path)
    return sorted({sample.track for sample in view.counters}, key=str.lower)


LAYERS = [
    f"layers.{layer}.fc / {tensor} / {statistic}"
    for layer in ("00", "02", "10")
    for tensor in ("activation", "weight")
    for statistic in ("max", "mean")
]


def test_layers_stand_together_in_their_natural_order(tmp_path: Path) -> None:
    """Also in a file that could be sent as it lies; what a program counts keeps its name."""
    path = inspected(100).write(tmp_path / "one" / "a.pfw.gz")
    kept = ["layers.2.fc mine", "loss:train value"]
    assert shown(tmp_path / "a", path) == [*LAYERS, *kept]
    inspected(200).write(tmp_path / "one" / "b.pfw.zst")
    assert shown(tmp_path / "b", path.parent) == [*LAYERS, *kept]


def test_names_are_as_long_as_their_numbers_need() -> None:
    names = ["h.9.mlp.3:w", "h.10.mlp.3:w", "head:w", "h.11:w", "no tensor"]
    assert shown_names(names) == {
        "h.9.mlp.3:w": "h.09.mlp.3 / w /",
        "h.10.mlp.3:w": "h.10.mlp.3 / w /",
        "head:w": "head / w /",
        "h.11:w": "h.11 / w /",
    }
    assert shown_names(["a.01:w", "a.1:w"]) == {}
