"""Of several runs a command reads the newest, or the one that is asked for, and says so."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from analysis.test_identity import STEPS, put, rank
from cli.test_cli import EVERY
from conftest import RunScript
from safety.commands import Done, invoke

OLD, NEW = "2026-11-26_08-00-00-train", "2026-11-27_09-00-00-train"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs of two ranks in folders of their own; and two of a rank in one, between them."""
    traces = tmp_path / "traces"
    for folder, name, at_s in ((OLD, "aaaa", 0), (NEW, "dddd", 9)):
        ranks = (rank(n, pid=n + 1, run=name * 8, at_s=at_s + n / 1000) for n in (0, 1))
        put(traces / folder, **{f"t_host_{n}": lines for n, lines in enumerate(ranks)})
    prefixed = (rank(None, pid=n, run=run * 8, at_s=n) for n, run in ((3, "bbbb"), (6, "cccc")))
    put(traces / "prefixed", **{f"t_host_{n}": lines for n, lines in enumerate(prefixed)})
    monkeypatch.chdir(tmp_path)
    return traces


def counted(*words: str | Path) -> tuple[int, int, str]:
    """Files and forwards of a summary, and what was said beside it."""
    done = invoke("summary", *words, "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    forwards = [row["count"] for row in found["spans"] if row["name"] == "forward"]
    return len(found["files"]), sum(forwards), done.err


def test_the_newest_is_read_unless_another_is_named(runs: Path) -> None:
    others = "3 older ones: --run ID, or --run all\n"
    for place, path in (("of these", ("traces",)), ("below the current directory", ())):
        files, forwards, said = counted(*path)
        assert (files, forwards) == (2, 2 * STEPS)
        assert said == f"dftrace: reading traces/{NEW}, the newest run {place}; {others}"
    for which, files in (
        (OLD, 2),
        (f"traces/{OLD}/", 2),
        ("aaaa", 2),
        ("bbbbbbbb", 1),
        ("all", 6),
        ("last", 2),
    ):
        assert counted("traces", "--run", which)[:2] == (files, files * STEPS), which
    # In one folder they are called by their names, and one alone needs no word.
    assert (
        "reading cccccccc, the newest run of these; 1 older one: --run"
        in counted(runs / "prefixed")[2]
    )
    assert counted(runs / NEW) == (2, 2 * STEPS, "")
    for which, what in (("2026", "no run 2026"), ("ddd", "no run ddd")):
        done = invoke("why", "traces", "--run", which)
        assert done.status == 2
        names = f"traces/{OLD}, bbbbbbbb, cccccccc, traces/{NEW}"
        assert done.err == f"dftrace: there is {what}; there are: {names}\n"


def test_each_command_takes_what_makes_sense_for_it(runs: Path) -> None:
    def files(*words: str) -> tuple[int, Done]:
        done = invoke(*words, "--json")
        return len(json.loads(done.out).get("files", ())), done

    assert [files(command, "traces")[0] for command in ("info", "validate")] == [6, 6]
    assert files("validate")[0] == 2
    assert files("info", "traces", "--run", "last")[0] == 2
    assert json.loads(invoke("sql", "select count(*) as n from steps", "--json").out) == [
        {"n": 2 * STEPS}
    ]
    assert json.loads(invoke("why", "--json").out)["ranks"] == 2
    invoke("convert", "--to", "perfetto", "--out", "all.pfw")
    spans = Path("all.pfw").read_text().count('"forward"')
    assert spans == 2 * STEPS
    # Files that are named one by one are all meant, and their ranks stay those of their runs.
    ranks = [f"traces/{run}/t-host-0.pfw.gz" for run in (OLD, NEW)]
    for words, written in (
        (ranks, [f"run-{run * 8}/rank-0" for run in ("aaaa", "dddd")]),
        (ranks[:1], ["rank-0"]),
        ([f"traces/*{OLD[4:]}/t-host-0.pfw.gz", ranks[1]], ["rank-0"]),
        ([*ranks, "--run", OLD], ["rank-0"]),
    ):
        done = invoke("convert", *words, "--to", "parquet", "--out", "tables", "--force")
        assert done.status == 0, done.err
        made = Path("tables/events").rglob("0*.parquet")
        assert sorted(str(file.parent.relative_to("tables/events")) for file in made) == written
    # The last two, the one before the last as A.
    compared, done = files("diff")
    assert compared == 0
    assert done.err.startswith(f"dftrace: comparing the last two runs: cccccccc, and traces/{NEW}")
    assert json.loads(done.out)["before"]["path"] == "cccccccc"
    compared, done = files("diff", str(runs / OLD), "traces")
    assert json.loads(done.out)["after"]["path"] == f"traces/{NEW}"
    assert invoke("diff", "traces").err.startswith("dftrace: comparing the last two runs: cccccccc")
    done = invoke("diff", f"traces/{NEW}")
    assert (done.status, done.err) == (
        2,
        f"dftrace: there is one run in traces/{NEW}; name the other one\n",
    )
    assert invoke("recover").out == "nothing to recover\n"
    for command in ("stuck", "top"):
        done = invoke(command)
        assert "looking at traces/prefixed, what was written last below the current" in done.err
        assert "nothing runs here" in done.err
    # Those that read traces, by what they take; all of them can be told which run.
    reading = {
        " ".join(names)
        for names, command in EVERY.items()
        for param in command.params
        if param.param_type_name == "argument" and param.metavar in {"[PATHS]...", "[DIR]..."}
    }
    told = {
        " ".join(names) for names, one in EVERY.items() for p in one.params if "--run" in p.opts
    }
    assert reading - told == {"recover"}
    assert told - reading == set()


def test_ranks_of_a_job_that_was_started_again_are_of_one_run(tmp_path: Path) -> None:
    job = {"run_id": "exp1", "pid": 1}
    started = [
        rank(number, run=run * 8, restarts=restarts, at_s=at_s, **job)
        for run, restarts, at_s in (("aaaa", 0, 0), ("bbbb", 1, 2), ("cccc", 0, 9))
        for number in (0, 1)
    ]
    put(tmp_path / "out", **{f"t_host_{n}": lines for n, lines in enumerate(started)})
    # The launcher's name for the job is that of the day before.
    assert counted(tmp_path / "out")[:2] == (2, 2 * STEPS)
    assert counted(tmp_path / "out", "--run", "bbbb")[:2] == (4, 4 * STEPS)


def test_below_the_current_directory_not_everything_is_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".hidden", "node_modules", "a/b/c/d/e/f"):
        put(tmp_path / folder, t_host_1=rank(0, run="aaaa" * 8))
    (tmp_path / "away").mkdir()
    os.symlink(tmp_path / ".hidden", tmp_path / "away" / "link")
    done = invoke("why")
    assert (done.status, done.out) == (2, "")
    assert "there are no traces below the current directory; dftrace run SCRIPT" in done.err
    put(tmp_path / "a" / "b", t_host_1=rank(0, run="bbbb" * 8))
    assert counted()[2] == "dftrace: reading a/b, the newest run below the current directory\n"


