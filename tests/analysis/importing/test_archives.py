"""Archives of traces: read as a directory of them is, and refused where they are made to harm."""

from __future__ import annotations

import contextlib
import gzip
import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from analysis.trace_lines import TraceLines, small_trace
from safety.commands import invoke, read_by

from dftrace_ai.analysis.merging.merged_trace import MergedTrace
from dftrace_ai.analysis.reading import TraceSet, open_traces
from dftrace_ai.analysis.reading.event_columns import event_columns
from dftrace_ai.analysis.reading.importing import archives, copies
from dftrace_ai.analysis.summary.table import summarise
from dftrace_ai.analysis.validating import validate_traces
from dftrace_ai.errors import TraceError

PLAIN = small_trace(100).text


def tar_of(members: dict[str, bytes], kind: str = "", form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{kind}", format=form) as archive:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("run")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def zip_of(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.mkdir("run") if hasattr(archive, "mkdir") else None
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def opened(path: Path, content: bytes) -> TraceSet:
    path.write_bytes(content)
    return open_traces([path])


def told(path: Path, content: bytes) -> list[str]:
    """What is said of an archive: names of its traces, and reasons why others are none."""
    try:
        traces = opened(path, content)
    except TraceError as error:
        return [f"refused: {error}".replace(str(path), "archive")]
    names = [str(trace).replace(str(path), "archive") for trace in traces]
    return [*names, *(str(skipped).replace(str(path), "archive") for skipped in traces.skipped)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a run leaves it: all codecs, a trace in parts, other files beside them."""
    folder = tmp_path_factory.mktemp("run")
    small_trace(200).write(folder / "b.pfw.gz")
    small_trace(300).write(folder / "deep" / ("long" * 50) / "c.pfw.zst")
    for part in range(2):
        trace = TraceLines(400)
        for number in range(50):
            trace.span(f"s{number}", "compute", (50 * part + number) * 1000, 900)
        trace.write(folder / ("d.pfw.gz" if not part else "d.part1.pfw.gz"))
    (folder / "a.pfw").write_bytes(PLAIN)
    (folder / "notes.txt").write_bytes(b"\n" * 10_000)
    return folder


def test_an_archive_gives_what_its_directory_gives(folder: Path, tmp_path: Path) -> None:
    members = {
        f"./{path.relative_to(folder.parent)}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    made = {
        "run.tar": tar_of(members),
        "run.tar.gz": tar_of(members, "gz", tarfile.GNU_FORMAT),
        "run.tgz": gzip.compress(tar_of(members)[:2000]) + gzip.compress(tar_of(members)[2000:]),
        "run.tar.zst": zstandard.compress(tar_of(members)),
        "run.zip": zip_of(members),
        "stored.zip": zip_of(members, zipfile.ZIP_STORED),
    }
    before = summarise([folder])
    checked = validate_traces([folder])
    lines = sorted(b"".join(MergedTrace(open_traces([folder]))).splitlines())
    columns = [len(part) for part in event_columns(open_traces([folder]))]
    for name, content in made.items():
        path = tmp_path / name
        traces = opened(path, content)
        assert [str(trace) for trace in traces] == [
            str(trace).replace(str(folder), str(path / folder.name))
            for trace in open_traces([folder])
        ], name
        found = summarise([path])
        assert (found.spans, found.others, found.events) == (
            before.spans,
            before.others,
            before.events,
        )
        assert [text.partition(": ")[2] for text in found.warnings()] == [
            text.partition(": ")[2] for text in before.warnings()
        ]
        assert validate_traces([path]).fault_count == checked.fault_count
        assert sorted(b"".join(MergedTrace(traces)).splitlines()) == lines
        assert [len(part) for part in event_columns(traces)] == columns
        assert sum(len(batch["ph"]) for batch in traces.batches(["ph"])) == sum(columns)


def test_the_commands_take_archives(tmp_path: Path) -> None:
    (tmp_path / "t.zip").write_bytes(zip_of({"a.pfw": PLAIN, "../b.pfw": PLAIN}))
    done = invoke("summary", tmp_path / "t.zip")
    assert (done.status, "10 events in 1 file" in done.out) == (1, True)
    assert "t.zip/../b.pfw: a name that leads out of the archive" in done.err
    (tmp_path / "good.tar").write_bytes(tar_of({"a.pfw": PLAIN}))
    for command in ("summary", "why", "validate"):
        assert invoke(command, tmp_path / "good.tar").status == 0
    (tmp_path / "none.tar").write_bytes(tar_of({"a.txt": PLAIN}))
    done = invoke("summary", tmp_path / "none.tar")
    assert (done.status, done.out, "no trace files (.pfw," in done.err) == (2, "", True)


def linked(kind: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("link.pfw")
        member.type = kind
        member.linkname = "/etc/passwd"
        archive.addfile(member)
    return out.getvalue()


def linked_zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        member = zipfile.ZipInfo("link.pfw")
        member.create_system = 3
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    return out.getvalue()


def test_members_that_are_made_to_harm_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    for make in (tar_of, zip_of):
        members = {
            "/abs.pfw": PLAIN,
            "../up.pfw": PLAIN,
            "a/../../up.pfw": PLAIN,
            "nested.tar.gz": tar_of({"a.pfw": PLAIN}, "gz"),
            "nested.zip": zip_of({"a.pfw": PLAIN}),
            "hidden.pfw": zip_of({"a.pfw": PLAIN}),
            "n" * 2000 + ".pfw": PLAIN,
            "picture.pfw": b"\x89PNG",
            "good.pfw": PLAIN,
        }
        found = told(path, make(members))
        reasons = {text.split(": ")[0].rpartition("/")[2]: text for text in found}
        assert found[0] == "archive/good.pfw"
        assert len(found) == 9
        for name in ("abs.pfw", "up.pfw"):
            assert "a name that leads out of the archive" in reasons[name]
        assert "an archive within an archive" in reasons["nested.tar.gz"]
        assert "an archive within an archive" in reasons["nested.zip"]
        assert "not a trace file" in reasons["hidden.pfw"]
        assert "not a trace file" in reasons["picture.pfw"]
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        assert told(path, linked(kind)) == ["refused: archive/link.pfw: a link"]
    assert told(path, linked_zip()) == ["refused: archive/link.pfw: a link"]
    for kind, reason in ((tarfile.FIFOTYPE, "no regular file"), (b"S", "a sparse file")):
        assert told(path, linked(kind)) == [f"refused: archive/link.pfw: {reason}"]
    twice = tar_of({"./a.pfw": PLAIN, "a.pfw": PLAIN})
    assert told(path, twice) == ["archive/a.pfw", "archive/a.pfw: stands twice in the archive"]
    secret = bytearray(zip_of({"a.pfw": PLAIN, "b.pfw": PLAIN}))
    entry = secret.rindex(b"PK\1\2")
    secret[entry + 8] |= 1
    assert told(path, bytes(secret)) == ["archive/a.pfw", "archive/b.pfw: encrypted"]
    packed = zip_of({"a.pfw": PLAIN}, zipfile.ZIP_BZIP2)
    assert "method 12, which is not read" in told(path, packed)[0]
    assert not list(tmp_path.parent.glob("up.pfw"))


def endless_name(kind: bytes) -> bytes:
    header = tarfile.TarInfo("name")
    header.type = kind
    header.size = 1 << 30
    return header.tobuf()


def test_bombs_are_refused_in_little_memory(tmp_path: Path) -> None:
    zeros = b"[\n" + b"\0" * (100 << 20)
    bombs = tmp_path / "bombs"
    bombs.mkdir()
    (bombs / "zeros.zip").write_bytes(zip_of({"a.pfw": zeros}))
    header = tarfile.TarInfo("a.pfw")
    header.size = 1 << 40
    (bombs / "zeros.tar.gz").write_bytes(gzip.compress(header.tobuf() + zeros))
    (bombs / "names.tar").write_bytes(endless_name(b"x") + endless_name(b"L"))
    found, peak_mib = read_by("summary", bombs)
    for name in ("zeros.zip", "zeros.tar.gz"):
        assert "unpacks to more than 200 times its size" in found[name][0], name
    assert "the name of a member is endless" in found["names.tar"][0]
    assert peak_mib < 250


def test_an_archive_that_is_cut_gives_what_comes_before(tmp_path: Path) -> None:
    lines = PLAIN.count(b"\n")
    whole = tar_of({"a.pfw": PLAIN, "b.pfw": PLAIN}, form=tarfile.USTAR_FORMAT)
    begin = whole.index(PLAIN)
    second = whole.index(PLAIN, begin + 1)
    path = tmp_path / "archive"
    found = told(path, whole[: second + len(PLAIN) // 2])
    assert found == [
        "archive/a.pfw",
        "archive/b.pfw",
        "archive: cut: it ends too early; what comes before it is read",
    ]
    first, other = open_traces([path])
    assert sum(1 for _ in first.lines()) == lines
    assert 0 < sum(1 for _ in other.lines()) < lines
    assert (first.end.state, other.end.state) == ("complete", "cut off")
    assert any("the archive ends within it" in text for text in summarise([path]).warnings())
    assert told(path, whole[: begin - 512 + 100]) == [
        "refused: archive: cut: it ends too early; what comes before it is read"
    ]
    found = told(path, gzip.compress(whole, 0)[: second + 100])
    assert found[-1] == (
        "archive: the file ends inside the gzip block that begins at byte 0; "
        "what comes before it is read"
    )
    packed = bytearray(zip_of({"a.pfw": PLAIN, "b.pfw": PLAIN}, zipfile.ZIP_STORED))
    packed[packed.index(PLAIN) + 300] ^= 1
    assert told(path, bytes(packed)) == [
        "archive/b.pfw",
        "archive/a.pfw: broken data in the archive",
    ]
    assert "the directory at its end is missing" in told(path, bytes(packed[:-40]))[0]


def test_no_bytes_make_it_fail(tmp_path: Path) -> None:
    """Changed at random, an archive is read, refused or skipped, and nothing else happens."""
    chance = random.Random(7)
    seeds = [
        tar_of({"a.pfw": PLAIN, "x" * 120 + ".pfw": b""}),
        tar_of({"a.pfw": PLAIN, "x" * 120 + ".pfw": b""}, form=tarfile.GNU_FORMAT),
        zip_of({"a.pfw": PLAIN, "b.pfw": PLAIN}),
    ]
    path = tmp_path / "archive"
    for turn in range(300):
        content = bytearray(seeds[turn % 3])
        places = range(len(content))
        if turn % 3 == 2 and turn % 2:
            places = range(content.index(b"PK\1\2"), len(content))
        for _ in range(chance.randint(1, 8)):
            content[chance.choice(places)] = chance.choice((0, 0xFF, 0x80, chance.randrange(256)))
        path.write_bytes(content)
        with contextlib.suppress(TraceError):
            for trace in open_traces([path]):
                for _ in trace.events():
                    pass


def test_there_are_not_more_members_than_a_job_has_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
    many = {f"{number}.pfw": PLAIN for number in range(5)}
    for content in (tar_of(many), zip_of(many)):
        found = told(tmp_path / "archive", content)
        assert found[:2] == ["archive/0.pfw", "archive/1.pfw"]
        assert found[-1] == "archive: more than 3 members; what comes before it is read"


def test_a_disk_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "SPARE_BYTES", 1000)
    monkeypatch.setattr(copies, "MOST_MEMORY_BYTES", 0)
    random_bytes = random.Random(1).randbytes(10_000)
    many = {f"{number}.pfw.gz": gzip.compress(random_bytes) for number in range(20)}
    (found,) = told(tmp_path / "archive", gzip.compress(tar_of(many)))
    assert "take more than 4 times its size; unpack it" in found


def test_a_zip_for_sizes_beyond_32_bits_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those with more than 65,535 members or 4 GiB are written; here for a few lines."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    content = zip_of({"a.pfw": PLAIN, "b.pfw": PLAIN})
    assert b"PK\6\6" in content
    assert content.count(b"\xff\xff\xff\xff") > 2
    assert told(tmp_path / "archive", content) == ["archive/a.pfw", "archive/b.pfw"]
    assert summarise([tmp_path / "archive"]).events == 20
