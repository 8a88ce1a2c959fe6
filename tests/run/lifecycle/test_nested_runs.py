"""Runs within runs: blocks, libraries and notebooks join what is on, and only the last one ends it."""

from __future__ import annotations

import contextlib
import os
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import RunScript, read_all, trace_files

import dftrace_ai
from dftrace_ai import ai
from dftrace_ai.run.lifecycle import current_run


@pytest.fixture(autouse=True)
def _no_run() -> Iterator[None]:
    for _ in range(9):
        dftrace_ai.finalize()
    yield
    for _ in range(9):
        dftrace_ai.finalize()


def event(step: int) -> None:
    with ai.compute.forward(step=step):
        pass


def steps(folder: Path) -> list[int]:
    """The steps in the one trace of a folder, which must be complete."""
    (trace,) = read_all(trace_files(folder))
    assert trace.footer["ended"] == "finalize"
    return [e.user["step"] for e in trace.named("forward")]


def written(path: str | None) -> bytes:
    """The lines that are in a trace by now."""
    import gzip

    return gzip.decompress(Path(str(path)).read_bytes())


def part_of_the_program(name: str) -> Any:
    """A module of a library, or of the user's."""
    module = types.ModuleType(name)
    source = """
import dftrace_ai
def initialize(**settings): return dftrace_ai.initialize(**settings)
def initialize_log(*args): return dftrace_ai.dftracer.initialize_log(*args)
def finalize(): dftrace_ai.finalize()
"""
    exec(source, module.__dict__)
    return module


def test_an_inner_block_joins_the_outer_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "outer") as outer:
        for _ in range(3):
            with dftrace_ai.tracing(log_file=tmp_path / "inner", ids=False) as inner:
                event(1)
            assert inner is outer
            assert inner.path == outer.path
        event(2)
    assert steps(tmp_path) == [1, 1, 1, 2]
    assert Path(str(inner.path)) == trace_files(tmp_path)[0]
    (warning,) = caplog.messages
    assert warning == (
        "a run is on and goes on with its own settings: ids is True, not False, "
        f"log_file is '{tmp_path}/outer', not '{tmp_path}/inner'"
    )


def test_settings_that_are_the_same_are_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    config = dftrace_ai.Config(log_file="t", compression="none")
    with dftrace_ai.tracing(config), dftrace_ai.tracing(config, compression="none"):
        with dftrace_ai.tracing(log_file=tmp_path / "t"), dftrace_ai.tracing():
            assert caplog.messages == []
        monkeypatch.chdir(tmp_path / "elsewhere")
        with dftrace_ai.tracing(config), pytest.raises(dftrace_ai.ConfigError):
            dftrace_ai.initialize(compresion="none")
    assert len(caplog.messages) == 1
    assert f"not '{tmp_path}/elsewhere/t'" in caplog.text


def test_who_is_refused_holds_nothing(tmp_path: Path) -> None:
    """The run that is on ends with those who have it."""
    library = part_of_the_program("library")
    with dftrace_ai.tracing(log_file=tmp_path / "t"):
        with pytest.raises(dftrace_ai.ConfigError):
            library.initialize(compresion="none")
        with pytest.raises(dftrace_ai.ConfigError), dftrace_ai.tracing(compresion="none"):
            event(0)
        event(1)
    assert current_run() is None
    assert steps(tmp_path) == [1]


def test_within_a_run_that_is_turned_off_nothing_is_told_but_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with dftrace_ai.tracing(enabled=False) as run:
        with dftrace_ai.tracing(log_file=tmp_path / "t") as inner:
            assert inner is run
            event(1)
        assert caplog.messages == []
        dftrace_ai.initialize(enabled=True)
    assert "enabled is False, not True" in caplog.text
    assert trace_files(tmp_path) == []
    assert run.path is None


@pytest.mark.parametrize("way", ["initialize", "initialize_log"])
def test_a_library_that_traces_itself_leaves_the_users_run_on(tmp_path: Path, way: str) -> None:
    library, main = part_of_the_program("library.inside"), part_of_the_program("__main__")
    for begins in (main.initialize, getattr(main, way)):
        folder = tmp_path / begins.__name__
        run = begins(log_file=folder / "t") if begins is main.initialize else begins(folder / "t")
        for step in range(2):
            getattr(library, way)()
            event(step)
            library.finalize()
        event(2)
        main.finalize()
        assert current_run() is None, run
        assert steps(folder) == [0, 1, 2]
        if way == "initialize":
            break


def test_one_finalize_at_the_end_of_two_beginnings(tmp_path: Path) -> None:
    """What was recorded is in the file; the other one may still record, until the program ends."""
    library, main = part_of_the_program("library"), part_of_the_program("__main__")
    run = main.initialize(log_file=tmp_path / "t", flush_interval_ms=60_000)
    library.initialize_log()
    event(1)
    main.finalize()
    assert written(run.path).count(b'"name":"forward"') == 1
    event(2)
    library.finalize()
    assert steps(tmp_path) == [1, 2]


def test_who_begins_first_and_ends_first_is_all_the_same(tmp_path: Path) -> None:
    library, main = part_of_the_program("library"), part_of_the_program("__main__")
    library.initialize(log_file=tmp_path / "t")
    main.initialize()
    library.finalize()
    event(1)
    with dftrace_ai.tracing():
        main.finalize()
        event(2)
    assert current_run() is None
    assert steps(tmp_path) == [1, 2]


