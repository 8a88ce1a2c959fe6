"""The pool of threads: same bits, several callers, forked children, the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from awkward_tensors import normal

from dftrace_ai import _native
from dftrace_ai.inspect.numerics.collect import collect
from dftrace_ai.inspect.numerics.formats import Format
from dftrace_ai.inspect.numerics.fp8 import fake_quantise

LARGE = 1_500_007


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype, instructions: str) -> None:
    x = (normal(LARGE) + 3).to(dtype)
    alone = collect(x, scale=50.0, format=Format.E4M3, threads=1)
    for threads in (2, 3, 7):
        assert collect(x, scale=50.0, format=Format.E4M3, threads=threads) == alone
    assert _native.tensor_threads() >= 1
    if dtype is torch.float32:
        by_one = fake_quantise(x, Format.E4M3, 20.0, with_counts=True, threads=1)
        shared = fake_quantise(x, Format.E4M3, 20.0, with_counts=True, threads=4)
        assert torch.equal(by_one[0], shared[0])
        assert by_one[1] == shared[1]


def test_threads_that_call_at_once_get_each_their_own() -> None:
    tensors = [normal(600_000, seed) for seed in range(4)]
    wanted = [collect(x, threads=1) for x in tensors]
    quantised = [fake_quantise(x, Format.E5M2, 1.0, threads=1) for x in tensors]
    wrong: list[int] = []
    begin = threading.Barrier(len(tensors))

    def call(index: int) -> None:
        begin.wait()
        for _ in range(15):
            record = collect(tensors[index], threads=3)
            output = fake_quantise(tensors[index], Format.E5M2, 1.0, threads=3)
            if repr(record) != repr(wanted[index]) or not torch.equal(output, quantised[index]):
                wrong.append(index)

    crew = [threading.Thread(target=call, args=(index,)) for index in range(len(tensors))]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert wrong == []


WHILE_IT_WORKS = """
import os, threading, torch
from dftrace_ai import _native
from dftrace_ai.inspect.numerics.collect import collect

for end in ("falls off its end", "raises", "exits at once", "forks", None):
    child = end and os.fork()
    if not child:
        break
    print(end, os.waitpid(child, 0)[1], flush=True)
if end is not None:
    x = torch.randn(1_000_000)
    wanted = repr(collect(x, threads=3))
    assert _native.tensor_threads() == 2
    begun, stop = threading.Event(), threading.Event()
    def busy():
        while not stop.is_set():
            assert repr(collect(x, threads=3)) == wanted
            begun.set()
    thread = threading.Thread(target=busy, daemon=True)
    thread.start()
    begun.wait()
    if end == "raises":
        raise SystemExit(0)
    if end == "exits at once":
        os._exit(0)
    for _ in range(20 if end == "forks" else 0):
        child = os.fork()
        if not child:
            os._exit(0 if repr(collect(x, threads=3)) == wanted else 1)
        assert os.waitpid(child, 0)[1] == 0
    if end == "forks":
        stop.set()
        thread.join()
"""


def test_a_process_ends_and_forks_while_the_pool_works() -> None:
    """Three ends, and children that compute too; each of a process which has done nothing before."""
    done = subprocess.run(
        # Python 3.12 warns of forks beside threads, which these are about.
        [*(sys.executable, "-W", "error", "-W", "ignore:This process"), "-c", WHILE_IT_WORKS],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    # Each ends by itself and without a word on stderr.
    assert (done.returncode, done.stderr) == (0, "")
    ends = ("falls off its end", "raises", "exits at once", "forks")
    assert done.stdout.splitlines() == [f"{end} 0" for end in ends]


def test_the_interpreter_serves_other_threads_while_a_tensor_is_read() -> None:
    """A thread that sets an event runs before a long call returns: the call lets it."""
    x = torch.ones(40_000_000)
    ran, finished = threading.Event(), threading.Event()
    about_to_call = threading.Event()
    interleaved: list[bool] = []

    def other() -> None:
        about_to_call.wait()
        interleaved.append(not finished.is_set())
        ran.set()

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=other)
        thread.start()
        about_to_call.set()
        collect(x, threads=1)
        finished.set()
        thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert interleaved == [True]
