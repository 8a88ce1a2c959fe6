"""What a project says for all its people: `dftrace.toml`, or `[tool.dftrace]` of pyproject.toml.

The file comes with a clone, so it may not say all that a user may: nothing of it writes outside of
its folder, loads code, opens files to others or tells who a process is.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dftrace_ai import system
from dftrace_ai.config import values
from dftrace_ai.config.rows import MESSAGE_LETTERS, Given, nearest
from dftrace_ai.config.settings import SETTINGS
from dftrace_ai.errors import ConfigError
from dftrace_ai.wording import in_short, quoted, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import date, time

Toml: TypeAlias = "bool | int | float | str | date | time | list[Toml] | dict[str, Toml]"
"""A value of TOML."""

NAMES: Final = ("dftrace.toml", "pyproject.toml")

OF_PROJECT: Final = frozenset(
    {
        *("enabled", "log_file", "compression", "compression_level", "timestamps", "args", "ids"),
        *("io", "write_buffer_bytes", "flush_interval_ms", "overflow", "max_file_bytes"),
        *("max_files", "flight_recorder", "flight_seconds", "max_arg_bytes", "system_counters_s"),
        *("lines_hz", "lines_files", "live_file_s", "log_level", "summary", "auto_parts"),
        *("auto_steps", "auto_depth", "auto_modules", "auto_device", "auto_io"),
    }
)
"""Settings that it may give. Whoever adds one asks what a hostile clone would make of it."""

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "why": ("threshold", "fail-on"),
    "ranks": ("threshold", "fail-on"),
    "whatif": ("threshold", "fail-on"),
    "report": ("threshold",),
    "diff": ("fail-if",),
}
"""Options that it may give, by their commands."""

SEVERITIES: Final = ("warning", "critical")

MOST_BYTES: Final = 1 << 20
# TOML's reader keeps each beginning of a dotted key, so memory grows with the square of its dots.
MOST_BEGINNINGS: Final = 4_000_000
# To read the whole takes longer than all else here, and most have no such table.
HAS_TABLE: Final = re.compile(
    rb"""tool["']?[ \t]*\.[ \t]*["']?dftrace\b"""  # a header, or a key of the root
    rb"""|^[ \t]*["']?dftrace["']?[ \t]*[.=]"""  # a key of [tool]
    rb"""|^[ \t]*["']?tool["']?[ \t]*="""  # an inline table
    rb"""|^[^=\n#]*\\[uU]""",  # a key whose letters are escaped
    re.MULTILINE,
)


class Option(NamedTuple):
    """What an option is, as somebody types it, and the words that name its source."""

    words: str | list[str]
    origin: str


class ProjectFile(NamedTuple):
    """What a project's file says."""

    path: Path
    settings: dict[str, Given]
    options: dict[str, dict[str, Option]]
    """By command and option."""


class Looked(NamedTuple):
    """What was found of it from a directory upwards: where it is, or why it is not believed."""

    path: Path | None = None
    said: dict[str, Toml] | None = None
    disbelieved: str = ""


def project_file(start: Path | None = None) -> ProjectFile | None:
    """Return what the file says in this directory or above; None where none is believed.

    ConfigError: it is no TOML, a key is unknown or not for a project, or a value is not accepted.
    """
    looked = look(start)
    if looked.path is None or looked.said is None:
        return None
    settings: dict[str, Given] = {}
    options: dict[str, dict[str, Option]] = {}
    name = quoted(str(looked.path))
    for key, value in looked.said.items():
        if key in OPTIONS:
            options[key] = _options(name, key, value)
        elif key in OF_PROJECT:
            settings[key] = Given(_value(key, value, looked.path), f"{name}: {key}")
        elif key in SETTINGS:
            raise ConfigError(
                f"{name}: {key} is not for a project to say, but for who runs it: "
                f"set {SETTINGS[key].variable}"
            )
        else:
            raise _unknown(name, key, (*OF_PROJECT, *OPTIONS))
    return ProjectFile(looked.path, settings, options)


def options_of(command: str, start: Path | None = None) -> dict[str, Option]:
    """Return what the file says of a command's options; errors as those of `project_file`."""
    found = project_file(start) if command in OPTIONS else None
    return {} if found is None else found.options.get(command, {})


def look(start: Path | None = None) -> Looked:
    """Look for the nearest file, up to the root of the repository or the home directory."""
    try:
        places = _believed_places(start or Path.cwd())
        for place in places:
            for name in NAMES:
                looked = _read(place / name)
                if looked is not None:
                    return looked
    except OSError:  # the directory is gone, or may not be looked into
        pass
    return Looked()


def _believed_places(start: Path) -> Iterator[Path]:
    """Yield directories from the inside out in which nobody else can have put a file."""
    home = None
    with contextlib.suppress(OSError, ValueError):
        home = os.stat(os.path.expanduser("~"))  # noqa: PTH111, PTH116 - Path.home may raise
    device = os.stat(start).st_dev  # noqa: PTH116 - as below
    for place in (start, *start.parents):
        facts = os.stat(place)  # noqa: PTH116 - a Path's is slower
        if facts.st_dev != device or not _is_ours(facts):
            return
        yield place
        if os.path.lexists(place / ".git") or (home and os.path.samestat(facts, home)):
            return


