"""`dftrace index`: a summary by an index file equals one by the lines, or the file is not used."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from analysis.indexed.heads import blocks_of
from analysis.indexed.test_index_line import train
from analysis.trace_lines import small_trace
from conftest import trace_files
from printed_json import checked
from safety.commands import invoke

import dftrace_ai
from dftrace_ai.analysis.reading import index_file
from dftrace_ai.analysis.summary import adding, indexing
from dftrace_ai.analysis.summary.table import Summary, summarise

PROFILE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "pid": 7, "tid": 7, "ts": at, "dur": 9.5}
        for at in range(0, 4000, 10)
        for name in ("add", "mul")
    ],
}  # fmt: skip


def foreign() -> bytes:
    """As dftracer has them, with what others write, too: spans by start, odd phases, no times."""
    lines = [
        {"id": at, "name": ("step", "read")[at % 2], "cat": "POSIX", "pid": 1, "tid": at % 3,
         "ts": 100 * at, "dur": 150 if at % 4 else 1000, "ph": "X", "args": {"hhash": "a"}}
        for at in range(2000)
    ]  # fmt: skip
    lines += [{"name": "mark", "cat": "x", "pid": 1, "tid": 1, "ts": 5, "ph": "R"}] * 3
    lines += [{"name": "half", "cat": "x", "pid": 1, "tid": 1, "ts": 5, "ph": "X"}] * 2
    text = "[\n" + "\n".join(map(json.dumps, lines)) + "\nno event\n"
    return text.encode()


def in_members(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join(
        gzip.compress(b"".join(lines[at : at + 300])) for at in range(0, len(lines), 300)
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of each kind, in a directory of its own."""
    root = tmp_path_factory.mktemp("made")
    text = foreign()
    with dftrace_ai.tracing(log_file=root / "own" / "t", write_buffer_bytes=32 * 1024):
        train(3000)
    (own,) = trace_files(root / "own")
    lines = gzip.decompress(own.read_bytes())
    kinds = {
        "members/f.pfw.gz": in_members(text),
        "one/f.pfw.gz": gzip.compress(text),
        "zstd/f.pfw.zst": zstandard.compress(text),
        "plain/f.pfw": text,
        "bracket/f.pfw.gz": gzip.compress(text + b"]\n"),
        "cut/f.pfw.gz": gzip.compress(text)[:-2000],
        "cut_plain/f.pfw": text[:-50],
        "own_again/f.pfw.gz": gzip.compress(lines),
        "own_cut/f.pfw": lines[: len(lines) // 2],
        "profile/f.pt.trace.json": json.dumps(PROFILE).encode(),
        "empty/f.pfw": b"",
    }
    for name, content in kinds.items():
        (root / name).parent.mkdir()
        (root / name).write_bytes(content)
    (root / "parts").mkdir()
    with dftrace_ai.tracing(
        log_file=root / "parts" / "t", write_buffer_bytes=8192, max_file_bytes=65536
    ):
        train(3000)
    return root


def as_seen(found: Summary) -> str:
    return repr((found.to_dict(), found.spans, found.others, found.files))


def test_of_any_kind_of_trace(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = sorted(path for path in made.iterdir() if path.name != "own")
    truth = {kind.name: as_seen(summarise([kind])) for kind in kinds}
    before = {path: path.read_bytes() for kind in kinds for path in kind.iterdir()}
    assert "torn" in truth["cut"]
    assert "without an event" in truth["one"]
    for kind in kinds:
        (one,) = indexing.index_traces([kind])
        assert one.state == "made", one
        if kind.name in {"members", "one", "zstd", "plain"}:
            # Each once, though spans by start are read a second time.
            assert one.lines == foreign().count(b"\n"), kind.name
        (again,) = indexing.index_traces([kind])
        assert (again.state, again.lines) == ("up to date", one.lines)
    assert {path: path.read_bytes() for path in before} == before
    # Not a line is read, and nothing that would need it.
    monkeypatch.setattr(adding, "_add_process", None)
    monkeypatch.setattr("dftrace_ai.analysis.reading.trace.read_end", None)
    for kind in kinds:
        assert as_seen(summarise([kind])) == truth[kind.name], kind.name


def test_what_holds_its_index_needs_none(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t", write_buffer_bytes=32 * 1024):
        train(10_000)
    (path,) = trace_files(tmp_path)
    assert any(block.kind == 1 for block in blocks_of(path))
    done = invoke("index", tmp_path)
    assert (done.status, done.out) == (0, f"has one itself: {path}\n")
    assert list(tmp_path.iterdir()) == [path]


def touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes()[-200:])


def changed_in_place(path: Path) -> None:
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.seek(5)
        file.write(b"X")
    os.utime(path, ns=times)


def another(path: Path) -> None:
    shutil.copy2(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


STALE: list[Callable[[Path], None]] = [touched, grown, changed_in_place, another]


PLANTED: dict[str, Callable[[dict[str, Any]], object]] = {
    "says lines": lambda figures: figures.update(lines=figures["lines"] + 1),
    "says unreadable": lambda figures: figures.update(unreadable=1),
    "says sum_ns": lambda figures: figures["spans"][0].__setitem__(3, 1),
    "says count": lambda figures: figures["others"][0].__setitem__(3, 9),
    "other durations": lambda figures: figures["spans"][0].__setitem__(8, [7]),
    "does not say how trace 1 of the process ends": lambda figures: figures["files"][0].__setitem__(
        0, "cut"
    ),
    "other times of trace 1": lambda figures: figures["files"][0][2].__setitem__(0, 5),
}


def test_validate_holds_its_figures_against_the_lines(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t.pfw")
    (one,) = indexing.index_traces([path])
    index = Path(one.path)
    well = index.read_bytes()
    assert invoke("validate", path).out.startswith("no faults in 2 files, ")
    for what, change in PLANTED.items():
        content = json.loads(well[well.index(b"\n") + 1 :])
        change(content["figures"])
        text = json.dumps(content).encode()
        digest = index_file.sha256(text).hexdigest().encode()
        index.write_bytes(index_file.MARK + digest + b"\n" + text)
        done = invoke("validate", path)
        assert done.status == 1, what
        assert done.out.startswith(f"{index}:2: the index "), what
        assert what in done.out
    # One that nobody uses is no fault.
    index.write_bytes(well[:-1])
    done = invoke("validate", path)
    assert (done.status, "not used" in done.err) == (0, True)


@pytest.mark.parametrize("change", STALE)
def test_one_of_a_trace_that_changed_is_not_used(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = small_trace().write(tmp_path / "t.pfw")
    assert invoke("index", path).status == 0
    change(path)
    done = invoke("summary", "--json", path)
    index = tmp_path / "t.dfindex"
    note = f"{index}: not used: was made before the trace changed; `dftrace index` makes it again"
    said = json.loads(done.out)["warnings"]
    assert note in said
    assert note in " ".join(done.err.split())
    index.unlink()
    assert json.loads(invoke("summary", "--json", path).out)["warnings"] == [
        line for line in said if line != note
    ]
    assert invoke("index", path).out.startswith(f"made: {index} (")
    assert "not used" not in invoke("summary", path).err


def test_one_that_is_broken_or_somebody_elses_is_not_used(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t.pfw")
    truth = summarise([path])
    (one,) = indexing.index_traces([path])
    index = Path(one.path)
    well = index.read_bytes()

    def said() -> list[str]:
        found = summarise([path])
        assert (found.spans, found.events) == (truth.spans, truth.events)
        return [note.removeprefix(f"{index}: not used: ") for note in found.notes]

    def signed(change: Callable[[dict[str, dict[str, int]]], object]) -> bytes:
        content = json.loads(well[well.index(b"\n") + 1 :])
        change(content)
        text = json.dumps(content).encode()
        return index_file.MARK + index_file.sha256(text).hexdigest().encode() + b"\n" + text

    assert said() == []
    for at in range(0, len(well), 7):
        index.write_bytes(well[:at] + bytes([well[at] ^ 1]) + well[at + 1 :])
        assert said() == ["is damaged"]
    # Of an earlier version, in which steps beside a thread have time of their own.
    index.write_bytes(b"dftrace index 1 " + well[len(index_file.MARK) :])
    assert said() == ["is of an earlier version; `dftrace index` makes it again"]
    assert "made" in {one.state for one in indexing.index_traces([path])}
    for content in (b"", well[:100], signed(lambda all_of: all_of.pop("files"))):
        index.write_bytes(content)
        assert said() == ["is damaged"]
    index.write_bytes(signed(lambda all_of: all_of["figures"].update(lines=-1)))
    assert said() == ["is damaged"]
    for file in ([5, [True, True, False, None]], [None, [True, True, False, 5]]):
        index.write_bytes(signed(lambda all_of, file=file: all_of["figures"].update(files=[file])))  # type: ignore[misc]
        assert said() == ["is damaged"]
    index.write_bytes(signed(lambda all_of: all_of["figures"].update(lines=2)))
    assert said() == ["its figures cannot be"]
    index.write_bytes(well)
    index.chmod(0o666)
    assert said() == ["may have been written by somebody else"]
    index.chmod(0o600)
    assert said() == []
    if os.geteuid() == 0:
        os.chown(index, 12345, 12345)
        assert said() == ["may have been written by somebody else"]
    index.unlink()
    index.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(well)
    assert said() == ["cannot be read: Too many levels of symbolic links"]
    index.unlink()
    index.mkdir()
    assert said() == ["is no index"]
    index.rmdir()
    os.mkfifo(index)
    assert said() == ["is no index"]


def test_nothing_else_is_overwritten_and_what_may_not_be_written_is_told(tmp_path: Path) -> None:
    path = small_trace().write(tmp_path / "t.pfw")
    other = small_trace().write(tmp_path / "u.pfw")
    index, precious = tmp_path / "t.dfindex", tmp_path / "precious"
    precious.write_bytes(b"mine")
    for plant in (
        lambda: index.symlink_to(precious),
        lambda: index.write_bytes(b"mine"),
        lambda: index.mkdir(),
    ):
        plant()
        done = invoke("index", tmp_path)
        assert done.status == 1
        assert done.out.startswith(f"made: {tmp_path}/u.dfindex (")
        (line,) = done.err.splitlines()
        assert "is no index of ours, and is left as it is" in line
        assert precious.read_bytes() == b"mine"
        (tmp_path / "u.dfindex").unlink()
        index.rmdir() if index.is_dir() else index.unlink()
    path.chmod(0o644)
    other.chmod(0o600)
    before = os.umask(0)
    try:
        assert invoke("index", tmp_path).status == 0
    finally:
        os.umask(before)
    assert [oct((tmp_path / f"{name}.dfindex").stat().st_mode & 0o777) for name in "tu"] == [
        "0o644",
        "0o600",
    ]
    assert {file.name for file in tmp_path.iterdir()} == {
        *("t.pfw", "u.pfw", "t.dfindex", "u.dfindex", "precious"),
    }


def test_a_directory_that_may_not_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_trace().write(tmp_path / "t.pfw")
    access = os.access

    def closed(path: Path, mode: int, **more: bool) -> bool:
        return path != tmp_path and access(path, mode, **more)

    monkeypatch.setattr(os, "access", closed)
    done = invoke("index", "--json", path)
    assert done.status == 1
    (process,) = checked(done.out, "index")["processes"]
    assert process["state"] == "left out"
    assert process["reason"].endswith("t.dfindex: cannot be written: Permission denied")
    assert [line for line in done.err.splitlines() if "Permission denied" in line]
    assert list(tmp_path.iterdir()) == [path]
