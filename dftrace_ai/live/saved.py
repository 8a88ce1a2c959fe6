"""Snapshots as files, so that those of several hosts can be looked at together."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dftrace_ai.errors import TraceError, readable
from dftrace_ai.live.model import (
    SNAPSHOT_FORMAT,
    HiddenProcess,
    RankStatus,
    Snapshot,
    WaitedFor,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic import TypeAdapter

# Some thousand processes take a few megabytes.
MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024

# Enough to see what a file is.
HEAD_BYTES = 4096


@functools.cache
def snapshot_adapter() -> TypeAdapter[Snapshot]:
    """Return what checks and reads snapshots."""
    from pydantic import TypeAdapter

    return TypeAdapter(Snapshot)


def snapshot_json(snapshot: Snapshot) -> bytes:
    """Return a snapshot as JSON; `read_snapshot` reads it back.

    Example::

        Path("node7.json").write_bytes(snapshot_json(snapshot(["out"])))
    """
    import orjson

    return orjson.dumps(snapshot, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_snapshot(path: Path) -> Snapshot:
    """Read a file that `snapshot_json` or ``dftrace top --once --json`` has written.

    Args:
        path: the file.

    Returns:
        The snapshot; every value in it was checked.

    Raises:
        TraceError: the file cannot be read or is no snapshot of a known version.
    """
    import orjson
    from pydantic import ValidationError

    text = _text_of(path)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise TraceError(
            f"{path}: neither a directory nor a spool nor a snapshot, "
            "which `dftrace top --once --json` writes"
        ) from error
    if not isinstance(value, dict) or value.get("kind") != "dftrace snapshot":
        raise TraceError(f"{path}: no snapshot, which `dftrace top --once --json` writes")
    if value.get("format") != SNAPSHOT_FORMAT:
        raise TraceError(
            f"{path}: snapshot version {value.get('format')!r:.20} is not known to this dftrace "
            f"(it reads version {SNAPSHOT_FORMAT})"
        )
    try:
        # Of what orjson makes of it: no numbers beyond 64 bits, and one value for a key.
        return snapshot_adapter().validate_json(orjson.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise TraceError(f"{path}: damaged snapshot: {place}: {first['msg']}") from error


def _text_of(path: Path) -> bytes:
    if not path.is_file():
        raise TraceError(f"{path}: not a regular file")
    with readable(path), path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        if not head.lstrip().startswith(b"{"):
            return b""
        text = head + file.read(MAX_SNAPSHOT_BYTES)
    if len(text) > MAX_SNAPSHOT_BYTES:
        raise TraceError(f"{path}: larger than any snapshot")
    return text


def merged(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Put snapshots together: each process once, by the newest look at it.

    What one of them could only tell to be on another host is hidden no longer if one was taken
    there.
    """
    newest = max(snapshots, key=lambda one: one.taken_ns)
    processes: dict[tuple[str, str], RankStatus] = {}
    hidden: dict[str, HiddenProcess] = {}
    waited: dict[str, list[WaitedFor]] = {}
    for one in sorted(snapshots, key=lambda one: one.taken_ns):
        waited |= {host: [] for host in {each.host for each in one.processes}}
        for each in one.waited_for:
            waited.setdefault(each.host, []).append(each)
        for process in one.processes:
            other = processes.get(process.identity)
            if other is None or _known_at(other) < _known_at(process):
                processes[process.identity] = process
        for unseen in one.hidden:
            hidden[unseen.spool.rpartition("/")[2]] = unseen
    seen = {spool for _, spool in processes}
    return replace(
        newest,
        processes=list(processes.values()),
        hidden=[process for spool, process in hidden.items() if spool not in seen],
        problems=[problem for one in snapshots for problem in one.problems],
        waited_for=sorted(
            (each for found in waited.values() for each in found), key=lambda each: -each.alone_s
        ),
    )


def _known_at(process: RankStatus) -> int:
    """When a process was looked at, or, where nobody could, told of itself."""
    return process.present_ns if process.told_s is None else process.seen_ns


def plain(value: Any) -> Any:
    """Return a value of JSON without what JSON writers refuse: lone surrogates, vast numbers."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value
