"""Which number an iteration, an epoch, or something that was logged without a step has."""

from __future__ import annotations

from itertools import count
from operator import index
from typing import TYPE_CHECKING, Any

from dftrace_ai.loggers.records import MOST_STEP
from dftrace_ai.wording import ToldOnce, briefly, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from dftrace_ai.loggers.runs.log_files import Reached

__all__ = ["Steps"]


class Steps:
    """Counts, and goes on from what the run has reached before.

    A loop that calls `log_iter` counts its iterations, and what is logged without a step belongs to
    the last of them. One that calls `log` alone counts these calls. With neither of them each
    name counts by itself.

    Args:
        before: how far the run has come where it goes on; asked when something is counted first.
        others: those of the loggers that these belong to, whose iterations count where these have
            none.
    """

    def __init__(self, before: Callable[[], Reached], others: Steps | None = None) -> None:
        self.others = others
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
