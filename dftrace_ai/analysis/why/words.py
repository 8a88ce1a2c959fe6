"""How times, shares, bytes and parts of a step are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dftrace_ai.wording import shortened

if TYPE_CHECKING:
    from dftrace_ai.analysis.why.model import Finding

__all__ = [
    "ARGUMENT_LETTERS",
    "beside_text",
    "bytes_text",
    "part_name",
    "percent",
    "share_text",
    "sureness",
    "time_text",
]

NAMES: Final = {
    "wait": "loader wait",
    "data": "data work in the loop",
    "transfer": "copies to the device",
    "comm": "communication",
    "compute": "other computation",
    "gpu": "GPU",
    "launch": "launching kernels",
    "other": "other spans",
    "none": "not annotated",
}
BYTES: Final = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
ARGUMENT_LETTERS: Final = 60
"""So many letters of a name or an argument are shown."""

# Narrower intervals are told to a tenth of a percent.
NARROW: Final = 0.02


def part_name(part: str) -> str:
    """Return what people are told of a part of a step."""
    return NAMES.get(part, part)


def time_text(ns: float) -> str:
    """Return nanoseconds in the unit that fits: ``20.9 ms``."""
    for size, unit in UNITS:
        if ns >= size:
            value = ns / size
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{ns:.0f} ns"


def bytes_text(count: float) -> str:
    """Return bytes in the unit that fits: ``1.21 GB``."""
    for size, unit in BYTES:
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def beside_text(
    rss_bytes: int | None, device_bytes: int | None, nonfinite: int, tensor: str | None
) -> str:
    """Return what lies beside a step, such as ``1.21 GB, fc:output not finite``; empty for nothing.

    Args:
        rss_bytes: memory of the process; None where it is not known.
        device_bytes: memory on its GPUs; None where it is not known.
        nonfinite: how many tensors stopped being finite in it.
        tensor: the first of these.
    """
    told = [] if rss_bytes is None else [bytes_text(rss_bytes)]
    told += [] if device_bytes is None else [f"{bytes_text(device_bytes)} on the GPU"]
    if nonfinite:
        more = f" and {nonfinite - 1:,} more" if nonfinite > 1 else ""
        told.append(f"{shortened(tensor or '', ARGUMENT_LETTERS)}{more} not finite")
    return ", ".join(told)


def percent(share: float) -> str:
    """Return a share as people read it: ``20 %``."""
    return f"{100 * share:,.0f} %"


def share_text(share: float, low: float, high: float) -> str:
    """Return a share with its interval; alone where it is counted and not estimated.

    Args:
        share: the share.
        low: the lower end of the interval.
        high: the upper end.

    Example::

        assert share_text(0.2, 0.184, 0.22) == "20 % (18 to 22 %)"
        assert share_text(0.2, 0.198, 0.203) == "20.0 % (19.8 to 20.3 %)"
        assert share_text(0.2, 0.2, 0.2) == "20 %"
    """
    if low == high:
        return percent(share)
    digits = 0 if high - low >= NARROW else 1
    told, *ends = (f"{100 * number:,.{digits}f}" for number in (share, low, high))
    return f"{told} % ({' to '.join(ends)} %)"


def sureness(finding: Finding) -> str:
    """Return severity and confidence of a finding, as they stand behind it in parentheses."""
    return f"({finding.severity}, {finding.confidence} confidence)"
