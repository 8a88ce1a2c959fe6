"""The lines of a log, each held against the format before anything is made of it."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dftrace_ai.loggers.names import flattened
from dftrace_ai.loggers.runs.processes import ProcessIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dftrace_ai.loggers.records import Param, Params

AXES = {"i": "iteration", "e": "epoch", "t": "time"}
ENDS = ("finished", "failed", "killed")

MOST_TIME_S = 253_402_300_800.0
"""The year 10000, which is beyond what dates can say."""
MOST_STEP = (1 << 63) - 1
MOST_DEPTH = 64
"""Of mappings and lists in a line."""

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

# What stands where it says of which step it is, and what was kept.
PLACE = frozenset({"k", "s", "a", "t", "name", "file", "kind"})


class RunLine(NamedTuple):
    """Who writes: the first line of a log."""

    time_s: float
    process: ProcessIdentity
    project: str
    name: str
    group: str
    tags: tuple[str, ...]
    rank: int
    world_size: int


class MetricsLine(NamedTuple):
    """Numbers by name; those that are not finite are among them."""

    step: int
    axis: str
    time_s: float
    values: Mapping[str, float]


class ParamsLine(NamedTuple):
    """Hyper-parameters, by their names with slashes between."""

    time_s: float
    values: Params


class MediaLine(NamedTuple):
    """What is no number: a file, or what stands in the line itself."""

    kind: str  # image, video, mesh, file, histogram, text, artifact or alert
    name: str
    axis: str
    step: int
    time_s: float
    file: str  # path within the run's directory, or ""
    facts: Params  # what else the line says


class EndLine(NamedTuple):
    """How the run ended for who writes."""

    time_s: float
    status: str


Line = RunLine | MetricsLine | ParamsLine | MediaLine | EndLine


class _NotOfTheFormatError(ValueError):
    """A line does not say what it should."""


def line_of(data: bytes) -> Line | None:
    """Read a line, without its end; None where it is torn, or not as the format has it."""
    try:
        found = _object(data)
        kind = found.get("k")
        if kind == "m":
            return MetricsLine(*_place(found), _numbers(found.get("v")))
        if kind == "p":
            return ParamsLine(_time(found), _flat(_mapping(found.get("v"))))
        if kind == "end":
            status = _text(found, "status")
            return EndLine(_time(found), status if status in ENDS else "unknown")
        if kind == "run":
            return _run_line(found)
        if kind in ("h", "f", "x", "a", "!"):
            return _media_line(kind, found)
    except (ValueError, RecursionError, OverflowError):
        return None
    return None


def number_text(value: float) -> float | str:
    """Return a number as JSON has it; others by the names that Python and DuckDB read."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def exact(value: Any) -> Any:
    """Return a value for JSON, in which numbers that are not finite go by their names."""
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, dict):
        return {str(key): exact(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [exact(one) for one in value]
    return value


def value_text(value: Any) -> str:
    """Return a hyper-parameter as text: texts as they are, all else as JSON has it."""
    import orjson

    plain = exact(value)
    return plain if isinstance(plain, str) else orjson.dumps(plain).decode()


def _object(data: bytes) -> dict[str, Param]:
    import orjson

    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        # Halves of surrogates, which stand for bytes of a path that are no UTF-8, it refuses.
        if b"\\ud" not in data:
            raise
        found = _whole(json.loads(data))
    if not isinstance(found, dict):
        raise _NotOfTheFormatError
    if data.count(b"{") + data.count(b"[") > MOST_DEPTH and _is_deep(found):
        raise _NotOfTheFormatError
    return found


def _is_deep(found: Any) -> bool:
    level, depth = [found], 0
    while level and depth <= MOST_DEPTH:
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [value for one in inner for value in one if isinstance(value, dict | list)]
        depth += 1
    return bool(level)


def whole_text(text: str) -> str:
    """Return a text with an escape for each half of a surrogate, which no other reader takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole_text(value)
    if type(value) is int and abs(value) > MOST_STEP:
        return float(value)
    if isinstance(value, dict):
        return {_whole(key): _whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return value


def _run_line(found: Params) -> RunLine:
    process = ProcessIdentity(
        _text(found, "host"),
        _text(found, "boot"),
        _whole_number(found, "pid_ns"),
        _whole_number(found, "pid"),
        _whole_number(found, "start"),
    )
    _texts(found, "argv")
    return RunLine(
        _time(found),
        process,
        _text(found, "project"),
        _text(found, "name"),
        _text(found, "group"),
        _texts(found, "tags"),
        _whole_number(found, "rank"),
        max(1, _whole_number(found, "world_size")),
    )


def _media_line(kind: str, found: Params) -> MediaLine:
    step, axis, time_s = _place(found)
    facts = {name: value for name, value in found.items() if name not in PLACE}
    name = _text(found, "title" if kind == "!" else "name")
    if kind == "f":
        media = _text(found, "kind")
        if media not in ("image", "video", "mesh", "file"):
            raise _NotOfTheFormatError
    else:
        media = {"h": "histogram", "x": "text", "a": "artifact", "!": "alert"}[kind]
    return MediaLine(media, name, axis, step, time_s, _text(found, "file"), facts)


def _place(found: Params) -> tuple[int, str, float]:
    step, axis = _whole_of(found.get("s")), found.get("a")
    if type(step) is not int or not -MOST_STEP <= step <= MOST_STEP or type(axis) is not str:
        raise _NotOfTheFormatError
    if axis not in AXES:
        raise _NotOfTheFormatError
    return step, AXES[axis], _time(found)


def _time(found: Params) -> float:
    time_s = found.get("t")
    if type(time_s) not in (int, float) or not 0 <= time_s < MOST_TIME_S:  # type: ignore[operator]
        raise _NotOfTheFormatError
    return float(time_s)  # type: ignore[arg-type]


def _numbers(values: Param) -> dict[str, float]:
    found = cast("dict[str, float]", _mapping(values))  # it is, in the end
    for name, value in found.items():
        if type(value) is float:
            continue
        if type(value) is int:
            found[name] = float(value)
        elif isinstance(value, str) and value in NON_FINITE:
            found[name] = NON_FINITE[value]
        else:
            raise _NotOfTheFormatError
    return found


def _mapping(value: Param) -> dict[str, Param]:
    if not isinstance(value, dict):
        raise _NotOfTheFormatError
    return value


def _flat(values: Params) -> dict[str, Param]:
    return {
        name: NON_FINITE.get(value, value) if isinstance(value, str) else value
        for name, value in flattened(values).items()
    }


def _text(found: Params, key: str) -> str:
    value = found.get(key, "")
    if not isinstance(value, str):
        raise _NotOfTheFormatError
    return value


def _whole_number(found: Params, key: str) -> int:
    value = _whole_of(found.get(key, 0))
    if type(value) is not int or not -MOST_STEP <= value <= MOST_STEP:
        raise _NotOfTheFormatError
    return value


def _texts(found: Params, key: str) -> tuple[str, ...]:
    values: Any = found.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _NotOfTheFormatError
    return tuple(values)


def _whole_of(value: Any) -> Any:
    """Return a whole number as such that JSON has with a point: to its schemas it is one."""
    return int(value) if type(value) is float and value.is_integer() else value
