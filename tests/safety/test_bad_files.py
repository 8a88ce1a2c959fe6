"""One bad file in a directory: it is named, the others are read, and the status tells."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from analysis.trace_lines import small_trace
from cli.served_traces import viewed

from dftrace_ai.analysis import validating as validate
from dftrace_ai.analysis.reading import TraceSet, open_traces
from dftrace_ai.analysis.reading.search import matching_paths
from dftrace_ai.analysis.summary import table as summary
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.validating import validate_traces
from dftrace_ai.errors import TraceError
from safety.commands import invoke


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    small_trace(100).write(tmp_path / "out" / "a.pfw.gz")
    small_trace(200).write(tmp_path / "out" / "deep" / "z.pfw.zst")
    (tmp_path / "out" / "m.pfw.gz").write_bytes(b"\x1f\x8b\x08garbage")
    (tmp_path / "out" / "n.pfw").write_text("hello")
    return tmp_path / "out"


def test_summary_skips_them_with_a_line_each(directory: Path) -> None:
    done = invoke("summary", directory)
    assert done.status == 1
    assert "20 events in 2 files" in done.out
    first, second = done.err.splitlines()
    assert first.startswith(
        f"dftrace: skipped: {directory}/m.pfw.gz: not a trace file: broken gzip"
    )
    assert second.startswith(f"dftrace: skipped: {directory}/n.pfw: not a trace file: ")
    as_json = json.loads(invoke("summary", "--json", directory).out)
    assert [Path(file["path"]).name for file in as_json["skipped"]] == ["m.pfw.gz", "n.pfw"]
    assert as_json["events"] == 20


def test_validate_reports_them_as_faults(directory: Path) -> None:
    done = invoke("validate", directory)
    assert done.status == 1
    assert [line.split(": ")[0] for line in done.out.splitlines()] == [
        f"{directory}/m.pfw.gz:1",
        f"{directory}/n.pfw:1",
    ]
    assert "2 faults in 4 files, 32 lines, 20 events" in done.err


def test_view_shows_the_others(directory: Path) -> None:
    body, done = viewed(directory)
    assert done.status == 1
    assert gzip.decompress(body).count(b'"name":"process_sort_index"') == 2
    assert done.err.count("skipped: ") == 2
    assert "serving 2 files as one trace" in done.err


COMMANDS = ("summary", "validate", "view", "report --json", "info", "why", "index")


@pytest.mark.parametrize("command", COMMANDS)
def test_what_was_asked_for_by_name_must_be_readable(directory: Path, command: str) -> None:
    bad, missing = directory / "n.pfw", directory / "missing"
    for paths in ([bad], [directory, bad], [bad, directory / "a.pfw.gz"], [missing]):
        done = invoke(*command.split(), *paths)
        assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
        reason = f"{missing}: no such file" if missing in paths else f"{bad}: not a trace file"
        assert done.err.startswith(f"dftrace: {reason}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_of_nothing_readable_is_wrong_input(directory: Path, command: str) -> None:
    (directory / "a.pfw.gz").unlink()
    (directory / "deep" / "z.pfw.zst").unlink()
    done = invoke(*command.split(), directory)
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "m.pfw.gz: not a trace file" in done.err
    assert "1 more cannot be read either" in done.err


@pytest.mark.parametrize("module", [summary, validate], ids=lambda module: module.__name__)
def test_a_file_that_goes_while_the_others_are_read(
    directory: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def and_one_goes(paths: list[Path]) -> TraceSet:
        found = open_traces(paths)
        os.replace(directory / "a.pfw.gz", directory.parent / "elsewhere")
        return found

    monkeypatch.setattr(module, "open_traces", and_one_goes)
    read = {summary: summarise, validate: validate_traces}[module]
    found = str(asdict(read([directory])))
    assert "a.pfw.gz" in found
    assert "cannot be read: No such file or directory" in found
    small_trace(100).write(directory / "a.pfw.gz")
    with pytest.raises(TraceError, match=r"a\.pfw\.gz: cannot be read"):
        read([directory, directory / "a.pfw.gz"])


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to this user")
def test_a_directory_that_cannot_be_listed(directory: Path) -> None:
    (directory / "deep").chmod(0)
    try:
        done = invoke("summary", directory)
        assert done.status == 1
        assert f"{directory}/deep: cannot be listed" in done.err
    finally:
        (directory / "deep").chmod(0o700)


def test_a_directory_that_goes_away_while_it_is_searched_is_nobody_s_concern(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "mn":
        next(directory.glob(f"{name}.pfw*")).unlink()
    walk = os.walk

    def and_one_goes(top: Path, **others: Any) -> Iterator[tuple[str, list[str], list[str]]]:
        for found in walk(top, **others):
            yield found
            shutil.rmtree(directory / "deep", ignore_errors=True)

    monkeypatch.setattr(os, "walk", and_one_goes)
    done = invoke("summary", directory)
    assert (done.status, done.err) == (0, "")
    assert "10 events in 1 file" in done.out


def test_links_that_lead_in_circles_are_not_followed(directory: Path) -> None:
    """Python's own patterns find a file 2 to the 40th times."""
    for name in ("deep/one", "deep/two"):
        (directory / name).symlink_to(directory)
    found = matching_paths([f"{directory}/**/*.pfw.zst"])
    assert found == [directory / "deep" / "z.pfw.zst"]


def test_the_names_of_a_path_mean_nothing_to_duckdb(tmp_path: Path) -> None:
    odd = tmp_path / "ph=X" / "cat=evil" / "name=' OR 1" / "[a]*?"
    small_trace().write(odd / "s3:" / "t[1]{a,b}*?%'.pfw.gz")
    small_trace(200).write(odd / "t1.pfw")
    (odd / "tt.pfw").symlink_to("t1.pfw")
    found = summarise([odd])
    assert (found.events, found.warnings()) == (20, [])
    assert {row.cat for row in found.spans} == {"compute", "data", "dataloader", "pipeline"}


def test_the_duckdb_of_a_relation_opens_no_file(tmp_path: Path) -> None:
    import duckdb

    path = small_trace().write(tmp_path / "t.pfw")
    with open_traces([path]).relation(["ph"]) as events:
        for query in (
            "FROM read_text('/etc/hostname')",
            f"FROM read_text('{tmp_path}/t.pfw')",
            f"FROM read_text('{tmp_path}/*')",
            "FROM read_text('https://example.invalid/x')",
            f"COPY (SELECT 1) TO '{tmp_path}/written'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET enable_external_access = true",
        ):
            with pytest.raises(duckdb.Error):
                events.query("events", query).fetchall()
        assert events.query("events", "SELECT count(ph) FROM events").fetchall() == [(15,)]
    assert not (tmp_path / "written").exists()
