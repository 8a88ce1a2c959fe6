"""What becomes known of the parallel layout when the run is on: it is written at once."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from dftrace_ai.run.emitting import is_recording, metadata
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.run.place.late_import import when_imported
from dftrace_ai.run.place.layout import ENGINES, MEGATRON, MESHES, find_layout, note_mesh
from dftrace_ai.run.run import current_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.run.run import Run

__all__ = ["late_layout"]

# What the run that is on has been told late, and how to give the watching up.
_told = ""
_watching: list[Callable[[], None]] = []


def late_layout(run: Run) -> str:
    """Return the layout that became known when the run was on; empty where none did."""
    return _told if run is current_run() else ""


def _watch(run: Run) -> None:
    """Have what becomes known from now on written down."""
    global _told
    _told = ""
    if run._settings is None or run._settings["layout_given"]:
        return
    for module, owner, function in (
        (MESHES, "DeviceMesh", "__init__"),
        (MEGATRON, "", "initialize_model_parallel"),
        (ENGINES, "DeepSpeedEngine", "__init__"),
    ):
        swap = functools.partial(_swap, module, owner, function)
        _watching.append(when_imported(module, swap))


def _swap(module: str, owner: str, function: str) -> None:
    holder: Any = sys.modules.get(module)
    holder = getattr(holder, owner, None) if owner else holder
    original = getattr(holder, function, None)
    # In a compiled function nothing of this is left.
    compiling = getattr(sys.modules.get("torch.compiler"), "is_compiling", None)
    if original is None or compiling is None:
        return

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if not compiling() and is_recording():
            if module == MESHES:
                note_mesh(args[0])
            _tell()
        return result

    def restore() -> None:
        if getattr(holder, function, None) is watched:
            setattr(holder, function, original)

    setattr(holder, function, watched)
    _watching.append(restore)


def _tell() -> None:
    global _told
    run = current_run()
    if run is None or run._settings is None:
        return
    layout = find_layout(every_mesh=False)
    if layout and layout not in {_told, run._settings["layout"]}:
        _told = layout
        metadata("layout", layout)


def _give_up(run: Run) -> None:
    if run._settings is not None and not run._settings["layout_given"] and run._number:
        _tell()
    while _watching:
        _watching.pop()()


register(Hook("the parallel layout", _watch, _give_up))
