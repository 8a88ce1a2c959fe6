"""dftracer's words: categories, names of events, kinds of arguments and of entities."""

from __future__ import annotations

import os
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Any, TypeVar

from dftrace_ai.config.rows import FALSE_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

__all__ = [
    "BLOCK_NAME",
    "CTX_SEPARATOR",
    "DFTRACER_ENABLE",
    "DFTRACER_ENABLE_ENV",
    "DFTRACER_INIT_ENV",
    "DFTRACER_INIT_PRELOAD",
    "DFTRACER_LOG_LEVEL",
    "DFTRACER_LOG_LEVEL_ENV",
    "DFTRACER_TIME_METRIC_ENV",
    "INIT_NAME",
    "ITER_COUNT_NAME",
    "ITER_NAME",
    "ROOT_CAT",
    "ROOT_NAME",
    "START_METADATA_NAME",
    "STOP_METADATA_NAME",
    "CheckpointEvent",
    "CommunicationEvent",
    "ComputeEvent",
    "DataEvent",
    "DataLoaderEvent",
    "DeviceEvent",
    "EntityID",
    "EntityRelation",
    "EntityRole",
    "EntityStore",
    "IOEvent",
    "OtherEvent",
    "PipelineEvent",
    "ProfileCategory",
    "StringEnum",
    "TagDType",
    "TagType",
    "TagValue",
    "TagValueTuple",
    "get_iter_block_name",
    "get_iter_handle_name",
]

DFTRACER_ENABLE_ENV = "DFTRACER_ENABLE"
DFTRACER_INIT_ENV = "DFTRACER_INIT"
DFTRACER_LOG_LEVEL_ENV = "DFTRACER_LOG_LEVEL"
DFTRACER_TIME_METRIC_ENV = "DFTRACER_TIME_METRIC"

_enabled = os.environ.get("DFTRACE_ENABLE", "").strip() or os.environ.get(DFTRACER_ENABLE_ENV, "")
DFTRACER_ENABLE: bool = _enabled.strip().lower() not in FALSE_WORDS
"""Whether the environment lets a run record: not set means on, as everywhere in dftrace_ai."""
DFTRACER_INIT_PRELOAD = os.environ.get(DFTRACER_INIT_ENV, "PRELOAD") == "PRELOAD"
DFTRACER_LOG_LEVEL = os.environ.get(DFTRACER_LOG_LEVEL_ENV, "ERROR")

ITER_COUNT_NAME = "count"
INIT_NAME = "init"
BLOCK_NAME = "block"
ITER_NAME = "iter"
CTX_SEPARATOR = "."
ROOT_NAME = "ai_root"
ROOT_CAT = "ai_root"
START_METADATA_NAME = "start"
STOP_METADATA_NAME = "end"


def get_iter_block_name(name: str) -> str:
    """Return what the body of a loop of that name is called: ``<name>.block``."""
    return name if name.endswith(".block") else f"{name}.block"


def get_iter_handle_name(name: str) -> str:
    """Return what the wait of a loop of that name is called: ``<name>.iter``."""
    return name if name.endswith(".iter") else f"{name}.iter"


class StringEnum(str, Enum):
    """Names whose values are their own letters, small, and which are those strings."""

    @staticmethod
    def _generate_next_value_(name: str, *_: Any) -> str:
        return name.lower()

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(str(self.value), spec)


class ProfileCategory(StringEnum):
    """The categories of the tree."""

    COMPUTE = auto()
    DATA = auto()
    DATALOADER = auto()
    COMM = auto()
    DEVICE = auto()
    CHECKPOINT = auto()
    PIPELINE = auto()
    OTHER = auto()


class ComputeEvent(StringEnum):
    """Names below ``compute``."""

    FORWARD = auto()
    BACKWARD = auto()
    STEP = auto()


class DataEvent(StringEnum):
    """Names below ``data``."""

    PREPROCESS = auto()
    ITEM = auto()


class DataLoaderEvent(StringEnum):
    """Names below ``dataloader``."""

    FETCH = auto()


class CommunicationEvent(StringEnum):
    """Names below ``comm``."""

    SEND = auto()
    RECEIVE = auto()
    BARRIER = auto()
    BCAST = auto()
    REDUCE = auto()
    ALL_REDUCE = auto()
    GATHER = auto()
    ALL_GATHER = auto()
    SCATTER = auto()
    REDUCE_SCATTER = auto()
    ALL_TO_ALL = auto()


class DeviceEvent(StringEnum):
    """Names below ``device``."""

    TRANSFER = auto()


class PipelineEvent(StringEnum):
    """Names below ``pipeline``."""

    EPOCH = auto()
    TRAIN = auto()
    EVALUATE = auto()
    TEST = auto()


class CheckpointEvent(StringEnum):
    """Names below ``checkpoint``."""

    CAPTURE = auto()
    RESTART = auto()


class OtherEvent(StringEnum):
    """Names below ``other``."""

    LOG = auto()


class IOEvent(StringEnum):
    """Names below each ``io``."""

    OPEN = auto()
    READ = auto()
    WRITE = auto()
    CLOSE = auto()


class EntityStore(IntEnum):
    """Where an entity lies."""

    MEMORY = 0
    GPU_MEMORY = 1
    LOCAL_DISK = 2
    PARALLEL_FS = 3
    BURST_BUFFER = 4
    OBJECT_STORE = 5
    DATABASE = 6
    NETWORK = 7
    OTHER = 8


class EntityRole(IntEnum):
    """What entities of a type are for."""

    UNKNOWN = 0
    INPUT = 1
    OUTPUT = 2
    INTERMEDIATE = 3
    PARAMETER = 4
    REFERENCE = 5


class EntityRelation(IntEnum):
    """What an event (below 16) or an entity (from 16 on) has to do with an entity."""

    USED = 0
    GENERATED = 1
    INVALIDATED = 2
    UPDATED = 3
    DERIVED_FROM = 16
    REVISION_OF = 17
    CONTAINS = 18
    PART_OF = 19
    SPECIALIZATION_OF = 20
    ALTERNATE_OF = 21
    DEPENDS_ON = 22


EntityID = int
"""The number of an entity, the same in every process; 0 is none."""


class _Number(Enum):
    def __int__(self) -> int:
        return int(self.value)


class TagType(_Number):
    """What dftracer's readers do with an argument."""

    KEY = 0
    VALUE = 1
    IGNORE = 2


class TagDType(_Number):
    """The type of an argument."""

    INT = 0
    FLOAT = 1
    STRING = 2


TagValueTuple = tuple[int, int | float | str]
"""An argument as dftracer keeps it: the number of a `TagType`, and the value."""

_TYPES: dict[TagDType, type[int | float | str]] = {
    TagDType.INT: int,
    TagDType.FLOAT: float,
    TagDType.STRING: str,
}


class TagValue:
    """A value with its type, for ``args`` and `log_event`."""

    def __init__(
        self,
        value: Any,
        dtype: TagDType = TagDType.STRING,
        tag_type: TagType = TagType.KEY,
    ) -> None:
        self._dtype = dtype
        self._tag_type = tag_type
        self._value: int | float | str = _TYPES[dtype](value)

    def value(self) -> TagValueTuple:
        """Return the number of the kind of tag, and the value."""
        return int(self._tag_type), self._value


def without_tags(args: Mapping[str, T]) -> dict[str, T | int | float | str]:
    """Return arguments without `TagValue` around their values."""
    return {k: v._value if isinstance(v, TagValue) else v for k, v in dict(args).items()}
