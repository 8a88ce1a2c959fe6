"""A node of the profiler tree: one name of one category, used in every form of annotation."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import dftrace_ai._native as _native
from dftrace_ai._native import Node, QuickMethod, TracedIterator, quick_calls
from dftrace_ai.annotation.accompanied import AccompaniedMode, accompanied, asked_for
from dftrace_ai.annotation.branching import BranchingNode
from dftrace_ai.annotation.wrapping import wrap
from dftrace_ai.run import emitting
from dftrace_ai.run.emitting import metadata, time_us
from dftrace_ai.wording import tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping

    from typing_extensions import Self

    from dftrace_ai._native import Span


F = TypeVar("F", bound="Callable[..., Any]")
T = TypeVar("T")
N = TypeVar("N", bound="ProfilerNode")


class TracedAsyncIterator(Generic[T]):
    """The items of an async iterable, each with a span for the wait and one for the body."""

    def __init__(self, iterable: AsyncIterable[T], wait: Node | None, block: Node | None) -> None:
        self._open: Span | None = None  # first: a failure below leaves an object to be deleted
        if not hasattr(type(iterable), "__aiter__"):
            raise TypeError(f"{type(iterable).__name__!r} object is not an async iterable")
        self._source: AsyncIterator[T] = iterable.__aiter__()
        self._wait = wait
        self._block = block
        self._count = 0

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        self._end_block()
        span = self._wait._begin() if self._wait is not None else None
        try:
            item = await self._source.__anext__()
        except StopAsyncIteration:
            # The last request only learns that there is nothing more.
            if span is not None:
                span.end_unless_empty()
            raise
        except BaseException as error:
            if span is not None:
                span.end(type(error), self._count + 1)
            raise
        self._count += 1
        if span is not None:
            span.end(None, self._count)
        if self._block is not None:
            self._open = self._block._begin()
        return item

    def _end_block(self) -> None:
        span, self._open = self._open, None
        if span is not None:
            span.end(None, self._count)

    def __del__(self) -> None:
        # A loop that is left by break lets go of its iterator at once.
        self._end_block()

    async def aclose(self) -> None:
        """End the open block, and the source if it can be ended."""
        self._end_block()
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()


def given_arguments(
    epoch: int | None,
    step: int | None,
    image_idx: int | None,
    image_size: float | None,
    *more: Mapping[str, Any] | None,
) -> dict[str, object]:
    """Return what was given, by name; the last of two of one name counts."""
    named = {"epoch": epoch, "step": step, "image_idx": image_idx, "image_size": image_size}
    given: dict[str, object] = {key: value for key, value in named.items() if value is not None}
    for one in more:
        if one is not None:
            given.update(one)
    return given


def _flow_id(key: int | str) -> int:
    """Return a number of at most 53 bits: what every reader of JSON holds exactly."""
    if isinstance(key, int) and 0 < key < 1 << 53:
        return key
    value = 0xCBF29CE484222325
    for byte in repr(key).encode("utf-8", "surrogatepass"):
        value = ((value ^ byte) * 0x100000001B3) & (1 << 64) - 1
    return (value >> 11) or 1


def write_mark(node: Node, mark: str) -> None:
    """Write the line of a node's ``start`` or ``end``; nothing where it is disabled."""
    if node.enabled:
        metadata(f"{node.name}.{mark}", str(time_us()))


class _Lines:
    """What ends a pair of lines, in the place of an open span."""

    def __init__(self, node: MetadataMode) -> None:
        self._node = node

    def end(self, *_: object) -> None:
        self._node.stop()

    end_unless_empty = cancel = end


class MetadataMode(Node):
    """What makes a node write lines where it would write spans.

    A ``with`` block, a call of a decorated function and a resume of a decorated
    generator are a start and a stop. The lines have no arguments.
    """

    def start(self, metadata: bool = True, **given: Any) -> None:
        """Write the line ``<name>.start``."""
        write_mark(self, "start")

    def stop(self, metadata: bool = True) -> None:
        """Write the line ``<name>.end``."""
        write_mark(self, "end")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, exc_type: object, exc: object, traceback: object, /) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, exc_type: object, exc: object, traceback: object) -> None:
        self.stop()

    def _begin(self) -> Any:
        if not self.enabled:
            return None
        self.start()
        return _Lines(self)


QUICK = ("__call__", "_alike", "_instance", "_start", "_stop")
"""What a call with numbers goes past: a kind of node with another of these is called by Python."""


def _quick(method: F) -> F:
    """Have a method do without Python what it is asked most often: to take numbers, or nothing."""
    quick: Any = QuickMethod(method, cast("Any", method.__name__))
    return cast("F", functools.update_wrapper(quick, method))


