"""What the native core is told at the start of a run, and what children are told of it."""

from __future__ import annotations

import errno
import os
from typing import IO, TYPE_CHECKING

import dftrace_ai._native as _native
from dftrace_ai._version import __version__
from dftrace_ai.config.model import SETTINGS, Config
from dftrace_ai.config.values import layout_text
from dftrace_ai.errors import LogDirectoryError
from dftrace_ai.run.emitting import time_us
from dftrace_ai.run.header_facts import (
    command_line,
    host_facts,
    json_text,
    process_facts,
    short_text,
)
from dftrace_ai.run.layout import find_layout
from dftrace_ai.run.ranks import RankInfo, find_rank, is_on_one_host
from dftrace_ai.run.run import (
    LAUNCH_VARIABLE,
    OF_JOB,
    RUN_VARIABLE,
    SETTINGS_VARIABLE,
    launch_of,
)
from dftrace_ai.trace_format.file_names import TRACE_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dftrace_ai.run.native_types import CoreSettings, Fact, RunSettings


# Twenty days: whoever starts within them takes the same base, and the times stay below 4e12
# microseconds, where three decimals are exact in every reader that goes through a double.
TIME_BASE_SECONDS = 20 * 24 * 3600

# Settings that a child does not have from its parent.
OF_ONE_PROCESS = frozenset({"rank", "world_size", "layout", "process_id"})


def check_directory(config: Config) -> None:
    """Make sure that trace files, and the spool, can be written where they shall go."""
    directory = absolute(config.log_file).parent
    _check_writable(directory, "trace", "log_file or DFTRACE_LOG_FILE")
    _check_length(config)
    if config.spool_dir is not None:
        spool_directory = absolute(config.spool_dir)
        _check_writable(spool_directory, "spool", "spool_dir or DFTRACE_SPOOL_DIR")


def _check_writable(directory: Path, what: str, setting: str) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _nameless(directory) as probe:
            _native.reserve(probe.fileno(), _native.SPOOL_UNIT_BYTES)
    except OSError as error:
        advice = (
            "raise the limit on the size of files (RLIMIT_FSIZE, ulimit -f)"
            if error.errno == errno.EFBIG
            else f"choose another place with {setting}"
        )
        raise LogDirectoryError(
            error.errno,
            f"the {what} cannot be written: {error.strerror}; {advice}",
            str(directory),
        ) from error


def _nameless(directory: Path) -> IO[bytes]:
    try:
        return open(directory, "rb+", buffering=0, opener=_open_nameless)
    except OSError:
        # The file system has no files without a name; or what is wrong is found again.
        import tempfile

        return tempfile.TemporaryFile(dir=directory, prefix=".dftrace-")


def _open_nameless(directory: str, flags: int) -> int:
    return os.open(directory, flags | os.O_TMPFILE | os.O_EXCL, 0o600)


def _check_length(config: Config) -> None:
    # What is put behind it, at its longest.
    suffix = max(TRACE_SUFFIXES, key=len)
    longest = f"{config.log_file.name}-{_native.host_name()}-{2**22}-9.part99999{suffix}"
    place = absolute(config.log_file).parent
    most = os.pathconf(place, "PC_NAME_MAX")
    excess = len(os.fsencode(longest)) - most
    if excess > 0:
        raise LogDirectoryError(
            errno.ENAMETOOLONG,
            f"the names of the trace's files would have up to {most + excess} bytes, and may have "
            f"{most}; make the last part of log_file, or DFTRACE_LOG_FILE, {excess} bytes shorter",
            str(config.log_file),
        )


def absolute(path: Path) -> Path:
    """Return a path that stays the same when the training changes its directory."""
    if path.is_absolute():
        return path
    try:
        return path.cwd() / path  # with its links, which are meant
    except FileNotFoundError as error:
        raise LogDirectoryError(
            error.errno,
            "the current directory is gone; give an absolute path with log_file or "
            "DFTRACE_LOG_FILE, and spool_dir",
            str(path),
        ) from error


def run_settings(config: Config, inherited: RunSettings | None = None) -> RunSettings:
    """Work the configuration out into what the native core needs."""
    found = find_rank()
    rank = RankInfo(
        found.rank if config.rank is None else config.rank,
        found.world_size if config.world_size is None else config.world_size,
        found.local_rank,
        found.launcher,
    )
    # By the system and not by the module `time`, which a test may have set to any day.
    now = time_us() // 1_000_000
    boot = _native.marker_place().partition(" ")[0]
    settings: RunSettings = {
        "version": __version__,
        "run": inherited["run"] if inherited else _run_id(),
        "prefix": str(absolute(config.log_file)),
        "made_in": 0,
        "spool_dir": "" if config.spool_dir is None else str(absolute(config.spool_dir)),
        "io": config.io,
        "mask_secrets": config.mask_secrets,
        "dump_signal": config.dump_signal,
        "core": {
            **_told_to_core(config),
            "time_base_us": inherited["core"]["time_base_us"]
            if inherited
            else (now - now % TIME_BASE_SECONDS) * 1_000_000,
            "block_bytes": _block_bytes(config),
        },
        "of_process": {},
        "config": _for_children(config),
        "rank": rank._asdict(),
        "layout": config.layout or find_layout(every_mesh=True),
        "layout_given": config.layout is not None,
        "data_dir": config.data_dir,
        "host_facts": host_facts(),
        "clock": inherited["clock"]
        if inherited and inherited["clock"]["boot"] == boot
        else {"boot": boot, "epoch_offset_ns": _native.epoch_offset_ns()},
        "inheritable": {},
    }
    settings["inheritable"] = _inheritable(settings)
    return _of_this_process(settings, shown_pid=config.process_id or 0)


