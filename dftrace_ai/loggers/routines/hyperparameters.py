"""Hyper-parameters: what a training was configured with, nested and typed."""

from __future__ import annotations

import dataclasses
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dftrace_ai.config.rows import Settings
from dftrace_ai.loggers.names import free_name
from dftrace_ai.loggers.records import ParamsRecord
from dftrace_ai.loggers.routines.base import BaseLogger
from dftrace_ai.masking import masked_values
from dftrace_ai.wording import text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from dftrace_ai.loggers.config import EntryConfig
    from dftrace_ai.loggers.records import Param, Point, Record

KEY = "hparams"
MOST_DEPTH = 32
MOST_LETTERS = 10_000
# A few objects that know each other have more ways through them than any memory holds.
MOST_VALUES = 100_000
LEFT_OUT = f"left out from here on: more than {MOST_VALUES:,} values"


class HyperparameterLogger(BaseLogger):
    """Logs hyper-parameters: mappings, dataclasses, namespaces, pydantic models, OmegaConf."""

    key: ClassVar[str] = KEY
    accepts: ClassVar[str] = "a mapping, dataclass, namespace or model, or one value"

    def __init__(self, settings: EntryConfig) -> None:
        super().__init__(settings)
        self._before: dict[str, Param] = {}

    def untracked(self, data: Collection[str]) -> Sequence[str]:
        """Return the one name under which hyper-parameters are looked for."""
        return (KEY,) if KEY in data else ()

    def take(self, value: Any) -> Any:
        """Return mappings, lists, texts, numbers, booleans and None."""
        found = plain_params(value)
        return masked_values(found) if self.settings.mask_secrets else found

    def records(self, name: str, taken: Any, at: Point) -> Iterable[Record]:
        """Make one record, where something has changed; one value stands under its name."""
        if self._before.get(name, self) == taken:
            return
        self._before[name] = taken
        yield ParamsRecord(taken if isinstance(taken, dict) else {name: taken}, at)


class _Single(NamedTuple):
    """What a scalar of numpy, or an array or tensor without dimensions, holds."""

    item: Any


def plain_params(value: Any) -> Param:
    """Return hyper-parameters as every tracker takes them; what is none of theirs, as text.

    An object within itself is told by its kind; of more than `MOST_VALUES` values the first ones
    are kept, and a text says so in the place of the next.
    """
    return _Values().plain(value)


class _Values:
    """Takes values apart: each object once on the way to it, and not more than trackers hold."""

    def __init__(self) -> None:
        self._on_way: set[int] = set()
        self._count = 0

    def plain(self, value: Any) -> Param:
        """Return a value in mappings, lists, texts and numbers."""
        self._count += 1
        if self._is_full():
            return LEFT_OUT
        if id(value) in self._on_way:
            return f"a {type(value).__qualname__} that holds this"
        try:
            return self._plain(value)
        except Exception:  # noqa: BLE001 - one that cannot be asked costs none of the others
            return _text(value)

    def _is_full(self) -> bool:
        return self._count > MOST_VALUES

    def _plain(self, value: Any) -> Param:
        if value is None or isinstance(value, bool | str):
            return value[:MOST_LETTERS] if isinstance(value, str) else value
        if isinstance(value, Enum):
            return self.plain(value.value)
        if isinstance(value, int):
            # Trackers make a float of it; one that is too large would cost them the whole record.
            return int(value) if abs(value) <= sys.float_info.max else _text(value)
        if isinstance(value, float | Decimal | Fraction):
            return float(value)
        inner = _parts(value)
        if not isinstance(inner, _Single | Mapping | list | tuple | set | frozenset):
            return _text(value)
        if len(self._on_way) >= MOST_DEPTH:
            return f"a {type(value).__qualname__}, nested too deeply"
        self._on_way.add(id(value))
        try:
            return self._opened(inner)
        finally:
            self._on_way.discard(id(value))

    def _opened(self, inner: Any) -> Param:
        if isinstance(inner, _Single):
            return self.plain(inner.item)
        if isinstance(inner, Mapping):
            found: dict[str, Param] = {}
            for key, part in inner.items():
                found[free_name(text_of(key), found)] = self.plain(part)
                if self._is_full():
                    break
            return found
        listed: list[Param] = []
        for part in sorted(inner, key=repr) if isinstance(inner, set | frozenset) else inner:
            listed.append(self.plain(part))
            if self._is_full():
                break
        return listed


def _parts(value: Any) -> Any:
    kind = type(value)
    if kind.__module__.partition(".")[0] == "omegaconf":
        return _of_omegaconf(value)
    if isinstance(value, Namespace | SimpleNamespace):
        return vars(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if hasattr(kind, "model_fields") and hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, Settings):
        return dict(value)
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return _of_array(value)
    return value


def _of_omegaconf(value: Any) -> Any:
    from omegaconf import OmegaConf

    with suppress(Exception):  # a reference of the user's that leads nowhere
        return OmegaConf.to_container(value, resolve=True)
    return OmegaConf.to_container(value)


def _of_array(value: Any) -> Any:
    """Return what is in an array or tensor, of numpy, torch or another library; exactly."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    try:
        if kind in ("m", "M"):
            value = value.astype(str)  # numpy's own numbers for times mean nothing without a unit
        item = value.tolist()
    except Exception:  # noqa: BLE001 - a tensor that has no numbers: of shapes alone, or broken
        return value
    if tuple(value.shape):
        return item
    if kind == "f":
        item = float(item)  # numpy's own for what Python has no type for
    return value if item is value else _Single(item)


def _text(value: Any) -> str:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, type) or callable(value):
        name = getattr(value, "__qualname__", None)
        if name is not None:
            return f"{value.__module__}.{name}"
    try:
        return str(value)[:MOST_LETTERS]
    except Exception:  # noqa: BLE001 - a user's object, in the middle of a training
        return f"a {type(value).__qualname__}"
