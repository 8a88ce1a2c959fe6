"""`%load_ext dftrace_ai` and `%%trace`, in a shell of IPython."""

from __future__ import annotations

import pytest
from conftest import RunScript, read_all, trace_files

import dftrace_ai
from dftrace_ai.errors import DftraceError

pytest.importorskip("IPython")

CELLS = r"""
import json, os, re
os.environ["IPYTHONDIR"] = os.path.abspath("ipython")
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance()

def run(cell):
    with capture_output() as caught:
        result = shell.run_cell(cell)
    shown = [sorted(one.data) for one in caught.outputs]
    html = "".join(one.data.get("text/html", "") for one in caught.outputs)
    plain = "".join(one.data.get("text/plain", "") for one in caught.outputs)
    error = result.error_before_exec or result.error_in_exec
    print(json.dumps({
        "out": re.sub(r"\x1b\[[0-9;]*m", "", caught.stdout + caught.stderr), "shown": shown, "iframe": html[:7], "plain": plain,
        "error": error and type(error).__name__,
    }))

TRAINING = '''
from dftrace_ai import ai
for step in ai.dataloader.fetch.iter(range(30)):
    with ai.compute.forward:
        sum(range(10_000))
    with ai.compute.step:
        sum(range(10_000))
kept = step
kept + 1
'''
run("%load_ext dftrace_ai")
run("%%trace -o out1 --parts -data,-transfer" + TRAINING)
run("kept")
run("%%trace -o out2 --no-auto --quiet\nfrom dftrace_ai import ai\nwith ai.compute.step: raise ValueError('of the cell')")
run("%%trace --stepz 1\n1")
run("%%trace -o a --log-file b\n1")
run("%%trace --steps 3\n1")
run("%%trace -o out3\n1 + 1")
run("%%trace -o /dev/null/nowhere\n1 + 2")
run("import dftrace_ai; held = dftrace_ai.initialize(log_file='out4/t', compression='none')")
run("%%trace --depth 2\n1")
run("%%trace" + TRAINING)
run("dftrace_ai.finalize(); print(dftrace_ai.auto)")
run("%%trace --log-file out5/t\ndftrace_ai.initialize()" + TRAINING)
run("dftrace_ai.finalize()")
run("%%trace -o out6 --device --nvtx --itt --io --data-dir /data\nimport dftrace_ai; options = dftrace_ai.auto.options\noptions.companions, options.io, options.folders")
run("%unload_ext dftrace_ai")
run("%%trace\n1")
"""


def test_cells_are_traced_and_judged(run_script: RunScript) -> None:
    done = run_script(CELLS, env={"HOME": "/nonexistent", "NO_COLOR": "1"})
    folder = done.folder.parent
    said = iter(done.said)

    def cell() -> dict[str, object]:
        return next(said)

    loaded = cell()
    assert (loaded["out"], loaded["error"]) == ("", None)
    # The value of the cell, and below it the verdict with figures; as text at a terminal.
    traced = cell()
    assert traced["error"] is None
    assert traced["out"] == "Out[0]: 30\n"
    assert traced["shown"] == [["text/html", "text/plain"]]
    assert traced["iframe"] == "<iframe"
    assert " of 30, by loader blocks" in str(traced["plain"])
    assert cell()["out"] == "Out[0]: 29\n"
    (trace,) = read_all(trace_files(folder / "out1"))
    assert trace.path.name.startswith("trace-")
    assert sum(span.name == "forward" for span in trace.spans) == 30

    failed = cell()
    assert failed["error"] == "ValueError"
    assert str(failed["out"]).count("ValueError: of the cell") == 1
    assert failed["shown"] == []
    (trace,) = read_all(trace_files(folder / "out2"))
    assert [span.name for span in trace.spans] == ["step"]
    assert trace.footer["ended"] == "exception"
    assert trace.footer["error"] == "ValueError"

    for wrong, words in (
        (cell(), "UsageError: %%trace: option --stepz not recognized; %%trace? tells its options"),
        (cell(), "UsageError: %%trace: --out and --log-file cannot be given together"),
        (cell(), "UsageError: %%trace: auto_steps: '3' is not accepted; accepted: a range A:B"),
    ):
        assert wrong["error"] == "UsageError"
        assert words in str(wrong["out"])
        assert "Traceback" not in str(wrong["out"])

    assert cell()["out"] == "Out[0]: 2\ndftrace: nothing was recorded\n"
    # What cannot be written costs the trace, and not the cell.
    unwritable = cell()
    assert str(unwritable["out"]).startswith("Out[0]: 3\ndftrace: nothing will be recorded: ")
    assert unwritable["error"] is None
    cell()
    joined = cell()
    assert "a run is on, and goes on with its own settings: leave out auto_depth" in str(joined)
    traced = cell()
    assert " of 30, by loader blocks" in str(traced["plain"])
    over = cell()
    assert over["out"] == "<dftrace auto, off>\n"
    assert len(trace_files(folder / "out4")) == 1
    # A cell that goes on holding the run is judged by what it has recorded.
    held = cell()
    assert " of 30, by loader blocks" in str(held["plain"]), held["out"]
    assert cell()["error"] is None
    assert [path.name[:2] for path in trace_files(folder / "out5")] == ["t-"]
    options = (("device", "nvtx", "itt"), True, ("/data",))
    assert str(cell()["out"]).startswith(f"Out[0]: {options}\n")
    assert cell()["error"] is None
    assert "Cell magic `%%trace` not found" in str(cell()["out"])


def test_without_a_shell_there_is_one_clear_line() -> None:
    with pytest.raises(DftraceError, match=r"%%trace is for IPython and Jupyter, where %load_ext"):
        dftrace_ai.load_ipython_extension(None)
