"""Commands without streams, or with such as end early, are full or narrow: no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from analysis.trace_lines import small_trace
from conftest import clean_environment

# Each in a child of its own that has closed some of its streams, as `>&-` does.
PROGRAM = """
import os, sys
from dftrace_ai.cli import main

for words in sys.argv[2:]:
    for closed in ((1,), (2,), (0, 1, 2)):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(write, 9)
            for number in closed:
                os.close(number)
                setattr(sys, ("stdin", "stdout", "stderr")[number], None)
            sys.argv = ["dftrace", *words.split(), sys.argv[1]]
            try:
                main()
            except SystemExit as end:
                os._exit(end.code or 0)
            except BaseException as error:
                os.write(9, repr(error).encode())
                os._exit(99)
        os.close(write)
        said = os.read(read, 1000)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(words, closed, status, said)
        sys.stdout.flush()
"""


# Without a query.
WRONG = "sql --csv"


def test_a_closed_stream_is_no_fault(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    trace.footer(dropped=12)
    path = trace.write(tmp_path / "t.pfw.gz")
    before = path.read_bytes()
    commands = ["summary", "why --json", WRONG, "info", "validate", "report --json"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, path, *commands],
        env=clean_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line for line in done.stdout.splitlines() if line.endswith("b''")]
    statuses = {row.rpartition(" b")[0] for row in rows}
    assert statuses == {
        f"{words} {closed} {2 if words == WRONG else 0}"
        for words in commands
        for closed in ("(1,)", "(2,)", "(0, 1, 2)")
    }, done.stdout
    assert path.read_bytes() == before


# Each in a child, at a terminal of 40 columns, or with an output that takes nothing.
ENDING_PROGRAM = """
import fcntl, json, os, pty, re, struct, sys, termios, traceback
from dftrace_ai.cli import main

def child(output, errors, words):
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.environ["TERM"] = "xterm"
    sys.argv = ["dftrace", *words]
    try:
        main()
        sys.stdout.flush()
    except SystemExit as end:
        os._exit(end.code or 0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
        os._exit(99)
    os._exit(0)

for words in json.loads(sys.argv[1]):
    for kind in ("reader gone", "full", "narrow"):
        telling, told = os.pipe()
        if kind == "narrow":
            reading, output = pty.openpty()
            fcntl.ioctl(output, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
        elif kind == "full":
            reading, output = None, os.open("/dev/full", os.O_WRONLY)
        else:
            gone, output = os.pipe()
            os.close(gone)
            reading = None
        number = os.fork()
        if not number:
            child(output, told, words)
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


def test_an_output_that_ends_early_is_full_or_narrow(tmp_path: Path) -> None:
    path = str(small_trace().write(tmp_path / "t.pfw.gz"))
    commands = [["summary", path], ["validate", path], ["why", path], ["info", path]]
    commands += [["--help"], ["--version"], ["info"], ["sql", "--help"]]
    done = subprocess.run(
        [sys.executable, "-c", ENDING_PROGRAM, json.dumps(commands)],
        env={name: value for name, value in clean_environment().items() if name != "COLUMNS"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 3 * len(commands)
    full = "dftrace: the output cannot be written: No space left on device\n"
    for command, kind, status, wide, errors in rows:
        assert (status, errors) == ((2, full) if kind == "full" else (0, "")), (command, kind)
        # A line of text is broken by the terminal; a table would not be one any more.
        assert wide <= 40 or command == "validate", command
