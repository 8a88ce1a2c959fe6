"""The interpreters that take part, the environment they run in, and one-shot processes."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE_PARENT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Homes:
    """The interpreters: one with dftrace_ai and torch, one with the peers (None: no peers)."""

    main: str
    peers: str | None

    def python(self, home: str) -> str | None:
        """Return the interpreter of a home."""
        return self.main if home == "main" else self.peers

    def peer_packages(self) -> str | None:
        """Return the peers' package directory, for a process that needs torch and a peer."""
        if self.peers is None:
            return None
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        found = subprocess.run([self.peers, "-c", code], capture_output=True, text=True, check=True)
        return found.stdout.strip()


def environment(extra: dict[str, str]) -> dict[str, str]:
    """Return this environment without what would steer a tracer, with the suite importable."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("DFTRACE", "OTEL_", "PYTHON"))
    }
    # One thread for the numeric libraries: on few cores their pools would drown what is measured.
    kept |= {"PYTHONPATH": str(PACKAGE_PARENT), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    return kept | extra


def run_once(
    python: str | None,
    arguments: list[str],
    workdir: Path,
    extra: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Run one process to its end and return the JSON object on its last line, or `{"missing": why}`."""
    if python is None:
        return {"missing": "no interpreter with the peers"}
    done = subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        cwd=workdir,
        env=environment(extra or {}),
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        said = done.stderr.strip().splitlines()
        return {"missing": f"ended with {done.returncode}: {said[-1] if said else 'no message'}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def probe(
    python: str | None,
    module: str,
    *arguments: object,
    extra: dict[str, str] | None = None,
    within: str | None = None,
) -> dict[str, Any]:
    """Run a module of the bench to its end, with a directory for it as the last argument."""
    with tempfile.TemporaryDirectory(
        prefix="bench-", dir=within, ignore_cleanup_errors=True
    ) as scratch:
        command = ["-m", f"bench.{module}", *map(str, arguments), scratch]
        return run_once(python, command, Path(scratch), extra)
