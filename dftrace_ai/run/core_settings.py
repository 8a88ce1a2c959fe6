"""What the native core is told at the start of a run, and what children are told of it.

Among it are facts of the header: of the host, the job and the process. `HeaderFacts` of
`dftrace_ai.trace_format.header_and_footer` names all of them, with their types.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from typing import IO, TYPE_CHECKING, NamedTuple

import dftrace_ai._native as _native
from dftrace_ai._version import __version__
from dftrace_ai.config.settings import SETTINGS, Config
from dftrace_ai.config.values import layout_text
from dftrace_ai.errors import LogDirectoryError
from dftrace_ai.masking import masked_words
from dftrace_ai.run.emitting import time_us
from dftrace_ai.run.layout import find_layout
from dftrace_ai.run.ranks import (
    OF_PARENT,
    RankInfo,
    find_rank,
    is_on_one_host,
    is_told_better,
    rank_of_groups,
    restart_of,
    spans_hosts,
)
from dftrace_ai.run.run import (
    LAUNCH_VARIABLE,
    OF_JOB,
    RUN_VARIABLE,
    SETTINGS_VARIABLE,
    launch_of,
    run_text,
)
from dftrace_ai.trace_format.file_names import TRACE_SUFFIXES
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import FrameType

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
    by_groups = rank_of_groups()
    if by_groups is not None and is_told_better(by_groups, found):
        found = by_groups
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
        "live_file_s": config.live_file_s,
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
        "rank_given": config.rank is not None,
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
        RUN_VARIABLE: run_text(settings),
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
        settings["run"], offset, *place = environ[RUN_VARIABLE].split("-")
        settings["clock"]["epoch_offset_ns"] = int(offset)
        if place:  # the parent's, which its group alone knew
            settings["rank"] = RankInfo(int(place[0]), int(place[1]), None, OF_PARENT)._asdict()
        settings["rank_given"] = False
        settings["inheritable"] = {
            name: environ[name] for name in (RUN_VARIABLE, SETTINGS_VARIABLE)
        }
        rank = find_rank()
        is_worker = rank.rank is None or rank.rank == settings["rank"]["rank"]
        if rank.rank is not None:
            settings["rank"] = rank._asdict()
        settings["layout"] = _layout_of(environ) or settings["layout"]
        return _of_this_process(settings, shown_pid=0, is_worker=is_worker)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _layout_of(environ: Mapping[str, str]) -> str:
    """Return the layout that a launcher has given this child; one that is none is left out."""
    try:
        return str(layout_text(environ.get("DFTRACE_LAYOUT", "")))
    except ValueError:
        return ""


def _of_this_process(
    settings: RunSettings, shown_pid: int, *, is_worker: bool = False
) -> RunSettings:
    host = _native.host_name()
    rank = settings["rank"]["rank"]
    clock = settings["clock"]
    # Another machine has another clock.
    same_machine = bool(clock["boot"]) and clock["boot"] == _native.marker_place().partition(" ")[0]
    title = "python" if rank is None else f"rank {rank}"
    if settings["layout"]:
        title += f" {settings['layout']}"
    command = command_line(mask_secrets=settings["mask_secrets"])
    lines = _lines(settings)
    settings["made_in"] = os.getpid()
    settings["of_process"] = {
        "host": host,
        "shown_pid": shown_pid,
        "epoch_offset_ns": clock["epoch_offset_ns"] if same_machine else 0,
        "process_name_json": json_text(f"{title} · {host}"),
        "header_json": "".join(
            f",{json_text(key)}:{json_text(value)}"
            for key, value in (process_facts(settings, command) | lines.facts).items()
        ),
        **lines.told_to_core,
        "live_file_ms": 0 if is_worker else live_file_ms(settings["live_file_s"]),
        "cwd_json": json_text(short_text(_current_directory())),
        "command_json": json_text(" ".join(command)),
    }
    return settings


LIVE_FILE_S = 5.0


def live_file_ms(wanted_s: float | None, world_size: int | None = None, meets_at: str = "") -> int:
    """Return how often a rank tells other hosts what is open, 0 for never: by the setting."""
    if wanted_s is None:
        wanted_s = LIVE_FILE_S if spans_hosts(os.environ, world_size, meets_at) else 0.0
    return round(wanted_s * 1000)


class _Lines(NamedTuple):
    """What a process is told of the sampling of lines, and what its header says of it."""

    told_to_core: CoreSettings
    facts: dict[str, Fact]


def _lines(settings: RunSettings) -> _Lines:
    wanted = settings["core"]["lines_hz"]
    # Dumps tell where threads stand, whether or not that is sampled.
    if not (wanted or settings["dump_signal"] or settings["core"]["flight_recorder"]):
        return _Lines({"lines_roots": ""}, {})
    refused = _why_refused()
    if refused:
        if wanted:
            tell(logging.WARNING, "lines_hz: no lines of the program are recorded: %s", refused)
        return _Lines({"lines_hz": 0, "lines_roots": ""}, {"lines_refused": refused})
    return _Lines({"lines_roots": _roots()}, {"lines_hz": int(wanted)} if wanted else {})


# Whose code lies below a directory, as lines of a trace tell it.
PROGRAM, LIBRARY, STANDARD_LIBRARY, RECORDER = range(4)

_OF_LIBRARIES = ("/site-packages", "/dist-packages")


def _why_refused() -> str:
    """Try it on this thread: why stacks cannot be read here, empty where they are read right."""
    try:
        reader = _native.StackReader()
    except RuntimeError as error:
        return str(error)
    samples, known = reader.sample(1, True), _stack_of(sys._getframe())
    if len(samples) != 1:
        return "a stack that stands still was not read"
    names, nodes = reader.names(), reader.nodes()
    read = []
    node = samples[0][2]
    while node >= 0:
        node, code, line = nodes[node]
        read.append((*names[code][:2], line))
    # Of a stack that is deeper the outer part is read.
    return (
        ""
        if read == known[-_FRAMES:]
        else "the interpreter is not as it is known: stacks are read wrong"
    )


def _stack_of(frame: FrameType | None) -> list[tuple[str, str, int]]:
    found = []
    while frame is not None:
        code = frame.f_code
        name = code.co_name
        if sys.version_info >= (3, 11):
            name = code.co_qualname
        found.append((_as_read(name), _as_read(code.co_filename), frame.f_lineno))
        frame = frame.f_back
    return found


_LETTERS = 1000  # of a name or a path, as much as is read of them
_FRAMES = 1000


def _as_read(text: str) -> str:
    known = text[:_LETTERS]
    if known.isascii():
        return known
    return "".join("\ufffd" if "\ud800" <= one <= "\udfff" else one for one in known)


def _roots() -> str:
    """Return the directories below which files are told, each after the digit of its owner."""
    found = {
        os.path.dirname(os.path.dirname(__file__)): RECORDER,
        os.path.dirname(os.__file__): STANDARD_LIBRARY,
    }
    for entry in ("", *sys.path):
        # Links are meant, and a directory that was deleted has no files.
        place = (entry or _current_directory()).rstrip("/")
        if place:
            found.setdefault(place, LIBRARY if place.endswith(_OF_LIBRARIES) else PROGRAM)
    return "\n".join(f"{owner}{place}" for place, owner in found.items() if "\n" not in place)


def _current_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""  # it was deleted


# Facts of the header.

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = str.maketrans({**{chr(code): f"\\u{code:04x}" for code in range(32)}, **_SHORT})


def json_text(value: object, *, ascii_only: bool = False) -> str:
    """Return a value as JSON on one line, by Python's own module but for its import.

    A text never ends with a backslash, by which Perfetto would lose the rest of the file.
    `ascii_only`: other letters are escaped, halves of surrogates among them.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _json_string(value, ascii_only)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(json_text(one, ascii_only=ascii_only) for one in value)}]"
    if isinstance(value, dict):
        parts = (
            f"{_json_string(name, ascii_only)}:{json_text(inner, ascii_only=ascii_only)}"
            for name, inner in value.items()
        )
        return f"{{{','.join(parts)}}}"
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _json_string(value: str, ascii_only: bool) -> str:
    text = value.translate(_ESCAPES)
    if value.endswith("\\"):
        text = text[:-1] + "u005c"
    if ascii_only and not text.isascii():
        text = "".join(one if one.isascii() else _units(one) for one in text)
    return f'"{text}"'