class ProfilerNode(BranchingNode):
    """One kind of span: decorator, context manager, iterator, and start/stop in one.

    Nodes are shared by the whole program and may be used by many threads and
    tasks at once, also inside themselves.

    Example::

        @ai.compute.forward
        def forward(model, x):
            return model(x)

        with ai.comm.all_reduce:
            loss.backward()

        for batch in ai.dataloader.fetch.iter(loader):
            ai.update(step=step)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if all(getattr(cls, name) is getattr(ProfilerNode, name) for name in QUICK):
            quick_calls(cls, ProfilerNode)

    def _child(self, name: str, kind: type[N] | None = None) -> Any:
        return self._child_of(name, kind or ProfilerNode)

    @overload
    def __call__(self, fn: F, /) -> F: ...

    @overload
    def __call__(
        self,
        fn: None = None,
        /,
        *,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        args: Mapping[str, Any] | None = None,
        enable: bool | None = None,
        metadata: bool = False,
        **free: Any,
    ) -> ProfilerNode: ...

    def __call__(
        self,
        fn: Any = None,
        /,
        *,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        args: Mapping[str, Any] | None = None,
        enable: bool | None = None,
        metadata: bool = False,
        **free: Any,
    ) -> Any:
        """Decorate a function, or make an instance with arguments of its own.

        Parentheses make a new node that starts from this one's arguments and
        state and does not follow later calls of `update`, `enable` or `disable`;
        but with ``device=True`` and its like alone they give one that does.

        Args:
            fn: what to decorate; without it an instance is returned, which is a
                decorator and a context manager.
            epoch: epoch number of the events.
            step: step number of the events.
            image_idx: index of the item.
            image_size: size of the item in bytes.
            args: more arguments of the events, by name.
            enable: record these events whatever the tree says (True), or never
                (False); None takes the node's state of now.
            metadata: write ``CM`` lines ``<name>.start`` and ``<name>.end`` instead
                of spans, as `start` does.
            **free: more arguments of the events. But ``device=True`` records what the
                current stream of the device does meanwhile, and ``nvtx=True`` and
                ``itt=True`` open ranges of other profilers; in all forms but `iter`.

        Returns:
            The decorated function, or the instance.

        Example::

            with ai.compute.forward(args={"micro_batch": 3}):
                loss = model(x)
        """
        beside = asked_for(free) if free else ()
        given = given_arguments(epoch, step, image_idx, image_size, args, free)
        node = self._accompanied(beside) if beside else self
        if given or enable is not None or metadata or (fn is None and not beside):
            node = node._instance(given, enable, metadata)
        return node if fn is None else wrap(node, fn)

    def _accompanied(self, names: tuple[str, ...]) -> ProfilerNode:
        """Return the node of the same name whose spans have companions; it follows this one."""
        return accompanied(self, names, AccompaniedNode)

    def _instance(self, given: dict[str, object], enable: bool | None, metadata: bool) -> Any:
        alike = AccompaniedNode if isinstance(self, AccompaniedMode) else ProfilerNode
        node: ProfilerNode = self._alike(self.name, MetadataNode if metadata else alike, enable)
        node._merge_args(given)
        return node

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(self, exc_type: object, exc: object, traceback: object) -> None:
        type(self).__exit__(self, exc_type, exc, traceback)

    def iter(
        self,
        iterable: Iterable[T],
        *,
        include_iter: bool = True,
        include_block: bool = True,
        iter_name: str | None = None,
        block_name: str | None = None,
    ) -> TracedIterator[T]:
        """Iterate with two events an item: the wait for it, and what is done with it.

        Args:
            iterable: what to iterate; its ``len()`` and attributes stay in reach.
            include_iter: record the wait, as ``<name>.iter``.
            include_block: record the body of the loop, as ``<name>.block``.
            iter_name: another name for the wait.
            block_name: another name for the body.

        Returns:
            An iterator over the same items; both events carry the item's number,
            from 1, as ``count``. A new ``for`` over it starts over where the
            iterable can.

        Raises:
            TypeError: `iterable` is not one.

        Example::

            for step, batch in enumerate(ai.dataloader.fetch.iter(loader)):
                train_step(batch)
        """
        wait, block = self._loop_names(iter_name, block_name)
        return TracedIterator(
            self, iterable, wait if include_iter else None, block if include_block else None
        )

    def aiter(
        self,
        iterable: AsyncIterable[T],
        *,
        include_iter: bool = True,
        include_block: bool = True,
        iter_name: str | None = None,
        block_name: str | None = None,
    ) -> TracedAsyncIterator[T]:
        """Iterate asynchronously over an async iterable; otherwise as `iter`.

        Example::

            async for batch in ai.dataloader.fetch.aiter(stream):
                await train_step(batch)
        """
        wait, block = self._loop_names(iter_name, block_name)
        return TracedAsyncIterator(
            iterable,
            self._child(wait) if include_iter else None,
            self._child(block) if include_block else None,
        )

    def _loop_names(self, iter_name: str | None, block_name: str | None) -> tuple[str, str]:
        wait = self.name if self.name.endswith(".iter") else f"{self.name}.iter"
        block = self.name if self.name.endswith(".block") else f"{self.name}.block"
        return iter_name or wait, block_name or block

    @_quick
    def start(
        self,
        metadata: bool = False,
        *,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        args: Mapping[str, Any] | None = None,
        enable: bool | None = None,
        **free: Any,
    ) -> None:
        """Begin a span that `stop` ends, for hooks where nothing else fits.

        Args:
            metadata: write a ``CM`` line ``<name>.start`` at once instead of a span;
                it has no arguments.
            epoch: as in parentheses, for this one span, and so are the others.
            step: step number.
            image_idx: index of the item.
            image_size: size of the item in bytes.
            args: more arguments, by name.
            enable: record this span whatever the tree says (True), or not (False).
            **free: more arguments.

        Example::

            def before_run(self, context):
                ai.compute.start(step=context.step)
        """
        if metadata:
            node = self if enable is None else self._instance({}, enable, metadata=False)
            write_mark(node, "start")
            return
        given = given_arguments(epoch, step, image_idx, image_size, args, free)
        if given or enable is not None:
            self._start(self._instance(given, enable, metadata=False))
        else:
            self._start()

    @_quick
    def stop(self, metadata: bool = False) -> None:
        """End the latest span of this node that `start` began in this thread.

        A stop without a start is counted in the trace's last line, logged once,
        and otherwise ignored.

        Args:
            metadata: write a ``CM`` line ``<name>.end`` at once instead.
        """
        if metadata:
            write_mark(self, "end")
        elif not self._stop() and self.enabled and _native.is_on():
            _native.count_unmatched_stop()
            if not self.__dict__.get("_told"):
                self._told = True
                tell(logging.WARNING, "%s.stop() without start(): ignored, and counted", self.name)

    @property
    def init(self) -> ProfilerNode:
        """The node of this one's initialisation, named ``<name>.init``.

        Example::

            class Dataset:
                @ai.data.item.init
                def __init__(self): ...
        """
        node: ProfilerNode = self._child(f"{self.name}.init")
        return node

    def derive(self, name: str) -> ProfilerNode:
        """Return the child named ``<this name>.<name>``, with this node's arguments and state.

        Args:
            name: what is added to the name.

        Returns:
            The same node for the same name; it follows `update`, `enable` and
            `disable` of this one.

        Example::

            @ai.data.preprocess.derive(name="collate")
            def collate(batch): ...
        """
        node: ProfilerNode = self._child(f"{self.name}.{name}")
        return node

    @_quick
    def update(
        self,
        epoch: int | None = None,
        step: int | None = None,
        image_idx: int | None = None,
        image_size: float | None = None,
        args: Mapping[str, Any] | None = None,
        **free: Any,
    ) -> Self:
        """Set arguments for the events of this node and of all below it.

        An open span takes the values that hold when it ends. The last write
        wins, whether it was made here, above or below.

        Args:
            epoch: epoch number.
            step: step number.
            image_idx: index of the item.
            image_size: size of the item in bytes.
            args: more arguments, by name.
            **free: more arguments.

        Returns:
            This node.

        Example::

            ai.update(epoch=epoch, step=step, loss=0.25)
        """
        self._merge_args(given_arguments(epoch, step, image_idx, image_size, args, free))
        return self

    def flow_out(self, key: int | str, name: str = "flow") -> None:
        """Start an arrow in the span that is open now.

        Args:
            key: what the two ends have in common; the same in every process.
            name: name of the arrow; the same at both ends.

        Example::

            with ai.dataloader.fetch:
                ai.dataloader.fetch.flow_out("batch-7")
            with ai.compute.forward:
                ai.compute.forward.flow_in("batch-7")
        """
        if self.enabled:
            emitting.flow_out(name, _flow_id(key))

    def flow_in(self, key: int | str, name: str = "flow") -> None:
        """End an arrow in the span that is open now; see `flow_out`."""
        if self.enabled:
            emitting.flow_in(name, _flow_id(key))


quick_calls(ProfilerNode, ProfilerNode)


class AccompaniedNode(AccompaniedMode, ProfilerNode):
    """What ``node(device=True)`` and its like make: its spans have companions."""


class MetadataNode(MetadataMode, ProfilerNode):
    """What ``node(metadata=True)`` makes: `start`, `stop` and all other forms of it write lines."""
