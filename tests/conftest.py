"""Fixtures that trace something, here or in a fresh process, and read the files back."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from perfetto.agreement import agree
from perfetto.engine import View
from perfetto.trace_file import Trace, read
from sampling import SHARE, select

if not Path("/dev/nvidiactl").exists():
    # Triton decides when it is imported, by whichever test comes first.
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Threads of torch that wait for each other lose a processor's turn, over and over, where processes
# are more than processors. Torch reads this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Inductor would compile programs to find out which wide instructions there are, half a minute of a
# processor in a fresh cache, and no test is of them.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")

SCRIPT_LIMIT_S = 300  # for what hangs: a busy machine may need ten times as long as an idle one
IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # subprocess undoes that itself
FOREIGN = ("DFTRACE_", "DFTRACER_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "MPI", "MV2_", "PALS_")
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK")


def keep_ignored_signals_from_children() -> None:
    """Children get the default actions, whatever a shell's `nohup` and `&` have this process ignore.

    What is ignored stays so in a program that is started; a handler does not, even an empty one.
    """
    for number in signal.valid_signals() - IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


keep_ignored_signals_from_children()


def pytest_configure() -> None:
    """How long an example takes to be made or tried says how busy the machine is, and nothing else.

    The examples are the same each time, but where all of a matrix is asked for. Until the tests are
    found, nearly all that is made stays.
    """
    from hypothesis import HealthCheck, settings

    gc.disable()

    settings.register_profile(
        "suite",
        deadline=None,
        derandomize=SHARE is None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("suite")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of slow matrices a sample is run, of those cases that nobody has put aside before."""
    chosen = select(items)
    left = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = chosen


def pytest_collection_finish() -> None:
    """What all modules have imported is collected no more: not in each collection, nor in each fork."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Some of what was imported complains where it is not collected at the end."""
    gc.unfreeze()


# How long a collection of garbage takes says how busy the machine is: the tests of it ask for it.
WITHOUT_COLLECTIONS = {"DFTRACE_AUTO_PARTS": "-gc"}
# For trainings with torch and the digits, which take half the time with them: where scikit-learn is that of its
# digits alone, and where a program that ends does not collect what it has imported, of which some of that complains.
LEAN_PROGRAMS = Path(__file__).with_name("lean_programs")
DIGITS_ALONE = {"PYTHONPATH": str(LEAN_PROGRAMS / "digits")}
LEAN = {"PYTHONPATH": f"{LEAN_PROGRAMS / 'digits'}:{LEAN_PROGRAMS / 'ends'}"}
LEAN_ENDS = {"PYTHONPATH": str(LEAN_PROGRAMS / "ends")}
QUIET_ENDS = {"PYTHONPATH": str(LEAN_PROGRAMS / "quiet_ends")}


def clean_environment() -> dict[str, str]:
    """This process's environment without any setting of ours or of a launcher."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN) and k not in LAUNCHER}
    return kept | WITHOUT_COLLECTIONS


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - set(clean_environment()):
        monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def _no_spool_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whoever reads a trace opens each spool of its user: hundreds of them make every test slower."""
    yield
    from dftrace_ai import recorder

    if recorder.lack():
        return
    from dftrace_ai._native import spool_trace_directory

    base = tmp_path_factory.getbasetemp()
    for spool in Path("/dev/shm").glob("dftrace-*.spool"):
        with contextlib.suppress(OSError, ValueError):  # another's, or none that is whole
            if Path(spool_trace_directory(str(spool))).is_relative_to(base):
                spool.unlink()


def trace_files(folder: Path) -> list[Path]:
    """The traces that lie in a folder."""
    return sorted(folder.glob("*.pfw*"))


def read_all(files: Sequence[Path]) -> list[Trace]:
    """The traces, read strictly; the package's own validator must find them faultless, too."""
    from dftrace_ai.analysis.validating import validate_traces

    traces = [read(f) for f in files]
    if files:
        found = validate_traces(files, limit=5)
        assert found.fault_count == 0, [str(fault) for fault in found.first_faults(5)]
    return traces


@dataclass
class Recording:
    """A run in this process; its files are read when its block ends."""

    folder: Path
    run: Any = None
    traces: list[Trace] = field(default_factory=list)
    view: View | None = None

    @property
    def trace(self) -> Trace:
        """The only file."""
        assert len(self.traces) == 1, [t.path.name for t in self.traces]
        return self.traces[0]

    @property
    def perfetto(self) -> View:
        """What the Perfetto engine shows of it; already found equal to the lines."""
        assert self.view is not None
        return self.view

    def read(self, *, perfetto: bool = True) -> None:
        """Reads the files; every trace is held against Perfetto."""
        self.traces = read_all(trace_files(self.folder))
        if perfetto and self.traces:
            self.view = agree(self.traces)


