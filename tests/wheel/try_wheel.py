"""What an installed package must do on its system: python try_wheel.py [--reader].

It is run in the environment that has it. Annotated code runs, the commands that read are given
traces, and where the recorder is built, a run is recorded and read. It needs nothing that the
package and its extra `analysis` do not bring.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "analysis"))

from trace_lines import training  # noqa: E402 - it lies in no package

STEPS = 40
ANNOTATED = """
import dftrace_ai
from dftrace_ai import ai

@ai.compute.forward
def forward(x):
    return 2 * x

with dftrace_ai.tracing(log_file="recorded/run"):
    for step in range(3):
        with ai.pipeline.train(step=step):
            assert forward(step) == 2 * step
"""
READING = (
    ("info", "made"),
    ("validate", "made"),
    ("summary", "made"),
    ("summary", "made", "--by", "step", "--csv"),
    ("why", "made"),
    ("ranks", "made"),
    ("diff", "made", "made"),
    ("sql", "made", "select count(*) from events"),
    ("convert", "made", "--to", "perfetto", "-o", "perfetto"),
    ("convert", "made", "--to", "parquet", "-o", "tables"),
    ("merge", "made", "-o", "merged.json"),
    ("report", "made", "-o", "report.html"),
)


def dftrace(*words: str) -> str:
    """What a command prints, in this process; it must end well."""
    from dftrace_ai.cli import main as command

    out = io.StringIO()
    sys.argv = ["dftrace", *words]
    status: object = 0
    with contextlib.redirect_stdout(out):
        try:
            command()
        except SystemExit as end:
            status = end.code
    assert not status, f"{words} ended with {status}: {out.getvalue()}"
    return out.getvalue()


def spans(told: str) -> dict[str, int]:
    """How often each span stands in what `summary --json` prints."""
    return {f"{one['cat']}.{one['name']}": one["count"] for one in json.loads(told)["spans"]}


def try_reading() -> None:
    """Traces of two ranks in both codecs: their sums are known, and no command fails."""
    for rank, name in enumerate(("rank-0.pfw.gz", "rank-1.pfw.zst")):
        training(rank, STEPS).write(Path("made", name))
    for words in READING:
        dftrace(*words)
    found = spans(dftrace("summary", "made", "--json"))
    names = ["compute.forward", "compute.backward", "compute.optimizer.step"]
    names += ["dataloader.fetch.iter", "dataloader.fetch.block"]
    assert found == dict.fromkeys(names, 2 * STEPS), found


def try_recording() -> None:
    """What is annotated is recorded, or one line says why it is not."""
    call = [sys.executable, "-c", ANNOTATED]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    from dftrace_ai.recorder import lack

    # Where a wheel has to have it, its lack is no excuse.
    why = lack()
    assert not why or sys.platform != "linux" or "--reader" in sys.argv, why
    if why:
        assert done.stderr.count("\n") == 1, done.stderr
        assert why in done.stderr, done.stderr
        assert not Path("recorded").exists()
        return
    dftrace("validate", "recorded")
    found = spans(dftrace("summary", "recorded", "--json"))
    assert found == {"pipeline.train": 3, "compute.forward": 3}, found


def main() -> None:
    """Try it all in a new folder."""
    import dftrace_ai

    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try_recording()
        try_reading()
        # Windows removes no folder that somebody stands in.
        os.chdir(before)
    print(f"dftrace_ai {dftrace_ai.__version__} works with {sys.version.split()[0]} here")


if __name__ == "__main__":
    main()
