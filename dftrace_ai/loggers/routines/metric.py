"""Metrics: numbers of each iteration, and what they come to in an epoch."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from dftrace_ai.loggers.metric_figures import Figures
from dftrace_ai.loggers.records import MetricsRecord, SoFar
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.loggers.system_metrics import gpu_figures
from dftrace_ai.run.late_import import loaded_torch
from dftrace_ai.wording import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.records import Metrics, Point, Record

    # Those on a GPU are on their way.
    Numbers: TypeAlias = "dict[str, float | _OnItsWay]"

# Whole numbers up to here are floats, too.
EXACT = 1 << 53
ONLY_FLOATS = frozenset({float})
# Of mappings in mappings, and of values in one call.
MOST_DEPTH = 16
MOST_NAMES = 100_000
# Mappings that other routines take for a mesh, a picture or a clip.
MEDIA = ("vertices", "image", "video")

FLOATS = frozenset({float, SoFar})
MISSING = object()


class EpochFigures(Figures):
    """What the values of one metric since the last epoch come to.

    Windows, over whose last values means are also taken, reach back over its beginning.
    """

    __slots__ = ("_recent",)

    def __init__(self, windows: Sequence[int] = ()) -> None:
        super().__init__()
        self._recent = {window: deque[float](maxlen=window) for window in windows}

    @property
    def mean(self) -> float:
        """Mean of the finite values, of which there are some."""
        # Each part is rounded by itself: what trackers have had before stays to the last digit.
        return self._sum / self.count + self._lost / self.count

    def add(self, value: float, step: int = 0, time_s: float = 0.0) -> None:
        """Take a value."""
        super().add(value, step, time_s)
        if math.isfinite(value):
            for recent in self._recent.values():
                recent.append(value)

    def replace(self, value: float) -> None:
        """Take a value in place of all those since the epoch began."""
        if self.count:
            for recent in self._recent.values():
                recent.pop()
        self.begin()
        self.add(value)

    def values(self) -> dict[str, float]:
        """Return the figures by name; without any value, none."""
        if not self.count + self.non_finite:
            return {}
        found = {"last": self.last}
        if self.count:
            found |= {"mean": self.mean, "min": self.min, "max": self.max}
        if self.non_finite:
            found["non_finite"] = float(self.non_finite)
        for window, recent in self._recent.items():
            if recent:
                found[f"mean_{window}"] = math.fsum(recent) / len(recent)
        return found


class _Refused:
    """Stands in the place of a value that is not looked into."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __float__(self) -> float:
        raise ValueError(self._reason)


