"""The arguments of a node as dftracer keeps them: three mappings, by type."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from dftrace_ai.compat.dftracer.vocabulary import TagValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dftrace_ai._native import Node
    from dftrace_ai.compat.dftracer.vocabulary import TagValueTuple

__all__ = ["Arguments", "kind_of", "plain", "set_arguments"]


def kind_of(name: str, value: object) -> str:
    """Return in which of the three an argument is: ``int``, ``float`` or ``string``."""
    if name == "image_size" and isinstance(value, (int, float)):
        return "float"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else "string"


def plain(args: Mapping[str, Any] | None) -> dict[str, object] | None:
    """Return arguments without dftracer's `TagValue` around their values."""
    if args is None:
        return None
    return {k: v._value if isinstance(v, TagValue) else v for k, v in args.items()}


class Arguments(MutableMapping[str, "TagValueTuple"]):
    """The arguments of one type, by name; what is changed here is changed in the node.

    Args:
        node: whose arguments they are.
        kind: ``int``, ``float`` or ``string``.
        seen: arguments that only the latest call had.
    """

    def __init__(self, node: Node, kind: str, seen: Mapping[str, object] | None = None) -> None:
        self._node = node
        self._kind = kind
        self._seen = seen or {}

    def _all(self) -> dict[str, TagValueTuple]:
        make: Any = {"int": int, "float": float, "string": str}[self._kind]
        both = {**self._node._copy_args(), **self._seen}
        return {k: (0, make(v)) for k, v in both.items() if kind_of(k, v) == self._kind}

    def __getitem__(self, name: str) -> TagValueTuple:
        return self._all()[name]

    def __setitem__(self, name: str, value: TagValueTuple) -> None:
        self._node._merge_args({name: value[1]})

    def __delitem__(self, name: str) -> None:
        del self._all()[name]  # a KeyError where it is not there
        args = self._node._copy_args()
        args.pop(name, None)
        self._node._clear_args()
        self._node._merge_args(args)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


def set_arguments(node: Node, kind: str, values: Mapping[str, TagValueTuple]) -> None:
    """Replace all arguments of one type, as an assignment to dftracer's field does."""
    others = {k: v for k, v in node._copy_args().items() if kind_of(k, v) != kind}
    new = {k: v[1] for k, v in values.items()}
    node._clear_args()
    node._merge_args({**others, **new})
