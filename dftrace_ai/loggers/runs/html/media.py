"""Histograms and pictures of runs on the page; what is no picture is told by its name."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from dftrace_ai.loggers.runs.html.gathering import MOST_SHOWN
from dftrace_ai.loggers.runs.html.plots import bars, told
from dftrace_ai.loggers.runs.log_files import kept_bytes
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from dftrace_ai.loggers.runs.html.gathering import RunsOnPage

__all__ = ["histograms", "pictures"]

PICTURE_BYTES = 16 << 20
PAGE_BYTES = 64 << 20
MOST_PIXELS = 1 << 26

PNG, GIF = b"\x89PNG\r\n\x1a\n", b"GIF8"


def histograms(found: RunsOnPage) -> str:
    """Draw the histograms of runs."""
    parts = [
        f"<figure><figcaption>{told(name)} <small>{told(run)}, step {step}</small></figcaption>"
        f"{bars(name, *bins)}</figure>"
        for (name, run), some in found.histograms
        for step, bins in some.chosen()
    ][:MOST_SHOWN]
    return f"<h2>Histograms</h2><div class=plots>{''.join(parts)}</div>" if parts else ""


def pictures(found: RunsOnPage) -> str:
    """Show the pictures and animations of runs, and name what else was kept with them."""
    folders = {run.key: run.path for run in found.runs}
    chosen = [
        (name, run, step, picture)
        for (name, run), some in found.pictures
        for step, picture in some.chosen()
    ][:MOST_SHOWN]
    parts: list[str] = []
    left = PAGE_BYTES
    for name, run, step, picture in chosen:
        data = kept_bytes(folders[run], picture.file, min(PICTURE_BYTES, left))
        source = None if data is None else _source(data)
        left -= len(data or b"")
        if source is None:
            shown = f"<p>{told(picture.kind)}: {told(picture.file)}</p>"
        else:
            shown = f'<img alt="{told(name)}" src="{source}">'
        parts.append(
            f"<figure><figcaption>{told(name)} <small>{told(run)}, step {step} {picture.caption}"
            f"</small></figcaption>{shown}</figure>"
        )
    others = _others(found)
    return (f"<h2>Pictures</h2><div class=plots>{''.join(parts)}</div>" if parts else "") + others


def _others(found: RunsOnPage) -> str:
    items = "".join(
        f"<li>{told(run)}: {told(kind)} {told(name)}, {counted(count, 'time')}, last at step "
        f"{step}</li>"
        for (run, kind, name), (count, step) in found.others
    )
    return f"<h2>What else was kept</h2><ul>{items}</ul>" if items else ""


def _source(data: bytes) -> str | None:
    """Return the address that holds a picture whole; None where it is none, or vast."""
    if data.startswith(PNG) and len(data) > 24:
        kind = "png"
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    elif data.startswith(GIF) and len(data) > 10:
        kind = "gif"
        width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    else:
        return None
    if width * height > MOST_PIXELS:
        return None
    return f"data:image/{kind};base64,{b64encode(data).decode()}"
