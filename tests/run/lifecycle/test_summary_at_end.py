"""The setting `summary`: what a run says of itself as the last, and where it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Outcome, RunScript, Traced

from dftrace_ai.analysis import closing
from dftrace_ai.analysis.why import verdict_lines, why

TRAINING = """
    import multiprocessing, sys
    import dftrace_ai
    from dftrace_ai import ai
    from dftrace_ai.run import ending

    ending.SUMMARY_LIMIT_S = 100  # a machine may be busy

    def train(steps):
        for batch in ai.dataloader.fetch.iter(range(steps)):
            with ai.compute.forward, ai.data.item:
                pass
            with ai.compute.step:
                pass
"""


def summary_of(script: Outcome) -> list[str]:
    # Newer versions of Python warn of forks before.
    lines = script.stderr.splitlines()
    begins = [at for at, line in enumerate(lines) if line.startswith("dftrace: ")]
    assert len(begins) == 1, script.stderr
    return lines[begins[0] :]


def test_a_run_ends_with_its_verdict(run_script: RunScript) -> None:
    # Ended by the program's end, which keeps its exit status, with a child that has been forked.
    script = run_script(
        TRAINING
        + """
    def work():
        with ai.data.item:
            pass

    dftrace_ai.initialize()
    train(30)
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print('"mine"')
    sys.exit(3)
    """,
        env={"DFTRACE_SUMMARY": "1"},
        status=3,
    )
    assert script.said == ["mine"]
    lines = summary_of(script)
    traces = script.traces(perfetto=False)
    events = sum(event.ph == "X" for trace in traces for event in trace.events)
    assert lines[0] == f"dftrace: {events:,} events of 2 processes in {script.folder}"
    told = verdict_lines(why([script.folder]))
    assert lines[1 : 1 + len(told)] == told
    assert (
        lines[-1].strip()
        == f"more      dftrace why {script.folder}; report, summary and view take the same"
    )
    assert "own time" in lines[-2]


def test_runs_that_say_nothing(run_script: RunScript) -> None:
    script = run_script(
        TRAINING
        + """
    import contextlib, os, signal

    with dftrace_ai.tracing(summary=False):
        train(3)
    with dftrace_ai.tracing(summary=True):
        pass  # nothing was recorded
    with dftrace_ai.tracing(summary=True, enabled=False):
        train(3)
    with dftrace_ai.tracing(summary=True, rank=1, world_size=2):
        train(3)
    with contextlib.suppress(ValueError), dftrace_ai.tracing(summary=True):
        train(3)
        raise ValueError

    class Stop:
        def __call__(self, *_):
            dftrace_ai.finalize()

    for handler in (lambda *_: dftrace_ai.finalize(), Stop(), Stop().__call__):
        signal.signal(signal.SIGUSR1, handler)
        dftrace_ai.initialize(summary=True)
        train(3)
        signal.raise_signal(signal.SIGUSR1)
        assert dftrace_ai.run.lifecycle.current_run() is None

    dftrace_ai.initialize(summary=True)
    train(3)
    pid = os.fork()
    if pid == 0:
        dftrace_ai.finalize()
        os._exit(0)
    os.waitpid(pid, 0)
    os._exit(0)
    """
    )
    assert "dftrace: " not in script.stderr
    assert "tells it" not in script.stderr


def test_what_goes_wrong_is_told_and_the_program_goes_on(run_script: RunScript) -> None:
    script = run_script(
        TRAINING
        + """
    def run():
        with dftrace_ai.tracing(summary=True):
            train(3)
        print('"on"')

    kept = sys.executable
    for sys.executable in ("", "/nowhere/python"):
        run()
    sys.executable = kept
    right = ending.SUMMARY_FUNCTION
    ending.SUMMARY_FUNCTION = ("dftrace_ai.analysis.closing", "nothing")
    run()
    ending.SUMMARY_FUNCTION = right
    kept, ending.SUMMARY_LIMIT_S = ending.SUMMARY_LIMIT_S, 1e-6
    run()
    ending.SUMMARY_LIMIT_S = kept
    sys.stderr.close()
    run()
    """
    )
    assert script.said == ["on"] * 5
    lines = script.stderr.splitlines()[:4]
    assert script.stderr.splitlines()[4].startswith("dftrace: ")
    parts = ("its own path", "/nowhere/python", "AttributeError", "took longer than")
    assert all(part in line for part, line in zip(parts, lines, strict=True)), lines
    assert all(line.endswith(f"dftrace why {script.folder} tells it") for line in lines)


def test_a_large_run_says_how_to_have_it_judged(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dftrace_ai

    with traced(perfetto=False) as rec:
        for _ in dftrace_ai.ai.dataloader.fetch.iter(range(30)):
            pass
    (path,) = (trace.path for trace in rec.traces)
    text = path.read_bytes()
    header = rec.trace.header
    # Another rank of the run, which is no worker of this one, and a file of an older run.
    other = Path(str(path).replace(f"-{header['pid']}.", f"-{header['pid'] + 1}."))
    other.write_bytes(text)
    assert " 1 process " in next(iter(closing.closing_lines(path, 1 << 62)))
    monkeypatch.setattr(closing, "MOST_FILES", 1)
    lines = list(closing.closing_lines(path, 0))
    assert " 1 process " in lines[0]
    assert any("rank 0 and its workers; 1 more trace of the run" in line for line in lines)
    monkeypatch.setattr(closing, "MOST_BYTES", 1)
    assert list(closing.closing_lines(path, 0)) == [
        "dftrace: the trace of 0 MB is too large to be judged at once; see:",
        f"  more      dftrace why {path.parent}; report, summary and view take the same",
    ]
