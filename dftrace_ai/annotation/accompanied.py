"""Nodes whose spans have something beside them: the time on a device, ranges of a profiler.

Apart from `node`: few programs ask for companions, and the mode is a node of its own.
"""

from __future__ import annotations

from contextvars import ContextVar
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from dftrace_ai._native import Node
from dftrace_ai.annotation.branching import BranchingNode

if TYPE_CHECKING:
    from typing_extensions import Self

    from dftrace_ai._native import Span
    from dftrace_ai.device.companions import Companion

N = TypeVar("N", bound="BranchingNode")
A = TypeVar("A", bound="AccompaniedMode")

NAMES = frozenset({"device", "itt", "nvtx"})


def asked_for(free: dict[str, Any]) -> tuple[str, ...]:
    """Take out of free arguments what asks for companions: truth values of these names alone."""
    if NAMES.isdisjoint(free):
        return ()
    given = [name for name in sorted(NAMES) if type(free.get(name)) is bool]
    return tuple(name for name in given if free.pop(name))


def accompanied(node: BranchingNode, names: tuple[str, ...], kind: type[A]) -> A:
    """Return the node of the same name whose spans have companions, made below `node`."""
    beside = node._beside if isinstance(node, AccompaniedMode) else ()
    names = tuple(dict.fromkeys(beside + names))
    if names == beside and isinstance(node, kind):
        return node
    key = f"{node.name} with {', '.join(names)}"
    found: Any = node._named.get(key)
    if found is None:
        found = node._alike(node.name, kind)
        found._take_companions(names)
        node._hang(key, found)
    made: A = found
    return made


class _Open:
    """A span with what goes beside it, from the lookup of `__exit__` to its call."""

    __slots__ = ("__weakref__", "_begun", "_span", "is_entered", "node")

    def __init__(self, node: AccompaniedMode) -> None:
        self.node = node
        self.is_entered = False
        self._span: Span | None = None
        self._begun: list[tuple[Companion, Any]] = []

    @property
    def is_open(self) -> bool:
        """Whether there is a span."""
        return self._span is not None

    def enter(self, *, is_resume: bool = False) -> Self:
        """Begin the span, and in it what goes beside it."""
        self.is_entered = True
        node = self.node
        self._span = Node._begin(node)
        if self._span is not None:
            self._begun = [(one, one.begin(node, is_resume=is_resume)) for one in node._companions]
        return self

    def end(self, exc_type: type[BaseException] | None = None, *_: object) -> None:
        """End the span."""
        span, self._span = self._span, None
        if span is not None:
            for companion, begun in reversed(self._begun):
                if begun is not None:
                    companion.end(begun, self.node)
            span.end(exc_type)

    def _drop(self) -> Span | None:
        span, self._span = self._span, None
        if span is not None:
            for companion, begun in reversed(self._begun):
                if begun is not None:
                    companion.drop(begun)
        return span

    def end_unless_empty(self) -> None:
        """End the last request for an item, beside which there is nothing."""
        span = self._drop()
        if span is not None:
            span.end_unless_empty()

    def cancel(self) -> None:
        """Take the span back."""
        span = self._drop()
        if span is not None:
            span.cancel()

    def __call__(self, exc_type: Any = None, *_: object) -> None:
        if self.is_entered:
            self.end(exc_type)
        else:
            # `node.__exit__(...)` called by hand: it ends what `node.__enter__()` opened.
            _forget_lookup(self)
            _close_by_hand(self.node, exc_type)


# What was opened by hand and not ended, by task and thread: each with the node that ends it.
_by_hand: ContextVar[tuple[tuple[_Open, Node], ...]] = ContextVar("dftrace_accompanied", default=())


class _Lookup(local):
    """What the lookup of `__exit__` leaves for the call of `__enter__` that follows in a `with`.

    It is not kept alive here: one that nobody kept, as that of `hasattr`, can end no span.
    """

    open: ref[_Open] | None = None

    def take(self) -> _Open | None:
        looked_up, self.open = self.open, None
        return None if looked_up is None else looked_up()


_lookup = _Lookup()


def _forget_lookup(one: _Open) -> None:
    if _lookup.open is not None and _lookup.open() is one:
        _lookup.open = None


def _open_by_hand(owner: Node, shown: AccompaniedMode) -> None:
    opened = _Open(shown).enter()
    if opened.is_open:
        _by_hand.set((*_by_hand.get(), (opened, owner)))


def _close_by_hand(owner: Node, exc_type: Any = None) -> bool:
    """End the latest of a node that this task or thread opened by hand; False without one."""
    chain = _by_hand.get()
    for place in reversed(range(len(chain))):
        opened, of = chain[place]
        if of is owner:
            _by_hand.set(chain[:place] + chain[place + 1 :])
            opened.end(exc_type)
            return True
    return False


class _Exit:
    """`__exit__`: answered with an object for each `with`, so that the node has no state of it."""

    def __get__(self, node: AccompaniedMode | None, _: type | None = None) -> Any:
        if node is None:
            return _exit_of_type
        opened = _Open(node)
        _lookup.open = ref(opened)
        return opened


def _exit_of_type(node: AccompaniedMode, exc_type: Any = None, *_: object) -> None:
    _close_by_hand(node, exc_type)


class AccompaniedMode(BranchingNode):
    """What makes a node open and close companions of its spans, in all forms but `iter`."""

    _beside: tuple[str, ...] = ()
    _companions: tuple[Companion, ...] = ()

    def _take_companions(self, names: tuple[str, ...]) -> None:
        from dftrace_ai.device.companions import COMPANIONS

        self._beside = names
        self._companions = tuple(COMPANIONS[name] for name in names)

    def _child(self, name: str, kind: Any = None) -> Any:
        return self._child_of(name, kind or type(self))

    def _alike(self, name: str, kind: type[N], enabled: bool | None = None) -> N:
        node = super()._alike(name, kind, enabled)
        if isinstance(node, AccompaniedMode):
            node._take_companions(self._beside)
        return node

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        if self._above is None:
            return _remade, (
                *(kind, self.cat, self.name, self.enabled),
                *(self._copy_args(), self._beside),
            )
        above, key = self._above
        if isinstance(above, AccompaniedMode) and above._beside == self._beside:
            return _child_at, (above, key)
        return accompanied, (above, self._beside, kind)

    def __enter__(self) -> Self:
        looked_up = _lookup.take()
        if looked_up is not None and looked_up.node is self:
            looked_up.enter()
        else:
            _open_by_hand(self, self)
        return self

    if not TYPE_CHECKING:
        __exit__ = _Exit()

    def _begin(self) -> Any:
        opened = _Open(self).enter(is_resume=True)
        return opened if opened.is_open else None

    def _start(self, shown: Any = None, /) -> None:
        _open_by_hand(self, self if shown is None else shown)

    def _stop(self) -> bool:
        return _close_by_hand(self)


def _child_at(node: AccompaniedMode, key: str) -> Any:
    return node._child(key)


def _remade(
    kind: type[A],
    cat: str,
    name: str,
    enabled: bool,
    args: dict[str, object],
    names: tuple[str, ...],
) -> A:
    node = kind(cat, name, enabled)
    node._take_companions(names)
    node._merge_args(args)
    return node
