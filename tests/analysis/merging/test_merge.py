"""`dftrace merge`: many ranks as one file, held against what was written, in the real engine."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import tarfile
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from analysis.trace_lines import TraceLines
from perfetto import engine
from safety.commands import answer, invoke

from dftrace_ai.analysis.merging import archive, choice, gathering, merge
from dftrace_ai.analysis.merging.gathering import Asked, gathered
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.errors import DftraceError, TraceError
from dftrace_ai.generating import Job, generate
from dftrace_ai.ui.runs_below import opened_run

MS = 1_000_000
RANKS, STEPS, STEP_NS = 16, 40, 40 * MS
OFFSET_NS = 30 * MS
GROUP = {"name": "0", "description": "default_pg", "ranks": list(range(RANKS))}


def pid_of(rank: int) -> int:
    return 100 + rank % 4


def host_of(rank: int) -> str:
    return f"n{rank // 4}"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen ranks on four hosts with the same pids; rank 5 is late, and the clock of n2 ahead."""
    folder = tmp_path_factory.mktemp("job")
    for rank in range(RANKS):
        host = host_of(rank)
        trace = TraceLines(
            pid_of(rank),
            host=host,
            host_hash=f"000000000000000{host[1:]}",
            boot_id=f"boot-{host}",
            rank=rank,
            world_size=RANKS,
        )
        trace.custom("process_group", json.dumps(GROUP))
        ahead = OFFSET_NS if host == "n2" else 0
        for step in range(STEPS):
            at = ahead + 500 * MS + step * STEP_NS + rank
            late = 12 * MS if rank == 5 else rank * 10_000
            told = {"group": "0", "step": step, "bytes": 4096, "seq": step, "nth": step}
            note = '","pid":100,"tid":100,"ts":1'
            work = 4 * MS + (late if rank == 5 else 0)
            trace.span("forward", "compute", at, work, step=step, note=note)
            start = at + 8 * MS + late
            end = ahead + 500 * MS + step * STEP_NS + 30 * MS + (7 * rank + 13 * step) % 11 * 300
            trace.span("all_reduce", "comm", start, end - start, **told)
            trace.span("step", "pipeline", at, 38 * MS, step=step)
        trace.footer()
        trace.write(folder / f"t-{host}-{pid_of(rank)}.pfw.gz", 20)
    return folder


