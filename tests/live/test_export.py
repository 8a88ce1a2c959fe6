"""`dftrace export`: a receiver of OpenTelemetry gets every span once, or it is told that it did not."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from analysis.test_otlp import RUN, Written, loop
from analysis.trace_lines import TraceLines, small_trace
from conftest import clean_environment
from safety.commands import Done, answer, invoke

from dftrace_ai import _native
from dftrace_ai.analysis.otlp import messages, recordings, sending
from dftrace_ai.analysis.otlp.messages import Batch, Resource, Span
from dftrace_ai.analysis.otlp.recordings import Recording
from dftrace_ai.analysis.reading import open_traces
from dftrace_ai.analysis.reading.search import deleted_told
from dftrace_ai.cli import export
from dftrace_ai.live import following
from dftrace_ai.live.following import FollowedJob
from live.otlp_receiver import Answer, Receiver, by_key, receiver
from live.programs import program, until

LIMIT_S = 300


# A machine may be so busy that whoever asks itself waits for long.
TIMEOUT = {"OTEL_EXPORTER_OTLP_TIMEOUT": "300000"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PATIENCE_S", 1e9)
    for name, value in TIMEOUT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A rank with 100 steps in an epoch: 602 spans and that of the process."""
    trace = Written(run=RUN, rank=0, world_size=1)
    loop(trace, 100)
    trace.custom("rank", "0 of 1")
    trace.instant("best", 500)
    trace.footer()
    trace.write(tmp_path / "run" / "t-host-100.pfw.gz", 100)
    return tmp_path / "run"


