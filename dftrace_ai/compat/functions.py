"""dftracer's function decorator: a category and a name of one's own, outside of the tree.

What it needs of dftracer's words is loaded by the calls that need it: to make enumerations takes
longer than a module of functions, and most programs that decorate name no entity.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from dftrace_ai.annotation.compiled_code import has_kind
from dftrace_ai.annotation.node import ProfilerNode
from dftrace_ai.annotation.wrapping import in_place_of, wrap
from dftrace_ai.run.emitting import complete, is_recording, metadata, time_us
from dftrace_ai.wording import own_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from typing_extensions import Self

    from dftrace_ai._native import Node, Span
    from dftrace_ai.compat.vocabulary import EntityID, TagValueTuple

F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")

# Arguments of a decorated function that become arguments of its events, as in dftracer.
PICKED_UP = ("epoch", "step", "image_idx", "image_size")

# Of `EntityRelation`.
USED, GENERATED = 0, 1


def _kind_of(name: str, value: object) -> str:
    """Return in which of the three an argument is: ``int``, ``float`` or ``string``."""
    if name == "image_size" and isinstance(value, (int, float)):
        return "float"
    return "int" if isinstance(value, int) else "float" if isinstance(value, float) else "string"


class _Arguments(MutableMapping[str, "TagValueTuple"]):
    """The arguments of one type, as dftracer has them; what changes here changes in the node."""

    def __init__(self, node: Node, kind: str, seen: Mapping[str, object]) -> None:
        self._node = node
        self._kind = kind
        self._seen = seen  # arguments that only the latest call had

    def _all(self) -> dict[str, TagValueTuple]:
        make: Any = {"int": int, "float": float, "string": str}[self._kind]
        both = {**self._node._copy_args(), **self._seen}
        return {k: (0, make(v)) for k, v in both.items() if _kind_of(k, v) == self._kind}

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

    def _replace(self, values: Mapping[str, TagValueTuple]) -> None:
        """Replace all arguments of this type, as an assignment to dftracer's field does."""
        others = {k: v for k, v in self._node._copy_args().items() if _kind_of(k, v) != self._kind}
        self._node._clear_args()
        self._node._merge_args({**others, **{k: v[1] for k, v in values.items()}})