def _is_ours(facts: os.stat_result) -> bool:
    return facts.st_uid in {system.user(), 0} and not facts.st_mode & stat.S_IWOTH


def _read(path: Path) -> Looked | None:
    """Return what a file says; None where there is none, or it has no table of ours."""
    try:
        number = os.open(path, system.TO_READ | system.O_NOFOLLOW)
    except OSError:  # there is none, or it is a link, which leads to who knows whose file
        return None
    facts = os.fstat(number)
    if not stat.S_ISREG(facts.st_mode):
        os.close(number)
        return None
    with os.fdopen(number, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if path.name != NAMES[0] and not HAS_TABLE.search(data):
        return None
    if not _is_ours(facts):
        whose = "everybody may write it" if facts.st_mode & stat.S_IWOTH else "it is another user's"
        return Looked(disbelieved=f"{quoted(str(path))} is not read: {whose}")
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{quoted(str(path))}: more than {MOST_BYTES:,} bytes")
    said: Toml | None = _parsed(data, path)
    for name in () if path.name == NAMES[0] else ("tool", "dftrace"):
        said = said.get(name) if isinstance(said, dict) else None
    return Looked(path, said) if isinstance(said, dict) else None


def _parsed(data: bytes, path: Path) -> dict[str, Toml]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    _bound(data, path)
    try:
        return dict(tomllib.loads(data.decode()))
    except (ValueError, RecursionError) as error:
        problem = shortened(quoted(str(error)), MESSAGE_LETTERS)
        raise ConfigError(f"{quoted(str(path))}: not TOML: {problem}") from error


def _bound(data: bytes, path: Path) -> None:
    """Refuse what takes much memory to read; dots in texts count, which seldom have so many."""
    of_table = beginnings = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        dots = line.count(b".")
        if line.lstrip().startswith(b"["):
            of_table = max(of_table, dots)
        beginnings += (dots + 1) * (dots + of_table)
        if beginnings > MOST_BEGINNINGS:
            raise ConfigError(f"{quoted(str(path))}: too many dots in its keys, to line {number:,}")


def _unknown(where: str, key: object, known: tuple[str, ...]) -> ConfigError:
    shown = in_short(key, MESSAGE_LETTERS)
    hint = nearest(str(key)[:MESSAGE_LETTERS], sorted(known))
    return ConfigError(f"{where}: unknown key {shown}{hint}")


def _value(key: str, value: object, path: Path) -> object:
    if key == "log_file":
        return _place(value, path)
    missing = SETTINGS[key].optional and isinstance(value, str) and value.lower() == "none"
    return None if missing else value


def _place(value: object, path: Path) -> str:
    """Return where traces go, below the folder of the file; links are followed first."""
    root = path.parent.resolve()
    text = value if isinstance(value, str) else ""
    place = os.path.join(root, text)
    try:
        # As the setting reads it: of "." the stem is the folder's name, and traces lie beside it.
        prefix = values.prefix(place)
        below = isinstance(prefix, Path) and prefix.parent.resolve().is_relative_to(root)
        # Since 3.13 resolve takes links that lead in a circle; all else is for who writes there.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.stat(os.path.dirname(place))  # noqa: PTH116 - a Path's is slower
    except (ValueError, OSError, RuntimeError):  # it has no stem; links that lead in a circle
        below = False
    if not text or text.startswith("~") or not below:
        raise ConfigError(
            f"{quoted(str(path))}: log_file {in_short(value, MESSAGE_LETTERS)} is not accepted; "
            f"accepted: a path below {quoted(str(root))} whose last part is a file stem, such as "
            "'out/trace'"
        )
    return place


def _options(file: str, command: str, table: object) -> dict[str, Option]:
    where = f"{file}: [{command}]"
    if not isinstance(table, dict):
        raise ConfigError(f"{where} is no table of {' and '.join(OPTIONS[command])}")
    read: dict[str, Callable[[object], str | list[str]]]
    read = {"fail-on": _severity, "fail-if": _conditions, "threshold": _thresholds}
    found: dict[str, Option] = {}
    for key, value in table.items():
        if key not in OPTIONS[command]:
            raise _unknown(where, key, OPTIONS[command])
        try:
            found[key] = Option(read[key](value), f"{where} {key}")
        except ValueError as error:
            raise ConfigError(
                f"{where} {key}: {in_short(value, MESSAGE_LETTERS)} is not accepted; "
                f"accepted: {error}"
            ) from None
    return found


def _severity(value: object) -> str:
    if value not in SEVERITIES:
        raise ValueError(" or ".join(map(repr, SEVERITIES)))
    return str(value)


def _conditions(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("a list of conditions, such as ['step p50 > +5%']")
    return value


def _thresholds(value: object) -> list[str]:
    """Return shares by name as ``--threshold`` has them: ``input=0.1,0.25``."""
    told = []
    for name, numbers in value.items() if isinstance(value, dict) else ((value, None),):
        each = numbers if isinstance(numbers, list) else [numbers]
        if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in each):
            raise ValueError("a number by name, or two, such as {input = [0.1, 0.25]}")
        told.append(f"{name}={','.join(map(str, each))}")
    return told
