"""What a tracer adds to the processor time of a step."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.processes import Homes, environment
from bench.series import Bench, Series, Target
from bench.steps.twin import make_batons, percents

OURS, AGAIN = "dftrace_ai", "nobody"
CONTESTANTS = {
    OURS: "ours",
    AGAIN: "nobody",
    "pydftracer": "pydftracer",
    "viztracer": "viztracer",
    "torch.profiler, CPU": "torch_profiler",
    "TraceML": "traceml",
    "ddtrace": "ddtrace",
}
OWN = (OURS, AGAIN, "torch.profiler, CPU")
# By training: its title, who takes part, and of whose cost ours may be how much at most.
PLANS: dict[str, tuple[str, list[str], dict[str, float]]] = {
    "annotated": (
        "a step of 5 ms with 22 annotated spans and an update: processor time it adds",
        [OURS, AGAIN, "pydftracer", "viztracer", "torch.profiler, CPU", "TraceML"],
        {"pydftracer": 1 / 10},
    ),
    "transformer": (
        "a step of a small transformer, traced by itself: processor time that adds",
        [OURS, AGAIN, "TraceML", "torch.profiler, CPU", "viztracer", "ddtrace"],
        {"TraceML": 1 / 3, "torch.profiler, CPU": 1 / 3, "viztracer": 1 / 3},
    ),
}
NOTES = {
    "annotated": [
        "viztracer records the calls of Python, and not what is annotated.",
        "torch.profiler records the operators, and the spans by record_function, without arguments.",
        "TraceML records the step, and not what is annotated.",
    ],
    "transformer": ["ddtrace records the rank as one span, and no step."],
}
MOST_PERCENT = 1.0


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Run each training under each contestant, in a pair of processes of its own."""
    packages = homes.peer_packages()
    benches = []
    for training, (title, names, bounds) in PLANS.items():
        bench = Bench(
            f"step_{training}",
            title,
            "%",
            targets=[Target(OURS, MOST_PERCENT)],
            reference=OURS,
            notes=[
                "All threads of the process; two processes take turns, a step with and one without.",
                *NOTES[training],
            ],
        )
        for name in names:
            print(f"  steps: {training}, {name}", file=sys.stderr)
            halves, missing = _found(homes, packages, name, training, rounds)
            samples = percents(*halves) if halves else []
            bench.series.append(Series(name, samples, missing=missing))
        bench.targets += [Target(OURS, bound, other) for other, bound in bounds.items()]
        benches.append(bench)
    return benches


def _found(
    homes: Homes, packages: str | None, name: str, training: str, rounds: int
) -> tuple[list[list[Any]], str]:
    """Return what both of a pair have found of a contestant, or nothing and why."""
    if packages is None and name not in OWN:
        return [], "no interpreter with the peers"
    key = CONTESTANTS[name]
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        make_batons(folder)
        results, running = [folder / f"{number}.json" for number in range(2)], []
        for number in range(2):
            given = [key, training, str(rounds), made, str(number)]
            given += [packages] if packages else []
            command = [homes.main, "-m", "bench.steps.probe", *given]
            extra = {}
            if key == "traceml" and packages:
                extra["PYTHONPATH"] = f"{environment({})['PYTHONPATH']}:{packages}"
                script = Path(__file__).with_name("probe.py")
                # Each has an aggregator of its own, which listens at a port.
                ports = ["--aggregator-port", str(_free_port()), "--master-port", str(_free_port())]
                cli = [homes.main, "-m", "traceml_ai.launcher.cli", "run", str(script), *ports]
                command = [*cli, "--args", *given]
            home = folder / f"home-{number}"
            home.mkdir()
            with (home / "said").open("wb") as said:
                one = subprocess.Popen(
                    command, stdout=said, stderr=said, cwd=home, env=environment(extra)
                )
            running.append(one)
        statuses = _ended(running)
        if all(result.exists() for result in results):
            return [json.loads(result.read_text()) for result in results], ""
        lines = (folder / "home-0" / "said").read_text(errors="replace").strip().splitlines()
        return [], lines[-1] if lines else f"ended with {statuses}"


def _ended(running: list[subprocess.Popen[bytes]]) -> list[int]:
    """Wait until all have ended; one that fails takes the others along, which wait for it."""
    while any(one.poll() is None for one in running):
        if any(one.poll() for one in running):
            for one in running:
                one.kill()
        time.sleep(0.1)
    return [one.wait() for one in running]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
