"""A tracker that misbehaves, at its beginning, in the midst or at its end, in many ways."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from dftrace_ai.loggers.records import Status
from dftrace_ai.loggers.trackers.base import BaseLogint

FOREVER_S = 1_000_000
KEPT: list[object] = []


class Nasty(BaseLogint):
    """Writes the steps that it takes to `nasty.txt`; its options say where and how it errs."""

    name = "nasty"

    def __init__(self, run):
        super().__init__(run)
        self.calls = 0
        self.pause_s = 0.0
        self.path = run.log_dir / "nasty.txt"
        well = run.log_dir / "well"
        if well.exists() and well.read_text() == "slow":
            self.slow_down()

    def open(self) -> None:
        self.misbehave("begin")

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        self.calls += 1
        if self.calls == self.run.options.get("call", 3):
            self.misbehave("log")
        time.sleep(self.pause_s)
        self.say(str(step))

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        self.say(f"{name}.{suffix}")

    def finish(self, status: Status) -> None:
        self.misbehave("end")
        self.say(status)

    def say(self, what: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{what}\n")

    def name_process(self, number: int) -> None:
        with (self.run.log_dir / "processes.txt").open("a") as file:
            file.write(f"{number}\n")

    def misbehave(self, phase: str) -> None:
        if phase == self.run.options.get("phase") and not (self.run.log_dir / "well").exists():
            self.name_process(os.getpid())
            getattr(self, self.run.options["how"])()

    def raise_(self) -> None:
        raise ValueError("the tracker says no")

    def exit(self) -> None:
        sys.exit("the tracker leaves")

    def compute(self) -> None:
        while time.process_time() < 3:
            pass

    def slow_down(self) -> None:
        self.pause_s = 0.12

    def hang(self) -> None:
        time.sleep(FOREVER_S)

    def black_hole(self) -> None:
        hole = socket.create_server(("127.0.0.1", 0))
        with socket.create_connection(hole.getsockname()) as line:
            line.recv(1)

    def keep_the_lock(self) -> None:
        ctypes.PyDLL(None).sleep(FOREVER_S)

    def os_exit(self) -> None:
        os._exit(7)

    def segfault(self) -> None:
        ctypes.string_at(0)

    def kill_its_group(self) -> None:
        os.killpg(0, signal.SIGKILL)

    def hang_at_exit(self) -> None:
        atexit.register(time.sleep, FOREVER_S)

    def hang_in_a_pool(self) -> None:
        pool = ThreadPoolExecutor(1)
        KEPT.append(pool)
        pool.submit(time.sleep, FOREVER_S)

    def collect_garbage(self) -> None:
        gc.collect()

    def leave_a_thread(self) -> None:
        threading.Thread(target=time.sleep, args=(FOREVER_S,)).start()

    def print_a_lot(self) -> None:
        for _ in range(64):
            sys.stdout.write("x" * (1 << 16))
            os.write(2, b"y" * (1 << 16))

    def fork(self) -> None:
        child = os.fork()
        if not child:
            time.sleep(FOREVER_S)
        self.name_process(child)

    def start_a_program(self) -> None:
        program = subprocess.Popen(["sleep", str(FOREVER_S)])
        KEPT.append(program)
        self.name_process(program.pid)

    def start_a_session(self) -> None:
        """As a server of a tracker's that lives on: of no group or session of its parent's."""
        found = subprocess.run(
            ["sh", "-c", f"setsid sleep {FOREVER_S} >/dev/null 2>&1 & echo $!"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            start_new_session=True,
        )
        self.name_process(int(found.stdout))

    def read_stdin(self) -> None:
        self.say(f"stdin {sys.stdin.read()!r}")

    def change_directory(self) -> None:
        os.chdir("/")

    def close_descriptors(self) -> None:
        os.closerange(3, 4096)

    def close_all_descriptors(self) -> None:
        os.closerange(3, 1 << 20)

    def reset_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
