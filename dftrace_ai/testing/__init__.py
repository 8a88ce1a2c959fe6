"""The plug-in of pytest: tests that are recorded, and what their steps lose time to.

Nothing else of the package is loaded before a test is to be recorded::

    # conftest.py, or `-p dftrace_ai.testing`
    pytest_plugins = ["dftrace_ai.testing"]

    def test_an_epoch_is_not_loader_bound(dftrace):
        train_one_epoch()
        assert dftrace.run().why.verdict != "input-bound"
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from dftrace_ai.errors import DftraceError, TraceError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from dftrace_ai.analysis import Run

__all__ = ["Recording", "dftrace"]

FOLDER = "traces"
"""Where traces go unless it is said: as those of `dftrace run`."""

PROPERTY = "dftrace"
"""The property of a test's report that has the folder of its traces."""

LONGEST_NAME = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """Make the options and keys of the plug-in known."""
    group = parser.getgroup("dftrace", "record tests with dftrace")
    group.addoption(
        "--dftrace",
        action="store_true",
        help="record the tests that are marked traced, or ask for the fixture dftrace",
    )
    group.addoption(
        "--dftrace-all",
        action="store_true",
        help="record every test but those marked traced(False)",
    )
    group.addoption(
        "--dftrace-dir", metavar="DIR", help=f"where the traces go: {FOLDER}, or dftrace_dir"
    )
    parser.addini("dftrace_dir", "the directory of the traces of tests, as --dftrace-dir")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record tests where that is asked for."""
    config.addinivalue_line(
        "markers",
        "traced(enabled=True, auto=False, **settings): record the test under --dftrace; "
        "False: not under --dftrace-all, either; auto: what frameworks do, too; settings: as of "
        "dftrace_ai.tracing",
    )
    config.pluginmanager.register(_Recorder(config), "dftrace-recorder")


class Recording:
    """What the fixture `dftrace` gives: the test is recorded while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """The directory of the traces."""
        self._block = contextlib.ExitStack()
        self._run: Run | None = None

    def _begin(self, marker: pytest.Mark | None) -> None:
        from dftrace_ai.run.lifecycle import tracing
        from dftrace_ai.run.run import current_run

        settings = dict(marker.kwargs) if marker else {}
        settings.pop("enabled", None)
        if "log_file" in settings:
            raise pytest.UsageError(
                "dftrace: --dftrace-dir, or dftrace_dir, says where traces go, not log_file"
            )
        automatic = settings.pop("auto", False)
        if current_run() is not None:
            raise pytest.UsageError(
                "dftrace: a run is on that this test did not begin; end it before, with "
                "dftrace_ai.finalize(), or mark the test traced(False)"
            )
        self._block.enter_context(tracing(log_file=self.folder / "test", **settings))
        if automatic:
            from dftrace_ai.integrations.auto import auto

            auto()
            self._block.callback(auto.remove)

    def end(self) -> None:
        """End the recording; what is done from then on is not recorded.

        Example::

            train()
            dftrace.end()
            check_the_weights()
        """
        self._block.close()

    def run(self) -> Run:
        """End the recording, and return what was recorded.

        Returns:
            A `dftrace_ai.analysis.Run`: its `why`, `summary`, `steps()`, `frame("spans")`.

        Raises:
            TraceError: nothing was recorded.

        Example::

            verdict = dftrace.run().why
        """
        self.end()
        if self._run is None:
            self._run = _read(self.folder)
        return self._run


class _Recorded(NamedTuple):
    """A test that was recorded."""

    test: str
    folder: Path


class _Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self._all = bool(config.getoption("--dftrace-all"))
        self._on = bool(config.getoption("--dftrace")) or self._all
        given = config.getoption("--dftrace-dir") or config.getini("dftrace_dir") or FOLDER
        self._folder = config.invocation_params.dir / given
        self._recorded: dict[str, _Recorded] = {}

    @contextlib.contextmanager
    def recording(self, item: pytest.Item, otherwise: Path) -> Iterator[Recording]:
        """Record while a block runs: among the traces that were asked for, or elsewhere."""
        folder = self._folder / _file_name(item.nodeid) if self._on else otherwise
        recording = Recording(folder)
        recording._begin(item.get_closest_marker("traced"))
        if self._on:
            item.user_properties.append((PROPERTY, str(folder)))
        try:
            yield recording
        finally:
            recording.end()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record a test for which that was asked, but by the fixture."""
        if not self._is_wanted(item):
            return (yield)
        with self.recording(item, self._folder):
            return (yield)

    def _is_wanted(self, item: pytest.Item) -> bool:
        marker = item.get_closest_marker("traced")
        if not self._on or "dftrace" in getattr(item, "fixturenames", ()):
            return False
        if marker is None:
            return self._all
        return bool(marker.args[0] if marker.args else marker.kwargs.get("enabled", True))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in where a test was recorded, here or in a worker of xdist."""
        for name, folder in report.user_properties:
            if name == PROPERTY:
                self._recorded[report.nodeid] = _Recorded(report.nodeid, Path(str(folder)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell of each recorded test what its steps lose time to, and where its traces are."""
        if not self._recorded:
            return
        terminalreporter.section("dftrace")
        for one in self._recorded.values():
            terminalreporter.line(f"{one.test}: {_verdict_on(one.folder)}")
            if one.folder.is_dir() and any(one.folder.iterdir()):
                place = shlex.quote(os.path.relpath(one.folder))
                terminalreporter.line(f"    dftrace why {place}")


def _read(folder: Path) -> Run:
    from dftrace_ai.analysis import Run

    if not any(folder.glob("*.pfw*")):
        raise TraceError(
            "the test recorded nothing: it ran nothing that is annotated; "
            "@pytest.mark.traced(auto=True) records what PyTorch and others do by themselves"
        )
    return Run(folder)


def _verdict_on(folder: Path) -> str:
    try:
        from dftrace_ai.analysis.why.words import verdict_lines

        verdict = _read(folder).why
        kind = verdict_lines(verdict)[0].partition("  ")[0]
        return f"{kind}. {verdict.findings[0].what}" if verdict.findings else kind
    except DftraceError as error:
        return str(error)


def _file_name(test: str) -> str:
    """Return the name of a test's directory, a different one for each."""
    plain = re.sub(r"[^\w.-]+", "_", test)[-LONGEST_NAME:].strip("._")
    return f"{plain}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"


@pytest.fixture
def dftrace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recording]:
    """Record the test.

    Without `--dftrace` the traces lie below the test's own `tmp_path`.

    Example::

        def test_batches_are_there_in_time(dftrace):
            train_one_epoch()
            assert dftrace.run().why.verdict != "input-bound"
    """
    recorder = cast("_Recorder", request.config.pluginmanager.getplugin("dftrace-recorder"))
    with recorder.recording(request.node, tmp_path / "dftrace") as recording:
        yield recording
