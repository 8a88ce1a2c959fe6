"""`dftrace info`: versions, what was built in, environment and settings; or the facts of traces."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer evaluates the annotations
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from dftrace_ai import recorder
from dftrace_ai.analysis.texts import time_text
from dftrace_ai.cli.long_tables import All, left_out_told, worst
from dftrace_ai.cli.reading import Reading
from dftrace_ai.cli.shared_options import PATHS_HELP, Recover, Run, json_option
from dftrace_ai.cli.terminal import (
    NAME_LETTERS,
    console,
    print_all,
    rows_told,
    shown,
    shown_progress,
    write_json,
)
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from dftrace_ai.analysis.trace_facts import FileFacts, TraceFacts

FAULTS_FOUND = 1
# Of a path or a process so many letters are on one line.
PATH_ROOM = 16
FIRST_FIGURE = 4

Fact: TypeAlias = str | float | list[str] | tuple[str, ...] | None
"""A version, a variable, a setting."""

PACKAGES = (
    "pydantic",
    "orjson",
    "zstandard",
    "psutil",
    "typer",
    "rich",
    "numpy",
    "duckdb",
    "viztracer",
    "torch",
)


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATHS]...", help=f"{PATHS_HELP} Without any: of this installation."
        ),
    ] = None,
    json: Annotated[bool, json_option("Print JSON instead of a table.")] = False,
    every: All = False,
    run: Run = None,
    recover: Recover = True,
) -> None:
    """Show versions, compression libraries, clock, environment and the settings in effect.

    Those that are not as by default stand once more, with the variable or file they come from.

    With PATHS: which processes the traces are of, when they began, how long that was, how they
    ended and what they count, without unpacking what lies between their first and last lines.

    Example: dftrace info out

    Exit status 1 when the native core is missing or the settings are not accepted; with PATHS
    when files of a directory were skipped, 2 when nothing can be read.
    """
    if paths:
        _show_traces(paths, run, as_json=json, recover=recover, every=every)
        return
    facts = collect()
    if json:
        write_json({"kind": "dftrace installation", **facts})
    else:
        from rich import box
        from rich.table import Table

        out = console()
        for heading, rows in facts.items():
            table = Table(title=heading, title_justify="left", show_header=False, box=box.SIMPLE)
            table.add_column(overflow="fold")
            table.add_column(overflow="fold")
            for name, value in rows.items():
                lines = str(value).split("\n") if name == "error" else [value]
                table.add_row(shown(name), "\n".join(map(shown, lines)))
            out.print(table)
    if "error" in facts["native core"] or "error" in facts["settings"]:
        raise typer.Exit(FAULTS_FOUND)


def _show_traces(
    paths: list[Path], run: str | None, *, as_json: bool, recover: bool, every: bool
) -> None:
    from dftrace_ai.analysis.trace_facts import facts_of

    reading = Reading(paths, recover=recover, run=run or "all", takes_merged=True)
    with shown_progress("reading"):
        facts = facts_of(reading.traces)
    if as_json:
        write_json(replace(facts, notes=(*reading.waiting_notes(), *facts.notes)))
    else:
        out = console()
        files = worst(facts.files, _trouble, every=every)
        print_all(out, [*_table(files, out.width), _told(facts, len(facts.files) - len(files))])
    reading.warn(f"skipped: {skipped}" for skipped in facts.skipped)
    reading.warn(facts.notes)
    reading.end(failed=bool(facts.skipped))


def _table(files: Iterable[FileFacts], width: int) -> Iterator[RenderableType]:
    from dftrace_ai.analysis.reading.reach import local_text

    names = ("file", "process", "began", "ended", "length", "events", "bytes", "lost")
    rows = [
        (
            shown(file.path, NAME_LETTERS),
            shown(_process(file), NAME_LETTERS),
            "" if file.began_at is None else local_text(file.began_at),
            shown(_ending(file), NAME_LETTERS),
            "" if file.length_us is None else time_text(file.length_us * 1e3),
            "" if file.events is None else f"{file.events:,}",
            f"{file.bytes:,}",
            f"{file.losses.get('dropped', 0):,}",
        )
        for file in files
    ]
    return rows_told(
        names, [at >= FIRST_FIGURE for at in range(len(names))], rows, width, PATH_ROOM
    )


WORST_FILES: Final = "files that did not end in order or lost something first, then the largest"


def _trouble(file: FileFacts) -> tuple[bool, int, int]:
    """How much is wrong with a file."""
    failed = file.error or file.signal or file.exit_status or file.write_error
    is_odd = bool(failed) or bool(file.losses) or file.state != "complete"
    return is_odd, sum(file.losses.values()), file.bytes


def _ending(file: FileFacts) -> str:
    ended = "by its loader" if file.ended == "loader" else file.ended or file.state
    ended += f", {file.error}" if file.error else ""
    ended += f", signal {file.signal}" if file.signal else ""
    ended += f", status {file.exit_status}" if file.exit_status else ""
    return f"{ended}, not written: {file.write_error}" if file.write_error else ended


def _process(file: FileFacts) -> str:
    rank = "" if file.rank is None else f"rank {file.rank}"
    of_world = f" of {file.world_size}" if rank and file.world_size else ""
    process = "" if file.pid is None else f"process {file.pid}"
    host = "" if file.host is None else f"on {file.host}"
    part = "" if not file.part else f"part {file.part}"
    job = "" if file.job_id is None else f"{file.scheduler or 'job'} {file.job_id}"
    words = (rank + of_world, file.layout, f"{process} {host}".strip(), job, part)
    return ", ".join(word for word in words if word)


def _told(facts: TraceFacts, left_out: int) -> str:
    told = counted(len(facts.files), "file")
    told += f" of {counted(facts.runs, 'run')}" if facts.runs else ""
    if any(file.events is not None for file in facts.files):
        told += f", {counted(facts.events, 'event')} by their closing lines"
    else:
        told += "; no closing line counts events"
    made = [file.generated for file in facts.files if file.generated]
    nobody = (
        f"{counted(len(made), 'file')} made by dftrace generate: {shown(made[0])}" if made else ""
    )
    cut = left_out_told(left_out, WORST_FILES) if left_out else ""
    return "\n".join(filter(None, (cut, told, nobody, shown(facts.clocks.told))))


def collect() -> dict[str, dict[str, Fact]]:
    """Gather the facts, by heading; a part that cannot be had is an ``error`` in its place."""
    return {
        "versions": _versions(),
        "native core": _native(),
        "environment": _environment(),
        "settings": _settings(),
        "sources": _sources(),
        "plug-ins": _plugins(),
    }


def _versions() -> dict[str, Fact]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, Fact] = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }

    def version_or_none(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    return found | {package: version_or_none(package) for package in ("dftrace-ai", *PACKAGES)}


def _plugins() -> dict[str, Fact]:
    """Say what other packages bring by entry points of ours; nothing of them is loaded."""
    from importlib.metadata import entry_points

    told: dict[str, Fact] = {
        f"{one.group} {one.name}": f"{one.value}"
        + (f" ({one.dist.name} {one.dist.version})" if one.dist else "")
        for group in entry_points().groups
        if group.startswith("dftrace_ai.")
        for one in entry_points(group=group)
    }
    return dict(sorted(told.items())) or {"dftrace_ai.*": "none installed"}


def _native() -> dict[str, Fact]:
    if lacking := recorder.lack():
        return {"error": lacking}
    try:
        import dftrace_ai._native as _native
    except ImportError as error:
        return {"error": f"not built, nothing can be recorded: {error}"}
    return dict(_native.build_info())


def _environment() -> dict[str, Fact]:
    return {
        name: os.environ[name]
        for name in sorted(os.environ)
        if name.startswith(("DFTRACE_", "DFTRACER_"))
    } or {"DFTRACE_*": "none set"}


def _settings() -> dict[str, Fact]:
    from dftrace_ai.config.sources import load_config

    try:
        plain = (str, float, int, list, tuple, type(None))
        return {
            name: value if isinstance(value, plain) else str(value) for name, value in load_config()
        }
    except ConfigError as error:
        return {"error": str(error)}


def _sources() -> dict[str, Fact]:
    """Say where settings and options come from that are not as by default."""
    from dftrace_ai.config.project_file import look, project_file
    from dftrace_ai.config.sources import settings_given

    try:
        found = project_file()
        given, _ = settings_given(None, os.environ, {})
    except ConfigError as error:
        return {"error": str(error)}
    told: dict[str, Fact] = {
        "project file": look().disbelieved or "none found" if found is None else str(found.path)
    }
    told |= {name: one.origin for name, one in given.items()}
    for command, options in found.options.items() if found is not None else ():
        for option, (words, origin) in options.items():
            each = [words] if isinstance(words, str) else words
            told[f"{command} --{option}"] = f"{', '.join(each)} ({origin})"
    return told