class _ArgumentsOfType:
    """A field of dftracer's with the arguments of a type, which may be assigned anew."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __get__(self, owner: dft_fn, _: type[dft_fn] | None = None) -> _Arguments:
        return _Arguments(owner._node, self._kind, owner._picked_up)

    def __set__(self, owner: dft_fn, values: Mapping[str, TagValueTuple]) -> None:
        self.__get__(owner)._replace(values)


class _Block:
    """An open span of a `dft_fn`; None once it was flushed."""

    def __init__(self, owner: dft_fn, span: Span | None) -> None:
        self.owner = owner
        self.span = span


# The blocks that are open in this thread or task, outermost first: an object may be used by many.
_open_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("dftrace_dft_fn", default=())


@has_kind
class dft_fn:  # noqa: N801 - the name that users of dftracer know
    """Spans of a category: for functions, constructors, loops and blocks.

    Args:
        cat: category of the events.
        name: name of the events of a block; None takes the calling function's.
        epoch: epoch number.
        step: step number.
        image_idx: index of the item.
        image_size: size of the item in bytes.
        enable: False records nothing.

    Example::

        io = dft_fn("storage")

        class Reader:
            @io.log_init
            def __init__(self): ...

            @io.log
            def read(self, step): ...  # step becomes an argument of the event
    """

    # What the latest call had of its own.
    _picked_up: Mapping[str, object] = MappingProxyType({})

    def __init__(
        self,
        cat: str,
        name: str | None = None,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        enable: bool = True,
    ) -> None:
        if callable(cat):  # else the decorated function would be gone without a word
            raise TypeError("a category is needed, not a function: @dft_fn('io').log decorates one")
        called = name or sys._getframe(1).f_code.co_name
        self._bind(ProfilerNode(own_text(cat), own_text(called), bool(enable)))
        self.update(epoch, step, image_idx, image_size)

    def _bind(self, node: ProfilerNode) -> None:
        self._node = node
        self._cat = node.cat
        self._name = node.name
        self._flush = False
        # What the event has to do with entities, by the name of the relation.
        self._relations: dict[str, list[str]] = {}
        self._created_us = time_us()

    @classmethod
    def _of(cls, node: ProfilerNode) -> Self:
        """Return what dftracer has as the ``profiler`` of a node."""
        made = cls.__new__(cls)
        made._bind(node)
        return made

    @property
    def _enable(self) -> bool:
        return self._node.enabled

    @_enable.setter
    def _enable(self, on: bool) -> None:
        self._node._switch(bool(on))

    _arguments_int = _ArgumentsOfType("int")
    _arguments_float = _ArgumentsOfType("float")
    _arguments_string = _ArgumentsOfType("string")

    def update(
        self,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        args: Mapping[str, Any] | None = None,
        **free: Any,
    ) -> Self:
        """Set arguments for the events that end from now on.

        Args:
            epoch: epoch number.
            step: step number.
            image_idx: index of the item.
            image_size: size of the item in bytes.
            args: more arguments, by name.
            **free: more arguments.

        Returns:
            This object.
        """
        if args:
            from dftrace_ai.compat.vocabulary import without_tags

            args = without_tags(args)
        self._node.update(epoch, step, image_idx, image_size, args, **free)
        return self

    def __enter__(self) -> Self:
        self._push()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: object, tb: object) -> None:
        block = self._pop()
        if block is not None and block.span is not None:
            block.span.end(exc_type)
        if self._relations:
            self._forget_relations()

    def _push(self) -> None:
        _open_blocks.set((*_open_blocks.get(), _Block(self, self._node._begin())))

    def _top(self) -> _Block | None:
        return next((b for b in reversed(_open_blocks.get()) if b.owner is self), None)

    def _pop(self) -> _Block | None:
        block = self._top()
        if block is not None:
            _open_blocks.set(tuple(b for b in _open_blocks.get() if b is not block))
        return block

    def flush(self) -> Self:
        """End the span that is open: since `reset`, ``with``, or else the making of this object.

        Returns:
            This object.
        """
        block = self._top()
        if block is not None:
            span, block.span = block.span, None
            if span is not None:
                span.end()
        elif self._enable:
            now = time_us()
            args = self._node._copy_args()
            start = self._created_us
            complete(self._node.name, start, max(0, now - start), args, category=self._cat)
        self._flush = True
        return self

    def reset(self) -> Self:
        """Begin a new span, which `flush` ends.

        Returns:
            This object.
        """
        self._flush = False
        if self._relations:
            self._forget_relations()
        before = self._pop()
        if before is not None and before.span is not None:
            before.span.cancel()
        self._push()
        return self

    @overload
    def log(self, func: F, name: str | None = None) -> F: ...

    @overload
    def log(self, func: None = None, *, name: str | None = None) -> Callable[[F], F]: ...

    def log(self, func: Any = None, name: str | None = None) -> Any:
        """Record the calls of a function or method, named after it.

        Its arguments (or its ``self``'s attributes) called epoch, step, image_idx
        or image_size become arguments of the events.

        Args:
            func: what to decorate.
            name: another name for the events.

        Returns:
            The decorated function, or a decorator.
        """
        return self._decorated(func, name)

    @overload
    def log_init(self, init: F, name: str | None = None) -> F: ...

    @overload
    def log_init(self, init: None = None, *, name: str | None = None) -> Callable[[F], F]: ...

    def log_init(self, init: Any = None, name: str | None = None) -> Any:
        """Record the calls of a constructor; as `log`, but nothing is taken from ``self``."""
        return self._decorated(init, name, from_self=False)

    @overload
    def log_static(self, func: F, name: str | None = None) -> F: ...

    @overload
    def log_static(self, func: None = None, *, name: str | None = None) -> Callable[[F], F]: ...

    def log_static(self, func: Any = None, name: str | None = None) -> Any:
        """Record the calls of a static method, above or below ``@staticmethod``; as `log`."""
        return self._decorated(func, name)

    def _decorated(self, func: Any, name: str | None, *, from_self: bool = True) -> Any:
        if func is None:
            return functools.partial(self._decorated, name=name, from_self=from_self)
        if isinstance(func, (staticmethod, classmethod)):
            return type(func)(self._decorated(func.__func__, name))
        named = name or _name_of(func)
        if isinstance(func, type):
            return wrap(self._node._alike(named, ProfilerNode), func)
        node = self._node._alike(named, ProfilerNode)
        self._node._add_child(node)
        if not callable(func):  # a property and the like, or nothing that can be decorated
            return wrap(node, func)
        sources = _sources(func)
        if not from_self:
            sources.pop("", None)
        return _picking_up(self, node, func, sources) if sources else wrap(node, func)

    def iter(self, func: Iterable[T], name: str = "loop", iter_name: str = "step") -> Iterator[T]:
        """Iterate with two events an item: ``<name>.iter``, the wait, and ``<name>.yield``.

        Args:
            func: what to iterate.
            name: beginning of the names of the events.
            iter_name: the argument that carries the number of the item, from 1.

        Yields:
            The items.
        """
        # Nodes of this loop alone: another loop of the same name has another number.
        wait: ProfilerNode = self._node._alike(f"{name}.iter", ProfilerNode)
        body: ProfilerNode = self._node._alike(f"{name}.yield", ProfilerNode)
        source = iter(func)
        number = 1
        while True:
            span = wait._begin()
            try:
                item = next(source)
            except StopIteration:
                wait._take_args(self._node)
                if span is not None:
                    span.end_unless_empty()
                return
            except BaseException as error:
                if span is not None:
                    span.end(type(error))
                raise
            wait._merge_args({**self._node._copy_args(), iter_name: number})
            if span is not None:
                span.end()
            block = body._begin()
            try:
                yield item
            finally:
                body._merge_args({**self._node._copy_args(), iter_name: number})
                if block is not None:
                    block.end()
            number += 1

    def log_metadata(self, key: str, value: str) -> None:
        """Write a ``CM`` line at once.

        Args:
            key: its name.
            value: its value.
        """
        if self._enable:
            metadata(key, value)

    def relate(self, relation: int, entity: EntityID) -> Self:
        """Say what the event has to do with an entity: an argument such as ``used``.

        Args:
            relation: an `EntityRelation` below 16; others are left out.
            entity: its number, of `dftracer.declare_entity`; 0 is left out.

        Returns:
            This object.
        """
        if self._enable and entity and int(relation) < 16:
            from dftrace_ai.compat.vocabulary import EntityRelation

            name = EntityRelation(int(relation)).name.lower()
            numbers = self._relations.setdefault(name, [])
            numbers.append(f"{entity:016x}")
            self._node._merge_args({name: numbers})
        return self

    def _forget_relations(self) -> None:
        args = self._node._copy_args()
        for name in self._relations:
            args.pop(name, None)
        self._relations = {}
        self._node._clear_args()
        self._node._merge_args(args)

    def relate_entity(
        self,
        relation: int,
        type: str,  # noqa: A002 - dftracer's name
        key: Any,
        store: int = 0,
        uri: str = "",
    ) -> EntityID:
        """Declare an entity and relate it to the event; see `dftracer.declare_entity`."""
        if not self._enable:
            return 0
        from dftrace_ai.compat.logger import dftracer

        entity = dftracer.get_instance().declare_entity(type, key, store, uri)
        self.relate(relation, entity)
        return entity

    def uses(
        self,
        type: str,  # noqa: A002
        key: Any,
        store: int = 0,
        uri: str = "",
    ) -> EntityID:
        """Say that the event reads an entity; returns its number."""
        return self.relate_entity(USED, type, key, store, uri)

    def generates(
        self,
        type: str,  # noqa: A002
        key: Any,
        store: int = 0,
        uri: str = "",
    ) -> EntityID:
        """Say that the event makes an entity; returns its number."""
        return self.relate_entity(GENERATED, type, key, store, uri)


def _name_of(func: Any) -> str:
    """Return the name of what is decorated; what has none of its own is called as its kind."""
    for inner in (func, *(getattr(func, holder, None) for holder in ("fget", "func"))):
        name = getattr(inner, "__qualname__", None)
        if isinstance(name, str):
            return name
    return type(func).__qualname__


def _sources(func: Callable[..., Any]) -> dict[str, tuple[int | None, Any]]:
    """Where each picked-up argument is found: its position and default; the empty name is self."""
    try:
        parameters = inspect.signature(func).parameters
    except (TypeError, ValueError):  # a builtin without a signature has nothing to pick up
        return {}
    found: dict[str, tuple[int | None, Any]] = {}
    for index, (name, parameter) in enumerate(parameters.items()):
        position = None if parameter.kind is parameter.KEYWORD_ONLY else index
        if name in PICKED_UP:
            found[name] = (position, parameter.default)
        elif index == 0 and name == "self":
            found[""] = (0, None)
    return found


def _attribute(owner: object, name: str) -> Any:
    """Return an attribute of the user's object; what its code raises is no concern of the call."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - a property that is not ready yet, a proxy without its inner
        return None


def _picking_up(
    owner: dft_fn,
    node: ProfilerNode,
    func: Callable[..., Any],
    sources: dict[str, tuple[int | None, Any]],
) -> Callable[..., Any]:
    plain = wrap(node, func)
    of_self = "" in sources
    named = {name: source for name, source in sources.items() if name}

    def prepared(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """What to call: with a node of its own for this call, since others are in it, too."""
        if not node.enabled or not is_recording():
            return func
        found = {
            name: value
            for name in (PICKED_UP if of_self and args else ())
            if isinstance(value := _attribute(args[0], name), (int, float))
        }
        for name, (position, default) in named.items():
            if name in kwargs:
                value = kwargs[name]
            elif position is not None and position < len(args):
                value = args[position]
            else:
                value = default
            if value is not None and value is not inspect.Parameter.empty:
                found[name] = value
        if not found:
            return plain
        owner._picked_up = found
        call = node._alike(node.name, ProfilerNode)
        call._merge_args(found)
        return wrap(call, func)

    # The kind of function stays what it was, for whoever asks inspect.
    if inspect.iscoroutinefunction(func):

        @in_place_of(func)
        async def traced_coroutine(*args: Any, **kwargs: Any) -> Any:
            return await prepared(args, kwargs)(*args, **kwargs)

        return traced_coroutine
    if inspect.isgeneratorfunction(func):

        @in_place_of(func)
        def traced_generator(*args: Any, **kwargs: Any) -> Any:
            return (yield from prepared(args, kwargs)(*args, **kwargs))

        return traced_generator

    @in_place_of(func)
    def traced(*args: Any, **kwargs: Any) -> Any:
        return prepared(args, kwargs)(*args, **kwargs)

    return traced