def core_settings(settings: RunSettings) -> CoreSettings:
    """Return all that `dftrace_ai._native.start` takes."""
    return {
        **settings["core"],
        **settings["of_process"],
        "run": settings["run"],
        "prefix": settings["prefix"],
        "spool_dir": settings["spool_dir"],
    }


def _told_to_core(config: Config) -> CoreSettings:
    return {
        row.core: row.to_core(getattr(config, name)) for name, row in SETTINGS.items() if row.core
    }


def _inheritable(settings: RunSettings) -> dict[str, str]:
    # Apart, since the C library keeps every value that a variable ever had: the long one, which is
    # the same for each run with these settings, it keeps once.
    clock = settings["clock"]
    same = {**settings, "run": "", "clock": {**clock, "epoch_offset_ns": 0}}
    return {
        RUN_VARIABLE: f"{settings['run']}-{clock['epoch_offset_ns']}",
        SETTINGS_VARIABLE: json_text(same, ascii_only=True),
    }


def _for_children(config: Config) -> dict[str, Fact]:
    """The settings as they were given, for a child to hold its own against."""
    return {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in config._values_given().items()
        if name not in OF_ONE_PROCESS
    }


def _block_bytes(config: Config) -> int:
    # A file is closed between two blocks: small ones make it end near its limit.
    if config.max_file_bytes is None:
        return config.write_buffer_bytes
    return min(config.write_buffer_bytes, config.max_file_bytes // 4)


def _run_id() -> str:
    """The same for all ranks of a job where the launcher has a name for it, else random."""
    environ = os.environ
    variables = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE")
    names = {variable: environ.get(variable, "") for variable in variables}
    is_rank = find_rank().rank is not None
    launch = launch_of(environ)
    if launch and (is_rank or any(names.values())):
        # Launchers and schedulers have one name for all that is run in an allocation, or again.
        is_of_all = not is_rank or launch.startswith(OF_JOB) or is_on_one_host(environ)
        own = {LAUNCH_VARIABLE: launch}
        names = own | names if is_of_all else names | own
    for variable, name in names.items():
        if name and name != "none":
            import hashlib

            restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
            return hashlib.sha256(f"{variable}={name}/{restart}".encode()).hexdigest()[:32]
    return os.urandom(16).hex()


def settings_of_child(environ: Mapping[str, str]) -> RunSettings | None:
    """Read what the parent left in the environment; None where it is of another version."""
    import json

    try:
        settings: RunSettings = json.loads(environ[SETTINGS_VARIABLE])
        if settings["version"] != __version__:
            return None
        settings["run"], offset = environ[RUN_VARIABLE].split("-")
        settings["clock"]["epoch_offset_ns"] = int(offset)
        settings["inheritable"] = {
            name: environ[name] for name in (RUN_VARIABLE, SETTINGS_VARIABLE)
        }
        rank = find_rank()
        if rank.rank is not None:
            settings["rank"] = rank._asdict()
        settings["layout"] = _layout_of(environ) or settings["layout"]
        return _of_this_process(settings, shown_pid=0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _layout_of(environ: Mapping[str, str]) -> str:
    """Return the layout that a launcher has given this child; one that is none is left out."""
    try:
        return str(layout_text(environ.get("DFTRACE_LAYOUT", "")))
    except ValueError:
        return ""


def _of_this_process(settings: RunSettings, shown_pid: int) -> RunSettings:
    host = _native.host_name()
    rank = settings["rank"]["rank"]
    clock = settings["clock"]
    # Another machine has another clock.
    same_machine = bool(clock["boot"]) and clock["boot"] == _native.marker_place().partition(" ")[0]
    title = "python" if rank is None else f"rank {rank}"
    if settings["layout"]:
        title += f" {settings['layout']}"
    command = command_line(mask_secrets=settings["mask_secrets"])
    settings["made_in"] = os.getpid()
    settings["of_process"] = {
        "host": host,
        "shown_pid": shown_pid,
        "epoch_offset_ns": clock["epoch_offset_ns"] if same_machine else 0,
        "process_name_json": json_text(f"{title} · {host}"),
        "header_json": "".join(
            f",{json_text(key)}:{json_text(value)}"
            for key, value in process_facts(settings, command).items()
        ),
        "cwd_json": json_text(short_text(_current_directory())),
        "command_json": json_text(" ".join(command)),
    }
    return settings


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # it was deleted
