"""torch.profiler beside a run: its traces get a place and the clock of ours."""

from __future__ import annotations

import gzip
import mmap
import os
import re
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from dftrace_ai.run.emitting import instant, moment
from dftrace_ai.run.run import current_run
from dftrace_ai.trace_format.file_names import profile_name
from dftrace_ai.wording import described, warn

if TYPE_CHECKING:
    from collections.abc import Callable

# In a text its quotes would be escaped.
BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
LOOKS: Final = 5
MOST_TRIES: Final = 10_000
NS_PER_US: Final = 1000


def trace_handler() -> Callable[[Any], None]:
    """Return what ``torch.profiler.profile(on_trace_ready=...)`` is given beside a run.

    The profiler's trace lies beside that of the run then, as
    ``<trace>.profile-0.pt.trace.json.gz`` and so on, with the same rights; ``dftrace view`` shows
    the two on one clock. An instant `torch.profiler` in ours names the file. Where no run is on it
    does nothing, and what goes wrong is told and does not stop the training.

    Example::

        with torch.profiler.profile(on_trace_ready=trace_handler()) as profiler:
            for batch in loader:
                train(batch)
                profiler.step()
    """

    def handle(profiler: Any) -> None:
        run = current_run()
        path = None if run is None else run.path
        if run is None or path is None:
            warn("there is no run beside which the trace of torch.profiler could lie")
            return
        try:
            _export(profiler, Path(path), int(run._config_in_force().file_mode, 8))
        except Exception as error:  # noqa: BLE001 - whatever the profiler or the disk raises
            warn("the trace of torch.profiler is not kept: %s", described(error))

    return handle


def _export(profiler: Any, trace: Path, mode: int) -> None:
    with TemporaryDirectory(prefix="dftrace-") as folder:
        plain = Path(folder, "profile.json")
        profiler.export_chrome_trace(str(plain))
        ahead_us = _wall_clock_ahead_us()
        _set_back(plain, ahead_us)
        path, descriptor = _new_file(trace, mode)
        try:
            with (
                os.fdopen(descriptor, "wb") as file,
                gzip.GzipFile("", "wb", 6, file) as packed,
                plain.open("rb") as source,
            ):
                shutil.copyfileobj(source, packed, 1 << 20)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    about = {"file": path.name, "wall_clock_ahead_us": ahead_us}
    instant("torch.profiler", about, category="profile")


def _new_file(trace: Path, mode: int) -> tuple[Path, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for number in range(MOST_TRIES):
        path = trace.with_name(profile_name(trace.name, number))
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileExistsError:
            continue
        os.fchmod(descriptor, mode)
        return path, descriptor
    raise FileExistsError(f"{trace.parent} holds {MOST_TRIES} profiles of this trace")


def _wall_clock_ahead_us() -> int:
    """Return how far the wall clock is before ours, which does not follow when it is set."""
    looks = []
    for _ in range(LOOKS):
        before, wall, after = moment()[0], time.time_ns(), moment()[0]
        looks.append((after - before, wall - (before + after) // 2))
    return round(min(looks)[1] / NS_PER_US)


def _set_back(profile: Path, ahead_us: int) -> None:
    """Have the times of a profile, which are by the wall clock, be by ours."""
    if not ahead_us or not profile.stat().st_size:
        return
    with profile.open("r+b") as file, mmap.mmap(file.fileno(), 0) as text:
        found = BASE.search(text)
        if found is None:
            return
        digits = b"%d" % (int(found[1]) - ahead_us * NS_PER_US)
        if len(digits) == len(found[1]):
            text[found.start(1) : found.end(1)] = digits
