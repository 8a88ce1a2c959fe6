"""`dftrace demo`: a small training on handwritten digits, traced and summed up."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from dftrace_ai.cli.shared_options import json_option, out_option
from dftrace_ai.cli.summary import summary_tables
from dftrace_ai.cli.terminal import console, shown, write_json
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.wording import counted

if TYPE_CHECKING:
    from dftrace_ai.analysis.why import Verdict
    from dftrace_ai.demo import Result


COUNTERS: Final = "system_counters_s"
COUNTERS_S: Final = 0.5


@dataclass(frozen=True)
class DemoReport:
    """What `dftrace demo --json` prints.

    Attributes:
        losses: mean cross entropy of each epoch.
        accuracies: share of the test pictures told right after each epoch.
        steps: batches trained in all.
        traces: the files that were written.
        verdict: as of `dftrace why`; null where nothing was recorded.
        format: version of this form; it grows when a member goes or means something else.
        kind: ``dftrace demo``, by which its JSON is known.
    """

    losses: list[float]
    accuracies: list[float]
    steps: int
    traces: list[str]
    verdict: Verdict | None
    format: Literal[1] = 1
    kind: Literal["dftrace demo"] = "dftrace demo"


def command(
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Passes over the pictures.")] = 5,
    out: Annotated[Path, out_option("DIR", "Where it is written: traces, checkpoint.")] = Path(
        "dftrace-demo"
    ),
    workers: Annotated[int, typer.Option(min=0, metavar="N", help="Loader processes.")] = 2,
    seed: Annotated[
        int, typer.Option(min=0, metavar="SEED", help="Of weights, split and order.")
    ] = 0,
    json: Annotated[bool, json_option("Print JSON instead of tables.")] = False,
) -> None:
    """Train a small network on handwritten digits and trace it.

    Shows what a trace of a whole training holds: the loader's processes, transfers,
    forward, backward, optimizer, evaluation, checkpoints, the loss as a curve.

    Example: dftrace demo --epochs 2 -o traces
    """
    import dftrace_ai
    from dftrace_ai.analysis.summary.report import reported
    from dftrace_ai.analysis.why import verdict_lines, why
    from dftrace_ai.config.sources import settings_given

    screen = console()
    before = set(_traces_in(out))
    # Without them nobody can know what other programs do meanwhile.
    is_told = COUNTERS in settings_given(None, os.environ, {})[0]
    counters: Any = {} if is_told else {COUNTERS: COUNTERS_S}
    with dftrace_ai.tracing(log_file=out / "digits", **counters):
        result = _train(epochs, workers, seed, out)
    if json:
        _print_json(result, [path for path in _traces_in(out) if path not in before])
        return
    screen.print(
        f"accuracy {result.accuracies[-1]:.1%} on unseen digits after "
        f"{counted(epochs, 'epoch')} ({result.steps} steps); best {result.best_accuracy:.1%}"
    )
    traces = [path for path in _traces_in(out) if path not in before]
    if not traces:
        screen.print("no trace was written: recording is off (DFTRACE_ENABLE)")
        return
    screen.print("\nthe trace, one file for each process:")
    for path in traces:
        screen.print(f"  {shown(path)}  {path.stat().st_size:,} bytes")
    screen.print()
    for table in summary_tables(reported(traces), screen.width):
        screen.print(table)
    typed = shown(_as_typed())
    screen.print(f"\nwhat its steps lose time to, by {typed} why {shown(out)}:\n")
    for line in verdict_lines(why(traces)):
        screen.print(shown(line))
    screen.print(
        f"\nto see it in Perfetto:  {typed} view {shown(out)}\n"
        f"or open {shown(traces[0].name)} at https://ui.perfetto.dev (it stays on this machine)"
    )


def _print_json(result: Result, traces: list[Path]) -> None:
    from dftrace_ai.analysis.why import why

    verdict = why(traces) if traces else None
    write_json(DemoReport(**asdict(result), traces=list(map(str, traces)), verdict=verdict))


def _as_typed() -> str:
    """Return what the user has to type: `dftrace` may lie where no shell looks for it."""
    called = Path(sys.argv[0])
    hidden = called.name == "dftrace" and shutil.which("dftrace") is None
    return str(called) if hidden else "dftrace"


def _traces_in(directory: Path) -> list[Path]:
    from dftrace_ai.analysis.reading import open_traces

    try:
        return [trace.path for trace in open_traces([directory])]
    except TraceError:
        return []  # it is not made yet, or nothing was recorded


def _train(epochs: int, workers: int, seed: int, out: Path) -> Result:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    try:
        from dftrace_ai import demo
    except ImportError as error:
        raise DftraceError(
            f"the demo needs torch and scikit-learn ({error}); "
            "install them with: pip install 'dftrace-ai[demo]'"
        ) from error
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task("train", total=None, epoch=f"1/{epochs}", loss="-")

        def show(progress: demo.Progress) -> None:
            bar.update(
                task,
                total=epochs * progress.steps,
                completed=progress.epoch * progress.steps + progress.step + 1,
                epoch=f"{progress.epoch + 1}/{epochs}",
                loss=f"{progress.loss:.3f}",
            )

        return demo.train(epochs, workers, seed, checkpoint_dir=out, on_batch=show)
