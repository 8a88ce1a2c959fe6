"""Work on traces in an interpreter of its own, which costs a training neither memory nor risk."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import IO

# The paths of this process, as its own: the same package is found, and nothing that lies in the
# working directory.
PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from importlib import import_module
sys.exit(getattr(import_module(sys.argv[2]), sys.argv[3])(sys.argv[4:]))
"""

# What would have a child take part in the run that is traced.
OURS = ("DFTRACE_", "DFTRACER_")
# How this interpreter was started: which of it a child has in common, and as what. Not `-S`: what
# `site` does besides finding paths may be how this package is found.
FLAGS = (
    ("isolated", "-I"),
    ("ignore_environment", "-E"),
    ("no_user_site", "-s"),
    ("safe_path", "-P"),
    ("dont_write_bytecode", "-B"),
)
# Libraries of linear algebra start a thread for each processor, which is of no use here.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Who reads one file after the other uses the same memory again: the library of C keeps it, and does
# not have the kernel clear it anew for each column.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": f"{1 << 26}", "MALLOC_TRIM_THRESHOLD_": f"{1 << 26}"}
# A process that waits for a file system that does not answer cannot be ended.
GONE_S = 1.0
SAID_LETTERS = 300


class Answer(NamedTuple):
    """How a function ended: its exit status, None where it took too long; and what it printed."""

    status: int | None
    output: str
    said: str

    @property
    def reason(self) -> str:
        """Why it failed, by its last line; not escaped."""
        last = self.said.strip().rpartition("\n")[2]
        return last[:SAID_LETTERS] or f"exit status {self.status}"


def interpreter() -> list[str]:
    """Return how this interpreter is started again; an OSError where it does not know itself."""
    if not sys.executable:
        raise OSError("the interpreter does not know its own path")
    options = [flag for name, flag in FLAGS if getattr(sys.flags, name, 0)]
    return [sys.executable, *options]


def paths() -> str:
    """Return where this interpreter imports from, as JSON for another one."""
    return json.dumps([os.path.abspath(os.fspath(path)) for path in sys.path])  # noqa: PTH100


def clean_environment() -> dict[str, str]:
    """Return the environment without what would have a child take part in a run."""
    return {k: v for k, v in os.environ.items() if not k.startswith(OURS)}


def answer_of(module: str, function: str, words: list[str], limit_s: float) -> Answer:
    """Call a function of this package in another interpreter, and wait for it so many seconds.

    It gets the words and returns an exit status. Without a process it is an OSError.
    """
    # Nothing of it is left behind, but where the operating system cannot end it.
    process = begun(module, function, words, subprocess.PIPE)
    try:
        output, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Answer(None, "", "")
    finally:
        ended(process)
    return Answer(process.returncode, _text(output), _text(said))


def begun(
    module: str,
    function: str,
    words: Iterable[str],
    output: int | IO[bytes],
    given: int = subprocess.DEVNULL,
    files: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Begin what `answer_of` waits for; `output` is a file for all it says, or a pipe.

    Where it is `given` a pipe, only that has its words: who writes to it ends it, and no key does.
    It has some open `files` of this process, by the same numbers.
    """
    talks = given == subprocess.PIPE
    return subprocess.Popen(  # noqa: S603 - this interpreter, and a program of ours
        [*interpreter(), "-c", PROGRAM, paths(), module, function, *words],
        stdin=given,
        stdout=output,
        stderr=None if talks else output,
        start_new_session=talks,
        pass_fds=files,
        env={**KEPT_MEMORY, **clean_environment(), **ONE_THREAD},
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    """Have a process that `begun` has returned ended, whatever it is at, and close its pipes."""
    if process.returncode is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GONE_S)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")
