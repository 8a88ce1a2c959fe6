"""The times on devices of this process: found when the first span asks, told when the run ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from dftrace_ai.device.intervals import StreamTimes
from dftrace_ai.device.torch_clock import NoClockError, find_clock
from dftrace_ai.run.emitting import metadata
from dftrace_ai.run.hooks import Hook, register
from dftrace_ai.wording import briefly, counted, warn

if TYPE_CHECKING:
    from dftrace_ai.device.clock import DeviceClock
    from dftrace_ai.run.run import Run

__all__ = ["SETTLE_LIMIT_S", "stream_times", "use_clock"]

SETTLE_LIMIT_S: Final = 2.0
"""So long the end of a run waits for devices to pass what is under way, at most."""

LOOK_S: Final = 0.001

_times: StreamTimes | None = None
_is_hopeless = False


def stream_times() -> StreamTimes | None:
    """Return what measures the device of this process; None where there is none, or none yet."""
    global _times, _is_hopeless
    if _times is None and not _is_hopeless:
        try:
            clock = find_clock()
            _times = None if clock is None else StreamTimes(clock)
        except NoClockError as error:
            _is_hopeless = True
            warn("spans have no time on a device: %s", error)
        except Exception as error:  # noqa: BLE001 - whatever the device's library raises
            _is_hopeless = True
            warn("spans have no time on a device: %s", briefly(error))
    return _times


def use_clock(clock: DeviceClock | None) -> None:
    """Measure another accelerator than that of torch from now on.

    Args:
        clock: its events; None for torch's again.

    Example::

        use_clock(MyAccelerator())
        with ai.compute.forward(device=True):
            launch()
    """
    global _times, _is_hopeless
    _times = None if clock is None else StreamTimes(clock)
    _is_hopeless = False


def _begin(_: Run) -> None:
    if _times is not None:
        _times.restart()


def _end(run: Run) -> None:
    times = _times
    if times is None:
        return
    limit_s = min(SETTLE_LIMIT_S, run._config_in_force().finalize_timeout_s)
    until_s = time.monotonic() + limit_s
    while (under_way := times.settle()) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    without = times.left_out + under_way
    if without:
        metadata("spans without time on the device", str(without))
        warn(
            "%s no time on the device: %d for which it was not done %g s after the end, and %d "
            "for which it failed, was captured or had more than enough to do",
            f"{counted(without, 'span')} {'has' if without == 1 else 'have'}",
            under_way,
            limit_s,
            times.left_out,
        )
    times.restart()


def _forget(_: Run) -> None:
    if _times is not None:
        _times.forget_parent()


register(Hook("times on devices", _begin, _end, _forget))