@pytest.fixture(scope="module")
def whole(
    job: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[engine.View, dict[str, object]]:
    out = tmp_path_factory.mktemp("whole") / "all.pfw.gz"
    told = answer("merge", job, "--out", out, "--json")
    shown = engine.view(out)
    assert shown.answer.clean, (shown.answer.load_error, shown.answer.stats)
    return shown, told


def names_of(shown: engine.View) -> dict[int, str]:
    return {pid: str(name) for pid, name in shown.process_names.items()}


def test_every_span_of_all_ranks_is_there_once(
    whole: tuple[engine.View, dict[str, object]],
) -> None:
    shown, told = whole
    found = Counter(
        (names_of(shown)[span.pid or 0], span.name)
        for span in shown.slices
        if "seq" in span.arg or span.name in ("forward", "step")
    )
    names = [f"rank {rank:02} · {host_of(rank)}" for rank in range(RANKS)]
    wanted = {(name, span): STEPS for name in names for span in ("forward", "all_reduce", "step")}
    assert found == wanted
    assert told["notes"] == []
    assert "pids of 12 processes changed, since hosts share them" in told["told"]  # type: ignore[operator]


def test_arrows_lead_from_the_last_to_come_to_all_others(
    whole: tuple[engine.View, dict[str, object]],
) -> None:
    shown, _ = whole
    names = names_of(shown)
    found: Counter[tuple[str, str]] = Counter()
    for begin, end in shown.flows:
        spans = [shown.parent(shown.by_id[number]) for number in (begin, end)]
        assert all(span is not None and span.name == "all_reduce" for span in spans)
        tail, head = (names[span.pid or 0] for span in spans if span is not None)
        assert shown.by_id[begin].ts_ns < shown.by_id[end].ts_ns
        found[tail, head] += 1
    last = "rank 05 · n1"
    others = {f"rank {rank:02} · {host_of(rank)}" for rank in range(RANKS)} - {last}
    assert found == {(last, other): STEPS for other in others}


def test_a_clock_that_is_ahead_is_brought_to_the_others(
    job: Path, whole: tuple[engine.View, dict[str, object]], tmp_path: Path
) -> None:
    shown, _ = whole
    names = names_of(shown)
    starts: dict[str, int] = {}
    for span in shown.slices:
        if span.name == "step":
            name = names[span.pid or 0]
            starts[name] = min(starts.get(name, span.ts_ns), span.ts_ns)
    # Of ranks on other hosts within what they notice late; durations and pids are another matter.
    assert max(starts.values()) - min(starts.values()) < 5000
    refused = invoke("merge", job, "-o", tmp_path / "x.pfw.gz", "--max-error", "0.001us")
    assert refused.status == 3
    assert "n2" in refused.err
    assert not any(tmp_path.iterdir())
    given = tmp_path / "given.json"
    answer("merge", job, "-o", given, "--clocks", "given", "--flows", "none", "--json")
    at = {
        (event["pid"], event["name"]): event["ts"]
        for event in map(json.loads, reversed(given.read_text().splitlines()[1:]))
        if event.get("name") == "step" and event["ph"] == "X"
    }
    assert len(at) == RANKS
    assert max(at.values()) - min(at.values()) == pytest.approx(OFFSET_NS / 1000, abs=1)


def test_more_than_a_viewer_takes_is_chosen_and_told(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "MOST_EVENTS", 1500)
    files = open_traces([job]).files
    events = sum(file.end.footer.events for file in files if file.end.footer)
    found = gathered(files, Asked())
    (note,) = [line for line in found.told if "more than a viewer takes" in line]
    assert note.startswith(f"{events:,} events are more than a viewer takes (1,500): shown are ")
    assert "--all shows all" in note
    whole = {file.said.rank for file in files if file.path not in found.steps_only}
    assert {0, 4, 8, 12} <= whole  # one of each host
    late = choice.as_much_as_a_viewer_takes(files, [5])
    assert 5 in {file.said.rank for file in files if file.path not in late.steps_only}
    out = tmp_path / "some.json"
    out.write_bytes(b"".join(found.merged()))
    lines = [json.loads(line) for line in out.read_text().splitlines()[1:]]
    by_name = Counter(line["name"] for line in lines if line["ph"] == "X")
    assert by_name["step"] == by_name["all_reduce"] == RANKS * STEPS
    assert by_name["forward"] == len(whole) * STEPS
    assert engine.view(out).answer.clean
    told = gathered(files, Asked(everything=True)).told
    assert not [line for line in told if "viewer takes" in line]


def test_what_was_asked_for_is_there_alone(job: Path, tmp_path: Path) -> None:
    def spans(*words: str) -> Counter[tuple[str, int]]:
        out = tmp_path / f"{'-'.join(words).replace(':', '')}.json"
        answer("merge", job, "-o", out, *words, "--flows", "none", "--json")
        events = [json.loads(line) for line in out.read_text().splitlines()[1:]]
        return Counter(
            (each["name"], each["args"]["step"])
            for each in events
            if "step" in each.get("args", {})
        )

    found = spans("--ranks", "0,4-5", "--steps", "3:5")
    assert {name for name, _ in found} >= {"forward", "all_reduce", "step"}
    assert (found["forward", 3], found["forward", 4], found["forward", 6]) == (3, 3, 0)
    found = spans("--comm")
    assert (found["forward", 1], found["step", 1], found["all_reduce", 1]) == (0, RANKS, RANKS)
    found = spans("--comm", "--ranks", "2")
    assert (found["forward", 1], found["all_reduce", 1]) == (1, RANKS)


def test_a_file_for_each_host_and_an_archive(job: Path, tmp_path: Path) -> None:
    split = answer("merge", job, "-o", tmp_path / "hosts", "--split", "--json")
    assert [file["path"] for file in split["files"]] == [f"n{host}.pfw.gz" for host in range(4)]
    text = gzip.decompress((tmp_path / "hosts" / "n1.pfw.gz").read_bytes())
    assert text.count(b'"name":"forward"') == 4 * STEPS
    with pytest.raises(DftraceError, match="archive"):
        merge(open_traces([job]).files, tmp_path / "b.tar", split=True, archive=True)


def test_an_archive_has_plain_members_and_a_manifest(job: Path, tmp_path: Path) -> None:
    """Perfetto refuses all where its manifest says something of a member that is compressed."""
    out = tmp_path / "all.tar"
    made = answer("merge", job, "-o", out, "--archive", "--json")
    assert any("Perfetto 58" in line for line in made["told"])
    with tarfile.open(out) as tar:
        members = {one.name: tar.extractfile(one).read() for one in tar.getmembers()}  # type: ignore[union-attr]
    said = members.pop("perfetto_manifest.json")
    assert said.startswith(b'{"perfetto_manifest"')  # by which it is known
    manifest = json.loads(said)["perfetto_manifest"]
    assert manifest["version"] == 1
    wanted = [gzip.decompress(path.read_bytes()) for path in sorted(job.iterdir())]
    assert sorted(members.values()) == sorted(wanted)
    assert [file["path"] for file in manifest["files"]] == list(members)
    offsets = {
        file["machine"]["name"]: file["clocks"]["offset_ns"]
        for file in manifest["files"]
        if "clocks" in file
    }
    # Later is positive: what is ahead is moved back beside the others. One is not moved at all.
    moved = offsets.get("n2", 0) - offsets.get("n0", 0)
    assert moved == pytest.approx(-OFFSET_NS, abs=10_000)
    # The engine that is here knows no manifest, and takes it for a trace with nothing in it.
    shown = engine.view(out)
    assert shown.answer.clean
    assert len([span for span in shown.slices if span.name == "forward"]) == RANKS * STEPS
    assert answer("summary", out, "--json")["events"] == answer("summary", job, "--json")["events"]


def test_containers_of_a_host_have_machines_of_their_own(tmp_path: Path) -> None:
    for rank, boot in enumerate("aab"):
        trace = TraceLines(7 + rank % 2, host="n0", boot_id=boot, rank=rank, world_size=3)
        trace.span("step", "pipeline", MS, MS)
        trace.footer()
        trace.write(tmp_path / f"t-{rank}.pfw.gz")
    answer("merge", tmp_path, "-o", tmp_path / "all.tar", "--archive", "--json")
    with tarfile.open(tmp_path / "all.tar") as tar:
        manifest = json.load(tar.extractfile("perfetto_manifest.json"))  # type: ignore[arg-type]
    machines = [one["machine"]["name"] for one in manifest["perfetto_manifest"]["files"]]
    assert machines == ["n0", "n0", "n0 (2)"]


def test_an_archive_moves_no_clock_further_than_its_readers_can(tmp_path: Path) -> None:
    for rank, base in enumerate(({}, {}, {"time_base_us": 2**62})):
        trace = TraceLines(7, host=f"n{rank}", boot_id=f"{rank}", rank=rank, world_size=3, **base)
        trace.span("step", "pipeline", MS, MS)
        trace.footer()
        trace.write(tmp_path / f"t-{rank}.pfw.gz")
    out = tmp_path / "all.tar"
    made = json.loads(invoke("merge", tmp_path, "-o", out, "--archive", "--json").out)
    (note,) = made["notes"]
    assert "t-2.pfw.gz: is not moved" in note
    with tarfile.open(out) as tar:
        manifest = json.load(tar.extractfile("perfetto_manifest.json"))  # type: ignore[arg-type]
    files = manifest["perfetto_manifest"]["files"]
    assert len(files) == 3
    assert not [one for one in files if "clocks" in one]


def test_an_archive_reads_each_trace_once(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[str] = Counter()
    own = archive.FileLines.pieces

    def pieces(lines: Any, **given: Any) -> Any:
        read[lines._file.path.name] += 1
        return own(lines, **given)

    monkeypatch.setattr(archive.FileLines, "pieces", pieces)
    merge(open_traces([job]).files, tmp_path / "a.tar", Asked(clocks="none"), archive=True)
    assert read == {path.name: 1 for path in job.iterdir()}


def test_an_archive_holds_no_trace_for_which_all_are_refused(job: Path, tmp_path: Path) -> None:
    """Perfetto refuses the whole archive for one member that is cut, empty or not of JSON."""
    inside, out = tmp_path / "in", tmp_path / "all.tar"
    inside.mkdir()
    whole, cut, empty, odd = sorted(job.iterdir())[:4]
    (inside / whole.name).write_bytes(whole.read_bytes())
    (inside / cut.name).write_bytes(cut.read_bytes()[:-20])
    (inside / empty.name).write_bytes(b"")
    text = gzip.decompress(odd.read_bytes())
    text = re.sub(rb'"ts":[0-9.]+,', b'"ts":NaN,', text, count=1)
    (inside / odd.name).write_bytes(gzip.compress(text))
    done = invoke("merge", inside, "-o", out, "--archive")
    assert done.status == 1
    for path, part in ((cut, "torn"), (empty, "left out"), (odd, "left out: 1")):
        assert any(path.name in line and part in line for line in done.err.splitlines())
    (tmp_path / "m").mkdir()
    with tarfile.open(out) as tar:
        tar.extractall(tmp_path / "m", filter="data")
    members = sorted((tmp_path / "m").glob("rank*"))
    assert len(members) == 3
    assert gzip.decompress(whole.read_bytes()) in [path.read_bytes() for path in members]
    for path in members:
        lines = path.read_bytes().splitlines()
        assert sum(b'"name":"forward"' in line for line in lines) > STEPS // 2
        assert b"NaN" not in b"".join(lines)
        assert engine.view(path).answer.clean
    (inside / whole.name).write_bytes(b"")
    done = invoke("merge", inside / whole.name, "-o", tmp_path / "b.tar", "--archive")
    assert (done.status, (tmp_path / "b.tar").exists()) == (2, False)


def test_an_archive_of_clocks_that_drift_has_times_written_anew(tmp_path: Path) -> None:
    """By one shift for each they would lie apart at both ends of the run, which a tar cannot say."""
    made, out = tmp_path / "made", tmp_path / "all.tar"
    answer("generate", made, "--ranks", 4, "--per-host", 2, "--steps", 120, "--offset-s", 1,
           "--drift-ppm", 500, "--json")  # fmt: skip
    told = answer("merge", made, "-o", out, "--archive", "--json")
    assert any(line.startswith("times of 2 traces are written anew") for line in told["told"])
    ends: dict[tuple[int, int], list[float]] = {}
    with tarfile.open(out) as tar:
        tar.extractall(tmp_path / "in", filter="data")
    manifest = json.loads((tmp_path / "in" / "perfetto_manifest.json").read_bytes())
    for member in manifest["perfetto_manifest"]["files"]:
        shown = engine.view(tmp_path / "in" / member["path"])
        later = member.get("clocks", {}).get("offset_ns", 0)
        for span in shown.slices if shown.answer.clean else []:
            if span.name == "all_reduce":
                key = span.arg["step"], span.arg["seq"]
                ends.setdefault(key, []).append(span.ts_ns + span.dur_ns + later)
    assert {len(each) for each in ends.values()} == {4}
    assert max(max(each) - min(each) for each in ends.values()) < 300_000
    assert len(list(tmp_path.iterdir())) == 3


def test_what_stands_there_stays_and_the_output_is_no_input(job: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.pfw.gz"
    out.write_bytes(b"mine")
    refused = invoke("merge", job, "-o", out)
    assert (refused.status, out.read_bytes()) == (2, b"mine")
    assert invoke("merge", job, "-o", out, "--force").status == 2  # no call has written it
    inside = tmp_path / "in"
    inside.mkdir()
    for path in job.iterdir():
        (inside / path.name).write_bytes(path.read_bytes())
    one = answer("merge", inside, "-o", inside / "all.pfw.gz", "--json")
    again = answer(
        "merge", *sorted(inside.glob("t-*")), "-o", inside / "all.pfw.gz", "--force", "--json"
    )
    assert one["lines"] == again["lines"]
    assert not [path for path in inside.iterdir() if path.name.startswith(".")]


def test_a_trace_that_is_gone_is_named_and_not_the_output(job: Path, tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    for path in sorted(job.iterdir())[:3]:
        (inside / path.name).write_bytes(path.read_bytes())
    for arrows in (None, 0):
        traces = open_traces([inside]).files
        gone = traces[-1].path
        assert [trace.said.rank for trace in traces if trace.end] == [0, 1, 2]
        whole = gone.read_bytes()
        gone.unlink()
        with pytest.raises(TraceError, match=re.escape(gone.name)):
            merge(traces, tmp_path / "all.pfw.gz", Asked(arrows=arrows))
        gone.write_bytes(whole)


def test_hostile_files_leave_a_trace_that_opens(tmp_path: Path) -> None:
    """Cut, foreign, with members in another order and texts that look like members."""
    good = TraceLines(100, rank=0, world_size=3)
    good.span('q","pid":100,"ts":1', "compute", 1000, 500, note='{"pid":100,"tid":100,"ts":5}')
    good.footer()
    good.write(tmp_path / "a.pfw.gz")
    cut = TraceLines(100, host="other", host_hash="00000000000000ff", rank=1, world_size=3)
    for step in range(200):
        cut.span("step", "pipeline", step * 1000, 500, step=step)
    path = cut.write(tmp_path / "b.pfw.gz", 20)
    path.write_bytes(path.read_bytes()[:-40])
    foreign = TraceLines(100, host="third", host_hash="00000000000000fe", rank=2, world_size=3)
    foreign.add(
        '{"args":{"pid":100,"ts":7},"ph":"X","dur":2.5,"ts":3.25,"tid":100,"pid":100,"name":"f","cat":"c"}'
    )
    foreign.add("nonsense")
    foreign.footer()
    foreign.write(tmp_path / "c.pfw")
    out = tmp_path / "out" / "all.pfw.gz"
    done = invoke("merge", tmp_path, "-o", out, "--json", "--no-recover")
    assert done.status == 1
    made = json.loads(done.out)
    assert any("torn" in note for note in made["notes"])
    assert any("without an event left out: 1" in note for note in made["notes"])
    shown = engine.view(out)
    assert shown.answer.clean
    found = {span.name: span for span in shown.slices}
    assert found['q","pid":100,"ts":1'].dur_ns == 500
    assert len({span.pid for span in shown.slices}) == 3


def test_a_clock_that_was_set_moves_each_side_by_its_own_time(tmp_path: Path) -> None:
    for by_ms in (5000, 50, -50):
        folder, out = tmp_path / f"job{by_ms}", tmp_path / f"m{by_ms}.pfw"
        job_with = ("--ranks", 4, "--per-host", 2, "--steps", 60, "--step-clock", f"1:0.8:{by_ms}")
        answer("generate", folder, *job_with, "--json")
        told = answer("merge", folder, "--out", out, "--json")["told"]
        back = [line for line in told if "set back while it ran" in line]
        assert len(back) == (by_ms < 0)
        assert all(
            re.match(r"1 clock set .* by up to (49|50)[.\d]* ms \(node0001\)", line)
            for line in back
        )
        spans = [
            span for span in map(json.loads, out.read_text().splitlines()[1:]) if "dur" in span
        ]
        recorded = {
            (span["name"], span["ts"], span["dur"])
            for file in open_traces([folder]).files
            for _, span in file.events()
            if span.get("dur") == 0
        }
        # A span that ended before it began by its own clock has no duration in its file, either.
        assert sum(span["dur"] == 0 for span in spans) == len(recorded)
        assert max(span["dur"] for span in spans) < 200_000
        ends: dict[tuple[int, str], list[float]] = {}
        for span in spans:
            if span["name"] == "all_reduce" and span["dur"]:
                key = (span["args"]["seq"], span["args"]["group"])
                ends.setdefault(key, []).append(span["ts"] + span["dur"])
        assert len(ends) >= 60
        apart = sorted(max(each) - min(each) for each in ends.values())
        # Those during which it was set, and those whose times it showed twice, are not known.
        assert sum(each > 2000 for each in apart) <= (0 if by_ms > 0 else 16)


def test_a_merged_file_is_no_trace_of_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    answer("generate", run, "--ranks", 2, "--steps", 12, "--json")
    before = answer("summary", run, "--json")
    answer("merge", run, "-o", run / "all.pfw.gz", "--json")
    answer("merge", run, "-o", run / "plain.pfw", "--json")
    answer("merge", run, "-o", run / "hosts", "--split", "--json")
    answer("convert", run, "--to", "perfetto", "-o", run / "converted.pfw.gz", "--json")
    answer("generate", tmp_path / "other", "--ranks", 2, "--steps", 12, "--seed", 1, "--json")
    for given in ([run], sorted(run.glob("*.pfw*"))):
        told = invoke("summary", *given, "--json")
        assert told.status == 0, told.err
        assert json.loads(told.out) == before
        assert told.err.count("made of other traces") == 1
    for merged in (run / "all.pfw.gz", run / "plain.pfw", run / "hosts", run / "converted.pfw.gz"):
        for command in ("why", "ranks", "whatif", "summary", "report", "merge", "validate"):
            more = ["-o", tmp_path / "no"] if command in ("report", "merge") else []
            refused = invoke(command, merged, *more)
            assert refused.status == 2, (command, refused.err)
            assert "dftrace view opens it" in refused.err
        assert invoke("diff", tmp_path / "other", merged).status == 2
        told = answer("info", merged, "--json")
        assert told["missing_ranks"] == {}  # the other rank is in it
        assert any("dftrace merge" in note for note in told["notes"])
        assert gathered(open_traces([merged]).files, Asked()).files
        with pytest.raises(TraceError, match="by dftrace merge"):  # the list of `dftrace ui`
            opened_run(merged.parent, [merged.name] if merged.is_file() else ["hosts"])
    assert not (tmp_path / "no").exists()


def test_a_name_that_promises_another_compression_is_refused(job: Path, tmp_path: Path) -> None:
    calls = (
        ("merge", job, "-o", tmp_path / "z.pfw.zst"),
        ("merge", job, "--archive", "-o", tmp_path / "z.tar.gz"),
        ("convert", job, "--to", "perfetto", "-o", tmp_path / "z.pfw.zst"),
    )
    for call in calls:
        refused = invoke(*call)
        assert refused.status == 2, refused.err
        assert "choose a name" in refused.err
    assert not list(tmp_path.iterdir())


def test_memory_does_not_grow_with_ranks(tmp_path: Path) -> None:
    """What writes one file is let go of before the next: a thousand would be gigabytes."""
    program = (
        "import sys; from pathlib import Path; from dftrace_ai.analysis.merging import merge;"
        "from dftrace_ai.analysis.merging.gathering import Asked;"
        "from dftrace_ai.analysis.reading import open_traces;"
        "merge(open_traces([sys.argv[1]]).files, Path(sys.argv[2]), Asked(arrows=0, clocks='none'));"
        "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    peaks = []
    for ranks in (4, 68):
        made = tmp_path / str(ranks)
        generate(Job(ranks=ranks, steps=200), made, jobs=1)
        call = [sys.executable, "-c", program, made, tmp_path / f"{ranks}.pfw.gz"]
        peaks.append(int(subprocess.run(call, check=True, capture_output=True).stdout))
    assert peaks[1] - peaks[0] < 40_000  # kB; 200,000 when all were held


def test_no_line_waits_for_those_of_other_ranks(tmp_path: Path) -> None:
    """What names and orders the tracks of a rank is written before that of the next is made."""
    peaks = []
    for ranks in (8, 72):
        made = tmp_path / str(ranks)
        generate(Job(ranks=ranks, steps=2), made, jobs=1)
        asked = Asked(arrows=0, clocks="none", everything=True)
        merged = gathered(open_traces([made]).files, asked).merged()
        tracemalloc.start()
        try:
            assert sum(map(len, merged))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 64 * 16_000  # 32,000 a rank when all were held


def test_of_two_calls_for_one_name_one_wins(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes second to the name is told, and takes nothing away; of directories, too."""
    own = gathering.gathered

    def slow(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(gathering, "gathered", own)
        answer("merge", job, "-o", out, "--json", *split)
        return own(*given, **more)

    for out, split in ((tmp_path / "all.pfw.gz", []), (tmp_path / "hosts", ["--split"])):
        monkeypatch.setattr(gathering, "gathered", slow)
        files = open_traces([job]).files
        with pytest.raises(DftraceError, match="is there already; --force replaces it"):
            merge(files, out, split=bool(split))
        assert out.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"all.pfw.gz", "hosts"}


def test_a_file_takes_no_place_of_an_empty_directory(job: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    refused = invoke("merge", job, "-o", tmp_path / "mine", "--force")
    assert (refused.status, (tmp_path / "mine").is_dir()) == (2, True)
    assert "is a directory; name a file in it" in refused.err


def test_a_length_of_time_has_a_unit(job: Path, tmp_path: Path) -> None:
    for command in (["merge", job, "-o", tmp_path / "x.pfw.gz"], ["ranks", job]):
        refused = invoke(*command, "--max-error", "1")
        assert refused.status == 2
        assert "'1' is no length of time; what is meant looks like 1ms" in refused.err
