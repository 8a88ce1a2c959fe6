"""Runs for reports, hostile ones among them, and what is found on a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.trace_lines import TraceLines
from analysis.why.made_runs import MS, START_NS, Lines, Training
from html_pages import EVIL

LAYERS, ITERATIONS = 6, 30
ODD_LAYER, ODD_SINCE = 3, 20
MANY_STEPS, MANY_LAYERS, EVERY = 10_000, 200, 125


def statistics(lines: TraceLines, layer: str, tensor: str, at: int, iteration: int, value: float):
    told: dict[str, Any] = {"cur_amax": value, "l2_norm": 3 * value}
    if value != value:
        told = {"cur_amax": None, "cur_amax_str": "nan", "l2_norm": None, "l2_norm_str": "inf"}
    args = {"hhash": lines.host_hash, "p_idx": 0, "level": 1, "iteration": iteration, "rank": 0}
    args |= {"feature": "LogTensorStats", **told, "n": 64, "n_nan": 0, "n_inf": 0, "n_zero": 1}
    lines.event("i", f"{layer}:{tensor}", "tensor_stats", at, more=',"s":"t"', **args)


def inspected(folder: Path) -> Path:
    """A training whose layers were inspected, one of which stops being finite, with odd counters.

    Its first step is the slowest by far.
    """
    slow = {1: 400.0}
    Training(steps=30, epochs=1, workers=0, item_ms=0.1, collate_ms=0.2, slow=slow).write(folder, 1)
    lines = Lines(900, rank=1, world_size=2, run="00ff")
    for iteration in range(ITERATIONS):
        at = START_NS + iteration * 20 * MS
        for layer in range(LAYERS):
            odd = layer == ODD_LAYER and iteration >= ODD_SINCE
            value = float("nan") if odd else 10.0 ** (layer - 2) * (1 + iteration % 3)
            statistics(lines, f"model.layers.{layer}", "gradient", at + layer, iteration, value)
        if iteration == ODD_SINCE:
            name = f"model.layers.{ODD_LAYER}:gradient"
            told = {"iteration": iteration, "first": True, "n_nan": 5, "n_inf": 0, "n": 64}
            lines.event("i", name, "nonfinite", at, more=',"s":"t"', **told)
        loss: Any = {3: "NaN", 4: "Infinity", 5: None}.get(iteration, 1 / (1 + iteration))
        lines.counter("loss", at, train=loss, eval=2.5)
    lines.footer(dropped=7, unfinished=0)
    lines.write(folder / "t-host-900.pfw", 10**9)
    return folder


def large(folder: Path) -> Path:
    """A long training of a deep network, of which one layer stops being finite in the end."""
    Training(steps=MANY_STEPS // 2, epochs=2, workers=0, item_ms=0.5).write(folder, 1)
    lines = Lines(900, rank=1, world_size=2, run="00ff")
    for iteration in range(0, MANY_STEPS, EVERY):
        at = START_NS + iteration * 20 * MS
        for layer in range(MANY_LAYERS):
            odd = layer == 137 and iteration >= 0.8 * MANY_STEPS
            value = float("nan") if odd else 10.0 ** (layer / 40 - 3) * (1 + iteration % 7)
            name = f"model.transformer.blocks.{layer}.attention.self.query_projection"
            statistics(lines, name, "gradient", at + layer, iteration, value)
        lines.counter("loss", at, train=1 / (1 + iteration))
    lines.footer(dropped=0, unfinished=0)
    lines.write(folder / "t-host-900.pfw", 10**9)
    return folder


def hostile(folder: Path, names: int) -> Path:
    """A run whose every name wants to act, with very many of them, and numbers beyond all sense."""
    lines = Lines(1, rank=0, world_size=1, host=EVIL, cmdline=[EVIL, EVIL], python=EVIL)
    evil = json.dumps(EVIL)[1:-1]
    for step in range(40):
        at = START_NS + step * 20 * MS
        lines.span("fetch.iter", "dataloader", at, MS, count=step + 1, step=step, epoch=0)
        lines.span("fetch.block", "dataloader", at + MS, 18 * MS, count=step + 1)
        lines.span(EVIL, evil, at + 2 * MS, 5 * MS, note=EVIL)
        lines.span("forward", "compute", at + 8 * MS, 5 * MS)
        lines.span("step", "compute", at + 14 * MS, 2 * MS)
        lines.span("HALF", "compute", at + 16 * MS, 2 * MS)
        lines.lines[-1] = lines.lines[-1].replace("HALF", "\\ud800")
        big: dict[str, Any] = {EVIL: step, "big": 1e308 * (-1) ** step, "huge": 10**400, "n": "NaN"}
        lines.event("C", EVIL, "counter", at, **{**big, "text": EVIL, "deep": [[EVIL]]})
        lines.event("i", EVIL, "nonfinite", at, more=',"s":"t"', iteration=EVIL, n_nan=10**400)
        statistics(lines, EVIL, EVIL, at, step, (-1) ** step * 5e307)
    for depth in range(1500):
        lines.span(f"deep {depth}", "other", START_NS + depth, 800 * MS - 2 * depth, tid=77)
    base = START_NS // 1000
    for number in range(names):
        tail = f'{base + number}.5,"ph":"X","dur":0.75,"args":{{"p_idx":0}}}}'
        lines.lines.append(
            f'{{"id":{number},"name":"n{number}","cat":"c{number % 99}","pid":1,"tid":9,"ts":{tail}'
        )
        if not number % 10:
            tail = f'{base + number},"ph":"C","args":{{"v":{number}}}}}'
            lines.lines.append(f'{{"name":"k{number}","cat":"counter","pid":1,"tid":9,"ts":{tail}')
    lines.span("far", "other", 2**62, 5)
    for long in (f"{letter}{'x' * 400_000}" for letter in "abcdef"):
        lines.span(long, long, START_NS + 900 * MS, 5 * MS)
        lines.span(long, "compute", START_NS + 3 * MS, 2 * MS)
        lines.counter(long, START_NS, **{long: float("1e300")})
        statistics(lines, long, long, START_NS, 0, 1.0)
    lines.lines.append('{"name":"cut')
    path = lines.write(folder / "t-host-1.pfw", 10**9)
    (folder / "no trace.pfw.gz").write_bytes(b"\x1f\x8b" + b"\xff" * 50)
    return path.parent