# Each run in a child: those that are killed leave all that they have recorded in their spools.
DEAD = """
    import os, signal, sys
    import dftrace_ai
    from dftrace_ai import ai
    for name in sys.argv[1:]:
        child = os.fork()
        if not child:
            dftrace_ai.initialize(log_file=f"{name}/t", flush_interval_ms=60_000)
            for step in range(3):
                with ai.compute.forward(step=step):
                    pass
            if name.endswith("whole"):
                dftrace_ai.finalize()
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
    """


def test_only_what_is_read_is_completed(
    run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = {"t/1", "t/3", "both", "t/5", "t/6"}
    runs = ["t/1", "t/2-whole", "t/3", "both", "both", "t/4-whole", "t/5", "t/6"]
    monkeypatch.chdir(run_script(DEAD, args=runs).folder.parent)
    for words, completed in (
        (("summary", "t/4-whole"), set()),
        (("summary", "both/t-nobody-1.pfw"), set()),
        # The newest of what is given, or below, though it is in no file yet.
        (("sql", "t", "select 1"), {"t/6"}),
        (("summary",), set()),
        (("why", "--run", "t/1"), {"t/1"}),
        (("view", "t", "--run", "3", "--no-browser", "--ranks", "9"), {"t/3"}),
        (("diff", "both"), {"both"}),
        (("diff",), {"t/5"}),
    ):
        said = invoke(*words).err
        dead -= completed
        assert {str(marker.parent) for marker in Path().rglob("*.spool-at")} == dead, (words, said)
        assert {
            line.split()[2].rpartition("/")[0] for line in said.splitlines() if "completed " in line
        } == completed
    assert invoke("recover").out == "nothing to recover\n"
