"""Hosts that the kernel's namespaces make, and light ranks on them that wait for one another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from conftest import clean_environment
from stress.pressure.test_hosts import namespaces

from live.programs import LIMIT_S, until

# A host: it forks its ranks, and says to them what is said to it. Each stands in the collective,
# but for the one that is named.
HOST = """
import os, signal, sys
import dftrace_ai
from dftrace_ai import ai

out, first, count, size = sys.argv[1], *map(int, sys.argv[2:5])

def hang(rank, step, late, place, lines):
    ai.update(step=step)
    with ai.compute.forward:
        pass
    if rank != late:
        with ai.comm.all_reduce:
            return next(lines)
    if place == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if place == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if place in ("no span", "stopped"):
        return next(lines)
    with {"fetch": ai.dataloader.fetch, "forward": ai.compute.forward}[place]:
        return next(lines)

def work(rank, commands, told):
    lines = iter(os.fdopen(commands, buffering=1))
    dftrace_ai.initialize(log_file=out + "/t", spool_dir="/dev/shm", rank=rank, world_size=size)
    with ai.pipeline.train:
        os.write(told, b".")
        for line in lines:
            step, late, place = line.rstrip().split(",")
            hang(rank, int(step), int(late), place, lines)
    dftrace_ai.finalize()

told, tell = os.pipe()
pipes = []
for rank in range(first, first + count):
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(write)
        for other in pipes:
            os.close(other)
        status = 1
        try:
            work(rank, read, tell)
            status = 0
        finally:
            os._exit(status)
    os.close(read)
    pipes.append(write)
for _ in pipes:
    os.read(told, 1)
print("ready", flush=True)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
for line in sys.stdin:
    for pipe in pipes:
        try:
            os.write(pipe, line.encode())
        except BrokenPipeError:
            pass  # that one was killed
for pipe in pipes:
    os.close(pipe)
for _ in pipes:
    os.wait()
"""


class Job:
    """The ranks of all hosts."""

    def __init__(
        self, out: Path, hosts: Sequence[subprocess.Popen[str]], options: Sequence[str]
    ) -> None:
        """`options` make a process one that is on none of the hosts."""
        self.out = out
        self.hosts = hosts
        self.options = options

    def say(self, line: str) -> None:
        """To every rank."""
        for host in self.hosts:
            assert host.stdin is not None
            host.stdin.write(f"{line}\n")
            host.stdin.flush()

    def on_host(self, number: int, *command: object) -> list[str]:
        """What runs a command on one of the hosts, in all that is its own."""
        (child,) = (
            Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for pid in [self.hosts[number].pid]
        )
        return ["nsenter", "-t", child[0], "-u", "-m", "-p", "-n", *map(str, command)]

    def end(self) -> None:
        """In order, on all hosts."""
        for host in self.hosts:
            assert host.stdin is not None
            host.stdin.close()
            host.stdin = None
        for host in self.hosts:
            host.wait(LIMIT_S)


@contextmanager
def made_job(out: Path, hosts: int, ranks: int, every_s: float) -> Iterator[Job]:
    """So many ranks on each of so many hosts, which share a directory and nothing else."""
    out.mkdir(parents=True, exist_ok=True)
    source = out.parent / "host.py"
    source.write_text(HOST)
    options = [*namespaces(), "-n"]
    begin = 'hostname "$0" && mount -t tmpfs x /dev/shm && exec "$@"'
    with ExitStack() as ends:
        running = []
        for number in range(hosts):
            words = [source, out, number * ranks, ranks, hosts * ranks]
            running.append(
                subprocess.Popen(
                    [
                        *options,
                        "sh",
                        "-c",
                        begin,
                        f"node{number}",
                        sys.executable,
                        *map(str, words),
                    ],
                    env={
                        **clean_environment(),
                        "DFTRACE_LIVE_FILE_S": str(every_s),
                        "SLURM_JOB_ID": "17",
                    },
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            ends.callback(_end, running[-1])
        for host in running:
            assert host.stdout is not None
            assert host.stdout.readline() == "ready\n"
        until(lambda: len(list(out.glob("*.live"))), lambda files: files == hosts * ranks)
        yield Job(out, running, options)


def _end(host: subprocess.Popen[str]) -> None:
    """All processes of a host go with its first one."""
    children = Path(f"/proc/{host.pid}/task/{host.pid}/children")
    for child in children.read_text().split() if children.exists() else ():
        subprocess.run(["kill", "-9", child], check=False)
    host.kill()
    host.communicate(timeout=60)
