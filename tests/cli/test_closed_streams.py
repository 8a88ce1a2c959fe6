"""Commands without streams, or with such as end early, are full or narrow: no traceback."""

from __future__ import annotations

import array
import fcntl
import json
import signal
import subprocess
import sys
import termios
from pathlib import Path

from analysis.trace_lines import TraceLines, small_trace
from conftest import clean_environment
from live.programs import until

# Each in a child: with streams that are closed, as `>&-` does, at a terminal of 40 columns, or with an
# output that takes nothing.
PROGRAM = """
import fcntl, gc, importlib, json, os, pty, re, struct, sys, termios, traceback
from dftrace_ai.cli import main

# What each child would load for itself.
for name in ("summary", "why", "report", "validate", "info"):
    importlib.import_module(f"dftrace_ai.cli.{name}")
import numpy, orjson
import dftrace_ai.analysis.summary.report, dftrace_ai.analysis.why.verdict, dftrace_ai.analysis.report
gc.freeze()

def child(words, output, errors, closed):
    os.dup2(output, 1)
    os.dup2(errors, 9)
    os.dup2(errors, 2)
    for number in closed:
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    os.environ["TERM"] = "xterm"
    sys.argv = ["dftrace", *words]
    try:
        main()
        if sys.stdout:
            sys.stdout.flush()
    except SystemExit as end:
        os._exit(end.code or 0)
    except BaseException:
        os.write(9, traceback.format_exc().encode())
        os._exit(99)
    os._exit(0)

for words, kinds in json.loads(sys.argv[1]):
    for kind in kinds:
        telling, told = os.pipe()
        reading = None
        if kind == "narrow":
            reading, output = pty.openpty()
            fcntl.ioctl(output, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        elif kind == "full":
            output = os.open("/dev/full", os.O_WRONLY)
        else:
            gone, output = os.pipe()
            if kind == "reader gone":
                os.close(gone)
        number = os.fork()
        if not number:
            child(words, output, told, kind if isinstance(kind, list) else ())
        os.close(output)
        os.close(told)
        said = b""
        try:
            while reading is not None and (piece := os.read(reading, 65536)):
                said += piece
        except OSError:
            pass  # how Linux tells that nobody has the other side open any more
        errors = b""
        while piece := os.read(telling, 65536):
            errors += piece
        status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
        shown = re.sub("\x1b[^a-zA-Z]*[a-zA-Z]", "", said.decode())
        wide = max(map(len, shown.splitlines()), default=0)
        print(json.dumps([words[0], kind, status, wide, errors.decode()]), flush=True)
"""


def test_streams_that_are_closed_end_early_are_full_or_narrow(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.footer(dropped=12)
    path = trace.write(tmp_path / "t.pfw.gz")
    before = path.read_bytes()
    closed = [[1], [2], [0, 1, 2]]
    ending = ["reader gone", "full", "narrow"]
    calls = [
        (["summary", str(path)], [*closed, *ending]),
        (["why", "--json", str(path)], [*closed, *ending]),
        # Without a query.
        (["sql", "--csv", str(path)], closed),
        (["report", "--json", str(path)], closed[2:]),
        (["validate", str(path)], [*closed[:1], *ending]),
        (["info", str(path)], ending),
        (["--help"], ending),
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(calls)],
        env={name: value for name, value in clean_environment().items() if name != "COLUMNS"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == sum(len(kinds) for _, kinds in calls)
    full = "dftrace: the output cannot be written: No space left on device\n"
    for command, kind, status, wide, errors in rows:
        assert "Traceback" not in errors, (command, kind, errors)
        wrong = command == "sql" or kind == "full"
        assert status == (2 if wrong else 0), (command, kind, errors)
        if kind == "full":
            assert errors == full, command
        # A line of text is broken by the terminal; a table would not be one any more.
        assert wide <= 40 or command in {"validate", "why"}, command
    assert path.read_bytes() == before


def test_who_was_stopped_while_it_writes_writes_the_rest(tmp_path: Path) -> None:
    """As by Ctrl+Z before a pager; also where containers have PYTHONUNBUFFERED."""
    trace = TraceLines()
    for number in range(1000):
        trace.span(f"n{number}", "compute", number * 100, 90)
    trace.footer()
    path = trace.write(tmp_path / "t.pfw.gz")
    command = [sys.executable, "-m", "dftrace_ai.cli", "summary", "--json", str(path)]
    environ = {**clean_environment(), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        room = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
        until(lambda: _waiting_in(pipe), lambda held: held == room)
        process.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text(), lambda told: ") T " in told)
        process.send_signal(signal.SIGCONT)
        told = json.loads(process.stdout.read())
    assert (process.returncode, len(told["spans"])) == (0, 1000)


def _waiting_in(pipe: int) -> int:
    held = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    return held[0]
