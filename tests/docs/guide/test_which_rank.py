"""The page on slow ranks: what its commands print of its program, run by torchrun, and its tables."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path

import orjson
import pytest
from conftest import DIGITS_ALONE, SCRIPT_LIMIT_S, clean_environment
from printed_json import checked
from safety.commands import invoke

from dftrace_ai.analysis import ranks, whatif, why
from dftrace_ai.analysis.ranks.model import KINDS, LIMITS
from dftrace_ai.analysis.ranks.words import TITLES
from docs.pages import DOCS, EXAMPLES, between, blocks, plain, section, table

PAGE = DOCS / "guide" / "which-rank.md"
SLOW = 2
SLEEP_NS = 50_000_000


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the program of the page was run as it says; it traced into `out` there."""
    pytest.importorskip("torch.distributed")
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("slow-rank")
    shutil.copy(EXAMPLES / "slow_rank.py", folder)
    (call,) = [block.text for block in blocks(PAGE, "sh") if "torchrun" in block.text]
    words = call.split()
    at = words.index("torchrun")
    assert words[:at] == ["dftrace", "run", "-o", "out", "--"]
    # A meeting place that no other test has.
    meeting = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
    launcher = (sys.executable, "-m", "torch.distributed.run", *meeting)
    ended = subprocess.run(
        [sys.executable, "-m", "dftrace_ai.cli", *words[1:at], *launcher, *words[at + 2 :]],
        cwd=folder,
        env={
            **clean_environment(),
            **DIGITS_ALONE,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=SCRIPT_LIMIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    (folder / "said").write_text(ended.stderr)
    return folder


def rows_of(text: str) -> dict[str, str]:
    """Title, sentence and rows of a verdict by their names, without what differs from run to run."""
    text = re.sub(r"\d[\d,.]*(?:e[+-]\d+)?", "N", text)
    text = re.sub(r"N (s|ms|us)\b", "TIME", text)
    lines = text.splitlines()
    rows = {line[2:12].strip(): line[12:] for line in lines if line.startswith("  ")}
    # A long sentence goes on in the next line.
    what = takewhile(lambda line: line and not line.startswith("  "), lines[1:])
    return {"title": lines[0], "what": " ".join(map(str.strip, what)), **rows}


def shown(command: str) -> dict[str, str]:
    (text,) = [block.text for block in blocks(PAGE, "text") if f"$ dftrace {command}" in block.text]
    return rows_of(text.partition("\n")[2])


def test_the_rank_is_named_as_shown(job: Path) -> None:
    done = invoke("ranks", job / "out")
    assert done.status == 0, done.err
    told, page = rows_of(done.out), shown("ranks out")
    assert [*told] == [*page], done.out
    for name in ("title", "what", "its own", "costs", "others", "unseen"):
        assert told[name] == page[name], name
    assert told["do next"].startswith("what rank N does in backward and the others do not")
    verdict = ranks([job / "out"])
    (finding, *_) = verdict.findings
    assert (verdict.verdict, finding.ranks, finding.name) == (
        "worker",
        (SLOW,),
        "compute/backward",
    )
    assert finding.evidence.excess[0].ns == pytest.approx(SLEEP_NS, abs=10_000_000)
    printed = checked(invoke("ranks", job / "out", "--json").out, "ranks")
    assert printed == orjson.loads(orjson.dumps(verdict))


def test_why_and_the_end_of_the_run_say_the_same_first(job: Path) -> None:
    (finding, *_) = ranks([job / "out"]).findings
    verdict = why([job / "out"])
    first = verdict.findings[0]
    assert (verdict.verdict, first.cause, first.ranks) == ("late-rank", "worker", (SLOW,))
    assert first.what == finding.what
    assert [(one.rank, one.part) for one in first.late_ranks] == [(SLOW, "backward")]
    head, *_ = (
        line for line in (job / "said").read_text().splitlines() if line.startswith("dftrace: ")
    )
    assert head.startswith("dftrace: ONE SLOW RANK  (critical, ")
    assert f"Rank {SLOW} was the slowest in " in head


def test_what_the_job_would_be_without_it(job: Path) -> None:
    done = invoke("whatif", job / "out", "--without", f"rank={SLOW}")
    assert done.status == 0, done.err
    told, page = rows_of(done.out), shown(f"whatif out --without rank={SLOW}")
    assert [*told] == [*page], done.out
    for name in ("title", "what", "without", "do next"):
        assert told[name] == page[name], name
    found = whatif([job / "out"], without=[{"rank": str(SLOW)}])
    assert found.cause.ranks == (SLOW,)
    assert found.without[0].saved_ns == pytest.approx(SLEEP_NS, abs=10_000_000)
    printed = checked(invoke("whatif", job / "out", "--json").out, "whatif")
    assert printed["cause"] == orjson.loads(orjson.dumps(asdict(found.cause)))


def test_tables_have_a_row_for_each_rank_and_collective(job: Path) -> None:
    done = invoke("ranks", job / "out", "--by", "rank", "--table")
    assert re.search(rf"^ +{SLOW} \* +1 ", done.out, re.MULTILINE), done.out
    assert [*re.findall(r"^ +(\d) \*? +1 ", done.out, re.MULTILINE)][0] == str(SLOW)
    row = next(line for line in done.out.splitlines() if line.strip().startswith("all_reduce "))
    assert f"rank {SLOW} " in row


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    rows = table(between(PAGE, "findings"))
    assert {plain(row[0]): plain(row[1]) for row in rows} == {
        kind: titles[0] for kind, titles in TITLES.items()
    }
    assert [plain(row[0]) for row in rows] == list(KINDS)
    limits = {
        plain(name): (float(warning), float(critical) if critical else None)
        for name, warning, critical, _ in table(between(PAGE, "limits"))
    }
    assert limits == {name: tuple(limit) for name, limit in LIMITS.items()}


def test_the_lines_that_are_explained_are_those_that_are_printed() -> None:
    explained = {plain(row[0]) for row in table(section(PAGE, "What the lines say"))}
    (text,) = [block.text for block in blocks(PAGE, "text") if "$ dftrace ranks out" in block.text]
    assert {line[2:12].strip() for line in text.splitlines() if line[:2] == "  "} <= explained


def test_the_python_of_the_page_runs(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [block.text for block in blocks(PAGE, "python") if "import ranks" in block.text]
    exec(code.replace('"out"', repr(str(job / "out"))), {})
    assert f"worker ({SLOW},) compute/backward" in capsys.readouterr().out