def _units(letter: str) -> str:
    data = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


MEMORY = "/proc/meminfo"
TOPOLOGY = "/sys/devices/system/cpu"


def host_facts() -> dict[str, Fact]:
    """Return system, machine and processors, and memory and cores where the kernel tells them."""
    system = os.uname()
    facts: dict[str, Fact] = {
        "system": f"{system.sysname} {system.release}",
        "machine": system.machine,
        "cpus": os.cpu_count(),
    }
    found = {"memory_bytes": _memory_bytes(), "cores": _cores()}
    return facts | {name: count for name, count in found.items() if count}


def _memory_bytes() -> int:
    for line in _content(MEMORY).splitlines():
        name, _, rest = line.partition(b":")
        words = rest.split()
        if name == b"MemTotal" and words and words[0].isdigit():
            return int(words[0]) * 1024
    return 0


def _cores() -> int:
    try:
        names = os.listdir(TOPOLOGY)  # noqa: PTH208 - of names, and no pathlib
    except OSError:
        names = []
    processors = [one for one in names if one[:3] == "cpu" and one[3:].isdigit()]
    # Which ones share a core, told by each of them.
    shared = {_content(f"{TOPOLOGY}/{one}/topology/thread_siblings_list") for one in processors}
    return len(shared - {b""})


