"""The program that `dftrace run` becomes: its command line, and whether its Python will record."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dftrace_ai.errors import DftraceError
from dftrace_ai.wording import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["command_line", "why_silent"]

START_FILE = "dftrace_ai.pth"
LOOK = "import sys; sys.exit('_dftrace_start' not in sys.modules)"
LOOK_LIMIT_S = 20.0

PYTHON_NAME = re.compile(r"python(\d+(\.\d+)?)?")
FIRST_LINE_BYTES = 256
# Of Python's own options: what ends them, and those whose value may be the next word.
ENDS = ("-c", "-m", "-")
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def command_line(words: Sequence[str]) -> list[str]:
    """Return the program to start and its arguments.

    Args:
        words: a script, ``-m`` and a module, or ``-c`` and code, for the Python of `dftrace`; or
            ``--`` and a program; each with its arguments.

    Raises:
        DftraceError: a script is given that is evidently none of Python's.
    """
    if words[0] == "--":
        return list(words[1:])
    _refuse_what_is_no_script(words[0])
    return [sys.executable, *words]


def _refuse_what_is_no_script(word: str) -> None:
    # What is neither there nor a program Python complains of itself.
    if word.startswith("-"):
        return
    mend = f"what starts Python in the end goes behind --: dftrace run -- {quoted(word)} ..."
    if not Path(word).exists():
        if shutil.which(word):
            raise DftraceError(f"run: there is no script {quoted(word)} here; {mend}")
        return
    interpreter = _interpreter_of(word)
    if _first_bytes(word).startswith(b"\x7fELF") or (interpreter and not _is_python(interpreter)):
        raise DftraceError(f"run: {quoted(word)} is no Python script; {mend}")


def _first_bytes(path: str) -> bytes:
    if not Path(path).is_file():
        return b""
    try:
        with Path(path).open("rb") as file:
            return file.read(FIRST_LINE_BYTES)
    except OSError:
        return b""


def _interpreter_of(path: str) -> list[str]:
    """Return the words of the first line of a script that name its interpreter, if it has such."""
    first = _first_bytes(path).partition(b"\n")[0]
    if not first.startswith(b"#!"):
        return []
    try:
        words = shlex.split(os.fsdecode(first[2:]))
    except ValueError:
        return []
    if words and Path(words[0]).name == "env":
        del words[0]
        while words and (words[0] == "-S" or "=" in words[0]):
            del words[0]
    return words


def _is_python(words: Sequence[str]) -> bool:
    return bool(words) and PYTHON_NAME.fullmatch(Path(words[0]).name) is not None


def why_silent(command: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Tell why a program records nothing, where that can be seen before it is started.

    Args:
        command: the program and its arguments.
        environ: with which it will be started, that has it record.

    Returns:
        A sentence; None where its Python will load us, or it is something else that may start one.
    """
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        return None
    words = [program, *command[1:]]
    if not _is_python(words):
        words = _interpreter_of(program)
        if not _is_python(words):
            return None
    python = shutil.which(words[0], path=environ.get("PATH")) or words[0]
    options = _options_of_python(words[1:])
    loads = python == sys.executable and not options and _is_loaded_here()
    if not loads:  # or from a place that one there names
        look = [python, *options, "-c", LOOK]
        try:
            found = subprocess.run(  # noqa: S603 - the interpreter that is about to be started
                look,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=LOOK_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None  # the program itself will tell
        loads = found.returncode != 1
    if loads:
        return None
    how = " ".join([python, *options])
    return (
        f"nothing will be recorded: {quoted(how)} does not load dftrace_ai when it starts; "
        "it has to be installed in the site-packages of that Python, which -S leaves out"
    )


def _options_of_python(words: Sequence[str]) -> list[str]:
    options: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word.startswith(ENDS[:2]) or word == ENDS[2]:
            break
        options.append(word)
        if word in WITH_VALUE:
            options += [value for value in [next(rest, None)] if value is not None]
    return options


def _is_loaded_here() -> bool:
    places = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] if site.ENABLE_USER_SITE else []),
    ]
    return any(Path(place, START_FILE).exists() for place in places)