Traced = Callable[..., AbstractContextManager[Recording]]


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[Traced]:
    """`with traced(**config) as rec:` traces in this process; then rec.trace, rec.perfetto.

    The file must obey the format, and Perfetto must show exactly what it says.
    """
    import dftrace_ai

    count = 0

    @contextmanager
    def record(*, perfetto: bool = True, **overrides: Any) -> Iterator[Recording]:
        nonlocal count
        count += 1
        rec = Recording(tmp_path / f"run{count}")
        rec.folder.mkdir()
        overrides.setdefault("log_file", rec.folder / "trace")
        with dftrace_ai.tracing(**overrides) as rec.run:
            yield rec
        rec.read(perfetto=perfetto)

    def fresh() -> None:
        dftrace_ai.finalize()
        dftrace_ai.ai.enable()
        dftrace_ai.ai.reset()

    fresh()
    yield record
    fresh()


@dataclass
class Outcome:
    """What a script left behind."""

    returncode: int
    stdout: str
    stderr: str
    folder: Path
    pid: int

    @property
    def said(self) -> list[Any]:
        """The JSON values that the script printed, one a line."""
        return [json.loads(line) for line in self.stdout.splitlines() if line]

    @property
    def files(self) -> list[Path]:
        """The trace files."""
        return trace_files(self.folder)

    def traces(self, *, perfetto: bool = True) -> list[Trace]:
        """All traces, checked; opened in Perfetto together and held against it."""
        traces = read_all(self.files)
        if perfetto and traces:
            agree(traces)
        return traces

    def trace(self, *, perfetto: bool = True) -> Trace:
        """The only trace."""
        traces = self.traces(perfetto=perfetto)
        assert len(traces) == 1, [f.name for f in self.files]
        return traces[0]

    def split(self, *, perfetto: bool = True) -> tuple[Trace, list[Trace]]:
        """The script's own trace, and its children's."""
        traces = self.traces(perfetto=perfetto)
        own = [t for t in traces if t.events[0].pid == self.pid]
        assert len(own) == 1, [f.name for f in self.files]
        return own[0], [t for t in traces if t is not own[0]]


RunScript = Callable[..., Outcome]


@pytest.fixture
def run_script(tmp_path: Path) -> RunScript:
    """Runs Python source in a fresh process whose traces go to a folder of their own.

    `env` adds to a cleaned environment, `args` to the command line; unless
    `status` is None the script must end with it. `stop` gets the Popen object
    once the script has printed a line that says "ready". One that imports torch
    does not collect that when it ends.
    """
    count = 0

    def run(
        source: str,
        *,
        env: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        status: int | None = 0,
        stop: Callable[[subprocess.Popen[str]], None] | None = None,
    ) -> Outcome:
        nonlocal count
        count += 1
        folder = tmp_path / f"script{count}"
        (folder / "out").mkdir(parents=True)
        script = folder / "script.py"
        script.write_text(textwrap.dedent(source), encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, str(script), *args],
            env={
                **clean_environment(),
                "DFTRACE_LOG_FILE": str(folder / "out" / "trace"),
                "PYTHONDONTWRITEBYTECODE": "1",
                **(QUIET_ENDS if "import torch" in source else {}),
                **(env or {}),
            },
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if stop is not None:
            assert process.stdout is not None
            line = process.stdout.readline()
            try:
                if "ready" in line:
                    stop(process)
            except BaseException:
                process.kill()
                process.communicate()
                raise
        try:
            stdout, stderr = process.communicate(timeout=SCRIPT_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            # A child of its own may have its pipes, and hang as well.
            with contextlib.suppress(subprocess.TimeoutExpired):
                stdout, stderr = process.communicate(timeout=SCRIPT_LIMIT_S)
                raise AssertionError(f"it hangs: {stdout[-2000:]}{stderr[-4000:]}") from None
            raise AssertionError(f"process {process.pid} hangs, and so do its children") from None
        if status is not None:
            assert process.returncode == status, f"{process.returncode}: {stderr[-4000:]}"
        return Outcome(process.returncode, stdout, stderr, folder / "out", process.pid)

    return run


@pytest.fixture(params=["best", "portable"])
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    """What the kernels over tensors use: the processor's best, or what any processor has."""
    from dftrace_ai import _native

    yield _native.tensor_instructions(request.param)
    _native.tensor_instructions("best")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how long each folder of tests took, where there are several."""
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = str(Path(report.nodeid.partition("::")[0]).parent)
                seconds[folder] = seconds.get(folder, 0.0) + report.duration
    if len(seconds) > 1:
        terminalreporter.section("seconds by folder")
        for folder, took_s in sorted(seconds.items(), key=lambda item: -item[1]):
            terminalreporter.line(f"{took_s:8.1f}  {folder}")
