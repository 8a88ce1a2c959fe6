"""What `dftrace run` is told, and the runs of programs below it."""

from __future__ import annotations

import sys
from pathlib import Path

from conftest import read_all, trace_files
from safety.commands import invoke

from dftrace_ai.config.settings import SETTINGS
from launching import RUN, environment, launched, ran

RECORDS = """
import os, subprocess, sys, tempfile
import dftrace_ai
from dftrace_ai import ai

def step(name):
    with ai.compute.step.derive(name):
        pass

how = sys.argv[1]
os.chdir(tempfile.mkdtemp())
if how == "before":
    with dftrace_ai.tracing(log_file=sys.argv[2]):
        import torch
        step("inside")
    step("behind")
elif how == "after":
    import torch
    dftrace_ai.initialize(log_file=sys.argv[2])
    step("inside")
    dftrace_ai.finalize()
    dftrace_ai.finalize()
    step("behind")
    subprocess.run([sys.executable, "-c", "import torch; from dftrace_ai import ai; ai.compute.forward.update(k=1); ai.compute.forward.start(); ai.compute.forward.stop()"], check=True)
elif how == "wrong":
    import torch
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
"""


def names(folder: Path) -> list[list[str]]:
    return sorted([span.name for span in trace.spans] for trace in read_all(trace_files(folder)))


