"""Facts that a process puts into the header of its trace: of its host, its job and itself.

`HeaderFacts` of `dftrace_ai.trace_format.header_and_footer` names all of them, with their types.
Apart from `core_settings`, so that a new fact has one place.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from dftrace_ai._version import __version__
from dftrace_ai.masking import masked_words
from dftrace_ai.run.ranks import restart_of
from dftrace_ai.run.run import launch_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.run.native_types import Fact, RunSettings

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
