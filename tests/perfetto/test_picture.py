"""A trace opened in the real Perfetto UI, in headless Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import zlib
from pathlib import Path

import pytest
from conftest import Traced

from dftrace_ai import ai
from perfetto import engine

SHOT = Path(engine.__file__).parent / "perfetto_shot.js"
CHROMIUM = next(
    (b for n in ("chromium", "chromium-browser", "google-chrome") if (b := shutil.which(n))), None
)


def colours(png: bytes) -> tuple[int, int, int]:
    """Width, height and number of different pixel rows of a picture (a blank page has few)."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    at, data = 8, b""
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        if kind == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += 12 + size
    raw = zlib.decompress(data)
    stride = len(raw) // height
    return width, height, len({raw[i * stride : (i + 1) * stride] for i in range(height)})


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")
def test_the_ui_shows_the_trace(traced: Traced, tmp_path: Path) -> None:
    with traced() as rec:
        thread = threading.Thread(target=ai.data.item(lambda: None), name="loader")
        thread.start()
        thread.join()
        for epoch in ai.pipeline.epoch.iter(range(3)):
            ai.update(epoch=epoch)
            with ai.compute.forward, ai.comm.all_reduce:
                ai.instant("best")
            ai.counter("training", values={"loss": 1 / (epoch + 1)})
        ai.pipeline.train.start()
    picture = tmp_path / "shot.png"
    sql = "select name, count(*) as n from slice group by name order by name"
    done = subprocess.run(
        [
            engine.node(),
            str(SHOT),
            "--web-dist",
            engine.web_dist(),
            "--chromium",
            str(CHROMIUM),
            "--size",
            "1200x700",
            "--sql",
            sql,
            str(rec.trace.path),
            str(picture),
        ],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads(done.stdout)
    assert said["ok"]
    assert said["dialog"] is None
    assert said["errors"] == []
    assert said["slices"] == len(rec.perfetto.slices)
    want = {k: n for k, n in rec.trace.names.items() if k != "training"}
    assert {row["name"]: int(row["n"]) for row in said["rows"]} == want
    width, height, rows = colours(picture.read_bytes())
    assert (width, height) == (1200, 700)
    assert rows > 100