SPANS = 100 * 6 + 2 + 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits in a test for a receiver that will not come."""
    monkeypatch.setattr(export, "PATIENCE_S", 0.0)


def test_what_is_asked_again_is_sent_again_and_all_of_it_arrives_once(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "SPANS_AT_ONCE", 200)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b,x-team=c")
    date = {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}
    with receiver() as server:
        server.answers = [
            Answer(503, {"Retry-After": "0"}),
            Answer(429, date),
            Answer(202, {"Connection": "close"}),
            Answer(502, {"Retry-After": "0"}, body=b"<html>" + b"x" * 100_000),
            Answer(504, {"Retry-After": "0"}),
        ]
        said = answer("export", job, "--to", f"{server.address}/v1/traces/")
        assert {(asked["x-key"], asked["x-team"]) for asked in server.requests} == {("a b", "c")}
    assert len(by_key(server.told)) == SPANS
    assert said["read"] == SPANS - 1
    assert (said["sent"], said["refused"], said["not_sent"]) == (SPANS, 0, 0)
    assert (said["requests"], said["again"]) == (4 + 4, 4)
    assert said["left_out"] == 1


def test_what_a_receiver_does_not_take_is_counted(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "SPANS_AT_ONCE", 100)
    with receiver() as server:
        server.answers = [Answer(), Answer(rejected=7, why="too\x1b old"), Answer(400), Answer()]
        done = invoke("export", job, "--to", server.address)
    assert len(by_key_of_some(server)) == SPANS - 100
    assert done.status == 1
    assert done.out.startswith(
        f"{SPANS - 107} spans sent to {server.address}/v1/traces: 7 requests"
    )
    assert "107 spans refused: answered 400" in done.err
    assert "1 instants, counters, arrows and values of metadata are no spans" in done.err
    assert "\x1b" not in done.err


@pytest.mark.usefixtures("impatient")
def test_what_is_refused_is_counted_however_long_the_answer(job: Path) -> None:
    with receiver() as server:
        server.answers = [Answer(rejected=SPANS - 3, why="no" * 40_000)]
        said = answer("export", job, "--to", server.address, status=1)
        assert (said["sent"], said["refused"]) == (3, SPANS - 3)
        # It is not known what it says.
        server.answers = [Answer(rejected=SPANS - 3, why="no" * 2**20)]
        said = answer("export", job, "--to", server.address, status=1)
        assert (said["sent"], said["refused"]) == (0, SPANS)
        server.answers = [Answer(headers={"Connection": "close"}, cut=True)]
        said = answer("export", job, "--to", server.address, status=1)
        assert (said["sent"], said["not_sent"]) == (0, SPANS)
        assert "no answer" in said["problem"]


def test_a_span_that_is_too_large_takes_no_other_with_it(tmp_path: Path) -> None:
    trace = TraceLines(run=RUN)
    trace.span("forward", "compute", 0, 500, v="x" * 300_000)
    for number in range(200):
        trace.span("forward", "compute", 1000 * number, 500, step=number)
    trace.footer()
    trace.write(tmp_path / "t-host-100.pfw.gz")
    with receiver() as server:
        server.most_bytes = 200_000
        said = answer("export", tmp_path, "--to", server.address, status=1)
    assert (said["sent"], said["refused"], said["not_sent"]) == (201, 1, 0)
    assert said["problem"].startswith("answered 413")
    assert len(by_key_of_some(server)) == 201
    assert said["requests"] < 30
    with receiver() as server:
        server.most_bytes = 10
        said = answer("export", tmp_path, "--to", server.address, status=1)
    assert said["sent"] == 0
    assert said["requests"] < 20


def test_a_request_ends_in_time_where_the_first_address_takes_that_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        sender = sending.Sender(
            sending.place_of(f"http://127.0.0.1:{place.getsockname()[1]}"), {}, 0.1, lambda _: False
        )
        connect = http.client.HTTPConnection.connect

        def connect_late(connection: http.client.HTTPConnection) -> None:
            until(
                lambda: not any(isinstance(t, threading.Timer) for t in threading.enumerate()), bool
            )
            connect(connection)

        # Nobody would end what began then, and who drips would make it wait for ever.
        monkeypatch.setattr(http.client.HTTPConnection, "send", pytest.fail)
        monkeypatch.setattr(http.client.HTTPConnection, "connect", connect_late)
        batch = Batch()
        batch.add(Resource((), "1"), Span(b"t" * 16, b"s" * 8, b"", "n", 1, 2, ()))
        sender.send(batch)
    assert (sender.lost, sender.problem) == (1, sending.TOO_LATE)


def by_key_of_some(server: Receiver) -> set[bytes]:
    return {one.span.span_id for one in server.told}


@pytest.mark.parametrize("status", [401, 404, 301, 500])
def test_who_lets_nobody_in_is_asked_once(
    job: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "SPANS_AT_ONCE", 100)
    with receiver() as server:
        server.answers = [Answer(status, {"Location": "http://127.0.0.1:1/"})]
        done = invoke("export", job, "--to", server.address)
    assert len(server.requests) == 1
    assert done.status == 1
    assert f"100 spans refused: answered {status}" in done.err
    assert f"{SPANS - 100} spans not sent" in done.err


def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as place:
        return f"http://127.0.0.1:{place.getsockname()[1]}"


@pytest.mark.usefixtures("impatient")
def test_a_receiver_that_is_not_there_or_no_receiver_ends_it_with_counts(job: Path) -> None:
    done = invoke("export", job, "--to", nobody())
    assert (done.status, done.out[:13]) == (1, "0 spans sent ")
    assert f"{SPANS} spans not sent: cannot be reached: ConnectionRefusedError" in done.err
    with socket.create_server(("127.0.0.1", 0)) as place:

        def talk() -> None:
            client, _ = place.accept()
            with client:
                client.recv(10)
                client.sendall(b"SSH-2.0-OpenSSH_9\r\n")

        talking = threading.Thread(target=talk)
        talking.start()
        done = invoke("export", job, "--to", f"http://127.0.0.1:{place.getsockname()[1]}")
        talking.join()
    assert done.status == 1
    assert f"{SPANS} spans not sent: " in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "there is no receiver: --to URL, or OTEL_EXPORTER_OTLP_ENDPOINT"),
        (("--to", "localhost:4318"), "is no address of a receiver"),
        (("--to", "http://a:b@host"), "is no address of a receiver"),
        (("--to", "http://host:0x1"), "is no address of a receiver"),
        (("--to", "http://h/\nX: y"), "is no address of a receiver"),
        (("--to", "http://host:0"), "is no address of a receiver"),
        (("--to", f"http://{'h' * 64}"), "is no address of a receiver"),
        (("--to", "http://host", "--where", "cat ="), "--where"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(
    job: Path, words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    done = invoke("export", job, *words)
    assert (done.status, done.out) == (2, "")
    assert told in done.err


@pytest.mark.parametrize(
    "header", ["a b=1", "k=%0d%0aX: y", "Content-Length=1", "k=ü", "X: secret==", "secret"]
)
def test_a_header_that_is_none_is_refused_without_its_value(
    job: Path, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"key=secret,{header}")
    done = invoke("export", job, "--to", nobody())
    assert (done.status, done.out) == (2, "")
    assert "OTEL_EXPORTER_OTLP_HEADERS" in done.err
    assert "secret" not in done.err
    assert "X: y" not in done.err


@pytest.mark.parametrize(
    "address",
    [
        "http://user:secret@127.0.0.1:1",
        "http://secret@127.0.0.1:1",
        "user:secret@127.0.0.1:1",
        "http://user:a?secret@127.0.0.1:1",
        "http://127.0.0.1:0x1/?token=secret",
    ],
)
def test_what_lets_in_is_in_no_message_of_an_address(
    job: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    for words in ((), ("--to", address)):
        done = invoke("export", job, *words)
        assert (done.status, done.out) == (2, "")
        assert "is no address of a receiver" in done.err
        assert "secret" not in done.err


@pytest.mark.usefixtures("impatient")
def test_what_is_asked_of_a_receiver_is_not_told(job: Path) -> None:
    address = nobody()
    for query in ("?token=secret", "?u=secret#secret"):
        done = invoke("export", job, "--to", f"{address}/{query}", "--json")
        assert json.loads(done.out)["to"] == f"{address}/v1/traces?***"
        assert "secret" not in done.err


def test_chosen_spans_have_the_nearest_chosen_one_above_them(job: Path) -> None:
    with receiver() as server:
        done = invoke(
            *("export", job, "--to", server.address),
            *("--where", "args.k in (train, 'kernel7', 'save1', 'forward8', 'kernel8', 'read9')"),
        )
    assert done.status == 0, done.err
    spans = by_key(server.told)
    above = {
        one.attributes.get("dftrace.k", one.span.name): spans[one.above].attributes.get(
            "dftrace.k", spans[one.above].span.name
        )
        for one in server.told
        if one.span.parent_span_id
    }
    # Steps that hold one are told, too, and the process; the epoch around the checkpoint is not.
    assert above == {
        "train": "rank 0",
        "save1": "train",
        "kernel7": "b7",
        "forward8": "b8",
        "kernel8": "forward8",
        "read9": "b9",
    }
    assert len(spans) == len(above) + 3 + 1


TRAINING = """
    with dftrace_ai.tracing(flush_interval_ms=50, rank=0, world_size=1):
        with ai.pipeline.train:
            for step in range(20):
                with ai.pipeline.step(step=step), ai.compute.forward(step=step):
                    pass
            done()
            for step in range(20, 40):
                with ai.pipeline.step(step=step), ai.compute.forward(step=step):
                    pass
            with ai.checkpoint.capture:
                done()
