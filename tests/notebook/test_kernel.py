"""A training in a kernel of Jupyter: its cells are traced, raise, are interrupted and run anew."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import LEAN_PROGRAMS, read_all, trace_files
from kernels import LIMIT_S, Kernel, Message
from perfetto.trace_file import Trace

from dftrace_ai.spools.recovery import adopt_dead

pytest.importorskip("ipykernel", reason="is a kernel of Jupyter")
pytest.importorskip("torch")

TRAINING = """
import time
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
images, labels = load_digits(return_X_y=True)
digits = TensorDataset(torch.tensor(images[:128]).float() / 16, torch.tensor(labels[:128]))
loader = DataLoader(digits, batch_size=32, num_workers=2)

def train(behind_each=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if behind_each:
                behind_each()
    return [p.tolist() for p in model.parameters()]

def raises():
    raise ArithmeticError("of the training")

def hangs():
    open("begun", "w").close()
    while True:
        time.sleep(0.001)

alone = train()
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    one = Kernel(tmp_path, LEAN_PROGRAMS / "digits")
    yield one
    one.close()


def value(messages: list[Message]) -> str:
    """What a cell has for a value, the only thing that it has to show."""
    kinds = [kind for kind, _ in messages]
    assert kinds == ["execute_input", "execute_result", "execute_reply"], messages
    text: str = messages[1][1]["data"]["text/plain"]
    return text


def own_and_workers(folder: Path, ended: str) -> tuple[Trace, int]:
    """The trace of the kernel, and how many items its workers have recorded in theirs."""
    traces = read_all(trace_files(folder))
    (own,) = [trace for trace in traces if trace.named("backward")]
    assert own.footer["ended"] == ended
    assert len({trace.header["run"] for trace in traces}) == 1
    return own, sum(len(trace.named("item")) for trace in traces if trace is not own)


def test_cells_with_a_training(kernel: Kernel) -> None:
    folder = kernel.folder
    kernel.run("%load_ext dftrace_ai")
    assert [kind for kind, _ in kernel.run(TRAINING)] == ["execute_input", "execute_reply"]

    # The value of the cell, then the verdict on it: as in a page of its own, and as text.
    *_, (first, result), (second, verdict), (_, reply) = kernel.run(
        "%%trace -o whole\ntrain() == alone"
    )
    assert (first, result["data"]["text/plain"]) == ("execute_result", "True")
    assert (second, sorted(verdict["data"])) == ("display_data", ["text/html", "text/plain"])
    assert verdict["data"]["text/html"].startswith('<iframe sandbox=""')
    assert "of 8, by step spans" in verdict["data"]["text/plain"]
    assert reply["status"] == "ok"
    own, items = own_and_workers(folder / "whole", "finalize")
    assert items == 2 * 128
    assert own.names["backward"] == 8

    # What is raised is shown once, and is what the kernel answers: notebooks that are run by a
    # program end with it.
    messages = kernel.run("%%trace -o raised --quiet\ntrain(raises)")
    _, (kind, shown), (_, reply) = messages
    assert kind == "error"
    for told in (shown, reply):
        assert (told["ename"], told["evalue"]) == ("ArithmeticError", "of the training")
        assert "raise" in "".join(told["traceback"])
        assert "dftrace_ai" not in "".join(told["traceback"])
    own, _ = own_and_workers(folder / "raised", "exception")
    assert own.footer["error"] == "ArithmeticError"
    assert own.names["backward"] == 1

    number = kernel.begin("%%trace -o interrupted --quiet\ntrain(hangs)")
    until = time.monotonic() + LIMIT_S
    while not (folder / "begun").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    kernel.manager.interrupt_kernel()
    _, (kind, shown), (_, reply) = kernel.messages(number)
    assert (kind, shown["ename"], reply["ename"]) == ("error", *["KeyboardInterrupt"] * 2)
    own, _ = own_and_workers(folder / "interrupted", "exception")
    assert own.footer["error"] == "KeyboardInterrupt"
    assert value(kernel.run("import dftrace_ai; dftrace_ai.auto")) == "<dftrace auto, off>"

    (_, (_, said), (_, reply)) = kernel.run(
        "%%trace -o none\nimport asyncio\nawait asyncio.sleep(0)"
    )
    assert "a cell with await outside of functions cannot be traced here" in said["text"]
    assert reply["ename"] == "UsageError"
    assert value(kernel.run("train() == alone")) == "True"


def test_a_notebook_that_traces_itself_is_begun_anew_and_killed(kernel: Kernel) -> None:
    out = kernel.folder / "out"
    begin = "import dftrace_ai\ndftrace_ai.auto(log_file='out/t')\nNone"
    for _ in range(2):  # a cell may be run as often as one likes
        assert [kind for kind, _ in kernel.run(begin)] == ["execute_input", "execute_reply"]
    kernel.run(TRAINING)
    assert value(kernel.run("train() == alone")) == "True"
    # A cell of the run is judged by all that it has by now, of which nothing is lost.
    kernel.run("%load_ext dftrace_ai")
    *_, (kind, verdict), _ = kernel.run("%%trace\ntrain();")
    assert kind == "display_data"
    assert "of 24, by step spans" in verdict["data"]["text/plain"]
    assert "lost" not in verdict["data"]["text/plain"]
    kernel.manager.restart_kernel()
    kernel.wait_for_ready()
    own, items = own_and_workers(out, "exit")
    assert (own.names["backward"], items) == (24, 6 * 128)

    kernel.run(begin)
    kernel.run("from dftrace_ai import ai\nwith ai.compute.forward: pass")
    kernel.manager.shutdown_kernel(now=True)
    (completed,) = adopt_dead(out).finished
    (trace,) = read_all([Path(completed)])
    assert (trace.names, trace.footer["ended"]) == ({"forward": 1}, "died")
