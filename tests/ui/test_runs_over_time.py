"""The page over all runs while these run, grow, die and break, and what is kept of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from analysis.trace_lines import small_trace
from analysis.why.made_runs import Training
from live.programs import program
from safety.commands import invoke
from ui.served_runs import ranks, serving, until

from dftrace_ai.spare_folders import is_let_go
from dftrace_ai.ui.kept import Kept, packed_map, parted_map
from dftrace_ai.ui.runs_below import FoundRun, RunsBelow


def test_a_job_is_shown_as_it_runs_and_dies_and_is_recovered(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    source = """
        dftrace_ai.initialize()
        for step in range(30):
            with ai.pipeline.step(step=step):
                with ai.compute.forward:
                    time.sleep(0.001)
        with ai.comm.all_reduce:
            done("waits")
        """
    with (
        program(source, root / "job", RANK="0", WORLD_SIZE="1") as running,
        serving(root, tmp_path / "cache") as (page, _),
    ):
        row = page.rows()["job"]
        assert row["state"] == "running"
        live = page.json("live", id="job")
        (rank,) = live["ranks"]
        assert live["over"] is None
        assert (rank["rank"], rank["pid"], rank["state"]) == (0, running.pid, "alive")
        assert rank["where"] == "comm.all_reduce"
        assert live["stuck"]["kind"] == "dftrace verdict"
        running.kill()
        row = until(lambda: page.rows()["job"], lambda row: row["state"] == "died" and row["fresh"])
        assert row["card"]["hint"].startswith("dftrace recover ")
        if not row["files"]:
            assert row["card"]["verdict"] == "not-recovered"
        done = page.ask(f"/{page.token}/api/recover?id=job", "POST")
        assert done.status == 200
        assert len(done.json["done"]) == 1
        row = page.read()["job"]
        assert row["state"] == "died"
        assert row["card"]["ended"] == ["died"]
        assert row["card"]["steps"] == 30
        assert page.json("live", id="job")["over"]


def test_a_run_that_grows_is_read_again(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    ranks(root / "job", 1, steps=30)
    with serving(root, tmp_path / "cache") as (page, _):
        assert page.json("run", id="job")["card"]["steps"] == 30
        ranks(root / "job", 1, steps=50)
        until(page.rows, lambda rows: not rows["job"]["fresh"])
        assert page.json("run", id="job", refresh=1)["card"]["steps"] == 50
        seen = page.json("steps", id="job", rank=0, a=0, b=100)
        assert seen["total"] == 50
        ranks(root / "new", 2, steps=30)
        rows = until(page.read, lambda rows: "new" in rows)
        assert rows["new"]["card"]["ranks"] == 2


def test_what_was_read_is_kept_where_nobody_else_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cache = tmp_path / "runs", tmp_path / "cache"
    ranks(root / "job", 1)
    with serving(root, cache) as (page, _):
        page.read()
    kept = cache / "dftrace-ai" / "ui"
    assert kept.stat().st_mode & 0o777 == 0o700
    (card,) = kept.glob("*/card.json")
    assert card.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    assert Kept().card(root / "job")
    for mode in (0o777, 0o755):  # others could have put it there, or look into it
        kept.chmod(mode)
        assert Kept().card(root / "job") is None
    kept.chmod(0o700)
    found = json.loads(card.read_text())
    card.write_text(json.dumps(found | {"card": found["card"] | {"what": "of the cache"}}))
    # What a full disk or a loss of power has left is made anew, and what was half made goes.
    half, held = card.parent / ".part-x", card.with_name(".card.json.77")
    half.mkdir()
    held.touch()
    del found["card"]["words"]
    with serving(root, cache) as (page, _):
        assert page.rows()["job"]["card"]["what"] == "of the cache"
        assert not half.exists()
        assert not held.exists()
        for broken in ("", "{", "[]", json.dumps({"key": found["key"]}), json.dumps(found)):
            card.write_text(broken)
            assert page.json("run", id="job")["card"]["steps"] == 60


def test_what_is_kept_half_is_made_anew(tmp_path: Path) -> None:
    root, cache = tmp_path / "runs", tmp_path / "cache"
    ranks(root / "job", 2)
    with serving(root, cache) as (page, _):
        whole = page.json("run", id="job")
        window = {"a": 0.0, "b": whole["strip"]["wall_s"], "cols": 640}
        shown = page.get("api/heat", id="job", **window).body
        (kept,) = cache.glob("dftrace-ai/ui/*/*/whole.heat")
        assert kept.read_bytes() == shown
        halves = [shown[:left] for left in (0, 1, len(shown) - 1)]
        head, _ = parted_map(shown)
        others = ({}, [], 5, {**head, "rows": 5}, {one: head[one] for one in head if one != "rows"})
        for half in (*halves, *(packed_map(one, b"") for one in others)):
            kept.write_bytes(half)
            assert page.get("api/heat", id="job", **window).body == shown
        del whole["figures"]["made_at"], whole["card"]["as_of_s"]
        for name, asked in (
            *(("run.json", ""), ("figures.json", ""), ("whole.json", "")),
            ("metrics.json", "metrics"),
            *(("pictures.json", "media"), ("steps.end", "heat"), ("steps.time", "steps")),
        ):
            for left in (0, 1):
                (file,) = cache.glob(f"dftrace-ai/ui/*/*/{name}")
                file.write_bytes(file.read_bytes()[:left])
                words = {"rank": 0, "a": 0, "b": 9, "name": "x"}
                if asked:
                    assert page.get(f"api/{asked}", id="job", **words).status == 409, name
                seen = page.json("run", id="job")
                del seen["figures"]["made_at"], seen["card"]["as_of_s"]
                assert seen == whole
                if asked:
                    assert page.get(f"api/{asked}", id="job", **words).status == 200, name


BROKEN_READER = """
import errno, fcntl, os, pathlib, signal, sys, tempfile, time, types
fault = pathlib.Path(__file__).with_name("fault")
if "do_tasks" in sys.orig_argv and fault.exists():
    what = fault.read_text()
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "waits":
        held = os.open(fault, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        fault.with_name("server").write_text(str(os.getppid()))
        RUSAGE_SELF = getrusage = lambda _: time.sleep(1000)
        sys.modules["resource"] = types.SimpleNamespace(**locals())
    elif what == "full":
        make = tempfile.mkdtemp
        def mkdtemp(dir, prefix):
            if "dftrace-spare" not in str(dir):
                raise OSError(errno.ENOSPC, "No space left on device")
            return make(dir=dir, prefix=prefix)
        tempfile.mkdtemp = mkdtemp
    else:
        sys.modules["resource"] = None
"""


def test_a_reader_that_ends_says_why(tmp_path: Path) -> None:
    root, here = tmp_path / "runs", tmp_path / "here"
    root.mkdir()
    here.mkdir()
    (here / "sitecustomize.py").write_text(BROKEN_READER)
    fault = here / "fault"
    with serving(root, tmp_path / "cache", PYTHONPATH=str(here)) as (page, _):
        for number, (what, said) in enumerate(
            {"broken": "import of resource halted", "killed": "too little memory"}.items()
        ):
            fault.write_text(what)
            small_trace().write(root / what / f"t-host-{number}.pfw")
            run = page.json("run", id=what)
            assert run["state"] == "unreadable"
            assert said in run["card"]["what"]
        # Where the cache has no room it is kept as long as the server lives.
        fault.write_text("full")
        small_trace().write(root / "full" / "t-host-2.pfw")
        assert page.json("run", id="full")["state"] == "ended"
        assert page.json("run", id="full")["figures"]["summary"]["events"] > 0
        fault.unlink()
        # It is not for ever.
        for what in ("broken", "killed"):
            assert page.json("run", id=what, refresh=1)["state"] == "ended"
        small_trace().write(root / "whole" / "t-host-9.pfw")
        assert page.json("run", id="whole")["state"] == "ended"
        # A server that is killed takes its readers with it, whatever they are at.
        fault.write_text("waits")
        small_trace().write(root / "last" / "t-host-8.pfw")
        page.rows()
        server = until((here / "server").exists, bool) and (here / "server").read_text()
        os.kill(int(server), signal.SIGKILL)
        until(lambda: is_let_go(fault), bool)


def test_two_hundred_runs_are_in_one_list(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for number in range(200):
        path = small_trace(100 + number).write(
            root / f"{number:03d}" / f"t-host-{100 + number}.pfw"
        )
        os.utime(path, (1e9 + number, 1e9 + number))
    with serving(root, tmp_path / "cache", SSH_CONNECTION="a b c d") as (page, said):
        assert f"ssh -NL {page.port}:127.0.0.1:{page.port} " in said
        listed = page.json("runs")
        assert [row["id"] for row in listed["runs"]] == [f"{n:03d}" for n in reversed(range(200))]
        # The list waits for no reading; what is looked at is read at once.
        assert listed["reading"] > 0
        assert page.json("run", id="000")["card"]["verdict"] == "abstained"


def test_runs_whose_processes_have_one_number_have_their_own_logs(tmp_path: Path) -> None:
    # As in containers, where each run has the number 7.
    def logged(folder: Path, at_s: int) -> None:
        folder.mkdir(parents=True)
        (folder / f"rank0-7-{at_s * 10**9}.jsonl").write_text("{}\n")

    def found() -> dict[str, FoundRun]:
        return {run.id: run for run in RunsBelow(tmp_path).all()[0]}

    for name, ended_s in (("a", 1_000_000), ("b", 2_000_000), ("c", 3_000_000)):
        path = small_trace(7).write(tmp_path / name / "t-host-7.pfw")
        os.utime(path, (ended_s, ended_s))
    logged(tmp_path / "a" / "log", 999_000)
    logged(tmp_path / "logs" / "b", 1_999_000)
    before = found()
    # What begins later leaves what is known of those that are over.
    logged(tmp_path / "logs" / "c", 2_999_000)
    after = found()
    assert {name: [at.name for at, _ in run.logs] for name, run in after.items()} == {
        "a": ["log"], "b": ["log", "b"], "c": ["log", "b", "c"],
    }  # fmt: skip
    assert {name for name in before if before[name].key != after[name].key} == {"c"}


def test_a_directory_without_runs_is_an_empty_list(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    with serving(root / ".", tmp_path / "cache") as (page, _):
        assert page.json("runs")["runs"] == []
        small_trace().write(root / "t-host-1.pfw")
        assert list(until(page.read, bool)) == ["."]
        assert page.json("run", id=".")["card"]["events"] > 0


def test_runs_are_judged_by_thresholds_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the file where it is called; what was kept of another judgement is made anew."""
    Training(item_ms=20, steps=60).write(tmp_path / "runs" / "one", 1)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    file = tmp_path / "project" / "dftrace.toml"
    severities = []
    for text in ("", "[why.threshold]\ninput = [0.02, 0.9999]\n"):
        file.write_text(text)
        with serving(tmp_path / "runs", tmp_path / "cache") as (served, told):
            severities.append(served.read()["one"]["card"]["severity"])
            assert (f"{file}: [why] threshold: input=0.02,0.9999" in told) == bool(text)
    assert severities == ["critical", "warning"]
    file.write_text("[why.threshold]\ninptu = 0.1\n")
    wrong = invoke("ui", tmp_path / "runs", "--no-browser")
    assert wrong.status == 2
    assert "there is no threshold 'inptu'" in wrong.err
