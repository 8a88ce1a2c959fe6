"""How single settings are read from what was given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from dftrace_ai.config.rows import FALSE_WORDS, TRUE_WORDS
from dftrace_ai.trace_format.file_names import TRACE_SUFFIXES

# Those that cannot be handled, and those whose default action a crash needs.
UNUSABLE_SIGNALS = {"SIGKILL", "SIGSTOP", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGCHLD"}


def gzip_or_none(text: str) -> str:
    """Return the compression that a truth value of dftracer's variable means."""
    word = text.lower()
    return "gzip" if word in TRUE_WORDS else "none" if word in FALSE_WORDS else text


def level_name(value: object) -> object:
    """Accept level names in any case, and the short form WARN."""
    if not isinstance(value, str):
        return value
    name = value.strip().upper()
    return "WARNING" if name == "WARN" else name


def signal_name(value: object) -> object:
    """Accept names of signals that can be handled, with and without SIG, in any case."""
    if not isinstance(value, str):
        return value
    import signal

    name = value.strip().upper()
    name = name if name.startswith("SIG") else f"SIG{name}"
    if name not in signal.Signals.__members__ or name in UNUSABLE_SIGNALS:
        raise ValueError("no signal that can be handled")
    return name


def octal_mode(value: object) -> object:
    """Accept an octal mode: as text, and as the number that 0640 is in YAML."""
    if isinstance(value, str):
        digits = value.strip().lower().removeprefix("0o")
        value = int(digits, 8) if digits and set(digits) <= set("01234567") else -1
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if value & ~0o666 or value & 0o600 != 0o600:
        raise ValueError("no mode of a file that its owner reads and writes and nobody executes")
    return f"{value:04o}"


def lower(value: object) -> object:
    """Accept words in any case."""
    return value.strip().lower() if isinstance(value, str) else value


def prefix(value: object) -> object:
    """Turn what the user wrote into a prefix: directory and stem, without a trace suffix."""
    if not isinstance(value, (str, os.PathLike)):
        return value
    text = os.fspath(value)
    if not isinstance(text, str):
        return value
    if not text.strip() or "\0" in text:
        raise ValueError("empty, or holds a NUL character")
    if text.endswith(os.sep):
        text += "trace"
    for suffix in TRACE_SUFFIXES:
        if text.endswith(suffix) and Path(text).name != suffix:
            text = text.removesuffix(suffix)
            break
    path = _at_home(text)
    if not path.name or path.name == "..":
        raise ValueError("names a directory and no file stem")
    return path


def directory(value: object) -> object:
    """Accept the path of a directory, in which ``~`` is the home directory."""
    if not isinstance(value, (str, os.PathLike)):
        return value
    text = os.fspath(value)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise ValueError("empty, or holds a NUL character")
    return _at_home(text)


def _at_home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # a user of a container may have none, nor HOME
        raise ValueError("there is no home directory for '~'") from error


def names(value: object) -> object:
    """Accept names as a list, too."""
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value


def named(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a text of settings wants, and those with a minus before them."""
    each = [name.strip() for name in text.split(",") if name.strip()]
    without = frozenset(name[1:] for name in each if name.startswith("-"))
    return frozenset(name for name in each if not name.startswith("-")), without


def layout_text(value: object) -> object:
    """Accept ``dp=0,pp=1``, and a mapping of dimensions to ranks; each dimension once."""
    if isinstance(value, Mapping):
        value = ",".join(f"{name}={rank}" for name, rank in value.items())
    if not isinstance(value, str):
        return value
    pairs = [[half.strip() for half in part.partition("=")[::2]] for part in value.split(",")]
    for name, rank in pairs:
        # The spool of a process has to have room for all of them, twice.
        well_named = 0 < len(name) <= 64 and all(one.isalnum() or one in "_-" for one in name)
        if not well_named or not (rank.isascii() and rank.isdigit() and len(rank) < 10):
            raise ValueError("no layout")
    if len({name for name, _ in pairs}) < len(pairs) or len(pairs) > 16:
        raise ValueError("no layout")
    return ",".join(f"{name}={int(rank)}" for name, rank in pairs)


def step_range(value: object) -> object:
    """Accept ``A:B``, ``A:`` and ``:B`` of whole numbers, where A is less than B."""
    if not isinstance(value, str):
        return value
    first, colon, end = (part.strip() for part in value.partition(":"))
    whole = all(not part or (part.isascii() and part.isdigit()) for part in (first, end))
    if not colon or not whole or (end and int(end) <= int(first or 0)):
        raise ValueError("no range of steps")
    return f"{first}:{end}"