def test_whose_run_it_is(tmp_path: Path) -> None:
    (tmp_path / "records.py").write_text(RECORDS)
    own = tmp_path / "own"
    options = ("--log-file=out/t", "--parts", "steps", "--set", "flush-interval-ms=200")
    options = (*options, "--no-args", "--compression", "none")
    # A word of a program's own does not make a launcher of it.
    words = ("records.py", "after", own / "t", "torch.distributed.run")
    done = ran((*RUN, *options, *words), environment(tmp_path), tmp_path)
    assert done.returncode == 0, done.stderr
    # The program's own finalize does not end what it has not begun, and its settings join.
    (line,) = done.stderr.splitlines()
    assert "a run is on and goes on with its own settings: log_file is" in line
    assert names(tmp_path / "out") == [["forward"], ["step.inside", "step.behind"]]
    traces = read_all(trace_files(tmp_path / "out"))
    assert {trace.path.suffix for trace in traces} == {".pfw"}
    assert len({trace.header["run"] for trace in traces}) == 1
    assert not [span for trace in traces for span in trace.spans if "k" in span.args]
    assert not own.exists()

    done = ran((sys.executable, "records.py", "before", own / "t"), launched(tmp_path), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert names(own) == [["step.inside"]]


WITH_A_SUBINTERPRETER = """
import subprocess, sys
if sys.version_info >= (3, 13):
    import _interpreters as interpreters
    other = interpreters.create("legacy")
else:
    import _xxsubinterpreters as interpreters
    other = interpreters.create(isolated=False)
interpreters.run_string(other, "import torch")
interpreters.destroy(other)
recording = "import torch; from dftrace_ai import ai; ai.compute.forward.start(); ai.compute.forward.stop()"
subprocess.run([sys.executable, "-c", recording], check=True)
"""


def test_a_subinterpreter_keeps_no_other_process_from_being_recorded(tmp_path: Path) -> None:
    (tmp_path / "divided.py").write_text(WITH_A_SUBINTERPRETER)
    options = ("-o", "out", "--parts", "steps")
    done = ran((*RUN, *options, "divided.py"), environment(tmp_path), tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "dftrace_ai cannot be imported in a subinterpreter" in line
    assert names(tmp_path / "out") == [["forward"]]


def test_a_program_of_another_framework_is_recorded_as_well(tmp_path: Path) -> None:
    env = environment(tmp_path)
    (tmp_path / "packages" / "tensorflow.py").write_text("train = compat = None\n")
    (tmp_path / "packages" / "torch" / "__init__.py").write_text(
        "raise SystemExit('not asked for')"
    )
    (tmp_path / "keras.py").write_text("import tensorflow\nKerasTensor = None\n")
    (tmp_path / "own.py").write_text(
        "import keras\nfrom dftrace_ai import ai\nwith ai.compute.forward: pass\n"
    )
    done = ran((*RUN, "-o", "out", "--parts", "steps", "own.py"), env, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert names(tmp_path / "out") == [["forward"]]


def test_what_cannot_be_recorded_is_said_once_and_the_program_goes_on(tmp_path: Path) -> None:
    (tmp_path / "records.py").write_text(RECORDS)
    env = launched(tmp_path, DFTRACE_AUTO_STEPS="many")
    done = ran((sys.executable, "records.py", "wrong"), env, tmp_path)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "dftrace run: nothing is recorded: ConfigError: environment variable DFTRACE_AUTO_STEPS: "
        "'many' is not accepted"
    )
    # Where the launcher sees it before, it starts nothing; what records nothing it starts as it is.
    script = tmp_path / "records.py"
    for words, said in (
        (("--steps", "many", script), "auto_steps: 'many' is not accepted; accepted: a range A:B"),
        (("--parts", "steps,forwrad", script), "there is no part 'forwrad'; there are steps, io,"),
        (("--set", "idz=1", script), "unknown setting 'idz'; did you mean 'ids'?"),
        (("--set", "ids", script), "--set ids: NAME=VALUE is needed"),
        (("--config", "none.yaml", script), "none.yaml: cannot read the settings: No such file"),
        (("ls",), "there is no script ls here; what starts Python in the end goes behind --"),
        (("/bin/sh", "-c", "exit"), "/bin/sh is no Python script; what starts Python"),
        (("--steps", "1:2"), "run: which program? dftrace run train.py"),
        (("--stepz", "1:2", script), "No such option"),
    ):
        done = invoke("run", *words)
        assert done.status == 2, words
        assert said in " ".join(done.err.split()), words


def test_what_is_told_of_programs_that_record_nothing(tmp_path: Path) -> None:
    env = environment(tmp_path)
    (tmp_path / "no-python").write_text('#!/bin/sh\necho "launch:$DFTRACE_LAUNCH"; exit 5\n')
    (tmp_path / "no-python").chmod(0o755)
    (tmp_path / "a-python").write_text(f"#!/usr/bin/env -S {sys.executable} -S\nprint('runs')\n")
    (tmp_path / "a-python").chmod(0o755)
    (tmp_path / "notes").write_text("")
    for words, status, out, err in (
        (("none.py",), 2, "", "dftrace: run: there is no script none.py here; give its path"),
        (("--", "none"), 127, "", "dftrace: run: none: No such file or directory"),
        (("--", "./notes"), 126, "", "dftrace: run: ./notes: Permission denied"),
        (("--set", "enabled=no", "--", "./no-python"), 5, "launch:\n", ""),
        (("--", "./a-python"), 0, "runs\n", f"nothing will be recorded: {sys.executable} -S does"),
    ):  # fmt: skip
        done = ran((*RUN, *words), env, tmp_path)
        assert (done.returncode, done.stdout) == (status, out), (words, done.stderr)
        assert err in done.stderr
        assert bool(done.stderr) == bool(err), (words, done.stderr)


def test_each_option_of_auto_is_a_flag(tmp_path: Path) -> None:
    switches = [name for name, row in SETTINGS.items() if row.kind is bool]
    given = {"parts": "-data", "steps": "1:2", "depth": "2", "modules": "Linear"}
    settings = {name: given.get(name.removeprefix("auto_"), "True") for name in SETTINGS}
    asked = {name: text for name, text in settings.items() if name.startswith("auto_")}
    asked |= {"data_dir": "/data", "layout": "dp=1"}
    words: list[str] = []
    for name, text in asked.items():
        words.append("--" + name.removeprefix("auto_").replace("_", "-"))
        words += [] if name in switches else [text]
    (tmp_path / "no-python").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "no-python").chmod(0o755)
    done = ran((*RUN, "-o", "out", *words, "--", "./no-python"), environment(tmp_path), tmp_path)
    assert done.returncode == 0, done.stderr
    assert {f"DFTRACE_{name.upper()}={text}" for name, text in asked.items()} <= {
        *done.stdout.splitlines()
    }


def test_the_machine_and_lines_are_sampled_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "no-python").write_text(
        '#!/bin/sh\necho "${DFTRACE_SYSTEM_COUNTERS_S:-file} ${DFTRACE_LINES_HZ:-file}"\n'
    )
    (tmp_path / "no-python").chmod(0o755)
    (tmp_path / "own.yaml").write_text("system_counters_s: null\nlines_hz: 5\n")
    for words, more, told in (
        ((), {}, "1 20"),
        (("--set", "system_counters_s=none", "--set", "lines_hz=0"), {}, "none 0"),
        ((), {"DFTRACE_SYSTEM_COUNTERS_S": "5", "DFTRACE_LINES_HZ": "7"}, "5 7"),
        (("--config", "own.yaml"), {}, "file file"),
    ):
        done = ran(
            (*RUN, "--log-file", "out/t", *words, "--", "./no-python"),
            environment(tmp_path, **more),
            tmp_path,
        )
        assert (done.returncode, done.stdout.strip()) == (0, told), done.stderr
