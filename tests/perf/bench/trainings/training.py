"""A real CNN training, untraced and under each tracer, in paired runs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.processes import Homes, Worker
from bench.series import Bench, Series, Target

CONTESTANTS = {
    "untraced": "untraced",
    "untraced, again": "untraced",
    "dftrace_ai": "ours",
    "dftrace_ai, not initialised": "ours_inert",
    "pydftracer": "pydftracer",
    "torch.profiler, CPU, exported": "torch_profiler",
}


def measure(homes: Homes, epochs: int, rounds: int) -> list[Bench]:
    """Train once under each contestant per round; set-up and end of the tracer are counted."""
    bench = Bench(
        "training",
        f"CNN on digits, {epochs} epochs, all phases annotated: total time",
        "s",
        series=[Series(label) for label in CONTESTANTS],
        targets=[Target("dftrace_ai", 1.0, "untraced", noise_of="untraced, again")],
        reference="untraced",
        notes=["Each run is a fresh process; one compute thread; items annotated one by one."],
    )
    ends = Bench(
        "training_ends",
        "of that, the beginning and the end of the tracer",
        "ms",
        series=[Series(label) for label in CONTESTANTS if not label.startswith("untraced")],
        reference="dftrace_ai",
    )
    packages = homes.peer_packages()
    labels = list(CONTESTANTS)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        traces = Path(scratch) / "traces"
        traces.mkdir()
        arguments = [str(epochs), str(traces), *([packages] if packages else [])]
        command = ["bench.trainings.training_probe", *arguments]
        worker = Worker(homes.main, command, Path(scratch), {})
        worker.greet()
        for number in range(rounds):
            print(f"  training ({number + 1}/{rounds})", file=sys.stderr)
            turn = number % len(labels)
            for label in labels[turn:] + labels[:turn]:
                answer = worker.ask({"contestant": CONTESTANTS[label]})
                bench.take(label, answer, "s", cpu="cpu_s")
                if not label.startswith("untraced"):
                    ends.take(label, answer, "ends_ms")
        worker.close()
    for label in labels[1:]:
        bench.notes += bench.cpu_note(label, labels[0])
    return [bench, ends]