def test_a_cell_that_is_run_again_counts_once(tmp_path: Path) -> None:
    cell = part_of_the_program("__main__")
    for step in range(3):
        cell.initialize(log_file=tmp_path / "t")
        event(step)
    cell.finalize()
    assert steps(tmp_path) == [0, 1, 2]


def test_a_block_that_is_entered_by_hand(tmp_path: Path) -> None:
    """In one cell, and again; nobody leaves it, and what becomes of the object does not matter."""
    dftrace_ai.tracing(log_file=tmp_path / "t").__enter__()
    event(1)
    block = dftrace_ai.tracing()
    block.__enter__()
    event(2)
    block.__exit__(None, None, None)
    event(3)
    dftrace_ai.finalize()
    assert current_run() is None
    assert steps(tmp_path) == [1, 2, 3]


def test_a_finalize_inside_of_a_block_leaves_it_on(tmp_path: Path) -> None:
    """Of a library that began nothing: what was recorded is in the file, and the block goes on."""
    with dftrace_ai.tracing(log_file=tmp_path / "t", flush_interval_ms=60_000) as run:
        event(1)
        part_of_the_program("library").finalize()
        assert written(run.path).count(b'"name":"forward"') == 1
        dftrace_ai.finalize()
        event(2)
    assert current_run() is None
    assert steps(tmp_path) == [1, 2]


def test_an_exception_that_stays_within_the_outer_block(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t"):
        with contextlib.suppress(ValueError), dftrace_ai.tracing():
            event(1)
            raise ValueError("of a cell")
        try:
            raise KeyError("handled")
        except KeyError:
            event(2)
    assert steps(tmp_path) == [1, 2]


def test_a_block_inside_of_an_exception_handler_ends_well(tmp_path: Path) -> None:
    try:
        raise KeyError("handled")
    except KeyError:
        with dftrace_ai.tracing(log_file=tmp_path / "t"):
            event(1)
    assert steps(tmp_path) == [1]


def test_a_decorated_function_that_calls_itself(tmp_path: Path) -> None:
    @dftrace_ai.tracing(log_file=tmp_path / "t")
    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        event(depth)

    descend(3)
    assert current_run() is None
    assert steps(tmp_path) == [0, 1, 2, 3]


def test_two_threads_with_a_block_each(tmp_path: Path) -> None:
    """They begin at once, and whoever is left alone goes on."""
    gate = threading.Barrier(2)
    first_left = threading.Event()

    def work(first: bool) -> None:
        gate.wait()
        with dftrace_ai.tracing(log_file=tmp_path / "t"):
            event(1)
            gate.wait()
            if not first:
                first_left.wait()
                event(2)
        first_left.set()

    threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert current_run() is None
    assert steps(tmp_path) == [1, 1, 2]


def test_a_generator_that_holds_a_block_open(tmp_path: Path) -> None:
    def batches() -> Iterator[int]:
        with dftrace_ai.tracing():
            yield 1
            yield 2

    with dftrace_ai.tracing(log_file=tmp_path / "t"):
        left_alone = batches()
        event(next(left_alone))
        event(list(batches())[1])
    event(3)
    left_alone.close()
    assert current_run() is None
    assert steps(tmp_path) == [1, 2, 3]


def test_a_forked_child_leaves_the_block_of_its_parent(tmp_path: Path) -> None:
    with dftrace_ai.tracing(log_file=tmp_path / "t"), dftrace_ai.tracing():
        block = dftrace_ai.tracing()
        block.__enter__()
        event(1)
        child = os.fork()
        event(2)
        block.__exit__(None, None, None)
        if child:
            os.waitpid(child, 0)
        event(3)
    if not child:
        os._exit(0)
    traces = read_all(trace_files(tmp_path))
    assert [t.footer["ended"] for t in traces] == ["finalize", "finalize"]
    assert sorted([e.user["step"] for e in t.named("forward")] for t in traces) == [
        [1, 2, 3],
        [2, 3],
    ]


def test_a_child_by_spawn(run_script: RunScript) -> None:
    """A block in it joins its parent's run; settings of its own make a run of its own."""
    done = run_script("""
        import subprocess, sys
        import dftrace_ai
        from dftrace_ai import ai

        CHILD = '''
        import sys
        import dftrace_ai
        from dftrace_ai import ai
        own = dict(log_file=sys.argv[1]) if len(sys.argv) > 1 else {}
        with dftrace_ai.tracing(**own) as run:
            with dftrace_ai.tracing(ids=False):
                with ai.compute.forward(step=1):
                    pass
        with ai.compute.forward(step=2):
            pass
        '''
        if __name__ == "__main__":
            import textwrap
            with dftrace_ai.tracing() as run:
                with ai.compute.forward(step=0):
                    pass
                own = run.path.removesuffix(".pfw.gz") + "-own"
                for arguments in ([], [own]):
                    subprocess.run(
                        [sys.executable, "-c", textwrap.dedent(CHILD), *arguments], check=True
                    )
    """)
    _, children = done.split()
    found = {t.footer["ended"]: [e.user["step"] for e in t.named("forward")] for t in children}
    assert found == {"exit": [1, 2], "finalize": [1]}
    assert done.stderr.count("ids is True, not False") == 2
