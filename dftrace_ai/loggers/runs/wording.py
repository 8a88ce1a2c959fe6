"""How times, figures and values of runs are put in words."""

from __future__ import annotations

import time
from typing import Any

from dftrace_ai.loggers.runs.lines import number_text

__all__ = ["duration", "exact", "figure", "moment", "value_text"]


def moment(time_s: float | None) -> str:
    """Return a time in seconds since 1970 by the local clock; "" for None."""
    if time_s is None:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def duration(seconds: float) -> str:
    """Return a duration: ``duration(3725) == "1:02:05"``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def figure(value: float) -> str:
    """Return a figure in six digits."""
    return f"{value:.6g}"


def value_text(value: Any) -> str:
    """Return a hyper-parameter as text: texts as they are, all else as JSON has it."""
    import orjson

    if isinstance(value, str):
        return value
    plain = exact(value)
    return plain if isinstance(plain, str) else orjson.dumps(plain).decode()


def exact(value: Any) -> Any:
    """Return a value for JSON, in which numbers that are not finite go by their names."""
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, dict):
        return {str(key): exact(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [exact(one) for one in value]
    return value
