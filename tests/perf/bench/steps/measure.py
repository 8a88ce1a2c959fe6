"""What a tracer adds to the processor time of a step, steps with and without it in turn."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.figures import Bench, Series, Target
from bench.processes import Homes, environment

OURS, AGAIN = "dftrace_ai", "nobody"
CONTESTANTS = {
    OURS: "ours",
    AGAIN: "nobody",
    "pydftracer": "pydftracer",
    "viztracer": "viztracer",
    "torch.profiler, CPU": "torch_profiler",
    "TraceML": "traceml",
}
# By training: its title, who takes part, and of whose cost ours may be how much at most.
PLANS: dict[str, tuple[str, list[str], dict[str, float]]] = {
    "annotated": (
        "a step of 5 ms with 22 annotated spans and an update: processor time it adds",
        [OURS, AGAIN, "pydftracer", "viztracer"],
        {"pydftracer": 1 / 10},
    ),
    "transformer": (
        "a step of a small transformer, traced by itself: processor time that adds",
        [OURS, AGAIN, "TraceML", "torch.profiler, CPU", "viztracer"],
        {"TraceML": 1 / 3, "torch.profiler, CPU": 1 / 3, "viztracer": 1 / 3},
    ),
}
MOST_PERCENT = 1.0


def measure(homes: Homes, rounds: int) -> list[Bench]:
    """Run each training under each contestant, in a process of its own.

    Args:
        homes: the interpreters.
        rounds: of 20 steps each, with the tracer and without.
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
            notes=["All threads of the process; steps with and without, in turn."],
        )
        for name in names:
            print(f"  steps: {training}, {name}", file=sys.stderr)
            bench.series.append(_series(homes, packages, training, name, rounds))
        bench.targets += [Target(OURS, bound, other) for other, bound in bounds.items()]
        benches.append(bench)
    return benches


def _series(homes: Homes, packages: str | None, training: str, name: str, rounds: int) -> Series:
    key = CONTESTANTS[name]
    own = key in ("ours", "nobody", "torch_profiler")
    if packages is None and not own:
        return Series(name, missing="no interpreter with the peers")
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        arguments = [training, key, str(rounds), folder, *([packages] if packages else [])]
        command = [homes.main, "-m", "bench.steps.probe", *arguments]
        extra = {}
        if key == "traceml" and packages:
            extra["PYTHONPATH"] = f"{environment({})['PYTHONPATH']}:{packages}"
            probe = Path(__file__).with_name("probe.py")
            command = [
                homes.main,
                "-m",
                "traceml_ai.launcher.cli",
                "run",
                str(probe),
                "--args",
                *arguments,
            ]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=environment(extra), check=False
        )
        try:
            pairs = json.loads((Path(folder) / f"{key}.json").read_text())
        except FileNotFoundError:
            said = done.stderr.strip().splitlines()
            return Series(name, missing=said[-1] if said else f"ended with {done.returncode}")
    return Series(name, samples=[100 * (there / bare - 1) for bare, there in pairs])