def spread(items: Iterable[tuple[Any, Any]], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield values by their names, those in mappings by names with slashes between.

    {"eval": {"acc": 0.3}, "loss": 1.0} is eval/acc and loss.
    """
    waiting = [(before, iter(items), frozenset[int]())]
    seen: set[str] = set()
    while waiting:
        start, inner, within = waiting[-1]
        for name, value in inner:
            full = f"{start}{text_of(name)}"
            if full in seen:
                yield full, _Refused("there is another one of that name in the same call")
            elif not isinstance(value, Mapping):
                yield full, value
            elif id(value) in within:
                yield full, _Refused("a mapping that holds itself")
            elif len(waiting) > MOST_DEPTH:
                yield full, _Refused(f"mappings deeper than {MOST_DEPTH}")
            else:
                waiting.append((f"{full}/", iter(value.items()), within | {id(value)}))
                break
            seen.add(full)
            if len(seen) > MOST_NAMES:
                yield full, _Refused(f"more than {MOST_NAMES:,} values in one call")
                return
        else:
            waiting.pop()


class MetricLogger(BaseLogger):
    """Logs numbers for each iteration, and their mean, minimum, maximum and last for each epoch.

    Tensors on a GPU are copied while the training goes on, and read later.
    """

    key: ClassVar[str] = "metric"
    accepts: ClassVar[str] = "a number, a tensor or array of one element, or a mapping of these"

    def __init__(self, settings: EntryConfig) -> None:
        super().__init__(settings)
        self.figures: dict[str, EpochFigures] = {}
        # Names of mappings that are other routines'.
        self.apart: frozenset[str] = frozenset({"hparams"})

    def numbers(self, data: Mapping[str, Any]) -> tuple[Numbers, list[tuple[str, Any]]]:
        """Return all numbers that are plain, and apart those that have to be taken one by one."""
        items = data.copy() if type(data) is dict else dict(data.items())
        # After a step of the training nothing is in a cache, and a loop in Python costs the most.
        if ONLY_FLOATS.issuperset(map(type, items.values())):
            return items, []
        return _sorted_out(items.items(), others=False, apart=self.apart)

    def numbers_of(
        self, names: Iterable[str], data: Mapping[str, Any]
    ) -> tuple[Numbers, list[tuple[str, Any]]]:
        """Return the numbers of these names, likewise; what the data lacks is left out."""
        items = {}
        for name in names:
            if name in data:
                items[name] = data[name]
            elif "/" in name and (value := _within(data, name)) is not MISSING:
                items[name] = value
        if ONLY_FLOATS.issuperset(map(type, items.values())):
            return items, []
        return _sorted_out(items.items(), others=True)

    def take(self, value: Any) -> Any:
        """Return the number; for a tensor on a GPU, a copy that is on its way."""
        return value if type(value) in FLOATS else number_of(value)

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make one record of one number."""
        return [MetricsRecord({name: self.noted(name, taken)}, at)]

    def together(self, taken: Numbers, at: Point) -> Iterable[Record]:
        """Make one record of all numbers of an iteration."""
        named = {text_of(name): value for name, value in taken.items()}
        values = {name: self.noted(name, value) for name, value in named.items()}
        return [MetricsRecord(values, at)]

    def noted(self, name: str, taken: Any) -> float:
        """Return a number that was taken, which counts for its epoch from now on."""
        value = taken if type(taken) is float else float(taken)
        figures = self.figures.get(name)
        if figures is None:
            figures = self.figures[name] = EpochFigures(self.settings.windows)
        if type(taken) is SoFar:
            figures.replace(value)
        else:
            figures.add(value)
        return value

    def iteration_records(self, at: Point) -> Iterable[Record]:
        """Make a record of the GPU's memory and utilisation, where configured."""
        values = gpu_figures() if self.settings.gpu else {}
        return [MetricsRecord(values, at)] if values else []

    def epoch_records(self, at: Point) -> Iterable[Record]:
        """Make a record of what was logged since the epoch before."""
        values: dict[str, float] = {}
        for name, figures in self.figures.items():
            values |= {f"epoch/{name}/{which}": value for which, value in figures.values().items()}
            figures.begin()
        return [MetricsRecord(values, at)] if values else []


class _OnItsWay:
    """A number that is being copied from a GPU."""

    __slots__ = ("_copied", "_copy")

    def __init__(self, tensor: Any) -> None:
        torch = sys.modules["torch"]
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._copy = host.copy_(tensor, non_blocking=True)
        self._copied = torch.cuda.Event()
        self._copied.record(torch.cuda.current_stream(tensor.device))

    def __float__(self) -> float:
        self._copied.synchronize()
        return float(self._copy.item())


def _sorted_out(
    items: Iterable[tuple[str, Any]], *, others: bool, apart: frozenset[str] = frozenset()
) -> tuple[Numbers, list[tuple[str, Any]]]:
    """Return numbers at once where that is quick, and apart what may be numbers.

    With `others` what does not look like a number is one, too; mappings of some names hold none.
    """
    found: Numbers = {}
    odd: list[tuple[str, Any]] = []
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    scalar = getattr(sys.modules.get("numpy"), "generic", ())
    for name, value in items:
        kind = type(value)
        if kind is float:
            found[name] = value
        elif kind is tensor and value.is_cpu and value.numel() == 1:
            try:
                found[name] = float(value.item())
            except (TypeError, RuntimeError):  # complex, or of a kind that has no items
                odd.append((name, value))
        elif issubclass(kind, scalar):
            number = value.item()
            if isinstance(number, float | int) and -EXACT < number < EXACT:
                found[name] = float(number)
            else:
                odd.append((name, value))
        elif kind is bool or (kind is int and -EXACT < value < EXACT):
            found[name] = float(value)
        elif isinstance(value, Mapping):
            if others or not (name in apart or any(key in value for key in MEDIA)):
                _add_inner(name, value, found, odd, others=others)
        elif others or _is_number(value):
            odd.append((name, value))
    return found, odd


def _add_inner(
    name: str,
    mapping: Metrics,
    found: Numbers,
    odd: list[tuple[str, Any]],
    *,
    others: bool,
) -> None:
    for full, value in spread([(name, mapping)]):
        if full in found:
            odd.append((full, _Refused("there is another one of that name in the same call")))
        elif type(value) is float:
            found[full] = value
        elif others or isinstance(value, _Refused) or _is_number(value):
            odd.append((full, value))


def _within(data: Mapping[str, Any], name: str) -> Any:
    """Return what mappings hold under a name with slashes between; `MISSING` for nothing."""
    start, slash, rest = name.partition("/")
    while slash:
        inner = data.get(start)
        if isinstance(inner, Mapping):
            if rest in inner:
                return inner[rest]
            found = _within(inner, rest)
            if found is not MISSING:
                return found
        more, slash, rest = rest.partition("/")
        start = f"{start}/{more}"
    return MISSING


def number_of(value: Any) -> Any:
    """Return a number as a float; of a tensor on a GPU something that will be one."""
    if isinstance(value, str | bytes):
        raise TypeError(f"a {type(value).__name__}")
    torch = loaded_torch()
    if torch is not None and isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise ValueError(f"a tensor of shape {tuple(value.shape)}")
        if value.is_complex():
            raise TypeError(f"a tensor of {value.dtype}")
        tensor = value.detach()
        if tensor.device.type == "cuda":
            return _OnItsWay(tensor.reshape(()))
        return float(tensor.item())
    if isinstance(value, complex) or getattr(getattr(value, "dtype", None), "kind", "") == "c":
        raise TypeError(f"a complex {type(value).__name__}")
    shape = getattr(value, "shape", ())
    if shape not in ((), (1,)) and math.prod(shape) != 1:
        raise ValueError(f"an array of shape {tuple(shape)}")
    try:
        return float(value.item() if shape else value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_number(value: Any) -> bool:
    try:
        if isinstance(value, int | float):
            return True
        shape = getattr(value, "shape", None)
        if shape is None or math.prod(shape) != 1:
            return False
        kind = str(getattr(value, "dtype", ""))
    except Exception:  # noqa: BLE001 - an object whose `shape` is something else
        return False
    return any(word in kind for word in ("int", "float", "bool"))
