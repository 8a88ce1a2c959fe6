"""Commands that write where there is no room: a line, the documented status, and no half file."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from analysis.lines.made_stacks import MadeStacks
from analysis.trace_lines import TraceLines
from conftest import clean_environment
from safety.commands import COPYING_COMMAND, LIMIT_S, Done, invoke
from stress.pressure.disk import small_disk

from dftrace_ai.analysis.converting import FORMS
from dftrace_ai.generating import Job, generate

MS = 1_000_000
# Less than any of the files that are written.
MOST_BYTES = 100
ROOM = 1 << 14


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A run of some steps, packed by another program, so that it has no index."""
    lines = TraceLines()
    stacks = MadeStacks(lines, 0)
    for step in range(60):
        at = step * 20 * MS
        lines.span("fetch.iter", "dataloader", at, 2 * MS, count=step + 1)
        lines.span("forward", "compute", at + 3 * MS, 10 * MS)
        lines.span("step", "pipeline", at + 2 * MS, 15 * MS)
        stacks.sample(at + 5 * MS, [("main", "train.py", 1), (f"layer_{step}", "model.py", step)])
    stacks.end()
    lines.footer(samples=stacks.samples)
    return lines.write(tmp_path / "run" / "t-host-100.pfw.gz", 10**6)


@pytest.fixture(params=["a full disk", "a limit on files"])
def full(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory in which nothing can be written, though files can be made."""
    with small_disk(tmp_path / "full", real=request.param == "a full disk") as disk:
        if disk.real:
            (disk.path / "run").mkdir()
            disk.fill()
        yield disk.path


def dftrace(*words: object, at: Path, temporary: Path | None = None) -> Done:
    """Runs the command; where the disk is not full, no file may be larger than `MOST_BYTES`."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))

    done = subprocess.run(
        [*COPYING_COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        env={
            **clean_environment(),
            "PYTHONDONTWRITEBYTECODE": "1",
            **({"TMPDIR": str(temporary)} if temporary else {}),
        },
        timeout=LIMIT_S,
        preexec_fn=None if (at / "ballast").exists() else limited,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def with_a_little_room(full: Path) -> Path:
    """The directory, in which a small file can be written: else temporary ones go elsewhere."""
    if (full / "ballast").exists():
        os.truncate(full / "ballast", (full / "ballast").stat().st_size - ROOM)
    return full


def left_in(folder: Path) -> list[str]:
    """What stands in a directory that was not there before."""
    return sorted(path.name for path in folder.iterdir() if path.name not in {"ballast", "run"})


def in_one_line(done: Done, status: int) -> str:
    assert "Traceback" not in done.err
    (line,) = done.err.splitlines()
    assert (done.status, done.out) == (status, ""), done
    assert line.startswith("dftrace: ")
    assert any(reason in line for reason in (": No space left on device", ": File too large")), line
    return line


@pytest.mark.parametrize(
    "call",
    [
        "report TRACE -o FULL/out",
        "report TRACE --json --plots FULL",
        "generate FULL/out --ranks 2 --steps 1 --jobs 2",
        *(f"convert TRACE --to {form} --out FULL/out" for form in FORMS),
    ],
)
def test_what_is_written(trace: Path, full: Path, call: str) -> None:
    words = call.replace("TRACE", str(trace)).replace("FULL", str(full)).split()
    line = in_one_line(dftrace(*words, at=full), 2)
    assert "--plots" in call or f"{full}/out" in line
    assert left_in(full) == []


def test_an_index(trace: Path, full: Path) -> None:
    beside = full / "t-host-100.pfw.gz"
    # A name for it is all that there is room for.
    beside.symlink_to(trace)
    line = in_one_line(dftrace("index", beside, at=full), 1)
    assert f"not indexed: {beside}" in line
    assert left_in(full) == [beside.name]
    assert not list(trace.parent.glob("*.dfindex*"))


@pytest.mark.parametrize("command", ["summary", "view", "sql"])
def test_copies_of_what_is_in_an_archive(
    trace: Path, full: Path, tmp_path: Path, command: str
) -> None:
    archive = tmp_path / "run.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        info = tarfile.TarInfo("t-host-100.pfw.gz")
        content = trace.read_bytes() * 40  # more than a disk leaves at its end
        info.size = len(content)
        packed.addfile(info, io.BytesIO(content))
    words = ["select 1"] if command == "sql" else ["--no-browser"] if command == "view" else []
    done = dftrace(command, archive, *words, at=full, temporary=with_a_little_room(full))
    assert str(full) in in_one_line(done, 2)
    assert left_in(full) == []


def test_copies_of_a_profile(full: Path, tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::{at}", "pid": 1, "tid": 1, "ts": at, "dur": 1}
        for at in range(20_000)
    ]
    profile = tmp_path / "rank0.pt.trace.json"
    profile.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    in_one_line(dftrace("summary", profile, at=full, temporary=with_a_little_room(full)), 2)
    assert left_in(full) == []


DIES = """
import os
import dftrace_ai
from dftrace_ai import ai

dftrace_ai.initialize(log_file="t", write_buffer_bytes=1 << 20)
for _ in range(500):
    with ai.compute.forward:
        pass
os._exit(0)
"""


def test_what_waits_in_a_spool_is_told_as_lost(trace: Path) -> None:
    folder = trace.parent
    subprocess.run([sys.executable, "-c", DIES], cwd=folder, env=clean_environment(), check=True)
    for command, *more in (["summary"], ["validate", "--unfinished-ok"], ["sql", "select 1"]):
        done = dftrace(command, folder, *more, at=folder)
        assert done.status == 1, (command, done.out, done.err)
        assert "LOST for these figures: 500 events wait in spools" in done.err, command
    told = dftrace("summary", folder, "--json", at=folder)
    before = json.loads(told.out)
    assert (told.status, before["losses"]) == (1, {"waiting": 500})
    # With room again nothing is lost.
    whole = invoke("summary", folder, "--json", "--run", "all")
    after = json.loads(whole.out)
    assert (whole.status, after["events"], after["losses"]) == (0, before["events"] + 500, {})


READ_ONLY = """
mount -t tmpfs none "$1" && cp "$2"/* "$1" && mount -o remount,ro "$1" && cd "$1/.." || exit 77
for words in "index out" "merge out -o out/all.pfw" "merge out -o out/all.tar --archive"; do
  "$3" -m dftrace_ai $words >/dev/null || echo "$?"
done
ls -A "$1"
"""


def test_a_directory_that_nobody_may_write_to_any_more(tmp_path: Path) -> None:
    """One sentence however many ranks there are, and nothing is left there."""
    generate(Job(ranks=4, steps=30), tmp_path / "made", jobs=1)
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", READ_ONLY, "sh"]
        + [tmp_path / "out", tmp_path / "made", sys.executable],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare: " in done.stderr or done.returncode == 77:
        pytest.skip(done.stderr)
    made = sorted(path.name for path in (tmp_path / "made").iterdir())
    assert done.stdout.split() == ["1", "2", "2", *made]
    kept, one, archive = done.stderr.splitlines()
    assert re.fullmatch(
        r"dftrace: not kept for dftrace ranks: out/\S+\.dfrank and 3 more files: "
        "cannot be written: Read-only file system",
        kept,
    )
    assert one == "dftrace: out/all.pfw: cannot be written: Read-only file system"
    assert archive == "dftrace: out/all.tar: cannot be written: Read-only file system"
