"""Where a run stands: the number of an iteration, an epoch, or what has no step; and its line.

Apart from `pipeline`, which has threads and an end; this counts, and knows of neither.
"""

from __future__ import annotations

import sys
import time
from itertools import count
from operator import index
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.records import MOST_STEP, MetricsRecord
from dftrace_ai.loggers.system_metrics import gpu_figures
from dftrace_ai.wording import ToldOnce, briefly, escaped, shortened, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dftrace_ai.loggers.records import Point, Record
    from dftrace_ai.loggers.runs.log_files import Reached

MOST_METRICS, MOST_LETTERS = 6, 40
GIB = 1 << 30


class Steps:
    """Counts, and goes on from what the run has reached before.

    A loop that calls `log_iter` counts its iterations, and what is logged without a step belongs to
    the last of them. One that calls `log` alone counts these calls. With neither of them each
    name counts by itself.
    """

    def __init__(self, before: Callable[[], Reached]) -> None:
        # Those of the loggers that these belong to: their iterations count where these have none.
        self.others: Steps | None = None
        # How far a run has come that goes on; asked when something is counted first.
        self._before = before
        self._reached: Reached | None = None
        self._iteration: int | None = None
        self._logged: int | None = None
        self._counters: dict[str, Iterator[int]] = {}
        self._named: dict[str, int] = {}
        self._told = ToldOnce()

    def iteration(self, step: Any) -> int:
        """Return the number of an iteration: the one that is given, or one more than the last."""
        number = self.whole(step)
        if number is not None:
            self._counters["iterations"] = count(number + 1)
        else:
            number = self._next("iterations")
        self._iteration = number
        return number

    def epoch(self, epoch: Any) -> int:
        """Return the number of an epoch, likewise."""
        number = self.whole(epoch)
        if number is not None:
            self._counters["epochs"] = count(number + 1)
            return number
        return self._next("epochs")

    def call(self, step: Any) -> int:
        """Return the number of a call of `log`: as given, of the last iteration, or one more."""
        number = self.whole(step)
        if number is not None:
            self._counters["calls"] = count(number + 1)
        elif (iteration := self._last_iteration()) is not None:
            return iteration
        else:
            number = self._next("calls")
        self._logged = number
        return number

    def of_names(self, names: Collection[str], step: Any) -> int:
        """Return the step of numbers: as given, the last, or one more than that of the names."""
        number = self.whole(step)
        if number is None:
            number = self._last()
        if number is None:
            before = self._so_far().iteration
            number = 1 + max((self._named.get(name, before) for name in names), default=before)
        for name in names:
            self._named[name] = number
        return number

    def other(self, step: Any) -> int:
        """Return the step of what is no number: as given, or the last of all."""
        number = self.whole(step)
        if number is None:
            number = self._last()
        return max(self._named.values(), default=0) if number is None else number

    def whole(self, step: Any) -> int | None:
        """Return a number as Python has it; None for None, and for what is none, told once."""
        if step is None:
            return None
        try:
            return _number(step)
        except Exception as error:  # noqa: BLE001 - whatever a training has for a step
            if self._told.first(type(step)):
                warn(
                    "a step has to be a whole number of at most 63 bits, which a %s is not (%s); "
                    "it is logged as without a step",
                    type(step).__name__,
                    briefly(error),
                )
            return None

    def _next(self, what: str) -> int:
        counter = self._counters.get(what)
        if counter is None:
            reached = self._so_far()
            after = 1 + (reached.epoch if what == "epochs" else reached.iteration)
            # Of several threads that begin to count, one has its counter taken by all.
            counter = self._counters.setdefault(what, count(after))
        return next(counter)

    def _last_iteration(self) -> int | None:
        if self._iteration is None and self.others is not None:
            return self.others._last_iteration()
        return self._iteration

    def _last(self) -> int | None:
        iteration = self._last_iteration()
        return self._logged if iteration is None else iteration

    def _so_far(self) -> Reached:
        if self._reached is None:
            self._reached = self._before()
        return self._reached


def _number(step: Any) -> int:
    try:
        whole = index(step)
    except TypeError:
        # A float is one where it is whole; a text is none, even if digits stand in it.
        number = None if isinstance(step, str | bytes) else float(step)
        if number is None or not number.is_integer():
            raise ValueError(f"{step!r} is no such number") from None
        whole = int(number)
    if abs(whole) > MOST_STEP:
        raise OverflowError("it has more than 63 bits")
    return whole


class StatusLine:
    """Prints a line on standard error for each epoch of a run."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._before_s = time.monotonic()
        self._before = 0

    def show(self, at: Point, records: Sequence[Record], iterations: int, now_s: float) -> None:
        """Print the line of an epoch, of what its routines have made."""
        # The training goes on meanwhile: there were so many iterations when it ended,
        # which was at a time by `time.monotonic`.
        # As it would be read by a person; the stream may be closed by now.
        try:
            sys.stderr.write(f"{self.text(at, records, iterations, now_s)}\n")
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            return

    def text(self, at: Point, records: Sequence[Record], iterations: int, now_s: float) -> str:
        """Return the line of an epoch, without its end."""
        done, since_s = iterations - self._before, now_s - self._before_s
        self._before, self._before_s = iterations, now_s
        parts = [f"[{escaped(self._title)}] epoch {at.step}", f"iteration {iterations:,}"]
        if done and since_s > 0:
            parts.append(f"{done / since_s:.3g} it/s")
        means: dict[str, float] = {}
        for record in records:
            if isinstance(record, MetricsRecord):
                for name, value in record.values.items():
                    if name.endswith("/mean"):
                        means[name[len("epoch/") : -len("/mean")]] = value
        for name, value in list(means.items())[:MOST_METRICS]:
            parts.append(f"{escaped(shortened(name, MOST_LETTERS))} {value:.4g}")
        gpu = gpu_figures()
        if gpu:
            used = f"gpu {gpu['gpu/allocated_bytes'] / GIB:.1f} GiB"
            busy = gpu.get("gpu/utilization")
            parts.append(used if busy is None else f"{used} {busy:.0f} %")
        return "  ".join(parts)
