"""`dftrace top` on a terminal: what is drawn, and how it is left."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dftrace_ai.cli.live_view import screen
from dftrace_ai.live import snapshot
from live.programs import LIMIT_S, Program, dftrace, program
from live.terminal import ALTERNATE_SCREEN, Terminal

SOURCE = """
    with dftrace_ai.tracing(rank=0, world_size=1), ai.pipeline.train:
        for step, node in enumerate((ai.compute.forward, ai.comm.all_reduce)):
            with node(step=step):
                done()
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Program]:
    with program(SOURCE, tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a program that stays in its first step."""
    folder = tmp_path_factory.mktemp("waiting")
    with program(SOURCE, folder):
        yield folder


def shows(*parts: str):
    return lambda frame: all(any(part in line for line in frame) for part in parts)


def test_it_follows_a_job_and_leaves_by_q(tmp_path: Path, running: Program) -> None:
    with Terminal("top", tmp_path, "--interval", "0.05") as terminal:
        frame = terminal.until(shows("train > compute.forward"))
        assert frame[0].startswith("t, run ")
        assert "1 process" in frame[0]
        assert frame[1].split()[:3] == ["rank", "open", "spans"]
        assert frame[3].split()[0] == "0"
        assert "q leaves" in frame
        running.go_on()
        frame = terminal.until(shows("train > comm.all_reduce"))
        step = frame[1].index("step")
        assert frame[3][step : step + 4].strip() == "1"
        terminal.type("q")
        assert terminal.wait() == 0
        assert terminal.is_as_before()


def test_what_was_seen_last_stays_when_the_job_ends(tmp_path: Path, running: Program) -> None:
    with Terminal("top", tmp_path, "--interval", "0.05", columns=300) as terminal:
        terminal.until(shows("train > compute.forward"))
        for _ in range(2):
            running.go_on()
        ended = f"{tmp_path}: nothing runs here: 1 trace, which `dftrace summary` reads; q leaves"
        frame = terminal.until(shows(ended), last_line=ended)
        assert shows("train > ")(frame)
        terminal.type("Q")
        assert terminal.wait() == 0


def test_it_is_drawn_anew_when_the_size_changes(waiting: Path) -> None:
    with Terminal("top", waiting, "--interval", "3600", columns=160) as terminal:
        wide = terminal.until(shows("train > compute.forward"))
        terminal.resize(60, 10)
        small = terminal.until(lambda frame: frame[1].startswith("rank") and "pid" not in frame[1])
        assert "pid" in wide[1]
        assert max(map(len, small)) <= 60
        assert len(small) <= 10
        terminal.type("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize("leave", ["\x03", "\x04", signal.SIGINT, signal.SIGTERM], ids=repr)
def test_other_ways_to_leave(waiting: Path, leave: str | signal.Signals) -> None:
    with Terminal("top", waiting) as terminal:
        terminal.until(shows("train > compute.forward"))
        if isinstance(leave, str):
            terminal.type(leave)
        else:
            terminal.process.send_signal(leave)
        assert terminal.wait() == 0
        assert terminal.is_as_before()


def test_where_there_is_nothing_to_see_the_screen_stays_as_it_is(tmp_path: Path) -> None:
    with Terminal("top", tmp_path) as terminal:
        assert terminal.wait() == 2
        assert "nothing was recorded here" in terminal.output
        assert ALTERNATE_SCREEN not in terminal.output


def test_without_a_terminal_one_table_is_printed(waiting: Path) -> None:
    told = dftrace("top", waiting)
    assert told.status == 0, told.err
    assert told.out == told.out.replace("\x1b", "")
    assert "train > compute.forward" in told.out


STEPS = """
    def train(steps):
        for _ in ai.dataloader.fetch.iter(range(steps)):
            with ai.compute.forward, ai.compute.step:
                pass

    with dftrace_ai.tracing(flush_interval_ms=10, rank=0, world_size=1) as run:
        with ai.pipeline.train:
            train({first})
            run.flush()
            done()
            train(100)
            run.flush()
            done()
"""


def test_the_verdict_stands_below_the_table(tmp_path: Path) -> None:
    with (
        program(STEPS.format(first=100), tmp_path),
        Terminal("top", tmp_path, "--interval", "0.05", columns=250) as terminal,
    ):
        frame = terminal.until(shows("why: "))
        place = next(at for at, line in enumerate(frame) if line.startswith("why: "))
        assert frame[place + 1].split()[0] == "step"
        assert place > next(at for at, line in enumerate(frame) if "pipeline.train" in line)
        terminal.resize(250, 6)
        terminal.until(lambda frame: len(frame) <= 6 and not shows("why: ")(frame))
        terminal.type("q")
        assert terminal.wait() == 0
        assert terminal.is_as_before()


def test_nothing_is_said_before_there_are_steps_enough_and_where_it_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with program(STEPS.format(first=2), tmp_path) as running:
        found = snapshot([tmp_path])

        def judged() -> list[str]:
            judging = screen.WhyNow()
            judging.look(found)
            assert judging._process is not None
            judging._process.wait(LIMIT_S)
            judging.look(found)
            judging.end()
            return judging.lines

        assert judged() == []
        running.go_on()
        running.wait_until_ready()
        # Said, where the time goes, and perhaps what to do.
        assert len(judged()) in {2, 3}
        monkeypatch.setattr(screen, "FUNCTION", ("dftrace_ai.analysis.closing", "nothing"))
        assert judged() == []
