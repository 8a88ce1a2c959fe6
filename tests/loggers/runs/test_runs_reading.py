"""Lines of every kind come back, hostile ones stop nothing, and a run stands as its processes do."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import SCRIPT_LIMIT_S, clean_environment
from loggers.local_lines import entry
from loggers.runs.made_logs import BEGUN_S, Log, by_key, only_run
from safety.commands import invoke
from sampling import times
from stress.pressure.disk import small_disk

from dftrace_ai.loggers import make_loggers
from dftrace_ai.loggers.runs import processes
from dftrace_ai.loggers.runs.lines import MOST_DEPTH, line_of
from dftrace_ai.loggers.runs.log_files import LINE_BYTES, NoRunsError, kept_bytes
from dftrace_ai.loggers.runs.page import RunsOnPage, page_of
from dftrace_ai.loggers.runs.processes import ProcessIdentity, here, is_alive
from dftrace_ai.loggers.runs.reading import QUIET_S, read_runs
from dftrace_ai.loggers.runs.tables import RunTables


def test_what_a_training_logs_comes_back(tmp_path: Path) -> None:
    values = [1.0, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7e308, 2.5]
    settings = entry(tmp_path, "metric", "hparams", project="vision", tags=["a", "b"], group="g")
    with make_loggers({"local": settings}) as loggers:
        loggers.log_hyperparams(
            {"lr": 0.1, "model": {"width": 8, "act": None}, "nan": math.nan, "betas": [1, 2.5]}
        )
        for value in values:
            loggers.log_iter({"loss": value, "\udcffname\n": 1.0})
        loggers.log_hyperparams({"lr": 0.2})
    run = only_run(tmp_path)
    assert (run.key, run.project, run.name, run.group) == ("vision/run", "vision", "run", "g")
    assert (run.tags, run.status, run.rows, run.unreadable) == (("a", "b"), "finished", 8, 0)
    nan = run.params.pop("nan")
    assert math.isnan(nan)
    assert run.params == {"lr": 0.2, "model/width": 8, "model/act": None, "betas": [1, 2.5]}
    loss = run.metrics["loss"]
    finite = [value for value in values if math.isfinite(value)]
    assert (loss.last, loss.last_step, loss.count, loss.non_finite) == (2.5, 7, 5, 3)
    assert (loss.min, loss.max, loss.mean) == (-0.0, 1.7e308, math.fsum(finite) / 5)
    assert "\\udcffname\n" in run.metrics
    with RunTables([run.folder]) as tables:
        query = "select value from metrics where name = 'loss' order by step"
        kept = [value for (value,) in tables.query(query).rows]
    assert [repr(value) for value in kept] == [repr(value) for value in values]


def test_the_mean_of_many_is_that_of_exact_sums(tmp_path: Path) -> None:
    values = [1e16, 1.0, -1e16, 0.1] * 300
    log = Log(tmp_path)
    for step, value in enumerate(values):
        log.metrics(step, x=value)
    assert only_run(tmp_path).metrics["x"].mean == pytest.approx(
        math.fsum(values) / len(values), rel=1e-15
    )


def test_a_last_line_without_its_end_is_no_row_yet(tmp_path: Path) -> None:
    log = Log(tmp_path).metrics(0, loss=1.0)
    line = json.dumps({"k": "m", "s": 1, "a": "i", "t": BEGUN_S + 9, "v": {"loss": 2.0}}).encode()
    for end in range(len(line) + 1):
        log.raw(line[end - 1 : end] if end else b"")
        run = only_run(tmp_path)
        assert (run.rows, run.unreadable, run.notes) == (1, 0, [])
    log.raw(b"\n")
    assert (only_run(tmp_path).rows, only_run(tmp_path).metrics["loss"].last) == (2, 2.0)


def test_a_full_disk_costs_what_did_not_fit_and_nothing_else(tmp_path: Path, caplog) -> None:
    with small_disk(tmp_path / "disk", real=True) as disk:
        if not disk.real:
            pytest.skip("no file system may be mounted here")
        loggers = make_loggers({"local": entry(disk.path, sync=True)})
        loggers.log_iter({"loss": 1.0, "long": 0.1})
        disk.fill()
        for step in range(1, 200):
            loggers.log_iter({f"loss of a long name {n}": float(step) for n in range(40)})
        (run,) = read_runs(disk.path)
        assert (run.status, run.metrics["loss"].last) == ("running", 1.0)
        full = run.rows
        assert full < 200
        disk.make_room()
        for step in range(200, 210):
            loggers.log_iter({"loss": float(step)}, step)
        loggers.end_log()
        run = only_run(disk.path)
        assert (run.status, run.rows, run.metrics["loss"].last) == ("finished", full + 10, 209.0)
        assert run.unreadable <= 1
        (told,) = [line for line in caplog.messages if "lost" in line]
        assert f"lost {200 - full} of 210 records" in told


WRONG = (
    *(b"", b"{", b"[]", b"1", b'"x"', b"null", b"\x00" * 100, b"\xff\xfe", b"{}", b'{"k":1}'),
    *(b'{"k":"m"}', b'{"k":"m","s":1,"a":"i","t":1}', b'{"k":"m","s":1,"a":"i","t":1,"v":[]}'),
    b'{"k":"m","s":1,"a":["i"],"t":1,"v":{}}',
    b'{"k":"m","s":1,"a":"i","t":1e300,"v":{}}',
    b'{"k":"m","s":1,"a":"i","t":1,"v":{"x":"1"}}',
    b'{"k":"m","s":1,"a":"i","t":1,"v":{"x":1e999}}',
    b'{"k":"m","s":' + b"9" * 5000 + b',"a":"i","t":1,"v":{}}',
    b'{"k":"p","t":1,"v":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    b'{"k":"p","t":1,"v":{"a":' + b"[" * (MOST_DEPTH + 1) + b"]" * (MOST_DEPTH + 1) + b"}}",
    b'{"k":"p","t":1,"v":{"\\ud800":' + b"[" * 900 + b"]" * 900 + b"}}",
    b'{"k":"p","t":1,"v":{"\\ud800":' + b"9" * 5000 + b"}}",
    b'{"k":"f","s":1,"a":"i","t":1,"kind":"program","name":"x","file":"x"}',
    b'{"k":"h","s":1,"a":"i","t":1,"name":{}}',
    b'{"k":"run","t":1,"pid":"1"}',
    b'{"k":"run","t":1,"pid":1.5}',
)


def test_lines_that_are_not_of_the_format_are_counted_and_passed_over(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for number, data in enumerate(WRONG):
        assert line_of(data) is None, data
        log.raw(data + b"\n").metrics(number, loss=1.0)
    log.end()
    run = only_run(tmp_path)
    assert (run.rows, run.status, run.unreadable) == (len(WRONG), "finished", len(WRONG) - 1)
    assert [note.partition(": ")[2] for note in run.notes] == [
        f"{len(WRONG) - 1} lines cannot be read"
    ]


def test_a_vast_line_takes_no_memory_and_hides_no_other(tmp_path: Path) -> None:
    log = Log(tmp_path).metrics(0, loss=1.0).raw(b"x" * (LINE_BYTES + 1) + b"\n")
    log.metrics(1, loss=2.0)
    with log.path.open("ab") as file:
        file.truncate(file.tell() + (64 << 20))  # a hole, which reads as zeros
    log.raw(b"\n").metrics(2, loss=3.0)
    run = only_run(tmp_path)
    assert (run.rows, run.unreadable) == (3, 2)
    # A line of a hole of a TiB never ends.
    os.truncate(log.path, 1 << 40)
    run = only_run(tmp_path)
    assert (run.rows, run.unreadable) == (3, 3)


def test_a_hostile_directory_stops_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "p").mkdir(parents=True)
    secret = outside / "secret"
    secret.write_text('{"k":"m","s":1,"a":"i","t":1,"v":{"secret":1}}\n')
    Log(outside, "p/other").metrics(0, secret=1.0)
    root = tmp_path / "runs"
    log = Log(root, "p/good").metrics(0, loss=1.0).end()
    folder = log.folder
    (folder / "rank0-2-1.jsonl").symlink_to(secret)
    os.mkfifo(folder / "rank0-3-1.jsonl")
    (folder / "rank0-4-1.jsonl").mkdir()
    (folder / "rank0-5-1.jsonl").symlink_to("rank0-5-1.jsonl")
    (folder / "rank0-6-1.jsonl").touch()
    (folder / "rank0-7-1.jsonl.bak").write_text("{}")
    (root / "linked").symlink_to(outside)
    (root / "p" / "round").symlink_to(root)
    deep = root
    for number in range(60):
        deep /= f"d{number}"
    deep.mkdir(parents=True)
    evil = Path(os.fsdecode(os.fsencode(root) + b"/p/\xff\x1b[2J\n<script>"))
    evil.mkdir()
    (evil / "rank0-1-1.jsonl").write_bytes(log.path.read_bytes())
    runs = read_runs(root)
    assert set(by_key(runs)) == {"p/good", "p/\\udcff\x1b[2J\n<script>"}
    good = by_key(runs)["p/good"]
    assert (good.status, list(good.metrics)) == ("finished", ["loss"])
    # Two links, a pipe and a directory; an empty log has just been begun.
    assert len(good.notes) == 4
    assert all("skipped" in note for note in good.notes)
    with RunTables(run.folder for run in runs) as tables:
        assert tables.query("select count(*) from runs").rows == [(2,)]


def test_only_files_of_the_run_itself_are_opened_for_a_line(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "run"
    (folder / "media" / "a").mkdir(parents=True)
    (folder / "media" / "a" / "1.png").write_bytes(b"mine")
    (folder / "media" / "link").symlink_to(tmp_path / "secret")
    (folder / "media" / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "media" / "pipe")
    assert kept_bytes(folder, "media/a/1.png", 100) == b"mine"
    for file in (
        *("../secret", "media/../../secret", str(tmp_path / "secret"), "media/link", "", "/", "."),
        *("media/out/secret", "media/pipe", "media/a", "media/a/1.png/", "media//a/1.png", "\0"),
        "x" * 5000,
    ):
        assert kept_bytes(folder, file, 100) is None, file
    assert kept_bytes(folder, "media/a/1.png", 3) is None


def test_where_there_is_nothing_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoRunsError, match="there are no runs; they are written there by"):
        read_runs(tmp_path)
    with pytest.raises(NoRunsError, match="cannot be read: No such file"):
        read_runs(tmp_path / "nowhere")


def test_a_project_and_a_run_can_be_given_as_well(tmp_path: Path) -> None:
    Log(tmp_path, "p/a").metrics(0, x=1.0)
    Log(tmp_path, "p/b").metrics(0, x=1.0)
    assert [run.key for run in read_runs(tmp_path)] == ["p/a", "p/b"]
    assert [run.key for run in read_runs(tmp_path / "p")] == ["a", "b"]
    assert [run.key for run in read_runs(tmp_path / "p" / "a")] == ["a"]


ODD = (
    *("null", "true", "-1", "1e308", "-1e308", '"NaN"', "[]", "{}", '""', '"\\ud800"', "0.5"),
    *(str(1 << 63), str(-(1 << 63)), str(1 << 64), "9" * 30, '{"a":[{"b":null}]}', '"../../x"'),
)
VALUE = re.compile(rb':("[^"]*"|-?[0-9.e+-]+)')


@pytest.mark.sampled
def test_lines_that_were_changed_at_random_stop_nothing(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    with make_loggers({"local": entry(tmp_path / "logged", "metric", "hparams")}) as loggers:
        loggers.log_iter({"loss": 1.0, "odd": math.inf})
        loggers.log_hyperparams({"lr": 0.1, "model": {"width": [1, 2]}})
        loggers.log_histogram("w", np.arange(10.0))
        loggers.log_image("im", np.zeros((4, 4, 3), np.uint8))
        loggers.alert("title", "text")
    (log,) = (tmp_path / "logged").rglob("*.jsonl")
    lines = log.read_bytes().splitlines()
    chance = random.Random(3)
    for attempt in range(times(100, 0.05)):
        root = tmp_path / f"changed{attempt}"
        for run in range(3):
            made = Log(root, f"p/{run}")
            made.raw(b"".join(changed(chance.choice(lines), chance) for _ in range(200)))
        runs = read_runs(root)
        assert all(run.rows and run.unreadable and run.media for run in runs)
        with RunTables(run.folder for run in runs) as tables:
            counted = tables.query("select sum(rows), sum(media) from runs").rows
            assert counted == [(sum(r.rows for r in runs), sum(r.media for r in runs))]
            assert page_of("changed", RunsOnPage(run.folder for run in runs)).endswith("</html>\n")
        for words in (["--compare"], ["--json"], ["--metric", "*"], ["--sort", "loss"]):
            assert invoke("runs", root, *words).status == 1


def changed(line: bytes, chance: random.Random) -> bytes:
    """A line in which a value, a byte, or the rest from somewhere on is another."""
    way = chance.random()
    if way < 0.4:
        return line + b"\n"
    if way < 0.8:
        found = chance.choice(list(VALUE.finditer(line)))
        odd = chance.choice(ODD).encode()
        return line[: found.start(1)] + odd + line[found.end(1) :] + b"\n"
    at = chance.randrange(len(line))
    if way < 0.9:
        return line[:at] + bytes([chance.randrange(256)]) + line[at + 1 :] + b"\n"
    return line[:at] + b"\n"


def test_a_line_is_read_where_its_schema_accepts_it(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    path = Path(__file__).parents[3] / "schemas" / "run-line.schema.json"
    accepts = jsonschema.Draft202012Validator(json.loads(path.read_text())).is_valid
    settings = entry(tmp_path, "metric", "hparams", "hist", "image", tags=["a"], group="g")
    with make_loggers({"local": settings}) as loggers:
        loggers.log_iter({"loss": 1.0, "odd": math.nan, "hparams": {"lr": math.inf, "a": [{}]}})
        loggers.log_histogram("w", list(range(10)))
        loggers.log_image("im", [[0, 255]])
        loggers.log_text("note", "x")
        loggers.log_artifact(path)
        loggers.alert("title")
        loggers.log_epoch()
    (log,) = tmp_path.rglob("*.jsonl")
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert {line["k"] for line in lines} == {"run", "m", "p", "h", "f", "x", "a", "!", "end"}

    drawn = random.Random(7)
    odd = [None, True, -1, 0, 1.5, 2.0, 1e12, 2**63 - 1, -(2**63), "", "NaN", "i", "m", [], {}]
    odd += [["a"], [1], {"a": 1}, {"a": "NaN"}, {"a": "x"}, {"a": None}, {"a": True}, {"a": {}}]
    tried = [*lines]
    for _ in range(times(2000, 1.0)):
        line = dict(drawn.choice(lines))
        for _ in range(drawn.randint(1, 2)):
            name = drawn.choice(["k", "s", "t", "a", "v", "name", "file", "status", *line])
            if drawn.random() < 0.3:
                line.pop(name, None)
            else:
                line[name] = drawn.choice(odd)
        tried.append(line)
    read = {json.dumps(line): line_of(json.dumps(line).encode()) is not None for line in tried}
    assert {text: accepts(json.loads(text)) for text in read} == read
    assert 300 < sum(read.values()) < len(read) - 300


WRITERS = 32
METRICS = 20
MANY = """
import os, sys
from dftrace_ai.loggers import make_loggers

