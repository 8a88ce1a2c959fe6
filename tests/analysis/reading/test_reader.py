"""Finding trace files, and reading whole, torn and foreign ones."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path

import pytest
import zstandard
from analysis.trace_lines import small_trace
from sampling import SEED, times

from dftrace_ai.analysis.reading import Trace, TraceEnd, open_traces
from dftrace_ai.analysis.reading.reader import TraceReader
from dftrace_ai.errors import TraceError

NAMES = ("t.pfw", "t.pfw.gz", "t.pfw.zst")


def opened(path: Path) -> Trace:
    (trace,) = open_traces([path])
    return trace


def end_of(path: Path) -> TraceEnd:
    return opened(path).end


def lines_of(path: Path) -> tuple[list[bytes], TraceReader]:
    reader = opened(path).reader()
    numbered = list(reader.lines())
    assert [number for number, _ in numbered] == list(range(1, len(numbered) + 1))
    return [line for _, line in numbered], reader


def big_trace(path: Path) -> tuple[Path, bytes]:
    """A file of several reading steps, hard to compress."""
    trace = small_trace()
    trace.lines.pop()
    noise = random.Random(1)
    for number in range(4000):
        trace.span(f"{noise.getrandbits(256):x}", "compute", 2_000_000_000_000 + number * 10, 5)
    trace.footer()
    return trace.write(path, 300), trace.text


@pytest.mark.parametrize("name", NAMES)
def test_a_large_file_is_read_over_many_steps(tmp_path: Path, name: str) -> None:
    path, text = big_trace(tmp_path / name)
    lines, reader = lines_of(path)
    assert lines == text.splitlines()
    assert reader.tear is None


@pytest.mark.sampled
def test_a_file_cut_at_any_byte_loses_only_its_last_block(tmp_path: Path) -> None:
    trace = small_trace()
    text = trace.text.splitlines()
    for name in NAMES:
        path = trace.write(tmp_path / name, lines_a_block=4)
        whole = path.read_bytes()
        sizes = range(60, len(whole))
        for size in random.Random(SEED).sample(sizes, times(len(sizes), 0.25)):
            path.write_bytes(whole[:size])
            lines, reader = lines_of(path)
            assert lines == text[: len(lines)]
            assert end_of(path).footer is None or len(lines) == len(text)


def test_plain_text_behind_a_broken_gzip_block_is_told(tmp_path: Path) -> None:
    path, text = big_trace(tmp_path / "t.pfw.gz")
    broken = bytearray(path.read_bytes())
    middle = len(broken) // 2
    broken[middle : middle + 2000] = bytes(2000)
    path.write_bytes(broken)
    lines, reader = lines_of(path)
    # Blocks before the broken one are read as they are; that one may give garbled lines.
    alike = [line == wanted for line, wanted in zip(lines, text.splitlines(), strict=False)]
    assert all(alike[:1500])
    assert len(lines) < len(text.splitlines())
    assert reader.tear is not None
    assert "broken gzip data" in str(reader.tear)


def test_zeros_behind_the_last_block_are_passed_over(tmp_path: Path) -> None:
    trace = small_trace()
    for name in NAMES[1:]:
        path = trace.write(tmp_path / name)
        path.write_bytes(path.read_bytes() + bytes(4096))
        lines, reader = lines_of(path)
        assert lines == trace.text.splitlines()
        assert reader.tear is None
        assert end_of(path).whole


def test_a_last_line_without_newline_counts_when_it_is_whole(tmp_path: Path) -> None:
    trace = small_trace()
    path = tmp_path / "t.pfw"
    path.write_bytes(trace.text[:-1])
    lines, reader = lines_of(path)
    assert lines == trace.text.splitlines()
    assert reader.tear is None
    path.write_bytes(trace.text[:-2])
    lines, reader = lines_of(path)
    assert lines == trace.text.splitlines()[:-1]
    assert f"line {len(trace.lines)} is cut" in str(reader.tear)


def test_events_of_other_writers_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "t.pfw"
    path.write_text('[\n{"name":"a"},\n{"name":"b"}\nnonsense\n[1]\n\n]\n')
    reader = opened(path).reader()
    assert [(number, event["name"]) for number, event in reader.events()] == [(2, "a"), (3, "b")]
    assert reader.bad_lines == 2


@pytest.mark.parametrize("name", NAMES)
def test_the_footer_is_found_from_the_end(tmp_path: Path, name: str) -> None:
    path, _ = big_trace(tmp_path / name)
    end = end_of(path)
    assert end.whole
    assert end.footer is not None
    assert end.footer.spans == 4004


@pytest.mark.parametrize("name", NAMES)
def test_a_file_without_footer_is_whole_all_the_same(tmp_path: Path, name: str) -> None:
    trace = small_trace()
    trace.lines.pop()
    end = end_of(trace.write(tmp_path / name))
    assert end.whole
    assert end.footer is None


def test_a_footer_in_a_block_of_megabytes_is_found(tmp_path: Path) -> None:
    trace = small_trace()
    trace.lines.pop()
    noise = random.Random(1)
    trace.span("noise", "data", 2**50, 5, blob=noise.randbytes(1_500_000).hex())
    trace.footer()
    for name in NAMES:
        assert end_of(trace.write(tmp_path / name, 1000)).footer is not None


class TestOpenTraces:
    def test_directories_are_searched_to_any_depth(self, tmp_path: Path) -> None:
        for name in ("b.pfw.gz", "deep/er/a.pfw", "c.pfw.zst"):
            small_trace().write(tmp_path / name)
        (tmp_path / "notes.txt").write_text("not a trace")
        found = open_traces([tmp_path])
        assert [(trace.path.name, trace.file.codec) for trace in found] == [
            ("b.pfw.gz", "gzip"),
            ("c.pfw.zst", "zstd"),
            ("a.pfw", "plain"),
        ]
        assert all(trace.file.framed for trace in found)

    def test_a_file_named_twice_is_found_once(self, tmp_path: Path) -> None:
        path = small_trace().write(tmp_path / "t.pfw")
        (tmp_path / "link.pfw").symlink_to(path)
        assert len(open_traces([path, tmp_path, path])) == 1

    def test_the_codec_is_told_from_the_bytes(self, tmp_path: Path) -> None:
        text = small_trace().text
        (tmp_path / "a").write_bytes(gzip.compress(text))
        (tmp_path / "b").write_bytes(zstandard.compress(text))
        (tmp_path / "c.gz").write_bytes(text)
        assert [
            trace.file.codec
            for trace in open_traces(tmp_path / name for name in ("a", "b", "c.gz"))
        ] == [
            "gzip",
            "zstd",
            "plain",
        ]

    def test_what_is_no_trace_is_named(self, tmp_path: Path) -> None:
        def refused(*paths: Path) -> str:
            with pytest.raises(TraceError) as caught:
                open_traces(paths)
            return str(caught.value)

        assert "no such file" in refused(tmp_path / "missing.pfw")
        assert "no trace files" in refused(tmp_path)
        picture = tmp_path / "x.pfw"
        picture.write_bytes(b"\x89PNG\r\n")
        assert "not a trace" in refused(picture)
        picture.write_bytes(gzip.compress(b"hello"))
        assert "not a trace" in refused(picture)
        picture.write_bytes(b"\x1f\x8b\x08garbage beyond hope")
        assert "not a trace" in refused(picture)
        picture.write_bytes(b"\x28\xb5\x2f\xfdgarbage beyond hope")
        assert "not a trace" in refused(picture)
        assert "not a regular file" in refused(Path(os.devnull))

    def test_an_empty_file_is_a_trace_without_events(self, tmp_path: Path) -> None:
        path = tmp_path / "t.pfw.gz"
        path.touch()
        lines, reader = lines_of(path)
        assert lines == []
        assert str(reader.tear) == "the file is empty"
        assert not end_of(path).whole