def _content(path: str) -> bytes:
    """Return what a file holds; nothing where a container hides it."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - one for each processor
            return file.read()
    except OSError:
        return b""


MOST_LETTERS_OF_A_JOB = 200

# Scheduler, and the variable that has its name of the job; the first that is set wins.
_JOBS = (
    ("slurm", "SLURM_JOB_ID"),
    ("ray", "RAY_JOB_ID"),
    ("kubeflow", "KUBEFLOW_TRAINING_JOB_ID"),
    ("kubernetes", "JOB_NAME"),
)
_NODES = ("SLURMD_NODENAME", "NODE_NAME", "K8S_NODE_NAME", "RAY_NODE_ID")


def job_facts(environ: Mapping[str, str]) -> dict[str, str | int]:
    """Return what the header says of the job."""
    facts: dict[str, str | int] = {}
    for scheduler, variable in _JOBS:
        job = _named(environ, variable)
        # Other programs call something JOB_NAME, too.
        if job and (scheduler != "kubernetes" or environ.get("KUBERNETES_SERVICE_HOST")):
            facts["scheduler"], facts["job_id"] = scheduler, job
            break
    run = _named(environ, "TORCHELASTIC_RUN_ID")
    if run and run != "none":
        facts["run_id"] = run
    node = next(filter(None, (_named(environ, variable) for variable in _NODES)), "")
    if node:
        facts["node"] = node
    restarts = restart_of(environ)
    if restarts is not None:
        facts["restarts"] = restarts
    launch = _bounded(launch_of(environ))
    if launch:
        facts["launch"] = launch
    return facts


def _named(environ: Mapping[str, str], variable: str) -> str:
    return _bounded(environ.get(variable, ""))


def _bounded(text: str) -> str:
    return text.strip()[:MOST_LETTERS_OF_A_JOB].encode("utf-8", "replace").decode("utf-8")


def process_facts(settings: RunSettings, command: list[str]) -> dict[str, Fact]:
    """Return all that the header says of this process, beside what the core knows."""
    facts: dict[str, Fact] = {
        "version": __version__,
        **{key: value for key, value in settings["rank"].items() if value is not None},
        **({"layout": settings["layout"]} if settings["layout"] else {}),
        **job_facts(os.environ),
        "python": ".".join(map(str, sys.version_info[:3])),
        "cmdline": command,
    }
    if settings["data_dir"] is not None:
        facts["data_dir"] = short_text(settings["data_dir"])
    facts.update(settings["host_facts"])
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["torch"] = str(getattr(torch, "__version__", "unknown"))
    return facts


# Of a text about this process: a spool has 32 KiB for all that it is described by.
MOST_LETTERS = 4000
MOST_BYTES = 6 * 1024


def command_line(*, mask_secrets: bool) -> list[str]:
    """Return the words that started this process; in one, and cut, where there are too many."""
    words = [_text(word) for word in sys.orig_argv]
    if mask_secrets:
        words = masked_words(words)
    fits = len(json_text(words).encode()) <= MOST_BYTES
    return words if fits else [short_text(" ".join(words))]


def short_text(text: str) -> str:
    """Return as much of a text as there is room for, which letters take up to six times of."""
    text = _text(text)[:MOST_LETTERS]
    while (size := len(json_text(text).encode())) > MOST_BYTES:
        text = text[: len(text) * MOST_BYTES // size]
    return text


def _text(value: str) -> str:
    """Replace what is not Unicode text (the file system may hold any bytes)."""
    return value.encode("utf-8", "replace").decode("utf-8")
