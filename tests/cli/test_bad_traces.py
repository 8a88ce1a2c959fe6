"""Every command that reads traces, with files of which not much can be said: used as far as it goes."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from urllib.parse import parse_qs
from urllib.request import urlopen

import pytest
from analysis.bad_traces import bad_inputs
from cli.served_traces import serving, stand_in_ui
from safety.commands import acting, invoke
from sampling import times

pytest.importorskip("duckdb")

# What each says of its exit status: 1 for faults that were found and files that were skipped.
STATUSES = {
    "summary": {0, 1},
    "summary --by tree": {0, 1},
    "report": {0, 1},
    "sql": {0, 1},
    "validate": {0, 1},
    "convert --to perfetto": {0, 1},
    "convert --to parquet": {0, 1},
    "convert --to dftracer": {0, 1},
    "diff": {0},
    "index": {0, 1},
}
QUERY = "select (select count(*) from spans) n, (select max(rss_bytes) from steps) memory"


def words_of(command: str, path: Path, out: Path) -> list[object]:
    """The call by which a command is tried on a file."""
    name, *options = command.split()
    if name == "sql":
        return ["sql", "--json", path, QUERY]
    if name == "report":
        return ["report", "--json", path, "-o", out / f"{path.stem}.html"]
    if name == "convert":
        return ["convert", "--json", path, *options, "--out", out / f"{path.stem}-{options[-1]}"]
    return [name, "--json", *options, *([path, path] if name == "diff" else [path])]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return bad_inputs(tmp_path_factory.mktemp("bad"))


@pytest.mark.sampled
@pytest.mark.parametrize("command", STATUSES)
def test_a_bad_trace_never_ends_a_command_with_a_traceback(
    inputs: list[Path], tmp_path: Path, command: str
) -> None:
    some = random.Random(command).sample(inputs, times(len(inputs), 0.4))
    for path in [*some, inputs[0].parent]:
        words = words_of(command, path, tmp_path)
        done = invoke(*words)
        called = " ".join(map(str, words))
        assert done.status in STATUSES[command], (called, done)
        assert "Traceback" not in done.err, called
        assert not acting(done.out + done.err), called
        json.loads(done.out)


def test_an_empty_file_is_told_of_as_such(tmp_path: Path) -> None:
    path = tmp_path / "t-host-1.pfw"
    path.touch()
    # There is nothing to make an index of, and nothing is missing in it.
    for command in [*STATUSES, "why"]:
        done = invoke(*words_of(command, path, tmp_path))
        assert ("the file is empty" in done.out + done.err) == (command != "index"), command
        assert "comes before" not in done.out + done.err, command
    assert invoke("sql", path, QUERY).status == 1


def test_so_it_is_with_what_is_viewed(inputs: list[Path], tmp_path: Path) -> None:
    ui = stand_in_ui(tmp_path)
    for path in [*inputs, inputs[0].parent]:
        with serving(path, ui) as server:
            (url,) = parse_qs(server.address.partition("#!/?")[2])["url"]
            with urlopen(url, timeout=60) as answer:
                shown = answer.read()
        lines = gzip.decompress(shown) if shown[:2] == b"\x1f\x8b" else shown
        assert lines.startswith(b"["), path