"""


# The command, which waits for less between two looks and behind the end.
QUICK = """
import sys
from dftrace_ai.cli import export, main
from dftrace_ai.live import following
export.PAUSE_S, following.GRACE_S = 0.1, 0.5
sys.argv[0] = "dftrace"
main()
"""


class Following:
    """`dftrace export --follow` beside a job."""

    def __init__(self, folder: Path, address: str, **env: str) -> None:
        words = ("export", str(folder), "--to", address, "--follow", "--json")
        self.process = subprocess.Popen(
            [sys.executable, "-c", QUICK, *words],
            env={**clean_environment(), **TIMEOUT, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self) -> Done:
        out, err = self.process.communicate(timeout=LIMIT_S)
        return Done(self.process.returncode, out, err)


def test_steps_arrive_while_the_job_runs_and_the_rest_when_it_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with receiver() as server:
        following = Following(folder, server.address)
        with program(TRAINING, folder) as running:
            until(
                lambda: Counter(one.span.name for one in [*server.told]),
                lambda n: n["compute.forward"] == 20,
            )
            assert following.process.poll() is None
            running.go_on()
            running.wait_until_ready()
            running.kill()
            done = following.ended()
    assert done.status == 0, done.err
    said = json.loads(done.out)
    spans = by_key(server.told)
    assert said["sent"] == len(spans) == 40 * 2 + 2 + 1
    assert said["read"] == len(spans) - 1
    # As the trace has it, which the exporter has completed.
    (trace,) = open_traces([folder])
    base = trace.said.time_base_us * 1000
    assert {
        (
            event["args"].get("step"),
            f"{event['cat']}.{event['name']}",
            base + round(event["ts"] * 1000),
        )
        for _, event in trace.events()
        if event["ph"] in "XB"
    } == {
        (one.attributes.get("dftrace.step"), one.span.name, one.span.start_time_unix_nano)
        for one in server.told
        if "thread.id" in one.attributes
    }
    (train, save) = (one for one in server.told if "dftrace.unfinished" in one.attributes)
    assert {train.span.name, save.span.name} == {"pipeline.train", "checkpoint.capture"}
    assert train.span.trace_id == save.span.trace_id == bytes.fromhex(trace.said.run)


def test_a_receiver_that_hangs_costs_the_job_nothing_and_loses_nothing(tmp_path: Path) -> None:
    folder, released = tmp_path / "run", threading.Event()
    with receiver() as server:
        server.answers = [Answer(wait=lambda: released.wait(LIMIT_S)) for _ in range(3)]
        with program(TRAINING, folder) as running:
            following = Following(folder, server.address, OTEL_EXPORTER_OTLP_TIMEOUT="1000")
            until(lambda: len(server.requests), lambda count: count >= 2)
            # It goes on and ends, whatever the receiver does.
            for _ in range(2):
                running.go_on()
            assert running.process.wait(LIMIT_S) == 0
            done = following.ended()
            released.set()
    assert done.status == 0, done.err
    said = json.loads(done.out)
    assert said["again"] >= 2
    found = {one.span.span_id for one in server.told}
    assert said["sent"] == len(found) == 40 * 2 + 2 + 1


def test_who_is_ended_tells_how_far_it_came(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with receiver() as server, program(TRAINING, folder):
        following = Following(folder, server.address)
        until(lambda: len(server.told), lambda count: count >= 40)
        following.process.send_signal(signal.SIGTERM)
        done = following.ended()
    assert done.status == -signal.SIGTERM
    said = json.loads(done.out)
    # The signal may have come before the answer.
    assert said["sent"] + said["not_sent"] == len(by_key_of_some(server)) == 40
    assert "ended early" in done.err


@pytest.mark.parametrize("is_named", [True, False])
def test_a_job_that_comes_and_goes_between_two_looks_is_followed(
    tmp_path: Path, is_named: bool
) -> None:
    folder = tmp_path / "run"
    small_trace(100, run="0a" * 16).write(folder / "t-host-100.pfw.gz")
    # What is named, or what there is by then.
    job = FollowedJob([folder] if is_named else lambda: [*tmp_path.iterdir()], deep=is_named)
    assert list(job.read()) == []
    assert not job.runs
    folder = folder if is_named else tmp_path / "another"
    small_trace(200, run=RUN).write(folder / "t-host-200.pfw.gz")
    told = until(lambda: [span for _, spans in job.read() for span in spans], bool)
    assert job.runs == {RUN[:16]}
    assert {span.trace_id for span in told} == {bytes.fromhex(RUN)}
    assert [one.is_over for one in job.recordings.values()] == [True]


@pytest.mark.parametrize("suffix", ["pfw.gz", "pfw.zst", "pfw"])
def test_what_is_written_anew_behind_the_end_is_read_once(tmp_path: Path, suffix: str) -> None:
    trace = TraceLines(run=RUN)
    for number in range(30):
        trace.span("forward", "compute", 1000 * number, 500, step=number)
    path = tmp_path / f"t-host-100.{suffix}"
    whole = trace.write(path, 3).read_bytes()
    cut = len(whole) * 2 // 3
    path.write_bytes(whole[:cut])
    (file,) = open_traces([path])
    recording = Recording(file, live=True)
    recording.add(file)
    told = [span for spans in recording.read(last=False) for span in spans]
    # Nothing is read twice, nor what is not whole.
    assert [span for spans in recording.read(last=False) for span in spans] == []
    # Where a span is open and another has ended, that is cut off by the next write, and both told.
    open_there = TraceLines(run=RUN)
    open_there.last_id = 30
    open_there.unfinished("forward", "compute", 40_000)
    open_there.span("forward", "compute", 41_000, 500, step=41)
    path.write_bytes(whole + open_there.write(tmp_path / f"o.{suffix}", 100).read_bytes())
    told += [span for spans in recording.read(last=False) for span in spans]
    trace.span("forward", "compute", 40_000, 500, step=40)
    trace.span("forward", "compute", 41_000, 500, step=41)
    trace.footer()
    trace.write(path, 3)
    told += [span for spans in recording.read(last=True) for span in spans]
    assert len({span.span_id for span in told}) == len(told)
    assert Counter(dict(span.attributes).get("dftrace.step") for span in told) == Counter(
        [*range(30), 40, 41, None]
    )
    assert not any("dftrace.unfinished" in dict(span.attributes) for span in told)


@pytest.mark.parametrize("is_held", [True, False])
def test_a_part_that_is_deleted_while_it_is_followed_takes_no_other_with_it(
    tmp_path: Path, is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_held:
        monkeypatch.setattr(recordings, "OPEN_FILES", tmp_path / "none")
    first = TraceLines(run=RUN)
    for number in range(10):
        first.span("forward", "compute", 1000 * number, 500, step=number)
    path = tmp_path / "t-host-100.pfw.gz"
    written = first.write(path, 1).read_bytes()
    first.span("forward", "compute", 10_000, 500, step=10)
    first.footer(ended="rotated")
    (file,) = open_traces([path])
    recording = Recording(file, live=True)
    recording.add(file)
    told = [span for spans in recording.read(last=False) for span in spans]
    rest = TraceLines(run=RUN)
    rest.last_id = first.last_id
    rest.span("forward", "compute", 20_000, 500, step=20)
    rest.footer(part=1)
    # What was written since is gone with it, unless it is open.
    with path.open("ab") as still:
        still.write(first.write(tmp_path / "whole.gz", 1).read_bytes()[len(written) :])
    path.unlink()
    (part,) = open_traces([rest.write(tmp_path / "t-host-100.part1.pfw.gz")])
    recording.add(part)
    told += [span for spans in recording.read(last=False) for span in spans]
    steps = Counter(dict(span.attributes).get("dftrace.step") for span in told)
    assert recording.is_over
    assert steps == Counter([*range(10 + is_held), 20, None])
    assert [note.rpartition(": ")[2] for note in recording.placed.notes] == (
        [] if is_held else ["No such file or directory"]
    )


@pytest.mark.parametrize("is_known", [True, False])
def test_how_much_was_deleted_is_known_of_what_was_read_while_it_was_written(
    tmp_path: Path, is_known: bool
) -> None:
    last = {"earlier_events": 40} if is_known else {}
    recording = None
    for number, footer in ((0, {}), (2, {"earlier_events": 15}), (5, last)):
        part = TraceLines(run=RUN)
        part.last_id = 10 * number
        part.span("forward", "compute", 1000 * number, 500, step=number)
        path = tmp_path / f"t-host-100{f'.part{number}' if number else ''}.pfw"
        part.write(path)
        (file,) = open_traces([path])
        assert file.end.footer is None
        recording = recording or Recording(file, live=True)
        recording.add(file)
        list(recording.read(last=False))
        part.footer(part=number, ended="rotated" if number < 5 else "finalize", **footer)
        part.write(path)
        list(recording.read(last=False))
        path.unlink()
    assert recording is not None
    told = deleted_told([recording.files])
    events = ", with 38 events," if is_known else ""
    assert told == [
        f"{tmp_path / 't-host-100'}: 3 parts of 6{events} deleted by max_files, or not given"
    ]


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_a_job_goes_on_while_torchrun_may_start_ranks_again(
    tmp_path: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "GRACE_S", 0.0)
    monkeypatch.setattr(following, "LOOK_S", 0.0)
    job = FollowedJob([tmp_path])
    agent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    rank = TraceLines(run=RUN, host=_native.host_name(), rank=0, launcher=launcher)
    header = json.loads(rank.lines[3])
    header["args"] |= {
        "ppid": agent.pid,
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
    }
    rank.lines[3] = json.dumps(header)
    rank.footer()
    rank.write(tmp_path / f"t-{_native.host_name()}-100.pfw")
    until(lambda: [*job.read()], bool)
    if launcher == "torchrun":
        assert until(job.runs_on, bool)
    agent.communicate(b"\n")
    until(lambda: not job.runs_on(), bool)
