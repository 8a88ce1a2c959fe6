"""What is promised of jobs on many hosts, tried on made ones: `python -m cluster [--only PART ...]`.

Prints a table for docs/performance.md; each part is one of its rows, and says what it took. The
largest jobs are made once, in `--folder`, which is left where it was given: 3 GB with all parts.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parents[2]
sys.path.insert(0, str(TESTS))

from analysis.ranks.arrivals import Found, any_job, orders_told  # noqa: E402
from live.dumps.test_reading import HOSTILE  # noqa: E402
from live.made_hosts import Job, made_job  # noqa: E402
from perfetto import engine  # noqa: E402

from dftrace_ai.analysis.reading import open_traces  # noqa: E402

SEEDS = 40
HANGS, HOSTS, RANKS_A_HOST = 20, 4, 16
IDLE_S = 3.0
EVENTS_A_STEP = 16
LATE = ("--no-index", "--cause", "slow-rank:17:6")


# Of a process the kernel counts what it had before it became another program: this has little.
MEASURED = """
import json, os, sys, time
began = time.monotonic()
_, status, took = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
cpu_s, wall_s = took.ru_utime + took.ru_stime, time.monotonic() - began
print(json.dumps([os.waitstatus_to_exitcode(status), cpu_s, wall_s, took.ru_maxrss / 1000]), file=sys.stderr)
"""


class Ran(NamedTuple):
    """What a command has printed, and what it took with all that it started."""

    out: str
    status: int
    cpu_s: float
    wall_s: float
    peak_mb: float


def dftrace(*words: object) -> Ran:
    """Run a command of this environment to its end."""
    command = [sys.executable, "-m", "dftrace_ai", *map(str, words)]
    done = subprocess.run(
        [sys.executable, "-IS", "-c", MEASURED, *command],
        capture_output=True,
        text=True,
        check=True,
    )
    status, cpu_s, wall_s, peak_mb = json.loads(done.stderr.splitlines()[-1])
    return Ran(done.stdout, status, cpu_s, wall_s, peak_mb)


def made(folder: Path, ranks: int, events: int, *more: str) -> Path:
    """A made job, of so many ranks with about so many events each; there only once."""
    out = folder / "-".join([f"r{ranks}", f"e{events}", *more]).replace(":", "")
    if not (out / "truth.json").exists():
        steps = events // EVENTS_A_STEP
        ran = dftrace("generate", out, "--ranks", ranks, "--steps", steps, *more)
        assert ran.status == 0
    return out


def clocks(folder: Path) -> Iterator[str]:
    """Orders of arrival that the truth contradicts, in jobs whose clocks are apart and were set."""
    told = wrong = 0
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            some = orders_told(Found.of(any_job(seed), Path(place) / "job"))
        told, wrong = told + some[0], wrong + some[1]
    yield f"{wrong:,} of {told:,} orders of arrival wrong, {SEEDS} jobs"


SPANS = """
select process.name as rank, slice.name as name, count(*) as count, sum(slice.dur) as ns from slice
join thread_track on thread_track.id = slice.track_id join thread using (utid)
join process using (upid) where slice.dur > 0 group by 1, 2
"""
ARROWS = "select count(*) as count from flow"


def merged(folder: Path) -> Iterator[str]:
    """Spans and arrows of 64 ranks in the engine, and what merging more of them takes."""
    job, out = made(folder, 64, 10_000, *LATE), folder / "merged.pfw.gz"
    assert dftrace("merge", job, "-o", out, "--all", "--flows", 3000, "--force").status == 0
    answer = engine.query([out], SPANS, ARROWS)
    assert answer.clean, answer.stats
    written: Counter[tuple[str, str]] = Counter()
    lengths: Counter[tuple[str, str]] = Counter()
    for file in open_traces([job]).files:
        rank = f"rank {file.said.rank:02} · {file.said.host}"
        for _, event in file.events():
            if event.get("ph") == "X":
                written[rank, event["name"]] += 1
                lengths[rank, event["name"]] += round(event["dur"] * 1000)
    rows = [(row["rank"], row["name"], row["count"], row["ns"]) for row in answer.rows(0)]
    equal = sum(
        count for rank, name, count, ns in rows
        if (written[rank, name], lengths[rank, name]) == (count, ns)
    )  # fmt: skip
    with gzip.open(out) as text:
        arrows = sum(b'"ph":"f"' in line for line in text)
    drawn = answer.rows(1)[0]["count"]
    yield f"64 ranks: {equal:,} of {written.total():,} spans, {drawn:,} of {arrows:,} arrows"
    for ranks in (64, 256, 1024):
        job = made(folder, ranks, 10_000, *LATE)
        ran = dftrace("merge", job, "-o", out, "--all", "--flows", 100_000, "--jobs", 1, "--force")
        lines = sum(file.end.footer.events for file in open_traces([job]).files if file.end.footer)
        rate = f"{lines / ran.cpu_s:,.0f} events a CPU second"
        yield f"{ranks:,} ranks: {ran.peak_mb:,.0f} MB, {ran.cpu_s:.1f} CPU s, {rate}"
    alone = ("--flows", "none", "--clocks", "none", "--jobs", 1)
    ran = dftrace("merge", job, "-o", out, "--all", "--force", *alone)
    yield f"the lines alone: {ran.peak_mb:,.0f} MB, {lines / ran.cpu_s:,.0f} events a CPU second"
    out.unlink()


def hostile(folder: Path) -> Iterator[str]:
    """Dumps that call, that are cut, that would fill the memory: each by itself."""
    bad, most = 0, 0.0
    for number, data in enumerate(HOSTILE.values()):
        path = folder / f"fr_{number}"
        path.write_bytes(data)
        ran = dftrace("stuck", path)
        bad += ran.status not in (0, 2)
        most = max(most, ran.peak_mb)
        path.unlink()
    yield f"{bad} of {len(HOSTILE)} hostile dumps neither refused nor read, {most:,.0f} MB at most"


def dask(folder: Path) -> Iterator[str]:
    """The same bits by two workers as by one and by none, and how much sooner."""
    job = made(folder, 256, 100_000, *LATE)
    here = dftrace("why", job, "--json", "--jobs", 1)
    yield f"here: {here.cpu_s:.1f} CPU s, {here.wall_s:.1f} s"
    took = {}
    for workers in (1, 2):
        ran = dftrace("why", job, "--json", "--dask", f"local:{workers}", "--dask-always")
        same = json.loads(ran.out) == json.loads(here.out)
        took[workers] = ran.wall_s
        cost = f"{ran.cpu_s:.1f} CPU s, {ran.wall_s:.1f} s"
        yield f"{workers} workers: {'equal' if same else 'OTHER BITS'}, {cost}"
    yield f"two are {took[1] / took[2]:.2f} times as fast as one, by the clock"


def hang(folder: Path) -> Iterator[str]:
    """How long after a rank is late another host says which, with files each five seconds."""
    chance, took = random.Random(11), []
    with made_job(folder / "hang" / "out", HOSTS, RANKS_A_HOST, 5.0) as job:
        for step in range(HANGS):
            late = chance.randrange(HOSTS * RANKS_A_HOST)
            began = time.monotonic()
            job.say(f"{step},{late},{('fetch', 'forward', 'no span')[step % 3]}")
            while _named_from(job, step) != [late]:
                if time.monotonic() - began > 60:
                    break
            took.append(time.monotonic() - began)
            job.say("go")
            time.sleep(chance.uniform(0, 5))
        job.end()
    soon = sum(one <= 10 for one in took)
    yield f"{soon} of {HANGS} within 10 s, the last after {max(took):.1f} s"


def _named_from(job: Job, step: int) -> list[int]:
    command = [sys.executable, "-m", "dftrace_ai", "stuck", job.out, "--json", "--idle", IDLE_S]
    done = subprocess.run(job.on_host(1, *command), capture_output=True, text=True, check=False)
    if not done.stdout:
        return []
    findings = (one for job in json.loads(done.stdout)["jobs"] for one in job["findings"])
    return [one["rank"] for one in findings if one["cause"] and one["step"] in (step, None)]


def generate(folder: Path) -> Iterator[str]:
    """The same bytes for the same words, nothing that `validate` finds, and the cause is named."""
    marks = []
    for jobs in (1, 2):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            out = Path(place) / "job"
            words = ("--ranks", 64, "--steps", 200, *LATE[1:], "--jobs", jobs)
            assert dftrace("generate", out, *words).status == 0
            marks.append({path.name: sha256(path.read_bytes()).digest() for path in out.iterdir()})
            valid = dftrace("validate", out)
            named = json.loads(dftrace("ranks", out, "--json").out)["findings"][0]
    same = "the same bytes" if marks[0] == marks[1] else "OTHER BYTES"
    found = f"validate {valid.status}, ranks: {named['kind']} {named['ranks']}"
    yield f"{same} by one and two processes, {found}"
    clean = made(folder, 64, 3200)
    yield f"without a cause: {len(json.loads(dftrace('ranks', clean, '--json').out)['findings'])} findings"


def summary(folder: Path) -> Iterator[str]:
    """A thousand ranks from indexes: those in their traces, and of long ones those beside them."""
    for ranks, events in ((64, 100_000), (1024, 10_000), (1024, 100_000)):
        job = made(folder, ranks, events)
        if not any(job.glob("*.dfrank")):
            assert dftrace("index", job, "--jobs", 2).status == 0
        ran = dftrace("summary", job, "--json")
        read = json.loads(ran.out)["events"]
        took = f"{ran.wall_s:.1f} s, {ran.cpu_s:.1f} CPU s, {ran.peak_mb:,.0f} MB"
        yield f"{ranks:,} x {events:,}: {read:,} events, {took}"


PARTS: dict[str, Callable[[Path], Iterator[str]]] = {
    "clocks": clocks,
    "merge": merged,
    "hostile": hostile,
    "dask": dask,
    "hang": hang,
    "generate": generate,
    "summary": summary,
}


def main() -> None:
    """Print what each part finds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, help="where jobs are made, and left")
    given = parser.parse_args()
    with contextlib.ExitStack() as ends:
        folder = given.folder or Path(ends.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        for part in given.only:
            for line in PARTS[part](folder):
                print(f"{part:10}{line}", flush=True)


if __name__ == "__main__":
    main()
