"""`dftrace ui` in a process of its own, asked as a browser asks it."""

from __future__ import annotations

import gzip
import http.client
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from analysis.trace_lines import TraceLines
from conftest import clean_environment
from safety.commands import COMMAND

LIMIT_S = 300.0


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A page that is served, by its address."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self.address, self.port = address, place.port
        self.token = place.path.strip("/")

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """Asks for a path of the server, whatever is in it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            given = {"Host": f"127.0.0.1:{self.port}"} | {
                name.replace("_", "-"): value for name, value in headers.items()
            }
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders()
            found = connection.getresponse()
            body = found.read()
        finally:
            connection.close()
        told = dict(found.getheaders())
        if told.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        return Answer(found.status, told, body)

    def get(self, what: str, /, **asked: object) -> Answer:
        """Asks for what the page asks for."""
        return self.ask(f"/{self.token}/{what}?{urlencode(asked, doseq=True)}")

    def json(self, what: str, /, **asked: object) -> Any:
        """What the page is answered with."""
        answer = self.get(f"api/{what}", **asked)
        assert answer.status == 200, answer
        return answer.json

    def rows(self) -> dict[str, Any]:
        """The rows of the list, by their runs."""
        return {row["id"]: row for row in self.json("runs")["runs"]}

    def read(self) -> dict[str, Any]:
        """The same, when all of them have been read."""
        rows: dict[str, Any] = until(
            self.rows,
            lambda rows: all(row["fresh"] and row["state"] != "reading" for row in rows.values()),
        )
        return rows


def until(look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Looks until what is seen is as it should be."""
    deadline = time.monotonic() + LIMIT_S
    while not holds(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)
    return seen


def ranks(
    folder: Path, count: int, late: int | None = None, steps: int = 60, pid: int = 4000
) -> Path:
    """A synchronous job; of one rank the forward takes four times as long as that of the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(count):
        trace = TraceLines(pid + rank, rank=rank, world_size=count)
        at = 1_000_000_000
        for step in range(steps):
            own = (20 if rank == late else 5) * 1_000_000 + 1000 * (rank + step % 7)
            trace.span("step", "pipeline", at, 30_000_000, step=step)
            trace.span("forward", "compute", at + 1000, own, step=step)
            trace.span("all_reduce", "comm", at + 2000 + own, 28_000_000 - own, step=step)
            at += 31_000_000
        trace.footer()
        trace.write(folder / f"t-host-{pid + rank}.pfw.gz")
    return folder


@contextmanager
def serving(root: Path, cache: Path, *words: str, **env: str) -> Iterator[tuple[Served, str]]:
    """Serves the runs below a directory; also what the command said when it is over."""
    environment = {**clean_environment(), "XDG_CACHE_HOME": str(cache), **env}
    command = [*COMMAND, "ui", str(root), "--no-browser", "--json", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, process.communicate()
            address = json.loads(line)["address"]
            said = []
            while "Ctrl+C" not in (words_said := process.stderr.readline()):
                said.append(words_said)
            yield Served(address), "".join(said)
        finally:
            process.terminate()
            process.communicate(timeout=LIMIT_S)
