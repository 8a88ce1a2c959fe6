"""The plug-in of pytest, in runs of pytest: what is recorded, where, and what is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "dftrace_ai.testing")

TESTS = """
    import time

    import pytest

    import dftrace_ai
    from dftrace_ai import ai


    def train(slow_s=0.0, steps=40):
        for step in range(steps):
            with ai.dataloader.fetch(step=step):
                time.sleep(slow_s)
            with ai.compute.forward(step=step):
                time.sleep(0.001)
            with ai.compute.step(step=step):
                pass


    def test_fixture(dftrace):
        train()
        run = dftrace.run()
        assert run.why.steps.count == 40
        assert run is dftrace.run()
        train()  # of which nothing is recorded any more
        assert (dftrace.folder / "test").parent.is_dir()


    @pytest.mark.traced(auto=True, flush_interval_ms=100)
    @pytest.mark.parametrize("slow_s", [0.01])
    def test_marked(slow_s):
        train(slow_s)
        assert (dftrace_ai.auto.options is not None) == AUTO


    def test_plain():
        from dftrace_ai.run.run import current_run

        train(steps=2)
        assert (current_run() is not None) == RECORDED
        assert dftrace_ai.auto.options is None


    @pytest.mark.traced(False)
    def test_never():
        from dftrace_ai.run.run import current_run

        assert current_run() is None


    def test_fails(dftrace):
        train()
        raise ValueError("in the test")


    def test_skipped(dftrace):
        with pytest.raises(dftrace_ai.TraceError, match="recorded nothing.*auto=True"):
            dftrace.run()
        pytest.skip("after that")
"""


def folders(place: Path) -> list[str]:
    """The tests of which there are traces, without what makes their names unique."""
    found = {path.parent.name for path in place.glob("*/*.pfw.gz")}
    return sorted(re.sub(r"-[0-9a-f]{8}$", "", name) for name in found)


def ran(pytester: pytest.Pytester, *options: str, recorded: bool = False) -> list[str]:
    head = f"RECORDED, AUTO = {recorded}, {bool(options)}\n"
    pytester.makepyfile(test_it=head + pytester_text(TESTS))
    result = pytester.runpytest_subprocess(*PLUGIN, *options)
    result.assert_outcomes(passed=4, failed=1, skipped=1)
    return result.outlines


def pytester_text(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines())


def told(lines: list[str]) -> dict[str, str]:
    """What the summary says of each test."""
    begun = next(index for index, line in enumerate(lines) if re.match(r"=+ dftrace =+", line))
    pairs = [line.partition(": ") for line in lines[begun + 1 :] if line.startswith("test_it")]
    return {name.partition("::")[2]: text for name, _, text in pairs}


def test_without_the_option_only_the_fixture_records_and_into_its_own_place(
    pytester: pytest.Pytester,
) -> None:
    lines = ran(pytester)
    assert not (pytester.path / "traces").exists()
    assert not [line for line in lines if re.match(r"=+ dftrace =+", line)]


def test_all_tests_are_recorded_but_those_that_say_no(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ndftrace_dir = kept/here")
    lines = ran(pytester, "--dftrace-all", recorded=True)
    assert folders(pytester.path / "kept" / "here") == [
        "test_it.py_test_fails",
        "test_it.py_test_fixture",
        "test_it.py_test_marked_0.01",
        "test_it.py_test_plain",
    ]
    assert "test_never" not in told(lines)


def test_marked_tests_are_recorded_by_workers_of_xdist_and_told_by_the_first_process(
    pytester: pytest.Pytester,
) -> None:
    lines = ran(pytester, "--dftrace", "-n", "1")
    assert folders(pytester.path / "traces") == [
        "test_it.py_test_fails",
        "test_it.py_test_fixture",
        "test_it.py_test_marked_0.01",
    ]
    found = told(lines)
    assert set(found) == {"test_fixture", "test_marked[0.01]", "test_fails", "test_skipped"}
    assert found["test_skipped"].startswith("the test recorded nothing")
    assert not [line for line in lines if "dftrace why" in line and "skipped" in line]
    assert re.match(r"INPUT-BOUND\. Steps wait for data for \d", found["test_marked[0.01]"])
    (named,) = (line for line in lines if "dftrace why traces/test_it.py_test_marked_0" in line)
    assert (pytester.path / named.split()[-1]).is_dir()


def test_a_run_of_the_program_is_not_taken_for_that_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import dftrace_ai

        dftrace_ai.initialize(log_file="own/trace")

        def test_it(dftrace):
            pass

        def teardown_module():
            dftrace_ai.finalize()
    """)
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*a run is on that this test did not begin*"])


def test_where_traces_go_is_not_said_by_a_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.traced(log_file="elsewhere/t")
        def test_it(dftrace):
            pass
    """)
    result = pytester.runpytest_subprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*--dftrace-dir, or dftrace_dir, says where traces go*"])


def test_nothing_of_it_is_loaded_before_a_test_is_recorded(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_it():
            assert "dftrace_ai.testing" in sys.modules
            heavy = {"torch", "numpy", "pydantic", "dftrace_ai._native", "dftrace_ai.analysis"}
            assert not heavy & sys.modules.keys()
    """)
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)
