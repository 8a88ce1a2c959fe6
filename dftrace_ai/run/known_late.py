"""What becomes known of this process among the ranks while its run is on: its layout, its rank."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import dftrace_ai._native as _native
from dftrace_ai.run.emitting import is_recording, metadata
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.run.late_import import when_imported
from dftrace_ai.run.layout import ENGINES, MEGATRON, MESHES, find_layout, note_mesh
from dftrace_ai.run.ranks import (
    GROUPS,
    OF_GROUPS,
    RankInfo,
    host_of_groups,
    is_told_better,
    number_of,
    rank_of_groups,
)
from dftrace_ai.run.run import RUN_VARIABLE, current_run, run_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from dftrace_ai.run.native_types import RunSettings
    from dftrace_ai.run.run import Run

# What the run that is on has been told late, and how to give the watching up.
_told = ""
_told_rank: RankInfo | None = None
_parents_rank: RankInfo | None = None
_watching: list[Callable[[], None]] = []


def late_layout(run: Run) -> str:
    """Return the layout that became known when the run was on; empty where none did."""
    return _told if run is current_run() else ""


def _watch(run: Run) -> None:
    """Have what becomes known from now on written down."""
    global _told, _told_rank, _parents_rank
    _told, _told_rank, _parents_rank = "", None, None
    if run._settings is None:
        return
    if not run._settings["rank_given"]:
        _watching.append(when_imported(GROUPS, _watch_groups))
    if run._settings["layout_given"]:
        return
    for module, owner, function in (
        (MESHES, "DeviceMesh", "__init__"),
        (MEGATRON, "", "initialize_model_parallel"),
        (ENGINES, "DeepSpeedEngine", "__init__"),
    ):
        swap = functools.partial(_swap, module, owner, function)
        _watching.append(when_imported(module, swap))


def _watch_groups() -> None:
    # Through here goes the group of all ranks, whoever makes it, and by whatever name.
    groups: Any = sys.modules.get(GROUPS)
    update = getattr(groups, "_update_default_pg", None)
    if update is None:
        return

    @functools.wraps(update)
    def updated(*args: Any, **kwargs: Any) -> Any:
        result = update(*args, **kwargs)
        if is_recording():
            _tell_rank()
        return result

    _put(groups, "_update_default_pg", update, updated)


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

    _put(holder, function, original, watched)


def _put(holder: Any, name: str, original: Any, watched: Any) -> None:
    def restore() -> None:
        if getattr(holder, name, None) is watched:
            setattr(holder, name, original)

    setattr(holder, name, watched)
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


def _tell_rank() -> None:
    """Tell the rank in the first group of all ranks, which stays when that is made anew."""
    global _told_rank
    run = current_run()
    found = rank_of_groups()
    if run is None or run._settings is None or found is None or _told_rank is not None:
        return
    if not is_told_better(found, RankInfo(**run._settings["rank"])):  # type: ignore[arg-type]
        return
    _told_rank = found
    # What the file says at once, in each of its parts; and what its last line, and the spool, say.
    metadata("rank", f"{found.rank} of {found.world_size}", in_every_part=True)
    _know_own_place(run._settings, found)
    _leave_to_children(run._settings, found)


def _leave_to_children(settings: RunSettings, found: RankInfo) -> None:
    """Have programs that are started from now on find the rank in their environment."""
    variables = settings["inheritable"]
    before, told = (
        variables[RUN_VARIABLE],
        run_text(settings, found.rank or 0, found.world_size or 1),
    )
    if os.environ.get(RUN_VARIABLE) == before:
        os.environ[RUN_VARIABLE] = variables[RUN_VARIABLE] = told


def expect_rank(rank: int | None, world_size: int | None) -> None:
    """Have the spool say the rank that this process will be in the group that it waits for."""
    run = current_run()
    if run is None or run._settings is None or run._settings["rank_given"] or _told_rank:
        return
    if rank is None or world_size is None or not 0 <= rank < world_size < 2**31:
        return
    found = RankInfo(rank, world_size, number_of(os.environ.get("LOCAL_RANK")), OF_GROUPS)
    if is_told_better(found, RankInfo(**run._settings["rank"])):  # type: ignore[arg-type]
        _know_own_place(run._settings, found)


def _know_own_place(settings: RunSettings, found: RankInfo) -> None:
    """Know the rank, and tell other hosts what is open, as no worker does."""
    # Late: it is there wherever a run has settings.
    from dftrace_ai.run.core_settings import live_file_ms

    often_ms = live_file_ms(settings["live_file_s"], found.world_size, host_of_groups())
    _know_place(found, often_ms)


def _know_place(found: RankInfo, live_file_ms: int = 0) -> None:
    rank, world_size, local_rank = (-1 if number is None else number for number in found[:3])
    _native.know_place(rank, world_size, local_rank, live_file_ms)


def _give_up(run: Run) -> None:
    if run._settings is not None and not run._settings["layout_given"] and run._number:
        _tell()
    # Behind its records, of which a child may have none: a rank of its own would have come first.
    if _parents_rank is not None and _told_rank is None:
        _know_place(_parents_rank)
    while _watching:
        _watching.pop()()


def _leave_to_parent(_: Run) -> None:
    global _told_rank, _parents_rank
    _told_rank, _parents_rank = None, _told_rank or _parents_rank


register(Hook("the place among the ranks", _watch, _give_up, _leave_to_parent))
