"""What a tracer adds to the processor time of a step: to one with work, and to a bare one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.figures import Bench, Series, Target
from bench.processes import Homes, environment
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
BLOCKS = 20


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Run each training under each contestant, in a pair of processes of its own.

    Args:
        homes: the interpreters.
        rounds: of 40 steps each, with the tracer and without; of the bare step, processes.
    """
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
            halves, missing = _found(homes, packages, name, "probe", training, str(rounds), twins=2)
            samples = percents(*halves) if halves else []
            bench.series.append(Series(name, samples, missing=missing))
        bench.targets += [Target(OURS, bound, other) for other, bound in bounds.items()]
        benches.append(bench)
    return [*benches, _bare(homes, packages, rounds)]


def _bare(homes: Homes, packages: str | None, rounds: int) -> Bench:
    """Measure what the noise of a step with work would hide.

    What operators cost a profiler is not in it, for there are hardly any: by a profiler's cost it
    is the harder of the two.
    """
    _, names, bounds = PLANS["transformer"]
    bench = Bench(
        "step_bare",
        "the same step with its modules, but without their work: processor time that tracing adds",
        "us",
        series=[Series(name) for name in names],
        targets=[Target(OURS, bound, other) for other, bound in bounds.items()],
        reference=OURS,
        notes=["All threads; the least of blocks of steps, less that of a process without."],
    )
    for number in range(rounds):
        print(f"  steps: bare, round {number + 1} of {rounds}", file=sys.stderr)
        for series in bench.series:
            # Behind each other: what else the machine does changes by the minute.
            without, _ = _found(homes, packages, AGAIN, "blocks_probe", str(BLOCKS))
            there, series.missing = _found(
                homes, packages, series.contestant, "blocks_probe", str(BLOCKS)
            )
            if there and without:
                series.samples.append(1e6 * (min(there[0]) - min(without[0])))
    return bench


def _found(
    homes: Homes, packages: str | None, name: str, probe: str, *arguments: str, twins: int = 1
) -> tuple[list[list[Any]], str]:
    """Return what probes have found of a contestant at the same time, or nothing and why."""
    if packages is None and name not in OWN:
        return [], "no interpreter with the peers"
    key = CONTESTANTS[name]
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        make_batons(folder)
        results, running = [folder / f"{number}.json" for number in range(twins)], []
        for number in range(twins):
            given = [key, *arguments, made, str(number), *([packages] if packages else [])]
            command = [homes.main, "-m", f"bench.steps.{probe}", *given]
            extra = {}
            if key == "traceml" and packages:
                extra["PYTHONPATH"] = f"{environment({})['PYTHONPATH']}:{packages}"
                script = Path(__file__).with_name(f"{probe}.py")
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
        statuses = [one.wait() for one in running]
        if all(result.exists() for result in results):
            return [json.loads(result.read_text()) for result in results], ""
        lines = (folder / "home-0" / "said").read_text(errors="replace").strip().splitlines()
        return [], lines[-1] if lines else f"ended with {statuses}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
