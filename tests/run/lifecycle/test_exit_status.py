"""A program ends with the status that it has without us, whatever ends it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import clean_environment, read_all, trace_files

# Each ending is that of a main program: it is forked off at the end of the script and goes on to its
# last line. So one interpreter tries them all.
PROGRAM = '''
import gc, json, multiprocessing, os, shutil, signal, sys

def signalled(number):
    os.kill(os.getpid(), number)
    signal.pause()

def raises():
    raise RuntimeError("uncaught")

ENDINGS = {
    "return": lambda: None,
    "sys.exit(3)": lambda: sys.exit(3),
    "sys.exit(text)": lambda: sys.exit("text"),
    "exception": raises,
    "SIGINT": lambda: signalled(signal.SIGINT),
    "SIGTERM": lambda: signalled(signal.SIGTERM),
    "SIGHUP": lambda: signalled(signal.SIGHUP),
    "os._exit": lambda: os._exit(7),
    "abort": os.abort,
}

def begin(with_what, name):
    """Record something, with as much going on as a run may have."""
    if with_what == "nothing":
        return
    import dftrace_ai
    settings = {"system_counters_s": 0.01} if with_what == "counters" else {}
    folder = f"{with_what}-{name.replace('.', '').replace('(', '-').replace(')', '')}"
    dftrace_ai.initialize(log_file=os.path.join(folder, "t"), flush_interval_ms=60_000, **settings)
    if with_what == "inspect":
        from dftrace_ai.inspect import api
        with open(f"{folder}/inspect.yaml", "w") as file:
            file.write(CONFIG)
        api.initialize(f"{folder}/inspect.yaml", log_dir=f"{folder}/log")
    with dftrace_ai.ai.compute.forward:
        pass
    while with_what == "gone" and os.path.exists(folder):
        shutil.rmtree(folder, ignore_errors=True)  # a marker may just be written

CONFIG = """
statistics:
  enabled: true
  layers: {layer_name_regex_pattern: ".*"}
  transformer_engine:
    LogTensorStats:
      enabled: true
      tensors: [activation]
      stats: [mean]
"""

def as_worker(with_what, name):
    begin(with_what, name)
    ENDINGS[name]()

def statuses_of_workers(method, with_what):
    context = multiprocessing.get_context(method)
    workers = {n: context.Process(target=as_worker, args=(with_what, n)) for n in ENDINGS}
    for worker in workers.values():
        worker.start()
    for worker in workers.values():
        worker.join()
    return {name: worker.exitcode for name, worker in workers.items()}

if __name__ == "__main__":
    way, with_what = sys.argv[1:3]
    if with_what == "inspect":
        import torch, dftrace_ai.inspect.api  # once for all endings, none of which collects them
        gc.freeze()
    # Of a launched program, whoever launched it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if way == "main":
        children = {}
        ending = None
        for name in ENDINGS:
            child = os.fork()
            if not child:
                ending = name
                break
            children[name] = child
        if ending is None:
            print(json.dumps({n: os.waitstatus_to_exitcode(os.waitpid(c, 0)[1])
                              for n, c in children.items()}))
        else:
            begin(with_what, ending)
            ENDINGS[ending]()
    else:
        print(json.dumps(statuses_of_workers(way, with_what)))
'''

WITH = ("plain", "counters", "gone", "inspect")
# How a program is started, by what is given to the interpreter.
STARTS = {"script": ["program.py", "main"], "-m": ["-m", "program", "main"]}


@pytest.mark.parametrize("start", ["script", "-m", "fork", "spawn"])
def test_every_ending_has_its_status(start: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = STARTS.get(start, ["program.py", start])
    # A spawned worker is an interpreter of its own.
    kinds = {"script": WITH, "-m": ("plain",), "fork": ("plain", "counters"), "spawn": ("plain",)}
    programs = {
        with_what: subprocess.Popen(
            [sys.executable, *arguments, with_what],
            env=clean_environment(),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for with_what in ("nothing", *kinds[start])
    }
    told = {with_what: program.communicate(timeout=120) for with_what, program in programs.items()}
    statuses = {}
    for with_what, (stdout, stderr) in told.items():
        assert stdout, stderr
        statuses[with_what] = json.loads(stdout.splitlines()[-1])
    without = statuses.pop("nothing")
    assert without["sys.exit(3)"] == 3
    assert without["SIGTERM"] == -signal.SIGTERM
    if start in STARTS:
        assert without["SIGINT"] == -signal.SIGINT
    for with_what, found in statuses.items():
        assert found == without, with_what
    if start in STARTS:
        (trace,) = read_all(trace_files(tmp_path / "plain-SIGINT"))
        assert (trace.footer["ended"], trace.footer["error"]) == ("exception", "KeyboardInterrupt")
