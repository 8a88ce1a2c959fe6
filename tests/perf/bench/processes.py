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


class Worker:
    """A process at the other end of two pipes: a line of JSON goes there, a line comes back."""

    def __init__(
        self, python: str | None, arguments: list[str], workdir: Path, extra: dict[str, str]
    ) -> None:
        self.version = ""
        self.missing = "" if python else "no interpreter with the peers"
        self.process: subprocess.Popen[str] | None = None
        self._log = workdir / "worker.log"
        if python is None:
            return
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [python, "-m", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=workdir,
                env=environment(extra),
            )

    def greet(self) -> None:
        """Wait until the process has set itself up, or says that its package is missing."""
        if self.process is None:
            return
        hello = self._answer()
        self.version = hello.get("version", "")
        self.missing = hello.get("missing", "")
        if self.missing and self.process is not None:
            self.process.wait()
            self.process = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for the answer; a dead process answers `missing`."""
        if self.process is None or self.process.stdin is None:
            return {"missing": self.missing}
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        return self._answer()

    def close(self) -> dict[str, Any]:
        """End the process; return what it says at its end."""
        answer = self.ask({"close": True})
        if self.process is not None:
            self.process.wait()
        return answer

    def kill(self) -> None:
        """End it in any case."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process and self.process.stdout else ""
        if not line:
            return self._died()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _died(self) -> dict[str, Any]:
        code = self.process.wait() if self.process else None
        lines = self._log.read_text(errors="replace").strip().splitlines()
        self.missing = f"process ended with {code}: {lines[-1] if lines else 'no message'}"
        self.process = None
        return {"missing": self.missing}