folder, writers, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
config = {"log_dir": folder, "run_name": "run", "status_line": False, "limit_s": 100}
config["system_metrics_s"] = None
children = []
for writer in range(writers):
    child = os.fork()
    if not child:
        loggers = make_loggers({"local": {"config": config}})
        for row in range(rows):
            data = {f"m{n}": writer + row / 1024 + n for n in range(20)}
            loggers.log_iter(data, step=row)
        loggers.end_log()
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""


def seen(root: Path) -> dict[str, int]:
    """Counts of what is there, each of which may only grow."""
    try:
        runs = read_runs(root)
    except NoRunsError:
        return {}
    (run,) = runs
    assert runs.notes == []
    assert run.unreadable == 0
    assert run.status in {"running", "finished", "unknown"}
    counts = {name: figures.count for name, figures in run.metrics.items()}
    return counts | {"rows": run.rows, "processes": len(run.writers), "step": run.step}


@pytest.mark.sampled
def test_nothing_is_lost_of_many_writers_and_a_reader_never_goes_backwards(tmp_path: Path) -> None:
    rows = times(1000, 0.2)
    program = subprocess.Popen(
        [sys.executable, "-c", MANY, str(tmp_path), str(WRITERS), str(rows)],
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    looks = [seen(tmp_path)]
    running = True
    while running:
        try:
            program.wait(0.2)
            running = False
        except subprocess.TimeoutExpired:
            pass
        looks.append(seen(tmp_path))
        assert len(looks) < SCRIPT_LIMIT_S * 5
        for name, count in looks[-2].items():
            assert looks[-1][name] >= count
    _, said = program.communicate()
    assert program.returncode == 0, said
    (run,) = read_runs(tmp_path)
    assert (run.status, run.rows, run.step) == ("finished", WRITERS * rows, rows - 1)
    assert len(run.writers) == WRITERS
    with RunTables([run.folder]) as tables:
        wrong = tables.query(
            "select name, sum(value), count(*) from metrics group by name order by name"
        ).rows
    for name, total, count in wrong:
        own = int(name[1:])
        want = sum(w + r / 1024 + own for w in range(WRITERS) for r in range(rows))
        assert (total, count) == (pytest.approx(want, rel=1e-12), WRITERS * rows)
    assert len(wrong) == METRICS


# How runs stand of which no process says so: looked up, judged by age, or unknown.


@pytest.fixture(scope="module")
def gone() -> ProcessIdentity:
    """A process that has ended."""
    program = "from dftrace_ai.loggers.runs.processes import here; print(repr(tuple(here())))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return ProcessIdentity(*eval(said.stdout))


def facts(process: ProcessIdentity) -> dict[str, object]:
    return {
        "host": process.host,
        "boot": process.boot,
        "pid_ns": process.pid_namespace,
        "pid": process.pid,
        "start": process.start,
    }


def aged(log: Log, seconds: float) -> Log:
    """Have a log changed last so long ago."""
    then = time.time() - seconds
    os.utime(log.path, (then, then))
    return log


def test_a_process_is_known_by_more_than_its_number(gone) -> None:
    me, now = here(), time.time()
    assert is_alive(me, now) is True
    assert is_alive(gone, now) is False
    # The number is another's by now.
    assert is_alive(me._replace(start=me.start + 1), now) is False
    for elsewhere in (
        me._replace(host="another"),
        me._replace(pid_namespace=1),
        # Another machine of this name: it has written since this one was started.
        me._replace(boot="another"),
        me._replace(boot=""),
        me._replace(pid=0),
        me._replace(pid=-1),
        me._replace(pid=1 << 60),
    ):
        assert is_alive(elsewhere, now) is None
    # This machine before it was started anew.
    assert is_alive(me._replace(boot="another"), 1.0) is False


def test_a_process_that_nobody_has_waited_for_is_gone() -> None:
    program = "from dftrace_ai.loggers.runs.processes import here; print(repr(tuple(here())))"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        ended = ProcessIdentity(*eval(process.stdout.read()))
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_alive(ended, time.time()) is False


def test_a_process_that_may_not_be_looked_at_is_not_called_dead(monkeypatch) -> None:
    def refused(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(processes, "_stat", lambda pid: [])
    monkeypatch.setattr(os, "kill", refused)
    assert is_alive(here(), time.time()) is None


def test_without_an_end_the_process_is_looked_up(tmp_path: Path, gone) -> None:
    Log(tmp_path).metrics(0, loss=1.0)
    assert only_run(tmp_path).status == "running"
    Log(tmp_path, "p/dead", **facts(gone)).metrics(0, loss=1.0)
    assert only_run(tmp_path / "p" / "dead").status == "killed"


def test_on_another_host_the_age_of_the_last_line_says_it_or_nobody_knows(tmp_path: Path) -> None:
    log = Log(tmp_path, host="elsewhere").metrics(0, loss=1.0)
    assert only_run(tmp_path).status == "running"
    aged(log, QUIET_S + 60)
    assert only_run(tmp_path).status == "unknown"
    log.end("failed")
    aged(log, QUIET_S + 60)
    assert only_run(tmp_path).status == "failed"


def test_an_end_counts_whatever_became_of_the_process(tmp_path: Path, gone) -> None:
    for status in ("finished", "failed", "killed"):
        Log(tmp_path, f"p/{status}", **facts(gone)).end(status)
        assert only_run(tmp_path / "p" / status).status == status
    Log(tmp_path, "p/odd").end("exploded")
    assert only_run(tmp_path / "p" / "odd").status == "unknown"


RUNS = {
    # What each process is: rank, number of ranks, begin, and its end or whether it lives.
    "resumed after a kill": ([(0, 1, 0, "dead"), (0, 1, 9, "finished")], "finished"),
    "killed after it was resumed": ([(0, 1, 0, "finished"), (0, 1, 9, "dead")], "killed"),
    "resumed and running": ([(0, 1, 0, "failed"), (0, 1, 9, "alive")], "running"),
    "one rank of two fails": ([(0, 2, 0, "killed"), (1, 2, 1, "failed")], "failed"),
    "one rank of two is dead": ([(0, 2, 0, "finished"), (1, 2, 1, "dead")], "killed"),
    "one rank runs": ([(0, 2, 0, "finished"), (1, 2, 1, "alive")], "running"),
    "with fewer ranks": ([(0, 2, 0, "dead"), (1, 2, 0, "dead"), (0, 1, 9, "finished")], "finished"),
    "one rank of two again": (
        [(0, 2, 0, "dead"), (1, 2, 1, "dead"), (0, 2, 8, "finished"), (1, 2, 9, "finished")],
        "finished",
    ),
    "an older one lives": ([(0, 1, 0, "alive"), (0, 1, 9, "finished")], "running"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_several_processes_is_one(tmp_path: Path, gone, name: str) -> None:
    made, status = RUNS[name]
    for number, (rank, ranks, begun, end) in enumerate(made):
        who = facts(gone) if end == "dead" else {}
        log = Log(tmp_path, rank=rank, number=number, world_size=ranks, t=BEGUN_S + begun, **who)
        log.metrics(number, loss=float(number))
        if end not in ("dead", "alive"):
            log.end(end)
    run = only_run(tmp_path)
    assert run.status == status
    assert run.metrics["loss"].count == len(made)


def test_a_process_that_ends_between_two_reads_is_never_called_killed(
    tmp_path: Path, gone, monkeypatch
) -> None:
    """It is looked at first: what it writes until it is gone is read."""
    from dftrace_ai.loggers.runs import reading

    log = Log(tmp_path, **facts(gone)).metrics(0, loss=1.0)

    def ends_now(process: ProcessIdentity, written_s: float) -> bool | None:
        log.metrics(1, loss=2.0).end()
        return is_alive(process, written_s)

    monkeypatch.setattr(reading, "is_alive", ends_now)
    run = only_run(tmp_path)
    assert (run.status, run.rows) == ("finished", 2)
